//! The requests of one client of a member that does not lead: the member passes them on to the leader.
//!
//! A [`Relay`] takes bytes of the client and of the leader, and has bytes for both. It follows requests and replies by their numbers.
//!
//! | a request that was passed on, and | what becomes of it |
//! |---|---|
//! | not answered when the leader is gone | the error [`OUTCOME_UNKNOWN`]; reads, takes, log-ins and `queue.identify` are passed on again |
//! | refused, because the leader hands over | it was not executed, and is passed on again, unless the requests under way have more than [`MAX_WAITING`] bytes |
//!
//! Each take gets a name ([`repeat`]), so that a new leader knows whether the former one had given a task out.
//!
//! A connection to a leader begins with the client's log-in and with its queue session: the relay has asked for the session before it
//! passed the first call of the queue on. *Invariant:* no request of the client is passed on before the leader has answered both. A
//! leader that hands over refuses a session, and may lead on afterwards: it would execute a request without the client's session.
//!
//! Absent: connections, the clock, and the question who leads.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

use lycosa_instance::{Forwarded, HANDING_OVER, OUTCOME_UNKNOWN};
use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::frame::{self, Split};
use lycosa_iproto::repeat;
use lycosa_iproto::reply::{self, Content};
use lycosa_iproto::request::{self, Body, Request, SIGN_OF_LIFE};
use lycosa_tuple::value::Value;

/// Bytes that wait in one direction before the other end is to be read no more.
pub const MAX_WAITING: usize = 256 << 10;
/// Requests that were passed on and not answered, at most.
const MAX_PENDING: usize = 4096;
/// The numbers of the relay's own requests; no connector counts that far.
const LOG_IN: u64 = u64::MAX - 1;
const IDENTIFY: u64 = u64::MAX - 2;

/// A name for a take, unlike every other.
pub type NewName = Box<dyn FnMut() -> [u8; 16]>;

/// The fate of the two connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The connections stay.
    Stay,
    /// The leader hands over, or cannot serve this client now: the next connection to a leader may do better.
    LeaveLeader,
    /// The leader does not accept the client's log-in any more.
    EndClient,
}

/// See the module.
pub struct Relay {
    /// Bytes of a frame at most.
    limit: usize,
    new_name: NewName,
    /// Bytes of a frame that has not arrived as a whole.
    partial: Vec<u8>,
    /// Frames that were not passed on.
    waiting: VecDeque<Vec<u8>>,
    waiting_bytes: usize,
    /// Requests that were passed on and not answered, and the bytes of their frames that are kept.
    pending: BTreeMap<u64, Passed>,
    pending_bytes: usize,
    /// Frames of requests that the leader has refused because it hands over.
    refused: Vec<Vec<u8>>,
    /// Replies that the client has not taken yet.
    replies: Vec<u8>,
    /// What the leader has not taken yet, and the bytes of a reply that has not arrived as a whole.
    output: Vec<u8>,
    received: Vec<u8>,
    /// The last log-in that succeeded, and the one that was passed on, with its number.
    log_in: Option<Vec<u8>>,
    attempt: Option<(u64, Vec<u8>)>,
    /// The queue session, and the number of a call that may change it.
    session: Option<Vec<u8>>,
    identifies: Option<u64>,
    /// The relay has asked for the session.
    is_identified: bool,
    /// Requests at the beginning of a connection that the leader has not answered.
    beginning: u8,
    /// The fate of the connections by these answers.
    verdict: Verdict,
    /// Not counted by the caller yet.
    forwarded: Forwarded,
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay")
            .field("waiting", &self.waiting.len())
            .field("pending", &self.pending.len())
            .finish()
    }
}

/// A request that was passed on and not answered.
struct Passed {
    repeat: Repeat,
    /// None: it would be too much to keep.
    frame: Option<Vec<u8>>,
}

/// What to do with a request when the leader is gone.
enum Repeat {
    /// It may have changed something: its outcome is unknown.
    Never,
    /// It reads, logs in or identifies: it is passed on again.
    AsItWas,
    /// It takes tasks, has a name, and was passed on at that time: it is passed on again with that name.
    Named(Instant),
}

impl Passed {
    fn kept_bytes(&self) -> usize {
        self.frame.as_ref().map_or(0, Vec::len)
    }
}

impl Relay {
    /// A relay for a client that gets this greeting.
    pub fn new(limit: usize, greeting: Vec<u8>, new_name: NewName) -> Self {
        Self {
            limit,
            new_name,
            partial: Vec::new(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            pending: BTreeMap::new(),
            pending_bytes: 0,
            refused: Vec::new(),
            replies: greeting,
            output: Vec::new(),
            received: Vec::new(),
            log_in: None,
            attempt: None,
            session: None,
            identifies: None,
            is_identified: false,
            beginning: 0,
            verdict: Verdict::Stay,
            forwarded: Forwarded::default(),
        }
    }
}

/// The client's side.
impl Relay {
    /// Whether the client is to be read.
    pub fn takes(&self) -> bool {
        self.waiting_bytes < MAX_WAITING
    }

    /// Cuts what the client has sent into frames.
    pub fn take(&mut self, bytes: &[u8]) {
        self.partial.extend_from_slice(bytes);
        let mut done = 0;
        loop {
            let rest = &self.partial[done..];
            let consumed = match frame::split(rest, self.limit) {
                Ok(Split::Frame { consumed, .. }) => consumed,
                Ok(Split::NeedMore(_)) => break,
                // The leader refuses the connection, with a reason.
                Err(_) => rest.len(),
            };
            if consumed == 0 {
                break;
            }
            self.waiting.push_back(rest[..consumed].to_vec());
            self.waiting_bytes += consumed;
            done += consumed;
        }
        self.partial.drain(..done);
    }

    /// Answers each waiting PING with an error. A PING with the number [`SIGN_OF_LIFE`] waits on.
    pub fn refuse_pings(&mut self, error: &ErrorObject) {
        for frame in std::mem::take(&mut self.waiting) {
            match request_of(&frame, self.limit) {
                Some(Request { body: Body::Ping, header }) if header.sync != SIGN_OF_LIFE => {
                    self.waiting_bytes -= frame.len();
                    reply::error(&mut self.replies, header.sync, 0, error);
                }
                _ => self.waiting.push_back(frame),
            }
        }
    }

    /// Replies for the client.
    pub fn replies(&self) -> &[u8] {
        &self.replies
    }

    /// The client has taken `count` bytes of the replies.
    pub fn replied(&mut self, count: usize) {
        self.replies.drain(..count);
    }
}

/// The leader's side.
impl Relay {
    /// A connection to a leader begins.
    pub fn begin(&mut self) {
        if let Some(log_in) = self.log_in.as_deref().and_then(|bytes| with_sync(bytes, self.limit, LOG_IN)) {
            self.output.extend(log_in);
            self.beginning += 1;
        }
        if let Some(session) = &self.session {
            identify(&mut self.output, Some(session));
            self.beginning += 1;
        }
    }

    /// The fate of the connections, after the bytes so far.
    pub fn verdict(&self) -> Verdict {
        // The leader is about to leave, and answers the requests that it has executed.
        let is_left = !self.refused.is_empty() && !self.awaits_outcome();
        if is_left { Verdict::LeaveLeader } else { self.verdict }
    }

    /// Passes requests on, as many as the leader may have now.
    pub fn pass(&mut self, now: Instant) {
        let is_open = self.output.is_empty() && self.refused.is_empty() && self.beginning == 0;
        while is_open && self.output.len() < MAX_WAITING && self.pending.len() < MAX_PENDING {
            let Some(frame) = self.waiting.pop_front() else { break };
            self.waiting_bytes -= frame.len();
            self.pass_on(frame, now);
        }
    }

    /// Requests for the leader.
    pub fn output(&self) -> &[u8] {
        &self.output
    }

    /// The leader has taken `count` bytes of the requests.
    pub fn passed(&mut self, count: usize) {
        self.output.drain(..count);
    }

    /// Whether the leader is to be read.
    pub fn hears(&self) -> bool {
        self.replies.len() < MAX_WAITING
    }

    /// Bytes of the leader.
    pub fn hear(&mut self, bytes: &[u8]) {
        for frame in self.frames(bytes) {
            if self.note(&frame) {
                self.replies.extend_from_slice(&frame);
            }
        }
    }

    /// Whether a request is under way that is not repeated when the leader is gone.
    pub fn awaits_outcome(&self) -> bool {
        self.pending.values().any(|passed| matches!(passed.repeat, Repeat::Never))
    }

    /// Bytes of a leader that leads no more, which has answered before, above all the call that handed over. Answers to requests that
    /// are repeated count for nothing.
    pub fn hear_last(&mut self, bytes: &[u8]) {
        for frame in self.frames(bytes) {
            let sync = reply::sync_of(&frame);
            let passed = sync.and_then(|sync| self.pending.get(&sync));
            let is_own = matches!(sync, Some(IDENTIFY | LOG_IN));
            let is_awaited = is_own || passed.is_some_and(|passed| matches!(passed.repeat, Repeat::Never));
            if is_awaited && self.note(&frame) {
                self.replies.extend_from_slice(&frame);
            }
        }
    }

    /// The connection to the leader has ended: answers requests of unknown outcome, and has reads and takes wait for the next leader.
    pub fn lose(&mut self, now: Instant) {
        self.output.clear();
        self.received.clear();
        self.attempt = None;
        self.identifies = None;
        self.is_identified = self.session.is_some();
        self.pending_bytes = 0;
        (self.beginning, self.verdict) = (0, Verdict::Stay);
        let mut again = std::mem::take(&mut self.refused);
        for (sync, Passed { repeat, frame }) in std::mem::take(&mut self.pending) {
            let frame = frame.and_then(|frame| match repeat {
                Repeat::Never => None,
                Repeat::AsItWas => Some(frame),
                Repeat::Named(since) => made_again(&frame, self.limit, now.saturating_duration_since(since)),
            });
            match frame {
                Some(frame) => again.push(frame),
                None => {
                    self.forwarded.unknown += 1;
                    reply::error(&mut self.replies, sync, 0, &outcome_unknown());
                }
            }
        }
        self.forwarded.repeated += again.len() as u64;
        for frame in again.into_iter().rev() {
            self.waiting_bytes += frame.len();
            self.waiting.push_front(frame);
        }
    }

    /// Counts of requests since the last call.
    pub fn take_forwarded(&mut self) -> Forwarded {
        std::mem::take(&mut self.forwarded)
    }

    /// Passes a frame on, and notes its request.
    fn pass_on(&mut self, mut bytes: Vec<u8>, now: Instant) {
        if let Some(request) = request_of(&bytes, self.limit) {
            let sync = request.header.sync;
            self.forwarded.requests += 1;
            let mut is_harmless = matches!(
                request.body,
                Body::Select { .. }
                    | Body::Ping
                    | Body::Vote
                    | Body::VoteDeprecated
                    | Body::Id { .. }
                    | Body::Auth { .. }
            );
            match request.body {
                Body::Auth { .. } => self.attempt = Some((sync, bytes.clone())),
                Body::Call { name: b"queue.identify", .. } => {
                    self.identifies = Some(sync);
                    (self.is_identified, is_harmless) = (true, true);
                }
                Body::Call { name, .. } if name.starts_with(b"queue.") && !self.is_identified => {
                    self.is_identified = true;
                    identify(&mut self.output, None);
                }
                _ => {}
            }
            let named = named(&request, &mut self.new_name);
            let repeat = match (named, is_harmless) {
                (Some(named), _) => {
                    bytes = named;
                    Repeat::Named(now)
                }
                (None, true) => Repeat::AsItWas,
                (None, false) => Repeat::Never,
            };
            let is_kept = !matches!(repeat, Repeat::Never) || self.pending_bytes + bytes.len() <= MAX_WAITING;
            let passed = Passed { repeat, frame: is_kept.then(|| bytes.clone()) };
            self.pending_bytes += passed.kept_bytes();
            if let Some(former) = self.pending.insert(sync, passed) {
                self.pending_bytes -= former.kept_bytes();
            }
        }
        self.output.extend_from_slice(&bytes);
    }

    /// Cuts off the whole frames of what the leader has sent.
    fn frames(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        self.received.extend_from_slice(bytes);
        let (mut found, mut done) = (Vec::new(), 0);
        while let Ok(Split::Frame { consumed, .. }) = frame::split(&self.received[done..], usize::MAX) {
            found.push(self.received[done..done + consumed].to_vec());
            done += consumed;
        }
        self.received.drain(..done);
        found
    }

    /// Notes a reply of the leader; whether the client is to have it.
    fn note(&mut self, bytes: &[u8]) -> bool {
        let Some(sync) = reply::sync_of(bytes) else { return true };
        if reply::is_push(bytes) {
            return true;
        }
        let (mut data, mut error) = (None, None);
        if let Ok(Split::Frame { content, .. }) = frame::split(bytes, usize::MAX) {
            match reply::decode(content).map(|reply| reply.content) {
                Ok(Content::Ok { data: found, .. }) => data = Some(found),
                Ok(Content::Error(refusal)) => error = Some(refusal),
                _ => {}
            }
        }
        if let Some((_, attempt)) = self.attempt.take_if(|(attempt, _)| *attempt == sync)
            && data.is_some()
        {
            self.log_in = Some(attempt);
        }
        let is_identify = self.identifies.take_if(|call| *call == sync).is_some();
        let session = data.filter(|_| is_identify || sync == IDENTIFY).and_then(session_of);
        if matches!(sync, IDENTIFY | LOG_IN) {
            self.note_own(sync, session, error.as_ref());
            return false;
        }
        self.session = session.or(self.session.take());
        let passed = self.pending.remove(&sync);
        self.pending_bytes -= passed.as_ref().map_or(0, Passed::kept_bytes);
        let is_handed_over = error.is_some_and(|error| error.name() == Some(HANDING_OVER));
        if let Some(frame) = passed.and_then(|passed| passed.frame).filter(|_| is_handed_over) {
            self.refused.push(frame);
            return false;
        }
        true
    }

    /// Notes the answer to a request of the relay itself.
    fn note_own(&mut self, sync: u64, session: Option<Vec<u8>>, error: Option<&ErrorObject>) {
        let is_beginning = self.beginning > 0;
        self.beginning = self.beginning.saturating_sub(1);
        let may_pass = error.is_some_and(may_pass);
        match error {
            Some(_) if may_pass && is_beginning => self.verdict = Verdict::LeaveLeader,
            Some(_) if may_pass => self.is_identified = false,
            Some(_) if sync == LOG_IN => self.verdict = Verdict::EndClient,
            // The session has ended: the next call of the queue asks for a new one.
            Some(_) if is_beginning => (self.session, self.is_identified) = (None, false),
            _ => self.session = session.or(self.session.take()),
        }
    }
}

/// Whether a refusal is about the leader and not about the request: the leader hands over, starts, or loses rows.
fn may_pass(error: &ErrorObject) -> bool {
    let codes = [
        ErrorCode::Readonly,
        ErrorCode::Loading,
        ErrorCode::WalIo,
        ErrorCode::SyncRollback,
        ErrorCode::SyncQuorumTimeout,
    ];
    codes.into_iter().any(|code| error.code == u32::from(code))
}

/// The request in a whole frame.
fn request_of(frame: &[u8], limit: usize) -> Option<Request<'_>> {
    let Ok(Split::Frame { content, .. }) = frame::split(frame, limit) else { return None };
    request::decode(content).ok()
}

/// The session in the values of an answer to `queue.identify`.
fn session_of(values: &[u8]) -> Option<Vec<u8>> {
    match Value::decode(values).ok()?.as_array()?.first()? {
        Value::Bin(session) | Value::Str(session) => Some(session.clone()),
        _ => None,
    }
}

/// Appends the relay's own call of `queue.identify`.
fn identify(out: &mut Vec<u8>, session: Option<&[u8]>) {
    let args = Value::array(session.map(|session| Value::Str(session.to_vec())));
    request::encode(out, IDENTIFY, &Body::Call { name: b"queue.identify", args: &args.encode() });
}

/// The frame of a take with a name.
fn named(request: &Request<'_>, new_name: &mut NewName) -> Option<Vec<u8>> {
    let (Body::Call { name, args } | Body::Call16 { name, args }) = request.body else { return None };
    let at = repeat::timeout_at(name)?;
    with_args(request, &repeat::first(args, at, &new_name())?)
}

/// The frame of a take that has a name, to be made again after `elapsed`.
fn made_again(bytes: &[u8], limit: usize, elapsed: Duration) -> Option<Vec<u8>> {
    let request = request_of(bytes, limit)?;
    let (Body::Call { name, args } | Body::Call16 { name, args }) = request.body else { return None };
    with_args(&request, &repeat::again(args, repeat::timeout_at(name)?, elapsed, repeat::MEMBER_ATTEMPT)?)
}

/// A call with other arguments.
fn with_args(request: &Request<'_>, args: &[u8]) -> Option<Vec<u8>> {
    let body = match request.body {
        Body::Call { name, .. } => Body::Call { name, args },
        Body::Call16 { name, .. } => Body::Call16 { name, args },
        _ => return None,
    };
    let mut out = Vec::new();
    request::encode(&mut out, request.header.sync, &body);
    Some(out)
}

/// A request again, with another number.
fn with_sync(bytes: &[u8], limit: usize, sync: u64) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    request::encode(&mut out, sync, &request_of(bytes, limit)?.body);
    Some(out)
}

/// The answer to a request that was passed on and not answered when the leader changed.
pub fn outcome_unknown() -> ErrorObject {
    let message = "The outcome of this request is unknown: the leader of the group changed before it was answered. Look \
                   whether it was done before it is repeated";
    ErrorObject::client(ErrorCode::SyncRollback, message).with_name(OUTCOME_UNKNOWN)
}

#[cfg(test)]
mod tests;
