//! Steps that run beside each other: lanes, and what a step of one lane waits for in another.
//!
//! Steps that compile wait for each other anyway, because cargo locks the folder of what it builds.
//! Steps that run finished tests mostly wait for servers, and an installation waits for the network. So there are
//! seven lanes. A lane runs its steps in their order. A step begins once every step that it needs has passed, and does not
//! run if one of these has failed.
//!
//! Lanes that mostly wait, and the builds that other lanes wait for, come first at the processors ([`Lane::niceness`]). Lanes that
//! only compute fill the rest of the time. At equal priority the step `compile` takes twice as long beside them, and `unit` and `sim`,
//! which need it, end last.
//!
//! Invariant: the same steps run, with the same verdicts, whichever lane is faster.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

use anyhow::{Result, bail};

/// What a step's programs mostly do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Installing.
    Network,
    /// Compiling for development, or running what only cargo finds.
    Cargo,
    /// Counting the instructions of finished programs.
    Valgrind,
    /// Running inputs, one at a time, and then worlds on all processors, once the programs for them are compiled.
    Worlds,
    /// Running the tests beside the code, once they are compiled.
    Tests,
    /// Running the finished server under tests in Rust and under clients in other languages.
    Binary,
    /// Running it under tests that change the machine's network, and then under a browser, which drops its requests meanwhile.
    Browser,
}

impl Lane {
    const ALL: [Self; 7] =
        [Self::Network, Self::Cargo, Self::Valgrind, Self::Worlds, Self::Tests, Self::Binary, Self::Browser];

    /// By how much the lane's programs yield to the programs of other lanes. Worlds yield most: they use all processors, so that
    /// they can come last.
    const fn niceness(self) -> i32 {
        match self {
            Self::Network | Self::Cargo | Self::Binary | Self::Browser => 0,
            Self::Valgrind | Self::Tests => 5,
            Self::Worlds => 10,
        }
    }
}

/// Lowers the priority of this thread, which programs inherit that the thread starts: Linux has a priority for each thread.
fn yield_by(niceness: i32) {
    if let Err(error) = rustix::process::nice(niceness) {
        // The steps only take longer.
        eprintln!("cannot lower the priority of a lane: {error}");
    }
}

/// A step as the lanes see it.
pub(crate) trait Step: Sync {
    fn name(&self) -> &'static str;
    fn lane(&self) -> Lane;
    /// Steps that must have passed before, if they are chosen at all.
    fn needs(&self) -> &'static [&'static str];
}

/// Which chosen steps have ended, and whether they passed.
#[derive(Debug, Default)]
struct Progress {
    passed: BTreeMap<&'static str, bool>,
}

/// Runs all steps, each in its lane. `run` says whether a step passed, `skipped` hears of one that did not run and why.
/// With `fail_fast` no step begins after a failure.
pub(crate) fn run<S: Step>(
    steps: &[&S],
    fail_fast: bool,
    run: impl Fn(&S) -> bool + Sync,
    skipped: impl Fn(&S, &anyhow::Error) + Sync,
) {
    let (progress, changed) = (Mutex::new(Progress::default()), Condvar::new());
    let ready = |step: &S| -> Result<()> {
        let needs = step.needs().iter().filter(|&&need| steps.iter().any(|step| step.name() == need));
        let needs = needs.collect::<Vec<_>>();
        let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if fail_fast && progress.passed.values().any(|passed| !passed) {
                bail!("another step has failed");
            }
            if let Some(need) = needs.iter().find(|&&need| progress.passed.get(need) == Some(&false)) {
                bail!("the step {need} has failed");
            }
            if needs.iter().all(|&need| progress.passed.contains_key(need)) {
                return Ok(());
            }
            progress = changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
    };
    let work = |lane: Lane| {
        yield_by(lane.niceness());
        for step in steps.iter().filter(|step| step.lane() == lane) {
            let passed = match ready(step) {
                Ok(()) => run(step),
                Err(reason) => {
                    skipped(step, &reason);
                    false
                }
            };
            progress.lock().unwrap_or_else(PoisonError::into_inner).passed.insert(step.name(), passed);
            changed.notify_all();
        }
    };
    thread::scope(|scope| {
        for lane in Lane::ALL {
            scope.spawn(move || work(lane));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Program;

    struct Fake(&'static str, Lane, &'static [&'static str]);

    impl Step for Fake {
        fn name(&self) -> &'static str {
            self.0
        }
        fn lane(&self) -> Lane {
            self.1
        }
        fn needs(&self) -> &'static [&'static str] {
            self.2
        }
    }

    const STEPS: [Fake; 6] = [
        Fake("install", Lane::Network, &[]),
        Fake("build", Lane::Cargo, &[]),
        Fake("clippy", Lane::Cargo, &[]),
        Fake("unit", Lane::Tests, &["install", "build"]),
        Fake("doors", Lane::Binary, &["build"]),
        Fake("python", Lane::Binary, &["build", "install"]),
    ];

    /// Names of the steps in the order in which they began, and names of the steps that did not run.
    fn outcome(chosen: &[&str], failing: &str, fail_fast: bool) -> (Vec<&'static str>, Vec<&'static str>) {
        let steps = STEPS.iter().filter(|step| chosen.is_empty() || chosen.contains(&step.0));
        let steps = steps.collect::<Vec<_>>();
        let (ran, skipped) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        run(
            &steps,
            fail_fast,
            |step| {
                ran.lock().expect("no test panics here").push(step.0);
                step.0 != failing
            },
            |step, _| skipped.lock().expect("no test panics here").push(step.0),
        );
        let inner = |names: Mutex<Vec<_>>| names.into_inner().expect("no test panics here");
        let mut skipped = inner(skipped);
        skipped.sort_unstable();
        (inner(ran), skipped)
    }

    #[test]
    fn a_step_begins_after_those_that_it_needs() {
        for _ in 0..50 {
            let (ran, skipped) = outcome(&[], "", false);
            let place = |name: &str| ran.iter().position(|&ran| ran == name).expect("every step runs");
            assert_eq!((ran.len(), skipped.len()), (STEPS.len(), 0));
            for step in &STEPS {
                assert!(step.2.iter().all(|&need| place(need) < place(step.0)), "{ran:?}");
            }
            assert!(place("build") < place("unit") && place("build") < place("clippy"), "{ran:?}");
        }
    }

    #[test]
    fn programs_of_a_lane_that_computes_yield() {
        // Without arguments the program prints its own niceness.
        let niceness = || {
            let printed = Program::new("nice").output().expect("`nice` runs");
            printed.trim().parse::<i32>().expect("`nice` prints a number")
        };
        let (own, seen) = (niceness(), Mutex::new(Vec::new()));
        let steps = [Fake("doors", Lane::Browser, &[]), Fake("sim", Lane::Worlds, &["doors"])];
        let run_step = |step: &Fake| {
            seen.lock().expect("no test panics here").push((step.0, niceness()));
            true
        };
        run(&steps.iter().collect::<Vec<_>>(), false, run_step, |_, _| ());
        // The kernel's limit is 19.
        assert_eq!(
            seen.into_inner().expect("no test panics here"),
            [("doors", own), ("sim", (own + 10).min(19))]
        );
    }

    #[test]
    fn what_needs_a_failed_step_does_not_run_and_the_rest_does() {
        let (ran, skipped) = outcome(&[], "install", false);
        assert_eq!(skipped, ["python", "unit"]);
        assert_eq!(ran.len(), 4);
        assert_eq!(outcome(&[], "build", false).1, ["doors", "python", "unit"]);
    }

    #[test]
    fn steps_that_were_not_chosen_are_not_waited_for() {
        assert_eq!(outcome(&["python"], "", false), (vec!["python"], vec![]));
    }

    #[test]
    fn nothing_begins_after_a_failure_when_the_first_ends_the_run() {
        let (ran, skipped) = outcome(&["build", "unit", "clippy"], "build", true);
        assert_eq!((ran, skipped), (vec!["build"], vec!["clippy", "unit"]));
    }
}
