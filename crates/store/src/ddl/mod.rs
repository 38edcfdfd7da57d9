//! `box.schema` as functions over the open transaction.
//!
//! Each function changes the schema by the statements that Tarantool's Lua would make, in the same order, so that logs
//! look the same. They act for the user of the transaction, and either do all of their work or, refused, none.

mod function;
mod index;
mod privilege;
mod row;
mod sequence;
mod space;
mod user;

use crate::error::Error;
use crate::statement::Statement;
use crate::{IndexId, SpaceId, Store, UserId, user as users};

use self::row::RowWriter;

pub use self::function::{FunctionSpec, create_function, drop_function};
pub use self::index::{IndexSpec, PartSpec, SequenceUse, create_index, drop_index, rename_index};
pub use self::privilege::{Grantee, grant, revoke};
pub use self::sequence::{SequenceSpec, create_sequence, drop_sequence};
pub use self::space::{
    FieldSpec, SpaceSpec, create_space, drop_space, encode_format, rename_space, set_format, truncate,
};
pub use self::user::{create_role, create_user, drop_role, drop_user, set_password};

/// Does all of `work` or nothing of it.
fn whole<T>(store: &mut Store, work: impl FnOnce(&mut Store) -> Result<T, Error>) -> Result<T, Error> {
    if !store.in_transaction() {
        return Err(Error::NoTransaction);
    }
    let savepoint = store.savepoint();
    work(store).inspect_err(|_| store.rollback_to(savepoint))
}

/// Does `work` as `admin`: changes that follow from a user's request and need more rights than the user has.
fn as_admin<T>(store: &mut Store, work: impl FnOnce(&mut Store) -> Result<T, Error>) -> Result<T, Error> {
    store.acting_as(users::ADMIN, work)
}

fn insert(store: &mut Store, space: SpaceId, row: RowWriter) -> Result<(), Error> {
    store.execute(&Statement::Insert { space, tuple: &row.finish() }).map(drop)
}

fn replace(store: &mut Store, space: SpaceId, row: RowWriter) -> Result<(), Error> {
    store.execute(&Statement::Replace { space, tuple: &row.finish() }).map(drop)
}

fn delete(store: &mut Store, space: SpaceId, key: RowWriter) -> Result<(), Error> {
    store.execute(&Statement::Delete { space, index: 0, key: &key.finish() }).map(drop)
}

/// Sets one field, counted from 1, of the row with that key.
fn assign(store: &mut Store, space: SpaceId, key: RowWriter, field: u64, value: &[u8]) -> Result<(), Error> {
    let operation = RowWriter::new(3).text("=").uint(field).raw(value);
    let operations = RowWriter::new(1).row(&operation);
    let (key, operations) = (key.finish(), operations.finish());
    store
        .execute(&Statement::Update { space, index: 0, key: &key, operations: &operations, base: 1 })
        .map(drop)
}

/// The rows of a system space whose key in an index begins with these values, as they are before any of them changes.
fn rows_of(store: &Store, space: SpaceId, index: IndexId, key: RowWriter) -> Result<Vec<Vec<u8>>, Error> {
    let key = key.finish();
    let rows = store.range(space, index, crate::IteratorType::Eq, &key, 0)?;
    Ok(rows.map(<[u8]>::to_vec).collect())
}

/// The number after the largest in the first field of a system space; `least` if there is none.
fn next_id(store: &Store, space: SpaceId, least: u32) -> Result<u32, Error> {
    let key = RowWriter::new(0).finish();
    let last = store.first(space, 0, crate::IteratorType::Le, &key)?;
    let last = last.map(|row| crate::schema::row::Row::new(row).id(0)).transpose()?;
    Ok(last.map_or(least, |last| last.saturating_add(1).max(least)))
}

fn acting_user(store: &Store) -> UserId {
    store.acting_user()
}
