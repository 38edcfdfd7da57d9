//! A disk in memory that forgets, tears and fails on command.
//!
//! It keeps apart what has been written from what has been made durable, for contents and for names, and
//! counts every operation that changes something. A test runs a workload once to learn how many operations it
//! takes, then again with a fault at each, takes the [image](MemoryDisk::crash) that a crash would leave, and
//! recovers from that.
//!
//! It is as forgetful as a disk may be: a file's name is durable only after the folder's sync, its bytes only
//! after its own. Absent: writes that reach the disk out of order within one file.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::disk::{Disk, DiskFile};

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The operation fails and changes nothing; later ones succeed.
    Fail(io::ErrorKind),
    /// A write puts this many bytes into the file (all, if it has fewer) and then fails. Any other operation
    /// just fails.
    ShortWrite(usize),
    /// The operation and all after it fail: the machine is gone.
    Freeze,
}

/// What of the bytes that were not made durable a crash leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// The process died, the machine did not: everything written is there, and no more durable than it was.
    Process,
    /// The machine died: nothing is there that was not made durable, names included.
    Machine,
    /// The machine died after names and, of each file, up to this many further bytes had reached the disk.
    Torn(usize),
    /// The machine died after names, sizes and, of each file, up to this many further bytes had reached the
    /// disk, whole sectors of them; where the others were to be, there is what was there before, or zeros.
    Zeroed(usize),
}

/// The unit that a disk writes wholly or not at all.
const SECTOR_BYTES: usize = 512;

/// A folder in memory. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct MemoryDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Names to places in `contents`.
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    contents: Vec<Content>,
    operations: u64,
    fault: Option<(u64, Fault)>,
    is_frozen: bool,
}

#[derive(Debug, Clone, Default)]
struct Content {
    written: Vec<u8>,
    durable: Vec<u8>,
}

impl Content {
    fn durable(bytes: Vec<u8>) -> Self {
        Self { written: bytes.clone(), durable: bytes }
    }

    /// Length of what has been made durable and `kept` bytes more, as far as there are any.
    fn reached(&self, kept: usize) -> usize {
        self.durable.len().saturating_add(kept).min(self.written.len())
    }
}

impl MemoryDisk {
    /// An empty folder.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A folder with these files, all durable.
    #[must_use]
    pub fn with_files(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Self {
        let disk = Self::new();
        {
            let mut state = disk.state();
            for (name, bytes) in files {
                let place = state.contents.len();
                state.contents.push(Content::durable(bytes));
                state.names.insert(name, place);
            }
            state.durable_names = state.names.clone();
        }
        disk
    }

    /// The files as they are.
    #[must_use]
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let state = self.state();
        state
            .names
            .iter()
            .map(|(name, &place)| (name.clone(), state.contents[place].written.clone()))
            .collect()
    }

    /// Operations so far that change something: creations, writes, cuts, syncs, renamings, removals.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Lets the operation after `operations` further ones go wrong.
    pub fn fail_after(&self, operations: u64, fault: Fault) {
        let mut state = self.state();
        state.fault = Some((state.operations + operations, fault));
    }

    /// The folder as the next start finds it.
    #[must_use]
    pub fn crash(&self, crash: Crash) -> Self {
        let state = self.state();
        let image = |content: &Content| match crash {
            Crash::Process => content.clone(),
            Crash::Machine => Content::durable(content.durable.clone()),
            Crash::Torn(kept) => Content::durable(content.written[..content.reached(kept)].to_vec()),
            Crash::Zeroed(kept) => {
                let sectors = content.reached(kept) / SECTOR_BYTES * SECTOR_BYTES;
                let mut image = content.written[..sectors].to_vec();
                image.extend_from_slice(
                    &content.durable[sectors.min(content.durable.len())..content.reached(0)],
                );
                image.resize(content.written.len(), 0);
                Content::durable(image)
            }
        };
        let names = if crash == Crash::Machine { &state.durable_names } else { &state.names };
        let durable_names = if crash == Crash::Process { &state.durable_names } else { names };
        let state = State {
            names: names.clone(),
            durable_names: durable_names.clone(),
            contents: state.contents.iter().map(image).collect(),
            ..State::default()
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A test that panics while it holds the lock says so itself.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_file(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let place = *self.state().names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(MemoryFile { disk: self.clone(), place }))
    }
}

impl State {
    /// Counts an operation. `Some(n)`: write `n` bytes, then fail.
    fn operate(&mut self) -> io::Result<Option<usize>> {
        if self.is_frozen {
            return Err(frozen());
        }
        let number = self.operations;
        self.operations += 1;
        match self.fault {
            Some((at, fault)) if at == number => match fault {
                Fault::Fail(kind) => Err(kind.into()),
                Fault::ShortWrite(bytes) => Ok(Some(bytes)),
                Fault::Freeze => {
                    self.is_frozen = true;
                    Err(frozen())
                }
            },
            _ => Ok(None),
        }
    }

    fn operate_whole(&mut self) -> io::Result<()> {
        match self.operate()? {
            None => Ok(()),
            Some(_) => Err(io::ErrorKind::Other.into()),
        }
    }
}

fn frozen() -> io::Error {
    io::Error::other("the disk is gone")
}

impl Disk for MemoryDisk {
    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from("memory:").join(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.state().names.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.open_file(name)
    }

    fn reopen(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.open_file(name)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        {
            let mut state = self.state();
            state.operate_whole()?;
            if state.names.contains_key(name) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            let place = state.contents.len();
            state.contents.push(Content::default());
            state.names.insert(name.to_owned(), place);
        }
        self.open_file(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        state.operate_whole()?;
        if state.names.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let place = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.names.insert(to.to_owned(), place);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        state.operate_whole()?;
        state.names.remove(name).map(|_| ()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state();
        state.operate_whole()?;
        state.durable_names = state.names.clone();
        Ok(())
    }
}

struct MemoryFile {
    disk: MemoryDisk,
    place: usize,
}

impl DiskFile for MemoryFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.disk.state().contents[self.place].written.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.disk.state();
        let bytes = &state.contents[self.place].written;
        let rest = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..)).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut state = self.disk.state();
        let limit = state.operate()?;
        let count = limit.unwrap_or(bytes.len()).min(bytes.len());
        let offset = usize::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let content = &mut state.contents[self.place].written;
        if content.len() < offset + count {
            content.resize(offset + count, 0);
        }
        content[offset..offset + count].copy_from_slice(&bytes[..count]);
        if limit.is_some() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(count) }
    }

    fn truncate(&mut self, size: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        state.operate_whole()?;
        let size = usize::try_from(size).map_err(|_| io::ErrorKind::FileTooLarge)?;
        state.contents[self.place].written.truncate(size);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.disk.state();
        state.operate_whole()?;
        let content = &mut state.contents[self.place];
        content.durable = content.written.clone();
        Ok(())
    }
}
