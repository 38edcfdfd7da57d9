//! The log of a member as the tools show it, and a group that comes back from a backup.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value as Json, json};

use super::{Group, LIMIT, ROUNDS, lycosa, text};

/// The paths of a folder's files that end so, in the order of their names.
fn files(folder: &Path, end: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<String> = entries
        .filter(|path| path.extension().is_some_and(|extension| extension == end))
        .map(|path| path.to_str().unwrap().to_owned())
        .collect();
    files.sort();
    files
}

/// What `cat` says of a member's log.
fn cat(folder: &Path, arguments: &[&str]) -> String {
    let logs = files(folder, "grouplog");
    let logs: Vec<&str> = logs.iter().map(String::as_str).collect();
    let shown = lycosa(&[&["cat"], logs.as_slice(), arguments].concat());
    assert!(shown.status.success(), "{}", text(&shown));
    String::from_utf8(shown.stdout).unwrap()
}

fn cat_json(folder: &Path, arguments: &[&str]) -> Vec<Json> {
    let lines = cat(folder, &[&["--json"], arguments].concat());
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The states of the rows that hold this payload.
fn states(lines: &[Json], payload: &str) -> Vec<String> {
    let holds = |line: &&Json| line["type"] == "insert" && line["tuple"].to_string().contains(payload);
    lines.iter().filter(holds).map(|line| line["state"].as_str().unwrap().to_owned()).collect()
}

/// Kills the followers and lets the leader take a task that it cannot confirm. Returns the leader, which is killed too.
fn unconfirmed(group: &mut Group, payload: &str) -> usize {
    for _ in 0..ROUNDS {
        let leader = group.leader();
        let others: Vec<usize> = (0..3).filter(|number| *number != leader).collect();
        others.iter().for_each(|other| group.kill(*other));
        let address = &group.members[leader].listen;
        let put = lycosa(&["put", "mail", payload, "--address", address, "--request-timeout", "1s"]);
        assert!(!put.status.success(), "one of three confirmed: {}", text(&put));
        let status = group.status(leader).unwrap();
        group.kill(leader);
        let logged = cat(&group.members[leader].folder, &["--space", "mail"]);
        if logged.contains(payload) {
            assert!(status["committed"].as_u64() < status["last"].as_u64(), "{status}");
            return leader;
        }
        // It had stopped leading before the task came.
        (0..3).for_each(|number| group.start(number));
    }
    panic!("no leader has taken the task in {ROUNDS} rounds");
}

#[test]
fn entries_votes_and_truncations_of_a_log_are_shown_and_unconfirmed_entries_are_marked() {
    let mut group = Group::of(3);
    group.put(0, "kept");
    let former = unconfirmed(&mut group, "stray");
    let folder = group.members[former].folder.clone();
    let lines = cat_json(&folder, &[]);
    let begin = &lines[0];
    assert_eq!((&begin["record"], &begin["node"]), (&json!("begin"), &json!(former + 1)), "{begin}");
    assert!(lines.iter().any(|line| line["record"] == "ballot" && line["term"].as_u64() > Some(0)));
    assert_eq!(states(&lines, "kept"), ["committed"]);
    assert_eq!(states(&lines, "stray"), ["unknown"]);
    // Rows are found by the name of their space, which stands in the log too, and bring their entry.
    let shown = cat(&folder, &["--space", "mail", "--type", "insert"]);
    let heads: Vec<&str> = shown.lines().filter(|line| line.starts_with("entry")).collect();
    assert_eq!(heads.len(), 2, "{shown}");
    assert!(heads[1].contains("(not known to be committed)") && !heads[0].contains('('), "{shown}");
    let checked = lycosa(&["check", folder.to_str().unwrap(), "--json"]);
    let verdicts: Vec<Json> =
        text(&checked).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for end in [".grouplog", ".group"] {
        let file = verdicts.iter().find(|line| line["file"].as_str().is_some_and(|name| name.ends_with(end)));
        assert!(file.unwrap()["rows"].as_u64() > Some(0), "{file:?}");
    }
    // The other two go on, and the stray entry gives way to theirs.
    let others: Vec<usize> = (0..3).filter(|number| *number != former).collect();
    others.iter().for_each(|other| group.start(*other));
    group.put(others[0], "after");
    group.start(former);
    let applied = group.status(others[0]).unwrap()["applied"].as_u64();
    group.until(former, "it has all entries", |status| status["applied"].as_u64() >= applied);
    (0..3).for_each(|number| group.stop(number));
    let lines = cat_json(&folder, &[]);
    assert!(lines.iter().any(|line| line["record"] == "truncation"), "{lines:?}");
    assert_eq!(states(&lines, "stray"), ["gave_way"]);
    assert_eq!(states(&lines, "kept"), ["committed"]);
    assert_eq!(states(&lines, "after").len(), 1);
    let state = lycosa(&["cat", files(&folder, "group").last().unwrap(), "--json"]);
    let state: Json = serde_json::from_slice(&state.stdout).unwrap();
    assert_eq!((&state["record"], &state["level"]), (&json!("state"), &json!(2)), "{state}");
    assert!(!state["members"].as_array().unwrap().is_empty());
}

#[test]
fn the_log_of_a_running_member_is_followed() {
    let group = Group::of(3);
    group.put(0, "first");
    let log = files(&group.members[1].folder, "grouplog").pop().unwrap();
    let mut following = Command::new(env!("CARGO_BIN_EXE_lycosa"))
        .args(["cat", &log, "--follow", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    let mut until = |payload: &str| {
        lines.by_ref().map(|line| line.unwrap()).find(|line| line.contains(payload)).unwrap();
    };
    until("first");
    group.put(0, "second");
    until("second");
    kill_process(Pid::from_child(&following), Signal::INT).unwrap();
    assert!(following.wait().unwrap().success());
}

#[test]
fn an_export_of_any_member_has_what_the_group_has_confirmed() {
    let group = Group::of(3);
    (0..3).for_each(|number| _ = group.put(number, &format!("task {number}")));
    let applied = group.status(group.leader()).unwrap()["applied"].as_u64();
    for number in 0..3 {
        group.until(number, "it has all entries", |status| status["applied"].as_u64() >= applied);
        let folder = group.members[number].folder.to_str().unwrap();
        let exported = lycosa(&["export", "mail", "--data-dir", folder]);
        assert!(exported.status.success(), "{}", text(&exported));
        assert_eq!(text(&exported).matches("task ").count(), 3, "{}", text(&exported));
    }
}

/// The tasks in a data folder's server, which is started for that.
fn tasks_of(folder: &str, address: &str) -> Vec<String> {
    let mut server = Command::new(env!("CARGO_BIN_EXE_lycosa"))
        .args(["serve", "--data-dir", folder, "--listen", address, "--http-listen", "", "--lua", "false"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let began = std::time::Instant::now();
    while !lycosa(&["ping", "--address", address]).status.success() {
        assert!(began.elapsed() < LIMIT, "the restored server does not answer");
    }
    let listed = lycosa(&["list", "mail", "--json", "--address", address]);
    server.kill().unwrap();
    server.wait().unwrap();
    let lines = String::from_utf8(listed.stdout).unwrap();
    lines.lines().map(|line| serde_json::from_str::<Json>(line).unwrap()["data"].to_string()).collect()
}

#[test]
fn a_backup_of_a_member_holds_its_log_and_begins_a_new_group() {
    let mut group = Group::of(3);
    (0..3).for_each(|number| _ = group.put(number, &format!("task {number}")));
    let leader = group.leader();
    let path = |name: &str| group.folder.path().join(name).to_str().unwrap().to_owned();
    let (copy, by_hand) = (path("copy"), path("by-hand"));
    let (restored, again) = (path("restored"), path("again"));
    let folder = group.members[leader].folder.to_str().unwrap().to_owned();
    // While the member runs: everything that was answered is in the copy, though no snapshot has it.
    let copied = lycosa(&["backup", &copy, "--data-dir", &folder, "--json"]);
    assert!(copied.status.success(), "{}", text(&copied));
    let answer: Json = serde_json::from_slice(&copied.stdout).unwrap();
    assert_eq!(answer["group"]["node"], leader + 1, "{answer}");
    assert!(text(&copied).contains("cluster init"), "{}", text(&copied));
    assert_eq!(files(Path::new(&copy), "grouplog"), [""; 0]);
    assert_eq!(files(Path::new(&copy), "snap").len(), 1);
    let back = lycosa(&["restore", &copy, "--data-dir", &restored]);
    assert!(back.status.success(), "{}", text(&back));
    let address = super::free_address().to_string();
    assert_eq!(tasks_of(&restored, &address).len(), 3);
    // A copy by hand does not become the member again either.
    (0..3).for_each(|number| group.stop(number));
    std::fs::create_dir(&by_hand).unwrap();
    for end in ["snap", "group", "grouplog"] {
        for file in files(Path::new(&folder), end) {
            std::fs::copy(&file, Path::new(&by_hand).join(Path::new(&file).file_name().unwrap())).unwrap();
        }
    }
    let back = lycosa(&["restore", &by_hand, "--data-dir", &again, "--json"]);
    assert!(back.status.success(), "{}", text(&back));
    let answer: Json = serde_json::from_slice(&back.stdout).unwrap();
    assert_eq!(answer["group"]["node"], leader + 1, "{answer}");
    let refused = lycosa(&["cluster", "leave", "--data-dir", &again]);
    assert!(text(&refused).contains("belongs to no group"), "{}", text(&refused));
    // The restored folder begins a new group, with another id.
    let listen = group.members[leader].address.clone();
    let begun = lycosa(&["cluster", "init", "--data-dir", &again, "--member-address", &listen, "--json"]);
    assert!(begun.status.success(), "{}", text(&begun));
    let begun: Json = serde_json::from_slice(&begun.stdout).unwrap();
    assert_ne!(begun["group"], answer["group"]["group"]);
    group.members[leader].folder = again.into();
    group.start(leader);
    group.until(leader, "it leads", |status| status["leads"] == true);
    assert_eq!(group.payloads(leader).len(), 3);
}
