//! When tasks do what: deadlines, passes, budgets, failures.

use lycosa_expiration::{Archive, MAX_DELETIONS};
use lycosa_store::{IndexKind, ddl};
use lycosa_tuple::value::Value;

use crate::rig::{Rig, SECOND, definition, field_3};

#[test]
fn an_ordered_index_is_waited_for_exactly() {
    let mut rig = Rig::new();
    let space = rig.space("s", IndexKind::Tree, Some("number"));
    rig.start("t", space, &[field_3()]).unwrap();
    rig.run_until_idle();
    assert_eq!(rig.expiration.next(), None, "nothing to wait for");

    let start = rig.now;
    rig.put(space, 1, Value::Double((start + 2_500_000) as f64 / 1e6));
    rig.put(space, 2, Value::from(start / SECOND + 60));
    rig.turn();
    assert_eq!(rig.expiration.next(), Some(start + 2_500_000));
    rig.put(space, 3, Value::from(start / SECOND + 1));
    rig.turn();
    assert_eq!(rig.expiration.next(), Some(start + SECOND), "a nearer deadline wakes the task");

    rig.now = start + SECOND - 1;
    rig.run_until_idle();
    assert_eq!(rig.ids(space), [1, 2, 3]);
    rig.now += 1;
    rig.run_until_idle();
    assert_eq!(rig.ids(space), [1, 2]);
    rig.advance(60 * SECOND);
    assert_eq!(rig.ids(space), [0_u64; 0]);
    assert_eq!(rig.expiration.next(), None);
    assert_eq!(rig.number("t", "expired"), 3);
    assert_eq!(rig.number("t", "longest_lag_us"), 0, "each went on its deadline");
}

#[test]
fn a_deadline_that_is_changed_in_place_wakes_the_task() {
    let mut rig = Rig::new();
    let space = rig.space("s", IndexKind::Tree, Some("unsigned"));
    let later = rig.seconds() + 1000;
    rig.put(space, 1, later);
    rig.start("t", space, &[field_3()]).unwrap();
    rig.run_until_idle();
    let operations = Value::Array(vec![Value::Array(vec!["=".into(), 2_u64.into(), (later - 999).into()])]);
    let (key, operations) = (Value::Array(vec![1_u64.into()]).encode(), operations.encode());
    rig.transaction(|store| {
        let update =
            lycosa_store::Statement::Update { space, index: 0, key: &key, operations: &operations, base: 0 };
        store.execute(&update).unwrap();
    });
    rig.advance(SECOND);
    assert_eq!(rig.ids(space), [0_u64; 0]);
}

#[test]
fn an_early_stop_does_not_delay_new_expirations() {
    // Entry 32 of the list of the module's bugs: it advances by one living tuple per pause.
    let mut rig = Rig::new();
    let space = rig.space("s", IndexKind::Tree, Some("unsigned"));
    let later = rig.seconds() + 100_000;
    for id in 0..500 {
        rig.put(space, id, later + id);
    }
    rig.start("t", space, &[field_3()]).unwrap();
    rig.advance(10 * SECOND);
    rig.put(space, 1000, rig.seconds() + 5);
    rig.advance(5 * SECOND);
    assert_eq!(rig.ids(space).len(), 500);
    assert!(rig.number("t", "scanned") < 10);
}

#[test]
fn tuples_without_a_deadline_never_expire_and_are_counted() {
    for ty in [None, Some("number"), Some("scalar")] {
        let mut rig = Rig::new();
        let space = rig.space("s", IndexKind::Tree, ty);
        rig.put(space, 1, Value::Nil);
        rig.put(space, 2, Value::Double(f64::NAN));
        rig.put(space, 3, -5_i64);
        rig.put(space, 4, 1_u64);
        rig.put(space, 5, Value::Double(f64::INFINITY));
        rig.replace(space, &Value::Array(vec![6_u64.into()]));
        if ty != Some("number") {
            rig.put(space, 7, "soon");
            rig.put(space, 8, Value::Bool(true));
        }
        rig.start("t", space, &[field_3()]).unwrap();
        rig.advance(5 * SECOND);
        assert!(!rig.ids(space).contains(&4), "{ty:?}");
        let left = if ty == Some("number") { 5 } else { 7 };
        assert_eq!(rig.ids(space).len(), left, "{ty:?}");
        assert!(rig.number("t", "undated") >= 4, "{ty:?}: {}", rig.number("t", "undated"));
    }
}

#[test]
fn units_are_what_they_say() {
    for (unit, factor) in [("s", 1), ("ms", 1000), ("us", 1_000_000)] {
        for ty in [None, Some("unsigned")] {
            let mut rig = Rig::new();
            let space = rig.space("s", IndexKind::Tree, ty);
            rig.put(space, 1, (rig.seconds() + 3) * factor);
            rig.start("t", space, &[field_3(), ("unit", unit.into())]).unwrap();
            rig.advance(3 * SECOND - 1);
            assert_eq!(rig.ids(space), [1], "{unit} {ty:?}");
            rig.advance(1);
            assert_eq!(rig.ids(space), [0_u64; 0], "{unit} {ty:?}");
        }
    }
}

#[test]
fn a_slice_keeps_to_its_rows_and_grows_under_backlog() {
    let mut rig = Rig::new();
    let space = rig.space("s", IndexKind::Tree, Some("unsigned"));
    for id in 0..1000 {
        rig.put(space, id, 1_u64);
    }
    let options = [field_3(), ("scan_size", 2_u32.into()), ("budget_rows", 64_u32.into())];
    rig.start("t", space, &options).unwrap();
    rig.turn();
    assert_eq!(rig.ids(space).len(), 998);
    rig.turn();
    assert_eq!(rig.ids(space).len(), 994);
    rig.run_until_idle();
    assert_eq!(rig.ids(space), [0_u64; 0]);
    assert_eq!(rig.largest, 64, "one transaction never deletes more than the budget");
    assert!(rig.slices < 30, "{} slices", rig.slices);
}

#[test]
fn a_slice_deletes_no_more_than_its_bound_where_the_clock_stands_still() {
    for deadline in [Some("unsigned"), None] {
        let mut rig = Rig::new();
        let space = rig.space("s", IndexKind::Tree, deadline);
        let tuples = MAX_DELETIONS * 3 + 7;
        for id in 0..tuples {
            rig.put(space, id, 1_u64);
        }
        rig.host.step = 0;
        let options = [field_3(), ("scan_size", 100_000_u32.into()), ("budget_rows", 100_000_u32.into())];
        rig.start("t", space, &[&options[..], &[("scan_time", 0_u32.into())]].concat()).unwrap();
        rig.run_until_idle();
        assert_eq!(rig.ids(space), [0_u64; 0]);
        assert_eq!(rig.largest as u64, MAX_DELETIONS, "{deadline:?}");
        assert_eq!(rig.number("t", "expired"), tuples);
    }
}

#[test]
fn the_clock_ends_a_slice() {
    for ty in [None, Some("unsigned")] {
        let mut rig = Rig::new();
        let space = rig.space("s", IndexKind::Tree, ty);
        for id in 0..1000 {
            rig.put(space, id, 1_u64);
        }
        rig.host.step = 100;
        rig.start("t", space, &[field_3(), ("budget_us", 300_u32.into()), ("scan_time", 0_u32.into())])
            .unwrap();
        rig.advance(10 * SECOND);
        assert_eq!(rig.ids(space), [0_u64; 0]);
        assert!(rig.largest <= 64, "{} in one transaction", rig.largest);
        assert!(rig.number("t", "longest_hold_us") <= 500);
    }
}

#[test]
fn a_share_of_the_loop_leaves_the_rest_to_others() {
    let mut rig = Rig::new();
    let space = rig.space("s", IndexKind::Tree, Some("unsigned"));
    for id in 0..1000 {
        rig.put(space, id, 1_u64);
    }
    rig.host.step = 100;
    rig.start("t", space, &[field_3(), ("budget_us", 300_u32.into()), ("share", 25_u32.into())]).unwrap();
    assert!(rig.turn());
    assert!(!rig.turn(), "three times as long as the slice took nothing is done");
    rig.expiration.set_idle(true);
    assert!(rig.turn(), "unless nobody else wants the loop");
    rig.expiration.set_idle(false);
    assert!(!rig.turn());
    assert!(rig.number("t", "hold_p9999_us") >= 300, "the slices are told");
    assert_eq!(rig.number("t", "slices_over_1ms"), 0);
    let began = rig.now;
    rig.advance(10 * SECOND);
    assert_eq!(rig.ids(space), [0_u64; 0]);
    assert!(began < rig.now);
}

/// The machine gives the loop a fiftieth of the time that a slice lasts. The slice that ends early for it is followed by the
/// pause that its own time asks for, not by one of many milliseconds in which the other tuples wait.
#[test]
fn time_that_the_machine_takes_makes_nothing_late() {
    let mut rig = Rig::new();
    let space = rig.space("s", IndexKind::Tree, Some("unsigned"));
    for id in 0..40 {
        rig.put(space, id, 1_u64);
    }
    rig.host.step = 8000;
    rig.host.processor = 2;
    rig.start("t", space, &[field_3(), ("budget_us", 300_u32.into()), ("share", 50_u32.into())]).unwrap();
    assert!(rig.turn());
    assert_eq!(rig.state("t"), "behind", "the slice has ended by the clock");
    let wakes = rig.expiration.next().expect("the next slice");
    assert!(wakes > rig.now, "others have their share");
    assert!(wakes - rig.now <= 2 * 16_000 * 2 / 100, "{} µs", wakes - rig.now);
}

#[test]
fn a_pass_takes_its_time_and_meets_everything() {
    for kind in [IndexKind::Tree, IndexKind::Hash] {
        let mut rig = Rig::new();
        let space = rig.space("s", kind, None);
        let due = rig.seconds() + 50;
        for id in 0..100 {
            rig.put(space, id, due);
        }
        let options = [field_3(), ("scan_size", 10_u32.into()), ("scan_time", 20_u32.into())];
        rig.start("t", space, &options).unwrap();
        rig.run_until_idle();
        assert_eq!(rig.slices, 1);
        rig.advance(21 * SECOND);
        assert!((10..=12).contains(&rig.slices), "{} slices in a pass", rig.slices);
        let passes = rig.number("t", "passes");
        rig.advance(28 * SECOND);
        assert_eq!(rig.number("t", "passes"), passes, "nothing changes, so there is nothing to look for");
        assert_eq!(rig.ids(space).len(), 100);
        rig.advance(22 * SECOND);
        assert_eq!(rig.ids(space), [0_u64; 0], "{kind:?}");
    }
}

/// Tuples that are put behind the walk, or deleted by it, make no pass longer.
#[test]
fn a_pass_ends_in_time_while_the_space_changes() {
    for (lives, first) in [(0, 2), (1, 2), (1000, 2), (0, 500), (1000, 500)] {
        let mut rig = Rig::new();
        let space = rig.space("s", IndexKind::Tree, None);
        let due = rig.seconds() + lives;
        for id in 0..first {
            rig.put(space, id, due);
        }
        let options = [field_3(), ("scan_size", 4_u32.into()), ("scan_time", 20_u32.into())];
        rig.start("t", space, &options).unwrap();
        rig.run_until_idle();
        for id in first..first + 80 {
            rig.put(space, id, rig.seconds() + lives);
            rig.advance(SECOND / 4);
        }
        assert!(rig.number("t", "passes") > 0, "{first} tuples that live for {lives} s, and 80 more");
        rig.advance(41 * SECOND);
        assert_eq!(
            rig.ids(space).is_empty(),
            lives < 20,
            "{first} tuples that live for {lives} s, and 80 more"
        );
    }
}

#[test]
fn a_small_space_is_looked_at_within_a_second_of_a_change_only() {
    let mut rig = Rig::new();
    let space = rig.space("s", IndexKind::Tree, None);
    rig.start("t", space, &[field_3()]).unwrap();
    rig.advance(1000 * SECOND);
    assert!(rig.slices <= 2, "{} slices over an empty space", rig.slices);
    let before = rig.slices;
    rig.put(space, 1, rig.seconds() + 60);
    rig.advance(60 * SECOND - 1);
    assert_eq!(rig.ids(space), [1]);
    assert!(rig.slices <= before + 2);
    rig.advance(1);
    assert_eq!(rig.ids(space), [0_u64; 0], "at its deadline, although scan_time is an hour");
}

#[test]
fn tasks_take_turns() {
    let mut rig = Rig::new();
    let (a, b) = (rig.space("a", IndexKind::Tree, Some("unsigned")), rig.space("b", IndexKind::Tree, None));
    for id in 0..100 {
        rig.put(a, id, 1_u64);
        rig.put(b, id, 1_u64);
    }
    let options = [field_3(), ("budget_rows", 10_u32.into()), ("scan_time", 0_u32.into())];
    rig.start("a", a, &options).unwrap();
    rig.start("b", b, &options).unwrap();
    (0..4).for_each(|_| assert!(rig.turn()));
    assert_eq!((rig.ids(a).len(), rig.ids(b).len()), (80, 80));
}

#[test]
fn an_error_stops_a_task_visibly_and_it_is_tried_again() {
    let mut rig = Rig::new();
    let space = rig.space("s", IndexKind::Tree, Some("unsigned"));
    rig.put(space, 1, 1_u64);
    rig.host.refuses = Some("it is full".to_owned());
    let archived = lycosa_expiration::Definition {
        archive: Some(Archive::Tube("old".to_owned())),
        index: 1,
        ..definition("t", space)
    };
    rig.start_definition(archived).unwrap();
    rig.run_until_idle();
    assert_eq!(rig.state("t"), "failing");
    assert_eq!(rig.ids(space), [1], "nothing is lost");
    assert!(rig.text("t", "error").as_str().unwrap().contains("tube 'old': it is full"));
    let (_, line) = rig.expiration.poll_log().expect("a line");
    assert!(line.contains("next attempt follows in 1 s"), "{line}");
    rig.advance(600 * SECOND);
    let attempts = rig.number("t", "attempts");
    assert!((12..=18).contains(&attempts), "1, 2, 4 … 60 s apart: {attempts}");
    rig.host.refuses = None;
    rig.advance(60 * SECOND);
    assert_eq!(rig.ids(space), [0_u64; 0]);
    assert_eq!(rig.state("t"), "waiting");
    assert_eq!(rig.host.archived.len(), 1);
}

#[test]
fn lag_is_shown_and_told() {
    let mut rig = Rig::new();
    let space = rig.space("s", IndexKind::Tree, Some("unsigned"));
    for id in 0..100 {
        rig.put(space, id, rig.seconds() - 90);
    }
    rig.start("t", space, &[field_3(), ("budget_rows", 10_u32.into()), ("lag_limit", 60_u32.into())])
        .unwrap();
    assert_eq!(rig.number("t", "lag_us"), 90 * SECOND);
    rig.turn();
    let (_, line) = rig.expiration.poll_log().expect("a line");
    assert!(line.contains("is 90.0 s late"), "{line}");
    rig.run_until_idle();
    assert_eq!(rig.number("t", "lag_us"), 0);
    rig.put(space, 1, rig.seconds());
    rig.run_until_idle();
    let (_, line) = rig.expiration.poll_log().expect("a line");
    assert!(line.contains("has caught up"), "{line}");
    assert_eq!(rig.expiration.poll_log(), None);
}

/// A task over an index that is dropped does not sleep on until the deadline that it has read there: it says what it misses,
/// and goes on when the index exists again.
#[test]
fn the_index_or_the_field_may_go_and_come_back() {
    let mut rig = Rig::new();
    let space = rig.space("s", IndexKind::Tree, Some("unsigned"));
    let far = rig.seconds() + 1_000_000;
    rig.put(space, 2, far);
    rig.start("t", space, &[field_3(), ("index", "exp".into())]).unwrap();
    rig.run_until_idle();
    assert_eq!(rig.state("t"), "waiting");
    rig.transaction(|store| ddl::drop_index(store, space, 1).unwrap());
    rig.put(space, 1, 1_u64);
    rig.advance(SECOND);
    assert_eq!((rig.state("t").as_str(), rig.ids(space)), ("failing", vec![1, 2]));
    rig.transaction(|store| {
        let parts = [ddl::PartSpec { nullable: true, ..ddl::PartSpec::new(2, "unsigned") }];
        ddl::create_index(
            store,
            space,
            &ddl::IndexSpec { unique: false, ..ddl::IndexSpec::new("exp", &parts) },
        )
        .unwrap();
    });
    rig.run_until_idle();
    assert_eq!((rig.state("t").as_str(), rig.ids(space)), ("waiting", vec![2]));
}

/// A task whose archive is dropped stays: it fails and says why, also after its row was read again, and can be stopped.
#[test]
fn the_archive_may_go_and_come_back() {
    let mut rig = Rig::new();
    let space = rig.space("s", IndexKind::Tree, Some("unsigned"));
    let other = rig.space("other", IndexKind::Tree, Some("unsigned"));
    let archive = rig.space("archive", IndexKind::Tree, Some("unsigned"));
    rig.start("t", space, &[field_3(), ("archive_space", archive.into())]).unwrap();
    rig.run_until_idle();
    rig.transaction(|store| ddl::drop_space(store, archive).unwrap());
    rig.put(space, 1, 1_u64);
    rig.start("u", other, &[field_3()]).unwrap();
    rig.advance(SECOND);
    assert_eq!((rig.state("t").as_str(), rig.ids(space)), ("failing", vec![1]));
    rig.restart();
    rig.advance(SECOND);
    assert_eq!((rig.state("t").as_str(), rig.ids(space)), ("failing", vec![1]));
    rig.transaction(|store| {
        let spec = ddl::SpaceSpec { id: Some(archive), ..ddl::SpaceSpec::new("archive", &[]) };
        ddl::create_space(store, &spec).unwrap();
        ddl::create_index(
            store,
            archive,
            &ddl::IndexSpec::new("primary", &[ddl::PartSpec::new(0, "unsigned")]),
        )
        .unwrap();
    });
    rig.run_until_idle();
    assert_eq!((rig.state("t").as_str(), rig.ids(space), rig.ids(archive)), ("waiting", vec![], vec![1]));
    rig.transaction(|store| ddl::drop_space(store, archive).unwrap());
    rig.stop("u");
    rig.advance(SECOND);
    rig.stop("t");
    rig.start("t", space, &[field_3()]).unwrap();
}
