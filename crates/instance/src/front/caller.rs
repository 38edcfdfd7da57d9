//! The callers behind connections, and the calls that are answered later.
//!
//! A connection, a fiber of a program, an HTTP request and the instance itself come through the same functions with a
//! [`Caller`](crate::Caller). A call that cannot be answered at once is *parked* under the number of its request. It may wait
//! for a task, free capacity, a checkpoint, a program. Answers for connections are encoded into their buffers; answers
//! for other callers wait for [`Instance::poll_answer`](crate::Instance::poll_answer).
//!
//! Invariant: a parked call is answered once, or forgotten with its session.

mod parking;

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;

use lycosa_iproto::error::ErrorObject;
use lycosa_queue::CallerKind;

use crate::front::waits_for::WaitsFor;
use crate::{ConnectionSlot, Lsn, RequestId, Result};

/// The outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Called {
    /// Values were appended.
    Done {
        /// How many they are.
        count: u32,
    },
    /// The answer comes later, under this number.
    Parked(RequestId),
}

/// The answer of a parked call of a caller that is no connection.
#[derive(Debug, Clone, PartialEq)]
pub struct Answered {
    /// The call.
    pub request: RequestId,
    /// The origin of the call.
    pub kind: CallerKind,
    /// What the answer has seen: it may be told to the world when [`Instance::is_durable`](crate::Instance::is_durable) says so of
    /// this row.
    pub lsn: Lsn,
    /// Number of values and the values back to back.
    pub result: Result<(u32, Vec<u8>)>,
}

/// The reply to a frame: its connection, the number of its request, and the form of its values.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameReply {
    pub(crate) slot: ConnectionSlot,
    pub(crate) sync: u64,
    pub(crate) is_call_16: bool,
}

impl FrameReply {
    pub(crate) fn new(slot: ConnectionSlot, sync: u64) -> Self {
        Self { slot, sync, is_call_16: false }
    }
}

/// Where an answer goes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ReplyTo {
    /// Into a connection's buffer.
    Frame(FrameReply),
    /// To [`Instance::poll_answer`](crate::Instance::poll_answer).
    Caller(CallerKind),
}

/// A call that waits for its answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ParkedCall {
    pub(crate) reply: ReplyTo,
    pub(crate) waits_for: WaitsFor,
}

/// All calls that wait for their answers.
#[derive(Debug, Default)]
pub(crate) struct Parked {
    last_number: u64,
    calls: BTreeMap<RequestId, ParkedCall>,
    answers: VecDeque<Answered>,
    /// Those for HTTP.
    http_answers: VecDeque<Answered>,
}

impl Parked {
    /// The next request, of a session.
    pub(crate) fn next_request(&mut self, session: u64) -> RequestId {
        self.last_number += 1;
        RequestId { session, number: self.last_number }
    }

    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    pub(crate) fn get(&self, request: RequestId) -> Option<&ParkedCall> {
        self.calls.get(&request)
    }

    /// All calls, the oldest first.
    fn requests(&self) -> Vec<RequestId> {
        let mut requests: Vec<_> = self.calls.keys().copied().collect();
        requests.sort_unstable_by_key(|request| request.number);
        requests
    }

    /// All calls that wait for something to happen, the oldest first.
    pub(crate) fn waiting_calls(&self) -> Vec<RequestId> {
        let waits = |call: &ParkedCall| call.waits_for == WaitsFor::Event;
        let mut requests = self.requests();
        requests.retain(|request| self.calls.get(request).is_some_and(waits));
        requests
    }

    /// Answers that were not polled yet become this error.
    pub(crate) fn void_answers(&mut self, error: &ErrorObject) {
        let all = self.answers.iter_mut().chain(&mut self.http_answers);
        all.for_each(|answered| answered.result = Err(error.clone()));
    }

    /// The calls of a session that wait for something to happen.
    fn waiting_of(&self, session: u64) -> Vec<RequestId> {
        let waiting = self.calls.range(all_of(session)).filter(|(_, call)| call.waits_for == WaitsFor::Event);
        waiting.map(|(&request, _)| request).collect()
    }

    /// Forgets the calls of a session that has ended.
    fn forget_session(&mut self, session: u64) {
        while let Some((&request, _)) = self.calls.range(all_of(session)).next() {
            self.calls.remove(&request);
        }
    }
}

/// Every request that a session may have made.
fn all_of(session: u64) -> RangeInclusive<RequestId> {
    RequestId { session, number: 0 }..=RequestId { session, number: u64::MAX }
}
