//! A program with a task queue inside: no server, no socket, a data folder of its own.
//!
//! `cargo run -p lycosa-engine --example embed -- FOLDER` puts a task and works one off, each time that it is run. What it has
//! put survives its end, and what it held when it was killed is ready again at the next start.
//!
//! Snapshots are written in the turn itself, one step in each call: a program that may not wait for the disk then
//! carries out the orders in a thread, as the server does.

use std::convert::Infallible;
use std::error::Error;
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use lycosa_engine::files::FileJournal;
use lycosa_engine::folder::{self, Opened};
use lycosa_engine::snapshots::{self, Outcome, Snapshots, Surroundings};
use lycosa_engine::turn::{self, Host, Parts, TurnState};
use lycosa_instance::{
    Called, Caller, CheckpointOrder, ConnectionSlot, Identity, Instance, Process, Settings,
};
use lycosa_journal::directory::Directory;
use lycosa_queue::{Configuration, Queue};
use lycosa_tuple::value::Value;
use uuid::Uuid;

/// The instance and its surroundings.
pub struct Program {
    instance: Instance,
    turn: TurnState,
    journal: FileJournal,
    snapshots: Snapshots<Disk>,
    caller: Caller,
}

/// A disk without a check of its free space.
#[derive(Debug)]
pub struct Disk;

impl Surroundings for Disk {
    fn free_bytes(&self) -> Option<u64> {
        None
    }
}

/// A program without sockets has no peers to write to.
impl Host for Program {
    type Journal = FileJournal;
    type Stop = Infallible;

    fn parts(&mut self) -> Parts<'_, FileJournal> {
        Parts { instance: &mut self.instance, turn: &mut self.turn, journal: &mut self.journal }
    }

    fn order(&mut self, order: CheckpointOrder) -> Result<(), Infallible> {
        let mut news = Vec::new();
        self.snapshots.carry_out(order, &mut news);
        for news in news {
            if let Outcome::Failed { cause, .. } = snapshots::tell(&mut self.instance, news, now()) {
                eprintln!("no snapshot could be taken: {cause}");
            }
        }
        Ok(())
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
    /// Opens the data of a folder, or begins new ones in an empty one. A snapshot is taken when the journal since the
    /// last one has this number of bytes.
    pub fn open(path: &Path, checkpoint_wal_threshold: u64) -> Result<Program, Box<dyn Error>> {
        let identity = Identity { instance: Uuid::from_u128(1), cluster: Uuid::from_u128(2), replica_id: 1 };
        // Holds the folder's lock: two programs, or a program and a server, cannot open one folder.
        let directory = Directory::open(path)?;
        let writer = lycosa_journal::writer::Settings::default();
        let Opened { store, vclock, log, snapshot } =
            folder::open(&directory, lycosa_store::Settings::default(), writer, &identity, now())?;
        // Ids of sessions and salts are secrets where clients connect; this program has none.
        let queue = Queue::new(Configuration::default(), Box::new(|| *Uuid::from_u128(3).as_bytes()));
        let process = Process { id: std::process::id(), entropy: Box::new(|bytes| bytes.fill(0)) };
        let settings = Settings { checkpoint_wal_threshold, ..Settings::default() };
        let mut instance = Instance::new(settings, identity, process, store, queue, vclock, now());
        let settings = snapshots::Settings {
            directory,
            reserve: 0,
            look_after: snapshots::LOOK_AFTER,
            instance: identity.instance,
            sound: snapshot,
        };
        let snapshots = Snapshots::new(settings, Disk);
        instance.set_checkpoint_base(snapshot, snapshots.files()?);
        instance.start(now())?;
        let caller = Caller { session: instance.open_session(), ..Caller::internal() };
        let turn = TurnState::default();
        Ok(Program { instance, turn, journal: FileJournal::new(log), snapshots, caller })
    }

    /// Calls a function of the queue. When it returns, its changes are on the disk.
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
    let mut program = Program::open(folder, 16 << 20)?;
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
