//! `lycosa promote` and `lycosa demote`: whether a running server takes writes.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use lycosa_client::{ConnectOptions, Connection, Kind, Value};
use lycosa_iproto::keys::ballot;
use lycosa_iproto::vclock::Vclock;
use serde_json::json;

use crate::arguments::{DemoteArguments, PromoteArguments};
use crate::explain::{in_ballot, replicas, vote};
use crate::outcome::Outcome;
use crate::session::Session;
use crate::values::{array_of, inside, is_true, number_of, pairs, text_of, vclock};
use crate::{output, shadow};

/// Pause between two looks at the server.
const POLL: Duration = Duration::from_millis(10);

/// How long a master may take to tell whether it takes writes.
const PATIENCE: Duration = Duration::from_secs(2);

/// The state of a queue that is not there (`native_queue = false`).
const NO_QUEUE: &str = "absent";

/// The server takes writes from now on.
pub(crate) fn promote(arguments: &PromoteArguments) -> anyhow::Result<Outcome> {
    let session = Session::open_server(&arguments.server)?;
    if arguments.shadow {
        let is_json = arguments.server.client.json;
        return shadow::run(&session, &info(&session)?, arguments.horizon, is_json);
    }
    let began = Instant::now();
    if let Some(text) = &arguments.after {
        wait_for(&session, text, arguments.timeout)?;
    }
    let before = info(&session)?;
    let was_read_only = is_true(&before, "ro");
    // After a demotion no instance takes writes: the operator names its vclock, or the last term is open.
    let is_open = inside(&before, &["term", "owner"]) == Some(&Value::Nil);
    if was_read_only && !is_open && arguments.after.is_none() {
        check_hearing(&deaf(&session, &before), arguments.force)?;
    }
    session.call("box.ctl.promote", Vec::new())?;
    let state = loop {
        let state = queue_state(&session)?;
        let info = info(&session)?;
        let takes_writes = info.get("ro") == Some(&Value::Bool(false));
        if state == "RUNNING" || state == NO_QUEUE && takes_writes {
            break state;
        }
        let text = |name| text_of(&info, name);
        if info.get("id").and_then(Value::as_u64) == Some(0) {
            bail!(
                "this server is an anonymous replica (replication_anon) and never takes writes. To promote it, stop it, move its \
                 data folder away, and start it without replication_anon: it joins again, with a number"
            );
        }
        if began.elapsed() > arguments.timeout {
            let advice = if text("ro_reason") == "fenced" {
                "another instance was promoted later: see box.info().term and the log"
            } else if text("status") == "orphan" {
                "it waits for masters in `replication`. Take those out that are dead, or lower replication_connect_quorum, \
                 and send the server SIGHUP: then it takes writes"
            } else {
                "see box.info().replication and the log"
            };
            let (status, time) = (text("status"), arguments.timeout.as_secs_f64());
            bail!(
                "the server was told to take writes, but its queue is in state {state} and its status is {status} after {time} s: \
                 {advice}"
            );
        }
        thread::sleep(POLL);
    };
    let info = info(&session)?;
    let clock = clock_of(&info);
    let time = began.elapsed().as_secs_f64();
    if arguments.server.client.json {
        let clock = output::vclock(&clock);
        output::line(json!({ "promoted": was_read_only, "state": state, "vclock": clock, "seconds": time }))?;
    } else if was_read_only {
        output::line(format_args!(
            "the server takes writes since {time:.3} s after the command; its queue is {state}, its vclock {clock}"
        ))?;
        warn_of_next_start("false");
    } else {
        output::line("the server took writes before")?;
    }
    warn(&session, &info)?;
    Ok(Outcome::Done)
}

/// Refuses a promotion of which these instances would not hear, or warns if it is forced.
fn check_hearing(deaf: &[String], is_forced: bool) -> anyhow::Result<()> {
    if deaf.is_empty() {
        return Ok(());
    }
    let warning = format!(
        "{} would not hear that this server is the master: {}. If it is the old master and runs, or is started again, it takes \
         writes beside this one until this server reaches it, and what it acknowledges then is lost",
        if deaf.len() == 1 { "an instance" } else { "some instances" },
        deaf.join("; ")
    );
    if !is_forced {
        bail!(
            "{warning}. Nothing was done. Stop the old master, and see that nothing starts it again; then add --force. An \
             instance that never comes back is forgotten when its row of `_cluster` is deleted: \
             `echo 'box.space._cluster:delete(NUMBER)' | lycosa console DATA_DIR/admin.sock`"
        );
    }
    eprintln!("lycosa: {warning}");
    Ok(())
}

/// Says that a start does not remember the command.
fn warn_of_next_start(read_only: &str) {
    eprintln!(
        "lycosa: the next start reads read_only from the configuration again: set read_only = {read_only} there too"
    );
}

/// Names the surprises of a promotion: another master that takes writes as well, and replies that wait.
fn warn(session: &Session, info: &Value) -> anyhow::Result<()> {
    for master in array_of(info, "masters") {
        let peer = text_of(master, "peer");
        // One that honors terms has heard, or hears at once.
        let honors = is_true(master, "honors_terms");
        if text_of(master, "status") == "follow" && !honors && takes_writes(session, peer) == Some(true) {
            eprintln!(
                "lycosa: {peer}, which this server follows, takes writes too, and both keep what they are told: `lycosa demote` \
                 there, or take it out of `replication` here"
            );
        }
    }
    let (runtime, connection) = session.parts();
    let vote = runtime.block_on(vote(connection))?;
    if let Some((following, wanted)) = replicas(&vote).filter(|(following, wanted)| wanted > following) {
        eprintln!(
            "lycosa: replicas_before_reply is {wanted} and {following} replicas follow: changes are not confirmed before more \
             do. `lycosa stats` lists them"
        );
    }
    Ok(())
}

/// The other instances of the replica set that would not hear of a promotion now: neither do they follow the server, nor does
/// it follow them, and they do not say that they take no writes.
fn deaf(session: &Session, info: &Value) -> Vec<String> {
    let text = |member: &Value, path: &[&str]| {
        inside(member, path).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let own = info.get("id").and_then(Value::as_u64);
    let hears = |member: &Value| {
        let is_followed = matches!(text(member, &["upstream", "status"]).as_str(), "follow" | "sync");
        let honors = inside(member, &["upstream", "honors_terms"]) == Some(&Value::Bool(true));
        text(member, &["downstream", "status"]) == "follow" || is_followed && honors
    };
    let mut found = Vec::new();
    for (id, member) in pairs(info.get("replication")).iter().filter(|(id, _)| id.as_u64() != own) {
        let peer = text(member, &["upstream", "peer"]);
        if hears(member) || !peer.is_empty() && takes_writes(session, &peer) == Some(false) {
            continue;
        }
        let id = id.as_u64().unwrap_or_default();
        found.push(match peer.is_empty() {
            true => format!("instance {id} ({}) is not connected", text(member, &["uuid"])),
            false => format!("instance {id} ({peer}) cannot be reached, or does not know terms"),
        });
    }
    found
}

/// Whether a master takes writes, if it says so. Its ballot needs no user.
fn takes_writes(session: &Session, peer: &str) -> Option<bool> {
    let address = peer.rsplit('@').next().filter(|_| !peer.starts_with("tls://"))?;
    let options = ConnectOptions::new(address).connect_timeout(PATIENCE).request_timeout(PATIENCE);
    let (runtime, _) = session.parts();
    let vote = runtime.block_on(async { vote(&Connection::connect(&options).await?).await }).ok()?;
    in_ballot(&vote, ballot::IS_READ_ONLY)?.as_bool().map(|is_read_only| !is_read_only)
}

/// The state of the server's queue. A server without the native queue has [`NO_QUEUE`], or a program's.
fn queue_state(session: &Session) -> anyhow::Result<String> {
    match session.call("queue.state", Vec::new()) {
        Ok(values) => Ok(values.first().and_then(Value::as_str).unwrap_or_default().to_owned()),
        Err(error) if error.kind() == Some(Kind::NoSuchProcedure) => Ok(NO_QUEUE.to_owned()),
        Err(error) => Err(error.into()),
    }
}

/// The server takes no writes from now on. Says up to which vclock its replicas have to be waited for.
pub(crate) fn demote(arguments: &DemoteArguments) -> anyhow::Result<Outcome> {
    let session = Session::open_server(&arguments.server)?;
    let was_read_only = is_true(&info(&session)?, "ro");
    session.call("box.ctl.demote", Vec::new())?;
    let clock = clock_of(&settled(&session)?);
    if arguments.server.client.json {
        return output::done(json!({ "demoted": !was_read_only, "vclock": output::vclock(&clock) }));
    }
    if was_read_only {
        output::line("the server took no writes before")?;
    } else {
        output::line("the server takes no writes any more")?;
        warn_of_next_start("true");
    }
    // The other server's folder may have another name; that of this server would promote this server again.
    let (names, folder) = match &arguments.server.data_dir {
        Some(_) => (", DIR being its data folder", " --data-dir DIR"),
        None => ("", ""),
    };
    output::done(format_args!("on the new master{names}: lycosa promote{folder} --after '{clock}'"))
}

pub(crate) fn info(session: &Session) -> anyhow::Result<Value> {
    session.ask("box.info", Vec::new(), "the server says nothing about itself")
}

/// The same once every row that the server has made is on its disk, and so in its vclock.
fn settled(session: &Session) -> anyhow::Result<Value> {
    loop {
        let info = info(session)?;
        if info.get("failure").is_some() || number_of(&info, "pending_rows") == 0 {
            return Ok(info);
        }
        thread::sleep(POLL);
    }
}

/// The replicated part of the server's vclock.
fn clock_of(info: &Value) -> Vclock {
    info.get("vclock").and_then(|clock| vclock(clock).ok()).unwrap_or_default()
}

/// Reads `{1: 400, 2: 7}`, as `demote` and the log print it.
fn parse(text: &str) -> Option<Vclock> {
    let inner = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    let mut clock = Vclock::new();
    for pair in inner.split(',').filter(|part| !part.trim().is_empty()) {
        let (id, lsn) = pair.split_once(':')?;
        clock.set(id.trim().parse().ok().filter(|id| *id > 0)?, lsn.trim().parse().ok()?).ok()?;
    }
    Some(clock)
}

/// Waits until the server has everything up to the vclock in `text`.
fn wait_for(session: &Session, text: &str, timeout: Duration) -> anyhow::Result<()> {
    let wanted = parse(text).with_context(|| {
        format!("--after {text}: expected a vclock as `lycosa demote` prints it, such as {{1: 400, 2: 7}}")
    })?;
    let began = Instant::now();
    loop {
        let reached = clock_of(&info(session)?);
        let lacks = wanted.iter().filter(|(id, lsn)| reached.get(*id) < *lsn);
        let lacks: Vec<_> = lacks.map(|(id, _)| id.to_string()).collect();
        if lacks.is_empty() {
            return Ok(());
        }
        if began.elapsed() > timeout {
            let (time, lacks) = (timeout.as_secs_f64(), lacks.join(", "));
            bail!(
                "the server is at {reached} after {time} s and lacks rows of instance {lacks}; it was not promoted. Is it still \
                 following its master? See box.info().replication"
            );
        }
        thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_read_as_they_are_printed() {
        for text in ["{1: 400, 2: 7}", "{}", "{31: 1}"] {
            assert_eq!(parse(text).map(|clock| clock.to_string()).as_deref(), Some(text));
        }
        assert_eq!(parse(" {1:4,2:7,} "), "{1: 4, 2: 7}".parse().ok());
        for text in ["", "1: 4", "{1}", "{a: 4}", "{0: 4}", "{32: 4}", "{1: -4}"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
