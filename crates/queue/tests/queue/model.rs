//! Random lives of tubes against a plain table of tasks.
//!
//! The model keeps tasks in a map and looks through all of them for everything. After each step the answer, the tube's
//! rows, the owners, the ready buffer, the statistics and the answers of waiting calls must be those of the model; so
//! no task is lost or has two owners, no sub-queue has two taken tasks, and who waits longest is served first.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use lycosa_store::Statement;
use lycosa_tuple::value::Value;
use proptest::prelude::*;

use crate::rig::{Reply, Rig, SECOND, options};
use crate::table::{CAPACITY, Expected, FOREVER, Kind, Model, Task, Waiter, Wanted};

#[derive(Debug, Clone)]
enum Step {
    Put {
        connection: u64,
        utube: u8,
        pri: u64,
        ttl: Option<u64>,
        ttr: Option<u64>,
        delay: u64,
        timeout: u64,
    },
    Take {
        connection: u64,
        timeout: u64,
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

/// Half seconds: few values, so that moments coincide.
fn half_seconds() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0_u64), Just(1), Just(2), Just(4), Just(20)].prop_map(|halves| halves * SECOND / 2)
}

fn step() -> impl Strategy<Value = Step> {
    let connection = || 1_u64..5;
    let id = || 0_u64..9;
    let maybe = || proptest::option::weighted(0.3, half_seconds());
    prop_oneof![
        12 => (connection(), 0_u8..3, 0_u64..3, maybe(), maybe(), half_seconds(), half_seconds())
            .prop_map(|(connection, utube, pri, ttl, ttr, delay, timeout)| {
                let delay = if delay == 10 * SECOND { 0 } else { delay };
                Step::Put { connection, utube, pri, ttl, ttr, delay, timeout }
            }),
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
            text if text.ends_with("not found") => Expected::NotFound,
            text if text.ends_with("does not support touch") => Expected::NoTouch,
            text => panic!("{text}"),
        },
        Reply::Undefined => panic!("no such procedure"),
        Reply::Values(values) => match values.as_slice() {
            [] => Expected::Nothing,
            [Value::Nil] => Expected::Null,
            [Value::Uint(number)] => Expected::Number(*number),
            [Value::Array(fields)] => {
                let number = |place: usize| fields[place].as_u64().expect("a number");
                let status = fields[1].as_str().and_then(|status| status.chars().next()).expect("a status");
                Expected::Task(number(0), status, number(2))
            }
            other => panic!("{other:?}"),
        },
    }
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

    fn step(&mut self, step: &Step, temporary: bool) {
        let kind = self.model.kind;
        let answer = match *step {
            Step::Put { connection, utube, pri, ttl, ttr, delay, timeout } => {
                self.puts += 1;
                let data = self.puts;
                let mut given = vec![
                    ("utube", Value::from(utube)),
                    ("pri", Value::from(pri)),
                    ("delay", seconds(delay)),
                    ("timeout", seconds(timeout)),
                ];
                given.extend(ttl.map(|ttl| ("ttl", seconds(ttl))));
                given.extend(ttr.map(|ttr| ("ttr", seconds(ttr))));
                let reply = self.rig.t(connection, "put", vec![Value::from(data), Value::map(given)]);
                let now = self.model.now;
                let (ttl, delay) = (ttl.unwrap_or(FOREVER), if kind.timed() { delay } else { 0 });
                let task = Task {
                    status: if delay > 0 { '~' } else { 'r' },
                    next_event: now + if delay > 0 { delay } else { ttl },
                    ttl: ttl + delay,
                    ttr: ttr.unwrap_or(FOREVER),
                    pri,
                    created: now,
                    utube: utube.to_string(),
                    data,
                    owner: None,
                };
                let expected = if self.model.has_room() {
                    let expected = self.model.put(task);
                    self.model.serve();
                    expected
                } else if timeout == 0 {
                    Expected::Null
                } else {
                    self.park(&reply, connection, timeout, Wanted::Room(Box::new(task), delay));
                    Expected::Parked
                };
                (reply, expected)
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
                self.model.next_id = 0;
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
            model.next_id = 0;
        }
        for id in model.in_state('t') {
            model.change(id, 'r', "release", 0);
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
        let consumers = self.model.waiters.iter().filter(|waiter| waiter.wanted == Wanted::Task).count();
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
