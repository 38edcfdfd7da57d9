//! Rows of the log, the short way: tuples and primary indexes only.
//!
//! A row was accepted when it was written, and the error of one that cannot be applied ends the recovery. So there are no
//! undo records, nothing is logged, and secondary indexes, which only refuse and find, wait until the log
//! has been read.
//!
//! The short way is for what logs are made of: INSERT, REPLACE, and UPDATE and DELETE by the primary key, of the users'
//! spaces. Everything else takes the ordinary way, for which the indexes of its space are made right first. They stay right
//! from then on, until the space is empty: so what it costs to make them right is paid for by the rows that came since.

use std::cmp::Ordering;

use lycosa_tuple::field::FieldSet;
use lycosa_tuple::tuple::TupleRef;
use lycosa_tuple::update::Assigned;

use super::build;
use crate::arena::{Arena, Handle};
use crate::error::Error;
use crate::schema::sequence::Sequences;
use crate::space::{AttachedSequence, PutMode, Space, key_values};
use crate::statement::Statement;
use crate::{Store, system};

impl Store {
    /// Applies a row of the log, if the short way is open to it; `false` if it has to take the ordinary way.
    pub(super) fn replay(&mut self, statement: &Statement<'_>) -> Result<bool, Error> {
        let id = statement.space();
        if id <= system::MAX {
            return Ok(false);
        }
        let Some(space) = self.catalog.get_mut(id) else { return Ok(false) };
        let is_short = match *statement {
            Statement::Insert { tuple, .. } | Statement::Replace { tuple, .. } => {
                key_values(tuple)?;
                space.sequence.as_ref().is_none_or(|attached| stored_number(attached, tuple).is_some())
            }
            Statement::Update { index, .. } | Statement::Delete { index, .. } => index == 0,
            Statement::Upsert { .. } => false,
        };
        let is_ordinary = space.def.engine.has_tuples() && space.primary().is_ok() && self.view.is_none();
        if !is_short || !is_ordinary {
            build::refresh(space, &self.arena)?;
            return Ok(false);
        }
        if !space.has_stale_indexes {
            if space.indexes.len() > 1 && !space.is_empty() {
                return Ok(false);
            }
            space.has_stale_indexes = true;
        }
        // An UPDATE that finds a tuple leaves it there, so that its DELETE counts.
        if !matches!(statement, Statement::Update { .. }) {
            self.vinyl_writes.note(space);
        }
        match *statement {
            Statement::Insert { tuple, .. } => {
                self.schema.sequences.replay(space.sequence.as_ref(), tuple);
                put(space, &mut self.arena, tuple, PutMode::Insert)?;
            }
            Statement::Replace { tuple, .. } => {
                self.schema.sequences.replay(space.sequence.as_ref(), tuple);
                put(space, &mut self.arena, tuple, PutMode::Replace)?;
            }
            Statement::Update { key, operations, base, .. } => {
                change(space, &mut self.arena, key, operations, base)?;
            }
            Statement::Delete { key, .. } => remove(space, &mut self.arena, key)?,
            Statement::Upsert { .. } => return Ok(false),
        }
        Ok(true)
    }
}

impl Sequences {
    /// Moves the sequence that is attached to a space on to what stands in its tuple.
    fn replay(&mut self, attached: Option<&AttachedSequence>, tuple: &[u8]) {
        let Some(attached) = attached else { return };
        let stored = stored_number(attached, tuple).flatten();
        let sequence = self.get(attached.sequence);
        if let Some(value) = stored.and_then(|stored| sequence?.after_storing(stored)) {
            self.set(attached.sequence, Some(value));
        }
    }
}

/// What stands in the field that a sequence fills: `None` if that is still to be done, no number if there is none to which
/// a sequence could move.
fn stored_number(attached: &AttachedSequence, tuple: &[u8]) -> Option<Option<i64>> {
    let Some(mut reader) = attached.place_in(tuple) else { return Some(None) };
    match reader.nil() {
        Ok(()) => None,
        Err(_) => Some(reader.int().ok().and_then(|stored| i64::try_from(stored).ok())),
    }
}

fn allocate(arena: &mut Arena, tuple: &[u8]) -> Result<Handle, Error> {
    arena.insert(tuple).ok_or(Error::MemoryIssue { bytes: tuple.len() as u64 })
}

/// Puts a tuple, which is an array, into a space.
fn put(space: &mut Space, arena: &mut Arena, tuple: &[u8], mode: PutMode) -> Result<(), Error> {
    space.check_as(tuple, true)?;
    let new = allocate(arena, tuple)?;
    let primary = &mut space.indexes[0];
    let old = primary.index.insert(arena, new);
    if let Some(old) = old {
        if mode == PutMode::Insert {
            primary.index.replace(arena, new, old);
            arena.remove(new);
            let (index, space) = (primary.def.name.clone(), space.def.name.clone());
            return Err(Error::TupleFound { index, space });
        }
        space.weight.subtract(arena.get(old).len());
        arena.remove(old);
    }
    space.weight.add(tuple.len());
    Ok(())
}

fn change(
    space: &mut Space,
    arena: &mut Arena,
    key: &[u8],
    operations: &[u8],
    base: i64,
) -> Result<(), Error> {
    let Some(old) = space.indexes[0].find(arena, key, None)? else { return Ok(()) };
    let old_tuple = TupleRef::trusted(arena.get(old));
    let primary = &space.indexes[0].def.key;
    let keeps_key = |fields: FieldSet| fields.is_disjoint(primary.fields());
    let mut tuple = Vec::new();
    let assigned = space.updated(old_tuple, (operations, base), keeps_key, true, &mut tuple)?;
    if let Some(Assigned { offset: Some(offset), .. }) = assigned {
        arena.swap(old, offset, &mut tuple);
        return Ok(());
    }
    let primary = &mut space.indexes[0];
    if primary.def.key.compare(old_tuple.bytes(), &tuple) != Ordering::Equal {
        let (index, space) = (primary.def.name.clone(), space.def.name.clone());
        return Err(Error::CantUpdatePrimaryKey { index, space });
    }
    let old_bytes = old_tuple.bytes().len();
    let new = allocate(arena, &tuple)?;
    primary.index.replace(arena, old, new);
    space.weight.add(tuple.len());
    space.weight.subtract(old_bytes);
    arena.remove(old);
    Ok(())
}

fn remove(space: &mut Space, arena: &mut Arena, key: &[u8]) -> Result<(), Error> {
    let primary = &mut space.indexes[0];
    if let Some(old) = primary.find(arena, key, None)? {
        primary.index.remove(arena, old);
        space.weight.subtract(arena.get(old).len());
        arena.remove(old);
    }
    Ok(())
}
