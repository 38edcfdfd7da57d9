//! Admission: what an entry needs before it touches data, and the only way to touch them.
//!
//! An entry declares a [`Need`]. [`Data::admit`](crate::shard::data::Data::admit) compares it with the [`Conditions`] of
//! the instance: the journal lives, the
//! instance takes writes, the data folder is in its place, replicas are connected, the disk has free space. The [`Admitted`]
//! that it returns is the only value that yields the store and the queue to be changed, so an entry cannot forget a check.
//! When an `Admitted` ends, committed rows are in the journal's batch. Rights are checked by the store and the queue: an
//! acting user is an argument of everything that changes data.
//!
//! [`Data::bookkeep`](crate::shard::data::Data::bookkeep) admits always. It is for bookkeeping that a failure must not
//! stop: a connection has ended, the queue
//! follows a change of role.
//!
//! Invariants: `store` and `queue` of [`Vault`] are private to this module; rows of a committed transaction are in the batch
//! when the `Admitted` that committed it is dropped, unless a transaction is still open. Absent: what entries do.

use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_queue::{LogLine, Procedure, Queue, QueueMethod, TaskEvent, TubeMethod, Woken};
use lycosa_replication::applier::Row;
use lycosa_store::{Budget, ClosedView, OwnedChange, Space, SpaceId, Statement, Store, UserId};

use crate::Result;
use crate::shard::batch::Journaling;
use crate::shard::disk_space::FreeSpace;
use crate::shard::wire_error::OnWire;

/// The kind of rows that an entry adds to the journal, as far as free space on the disk matters for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Growth {
    /// No rows.
    Nothing,
    /// A few rows that make the data smaller: a truncation, a tube that is dropped, a grant or token that is revoked.
    Shrinks,
    /// Rows about what exists: a task that is taken, an UPDATE, a DELETE. Or an administrator's: accounts, tokens, replicas.
    Finishes,
    /// Rows that a later row has to end: a task, a tuple, a tube.
    Adds,
}

/// The use of the data by an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Looks at data, or notes what only the process knows.
    Read,
    /// Does what a deadline asks for. Its rows are bounded by the tasks and tuples that exist, so it goes on while changes
    /// are refused.
    Deadline,
    /// Changes rows that replicas get.
    Change(Growth),
    /// Changes rows that stay on this instance: also while it is read-only, and without replicas.
    Local(Growth),
    /// Registers a replica: also while too few replicas are connected, as this brings one.
    Register,
    /// Calls the queue, which answers for itself while the instance is read-only.
    Call(Growth),
    /// Calls the queue for a look at a tube. A leader that hands over refuses it, since its queue does not run and would answer
    /// nothing: the next leader can tell.
    Look,
    /// Applies rows that another instance has accepted: also while this one is read-only, and without replicas.
    Foreign(Growth),
}

impl Need {
    /// The need of a procedure of the queue.
    pub(crate) fn of_call(procedure: &Procedure) -> Self {
        let growth = match (procedure.tube_method(), procedure.queue_method()) {
            (Some(TubeMethod::Put | TubeMethod::PutMany), _) | (_, Some(QueueMethod::CreateTube)) => {
                Growth::Adds
            }
            (Some(TubeMethod::Truncate | TubeMethod::Drop), _) => Growth::Shrinks,
            (_, Some(QueueMethod::Grant)) => Growth::Finishes,
            (_, Some(QueueMethod::Revoke)) => Growth::Shrinks,
            (Some(method), _) if method.looks() && method != TubeMethod::Count => return Self::Look,
            (None, _) => Growth::Nothing,
            (Some(_), _) => Growth::Finishes,
        };
        Self::Call(growth)
    }

    /// The need of a statement.
    pub(crate) fn of_statement(store: &Store, statement: &Statement<'_>) -> Self {
        let growth = match growth_of(statement) {
            // A row that the memory limit does not refuse the reserve of the disk does not refuse either.
            Growth::Adds if store.is_exempt_from_limit(statement.space()) => Growth::Finishes,
            growth => growth,
        };
        match store.space(statement.space()) {
            Ok(space) if space.is_temporary() => Self::Read,
            // Rows that stay on this instance are its own affair, as in Tarantool.
            Ok(space) if space.is_local() => Self::Local(growth),
            _ => Self::Change(growth),
        }
    }

    /// What the statements of another instance's transaction need. Rows that finish something are applied even if the disk
    /// is nearly full: the master has accepted them, and they make space.
    pub(crate) fn of_foreign<'a>(statements: impl Iterator<Item = Statement<'a>>) -> Self {
        let growth = statements.map(|statement| match growth_of(&statement) {
            Growth::Adds => Growth::Adds,
            _ => Growth::Shrinks,
        });
        Self::Foreign(growth.max().unwrap_or(Growth::Nothing))
    }
}

fn growth_of(statement: &Statement<'_>) -> Growth {
    match statement {
        Statement::Insert { .. } | Statement::Replace { .. } | Statement::Upsert { .. } => Growth::Adds,
        Statement::Update { .. } | Statement::Delete { .. } => Growth::Finishes,
    }
}

/// Facts about the instance that decide which requests are refused.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// Why the journal takes no more rows, once it has failed.
    pub(crate) failure: Option<String>,
    /// The queue comes up after a loss of rows.
    pub(crate) is_rebuilding: bool,
    /// The data wait for others to take their place.
    pub(crate) is_suspended: bool,
    /// Another member of the group is about to lead.
    pub(crate) is_handing_over: bool,
    pub(crate) is_read_only: bool,
    /// The instance is a member of a group, and rows of local spaces are the group's.
    pub(crate) is_member: bool,
    /// The state of the data folder, while it is not where a start would look for it.
    pub(crate) displaced: Option<String>,
    /// The numbers of replicas that follow and of those in `replicas_before_reply`, while changes are refused because the
    /// former is smaller.
    pub(crate) missing_replicas: Option<(usize, usize)>,
    /// The free space on the disk, while it is short.
    pub(crate) scarce_space: Option<FreeSpace>,
}

/// The conditions that refuse changes, or everything.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    facts: Facts,
    /// Whether any of the facts but the membership refuses requests.
    is_restricted: bool,
}

impl Conditions {
    pub(crate) fn has_failed(&self) -> bool {
        self.facts.failure.is_some()
    }

    /// The facts behind the conditions; [`Self::set`] alone changes them.
    pub(crate) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Changes facts.
    pub(crate) fn set(&mut self, change: impl FnOnce(&mut Facts)) {
        change(&mut self.facts);
        self.is_restricted = self.facts.failure.is_some()
            || self.facts.is_rebuilding
            || self.facts.is_suspended
            || self.facts.is_handing_over
            || self.facts.is_read_only
            || self.facts.displaced.is_some()
            || self.facts.missing_replicas.is_some()
            || self.facts.scarce_space.is_some();
    }

    /// Whether any condition stands, so that an entry must compare its need.
    #[inline]
    pub(crate) fn is_restricted(&self) -> bool {
        self.is_restricted
    }

    /// Compares the need of an entry with the conditions.
    ///
    /// # Errors
    /// The first condition that refuses it, in a client's words.
    #[inline]
    pub(crate) fn check(&self, need: Need) -> Result<()> {
        if self.is_restricted { self.check_each(need) } else { Ok(()) }
    }

    #[cold]
    fn check_each(&self, need: Need) -> Result<()> {
        self.check_journal()?;
        if self.facts.is_rebuilding || self.facts.is_suspended {
            return Err(rebuilding_error());
        }
        let growth = match need {
            Need::Look if self.facts.is_handing_over => return Err(handing_over_error()),
            Need::Read | Need::Look | Need::Deadline => return Ok(()),
            Need::Register => Growth::Finishes,
            Need::Change(growth) | Need::Local(growth) | Need::Call(growth) | Need::Foreign(growth) => growth,
        };
        if growth == Growth::Nothing {
            return Ok(());
        }
        if self.facts.is_handing_over {
            return Err(handing_over_error());
        }
        let is_replicated = matches!(need, Need::Change(_) | Need::Register)
            || self.facts.is_member && matches!(need, Need::Local(_));
        if self.facts.is_read_only && is_replicated {
            return Err(read_only_error());
        }
        self.check_place()?;
        if matches!(need, Need::Change(_) | Need::Call(_)) {
            self.check_replicas()?;
        }
        self.check_free_space(growth)
    }

    /// The answer to what waits for the journal after that has failed.
    pub(crate) fn check_journal(&self) -> Result<()> {
        if self.facts.failure.is_none() { Ok(()) } else { Err(self.failure_error()) }
    }

    pub(crate) fn failure_error(&self) -> ErrorObject {
        let cause = self.facts.failure.as_deref().unwrap_or("unknown cause");
        let message = format!(
            "Failed to write to disk: {cause}. The server takes no more requests for data; \
             free or replace the disk and restart it"
        );
        ErrorObject::client(ErrorCode::WalIo, message)
    }

    /// The answer to a change that no start would find again.
    fn check_place(&self) -> Result<()> {
        let Some(displaced) = &self.facts.displaced else { return Ok(()) };
        let message = format!(
            "Failed to write to disk: {displaced}. Changes are refused, as no start would find them; reading goes on"
        );
        Err(ErrorObject::client(ErrorCode::WalIo, message))
    }

    /// The answer to a change while too few replicas are connected and the configuration refuses it.
    fn check_replicas(&self) -> Result<()> {
        let Some((connected, wanted)) = self.facts.missing_replicas else { return Ok(()) };
        Err(missing_replicas_error(connected, wanted, "replicas_before_reply is"))
    }

    /// The answer to what would need free space on a disk that is short of it.
    fn check_free_space(&self, growth: Growth) -> Result<()> {
        let Some(space) = self.facts.scarce_space else { return Ok(()) };
        let FreeSpace { free, .. } = space;
        let message = match growth {
            Growth::Adds if !space.is_exhausted() => format!(
                "Failed to write to disk: only {free} bytes are free, which is less than disk_reserve; \
                 make room on the server's disk. Until then tasks can be taken and finished, but not added"
            ),
            Growth::Adds | Growth::Finishes if space.is_exhausted() => format!(
                "Failed to write to disk: only {free} bytes are free, which is less than a quarter of disk_reserve; \
                 make room on the server's disk. Until then tasks can only be looked at, and tubes truncated or dropped"
            ),
            _ => return Ok(()),
        };
        Err(ErrorObject::client(ErrorCode::WalIo, message))
    }
}

/// The store and the queue, behind the door.
pub(crate) struct Vault {
    store: Store,
    queue: Queue,
}

impl Vault {
    pub(crate) fn new(store: Store, queue: Queue) -> Self {
        Self { store, queue }
    }

    /// Yields the data to an entry whose need was compared with `conditions`. Called by [`Data`](crate::shard::data::Data), which
    /// alone has a vault and a journal.
    #[inline]
    pub(super) fn open<'a>(
        &'a mut self,
        journaling: &'a mut Journaling,
        conditions: &'a Conditions,
        now: u64,
    ) -> Admitted<'a> {
        Admitted { store: &mut self.store, queue: &mut self.queue, journaling, conditions, now }
    }

    /// Puts other data in the place of these; the queue begins to come up on them. Returns the former data, and whether the
    /// queue needs further steps.
    pub(super) fn replace(&mut self, mut store: Store, replica_id: u32, now: u64) -> (Store, bool) {
        store.succeed(&self.store);
        store.set_replica_id(replica_id);
        let former = std::mem::replace(&mut self.store, store);
        self.queue.rebuild(&mut self.store, now);
        (former, self.queue.is_rebuilding())
    }

    /// The data, to be read. Indexes and owners may have deferred entries: see
    /// [`Data::read`](crate::shard::data::Data::read).
    #[inline]
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    #[inline]
    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Access for work that changes no data.
    pub(crate) fn upkeep(&mut self) -> Upkeep<'_> {
        Upkeep { store: &mut self.store }
    }

    forward! { queue:
        /// The next answer of a call that was parked.
        pub(crate) fn poll_woken(&mut self) -> Option<Woken>;
        /// The next change of a task of an observed tube.
        pub(crate) fn poll_event(&mut self) -> Option<TaskEvent>;
        /// The queue's next line for the log.
        pub(crate) fn poll_log(&mut self) -> Option<LogLine>;
        /// See [`Queue::observe`].
        pub(crate) fn observe(&mut self, tube: &str, observed: bool) -> bool;
    }
}

/// The store, for what changes no data: memory, read views, reports of hooks.
pub(crate) struct Upkeep<'a> {
    store: &'a mut Store,
}

impl Upkeep<'_> {
    forward! { store:
        /// See [`Store::set_max_tuple_size`].
        pub(crate) fn set_max_tuple_size(&mut self, bytes: u32);
        /// See [`Store::set_memory_limit`].
        pub(crate) fn set_memory_limit(&mut self, bytes: u64);
        /// See [`Store::vacate`]: only for data that are suspended.
        pub(crate) fn vacate(&mut self);
        /// See [`Store::collect_garbage`].
        pub(crate) fn collect_garbage(&mut self, tuples: u64) -> bool;
        /// See [`Store::open_read_view`].
        pub(crate) fn open_read_view(&mut self);
        /// See [`Store::read_view_next`].
        pub(crate) fn read_view_next(&mut self, budget: Budget<'_>, f: &mut dyn FnMut(SpaceId, &[u8], bool)) -> bool;
        /// See [`Store::close_read_view`].
        pub(crate) fn close_read_view(&mut self) -> Option<ClosedView>;
        /// See [`Store::snapshot_completed`].
        pub(crate) fn snapshot_completed(&mut self);
        /// See [`Store::mark_hooks_run`].
        pub(crate) fn mark_hooks_run(&mut self);
        /// See [`Store::poll_hooked`].
        pub(crate) fn poll_hooked(&mut self) -> Option<OwnedChange>;
        /// See [`Store::take_new_vinyl`].
        pub(crate) fn take_new_vinyl(&mut self) -> Option<&Space>;
    }

    /// Whether the queue's spaces show each user its own privileges only.
    pub(crate) fn protect_queue(&mut self, is_protected: bool) {
        if is_protected { Queue::protect(self.store) } else { Queue::unprotect(self.store) }
    }
}

/// Data that an admitted entry may change. When it is dropped outside a transaction, committed rows are in the journal's
/// batch.
#[must_use = "an entry touches data through this value"]
pub(crate) struct Admitted<'a> {
    pub(crate) store: &'a mut Store,
    pub(crate) queue: &'a mut Queue,
    journaling: &'a mut Journaling,
    pub(crate) conditions: &'a Conditions,
    pub(crate) now: u64,
}

impl Drop for Admitted<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.store.in_transaction() {
            self.collect();
        }
    }
}

impl Admitted<'_> {
    /// The queue with the store that it works on.
    #[inline]
    pub(crate) fn queue(&mut self) -> (&mut Queue, &mut Store) {
        (self.queue, self.store)
    }

    /// Opens a transaction in which `acting` acts.
    pub(crate) fn begin(&mut self, acting: UserId) -> Result<()> {
        if self.store.in_transaction() {
            let message = "Operation is not permitted when there is an active transaction ";
            return Err(ErrorObject::client(ErrorCode::ActiveTransaction, message));
        }
        self.queue.begin(self.store, acting);
        Ok(())
    }

    /// Commits the open transaction.
    pub(crate) fn commit(&mut self) -> Result<()> {
        self.queue.commit(self.store, self.now).on_wire()
    }

    /// Rolls the open transaction back.
    pub(crate) fn rollback(&mut self) {
        self.queue.rollback(self.store);
    }

    /// Runs `body` as one transaction of `acting`, or as a part of the open one that fails alone.
    pub(crate) fn transaction<T>(
        &mut self,
        acting: UserId,
        body: impl FnOnce(&mut Store) -> Result<T>,
    ) -> Result<T> {
        if self.store.in_transaction() {
            let savepoint = self.queue.savepoint(self.store);
            let result = self.store.acting_as(acting, body);
            return result.inspect_err(|_| self.queue.rollback_to(self.store, savepoint));
        }
        self.queue.begin(self.store, acting);
        match body(self.store) {
            Ok(value) => self.commit().map(|()| value),
            Err(error) => {
                self.rollback();
                Err(error)
            }
        }
    }

    /// Moves the rows committed so far into the journal's batch, for an entry that measures the cost of that.
    #[inline]
    pub(crate) fn collect(&mut self) {
        if self.queue.has_owner_changes() {
            return self.journaling.collect_with_owners(self.store, self.queue, self.now);
        }
        self.journaling.collect(self.store, self.now);
    }

    /// Commits the open transaction, which holds these rows of a decided entry. False: it has changed more than they say.
    pub(crate) fn commit_decided(&mut self, rows: &[Row<'_>]) -> Result<bool> {
        let effects = self.store.open_effects();
        self.commit()?;
        Ok(self.journaling.collect_decided(self.store, rows, effects) && !self.queue.has_owner_changes())
    }

    /// Takes the rows of another instance's transaction, which the open transaction holds, and commits it.
    pub(crate) fn commit_foreign(&mut self, rows: &[Row<'_>]) -> Result<()> {
        let effects = self.store.open_effects();
        self.commit()?;
        self.journaling.collect_foreign(self.store, self.now, rows, effects);
        Ok(())
    }
}

/// The answer to a change that too few replicas could confirm. `rule` says who wants this many.
pub(crate) fn missing_replicas_error(connected: usize, wanted: usize, rule: &str) -> ErrorObject {
    let message = format!(
        "Quorum collection for a synchronous transaction is timed out: {connected} replicas are connected and \
         {rule} {wanted}; changes are refused until they are back (replicas_missing = refuse)"
    );
    ErrorObject::client(ErrorCode::SyncQuorumTimeout, message)
}

/// The answer to a request between a loss of rows and the end of the rebuild.
fn rebuilding_error() -> ErrorObject {
    let message = "Instance bootstrap hasn't finished yet: the journal has lost rows, and the instance goes back to those \
                   that are confirmed. Nothing was done; ask again";
    ErrorObject::client(ErrorCode::Loading, message)
}

/// The name of the kind of error (field `name` of the error object) of a request that was not executed, because another member of
/// the group is about to lead, or leads.
pub const HANDING_OVER: &str = "HANDING_OVER";

/// The answer to a change while another member is about to lead.
pub(crate) fn handing_over_error() -> ErrorObject {
    not_executed("Can't modify data because this instance hands its group over to another one")
}

/// The answer to any request that a member has passed on to one that leads no more.
pub(crate) fn leads_no_more_error() -> ErrorObject {
    not_executed("This instance leads its group no more")
}

fn not_executed(why: &str) -> ErrorObject {
    let message = format!("{why}. Nothing was done: repeat the request");
    ErrorObject::client(ErrorCode::Readonly, message).with_name(HANDING_OVER)
}

/// The answer to a change while the instance is read-only.
pub(crate) fn read_only_error() -> ErrorObject {
    let message = "Can't modify data because this instance is in read-only mode.";
    ErrorObject::client(ErrorCode::Readonly, message)
}
