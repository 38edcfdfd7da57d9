//! A client and its connection: the bytes under way in both directions, and the answers for which the client waits.

use std::collections::{BTreeMap, VecDeque};

use lycosa_instance::{ConnectionSlot, Trust};
use lycosa_iproto::frame::{self, Split};
use lycosa_iproto::greeting::GREETING_SIZE;

use crate::model::Answer;
use crate::request::Request;

/// A request that was sent and not answered.
#[derive(Debug)]
pub(crate) struct Awaited {
    pub(crate) request: Request,
    pub(crate) is_call_16: bool,
    /// The step at which it was sent.
    pub(crate) sent: u64,
    /// What it has to be answered, once that is known: at the latest when the server has handled it, unless it waits.
    pub(crate) outcome: Option<Outcome>,
    /// Whether the server has handled it.
    pub(crate) is_handled: bool,
}

/// The answer that a client must get.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) answer: Answer,
    /// The signature of everything that the answer may have seen.
    pub(crate) signature: u64,
    /// The signature of everything that the answer has certainly seen.
    pub(crate) seen: u64,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) slot: ConnectionSlot,
    /// The instance's number for it: how many there were before it in this process, and one.
    pub(crate) number: u64,
    pub(crate) trust: Trust,
    /// Bytes that the client has sent and the server has not read.
    pub(crate) inbound: Vec<u8>,
    /// Bytes that the server has read and not handled.
    pub(crate) buffer: Vec<u8>,
    /// Syncs of the requests in `inbound` and `buffer`.
    pub(crate) sent: VecDeque<u64>,
    pub(crate) last_sync: u64,
    pub(crate) awaited: BTreeMap<u64, VecDeque<Awaited>>,
    /// Bytes that reached the client.
    received: Vec<u8>,
    is_greeted: bool,
    /// The client does not read.
    pub(crate) is_stalled: bool,
    /// The server could not write everything.
    pub(crate) is_blocked: bool,
    /// The client has sent something after which the server listens no more.
    pub(crate) is_broken: bool,
}

impl Connection {
    pub(crate) fn new(slot: ConnectionSlot, number: u64, trust: Trust) -> Self {
        Self {
            slot,
            number,
            trust,
            inbound: Vec::new(),
            buffer: Vec::new(),
            sent: VecDeque::new(),
            last_sync: 0,
            awaited: BTreeMap::new(),
            received: Vec::new(),
            is_greeted: false,
            is_stalled: false,
            is_blocked: false,
            is_broken: false,
        }
    }

    /// Requests that are not answered.
    pub(crate) fn in_flight(&self) -> usize {
        self.awaited.values().map(VecDeque::len).sum()
    }

    /// All of them.
    pub(crate) fn unanswered(&self) -> impl Iterator<Item = (u64, &Awaited)> {
        self.awaited.iter().flat_map(|(sync, requests)| requests.iter().map(|request| (*sync, request)))
    }

    /// The first request under `sync` that has no outcome yet.
    pub(crate) fn undecided(&mut self, sync: u64) -> Option<&mut Awaited> {
        self.awaited.get_mut(&sync)?.iter_mut().find(|awaited| awaited.outcome.is_none())
    }

    /// Bytes reach the client. Returns the whole replies among all that it has, without their length; `Err` if they are
    /// none.
    pub(crate) fn receive(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, frame::FrameError> {
        self.received.extend_from_slice(bytes);
        if !self.is_greeted {
            if self.received.len() < GREETING_SIZE {
                return Ok(Vec::new());
            }
            self.received.drain(..GREETING_SIZE);
            self.is_greeted = true;
        }
        let mut replies = Vec::new();
        let mut done = 0;
        while let Split::Frame { content, consumed } =
            frame::split(&self.received[done..], frame::DEFAULT_LIMIT)?
        {
            replies.push(content.to_vec());
            done += consumed;
        }
        self.received.drain(..done);
        Ok(replies)
    }

    /// The request that a reply under `sync` answers.
    pub(crate) fn answered(&mut self, sync: u64) -> Option<Awaited> {
        let queue = self.awaited.get_mut(&sync)?;
        let awaited = queue.pop_front();
        if queue.is_empty() {
            self.awaited.remove(&sync);
        }
        awaited
    }
}
