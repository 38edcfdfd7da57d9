//! The file of a snapshot for a member far behind.
//!
//! The file has a connection of its own, so that heartbeats do not wait behind it. The message that announces the snapshot
//! goes over the link once the receiver has the whole file on its disk. It is dropped if the link's connection has ended
//! meanwhile: the node has heard of a loss then.
//!
//! Files are read and written on helper threads, a piece at a time.

use std::io;
use std::rc::Rc;

use lycosa_engine::group::transfer::{Receiver, Sender};
use lycosa_engine::group::{Base, NodeId};
use lycosa_journal::directory::Directory;
use lycosa_tuple::mp::{self, Reader as Values};
use tokio::io::AsyncWriteExt;
use tokio::task::{spawn_blocking, spawn_local};

use super::handshake::{Purpose, frame, next_frame, read_frame};
use super::links::Links;
use crate::socket::{Reader, Writer};
use crate::starting::Progress;

/// Bytes of a piece.
const PIECE: usize = 256 << 10;
/// Bytes of the state in front of the file.
const MAX_STATE: usize = 64 << 10;

/// A snapshot for a member far behind.
pub(crate) struct Shipment {
    pub(crate) to: NodeId,
    /// The address of the member, if the group has it.
    pub(crate) address: Option<String>,
    pub(crate) base: Base,
    /// Announces the snapshot to a member that has the file.
    pub(crate) message: Vec<u8>,
}

/// Sends a snapshot's file, then the message that announces it. Calls `lost` if the file does not reach the member.
pub(crate) fn send(
    links: Rc<Links>,
    directory: Directory,
    shipment: Shipment,
    lost: impl FnOnce(NodeId) + 'static,
) {
    spawn_local(async move {
        let Shipment { to, address, base, message } = shipment;
        let connection = links.connection(to);
        let sent = match address {
            Some(address) if connection.is_some() => send_file(&links, &directory, &address, &base).await,
            _ => Err(io::ErrorKind::NotConnected.into()),
        };
        match sent {
            Ok(bytes) => {
                tracing::info!("sent snapshot {} of {bytes} bytes to node {to}", base.signature);
                if links.connection(to) == connection {
                    links.send(to, message);
                }
            }
            Err(error) => {
                tracing::warn!("snapshot {} did not reach node {to}: {error}", base.signature);
                lost(to);
            }
        }
    });
}

async fn send_file(links: &Links, directory: &Directory, address: &str, base: &Base) -> io::Result<u64> {
    let (directory, opened) = (directory.clone(), base.clone());
    let mut sender = blocking(move || Sender::open(&directory, &opened)).await?;
    let size = sender.size();
    let dialer = links.dialer();
    let mut stream = dialer.open(address, Purpose::Snapshot, base.group).await.map_err(io::Error::other)?;
    let mut head = Vec::new();
    mp::write_uint(&mut head, size);
    head.extend(base.encode());
    stream.write_all(&frame(&head)).await?;
    loop {
        let (returned, piece) = blocking(move || {
            let mut piece = Vec::new();
            sender.read(&mut piece, PIECE)?;
            Ok((sender, piece))
        })
        .await?;
        sender = returned;
        if piece.is_empty() {
            break;
        }
        stream.write_all(&frame(&piece)).await?;
    }
    stream.flush().await?;
    let refusal = read_frame(&mut stream, 1024).await?;
    if refusal.is_empty() {
        Ok(size)
    } else {
        Err(io::Error::other(String::from_utf8_lossy(&refusal).into_owned()))
    }
}

/// Takes a snapshot's file of another member, and says whether it is on the disk.
/// `progress` hears how far it is.
pub(crate) async fn receive(
    directory: &Directory,
    reader: &mut Reader,
    writer: &Writer,
    progress: &Progress,
) -> io::Result<()> {
    let received = receive_file(directory, reader, progress).await;
    let refusal = received.as_ref().err().map(ToString::to_string).unwrap_or_default();
    writer.write_all(&frame(&refusal.as_bytes()[..refusal.len().min(1024)])).await?;
    received
}

async fn receive_file(directory: &Directory, reader: &mut Reader, progress: &Progress) -> io::Result<()> {
    let invalid = |cause: String| io::Error::new(io::ErrorKind::InvalidData, cause);
    let head = next_frame(reader, MAX_STATE).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let mut values = Values::new(&head);
    let size = values.uint().map_err(|error| invalid(error.to_string()))?;
    let base = Base::decode(&head[values.position()..]).map_err(|error| invalid(error.to_string()))?;
    tracing::info!("receiving snapshot {} of {size} bytes", base.signature);
    let (directory, mut received) = (directory.clone(), 0);
    let mut file = blocking(move || Receiver::begin(&directory, &base, size)).await?;
    while !file.is_complete() {
        let piece = next_frame(reader, PIECE).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        received += piece.len() as u64;
        file = blocking(move || file.add(&piece).map(|()| file)).await?;
        progress.receive(received, size);
    }
    blocking(move || file.finish()).await
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    spawn_blocking(work).await.map_err(io::Error::other)?
}
