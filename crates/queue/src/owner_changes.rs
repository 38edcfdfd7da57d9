//! Changes of owners, as they travel in a group: beside the rows of a batch, without stamps.
//!
//! A cycle of put, take and ack would log two rows more if `_queue_taken_2` were logged. A member of a group therefore notes who
//! owns what in a short form that goes into the entry of the rows, and keeps the owners in memory like a single server
//! ([`crate::owners`]). The form is MessagePack, back to back:
//!
//! | value | meaning |
//! |---|---|
//! | an integer | the number of the space of owners, from here on |
//! | an array of two numbers | the task with this key has no owner |
//! | a longer array | the row of the task's owner |
//!
//! Invariants:
//! - A note stands in the batch of the rows that it belongs to.
//! - Notes of a transaction that is taken back are taken back.
//! - The last note about a task says what holds.
//!
//! *Absent:* owners of temporary tubes, whose tasks no other member has.

use lycosa_store::SpaceId;
use lycosa_tuple::mp::{self, Reader};

use crate::error::OwnerChangeError;
use crate::owners::owner::Owner;
use crate::task::TaskKey;

/// The fields of a key.
const KEY_FIELDS: u32 = 2;

/// A change of a task's owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerChange<'a> {
    /// The task has this owner.
    Owned {
        /// Number of `_queue_taken_2`.
        space: SpaceId,
        /// The row.
        row: &'a [u8],
    },
    /// The task has no owner.
    Free {
        /// Number of `_queue_taken_2`.
        space: SpaceId,
        /// The key of the row: tube and task.
        key: &'a [u8],
    },
}

/// Reads changes of owners, in order. Ends behind the first error.
#[derive(Debug, Clone)]
pub struct OwnerChanges<'a> {
    bytes: &'a [u8],
    space: SpaceId,
}

impl<'a> OwnerChanges<'a> {
    /// The changes in `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, space: 0 }
    }

    fn read(&mut self) -> Result<Option<OwnerChange<'a>>, OwnerChangeError> {
        while !self.bytes.is_empty() {
            let mut reader = Reader::new(self.bytes);
            let value = reader.raw()?;
            self.bytes = reader.rest();
            let mut fields = Reader::new(value);
            if let Ok(space) = Reader::new(value).uint() {
                self.space = SpaceId::try_from(space).map_err(|_| OwnerChangeError::Space)?;
                continue;
            }
            let space = if self.space == 0 { Err(OwnerChangeError::Space) } else { Ok(self.space) }?;
            let count = fields.array()?;
            if count < KEY_FIELDS || fields.uint().is_err() || fields.uint().is_err() {
                return Err(OwnerChangeError::Task);
            }
            return Ok(Some(match count {
                KEY_FIELDS => OwnerChange::Free { space, key: value },
                _ => OwnerChange::Owned { space, row: value },
            }));
        }
        Ok(None)
    }
}

impl<'a> Iterator for OwnerChanges<'a> {
    type Item = Result<OwnerChange<'a>, OwnerChangeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.read();
        if read.is_err() {
            self.bytes = &[];
        }
        read.transpose()
    }
}

/// Changes of owners that no batch has yet.
#[derive(Debug, Default)]
pub(crate) struct OwnerNotes {
    bytes: Vec<u8>,
    /// The number of the space that the bytes named last. 0: it has to be named.
    space: SpaceId,
    /// Bytes of transactions that were committed.
    committed: usize,
}

impl OwnerNotes {
    /// Notes that a task has an owner.
    pub(crate) fn owned(&mut self, space: SpaceId, task: TaskKey, owner: &Owner) {
        self.name_space(space);
        owner.encode(task, &mut self.bytes);
    }

    /// Notes the row of a task's owner.
    pub(crate) fn row(&mut self, space: SpaceId, row: &[u8]) {
        self.name_space(space);
        self.bytes.extend_from_slice(row);
    }

    /// Notes that a task has no owner.
    pub(crate) fn free(&mut self, space: SpaceId, (tube, task): TaskKey) {
        self.name_space(space);
        mp::write_array(&mut self.bytes, KEY_FIELDS);
        mp::write_uint(&mut self.bytes, tube);
        mp::write_uint(&mut self.bytes, task);
    }

    #[inline]
    fn name_space(&mut self, space: SpaceId) {
        if self.space != space {
            self.space = space;
            mp::write_uint(&mut self.bytes, space.into());
        }
    }

    /// The place to which [`Self::revert_to`] leads.
    pub(crate) fn mark(&self) -> usize {
        self.bytes.len()
    }

    /// Takes back what the open transaction has noted behind the mark.
    pub(crate) fn revert_to(&mut self, mark: usize) {
        let kept = mark.max(self.committed);
        if kept < self.bytes.len() {
            self.bytes.truncate(kept);
            self.space = 0;
        }
    }

    /// The transaction is committed.
    #[inline]
    pub(crate) fn commit(&mut self) {
        self.committed = self.bytes.len();
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Moves the notes to the end of `out`. Outside a transaction.
    pub(crate) fn drain(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.bytes);
        (self.space, self.committed) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn owner(name: Option<[u8; 16]>) -> Owner {
        Owner { connection: 300, session: [7; 16], moment: 5, name }
    }

    fn read(notes: &mut OwnerNotes) -> Result<Vec<String>, OwnerChangeError> {
        let mut bytes = Vec::new();
        notes.drain(&mut bytes);
        let shown = |change| match change {
            OwnerChange::Owned { space, row } => {
                let owner = Owner::read(row).map(|owner| (owner.connection, owner.name.is_some()));
                format!("{space}: {:?} {owner:?}", crate::task::taken_key(row))
            }
            OwnerChange::Free { space, key } => format!("{space}: {:?}", crate::task::taken_key(key)),
        };
        OwnerChanges::new(&bytes).map(|change| change.map(shown)).collect()
    }

    #[test]
    fn notes_read_back_in_order() {
        let mut notes = OwnerNotes::default();
        notes.owned(700, (1, 2), &owner(None));
        notes.free(700, (1, 2));
        notes.commit();
        notes.owned(701, (3, 4), &owner(Some([9; 16])));
        notes.commit();
        let expected = [
            "700: Some((1, 2)) Some((300, false))",
            "700: Some((1, 2))",
            "701: Some((3, 4)) Some((300, true))",
        ];
        assert_eq!(read(&mut notes).expect("changes"), expected);
        assert!(notes.is_empty());
        // The next batch has to name the space again.
        notes.free(701, (3, 4));
        assert_eq!(read(&mut notes).expect("changes"), ["701: Some((3, 4))"]);
    }

    #[test]
    fn notes_of_a_transaction_that_is_taken_back_are_gone_and_committed_ones_stay() {
        let mut notes = OwnerNotes::default();
        notes.free(700, (1, 1));
        let mark = notes.mark();
        notes.free(701, (1, 2));
        notes.revert_to(mark);
        notes.free(700, (1, 3));
        notes.commit();
        notes.free(700, (1, 4));
        notes.revert_to(0);
        assert_eq!(read(&mut notes).expect("changes"), ["700: Some((1, 1))", "700: Some((1, 3))"]);
    }

    #[test]
    fn foreign_bytes_are_refused() {
        let refused = |bytes: &[u8]| OwnerChanges::new(bytes).find_map(Result::err);
        assert_eq!(refused(&[0x92, 1, 1]), Some(OwnerChangeError::Space));
        assert_eq!(refused(&[0, 0x92, 1, 1]), Some(OwnerChangeError::Space));
        assert_eq!(refused(&[0xcf, 1, 0, 0, 0, 0, 0, 0, 0]), Some(OwnerChangeError::Space));
        assert_eq!(refused(&[5, 0x91, 1]), Some(OwnerChangeError::Task));
        assert_eq!(refused(&[5, 0x92, 1, 0xa1, b'x']), Some(OwnerChangeError::Task));
        assert!(matches!(refused(&[5, 0xa1, b'x']), Some(OwnerChangeError::MessagePack(_))));
        assert!(matches!(refused(&[5, 0x92, 1]), Some(OwnerChangeError::MessagePack(_))));
        assert_eq!(refused(&[5, 0x92, 1, 1]), None);
    }

    proptest! {
        #[test]
        fn nothing_panics_and_every_reading_ends(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let count = OwnerChanges::new(&bytes).count();
            prop_assert!(count <= bytes.len());
        }
    }
}
