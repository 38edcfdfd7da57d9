//! A way to the disk of its own for the writer of snapshots, so that the disk can refuse a snapshot and take the journal.
//!
//! The journal never asks for the operations that are refused here; both see the same files, and a machine that dies takes both.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lycosa_journal::disk::{Disk, DiskFile};
use lycosa_journal::memory::{Fault, MemoryDisk};

/// The planned refusal, after this number of further operations.
type Pending = Arc<Mutex<Option<(u64, Fault)>>>;

/// The folder as the writer of snapshots sees it. Clones share their fault.
#[derive(Debug, Clone)]
pub(crate) struct SnapshotDisk {
    disk: MemoryDisk,
    pending: Pending,
}

impl SnapshotDisk {
    pub(crate) fn new(disk: MemoryDisk) -> Self {
        Self { disk, pending: Pending::default() }
    }

    /// Lets the operation after `operations` further ones that change something go wrong, once.
    pub(crate) fn fail_after(&self, operations: u64, fault: Fault) {
        *locked(&self.pending) = Some((operations, fault));
    }
}

fn locked(pending: &Pending) -> MutexGuard<'_, Option<(u64, Fault)>> {
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts an operation. `Some(n)`: write `n` bytes, then fail.
fn operate(pending: &Pending) -> io::Result<Option<usize>> {
    let mut pending = locked(pending);
    match pending.take() {
        None => Ok(None),
        Some((0, Fault::ShortWrite(bytes))) => Ok(Some(bytes)),
        Some((0, Fault::Fail(kind))) => Err(kind.into()),
        Some((0, Fault::Freeze)) => Err(io::ErrorKind::Other.into()),
        Some((operations, fault)) => {
            *pending = Some((operations - 1, fault));
            Ok(None)
        }
    }
}

fn operate_whole(pending: &Pending) -> io::Result<()> {
    match operate(pending)? {
        None => Ok(()),
        Some(_) => Err(io::ErrorKind::StorageFull.into()),
    }
}

impl Disk for SnapshotDisk {
    fn path(&self, name: &str) -> PathBuf {
        self.disk.path(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.disk.open(name)
    }

    fn reopen(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(SnapshotFile { file: self.disk.reopen(name)?, pending: Arc::clone(&self.pending) }))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        operate_whole(&self.pending)?;
        Ok(Box::new(SnapshotFile { file: self.disk.create(name)?, pending: Arc::clone(&self.pending) }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        operate_whole(&self.pending)?;
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        operate_whole(&self.pending)?;
        self.disk.remove(name)
    }

    fn sync(&self) -> io::Result<()> {
        operate_whole(&self.pending)?;
        self.disk.sync()
    }
}

struct SnapshotFile {
    file: Box<dyn DiskFile>,
    pending: Pending,
}

impl DiskFile for SnapshotFile {
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        match operate(&self.pending)? {
            None => self.file.write_at(bytes, offset),
            Some(limit) => {
                self.file.write_at(&bytes[..limit.min(bytes.len())], offset)?;
                Err(io::ErrorKind::StorageFull.into())
            }
        }
    }

    fn truncate(&mut self, size: u64) -> io::Result<()> {
        operate_whole(&self.pending)?;
        self.file.truncate(size)
    }

    fn sync(&mut self) -> io::Result<()> {
        operate_whole(&self.pending)?;
        self.file.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_here_is_refused_once_and_here_alone() {
        let below = MemoryDisk::new();
        let disk = SnapshotDisk::new(below.clone());
        disk.fail_after(1, Fault::ShortWrite(2));
        let mut file = disk.create("a").unwrap();
        assert_eq!(below.create("b").unwrap().write_at(b"whole", 0).unwrap(), 5);
        assert_eq!(file.write_at(b"torn", 0).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(below.files()["a"], b"to");
        file.write_at(b"torn", 0).unwrap();
        disk.fail_after(0, Fault::Fail(io::ErrorKind::Other));
        disk.rename("a", "c").unwrap_err();
        disk.rename("a", "c").unwrap();
        assert_eq!(below.files()["c"], b"torn");
    }
}
