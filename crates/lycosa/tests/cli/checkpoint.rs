//! Checkpoints of the built binary: under load, killed in the middle, within the bound of the disk, and felt by no client.
//!
//! | variable | what it says | default |
//! |---|---|---|
//! | `LYCOSA_TEST_CHECKPOINT_ROUNDS` | how often the server is killed under load | 6 |
//! | `LYCOSA_TEST_CHECKPOINT_TASKS` | waiting tasks while latencies are measured | 20000 |
//! | `LYCOSA_TEST_CHECKPOINT_WAL_MODE` | the durability while latencies are measured | fsync |
//!
//! The measurement is printed and never judged: `cargo test --release -p lycosa --test cli -- --nocapture longest_pause`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lycosa_client::{
    Client, ConnectOptions, Connection, Error, Link, PutOptions, Task, Tube, TubeOptions, TubeType, Value,
};
use lycosa_iproto::error::ErrorCode;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::addresses::free_address;

const START_LIMIT: Duration = Duration::from_secs(180);
const REPLY_LIMIT: Duration = Duration::from_secs(60);

/// A server process with a data folder of its own.
struct Server {
    folder: TempDir,
    address: String,
    options: Vec<String>,
    child: Option<Child>,
}

impl Server {
    fn start(options: &[&str]) -> Server {
        let mut server = Server {
            folder: tempfile::tempdir().expect("a temporary folder"),
            address: free_address().to_string(),
            options: options.iter().map(|&option| option.to_owned()).collect(),
            child: None,
        };
        server.launch();
        server
    }

    fn launch(&mut self) {
        let log = File::options().create(true).append(true).open(self.folder.path().join("log"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_lycosa"));
        command.args(["serve", "--listen", &self.address, "--data-dir", "data"]).args(&self.options);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LYCOSA_"))
        {
            command.env_remove(name);
        }
        command.current_dir(self.folder.path()).stdin(Stdio::null()).stdout(Stdio::null());
        self.child = Some(command.stderr(log.expect("a log")).spawn().expect("the binary starts"));
        let deadline = Instant::now() + START_LIMIT;
        let runtime = runtime();
        while runtime.block_on(Connection::connect(&self.connect_options())).is_err() {
            assert!(Instant::now() < deadline, "no server: {}", self.log());
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn connect_options(&self) -> ConnectOptions {
        ConnectOptions::new(&self.address).request_timeout(REPLY_LIMIT)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("it runs");
            child.wait().expect("it ends");
        }
    }

    fn stop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
        let status = child.wait().expect("it ends");
        assert!(status.success(), "{status}: {}", self.log());
    }

    /// A connection as administrator.
    fn admin(&self, runtime: &Runtime) -> Connection {
        let path = self.data().join(lycosa_server::ADMIN_SOCKET);
        runtime.block_on(async {
            let stream = tokio::net::UnixStream::connect(path).await.expect("the administrator's socket");
            Connection::over(stream, &self.connect_options()).await.expect("a greeting")
        })
    }

    /// Names and sizes of the files with that suffix.
    fn files(&self, suffix: &str) -> BTreeMap<String, u64> {
        let mut files = BTreeMap::new();
        for entry in std::fs::read_dir(self.data()).expect("the data folder").flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            // A file may be gone between the two looks.
            if let (true, Ok(meta)) = (name.ends_with(suffix), entry.metadata()) {
                files.insert(name, meta.len());
            }
        }
        files
    }

    fn data_bytes(&self) -> u64 {
        [".snap", ".xlog", ".inprogress"].iter().flat_map(|suffix| self.files(suffix).into_values()).sum()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn number_from(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

/// CALL `box.snapshot`. False if another one is under way.
async fn snapshot(admin: &Connection) -> Result<bool, Error> {
    match admin.call("box.snapshot", ()).await.and_then(|reply| reply.values()) {
        Ok(values) => {
            assert_eq!(values, [Value::from("ok")]);
            Ok(true)
        }
        Err(error) if error.code() == Some(ErrorCode::CheckpointInProgress) => Ok(false),
        Err(error) => Err(error),
    }
}

async fn checkpoint_info(admin: &Connection) -> Value {
    let info = admin.call("box.info", ()).await.and_then(|reply| reply.values()).expect("box.info");
    info[0].get("checkpoint").expect("checkpoints").clone()
}

fn number(info: &Value, name: &str) -> u64 {
    info.get(name).and_then(Value::as_u64).unwrap_or_else(|| panic!("{name} in {info}"))
}

/// What clients were told: payloads that were put, and ids that were acknowledged.
#[derive(Default)]
struct Account {
    here: BTreeMap<u64, String>,
    perhaps_put: BTreeSet<String>,
    perhaps_gone: BTreeMap<u64, String>,
    gone: BTreeSet<u64>,
}

impl Account {
    fn has_put(&mut self, id: u64, payload: String) {
        self.perhaps_put.remove(&payload);
        // Another client may have finished it before this reply was read.
        if !self.gone.contains(&id) && !self.perhaps_gone.contains_key(&id) {
            self.here.insert(id, payload);
        }
    }

    fn is_finishing(&mut self, id: u64, payload: String) {
        self.here.remove(&id);
        self.perhaps_put.remove(&payload);
        self.perhaps_gone.insert(id, payload);
    }

    fn has_finished(&mut self, id: u64) {
        self.perhaps_gone.remove(&id);
        self.gone.insert(id);
    }
}

/// Puts two tasks and finishes one, again and again, until the server is gone.
async fn work(tube: Tube, name: String, account: Arc<Mutex<Account>>) {
    let entered = || account.lock().expect("no worker panics");
    for count in 0_u64.. {
        for half in 0..2 {
            let payload = format!("{name}.{count}.{half} {}", "x".repeat(200));
            entered().perhaps_put.insert(payload.clone());
            let Ok(task) = tube.put(payload.as_str(), PutOptions::new()).await else { return };
            entered().has_put(task.id, payload);
        }
        let Ok(Some(Task { id, data, .. })) = tube.take(None).await else { return };
        entered().is_finishing(id, data.as_str().expect("text").to_owned());
        if tube.ack(id).await.is_err() {
            return;
        }
        entered().has_finished(id);
    }
}

/// Closes the client once its connection ends. A call that begins later would wait for another connection, and the server is
/// started again only when all workers have returned.
async fn end_with_connection(client: Client) {
    let mut status = client.watch();
    while status.current().link == Link::Connected {
        status.changed().await;
    }
    client.close();
}

fn load(server: &Server, round: u64, account: &Arc<Mutex<Account>>) -> thread::JoinHandle<()> {
    let (options, account) = (server.connect_options(), Arc::clone(account));
    thread::spawn(move || {
        runtime().block_on(async {
            let client = Client::connect(options).await.expect("a connection");
            let tube = client.queue().tube("t");
            let mut workers = JoinSet::new();
            for worker in 0..16 {
                workers.spawn(work(tube.clone(), format!("{round}.{worker}"), Arc::clone(&account)));
            }
            workers.spawn(end_with_connection(client));
            workers.join_all().await;
        });
    })
}

/// Every task that must exist by the account exists, and no task that must be gone.
fn verify(server: &Server, account: &mut Account) {
    let runtime = runtime();
    let admin = server.admin(&runtime);
    let space = runtime.block_on(admin.select(281, 2, 0, vec![Value::from("t")], 0, 1)).expect("the space");
    let space = space.values().expect("a row")[0].as_array().expect("a row")[0].as_u64().expect("its id");
    let rows = runtime.block_on(admin.select(space as u32, 0, 2, (), 0, u32::MAX)).expect("tasks");
    let mut found = BTreeMap::new();
    for row in rows.values().expect("rows") {
        let fields = row.as_array().expect("a row");
        let (id, payload) = (fields[0].as_u64(), fields[2].as_str());
        assert_eq!(fields[1].as_str(), Some("r"), "tasks of gone connections are ready");
        found.insert(id.expect("an id"), payload.expect("text").to_owned());
    }
    for (id, payload) in &account.here {
        assert_eq!(found.get(id), Some(payload), "task {id} is lost");
    }
    for (id, payload) in &found {
        assert!(!account.gone.contains(id), "task {id} was finished and is back");
        let is_known = account.here.contains_key(id)
            || account.perhaps_gone.get(id) == Some(payload)
            || account.perhaps_put.contains(payload);
        assert!(is_known, "nobody has put task {id}: {payload}");
    }
    account.here = found;
    account.perhaps_gone.clear();
    account.perhaps_put.clear();
}

#[test]
fn nothing_is_lost_by_kills_in_the_middle_of_checkpoints() {
    let mut server = Server::start(&["--checkpoint-wal-threshold", "256KiB", "--wal-max-size", "100KiB"]);
    runtime().block_on(async {
        let client = Client::connect(server.connect_options()).await.expect("a connection");
        client.queue().create_tube("t", TubeType::Fifo, TubeOptions::new()).await.expect("a tube");
    });
    let rounds = number_from("LYCOSA_TEST_CHECKPOINT_ROUNDS", 6);
    let account = Arc::new(Mutex::new(Account::default()));
    let mut snapshots = 0;
    for round in 1..=rounds {
        let load = load(&server, round, &account);
        let runtime = runtime();
        let admin = server.admin(&runtime);
        let kill_at = Instant::now() + Duration::from_millis(150 + round * 137 % 450);
        let before = snapshots;
        while Instant::now() < kill_at || snapshots < before + 2 {
            snapshots += u64::from(runtime.block_on(snapshot(&admin)).expect("a snapshot"));
            if round % 2 == 0 {
                thread::sleep(Duration::from_millis(3));
            }
        }
        if round % 3 == 0 {
            // In the middle of one for sure.
            let _ = runtime.block_on(async {
                tokio::time::timeout(Duration::from_millis(round % 5), snapshot(&admin)).await
            });
        }
        server.kill();
        load.join().expect("no worker panicked");
        server.launch();
        verify(&server, &mut account.lock().expect("no worker panicked"));
        wait_complete(&server);
        assert!(server.files(".snap").len() <= 3, "{:?}", server.files(".snap"));
    }
    let account = account.lock().expect("no worker panicked");
    println!(
        "{rounds} kills, {snapshots} snapshots, {} tasks finished, {} left",
        account.gone.len(),
        account.here.len()
    );
    server.stop();
    server.launch();
}

/// The start removes left-overs; the files of a later checkpoint exist only while it runs.
fn wait_complete(server: &Server) {
    let deadline = Instant::now() + START_LIMIT;
    while !server.files(".inprogress").is_empty() {
        assert!(Instant::now() < deadline, "left over: {:?}", server.files(".inprogress"));
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn files_keep_to_their_bound_whatever_the_work_looks_like() {
    let threshold = 512_u64 << 10;
    let server = Server::start(&[
        "--checkpoint-wal-threshold",
        "512KiB",
        "--wal-max-size",
        "100KiB",
        "--wal-mode",
        "write",
    ]);
    let (runtime, done) = (runtime(), Arc::new(AtomicBool::new(false)));
    let admin = server.admin(&runtime);
    let tube = runtime.block_on(async {
        let client = Client::connect(server.connect_options()).await.expect("a connection");
        let queue = client.queue();
        let tube = queue.create_tube("t", TubeType::FifoTtl, TubeOptions::new()).await.expect("a tube");
        tube.put("ancient", PutOptions::new()).await.expect("a task");
        let ancient = tube.take(None).await.expect("an answer").expect("a task");
        ancient.bury().await.expect("it is ours");
        (client, tube)
    });
    // Tasks that are released with a delay for ever. On a machine where a checkpoint takes long the load pauses, or it
    // would journal more meanwhile than the bound allows for.
    let is_held = Arc::new(AtomicBool::new(false));
    let (options, is_done, is_paused) = (server.connect_options(), Arc::clone(&done), Arc::clone(&is_held));
    let churn = thread::spawn(move || {
        self::runtime().block_on(async {
            let client = Client::connect(options).await.expect("a connection");
            let mut workers = JoinSet::new();
            for number in 0..32 {
                let (tube, is_done) = (client.queue().tube("t"), Arc::clone(&is_done));
                let is_paused = Arc::clone(&is_paused);
                workers.spawn(async move {
                    let size = if number == 0 { 20_000 } else { 500 };
                    tube.put("y".repeat(size), PutOptions::new()).await.expect("a task");
                    while !is_done.load(Ordering::Relaxed) {
                        if is_paused.load(Ordering::Relaxed) {
                            tokio::time::sleep(Duration::from_millis(5)).await;
                            continue;
                        }
                        if let Some(task) = tube.take(Some(Duration::from_secs(1))).await.expect("an answer")
                        {
                            task.release(Some(Duration::from_millis(1))).await.expect("it is ours");
                        }
                    }
                });
            }
            workers.join_all().await;
        });
    });
    let (mut largest, mut checkpoints, mut last) = (0, 0, Value::Nil);
    let mut running_since = None;
    let ends = Instant::now() + REPLY_LIMIT;
    while checkpoints < 4 && Instant::now() < ends {
        thread::sleep(Duration::from_millis(5));
        last = runtime.block_on(checkpoint_info(&admin));
        checkpoints = number(&last, "count");
        let is_running = last.get("state").and_then(Value::as_str) == Some("running");
        running_since = if is_running { running_since.or(Some(Instant::now())) } else { None };
        let is_slow = running_since.is_some_and(|since| since.elapsed() > Duration::from_millis(100));
        is_held.store(is_slow, Ordering::Relaxed);
        let (used, bound) = (server.data_bytes(), number(&last, "disk_bound"));
        assert!(used <= bound, "{used} bytes of {bound}: {last}");
        largest = largest.max(used);
    }
    done.store(true, Ordering::Relaxed);
    churn.join().expect("no worker panicked");
    println!("{checkpoints} checkpoints; at most {largest} bytes of {}", number(&last, "disk_bound"));
    assert!(checkpoints >= 4, "{last}");
    assert!(number(&last, "disk_bound") < 5 * threshold && number(&last, "disk_excesses") == 0, "{last}");
    let (_client, tube) = tube;
    let ancient = runtime.block_on(tube.peek(0)).expect("the ancient task is there");
    assert_eq!(ancient.data.as_str(), Some("ancient"));
}

#[test]
fn without_a_journal_the_last_checkpoint_is_taken_at_the_end() {
    let mut server = Server::start(&["--wal-mode", "none"]);
    let put = |server: &Server, payload: &str| {
        runtime().block_on(async {
            let client = Client::connect(server.connect_options()).await.expect("a connection");
            let options = TubeOptions::new().if_not_exists();
            let tube = client.queue().create_tube("t", TubeType::Fifo, options).await.expect("a tube");
            tube.put(payload, PutOptions::new()).await.expect("a task").id
        })
    };
    assert_eq!(put(&server, "first"), 0);
    server.stop();
    server.launch();
    assert_eq!(put(&server, "second"), 1);
    {
        let runtime = runtime();
        let admin = server.admin(&runtime);
        assert!(runtime.block_on(snapshot(&admin)).expect("a snapshot"));
    }
    server.kill();
    server.launch();
    assert_eq!(put(&server, "third"), 2);
    assert!(server.files(".xlog").is_empty());
}

#[test]
fn the_command_waits_for_the_snapshot_and_says_what_it_was() {
    let server = Server::start(&[]);
    let before = server.files(".snap");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lycosa"));
        let output = command.arg("checkpoint").args(arguments).current_dir(server.folder.path()).output();
        let output = output.expect("the binary runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let said = run(&[]);
    assert!(said.starts_with("snapshot of ") && said.contains("requests were held for"), "{said}");
    assert_eq!(server.files(".snap").len(), before.len() + 1);
    let json: serde_json::Value = serde_json::from_str(&run(&["--json"])).expect("JSON");
    assert_eq!(json["checkpoint"]["count"], 1, "nothing has changed since");
}

/// A hundred characters, half of them the same for all tasks and half of them hexadecimal digits of a hash.
fn payload(number: u64) -> String {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let digits: String = (0..3)
        .map(|_| {
            state = (state ^ state >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            format!("{:016x}", state ^ state >> 32)
        })
        .collect();
    format!("{{\"to\": \"somebody@example.org\", \"subject\": \"{digits}\"}}  ")
}

#[test]
fn the_longest_pause_is_reported() {
    let tasks = number_from("LYCOSA_TEST_CHECKPOINT_TASKS", 20_000);
    let memory = format!("{}MiB", 256 + tasks / 4000);
    let mode = std::env::var("LYCOSA_TEST_CHECKPOINT_WAL_MODE").unwrap_or_else(|_| "fsync".to_owned());
    let options = ["--memory-limit", &memory, "--checkpoint-interval", "0", "--wal-mode", &mode];
    let server = Server::start(&options);
    let runtime = runtime();
    let tube = runtime.block_on(async {
        let client = Client::connect(server.connect_options()).await.expect("a connection");
        let tube = client.queue().create_tube("t", TubeType::Fifo, TubeOptions::new()).await.expect("a tube");
        let next = Arc::new(AtomicU64::new(0));
        let mut fillers = JoinSet::new();
        for _ in 0..256 {
            let (tube, next) = (tube.clone(), Arc::clone(&next));
            fillers.spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= tasks {
                        break;
                    }
                    tube.put(payload(number), PutOptions::new()).await.expect("a task");
                }
            });
        }
        fillers.join_all().await;
        (client, tube)
    });
    let admin = server.admin(&runtime);
    let quiet = measure(&server, None, tasks);
    let stop = Arc::new(AtomicBool::new(false));
    let busy = measure(&server, Some(Arc::clone(&stop)), tasks);
    let info = runtime.block_on(checkpoint_info(&admin));
    let last = info.get("last").expect("a checkpoint");
    println!("{tasks} waiting tasks, put + take + ack of 100 bytes, 32 at a time, wal_mode {mode}");
    println!("  without checkpoints: {quiet}");
    println!("  with checkpoints:    {busy}");
    println!(
        "  {} checkpoints; the last one: {} rows, {} bytes, {:.2} s; longest step {} us",
        number(&info, "count"),
        number(last, "rows"),
        number(last, "bytes"),
        number(last, "duration_us") as f64 / 1e6,
        number(&info, "longest_pause_us")
    );
    assert!(number(&info, "count") > 0 && number(&info, "longest_pause_us") > 0);
    drop(tube);
}

/// Latencies of requests.
struct Latencies {
    sorted: Vec<Duration>,
    span: Duration,
}

impl std::fmt::Display for Latencies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at = |share: f64| self.sorted[((self.sorted.len() - 1) as f64 * share) as usize];
        write!(
            f,
            "{:7.0} requests/s, p50 {:?}, p99 {:?}, p99.9 {:?}, longest {:?}",
            self.sorted.len() as f64 / self.span.as_secs_f64(),
            at(0.5),
            at(0.99),
            at(0.999),
            at(1.0)
        )
    }
}

/// Runs load for a while; with `until`, beside one checkpoint after the other.
fn measure(server: &Server, until: Option<Arc<AtomicBool>>, tasks: u64) -> Latencies {
    let span = Duration::from_millis(500 + tasks / 2000 * 2);
    let snapshots = until.clone().map(|stop| {
        let (options, path) = (server.connect_options(), server.data().join(lycosa_server::ADMIN_SOCKET));
        thread::spawn(move || {
            runtime().block_on(async {
                let stream = tokio::net::UnixStream::connect(path).await.expect("the administrator's socket");
                let admin = Connection::over(stream, &options).await.expect("a greeting");
                while !stop.load(Ordering::Relaxed) {
                    snapshot(&admin).await.expect("a snapshot");
                }
            });
        })
    });
    let began = Instant::now();
    let mut sorted = runtime().block_on(async {
        let client = Client::connect(server.connect_options()).await.expect("a connection");
        let mut workers = JoinSet::new();
        for worker in 0..32 {
            let tube = client.queue().tube("t");
            workers.spawn(async move {
                let mut latencies = Vec::new();
                let mut since = Instant::now();
                let mut lap = |latencies: &mut Vec<Duration>| {
                    let now = Instant::now();
                    latencies.push(now - std::mem::replace(&mut since, now));
                };
                for number in 0.. {
                    if began.elapsed() >= span {
                        break;
                    }
                    tube.put(payload(worker << 32 | number), PutOptions::new()).await.expect("a task");
                    lap(&mut latencies);
                    let task = tube.take(None).await.expect("an answer").expect("a task");
                    lap(&mut latencies);
                    task.ack().await.expect("it is ours");
                    lap(&mut latencies);
                }
                latencies
            });
        }
        workers.join_all().await.concat()
    });
    let span = began.elapsed();
    if let (Some(stop), Some(thread)) = (until, snapshots) {
        stop.store(true, Ordering::Relaxed);
        thread.join().expect("the snapshots succeed");
    }
    sorted.sort_unstable();
    Latencies { sorted, span }
}
