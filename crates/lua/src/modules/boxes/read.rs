//! Reads: SELECT, GET, counts, walks over an index.

use std::cell::RefCell;

use lycosa_instance::{Instance, Select, WalkError};
use lycosa_iproto::error::ErrorObject;
use lycosa_iproto::keys::RequestType;
use lycosa_store::{Access, Budget, Cursor, CursorError, IteratorType, Object, Progress, Space, user};
use lycosa_tuple::mp::Reader;
use lycosa_tuple::tuple::TupleRef;

use super::{id, iterator, key, of_store};
use crate::api::{Lua, Native};
use crate::error::Error;

pub(super) const FUNCTIONS: &[(&str, Native)] = &[
    ("select", select),
    ("first", first),
    ("get", get),
    ("count", count),
    ("bsize", bsize),
    ("index_bsize", index_bsize),
    ("misfit", misfit),
    ("cursor", cursor),
    ("advance", advance),
    ("system_row", system_row),
    ("system_rows", system_rows),
];

/// A walk over an index that survives changes.
struct Walk {
    cursor: RefCell<Cursor>,
}

pub(super) fn define_classes(lua: Lua) {
    lua.new_class::<Walk>("cursor", &[], &[("__tostring", shown_cursor)]);
    lua.pop(1);
}

fn shown_cursor(lua: Lua) -> Result<i32, Error> {
    lua.push_str("<iterator state>");
    Ok(1)
}

/// `select(space, index, iterator, key, offset, limit)`: a table of tuples.
fn select(lua: Lua) -> Result<i32, Error> {
    let (space, index) = (id(lua, 1, "the space")?, id(lua, 2, "the index")?);
    let iterator = iterator(lua, 3)?;
    let key = key(lua, 4)?;
    let offset = lua.integer(5).and_then(|number| u64::try_from(number).ok()).unwrap_or(0);
    let limit = lua.integer(6).and_then(|number| u64::try_from(number).ok()).unwrap_or(u64::MAX);
    let user = lua.session()?.caller.effective;
    prepare(lua, space, index)?;
    let mut out = Vec::new();
    let count = lua.with_instance(|instance| {
        instance.count_statement(RequestType::Select, 1);
        let select = Select { space, index, iterator, key: &key, offset, limit };
        instance.select(user, &select, &mut out)
    })?;
    note_read(lua, space)?;
    push_tuples(lua, space, count, &out)
}

/// `first(space, index, iterator, key, offset)`: the first tuple of `select`.
fn first(lua: Lua) -> Result<i32, Error> {
    let (space, index) = (id(lua, 1, "the space")?, id(lua, 2, "the index")?);
    let iterator = iterator(lua, 3)?;
    let key = key(lua, 4)?;
    let offset = lua.integer(5).and_then(|number| u64::try_from(number).ok()).unwrap_or(0);
    let user = lua.session()?.caller.effective;
    prepare(lua, space, index)?;
    let mut out = Vec::new();
    let count = lua.with_instance(|instance| {
        let select = Select { space, index, iterator, key: &key, offset, limit: 1 };
        instance.select(user, &select, &mut out)
    })?;
    // `index:random` asks for an offset, and does not begin a transaction in Tarantool.
    if lua.integer(5).is_none() {
        note_read(lua, space)?;
    }
    if count == 0 {
        return Ok(0);
    }
    lua.push_tuple_of(space, &out)?;
    Ok(1)
}

/// Flushes an index's deferred entries in steps, between which other fibers and requests have their turns. Inside of a
/// transaction, which a pause would abort, and where a fiber cannot pause, the read flushes the rest at once.
fn prepare(lua: Lua, space: u32, index: u32) -> Result<(), Error> {
    while lua.with_instance(|instance| instance.prepare_read(space, index))? {
        if lua.in_transaction() || !lua.may_pause() {
            break;
        }
        lua.pause()?;
    }
    Ok(())
}

/// Pushes a table of `count` tuples of a space, which stand in `tuples` one after the other.
fn push_tuples(lua: Lua, space: u32, count: u32, tuples: &[u8]) -> Result<i32, Error> {
    let mut reader = Reader::new(tuples);
    lua.new_table(count as usize, 0);
    for number in 1..=count {
        lua.push_tuple_of(space, reader.raw().unwrap_or(&[0x90]))?;
        lua.raw_set_item(-2, i32::try_from(number).unwrap_or(i32::MAX));
    }
    Ok(1)
}

fn check_read(instance: &Instance, user: u32, space: u32) -> Result<(), ErrorObject> {
    let checked = instance.store().check_access(user, Object::Space(space), Access::READ);
    checked.map_err(|error| of_store(&error))
}

/// A transaction in which something was read is ended by a yield, as in Tarantool; the length of a space does not count.
/// Neither do reads of system spaces: the modules look definitions up there.
fn note_read(lua: Lua, space: u32) -> Result<(), Error> {
    if space > lycosa_store::system::MAX && lua.in_transaction() && lua.check_not_aborted().is_ok() {
        lua.join_transaction()?;
    }
    Ok(())
}

/// `get(space, index, key)`
fn get(lua: Lua) -> Result<i32, Error> {
    let user = lua.session()?.caller.effective;
    find(lua, Some(user))
}

/// Pushes the tuple of arguments `space`, `index` and `key`, if there is one. `user` is whose right to read is checked.
fn find(lua: Lua, user: Option<u32>) -> Result<i32, Error> {
    let (space, index) = (id(lua, 1, "the space")?, id(lua, 2, "the index")?);
    let key = key(lua, 3)?;
    prepare(lua, space, index)?;
    let found = lua.with_instance(|instance| {
        if let Some(user) = user {
            check_read(instance, user, space)?;
            instance.count_statement(RequestType::Select, 1);
        }
        let store = instance.read(space, index)?;
        let found = match user {
            Some(user) => store.get_seen(user, space, index, &key),
            None => store.get(space, index, &key),
        };
        Ok(found.map_err(|error| of_store(&error))?.map(<[u8]>::to_vec))
    })?;
    if user.is_some() {
        note_read(lua, space)?;
    }
    let Some(tuple) = found else { return Ok(0) };
    lua.push_tuple_of(space, &tuple)?;
    Ok(1)
}

/// `count(space, index, iterator, key)`; without the last argument it is the length of the index.
fn count(lua: Lua) -> Result<i32, Error> {
    let (space, index) = (id(lua, 1, "the space")?, id(lua, 2, "the index")?);
    let iterator = iterator(lua, 3)?;
    let key = key(lua, 4)?;
    let user = lua.session()?.caller.effective;
    if lua.top() > 3 {
        note_read(lua, space)?;
    }
    prepare(lua, space, index)?;
    let count = lua.with_instance(|instance| {
        let store = instance.read(space, index)?;
        store.count_seen(user, space, index, iterator, &key).map_err(|error| of_store(&error))
    })?;
    lua.push_uint(count);
    Ok(1)
}

/// `bsize(space)`: bytes of its tuples.
fn bsize(lua: Lua) -> Result<i32, Error> {
    let space = id(lua, 1, "the space")?;
    let bytes = lua.with_instance(|instance| {
        let store = instance.read(space, 0)?;
        store.space(space).map(Space::bytes).map_err(|error| of_store(&error))
    })?;
    lua.push_uint(bytes);
    Ok(1)
}

/// `index_bsize(space, index)`: bytes that an index takes beside the tuples.
fn index_bsize(lua: Lua) -> Result<i32, Error> {
    let (space, index) = (id(lua, 1, "the space")?, id(lua, 2, "the index")?);
    let bytes = lua.with_instance(|instance| {
        let found = instance.store().space(space).map_err(|error| of_store(&error))?;
        Ok(found.index(index).map_or(0, lycosa_store::SpaceIndex::memory))
    })?;
    lua.push_number(bytes as f64);
    Ok(1)
}

/// `misfit(space, tuple)`: why the tuple does not fit the space's format; nil if it does.
fn misfit(lua: Lua) -> Result<i32, Error> {
    let space = id(lua, 1, "the space")?;
    let tuple = lua.tuple(2).ok_or_else(|| Error::here("the argument is no tuple"))?;
    let found = lua.with_instance(|instance| {
        let space = instance.store().space(space).map_err(|error| of_store(&error))?;
        Ok(space.format().check(TupleRef::trusted(tuple)).err())
    })?;
    match found {
        Some(error) => lua.push_str(lycosa_store::Error::Format(error).to_string()),
        None => lua.push_nil(),
    }
    Ok(1)
}

/// `cursor(space, index, iterator, key, offset)`
fn cursor(lua: Lua) -> Result<i32, Error> {
    let (space, index) = (id(lua, 1, "the space")?, id(lua, 2, "the index")?);
    let iterator = iterator(lua, 3)?;
    let key = key(lua, 4)?;
    let offset = lua.integer(5).and_then(|number| u64::try_from(number).ok()).unwrap_or(0);
    // As in Tarantool, an iterator that cannot begin is not made.
    let user = lua.session()?.caller.effective;
    lua.with_instance(|instance| {
        if instance.store().space(space).is_ok() {
            check_read(instance, user, space)?;
        }
        instance.count_statement(RequestType::Select, 1);
        let store = instance.store();
        store.check_iterator(space, index, iterator, &key).map_err(|error| of_store(&error))
    })?;
    let cursor = Cursor::new(user, space, index, iterator, &key).with_offset(offset);
    lua.push_userdata(Walk { cursor: RefCell::new(cursor) });
    Ok(1)
}

/// `advance(cursor)`: the next tuple, nothing at the end.
fn advance(lua: Lua) -> Result<i32, Error> {
    let Some(walk) = lua.userdata::<Walk>(1) else { return Err(Error::here("usage: next(param, state)")) };
    // Fibers may share a cursor, so none holds it over a pause.
    let (space, index, is_at_start) = {
        let cursor = walk.cursor.borrow();
        (cursor.space(), cursor.index(), cursor.handed_out() == 0)
    };
    if is_at_start {
        // An iterator whose index was dropped before its first step has ended, as in Tarantool.
        let stands = lua.with_instance(|instance| {
            Ok(instance.store().space(space).is_ok_and(|space| space.index(index).is_some()))
        })?;
        if !stands {
            lua.push_nil();
            return Ok(1);
        }
        note_read(lua, space)?;
        prepare(lua, space, index)?;
    }
    let mut cursor = walk.cursor.borrow_mut();
    let mut found = None;
    lua.with_instance(|instance| {
        let budget = Budget::new(1, 1);
        loop {
            let step =
                instance.advance(&mut cursor, budget, &mut |tuple: &[u8]| found = Some(tuple.to_vec()));
            match step {
                Ok(Progress::More) if found.is_none() => {}
                Ok(_) => return Ok(()),
                // An iterator over a dropped space or index ends, as in Tarantool.
                Err(WalkError::Cursor(CursorError::SpaceDropped(_) | CursorError::IndexDropped { .. })) => {
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
    })?;
    drop(cursor);
    match found {
        Some(tuple) => lua.push_tuple_of(space, &tuple)?,
        None => lua.push_nil(),
    }
    Ok(1)
}

/// `system_row(space, index, key)`: a row of a system space, for any user.
fn system_row(lua: Lua) -> Result<i32, Error> {
    find(lua, None)
}

/// `system_rows(space, key)`: the rows of a system space that have the key, or all, for any user.
fn system_rows(lua: Lua) -> Result<i32, Error> {
    let space = id(lua, 1, "the space")?;
    let key = key(lua, 2)?;
    let mut out = Vec::new();
    let count = lua.with_instance(|instance| {
        let iterator = if key == [0x90] { IteratorType::All } else { IteratorType::Eq };
        let select = Select { space, index: 0, iterator, key: &key, offset: 0, limit: u64::MAX };
        instance.select(user::ADMIN, &select, &mut out)
    })?;
    push_tuples(lua, space, count, &out)
}
