//! A program with a task queue inside: no server, no socket, a data folder of its own.
//!
//! `cargo run -p lycosa-engine --example embed -- FOLDER` puts a task and works one off, each time that it is run. What it has
//! put survives its end, and what it held when it was killed is ready again at the next start.
//!
//! It takes no snapshots, so its journal only grows: a program that runs for long carries out
//! [`CheckpointOrder`]s, as the server and the simulator do.

use std::convert::Infallible;
use std::error::Error;
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use lycosa_engine::files::FileJournal;
use lycosa_engine::folder::{self, Opened};
use lycosa_engine::turn::{self, Host, Parts, Turn};
use lycosa_instance::{
    Called, Caller, CheckpointOrder, ConnectionSlot, Identity, Instance, Process, Settings,
};
use lycosa_journal::directory::Directory;
use lycosa_queue::{Configuration, Queue};
use lycosa_tuple::value::Value;
use uuid::Uuid;

/// The instance and what is around it.
pub struct Program {
    instance: Instance,
    turn: Turn,
    journal: FileJournal,
    caller: Caller,
}

/// A program without sockets has nobody to write to.
impl Host for Program {
    type Journal = FileJournal;
    type Stop = Infallible;

    fn parts(&mut self) -> Parts<'_, FileJournal> {
        Parts { instance: &mut self.instance, turn: &mut self.turn, journal: &mut self.journal }
    }

    fn order(&mut self, _: CheckpointOrder) -> Result<(), Infallible> {
        unreachable!("the settings ask for no checkpoints")
    }

    fn write(&mut self, _: ConnectionSlot) -> Result<(), Infallible> {
        Ok(())
    }
}

/// Microseconds since the epoch.
fn now() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)
}

impl Program {
    /// Opens the data of a folder, or begins new ones in an empty one.
    pub fn open(path: &Path) -> Result<Program, Box<dyn Error>> {
        let identity = Identity { instance: Uuid::from_u128(1), cluster: Uuid::from_u128(2), replica_id: 1 };
        // Holds the folder's lock: two programs, or a program and a server, cannot open one folder.
        let directory = Directory::open(path)?;
        let writer = lycosa_journal::writer::Settings::default();
        let Opened { store, vclock, log, .. } =
            folder::open(&directory, lycosa_store::Settings::default(), writer, &identity, now())?;
        // Ids of sessions and salts are secrets where clients connect; here nobody does.
        let queue = Queue::new(Configuration::default(), Box::new(|| *Uuid::from_u128(3).as_bytes()));
        let process = Process { id: std::process::id(), entropy: Box::new(|bytes| bytes.fill(0)) };
        let settings =
            Settings { checkpoint_interval: 0, checkpoint_wal_threshold: u64::MAX, ..Settings::default() };
        let mut instance = Instance::new(settings, identity, process, store, queue, vclock, now());
        instance.start(now())?;
        let caller = Caller { session: instance.open_session(), ..Caller::internal() };
        let turn = Turn::default();
        Ok(Program { instance, turn, journal: FileJournal::new(log), caller })
    }

    /// Calls a function of the queue. When it returns, what was done is on the disk.
    pub fn call(&mut self, name: &str, args: &[Value]) -> Result<Vec<Value>, Box<dyn Error>> {
        let mut out = Vec::new();
        let args = Value::array(args.iter().cloned()).encode();
        self.instance.set_now(now());
        let called = self.instance.call(&self.caller, name.as_bytes(), &args, &mut out);
        let Called::Done { count } = called.map_err(|error| error.message)? else {
            return Err("a caller that may not wait is never parked".into());
        };
        let done = self.instance.awaited();
        let Ok(_) = turn::end(self, now(), Instant::now());
        if !self.instance.is_durable(done).map_err(|error| error.message)? {
            return Err("the journal appends in the turn itself".into());
        }
        let mut values = lycosa_tuple::mp::Reader::new(&out);
        (0..count).map(|_| Ok(Value::read(&mut values)?)).collect()
    }

    /// Ends in order.
    pub fn close(mut self) -> Result<(), Box<dyn Error>> {
        Ok(self.journal.close()?)
    }
}

/// Puts a task with this text and works one off; what that was.
pub fn run(folder: &Path, text: &str) -> Result<Vec<Value>, Box<dyn Error>> {
    let mut program = Program::open(folder)?;
    let options = Value::map([("if_not_exists", true)]);
    program.call("queue.create_tube", &["mail".into(), "fifo".into(), options])?;
    program.call("queue.tube.mail:put", &[text.into()])?;
    let taken = program.call("queue.tube.mail:take", &[0_u32.into()])?;
    if let Some(Value::Array(task)) = taken.first() {
        program.call("queue.tube.mail:ack", &task[..1])?;
    }
    program.close()?;
    Ok(taken)
}

#[allow(dead_code, reason = "the test that runs the example has a main of its own")]
fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("which folder? an empty one begins a new queue")?;
    println!("worked off: {:?}", run(Path::new(&folder), "a letter")?);
    Ok(())
}
