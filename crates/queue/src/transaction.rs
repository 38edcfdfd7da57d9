//! Transactions over store and queue.
//!
//! Statements go to the store, which can undo them. What the process knows beside the store follows from the account of
//! each change ([`crate::account`]). It is of two kinds:
//!
//! - *done and undone*: next ids, candidates, sessions of connections, owners of tasks, new tubes. They change at once,
//!   because later operations of the same transaction must see them, and [`Undo`] takes them back;
//! - *deferred*: counters, events, closing sessions, dropped tubes. They wait in [`Pending`] for the commit.
//!
//! A transaction may be the queue's own, of one operation, or one that a program has opened around several
//! ([`Queue::begin`](crate::Queue::begin)). In the latter case the operation is a savepoint's worth of it and fails alone.

mod steps;

use std::ops::Range;

use crate::TaskEvent;
use crate::consumers::ConsumerRows;
use crate::counted::Counted;
use crate::driver::Candidates;
use crate::driver::candidates::SubQueue;
use crate::follower::redefined::Redefined;
use crate::owner_changes::OwnerNotes;
use crate::owners::owner::Owner;
use crate::session::SessionId;
use crate::system::SystemSpaces;
use crate::task::TaskKey;
use crate::tube::handle::TubeIndex;

/// How to take back what an operation has changed in memory.
#[derive(Debug)]
pub(crate) enum Undo {
    /// The tube's next id was another.
    NextId { tube: TubeIndex, previous: Option<u64> },
    /// The sub-queue had another candidate, or none, or other taken tasks; its name is in [`Pending::names`].
    Candidate { tube: TubeIndex, name: Range<usize>, previous: SubQueue },
    /// The tube had candidates, the last of [`Pending::candidates`].
    Candidates { tube: TubeIndex },
    /// The connection had another session, or none.
    Session { connection: u64, previous: Option<SessionId> },
    /// The session was not open.
    Opened { session: SessionId },
    /// Another owner, or none, was noted of the task.
    Owner { task: TaskKey, previous: Option<Owner> },
    /// Rows of `_queue_consumers` were missing and surplus.
    Consumers(ConsumerRows),
    /// The tube was not there.
    Tube { tube: TubeIndex },
    /// The queue's spaces had other ids, and the other mode.
    Mode { spaces: SystemSpaces, in_replicaset: bool },
}

/// The effects of the open transaction on the queue's memory.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// Up to where its changes are taken into account; None: nothing yet.
    pub(crate) accounted: Option<lycosa_store::Savepoint>,
    pub(crate) counts: Vec<Counted>,
    pub(crate) events: Vec<TaskEvent>,
    pub(crate) undo: Vec<Undo>,
    /// Changes of owners for the batch, by this transaction and by committed ones.
    pub(crate) notes: OwnerNotes,
    pub(crate) closing: Vec<SessionId>,
    /// Tasks whose owner's row a program, a client's DML or another master has removed or changed.
    pub(crate) disowned: Vec<TaskKey>,
    pub(crate) dropped: Vec<TubeIndex>,
    /// The tubes that a program, a client's DML or another master may have created or dropped. A rolled-back change stays in it.
    pub(crate) redefined: Redefined,
    /// Names of sub-queues, for [`Undo::Candidate`].
    names: Vec<u8>,
    /// For [`Undo::Candidates`].
    candidates: Vec<Candidates>,
}

/// A place in [`Pending`] to which a failed operation returns.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mark {
    accounted: Option<lycosa_store::Savepoint>,
    counts: usize,
    events: usize,
    undo: usize,
    notes: usize,
    closing: usize,
    disowned: usize,
    dropped: usize,
}

impl Pending {
    /// Notes how a sub-queue gets back its candidate.
    pub(crate) fn undo_candidate(&mut self, tube: TubeIndex, name: &[u8], previous: SubQueue) {
        let start = self.names.len();
        self.names.extend_from_slice(name);
        self.undo.push(Undo::Candidate { tube, name: start..self.names.len(), previous });
    }

    /// Notes how a tube gets back its candidates.
    pub(crate) fn undo_candidates(&mut self, tube: TubeIndex, former: Candidates) {
        self.candidates.push(former);
        self.undo.push(Undo::Candidates { tube });
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark {
            accounted: self.accounted,
            counts: self.counts.len(),
            events: self.events.len(),
            undo: self.undo.len(),
            notes: self.notes.mark(),
            closing: self.closing.len(),
            disowned: self.disowned.len(),
            dropped: self.dropped.len(),
        }
    }
}

/// A statement about which hooks have to decide, and the place to which store and queue return if it is refused. See
/// [`Queue::submit`](crate::Queue::submit).
#[derive(Debug)]
#[must_use = "the statement is executed by Queue::decide"]
pub struct Proposal {
    proposal: lycosa_store::Proposal,
    mark: Mark,
}

impl Proposal {
    /// The tuple with the primary key, if there is one.
    #[must_use]
    pub fn old_tuple(&self) -> Option<&[u8]> {
        self.proposal.old.as_deref()
    }

    /// The tuple that would take its place; nothing for a DELETE.
    #[must_use]
    pub fn new_tuple(&self) -> Option<&[u8]> {
        self.proposal.new.as_deref()
    }
}

/// A place in the open transaction to which store and queue can return together. See [`Queue::savepoint`](crate::Queue::savepoint).
#[derive(Debug, Clone, Copy)]
pub struct Savepoint {
    store: lycosa_store::Savepoint,
    mark: Mark,
}

impl Savepoint {
    /// The place in the store's transaction.
    #[must_use]
    pub fn in_store(&self) -> lycosa_store::Savepoint {
        self.store
    }
}
