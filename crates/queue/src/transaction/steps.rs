//! The steps of a transaction: it begins, takes statements, and ends. A commit applies the effects that wait in
//! [`Pending`](super::Pending); a rollback takes back the changes that [`Undo`] notes.

use lycosa_store::{Decision, SpaceId, Statement, Store, Submitted, UserId};

use super::{Mark, Proposal, Savepoint, Undo};
use crate::Queue;
use crate::error::Result;
use crate::time::NEVER;
use crate::tube::Tubes;
use crate::turn::{Common, Turn};

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
    pub fn commit(&mut self, store: &mut Store, now: u64) -> Result<()> {
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
    ) -> Result<Option<Proposal>> {
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
    ) -> Result<()> {
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
    ) -> Result<bool> {
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
    fn commit(&mut self) -> Result<()> {
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
    pub(crate) fn write_back(&mut self, space: SpaceId) -> Result<()> {
        if self.common.owners.may_lack_rows_of(space) {
            self.write_back_owners()?;
        }
        if self.common.consumers_differ(space) { self.waiters().write_rows() } else { Ok(()) }
    }

    pub(crate) fn settle_owners(&mut self) -> Result<()> {
        self.transact(|turn| turn.common.owners.settle(turn.store, &mut turn.common.pending))
    }

    pub(crate) fn write_back_owners(&mut self) -> Result<()> {
        self.transact(|turn| turn.common.owners.write_back_all(turn.store, &mut turn.common.pending))
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

/// Appends what a statement returned. True if it returned a tuple.
fn append(tuple: Option<&[u8]>, out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(tuple.unwrap_or_default());
    tuple.is_some()
}
