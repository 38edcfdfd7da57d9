//! Access of a user with a grant on one tube: never the sessions and tasks of others. And owners that vanish.

use lycosa_store::{Access, Object, Statement, ddl, system};
use lycosa_tuple::value::Value;

use crate::rig::{Rig, args, options, task};

/// The queue's spaces whose rows concern all users.
const EVERYBODYS: [&str; 4] =
    ["_queue_consumers", "_queue_taken_2", "_queue_session_ids", "_queue_shared_sessions"];

/// Connections 7 and 8 are bob's, 9 is eve's; both may use the tube `t`.
fn with_users(mut rig: Rig) -> Rig {
    rig.begin();
    for name in ["bob", "eve"] {
        ddl::create_user(&mut rig.store, name, None, false).expect("a user");
    }
    rig.commit();
    rig.create("t", "fifottl", Value::Nil);
    for name in ["bob", "eve"] {
        let all = options([("call", Value::from(true)), ("truncate", Value::from(true))]);
        rig.t(1, "grant", args![name, all]).values();
    }
    log_in(&mut rig);
    rig
}

fn log_in(rig: &mut Rig) {
    for (connection, name) in [(7, "bob"), (8, "bob"), (9, "eve")] {
        let user = rig.store.user_by_name(name).expect("a user").id;
        rig.users.insert(connection, user);
    }
}

fn session(rig: &mut Rig, connection: u64) -> Value {
    rig.call(connection, "queue.identify", args![]).values().remove(0)
}

/// Makes a connection part of a session; the session that it has then.
fn identify(rig: &mut Rig, connection: u64, session: &Value) -> Value {
    rig.call(connection, "queue.identify", args![session.clone()]).values().remove(0)
}

fn delete_owner(rig: &mut Rig, tube: u64, id: u64) {
    let space = rig.space_id("_queue_taken_2");
    let key = Value::array([tube, id]).encode();
    rig.execute(&Statement::Delete { space, index: 0, key: &key }).expect("a delete");
}

#[test]
fn a_grant_gives_no_access_to_rows_about_everybody() {
    let mut rig = with_users(Rig::new());
    let bob = rig.store.user_by_name("bob").expect("a user").id;
    let may = |rig: &Rig, space: &str, access| {
        rig.store.check_access(bob, Object::Space(rig.space_id(space)), access).is_ok()
    };
    assert!(may(&rig, "t", Access::READ | Access::WRITE) && may(&rig, "_queue", Access::READ));
    for space in EVERYBODYS {
        assert!(!may(&rig, space, Access::READ) && !may(&rig, space, Access::WRITE), "{space}");
    }
    for (method, arguments) in
        [("put", args!["x"]), ("take", args![0]), ("touch", args![0, 1]), ("ack", args![0])]
    {
        rig.t(7, method, arguments).values();
    }
    // The change of mode makes new spaces.
    rig.call(1, "queue.cfg", args![options([("in_replicaset", Value::from(true))])]).values();
    for space in EVERYBODYS {
        assert!(!may(&rig, space, Access::READ) && !may(&rig, space, Access::WRITE), "{space}");
    }
    // Who may read and write everything may do so here.
    rig.begin();
    ddl::grant(&mut rig.store, "bob", "read,write", "universe", "", false).expect("a grant");
    rig.commit();
    assert!(EVERYBODYS.iter().all(|space| may(&rig, space, Access::READ | Access::WRITE)));
}

#[test]
fn nobody_acts_for_a_session_of_another_user() {
    let mut rig = with_users(Rig::with_ttr(10.0, false));
    rig.t(1, "put", args!["x"]).values();
    assert_eq!(rig.t(7, "take", args![0]).values(), task(0, "t", "x"));
    let bobs = session(&mut rig, 7);
    let own = session(&mut rig, 9);
    let refusal = rig.call(9, "queue.identify", args![bobs.clone()]).error();
    assert!(
        refusal.ends_with("was opened by another user: only that user may identify with it."),
        "{refusal}"
    );
    assert_eq!(session(&mut rig, 9), own, "a refusal changes nothing");
    assert_eq!(rig.t(9, "ack", args![0]).error(), "Task was not taken");
    assert_eq!(identify(&mut rig, 8, &bobs), bobs);
    rig.disconnect(7);
    rig.disconnect(8);
    assert!(rig.call(9, "queue.identify", args![bobs.clone()]).error().contains("another user"));
    log_in(&mut rig);
    assert_eq!(identify(&mut rig, 1, &bobs), bobs, "admin may");
    assert!(rig.call(9, "queue.identify", args![bobs.clone()]).error().contains("another user"));
    assert_eq!(rig.call(8, "queue.identify", args![bobs]).values().len(), 1);
    assert_eq!(rig.t(8, "ack", args![0]).values(), task(0, "-", "x"));
}

#[test]
fn a_session_that_a_waiting_take_has_opened_is_its_user_s() {
    let mut rig = with_users(Rig::new());
    let token = rig.t(7, "take", args![50]).token();
    rig.t(1, "put", args!["x"]).values();
    rig.answer(token).expect("the task has come");
    let bobs = session(&mut rig, 7);
    assert!(rig.call(9, "queue.identify", args![bobs]).error().contains("another user"));
}

#[test]
fn openers_are_as_durable_as_their_sessions() {
    let mut rig = with_users(Rig::with_ttr(10.0, true));
    rig.t(1, "put", args!["x"]).values();
    rig.t(7, "take", args![0]).values();
    let bobs = session(&mut rig, 7);
    rig.restart();
    log_in(&mut rig);
    assert!(rig.call(9, "queue.identify", args![bobs.clone()]).error().contains("another user"));
    assert_eq!(identify(&mut rig, 7, &bobs), bobs);
    assert_eq!(rig.t(7, "ack", args![0]).values(), task(0, "-", "x"));
    // Bob goes, and eve's number may be his: the name counts.
    rig.disconnect(7);
    rig.begin();
    ddl::drop_user(&mut rig.store, "bob", false).expect("a drop");
    rig.commit();
    assert!(rig.call(9, "queue.identify", args![bobs]).error().contains("another user"));
}

#[test]
fn a_session_without_a_known_opener_is_its_who_comes_first() {
    let mut rig = with_users(Rig::with_ttr(10.0, true));
    let space = rig.space_id("_queue_shared_sessions");
    // As the Lua module writes it.
    let id = Value::Str(b"0123456789abcdef".to_vec());
    let row = Value::from(vec![id.clone(), Value::from(rig.now + 5_000_000), Value::from(false)]).encode();
    rig.execute(&Statement::Insert { space, tuple: &row }).expect("an insert");
    rig.restart();
    log_in(&mut rig);
    assert_eq!(identify(&mut rig, 7, &id), id);
    assert!(rig.call(9, "queue.identify", args![id]).error().contains("another user"));
}

#[test]
fn a_task_whose_owner_s_row_vanishes_is_released() {
    for tube_type in ["fifo", "fifottl", "utube", "utubettl", "limfifottl"] {
        for in_replicaset in [false, true] {
            let mut rig = Rig::with_ttr(10.0, in_replicaset);
            rig.create("t", tube_type, Value::Nil);
            for name in ["a", "b", "c"] {
                rig.t(1, "put", args![name, options([("utube", Value::from(name))])]).values();
                rig.t(2, "take", args![0]).values();
            }
            let what = format!("{tube_type}, {in_replicaset}");
            delete_owner(&mut rig, 0, 0);
            assert_eq!(rig.t(2, "ack", args![0]).error(), "Task was not taken", "{what}");
            assert_eq!(rig.t(3, "take", args![0]).values(), task(0, "t", "a"), "{what}");
            // Another session than any that exists.
            let space = rig.space_id("_queue_taken_2");
            let key = Value::array([0_u64, 1]).encode();
            let assign = Value::from(args!["=", 3, Value::Str(vec![9; 16])]);
            let operations = Value::array([assign]).encode();
            rig.execute(&Statement::Update { space, index: 0, key: &key, operations: &operations, base: 0 })
                .expect("an update");
            assert_eq!(rig.t(3, "take", args![0]).values(), task(1, "t", "b"), "{what}");
            assert_eq!(rig.rows("_queue_taken_2").len(), 3, "{what}");
            // All of them.
            rig.queue.read(&mut rig.store, space, 0, 0, rig.now).expect("the owners are written back");
            let row = Value::array([u64::from(space), 1]).encode();
            rig.execute(&Statement::Replace { space: system::TRUNCATE, tuple: &row }).expect("a truncation");
            for (id, name) in [(0, "a"), (1, "b"), (2, "c")] {
                assert_eq!(rig.t(4, "take", args![0]).values(), task(id, "t", name), "{what}");
            }
            assert_eq!(rig.t(4, "ack", args![2]).values(), task(2, "-", "c"), "{what}");
        }
    }
}

#[test]
fn an_owner_that_a_program_exchanges_keeps_the_task() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    rig.t(1, "put", args!["a"]).values();
    rig.t(2, "take", args![0]).values();
    let Value::Str(heir) = session(&mut rig, 3) else { panic!("a session is a string") };
    let space = rig.space_id("_queue_taken_2");
    rig.queue.read(&mut rig.store, space, 0, 0, rig.now).expect("the owners are written back");
    rig.begin();
    let key = Value::array([0_u64, 0]).encode();
    rig.store.execute(&Statement::Delete { space, index: 0, key: &key }).expect("a delete");
    let row = Value::from(args![0, 0, 3, Value::Str(heir), 5]).encode();
    rig.store.execute(&Statement::Insert { space, tuple: &row }).expect("an insert");
    rig.commit();
    assert_eq!(rig.t(4, "take", args![0]).values(), []);
    assert_eq!(rig.t(3, "ack", args![0]).values(), task(0, "-", "a"));
    // A rollback takes back the released owner.
    rig.t(1, "put", args!["b"]).values();
    rig.t(2, "take", args![0]).values();
    rig.queue.read(&mut rig.store, space, 0, 0, rig.now).expect("the owners are written back");
    rig.begin();
    let key = Value::array([0_u64, 1]).encode();
    rig.store.execute(&Statement::Delete { space, index: 0, key: &key }).expect("a delete");
    rig.rollback();
    rig.tick();
    assert_eq!(rig.t(2, "ack", args![1]).values(), task(1, "-", "b"));
}

#[test]
fn tasks_of_a_session_whose_row_is_removed_are_released_when_it_would_have_ended() {
    for is_changed in [false, true] {
        let mut rig = Rig::with_ttr(10.0, false);
        rig.create("t", "fifo", Value::Nil);
        rig.t(1, "put", args!["a"]).values();
        rig.t(2, "take", args![0]).values();
        let id = session(&mut rig, 2);
        rig.disconnect(2);
        let space = rig.space_id("_queue_shared_sessions");
        let statement = if is_changed {
            let row = Value::from(vec![id, Value::from(0_u64), Value::from(true)]).encode();
            rig.execute(&Statement::Replace { space, tuple: &row })
        } else {
            rig.execute(&Statement::Delete { space, index: 0, key: &Value::from(vec![id]).encode() })
        };
        statement.expect("a statement");
        assert_eq!(rig.t(3, "take", args![0]).values(), []);
        rig.advance(11_000_000);
        assert_eq!(rig.t(3, "take", args![0]).values(), task(0, "t", "a"));
    }
}
