//! Clients that connect while a program's instance starts: while it joins a replica set, above all.
//!
//! The socket is bound before the start, so clients do connect. Each is greeted and answered, as by Tarantool: PING and
//! VOTE with the true values, statements with `ER_NO_SUCH_SPACE`, anything else with `ER_LOADING`. Clients know both, and try
//! again. Once the instance exists, it takes the connections over; for the client nothing changes.
//!
//! *Absent:* a request that is no whole valid frame of at most [`MAX_FRAME`] bytes. It waits for the instance, and so does
//! all that follows it on its connection. The greeting names no instance, because the start decides which one it will be. A
//! replica that asks for rows on such a connection has to connect again.

use std::io;
use std::rc::Rc;

use lycosa_instance::PROTOCOL_VERSION;
use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::greeting::{Greeting, SALT_SIZE};
use lycosa_iproto::request::{self, Body, RequestError};
use lycosa_iproto::vclock::Vclock;
use lycosa_iproto::{frame, keys, reply};
use lycosa_tuple::mp;
use tokio::io::AsyncReadExt;
use tokio::sync::watch;
use uuid::Uuid;

use crate::connection::{self, Early};
use crate::random::fill_randomly;
use crate::socket::Accepted;
use crate::turn::Core;

/// The instance, once it exists.
pub(crate) type Awaited = watch::Receiver<Option<Rc<Core>>>;

/// The largest request that is looked at before there is an instance.
const MAX_FRAME: usize = 16 << 10;

/// Connections that are greeted before there is an instance; more wait in the socket's queue.
const MAX_CONNECTIONS: usize = 256;

/// Counts the connections that were greeted before there was an instance: each holds one.
pub(crate) type Count = Rc<()>;

/// Whether one more of those may come.
pub(crate) fn has_room(count: &Count) -> bool {
    Rc::strong_count(count) <= MAX_CONNECTIONS
}

/// Serves a connection until the instance exists, and then by the instance.
pub(crate) async fn serve(accepted: Accepted, mut core: Awaited, count: Count) {
    let mut client = Client { accepted, received: Vec::new(), is_read: true };
    let mut salt = [0; SALT_SIZE];
    fill_randomly(&mut salt);
    let greeting = Greeting { version: PROTOCOL_VERSION.to_owned(), uuid: Uuid::nil(), salt };
    let serving = async {
        client.write(&greeting.encode().map_err(io::Error::other)?).await?;
        client.answer(&mut core).await
    };
    let served = serving.await;
    drop(count);
    // A start that has failed lets go of the sender.
    let core = core.borrow().clone();
    if let (Ok(()), Some(core)) = (served, core) {
        let early = Early { salt, received: client.received, is_forwarded: false };
        connection::serve(core, client.accepted, Some(early)).await;
    }
}

struct Client {
    accepted: Accepted,
    received: Vec<u8>,
    /// Whether more bytes may be read: all earlier ones were answered.
    is_read: bool,
}

impl Client {
    /// Answers requests until the instance exists, or never will. An error: the client has closed the connection.
    async fn answer(&mut self, core: &mut Awaited) -> io::Result<()> {
        loop {
            if core.borrow().is_some() {
                return Ok(());
            }
            let is_read = self.is_read;
            tokio::select! {
                biased;
                changed = core.changed() => if changed.is_err() { return Ok(()) },
                read = self.read(), if is_read => {
                    read?;
                    let mut replies = Vec::new();
                    self.handle(&mut replies);
                    self.write(&replies).await?;
                }
            }
        }
    }

    /// Dropping the future loses nothing: bytes are kept in the poll that reads them.
    async fn read(&mut self) -> io::Result<()> {
        match self.accepted.reader.read_buf(&mut self.received).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Answers the whole requests received so far.
    fn handle(&mut self, replies: &mut Vec<u8>) {
        let mut done = 0;
        loop {
            let (decoded, consumed) = match frame::split(&self.received[done..], MAX_FRAME) {
                Ok(frame::Split::Frame { content, consumed }) => (request::decode(content).ok(), consumed),
                Ok(frame::Split::NeedMore(_)) => break,
                Err(_) => (None, 0),
            };
            let Some(request) = decoded else {
                self.is_read = false;
                break;
            };
            let sync = request.header.sync;
            match request.body {
                Body::Ping => reply::ok_empty(replies, sync, 0),
                Body::Vote => ballot(replies, sync),
                Body::Id { .. } | Body::Unknown(_) => {
                    let error = RequestError::unknown_type(sync, request.header.kind).object();
                    reply::error(replies, sync, 0, &error);
                }
                Body::Select { space, .. }
                | Body::Insert { space, .. }
                | Body::Replace { space, .. }
                | Body::Update { space, .. }
                | Body::Upsert { space, .. }
                | Body::Delete { space, .. } => reply::error(replies, sync, 0, &no_such_space(space)),
                _ => reply::error(replies, sync, 0, &loading()),
            }
            done += consumed;
        }
        self.received.drain(..done);
    }

    async fn write(&self, bytes: &[u8]) -> io::Result<()> {
        self.accepted.writer.write_all(bytes).await
    }
}

fn loading() -> ErrorObject {
    ErrorObject::client(ErrorCode::Loading, ErrorCode::Loading.template())
}

/// No space exists yet, nor any of the schema: clients that read it when they connect know this answer.
fn no_such_space(space: u32) -> ErrorObject {
    ErrorObject::client(ErrorCode::NoSuchSpace, format!("Space '{space}' does not exist"))
}

/// The answer to VOTE: no writes, and no data that a replica could join.
fn ballot(out: &mut Vec<u8>, sync: u64) {
    let start = reply::begin(out, 0, sync, 0);
    mp::write_map(out, 1);
    mp::write_uint(out, u64::from(keys::BALLOT));
    mp::write_map(out, 4);
    for (key, flag) in [(keys::ballot::IS_READ_ONLY_CONFIGURED, false), (keys::ballot::IS_READ_ONLY, true)] {
        mp::write_uint(out, u64::from(key));
        mp::write_bool(out, flag);
    }
    for key in [keys::ballot::VCLOCK, keys::ballot::OLDEST_VCLOCK] {
        mp::write_uint(out, u64::from(key));
        Vclock::default().encode(out);
    }
    reply::finish(out, start);
}
