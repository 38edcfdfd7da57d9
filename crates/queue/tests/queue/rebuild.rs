//! Losses of rows: the queue comes up again on other data, in steps between which clients leave and rows are lost again.

use lycosa_queue::{Configuration, QueueState};
use lycosa_tuple::value::Value;

use crate::rig::{Reply, Rig, SECOND, args, options, task};

const TUBES: [&str; 5] = ["fifo", "fifottl", "limfifottl", "utube", "utubettl"];

/// A rig with tubes of all types, ready, buried and taken tasks, and sessions.
fn busy(configuration: Configuration) -> Rig {
    let mut rig = Rig::configured(configuration);
    for kind in TUBES {
        rig.create(kind, kind, options([("capacity", Value::from(1000_u64))]));
        for number in 0..40_u64 {
            let more = options([("utube", Value::from(number % 15)), ("ttr", Value::from(1000_u64))]);
            rig.call(1, &format!("queue.tube.{kind}:put"), args![number, more]).values();
        }
        for connection in 1..=12 {
            rig.call(connection, &format!("queue.tube.{kind}:take"), args![0]).values();
        }
        rig.call(1, &format!("queue.tube.{kind}:bury"), args![0]).values();
    }
    rig
}

/// What the rig's store says, space by space.
fn all(rig: &Rig) -> Vec<Vec<Value>> {
    let system =
        ["_queue", "_queue_taken_2", "_queue_shared_sessions", "_queue_session_ids", "_queue_consumers"];
    TUBES.iter().chain(&system).map(|space| rig.rows(space)).collect()
}

#[test]
fn steps_of_a_rebuild_come_to_what_one_step_does() {
    for in_replicaset in [false, true] {
        let configuration = Configuration { in_replicaset, ..Configuration::default() };
        let mut whole = busy(configuration);
        let (steps, _) = whole.rebuild(usize::MAX, |_, _| {});
        let expected = all(&whole);
        assert_eq!(steps, 1);
        assert_eq!(!whole.rows("_queue_taken_2").is_empty(), in_replicaset, "an owner by a row stays");
        for budget in [1, 7, 64] {
            let mut stepped = busy(configuration);
            let (steps, _) = stepped.rebuild(budget, |_, _| {});
            assert!(steps > 100 / budget, "{steps} steps of {budget}");
            assert_eq!(all(&stepped), expected, "budget {budget}, replica set: {in_replicaset}");
        }
    }
}

#[test]
fn clients_leave_and_rows_are_lost_again_in_the_middle_of_a_rebuild() {
    for (budget, again) in [(1, 1), (1, 7), (1, 80), (5, 12), (40, 1)] {
        let mut rig = busy(Configuration::default());
        let kept = rig.transactions();
        rig.create("t", "fifo", Value::Nil);
        let lost = rig.t(40, "take", args![50]).token();
        rig.call(41, "queue.tube.fifo:take_many", args![1000, 0]).values();
        let stays = rig.call(42, "queue.tube.fifo:take", args![50]).token();
        let leaves = rig.call(43, "queue.tube.fifo:take", args![50]).token();
        rig.forget_behind(kept);
        let mut is_lost_again = false;
        let (_, waiting) = rig.rebuild(budget, |rig, step| {
            if step == again {
                rig.disconnect(43);
                rig.disconnect(5);
            }
            if step == 2 * again && !is_lost_again {
                is_lost_again = true;
                rig.forget_behind(kept);
                rig.begin_rebuild();
            }
        });
        assert!(is_lost_again, "budget {budget}, again {again}");
        assert!(!waiting.contains(&lost), "its tube is not in the data");
        assert_eq!(rig.queue.state(), QueueState::Running);
        assert_eq!((rig.answer(lost), rig.answer(leaves)), (None, None));
        // Tasks without an owner go to waiting takes.
        let Some(Reply::Values(taken)) = rig.answer(stays) else { panic!("the take has waited") };
        assert_eq!(taken.len(), 1, "budget {budget}, again {again}");
        rig.create("t", "fifo", Value::Nil);
        assert_eq!(rig.t(44, "put", args!["new"]).values(), task(0, "r", "new"));
        rig.advance(2000 * SECOND);
        rig.restart();
    }
}

#[test]
fn a_session_is_not_looked_for_in_data_that_the_queue_only_follows() {
    let mut rig = Rig::with_ttr(1000.0, true);
    let before = rig.transactions();
    let session = rig.call(1, "queue.identify", args![]).values().remove(0);
    rig.queue.set_read_only(&mut rig.store, true, rig.now).expect("nothing is written");
    // The spaces of sessions are gone with the rows, and those of later rows are not known.
    for kept in [0, before] {
        rig.forget_behind(kept);
        rig.rebuild(usize::MAX, |_, _| {});
        assert_eq!(rig.queue.state(), QueueState::Waiting);
        let refused = rig.call(2, "queue.identify", vec![session.clone()]).error();
        assert_eq!(refused, lycosa_queue::Error::ReadOnly.to_string());
        let caller = rig.caller(2);
        let (views, is_all) = rig.queue.sessions(&rig.store, &caller).expect("the spaces need not exist");
        assert_eq!((views.len(), is_all), (1, true), "the connection keeps its session");
    }
}

#[test]
fn a_follower_that_lacks_a_session_does_not_call_it_unknown() {
    let mut rig = Rig::with_ttr(1000.0, true);
    rig.queue.set_read_only(&mut rig.store, true, rig.now).expect("nothing is written");
    let newer = vec![Value::str([7_u8; 16])];
    let refused = rig.call(2, "queue.identify", newer.clone()).error();
    assert_eq!(refused, lycosa_queue::Error::ReadOnly.to_string());
    rig.promote();
    assert!(rig.call(2, "queue.identify", newer).error().ends_with("is unknown."));
}
