//! TLS on a listening socket: the handshake, and the stream that a connection reads and a turn writes.
//!
//! The state machine of TLS does no I/O, so that a turn can write without waiting, as it does to a plain socket: what
//! the kernel does not take stays encrypted in the stream's own buffer, at most [`BUFFER`] bytes, until the socket is
//! writable again ([`TlsStream::has_backlog`]).
//!
//! A connection reaches the instance only after its handshake, client certificate included. A client that does not begin one
//! gets an answer in plain text that says what the port is for: a client of the plain protocol waits for a greeting and would wait for
//! ever.
//!
//! Invariants: the state machine is never borrowed across an await; handshakes under way count as connections.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use lycosa_iproto::greeting;
use lycosa_tls::rustls::{self, ServerConfig, ServerConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

use crate::strangers::{Protocol, http_refusal};

/// Encrypted bytes that wait for the kernel, and decrypted ones before the end of the handshake.
const BUFFER: usize = 64 << 10;

/// How long a client may take to begin.
const SILENCE_LIMIT: Duration = Duration::from_secs(5);

/// How long a handshake may take.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// How long a refused client may take to read why.
const LINGER: Duration = Duration::from_secs(1);

/// First byte of a handshake.
pub(crate) const HANDSHAKE_RECORD: u8 = 0x16;

/// Bytes of a stranger that are looked at, or dropped after an answer.
const LOOKED_AT: usize = 8 << 10;

const NOT_HTTP: &str = "This is the port of a Lycosa task queue for its binary protocol (IPROTO) over TLS. It does not \
    speak HTTP, and the connection is closed.";

/// The bytes for a client of the plain protocol, in place of a greeting.
const NOT_PLAIN: &str =
    "this port speaks TLS and nothing else. Use tls:// and a CA file, or the server's plain port.";

/// A TCP socket with TLS.
pub(crate) struct TlsStream {
    stream: TcpStream,
    state: RefCell<ServerConnection>,
}

/// The socket as the state machine reads and writes it: without waiting.
struct Socket<'a>(&'a TcpStream);

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Does the handshake, or refuses the client. The error says why, for the log. Nothing if it goes away without a word, as
/// a program does that looks whether a port is open.
pub(crate) async fn accept(
    mut stream: TcpStream,
    config: Arc<ServerConfig>,
) -> Result<Option<Rc<TlsStream>>, String> {
    match tokio::time::timeout(SILENCE_LIMIT, first_bytes(&stream)).await {
        Ok(Ok(first)) if first.first() == Some(&HANDSHAKE_RECORD) => {}
        Ok(Ok(first)) if first.is_empty() => return Ok(None),
        Ok(Ok(first)) => return Err(refuse(&mut stream, &first).await),
        Ok(Err(error)) => return Err(error.to_string()),
        Err(_) => {
            tell(&mut stream, &greeting::refusal(NOT_PLAIN)).await;
            return Err("it began no TLS, as a client without tls:// does".to_owned());
        }
    }
    let mut state = ServerConnection::new(config).map_err(|error| error.to_string())?;
    state.set_buffer_limit(Some(BUFFER));
    let stream = Rc::new(TlsStream { stream, state: RefCell::new(state) });
    let handshake = std::future::poll_fn(|cx| stream.poll_handshake(cx));
    match tokio::time::timeout(HANDSHAKE_LIMIT, handshake).await {
        Ok(Ok(())) => Ok(Some(stream)),
        Ok(Err(error)) => Err(format!("no TLS handshake: {}", explain(&error))),
        Err(_) => Err(format!("no TLS handshake within {} s", HANDSHAKE_LIMIT.as_secs())),
    }
}

/// What went wrong, in words for a person if TLS says what.
pub(crate) fn explain(error: &io::Error) -> String {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    cause.map_or_else(|| error.to_string(), lycosa_tls::explain)
}

/// What a client sends first, which stays to be read; nothing if it goes away.
async fn first_bytes(stream: &TcpStream) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; LOOKED_AT];
    let count = stream.peek(&mut bytes).await?;
    bytes.truncate(count);
    Ok(bytes)
}

/// Answers a client that does not speak TLS, in the protocol that it seems to speak.
async fn refuse(stream: &mut TcpStream, first: &[u8]) -> String {
    if Protocol::recognize(first) == Protocol::Http {
        tell(stream, &http_refusal(NOT_HTTP)).await;
        "it sent an HTTP request to a port for TLS".to_owned()
    } else {
        tell(stream, &greeting::refusal(NOT_PLAIN)).await;
        "it sent something else than TLS".to_owned()
    }
}

/// Sends a last text, and reads what the peer still sends: a socket that is closed with unread bytes is reset.
pub(crate) async fn tell(stream: &mut TcpStream, text: &[u8]) {
    let telling = async {
        stream.write_all(text).await?;
        stream.shutdown().await?;
        let mut dropped = vec![0; LOOKED_AT];
        while stream.read(&mut dropped).await? > 0 {}
        io::Result::Ok(())
    };
    // A client that does not read it gets no message.
    let _ = tokio::time::timeout(LINGER, telling).await;
}

impl TlsStream {
    /// Whether bytes are encrypted that the kernel has not taken yet.
    pub(crate) fn has_backlog(&self) -> bool {
        self.state.borrow().wants_write()
    }

    /// Encrypts and writes what fits without waiting. Returns how many of `bytes` were taken, of which some may be
    /// backlog now.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.state.borrow_mut();
        let mut taken = 0;
        loop {
            let is_free = self.flush(&mut state)?;
            if taken == bytes.len() || !is_free {
                break;
            }
            taken += state.writer().write(&bytes[taken..])?;
        }
        if taken == 0 && !bytes.is_empty() { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(taken) }
    }

    /// Gives the kernel what it takes. Whether that was everything.
    fn flush(&self, state: &mut ServerConnection) -> io::Result<bool> {
        while state.wants_write() {
            match state.write_tls(&mut Socket(&self.stream)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Waits until the kernel takes more bytes.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.stream.writable().await
    }

    /// Reads decrypted bytes, as many as there are and fit.
    pub(crate) fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut state = self.state.borrow_mut();
        let before = buffer.filled().len();
        loop {
            let room = buffer.initialize_unfilled();
            if room.is_empty() {
                return Poll::Ready(Ok(()));
            }
            match state.reader().read(room) {
                Ok(0) => return Poll::Ready(Ok(())),
                Ok(count) => {
                    buffer.advance(count);
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // A peer that closes its socket without a word has left all the same.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Poll::Ready(Ok(())),
                Err(error) => return Poll::Ready(Err(error)),
            }
            match self.poll_receive(cx, &mut state) {
                Poll::Ready(Ok(_)) => {}
                _ if buffer.filled().len() > before => return Poll::Ready(Ok(())),
                received => return received.map_ok(drop),
            }
        }
    }

    /// Takes encrypted bytes from the socket once; how many. No other task waits for reading.
    fn poll_receive(&self, cx: &mut Context<'_>, state: &mut ServerConnection) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            match state.read_tls(&mut Socket(&self.stream)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
                Ok(count) => {
                    let processed = state.process_new_packets();
                    // Answers of the protocol itself, an alert among them, leave at once or with the next reply.
                    let flushed = self.flush(state);
                    processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                    flushed?;
                    return Poll::Ready(Ok(count));
                }
            }
        }
    }

    fn poll_handshake(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.state.borrow_mut();
        loop {
            if !self.flush(&mut state)? {
                ready!(self.stream.poll_write_ready(cx))?;
                continue;
            }
            if !state.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            if ready!(self.poll_receive(cx, &mut state))? == 0 {
                let cause = "the client went away, perhaps because it does not trust the certificate";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, cause)));
            }
        }
    }

    /// Says that nothing more comes, as far as the kernel takes it at once.
    pub(crate) fn finish(&self) {
        let mut state = self.state.borrow_mut();
        state.send_close_notify();
        // A peer that cannot be reached any more has left.
        let _ = self.flush(&mut state);
    }

    /// The socket below.
    pub(crate) fn socket(&self) -> &TcpStream {
        &self.stream
    }
}
