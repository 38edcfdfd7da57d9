//! The file of a snapshot for a member far behind, sent from the file, never through the memory of the data.
//!
//! The sender reads the file in pieces; a snapshot that is removed meanwhile stays readable while it is open. The receiver
//! writes each sending under a name of its own. A complete file gets the received snapshot's name, which
//! [`GroupDisk`](super::GroupDisk) changes once the group's node takes the message that announces the snapshot.
//!
//! Invariants:
//! - Only a complete and durable file has the received snapshot's name, and no sending takes that file away: two leaders may
//!   send the same snapshot one after the other, while the disk has yet to install the first.
//! - A sending that ends early leaves no file. A start removes the files that a crash left.
//! - A snapshot that is received and never installed, since its announcement was lost or came too late, goes once the member has a
//!   newer one.
//!
//! Absent: the link, and how fast the pieces go.

use std::io;

use lycosa_group::base::Base;
use lycosa_journal::directory::{Directory, file_name, unfinished_name};
use lycosa_journal::disk::{DiskFile, write_all_at};
use lycosa_journal::meta::FileKind;

/// The receiver makes the file durable in parts of this size. One sync of the whole file would hold up the syncs of other files on
/// that disk, the log's among them; and the pace of the sender is that of the receiver's disk.
const SYNC_STEP: u64 = 16 << 20;

/// The name of a complete snapshot's file until it is installed.
pub(super) fn received_name(base: &Base) -> String {
    unfinished_name(FileKind::Snapshot, base.signature, "received")
}

/// Removes received snapshots that are older than the member's own, of `base`. The node refuses a message that announces such a
/// snapshot.
///
/// # Errors
/// The disk refuses: they stay until the next snapshot or the next start.
pub(super) fn remove_older(directory: &Directory, base: &Base) -> io::Result<()> {
    let own = received_name(base);
    let stage = own.trim_start_matches(|c: char| c.is_ascii_digit());
    // All signatures have the same number of digits: the names of one stage are in the order of their snapshots.
    let in_progress = directory.list()?.in_progress;
    let mut older = in_progress.iter().filter(|name| name.ends_with(stage) && **name < own);
    older.try_for_each(|name| directory.disk().remove(name))
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
    directory: Directory,
    /// The name of this sending's file.
    part: String,
    /// The file's name once it is complete.
    received: String,
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
    /// Begins the file of `base`'s snapshot, of `size` bytes. Other sendings of the same snapshot may be under way.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn begin(directory: &Directory, base: &Base, size: u64) -> io::Result<Self> {
        let mut sending = 1;
        loop {
            let part = unfinished_name(FileKind::Snapshot, base.signature, &format!("part-{sending}"));
            match directory.disk().create(&part) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => sending += 1,
                file => {
                    let (directory, received) = (directory.clone(), received_name(base));
                    return Ok(Self { directory, part, received, file: file?, size, at: 0, durable: 0 });
                }
            }
        }
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
        self.file.sync()?;
        match self.directory.disk().rename(&self.part, &self.received) {
            // The same snapshot arrived before.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            renamed => renamed,
        }
    }
}

impl Drop for Receiver {
    /// Removes the file of a sending that has ended early, or of a snapshot that arrived before.
    fn drop(&mut self) {
        // The file is absent behind a whole sending; where the disk refuses, the next start removes the file.
        let _ = self.directory.disk().remove(&self.part);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lycosa_journal::memory::{Crash, MemoryDisk};
    use uuid::Uuid;

    use super::*;

    fn base() -> Base {
        Base::first(Uuid::from_u128(1), 7, 1, "n1:1".to_owned())
    }

    fn content(directory: &Directory, name: &str) -> io::Result<Vec<u8>> {
        let file = directory.disk().open(name)?;
        let mut content = vec![0; file.size()? as usize];
        file.read_at(&mut content, 0)?;
        Ok(content)
    }

    #[test]
    fn a_large_file_becomes_durable_in_parts() {
        let disk = MemoryDisk::new();
        let directory = Directory::on(Arc::new(disk.clone()));
        let mut receiver = Receiver::begin(&directory, &base(), 3 * SYNC_STEP).expect("begun");
        directory.disk().sync().expect("its name is durable");
        let piece = vec![7; 1 << 20];
        (0..20).for_each(|_| receiver.add(&piece).expect("added"));
        let left = Directory::on(Arc::new(disk.crash(Crash::Machine)));
        let file = left.disk().open(&receiver.part).expect("the file");
        assert_eq!(file.size().expect("its size"), SYNC_STEP);
        left.remove_left_overs().expect("a start removes it");
        assert!(left.disk().open(&receiver.part).is_err());
    }

    /// Two leaders send the same snapshot; the disk installs the first while the second comes.
    #[test]
    fn a_second_sending_of_a_snapshot_leaves_the_first_one_in_place() {
        let directory = Directory::on(Arc::new(MemoryDisk::new()));
        let begin = || Receiver::begin(&directory, &base(), 4).expect("begun");
        let (mut first, mut second, mut third) = (begin(), begin(), begin());
        first.add(b"rows").expect("added");
        first.finish().expect("finished");
        second.add(b"ro").expect("added");
        assert_eq!(content(&directory, &received_name(&base())).expect("the first"), b"rows");
        second.add(b"ws").expect("added");
        second.finish().expect("the same snapshot again");
        third.add(b"r").expect("added");
        drop(third);
        directory.disk().rename(&received_name(&base()), "installed").expect("the disk installs it");
        let parts =
            (1..=3).map(|n| unfinished_name(FileKind::Snapshot, base().signature, &format!("part-{n}")));
        parts.for_each(|part| assert!(content(&directory, &part).is_err(), "{part} is left"));
    }

    #[test]
    fn a_sending_that_is_cut_off_does_not_count() {
        let directory = Directory::on(Arc::new(MemoryDisk::new()));
        let mut receiver = Receiver::begin(&directory, &base(), 4).expect("begun");
        receiver.add(b"row").expect("added");
        assert_eq!(receiver.finish().map_err(|error| error.kind()), Err(io::ErrorKind::UnexpectedEof));
        assert!(content(&directory, &received_name(&base())).is_err());
    }
}
