//! Threads that read files for replicas.
//!
//! Each reads for one replica and hands over frames in pieces; it waits when [`PIECES`] of them are not sent yet, so that a
//! slow replica costs a bounded memory, and ends when the replica goes.

use std::fmt::Display;
use std::io;
use std::thread;

use lycosa_iproto::vclock::Vclock;
use lycosa_journal::directory::{Directory, file_name};
use lycosa_journal::meta::FileKind;
use lycosa_journal::reader::{End, Step};
use lycosa_journal::tail::{Tail, TailError};
use lycosa_replication::relay::{LogRows, SnapshotRows};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Bytes of a piece, a little more if a row is long.
const PIECE: usize = 256 << 10;

/// Pieces that may wait to be sent.
const PIECES: usize = 4;

/// Messages of a thread that reads files.
pub(super) enum Piece {
    /// A snapshot with this clock begins.
    Snapshot(Vclock),
    /// Frames.
    Frames(Vec<u8>),
    /// Everything was handed over. Of a log: what the replica has then.
    End(Option<LogRows>),
}

/// Why a thread stops early.
pub(super) enum ReadEnd {
    /// Rows that the replica needs are gone: where the oldest journal file begins.
    Gap(Box<Vclock>),
    /// The files cannot be read.
    Failed(String),
}

/// The pieces of a thread. The last one tells why the thread stops early, if it does.
pub(super) type Pieces = Receiver<Result<Piece, ReadEnd>>;
type Out = Sender<Result<Piece, ReadEnd>>;

/// Reads the newest snapshot.
pub(super) fn snapshot(directory: Directory) -> io::Result<Pieces> {
    spawn("join", move |out| read_snapshot(&directory, out))
}

/// Reads the log until everything up to the clock with signature `until`, which is durable, was handed over.
pub(super) fn log(directory: Directory, rows: LogRows, until: u64) -> io::Result<Pieces> {
    spawn("catch-up", move |out| read_log(&directory, rows, until, out))
}

fn spawn(name: &str, read: impl FnOnce(&Out) -> Result<(), ReadEnd> + Send + 'static) -> io::Result<Pieces> {
    let (sender, receiver) = channel(PIECES);
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        if let Err(end) = read(&sender) {
            // A replica that has disconnected gets no answer.
            let _ = sender.blocking_send(Err(end));
        }
    })?;
    Ok(receiver)
}

impl From<TailError> for ReadEnd {
    fn from(error: TailError) -> Self {
        match error {
            TailError::Gap { oldest, .. } => Self::Gap(oldest),
            error => Self::Failed(error.to_string()),
        }
    }
}

fn failed<E: ToString + ?Sized>(error: &E) -> ReadEnd {
    ReadEnd::Failed(error.to_string())
}

fn hand_over(out: &Out, piece: Piece) -> Result<(), ReadEnd> {
    out.blocking_send(Ok(piece)).map_err(|_| failed("the replica has gone"))
}

/// Hands frames over once there are enough of them.
fn flush(out: &Out, frames: &mut Vec<u8>, least: usize) -> Result<(), ReadEnd> {
    if frames.len() < least.max(1) {
        return Ok(());
    }
    hand_over(out, Piece::Frames(std::mem::replace(frames, Vec::with_capacity(PIECE + PIECE / 4))))
}

fn read_snapshot(directory: &Directory, out: &Out) -> Result<(), ReadEnd> {
    let listing = directory.list().map_err(|error| failed(&error))?;
    let newest = *listing.snapshots.last().ok_or_else(|| failed("there is no snapshot"))?;
    let name = file_name(FileKind::Snapshot, newest);
    let unread = |error: &dyn Display| failed(&format!("can't read '{name}': {error}"));
    let mut reader = directory.read(FileKind::Snapshot, newest).map_err(|error| unread(&error))?;
    hand_over(out, Piece::Snapshot(reader.meta().vclock.clone()))?;
    let mut frames = Vec::new();
    loop {
        match reader.next_block().map_err(|error| unread(&error))? {
            Step::Block(block) => {
                SnapshotRows.send(block.rows, &mut frames).map_err(|error| failed(&error))?;
                flush(out, &mut frames, PIECE)?;
            }
            Step::End(End::Marker) => break,
            Step::End(_) | Step::Damage(_) => {
                return Err(failed(&format!("'{name}' is damaged; take another with `lycosa checkpoint`")));
            }
        }
    }
    flush(out, &mut frames, 0)?;
    hand_over(out, Piece::End(None))
}

fn read_log(directory: &Directory, mut rows: LogRows, until: u64, out: &Out) -> Result<(), ReadEnd> {
    let mut tail = Tail::after(directory, rows.position())?;
    let mut frames = Vec::new();
    while tail.clock().signature() < until {
        let block = tail.next_block()?.ok_or_else(|| failed("the journal ends before what is durable"))?;
        rows.send(&block, &mut frames).map_err(|error| failed(&error))?;
        flush(out, &mut frames, PIECE)?;
    }
    flush(out, &mut frames, 0)?;
    hand_over(out, Piece::End(Some(rows)))
}
