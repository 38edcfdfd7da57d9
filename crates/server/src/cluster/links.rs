//! The links between this node and the other ones: messages of the consensus, one connection per pair and direction.
//!
//! The sender of a direction opens its connection, says [`Hello`], and writes one frame for each message. The acceptor
//! only reads, so the end of its side tells the sender at once that the peer's process has ended. A connection that ends
//! loses its queue, which the owner hears ([`Owner::link_lost`]); the next connection follows after a pause that doubles from
//! [`FIRST_PAUSE`] to [`LONGEST_PAUSE`].
//!
//! Invariants:
//! - messages of a link arrive in order, or not at all: [`Peers`] takes messages of the sender's newest connection alone;
//! - at most [`MAX_QUEUED`] bytes wait for a peer; a peer that is slower loses its connection. The kernel ends a
//!   connection whose bytes stay unconfirmed for [`UNCONFIRMED`], so a healed network is not waited for in vain.
//!
//! Absent: what a message says, and the files of snapshots (`snapshots.rs`), which have connections of their own so that
//! heartbeats do not wait behind them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use lycosa_group::link::{ConnectionNumber, Hello, Peers};
use lycosa_group::members::{Members, NodeId};
use lycosa_group::record::Identity;
use lycosa_tls::rustls::ClientConfig;
use lycosa_tuple::mp::{self, Reader as Values};
use rustix::net::sockopt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, spawn_local};
use tokio_rustls::TlsConnector;

use super::handshake::{self, HandshakeError, PATIENCE, Purpose, frame, next_frame};
use super::secret::Secret;
use crate::socket::{Reader, Stream, probe};

/// The first pause after a connection that failed, and the longest one.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// Bytes that may wait for one peer: twice as many as a leader may have uncommitted.
const MAX_QUEUED: usize = 128 << 20;
/// The longest message: entries as the window bounds them, or one with a transaction ([`MAX_TRANSACTION`] bounds it) and the batch before
/// it. Older programs have no such bound.
///
/// [`MAX_TRANSACTION`]: lycosa_engine::group::MAX_TRANSACTION
const MAX_MESSAGE: usize = 1 << 30;
/// Bytes of a hello's frame.
const MAX_HELLO: usize = 2048;
/// How long sent bytes may stay unconfirmed.
const UNCONFIRMED: Duration = Duration::from_secs(3);
/// How long a peer may be silent before the system probes it. Each client that a member forwards has a connection.
const SILENT: Duration = Duration::from_secs(10);

/// The owner of the links.
pub(crate) trait Owner {
    /// Takes a message of another node.
    ///
    /// # Errors
    /// The message is refused, for this reason: its connection ends, so that the sender hears of a loss.
    fn message(&self, bytes: Vec<u8>) -> Result<(), String>;
    /// Messages to a node were lost.
    fn link_lost(&self, node: NodeId);
    /// A member says which node this is, which has none yet.
    ///
    /// # Errors
    /// The node cannot begin: the text says why.
    fn join(&self, identity: Identity) -> Result<(), String>;
}

/// How to connect to members.
#[derive(Clone)]
pub(crate) struct Dialer {
    pub(crate) secret: Rc<Secret>,
    /// The authorities for `tls://` addresses.
    pub(crate) tls: Option<Arc<ClientConfig>>,
}

impl Dialer {
    /// Connects to the member at `address`.
    ///
    /// # Errors
    /// [`HandshakeError`].
    pub(crate) async fn open(
        &self,
        address: &str,
        purpose: Purpose,
        group: uuid::Uuid,
    ) -> Result<Stream, HandshakeError> {
        let opening = async {
            let plain = address.strip_prefix("tls://").unwrap_or(address);
            let stream = TcpStream::connect(plain).await?;
            prepare(&stream)?;
            let mut stream: Stream = if plain != address {
                let config = self.tls.clone().ok_or_else(|| {
                    io::Error::other("no certificates are trusted: name the file with tls.ca")
                })?;
                let name = lycosa_tls::server_name(plain).map_err(io::Error::other)?;
                Box::new(TlsConnector::from(config).connect(name, stream).await?)
            } else {
                Box::new(stream)
            };
            handshake::connect(&mut stream, &self.secret, purpose, group).await?;
            Ok(stream)
        };
        tokio::time::timeout(PATIENCE, opening).await.unwrap_or(Err(HandshakeError::Silent))
    }
}

/// No delay, and an end when the peer's machine confirms nothing. A silent peer is probed: a cut network swallows the end of a connection,
/// and the tasks of the client that it belongs to would stay taken.
pub(crate) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    probe(stream, SILENT, Duration::from_secs(1), 3)?;
    let unconfirmed = u32::try_from(UNCONFIRMED.as_millis()).unwrap_or(u32::MAX);
    Ok(sockopt::set_tcp_user_timeout(stream, unconfirmed)?)
}

/// The way to one peer.
struct Peer {
    node: NodeId,
    rank: u8,
    address: String,
    queue: RefCell<VecDeque<Vec<u8>>>,
    bytes: Cell<usize>,
    wake: Notify,
    /// The connection that messages may be queued for; 0 for none.
    connection: Cell<u64>,
    /// The queue has overflowed: the connection has to end.
    is_over: Cell<bool>,
}

impl Peer {
    fn take(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.bytes.replace(0));
        for message in self.queue.borrow_mut().drain(..) {
            bytes.extend_from_slice(&frame(&message));
        }
        bytes
    }
}

struct Outgoing {
    peer: Rc<Peer>,
    task: JoinHandle<()>,
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The identity of this node and of this run of its process.
#[derive(Debug, Clone, Copy)]
struct Own {
    identity: Identity,
    incarnation: u64,
    knows: u32,
}

/// All links of this node.
pub(crate) struct Links {
    dialer: RefCell<Dialer>,
    owner: Rc<dyn Owner>,
    own: RefCell<Option<(Own, Peers)>>,
    peers: RefCell<BTreeMap<NodeId, Outgoing>>,
    /// Where other members reach this node, once it is in the list.
    address: RefCell<String>,
    /// The last connection that was begun.
    number: Cell<u64>,
}

impl Links {
    pub(crate) fn new(dialer: Dialer, owner: Rc<dyn Owner>) -> Rc<Self> {
        Rc::new(Self {
            dialer: RefCell::new(dialer),
            owner,
            own: RefCell::default(),
            peers: RefCell::default(),
            address: RefCell::default(),
            number: Cell::new(0),
        })
    }

    /// Says who this node is: links to others can begin. `incarnation` is greater at each start of the node. A node that starts
    /// anew in this process goes on with the connections that its peers have.
    pub(crate) fn begin(&self, identity: Identity, incarnation: u64, knows: u32) {
        let mut own = self.own.borrow_mut();
        let former = own.take().filter(|(own, _)| own.identity == identity).map(|(_, peers)| peers);
        let peers = former.unwrap_or_else(|| Peers::new(identity.group, identity.node));
        *own = Some((Own { identity, incarnation, knows }, peers));
    }

    /// The identity of this node, once it is known.
    pub(crate) fn identity(&self) -> Option<Identity> {
        self.own.borrow().as_ref().map(|(own, _)| own.identity)
    }

    /// How members are reached from now on.
    pub(crate) fn dialer(&self) -> Dialer {
        self.dialer.borrow().clone()
    }

    /// The level that a peer knows, if it has connected since the start.
    pub(crate) fn knows(&self, node: NodeId) -> Option<u32> {
        self.own.borrow().as_ref().and_then(|(_, peers)| peers.knows(node))
    }

    /// Whether messages reach a peer's socket.
    pub(crate) fn is_connected(&self, node: NodeId) -> bool {
        self.peers.borrow().get(&node).is_some_and(|out| out.peer.connection.get() != 0)
    }

    /// Keeps a link to each of these members, and to no other node. A node that waits for its first snapshot knows no members: it
    /// keeps the links to its callers.
    pub(crate) fn follow(self: &Rc<Self>, members: &Members) {
        let Some(own) = self.identity() else { return };
        if members.is_empty() {
            return;
        }
        if let Some(member) = members.get(own.node) {
            self.address.borrow_mut().clone_from(&member.address);
        }
        self.peers
            .borrow_mut()
            .retain(|node, out| members.get(*node).is_some_and(|member| member.address == out.peer.address));
        for member in members.iter().filter(|member| member.node != own.node) {
            self.reach(member.node, member.rank, &member.address);
        }
    }

    /// Keeps a link to a node. An existing link stays.
    fn reach(self: &Rc<Self>, node: NodeId, rank: u8, address: &str) {
        self.peers.borrow_mut().entry(node).or_insert_with(|| {
            let peer = Rc::new(Peer {
                node,
                rank,
                address: address.to_owned(),
                queue: RefCell::default(),
                bytes: Cell::default(),
                wake: Notify::new(),
                connection: Cell::default(),
                is_over: Cell::default(),
            });
            let task = spawn_local(keep(self.clone(), peer.clone()));
            Outgoing { peer, task }
        });
    }

    /// Ends all links.
    pub(crate) fn end(&self) {
        self.address.borrow_mut().clear();
        self.peers.borrow_mut().clear();
    }

    /// The connection over which a message for `node` would travel now; `None` without a connection.
    pub(crate) fn connection(&self, node: NodeId) -> Option<u64> {
        self.peers.borrow().get(&node).map(|out| out.peer.connection.get()).filter(|number| *number != 0)
    }

    /// Queues a message. It is lost if the node is not connected; a queue that overflows ends its connection.
    pub(crate) fn send(&self, node: NodeId, message: Vec<u8>) {
        let peers = self.peers.borrow();
        let Some(Outgoing { peer, .. }) = peers.get(&node) else { return };
        if peer.connection.get() == 0 {
            return;
        }
        peer.bytes.set(peer.bytes.get() + message.len() + 4);
        if peer.bytes.get() > MAX_QUEUED {
            peer.is_over.set(true);
        } else {
            peer.queue.borrow_mut().push_back(message);
        }
        peer.wake.notify_one();
    }

    fn hello(&self, peer: &Peer) -> Option<(Hello, Vec<u8>)> {
        let own = self.own.borrow().as_ref().map(|(own, _)| *own)?;
        self.number.set(self.number.get() + 1);
        let connection = ConnectionNumber { incarnation: own.incarnation, number: self.number.get() };
        let Identity { group, node, .. } = own.identity;
        let hello = Hello { group, from: node, to: peer.node, connection, knows: own.knows };
        let mut bytes = Vec::new();
        mp::write_uint(&mut bytes, peer.rank.into());
        mp::write_str(&mut bytes, self.address.borrow().as_bytes());
        hello.encode(&mut bytes);
        Some((hello, bytes))
    }

    /// Takes messages of another node until its connection ends.
    ///
    /// # Errors
    /// Why it ended; `Ok` if the peer has closed it.
    pub(crate) async fn receive(self: &Rc<Self>, reader: &mut Reader) -> Result<(), String> {
        let text = |error: io::Error| error.to_string();
        let first = tokio::time::timeout(PATIENCE, next_frame(reader, MAX_HELLO)).await;
        let first = first.map_err(|_| "no hello followed")?.map_err(text)?.ok_or("no hello followed")?;
        let mut values = Values::new(&first);
        let rank = values.uint().ok().and_then(|rank| u8::try_from(rank).ok()).ok_or("a hello has a rank")?;
        let address = values.str().ok().and_then(|address| std::str::from_utf8(address).ok());
        let address = address.ok_or("a hello has an address")?;
        let hello = Hello::decode(&first[values.position()..]).map_err(|error| error.to_string())?;
        if self.own.borrow().is_none() {
            self.owner.join(Identity { group: hello.group, node: hello.to, rank })?;
        }
        let from = hello.from;
        match &mut *self.own.borrow_mut() {
            Some((_, peers)) => peers.greet(hello).map_err(|error| error.to_string())?,
            None => return Err("this node belongs to no group yet".to_owned()),
        }
        if !address.is_empty() && self.address.borrow().is_empty() {
            self.reach(from, 0, address);
        }
        while let Some(message) = next_frame(reader, MAX_MESSAGE).await.map_err(text)? {
            let is_newest =
                self.own.borrow().as_ref().is_some_and(|(_, peers)| peers.is_newest(from, hello.connection));
            if !is_newest {
                return Ok(());
            }
            self.owner.message(message)?;
        }
        Ok(())
    }
}

/// Keeps the link to a peer.
async fn keep(links: Rc<Links>, peer: Rc<Peer>) {
    let mut pause = FIRST_PAUSE;
    let mut last_error = String::new();
    loop {
        let Some((hello, first)) = links.hello(&peer) else { return };
        let dialer = links.dialer();
        match dialer.open(&peer.address, Purpose::Messages, hello.group).await {
            Ok(stream) => {
                tracing::info!("connected to node {} at {}", peer.node, peer.address);
                last_error.clear();
                let began = tokio::time::Instant::now();
                peer.is_over.set(false);
                peer.connection.set(hello.connection.number);
                let Err(ended) = carry(&peer, stream, first).await;
                peer.connection.set(0);
                peer.take();
                tracing::warn!("lost the connection to node {} at {}: {ended}", peer.node, peer.address);
                links.owner.link_lost(peer.node);
                if began.elapsed() > LONGEST_PAUSE {
                    pause = FIRST_PAUSE;
                }
            }
            Err(error) => {
                let error = error.to_string();
                if error != last_error {
                    tracing::warn!("node {} at {} cannot be reached: {error}", peer.node, peer.address);
                    last_error = error;
                }
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Writes the queue until the connection ends; returns why it ended.
async fn carry(peer: &Peer, stream: Stream, hello: Vec<u8>) -> io::Result<Infallible> {
    let (mut reading, mut writing) = tokio::io::split(stream);
    let mut bytes = frame(&hello);
    let mut byte = [0];
    loop {
        if peer.is_over.get() {
            return Err(io::Error::other(format!("more than {MAX_QUEUED} bytes wait for it")));
        }
        if bytes.is_empty() {
            bytes = peer.take();
        }
        tokio::select! {
            biased;
            read = reading.read(&mut byte) => return Err(io::Error::other(match read? {
                0 => "the peer has closed it",
                _ => "the peer has written on a connection that has one direction",
            })),
            written = writing.write(&bytes), if !bytes.is_empty() => drop(bytes.drain(..written?)),
            () = peer.wake.notified() => {}
        }
        // TLS keeps the last bytes back until a flush.
        if bytes.is_empty() && peer.bytes.get() == 0 {
            writing.flush().await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use uuid::Uuid;

    use super::super::secret::secret_of;
    use super::*;
    use crate::socket::split_tcp;

    /// Refuses the second message.
    #[derive(Default)]
    struct Picky(Cell<usize>);

    impl Owner for Picky {
        fn message(&self, _: Vec<u8>) -> Result<(), String> {
            self.0.set(self.0.get() + 1);
            if self.0.get() == 2 { Err("no space".to_owned()) } else { Ok(()) }
        }

        fn link_lost(&self, _: NodeId) {}

        fn join(&self, _: Identity) -> Result<(), String> {
            Ok(())
        }
    }

    /// The end of a forwarded client that was sent while the network was cut is heard of by a probe alone.
    #[test]
    fn silent_members_are_probed() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            prepare(&stream).unwrap();
            assert!(sockopt::socket_keepalive(&stream).unwrap());
            assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), SILENT);
        });
    }

    #[test]
    fn a_refused_message_ends_its_connection() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut sender = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (mut reader, writer) = split_tcp(listener.accept().await.unwrap().0);
            let owner = Rc::new(Picky::default());
            let dialer = Dialer { secret: Rc::new(secret_of("a secret of a group")), tls: None };
            let links = Links::new(dialer, owner.clone());
            let group = Uuid::from_u128(7);
            links.begin(Identity { group, node: 1, rank: 0 }, 1, 1);
            let connection = ConnectionNumber { incarnation: 1, number: 1 };
            let mut hello = Vec::new();
            mp::write_uint(&mut hello, 0);
            mp::write_str(&mut hello, b"");
            Hello { group, from: 2, to: 1, connection, knows: 1 }.encode(&mut hello);
            for content in [hello.as_slice(), b"taken"] {
                sender.write_all(&frame(content)).await.unwrap();
            }
            // The node may start anew, as after its first snapshot.
            let mut receiving = Box::pin(links.receive(&mut reader));
            while owner.0.get() == 0 {
                tokio::select! {
                    biased;
                    ended = &mut receiving => panic!("the connection has ended: {ended:?}"),
                    () = tokio::task::yield_now() => {}
                }
            }
            links.begin(Identity { group, node: 1, rank: 0 }, 2, 1);
            for content in [b"refused".as_slice(), b"never read"] {
                sender.write_all(&frame(content)).await.unwrap();
            }
            assert_eq!(receiving.as_mut().await, Err("no space".to_owned()));
            assert_eq!(owner.0.get(), 2, "no message follows a refused one");
            drop(receiving);
            drop((reader, writer));
            // The sender hears of the end; unread bytes make it a reset.
            assert!(matches!(sender.read(&mut [0]).await, Ok(0) | Err(_)));
        });
    }
}
