//! Tests of the cost of operations: look-ups in indexes and tuples that walks look at, counted, not timed. The count must
//! not depend on the number of other tasks in the tube.

use std::cell::Cell;

use lycosa_store::{Settings, Statement, Store, user};
use lycosa_tuple::value::Value;

use crate::{Answer, Caller, Command, Concern, Configuration, Queue, Right};

thread_local! {
    static LOOK_UPS: Cell<u64> = const { Cell::new(0) };
}

pub(crate) fn count_look_up() {
    LOOK_UPS.set(LOOK_UPS.get() + 1);
}

/// Look-ups are not counted while it lives.
pub(crate) struct Pause(u64);

pub(crate) fn pause() -> Pause {
    Pause(LOOK_UPS.get())
}

impl Drop for Pause {
    fn drop(&mut self) {
        LOOK_UPS.set(self.0);
    }
}

struct Rig {
    store: Store,
    queue: Queue,
    now: u64,
}

impl Rig {
    fn new(tube_type: &str) -> Self {
        let mut store = Store::new(Settings { memory_limit: 1 << 30, ..Settings::default() });
        let uuid = "00000000-0000-4000-8000-000000000001";
        store.bootstrap(uuid, uuid).expect("bootstrap");
        store.finish_recovery().expect("recovery");
        let mut queue = Queue::new(Configuration::default(), Box::new(|| [7; 16]));
        queue.start(&mut store, 1).expect("start");
        let mut rig = Self { store, queue, now: 1 };
        let options = Value::map([("temporary", true)]);
        let arguments = vec![Value::from("t"), Value::from(tube_type), options];
        rig.call("queue.create_tube", arguments);
        rig
    }

    /// Calls a procedure and returns the number of look-ups.
    fn call(&mut self, name: &str, arguments: Vec<Value>) -> u64 {
        let caller = Caller { session: 1, trusted: false, may_wait: true, ..Caller::internal() };
        let procedure = self.queue.resolve(name.as_bytes()).expect("a procedure");
        let arguments = Value::from(arguments).encode();
        let command = Command {
            procedure: &procedure,
            right: Right::default(),
            request: 1,
            arguments: &arguments,
            concern: Concern::NONE,
        };
        let mut out = Vec::new();
        LOOK_UPS.set(0);
        let answer = self.queue.call(&mut self.store, &caller, &command, self.now, &mut out);
        assert!(matches!(answer, Ok(Answer::Done { .. })), "{name}: {answer:?}");
        LOOK_UPS.get()
    }

    fn put(&mut self, options: Vec<(&str, Value)>) -> u64 {
        self.call("queue.tube.t:put", vec![Value::from("x"), Value::map(options)])
    }

    fn on(&mut self, method: &str, id: u64) -> u64 {
        self.call(&format!("queue.tube.t:{method}"), vec![Value::from(id)])
    }
}

fn sub_queue(number: u64) -> Vec<(&'static str, Value)> {
    vec![("utube", Value::from(number))]
}

/// Look-ups of one operation of each kind beside `busy` busy sub-queues with ready tasks.
fn costs_beside_busy(tube_type: &str, busy: u64) -> Vec<u64> {
    let mut rig = Rig::new(tube_type);
    for number in 0..busy {
        rig.put(sub_queue(number));
        rig.put(sub_queue(number));
        rig.on("take", 0);
    }
    let (first, second) = (2 * busy, 2 * busy + 1);
    vec![
        rig.on("take", 0),
        rig.put(sub_queue(0)),
        rig.put(sub_queue(busy)),
        rig.on("take", 0),
        rig.on("release", second),
        rig.on("take", 0),
        rig.on("ack", second),
        rig.on("bury", first),
        rig.on("ack", 0),
        rig.on("take", 0),
    ]
}

#[test]
fn busy_sub_queues_cost_a_take_nothing() {
    for tube_type in ["utube", "utubettl"] {
        let few = costs_beside_busy(tube_type, 4);
        assert_eq!(few, costs_beside_busy(tube_type, 4000), "{tube_type}");
        assert!(few.iter().all(|look_ups| *look_ups <= 4), "{tube_type}: {few:?}");
    }
}

#[test]
fn a_batch_costs_what_its_tasks_cost_one_by_one() {
    for tube_type in ["fifo", "fifottl", "limfifottl", "utube", "utubettl"] {
        let rig = |busy: u64| {
            let mut rig = Rig::new(tube_type);
            for number in 0..busy {
                rig.put(sub_queue(number));
                rig.put(sub_queue(number));
                rig.on("take", 0);
            }
            (0..8).for_each(|number| _ = rig.put(sub_queue(busy + number)));
            rig
        };
        let batch =
            |busy| rig(busy).call("queue.tube.t:take_many", vec![Value::from(8_u64), Value::from(0_u64)]);
        let mut singles = rig(0);
        let singles: u64 = (0..8).map(|_| singles.on("take", 0)).sum();
        assert!(batch(0) <= singles, "{tube_type}: {} {singles}", batch(0));
        assert_eq!(batch(1000), batch(0), "{tube_type}");
    }
}

#[test]
fn delayed_tasks_cost_a_take_nothing() {
    let costs = |delayed: u64| {
        let mut rig = Rig::new("fifottl");
        for delay in 0..delayed {
            rig.put(vec![("delay", Value::from(delay + 1))]);
        }
        let put = rig.put(Vec::new());
        vec![put, rig.on("take", 0), rig.on("ack", delayed), rig.on("take", 0)]
    };
    assert_eq!(costs(1), costs(4000));
}

#[test]
fn dead_tasks_are_met_once() {
    let mut rig = Rig::new("utubettl");
    for number in 0..1000 {
        let mut options = sub_queue(number);
        options.push(("ttl", Value::from(1_u64)));
        rig.put(options);
    }
    rig.put(Vec::new());
    rig.now += 2_000_000;
    let first = rig.on("take", 0);
    assert!((1000..=4100).contains(&first), "{first}");
    rig.put(Vec::new());
    rig.on("ack", 1000);
    assert!(rig.on("take", 0) <= 4);
}

/// What a promotion costs after `waiting` tasks in as many sub-queues were applied, beside tasks that are taken.
fn cost_of_promotion(tube_type: &str, storage: &str, waiting: u64) -> u64 {
    let mut rig = Rig::new(tube_type);
    rig.call("queue.tube.t:drop", Vec::new());
    let options = Value::map([("storage_mode", Value::from(storage))]);
    rig.call("queue.create_tube", vec![Value::from("t"), Value::from(tube_type), options]);
    for number in 0..16 {
        rig.put(sub_queue(number));
        rig.on("take", 0);
    }
    rig.store.drain_committed(&mut |_| {});
    rig.queue.set_read_only(&mut rig.store, true, rig.now).expect("nothing is written");
    let space = rig.store.space_by_name("t").expect("a tube").id();
    let buffer = rig.store.space_by_name("t_ready_buffer").map(lycosa_store::Space::id);
    for id in 16..16 + waiting {
        let fields: [Value; 9] = if tube_type.ends_with("ttl") {
            let (ttl, created) = (1000_u64, rig.now);
            let (id, name) = (Value::from(id), id.to_string());
            [
                id,
                "r".into(),
                (created + ttl).into(),
                ttl.into(),
                ttl.into(),
                0.into(),
                created.into(),
                name.into(),
                0.into(),
            ]
        } else {
            let rest = || Value::from(0_u64);
            [id.into(), "r".into(), id.to_string().into(), rest(), rest(), rest(), rest(), rest(), rest()]
        };
        let fields =
            fields.into_iter().enumerate().filter(|(place, _)| *place != 7 || tube_type != "fifottl");
        let tuple = Value::from(fields.map(|(_, field)| field).collect::<Vec<_>>()).encode();
        rig.queue.begin(&mut rig.store, user::ADMIN);
        rig.store.execute(&Statement::Insert { space, tuple: &tuple }).expect("an insert");
        if let Some(space) = buffer {
            let shown = [Value::from(id), id.to_string().into(), 0_u64.into()];
            let columns = if tube_type == "utube" { 2 } else { 3 };
            let tuple = Value::from(shown[..columns].to_vec()).encode();
            rig.store.execute(&Statement::Insert { space, tuple: &tuple }).expect("an insert");
        }
        rig.queue.commit(&mut rig.store, rig.now).expect("memory");
        rig.store.drain_committed(&mut |_| {});
    }
    LOOK_UPS.set(0);
    rig.queue.set_read_only(&mut rig.store, false, rig.now).expect("a start");
    let cost = LOOK_UPS.get();
    assert_eq!(rig.on("take", 0), rig.on("take", 0), "{tube_type}: the first take and the second");
    cost
}

#[test]
fn waiting_tasks_cost_a_promotion_nothing() {
    for tube_type in ["fifo", "fifottl", "limfifottl", "utube", "utubettl"] {
        for storage in ["default", "ready_buffer"] {
            let few = cost_of_promotion(tube_type, storage, 100);
            assert_eq!(few, cost_of_promotion(tube_type, storage, 5000), "{tube_type}, {storage}");
            assert!((16..400).contains(&few), "{tube_type}, {storage}: {few}");
        }
    }
}

/// The most look-ups of one step of a rebuild, and the number of steps, of tubes with `tasks` tasks, half of them taken.
fn cost_of_rebuild(tube_type: &str, tasks: u64, budget: usize) -> (u64, usize) {
    let mut rig = Rig::new(tube_type);
    rig.call("queue.tube.t:drop", Vec::new());
    let options = match tube_type {
        "utube" | "utubettl" => Value::map([("storage_mode", Value::from("ready_buffer"))]),
        _ => Value::map([("capacity", Value::from(tasks))]),
    };
    rig.call("queue.create_tube", vec![Value::from("t"), Value::from(tube_type), options]);
    for number in 0..tasks {
        rig.put(sub_queue(number));
    }
    for _ in 0..tasks / 2 {
        rig.on("take", 0);
    }
    rig.store.drain_committed(&mut |_| {});
    rig.queue.rebuild(&mut rig.store, rig.now);
    let (mut most, mut steps) = (0, 0);
    loop {
        steps += 1;
        LOOK_UPS.set(0);
        let rebuilt = rig.queue.rebuild_step(&mut rig.store, rig.now, budget);
        most = most.max(LOOK_UPS.get());
        if let Some(rebuilt) = rebuilt {
            assert_eq!(rebuilt.started.expect("a start").released, tasks / 2);
            return (most, steps);
        }
    }
}

#[test]
fn a_step_of_a_rebuild_costs_its_budget_whatever_there_is() {
    for tube_type in ["fifo", "fifottl", "limfifottl", "utube", "utubettl"] {
        let (few, many) = (cost_of_rebuild(tube_type, 400, 64), cost_of_rebuild(tube_type, 4000, 64));
        assert!(many.0 <= 64 * 6 && many.0 <= few.0 + 64, "{tube_type}: {few:?} {many:?}");
        assert!(many.1 > 30 && many.1 > 5 * few.1, "{tube_type}: {few:?} {many:?}");
        assert_eq!(cost_of_rebuild(tube_type, 400, usize::MAX).1, 1, "{tube_type}");
    }
}
