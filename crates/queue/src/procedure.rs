//! Procedures: the names that clients call, resolved to the queue's methods.
//!
//! A CALL names `queue.METHOD` or `queue.tube.NAME:METHOD`. Names are resolved as Tarantool does: what stands behind the
//! last colon is a method, the rest is split at dots; so a tube whose name has a dot or a colon cannot be reached. A
//! [`Procedure`] is small and may be kept; one of a tube that is gone says [`Error::Stale`] when it is called.

use lycosa_store::Store;
use lycosa_tuple::mp::{self, Reader};

use crate::arguments::{Arguments, Number, string};
use crate::batch::MAX_BATCH;
use crate::error::Error;
use crate::grant::check_readable;
use crate::listing::may_look;
use crate::state::QueueState;
use crate::statistics::TubeStatistics;
use crate::tube::Tube;
use crate::tube::handle::TubeHandle;
use crate::tube_call::TubeCall;
use crate::turn::{CatalogTurn, Turn};
use crate::{Answer, Caller, Command, Queue};

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

    /// How many tasks a call of a method for many names or asks for, without a look at any of them: 10 000 at most. 0 for all other
    /// procedures, and for arguments that the method refuses.
    #[must_use]
    pub fn tasks_asked(&self, arguments: &[u8]) -> u32 {
        use TubeMethod::{AckMany, BuryMany, DeleteMany, KickMany, PutMany, ReleaseMany, TakeMany};
        let mut arguments = Reader::new(arguments);
        if arguments.array().unwrap_or(0) == 0 {
            return 0;
        }
        let asked = match self.tube_method() {
            Some(PutMany | AckMany | ReleaseMany | BuryMany | KickMany | DeleteMany) => {
                arguments.array().map_or(0, u64::from)
            }
            Some(TakeMany) => arguments.raw().ok().and_then(Number::parse).map_or(0, Number::count),
            _ => 0,
        };
        u32::try_from(asked).map_or(MAX_BATCH, |asked| asked.min(MAX_BATCH))
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

impl Queue {
    /// What a name stands for. None if the queue has no such procedure (33, unless a program has).
    #[must_use]
    pub fn resolve(&self, name: &[u8]) -> Option<Procedure> {
        let name = str::from_utf8(name).ok()?;
        let path = name.strip_prefix("queue.")?;
        if self.common.state == QueueState::Init
            && !self.common.configuration.in_replicaset
            && !matches!(path, "state" | "cfg")
        {
            return Some(Procedure(ProcedureKind::NotConfigured));
        }
        let target = match path.strip_prefix("tube.") {
            None => ProcedureKind::Queue(QueueMethod::parse(path)?),
            Some(rest) => {
                let (tube, method) =
                    rest.rsplit_once(':').map_or((rest, None), |(tube, method)| (tube, Some(method)));
                if tube.contains(['.', ':']) {
                    return None;
                }
                // As in the Lua module: before the start there is no tube, though its rows may have been replicated.
                let handle = self.tubes.by_name(tube).filter(|_| self.common.state != QueueState::Init)?;
                match method {
                    Some(method) => ProcedureKind::Tube(handle, TubeMethod::parse(method)?),
                    None => ProcedureKind::TubeItself(handle),
                }
            }
        };
        Some(Procedure(target))
    }

    /// Whether a procedure still stands for what it was resolved to. If not, its name has to be resolved again.
    #[must_use]
    #[inline]
    pub fn is_current(&self, procedure: &Procedure) -> bool {
        match procedure.0 {
            ProcedureKind::Queue(_) => true,
            ProcedureKind::Tube(handle, _) | ProcedureKind::TubeItself(handle) => {
                self.tubes.get(handle).is_some()
            }
            ProcedureKind::NotConfigured => {
                self.common.state == QueueState::Init && !self.common.configuration.in_replicaset
            }
        }
    }

    /// Calls a procedure at `now` (µs since the epoch). The returned values are appended to `out`, back to back.
    ///
    /// Outside a transaction the call commits its own, and serves calls that were waiting for what it has done. Inside
    /// one it becomes a part of it; then nothing waits, as if every timeout were 0.
    ///
    /// # Errors
    /// As the method; nothing has happened then, and nothing was appended. [`Error::Stale`]: resolve the name again.
    pub fn call(
        &mut self,
        store: &mut Store,
        caller: &Caller,
        command: &Command<'_>,
        now: u64,
        out: &mut Vec<u8>,
    ) -> Result<Answer, Error> {
        let start = out.len();
        let Command { procedure, right, arguments, .. } = *command;
        let (asker, trusted) = (caller, right.makes_trusted(caller, procedure));
        let adjusted;
        let caller = if trusted == asker.trusted {
            asker
        } else {
            adjusted = Caller { trusted, ..*asker };
            &adjusted
        };
        let is_current = self.is_current(procedure);
        let turn = &mut self.turn(store, now);
        let answer = match procedure.0 {
            _ if !is_current => Err(Error::Stale),
            ProcedureKind::Tube(handle, method) => {
                TubeCall::make(turn.reborrow(), (caller, asker), (handle.index, method), command, out)
            }
            ProcedureKind::Queue(method) => turn.call_queue(caller, method, arguments, out),
            ProcedureKind::TubeItself(_) => Err(Error::CallTable),
            ProcedureKind::NotConfigured => Err(Error::NotConfigured),
        };
        // No result as a whole: an error is a large value, and nearly no call has one.
        match answer {
            Ok(answer) => {
                turn.waiters().serve();
                Ok(answer)
            }
            Err(error) => {
                out.truncate(start);
                turn.waiters().serve();
                Err(error)
            }
        }
    }

    /// Numbers of tasks and operations of a tube. None if there is no such tube.
    ///
    /// # Errors
    /// The tube's space is gone.
    pub fn tube_statistics(&self, store: &Store, name: &str) -> Result<Option<TubeStatistics>, Error> {
        let tube = self.tubes.by_name(name).and_then(|handle| self.tubes.get(handle));
        tube.map(|tube| statistics_of(store, tube)).transpose()
    }
}

impl Turn<'_> {
    fn call_queue(
        &mut self,
        caller: &Caller,
        method: QueueMethod,
        arguments: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Answer, Error> {
        let arguments = Arguments::parse(arguments)?;
        match method {
            QueueMethod::CreateTube if !self.common.is_running() => {
                Ok(self.refuse_quietly("create_tube", false, out))
            }
            QueueMethod::CreateTube => self.catalog().create(caller, arguments, out),
            QueueMethod::Cfg => self.configuration().set(caller, arguments).map(|()| Answer::none()),
            QueueMethod::Identify => self.sessions().identify(caller, arguments, out).map(|()| Answer::one()),
            QueueMethod::State => {
                mp::write_str(out, self.common.state.name().as_bytes());
                Ok(Answer::one())
            }
            QueueMethod::Statistics => self.catalog().write_statistics(caller, arguments, out),
            QueueMethod::Tube => self.catalog().list(caller, arguments, out),
            QueueMethod::Tubes => self.catalog().describe_visible(caller, out),
            QueueMethod::Grant => self.grants().by_name(caller, arguments, true, out),
            QueueMethod::Revoke => self.grants().by_name(caller, arguments, false, out),
            QueueMethod::Audit => self.audit().list(caller, arguments, out),
            QueueMethod::Jobs => self.jobs().list_all(caller, arguments, out),
        }
    }

    /// The answer of a method that has to wait until the queue runs: a success that says nothing, and a line in the log.
    pub(crate) fn refuse_quietly(&mut self, method: &str, null: bool, out: &mut Vec<u8>) -> Answer {
        let state = self.common.state;
        self.common.log_refusal(self.now, || format!("{method}: queue is in {state} state"));
        if null {
            mp::write_nil(out);
        }
        Answer::Done { count: u32::from(null) }
    }
}

impl CatalogTurn<'_> {
    fn write_statistics(
        &self,
        caller: &Caller,
        arguments: Arguments<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Answer, Error> {
        check_readable(self.turn.store, caller, self.turn.common.spaces.queue)?;
        match arguments.present(0) {
            Some(name) => {
                let name = string(name).and_then(|name| str::from_utf8(name).ok());
                let handle = name.and_then(|name| self.turn.tubes.by_name(name)).ok_or(Error::IndexNil)?;
                let tube = self.turn.tubes.at(handle.index).ok_or(Error::IndexNil)?;
                check_readable(self.turn.store, caller, tube.space)?;
                statistics_of(self.turn.store, tube)?.write(out);
            }
            None => {
                let seen = |tube: &&Tube| {
                    self.turn.store.space(tube.space).is_ok()
                        && check_readable(self.turn.store, caller, tube.space).is_ok()
                };
                let seen: Vec<_> = self.turn.tubes.iter().filter(seen).collect();
                mp::write_map(out, seen.len() as u32);
                for tube in seen {
                    mp::write_str(out, tube.name.as_bytes());
                    statistics_of(self.turn.store, tube)?.write(out);
                }
            }
        }
        Ok(Answer::one())
    }

    fn list(&self, caller: &Caller, arguments: Arguments<'_>, out: &mut Vec<u8>) -> Result<Answer, Error> {
        let is_seen = |tube: &Tube| may_look(self.turn.store, caller, tube);
        match arguments.get(0) {
            None => {
                let seen: Vec<_> = self.turn.tubes.iter().filter(|tube| is_seen(tube)).collect();
                mp::write_array(out, seen.len() as u32);
                seen.iter().for_each(|tube| mp::write_str(out, tube.name.as_bytes()));
            }
            Some(argument) => {
                let name = string(argument).ok_or(Error::TubeArgument)?;
                let handle = str::from_utf8(name).ok().and_then(|name| self.turn.tubes.by_name(name));
                let found = handle.and_then(|handle| self.turn.tubes.at(handle.index)).is_some_and(is_seen);
                mp::write_bool(out, found);
            }
        }
        Ok(Answer::one())
    }
}

fn statistics_of(store: &Store, tube: &Tube) -> Result<TubeStatistics, Error> {
    store.space(tube.space)?;
    Ok(tube.statistics())
}
