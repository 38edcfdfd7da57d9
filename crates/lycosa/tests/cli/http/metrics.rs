//! Numbers for Prometheus, Grafana, autoscalers and Graphite, as a running server gives them.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use regex::Regex;

use super::client::Door;
use crate::support::finish;

/// The board and the rules of `packaging/monitoring`.
const FILES: [&str; 2] = [
    include_str!("../../../../../packaging/monitoring/lycosa.dashboard.json"),
    include_str!("../../../../../packaging/monitoring/lycosa.rules.yml"),
];

/// A tube with tasks in three states, and one whose task is done.
fn busy_door(flags: &[&str]) -> Door {
    let door = Door::open(flags);
    door.server.ok(&["tube", "create", "mail", "--type", "fifottl"]);
    for payload in ["a", "b", "c", "d"] {
        door.server.ok(&["put", "mail", payload]);
    }
    door.server.ok(&["put", "mail", "later", "--delay", "3600"]);
    door.server.ok(&["take", "mail", "--lease", "3600"]);
    door.server.ok(&["tube", "create", "bounded", "--type", "limfifottl", "--capacity", "10"]);
    door.server.ok(&["tube", "create", "done"]);
    door.server.ok(&["put", "done", "a"]);
    door.server.ok(&["work", "done", "--until-empty", "0", "--", "true"]);
    door
}

fn scrape(door: &Door, path: &str) -> String {
    let answer = door.ask(&format!("GET {path}"), "", "", b"");
    assert_eq!(answer.status, 200, "{answer:?}");
    String::from_utf8(answer.body).expect("the text format is UTF-8")
}

#[test]
fn a_scrape_agrees_with_a_recount_and_with_promtool() {
    let door = busy_door(&[]);
    let text = scrape(&door, "/metrics");
    for line in [
        r#"lycosa_tube_tasks{tube="mail",state="ready"} 3"#,
        r#"lycosa_tube_tasks{tube="mail",state="taken"} 1"#,
        r#"lycosa_tube_tasks{tube="mail",state="delayed"} 1"#,
        r#"lycosa_tube_operations_total{tube="mail",operation="put"} 5"#,
        r#"lycosa_tube_wait_seconds_count{tube="mail"} 1"#,
    ] {
        assert!(text.lines().any(|each| each == line), "{line} is not in\n{text}");
    }
    assert!(scrape(&door, "/metrics/detailed?tube=mail").contains(r#"lycosa_tube_tasks{tube="mail""#));
    let recount = finish(
        {
            let mut check = crate::support::command();
            check.args(["check", "--recount"]).arg(door.server.data.path());
            check
        },
        "",
    );
    assert!(recount.code == 0 && recount.stdout.contains("3/1/1/0  agrees"), "{recount:?}");
    let mut promtool = Command::new("promtool");
    let Ok(mut child) =
        promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn()
    else {
        eprintln!("promtool is not installed: `cargo xtask install`");
        return;
    };
    child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("promtool reads");
    let output = child.wait_with_output().expect("promtool ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Names that a scrape has once the server has a peer, or is a member of a group.
const WITH_PEERS: [&str; 3] =
    ["lycosa_replication_lag_seconds", "lycosa_replication_up", "lycosa_group_has_leader"];

/// Each name in the board and in the rules is one that a scrape has.
#[test]
fn the_board_and_the_rules_ask_for_what_there_is() {
    let door = busy_door(&[]);
    let text = scrape(&door, "/metrics");
    let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let names = names.chain(WITH_PEERS).collect::<BTreeSet<_>>();
    let name = Regex::new(r"\blycosa_[a-z_]+").expect("a fixed pattern");
    let mut asked = 0;
    for file in FILES {
        for found in name.find_iter(file) {
            let metric =
                ["_bucket", "_sum", "_count"].iter().find_map(|end| found.as_str().strip_suffix(end));
            let metric = metric.filter(|metric| names.contains(metric)).unwrap_or(found.as_str());
            assert!(names.contains(metric), "{metric} is in no scrape");
            asked += 1;
        }
    }
    assert!(asked > 20, "{asked}");
}

/// An alert about an issue has its name, and stands in the documents with it; every other alert is known here.
#[test]
fn alerts_are_named_by_issues() {
    let documents = include_str!("../../../../../docs/monitoring.md");
    let table = documents.split("## Issues").nth(1).and_then(|text| text.split("## Prometheus").next());
    let rows = table.expect("a chapter").lines().filter_map(|line| line.strip_prefix("| `"));
    let kind = Regex::new("`?([a-z_]+)`").expect("a fixed pattern");
    let kinds = rows.flat_map(|row| {
        let names = row.split(" | ").next().unwrap_or_default();
        kind.captures_iter(names).map(|found| found[1].to_owned()).collect::<Vec<_>>()
    });
    let kinds = kinds.collect::<BTreeSet<_>>();
    assert!(kinds.len() > 20, "{kinds:?}");

    let camel = |kind: &str| {
        let words = kind.split('_').map(|word| format!("{}{}", word[..1].to_uppercase(), &word[1..]));
        words.collect::<String>()
    };
    let issue = Regex::new(r"issue: ([a-z_]+)\}").expect("a fixed pattern");
    let mut others = Vec::new();
    for alert in FILES[1].split("- alert: ").skip(1) {
        let name = alert.lines().next().expect("a name");
        match issue.captures(alert) {
            Some(found) => {
                assert!(kinds.contains(&found[1]), "{name}: no issue is of the kind {}", &found[1]);
                assert!(name.starts_with(&format!("Lycosa{}", camel(&found[1]))), "{name}: {}", &found[1]);
            }
            None => others.push(name),
        }
    }
    assert_eq!(others, ["LycosaDown", "LycosaJournalErrors", "LycosaLoopSlow"]);
    let promtool = Command::new("promtool")
        .args(["check", "rules"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/monitoring/lycosa.rules.yml"))
        .output();
    match promtool {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout)),
        Err(_) => eprintln!("promtool is not installed: `cargo xtask install`"),
    }
}

#[test]
fn an_autoscaler_reads_flat_numbers() {
    let door = busy_door(&[]);
    let viewer = door.token("keda", "viewer", "mail");
    let numbers = door.ask("GET /v1/tubes/mail/scale?age=30", &viewer, "", b"").json();
    assert_eq!(
        (&numbers["ready"], &numbers["taken"], &numbers["delayed"]),
        (&3.into(), &1.into(), &1.into())
    );
    assert!(
        numbers.as_object().expect("an object").values().all(|value| !value.is_object() && !value.is_array())
    );
    assert_eq!(door.ask("GET /v1/tubes/none/scale", &door.token("all", "viewer", "*"), "", b"").status, 404);
    assert_eq!(door.ask("GET /v1/tubes/mail/scale", "", "", b"").problem(), "no-token");
}

#[test]
fn graphite_gets_lines() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = format!("tcp://{}", listener.local_addr().expect("it is bound"));
    let _door = busy_door(&["--graphite-server", &server, "--graphite-period", "1"]);
    let (connection, _) = listener.accept().expect("the server connects");
    let mut lines = BufReader::new(connection).lines().map(|line| line.expect("lines of text"));
    let line = lines.find(|line| line.starts_with("queue.stats.mail.tasks.delayed 1 "));
    let time = line.expect("the server goes on").rsplit(' ').next().map(str::parse::<u64>);
    assert!(matches!(time, Some(Ok(time)) if time > 1_700_000_000));
}
