//! Guard rails of Lua beside a server: many fibers that wait, loops without end, memory, drivers that leak, hooks that fail.
//! Each time clients go on, and a restart after `kill -9` finds every acknowledged task.
//!
//! `LYCOSA_TEST_FIBERS` is how many fibers wait for tasks (1 000; three times as many sleep), `LYCOSA_TEST_SPINS` how many
//! calls never end (2).

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::{LIMIT, Server};
use lycosa_client::{ConnectOptions, Connection, Value};

/// A server with the application of these tests.
fn serve(flags: &[&str]) -> Server {
    Server::configured(&with_application(flags))
}

fn with_application<'a>(flags: &[&'a str]) -> Vec<&'a str> {
    let mut all = vec!["--app", APPLICATION];
    all.extend(flags);
    all
}

const APPLICATION: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/guards.lua");

fn knob(name: &str, usual: usize) -> usize {
    std::env::var(name).ok().map_or(usual, |value| value.parse().unwrap())
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

async fn connect(address: &str) -> Connection {
    Connection::connect(&ConnectOptions::new(address)).await.unwrap()
}

/// The first value that a function returns; nil if none.
async fn call(connection: &Connection, name: &str, argument: impl Into<Value>) -> Value {
    let answer = connection.call(name, [argument.into()]).await;
    let answer = answer.unwrap_or_else(|error| panic!("{name}: {error}"));
    if answer.is_empty() { Value::Nil } else { answer.first_value().unwrap() }
}

/// The text of the error that it raises.
async fn failed(connection: &Connection, name: &str, argument: impl Into<Value>) -> String {
    match connection.call(name, [argument.into()]).await {
        Ok(answer) => panic!("{name}: {:?}", answer.values()),
        Err(error) => error.to_string(),
    }
}

/// The application is loaded after the port is open.
async fn loaded(address: &str) -> Connection {
    let begun = Instant::now();
    loop {
        let connection = connect(address).await;
        if connection.call("guards.ready", ()).await.is_ok() {
            return connection;
        }
        assert!(begun.elapsed() < LIMIT, "the application is not loaded");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Payloads whose put was acknowledged, and how long each put took.
#[derive(Debug, Default)]
struct Acknowledged {
    payloads: BTreeSet<String>,
    times: Vec<Duration>,
}

/// Puts into a tube until `ends`, at least `least` times.
async fn keep_putting(
    address: &str,
    tube: &str,
    name: &str,
    least: usize,
    ends: &AtomicBool,
) -> Acknowledged {
    let connection = connect(address).await;
    let mut all = Acknowledged::default();
    let method = format!("queue.tube.{tube}:put");
    while all.times.len() < least || !ends.load(Ordering::Relaxed) {
        let payload = format!("{name} {}", all.times.len());
        let begun = Instant::now();
        connection.call(&method, [Value::from(payload.as_str())]).await.unwrap();
        all.times.push(begun.elapsed());
        all.payloads.insert(payload);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    all
}

/// Takes everything from a tube; the payloads.
async fn drain(address: &str, tube: &str) -> BTreeSet<String> {
    let connection = loaded(address).await;
    let mut found = BTreeSet::new();
    loop {
        let answer = connection.call(&format!("queue.tube.{tube}:take"), [Value::from(0)]).await.unwrap();
        let Some(task) = answer.values().unwrap().into_iter().next() else { return found };
        let task = task.as_array().unwrap().to_vec();
        let payload = task[2].as_str().unwrap().to_owned();
        assert!(found.insert(payload.clone()), "{payload} twice");
        call(&connection, &format!("queue.tube.{tube}:ack"), task[0].clone()).await;
    }
}

/// How long other clients waited, for a reader of the test's output.
fn show(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let part = |percent: usize| times[(times.len() - 1) * percent / 100];
    println!("{what}: {} puts, p50 {:?}, p99 {:?}, max {:?}", times.len(), part(50), part(99), part(100));
}

/// Runs `work` beside two clients that put; then a restart, after which every acknowledged task exists once.
fn beside_clients(server: Server, flags: &[&str], work: impl AsyncFnOnce(&str, &Connection)) {
    const LEAST: usize = 50;
    let address = server.address.clone();
    let ends = AtomicBool::new(false);
    let (first, second) = run(async {
        let connection = loaded(&address).await;
        let worked = async {
            work(&address, &connection).await;
            ends.store(true, Ordering::Relaxed);
        };
        let (first, second, ()) = tokio::join!(
            keep_putting(&address, "mail", "first", LEAST, &ends),
            keep_putting(&address, "mail", "second", LEAST, &ends),
            worked
        );
        (first, second)
    });
    let all: BTreeSet<String> = first.payloads.union(&second.payloads).cloned().collect();
    show("others", first.times.into_iter().chain(second.times).collect());
    let server = server.restart(&with_application(flags));
    assert_eq!(run(drain(&server.address, "mail")), all, "what was acknowledged is there, once");
}

#[test]
fn many_fibers_wait_while_clients_work() {
    let takers = knob("LYCOSA_TEST_FIBERS", 1000);
    // One put after the other waits for the journal: without syncs, so that a busy disk does not matter.
    let flags = ["--wal-mode", "write"];
    beside_clients(serve(&flags), &flags, async |_, connection| {
        call(connection, "guards.take", takers as u64).await;
        assert_eq!(call(connection, "guards.waiting", ()).await.as_u64(), Some(takers as u64));
        // Each task goes to one of them, and each of them gets one.
        let put = call(connection, "guards.put_all", takers as u64).await;
        assert_eq!(put.as_u64(), Some(takers as u64));
        let begun = Instant::now();
        while call(connection, "guards.taken", ()).await.as_u64() != Some(takers as u64) {
            assert!(begun.elapsed() < LIMIT, "not all are taken");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(call(connection, "guards.left", ()).await.as_u64(), Some(0));
        let sleepers = 3 * takers as u64;
        assert_eq!(call(connection, "guards.sleep", sleepers).await.as_u64(), Some(sleepers));
        call(connection, "guards.wake", ()).await;
    });
}

#[test]
fn a_called_function_without_end_is_ended() {
    let flags = ["--lua-time-budget", "0.5"];
    let spins = knob("LYCOSA_TEST_SPINS", 2);
    beside_clients(serve(&flags), &flags, async |_, connection| {
        // Long enough to be compiled, then without end.
        assert_eq!(call(connection, "guards.spin", 5_000_000).await.as_u64(), Some(5_000_000));
        assert_eq!(call(connection, "guards.is_compiled", ()).await.as_bool(), Some(true));
        for function in ["guards.spin", "guards.catching", "guards.matching", "guards.finalizing"] {
            for _ in 0..spins {
                let error = failed(connection, function, -1).await;
                assert!(
                    error.contains("this code ran for more than 500 ms without a pause"),
                    "{function}: {error}"
                );
            }
        }
        // A fiber that is started within its time, and native code that runs for it, count as its own.
        let others = ["starting", "nesting", "triggering", "pausing", "replying", "encoding"];
        for function in others.map(|name| format!("guards.{name}")) {
            let error = failed(connection, &function, -1).await;
            assert!(error.contains("ms without a pause"), "{function}: {error}");
        }
    });
}

#[test]
fn a_program_that_eats_memory_and_a_driver_that_leaks_leave_the_queue_running() {
    let flags = ["--lua-memory", "32MiB"];
    let server = serve(&flags);
    let mut kept = 0;
    beside_clients(server, &flags, async |address, connection| {
        for _ in 0..3 {
            let error = failed(connection, "guards.eat", ()).await;
            assert!(error.contains("not enough memory"), "{error}");
            // What it has let go can be used again.
            assert_eq!(call(connection, "guards.spin", 1).await.as_u64(), Some(1));
        }
        // A driver that keeps everything: its puts fail one day, and all Lua with it. Native tubes serve on.
        let leaking = connect(address).await;
        let error = loop {
            match leaking.call("queue.tube.leaky:put", [Value::from("x".repeat(1 << 16))]).await {
                Ok(_) => kept += 1,
                Err(error) => break error.to_string(),
            }
            assert!(kept < 2000, "the driver does not reach its limit");
        };
        assert!(error.contains("not enough memory"), "{error}");
        let task = connection.call("queue.tube.other:put", [Value::from("x")]).await.unwrap();
        assert_eq!(task.len(), 1);
    });
    assert!(kept > 10, "{kept}");
}

#[test]
fn hooks_that_raise_or_yield_leave_the_queue_running() {
    beside_clients(serve(&[]), &[], async |address, connection| {
        let before = call(connection, "guards.hook_errors", ()).await.as_u64().unwrap();
        for kind in ["raise", "yield", "sleep", "spin", "mute"] {
            let second = connect(address).await;
            call(connection, "guards.hook", kind).await;
            // Triggers of sessions, callbacks of tubes, triggers of spaces.
            let refused = connect(address).await.ping().await.is_err();
            assert_eq!(
                refused,
                ["raise", "spin", "mute"].contains(&kind),
                "{kind}: a trigger that fails refuses the connection"
            );
            let put = second.call("queue.tube.hooked:put", [Value::from(kind)]).await.unwrap();
            let id = put.first_value().unwrap().as_array().unwrap()[0].clone();
            let taken = second.call("queue.tube.hooked:take", [Value::from(0)]).await.unwrap();
            assert_eq!(taken.len(), 1, "{kind}");
            call(&second, "queue.tube.hooked:ack", id).await;
            let inserted = second.call("guards.insert", [Value::from(kind)]).await;
            assert!(inserted.is_err(), "{kind}: a trigger that fails or pauses takes its statement back");
            call(connection, "guards.hook", "none").await;
        }
        assert_eq!(call(connection, "guards.inserted", ()).await.as_u64(), Some(0));
        let after = call(connection, "guards.hook_errors", ()).await.as_u64().unwrap();
        assert!(after > before, "failures are counted");
    });
}

/// What a program has said about its transactions: by key, the state of the last commit and of one under way.
#[derive(Debug, Default)]
struct Said {
    committed: BTreeMap<u64, String>,
    tried: BTreeMap<u64, String>,
}

impl Said {
    fn hear(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let [what, key, state] = words[..] else { panic!("{line}") };
        let key = key.parse().unwrap();
        match what {
            "try" => self.tried.insert(key, state.to_owned()),
            "ok" => {
                self.tried.remove(&key);
                self.committed.insert(key, state.to_owned())
            }
            _ => panic!("{line}"),
        };
    }

    /// Whether a state may be found after a crash.
    fn allows(&self, key: u64, state: &str) -> bool {
        let committed = self.committed.get(&key).map_or("none", String::as_str);
        committed == state || self.tried.get(&key).is_some_and(|tried| tried == state)
    }
}

fn program(folder: &Path, argument: &str) -> Command {
    let mut command = crate::support::command();
    command.arg(TRANSACTIONS).arg(argument).current_dir(folder);
    command.stdout(Stdio::piped()).stderr(std::fs::File::create(folder.join("errors")).unwrap());
    command
}

const TRANSACTIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/transactions.lua");

/// `LYCOSA_TEST_SEEDS` is how many programs (2), `LYCOSA_TEST_LINES` how many lines of each are read before it is killed.
#[test]
fn transactions_over_tasks_and_rows_are_whole_after_a_crash() {
    for seed in 1..=knob("LYCOSA_TEST_SEEDS", 2) {
        let folder = tempfile::tempdir().unwrap();
        let mut child = program(folder.path(), &seed.to_string()).spawn().unwrap();
        let mut said = Said::default();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let (mut count, mut line) = (0, String::new());
        while lines.read_line(&mut line).unwrap() > 0 {
            // The last line may be half a line.
            if let Some(line) = line.strip_suffix('\n') {
                said.hear(line);
                count += 1;
                if count == knob("LYCOSA_TEST_LINES", 1000) {
                    child.kill().unwrap();
                }
            }
            line.clear();
        }
        child.wait().unwrap();
        let errors = std::fs::read_to_string(folder.path().join("errors")).unwrap();
        assert!(count >= knob("LYCOSA_TEST_LINES", 1000), "seed {seed}: it ended by itself: {errors}");

        let found = program(folder.path(), "check").output().unwrap();
        let found = String::from_utf8(found.stdout).unwrap();
        assert!(found.ends_with("checked\n"), "seed {seed}: {found}");
        let mut there = BTreeSet::new();
        for line in found.lines().filter(|line| *line != "checked") {
            let words: Vec<&str> = line.split('\t').collect();
            let [key, row, task] = words[..] else { panic!("{line}") };
            let key = key.parse().unwrap();
            there.insert(key);
            assert!(said.allows(key, row), "seed {seed}: {line}, but {said:?}");
            // Taken tasks of a process that is gone are ready again.
            let wanted = if row == "t" { "r" } else { row };
            assert_eq!(task, wanted, "seed {seed}: {line}: half a transaction");
        }
        for key in said.committed.keys().filter(|key| !there.contains(key)) {
            assert!(said.allows(*key, "none"), "seed {seed}: {key} is lost: {said:?}");
        }
    }
}
