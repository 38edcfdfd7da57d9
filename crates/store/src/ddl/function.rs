//! Functions: create, drop.

use super::row::RowWriter;
use super::{acting_user, delete, insert, next_id, privilege, whole};
use crate::error::Error;
use crate::{Store, system};

/// A function to be registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionSpec<'a> {
    /// Name, unique.
    pub name: &'a str,
    /// Runs with the rights of its owner.
    pub setuid: bool,
    /// `LUA` or `C`.
    pub language: &'a str,
    /// Source text; empty if the name is to be looked up among the globals.
    pub body: &'a str,
}

/// Registers a function. `now` is what its row shows as the time of its making: `2026-11-20 11:03:29`.
///
/// # Errors
/// [`Error::FunctionExists`] unless `if_not_exists`, and errors of the definition.
pub fn create_function(
    store: &mut Store,
    spec: &FunctionSpec<'_>,
    now: &str,
    if_not_exists: bool,
) -> Result<(), Error> {
    whole(store, |store| {
        if store.function_by_name(spec.name).is_some() {
            return if if_not_exists { Ok(()) } else { Err(Error::FunctionExists(spec.name.to_owned())) };
        }
        let row = RowWriter::new(19)
            .id(next_id(store, system::FUNC, 1)?)
            .id(acting_user(store))
            .text(spec.name)
            .uint(u64::from(spec.setuid))
            .text(spec.language)
            .text(spec.body)
            .text("function")
            .empty_array()
            .text("any")
            .text("none")
            .text("none")
            .bool(false)
            .bool(false)
            .bool(true)
            .row(&RowWriter::new(1).text("LUA"))
            .empty_map()
            .text("")
            .text(now)
            .text(now);
        insert(store, system::FUNC, row)
    })
}

/// Forgets a function and the grants on it.
///
/// # Errors
/// [`Error::NoSuchFunction`] unless `if_exists`, or no right to drop it.
pub fn drop_function(store: &mut Store, name: &str, if_exists: bool) -> Result<(), Error> {
    whole(store, |store| {
        let Some(id) = store.function_by_name(name).map(|function| function.id) else {
            return if if_exists { Ok(()) } else { Err(Error::NoSuchFunction(name.to_owned())) };
        };
        privilege::revoke_all_on(store, "function", id)?;
        delete(store, system::FUNC, RowWriter::ids([id]))
    })
}
