//! Calls of a tube's methods: the caller, the arguments, and the turn in which the call is answered.
//!
//! The verbs of tasks are methods of [`TubeCall`], one a method of a tube, each in the file of its noun: it looks at arguments and
//! opens a transaction, in which the verbs of [`TubeTurn`] emit the statements. Calls about other nouns (jobs, rights, the
//! catalog) go there.

use crate::argument_faults::explain;
use crate::arguments::Arguments;
use crate::command::Call;
use crate::error::{Error, Result};
use crate::grant::Grantee;
use crate::procedure::TubeMethod;
use crate::repeat::is_take_again;
use crate::tube::handle::TubeIndex;
use crate::turn::{TubeTurn, Turn};
use crate::{Answer, Caller, Command};

/// One call of a tube's method, and the turn around it.
pub(crate) struct TubeCall<'a> {
    pub(crate) turn: Turn<'a>,
    pub(crate) call: Call<'a>,
}

impl<'a> TubeCall<'a> {
    /// Makes a call of a tube's method.
    pub(crate) fn make(
        mut turn: Turn<'a>,
        (caller, asker): (&'a Caller, &'a Caller),
        (index, method): (TubeIndex, TubeMethod),
        command: &'a Command<'a>,
        out: &mut Vec<u8>,
    ) -> Result<Answer> {
        if !turn.common.is_running() {
            if is_take_again(method, command.arguments) {
                return Err(Error::TakeUnknown(turn.common.state));
            }
            return Ok(turn.refuse_quietly(method.logged_name(), method.answers_null(), out));
        }
        turn.tube(index)?.check_access(caller, method, command.right.granted)?;
        let arguments = Arguments::parse(command.arguments)?;
        let call = Call { caller, asker, index, arguments, command };
        Self { turn, call }.run(method, out)
    }

    fn run(&mut self, method: TubeMethod, out: &mut Vec<u8>) -> Result<Answer> {
        let Call { arguments, index, caller, .. } = self.call;
        let mut ignored = match method {
            TubeMethod::Put => None,
            // Options are never the first argument.
            _ if arguments.get(1).is_none() => None,
            _ => self.ignored(method)?,
        };
        let answer = match method {
            TubeMethod::Put => self.put(&mut ignored, out),
            TubeMethod::Take => self.take(out),
            TubeMethod::Touch => self.touch(out),
            TubeMethod::Ack => self.ack(out),
            TubeMethod::Release => self.release(out),
            TubeMethod::Peek => self.peek(out),
            TubeMethod::List => self.turn.tube(index)?.list(&self.call, out),
            TubeMethod::Recount => self.turn.long_calls().recount(&self.call, out),
            TubeMethod::Status => self.turn.write_tube_status(index, out),
            TubeMethod::Bury => self.bury(out),
            TubeMethod::Kick => self.turn.long_calls().kick(&self.call, out),
            TubeMethod::Delete => self.delete(out),
            TubeMethod::Truncate => self.truncate(),
            TubeMethod::Drop => self.turn.catalog().drop_tube(caller, index, out),
            TubeMethod::ReleaseAll => self.turn.long_calls().release_all(&self.call, out),
            TubeMethod::PutMany => self.put_many(out),
            TubeMethod::TakeMany => self.take_many(out),
            TubeMethod::AckMany => self.ack_many(out),
            TubeMethod::ReleaseMany => self.release_many(out),
            TubeMethod::BuryMany => self.bury_many(out),
            TubeMethod::KickMany => self.kick_many(out),
            TubeMethod::DeleteMany => self.delete_many(out),
            TubeMethod::Grant => self.turn.grants().grant(&self.call, Grantee::User),
            TubeMethod::GrantRole => self.turn.grants().grant(&self.call, Grantee::Role),
            TubeMethod::Pause => self.set_paused(true, out),
            TubeMethod::Resume => self.set_paused(false, out),
            TubeMethod::Explain => self.turn.tube(index)?.explain(&self.call, out),
            TubeMethod::Find => self.turn.long_calls().find(&self.call, out),
            TubeMethod::Count => self.turn.jobs().count(&self.call, out),
            TubeMethod::Apply => self.turn.jobs().apply(&self.call, out),
            TubeMethod::Job => self.turn.jobs().show(&self.call, out),
            TubeMethod::Jobs => self.turn.jobs().list(&self.call, out),
            TubeMethod::Control => self.turn.jobs().control(&self.call, out),
            TubeMethod::Undo => self.turn.jobs().undo(&self.call, out),
        };
        match answer {
            Ok(answer) => {
                if let Some(ignored) = ignored {
                    self.note_ignored(method, &ignored);
                }
                Ok(answer)
            }
            Err(error) => Err(explain(method, arguments, error)),
        }
    }

    #[inline]
    pub(crate) fn tube(&mut self) -> Result<TubeTurn<'_>> {
        self.turn.tube(self.call.index)
    }

    /// Runs one operation around the tube in a transaction.
    #[inline]
    pub(crate) fn transact<T>(
        &mut self,
        operation: impl FnOnce(&mut TubeTurn<'_>) -> Result<T>,
    ) -> Result<T> {
        self.turn.transact_at(self.call.index, operation)
    }

    /// The task of the first argument, which the caller has to own.
    #[inline]
    pub(crate) fn owned_task(&mut self) -> Result<u64> {
        let Call { caller, arguments, .. } = self.call;
        self.tube()?.owned_task(caller, arguments.get(0))
    }

    /// The task of the first argument.
    #[inline]
    pub(crate) fn task(&mut self) -> Result<u64> {
        let argument = self.call.arguments.get(0);
        self.tube()?.task_id(argument)
    }
}
