//! `lycosa stats`: how the server and its tubes are, once or again and again with rates.

use std::collections::HashMap;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use anyhow::Context;
use lycosa_client::{Error, Kind, Value};
use serde_json::{Value as Json, json};

use crate::arguments::StatsArguments;
use crate::listing::{self, TubeLine};
use crate::outcome::Outcome;
use crate::session::Session;
use crate::values::{array_of, bytes, cell, float, inside, number_of, pairs, text_of, time};
use crate::{commands, curves, output, payload};

/// Moves the cursor of a terminal to its upper left corner and clears it.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// The expiration tasks in a few words.
fn expiration(info: &Value) -> String {
    let number = |name| inside(info, &["expiration", name]).and_then(Value::as_u64).unwrap_or_default();
    let (tasks, expired) = (number("tasks"), number("expired"));
    let (failing, lag) = (number("failing"), number("lag_us") as f64 / 1e6);
    format!("{tasks} tasks, {expired} tuples deleted, lag {lag:.3} s, {failing} failing")
}

/// What the server tells about itself; nothing if the user may not ask.
struct Server {
    info: Value,
    net: Value,
    stat: Value,
}

impl Server {
    fn ask(session: &Session) -> anyhow::Result<Option<Self>> {
        let first = |name: &'static str| match session.call(name, Vec::new()) {
            Ok(values) => values.into_iter().next().with_context(|| format!("no {name}")).map(Some),
            Err(error) if error.kind() == Some(Kind::AccessDenied) => Ok(None),
            Err(error) => Err(error.into()),
        };
        let Some(info) = first("box.info")? else { return Ok(None) };
        let (Some(net), Some(stat)) = (first("box.stat.net")?, first("box.stat")?) else { return Ok(None) };
        Ok(Some(Self { info, net, stat }))
    }

    fn print(&self) -> io::Result<()> {
        let Self { info, net, stat } = self;
        let text = |value: &Value, path: &[&str]| match inside(value, path) {
            Some(Value::Str(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
            other => cell(other, ToString::to_string),
        };
        let number = |path: &[&str]| inside(info, path).and_then(Value::as_u64);
        let size = |path: &[&str]| cell(number(path), bytes);
        let late = cell(number(&["deadline_lag", "longest_us"]), |us| time(Duration::from_micros(us)));
        let uptime = match number_of(info, "uptime") {
            0 => "less than 1s".to_owned(),
            seconds => time(Duration::from_secs(seconds)),
        };
        let rows = [
            ("status", text(info, &["status"])),
            ("failure", text(info, &["failure"])),
            ("version", text(info, &["lycosa"])),
            ("uptime", uptime),
            ("rows journaled", text(info, &["signature"])),
            ("role", role(info)),
            ("memory", format!("{} of {}", size(&["memory", "data"]), size(&["memory", "limit"]))),
            ("expiration", expiration(info)),
            ("connections", text(net, &["CONNECTIONS", "current"])),
            ("unread replies", part_of_limit(net, "OUTPUT")),
            ("partial requests", part_of_limit(net, "INPUT")),
            ("waiting calls", text(net, &["REQUESTS", "current"])),
            ("requests", text(net, &["REQUESTS", "total"])),
            ("errors", text(stat, &["ERROR", "total"])),
            ("deadlines late", format!("{late} at the most")),
            ("longest turn", longest_turn(info)),
        ];
        let rows = rows.into_iter().filter(|(name, value)| *name != "failure" || value != "-");
        rows.chain(peers(info)).try_for_each(|(name, value)| output::line(format_args!("{name:<18}{value}")))
    }
}

/// The longest turn of the server's loop by the processor's time, and by the clock, with what most of it was.
fn longest_turn(info: &Value) -> String {
    let turn = |name: &str, number: &str| {
        let turn = info.get(name).filter(|turn| turn.get("us").is_some())?;
        let part = turn.get("part").and_then(Value::as_str).unwrap_or("-");
        Some((turn.get(number)?.as_u64()? as f64 / 1e3, part))
    };
    let turns = turn("longest_turn_cpu", "cpu_us").zip(turn("longest_turn", "us"));
    cell(turns, |((processor, part), (clock, part_by_clock))| {
        format!(
            "{processor:.2} ms of the processor, mostly {part}; {clock:.2} ms by the clock, mostly {part_by_clock}"
        )
    })
}

/// The node that leads the server's group, 0 if none is known. `None`: the server belongs to no group.
pub(crate) fn leader(info: &Value) -> Option<u64> {
    info.get("election")?.get("leader")?.as_u64()
}

/// Whether the server takes writes, and if not, why.
pub(crate) fn role(info: &Value) -> String {
    let reason = info.get("ro_reason").and_then(Value::as_str);
    match (reason, leader(info)) {
        (None, _) => "takes writes".to_owned(),
        (Some(_), Some(0)) => "takes no writes: its group has no leader".to_owned(),
        (Some(_), Some(leader)) => format!("takes no writes: node {leader} leads its group"),
        (Some("orphan"), None) => "takes no writes: too few of its masters are in sync (orphan)".to_owned(),
        (Some("fenced"), None) => {
            let [owner, term] =
                ["owner", "number"].map(|name| info.get("term").map_or(0, |t| number_of(t, name)));
            format!("takes no writes: instance {owner} was promoted (term {term})")
        }
        (Some(_), None) if info.get("id").and_then(Value::as_u64) == Some(0) => {
            "takes no writes: an anonymous replica".to_owned()
        }
        (Some(_), None) => "takes no writes: read_only".to_owned(),
    }
}

/// A line for each master and replica of the server, and one about the journals that stay for replicas.
fn peers(info: &Value) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    let number = |value: &Value, name: &str| value.get(name).and_then(float);
    let message = |link: &Value| match text_of(link, "message") {
        "" => String::new(),
        said => format!(": {said}"),
    };
    for link in array_of(info, "masters").iter().filter(|link| text_of(link, "status") != "myself") {
        let [lag, idle] = ["lag", "idle"].map(|name| number(link, name).unwrap_or_default());
        let [state, peer] = ["status", "peer"].map(|name| text_of(link, name));
        let text = format!("{peer}: {state}, lag {lag:.3} s, heard {idle:.1} s ago{}", message(link));
        lines.push(("master", text));
    }
    for (id, member) in pairs(info.get("replication")) {
        let Some(link) = member.get("downstream") else { continue };
        let (id, state) = (id.as_u64().unwrap_or_default(), text_of(link, "status"));
        let idle = number(link, "idle").unwrap_or_default();
        let behind = number(link, "behind").map_or_else(String::new, |rows| format!(", {rows} rows behind"));
        lines.push(("replica", format!("{id}: {state}{behind}, heard {idle:.1} s ago{}", message(link))));
    }
    if let Some((journals, holder)) = info.get("journals").and_then(|j| Some((j, number(j, "held_by")?))) {
        let [kept, limit] =
            ["replica_bytes", "replica_limit"].map(|name| cell(number(journals, name), |n| bytes(n as u64)));
        let behind = match number(journals, "behind") {
            Some(rows) => format!("{rows} rows behind"),
            None => "not connected since the start".to_owned(),
        };
        let text = format!("{kept} of {limit} for replicas; furthest behind is {holder}, {behind}");
        lines.push(("journals kept", text));
    }
    lines
}

/// Bytes that wait, their bound, and how many connections were closed because of them.
fn part_of_limit(net: &Value, name: &str) -> String {
    let number = |key| inside(net, &[name, key]).and_then(Value::as_u64);
    let (Some(current), Some(limit)) = (number("current"), number("limit")) else { return "-".to_owned() };
    let text = format!("{} of {}", bytes(current), bytes(limit));
    match number("closed").filter(|closed| *closed > 0) {
        Some(closed) => format!("{text}; {closed} connections were closed for it"),
        None => text,
    }
}

/// `lycosa stats`
pub(crate) fn run(arguments: &StatsArguments) -> anyhow::Result<Outcome> {
    if let Some(span) = arguments.history {
        return curves::run(arguments, span);
    }
    let session = Session::open_server(&arguments.server)?;
    let as_json = arguments.server.client.json;
    if let Some(tube) = &arguments.tube {
        return commands::tube_stats(&session, Some(tube), as_json);
    }
    if let Some(pause) = arguments.watch {
        return watch(&session, pause, arguments.looks, as_json);
    }
    once(&session, as_json)
}

fn once(session: &Session, as_json: bool) -> anyhow::Result<Outcome> {
    let server = Server::ask(session)?;
    // A server whose journal has failed shows its status only; a replica whose queue has never run shows no tubes either.
    let lacks_tubes =
        |server: &Server| ["failure", "ro_reason"].iter().any(|name| server.info.get(name).is_some());
    let tubes = match listing::tubes(session) {
        Err(error)
            if server.as_ref().is_some_and(lacks_tubes)
                && matches!(error.downcast_ref(), Some(Error::Server { .. })) =>
        {
            Vec::new()
        }
        tubes => tubes?,
    };
    if as_json {
        let parts = server.as_ref().map(|Server { info, net, stat }| [info, net, stat].map(payload::to_json));
        let [info, net, requests] = parts.unwrap_or_default();
        let tubes = tubes.iter().map(|line| (line.name.clone(), payload::to_json(&line.statistics)));
        let tubes: serde_json::Map<_, _> = tubes.collect();
        return output::done(json!({ "info": info, "net": net, "requests": requests, "tubes": tubes }));
    }
    match &server {
        Some(server) => server.print()?,
        None => {
            eprintln!("lycosa: this user may not ask how the server is; these are the tubes that it may see");
        }
    }
    if !tubes.is_empty() {
        output::line("")?;
        listing::print_tubes(tubes, true)?;
    }
    Ok(Outcome::Done)
}

/// Tasks that were put and ended, as far as a tube's counters know.
fn flow(line: &TubeLine) -> [u64; 2] {
    [line.count("calls", "put"), line.count("tasks", "done")]
}

/// Tasks a second between two looks.
fn rate(former: u64, now: u64, elapsed: Duration) -> f64 {
    now.saturating_sub(former) as f64 / elapsed.as_secs_f64().max(0.001)
}

fn shown(rate: f64) -> String {
    if rate >= 100.0 { format!("{rate:.0}") } else { format!("{rate:.1}") }
}

fn watch(session: &Session, pause: Duration, looks: Option<u64>, as_json: bool) -> anyhow::Result<Outcome> {
    let clears = !as_json && io::stdout().is_terminal();
    let mut former: Option<(Instant, HashMap<String, [u64; 2]>)> = None;
    for look in 0..looks.unwrap_or(u64::MAX) {
        if look > 0 {
            std::thread::sleep(pause);
        }
        let mut tubes = listing::tubes(session)?;
        let at = Instant::now();
        tubes.sort_by_key(|line| std::cmp::Reverse(line.backlog()));
        let rates = |line: &TubeLine| {
            let (then, flows) = former.as_ref()?;
            let (flow, now, elapsed) = (flows.get(&line.name)?, flow(line), at.duration_since(*then));
            Some([0, 1].map(|at| rate(flow[at], now[at], elapsed)))
        };
        if as_json {
            let lines = tubes.iter().map(|line| {
                let rates = rates(line);
                json!({
                    "tube": line.name, "type": line.kind,
                    "tasks": line.statistics.get("tasks").map_or(Json::Null, payload::to_json),
                    "in": rates.map(|[put, _]| put), "out": rates.map(|[_, gone]| gone),
                    "oldest_age": line.oldest.map(|age| age.as_secs_f64()),
                })
            });
            output::line(json!({ "look": look + 1, "tubes": lines.collect::<Vec<_>>() }))?;
        } else {
            let row = |line: &TubeLine| -> Vec<String> {
                let rates = rates(line);
                let counts =
                    ["ready", "taken", "delayed", "buried"].map(|s| line.count("tasks", s).to_string());
                let ends = [0, 1].map(|at| cell(rates, |rates| shown(rates[at])));
                let age = cell(line.oldest, time);
                let names = [line.name.clone(), line.kind.clone()];
                names.into_iter().chain(counts).chain(ends).chain([age]).collect()
            };
            let above = if look > 0 { "\n" } else { "" };
            io::stdout().write_all(if clears { CLEAR } else { above }.as_bytes())?;
            let heading = ["tube", "type", "ready", "taken", "delayed", "buried", "in/s", "out/s", "oldest"];
            output::table(&heading, tubes.iter().map(row))?;
            io::stdout().flush()?;
        }
        let flows = tubes.iter().map(|line| (line.name.clone(), flow(line))).collect();
        former = Some((at, flows));
    }
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replication_is_told_in_lines() {
        let upstream = Value::map([
            ("status", Value::from("follow")),
            ("peer", "repl@h:1".into()),
            ("lag", Value::Double(0.25)),
            ("idle", Value::Double(1.0)),
        ]);
        let downstream = Value::map([
            ("status", Value::from("stopped")),
            ("behind", Value::from(7_u64)),
            ("message", "it has to join again".into()),
        ]);
        let members = vec![(Value::from(2_u64), Value::map([("downstream", downstream)]))];
        let journals = Value::map([
            ("held_by", Value::from(2_u64)),
            ("behind", Value::Nil),
            ("replica_bytes", 0_u64.into()),
        ]);
        let info = Value::map([
            ("masters", Value::array([upstream])),
            ("replication", Value::Map(members)),
            ("journals", journals),
            ("ro_reason", "orphan".into()),
        ]);
        let lines = peers(&info);
        assert_eq!(lines[0], ("master", "repl@h:1: follow, lag 0.250 s, heard 1.0 s ago".to_owned()));
        assert_eq!(
            lines[1],
            ("replica", "2: stopped, 7 rows behind, heard 0.0 s ago: it has to join again".to_owned())
        );
        assert!(
            lines[2].1.ends_with("furthest behind is 2, not connected since the start"),
            "{}",
            lines[2].1
        );
        assert!(role(&info).contains("orphan"));
        assert_eq!(role(&Value::Map(Vec::new())), "takes writes");
        let member = |leader: u64| {
            let election = Value::map([("leader", leader)]);
            role(&Value::map([("ro_reason", Value::from("config")), ("election", election)]))
        };
        assert_eq!(member(2), "takes no writes: node 2 leads its group");
        assert_eq!(member(0), "takes no writes: its group has no leader");
    }

    #[test]
    fn rates_are_tasks_a_second_and_never_negative() {
        assert_eq!(rate(10, 30, Duration::from_secs(2)), 10.0);
        assert_eq!(rate(30, 0, Duration::from_secs(2)), 0.0, "the server was started anew");
        assert_eq!((shown(0.25), shown(1234.5)), ("0.2".to_owned(), "1234".to_owned()));
    }
}
