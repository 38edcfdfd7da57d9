//! The data folder: which files are ours, their names, and the lock that lets one process write.
//!
//! A journal file is called by twenty digits and a suffix; the number is the signature of the file's vclock.
//! A file that is being made carries [`IN_PROGRESS`] at the end of its name and is renamed when it is
//! complete; one that is left over is worth nothing. A file that recovery has put aside carries [`SET_ASIDE`]
//! and is never read again. Any other name is a stranger: named in a message, and left alone.
//!
//! One process at a time writes to a folder; the lock says who. A real Tarantool takes the same one.

use std::fs::{self, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Disk, LocalDisk};
use crate::meta::FileKind;
use crate::reader::{FileReader, OpenError};

/// End of the name of a file that is being made.
pub const IN_PROGRESS: &str = ".inprogress";
/// End of the name of a file that recovery could not use and moved out of the way, as Tarantool calls it.
pub const SET_ASIDE: &str = ".corrupted";

const SIGNATURE_DIGITS: usize = 20;

/// Why a data folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// Another process holds the lock.
    #[error("the data folder {} is in use by another process: stop that server first, or name another folder", .0.display())]
    Locked(PathBuf),
    /// The folder is not there and cannot be made, or cannot be read.
    #[error("cannot open the data folder {}: {cause}", .path.display())]
    Io {
        /// The folder.
        path: PathBuf,
        /// The cause.
        #[source]
        cause: io::Error,
    },
}

/// A data folder. Cheap to clone; the lock is held until the last clone is gone.
#[derive(Debug, Clone)]
pub struct Directory {
    disk: Arc<dyn Disk>,
}

/// The files of a folder, sorted by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// Signatures of the snapshots.
    pub snapshots: Vec<u64>,
    /// Signatures of the xlogs.
    pub xlogs: Vec<u64>,
    /// Signatures of the states of a group.
    pub group_states: Vec<u64>,
    /// Signatures of the files of a group's log.
    pub group_logs: Vec<u64>,
    /// Files of ours that were never completed.
    pub in_progress: Vec<String>,
    /// Files with one of our suffixes whose names are not ours.
    pub strangers: Vec<String>,
}

impl Directory {
    /// Opens the folder at `path` for one writer, and makes it if it is not there.
    ///
    /// # Errors
    /// [`DirectoryError`].
    pub fn open(path: &Path) -> Result<Self, DirectoryError> {
        let failed = |cause| DirectoryError::Io { path: path.to_owned(), cause };
        create_durably(path).map_err(failed)?;
        let disk = LocalDisk::open(path).map_err(failed)?;
        match disk.lock() {
            Ok(()) => Ok(Self::on(Arc::new(disk))),
            Err(TryLockError::WouldBlock) => Err(DirectoryError::Locked(path.to_owned())),
            Err(TryLockError::Error(cause)) => Err(failed(cause)),
        }
    }

    /// Opens the folder at `path` for reading, also while another process writes there.
    ///
    /// # Errors
    /// [`DirectoryError::Io`].
    pub fn inspect(path: &Path) -> Result<Self, DirectoryError> {
        let disk =
            LocalDisk::open(path).map_err(|cause| DirectoryError::Io { path: path.to_owned(), cause })?;
        Ok(Self::on(Arc::new(disk)))
    }

    /// A folder on any disk; nothing is locked.
    #[must_use]
    pub fn on(disk: Arc<dyn Disk>) -> Self {
        Self { disk }
    }

    /// The disk under it.
    #[must_use]
    pub fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    /// Where `name` is, for messages.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.disk.path(name)
    }

    /// The files of the folder.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn list(&self) -> io::Result<Listing> {
        let mut listing = Listing::default();
        for name in self.disk.list()? {
            match classify(&name) {
                Name::File(FileKind::Snapshot, signature) => listing.snapshots.push(signature),
                Name::File(FileKind::Xlog, signature) => listing.xlogs.push(signature),
                Name::File(FileKind::GroupState, signature) => listing.group_states.push(signature),
                Name::File(FileKind::GroupLog, signature) => listing.group_logs.push(signature),
                Name::InProgress => listing.in_progress.push(name),
                Name::Stranger => listing.strangers.push(name),
                Name::NotOurs => {}
            }
        }
        listing.snapshots.sort_unstable();
        listing.xlogs.sort_unstable();
        listing.group_states.sort_unstable();
        listing.group_logs.sort_unstable();
        listing.in_progress.sort_unstable();
        listing.strangers.sort_unstable();
        Ok(listing)
    }

    /// Opens a journal file and reads its text header.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn read(&self, kind: FileKind, signature: u64) -> Result<FileReader, OpenError> {
        FileReader::open(self.disk.open(&file_name(kind, signature))?, kind)
    }

    /// Removes files that were never completed; returns their names. Recovery leaves that to
    /// [`crate::writer::XlogWriter::resume`]; a new instance does it before its first snapshot.
    ///
    /// # Errors
    /// When the folder cannot be read or changed.
    pub fn remove_left_overs(&self) -> io::Result<Vec<String>> {
        let left_overs = self.list()?.in_progress;
        for name in &left_overs {
            self.disk.remove(name)?;
        }
        Ok(left_overs)
    }

    /// Moves `name` out of the way of recovery, durably; returns its new name, which no other file had.
    ///
    /// # Errors
    /// When the folder cannot be changed.
    pub fn set_aside(&self, name: &str) -> io::Result<String> {
        let mut number = 1_u32;
        let mut aside = format!("{name}{SET_ASIDE}");
        loop {
            match self.disk.rename(name, &aside) {
                Ok(()) => break,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    number += 1;
                    aside = format!("{name}{SET_ASIDE}.{number}");
                }
                Err(error) => return Err(error),
            }
        }
        self.disk.sync()?;
        Ok(aside)
    }
}

/// Makes the folder at `path` and the missing ones above it, durably: synced files are worth nothing in a
/// folder that a crash takes away.
fn create_durably(path: &Path) -> io::Result<()> {
    let path = std::path::absolute(path)?;
    let missing: Vec<&Path> = path.ancestors().take_while(|folder| !folder.exists()).collect();
    fs::create_dir_all(&path)?;
    for parent in missing.iter().filter_map(|folder| folder.parent()) {
        fs::File::open(parent)?.sync_all()?;
    }
    Ok(())
}

/// The name of a complete journal file.
#[must_use]
pub fn file_name(kind: FileKind, signature: u64) -> String {
    format!("{signature:0SIGNATURE_DIGITS$}{}", kind.suffix())
}

/// The name of a file until it is complete and has a signature's [name](file_name). A start removes it.
#[must_use]
pub fn unfinished_name(kind: FileKind, signature: u64, stage: &str) -> String {
    format!("{signature:0SIGNATURE_DIGITS$}.{stage}{}{IN_PROGRESS}", kind.suffix())
}

enum Name {
    File(FileKind, u64),
    InProgress,
    Stranger,
    NotOurs,
}

fn classify(name: &str) -> Name {
    let complete = name.strip_suffix(IN_PROGRESS);
    for kind in [FileKind::Snapshot, FileKind::Xlog, FileKind::GroupState, FileKind::GroupLog] {
        if let Some(number) = complete.unwrap_or(name).strip_suffix(kind.suffix()) {
            return match signature(number) {
                _ if complete.is_some() => Name::InProgress,
                Some(signature) => Name::File(kind, signature),
                None => Name::Stranger,
            };
        }
    }
    Name::NotOurs
}

fn signature(digits: &str) -> Option<u64> {
    let plain = digits.len() == SIGNATURE_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    if plain { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_twenty_digits_are_a_name_of_ours() {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            "00000000000000000005.snap",
            "00000000000000000381.xlog",
            "00000000000000000268.xlog",
            "5.snap",
            "abc.xlog",
            "99999999999999999999.xlog",
            "+0000000000000000005.xlog",
            "00000000000000009999.snap.inprogress",
            "00000000000000000063.xlog.corrupted",
            "00000000000000000000.vylog",
            "00000000000000000005.group",
            "00000000000000000007.grouplog",
            "notes.txt",
        ] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        fs::create_dir(folder.path().join("512")).unwrap();
        let directory = Directory::open(folder.path()).unwrap();
        let expected = Listing {
            snapshots: vec![5],
            xlogs: vec![268, 381],
            group_states: vec![5],
            group_logs: vec![7],
            in_progress: vec!["00000000000000009999.snap.inprogress".to_owned()],
            strangers: ["+0000000000000000005.xlog", "5.snap", "99999999999999999999.xlog", "abc.xlog"]
                .map(str::to_owned)
                .to_vec(),
        };
        assert_eq!(directory.list().unwrap(), expected);
        assert_eq!(directory.remove_left_overs().unwrap(), expected.in_progress);
        assert!(directory.list().unwrap().in_progress.is_empty());
    }

    #[test]
    fn the_lock_admits_one_writer_and_any_inspector() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made/on/demand");
        let first = Directory::open(&path).unwrap();
        assert!(matches!(Directory::open(&path), Err(DirectoryError::Locked(_))));
        Directory::inspect(&path).unwrap();
        let clone = first.clone();
        drop(first);
        assert!(Directory::open(&path).is_err());
        drop(clone);
        Directory::open(&path).unwrap();
    }

    #[test]
    fn setting_aside_never_overwrites() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::open(folder.path()).unwrap();
        for expected in ["a.xlog.corrupted", "a.xlog.corrupted.2", "a.xlog.corrupted.3"] {
            fs::write(folder.path().join("a.xlog"), expected).unwrap();
            assert_eq!(directory.set_aside("a.xlog").unwrap(), expected);
            assert_eq!(fs::read_to_string(folder.path().join(expected)).unwrap(), expected);
        }
    }
}
