//! Orders for the writer of snapshots, and its reports.

use lycosa_iproto::vclock::Vclock;
use lycosa_store::ClosedView;

use super::disk::Files;

/// Rows of a snapshot as its file holds them, back to back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chunk {
    /// The rows.
    pub rows: Vec<u8>,
    /// The offset in `rows` after each row.
    pub ends: Vec<u32>,
}

impl Chunk {
    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.ends.clear();
    }
}

/// An order about a snapshot, for the writer of files.
#[derive(Debug)]
pub enum CheckpointOrder {
    /// Begin one, and say when it takes rows ([`crate::Instance::handle_checkpoint_wants`]), once for each chunk that
    /// may be under way.
    Begin {
        /// Of the checkpoint.
        number: u64,
        /// Its moment.
        vclock: Box<Vclock>,
        /// The same in seconds since the epoch.
        timestamp: f64,
        /// Which files may stay.
        keep: Keep,
    },
    /// Add rows.
    Rows {
        /// Of the checkpoint.
        number: u64,
        /// The rows.
        chunk: Chunk,
    },
    /// No rows follow: complete the snapshot, give it its name, remove files that are not needed any more, and report it
    /// ([`crate::Instance::handle_checkpoint_done`]).
    Complete {
        /// Of the checkpoint.
        number: u64,
        /// Which files may stay.
        keep: Keep,
        /// To be dropped.
        view: Option<ClosedView>,
    },
    /// Give the snapshot up, if it has been begun.
    Abandon {
        /// Of the checkpoint.
        number: u64,
        /// To be dropped.
        view: Option<ClosedView>,
    },
}

impl CheckpointOrder {
    /// The number of the checkpoint.
    #[must_use]
    pub fn number(&self) -> u64 {
        match *self {
            Self::Begin { number, .. }
            | Self::Rows { number, .. }
            | Self::Complete { number, .. }
            | Self::Abandon { number, .. } => number,
        }
    }
}

/// Which files may stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// Snapshots; at least one.
    pub snapshots: usize,
    /// Bytes of all snapshots and xlogs, as far as they are not needed for a start.
    pub bytes: u64,
    /// The disk is short of free space ([`FreeSpace`](crate::FreeSpace)): the bytes that the snapshot is expected to take. It
    /// is refused if these do not fit; it may take the reserve down to
    /// [`FreeSpace::journal_share`](crate::FreeSpace::journal_share).
    pub scarce: Option<u64>,
}

/// A snapshot that is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Bytes of its file.
    pub bytes: u64,
    /// Bytes of all files before old ones were removed.
    pub peak: u64,
    /// The files that are left.
    pub files: Files,
}
