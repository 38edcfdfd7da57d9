//! The file of a snapshot for a member far behind.
//!
//! The file has a connection of its own, so that heartbeats do not wait behind it. The message that announces the snapshot
//! goes over the link once the receiver has the whole file on its disk. It is dropped if the link's connection has ended
//! meanwhile: the node has heard of a loss then.
//!
//! Files are read and written on helper threads, a piece at a time.

use std::io;

use lycosa_engine::group::Base;
use lycosa_engine::group::transfer::{Receiver, Sender};
use lycosa_journal::directory::Directory;
use lycosa_tuple::mp::{self, Reader as Values};
use tokio::io::AsyncWriteExt;
use tokio::task::spawn_blocking;

use super::handshake::{frame, next_frame, read_refusal};
use crate::socket::{Reader, Stream, Writer};
use crate::starting::Progress;

/// Bytes of a piece.
const PIECE: usize = 256 << 10;
/// Bytes of the state in front of the file.
const MAX_STATE: usize = 64 << 10;

/// Sends a snapshot's file, and returns its bytes once the receiver has all of them on its disk.
pub(crate) async fn send(mut stream: Stream, directory: Directory, base: &Base) -> io::Result<u64> {
    let opened = base.clone();
    let mut sender = blocking(move || Sender::open(&directory, &opened)).await?;
    let size = sender.size();
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
    read_refusal(&mut stream).await?.map_or(Ok(size), |cause| Err(io::Error::other(cause)))
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
