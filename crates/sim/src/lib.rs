//! A deterministic simulator of a whole instance.
//!
//! One seed decides everything: which tubes there are, what a handful of clients ask for and when, and how their
//! bytes are cut. It also decides when time passes, how long the journal takes, when the disk refuses, and when the
//! process or the machine dies. No thread, clock, socket or file is involved, so the same seed gives the same run,
//! and a failure is a number.
//!
//! Checked at every step:
//! - the spaces hold exactly what a plain model of the queue says, and every answer is the one that the model gave;
//! - a task is taken exactly if a client holds it; of a sub-queue at most one task is taken;
//! - a tick asks to be called again no later than something is due, and never now for nothing twice;
//! - an answer leaves only when the disk holds every row that it may have seen.
//!
//! With nothing under way: every request is answered or waits for something to happen; the data are what the rows in the
//! journal make.
//!
//! At every start, from whichever snapshot: the data are those of a prefix of the rows. The prefix ends with a
//! transaction and holds everything that was durable in the sense of `wal_mode`. What a client was told is so, as far
//! as that mode promises it.
//!
//! The world `steering` of a seed has operators, too: pages of `find`, jobs of `apply` that are paused, slowed down, cancelled and
//! undone. A job changes only tasks that match when it comes to them, none twice, and none that was put after it began; `undo`
//! brings back only tasks that are as the job left them.
//!
//! Half of the worlds of tubes have workers: they take in extended form, give reasons and headers, and repeat takes whose answer may
//! have been lost (`worker.rs`). Clients over HTTP put with keys there (`keyed.rs`).
//!
//! A seed has another world, of [expiration tasks](run_expiration): nothing alive is deleted, everything due goes
//! within its bound, and archived tuples are archived once.
//!
//! The turn is the server's own ([`lycosa_engine::turn`]): deadlines, a checkpoint's step, group commit and its delay, the
//! order in which replies leave.
//!
//! # Worlds that once failed without a fault of the server
//!
//! The checkers have been wrong, too. These worlds are [kept](kept), beside those in which the server was wrong:
//!
//! | seed | claim of the checker | fault of the checker |
//! |---|---|---|
//! | 2055162165 | a task of which a client knew that it was put had gone | A `delete` of task 3 was being sent when the tube was emptied; the server read it when there was a new task 3, and ended that. The ledger had forgotten the request together with the old tasks. Requests under way now count for the tasks that come after. |
//! | 2055162963, 1000107 | the data folder took more than its bound | The bound was taken of the data at the end of a checkpoint. It holds for the most that lived since the newest snapshot was begun. (The server was mended as well: the journal file that a snapshot ended now goes while the next one is written.) |
//! | 2226660278 | a task was missing that the model had | A call's time was over, so a put with a ttl of 0 got its place. The server removed that task in the same tick, the model in the next one. The model now ticks until nothing is due. |
//! | 307255977 | a task's time differed after a start | A client had made a delayed task ready past the queue, and left it the time at which its delay was over. A start corrects such times; the model does now. |
//! | 3428903472 | a temporary tube went on at another id than expected after a restart | A row with an id of its own had been inserted past the queue. It moves the tube's sequence on, and a snapshot keeps the sequence though not the row. The model now takes any id from the reserved ones on. |
//! | 770065, 770069, 770129, 770350 | a task's time differed after a start | A start corrects `next_event` of ready, buried and delayed tasks in tubes of all types with deadlines. The model corrected ready ones in tubes with sub-queues. |
//! | 770169 | a start was refused after a bit of the newest snapshot had turned over | With `checkpoint_count = 1` the machine had died while old files were removed: the older snapshot was left, its xlog was not. A bit now turns over only where a start can go back to the older snapshot. |
//! | 51000720 | a call waited that should not | A take removed a dead task, which made a place for a put that waited. The server serves that put before the next take, the model served all takes first. |
//! | 51000794, 62000101 | an insert was refused for memory, the model took it | The inserted task was dead and would have been removed at once by a take that waited, so that the tube was the same with and without it. The model now asks the instance whether the request was refused. |
//! | 85000466 | a waiting `take_many` got other tasks | A session ended that held more tasks than one step of the queue releases, and the instance served the call between two steps, as `docs/queue.md` says. The model releases all of them first, and so does the instance now, by a larger step. |
//! | 819827553 (replicas) | the holder of a task was told that it was not taken | An idle client's session had ended under another master, and its open connection took under a new session, of which the client did not know. Clients now identify themselves again after a change of the master. |
//! | 424287 | a waiting `take` was answered before the rows of its tick were durable | The tube was temporary: the answer had no row, and had seen none of the rows that the tick wrote after it. The checker now asks only that the rows before the tick are durable. |
//! | 118 (steering) | a `put` was answered that it had waited in vain, before rows of its tick were durable | A job had its turn later in the tick, and wrote these rows. The checker now asks only that the rows before the tick are durable. |
//! | 164 (steering) | a client was told of an unknown lease | A job ended the lease in the tick that had made it, so that no row told its token. The checker now takes any token for such a lease. |
//! | 3955460053 (steering) | a call waited that should not | A page of `find` looked at more than 64 tasks, so the instance answered it in slices. The model answers each page at once; a client that would ask for such a page now leaves. |
//! | 1966042819 (members) | a group was not at rest after a minute | The last client waited for an answer of a server that the group had removed. Such a client now goes to another server. |
//! | 77020 (replicas) | two instances had the same vclock and different data | An instance joined again from a master whose journal had just failed, and got rows that were lost. It now waits for a master that works, as the server makes it wait. |
//!
//! Several instances that replicate each other have worlds of their own: `replicas`. So have the nodes of a group (`group`), and
//! groups whose members are whole instances (`members`).
//!
//! Absent: sockets and threads of the server.

mod agreement;
mod checkpoint;
mod connection;
mod disk;
mod expiring;
mod extended;
mod group;
mod journal;
pub mod kept;
mod keyed;
mod kind;
mod ledger;
mod members;
mod model;
mod names;
mod plan;
mod random;
mod replicas;
mod request;
mod restart;
mod runner;
mod shadow;
mod shared;
mod simulation;
mod snapshots;
mod steering;
mod storage;
mod trace;
mod traffic;
mod violation;
mod worker;
mod workload;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

pub use expiring::ExpirationTotals;
pub use group::GroupTotals;
pub use kind::{Counts, Kind, Summary};
pub use members::MemberTotals;
pub use replicas::{MasterTotals, ReplicaTotals};
pub use runner::{Broken, Order, Outcome, Tally, Until, run as run_order};
pub use simulation::Totals;
pub use trace::Trace;

use expiring::World;
use simulation::Simulation;
use violation::Checked;

/// When every world begins: a time in November 2023, µs since the epoch.
pub(crate) const BEGINNING: u64 = 1_700_000_000_000_000;

/// What a run came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report<T = Totals> {
    /// Stands for everything that happened: two runs of one seed have the same.
    pub hash: u64,
    /// How far the world's clock came.
    pub simulated: Duration,
    /// What happened, in numbers.
    pub totals: T,
}

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("seed {seed}, step {step}: {message}")]
pub struct Failure {
    /// The run's seed.
    pub seed: u64,
    /// The step at or after which it was found; a run of this number of steps finds it again.
    pub step: u64,
    /// The broken promise.
    pub message: String,
}

/// Runs the world of tubes of `seed` for `steps` steps and one more, which stops and starts it in order.
///
/// # Errors
/// The first promise that was broken, a panic of the instance included.
pub fn run(seed: u64, steps: u64, trace: &mut Trace) -> Result<Report, Failure> {
    run_tubes(seed, steps, false, trace)
}

/// The same with operators, who find and change many tasks at once, and undo that.
///
/// # Errors
/// As [`run`].
pub fn run_steering(seed: u64, steps: u64, trace: &mut Trace) -> Result<Report, Failure> {
    run_tubes(seed, steps, true, trace)
}

fn run_tubes(seed: u64, steps: u64, is_steered: bool, trace: &mut Trace) -> Result<Report, Failure> {
    run_world(seed, trace, |trace, step| {
        let mut simulation = Simulation::new(seed, is_steered, trace)?;
        while simulation.step < steps {
            *step = simulation.step + 1;
            simulation.next()?;
        }
        simulation.finish()?;
        Ok((simulation.totals, simulation.now))
    })
}

/// Runs the world of expiration tasks of `seed` for `steps` steps and one more, after which every due tuple is deleted.
///
/// # Errors
/// As [`run`].
pub fn run_expiration(seed: u64, steps: u64, trace: &mut Trace) -> Result<Report<ExpirationTotals>, Failure> {
    run_world(seed, trace, |trace, step| {
        let mut world = World::new(seed, trace)?;
        while world.step < steps {
            *step = world.step + 1;
            world.next()?;
        }
        world.finish()?;
        Ok((world.totals, world.now))
    })
}

/// Runs the world of several instances of `seed` for `steps` steps, and lets it come to rest.
///
/// # Errors
/// As [`run`].
pub fn run_replicas(seed: u64, steps: u64, trace: &mut Trace) -> Result<Report<ReplicaTotals>, Failure> {
    run_world(seed, trace, |trace, step| {
        let mut world = replicas::World::new(seed, trace)?;
        while world.step < steps {
            *step = world.step + 1;
            world.next()?;
        }
        world.settle()?;
        Ok((world.totals, world.now))
    })
}

/// Runs the world of two masters of `seed` for `steps` steps, and lets it come to rest.
///
/// # Errors
/// As [`run`].
pub fn run_masters(seed: u64, steps: u64, trace: &mut Trace) -> Result<Report<MasterTotals>, Failure> {
    run_world(seed, trace, |trace, step| {
        let mut world = replicas::Masters::new(seed, trace)?;
        while world.step < steps {
            *step = world.step + 1;
            world.next()?;
        }
        world.settle()?;
        Ok((world.totals, world.now))
    })
}

/// Runs the world of a group of servers of `seed` for `steps` steps, and lets it come to rest.
///
/// # Errors
/// As [`run`].
pub fn run_group(seed: u64, steps: u64, trace: &mut Trace) -> Result<Report<GroupTotals>, Failure> {
    run_world(seed, trace, |trace, step| {
        let mut world = group::World::new(seed, trace)?;
        while world.step < steps {
            *step = world.step + 1;
            world.next()?;
        }
        world.settle()?;
        Ok((world.totals, world.now))
    })
}

/// Runs the world of a group of instances of `seed` for `steps` steps, and lets it come to rest.
///
/// # Errors
/// As [`run`].
pub fn run_members(seed: u64, steps: u64, trace: &mut Trace) -> Result<Report<MemberTotals>, Failure> {
    run_world(seed, trace, |trace, step| {
        let mut world = members::World::new(seed, trace)?;
        while world.step < steps {
            *step = world.step + 1;
            world.next()?;
        }
        world.settle()?;
        Ok((world.totals, world.now))
    })
}

/// Runs a world, which tells the step that it is in, and with its totals the time at which it ended.
fn run_world<T>(
    seed: u64,
    trace: &mut Trace,
    world: impl FnOnce(&mut Trace, &mut u64) -> Checked<(T, u64)>,
) -> Result<Report<T>, Failure> {
    let mut step = 0;
    let outcome = catch_unwind(AssertUnwindSafe(|| world(&mut *trace, &mut step)));
    let failure = |message: String| Failure { seed, step, message };
    match outcome {
        Ok(Ok((totals, end))) => {
            let simulated = Duration::from_micros(end.saturating_sub(BEGINNING));
            Ok(Report { hash: trace.hash(), simulated, totals })
        }
        Ok(Err(violation)) => Err(failure(violation.to_string())),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Err(failure(format!("panic: {text}")))
        }
    }
}
