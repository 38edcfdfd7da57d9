//! Clients with the addresses of several members. A test kills or freezes each member in turn, and the clients go on.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use lycosa_client::{ConnectOptions, Connection, Value};
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
        thread::sleep(std::time::Duration::from_millis(20));
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

/// A published address: connections to it reach another one, until it is closed. Its existing connections go on.
struct Forwarder {
    address: String,
    is_closed: Arc<AtomicBool>,
}

impl Forwarder {
    fn to(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (target, is_closed) = (target.to_owned(), Arc::new(AtomicBool::new(false)));
        let closed = is_closed.clone();
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                if closed.load(Ordering::Relaxed) {
                    continue;
                }
                let Ok(far) = TcpStream::connect(&target) else { continue };
                for (mut from, mut to) in [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)]
                {
                    thread::spawn(move || {
                        let _ = io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Write);
                    });
                }
            }
        });
        Self { address, is_closed }
    }
}

#[test]
fn a_member_that_begins_to_lead_needs_no_way_to_its_own_published_address() {
    let mut group = Group::planned(2, "", &[]);
    group.begin_alone();
    group.start(1);
    let published = Forwarder::to(&group.members[1].address);
    group.members[1].address = published.address.clone();
    group.take_in(0, 1);
    group.put(0, "first");
    let options: ConnectOptions = group.members[1].listen.parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let connection = Connection::connect(&options.request_timeout(LIMIT)).await.unwrap();
        connection.call("queue.state", ()).await.unwrap();
        // The members stay connected, as behind a NAT that lets no member out and in again.
        published.is_closed.store(true, Ordering::Relaxed);
        let handed = group.order(0, &["transfer", "2"]);
        assert!(handed.status.success(), "{}", text(&handed));
        group.until(1, "it leads", |status| status["leads"] == true);
        connection
            .call("queue.tube.mail:put", [Value::from("second")].as_slice())
            .await
            .expect("the same connection goes on");
    });
    assert_eq!(group.payloads(1).len(), 2);
}
