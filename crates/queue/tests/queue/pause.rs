//! Pausing tubes, and the explanations of tasks, sub-queues and tubes.

use lycosa_store::user;
use lycosa_tuple::value::Value;

use crate::rig::{Rig, SECOND, args, options, task};

fn because(reason: &str) -> Value {
    options([("reason", reason.into())])
}

const KINDS: [&str; 5] = ["fifo", "fifottl", "limfifottl", "utube", "utubettl"];

/// The explanation's `reason` names in order, and whether the next take gets it.
#[track_caller]
fn reasons(rig: &mut Rig, arguments: Vec<Value>) -> (Vec<String>, bool) {
    let values = rig.t(9, "explain", arguments).values();
    let names = values[0].get("reasons").and_then(Value::as_array).expect("reasons").iter();
    let names = names.map(|reason| reason.get("reason").and_then(Value::as_str).expect("a name").to_owned());
    (names.collect(), values[0].get("next") == Some(&Value::Bool(true)))
}

#[track_caller]
fn said(rig: &mut Rig, arguments: Vec<Value>, place: usize, member: &str) -> Value {
    let values = rig.t(9, "explain", arguments).values();
    let reasons = values[0].get("reasons").and_then(Value::as_array).expect("reasons");
    reasons[place].get(member).cloned().unwrap_or(Value::Nil)
}

#[test]
fn a_paused_tube_hands_out_nothing_and_goes_on_otherwise() {
    for kind in KINDS {
        let mut rig = Rig::new();
        rig.create("t", kind, Value::Nil);
        rig.t(1, "put", args!["a"]).values();
        rig.t(2, "take", args![0]).values();
        assert_eq!(rig.t(1, "pause", vec![because("the disk is full")]).values(), args![true], "{kind}");
        assert_eq!(rig.t(1, "pause", args![]).values(), args![false], "{kind}");
        rig.t(1, "put", args!["b"]).values();
        assert_eq!(rig.t(2, "take", args![0]).values(), args![], "{kind}");
        assert_eq!(rig.t(2, "take_many", args![5, 0]).values(), vec![Value::Array(vec![])], "{kind}");
        let waiting = rig.t(3, "take", args![60]).token();
        rig.t(2, "release", args![0]).values();
        rig.t(1, "bury", args![0]).values();
        rig.t(1, "kick", args![1]).values();
        rig.tick();
        assert_eq!(rig.answer(waiting), None, "{kind}: a paused tube serves nobody");
        assert_eq!(rig.t(1, "resume", args![]).values(), args![true], "{kind}");
        assert_eq!(rig.answer(waiting).expect("served").values(), task(0, "t", "a"), "{kind}");
        assert_eq!(rig.t(1, "resume", args![]).values(), args![false], "{kind}");
    }
}

#[test]
fn a_pause_survives_a_restart_and_a_promotion_and_ends_with_its_tube() {
    for kind in KINDS {
        let mut rig = Rig::new();
        rig.create("t", kind, Value::Nil);
        rig.t(1, "put", args!["a"]).values();
        let mut replica = Rig::replica_of(&rig);
        rig.t(1, "pause", args![]).values();
        rig.restart();
        assert_eq!(rig.t(2, "take", args![0]).values(), args![], "{kind}");
        replica.apply_of(&rig, usize::MAX);
        replica.promote();
        assert_eq!(replica.t(2, "take", args![0]).values(), args![], "{kind}");
        replica.t(1, "resume", args![]).values();
        assert_eq!(replica.t(2, "take", args![0]).values(), task(0, "t", "a"), "{kind}");
        rig.t(1, "drop", args![]).values();
        rig.create("t", kind, Value::Nil);
        rig.t(1, "put", args!["b"]).values();
        assert_eq!(rig.t(2, "take", args![0]).values(), task(0, "t", "b"), "{kind}: a new tube");
    }
}

#[test]
fn rows_of_another_origin_pause_and_resume_a_running_tube() {
    let mut rig = Rig::new();
    for name in ["t", "u"] {
        rig.create(name, "fifo", Value::Nil);
        rig.call(1, &format!("queue.tube.{name}:put"), args!["a"]).values();
    }
    rig.call(1, "queue.tube.u:pause", args![]).values();
    let row = Value::array([Value::from(0_u64), 1_u64.into(), "admin".into(), "".into()]).encode();
    let space = rig.store.space_by_name("_lycosa_paused").expect("a space").id();
    rig.begin();
    rig.store.execute(&lycosa_store::Statement::Replace { space, tuple: &row }).expect("a row");
    rig.commit();
    assert_eq!(rig.t(2, "take", args![0]).values(), args![]);
    let waiting = rig.t(2, "take", args![60]).token();
    rig.begin();
    rig.store
        .execute(&lycosa_store::Statement::Delete { space, index: 0, key: &Value::array([0_u64]).encode() })
        .expect("a row");
    rig.commit();
    assert_eq!(rig.answer(waiting).expect("served").values(), task(0, "t", "a"));
}

#[test]
fn a_pause_is_refused_inside_a_transaction_and_without_rights() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    rig.begin();
    let refused = rig.t(1, "pause", args![]).error();
    assert_eq!(refused, "pause cannot be a part of a transaction: call it before or after");
    rig.rollback();
    rig.users.insert(5, user::GUEST);
    assert!(rig.t(5, "pause", args![]).error().contains("denied"));
    assert!(rig.t(5, "explain", args![]).error().contains("denied"));
    assert_eq!(rig.t(1, "put", args!["a"]).values(), task(0, "r", "a"));
}

#[test]
fn a_task_without_a_ttr_does_not_go_back_in_a_hundred_years() {
    let mut rig = Rig::new();
    rig.create("t", "fifottl", Value::Nil);
    rig.t(1, "put", args![1]).values();
    rig.t(1, "put", args![2, options([("ttr", 60.into())])]).values();
    for _ in 0..2 {
        rig.t(1, "take", args![0]).values();
    }
    rig.advance(5 * SECOND);
    let text = said(&mut rig, args![0], 0, "text");
    assert!(!text.to_string().contains("goes back"), "{text}");
    let text = said(&mut rig, args![1], 0, "text");
    assert!(text.to_string().contains("goes back in 55 s"), "{text}");
}

#[test]
fn a_task_is_explained_in_each_state() {
    let mut rig = Rig::new();
    rig.create("t", "fifottl", Value::Nil);
    rig.t(1, "put", args!["a"]).values();
    rig.t(1, "put", args!["b"]).values();
    rig.t(1, "put", vec!["c".into(), options([("delay", 60.into())])]).values();
    assert_eq!(reasons(&mut rig, args![0]), (vec!["no_consumer".to_owned()], true));
    assert_eq!(reasons(&mut rig, args![1]), (vec!["behind".to_owned()], false));
    assert_eq!(said(&mut rig, args![1], 0, "ahead"), 1_u64.into());
    assert_eq!(reasons(&mut rig, args![2]), (vec!["delayed".to_owned()], false));
    assert_eq!(said(&mut rig, args![2], 0, "until"), (rig.now / SECOND + 60).into());
    rig.t(7, "take", vec![0.into()]).values();
    assert_eq!(reasons(&mut rig, args![0]), (vec!["taken".to_owned()], false));
    assert_eq!(said(&mut rig, args![0], 0, "connection"), 7_u64.into());
    rig.t(7, "release", vec![0.into(), because("no route")]).values();
    rig.t(1, "bury", args![0]).values();
    rig.t(1, "pause", vec![because("maintenance")]).values();
    assert_eq!(reasons(&mut rig, args![0]), (vec!["buried".to_owned(), "paused".to_owned()], false));
    assert_eq!(said(&mut rig, args![0], 0, "because"), "no route".into());
    assert_eq!(said(&mut rig, args![0], 1, "because"), "maintenance".into());
    assert_eq!(reasons(&mut rig, args![1]), (vec!["paused".to_owned()], false));
    assert_eq!(rig.t(9, "explain", args![77]).error(), "Task 77 not found");
}

#[test]
fn a_blocked_task_names_the_task_that_blocks_its_sub_queue() {
    for kind in ["utube", "utubettl"] {
        let mut rig = Rig::new();
        rig.create("t", kind, Value::Nil);
        for name in ["x", "x", "y"] {
            rig.t(1, "put", vec!["p".into(), options([("utube", name.into())])]).values();
        }
        rig.t(7, "take", args![0]).values();
        assert_eq!(reasons(&mut rig, args![1]), (vec!["blocked".to_owned()], false), "{kind}");
        assert_eq!(said(&mut rig, args![1], 0, "by"), 0_u64.into(), "{kind}");
        let x = vec![options([("utube", "x".into())])];
        assert_eq!(reasons(&mut rig, x.clone()), (vec!["blocked".to_owned()], false), "{kind}");
        let y = vec![options([("utube", "y".into())])];
        assert_eq!(reasons(&mut rig, y), (vec!["no_consumer".to_owned()], true), "{kind}");
        rig.t(8, "take", args![0]).values();
        assert_eq!(reasons(&mut rig, args![]), (vec!["blocked".to_owned()], false), "{kind}");
        rig.t(7, "ack", args![0]).values();
        assert_eq!(reasons(&mut rig, x), (vec!["no_consumer".to_owned()], true), "{kind}");
        let none = vec![options([("utube", "z".into())])];
        assert_eq!(reasons(&mut rig, none), (vec!["empty".to_owned()], false), "{kind}");
    }
}

#[test]
fn an_unfit_subject_is_refused() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    assert!(rig.t(1, "explain", args!["x"]).error().starts_with("explain: argument #1 should be the id"));
    let refused = rig.t(1, "explain", vec![options([("utube", "x".into())])]).error();
    assert_eq!(refused, "explain: tube \"t\" (fifo) has no sub-queues");
    assert_eq!(reasons(&mut rig, args![]), (vec!["empty".to_owned()], false));
}

#[test]
fn the_audit_log_has_who_and_why_and_a_bound() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    rig.t(4, "pause", vec![because("a")]).values();
    rig.t(4, "resume", args![]).values();
    let entries = rig.call(1, "queue.audit", args![]).values();
    let entries = entries[0].as_array().expect("entries").to_vec();
    let member = |place: usize, name: &str| entries[place].get(name).cloned().unwrap_or(Value::Nil);
    assert_eq!((member(0, "operation"), member(1, "operation")), ("resume".into(), "pause".into()));
    assert_eq!((member(1, "user"), member(1, "reason")), ("admin".into(), "a".into()));
    assert_eq!((member(1, "connection"), member(1, "tube")), (4_u64.into(), "t".into()));
    assert_eq!(member(0, "reason"), Value::Nil);
    rig.users.insert(5, user::GUEST);
    assert_eq!(rig.call(5, "queue.audit", args![]).values(), vec![Value::Array(vec![])]);
    for _ in 0..5_050 {
        rig.t(4, "pause", args![]).values();
        rig.t(4, "resume", args![]).values();
    }
    assert_eq!(rig.rows("_lycosa_audit").len(), 10_000);
    let page = vec![options([("before", 200.into()), ("limit", 3.into())])];
    let entries = rig.call(1, "queue.audit", page).values();
    let ids: Vec<_> = entries[0].as_array().expect("entries").iter().map(|e| e.get("id").cloned()).collect();
    assert_eq!(ids, [199_u64, 198, 197].map(|id| Some(Value::from(id))));
}
