//! One stream socket, TCP or Unix, split into the half that a connection's task reads and the half that a turn writes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::net::Shutdown;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::{TcpStream, UnixStream, tcp, unix};

/// The reading half.
pub(crate) enum Reader {
    Tcp(tcp::OwnedReadHalf),
    Unix(unix::OwnedReadHalf),
}

/// The writing half.
pub(crate) enum Writer {
    Tcp(tcp::OwnedWriteHalf),
    Unix(unix::OwnedWriteHalf),
}

pub(crate) fn split_tcp(stream: TcpStream) -> (Reader, Writer) {
    let (reader, writer) = stream.into_split();
    (Reader::Tcp(reader), Writer::Tcp(writer))
}

pub(crate) fn split_unix(stream: UnixStream) -> (Reader, Writer) {
    let (reader, writer) = stream.into_split();
    (Reader::Unix(reader), Writer::Unix(writer))
}

impl Reader {
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Reader::Tcp(half) => Pin::new(half).poll_read(cx, buffer),
            Reader::Unix(half) => Pin::new(half).poll_read(cx, buffer),
        }
    }
}

impl Writer {
    /// Writes what the kernel takes without waiting.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Writer::Tcp(half) => half.try_write(bytes),
            Writer::Unix(half) => half.try_write(bytes),
        }
    }

    /// Tells the peer that nothing more comes.
    pub(crate) fn shut_down(&self) -> io::Result<()> {
        match self {
            Writer::Tcp(half) => rustix::net::shutdown(half.as_ref(), Shutdown::Write)?,
            Writer::Unix(half) => rustix::net::shutdown(half.as_ref(), Shutdown::Write)?,
        }
        Ok(())
    }

    /// Waits until the kernel takes more bytes.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            Writer::Tcp(half) => half.writable().await,
            Writer::Unix(half) => half.writable().await,
        }
    }
}
