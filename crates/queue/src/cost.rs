//! What operations cost: look-ups in indexes, counted, not timed. The count must not depend on what is in the way.

use std::cell::Cell;

use lycosa_store::{Settings, Store, user};
use lycosa_tuple::value::Value;

use crate::{Answer, Caller, Configuration, Queue};

thread_local! {
    static LOOK_UPS: Cell<u64> = const { Cell::new(0) };
}

pub(crate) fn count_look_up() {
    LOOK_UPS.set(LOOK_UPS.get() + 1);
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
        let caller = Caller {
            connection: 1,
            user: user::ADMIN,
            trusted: false,
            granted: false,
            request: 1,
            may_wait: true,
        };
        let procedure = self.queue.resolve(name.as_bytes()).expect("a procedure");
        let arguments = Value::from(arguments).encode();
        let mut out = Vec::new();
        LOOK_UPS.set(0);
        let answer = self.queue.call(&mut self.store, &caller, &procedure, &arguments, self.now, &mut out);
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
