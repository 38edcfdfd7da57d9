//! `turns`: what may hold the server's loop for long, and for how long it does.
//!
//! Each case makes many tasks on a server of its own and does the one thing that concerns them all at once. It waits
//! until the server has done that, and reads the longest turns from `box.info()`: by the clock, and by the
//! processor's time, which does not count what the machine gave to other processes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use lycosa_iproto::request::Body;
use lycosa_tuple::value::Value;
use serde_json::{Value as Json, json};

use crate::arguments::TurnsArguments;
use crate::connect;
use crate::contender::{Contender, Program};
use crate::protocol::iproto::{ADMIN_SOCKET, Access, Caller};
use crate::server::Server;
use crate::stolen::Stolen;
use crate::trial::Ground;

/// Requests that are sent with one write.
const BATCH: u64 = 1000;
/// Tasks that one connection's `take_many` takes at a time.
const TAKEN: u64 = 1000;
/// Time between two looks whether the server has done it.
const LOOK: Duration = Duration::from_millis(50);
/// The longest that a case may take.
const LONGEST: Duration = Duration::from_secs(600);
/// A tube's index by deadline.
const WATCH: &str = "watch";
/// Views of the schema.
const SPACES: u32 = 281;
const INDEXES: u32 = 289;
/// Tasks that are put within a second, at least; deadlines lie after the last put.
const SLOWEST: u64 = 20_000;

/// Operations on many tasks at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    Drop,
    Kick,
    Disconnect,
    Watch,
    Deadlines,
}

impl Case {
    const ALL: [Self; 5] = [Self::Drop, Self::Kick, Self::Disconnect, Self::Watch, Self::Deadlines];

    const fn name(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Kick => "kick",
            Self::Disconnect => "disconnect",
            Self::Watch => "watch",
            Self::Deadlines => "deadlines",
        }
    }

    /// Tasks if the scale is 1.
    const fn tasks(self) -> u64 {
        match self {
            Self::Drop => 5_000_000,
            Self::Kick | Self::Deadlines => 1_000_000,
            Self::Disconnect => 100_000,
            Self::Watch => 10_000_000,
        }
    }
}

pub(crate) fn turns(arguments: &TurnsArguments, server: Option<&Path>) -> Result<()> {
    let ground = arguments.servers.ground(arguments.servers.files(server))?;
    let machine = Stolen::measure(ground.cores, arguments.machine)?;
    if !arguments.json {
        println!("{}", machine.text());
    }
    for case in Case::ALL {
        if !arguments.cases.is_empty() && !arguments.cases.iter().any(|name| name == case.name()) {
            continue;
        }
        let tasks = ((case.tasks() as f64 * arguments.scale) as u64).max(300);
        let found = measure(&ground, arguments.contender, case, tasks)?;
        if arguments.json {
            let mut json = found.json(case, tasks);
            json["machine"] = machine.json();
            println!("{json}");
        } else {
            println!("{}", found.text(case, tasks));
        }
    }
    Ok(())
}

/// What one case has shown.
struct Found {
    seconds: f64,
    /// Name, µs by the clock, µs of the processor.
    turns: Vec<(String, u64, u64)>,
}

impl Found {
    fn longest(&self) -> (u64, u64) {
        let longest =
            |of: fn(&(String, u64, u64)) -> u64| self.turns.iter().map(of).max().unwrap_or_default();
        (longest(|turn| turn.1), longest(|turn| turn.2))
    }

    fn json(&self, case: Case, tasks: u64) -> Json {
        let (elapsed, processor) = self.longest();
        let turns: Vec<Json> = self
            .turns
            .iter()
            .map(|(name, elapsed, processor)| json!({ "source": name, "us": elapsed, "cpu_us": processor }))
            .collect();
        json!({
            "case": case.name(), "tasks": tasks, "seconds": self.seconds,
            "longest_us": elapsed, "longest_cpu_us": processor, "turns": turns,
        })
    }

    fn text(&self, case: Case, tasks: u64) -> String {
        let (elapsed, processor) = self.longest();
        let turns: Vec<String> = self
            .turns
            .iter()
            .filter(|turn| turn.1 > 0)
            .map(|(name, elapsed, processor)| format!("{name} {elapsed} ({processor})"))
            .collect();
        format!(
            "{:<11} {tasks:>9} tasks, {:>6.2} s: longest turn {elapsed} µs, of them {processor} µs of the processor; {}",
            case.name(),
            self.seconds,
            turns.join(", ")
        )
    }
}

fn measure(ground: &Ground, contender: Contender, case: Case, tasks: u64) -> Result<Found> {
    ensure!(matches!(contender.program, Program::Lycosa(_)), "{contender} does not tell its longest turns");
    let mut server = Server::start(|place| ground.command(contender, place), &ground.folder, ground.cores)?;
    // Once it answers a connection, it serves.
    contender.protocol(&Access::Own).prepare(server.address())?;
    let measured = play(&server, case, tasks);
    let found = measured.map_err(|error| server.explain(error))?;
    server.stop_process()?;
    Ok(found)
}

/// Puts tasks, each by a request of its own: those are no turns that take long.
fn put<S: Read + Write>(client: &mut Caller<S>, tasks: u64, options: &dyn Fn() -> Value) -> Result<()> {
    let mut done = 0;
    while done < tasks {
        let until = tasks.min(done + BATCH);
        let arguments = Value::Array(vec!["payload of a task".into(), options()]).encode();
        let body = Body::Call { name: b"queue.tube.turns:put", args: &arguments };
        client.many((done..until).map(|_| body))?;
        done = until;
    }
    Ok(())
}

fn call<S: Read + Write>(client: &mut Caller<S>, name: &str, arguments: Vec<Value>) -> Result<Value> {
    let values = client.call(name, &Value::Array(arguments).encode())??;
    let values = Value::decode(&values)?;
    Ok(values.as_array().and_then(|values| values.first()).cloned().unwrap_or(Value::Nil))
}

/// Tasks in a state, by the statistics.
fn tasks_in<S: Read + Write>(client: &mut Caller<S>, state: &str) -> Result<u64> {
    let statistics = call(client, "queue.statistics", vec!["turns".into()])?;
    let tasks = statistics.get("tasks").context("the statistics have no tasks")?;
    tasks.get(state).and_then(Value::as_u64).with_context(|| format!("the statistics have no {state} tasks"))
}

fn wait_until(mut is_done: impl FnMut() -> Result<bool>) -> Result<()> {
    let began = Instant::now();
    while !is_done()? {
        ensure!(began.elapsed() < LONGEST, "the server has not done it after {} s", LONGEST.as_secs());
        std::thread::sleep(LOOK);
    }
    Ok(())
}

fn play(server: &Server, case: Case, tasks: u64) -> Result<Found> {
    let open = || -> Result<Caller<TcpStream>> { Caller::new(connect(server.address())?, None) };
    let mut client = open()?;
    let no_options = Value::Map(Vec::new());
    call(&mut client, "queue.create_tube", vec!["turns".into(), "fifottl".into(), no_options.clone()])?;
    let memory = |client: &mut Caller<TcpStream>| -> Result<u64> {
        let memory = call(client, "box.info.memory", vec![])?;
        memory.get("data").and_then(Value::as_u64).context("box.info.memory() has no data")
    };
    let empty = memory(&mut client)?;
    let plain = || no_options.clone();
    let began;
    match case {
        Case::Drop => {
            put(&mut client, tasks, &plain)?;
            let full = memory(&mut client)?;
            began = Instant::now();
            call(&mut client, "queue.tube.turns:drop", vec![])?;
            // The memory is given back in steps.
            wait_until(|| Ok(memory(&mut client)? < empty + (full - empty) / 100))?;
        }
        Case::Kick => {
            put(&mut client, tasks, &plain)?;
            let ids: Vec<Vec<u8>> = (0..tasks).map(|id| Value::Array(vec![id.into()]).encode()).collect();
            let wait = Value::Array(vec![0_u32.into()]).encode();
            for ids in ids.chunks(BATCH as usize) {
                let take = Body::Call { name: b"queue.tube.turns:take", args: &wait };
                client.many(ids.iter().map(|_| take))?;
                let bury = |id| Body::Call { name: b"queue.tube.turns:bury", args: id };
                client.many(ids.iter().map(|id| bury(id.as_slice())))?;
            }
            began = Instant::now();
            let kicked = call(&mut client, "queue.tube.turns:kick", vec![tasks.into()])?;
            ensure!(kicked.as_u64() == Some(tasks), "{kicked:?} tasks were kicked, not {tasks}");
        }
        Case::Disconnect => {
            put(&mut client, tasks, &plain)?;
            let mut worker = open()?;
            let wait = Value::Array(vec![0_u32.into()]).encode();
            let take = Body::Call { name: b"queue.tube.turns:take", args: &wait };
            for _ in 0..tasks.div_ceil(TAKEN) {
                worker.many((0..TAKEN).map(|_| take))?;
            }
            ensure!(tasks_in(&mut client, "taken")? == tasks, "not all tasks were taken");
            began = Instant::now();
            drop(worker);
            wait_until(|| Ok(tasks_in(&mut client, "taken")? == 0))?;
        }
        Case::Watch => {
            put(&mut client, tasks, &|| Value::map([("ttl", 1_000_000_u32)]))?;
            // The spaces of tubes are their owner's.
            let mut admin = Caller::new(UnixStream::connect(server.data().join(ADMIN_SOCKET))?, None)?;
            let (space, index) = find_watch(&mut admin)?;
            began = Instant::now();
            let body = Body::Select { space, index, limit: 1, offset: 0, iterator: 2, key: &[0x90] };
            let selected = Value::decode(&admin.request(&body)??)?;
            ensure!(selected.as_array().is_some_and(|rows| rows.len() == 1), "SELECT answers {selected:?}");
        }
        Case::Deadlines => {
            let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
            let due = now() + 3.0 + tasks as f64 / SLOWEST as f64;
            put(&mut client, tasks, &|| Value::map([("delay", Value::Double((due - now()).max(0.0)))]))?;
            ensure!(now() < due, "the tasks were not put before their deadline");
            std::thread::sleep(Duration::from_secs_f64(due - now()));
            began = Instant::now();
            wait_until(|| Ok(tasks_in(&mut client, "delayed")? == 0))?;
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    Ok(Found { seconds, turns: longest_turns(&mut client)? })
}

/// The longest turns by their parts: microseconds by the clock, and of the processor.
fn longest_turns(client: &mut Caller<TcpStream>) -> Result<Vec<(String, u64, u64)>> {
    let info = call(client, "box.info", vec![])?;
    let turns = |name: &str| -> Result<Vec<(String, u64)>> {
        let Some(Value::Map(turns)) = info.get(name) else {
            anyhow::bail!("box.info() has no {name}: the server is older than this program");
        };
        let pair = |(name, us): &(Value, Value)| Some((name.as_str()?.to_owned(), us.as_u64()?));
        Ok(turns.iter().filter_map(pair).collect())
    };
    let processor = turns("longest_turns_cpu_us")?;
    let turns = turns("longest_turns_us")?.into_iter().map(|(name, elapsed)| {
        let cpu = processor.iter().find(|(other, _)| *other == name).map_or(0, |(_, cpu)| *cpu);
        (name, elapsed, cpu)
    });
    Ok(turns.collect())
}

/// The numbers of the tube's space and of its index by deadline.
fn find_watch<S: Read + Write>(client: &mut Caller<S>) -> Result<(u32, u32)> {
    let mut find = |space, index, key: Value| -> Result<Value> {
        let key = Value::Array(match key {
            Value::Array(parts) => parts,
            part => vec![part],
        })
        .encode();
        let body = Body::Select { space, index, limit: 1, offset: 0, iterator: 0, key: &key };
        let rows = Value::decode(&client.request(&body)??)?;
        rows.as_array().and_then(|rows| rows.first()).cloned().context("the tube has no space or index")
    };
    let number = |row: &Value, field: usize| {
        let number = row.as_array().and_then(|row| row.get(field)).and_then(Value::as_u64);
        number.and_then(|number| u32::try_from(number).ok()).context("a row of the schema has no number")
    };
    let space = number(&find(SPACES, 2, "turns".into())?, 0)?;
    let index = number(&find(INDEXES, 2, Value::Array(vec![space.into(), WATCH.into()]))?, 1)?;
    Ok((space, index))
}
