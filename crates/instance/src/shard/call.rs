//! Calls of the queue: the one way in which a connection, a fiber of a program, HTTP and a native function call a procedure.
//!
//! [`Shard::call`] admits the call by what its procedure needs, runs it, and parks its answer if the call waits or wants more
//! replicas than every reply ([`crate::shard::write_concern`]). Values go straight into the caller's buffer. Absent: names of
//! functions and rights to execute them, which the front has resolved.

use std::cell::RefCell;

use lycosa_queue::{Answer, Caller, Command, Concern, Error};

use crate::shard::admission::Admitted;
use crate::shard::data::Data;
use crate::shard::request::{NULL, Refusal, RequestId};
use crate::shard::write_concern::{self, ConcernBounds};
use crate::shard::{Shard, wire_error};

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
        if write_concern::may_ask(command) {
            return self.call_with_concern(caller, command, out);
        }
        self.data.call(caller, command, out)
    }

    /// The same for a put with options, which may ask for replicas.
    #[inline(never)]
    fn call_with_concern(
        &mut self,
        caller: &Caller,
        command: &Command<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Answer, Refusal> {
        let start = out.len();
        let Self { data, rules, replication, .. } = self;
        let bounds = ConcernBounds {
            rules,
            replicas: &replication.replicas,
            is_in_transaction: data.in_transaction(),
            is_read_only: data.is_read_only(),
            may_wait: caller.may_wait,
        };
        let wanted = RefCell::new(Ok(None));
        let hear = |replicas: &[u8]| {
            let mut wanted = wanted.borrow_mut();
            match bounds.admit(replicas) {
                Ok(replicas) => {
                    // A batch has the most that any of its tasks wants.
                    *wanted = wanted.as_ref().map_or(Ok(replicas), |before| Ok(replicas.max(*before)));
                    Ok(())
                }
                Err(refusal) => {
                    *wanted = Err(refusal);
                    Err(Error::ConcernRefused)
                }
            }
        };
        let answer = data.call(caller, &Command { concern: Concern::new(&hear), ..*command }, out);
        match wanted.into_inner()? {
            None => answer,
            Some(wanted) => {
                let request = RequestId { session: caller.session, number: command.request };
                Ok(self.await_concern(request, wanted, answer?, out, start))
            }
        }
    }

    /// Parks the answer of a call until `wanted` replicas have its rows, unless it is null: the put has waited for capacity in
    /// vain. The answer is in `out` from `start` on.
    fn await_concern(
        &mut self,
        request: RequestId,
        wanted: usize,
        answer: Answer,
        out: &mut Vec<u8>,
        start: usize,
    ) -> Answer {
        match answer {
            Answer::Done { .. } if &out[start..] == NULL => return answer,
            Answer::Done { count } => self.park_concern(request, wanted, count, out.split_off(start)),
            Answer::Parked => self.defer_concern(request, wanted),
        }
        Answer::Parked
    }
}

impl Data {
    #[expect(clippy::inline_always, reason = "measured: each call about one task comes here")]
    #[inline(always)]
    fn call(&mut self, caller: &Caller, command: &Command<'_>, out: &mut Vec<u8>) -> Result<Answer, Refusal> {
        let now = self.now;
        let Admitted { queue, store, .. } = &mut self.admit_call(command.procedure)?;
        queue.call(store, caller, command, now, out).map_err(|error| refusal(&error))
    }
}

#[cold]
fn refusal(error: &Error) -> Refusal {
    match error {
        Error::MayNotWait => Refusal::MayNotWait,
        error => Refusal::Error(wire_error::of_queue(error)),
    }
}
