//! A few worlds of a group of instances, fixed: that they are repeatable, and that what they are for happens in them.

use lycosa_sim::{MemberTotals, Trace};

const STEPS: u64 = 2_000;

#[test]
fn a_seed_is_a_world() {
    let run = |seed| {
        let report = lycosa_sim::run_members(seed, STEPS, &mut Trace::new(false));
        report.unwrap_or_else(|failure| panic!("{failure}")).hash
    };
    let hash = run(7);
    assert_eq!(run(7), hash);
    assert_ne!(run(8), hash);
}

#[test]
fn everything_happens_in_some_world() {
    let mut sum = [0; 20];
    let mut seed = 1;
    while sum.contains(&0) {
        assert!(seed < 60, "in worlds 1 to {seed} some things never happen: {sum:?}");
        let report = lycosa_sim::run_members(seed, STEPS, &mut Trace::new(false));
        let MemberTotals {
            elections,
            puts,
            finished,
            peeks,
            unknown,
            refused,
            replies,
            loads,
            snapshots,
            sent_snapshots,
            lost_snapshots,
            joins,
            removals,
            transfers,
            crashes,
            torn_writes,
            faults,
            cuts,
            stops,
            comparisons,
        } = report.unwrap_or_else(|failure| panic!("{failure}")).totals;
        let counts = [
            elections,
            puts,
            finished,
            peeks,
            unknown,
            refused,
            replies,
            loads,
            snapshots,
            sent_snapshots,
            lost_snapshots,
            joins,
            removals,
            transfers,
            crashes,
            torn_writes,
            faults,
            cuts,
            stops,
            comparisons,
        ];
        sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        seed += 1;
    }
}
