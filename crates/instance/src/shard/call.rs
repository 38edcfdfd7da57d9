//! Calls of the queue: the one way in which a connection, a fiber of a program, HTTP and a native function call a procedure.
//!
//! [`Shard::call`] admits the call by what its procedure needs, runs it, and parks its answer if the call waits or wants more
//! replicas than every reply ([`crate::shard::write_concern`]). Values go straight into the caller's buffer. Absent: names of
//! functions and rights to execute them, which the front has resolved.

use lycosa_iproto::error::ErrorObject;
use lycosa_queue::{Answer, Caller, Command, Error};

use crate::shard::write_concern::{self, WriteConcern};
use crate::shard::{NULL, RequestId, Shard, wire_error};

/// Why a call was not done.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It would have to wait, and its caller may not.
    MayNotWait,
    /// Another reason, in a client's words.
    Error(ErrorObject),
}

impl From<ErrorObject> for Refusal {
    fn from(error: ErrorObject) -> Self {
        Self::Error(error)
    }
}

impl Shard {
    /// Calls a procedure of the queue, in transactions of its own or in the open one. Appends its values to `out`, or parks its
    /// answer under `command.request` for [`Self::poll`]; `out` is then as before.
    ///
    /// # Errors
    /// What the procedure raises, or the first condition that refuses it. Bytes behind the former end of `out` are void then.
    #[expect(clippy::inline_always, reason = "measured: each call about one task comes here")]
    #[inline(always)]
    pub(crate) fn call(
        &mut self,
        caller: &Caller,
        command: &Command<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Answer, Refusal> {
        let wanted = match write_concern::of_call(command.procedure, command.arguments)? {
            None => None,
            wanted => self.admit_concern(wanted)?,
        };
        if wanted.is_some() && !caller.may_wait {
            return Err(Refusal::MayNotWait);
        }
        let start = out.len();
        let now = self.data.now;
        let mut admitted = self.data.admit_call(command.procedure)?;
        let (queue, store) = admitted.queue();
        let answer = match queue.call(store, caller, command, now, out) {
            Ok(answer) => answer,
            Err(error) => return Err(refusal(&error)),
        };
        drop(admitted);
        match wanted {
            None => Ok(answer),
            Some(wanted) => {
                Ok(self.await_concern((caller.session, command.request), wanted, answer, out, start))
            }
        }
    }

    /// Parks the answer of a call until `wanted` replicas have its rows, unless it is null: the put has waited for capacity in
    /// vain. The answer is in `out` from `start` on.
    fn await_concern(
        &mut self,
        (session, request): (u64, RequestId),
        wanted: usize,
        answer: Answer,
        out: &mut Vec<u8>,
        start: usize,
    ) -> Answer {
        let concern = WriteConcern { session, wanted };
        match answer {
            Answer::Done { .. } if &out[start..] == NULL => return answer,
            Answer::Done { count } => {
                self.park_concern(request, concern, count, out.split_off(start));
            }
            Answer::Parked => self.defer_concern(request, concern),
        }
        Answer::Parked
    }
}

#[cold]
fn refusal(error: &Error) -> Refusal {
    match error {
        Error::MayNotWait => Refusal::MayNotWait,
        error => Refusal::Error(wire_error::of_queue(error)),
    }
}
