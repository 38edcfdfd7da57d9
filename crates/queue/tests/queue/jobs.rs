//! Calls that take long: they go on in slices while others come in between.

use lycosa_queue::{Error, Operation};
use lycosa_tuple::value::Value;

use crate::rig::{Reply, Rig, args, options, task};

/// More than are handled at once.
const MANY: u64 = 1000;

fn with_tasks(tube_type: &str) -> Rig {
    let mut rig = Rig::new();
    rig.create("t", tube_type, options([("temporary", Value::from(true))]));
    for id in 0..MANY {
        rig.t(1, "put", args![id]).values();
    }
    rig
}

fn count(rig: &Rig, operation: Operation) -> u64 {
    let statistics = rig.queue.tube_statistics(&rig.store, "t").expect("a space").expect("a tube");
    statistics.counters.get(operation)
}

fn step(rig: &mut Rig) {
    rig.work(100);
}

#[test]
fn a_long_kick_goes_on_while_others_work() {
    for tube_type in ["fifo", "fifottl", "utube"] {
        let mut rig = with_tasks(tube_type);
        for id in 0..MANY {
            rig.t(1, "bury", args![id]).values();
        }
        let kick = rig.t(1, "kick", args![MANY - 10]).token();
        let waits = rig.t(2, "take", args![60]).token();
        assert_eq!(rig.queue.next_work(), Some(0));
        step(&mut rig);
        assert_eq!(
            rig.answer(waits),
            Some(Reply::Values(task(0, "t", "0").into_iter().map(number).collect()))
        );
        assert_eq!((rig.answer(kick), count(&rig, Operation::Kick)), (None, 100));
        rig.t(3, "bury", args![0]).values();
        rig.tick();
        assert_eq!(rig.answer(kick), Some(Reply::Values(args![MANY - 10])));
        assert_eq!(count(&rig, Operation::Kick), MANY - 10, "{tube_type}");
        assert_eq!(rig.t(1, "kick", args![MANY]).values(), args![11]);
    }
}

/// A task whose payload is the number in its text.
fn number(task: Value) -> Value {
    let Value::Array(mut fields) = task else { panic!("a task") };
    fields[2] = fields[2].as_str().and_then(|text| text.parse::<u64>().ok()).expect("a number").into();
    Value::Array(fields)
}

#[test]
fn a_long_release_all_leaves_alone_what_was_taken_since() {
    for tube_type in ["fifo", "fifottl"] {
        let mut rig = with_tasks(tube_type);
        for _ in 0..MANY {
            rig.t(2, "take", args![0]).values();
        }
        let release = rig.t(1, "release_all", args![]).token();
        rig.now += 1;
        step(&mut rig);
        assert_eq!(count(&rig, Operation::Release), 100);
        let taken = rig.t(3, "take_many", args![MANY, 0]).values()[0].as_array().map(<[Value]>::len);
        assert_eq!(taken, Some(100), "what is released can be taken");
        rig.t(1, "put", args!["new"]).values();
        rig.tick();
        assert_eq!(rig.answer(release), Some(Reply::Values(vec![])));
        assert_eq!(count(&rig, Operation::Release), MANY, "{tube_type}");
        assert_eq!(
            rig.t(3, "ack", args![0]).values()[0].as_array().map(|task| task[0].clone()),
            Some(0.into())
        );
        assert_eq!(rig.t(2, "ack", args![MANY - 1]).error(), "Task was not taken");
    }
}

#[test]
fn a_long_release_all_releases_what_was_taken_before_the_clock_was_set_back() {
    for tube_type in ["fifo", "fifottl"] {
        let mut rig = with_tasks(tube_type);
        for _ in 0..MANY {
            rig.t(2, "take", args![0]).values();
        }
        rig.now -= 3_600_000_000;
        let release = rig.t(1, "release_all", args![]).token();
        rig.now += 1;
        step(&mut rig);
        let taken = rig.t(3, "take_many", args![MANY, 0]).values()[0].as_array().map(<[Value]>::len);
        assert_eq!(taken, Some(100), "what is released can be taken");
        rig.tick();
        assert_eq!(rig.answer(release), Some(Reply::Values(vec![])));
        assert_eq!(count(&rig, Operation::Release), MANY, "{tube_type}");
    }
}

#[test]
fn short_calls_and_calls_in_transactions_are_done_at_once() {
    let mut rig = with_tasks("fifottl");
    for id in 0..MANY {
        rig.t(1, "bury", args![id]).values();
    }
    assert_eq!(rig.t(1, "kick", args![100]).values(), args![100]);
    rig.begin();
    assert_eq!(rig.t(1, "kick", args![MANY]).values(), args![MANY - 100]);
    rig.rollback();
    assert_eq!(count(&rig, Operation::Kick), 100);
    assert_eq!(rig.queue.next_work().filter(|due| *due <= rig.now), None);
}

#[test]
fn a_job_ends_with_its_tube_and_with_the_queue() {
    let mut rig = with_tasks("fifo");
    for id in 0..MANY {
        rig.t(1, "bury", args![id]).values();
    }
    let kick = rig.t(1, "kick", args![MANY]).token();
    rig.queue.set_read_only(&mut rig.store, true, rig.now).expect("nothing stands against it");
    rig.collect_committed();
    assert_eq!(rig.answer(kick), Some(Reply::Error(Error::ReadOnly)));
    rig.queue.set_read_only(&mut rig.store, false, rig.now).expect("nothing stands against it");
    let kick = rig.t(1, "kick", args![MANY]).token();
    rig.t(1, "drop", args![]).values();
    rig.tick();
    assert_eq!(rig.answer(kick), Some(Reply::Error(Error::TubeNotFound)));
}

#[test]
fn a_task_that_was_taken_twice_does_not_hide_others_of_its_session() {
    let mut rig = with_tasks("fifo");
    for _ in 0..3 {
        rig.t(2, "take_many", args![MANY, 0]).values();
        let ids = Value::from((0..MANY).map(Value::from).collect::<Vec<_>>());
        rig.t(2, "release_many", args![ids]).values();
    }
    rig.t(2, "take_many", args![MANY, 0]).values();
    rig.disconnect(2);
    rig.tick();
    assert_eq!(rig.rows("_queue_taken_2"), Vec::<Value>::new());
    assert_eq!(count(&rig, Operation::Release), 4 * MANY);
}
