//! Owners of taken tasks that are not rows of `_queue_taken_2` yet: readers of the space see no difference.

use lycosa_store::Statement;
use lycosa_tuple::value::Value;

use crate::rig::{Rig, args, options};

const TAKEN: &str = "_queue_taken_2";
/// More than there are cached owners.
const MANY: u64 = 5000;

fn row_count(rig: &Rig) -> u64 {
    rig.store.space(rig.space_id(TAKEN)).expect("a space").len()
}

fn read(rig: &mut Rig) {
    let space = rig.space_id(TAKEN);
    rig.queue.read(&mut rig.store, space, 0, 0, rig.now).expect("the space is there");
}

/// The tasks that have an owner, by id.
fn owned(rig: &Rig) -> Vec<u64> {
    let id = |row: &Value| row.as_array().and_then(|row| row[1].as_u64()).expect("an id");
    rig.rows(TAKEN).iter().map(id).collect()
}

fn with_taken_tasks(count: u64) -> Rig {
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    for _ in 0..count {
        rig.t(1, "put", args!["x"]).values();
        rig.t(2, "take", args![0]).values();
    }
    rig
}

#[test]
fn owners_are_entered_when_there_are_many_and_when_somebody_looks() {
    let mut rig = with_taken_tasks(MANY);
    assert_eq!(owned(&rig), (0..MANY).collect::<Vec<_>>());
    let before = row_count(&rig);
    assert!(0 < before && before < MANY, "{before} are written back");
    let rows = rig.rows(TAKEN);

    for (id, error) in [(0, None), (MANY - 1, None), (0, Some("Task was not taken"))] {
        let reply = rig.t(2, "ack", args![id]);
        assert_eq!(error.is_some(), matches!(reply, crate::rig::Reply::Error(_)));
    }
    assert_eq!(rig.t(1, "ack", args![1]).error(), "Task was not taken");
    assert_eq!(rig.t(1, "ack", args![MANY - 2]).error(), "Task was not taken");
    assert_eq!(rig.rows(TAKEN), rows[1..rows.len() - 1]);
    assert_eq!(row_count(&rig), before - 1);

    read(&mut rig);
    assert_eq!(row_count(&rig), MANY - 2);
    assert_eq!(rig.rows(TAKEN), rows[1..rows.len() - 1]);
    for id in 1..MANY - 1 {
        rig.t(2, "ack", args![id]).values();
    }
    assert_eq!((row_count(&rig), owned(&rig).len()), (0, 0));
}

#[test]
fn a_session_that_ends_gives_back_what_is_entered_and_what_is_not() {
    let mut rig = with_taken_tasks(MANY);
    rig.t(1, "put", args!["x"]).values();
    rig.t(3, "take", args![0]).values();
    rig.disconnect(2);
    rig.tick();
    assert_eq!(owned(&rig), [MANY]);
    assert_eq!(row_count(&rig), 0, "only what the session owned was written back");
    assert_eq!(
        rig.t(4, "take_many", args![10_000, 0]).values()[0].as_array().map(<[Value]>::len),
        Some(5000)
    );
}

#[test]
fn a_transaction_that_is_taken_back_leaves_the_owners_as_they_were() {
    let mut rig = with_taken_tasks(2);
    rig.t(1, "put", args!["x"]).values();
    let before = rig.rows(TAKEN);
    rig.begin();
    rig.t(2, "ack", args![0]).values();
    rig.t(2, "release", args![1]).values();
    rig.t(3, "take", args![0]).values();
    assert_eq!(owned(&rig), [1]);
    let savepoint = rig.queue.savepoint(&rig.store);
    read(&mut rig);
    rig.t(3, "take", args![0]).values();
    assert_eq!((row_count(&rig), owned(&rig)), (1, vec![1, 2]));
    rig.queue.rollback_to(&mut rig.store, savepoint);
    assert_eq!((row_count(&rig), owned(&rig)), (0, vec![1]));
    rig.rollback();
    assert_eq!((row_count(&rig), rig.rows(TAKEN)), (0, before));
    rig.t(2, "ack_many", args![Value::array([0_u64, 1])]).values();
    assert!(owned(&rig).is_empty());
}

#[test]
fn a_transaction_that_holds_keeps_its_owners() {
    let mut rig = with_taken_tasks(1);
    rig.t(1, "put", args!["x"]).values();
    rig.begin();
    rig.t(2, "take", args![0]).values();
    read(&mut rig);
    rig.t(2, "ack", args![0]).values();
    rig.commit();
    assert_eq!((row_count(&rig), owned(&rig)), (1, vec![1]));
}

#[test]
fn a_touch_leaves_one_row() {
    let mut rig = Rig::new();
    rig.create("t", "fifottl", options([("ttl", Value::from(60_u64)), ("ttr", Value::from(60_u64))]));
    rig.t(1, "put", args!["x"]).values();
    rig.t(2, "take", args![0]).values();
    rig.t(2, "touch", args![0, 1]).values();
    assert_eq!((row_count(&rig), owned(&rig)), (0, vec![0]));
    read(&mut rig);
    rig.t(2, "touch", args![0, 1]).values();
    assert_eq!((row_count(&rig), owned(&rig)), (1, vec![0]));
}

#[test]
fn tubes_know_of_owners_that_are_not_entered() {
    let mut rig = with_taken_tasks(1);
    assert_eq!(rig.t(1, "drop", args![]).error(), "There are taken tasks in the tube");
    rig.t(1, "truncate", args![]).values();
    assert!(owned(&rig).is_empty());
    rig.t(1, "drop", args![]).values();
}

#[test]
fn somebody_who_changes_the_rows_finds_all_of_them() {
    let mut rig = with_taken_tasks(2);
    let space = rig.space_id(TAKEN);
    let key = Value::array([0_u64, 1]).encode();
    rig.execute(&Statement::Delete { space, index: 0, key: &key }).expect("a statement");
    assert_eq!(owned(&rig), [0]);
    assert_eq!(rig.t(2, "ack", args![1]).error(), "Task was not taken");
    rig.t(2, "ack", args![0]).values();
}

#[test]
fn owners_move_into_a_space_that_is_logged() {
    let mut rig = with_taken_tasks(3);
    let rows = rig.rows(TAKEN);
    rig.call(1, "queue.cfg", args![options([("in_replicaset", Value::from(true))])]).values();
    assert_eq!((row_count(&rig), rig.rows(TAKEN)), (3, rows));
    rig.t(1, "put", args!["x"]).values();
    rig.t(2, "take", args![0]).values();
    assert_eq!(row_count(&rig), 4);
    rig.call(1, "queue.cfg", args![options([("in_replicaset", Value::from(false))])]).values();
    rig.t(2, "ack", args![0]).values();
    assert_eq!(owned(&rig), [1, 2, 3]);
}
