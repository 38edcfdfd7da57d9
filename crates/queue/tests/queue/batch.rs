//! Batches where the model does not look: rows in the journal, errors, bounds, rights, waiting calls.

use lycosa_queue::{Error, MAX_BATCH, MAX_TAKEN_BYTES};
use lycosa_tuple::value::Value;

use crate::rig::{Reply, Rig, SECOND, args, options};

fn texts(values: &[&str]) -> Value {
    Value::array(values.iter().copied())
}

fn ids(values: &[u64]) -> Value {
    Value::array(values.iter().copied())
}

fn tasks(tasks: &[(u64, &str, &str)]) -> Vec<Value> {
    let one = |&(id, state, data): &(u64, &str, &str)| {
        Value::array([Value::from(id), Value::from(state), Value::from(data)])
    };
    vec![Value::array(tasks.iter().map(one))]
}

#[test]
fn a_batch_is_one_transaction() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    rig.store.drain_committed(&mut |_| {});
    for (method, arguments, rows) in [
        ("put_many", args![texts(&["a", "b", "c"])], 3),
        ("take_many", args![2, 0], 2),
        ("release_many", args![ids(&[1])], 1),
        ("ack_many", args![ids(&[0])], 1),
    ] {
        let name = format!("queue.tube.t:{method}");
        let caller = rig.caller(1);
        let procedure = rig.queue.resolve(name.as_bytes()).expect("a procedure");
        let mut out = Vec::new();
        let arguments = Value::from(arguments).encode();
        rig.call_as(&caller, &procedure, &arguments, &mut out).expect(method);
        let mut transactions = Vec::new();
        rig.store.drain_committed(&mut |committed| transactions.push(committed.effects().count()));
        assert_eq!(transactions, [rows], "{method}");
    }
}

#[test]
fn what_one_task_is_refused_for_all_are() {
    let mut rig = Rig::new();
    rig.create("t", "fifottl", Value::Nil);
    let options = Value::array([options([]), options([("delay", Value::from("soon"))])]);
    let error = rig.t(1, "put_many", args![texts(&["a", "b"]), options]).error();
    let what = "put_many: option delay is \"soon\", not a number of seconds";
    assert_eq!(error, format!("#2: {what}: attempt to compare number with string"));
    assert_eq!(rig.rows("t"), []);
    let pri = Value::map([("pri", Value::from(-1_i64))]);
    let of_store = |reply: Reply| match reply {
        Reply::Error(Error::Refused { reason, .. }) => reason,
        other => panic!("no refused argument: {other:?}"),
    };
    let refused = of_store(rig.t(1, "put_many", args![texts(&["a"]), pri.clone()]));
    assert_eq!(refused, of_store(rig.t(1, "put", args!["a", pri])), "the store's errors keep their code");

    rig.t(1, "put_many", args![texts(&["a", "b"])]).values();
    assert_eq!(rig.t(2, "ack_many", args![ids(&[0])]).error(), "task 0: Task was not taken");
    assert_eq!(rig.t(1, "take_many", args![5, 0]).values(), tasks(&[(0, "t", "a"), (1, "t", "b")]));
    for method in ["ack_many", "release_many"] {
        for (given, refused) in [
            (ids(&[0, 7, 1]), "7"),
            (ids(&[1, 0, 1]), "1"),
            (ids(&[0, 1, u64::MAX]), "18446744073709551615ULL"),
        ] {
            let error = format!("task {refused}: Task was not taken");
            assert_eq!(rig.t(1, method, args![given]).error(), error);
        }
        let wrong = rig.t(1, method, args![Value::array([Value::from("x")])]).error();
        let store = "Supplied key type of part 1 does not match index part type: expected unsigned";
        assert!(wrong.ends_with(store), "{wrong}");
    }
    assert_eq!(rig.rows("_queue_taken_2").len(), 2);
    assert_eq!(rig.t(1, "ack_many", args![ids(&[1, 0])]).values(), tasks(&[(1, "-", "b"), (0, "-", "a")]));
    assert_eq!(
        rig.t(1, "put", args!["c"]).values()[0].as_array().map(|task| task[0].clone()),
        Some(2_u64.into())
    );
}

#[test]
fn arguments_of_other_types() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    let limit = "argument #1 should be a number of tasks, 1 at least";
    for wrong in [args![], args![0], args![-1], args![0.5], args!["5"], args![Value::Nil], args![f64::NAN]] {
        assert_eq!(rig.t(1, "take_many", wrong).error(), limit);
    }
    let wrong = rig.t(1, "take_many", args![1, "x"]).error();
    assert!(wrong.ends_with("attempt to compare string with number"), "{wrong}");
    for method in ["ack_many", "release_many"] {
        assert_eq!(rig.t(1, method, args![0]).error(), "argument #1 should be an array of ids");
    }
    let many = Value::from(vec![Value::Nil; MAX_BATCH as usize + 1]);
    let error = "argument #1 should have at most 10000 elements, not 10001";
    for method in ["put_many", "ack_many", "release_many"] {
        assert_eq!(rig.t(1, method, vec![many.clone()]).error(), error);
        assert_eq!(rig.t(1, method, args![ids(&[])]).values(), tasks(&[]), "{method} of nothing");
    }
}

#[test]
fn a_take_of_many_is_bounded_by_number_and_bytes() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    let count = |values: Vec<Value>| values[0].as_array().map(<[Value]>::len);
    let payloads = || Value::from(vec![Value::from(1_u64); MAX_BATCH as usize]);
    rig.t(1, "put_many", vec![payloads()]).values();
    rig.t(1, "put_many", vec![payloads()]).values();
    assert_eq!(count(rig.t(1, "take_many", args![u64::MAX, 0]).values()), Some(MAX_BATCH as usize));
    assert_eq!(count(rig.t(1, "take_many", args![1e30, 0]).values()), Some(MAX_BATCH as usize));

    let large = Value::bin(vec![0; MAX_TAKEN_BYTES / 20]);
    rig.t(1, "put_many", vec![Value::from(vec![large; 25])]).values();
    assert_eq!(count(rig.t(1, "take_many", args![25, 0]).values()), Some(20));
    assert_eq!(count(rig.t(1, "take_many", args![25, 0]).values()), Some(5));
}

#[test]
fn who_waits_longest_has_first_choice() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    let first = rig.t(1, "take_many", args![2]).token();
    let second = rig.t(2, "take", args![]).token();
    let third = rig.t(3, "take_many", args![2, 10]).token();
    assert_eq!(rig.rows("_queue_consumers").len(), 3);
    rig.t(4, "put_many", args![texts(&["a", "b", "c"])]).values();
    assert_eq!(rig.arrived(), [first, second]);
    assert_eq!(rig.answer(first).expect("an answer").values(), tasks(&[(0, "t", "a"), (1, "t", "b")]));
    let single = tasks(&[(2, "t", "c")])[0].as_array().expect("a list").to_vec();
    assert_eq!(rig.answer(second).expect("an answer").values(), single);
    rig.advance(10 * SECOND);
    assert_eq!(rig.answer(third).expect("an answer").values(), tasks(&[]));
    assert_eq!(rig.rows("_queue_consumers"), []);
}

#[test]
fn puts_stand_behind_a_batch_that_waits_for_room() {
    let mut rig = Rig::new();
    rig.create("t", "limfifottl", options([("capacity", Value::from(3_u64))]));
    rig.t(1, "put_many", args![texts(&["a", "b"])]).values();
    let patient = options([("timeout", Value::from(10_u64))]);
    let patient = |data: Value| vec![data, patient.clone()];
    let beyond = rig.t(1, "put_many", patient(texts(&["c", "d", "e", "f"]))).error();
    assert_eq!(beyond, "4 tasks do not fit a tube with a capacity of 3");
    assert_eq!(rig.t(1, "put_many", args![texts(&["c", "d"])]).values(), [Value::Nil]);
    let batch = rig.t(2, "put_many", patient(texts(&["c", "d"]))).token();
    assert_eq!(rig.t(1, "put", args!["e"]).values(), [Value::Nil]);
    let single = rig.t(3, "put", patient(Value::from("e"))).token();
    let wrong =
        Value::array([options([("timeout", Value::from(5_u64))]), options([("ttl", Value::from("x"))])]);
    assert!(rig.t(1, "put_many", args![texts(&["f", "g"]), wrong]).error().starts_with("#2: "));
    rig.t(1, "take", args![0]).values();
    rig.t(1, "ack", args![0]).values();
    assert_eq!(rig.arrived(), [batch]);
    assert_eq!(rig.answer(batch).expect("an answer").values(), tasks(&[(2, "r", "c"), (3, "r", "d")]));
    rig.t(1, "delete", args![1]).values();
    assert_eq!(rig.arrived(), [single]);
}

#[test]
fn a_batch_that_gives_up_lets_those_behind_it_in() {
    for leaves in [false, true] {
        let mut rig = Rig::new();
        rig.create("t", "limfifottl", options([("capacity", Value::from(2_u64))]));
        rig.t(1, "put", args!["a"]).values();
        let timeout = |seconds: u64| options([("timeout", Value::from(seconds))]);
        let batch = rig.t(2, "put_many", args![texts(&["b", "c"]), timeout(5)]).token();
        let single = rig.t(3, "put", args!["d", timeout(10)]).token();
        if leaves {
            rig.disconnect(2);
        } else {
            rig.advance(5 * SECOND);
            assert_eq!(rig.answer(batch).expect("an answer").values(), [Value::Nil]);
        }
        assert!(rig.answer(single).is_some());
        assert_eq!(rig.rows("t").len(), 2);
    }
}

#[test]
fn a_call_that_may_not_wait_changes_nothing() {
    let mut rig = Rig::new();
    rig.create("t", "fifottl", Value::Nil);
    rig.t(1, "put", args!["a", options([("ttl", Value::from(1_u64))])]).values();
    rig.now += 2 * SECOND;
    for (method, arguments) in [("take", args![]), ("take_many", args![1])] {
        let mut caller = rig.caller(1);
        caller.may_wait = false;
        let procedure = rig.queue.resolve(format!("queue.tube.t:{method}").as_bytes()).expect("a procedure");
        let arguments = Value::from(arguments).encode();
        let mut out = Vec::new();
        let answer = rig.call_as(&caller, &procedure, &arguments, &mut out);
        assert_eq!(answer, Err(Error::MayNotWait));
        assert_eq!(rig.rows("t").len(), 1, "the dead task is the timer's affair");
    }
    assert_eq!(rig.queue.waiting(), 0);
}

#[test]
fn ids_go_on_after_a_batch_that_was_taken_back() {
    let mut rig = Rig::new();
    rig.create("t", "utubettl", Value::Nil);
    rig.begin();
    rig.t(1, "put_many", args![texts(&["a", "b"])]).values();
    assert_eq!(rig.t(1, "take_many", args![5, 10]).values(), tasks(&[(0, "t", "a")]), "one of a sub-queue");
    rig.rollback();
    assert_eq!(rig.t(1, "put_many", args![texts(&["c"])]).values(), tasks(&[(0, "r", "c")]));
    let each = Value::array(["x", "y", "x"].map(|name| options([("utube", Value::from(name))])));
    rig.t(1, "put_many", args![texts(&["d", "e", "f"]), each]).values();
    let taken = tasks(&[(0, "t", "c"), (1, "t", "d"), (2, "t", "e")]);
    assert_eq!(rig.t(1, "take_many", args![10, 0]).values(), taken);
    rig.t(1, "release_many", args![ids(&[2, 0, 1]), options([("delay", Value::from(1_u64))])]).values();
    assert_eq!(rig.t(1, "take_many", args![10, 0]).values(), tasks(&[(3, "t", "f")]));
}
