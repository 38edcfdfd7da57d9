//! Snapshots: all data at one moment, as INSERT rows.
//!
//! A snapshot is written under a temporary name and gets its own when every byte of it and its end marker are
//! on the disk, in every wal mode: a snapshot that has its name is whole, or the disk has changed it since.
//! Rows are numbered from 0 over the file; the numbers show how many were lost where a block was.
//!
//! The writer syncs every few megabytes: one sync of everything at the end would let the syncs of the
//! journal on the same disk wait for it.
//!
//! Absent: which rows there are and in which order. Tarantool wants the system spaces first, in the order of
//! their ids.

use std::io;

use lycosa_iproto::row::encode_snapshot_row;
use lycosa_iproto::vclock::Vclock;
use uuid::Uuid;

use crate::block::{self, DEFAULT_COMPRESSION_LEVEL, EncodeError, Encoder, MAGIC_END};
use crate::directory::{Directory, IN_PROGRESS, file_name};
use crate::disk::{DiskFile, write_all_at};
use crate::meta::{FileKind, Meta};
use crate::writer::WRITTEN_BY;

/// Bytes after which the writer syncs.
const SYNC_EVERY: u64 = 8 << 20;

/// Why a snapshot was not written. The folder's other files are untouched; the unfinished file is a left-over that
/// [`SnapshotWriter::abandon`] or the next start removes.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The disk refused, or a snapshot with this clock exists ([`io::ErrorKind::AlreadyExists`]).
    #[error("can't write the snapshot {file}: {cause}")]
    Io {
        /// Name of the snapshot.
        file: String,
        /// What the operating system said.
        #[source]
        cause: io::Error,
    },
    /// A tuple is over the limit of a block, or zstd found no memory.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

/// What a snapshot has become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenSnapshot {
    /// Its name.
    pub name: String,
    /// Its rows.
    pub rows: u64,
    /// Its bytes, as stored.
    pub bytes: u64,
}

/// A snapshot being written.
pub struct SnapshotWriter {
    directory: Directory,
    name: String,
    temporary: String,
    file: Box<dyn DiskFile>,
    bytes: u64,
    synced_bytes: u64,
    timestamp: f64,
    rows: u64,
    pending: Vec<u8>,
    encoder: Encoder,
    blocks: Vec<u8>,
}

impl std::fmt::Debug for SnapshotWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SnapshotWriter")
            .field("name", &self.name)
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

impl SnapshotWriter {
    /// Begins the snapshot of `instance` at `vclock`, taken at `timestamp` (seconds since the epoch).
    ///
    /// # Errors
    /// [`SnapshotError`], also when there is a snapshot at `vclock`, or one is being written.
    pub fn create(
        directory: Directory,
        instance: Uuid,
        vclock: &Vclock,
        timestamp: f64,
    ) -> Result<Self, SnapshotError> {
        let name = file_name(FileKind::Snapshot, vclock.signature());
        let temporary = format!("{name}{IN_PROGRESS}");
        let failed = |cause| SnapshotError::Io { file: name.clone(), cause };
        if directory.list().map_err(failed)?.snapshots.contains(&vclock.signature()) {
            return Err(failed(io::ErrorKind::AlreadyExists.into()));
        }
        let meta = Meta {
            kind: FileKind::Snapshot,
            written_by: WRITTEN_BY.to_owned(),
            instance,
            vclock: vclock.clone(),
            prev_vclock: None,
            has_synced_length: false,
        };
        let text = meta.encode();
        let mut file = directory.disk().create(&temporary).map_err(failed)?;
        if let Err(cause) = write_all_at(&mut *file, text.as_bytes(), 0) {
            // The first error is what counts; a left-over is removed by the next start.
            let _ = directory.disk().remove(&temporary);
            return Err(failed(cause));
        }
        Ok(Self {
            directory,
            name,
            temporary,
            file,
            bytes: text.len() as u64,
            synced_bytes: 0,
            timestamp,
            rows: 0,
            pending: Vec::new(),
            encoder: Encoder::new(Some(DEFAULT_COMPRESSION_LEVEL))?,
            blocks: Vec::new(),
        })
    }

    /// Adds one tuple. `group_id` is 1 for a tuple of a local space, else 0.
    ///
    /// # Errors
    /// [`SnapshotError`]; the snapshot is then to be given up.
    pub fn add(&mut self, group_id: u32, space: u32, tuple: &[u8]) -> Result<(), SnapshotError> {
        encode_snapshot_row(&mut self.pending, self.rows, self.timestamp, group_id, space, tuple);
        self.rows += 1;
        if block::is_full(self.pending.len()) { self.flush() } else { Ok(()) }
    }

    /// Adds rows that are encoded already, numbered on from those before them, with the offset after each of them.
    ///
    /// # Errors
    /// [`SnapshotError`]; the snapshot is then to be given up.
    pub fn add_rows(&mut self, rows: &[u8], ends: &[u32]) -> Result<(), SnapshotError> {
        let mut begin = 0;
        for &end in ends {
            let end = end as usize;
            if block::is_full(self.pending.len() + end - begin) {
                self.pending.extend_from_slice(&rows[begin..end]);
                self.flush()?;
                begin = end;
            }
        }
        self.pending.extend_from_slice(&rows[begin..]);
        self.rows += ends.len() as u64;
        Ok(())
    }

    /// Gives the snapshot up and removes what there is of it.
    ///
    /// # Errors
    /// When the disk does not remove it; the next start does.
    pub fn abandon(self) -> io::Result<()> {
        let Self { directory, temporary, file, .. } = self;
        drop(file);
        directory.disk().remove(&temporary)
    }

    /// Bytes written to the disk so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Completes the snapshot: everything and its name are on the disk when this returns.
    ///
    /// # Errors
    /// [`SnapshotError`]; the snapshot is then missing, or it is complete and its name may not be durable. A file
    /// that did not get its name is removed, if the disk lets us.
    pub fn finish(mut self) -> Result<WrittenSnapshot, SnapshotError> {
        let flushed = if self.pending.is_empty() { Ok(()) } else { self.flush() };
        let written = flushed.and_then(|()| {
            self.write_out().map_err(|cause| SnapshotError::Io { file: self.name.clone(), cause })
        });
        if let Err(error) = written {
            // The first error is what counts; a left-over is removed by the next start.
            let _ = self.directory.disk().remove(&self.temporary);
            return Err(error);
        }
        Ok(WrittenSnapshot { name: self.name, rows: self.rows, bytes: self.bytes })
    }

    fn write_out(&mut self) -> io::Result<()> {
        write_all_at(&mut *self.file, &MAGIC_END, self.bytes)?;
        self.bytes += MAGIC_END.len() as u64;
        self.file.sync()?;
        self.directory.disk().rename(&self.temporary, &self.name)?;
        self.directory.disk().sync()
    }

    fn flush(&mut self) -> Result<(), SnapshotError> {
        self.blocks.clear();
        self.encoder.encode(&self.pending, &mut self.blocks)?;
        self.pending.clear();
        let written = write_all_at(&mut *self.file, &self.blocks, self.bytes);
        written.map_err(|cause| SnapshotError::Io { file: self.name.clone(), cause })?;
        self.bytes += self.blocks.len() as u64;
        if self.bytes - self.synced_bytes >= SYNC_EVERY {
            self.file.sync().map_err(|cause| SnapshotError::Io { file: self.name.clone(), cause })?;
            self.synced_bytes = self.bytes;
        }
        Ok(())
    }
}
