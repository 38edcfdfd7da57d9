//! Changes of the master under load, with real processes: planned, after `kill -9`, and while the old master is frozen.
//!
//! A pair runs with `replicas_before_reply = 1`. Workers put, take and acknowledge tasks in sessions of their own and keep an
//! account. The replica reaches its master through a proxy that cuts the connection or lets it hang. After each change both
//! instances must hold the same, and at the end the account must fit the data:
//!
//! - acknowledged tasks exist, and finished ones do not;
//! - no task was handed out twice;
//! - a session lives through every change: its owner finishes its tasks at the new master;
//! - a master whose replica has left it acknowledges nothing, so one that comes back from a freeze misleads no client.
//!
//! The same with each instance in a network namespace ([`super::namespaces`]): there links go down, packets of one direction
//! vanish, a link is slow, clocks jump, a master is cut off and comes back, and one dies without a word to its replica.
//!
//! `LYCOSA_TEST_SWITCHES` says how many changes there are; the run in CI has [`SWITCHES`]. `LYCOSA_TEST_SEED` is a number that chooses
//! other disturbances. An old master that did not hand over
//! may have rows that no other instance has, so its folder is not used again: a new instance joins in its place.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use libtest_mimic::{Completion, Trial};
use rustix::process::{Pid, Signal, kill_process};

use super::Result;
use super::namespaces::{Bridge, Host};
use super::pair::{Client, command, compare, info, vclock, wait_for};
use crate::connection::{self, Connection, key, kind};
use crate::server::{ADMIN_PASSWORD, Peer, Server, Setup};
use crate::value::Value;

/// Changes of the master in a run of all tests.
const SWITCHES: usize = 6;
const WORKERS: usize = 3;
/// How long a reply may take while nothing is wrong.
const REPLY_LIMIT: Duration = Duration::from_secs(60);
/// Between two looks whether the master has changed.
const LOOK: Duration = Duration::from_millis(50);
/// Tasks that a worker holds before it finishes the oldest.
const HELD: usize = 4;

pub(super) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("replication::switches-under-load", || Ok(switches(&Net::Loopback)?)),
        Trial::ignorable_test("replication::switches-in-namespaces", || match Bridge::new() {
            Ok(bridge) => switches(&Net::Bridge(bridge)).map(|()| Completion::Completed).map_err(Into::into),
            Err(reason) => Ok(Completion::ignored_with(format!("no network namespaces: {reason}"))),
        }),
    ]
}

/// Where the instances of a run are.
enum Net {
    /// On the loopback interface, with a proxy between a replica and its master.
    Loopback,
    /// Each in a namespace.
    Bridge(Bridge),
}

impl Net {
    /// A new instance, a replica of `master` if there is one.
    fn start(&self, master: Option<&Server>) -> Result<(Site, Line)> {
        let line = match (self, master) {
            (Self::Loopback, Some(master)) => Line::Proxy(Proxy::new(master.address())?),
            _ => Line::Direct,
        };
        let host = match self {
            Self::Loopback => None,
            Self::Bridge(bridge) => Some(bridge.host()?),
        };
        let mut setup = setup(master.map(|master| line.uri(master)));
        setup.place = host.as_ref().map(|host| host.place.clone());
        setup.environment = host.as_ref().map(|host| host.environment()).unwrap_or_default();
        let server = Server::start(Peer::Lycosa, setup)?;
        Ok((Site { pid: server.pid(), server, host }, line))
    }

    /// How a replica reaches another master.
    fn line(&self, master: &Server) -> Result<Line> {
        Ok(match self {
            Self::Loopback => Line::Proxy(Proxy::new(master.address())?),
            Self::Bridge(_) => Line::Direct,
        })
    }

    /// The changes of the master that can happen here.
    fn changes(&self) -> &'static [Change] {
        use Change::{CutOff, Frozen, Killed, KilledSilently, Planned};
        match self {
            Self::Loopback => &[Planned, Killed, Frozen],
            Self::Bridge(_) => &[Planned, Killed, Frozen, CutOff, KilledSilently, Planned],
        }
    }
}

/// An instance and its host.
struct Site {
    // Before its namespace goes.
    server: Server,
    host: Option<Arc<Host>>,
    /// The process, while it lives and after.
    pid: Option<u32>,
}

/// The link between a replica and its master.
enum Line {
    Proxy(Proxy),
    Direct,
}

impl Line {
    fn uri(&self, master: &Server) -> String {
        let address = match self {
            Self::Proxy(proxy) => proxy.address,
            Self::Direct => master.address(),
        };
        format!("admin:{}@{address}", ADMIN_PASSWORD.replace(' ', "%20"))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let pid = self.server.pid().or(self.pid);
        self.server.kill();
        pid.into_iter().for_each(super::namespaces::forget_clock);
    }
}

/// How the master changes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Change {
    Planned,
    Killed,
    /// SIGSTOP, and SIGCONT when another one is the master.
    Frozen,
    /// No client reaches it until another one is the master.
    CutOff,
    /// Its connections stay half open at their other ends.
    KilledSilently,
}

/// A TCP proxy in front of a master's port.
struct Proxy {
    address: SocketAddr,
    state: Arc<ProxyState>,
    accepts: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct ProxyState {
    /// Nothing passes, and no side gets an error.
    frozen: AtomicBool,
    /// Connections of an earlier epoch are closed.
    epoch: AtomicUsize,
    ends: AtomicBool,
}

impl Proxy {
    fn new(to: SocketAddr) -> Result<Self> {
        let text = |error: std::io::Error| error.to_string();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(text)?;
        listener.set_nonblocking(true).map_err(text)?;
        let address = listener.local_addr().map_err(text)?;
        let state = Arc::new(ProxyState::default());
        let shared = state.clone();
        let accepts = thread::spawn(move || {
            while !shared.ends.load(Ordering::SeqCst) {
                let Ok((from, _)) = listener.accept() else {
                    thread::sleep(Duration::from_millis(5));
                    continue;
                };
                let Ok(onward) = TcpStream::connect(to) else { continue };
                let epoch = shared.epoch.load(Ordering::SeqCst);
                for (from, to) in [(&from, &onward), (&onward, &from)] {
                    if let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) {
                        let shared = shared.clone();
                        thread::spawn(move || shared.pump(from, to, epoch));
                    }
                }
            }
        });
        Ok(Self { address, state, accepts: Some(accepts) })
    }

    fn cut(&self) {
        self.state.epoch.fetch_add(1, Ordering::SeqCst);
    }

    fn freeze(&self, frozen: bool) {
        self.state.frozen.store(frozen, Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.ends.store(true, Ordering::SeqCst);
        self.cut();
        self.accepts.take().map(JoinHandle::join);
    }
}

impl ProxyState {
    fn pump(&self, mut from: TcpStream, mut to: TcpStream, epoch: usize) {
        let prepared = from.set_nonblocking(false).and_then(|()| from.set_read_timeout(Some(LOOK)));
        let mut bytes = [0; 16 << 10];
        while prepared.is_ok() && self.epoch.load(Ordering::SeqCst) == epoch {
            if self.frozen.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(5));
                continue;
            }
            match from.read(&mut bytes) {
                Ok(0) => break,
                Ok(count) if to.write_all(&bytes[..count]).is_ok() => {}
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                    ) => {}
                _ => break,
            }
        }
        for stream in [from, to] {
            // The other pump may have closed it.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// What all workers know.
struct Shared {
    master: Mutex<SocketAddr>,
    /// Grows with each change of the master: calls that wait are given up.
    generation: AtomicU64,
    pauses: AtomicBool,
    paused: AtomicUsize,
    ends: AtomicBool,
    /// Puts that were acknowledged.
    done: AtomicU64,
    /// Who was handed which payload.
    handed: Mutex<HashMap<String, usize>>,
    violation: Mutex<Option<String>>,
}

impl Shared {
    fn violate(&self, text: String) {
        self.violation.lock().expect("no thread panics holding it").get_or_insert(text);
    }

    fn check(&self) -> Result<()> {
        match &*self.violation.lock().expect("no thread panics holding it") {
            Some(text) => Err(text.clone()),
            None => Ok(()),
        }
    }

    fn move_to(&self, address: SocketAddr) {
        *self.master.lock().expect("no thread panics holding it") = address;
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// Waits until the workers have acknowledged this number of further puts.
    fn work(&self, puts: u64) -> Result<()> {
        let goal = self.done.load(Ordering::SeqCst) + puts;
        wait_for("the workers' progress", || {
            self.check()?;
            Ok(self.done.load(Ordering::SeqCst) >= goal)
        })
    }
}

/// A worker and its account.
struct Worker {
    number: usize,
    shared: Arc<Shared>,
    connection: Option<(Connection, u64)>,
    session: Option<Value>,
    puts: u64,
    held: Vec<(Value, String)>,
    attempted: BTreeSet<String>,
    stored: BTreeSet<String>,
    finished: BTreeSet<String>,
    /// Whose ack was not answered.
    perhaps_finished: BTreeSet<String>,
}

impl Worker {
    fn new(number: usize, shared: Arc<Shared>) -> Self {
        Self {
            number,
            shared,
            connection: None,
            session: None,
            puts: 0,
            held: Vec::new(),
            attempted: BTreeSet::new(),
            stored: BTreeSet::new(),
            finished: BTreeSet::new(),
            perhaps_finished: BTreeSet::new(),
        }
    }

    fn run(mut self) -> Self {
        while !self.shared.ends.load(Ordering::SeqCst) {
            if self.shared.pauses.load(Ordering::SeqCst) {
                self.shared.paused.fetch_add(1, Ordering::SeqCst);
                while self.shared.pauses.load(Ordering::SeqCst) && !self.shared.ends.load(Ordering::SeqCst) {
                    thread::sleep(Duration::from_millis(5));
                }
                self.shared.paused.fetch_sub(1, Ordering::SeqCst);
            }
            if self.step().is_none() {
                self.connection = None;
                thread::sleep(Duration::from_millis(10));
            }
        }
        self
    }

    /// A call's values. None: its outcome is not known, or the server is no master; the connection is of no use.
    fn ask(&mut self, name: &str, arguments: Vec<Value>) -> Option<Vec<Value>> {
        let (connection, generation) = self.connection.as_mut()?;
        let sync = connection.send(kind::CALL, &connection::call(name, arguments)).ok()?;
        let began = Instant::now();
        loop {
            if let Ok(reply) = connection.reply(sync, Instant::now() + LOOK) {
                if reply.error == 0 {
                    let values = reply.data().as_array().map(<[Value]>::to_vec)?;
                    return (values != [Value::Nil]).then_some(values);
                }
                if reply.error != 7 {
                    self.shared.violate(format!("{name} of worker {}: {}", self.number, reply.describe()));
                }
                return None;
            }
            let is_old = self.shared.generation.load(Ordering::SeqCst) != *generation;
            if is_old
                || self.shared.ends.load(Ordering::SeqCst)
                || connection.wait_closed(Instant::now()).is_ok()
            {
                return None;
            }
            if began.elapsed() > REPLY_LIMIT {
                self.shared.violate(format!("{name} was not answered for {REPLY_LIMIT:?}"));
                return None;
            }
        }
    }

    fn connect(&mut self) -> Option<()> {
        let generation = self.shared.generation.load(Ordering::SeqCst);
        let address = *self.shared.master.lock().expect("no thread panics holding it");
        self.connection = Some((Connection::open(address).ok()?, generation));
        let known: Vec<Value> = self.session.iter().cloned().collect();
        let session = self.ask("queue.identify", known)?;
        self.session = session.first().cloned();
        Some(())
    }

    fn step(&mut self) -> Option<()> {
        if self.connection.is_none() {
            self.connect()?;
        }
        let payload = format!("{}-{}", self.number, self.puts);
        self.puts += 1;
        self.attempted.insert(payload.clone());
        self.ask("queue.tube.jobs:put", vec![Value::str(&payload)])?;
        self.stored.insert(payload);
        self.shared.done.fetch_add(1, Ordering::SeqCst);
        let taken = self.ask("queue.tube.jobs:take", vec![Value::Int(0)])?;
        if let Some([id, _, payload]) = taken.first().and_then(Value::as_array) {
            let payload = payload.as_text().unwrap_or_default();
            let mut handed = self.shared.handed.lock().expect("no thread panics holding it");
            if let Some(other) = handed.insert(payload.clone(), self.number) {
                self.shared
                    .violate(format!("{payload} was handed to worker {other} and to worker {}", self.number));
            }
            drop(handed);
            self.held.push((id.clone(), payload));
        }
        if self.held.len() > HELD {
            let (id, payload) = self.held.remove(0);
            // Until it is answered it may have happened or not.
            self.perhaps_finished.insert(payload.clone());
            self.ask("queue.tube.jobs:ack", vec![id])?;
            self.perhaps_finished.remove(&payload);
            self.finished.insert(payload);
        }
        Some(())
    }
}

/// xorshift64
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn setup(uri: Option<String>) -> Setup {
    let mut options = vec!["replication_timeout = 0.2".to_owned(), "replicas_before_reply = 1".to_owned()];
    if let Some(uri) = &uri {
        options.push(format!("replication = \"{uri}\""));
        options.push("read_only = true".to_owned());
    }
    let queue = vec![("ttr".to_owned(), 600.into()), ("in_replicaset".to_owned(), true.into())];
    Setup { options, queue, replicates: uri, ..Setup::default() }
}

pub(super) fn signal(server: &Server, signal: Signal) -> Result<()> {
    let pid = server.pid().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    kill_process(pid.ok_or("the server does not run")?, signal).map_err(|error| error.to_string())
}

/// Waits until the master says that of a replica.
pub(super) fn wait_downstream(master: &Server, status: &str) -> Result<()> {
    let wanted = format!("\"downstream\": {{\"status\": \"{status}\"");
    wait_for(&wanted, || Ok(info(master, "replication")?.to_string().contains(&wanted)))
}

/// A replica in the place of an instance that does not come back.
fn join(net: &Net, master: &Server, gone: Option<i128>) -> Result<(Site, Line)> {
    let replica = net.start(Some(master))?;
    wait_downstream(master, "follow")?;
    if let Some(number) = gone {
        let key = vec![(key::KEY, Value::Array(vec![Value::Int(number)]))];
        Client::open(master)?.send(kind::DELETE, 320, key)?;
    }
    Ok(replica)
}

fn switches(net: &Net) -> Result<()> {
    let count = std::env::var("LYCOSA_TEST_SWITCHES").ok().and_then(|count| count.parse().ok());
    let count: usize = count.unwrap_or(SWITCHES);
    let seed = std::env::var("LYCOSA_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0_u64);
    let mut random = Random(0x5157_17c4 ^ seed);
    let (mut master, _) = net.start(None)?;
    let (mut replica, mut line) = join(net, &master.server, None)?;
    Client::open(&master.server)?.ask("queue.create_tube", vec![Value::str("jobs"), Value::str("fifo")])?;
    let shared = Arc::new(Shared {
        master: Mutex::new(master.server.address()),
        generation: AtomicU64::new(0),
        pauses: AtomicBool::new(false),
        paused: AtomicUsize::new(0),
        ends: AtomicBool::new(false),
        done: AtomicU64::new(0),
        handed: Mutex::new(HashMap::new()),
        violation: Mutex::new(None),
    });
    let workers: Vec<_> = (0..WORKERS)
        .map(|number| {
            let worker = Worker::new(number, shared.clone());
            thread::spawn(move || worker.run())
        })
        .collect();
    let mut change = || -> Result<()> {
        for number in 0..count {
            let what = net.changes()[number % net.changes().len()];
            let told = |error: String| format!("change {number} ({what:?}): {error}");
            shared.work(20).map_err(told)?;
            disturb(&master, &replica, &line, &shared, &mut random).map_err(told)?;
            shared.work(20).map_err(told)?;
            replace(net, what, &mut master, &mut replica, &mut line, &shared).map_err(told)?;
            shared.work(20).map_err(told)?;
            shared.pauses.store(true, Ordering::SeqCst);
            wait_for("the pause", || Ok(shared.paused.load(Ordering::SeqCst) == WORKERS)).map_err(told)?;
            compare(&master.server, &mut replica.server).map_err(told)?;
            shared.pauses.store(false, Ordering::SeqCst);
            wait_for("the end of the pause", || Ok(shared.paused.load(Ordering::SeqCst) == 0))?;
        }
        Ok(())
    };
    let changed = change();
    shared.ends.store(true, Ordering::SeqCst);
    let workers: Vec<Worker> = workers
        .into_iter()
        .map(|worker| worker.join().map_err(|_| "a worker has panicked"))
        .collect::<std::result::Result<_, _>>()?;
    let violated = shared.check().err().unwrap_or_default();
    let logs = || {
        format!(
            "the master {}\nthe replica {}\nthe master's log:\n{}\nthe replica's log:\n{}",
            state(&master.server),
            state(&replica.server),
            master.server.log(),
            replica.server.log()
        )
    };
    changed.map_err(|error| format!("{violated}: {error}; {}", logs()))?;
    shared.check().map_err(|error| format!("{error}; {}", logs()))?;
    check_account(&master.server, &workers)
}

/// What an instance says of itself, for the message of a failed test.
fn state(server: &Server) -> String {
    let names = ["vclock", "pending_rows", "replication", "masters", "ro_reason", "status"];
    let told = names.map(|name| info(server, name).map_or_else(|error| error, |value| value.to_string()));
    names.iter().zip(told).map(|(name, told)| format!("{name}: {told}; ")).collect()
}

/// Another instance becomes the master, and has a replica again.
fn replace(
    net: &Net,
    what: Change,
    master: &mut Site,
    replica: &mut Site,
    line: &mut Line,
    shared: &Shared,
) -> Result<()> {
    if what == Change::Planned {
        let clock = command(&master.server, &["demote"])?;
        let clock = clock.split('\'').nth(1).ok_or("demote tells no vclock")?.to_owned();
        // It follows until it has everything.
        command(&replica.server, &["promote", "--after", &clock])?;
        replica.server.lead()?;
        std::mem::swap(master, replica);
        *line = net.line(&master.server)?;
        replica.server.replicate(line.uri(&master.server));
        replica.server.reload()?;
        shared.move_to(master.server.address());
        return wait_downstream(&master.server, "follow");
    }
    let gone = info(&master.server, "id")?.as_int();
    let link = |site: &Site, is_up: bool| site.host.as_ref().map_or(Ok(()), |host| host.link(is_up));
    match what {
        Change::Frozen => signal(&master.server, Signal::STOP)?,
        Change::CutOff => link(master, false)?,
        Change::KilledSilently => {
            link(master, false)?;
            master.server.kill();
            link(master, true)?;
        }
        Change::Killed | Change::Planned => master.server.kill(),
    }
    replica.server.lead()?;
    command(&replica.server, &["promote", "--force"])?;
    std::mem::swap(master, replica);
    shared.move_to(master.server.address());
    let (fresh, to_fresh) = join(net, &master.server, gone)?;
    let mut old = std::mem::replace(replica, fresh);
    *line = to_fresh;
    match what {
        Change::Frozen => signal(&old.server, Signal::CONT)?,
        Change::CutOff => link(&old, true)?,
        _ => return Ok(()),
    }
    come_back(&old.server, shared)?;
    old.server.kill();
    Ok(())
}

/// The connection between the two is cut, hangs for so long that both give it up, is slow, loses one direction; a clock
/// jumps; or all is left alone.
fn disturb(master: &Site, replica: &Site, line: &Line, shared: &Shared, random: &mut Random) -> Result<()> {
    let (Some(own), Some(other)) = (&master.host, &replica.host) else {
        let Line::Proxy(proxy) = line else { return Ok(()) };
        match random.below(3) {
            0 => proxy.cut(),
            1 => {
                proxy.freeze(true);
                wait_downstream(&master.server, "stopped")?;
                proxy.freeze(false);
                wait_downstream(&master.server, "follow")?;
            }
            _ => {}
        }
        return Ok(());
    };
    match random.below(6) {
        0 => {
            other.slow(true)?;
            shared.work(20)?;
            other.slow(false)
        }
        kind @ 1..=3 => {
            let part = |is_apart: bool| match kind {
                1 => other.link(!is_apart),
                2 => other.mute(own, is_apart),
                _ => own.mute(other, is_apart),
            };
            part(true)?;
            wait_downstream(&master.server, "stopped")?;
            part(false)?;
            wait_downstream(&master.server, "follow")
        }
        4 => {
            let host = if random.below(2) == 0 { own } else { other };
            host.set_clock(random.below(7200) as i64 - 3600)
        }
        _ => Ok(()),
    }
}

/// A master that was frozen or cut off goes on. It believes that it is the master, and acknowledges nothing.
fn come_back(old: &Server, shared: &Shared) -> Result<()> {
    signal(old, Signal::CONT)?;
    let before = vclock(old)?;
    let mut client = Connection::open(old.address()).map_err(|error| error.to_string())?;
    let put = connection::call("queue.tube.jobs:put", vec![Value::str("from the past")]);
    let sync = client.send(kind::CALL, &put).map_err(|error| error.to_string())?;
    // What tells about the instance and not about data is answered, and says that the task is on its disk.
    wait_for("the put on the old master's disk", || Ok(vclock(old)? != before))?;
    shared.work(20)?;
    if client.arrived(sync).is_some() {
        return Err(
            "a master that was replaced while it was frozen or cut off has acknowledged a put".to_owned()
        );
    }
    Ok(())
}

/// All rows of a space of the server, by its name.
pub(super) fn rows(server: &Server, name: &str) -> Result<Vec<Vec<Value>>> {
    let select = |space: i128, index: i128, key: Vec<Value>| {
        let pairs = vec![
            (key::INDEX, Value::Int(index)),
            (key::LIMIT, Value::Int(1_000_000)),
            (key::ITERATOR, Value::Int(0)),
            (key::KEY, Value::Array(key)),
        ];
        let found = Client::open(server)?.send(kind::SELECT, space, pairs)?;
        let rows = found.as_array().unwrap_or_default().iter();
        Ok::<_, String>(rows.filter_map(|row| row.as_array().map(<[Value]>::to_vec)).collect::<Vec<_>>())
    };
    let space = select(281, 2, vec![Value::str(name)])?;
    let id = space.first().and_then(|row| row.first()?.as_int()).ok_or("no such space")?;
    select(id, 0, Vec::new())
}

fn check_account(master: &Server, workers: &[Worker]) -> Result<()> {
    let tasks = rows(master, "jobs")?;
    let owners: HashMap<String, Value> = rows(master, "_queue_taken_2")?
        .into_iter()
        .filter_map(|row| Some((row.get(1)?.to_string(), row.get(3)?.clone())))
        .collect();
    let payload = |row: &[Value]| row.get(2).and_then(Value::as_text).unwrap_or_default();
    let present: HashSet<String> = tasks.iter().map(|row| payload(row)).collect();
    if present.len() != tasks.len() {
        return Err("a payload is there twice".to_owned());
    }
    let finished: BTreeSet<_> = workers.iter().flat_map(|worker| &worker.finished).collect();
    let perhaps: BTreeSet<_> = workers.iter().flat_map(|worker| &worker.perhaps_finished).collect();
    let attempted: HashSet<_> = workers.iter().flat_map(|worker| worker.attempted.iter()).collect();
    for worker in workers {
        for payload in &worker.stored {
            let may_be_gone = finished.contains(payload) || perhaps.contains(payload);
            if !may_be_gone && !present.contains(payload) {
                return Err(format!("{payload} was acknowledged and is lost"));
            }
        }
        for (id, payload) in &worker.held {
            let is_own = worker.session.is_some() && owners.get(&id.to_string()) == worker.session.as_ref();
            if !present.contains(payload) || !is_own {
                return Err(format!(
                    "{payload} is not worker {}'s any more: {:?}",
                    worker.number,
                    owners.get(&id.to_string())
                ));
            }
        }
    }
    if let Some(payload) = present.iter().find(|payload| finished.contains(payload)) {
        return Err(format!("{payload} was finished and is there"));
    }
    if let Some(payload) = present.iter().find(|payload| !attempted.contains(payload)) {
        return Err(format!("nobody has put {payload}"));
    }
    Ok(())
}
