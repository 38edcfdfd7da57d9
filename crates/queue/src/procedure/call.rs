//! Calls of procedures: a name is resolved to a procedure, and a call of it goes to a tube or to a noun of the queue.

use lycosa_store::Store;
use lycosa_tuple::mp::{self, Reader};

use super::{Procedure, ProcedureKind, QueueMethod, TubeMethod};
use crate::arguments::{Arguments, Number, string};
use crate::batch::MAX_BATCH;
use crate::command::QueueCall;
use crate::error::{Error, Result};
use crate::grant::check_readable;
use crate::listing::may_look;
use crate::state::QueueState;
use crate::statistics::TubeStatistics;
use crate::tube::Tube;
use crate::tube_call::TubeCall;
use crate::turn::{CatalogTurn, Often, Turn};
use crate::{Answer, Caller, Command, Queue};

impl Procedure {
    /// How many tasks a call of a method for many names or asks for: 10 000 at most. No task is looked at. All other procedures,
    /// and arguments that the method refuses, have 0.
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
    ) -> Result<Answer> {
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
    pub fn tube_statistics(&self, store: &Store, name: &str) -> Result<Option<TubeStatistics>> {
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
    ) -> Result<Answer> {
        let call = QueueCall { caller, arguments: Arguments::parse(arguments)? };
        match method {
            QueueMethod::CreateTube if !self.common.is_running() => {
                Ok(self.refuse_quietly("create_tube", false, out))
            }
            QueueMethod::CreateTube => self.catalog().create(call, out),
            QueueMethod::Cfg => self.configuration().set(caller, call.arguments).map(|()| Answer::none()),
            QueueMethod::Identify => self.sessions().identify(call, out).map(|()| Answer::one()),
            QueueMethod::State => {
                mp::write_str(out, self.common.state.name().as_bytes());
                Ok(Answer::one())
            }
            QueueMethod::Statistics => self.catalog().write_statistics(call, out),
            QueueMethod::Tube => self.catalog().list(call, out),
            QueueMethod::Tubes => self.catalog().describe_visible(caller, out),
            QueueMethod::Grant => self.grants().by_name(call, true, out),
            QueueMethod::Revoke => self.grants().by_name(call, false, out),
            QueueMethod::Audit => self.audit().list(call, out),
            QueueMethod::Jobs => self.jobs().list_all(call, out),
        }
    }

    /// The answer of a method that has to wait until the queue runs: a success that says nothing, and a line in the log.
    pub(crate) fn refuse_quietly(&mut self, method: &str, null: bool, out: &mut Vec<u8>) -> Answer {
        let state = self.common.state;
        self.common.log_often(Often::Refusal, self.now, || format!("{method}: queue is in {state} state"));
        if null {
            mp::write_nil(out);
        }
        Answer::Done { count: u32::from(null) }
    }
}

impl CatalogTurn<'_> {
    fn write_statistics(&self, call: QueueCall<'_>, out: &mut Vec<u8>) -> Result<Answer> {
        let QueueCall { caller, arguments } = call;
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
                let store = &*self.turn.store;
                let is_readable = |tube: &&Tube| check_readable(store, caller, tube.space).is_ok();
                let stored = self.turn.tubes.iter().filter(|tube| store.space(tube.space).is_ok());
                let seen: Vec<_> = stored.filter(is_readable).collect();
                mp::write_map(out, seen.len() as u32);
                for tube in seen {
                    mp::write_str(out, tube.name.as_bytes());
                    statistics_of(self.turn.store, tube)?.write(out);
                }
            }
        }
        Ok(Answer::one())
    }

    fn list(&self, QueueCall { caller, arguments }: QueueCall<'_>, out: &mut Vec<u8>) -> Result<Answer> {
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

fn statistics_of(store: &Store, tube: &Tube) -> Result<TubeStatistics> {
    store.space(tube.space)?;
    Ok(tube.statistics())
}
