//! The write concern of one call: `put` and `put_many` with the option `replicas = N` are answered when N replicas have the
//! task on their disks, even if `replicas_before_reply` is less.
//!
//! The call is done at once and its answer is parked, so that other replies of the connection do not wait for it. With
//! `replicas_missing = refuse` the call is refused before it is done while fewer than N replicas follow. Inside a
//! transaction nothing can wait, so the option is refused.
//!
//! Invariant: a parked answer leaves when the rows are durable here and on N replicas, and not before.

use std::collections::{HashMap, HashSet};

use lycosa_iproto::error::ErrorObject;
use lycosa_iproto::vclock::{VCLOCK_MAX, Vclock};
use lycosa_queue::{Procedure, TubeMethod};
use lycosa_tuple::mp::{Kind, Reader};

use crate::shard::admission::missing_replicas_error;
use crate::shard::{RequestId, Shard};

/// Most replicas that a replica set can have beside its master.
const MOST: u64 = VCLOCK_MAX as u64 - 1;

/// An answer that waits for replicas.
#[derive(Debug)]
struct ParkedAnswer {
    request: RequestId,
    concern: WriteConcern,
    /// What a replica has to have.
    vclock: Vclock,
    count: u32,
    values: Vec<u8>,
}

/// The write concern of a call: more replicas than every reply waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WriteConcern {
    /// The session that wants it.
    pub(crate) session: u64,
    /// Replicas that must have the task.
    pub(crate) wanted: usize,
}

/// All answers that wait for more replicas than others.
#[derive(Debug, Default)]
pub(crate) struct WriteConcerns {
    parked: Vec<ParkedAnswer>,
    /// Calls that wait for free space in a tube, and what each wants then.
    waiting: HashMap<RequestId, WriteConcern>,
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
            self.parked.retain(|answer| answer.concern.session != session);
            self.waiting.retain(|_, concern| concern.session != session);
        }
    }

    /// Rows were lost: forgets the answers parked so far, and every waiting call but `waiting`.
    pub(crate) fn retain_waiting(&mut self, waiting: &HashSet<RequestId>) {
        self.parked.clear();
        self.waiting.retain(|request, _| waiting.contains(request));
    }
}

/// How many replicas the call wants, if it says so.
///
/// # Errors
/// The option is no such number.
#[inline]
pub(super) fn of_call(procedure: &Procedure, args: &[u8]) -> Result<Option<usize>, ErrorObject> {
    match procedure.tube_method() {
        // Without options in nearly every call.
        Some(TubeMethod::Put | TubeMethod::PutMany) if args.first() != Some(&0x91) => of_options(args),
        _ => Ok(None),
    }
}

fn of_options(args: &[u8]) -> Result<Option<usize>, ErrorObject> {
    let mut reader = Reader::new(args);
    let Ok(2..) = reader.array() else { return Ok(None) };
    if reader.skip().is_err() {
        return Ok(None);
    }
    match reader.kind() {
        Ok(Kind::Map) => of_table(&mut reader),
        // One table for each task: the most that any of them wants.
        Ok(Kind::Array) => {
            let mut most = None;
            for _ in 0..reader.array().unwrap_or(0) {
                match reader.kind() {
                    Ok(Kind::Map) => most = most.max(of_table(&mut reader)?),
                    _ if reader.skip().is_err() => break,
                    _ => {}
                }
            }
            Ok(most)
        }
        _ => Ok(None),
    }
}

/// Reads a table to its end. Of equal keys the last one counts, as in Lua.
fn of_table(reader: &mut Reader<'_>) -> Result<Option<usize>, ErrorObject> {
    let mut wanted = None;
    for _ in 0..reader.map().unwrap_or(0) {
        let is_replicas = match reader.kind() {
            Ok(Kind::Str) => reader.str() == Ok(b"replicas"),
            _ if reader.skip().is_err() => break,
            _ => false,
        };
        if !is_replicas || reader.kind() == Ok(Kind::Nil) {
            if reader.skip().is_err() {
                break;
            }
            continue;
        }
        let number = reader.uint().ok().filter(|number| *number <= MOST);
        let Some(number) = number.and_then(|number| usize::try_from(number).ok()) else {
            let text = format!("Invalid value of replicas: it should be a whole number from 0 to {MOST}");
            return Err(ErrorObject::lua(text));
        };
        wanted = Some(number);
    }
    Ok(wanted)
}

impl Shard {
    /// Checks whether a write concern can be met; `None` if the call wants no more than every reply waits for.
    ///
    /// # Errors
    /// A transaction is open, or too few replicas are connected.
    pub(super) fn admit_concern(&self, wanted: Option<usize>) -> Result<Option<usize>, ErrorObject> {
        let Some(wanted) = wanted.filter(|wanted| *wanted > self.rules.replicas_before_reply) else {
            return Ok(None);
        };
        if self.data.in_transaction() {
            return Err(ErrorObject::lua(
                "The option replicas cannot be used in a transaction: nothing waits there. Put without it, or set \
                 replicas_before_reply",
            ));
        }
        if self.data.is_read_only() {
            return Ok(None);
        }
        let following = self.replication.replicas.following_count();
        if self.rules.refuses_without_replicas && following < wanted {
            return Err(missing_replicas_error(following, wanted, "the put asks for"));
        }
        Ok(Some(wanted))
    }

    /// The call waits for something else first, and wants replicas after that.
    pub(super) fn defer_concern(&mut self, request: RequestId, concern: WriteConcern) {
        self.replication.write_concerns.waiting.insert(request, concern);
    }

    /// The call waited for something, and is done: what it wanted.
    pub(super) fn take_concern(&mut self, request: RequestId) -> Option<WriteConcern> {
        self.replication.write_concerns.waiting.remove(&request)
    }

    /// The parked call is answered when the replicas that it wants have everything that there is now.
    pub(super) fn park_concern(
        &mut self,
        request: RequestId,
        concern: WriteConcern,
        count: u32,
        values: Vec<u8>,
    ) {
        let vclock = self.data.journaling.vclock().clone();
        self.replication.write_concerns.parked.push(ParkedAnswer { request, concern, vclock, count, values });
    }

    /// Answers the calls whose write concerns are met.
    pub(crate) fn answer_concerns(&mut self) {
        if self.replication.write_concerns.is_empty() {
            return;
        }
        let parked = std::mem::take(&mut self.replication.write_concerns.parked);
        for answer in parked {
            let durable = self.data.journaling.durable_vclock();
            let is_here = answer.vclock.iter().all(|(id, lsn)| lsn <= durable.get(id));
            if is_here && self.replication.replicas.count_with(&answer.vclock) >= answer.concern.wanted {
                self.answer(answer.request, Ok((answer.count, answer.values)));
            } else {
                self.replication.write_concerns.parked.push(answer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use lycosa_tuple::value::Value;

    use super::*;

    fn concern(options: Value) -> Result<Option<usize>, String> {
        let args = Value::array([Value::str("x"), options]).encode();
        of_options(&args).map_err(|error| error.message)
    }

    fn replicas(number: impl Into<Value>) -> Value {
        Value::map([("pri", Value::from(1_u64)), ("replicas", number.into())])
    }

    #[test]
    fn a_write_concern_is_a_number_of_replicas() {
        assert_eq!(of_options(&Value::array([Value::str("x")]).encode()), Ok(None));
        assert_eq!(concern(Value::map([("pri", 1_u64)])), Ok(None));
        assert_eq!(concern(replicas(2_u64)), Ok(Some(2)));
        assert_eq!(concern(replicas(Value::Nil)), Ok(None));
        assert_eq!(concern(Value::array([Value::Nil, replicas(1_u64), replicas(3_u64)])), Ok(Some(3)));
        for wrong in [Value::from(-1_i64), Value::from(1.5), Value::str("1"), Value::from(32_u64)] {
            let message = concern(replicas(wrong)).unwrap_err();
            assert_eq!(message, "Invalid value of replicas: it should be a whole number from 0 to 31");
        }
    }
}
