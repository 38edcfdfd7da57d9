//! Tubes, tasks, sessions and drivers on top of the store.
//!
//! A [`Queue`] is `tarantool/queue` without Lua, sockets or clock: procedures with MessagePack arguments go in, values
//! come out, and everything durable is statements on a [`lycosa_store::Store`]. A tube is a space; a task is a tuple in it; who holds
//! a task, who waits, and which sessions there are is in spaces too, with the names and fields that the Lua module
//! gives them, so that either can open the other's data folder.
//!
//! How to drive it:
//!
//! 1. recover the store, then [`Queue::start`];
//! 2. [`Queue::resolve`] a name and [`Queue::call`] it. An [`Answer::Parked`] call is answered by
//!    [`Queue::poll_woken`] later;
//! 3. change the store by other ways through [`Queue::execute`], or between [`Queue::begin`] and [`Queue::commit`] or
//!    [`Queue::rollback`]: nothing else begins or ends a transaction on the store;
//! 4. [`Queue::disconnect`] for each connection that closes;
//! 5. [`Queue::tick`] when the moment has come that it named last, or that [`Queue::next_deadline`] names;
//! 6. after each of these take what [`Queue::poll_woken`], [`Queue::poll_event`] and [`Queue::poll_log`] have, and let
//!    the store's committed effects go to the journal before any answer leaves.
//!
//! Invariants:
//! - a task is taken exactly if a row of `_queue_taken_2` names its owner (other than by rows that users write);
//! - of each sub-queue at most one task is taken;
//! - an id is handed out once between create or truncate and the next one, restarts included;
//! - who waits longest is served first, and only with what he may have;
//! - what takes long (`kick` and `release_all` of many tasks, the end of a session, deadlines) is done in slices;
//! - an operation that fails has changed nothing, in the store or here.
//!
//! Time is µs since the epoch, always an argument.
//!
//! Absent: callbacks and custom drivers, which are Lua's affair (see [`TaskEvent`] and [`driver::Driver`] for what they
//! need from here); the clean-up of tasks by anything but their own deadlines.

use std::collections::VecDeque;

use lycosa_store::UserId;

mod account;
mod arguments;
mod attempts;
mod batch;
#[cfg(test)]
mod cost;
mod create;
mod deadline;
pub mod driver;
pub mod error;
mod grant;
mod integer_map;
mod job;
mod look;
mod lua_text;
mod operation;
mod owners;
pub mod procedure;
mod session;
mod start;
pub mod state;
pub mod statistics;
mod system;
pub mod task;
pub mod time;
mod timer;
mod transaction;
mod tube;
mod waiter;
mod waiting;

pub use batch::{MAX_BATCH, MAX_TAKEN_BYTES};
pub use create::prepare_tubes;
pub use error::Error;
pub use procedure::{Procedure, QueueMethod, TubeMethod};
pub use session::SessionId;
pub use start::StartReport;
pub use state::{Configuration, QueueState};
pub use statistics::{Counters, Operation, TaskCounts, TubeStatistics};
pub use time::Seconds;
pub use timer::Tick;
pub use transaction::Savepoint;

use account::Read;
use deadline::Deadlines;
use job::Job;
use owners::Owners;
use session::Sessions;
use system::SystemSpaces;
use task::Assignments;
use transaction::Pending;
use tube::{SlotIndex, Tubes};
use waiter::Waiters;

/// Who calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// Number of the connection, never used again for another one.
    pub connection: u64,
    /// Whose rights count.
    pub user: UserId,
    /// The rights are not checked: the caller is the instance itself, or a function that runs with its owner's rights.
    pub trusted: bool,
    /// The user was granted to execute the called function itself, so the spaces that it touches need no right of their
    /// own. A right to execute everything is not enough for that.
    pub granted: bool,
    /// Number of the request, larger than those of calls before it: a parked call is answered with it.
    pub request: u64,
    /// The call may be parked. If not, it is refused with [`Error::MayNotWait`] when it would have to be.
    pub may_wait: bool,
}

/// Whose connection something is done for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Client {
    pub(crate) connection: u64,
    pub(crate) user: UserId,
}

impl Caller {
    pub(crate) const fn client(&self) -> Client {
        Client { connection: self.connection, user: self.user }
    }
}

/// What a call answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// So many values were appended.
    Done {
        /// Number of values.
        count: u32,
    },
    /// Nothing yet: [`Queue::poll_woken`] will have the answer.
    Parked,
}

impl Answer {
    pub(crate) const fn one() -> Self {
        Self::Done { count: 1 }
    }

    pub(crate) const fn none() -> Self {
        Self::Done { count: 0 }
    }
}

/// The answer of a call that was parked.
#[derive(Debug, Clone, PartialEq)]
pub struct Woken {
    /// The caller's connection.
    pub connection: u64,
    /// The caller's request.
    pub request: u64,
    /// Number of values and the values back to back.
    pub result: Result<(u32, Vec<u8>), Error>,
}

/// A change of a task of a tube that is observed (see [`Queue::observe`]), after its commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskEvent {
    /// Name of the tube.
    pub tube: String,
    /// What happened.
    pub operation: Operation,
    /// The stored tuple after it; of a task that is gone, the last one with the status `-`.
    pub tuple: Vec<u8>,
}

/// How grave a line of the log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Something went wrong.
    Error,
    /// Something that somebody should know.
    Warning,
    /// Ordinary.
    Info,
}

/// A line for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// How grave it is.
    pub level: LogLevel,
    /// What it says.
    pub text: String,
}

/// Makes ids of sessions. They are secrets: who knows one may finish its tasks.
pub type NewSessionId = Box<dyn FnMut() -> SessionId + Send>;

/// All tubes of an instance and everything around them. See the crate's documentation for how to drive it.
pub struct Queue {
    state: QueueState,
    configuration: Configuration,
    new_session_id: NewSessionId,
    spaces: SystemSpaces,
    /// The space of attempts; 0 if there is none.
    attempts: lycosa_store::SpaceId,
    tubes: Tubes,
    sessions: Sessions,
    owners: Owners,
    waiters: Waiters,
    deadlines: Deadlines,
    /// Long calls under way.
    jobs: VecDeque<Job>,
    /// Tasks of closed sessions that may be released before the next tick.
    allowance: usize,
    /// Tubes in which someone waits for what a commit has brought.
    ready: Vec<SlotIndex>,
    pending: Pending,
    woken: VecDeque<Woken>,
    events: VecDeque<TaskEvent>,
    log: VecDeque<LogLine>,
    /// Buffers that operations use again and again.
    read: Read,
    name: Vec<u8>,
    assignments: Assignments,
    scratch: Vec<u8>,
}

impl Queue {
    /// Lines that the log keeps for [`Self::poll_log`]; older ones are dropped.
    const LOG_LINES: usize = 1024;

    /// A queue that waits for [`Self::start`]. Session ids are random.
    #[must_use]
    pub fn new(configuration: Configuration) -> Self {
        Self::with_session_ids(configuration, Box::new(|| uuid::Uuid::new_v4().into_bytes()))
    }

    /// The same, with another source of session ids, for runs that have to be repeatable.
    #[must_use]
    pub fn with_session_ids(configuration: Configuration, new_session_id: NewSessionId) -> Self {
        Self {
            state: QueueState::Init,
            configuration,
            new_session_id,
            spaces: SystemSpaces::default(),
            attempts: 0,
            tubes: Tubes::default(),
            sessions: Sessions::default(),
            owners: Owners::default(),
            waiters: Waiters::default(),
            deadlines: Deadlines::default(),
            jobs: VecDeque::new(),
            allowance: Self::ALLOWANCE,
            ready: Vec::new(),
            pending: Pending::default(),
            woken: VecDeque::new(),
            events: VecDeque::new(),
            log: VecDeque::new(),
            read: Read::default(),
            name: Vec::new(),
            assignments: Assignments::default(),
            scratch: Vec::new(),
        }
    }

    /// The next answer of a call that was parked.
    pub fn poll_woken(&mut self) -> Option<Woken> {
        self.woken.pop_front()
    }

    /// The next change of a task of an observed tube.
    pub fn poll_event(&mut self) -> Option<TaskEvent> {
        self.events.pop_front()
    }

    /// The next line for the log.
    pub fn poll_log(&mut self) -> Option<LogLine> {
        self.log.pop_front()
    }

    /// Whether changes of a tube's tasks are to be collected for [`Self::poll_event`]. False if there is no such tube.
    pub fn observe(&mut self, tube: &str, observed: bool) -> bool {
        let slot = self.tubes.by_name(tube);
        match slot.and_then(|slot| self.tubes.at_mut(slot.index)) {
            Some(tube) => {
                tube.observed = observed;
                true
            }
            None => false,
        }
    }

    /// The tubes in the order of their ids: name and type.
    pub fn tubes(&self) -> impl Iterator<Item = (&str, &'static str)> {
        self.tubes.iter().map(|tube| (tube.name.as_str(), tube.driver.name()))
    }

    /// Number of calls that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiters.len()
    }

    fn log(&mut self, level: LogLevel, text: String) {
        if self.log.len() == Self::LOG_LINES {
            self.log.pop_front();
        }
        self.log.push_back(LogLine { level, text });
    }

    fn log_failure(&mut self, what: &str, error: &Error) {
        self.log(LogLevel::Error, format!("{what} failed: {error}"));
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue")
            .field("state", &self.state)
            .field("configuration", &self.configuration)
            .field("tubes", &self.tubes)
            .field("waiting", &self.waiters.len())
            .finish_non_exhaustive()
    }
}
