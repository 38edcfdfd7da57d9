//! The commit door: all data, and the one way to read and change them.
//!
//! [`Data`] owns the protocol of a transaction over store, queue and journal together. Every change goes through a
//! statement ([`Data::execute`]), a call of the queue ([`Shard::call`](crate::shard::Shard::call)) or a transaction of several of them
//! ([`Data::begin`], [`Data::transaction`]), each behind its admission ([`crate::shard::admission`]). A transaction may stay open
//! across calls; statements meanwhile join it. At the commit the queue sees the changes, the rows enter the
//! journal's batch, and the queue serves waiting calls. The answers to these calls wait in the queue until
//! [`Instance`](crate::Instance) delivers them.
//!
//! Invariants:
//! - rows are in the journal's batch when the function that committed them returns;
//! - after the journal has failed nothing is read or changed, nor while the queue comes up after a loss of rows;
//! - a read-only instance changes temporary spaces only;
//! - at most one transaction is open.

use std::ops::ControlFlow;

use std::borrow::Cow;

use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::row::{RowBody, RowHeader};
use lycosa_iproto::vclock::{VCLOCK_MAX, Vclock};
use lycosa_queue::{Caller, Procedure, Proposal, Queue, Savepoint};
use lycosa_replication::applier::Row;
use lycosa_store::{
    Budget, Cursor, CursorError, Decision, Engine, IteratorType, Origin, Progress, Statement, Store, UserId,
    user,
};

use crate::Result;
use crate::shard::admission::{Admitted, Conditions, Growth, Need, Upkeep, Vault};
use crate::shard::batch::{Journaling, statement};
use crate::shard::request::RequestId;
use crate::shard::wire_error::{self, OnWire};

/// The number of a row: the sum of the vclock's components, and the number of rows that were lost
/// ([`Instance::handle_lost`](crate::Instance::handle_lost)). None is given twice. See
/// [`Instance::is_durable`](crate::Instance::is_durable).
pub type Lsn = u64;

/// Largest reply to one SELECT, in bytes.
pub(crate) const MAX_SELECTED: usize = 512 << 20;

/// The arguments of a SELECT.
#[derive(Debug, Clone, Copy)]
pub struct Select<'a> {
    /// Number of the space or view.
    pub space: u32,
    /// Number of the index.
    pub index: u32,
    /// How to walk it.
    pub iterator: IteratorType,
    /// A MessagePack array, of fewer parts than the index has if need be.
    pub key: &'a [u8],
    /// Tuples to skip.
    pub offset: u64,
    /// Tuples at most.
    pub limit: u64,
}

impl Select<'_> {
    /// A cursor over what it finds, for [`Data::advance`].
    pub(crate) fn cursor(&self, user: UserId) -> Cursor {
        let Self { space, index, iterator, key, offset, limit } = *self;
        Cursor::new(user, space, index, iterator, key).with_offset(offset).with_limit(limit)
    }
}

/// Data that a journal has confirmed.
#[derive(Debug)]
pub struct Confirmed {
    /// The data, ready to be used.
    pub store: Store,
    /// The clock of the last row in them.
    pub vclock: Vclock,
}

/// All data, and what decides whether they may be read and changed.
pub(crate) struct Data {
    pub(super) vault: Vault,
    pub(super) journaling: Journaling,
    pub(super) conditions: Conditions,
    /// The time of this turn, in microseconds since the epoch.
    pub(super) now: u64,
}

impl Data {
    pub(crate) fn new(store: Store, queue: Queue, journaling: Journaling, now: u64) -> Self {
        Self { vault: Vault::new(store, queue), journaling, conditions: Conditions::default(), now }
    }

    forward! { vault:
        /// The data, to be read. Indexes and owners may have deferred entries: see [`Self::read`].
        #[inline]
        pub(crate) fn store(&self) -> &Store;
        #[inline]
        pub(crate) fn queue(&self) -> &Queue;
        /// The store, for what changes no data: memory, read views.
        pub(crate) fn upkeep(&mut self) -> Upkeep<'_>;
    }

    /// Admits an entry that needs this.
    ///
    /// # Errors
    /// The first condition that refuses it, in a client's words.
    #[inline]
    pub(crate) fn admit(&mut self, need: Need) -> Result<Admitted<'_>> {
        self.conditions.check(need)?;
        Ok(self.bookkeep())
    }

    /// Admits a call of the queue.
    ///
    /// # Errors
    /// As [`Self::admit`].
    #[inline]
    pub(crate) fn admit_call(&mut self, procedure: &Procedure) -> Result<Admitted<'_>> {
        if self.conditions.is_restricted() {
            self.conditions.check(Need::of_call(procedure))?;
        }
        Ok(self.bookkeep())
    }

    /// Admits bookkeeping that a failure must not stop: a connection has ended, a call is taken back, the queue follows a change
    /// of role, an open transaction ends. Once the journal has failed, rows that this makes are dropped.
    #[inline]
    pub(crate) fn bookkeep(&mut self) -> Admitted<'_> {
        let Data { vault, journaling, conditions, now } = self;
        vault.open(journaling, conditions, *now)
    }

    /// Goes back to other data, of which the queue begins to come up; returns the former data. Nothing is read or changed
    /// until [`Self::rebuild_step`] ends that.
    fn replace(&mut self, store: Store, replica_id: u32) -> Store {
        let (former, is_rebuilding) = self.vault.replace(store, replica_id, self.now);
        self.conditions.set(|facts| facts.is_rebuilding = is_rebuilding);
        former
    }

    /// Goes on with what [`Self::replace`] has begun, for about `budget` rows. Returns what came of it when it ends.
    pub(crate) fn rebuild_step(&mut self, budget: usize) -> Option<lycosa_queue::Rebuilt> {
        let admitted = self.bookkeep();
        let rebuilt = admitted.queue.rebuild_step(admitted.store, admitted.now, budget);
        let is_rebuilding = admitted.queue.is_rebuilding();
        drop(admitted);
        self.conditions.set(|facts| facts.is_rebuilding = is_rebuilding);
        rebuilt
    }

    /// Goes back to the data that the journal has confirmed, of which `from` is the last row. The queue begins to come up on
    /// them; [`Self::rebuild_step`] goes on. Returns the former data.
    pub(crate) fn lose(&mut self, from: Lsn, confirmed: Confirmed, replica_id: u32) -> Store {
        let Confirmed { store, vclock } = confirmed;
        self.journaling.lose(from, vclock);
        self.replace(store, replica_id)
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.conditions.facts().is_read_only
    }

    #[inline]
    pub(crate) fn in_transaction(&self) -> bool {
        self.store().in_transaction()
    }

    /// Opens a transaction in which `acting` acts. What it changes is admitted by the parts of the transaction.
    pub(crate) fn begin(&mut self, acting: UserId) -> Result<()> {
        self.admit(Need::Read)?.begin(acting)
    }

    /// Commits the open transaction. Its rows are in the journal's batch; they are durable when the returned LSN is.
    pub(crate) fn commit(&mut self) -> Result<Lsn> {
        self.bookkeep().commit()?;
        Ok(self.journaling.awaited())
    }

    /// Rolls the open transaction back.
    pub(crate) fn rollback(&mut self) {
        self.bookkeep().rollback();
    }

    pub(crate) fn rollback_to(&mut self, savepoint: Savepoint) {
        let Admitted { queue, store, .. } = &mut self.bookkeep();
        queue.rollback_to(store, savepoint);
    }

    /// Runs `body` as one transaction of `acting`, or as a part of the open one that fails alone. `growth`: of its rows, which
    /// replicas get.
    pub(crate) fn transaction<T>(
        &mut self,
        growth: Growth,
        acting: UserId,
        body: impl FnOnce(&mut Store) -> Result<T>,
    ) -> Result<T> {
        self.admit(Need::Change(growth))?.transaction(acting, body)
    }

    /// A connection or session has ended: see [`Queue::disconnect`].
    pub(crate) fn disconnect(&mut self, session: u64) {
        let Admitted { queue, store, now, .. } = &mut self.bookkeep();
        queue.disconnect(store, session, *now);
    }

    /// Lists name the callers of a session so: see [`Queue::name_connection`].
    pub(crate) fn name_session(&mut self, session: u64, token: &str, role: &str) {
        self.bookkeep().queue.name_connection(session, token, role);
    }

    /// Releases the tasks of a connection's session: see [`Queue::release_session`]. False: it has none.
    pub(crate) fn release_session(
        &mut self,
        caller: &Caller,
        connection: u64,
        steered: (&str, &[u8]),
    ) -> Result<bool> {
        let Admitted { queue, store, now, .. } = &mut self.admit(Need::Change(Growth::Finishes))?;
        queue.release_session(store, caller, connection, steered, *now).on_wire()
    }

    /// Writes an entry of the audit log, if the instance takes writes: a replica may end connections, and writes no entry.
    pub(crate) fn note_steered(&mut self, caller: &Caller, steered: (&str, &[u8])) {
        let Ok(admitted) = self.admit(Need::Change(Growth::Finishes)) else { return };
        if admitted.queue.state() == lycosa_queue::QueueState::Running {
            // The log of the process has the line in any case.
            let _ = admitted.queue.note_steered(admitted.store, caller, steered, admitted.now);
        }
    }

    /// Takes a parked call back: see [`Queue::cancel`].
    pub(crate) fn cancel(&mut self, request: RequestId) {
        let Admitted { queue, store, now, .. } = &mut self.bookkeep();
        queue.cancel(store, request.session, request.number, *now);
    }

    /// Admits a statement.
    #[inline]
    fn admit_statement(&mut self, statement: &Statement<'_>) -> Result<Admitted<'_>> {
        if self.conditions.is_restricted() {
            self.conditions.check(Need::of_statement(self.store(), statement))?;
        }
        Ok(self.bookkeep())
    }

    /// Executes a statement of `acting`, in a transaction of its own or in the open one. Appends the tuple that it
    /// returns to `out`; returns how many there are, 0 or 1.
    pub(crate) fn execute(
        &mut self,
        acting: UserId,
        statement: &Statement<'_>,
        out: &mut Vec<u8>,
    ) -> Result<u32> {
        let (start, now) = (out.len(), self.now);
        let mut admitted = self.admit_statement(statement)?;
        let (queue, store) = admitted.queue();
        let mut executed = queue.execute(store, acting, statement, now, out);
        // A Tarantool does not read the tuple that it deletes from a space of vinyl.
        if let (Ok(is_shown @ true), Statement::Delete { space, .. }) = (&mut executed, statement)
            && store.space(*space).is_ok_and(|space| space.engine() == Engine::Vinyl)
        {
            out.truncate(start);
            *is_shown = false;
        }
        executed.map(u32::from).on_wire()
    }

    /// Executes a statement of `acting` in the open transaction, or proposes it to the before hooks of its space.
    pub(crate) fn submit(
        &mut self,
        acting: UserId,
        statement: &Statement<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Proposal>> {
        let Admitted { queue, store, now, .. } = &mut self.admit_statement(statement)?;
        queue.submit(store, acting, statement, *now, out).on_wire()
    }

    /// Completes a statement as the hooks decided. Its submission was admitted.
    pub(crate) fn decide(
        &mut self,
        acting: UserId,
        statement: &Statement<'_>,
        proposal: Proposal,
        decision: Decision<'_>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let Admitted { queue, store, .. } = &mut self.admit(Need::Read)?;
        if !store.in_transaction() {
            return Err(wire_error::of_store(&lycosa_store::Error::NoTransaction));
        }
        queue.decide(store, acting, (statement, proposal, decision), out).on_wire()
    }

    /// Applies a transaction of another instance as a whole, also while this one is read-only. Its rows enter the journal's
    /// batch with the stamps that they came with.
    ///
    /// With `skips_conflicts` a row whose key is taken becomes a NOP.
    pub(crate) fn apply(&mut self, rows: &[Row<'_>], skips_conflicts: bool) -> Result<Lsn> {
        self.conditions.check(Need::Read)?;
        let known = self.journaling.vclock();
        let seen = rows.iter().filter(|(header, _)| header.lsn <= known.get(header.replica_id)).count();
        if rows.is_empty() || seen == rows.len() {
            return Ok(self.journaling.awaited());
        }
        check_stamps(rows, seen)?;
        self.check_gap(rows)?;
        let mut admitted =
            self.admit(Need::of_foreign(rows.iter().filter_map(|(_, body)| statement(body))))?;
        admitted.begin(user::ADMIN)?;
        let mut applied = Cow::from(rows);
        for (place, (_, body)) in rows.iter().enumerate() {
            match apply_row(admitted.store, body) {
                Ok(()) => {}
                Err(error) if skips_conflicts && error.code == u32::from(ErrorCode::TupleFound) => {
                    applied.to_mut()[place].1 = RowBody::Nop;
                }
                Err(error) => {
                    admitted.rollback();
                    return Err(error);
                }
            }
        }
        admitted.commit_foreign(&applied)?;
        drop(admitted);
        Ok(self.journaling.awaited())
    }

    /// Applies a transaction that the group has decided on. Its rows are durable and enter no batch.
    pub(crate) fn apply_decided(&mut self, rows: &[Row<'_>]) -> Result<()> {
        let refuse = |reason: &str| Err(ErrorObject::client(ErrorCode::Protocol, reason.to_owned()));
        if rows.iter().any(|(header, _)| header.replica_id as usize >= VCLOCK_MAX) {
            return refuse("a row has a replica id that no clock has");
        }
        let known = self.journaling.vclock();
        if rows.iter().any(|(header, _)| header.lsn <= known.get(header.replica_id)) {
            return refuse("a row is known already");
        }
        let mut admitted = self.admit(Need::Read)?;
        admitted.begin(user::ADMIN)?;
        // The leader had the memory for it, and this node must not fall behind.
        let former = admitted.store.lift_limit(true);
        let applied = rows.iter().try_for_each(|(_, body)| apply_row(admitted.store, body));
        admitted.store.lift_limit(former);
        if let Err(error) = applied {
            admitted.rollback();
            return Err(error);
        }
        if admitted.commit_decided(rows)? {
            Ok(())
        } else {
            refuse("the queue of a follower has changed data")
        }
    }

    /// Applies the changes of owners that belong to the rows of an entry.
    pub(crate) fn follow_owners(&mut self, changes: &[u8]) -> Result<()> {
        let Admitted { queue, store, now, .. } = &mut self.admit(Need::Read)?;
        let former = store.lift_limit(true);
        let followed = queue.follow_owners(store, changes, *now);
        store.lift_limit(former);
        followed.on_wire()
    }

    /// Writes owners that a snapshot would lack into their space.
    pub(crate) fn settle_owners(&mut self) -> Result<()> {
        let Admitted { queue, store, now, .. } = &mut self.bookkeep();
        queue.settle_owners(store, *now).on_wire()
    }

    /// Says whether changes of owners are noted for the batch.
    pub(crate) fn note_owners(&mut self, notes_owners: bool) {
        self.bookkeep().queue.note_owners(notes_owners);
    }

    /// Goes on with other data, which the journal has confirmed. The queue begins to come up on them; [`Self::rebuild_step`] goes
    /// on. Returns the former data.
    pub(crate) fn restore(&mut self, confirmed: Confirmed, replica_id: u32) -> Store {
        let Confirmed { store, vclock } = confirmed;
        self.journaling.restore(vclock);
        self.conditions.set(|facts| facts.is_suspended = false);
        self.replace(store, replica_id)
    }

    /// Refuses rows behind others that were lost here.
    fn check_gap(&self, rows: &[Row<'_>]) -> Result<()> {
        let Some((RowHeader { replica_id: id, lsn, .. }, _)) = rows.first() else { return Ok(()) };
        if !self.journaling.has_gap_before(*id, *lsn) {
            return Ok(());
        }
        let known = self.journaling.vclock().get(*id);
        let message = format!(
            "rows of replica id {id} between LSN {known} and {lsn} were lost with the journal: subscribe again from the \
present vclock"
        );
        Err(ErrorObject::client(ErrorCode::Protocol, message))
    }

    /// The store with every deferred entry of an index flushed, so that it can be read at once. That may take 1 s for each
    /// million tuples; [`Self::advance`] does it in steps.
    pub(crate) fn read(&mut self, space: u32, index: u32) -> Result<&Store> {
        while self.read_step(space, index, u64::MAX)? {}
        Ok(self.store())
    }

    /// Goes on with a walk, for the owner of the cursor; see [`Store::advance`].
    pub(crate) fn advance(
        &mut self,
        cursor: &mut Cursor,
        budget: Budget<'_>,
        f: &mut dyn FnMut(&[u8]),
    ) -> Result<Progress, WalkError> {
        self.advance_while(cursor, budget, &mut |tuple| {
            f(tuple);
            ControlFlow::Continue(())
        })
    }

    /// As [`Self::advance`], until `f` breaks.
    pub(crate) fn advance_while(
        &mut self,
        cursor: &mut Cursor,
        budget: Budget<'_>,
        f: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Progress, WalkError> {
        // Rows of the queue that are kept in memory may have to be written before.
        self.read_step(cursor.space(), cursor.index(), 0)?;
        Ok(self.admit(Need::Read)?.store.advance_while(cursor, budget, f)?)
    }

    /// A step of making an index ready to be read; whether there are more. What does not exist is left to the read.
    pub(crate) fn read_step(&mut self, space: u32, index: u32, budget: u64) -> Result<bool> {
        let Admitted { queue, store, now, .. } = &mut self.admit(Need::Read)?;
        let exists = store.space(space).is_ok_and(|space| space.index(index).is_some());
        match queue.read(store, space, index, budget, *now) {
            Ok(store) => Ok(store.is_none()),
            Err(error) if exists => Err(wire_error::of_queue(&error)),
            Err(_) => Ok(false),
        }
    }

    /// Appends the tuples that `user` may see to `out`; returns how many they are.
    pub(crate) fn select(&mut self, user: UserId, select: &Select<'_>, out: &mut Vec<u8>) -> Result<u32> {
        let Select { space, index, iterator, key, offset, limit } = *select;
        let start = out.len();
        let mut count = 0;
        let store = self.read(space, index)?;
        let selected = store.select(user, space, index, iterator, key, offset, limit, &mut |tuple| {
            count += 1;
            if out.len() - start <= MAX_SELECTED {
                out.extend_from_slice(tuple);
            }
        });
        selected.on_wire().inspect_err(|_| out.truncate(start))?;
        if out.len() - start > MAX_SELECTED {
            out.truncate(start);
            out.shrink_to(start);
            return Err(too_much_selected());
        }
        Ok(count)
    }
}

/// Why a walk does not go on.
#[derive(Debug)]
pub enum WalkError {
    /// The instance refuses reads now.
    Refused(ErrorObject),
    /// What the cursor met.
    Cursor(CursorError),
}

impl From<ErrorObject> for WalkError {
    fn from(error: ErrorObject) -> Self {
        Self::Refused(error)
    }
}

impl From<CursorError> for WalkError {
    fn from(error: CursorError) -> Self {
        Self::Cursor(error)
    }
}

impl From<WalkError> for ErrorObject {
    fn from(error: WalkError) -> Self {
        match error {
            WalkError::Refused(error) => error,
            WalkError::Cursor(CursorError::Refused(error)) => wire_error::of_store(&error),
            WalkError::Cursor(error) => ErrorObject::lua(error.to_string()),
        }
    }
}

/// Executes a row that another instance has accepted in the open transaction.
fn apply_row(store: &mut Store, body: &RowBody<'_>) -> Result<()> {
    let Some(statement) = statement(body) else {
        return match body {
            RowBody::Nop => Ok(()),
            _ => Err(unsupported("synchronous replication and rows of unknown types")),
        };
    };
    store.execute_of(Origin::Master, &statement).map(drop).on_wire()
}

/// Whether rows are one transaction that may be applied, of which `seen` are known already.
fn check_stamps(rows: &[Row<'_>], seen: usize) -> Result<()> {
    let refuse = |reason: String| Err(ErrorObject::client(ErrorCode::Protocol, reason));
    let mut ids = rows.iter().map(|(header, _)| header.replica_id);
    if let Some(id) = ids.find(|id| !(1..VCLOCK_MAX as u32).contains(id)) {
        return refuse(format!("a replicated row has replica id {id}: expected 1 to {}", VCLOCK_MAX - 1));
    }
    let (last, others) = rows.split_last().expect("the caller has looked");
    if !last.0.is_commit || others.iter().any(|(header, _)| header.is_commit) {
        return refuse("the rows are not one whole transaction".to_owned());
    }
    let is_in_order = rows.windows(2).all(|pair| {
        let (before, after) = (&pair[0].0, &pair[1].0);
        before.replica_id == after.replica_id && before.lsn < after.lsn
    });
    if !is_in_order {
        let reason = "the rows of a transaction are of several instances, or not in the order of their LSNs";
        return refuse(reason.to_owned());
    }
    if seen > 0 {
        let reason =
            "a part of the transaction is known already; the instance that sent it has another history";
        return refuse(format!("{seen} of {} rows: {reason}", rows.len()));
    }
    Ok(())
}

fn unsupported(what: &str) -> ErrorObject {
    ErrorObject::client(ErrorCode::Unsupported, format!("Lycosa does not support {what}"))
}

pub(crate) fn too_much_selected() -> ErrorObject {
    let message = format!(
        "Failed to allocate a reply of more than {MAX_SELECTED} bytes for select: \
ask for fewer tuples at a time with limit"
    );
    ErrorObject::client(ErrorCode::MemoryIssue, message)
}
