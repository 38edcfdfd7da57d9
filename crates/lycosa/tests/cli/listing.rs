//! Looking at tasks, tubes and users, and changing the tasks that a filter chooses.

use std::process::Stdio;

use crate::support::{Server, lycosa, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value as Json;

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

/// Any producer may put such a payload: it hides no other task.
#[test]
fn a_payload_that_is_nested_too_deeply_is_shown_beside_the_others() {
    let server = Server::start();
    server.ok(&["tube", "create", "t"]);
    let deep = format!("{}01", "91".repeat(5000));
    let lines = format!(
        "{{\"tube\":\"t\",\"data\":{{\"base16\":\"{deep}\",\"type\":\"msgpack\"}}}}\n{{\"tube\":\"t\",\"data\":\"plain\"}}\n"
    );
    let imported = server.run_with(&["import"], &lines);
    assert_eq!((imported.code, imported.stdout.as_str()), (0, "imported 2 tasks, 0 tubes\n"), "{imported:?}");
    for command in ["list", "find"] {
        let shown = server.ok(&[command, "t"]);
        assert!(shown.contains("plain") && shown.contains("[[[["), "{shown}");
        let tasks = server.run(&[command, "t", "--json"]).lines();
        assert_eq!(tasks.len(), 2, "{tasks:?}");
        assert!(
            tasks[0]["data"].to_string().contains(&format!("{{\"base16\":\"{}", &deep[..9000])),
            "{tasks:?}"
        );
    }
    assert!(server.ok(&["peek", "t", "0", "1"]).contains("plain"));
    assert!(server.ok(&["take", "t", "--limit", "2"]).contains("plain"));
    assert_eq!(server.ok(&["kick", "t", "--limit", "1", "--yes"]), "kicked 0 tasks of t\n");
    assert_eq!(server.ok(&["delete", "t", "--state", "ready", "--yes"]), "deleted 2 tasks of t\n");
}

#[test]
fn a_filter_counts_before_it_changes() {
    let server = with_tasks();
    let counted = server.run(&["delete", "t", "--state", "ready"]);
    assert_eq!(counted.code, 2, "a script does not go on as if they were deleted: {counted:?}");
    assert!(
        counted
            .stderr
            .contains("nothing was changed: delete would change 2 tasks of tube \"t\"; --yes does it"),
        "{counted:?}"
    );
    assert!(server.ok(&["tube", "stats", "t", "--json"]).contains(r#""total":4"#));
    server.ok(&["delete", "t", "--state", "ready", "--yes"]);
    server.ok(&["bury", "t", "--state", "delayed", "--yes"]);
    let stats = server.ok(&["tube", "stats", "t", "--json"]);
    assert_eq!(server.ok(&["stats", "t", "--json"]), stats, "the same in short");
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

/// On the server's machine its data folder is enough: no address, no user.
#[test]
fn the_administrator_sees_the_statistics_by_the_data_folder() {
    let server = with_tasks();
    let folder = server.data.path().to_str().unwrap();
    let stats = |arguments: &[&str]| {
        let run = lycosa(&[&["stats", "--data-dir", folder], arguments].concat());
        assert_eq!(run.code, 0, "{arguments:?}: {run:?}");
        run.stdout
    };
    let all = stats(&[]);
    assert!(all.contains("role              takes writes") && all.contains("fifottl"), "{all}");
    assert_eq!(stats(&["t", "--json"]), server.ok(&["stats", "t", "--json"]));
    assert!(stats(&["--watch", "--looks", "1"]).contains("in/s"));
    assert!(stats(&["--history"]).starts_with("All tubes\n"));
    let elsewhere = lycosa(&["stats", "--data-dir", "/nonexistent"]);
    assert!(elsewhere.code == 4 && elsewhere.stderr.contains("--data-dir"), "{elsewhere:?}");
}

#[test]
fn a_user_with_a_grant_sees_its_tube_and_no_other() {
    let server = with_tasks();
    server.ok(&["tube", "create", "secret"]);
    let mut add = server.command(&["user", "add", "ann", "--tube", "t"]);
    add.env("LYCOSA_PASSWORD", "pw");
    assert_eq!(crate::support::finish(add, "").code, 0);
    let as_ann = |arguments: &[&str]| {
        let mut command = server.command(arguments);
        command.env("LYCOSA_USER", "ann").env("LYCOSA_PASSWORD", "pw");
        crate::support::finish(command, "")
    };
    let list = as_ann(&["tube", "list", "--json"]);
    assert_eq!(list.code, 0, "{list:?}");
    assert_eq!(list.lines().iter().map(|tube| tube["tube"].clone()).collect::<Vec<_>>(), ["t"], "{list:?}");
    assert_eq!(as_ann(&["list", "t", "--json"]).lines().len(), 4);
    assert_eq!(as_ann(&["list", "secret"]).code, 1);
    let stats = as_ann(&["stats"]);
    assert_eq!(stats.code, 0, "{stats:?}");
    assert!(stats.stdout.contains("fifottl") && !stats.stdout.contains("secret"), "{stats:?}");
    server.ok(&["put", "secret", "x"]);
    assert_eq!(as_ann(&["take", "t", "--json", "--ack"]).code, 0);
    let sessions = as_ann(&["session", "list"]);
    assert_eq!((sessions.code, sessions.stdout.contains("secret")), (0, false), "{sessions:?}");
    let users = server.ok(&["user", "list"]);
    assert!(users.contains("ann") && users.contains("public"), "{users}");
}

/// The tasks of tube `t` in a state.
fn in_state(server: &Server, state: &str) -> Vec<u64> {
    let run = server.run(&["list", "t", "--state", state, "--json"]);
    run.lines().iter().map(|task| task["id"].as_u64().unwrap()).collect()
}

#[test]
fn tasks_are_kicked_and_released_by_id_and_by_filter() {
    let server = with_tasks();
    assert_eq!(server.run(&["kick", "t", "--id", "2"]).code, 1, "it is not buried");
    server.ok(&["kick", "t", "--id", "0"]);
    assert_eq!(in_state(&server, "buried"), [0_u64; 0]);
    server.ok(&["bury", "t", "0", "2", "--reason", "by hand"]);
    let peeked = server.ok(&["peek", "t", "2"]);
    assert!(peeked.contains("last error  by hand"), "{peeked}");
    let counted = server.run(&["kick", "t", "--older-than", "0"]);
    assert!(counted.stderr.contains("kick would change 2 tasks"), "{counted:?}");
    let kicked = server.ok(&["kick", "t", "--limit", "1", "--yes"]);
    assert_eq!(kicked, "kicked 1 task of t\n");
    assert_eq!(in_state(&server, "buried"), [2]);
    assert_eq!(server.run(&["kick", "t", "--state", "ready"]).code, 2, "kick is for buried tasks");
    assert_eq!(server.run(&["kick", "t", "--count", "5", "--id", "2"]).code, 2);
    let unclear = server.run(&["kick", "t", "7"]);
    assert_eq!(unclear.code, 2, "a number alone is an id to other commands");
    assert!(unclear.stderr.contains("`lycosa kick t --id 7`"), "{unclear:?}");
    assert!(unclear.stderr.contains("`lycosa kick t --count 7`"), "{unclear:?}");
    assert_eq!(in_state(&server, "buried"), [2]);

    // A worker holds two tasks; an operator takes them from it.
    let mut worker = server.command(&["work", "t", "--jobs", "2", "--", "sleep", "60"]);
    let mut worker = worker.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("the worker holds two tasks", || in_state(&server, "taken").len() == 2);
    let held = in_state(&server, "taken");
    assert_eq!(server.run(&["release", "t", &held[0].to_string()]).code, 1, "it is the worker's");
    let list = server.ok(&["list", "t", "--state", "taken"]);
    assert!(list.contains("guest@127.0.0.1:"), "{list}");
    let sessions = server.ok(&["session", "list", "t"]);
    assert!(sessions.contains("guest") && sessions.contains("2 of t"), "{sessions}");
    let peeked = server.ok(&["peek", "t", &held[0].to_string()]);
    assert!(peeked.contains("address     127.0.0.1:"), "{peeked}");
    kill_process(Pid::from_child(&worker), Signal::STOP).unwrap();
    let released = server.ok(&["release", "t", "--state", "taken", "--delay", "1h", "--yes"]);
    assert_eq!(released, "released 2 tasks of t\n");
    assert_eq!(in_state(&server, "taken"), [0_u64; 0]);
    worker.kill().unwrap();
    worker.wait().unwrap();
}

#[test]
fn statistics_are_watched_with_rates() {
    let server = with_tasks();
    let mut watching = server.command(&["stats", "--watch=100ms", "--looks", "2", "--json"]);
    let watching = watching.stdout(Stdio::piped()).spawn().unwrap();
    let output = watching.wait_with_output().unwrap();
    let looks: Vec<Json> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(looks.len(), 2);
    assert_eq!(looks[0]["tubes"][0]["in"], Json::Null, "one look knows no rate");
    assert_eq!(looks[1]["tubes"][0]["in"], Json::from(0.0));
    let table = server.ok(&["stats", "--watch=100ms", "--looks", "2"]);
    assert_eq!(table.matches("in/s").count(), 2, "{table}");
    assert_eq!(server.run(&["stats", "--watch=1ms"]).code, 2);
    assert_eq!(server.run(&["stats", "--looks", "1"]).code, 2);
}

#[test]
fn options_that_a_tube_ignores_are_refused() {
    let server = Server::start();
    for (kind, option) in
        [("fifo", ["--ttl", "60"]), ("utube", ["--pri", "1"]), ("fifottl", ["--capacity", "5"])]
    {
        let refused = server.run(&[&["tube", "create", "t", "--type", kind], &option[..]].concat());
        assert_eq!(refused.code, 2, "{refused:?}");
        let text = format!("{} means nothing to a tube of type {kind}: only to ", option[0]);
        assert!(refused.stderr.contains(&text), "{refused:?}");
    }
    server.ok(&["tube", "create", "t", "--type", "fifo"]);
    let refused = [
        vec!["put", "t", "x", "--delay", "5"],
        vec!["put", "t", "x", "--utube", "a"],
        vec!["put", "t", "x", "--timeout", "5"],
        vec!["list", "t", "--older-than", "1h"],
        vec!["delete", "t", "--sub-queue", "a", "--yes"],
        vec!["release", "t", "0", "--delay", "5"],
        vec!["work", "t", "--retry-delay", "5", "--", "true"],
    ];
    for arguments in refused {
        let run = server.run(&arguments);
        assert_eq!(run.code, 2, "{arguments:?}: {run:?}");
        assert!(run.stderr.contains("means nothing to tube \"t\" of type fifo"), "{run:?}");
    }
    assert!(server.ok(&["tube", "stats", "t", "--json"]).contains(r#""total":0"#));
}

#[test]
fn a_tube_with_many_tasks_is_not_removed_by_a_script_that_does_not_say_so() {
    let server = Server::start();
    server.ok(&["tube", "create", "t"]);
    server.ok(&["put", "t", "few"]);
    server.ok(&["tube", "truncate", "t"]);
    let lines = "x\n".repeat(1001);
    let mut put = server.command(&["put", "t", "--lines", "--batch", "2000"]);
    put.stdout(Stdio::null());
    assert_eq!(crate::support::finish(put, &lines).code, 0);
    for verb in ["truncate", "drop"] {
        let refused = server.run(&["tube", verb, "t"]);
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(
            refused.stderr.contains(&format!("{verb} would remove the 1001 tasks of tube \"t\"")),
            "{refused:?}"
        );
        assert!(refused.stderr.contains("--yes does it"), "{refused:?}");
    }
    server.ok(&["tube", "truncate", "t", "--yes"]);
    server.ok(&["tube", "drop", "t"]);
    let missing = server.run(&["tube", "drop", "t"]);
    assert_eq!(missing.code, 1, "{missing:?}");
    assert!(missing.stderr.contains("tube \"t\" does not exist"), "{missing:?}");
}

#[test]
fn a_user_that_cannot_be_given_everything_is_not_added() {
    let server = Server::start();
    let mut add = server.command(&["user", "add", "ann", "--role", "nobody"]);
    add.env("LYCOSA_PASSWORD", "secret").env("LYCOSA_DATA_DIR", server.data.path());
    let run = crate::support::finish(add, "");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("user ann was not added"), "{run:?}");
    let mut list = server.command(&["user", "list", "--json"]);
    list.env("LYCOSA_DATA_DIR", server.data.path());
    let users = crate::support::finish(list, "");
    assert!(users.lines().iter().all(|user| user["user"] != "ann"), "{users:?}");
}

#[test]
fn the_history_is_drawn() {
    let server = with_tasks();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("history.svg");
    let text = server.ok(&["stats", "--history", "--svg", file.to_str().unwrap()]);
    for part in
        ["All tubes\n", "\nFlow by 10 s\n", "\nput ", "\nack ", "\nTasks by 10 s\n", "\nburied ", "1h ago"]
    {
        assert!(text.contains(part), "{part:?} is missing: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let drawing = std::fs::read_to_string(&file).unwrap();
    assert!(drawing.starts_with("<svg ") && drawing.contains(">Flow by 10 s<"), "{drawing}");

    let periods = |arguments: &[&str]| server.run(&[&["stats", "--json"], arguments].concat()).lines();
    let (hour, day) = (periods(&["--history"]), periods(&["--history=day"]));
    assert_eq!((hour.len(), day.len()), (360, 288));
    assert_eq!(
        (&hour[0]["ago"], &hour[359]["ago"], &day[0]["ago"]),
        (&3590.into(), &0.into(), &86_100.into())
    );
    assert!(
        hour.iter().all(|period| period["put"].is_null() || period["put"].as_f64() >= Some(0.0)),
        "{hour:?}"
    );

    let missing = server.run(&["stats", "nosuch", "--history"]);
    assert!(missing.code == 1 && missing.stderr.contains("\"nosuch\" does not exist"), "{missing:?}");
}
