//! `lycosa cluster`: a group of servers that act as one.
//!
//! `init`, `leave` and `recover` change the data folder of a stopped server. The other commands are orders to a member that
//! runs, over `cluster.sock` in its data folder.

mod demo;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use lycosa_server::cluster::control::{CLUSTER_SOCKET, Order};
use lycosa_server::cluster::folder;
use lycosa_server::config::{Config, Flags};
use serde_json::{Value as Json, json};

use crate::arguments::{AdminArguments, ClusterCommand, ClusterInitArguments};
use crate::outcome::Outcome;
use crate::output;
use crate::values::counted;

/// How long a node may take to answer an order.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn run(command: &ClusterCommand) -> anyhow::Result<Outcome> {
    match command {
        ClusterCommand::Init(arguments) => init(arguments),
        ClusterCommand::Add { address, at } => {
            let answer = order(&at.data_dir, &Order::Add { address: address.clone() })?;
            let node = answer.get("node").and_then(Json::as_u64).unwrap_or_default();
            let is_member = |status: &Json| member(status, node).is_some_and(|it| it["address"] == **address);
            if await_status(&at.data_dir, PATIENCE, is_member)?.is_some() {
                bail!(
                    "this member has not heard within {} s that a majority takes node {node} at {address} in. Once the group has a \
                     leader, look at `lycosa cluster status`, and add the server again if it is missing",
                    PATIENCE.as_secs()
                );
            }
            let words = format!("node {node} at {address} is a learner, and a voter once it has all data");
            output::said(at.json, answer, words)
        }
        ClusterCommand::Remove { node, at } => {
            let answer = order(&at.data_dir, &Order::Remove { node: *node })?;
            let leaves = |status: &Json| member(status, *node).is_none_or(|it| it["standing"] == "leaving");
            if await_status(&at.data_dir, PATIENCE, leaves)?.is_some() {
                bail!(
                    "this member has not heard within {} s that a majority removes node {node}. Once the group has a leader, look at \
                     `lycosa cluster status`, and remove the node again if it is still a voter",
                    PATIENCE.as_secs()
                );
            }
            let words = format!(
                "node {node} is being removed: stop its server once `lycosa cluster status` does not show it"
            );
            output::said(at.json, answer, words)
        }
        ClusterCommand::Transfer { node, at } => {
            let answer = order(&at.data_dir, &Order::Transfer { node: *node })?;
            let successor = answer.get("successor").and_then(Json::as_u64).unwrap_or_default();
            await_leader(&at.data_dir, successor)?;
            output::said(at.json, answer, format_args!("node {successor} leads"))
        }
        ClusterCommand::Status(at) => status(at),
        ClusterCommand::Leave(at) => {
            let member = folder::leave(&config(None, &at.data_dir)?)?;
            let answer = json!({"left": member.group.to_string(), "node": member.node});
            let text = format!(
                "the data folder is that of a single server again: leave cluster.listen out when you start it. Group {} has ended",
                member.group
            );
            output::said(at.json, answer, text)
        }
        ClusterCommand::Recover(arguments) => recover(&arguments.at, arguments.force),
        ClusterCommand::Demo => demo::run(),
    }
}

fn config(file: Option<&Path>, data_dir: &Path) -> anyhow::Result<Config> {
    let flags: Flags = [("data-dir".to_owned(), data_dir.display().to_string())].into_iter().collect();
    Ok(Config::load(file, std::env::vars(), &flags)?)
}

fn init(arguments: &ClusterInitArguments) -> anyhow::Result<Outcome> {
    let config = config(arguments.config.as_deref(), &arguments.at.data_dir)?;
    let begun = folder::init(&config, arguments.member_address.as_deref())?;
    let answer = json!({"group": begun.group.to_string(), "node": 1, "address": begun.address});
    let text = format!(
        "node 1 of group {}, at {}. Start it with cluster.listen and cluster.secret_file, then take others in with `lycosa \
         cluster add`",
        begun.group, begun.address
    );
    output::said(arguments.at.json, answer, text)
}

fn recover(arguments: &ClusterInitArguments, force: bool) -> anyhow::Result<Outcome> {
    if !force {
        bail!(
            "recover gives the other members up: tasks that they have confirmed and this one does not have are lost, and tasks that \
             this one has and they did not confirm come back. Nothing was done. See that no other member is ever started again; \
             then add --force. Of several members take the one whose last entry has the \
             highest term, and of equal terms the greatest number: the last line `entry` of `lycosa cat DIR/*.grouplog`"
        );
    }
    let config = config(arguments.config.as_deref(), &arguments.at.data_dir)?;
    let (member, begun) = folder::recover(&config, arguments.member_address.as_deref())?;
    let answer = json!({
        "group": begun.group.to_string(), "node": 1, "address": begun.address, "former_group": member.group.to_string(),
        "former_node": member.node,
    });
    let text = format!(
        "node {} of group {} is node 1 of the new group {}: members of the old group cannot join it. What the lost members had \
         confirmed and this one did not have is missing; take empty servers in with `lycosa cluster add`",
        member.node, member.group, begun.group
    );
    output::said(arguments.at.json, answer, text)
}

/// Waits until the member of a data folder knows the successor as its leader.
///
/// # Errors
/// The former leader leads on: a transfer ends without effect where the successor's log is not complete in time.
fn await_leader(data_dir: &Path, successor: u64) -> anyhow::Result<()> {
    let leader = |status: &Json| status.get("leader").and_then(Json::as_u64);
    let Some(last) = await_status(data_dir, PATIENCE, |status| leader(status) == Some(successor))? else {
        return Ok(());
    };
    let leader = leader(&last).map_or("no node".to_owned(), |leader| format!("node {leader}"));
    bail!(
        "node {successor} was asked to lead, but {leader} leads {} s later: look at the lag in `lycosa cluster status`, and try again",
        PATIENCE.as_secs()
    )
}

/// Waits until the status of the member of a data folder is as `is_so` wants. Returns the last status if none was within `patience`.
fn await_status(
    data_dir: &Path,
    patience: Duration,
    is_so: impl Fn(&Json) -> bool,
) -> anyhow::Result<Option<Json>> {
    let began = Instant::now();
    loop {
        let status = order(data_dir, &Order::Status)?;
        if is_so(&status) {
            return Ok(None);
        }
        if began.elapsed() >= patience {
            return Ok(Some(status));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// The member with that number in a status.
fn member(status: &Json, node: u64) -> Option<&Json> {
    status["members"].as_array()?.iter().find(|member| member["node"] == node)
}

/// Gives a node an order and returns its answer.
pub(super) fn order(data_dir: &Path, order: &Order) -> anyhow::Result<Json> {
    let path = data_dir.join(CLUSTER_SOCKET);
    let mut stream = UnixStream::connect(&path).with_context(|| {
        format!(
            "no member of a group runs on the data folder {} ({CLUSTER_SOCKET} does not answer): name the folder with --data-dir",
            data_dir.display()
        )
    })?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{}\n", serde_json::to_string(order)?).as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).context("the member did not answer")?;
    let answer: Json = serde_json::from_str(&line).context("the member did not answer")?;
    match answer.get("error").and_then(Json::as_str) {
        Some(error) => bail!("{error}"),
        None => Ok(answer),
    }
}

fn status(at: &AdminArguments) -> anyhow::Result<Outcome> {
    let answer = order(&at.data_dir, &Order::Status)?;
    if at.json {
        return output::done(&answer);
    }
    let text = |map: &Json, name: &str| match map.get(name) {
        None | Some(Json::Null) => "-".to_owned(),
        Some(Json::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    if answer.get("state").and_then(Json::as_str) == Some("waiting") {
        return output::done(
            "this server waits to be taken into a group: `lycosa cluster add ADDRESS` on a member",
        );
    }
    let facts = ["term", "leader", "committed", "applied", "level"];
    let facts = facts.map(|name| format!("{name} {}", text(&answer, name))).join(", ");
    let [group, node, role] = ["group", "node", "role"].map(|name| text(&answer, name));
    output::line(format_args!("group {group}, node {node} ({role}), {facts}"))?;
    if let Some(failure) = answer.get("failure").and_then(Json::as_str) {
        output::line(format_args!("this member has left the service of its group: {failure}"))?;
    }
    if let Some(ahead) = answer.get("leader_ahead_us").and_then(Json::as_i64)
        && ahead.unsigned_abs() >= 1_000_000
    {
        let seconds = ahead as f64 / 1e6;
        output::line(format_args!(
            "the leader's time differs from this machine's by {seconds:+.1} s; a new leader goes on with the leader's"
        ))?;
    }
    let forwarded = |name: &str| answer.get("forwarded")?.get(name)?.as_u64();
    if let (Some(requests @ 1..), Some(repeated), Some(unknown)) =
        (forwarded("requests"), forwarded("repeated"), forwarded("unknown"))
    {
        output::line(format_args!(
            "this member's clients: {} sent to a leader, {}, {}",
            counted(requests, "request"),
            counted(repeated, "further attempt"),
            counted(unknown, "unknown outcome")
        ))?;
    }
    let yes = |member: &Json, name: &str| member.get(name).and_then(Json::as_bool) == Some(true);
    let members = answer.get("members").and_then(Json::as_array).into_iter().flatten();
    let rows = members.map(|member| {
        let role = if yes(member, "is_leader") { "leader".to_owned() } else { text(member, "standing") };
        let link = if yes(member, "is_connected") { "connected" } else { "not connected" };
        let [node, address, lag, level] = ["node", "address", "lag", "level"].map(|name| text(member, name));
        [node, address, role, link.to_owned(), lag, level]
    });
    output::table(&["node", "address", "role", "link", "lag", "knows level"], rows)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// A leader takes an order before the group has confirmed anything.
    #[test]
    fn a_member_is_there_once_the_status_shows_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = UnixListener::bind(folder.path().join(CLUSTER_SOCKET)).expect("a socket");
        let without = json!({"members": [{"node": 1, "address": "a:1"}]});
        let with = json!({"members": [{"node": 1, "address": "a:1"}, {"node": 2, "address": "b:1"}]});
        let statuses = [without.clone(), without.clone(), with, without];
        let member = thread::spawn(move || {
            for status in statuses {
                let (mut stream, _) = listener.accept().expect("a connection");
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).expect("an order");
                assert!(line.contains("status"), "{line}");
                writeln!(stream, "{status}").expect("an answer");
            }
        });
        let is_there =
            |status: &Json| super::member(status, 2).is_some_and(|found| found["address"] == "b:1");
        let wait = |patience| await_status(folder.path(), patience, is_there).expect("answers");
        assert_eq!(wait(Duration::MAX), None, "the third status has the member");
        let last = wait(Duration::ZERO).expect("the member is not there");
        assert_eq!(last["members"].as_array().map(Vec::len), Some(1));
        member.join().expect("all statuses were asked for");
    }
}
