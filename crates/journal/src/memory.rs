//! A disk in memory that forgets, tears and fails on command.
//!
//! It keeps written bytes apart from durable ones, for contents and for names, and
//! counts every operation that changes something. A test runs a workload once to learn how many operations it
//! takes, then again with a fault at each, takes the [image](MemoryDisk::crash) that a crash would leave, and
//! recovers from that.
//!
//! It is as forgetful as a disk may be: a file's name is durable only after the folder's sync, its bytes only
//! after its own. Between two syncs each sector of a file, its length and each name reach the disk or not by themselves
//! ([`MemoryDisk::crash_by`]). Absent: a disk that loses what it has confirmed.

use std::collections::{BTreeMap, BTreeSet};
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
    /// The process died, the machine did not: everything written is readable, and no more durable than it was.
    Process,
    /// The machine died: only durable bytes and durable names are left.
    Machine,
    /// The machine died after names and, of each file, up to this many further bytes had reached the disk.
    Torn(usize),
    /// The machine died after names, sizes and, of each file, up to this many further bytes had reached the
    /// disk, whole sectors of them; the sectors between them hold their former bytes, or zeros.
    Zeroed(usize),
    /// The machine died while its drive wrote in an order of its own: of everything since the last sync, each sector,
    /// each length and each name is as before or as after, by a generator with this seed.
    Scattered(u64),
    /// The same, and each length is any between the two: most often one just behind where a write began, which cuts a header, or
    /// one near the end of a sector.
    Ragged(u64),
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
    /// The contents that cannot be read.
    unreadable: BTreeSet<usize>,
    bytes_read: u64,
}

#[derive(Debug, Clone, Default)]
struct Content {
    written: Vec<u8>,
    durable: Vec<u8>,
    /// Sectors that were written more than once since the last sync, as the last write but one left them.
    overwritten: BTreeMap<usize, Vec<u8>>,
    /// Where the writes since the last sync began.
    begins: Vec<usize>,
}

/// Which of several states the disk has; given their number, a number below it.
pub type Choose<'a> = dyn FnMut(usize) -> usize + 'a;

impl Content {
    fn durable(bytes: Vec<u8>) -> Self {
        Self { written: bytes.clone(), durable: bytes, ..Self::default() }
    }

    /// A sector of `bytes`, with zeros where they end.
    fn sector(bytes: &[u8], number: usize) -> [u8; SECTOR_BYTES] {
        let mut sector = [0; SECTOR_BYTES];
        let rest = bytes.get(number * SECTOR_BYTES..).unwrap_or_default();
        let length = rest.len().min(SECTOR_BYTES);
        sector[..length].copy_from_slice(&rest[..length]);
        sector
    }

    fn write(&mut self, bytes: &[u8], offset: usize) {
        let end = offset + bytes.len();
        self.begins.push(offset);
        for number in offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES) {
            let before = Self::sector(&self.written, number);
            if before != Self::sector(&self.durable, number) {
                self.overwritten.insert(number, before.to_vec());
            }
        }
        if self.written.len() < end {
            self.written.resize(end, 0);
        }
        self.written[offset..end].copy_from_slice(bytes);
    }

    fn sync(&mut self) {
        self.durable.clone_from(&self.written);
        self.overwritten.clear();
        self.begins.clear();
    }

    /// What may be on the disk if the last sync is all that it has confirmed.
    fn scattered(&self, choose: &mut Choose<'_>, is_ragged: bool) -> Vec<u8> {
        if self.written == self.durable && self.overwritten.is_empty() {
            return self.durable.clone();
        }
        let (before, after) = (self.durable.len(), self.written.len());
        let length = match before == after {
            true => after,
            false if is_ragged => self.ragged(choose),
            false => [before, after][choose(2)],
        };
        let mut image = Vec::with_capacity(length.next_multiple_of(SECTOR_BYTES));
        for number in 0..length.div_ceil(SECTOR_BYTES) {
            let mut states = vec![Self::sector(&self.durable, number), Self::sector(&self.written, number)];
            states.extend(self.overwritten.get(&number).map(|bytes| Self::sector(bytes, 0)));
            states.dedup();
            let state = if states.len() == 1 { 0 } else { choose(states.len()) };
            image.extend_from_slice(&states[state]);
        }
        image.truncate(length);
        image
    }

    /// A length between the durable one and the written one.
    fn ragged(&self, choose: &mut Choose<'_>) -> usize {
        let (before, after) = (self.durable.len(), self.written.len());
        let (least, most) = (before.min(after), before.max(after));
        let length = least + choose(most - least + 1);
        let near = match choose(4) {
            0 => length,
            1 => (length.next_multiple_of(SECTOR_BYTES) + choose(7)).saturating_sub(3),
            _ if self.begins.is_empty() => length,
            _ => self.begins[choose(self.begins.len())] + choose(4),
        };
        near.clamp(least, most)
    }

    /// Length of the durable bytes and `kept` bytes more, as far as they exist.
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

    /// Bytes that were read from all files so far.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.state().bytes_read
    }

    /// Lets the operation after `operations` further ones go wrong.
    pub fn fail_after(&self, operations: u64, fault: Fault) {
        let mut state = self.state();
        state.fault = Some((state.operations + operations, fault));
    }

    /// From now on a file can, or cannot, be read. One that is not there stays as it is.
    pub fn fail_reads(&self, name: &str, fails: bool) {
        let mut state = self.state();
        let Some(&place) = state.names.get(name) else { return };
        if fails {
            state.unreadable.insert(place);
        } else {
            state.unreadable.remove(&place);
        }
    }

    /// The folder as the next start finds it.
    #[must_use]
    pub fn crash(&self, crash: Crash) -> Self {
        if let Crash::Scattered(seed) | Crash::Ragged(seed) = crash {
            let mut state = seed;
            let mut choose = |states| {
                // SplitMix64.
                state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                ((mixed ^ (mixed >> 31)) % states as u64) as usize
            };
            return self.scattered(&mut choose, matches!(crash, Crash::Ragged(_)));
        }
        let state = self.state();
        let image = |content: &Content| match crash {
            Crash::Process => content.clone(),
            Crash::Machine | Crash::Scattered(_) | Crash::Ragged(_) => {
                Content::durable(content.durable.clone())
            }
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

    /// The folder as the next start finds it after the machine died while the drive wrote in an order of its own:
    /// `choose` says for each sector and length that was written since the last sync, and for each name, what the disk has.
    #[must_use]
    pub fn crash_by(&self, choose: &mut Choose<'_>) -> Self {
        self.scattered(choose, false)
    }

    fn scattered(&self, choose: &mut Choose<'_>, is_ragged: bool) -> Self {
        let state = self.state();
        let image = |content: &Content| Content::durable(content.scattered(choose, is_ragged));
        let contents = state.contents.iter().map(image).collect();
        // A rename is atomic: the names of one content are those before or those after.
        let of = |names: &BTreeMap<String, usize>, place| -> Vec<String> {
            names.iter().filter(|&(_, &at)| at == place).map(|(name, _)| name.clone()).collect()
        };
        let mut names = BTreeMap::new();
        for place in 0..state.contents.len() {
            let (before, after) = (of(&state.durable_names, place), of(&state.names, place));
            let is_after = before == after || choose(2) == 1;
            for name in if is_after { after } else { before } {
                names.insert(name, place);
            }
        }
        let state = State { durable_names: names.clone(), names, contents, ..State::default() };
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
        let mut state = self.disk.state();
        if state.unreadable.contains(&self.place) {
            return Err(io::Error::other("the sector cannot be read"));
        }
        let bytes = &state.contents[self.place].written;
        let rest = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..)).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        state.bytes_read += count as u64;
        Ok(count)
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut state = self.disk.state();
        let limit = state.operate()?;
        let count = limit.unwrap_or(bytes.len()).min(bytes.len());
        let offset = usize::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge)?;
        state.contents[self.place].write(&bytes[..count], offset);
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
        state.contents[self.place].sync();
        Ok(())
    }
}
