//! `lycosa stats`: how the server and its tubes are, once or again and again with rates.

use std::collections::HashMap;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use anyhow::Context;
use lycosa_client::{Error, Kind, Value};
use serde_json::{Value as Json, json};

use crate::arguments::StatsArguments;
use crate::commands;
use crate::curves;
use crate::listing::{self, TubeLine};
use crate::outcome::Outcome;
use crate::output;
use crate::payload;
use crate::session::Session;
use crate::values;

/// Moves the cursor of a terminal to its upper left corner and clears it.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// The expiration tasks in a few words.
fn expiration(info: &Value) -> String {
    let number =
        |name| info.get("expiration").and_then(|e| e.get(name)).and_then(Value::as_u64).unwrap_or_default();
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

    /// A server whose journal has failed shows no data any more, but its status.
    fn has_failed(&self) -> bool {
        self.info.get("failure").is_some()
    }

    fn print(&self) -> io::Result<()> {
        let Self { info, net, stat } = self;
        let text = |value: &Value, path: &[&str]| {
            let found = path.iter().try_fold(value, |value, name| value.get(name));
            match found {
                Some(Value::Str(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
                Some(other) => other.to_string(),
                None => "-".to_owned(),
            }
        };
        let size = |path: &[&str]| {
            let found = path.iter().try_fold(info, |value, name| value.get(name)).and_then(Value::as_u64);
            found.map_or_else(|| "-".to_owned(), values::bytes)
        };
        let uptime = info.get("uptime").and_then(Value::as_u64).unwrap_or(0);
        let late = ["deadline_lag", "longest_us"];
        let late = late.iter().try_fold(info, |value, name| value.get(name)).and_then(Value::as_u64);
        let late = late.map_or_else(|| "-".to_owned(), |us| values::time(Duration::from_micros(us)));
        let rows = [
            ("status", text(info, &["status"])),
            ("failure", text(info, &["failure"])),
            ("version", text(info, &["lycosa"])),
            ("uptime", uptime_text(uptime)),
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
        for (name, value) in rows.iter().filter(|(name, value)| *name != "failure" || value != "-") {
            output::line(format_args!("{name:<18}{value}"))?;
        }
        for (name, value) in peers(info) {
            output::line(format_args!("{name:<18}{value}"))?;
        }
        Ok(())
    }
}

/// How long the server has run, which it tells in whole seconds.
fn uptime_text(seconds: u64) -> String {
    match seconds {
        0 => "less than 1s".to_owned(),
        seconds => values::time(Duration::from_secs(seconds)),
    }
}

/// The longest turn of the server's loop by the processor's time, and by the clock, with what most of it was.
fn longest_turn(info: &Value) -> String {
    let number = |turn: &Value, name: &str| turn.get(name).and_then(Value::as_u64);
    let shown = |microseconds: u64| format!("{:.2} ms", microseconds as f64 / 1e3);
    let part = |turn: &Value| turn.get("part").and_then(Value::as_str).unwrap_or("-").to_owned();
    let turns = ["longest_turn_cpu", "longest_turn"]
        .map(|name| info.get(name).filter(|turn| turn.get("us").is_some()));
    let [Some(by_processor), Some(by_clock)] = turns else { return "-".to_owned() };
    let (Some(processor), Some(clock)) = (number(by_processor, "cpu_us"), number(by_clock, "us")) else {
        return "-".to_owned();
    };
    format!(
        "{} of the processor, mostly {}; {} by the clock, mostly {}",
        shown(processor),
        part(by_processor),
        shown(clock),
        part(by_clock)
    )
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
            let term = |name| info.get("term").and_then(|term| term.get(name)).and_then(Value::as_u64);
            format!(
                "takes no writes: instance {} was promoted (term {})",
                term("owner").unwrap_or_default(),
                term("number").unwrap_or_default()
            )
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
    let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let number = |value: &Value, name: &str| match value.get(name) {
        Some(Value::Double(number)) => Some(*number),
        other => other.and_then(Value::as_u64).map(|number| number as f64),
    };
    let message = |link: &Value| text(link, "message").map_or_else(String::new, |said| format!(": {said}"));
    let masters = info.get("masters").and_then(Value::as_array).unwrap_or_default();
    for link in masters.iter().filter(|link| text(link, "status").is_none_or(|state| state != "myself")) {
        let [lag, idle] = ["lag", "idle"].map(|name| number(link, name).unwrap_or_default());
        let [state, peer] = ["status", "peer"].map(|name| text(link, name).unwrap_or_default());
        lines.push((
            "master",
            format!("{peer}: {state}, lag {lag:.3} s, heard {idle:.1} s ago{}", message(link)),
        ));
    }
    let members = match info.get("replication") {
        Some(Value::Map(members)) => members.as_slice(),
        _ => &[],
    };
    for (id, member) in members {
        let id = id.as_u64().unwrap_or_default();
        if let Some(link) = member.get("downstream") {
            let (state, idle) =
                (text(link, "status").unwrap_or_default(), number(link, "idle").unwrap_or_default());
            let behind =
                number(link, "behind").map_or_else(String::new, |rows| format!(", {rows} rows behind"));
            lines.push(("replica", format!("{id}: {state}{behind}, heard {idle:.1} s ago{}", message(link))));
        }
    }
    let journals = info.get("journals");
    if let Some((journals, holder)) = journals.and_then(|j| Some((j, number(j, "held_by")?))) {
        let bytes = |name| number(journals, name).map_or_else(|| "-".to_owned(), |n| values::bytes(n as u64));
        let behind = number(journals, "behind")
            .map_or_else(|| "not connected since the start".to_owned(), |rows| format!("{rows} rows behind"));
        lines.push((
            "journals kept",
            format!(
                "{} of {} for replicas; furthest behind is {holder}, {behind}",
                bytes("replica_bytes"),
                bytes("replica_limit")
            ),
        ));
    }
    lines
}

/// Bytes that wait, their bound, and how many connections were closed because of them.
fn part_of_limit(net: &Value, name: &str) -> String {
    let number = |key| net.get(name).and_then(|value| value.get(key)).and_then(Value::as_u64);
    let (Some(current), Some(limit)) = (number("current"), number("limit")) else { return "-".to_owned() };
    let text = format!("{} of {}", values::bytes(current), values::bytes(limit));
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
    let has_failed = server.as_ref().is_some_and(Server::has_failed);
    let is_replica = server.as_ref().is_some_and(|server| server.info.get("ro_reason").is_some());
    let tubes = match listing::tubes(session) {
        Ok(tubes) => tubes,
        // A replica whose queue has never run shows no tubes either.
        Err(error)
            if (has_failed || is_replica)
                && error.downcast_ref().is_some_and(|e| matches!(e, Error::Server { .. })) =>
        {
            Vec::new()
        }
        Err(error) => return Err(error),
    };
    if as_json {
        let part =
            |part: fn(&Server) -> &Value| server.as_ref().map_or(Json::Null, |s| payload::to_json(part(s)));
        let tubes = tubes.iter().map(|line| (line.name.clone(), payload::to_json(&line.statistics)));
        output::line(json!({
            "info": part(|server| &server.info),
            "net": part(|server| &server.net),
            "requests": part(|server| &server.stat),
            "tubes": tubes.collect::<serde_json::Map<_, _>>(),
        }))?;
        return Ok(Outcome::Done);
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Flow {
    put: u64,
    gone: u64,
}

impl Flow {
    fn of(line: &TubeLine) -> Self {
        Self { put: line.count("calls", "put"), gone: line.count("tasks", "done") }
    }
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
    let mut former: Option<(Instant, HashMap<String, Flow>)> = None;
    for look in 0..looks.unwrap_or(u64::MAX) {
        if look > 0 {
            std::thread::sleep(pause);
        }
        let mut tubes = listing::tubes(session)?;
        let at = Instant::now();
        tubes.sort_by_key(|line| std::cmp::Reverse(line.backlog()));
        let rates = |line: &TubeLine| {
            let (then, flows) = former.as_ref()?;
            let (flow, now) = (flows.get(&line.name)?, Flow::of(line));
            let elapsed = at.duration_since(*then);
            Some((rate(flow.put, now.put, elapsed), rate(flow.gone, now.gone, elapsed)))
        };
        if as_json {
            let lines = tubes.iter().map(|line| {
                let rates = rates(line);
                json!({
                    "tube": line.name,
                    "type": line.kind,
                    "tasks": line.statistics.get("tasks").map_or(Json::Null, payload::to_json),
                    "in": rates.map(|(into, _)| into),
                    "out": rates.map(|(_, out)| out),
                    "oldest_age": line.oldest.map(|age| age.as_secs_f64()),
                })
            });
            output::line(json!({ "look": look + 1, "tubes": lines.collect::<Vec<_>>() }))?;
        } else {
            let row = |line: &TubeLine| -> Vec<String> {
                let rates = rates(line);
                let shown = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), shown);
                let counts =
                    ["ready", "taken", "delayed", "buried"].map(|s| line.count("tasks", s).to_string());
                let ends = [shown(rates.map(|(into, _)| into)), shown(rates.map(|(_, out)| out))];
                let age = line.oldest.map_or_else(|| "-".to_owned(), values::time);
                let names = [line.name.clone(), line.kind.clone()];
                names.into_iter().chain(counts).chain(ends).chain([age]).collect()
            };
            let mut out = io::stdout().lock();
            match (clears, look) {
                (true, _) => out.write_all(CLEAR.as_bytes())?,
                (false, 0) => {}
                (false, _) => out.write_all(b"\n")?,
            }
            drop(out);
            let heading = ["tube", "type", "ready", "taken", "delayed", "buried", "in/s", "out/s", "oldest"];
            output::table(&heading, tubes.iter().map(row))?;
            io::stdout().flush()?;
        }
        let flows = tubes.iter().map(|line| (line.name.clone(), Flow::of(line))).collect();
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
