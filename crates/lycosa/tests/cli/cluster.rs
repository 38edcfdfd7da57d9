//! Servers that act as one: three processes elect a leader, every one of them serves, and a killed leader costs no task.

mod clients;
mod failures;
mod http;
mod members;
mod tools;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value as Json;

use crate::addresses::free_address;

/// How long a step may take on a machine that does much else.
const LIMIT: Duration = Duration::from_secs(60);
const SECRET: &str = "the secret of a test's group";
/// Leaders that are killed.
const ROUNDS: usize = 5;

fn lycosa(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lycosa")).args(args).stdin(Stdio::null()).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

struct Member {
    folder: PathBuf,
    listen: String,
    /// `cluster.listen`.
    address: String,
    /// Further arguments of `lycosa serve`, from the next start on.
    flags: Vec<String>,
    process: Option<Child>,
}

struct Group {
    folder: tempfile::TempDir,
    members: Vec<Member>,
    /// Repeated puts: the most tasks that may be there twice.
    repeats: AtomicUsize,
}

impl Drop for Group {
    fn drop(&mut self) {
        for process in self.members.iter_mut().filter_map(|member| member.process.as_mut()) {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Group {
    fn of(count: usize) -> Self {
        Self::with(count, "", &[])
    }

    /// The same with this in front of each `cluster.listen`, and further arguments of each server.
    fn with(count: usize, scheme: &str, flags: &[&str]) -> Self {
        let mut group = Self::planned(count, scheme, flags);
        group.begin();
        group
    }

    /// The first server begins a group, and takes each further one in.
    fn begin(&mut self) {
        self.begin_alone();
        for number in 1..self.members.len() {
            self.start(number);
            self.take_in(0, number);
        }
    }

    fn begin_alone(&mut self) {
        let (first, address) = (self.members[0].folder.to_str().unwrap(), &self.members[0].address);
        let begun = lycosa(&["cluster", "init", "--data-dir", first, "--member-address", address]);
        assert!(begun.status.success(), "{}", text(&begun));
        self.start(0);
        self.until(0, "it leads", |status| status["leads"] == true);
    }

    /// Servers that were never started.
    fn planned(count: usize, scheme: &str, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("secret");
        fs::write(&secret, SECRET).unwrap();
        fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
        let addresses: Vec<String> = (0..2 * count).map(|_| free_address().to_string()).collect();
        let member = |(number, pair): (usize, &[String])| Member {
            folder: folder.path().join(format!("node-{}", number + 1)),
            listen: pair[0].clone(),
            address: format!("{scheme}{}", pair[1]),
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            process: None,
        };
        let members = addresses.chunks(2).enumerate().map(member).collect();
        Self { folder, members, repeats: AtomicUsize::new(0) }
    }

    /// A member takes an empty server in, and waits until it votes.
    fn take_in(&self, at: usize, number: usize) {
        let address = self.members[number].address.as_str();
        let stands = |status: &Json, standings: &[&str]| {
            let mut members = status["members"].as_array().unwrap().iter();
            members.any(|member| {
                member["address"] == address
                    && standings.iter().any(|standing| member["standing"] == *standing)
            })
        };
        let began = Instant::now();
        // A busy machine may make the members elect another leader meanwhile: the order is given again.
        while !self.status(at).is_some_and(|status| stands(&status, &["learner", "voter"])) {
            let added = self.order(at, &["add", address]);
            assert!(added.status.success() || began.elapsed() < LIMIT, "{}", text(&added));
        }
        self.until(at, "the new member is a voter", |status| stands(status, &["voter"]));
        self.until(number, "it has data", |status| status["leader"].is_u64());
    }

    fn log(&self, number: usize) -> String {
        fs::read_to_string(self.folder.path().join(format!("log-{}", number + 1))).unwrap()
    }

    fn start(&mut self, number: usize) {
        let secret = self.folder.path().join("secret");
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join(format!("log-{}", number + 1)))
            .unwrap();
        let member = &mut self.members[number];
        let process = Command::new(env!("CARGO_BIN_EXE_lycosa"))
            .args(["serve", "--data-dir", member.folder.to_str().unwrap(), "--listen", &member.listen])
            .args(["--lua", "false", "--cluster-listen", &member.address])
            .args(if member.flags.iter().any(|flag| flag == "--http-listen") {
                &[][..]
            } else {
                &["--http-listen", ""]
            })
            .args(["--cluster-secret-file", secret.to_str().unwrap()])
            .args(&member.flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        member.process = Some(process);
    }

    fn kill(&mut self, number: usize) {
        let mut process = self.members[number].process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    fn stop(&mut self, number: usize) {
        let mut process = self.members[number].process.take().unwrap();
        kill_process(Pid::from_child(&process), Signal::TERM).unwrap();
        assert!(process.wait().unwrap().success(), "{}", self.log(number));
    }

    fn signal(&self, number: usize, signal: Signal) {
        let process = self.members[number].process.as_ref().unwrap();
        kill_process(Pid::from_child(process), signal).unwrap();
    }

    fn order(&self, number: usize, order: &[&str]) -> Output {
        let folder = self.members[number].folder.to_str().unwrap();
        lycosa(&[&["cluster"], order, &["--data-dir", folder]].concat())
    }

    fn status(&self, number: usize) -> Option<Json> {
        let output = self.order(number, &["status", "--json"]);
        serde_json::from_slice(&output.stdout).ok()
    }

    fn until(&self, number: usize, what: &str, is_so: impl Fn(&Json) -> bool) {
        let began = Instant::now();
        while !self.status(number).is_some_and(|status| is_so(&status)) {
            assert!(began.elapsed() < LIMIT, "{what}: {:?}\n{}", self.status(number), self.log(number));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn leader(&self) -> usize {
        let began = Instant::now();
        loop {
            let leads = |number: &usize| {
                self.members[*number].process.is_some()
                    && self.status(*number).is_some_and(|status| status["leads"] == true)
            };
            if let Some(leader) = (0..self.members.len()).find(leads) {
                return leader;
            }
            assert!(began.elapsed() < LIMIT, "nobody leads");
        }
    }

    /// Waits until every member names the same leader of the same term.
    fn until_agreed(&self) {
        let began = Instant::now();
        let told = |number: usize| {
            let status = self.status(number)?;
            Some((status["leader"].as_u64()?, status["term"].as_u64()?))
        };
        loop {
            let all: Vec<_> = (0..self.members.len()).map(told).collect();
            if all[0].is_some() && all.iter().all(|one| *one == all[0]) {
                return;
            }
            assert!(began.elapsed() < LIMIT, "the members do not agree: {all:?}");
        }
    }

    /// The highest term that a member knows. A busy machine may make the members elect a leader at any time.
    fn term(&self) -> u64 {
        let terms = (0..self.members.len()).filter_map(|number| self.status(number)?["term"].as_u64());
        terms.max().expect("a member answers")
    }

    /// Puts a task through a member, again where that was refused or its outcome is not known. Returns how often.
    fn put(&self, number: usize, payload: &str) -> usize {
        let began = Instant::now();
        for attempt in 1.. {
            let put =
                lycosa(&["put", "mail", payload, "--create", "--address", &self.members[number].listen]);
            if put.status.success() {
                return attempt;
            }
            self.repeats.fetch_add(1, Ordering::Relaxed);
            assert!(began.elapsed() < LIMIT, "no put: {}", text(&put));
        }
        unreachable!("a loop without an end")
    }

    /// The payloads that a member says the tube holds, again where the leader changed meanwhile. Each stands here once.
    fn payloads(&self, number: usize) -> Vec<String> {
        let began = Instant::now();
        let tasks = loop {
            let listed = lycosa(&["list", "mail", "--json", "--address", &self.members[number].listen]);
            if listed.status.success() {
                break String::from_utf8(listed.stdout).unwrap();
            }
            assert!(began.elapsed() < LIMIT, "no list: {}", text(&listed));
        };
        let payload = |line| serde_json::from_str::<Json>(line).unwrap()["data"].to_string();
        let all: Vec<String> = tasks.lines().map(payload).collect();
        let mut seen = BTreeSet::new();
        let payloads: Vec<String> = all.iter().filter(|payload| seen.insert(*payload)).cloned().collect();
        assert!(
            all.len() <= payloads.len() + self.repeats.load(Ordering::Relaxed),
            "a task is there twice: {all:?}"
        );
        payloads
    }
}

#[test]
fn every_member_serves_and_a_killed_leader_costs_no_task() {
    let mut group = Group::of(3);
    for number in 0..3 {
        let term = group.term();
        let attempts = group.put(number, &format!("first {number}"));
        assert!(
            attempts == 1 || group.term() != term,
            "a put through member {number} took {attempts} attempts"
        );
    }
    for round in 0..ROUNDS {
        let leader = group.leader();
        group.kill(leader);
        let other = (leader + 1) % 3;
        group.put(other, &format!("round {round}"));
        let payloads = group.payloads((leader + 2) % 3);
        for put in (0..3)
            .map(|number| format!("first {number}"))
            .chain((0..=round).map(|round| format!("round {round}")))
        {
            assert!(payloads.iter().any(|payload| payload.contains(&put)), "{put} is lost: {payloads:?}");
        }
        group.start(leader);
        group.until(leader, "it follows", |status| {
            status["role"] == "follower" && !status["leader"].is_null()
        });
    }
    let (leader, term) = (group.leader(), group.term());
    let handed = group.order((leader + 1) % 3, &["transfer"]);
    assert!(handed.status.success() || group.term() > term, "{}", text(&handed));
    group.until(leader, "another leader is elected", |status| status["term"].as_u64() > Some(term));
}

fn init(folder: &Path) -> Output {
    lycosa(&["cluster", "init", "--data-dir", folder.to_str().unwrap(), "--member-address", "127.0.0.1:1"])
}

#[test]
fn a_folder_becomes_a_member_s_once_and_a_single_server_s_again() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let path = data.to_str().unwrap();
    assert!(init(&data).status.success());
    let second = init(&data);
    assert!(
        !second.status.success() && text(&second).contains("belongs to a group already"),
        "{}",
        text(&second)
    );
    let single = lycosa(&["serve", "--data-dir", path, "--listen", "127.0.0.1:0", "--http-listen", ""]);
    assert!(!single.status.success() && text(&single).contains("cluster leave"), "{}", text(&single));
    let left = lycosa(&["cluster", "leave", "--data-dir", path]);
    assert!(left.status.success(), "{}", text(&left));
    let checked = lycosa(&["check", path, "--for-tarantool"]);
    assert!(checked.status.success(), "{}", text(&checked));
    let again = lycosa(&["cluster", "leave", "--data-dir", path]);
    assert!(!again.status.success() && text(&again).contains("belongs to no group"), "{}", text(&again));
}

#[test]
fn settings_that_a_group_does_not_allow_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    for (setting, cause) in [
        (["--read-only", "true"], "the group decides"),
        (["--wal-mode", "write"], "needs fsync"),
        (["--replicas-before-reply", "1"], "majority"),
        (["--replication", "127.0.0.1:1"], "Leave replication out"),
        (["--log-level", "info"], "cluster.secret_file"),
    ] {
        let output = lycosa(
            &[
                &[
                    "serve",
                    "--data-dir",
                    data.to_str().unwrap(),
                    "--listen",
                    "127.0.0.1:0",
                    "--http-listen",
                    "",
                ][..],
                &["--cluster-listen", "127.0.0.1:0"],
                &setting,
            ]
            .concat(),
        );
        assert!(!output.status.success() && text(&output).contains(cause), "{}", text(&output));
    }
}
