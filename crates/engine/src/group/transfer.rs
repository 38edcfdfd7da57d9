//! The file of a snapshot for a member far behind, sent from the file, never through the memory of the data.
//!
//! The sender reads the file in pieces; a snapshot that is removed meanwhile stays readable while it is open. The receiver
//! writes it under a temporary name, which [`GroupDisk`](super::GroupDisk) changes once the group's node takes the message
//! that announces the snapshot. A start removes a file received in part.
//!
//! Absent: the link, and how fast the pieces go.

use std::io;

use lycosa_group::base::Base;
use lycosa_journal::directory::{Directory, IN_PROGRESS, file_name};
use lycosa_journal::disk::{DiskFile, write_all_at};
use lycosa_journal::meta::FileKind;

/// The receiver makes the file durable in parts of this size. One sync of the whole file would hold up the syncs of other files on
/// that disk, the log's among them; and the pace of the sender is that of the receiver's disk.
const SYNC_STEP: u64 = 16 << 20;

/// The name of a snapshot's file until it is installed.
pub(super) fn received_name(base: &Base) -> String {
    format!("{}.received{IN_PROGRESS}", file_name(FileKind::Snapshot, base.signature))
}

/// Reads the file of a snapshot.
pub struct Sender {
    file: Box<dyn DiskFile>,
    size: u64,
    at: u64,
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender").field("size", &self.size).field("at", &self.at).finish_non_exhaustive()
    }
}

impl Sender {
    /// Opens the snapshot of `base`.
    ///
    /// # Errors
    /// The disk does not give it: the link is to be closed, so that the node hears of the loss.
    pub fn open(directory: &Directory, base: &Base) -> io::Result<Self> {
        let file = directory.disk().open(&file_name(FileKind::Snapshot, base.signature))?;
        let size = file.size()?;
        Ok(Self { file, size, at: 0 })
    }

    /// Bytes of the file.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Appends the next piece of at most `limit` bytes to `out`. Returns its length; 0 at the end.
    ///
    /// # Errors
    /// The disk does not give it.
    pub fn read(&mut self, out: &mut Vec<u8>, limit: usize) -> io::Result<usize> {
        let left = usize::try_from(self.size - self.at).unwrap_or(usize::MAX);
        let begin = out.len();
        out.resize(begin + limit.min(left), 0);
        let read = self.file.read_at(&mut out[begin..], self.at)?;
        out.truncate(begin + read);
        self.at += read as u64;
        Ok(read)
    }
}

/// Writes the file of a snapshot that another member sends.
pub struct Receiver {
    file: Box<dyn DiskFile>,
    size: u64,
    at: u64,
    /// Everything before it is durable.
    durable: u64,
}

impl std::fmt::Debug for Receiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiver").field("size", &self.size).field("at", &self.at).finish_non_exhaustive()
    }
}

impl Receiver {
    /// Begins the file of `base`'s snapshot, of `size` bytes. A part of an earlier attempt goes.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn begin(directory: &Directory, base: &Base, size: u64) -> io::Result<Self> {
        let name = received_name(base);
        match directory.disk().remove(&name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        Ok(Self { file: directory.disk().create(&name)?, size, at: 0, durable: 0 })
    }

    /// Adds a piece.
    ///
    /// # Errors
    /// The disk refuses, or more comes than was announced.
    pub fn add(&mut self, piece: &[u8]) -> io::Result<()> {
        if self.at + piece.len() as u64 > self.size {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a snapshot is longer than announced"));
        }
        write_all_at(&mut *self.file, piece, self.at)?;
        self.at += piece.len() as u64;
        if self.at - self.durable >= SYNC_STEP {
            self.file.sync()?;
            self.durable = self.at;
        }
        Ok(())
    }

    /// Whether all pieces are here.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.at == self.size
    }

    /// Makes the file durable. The message that announces the snapshot may be taken now.
    ///
    /// # Errors
    /// The disk refuses, or pieces are missing.
    pub fn finish(mut self) -> io::Result<()> {
        if !self.is_complete() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a snapshot is shorter than announced"));
        }
        self.file.sync()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lycosa_journal::memory::{Crash, MemoryDisk};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_large_file_becomes_durable_in_parts() {
        let disk = MemoryDisk::new();
        let directory = Directory::on(Arc::new(disk.clone()));
        let base = Base::first(Uuid::from_u128(1), 7, 1, "n1:1".to_owned());
        let mut receiver = Receiver::begin(&directory, &base, 3 * SYNC_STEP).expect("begun");
        directory.disk().sync().expect("its name is durable");
        let piece = vec![7; 1 << 20];
        (0..20).for_each(|_| receiver.add(&piece).expect("added"));
        let left = Directory::on(Arc::new(disk.crash(Crash::Machine)));
        let file = left.disk().open(&received_name(&base)).expect("the file");
        assert_eq!(file.size().expect("its size"), SYNC_STEP);
    }
}
