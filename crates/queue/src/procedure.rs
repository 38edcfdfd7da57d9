//! Procedures: the names that clients call, resolved to the queue's methods.
//!
//! A CALL names `queue.METHOD` or `queue.tube.NAME:METHOD`. Names are resolved as Tarantool does: what stands behind the
//! last colon is a method, the rest is split at dots; so a tube whose name has a dot or a colon cannot be reached. A
//! [`Procedure`] is small and may be kept; one of a tube that is gone says [`Error::Stale`](crate::Error::Stale) when it is called.

mod call;

use crate::tube::handle::TubeHandle;

/// A method of a tube.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TubeMethod {
    /// `put(data[, options])`
    Put,
    /// `take([timeout])`
    Take,
    /// `touch(id, delta)`
    Touch,
    /// `ack(id)`
    Ack,
    /// `release(id[, options])`
    Release,
    /// `peek(id)`
    Peek,
    /// `list([options])`
    List,
    /// `recount()`
    Recount,
    /// `status()`
    Status,
    /// `bury(id)`
    Bury,
    /// `kick([count])`
    Kick,
    /// `delete(id)`
    Delete,
    /// `truncate()`
    Truncate,
    /// `drop()`
    Drop,
    /// `release_all()`
    ReleaseAll,
    /// `put_many(array of data[, options])`
    PutMany,
    /// `take_many(limit[, timeout[, options]])`
    TakeMany,
    /// `ack_many(ids)`
    AckMany,
    /// `release_many(ids[, options])`
    ReleaseMany,
    /// `bury_many(ids[, options])`
    BuryMany,
    /// `kick_many(ids)`
    KickMany,
    /// `delete_many(ids)`
    DeleteMany,
    /// `grant(user[, options])`
    Grant,
    /// `grant_role(role[, options])`
    GrantRole,
    /// `pause([options])`
    Pause,
    /// `resume([options])`
    Resume,
    /// `explain([id or options])`
    Explain,
    /// `find([filter[, options]])`
    Find,
    /// `count([filter])`
    Count,
    /// `apply(operation, filter[, options])`
    Apply,
    /// `job(id)`
    Job,
    /// `jobs()`
    Jobs,
    /// `control(id, action[, options])`
    Control,
    /// `undo(id[, options])`
    Undo,
}

impl TubeMethod {
    /// All methods.
    pub const ALL: [Self; 34] = [
        Self::Put,
        Self::Take,
        Self::Touch,
        Self::Ack,
        Self::Release,
        Self::Peek,
        Self::List,
        Self::Recount,
        Self::Status,
        Self::Bury,
        Self::Kick,
        Self::Delete,
        Self::Truncate,
        Self::Drop,
        Self::ReleaseAll,
        Self::PutMany,
        Self::TakeMany,
        Self::AckMany,
        Self::ReleaseMany,
        Self::BuryMany,
        Self::KickMany,
        Self::DeleteMany,
        Self::Grant,
        Self::GrantRole,
        Self::Pause,
        Self::Resume,
        Self::Explain,
        Self::Find,
        Self::Count,
        Self::Apply,
        Self::Job,
        Self::Jobs,
        Self::Control,
        Self::Undo,
    ];

    /// The method's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Take => "take",
            Self::Touch => "touch",
            Self::Ack => "ack",
            Self::Release => "release",
            Self::Peek => "peek",
            Self::List => "list",
            Self::Recount => "recount",
            Self::Status => "status",
            Self::Bury => "bury",
            Self::Kick => "kick",
            Self::Delete => "delete",
            Self::Truncate => "truncate",
            Self::Drop => "drop",
            Self::ReleaseAll => "release_all",
            Self::PutMany => "put_many",
            Self::TakeMany => "take_many",
            Self::AckMany => "ack_many",
            Self::ReleaseMany => "release_many",
            Self::BuryMany => "bury_many",
            Self::KickMany => "kick_many",
            Self::DeleteMany => "delete_many",
            Self::Grant => "grant",
            Self::GrantRole => "grant_role",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Explain => "explain",
            Self::Find => "find",
            Self::Count => "count",
            Self::Apply => "apply",
            Self::Job => "job",
            Self::Jobs => "jobs",
            Self::Control => "control",
            Self::Undo => "undo",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.name() == name)
    }

    /// The method of the Lua module that goes with this one, which the module has not: a user who may call the former may
    /// call the latter.
    #[must_use]
    pub const fn single(self) -> Option<Self> {
        match self {
            Self::PutMany => Some(Self::Put),
            Self::TakeMany => Some(Self::Take),
            Self::AckMany => Some(Self::Ack),
            Self::ReleaseMany => Some(Self::Release),
            Self::BuryMany => Some(Self::Bury),
            Self::KickMany => Some(Self::Kick),
            Self::DeleteMany | Self::Pause | Self::Resume | Self::Apply | Self::Control | Self::Undo => {
                Some(Self::Delete)
            }
            Self::List
            | Self::Explain
            | Self::Recount
            | Self::Status
            | Self::Find
            | Self::Count
            | Self::Job
            | Self::Jobs => Some(Self::Peek),
            _ => None,
        }
    }

    /// What the module's log calls the method when the queue is not running.
    pub(crate) const fn logged_name(self) -> &'static str {
        match self {
            Self::Touch | Self::Truncate | Self::ReleaseAll => "tube",
            Self::GrantRole => "grant",
            other => other.name(),
        }
    }

    /// Whether the answer of a queue that is not running is null, in contrast to nothing.
    pub(crate) const fn answers_null(self) -> bool {
        !matches!(self, Self::Touch | Self::Truncate | Self::ReleaseAll | Self::Grant | Self::GrantRole)
    }
}

/// A method of the queue itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QueueMethod {
    /// `queue.create_tube(name, type[, options])`
    CreateTube,
    /// `queue.cfg([options])`
    Cfg,
    /// `queue.identify([uuid])`
    Identify,
    /// `queue.state()`
    State,
    /// `queue.statistics([name])`, `queue.stats([name])`
    Statistics,
    /// `queue.tube([name])`
    Tube,
    /// `queue.tubes()`: the tubes that the caller may look at
    Tubes,
    /// `queue.grant(user, tube)`; `"*"` is every tube
    Grant,
    /// `queue.revoke(user, tube)`
    Revoke,
    /// `queue.audit([options])`: entries of the audit log about the tubes that the caller may look at
    Audit,
    /// `queue.jobs([options])`: jobs of all tubes that the caller may look at
    Jobs,
}

impl QueueMethod {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "create_tube" => Self::CreateTube,
            "cfg" => Self::Cfg,
            "identify" => Self::Identify,
            "state" => Self::State,
            "statistics" | "stats" => Self::Statistics,
            "tube" => Self::Tube,
            "tubes" => Self::Tubes,
            "grant" => Self::Grant,
            "revoke" => Self::Revoke,
            "audit" => Self::Audit,
            "jobs" => Self::Jobs,
            _ => return None,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ProcedureKind {
    Queue(QueueMethod),
    Tube(TubeHandle, TubeMethod),
    /// A tube without a method: not callable.
    TubeItself(TubeHandle),
    /// Anything, before the queue was started.
    NotConfigured,
}

/// The procedure that a name means. Cheap to copy and to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Procedure(ProcedureKind);

impl Procedure {
    /// The method, if it is one of a tube.
    #[must_use]
    pub fn tube_method(&self) -> Option<TubeMethod> {
        match self.0 {
            ProcedureKind::Tube(_, method) => Some(method),
            _ => None,
        }
    }

    /// `queue.state`.
    #[cfg(test)]
    pub(crate) const fn of_state() -> Self {
        Self(ProcedureKind::Queue(QueueMethod::State))
    }

    /// Whether the method works on a single task, so that its call is short.
    #[must_use]
    pub fn is_of_one_task(&self) -> bool {
        use TubeMethod::{Ack, Bury, Delete, Peek, Put, Release, Take, Touch};
        matches!(self.0, ProcedureKind::Tube(_, Put | Take | Touch | Ack | Release | Peek | Bury | Delete))
    }

    /// The name of the function for one task, if `name` is that of a tube's method for many.
    pub(crate) fn single_name(&self, name: &str) -> Option<String> {
        let method = self.tube_method()?;
        let tube = name.strip_suffix(method.name())?;
        Some(format!("{tube}{}", method.single()?.name()))
    }

    /// The method, if it is one of the queue itself.
    #[must_use]
    pub fn queue_method(&self) -> Option<QueueMethod> {
        match self.0 {
            ProcedureKind::Queue(method) => Some(method),
            _ => None,
        }
    }
}

/// Whether the procedure writes privileges.
#[must_use]
pub fn gives_rights(procedure: &Procedure) -> bool {
    matches!(procedure.tube_method(), Some(TubeMethod::Grant | TubeMethod::GrantRole))
        || matches!(procedure.queue_method(), Some(QueueMethod::Grant | QueueMethod::Revoke))
}
