//! The records of the log: MessagePack arrays, back to back in blocks.
//!
//! An entry with an index that the log has already cuts off everything from there on: that is how a follower's entries give
//! way to those of a new leader. [`Record::Reset`] does the same for a snapshot that replaces the log.

use lycosa_tuple::mp::{self, Reader};
use raft::eraftpb::Entry;
use uuid::Uuid;

use crate::base::uuid;
use crate::codec::{CodecError, fields, uint8};
use crate::members::NodeId;
use crate::message::{read_entry, write_entry};

/// What a node is, for as long as it is a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The group.
    pub group: Uuid,
    /// The node's number.
    pub node: NodeId,
    /// Its rank, which its election timeout follows from.
    pub rank: u8,
}

/// A place in the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The entry's term.
    pub term: u64,
    /// The entry's index.
    pub index: u64,
}

/// The term that a node is in, its vote in that term, and what it knows to be committed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ballot {
    /// The term.
    pub term: u64,
    /// The node that it has voted for; 0 for none.
    pub vote: NodeId,
    /// Every entry up to this index is committed. The record may be older than the knowledge.
    pub commit: u64,
}

/// The first record of each file: everything about the log that older files say, so that these can be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begin {
    /// Whose log it is.
    pub identity: Identity,
    /// The level of the records that follow.
    pub level: u32,
    /// The last entry before the file.
    pub last: Position,
    /// The ballot before the file.
    pub ballot: Ballot,
}

/// A record.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Record {
    /// A file begins.
    Begin(Begin),
    /// The node has another term, vote or knowledge.
    Ballot(Ballot),
    /// An entry.
    Entry(Entry),
    /// A snapshot that holds everything up to here replaces the log.
    Reset(Position),
}

fn write_ballot(out: &mut Vec<u8>, ballot: &Ballot) {
    for field in [ballot.term, ballot.vote, ballot.commit] {
        mp::write_uint(out, field);
    }
}

fn read_ballot(reader: &mut Reader<'_>) -> Result<Ballot, CodecError> {
    Ok(Ballot { term: reader.uint()?, vote: reader.uint()?, commit: reader.uint()? })
}

/// Appends an entry's record to `out`.
pub(crate) fn write_entry_record(out: &mut Vec<u8>, entry: &Entry) {
    mp::write_array(out, 2);
    mp::write_uint(out, 2);
    write_entry(out, entry);
}

impl Record {
    /// Appends the record to `out`.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Begin(Begin { identity, level, last, ballot }) => {
                mp::write_array(out, 10);
                mp::write_uint(out, 0);
                mp::write_bin(out, identity.group.as_bytes());
                mp::write_uint(out, identity.node);
                mp::write_uint(out, identity.rank.into());
                mp::write_uint(out, (*level).into());
                mp::write_uint(out, last.index);
                mp::write_uint(out, last.term);
                write_ballot(out, ballot);
            }
            Self::Ballot(ballot) => {
                mp::write_array(out, 4);
                mp::write_uint(out, 1);
                write_ballot(out, ballot);
            }
            Self::Entry(entry) => write_entry_record(out, entry),
            Self::Reset(position) => {
                mp::write_array(out, 3);
                mp::write_uint(out, 3);
                mp::write_uint(out, position.index);
                mp::write_uint(out, position.term);
            }
        }
    }

    /// Reads the next record.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        let mut ahead = *reader;
        ahead.array()?;
        let kind = ahead.uint()?;
        let expected = match kind {
            0 => 10,
            1 => 4,
            2 => 2,
            3 => 3,
            other => return Err(CodecError::Value("kind of a record", other)),
        };
        fields(reader, expected)?;
        reader.uint()?;
        Ok(match kind {
            0 => {
                let group = uuid(reader)?;
                let (node, rank) = (reader.uint()?, uint8(reader, "rank")?);
                if node == 0 {
                    return Err(CodecError::Value("node", node));
                }
                let level = reader.uint()?;
                let level = u32::try_from(level).map_err(|_| CodecError::Value("level", level))?;
                let (index, term) = (reader.uint()?, reader.uint()?);
                let identity = Identity { group, node, rank };
                Self::Begin(Begin {
                    identity,
                    level,
                    last: Position { term, index },
                    ballot: read_ballot(reader)?,
                })
            }
            1 => Self::Ballot(read_ballot(reader)?),
            2 => Self::Entry(read_entry(reader)?),
            _ => {
                let (index, term) = (reader.uint()?, reader.uint()?);
                Self::Reset(Position { term, index })
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(kind: u8, numbers: &[u64], data: Vec<u8>) -> Record {
        let position = Position { index: numbers[0], term: numbers[1] };
        let ballot = Ballot { term: numbers[2], vote: numbers[3], commit: numbers[4] };
        match kind {
            0 => {
                let identity =
                    Identity { group: Uuid::from_u128(numbers[5].into()), node: numbers[6].max(1), rank: 3 };
                Record::Begin(Begin { identity, level: 7, last: position, ballot })
            }
            1 => Record::Ballot(ballot),
            2 => {
                let mut entry = Entry::default();
                (entry.index, entry.term, entry.data) = (numbers[0], numbers[1], data.into());
                Record::Entry(entry)
            }
            _ => Record::Reset(position),
        }
    }

    proptest! {
        #[test]
        fn records_read_back(
            kinds in proptest::collection::vec(0_u8..4, 1..6),
            numbers in proptest::collection::vec(any::<u64>(), 7),
            data in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let records: Vec<Record> = kinds.iter().map(|&kind| record(kind, &numbers, data.clone())).collect();
            let mut bytes = Vec::new();
            records.iter().for_each(|record| record.write(&mut bytes));
            let mut reader = Reader::new(&bytes);
            for record in records {
                prop_assert_eq!(Record::read(&mut reader), Ok(record));
            }
            prop_assert!(reader.is_empty());
        }

        #[test]
        fn nothing_panics(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = Record::read(&mut Reader::new(&bytes));
        }
    }
}
