//! `find`, `count`, `apply`, `undo` and the jobs behind them.

mod pages;
mod random;
mod reschedule;

use std::collections::BTreeSet;

use lycosa_store::{Budget, user};
use lycosa_tuple::value::Value;

use crate::rig::{Reply, Rig, SECOND, args, options};

const KINDS: [&str; 5] = ["fifo", "fifottl", "limfifottl", "utube", "utubettl"];

fn everything() -> Value {
    options([("all", true.into())])
}

#[track_caller]
fn number(job: &Value, name: &str) -> u64 {
    job.get(name).and_then(Value::as_u64).unwrap_or_else(|| panic!("{name} of {job}"))
}

#[track_caller]
fn word<'a>(job: &'a Value, name: &str) -> &'a str {
    job.get(name).and_then(Value::as_str).unwrap_or_else(|| panic!("{name} of {job}"))
}

/// Begins a job and lets it go on to its end.
#[track_caller]
fn finished(rig: &mut Rig, method: &str, arguments: Vec<Value>) -> Value {
    let job = rig.t(1, method, arguments).values().remove(0);
    let id = number(&job, "id");
    rig.tick();
    rig.t(1, "job", args![id]).values().remove(0)
}

/// The arguments of `apply` with the dry run that has counted the same tasks.
#[track_caller]
fn counted(rig: &mut Rig, mut arguments: Vec<Value>) -> Vec<Value> {
    let with = |arguments: &[Value], name: &str, value: Value| match arguments.get(2) {
        Some(Value::Map(pairs)) => Value::Map(pairs.iter().cloned().chain([(name.into(), value)]).collect()),
        _ => options([(name, value)]),
    };
    let mut dry = arguments.clone();
    dry.truncate(2);
    dry.push(with(&arguments, "dry_run", true.into()));
    let dry = number(&finished(rig, "apply", dry), "id");
    let more = with(&arguments, "counted", dry.into());
    arguments.truncate(2);
    arguments.push(more);
    arguments
}

/// A page of `find`, which takes slices if it looks at many tasks.
#[track_caller]
fn page(rig: &mut Rig, arguments: Vec<Value>) -> Value {
    let reply = match rig.t(1, "find", arguments) {
        Reply::Parked(token) => {
            rig.tick();
            rig.answer(token).expect("the page is complete")
        }
        reply => reply,
    };
    reply.values().remove(0)
}

/// All ids that `find` finds, page by page, and how many tasks were looked at.
#[track_caller]
fn found(rig: &mut Rig, filter: &Value, limit: u64) -> (Vec<u64>, u64) {
    let (mut ids, mut cursor) = (Vec::new(), Value::Nil);
    loop {
        let given = options([("limit", limit.into()), ("cursor", cursor)]);
        let page = page(rig, vec![filter.clone(), given]);
        let tasks = page.get("tasks").and_then(Value::as_array).expect("tasks");
        assert!(tasks.len() as u64 <= limit);
        ids.extend(tasks.iter().map(|task| task.as_array().expect("a task")[0].as_u64().expect("an id")));
        assert!(number(&page, "scanned") <= number(&page, "total"), "{page}");
        match page.get("cursor") {
            Some(next) => cursor = next.clone(),
            None => return (ids, number(&page, "scanned")),
        }
    }
}

/// A tube with tasks 0…5: a payload with `n`, and attempts and a failure of task 4, which is buried; 5 is taken.
fn with_tasks(kind: &str) -> Rig {
    let mut rig = Rig::new();
    rig.create("t", kind, Value::Nil);
    for n in 0..6_u64 {
        let lines = Value::array([Value::map([("sku", format!("s{n}"))])]);
        let data = Value::map([("n", Value::from(n % 3)), ("lines", lines)]);
        let name = if n == 3 { "y" } else { "x" };
        rig.t(1, "put", vec![data, options([("utube", name.into()), ("pri", (10 - n).into())])]).values();
        rig.now += SECOND;
    }
    rig
}

#[test]
fn find_pages_through_what_a_filter_admits() {
    for kind in KINDS {
        let mut rig = with_tasks(kind);
        let find = |rig: &mut Rig, pairs: &[(&str, Value)]| {
            let filter = Value::map(pairs.iter().map(|(name, value)| (*name, value.clone())));
            let all = found(rig, &filter, 100).0;
            assert_eq!(found(rig, &filter, 2).0, all, "{kind}: {filter}");
            all.into_iter().collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
        };
        assert_eq!(find(&mut rig, &[]), [0, 1, 2, 3, 4, 5]);
        assert_eq!(find(&mut rig, &[("id_from", 2.into()), ("id_to", 3.into())]), [2, 3]);
        assert_eq!(find(&mut rig, &[("field", "n".into()), ("equals", 1.into())]), [1, 4]);
        assert_eq!(find(&mut rig, &[("field", "n".into()), ("equals", 1.0.into())]), [1, 4]);
        assert_eq!(find(&mut rig, &[("field", "lines[1].sku".into()), ("contains", "s5".into())]), [5]);
        assert_eq!(find(&mut rig, &[("field", "lines[2]".into())]), [0_u64; 0]);
        rig.t(1, "bury", vec![4.into(), options([("reason", "no such host".into())])]).values();
        assert_eq!(find(&mut rig, &[("state", "buried".into())]), [4]);
        assert_eq!(find(&mut rig, &[("state", "!".into()), ("error", "such".into())]), [4]);
        assert_eq!(find(&mut rig, &[("error", "route".into())]), [0_u64; 0]);
        assert_eq!(find(&mut rig, &[("attempts_from", 1.into())]), [4]);
        assert_eq!(find(&mut rig, &[("state", "ready".into()), ("attempts_to", 0.into())]), [0, 1, 2, 3, 5]);
        if kind.ends_with("ttl") {
            assert_eq!(find(&mut rig, &[("pri_from", 9.into())]), [0, 1]);
            assert_eq!(find(&mut rig, &[("older_than", 5.into())]), [0, 1]);
            assert_eq!(find(&mut rig, &[("younger_than", 2.into())]), [4, 5]);
        }
        if kind.starts_with("utube") {
            assert_eq!(find(&mut rig, &[("utube", "y".into())]), [3]);
            assert_eq!(find(&mut rig, &[("utube", "x".into()), ("state", "ready".into())]), [0, 1, 2, 5]);
            assert_eq!(found(&mut rig, &options([("utube", "y".into()), ("state", "r".into())]), 10).1, 1);
        }
    }
}

#[test]
fn nothing_is_changed_before_its_number_was_seen() {
    let mut rig = Rig::new();
    for name in ["t", "u", "v"] {
        rig.create(name, "fifo", Value::Nil);
    }
    rig.t(1, "put_many", vec![Value::array((0..2_000_u64).map(Value::from))]).values();
    let filter = |to: u64| options([("id_from", 10.into()), ("id_to", to.into())]);
    let apply = |rig: &mut Rig, operation: &str, filter: &Value, more: Vec<(&str, Value)>| {
        rig.t(1, "apply", vec![operation.into(), filter.clone(), Value::map(more)])
    };
    let wanted = filter(1_800);
    let refused = apply(&mut rig, "delete", &wanted, vec![]).error();
    assert!(
        refused.contains("the tasks of this filter were not counted: call it with dry_run = true"),
        "{refused}"
    );
    let dry = |rig: &mut Rig, operation: &str, filter: &Value, more: Vec<(&str, Value)>| {
        let more = more.into_iter().chain([("dry_run", true.into())]).collect();
        number(&apply(rig, operation, filter, more).values()[0], "id")
    };
    let count = number(&rig.t(1, "count", vec![wanted.clone()]).values()[0], "id");
    let bury = dry(&mut rig, "bury", &wanted, vec![]);
    let less = dry(&mut rig, "delete", &filter(1_799), vec![]);
    let to_u = dry(&mut rig, "move", &wanted, vec![("to", "u".into())]);
    let of_other = number(&rig.call(1, "queue.tube.u:count", args![]).values()[0], "id");
    rig.tick();
    let running = dry(&mut rig, "delete", &wanted, vec![]);
    for (operation, job, more, part) in [
        ("delete", 99, vec![], "tube \"t\" has no job 99"),
        ("delete", of_other, vec![], "has no job"),
        ("delete", count, vec![], "is no dry run of delete"),
        ("delete", bury, vec![], "is no dry run of delete"),
        ("delete", less, vec![], "counted the tasks of another filter"),
        ("delete", running, vec![], "has not counted to its end: it is running"),
        ("move", to_u, vec![("to", "v".into())], "counted for the tube \"u\", not \"v\""),
    ] {
        let more = more.into_iter().chain([("counted", job.into())]).collect();
        let refused = apply(&mut rig, operation, &wanted, more).error();
        assert!(refused.contains(part), "{refused}");
    }
    rig.tick();
    assert_eq!(rig.rows("t").len(), 2_000);
    // The same filter in another order of its members.
    let turned = options([("id_to", 1_800.into()), ("id_from", 10.into())]);
    apply(&mut rig, "delete", &turned, vec![("counted", running.into())]).values();
    rig.tick();
    assert_eq!(rig.rows("t").len(), 209);
    rig.now += 3_601 * SECOND;
    let refused = apply(&mut rig, "delete", &wanted, vec![("counted", running.into())]).error();
    assert!(refused.contains("has counted more than an hour ago"), "{refused}");
    // One task, and all that match by their name, need no count.
    apply(&mut rig, "delete", &options([("id_from", 3.into()), ("id_to", 3.into())]), vec![]).values();
    let named = options([("all", true.into()), ("id_from", 1_900.into())]);
    apply(&mut rig, "delete", &named, vec![]).values();
    rig.tick();
    assert_eq!(rig.rows("t").len(), 108);
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let mut rig = with_tasks("fifo");
    rig.create("u", "fifo", Value::Nil);
    let move_to = |to: &str| options([("to", to.into())]);
    let pri = |pri: Value| options([("pri", pri)]);
    let delay = |delay: i64| options([("delay", delay.into())]);
    let refusals: Vec<(&str, Vec<Value>, &str)> = vec![
        ("apply", args!["kick"], "apply: the filter is empty: all = true means every task"),
        ("apply", vec!["kick".into(), options([("all", false.into())])], "the filter is empty"),
        ("apply", vec!["drop".into(), everything()], "there is no operation \"drop\""),
        ("apply", vec!["move".into(), everything()], "move needs the option to"),
        ("apply", vec!["move".into(), everything(), move_to("v")], "tube \"v\" does not exist"),
        ("apply", vec!["move".into(), everything(), move_to("t")], "are in tube \"t\" already"),
        ("apply", vec!["kick".into(), everything(), move_to("u")], "only move has the option to"),
        (
            "apply",
            vec!["kick".into(), options([("state", "r".into())])],
            "kick changes no task of the filter's state",
        ),
        ("apply", vec!["kick".into(), everything(), options([("rate", 0.into())])], "option rate"),
        ("apply", vec!["reschedule".into(), everything()], "reschedule needs the option delay"),
        ("apply", vec!["reschedule".into(), everything(), pri(1.into())], "has no delays and no priorities"),
        (
            "apply",
            vec!["reschedule".into(), everything(), pri(1.5.into())],
            "option pri should be a whole number",
        ),
        (
            "apply",
            vec!["reschedule".into(), everything(), delay(-1)],
            "option delay should be a number of seconds",
        ),
        ("apply", vec!["reschedule".into(), everything(), delay(i64::MAX)], "0 to 100 years"),
        (
            "apply",
            vec!["kick".into(), everything(), delay(1)],
            "only reschedule has the options delay and pri",
        ),
        ("find", vec![options([("older_than", 1.into())])], "tube \"t\" (fifo) keeps no time"),
        ("find", vec![options([("utube", "x".into())])], "has no sub-queues"),
        ("find", vec![options([("pri_to", 1.into())])], "has no priorities"),
        ("find", vec![options([("sate", "r".into())])], "the filter has no member sate"),
        ("find", vec![options([("state", "x".into())])], "state of the filter should be ready"),
        ("find", vec![options([("equals", 1.into())])], "need a field"),
        (
            "find",
            vec![options([("field", "n".into()), ("contains", "x".repeat(20_000).into())])],
            "the filter has 20021 bytes: it should have at most 16384",
        ),
        ("find", vec![options([("field", "a..b".into())])], "should be a path"),
        ("find", vec![everything(), options([("cursor", "00".into())])], "option cursor"),
        ("count", args!["x"], "the filter should be a map"),
        ("job", args![1], "tube \"t\" has no job 1"),
        ("undo", args![1], "tube \"t\" has no job 1"),
    ];
    for (method, arguments, expected) in refusals {
        let text = rig.t(1, method, arguments.clone()).error();
        assert!(text.contains(expected), "{method} {arguments:?}: {text}");
    }
    rig.users.insert(5, user::GUEST);
    assert!(rig.t(5, "apply", vec!["kick".into(), everything()]).error().contains("denied"));
    assert!(rig.t(5, "find", args![]).error().contains("denied"));
    rig.begin();
    let text = rig.t(1, "apply", vec!["kick".into(), everything()]).error();
    assert!(text.contains("cannot be a part of a transaction"), "{text}");
    rig.rollback();
    assert_eq!(rig.call(1, "queue.audit", args![]).values(), vec![Value::Array(vec![])]);
}

#[test]
fn each_operation_changes_the_tasks_of_its_states_and_is_undone() {
    for kind in KINDS {
        let mut rig = Rig::new();
        rig.create("t", kind, Value::Nil);
        rig.create("u", kind, Value::Nil);
        let timed = kind.ends_with("ttl");
        for name in ["a", "b", "c", "d"] {
            rig.t(1, "put", vec![name.into(), options([("utube", name.into())])]).values();
        }
        rig.t(2, "take", args![0]).values();
        rig.t(1, "bury", vec![1.into(), options([("reason", "x".into())])]).values();
        if timed {
            rig.t(1, "put", vec!["e".into(), options([("delay", 60.into())])]).values();
        }
        let before = rig.rows("t");
        let apply = |rig: &mut Rig, operation: &str, more: Value| {
            let dry = finished(
                rig,
                "apply",
                vec![
                    operation.into(),
                    everything(),
                    match &more {
                        Value::Map(pairs) => Value::Map(
                            pairs.iter().cloned().chain([("dry_run".into(), true.into())]).collect(),
                        ),
                        _ => options([("dry_run", true.into())]),
                    },
                ],
            );
            let job = finished(rig, "apply", vec![operation.into(), everything(), more]);
            assert_eq!(word(&job, "state"), "done", "{kind}: {job}");
            assert_eq!(number(&dry, "matched"), number(&job, "changed"), "{kind}: {dry} {job}");
            (number(&job, "id"), number(&job, "changed"))
        };
        let undo = |rig: &mut Rig, id: u64, undone: u64| {
            let job = finished(rig, "undo", args![id]);
            assert_eq!((word(&job, "state"), number(&job, "undone")), ("done", undone), "{kind}: {job}");
            let again = rig.t(1, "undo", args![id]).error();
            assert!(again.contains("nothing to undo"), "{again}");
        };
        for (operation, changes) in [
            ("kick", 1),
            ("bury", 2 + u64::from(timed)),
            ("delete", 3 + u64::from(timed)),
            ("run", u64::from(timed)),
        ] {
            let (id, changed) = apply(&mut rig, operation, Value::Nil);
            assert_eq!(changed, changes, "{kind}: {operation}");
            if changed > 0 {
                undo(&mut rig, id, changes);
            }
            assert_eq!(rig.rows("t"), before, "{kind}: {operation} and undo");
        }
        let (id, changed) = apply(&mut rig, "move", options([("to", "u".into())]));
        assert_eq!(
            (changed, rig.rows("t").len(), rig.rows("u").len()),
            (changed, 1, changed as usize),
            "{kind}"
        );
        undo(&mut rig, id, changed);
        assert_eq!((rig.rows("t"), rig.rows("u").len()), (before.clone(), 0), "{kind}");
        let (id, changed) = apply(&mut rig, "release", Value::Nil);
        assert_eq!(changed, 1, "{kind}");
        assert!(rig.t(1, "undo", args![id]).error().contains("nothing to undo"), "{kind}");
        assert_eq!(rig.t(2, "ack", args![0]).error(), "Task was not taken", "{kind}");
    }
}

#[test]
fn taken_tasks_are_changed_only_if_the_filter_says_so() {
    let mut rig = with_tasks("fifo");
    rig.t(2, "take", args![0]).values();
    let job = finished(&mut rig, "apply", vec!["delete".into(), everything()]);
    assert_eq!((number(&job, "changed"), rig.rows("t").len()), (5, 1));
    let taken = options([("state", "taken".into())]);
    let job = counted(&mut rig, vec!["delete".into(), taken]);
    let job = finished(&mut rig, "apply", job);
    assert_eq!((number(&job, "changed"), rig.rows("t").len()), (1, 0));
    // Its session does not hold it any more, so it comes back ready.
    finished(&mut rig, "undo", args![number(&job, "id")]);
    assert_eq!(rig.t(3, "peek", args![0]).values()[0].as_array().expect("a task")[1], "r".into());
}

#[test]
fn a_moved_task_keeps_its_priority_times_attempts_and_sub_queue() {
    let mut rig = Rig::new();
    rig.create("t", "utubettl", Value::Nil);
    rig.create("u", "utubettl", Value::Nil);
    let given = options([
        ("pri", 3.into()),
        ("ttl", 100.into()),
        ("ttr", 7.into()),
        ("utube", "x".into()),
        ("delay", 20.into()),
    ]);
    rig.t(1, "put", vec!["a".into(), given]).values();
    rig.now += 5 * SECOND;
    rig.t(1, "bury", vec![0.into(), options([("reason", "why".into())])]).values();
    rig.t(1, "kick", args![1]).values();
    let extended = options([("extended", true.into())]);
    let before = rig.t(1, "peek", vec![0.into(), extended.clone()]).values().remove(0);
    finished(&mut rig, "apply", vec!["move".into(), everything(), options([("to", "u".into())])]);
    let after = rig.call(1, "queue.tube.u:peek", vec![0.into(), extended]).values().remove(0);
    let member = |task: &Value, name: &str| task.as_array().expect("a task")[3].get(name).cloned();
    for name in ["pri", "ttr", "utube", "attempts", "last_error", "failed_at", "due"] {
        assert_eq!(member(&after, name), member(&before, name), "{name}: {before} {after}");
    }
    assert_eq!(member(&after, "ttl"), Some(115.into()));
}

#[test]
fn a_job_is_paused_resumed_slowed_and_cancelled() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    rig.t(1, "put_many", vec![Value::array((0..1_000_u64).map(Value::from))]).values();
    let job = rig
        .t(1, "apply", vec!["bury".into(), everything(), options([("rate", 100.into())])])
        .values()
        .remove(0);
    let id = number(&job, "id");
    let look = |rig: &mut Rig| rig.t(1, "job", args![id]).values().remove(0);
    rig.advance(SECOND);
    let changed = number(&look(&mut rig), "changed");
    assert!((90..=120).contains(&changed), "{changed} in the first second");
    let control = |rig: &mut Rig, action: &str| rig.t(1, "control", args![id, action]).values().remove(0);
    assert_eq!(word(&control(&mut rig, "pause"), "state"), "paused");
    rig.advance(10 * SECOND);
    assert_eq!(number(&look(&mut rig), "changed"), changed);
    rig.restart();
    rig.advance(10 * SECOND);
    assert_eq!(number(&look(&mut rig), "changed"), changed, "a restart resumes no paused job");
    control(&mut rig, "resume");
    let slow = options([("rate", 10.into())]);
    rig.t(1, "control", vec![id.into(), "rate".into(), slow]).values();
    rig.advance(SECOND);
    let slowed = number(&look(&mut rig), "changed") - changed;
    assert!((9..=12).contains(&slowed), "{slowed}");
    assert_eq!(word(&control(&mut rig, "cancel"), "state"), "cancelled");
    let changed = number(&look(&mut rig), "changed");
    rig.advance(10 * SECOND);
    assert_eq!(number(&look(&mut rig), "changed"), changed);
    assert!(rig.t(1, "control", args![id, "resume"]).error().contains("is over: it is cancelled"));
    assert_eq!(number(&finished(&mut rig, "undo", args![id]), "undone"), changed);
    let operations: Vec<_> = rig.call(1, "queue.audit", args![]).values()[0]
        .as_array()
        .expect("entries")
        .iter()
        .map(|entry| word(entry, "operation").to_owned())
        .collect();
    assert_eq!(operations, ["undo", "cancel job", "set rate of job", "resume job", "pause job", "bury"]);
    assert_eq!(rig.t(1, "jobs", args![]).values()[0].as_array().expect("jobs").len(), 2);
}

/// A truncated tube ends all its jobs at once. Their rows are read again in steps, each as long as the clock lets it be.
#[test]
fn rows_of_jobs_are_read_again_in_bounded_steps() {
    const JOBS: usize = 60;
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    rig.t(1, "put_many", vec![Value::array((0..JOBS as u64).map(Value::from))]).values();
    for id in 0..JOBS as u64 {
        let one = options([("id_from", id.into()), ("id_to", id.into())]);
        finished(&mut rig, "apply", vec!["bury".into(), one]);
    }
    assert_eq!(rig.rows("_lycosa_bin").len(), JOBS);
    rig.t(1, "truncate", args![]).values();
    // A step that looks at the clock ends there, and that is once in 16 rows: no kept task is forgotten before the last row is read.
    for step in 0..JOBS / 16 {
        rig.queue.work(&mut rig.store, rig.now, Budget::of_rows(512).within(&|| 1, 0));
        rig.collect_committed();
        assert_eq!(rig.rows("_lycosa_bin").len(), JOBS, "step {step}");
        assert_eq!(rig.queue.next_work(), Some(0), "step {step}");
    }
    rig.tick();
    assert_eq!((rig.rows("_lycosa_bin").len(), rig.queue.next_work()), (0, None));
}

#[test]
fn the_end_of_an_undo_hastens_no_other_job() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    rig.t(1, "put_many", vec![Value::array((0..20_u64).map(Value::from))]).values();
    let first = options([("id_to", 0.into()), ("id_from", 0.into())]);
    let job = number(&finished(&mut rig, "apply", vec!["bury".into(), first]), "id");
    let slowly = vec!["bury".into(), everything(), options([("rate", 10.into())])];
    let slow = number(&finished(&mut rig, "apply", slowly), "id");
    let changed = |rig: &mut Rig| number(&rig.t(1, "job", args![slow]).values()[0], "changed");
    assert_eq!(changed(&mut rig), 1);
    assert_eq!(number(&finished(&mut rig, "undo", args![job]), "undone"), 1);
    assert_eq!(changed(&mut rig), 1);
    rig.advance(SECOND / 10);
    assert_eq!(changed(&mut rig), 2);
}

#[test]
fn a_tube_with_the_id_of_a_dropped_one_has_none_of_its_jobs() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    rig.t(1, "put", args!["one"]).values();
    let dry = finished(
        &mut rig,
        "apply",
        vec!["delete".into(), options([("state", "r".into())]), options([("dry_run", true.into())])],
    );
    let job = number(&finished(&mut rig, "apply", vec!["bury".into(), everything()]), "id");
    rig.t(1, "drop", args![]).values();
    rig.create("other", "fifo", Value::Nil);
    assert_eq!(rig.rows("_lycosa_jobs").len(), 2);
    assert_eq!(rig.call(1, "queue.tube.other:jobs", args![]).values(), [Value::Array(Vec::new())]);
    for method in ["job", "undo", "control"] {
        let refused = rig.call(1, &format!("queue.tube.other:{method}"), args![job, "cancel"]).error();
        assert!(refused.contains(&format!("tube \"other\" has no job {job}")), "{refused}");
    }
    let counted = options([("counted", number(&dry, "id").into())]);
    let arguments = vec!["delete".into(), options([("state", "r".into())]), counted];
    let refused = rig.call(1, "queue.tube.other:apply", arguments).error();
    assert!(refused.contains(&format!("tube \"other\" has no job {}", number(&dry, "id"))), "{refused}");
}

/// The ids of the kept tasks stand for others since.
#[test]
fn what_was_deleted_before_a_tube_was_made_anew_does_not_come_back_when_the_clock_is_put_back() {
    for way in ["truncate", "drop"] {
        let mut rig = Rig::new();
        rig.create("t", "fifo", Value::Nil);
        rig.t(1, "put_many", vec![Value::array((0..5_u64).map(Value::from))]).values();
        let job = number(&finished(&mut rig, "apply", vec!["delete".into(), everything()]), "id");
        rig.t(1, way, args![]).values();
        if way == "drop" {
            rig.create("t", "fifo", Value::Nil);
        }
        // No step of work comes between.
        rig.now -= SECOND;
        let refused = rig.t(1, "undo", args![job]).error();
        assert!(refused.contains("cannot be undone any more"), "{way}: {refused}");
        rig.tick();
        assert_eq!((rig.rows("_lycosa_bin").len(), rig.rows("t").len()), (0, 0), "{way}");
    }
}

#[test]
fn undo_is_honest_about_what_was_taken_since_and_ends_with_its_time() {
    for kind in KINDS {
        let mut rig = Rig::new();
        rig.create("t", kind, Value::Nil);
        for n in 0..10_u64 {
            rig.t(1, "put", vec![n.into(), options([("utube", n.to_string().into())])]).values();
            rig.t(1, "bury", args![n]).values();
        }
        let job = finished(&mut rig, "apply", vec!["kick".into(), everything()]);
        let id = number(&job, "id");
        assert_eq!((number(&job, "changed"), number(&job, "kept")), (10, 10), "{kind}");
        for _ in 0..3 {
            rig.t(2, "take", args![0]).values();
        }
        rig.t(2, "ack", args![0]).values();
        rig.restart();
        let undone = finished(&mut rig, "undo", args![id]);
        // A restart has given the two tasks back that were taken.
        assert_eq!(
            (number(&undone, "undone"), number(&undone, "touched_since"), number(&undone, "gone")),
            (9, 0, 1),
            "{kind}"
        );
        let job = finished(&mut rig, "apply", vec!["kick".into(), everything()]);
        rig.t(2, "take", args![0]).values();
        let undone = finished(&mut rig, "undo", args![number(&job, "id")]);
        assert_eq!((number(&undone, "undone"), number(&undone, "touched_since")), (8, 1), "{kind}");
        let job = finished(&mut rig, "apply", vec!["kick".into(), everything()]);
        rig.advance(3_601 * SECOND);
        let refused = rig.t(1, "undo", args![number(&job, "id")]).error();
        assert!(refused.contains("nothing to undo"), "{kind}: {refused}");
        assert_eq!(rig.rows("_lycosa_bin").len(), 0, "{kind}");
    }
}

#[test]
fn chosen_tasks_are_changed_by_one_job_each_in_the_state_in_which_it_was_chosen() {
    for kind in KINDS {
        let mut rig = Rig::new();
        rig.create("t", kind, Value::Nil);
        for n in 0..6_u64 {
            rig.t(1, "put", vec![n.into(), options([("utube", n.to_string().into())])]).values();
        }
        rig.t(1, "bury", args![4]).values();
        rig.t(2, "take", args![0]).values();
        let before = rig.rows("t");
        let pair = |id: u64, state: &str| Value::array([Value::from(id), Value::from(state)]);
        // Task 0 is taken, 3 was buried when it was chosen and is ready, 9 does not exist.
        let ids = Value::array([
            pair(0, "taken"),
            pair(1, "ready"),
            pair(3, "buried"),
            pair(4, "buried"),
            9.into(),
        ]);
        let filter = options([("ids", ids)]);
        assert_eq!(found(&mut rig, &filter, 2), (vec![0, 1, 4], 5), "{kind}");
        let job = counted(&mut rig, vec!["delete".into(), filter]);
        let job = finished(&mut rig, "apply", job);
        assert_eq!(
            (number(&job, "total"), number(&job, "scanned"), number(&job, "changed")),
            (5, 5, 3),
            "{kind}"
        );
        let left: Vec<u64> =
            rig.rows("t").iter().map(|row| row.as_array().unwrap()[0].as_u64().unwrap()).collect();
        assert_eq!(left, [2, 3, 5], "{kind}");
        assert_eq!(number(&finished(&mut rig, "undo", args![number(&job, "id")]), "undone"), 3, "{kind}");
        assert_eq!(rig.rows("t").len(), before.len(), "{kind}");
        // A taken task is left to its worker unless its state is named.
        rig.t(2, "take", args![0]).values();
        let bare = options([("ids", Value::array((0..6_u64).map(Value::from))), ("all", true.into())]);
        let job = finished(&mut rig, "apply", vec!["delete".into(), bare]);
        assert_eq!((number(&job, "changed"), rig.rows("t").len()), (5, 1), "{kind}");
        for (ids, says) in [
            (Value::array([0_u64; 0]), "at least 1"),
            (Value::array((0..1_001_u64).map(Value::from)), "at most 1000"),
            (Value::array([pair(0, "gone")]), "pairs of an id and a state"),
            (Value::from(3_u64), "an array of ids"),
        ] {
            let refused = rig.t(1, "count", vec![options([("ids", ids)])]).error();
            assert!(refused.contains(says), "{kind}: {refused}");
        }
    }
}

#[test]
fn the_time_to_undo_begins_anew_while_an_undo_is_paused_and_a_restart_keeps_it() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    rig.t(1, "put_many", vec![Value::array((0..20_u64).map(Value::from))]).values();
    let job = finished(&mut rig, "apply", vec!["delete".into(), everything()]);
    let (id, until) = (number(&job, "id"), job.get("undo_until").cloned());
    let undo = number(&rig.t(1, "undo", args![id]).values().remove(0), "id");
    rig.t(1, "control", args![undo, "pause"]).values();
    rig.advance(3_601 * SECOND);
    let job = rig.t(1, "job", args![id]).values().remove(0);
    assert_ne!(job.get("undo_until").cloned(), until, "the time that the job shows");
    rig.restart();
    rig.tick();
    assert_eq!(rig.rows("_lycosa_bin").len(), 20);
    rig.t(1, "control", args![undo, "cancel"]).values();
    assert_eq!(number(&finished(&mut rig, "undo", args![id]), "undone"), 20);
}

#[test]
fn the_bin_has_a_bound_and_the_job_says_what_it_kept() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    let large = "x".repeat(900_000);
    for _ in 0..80 {
        rig.t(1, "put", args![large.as_str()]).values();
    }
    let job = finished(&mut rig, "apply", vec!["delete".into(), everything()]);
    let kept = number(&job, "kept");
    assert_eq!((number(&job, "changed"), kept), (80, (64 << 20) / 900_020), "{job}");
    let undone = finished(&mut rig, "undo", args![number(&job, "id")]);
    assert_eq!((number(&undone, "undone"), rig.rows("t").len() as u64), (kept, kept));
}

#[test]
fn jobs_end_with_the_ids_that_they_mean() {
    for end in ["truncate", "drop"] {
        let mut rig = Rig::new();
        rig.create("t", "fifo", Value::Nil);
        rig.create("u", "fifo", Value::Nil);
        rig.t(1, "put_many", vec![Value::array((0..2_000_u64).map(Value::from))]).values();
        let deleted = counted(&mut rig, vec!["delete".into(), options([("id_to", 9.into())])]);
        let deleted = finished(&mut rig, "apply", deleted);
        let moved = vec!["move".into(), options([("id_to", 19.into())]), options([("to", "u".into())])];
        let moved = counted(&mut rig, moved);
        let moved = finished(&mut rig, "apply", moved);
        let job = rig.t(1, "apply", vec!["delete".into(), everything()]).values().remove(0);
        rig.t(1, end, args![]).values();
        if end == "drop" {
            rig.create("t", "fifo", Value::Nil);
        }
        rig.t(1, "put_many", vec![Value::array((0..2_000_u64).map(Value::from))]).values();
        rig.tick();
        assert_eq!(rig.rows("t").len(), 2_000, "{end}: the new tasks are other tasks");
        for job in [&deleted, &moved] {
            let refused = rig.t(1, "undo", args![number(job, "id")]);
            assert!(matches!(refused, Reply::Error(_)), "{end}: {refused:?}");
        }
        if end == "truncate" {
            let job = rig.t(1, "job", args![number(&job, "id")]).values().remove(0);
            assert_eq!((word(&job, "state"), word(&job, "error")), ("failed", "the tube was truncated"));
        }
        rig.advance(SECOND);
        assert_eq!(rig.rows("_lycosa_bin").len(), 0, "{end}");
        assert_eq!(rig.rows("u").len(), 10, "{end}: moved tasks stay");
    }
}

#[test]
fn a_move_into_a_full_tube_waits_for_its_operator() {
    let mut rig = Rig::new();
    rig.create("t", "fifottl", Value::Nil);
    rig.create("u", "limfifottl", options([("capacity", 3.into())]));
    for n in 0..5_u64 {
        rig.t(1, "put", args![n]).values();
    }
    let job = finished(&mut rig, "apply", vec!["move".into(), everything(), options([("to", "u".into())])]);
    assert_eq!((word(&job, "state"), word(&job, "error")), ("paused", "move: tube \"u\" is full"));
    assert_eq!((number(&job, "changed"), rig.rows("t").len(), rig.rows("u").len()), (3, 2, 3));
    rig.call(2, "queue.tube.u:take", args![0]).values();
    rig.call(2, "queue.tube.u:ack", args![0]).values();
    rig.t(1, "control", args![number(&job, "id"), "resume"]).values();
    rig.tick();
    assert_eq!((rig.rows("t").len(), rig.rows("u").len()), (1, 3));
}

#[test]
fn a_job_goes_on_after_a_promotion() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    rig.t(1, "put_many", vec![Value::array((0..2_000_u64).map(Value::from))]).values();
    let mut replica = Rig::replica_of(&rig);
    let job = rig.t(1, "apply", vec!["bury".into(), everything()]).values().remove(0);
    rig.work(512);
    replica.apply_of(&rig, usize::MAX);
    replica.promote();
    replica.tick();
    let job = replica.t(1, "job", args![number(&job, "id")]).values().remove(0);
    assert_eq!((word(&job, "state"), number(&job, "changed")), ("done", 2_000));
    assert_eq!(number(&finished(&mut replica, "undo", args![number(&job, "id")]), "undone"), 2_000);
}
