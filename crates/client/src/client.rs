//! A client: one connection kept alive, and the queue session that goes with it.
//!
//! A background task waits for the connection to end and makes another, with growing pauses. Before a new connection is
//! handed out it has been authenticated and has joined the old queue session. Invariants:
//! - the session in [`Status`] is the one that the current connection belongs to;
//! - `identity` is held while either changes, so a session cannot be noted for a connection that is already replaced.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use lycosa_iproto::repeat;
use lycosa_iproto::request::Body;
use lycosa_tuple::mp::{self, Reader};
use tokio::sync::{Mutex, Notify, watch};
use tokio::time::Instant;
use uuid::Uuid;

use crate::array::Array;
use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::give_back::GiveBack;
use crate::kind::Kind;
use crate::options::ConnectOptions;
use crate::response::Response;
use crate::status::{Link, Status, StatusWatch};

/// What a queue that does not run answers in place of a task.
const NIL: u8 = 0xc0;

/// Pause before a take is made again.
const REPEAT_PAUSE: Duration = Duration::from_millis(20);

const IDENTIFY: &str = "queue.identify";

/// A client of one server that survives its connections. Clones share it; it is closed when the last is dropped,
/// tubes and tasks made from it included.
#[derive(Debug, Clone)]
pub struct Client {
    handle: Arc<Handle>,
}

/// Closes the client when the last clone goes, although the background task still holds the core.
#[derive(Debug)]
struct Handle {
    core: Arc<Core>,
}

#[derive(Debug)]
struct Core {
    options: ConnectOptions,
    current: watch::Sender<Current>,
    status: watch::Sender<Status>,
    identity: Mutex<()>,
    close: Notify,
    /// The address of a server that was left although it takes writes: another one is the master.
    avoided: std::sync::Mutex<Option<String>>,
    /// Whether a caller asks for the master.
    looks: AtomicBool,
}

#[derive(Debug)]
enum Current {
    Up(Connection),
    Down(Arc<str>),
    Closed,
}

impl Current {
    fn usable(&self) -> Option<&Connection> {
        match self {
            Self::Up(connection) if !connection.is_closed() => Some(connection),
            _ => None,
        }
    }
}

/// How a call on behalf of a queue is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallMode {
    /// Whether tasks are owned by it: the session has to be known before.
    pub(crate) needs_session: bool,
    /// Whether it changes nothing, so that it may be made again after a lost connection.
    pub(crate) is_repeatable: bool,
    /// How long the server itself may take by intention; `None` for ever.
    pub(crate) extra_time: Option<Duration>,
}

impl CallMode {
    /// A call that changes something but needs no session.
    pub(crate) const CHANGE: Self =
        Self { needs_session: false, is_repeatable: false, extra_time: Some(Duration::ZERO) };
    /// A call that changes who owns a task.
    pub(crate) const OWNED: Self = Self { needs_session: true, ..Self::CHANGE };
    /// A call that only looks.
    pub(crate) const READ: Self = Self { is_repeatable: true, ..Self::CHANGE };
}

impl Client {
    /// Connects and authenticates. Only this first attempt can fail; later ones are repeated.
    ///
    /// # Errors
    /// As [`Connection::connect`].
    pub async fn connect(options: ConnectOptions) -> Result<Self> {
        let connection = Connection::connect(&options).await?;
        let status = Status { link: Link::Connected, connects: 1, session: None, session_changes: 0 };
        let core = Arc::new(Core {
            options,
            current: watch::Sender::new(Current::Up(connection.clone())),
            status: watch::Sender::new(status),
            identity: Mutex::new(()),
            close: Notify::new(),
            avoided: std::sync::Mutex::default(),
            looks: AtomicBool::new(false),
        });
        tokio::spawn(supervise(Arc::clone(&core), connection));
        Ok(Self { handle: Arc::new(Handle { core }) })
    }

    /// The connection as it is now, for requests of any kind. If there is none, waits for one as long as a request
    /// may take.
    ///
    /// # Errors
    /// [`Error::Disconnected`] with the reason why there is none.
    pub async fn connection(&self) -> Result<Connection> {
        let core = &self.handle.core;
        if let Some(connection) = core.current.borrow().usable() {
            return Ok(connection.clone());
        }
        let mut current = core.current.subscribe();
        let usable =
            current.wait_for(|current| current.usable().is_some() || matches!(current, Current::Closed));
        if let Ok(Ok(current)) = tokio::time::timeout(core.options.request_timeout, usable).await
            && let Current::Up(connection) = &*current
        {
            return Ok(connection.clone());
        }
        match &*core.current.borrow() {
            Current::Up(connection) => Ok(connection.clone()),
            Current::Down(reason) => Err(Error::disconnected(Arc::clone(reason))),
            Current::Closed => Err(Error::disconnected("closed by this client")),
        }
    }

    /// Asks for a sign of life.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn ping(&self) -> Result<()> {
        self.repeating(&Body::Ping, Some(self.handle.core.options.request_timeout)).await.map(drop)
    }

    /// The present state of connection and session.
    pub fn status(&self) -> Status {
        self.handle.core.status.borrow().clone()
    }

    /// A view that can wait for the status to change.
    pub fn watch(&self) -> StatusWatch {
        StatusWatch::new(self.handle.core.status.subscribe())
    }

    /// Ends the connection and makes no other. Requests in flight end with [`Error::Disconnected`].
    pub fn close(&self) {
        self.handle.core.close();
    }

    pub(crate) async fn call(&self, name: &str, args: &Array, mode: CallMode) -> Result<Response> {
        let timeout = self.timeout(mode);
        let body = Body::Call { name: name.as_bytes(), args: args.as_bytes() };
        if mode.is_repeatable {
            return self.repeating(&body, timeout).await;
        }
        let connection = self.session_connection(mode).await?;
        let result = self.attending(&connection, timeout, connection.request_within(&body, timeout)).await;
        self.look_for_master(&connection, &result);
        result
    }

    /// The same for a procedure that takes tasks, which are given back as `give_back` says if the caller is gone when
    /// they come.
    pub(crate) async fn take(
        &self,
        name: &str,
        args: &Array,
        mode: CallMode,
        give_back: GiveBack,
    ) -> Result<Response> {
        let connection = self.session_connection(mode).await?;
        let named = repeat::timeout_at(name.as_bytes())
            .filter(|_| connection.is_in_group())
            .and_then(|at| Some((at, repeat::first(args.as_bytes(), at, Uuid::new_v4().as_bytes())?)));
        let Some((at, named)) = named else {
            return self.take_once(connection, name, args.as_bytes(), self.timeout(mode), give_back).await;
        };
        self.take_repeatedly(connection, name, (at, named), mode, give_back).await
    }

    /// Makes a take of a group. If its connection ends or the leader changes, the take is made again, with its name: the session
    /// gets the tasks that the lost answer had.
    async fn take_repeatedly(
        &self,
        mut connection: Connection,
        name: &str,
        (at, named): (usize, Vec<u8>),
        mode: CallMode,
        give_back: GiveBack,
    ) -> Result<Response> {
        let began = Instant::now();
        let (mut args, limit) = (named.clone(), self.timeout(mode));
        let mut attempt = 0;
        loop {
            let left = limit.map(|limit| limit.saturating_sub(began.elapsed()));
            let result = self.take_once(connection, name, &args, left, give_back.clone()).await;
            let is_lost = matches!(&result, Err(error) if error.is_disconnected() || error.kind() == Some(Kind::OutcomeUnknown));
            if !is_lost || left.is_some_and(|left| left.is_zero()) {
                return result;
            }
            attempt += repeat::CLIENT_STEP;
            let Some(again) = repeat::again(&named, at, began.elapsed(), attempt) else { return result };
            args = again;
            tokio::time::sleep(REPEAT_PAUSE).await;
            // A client that is closed, or has no server for longer than a request may take, says so.
            connection = self.session_connection(mode).await?;
        }
    }

    async fn take_once(
        &self,
        connection: Connection,
        name: &str,
        args: &[u8],
        timeout: Option<Duration>,
        give_back: GiveBack,
    ) -> Result<Response> {
        let body = Body::Call { name: name.as_bytes(), args };
        let request = connection.request_giving_back(&body, timeout, Some(give_back));
        let result = self.attending(&connection, timeout, request).await;
        self.look_for_master(&connection, &result);
        result
    }

    /// Awaits an answer that the server may withhold by intention, such as that of a `take` that waits for a task. The
    /// server may also have it and not confirm it, so with several addresses the client asks now and then.
    async fn attending(
        &self,
        connection: &Connection,
        timeout: Option<Duration>,
        request: impl Future<Output = Result<Response>>,
    ) -> Result<Response> {
        let options = &self.handle.core.options;
        let period = options.request_timeout;
        if !options.has_several() || timeout.is_some_and(|timeout| timeout <= period) {
            return request.await;
        }
        let mut request = std::pin::pin!(request);
        loop {
            match tokio::time::timeout(period, &mut request).await {
                Ok(result) => return result,
                Err(_) => self.look(connection, Doubt::Wait),
            }
        }
    }

    /// With several addresses: looks for another master if the answer lets doubt that this server is the one.
    fn look_for_master(&self, connection: &Connection, result: &Result<Response>) {
        if let Some(doubt) = Doubt::of(result).filter(|_| self.handle.core.options.has_several()) {
            self.look(connection, doubt);
        }
    }

    fn look(&self, connection: &Connection, doubt: Doubt) {
        let core = &self.handle.core;
        if core.looks.swap(true, Ordering::SeqCst) {
            return;
        }
        let (core, connection) = (Arc::clone(core), connection.clone());
        tokio::spawn(async move {
            core.leave_if_replaced(&connection, doubt).await;
            core.looks.store(false, Ordering::SeqCst);
        });
    }

    fn timeout(&self, mode: CallMode) -> Option<Duration> {
        mode.extra_time.map(|time| time.saturating_add(self.handle.core.options.request_timeout))
    }

    async fn session_connection(&self, mode: CallMode) -> Result<Connection> {
        let connection = self.connection().await?;
        if mode.needs_session && self.handle.core.status.borrow().session.is_none() {
            self.handle.core.begin_session(&connection).await?;
        }
        Ok(connection)
    }

    /// Makes this client's session the one with the given UUID, or asks for the one it has.
    pub(crate) async fn identify(&self, session: Option<Uuid>) -> Result<Uuid> {
        let core = &self.handle.core;
        let connection = self.connection().await?;
        let _identity = core.identity.lock().await;
        let session = identify(&connection, session).await?;
        core.note_session(&connection, session)?;
        Ok(session)
    }

    /// Makes a request that changes nothing, and once more if the connection is lost over it.
    async fn repeating(&self, body: &Body<'_>, timeout: Option<Duration>) -> Result<Response> {
        let mut connection = self.connection().await?;
        let mut result = connection.request_within(body, timeout).await;
        if let Err(Error::Disconnected(_)) = result {
            connection = self.connection().await?;
            result = connection.request_within(body, timeout).await;
        }
        self.look_for_master(&connection, &result);
        result
    }
}

/// Why a server may not be the master.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doubt {
    /// It answers as one that takes no writes.
    Role,
    /// It takes its time, as it was asked to. That is a reason to leave only if it does not confirm changes.
    Wait,
    /// It may confirm nothing: replies wait for replicas, or changes are refused without them. It may have been replaced
    /// and not know. A busy master lets the same doubt arise.
    Replicas,
}

impl Doubt {
    fn of(result: &Result<Response>) -> Option<Self> {
        match result {
            Ok(response) => (response.first() == Some(&[NIL])).then_some(Self::Role),
            Err(Error::Timeout(_)) => Some(Self::Replicas),
            Err(error) => match error.kind()? {
                Kind::ReadOnly => Some(Self::Role),
                Kind::ReplicasMissing => Some(Self::Replicas),
                _ => None,
            },
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.core.close();
    }
}

impl Core {
    fn close(&self) {
        if let Current::Up(connection) = self.current.send_replace(Current::Closed) {
            connection.close();
        }
        self.status.send_modify(|status| status.link = Link::Closed);
        self.close.notify_one();
    }

    async fn begin_session(&self, connection: &Connection) -> Result<()> {
        let _identity = self.identity.lock().await;
        if self.status.borrow().session.is_some() {
            return Ok(());
        }
        let session = identify(connection, None).await?;
        self.note_session(connection, session)
    }

    /// To be called with `identity` held.
    fn note_session(&self, connection: &Connection, session: Uuid) -> Result<()> {
        if connection.is_closed() {
            return Err(Error::disconnected("the connection ended while the session began"));
        }
        self.status.send_if_modified(|status| status.session.replace(session) != Some(session));
        Ok(())
    }

    /// Ends a connection whose server says that it takes no writes, or that another server outranks as the master.
    async fn leave_if_replaced(&self, connection: &Connection, doubt: Doubt) {
        let told = match doubt {
            Doubt::Role => connection.standing().await,
            // On this connection the ballot would come after the answer that is being waited for.
            Doubt::Wait | Doubt::Replicas => connection.standing_asked_anew(&self.options).await,
        };
        // Without an answer the server is busy or dead: `keep_alive` finds out.
        let Ok(own) = told else { return };
        if !own.takes_writes {
            return connection.leave("the server takes no writes any more");
        }
        let doubts = match doubt {
            Doubt::Role => false,
            Doubt::Wait => !own.is_sound(),
            Doubt::Replicas => true,
        };
        if doubts && connection.has_rival(&own, &self.options).await {
            *self.avoided() = Some(connection.address().to_owned());
            connection.leave("another server takes writes too, and is the master by its replicas");
        }
    }

    fn avoided(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.avoided.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a connection that belongs to the session of the one before, and hands it out.
    async fn reconnect(&self) -> Result<Connection> {
        let avoided = self.avoided().clone();
        let connection = Connection::connect_avoiding(&self.options, avoided.as_deref()).await?;
        let _identity = self.identity.lock().await;
        let before = self.status.borrow().session;
        let now = match before {
            None => None,
            Some(session) => match identify(&connection, Some(session)).await {
                Err(error) if error.kind() == Some(Kind::NoSuchSession) => {
                    Some(identify(&connection, None).await?)
                }
                result => Some(result?),
            },
        };
        let mut is_closed = false;
        self.current.send_if_modified(|current| {
            is_closed = matches!(current, Current::Closed);
            if !is_closed {
                *current = Current::Up(connection.clone());
            }
            !is_closed
        });
        if is_closed {
            return Err(Error::disconnected("closed by this client"));
        }
        self.status.send_modify(|status| {
            status.link = Link::Connected;
            status.connects += 1;
            status.session = now;
            status.session_changes += u64::from(now != before);
        });
        Ok(connection)
    }

    fn note_failure(&self, reason: &Arc<str>) {
        let is_open = self.current.send_if_modified(|current| {
            let is_open = !matches!(current, Current::Closed);
            if is_open {
                *current = Current::Down(Arc::clone(reason));
            }
            is_open
        });
        if is_open {
            self.status
                .send_modify(|status| status.link = Link::Connecting { last_error: Arc::clone(reason) });
        }
    }

    fn is_closed(&self) -> bool {
        matches!(*self.current.borrow(), Current::Closed)
    }

    /// Waits for about `pause`, or until the client is closed; returns the pause after it.
    async fn rest(&self, pause: Duration) -> Duration {
        // From half of the delay to all of it, so that clients do not return in step.
        let chance = f64::from(Uuid::new_v4().as_bytes()[0]) / 255.0;
        tokio::select! {
            () = tokio::time::sleep(pause.mul_f64(0.5 + chance / 2.0)) => {}
            () = self.close.notified() => self.close.notify_one(),
        }
        (pause * 2).min(self.options.backoff_max)
    }
}

/// Replaces `connection` when it ends, and so on, until the client is closed.
async fn supervise(core: Arc<Core>, mut connection: Connection) {
    let mut pause = core.options.backoff_min;
    loop {
        let made_at = Instant::now();
        let reason = tokio::select! {
            reason = connection.closed() => reason,
            () = core.close.notified() => return,
        };
        core.note_failure(&reason);
        // A connection that ends at once is no better than none: then the pauses go on growing.
        if made_at.elapsed() > core.options.backoff_max {
            pause = core.options.backoff_min;
        } else {
            pause = core.rest(pause).await;
        }
        connection = loop {
            if core.is_closed() {
                return;
            }
            let attempt = tokio::select! {
                attempt = core.reconnect() => attempt,
                () = core.close.notified() => return,
            };
            match attempt {
                Ok(connection) => break connection,
                Err(error) => core.note_failure(&Arc::from(error.to_string())),
            }
            pause = core.rest(pause).await;
        };
    }
}

/// Asks which session the connection belongs to, or makes it belong to `session`.
async fn identify(connection: &Connection, session: Option<Uuid>) -> Result<Uuid> {
    let args = match session {
        None => Array::from(()),
        Some(session) => Array::written(1, |out| mp::write_str(out, &session.to_bytes_le())),
    };
    let response = connection.call(IDENTIFY, args).await?;
    let bytes = response.first().and_then(|first| Reader::new(first).str_or_bin().ok());
    let bytes = bytes.and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
    bytes.map(Uuid::from_bytes_le).ok_or_else(|| Error::protocol("queue.identify gave no UUID"))
}

#[cfg(test)]
mod tests;
