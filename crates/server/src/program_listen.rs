//! `listen` of `box.cfg`: the TCP address or Unix socket that a program chooses, and may change while it runs.
//!
//! The socket is bound before the instance starts, so that an address in use is an error of `box.cfg`; who connects while
//! the instance starts is answered by [`crate::early`]. What a program binds is its own: the addresses of a configured server stay.

use std::io::{self, ErrorKind};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use tokio::task::{JoinHandle, spawn_local};

use crate::early::Awaited;
use crate::listener::{self, Listener};

/// An address as `listen` has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    Tcp(String),
    Unix(PathBuf),
}

impl Place {
    /// `3301`, `:3301`, `host:3301`, `*:3301`; `unix/:PATH`, or a path that begins with `/` or `./`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let path = text.strip_prefix("unix/:").or_else(|| text.strip_prefix("unix:"));
        let path = path.or_else(|| Some(text).filter(|text| text.starts_with(['/', '.'])));
        if let Some(path) = path.filter(|path| !path.is_empty()) {
            return Some(Self::Unix(PathBuf::from(path)));
        }
        let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
        port.parse::<u16>().ok()?;
        let host = if host.is_empty() || host == "*" { "0.0.0.0" } else { host };
        Some(Self::Tcp(format!("{host}:{port}")))
    }

    /// Binds the address. A socket that an ended process has left behind is replaced.
    ///
    /// # Errors
    /// The address is in use, or cannot be bound; with the address.
    pub(crate) fn bind(&self) -> Result<Bound, String> {
        self.try_bind().map_err(|error| {
            let address = match self {
                Self::Tcp(address) => address.clone(),
                Self::Unix(path) => path.display().to_string(),
            };
            let advice = match error.kind() {
                ErrorKind::AddrInUse => ": is another server running? choose another address",
                _ => "",
            };
            format!("Can't listen on {address}: {error}{advice}")
        })
    }

    fn try_bind(&self) -> io::Result<Bound> {
        let path = match self {
            Self::Tcp(address) => {
                let listener = std::net::TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                let address = listener.local_addr()?.to_string();
                return Ok(Bound { address, socket: Socket::Tcp(listener) });
            }
            Self::Unix(path) => path,
        };
        let is = |error: io::Error, kind: ErrorKind| error.kind() == kind;
        let listener = match UnixListener::bind(path) {
            Err(error)
                if error.kind() == ErrorKind::AddrInUse
                    && UnixStream::connect(path)
                        .is_err_and(|error| is(error, ErrorKind::ConnectionRefused)) =>
            {
                std::fs::remove_file(path)?;
                UnixListener::bind(path)?
            }
            bound => bound?,
        };
        listener.set_nonblocking(true)?;
        let address = format!("unix/:{}", path.display());
        Ok(Bound { address, socket: Socket::Unix(listener, path.clone()) })
    }
}

/// A socket whose connections are not accepted yet.
pub(crate) struct Bound {
    address: String,
    socket: Socket,
}

enum Socket {
    Tcp(std::net::TcpListener),
    Unix(UnixListener, PathBuf),
}

/// Accepts connections until it is dropped.
pub(crate) struct Accepting {
    /// Where, with the port that the system has chosen.
    pub(crate) address: String,
    task: JoinHandle<()>,
    path: Option<PathBuf>,
}

impl Bound {
    /// Where, with the port that the system has chosen.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Begins to accept. Connections belong to the instance once it exists.
    ///
    /// # Errors
    /// The loop cannot watch the socket.
    pub(crate) fn accept(self, core: Awaited) -> io::Result<Accepting> {
        let (task, path) = match self.socket {
            Socket::Tcp(listener) => (serve(core, tokio::net::TcpListener::from_std(listener)?), None),
            Socket::Unix(listener, path) => {
                (serve(core, tokio::net::UnixListener::from_std(listener)?), Some(path))
            }
        };
        Ok(Accepting { address: self.address, task, path })
    }
}

fn serve(core: Awaited, listener: impl Listener + 'static) -> JoinHandle<()> {
    spawn_local(async move {
        if let Some(core) = listener::accept_early(core, &listener).await {
            listener::accept(core, listener).await;
        }
    })
}

impl Drop for Accepting {
    fn drop(&mut self) {
        self.task.abort();
        if let Some(path) = &self.path {
            // Another program may have removed it.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_ports_hosts_and_paths() {
        let tcp = |text: &str| Some(Place::Tcp(text.to_owned()));
        assert_eq!(Place::parse("3301"), tcp("0.0.0.0:3301"));
        assert_eq!(Place::parse("*:3301"), tcp("0.0.0.0:3301"));
        assert_eq!(Place::parse("127.0.0.1:0"), tcp("127.0.0.1:0"));
        for text in ["unix/:/tmp/a", "/tmp/a", "unix:/tmp/a"] {
            assert_eq!(Place::parse(text), Some(Place::Unix(PathBuf::from("/tmp/a"))));
        }
        assert_eq!(Place::parse("unix/:./a"), Some(Place::Unix(PathBuf::from("./a"))));
        for text in ["", "x", "host", "host:port", "1:99999", "unix/:"] {
            assert_eq!(Place::parse(text), None, "{text}");
        }
    }
}
