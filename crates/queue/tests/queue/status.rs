//! The status: ages, waits, rates, histories, pages.

use lycosa_queue::Operation;
use lycosa_queue::status::{Histogram, MAX_HISTORIES, Page, Survey};
use lycosa_store::{Budget, Statement, user};
use lycosa_tuple::value::Value;

use crate::rig::{Rig, SECOND, args, options};

/// What a histogram with these durations in it has.
fn histogram(durations: &[u64]) -> Option<Histogram> {
    let mut histogram = Histogram::default();
    durations.iter().for_each(|duration| histogram.record(*duration));
    Some(histogram)
}

/// Tasks of tubes with deadlines have the time of their put; other tubes keep it in a sample, which has each of a few tasks.
#[test]
fn waits_and_works_are_measured_in_tubes_of_all_types() {
    for tube_type in ["fifo", "fifottl", "limfifottl", "utube", "utubettl"] {
        let mut rig = Rig::new();
        rig.create("t", tube_type, options([]));
        let key = |number: u64| options([("utube", Value::from(number))]);
        rig.t(1, "put", args!["x", key(0)]).values();
        rig.advance(2 * SECOND);
        rig.t(1, "put", args!["y", key(1)]).values();
        rig.advance(SECOND);
        assert_eq!(rig.status().oldest_ready_age, Some(3 * SECOND), "{tube_type}");
        assert_eq!(rig.status().oldest_taken_age, None);
        rig.t(1, "take", args![0]).values();
        assert_eq!(rig.status().oldest_ready_age, Some(SECOND), "{tube_type}");
        rig.advance(5 * SECOND);
        rig.t(1, "take", args![0]).values();
        rig.advance(7 * SECOND);
        let status = rig.status();
        assert_eq!(
            (status.oldest_ready_age, status.oldest_taken_age),
            (None, Some(12 * SECOND)),
            "{tube_type}"
        );
        rig.t(1, "ack", args![0]).values();
        assert_eq!(rig.status().oldest_taken_age, Some(7 * SECOND), "{tube_type}");
        rig.t(1, "release", args![1]).values();
        let status = rig.status();
        assert_eq!(status.wait, histogram(&[3 * SECOND, 6 * SECOND]), "{tube_type}");
        assert_eq!(status.work, histogram(&[12 * SECOND]), "{tube_type}");
        let total = rig.queue.status(&rig.store, rig.now);
        assert_eq!((Some(total.wait), Some(total.work)), (status.wait, status.work), "{tube_type}");
        assert_eq!((total.tasks, total.counters), (status.tasks, status.counters), "{tube_type}");
    }
}

#[test]
fn what_a_rollback_takes_back_is_not_measured() {
    let mut rig = Rig::new();
    rig.create("t", "fifottl", options([]));
    rig.t(1, "put", args!["x"]).values();
    rig.begin();
    rig.t(1, "take", args![0]).values();
    rig.t(1, "ack", args![0]).values();
    rig.rollback();
    let status = rig.status();
    assert_eq!((status.wait, status.work), (histogram(&[]), histogram(&[])));
    assert_eq!(status.counters.get(Operation::Take), 0);
    assert_eq!(status.oldest_taken_age, None);
}

#[test]
fn the_oldest_of_many_priorities_is_found() {
    let mut rig = Rig::new();
    rig.create("t", "fifottl", options([]));
    for pri in [9, 3, 7] {
        rig.t(1, "put", args!["x", options([("pri", Value::from(pri))])]).values();
        rig.advance(SECOND);
    }
    assert_eq!(rig.status().oldest_ready_age, Some(3 * SECOND), "the one with priority 9");
}

/// A tube keeps what a look at its ready tasks has found: each way in which a task comes, goes or changes makes it look again.
#[test]
fn the_oldest_ready_task_is_the_present_one_whatever_has_changed_the_tube() {
    for tube_type in ["fifo", "fifottl", "limfifottl", "utube", "utubettl"] {
        let mut rig = Rig::new();
        rig.create("t", tube_type, Value::Nil);
        for _ in 0..6 {
            rig.t(1, "put", args!["x"]).values();
            rig.advance(SECOND);
        }
        let age = |rig: &mut Rig| rig.status().oldest_ready_age.map(|age| age / SECOND);
        let (space, key) = (rig.space_id("t"), |id: u64| Value::array([id]).encode());
        assert_eq!(age(&mut rig), Some(6), "{tube_type}");
        rig.t(1, "take", args![0]).values();
        assert_eq!(age(&mut rig), Some(5), "taken, {tube_type}");
        rig.t(1, "release", args![0]).values();
        assert_eq!(age(&mut rig), Some(6), "released, {tube_type}");
        rig.t(1, "delete", args![0]).values();
        assert_eq!(age(&mut rig), Some(5), "deleted, {tube_type}");
        rig.execute(&Statement::Delete { space, index: 0, key: &key(1) }).expect("a delete");
        assert_eq!(age(&mut rig), Some(4), "deleted by a client, {tube_type}");
        rig.begin();
        rig.t(1, "delete", args![2]).values();
        assert_eq!(age(&mut rig), Some(3), "inside a transaction, {tube_type}");
        rig.rollback();
        assert_eq!(age(&mut rig), Some(4), "rolled back, {tube_type}");
        rig.t(1, "take", args![0]).values();
        rig.t(1, "bury", args![2]).values();
        assert_eq!(age(&mut rig), Some(3), "buried, {tube_type}");
        rig.t(1, "kick", args![1]).values();
        assert_eq!(age(&mut rig), Some(4), "kicked, {tube_type}");
        rig.t(1, "delete_many", args![Value::array([2_u64, 3, 4])]).values();
        assert_eq!(age(&mut rig), Some(1), "one is left, {tube_type}");
        rig.t(1, "truncate", args![]).values();
        assert_eq!(age(&mut rig), None, "none is left, {tube_type}");
    }
}

/// After a restart the owners that are kept say since when their tasks are taken.
#[test]
fn the_oldest_taken_task_is_known_after_a_restart() {
    let mut rig = Rig::with_ttr(100.0, true);
    rig.create("t", "fifo", options([]));
    rig.t(1, "put", args!["x"]).values();
    rig.t(1, "take", args![0]).values();
    rig.advance(2 * SECOND);
    rig.restart();
    assert_eq!(rig.status().oldest_taken_age, Some(2 * SECOND));
}

#[test]
fn waiting_calls_and_capacity_are_told() {
    let mut rig = Rig::new();
    rig.create("t", "limfifottl", options([("capacity", Value::from(1))]));
    rig.t(1, "take", args![100]).token();
    rig.t(2, "take", args![100]).token();
    let status = rig.status();
    assert_eq!((status.capacity, status.waiting_takes, status.waiting_puts), (Some(1), 2, 0));
    rig.t(1, "put", args!["x"]).values();
    rig.t(1, "put", args!["x", options([("timeout", Value::from(50))])]).token();
    let status = rig.status();
    assert_eq!((status.waiting_takes, status.waiting_puts, status.tasks.taken), (1, 1, 1));
    rig.advance(60 * SECOND);
    let status = rig.status();
    assert_eq!((status.waiting_takes, status.waiting_puts), (1, 0));
}

#[test]
fn sub_queues_are_told_with_their_tasks() {
    let mut rig = Rig::new();
    rig.create("t", "utube", options([]));
    let put = |rig: &mut Rig, key: &str, count: u64| {
        let key = options([("utube", Value::from(key))]);
        (0..count).for_each(|_| drop(rig.t(1, "put", args!["x", key.clone()]).values()));
    };
    put(&mut rig, "a", 2);
    put(&mut rig, "b", 40);
    rig.t(1, "take", args![0]).values();
    let status = rig.status();
    assert_eq!((status.ready_keys, status.busy_keys), (Some(1), Some(1)));
    let names: Vec<_> =
        status.sub_queues.iter().map(|sub| (&sub.name[..], sub.tasks.ready, sub.tasks.taken)).collect();
    assert_eq!(names, [(&b"b"[..], 40, 0), (b"a", 1, 1)]);
}

/// No timer drives rates and histories: operations and readers do.
#[test]
fn rates_and_history_follow_the_operations() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", options([]));
    for _ in 0..30 {
        (0..20).for_each(|_| drop(rig.t(1, "put", args!["x"]).values()));
        rig.t(1, "take", args![0]).values();
        rig.advance(10 * SECOND);
    }
    assert_eq!(rig.queue.next_deadline(), None);
    let status = rig.status();
    let rates = status.rates.expect("a meter");
    assert!((1.9..=2.0).contains(&rates.puts[0]) && (0.09..=0.1).contains(&rates.takes[0]), "{rates:?}");
    assert!(rates.puts[2] < rates.puts[1] && rates.puts[1] < rates.puts[0]);
    let history = status.history.expect("one of the busiest tubes");
    let last = history.fine().back().expect("periods");
    assert_eq!((history.fine().len(), last.tasks, last.counts), (30, [30 * 19, 30, 0, 0], [20, 1, 0]));
    rig.advance(3600 * SECOND);
    assert!(rig.status().rates.expect("a meter").puts[0] < 0.001);
    // An hour without operations is a line at zero, and no gap.
    let total = rig.queue.status(&rig.store, rig.now).history;
    let tube = rig.status().history.expect("one of the busiest tubes");
    for history in [total, tube] {
        let last = history.fine().back().expect("periods");
        assert_eq!((history.fine().len(), last.tasks, last.counts), (360, [30 * 19, 30, 0, 0], [0, 0, 0]));
        assert_eq!(history.coarse().iter().map(|period| period.counts[0]).sum::<u32>(), 600);
    }
}

#[test]
fn lateness_is_that_of_deadlines_that_fire() {
    let mut rig = Rig::new();
    rig.create("t", "fifottl", options([]));
    rig.t(1, "put", args!["x", options([("delay", Value::from(1))])]).values();
    rig.t(1, "put", args!["x", options([("delay", Value::from(2))])]).values();
    rig.now += 3 * SECOND;
    assert_eq!(rig.queue.status(&rig.store, rig.now).overdue, 2);
    rig.tick();
    let status = rig.queue.status(&rig.store, rig.now);
    assert_eq!((Some(status.lateness), status.overdue), (histogram(&[2 * SECOND, SECOND]), 0));
}

/// Pages have each tube that the caller may look at once, and no other tube.
#[test]
fn pages_go_through_all_tubes() {
    let mut rig = Rig::new();
    (0..25).for_each(|number| rig.create(&format!("t{number}"), "fifo", options([])));
    let caller = rig.caller(1);
    let (mut names, mut after) = (Vec::new(), None);
    loop {
        let page = Page { after, limit: 10, ..Page::default() };
        let (found, next) = rig.queue.statuses(&rig.store, &caller, page, rig.now).expect("spaces");
        assert!(found.len() <= 10);
        names.extend(found.into_iter().map(|tube| tube.name));
        after = next;
        if next.is_none() {
            break;
        }
    }
    assert_eq!(names, (0..25).map(|number| format!("t{number}")).collect::<Vec<_>>());
    let stranger = caller.acting_as(user::GUEST);
    let page = Page { limit: 100, ..Page::default() };
    assert!(rig.queue.statuses(&rig.store, &stranger, page, rig.now).expect("spaces").0.is_empty());
}

#[test]
fn only_so_many_tubes_have_a_history() {
    let mut rig = Rig::new();
    let tubes = MAX_HISTORIES + 5;
    (0..tubes).for_each(|number| rig.create(&format!("t{number}"), "fifo", options([])));
    for _ in 0..3 {
        for number in 0..tubes {
            rig.call(1, &format!("queue.tube.t{number}:put"), args!["x"]).values();
        }
        rig.advance(10 * SECOND);
    }
    let caller = rig.caller(1);
    let page = Page { limit: Page::MAX_TUBES, history: true, ..Page::default() };
    let (found, _) = rig.queue.statuses(&rig.store, &caller, page, rig.now).expect("spaces");
    let count = found.iter().filter(|tube| tube.history.is_some()).count();
    assert_eq!((found.len(), count), (tubes, MAX_HISTORIES));
}

/// A survey in the smallest steps sees each tube once, and tells the faults that a recount of all statuses finds.
#[test]
fn a_survey_finds_the_tubes_with_faults() {
    let mut rig = Rig::new();
    for name in ["well", "left", "paused", "buried", "held", "served", "full"] {
        let of = if name == "full" { "limfifottl" } else { "fifottl" };
        let capacity = options([("capacity", Value::from(1))]);
        rig.create(name, of, if name == "full" { capacity } else { options([]) });
    }
    let mut call =
        |function: &str, args: Vec<Value>| rig.call(1, &format!("queue.tube.{function}"), args).values();
    for name in ["left", "paused", "buried", "held", "full"] {
        call(&format!("{name}:put"), args!["x"]);
    }
    for name in ["buried", "held"] {
        call(&format!("{name}:take"), args![0]);
    }
    call("buried:bury", args![0]);
    call("paused:pause", args![]);
    rig.now += 601 * SECOND;
    rig.call(1, "queue.tube.served:put", args!["x"]).values();
    let (mut survey, mut after, mut steps) = (Survey::default(), None, 0);
    loop {
        steps += 1;
        after =
            rig.queue.survey(&rig.store, after, Budget::of_rows(1), rig.now, &mut survey).expect("spaces");
        if after.is_none() {
            break;
        }
    }
    assert_eq!((steps, survey.tubes, survey.faulty), (8, 7, 5));
    assert_eq!((survey.waiting_takes, survey.oldest_ready_age), (0, Some(601 * SECOND)));
    let names = survey.gravest().into_iter().map(|id| {
        let status = rig.queue.status_of_id(&rig.store, id, rig.now).expect("spaces");
        status.expect("the tube of the id").name
    });
    // First tasks without a worker, then buried ones, then notes.
    assert_eq!(names.collect::<Vec<_>>(), ["left", "full", "buried", "paused", "held"]);
}
