//! A deterministic simulator of a whole instance.
//!
//! One seed decides everything: which tubes there are, what a handful of clients ask for and when, how their bytes are
//! cut, when time passes, how long the journal takes, when the disk refuses, when the process or the machine dies. No
//! thread, clock, socket or file is involved, so the same seed gives the same run, and a failure is a number.
//!
//! What is checked, at every step:
//! - the spaces hold exactly what a plain model of the queue says, and every answer is the one that the model gave;
//! - a task is taken exactly if somebody holds it; of a sub-queue at most one task is taken;
//! - a tick asks to be called again no later than something is due, and never now for nothing twice;
//! - an answer leaves only when the disk holds every row that it may have seen.
//!
//! With nothing under way: every request is answered or waits for something to happen; the data are what the rows in the
//! journal make.
//!
//! At every start, from whichever snapshot: the data are those of a prefix of the rows that ends with a transaction and holds everything that was
//! durable in the sense of `wal_mode`; what a client was told is so, as far as that mode promises it.
//!
//! Absent: more than one instance; errors for want of memory; the server's own loop, which the simulation imitates.

mod agreement;
mod checkpoint;
mod connection;
mod disk;
mod journal;
mod ledger;
mod model;
mod names;
mod plan;
mod random;
mod request;
mod restart;
mod shadow;
mod simulation;
mod snapshots;
mod storage;
mod trace;
mod traffic;
mod violation;
mod workload;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub use simulation::Totals;
pub use trace::Trace;

use simulation::Simulation;

/// What a run came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// Stands for everything that happened: two runs of one seed have the same.
    pub hash: u64,
    /// What happened, in numbers.
    pub totals: Totals,
}

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("seed {seed}, step {step}: {message}")]
pub struct Failure {
    /// The run's seed.
    pub seed: u64,
    /// The step at or after which it was found; a run of so many steps finds it again.
    pub step: u64,
    /// What was found.
    pub message: String,
}

/// Runs the world of `seed` for `steps` steps and one more, which stops and starts it in order.
///
/// # Errors
/// The first promise that was broken, a panic of the instance included.
pub fn run(seed: u64, steps: u64, trace: &mut Trace) -> Result<Report, Failure> {
    let mut step = 0;
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut simulation = Simulation::new(seed, &mut *trace)?;
        while simulation.step < steps {
            step = simulation.step + 1;
            simulation.next()?;
        }
        simulation.finish()?;
        Ok(simulation.totals)
    }));
    let failure = |message: String| Failure { seed, step, message };
    match outcome {
        Ok(Ok(totals)) => Ok(Report { hash: trace.hash(), totals }),
        Ok(Err(violation)) => {
            let violation: violation::Violation = violation;
            Err(failure(violation.to_string()))
        }
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Err(failure(format!("panic: {text}")))
        }
    }
}
