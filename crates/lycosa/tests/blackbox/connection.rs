//! One client connection: a socket, a thread that files replies as they arrive, and the waiting for them.
//!
//! Nothing here knows what a reply should be. Replies keep the moment and the order of their arrival and their whole
//! bytes, because scenarios assert all three.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use sha1::{Digest, Sha1};

use crate::value::{self, Decoder, Value};

/// Request type numbers that the tests send by name.
pub(crate) mod kind {
    pub(crate) const SELECT: u32 = 1;
    pub(crate) const INSERT: u32 = 2;
    pub(crate) const REPLACE: u32 = 3;
    pub(crate) const UPDATE: u32 = 4;
    pub(crate) const DELETE: u32 = 5;
    pub(crate) const CALL_16: u32 = 6;
    pub(crate) const AUTH: u32 = 7;
    pub(crate) const EVAL: u32 = 8;
    pub(crate) const UPSERT: u32 = 9;
    pub(crate) const CALL: u32 = 10;
    pub(crate) const EXECUTE: u32 = 11;
    pub(crate) const PING: u32 = 64;
}

/// Keys of headers and bodies.
pub(crate) mod key {
    pub(crate) const CODE: i128 = 0x00;
    pub(crate) const SYNC: i128 = 0x01;
    pub(crate) const SCHEMA_VERSION: i128 = 0x05;
    pub(crate) const SPACE: i128 = 0x10;
    pub(crate) const INDEX: i128 = 0x11;
    pub(crate) const LIMIT: i128 = 0x12;
    pub(crate) const OFFSET: i128 = 0x13;
    pub(crate) const ITERATOR: i128 = 0x14;
    pub(crate) const INDEX_BASE: i128 = 0x15;
    pub(crate) const KEY: i128 = 0x20;
    pub(crate) const TUPLE: i128 = 0x21;
    pub(crate) const FUNCTION: i128 = 0x22;
    pub(crate) const USER: i128 = 0x23;
    pub(crate) const EXPRESSION: i128 = 0x27;
    pub(crate) const OPERATIONS: i128 = 0x28;
    pub(crate) const DATA: i128 = 0x30;
    pub(crate) const ERROR: i128 = 0x31;
    pub(crate) const SQL_TEXT: i128 = 0x40;
    pub(crate) const SQL_BIND: i128 = 0x41;
}

pub(crate) const GREETING_SIZE: usize = 128;

/// A frame longer than this is taken as a broken length, not waited for.
const MAX_FRAME: u64 = 256 << 20;

/// One reply, as it came.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    /// The whole frame, length prefix included.
    pub(crate) frame: Vec<u8>,
    pub(crate) header: Value,
    /// An empty map if the frame has no body.
    pub(crate) body: Value,
    pub(crate) sync: u64,
    /// 0, or the error's number without the 0x8000 bit.
    pub(crate) error: u32,
    pub(crate) at: Instant,
    /// Position among all replies of this connection.
    pub(crate) order: usize,
}

impl Reply {
    /// The value under key 0x30; an empty map if the body has none.
    pub(crate) fn data(&self) -> Value {
        self.body.get(key::DATA).cloned().unwrap_or(Value::Map(Vec::new()))
    }

    pub(crate) fn message(&self) -> String {
        self.body.get(key::ERROR).and_then(Value::as_text).unwrap_or_default()
    }

    /// The reply in one line, as a failure shows it.
    pub(crate) fn describe(&self) -> String {
        if self.error == 0 { self.data().to_string() } else { format!("! {} {}", self.error, self.message()) }
    }
}

/// What the reading thread has filed.
#[derive(Debug, Default)]
struct Inbox {
    greeting: Option<Vec<u8>>,
    replies: Vec<Reply>,
    /// By sync, the replies not yet handed out, oldest first.
    waiting: HashMap<u64, Vec<usize>>,
    /// Set once nothing more will come, with the reason.
    ended: Option<String>,
}

#[derive(Debug)]
struct Shared {
    inbox: Mutex<Inbox>,
    news: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().expect("no thread panics while it holds the inbox")
    }
}

/// A connection to a server. Dropping it closes the socket.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    shared: Arc<Shared>,
    last_sync: u64,
    /// The requests that were written while corked.
    cork: Option<Vec<u8>>,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(30))?;
        stream.set_nodelay(true)?;
        // A peer that stops reading must fail the test, not hang it.
        stream.set_write_timeout(Some(Duration::from_secs(30)))?;
        let shared = Arc::new(Shared { inbox: Mutex::default(), news: Condvar::new() });
        let reader = (stream.try_clone()?, Arc::clone(&shared));
        std::thread::spawn(move || read_all(reader.0, &reader.1));
        let connection = Self { stream, shared, last_sync: 0, cork: None };
        connection.greeting(Duration::from_secs(30)).map_err(io::Error::other)?;
        Ok(connection)
    }

    /// The 128 bytes that the server sent first.
    pub(crate) fn greeting(&self, limit: Duration) -> Result<Vec<u8>, String> {
        self.wait_for(Instant::now() + limit, |inbox| inbox.greeting.clone())
            .map_err(|reason| format!("no greeting: {reason}"))
    }

    /// Sends a request under the next sync and returns that sync. `body` is a map, or raw bytes for a wrong one.
    pub(crate) fn send(&mut self, kind: u32, body: &Value) -> io::Result<u64> {
        self.send_raw(kind, &value::encode(body))
    }

    pub(crate) fn send_raw(&mut self, kind: u32, body: &[u8]) -> io::Result<u64> {
        let sync = self.next_sync();
        self.write(&frame(kind, sync, body))?;
        Ok(sync)
    }

    pub(crate) fn next_sync(&mut self) -> u64 {
        self.last_sync += 1;
        self.last_sync
    }

    /// Sends bytes as they are.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.cork {
            Some(held) => held.extend_from_slice(bytes),
            None => self.stream.write_all(bytes)?,
        }
        Ok(())
    }

    /// From here on, hold requests back.
    pub(crate) fn cork(&mut self) {
        self.cork.get_or_insert_default();
    }

    /// Sends all that was held back in one write.
    pub(crate) fn uncork(&mut self) -> io::Result<()> {
        match self.cork.take() {
            Some(held) => self.stream.write_all(&held),
            None => Ok(()),
        }
    }

    pub(crate) fn is_corked(&self) -> bool {
        self.cork.is_some()
    }

    /// Sends and waits for the reply.
    pub(crate) fn ask(&mut self, kind: u32, body: &Value, limit: Duration) -> Result<Reply, String> {
        let sync = self.send(kind, body).map_err(|error| format!("cannot send: {error}"))?;
        self.reply(sync, Instant::now() + limit)
    }

    /// Waits for the oldest reply with this sync that was not handed out before, and hands it out.
    pub(crate) fn reply(&self, sync: u64, deadline: Instant) -> Result<Reply, String> {
        self.wait_for(deadline, |inbox| {
            let queue = inbox.waiting.get_mut(&sync).filter(|queue| !queue.is_empty())?;
            let order = queue.remove(0);
            Some(inbox.replies[order].clone())
        })
    }

    /// Waits for the next reply in order of arrival, from position `order` on; does not hand it out.
    pub(crate) fn reply_at(&self, order: usize, deadline: Instant) -> Result<Reply, String> {
        self.wait_for(deadline, |inbox| inbox.replies.get(order).cloned())
    }

    /// Whether a reply with this sync was received, handed out or not; its place in the order of arrival.
    pub(crate) fn arrived(&self, sync: u64) -> Option<usize> {
        self.shared.lock().replies.iter().find(|reply| reply.sync == sync).map(|reply| reply.order)
    }

    /// Waits until a reply with this sync is received, without handing it out.
    pub(crate) fn wait_arrived(&self, sync: u64, deadline: Instant) -> Result<usize, String> {
        self.wait_for(deadline, |inbox| {
            inbox.replies.iter().find(|reply| reply.sync == sync).map(|reply| reply.order)
        })
    }

    /// Waits until the server has closed the connection.
    pub(crate) fn wait_closed(&self, deadline: Instant) -> Result<(), String> {
        let mut inbox = self.shared.lock();
        while inbox.ended.is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err("the connection is still open".into());
            }
            inbox = self.shared.news.wait_timeout(inbox, left).expect("no thread panics holding it").0;
        }
        Ok(())
    }

    /// Closes the sending side alone.
    pub(crate) fn shut_down_sending(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    /// Closes the connection at once, for both directions.
    pub(crate) fn close(&self) {
        // The peer may have closed first; then there is nothing to shut down.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn wait_for<T>(&self, deadline: Instant, found: impl Fn(&mut Inbox) -> Option<T>) -> Result<T, String> {
        let mut inbox = self.shared.lock();
        loop {
            if let Some(it) = found(&mut inbox) {
                return Ok(it);
            }
            if let Some(reason) = &inbox.ended {
                return Err(format!("no reply: {reason}"));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err("no reply in time".into());
            }
            inbox = self.shared.news.wait_timeout(inbox, left).expect("no thread panics holding it").0;
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
    }
}

/// A request frame with a header of type and sync.
pub(crate) fn frame(kind: u32, sync: u64, body: &[u8]) -> Vec<u8> {
    let header = Value::Map(vec![
        (Value::Int(key::CODE), Value::Int(i128::from(kind))),
        (Value::Int(key::SYNC), Value::Int(i128::from(sync))),
    ]);
    let mut packet = value::encode(&header);
    packet.extend_from_slice(body);
    let length = u32::try_from(packet.len()).expect("a test's request is below 4 GiB");
    let mut frame = vec![0xce];
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(&packet);
    frame
}

/// A request body: a map of integer keys.
pub(crate) fn body(pairs: impl IntoIterator<Item = (i128, Value)>) -> Value {
    Value::Map(pairs.into_iter().map(|(key, value)| (Value::Int(key), value)).collect())
}

/// The body of a CALL.
pub(crate) fn call(name: &str, arguments: Vec<Value>) -> Value {
    body([(key::FUNCTION, Value::str(name)), (key::TUPLE, Value::Array(arguments))])
}

/// The body of an AUTH by chap-sha1 for the connection that received this greeting.
pub(crate) fn auth(greeting: &[u8], user: &str, password: &str) -> Result<Value, String> {
    let scramble = scramble(&salt(greeting)?, password.as_bytes());
    let tuple = Value::Array(vec![Value::str("chap-sha1"), Value::Str(scramble.to_vec())]);
    Ok(body([(key::USER, Value::str(user)), (key::TUPLE, tuple)]))
}

/// The 20 bytes of the greeting's salt that chap-sha1 uses.
pub(crate) fn salt(greeting: &[u8]) -> Result<[u8; 20], String> {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let line = greeting.get(64..108).ok_or("the greeting is too short")?;
    let salt = STANDARD.decode(line).map_err(|error| format!("the greeting's salt: {error}"))?;
    salt.get(..20).and_then(|salt| salt.try_into().ok()).ok_or_else(|| "the salt is too short".into())
}

/// `sha1(password) xor sha1(salt ++ sha1(sha1(password)))`.
pub(crate) fn scramble(salt: &[u8; 20], password: &[u8]) -> [u8; 20] {
    let first: [u8; 20] = Sha1::digest(password).into();
    let second = Sha1::digest(first);
    let third: [u8; 20] = Sha1::new().chain_update(salt).chain_update(second).finalize().into();
    std::array::from_fn(|n| first[n] ^ third[n])
}

fn read_all(mut stream: TcpStream, shared: &Shared) {
    let mut held = Vec::new();
    let mut chunk = vec![0; 64 << 10];
    let ended = loop {
        let count = match stream.read(&mut chunk) {
            Ok(0) => break "the server closed the connection".to_owned(),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => break format!("the connection broke: {error}"),
        };
        let at = Instant::now();
        held.extend_from_slice(&chunk[..count]);
        let mut inbox = shared.lock();
        let filed = inbox.file(&mut held, at);
        drop(inbox);
        shared.news.notify_all();
        if let Err(reason) = filed {
            break reason;
        }
    };
    shared.lock().ended = Some(ended);
    shared.news.notify_all();
}

impl Inbox {
    /// Moves every whole frame out of `held`.
    fn file(&mut self, held: &mut Vec<u8>, at: Instant) -> Result<(), String> {
        let mut from = 0;
        if self.greeting.is_none() {
            if held.len() < GREETING_SIZE {
                return Ok(());
            }
            self.greeting = Some(held[..GREETING_SIZE].to_vec());
            from = GREETING_SIZE;
        }
        while let Some(length) = frame_length(&held[from..])? {
            let frame = held[from..from + length].to_vec();
            from += length;
            let reply = decode_reply(frame, at, self.replies.len())?;
            self.waiting.entry(reply.sync).or_default().push(reply.order);
            self.replies.push(reply);
        }
        held.drain(..from);
        Ok(())
    }
}

/// The length of the first frame with its prefix; `None` while it is not there as a whole.
fn frame_length(bytes: &[u8]) -> Result<Option<usize>, String> {
    let Some(marker) = bytes.first() else { return Ok(None) };
    if *marker != 0xce {
        return Err(format!("the server sent a frame that begins with {marker:#04x} and not with 0xce"));
    }
    let Some(digits) = bytes.get(1..5) else { return Ok(None) };
    let length = digits.iter().fold(0, |n, byte| n << 8 | u64::from(*byte));
    if length > MAX_FRAME {
        return Err(format!("the server announced a frame of {length} bytes"));
    }
    let whole = 5 + length as usize;
    Ok((bytes.len() >= whole).then_some(whole))
}

/// A reply from its whole frame.
pub(crate) fn decode_reply(frame: Vec<u8>, at: Instant, order: usize) -> Result<Reply, String> {
    let broken = |what: &dyn std::fmt::Display| {
        format!("the server sent a broken frame ({what}): {}", value::hex(&frame))
    };
    let mut decoder = Decoder::new(&frame[5..]);
    let header = decoder.value().map_err(|error| broken(&error))?;
    let body = if decoder.is_empty() {
        Value::Map(Vec::new())
    } else {
        decoder.value().map_err(|error| broken(&error))?
    };
    if !decoder.is_empty() {
        return Err(broken(&"bytes after the body"));
    }
    let number = |key| header.get(key).and_then(Value::as_int);
    let code = number(key::CODE).ok_or_else(|| broken(&"no code"))?;
    let sync = number(key::SYNC).ok_or_else(|| broken(&"no sync"))?;
    let error = if code & 0x8000 == 0 { 0 } else { (code & 0x7fff) as u32 };
    Ok(Reply { header, body, sync: sync as u64, error, at, order, frame })
}
