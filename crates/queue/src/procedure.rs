//! Procedures: the names that clients call, resolved to the queue's methods.
//!
//! A CALL names `queue.METHOD` or `queue.tube.NAME:METHOD`. Names are resolved as Tarantool does: what stands behind the
//! last colon is a method, the rest is split at dots; so a tube whose name has a dot or a colon cannot be reached. A
//! [`Procedure`] is small and may be kept; one of a tube that is gone says [`Error::Stale`](crate::Error::Stale) when it is called.

mod call;

use crate::tube::handle::TubeHandle;

named! {
    /// A method of a tube.
    #[derive(Hash)]
    pub enum TubeMethod {
        /// `put(data[, options])`
        Put = "put",
        /// `take([timeout])`
        Take = "take",
        /// `touch(id, delta)`
        Touch = "touch",
        /// `ack(id)`
        Ack = "ack",
        /// `release(id[, options])`
        Release = "release",
        /// `peek(id)`
        Peek = "peek",
        /// `list([options])`
        List = "list",
        /// `recount()`
        Recount = "recount",
        /// `status()`
        Status = "status",
        /// `bury(id)`
        Bury = "bury",
        /// `kick([count])`
        Kick = "kick",
        /// `delete(id)`
        Delete = "delete",
        /// `truncate()`
        Truncate = "truncate",
        /// `drop()`
        Drop = "drop",
        /// `release_all()`
        ReleaseAll = "release_all",
        /// `put_many(array of data[, options])`
        PutMany = "put_many",
        /// `take_many(limit[, timeout[, options]])`
        TakeMany = "take_many",
        /// `ack_many(ids)`
        AckMany = "ack_many",
        /// `release_many(ids[, options])`
        ReleaseMany = "release_many",
        /// `bury_many(ids[, options])`
        BuryMany = "bury_many",
        /// `kick_many(ids)`
        KickMany = "kick_many",
        /// `delete_many(ids)`
        DeleteMany = "delete_many",
        /// `grant(user[, options])`
        Grant = "grant",
        /// `grant_role(role[, options])`
        GrantRole = "grant_role",
        /// `pause([options])`
        Pause = "pause",
        /// `resume([options])`
        Resume = "resume",
        /// `explain([id or options])`
        Explain = "explain",
        /// `find([filter[, options]])`
        Find = "find",
        /// `count([filter])`
        Count = "count",
        /// `apply(operation, filter[, options])`
        Apply = "apply",
        /// `job(id)`
        Job = "job",
        /// `jobs()`
        Jobs = "jobs",
        /// `control(id, action[, options])`
        Control = "control",
        /// `undo(id[, options])`
        Undo = "undo",
    }
}

impl TubeMethod {
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

    /// Whether the method shows tasks or jobs, or counts tasks.
    #[must_use]
    pub const fn looks(self) -> bool {
        matches!(self, Self::Peek) || matches!(self.single(), Some(Self::Peek))
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

named! {
    /// A method of the queue itself.
    #[derive(Hash)]
    pub enum QueueMethod {
        /// `queue.create_tube(name, type[, options])`
        CreateTube = "create_tube",
        /// `queue.cfg([options])`
        Cfg = "cfg",
        /// `queue.identify([uuid])`
        Identify = "identify",
        /// `queue.state()`
        State = "state",
        /// `queue.statistics([name])`, `queue.stats([name])`
        Statistics = "statistics",
        /// `queue.tube([name])`
        Tube = "tube",
        /// `queue.tubes()`: the tubes that the caller may look at
        Tubes = "tubes",
        /// `queue.grant(user, tube)`; `"*"` is every tube
        Grant = "grant",
        /// `queue.revoke(user, tube)`
        Revoke = "revoke",
        /// `queue.audit([options])`: entries of the audit log about the tubes that the caller may look at
        Audit = "audit",
        /// `queue.jobs([options])`: jobs of all tubes that the caller may look at
        Jobs = "jobs",
    }
}

impl QueueMethod {
    fn parse(name: &str) -> Option<Self> {
        let name = if name == "stats" { "statistics" } else { name };
        Self::ALL.into_iter().find(|method| method.name() == name)
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
        if let ProcedureKind::Tube(_, method) = self.0 { Some(method) } else { None }
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
        if let ProcedureKind::Queue(method) = self.0 { Some(method) } else { None }
    }
}

/// Whether the procedure writes privileges.
#[must_use]
pub fn gives_rights(procedure: &Procedure) -> bool {
    matches!(procedure.tube_method(), Some(TubeMethod::Grant | TubeMethod::GrantRole))
        || matches!(procedure.queue_method(), Some(QueueMethod::Grant | QueueMethod::Revoke))
}
