//! Rows of `_queue_consumers` are written when the space is read.

use lycosa_store::user;
use lycosa_tuple::value::Value;

use crate::rig::{Reply, Rig, args, task};

const SPACE: &str = "_queue_consumers";

fn rig() -> Rig {
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    rig
}

/// How many rows the store has now.
fn written(rig: &Rig) -> u64 {
    rig.store.space_by_name(SPACE).expect("the space").len()
}

/// Reads the space as a client does. How many rows it has.
fn read(rig: &mut Rig) -> u64 {
    let space = rig.space_id(SPACE);
    let now = rig.now;
    assert!(rig.queue.read(&mut rig.store, space, 0, u64::MAX, now).expect("the space").is_some());
    assert_eq!(rig.rows(SPACE).len() as u64, written(rig));
    written(rig)
}

fn put(rig: &mut Rig, data: &str) {
    rig.t(1, "put", args![data]).values();
}

#[test]
fn a_take_that_waits_has_a_row_for_its_readers_alone() {
    let mut rig = rig();
    let first = rig.t(2, "take", args![]).token();
    let second = rig.t(3, "take_many", args![5, 50]).token();
    assert_eq!((rig.rows(SPACE).len(), written(&rig)), (2, 0));
    assert_eq!(read(&mut rig), 2);
    put(&mut rig, "a");
    assert_eq!(rig.answer(first), Some(Reply::Values(task(0, "t", "a"))));
    assert_eq!((rig.rows(SPACE).len(), written(&rig)), (1, 2));
    assert_eq!(read(&mut rig), 1);
    rig.disconnect(3);
    assert_eq!((rig.rows(SPACE).len(), written(&rig)), (0, 1));
    assert_eq!((read(&mut rig), rig.answer(second)), (0, None));
    rig.t(2, "take", args![]).token();
    put(&mut rig, "b");
    assert_eq!((read(&mut rig), rig.queue.waiting()), (0, 0));
}

#[test]
fn rows_that_a_transaction_has_written_go_with_it() {
    let mut rig = rig();
    rig.t(2, "take", args![]).token();
    assert_eq!(read(&mut rig), 1);
    rig.disconnect(2);
    rig.t(3, "take", args![]).token();
    rig.t(4, "take", args![]).token();
    rig.queue.begin(&mut rig.store, user::ADMIN);
    assert_eq!(read(&mut rig), 2);
    rig.queue.rollback(&mut rig.store);
    assert_eq!((rig.rows(SPACE).len(), written(&rig)), (2, 1));
    put(&mut rig, "a");
    assert_eq!(read(&mut rig), 1);
}

#[test]
fn a_client_that_empties_the_space_ends_no_take() {
    let mut rig = rig();
    let first = rig.t(2, "take", args![]).token();
    rig.truncate_space(SPACE);
    assert_eq!(read(&mut rig), 0);
    rig.t(3, "take", args![]).token();
    assert_eq!(read(&mut rig), 1);
    put(&mut rig, "a");
    assert_eq!(rig.answer(first), Some(Reply::Values(task(0, "t", "a"))));
    assert_eq!(read(&mut rig), 1);
}

#[test]
fn few_rows_are_left_to_a_reader() {
    const TAKES: u64 = 5000;
    const BOUND: u64 = 4096;
    let mut rig = rig();
    for connection in 2..2 + TAKES {
        rig.t(connection, "take", args![]).token();
    }
    assert_eq!((rig.rows(SPACE).len() as u64, written(&rig)), (TAKES, TAKES - BOUND));
    assert_eq!(read(&mut rig), TAKES);
    for connection in 2..2 + TAKES {
        rig.disconnect(connection);
    }
    assert_eq!((rig.rows(SPACE).len(), written(&rig)), (0, BOUND));
    assert_eq!(read(&mut rig), 0);
}
