//! Transactions and statements of embedding programs: the public side of the commit door.
//!
//! What a connection's request does with one frame, a fiber of a program or an HTTP request does with these functions.

use std::ops::ControlFlow;

use lycosa_iproto::keys::RequestType;
use lycosa_iproto::vclock::Vclock;
use lycosa_queue::{Proposal, Savepoint};
use lycosa_replication::applier::Row;
use lycosa_store::{
    Budget, Change, Cursor, Decision, Hooks, OwnedChange, Progress, Statement, Store, UserId,
};

use crate::shard::admission::{Growth, Need};
use crate::shard::wire_error::{self, OnWire};
use crate::{Instance, Lsn, OUTCOME_UNKNOWN, Result, Select, WalkError};

/// Deferred entries that a step of [`Instance::prepare_read`] flushes.
const FLUSH_STEP: u64 = 512;

impl Instance {
    forward! { shard.data():
        /// Opens a transaction in which `acting` acts. Statements and calls from now on join it, each as a part that
        /// fails alone; nothing waits inside it, and no waiting call is served before the commit. Any input from
        /// outside (a request, a deadline) rolls it back: a program must end it before it yields.
        ///
        /// # Errors
        /// A transaction is open already; the journal has failed.
        pub fn begin(&mut self, acting: UserId) -> Result<()>;
        /// Rolls the open transaction back.
        pub fn rollback(&mut self);
        /// Executes a statement of `acting` in the open transaction, or proposes it to the before hooks of its space; then
        /// [`Self::decide`] completes it. Appends the tuple that an executed statement returns to `out`.
        ///
        /// # Errors
        /// As [`Self::execute`].
        pub fn submit(
            &mut self,
            acting: UserId,
            statement: &Statement<'_>,
            out: &mut Vec<u8>,
        ) -> Result<Option<Proposal>>;
        /// Completes a proposed statement as the hooks decided. Appends the tuple that it returns to `out`.
        ///
        /// # Errors
        /// As [`Store::decide`]. Statements and calls since the submit are undone with this statement.
        pub fn decide(
            &mut self,
            acting: UserId,
            statement: &Statement<'_>,
            proposal: Proposal,
            decision: Decision<'_>,
            out: &mut Vec<u8>,
        ) -> Result<()>;
        /// Appends the tuples that `user` may see to `out`, back to back; returns how many they are.
        ///
        /// # Errors
        /// What the store refuses.
        pub fn select(&mut self, user: UserId, select: &Select<'_>, out: &mut Vec<u8>) -> Result<u32>;
        /// The data, with every deferred entry of an index flushed, for reads that [`Self::select`] has no words for. Access
        /// is not checked.
        ///
        /// # Errors
        /// The journal has failed.
        pub fn read(&mut self, space: u32, index: u32) -> Result<&Store>;
        /// Goes on with a walk over an index as [`Store::advance`] does, with the rights of the cursor's user.
        ///
        /// # Errors
        /// The journal has failed; see [`CursorError`](lycosa_store::CursorError).
        pub fn advance(
            &mut self,
            cursor: &mut Cursor,
            budget: Budget<'_>,
            f: &mut dyn FnMut(&[u8]),
        ) -> Result<Progress, WalkError>;
        /// As [`Self::advance`], until `f` breaks: see [`Store::advance_while`].
        ///
        /// # Errors
        /// As [`Self::advance`].
        pub fn advance_while(
            &mut self,
            cursor: &mut Cursor,
            budget: Budget<'_>,
            f: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
        ) -> Result<Progress, WalkError>;
    }

    forward! { shard:
        /// Whether a transaction is open.
        pub fn in_transaction(&self) -> bool;
        /// The present place in the open transaction.
        pub fn savepoint(&self) -> Savepoint;
        /// The time of everything that happens from now on, in microseconds since the epoch. Inputs with a time set it too.
        pub fn set_now(&mut self, now: u64);
    }

    /// Whether a savepoint is of the open transaction, which has not gone back before it.
    #[must_use]
    pub fn is_live(&self, savepoint: Savepoint) -> bool {
        self.shard.store().is_live(savepoint.in_store())
    }

    /// Undoes everything since a savepoint of the open transaction.
    ///
    /// # Errors
    /// The savepoint is of another transaction, or was undone itself by a rollback to an older one. Nothing changes then.
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        if !self.is_live(savepoint) {
            return Err(wire_error::of_store(&lycosa_store::Error::NoSuchSavepoint));
        }
        self.shard.data().rollback_to(savepoint);
        Ok(())
    }

    /// Commits the open transaction. It is durable when [`Self::is_durable`] says so of the returned LSN.
    ///
    /// # Errors
    /// The queue's spaces cannot be kept in step, for want of memory for example. The transaction is rolled back then.
    pub fn commit(&mut self) -> Result<Lsn> {
        // Programs run the triggers of what they do themselves.
        self.shard.data().upkeep().mark_hooks_run();
        self.settle(|instance| instance.shard.data().commit())
    }

    /// Runs `body` as one transaction of `acting`, or as a part of the open one that fails alone.
    ///
    /// # Errors
    /// Of `body`; as [`Self::commit`]; as [`Self::execute`] of an INSERT. Nothing has changed then.
    pub fn transaction<T>(
        &mut self,
        acting: UserId,
        body: impl FnOnce(&mut Store) -> Result<T>,
    ) -> Result<T> {
        self.settle(|instance| instance.shard.data().transaction(Growth::Adds, acting, body))
    }

    /// Says which hooks a space has from now on, for the triggers of a program.
    ///
    /// # Errors
    /// No such space, or one that never has tuples; the journal has failed.
    pub fn set_hooks(&mut self, space: u32, hooks: Hooks) -> Result<()> {
        self.shard.data().admit(Need::Read)?.store.set_hooks(space, hooks).on_wire()
    }

    /// Executes a statement of `acting`: in a transaction of its own, or in the open one. Appends the tuple that it returns
    /// to `out`; returns how many there are, 0 or 1.
    ///
    /// # Errors
    /// What the store refuses; the instance is read-only, or its disk is full.
    pub fn execute(&mut self, acting: UserId, statement: &Statement<'_>, out: &mut Vec<u8>) -> Result<u32> {
        self.settle(|instance| instance.shard.data().execute(acting, statement, out))
    }

    /// Counts a statement or a read of a program for `box.stat`. `number` is -1 for a request that a program carries out: the
    /// request was counted when it came.
    pub fn count_statement(&mut self, kind: RequestType, number: i64) {
        self.front.counts.count_statements(kind, number);
    }

    /// The changes of the open transaction, or those since a savepoint; `hooked`: only in spaces with after hooks.
    pub fn changes_since(&self, savepoint: Option<Savepoint>, hooked: bool) -> Vec<OwnedChange> {
        let (store, place) = (self.shard.store(), savepoint.map(|savepoint| savepoint.in_store()));
        let changes = store.changes_since(place);
        changes.filter(|change| !hooked || store.hooks(change.space).after).map(Change::into_owned).collect()
    }

    /// The next committed change of a space with hooks that no program has made, for triggers that run behind it.
    pub fn poll_hooked(&mut self) -> Option<OwnedChange> {
        self.shard.data().upkeep().poll_hooked()
    }

    /// Applies a transaction of another instance: all of its rows, each with its stamp, which is its header. The data
    /// change, the vclock advances to the stamps, and the rows are journaled as they came; nothing gets a number of
    /// this instance. A transaction whose rows the vclock has already changes nothing. A read-only instance applies
    /// too. A statement that the queue adds to keep in step follows as a transaction of this instance.
    ///
    /// Returns the LSN to wait for: the transaction is durable when [`Self::is_durable`] says so.
    ///
    /// # Errors
    /// The rows are not one whole transaction of one replica id from 1 to 31 in the order of their LSNs, or only a part of
    /// them is known; they are of another history than this instance's (see [`lycosa_replication::lineage`]); the store refuses
    /// one, for a conflict for example; the disk is short of free space; the journal has failed. Nothing has changed then.
    pub fn apply(&mut self, rows: &[Row<'_>], now: u64) -> Result<Lsn> {
        self.input(now, |instance| instance.shard.apply_checked(rows, false))
    }

    /// As [`Self::apply`], but a row whose key is taken changes nothing and is journaled as a NOP
    /// (`replication_skip_conflict`).
    ///
    /// # Errors
    /// As [`Self::apply`], conflicts of keys excepted.
    pub fn apply_skipping_conflicts(&mut self, rows: &[Row<'_>], now: u64) -> Result<Lsn> {
        self.input(now, |instance| instance.shard.apply_checked(rows, true))
    }

    /// A step of flushing an index's deferred entries before it is read: some tenths of a millisecond. Returns whether more
    /// steps are to come; a reader that has to have its answer at once need not wait for them. What does not exist is left to
    /// the read.
    ///
    /// # Errors
    /// The journal has failed.
    pub fn prepare_read(&mut self, space: u32, index: u32) -> Result<bool> {
        self.shard.data().read_step(space, index, FLUSH_STEP)
    }

    forward! { shard.journaling():
        /// The LSN after everything that is committed: an answer that is given now may have seen any of it. 0 once the
        /// journal has failed.
        pub fn awaited(&self) -> Lsn;
        /// The clock after everything that is committed, durable or not.
        pub fn vclock(&self) -> &Vclock;
    }

    /// The LSN up to which rows are durable, on as many replicas as [`Settings`](crate::Settings) says too.
    pub fn durable(&self) -> Lsn {
        self.shard.journaling().released()
    }

    /// Whether everything up to `lsn` is durable.
    ///
    /// # Errors
    /// The journal has failed before, or has lost rows up to `lsn`. The outcome of what waits for them is unknown, and the error's name
    /// says so ([`OUTCOME_UNKNOWN`]): a failing disk may have the rows, and other members of a group may confirm them.
    pub fn is_durable(&self, lsn: Lsn) -> Result<bool> {
        if self.shard.journaling().is_lost(lsn) {
            return Err(crate::shard::loss::outcome_unknown());
        }
        if lsn <= self.durable() {
            return Ok(true);
        }
        let is_open = self.shard.conditions().check_journal();
        is_open.map(|()| false).map_err(|error| error.with_name(OUTCOME_UNKNOWN))
    }
}
