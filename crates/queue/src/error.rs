//! Errors of the queue's methods.
//!
//! What the Lua module raises with `error` is a variant of its own and prints the module's text, without the file and
//! line that Lua puts in front: those errors have code 32 (`PROC_LUA`). What the module meets in `box` is passed
//! through as [`Error::Store`] with its own code and text.

use lycosa_store::SpaceId;
use lycosa_tuple::mp::MpError;

use crate::state::QueueState;
use crate::time::MAX_LEASE_SECONDS;

/// The result of what a call may refuse.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The result of what the storage may refuse.
pub(crate) type StoreResult<T> = Result<T, lycosa_store::Error>;

/// Why a call failed. `Display` is the text that the client sees.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// What hears of the replicas that a put asks for has refused it, and knows why.
    #[error("the put asks for replicas that it cannot have")]
    ConcernRefused,
    /// `ack`, `release` or `touch` of what the caller's session does not hold.
    #[error("Task was not taken")]
    NotTaken,
    /// `ack`, `release`, `bury` or `touch` by the token of a lease that ended or whose task was settled: the token.
    #[error("Lease {0} is stale: it ended, or its task was settled")]
    StaleLease(String),
    /// A lease, or a renewal, of no time or too much of it.
    #[error("a lease should be a number of seconds, more than 0 and at most {}", MAX_LEASE_SECONDS)]
    LeaseSpan,
    /// `take` with a `request` that is no name of a take.
    #[error(
        "request: expected 16 bytes that name the take in its session, and got a {0} of another length or type"
    )]
    TakeName(&'static str),
    /// `kick_many` of a task in another state.
    #[error("Task is not buried")]
    NotBuried,
    /// `peek`, `bury` or `delete` of an id that is not there: the id as Lua prints it.
    #[error("Task {0} not found")]
    TaskNotFound(String),
    /// `drop` of a tube without a row in `_queue`, and puts that waited in a tube when it was dropped.
    #[error("Tube not found")]
    TubeNotFound,
    /// `drop` while takes wait.
    #[error("There are consumers connected the tube")]
    TubeHasConsumers,
    /// `drop` while someone holds a task.
    #[error("There are taken tasks in the tube")]
    TubeHasTakenTasks,
    /// `create_tube` with a type that no driver has.
    #[error("Unknown tube type {0}")]
    UnknownTubeType(String),
    /// A type of tube that exists already.
    #[error("overriding registered driver \"{0}\"")]
    DriverExists(String),
    /// A type of tube whose tasks the queue could not read.
    #[error("driver '{name}': {reason}")]
    DriverLayout {
        /// Name of the type.
        name: String,
        /// The fault and its place.
        reason: String,
    },
    /// The leader's changes of owners do not fit.
    #[error(transparent)]
    OwnerChange(#[from] OwnerChangeError),
    /// A row of `_queue` whose space is gone.
    #[error("Space '{0}' doesn't exists")]
    SpaceMissing(String),
    /// `create_tube` with `temporary` in replica set mode.
    #[error("Cannot create temporary tube in replicaset mode")]
    TemporaryInReplicaset,
    /// `create_tube` with a name that a space has.
    #[error("Space '{0}' already exists")]
    SpaceExists(String),
    /// A space that should become a tube's lacks an index.
    #[error("space \"{space}\" does not have \"{index}\" index")]
    IndexMissing {
        /// Name of the space.
        space: String,
        /// Name of the index.
        index: String,
    },
    /// An index of a space that should become a tube's is over other fields.
    #[error("index \"{index}\" of space \"{space}\" has other parts than a tube of this type needs")]
    IndexParts {
        /// Name of the space.
        space: String,
        /// Name of the index.
        index: String,
    },
    /// A system space could not be re-created with the other `temporary` flag.
    #[error("Error migrate {space}: {reason}")]
    Migration {
        /// `_queue_taken_2` or `_queue_shared_sessions`.
        space: &'static str,
        /// The reason of the refusal.
        reason: Box<Self>,
    },
    /// `queue.cfg` with a value that the option cannot have.
    #[error("Invalid value of {option}: {value}")]
    InvalidOptionValue {
        /// Name of the option.
        option: &'static str,
        /// The value as Lua prints it.
        value: String,
    },
    /// `queue.cfg` with an option that it does not know.
    #[error("Unknown option {0}")]
    UnknownOption(String),
    /// `queue.identify` with something that is no session id.
    #[error("Invalid UUID format.")]
    InvalidUuid,
    /// `queue.identify` with the id of no session.
    #[error("The UUID {0} is unknown.")]
    UnknownUuid(String),
    /// `queue.identify` with a session that another user has opened.
    #[error("The session {0} was opened by another user: only that user may identify with it.")]
    ForeignSession(String),
    /// `queue.tube` with something that is no name.
    #[error("argument #1 should be string or nil")]
    TubeArgument,
    /// A method before the queue was started.
    #[error("Please configure box.cfg{{}} in read/write mode first")]
    NotConfigured,
    /// `touch` in a tube without deadlines.
    #[error("{0} queue does not support touch")]
    TouchUnsupported(String),
    /// `limfifottl` on `vinyl`.
    #[error("limfifottl queue does not support vinyl engine")]
    VinylUnsupported,
    /// A ready buffer on `vinyl`.
    #[error("\"ready_buffer\" storage mode cannot be used with vinyl engine")]
    ReadyBufferOnVinyl,
    /// `kick` of something that is no number.
    #[error("'for' limit must be a number")]
    KickLimit,
    /// An argument or option of the wrong type where Lua compares.
    #[error("attempt to compare {left} with {right}")]
    Compare {
        /// Lua's name of the type on the left.
        left: &'static str,
        /// Lua's name of the type on the right.
        right: &'static str,
    },
    /// Options that are no table.
    #[error("attempt to index local 'opts' (a {0} value)")]
    OptionsType(&'static str),
    /// Options that are null: the first member that is asked for.
    #[error("'void *' has no member named '{0}'")]
    OptionsNull(&'static str),
    /// An argument of a method that the module has not, of the wrong type or out of range.
    #[error("argument #{number} should be {expected}")]
    Argument {
        /// Its position, from 1.
        number: u8,
        /// The expected value.
        expected: &'static str,
    },
    /// `queue.grant` or `queue.revoke` without the names.
    #[error("usage: {0}(user, tube), where \"*\" stands for every tube")]
    Usage(&'static str),
    /// A batch of more elements than [`crate::MAX_BATCH`].
    #[error("argument #1 should have at most {limit} elements, not {count}")]
    BatchTooLong {
        /// How many there may be.
        limit: u32,
        /// How many there were.
        count: u32,
    },
    /// `put_many` with an array of options that has another length than the array of payloads.
    #[error("argument #2 has options for {options} tasks, argument #1 has {tasks}")]
    OptionsCount {
        /// Number of payloads.
        tasks: u32,
        /// Number of options.
        options: u32,
    },
    /// `put_many` of more tasks than the tube's capacity.
    #[error("{tasks} tasks do not fit a tube with a capacity of {capacity}")]
    BeyondCapacity {
        /// Number of payloads.
        tasks: u32,
        /// How many tasks fit the tube when it is empty.
        capacity: u64,
    },
    /// One element of a batch was refused, and with it the batch.
    #[error("{element}: {reason}")]
    InBatch {
        /// Which one: `task ID`, or `#POSITION` (from 1).
        element: String,
        /// What a call for it alone would have said; never an error of the store, which keeps its own code.
        reason: Box<Self>,
    },
    /// A wrong argument: what it is, and the error that the Lua module has for it.
    #[error("{what}: {reason}")]
    Refused {
        /// Method, argument or option, its value, and what it should be.
        what: String,
        /// What the module says. Code and kind are those of this error.
        reason: Box<Self>,
    },
    /// An option that does not exist and whose name is one slip away from one that does.
    #[error("{method}: option \"{option}\" does not exist (did you mean \"{nearest}\"?)")]
    MisspeltOption {
        /// The method.
        method: &'static str,
        /// What the call says.
        option: String,
        /// What it was meant to say.
        nearest: &'static str,
    },
    /// A call that begins a job or pauses a tube, inside a transaction of a program.
    #[error("{0} cannot be a part of a transaction: call it before or after")]
    InTransaction(&'static str),
    /// A call of this module's own with an argument that it cannot do anything with.
    #[error("{method}: {what}")]
    Unfit {
        /// The method.
        method: &'static str,
        /// The argument or option, its value, and what it should be.
        what: String,
    },
    /// The call would have to wait, and [`crate::Caller::may_wait`] forbids it.
    #[error("too many calls of this connection wait already")]
    MayNotWait,
    /// `statistics` of a tube that does not exist.
    #[error("attempt to index a nil value")]
    IndexNil,
    /// A call of a tube itself (`queue.tube.NAME` without a method).
    #[error("attempt to call a table value")]
    CallTable,
    /// The procedure was resolved before the tube was dropped: resolve the name again.
    #[error("the procedure has to be resolved again")]
    Stale,
    /// 7: a change of a durable space while the instance is read-only.
    #[error("Can't modify data because this instance is in read-only mode.")]
    ReadOnly,
    /// A take is made again while the queue does not run: the take whose answer was lost may have got tasks.
    #[error(
        "The outcome of this take is unknown: it is made again, and the queue is in {0} state. Make it again once the queue runs"
    )]
    TakeUnknown(QueueState),
    /// What the store said.
    #[error(transparent)]
    Store(#[from] lycosa_store::Error),
}

impl Error {
    /// Whether the text is one that the Lua module raises (code 32), in contrast to errors of `box` that keep their
    /// own code.
    #[must_use]
    pub fn is_lua(&self) -> bool {
        match self {
            Self::Refused { reason, .. } => reason.is_lua(),
            error => !matches!(
                error,
                Self::Store(_) | Self::ReadOnly | Self::TakeUnknown(_) | Self::Stale | Self::ConcernRefused
            ),
        }
    }

    /// The refusal of an element of a batch, by its place from 0. What the store says keeps its own code.
    pub(crate) fn in_batch(self, place: usize) -> Self {
        self.of_element(|| format!("#{}", place + 1))
    }

    /// The refusal of the element of a batch that has this name.
    pub(crate) fn of_element(self, element: impl FnOnce() -> String) -> Self {
        if self.is_lua() { Self::InBatch { element: element(), reason: Box::new(self) } } else { self }
    }
}

/// Why changes of owners cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OwnerChangeError {
    /// They are not as they were written.
    #[error("changes of owners cannot be read: {0}")]
    MessagePack(#[from] MpError),
    /// A number of a space that no space has, or none before the first change.
    #[error("changes of owners name no space")]
    Space,
    /// The space is not that of owners.
    #[error("changes of owners are about space {0}, which is not `_queue_taken_2`")]
    Other(SpaceId),
    /// A row or a key without a task.
    #[error("a change of an owner names no task")]
    Task,
}
