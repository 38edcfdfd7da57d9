//! Clients of a node that does not lead: the leader serves them.
//!
//! The node opens one connection between members for each of its clients and passes frames on in both directions, so a
//! client that does not read slows down its own connection alone. The leader opens the client's connection with the salt
//! that the node has greeted it with, so passwords are proved end to end.
//!
//! The node follows requests and replies by their numbers. When the leader changes, a request that was passed on and not
//! answered gets the error `OUTCOME_UNKNOWN`; reads and takes are sent again, and so is everything that was not passed on. The node gives
//! each take a name ([`repeat`]), so a new leader knows whether the old one had given a task out. A request that a leader refuses because
//! it hands over was not executed, and is sent again too, unless the requests under way have more than [`MAX_WAITING`] bytes. The
//! client's log-in is repeated at the new leader, and its queue session is joined again: the node has asked for the session
//! before it passed the first call of the queue on.
//!
//! A connection that was opened to a leader may be served when that member leads no more: its instance refuses each request as one
//! that was not executed ([`Instance::connect_forwarded`](lycosa_instance::Instance::connect_forwarded)).
//!
//! A node that begins to lead serves its earlier clients itself, without its own listener: its published address may be one that
//! it does not reach, as behind NAT.
//!
//! A node that knows no leader takes requests and lets them wait. After [`LEADERLESS`] it answers a PING with the error [`NO_LEADER`], so
//! that a person hears why nothing else is answered. A PING with the number [`SIGN_OF_LIFE`] waits too: a client asks with it whether
//! it had better go to another member.
//!
//! Absent: clients that are connected to the leader itself, which the loop serves as ever, and `admin.sock`, which is for
//! this very server.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use lycosa_instance::{HANDING_OVER, OUTCOME_UNKNOWN, Origin, PROTOCOL_VERSION, Trust};
use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::frame::{self as iproto, Split};
use lycosa_iproto::greeting::{Greeting, SALT_SIZE};
use lycosa_iproto::repeat;
use lycosa_iproto::reply::{self, Content};
use lycosa_iproto::request::{self, Body, Request, SIGN_OF_LIFE};
use lycosa_tuple::mp;
use lycosa_tuple::value::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::spawn_local;

use super::handshake::{Purpose, frame, next_frame, read_refusal, send_frame};
use super::member::{Member, Place};
use super::port::Visit;
use crate::connection::{self, Early};
use crate::random::fill_randomly;
use crate::socket::{Accepted, Reader, Stream, Writer, split_unix};
use crate::turn::Core;

/// Bytes of the beginning that a member sends.
const MAX_HEAD: usize = 4096;
/// Bytes that wait in one direction before the other end is read no more.
const MAX_WAITING: usize = 256 << 10;
/// Requests that were passed on and not answered, at most.
const MAX_PENDING: usize = 4096;
/// Pause before the next attempt to reach a leader.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a node has no leader before it says so.
pub(crate) const LEADERLESS: Duration = Duration::from_secs(2);
/// The name of the kind of error (field `name` of the error object) of a request that found no leader.
pub(crate) const NO_LEADER: &str = "NO_LEADER";
/// The numbers of requests that the node makes for a client; no connector counts that far.
const LOG_IN: u64 = u64::MAX - 1;
const IDENTIFY: u64 = u64::MAX - 2;

/// Serves the client of another member, as the leader.
pub(crate) async fn visit(core: Rc<Core>, member: Rc<Member>, visit: Visit) {
    let Visit { mut reader, writer, peer, .. } = visit;
    let Ok(Some(head)) = next_frame(&mut reader, MAX_HEAD).await else { return };
    let Some((origin, salt)) = read_head(&head, &peer) else { return };
    let leads = *member.place().borrow() == Place::Here;
    let answer = if leads { "" } else { "this node does not lead the group" };
    if writer.write_all(&frame(answer.as_bytes())).await.is_ok() && leads {
        serve_here(core, Accepted { reader, writer, origin }, salt).await;
    }
}

async fn serve_here(core: Rc<Core>, accepted: Accepted, salt: [u8; SALT_SIZE]) {
    let early = Early { salt, received: Vec::new(), is_forwarded: true };
    connection::serve(core, accepted, Some(early)).await;
}

fn write_head(origin: &Origin, salt: &[u8; SALT_SIZE]) -> Vec<u8> {
    let mut head = Vec::new();
    mp::write_bin(&mut head, salt);
    mp::write_bool(&mut head, origin.trust == Trust::Loopback);
    mp::write_str(&mut head, origin.peer.as_bytes());
    head
}

fn read_head(head: &[u8], through: &str) -> Option<(Origin, [u8; SALT_SIZE])> {
    let mut values = mp::Reader::new(head);
    let salt = values.bin().ok()?.try_into().ok()?;
    let trust = if values.bool().ok()? { Trust::Loopback } else { Trust::Nobody };
    let peer = std::str::from_utf8(values.str().ok()?).ok()?;
    Some((Origin { peer: format!("{peer} through {through}"), trust }, salt))
}

/// Whether a client that connects now is to be served by another node.
pub(crate) fn are_elsewhere(member: &Member) -> bool {
    *member.place().borrow() != Place::Here
}

/// Reasons that end the service of a client.
enum End {
    /// The client's connection has ended, or must end.
    Client,
    /// The link to the leader has ended, or another member leads.
    Leader,
}

/// A client of this node.
struct Client {
    core: Rc<Core>,
    member: Rc<Member>,
    place: watch::Receiver<Place>,
    reader: Reader,
    writer: Writer,
    origin: Origin,
    salt: [u8; SALT_SIZE],
    limit: usize,
    /// Bytes of a frame that has not arrived as a whole.
    partial: Vec<u8>,
    /// Frames that were not passed on.
    waiting: VecDeque<Vec<u8>>,
    waiting_bytes: usize,
    /// Requests that were passed on and not answered, and the bytes of their frames that are kept.
    pending: HashMap<u64, Passed>,
    pending_bytes: usize,
    /// Frames of requests that the leader has refused because it hands over.
    refused: Vec<Vec<u8>>,
    /// Replies that the client has not taken yet.
    replies: Vec<u8>,
    /// The last log-in that succeeded, and the one that was passed on, with its number.
    log_in: Option<Vec<u8>>,
    attempt: Option<(u64, Vec<u8>)>,
    /// The queue session, and the number of a call that may change it.
    session: Option<Vec<u8>>,
    identifies: Option<u64>,
    /// The node has asked for the session.
    is_identified: bool,
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
    /// It reads: it is passed on again.
    AsItWas,
    /// It takes tasks, has a name, and was passed on at that time: it is passed on again with that name.
    Named(Instant),
}

impl Passed {
    fn kept_bytes(&self) -> usize {
        self.frame.as_ref().map_or(0, Vec::len)
    }
}

/// Serves a client until it goes.
pub(crate) async fn serve(core: Rc<Core>, member: Rc<Member>, accepted: Accepted) {
    let Accepted { reader, writer, origin } = accepted;
    core.handshakes.set(core.handshakes.get() + 1);
    let mut salt = [0; SALT_SIZE];
    fill_randomly(&mut salt);
    let (uuid, limit) = {
        let instance = core.instance.borrow();
        (instance.identity().instance, instance.max_frame_size())
    };
    let greeting = Greeting { version: PROTOCOL_VERSION.to_owned(), uuid, salt };
    let place = member.place();
    let mut client = Client {
        core: core.clone(),
        member,
        place,
        reader,
        writer,
        origin,
        salt,
        limit,
        partial: Vec::new(),
        waiting: VecDeque::new(),
        waiting_bytes: 0,
        pending: HashMap::new(),
        pending_bytes: 0,
        refused: Vec::new(),
        replies: greeting.encode().map(Vec::from).unwrap_or_default(),
        log_in: None,
        attempt: None,
        session: None,
        identifies: None,
        is_identified: false,
    };
    while !matches!(client.serve_once().await, End::Client) {
        client.lose();
        tokio::time::sleep(PAUSE).await;
    }
    client.writer.finish();
    core.handshakes.set(core.handshakes.get() - 1);
}

impl Client {
    /// Serves the client by the leader that there is now, once there is one.
    async fn serve_once(&mut self) -> End {
        let place = *self.place.borrow_and_update();
        let leader = match place {
            Place::Here => None,
            Place::At(leader) => Some(leader),
            Place::Nowhere => {
                return tokio::select! {
                    end = moved(self.place.clone()) => end,
                    end = self.talk_to_client() => end,
                };
            }
        };
        // A leader that is frozen accepts connections and says nothing: the next one is not to wait for it.
        let connected = tokio::select! {
            connected = self.connect(leader) => connected,
            end = moved(self.place.clone()) => return end,
        };
        let Ok(stream) = connected else { return End::Leader };
        self.carry(stream).await
    }

    /// Connects to the leader; `None`: to this node itself.
    async fn connect(&self, leader: Option<u64>) -> io::Result<Stream> {
        let Some(leader) = leader else {
            let (near, far) = UnixStream::pair()?;
            let accepted = Accepted::new(split_unix(far), self.origin.clone());
            spawn_local(serve_here(self.core.clone(), accepted, self.salt));
            return Ok(Box::new(near));
        };
        let mut stream = self.member.dial(leader, Purpose::Client).await?;
        send_frame(&mut stream, &write_head(&self.origin, &self.salt)).await?;
        read_refusal(&mut stream).await?.map_or(Ok(stream), |cause| Err(io::Error::other(cause)))
    }

    /// While no leader is known: takes what the client sends, up to a bound, and its end.
    async fn talk_to_client(&mut self) -> End {
        let mut bytes = vec![0; 16 << 10];
        let mut refuses = false;
        loop {
            let left = LEADERLESS.saturating_sub(self.member.in_place_for());
            if left.is_zero() && !refuses {
                refuses = true;
                self.refuse_pings(0);
            }
            let takes = self.waiting_bytes < MAX_WAITING && self.replies.len() < MAX_WAITING;
            let has_replies = !self.replies.is_empty() || self.writer.has_backlog();
            tokio::select! {
                biased;
                writable = self.writer.writable(), if has_replies => {
                    if writable.and_then(|()| self.give()).is_err() {
                        return End::Client;
                    }
                }
                read = self.reader.read(&mut bytes), if takes => match read {
                    Ok(count) if count > 0 => {
                        let known = self.waiting.len();
                        self.take(&bytes[..count]);
                        if refuses {
                            self.refuse_pings(known);
                        }
                    }
                    _ => return End::Client,
                },
                () = tokio::time::sleep(left), if !refuses => {}
                else => return std::future::pending().await,
            }
        }
    }

    /// Writes what the client takes of its replies.
    fn give(&mut self) -> io::Result<()> {
        match self.writer.try_write(&self.replies) {
            Ok(count) => drop(self.replies.drain(..count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Answers each PING of the frames that wait, from a place on.
    fn refuse_pings(&mut self, from: usize) {
        for frame in self.waiting.split_off(from) {
            match request_of(&frame, self.limit) {
                Some(Request { body: Body::Ping, header }) if header.sync != SIGN_OF_LIFE => {
                    self.waiting_bytes -= frame.len();
                    reply::error(&mut self.replies, header.sync, 0, &no_leader());
                }
                _ => self.waiting.push_back(frame),
            }
        }
    }

    /// Cuts what the client has sent into frames.
    fn take(&mut self, bytes: &[u8]) {
        self.partial.extend_from_slice(bytes);
        let mut done = 0;
        loop {
            let rest = &self.partial[done..];
            let consumed = match iproto::split(rest, self.limit) {
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

    /// Takes a frame that is passed on now, and notes its request.
    fn pass(&mut self, out: &mut Vec<u8>) {
        let Some(mut bytes) = self.waiting.pop_front() else { return };
        self.waiting_bytes -= bytes.len();
        if let Some(request) = request_of(&bytes, self.limit) {
            let sync = request.header.sync;
            let is_read = matches!(
                request.body,
                Body::Select { .. } | Body::Ping | Body::Vote | Body::VoteDeprecated | Body::Id { .. }
            );
            match request.body {
                Body::Auth { .. } => self.attempt = Some((sync, bytes.clone())),
                Body::Call { name, .. } if name == b"queue.identify" => {
                    self.identifies = Some(sync);
                    self.is_identified = true;
                }
                Body::Call { name, .. } if name.starts_with(b"queue.") && !self.is_identified => {
                    self.is_identified = true;
                    identify(out, None);
                }
                _ => {}
            }
            let named = named(&request);
            let repeat = match (named, is_read) {
                (Some(named), _) => {
                    bytes = named;
                    Repeat::Named(Instant::now())
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
        out.extend_from_slice(&bytes);
    }

    /// Notes a reply of the leader; whether the client is to have it.
    fn note(&mut self, bytes: &[u8]) -> bool {
        let Some(sync) = reply::sync_of(bytes) else { return true };
        if reply::is_push(bytes) {
            return true;
        }
        let (mut data, mut is_handed_over) = (None, false);
        if let Ok(Split::Frame { content, .. }) = iproto::split(bytes, usize::MAX) {
            match reply::decode(content).map(|reply| reply.content) {
                Ok(Content::Ok { data: found, .. }) => data = Some(found),
                Ok(Content::Error(error)) => is_handed_over = error.name() == Some(HANDING_OVER),
                _ => {}
            }
        }
        if let Some((_, attempt)) = self.attempt.take_if(|(attempt, _)| *attempt == sync)
            && data.is_some()
        {
            self.log_in = Some(attempt);
        }
        if sync == IDENTIFY || self.identifies.take_if(|call| *call == sync).is_some() {
            let values = data.and_then(|data| Value::decode(data).ok());
            if let Some([Value::Bin(session) | Value::Str(session), ..]) =
                values.as_ref().and_then(Value::as_array)
            {
                self.session = Some(session.clone());
            }
        }
        let passed = self.pending.remove(&sync);
        self.pending_bytes -= passed.as_ref().map_or(0, Passed::kept_bytes);
        if let Some(frame) = passed.and_then(|passed| passed.frame).filter(|_| is_handed_over) {
            self.refused.push(frame);
            return false;
        }
        !matches!(sync, IDENTIFY | LOG_IN)
    }

    /// The link to the leader has ended: answers requests of unknown outcome, and sends reads again.
    fn lose(&mut self) {
        self.attempt = None;
        self.identifies = None;
        self.is_identified = self.session.is_some();
        self.pending_bytes = 0;
        let mut again = std::mem::take(&mut self.refused);
        for (sync, Passed { repeat, frame }) in std::mem::take(&mut self.pending) {
            let frame = frame.and_then(|frame| match repeat {
                Repeat::Never => None,
                Repeat::AsItWas => Some(frame),
                Repeat::Named(since) => made_again(&frame, self.limit, since.elapsed()),
            });
            match frame {
                Some(frame) => again.push(frame),
                None => reply::error(&mut self.replies, sync, 0, &outcome_unknown()),
            }
        }
        for frame in again.into_iter().rev() {
            self.waiting_bytes += frame.len();
            self.waiting.push_front(frame);
        }
    }

    /// Whether a request is under way that is not repeated when the leader is gone.
    fn awaits_outcome(&self) -> bool {
        self.pending.values().any(|passed| matches!(passed.repeat, Repeat::Never))
    }

    /// Another node leads. The former leader may have answered already, above all the call that handed over: passes on its answers to
    /// requests that are not repeated, until it closes the connection.
    async fn last_replies(&mut self, reading: &mut (impl AsyncRead + Unpin), received: &mut Vec<u8>) {
        let mut bytes = vec![0; 16 << 10];
        while self.awaits_outcome() {
            match reading.read(&mut bytes).await {
                Ok(count) if count > 0 => received.extend_from_slice(&bytes[..count]),
                _ => return,
            }
            for frame in frames(received) {
                let passed = reply::sync_of(&frame).and_then(|sync| self.pending.get(&sync));
                let is_awaited = passed.is_some_and(|passed| matches!(passed.repeat, Repeat::Never));
                if is_awaited && self.note(&frame) {
                    self.replies.extend_from_slice(&frame);
                }
            }
        }
    }

    /// Passes frames between the client and the leader until one of them goes.
    async fn carry(&mut self, stream: Stream) -> End {
        let (mut reading, mut writing) = tokio::io::split(stream);
        let mut out = Vec::new();
        if let Some(log_in) = self.log_in.as_deref().and_then(|bytes| with_sync(bytes, self.limit, LOG_IN)) {
            out.extend(log_in);
        }
        if let Some(session) = &self.session {
            identify(&mut out, Some(session));
        }
        let mut received = Vec::new();
        let (mut from_client, mut from_leader) = (vec![0; 16 << 10], vec![0; 64 << 10]);
        loop {
            // The leader is about to leave, and answers the requests that it has executed.
            let is_handing_over = !self.refused.is_empty();
            if is_handing_over && !self.awaits_outcome() {
                return End::Leader;
            }
            if out.is_empty() && !is_handing_over {
                while out.len() < MAX_WAITING && self.pending.len() < MAX_PENDING && !self.waiting.is_empty()
                {
                    self.pass(&mut out);
                }
            }
            let takes = self.waiting_bytes < MAX_WAITING;
            let gives = self.replies.len() < MAX_WAITING;
            let has_replies = !self.replies.is_empty() || self.writer.has_backlog();
            tokio::select! {
                biased;
                changed = self.place.changed() => {
                    if changed.is_err() {
                        return End::Client;
                    }
                    let last = self.last_replies(&mut reading, &mut received);
                    // Without them the outcomes stay unknown.
                    let _ = tokio::time::timeout(LATE_ANSWERS, last).await;
                    return End::Leader;
                }
                writable = self.writer.writable(), if has_replies => {
                    if writable.and_then(|()| self.give()).is_err() {
                        return End::Client;
                    }
                }
                read = reading.read(&mut from_leader), if gives => match read {
                    Ok(count) if count > 0 => {
                        received.extend_from_slice(&from_leader[..count]);
                        for bytes in frames(&mut received) {
                            if self.note(&bytes) {
                                self.replies.extend_from_slice(&bytes);
                            }
                        }
                    }
                    _ => return End::Leader,
                },
                written = writing.write(&out), if !out.is_empty() => match written {
                    Ok(count) => {
                        out.drain(..count);
                        if out.is_empty() && writing.flush().await.is_err() {
                            return End::Leader;
                        }
                    }
                    Err(_) => return End::Leader,
                },
                read = self.reader.read(&mut from_client), if takes => match read {
                    Ok(count) if count > 0 => self.take(&from_client[..count]),
                    _ => return End::Client,
                },
            }
        }
    }
}

/// Resolves when another member leads, or this one is gone.
async fn moved(mut place: watch::Receiver<Place>) -> End {
    if place.changed().await.is_ok() { End::Leader } else { End::Client }
}

/// The request in a whole frame.
fn request_of(frame: &[u8], limit: usize) -> Option<Request<'_>> {
    let Ok(Split::Frame { content, .. }) = iproto::split(frame, limit) else { return None };
    request::decode(content).ok()
}

/// Cuts off the whole frames.
fn frames(received: &mut Vec<u8>) -> Vec<Vec<u8>> {
    let (mut found, mut done) = (Vec::new(), 0);
    while let Ok(Split::Frame { consumed, .. }) = iproto::split(&received[done..], usize::MAX) {
        found.push(received[done..done + consumed].to_vec());
        done += consumed;
    }
    received.drain(..done);
    found
}

/// Appends the node's own call of `queue.identify`.
fn identify(out: &mut Vec<u8>, session: Option<&[u8]>) {
    let args = Value::array(session.map(|session| Value::Str(session.to_vec())));
    request::encode(out, IDENTIFY, &Body::Call { name: b"queue.identify", args: &args.encode() });
}

/// The frame of a take with a name.
fn named(request: &Request<'_>) -> Option<Vec<u8>> {
    let (Body::Call { name, args } | Body::Call16 { name, args }) = request.body else { return None };
    let mut own = [0; 16];
    let at = repeat::timeout_at(name)?;
    fill_randomly(&mut own);
    with_args(request, &repeat::first(args, at, &own)?)
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

/// How long a former leader's last answers are waited for. They were sent before the next leader was voted for, so they are nearly here;
/// a leader that was frozen or cut off sends none.
pub(crate) const LATE_ANSWERS: Duration = Duration::from_millis(50);

/// The answer to a request that was passed on and not answered when the leader changed.
pub(crate) fn outcome_unknown() -> ErrorObject {
    let message = "The outcome of this request is unknown: the leader of the group changed before it was answered. Look \
                   whether it was done before it is repeated";
    named_error(ErrorCode::SyncRollback, OUTCOME_UNKNOWN, message)
}

/// The answer to a request that waited for a leader in vain.
pub(crate) fn no_leader() -> ErrorObject {
    let message = "the group has no leader now: a majority of its voters has to run and reach each other. Nothing was done: try \
                   again";
    named_error(ErrorCode::Loading, NO_LEADER, message)
}

fn named_error(code: ErrorCode, name: &str, message: &str) -> ErrorObject {
    let mut error = ErrorObject::client(code, message);
    error.fields.push(("name".into(), name.to_owned()));
    error
}
