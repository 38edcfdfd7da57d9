//! `reschedule`: new delays and priorities, and their undo.

use lycosa_tuple::value::Value;

use super::{everything, finished, number};
use crate::rig::{Rig, SECOND, args, options};

/// The state, the next event, the ttl and the priority of a task.
fn schedule_of(rig: &Rig, id: u64) -> (String, u64, u64, u64) {
    let rows = rig.rows("t");
    let row = rows.iter().filter_map(Value::as_array).find(|row| row[0].as_u64() == Some(id));
    let row = row.expect("the task exists");
    let number = |field: usize| row[field].as_u64().expect("a number");
    (row[1].as_str().expect("a state").to_owned(), number(2), number(3), number(5))
}

#[test]
fn delays_and_priorities_change_and_come_back() {
    for kind in ["fifottl", "limfifottl", "utubettl"] {
        let mut rig = Rig::new();
        rig.create("t", kind, Value::Nil);
        for (name, delay) in [("a", 0), ("b", 0), ("c", 60), ("d", 0), ("e", 0)] {
            let given =
                [("utube", name.into()), ("delay", delay.into()), ("ttl", 100.into()), ("pri", 3.into())];
            rig.t(1, "put", vec![name.into(), options(given)]).values();
        }
        rig.t(2, "take", args![0]).values();
        rig.t(1, "bury", args![3]).values();
        let (before, now) = (rig.rows("t"), rig.now);
        let anew = |more: &[(&str, Value)]| {
            vec!["reschedule".into(), everything(), Value::map(more.iter().cloned())]
        };
        let undo = |rig: &mut Rig, job: &Value| {
            let undone = finished(rig, "undo", args![number(job, "id")]);
            assert_eq!(number(&undone, "undone"), number(job, "changed"), "{kind}: {undone}");
            assert_eq!(rig.rows("t"), before, "{kind}");
        };

        let job = finished(&mut rig, "apply", anew(&[("delay", 90.5.into()), ("pri", 1.into())]));
        assert_eq!((number(&job, "changed"), number(&job, "kept")), (3, 3), "{kind}: {job}");
        assert_eq!((job.get("delay"), number(&job, "pri")), (Some(&90.5.into()), 1), "{kind}: {job}");
        let end = now + 90 * SECOND + SECOND / 2;
        // The ttl grows by what the task waits longer: 90.5 s of a ready task, 30.5 s of one that was put with a delay of 60 s.
        assert_eq!(schedule_of(&rig, 1), ("~".into(), end, 190_500_000, 1), "{kind}");
        assert_eq!(schedule_of(&rig, 2), ("~".into(), end, 190_500_000, 1), "{kind}");
        undo(&mut rig, &job);

        let taken =
            vec!["reschedule".into(), options([("state", "taken".into())]), options([("pri", 1.into())])];
        let refused = rig.t(1, "apply", taken).error();
        assert!(refused.contains("reschedule changes no task of the filter's state"), "{kind}: {refused}");

        let job = finished(&mut rig, "apply", anew(&[("delay", 0.into())]));
        assert_eq!(number(&job, "changed"), 1, "{kind}: only the delayed task waits for nothing now");
        assert_eq!(schedule_of(&rig, 2), ("r".into(), now + 160 * SECOND, 160_000_000, 3), "{kind}");
        undo(&mut rig, &job);

        let job = finished(&mut rig, "apply", anew(&[("pri", 9.into())]));
        assert_eq!(number(&job, "changed"), 3, "{kind}");
        let again = finished(&mut rig, "apply", anew(&[("pri", 9.into())]));
        assert_eq!(number(&again, "changed"), 0, "{kind}: all have it already");
        undo(&mut rig, &job);
    }
}

#[test]
fn a_new_delay_ends_and_a_new_priority_is_taken_first() {
    let mut rig = Rig::new();
    rig.create("t", "fifottl", Value::Nil);
    for name in ["a", "b", "c"] {
        rig.t(1, "put", vec![name.into(), options([("pri", 5.into())])]).values();
    }
    let one = |id: u64| options([("id_from", id.into()), ("id_to", id.into())]);
    finished(&mut rig, "apply", vec!["reschedule".into(), one(2), options([("pri", 0.into())])]);
    let job = finished(&mut rig, "apply", vec!["reschedule".into(), one(0), options([("delay", 5.into())])]);
    let take = |rig: &mut Rig| match rig.t(2, "take", args![0]).values().first() {
        Some(task) => task.as_array().expect("a task")[0].as_u64(),
        None => None,
    };
    assert_eq!([take(&mut rig), take(&mut rig), take(&mut rig)], [Some(2), Some(1), None]);
    rig.advance(5 * SECOND);
    assert_eq!(schedule_of(&rig, 0).0, "r");
    assert_eq!(take(&mut rig), Some(0));
    let undone = finished(&mut rig, "undo", args![number(&job, "id")]);
    assert_eq!((number(&undone, "undone"), number(&undone, "touched_since")), (0, 1), "{undone}");
}

#[test]
fn an_undo_leaves_tasks_that_were_rescheduled_again() {
    let mut rig = Rig::new();
    rig.create("t", "fifottl", Value::Nil);
    for name in ["a", "b", "c"] {
        rig.t(1, "put", args![name]).values();
    }
    let later =
        |seconds: u64, filter: Value| vec!["reschedule".into(), filter, options([("delay", seconds.into())])];
    let first = finished(&mut rig, "apply", later(60, everything()));
    rig.now += SECOND;
    let one = |id: u64| options([("id_from", id.into()), ("id_to", id.into())]);
    finished(&mut rig, "apply", later(90, one(0)));
    finished(&mut rig, "apply", vec!["run".into(), one(1)]);
    let undone = finished(&mut rig, "undo", args![number(&first, "id")]);
    assert_eq!((number(&undone, "undone"), number(&undone, "touched_since")), (1, 2), "{undone}");
    assert_eq!(schedule_of(&rig, 2).0, "r");
}

/// A walk by priority would meet a task again whose number has grown, and miss one whose number has shrunk.
#[test]
fn priorities_change_while_no_other_job_changes_tasks() {
    let mut rig = Rig::new();
    rig.create("t", "fifottl", Value::Nil);
    for n in 0..2_000_u64 {
        rig.t(1, "put", vec![n.into(), options([("pri", (n % 7).into()), ("delay", 60.into())])]).values();
    }
    let delayed = || options([("state", "delayed".into()), ("all", true.into())]);
    let more = options([("delay", 90.into()), ("pri", 100.into())]);
    let job = finished(&mut rig, "apply", vec!["reschedule".into(), delayed(), more.clone()]);
    assert_eq!(
        (number(&job, "scanned"), number(&job, "changed"), number(&job, "kept")),
        (2_000, 2_000, 2_000)
    );

    let slow = options([("rate", 10.into())]);
    let slow = rig.t(1, "apply", vec!["bury".into(), delayed(), slow]).values().remove(0);
    let refused = rig.t(1, "apply", vec!["reschedule".into(), delayed(), more]).error();
    assert!(refused.contains(&format!("job {} of tube \"t\" is running", number(&slow, "id"))), "{refused}");
    let refused = rig.t(1, "undo", args![number(&job, "id")]).error();
    assert!(refused.contains("priorities change while no other job changes tasks"), "{refused}");
    let later = options([("delay", 5.into())]);
    rig.t(1, "apply", vec!["reschedule".into(), delayed(), later]).values();
}
