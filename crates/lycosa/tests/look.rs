//! Looking at tasks, tubes and users, and changing the tasks that a filter chooses.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use serde_json::Value as Json;
use support::Server;

/// A server whose tube `t` has a buried task with its reason, a delayed one and two ready ones.
fn with_tasks() -> Server {
    let server = Server::start();
    server.ok(&["tube", "create", "t", "--type", "fifottl"]);
    server.ok(&["put", "t", "broken", "--ttr", "30"]);
    let script = "echo no such host >&2; exit 3";
    server.ok(&["work", "t", "--max-attempts", "1", "--until-empty", "0", "--", "sh", "-c", script]);
    server.ok(&["put", "t", "later", "--delay", "1h"]);
    server.ok(&["put", "t", "one\u{1b}[2J", "two", "--pri", "5"]);
    server
}

#[test]
fn tasks_are_listed_and_peeked_with_everything() {
    let server = with_tasks();
    let ids = |arguments: &[&str]| -> Vec<u64> {
        let run = server.run(&[&["list", "t", "--json"], arguments].concat());
        assert_eq!(run.code, 0, "{run:?}");
        run.lines().iter().map(|task| task["id"].as_u64().unwrap()).collect()
    };
    assert_eq!(ids(&[]), [0, 1, 2, 3]);
    assert_eq!(ids(&["--state", "buried"]), [0]);
    assert_eq!(ids(&["--state", "delayed"]), [1]);
    assert_eq!(ids(&["--limit", "2"]), [0, 1]);
    assert_eq!(ids(&["--older-than", "1h"]), [0_u64; 0]);

    let table = server.ok(&["list", "t"]);
    assert!(table.starts_with("id  state"), "{table}");
    assert!(table.contains("exit code 3: no such host"), "{table}");
    assert!(!table.contains('\u{1b}'), "{table}");

    let peeked = server.ok(&["peek", "t", "0"]);
    for part in
        ["state       buried", "attempts    1", "last error  exit code 3: no such host", "ttr         30 s"]
    {
        assert!(peeked.contains(part), "{part}: {peeked}");
    }
    let json: Json = serde_json::from_str(&server.ok(&["peek", "t", "0", "--json"])).unwrap();
    assert_eq!((&json["attempts"], &json["data"]), (&Json::from(1), &Json::from("broken")));
}

#[test]
fn a_filter_counts_before_it_changes() {
    let server = with_tasks();
    let counted = server.run(&["delete", "t", "--state", "ready"]);
    assert_eq!(counted.code, 0, "{counted:?}");
    assert!(
        counted.stderr.contains("delete would change 2 tasks of tube \"t\"; --yes does it"),
        "{counted:?}"
    );
    assert!(server.ok(&["tube", "stats", "t", "--json"]).contains(r#""total":4"#));
    server.ok(&["delete", "t", "--state", "ready", "--yes"]);
    server.ok(&["bury", "t", "--state", "delayed", "--yes"]);
    let stats = server.ok(&["tube", "stats", "t", "--json"]);
    assert!(stats.contains(r#""total":2"#) && stats.contains(r#""buried":2"#), "{stats}");
    assert_eq!(server.run(&["delete", "t", "1", "--state", "ready"]).code, 2);
    assert_eq!(server.run(&["delete", "t"]).code, 2);
}

#[test]
fn tubes_have_types_and_counts_in_the_natural_order_of_their_names() {
    let server = with_tasks();
    for name in ["mail10", "mail9"] {
        server.ok(&["tube", "create", name, "--type", "fifo"]);
    }
    server.ok(&["put", "mail10", "x", "y", "z", "a", "b"]);
    let list = server.ok(&["tube", "list"]);
    let names: Vec<&str> = list.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["tube", "mail9", "mail10", "t"]);
    assert!(list.contains("fifottl"), "{list}");
    let stats = server.ok(&["stats"]);
    let of_tubes = stats.split("\n\n").nth(1).unwrap();
    let names: Vec<&str> = of_tubes.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["tube", "mail10", "t", "mail9"], "the largest backlog first: {stats}");
    assert!(stats.contains(" of 256 MiB"), "{stats}");
}

#[test]
fn a_user_with_a_grant_sees_its_tube_and_no_other() {
    let server = with_tasks();
    server.ok(&["tube", "create", "secret"]);
    let mut add = server.command(&["user", "add", "ann", "--tube", "t"]);
    add.env("LYCOSA_PASSWORD", "pw");
    assert_eq!(support::finish(add, "").code, 0);
    let as_ann = |arguments: &[&str]| {
        let mut command = server.command(arguments);
        command.env("LYCOSA_USER", "ann").env("LYCOSA_PASSWORD", "pw");
        support::finish(command, "")
    };
    let list = as_ann(&["tube", "list", "--json"]);
    assert_eq!(list.code, 0, "{list:?}");
    assert_eq!(list.lines().iter().map(|tube| tube["tube"].clone()).collect::<Vec<_>>(), ["t"], "{list:?}");
    assert_eq!(as_ann(&["list", "t", "--json"]).lines().len(), 4);
    assert_eq!(as_ann(&["list", "secret"]).code, 1);
    let users = server.ok(&["user", "list"]);
    assert!(users.contains("ann") && users.contains("public"), "{users}");
}
