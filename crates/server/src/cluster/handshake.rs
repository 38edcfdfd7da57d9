//! The beginning of a connection between two members: each proves to the other one that it knows the group's secret.
//!
//! ```text
//! connector                               acceptor
//!   head: magic, purpose, group, nonce  →
//!                                       ←  nonce
//!   proof                               →
//!                                       ←  proof, then a frame: empty, or why the connection is refused
//! ```
//!
//! Everything before the last frame has a fixed length and is compared, never parsed. The connector proves first: a
//! stranger gets nothing, or 32 random bytes if it has sent the right head, and holds 64 bytes for at most
//! [`PATIENCE`]. After [`MAX_HANDSHAKES`] handshakes at a time a new one ends the oldest one, so strangers that hold connections
//! open keep no member out.
//!
//! Absent: what a connection is used for ([`Purpose`] names it), and TLS, which begins before this.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use uuid::Uuid;

use super::secret::{PROOF, Secret, Side};
use crate::random::fill_randomly;
use crate::socket::{Reader, Writer};

const MAGIC: [u8; 15] = *b"lycosa member 1";
const NONCE: usize = 32;
const HEAD: usize = MAGIC.len() + 1 + 16 + NONCE;

/// How long a handshake may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);
/// Handshakes at a time.
const MAX_HANDSHAKES: usize = 64;
/// Bytes of a refusal.
const MAX_REFUSAL: usize = 1024;

/// The purpose of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Messages of the consensus, one way.
    Messages = 1,
    /// The files of a snapshot, one way.
    Snapshot,
    /// A client of the connector, whose requests the acceptor answers as the leader.
    Client,
    /// An operator's order, which the acceptor carries out as the leader.
    Order,
    /// Calls of HTTP clients of the connector, which the acceptor makes as the leader.
    Http,
}

impl Purpose {
    const ALL: [Self; 5] = [Self::Messages, Self::Snapshot, Self::Client, Self::Order, Self::Http];
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    /// The socket.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It takes too long.
    #[error("no answer within {} s", PATIENCE.as_secs())]
    Silent,
    /// The peer speaks another protocol.
    #[error("it speaks another protocol than members of a group")]
    Foreign,
    /// The peer speaks without TLS where this node listens with it.
    #[error("it speaks without TLS, and cluster.listen begins with tls://")]
    Plain,
    /// The peer does not know the secret.
    #[error("it is no member of this group: it does not know the secret (cluster.secret_file)")]
    Stranger,
    /// Newer handshakes took its place.
    #[error("more than {MAX_HANDSHAKES} handshakes were under way")]
    Crowded,
    /// The peer knows the secret and refuses.
    #[error("it refuses: {0}")]
    Refused(String),
}

impl HandshakeError {
    /// Whether the peer is at fault, or the settings of one side: the connection has not simply ended.
    pub(crate) fn is_of_peer(&self) -> bool {
        match self {
            Self::Stranger | Self::Foreign | Self::Plain | Self::Refused(_) => true,
            // The error of TLS.
            Self::Io(error) => error.kind() == io::ErrorKind::Other,
            Self::Silent | Self::Crowded => false,
        }
    }
}

/// A peer that knows the secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) purpose: Purpose,
    /// The group that it belongs to.
    pub(crate) group: Uuid,
}

/// Proves to the acceptor at the other end that this is a member of `group`, and lets it prove the same.
///
/// # Errors
/// [`HandshakeError`].
pub(crate) async fn connect(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    secret: &Secret,
    purpose: Purpose,
    group: Uuid,
) -> Result<(), HandshakeError> {
    let connecting = async {
        let mut head = [0; HEAD];
        head[..MAGIC.len()].copy_from_slice(&MAGIC);
        head[MAGIC.len()] = purpose as u8;
        head[MAGIC.len() + 1..][..16].copy_from_slice(group.as_bytes());
        fill_randomly(&mut head[HEAD - NONCE..]);
        stream.write_all(&head).await?;
        let mut nonce = [0; NONCE];
        stream.read_exact(&mut nonce).await?;
        stream.write_all(&secret.proof(Side::Connector, &head, &nonce)).await?;
        let mut proof = [0; PROOF];
        // An acceptor that does not accept the proof closes the connection without a word.
        if let Err(error) = stream.read_exact(&mut proof).await {
            let is_end = error.kind() == io::ErrorKind::UnexpectedEof;
            return Err(if is_end { HandshakeError::Stranger } else { error.into() });
        }
        if !secret.is_proof(&proof, Side::Acceptor, &head, &nonce) {
            return Err(HandshakeError::Stranger);
        }
        read_refusal(stream).await?.map_or(Ok(()), |cause| Err(HandshakeError::Refused(cause)))
    };
    tokio::time::timeout(PATIENCE, connecting).await.unwrap_or(Err(HandshakeError::Silent))
}

/// The handshakes under way at a port, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Doorway(RefCell<VecDeque<Rc<Notify>>>);

impl Doorway {
    fn enter(&self) -> Rc<Notify> {
        let mut waiting = self.0.borrow_mut();
        if waiting.len() >= MAX_HANDSHAKES
            && let Some(oldest) = waiting.pop_front()
        {
            oldest.notify_one();
        }
        let own = Rc::new(Notify::new());
        waiting.push_back(own.clone());
        own
    }

    fn leave(&self, own: &Rc<Notify>) {
        self.0.borrow_mut().retain(|waiting| !Rc::ptr_eq(waiting, own));
    }

    /// Does the acceptor's part, TLS included, which `prepared` does. Sends no verdict yet: [`welcome`] or [`refuse`] does.
    ///
    /// # Errors
    /// [`HandshakeError`]; the connection is to be dropped.
    pub(crate) async fn accept(
        &self,
        prepared: impl Future<Output = Result<(Reader, Writer), HandshakeError>>,
        secret: &Secret,
    ) -> Result<(Known, Reader, Writer), HandshakeError> {
        let own = self.enter();
        let accepting = async {
            let (mut reader, writer) = prepared.await?;
            let known = accept(&mut reader, &writer, secret).await?;
            Ok((known, reader, writer))
        };
        let accepted = tokio::select! {
            accepted = tokio::time::timeout(PATIENCE, accepting) => accepted.unwrap_or(Err(HandshakeError::Silent)),
            () = own.notified() => Err(HandshakeError::Crowded),
        };
        self.leave(&own);
        accepted
    }
}

async fn accept(reader: &mut Reader, writer: &Writer, secret: &Secret) -> Result<Known, HandshakeError> {
    let mut head = [0; HEAD];
    reader.read_exact(&mut head[..MAGIC.len() + 1]).await?;
    if head[..MAGIC.len()] != MAGIC {
        return Err(HandshakeError::Foreign);
    }
    let purpose = Purpose::ALL.into_iter().find(|purpose| *purpose as u8 == head[MAGIC.len()]);
    let purpose = purpose.ok_or(HandshakeError::Foreign)?;
    reader.read_exact(&mut head[MAGIC.len() + 1..]).await?;
    let mut nonce = [0; NONCE];
    fill_randomly(&mut nonce);
    writer.write_all(&nonce).await?;
    let mut proof = [0; PROOF];
    reader.read_exact(&mut proof).await?;
    if !secret.is_proof(&proof, Side::Connector, &head, &nonce) {
        return Err(HandshakeError::Stranger);
    }
    writer.write_all(&secret.proof(Side::Acceptor, &head, &nonce)).await?;
    let group = head[MAGIC.len() + 1..][..16].try_into().expect("16 bytes were cut off");
    Ok(Known { purpose, group: Uuid::from_bytes(group) })
}

/// Takes the connection.
///
/// # Errors
/// The socket.
pub(crate) async fn welcome(writer: &Writer) -> io::Result<()> {
    writer.write_all(&[0; 4]).await
}

/// Refuses the connection of a member, and says why.
pub(crate) async fn refuse(writer: &Writer, cause: &str) {
    let bytes = cause.as_bytes();
    // A closed connection reads no answer.
    let _ = writer.write_all(&frame(&bytes[..bytes.len().min(MAX_REFUSAL)])).await;
    let _ = writer.shut_down();
}

/// A frame: four bytes with the length, the greatest first, and the body.
pub(crate) fn frame(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("every sender bounds its frames far below 4 GiB");
    [&length.to_be_bytes(), body].concat()
}

/// Reads a frame with a body of at most `limit` bytes.
///
/// # Errors
/// The socket, or a longer frame.
pub(crate) async fn read_frame(stream: &mut (impl AsyncRead + Unpin), limit: usize) -> io::Result<Vec<u8>> {
    next_frame(stream, limit).await?.ok_or(io::ErrorKind::UnexpectedEof.into())
}

/// The same. `None` at the end of the connection.
///
/// # Errors
/// As [`read_frame`].
pub(crate) async fn next_frame(
    stream: &mut (impl AsyncRead + Unpin),
    limit: usize,
) -> io::Result<Option<Vec<u8>>> {
    let length = match stream.read_u32().await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read? as usize,
    };
    if length > limit {
        let cause = format!("a frame of {length} bytes, and at most {limit} are expected");
        return Err(io::Error::new(io::ErrorKind::InvalidData, cause));
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(Some(body))
}

/// Reads whether the acceptor refuses, and why. An empty frame: it does not.
///
/// # Errors
/// As [`read_frame`].
pub(crate) async fn read_refusal(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<String>> {
    let refusal = read_frame(stream, MAX_REFUSAL).await?;
    Ok((!refusal.is_empty()).then(|| String::from_utf8_lossy(&refusal).into_owned()))
}

/// Sends a frame to the acceptor.
///
/// # Errors
/// The socket.
pub(crate) async fn send_frame(stream: &mut (impl AsyncWrite + Unpin), body: &[u8]) -> io::Result<()> {
    stream.write_all(&frame(body)).await?;
    stream.flush().await
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};

    use super::super::secret::secret_of;
    use super::*;
    use crate::socket::split_tcp;

    const SECRET: &str = "a secret of a group";

    fn run<T>(test: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(test)
    }

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (client, listener.accept().await.unwrap().0)
    }

    async fn accepted(door: &Doorway, stream: TcpStream) -> Result<(Known, Reader, Writer), HandshakeError> {
        door.accept(async { Ok(split_tcp(stream)) }, &secret_of(SECRET)).await
    }

    #[test]
    fn members_know_each_other() {
        run(async {
            let (mut client, server) = pair().await;
            let (door, group) = (Doorway::default(), Uuid::from_u128(7));
            let accepting = async {
                let (known, _reader, writer) = accepted(&door, server).await.unwrap();
                welcome(&writer).await.unwrap();
                known
            };
            let secret = secret_of(SECRET);
            let (connected, known) =
                tokio::join!(connect(&mut client, &secret, Purpose::Client, group), accepting);
            connected.unwrap();
            assert_eq!(known, Known { purpose: Purpose::Client, group });
        });
    }

    #[test]
    fn a_refusal_reaches_a_member() {
        run(async {
            let (mut client, server) = pair().await;
            let door = Doorway::default();
            let accepting = async {
                let (_, _reader, writer) = accepted(&door, server).await.unwrap();
                refuse(&writer, "another group").await;
            };
            let secret = secret_of(SECRET);
            let (connected, ()) =
                tokio::join!(connect(&mut client, &secret, Purpose::Order, Uuid::nil()), accepting);
            assert!(matches!(connected, Err(HandshakeError::Refused(cause)) if cause == "another group"));
        });
    }

    #[test]
    fn a_wrong_secret_gets_no_proof() {
        run(async {
            let (mut client, server) = pair().await;
            let (door, secret) = (Doorway::default(), secret_of("another secret!!"));
            let (connected, accepted) = tokio::join!(
                connect(&mut client, &secret, Purpose::Messages, Uuid::nil()),
                accepted(&door, server)
            );
            assert!(matches!(connected, Err(HandshakeError::Stranger)), "{connected:?}");
            assert!(matches!(accepted, Err(HandshakeError::Stranger)));
        });
    }

    #[test]
    fn strangers_get_nothing() {
        run(async {
            for first in [&b"GET / HTTP/1.1\r\n\r\n                         "[..], &[0; 100], &[0xce; 100]] {
                let (mut client, server) = pair().await;
                let door = Doorway::default();
                client.write_all(first).await.unwrap();
                let refused = accepted(&door, server).await;
                assert!(matches!(refused, Err(HandshakeError::Foreign)));
                drop(refused);
                let mut got = Vec::new();
                // Unread bytes reset the connection.
                let _ = client.read_to_end(&mut got).await;
                assert!(got.is_empty(), "{got:?}");
            }
        });
    }

    #[test]
    fn silent_connections_keep_no_member_out() {
        run(async {
            let door = Rc::new(Doorway::default());
            let mut silent = Vec::new();
            let local = tokio::task::LocalSet::new();
            local
                .run_until(async {
                    for _ in 0..MAX_HANDSHAKES {
                        let (client, server) = pair().await;
                        let door = door.clone();
                        silent.push((
                            client,
                            tokio::task::spawn_local(
                                async move { accepted(&door, server).await.map(|_| ()) },
                            ),
                        ));
                    }
                    while door.0.borrow().len() < MAX_HANDSHAKES {
                        tokio::task::yield_now().await;
                    }
                    let (mut client, server) = pair().await;
                    let accepting = async {
                        let (_, _reader, writer) = accepted(&door, server).await.unwrap();
                        welcome(&writer).await.unwrap();
                    };
                    let secret = secret_of(SECRET);
                    let (connected, ()) =
                        tokio::join!(connect(&mut client, &secret, Purpose::Order, Uuid::nil()), accepting);
                    connected.unwrap();
                    let (_, oldest) = silent.remove(0);
                    assert!(matches!(oldest.await.unwrap(), Err(HandshakeError::Crowded)));
                })
                .await;
        });
    }
}
