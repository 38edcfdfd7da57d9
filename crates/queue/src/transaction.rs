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
//! ([`Queue::begin`]). In the latter case the operation is a savepoint's worth of it and fails alone.

use std::ops::Range;

use lycosa_store::{Statement, Store, UserId};

use crate::driver::Candidates;
use crate::driver::candidates::Candidate;
use crate::error::Error;
use crate::owners::{Owner, TaskKey};
use crate::session::SessionId;
use crate::statistics::Operation;
use crate::system::SystemSpaces;
use crate::time::NEVER;
use crate::tube::SlotIndex;
use crate::{Queue, TaskEvent};

/// How to take back what an operation has changed in memory.
#[derive(Debug)]
pub(crate) enum Undo {
    /// The tube's next id was another.
    NextId { slot: SlotIndex, previous: Option<u64> },
    /// The sub-queue had another candidate, or none; its name is in [`Pending::names`].
    Candidate { slot: SlotIndex, name: Range<usize>, previous: Option<Candidate> },
    /// The tube had candidates, the last of [`Pending::candidates`].
    Candidates { slot: SlotIndex },
    /// The connection had another session, or none.
    Session { connection: u64, previous: Option<SessionId> },
    /// The session was not open.
    Opened { session: SessionId },
    /// Another owner, or none, was noted of the task.
    Owner { task: TaskKey, previous: Option<Owner> },
    /// The tube was not there.
    Tube { slot: SlotIndex },
    /// The queue's spaces had other ids, and the other mode.
    Mode { spaces: SystemSpaces, in_replicaset: bool },
}

/// What the open transaction will do to memory.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// Up to where its changes are taken into account; None: nothing yet.
    pub(crate) accounted: Option<lycosa_store::Savepoint>,
    counts: Vec<(SlotIndex, Operation)>,
    pub(crate) events: Vec<TaskEvent>,
    pub(crate) undo: Vec<Undo>,
    pub(crate) closing: Vec<SessionId>,
    /// Tasks whose owner's row somebody else than the queue has removed or changed.
    pub(crate) disowned: Vec<TaskKey>,
    pub(crate) dropped: Vec<SlotIndex>,
    /// Names of sub-queues, for [`Undo::Candidate`].
    names: Vec<u8>,
    /// For [`Undo::Candidates`].
    candidates: Vec<Candidates>,
}

/// A place in [`Pending`] to which a failed operation returns.
#[derive(Debug, Clone, Copy, Default)]
struct Mark {
    accounted: Option<lycosa_store::Savepoint>,
    counts: usize,
    events: usize,
    undo: usize,
    closing: usize,
    disowned: usize,
    dropped: usize,
}

impl Pending {
    pub(crate) fn count(&mut self, slot: SlotIndex, operation: Operation) {
        self.counts.push((slot, operation));
    }

    /// Notes how a sub-queue gets back its candidate.
    pub(crate) fn undo_candidate(&mut self, slot: SlotIndex, name: &[u8], previous: Option<Candidate>) {
        let start = self.names.len();
        self.names.extend_from_slice(name);
        self.undo.push(Undo::Candidate { slot, name: start..self.names.len(), previous });
    }

    /// Notes how a tube gets back its candidates.
    pub(crate) fn undo_candidates(&mut self, slot: SlotIndex, former: Candidates) {
        self.candidates.push(former);
        self.undo.push(Undo::Candidates { slot });
    }

    fn mark(&self) -> Mark {
        Mark {
            accounted: self.accounted,
            counts: self.counts.len(),
            events: self.events.len(),
            undo: self.undo.len(),
            closing: self.closing.len(),
            disowned: self.disowned.len(),
            dropped: self.dropped.len(),
        }
    }
}

impl Queue {
    /// Opens a transaction in which `acting` acts, for a program or for statements that are not the queue's own. It stays
    /// open until [`Self::commit`] or [`Self::rollback`]; calls in between become parts of it, and no waiting call is
    /// served before the commit. Statements go to the store directly.
    ///
    /// # Panics
    /// A transaction is open already: ask [`Store::in_transaction`].
    pub fn begin(&mut self, store: &mut Store, acting: UserId) {
        store.begin(acting);
    }

    /// Commits the open transaction and does what follows from it: counts, closes sessions, serves waiting calls.
    ///
    /// # Errors
    /// A statement that keeps the queue's spaces in step was refused, for want of memory for example. The transaction is
    /// rolled back then.
    pub fn commit(&mut self, store: &mut Store, now: u64) -> Result<(), Error> {
        if let Err(error) = self.account_foreign(store) {
            self.rollback(store);
            return Err(error);
        }
        store.commit();
        self.apply_pending(store);
        self.release_at_once(store, now);
        self.serve(store, now);
        Ok(())
    }

    /// Rolls the open transaction back.
    pub fn rollback(&mut self, store: &mut Store) {
        store.rollback();
        self.revert_to(Mark::default());
    }

    /// The present place in the open transaction.
    #[must_use]
    pub fn savepoint(&self, store: &Store) -> Savepoint {
        Savepoint { store: store.savepoint(), mark: self.pending.mark() }
    }

    /// Undoes everything since the savepoint, which must be of this transaction and not undone itself.
    pub fn rollback_to(&mut self, store: &mut Store, savepoint: Savepoint) {
        store.rollback_to(savepoint.store);
        self.revert_to(savepoint.mark);
    }

    /// Executes one statement on behalf of `acting`: in a transaction of its own, or as a part of the open one. Appends
    /// the tuple that the statement returns to `out`. True if there is one.
    ///
    /// # Errors
    /// As [`Store::execute`] and [`Self::commit`]. Nothing has changed then, and nothing was appended.
    pub fn execute(
        &mut self,
        store: &mut Store,
        acting: UserId,
        statement: &Statement<'_>,
        now: u64,
        out: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        self.show(store, statement.space())?;
        if store.in_transaction() {
            let former = store.set_user(acting);
            let executed = store.execute(statement).map(|tuple| append(tuple, out));
            store.set_user(former);
            return Ok(executed?);
        }
        let start = out.len();
        store.begin(acting);
        let executed = match store.execute(statement) {
            Ok(tuple) => Ok(append(tuple, out)),
            Err(error) => {
                self.rollback(store);
                return Err(error.into());
            }
        };
        self.commit(store, now).inspect_err(|_| out.truncate(start))?;
        executed
    }

    /// Runs one operation in a transaction in which `acting` acts: in one of its own that is committed, or as a part
    /// of the open one. If it fails, nothing has happened.
    pub(crate) fn transact<T>(
        &mut self,
        store: &mut Store,
        acting: UserId,
        operation: impl FnOnce(&mut Self, &mut Store) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if store.in_transaction() {
            return self.transact_inside(store, acting, operation);
        }
        store.begin(acting);
        let result = operation(self, store);
        if result.is_ok() {
            store.commit();
            self.apply_pending(store);
        } else {
            self.rollback(store);
        }
        result
    }

    fn transact_inside<T>(
        &mut self,
        store: &mut Store,
        acting: UserId,
        operation: impl FnOnce(&mut Self, &mut Store) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.account_foreign(store)?;
        let savepoint = self.savepoint(store);
        let former = store.set_user(acting);
        let result = operation(self, store);
        store.set_user(former);
        match result {
            // Operations give account of what they do themselves.
            Ok(_) => self.pending.accounted = Some(store.savepoint()),
            Err(_) => self.rollback_to(store, savepoint),
        }
        result
    }

    fn apply_pending(&mut self, store: &mut Store) {
        for (slot, operation) in self.pending.counts.drain(..) {
            if let Some(tube) = self.tubes.at_mut(slot) {
                tube.counters.add(operation);
            }
        }
        if !self.pending.events.is_empty() {
            self.events.extend(self.pending.events.drain(..));
        }
        self.pending.undo.clear();
        self.pending.names.clear();
        self.pending.candidates.clear();
        self.pending.accounted = None;
        for session in self.pending.closing.drain(..) {
            self.sessions.close(session);
        }
        self.sessions.disown(self.pending.disowned.drain(..));
        while let Some(index) = self.pending.dropped.pop() {
            self.forget_tube(store, index);
        }
    }

    fn revert_to(&mut self, mark: Mark) {
        let pending = &mut self.pending;
        pending.accounted = mark.accounted;
        pending.counts.truncate(mark.counts);
        pending.events.truncate(mark.events);
        pending.closing.truncate(mark.closing);
        pending.disowned.truncate(mark.disowned);
        pending.dropped.truncate(mark.dropped);
        while self.pending.undo.len() > mark.undo
            && let Some(undo) = self.pending.undo.pop()
        {
            self.undo(undo);
        }
    }

    fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::NextId { slot, previous } => {
                if let Some(tube) = self.tubes.at_mut(slot) {
                    tube.next_id = previous;
                }
            }
            Undo::Candidate { slot, name: place, previous } => {
                let name = &self.pending.names[place.clone()];
                if let Some(candidates) =
                    self.tubes.at_mut(slot).and_then(|tube| tube.driver.candidates_mut())
                {
                    candidates.set(name, previous);
                }
                self.pending.names.truncate(place.start);
            }
            Undo::Candidates { slot } => {
                let Some(former) = self.pending.candidates.pop() else { return };
                if let Some(candidates) =
                    self.tubes.at_mut(slot).and_then(|tube| tube.driver.candidates_mut())
                {
                    *candidates = former;
                }
            }
            Undo::Opened { session } => self.sessions.forget_opener(&session),
            Undo::Owner { task, previous } => self.owners.restore(task, previous),
            Undo::Session { connection, previous } => _ = self.sessions.bind(connection, previous),
            Undo::Tube { slot } => {
                self.deadlines.set(slot, NEVER);
                self.tubes.remove(slot);
            }
            Undo::Mode { spaces, in_replicaset } => {
                self.spaces = spaces;
                self.configuration.in_replicaset = in_replicaset;
            }
        }
    }
}

/// A place in the open transaction to which store and queue can return together. See [`Queue::savepoint`].
#[derive(Debug, Clone, Copy)]
pub struct Savepoint {
    store: lycosa_store::Savepoint,
    mark: Mark,
}

/// Appends what a statement returned. True if it returned a tuple.
fn append(tuple: Option<&[u8]>, out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(tuple.unwrap_or_default());
    tuple.is_some()
}
