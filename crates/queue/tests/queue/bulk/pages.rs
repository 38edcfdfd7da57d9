//! Pages and slices end by tasks, bytes and the clock, and go on from there.

use std::cell::Cell;

use lycosa_queue::Error;
use lycosa_store::Budget;
use lycosa_tuple::value::Value;

use super::{counted, everything, finished, found, number, page, word};
use crate::rig::{Reply, Rig, args, options};

#[test]
fn a_page_looks_at_a_bounded_number_of_tasks_and_says_how_many() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    rig.t(1, "put_many", vec![Value::array((0..4_500_u64).map(Value::from))]).values();
    let filter = options([("id_from", 100.into()), ("field", "none".into())]);
    let first = page(&mut rig, vec![filter.clone()]);
    assert_eq!((number(&first, "scanned"), number(&first, "total")), (2_000, 4_400));
    assert!(first.get("cursor").is_some());
    assert_eq!(found(&mut rig, &filter, 10), (vec![], 4_400));
    let counted = finished(&mut rig, "count", vec![options([("id_to", 99.into())])]);
    assert_eq!(
        (number(&counted, "matched"), number(&counted, "total"), word(&counted, "state")),
        (100, 100, "done")
    );
}

/// A payload of a megabyte takes a thousand times the work of a small one, to look into, to keep for `undo` and to bring back.
#[test]
fn pages_and_slices_end_behind_a_megabyte_of_payloads() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    for _ in 0..5 {
        rig.t(1, "put", vec![Value::map([("a", "x".repeat(600_000))])]).values();
    }
    let filter = options([("field", "a".into()), ("contains", "y".into())]);
    let page = rig.t(1, "find", vec![filter.clone()]).values().remove(0);
    assert_eq!((number(&page, "scanned"), number(&page, "total")), (2, 5));
    assert_eq!(found(&mut rig, &filter, 10), (vec![], 5));
    let before = rig.rows("t");
    let began = rig.transactions();
    let job = finished(&mut rig, "apply", args!["delete", everything()]);
    assert_eq!((number(&job, "changed"), rig.transactions() - began), (5, 1 + 3), "{job}");
    let began = rig.transactions();
    let undone = finished(&mut rig, "undo", args![number(&job, "id")]);
    assert_eq!((number(&undone, "undone"), rig.transactions() - began), (5, 1 + 3), "{undone}");
    assert_eq!(rig.rows("t"), before);
}

#[test]
fn a_page_goes_on_in_slices_while_others_work() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    rig.t(1, "put_many", vec![Value::array((0..1_500_u64).map(Value::from))]).values();
    let filter = options([("id_from", 100.into()), ("field", "none".into())]);
    let first = rig.t(1, "find", vec![filter.clone()]).token();
    let second = rig.t(2, "find", vec![filter.clone()]).token();
    let ended = rig.t(3, "find", vec![filter.clone()]).token();
    let cancelled = rig.t(4, "find", vec![filter.clone()]).token();
    rig.work(1_000);
    assert_eq!((rig.answer(first), rig.answer(second)), (None, None));
    rig.t(2, "put", args!["new"]).values();
    // The first page is finished before the second goes on.
    rig.work(500);
    let page = rig.answer(first).expect("complete").values().remove(0);
    assert_eq!((number(&page, "scanned"), page.get("cursor")), (1_401, None), "with the new task");
    assert_eq!(rig.answer(second), None);
    rig.disconnect(3);
    let request = rig.queue.cancel(&mut rig.store, 4, cancelled, rig.now);
    assert!(request, "a call that changes nothing is taken back");
    rig.tick();
    assert!(rig.answer(second).is_some());
    assert_eq!((rig.answer(ended), rig.answer(cancelled)), (None, None));
    // A program's transaction gets its page at once.
    rig.begin();
    assert_eq!(number(&rig.t(1, "find", vec![filter.clone()]).values()[0], "scanned"), 1_401);
    rig.rollback();
    rig.t(1, "find", vec![filter.clone()]).token();
    assert_eq!(rig.queue.next_work(), Some(0));
    let dropped = rig.t(2, "find", vec![filter]).token();
    rig.t(1, "drop", args![]).values();
    rig.tick();
    assert_eq!(rig.answer(dropped), Some(Reply::Error(Error::TubeNotFound)));
}

#[test]
fn a_slice_ends_by_the_clock_and_the_job_goes_on_from_there() {
    let mut rig = Rig::new();
    rig.create("t", "fifo", Value::Nil);
    rig.t(1, "put_many", vec![Value::array((0..1_000_u64).map(Value::from))]).values();
    let job = number(&rig.t(1, "apply", vec!["bury".into(), everything()]).values()[0], "id");
    let changed = |rig: &mut Rig| number(&rig.t(1, "job", args![job]).values()[0], "changed");
    let time = Cell::new(0);
    let clock = || {
        time.set(time.get() + 10);
        time.get()
    };
    let mut before = 0;
    // Each look at the clock takes 10 µs, so two portions of changes fit in 20 µs.
    for _ in 0..5 {
        rig.queue.work(&mut rig.store, rig.now, Budget::of_rows(512).within(&clock, 20));
        rig.collect_committed();
        let now = changed(&mut rig);
        assert_eq!(now - before, 8);
        before = now;
    }
    // Without a clock the rows bound it.
    rig.work(512);
    assert_eq!(changed(&mut rig) - before, 128);
    rig.tick();
    assert_eq!(changed(&mut rig), 1_000);
}

/// Tasks that were looked at or changed when a slice ended at its first look at the clock: what a slice does beyond its time at most.
#[test]
fn between_two_looks_at_the_clock_lie_few_tasks_and_few_bytes() {
    for (size, looked_at, changed) in [(10, 32, 4), (30_000, 3, 3), (200_000, 1, 1)] {
        let mut rig = Rig::new();
        rig.create("t", "fifo", Value::Nil);
        rig.create("u", "fifo", Value::Nil);
        for _ in 0..100 {
            rig.t(1, "put", vec![Value::map([("a", "x".repeat(size))])]).values();
        }
        let slice = |rig: &mut Rig, method: &str, arguments: Vec<Value>| {
            let id = number(&rig.t(1, method, arguments).values()[0], "id");
            rig.queue.work(&mut rig.store, rig.now, Budget::of_rows(512).within(&|| 1, 0));
            rig.collect_committed();
            let job = rig.t(1, "job", args![id]).values().remove(0);
            rig.tick();
            (id, number(&job, "scanned"))
        };
        let field = options([("field", "a".into()), ("equals", "y".into())]);
        assert_eq!(slice(&mut rig, "count", vec![field]).1, looked_at, "{size}");
        for operation in ["bury", "kick", "move", "delete"] {
            let to = options([("to", if operation == "move" { "u".into() } else { Value::Nil })]);
            let (job, scanned) = slice(&mut rig, "apply", vec![operation.into(), everything(), to]);
            assert_eq!(scanned, changed, "{size}: {operation}");
            if matches!(operation, "move" | "delete") {
                assert_eq!(slice(&mut rig, "undo", args![job]).1, changed, "{size}: undo of {operation}");
            }
        }
    }
}

/// Look-ups in indexes are what the search for the oldest task costs: many priorities are many look-ups.
#[test]
fn the_search_for_the_oldest_task_ends_behind_its_look_ups() {
    let mut rig = Rig::new();
    for tube in ["a", "b", "c"] {
        rig.create(tube, "fifottl", Value::Nil);
        for pri in 0..30_u64 {
            rig.call(1, &format!("queue.tube.{tube}:put"), args![1, options([("pri", pri.into())])]).values();
        }
    }
    let mut steps = 0;
    let mut after = None;
    loop {
        steps += 1;
        let (oldest, next) = rig.queue.oldest_ready(&rig.store, after, Budget::of_rows(17), rig.now);
        assert!(oldest.is_some() || next.is_none());
        after = next;
        if after.is_none() {
            break;
        }
    }
    // A step for each tube, and one that finds the end.
    assert_eq!(steps, 4);
    // The finding is kept: a tube that has not changed counts as one row.
    assert_eq!(rig.queue.oldest_ready(&rig.store, None, Budget::of_rows(17), rig.now).1, None);
    for tube in ["a", "b", "c"] {
        rig.call(1, &format!("queue.tube.{tube}:put"), args![1]).values();
    }
    let (_, next) =
        rig.queue.oldest_ready(&rig.store, None, Budget::of_rows(1_000).within(&|| 1, 0), rig.now);
    assert!(rig.queue.oldest_ready(&rig.store, next, Budget::of_rows(35), rig.now).1.is_some());
}

#[test]
fn a_sub_queue_is_found_by_its_index_in_the_order_of_ids() {
    for kind in ["utube", "utubettl"] {
        let mut rig = Rig::new();
        rig.create("t", kind, Value::Nil);
        for n in 0..600_u64 {
            let name = if n % 100 == 7 { "rare" } else { "other" };
            rig.t(1, "put", args![n, options([("utube", name.into())])]).values();
        }
        let rare = options([("utube", "rare".into())]);
        assert_eq!(found(&mut rig, &rare, 100), (vec![7, 107, 207, 307, 407, 507], 6), "{kind}");
        for id in [207_u64, 407] {
            rig.t(1, "bury", args![id]).values();
        }
        rig.t(1, "delete", args![307]).values();
        for limit in [1, 2, 100] {
            assert_eq!(found(&mut rig, &rare, limit), (vec![7, 107, 207, 407, 507], 5), "{kind}, {limit}");
        }
        let part = options([("utube", "rare".into()), ("id_from", 107.into()), ("id_to", 406.into())]);
        assert_eq!(found(&mut rig, &part, 1), (vec![107, 207], 2), "{kind}");
        let none = options([("utube", "none".into())]);
        assert_eq!(found(&mut rig, &none, 1), (vec![], 0), "{kind}");
        let job = counted(&mut rig, vec!["delete".into(), rare.clone()]);
        let job = finished(&mut rig, "apply", job);
        assert_eq!((number(&job, "changed"), number(&job, "scanned"), number(&job, "total")), (5, 5, 5));
        assert_eq!(rig.rows("t").len(), 594, "{kind}");
    }
}
