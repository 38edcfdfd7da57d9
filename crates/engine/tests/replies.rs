//! The bytes that a turn writes, and the connections that get them.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use lycosa_engine::files::FileJournal;
use lycosa_engine::folder::{self, Opened};
use lycosa_engine::turn::{self, Host, MAX_WRITTEN, Parts, TurnState};
use lycosa_instance::{
    CheckpointOrder, ConnectionSlot, Identity, Instance, Origin, Process, Settings, Trust,
};
use lycosa_iproto::frame::{self, Split};
use lycosa_iproto::request::{Body, encode};
use lycosa_journal::directory::Directory;
use lycosa_journal::memory::MemoryDisk;
use lycosa_queue::{Configuration, Queue};
use lycosa_tuple::value::Value;
use uuid::Uuid;

const NOW: u64 = 1_700_000_000_000_000;

/// An instance whose clients read everything that is written.
struct World {
    instance: Instance,
    turn: TurnState,
    journal: FileJournal,
    /// The writes since the last turn began: where, and how many bytes.
    writes: Vec<(ConnectionSlot, usize)>,
}

impl Host for World {
    type Journal = FileJournal;
    type Stop = Infallible;

    fn parts(&mut self) -> Parts<'_, FileJournal> {
        Parts { instance: &mut self.instance, turn: &mut self.turn, journal: &mut self.journal }
    }

    fn order(&mut self, _: CheckpointOrder) -> Result<(), Infallible> {
        unreachable!("no checkpoint is due")
    }

    fn write(&mut self, slot: ConnectionSlot) -> Result<(), Infallible> {
        let length = self.instance.output(slot).len();
        self.writes.push((slot, length));
        self.instance.consume(slot, length);
        Ok(())
    }
}

impl World {
    fn new() -> Self {
        let identity = Identity { instance: Uuid::from_u128(1), cluster: Uuid::from_u128(2), replica_id: 1 };
        let directory = Directory::on(Arc::new(MemoryDisk::new()));
        let (store, writer) = Default::default();
        let Opened { store, vclock, log, .. } =
            folder::open(&directory, store, writer, &identity, NOW).unwrap();
        let queue = Queue::new(Configuration::default(), Box::new(|| *Uuid::from_u128(3).as_bytes()));
        let process = Process { id: 1, entropy: Box::new(|bytes| bytes.fill(0)) };
        let settings = Settings::default();
        let mut instance = Instance::new(settings, identity, process, store, queue, vclock, NOW);
        instance.start(NOW).unwrap();
        Self { instance, turn: TurnState::default(), journal: FileJournal::new(log), writes: Vec::new() }
    }

    /// A client that has read its greeting.
    fn connect(&mut self) -> ConnectionSlot {
        let origin = Origin { peer: "a client".to_owned(), trust: Trust::Admin };
        let slot = self.instance.connect(origin, NOW).unwrap();
        while self.end_turn() {}
        slot
    }

    fn send(&mut self, slot: ConnectionSlot, body: &Body<'_>) {
        let mut bytes = Vec::new();
        encode(&mut bytes, 1, body);
        let Ok(Split::Frame { content, .. }) = frame::split(&bytes, bytes.len()) else {
            panic!("a whole frame")
        };
        self.instance.handle_frame(slot, content, NOW).unwrap();
    }

    /// Ends a turn. Whether the next one has to follow at once.
    fn end_turn(&mut self) -> bool {
        self.writes.clear();
        let Ok(ended) = turn::end(self, NOW, Instant::now());
        ended.next.is_some_and(|next| next <= NOW)
    }
}

#[test]
fn a_turn_writes_for_some_connections_and_the_next_one_for_those_behind() {
    let mut world = World::new();
    let slots: Vec<_> = (0..150).map(|_| world.connect()).collect();
    slots.iter().for_each(|&slot| world.send(slot, &Body::Ping));
    let mut written = Vec::new();
    let mut turns = 0;
    let mut follows = true;
    while follows {
        follows = world.end_turn();
        turns += 1;
        assert!(world.writes.len() <= 64, "{} writes in a turn", world.writes.len());
        written.extend(world.writes.iter().map(|(slot, _)| *slot));
        assert_eq!(follows, written.len() < slots.len(), "a turn follows while replies are left");
    }
    assert_eq!((written, turns), (slots, 3), "in the order in which they were answered");
}

#[test]
fn a_large_reply_leaves_in_pieces_between_which_others_are_answered() {
    const TASKS: u32 = 400;
    let mut world = World::new();
    let (reader, other) = (world.connect(), world.connect());
    let args = Value::array([Value::from("t"), "fifo".into()]).encode();
    world.send(reader, &Body::Call { name: b"queue.create_tube", args: &args });
    let args = Value::array([Value::from("x".repeat(10_000).as_str())]).encode();
    for _ in 0..TASKS {
        world.send(reader, &Body::Call { name: b"queue.tube.t:put", args: &args });
    }
    while world.end_turn() {}
    let space = world.instance.store().space_by_name("t").unwrap().id();
    let select = Body::Select { space, index: 0, limit: u32::MAX, offset: 0, iterator: 2, key: &[0x90] };
    world.send(reader, &select);
    let (mut total, mut turns) = (0, 0);
    let mut follows = true;
    while follows {
        world.send(other, &Body::Ping);
        follows = world.end_turn();
        let of =
            |wanted| world.writes.iter().filter(move |(slot, _)| *slot == wanted).map(|(_, bytes)| *bytes);
        assert_eq!(
            of(other).count(),
            1,
            "the other connection is answered in every turn: {:?}",
            world.writes
        );
        let bytes = of(reader).sum::<usize>();
        assert!(bytes < 2 * MAX_WRITTEN, "{bytes} bytes in a turn");
        total += bytes;
        turns += 1;
    }
    assert!(total > TASKS as usize * 10_000 && turns > 5, "{total} bytes in {turns} turns");
    assert_eq!(world.instance.pending_bytes(reader), 0);
}
