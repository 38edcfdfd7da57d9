//! Sequences as objects: to take the next value, to set and to reset. Each is a change of a row of `_sequence_data`.

use lycosa_tuple::mp::{self, Reader};

use crate::error::Error;
use crate::schema::Sequence;
use crate::statement::Statement;
use crate::{Access, Object, Store, system, user};

impl Store {
    /// The sequence with that id.
    #[must_use]
    pub fn sequence(&self, id: u32) -> Option<&Sequence> {
        self.schema.sequences.get(id)
    }

    /// The sequence with that name.
    #[must_use]
    pub fn sequence_by_name(&self, name: &str) -> Option<&Sequence> {
        self.schema.sequences.by_name(name)
    }

    /// All sequences in id order.
    pub fn sequences(&self) -> impl Iterator<Item = &Sequence> {
        self.schema.sequences.iter()
    }

    /// Takes the next value of a sequence, in the open transaction.
    ///
    /// # Errors
    /// No such sequence, no write access to it, [`Error::SequenceOverflow`] at its end.
    pub fn sequence_next(&mut self, id: u32) -> Result<i64, Error> {
        let next = self.writable_sequence(id)?.next()?;
        self.write_sequence_value(id, Some(next))?;
        Ok(next)
    }

    /// Sets the last value of a sequence, in the open transaction.
    ///
    /// # Errors
    /// No such sequence, no write access to it.
    pub fn sequence_set(&mut self, id: u32, value: i64) -> Result<(), Error> {
        self.writable_sequence(id)?;
        self.write_sequence_value(id, Some(value))
    }

    /// Lets a sequence begin anew, in the open transaction.
    ///
    /// # Errors
    /// As [`Store::sequence_set`].
    pub fn sequence_reset(&mut self, id: u32) -> Result<(), Error> {
        self.writable_sequence(id)?;
        self.write_sequence_value(id, None)
    }

    fn writable_sequence(&self, id: u32) -> Result<&Sequence, Error> {
        self.check_access(self.acting_user(), Object::Sequence(id), Access::WRITE)?;
        self.sequence(id).ok_or_else(|| Error::NoSuchSequence(id.to_string()))
    }

    fn write_sequence_value(&mut self, id: u32, value: Option<i64>) -> Result<(), Error> {
        // A user that may write the sequence need not be allowed to write the system space.
        let space = system::SEQUENCE_DATA;
        let mut row = Vec::with_capacity(16);
        let statement = if let Some(value) = value {
            write_value(&mut row, id, value);
            Statement::Replace { space, tuple: &row }
        } else {
            mp::write_array(&mut row, 1);
            mp::write_uint(&mut row, u64::from(id));
            Statement::Delete { space, index: 0, key: &row }
        };
        self.acting_as(user::ADMIN, |store| store.execute(&statement).map(drop))
    }

    /// A DELETE of `_sequence_data` has found no row with this key. The sequence begins anew all the same: inserts move a sequence
    /// without a row.
    pub(crate) fn reset_unwritten_sequence(&mut self, key: &[u8]) {
        let mut key = Reader::new(key);
        let id = key.array().and_then(|_| key.uint()).ok().and_then(|id| u32::try_from(id).ok());
        if let Some(id) = id
            && let Some(value) = self.sequence(id).and_then(|sequence| sequence.value)
        {
            self.undo_sequence(id, Some(value));
            self.schema.sequences.set(id, None);
        }
    }

    /// Hands out the rows that `_sequence_data` would have if every value had been written.
    pub(crate) fn for_each_sequence_value(&self, f: &mut dyn FnMut(&[u8])) {
        let mut row = Vec::with_capacity(16);
        for sequence in self.schema.sequences.iter() {
            if let Some(value) = sequence.value {
                row.clear();
                write_value(&mut row, sequence.id, value);
                f(&row);
            }
        }
    }
}

/// Writes a row of `_sequence_data`.
pub(crate) fn write_value(row: &mut Vec<u8>, id: u32, value: i64) {
    mp::write_array(row, 2);
    mp::write_uint(row, u64::from(id));
    mp::write_int(row, value);
}
