//! The records of a log for tools, which read beside a running node or without one.
//!
//! [`records`] reads the records of one block, and [`Marks`] tells what became of an entry: the node knows that it was committed, it gave
//! way to other entries, or neither is known. A file alone does not tell that: later records do. [`Marks::of`] therefore reads the
//! file and the files after it once, as far as they are sound.
//!
//! Numbers of records count as in the names of files: the first record of `N.grouplog` has the number N.
//!
//! Absent: promises about durability. The last records of a running node may be lost yet.

use std::io;

use lycosa_journal::directory::Directory;
use lycosa_journal::meta::FileKind;
use lycosa_journal::reader::{OpenError, Step};
use lycosa_tuple::mp::Reader;

use crate::base::Base;
use crate::codec::CodecError;
use crate::node::{Payload, payload};
use crate::record::{Ballot, Begin, Position, Record};

/// A record of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogRecord {
    /// A file begins.
    Begin(Begin),
    /// The node has another term, vote or knowledge.
    Ballot(Ballot),
    /// An entry. Entries from its index on give way to it.
    Entry {
        /// Where it stands.
        position: Position,
        /// What it holds.
        payload: Payload,
    },
    /// A snapshot that holds everything up to here replaces the log.
    Reset(Position),
}

impl From<Record> for LogRecord {
    fn from(record: Record) -> Self {
        match record {
            Record::Begin(begin) => Self::Begin(begin),
            Record::Ballot(ballot) => Self::Ballot(ballot),
            Record::Entry(entry) => {
                let position = Position { term: entry.term, index: entry.index };
                Self::Entry { position, payload: payload(entry) }
            }
            Record::Reset(position) => Self::Reset(position),
        }
    }
}

/// Reads the records of a block, up to the first that is not as it was written.
pub fn records(block: &[u8]) -> impl Iterator<Item = Result<LogRecord, CodecError>> {
    let mut reader = Reader::new(block);
    let mut is_damaged = false;
    std::iter::from_fn(move || {
        if is_damaged || reader.is_empty() {
            return None;
        }
        let record = Record::read(&mut reader).map(LogRecord::from);
        is_damaged = record.is_err();
        Some(record)
    })
}

/// The state of an entry as far as this node's log tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryState {
    /// A majority has it: it stays.
    Committed,
    /// It may be committed, and it may give way yet.
    Unknown,
    /// Another entry, or a snapshot, has taken its place.
    GaveWay,
}

/// What the records of a log tell about its entries.
#[derive(Debug, Clone, Default)]
pub struct Marks {
    /// The number of the record that follows.
    next: u64,
    last: Position,
    committed: u64,
    /// The last entry of the newest snapshot.
    snapshot: Position,
    /// Records with which entries gave way: their number, and the first such index. Both ascend: a record that cuts off
    /// no less than an earlier one stands for both.
    cuts: Vec<(u64, u64)>,
}

impl Marks {
    /// Reads the file with the number `signature` and the files after it, up to the first damage.
    ///
    /// # Errors
    /// The disk does not give them.
    pub fn of(directory: &Directory, signature: u64) -> io::Result<Self> {
        // A damaged state tells nothing here: `check` names it.
        let base = Base::newest(directory).ok().flatten();
        let snapshot =
            base.map_or(Position::default(), |(base, _)| Position { term: base.term, index: base.index });
        let mut marks = Self { next: signature, snapshot, ..Self::default() };
        let files = directory.list()?.group_logs;
        for &file in files.iter().filter(|&&file| file >= signature) {
            let mut reader = match directory.read(FileKind::GroupLog, file) {
                Ok(reader) => reader,
                Err(OpenError::Io(error)) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Err(_) => break,
            };
            if marks.next != file {
                break;
            }
            loop {
                match reader.next_block()? {
                    Step::Block(block) => {
                        for record in records(block.rows) {
                            let Ok(record) = record else { return Ok(marks) };
                            marks.apply(&record);
                        }
                    }
                    Step::End(_) => break,
                    Step::Damage(_) => return Ok(marks),
                }
            }
        }
        Ok(marks)
    }

    /// Hears of the record with the number [`next`](Self::next).
    pub fn apply(&mut self, record: &LogRecord) {
        match *record {
            LogRecord::Begin(begin) => {
                self.last = begin.last;
                self.committed = self.committed.max(begin.ballot.commit);
            }
            LogRecord::Ballot(ballot) => self.committed = self.committed.max(ballot.commit),
            LogRecord::Entry { position, .. } => {
                if position.index <= self.last.index {
                    self.cut(position.index);
                }
                self.last = position;
            }
            LogRecord::Reset(position) => {
                self.cut(self.committed.saturating_add(1));
                self.last = position;
            }
        }
        if self.last == self.snapshot {
            self.committed = self.committed.max(self.snapshot.index);
        }
        self.next += 1;
    }

    fn cut(&mut self, index: u64) {
        let kept = self.cuts.partition_point(|(_, earlier)| *earlier < index);
        self.cuts.truncate(kept);
        self.cuts.push((self.next, index));
    }

    /// The number of the first record that was not applied.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The last entry so far.
    #[must_use]
    pub fn last(&self) -> Position {
        self.last
    }

    /// Entries up to this index are known to be committed.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.committed
    }

    /// What became of the entry with this index in the record with this number.
    #[must_use]
    pub fn state(&self, record: u64, index: u64) -> EntryState {
        let later = self.cuts.partition_point(|(number, _)| *number <= record);
        match self.cuts.get(later) {
            Some((_, first)) if *first <= index => EntryState::GaveWay,
            _ if index <= self.committed => EntryState::Committed,
            _ => EntryState::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(term: u64, index: u64) -> LogRecord {
        LogRecord::Entry { position: Position { term, index }, payload: Payload::Nothing }
    }

    fn ballot(commit: u64) -> LogRecord {
        LogRecord::Ballot(Ballot { term: 9, vote: 0, commit })
    }

    /// The state of each entry of the records, in order.
    fn states(snapshot: Position, records: &[LogRecord]) -> Vec<EntryState> {
        let mut marks = Marks { snapshot, ..Marks::default() };
        records.iter().for_each(|record| marks.apply(record));
        let states = records.iter().zip(0..).filter_map(|(record, number)| match record {
            LogRecord::Entry { position, .. } => Some(marks.state(number, position.index)),
            _ => None,
        });
        states.collect()
    }

    #[test]
    fn an_entry_is_committed_or_gave_way_or_neither_is_known() {
        use EntryState::{Committed, GaveWay, Unknown};
        let records = [
            entry(1, 2),
            entry(1, 3),
            entry(1, 4),
            ballot(2),
            entry(2, 3),
            entry(2, 4),
            entry(3, 4),
            ballot(3),
            entry(3, 5),
        ];
        let expected = [Committed, GaveWay, GaveWay, Committed, GaveWay, Unknown, Unknown];
        assert_eq!(states(Position::default(), &records), expected);
        // The snapshot holds entry 4 of term 3, so the group had it.
        let snapshot = Position { term: 3, index: 4 };
        let expected = [Committed, GaveWay, GaveWay, Committed, GaveWay, Committed, Unknown];
        assert_eq!(states(snapshot, &records), expected);
        // A snapshot of another history says nothing about these entries.
        assert_eq!(states(Position { term: 2, index: 5 }, &records)[5], Unknown);
    }

    #[test]
    fn a_snapshot_replaces_entries_of_an_unknown_fate_alone() {
        use EntryState::{Committed, GaveWay, Unknown};
        let records = [
            entry(1, 2),
            ballot(2),
            entry(1, 3),
            entry(1, 4),
            LogRecord::Reset(Position { term: 2, index: 9 }),
            entry(2, 10),
        ];
        assert_eq!(states(Position::default(), &records), [Committed, GaveWay, GaveWay, Unknown]);
    }

    #[test]
    fn many_cuts_are_kept_as_the_few_that_tell() {
        let mut marks = Marks::default();
        for index in 2..1000 {
            marks.apply(&entry(1, index));
        }
        for index in (2..900).rev() {
            marks.apply(&entry(2, index));
        }
        assert_eq!(marks.cuts.len(), 1);
        assert_eq!(marks.state(5, 7), EntryState::GaveWay);
        assert_eq!(marks.state(marks.next() - 1, 2), EntryState::Unknown);
    }
}
