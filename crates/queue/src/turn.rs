//! A turn: access to the store, the tubes and the queue's shared state for one operation.
//!
//! [`Queue`](crate::Queue) is the door. Behind it everything is a method of a noun:
//!
//! | noun | what it knows |
//! |---|---|
//! | [`Turn`] | the store, all tubes, the state that they share, and the time; it opens and ends transactions, and reaches the nouns |
//! | [`TubeTurn`] | the same around one tube, which was looked up once: tasks and their changes |
//! | [`SessionsTurn`], [`JobsTurn`] and the other [`nouns`] | operations on one noun |
//! | [`TubeCall`](crate::tube_call::TubeCall) | a call of a tube's method |
//! | [`Owners`], [`Sessions`], [`Waiters`], [`Attempts`] | one kind of row each, with what the process caches of it |
//!
//! A method of a [`TubeTurn`] is a part of the open transaction. [`Turn::transact`] and [`Turn::transact_at`] open and end
//! transactions, and nothing else does.
//!
//! Files import each other in one direction. Values, and what [`Common`] keeps of them, stand above this file and know no turn.
//! Methods of turns and nouns stand below it, many in a file under that of their value, such as `session/release.rs`; no file above
//! imports one of these.

use std::collections::VecDeque;

use lycosa_store::{Store, UserId, user};

use crate::account::Read;
use crate::attempts::Attempts;
use crate::audit::Audit;
use crate::bulk::Bulk;
use crate::caller::Actor;
use crate::deadline::Deadlines;
use crate::driver::{Tasks, TubeTypes};
use crate::error::{Error, Result};
use crate::integer_map::IntegerMap;
use crate::long_call::LongCall;
use crate::owners::Owners;
use crate::pause::Pauses;
use crate::repeat::{Repetitions, TakeName};
use crate::sampled::{Sampled, with_held_back};
use crate::session::{SessionId, Sessions};
use crate::start::ComingUp;
use crate::state::{Configuration, QueueState};
use crate::status::history::Histories;
use crate::status::meter::Totals;
use crate::system::SystemSpaces;
use crate::task::{Assignments, Task, TaskKey};
use crate::transaction::{Mark, Pending};
use crate::tube::handle::TubeIndex;
use crate::tube::{Tube, Tubes};
use crate::waiter::{Line, Waiters};
use crate::{LogLevel, LogLine, NewSessionId, TaskEvent, Woken};

/// The queue's memory beside the tubes.
#[derive(Default)]
pub(crate) struct Common {
    pub(crate) state: QueueState,
    /// A start is under way: the tubes are those of the store already, or are being made so.
    pub(crate) starts: bool,
    /// The tubes are known, or would be if there were any: what changes their rows is taken into account.
    pub(crate) follows: bool,
    /// The instance is a member of a group.
    pub(crate) is_member: bool,
    /// No other member has led since the queue stopped: temporary tubes keep their tasks at the next start.
    pub(crate) keeps_temporary: bool,
    /// Changes of owners travel beside the rows of a batch.
    pub(crate) notes_owners: bool,
    pub(crate) configuration: Configuration,
    pub(crate) new_session_id: SessionIds,
    pub(crate) types: TubeTypes,
    pub(crate) spaces: SystemSpaces,
    pub(crate) attempts: Attempts,
    pub(crate) pauses: Pauses,
    pub(crate) audit: Audit,
    pub(crate) bulk: Bulk,
    pub(crate) sessions: Sessions,
    /// Names of connections that act as a user and are someone else.
    pub(crate) actors: IntegerMap<u64, Actor>,
    pub(crate) owners: Owners,
    pub(crate) waiters: Waiters,
    pub(crate) deadlines: Deadlines,
    /// The progress of a rebuild, while one is under way.
    pub(crate) coming_up: Option<Box<ComingUp>>,
    /// Long calls under way.
    pub(crate) long_calls: VecDeque<LongCall>,
    /// The last slice of background work was one of a long call.
    pub(crate) last_was_call: bool,
    /// Tubes with wrong times that the start has left to the timer.
    pub(crate) corrected_later: VecDeque<TubeIndex>,
    /// Tasks of closed sessions that may be released before the next tick.
    pub(crate) allowance: usize,
    /// Tubes in which someone waits for what a commit has brought.
    pub(crate) ready: Vec<TubeIndex>,
    pub(crate) pending: Pending,
    pub(crate) totals: Totals,
    pub(crate) histories: Histories,
    pub(crate) woken: VecDeque<Woken>,
    pub(crate) events: VecDeque<TaskEvent>,
    pub(crate) log: VecDeque<LogLine>,
    /// Which of the lines of each kind are logged.
    often: [Sampled; Often::LINES.len()],
    /// Buffers that operations use again and again.
    pub(crate) read: Read,
    pub(crate) name: Vec<u8>,
    /// The name of the take in progress.
    pub(crate) take_name: Option<TakeName>,
    pub(crate) repetitions: Repetitions,
    pub(crate) assignments: Assignments,
    pub(crate) scratch: Vec<u8>,
}

/// Makes the ids of new sessions.
pub(crate) struct SessionIds(pub(crate) NewSessionId);

/// Only a value that [`Common::new`] replaces.
impl Default for SessionIds {
    fn default() -> Self {
        Self(Box::new(SessionId::default))
    }
}

/// Lines of which clients cause any number.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Often {
    /// The queue released a task without a call.
    Release,
    /// A call was refused.
    Refusal,
    /// A call brought an option that its tube ignores.
    Ignored,
}

impl Often {
    /// The level of each kind of line, and the text about lines that were not logged.
    const LINES: [(LogLevel, &str); 3] = [
        (LogLevel::Warning, "tasks of sessions that are gone were released"),
        (LogLevel::Error, "calls came while the queue was not running"),
        (LogLevel::Warning, "calls had options that their tubes ignore"),
    ];
}

impl Common {
    /// Lines that the log keeps; older ones are dropped.
    const LOG_LINES: usize = 1024;

    pub(crate) fn new(configuration: Configuration, new_session_id: NewSessionId) -> Self {
        let (new_session_id, types) = (SessionIds(new_session_id), TubeTypes::built_in());
        Self { configuration, new_session_id, types, allowance: Turn::ALLOWANCE, ..Self::default() }
    }

    /// From now on the queue's own spaces are these, in that mode.
    pub(crate) fn use_spaces(&mut self, spaces: SystemSpaces, in_replicaset: bool) {
        self.spaces = spaces;
        self.configuration.in_replicaset = in_replicaset;
        self.owners.use_space(spaces.taken, in_replicaset, in_replicaset && self.notes_owners);
    }

    /// Forgets what derives from the data, but for the tubes and the calls that wait in them.
    pub(crate) fn forget_data(&mut self) {
        self.spaces = SystemSpaces::default();
        self.attempts = Attempts::default();
        self.pauses = Pauses::default();
        self.audit = Audit::default();
        self.bulk = Bulk::default();
        self.owners = Owners::default();
        self.deadlines = Deadlines::default();
        self.pending = Pending::default();
        self.sessions.forget_rows();
        self.waiters.forget_rows();
        self.long_calls.clear();
        self.corrected_later.clear();
        self.ready.clear();
        self.woken.clear();
        self.events.clear();
    }

    /// The name of a connection's user, for logs and lists.
    pub(crate) fn actor_name(&self, store: &Store, connection: u64, user: UserId) -> String {
        match self.actors.get(&connection) {
            Some(actor) => actor.name.to_string(),
            None => store.user(user).map_or_else(String::new, |user| user.name.clone()),
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.state == QueueState::Running
    }

    /// Notes that the calls that wait in a line of the tube are to be served at the commit.
    #[inline]
    pub(crate) fn serve_later(&mut self, index: TubeIndex, line: Line) {
        if self.ready.last() != Some(&index) && self.waiters.first(index, line).is_some() {
            self.ready.push(index);
        }
    }

    pub(crate) fn log(&mut self, level: LogLevel, text: String) {
        if self.log.len() == Self::LOG_LINES {
            self.log.pop_front();
        }
        self.log.push_back(LogLine { level, text });
    }

    /// Logs a line of that kind, unless too many were logged lately.
    pub(crate) fn log_often(&mut self, kind: Often, now: u64, line: impl FnOnce() -> String) {
        if let Some(held_back) = self.often[kind as usize].event(now) {
            self.log(Often::LINES[kind as usize].0, with_held_back(line(), held_back));
        }
    }

    /// Logs the numbers of lines that were not logged and that no later line has told.
    pub(crate) fn log_overdue(&mut self, now: u64) {
        for (kind, (level, text)) in Often::LINES.into_iter().enumerate() {
            if let Some(count) = self.often[kind].overdue(now) {
                self.log(level, format!("{count} more {text}"));
            }
        }
    }

    pub(crate) fn log_failure(&mut self, what: &str, error: &Error) {
        self.log(LogLevel::Error, format!("{what} failed: {error}"));
    }
}

/// The store, the tubes, what lies beside them, and the time.
pub(crate) struct Turn<'a> {
    pub(crate) store: &'a mut Store,
    pub(crate) tubes: &'a mut Tubes,
    pub(crate) common: &'a mut Common,
    /// µs since the epoch.
    pub(crate) now: u64,
}

/// A turn around one tube.
pub(crate) struct TubeTurn<'a> {
    pub(crate) store: &'a mut Store,
    pub(crate) tube: &'a mut Tube,
    pub(crate) index: TubeIndex,
    pub(crate) common: &'a mut Common,
    /// µs since the epoch.
    pub(crate) now: u64,
}

/// Defines nouns: a turn around each, whose methods are its operations, and the way from a [`Turn`] to it.
macro_rules! nouns {
    ($( $(#[$doc:meta])* $accessor:ident: $noun:ident; )*) => {
        $(
            $(#[$doc])*
            pub(crate) struct $noun<'a> {
                pub(crate) turn: Turn<'a>,
            }
        )*

        impl Turn<'_> {
            $(
                $(#[$doc])*
                #[inline]
                pub(crate) fn $accessor(&mut self) -> $noun<'_> {
                    $noun { turn: self.reborrow() }
                }
            )*
        }
    };
}

nouns! {
    /// The catalog of tubes: the rows of `_queue`, the spaces that they name, and the tubes that the process knows.
    catalog: CatalogTurn;
    /// The options that `queue.cfg` sets.
    configuration: ConfigurationTurn;
    /// The rights to tubes.
    grants: GrantsTurn;
    /// Sessions, and the tasks that they own.
    sessions: SessionsTurn;
    /// The leases of all tubes.
    leases: LeasesTurn;
    /// Calls that wait, and their rows.
    waiters: WaitersTurn;
    /// Long calls under way.
    long_calls: LongCallsTurn;
    /// The jobs of all tubes.
    jobs: JobsTurn;
    /// The audit log.
    audit: AuditTurn;
    /// Wrong rows that a start has found.
    corrections: CorrectionsTurn;
}

impl Turn<'_> {
    /// The same turn, for a noun.
    #[inline]
    pub(crate) fn reborrow(&mut self) -> Turn<'_> {
        Turn { store: self.store, tubes: self.tubes, common: self.common, now: self.now }
    }

    /// The turn around one tube.
    pub(crate) fn tube(&mut self, index: TubeIndex) -> Result<TubeTurn<'_>> {
        let Some(tube) = self.tubes.at_mut(index) else { return Err(Error::Stale) };
        Ok(TubeTurn { store: self.store, tube, index, common: self.common, now: self.now })
    }

    /// Runs one operation of the administrator in a transaction: in one of its own that is committed, or as a part of the
    /// open one. If it fails, nothing has happened.
    pub(crate) fn transact<T>(&mut self, operation: impl FnOnce(&mut Turn<'_>) -> Result<T>) -> Result<T> {
        self.transact_as(user::ADMIN, operation)
    }

    /// The same around one tube.
    pub(crate) fn transact_at<T>(
        &mut self,
        index: TubeIndex,
        operation: impl FnOnce(&mut TubeTurn<'_>) -> Result<T>,
    ) -> Result<T> {
        self.transact_as(user::ADMIN, |turn| operation(&mut turn.tube(index)?))
    }

    /// The same as [`Self::transact`]; `acting` acts.
    pub(crate) fn transact_as<T>(
        &mut self,
        acting: UserId,
        operation: impl FnOnce(&mut Turn<'_>) -> Result<T>,
    ) -> Result<T> {
        if self.store.in_transaction() {
            return self.transact_inside(acting, operation);
        }
        self.store.begin(acting);
        let result = operation(self);
        if result.is_ok() {
            self.store.commit();
            self.apply_pending();
        } else {
            self.store.rollback();
            self.revert_to(Mark::default());
        }
        result
    }

    fn transact_inside<T>(
        &mut self,
        acting: UserId,
        operation: impl FnOnce(&mut Turn<'_>) -> Result<T>,
    ) -> Result<T> {
        let is_accounted = self.common.keeps_in_step();
        if is_accounted {
            self.account_foreign()?;
        }
        let (savepoint, mark) = (self.store.savepoint(), self.common.pending.mark());
        let result = self.acting_as(acting, operation);
        match result {
            // Operations give account of what they do themselves.
            Ok(_) if is_accounted => self.common.pending.accounted = Some(self.store.savepoint()),
            // What a queue that does not run changes itself is temporary; the commit looks at the whole transaction.
            Ok(_) => {}
            Err(_) => {
                self.store.rollback_to(savepoint);
                self.revert_to(mark);
            }
        }
        result
    }

    /// Does what the queue's spaces need, for the user of any open transaction.
    pub(crate) fn as_admin<T>(&mut self, operation: impl FnOnce(&mut Turn<'_>) -> Result<T>) -> Result<T> {
        self.acting_as(user::ADMIN, operation)
    }

    /// As [`Store::acting_as`], for the whole turn.
    fn acting_as<T>(
        &mut self,
        acting: UserId,
        operation: impl FnOnce(&mut Turn<'_>) -> Result<T>,
    ) -> Result<T> {
        let former = self.store.set_user(acting);
        let result = operation(self);
        self.store.set_user(former);
        result
    }
}

impl TubeTurn<'_> {
    /// The tube's tasks, to look at.
    pub(crate) fn tasks(&self) -> Tasks<'_> {
        self.tube.tasks(self.store)
    }

    /// The task with that id.
    pub(crate) fn task(&self, id: u64) -> Result<Option<Task<'_>>> {
        self.tube.task(self.store, id)
    }

    /// The key of a task of the tube among those of all tubes.
    pub(crate) fn key(&self, task: u64) -> TaskKey {
        (self.tube.id, task)
    }
}
