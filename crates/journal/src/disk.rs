//! The seam to the disk: one flat folder of files.
//!
//! Everything else in this crate reaches files through [`Disk`] and [`DiskFile`], so that the same writer and
//! the same recovery run on a real folder ([`LocalDisk`]) and on one in memory that fails, tears and forgets
//! on command ([`crate::memory::MemoryDisk`]).
//!
//! What is assumed of a disk: bytes are durable once `sync` of their file has returned; a name is durable
//! once `sync` of the folder has returned; a rename is atomic. What is not assumed: that unsynced bytes reach
//! the disk in order, or whole, or not at all.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

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
    /// When the disk does not confirm it. What was written since the last sync is then lost or not: nobody
    /// knows, and asking again proves nothing.
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

/// A folder of the file system.
#[derive(Debug)]
pub struct LocalDisk {
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
        Ok(Self { path: path.to_owned(), folder })
    }

    /// Takes the folder's lock for as long as this value lives. It is `flock` on the folder itself, which is
    /// what Tarantool takes on its `wal_dir`: the two exclude each other too.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] when somebody else holds it.
    pub fn lock(&self) -> Result<(), TryLockError> {
        self.folder.try_lock()
    }
}

impl Disk for LocalDisk {
    fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if !entry.file_type()?.is_dir()
                && let Ok(name) = entry.file_name().into_string()
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(LocalFile(File::open(self.path(name))?)))
    }

    fn reopen(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(LocalFile(OpenOptions::new().read(true).write(true).open(self.path(name))?)))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(self.path(name))?;
        Ok(Box::new(LocalFile(file)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        // The folder's lock is held, so nobody takes the name between the question and the answer.
        if fs::exists(self.path(to))? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path(name))
    }

    fn sync(&self) -> io::Result<()> {
        self.folder.sync_all()
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
