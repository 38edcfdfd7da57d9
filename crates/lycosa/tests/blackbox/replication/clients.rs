//! The Rust client and `lycosa work` through four changes of the master: planned, after `kill -9`, while the old master is
//! frozen, and while it goes on without replicas.
//!
//! Four instances, `replicas_before_reply = 1`, durable sessions. A producer and a [`Worker`] of the Rust client, and a
//! process `lycosa work`, know all four addresses and nothing else. After each change both workers must run tasks again.
//! At the end:
//!
//! - each task whose put was answered was run or is still in the tube;
//! - a task that a worker has acknowledged is gone;
//! - no task was run twice, since no session has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use lycosa_client::worker::{Event, Job, Settled, StopHandle, Worker};
use lycosa_client::{Client as QueueClient, ConnectOptions, PutOptions};
use rustix::process::Signal;

use super::Result;
use super::pair::{Client, command, info, vclock, wait_for};
use super::switches::{rows, signal, wait_downstream};
use crate::server::{ADMIN_PASSWORD, Peer, Server, Setup};
use crate::value::Value;

/// How long a worker may be without a task after a change. `lycosa work` looks around after 9 s without an answer.
const RETURN_LIMIT: Duration = Duration::from_secs(180);
/// Tasks that each worker has to run between two changes.
const TASKS: usize = 10;
/// Between two puts, so that no server drowns in tasks.
const PAUSE: Duration = Duration::from_millis(5);

pub(super) fn trial() -> Trial {
    Trial::test("replication::clients-follow-the-master", || Ok(clients()?))
}

/// What the producer and the worker of this process have seen.
#[derive(Default)]
struct Account {
    /// Puts that were answered, and after which step of the test.
    stored: BTreeMap<String, String>,
    /// The last step, with the vclocks of the servers that could lead after it.
    step: String,
    /// Runs of each payload.
    runs: BTreeMap<String, usize>,
    /// Payloads whose ack was answered.
    done: BTreeSet<String>,
    session_changes: u64,
}

type Shared = Arc<Mutex<Account>>;

fn lock(shared: &Shared) -> std::sync::MutexGuard<'_, Account> {
    shared.lock().expect("no thread panics holding it")
}

fn setup(master: Option<&Server>) -> Setup {
    let mut options = vec![
        "replication_timeout = 0.2".to_owned(),
        "replication_connect_timeout = 1".to_owned(),
        "replicas_before_reply = 1".to_owned(),
    ];
    let uri = master.map(uri);
    if let Some(uri) = &uri {
        options.push(format!("replication = \"{uri}\""));
        options.push("read_only = true".to_owned());
    }
    let queue = vec![("ttr".to_owned(), 3600.into()), ("in_replicaset".to_owned(), true.into())];
    Setup { options, queue, replicates: uri, ..Setup::default() }
}

fn uri(server: &Server) -> String {
    format!("admin:{}@{}", ADMIN_PASSWORD.replace(' ', "%20"), server.address())
}

/// Payloads of `lycosa work`, one a line for each run.
struct Process {
    child: Child,
    output: PathBuf,
}

impl Process {
    fn start(addresses: &str, folder: &std::path::Path) -> Result<Self> {
        let output = folder.join("runs");
        let script = format!("(cat; echo) >> '{}'", output.display());
        let child = Command::new(env!("CARGO_BIN_EXE_lycosa"))
            .args(["work", "jobs", "--address", addresses, "--request-timeout", "3"])
            .args(["--", "sh", "-c", &script])
            .stdout(Stdio::null())
            .stderr(fs::File::create(folder.join("log")).map_err(|error| error.to_string())?)
            .spawn()
            .map_err(|error| error.to_string())?;
        Ok(Self { child, output })
    }

    fn runs(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.output).unwrap_or_default();
        text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already, which the test says.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A producer and a worker on a thread of their own.
struct InProcess {
    thread: Option<std::thread::JoinHandle<Result<()>>>,
    ends: Arc<AtomicBool>,
    stop: Arc<Mutex<Option<StopHandle>>>,
}

impl InProcess {
    fn start(addresses: String, shared: Shared) -> Self {
        let (ends, stop) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (is_over, handle) = (Arc::clone(&ends), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| error.to_string())?;
            runtime.block_on(produce_and_work(addresses, shared, &is_over, &handle))
        });
        Self { thread: Some(thread), ends, stop }
    }

    fn end(&mut self) -> Result<()> {
        self.ends.store(true, Ordering::SeqCst);
        if let Some(stop) = &*self.stop.lock().expect("no thread panics holding it") {
            stop.finish();
        }
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().map_err(|_| "the Rust client has panicked".to_owned())?
    }
}

async fn produce_and_work(
    addresses: String,
    shared: Shared,
    ends: &AtomicBool,
    handle: &Mutex<Option<StopHandle>>,
) -> Result<()> {
    let mut options = ConnectOptions::new(addresses);
    options.keep_alive = Duration::from_millis(500);
    options.backoff_max = Duration::from_millis(500);
    options.connect_timeout = Duration::from_secs(2);
    options.request_timeout = Duration::from_secs(3);
    let text = |error: lycosa_client::Error| error.to_string();
    let producer = QueueClient::connect(options.clone()).await.map_err(text)?;
    let consumer = QueueClient::connect(options).await.map_err(text)?;
    let (seen, told) = (Arc::clone(&shared), Arc::clone(&shared));
    let worker = Worker::new(consumer.queue().tube("jobs")).jobs(2).on_event(move |event| {
        if let Event::Settled { job, settled: Settled::Done, .. } = event {
            lock(&told).done.insert(payload(job));
        }
    });
    *handle.lock().expect("no thread panics holding it") = Some(worker.stop_handle());
    let working = worker.run(move |job: Job| {
        *lock(&seen).runs.entry(payload(&job)).or_default() += 1;
        async { Ok(()) }
    });
    let tube = producer.queue().tube("jobs");
    let producing = async {
        let mut number = 0;
        while !ends.load(Ordering::SeqCst) {
            let payload = format!("task-{number}");
            number += 1;
            // An error says that it was not stored, or that this is unknown: neither is in the account.
            if tube.put(payload.as_str(), PutOptions::new()).await.is_ok() {
                let mut account = lock(&shared);
                let step = account.step.clone();
                account.stored.insert(payload, step);
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    let (worked, ()) = tokio::join!(working, producing);
    lock(&shared).session_changes = consumer.status().session_changes;
    worked.map(drop).map_err(text)
}

fn payload(job: &Job) -> String {
    job.task.data.as_str().unwrap_or_default().to_owned()
}

fn clients() -> Result<()> {
    let text = |error: std::io::Error| error.to_string();
    let first = Server::start(Peer::Lycosa, setup(None))?;
    let replica = || Server::start(Peer::Lycosa, setup(Some(&first)));
    let servers = [replica()?, replica()?, replica()?];
    wait_followed(&first, 3)?;
    Client::open(&first)?.ask("queue.create_tube", vec![Value::str("jobs"), Value::str("fifo")])?;
    let addresses = std::iter::once(&first).chain(&servers).map(|server| server.address().to_string());
    let addresses = addresses.collect::<Vec<_>>().join(",");
    let folder = tempfile::tempdir().map_err(text)?;
    let shared = Shared::default();
    let mut process = Process::start(&addresses, folder.path())?;
    let mut own = InProcess::start(addresses, Arc::clone(&shared));
    let changed = change(first, servers, &shared, &mut process);
    let ended = own.end();
    let log = || fs::read_to_string(folder.path().join("log")).unwrap_or_default();
    let master = changed.map_err(|error| format!("{error}; `lycosa work` said:\n{}", log()))?;
    ended?;
    check(&master.0, &shared, &process)
}

/// The server with the greatest vclock first: it has everything that was acknowledged.
fn by_clock(servers: Vec<Server>, shared: &Shared) -> Result<Vec<Server>> {
    let mut known = Vec::new();
    for server in servers {
        let clock = vclock(&server)?;
        known.push((clock.iter().map(|pair| pair.1).sum::<i128>(), server));
    }
    known.sort_by_key(|(total, _)| std::cmp::Reverse(*total));
    lock(shared).step = format!("changed, {:?}", known.iter().map(|(total, _)| total).collect::<Vec<_>>());
    Ok(known.into_iter().map(|(_, server)| server).collect())
}

/// The first of these becomes the master, and all further ones follow it.
fn lead(mut servers: Vec<Server>) -> Result<(Server, Vec<Server>)> {
    let mut master = servers.remove(0);
    master.lead()?;
    command(&master, &["promote", "--force"])?;
    for server in &mut servers {
        server.replicate(uri(&master));
        server.reload()?;
    }
    wait_followed(&master, servers.len())?;
    Ok((master, servers))
}

/// Four changes. The last master, and its replica.
fn change(
    mut first: Server,
    servers: [Server; 3],
    shared: &Shared,
    process: &mut Process,
) -> Result<(Server, Server)> {
    progress(shared, process, "at the start")?;

    // Planned.
    let [mut second, mut third, mut fourth] = servers;
    let clock = command(&first, &["demote"])?;
    let clock = clock.split('\'').nth(1).ok_or("demote tells no vclock")?.to_owned();
    // It follows until it has everything.
    command(&second, &["promote", "--after", &clock])?;
    second.lead()?;
    for server in [&mut first, &mut third, &mut fourth] {
        server.replicate(uri(&second));
        server.reload()?;
    }
    wait_followed(&second, 3)?;
    progress(shared, process, "after a planned change")?;

    // Killed: the server with the most rows leads, and all further ones follow.
    second.kill();
    let (master, replicas) = lead(by_clock(vec![first, third, fourth], shared)?)?;
    progress(shared, process, "after a kill")?;

    // Frozen: it goes on when another has taken over, and acknowledges nothing.
    signal(&master, Signal::STOP)?;
    let mut frozen = master;
    let (master, mut replicas) = lead(by_clock(replicas, shared)?)?;
    progress(shared, process, "while the old master is frozen")?;
    signal(&frozen, Signal::CONT)?;
    progress(shared, process, "beside the old master")?;
    frozen.kill();

    // Cut off from its replica alone: it answers, takes writes, and confirms none.
    let (mut old, mut master) = (master, replicas.remove(0));
    master.lead()?;
    wait_downstream(&old, "stopped")?;
    command(&master, &["promote", "--force"])?;
    let last = Server::start(Peer::Lycosa, setup(Some(&master)))?;
    wait_downstream(&master, "follow")?;
    progress(shared, process, "beside a master without replicas")?;
    old.kill();
    Ok((master, last))
}

/// Waits until this number of replicas follow a master.
fn wait_followed(master: &Server, count: usize) -> Result<()> {
    let wanted = "\"downstream\": {\"status\": \"follow\"";
    wait_for("the replicas", || Ok(info(master, "replication")?.to_string().matches(wanted).count() >= count))
}

/// Waits until both workers have run more tasks.
fn progress(shared: &Shared, process: &mut Process, when: &str) -> Result<()> {
    when.clone_into(&mut lock(shared).step);
    let before = (lock(shared).done.len(), process.runs().len());
    let deadline = Instant::now() + RETURN_LIMIT;
    loop {
        let now = (lock(shared).done.len(), process.runs().len());
        if now.0 >= before.0 + TASKS && now.1 >= before.1 + TASKS {
            return Ok(());
        }
        if let Ok(Some(status)) = process.child.try_wait() {
            return Err(format!("{when}: `lycosa work` has ended: {status}"));
        }
        if Instant::now() > deadline {
            return Err(format!(
                "{when}: the Rust client's worker did {} tasks and `lycosa work` {} within {RETURN_LIMIT:?}",
                now.0 - before.0,
                now.1 - before.1
            ));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn check(master: &Server, shared: &Shared, process: &Process) -> Result<()> {
    let account = lock(shared);
    if account.session_changes > 0 {
        return Err(format!("the Rust client lost its session {} times", account.session_changes));
    }
    // First: `lycosa work` goes on, and a task that is gone by now has been run by now.
    let there: BTreeSet<String> =
        rows(master, "jobs")?.iter().filter_map(|row| row.get(2)?.as_text()).collect();
    let mut runs = account.runs.clone();
    for line in process.runs() {
        *runs.entry(line).or_default() += 1;
    }
    if let Some((payload, count)) = runs.iter().find(|(_, count)| **count > 1) {
        return Err(format!("{payload} was run {count} times"));
    }
    let is_lost = |payload: &String| !runs.contains_key(payload) && !there.contains(payload);
    let lost: Vec<_> = account.stored.iter().filter(|(payload, _)| is_lost(payload)).collect();
    if !lost.is_empty() {
        let log = master.log();
        return Err(format!(
            "acknowledged, never run, and not there: {lost:?}; the last master says:\n{log}"
        ));
    }
    if let Some(back) = account.done.iter().find(|payload| there.contains(*payload)) {
        return Err(format!("{back} was finished and is there"));
    }
    Ok(())
}
