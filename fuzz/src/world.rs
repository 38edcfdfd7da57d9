//! A whole instance for a target to be rude to: data, connections, a journal in memory, time. Its turn is the server's.

use std::convert::Infallible;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use lycosa_engine::turn::{self, Host, Parts, TurnState};
use lycosa_instance::{
    CheckpointOrder, ConnectionSlot, Identity, Instance, Origin, Process, Settings, Trust,
};
use lycosa_iproto::frame::{Split, split};
use lycosa_iproto::reply;
use lycosa_iproto::request::{self, Body};
use lycosa_iproto::vclock::Vclock;
use lycosa_journal::disk::Disk;
use lycosa_journal::memory::MemoryDisk;
use lycosa_journal::meta::FileKind;
use lycosa_journal::reader::{FileReader, Step};
use lycosa_queue::{Configuration, Queue};
use lycosa_store::{Budget, SpaceId, Store, system};
use lycosa_tuple::mp::Reader;
use lycosa_tuple::tuple::TupleRef;
use lycosa_tuple::value::Value;
use uuid::Uuid;

use crate::checkpoint::{STEP, Snapshots};
use crate::corpus;
use crate::indexes;
use crate::journal::MemoryJournal;
use crate::replay::{SnapshotRows, loaded, new_replay, reloaded, replay_rows, snapshot};

/// Lowest bits of a step's control byte: which connection. `admin`, two of `guest` on loopback, one from elsewhere.
const CONNECTIONS: [Trust; 4] = [Trust::Admin, Trust::Loopback, Trust::Loopback, Trust::Nobody];
pub(crate) const ADMIN: u8 = 0;
pub(crate) const GUEST: u8 = 1;
pub(crate) const SECOND_GUEST: u8 = 2;

/// Next bits of a control byte: what happens after the frame. With none of them the next frame comes in the same turn.
const ACTION: u8 = 0b111 << 2;
pub(crate) const SYNC: u8 = 3 << 2;
const SECOND_PASSES: u8 = 4 << 2;
const RECONNECT: u8 = 5 << 2;
const FAILS: u8 = 6 << 2;
const HOUR_PASSES: u8 = 7 << 2;

/// Turns that may pass until nothing more is to be done at once.
const MAX_TURNS: usize = 100_000;

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

/// One of this number of inputs is loaded from a snapshot too.
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

/// An instance and its surroundings.
pub(crate) struct World {
    instance: Instance,
    turn: TurnState,
    journal: MemoryJournal,
    clients: Vec<Client>,
    snapshots: Snapshots,
    /// The turn has ordered something of the writer of snapshots.
    has_ordered: bool,
    now: u64,
    clock: Instant,
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
        World {
            instance,
            turn: TurnState::default(),
            journal: MemoryJournal::default(),
            clients,
            snapshots: Snapshots::default(),
            has_ordered: false,
            now,
            clock: Instant::now(),
        }
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
        match control & FAILURE {
            FAILURE if control & ACTION == FAILS => self.journal.fail(),
            SWITCH if control & ACTION == RECONNECT => {
                let read_only = !self.instance.standing().is_read_only;
                self.instance.set_read_only(read_only, self.now);
            }
            CHECKPOINT => {
                self.instance.request_checkpoint();
            }
            LOST_CHECKPOINT if control & ACTION == FAILS => {
                self.snapshots.fail(&mut self.instance, self.now);
            }
            _ => {}
        }
        self.turn.received(1);
        match control & ACTION {
            0 => {}
            SYNC => self.sync(),
            SECOND_PASSES => self.pass(SECOND),
            HOUR_PASSES => self.pass(3600 * SECOND),
            RECONNECT => {
                self.instance.disconnect(self.clients[which].slot, self.now);
                self.clients[which] = connect(&mut self.instance, CONNECTIONS[which], self.now);
                self.end_turn();
            }
            _ => _ = self.end_turn(),
        }
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
        self.rest(|next, now| next.is_some_and(|next| next <= now));
    }

    /// Ends a turn. Returns when the next thing is due.
    fn end_turn(&mut self) -> Option<u64> {
        self.clock += Duration::from_micros(50);
        let (now, clock) = (self.now, self.clock);
        let Ok(ended) = turn::end(self, now, clock);
        ended.next
    }

    /// Ends turns as long as `goes_on` says so of the time when the next thing is due, and of the present time.
    fn rest(&mut self, goes_on: impl Fn(Option<u64>, u64) -> bool) {
        for _ in 0..MAX_TURNS {
            let next = self.end_turn();
            if !goes_on(next, self.now) {
                return;
            }
        }
        panic!("there is always something more to do at once");
    }

    /// The journal takes everything and makes it durable.
    fn sync(&mut self) {
        self.end_turn();
        while self.journal.confirm() {
            self.end_turn();
        }
    }

    /// Lets all work end and checks the invariants of the end.
    pub(crate) fn end(mut self) {
        for _ in 0..MAX_TURNS {
            self.has_ordered = false;
            self.sync();
            if !self.has_ordered && self.turn.is_idle() && !self.instance.has_open_batch() {
                break;
            }
        }
        let unanswered: usize = self.clients.iter().map(|client| client.unanswered).sum();
        assert_eq!(unanswered, self.instance.status().waiting_calls, "who does not wait has been answered");
        assert!(self.instance.is_drained());
        indexes::check(self.instance.store());
        if self.journal.has_failed() || self.journal.rows().is_empty() {
            return;
        }
        let mut replay = loaded(&DATA).expect("the data were loaded before");
        if let Err(error) = replay_rows(&mut replay, self.journal.rows()) {
            panic!("a row of the journal cannot be applied: {error}");
        }
        let mut store = replay.finish().expect("the journal makes sound data");
        assert_eq!(store.digest(), self.instance.store().digest(), "the journal makes the same data");
        // Loading costs more than all else: a part of the inputs must do.
        if !self.journal.rows().len().is_multiple_of(RELOADED) {
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

impl Host for World {
    type Journal = MemoryJournal;
    type Stop = Infallible;

    fn parts(&mut self) -> Parts<'_, MemoryJournal> {
        Parts { instance: &mut self.instance, turn: &mut self.turn, journal: &mut self.journal }
    }

    fn checkpoint_step(&mut self) -> Budget<'static> {
        STEP
    }

    fn order(&mut self, order: CheckpointOrder) -> Result<(), Infallible> {
        self.has_ordered = true;
        self.snapshots.obey(order, &mut self.instance, self.now);
        Ok(())
    }

    /// Reads what may leave.
    fn write(&mut self, slot: ConnectionSlot) -> Result<(), Infallible> {
        let Some(client) = self.clients.iter_mut().find(|client| client.slot == slot) else { return Ok(()) };
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
        Ok(())
    }
}

fn connect(instance: &mut Instance, trust: Trust, now: u64) -> Client {
    let origin = Origin { peer: String::new(), trust };
    let slot = instance.connect(origin, now).expect("there is room for a few connections");
    let greeting = instance.output(slot).len();
    instance.consume(slot, greeting);
    Client { slot, unanswered: 0 }
}
