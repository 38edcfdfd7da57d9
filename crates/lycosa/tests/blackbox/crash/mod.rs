//! SIGKILL under load: workers put, take, ack, release, bury and delete as fast as they can. The server dies at a
//! random time and starts again on its data. The test compares it with the workers' account of what it had
//! acknowledged.
//!
//! Checked while the load runs: no task has two owners, no sub-queue two taken tasks, no id is given out twice, nothing
//! finished comes back. Checked after each start: acknowledged tasks exist, finished ones do not, taken tasks
//! are ready again, buried ones are buried, and the statistics agree with a recount.
//!
//! The same with a disk that fails under the running process is in [`disk`].
//!
//! | variable | what it says | default |
//! |---|---|---|
//! | `LYCOSA_TEST_CRASH_KILLS` | how often servers are killed at least, over all types | 36 |
//! | `LYCOSA_TEST_CRASH_SECONDS` | for how long each type of tube is tortured at least | 0 |
//! | `LYCOSA_TEST_CRASH_FAULTS` | how many operations of the disk fail, over all types | 10 |
//! | `LYCOSA_TEST_SEED` | repeats the choices of a failed run, though not its timing | the time |

pub(crate) mod disk;
mod ledger;
mod worker;

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use libtest_mimic::Trial;
use lycosa_journal::block::MAGIC_END;

use self::ledger::{Ledger, Row};
use self::worker::Worker;
use crate::connection::{self, Connection, key, kind};
use crate::scenario::value_of;
use crate::server::{Peer, Server, Setup};
use crate::value::Value;

const WORKERS: usize = 6;
const REPLY_LIMIT: Duration = Duration::from_secs(120);
/// The load runs for at least and at most so long before the kill.
const LOAD: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(700)];

/// A type of tube under torture.
#[derive(Debug, Clone, Copy)]
struct Tube {
    kind: &'static str,
    options: &'static str,
    /// Where the payload stands in the space's rows.
    payload_field: usize,
    /// Whether tasks have a sub-queue.
    lanes: bool,
    /// Whether tasks can be delayed.
    delays: bool,
}

const TUBES: [Tube; 6] = [
    Tube { kind: "fifo", options: "{}", payload_field: 2, lanes: false, delays: false },
    Tube { kind: "fifottl", options: "{}", payload_field: 7, lanes: false, delays: true },
    Tube {
        kind: "limfifottl",
        options: r#"{"capacity": 1000000}"#,
        payload_field: 7,
        lanes: false,
        delays: true,
    },
    Tube { kind: "utube", options: "{}", payload_field: 3, lanes: true, delays: false },
    Tube {
        kind: "utube",
        options: r#"{"storage_mode": "ready_buffer"}"#,
        payload_field: 3,
        lanes: true,
        delays: false,
    },
    Tube { kind: "utubettl", options: "{}", payload_field: 8, lanes: true, delays: true },
];

impl Tube {
    fn name(self) -> String {
        let mode = if self.options.contains("ready_buffer") { "-ready-buffer" } else { "" };
        format!("{}{mode}", self.kind)
    }
}

/// Settings with which snapshots and new journal files are never far.
const BUSY: [&str; 2] = [r#"checkpoint_wal_threshold = "64KiB""#, r#"wal_max_size = "32KiB""#];

/// Number of the error with which a server that cannot write refuses.
const WAL_IO: u32 = 40;

/// Two tests for each type of tube.
pub(crate) fn trials() -> Result<Vec<Trial>, String> {
    let seconds = number_from("LYCOSA_TEST_CRASH_SECONDS")?.unwrap_or(0);
    let share = |total: u64| total.div_ceil(TUBES.len() as u64);
    let kills = share(number_from("LYCOSA_TEST_CRASH_KILLS")?.unwrap_or(36));
    let faults = share(number_from("LYCOSA_TEST_CRASH_FAULTS")?.unwrap_or(10));
    let clock =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_err(|error| error.to_string())?;
    let seed = number_from("LYCOSA_TEST_SEED")?.unwrap_or(clock.as_nanos() as u64);
    let failed = move |reason: String| format!("{reason}\n  (LYCOSA_TEST_SEED={seed})").into();
    let kill = |tube: Tube| {
        Trial::test(format!("crash::{}", tube.name()), move || {
            torture(tube, Duration::from_secs(seconds), kills, &mut Dice::new(seed)).map_err(failed)
        })
    };
    let fail = |tube: Tube| {
        Trial::ignorable_test(format!("crash::disk::{}", tube.name()), move || {
            disk::torture(tube, faults, &mut Dice::new(seed)).map_err(failed)
        })
    };
    Ok(TUBES.into_iter().map(kill).chain(TUBES.into_iter().map(fail)).collect())
}

fn number_from(variable: &str) -> Result<Option<u64>, String> {
    match std::env::var(variable) {
        Ok(text) => text.parse().map(Some).map_err(|_| format!("{variable} is not a number: {text}")),
        Err(_) => Ok(None),
    }
}

/// A server with one tube, `t`.
fn server_with(tube: Tube, options: &[&str]) -> Result<Server, String> {
    let options = options.iter().map(|&option| option.to_owned()).collect();
    let server = Server::start(Peer::Lycosa, Setup { options, ..Setup::default() })?;
    let options: serde_json::Value = serde_json::from_str(tube.options).map_err(|error| error.to_string())?;
    let create = connection::body([
        (key::FUNCTION, Value::str("queue.create_tube")),
        (key::TUPLE, Value::Array(vec![Value::str("t"), Value::str(tube.kind), value_of(&options)?])),
    ]);
    ask(&mut open(&server)?, kind::CALL, &create)?;
    Ok(server)
}

fn torture(tube: Tube, how_long: Duration, kills: u64, dice: &mut Dice) -> Result<(), String> {
    let mut server = server_with(tube, if dice.chance(50) { &BUSY } else { &[] })?;
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let ends = Instant::now() + how_long;
    let mut round = 0;
    while u64::from(round) < kills.max(2) || Instant::now() < ends {
        round += 1;
        load_and_kill(&mut server, tube, &ledger, round, dice)
            .map_err(|reason| format!("round {round}: {reason}"))?;
        if dice.chance(50) {
            tear(&server).map_err(|error| format!("round {round}: cannot tear the log: {error}"))?;
        }
        server.launch().map_err(|reason| format!("round {round}, start: {reason}"))?;
        verify(&server, tube, &ledger)
            .map_err(|reason| format!("round {round}, after the start: {reason}"))?;
    }
    let ledger = ledger.lock().expect("no worker panicked");
    println!("    {} {}: {round} kills, {}", tube.kind, tube.options, ledger.summary());
    Ok(())
}

fn load_and_kill(
    server: &mut Server,
    tube: Tube,
    ledger: &Arc<Mutex<Ledger>>,
    round: u32,
    dice: &mut Dice,
) -> Result<(), String> {
    let workers = load(server, tube, ledger, round, dice)?;
    let span = (LOAD[1] - LOAD[0]).as_millis() as u64;
    thread::sleep(LOAD[0] + Duration::from_millis(dice.below(span)));
    server.check_alive()?;
    server.kill();
    join(workers, ledger)
}

/// Workers that work until the server is gone.
fn load(
    server: &Server,
    tube: Tube,
    ledger: &Arc<Mutex<Ledger>>,
    round: u32,
    dice: &mut Dice,
) -> Result<Vec<JoinHandle<()>>, String> {
    let mut workers = Vec::new();
    for number in 0..WORKERS {
        let worker =
            Worker::new(open(server)?, tube, number, round, Arc::clone(ledger), Dice::new(dice.next()));
        workers.push(thread::spawn(move || worker.work()));
    }
    Ok(workers)
}

fn join(workers: Vec<JoinHandle<()>>, ledger: &Mutex<Ledger>) -> Result<(), String> {
    for worker in workers {
        worker.join().map_err(|_| "a worker panicked".to_owned())?;
    }
    match ledger.lock().expect("no worker panicked").contradiction.take() {
        Some(reason) => Err(reason),
        None => Ok(()),
    }
}

/// What a crash in the middle of a write leaves behind: the newest log ends with half a block, unless it was ended.
fn tear(server: &Server) -> std::io::Result<()> {
    const HALF_A_BLOCK: [u8; 7] = [0xd5, 0xba, 0x0b, 0xab, 0xcd, 0x01, 0x02];
    let mut logs = Vec::new();
    for entry in std::fs::read_dir(server.data_folder())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "xlog") {
            logs.push(path);
        }
    }
    match logs.into_iter().max() {
        Some(newest) if !std::fs::read(&newest)?.ends_with(&MAGIC_END) => {
            File::options().append(true).open(newest)?.write_all(&HALF_A_BLOCK)
        }
        _ => Ok(()),
    }
}

/// Holds the server's data against the account, settles doubtful operations, and kicks buried tasks.
fn verify(server: &Server, tube: Tube, ledger: &Arc<Mutex<Ledger>>) -> Result<(), String> {
    let mut connection = open(server)?;
    let rows = rows(&mut connection, tube)?;
    let mut ledger = ledger.lock().expect("no worker panicked");
    ledger.reconcile(&rows, tube.delays)?;

    let owned = space_id(&mut connection, "_queue_taken_2")?;
    let taken = select(&mut connection, owned)?;
    if !taken.is_empty() {
        return Err(format!("{} tasks are still owned: {}", taken.len(), taken[0]));
    }
    let statistics =
        ask(&mut connection, kind::CALL, &connection::call("queue.statistics", vec![Value::str("t")]))?;
    let counted = |state: &str| rows.values().filter(|row| row.state == state).count() as i128;
    let wanted = [
        ("ready", counted("r")),
        ("delayed", counted("~")),
        ("buried", counted("!")),
        ("taken", 0),
        ("total", rows.len() as i128),
    ];
    for (name, wanted) in wanted {
        let shown = statistic(&statistics, name);
        // A delay may have passed between the two looks.
        let moves = tube.delays && (name == "ready" || name == "delayed");
        if shown != Some(wanted) && !moves {
            return Err(format!("statistics say {name} = {shown:?}, a recount says {wanted}"));
        }
    }
    let kick = connection::call("queue.tube.t:kick", vec![Value::Int(1_000_000)]);
    let kicked = ask(&mut connection, kind::CALL, &kick)?;
    if kicked != Value::Array(vec![Value::Int(counted("!"))]) {
        return Err(format!("kick says {kicked}, {} tasks were buried", counted("!")));
    }
    ledger.kicked();
    Ok(())
}

fn statistic(statistics: &Value, name: &str) -> Option<i128> {
    let field = |map: &Value, name: &str| match map {
        Value::Map(pairs) => {
            pairs.iter().find(|(key, _)| *key == Value::str(name)).map(|(_, value)| value.clone())
        }
        _ => None,
    };
    let tasks = field(statistics.as_array()?.first()?, "tasks")?;
    field(&tasks, name)?.as_int()
}

/// All tasks of the tube by their ids.
fn rows(connection: &mut Connection, tube: Tube) -> Result<HashMap<u64, Row>, String> {
    let space = space_id(connection, "t")?;
    let mut rows = HashMap::new();
    for tuple in select(connection, space)? {
        let field = |n: usize| tuple.as_array().and_then(|fields| fields.get(n));
        let id = field(0).and_then(Value::as_int);
        let state = field(1).and_then(Value::as_text);
        let payload = field(tube.payload_field).and_then(Value::as_text);
        let (Some(id), Some(state), Some(payload)) = (id, state, payload) else {
            return Err(format!("a task's row has another shape: {tuple}"));
        };
        rows.insert(id as u64, Row { state, payload });
    }
    Ok(rows)
}

fn space_id(connection: &mut Connection, name: &str) -> Result<i128, String> {
    const VSPACE: i128 = 281;
    const BY_NAME: i128 = 2;
    let body = connection::body([
        (key::SPACE, Value::Int(VSPACE)),
        (key::INDEX, Value::Int(BY_NAME)),
        (key::LIMIT, Value::Int(1)),
        (key::KEY, Value::Array(vec![Value::str(name)])),
    ]);
    let found = ask(connection, kind::SELECT, &body)?;
    let row = found.as_array().and_then(|rows| rows.first()?.as_array()?.first()?.as_int());
    row.ok_or_else(|| format!("there is no space {name}"))
}

fn select(connection: &mut Connection, space: i128) -> Result<Vec<Value>, String> {
    const ALL: i128 = 2;
    let body = connection::body([
        (key::SPACE, Value::Int(space)),
        (key::LIMIT, Value::Int(100_000_000)),
        (key::ITERATOR, Value::Int(ALL)),
        (key::KEY, Value::Array(Vec::new())),
    ]);
    match ask(connection, kind::SELECT, &body)? {
        Value::Array(rows) => Ok(rows),
        other => Err(format!("SELECT answered {other}")),
    }
}

fn open(server: &Server) -> Result<Connection, String> {
    Connection::open(server.address()).map_err(|error| format!("cannot connect: {error}"))
}

fn ask(connection: &mut Connection, kind: u32, body: &Value) -> Result<Value, String> {
    let reply = connection.ask(kind, body, REPLY_LIMIT)?;
    if reply.error != 0 {
        return Err(reply.describe());
    }
    Ok(reply.data())
}

/// Numbers from a seed (xorshift64*).
#[derive(Debug)]
pub(crate) struct Dice {
    state: u64,
}

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed | 1 }
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 11) % bound.max(1)
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
