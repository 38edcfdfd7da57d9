//! Listening sockets: TCP addresses, and the administrator's Unix socket in the data folder.
//!
//! A program that can open the Unix socket (mode 0600: the server's own account) is `admin`; that is how the first user is made
//! on a server that trusts no address. A connection on a loopback address may be trusted as the configuration says.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use lycosa_instance::{Origin, Trust};
use lycosa_tls::rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::task::spawn_local;

use crate::cluster::clients;
use crate::connection;
use crate::early::{self, Awaited, Count};
use crate::socket::{Accepted, probe, split_tcp, split_tls, split_unix};
use crate::tls;
use crate::turn::Core;

/// The administrator's socket, in the data folder.
pub const ADMIN_SOCKET: &str = "admin.sock";

/// How long a peer may be silent before the system sends a keep-alive probe.
const PROBE_AFTER: Duration = Duration::from_secs(30);

/// Time between two such questions, and how many without an answer end the connection: after 90 s in all.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);
const PROBES: u32 = 6;

/// Pause after an error that a retry at once would repeat (no file descriptors left, for example).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listening socket without TLS.
pub(crate) trait Listener {
    /// The next connection; nothing if it has ended already. Dropping the future loses none.
    async fn next(&self) -> io::Result<Option<Accepted>>;
}

impl Listener for TcpListener {
    async fn next(&self) -> io::Result<Option<Accepted>> {
        let (stream, peer) = self.accept().await?;
        let Some(origin) = origin(&stream, peer) else { return Ok(None) };
        Ok(Some(Accepted::new(split_tcp(stream), origin)))
    }
}

/// A Unix socket that a program has bound. Privileges decide.
impl Listener for UnixListener {
    async fn next(&self) -> io::Result<Option<Accepted>> {
        let origin = Origin { peer: "unix/:(socket)".to_owned(), trust: Trust::Nobody };
        Ok(Some(Accepted::new(split_unix(self.accept().await?.0), origin)))
    }
}

/// The administrator's socket.
pub(crate) struct AdminListener(pub(crate) UnixListener);

impl Listener for AdminListener {
    async fn next(&self) -> io::Result<Option<Accepted>> {
        let origin = Origin { peer: ADMIN_SOCKET.to_owned(), trust: Trust::Admin };
        Ok(Some(Accepted::new(split_unix(self.0.accept().await?.0), origin)))
    }
}

/// Accepts connections until the task is dropped.
pub(crate) async fn accept(core: Rc<Core>, listener: impl Listener) {
    loop {
        match listener.next().await {
            Ok(Some(accepted)) => drop(spawn_local(serve(core.clone(), accepted))),
            Ok(None) => {}
            Err(error) => cannot_accept(&core, &error).await,
        }
    }
}

/// Serves a connection that was accepted during the start.
pub(crate) fn serve_kept(core: &Rc<Core>, stream: std::net::TcpStream, peer: SocketAddr) {
    // A client that left meanwhile is no error.
    let Ok(stream) = TcpStream::from_std(stream) else { return };
    let Some(origin) = origin(&stream, peer) else { return };
    spawn_local(serve(core.clone(), Accepted::new(split_tcp(stream), origin)));
}

/// Accepts connections until there is an instance, which it returns; none if there will be none.
pub(crate) async fn accept_early(mut awaited: Awaited, listener: &impl Listener) -> Option<Rc<Core>> {
    let count = Count::default();
    loop {
        if let Some(core) = awaited.borrow().clone() {
            return Some(core);
        }
        let has_room = early::has_room(&count);
        tokio::select! {
            biased;
            changed = awaited.changed() => changed.ok()?,
            accepted = listener.next(), if has_room => match accepted {
                Ok(Some(accepted)) => {
                    spawn_local(early::serve(accepted, awaited.clone(), count.clone()));
                }
                Ok(None) => {}
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            () = tokio::time::sleep(ACCEPT_PAUSE), if !has_room => {}
        }
    }
}

/// Accepts connections with TLS on a TCP address until the task is dropped.
pub(crate) async fn accept_tls(core: Rc<Core>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let (Some(origin), Some(config)) = (origin(&stream, peer), core.tls.borrow().clone()) else {
                    continue;
                };
                if !core.may_accept() {
                    core.note_stranger(&origin.peer, "max_connections are open");
                    continue;
                }
                spawn_local(serve_tls(core.clone(), stream, config, origin));
            }
            Err(error) => cannot_accept(&core, &error).await,
        }
    }
}

/// Serves one connection until it ends: here, or by the leader of the group.
async fn serve(core: Rc<Core>, accepted: Accepted) {
    if let Some(member) = core.member()
        && accepted.origin.trust != Trust::Admin
        && clients::are_elsewhere(&member)
    {
        return clients::serve(core, member, accepted).await;
    }
    connection::serve(core, accepted, None).await;
}

async fn serve_tls(core: Rc<Core>, stream: TcpStream, config: Arc<ServerConfig>, origin: Origin) {
    core.handshakes.set(core.handshakes.get() + 1);
    let accepted = tls::accept(stream, config).await;
    core.handshakes.set(core.handshakes.get() - 1);
    match accepted {
        Ok(Some(stream)) => serve(core, Accepted::new(split_tls(stream), origin)).await,
        Ok(None) => {}
        Err(cause) => core.note_stranger(&origin.peer, &cause),
    }
}

/// Where a connection comes from; nothing if it has ended already.
fn origin(stream: &TcpStream, peer: SocketAddr) -> Option<Origin> {
    // A machine that has lost its power or its network closes no connection, and without probes its tasks would stay taken.
    let probing = || Ok(probe(stream, PROBE_AFTER, PROBE_INTERVAL, PROBES)?);
    let prepared = stream.set_nodelay(true).and_then(|()| probing());
    if let Err(error) = prepared {
        tracing::debug!("connection from {peer}: {error}");
        return None;
    }
    let is_loopback = stream.local_addr().is_ok_and(|own| own.ip().to_canonical().is_loopback());
    let trust = if is_loopback { Trust::Loopback } else { Trust::Nobody };
    Some(Origin { peer: peer.to_string(), trust })
}

async fn cannot_accept(core: &Core, error: &io::Error) {
    core.note_accept_error(error);
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt;

    use super::*;
    use crate::socket::bind_tcp;

    /// Who vanishes without a word (a cut cable, a machine without power) is noticed, and gives the tasks back.
    #[test]
    fn silent_peers_are_asked_whether_they_are_there() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = bind_tcp("127.0.0.1:0", "listen").await.unwrap();
            let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (stream, peer) = listener.accept().await.unwrap();
            assert_eq!(origin(&stream, peer).unwrap().trust, Trust::Loopback);
            assert!(sockopt::socket_keepalive(&stream).unwrap());
            let (after, interval) =
                (sockopt::tcp_keepidle(&stream).unwrap(), sockopt::tcp_keepintvl(&stream).unwrap());
            assert!(after + interval * sockopt::tcp_keepcnt(&stream).unwrap() <= Duration::from_secs(120));
        });
    }
}
