//! The write concern of one call: `put` and `put_many` with the option `replicas = N` are answered when N replicas have the
//! task on their disks, even if `replicas_before_reply` is less.
//!
//! The call is done at once and its answer is parked, so that other replies of the connection do not wait for it. With
//! `replicas_missing = refuse` the call is refused before it is done while fewer than N replicas follow. Inside a
//! transaction nothing can wait, so the option is refused.
//!
//! Invariant: a parked answer leaves when the rows are durable here and on N replicas, and not before.

mod answers;

use std::collections::{HashMap, HashSet};

use lycosa_iproto::error::ErrorObject;
use lycosa_iproto::vclock::{VCLOCK_MAX, Vclock};
use lycosa_queue::{Command, TubeMethod};
use lycosa_replication::relay::Replicas;
use lycosa_tuple::mp::Reader;

use crate::Result;
use crate::shard::admission::missing_replicas_error;
use crate::shard::request::{Refusal, RequestId};
use crate::shard::rules::Rules;

/// Most replicas that a replica set can have beside its master.
const MAX_REPLICAS: u64 = VCLOCK_MAX as u64 - 1;

/// An answer that waits for replicas.
#[derive(Debug)]
struct ParkedAnswer {
    request: RequestId,
    /// Replicas that must have the task.
    wanted: usize,
    /// What a replica has to have.
    vclock: Vclock,
    count: u32,
    values: Vec<u8>,
}

/// The write concerns of calls: all answers that wait for more replicas than every reply waits for.
#[derive(Debug, Default)]
pub(crate) struct WriteConcerns {
    parked: Vec<ParkedAnswer>,
    /// Calls that wait for free space in a tube, and how many replicas each wants then.
    waiting: HashMap<RequestId, usize>,
}

impl WriteConcerns {
    /// Whether no call has a write concern.
    pub(crate) fn is_empty(&self) -> bool {
        self.parked.is_empty() && self.waiting.is_empty()
    }

    /// A call is not answered any more.
    pub(crate) fn forget(&mut self, request: RequestId) {
        if !self.is_empty() {
            self.parked.retain(|answer| answer.request != request);
            self.waiting.remove(&request);
        }
    }

    /// The calls of a session are not answered any more.
    pub(crate) fn forget_session(&mut self, session: u64) {
        if !self.is_empty() {
            self.parked.retain(|answer| answer.request.session != session);
            self.waiting.retain(|request, _| request.session != session);
        }
    }

    /// Rows were lost: forgets the answers parked so far, and every waiting call but `waiting`.
    pub(crate) fn retain_waiting(&mut self, waiting: &HashSet<RequestId>) {
        self.parked.clear();
        self.waiting.retain(|request, _| waiting.contains(request));
    }
}

/// Whether the call may ask for replicas: it is a put with options, as few are.
#[inline]
pub(super) fn may_ask(command: &Command<'_>) -> bool {
    matches!(command.procedure.tube_method(), Some(TubeMethod::Put | TubeMethod::PutMany))
        && command.arguments.first() != Some(&0x91)
}

/// How many replicas the option asks for.
fn number_of(option: &[u8]) -> Result<usize> {
    let number = Reader::new(option).uint().ok().filter(|number| *number <= MAX_REPLICAS);
    number.and_then(|number| usize::try_from(number).ok()).ok_or_else(|| {
        let text = format!("Invalid value of replicas: it should be a whole number from 0 to {MAX_REPLICAS}");
        ErrorObject::lua(text)
    })
}

/// What decides whether a put may have the replicas that it asks for.
pub(super) struct ConcernBounds<'a> {
    pub(super) rules: &'a Rules,
    pub(super) replicas: &'a Replicas,
    pub(super) is_in_transaction: bool,
    pub(super) is_read_only: bool,
    /// The caller's calls may be parked.
    pub(super) may_wait: bool,
}

impl ConcernBounds<'_> {
    /// How many replicas the put waits for; `None` if it wants no more than every reply waits for.
    pub(super) fn admit(&self, option: &[u8]) -> Result<Option<usize>, Refusal> {
        let wanted = number_of(option)?;
        if wanted <= self.rules.replicas_before_reply {
            return Ok(None);
        }
        if self.is_in_transaction {
            return Err(Refusal::Error(ErrorObject::lua(
                "The option replicas cannot be used in a transaction: nothing waits there. Put without it, or set \
                 replicas_before_reply",
            )));
        }
        if self.is_read_only {
            return Ok(None);
        }
        let following = self.replicas.following_count();
        if self.rules.refuses_without_replicas && following < wanted {
            return Err(missing_replicas_error(following, wanted, "the put asks for").into());
        }
        if self.may_wait { Ok(Some(wanted)) } else { Err(Refusal::MayNotWait) }
    }
}

#[cfg(test)]
mod tests {
    use lycosa_tuple::value::Value;

    use super::*;

    #[test]
    fn a_write_concern_is_a_number_of_replicas() {
        assert_eq!(number_of(&Value::from(2_u64).encode()), Ok(2));
        for wrong in [Value::from(-1_i64), Value::from(1.5), Value::str("1"), Value::from(32_u64)] {
            let message = number_of(&wrong.encode()).unwrap_err().message;
            assert_eq!(message, "Invalid value of replicas: it should be a whole number from 0 to 31");
        }
    }
}
