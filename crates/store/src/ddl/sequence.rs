//! Sequences: create, drop.

use super::row::RowWriter;
use super::{acting_user, delete, insert, next_id, privilege, whole};
use crate::error::Error;
use crate::{Store, system};

/// A sequence to be created.
#[derive(Debug, Clone, Copy)]
pub struct SequenceSpec<'a> {
    /// Name, unique.
    pub name: &'a str,
    /// Number; `None`: the next one.
    pub id: Option<u32>,
    /// Added for each value; not 0.
    pub step: i64,
    /// First value; `None`: the least one, or the largest if the step is negative.
    pub start: Option<i64>,
    /// Least value; `None`: 1, or the least of all if the step is negative.
    pub min: Option<i64>,
    /// Largest value; `None`: the largest of all, or −1 if the step is negative.
    pub max: Option<i64>,
    /// Begins anew at the other end instead of overflowing.
    pub cycle: bool,
}

impl<'a> SequenceSpec<'a> {
    /// 1, 2, 3, …
    #[must_use]
    pub const fn new(name: &'a str) -> Self {
        Self { name, id: None, step: 1, start: None, min: None, max: None, cycle: false }
    }
}

/// Creates a sequence and returns its number.
///
/// # Errors
/// [`Error::SequenceExists`], and errors of the definition.
pub fn create_sequence(store: &mut Store, spec: &SequenceSpec<'_>) -> Result<u32, Error> {
    whole(store, |store| {
        if store.sequence_by_name(spec.name).is_some() {
            return Err(Error::SequenceExists(spec.name.to_owned()));
        }
        let id = spec.id.map_or_else(|| next_id(store, system::SEQUENCE, 1), Ok)?;
        let ascends = spec.step >= 0;
        let min = spec.min.unwrap_or(if ascends { 1 } else { i64::MIN });
        let max = spec.max.unwrap_or(if ascends { i64::MAX } else { -1 });
        let row = RowWriter::new(9)
            .id(id)
            .id(acting_user(store))
            .text(spec.name)
            .int(spec.step)
            .int(min)
            .int(max)
            .int(spec.start.unwrap_or(if ascends { min } else { max }))
            .int(0)
            .bool(spec.cycle);
        insert(store, system::SEQUENCE, row)?;
        Ok(id)
    })
}

/// Drops a sequence with its grants.
///
/// # Errors
/// No such sequence, it is in use, or no right to drop it.
pub fn drop_sequence(store: &mut Store, sequence: u32) -> Result<(), Error> {
    whole(store, |store| {
        if store.sequence(sequence).is_none() {
            return Err(Error::NoSuchSequence(sequence.to_string()));
        }
        privilege::revoke_all_on(store, "sequence", sequence)?;
        delete(store, system::SEQUENCE_DATA, RowWriter::ids([sequence]))?;
        delete(store, system::SEQUENCE, RowWriter::ids([sequence]))
    })
}
