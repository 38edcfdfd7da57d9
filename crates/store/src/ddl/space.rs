//! Spaces: create, rename, change the format, truncate, drop.

use lycosa_tuple::mp;

use super::row::{MapWriter, RowWriter};
use super::{acting_user, as_admin, assign, delete, insert, privilege, rows_of, whole};
use crate::error::Error;
use crate::schema::row::Row;
use crate::statement::Statement;
use crate::{SpaceId, Store, UserId, system};

/// Spaces of SQL objects that belong to a space (`_trigger`, `_fk_constraint`, `_ck_constraint`, `_func_index`), and the
/// index of each that begins with the space's id.
const DEPENDENTS: [(SpaceId, u32); 4] = [(328, 1), (356, 1), (364, 0), (372, 0)];

/// One field of a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldSpec<'a> {
    /// Name, unique in the space.
    pub name: &'a str,
    /// Name of the type.
    pub ty: &'a str,
    /// May be nil or missing.
    pub nullable: bool,
}

/// A space to be created.
#[derive(Debug, Clone, Copy)]
pub struct SpaceSpec<'a> {
    /// Name, unique.
    pub name: &'a str,
    /// Number; `None`: the next one, from 512.
    pub id: Option<SpaceId>,
    /// Owner; `None`: who acts.
    pub owner: Option<UserId>,
    /// `memtx`, `vinyl` or `blackhole`.
    pub engine: &'a str,
    /// Number of fields that every tuple must have; 0: any.
    pub field_count: u32,
    /// The data are never logged.
    pub temporary: bool,
    /// The rows stay on this instance.
    pub local: bool,
    /// The fields.
    pub format: &'a [FieldSpec<'a>],
}

impl<'a> SpaceSpec<'a> {
    /// An ordinary space in memory.
    #[must_use]
    pub const fn new(name: &'a str, format: &'a [FieldSpec<'a>]) -> Self {
        Self {
            name,
            id: None,
            owner: None,
            engine: "memtx",
            field_count: 0,
            temporary: false,
            local: false,
            format,
        }
    }
}

/// The format as `_space` has it: an array of maps.
#[must_use]
pub fn encode_format(format: &[FieldSpec<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    mp::write_array(&mut bytes, u32::try_from(format.len()).unwrap_or(u32::MAX));
    for field in format {
        let map = MapWriter::default().text("name", field.name).text("type", field.ty);
        bytes.extend(map.flag("is_nullable", field.nullable).finish());
    }
    bytes
}

/// Creates a space and returns its number. Rows: UPDATE `_schema` (only if no id is given), INSERT `_space`.
///
/// # Errors
/// [`Error::SpaceExists`], and errors of the definition.
pub fn create_space(store: &mut Store, spec: &SpaceSpec<'_>) -> Result<SpaceId, Error> {
    whole(store, |store| {
        if store.space_by_name(spec.name).is_some() {
            return Err(Error::SpaceExists(spec.name.to_owned()));
        }
        let id = match spec.id {
            Some(id) => id,
            None => as_admin(store, |store| next_space_id(store, spec.name))?,
        };
        let flags = MapWriter::default().flag("temporary", spec.temporary);
        let flags = if spec.local { flags.uint("group_id", 1) } else { flags };
        let row = RowWriter::new(7)
            .id(id)
            .id(spec.owner.unwrap_or_else(|| acting_user(store)))
            .text(spec.name)
            .text(spec.engine)
            .id(spec.field_count)
            .raw(&flags.finish())
            .raw(&encode_format(spec.format));
        insert(store, system::SPACE, row)?;
        Ok(id)
    })
}

/// Counts `max_id` in `_schema` up to the next number that no space has.
fn next_space_id(store: &mut Store, name: &str) -> Result<SpaceId, Error> {
    let key = RowWriter::new(1).text("max_id").finish();
    let last = store.get(system::SCHEMA, 0, &key)?.map(|row| Row::new(row).id(1)).transpose()?;
    let last = last.unwrap_or(system::MAX).max(system::MAX);
    let free = (last..i32::MAX as u32).map(|id| id + 1).find(|&id| store.space(id).is_err());
    let free = free.ok_or_else(|| Error::CreateSpace {
        name: name.to_owned(),
        reason: "space id is too big".to_owned(),
    })?;
    let step = RowWriter::new(3).text("+").uint(2).id(free - last);
    let operations = RowWriter::new(1).row(&step).finish();
    let update =
        Statement::Update { space: system::SCHEMA, index: 0, key: &key, operations: &operations, base: 1 };
    if store.execute(&update)?.is_none() {
        insert(store, system::SCHEMA, RowWriter::new(2).text("max_id").id(free))?;
    }
    Ok(free)
}

/// Drops a space with its indexes, its grants and the sequence that was made for it.
///
/// # Errors
/// No such space, or no right to drop it.
pub fn drop_space(store: &mut Store, space: SpaceId) -> Result<(), Error> {
    whole(store, |store| {
        store.space(space)?;
        detach_sequence(store, space)?;
        for (dependents, index) in DEPENDENTS {
            for row in rows_of(store, dependents, index, RowWriter::ids([space]))? {
                let key = key_of(store, dependents, &row)?;
                store.execute(&Statement::Delete { space: dependents, index: 0, key: &key })?;
            }
        }
        // The primary index goes last; definitions of kinds of index that the store does not have are rows all the same.
        for row in rows_of(store, system::INDEX, 0, RowWriter::ids([space]))?.into_iter().rev() {
            delete(store, system::INDEX, RowWriter::ids([space, Row::new(&row).id(1)?]))?;
        }
        privilege::revoke_all_on(store, "space", space)?;
        delete(store, system::TRUNCATE, RowWriter::ids([space]))?;
        delete(store, system::SPACE, RowWriter::ids([space]))
    })
}

/// Lets no sequence fill the space any more, and drops the one that was made for it.
pub(super) fn detach_sequence(store: &mut Store, space: SpaceId) -> Result<(), Error> {
    let attached = store.space(space)?.sequence.clone();
    delete(store, system::SPACE_SEQUENCE, RowWriter::ids([space]))?;
    match attached {
        Some(attached) if attached.is_generated => super::sequence::drop_sequence(store, attached.sequence),
        _ => Ok(()),
    }
}

/// The primary key of a row, as a statement needs it.
fn key_of(store: &Store, space: SpaceId, row: &[u8]) -> Result<Vec<u8>, Error> {
    let primary = store.space(space)?.primary()?.key();
    let mut key = RowWriter::new(primary.part_count()).finish();
    primary.extract(row, &mut key);
    Ok(key)
}

/// Renames a space.
///
/// # Errors
/// No such space, the name is taken or none, or no right to alter the space.
pub fn rename_space(store: &mut Store, space: SpaceId, name: &str) -> Result<(), Error> {
    store.space(space)?;
    let mut value = Vec::new();
    mp::write_str(&mut value, name.as_bytes());
    assign(store, system::SPACE, RowWriter::ids([space]), 3, &value)
}

/// Changes the format of a space. The existing tuples must fit.
///
/// # Errors
/// No such space, a tuple does not fit, or no right to alter the space.
pub fn set_format(store: &mut Store, space: SpaceId, format: &[FieldSpec<'_>]) -> Result<(), Error> {
    store.space(space)?;
    assign(store, system::SPACE, RowWriter::ids([space]), 7, &encode_format(format))
}

/// Removes all tuples of a space in O(1); their memory is given back at the commit. Sequences go on where they were.
///
/// # Errors
/// No such space, a system space, or no write access.
pub fn truncate(store: &mut Store, space: SpaceId) -> Result<(), Error> {
    store.space(space)?;
    let count = RowWriter::new(3).text("+").uint(1).uint(1);
    let operations = RowWriter::new(1).row(&count).finish();
    let tuple = RowWriter::ids([space, 1]).finish();
    let upsert =
        Statement::Upsert { space: system::TRUNCATE, tuple: &tuple, operations: &operations, base: 0 };
    store.execute(&upsert).map(drop)
}
