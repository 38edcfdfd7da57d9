//! The seam to the disk: one flat folder of files.
//!
//! Everything else in this crate reaches files through [`Disk`] and [`DiskFile`]. So the same writer and the same
//! recovery run on a real folder ([`LocalDisk`]) and on one in memory ([`crate::memory::MemoryDisk`]), which fails,
//! tears and forgets on command.
//!
//! Assumptions about a disk: bytes are durable once `sync` of their file has returned; a name is durable
//! once `sync` of the folder has returned; a rename is atomic. Not assumed: that unsynced bytes reach
//! the disk in order, or whole, or not at all.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, renameat, statat, unlinkat};

/// A folder of files, addressed by bare names.
pub trait Disk: fmt::Debug + Send + Sync {
    /// Where `name` is, for messages.
    fn path(&self, name: &str) -> PathBuf;

    /// Names of all files in the folder, in no order. Names that are not UTF-8 are left out: none of ours is
    /// one.
    ///
    /// # Errors
    /// When the folder cannot be read.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Opens `name` for reading.
    ///
    /// # Errors
    /// When there is no such file or it cannot be read.
    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Opens `name` for writing on.
    ///
    /// # Errors
    /// When there is no such file or it cannot be written.
    fn reopen(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Creates `name`, empty, for writing.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] when the name is taken; any other when it cannot be created.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Gives the file `from` the name `to`. An open file stays open.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] when `to` is taken; any other when the folder cannot be changed.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes `name`.
    ///
    /// # Errors
    /// When there is no such file or the folder cannot be changed.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes every creation, renaming and removal so far durable.
    ///
    /// # Errors
    /// When the disk does not confirm it.
    fn sync(&self) -> io::Result<()>;

    /// Whether the folder is still where it was opened, so that the next start finds the journal there.
    ///
    /// # Errors
    /// What became of it.
    fn check_place(&self) -> Result<(), Displaced> {
        Ok(())
    }
}

/// The folder is not at its path any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Displaced {
    /// There is nothing at its path, and it has no other.
    #[error("was removed")]
    Removed,
    /// There is nothing at its path; it has another one.
    #[error("was moved away")]
    Moved,
    /// There is another folder at its path.
    #[error("was replaced by another")]
    Replaced,
}

/// An open file of a [`Disk`].
pub trait DiskFile: Send {
    /// Bytes in the file now.
    ///
    /// # Errors
    /// When the disk does not say.
    fn size(&self) -> io::Result<u64>;

    /// Reads up to `buffer.len()` bytes from `offset` on; 0 at the end of the file.
    ///
    /// # Errors
    /// When the disk cannot read them.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes the first bytes of `bytes` at `offset` and returns how many: at least one, unless `bytes` is
    /// empty.
    ///
    /// # Errors
    /// When the disk takes none.
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Cuts the file off at `size` bytes.
    ///
    /// # Errors
    /// When the disk cannot.
    fn truncate(&mut self, size: u64) -> io::Result<()>;

    /// Makes everything written so far durable, the file's size included.
    ///
    /// # Errors
    /// When the disk does not confirm it. Bytes written since the last sync are then lost or not: the disk
    /// does not tell, and asking again proves nothing.
    fn sync(&mut self) -> io::Result<()>;
}

/// Writes all of `bytes` at `offset`.
///
/// # Errors
/// The first error of [`DiskFile::write_at`]; an unknown part of `bytes` is then in the file.
pub fn write_all_at(file: &mut dyn DiskFile, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                bytes = &bytes[written..];
                offset += written as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads until `buffer` is full or the file ends; returns how many bytes there were.
///
/// # Errors
/// The first error of [`DiskFile::read_at`].
pub fn read_full_at(file: &dyn DiskFile, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// A folder of the file system. Its files are reached through the open folder, not through its path: nothing is ever
/// written into another folder that has taken its place.
#[derive(Debug)]
pub struct LocalDisk {
    /// Absolute, as the process may change its working directory.
    path: PathBuf,
    folder: File,
}

impl LocalDisk {
    /// Opens the folder at `path`.
    ///
    /// # Errors
    /// When there is no such folder or it cannot be read.
    pub fn open(path: &Path) -> io::Result<Self> {
        let folder = File::open(path)?;
        if !folder.metadata()?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Self { path: std::path::absolute(path)?, folder })
    }

    /// Takes the folder's lock for as long as this value lives. It is `flock` on the folder itself, which is
    /// what Tarantool takes on its `wal_dir`: the two exclude each other too.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] when another process holds it.
    pub fn lock(&self) -> Result<(), TryLockError> {
        self.folder.try_lock()
    }

    fn file(&self, name: &str, flags: OFlags) -> io::Result<LocalFile> {
        let file = openat(&self.folder, name, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)?;
        Ok(LocalFile(file.into()))
    }
}

impl Disk for LocalDisk {
    fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.folder)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            let file_type = match entry.file_type() {
                // Some file systems do not tell. A file that was deleted since is listed; opening it fails.
                FileType::Unknown => statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW)
                    .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
                known => known,
            };
            if file_type != FileType::Directory {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(self.file(name, OFlags::RDONLY)?))
    }

    fn reopen(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(self.file(name, OFlags::RDWR)?))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(self.file(name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        // This process holds the folder's lock, so no other one takes the name between the question and the answer.
        match statat(&self.folder, to, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => return Err(io::ErrorKind::AlreadyExists.into()),
            Err(rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(renameat(&self.folder, from, &self.folder, to)?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.folder, name, AtFlags::empty())?)
    }

    fn sync(&self) -> io::Result<()> {
        self.folder.sync_all()
    }

    fn check_place(&self) -> Result<(), Displaced> {
        // A disk that does not answer is found out by writing to it.
        let Ok(ours) = self.folder.metadata() else { return Ok(()) };
        match fs::metadata(&self.path) {
            Ok(there) if (there.dev(), there.ino()) == (ours.dev(), ours.ino()) => Ok(()),
            Ok(_) => Err(Displaced::Replaced),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Err(if ours.nlink() == 0 { Displaced::Removed } else { Displaced::Moved })
            }
            Err(_) => Ok(()),
        }
    }
}

struct LocalFile(File);

impl DiskFile for LocalFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(bytes, offset)
    }

    fn truncate(&mut self, size: u64) -> io::Result<()> {
        self.0.set_len(size)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }
}
