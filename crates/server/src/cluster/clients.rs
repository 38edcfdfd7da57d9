//! Clients of a node that does not lead: the leader serves them.
//!
//! The node opens one connection between members for each of its clients and passes frames on in both directions, so a
//! client that does not read slows down its own connection alone. The leader opens the client's connection with the salt
//! that the node has greeted it with, so passwords are proved end to end.
//!
//! The client's [`Relay`] knows which requests are passed on, and what becomes of a request whose leader is gone. The node's part is
//! connections: the node finds out who leads, connects, and connects again.
//!
//! A connection that was opened to a leader may be served when that member leads no more: its instance refuses each request as one
//! that was not executed ([`Instance::connect_forwarded`](lycosa_instance::Instance::connect_forwarded)).
//!
//! A node that begins to lead serves its earlier clients itself, without its own listener: its published address may be one that
//! it does not reach, as behind NAT.
//!
//! A node that knows no leader takes requests and lets them wait. After [`LEADERLESS`] it answers a PING with the error
//! [`NO_LEADER`](lycosa_engine::group::attempts::NO_LEADER), so that a person hears why nothing else is answered. A PING with the number
//! [`SIGN_OF_LIFE`](lycosa_iproto::request::SIGN_OF_LIFE) waits too: with it a client asks whether another member would serve it.
//!
//! Absent: clients that are connected to the leader itself, which the loop serves as ever, and `admin.sock`, which is for
//! this very server.

use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use lycosa_engine::group::attempts::{LEADERLESS, no_leader};
use lycosa_engine::group::relay::{Relay, Verdict};
use lycosa_instance::{Origin, PROTOCOL_VERSION, Trust};
use lycosa_iproto::greeting::{Greeting, SALT_SIZE};
use lycosa_tuple::mp;
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
/// Pause before the next attempt to reach a leader.
const PAUSE: Duration = Duration::from_millis(20);

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
    relay: Relay,
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
    let greeting = greeting.encode().map(Vec::from).unwrap_or_default();
    let new_name = || {
        let mut name = [0; 16];
        fill_randomly(&mut name);
        name
    };
    let relay = Relay::new(limit, greeting, Box::new(new_name));
    let place = member.place();
    let mut client = Client { core: core.clone(), member, place, reader, writer, origin, salt, relay };
    while !matches!(client.serve_once().await, End::Client) {
        client.relay.lose(Instant::now());
        client.count();
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
                self.relay.refuse_pings(&no_leader());
            }
            let takes = self.relay.takes() && self.relay.hears();
            let has_replies = self.has_replies();
            tokio::select! {
                biased;
                writable = self.writer.writable(), if has_replies => {
                    if writable.and_then(|()| self.give()).is_err() {
                        return End::Client;
                    }
                }
                read = self.reader.read(&mut bytes), if takes => match read {
                    Ok(count) if count > 0 => {
                        self.relay.take(&bytes[..count]);
                        if refuses {
                            self.relay.refuse_pings(&no_leader());
                        }
                    }
                    _ => return End::Client,
                },
                () = tokio::time::sleep(left), if !refuses => {}
                else => return std::future::pending().await,
            }
        }
    }

    fn count(&mut self) {
        self.member.count_forwarded(self.relay.take_forwarded());
    }

    fn has_replies(&self) -> bool {
        !self.relay.replies().is_empty() || self.writer.has_backlog()
    }

    /// Writes what the client takes of its replies.
    fn give(&mut self) -> io::Result<()> {
        match self.writer.try_write(self.relay.replies()) {
            Ok(count) => self.relay.replied(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Another node leads. The former leader may have answered already, above all the call that handed over: passes on its answers to
    /// requests that are not repeated, until it closes the connection.
    async fn last_replies(&mut self, reading: &mut (impl AsyncRead + Unpin)) {
        let mut bytes = vec![0; 16 << 10];
        while self.relay.awaits_outcome() {
            match reading.read(&mut bytes).await {
                Ok(count) if count > 0 => self.relay.hear_last(&bytes[..count]),
                _ => return,
            }
        }
    }

    /// Passes frames between the client and the leader until one of them goes.
    async fn carry(&mut self, stream: Stream) -> End {
        let (mut reading, mut writing) = tokio::io::split(stream);
        self.relay.begin();
        let (mut from_client, mut from_leader) = (vec![0; 16 << 10], vec![0; 64 << 10]);
        loop {
            match self.relay.verdict() {
                Verdict::Stay => {
                    self.relay.pass(Instant::now());
                    self.count();
                }
                Verdict::LeaveLeader => return End::Leader,
                Verdict::EndClient => return End::Client,
            }
            let (takes, hears) = (self.relay.takes(), self.relay.hears());
            let (has_replies, has_output) = (self.has_replies(), !self.relay.output().is_empty());
            tokio::select! {
                biased;
                changed = self.place.changed() => {
                    if changed.is_err() {
                        return End::Client;
                    }
                    // Without them the outcomes stay unknown.
                    let _ = tokio::time::timeout(LATE_ANSWERS, self.last_replies(&mut reading)).await;
                    return End::Leader;
                }
                writable = self.writer.writable(), if has_replies => {
                    if writable.and_then(|()| self.give()).is_err() {
                        return End::Client;
                    }
                }
                read = reading.read(&mut from_leader), if hears => match read {
                    Ok(count) if count > 0 => self.relay.hear(&from_leader[..count]),
                    _ => return End::Leader,
                },
                written = writing.write(self.relay.output()), if has_output => match written {
                    Ok(count) => {
                        self.relay.passed(count);
                        if self.relay.output().is_empty() && writing.flush().await.is_err() {
                            return End::Leader;
                        }
                    }
                    Err(_) => return End::Leader,
                },
                read = self.reader.read(&mut from_client), if takes => match read {
                    Ok(count) if count > 0 => self.relay.take(&from_client[..count]),
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

/// How long a former leader's last answers are waited for. They were sent before the next leader was voted for, so they are nearly here;
/// a leader that was frozen or cut off sends none.
pub(crate) const LATE_ANSWERS: Duration = Duration::from_millis(50);
