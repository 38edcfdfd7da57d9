//! The bytes between the load and a server: a socket, in plain text or with TLS.
//!
//! A [`Wire`] reads and writes like its socket, blocking or not. With TLS a read decrypts until the socket has no more, so
//! a caller that waits for readiness reads until [`io::ErrorKind::WouldBlock`]. A write accepts what fits the buffer of the
//! encryption; [`Write::flush`] sends the rest of it.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use lycosa_tls::rustls::pki_types::ServerName;
use lycosa_tls::rustls::{self, ClientConfig, ClientConnection};

use crate::connect;

/// How to speak TLS with a server: the trusted authorities, and the name of its certificate.
#[derive(Debug, Clone)]
pub(crate) struct Tls {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) name: ServerName<'static>,
}

/// A socket, in plain text or with TLS over it.
#[derive(Debug)]
pub(crate) enum Wire<S> {
    Plain(S),
    Tls(Box<ClientConnection>, S),
}

impl Wire<TcpStream> {
    /// Connects, and with `tls` ends the handshake.
    pub(crate) fn connect(address: SocketAddr, tls: Option<&Tls>) -> Result<Self> {
        let mut stream = connect(address)?;
        let Some(tls) = tls else { return Ok(Self::Plain(stream)) };
        let mut connection = ClientConnection::new(Arc::clone(&tls.config), tls.name.clone())?;
        while connection.is_handshaking() {
            connection.complete_io(&mut stream).map_err(|error| {
                let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
                anyhow!(
                    "no TLS with {address}: {}",
                    cause.map_or_else(|| error.to_string(), lycosa_tls::explain)
                )
            })?;
        }
        Ok(Self::Tls(Box::new(connection), stream))
    }

    /// The same connection, of which reads and writes do not wait from now on.
    pub(crate) fn into_nonblocking(self) -> Result<Wire<mio::net::TcpStream>> {
        let converted = |stream: TcpStream| {
            stream.set_nonblocking(true).context("a socket cannot be made non-blocking")?;
            anyhow::Ok(mio::net::TcpStream::from_std(stream))
        };
        Ok(match self {
            Self::Plain(stream) => Wire::Plain(converted(stream)?),
            Self::Tls(connection, stream) => Wire::Tls(connection, converted(stream)?),
        })
    }
}

impl<S> Wire<S> {
    /// The socket, to wait for it.
    pub(crate) fn socket(&mut self) -> &mut S {
        match self {
            Self::Plain(stream) | Self::Tls(_, stream) => stream,
        }
    }

    /// Whether a read that did not fill its buffer has emptied the socket.
    pub(crate) fn short_read_is_last(&self) -> bool {
        matches!(self, Self::Plain(_))
    }
}

/// Sends encrypted bytes until none are left or the socket takes no more.
fn send<S: Write>(connection: &mut ClientConnection, stream: &mut S) -> io::Result<()> {
    while connection.wants_write() {
        connection.write_tls(stream)?;
    }
    Ok(())
}

impl<S: Read + Write> Read for Wire<S> {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        let (connection, stream) = match self {
            Self::Plain(stream) => return stream.read(space),
            Self::Tls(connection, stream) => (connection, stream),
        };
        loop {
            match connection.reader().read(space) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
            if connection.read_tls(stream)? == 0 {
                return Ok(0);
            }
            connection
                .process_new_packets()
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
    }
}

impl<S: Read + Write> Write for Wire<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(connection, stream) => {
                let count = connection.writer().write(bytes)?;
                match send(connection, stream) {
                    // The buffer has the accepted bytes, and the next write or flush sends them.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock && count > 0 => Ok(count),
                    result => result.map(|()| count),
                }
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(connection, stream) => send(connection, stream),
        }
    }
}
