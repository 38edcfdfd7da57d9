//! Replay of a node's log at its start.

use std::collections::VecDeque;
use std::io;

use lycosa_journal::directory::{Directory, file_name};
use lycosa_journal::log::LogError;
use lycosa_journal::meta::FileKind;
use lycosa_journal::reader::{OpenError, Step};
use lycosa_journal::writer::Settings;
use lycosa_tuple::mp::Reader;
use raft::eraftpb::{Entry, EntryType};

use super::{GroupLog, Records, Span};
use crate::base::{Base, BaseError};
use crate::node::{Payload, payload};
use crate::record::{Ballot, Begin, Identity, Position, Record};

/// What an operator does about a node that cannot start.
const ADVICE: &str = "Remove this node from the group, and add an empty server in its place";

/// A log that was read at a start, and everything that the node goes on from.
#[derive(Debug)]
pub struct Opened {
    /// The log, to be written on.
    pub log: GroupLog,
    /// The newest snapshot's state, and what the layer above put beside it. `None`: the node waits for its first.
    pub base: Option<(Base, Vec<u8>)>,
    pub(crate) ballot: Ballot,
    /// All entries behind the snapshot.
    pub(crate) entries: Vec<Entry>,
}

impl Opened {
    /// Entries up to this index are known to be committed.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.ballot.commit
    }

    /// The rows of the entries behind the snapshot, up to `index`, as they were proposed.
    pub fn rows(&self, index: u64) -> impl Iterator<Item = &[u8]> {
        rows(&self.entries, index)
    }
}

/// A log that was read, and is not written on by the reader.
#[derive(Debug)]
pub struct ReadBack {
    /// The newest snapshot's state.
    pub base: Base,
    committed: u64,
    entries: Vec<Entry>,
}

impl ReadBack {
    /// Entries up to this index are known to be committed.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.committed
    }

    /// The state behind the last entry of the files, of a snapshot with the number `signature`.
    #[must_use]
    pub fn state_at_end(&self, signature: u64) -> Base {
        let mut state = Base { signature, ..self.base.clone() };
        for entry in &self.entries {
            (state.index, state.term) = (entry.index, entry.term);
            match payload(entry.clone()) {
                // A change that does not fit is none, as in a node.
                Payload::Change(change) => _ = state.members.apply(&change),
                Payload::Level(level) => state.level = state.level.max(level),
                Payload::Nothing | Payload::Rows(_) => {}
            }
        }
        state
    }

    /// The rows of the entries behind the snapshot, up to `index`, as they were proposed.
    pub fn rows(&self, index: u64) -> impl Iterator<Item = &[u8]> {
        rows(&self.entries, index)
    }
}

/// The highest level among entries up to `index`; 0 without one.
fn risen_to(entries: &[Entry], index: u64) -> u32 {
    let upto = entries.partition_point(|entry| entry.index <= index);
    let rises = entries[..upto].iter().filter(|entry| !entry.context.is_empty());
    let level = |entry: &Entry| match payload(entry.clone()) {
        Payload::Level(level) => level,
        _ => 0,
    };
    rises.map(level).max().unwrap_or(0)
}

/// The data of entries with rows, up to `index`.
fn rows(entries: &[Entry], index: u64) -> impl Iterator<Item = &[u8]> {
    let has_rows =
        |entry: &&Entry| entry.get_entry_type() == EntryType::EntryNormal && !entry.data.is_empty();
    let upto = entries.partition_point(|entry| entry.index <= index);
    entries[..upto].iter().filter(has_rows).map(|entry| &entry.data[..])
}

/// Why a node's log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum OpenLogError {
    /// The state of the newest snapshot.
    #[error(transparent)]
    Base(#[from] BaseError),
    /// The disk.
    #[error("can't read the group's log: {0}")]
    Io(#[from] io::Error),
    /// The folder has no log.
    #[error("the folder has no log of a group")]
    Absent,
    /// A file is not as it was written.
    #[error("'{file}' is damaged at offset {offset}: {reason}. {ADVICE}")]
    Damaged {
        /// Its name.
        file: String,
        /// Where.
        offset: u64,
        /// The fault.
        reason: String,
    },
    /// Records are missing between two files, or between the snapshot and the log.
    #[error("'{file}' begins behind {missing}, which no file has. {ADVICE}")]
    Gap {
        /// The file's name.
        file: String,
        /// The missing records.
        missing: String,
    },
    /// The file belongs to another group or another node.
    #[error("'{file}' is of node {} of group {}, the files before it are of node {} of group {}", .found.node, .found.group, .expected.node, .expected.group)]
    Foreign {
        /// The file's name.
        file: String,
        /// Whose it is.
        found: Identity,
        /// Whose it should be.
        expected: Identity,
    },
    /// The log has records of a level that this program does not know.
    #[error("the group has risen to level {found}, this program knows level {known}: start a newer version")]
    Level {
        /// The log's.
        found: u32,
        /// The program's.
        known: u32,
    },
    /// The records cannot be made durable.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// The state after the records so far.
struct LogReplay {
    base: Position,
    begin: Option<Begin>,
    /// The log's first file begins behind the entry at the base's index.
    is_late: bool,
    last: Position,
    ballot: Ballot,
    /// Entries behind `base`.
    entries: Vec<Entry>,
    /// The term of the entry at the base's index, if the log has it.
    term_at_base: Option<u64>,
    count: u64,
    highest: u64,
}

impl LogReplay {
    fn new(base: Position) -> Self {
        Self {
            base,
            begin: None,
            is_late: false,
            last: Position::default(),
            ballot: Ballot::default(),
            entries: Vec::new(),
            term_at_base: None,
            count: 0,
            highest: 0,
        }
    }

    fn apply(&mut self, record: Record) -> Result<(), String> {
        let is_first = self.begin.is_none();
        match record {
            Record::Begin(begin) if is_first => {
                self.begin = Some(begin);
                self.is_late = begin.last.index > self.base.index;
                (self.last, self.ballot) = (begin.last, begin.ballot);
                self.term_at_base = (begin.last.index == self.base.index).then_some(begin.last.term);
            }
            Record::Begin(begin) => {
                if (begin.last, begin.ballot) != (self.last, self.ballot) {
                    return Err("it begins with another state than the file before it ends with".to_owned());
                }
                self.begin = Some(begin);
            }
            _ if is_first => return Err("it does not begin with the state of the log".to_owned()),
            Record::Ballot(ballot) => self.ballot = ballot,
            Record::Reset(position) => {
                self.entries.clear();
                self.last = position;
                self.term_at_base = (position.index == self.base.index).then_some(position.term);
            }
            Record::Entry(entry) => self.entry(entry)?,
        }
        self.highest = self.highest.max(self.last.index);
        self.count += 1;
        Ok(())
    }

    fn entry(&mut self, entry: Entry) -> Result<(), String> {
        let (index, term) = (entry.index, entry.term);
        if index > self.last.index.saturating_add(1) || index == 0 {
            return Err(format!("entry {index} follows entry {}", self.last.index));
        }
        if index <= self.base.index {
            self.entries.clear();
            self.term_at_base = (index == self.base.index).then_some(term);
        } else {
            let kept = self.entries.partition_point(|earlier| earlier.index < index);
            self.entries.truncate(kept);
            self.entries.push(entry);
        }
        self.last = Position { term, index };
        Ok(())
    }
}

impl GroupLog {
    /// Reads the log in `directory`, makes it durable, and goes on in a new file. `known` is the level that the
    /// program knows.
    ///
    /// # Errors
    /// [`OpenLogError`].
    pub fn open(directory: Directory, settings: Settings, known: u32) -> Result<Opened, OpenLogError> {
        directory.remove_left_overs()?;
        let base = Base::newest(&directory)?;
        let position = position_of(base.as_ref());
        let mut replay = LogReplay::new(position);
        let signatures = directory.list()?.group_logs;
        let mut files = VecDeque::new();
        for (at, &signature) in signatures.iter().enumerate() {
            let is_last = at + 1 == signatures.len();
            if read_file(&directory, signature, is_last, &mut replay)? {
                files.push_back(Span::new(signature, replay.highest));
                replay.highest = replay.last.index;
            } else {
                // A file without records is begun again under the same name.
                directory.disk().remove(&file_name(FileKind::GroupLog, signature))?;
            }
        }
        let begin = replay.begin.ok_or(OpenLogError::Absent)?;
        let level = base.as_ref().map_or(begin.level, |(base, _)| base.level.max(begin.level));
        let level = level.max(risen_to(&replay.entries, replay.ballot.commit));
        if level > known {
            return Err(OpenLogError::Level { found: level, known });
        }
        if let Some((base, _)) = &base
            && base.group != begin.identity.group
        {
            let file = file_name(FileKind::GroupState, base.index);
            let found = Identity { group: base.group, ..begin.identity };
            return Err(OpenLogError::Foreign { file, found, expected: begin.identity });
        }
        let newest = files.back().map(|file| file.signature);
        // A snapshot that was installed before its record was durable replaces the log here.
        let is_replaced = replay.term_at_base != Some(position.term);
        if is_replaced
            && replay.term_at_base.is_none()
            && (replay.is_late || replay.last.index >= position.index)
        {
            let file = file_name(FileKind::GroupLog, files.front().map_or(0, |file| file.signature));
            let missing = match &base {
                Some(_) => format!("entry {}", position.index),
                None => "the snapshot of an entry".to_owned(),
            };
            return Err(OpenLogError::Gap { file, missing });
        }
        let begin = Begin { level, last: replay.last, ballot: replay.ballot, ..begin };
        let mut log = Self::at(directory, settings, begin, replay.count, files, newest, position.index)?;
        let reset = is_replaced.then_some(position);
        if is_replaced {
            replay.entries.clear();
            replay.last = position;
        }
        let ballot = sound(replay.ballot, replay.last, position);
        log.append(&Records { reset, ballot: Some(ballot), ..Records::default() })?;
        log.sync()?;
        Ok(Opened { log, base, ballot, entries: replay.entries })
    }
}

impl GroupLog {
    /// Whose log is in `directory`, if there is one.
    ///
    /// # Errors
    /// [`OpenLogError`].
    pub fn find(directory: &Directory) -> Result<Option<Identity>, OpenLogError> {
        let mut replay = LogReplay::new(Position::default());
        if let Some(&signature) = directory.list()?.group_logs.first() {
            // A file that was begun and holds nothing belongs to an attempt that did not end.
            read_file(directory, signature, true, &mut replay)?;
        }
        Ok(replay.begin.map(|begin| begin.identity))
    }

    /// Reads the newest snapshot's state and the entries behind it, also while the log is being written on, between two
    /// rounds. `None` before the first snapshot.
    ///
    /// # Errors
    /// [`OpenLogError`].
    pub fn read_back(directory: &Directory) -> Result<Option<ReadBack>, OpenLogError> {
        let base = Base::newest(directory)?;
        let mut replay = LogReplay::new(position_of(base.as_ref()));
        let Some((base, _)) = base else { return Ok(None) };
        let signatures = directory.list()?.group_logs;
        for (at, &signature) in signatures.iter().enumerate() {
            read_file(directory, signature, at + 1 == signatures.len(), &mut replay)?;
            replay.highest = replay.last.index;
        }
        let is_continued = replay.term_at_base == Some(base.term);
        let entries = if is_continued { replay.entries } else { Vec::new() };
        let last = entries.last().map_or(base.index, |entry| entry.index);
        let committed = replay.ballot.commit.clamp(base.index, last);
        Ok(Some(ReadBack { base, committed, entries }))
    }
}

fn position_of(base: Option<&(Base, Vec<u8>)>) -> Position {
    base.map_or(Position::default(), |(base, _)| Position { term: base.term, index: base.index })
}

/// The ballot of a start. Entries of a round may be durable without its ballot, and a ballot without the entries behind it.
fn sound(ballot: Ballot, last: Position, base: Position) -> Ballot {
    let commit = ballot.commit.clamp(base.index, last.index.max(base.index));
    let is_old = ballot.term < last.term;
    Ballot { term: ballot.term.max(last.term), vote: if is_old { 0 } else { ballot.vote }, commit }
}

/// Replays the records of one file. False if it has none, which only the last one may.
fn read_file(
    directory: &Directory,
    signature: u64,
    is_last: bool,
    replay: &mut LogReplay,
) -> Result<bool, OpenLogError> {
    let file = file_name(FileKind::GroupLog, signature);
    let damaged = |offset, reason: String| OpenLogError::Damaged { file: file.clone(), offset, reason };
    let mut reader = match directory.read(FileKind::GroupLog, signature) {
        Ok(reader) => reader,
        Err(OpenError::Io(error)) => return Err(error.into()),
        Err(OpenError::Torn(_)) if is_last => return Ok(false),
        Err(error) => return Err(damaged(0, error.to_string())),
    };
    let expected = replay.begin.map(|begin| begin.identity);
    if expected.is_none() {
        replay.count = signature;
    } else if replay.count != signature {
        let missing = format!("{} record(s)", signature.abs_diff(replay.count));
        return Err(OpenLogError::Gap { file, missing });
    }
    let before = replay.count;
    loop {
        let (offset, rows) = match reader.next_block()? {
            Step::Block(block) => (block.offset, block.rows),
            Step::End(_) if replay.count > before => return Ok(true),
            Step::End(_) if is_last => return Ok(false),
            Step::End(_) => return Err(damaged(reader.offset(), "it has no records".to_owned())),
            Step::Damage(damage) => return Err(damaged(damage.offset, damage.kind.to_string())),
        };
        let mut cursor = Reader::new(rows);
        while !cursor.is_empty() {
            let record = Record::read(&mut cursor).map_err(|error| damaged(offset, error.to_string()))?;
            replay.apply(record).map_err(|reason| damaged(offset, reason))?;
        }
        let found = replay.begin.map(|begin| begin.identity);
        if let (Some(expected), Some(found)) = (expected, found)
            && expected != found
        {
            return Err(OpenLogError::Foreign { file, found, expected });
        }
    }
}
