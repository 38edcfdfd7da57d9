//! Cycles of put, take and ack through the leader of a group, and through a single server, for a count of instructions.
//!
//! The program is the loop of a server without sockets, files and threads: eight connections with 32 requests under way on each,
//! turn by turn, every reply checked. The leader of a group takes what other members have sent, and what its disk has done,
//! since its last turn together with the next connection's requests, as a loop under load does. Nothing depends on time or on
//! other processes, so two runs of one binary execute the same instructions. Valgrind counts those below [`turn_counted`]: the
//! instance, the turn, and in a group the node with its entries and messages. The disk of the log is left out, as a single
//! server's journal is, and so are the links and the other members.
//!
//! ```sh no_run
//! cargo build --release --package lycosa-engine --example group_cycles
//! valgrind --tool=callgrind --collect-atstart=no '--toggle-collect=*turn_counted*' \
//!     target/release/examples/group_cycles group:3 fifo
//! ```
//!
//! The first argument is `single`, or `group:` and the number of members. The second is the type of the tube. The third is the level
//! of the group; without it the group has the newest level. At level 1 owners are rows, from 2 on owners travel beside the rows.

#[path = "../../instance/examples/load/mod.rs"]
mod load;

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lycosa_engine::group::{
    self, Base, Done, GroupDisk, GroupJournal, Incoming, Member, NewGroup, NodeId, Order, Outgoing, Standing,
    transfer,
};
use lycosa_engine::journal::{Journal, News, NoMembership, Pace};
use lycosa_engine::snapshots::{self, Snapshots, Surroundings};
use lycosa_engine::turn::{self, Host, Parts, TurnState};
use lycosa_instance::{
    Batch, Buffers, CheckpointOrder, Confirmed, ConnectionSlot, Identity, Instance, Origin, Process,
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
    type Membership = NoMembership;

    fn pace(&self) -> Pace {
        Pace::Pipelined(1)
    }

    fn submit(&mut self, Batch { rows, ends, lsn, .. }: Batch) {
        self.0.push_back(News::Durable { lsn, buffers: Buffers { rows, ends } });
    }

    fn poll(&mut self) -> Option<News> {
        self.0.pop_front()
    }

    fn membership(&mut self) -> Option<&mut NoMembership> {
        None
    }
}

/// The journal of a server.
enum Log {
    Single(AtOnce),
    Member(Box<GroupJournal>),
}

impl Journal for Log {
    type Membership = GroupJournal;

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

    fn membership(&mut self) -> Option<&mut GroupJournal> {
        match self {
            Self::Single(_) => None,
            Self::Member(log) => Some(log),
        }
    }
}

/// A disk that is never full.
#[derive(Debug)]
struct Plenty;

impl Surroundings for Plenty {
    fn free_bytes(&self) -> Option<u64> {
        None
    }
}

/// An instance with its journal.
struct Server {
    instance: Instance,
    log: Log,
    turn: TurnState,
    disk: Option<GroupDisk>,
    /// The snapshots of a member: a server that joins gets one.
    snapshots: Option<Snapshots<Plenty>>,
    now: u64,
    /// Messages that have arrived since the last turn.
    inbox: Vec<Vec<u8>>,
    /// What the disk has done since then.
    done: Vec<Done>,
    /// What each connection was sent.
    sent: Vec<(ConnectionSlot, Vec<u8>)>,
    clock: Instant,
}

impl Host for Server {
    type Journal = Log;
    type Stop = Infallible;

    fn parts(&mut self) -> Parts<'_, Log> {
        Parts { instance: &mut self.instance, turn: &mut self.turn, journal: &mut self.log }
    }

    fn order(&mut self, order: CheckpointOrder) -> Result<(), Infallible> {
        let (Some(snapshots), Log::Member(journal)) = (&mut self.snapshots, &mut self.log) else {
            return Ok(());
        };
        let signature = match &order {
            CheckpointOrder::Complete { .. } => self.instance.checkpoint_signature(),
            _ => None,
        };
        if let Some(base) = signature.and_then(|signature| journal.base_of(signature)) {
            snapshots.seal_with(base.clone());
        }
        let mut news = Vec::new();
        snapshots.carry_out(order, &mut news);
        for news in news {
            let is_done = matches!(news, snapshots::News::Done { .. });
            snapshots::tell(&mut self.instance, news, self.now);
            if let Some(signature) = signature.filter(|_| is_done) {
                journal.snapshot_taken(signature);
            }
        }
        Ok(())
    }

    fn write(&mut self, slot: ConnectionSlot) -> Result<(), Infallible> {
        let ready = self.instance.output(slot);
        let length = ready.len();
        match self.sent.iter_mut().find(|(sent, _)| *sent == slot) {
            Some((_, sent)) => sent.extend_from_slice(ready),
            None => self.sent.push((slot, ready.to_vec())),
        }
        self.instance.consume(slot, length);
        Ok(())
    }
}

/// What a turn begins with.
#[derive(Clone, Copy)]
enum Input<'a> {
    Frames(ConnectionSlot, &'a [u8]),
    /// What other members have sent and the disk has done, which each turn takes first.
    Answers,
    Time,
}

/// What a turn leaves: orders for the disk of the log, and messages to other members.
#[derive(Default)]
struct Left {
    orders: Vec<Order>,
    messages: Vec<Outgoing>,
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
        Ok(Self {
            instance,
            log,
            turn,
            disk,
            snapshots: None,
            now,
            inbox: Vec::new(),
            done: Vec::new(),
            sent: Vec::new(),
            clock,
        })
    }

    fn journal(&mut self) -> Option<&mut GroupJournal> {
        match &mut self.log {
            Log::Member(journal) => Some(journal),
            Log::Single(_) => None,
        }
    }
}

/// [`turn_of`], in which instructions are counted.
#[inline(never)]
fn turn_counted(server: &mut Server, input: Input<'_>, now: u64) -> Left {
    let left = turn_of(server, input, now);
    // Without this the two functions end up as one.
    std::hint::black_box(&server.sent);
    left
}

#[inline(never)]
fn turn_of(server: &mut Server, input: Input<'_>, now: u64) -> Left {
    for message in std::mem::take(&mut server.inbox) {
        let message = Incoming::decode(&message).expect("a member has encoded it");
        server.journal().expect("members have a log").receive(message).expect("links lose nothing");
    }
    for done in std::mem::take(&mut server.done) {
        server.journal().expect("its disk has written").handle(done);
    }
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
        Input::Answers => {}
        Input::Time => {
            if let Some(journal) = server.journal() {
                journal.tick(now - START * 1_000_000);
            }
        }
    }
    server.now = now;
    let clock = server.clock + Duration::from_micros(now - START * 1_000_000);
    let Ok(_) = turn::end(server, now, clock);
    left_of(server.journal())
}

fn left_of(journal: Option<&mut GroupJournal>) -> Left {
    let Some(journal) = journal else { return Left::default() };
    Left {
        orders: std::iter::from_fn(|| journal.poll_order()).collect(),
        messages: std::iter::from_fn(|| journal.poll_message()).collect(),
    }
}

/// A turn of a server.
type Turn = fn(&mut Server, Input<'_>, u64) -> Left;

/// The node that leads, and the only one that counts.
const LEADER: NodeId = 1;

/// The servers by node, and the time. A single server is node 1 of no group.
struct World {
    servers: BTreeMap<NodeId, Box<Server>>,
    now: u64,
}

fn directory() -> Directory {
    Directory::on(Arc::new(MemoryDisk::new()))
}

fn open(directory: &Directory) -> Result<group::Opened, Failure> {
    let (store, log) = (lycosa_store::Settings::default(), lycosa_journal::writer::Settings::default());
    Ok(group::open(directory, store, log, group::Settings::default())?)
}

impl World {
    /// A single server.
    fn single() -> Result<Self, Failure> {
        let now = START * 1_000_000;
        let server = Server::new(None, Log::Single(AtOnce::default()), None, now)?;
        Ok(Self { servers: BTreeMap::from([(LEADER, Box::new(server))]), now })
    }

    /// A group with a number of members, at a level.
    fn group(members: u64, level: u32) -> Result<Self, Failure> {
        let (now, directory) = (START * 1_000_000, directory());
        let (store, log) = (lycosa_store::Settings::default(), lycosa_journal::writer::Settings::default());
        let new = NewGroup { group: GROUP, address: "n1".to_owned(), level };
        group::begin(&directory, store, log, &IDENTITY, new, now)?;
        let mut world = Self { servers: BTreeMap::new(), now };
        world.start(LEADER, open(&directory)?)?;
        world.until("it leads", GroupJournal::leads)?;
        let mut empty = Vec::new();
        for number in 2..=members {
            let journal = world.leader().journal().ok_or("a single server takes no other in")?;
            empty.push(journal.add(&format!("n{number}")).map_err(|refusal| format!("{refusal:?}"))?);
            world.until("it is a member", |journal| journal.members().iter().count() as u64 == number)?;
        }
        // One snapshot tells each of them of all.
        for (node, rank) in empty {
            world.join(node, rank)?;
        }
        world.until("all vote", |journal| {
            let votes = |member: &&Member| member.standing == Standing::Voter;
            let voters = journal.members().iter().filter(votes).count();
            voters as u64 == members && !journal.members().is_joint()
        })?;
        Ok(world)
    }

    fn start(&mut self, node: NodeId, opened: group::Opened) -> Result<(), Failure> {
        let settings = snapshots::Settings {
            directory: opened.disk.directory().clone(),
            reserve: 0,
            look_after: snapshots::LOOK_AFTER,
            instance: IDENTITY.instance,
            sound: opened.snapshot,
        };
        let log = Log::Member(Box::new(opened.journal));
        let mut server = Server::new(opened.data, log, Some(opened.disk), self.now)?;
        let snapshots = Snapshots::new(settings, Plenty);
        server.instance.set_checkpoint_base(opened.snapshot, snapshots.files()?);
        server.snapshots = Some(snapshots);
        self.servers.insert(node, Box::new(server));
        Ok(())
    }

    /// Lets a member begin with an empty folder: it starts once it has the leader's snapshot.
    fn join(&mut self, node: NodeId, rank: u8) -> Result<(), Failure> {
        let directory = directory();
        let identity = group::Identity { group: GROUP, node, rank };
        group::join(&directory, lycosa_journal::writer::Settings::default(), identity)?;
        let mut joining = open(&directory)?;
        let mut unsent = Vec::new();
        for _ in 0..10_000 {
            unsent.extend(self.pass());
            unsent.retain(|message| message.to == node);
            joining.journal.tick(self.now - START * 1_000_000);
            for Outgoing { bytes, base, .. } in unsent.drain(..) {
                if let Some(base) = base {
                    self.send_snapshot(&base, &directory)?;
                }
                joining.journal.receive(Incoming::decode(&bytes)?)?;
            }
            let mut replies = Vec::new();
            loop {
                let Left { orders, messages } = left_of(Some(&mut joining.journal));
                replies.extend(messages.into_iter().map(|message| message.bytes));
                if orders.is_empty() {
                    break;
                }
                let mut done: Vec<Done> = Vec::new();
                joining.disk.carry_out(orders, &mut done);
                done.into_iter().for_each(|done| joining.journal.handle(done));
            }
            if joining.journal.has_snapshot() {
                drop(joining);
                return self.start(node, open(&directory)?);
            }
            self.leader().inbox.extend(replies);
            unsent = self.turn(LEADER, Input::Answers);
        }
        Err("the new member gets no snapshot".into())
    }

    /// Copies the file of the leader's snapshot.
    fn send_snapshot(&mut self, base: &Base, to: &Directory) -> Result<(), Failure> {
        let disk = self.leader().disk.as_ref().ok_or("a member has a log")?;
        let mut sender = transfer::Sender::open(disk.directory(), base)?;
        let mut receiver = transfer::Receiver::begin(to, base, sender.size())?;
        let mut piece = Vec::new();
        while sender.read(&mut piece, 1 << 20)? > 0 {
            receiver.add(&piece)?;
            piece.clear();
        }
        Ok(receiver.finish()?)
    }

    fn leader(&mut self) -> &mut Server {
        self.servers.get_mut(&LEADER).expect("it is the first of all")
    }

    /// Lets a little time pass. Returns messages to servers that do not run.
    fn pass(&mut self) -> Vec<Outgoing> {
        self.now += 5_000;
        let nodes: Vec<_> = self.servers.keys().copied().collect();
        nodes.into_iter().flat_map(|node| self.turn(node, Input::Time)).collect()
    }

    fn until(&mut self, what: &str, is_done: impl Fn(&GroupJournal) -> bool) -> Result<(), Failure> {
        for _ in 0..10_000 {
            self.pass();
            if self.leader().journal().is_some_and(|journal| is_done(journal)) {
                return Ok(());
            }
        }
        Err(format!("{what}: that does not happen").into())
    }

    /// One turn of the leader with these bytes from one connection. What other members answer to that waits for its next turn.
    fn serve(&mut self, slot: ConnectionSlot, frames: &[u8], turn: Turn) {
        self.now += TURN;
        self.turn_of(LEADER, Input::Frames(slot, frames), turn);
        self.let_others_answer();
    }

    /// Lets the leader take the answers of others and of its disk until there are none. What the connections were sent.
    fn finish(&mut self, turn: Turn) -> Vec<(ConnectionSlot, Vec<u8>)> {
        while self.waiting_node().is_some() {
            self.turn_of(LEADER, Input::Answers, turn);
            self.let_others_answer();
        }
        std::mem::take(&mut self.leader().sent)
    }

    /// A turn of a node, and all turns that follow from it. Returns messages to servers that do not run.
    fn turn(&mut self, node: NodeId, input: Input<'_>) -> Vec<Outgoing> {
        let mut unsent = self.turn_of(node, input, turn_of);
        while let Some(node) = self.waiting_node() {
            unsent.extend(self.turn_of(node, Input::Answers, turn_of));
        }
        unsent
    }

    fn let_others_answer(&mut self) {
        while let Some(node) = self.waiting_node().filter(|node| *node != LEADER) {
            self.turn_of(node, Input::Answers, turn_of);
        }
    }

    /// A node that others or its disk have answered; the leader is the last.
    fn waiting_node(&self) -> Option<NodeId> {
        let is_waiting = |server: &Server| !server.inbox.is_empty() || !server.done.is_empty();
        let mut waiting = self.servers.iter().rev().filter(|(_, server)| is_waiting(server));
        waiting.next().map(|(node, _)| *node)
    }

    /// One turn of a node. Hands its messages and orders over, and returns messages to servers that do not run.
    fn turn_of(&mut self, node: NodeId, input: Input<'_>, turn: Turn) -> Vec<Outgoing> {
        let mut unsent = Vec::new();
        let Some(mut server) = self.servers.remove(&node) else { return unsent };
        let Left { orders, messages } = turn(&mut server, input, self.now);
        for message in messages {
            match self.servers.get_mut(&message.to) {
                Some(server) => server.inbox.push(message.bytes),
                None => unsent.push(message),
            }
        }
        if let Some(disk) = &mut server.disk {
            disk.carry_out(orders, &mut server.done);
        }
        self.servers.insert(node, server);
        unsent
    }
}

fn main() -> Result<(), Failure> {
    let usage = "usage: group_cycles single|group:MEMBERS TUBE_TYPE [LEVEL]";
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [servers, tube_type, level @ ..] = arguments.as_slice() else { return Err(usage.into()) };
    let level = level.first().map_or(Ok(group::FEATURE_LEVEL), |level| level.parse())?;
    let form = Form { has_sub_queues: tube_type.starts_with("utube"), batch: None, waits: false };
    let mut world = match servers.strip_prefix("group:") {
        Some(members) => World::group(members.parse()?, level)?,
        None if servers == "single" => World::single()?,
        None => return Err(usage.into()),
    };
    let mut clients = Vec::new();
    for number in 0..CONNECTIONS {
        let origin = Origin { peer: "127.0.0.1:40000".to_owned(), trust: Trust::Admin };
        let now = world.now;
        let slot = world.leader().instance.connect(origin, now)?;
        world.leader().instance.consume(slot, GREETING_SIZE);
        clients.push(Client::new(slot, number, form));
    }
    world.serve(clients[0].slot, &create_tube(tube_type), turn_of);
    for (_, replies) in world.finish(turn_of) {
        values(&replies)?;
    }
    for step in 0..(WARMUP + COUNTED) * STEPS {
        let turn: Turn = if step < WARMUP * STEPS { turn_of } else { turn_counted };
        for client in &clients {
            world.serve(client.slot, &client.frames(form), turn);
        }
        let sent = world.finish(turn);
        for client in &mut clients {
            let replies = sent.iter().find(|(slot, _)| *slot == client.slot);
            client.note(replies.map_or(&[], |(_, replies)| replies), form)?;
        }
    }
    println!("{}", CONNECTIONS * form.tasks() * COUNTED);
    Ok(())
}
