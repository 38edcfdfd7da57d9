//! A whole instance for a target to be rude to: data, connections, a journal in memory, time.

use std::sync::LazyLock;

use lycosa_instance::{Batch, Buffers, ConnectionSlot, Identity, Instance, Origin, Process, Settings, Trust};
use lycosa_iproto::frame::{Split, split};
use lycosa_iproto::reply;
use lycosa_iproto::request::{self, Body};
use lycosa_iproto::vclock::Vclock;
use lycosa_journal::disk::Disk;
use lycosa_journal::memory::MemoryDisk;
use lycosa_journal::meta::FileKind;
use lycosa_journal::reader::{FileReader, Step};
use lycosa_queue::{Configuration, Queue};
use lycosa_store::{SpaceId, Store, system};
use lycosa_tuple::mp::Reader;
use lycosa_tuple::tuple::TupleRef;
use lycosa_tuple::value::Value;
use uuid::Uuid;

use crate::checkpoint::Snapshots;
use crate::corpus;
use crate::indexes;
use crate::replay::{SnapshotRows, loaded, new_replay, reloaded, replay_rows, snapshot};

/// Lowest bits of a step's control byte: which connection. `admin`, two of `guest` on loopback, one from elsewhere.
const CONNECTIONS: [Trust; 4] = [Trust::Admin, Trust::Loopback, Trust::Loopback, Trust::Nobody];
pub(crate) const ADMIN: u8 = 0;
pub(crate) const GUEST: u8 = 1;
pub(crate) const SECOND_GUEST: u8 = 2;

/// Next bits of a control byte: what happens after the frame.
const ACTION: u8 = 0b111 << 2;
pub(crate) const SYNC: u8 = 3 << 2;
const SECOND_PASSES: u8 = 4 << 2;
const RECONNECT: u8 = 5 << 2;
const APPEND: u8 = 6 << 2;
const HOUR_PASSES: u8 = 7 << 2;

/// All of these bits: the journal fails.
const FAILURE: u8 = 0b111 << 5;
/// Of these bits: the configuration is applied again, with the other value of `read_only`.
const SWITCH: u8 = 0b110 << 5;
/// Of these bits: a checkpoint is asked for.
pub(crate) const CHECKPOINT: u8 = 0b101 << 5;
/// Of these bits: the checkpoint under way fails.
const LOST_CHECKPOINT: u8 = 0b100 << 5;

/// One second in microseconds.
const SECOND: u64 = 1_000_000;

/// Of so many inputs about one is loaded from a snapshot too.
const RELOADED: usize = 4;

/// Bytes of a frame that our encoder writes before its content.
const FRAME_PREFIX: usize = 5;

/// Data that every world begins with, as rows of a snapshot: those of the recorded sessions, and tubes.
static DATA: LazyLock<SnapshotRows> = LazyLock::new(|| {
    let mut world = World::over(recorded());
    for kind in ["fifo", "fifottl", "limfifottl", "utube", "utubettl"] {
        let options = Value::map([("capacity", 3)]);
        let args = Value::from(vec![kind.into(), kind.into(), options]).encode();
        let mut frame = Vec::new();
        request::encode(&mut frame, 1, &Body::Call { name: b"queue.create_tube", args: &args });
        world.step(ADMIN | SYNC, &frame[FRAME_PREFIX..]);
    }
    let mut rows = snapshot(world.instance.store());
    rows.retain(|(space, tuple)| !is_ballast(*space, tuple));
    rows
});

/// Built-in collations and functions, and grants on them: most of a new instance's rows, which say little each.
fn is_ballast(space: SpaceId, tuple: &[u8]) -> bool {
    const LAST_COLLATION: u64 = 3;
    const LAST_FUNCTION: u64 = 1;
    const BUILT_IN_FUNCTIONS: u64 = 67;
    let tuple = TupleRef::trusted(tuple);
    let number = |field| tuple.field(field).and_then(|value| Reader::new(value).uint().ok()).unwrap_or(0);
    match space {
        system::COLLATION => number(0) > LAST_COLLATION,
        system::FUNC => (LAST_FUNCTION + 1..=BUILT_IN_FUNCTIONS).contains(&number(0)),
        system::PRIV => {
            let is_function = tuple.field(2) == Some(b"\xa8function");
            is_function && (LAST_FUNCTION + 1..=BUILT_IN_FUNCTIONS).contains(&number(3))
        }
        _ => false,
    }
}

/// The data of the recorded sessions.
fn recorded() -> Store {
    let bytes = corpus::recorded_data().expect("the corpus has data");
    let disk = MemoryDisk::with_files([("snapshot".to_owned(), bytes)]);
    let file = disk.open("snapshot").expect("the file is there");
    let mut reader = FileReader::open(file, FileKind::Snapshot).expect("a snapshot");
    let mut replay = new_replay();
    while let Step::Block(block) = reader.next_block().expect("the disk works") {
        replay_rows(&mut replay, block.rows).expect("a sound snapshot");
    }
    replay.finish().expect("sound data")
}

/// A connection and how many requests of it have not been answered.
struct Client {
    slot: ConnectionSlot,
    unanswered: usize,
}

/// An instance and what is around it.
pub(crate) struct World {
    instance: Instance,
    clients: Vec<Client>,
    /// Batches that the journal has taken and not made durable, the oldest first.
    batches: Vec<Batch>,
    /// All rows that the journal got.
    journal: Vec<u8>,
    snapshots: Snapshots,
    has_failed: bool,
    now: u64,
}

impl World {
    pub(crate) fn new() -> World {
        let replay = loaded(&DATA).expect("the data were loaded before");
        World::over(replay.finish().expect("the data were loaded before"))
    }

    fn over(store: Store) -> World {
        let now = 1_700_000_000 * SECOND;
        let mut ids = 0_u128;
        let new_session_id = Box::new(move || {
            ids += 1;
            ids.to_be_bytes()
        });
        let queue = Queue::new(Configuration::default(), new_session_id);
        let mut vclock = Vclock::new();
        vclock.set(1, 225).expect("1 is an id");
        let settings = Settings { max_waiting: 16, ..Settings::default() };
        let process = Process { id: 1, entropy: Box::new(|bytes| bytes.fill(0x5a)) };
        let identity = Identity { instance: Uuid::nil(), cluster: Uuid::nil(), replica_id: 1 };
        let mut instance = Instance::new(settings, identity, process, store, queue, vclock, now);
        instance.start(now).expect("the queue starts on sound data");
        let clients = CONNECTIONS.map(|trust| connect(&mut instance, trust, now)).into();
        let (batches, journal, snapshots) = (Vec::new(), Vec::new(), Snapshots::default());
        World { instance, clients, batches, journal, snapshots, has_failed: false, now }
    }

    /// Hands the content of a frame to the instance and lets happen what the control byte says.
    pub(crate) fn step(&mut self, control: u8, frame: &[u8]) {
        let which = usize::from(control) % CONNECTIONS.len();
        self.clients[which].unanswered += 1;
        let slot = self.clients[which].slot;
        if let Err(broken) = self.instance.handle_frame(slot, frame, self.now) {
            self.instance.refuse(slot, &broken);
            assert!(self.instance.is_paused(slot) && self.instance.wants_close(slot));
        }
        if self.instance.take_replica(slot).is_some() {
            // The stream belongs to replication now, whose machines have tests of their own.
            self.instance.disconnect(slot, self.now);
            self.clients[which] = connect(&mut self.instance, CONNECTIONS[which], self.now);
        }
        match control & ACTION {
            SYNC => self.sync(),
            SECOND_PASSES => self.pass(SECOND),
            HOUR_PASSES => self.pass(3600 * SECOND),
            APPEND => {
                self.append();
            }
            RECONNECT => {
                self.instance.disconnect(self.clients[which].slot, self.now);
                self.clients[which] = connect(&mut self.instance, CONNECTIONS[which], self.now);
            }
            _ => {}
        }
        match control & FAILURE {
            FAILURE if control & ACTION == APPEND => {
                self.has_failed = true;
                self.instance.handle_failed("the disk is gone");
                self.batches.clear();
            }
            SWITCH if control & ACTION == RECONNECT => {
                let read_only = !self.instance.status().is_read_only;
                self.instance.set_read_only(read_only, self.now);
            }
            CHECKPOINT => {
                self.instance.request_checkpoint();
            }
            LOST_CHECKPOINT if control & ACTION == APPEND => {
                self.snapshots.fail(&mut self.instance, self.now);
            }
            _ => {}
        }
        self.snapshots.step(&mut self.instance, self.now);
        self.read_replies();
    }

    /// The stream of a connection cannot be followed.
    pub(crate) fn break_stream(&mut self, error: &lycosa_iproto::frame::FrameError) {
        let slot = self.clients[0].slot;
        self.clients[0].unanswered += 1;
        self.instance.refuse(slot, &(*error).into());
        assert!(self.instance.is_paused(slot) && self.instance.wants_close(slot));
    }

    fn pass(&mut self, time: u64) {
        self.now += time;
        while self.instance.tick(self.now).is_some_and(|next| next <= self.now) {}
    }

    /// The journal takes a batch. False if there is none.
    fn append(&mut self) -> bool {
        let Some(batch) = self.instance.poll_append() else { return false };
        self.journal.extend_from_slice(&batch.rows);
        assert_eq!(batch.ends.last().map_or(0, |&end| end as usize), batch.rows.len());
        self.batches.push(batch);
        true
    }

    /// The journal takes everything and makes it durable.
    fn sync(&mut self) {
        while self.append() {}
        for Batch { rows, ends, lsn, .. } in std::mem::take(&mut self.batches) {
            self.instance.handle_durable(lsn, Buffers { rows, ends });
        }
    }

    /// Reads what may leave.
    fn read_replies(&mut self) {
        while let Some(slot) = self.instance.poll_ready() {
            let Some(client) = self.clients.iter_mut().find(|client| client.slot == slot) else { continue };
            let output = self.instance.output(slot);
            let mut rest = output;
            while let Ok(Split::Frame { content, consumed }) = split(rest, usize::MAX) {
                reply::decode(content).expect("a reply");
                client.unanswered = client.unanswered.checked_sub(1).expect("one reply for a request");
                rest = &rest[consumed..];
            }
            assert!(rest.is_empty(), "whole replies leave");
            let length = output.len();
            self.instance.consume(slot, length);
        }
        while self.instance.poll_log().is_some() {}
    }

    /// Lets everything come to its end and checks what has to hold then.
    pub(crate) fn end(mut self) {
        self.sync();
        while self.snapshots.step(&mut self.instance, self.now) {
            self.sync();
        }
        self.read_replies();
        let unanswered: usize = self.clients.iter().map(|client| client.unanswered).sum();
        assert_eq!(unanswered, self.instance.status().waiting_calls, "who does not wait has been answered");
        assert!(self.instance.is_drained());
        indexes::check(self.instance.store());
        if self.has_failed || self.journal.is_empty() {
            return;
        }
        let mut replay = loaded(&DATA).expect("the data were loaded before");
        if let Err(error) = replay_rows(&mut replay, &self.journal) {
            panic!("a row of the journal cannot be applied: {error}");
        }
        let mut store = replay.finish().expect("the journal makes sound data");
        assert_eq!(store.digest(), self.instance.store().digest(), "the journal makes the same data");
        // Loading costs more than all else: a part of the inputs must do.
        if !self.journal.len().is_multiple_of(RELOADED) {
            return;
        }
        match reloaded(&store) {
            Ok(again) => assert_eq!(again.digest(), store.digest(), "a snapshot holds all data"),
            Err(error) => panic!("a snapshot cannot be loaded: {error}"),
        }
        // The queue may find its spaces spoilt by a client who may do everything.
        let _ = Queue::new(Configuration::default(), Box::new(|| [7; 16])).start(&mut store, self.now);
    }
}

fn connect(instance: &mut Instance, trust: Trust, now: u64) -> Client {
    let origin = Origin { peer: String::new(), trust };
    let slot = instance.connect(origin, now).expect("there is room for a few connections");
    let greeting = instance.output(slot).len();
    instance.consume(slot, greeting);
    Client { slot, unanswered: 0 }
}
