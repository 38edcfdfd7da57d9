//! Drivers beyond the scenarios: ids, times to the microsecond, orders, budgets, restarts.

use lycosa_queue::driver::fifo::{self, Fifo};
use lycosa_queue::driver::{Change, Driver, Event, NewTask, Next, Tasks, TubeType};
use lycosa_queue::task::Task;
use lycosa_queue::{
    Answer, Caller, Command, Concern, Configuration, Error, Operation, Procedure, Queue, QueueState, Right,
};
use lycosa_store::{IteratorType, Statement, Store, ddl, system};
use lycosa_tuple::value::Value;

use crate::rig::{Reply, Rig, SECOND, args, options, task};

fn put(rig: &mut Rig, data: &str) -> u64 {
    id(&rig.t(1, "put", args![data]).values())
}

fn id(values: &[Value]) -> u64 {
    values[0].as_array().and_then(|fields| fields[0].as_u64()).expect("a task")
}

fn count(rig: &Rig, operation: Operation) -> u64 {
    let statistics = rig.queue.tube_statistics(&rig.store, "t").expect("a space").expect("a tube");
    statistics.counters.get(operation)
}

#[test]
fn an_id_is_never_handed_out_twice() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    assert_eq!([put(&mut rig, "a"), put(&mut rig, "b")], [0, 1]);
    rig.t(1, "take", args![0]).values();
    rig.t(1, "take", args![0]).values();
    rig.t(1, "ack", args![1]).values();
    rig.t(1, "delete", args![0]).values();
    assert_eq!(put(&mut rig, "c"), 2);
    rig.t(1, "delete", args![2]).values();
    rig.restart();
    assert_eq!(put(&mut rig, "d"), 3);
    rig.t(1, "truncate", args![]).values();
    assert_eq!(put(&mut rig, "e"), 0);
    rig.t(1, "truncate", args![]).values();
    rig.restart();
    assert_eq!(put(&mut rig, "f"), 0);
    rig.t(1, "drop", args![]).values();
    rig.create("t", "utube", Value::Nil);
    assert_eq!(put(&mut rig, "g"), 0);
}

#[test]
fn ids_go_on_behind_rows_that_users_insert() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    let space = rig.space_id("t");
    let row = Value::array([Value::from(41_u64), Value::from("r"), Value::Nil]).encode();
    rig.execute(&Statement::Insert { space, tuple: &row }).expect("an insert");
    assert_eq!(put(&mut rig, "a"), 42);
    let row = Value::array([Value::from(u64::MAX), Value::from("r"), Value::Nil]).encode();
    rig.execute(&Statement::Insert { space, tuple: &row }).expect("an insert");
    assert_eq!(rig.t(1, "put", args!["b"]).error(), "Sequence 't_seq' has overflowed");
}

#[test]
fn a_tube_without_a_sequence_gets_one_at_the_start() {
    let mut rig = Rig::new();
    rig.create("t", "fifottl", Value::Nil);
    assert_eq!([put(&mut rig, "a"), put(&mut rig, "b")], [0, 1]);
    let space = rig.space_id("t");
    let sequence = rig.store.space(space).expect("a space").sequence().expect("a sequence");
    let key = Value::array([u64::from(space)]).encode();
    rig.execute(&Statement::Delete { space: system::SPACE_SEQUENCE, index: 0, key: &key }).expect("a delete");
    rig.begin();
    ddl::drop_sequence(&mut rig.store, sequence).expect("a drop");
    rig.commit();
    rig.restart();
    assert!(rig.store.space(space).expect("a space").sequence().is_some());
    assert_eq!(put(&mut rig, "c"), 2);
    rig.t(1, "delete", args![2]).values();
    rig.restart();
    assert_eq!(put(&mut rig, "d"), 3);
}

#[test]
fn a_take_writes_one_small_update_and_an_ack_one_delete() {
    let mut rig = Rig::new();
    rig.create("t", "fifottl", Value::Nil);
    rig.t(1, "put", args!["a", options([("ttr", Value::from(5_u64))])]).values();
    assert_eq!(rig.logged, 1);
    rig.t(1, "take", args![0]).values();
    assert_eq!(rig.logged, 1, "owners and sessions are temporary");
    let set = |field: u64, value: Value| Value::array([Value::from("="), Value::from(field), value]);
    let operations = Value::array([set(1, Value::from("t")), set(2, Value::from(rig.now + 5 * SECOND))]);
    assert_eq!(rig.last_row(), Value::array([Value::from("update"), operations]));
    rig.t(1, "ack", args![0]).values();
    assert_eq!(rig.logged, 1);
    assert_eq!(rig.last_row(), Value::array([Value::from("delete"), Value::array([0_u64])]));
}

#[test]
fn waiting_takes_are_served_in_the_order_in_which_they_came() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    let tokens: Vec<_> =
        [20_u64, 10, 5, 1000].map(|timeout| rig.t(timeout, "take", args![timeout]).token()).into();
    assert_eq!(rig.rows("_queue_consumers").len(), 4);
    rig.disconnect(10);
    for data in ["a", "b", "c", "d"] {
        put(&mut rig, data);
    }
    assert_eq!(rig.answer(tokens[0]), Some(Reply::Values(task(0, "t", "a"))));
    assert_eq!(rig.answer(tokens[1]), None, "the connection is gone");
    assert_eq!(rig.answer(tokens[2]), Some(Reply::Values(task(1, "t", "b"))));
    assert_eq!(rig.answer(tokens[3]), Some(Reply::Values(task(2, "t", "c"))));
    assert_eq!((rig.rows("_queue_consumers").len(), rig.queue.waiting()), (0, 0));
}

#[test]
fn timeouts_end_at_their_moment() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    let token = rig.t(1, "take", args![1.5]).token();
    assert_eq!(rig.queue.next_deadline(), Some(rig.now + 1_500_000));
    rig.advance(1_499_999);
    assert_eq!(rig.answer(token), None);
    rig.advance(1);
    assert_eq!(rig.answer(token), Some(Reply::Values(vec![])));
    let endless = rig.t(1, "take", args![3_153_600_001_u64]).token();
    assert_eq!(rig.queue.next_deadline(), None);
    put(&mut rig, "a");
    assert_eq!(rig.answer(endless), Some(Reply::Values(task(0, "t", "a"))));
}

#[test]
fn dead_tasks_are_not_taken_and_are_removed_when_they_are_met() {
    let mut rig = Rig::new();
    rig.create("t", "utubettl", Value::Nil);
    for _ in 0..10 {
        rig.t(1, "put", args!["dead", options([("ttl", Value::from(0_u64))])]).values();
    }
    put(&mut rig, "alive");
    assert_eq!(rig.t(1, "take", args![0]).values(), task(10, "t", "alive"));
    assert_eq!((count(&rig, Operation::Ttl), count(&rig, Operation::Delete)), (10, 10));
    assert_eq!(rig.rows("t").len(), 1);
}

#[test]
fn the_clock_works_in_portions_and_says_how_late_it_is() {
    let mut rig = Rig::new();
    rig.create("t", "fifottl", options([("temporary", Value::from(true))]));
    for _ in 0..1000 {
        rig.t(1, "put", args!["x", options([("ttl", Value::from(1_u64))])]).values();
    }
    put(&mut rig, "stays");
    rig.now += SECOND + 250_000;
    let tick = rig.queue.tick(&mut rig.store, rig.now, 100);
    assert_eq!((tick.handled, tick.more, tick.lag_us), (100, true, 250_000));
    assert_eq!(rig.rows("t").len(), 901);
    let tick = rig.queue.tick(&mut rig.store, rig.now, 10_000);
    assert_eq!((tick.handled, tick.more), (900, false));
    assert_eq!(rig.rows("t").len(), 1);
    assert_eq!(count(&rig, Operation::Ttl), 1000);
    let quiet = rig.queue.tick(&mut rig.store, rig.now, 10_000);
    assert_eq!((quiet.lag_us, quiet.next), (0, tick.next));
}

#[test]
fn a_session_with_many_tasks_is_released_in_portions() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", options([("temporary", Value::from(true))]));
    for _ in 0..2000 {
        put(&mut rig, "x");
        rig.t(2, "take", args![0]).values();
    }
    rig.disconnect(2);
    assert_eq!(count(&rig, Operation::Release), 256);
    assert_eq!(rig.rows("_queue_shared_sessions").len(), 0, "nobody knows the session any more");
    rig.tick();
    assert_eq!(count(&rig, Operation::Release), 2000);
    assert_eq!(rig.rows("_queue_taken_2").len(), 0);
    assert_eq!(rig.queue.next_deadline(), None);
}

#[test]
fn in_a_replica_set_sessions_and_owners_outlive_the_process() {
    let mut rig = Rig::with_ttr(30.0, true);
    rig.create("t", "utube", Value::Nil);
    put(&mut rig, "a");
    let session = rig.call(2, "queue.identify", args![]).values();
    rig.t(2, "take", args![0]).values();
    rig.restart();
    rig.advance(29 * SECOND);
    assert_eq!(rig.t(3, "ack", args![0]).error(), "Task was not taken");
    rig.restart();
    rig.advance(1_500_000);
    assert_eq!(rig.t(3, "peek", args![0]).values(), task(0, "r", "a"), "its time did not begin anew");
    assert_eq!(rig.rows("_queue_shared_sessions").len(), 0);
    rig.t(3, "take", args![0]).values();
    let own = rig.call(3, "queue.identify", args![]).values();
    rig.disconnect(3);
    assert!(rig.call(4, "queue.identify", session).error().ends_with("is unknown."));
    assert_eq!(rig.call(4, "queue.identify", own.clone()).values(), own);
    assert_eq!(rig.t(4, "ack", args![0]).values(), task(0, "-", "a"));
}

#[test]
fn a_change_of_mode_keeps_the_rows_under_another_space_id() {
    let mut rig = Rig::with_ttr(10.0, false);
    rig.create("t", "fifo", Value::Nil);
    put(&mut rig, "a");
    rig.t(2, "take", args![0]).values();
    let (taken, sessions) = (rig.rows("_queue_taken_2"), rig.rows("_queue_shared_sessions"));
    let before = rig.space_id("_queue_taken_2");
    let mode = |on: bool| args![options([("in_replicaset", Value::from(on))])];
    for on in [true, false, true] {
        rig.call(1, "queue.cfg", mode(on)).values();
        let space = rig.space_id("_queue_taken_2");
        assert_ne!(space, before);
        assert_eq!(rig.store.space(space).expect("a space").is_temporary(), !on);
        assert_eq!(rig.rows("_queue_taken_2"), taken);
        // Where sessions are durable, so is who opened them.
        let is_kept = |row: &Value| row.as_array().is_some_and(|row| row.len() == 3 + usize::from(on));
        let shared = rig.rows("_queue_shared_sessions");
        assert!(shared.len() == sessions.len() && shared.iter().all(is_kept), "{shared:?}");
    }
    assert_eq!(rig.t(2, "ack", args![0]).values(), task(0, "-", "a"));
    rig.call(1, "queue.cfg", mode(false)).values();
    rig.create("u", "fifo", options([("temporary", Value::from(true))]));
    rig.call(1, "queue.cfg", mode(true)).values();
    assert!(!rig.queue.configuration().in_replicaset);
    let line = std::iter::from_fn(|| rig.queue.poll_log()).last().expect("a line");
    assert_eq!(line.text, "Queue: cannot set `in_replicaset = true`: temporary tube(s) exists: u");
}

#[test]
fn a_procedure_of_a_tube_that_is_gone_is_stale() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    let procedure = rig.queue.resolve(b"queue.tube.t:put").expect("a procedure");
    rig.t(1, "drop", args![]).values();
    assert!(!rig.queue.is_current(&procedure));
    rig.create("t", "fifo", Value::Nil);
    assert!(!rig.queue.is_current(&procedure));
    let caller = rig.caller(1);
    let mut out = vec![7];
    let result = rig.call_as(&caller, &procedure, &[0x91, 1], &mut out);
    assert_eq!((result, out), (Err(Error::Stale), vec![7]));
}

#[test]
fn names_are_resolved_as_tarantool_does() {
    let mut rig = Rig::new();
    for name in ["t", "имя с пробелом", "a-b", "9", "a.b", "a:b"] {
        rig.create(name, "fifo", Value::Nil);
    }
    let resolves = |name: &str| rig.queue.resolve(name.as_bytes()).is_some();
    assert!(
        resolves("queue.tube.имя с пробелом:put")
            && resolves("queue.tube.a-b:take")
            && resolves("queue.tube.9:ack")
    );
    assert!(!resolves("queue.tube.a.b:put") && !resolves("queue.tube.a:b:put"));
    assert!(!resolves("queue.tube.t.put") && !resolves("queue.tube.t:nope") && !resolves("queue.nope"));
    assert!(!resolves("queue") && !resolves("") && !resolves("box.cfg") && !resolves("queue:tube"));
    assert!(resolves("queue.tube") && resolves("queue.stats") && resolves("queue.create_tube"));
    assert_eq!(rig.call(1, "queue.tube.t", args![]).error(), "attempt to call a table value");
}

#[test]
fn before_the_start_only_state_and_cfg_answer() {
    let mut store = Store::new(lycosa_store::Settings::default());
    store
        .bootstrap("00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002")
        .expect("a store");
    store.finish_recovery().expect("a store");
    let mut queue = Queue::new(Configuration::default(), Box::new(|| [7; 16]));
    assert_eq!(queue.state(), QueueState::Init);
    let caller = Caller { trusted: false, may_wait: true, ..Caller::internal() };
    let call = |queue: &mut Queue, store: &mut Store, procedure: &Procedure| {
        let right = Right::default();
        let command = Command { procedure, right, request: 1, arguments: &[0x90], concern: Concern::NONE };
        queue.call(store, &caller, &command, 0, &mut Vec::new())
    };
    for (name, expected) in [
        ("queue.nosuch", Err(Error::NotConfigured)),
        ("queue.tube.t:put", Err(Error::NotConfigured)),
        ("queue.state", Ok(Answer::Done { count: 1 })),
        ("queue.cfg", Ok(Answer::Done { count: 0 })),
    ] {
        let procedure = queue.resolve(name.as_bytes()).expect("a procedure");
        assert_eq!(call(&mut queue, &mut store, &procedure), expected, "{name}");
    }
    let early = queue.resolve(b"queue.statistics").expect("a procedure");
    queue.start(&mut store, 0).expect("a start");
    assert_eq!(call(&mut queue, &mut store, &early), Err(Error::Stale));
}

#[test]
fn who_waits_goes_on_waiting_while_the_instance_is_read_only() {
    let mut rig = Rig::new();
    rig.create("t", "fifottl", Value::Nil);
    let short = rig.t(1, "take", args![1]).token();
    let long = rig.t(2, "take", args![100]).token();
    let session = rig.call(2, "queue.identify", args![]).values();
    let now = rig.now;
    rig.queue.set_read_only(&mut rig.store, true, now).expect("read-only");
    rig.advance(2 * SECOND);
    assert_eq!(rig.answer(short), Some(Reply::Values(vec![])));
    assert_eq!(rig.t(1, "put", args!["x"]).values(), [Value::Nil]);
    let space = rig.space_id("t");
    let row: Vec<Value> = args![7, "r", u64::MAX, u64::MAX, 5, 0, 0, "from the master"];
    rig.execute(&Statement::Insert { space, tuple: &Value::from(row).encode() }).expect("a replicated row");
    assert_eq!(rig.answer(long), None);
    let now = rig.now;
    rig.queue.set_read_only(&mut rig.store, false, now).expect("writable");
    rig.collect_committed();
    assert_eq!(rig.answer(long), Some(Reply::Values(task(7, "t", "from the master"))));
    assert_eq!(rig.call(2, "queue.identify", args![]).values(), session, "the connection kept its session");
    assert_eq!(rig.t(2, "ack", args![7]).values(), task(7, "-", "from the master"));
    assert_eq!(put(&mut rig, "x"), 8);
}

#[test]
fn events_of_observed_tubes_tell_what_was_stored() {
    let mut rig = Rig::new();
    rig.create("t", "fifottl", Value::Nil);
    put(&mut rig, "unseen");
    assert!(rig.queue.observe("t", true) && !rig.queue.observe("nope", true));
    rig.t(1, "take", args![0]).values();
    rig.t(1, "ack", args![0]).values();
    rig.t(1, "put", args!["dead", options([("ttl", Value::from(0_u64))])]).values();
    rig.tick();
    let seen: Vec<_> = std::iter::from_fn(|| rig.queue.poll_event())
        .map(|event| {
            let tuple = Value::decode(&event.tuple).expect("a tuple");
            let fields = tuple.as_array().expect("a tuple");
            (event.operation.name(), fields[0].as_u64(), fields[1].as_str().map(str::to_owned), fields.len())
        })
        .collect();
    let expected =
        [("take", 0, "t"), ("delete", 0, "-"), ("put", 1, "r"), ("delete", 1, "-"), ("ttl", 1, "-")];
    let expected: Vec<_> =
        expected.into_iter().map(|(name, id, status)| (name, Some(id), Some(status.to_owned()), 8)).collect();
    assert_eq!(seen, expected);
}

#[test]
fn release_of_the_lua_module_with_a_wrong_next_event_is_corrected() {
    let mut rig = Rig::new();
    rig.create("t", "utubettl", Value::Nil);
    let space = rig.space_id("t");
    let created = rig.now;
    // The last one would be deleted a year after its time.
    let events = [(0_u64, u64::MAX - 5), (1, 1), (2, created + 365 * 86_400 * SECOND)];
    for (id, event) in events {
        let row: Vec<Value> = args![id, "r", event, 10 * SECOND, 0, 0, created, "u", "x"];
        rig.execute(&Statement::Insert { space, tuple: &Value::from(row).encode() }).expect("an insert");
    }
    rig.tick();
    rig.restart();
    let events: Vec<_> = rig.rows("t").iter().map(|row| row.as_array().expect("a row")[2].clone()).collect();
    assert_eq!(events, vec![Value::from(created + 10 * SECOND); 3]);
    let said = std::iter::from_fn(|| rig.queue.poll_log()).map(|line| line.text);
    let said = said.into_iter().find(|line| line.contains("tube 't': corrects next_event")).expect("a line");
    // The look at the deadlines has corrected the one that was in the past.
    assert!(said.contains("of 2 tasks"), "{said}");
    rig.advance(10 * SECOND);
    assert_eq!(rig.rows("t").len(), 0);
}

/// A task that is not taken, with a wrong next event, would stay far beyond its ttl, or be looked at again and again.
#[test]
fn wrong_next_events_of_all_types_and_states_are_corrected_at_a_start() {
    for tube_type in ["fifottl", "limfifottl", "utubettl"] {
        let mut rig = Rig::new();
        rig.create("t", tube_type, Value::Nil);
        let space = rig.space_id("t");
        let (created, ttl, year) = (rig.now, 1000 * SECOND, 365 * 86_400 * SECOND);
        let death = created + ttl;
        // State, stored next event, ttl, and the next event after a start. The stored ones: in 1, 190, 250 years, never.
        let mut rows = Vec::new();
        for state in ["r", "!", "~"] {
            let late = [year, 190 * year, 250 * year, u64::MAX - created];
            rows.extend(late.map(|late| (state, created + late, ttl, death)));
        }
        rows.extend(["r", "!"].map(|state| (state, created + 500 * SECOND, ttl, death)));
        rows.push(("~", created + 500 * SECOND, ttl, created + 500 * SECOND));
        // These are right: no end, one in 500 years, and one that the module computed a moment before it noted the creation.
        let endless = 101 * year;
        rows.extend(["r", "!", "~"].map(|state| (state, u64::MAX, endless, u64::MAX)));
        let far = 500 * year;
        rows.extend(["r", "!"].map(|state| (state, created + far, far, created + far)));
        rows.push(("r", death - 1, ttl, death - 1));
        for (id, (state, event, ttl, _)) in (0_u64..).zip(&rows) {
            let mut row: Vec<Value> = args![id, *state, *event, *ttl, SECOND, 0, created];
            if tube_type == "utubettl" {
                row.push(Value::from(id.to_string()));
            }
            row.push(Value::from("x"));
            rig.execute(&Statement::Insert { space, tuple: &Value::from(row).encode() }).expect("an insert");
        }
        rig.restart();
        let stored = rig.rows("t");
        let events = stored.iter().map(|row| row.as_array().and_then(|row| row[2].as_u64()).expect("a time"));
        let wanted = rows.iter().map(|(.., wanted)| *wanted);
        assert_eq!(events.collect::<Vec<_>>(), wanted.collect::<Vec<_>>(), "{tube_type}");
        let said: Vec<_> = std::iter::from_fn(|| rig.queue.poll_log()).map(|line| line.text).collect();
        let line = "tube 't': corrects next_event of 14 tasks";
        assert_eq!(said.iter().filter(|text| text.starts_with(line)).count(), 1, "{tube_type}: {said:?}");
        rig.restart();
        let again = std::iter::from_fn(|| rig.queue.poll_log()).filter(|line| line.text.contains("corrects"));
        assert_eq!(again.count(), 0, "{tube_type}: corrected for good");
        rig.advance(ttl);
        assert_eq!(rig.rows("t").len(), 5, "{tube_type}: what has no end is left");
    }
}

#[test]
fn a_temporary_tube_never_hands_out_an_id_twice() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", options([("temporary", Value::from(true))]));
    let id = |rig: &mut Rig| {
        let task = rig.t(1, "put", args!["x"]).values().remove(0);
        task.as_array().and_then(|task| task[0].as_u64()).expect("an id")
    };
    let first: Vec<u64> = (0..1500).map(|_| id(&mut rig)).collect();
    assert_eq!(first, (0..1500).collect::<Vec<_>>());
    rig.restart();
    assert_eq!(rig.rows("t").len(), 0);
    let next = id(&mut rig);
    assert!((1500..2500).contains(&next), "{next}");
    assert_eq!(rig.logged, 1, "the task is not journaled, the reserved ids are");
    assert_eq!(id(&mut rig), next + 1);
    assert_eq!(rig.logged, 0);
    rig.t(1, "truncate", args![]).values();
    assert_eq!(id(&mut rig), 0);
    rig.restart();
    assert!(id(&mut rig) > 0);
}

#[test]
fn decimals_are_seconds_too() {
    let mut rig = Rig::new();
    rig.create("t", "fifottl", Value::Nil);
    let decimal = |digits: &[u8]| Value::Ext(1, digits.to_vec());
    let half = decimal(&[1, 0x5c]);
    rig.t(1, "put", args!["x", options([("ttl", decimal(&[0, 0x01, 0x0c])), ("delay", half.clone())])])
        .values();
    let rows = rig.rows("t");
    let fields = rows[0].as_array().expect("a row");
    assert_eq!(fields[2..4], [Value::from(rig.now + 500_000), Value::from(10 * SECOND + 500_000)]);
    let token = rig.t(1, "take", vec![half]).token();
    rig.advance(500_000);
    assert_eq!(rig.answer(token), Some(Reply::Values(task(0, "t", "x"))));
}

/// The order in which a driver hands out tasks.
type Order = for<'a> fn(Tasks<'a>, u64) -> Result<Next<'a>, Error>;

/// A driver that a program brings: fifo's tasks in another order.
#[derive(Debug)]
struct Ordered(Order);

impl Driver for Ordered {
    fn first_option(&self) -> Option<&'static str> {
        None
    }

    fn encode(&self, task: &NewTask<'_>, now: u64, out: &mut Vec<u8>) -> Result<(), Error> {
        Fifo.encode(task, now, out)
    }

    fn change(&self, task: &Task<'_>, event: Event, now: u64) -> Result<Change, Error> {
        Fifo.change(task, event, now)
    }

    fn next<'a>(&self, tasks: Tasks<'a>, now: u64) -> Result<Next<'a>, Error> {
        self.0(tasks, now)
    }
}

fn ordered(name: &str, order: Order) -> TubeType {
    let layout = fifo::tube_type().layout().clone();
    TubeType::new(name, layout, move |_, _| Ok(Box::new(Ordered(order)))).expect("a sound layout")
}

/// The newest task first.
fn newest<'a>(tasks: Tasks<'a>, _now: u64) -> Result<Next<'a>, Error> {
    let ready = [0x91, 0xa1, b'r'];
    let last = tasks.store.first(tasks.space, tasks.indexes.status, IteratorType::Le, &ready)?;
    Ok(last.filter(|tuple| tuple.get(2..4) == Some(&ready[1..])).into())
}

/// Tasks only in even seconds.
fn in_even_seconds<'a>(tasks: Tasks<'a>, now: u64) -> Result<Next<'a>, Error> {
    match (now / SECOND).is_multiple_of(2) {
        true => Fifo.next(tasks, now),
        false => Ok(Next::NotBefore((now / SECOND + 1) * SECOND)),
    }
}

#[test]
fn a_driver_has_no_task_before_a_time_and_calls_that_wait_are_served_then() {
    let mut rig = Rig::new();
    let even = ordered("even", in_even_seconds);
    rig.queue.register(&mut rig.store, even, rig.now).expect("a new name");
    rig.create("t", "even", Value::Nil);
    let to_odd = SECOND + 2 * SECOND - rig.now % (2 * SECOND);
    rig.advance(to_odd);
    assert_eq!(["a", "b"].map(|data| put(&mut rig, data)), [0, 1]);
    assert_eq!(rig.t(1, "take", args![0]).values(), []);
    let waiting = rig.t(1, "take", args![60]).token();
    assert_eq!(rig.queue.next_deadline(), Some(rig.now + SECOND));
    rig.advance(SECOND - 1);
    assert_eq!(rig.answer(waiting), None);
    rig.advance(1);
    assert_eq!(rig.answer(waiting), Some(Reply::Values(task(0, "t", "a"))));
    assert_eq!(rig.t(1, "take", args![0]).values(), task(1, "t", "b"));
    rig.advance(SECOND);
    let timed_out = rig.t(1, "take", args![0.5]).token();
    rig.advance(SECOND / 2);
    assert_eq!(rig.answer(timed_out), Some(Reply::Values(vec![])));
}

fn lifo(name: &str) -> TubeType {
    ordered(name, newest)
}

#[test]
fn a_program_brings_a_type_of_tube() {
    let mut rig = Rig::new();
    let refused = rig.call(1, "queue.create_tube", args!["t", "lifo"]);
    assert_eq!(refused, Reply::Error(Error::UnknownTubeType("lifo".into())));
    rig.queue.register(&mut rig.store, lifo("lifo"), rig.now).expect("a new name");
    let again = rig.queue.register(&mut rig.store, lifo("fifo"), rig.now).expect_err("a built-in name");
    assert_eq!(again.to_string(), "overriding registered driver \"fifo\"");
    rig.create("t", "lifo", Value::Nil);
    assert_eq!(["a", "b", "c"].map(|data| put(&mut rig, data)), [0, 1, 2]);
    assert_eq!(rig.t(1, "take", args![0]).values(), task(2, "t", "c"));
    assert_eq!(rig.queue.tubes().collect::<Vec<_>>(), [("t", "lifo")]);

    rig.restart();
    assert_eq!(rig.t(1, "take", args![0]), Reply::Undefined);
    let report = rig.queue.register(&mut rig.store, lifo("lifo"), rig.now).expect("a new name");
    assert_eq!((report.tubes, report.released), (1, 1));
    assert_eq!(rig.t(1, "take", args![0]).values(), task(2, "t", "c"));
    assert_eq!(rig.t(1, "take", args![0]).values(), task(1, "t", "b"));
}
