//! Clients with the addresses of several members. A test kills or freezes each member in turn, and the clients go on.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use super::{Group, LIMIT, lycosa, text};

/// The addresses of all members, in the order that begins with this one.
fn addresses(group: &Group, first: usize) -> String {
    let count = group.members.len();
    let listens = (0..count).map(|number| group.members[(first + number) % count].listen.clone());
    listens.collect::<Vec<_>>().join(",")
}

/// `lycosa work` whose command writes the payload to a file.
fn worker(group: &Group, done: &Path) -> Child {
    let command = format!("printf '%s\\n' \"$(cat)\" >> {}", done.display());
    Command::new(env!("CARGO_BIN_EXE_lycosa"))
        .args(["work", "mail", "--address", &addresses(group, 0), "--jobs", "2"])
        .args(["--", "sh", "-c", &command])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Puts a task through any member, again where that was refused or its outcome is not known.
fn put(group: &Group, payload: &str) {
    let began = Instant::now();
    loop {
        let put = lycosa(&["put", "mail", payload, "--address", &addresses(group, 1)]);
        if put.status.success() {
            return;
        }
        assert!(began.elapsed() < LIMIT, "no put: {}", text(&put));
    }
}

/// The worker has run every one of these.
fn until_done(done: &Path, wanted: &BTreeSet<String>) {
    let began = Instant::now();
    loop {
        let lines = fs::File::open(done).map(|file| BufReader::new(file).lines().map_while(Result::ok));
        let lines: BTreeSet<String> = lines.map(Iterator::collect).unwrap_or_default();
        if wanted.is_subset(&lines) {
            return;
        }
        assert!(
            began.elapsed() < LIMIT,
            "the worker did not run {:?}",
            wanted.difference(&lines).collect::<Vec<_>>()
        );
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Lets a worker and clients with all addresses live while `fail` is done to each member, and to the leader at last.
fn goes_on(fail: impl Fn(&mut Group, usize), mend: impl Fn(&mut Group, usize)) {
    let mut group = Group::of(3);
    // Without a ttr, a task of a take whose answer was lost comes back only if the take is made again.
    let created = lycosa(&["tube", "create", "mail", "--address", &addresses(&group, 0)]);
    assert!(created.status.success(), "{}", text(&created));
    let done = group.folder.path().join("done");
    let mut worker = worker(&group, &done);
    let mut wanted = BTreeSet::new();
    let mut put_and_wait = |group: &Group, payload: String| {
        put(group, &payload);
        wanted.insert(payload);
        until_done(&done, &wanted);
    };
    put_and_wait(&group, "first".to_owned());
    for round in 0..4 {
        let victim = if round < 3 { round } else { group.leader() };
        fail(&mut group, victim);
        put_and_wait(&group, format!("while {round} is away"));
        put_and_wait(&group, format!("while {round} is away still"));
        mend(&mut group, victim);
        group.until(victim, "it is back", |status| status["leader"].is_u64() && status["state"] == "running");
        put_and_wait(&group, format!("after {round}"));
    }
    kill_process(Pid::from_child(&worker), Signal::TERM).unwrap();
    assert!(worker.wait().unwrap().success());
    // Every task is acknowledged, and none is left to a lost session.
    let left = group.payloads(0);
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_worker_with_all_addresses_outlives_each_killed_member() {
    goes_on(Group::kill, Group::start);
}

#[test]
fn a_worker_with_all_addresses_outlives_each_frozen_member() {
    goes_on(
        |group, number| group.signal(number, Signal::STOP),
        |group, number| group.signal(number, Signal::CONT),
    );
}
