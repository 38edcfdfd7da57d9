//! One stream socket, TCP, TLS or Unix, split into the half that a connection's task reads and the half that a turn writes.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use std::{fs, io};

use anyhow::Context as _;
use lycosa_instance::Origin;
use rustix::net::{Shutdown, sockopt};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream, tcp, unix};

use crate::tls::TlsStream;

/// Binds a socket of this account alone; one that an ended server left behind is replaced (the caller holds the folder's
/// lock).
fn bind_private(folder: &Path, name: &str) -> io::Result<(UnixListener, PathBuf)> {
    let path = folder.join(name);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
    Ok((listener, path))
}

/// The same for a socket that a command needs; a server without it serves all the same (its path may be too long for a socket).
pub(crate) fn bind_for_command(folder: &Path, name: &str, command: &str) -> Option<(UnixListener, PathBuf)> {
    let bound = bind_private(folder, name).inspect_err(|error| {
        let folder = folder.display();
        tracing::warn!("no {name} in {folder}, so that `{command}` cannot work: {error}");
    });
    bound.ok()
}

/// Binds a TCP address; `flag` names another one.
///
/// # Errors
/// The address is in use, or cannot be bound.
pub(crate) async fn bind_tcp(address: &str, flag: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address}: is another server running? choose another with --{flag}")
    })
}

/// A connection to another server, with or without TLS.
pub(crate) type Stream = Box<dyn Duplex>;

/// Bytes in both directions.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Duplex for S {}

/// Probes a peer that is silent for `after`, again after each `interval`. After `probes` unanswered ones the connection ends.
pub(crate) fn probe(
    stream: &TcpStream,
    after: Duration,
    interval: Duration,
    probes: u32,
) -> rustix::io::Result<()> {
    sockopt::set_tcp_keepidle(stream, after)?;
    sockopt::set_tcp_keepintvl(stream, interval)?;
    sockopt::set_tcp_keepcnt(stream, probes)?;
    sockopt::set_socket_keepalive(stream, true)
}

/// A connection of a client: both halves, and where it comes from.
pub(crate) struct Accepted {
    pub(crate) reader: Reader,
    pub(crate) writer: Writer,
    pub(crate) origin: Origin,
}

impl Accepted {
    pub(crate) fn new((reader, writer): (Reader, Writer), origin: Origin) -> Self {
        Self { reader, writer, origin }
    }
}

/// The reading half.
pub(crate) enum Reader {
    Tcp(tcp::OwnedReadHalf),
    Tls(Rc<TlsStream>),
    Unix(unix::OwnedReadHalf),
}

/// The writing half.
pub(crate) enum Writer {
    Tcp(tcp::OwnedWriteHalf),
    Tls(Rc<TlsStream>),
    Unix(unix::OwnedWriteHalf),
}

pub(crate) fn split_tcp(stream: TcpStream) -> (Reader, Writer) {
    let (reader, writer) = stream.into_split();
    (Reader::Tcp(reader), Writer::Tcp(writer))
}

pub(crate) fn split_tls(stream: Rc<TlsStream>) -> (Reader, Writer) {
    (Reader::Tls(stream.clone()), Writer::Tls(stream))
}

pub(crate) fn split_unix(stream: UnixStream) -> (Reader, Writer) {
    let (reader, writer) = stream.into_split();
    (Reader::Unix(reader), Writer::Unix(writer))
}

impl AsyncRead for Reader {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Reader::Tcp(half) => Pin::new(half).poll_read(cx, buffer),
            Reader::Tls(stream) => stream.poll_read(cx, buffer),
            Reader::Unix(half) => Pin::new(half).poll_read(cx, buffer),
        }
    }
}

impl Writer {
    /// Writes what the kernel takes without waiting.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Writer::Tcp(half) => half.try_write(bytes),
            Writer::Tls(stream) => stream.try_write(bytes),
            Writer::Unix(half) => half.try_write(bytes),
        }
    }

    /// Whether bytes that [`try_write`](Self::try_write) has taken still wait for the kernel; writing again, even
    /// nothing, passes them on.
    pub(crate) fn has_backlog(&self) -> bool {
        match self {
            Writer::Tcp(_) | Writer::Unix(_) => false,
            Writer::Tls(stream) => stream.has_backlog(),
        }
    }

    /// Whether the peer is on this machine by the kind of its socket.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self, Writer::Unix(_))
    }

    /// Says that nothing more comes, in protocols that have a word for it.
    pub(crate) fn finish(&self) {
        if let Writer::Tls(stream) = self {
            stream.finish();
        }
    }

    /// Tells the peer that nothing more comes.
    pub(crate) fn shut_down(&self) -> io::Result<()> {
        self.finish();
        match self {
            Writer::Tls(stream) => rustix::net::shutdown(stream.socket(), Shutdown::Write)?,
            Writer::Tcp(half) => rustix::net::shutdown(half.as_ref(), Shutdown::Write)?,
            Writer::Unix(half) => rustix::net::shutdown(half.as_ref(), Shutdown::Write)?,
        }
        Ok(())
    }

    /// Writes all of `bytes`, and what waits for the kernel.
    pub(crate) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() || self.has_backlog() {
            match self.try_write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                Err(error) => return Err(error),
            }
            if bytes.is_empty() && self.has_backlog() {
                self.writable().await?;
            }
        }
        Ok(())
    }

    /// Waits until the kernel takes more bytes.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            Writer::Tcp(half) => half.writable().await,
            Writer::Tls(stream) => stream.writable().await,
            Writer::Unix(half) => half.writable().await,
        }
    }
}
