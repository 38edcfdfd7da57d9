//! A few worlds, fixed: that they are repeatable, and that what they are for happens in them.

use lycosa_sim::{ExpirationTotals, Totals, Trace};

const STEPS: u64 = 1_500;
const EXPIRATION_STEPS: u64 = 800;

fn totals(seed: u64) -> Totals {
    let report = lycosa_sim::run(seed, STEPS, &mut Trace::new(false));
    report.unwrap_or_else(|failure| panic!("{failure}")).totals
}

#[test]
fn a_seed_is_a_world() {
    let run = |seed| lycosa_sim::run(seed, STEPS, &mut Trace::new(false)).map(|report| report.hash);
    let hash = run(7).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(run(7), Ok(hash));
    assert_ne!(run(8), Ok(hash));
}

#[test]
fn everything_happens_in_some_world() {
    let mut sum = [0; 19];
    let mut seed = 75;
    while sum.contains(&0) {
        assert!(seed < 160, "in worlds 75 to {seed} some things never happen: {sum:?}");
        let Totals {
            requests,
            replies,
            batches,
            crashes,
            stops,
            snapshots,
            snapshot_failures,
            failures,
            crashes_writing,
            crashes_unreported,
            crashes_collecting,
            losses,
            waits,
            leases,
            extended,
            again,
            keyed,
            kept,
            stale,
            jobs,
            changed,
            undone,
            pages,
        } = totals(seed);
        assert_eq!([jobs, changed, undone, pages], [0; 4], "no operator works in these worlds");
        assert!(crashes_writing <= crashes && crashes_unreported <= crashes, "seed {seed}");
        let counts = [
            requests,
            replies,
            batches,
            crashes,
            stops,
            snapshots,
            snapshot_failures,
            failures,
            crashes_writing,
            crashes_unreported,
            crashes_collecting,
            losses,
            waits,
            leases,
            extended,
            again,
            keyed,
            kept,
            stale,
        ];
        sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        seed += 1;
    }
}

#[test]
fn operators_find_change_and_undo() {
    let mut sum = [0; 4];
    let mut seed = 1;
    while sum.contains(&0) {
        assert!(seed < 40, "in worlds 1 to {seed} some things never happen: {sum:?}");
        let report = lycosa_sim::run_steering(seed, STEPS, &mut Trace::new(false));
        let Totals { jobs, changed, undone, pages, .. } =
            report.unwrap_or_else(|failure| panic!("{failure}")).totals;
        assert!(undone <= changed, "seed {seed}");
        sum.iter_mut().zip([jobs, changed, undone, pages]).for_each(|(sum, count)| *sum += count);
        seed += 1;
    }
}

#[test]
fn expiration_keeps_its_promises_and_everything_happens() {
    let mut sum = [0; 10];
    let mut seed = 1;
    while sum.contains(&0) {
        assert!(seed < 80, "in worlds 1 to {seed} some things never happen: {sum:?}");
        let report = lycosa_sim::run_expiration(seed, EXPIRATION_STEPS, &mut Trace::new(false));
        let ExpirationTotals {
            puts,
            expired,
            archived,
            starts,
            refused,
            failures,
            bounded,
            crashes,
            losses,
            stops,
        } = report.unwrap_or_else(|failure| panic!("{failure}")).totals;
        assert!(archived <= expired && losses <= crashes, "seed {seed}");
        let counts = [puts, expired, archived, starts, refused, failures, bounded, crashes, losses, stops];
        sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        seed += 1;
    }
}

#[test]
fn a_seed_is_a_world_of_expiration() {
    let run = |seed| {
        lycosa_sim::run_expiration(seed, EXPIRATION_STEPS, &mut Trace::new(false)).map(|report| report.hash)
    };
    let hash = run(3).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(run(3), Ok(hash));
    assert_ne!(run(4), Ok(hash));
}
