//! A few worlds of several instances, fixed: that they are repeatable, and that what they are for happens in them.

use lycosa_sim::{ReplicaTotals, Trace};

const STEPS: u64 = 1_000;

/// Changes of the master in a run of all tests; `LYCOSA_SIM_SWITCHES` says another number, and `LYCOSA_SIM_SEED` the first
/// seed.
const SWITCHES: u64 = 20;

#[test]
fn a_seed_is_a_world() {
    let run = |seed| {
        let report = lycosa_sim::run_replicas(seed, STEPS, &mut Trace::new(false));
        report.unwrap_or_else(|failure| panic!("{failure}")).hash
    };
    let hash = run(7);
    assert_eq!(run(7), hash);
    assert_ne!(run(8), hash);
}

/// A world in which a client was wrong once; the crate's documentation says how.
#[test]
fn a_world_that_failed_without_a_fault_keeps_every_promise() {
    let report = lycosa_sim::run_replicas(819_827_553, 2_142, &mut Trace::new(false));
    report.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn everything_happens_in_some_world() {
    let mut sum = ReplicaTotals::default();
    let is_missing = |sum: &ReplicaTotals| {
        let ReplicaTotals {
            switches,
            failovers,
            rejoins,
            returns,
            prunes,
            crashes,
            cuts,
            faults,
            replies,
            finished,
            comparisons,
        } = *sum;
        let rare = [switches, failovers, rejoins, returns, prunes, crashes, cuts, faults].contains(&0);
        rare || [replies, finished, comparisons].contains(&0)
    };
    let mut seed = 200;
    while seed < 206 || is_missing(&sum) {
        assert!(seed < 230, "in worlds 200 to {seed} some things never happen: {sum}");
        let report = lycosa_sim::run_replicas(seed, STEPS, &mut Trace::new(false));
        sum = sum.plus(&report.unwrap_or_else(|failure| panic!("{failure}")).totals);
        seed += 1;
    }
}

/// The replica that was to be the next master needed journals that the old one had removed.
#[test]
fn a_change_of_the_master_that_cannot_end_is_taken_back() {
    let report = lycosa_sim::run_replicas(500_114, STEPS, &mut Trace::new(false));
    report.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn masters_change_under_load() {
    let knob = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let wanted = knob("LYCOSA_SIM_SWITCHES").unwrap_or(SWITCHES);
    let first = knob("LYCOSA_SIM_SEED").unwrap_or(10_000);
    let mut sum = ReplicaTotals::default();
    let mut seed = first;
    while sum.switches + sum.failovers < wanted {
        assert!(seed - first < 50 + wanted * 2, "{} worlds have too few changes: {sum}", seed - first);
        let report = lycosa_sim::run_replicas(seed, STEPS, &mut Trace::new(false));
        sum = sum.plus(&report.unwrap_or_else(|failure| panic!("{failure}")).totals);
        seed += 1;
    }
    println!("{} worlds: {sum}", seed - first);
}
