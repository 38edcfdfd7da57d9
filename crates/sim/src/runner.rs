//! Many worlds on several threads, with an outcome that does not depend on the order in which the worlds end.
//!
//! Worlds have numbers, from 0 on: the kinds of the first seed, then those of the next. Threads take the numbers in order,
//! so that with the first failure every smaller number is done or running. The outcome is that of the smallest failing
//! number, and the sums are those of the worlds before it.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Counts, Failure, Kind, Summary, Trace};

/// Bytes of a thread's stack, as many as a main thread usually has.
const STACK: usize = 8 << 20;

/// Which worlds run.
#[derive(Debug, Clone)]
pub struct Order {
    /// What the worlds are about; must not be empty.
    pub kinds: Vec<Kind>,
    /// The seed of the first worlds; the other seeds follow it.
    pub first: u64,
    /// When to stop.
    pub until: Until,
    /// Worlds that run at once; at least 1.
    pub jobs: usize,
    /// Whether a failure ends the run. Without it every world runs and all failures are kept.
    pub stops_at_failure: bool,
    /// Whether each world prints everything that happens.
    pub verbose: bool,
}

/// When to stop.
#[derive(Debug, Clone, Copy)]
pub enum Until {
    /// After this number of worlds of each kind.
    Worlds(u64),
    /// No world begins after this time.
    Time(Instant),
}

/// What worlds of one kind came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    /// What the worlds were about.
    pub kind: Kind,
    /// Worlds that kept every promise.
    pub worlds: u64,
    /// How far their clocks came, in total.
    pub simulated: Duration,
    /// Stands for everything that happened in them, in any order.
    pub hash: u64,
    /// What happened in them.
    pub counts: Counts,
}

impl Tally {
    fn new(kind: Kind) -> Self {
        Self { kind, worlds: 0, simulated: Duration::ZERO, hash: 0, counts: Vec::new() }
    }

    fn add(&mut self, summary: &Summary) {
        self.worlds += 1;
        self.simulated += summary.simulated;
        self.hash = self.hash.wrapping_add(summary.hash);
        if self.counts.is_empty() {
            self.counts.clone_from(&summary.counts);
            return;
        }
        for ((_, sum), (_, count)) in self.counts.iter_mut().zip(&summary.counts) {
            *sum += count;
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hours = self.simulated.as_secs_f64() / 3600.0;
        let worlds = if self.worlds == 1 { "world" } else { "worlds" };
        write!(f, "{}: {} {worlds}, {hours:.2} simulated hours", self.kind.name(), self.worlds)?;
        for (name, count) in &self.counts {
            write!(f, ", {count} {name}")?;
        }
        write!(f, "; hash {:016x}", self.hash)
    }
}

/// A world that broke a promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// What the world was about.
    pub kind: Kind,
    /// Which promise.
    pub failure: Failure,
    /// The last lines of what happened.
    pub recent: Vec<String>,
}

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Sums by kind, in the order's order. After a failure that ended the run: of the worlds before it.
    pub tallies: Vec<Tally>,
    /// Worlds that broke a promise, by their number; at most one if a failure ends the run.
    pub broken: Vec<Broken>,
}

/// Runs worlds. `world` runs one of them, for example [`Kind::run`].
///
/// # Panics
/// A thread cannot be started.
pub fn run(
    order: &Order,
    world: impl Fn(Kind, u64, &mut Trace) -> Result<Summary, Failure> + Sync,
) -> Outcome {
    let kinds = order.kinds.len() as u64;
    let kind_of = |number: u64| order.kinds[(number % kinds) as usize];
    let (limit, end) = match order.until {
        Until::Worlds(worlds) => (worlds.saturating_mul(kinds), None),
        Until::Time(end) => (u64::MAX, Some(end)),
    };
    let next = AtomicU64::new(0);
    let limit = AtomicU64::new(limit);
    let done = Mutex::new(Vec::new());
    let work = || {
        while end.is_none_or(|end| Instant::now() < end) {
            let number = next.fetch_add(1, Ordering::SeqCst);
            if number >= limit.load(Ordering::SeqCst) {
                break;
            }
            let kind = kind_of(number);
            let mut trace = Trace::new(order.verbose);
            let outcome = world(kind, order.first.wrapping_add(number / kinds), &mut trace);
            let outcome = outcome.map_err(|failure| Broken {
                kind,
                failure,
                recent: trace.recent().map(str::to_owned).collect(),
            });
            if outcome.is_err() && order.stops_at_failure {
                limit.fetch_min(number, Ordering::SeqCst);
            }
            done.lock().expect("no thread panics with the lock").push((number, outcome));
        }
    };
    thread::scope(|scope| {
        for _ in 0..order.jobs.max(1) {
            let thread = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
            thread.expect("the system has a thread for each job");
        }
    });
    let mut done = done.into_inner().expect("no thread panics with the lock");
    done.sort_by_key(|(number, _)| *number);
    let mut outcome =
        Outcome { tallies: order.kinds.iter().copied().map(Tally::new).collect(), broken: Vec::new() };
    for (number, world) in done {
        match world {
            Ok(summary) => outcome.tallies[(number % kinds) as usize].add(&summary),
            Err(broken) => {
                outcome.broken.push(broken);
                if order.stops_at_failure {
                    break;
                }
            }
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(worlds: u64, jobs: usize) -> Order {
        Order {
            kinds: Kind::ALL.to_vec(),
            first: 100,
            until: Until::Worlds(worlds),
            jobs,
            stops_at_failure: true,
            verbose: false,
        }
    }

    fn summary(seed: u64) -> Summary {
        Summary { hash: seed, simulated: Duration::from_secs(seed), counts: vec![("crashes", seed)] }
    }

    fn failure(seed: u64) -> Failure {
        Failure { seed, step: 7, message: "broken".to_owned() }
    }

    /// Worlds of masters fail from seed 103 on, and the later ones at once: the first one last.
    fn fails_late(kind: Kind, seed: u64, trace: &mut Trace) -> Result<Summary, Failure> {
        if kind != Kind::Masters || seed < 103 {
            return Ok(summary(seed));
        }
        trace.bytes(b"something");
        if seed == 103 {
            thread::sleep(Duration::from_millis(50));
        }
        Err(failure(seed))
    }

    #[test]
    fn sums_do_not_depend_on_the_number_of_threads() {
        let alone = run(&order(20, 1), |_, seed, _| Ok(summary(seed)));
        let sum = (100..120).sum();
        assert_eq!(alone.tallies.len(), Kind::ALL.len());
        for tally in &alone.tallies {
            assert_eq!((tally.worlds, tally.hash, tally.simulated), (20, sum, Duration::from_secs(sum)));
            assert_eq!(tally.counts, [("crashes", sum)]);
        }
        assert_eq!(run(&order(20, 7), |_, seed, _| Ok(summary(seed))), alone);
    }

    #[test]
    fn the_smallest_failing_seed_is_reported_whichever_fails_first() {
        let alone = run(&order(50, 1), fails_late);
        assert_eq!(alone.broken.iter().map(|broken| broken.failure.seed).collect::<Vec<_>>(), [103]);
        assert_eq!(alone.tallies.iter().map(|tally| tally.worlds).collect::<Vec<_>>(), [4, 4, 4, 4, 3, 3, 3]);
        for jobs in [2, 8] {
            assert_eq!(run(&order(50, jobs), fails_late), alone, "{jobs} jobs");
        }
    }

    #[test]
    fn every_failure_is_kept_when_none_ends_the_run() {
        let order = Order { stops_at_failure: false, ..order(6, 3) };
        let outcome = run(&order, fails_late);
        let seeds = outcome.broken.iter().map(|broken| broken.failure.seed).collect::<Vec<_>>();
        assert_eq!(seeds, [103, 104, 105]);
        assert_eq!(
            outcome.tallies.iter().map(|tally| tally.worlds).collect::<Vec<_>>(),
            [6, 6, 6, 6, 3, 6, 6]
        );
    }

    #[test]
    fn real_worlds_are_the_same_on_one_thread_and_on_three() {
        let world = |kind: Kind, seed, trace: &mut Trace| kind.run(seed, 200, trace);
        let alone = run(&order(2, 1), world);
        assert_eq!(alone.broken, []);
        assert!(alone.tallies.iter().all(|tally| tally.hash != 0 && tally.simulated > Duration::ZERO));
        assert_eq!(run(&order(2, 3), world), alone);
    }

    #[test]
    fn a_tally_is_printed_in_one_line() {
        let tally = Tally {
            worlds: 150,
            simulated: Duration::from_secs(5_400),
            hash: 0xab,
            counts: vec![("crashes", 4), ("tuples expired", 7)],
            ..Tally::new(Kind::Expiration)
        };
        assert_eq!(
            tally.to_string(),
            "expiration: 150 worlds, 1.50 simulated hours, 4 crashes, 7 tuples expired; hash 00000000000000ab"
        );
    }
}
