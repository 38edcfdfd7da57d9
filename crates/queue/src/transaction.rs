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

use lycosa_store::{Decision, SpaceId, Statement, Store, Submitted, UserId};

use crate::consumers::ConsumerRows;
use crate::counted::Counted;
use crate::driver::Candidates;
use crate::driver::candidates::SubQueue;
use crate::error::Error;
use crate::follower::redefined::Redefined;
use crate::owner_changes::OwnerNotes;
use crate::owners::Owner;
use crate::session::SessionId;
use crate::system::SystemSpaces;
use crate::task::TaskKey;
use crate::time::NEVER;
use crate::tube::Tubes;
use crate::tube::handle::TubeIndex;
use crate::turn::{Common, Turn};
use crate::{Queue, TaskEvent};

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
        self.turn(store, now).commit()
    }

    /// Rolls the open transaction back.
    pub fn rollback(&mut self, store: &mut Store) {
        store.rollback();
        self.common.revert_to(&mut self.tubes, Mark::default());
    }

    /// The present place in the open transaction.
    #[must_use]
    pub fn savepoint(&self, store: &Store) -> Savepoint {
        Savepoint { store: store.savepoint(), mark: self.common.pending.mark() }
    }

    /// Undoes everything since the savepoint.
    ///
    /// # Panics
    /// The savepoint is of another transaction, or was undone: ask [`Store::is_live`] about [`Savepoint::in_store`].
    pub fn rollback_to(&mut self, store: &mut Store, savepoint: Savepoint) {
        store.rollback_to(savepoint.store);
        self.common.revert_to(&mut self.tubes, savepoint.mark);
    }

    /// Submits one statement on behalf of `acting` to the open transaction, see [`Store::submit`]. Appends the tuple
    /// that an executed statement returns to `out`.
    ///
    /// # Errors
    /// As [`Store::submit`]; or a row of a cached owner is refused, because a client has changed or dropped its space.
    pub fn submit(
        &mut self,
        store: &mut Store,
        acting: UserId,
        statement: &Statement<'_>,
        now: u64,
        out: &mut Vec<u8>,
    ) -> Result<Option<Proposal>, Error> {
        self.turn(store, now).write_back(statement.space())?;
        let mark = self.common.pending.mark();
        let submitted = store.acting_as(acting, |store| {
            store.submit(statement).map(|submitted| match submitted {
                Submitted::Executed(tuple) => {
                    append(tuple, out);
                    None
                }
                Submitted::Proposed(proposal) => Some(Proposal { proposal, mark }),
            })
        });
        Ok(submitted?)
    }

    /// Completes a statement that [`Self::submit`] has proposed, as the hooks decided. Appends the tuple that it returns to
    /// `out`.
    ///
    /// # Errors
    /// As [`Store::decide`]. Statements executed since the submit are undone with this one, in the store and here.
    pub fn decide(
        &mut self,
        store: &mut Store,
        acting: UserId,
        (statement, proposal, decision): (&Statement<'_>, Proposal, Decision<'_>),
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let Proposal { proposal, mark } = proposal;
        let is_live = store.is_live(proposal.savepoint());
        let decided = store.acting_as(acting, |store| {
            store.decide(statement, proposal, decision).map(|tuple| _ = append(tuple, out))
        });
        if decided.is_err() && is_live {
            self.common.revert_to(&mut self.tubes, mark);
        }
        Ok(decided?)
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
        let turn = &mut self.turn(store, now);
        turn.write_back(statement.space())?;
        if turn.store.in_transaction() {
            let executed = turn
                .store
                .acting_as(acting, |store| store.execute(statement).map(|tuple| append(tuple, out)));
            return Ok(executed?);
        }
        let start = out.len();
        turn.store.begin(acting);
        let executed = match turn.store.execute(statement) {
            Ok(tuple) => append(tuple, out),
            Err(error) => {
                turn.rollback();
                return Err(error.into());
            }
        };
        turn.commit().inspect_err(|_| out.truncate(start))?;
        Ok(executed)
    }
}

impl Turn<'_> {
    fn commit(&mut self) -> Result<(), Error> {
        if !self.common.keeps_in_step() {
            let redefined = self.follow_changes();
            self.store.commit();
            self.apply_pending();
            self.catalog().reload(&redefined);
            self.waiters().serve();
            return Ok(());
        }
        if let Err(error) = self.account_foreign() {
            self.rollback();
            return Err(error);
        }
        let redefined = std::mem::take(&mut self.common.pending.redefined);
        self.store.commit();
        self.apply_pending();
        self.catalog().adopt(&redefined);
        self.sessions().release_at_once();
        self.waiters().serve();
        Ok(())
    }

    fn rollback(&mut self) {
        self.store.rollback();
        self.revert_to(Mark::default());
    }

    /// Writes cached owners back if `space` is theirs or may tell of it, and the rows of takes that wait.
    #[inline]
    pub(crate) fn write_back(&mut self, space: SpaceId) -> Result<(), Error> {
        if self.common.owners.may_lack_rows_of(space) {
            self.write_back_owners()?;
        }
        if self.common.consumers_differ(space) { self.waiters().write_rows() } else { Ok(()) }
    }

    pub(crate) fn settle_owners(&mut self) -> Result<(), Error> {
        self.transact(|turn| {
            let Common { owners, pending, .. } = turn.common;
            owners.settle(turn.store, pending)
        })
    }

    pub(crate) fn write_back_owners(&mut self) -> Result<(), Error> {
        self.transact(|turn| {
            let Common { owners, pending, .. } = turn.common;
            owners.write_back_all(turn.store, pending)
        })
    }

    pub(crate) fn apply_pending(&mut self) {
        let Common { pending, sessions, events, totals, histories, .. } = &mut *self.common;
        if !pending.counts.is_empty() {
            totals.keep_pace(self.now, || self.tubes.total().shown());
            for counted in &pending.counts {
                self.tubes.count(counted, totals, histories, self.now);
            }
            pending.counts.clear();
        }
        pending.undo.clear();
        pending.notes.commit();
        pending.names.clear();
        pending.candidates.clear();
        pending.accounted = None;
        // These are rare, and draining nothing costs a hundred instructions each.
        if !pending.events.is_empty() {
            events.extend(pending.events.drain(..));
        }
        if !pending.closing.is_empty() {
            pending.closing.drain(..).for_each(|session| sessions.close(session));
        }
        if !pending.disowned.is_empty() {
            sessions.disown(pending.disowned.drain(..));
        }
        while let Some(index) = self.common.pending.dropped.pop() {
            self.catalog().forget(index);
        }
    }

    pub(crate) fn revert_to(&mut self, mark: Mark) {
        self.common.revert_to(self.tubes, mark);
    }
}

impl Common {
    fn revert_to(&mut self, tubes: &mut Tubes, mark: Mark) {
        let pending = &mut self.pending;
        pending.accounted = mark.accounted;
        pending.counts.truncate(mark.counts);
        pending.events.truncate(mark.events);
        pending.notes.revert_to(mark.notes);
        pending.closing.truncate(mark.closing);
        pending.disowned.truncate(mark.disowned);
        pending.dropped.truncate(mark.dropped);
        while self.pending.undo.len() > mark.undo
            && let Some(undo) = self.pending.undo.pop()
        {
            self.undo(tubes, undo);
        }
    }

    fn undo(&mut self, tubes: &mut Tubes, undo: Undo) {
        match undo {
            Undo::NextId { tube, previous } => {
                if let Some(tube) = tubes.at_mut(tube) {
                    tube.next_id = previous;
                }
            }
            Undo::Candidate { tube, name: range, previous } => {
                let name = &self.pending.names[range.clone()];
                if let Some(candidates) = tubes.at_mut(tube).and_then(|tube| tube.driver.candidates_mut()) {
                    candidates.restore(name, previous);
                }
                self.pending.names.truncate(range.start);
            }
            Undo::Candidates { tube } => {
                let Some(former) = self.pending.candidates.pop() else { return };
                if let Some(candidates) = tubes.at_mut(tube).and_then(|tube| tube.driver.candidates_mut()) {
                    *candidates = former;
                }
            }
            Undo::Opened { session } => self.sessions.forget_opener(&session),
            Undo::Owner { task, previous } => self.owners.restore(task, previous),
            Undo::Consumers(rows) => self.waiters.rows.restore(rows),
            Undo::Session { connection, previous } => _ = self.sessions.bind(connection, previous),
            Undo::Tube { tube } => {
                self.deadlines.set(tube, NEVER);
                tubes.remove(tube);
            }
            Undo::Mode { spaces, in_replicaset } => self.use_spaces(spaces, in_replicaset),
        }
    }
}

/// A statement about which hooks have to decide, and the place to which store and queue return if it is refused. See
/// [`Queue::submit`].
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

/// A place in the open transaction to which store and queue can return together. See [`Queue::savepoint`].
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

/// Appends what a statement returned. True if it returned a tuple.
fn append(tuple: Option<&[u8]>, out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(tuple.unwrap_or_default());
    tuple.is_some()
}
