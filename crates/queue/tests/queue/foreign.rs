//! Changes that are not the queue's own: plain DML, programs' transactions, refusals of the store, users' rights.

use lycosa_queue::Error;
use lycosa_store::{Error as StoreError, Statement, ddl, user};
use lycosa_tuple::value::Value;

use crate::rig::{Reply, Rig, args, options, task};

fn rb() -> Value {
    options([("storage_mode", Value::from("ready_buffer"))])
}

fn in_sub_queue(name: &str) -> Value {
    options([("utube", Value::from(name))])
}

#[test]
fn a_truncation_by_anyone_clears_what_lies_beside_the_space() {
    let mut rig = Rig::new();
    rig.create("t", "utube", rb());
    for name in ["a", "a", "b"] {
        rig.t(1, "put", args!["x", in_sub_queue(name)]).values();
    }
    rig.t(1, "take", args![0]).values();
    assert_eq!((rig.rows("_queue_taken_2").len(), rig.rows("t_ready_buffer").len()), (1, 1));
    rig.truncate_space("t");
    assert_eq!((rig.rows("_queue_taken_2").len(), rig.rows("t_ready_buffer").len()), (0, 0));
    assert_eq!(rig.t(1, "take", args![0]).values(), []);
    assert_eq!(rig.t(1, "put", args!["y"]).values(), task(0, "r", "y"), "as after the tube's own");
    assert_eq!(rig.t(1, "take", args![0]).values(), task(0, "t", "y"));
}

/// Ids after `box.space.T:truncate()` are those after the tube's `truncate`: at once, after a restart, and if another task was
/// put before that. A truncation that is rolled back changes nothing.
#[test]
fn ids_begin_anew_whoever_truncates_the_space() {
    type Truncation = fn(&mut Rig);
    let ways: [(&str, Truncation); 2] = [
        ("the tube", |rig| drop(rig.t(1, "truncate", args![]).values())),
        ("its space", |rig| rig.truncate_space("t")),
    ];
    for (tube_type, temporary) in [("fifo", false), ("fifottl", true), ("utubettl", false)] {
        for (way, truncate) in ways {
            let mut rig = Rig::new();
            rig.create("t", tube_type, options([("temporary", Value::from(temporary))]));
            let put = |rig: &mut Rig| rig.t(1, "put", args!["x"]).values();
            (0..3).for_each(|_| drop(put(&mut rig)));
            truncate(&mut rig);
            let context = format!("{way} of a {tube_type}");
            assert_eq!(put(&mut rig), task(0, "r", "x"), "{context}");
            assert_eq!(put(&mut rig), task(1, "r", "x"), "{context}");
            truncate(&mut rig);
            rig.restart();
            assert_eq!(put(&mut rig), task(0, "r", "x"), "{context}, after a restart");
        }
    }
    let mut rig = Rig::new();
    rig.create("t", "fifo", options([]));
    (0..3).for_each(|_| drop(rig.t(1, "put", args!["x"]).values()));
    rig.begin();
    rig.truncate_space("t");
    rig.rollback();
    assert_eq!(rig.t(1, "put", args!["x"]).values(), task(3, "r", "x"));
    let space = rig.space_id("t");
    rig.begin();
    rig.truncate_space("t");
    rig.execute(&Statement::Insert { space, tuple: &Value::from(args![7, "r", "by a program"]).encode() })
        .expect("an insert");
    rig.commit();
    rig.restart();
    assert_eq!(rig.t(1, "put", args!["x"]).values(), task(8, "r", "x"));
}

#[test]
fn rows_written_by_users_are_candidates_like_others() {
    let mut rig = Rig::new();
    rig.create("t", "utube", rb());
    rig.t(1, "put", args!["later", in_sub_queue("a")]).values();
    let token = {
        rig.t(1, "take", args![0]).values();
        rig.t(2, "take", args![50]).token()
    };
    let space = rig.space_id("t");
    let row: Vec<Value> = args![9, "r", "b", "written"];
    rig.execute(&Statement::Insert { space, tuple: &Value::from(row).encode() }).expect("an insert");
    assert_eq!(rig.answer(token), Some(Reply::Values(task(9, "t", "written"))));
    let key = Value::array([0_u64]).encode();
    rig.execute(&Statement::Delete { space, index: 0, key: &key }).expect("a delete");
    assert_eq!(rig.rows("_queue_taken_2").len(), 1, "the owner of the deleted task is forgotten");
    assert_eq!(rig.t(1, "ack", args![0]).error(), "Task was not taken");
}

#[test]
fn a_program_that_deletes_a_taken_task_and_calls_the_queue_leaves_no_owner() {
    for tube_type in ["fifo", "fifottl"] {
        let mut rig = Rig::new();
        rig.create("t", tube_type, Value::Nil);
        for name in ["a", "b"] {
            rig.t(1, "put", args![name]).values();
        }
        rig.t(1, "take", args![0]).values();
        let space = rig.space_id("t");
        rig.queue.read(&mut rig.store, space, 0, 0, rig.now).expect("room");
        assert_eq!(rig.rows("_queue_taken_2").len(), 1);
        rig.begin();
        let key = Value::array([0_u64]).encode();
        rig.store.execute(&Statement::Delete { space, index: 0, key: &key }).expect("a delete");
        assert_eq!(rig.t(2, "put", args!["c"]).values(), task(2, "r", "c"));
        assert_eq!(rig.t(1, "ack", args![0]).error(), "Task was not taken");
        rig.commit();
        assert_eq!(rig.rows("_queue_taken_2").len(), 0, "{tube_type}");
        assert_eq!(rig.t(2, "take", args![0]).values(), task(1, "t", "b"));
        assert_eq!(rig.rows("_queue_taken_2").len(), 1, "{tube_type}");
    }
}

#[test]
fn a_program_may_put_several_calls_into_one_transaction() {
    let mut rig = Rig::new();
    rig.create("t", "utube", rb());
    let waiting = rig.t(5, "take", args![50]).token();
    rig.begin();
    rig.t(1, "put", args!["no", in_sub_queue("a")]).values();
    rig.rollback();
    assert_eq!((rig.answer(waiting), rig.rows("t").len()), (None, 0));
    rig.begin();
    assert_eq!(
        rig.t(1, "put", args!["a0", in_sub_queue("a")]).values(),
        task(0, "r", "a0"),
        "the id came back"
    );
    rig.t(1, "put", args!["a1", in_sub_queue("a")]).values();
    rig.t(1, "put", args!["b0", in_sub_queue("b")]).values();
    assert_eq!(rig.t(1, "take", args![10]).values(), task(0, "t", "a0"));
    assert_eq!(rig.t(1, "take", args![10]).values(), task(2, "t", "b0"), "a0 makes its sub-queue busy");
    assert_eq!(rig.t(1, "take", args![10]).values(), [], "nothing waits inside a transaction");
    assert_eq!(
        rig.t(1, "ack", args![7]).error(),
        "Task was not taken",
        "an error of one call undoes only this call"
    );
    assert_eq!(rig.t(1, "ack", args![0]).values(), task(0, "-", "a0"));
    assert_eq!(rig.t(1, "ack", args![0]).error(), "Task was not taken");
    assert_eq!(rig.answer(waiting), None);
    rig.commit();
    assert_eq!(rig.answer(waiting), Some(Reply::Values(task(1, "t", "a1"))));
    let statistics = rig.queue.tube_statistics(&rig.store, "t").expect("a space").expect("a tube");
    let counters = lycosa_queue::Operation::ALL.map(|operation| statistics.counters.get(operation));
    assert_eq!(
        counters,
        [1, 0, 0, 0, 0, 3, 0, 3, 0, 0, 0],
        "ack, put and take; what was rolled back counts nothing"
    );
}

#[test]
fn a_rollback_brings_back_candidates_sessions_and_tubes() {
    let mut rig = Rig::new();
    rig.create("t", "utube", rb());
    rig.t(1, "put", args!["x", in_sub_queue("a")]).values();
    rig.begin();
    rig.t(1, "take", args![0]).values();
    rig.create("u", "fifo", Value::Nil);
    assert!(rig.queue.resolve(b"queue.tube.u:put").is_some());
    rig.rollback();
    assert!(rig.queue.resolve(b"queue.tube.u:put").is_none());
    assert_eq!(rig.rows("_queue_session_ids").len(), 0);
    assert_eq!(rig.rows("t_ready_buffer").len(), 1);
    rig.begin();
    rig.t(1, "truncate", args![]).values();
    rig.rollback();
    assert_eq!(rig.t(1, "take", args![0]).values(), task(0, "t", "x"));
    rig.begin();
    let savepoint = rig.queue.savepoint(&rig.store);
    rig.t(1, "ack", args![0]).values();
    rig.queue.rollback_to(&mut rig.store, savepoint);
    rig.t(1, "release", args![0]).values();
    rig.commit();
    assert_eq!(rig.t(1, "take", args![0]).values(), task(0, "t", "x"));
    rig.begin();
    assert_eq!(rig.t(1, "ack", args![0]).values(), task(0, "-", "x"));
    assert_eq!(rig.t(1, "drop", args![]).values(), [Value::from(true)]);
    rig.rollback();
    assert_eq!(rig.t(1, "ack", args![0]).values(), task(0, "-", "x"));
}

#[test]
fn what_the_store_refuses_changes_nothing() {
    let mut rig = Rig::new();
    rig.create("t", "utubettl", rb());
    rig.t(1, "put", args!["x", in_sub_queue("a")]).values();
    let before = (rig.rows("t"), rig.rows("t_ready_buffer"));
    let big = "x".repeat(2 << 20);
    let refused = rig.t(1, "put", args![big.as_str(), in_sub_queue("b")]);
    assert!(matches!(refused, Reply::Error(Error::Store(StoreError::MemtxMaxTupleSize(_)))), "{refused:?}");
    let refused = rig.t(1, "put", args!["y", options([("pri", Value::from(-1_i64))])]);
    assert_eq!(
        refused.error(),
        "put: option pri is -1, not a whole number, 0 or more: Tuple field 6 type does not match one required by \
         operation: expected unsigned"
    );
    rig.store.set_memory_limit(0);
    let refused = rig.t(1, "put", args!["y", in_sub_queue("b")]);
    assert!(matches!(refused, Reply::Error(Error::Store(StoreError::MemoryIssue { .. }))), "{refused:?}");
    assert_eq!((rig.rows("t"), rig.rows("t_ready_buffer")), before);
    rig.store.set_memory_limit(1 << 30);
    assert_eq!(rig.t(1, "put", args!["y", in_sub_queue("b")]).values(), task(1, "r", "y"), "no id was lost");
    assert_eq!(rig.t(1, "take", args![0]).values(), task(0, "t", "x"));
}

#[test]
fn a_tube_whose_space_was_dropped_harms_nobody() {
    let mut rig = Rig::new();
    rig.create("t", "fifottl", Value::Nil);
    rig.create("u", "fifottl", Value::Nil);
    rig.t(1, "put", args!["x", options([("ttl", Value::from(1_u64))])]).values();
    rig.call(1, "queue.tube.u:put", args!["x", options([("ttl", Value::from(1_u64))])]).values();
    let space = rig.space_id("t");
    rig.begin();
    ddl::drop_space(&mut rig.store, space).expect("a drop");
    rig.commit();
    assert_eq!(rig.t(1, "put", args!["x"]).error(), format!("Space '{space}' does not exist"));
    rig.advance(2_000_000);
    assert_eq!(rig.rows("u").len(), 0);
    rig.restart();
    assert!(rig.queue.resolve(b"queue.tube.t:put").is_none());
    let line = std::iter::from_fn(|| rig.queue.poll_log()).find(|line| line.text.contains("'t'"));
    assert_eq!(line.expect("a line").text, "tube 't' is not available: Space 't' doesn't exists");
}

#[test]
fn a_caller_needs_a_right_to_the_tube_s_space() {
    let mut rig = Rig::new();
    rig.create("t", "utube", rb());
    rig.begin();
    ddl::create_user(&mut rig.store, "eve", None, false).expect("a user");
    rig.commit();
    let eve = rig.store.user_by_name("eve").expect("a user").id;
    rig.users.insert(7, eve);
    let denied =
        |access: &str, space: &str| format!("{access} access to space '{space}' is denied for user 'eve'");
    assert_eq!(rig.t(7, "put", args!["x"]).error(), denied("Read", "t"));
    assert_eq!(rig.t(7, "peek", args![0]).error(), denied("Read", "t"));
    assert_eq!(rig.t(7, "ack", args![0]).error(), denied("Read", "t"));
    assert_eq!(rig.call(7, "queue.statistics", args!["t"]).error(), denied("Read", "_queue"));
    assert!(rig.t(7, "drop", args![]).error().contains("is denied for user 'eve'"));
    assert!(
        rig.call(7, "queue.create_tube", args!["v", "fifo"]).error().contains("is denied for user 'eve'")
    );
    assert!(rig.queue.resolve(b"queue.tube.v:put").is_none() && rig.store.space_by_name("v").is_none());
    assert_eq!(rig.t(1, "grant", args!["nobody"]).error(), "User 'nobody' is not found");
    assert_eq!(rig.t(1, "grant_role", args!["eve"]).error(), "Role 'eve' is not found");
    let all = options([("call", Value::from(true)), ("truncate", Value::from(true))]);
    for _ in 0..2 {
        assert_eq!(rig.t(1, "grant", args!["eve", all.clone()]).values(), []);
    }
    assert!(rig.store.function_by_name("queue.tube.t:truncate").is_some());
    rig.t(7, "put", args!["x"]).values();
    assert_eq!(rig.t(7, "take", args![0]).values(), task(0, "t", "x"));
    assert_eq!(rig.t(7, "ack", args![0]).values(), task(0, "-", "x"));
    rig.t(7, "truncate", args![]).values();
    rig.call(7, "queue.statistics", args!["t"]).values();
    assert!(rig.t(7, "drop", args![]).error().contains("is denied for user 'eve'"));
    assert_eq!(rig.user(1), user::ADMIN);
}

#[test]
fn a_tampered_ready_buffer_is_put_right() {
    let mut rig = Rig::new();
    rig.create("t", "utubettl", rb());
    for name in ["a", "b"] {
        rig.t(1, "put", args!["x", in_sub_queue(name)]).values();
    }
    let right = rig.rows("t_ready_buffer");
    let space = rig.space_id("t_ready_buffer");
    let key = Value::array([0_u64]).encode();
    rig.execute(&Statement::Delete { space, index: 0, key: &key }).expect("a delete");
    let row: Vec<Value> = args![77, "c", 5];
    rig.execute(&Statement::Insert { space, tuple: &Value::from(row).encode() }).expect("an insert");
    assert_eq!(rig.t(1, "take", args![0]).values(), task(0, "t", "x"), "takes do not depend on it");
    rig.restart();
    assert_eq!(rig.rows("t_ready_buffer"), right);
}

#[test]
fn what_hooks_did_before_a_refused_decision_is_undone_in_the_store_and_in_the_queue() {
    let mut rig = Rig::new();
    rig.create("t", "utube", rb());
    rig.create("hooked", "fifo", Value::Nil);
    rig.call(1, "queue.tube.hooked:put", args!["x"]).values();
    rig.t(1, "put", args!["a", in_sub_queue("a")]).values();
    let space = rig.space_id("hooked");
    let hooks = lycosa_store::Hooks { before: true, after: false };
    rig.store.set_hooks(space, hooks).expect("a space with tuples");
    let counters = |rig: &mut Rig| rig.call(1, "queue.statistics", args!["t"]).values();
    let (before, buffer) = (counters(&mut rig), rig.rows("t_ready_buffer"));

    rig.begin();
    let tuple = Value::array([Value::from(0_u64), Value::from("r"), Value::from("y")]).encode();
    let other = Value::array([Value::from(9_u64), Value::from("r"), Value::from("y")]).encode();
    let statement = Statement::Replace { space, tuple: &tuple };
    let mut out = Vec::new();
    let proposal = rig.queue.submit(&mut rig.store, user::ADMIN, &statement, rig.now, &mut out);
    let proposal = proposal.expect("a statement").expect("hooks decide");
    // What the hook does before it decides for another primary key.
    assert_eq!(rig.t(1, "take", args![0]).values(), task(0, "t", "a"));
    assert_eq!(rig.t(1, "put", args!["b", in_sub_queue("b")]).values(), task(1, "r", "b"));
    let put = lycosa_store::Decision::Put(&other);
    let decided = rig.queue.decide(&mut rig.store, user::ADMIN, (&statement, proposal, put), &mut out);
    assert!(matches!(decided, Err(Error::Store(StoreError::CantUpdatePrimaryKey { .. }))), "{decided:?}");
    assert_eq!(rig.t(1, "ack", args![0]).error(), "Task was not taken");
    rig.commit();

    assert_eq!((rig.rows("_queue_taken_2"), rig.rows("t_ready_buffer")), (Vec::new(), buffer));
    assert_eq!(counters(&mut rig), before);
    assert_eq!(rig.t(2, "put", args!["c", in_sub_queue("c")]).values(), task(1, "r", "c"));
    assert_eq!(rig.t(2, "take", args![0]).values(), task(0, "t", "a"));
    assert_eq!(rig.t(2, "ack", args![0]).values().len(), 1);
}
