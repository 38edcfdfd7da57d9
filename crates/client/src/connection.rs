//! One connection: a socket that the requests of many tasks share.
//!
//! A request is encoded straight into the connection's output buffer; one task per connection sends the gathered
//! requests with one write, reads arrived replies with one read, and hands each to its waiting caller. So a hundred
//! tasks that ask at the same time cost about two system calls together.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lycosa_iproto::auth;
use lycosa_iproto::frame::{self, Split};
use lycosa_iproto::greeting::{GREETING_SIZE, Greeting, GreetingError, REFUSAL_PREFIX, STARTING};
use lycosa_iproto::keys;
use lycosa_iproto::reply::{self, Content};
use lycosa_iproto::request::{self, AuthTuple, Body, SIGN_OF_LIFE};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore, oneshot, watch};

use crate::array::Array;
use crate::error::{Error, Result};
use crate::give_back::GiveBack;
use crate::kind::Kind;
use crate::options::ConnectOptions;
use crate::pending::{Pending, Waiter};
use crate::response::Response;
use crate::tls::TlsOptions;

mod lookout;
mod master;

/// Capacity for one read.
const READ_SIZE: usize = 64 << 10;
/// An output buffer that has grown beyond this is given back once it is empty.
const OUTPUT_KEPT: usize = 1 << 20;
/// Pings in a row after which a silent server counts as gone.
const KEEP_ALIVE_ATTEMPTS: u32 = 2;

/// One connection to a server. Clones share it; it is closed when the last is dropped.
///
/// Answers come in the order in which the server is done, each to its own request. A request whose future is dropped,
/// or that takes too long, is still carried out by the server; its answer is passed over.
#[derive(Debug, Clone)]
pub struct Connection {
    handle: Arc<Handle>,
}

#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
    greeting: Greeting,
    request_timeout: Duration,
    /// Where the server is; empty for a stream that the caller has made.
    address: String,
    /// The server is a member of a group.
    is_in_group: AtomicBool,
}

/// What requests and the connection's task have in common.
#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// One for each request that may still be made.
    permits: Semaphore,
    has_output: Notify,
    close: Notify,
    end: watch::Sender<Option<Arc<str>>>,
}

#[derive(Debug, Default)]
struct State {
    pending: Pending,
    output: Vec<u8>,
    end: Option<Arc<str>>,
    /// Numbers of reads and of requests; both wrap.
    received: u64,
    made: u64,
}

impl Connection {
    /// Connects over TCP, with TLS if the options say so, and authenticates. Of several addresses all are tried at
    /// once, and the server that takes writes is the one; of several the one that confirms them and that more replicas
    /// follow.
    ///
    /// # Errors
    /// None of several servers takes writes ([`Error::NoMaster`]), no connection, no greeting, a wrong user or
    /// password ([`Error::Server`] of code 45 or 47), a certificate that is not trusted ([`Error::Tls`]), too slow.
    pub async fn connect(options: &ConnectOptions) -> Result<Self> {
        Self::connect_avoiding(options, None).await
    }

    /// The same. Of several servers that take writes, and of which none outranks the other, the one at `avoided` is the
    /// last choice.
    pub(crate) async fn connect_avoiding(options: &ConnectOptions, avoided: Option<&str>) -> Result<Self> {
        if options.has_several() {
            return Self::connect_to_master(options, avoided).await;
        }
        Self::connect_to(options, options.addresses().next().unwrap_or_default()).await
    }

    /// Where the server is, as the options name it; empty for a stream that the caller has made.
    pub(crate) fn address(&self) -> &str {
        &self.handle.address
    }

    /// Whether the server is known as a member of a group, of which the options name several.
    pub(crate) fn is_in_group(&self) -> bool {
        self.handle.is_in_group.load(Ordering::Relaxed)
    }

    /// Ends the connection; `reason` is what requests in flight are told.
    pub(crate) fn leave(&self, reason: &str) {
        self.handle.shared.finish(reason);
    }

    async fn connect_to(options: &ConnectOptions, address: String) -> Result<Self> {
        within(options.connect_timeout, async {
            let error = |cause| Error::Connect { address: address.clone(), cause };
            let stream = TcpStream::connect(&address).await.map_err(error)?;
            stream.set_nodelay(true).map_err(error)?;
            match &options.tls {
                None => {
                    let (reader, writer) = stream.into_split();
                    Self::start(reader, writer, options, &address).await
                }
                Some(tls) => Self::start_tls(stream, &address, tls, options).await,
            }
        })
        .await
    }

    #[cfg(feature = "tls")]
    async fn start_tls(
        stream: TcpStream,
        address: &str,
        tls: &TlsOptions,
        options: &ConnectOptions,
    ) -> Result<Self> {
        let stream = tls.handshake(stream, address).await?;
        let (reader, writer) = tokio::io::split(stream);
        // The verdict of the server about a client certificate comes with the first read.
        Self::start(reader, writer, options, address).await.map_err(|error| match error {
            Error::Disconnected(reason) => {
                Error::Tls { address: address.to_owned(), reason: reason.to_string() }
            }
            error => error,
        })
    }

    #[cfg(not(feature = "tls"))]
    async fn start_tls(_: TcpStream, address: &str, _: &TlsOptions, _: &ConnectOptions) -> Result<Self> {
        let reason = "lycosa-client was built without its feature `tls`".to_owned();
        Err(Error::Tls { address: address.to_owned(), reason })
    }

    /// Greets and authenticates over any stream. The address in `options` is not looked at.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn over<S>(stream: S, options: &ConnectOptions) -> Result<Self>
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (reader, writer) = tokio::io::split(stream);
        within(options.connect_timeout, Self::start(reader, writer, options, "")).await
    }

    async fn start<R, W>(
        mut reader: R,
        mut writer: W,
        options: &ConnectOptions,
        address: &str,
    ) -> Result<Self>
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let greeting = greet(&mut reader, &mut writer, options.ask_after()).await?;
        let mut input = Vec::with_capacity(READ_SIZE);
        if let Some(user) = &options.user {
            let scramble = auth::scramble(options.password.as_bytes(), &greeting.salt);
            let mut output = Vec::new();
            let body = Body::Auth { user: user.as_bytes(), scramble: AuthTuple::ChapSha1(&scramble) };
            request::encode(&mut output, 0, &body);
            write(&mut writer, &output).await.map_err(lost)?;
            read_answer(&mut reader, &mut input, options.max_answer_size).await?;
        }
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            permits: Semaphore::new((options.max_in_flight as usize).clamp(1, Semaphore::MAX_PERMITS)),
            has_output: Notify::new(),
            close: Notify::new(),
            end: watch::Sender::new(None),
        });
        let &ConnectOptions { max_answer_size, keep_alive, request_timeout, .. } = options;
        tokio::spawn(drive(Arc::clone(&shared), reader, writer, input, max_answer_size, keep_alive));
        let address = address.to_owned();
        Ok(Self {
            handle: Arc::new(Handle {
                shared,
                greeting,
                request_timeout,
                address,
                is_in_group: AtomicBool::new(false),
            }),
        })
    }

    /// What the server said of itself.
    pub fn greeting(&self) -> &Greeting {
        &self.handle.greeting
    }

    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.handle.shared.state().end.is_some()
    }

    /// Waits until the connection has ended, and says why.
    pub async fn closed(&self) -> Arc<str> {
        let mut end = self.handle.shared.end.subscribe();
        match end.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(reason)) => Arc::clone(reason),
            Ok(None) | Err(_) => Arc::from("closed"),
        }
    }

    /// Ends the connection. Requests in flight end with [`Error::Disconnected`].
    pub fn close(&self) {
        self.handle.shared.finish("closed by this client");
    }

    /// Makes any request and waits for the answer as long as the options say.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn request(&self, body: &Body<'_>) -> Result<Response> {
        self.request_within(body, Some(self.handle.request_timeout)).await
    }

    /// Makes any request and waits for the answer until `timeout` is over, or until it comes.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn request_within(&self, body: &Body<'_>, timeout: Option<Duration>) -> Result<Response> {
        self.request_giving_back(body, timeout, None).await
    }

    /// The same for a request that takes tasks: should the caller no longer wait for the answer when it arrives, they are given
    /// back as `give_back` says.
    pub(crate) async fn request_giving_back(
        &self,
        body: &Body<'_>,
        timeout: Option<Duration>,
        give_back: Option<GiveBack>,
    ) -> Result<Response> {
        let exchange = self.handle.shared.exchange(body, give_back);
        match timeout {
            Some(timeout) => within(timeout, exchange).await,
            None => exchange.await,
        }
    }

    /// Asks for a sign of life.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn ping(&self) -> Result<()> {
        self.request(&Body::Ping).await.map(drop)
    }

    /// Calls a function by its name, such as `queue.statistics`; the answer holds one element per returned value.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn call(&self, name: &str, args: impl Into<Array>) -> Result<Response> {
        let args = args.into();
        self.request(&Body::Call { name: name.as_bytes(), args: args.as_bytes() }).await
    }

    /// Calls a function whose values come back as tuples, as before Tarantool 1.7.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn call_16(&self, name: &str, args: impl Into<Array>) -> Result<Response> {
        let args = args.into();
        self.request(&Body::Call16 { name: name.as_bytes(), args: args.as_bytes() }).await
    }

    /// Runs a Lua program text; `args` are its `...`.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn eval(&self, text: &str, args: impl Into<Array>) -> Result<Response> {
        let args = args.into();
        self.request(&Body::Eval { text: text.as_bytes(), args: args.as_bytes() }).await
    }

    /// Reads up to `limit` tuples of an index, beginning where `iterator` (0 EQ, 2 ALL, 4 LE, 5 GE, …) and `key` say,
    /// after passing over `offset`.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn select(
        &self,
        space: u32,
        index: u32,
        iterator: u32,
        key: impl Into<Array>,
        offset: u32,
        limit: u32,
    ) -> Result<Response> {
        let key = key.into();
        self.request(&Body::Select { space, index, limit, offset, iterator, key: key.as_bytes() }).await
    }

    /// Adds a tuple.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn insert(&self, space: u32, tuple: impl Into<Array>) -> Result<Response> {
        let tuple = tuple.into();
        self.request(&Body::Insert { space, tuple: tuple.as_bytes() }).await
    }

    /// Puts a tuple in place of the one with its primary key.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn replace(&self, space: u32, tuple: impl Into<Array>) -> Result<Response> {
        let tuple = tuple.into();
        self.request(&Body::Replace { space, tuple: tuple.as_bytes() }).await
    }

    /// Changes the tuple with `key` by operations such as `['+', 3, 1]`; fields count from 0.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn update(
        &self,
        space: u32,
        index: u32,
        key: impl Into<Array>,
        operations: impl Into<Array>,
    ) -> Result<Response> {
        let (key, operations) = (key.into(), operations.into());
        let (key, operations) = (key.as_bytes(), operations.as_bytes());
        self.request(&Body::Update { space, index, base: 0, key, operations }).await
    }

    /// Adds a tuple, or applies `operations` to the one with its primary key; fields count from 0.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn upsert(
        &self,
        space: u32,
        tuple: impl Into<Array>,
        operations: impl Into<Array>,
    ) -> Result<Response> {
        let (tuple, operations) = (tuple.into(), operations.into());
        let (tuple, operations) = (tuple.as_bytes(), operations.as_bytes());
        self.request(&Body::Upsert { space, base: 0, tuple, operations }).await
    }

    /// Removes the tuple with `key`.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn delete(&self, space: u32, index: u32, key: impl Into<Array>) -> Result<Response> {
        let key = key.into();
        self.request(&Body::Delete { space, index, key: key.as_bytes() }).await
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.finish("closed by this client");
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request and waits for its reply.
    async fn exchange(&self, body: &Body<'_>, give_back: Option<GiveBack>) -> Result<Response> {
        let permit = self.permits.acquire().await.map_err(|_| self.disconnected())?;
        // It returns with the reply, whether or not the caller still waits for that.
        permit.forget();
        let mut awaited = self.send(body, give_back)?;
        (&mut awaited.answer).await.unwrap_or_else(|_| Err(self.disconnected()))
    }

    fn send(&self, body: &Body<'_>, give_back: Option<GiveBack>) -> Result<Awaited<'_>> {
        let (sender, answer) = oneshot::channel();
        let mut state = self.state();
        if let Some(reason) = &state.end {
            return Err(Error::disconnected(Arc::clone(reason)));
        }
        let sync = state.pending.insert(Waiter { answer: sender, give_back: give_back.clone() });
        state.made = state.made.wrapping_add(1);
        request::encode(&mut state.output, sync, body);
        drop(state);
        self.has_output.notify_one();
        Ok(Awaited { answer, give_back, shared: self })
    }

    /// Asks for a sign of life. The answer is not read.
    fn ping(&self) {
        request::encode(&mut self.state().output, SIGN_OF_LIFE, &Body::Ping);
        self.has_output.notify_one();
    }

    fn disconnected(&self) -> Error {
        let reason = self.state().end.clone();
        Error::disconnected(reason.unwrap_or_else(|| Arc::from("closed")))
    }

    /// Ends the connection, once: nothing is sent any more, and all who wait are told.
    fn finish(&self, reason: &str) {
        let mut state = self.state();
        if state.end.is_some() {
            return;
        }
        let reason: Arc<str> = Arc::from(reason);
        state.end = Some(Arc::clone(&reason));
        state.output = Vec::new();
        let waiters = state.pending.drain();
        drop(state);
        for waiter in waiters {
            let _ = waiter.answer.send(Err(Error::disconnected(Arc::clone(&reason))));
        }
        self.permits.close();
        self.end.send_replace(Some(reason));
        self.close.notify_one();
    }

    /// Gives back the tasks of an answer without a reader; whether that works is not asked.
    fn give_back(&self, state: &mut State, give_back: &GiveBack, response: &Response) {
        let Some((procedure, args)) = give_back.call(response) else {
            return;
        };
        let body = Body::Call { name: procedure.as_bytes(), args: args.as_bytes() };
        request::encode(&mut state.output, SIGN_OF_LIFE, &body);
        self.has_output.notify_one();
    }

    /// Delivers every whole frame of `input` and returns their length.
    fn deliver(&self, input: &[u8], max_answer_size: usize) -> Result<usize, String> {
        let mut consumed = 0;
        let mut state = self.state();
        state.received = state.received.wrapping_add(1);
        loop {
            match frame::split(&input[consumed..], max_answer_size).map_err(|error| error.to_string())? {
                Split::NeedMore(_) => return Ok(consumed),
                Split::Frame { content, consumed: length } => {
                    consumed += length;
                    let reply =
                        reply::decode(content).map_err(|error| format!("malformed answer: {error}"))?;
                    if matches!(reply.content, Content::Push { .. }) {
                        continue;
                    }
                    let Some(waiter) = state.pending.remove(reply.sync) else {
                        continue;
                    };
                    self.permits.add_permits(1);
                    let unread = waiter.answer.send(answer(reply)).err();
                    if let (Some(Ok(response)), Some(give_back)) = (unread, waiter.give_back) {
                        self.give_back(&mut state, &give_back, &response);
                    }
                }
            }
        }
    }
}

fn answer(reply: reply::Reply<'_>) -> Result<Response> {
    match reply.content {
        // A vote comes under a key of its own.
        Content::Ok { body: &[0x81, keys::BALLOT, ref ballot @ ..], .. } => {
            Ok(Response::new([&[0x91], ballot].concat(), reply.schema_version))
        }
        Content::Ok { data, .. } | Content::Push { data } => {
            Ok(Response::new(data.to_vec(), reply.schema_version))
        }
        Content::Error(error) => {
            let kind = Kind::of(&error);
            Err(Error::Server { code: error.code, message: error.message, kind })
        }
    }
}

/// An answer that is being waited for.
struct Awaited<'a> {
    answer: oneshot::Receiver<Result<Response>>,
    give_back: Option<GiveBack>,
    shared: &'a Shared,
}

/// The answer may have arrived unread. Later ones find the channel closed.
impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        let Some(give_back) = self.give_back.take() else {
            return;
        };
        self.answer.close();
        if let Ok(Ok(response)) = self.answer.try_recv() {
            self.shared.give_back(&mut self.shared.state(), &give_back, &response);
        }
    }
}

/// Carries a connection until it ends.
async fn drive<R, W>(
    shared: Arc<Shared>,
    reader: R,
    writer: W,
    input: Vec<u8>,
    max_answer_size: usize,
    keep_alive_period: Duration,
) where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let reason = tokio::select! {
        reason = receive(&shared, reader, input, max_answer_size) => reason,
        reason = transmit(&shared, writer) => reason,
        reason = keep_alive(&shared, keep_alive_period) => reason,
        () = shared.close.notified() => return,
    };
    shared.finish(&reason);
}

async fn receive(
    shared: &Shared,
    mut reader: impl AsyncRead + Unpin,
    mut input: Vec<u8>,
    max_answer_size: usize,
) -> String {
    loop {
        match shared.deliver(&input, max_answer_size) {
            Ok(consumed) => drop(input.drain(..consumed)),
            Err(reason) => return reason,
        }
        input.reserve(READ_SIZE);
        match reader.read_buf(&mut input).await {
            Ok(0) => return String::from("the server closed the connection"),
            Ok(_) => {}
            Err(error) => return reason(&error),
        }
    }
}

async fn transmit(shared: &Shared, mut writer: impl AsyncWrite + Unpin) -> String {
    let mut batch = Vec::new();
    loop {
        std::mem::swap(&mut batch, &mut shared.state().output);
        if batch.is_empty() {
            shared.has_output.notified().await;
            continue;
        }
        if let Err(error) = write(&mut writer, &batch).await {
            return error.to_string();
        }
        batch.clear();
        batch.shrink_to(OUTPUT_KEPT);
    }
}

/// TLS keeps what it has encrypted until it is flushed.
async fn write(writer: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    writer.write_all(bytes).await?;
    writer.flush().await
}

async fn keep_alive(shared: &Shared, period: Duration) -> String {
    if period.is_zero() {
        return std::future::pending().await;
    }
    let (mut unanswered, mut received) = (0, shared.state().received);
    loop {
        tokio::time::sleep(period).await;
        let known = std::mem::replace(&mut received, shared.state().received);
        if received != known {
            unanswered = 0;
        } else if unanswered == KEEP_ALIVE_ATTEMPTS {
            return String::from("the server does not answer any more");
        } else {
            unanswered += 1;
            shared.ping();
        }
    }
}

/// Reads one reply and leaves what follows it in `input`.
async fn read_answer(
    reader: &mut (impl AsyncRead + Unpin),
    input: &mut Vec<u8>,
    max_answer_size: usize,
) -> Result<Response> {
    loop {
        if let Split::Frame { content, consumed } =
            frame::split(input, max_answer_size).map_err(|error| Error::protocol(error.to_string()))?
        {
            let reply = reply::decode(content)?;
            let awaited = (reply.sync != SIGN_OF_LIFE).then(|| answer(reply));
            drop(input.drain(..consumed));
            match awaited {
                Some(answer) => return answer,
                None => continue,
            }
        }
        if reader.read_buf(input).await.map_err(lost)? == 0 {
            return Err(Error::disconnected("the server closed the connection"));
        }
    }
}

async fn within<T>(timeout: Duration, work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(timeout, work).await.unwrap_or(Err(Error::Timeout(timeout)))
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn lost(error: io::Error) -> Error {
    Error::disconnected(reason(&error))
}

/// Reads the greeting. A server that has not sent it after `patience` is asked whether it lives: one that still reads its data
/// says how far it is then, in place of a greeting.
async fn greet<R, W>(reader: &mut R, writer: &mut W, patience: Duration) -> Result<Greeting>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut greeting = pin!(read_greeting(reader));
    if let Ok(greeting) = tokio::time::timeout(patience, &mut greeting).await {
        return greeting;
    }
    let mut output = Vec::new();
    request::encode(&mut output, SIGN_OF_LIFE, &Body::Ping);
    write(writer, &output).await.map_err(lost)?;
    greeting.await
}

/// Reads the first words of the peer.
async fn read_greeting<R: AsyncRead + Unpin>(reader: &mut R) -> Result<Greeting> {
    let mut bytes = [0; GREETING_SIZE];
    let mut length = 0;
    while length < GREETING_SIZE {
        match reader.read(&mut bytes[length..]).await.map_err(lost)? {
            0 => return Err(Error::disconnected(foreign(&bytes[..length]))),
            more => length += more,
        }
    }
    Greeting::decode(&bytes).map_err(|error| {
        refusal(&bytes).unwrap_or_else(|| match error {
            GreetingError::Program => Error::disconnected(foreign(&bytes)),
            error => error.into(),
        })
    })
}

/// How the first words of other servers begin, and what they speak.
const FOREIGN: [(&[u8], &str); 7] = [
    (b"HTTP/", "HTTP"),
    (b"SSH-", "SSH"),
    (b"-", "the protocol of Redis"),
    (b"220", "SMTP or FTP"),
    (b"AMQP", "AMQP"),
    (b"\x15\x03", "TLS: the address begins with tls:// then"),
    (b"\x16\x03", "TLS: the address begins with tls:// then"),
];

/// The most bytes of a foreign answer that are shown.
const SHOWN: usize = 40;

/// What a peer is that has said this, which is no greeting, and no more.
fn foreign(said: &[u8]) -> String {
    if said.is_empty() {
        return "the peer closed the connection without a greeting: it is no Lycosa or Tarantool (one of TLS or HTTP waits for \
                the client to begin), or it ended just now"
            .to_owned();
    }
    let first_line = said.split(|byte| *byte == b'\n').next().unwrap_or(said);
    if first_line.starts_with(b"Tarantool ") && first_line.trim_ascii_end().ends_with(b"(Lua console)") {
        return "the peer is a text console, as console.listen opens it, not the binary protocol: use the address of listen \
                in its configuration, or of box.cfg.listen"
            .to_owned();
    }
    let shown = said[..said.len().min(SHOWN)].escape_ascii();
    let more = if said.len() > SHOWN { "…" } else { "" };
    let speaks = FOREIGN.iter().find(|(begin, _)| said.starts_with(begin));
    let speaks = speaks.map_or_else(String::new, |(_, name)| format!(", it speaks {name}"));
    format!("the peer is no Lycosa or Tarantool{speaks}: it answers \"{shown}{more}\"")
}

/// Why a stream ended, for people.
fn reason(error: &io::Error) -> String {
    #[cfg(feature = "tls")]
    if let Some(error) = error.get_ref().and_then(|cause| cause.downcast_ref()) {
        return lycosa_tls::explain(error);
    }
    error.to_string()
}

/// What a server of Lycosa says to a client that it cannot serve, in place of a greeting.
fn refusal(bytes: &[u8; GREETING_SIZE]) -> Option<Error> {
    let text = std::str::from_utf8(bytes).ok()?.trim_end();
    let refusal = text.strip_prefix(REFUSAL_PREFIX)?;
    Some(match refusal.starts_with(STARTING) {
        true => Error::Starting(refusal.to_owned()),
        false => Error::disconnected(text),
    })
}

#[cfg(test)]
mod tests;
