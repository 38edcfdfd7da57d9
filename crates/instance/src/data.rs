//! The commit door: all data, and the one way to read and change them.
//!
//! [`Data`] owns the protocol of a transaction over store, queue and journal together. Every change goes through a
//! statement ([`Data::execute`]), a call of the queue ([`Data::call_queue`]) or a transaction of several of them
//! ([`Data::begin`], [`Data::transaction`]). A transaction may stay open across calls; what is executed meanwhile joins
//! it. At the commit the queue sees the changes, the rows enter the journal's batch, and the queue serves waiting calls.
//! The answers of those wait in the queue until [`Instance`](crate::Instance) delivers them.
//!
//! Invariants:
//! - rows are in the journal's batch when the function that committed them returns;
//! - after the journal has failed nothing is read or changed, nor while the queue comes up after a loss of rows;
//! - a read-only instance changes temporary spaces only;
//! - at most one transaction is open.

use std::borrow::Cow;

use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::row::{RowBody, RowHeader};
use lycosa_iproto::vclock::VCLOCK_MAX;
use lycosa_queue::{Answer, Caller, Procedure, Proposal, Queue, QueueMethod, Rebuilt, Savepoint, TubeMethod};
use lycosa_store::{
    Budget, Cursor, CursorError, Decision, Engine, IteratorType, Progress, Space, Statement, Store, UserId,
    user,
};

use crate::batch::{Journaling, statement};
use crate::loss::Confirmed;
use crate::room::Room;
use crate::wire_error;

/// The number of a row: the sum of the vclock's components, and the number of rows that were lost
/// ([`Instance::handle_lost`](crate::Instance::handle_lost)). None is given twice. See
/// [`Instance::is_durable`](crate::Instance::is_durable).
pub type Lsn = u64;

/// Largest reply to one SELECT, in bytes.
pub(crate) const MAX_SELECTED: usize = 512 << 20;

/// What a SELECT asks for.
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

/// All data, and what decides whether they may be read and changed.
pub(crate) struct Data {
    store: Store,
    queue: Queue,
    pub(crate) journaling: Journaling,
    /// Why the journal takes no more rows, once it has failed.
    pub(crate) failure: Option<String>,
    /// The free space on the disk, while it is short.
    pub(crate) scarce_room: Option<Room>,
    pub(crate) read_only: bool,
    /// What became of the data folder, while it is not where a start would look for it.
    pub(crate) displaced: Option<String>,
    /// How many replicas are connected, and how many have to be, while changes are refused because these are too few.
    pub(crate) missing_replicas: Option<(usize, usize)>,
    /// The time of this turn, in microseconds since the epoch.
    pub(crate) now: u64,
}

impl Data {
    pub(crate) fn new(store: Store, queue: Queue, journaling: Journaling, now: u64) -> Self {
        Self {
            store,
            queue,
            journaling,
            failure: None,
            scarce_room: None,
            read_only: false,
            displaced: None,
            missing_replicas: None,
            now,
        }
    }

    /// The data, to be read. Indexes and owners may have deferred entries: see [`Self::read`].
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// The store, for what changes no data: memory, read views.
    pub(crate) fn upkeep(&mut self) -> &mut Store {
        &mut self.store
    }

    /// Goes back to the data that the journal has confirmed, of which `from` is the last row. The queue begins to come up on
    /// them; [`Self::rebuild_step`] goes on. Returns the former data.
    pub(crate) fn lose(&mut self, from: Lsn, confirmed: Confirmed) -> Store {
        let Confirmed { mut store, vclock } = confirmed;
        store.succeed(&self.store);
        let former = std::mem::replace(&mut self.store, store);
        self.journaling.lose(from, vclock);
        self.queue.rebuild(&mut self.store, self.now);
        former
    }

    /// Whether the queue still comes up after a loss, so that nobody may read or change data.
    pub(crate) fn is_rebuilding(&self) -> bool {
        self.queue.is_rebuilding()
    }

    /// Goes on with what [`Self::lose`] has begun, for about `budget` rows. Returns what came of it when it ends.
    pub(crate) fn rebuild_step(&mut self, budget: usize) -> Option<Rebuilt> {
        let rebuilt = self.queue.rebuild_step(&mut self.store, self.now, budget);
        self.collect();
        rebuilt
    }

    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }

    /// The queue with the store that it works on, for what makes its own transactions: its start, its timers. To be
    /// followed by [`Self::collect`].
    pub(crate) fn queue_mut(&mut self) -> (&mut Queue, &mut Store) {
        (&mut self.queue, &mut self.store)
    }

    /// Moves what the store has committed into the journal's batch.
    pub(crate) fn collect(&mut self) {
        self.journaling.collect(&mut self.store, self.now);
    }

    pub(crate) fn in_transaction(&self) -> bool {
        self.store.in_transaction()
    }

    /// Opens a transaction in which `acting` acts.
    pub(crate) fn begin(&mut self, acting: UserId) -> Result<(), ErrorObject> {
        self.check_alive()?;
        if self.in_transaction() {
            let message = "Operation is not permitted when there is an active transaction ";
            return Err(ErrorObject::client(ErrorCode::ActiveTransaction, message));
        }
        self.queue.begin(&mut self.store, acting);
        Ok(())
    }

    /// Commits the open transaction. Its rows are in the journal's batch; they are durable when the returned LSN is.
    pub(crate) fn commit(&mut self) -> Result<Lsn, ErrorObject> {
        let committed = self.queue.commit(&mut self.store, self.now);
        self.collect();
        committed.map_err(|error| wire_error::of_queue(&error))?;
        Ok(self.journaling.awaited())
    }

    /// Rolls the open transaction back.
    pub(crate) fn rollback(&mut self) {
        self.queue.rollback(&mut self.store);
    }

    pub(crate) fn savepoint(&self) -> Savepoint {
        self.queue.savepoint(&self.store)
    }

    pub(crate) fn rollback_to(&mut self, savepoint: Savepoint) {
        self.queue.rollback_to(&mut self.store, savepoint);
    }

    /// Runs `body` as one transaction of `acting`, or as a part of the open one that fails alone.
    pub(crate) fn transaction<T>(
        &mut self,
        acting: UserId,
        body: impl FnOnce(&mut Store) -> Result<T, ErrorObject>,
    ) -> Result<T, ErrorObject> {
        self.check_alive()?;
        if self.in_transaction() {
            let savepoint = self.savepoint();
            let former = self.store.set_user(acting);
            let result = body(&mut self.store);
            self.store.set_user(former);
            return result.inspect_err(|_| self.rollback_to(savepoint));
        }
        self.queue.begin(&mut self.store, acting);
        match body(&mut self.store) {
            Ok(value) => self.commit().map(|_| value),
            Err(error) => {
                self.rollback();
                Err(error)
            }
        }
    }

    /// Executes a statement of `acting`, in a transaction of its own or in the open one. Appends the tuple that it
    /// returns to `out`; returns how many there are, 0 or 1.
    pub(crate) fn execute(
        &mut self,
        acting: UserId,
        statement: &Statement<'_>,
        out: &mut Vec<u8>,
    ) -> Result<u32, ErrorObject> {
        self.admit_statement(statement)?;
        let start = out.len();
        let mut executed = self.queue.execute(&mut self.store, acting, statement, self.now, out);
        // A Tarantool does not read the tuple that it deletes from a space of vinyl.
        if let (Ok(is_shown @ true), Statement::Delete { space, .. }) = (&mut executed, statement)
            && self.store.space(*space).is_ok_and(|space| space.engine() == Engine::Vinyl)
        {
            out.truncate(start);
            *is_shown = false;
        }
        if !self.in_transaction() {
            self.collect();
        }
        executed.map(u32::from).map_err(|error| wire_error::of_queue(&error))
    }

    /// What has to hold before a statement is executed.
    fn admit_statement(&mut self, statement: &Statement<'_>) -> Result<(), ErrorObject> {
        self.check_alive()?;
        if self.is_temporary(statement.space()) {
            return Ok(());
        }
        // Rows that stay on this instance are its own affair, as in Tarantool.
        let is_local = self.store.space(statement.space()).is_ok_and(Space::is_local);
        if self.read_only && !is_local {
            return Err(read_only_error());
        }
        self.check_place()?;
        if !is_local {
            self.check_replicas()?;
        }
        let adds = matches!(
            statement,
            Statement::Insert { .. } | Statement::Replace { .. } | Statement::Upsert { .. }
        );
        self.check_room(if adds { Needs::ToAdd } else { Needs::ToFinish })
    }

    /// Executes a statement of `acting` in the open transaction, or proposes it to the before hooks of its space.
    pub(crate) fn submit(
        &mut self,
        acting: UserId,
        statement: &Statement<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Proposal>, ErrorObject> {
        self.admit_statement(statement)?;
        let submitted = self.queue.submit(&mut self.store, acting, statement, self.now, out);
        submitted.map_err(|error| wire_error::of_queue(&error))
    }

    /// Completes a statement as the hooks decided.
    pub(crate) fn decide(
        &mut self,
        acting: UserId,
        statement: &Statement<'_>,
        proposal: Proposal,
        decision: Decision<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), ErrorObject> {
        self.check_alive()?;
        if !self.in_transaction() {
            return Err(wire_error::of_store(&lycosa_store::Error::NoTransaction));
        }
        let decided = self.queue.decide(&mut self.store, acting, (statement, proposal, decision), out);
        decided.map_err(|error| wire_error::of_queue(&error))
    }

    /// Applies a transaction of another instance as a whole, also while this one is read-only. Its rows enter the journal's
    /// batch with the stamps that they came with.
    ///
    /// With `skips_conflicts` a row whose key is taken becomes a NOP.
    pub(crate) fn apply(
        &mut self,
        rows: &[(RowHeader, RowBody<'_>)],
        skips_conflicts: bool,
    ) -> Result<Lsn, ErrorObject> {
        self.check_alive()?;
        let known = self.journaling.vclock();
        let seen = rows.iter().filter(|(header, _)| header.lsn <= known.get(header.replica_id)).count();
        if rows.is_empty() || seen == rows.len() {
            return Ok(self.journaling.awaited());
        }
        check_stamps(rows, seen)?;
        if let Some((header, _)) =
            rows.first().filter(|(header, _)| self.journaling.has_gap_before(header.replica_id, header.lsn))
        {
            let message = format!(
                "rows of replica id {} between LSN {} and {} were lost with the journal: subscribe again from the present \
                 vclock",
                header.replica_id,
                self.journaling.vclock().get(header.replica_id),
                header.lsn
            );
            return Err(ErrorObject::client(ErrorCode::Protocol, message));
        }
        self.collect();
        self.queue.begin(&mut self.store, user::ADMIN);
        let mut skipped = Vec::new();
        for (place, (_, body)) in rows.iter().enumerate() {
            match self.apply_row(body) {
                Ok(()) => {}
                Err(error) if skips_conflicts && error.code == u32::from(ErrorCode::TupleFound) => {
                    skipped.push(place);
                }
                Err(error) => {
                    self.rollback();
                    return Err(error);
                }
            }
        }
        let effects = self.store.open_effects();
        let committed = self.queue.commit(&mut self.store, self.now);
        committed.map_err(|error| wire_error::of_queue(&error))?;
        let mut rows = Cow::from(rows);
        for place in skipped {
            rows.to_mut()[place].1 = RowBody::Nop;
        }
        self.journaling.collect_foreign(&mut self.store, self.now, &rows, effects);
        Ok(self.journaling.awaited())
    }

    fn apply_row(&mut self, body: &RowBody<'_>) -> Result<(), ErrorObject> {
        let Some(statement) = statement(body) else {
            return match body {
                RowBody::Nop => Ok(()),
                _ => Err(unsupported("synchronous replication and rows of unknown types")),
            };
        };
        self.check_place()?;
        if let Statement::Insert { .. } | Statement::Replace { .. } | Statement::Upsert { .. } = statement {
            self.check_room(Needs::ToAdd)?;
        }
        self.store.take_as_history(true);
        let executed = self.store.execute(&statement).map(drop);
        self.store.take_as_history(false);
        executed.map_err(|error| wire_error::of_store(&error))
    }

    fn is_temporary(&self, space: u32) -> bool {
        self.store.space(space).is_ok_and(Space::is_temporary)
    }

    /// The store with every deferred entry of an index flushed, so that it can be read at once. That may take 1 s for each
    /// million tuples; [`Self::cursor`] does it in steps.
    pub(crate) fn read(&mut self, space: u32, index: u32) -> Result<&Store, ErrorObject> {
        while self.read_step(space, index, u64::MAX)? {}
        Ok(&self.store)
    }

    /// A cursor over what a SELECT finds, for [`Store::advance`].
    pub(crate) fn cursor(&mut self, user: UserId, select: &Select<'_>) -> Result<Cursor, ErrorObject> {
        let Select { space, index, iterator, key, offset, limit } = *select;
        self.read_step(space, index, 0)?;
        Ok(Cursor::new(user, space, index, iterator, key).with_offset(offset).with_limit(limit))
    }

    /// Goes on with a walk, for whoever keeps the cursor; see [`Store::advance`].
    pub(crate) fn advance(
        &mut self,
        cursor: &mut Cursor,
        budget: Budget,
        f: &mut dyn FnMut(&[u8]),
    ) -> Result<Progress, ErrorObject> {
        // Rows of the queue that are kept in memory may have to be written before.
        self.read_step(cursor.space(), cursor.index(), 0)?;
        let advanced = self.store.advance(cursor, budget, f);
        advanced.map_err(|error| match error {
            CursorError::Refused(error) => wire_error::of_store(&error),
            error => ErrorObject::lua(error.to_string()),
        })
    }

    /// A step of making an index ready to be read; whether there are more. What does not exist is left to the read.
    pub(crate) fn read_step(&mut self, space: u32, index: u32, budget: u64) -> Result<bool, ErrorObject> {
        self.check_alive()?;
        let exists = self.store.space(space).is_ok_and(|space| space.index(index).is_some());
        let has_more = match self.queue.read(&mut self.store, space, index, budget, self.now) {
            Ok(store) => store.is_none(),
            Err(error) if exists => return Err(wire_error::of_queue(&error)),
            Err(_) => false,
        };
        if !self.in_transaction() {
            self.collect();
        }
        Ok(has_more)
    }

    /// Appends the tuples that `user` may see to `out`; returns how many they are.
    pub(crate) fn select(
        &mut self,
        user: UserId,
        select: &Select<'_>,
        out: &mut Vec<u8>,
    ) -> Result<u32, ErrorObject> {
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
        if let Err(error) = selected {
            out.truncate(start);
            return Err(wire_error::of_store(&error));
        }
        if out.len() - start > MAX_SELECTED {
            out.truncate(start);
            out.shrink_to(start);
            return Err(too_much_selected());
        }
        Ok(count)
    }

    /// Calls a procedure of the queue, in transactions of its own or in the open one. Its values are appended to `out`.
    pub(crate) fn call_queue(
        &mut self,
        caller: &Caller,
        procedure: &Procedure,
        args: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Answer, lycosa_queue::Error> {
        let answer = self.queue.call(&mut self.store, caller, procedure, args, self.now, out);
        if !self.in_transaction() {
            self.collect();
        }
        answer
    }

    /// Whether something may stand against a call of the queue: see [`Self::admit_call`].
    #[inline]
    pub(crate) fn is_restricted(&self) -> bool {
        self.failure.is_some()
            || self.is_rebuilding()
            || self.scarce_room.is_some()
            || self.displaced.is_some()
            || self.missing_replicas.is_some()
    }

    /// What has to hold before a procedure is called.
    pub(crate) fn admit_call(&self, procedure: &Procedure) -> Result<(), ErrorObject> {
        self.check_alive()?;
        if needs(procedure) != Needs::Nothing {
            self.check_place()?;
            self.check_replicas()?;
        }
        if self.scarce_room.is_some() { self.check_room(needs(procedure)) } else { Ok(()) }
    }

    /// The answer to a change that no start would find again.
    fn check_place(&self) -> Result<(), ErrorObject> {
        let Some(displaced) = &self.displaced else { return Ok(()) };
        let message = format!(
            "Failed to write to disk: {displaced}. Changes are refused, as no start would find them; reading goes on"
        );
        Err(ErrorObject::client(ErrorCode::WalIo, message))
    }

    /// The answer to a change while too few replicas are connected and the configuration refuses it.
    fn check_replicas(&self) -> Result<(), ErrorObject> {
        let Some((connected, wanted)) = self.missing_replicas else { return Ok(()) };
        Err(missing_replicas_error(connected, wanted, "replicas_before_reply is"))
    }

    /// The answer to whatever reads or changes data after the journal has failed, or while the queue comes up after a loss.
    pub(crate) fn check_alive(&self) -> Result<(), ErrorObject> {
        self.check_journal()?;
        if self.is_rebuilding() { Err(rebuilding_error()) } else { Ok(()) }
    }

    /// The answer to whatever waits for the journal after that has failed.
    pub(crate) fn check_journal(&self) -> Result<(), ErrorObject> {
        if self.failure.is_none() { Ok(()) } else { Err(self.failure_error()) }
    }

    /// The answer to what would need free space on a disk that is short of it.
    fn check_room(&self, needs: Needs) -> Result<(), ErrorObject> {
        let Some(room) = self.scarce_room else { return Ok(()) };
        let Room { free, .. } = room;
        let message = match needs {
            Needs::ToAdd if !room.is_exhausted() => format!(
                "Failed to write to disk: only {free} bytes are free, which is less than disk_reserve; \
                 make room on the server's disk. Until then tasks can be taken and finished, but not added"
            ),
            Needs::ToAdd | Needs::ToFinish if room.is_exhausted() => format!(
                "Failed to write to disk: only {free} bytes are free, which is less than a quarter of disk_reserve; \
                 make room on the server's disk. Until then tasks can only be looked at, and tubes truncated or dropped"
            ),
            _ => return Ok(()),
        };
        Err(ErrorObject::client(ErrorCode::WalIo, message))
    }

    pub(crate) fn failure_error(&self) -> ErrorObject {
        let cause = self.failure.as_deref().unwrap_or("unknown cause");
        let message = format!(
            "Failed to write to disk: {cause}. The server takes no more requests for data; \
             free or replace the disk and restart it"
        );
        ErrorObject::client(ErrorCode::WalIo, message)
    }
}

/// Whether rows are one transaction that may be applied, of which `seen` are known already.
fn check_stamps(rows: &[(RowHeader, RowBody<'_>)], seen: usize) -> Result<(), ErrorObject> {
    let refuse = |reason: String| Err(ErrorObject::client(ErrorCode::Protocol, reason));
    if let Some((header, _)) =
        rows.iter().find(|(header, _)| !(1..VCLOCK_MAX as u32).contains(&header.replica_id))
    {
        return refuse(format!(
            "a replicated row has replica id {}: expected 1 to {}",
            header.replica_id,
            VCLOCK_MAX - 1
        ));
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
        return refuse(
            "the rows of a transaction are of several instances, or not in the order of their LSNs"
                .to_owned(),
        );
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

/// What a call takes free space on the disk for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// Little or none.
    Nothing,
    /// Rows for what is there.
    ToFinish,
    /// Rows for what has to be journaled again when it ends: tasks, a tube.
    ToAdd,
}

fn needs(procedure: &Procedure) -> Needs {
    match (procedure.tube_method(), procedure.queue_method()) {
        (Some(TubeMethod::Put | TubeMethod::PutMany), _) | (_, Some(QueueMethod::CreateTube)) => Needs::ToAdd,
        (Some(TubeMethod::Peek | TubeMethod::List | TubeMethod::Truncate | TubeMethod::Drop), _)
        | (None, _) => Needs::Nothing,
        (Some(_), _) => Needs::ToFinish,
    }
}

pub(crate) fn too_much_selected() -> ErrorObject {
    let message = format!(
        "Failed to allocate a reply of more than {MAX_SELECTED} bytes for select: \
         ask for fewer tuples at a time with limit"
    );
    ErrorObject::client(ErrorCode::MemoryIssue, message)
}

/// The answer to a change that too few replicas could confirm. `rule` says who wants so many.
pub(crate) fn missing_replicas_error(connected: usize, wanted: usize, rule: &str) -> ErrorObject {
    let message = format!(
        "Quorum collection for a synchronous transaction is timed out: {connected} replicas are connected and \
         {rule} {wanted}; changes are refused until they are back (replicas_missing = refuse)"
    );
    ErrorObject::client(ErrorCode::SyncQuorumTimeout, message)
}

/// The answer to whatever comes between a loss of rows and the end of the rebuild.
fn rebuilding_error() -> ErrorObject {
    let message = "Instance bootstrap hasn't finished yet: the journal has lost rows, and the instance goes back to those \
                   that are confirmed. Nothing was done; ask again";
    ErrorObject::client(ErrorCode::Loading, message)
}

/// The answer to a change while the instance is read-only.
pub(crate) fn read_only_error() -> ErrorObject {
    let message = "Can't modify data because this instance is in read-only mode.";
    ErrorObject::client(ErrorCode::Readonly, message)
}
