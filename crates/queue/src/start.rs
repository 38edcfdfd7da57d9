//! Start of the queue: after recovery, when a read-only instance becomes writable, and when the journal has lost rows.
//!
//! 1. The queue's spaces are created, or brought into the configured mode.
//! 2. Each row of `_queue` becomes a tube. A tube that the process already knows keeps its counters.
//! 3. Taken tasks whose owner cannot come back become ready. A lease outlives the process.
//! 4. Sessions without a connection begin to expire, or end.
//! 5. Rows that the Lua module left wrong are corrected ([`Amiss`](crate::follower::amiss::Amiss)).
//! 6. Calls that wait are served.
//!
//! After a restart this costs a look at every task of a tube with deadlines, a few look-ups for each sub-queue, and one
//! for each taken task. A start that ends a time as a replica costs O(tubes + taken tasks + sessions +
//! rows to correct), because the tubes have followed the applied rows ([`crate::follower`]).
//!
//! All of it is done in portions of at most [`Turn::BATCH`] rows ([`ComingUp`]). A start runs them one after the other. A
//! rebuild ([`crate::Queue::rebuild`]) runs some in each turn; no other function may change the data until it ends.
//!
//! A row of `_queue` that cannot become a tube (an unknown type, a space without an index) stays, without a tube, and
//! the log says why: one broken tube must not keep further tubes down.
//!
//! [`Turn::BATCH`]: crate::turn::Turn::BATCH

mod stages;

use std::collections::HashSet;

use crate::derivation::Finding;
use crate::error::Result;
use crate::session::SessionsStart;
use crate::task::TaskKey;
use crate::tube::handle::TubeIndex;

/// The results of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StartReport {
    /// Tubes that are available.
    pub tubes: usize,
    /// Rows of `_queue` that could not become tubes; the log names them.
    pub unavailable: usize,
    /// Tasks whose owners were gone, and that became ready.
    pub released: u64,
}

/// The outcome of [`crate::Queue::rebuild`].
#[derive(Debug)]
pub struct Rebuilt {
    /// The calls that go on waiting: numbers of connections and requests. All others that were parked are forgotten.
    pub waiting: HashSet<(u64, u64)>,
    /// As of [`crate::Queue::start`], which is to be called again after an error.
    pub started: Result<StartReport>,
}

/// Why the queue comes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Occasion {
    /// The process begins, without connections.
    Beginning,
    /// The process has known the tubes before, as a replica or as the master.
    Again,
    /// The store holds other data, and the queue runs.
    Rebuild,
    /// The store holds other data, and the queue only follows them.
    Follow,
}

/// Progress of the queue's start.
#[derive(Debug)]
pub(crate) struct ComingUp {
    occasion: Occasion,
    stage: Stage,
    report: StartReport,
    /// Tubes that were known before and whose rows were not found yet.
    gone: HashSet<TubeIndex>,
}

/// The present step, and the key behind which its next portion begins.
#[derive(Debug)]
enum Stage {
    Spaces,
    /// Rows of `_queue` become tubes, in the order of their ids.
    Tubes(Option<u64>),
    /// What derives from the rows of the tube with that id is found.
    Derived {
        id: u64,
        index: TubeIndex,
        finding: Finding,
    },
    /// Kept attempts of deleted tasks are removed.
    Attempts(Option<TaskKey>),
    /// Taken tasks without an owner are released, a tube after the other.
    Orphans {
        tube: Option<u64>,
        after: Option<(u64, u64)>,
    },
    /// Owners of tasks that do not exist or are not taken are forgotten.
    Owners(Option<TaskKey>),
    /// The same of leases.
    Leases(Option<TaskKey>),
    Sessions(SessionsStart),
    /// Faults of rows are corrected in the tube behind that id.
    Corrections(Option<u64>),
    /// Calls that wait are served.
    Serving,
    Up,
}
