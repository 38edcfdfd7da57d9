//! Cycles of put, take and ack through the only member of a group, and through a single server, for a count of instructions.
//!
//! The program is the loop of a server without sockets, files and threads: eight connections with 32 requests under way on each, turn by
//! turn, every reply checked. Nothing depends on time or on other processes, so two runs of one binary execute the same
//! instructions. Valgrind counts those below [`turn_counted`]: the instance, the turn, and in a group the node with its entries. The
//! disk of the log is left out, as a single server's journal is, and so are messages to other members.
//!
//! ```sh no_run
//! cargo build --release --package lycosa-engine --example group_cycles
//! valgrind --tool=callgrind --collect-atstart=no '--toggle-collect=*turn_counted*' \
//!     target/release/examples/group_cycles 2 fifo
//! ```
//!
//! The first argument is the level of the group; 0 is a single server. At level 1 owners are rows, from 2 on they travel beside the rows.
//! The second is the type of the tube.

#[path = "../../instance/examples/load/mod.rs"]
mod load;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lycosa_engine::group::{self, Done, GroupDisk, GroupJournal, NewGroup, Order};
use lycosa_engine::journal::{Journal, News, Pace};
use lycosa_engine::turn::{self, Host, Parts, TurnState};
use lycosa_instance::{
    Batch, Buffers, CheckpointOrder, Confirmed, ConnectionSlot, Identity, Instance, Lsn, Origin, Process,
    Settings, Trust,
};
use lycosa_iproto::frame::{DEFAULT_LIMIT, Split, split};
use lycosa_iproto::greeting::GREETING_SIZE;
use lycosa_iproto::vclock::Vclock;
use lycosa_journal::directory::Directory;
use lycosa_journal::memory::MemoryDisk;
use lycosa_queue::{Configuration, Queue, Seconds};
use lycosa_store::Store;
use uuid::Uuid;

use crate::load::{CONNECTIONS, COUNTED, Client, Form, START, STEPS, TURN, WARMUP, create_tube, values};

const IDENTITY: Identity =
    Identity { instance: Uuid::from_u128(1), cluster: Uuid::from_u128(2), replica_id: 1 };
const GROUP: Uuid = Uuid::from_u128(3);

type Failure = Box<dyn Error>;

/// The log of a single server: what it takes is durable.
#[derive(Default)]
struct AtOnce(VecDeque<News>);

impl Journal for AtOnce {
    fn pace(&self) -> Pace {
        Pace::Pipelined(1)
    }

    fn submit(&mut self, Batch { rows, ends, lsn, .. }: Batch) {
        self.0.push_back(News::Durable { lsn, buffers: Buffers { rows, ends } });
    }

    fn poll(&mut self) -> Option<News> {
        self.0.pop_front()
    }
}

/// The journal of a server.
enum Log {
    Single(AtOnce),
    Member(Box<GroupJournal>),
}

impl Journal for Log {
    fn pace(&self) -> Pace {
        match self {
            Self::Single(log) => log.pace(),
            Self::Member(log) => log.pace(),
        }
    }

    fn submit(&mut self, batch: Batch) {
        match self {
            Self::Single(log) => log.submit(batch),
            Self::Member(log) => log.submit(batch),
        }
    }

    fn poll(&mut self) -> Option<News> {
        match self {
            Self::Single(log) => log.poll(),
            Self::Member(log) => log.poll(),
        }
    }

    fn read(&mut self, lsn: Lsn) {
        if let Self::Member(log) = self {
            log.read(lsn);
        }
    }
}

/// An instance with its journal.
struct Server {
    instance: Instance,
    log: Log,
    turn: TurnState,
    disk: Option<GroupDisk>,
    /// What the connections were sent.
    sent: Vec<u8>,
    clock: Instant,
}

impl Host for Server {
    type Journal = Log;
    type Stop = Infallible;

    fn parts(&mut self) -> Parts<'_, Log> {
        Parts { instance: &mut self.instance, turn: &mut self.turn, journal: &mut self.log }
    }

    fn order(&mut self, _: CheckpointOrder) -> Result<(), Infallible> {
        Ok(())
    }

    fn write(&mut self, slot: ConnectionSlot) -> Result<(), Infallible> {
        let ready = self.instance.output(slot);
        let length = ready.len();
        self.sent.extend_from_slice(ready);
        self.instance.consume(slot, length);
        Ok(())
    }
}

/// What a turn begins with.
enum Input<'a> {
    Frames(ConnectionSlot, &'a [u8]),
    Written(Vec<Done>),
    Time,
}

impl Server {
    fn new(data: Option<Confirmed>, log: Log, disk: Option<GroupDisk>, now: u64) -> Result<Self, Failure> {
        let Confirmed { store, vclock } = match data {
            Some(data) => data,
            None => {
                let mut store = Store::new(lycosa_store::Settings::default());
                store.bootstrap(&IDENTITY.cluster.to_string(), &IDENTITY.instance.to_string())?;
                Confirmed { store, vclock: Vclock::new() }
            }
        };
        let mut sessions = 0_u128;
        let new_session_id = Box::new(move || {
            sessions += 1;
            sessions.to_be_bytes()
        });
        let is_member = matches!(log, Log::Member(_));
        let ttr = is_member.then_some(Seconds::from_double(60.0));
        let queue = Queue::new(Configuration { ttr, in_replicaset: is_member }, new_session_id);
        let process = Process { id: 1, entropy: Box::new(|bytes| bytes.fill(7)) };
        let mut instance = Instance::new(Settings::default(), IDENTITY, process, store, queue, vclock, now);
        if is_member {
            instance.join_group(now);
        } else {
            instance.start(now)?;
        }
        let (turn, clock) = (TurnState::default(), Instant::now());
        Ok(Self { instance, log, turn, disk, sent: Vec::new(), clock })
    }

    fn journal(&mut self) -> Option<&mut GroupJournal> {
        match &mut self.log {
            Log::Member(journal) => Some(journal),
            Log::Single(_) => None,
        }
    }
}

/// [`turn`], in which instructions are counted.
#[inline(never)]
fn turn_counted(server: &mut Server, input: Input<'_>, now: u64) -> Vec<Order> {
    let left = turn_of(server, input, now);
    // Without this the two functions end up as one.
    std::hint::black_box(&server.sent);
    left
}

#[inline(never)]
fn turn_of(server: &mut Server, input: Input<'_>, now: u64) -> Vec<Order> {
    match input {
        Input::Frames(slot, bytes) => {
            let mut rest = bytes;
            let mut received = 0;
            while let Ok(Split::Frame { content, consumed }) = split(rest, DEFAULT_LIMIT) {
                if server.instance.handle_frame(slot, content, now).is_err() {
                    break;
                }
                received += 1;
                rest = &rest[consumed..];
            }
            server.instance.account_output(slot);
            server.turn.received(received);
        }
        Input::Written(done) => {
            if let Some(journal) = server.journal() {
                done.into_iter().for_each(|done| journal.handle(done));
            }
        }
        Input::Time => {
            if let Some(journal) = server.journal() {
                journal.tick(now - START * 1_000_000);
            }
        }
    }
    let clock = server.clock + Duration::from_micros(now - START * 1_000_000);
    let Ok(_) = turn::end(server, now, clock);
    left(server)
}

fn left(server: &mut Server) -> Vec<Order> {
    let Some(journal) = server.journal() else { return Vec::new() };
    // The only member has no other to tell.
    while journal.poll_message().is_some() {}
    std::iter::from_fn(|| journal.poll_order()).collect()
}

/// A turn of a server.
type Turn = fn(&mut Server, Input<'_>, u64) -> Vec<Order>;

/// The server, and the time.
struct World {
    server: Server,
    now: u64,
}

impl World {
    /// A single server if `level` is 0, else the only member of a group of that level.
    fn new(level: u32) -> Result<Self, Failure> {
        let now = START * 1_000_000;
        if level == 0 {
            return Ok(Self { server: Server::new(None, Log::Single(AtOnce::default()), None, now)?, now });
        }
        let directory = Directory::on(Arc::new(MemoryDisk::new()));
        let (store, log) = (lycosa_store::Settings::default(), lycosa_journal::writer::Settings::default());
        let new = NewGroup { group: GROUP, address: "n1".to_owned(), level };
        group::begin(&directory, store, log, &IDENTITY, new, now)?;
        let opened = group::open(&directory, store, log, group::Settings::default())?;
        let log = Log::Member(Box::new(opened.journal));
        let mut world = Self { server: Server::new(opened.data, log, Some(opened.disk), now)?, now };
        world.until("it leads", |server| server.journal().is_some_and(|journal| journal.leads()))?;
        Ok(world)
    }

    fn until(&mut self, what: &str, is_done: impl Fn(&mut Server) -> bool) -> Result<(), Failure> {
        for _ in 0..10_000 {
            if is_done(&mut self.server) {
                return Ok(());
            }
            self.now += 5_000;
            let orders = turn_of(&mut self.server, Input::Time, self.now);
            self.write(orders, turn_of);
        }
        Err(format!("{what}: that does not happen").into())
    }

    /// One turn with these bytes from one connection, and everything that follows from it. What the connection is sent.
    fn serve(&mut self, slot: ConnectionSlot, frames: &[u8], turn: Turn) -> Vec<u8> {
        self.now += TURN;
        let orders = turn(&mut self.server, Input::Frames(slot, frames), self.now);
        self.write(orders, turn);
        std::mem::take(&mut self.server.sent)
    }

    /// Carries out orders, and all that follow from them.
    fn write(&mut self, mut orders: Vec<Order>, turn: Turn) {
        while !orders.is_empty() {
            let mut done: Vec<Done> = Vec::new();
            self.server.disk.iter_mut().for_each(|disk| disk.carry_out(orders.drain(..), &mut done));
            orders = turn(&mut self.server, Input::Written(done), self.now);
        }
    }
}

fn main() -> Result<(), Failure> {
    let usage =
        "usage: group_cycles LEVEL TUBE_TYPE; LEVEL is 0 for a single server, else the level of the group";
    let mut arguments = std::env::args().skip(1);
    let level = arguments.next().and_then(|level| level.parse().ok()).ok_or(usage)?;
    let tube_type = arguments.next().ok_or(usage)?;
    let form = Form { has_sub_queues: tube_type.starts_with("utube"), batch: None };
    let mut world = World::new(level)?;
    let mut clients = Vec::new();
    for number in 0..CONNECTIONS {
        let origin = Origin { peer: "127.0.0.1:40000".to_owned(), trust: Trust::Admin };
        let now = world.now;
        let slot = world.server.instance.connect(origin, now)?;
        world.server.instance.consume(slot, GREETING_SIZE);
        clients.push(Client::new(slot, number, form));
    }
    values(&world.serve(clients[0].slot, &create_tube(&tube_type), turn_of))?;
    for step in 0..(WARMUP + COUNTED) * STEPS.len() {
        let turn: Turn = if step < WARMUP * STEPS.len() { turn_of } else { turn_counted };
        for client in &mut clients {
            let replies = world.serve(client.slot, &client.frames(form), turn);
            client.note(&replies, form)?;
        }
    }
    println!("{}", CONNECTIONS * form.tasks() * COUNTED);
    Ok(())
}
