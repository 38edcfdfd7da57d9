//! Leases: takes whose owner is a token and no connection.

use lycosa_store::Statement;
use lycosa_tuple::value::Value;

use crate::rig::{Reply, Rig, SECOND, args, options, task};

const SPACE: &str = "_lycosa_leases";
const KINDS: [&str; 5] = ["fifo", "fifottl", "limfifottl", "utube", "utubettl"];

fn rig(kind: &str) -> Rig {
    let mut rig = Rig::new();
    rig.create("t", kind, Value::Nil);
    rig.t(1, "put", args!["x"]).values();
    rig
}

fn lease(seconds: u64) -> Value {
    options([("lease", seconds.into())])
}

#[track_caller]
fn info(task: &Value) -> &Value {
    let task = task.as_array().expect("a task");
    assert_eq!(task.len(), 4, "{task:?}");
    &task[3]
}

#[track_caller]
fn number(info: &Value, name: &str) -> Option<u64> {
    info.get(name).and_then(Value::as_u64)
}

/// Takes the next task for that long. Returns the token.
#[track_caller]
fn take(rig: &mut Rig, connection: u64, seconds: u64) -> Value {
    let taken = rig.t(connection, "take", vec![0.into(), lease(seconds)]).values();
    info(&taken[0]).get("lease").expect("a token").clone()
}

fn leases(rig: &Rig) -> usize {
    rig.store.space_by_name(SPACE).map_or(0, |_| rig.rows(SPACE).len())
}

#[track_caller]
fn assert_stale(reply: Reply, what: &str) {
    let text = reply.error();
    assert!(text.ends_with("is stale: it ended, or its task was settled"), "{what}: {text}");
}

/// Every method by a token.
#[track_caller]
fn assert_settles_nothing(rig: &mut Rig, token: &Value, what: &str) {
    let before = rig.transactions();
    for method in ["ack", "release", "bury", "delete", "peek"] {
        assert_stale(rig.t(1, method, vec![token.clone()]), &format!("{what}: {method}"));
    }
    assert_stale(rig.t(1, "touch", vec![token.clone(), 5.into()]), &format!("{what}: touch"));
    for method in ["ack_many", "release_many", "bury_many", "kick_many", "delete_many"] {
        let tokens = Value::array([token.clone()]);
        assert_stale(rig.t(1, method, vec![tokens]), &format!("{what}: {method}"));
    }
    assert_eq!(rig.transactions(), before, "{what}");
}

#[test]
fn a_token_settles_its_task_over_any_connection() {
    for kind in KINDS {
        for (method, state) in [("ack", "-"), ("release", "r"), ("bury", "!"), ("delete", "-")] {
            let mut rig = rig(kind);
            let token = take(&mut rig, 2, 30);
            assert_eq!(rig.rows("_queue_taken_2"), [], "{kind}");
            rig.disconnect(2);
            rig.advance(SECOND);
            assert_eq!(rig.t(1, "peek", vec![token.clone()]).values(), task(0, "t", "x"), "{kind}");
            // The id alone settles nothing: no session holds the task.
            assert_eq!(rig.t(2, "ack", args![0]).error(), "Task was not taken", "{kind}");
            assert_eq!(
                rig.t(3, method, vec![token.clone()]).values(),
                task(0, state, "x"),
                "{kind} {method}"
            );
            assert_eq!(leases(&rig), 0, "{kind} {method}");
            assert_settles_nothing(&mut rig, &token, &format!("{kind} after {method}"));
        }
    }
}

#[test]
fn a_lease_ends_in_tubes_of_every_type_and_its_attempt_counts_with_its_reason() {
    for kind in KINDS {
        let mut rig = rig(kind);
        let token = take(&mut rig, 2, 30);
        rig.advance(30 * SECOND - 1);
        assert_eq!(rig.t(1, "peek", args![0]).values(), task(0, "t", "x"), "{kind}");
        let waiting = rig.t(3, "take", vec![60.into(), options([("extended", true.into())])]).token();
        rig.advance(1);
        let taken = rig.answer(waiting).expect("the task is ready again").values();
        let info = info(&taken[0]);
        assert_eq!(number(info, "attempts"), Some(2), "{kind}");
        assert_eq!(info.get("last_error").and_then(Value::as_str), Some("the lease ended"), "{kind}");
        assert_eq!(number(info, "failed_at"), Some(rig.now / SECOND), "{kind}");
        assert_settles_nothing(&mut rig, &token, kind);
        let calls = rig.queue.tube_statistics(&rig.store, "t").expect("a tube").expect("a tube").counters;
        assert_eq!(calls.get(lycosa_queue::Operation::Ttr), 1, "{kind}");
    }
}

#[test]
fn a_lease_whose_end_the_timer_has_not_seen_yet_is_stale() {
    let mut rig = rig("fifo");
    let token = take(&mut rig, 2, 30);
    rig.now += 30 * SECOND;
    assert_settles_nothing(&mut rig, &token, "at its end");
}

#[test]
fn a_renewal_counts_from_now_and_never_shortens() {
    for kind in KINDS {
        let mut rig = rig(kind);
        let token = take(&mut rig, 2, 30);
        let start = rig.now / SECOND;
        let renewed = |rig: &mut Rig, seconds: u64| {
            let touched = rig.t(9, "touch", vec![token.clone(), seconds.into()]).values();
            assert_eq!(info(&touched[0]).get("lease"), Some(&token), "{kind}");
            number(info(&touched[0]), "lease_ends").expect("an end") - start
        };
        assert_eq!(renewed(&mut rig, 10), 30, "{kind}");
        rig.advance(20 * SECOND);
        assert_eq!(renewed(&mut rig, 30), 50, "{kind}");
        assert_eq!(renewed(&mut rig, 30), 50, "{kind}");
        rig.advance(29 * SECOND);
        assert_eq!(rig.t(1, "peek", args![0]).values(), task(0, "t", "x"), "{kind}");
        rig.advance(SECOND);
        assert_eq!(rig.t(1, "peek", args![0]).values(), task(0, "r", "x"), "{kind}");
        assert_stale(rig.t(9, "touch", vec![token, 5.into()]), kind);
    }
}

#[test]
fn the_end_of_a_lease_takes_the_place_of_the_ttr_and_not_of_the_ttl() {
    let mut rig = Rig::new();
    rig.create("t", "fifottl", Value::Nil);
    rig.t(1, "put", vec!["x".into(), options([("ttr", 1.into()), ("ttl", 60.into())])]).values();
    let token = take(&mut rig, 2, 30);
    rig.advance(10 * SECOND);
    assert_eq!(rig.t(1, "peek", args![0]).values(), task(0, "t", "x"));
    // A renewal keeps the task alive.
    rig.t(1, "touch", vec![token.clone(), 100.into()]).values();
    rig.advance(80 * SECOND);
    assert_eq!(rig.t(1, "release", vec![token]).values(), task(0, "r", "x"));
    // No lease outlives its task.
    let taken = rig.t(2, "take", vec![0.into(), lease(1000)]).values();
    assert_eq!(number(info(&taken[0]), "lease_ends"), number(info(&taken[0]), "due"));
    rig.advance(100 * SECOND);
    assert_eq!(rig.t(1, "peek", args![0]).error(), "Task 0 not found");
    assert_eq!(leases(&rig), 0);
}

#[test]
fn leases_go_on_over_a_restart_and_what_is_due_ends_then() {
    for kind in KINDS {
        let mut rig = rig(kind);
        rig.t(1, "put", vec!["y".into(), options([("utube", "b".into())])]).values();
        let (first, second) = (take(&mut rig, 2, 10), take(&mut rig, 2, 100));
        rig.now += 20 * SECOND;
        rig.restart();
        assert_stale(rig.t(1, "ack", vec![first]), kind);
        rig.advance(0);
        assert_eq!(rig.t(1, "peek", args![0]).values(), task(0, "r", "x"), "{kind}");
        assert_eq!(rig.t(1, "peek", args![1]).values(), task(1, "t", "y"), "{kind}");
        let third = take(&mut rig, 2, 100);
        let epoch = |token: &Value| {
            let token = token.as_str().expect("a text");
            token.split('-').nth(2).and_then(|epoch| epoch.parse::<u64>().ok()).expect("an epoch")
        };
        assert!(epoch(&third) > epoch(&second), "{kind}: epochs grow over a restart");
        assert_eq!(rig.t(1, "ack", vec![second]).values(), task(1, "-", "y"), "{kind}");
        assert_eq!(rig.t(1, "ack", vec![third]).values(), task(0, "-", "x"), "{kind}");
    }
}

#[test]
fn a_promoted_replica_goes_on_with_the_leases_of_its_master() {
    for kind in KINDS {
        let mut master = rig(kind);
        let token = take(&mut master, 2, 30);
        let mut replica = Rig::replica_of(&master);
        master.t(1, "touch", vec![token.clone(), 60.into()]).values();
        replica.apply_of(&master, usize::MAX);
        replica.promote();
        replica.advance(40 * SECOND);
        assert_eq!(replica.t(1, "ack", vec![token.clone()]).values(), task(0, "-", "x"), "{kind}");
        assert_settles_nothing(&mut replica, &token, kind);
    }
}

#[test]
fn no_token_reaches_a_later_task_of_the_same_tube_and_id() {
    for kind in KINDS {
        let mut rig = rig(kind);
        let first = take(&mut rig, 2, 3600);
        rig.t(1, "truncate", args![]).values();
        rig.t(1, "put", args!["y"]).values();
        let second = take(&mut rig, 2, 3600);
        assert_settles_nothing(&mut rig, &first, &format!("{kind} truncated"));
        assert_eq!(rig.t(1, "drop", args![]).error(), "There are taken tasks in the tube", "{kind}");
        rig.t(1, "release", vec![second.clone()]).values();
        rig.t(1, "drop", args![]).values();
        rig.create("t", kind, Value::Nil);
        rig.t(1, "put", args!["z"]).values();
        let third = take(&mut rig, 2, 3600);
        for token in [&first, &second] {
            assert_settles_nothing(&mut rig, token, &format!("{kind} created anew"));
        }
        rig.restart();
        for token in [&first, &second] {
            assert_settles_nothing(&mut rig, token, &format!("{kind} restarted"));
        }
        assert_eq!(rig.t(1, "ack", vec![third]).values(), task(0, "-", "z"), "{kind}");
    }
}

#[test]
fn who_takes_a_leased_task_away_ends_its_lease() {
    type End = fn(&mut Rig);
    let ends: [(&str, End); 5] = [
        ("bury", |rig| drop(rig.t(1, "bury", args![0]).values())),
        ("delete", |rig| drop(rig.t(1, "delete", args![0]).values())),
        ("release_all", |rig| drop(rig.t(1, "release_all", args![]).values())),
        ("force", |rig| {
            let ids = Value::array([0_u64]);
            rig.t(1, "release_many", vec![ids, options([("force", true.into())])]).values();
        }),
        ("DML", |rig| {
            let key = Value::array([0_u64]).encode();
            let space = rig.space_id("t");
            rig.execute(&Statement::Delete { space, index: 0, key: &key }).expect("a delete");
        }),
    ];
    for kind in KINDS {
        for (what, end) in ends {
            let mut rig = rig(kind);
            let token = take(&mut rig, 2, 30);
            end(&mut rig);
            assert_eq!(leases(&rig), 0, "{kind} {what}");
            assert_settles_nothing(&mut rig, &token, &format!("{kind} {what}"));
        }
    }
}

#[test]
fn a_task_whose_lease_a_statement_removes_is_ready_again() {
    for kind in KINDS {
        let mut removed = rig(kind);
        take(&mut removed, 2, 30);
        let row = removed.rows(SPACE)[0].as_array().expect("a row").to_vec();
        let key = Value::array([row[0].clone(), row[1].clone()]).encode();
        let space = removed.space_id(SPACE);
        removed.execute(&Statement::Delete { space, index: 0, key: &key }).expect("a delete");
        assert_eq!(removed.t(1, "peek", args![0]).values(), task(0, "r", "x"), "{kind}");
        let mut truncated = rig(kind);
        take(&mut truncated, 2, 30);
        truncated.truncate_space(SPACE);
        assert_eq!(truncated.t(1, "peek", args![0]).values(), task(0, "r", "x"), "{kind}");
        // A statement that changes the end changes when the lease ends.
        let mut shortened = rig(kind);
        take(&mut shortened, 2, 30);
        let mut row = shortened.rows(SPACE)[0].as_array().expect("a row").to_vec();
        row[4] = (shortened.now + SECOND).into();
        let space = shortened.space_id(SPACE);
        shortened.execute(&Statement::Replace { space, tuple: &Value::from(row).encode() }).expect("a row");
        assert_eq!(shortened.t(1, "peek", args![0]).values(), task(0, "t", "x"), "{kind}");
        shortened.advance(SECOND);
        assert_eq!(shortened.t(1, "peek", args![0]).values(), task(0, "r", "x"), "{kind}");
    }
}

#[test]
fn leases_of_a_temporary_tube_end_with_the_process() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", options([("temporary", true.into())]));
    rig.t(1, "put", args!["x"]).values();
    let token = take(&mut rig, 2, 3600);
    rig.restart();
    assert_eq!(leases(&rig), 0);
    rig.t(1, "put", args!["y"]).values();
    assert_settles_nothing(&mut rig, &token, "restarted");
}

#[test]
fn waiting_takes_and_batches_lease_too() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    let waiting = rig.t(2, "take", vec![60.into(), lease(30)]).token();
    let many = rig.t(3, "take_many", vec![10.into(), 60.into(), lease(30)]).token();
    rig.t(1, "put", args!["a"]).values();
    rig.t(1, "put_many", vec![Value::array([Value::from("b"), Value::from("c")])]).values();
    let one = rig.answer(waiting).expect("served").values();
    let first = info(&one[0]).get("lease").expect("a token").clone();
    let batch = rig.answer(many).expect("served").values();
    let tasks = batch[0].as_array().expect("tasks");
    let tokens: Vec<_> = tasks.iter().map(|task| info(task).get("lease").expect("a token").clone()).collect();
    assert_eq!((tokens.len(), leases(&rig)), (2, 3));
    // All or none.
    let acked = rig.t(1, "ack_many", vec![Value::from(vec![tokens[0].clone(), first.clone()])]).values();
    assert_eq!(acked[0].as_array().map(<[Value]>::len), Some(2));
    assert_stale(rig.t(1, "ack_many", vec![Value::from(vec![tokens[1].clone(), first])]), "one is stale");
    assert_eq!(rig.t(1, "ack", vec![tokens[1].clone()]).values(), task(2, "-", "c"));
    assert_eq!(leases(&rig), 0);
}

#[test]
fn a_lease_of_a_transaction_that_is_rolled_back_never_was() {
    let mut rig = rig("fifo");
    rig.begin();
    let token = take(&mut rig, 2, 30);
    rig.rollback();
    assert_eq!(leases(&rig), 0);
    assert_settles_nothing(&mut rig, &token, "rolled back");
    let again = take(&mut rig, 2, 30);
    assert_ne!(again, token);
    rig.begin();
    rig.t(1, "ack", vec![again.clone()]).values();
    rig.rollback();
    assert_eq!(rig.t(1, "ack", vec![again]).values(), task(0, "-", "x"));
}

#[test]
fn spans_are_checked() {
    let mut rig = rig("fifo");
    let span = "a lease should be a number of seconds, more than 0 and at most 86400";
    for wrong in [Value::from(0), Value::from(-1_i64), Value::from("30"), Value::from(86_401)] {
        let refused = rig.t(2, "take", vec![0.into(), options([("lease", wrong.clone())])]);
        assert!(refused.error().ends_with(span), "{wrong:?}");
        let refused = rig.t(2, "take_many", vec![1.into(), 0.into(), options([("lease", wrong)])]);
        assert!(refused.error().ends_with(span));
    }
    let token = take(&mut rig, 2, 86_400);
    for wrong in [vec![token.clone()], vec![token.clone(), 0.into()], vec![token, 86_401.into()]] {
        assert!(rig.t(2, "touch", wrong).error().ends_with(span));
    }
    // A null is an absent option.
    rig.t(1, "put", args!["y"]).values();
    let plain = rig.t(2, "take", vec![0.into(), options([("lease", Value::Nil)])]);
    assert_eq!(plain.values(), task(1, "t", "y"));
}

#[test]
fn a_lease_is_shown_without_its_token() {
    let mut rig = rig("fifo");
    take(&mut rig, 2, 30);
    let peeked = rig.t(1, "peek", vec![0.into(), options([("extended", true.into())])]).values();
    let info = info(&peeked[0]);
    assert_eq!(number(info, "lease_ends"), Some(rig.now / SECOND + 30));
    assert_eq!(number(info, "taken_at"), Some(rig.now / SECOND));
    assert_eq!(info.get("user").and_then(Value::as_str), Some("admin"));
    assert_eq!((info.get("lease"), info.get("connection")), (None, None));
}

#[test]
fn many_leases_that_end_together_are_ended_in_portions() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    let payloads: Vec<_> = (0..1000_u64).map(Value::from).collect();
    rig.t(1, "put_many", vec![Value::from(payloads)]).values();
    rig.t(2, "take_many", vec![1000.into(), 0.into(), lease(30)]).values();
    rig.now += 30 * SECOND;
    let tick = rig.queue.tick(&mut rig.store, rig.now, 100);
    assert!(tick.handled <= 100 && tick.more, "{tick:?}");
    rig.collect_committed();
    assert_eq!(leases(&rig), 900);
    rig.advance(0);
    assert_eq!(leases(&rig), 0);
}

#[test]
fn explain_names_the_lease_that_holds_a_task_or_its_sub_queue() {
    for kind in KINDS {
        let mut rig = rig(kind);
        rig.t(1, "put", args!["y"]).values();
        take(&mut rig, 2, 30);
        let reason = |rig: &mut Rig, id: u64| {
            let explained = rig.t(1, "explain", vec![id.into()]).values();
            let reasons = explained[0].get("reasons").and_then(Value::as_array).expect("reasons").to_vec();
            reasons.first().cloned()
        };
        let expected = |reason: &Value| {
            assert_eq!(number(reason, "until"), Some(1_800_000_030), "{kind} {reason:?}");
            assert_eq!((number(reason, "lease"), number(reason, "connection")), (Some(1), None), "{kind}");
            let text = reason.get("text").and_then(Value::as_str).expect("a text").to_owned();
            assert!(text.ends_with("by a lease of admin for 0.0 s; it goes back in 30 s"), "{kind} {text}");
        };
        expected(&reason(&mut rig, 0).expect("a reason"));
        if kind.starts_with("utube") {
            let blocked = reason(&mut rig, 1).expect("a reason");
            assert_eq!(number(&blocked, "by"), Some(0), "{kind}");
            expected(&blocked);
        }
    }
}

#[test]
fn a_running_queue_takes_over_leases_that_rows_of_another_master_bring() {
    for kind in KINDS {
        let mut first = rig(kind);
        first.t(1, "put", vec!["y".into(), options([("utube", "b".into())])]).values();
        let mut second = Rig::replica_of(&first);
        second.promote();
        let (kept, lost) = (take(&mut first, 2, 60), take(&mut first, 2, 30));
        second.apply_of(&first, usize::MAX);
        assert_eq!(second.t(1, "peek", vec![lost.clone()]).values(), task(1, "t", "y"), "{kind}");
        second.advance(30 * SECOND);
        assert_stale(second.t(1, "ack", vec![lost]), kind);
        assert_eq!(second.t(1, "peek", args![1]).values(), task(1, "r", "y"), "{kind}");
        assert_eq!(second.t(1, "ack", vec![kept]).values(), task(0, "-", "x"), "{kind}");
    }
}
