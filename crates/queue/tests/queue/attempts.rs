//! Attempts and reasons, kept beside the tubes; and looking at tasks.

use lycosa_store::Statement;
use lycosa_tuple::value::Value;

use crate::rig::{Reply, Rig, SECOND, args, options, task};

const SPACE: &str = "_lycosa_attempts";

fn extended() -> Value {
    options([("extended", true.into())])
}

fn because(reason: &str) -> Value {
    options([("reason", reason.into())])
}

/// The extended form's map of the only task in an answer.
#[track_caller]
fn info(values: &[Value]) -> &Value {
    let task = values[0].as_array().expect("a task");
    assert_eq!(task.len(), 4, "{values:?}");
    &task[3]
}

/// The attempts and the last failure that an extended task shows.
#[track_caller]
fn said(values: &[Value]) -> (u64, Option<String>) {
    let info = info(values);
    let attempts = info.get("attempts").and_then(Value::as_u64).expect("a number");
    (attempts, info.get("last_error").and_then(Value::as_str).map(str::to_owned))
}

fn kept(rig: &Rig) -> usize {
    rig.store.space_by_name(SPACE).map_or(0, |_| rig.rows(SPACE).len())
}

/// Tubes of each type with one task that was taken twice and failed once.
fn with_failed_task(kind: &str) -> Rig {
    let mut rig = Rig::new();
    rig.create("t", kind, Value::Nil);
    rig.t(1, "put", args!["x"]).values();
    rig.t(2, "take", vec![0.into(), extended()]).values();
    rig.t(2, "release", vec![0.into(), because("exit code 3")]).values();
    rig.t(2, "take", vec![0.into(), extended()]).values();
    rig
}

const KINDS: [&str; 5] = ["fifo", "fifottl", "limfifottl", "utube", "utubettl"];

#[test]
fn takes_in_extended_form_are_counted_and_reasons_kept_over_a_restart() {
    for kind in KINDS {
        let mut rig = with_failed_task(kind);
        let peek = |rig: &mut Rig| said(&rig.t(1, "peek", vec![0.into(), extended()]).values());
        assert_eq!(peek(&mut rig), (2, Some("exit code 3".to_owned())), "{kind}");
        rig.restart();
        assert_eq!(peek(&mut rig), (2, Some("exit code 3".to_owned())), "{kind}");
        let again = rig.t(2, "take", vec![0.into(), extended()]).values();
        assert_eq!(said(&again), (3, Some("exit code 3".to_owned())), "{kind}");
        rig.t(2, "bury", vec![0.into(), because("given up")]).values();
        assert_eq!(peek(&mut rig), (3, Some("given up".to_owned())), "{kind}");
    }
}

#[test]
fn who_does_not_ask_sees_and_costs_nothing() {
    let mut rig = Rig::new();
    rig.create("t", "fifottl", Value::Nil);
    rig.t(1, "put", args!["x"]).values();
    assert_eq!(rig.t(2, "take", args![0]).values(), task(0, "t", "x"));
    assert_eq!(
        rig.t(2, "release", vec![0.into(), options([("delay", 0.into())])]).values(),
        task(0, "r", "x")
    );
    assert_eq!(
        rig.t(2, "take", vec![0.into(), options([("extended", false.into())])]).values(),
        task(0, "t", "x")
    );
    assert_eq!(rig.t(2, "bury", args![0]).values(), task(0, "!", "x"));
    assert!(rig.store.space_by_name(SPACE).is_none());
    // A client that asks for no extended form sees counted tasks as before.
    let mut rig = with_failed_task("fifo");
    assert_eq!(rig.t(1, "peek", args![0]).values(), task(0, "t", "x"));
    assert_eq!(rig.t(2, "release", args![0]).values(), task(0, "r", "x"));
    assert_eq!(rig.t(3, "take", args![0]).values(), task(0, "t", "x"));
}

#[test]
fn what_is_kept_goes_with_the_task() {
    type End = fn(&mut Rig);
    let ends: [(&str, End); 5] = [
        ("ack", |rig| drop(rig.t(2, "ack", args![0]).values())),
        ("delete", |rig| drop(rig.t(1, "delete", args![0]).values())),
        ("truncate", |rig| drop(rig.t(1, "truncate", args![]).values())),
        ("drop", |rig| {
            rig.t(2, "release", args![0]).values();
            rig.t(1, "drop", args![]).values();
        }),
        ("DML", |rig| {
            let key = Value::array([0_u64]).encode();
            let space = rig.space_id("t");
            rig.execute(&Statement::Delete { space, index: 0, key: &key }).expect("a delete");
        }),
    ];
    for kind in KINDS {
        for (what, end) in ends {
            let mut rig = with_failed_task(kind);
            assert_eq!(kept(&rig), 1, "{kind} {what}");
            end(&mut rig);
            assert_eq!(kept(&rig), 0, "{kind} {what}");
        }
    }
    let mut rig = Rig::new();
    rig.create("t", "fifottl", options([("ttl", 10.into())]));
    rig.t(1, "put", args!["x"]).values();
    rig.t(2, "take", vec![0.into(), extended()]).values();
    rig.t(2, "release", args![0]).values();
    assert_eq!(kept(&rig), 1);
    rig.advance(20 * SECOND);
    assert_eq!(kept(&rig), 0, "the end of its ttl");
}

#[test]
fn a_kick_counts_anew_and_keeps_the_last_failure() {
    for kind in KINDS {
        for many in [false, true] {
            let mut rig = with_failed_task(kind);
            rig.t(2, "bury", vec![0.into(), because("given up")]).values();
            match many {
                false => rig.t(1, "kick", args![1]).values(),
                true => rig.t(1, "kick_many", vec![Value::array([0_u64])]).values(),
            };
            let peeked = rig.t(1, "peek", vec![0.into(), extended()]).values();
            assert_eq!(said(&peeked), (0, Some("given up".to_owned())), "{kind}");
            let taken = rig.t(2, "take", vec![0.into(), extended()]).values();
            assert_eq!(said(&taken), (1, Some("given up".to_owned())), "{kind}");
        }
    }
}

#[test]
fn a_take_that_was_no_attempt_is_not_counted() {
    let unattempted = || options([("attempted", false.into())]);
    for kind in KINDS {
        let mut rig = with_failed_task(kind);
        let before = said(&rig.t(1, "peek", vec![0.into(), extended()]).values());
        rig.t(2, "release", vec![0.into(), unattempted()]).values();
        let after = said(&rig.t(1, "peek", vec![0.into(), extended()]).values());
        assert_eq!(after, (before.0 - 1, before.1), "{kind}");
        rig.t(2, "take", vec![0.into(), extended()]).values();
        rig.t(2, "release_many", vec![Value::array([0_u64]), unattempted()]).values();
        assert_eq!(said(&rig.t(1, "peek", vec![0.into(), extended()]).values()), after, "{kind}");
    }
    // Where nothing was counted there is nothing to take back.
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    rig.t(1, "put", args!["x"]).values();
    rig.t(2, "take", args![0]).values();
    rig.t(2, "release", vec![0.into(), unattempted()]).values();
    assert!(rig.store.space_by_name(SPACE).is_none());
}

#[test]
fn a_waiting_take_gets_the_extended_form_too() {
    let mut rig = Rig::new();
    rig.create("t", "fifottl", options([("ttr", 30.into())]));
    let token = rig.t(2, "take", vec![60.into(), extended()]).token();
    rig.t(1, "put", args!["x"]).values();
    let answer = rig.answer(token).expect("an answer").values();
    assert_eq!(said(&answer), (1, None));
    assert_eq!(info(&answer).get("ttr"), Some(&Value::from(30_u64)));
    assert_eq!(info(&answer).get("connection"), Some(&Value::from(2_u64)));
    assert_eq!(info(&answer).get("ttl"), None, "there is no end");
}

#[test]
fn a_transaction_that_is_rolled_back_leaves_no_space_behind() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    rig.t(1, "put", args!["x"]).values();
    rig.begin();
    rig.t(2, "take", vec![0.into(), extended()]).values();
    rig.rollback();
    assert!(rig.store.space_by_name(SPACE).is_none());
    assert_eq!(said(&rig.t(2, "take", vec![0.into(), extended()]).values()), (1, None));
    rig.t(2, "ack", args![0]).values();
    assert_eq!(kept(&rig), 0);
}

/// Ids of a `list`, and after which the next one goes on.
fn listed(rig: &mut Rig, choice: Value) -> (Vec<u64>, Option<u64>) {
    let values = rig.t(1, "list", vec![choice]).values();
    let id = |task: &Value| task.as_array().and_then(|task| task[0].as_u64()).expect("an id");
    (values[0].as_array().expect("tasks").iter().map(id).collect(), values[1].as_u64())
}

#[test]
fn tasks_are_listed_by_state_sub_queue_and_age_in_pages() {
    let mut rig = Rig::new();
    rig.create("t", "utubettl", Value::Nil);
    for number in 0..6_u64 {
        let utube = if number.is_multiple_of(2) { "even" } else { "odd" };
        rig.t(1, "put", vec!["x".into(), options([("utube", utube.into())])]).values();
        rig.advance(10 * SECOND);
    }
    rig.t(1, "bury", args![4]).values();
    assert_eq!(listed(&mut rig, Value::Nil), ((0..6).collect(), None));
    assert_eq!(listed(&mut rig, options([("state", "!".into())])), (vec![4], None));
    assert_eq!(listed(&mut rig, options([("utube", "odd".into())])), (vec![1, 3, 5], None));
    assert_eq!(listed(&mut rig, options([("older_than", 35.into())])), (vec![0, 1, 2], None));
    let page =
        |after: Option<u64>| options([("limit", 2.into()), ("after", after.map_or(Value::Nil, Value::from))]);
    assert_eq!(listed(&mut rig, page(None)), (vec![0, 1], Some(1)));
    assert_eq!(listed(&mut rig, page(Some(3))), (vec![4, 5], Some(5)));
    assert_eq!(listed(&mut rig, page(Some(5))), (vec![], None));
}

#[test]
fn one_list_looks_at_a_bounded_number_of_tasks() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    for _ in 0..5_000 {
        rig.t(1, "put", args![1]).values();
    }
    rig.t(1, "bury", args![4_999]).values();
    let (mut after, mut found, mut calls) = (None, Vec::new(), 0);
    loop {
        let choice =
            options([("state", "!".into()), ("after", after.map_or(Value::Nil, |after: u64| after.into()))]);
        let (ids, next) = listed(&mut rig, choice);
        found.extend(ids);
        calls += 1;
        after = next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!((found, calls), (vec![4_999], 3));
}

#[test]
fn at_the_memory_limit_tasks_are_worked_off_by_every_method() {
    for kind in KINDS {
        let mut rig = Rig::new();
        rig.create("t", kind, Value::Nil);
        for _ in 0..4 {
            rig.t(1, "put", args!["x"]).values();
        }
        rig.store.set_memory_limit(0);
        let refused = rig.t(1, "put", args!["x"]).error();
        assert!(refused.starts_with("Failed to allocate"), "{kind}: {refused}");
        let taken = rig.t(2, "take", vec![0.into(), extended()]).values();
        assert_eq!(said(&taken), (1, None), "{kind}");
        if kind.contains("ttl") {
            rig.t(2, "touch", args![0, 1000]).values();
        }
        let delayed = options([("reason", "exit code 3".into()), ("delay", 1.into())]);
        rig.t(2, "release", vec![0.into(), delayed]).values();
        rig.now += 2 * SECOND;
        rig.tick();
        for attempt in 2..5 {
            let taken = rig.t(2, "take", vec![0.into(), extended()]).values();
            assert_eq!(said(&taken), (attempt, Some("exit code 3".to_owned())), "{kind}");
            rig.t(2, "release", vec![0.into(), options([("attempted", true.into())])]).values();
        }
        rig.t(2, "take", args![0]).values();
        rig.t(2, "bury", vec![0.into(), because(&"given up ".repeat(400))]).values();
        rig.t(2, "kick", args![1]).values();
        rig.t(2, "take", args![0]).values();
        assert_eq!(rig.t(2, "ack", args![0]).values(), task(0, "-", "x"), "{kind}");
        assert_eq!(rig.t(2, "delete", args![1]).values(), task(1, "-", "x"), "{kind}");
        let (first, token) = (rig.t(2, "take", args![0]).values(), rig.t(3, "take", args![60]));
        assert_eq!(first, task(2, "t", "x"), "{kind}");
        if let Reply::Parked(token) = token {
            // Of a sub-queue one task at a time.
            rig.t(2, "ack", args![2]).values();
            assert_eq!(rig.answer(token), Some(Reply::Values(task(3, "t", "x"))), "{kind}");
        }
        rig.disconnect(3);
        rig.t(2, "truncate", args![]).values();
        assert_eq!((rig.rows("t").len(), kept(&rig)), (0, 0), "{kind}");
    }
}

#[test]
fn a_start_at_the_memory_limit_makes_what_the_queue_needs() {
    let mut rig = Rig::new();
    rig.create("t", "utubettl", options([("storage_mode", "ready_buffer".into())]));
    rig.t(1, "put", args!["x"]).values();
    // What the Lua module leaves: no sequence, no buffer.
    let sequence = rig.store.space_by_name("t").and_then(lycosa_store::Space::sequence).expect("a sequence");
    let buffer = rig.store.space_by_name("t_ready_buffer").expect("a buffer").id();
    let space = rig.space_id("t");
    rig.begin();
    let key = Value::array([u64::from(space)]).encode();
    let owned = Statement::Delete { space: lycosa_store::system::SPACE_SEQUENCE, index: 0, key: &key };
    rig.store.execute(&owned).expect("the sequence is nobody's");
    lycosa_store::ddl::drop_sequence(&mut rig.store, sequence).expect("dropped");
    lycosa_store::ddl::drop_space(&mut rig.store, buffer).expect("dropped");
    rig.commit();
    rig.restart_within(0);
    assert!(rig.store.space_by_name("t_ready_buffer").is_some());
    assert_eq!(rig.t(2, "take", args![0]).values(), task(0, "t", "x"));
    assert_eq!(rig.t(2, "ack", args![0]).values(), task(0, "-", "x"));
    let refused = rig.t(1, "put", args!["x"]).error();
    assert!(refused.starts_with("Failed to allocate"), "the limit holds again: {refused}");
}

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn with_headers() -> Value {
    options([("headers", options([("traceparent", TRACE.into()), ("origin", "cron".into())]))])
}

fn headers(values: &[Value]) -> Option<&Value> {
    info(values).get("headers")
}

#[test]
fn headers_stay_with_a_task_of_every_type_until_it_is_gone() {
    for kind in KINDS {
        let mut rig = Rig::new();
        rig.create("t", kind, Value::Nil);
        rig.t(1, "put", args!["plain"]).values();
        assert_eq!(kept(&rig), 0, "{kind}: a task without headers has a row");
        rig.t(1, "put", vec!["x".into(), with_headers()]).values();
        assert_eq!(kept(&rig), 1, "{kind}");
        let wanted = with_headers().get("headers").cloned();
        assert_eq!(headers(&rig.t(1, "peek", vec![0.into(), extended()]).values()), None, "{kind}");
        rig.t(2, "delete", args![0]).values();
        let taken = rig.t(2, "take", vec![0.into(), extended()]).values();
        assert_eq!((headers(&taken), said(&taken)), (wanted.as_ref(), (1, None)), "{kind}");
        rig.t(2, "bury", vec![1.into(), because("no such host")]).values();
        rig.t(2, "kick", args![1]).values();
        rig.restart();
        let taken = rig.t(2, "take", vec![0.into(), extended()]).values();
        assert_eq!(headers(&taken), wanted.as_ref(), "{kind}");
        assert_eq!(said(&taken), (1, Some("no such host".to_owned())), "{kind}");
        rig.t(2, "ack", args![1]).values();
        assert_eq!(kept(&rig), 0, "{kind}");
    }
}

#[test]
fn headers_of_a_batch_are_for_all_tasks_or_for_each() {
    for kind in KINDS {
        let mut rig = Rig::new();
        rig.create("t", kind, Value::Nil);
        let two = || Value::array([Value::from("a"), Value::from("b")]);
        rig.t(1, "put_many", vec![two(), with_headers()]).values();
        rig.t(1, "put_many", vec![two(), Value::array([Value::Nil, with_headers()])]).values();
        let has: Vec<bool> = (0..4_u64)
            .map(|id| headers(&rig.t(1, "peek", vec![id.into(), extended()]).values()).is_some())
            .collect();
        assert_eq!(has, [true, true, false, true], "{kind}");
    }
}

#[test]
fn headers_that_cannot_be_kept_refuse_the_put() {
    let long = "x".repeat(4096);
    let many = Value::map((0..33).map(|number| (format!("n{number}"), Value::from("x"))));
    let twice = Value::Map(vec![("a".into(), "1".into()), ("a".into(), "2".into())]);
    let cases: [(Value, &str); 7] = [
        ("text".into(), "is not a map of names to texts"),
        (options([("", "x".into())]), "has a name that is not a text"),
        (options([("a", 1.into())]), "has a value of \"a\" that is not a text"),
        (Value::map([("x".repeat(65), Value::from("x"))]), "of 1 to 64 bytes"),
        (options([("a", long.as_str().into())]), "at most 4096 are kept"),
        (many, "has 33 names: at most 32 are kept"),
        (twice, "has the name \"a\" twice"),
    ];
    let mut rig = Rig::new();
    rig.create("t", "limfifottl", options([("capacity", 1.into())]));
    for is_full in [false, true] {
        for (given, expected) in &cases {
            let options = options([("headers", given.clone()), ("timeout", 5.into())]);
            let error = rig.t(1, "put", vec!["x".into(), options]).error();
            assert!(error.contains(expected), "{is_full} {error}");
        }
        if !is_full {
            assert_eq!(rig.rows("t").len(), 0);
            rig.t(1, "put", vec!["x".into(), options([("headers", Value::array::<Value>([]))])]).values();
        }
    }
    assert_eq!(kept(&rig), 0);
}

#[test]
fn headers_follow_a_move_and_come_back_with_its_undo() {
    let mut rig = Rig::new();
    rig.create("t", "fifottl", Value::Nil);
    rig.create("u", "utube", Value::Nil);
    let wanted = with_headers().get("headers").cloned();
    for operation in ["move", "delete", "bury"] {
        let put = rig.t(1, "put", vec!["x".into(), with_headers()]).values();
        let id = put[0].as_array().expect("a task")[0].clone();
        let of_task = options([("id_from", id.clone()), ("id_to", id.clone())]);
        let to = if operation == "move" { options([("to", "u".into())]) } else { Value::Nil };
        let job = rig.t(1, "apply", vec![operation.into(), of_task, to]).values()[0].get("id").cloned();
        rig.tick();
        if operation == "move" {
            let moved = rig.call(1, "queue.tube.u:peek", vec![0.into(), extended()]).values();
            assert_eq!(headers(&moved), wanted.as_ref());
        }
        rig.t(1, "undo", vec![job.expect("a job")]).values();
        rig.tick();
        let back = rig.t(1, "peek", vec![id.clone(), extended()]).values();
        assert_eq!(headers(&back), wanted.as_ref(), "{operation}");
        assert_eq!(kept(&rig), 1, "{operation}");
        rig.t(1, "delete", vec![id]).values();
    }
}
