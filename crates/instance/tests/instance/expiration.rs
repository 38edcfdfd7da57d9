//! Expiration tasks through the door: calls, rights, tubes, archives, the journal.

use lycosa_instance::{DeclaredExpiration, Settings};
use lycosa_iproto::error::ErrorCode;
use lycosa_iproto::request::Body;
use lycosa_tuple::value::Value;

use crate::rig::{Answer, Client, Rig, SECOND, options, refused, values};

/// The space `tester` of the article, with an index over the deadline.
fn tester(rig: &mut Rig) {
    rig.create_space(600, "tester", Value::Map(vec![]));
    let mut admin = rig.admin();
    let row = values![600, 1, "exp", "tree", options! { unique: false }, values![values![2, "unsigned"]]];
    rig.insert(&mut admin, 288, &row).expect("an index");
}

fn put(rig: &mut Rig, id: u64, seconds: u64) {
    let mut admin = rig.admin();
    let deadline = rig.now / SECOND + seconds;
    rig.insert(&mut admin, 600, &values![id, "user@tarantool.io", deadline]).expect("a tuple");
}

fn ids(rig: &mut Rig, space: u32) -> Vec<u64> {
    let mut admin = rig.admin();
    let tuples = rig.select(&mut admin, space, 0, &values![]).expect("the space");
    tuples.iter().map(|tuple| tuple.as_array().expect("a tuple")[0].as_u64().expect("an id")).collect()
}

/// Time passes, and the ticks that are asked for come.
fn pass(rig: &mut Rig, microseconds: u64) {
    let until = rig.now + microseconds;
    for _ in 0..100_000 {
        rig.sync_journal();
        match rig.advance(0) {
            Some(next) if next <= until => rig.now = rig.now.max(next),
            _ => {
                rig.now = until;
                rig.advance(0);
                rig.sync_journal();
                return;
            }
        }
    }
    panic!("the ticks never end");
}

/// An index as `net.box` sends it.
fn index(id: u32, unique: bool) -> Value {
    options! { unique: unique, parts: values![], id: id, type: "TREE", space_id: 600, name: "i" }
}

fn register(rig: &mut Rig, name: &str) {
    let mut admin = rig.admin();
    let created = rig.call(&mut admin, "box.schema.func.create", &values![name, options! { language: "C" }]);
    assert_eq!(created, Ok(vec![]));
}

#[test]
fn the_session_of_the_article() {
    for walked in [index(0, true), index(1, false)] {
        let mut rig = Rig::new();
        tester(&mut rig);
        let mut guest = rig.stranger();
        let arguments = values!["t", 600, index(0, true), walked, 3, 1024, 3600];
        let start = "libcapped-expirationd.start";
        let denied = refused(rig.call(&mut guest, start, &arguments));
        assert_eq!(denied.0, ErrorCode::AccessDenied);
        let mut admin = rig.admin();
        assert_eq!(refused(rig.call(&mut admin, start, &arguments)).0, ErrorCode::NoSuchProc);
        for name in [start, "libcapped-expirationd.kill"] {
            register(&mut rig, name);
            rig.grant("guest", "execute", "function", name);
        }
        assert_eq!(rig.call(&mut guest, start, &arguments), Ok(vec![values![]]));
        (0..3).for_each(|id| put(&mut rig, id, 60));
        pass(&mut rig, 30 * SECOND);
        (3..6).for_each(|id| put(&mut rig, id, 60));
        assert_eq!(ids(&mut rig, 600), [0, 1, 2, 3, 4, 5]);
        pass(&mut rig, 30 * SECOND);
        assert_eq!(ids(&mut rig, 600), [3, 4, 5]);
        assert_eq!(rig.call(&mut guest, "libcapped-expirationd.kill", &values!["t"]), Ok(vec![values![]]));
        pass(&mut rig, 60 * SECOND);
        assert_eq!(ids(&mut rig, 600), [3, 4, 5], "killed");
        let kill = Body::Call16 { name: b"libcapped-expirationd.kill", args: &values!["t"].encode() };
        assert_eq!(
            rig.ask(&mut guest, &kill),
            Ok(vec![]),
            "nothing to kill is a success, and CALL_16 says nothing"
        );
        let wrong = values!["t", 600, index(0, true), index(0, true), 3, 1024];
        let (code, text) = refused(rig.call(&mut guest, start, &wrong));
        assert_eq!(code, ErrorCode::IllegalParams);
        assert!(text.starts_with("Illegal parameters, expected 7 arguments"), "{text}");
        assert_eq!(rig.call(&mut guest, start, &arguments), Ok(vec![values![]]), "the name is free");
        assert_eq!(ids(&mut rig, 600), [0_u64; 0], "the first slice ran before start answered");
    }
}

fn start(rig: &mut Rig, client: &mut Client, space: impl Into<Value>, options: Value) -> Answer {
    rig.call(client, "expiration.start", &Value::Array(vec!["t".into(), space.into(), options]))
}

#[test]
fn guests_expire_what_they_may_change() {
    let mut rig = Rig::new();
    tester(&mut rig);
    rig.create_tube("mail", "fifottl");
    let mut guest = rig.guest();
    let (code, text) = refused(start(&mut rig, &mut guest, "tester", options! { field: 3 }));
    assert_eq!(code, ErrorCode::AccessDenied);
    assert_eq!(text, "Write access to space 'tester' is denied for user 'guest'");
    start(&mut rig, &mut guest, "mail", options! { field: 3, unit: "us", scan_size: 5 })
        .expect("a tube is theirs");
    let (code, _) = refused(start(&mut rig, &mut guest, "mail", options! { field: 3 }));
    assert_eq!(code, ErrorCode::IllegalParams, "the name is taken");
    rig.call(&mut guest, "expiration.stop", &values!["t"]).expect("and so is its task");
    rig.grant("guest", "write", "space", "tester");
    start(&mut rig, &mut guest, "tester", options! { field: 3 }).expect("the right to write is enough");
    let mut stranger = rig.stranger();
    let (code, _) = refused(rig.call(&mut stranger, "expiration.stop", &values!["t"]));
    assert_eq!(code, ErrorCode::AccessDenied);
    let (_, text) = refused(rig.call(&mut guest, "expiration.stop", &values!["tt"]));
    assert_eq!(text, "Illegal parameters, expiration task 'tt' does not exist (did you mean 't'?)");
    assert_eq!(
        rig.call(&mut guest, "expiration.stop", &values!["tt", options! { if_exists: true }]),
        Ok(vec![Value::Nil])
    );
}

#[test]
fn guests_learn_no_names_that_are_not_theirs() {
    let mut rig = Rig::new();
    tester(&mut rig);
    rig.create_tube("mail", "fifottl");
    let (mut guest, mut admin) = (rig.guest(), rig.admin());
    start(&mut rig, &mut admin, "tester", options! { field: 3 }).expect("a task");
    let told = |answer: Answer| refused(answer).1;
    let text = told(start(&mut rig, &mut guest, "testre", options! { field: 3 }));
    assert_eq!(text, "Illegal parameters, space 'testre' does not exist");
    let text = told(start(&mut rig, &mut guest, "mial", options! { field: 3 }));
    assert_eq!(text, "Illegal parameters, space 'mial' does not exist (did you mean 'mail'?)");
    // Neither the names of indexes nor that of a space with that number.
    let text = told(start(&mut rig, &mut guest, "tester", options! { field: 3, index: "no" }));
    assert_eq!(text, "Write access to space 'tester' is denied for user 'guest'");
    let text = told(start(&mut rig, &mut guest, 600, options! { field: 3 }));
    assert_eq!(text, "Write access to space '600' is denied for user 'guest'");
    let options = options! { field: 3, unit: "us", archive_space: "testre" };
    assert_eq!(
        told(start(&mut rig, &mut guest, "mail", options)),
        "Illegal parameters, space 'testre' does not exist"
    );
    for function in ["expiration.stop", "expiration.stats"] {
        let text = told(rig.call(&mut guest, function, &values!["tt"]));
        assert_eq!(text, "Illegal parameters, expiration task 'tt' does not exist");
        let text = told(rig.call(&mut guest, function, &values!["t"]));
        assert_eq!(text, "Illegal parameters, expiration task 't' does not exist");
    }
    assert_eq!(rig.call(&mut guest, "expiration.list", &values![]), Ok(vec![values![]]));
    assert_eq!(rig.call(&mut guest, "expiration.stats", &values![]), Ok(vec![options! {}]));
    let all = rig.call(&mut admin, "expiration.list", &values![]).expect("a list").remove(0);
    assert_eq!(all.as_array().map(<[Value]>::len), Some(1));
}

#[test]
fn a_slice_is_one_transaction_in_the_journal() {
    let mut rig = Rig::new();
    tester(&mut rig);
    (0..10).for_each(|id| put(&mut rig, id, 1));
    rig.sync_journal();
    let mut admin = rig.admin();
    start(&mut rig, &mut admin, 600, options! { field: 3, scan_size: 100 }).expect("a task");
    rig.now += SECOND;
    rig.advance(0);
    let batch = rig.batch();
    assert_eq!(batch.ends.len(), 1, "ten deletions in one transaction");
    rig.make_durable(batch);
    assert_eq!(ids(&mut rig, 600), [0_u64; 0]);
    let status = rig.instance.status().expiration;
    assert_eq!((status.tasks, status.expired, status.failing, status.lag_us), (1, 10, 0, 0));
}

#[test]
fn a_read_only_instance_pauses() {
    let mut rig = Rig::new();
    tester(&mut rig);
    let mut admin = rig.admin();
    start(&mut rig, &mut admin, 600, options! { field: 3 }).expect("a task");
    put(&mut rig, 1, 5);
    rig.instance.set_read_only(true, rig.now);
    pass(&mut rig, 10 * SECOND);
    assert_eq!(ids(&mut rig, 600), [1]);
    let statistics = rig.call(&mut admin, "expiration.stats", &values!["t"]).expect("statistics").remove(0);
    assert_eq!(statistics.get("state").and_then(Value::as_str), Some("paused"));
    assert_eq!(statistics.get("lag_us").and_then(Value::as_u64), Some(5 * SECOND));
    let (code, _) = refused(rig.call(&mut admin, "expiration.stop", &values!["t"]));
    assert_eq!(code, ErrorCode::Readonly);
    let dry = values!["dry", 600, options! { field: 3, dry_run: true }];
    rig.call(&mut admin, "expiration.start", &dry).expect("a dry run changes nothing");
    pass(&mut rig, SECOND);
    let statistics = rig.call(&mut admin, "expiration.stats", &values!["dry"]).expect("statistics").remove(0);
    assert_eq!(statistics.get("due").and_then(Value::as_u64), Some(1));
    rig.instance.set_read_only(false, rig.now);
    pass(&mut rig, 0);
    assert_eq!(ids(&mut rig, 600), [0_u64; 0]);
}

#[test]
fn tasks_of_a_tube_expire_with_everything_that_belongs_to_them() {
    let mut rig = Rig::new();
    rig.create_tube("mail", "utubettl");
    let mut guest = rig.guest();
    for id in 0..3 {
        rig.call(&mut guest, "queue.tube.mail:put", &values![id, options! { utube: "a" }]).expect("a task");
    }
    rig.call(&mut guest, "queue.tube.mail:take", &values![0]).expect("the first task is taken");
    // The field of the creation, in µs: all that are older than now.
    rig.now += SECOND;
    start(&mut rig, &mut guest, "mail", options! { field: 7, unit: "us", scan_size: 2 }).expect("a task");
    pass(&mut rig, 4000 * SECOND);
    let statistics =
        rig.call(&mut guest, "queue.statistics", &values!["mail"]).expect("statistics").remove(0);
    let tasks = statistics.get("tasks").expect("tasks");
    assert_eq!(tasks.get("total").and_then(Value::as_u64), Some(0));
    assert_eq!(tasks.get("taken").and_then(Value::as_u64), Some(0));
    let mut admin = rig.admin();
    rig.call(&mut admin, "expiration.stop", &values!["t"]).expect("a task");
    rig.call(&mut guest, "queue.tube.mail:put", &values!["new", options! { utube: "a" }]).expect("a task");
    let taken = rig.call(&mut guest, "queue.tube.mail:take", &values![0]).expect("a task");
    assert_eq!(taken, vec![values![3, "t", "new"]], "the sub-queue is free again");
    rig.call(&mut guest, "queue.tube.mail:ack", &values![3]).expect("an owner");
}

#[test]
fn an_archive_takes_expired_tuples_or_nothing_happens() {
    let mut rig = Rig::new();
    tester(&mut rig);
    let mut admin = rig.admin();
    let missing = start(&mut rig, &mut admin, 600, options! { field: 3, archive_tube: "old" });
    assert_eq!(refused(missing).1, "Illegal parameters, the archive is the tube 'old', which does not exist");
    rig.call(&mut admin, "queue.create_tube", &values!["old", "limfifottl", options! { capacity: 2 }])
        .expect("a tube");
    let own = rig.call(
        &mut admin,
        "expiration.start",
        &values!["own", "old", options! { field: 3, archive_tube: "old" }],
    );
    assert!(refused(own).1.contains("cannot be the archive of its own tasks"));
    (0..3).for_each(|id| put(&mut rig, id, 1));
    let one = options! { field: 3, archive_tube: "old", scan_size: 1 };
    start(&mut rig, &mut admin, 600, one).expect("a task");
    let mut guest = rig.guest();
    let sync = rig.start_call(&mut guest, "queue.tube.old:take", &values![]);
    pass(&mut rig, 2 * SECOND);
    let replies = rig.replies(&guest);
    assert_eq!(replies.len(), 1, "a waiting call gets the first at once");
    assert_eq!(replies[0].sync, sync);
    let tuple = values![0, "user@tarantool.io", rig.now / SECOND - 1];
    assert_eq!(replies[0].answer, Ok(vec![values![0, "t", tuple]]));
    assert_eq!(ids(&mut rig, 600), [2], "the tube is full: nothing is lost");
    let statistics = rig.call(&mut admin, "expiration.stats", &values!["t"]).expect("statistics").remove(0);
    assert_eq!(statistics.get("state").and_then(Value::as_str), Some("failing"));
    rig.call(&mut guest, "queue.tube.old:ack", &values![0]).expect("room");
    pass(&mut rig, 60 * SECOND);
    assert_eq!(ids(&mut rig, 600), [0_u64; 0]);
    let old = rig.instance.store().space_by_name("old").expect("the tube").id();
    assert_eq!(ids(&mut rig, old), [1, 2]);
}

#[test]
fn a_dropped_space_ends_its_task_and_the_row_goes() {
    let mut rig = Rig::new();
    tester(&mut rig);
    let mut admin = rig.admin();
    start(&mut rig, &mut admin, 600, options! { field: 3 }).expect("a task");
    let rows = rig.instance.store().space_by_name("_expiration").expect("the space of the tasks").id();
    assert_eq!(rig.select(&mut admin, rows, 0, &values![]).expect("rows").len(), 1);
    for (space, key) in [(288, values![600, 1]), (288, values![600, 0]), (280, values![600])] {
        let deleted = rig.ask(&mut admin, &Body::Delete { space, index: 0, key: &key.encode() });
        deleted.expect("a definition");
    }
    rig.advance(0);
    assert_eq!(rig.select(&mut admin, rows, 0, &values![]).expect("rows").len(), 0);
    assert_eq!(rig.call(&mut admin, "expiration.list", &values![]), Ok(vec![values![]]));
    let line = std::iter::from_fn(|| rig.instance.poll_log()).find(|line| line.text.contains("was dropped"));
    assert!(line.is_some(), "the log says so");
}

#[test]
fn declared_tasks_begin_with_their_space_and_follow_the_declaration() {
    let mut rig = Rig::with(Settings::default());
    let declared = |size: u32| DeclaredExpiration {
        name: "t".to_owned(),
        space: "tester".to_owned(),
        options: options! { field: 3, scan_size: size },
    };
    let now = rig.now;
    assert_eq!(rig.instance.declare_expirations(&[declared(7)], now), Ok(vec![]));
    let line = std::iter::from_fn(|| rig.instance.poll_log()).last().expect("a line");
    assert!(line.text.contains("begins when its space 'tester' exists"), "{}", line.text);
    tester(&mut rig);
    put(&mut rig, 1, 1);
    pass(&mut rig, 2 * SECOND);
    assert_eq!(ids(&mut rig, 600), [0_u64; 0]);
    let now = rig.now;
    assert_eq!(rig.instance.declare_expirations(&[declared(7)], now), Ok(vec![]), "nothing to change");
    assert_eq!(rig.instance.declare_expirations(&[declared(8)], now), Ok(vec!["t".to_owned()]));
    let mut admin = rig.admin();
    let list = rig.call(&mut admin, "expiration.list", &values![]).expect("a list").remove(0);
    let task = &list.as_array().expect("tasks")[0];
    assert_eq!(task.get("scan_size").and_then(Value::as_u64), Some(8));
    let wrong = DeclaredExpiration { options: options! { field: "nope" }, ..declared(1) };
    let error = rig.instance.declare_expirations(&[wrong], now).expect_err("no such field");
    assert!(error.message.starts_with("expiration 't' of the configuration: Illegal"), "{}", error.message);
}

#[test]
fn a_tube_of_any_type_is_an_archive() {
    for kind in ["fifo", "fifottl", "limfifottl", "utube", "utubettl"] {
        let mut rig = Rig::new();
        tester(&mut rig);
        rig.create_tube("old", kind);
        (0..3).for_each(|id| put(&mut rig, id, 1));
        let mut admin = rig.admin();
        start(&mut rig, &mut admin, 600, options! { field: 3, archive_tube: "old" }).expect("a task");
        let deadline = rig.now / SECOND + 1;
        pass(&mut rig, 2 * SECOND);
        assert_eq!(ids(&mut rig, 600), [0_u64; 0], "{kind}");
        let mut guest = rig.guest();
        for id in 0..3 {
            let taken = rig.call(&mut guest, "queue.tube.old:take", &values![0]).expect("a task");
            assert_eq!(taken, vec![values![id, "t", values![id, "user@tarantool.io", deadline]]], "{kind}");
            rig.call(&mut guest, "queue.tube.old:ack", &values![id]).expect("its owner");
        }
    }
}

#[test]
fn starting_and_stopping_leaves_nothing_behind() {
    let mut rig = Rig::new();
    tester(&mut rig);
    register(&mut rig, "libcapped-expirationd.start");
    register(&mut rig, "libcapped-expirationd.kill");
    let mut admin = rig.admin();
    let kinds = [options! { field: 3 }, options! { field: 3, transient: true }, options! { field: 99 }];
    let round = |rig: &mut Rig, admin: &mut Client| {
        for options in kinds.clone() {
            start(rig, admin, 600, options.clone()).expect("a task");
            refused(start(rig, admin, 600, options));
            rig.call(admin, "expiration.stop", &values!["t"]).expect("the task");
            refused(rig.call(admin, "expiration.stop", &values!["t"]));
        }
        refused(start(rig, admin, 600, options! { field: "nope" }));
        refused(start(rig, admin, 601, options! { field: 3 }));
        let capped = values!["t", 600, index(0, true), index(7, false), 3, 1024, 3600];
        refused(rig.call(admin, "libcapped-expirationd.start", &capped));
        let capped = values!["t", 600, index(0, true), index(1, false), 3, 1024, 3600];
        for name in ["libcapped-expirationd.start", "libcapped-expirationd.kill"] {
            rig.call(admin, name, &capped).map(drop).unwrap_or_default();
            rig.call(admin, "libcapped-expirationd.kill", &values!["t"]).expect("the task, or none");
        }
        rig.advance(0);
        rig.sync_journal();
    };
    round(&mut rig, &mut admin);
    let before = rig.instance.store().memory();
    (0..200).for_each(|_| round(&mut rig, &mut admin));
    let after = rig.instance.store().memory();
    assert_eq!((before.tuples, before.indexes), (after.tuples, after.indexes));
    assert_eq!(rig.call(&mut admin, "expiration.list", &values![]), Ok(vec![values![]]));
    assert_eq!(rig.call(&mut admin, "expiration.stats", &values![]), Ok(vec![Value::Map(vec![])]));
}

/// A refused start; code and text, and that no task is left.
fn refused_start(rig: &mut Rig, client: &mut Client, space: impl Into<Value>, options: Value) -> String {
    let (code, text) = refused(start(rig, client, space, options));
    assert_eq!(code, ErrorCode::IllegalParams, "{text}");
    let list = rig.call(client, "expiration.list", &values![]);
    assert_eq!(list, Ok(vec![values![]]), "no name is left taken: {text}");
    text
}

#[test]
fn what_the_queue_keeps_does_not_expire() {
    let mut rig = Rig::new();
    tester(&mut rig);
    rig.create_tube("mail", "fifottl");
    let mut admin = rig.admin();
    let buffered = values!["busy", "utube", options! { storage_mode: "ready_buffer" }];
    rig.call(&mut admin, "queue.create_tube", &buffered).expect("a tube");
    let own = |name: &str, what: &str| {
        format!("Illegal parameters, space '{name}' is the server's own: no task may {what} it")
    };
    for name in
        ["_queue", "_queue_consumers", "_queue_taken_2", "_queue_session_ids", "_queue_shared_sessions"]
    {
        let text = refused_start(&mut rig, &mut admin, name, options! { field: 1 });
        assert_eq!(text, own(name, "delete from"));
        let text = refused_start(&mut rig, &mut admin, 600, options! { field: 3, archive_space: name });
        assert_eq!(text, own(name, "archive tuples into"));
    }
    let belongs =
        "Illegal parameters, space 'busy_ready_buffer' belongs to tube 'busy', which keeps its order there";
    let text = refused_start(&mut rig, &mut admin, "busy_ready_buffer", options! { field: 1 });
    assert_eq!(text, belongs);
    let text =
        refused_start(&mut rig, &mut admin, 600, options! { field: 3, archive_space: "busy_ready_buffer" });
    assert_eq!(text, belongs);
    let text = refused_start(&mut rig, &mut admin, 600, options! { field: 3, archive_space: "mail" });
    assert_eq!(text, "Illegal parameters, the archive, space 'mail', is a tube: give it as archive_tube");
    // A tube may have a name such as those.
    rig.create_tube("_queue_mine", "fifottl");
    rig.call(&mut admin, "queue.tube._queue_mine:put", &values!["x"]).expect("a task");
    rig.now += SECOND;
    start(&mut rig, &mut admin, "_queue_mine", options! { field: 7, unit: "us" })
        .expect("a tube is no such space");
    let tube = rig.instance.store().space_by_name("_queue_mine").expect("the tube").id();
    assert_eq!(ids(&mut rig, tube), [0_u64; 0]);
}

#[test]
fn tubes_do_not_archive_into_each_other() {
    let mut rig = Rig::new();
    for name in ["a", "b"] {
        rig.create_tube(name, "fifottl");
    }
    let mut admin = rig.admin();
    let task = |name: &str, from: &str, to: &str| {
        values![name, from, options! { field: 3, unit: "us", archive_tube: to }]
    };
    rig.call(&mut admin, "expiration.start", &task("ab", "a", "b")).expect("a task");
    let (code, text) = refused(rig.call(&mut admin, "expiration.start", &task("ba", "b", "a")));
    assert_eq!(code, ErrorCode::IllegalParams);
    assert_eq!(
        text,
        "Illegal parameters, archived tuples would come back to the space that they expire from"
    );
}

#[test]
fn stop_has_one_option() {
    let mut rig = Rig::new();
    let mut admin = rig.admin();
    let mut stop =
        |options: Value| rig.call(&mut admin, "expiration.stop", &Value::Array(vec!["t".into(), options]));
    assert_eq!(stop(options! { if_exists: true }), Ok(vec![Value::Nil]));
    let missing = "Illegal parameters, expiration task 't' does not exist";
    for options in [
        Value::Nil,
        values![],
        options! {},
        options! { if_exists: false },
        options! { if_exists: Value::Nil },
    ] {
        assert_eq!(refused(stop(options)).1, missing);
    }
    for options in
        [options! { if_exists: 1 }, options! { if_exist: true }, options! { if_exists: true, x: 1 }]
    {
        let text = "Illegal parameters, the only option of expiration.stop is if_exists, true or false";
        assert_eq!(refused(stop(options)).1, text);
    }
    assert!(refused(stop(values![1])).1.contains("expected expiration.stop(name"));
}

#[test]
fn a_declaration_that_cannot_begin_leaves_the_task_that_runs() {
    let mut rig = Rig::with(Settings::default());
    tester(&mut rig);
    let declared =
        |options: Value| DeclaredExpiration { name: "t".to_owned(), space: "tester".to_owned(), options };
    let now = rig.now;
    let begun = rig.instance.declare_expirations(&[declared(options! { field: 3, scan_size: 7 })], now);
    assert_eq!(begun, Ok(vec!["t".to_owned()]));
    for (options, text) in [
        (options! { field: 3, archive_tube: "none" }, "the tube 'none', which does not exist"),
        (options! { field: 3, archive_space: "tester" }, "cannot be the archive of its own tuples"),
    ] {
        let error = rig.instance.declare_expirations(&[declared(options)], now).expect_err(text);
        assert!(error.message.contains(text), "{}", error.message);
        let mut admin = rig.admin();
        let list = rig.call(&mut admin, "expiration.list", &values![]).expect("a list").remove(0);
        let size = list.as_array().and_then(|tasks| tasks.first()?.get("scan_size")?.as_u64());
        assert_eq!(size, Some(7), "{list:?}");
    }
}
