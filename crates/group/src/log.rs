//! The log of a node: entries, votes and truncations in files of blocks, with one sync each round.
//!
//! Its files are `N.grouplog`, where N counts the records before the file. They are written by the same writer as an
//! `.xlog`, so that a torn tail and damage are told apart in the same way. Each file begins with [`Begin`], so that the files
//! before it can be removed once a snapshot holds their entries.
//!
//! A start reads the newest snapshot's state, then the records in order. An entry or a vote that was confirmed to the group and
//! is missing would break the promises of all nodes. Damage therefore keeps the node from starting, and says what to do:
//! another node has everything that was committed.
//!
//! Invariants:
//! - records are in the order of their rounds, and a round's records are durable when [`GroupLog::sync`] has returned;
//! - after a failure nothing is taken any more;
//! - an entry is read back only if its index and term are those of the present log.
//!
//! Absent: what entries mean, and which of them are committed beyond what a [`Ballot`] tells.

pub mod listing;
mod replay;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;

use lycosa_iproto::vclock::Vclock;
use lycosa_journal::directory::{Directory, file_name};
use lycosa_journal::log::{Batch, LogError, LogStatus};
use lycosa_journal::meta::FileKind;
use lycosa_journal::reader::{FileReader, Step};
use lycosa_journal::writer::{Settings, XlogWriter};
use lycosa_tuple::mp::Reader;
use raft::eraftpb::Entry;

pub use replay::{OpenLogError, Opened, ReadBack};

use crate::base::{Base, BaseError};
use crate::record::{Ballot, Begin, Identity, Position, Record, write_entry_record};

/// Bytes past which a file is ended. Smaller than an `.xlog`'s, so that files go soon after a snapshot.
pub const MAX_FILE_BYTES: u64 = 64 << 20;

/// The records of one round.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Records {
    pub(crate) reset: Option<Position>,
    pub(crate) ballot: Option<Ballot>,
    pub(crate) entries: Vec<Entry>,
}

impl Records {
    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.reset.is_none() && self.ballot.is_none() && self.entries.is_empty()
    }

    /// Entries among them.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.entries.len()
    }
}

/// Entries that the node wants to send and does not have in memory any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The first index.
    pub low: u64,
    /// The index behind the last one.
    pub high: u64,
    /// Bytes of data that are enough. The first entry comes in any case.
    pub max_bytes: u64,
    /// Where each term of the range begins, ascending.
    pub(crate) terms: Vec<Position>,
}

impl Wanted {
    fn term(&self, index: u64) -> Option<u64> {
        let behind = self.terms.partition_point(|run| run.index <= index);
        Some(self.terms[behind.checked_sub(1)?].term)
    }
}

/// Entries that were read back.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Found {
    pub(crate) entries: Vec<Entry>,
}

/// Bytes of a file between two places that are noted in it.
const MARK_BYTES: u64 = 128 << 10;

/// A file of the log.
#[derive(Debug, Clone)]
struct Span {
    signature: u64,
    /// The greatest index that the log had before the end of the file.
    highest: u64,
    /// Where some of the blocks begin, each with the index of its first entry, in the order of the file.
    marks: Vec<(u64, u64)>,
}

impl Span {
    fn new(signature: u64, highest: u64) -> Self {
        Self { signature, highest, marks: Vec::new() }
    }

    /// Notes a block, unless it is too near to the last noted one.
    fn note(&mut self, index: u64, offset: u64) {
        if offset >= self.marks.last().map_or(0, |&(_, last)| last) + MARK_BYTES {
            self.marks.push((index, offset));
        }
    }

    /// A place from which on the entry is found, if the file has it. A block that begins with a lower index and stands behind
    /// the entry would have cut it off the log.
    fn before(&self, index: u64) -> Option<u64> {
        self.marks.iter().rev().find(|&&(first, _)| first <= index).map(|&(_, offset)| offset)
    }
}

/// The log of one node.
pub struct GroupLog {
    directory: Directory,
    writer: XlogWriter,
    identity: Identity,
    level: u32,
    max_file_bytes: u64,
    /// Oldest first. The last one is being written, once `is_begun`.
    files: VecDeque<Span>,
    is_begun: bool,
    /// Records so far.
    count: u64,
    incarnation: u64,
    last: Position,
    ballot: Ballot,
    /// The entry that the newest durable snapshot holds last.
    base: u64,
    batch: Batch,
}

impl std::fmt::Debug for GroupLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupLog")
            .field("identity", &self.identity)
            .field("last", &self.last)
            .field("ballot", &self.ballot)
            .finish_non_exhaustive()
    }
}

fn clock(count: u64) -> Vclock {
    let mut clock = Vclock::new();
    clock.set(1, count).expect("1 is a replica id");
    clock
}

impl GroupLog {
    /// Begins the log of a new node, durably. With `base`, whose snapshot is in the folder, it is the first node of a group;
    /// without, a joiner, which waits for a snapshot.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn create(
        directory: Directory,
        settings: Settings,
        identity: Identity,
        base: Option<&Base>,
    ) -> Result<Self, LogError> {
        let last = base.map_or(Position::default(), |base| Position { term: base.term, index: base.index });
        let level = base.map_or(crate::base::FIRST_LEVEL, |base| base.level);
        let ballot = Ballot { term: crate::base::FIRST_TERM.max(last.term), vote: 0, commit: last.index };
        let begin = Begin { identity, level, last, ballot };
        let mut log = Self::at(directory, settings, begin, 0, VecDeque::new(), None, last.index)?;
        log.append(&Records { ballot: Some(ballot), ..Records::default() })?;
        log.sync()?;
        Ok(log)
    }

    fn at(
        directory: Directory,
        settings: Settings,
        begin: Begin,
        count: u64,
        files: VecDeque<Span>,
        newest: Option<u64>,
        base: u64,
    ) -> Result<Self, LogError> {
        let Begin { identity, level, last, ballot } = begin;
        let max_file_bytes = settings.max_file_bytes;
        // Files end here alone, since each begins with a record of its own.
        let settings = Settings { max_file_bytes: u64::MAX, ..settings };
        let newest = newest.map(clock);
        let writer = XlogWriter::go_on(
            directory.clone(),
            settings,
            FileKind::GroupLog,
            identity.group,
            clock(count),
            newest,
        )?;
        Ok(Self {
            directory,
            writer,
            identity,
            level,
            max_file_bytes,
            files,
            is_begun: false,
            count,
            incarnation: count,
            last,
            ballot,
            base,
            batch: Batch::default(),
        })
    }

    /// The folder of its files.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Whose log it is.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// A number that is greater at each start: records before it.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The last entry.
    #[must_use]
    pub fn last(&self) -> Position {
        self.last
    }

    /// Files, bytes and syncs of the log.
    #[must_use]
    pub fn status(&self) -> LogStatus {
        self.writer.status()
    }

    /// The level of the records from the next file on.
    pub fn set_level(&mut self, level: u32) {
        self.level = level;
    }

    /// Writes the records of a round.
    ///
    /// # Errors
    /// [`LogError`]. The log takes nothing more after that, and the node leaves the group's service.
    pub fn append(&mut self, records: &Records) -> Result<(), LogError> {
        if records.is_empty() {
            return Ok(());
        }
        let bytes = self.is_begun.then(|| self.writer.status().file_bytes);
        if bytes.is_some_and(|bytes| bytes > self.max_file_bytes) {
            self.rotate()?;
        }
        self.batch.clear();
        if !self.is_begun {
            let Self { identity, level, last, ballot, .. } = *self;
            self.put(&Record::Begin(Begin { identity, level, last, ballot }));
            self.files.push_back(Span::new(self.writer.vclock().get(1), self.last.index));
            self.is_begun = true;
        } else if let (Some(bytes), Some(first), Some(file)) =
            (bytes, records.entries.first(), self.files.back_mut())
        {
            file.note(first.index, bytes);
        }
        if let Some(ballot) = records.ballot {
            self.put(&Record::Ballot(ballot));
            self.ballot = ballot;
        }
        if let Some(position) = records.reset {
            self.put(&Record::Reset(position));
            self.last = position;
        }
        for entry in &records.entries {
            write_entry_record(&mut self.batch.rows, entry);
            self.batch.end_transaction();
            self.count += 1;
            self.last = Position { term: entry.term, index: entry.index };
        }
        self.batch.vclock = clock(self.count);
        let highest = self.last.index;
        if let Some(file) = self.files.back_mut() {
            file.highest = file.highest.max(highest);
        }
        self.writer.append(&self.batch)
    }

    fn put(&mut self, record: &Record) {
        record.write(&mut self.batch.rows);
        self.batch.end_transaction();
        self.count += 1;
    }

    /// Makes everything durable that was appended.
    ///
    /// # Errors
    /// [`LogError`]. Whether the records since the last sync are durable is then unknown.
    pub fn sync(&mut self) -> Result<(), LogError> {
        self.writer.sync()
    }

    /// Ends the file, if one is begun, as at a clean stop. The next round begins another.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn rotate(&mut self) -> Result<(), LogError> {
        self.is_begun = false;
        self.writer.rotate()
    }

    /// Removes files with entries up to `index` alone, and states before `base`, unless their snapshots are kept. `base` is
    /// the newest durable snapshot's: files that a start needs behind it stay, however large `index` is.
    ///
    /// # Errors
    /// [`BaseError`], also for the files.
    pub fn forget(&mut self, base: &Base, index: u64) -> Result<(), BaseError> {
        self.base = self.base.max(base.index);
        let limit = index.min(self.base);
        while self.files.len() > 1 && self.files[0].highest <= limit {
            let file = file_name(FileKind::GroupLog, self.files[0].signature);
            let disk = self.directory.disk();
            let removed = disk.remove(&file).and_then(|()| disk.sync());
            removed.map_err(|cause| BaseError::Io { action: "remove", file, cause })?;
            self.files.pop_front();
        }
        base.remove_older(&self.directory)
    }

    /// Reads entries back that were written. A reading begins near its first entry, wherever the one before has ended.
    ///
    /// # Errors
    /// When the disk does not give them, or they are in no file any more.
    pub fn read(&mut self, wanted: &Wanted) -> io::Result<Found> {
        let mut found = Found::default();
        let (mut next, mut bytes) = (wanted.low, 0);
        let holder = self.files.iter().position(|file| file.highest >= wanted.low);
        let mut at = holder.ok_or_else(|| missing(wanted.low))?;
        let mut reader = self.open_file(self.files[at].signature)?;
        if let Some(offset) = self.files[at].before(wanted.low) {
            reader.seek(offset);
        }
        loop {
            let offset = reader.offset();
            let rows = match reader.next_block()? {
                Step::Block(block) => block.rows,
                Step::End(_) => {
                    at += 1;
                    let following = self.files.get(at).ok_or_else(|| missing(next))?;
                    reader = self.open_file(following.signature)?;
                    continue;
                }
                Step::Damage(damage) => return Err(io::Error::new(io::ErrorKind::InvalidData, damage)),
            };
            let mut records = Reader::new(rows);
            let mut first = None;
            while !records.is_empty() {
                let record = Record::read(&mut records)
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                let Record::Entry(entry) = record else { continue };
                first.get_or_insert(entry.index);
                let is_wanted =
                    next < wanted.high && entry.index == next && wanted.term(next) == Some(entry.term);
                if is_wanted && (found.entries.is_empty() || bytes < wanted.max_bytes) {
                    (next, bytes) = (next + 1, bytes + entry.data.len() as u64);
                    found.entries.push(entry);
                }
            }
            if let Some(first) = first {
                self.files[at].note(first, offset);
            }
            if next == wanted.high || (!found.entries.is_empty() && bytes >= wanted.max_bytes) {
                return Ok(found);
            }
        }
    }

    fn open_file(&self, signature: u64) -> io::Result<FileReader> {
        self.directory.read(FileKind::GroupLog, signature).map_err(io::Error::other)
    }
}

fn missing(index: u64) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("entry {index} is in no file of the group's log"))
}
