//! `recount`: walks over a tube's tasks that go on while they change.

use lycosa_tuple::value::Value;

use crate::rig::{Rig, args, options};

fn counts([ready, taken, delayed, buried]: [u64; 4]) -> Value {
    Value::map([("ready", ready), ("taken", taken), ("delayed", delayed), ("buried", buried)])
}

fn agreed(numbers: [u64; 4]) -> Vec<Value> {
    let members = [("found", counts(numbers)), ("kept", counts(numbers)), ("indexed", counts(numbers))];
    vec![Value::map([("agrees", Value::from(true))].into_iter().chain(members))]
}

#[test]
fn a_short_recount_is_answered_at_once() {
    let mut rig = Rig::new();
    rig.create("t", "fifottl", options([]));
    for _ in 0..4 {
        rig.t(1, "put", args!["x"]).values();
    }
    rig.t(1, "put", args!["x", options([("delay", Value::from(100))])]).values();
    rig.t(1, "take", args![0]).values();
    rig.t(1, "bury", args![2]).values();
    assert_eq!(rig.t(1, "recount", args![]).values(), agreed([2, 1, 1, 1]));
}

/// Tasks before and behind the walk change, new ones come and some go; one transaction is rolled back.
#[test]
fn a_walk_over_tasks_that_change_is_exact_at_its_end() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", options([]));
    (0..1000).for_each(|_| drop(rig.t(1, "put", args!["x"]).values()));
    let token = rig.t(1, "recount", args![]).token();
    let second = rig.t(2, "recount", args![]).token();
    rig.work(300);
    rig.t(1, "bury", args![10]).values();
    rig.t(1, "bury", args![990]).values();
    rig.t(1, "delete", args![11]).values();
    rig.t(1, "delete", args![991]).values();
    rig.t(1, "put", args!["y"]).values();
    rig.begin();
    rig.t(1, "delete", args![12]).values();
    rig.t(1, "delete", args![992]).values();
    rig.rollback();
    rig.t(1, "take", args![0]).values();
    rig.tick();
    for token in [token, second] {
        let found = rig.answer(token).expect("the walk has ended").values();
        assert_eq!(found, agreed([996, 1, 0, 2]));
    }
}

#[test]
fn a_truncation_in_the_middle_of_a_walk_empties_it() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", options([]));
    (0..1000).for_each(|_| drop(rig.t(1, "put", args!["x"]).values()));
    let token = rig.t(1, "recount", args![]).token();
    rig.work(300);
    rig.t(1, "truncate", args![]).values();
    rig.t(1, "put", args!["y"]).values();
    rig.tick();
    assert_eq!(rig.answer(token).expect("the walk has ended").values(), agreed([1, 0, 0, 0]));
}

#[test]
fn a_recount_inside_a_transaction_sees_what_it_has_done() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", options([]));
    rig.t(1, "put", args!["x"]).values();
    rig.begin();
    rig.t(1, "put", args!["y"]).values();
    rig.t(1, "take", args![0]).values();
    assert_eq!(rig.t(1, "recount", args![]).values(), agreed([1, 1, 0, 0]));
    rig.rollback();
    assert_eq!(rig.t(1, "recount", args![]).values(), agreed([1, 0, 0, 0]));
}

#[test]
fn redeliveries_have_a_reason() {
    let mut rig = Rig::new();
    rig.create("t", "fifottl", options([("ttr", Value::from(5))]));
    (0..3).for_each(|_| drop(rig.t(1, "put", args!["x"]).values()));
    rig.t(1, "take", args![0]).values();
    rig.t(1, "release", args![0]).values();
    rig.t(2, "take", args![0]).values();
    rig.t(2, "take", args![0]).values();
    rig.disconnect(2);
    rig.tick();
    rig.t(1, "take", args![0]).values();
    rig.advance(6_000_000);
    let statistics = rig.queue.tube_statistics(&rig.store, "t").expect("a space").expect("a tube");
    let counts = lycosa_queue::Redelivery::ALL.map(|reason| statistics.counters.redelivered(reason));
    assert_eq!(counts, [1, 2, 1], "release, disconnect, ttr");
}
