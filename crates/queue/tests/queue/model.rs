//! Random lives of tubes against a plain table of tasks.
//!
//! The model keeps tasks in a map and looks through all of them for everything. After each step the answer, the tube's
//! rows, the owners, the ready buffer, the statistics and the answers of waiting calls must be those of the model; so
//! no task is lost or has two owners, no sub-queue has two taken tasks, and the call that waits longest is served first.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use lycosa_store::Statement;
use lycosa_tuple::value::Value;
use proptest::prelude::*;

use crate::rig::{Reply, Rig, SECOND, options};
use crate::table::{CAPACITY, Expected, FOREVER, Kind, Model, Task, Waiter, Wanted};

/// Options of a task that is put.
#[derive(Debug, Clone)]
struct Given {
    utube: u8,
    pri: u64,
    ttl: Option<u64>,
    ttr: Option<u64>,
    delay: u64,
    timeout: u64,
}

impl Given {
    fn options(&self) -> Value {
        let mut given = vec![
            ("utube", Value::from(self.utube)),
            ("pri", Value::from(self.pri)),
            ("delay", seconds(self.delay)),
            ("timeout", seconds(self.timeout)),
        ];
        given.extend(self.ttl.map(|ttl| ("ttl", seconds(ttl))));
        given.extend(self.ttr.map(|ttr| ("ttr", seconds(ttr))));
        Value::map(given)
    }

    fn task(&self, kind: Kind, now: u64, data: u64) -> Task {
        let (ttl, delay) = (self.ttl.unwrap_or(FOREVER), if kind.timed() { self.delay } else { 0 });
        Task {
            status: if delay > 0 { '~' } else { 'r' },
            next_event: now + if delay > 0 { delay } else { ttl },
            ttl: ttl + delay,
            ttr: self.ttr.unwrap_or(FOREVER),
            pri: self.pri,
            created: now,
            utube: self.utube.to_string(),
            data,
            owner: None,
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Put {
        connection: u64,
        given: Given,
    },
    PutMany {
        connection: u64,
        given: Vec<Given>,
        /// The first one's options are for all.
        shared: bool,
    },
    Take {
        connection: u64,
        timeout: u64,
    },
    TakeMany {
        connection: u64,
        limit: u64,
        timeout: u64,
    },
    AckMany {
        connection: u64,
        ids: Vec<u64>,
    },
    ReleaseMany {
        connection: u64,
        ids: Vec<u64>,
        delay: u64,
    },
    Ack {
        connection: u64,
        id: u64,
    },
    Release {
        connection: u64,
        id: u64,
        delay: u64,
    },
    Touch {
        connection: u64,
        id: u64,
        delta: u64,
    },
    Bury {
        connection: u64,
        id: u64,
    },
    Kick {
        count: u64,
    },
    Delete {
        id: u64,
    },
    Peek {
        id: u64,
    },
    ReleaseAll,
    Truncate,
    Advance {
        duration: u64,
    },
    Disconnect {
        connection: u64,
    },
    Share {
        connection: u64,
        with: u64,
    },
    Restart,
    /// Someone deletes the row.
    ForeignDelete {
        id: u64,
    },
    /// Someone sets the status.
    ForeignStatus {
        id: u64,
        status: char,
    },
}

/// Half seconds: few values, so that deadlines coincide.
fn half_seconds() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0_u64), Just(1), Just(2), Just(4), Just(20)].prop_map(|halves| halves * SECOND / 2)
}

fn given() -> impl Strategy<Value = Given> {
    let maybe = || proptest::option::weighted(0.3, half_seconds());
    (0_u8..3, 0_u64..3, maybe(), maybe(), half_seconds(), half_seconds()).prop_map(
        |(utube, pri, ttl, ttr, delay, timeout)| {
            let delay = if delay == 10 * SECOND { 0 } else { delay };
            Given { utube, pri, ttl, ttr, delay, timeout }
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let connection = || 1_u64..5;
    let id = || 0_u64..9;
    let ids = || proptest::collection::vec(id(), 0..4);
    prop_oneof![
        12 => (connection(), given()).prop_map(|(connection, given)| Step::Put { connection, given }),
        4 => (connection(), proptest::collection::vec(given(), 0..CAPACITY + 2), any::<bool>())
            .prop_map(|(connection, given, shared)| Step::PutMany { connection, given, shared }),
        6 => (connection(), 1_u64..5, half_seconds())
            .prop_map(|(connection, limit, timeout)| Step::TakeMany { connection, limit, timeout }),
        3 => (connection(), ids()).prop_map(|(connection, ids)| Step::AckMany { connection, ids }),
        3 => (connection(), ids(), half_seconds())
            .prop_map(|(connection, ids, delay)| Step::ReleaseMany { connection, ids, delay }),
        12 => (connection(), half_seconds()).prop_map(|(connection, timeout)| Step::Take { connection, timeout }),
        6 => (connection(), id()).prop_map(|(connection, id)| Step::Ack { connection, id }),
        5 => (connection(), id(), half_seconds())
            .prop_map(|(connection, id, delay)| Step::Release { connection, id, delay }),
        3 => (connection(), id(), half_seconds())
            .prop_map(|(connection, id, delta)| Step::Touch { connection, id, delta }),
        4 => (connection(), id()).prop_map(|(connection, id)| Step::Bury { connection, id }),
        3 => (0_u64..4).prop_map(|count| Step::Kick { count }),
        3 => id().prop_map(|id| Step::Delete { id }),
        1 => id().prop_map(|id| Step::Peek { id }),
        1 => Just(Step::ReleaseAll),
        1 => Just(Step::Truncate),
        8 => half_seconds().prop_map(|duration| Step::Advance { duration }),
        3 => connection().prop_map(|connection| Step::Disconnect { connection }),
        2 => (connection(), connection()).prop_map(|(connection, with)| Step::Share { connection, with }),
        1 => Just(Step::Restart),
        1 => id().prop_map(|id| Step::ForeignDelete { id }),
        2 => (id(), prop_oneof![Just('r'), Just('t'), Just('!')])
            .prop_map(|(id, status)| Step::ForeignStatus { id, status }),
    ]
}

fn seconds(micros: u64) -> Value {
    Value::from(micros as f64 / SECOND as f64)
}

fn reply_of(reply: &Reply) -> Expected {
    match reply {
        Reply::Parked(_) => Expected::Parked,
        Reply::Error(error) => match error.to_string() {
            text if text == "Task was not taken" => Expected::NotTaken,
            text if text.starts_with("task ") => {
                let id =
                    text.strip_prefix("task ").and_then(|text| text.strip_suffix(": Task was not taken"));
                Expected::NotTakenAmong(id.and_then(|id| id.parse().ok()).expect("an id"))
            }
            text if text.contains("do not fit a tube") => Expected::BeyondCapacity,
            text if text.ends_with("not found") => Expected::NotFound,
            text if text.ends_with("does not support touch") => Expected::NoTouch,
            text => panic!("{text}"),
        },
        Reply::Undefined => panic!("no such procedure"),
        Reply::Values(values) => match values.as_slice() {
            [] => Expected::Nothing,
            [Value::Nil] => Expected::Null,
            [Value::Uint(number)] => Expected::Number(*number),
            [Value::Array(tasks)] if tasks.iter().all(|task| task.as_array().is_some()) => {
                let tasks = tasks.iter().map(|task| task_of(task.as_array().expect("a task")));
                Expected::Tasks(tasks.map(Expected::task).collect())
            }
            [Value::Array(fields)] => task_of(fields),
            other => panic!("{other:?}"),
        },
    }
}

fn task_of(fields: &[Value]) -> Expected {
    let number = |place: usize| fields[place].as_u64().expect("a number");
    let status = fields[1].as_str().and_then(|status| status.chars().next()).expect("a status");
    Expected::Task(number(0), status, number(2))
}

struct Pair {
    rig: Rig,
    model: Model,
    puts: u64,
    waiting: Vec<u64>,
}

impl Pair {
    fn new(kind: Kind, ready_buffer: bool, temporary: bool, ttr: u64) -> Self {
        let mut rig = Rig::with_ttr(ttr as f64 / SECOND as f64, false);
        let mode = if ready_buffer { "ready_buffer" } else { "default" };
        let tube = options([
            ("temporary", Value::from(temporary)),
            ("capacity", Value::from(CAPACITY as u64)),
            ("storage_mode", Value::from(mode)),
        ]);
        rig.create("t", kind.name(), tube);
        let model = Model {
            kind,
            ttr,
            now: rig.now,
            tasks: BTreeMap::new(),
            next_id: 0,
            reserved: 0,
            counts: HashMap::new(),
            done: 0,
            waiters: VecDeque::new(),
            woken: HashMap::new(),
            sessions: HashMap::new(),
            expiring: BTreeSet::new(),
            last_session: 0,
        };
        Self { rig, model, puts: 0, waiting: Vec::new() }
    }

    fn park(&mut self, reply: &Reply, connection: u64, timeout: u64, wanted: Wanted) {
        let Reply::Parked(token) = *reply else { panic!("not parked: {reply:?}") };
        let deadline = self.model.now + timeout;
        self.model.waiters.push_back(Waiter { token, connection, deadline, wanted });
        self.waiting.push(token);
    }

    fn put_many(&mut self, connection: u64, given: &[Given], shared: bool) -> (Reply, Expected) {
        let kind = self.model.kind;
        let payloads = self.puts + 1..=self.puts + given.len() as u64;
        self.puts += given.len() as u64;
        let options = match given.first() {
            Some(first) if shared => first.options(),
            _ => Value::array(given.iter().map(Given::options)),
        };
        let arguments = vec![Value::array(payloads.clone()), options];
        let reply = self.rig.t(connection, "put_many", arguments);
        let of = |place: usize| &given[if shared { 0 } else { place }];
        let timeout = (0..given.len()).map(|place| of(place).timeout).max().unwrap_or(0);
        let tasks = payloads.enumerate();
        let tasks: Vec<_> = tasks.map(|(place, data)| of(place).task(kind, self.model.now, data)).collect();
        let expected = if tasks.is_empty() {
            Expected::Tasks(Vec::new())
        } else if kind == Kind::LimFifoTtl && tasks.len() > CAPACITY {
            Expected::BeyondCapacity
        } else if self.model.may_put(tasks.len()) {
            let expected = self.model.put_many(tasks);
            self.model.serve();
            expected
        } else if timeout == 0 {
            Expected::Null
        } else {
            self.park(&reply, connection, timeout, Wanted::RoomForMany(tasks));
            Expected::Parked
        };
        (reply, expected)
    }

    /// Does something to tasks in one call, and in the model to one after the other: to all or to none.
    fn on_many(
        &mut self,
        connection: u64,
        method: &str,
        ids: &[u64],
        delay: u64,
        mut single: impl FnMut(&mut Model, u64) -> Expected,
    ) -> (Reply, Expected) {
        let given = options([("delay", seconds(delay))]);
        let reply = self.rig.t(connection, method, vec![Value::array(ids.iter().copied()), given]);
        if let Some(id) = self.model.first_not_owned(connection, ids) {
            return (reply, Expected::NotTakenAmong(id));
        }
        let tasks = ids.iter().map(|id| single(&mut self.model, *id).task()).collect();
        self.model.serve();
        (reply, Expected::Tasks(tasks))
    }

    #[expect(clippy::too_many_lines, reason = "one match over all steps")]
    fn step(&mut self, step: &Step, temporary: bool) {
        let kind = self.model.kind;
        let answer = match *step {
            Step::Put { connection, ref given } => {
                self.puts += 1;
                let data = self.puts;
                let reply = self.rig.t(connection, "put", vec![Value::from(data), given.options()]);
                let task = given.task(kind, self.model.now, data);
                let expected = if self.model.may_put(1) {
                    let expected = self.model.put(task);
                    self.model.serve();
                    expected
                } else if given.timeout == 0 {
                    Expected::Null
                } else {
                    self.park(&reply, connection, given.timeout, Wanted::Room(Box::new(task)));
                    Expected::Parked
                };
                (reply, expected)
            }
            Step::PutMany { connection, ref given, shared } => self.put_many(connection, given, shared),
            Step::TakeMany { connection, limit, timeout } => {
                let reply = self.rig.t(connection, "take_many", vec![Value::from(limit), seconds(timeout)]);
                let tasks = self.model.take_many(connection, limit);
                let expected = if tasks.is_empty() && timeout > 0 {
                    self.park(&reply, connection, timeout, Wanted::Tasks(limit));
                    Expected::Parked
                } else {
                    Expected::Tasks(tasks)
                };
                self.model.serve();
                (reply, expected)
            }
            Step::AckMany { connection, ref ids } => {
                self.on_many(connection, "ack_many", ids, 0, |model, id| {
                    let task = model.remove(id, "ack");
                    Expected::Task(id, '-', task.data)
                })
            }
            Step::ReleaseMany { connection, ref ids, delay } => {
                self.on_many(connection, "release_many", ids, delay, |model, id| {
                    model.change(id, 'r', "release", delay)
                })
            }
            Step::Take { connection, timeout } => {
                let reply = self.rig.t(connection, "take", vec![seconds(timeout)]);
                let expected = match self.model.take(connection) {
                    Some(expected) => expected,
                    None if timeout == 0 => Expected::Nothing,
                    None => {
                        self.park(&reply, connection, timeout, Wanted::Task);
                        Expected::Parked
                    }
                };
                self.model.serve();
                (reply, expected)
            }
            Step::Ack { connection, id } => {
                let reply = self.rig.t(connection, "ack", vec![Value::from(id)]);
                let expected = if self.model.owned(connection, id) {
                    let task = self.model.remove(id, "ack");
                    self.model.serve();
                    Expected::Task(id, '-', task.data)
                } else {
                    Expected::NotTaken
                };
                (reply, expected)
            }
            Step::Release { connection, id, delay } => {
                let given = options([("delay", seconds(delay))]);
                let reply = self.rig.t(connection, "release", vec![Value::from(id), given]);
                let expected = if self.model.owned(connection, id) {
                    let expected = self.model.change(id, 'r', "release", delay);
                    self.model.serve();
                    expected
                } else {
                    Expected::NotTaken
                };
                (reply, expected)
            }
            Step::Touch { connection, id, delta } => {
                let reply = self.rig.t(connection, "touch", vec![Value::from(id), seconds(delta)]);
                let expected = if delta == 0 {
                    Expected::Nothing
                } else if !self.model.owned(connection, id) {
                    Expected::NotTaken
                } else if kind.timed() {
                    self.model.count("touch");
                    let task = self.model.tasks.get_mut(&id).expect("a task");
                    task.next_event += delta;
                    task.ttl += delta;
                    task.ttr += delta;
                    Expected::Task(id, 't', task.data)
                } else {
                    Expected::NoTouch
                };
                (reply, expected)
            }
            Step::Bury { connection, id } => {
                let reply = self.rig.t(connection, "bury", vec![Value::from(id)]);
                let expected = match self.model.tasks.get(&id) {
                    None => Expected::NotFound,
                    Some(task) if task.status == '!' => Expected::Task(id, '!', task.data),
                    Some(_) => {
                        let expected = self.model.change(id, '!', "bury", 0);
                        self.model.serve();
                        expected
                    }
                };
                (reply, expected)
            }
            Step::Kick { count } => {
                let reply = self.rig.t(1, "kick", vec![Value::from(count)]);
                let buried: Vec<_> = self.model.in_state('!').into_iter().take(count as usize).collect();
                for &id in &buried {
                    self.model.change(id, 'r', "kick", 0);
                }
                self.model.serve();
                (reply, Expected::Number(buried.len() as u64))
            }
            Step::Delete { id } => {
                let reply = self.rig.t(1, "delete", vec![Value::from(id)]);
                let expected = if self.model.tasks.contains_key(&id) {
                    let task = self.model.remove(id, "delete");
                    self.model.serve();
                    Expected::Task(id, '-', task.data)
                } else {
                    Expected::NotFound
                };
                (reply, expected)
            }
            Step::Peek { id } => {
                let reply = self.rig.t(1, "peek", vec![Value::from(id)]);
                let task = self.model.tasks.get(&id);
                (reply, task.map_or(Expected::NotFound, |task| Expected::Task(id, task.status, task.data)))
            }
            Step::ReleaseAll => {
                let reply = self.rig.t(1, "release_all", Vec::new());
                for id in self.model.in_state('t') {
                    self.model.change(id, 'r', "release", 0);
                }
                self.model.serve();
                (reply, Expected::Nothing)
            }
            Step::Truncate => {
                let reply = self.rig.t(1, "truncate", Vec::new());
                self.model.tasks.clear();
                (self.model.next_id, self.model.reserved) = (0, 0);
                self.model.serve();
                (reply, Expected::Nothing)
            }
            Step::Advance { duration } => {
                self.rig.advance(duration);
                self.model.advance(duration);
                return;
            }
            Step::Disconnect { connection } => {
                self.rig.disconnect(connection);
                self.model.waiters.retain(|waiter| waiter.connection != connection);
                self.model.leave(connection);
                self.model.serve();
                return;
            }
            Step::Share { connection, with } => {
                let session = self.rig.call(with, "queue.identify", Vec::new()).values();
                let session_number = self.model.session(with);
                self.rig.call(connection, "queue.identify", session).values();
                if self.model.sessions.get(&connection) != Some(&session_number) {
                    self.model.leave(connection);
                    self.model.sessions.insert(connection, session_number);
                }
                self.model.serve();
                return;
            }
            Step::Restart => {
                self.rig.restart();
                self.restart_model(temporary);
                return;
            }
            Step::ForeignDelete { id } => {
                let (space, key) = (self.rig.space_id("t"), Value::array([id]).encode());
                self.rig.execute(&Statement::Delete { space, index: 0, key: &key }).expect("a delete");
                self.model.tasks.remove(&id);
                self.model.serve();
                return;
            }
            Step::ForeignStatus { id, status } => {
                let (space, key) = (self.rig.space_id("t"), Value::array([id]).encode());
                let set = vec![Value::from("="), Value::from(1_u64), Value::from(status.to_string())];
                let operations = Value::array([Value::from(set)]).encode();
                let update =
                    Statement::Update { space, index: 0, key: &key, operations: &operations, base: 0 };
                // A second taken task in a sub-queue is something that only a user can make; it ends the comparison.
                let utube = self.model.tasks.get(&id).map(|task| task.utube.clone());
                if status == 't' && utube.is_some_and(|utube| self.model.is_busy(&utube)) {
                    return;
                }
                self.rig.execute(&update).expect("an update");
                if let Some(task) = self.model.tasks.get_mut(&id) {
                    task.status = status;
                    if status != 't' {
                        task.owner = None;
                    }
                }
                self.model.serve();
                return;
            }
        };
        let (reply, expected) = answer;
        assert_eq!(reply_of(&reply), expected, "answer");
    }

    fn restart_model(&mut self, temporary: bool) {
        let model = &mut self.model;
        model.waiters.clear();
        model.sessions.clear();
        model.expiring.clear();
        model.woken.clear();
        self.waiting.clear();
        model.counts.clear();
        model.done = 0;
        if temporary {
            model.tasks.clear();
            // Ids are reserved in blocks.
            model.next_id = model.reserved;
        }
        for id in model.in_state('t') {
            model.change(id, 'r', "release", 0);
        }
        // What others store wrong is corrected: the next event of a ready or buried task is the end of its life, that of a
        // delayed one not later.
        if model.kind.timed() {
            for task in model.tasks.values_mut() {
                let death = task.created + task.ttl;
                let is_wrong = match task.status {
                    'r' | '!' => task.next_event.abs_diff(death) > SECOND,
                    '~' => task.next_event > death + SECOND,
                    _ => false,
                };
                if is_wrong {
                    task.next_event = death;
                }
            }
        }
    }

    fn check(&mut self) {
        let kind = self.model.kind;
        let expected: Vec<_> = self.model.tasks.iter().map(|(id, task)| row(kind, *id, task)).collect();
        assert_eq!(self.rig.rows("t"), expected, "rows");
        let owned = self.model.tasks.iter().filter(|(_, task)| task.owner.is_some());
        let owned: Vec<_> = owned.map(|(id, _)| Value::from(*id)).collect();
        let taken = self.rig.rows("_queue_taken_2");
        let taken: Vec<_> = taken.iter().map(|row| row.as_array().expect("a row")[1].clone()).collect();
        assert_eq!(taken, owned, "owners");
        self.check_buffer();
        self.check_statistics();
        let consumers = self.model.waiters.iter().filter(|waiter| waiter.wanted.is_take()).count();
        assert_eq!(self.rig.rows("_queue_consumers").len(), consumers, "consumers");
        for token in self.waiting.clone() {
            let answer = self.rig.answer(token).as_ref().map(reply_of);
            assert_eq!(answer, self.model.woken.remove(&token), "answer of a call that waited");
            if answer.is_some() {
                self.waiting.retain(|other| *other != token);
            }
        }
    }

    fn check_buffer(&self) {
        if self.rig.store.space_by_name("t_ready_buffer").is_none() {
            return;
        }
        let mut candidates = BTreeMap::new();
        for id in self.model.in_state('r').into_iter().rev() {
            let task = &self.model.tasks[&id];
            if !self.model.is_busy(&task.utube) {
                candidates.insert(task.utube.clone(), id);
            }
        }
        let mut expected: Vec<_> = candidates.into_iter().map(|(name, id)| (id, name)).collect();
        expected.sort_unstable();
        let rows = self.rig.rows("t_ready_buffer");
        let shown: Vec<_> = rows
            .iter()
            .map(|row| {
                let fields = row.as_array().expect("a row");
                (fields[0].as_u64().expect("an id"), fields[1].as_str().expect("a name").to_owned())
            })
            .collect();
        assert_eq!(shown, expected, "ready buffer");
    }

    fn check_statistics(&self) {
        let statistics =
            self.rig.queue.tube_statistics(&self.rig.store, "t").expect("a space").expect("a tube");
        for operation in lycosa_queue::Operation::ALL {
            let expected = self.model.counts.get(operation.name()).copied().unwrap_or(0);
            assert_eq!(statistics.counters.get(operation), expected, "{}", operation.name());
        }
        assert_eq!(statistics.counters.done(), self.model.done, "done");
        let count = |status| self.model.in_state(status).len() as u64;
        let tasks = statistics.tasks;
        assert_eq!(
            (tasks.ready, tasks.taken, tasks.delayed, tasks.buried),
            (count('r'), count('t'), count('~'), count('!')),
            "tasks by state"
        );
    }
}

fn row(kind: Kind, id: u64, task: &Task) -> Value {
    let mut fields = vec![Value::from(id), Value::from(task.status.to_string())];
    if kind.timed() {
        fields.extend([task.next_event, task.ttl, task.ttr, task.pri, task.created].map(Value::from));
    }
    if kind.sub_queues() {
        fields.push(Value::from(task.utube.as_str()));
    }
    fields.push(Value::from(task.data));
    Value::from(fields)
}

fn run(kind: Kind, ready_buffer: bool, temporary: bool, ttr: u64, steps: &[Step]) {
    let mut pair = Pair::new(kind, ready_buffer, temporary, ttr);
    for step in steps {
        pair.step(step, temporary);
        pair.check();
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(step(), 1..80)
}

/// Lives per kind of tube in an ordinary run; `PROPTEST_CASES` asks for more.
const CASES: u32 = 24;

fn cases() -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(asked.unwrap_or(CASES)) }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn fifo(steps in steps(), temporary: bool, ttr in half_seconds()) {
        run(Kind::Fifo, false, temporary, ttr, &steps);
    }

    #[test]
    fn fifottl(steps in steps(), temporary: bool, ttr in half_seconds()) {
        run(Kind::FifoTtl, false, temporary, ttr, &steps);
    }

    #[test]
    fn limfifottl(steps in steps(), temporary: bool, ttr in half_seconds()) {
        run(Kind::LimFifoTtl, false, temporary, ttr, &steps);
    }

    #[test]
    fn utube(steps in steps(), temporary: bool, ready_buffer: bool, ttr in half_seconds()) {
        run(Kind::Utube, ready_buffer, temporary, ttr, &steps);
    }

    #[test]
    fn utubettl(steps in steps(), temporary: bool, ready_buffer: bool, ttr in half_seconds()) {
        run(Kind::UtubeTtl, ready_buffer, temporary, ttr, &steps);
    }
}
