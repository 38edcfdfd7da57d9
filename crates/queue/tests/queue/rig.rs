//! A store and a queue with connections, a clock and a log that survives restarts.

use std::collections::{HashMap, HashSet, VecDeque};

use lycosa_queue::status::Page;
use lycosa_queue::{
    Answer, Caller, Command, Concern, Configuration, Error, Procedure, Queue, Right, Seconds, SessionId,
};
use lycosa_store::{Budget, Origin, Settings, Statement, Store, UserId, user};
use lycosa_tuple::mp::Reader;
use lycosa_tuple::value::Value;

/// A statement that owns its bytes.
#[derive(Debug, Clone)]
enum Row {
    Insert(u32, Vec<u8>),
    Replace(u32, Vec<u8>),
    Update(u32, u32, Vec<u8>, Vec<u8>, i64),
    Upsert(u32, Vec<u8>, Vec<u8>, i64),
    Delete(u32, u32, Vec<u8>),
}

impl Row {
    fn of(statement: &Statement<'_>) -> Self {
        match *statement {
            Statement::Insert { space, tuple } => Self::Insert(space, tuple.to_vec()),
            Statement::Replace { space, tuple } => Self::Replace(space, tuple.to_vec()),
            Statement::Update { space, index, key, operations, base } => {
                Self::Update(space, index, key.to_vec(), operations.to_vec(), base)
            }
            Statement::Upsert { space, tuple, operations, base } => {
                Self::Upsert(space, tuple.to_vec(), operations.to_vec(), base)
            }
            Statement::Delete { space, index, key } => Self::Delete(space, index, key.to_vec()),
        }
    }

    fn statement(&self) -> Statement<'_> {
        match self {
            Self::Insert(space, tuple) => Statement::Insert { space: *space, tuple },
            Self::Replace(space, tuple) => Statement::Replace { space: *space, tuple },
            Self::Update(space, index, key, operations, base) => {
                Statement::Update { space: *space, index: *index, key, operations, base: *base }
            }
            Self::Upsert(space, tuple, operations, base) => {
                Statement::Upsert { space: *space, tuple, operations, base: *base }
            }
            Self::Delete(space, index, key) => Statement::Delete { space: *space, index: *index, key },
        }
    }
}

/// What a call answered.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Reply {
    Values(Vec<Value>),
    Error(Error),
    /// No such procedure.
    Undefined,
    /// The answer will come under this token.
    Parked(u64),
}

impl Reply {
    /// The values of an answer that must be a success.
    #[track_caller]
    pub(crate) fn values(self) -> Vec<Value> {
        match self {
            Self::Values(values) => values,
            other => panic!("not a success: {other:?}"),
        }
    }

    /// The text of an answer that must be an error.
    #[track_caller]
    pub(crate) fn error(self) -> String {
        match self {
            Self::Error(error) => error.to_string(),
            other => panic!("not an error: {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn token(self) -> u64 {
        match self {
            Self::Parked(token) => token,
            other => panic!("not parked: {other:?}"),
        }
    }
}

pub(crate) const SECOND: u64 = 1_000_000;

const MEMORY_LIMIT: u64 = 4 << 30;

pub(crate) struct Rig {
    pub(crate) store: Store,
    pub(crate) queue: Queue,
    /// µs since the epoch.
    pub(crate) now: u64,
    pub(crate) users: HashMap<u64, UserId>,
    log: Vec<Row>,
    /// Where in the log each transaction ends.
    ends: Vec<usize>,
    /// Transactions of another rig's log that this one has applied or begun with, if it is a replica.
    applied: usize,
    answers: HashMap<u64, Reply>,
    order: VecDeque<u64>,
    last_request: u64,
    configuration: Configuration,
    /// How often committed rows were collected.
    collected: u64,
    /// Statements that the last call left in the log.
    pub(crate) logged: usize,
    boots: u64,
}

/// Ids that differ from boot to boot, and not from run to run.
fn session_ids(boot: u64) -> Box<dyn FnMut() -> SessionId + Send> {
    let mut last = boot << 32;
    Box::new(move || {
        last += 1;
        let mut id = [0xab; 16];
        id[..8].copy_from_slice(&last.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
        id
    })
}

fn values(bytes: &[u8], count: u32) -> Vec<Value> {
    let mut reader = Reader::new(bytes);
    let values: Vec<_> = (0..count).map(|_| Value::read(&mut reader).expect("a value")).collect();
    assert!(reader.is_empty(), "more bytes than values");
    values
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::configured(Configuration::default())
    }

    pub(crate) fn configured(configuration: Configuration) -> Self {
        let mut rig = Self {
            store: Store::new(Settings::default()),
            queue: Queue::new(configuration, session_ids(0)),
            now: 1_800_000_000 * SECOND,
            users: HashMap::new(),
            log: Vec::new(),
            ends: Vec::new(),
            applied: 0,
            answers: HashMap::new(),
            order: VecDeque::new(),
            last_request: 0,
            configuration,
            collected: 0,
            logged: 0,
            boots: 0,
        };
        rig.boot(MEMORY_LIMIT);
        rig
    }

    /// A read-only instance with the data of `master`, whose queue follows what [`Self::apply_of`] brings.
    pub(crate) fn replica_of(master: &Self) -> Self {
        let boots = master.boots + 1000;
        let mut rig = Self {
            store: Store::new(Settings::default()),
            queue: Queue::new(master.configuration, session_ids(boots)),
            now: master.now,
            users: HashMap::new(),
            log: master.log.clone(),
            ends: master.ends.clone(),
            applied: master.ends.len(),
            answers: HashMap::new(),
            order: VecDeque::new(),
            last_request: 0,
            configuration: master.configuration,
            collected: 0,
            logged: 0,
            boots,
        };
        rig.recover();
        rig.queue.set_read_only(&mut rig.store, true, rig.now).expect("nothing is written");
        rig
    }

    /// Executes what the master's log has behind its first `begin` transactions, in the open transaction.
    pub(crate) fn execute_of(&mut self, master: &Self, begin: usize) {
        let begin = begin.checked_sub(1).map_or(0, |before| master.ends[before]);
        for row in &master.log[begin..] {
            self.store.execute(&row.statement()).expect("a logged statement");
        }
    }

    /// Applies up to `limit` transactions of the master's log that came since the last time.
    pub(crate) fn apply_of(&mut self, master: &Self, limit: usize) {
        for number in self.applied..master.ends.len().min(self.applied.saturating_add(limit)) {
            let begin = number.checked_sub(1).map_or(0, |before| master.ends[before]);
            self.queue.begin(&mut self.store, user::ADMIN);
            for row in &master.log[begin..master.ends[number]] {
                self.store.execute_of(Origin::Master, &row.statement()).expect("a logged statement");
            }
            self.commit();
            self.applied += 1;
        }
    }

    /// The instance takes no writes from now on, and follows `master` from the present end of its log.
    pub(crate) fn demote(&mut self, master: &Self) {
        self.queue.set_read_only(&mut self.store, true, self.now).expect("nothing is written");
        self.collect_committed();
        self.applied = master.ends.len();
    }

    /// The instance takes writes from now on.
    pub(crate) fn promote(&mut self) {
        if self.queue.state() == lycosa_queue::QueueState::Init {
            self.queue.start(&mut self.store, self.now).expect("start");
        } else {
            self.queue.set_read_only(&mut self.store, false, self.now).expect("start");
        }
        self.collect_committed();
    }

    pub(crate) fn with_ttr(seconds: f64, in_replicaset: bool) -> Self {
        Self::configured(Configuration { ttr: Some(Seconds::from_double(seconds)), in_replicaset })
    }

    fn boot(&mut self, memory_limit: u64) {
        self.recover();
        self.store.set_memory_limit(memory_limit);
        self.queue.start(&mut self.store, self.now).expect("start");
        self.collect_committed();
    }

    fn recover(&mut self) {
        let uuid = "00000000-0000-4000-8000-000000000001";
        self.store = Store::new(Settings { memory_limit: MEMORY_LIMIT, ..Settings::default() });
        self.store.bootstrap(uuid, uuid).expect("bootstrap");
        for row in &self.log {
            self.store.recover(&row.statement()).expect("a logged statement");
        }
        lycosa_queue::finish_recovery(&mut self.store).expect("recovery");
    }

    /// Ends the process and begins a new one with what the log has.
    pub(crate) fn restart(&mut self) {
        self.restart_within(MEMORY_LIMIT);
    }

    /// The same with another memory limit, in bytes.
    pub(crate) fn restart_within(&mut self, memory_limit: u64) {
        self.answers.clear();
        self.users.clear();
        self.boots += 1;
        self.queue = Queue::new(self.configuration, session_ids(self.boots));
        self.boot(memory_limit);
    }

    /// Number of transactions in the log.
    pub(crate) fn transactions(&self) -> usize {
        self.ends.len()
    }

    /// The log loses all but its first `kept` transactions, or keeps all.
    pub(crate) fn forget_behind(&mut self, kept: usize) {
        self.ends.truncate(kept);
        self.log.truncate(self.ends.last().copied().unwrap_or(0));
    }

    /// The queue begins to come up on what the log has now.
    pub(crate) fn begin_rebuild(&mut self) {
        self.recover();
        self.queue.rebuild(&mut self.store, self.now);
    }

    /// The queue comes up on what the log has now, `budget` rows in each step; `between` is called with the number of each
    /// step. Returns the number of steps and the calls that go on waiting.
    pub(crate) fn rebuild(
        &mut self,
        budget: usize,
        mut between: impl FnMut(&mut Self, usize),
    ) -> (usize, HashSet<u64>) {
        self.begin_rebuild();
        for step in 1.. {
            let rebuilt = self.queue.rebuild_step(&mut self.store, self.now, budget);
            self.collect_committed();
            if let Some(rebuilt) = rebuilt {
                rebuilt.started.expect("a start");
                return (step, rebuilt.waiting.into_iter().map(|(_, request)| request).collect());
            }
            between(self, step);
        }
        unreachable!("a rebuild ends")
    }

    /// Moves committed changes into the log, and answers of woken calls among the answers.
    pub(crate) fn collect_committed(&mut self) {
        if self.store.in_transaction() {
            return;
        }
        let before = self.log.len();
        let (log, ends) = (&mut self.log, &mut self.ends);
        self.store.drain_committed(&mut |committed| {
            log.extend(committed.effects().map(|effect| Row::of(&effect.statement)));
            if ends.last().copied().unwrap_or(0) < log.len() {
                ends.push(log.len());
            }
        });
        self.logged = self.log.len() - before;
        while let Some(woken) = self.queue.poll_woken() {
            let reply = match woken.result {
                Ok((count, bytes)) => Reply::Values(values(&bytes, count)),
                Err(error) => Reply::Error(error),
            };
            self.answers.insert(woken.request, reply);
            self.order.push_back(woken.request);
        }
        self.collected += 1;
        let tasks = |store: &Store| {
            let spaces = self.queue.tubes().filter_map(|(name, _)| store.space_by_name(name));
            spaces.map(lycosa_store::Space::len).sum::<u64>()
        };
        if self.collected.is_multiple_of(1 + tasks(&self.store) / 16) {
            self.queue.verify(&self.store).expect("the kept numbers are those of a recount");
        }
    }

    pub(crate) fn user(&self, connection: u64) -> UserId {
        self.users.get(&connection).copied().unwrap_or(user::ADMIN)
    }

    pub(crate) fn caller(&self, connection: u64) -> Caller {
        let user = self.user(connection);
        Caller { session: connection, may_wait: true, ..Caller::internal() }.acting_as(user)
    }

    /// Calls a procedure as [`Queue::call`] does, with the number of the next request.
    pub(crate) fn call_as(
        &mut self,
        caller: &Caller,
        procedure: &Procedure,
        arguments: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Answer, Error> {
        self.last_request += 1;
        let (request, right) = (self.last_request, Right::default());
        let command = Command { procedure, right, request, arguments, concern: Concern::NONE };
        self.queue.call(&mut self.store, caller, &command, self.now, out)
    }

    pub(crate) fn call_with(&mut self, connection: u64, name: &str, arguments: &[u8]) -> Reply {
        let caller = self.caller(connection);
        let Some(procedure) = self.queue.resolve(name.as_bytes()) else { return Reply::Undefined };
        let mut out = Vec::new();
        let answer = self.call_as(&caller, &procedure, arguments, &mut out);
        self.collect_committed();
        match answer {
            Ok(Answer::Done { count }) => Reply::Values(values(&out, count)),
            Ok(Answer::Parked) => Reply::Parked(self.last_request),
            Err(error) => {
                assert!(out.is_empty(), "an error leaves nothing behind");
                Reply::Error(error)
            }
        }
    }

    pub(crate) fn call(&mut self, connection: u64, name: &str, arguments: Vec<Value>) -> Reply {
        self.call_with(connection, name, &Value::from(arguments).encode())
    }

    /// A method of the tube `t`.
    pub(crate) fn t(&mut self, connection: u64, method: &str, arguments: Vec<Value>) -> Reply {
        self.call(connection, &format!("queue.tube.t:{method}"), arguments)
    }

    pub(crate) fn create(&mut self, name: &str, tube_type: &str, options: Value) {
        let arguments = vec![Value::from(name), Value::from(tube_type), options];
        self.call(1, "queue.create_tube", arguments).values();
    }

    /// The status of the tube `t`, with its sub-queues and its history.
    pub(crate) fn status(&mut self) -> lycosa_queue::status::TubeStatus {
        let caller = self.caller(1);
        let page = Page { tube: Some("t"), history: true, ..Page::default() };
        let page = self.queue.statuses(&self.store, &caller, page, self.now);
        page.expect("its space").0.pop().expect("the tube")
    }

    /// The answer of a parked call, if it has arrived.
    pub(crate) fn answer(&mut self, token: u64) -> Option<Reply> {
        self.order.retain(|other| *other != token);
        self.answers.remove(&token)
    }

    /// Tokens of the answers that the test has not read, in the order in which they came.
    pub(crate) fn arrived(&self) -> Vec<u64> {
        self.order.iter().copied().collect()
    }

    /// Handles expired deadlines and background work until nothing is due.
    pub(crate) fn tick(&mut self) {
        for _ in 0..1_000_000 {
            let tick = self.queue.tick(&mut self.store, self.now, 1000);
            self.collect_committed();
            let next = self.queue.work(&mut self.store, self.now, Budget::of_rows(1000));
            self.collect_committed();
            if !tick.more && next.is_none_or(|next| next > self.now) {
                return;
            }
        }
        panic!("the clock never comes to rest");
    }

    /// Lets time pass; each deadline is handled at its time.
    pub(crate) fn advance(&mut self, duration: u64) {
        let end = self.now + duration;
        let next = |queue: &Queue| queue.next_deadline().into_iter().chain(queue.next_work()).min();
        while let Some(next) = next(&self.queue).filter(|next| *next <= end) {
            self.now = self.now.max(next);
            self.tick();
        }
        self.now = end;
        self.tick();
    }

    /// Does one step of background work.
    pub(crate) fn work(&mut self, rows: u32) {
        self.queue.work(&mut self.store, self.now, Budget::of_rows(rows));
        self.collect_committed();
    }

    /// Opens a transaction around several calls, as a program does.
    pub(crate) fn begin(&mut self) {
        self.queue.begin(&mut self.store, user::ADMIN);
    }

    pub(crate) fn commit(&mut self) {
        self.queue.commit(&mut self.store, self.now).expect("nothing stands against it");
        self.collect_committed();
    }

    pub(crate) fn rollback(&mut self) {
        self.queue.rollback(&mut self.store);
    }

    /// The last row of the log: its kind, and its tuple, operations or key.
    pub(crate) fn last_row(&self) -> Value {
        let (name, bytes) = match self.log.last().expect("a row") {
            Row::Insert(_, tuple) => ("insert", tuple),
            Row::Replace(_, tuple) => ("replace", tuple),
            Row::Update(_, _, _, operations, _) => ("update", operations),
            Row::Upsert(_, _, operations, _) => ("upsert", operations),
            Row::Delete(_, _, key) => ("delete", key),
        };
        Value::array([Value::from(name), Value::decode(bytes).expect("a value")])
    }

    pub(crate) fn disconnect(&mut self, connection: u64) {
        self.queue.disconnect(&mut self.store, connection, self.now);
        self.users.remove(&connection);
        self.collect_committed();
    }

    pub(crate) fn space_id(&self, name: &str) -> u32 {
        self.store.space_by_name(name).unwrap_or_else(|| panic!("no space '{name}'")).id()
    }

    /// All tuples of a space, by primary key.
    pub(crate) fn rows(&self, space: &str) -> Vec<Value> {
        if space == "_queue_taken_2" {
            let rows = self.queue.taken_rows(&self.store).expect("the space is there");
            return rows.iter().map(|row| Value::decode(row).expect("a tuple")).collect();
        }
        if space == "_queue_consumers" {
            let rows = self.queue.consumer_rows(&self.store).expect("the space is there");
            return rows.iter().map(|row| Value::decode(row).expect("a tuple")).collect();
        }
        let mut rows = Vec::new();
        let iterator = lycosa_store::IteratorType::All;
        self.store
            .scan(self.space_id(space), 0, iterator, &[0x90], &mut |tuple| {
                rows.push(Value::decode(tuple).expect("a tuple"));
                std::ops::ControlFlow::Continue(())
            })
            .expect("a scan");
        rows
    }

    /// `box.space.NAME:truncate()`.
    pub(crate) fn truncate_space(&mut self, name: &str) {
        let tuple = Value::array([u64::from(self.space_id(name)), 1]).encode();
        let add = Value::array([Value::from("+"), Value::from(1_u64), Value::from(1_u64)]);
        let operations = Value::array([add]).encode();
        let truncate = Statement::Upsert {
            space: lycosa_store::system::TRUNCATE,
            tuple: &tuple,
            operations: &operations,
            base: 0,
        };
        self.execute(&truncate).expect("a truncation");
    }

    /// A statement by a user, in a transaction of its own.
    pub(crate) fn execute(&mut self, statement: &Statement<'_>) -> Result<(), Error> {
        let out = &mut Vec::new();
        let result = self.queue.execute(&mut self.store, user::ADMIN, statement, self.now, out).map(drop);
        self.collect_committed();
        result
    }
}

/// `[id, state, data]`
pub(crate) fn task(id: u64, state: &str, data: &str) -> Vec<Value> {
    vec![Value::array([Value::from(id), Value::from(state), Value::from(data)])]
}

/// A map of options.
pub(crate) fn options<const N: usize>(pairs: [(&str, Value); N]) -> Value {
    Value::map(pairs)
}

/// Arguments of a call.
macro_rules! args {
    ($($value:expr),* $(,)?) => { vec![$(lycosa_tuple::value::Value::from($value)),*] };
}
pub(crate) use args;
