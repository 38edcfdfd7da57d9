//! A connection's task: bytes from the socket to frames, frames to requests, requests to the instance.
//!
//! Whole frames are taken straight from the loop's shared read buffer; only a frame that is cut by the end of a read is
//! kept, so that an idle connection holds no buffer. Reading pauses while the instance says that the connection has
//! enough under way or its reader is slow; the kernel's buffers then slow the client down.
//!
//! A stream that cannot be followed, because a web page or a client with another protocol is at its other end, is answered
//! once and closed; see [`crate::strangers`].

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use lycosa_instance::{Broken, Caller, ConnectionSlot, Handled, Instance};
use lycosa_iproto::frame;
use lycosa_iproto::greeting::SALT_SIZE;
use tokio::io::{AsyncRead, ReadBuf};

use crate::clock::now;
use crate::replication::Replica;
use crate::slow_lane::Quantum;
use crate::socket::{Accepted, Reader};
use crate::strangers::{Protocol, http_refusal};
use crate::turn::{Core, Link};

/// How long unwritten replies may still be written after the client has closed its sending side.
const LINGER: Duration = Duration::from_secs(1);

/// Bytes that are read and dropped after a refusal, so that the refusal is not lost with a connection that is reset.
const MAX_DISCARDED: usize = 1 << 20;

/// The answer to a browser.
const NOT_HTTP: &str = "This is the port of a Lycosa task queue for its binary protocol (IPROTO, the one of Tarantool). \
    It does not speak HTTP, and the connection is closed.";

/// A connection for the instance to take over.
pub(crate) struct Early {
    /// The salt of its greeting.
    pub(crate) salt: [u8; SALT_SIZE],
    /// Bytes of it that were not answered.
    pub(crate) received: Vec<u8>,
    /// Another member of the group passes its requests on.
    pub(crate) is_forwarded: bool,
}

/// Serves one connection until it ends. `early`: its client was greeted elsewhere, or before there was an instance.
pub(crate) async fn serve(core: Rc<Core>, accepted: Accepted, early: Option<Early>) {
    let Accepted { reader, writer, origin } = accepted;
    let peer = origin.peer.clone();
    let connected = {
        let mut instance = core.instance.borrow_mut();
        match &early {
            None => instance.connect(origin, now()),
            Some(early) if early.is_forwarded => instance.connect_forwarded(origin, early.salt, now()),
            Some(early) => instance.connect_greeted(origin, early.salt, now()),
        }
    };
    let slot = match connected {
        Ok(slot) => slot,
        Err(refused) => return core.note_stranger(&peer, &refused.to_string()),
    };
    let link = Link::new(writer);
    core.attach(slot, link.clone());
    core.end.notify_one();
    if let (Some(program), Some(caller)) = (core.program(), caller(&core, slot)) {
        program.connected(caller, &peer);
    }
    let is_early = early.is_some();
    let partial = early.map(|early| early.received).unwrap_or_default();
    let slow_until = None;
    let mut connection =
        Connection { core, slot, peer, link, reader, is_early, partial, accounted: 0, slow_until };
    connection.run().await;
    connection.linger().await;
    connection.discard().await;
    connection.link.writer.finish();
    if let (Some(program), Some(caller)) = (connection.core.program(), caller(&connection.core, slot)) {
        program.disconnected(caller, &connection.peer);
    }
    connection.core.instance.borrow_mut().disconnect(slot, now());
    connection.core.detach(slot);
    connection.core.end.notify_one();
}

fn caller(core: &Core, slot: ConnectionSlot) -> Option<Caller> {
    core.instance.borrow().caller(slot)
}

struct Connection {
    core: Rc<Core>,
    slot: ConnectionSlot,
    /// The peer's address, for the log.
    peer: String,
    link: Rc<Link>,
    reader: Reader,
    /// The peer was greeted before there was an instance, and so without its UUID.
    is_early: bool,
    partial: Vec<u8>,
    /// Bytes of `partial` as the instance knows them.
    accounted: usize,
    /// Until when its requests go through the slow lane.
    slow_until: Option<Instant>,
}

/// How the bytes of a connection come to be handled.
#[derive(Clone, Copy)]
enum Way {
    /// As its socket becomes readable.
    Straight,
    /// As the slow lane admits it.
    SlowLane,
}

/// The next step of a connection.
enum Phase {
    /// More bytes are needed.
    Read,
    /// The instance wants no more requests for the moment.
    Pause,
    /// The bytes that were read wait for admission to the slow lane.
    Queue,
    /// The client is gone or must go.
    End,
}

impl Connection {
    async fn run(&mut self) {
        let (core, link) = (self.core.clone(), self.link.clone());
        let mut step = if self.partial.is_empty() { Phase::Read } else { self.resume() };
        let mut place = None;
        loop {
            let reads = matches!(step, Phase::Read);
            let queues = matches!(step, Phase::Queue);
            if matches!(step, Phase::Pause) {
                self.core.pause(self.slot, &link);
            }
            // What wakes the task meanwhile does not cost it its place.
            if queues && place.is_none() {
                place = Some(Box::pin(core.slow_lane.admission()));
            }
            let next = tokio::select! {
                biased;
                () = link.wake.notified() => None,
                writable = link.writer.writable(), if link.blocked.get() => {
                    match writable {
                        Ok(()) => self.core.writable(self.slot, &link),
                        Err(_) => link.closing.set(true),
                    }
                    None
                }
                next = self.read(), if reads => Some(next),
                () = reached(&mut place), if queues => {
                    place = None;
                    Some((self.go_on(Way::SlowLane), false))
                }
            };
            if link.closing.get() || link.dismissed.get() {
                return;
            }
            step = match next {
                Some((next, full)) => {
                    if full {
                        tokio::task::yield_now().await;
                    }
                    next
                }
                None if reads => Phase::Read,
                None if queues => Phase::Queue,
                None => self.resume(),
            };
            if matches!(step, Phase::Pause) && self.core.instance.borrow().is_replica(self.slot) {
                // A replica knows its master by the UUID of the greeting: it has to connect again.
                let is_member = self.core.member().is_some();
                if is_member {
                    let cause = "it wants to follow a member of a group, and members replicate within the group alone";
                    self.core.note_stranger(&self.peer, cause);
                }
                step = if self.is_early || is_member { Phase::End } else { self.replicate().await };
            }
            if matches!(step, Phase::End) {
                return;
            }
        }
    }

    /// A replica is at the other end: serves it until it goes, or makes requests again.
    async fn replicate(&mut self) -> Phase {
        let received = std::mem::take(&mut self.partial);
        self.account_input();
        let Self { core, slot, peer, link, reader, .. } = self;
        match (Replica { core, slot: *slot, peer, link, reader, received }).serve().await {
            Some(rest) => {
                self.partial = rest;
                self.core.instance.borrow_mut().finish_replica(self.slot);
                self.resume()
            }
            None => Phase::End,
        }
    }

    /// Reads once and handles what came; also whether the read filled the buffer, so that more is probably there.
    ///
    /// Dropping the future loses nothing: bytes are handled in the poll that reads them.
    async fn read(&mut self) -> (Phase, bool) {
        let core = self.core.clone();
        let outcome: io::Result<(Phase, bool)> = poll_fn(|cx| {
            let mut scratch = core.scratch.borrow_mut();
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut self.reader).poll_read(cx, &mut buffer) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Ready(Ok(())) if buffer.filled().is_empty() => Poll::Ready(Ok((Phase::End, false))),
                Poll::Ready(Ok(())) => {
                    let full = buffer.remaining() == 0;
                    let step = if self.partial.is_empty() && !self.is_slow() {
                        let (step, rest, debt) =
                            handle(&core, (self.slot, &self.peer), Way::Straight, buffer.filled());
                        self.partial.extend_from_slice(rest);
                        self.owe(debt);
                        step
                    } else {
                        self.partial.extend_from_slice(buffer.filled());
                        if self.is_slow() { Phase::Queue } else { self.handle_partial(Way::Straight) }
                    };
                    Poll::Ready(Ok((step, full)))
                }
            }
        })
        .await;
        self.account_input();
        self.core.end.notify_one();
        outcome.unwrap_or((Phase::End, false))
    }

    fn resume(&mut self) -> Phase {
        if self.is_slow() {
            return Phase::Queue;
        }
        self.go_on(Way::Straight)
    }

    /// Handles the bytes of earlier reads.
    fn go_on(&mut self, way: Way) -> Phase {
        let step = self.handle_partial(way);
        self.account_input();
        self.core.end.notify_one();
        step
    }

    /// Whether its requests go through the slow lane.
    fn is_slow(&mut self) -> bool {
        let is_slow = self.slow_until.is_some_and(|until| Instant::now() < until);
        if !is_slow {
            self.slow_until = None;
        }
        is_slow
    }

    fn owe(&mut self, debt: Option<Duration>) {
        if let Some(debt) = debt {
            self.slow_until = Some(Instant::now() + debt);
        }
    }

    /// Tells the instance how many bytes wait here for the rest of their request.
    fn account_input(&mut self) {
        let bytes = self.partial.capacity();
        let is_unchanged = bytes == 0 && self.accounted == 0;
        // Requests for programs keep their bytes, and none of them is in `partial`.
        if is_unchanged && !self.core.instance.borrow().exceeds_input() {
            return;
        }
        self.accounted = bytes;
        let now = now();
        self.core.instance.borrow_mut().account_input(self.slot, bytes, now);
        loop {
            let excess = self.core.instance.borrow_mut().poll_input_excess(now);
            let Some(excess) = excess else { return };
            self.core.close_sender(&excess);
        }
    }

    fn handle_partial(&mut self, way: Way) -> Phase {
        let (step, rest, debt) = handle(&self.core, (self.slot, &self.peer), way, &self.partial);
        let done = self.partial.len() - rest.len();
        self.partial.drain(..done);
        self.owe(debt);
        if self.partial.is_empty() {
            self.partial = Vec::new();
        } else if self.partial.capacity() / 4 > self.partial.len() {
            self.partial.shrink_to_fit();
        }
        step
    }

    /// Lets unwritten replies leave.
    async fn linger(&self) {
        self.link.lingering.set(true);
        let drained = async {
            let is_pending =
                || self.core.instance.borrow().pending_bytes(self.slot) > 0 || self.link.writer.has_backlog();
            while !self.link.closing.get() && is_pending() {
                tokio::select! {
                    () = self.link.wake.notified() => {}
                    writable = self.link.writer.writable(), if self.link.blocked.get() => match writable {
                        Ok(()) => self.core.writable(self.slot, &self.link),
                        Err(_) => return,
                    },
                }
            }
        };
        // Beyond LINGER the client is not reading any more: the rest is dropped with the connection.
        let _ = tokio::time::timeout(LINGER, drained).await;
    }

    /// After a refusal, reads what the peer still sends: a socket that is closed with unread bytes is reset, and the
    /// peer may never see the answer.
    async fn discard(&mut self) {
        if !self.core.instance.borrow().wants_close(self.slot) {
            return;
        }
        // A socket that cannot be shut down is gone already.
        let _ = self.link.writer.shut_down();
        let mut left = MAX_DISCARDED;
        let discarded = poll_fn(|cx| {
            let mut scratch = self.core.scratch.borrow_mut();
            while left > 0 {
                let mut buffer = ReadBuf::new(&mut scratch);
                match Pin::new(&mut self.reader).poll_read(cx, &mut buffer) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                        left = left.saturating_sub(buffer.filled().len());
                    }
                    Poll::Ready(_) => break,
                }
            }
            Poll::Ready(())
        });
        // Beyond LINGER the peer has had its chance to read the answer.
        let _ = tokio::time::timeout(LINGER, discarded).await;
    }
}

/// Resolves when a place in the slow lane has its turn.
async fn reached(place: &mut Option<Pin<Box<impl Future<Output = ()>>>>) {
    if let Some(place) = place {
        place.as_mut().await;
    }
}

/// Handles whole frames at the start of `bytes`, until a quantum of the loop's time is over, or until a large batch that has to take
/// the slow lane. Returns the rest, and how long the connection stays in the slow lane.
fn handle<'a>(
    core: &Core,
    (slot, peer): (ConnectionSlot, &str),
    way: Way,
    bytes: &'a [u8],
) -> (Phase, &'a [u8], Option<Duration>) {
    let mut instance = core.instance.borrow_mut();
    let limit = instance.max_frame_size();
    let now = now();
    let mut rest = bytes;
    let mut requests = 0;
    let mut quantum = Quantum::begin(&mut instance);
    let step = loop {
        if instance.is_paused(slot) {
            break Phase::Pause;
        }
        let broken = match frame::split(rest, limit) {
            Ok(frame::Split::Frame { content, consumed }) => {
                let handled = match way {
                    Way::Straight => instance.handle_short_frame(slot, content, now),
                    Way::SlowLane => instance.handle_frame(slot, content, now).map(|()| Handled::Done),
                };
                match handled {
                    Ok(Handled::Deferred) => break Phase::Queue,
                    Ok(Handled::Done) => {
                        requests += 1;
                        rest = &rest[consumed..];
                        if quantum.is_over(&mut instance, consumed) && !rest.is_empty() {
                            break Phase::Queue;
                        }
                        continue;
                    }
                    Err(broken) => broken,
                }
            }
            Ok(frame::Split::NeedMore(_)) => break Phase::Read,
            Err(error) => Box::new(Broken::from(error)),
        };
        refuse(core, &mut instance, slot, peer, rest, &broken);
        rest = &[];
        break Phase::Pause;
    };
    instance.account_output(slot);
    core.received(requests);
    (step, rest, quantum.debt())
}

/// Answers a stream that cannot be followed, in the protocol that it seems to be. `bytes` begins where it cannot be
/// followed any more.
#[cold]
fn refuse(
    core: &Core,
    instance: &mut Instance,
    slot: ConnectionSlot,
    peer: &str,
    bytes: &[u8],
    broken: &Broken,
) {
    let cause = match Protocol::recognize(bytes) {
        Protocol::Http => {
            instance.refuse_stranger(slot, &http_refusal(NOT_HTTP));
            "it sent an HTTP request, and this port does not speak HTTP".to_owned()
        }
        Protocol::Tls => {
            instance.refuse_stranger(slot, &[]);
            "it began with TLS, and this port speaks plain text".to_owned()
        }
        Protocol::Unknown => {
            instance.refuse(slot, broken);
            format!("it sent what no client of the binary protocol sends ({})", broken.error.message)
        }
    };
    core.note_stranger(peer, &cause);
}
