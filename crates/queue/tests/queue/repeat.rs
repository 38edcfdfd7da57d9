//! Takes that are made again, since their answer may have been lost.

use lycosa_tuple::value::Value;

use crate::rig::{Reply, Rig, SECOND, args, options};

const KINDS: [&str; 5] = ["fifo", "fifottl", "limfifottl", "utube", "utubettl"];

fn rig(kind: &str, tasks: u64) -> Rig {
    let mut rig = Rig::with_ttr(60.0, true);
    rig.create("t", kind, Value::Nil);
    for number in 0..tasks {
        let sub_queue = kind.starts_with("utube").then(|| options([("utube", number.into())]));
        rig.t(1, "put", std::iter::once(number.into()).chain(sub_queue).collect()).values();
    }
    rig
}

fn named(name: u8, again: bool) -> Value {
    options([("request", Value::Bin(vec![name; 16])), ("again", again.into())])
}

/// Connection `to` joins the session of `from`.
fn join(rig: &mut Rig, from: u64, to: u64) {
    let session = rig.call(from, "queue.identify", args![]).values().remove(0);
    rig.call(to, "queue.identify", vec![session]).values();
}

fn take(rig: &mut Rig, connection: u64, seconds: u64, options: Value) -> Reply {
    rig.t(connection, "take", vec![seconds.into(), options])
}

#[track_caller]
fn id(reply: Reply) -> u64 {
    let values = reply.values();
    values[0].as_array().expect("a task")[0].as_u64().expect("an id")
}

#[test]
fn a_lost_answer_is_given_again() {
    for kind in KINDS {
        let mut rig = rig(kind, 3);
        join(&mut rig, 1, 2);
        assert_eq!(id(take(&mut rig, 1, 0, named(7, false))), 0, "{kind}");
        let before = rig.transactions();
        for _ in 0..2 {
            let again = take(&mut rig, 2, 0, named(7, true));
            let task = again.values().remove(0);
            assert_eq!(task.as_array().expect("a task")[1], Value::from("t"), "{kind}");
            assert_eq!(task.as_array().expect("a task")[0], Value::from(0_u64), "{kind}");
        }
        assert_eq!(rig.transactions(), before, "{kind}: nothing is changed");
        // The queue comes up with the rows alone, as at another leader.
        let session = rig.call(2, "queue.identify", args![]).values().remove(0);
        rig.restart();
        rig.call(3, "queue.identify", vec![session]).values();
        assert_eq!(id(take(&mut rig, 3, 0, named(7, true))), 0, "{kind}");
        // Another name got nothing, and another session has names of its own.
        assert_eq!(id(take(&mut rig, 3, 0, named(8, true))), 1, "{kind}");
        assert_eq!(id(take(&mut rig, 4, 0, named(7, true))), 2, "{kind}");
        rig.t(3, "ack", args![0]).values();
        rig.t(3, "ack", args![1]).values();
        // A settled task is not given again: the take is a new one.
        assert_eq!(take(&mut rig, 3, 0, named(7, true)), Reply::Values(vec![]), "{kind}");
    }
}

#[test]
fn a_repetition_that_comes_late_gets_nothing_and_ends_no_later_one() {
    for kind in KINDS {
        let mut rig = rig(kind, 0);
        join(&mut rig, 1, 2);
        let attempt = |number: u64| options([("request", Value::Bin(vec![7; 16])), ("again", number.into())]);
        let waits = take(&mut rig, 2, 60, attempt(4)).token();
        for late in [attempt(2), named(7, true), named(7, false)] {
            assert_eq!(take(&mut rig, 1, 60, late.clone()), Reply::Values(vec![]), "{kind}");
            let none = Reply::Values(vec![Value::Array(vec![])]);
            assert_eq!(rig.t(1, "take_many", vec![5.into(), 60.into(), late]), none, "{kind}");
        }
        let sub_queue = kind.starts_with("utube").then(|| options([("utube", 0.into())]));
        rig.t(3, "put", std::iter::once(0.into()).chain(sub_queue).collect()).values();
        assert_eq!(id(rig.answer(waits).expect("the later repetition waits still")), 0, "{kind}");
        // Its answer is lost too.
        assert_eq!(id(take(&mut rig, 1, 60, attempt(6))), 0, "{kind}");
        rig.t(1, "ack", args![0]).values();
        assert_eq!(take(&mut rig, 2, 60, attempt(4)), Reply::Values(vec![]), "{kind}");
        let last = take(&mut rig, 1, 60, attempt(8));
        let again = take(&mut rig, 2, 60, attempt(8)).token();
        assert_eq!(
            rig.answer(last.token()),
            Some(Reply::Values(vec![])),
            "{kind}: of equal ones the one that comes last"
        );
        assert!(rig.answer(again).is_none(), "{kind}");
    }
}

#[test]
fn a_repeated_take_is_not_told_of_no_task_by_a_queue_that_does_not_run() {
    let mut rig = rig("fifo", 2);
    let session = rig.call(1, "queue.identify", args![]).values().remove(0);
    assert_eq!(id(take(&mut rig, 1, 0, named(7, false))), 0);
    rig.queue.set_read_only(&mut rig.store, true, rig.now).expect("read-only");
    for arguments in [vec![0.into(), named(7, true)], vec![5.into(), 0.into(), named(7, true)]] {
        let method = if arguments.len() == 2 { "take" } else { "take_many" };
        let text = rig.t(1, method, arguments).error();
        assert!(text.contains("The outcome of this take is unknown"), "{method}: {text}");
    }
    // A take that is made for the first time is answered as ever.
    assert_eq!(take(&mut rig, 1, 0, named(8, false)), Reply::Values(vec![Value::Nil]));
    rig.queue.set_read_only(&mut rig.store, false, rig.now).expect("writable");
    rig.call(2, "queue.identify", vec![session]).values();
    assert_eq!(id(take(&mut rig, 2, 0, named(7, true))), 0);
}

#[test]
fn a_lost_answer_of_many_is_given_again() {
    for kind in KINDS {
        let mut rig = rig(kind, 4);
        join(&mut rig, 1, 2);
        let many = |rig: &mut Rig, connection, options| {
            let taken = rig.t(connection, "take_many", vec![3.into(), 0.into(), options]).values().remove(0);
            let ids = taken
                .as_array()
                .expect("tasks")
                .iter()
                .map(|task| task.as_array().expect("a task")[0].as_u64());
            ids.collect::<Option<Vec<u64>>>().expect("ids")
        };
        assert_eq!(many(&mut rig, 1, named(7, false)), [0, 1, 2], "{kind}");
        assert_eq!(many(&mut rig, 2, named(7, true)), [0, 1, 2], "{kind}");
        rig.t(1, "release", args![1]).values();
        assert_eq!(many(&mut rig, 2, named(7, true)), [0, 2], "{kind}: only what the session holds still");
        assert_eq!(many(&mut rig, 2, named(8, true)), [1, 3], "{kind}");
    }
}

#[test]
fn an_extended_answer_keeps_its_form_and_counts_one_attempt() {
    let mut rig = rig("fifottl", 1);
    let extended = |again: bool| {
        let name = Value::Bin(vec![7; 16]);
        options([("request", name), ("again", again.into()), ("extended", true.into())])
    };
    let first = take(&mut rig, 1, 0, extended(false)).values();
    let again = take(&mut rig, 1, 0, extended(true)).values();
    assert_eq!(first, again);
    assert_eq!(again[0].as_array().expect("a task")[3].get("attempts"), Some(&Value::from(1_u64)));
}

#[test]
fn a_waiting_call_gives_way_to_its_repetition() {
    let mut rig = rig("fifo", 0);
    join(&mut rig, 1, 2);
    let lost = take(&mut rig, 1, 100, named(7, false)).token();
    let other = take(&mut rig, 1, 100, named(9, false)).token();
    let again = take(&mut rig, 2, 100, named(7, true)).token();
    assert_eq!(rig.answer(lost), Some(Reply::Values(vec![])), "the lost call is over");
    for payload in 0..2_u64 {
        rig.t(3, "put", vec![payload.into()]).values();
    }
    // The other call has waited longer than the repetition.
    assert_eq!(rig.answer(other).map(id), Some(0));
    assert_eq!(rig.answer(again).map(id), Some(1));
    // A call that was served while it waited is known by its name, too.
    assert_eq!(id(take(&mut rig, 1, 0, named(7, true))), 1);
}

#[test]
fn a_task_whose_session_has_ended_is_free() {
    let mut rig = rig("fifo", 1);
    assert_eq!(id(take(&mut rig, 1, 0, named(7, false))), 0);
    rig.disconnect(1);
    rig.advance(61 * SECOND);
    assert_eq!(id(take(&mut rig, 2, 0, named(9, false))), 0);
    assert_eq!(take(&mut rig, 1, 0, named(7, true)), Reply::Values(vec![]));
}

#[test]
fn a_name_that_is_none_is_refused() {
    let mut rig = rig("fifo", 1);
    let before = rig.transactions();
    let error = take(&mut rig, 1, 0, options([("request", Value::from("short"))])).error();
    assert!(error.contains("16 bytes"), "{error}");
    assert_eq!(rig.transactions(), before);
}
