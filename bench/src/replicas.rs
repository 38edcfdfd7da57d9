//! `replicas`: what a replica costs its master, and what the clients of both feel.
//!
//! Each part starts its own servers. The master has the core of servers, a replica shares the other one with the load. Where a
//! replica works beside the load (it joins, it is frozen), it has the lowest priority: the figures are the master's.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use lycosa_iproto::request::Body;
use lycosa_tuple::value::Value;
use rustix::process::{Signal, kill_process};
use serde_json::{Value as Json, json};

use crate::arguments::ReplicasArguments;
use crate::connect;
use crate::contender::{Contender, Durability, Program};
use crate::felt::Felt;
use crate::load::{Bound, Load, Plan, Putting, Shape};
use crate::machine;
use crate::protocol::iproto::{ADMIN_SOCKET, Access, Caller, TUBE};
use crate::server::Server;
use crate::trial::Ground;

/// The system space of privileges, and the row by which guest may replicate.
const PRIVILEGES: u32 = 312;
const MAY_REPLICATE: (u32, u32, &str, u32, u32) = (1, 0, "role", 3, 4);
/// Silence of four times this number of seconds ends a connection between master and replica.
const REPLICATION_TIMEOUT: &str = "1";
/// Time between two looks at a server; the load runs in pieces of this length.
const LOOK: Duration = Duration::from_millis(250);
/// The same where a moment is to be found.
const SHORT_LOOK: Duration = Duration::from_millis(1);
/// So long may a replica need to have everything.
const LONGEST: Duration = Duration::from_secs(1800);
/// So long may a planned switch stop work before the benchmark gives up.
const LONGEST_SWITCH: Duration = Duration::from_secs(600);
/// The master's configuration, beside its data folder.
const CONFIGURATION: &str = "lycosa.toml";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Throughput,
    CatchUp,
    Switch,
    Join,
    Frozen,
}

impl Part {
    const ALL: [Self; 5] = [Self::Throughput, Self::CatchUp, Self::Switch, Self::Join, Self::Frozen];

    const fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::CatchUp => "catch-up",
            Self::Switch => "switch",
            Self::Join => "join",
            Self::Frozen => "frozen",
        }
    }
}

/// What a part has shown: for people and for programs.
struct Found {
    text: String,
    json: Json,
}

pub(crate) fn replicas(arguments: &ReplicasArguments, server: Option<&Path>) -> Result<()> {
    let contender = arguments.contender;
    ensure!(matches!(contender.program, Program::Lycosa(_)), "{contender} has no replicas here: take lycosa");
    ensure!(
        contender.durability != Durability::None,
        "{contender} has no journal to send to replicas: take fsync or write"
    );
    let ground = arguments.servers.ground(arguments.servers.files(server))?;
    for part in Part::ALL {
        if !arguments.parts.is_empty() && !arguments.parts.iter().any(|name| name == part.name()) {
            continue;
        }
        let bench = Bench { ground: &ground, arguments };
        let found = match part {
            Part::Throughput => bench.throughput(),
            Part::CatchUp => bench.catch_up(),
            Part::Switch => bench.switch(),
            Part::Join => bench.join(),
            Part::Frozen => bench.frozen(),
        };
        let Found { text, mut json } = found.with_context(|| format!("part {}", part.name()))?;
        if arguments.json {
            json["part"] = part.name().into();
            json["contender"] = contender.to_string().into();
            println!("{json}");
        } else {
            println!("{:<11}{text}", part.name());
        }
    }
    Ok(())
}

struct Bench<'a> {
    ground: &'a Ground,
    arguments: &'a ReplicasArguments,
}

type Admin = Caller<UnixStream>;

/// A connection to the administrator's socket, which a server makes after it listens.
fn administrator(server: &Server) -> Result<Admin> {
    let path = server.data().join(ADMIN_SOCKET);
    let began = Instant::now();
    loop {
        match UnixStream::connect(&path) {
            Ok(stream) => return Caller::new(stream, None),
            Err(_) if began.elapsed() < LONGEST_SWITCH => thread::sleep(SHORT_LOOK),
            Err(error) => return Err(error).with_context(|| format!("cannot connect to {}", path.display())),
        }
    }
}

fn call<S: Read + Write>(client: &mut Caller<S>, name: &str, arguments: Vec<Value>) -> Result<Value> {
    let values = client.call(name, &Value::Array(arguments).encode())??;
    let values = Value::decode(&values)?;
    Ok(values.as_array().and_then(|values| values.first()).cloned().unwrap_or(Value::Nil))
}

/// The rows on a server's disk: for each instance the number of its last row.
fn clock<S: Read + Write>(admin: &mut Caller<S>) -> Result<BTreeMap<u64, u64>> {
    let info = call(admin, "box.info", vec![])?;
    let Some(Value::Map(pairs)) = info.get("vclock") else { bail!("box.info() has no vclock") };
    let pairs = pairs.iter().filter_map(|(id, lsn)| Some((id.as_u64()?, lsn.as_u64()?)));
    Ok(pairs.filter(|&(id, _)| id != 0).collect())
}

/// The clock once everything that the server has made is on its disk.
fn settled(admin: &mut Admin) -> Result<BTreeMap<u64, u64>> {
    let began = Instant::now();
    loop {
        let info = call(admin, "box.info", vec![])?;
        if info.get("pending_rows").and_then(Value::as_u64) == Some(0) {
            return clock(admin);
        }
        ensure!(began.elapsed() < LONGEST_SWITCH, "the master's rows do not get to its disk");
        thread::sleep(SHORT_LOOK);
    }
}

fn rows(clock: &BTreeMap<u64, u64>) -> u64 {
    clock.values().sum()
}

/// Waits until a server has everything up to `wanted`.
fn wait_for(admin: &mut Admin, wanted: &BTreeMap<u64, u64>, pause: Duration) -> Result<()> {
    let began = Instant::now();
    loop {
        let reached = clock(admin)?;
        if wanted.iter().all(|(id, lsn)| reached.get(id).is_some_and(|reached| reached >= lsn)) {
            return Ok(());
        }
        ensure!(began.elapsed() < LONGEST, "the replica is at {reached:?} and does not get to {wanted:?}");
        thread::sleep(pause);
    }
}

/// A master, and its administrator's socket.
struct Master {
    server: Server,
    admin: Admin,
}

impl Master {
    fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Lets later replies wait for this number of replicas.
    fn set_replicas_before_reply(&mut self, replicas: u64) -> Result<()> {
        fs::write(configuration(&self.server), format!("replicas_before_reply = {replicas}\n"))?;
        kill_process(self.server.pid(), Signal::HUP).context("cannot signal the master")?;
        let began = Instant::now();
        loop {
            let settings = call(&mut self.admin, "box.cfg", vec![])?;
            let set = settings.get("replicas_before_reply");
            if set.and_then(Value::as_str) == Some(&replicas.to_string())
                || set.and_then(Value::as_u64) == Some(replicas)
            {
                return Ok(());
            }
            ensure!(
                began.elapsed() < LONGEST_SWITCH,
                "the master does not read its configuration: {settings:?}"
            );
            thread::sleep(SHORT_LOOK);
        }
    }
}

fn configuration(server: &Server) -> PathBuf {
    server.data().with_file_name(CONFIGURATION)
}

impl Bench<'_> {
    fn contender(&self) -> Contender {
        self.arguments.contender
    }

    fn shape(&self) -> Shape {
        self.arguments.shape()
    }

    /// A master with the tube; guest may follow it.
    fn master(&self) -> Result<Master> {
        let command = |place: crate::server::ServerLocation<'_>| {
            let file = place.data.with_file_name(CONFIGURATION);
            fs::write(&file, "replicas_before_reply = 0\n")?;
            let mut command = self.ground.command(self.contender(), place)?;
            command.arg("--config").arg(file).args(common());
            Ok(command)
        };
        let mut server = Server::start(command, &self.ground.folder, self.ground.cores)?;
        let prepared = self.contender().protocol(&Access::Own).prepare(server.address());
        prepared.map_err(|error| server.explain(error))?;
        let mut admin = administrator(&server)?;
        let (grantor, grantee, kind, role, privilege) = MAY_REPLICATE;
        let row =
            Value::Array(vec![grantor.into(), grantee.into(), kind.into(), role.into(), privilege.into()]);
        admin
            .request(&Body::Replace { space: PRIVILEGES, tuple: &row.encode() })?
            .context("cannot let guest replicate")?;
        Ok(Master { server, admin })
    }

    fn replica_command(
        &self,
        master: SocketAddr,
        ground: &Ground,
    ) -> impl Fn(crate::server::ServerLocation<'_>) -> Result<std::process::Command> {
        let (contender, ground) = (self.contender(), ground.clone());
        move |place| {
            let mut command = ground.command(contender, place)?;
            command.args(["--replication", &format!("guest@{master}"), "--read-only", "true"]).args(common());
            Ok(command)
        }
    }

    /// Where a replica works beside the load.
    fn modest_ground(&self) -> Ground {
        let wrapper = ["nice", "-n", "19"].map(Into::into).to_vec();
        Ground { wrapper, ..self.ground.clone() }
    }

    /// A replica that follows, and has everything that the master has at this moment.
    fn replica(&self, master: &mut Master, ground: &Ground) -> Result<Server> {
        let command = self.replica_command(master.address(), ground);
        let server = Server::start(command, &ground.folder, ground.cores.beside_load())?;
        wait_for(&mut administrator(&server)?, &settled(&mut master.admin)?, SHORT_LOOK)?;
        Ok(server)
    }

    fn load(&self, master: &Master) -> Result<Load> {
        Load::connect(&*self.contender().protocol(&Access::Own), master.address(), self.shape(), 100)
    }

    fn fill(&self, load: &mut Load) -> Result<()> {
        let plan = Plan::Fill { count: self.arguments.tasks, putting: Putting::Plain };
        load.run(plan, self.shape()).map(drop)
    }

    /// Cycles: of the warm-up, which do not count, and then the counted ones.
    fn cycles(&self, load: &mut Load) -> Result<Felt> {
        let length = self.arguments.length();
        Felt::of(load, length.warmup, self.shape())?;
        Felt::of(load, length.measured, self.shape())
    }

    fn throughput(&self) -> Result<Found> {
        let mut lines = Vec::new();
        let mut parts = Vec::new();
        let mut alone = 0.0;
        for (name, has_replica, before_reply) in
            [("alone", false, 0), ("a replica", true, 0), ("a replica before each reply", true, 1)]
        {
            let mut master = self.master()?;
            let mut replica = if has_replica { Some(self.replica(&mut master, self.ground)?) } else { None };
            master.set_replicas_before_reply(before_reply)?;
            let mut load = self.load(&master)?;
            let length = self.arguments.length();
            Felt::of(&mut load, length.warmup, self.shape())?;
            let processor = machine::processor_time(master.server.pid())?;
            let felt = Felt::of(&mut load, length.measured, self.shape())?;
            let processor = machine::processor_time(master.server.pid())?.since(processor).total();
            let microseconds = processor.as_secs_f64() * 1e6 / felt.rounds.max(1) as f64;
            let mut json = json!({ "name": name, "felt": felt.json(), "cpu_us_per_cycle": microseconds });
            let mut line = format!("{}, {microseconds:.2} µs of the processor a cycle", felt.text(name));
            if !has_replica {
                alone = felt.per_second();
            }
            if let Some(replica) = &mut replica {
                let wanted = settled(&mut master.admin)?;
                let began = Instant::now();
                let mut admin = administrator(replica)?;
                let behind = rows(&wanted).saturating_sub(rows(&clock(&mut admin)?));
                wait_for(&mut admin, &wanted, SHORT_LOOK)?;
                let late = began.elapsed();
                let share = felt.per_second() * 100.0 / alone.max(1e-9);
                line += &format!(
                    "; {share:.0} % of the throughput alone; the replica was {behind} rows behind, and had them {:.1} ms later",
                    late.as_secs_f64() * 1e3
                );
                json["percent_of_alone"] = share.into();
                json["rows_behind"] = behind.into();
                json["caught_up_after_ms"] = (late.as_secs_f64() * 1e3).into();
                replica.stop_process()?;
            }
            master.set_replicas_before_reply(0)?;
            master.server.stop_process()?;
            lines.push(line);
            parts.push(json);
        }
        Ok(Found { text: lines.join("\n           "), json: json!({ "runs": parts }) })
    }

    /// A replica is down while the master works, and catches up.
    fn catch_up(&self) -> Result<Found> {
        let mut master = self.master()?;
        let mut replica = self.replica(&mut master, self.ground)?;
        replica.stop_process()?;
        let mut load = self.load(&master)?;
        let length = self.arguments.length();
        Felt::of(&mut load, length.warmup, self.shape())?;
        let before = rows(&settled(&mut master.admin)?);
        let felt = Felt::of(&mut load, length.measured, self.shape())?;
        let wanted = settled(&mut master.admin)?;
        let written = rows(&wanted) - before;
        let began = Instant::now();
        replica.start_again(
            self.replica_command(master.address(), self.ground),
            self.ground.cores.beside_load(),
        )?;
        let mut admin = administrator(&replica)?;
        let started = began.elapsed();
        let missing = rows(&wanted).saturating_sub(rows(&clock(&mut admin)?));
        let began = Instant::now();
        wait_for(&mut admin, &wanted, SHORT_LOOK)?;
        let seconds = began.elapsed().as_secs_f64();
        replica.stop_process()?;
        master.server.stop_process()?;
        let (wrote, applied) = (written as f64 / felt.seconds.max(1e-9), missing as f64 / seconds.max(1e-9));
        let text = format!(
            "{missing} rows applied in {seconds:.3} s once it listened (after {:.3} s): {applied:.0} rows/s; the \
             master wrote {wrote:.0} rows/s, so the replica is × {:.2} as fast",
            started.as_secs_f64(),
            applied / wrote.max(1e-9)
        );
        let json = json!({
            "rows": missing, "seconds": seconds, "applied_per_second": applied, "written_per_second": wrote,
            "started_after_seconds": started.as_secs_f64(),
        });
        Ok(Found { text, json })
    }

    /// The master changes while clients work and tasks wait.
    fn switch(&self) -> Result<Found> {
        let mut master = self.master()?;
        self.fill(&mut self.load(&master)?)?;
        let replica = self.replica(&mut master, self.ground)?;
        let mut new = administrator(&replica)?;
        let began = Instant::now();
        let times = Times::default();
        let addresses = [master.address(), replica.address()];
        let depth = self.shape().depth;
        let (demoted, caught_up, promoted) = thread::scope(|scope| -> Result<(f64, f64, f64)> {
            let clients: Vec<_> = (0..self.shape().connections)
                .map(|_| scope.spawn(|| work(addresses, depth, began, &times)))
                .collect();
            let switched = (|| {
                while times.old.load(Ordering::Relaxed) == 0 {
                    ensure!(began.elapsed() < LONGEST_SWITCH, "no client has done anything");
                    thread::sleep(SHORT_LOOK);
                }
                thread::sleep(LOOK);
                let at = || began.elapsed().as_secs_f64();
                call(&mut master.admin, "box.cfg", vec![Value::map([("read_only", true)])])?;
                let demoted = at();
                wait_for(&mut new, &settled(&mut master.admin)?, SHORT_LOOK)?;
                let caught_up = at();
                call(&mut new, "box.cfg", vec![Value::map([("read_only", false)])])?;
                while call(&mut new, "queue.state", vec![])?.as_str() != Some("RUNNING") {
                    ensure!(began.elapsed() < LONGEST_SWITCH, "the queue of the new master does not run");
                    thread::sleep(SHORT_LOOK);
                }
                let promoted = at();
                while times.new.load(Ordering::Relaxed) == 0 {
                    ensure!(began.elapsed() < LONGEST_SWITCH, "nobody works at the new master");
                    thread::sleep(SHORT_LOOK);
                }
                Ok((demoted, caught_up, promoted))
            })();
            times.is_over.store(1, Ordering::Relaxed);
            for client in clients {
                client.join().map_err(|_| anyhow::anyhow!("a client has panicked"))??;
            }
            switched
        })?;
        let (old, new) = (times.old.load(Ordering::Relaxed), times.new.load(Ordering::Relaxed));
        let stopped = new.saturating_sub(old) as f64 / 1e3;
        let (waited, started) = ((caught_up - demoted) * 1e3, (promoted - caught_up) * 1e3);
        let tasks = self.arguments.tasks;
        let text = format!(
            "work stood still for {stopped:.1} ms with {tasks} waiting tasks: the replica had the last rows {waited:.1} ms after \
             the master took no more writes, and its queue ran {started:.1} ms later"
        );
        let json = json!({
            "tasks": tasks, "stopped_ms": stopped, "caught_up_after_ms": waited, "running_after_ms": started,
        });
        Ok(Found { text, json })
    }

    /// A replica joins while clients work and tasks wait.
    fn join(&self) -> Result<Found> {
        let mut master = self.master()?;
        let mut load = self.load(&master)?;
        self.fill(&mut load)?;
        call(&mut master.admin, "box.snapshot", vec![])?;
        rustix::fs::sync();
        let without = self.cycles(&mut load)?;
        let ground = self.modest_ground();
        let command = self.replica_command(master.address(), &ground);
        let wanted = rows(&clock(&mut master.admin)?);
        let began = Instant::now();
        let mut with = Felt::default();
        let mut replica = thread::scope(|scope| {
            let (folder, cores) = (ground.folder.as_path(), ground.cores.beside_load());
            let joining = scope.spawn(move || Server::start(command, folder, cores));
            while !joining.is_finished() {
                with.add(Felt::of(&mut load, Bound::For(LOOK), self.shape())?)?;
            }
            joining.join().map_err(|_| anyhow::anyhow!("the start of the replica has panicked"))?
        })?;
        // It listens from the beginning, and has the rows later.
        let mut admin = administrator(&replica)?;
        while rows(&clock(&mut admin)?) < wanted {
            with.add(Felt::of(&mut load, Bound::For(LOOK), self.shape())?)?;
        }
        let seconds = began.elapsed().as_secs_f64();
        let has_joined = call(&mut admin, "queue.state", vec![])?;
        replica.stop_process()?;
        master.server.stop_process()?;
        let (tasks, times) = (self.arguments.tasks, ratio(&without, &with));
        let text = format!(
            "{tasks} tasks joined in {seconds:.2} s (queue of the replica: {}); the master's p99 is × {times:.2}\n           {}\n           {}",
            has_joined.as_str().unwrap_or("-"),
            without.text("without"),
            with.text("with")
        );
        let json = json!({
            "tasks": tasks, "seconds": seconds, "p99_ratio": times, "without": without.json(), "with": with.json(),
        });
        Ok(Found { text, json })
    }

    /// A replica stops in the middle of everything, without closing its connection.
    fn frozen(&self) -> Result<Found> {
        let mut master = self.master()?;
        let replica = self.replica(&mut master, &self.modest_ground())?;
        let mut load = self.load(&master)?;
        let without = self.cycles(&mut load)?;
        kill_process(replica.pid(), Signal::STOP).context("cannot stop the replica")?;
        let with = self.cycles(&mut load)?;
        kill_process(replica.pid(), Signal::CONT).context("cannot let the replica go on")?;
        let wanted = settled(&mut master.admin)?;
        let began = Instant::now();
        let mut admin = administrator(&replica)?;
        let missing = rows(&wanted).saturating_sub(rows(&clock(&mut admin)?));
        wait_for(&mut admin, &wanted, SHORT_LOOK)?;
        let seconds = began.elapsed().as_secs_f64();
        let times = ratio(&without, &with);
        let text = format!(
            "beside a frozen replica the master's p99 is × {times:.2}; afterwards it lacked {missing} rows and had them in \
             {seconds:.2} s\n           {}\n           {}",
            without.text("follows"),
            with.text("frozen")
        );
        let json = json!({
            "p99_ratio": times, "rows": missing, "seconds": seconds, "without": without.json(), "with": with.json(),
        });
        Ok(Found { text, json })
    }
}

/// Flags of every server.
fn common() -> [&'static str; 6] {
    ["--replication-timeout", REPLICATION_TIMEOUT, "--queue-ttr", "60", "--queue-in-replicaset", "true"]
}

/// The largest of the ratios of put, take and ack.
fn ratio(without: &Felt, with: &Felt) -> f64 {
    let pairs = without.percentile(99.0).into_iter().zip(with.percentile(99.0));
    pairs.map(|(without, with)| with / without.max(1.0)).fold(0.0, f64::max)
}

/// When clients were served, in microseconds since the beginning of a part.
#[derive(Debug, Default)]
struct Times {
    /// The last time by the old master.
    old: AtomicU64,
    /// The first time by the new one; 0 for never.
    new: AtomicU64,
    /// Clients have to end.
    is_over: AtomicU64,
}

/// A client that puts, takes and acknowledges `depth` tasks at a time: at the old master until that refuses, then at the new
/// one as soon as that does not.
fn work(addresses: [SocketAddr; 2], depth: usize, began: Instant, times: &Times) -> Result<()> {
    let microseconds = || u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX).max(1);
    let [mut old, mut new] = [Client::connect(addresses[0], depth)?, Client::connect(addresses[1], depth)?];
    while old.cycle()? {
        times.old.fetch_max(microseconds(), Ordering::Relaxed);
        if times.is_over.load(Ordering::Relaxed) != 0 {
            return Ok(());
        }
    }
    while times.is_over.load(Ordering::Relaxed) == 0 {
        if new.cycle()? {
            let now = microseconds();
            let _ = times.new.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        } else {
            thread::sleep(SHORT_LOOK);
        }
    }
    Ok(())
}

/// A connection with `depth` requests under way.
struct Client {
    caller: Caller<TcpStream>,
    depth: usize,
}

impl Client {
    fn connect(address: SocketAddr, depth: usize) -> Result<Self> {
        Ok(Self { caller: Caller::new(connect(address)?, None)?, depth })
    }

    /// Puts, takes and acknowledges. False once the server refuses anything, as one that takes no writes does.
    fn cycle(&mut self) -> Result<bool> {
        let payload = Value::Array(vec!["payload of a task".into()]).encode();
        let now = Value::Array(vec![0_u32.into()]).encode();
        if self.ask("put", &vec![payload; self.depth])?.is_none() {
            return Ok(false);
        }
        let Some(tasks) = self.ask("take", &vec![now; self.depth])? else { return Ok(false) };
        let ids: Vec<Vec<u8>> = tasks.into_iter().map(|id| Value::Array(vec![id]).encode()).collect();
        Ok(self.ask("ack", &ids)?.is_some())
    }

    /// The ids of the tasks that the replies have; `None` if one of them is a refusal.
    fn ask(&mut self, method: &str, arguments: &[Vec<u8>]) -> Result<Option<Vec<Value>>> {
        let name = format!("queue.tube.{TUBE}:{method}");
        let bodies = arguments.iter().map(|args| Body::Call { name: name.as_bytes(), args });
        let mut ids = Vec::new();
        for answer in self.caller.answers(bodies)? {
            let Ok(values) = answer else { return Ok(None) };
            let values = Value::decode(&values)?;
            let task = values.as_array().and_then(|values| values.first()).and_then(Value::as_array);
            let Some(id) = task.and_then(|task| task.first()) else { return Ok(None) };
            ids.push(id.clone());
        }
        Ok(Some(ids))
    }
}
