//! Rows of the log, the short way: tuples and primary indexes only.
//!
//! A row was accepted when it was written, and the error of one that cannot be applied ends the recovery. So nothing is
//! noted that could take it back, nothing is logged, and secondary indexes, which only refuse and find, wait until the log
//! has been read.
//!
//! The short way is for what logs are made of: INSERT, REPLACE, and UPDATE and DELETE by the primary key, of the users'
//! spaces. Everything else takes the ordinary way, for which the indexes of its space are made right first. They stay right
//! from then on, until the space is empty: so what it costs to make them right is paid for by the rows that came since.

use std::cmp::Ordering;

use lycosa_tuple::tuple::TupleRef;
use lycosa_tuple::update;

use super::build;
use crate::arena::{Arena, Handle};
use crate::error::Error;
use crate::space::{Entry, Space, key_values};
use crate::statement::Statement;
use crate::{Store, system};

impl Store {
    /// Applies a row of the log, if the short way is open to it; `false` if it has to take the ordinary way.
    pub(super) fn follow(&mut self, statement: &Statement<'_>) -> Result<bool, Error> {
        let id = statement.space();
        if id <= system::MAX {
            return Ok(false);
        }
        let Some(space) = self.catalog.get_mut(id) else { return Ok(false) };
        let is_short = match *statement {
            Statement::Insert { .. } | Statement::Replace { .. } => space.sequence.is_none(),
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
        match *statement {
            Statement::Insert { tuple, .. } => put(space, &mut self.arena, tuple, Entry::Insert)?,
            Statement::Replace { tuple, .. } => put(space, &mut self.arena, tuple, Entry::Replace)?,
            Statement::Update { key, operations, base, .. } => {
                change(space, &mut self.arena, key, operations, base)?;
            }
            Statement::Delete { key, .. } => remove(space, &mut self.arena, key)?,
            Statement::Upsert { .. } => return Ok(false),
        }
        Ok(true)
    }
}

fn allocate(arena: &mut Arena, tuple: &[u8]) -> Result<Handle, Error> {
    arena.insert(tuple).ok_or(Error::MemoryIssue { bytes: tuple.len() as u64 })
}

fn put(space: &mut Space, arena: &mut Arena, tuple: &[u8], entry: Entry) -> Result<(), Error> {
    key_values(tuple)?;
    space.check(tuple)?;
    let new = allocate(arena, tuple)?;
    let primary = &mut space.indexes[0];
    let old = primary.index.insert(arena, new);
    if let Some(old) = old {
        if entry == Entry::Insert {
            primary.index.replace(arena, new, old);
            arena.remove(new);
            let (index, space) = (primary.def.name.clone(), space.def.name.clone());
            return Err(Error::TupleFound { index, space });
        }
        space.bytes -= arena.get(old).len() as u64;
        arena.remove(old);
    }
    space.bytes += tuple.len() as u64;
    Ok(())
}

fn change(
    space: &mut Space,
    arena: &mut Arena,
    key: &[u8],
    operations: &[u8],
    base: i64,
) -> Result<(), Error> {
    let Some(old) = space.indexes[0].find(arena, key)? else { return Ok(()) };
    let old_tuple = TupleRef::trusted(arena.get(old));
    let tuple = update::apply(operations, old_tuple, &space.format, base, update::Mode::Update)?;
    space.check(&tuple)?;
    let primary = &mut space.indexes[0];
    if primary.def.key.compare(old_tuple.bytes(), &tuple) != Ordering::Equal {
        let (index, space) = (primary.def.name.clone(), space.def.name.clone());
        return Err(Error::CantUpdatePrimaryKey { index, space });
    }
    let old_bytes = old_tuple.bytes().len() as u64;
    let new = allocate(arena, &tuple)?;
    primary.index.replace(arena, old, new);
    space.bytes = space.bytes + tuple.len() as u64 - old_bytes;
    arena.remove(old);
    Ok(())
}

fn remove(space: &mut Space, arena: &mut Arena, key: &[u8]) -> Result<(), Error> {
    let primary = &mut space.indexes[0];
    if let Some(old) = primary.find(arena, key)? {
        primary.index.remove(arena, old);
        space.bytes -= arena.get(old).len() as u64;
        arena.remove(old);
    }
    Ok(())
}
