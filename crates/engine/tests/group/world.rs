//! Members of a group on disks in memory, with links that lose nothing, in a time that the test moves.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lycosa_engine::group::{
    self, GroupDisk, GroupJournal, Incoming, NewGroup, NodeId, Order, Outgoing, transfer,
};
use lycosa_engine::snapshots::{self, Snapshots, Surroundings};
use lycosa_engine::turn::{self, Host, Parts, TurnState};
use lycosa_instance::{
    CheckpointOrder, Confirmed, ConnectionSlot, Identity, Instance, Origin, Process, Settings, Trust,
};
use lycosa_iproto::frame::{self, Split};
use lycosa_iproto::greeting::GREETING_SIZE;
use lycosa_iproto::reply::{self, Content};
use lycosa_iproto::request::{self, Body};
use lycosa_journal::directory::Directory;
use lycosa_journal::memory::MemoryDisk;
use lycosa_queue::{Configuration, Queue, Seconds};
use lycosa_tuple::value::Value;
use uuid::Uuid;

pub(crate) const IDENTITY: Identity =
    Identity { instance: Uuid::from_u128(1), cluster: Uuid::from_u128(2), replica_id: 1 };
pub(crate) const GROUP: Uuid = Uuid::from_u128(3);
/// Microseconds since the epoch at which every world begins.
pub(crate) const BEGINNING: u64 = 1_700_000_000_000_000;
const STEP: u64 = 5_000;

/// What a client was told: values, or the name of the error, or else its text.
pub(crate) type Told = Result<Vec<Value>, String>;

#[derive(Debug)]
pub(crate) struct Plenty;

impl Surroundings for Plenty {
    fn free_bytes(&self) -> Option<u64> {
        None
    }
}

/// A process of a member that has data.
pub(crate) struct Running {
    pub(crate) instance: Instance,
    pub(crate) journal: GroupJournal,
    pub(crate) disk: GroupDisk,
    turn: TurnState,
    snapshots: Snapshots<Plenty>,
    pub(crate) slot: ConnectionSlot,
    received: Vec<u8>,
    pub(crate) told: Vec<(u64, Told)>,
    pub(crate) failure: Option<String>,
    /// By how much the leader before was ahead.
    pub(crate) ahead_by: i64,
    /// Snapshots that it has taken.
    pub(crate) snapshots_taken: u64,
    now: u64,
}

/// A process that waits for its first snapshot.
pub(crate) struct Joining {
    journal: GroupJournal,
    disk: GroupDisk,
}

pub(crate) enum Life {
    Dead,
    Joining(Box<Joining>),
    Running(Box<Running>),
}

pub(crate) struct Server {
    pub(crate) folder: MemoryDisk,
    pub(crate) life: Life,
    /// Messages wait at the door, as for a process that is stopped.
    pub(crate) is_stopped: bool,
    /// Its disk does nothing.
    pub(crate) is_slow: bool,
    /// Microseconds by which its clock is ahead of the world's.
    pub(crate) ahead: u64,
}

/// A message, and the file of the snapshot that it announces.
type Parcel = (Vec<u8>, Option<Vec<u8>>);

pub(crate) struct World {
    pub(crate) servers: BTreeMap<NodeId, Server>,
    links: BTreeMap<(NodeId, NodeId), VecDeque<Parcel>>,
    pub(crate) now: u64,
    clock: Instant,
    sync: u64,
    pub(crate) settings: Settings,
    /// For how many seconds a session outlives its last connection.
    pub(crate) session_ttr: Option<f64>,
    /// Snapshots that members have sent each other.
    pub(crate) snapshots_sent: u64,
    /// Snapshots do not arrive. All other messages do.
    pub(crate) holds_snapshots: bool,
}

/// What the disk does next.
fn orders(journal: &mut GroupJournal, is_slow: bool) -> Vec<Order> {
    if is_slow { Vec::new() } else { std::iter::from_fn(|| journal.poll_order()).collect() }
}

fn directory(disk: &MemoryDisk) -> Directory {
    Directory::on(Arc::new(disk.clone()))
}

impl Running {
    fn new(opened: group::Opened, settings: &Settings, session_ttr: Option<f64>, now: u64) -> Self {
        let group::Opened { data, snapshot, journal, disk, .. } = opened;
        let Confirmed { store, vclock } = data.unwrap();
        let mut ids = u128::from(journal.identity().node) << 64;
        let new_session_id = Box::new(move || {
            ids += 1;
            ids.to_be_bytes()
        });
        let configuration = Configuration { in_replicaset: true, ttr: session_ttr.map(Seconds::from_double) };
        let queue = Queue::new(configuration, new_session_id);
        let process = Process { id: 1, entropy: Box::new(|bytes| bytes.fill(7)) };
        let mut instance = Instance::new(settings.clone(), IDENTITY, process, store, queue, vclock, now);
        let settings = snapshots::Settings {
            directory: disk.directory().clone(),
            reserve: 0,
            look_after: snapshots::LOOK_AFTER,
            instance: IDENTITY.instance,
            sound: snapshot,
        };
        let snapshots = Snapshots::new(settings, Plenty);
        instance.set_checkpoint_base(snapshot, snapshots.files().unwrap());
        instance.join_group(now);
        let slot = instance.connect(Origin { peer: String::new(), trust: Trust::Admin }, now).unwrap();
        instance.consume(slot, GREETING_SIZE);
        Self {
            instance,
            journal,
            disk,
            turn: TurnState::default(),
            snapshots,
            slot,
            received: Vec::new(),
            told: Vec::new(),
            failure: None,
            ahead_by: 0,
            snapshots_taken: 0,
            now,
        }
    }
}

impl World {
    /// A group of one, whose folder was a new single server's.
    pub(crate) fn new() -> Self {
        Self::at_level(group::FEATURE_LEVEL)
    }

    /// The same, at a level of rows that older programs know.
    pub(crate) fn at_level(level: u32) -> Self {
        let folder = MemoryDisk::new();
        group::begin(
            &directory(&folder),
            lycosa_store::Settings::default(),
            lycosa_journal::writer::Settings::default(),
            &IDENTITY,
            NewGroup { group: GROUP, address: "n1".to_owned(), level },
            BEGINNING,
        )
        .unwrap();
        let settings =
            Settings { checkpoint_interval: 0, checkpoint_wal_threshold: u64::MAX, ..Settings::default() };
        let mut world = Self {
            servers: BTreeMap::new(),
            links: BTreeMap::new(),
            now: BEGINNING,
            clock: Instant::now(),
            sync: 0,
            settings,
            session_ttr: None,
            snapshots_sent: 0,
            holds_snapshots: false,
        };
        world
            .servers
            .insert(1, Server { folder, life: Life::Dead, is_stopped: false, is_slow: false, ahead: 0 });
        world.start(1);
        world.until("node 1 leads", |world| world.leads(1));
        world
    }

    /// A group with a number of voters.
    pub(crate) fn of(count: u64) -> Self {
        let mut world = Self::new();
        world.grow(count);
        world
    }

    /// Node 1 takes servers in until the group has the number of voters.
    pub(crate) fn grow(&mut self, count: u64) {
        for number in 2..=count {
            self.add(1);
            self.until("the new member is a voter, and has data", |world| {
                let members = world.running(1).journal.members();
                let voters = members.iter().filter(|member| member.standing == group::Standing::Voter);
                voters.count() as u64 == number
                    && !members.is_joint()
                    && world.servers.values().all(|server| matches!(server.life, Life::Running(_)))
            });
        }
    }

    /// The leader takes an empty server in. Returns its number.
    pub(crate) fn add(&mut self, leader: NodeId) -> NodeId {
        let address = format!("n{}", self.servers.len() + 1);
        let (node, rank) = self.running(leader).journal.add(&address).unwrap();
        let folder = MemoryDisk::new();
        let identity = group::Identity { group: GROUP, node, rank };
        group::join(&directory(&folder), lycosa_journal::writer::Settings::default(), identity).unwrap();
        self.servers
            .insert(node, Server { folder, life: Life::Dead, is_stopped: false, is_slow: false, ahead: 0 });
        self.start(node);
        node
    }

    pub(crate) fn start(&mut self, node: NodeId) {
        let (now, settings, session_ttr) = (self.now, self.settings.clone(), self.session_ttr);
        let server = self.servers.get_mut(&node).unwrap();
        let now = now + server.ahead;
        let told = RefCell::new(Vec::new());
        let opened = group::open_told(
            &directory(&server.folder),
            lycosa_store::Settings::default(),
            lycosa_journal::writer::Settings::default(),
            group::Settings::default(),
            &|done, total| told.borrow_mut().push((done, total)),
        )
        .unwrap();
        let told = told.into_inner();
        assert!(told.is_sorted() && told.windows(2).all(|pair| pair[0].1 == pair[1].1), "{told:?}");
        let is_complete = told.last().is_some_and(|(done, total)| done == total && *total > 0);
        assert_eq!(is_complete, opened.data.is_some(), "{told:?}");
        server.life = if opened.data.is_some() {
            Life::Running(Box::new(Running::new(opened, &settings, session_ttr, now)))
        } else {
            Life::Joining(Box::new(Joining { journal: opened.journal, disk: opened.disk }))
        };
    }

    pub(crate) fn kill(&mut self, node: NodeId) {
        self.servers.get_mut(&node).unwrap().life = Life::Dead;
        for (&(from, to), link) in &mut self.links {
            if from == node || to == node {
                link.clear();
            }
        }
        for other in self.servers.keys().copied().filter(|other| *other != node).collect::<Vec<_>>() {
            if let Life::Running(running) = &mut self.servers.get_mut(&other).unwrap().life {
                running.journal.link_lost(node);
            }
        }
    }

    pub(crate) fn stop(&mut self, node: NodeId, is_stopped: bool) {
        self.servers.get_mut(&node).unwrap().is_stopped = is_stopped;
    }

    pub(crate) fn running(&mut self, node: NodeId) -> &mut Running {
        match &mut self.servers.get_mut(&node).unwrap().life {
            Life::Running(running) => running,
            _ => panic!("node {node} has no data"),
        }
    }

    pub(crate) fn leads(&self, node: NodeId) -> bool {
        matches!(&self.servers[&node].life, Life::Running(running) if running.journal.leads())
    }

    pub(crate) fn leader(&self) -> Option<NodeId> {
        let awake = self.servers.iter().filter(|(_, server)| !server.is_stopped);
        awake.map(|(node, _)| *node).find(|node| self.leads(*node))
    }

    /// Time passes until `is_done`, a minute at most.
    pub(crate) fn until(&mut self, what: &str, is_done: impl Fn(&mut Self) -> bool) {
        let end = self.now + 60_000_000;
        while !is_done(self) {
            assert!(self.now < end, "{what}: not within a minute; {}", self.standing());
            self.pass(1);
        }
    }

    fn standing(&self) -> String {
        let standing = |(node, server): (&NodeId, &Server)| match &server.life {
            Life::Running(running) => {
                format!("{node}: {:?} {:?}\n", running.failure, running.journal.status())
            }
            Life::Joining(joining) => format!("{node} joins: {:?}\n", joining.journal.status()),
            Life::Dead => format!("{node} is dead\n"),
        };
        self.servers.iter().map(standing).collect()
    }

    /// Steps of the time.
    pub(crate) fn pass(&mut self, steps: u64) {
        for _ in 0..steps {
            self.now += STEP;
            self.clock += Duration::from_micros(STEP);
            for node in self.servers.keys().copied().collect::<Vec<_>>() {
                if !self.servers[&node].is_stopped {
                    self.step(node);
                }
            }
        }
    }

    /// What the links hand to a member now.
    fn arriving(&mut self, node: NodeId) -> Vec<Parcel> {
        let mut parcels = Vec::new();
        for (_, link) in self.links.iter_mut().filter(|((_, to), _)| *to == node) {
            let is_held = |(_, file): &Parcel| self.holds_snapshots && file.is_some();
            let (held, arriving): (VecDeque<_>, VecDeque<_>) = link.drain(..).partition(is_held);
            *link = held;
            parcels.extend(arriving);
        }
        parcels
    }

    fn step(&mut self, node: NodeId) {
        let (now, clock) = (self.now, self.clock);
        let incoming = self.arriving(node);
        let server = self.servers.get_mut(&node).unwrap();
        let (local, is_slow) = (now + server.ahead, server.is_slow);
        let (journal, disk) = match &mut server.life {
            Life::Dead => return,
            Life::Joining(joining) => (&mut joining.journal, &mut joining.disk),
            Life::Running(running) => (&mut running.journal, &mut running.disk),
        };
        journal.tick(now - BEGINNING);
        for (bytes, file) in incoming {
            let message = Incoming::decode(&bytes).unwrap();
            if let (Some(base), Some(file)) = (message.base(), file) {
                let size = file.len() as u64;
                let mut receiver = transfer::Receiver::begin(disk.directory(), base, size).unwrap();
                file.chunks(1000).for_each(|piece| receiver.add(piece).unwrap());
                receiver.finish().unwrap();
            }
            journal.receive(message).unwrap();
        }
        loop {
            let orders = orders(journal, is_slow);
            if orders.is_empty() {
                break;
            }
            let mut done = Vec::new();
            disk.carry_out(orders, &mut done);
            done.into_iter().for_each(|done| journal.handle(done));
        }
        if let Life::Running(running) = &mut server.life {
            running.now = local;
            let Ok(_) = turn::end(&mut **running, local, clock);
            loop {
                let orders = orders(&mut running.journal, is_slow);
                if orders.is_empty() {
                    break;
                }
                let mut done = Vec::new();
                running.disk.carry_out(orders, &mut done);
                done.into_iter().for_each(|done| running.journal.handle(done));
                let Ok(_) = turn::end(&mut **running, local, clock);
            }
        }
        let (journal, disk) = match &mut server.life {
            Life::Dead => return,
            Life::Joining(joining) => (&mut joining.journal, &mut joining.disk),
            Life::Running(running) => (&mut running.journal, &mut running.disk),
        };
        let messages: Vec<Outgoing> = std::iter::from_fn(|| journal.poll_message()).collect();
        let directory = disk.directory().clone();
        let is_whole = matches!(&server.life, Life::Joining(joining) if joining.journal.has_snapshot());
        for Outgoing { to, bytes, base } in messages {
            self.snapshots_sent += u64::from(base.is_some());
            let file = base.map(|base| {
                let mut file = Vec::new();
                let mut sender = transfer::Sender::open(&directory, &base).unwrap();
                while sender.read(&mut file, 777).unwrap() > 0 {}
                file
            });
            self.links.entry((node, to)).or_default().push_back((bytes, file));
        }
        if is_whole {
            self.start(node);
        }
    }

    /// Sends a call to a member and returns its number.
    pub(crate) fn send(&mut self, node: NodeId, name: &str, args: &[Value]) -> u64 {
        let args = Value::array(args.iter().cloned()).encode();
        self.send_body(node, &Body::Call { name: name.as_bytes(), args: &args })
    }

    fn send_body(&mut self, node: NodeId, body: &Body<'_>) -> u64 {
        self.sync += 1;
        let (sync, now) = (self.sync, self.now + self.servers[&node].ahead);
        let running = self.running(node);
        let mut bytes = Vec::new();
        request::encode(&mut bytes, sync, body);
        let Ok(Split::Frame { content, .. }) = frame::split(&bytes, frame::DEFAULT_LIMIT) else {
            panic!("a frame");
        };
        running.instance.handle_frame(running.slot, content, now).unwrap();
        running.turn.received(1);
        sync
    }

    /// What a member has told about a request, if it has.
    pub(crate) fn told(&mut self, node: NodeId, sync: u64) -> Option<Told> {
        let running = self.running(node);
        let found = running.told.iter().position(|(told, _)| *told == sync)?;
        Some(running.told.remove(found).1)
    }

    /// Sends a call and waits for the answer.
    pub(crate) fn call(&mut self, node: NodeId, name: &str, args: &[Value]) -> Told {
        let sync = self.send(node, name, args);
        self.answer(node, sync, name)
    }

    /// Deletes a tuple and waits for the answer.
    pub(crate) fn delete(&mut self, node: NodeId, space: u32, key: &Value) {
        let sync = self.send_body(node, &Body::Delete { space, index: 0, key: &key.encode() });
        self.answer(node, sync, "a delete").unwrap();
    }

    fn answer(&mut self, node: NodeId, sync: u64, what: &str) -> Told {
        self.until(what, |world| world.running(node).told.iter().any(|(told, _)| *told == sync));
        self.told(node, sync).unwrap()
    }

    pub(crate) fn digest(&mut self, node: NodeId) -> u128 {
        self.running(node).instance.digest()
    }
}

impl Host for Running {
    type Journal = GroupJournal;
    type Stop = Infallible;

    fn parts(&mut self) -> Parts<'_, GroupJournal> {
        Parts { instance: &mut self.instance, turn: &mut self.turn, journal: &mut self.journal }
    }

    fn order(&mut self, order: CheckpointOrder) -> Result<(), Infallible> {
        let signature = match &order {
            CheckpointOrder::Complete { .. } => Some(self.instance.checkpoint_signature().unwrap()),
            _ => None,
        };
        if let Some(signature) = signature {
            let base = self.journal.base_of(signature).unwrap().clone();
            self.snapshots.seal_with(base);
        }
        let mut news = Vec::new();
        self.snapshots.carry_out(order, &mut news);
        for news in news {
            let is_done = matches!(news, snapshots::News::Done { .. });
            let outcome = snapshots::tell(&mut self.instance, news, self.now);
            assert!(!matches!(outcome, snapshots::Outcome::Failed { .. }), "{outcome:?}");
            if let Some(signature) = signature.filter(|_| is_done) {
                self.journal.snapshot_taken(signature);
                self.snapshots_taken += 1;
            }
        }
        Ok(())
    }

    fn leads(&mut self, ahead: i64) -> Result<(), Infallible> {
        self.ahead_by = ahead;
        Ok(())
    }

    fn failed(&mut self, cause: &str) -> Result<(), Infallible> {
        self.failure = Some(cause.to_owned());
        Ok(())
    }

    fn write(&mut self, slot: ConnectionSlot) -> Result<(), Infallible> {
        let ready = self.instance.output(slot).to_vec();
        self.instance.consume(slot, ready.len());
        self.received.extend(ready);
        let received = std::mem::take(&mut self.received);
        let mut rest = received.as_slice();
        while let Ok(Split::Frame { content, consumed }) = frame::split(rest, frame::DEFAULT_LIMIT) {
            let reply = reply::decode(content).unwrap();
            let told = match reply.content {
                Content::Ok { data, .. } => match Value::decode(data) {
                    Ok(Value::Array(values)) => Ok(values),
                    other => panic!("values, not {other:?}"),
                },
                Content::Error(error) => {
                    let name = error.fields.iter().map(|(_, name)| name.clone()).next();
                    Err(name.unwrap_or(error.message))
                }
                Content::Push { .. } => panic!("nothing pushes"),
            };
            self.told.push((reply.sync, told));
            rest = &rest[consumed..];
        }
        self.received = rest.to_vec();
        Ok(())
    }
}
