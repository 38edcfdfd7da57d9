//! An instance with clients, a writer of snapshots, and a journal that loses rows.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::convert::Infallible;
use std::time::{Duration, Instant};

use lycosa_engine::journal::{Journal, News, NoMembership, Pace};
use lycosa_engine::replay::Replay;
use lycosa_engine::turn::{self, Host, Parts, TurnState};
use lycosa_instance::{
    Batch, Buffers, CheckpointOrder, Chunk, Confirmed, ConnectionSlot, Files, Identity, Instance, Lsn,
    OUTCOME_UNKNOWN, Origin, Process, Settings, Trust, Written,
};
use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::frame::{DEFAULT_LIMIT, Split, split};
use lycosa_iproto::greeting::GREETING_SIZE;
use lycosa_iproto::reply::{self, Content};
use lycosa_iproto::request::{self, Body};
use lycosa_iproto::row::{self, RowBody};
use lycosa_iproto::vclock::Vclock;
use lycosa_queue::{Configuration, Queue};
use lycosa_store::{Budget, Store, user};
use lycosa_tuple::mp::Reader;
use lycosa_tuple::value::Value;
use uuid::Uuid;

pub(crate) const BEGINNING: u64 = 1_700_000_000_000_000;
pub(crate) const SECOND: u64 = 1_000_000;
pub(crate) const IDENTITY: Identity =
    Identity { instance: Uuid::from_u128(1), cluster: Uuid::from_u128(2), replica_id: 1 };
/// What a turn reads for a snapshot: little, so that losses come in the middle of one.
const CHECKPOINT_STEP: Budget<'static> = Budget::new(40, 1 << 20);
pub(crate) const TUBES: [(&str, &str); 3] = [("plain", "fifo"), ("timed", "fifottl"), ("sub", "utube")];

/// xorshift64*
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % limit
    }
}

pub(crate) fn new_store() -> Store {
    let mut store = Store::new(lycosa_store::Settings::default());
    store.bootstrap(&IDENTITY.cluster.to_string(), &IDENTITY.instance.to_string()).unwrap();
    store
}

/// The data that rows make of a new instance.
pub(crate) fn replayed(rows: &[u8]) -> Store {
    let mut replay = Replay::new(Store::new(lycosa_store::Settings::default()));
    new_store().for_each_snapshot_row(&mut |space, tuple, _| {
        replay.apply(&RowBody::Insert { space, tuple }).unwrap();
    });
    replay.end_snapshot().unwrap();
    let mut reader = Reader::new(rows);
    while !reader.is_empty() {
        replay.apply(&row::decode_row(&mut reader).unwrap().1).unwrap();
    }
    replay.finish().unwrap()
}

/// A log of which a majority confirms batches in their order, or never.
#[derive(Default)]
pub(crate) struct FakeLog {
    pub(crate) in_flight: VecDeque<Batch>,
    /// Rows of the confirmed batches.
    pub(crate) confirmed: Vec<u8>,
    pub(crate) last: Lsn,
    pub(crate) vclock: Vclock,
    pub(crate) news: VecDeque<News>,
    /// The turn has not heard yet of a loss: what it submits is void.
    pub(crate) is_losing: bool,
    pub(crate) most_in_flight: usize,
}

impl FakeLog {
    pub(crate) fn confirm(&mut self) -> bool {
        let Some(Batch { rows, ends, vclock, previous, lsn, .. }) = self.in_flight.pop_front() else {
            return false;
        };
        assert_eq!(previous, self.last, "a batch follows what is confirmed");
        self.confirmed.extend_from_slice(&rows);
        (self.last, self.vclock) = (lsn, vclock);
        self.news.push_back(News::Durable { lsn, buffers: Buffers { rows, ends } });
        true
    }

    pub(crate) fn lose(&mut self) {
        if std::mem::replace(&mut self.is_losing, true) {
            return;
        }
        self.in_flight.clear();
        let confirmed = Confirmed { store: replayed(&self.confirmed), vclock: self.vclock.clone() };
        self.news.push_back(News::Lost { from: self.last, confirmed: Box::new(confirmed) });
    }
}

impl Journal for FakeLog {
    type Membership = NoMembership;

    fn pace(&self) -> Pace {
        Pace::Pipelined(4)
    }

    fn submit(&mut self, batch: Batch) {
        if self.is_losing {
            return;
        }
        let before = self.in_flight.back().map_or(self.last, |batch| batch.lsn);
        assert_eq!(batch.previous, before, "a batch follows the one before it");
        self.in_flight.push_back(batch);
        self.most_in_flight = self.most_in_flight.max(self.in_flight.len());
    }

    fn poll(&mut self) -> Option<News> {
        let news = self.news.pop_front();
        if matches!(news, Some(News::Lost { .. })) {
            self.is_losing = false;
        }
        news
    }

    fn membership(&mut self) -> Option<&mut NoMembership> {
        None
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Asked {
    Put { number: u64 },
    Take { tube: usize, losses: u64 },
    Settle { number: u64, ends: bool },
}

pub(crate) struct Client {
    pub(crate) slot: ConnectionSlot,
    pub(crate) last_sync: u64,
    pub(crate) asked: BTreeMap<u64, Asked>,
    pub(crate) received: Vec<u8>,
}

/// Instance, journal and clients.
pub(crate) struct World {
    pub(crate) instance: Instance,
    pub(crate) turn: TurnState,
    pub(crate) journal: FakeLog,
    pub(crate) clients: Vec<Client>,
    pub(crate) now: u64,
    pub(crate) clock: Instant,
    pub(crate) is_replica_set: bool,
    pub(crate) puts: u64,
    /// Puts that were answered with OK.
    pub(crate) put: HashSet<u64>,
    /// Tasks that a client may have acknowledged, and tasks whose ack was answered with OK.
    pub(crate) maybe_done: HashSet<u64>,
    pub(crate) done: HashSet<u64>,
    /// Tasks whose take was answered with OK and nothing was asked since: client, tube, id, and whether it holds the task for
    /// certain.
    pub(crate) held: HashMap<u64, (usize, usize, u64, bool)>,
    pub(crate) unknown: u64,
    pub(crate) refused: u64,
    pub(crate) losses: u64,
    /// The snapshot that is being written: the digest of its moment, and its rows.
    pub(crate) snapshot: Option<(u128, Replay)>,
    /// Rows of all snapshots so far.
    pub(crate) snapshot_rows: u64,
    /// Digests of the snapshots that were completed.
    pub(crate) snapshots: Vec<u128>,
    /// Snapshots that were given up.
    pub(crate) abandoned: u64,
}

impl World {
    pub(crate) fn new(seed: u64, is_replica_set: bool) -> World {
        let mut ids = u128::from(seed);
        let new_session_id = Box::new(move || {
            ids += 1;
            ids.to_be_bytes()
        });
        let configuration = Configuration { in_replicaset: is_replica_set, ..Configuration::default() };
        let queue = Queue::new(configuration, new_session_id);
        let process = Process { id: 1, entropy: Box::new(|bytes| bytes.fill(7)) };
        let settings =
            Settings { checkpoint_interval: 0, checkpoint_wal_threshold: u64::MAX, ..Settings::default() };
        let mut instance =
            Instance::new(settings, IDENTITY, process, new_store(), queue, Vclock::new(), BEGINNING);
        instance.start(BEGINNING).unwrap();
        let mut world = World {
            instance,
            turn: TurnState::default(),
            journal: FakeLog::default(),
            clients: Vec::new(),
            now: BEGINNING,
            clock: Instant::now(),
            is_replica_set,
            puts: 0,
            put: HashSet::new(),
            maybe_done: HashSet::new(),
            done: HashSet::new(),
            held: HashMap::new(),
            unknown: 0,
            refused: 0,
            losses: 0,
            snapshot: None,
            snapshot_rows: 0,
            snapshots: Vec::new(),
            abandoned: 0,
        };
        for _ in 0..4 {
            let origin = Origin { peer: String::new(), trust: Trust::Admin };
            let slot = world.instance.connect(origin, world.now).unwrap();
            world.instance.consume(slot, GREETING_SIZE);
            world.clients.push(Client { slot, last_sync: 0, asked: BTreeMap::new(), received: Vec::new() });
        }
        for (name, kind) in TUBES {
            world.send(0, "queue.create_tube", &Value::array([Value::from(name), kind.into()]));
        }
        world.rest();
        world
    }

    /// Sends a call and returns its sync.
    pub(crate) fn send(&mut self, client: usize, name: &str, args: &Value) -> u64 {
        let Client { slot, last_sync, .. } = &mut self.clients[client];
        *last_sync += 1;
        let (slot, sync) = (*slot, *last_sync);
        let mut frame = Vec::new();
        request::encode(&mut frame, sync, &Body::Call { name: name.as_bytes(), args: &args.encode() });
        let Ok(Split::Frame { content, .. }) = split(&frame, DEFAULT_LIMIT) else { panic!("a frame") };
        self.instance.handle_frame(slot, content, self.now).unwrap();
        self.turn.received(1);
        sync
    }

    pub(crate) fn ask(&mut self, client: usize, asked: Asked, name: &str, args: &Value) {
        let sync = self.send(client, name, args);
        self.clients[client].asked.insert(sync, asked);
    }

    pub(crate) fn put_task(&mut self, client: usize, tube: usize) {
        self.puts += 1;
        let number = self.puts;
        let mut args = vec![Value::from(number)];
        if TUBES[tube].1 == "utube" {
            args.push(Value::map([("utube", Value::from(format!("{}", number % 3)))]));
        }
        let name = format!("queue.tube.{}:put", TUBES[tube].0);
        self.ask(client, Asked::Put { number }, &name, &Value::Array(args));
    }

    pub(crate) fn take_task(&mut self, client: usize, tube: usize, timeout: u64) {
        let name = format!("queue.tube.{}:take", TUBES[tube].0);
        self.ask(
            client,
            Asked::Take { tube, losses: self.losses },
            &name,
            &Value::array([Value::from(timeout)]),
        );
    }

    pub(crate) fn settle_task(&mut self, random: &mut Random) {
        let mut held: Vec<_> = self.held.iter().map(|(&number, &held)| (number, held)).collect();
        held.sort_unstable();
        if held.is_empty() {
            return;
        }
        let (number, (client, tube, id, _)) = held[random.below(held.len() as u64) as usize];
        let ends = random.below(3) > 0;
        let method = if ends { "ack" } else { "release" };
        self.held.remove(&number);
        if ends {
            self.maybe_done.insert(number);
        }
        let name = format!("queue.tube.{}:{method}", TUBES[tube].0);
        self.ask(client, Asked::Settle { number, ends }, &name, &Value::array([Value::from(id)]));
    }

    pub(crate) fn end_turn(&mut self) {
        self.clock += Duration::from_micros(50);
        let (now, clock) = (self.now, self.clock);
        let Ok(_) = turn::end(self, now, clock);
    }

    /// Confirms everything, and compares the data with what the confirmed rows make.
    pub(crate) fn rest(&mut self) {
        loop {
            self.end_turn();
            if !self.journal.confirm() && self.turn.is_idle() && !self.instance.has_open_batch() {
                break;
            }
        }
        assert_eq!(self.instance.store().digest(), replayed(&self.journal.confirmed).digest());
    }

    pub(crate) fn answered(&mut self, client: usize, asked: &Asked, answer: Result<Vec<Value>, ErrorObject>) {
        match (asked, answer) {
            (_, Err(error)) if error.fields.iter().any(|(_, name)| name == OUTCOME_UNKNOWN) => {
                self.unknown += 1;
            }
            // Nothing was done.
            (_, Err(error)) if error.code == u32::from(ErrorCode::Loading) => self.refused += 1,
            (Asked::Put { number }, Ok(_)) => {
                self.put.insert(*number);
            }
            (Asked::Take { tube, losses }, Ok(values)) => {
                let Some(Value::Array(task)) = values.first() else { return };
                let [Value::Uint(id), _, Value::Uint(number)] = task[..] else { panic!("a task: {task:?}") };
                assert!(!self.done.contains(&number), "task {number} is taken after its ack");
                // The reply to a take from before a loss may come after the loss has released the task.
                let is_certain = self.is_replica_set || *losses == self.losses;
                // What the client asked of the task when it held it before the loss may end this hold instead, and another
                // client, whose reply is read first, may have taken the task since.
                let is_of_task =
                    |asked: &Asked| matches!(asked, Asked::Settle { number: other, .. } if *other == number);
                let may_have_ended = self.clients[client].asked.values().any(is_of_task);
                let before = self.held.get(&number).copied().filter(|before| before.3);
                assert!(may_have_ended || before.is_none(), "task {number} has two owners: {before:?}");
                if before.is_none() {
                    self.held.insert(number, (client, *tube, id, is_certain && !may_have_ended));
                }
            }
            (Asked::Settle { number, ends: true }, Ok(_)) => {
                self.done.insert(*number);
            }
            (Asked::Settle { .. }, Ok(_)) => {}
            (Asked::Settle { number, .. }, Err(error)) => {
                assert!(error.message.contains("Task was not taken"), "{}", error.message);
                assert!(
                    !self.is_replica_set || self.losses == 0,
                    "an owner by a confirmed row lost task {number}"
                );
            }
            (asked, Err(error)) => panic!("{asked:?} is refused: {}", error.message),
        }
    }

    /// What every promise comes to at the end.
    pub(crate) fn check(&mut self) {
        self.now += 100 * SECOND;
        self.rest();
        self.rest();
        for client in &self.clients {
            assert!(client.asked.is_empty(), "everything is answered: {:?}", client.asked);
        }
        let mut stored = HashSet::new();
        for (name, _) in TUBES {
            let space = self.instance.store().space_by_name(name).unwrap().id();
            let mut read = Vec::new();
            let all = &[0x90];
            let iterator = lycosa_store::IteratorType::All;
            let store = self.instance.read(space, 0).unwrap();
            store
                .select(user::ADMIN, space, 0, iterator, all, 0, u64::MAX, &mut |tuple| {
                    read.push(tuple.to_vec());
                })
                .unwrap();
            for tuple in read {
                let Ok(Value::Array(fields)) = Value::decode(&tuple) else { panic!("a tuple") };
                let Some(Value::Uint(number)) = fields.last() else { panic!("a number: {fields:?}") };
                assert!(stored.insert(*number), "task {number} is there twice");
            }
        }
        for number in &self.put {
            let may_be_gone = self.maybe_done.contains(number);
            assert!(stored.contains(number) || may_be_gone, "the acknowledged task {number} is lost");
        }
        for number in &self.done {
            assert!(!stored.contains(number), "task {number} is there after its acknowledged ack");
        }
    }
}

impl Host for World {
    type Journal = FakeLog;
    type Stop = Infallible;

    fn parts(&mut self) -> Parts<'_, FakeLog> {
        Parts { instance: &mut self.instance, turn: &mut self.turn, journal: &mut self.journal }
    }

    fn checkpoint_step(&mut self) -> Budget<'static> {
        CHECKPOINT_STEP
    }

    /// Writes snapshots into memory, and checks that each has the data that there were when it was begun.
    fn order(&mut self, order: CheckpointOrder) -> Result<(), Infallible> {
        match order {
            CheckpointOrder::Begin { number, .. } => {
                let digest = self.instance.store().digest();
                self.snapshot = Some((digest, Replay::new(Store::new(lycosa_store::Settings::default()))));
                self.instance.handle_checkpoint_wants(number, Chunk::default());
            }
            CheckpointOrder::Rows { number, chunk } => {
                let (_, replay) = self.snapshot.as_mut().expect("a snapshot was begun");
                let mut reader = Reader::new(&chunk.rows);
                while !reader.is_empty() {
                    replay.apply(&row::decode_row(&mut reader).unwrap().1).unwrap();
                    self.snapshot_rows += 1;
                }
                self.instance.handle_checkpoint_wants(number, chunk);
            }
            CheckpointOrder::Complete { number, .. } => {
                let (digest, mut replay) = self.snapshot.take().expect("a snapshot was begun");
                replay.end_snapshot().unwrap();
                assert_eq!(replay.finish().unwrap().digest(), digest, "a snapshot is of one moment");
                let files = Files::default();
                self.instance.handle_checkpoint_done(number, &Written { bytes: 0, peak: 0, files }, self.now);
                self.snapshots.push(digest);
            }
            CheckpointOrder::Abandon { .. } => {
                self.snapshot = None;
                self.abandoned += 1;
            }
        }
        Ok(())
    }

    fn lost(&mut self, _: Lsn) -> Result<(), Infallible> {
        self.losses += 1;
        if !self.is_replica_set {
            self.held.clear();
        }
        Ok(())
    }

    fn write(&mut self, slot: ConnectionSlot) -> Result<(), Infallible> {
        let Some(which) = self.clients.iter().position(|client| client.slot == slot) else { return Ok(()) };
        let ready = self.instance.output(slot).to_vec();
        self.instance.consume(slot, ready.len());
        self.clients[which].received.extend(ready);
        let received = std::mem::take(&mut self.clients[which].received);
        let mut rest = received.as_slice();
        while let Ok(Split::Frame { content, consumed }) = split(rest, DEFAULT_LIMIT) {
            let reply = reply::decode(content).unwrap();
            let answer = match reply.content {
                Content::Ok { data, .. } => match Value::decode(data) {
                    Ok(Value::Array(values)) => Ok(values),
                    other => panic!("values, not {other:?}"),
                },
                Content::Error(error) => Err(error),
                Content::Push { .. } => panic!("nothing pushes"),
            };
            if let Some(asked) = self.clients[which].asked.remove(&reply.sync) {
                self.answered(which, &asked, answer);
            }
            rest = &rest[consumed..];
        }
        self.clients[which].received = rest.to_vec();
        Ok(())
    }
}
