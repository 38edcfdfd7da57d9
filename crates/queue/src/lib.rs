//! Tubes, tasks, sessions and drivers on top of the store.
//!
//! A [`Queue`] is `tarantool/queue` without Lua, sockets or clock: procedures with MessagePack arguments go in,
//! values come out, and everything durable is statements on a [`lycosa_store::Store`]. A tube is a space; a task is a
//! tuple in it. Owners of tasks, waiting calls and sessions are rows of spaces too. These spaces have the names and fields
//! that the Lua module gives them, so that either can open the other's data folder.
//!
//! How to drive it:
//!
//! 1. recover the store, then [`Queue::start`];
//! 2. [`Queue::resolve`] a name and [`Queue::call`] it. An [`Answer::Parked`] call is answered by
//!    [`Queue::poll_woken`] later;
//! 3. change the store by other ways through [`Queue::execute`], or between [`Queue::begin`] and [`Queue::commit`] or
//!    [`Queue::rollback`]: nothing else begins or ends a transaction on the store;
//! 4. [`Queue::disconnect`] for each connection that closes;
//! 5. [`Queue::tick`] at the time that its last call returned, or that [`Queue::next_deadline`] returns; [`Queue::work`] at
//!    the time that [`Queue::next_work`] returns, as often as other work permits;
//! 6. after each of these take what [`Queue::poll_woken`], [`Queue::poll_event`] and [`Queue::poll_log`] have, and let
//!    the store's committed effects go to the journal before any answer leaves.
//!
//! Invariants:
//! - a task is taken exactly if a row of `_queue_taken_2` names its owner, or one of `_lycosa_leases` (other than by rows
//!   that users write);
//! - of each sub-queue at most one task is taken;
//! - an id is handed out once between create or truncate and the next one, restarts included;
//! - the call that has waited longest is served first, and only with tasks of its own tube;
//! - what takes long (`find`, `kick` and `release_all` of many tasks, jobs, the end of a session, deadlines) is done in slices;
//! - an operation that fails has changed nothing, in the store or here.
//!
//! Time is µs since the epoch, always an argument.
//!
//! Programs add types of tubes with [`Queue::register`] and see changes of tasks with [`Queue::observe`].
//!
//! Absent: callbacks ([`TaskEvent`] is what they need from here); the clean-up of tasks by anything but their own
//! deadlines.

use lycosa_store::{Budget, IndexId, SpaceId, Store};

#[macro_use]
mod names;

mod account;
mod argument_faults;
mod arguments;
mod attempts;
mod audit;
mod background;
mod batch;
mod bulk;
mod caller;
mod command;
mod consumers;
mod correction;
#[cfg(test)]
mod cost;
mod counted;
mod create;
mod deadline;
mod derivation;
pub mod driver;
pub mod error;
mod explain;
mod follower;
mod grant;
pub mod headers;
mod ignored_options;
mod integer_map;
mod leases;
mod listing;
mod long_call;
mod lua_text;
mod members;
mod operation;
mod output;
mod owner_changes;
mod owners;
mod pause;
pub mod procedure;
pub mod recount;
mod repeat;
mod right;
pub mod sampled;
mod session;
mod start;
pub mod state;
pub mod statistics;
pub mod status;
mod system;
pub mod task;
pub mod time;
mod timer;
mod transaction;
mod tube;
mod tube_call;
mod tube_row;
mod turn;
mod waiter;
mod waiting;

pub use argument_faults::misspelt;
pub use batch::{MAX_BATCH, MAX_TAKEN_BYTES};
pub use caller::{Caller, CallerKind, TokenId};
pub use command::{Command, Concern};
pub use create::{finish_recovery, finish_recovery_with};
pub use error::{Error, OwnerChangeError, Result};
pub use grant::{ALL_TUBES, grant_tubes, revoke_tubes};
pub use listing::{MAX_OWNERS, SessionView};
pub use members::{Members, write_optional};
pub use output::{Answer, LogLevel, LogLine, TaskEvent, Woken};
pub use owner_changes::{OwnerChange, OwnerChanges};
pub use procedure::{Procedure, QueueMethod, TubeMethod, gives_rights};
pub use right::{EVERY_TUBE, Right, check_execute};
pub use session::{NewSessionId, SessionId};
pub use start::{Rebuilt, StartReport};
pub use state::{Configuration, QueueState};
pub use statistics::{Counters, Operation, Redelivery, TaskCounts, TubeStatistics};
pub use system::SystemSpace;
pub use time::{MAX_LEASE_SECONDS, Seconds};
pub use timer::Tick;
pub use transaction::{Proposal, Savepoint};

use caller::{Actor, Client};
use tube::Tubes;
use turn::{Common, Turn};

/// All tubes of an instance and everything around them. See the crate's documentation for how to drive it.
pub struct Queue {
    tubes: Tubes,
    common: Common,
}

impl Queue {
    /// A queue that waits for [`Self::start`].
    #[must_use]
    pub fn new(configuration: Configuration, new_session_id: NewSessionId) -> Self {
        Self { tubes: Tubes::default(), common: Common::new(configuration, new_session_id) }
    }

    fn turn<'a>(&'a mut self, store: &'a mut Store, now: u64) -> Turn<'a> {
        Turn { store, tubes: &mut self.tubes, common: &mut self.common, now }
    }

    /// Hides other users' rows of the queue's spaces, from now on, also from users with a grant on these spaces. A queue that
    /// does not run, on a replica, has the spaces too.
    pub fn protect(store: &mut Store) {
        store.set_privacy(system::PRIVACY);
    }

    /// Whether the data have a queue: this one's, or that of the Lua module.
    pub fn is_stored(store: &Store) -> bool {
        store.space_by_name(system::QUEUE.name).is_some()
    }

    /// Undoes [`Self::protect`]: no queue of this process owns spaces with these names.
    pub fn unprotect(store: &mut Store) {
        store.set_privacy(&[]);
    }

    /// Comes up: to be called once after recovery, when the instance is writable. Leaves the queue running.
    ///
    /// # Errors
    /// The store refuses to create or change the queue's spaces, or to release tasks. The call may be repeated.
    pub fn start(&mut self, store: &mut Store, now: u64) -> Result<StartReport> {
        self.turn(store, now).start()
    }

    /// The store holds other data now: the last changes of the former data are void. Begins to derive everything from it
    /// again, as [`Self::start`] does; [`Self::rebuild_step`] goes on. Counters of tubes, types of tubes and sessions of
    /// connections stay, and calls go on waiting if their tube is still there. May be called again before the last rebuild
    /// has ended. Not to be called inside a transaction.
    ///
    /// Until the end no other code may read or change the data. Of this queue's methods the caller may use
    /// [`Self::disconnect`] and [`Self::cancel`], and the methods that add a type or an observer.
    pub fn rebuild(&mut self, store: &mut Store, now: u64) {
        self.turn(store, now).rebuild();
    }

    /// Goes on with a rebuild, for about `budget` rows. Returns what came of it when it ends.
    pub fn rebuild_step(&mut self, store: &mut Store, now: u64, budget: usize) -> Option<Rebuilt> {
        self.turn(store, now).rebuild_step(budget)
    }

    /// Whether a rebuild is under way.
    #[must_use]
    pub fn is_rebuilding(&self) -> bool {
        self.common.coming_up.is_some()
    }

    /// The calls that wait: numbers of connections and requests.
    pub fn waiting_requests(&self) -> impl Iterator<Item = (u64, u64)> {
        self.common.waiters.requests()
    }

    /// The instance becomes read-only or writable (`box.cfg{read_only = …}`, a change of the master).
    ///
    /// A queue that was never started stays so: call [`Self::start`] when the instance is writable for the first time. While
    /// the instance is read-only the queue follows the rows that are applied, so that a start costs O(tubes + taken tasks).
    ///
    /// # Errors
    /// The queue could not come up again; it stays in STARTUP, and the call may be repeated.
    pub fn set_read_only(&mut self, store: &mut Store, read_only: bool, now: u64) -> Result<()> {
        self.turn(store, now).set_read_only(read_only)
    }

    /// The instance is writable again, but the queue waits before it starts, for rows of the old master that have not
    /// arrived yet. [`Self::set_read_only`] starts it.
    pub fn begin_startup(&mut self) {
        if self.common.state == QueueState::Waiting {
            self.common.set_state(QueueState::Startup);
        }
    }

    /// Answers all calls that wait with the error of a read-only instance: the queue will not serve them soon, and their
    /// clients should look for the new master.
    pub fn refuse_waiting(&mut self, store: &mut Store, now: u64) {
        self.turn(store, now).waiters().refuse_all();
    }

    /// Adds a type of tube, before or after the start. In a running queue the stored tubes of that type come up, and their
    /// taken tasks are released. Types cannot be removed.
    ///
    /// # Errors
    /// There is a type of that name; the store refuses to release tasks.
    pub fn register(
        &mut self,
        store: &mut Store,
        tube_type: driver::TubeType,
        now: u64,
    ) -> Result<StartReport> {
        self.turn(store, now).catalog().register(tube_type)
    }

    /// Where the queue is in its life.
    #[must_use]
    pub fn state(&self) -> QueueState {
        self.common.state
    }

    /// The options that `queue.cfg` has set.
    #[must_use]
    pub fn configuration(&self) -> Configuration {
        self.common.configuration
    }

    /// Handles deadlines up to `now` (µs since the epoch), at most `budget`; returns the next one.
    ///
    /// Not to be called inside a transaction.
    pub fn tick(&mut self, store: &mut Store, now: u64, budget: usize) -> Tick {
        self.turn(store, now).tick(budget)
    }

    /// When [`Self::tick`] has something to do next, µs since the epoch. May be in the past.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        self.common.next_deadline()
    }

    /// Goes on with long calls and jobs, in slices that end where `budget` is spent; returns when it has something to do next,
    /// µs since the epoch: a time in the past if the budget did not cover everything.
    ///
    /// Not to be called inside a transaction.
    pub fn work(&mut self, store: &mut Store, now: u64, budget: Budget<'_>) -> Option<u64> {
        self.turn(store, now).work(budget)
    }

    /// When [`Self::work`] has something to do next, µs since the epoch. May be in the past.
    #[must_use]
    #[inline]
    pub fn next_work(&self) -> Option<u64> {
        self.common.next_work()
    }

    /// The connection is gone: what it waited for is forgotten, and its session goes on without it, expires, or ends.
    ///
    /// To be called for every connection that closes, before [`Self::tick`] is called again, and not inside a
    /// transaction. Costs nothing if the connection never had to do with a queue.
    pub fn disconnect(&mut self, store: &mut Store, connection: u64, now: u64) {
        self.turn(store, now).sessions().disconnect(connection);
    }

    /// An operator releases everything that the session of a connection has taken before; the session goes on. More tasks than one turn
    /// may handle are released in slices, by [`Self::tick`]. The audit log has an entry with the reason. False: the
    /// connection has no session.
    ///
    /// # Errors
    /// Inside a transaction; the entry cannot be written.
    pub fn release_session(
        &mut self,
        store: &mut Store,
        caller: &Caller,
        connection: u64,
        (operation, reason): (&str, &[u8]),
        now: u64,
    ) -> Result<bool> {
        let entry = audit::Steered { tube: "", operation, job: None, reason };
        self.turn(store, now).sessions().release(caller, connection, &entry)
    }

    /// Writes an entry of the audit log about something that concerns no tube.
    ///
    /// # Errors
    /// The entry cannot be written.
    pub fn note_steered(
        &mut self,
        store: &mut Store,
        caller: &Caller,
        (operation, reason): (&str, &[u8]),
        now: u64,
    ) -> Result<()> {
        let entry = audit::Steered { tube: "", operation, job: None, reason };
        self.turn(store, now).transact(|turn| turn.audit().note(caller, &entry))
    }

    /// The tube into which a job moves tasks, or moved the tasks that an undo of it would bring back.
    #[must_use]
    pub fn destination_of_job(&self, store: &Store, id: u64) -> Option<String> {
        self.common.bulk.destination_of(store, id)
    }

    /// From now on pauses, jobs and leases name the callers of this connection `token NAME` in the place of their user, and the
    /// audit log has the token's name and role: a token acts as a user. Until [`Self::disconnect`].
    pub fn name_connection(&mut self, connection: u64, token: &str, role: &str) {
        let actor = Actor { name: format!("token {token}").into(), token: [token.into(), role.into()] };
        self.common.actors.insert(connection, actor);
    }

    /// Takes a parked call back; it is not answered any more. False if it does not wait: it was answered, or is a
    /// long call that changes tasks, which goes on. Not to be called inside a transaction.
    pub fn cancel(&mut self, store: &mut Store, connection: u64, request: u64, now: u64) -> bool {
        self.turn(store, now).waiters().cancel(connection, request)
    }

    /// The store, for a client that reads an index, inside or outside of a transaction: cached owners are written back, the rows of
    /// takes that wait are written, and deferred entries are flushed in steps. `None`: more steps are to come, see [`Store::read`].
    ///
    /// # Errors
    /// No such space or index; or a row of a cached owner is refused, because its space was changed or dropped.
    pub fn read<'s>(
        &mut self,
        store: &'s mut Store,
        space: SpaceId,
        index: IndexId,
        budget: u64,
        now: u64,
    ) -> Result<Option<&'s Store>> {
        self.turn(store, now).write_back(space)?;
        Ok(store.read(space, index, budget)?)
    }

    /// The rows that `_queue_taken_2` has, or would have if no owner were cached, in order.
    ///
    /// # Errors
    /// The space is not there.
    pub fn taken_rows(&self, store: &Store) -> Result<Vec<Vec<u8>>> {
        self.common.owners.rows(store)
    }

    /// The rows that `_queue_consumers` has, or would have if the row of each take that waits were written, in order.
    ///
    /// # Errors
    /// The space is not there.
    pub fn consumer_rows(&self, store: &Store) -> Result<Vec<Vec<u8>>> {
        self.common.consumer_rows(store, &self.tubes)
    }

    /// The instance is a member of a group: sessions stay durable, and a temporary tube is empty when the queue starts.
    pub fn join_group(&mut self) {
        self.common.is_member = true;
    }

    /// The queue has stopped for a hand-over, and the member leads still: temporary tubes keep their tasks at the next start.
    pub fn keep_temporary(&mut self) {
        self.common.keeps_temporary = true;
    }

    /// Says whether changes of owners are noted for the batch ([`Self::take_owner_changes`]) in place of rows that are logged. Every
    /// member of the group has to know them.
    pub fn note_owners(&mut self, notes_owners: bool) {
        let Common { spaces, configuration, .. } = &self.common;
        let (spaces, in_replicaset) = (*spaces, configuration.in_replicaset);
        self.common.notes_owners = notes_owners;
        if spaces.taken != 0 {
            self.common.use_spaces(spaces, in_replicaset);
        }
    }

    /// Whether [`Self::take_owner_changes`] has something.
    #[must_use]
    #[inline]
    pub fn has_owner_changes(&self) -> bool {
        !self.common.pending.notes.is_empty()
    }

    /// Moves the changes of owners of all committed transactions to the end of `out`: they belong to the batch of these
    /// transactions' rows. Not to be called inside a transaction.
    pub fn take_owner_changes(&mut self, out: &mut Vec<u8>) {
        self.common.pending.notes.drain(out);
    }

    /// Takes over changes of owners that the leader of the group has sent with the rows that were just applied.
    ///
    /// # Errors
    /// They cannot be read, or are about another space. Nothing has changed then.
    pub fn follow_owners(&mut self, store: &mut Store, changes: &[u8], now: u64) -> Result<()> {
        self.turn(store, now).transact(|Turn { store, common, .. }| {
            OwnerChanges::new(changes)
                .try_for_each(|change| common.owners.follow(store, &mut common.pending, change?))
        })
    }

    /// Makes the space of owners what a snapshot is to have, where changes of owners are noted: it has every owner that all members
    /// have.
    ///
    /// # Errors
    /// The store refuses a row.
    pub fn settle_owners(&mut self, store: &mut Store, now: u64) -> Result<()> {
        if !self.common.owners.has_unsettled(store) {
            return Ok(());
        }
        let former = store.lift_limit(true);
        let settled = self.turn(store, now).settle_owners();
        store.lift_limit(former);
        settled
    }

    /// The digest of all data, in which it does not matter which owners are cached: see [`Store::digest`]. It leaves out the owners
    /// of tasks that no other member has.
    #[must_use]
    pub fn digest(&self, store: &Store) -> u128 {
        let owners = &self.common.owners;
        store.digest_with(&mut owners.beside(store), &|space, row| owners.is_of_temporary(space, row))
    }

    /// Whether [`Self::poll_woken`] has an answer.
    #[must_use]
    #[inline]
    pub fn has_woken(&self) -> bool {
        !self.common.woken.is_empty()
    }

    /// The next answer of a call that was parked.
    pub fn poll_woken(&mut self) -> Option<Woken> {
        self.common.woken.pop_front()
    }

    /// The next change of a task of an observed tube.
    pub fn poll_event(&mut self) -> Option<TaskEvent> {
        self.common.events.pop_front()
    }

    /// The next line for the log.
    pub fn poll_log(&mut self) -> Option<LogLine> {
        self.common.log.pop_front()
    }

    /// Whether changes of a tube's tasks are to be collected for [`Self::poll_event`]. False if there is no such tube.
    pub fn observe(&mut self, tube: &str, observed: bool) -> bool {
        let handle = self.tubes.by_name(tube);
        match handle.and_then(|handle| self.tubes.at_mut(handle.index)) {
            Some(tube) => {
                tube.observed = observed;
                true
            }
            None => false,
        }
    }

    /// The tubes in the order of their ids: name and type.
    pub fn tubes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.tubes.iter().map(|tube| (tube.name.as_str(), tube.kind.name()))
    }

    /// Whether the space holds the tasks or the ready buffer of a tube.
    #[must_use]
    pub fn is_tube_space(&self, space: SpaceId) -> bool {
        self.tubes.iter().any(|tube| tube.space == space || tube.buffer == Some(space))
    }

    /// The tube whose ready buffer the space is.
    #[must_use]
    pub fn tube_of_buffer(&self, space: SpaceId) -> Option<&str> {
        let mut tubes = self.tubes.iter();
        tubes.find(|tube| tube.buffer == Some(space)).map(|tube| tube.name.as_str())
    }

    /// Number of calls that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.common.waiters.len()
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue")
            .field("state", &self.common.state)
            .field("configuration", &self.common.configuration)
            .field("tubes", &self.tubes)
            .field("waiting", &self.common.waiters.len())
            .finish_non_exhaustive()
    }
}
