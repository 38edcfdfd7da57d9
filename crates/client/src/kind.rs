//! Kinds of the server's refusals.
//!
//! Lycosa names the kind of an error that has only the general code 32 in the error object of its reply: field `name`
//! ([`ErrorObject::name`]). The Lua module of Tarantool has nothing but texts; [`of_text`] knows them and is the only
//! place that reads English. Everything else asks for a [`Kind`].

use lycosa_iproto::error::{ErrorCode, ErrorObject};

/// The kind of an error that the server sent: what a program can decide on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// This session does not hold the task (any more).
    NotTaken,
    /// The token of a lease that ended, or whose task was settled.
    StaleLease,
    /// The task is not buried, so it cannot be kicked.
    NotBuried,
    /// No task has this id.
    NoSuchTask,
    /// No tube has this name.
    NoSuchTube,
    /// The tube exists already, or a space has its name.
    TubeExists,
    /// No driver is registered for this tube type.
    UnknownTubeType,
    /// The tube's type has no deadlines, so `touch` cannot prolong them.
    TouchUnsupported,
    /// The server has made the tube and cannot say so: the Lua module, whose answer would hold functions.
    MadeSilently,
    /// The server does not know the queue session (any more).
    NoSuchSession,
    /// The tube still holds taken tasks or has waiting calls, so it cannot be dropped.
    TubeInUse,
    /// The server has no function of this name; a Lua module without batches, for example.
    NoSuchProcedure,
    /// The user lacks the right.
    AccessDenied,
    /// No user has this name, or the password is wrong.
    WrongCredentials,
    /// The server's `memory_limit` is reached.
    MemoryLimit,
    /// The task is larger than the server's `max_tuple_size`.
    TupleTooLarge,
    /// The request is longer than the server's `max_frame_size`; it closes the connection.
    FrameTooLarge,
    /// The instance is read-only.
    ReadOnly,
    /// Too few replicas of the server are connected (`replicas_before_reply`, `replicas_missing = refuse`). Nothing was done.
    ReplicasMissing,
    /// The server cannot write its journal: a full or broken disk. Nothing was done.
    Disk,
    /// The server's journal has lost the rows of the request or of what the request has read, or has failed before they were
    /// confirmed: the request may have been done or not, as after [`Error::Disconnected`](crate::Error::Disconnected).
    OutcomeUnknown,
    /// The server starts, or goes back to what its journal has confirmed. Nothing was done; another attempt soon may go well.
    Loading,
    /// The server is a member of a group that has no leader. Nothing was done.
    NoLeader,
    /// Any other error: look at the code and the text.
    Other,
}

impl Kind {
    /// The kind of an error that came with this code and text, and with `object` if the server sent one.
    pub(crate) fn of(error: &ErrorObject) -> Self {
        if let Some(kind) = error.name().and_then(Self::of_name) {
            return kind;
        }
        match ErrorCode::from_u32(error.code) {
            Some(ErrorCode::ProcLua) => of_text(&error.message),
            // Every malformed request has this code; there is no other sign.
            Some(ErrorCode::InvalidMsgpack) if error.message.contains("too big packet size") => {
                Self::FrameTooLarge
            }
            Some(ErrorCode::NoSuchProc) => Self::NoSuchProcedure,
            Some(ErrorCode::AccessDenied) => Self::AccessDenied,
            Some(ErrorCode::NoSuchUser | ErrorCode::PasswordMismatch) => Self::WrongCredentials,
            Some(ErrorCode::MemoryIssue) => Self::MemoryLimit,
            Some(ErrorCode::MemtxMaxTupleSize) => Self::TupleTooLarge,
            Some(ErrorCode::Readonly) => Self::ReadOnly,
            Some(ErrorCode::SyncQuorumTimeout) => Self::ReplicasMissing,
            Some(ErrorCode::WalIo) => Self::Disk,
            Some(ErrorCode::Loading) => Self::Loading,
            _ => Self::Other,
        }
    }

    fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "TASK_NOT_TAKEN" => Self::NotTaken,
            "STALE_LEASE" => Self::StaleLease,
            "TASK_NOT_BURIED" => Self::NotBuried,
            "NO_SUCH_TASK" => Self::NoSuchTask,
            "NO_SUCH_TUBE" => Self::NoSuchTube,
            "TUBE_EXISTS" => Self::TubeExists,
            "UNKNOWN_TUBE_TYPE" => Self::UnknownTubeType,
            "TOUCH_UNSUPPORTED" => Self::TouchUnsupported,
            "NO_SUCH_SESSION" => Self::NoSuchSession,
            "FRAME_TOO_LARGE" => Self::FrameTooLarge,
            "TUBE_IN_USE" => Self::TubeInUse,
            "OUTCOME_UNKNOWN" => Self::OutcomeUnknown,
            "READ_ONLY" => Self::ReadOnly,
            "NO_LEADER" => Self::NoLeader,
            _ => return None,
        })
    }
}

/// The kind of an error that only has a text: errors that the Lua module raises, with a file and line in front.
fn of_text(message: &str) -> Kind {
    let ends = |text: &str| message.ends_with(text);
    if ends("Task was not taken") {
        Kind::NotTaken
    } else if message.contains("Task ") && ends(" not found") {
        Kind::NoSuchTask
    } else if ends("Tube not found") || ends("attempt to index a nil value") {
        Kind::NoSuchTube
    } else if message.contains("Space '") && ends("' already exists") {
        Kind::TubeExists
    } else if message.contains("Unknown tube type ") {
        Kind::UnknownTubeType
    } else if ends(" queue does not support touch") {
        Kind::TouchUnsupported
    } else if message.contains("The UUID ") && ends(" is unknown.") {
        Kind::NoSuchSession
    } else if ends("unsupported Lua type 'function'") {
        Kind::MadeSilently
    } else if ends("There are consumers connected the tube") || ends("There are taken tasks in the tube") {
        Kind::TubeInUse
    } else if message.contains("Please configure box.cfg{} in read/write mode first") {
        Kind::ReadOnly
    } else {
        Kind::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(code: ErrorCode, message: &str, name: Option<&str>) -> Kind {
        let fields = name.map(|name| ("name".into(), name.to_owned())).into_iter().collect();
        Kind::of(&ErrorObject { fields, ..ErrorObject::client(code, message) })
    }

    #[test]
    fn the_name_counts_more_than_the_text() {
        let named = |name| kind(ErrorCode::ProcLua, "whatever it says", Some(name));
        assert_eq!(named("TASK_NOT_TAKEN"), Kind::NotTaken);
        assert_eq!(named("NO_SUCH_TUBE"), Kind::NoSuchTube);
        assert_eq!(named("STALE_LEASE"), Kind::StaleLease);
        assert_eq!(kind(ErrorCode::SyncRollback, "x", Some("OUTCOME_UNKNOWN")), Kind::OutcomeUnknown);
        assert_eq!(named("A_NAME_OF_A_LATER_VERSION"), Kind::Other);
        assert_eq!(kind(ErrorCode::NoSuchProc, "x", Some("NO_SUCH_TUBE")), Kind::NoSuchTube);
    }

    #[test]
    fn codes_and_the_texts_of_the_lua_module() {
        let lua = |message| kind(ErrorCode::ProcLua, message, None);
        assert_eq!(lua("/usr/share/tarantool/queue/abstract.lua:83: Task was not taken"), Kind::NotTaken);
        assert_eq!(lua("/usr/share/tarantool/queue/abstract.lua:237: Task 9 not found"), Kind::NoSuchTask);
        assert_eq!(lua("abstract.lua:1: fifo queue does not support touch"), Kind::TouchUnsupported);
        assert_eq!(lua("Tube not found"), Kind::NoSuchTube);
        assert_eq!(lua("There are taken tasks in the tube"), Kind::TubeInUse);
        assert_eq!(lua("init.lua:61: Please configure box.cfg{} in read/write mode first"), Kind::ReadOnly);
        assert_eq!(lua("a program's own"), Kind::Other);
        assert_eq!(kind(ErrorCode::MemoryIssue, "Task was not taken", None), Kind::MemoryLimit);
        assert_eq!(kind(ErrorCode::NoSuchProc, "", None), Kind::NoSuchProcedure);
        assert_eq!(kind(ErrorCode::SyncQuorumTimeout, "", None), Kind::ReplicasMissing);
    }
}
