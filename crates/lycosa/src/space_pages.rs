//! A space read over the protocol, a page at a time, so that the server is never held up.
//!
//! Each page begins after the last key of the one before. So writes may go on: the pages are no view of one instant.

use anyhow::Context;
use lycosa_client::{Array, Error, Response, Value};
use lycosa_iproto::error::ErrorCode;
use lycosa_tuple::mp::{self, Reader};
use lycosa_tuple::path::Path;
use lycosa_tuple::tuple::TupleRef;

use crate::session::Session;

/// `_vspace`, which shows the spaces that the user may see.
pub(crate) const SPACES: u32 = 281;
/// The index of `_vspace` by name.
const SPACES_BY_NAME: u32 = 2;
/// `_vindex`, which shows their indexes.
pub(crate) const INDEXES: u32 = 289;

pub(crate) const EQ: u32 = 0;
pub(crate) const LE: u32 = 4;
pub(crate) const ALL: u32 = 2;
const GT: u32 = 6;

/// Tuples of the first page.
const FIRST_PAGE: u32 = 64;
/// Tuples of a page at the most.
const LARGEST_PAGE: u32 = 4096;
/// Bytes that a page is to have.
const PAGE_BYTES: u64 = 1 << 20;

/// Where the parts of a primary key are in a tuple.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PrimaryKey(Vec<(u32, Option<Path>)>);

impl PrimaryKey {
    /// Reads the parts of an index as a row of `_index` has them: `[[0, "unsigned"]]` or `[{field = 0, …}]`.
    pub(crate) fn read(parts: &Value) -> Option<Self> {
        let part = |part: &Value| {
            let field = match part {
                Value::Array(part) => part.first()?,
                part => part.get("field")?,
            };
            let path = match part.get("path").and_then(Value::as_bytes) {
                Some(path) => Some(Path::parse(path).ok()?),
                None => None,
            };
            Some((u32::try_from(field.as_u64()?).ok()?, path))
        };
        parts.as_array()?.iter().map(part).collect::<Option<_>>().map(Self)
    }

    /// The key of a tuple as an array of MessagePack; `None` if the tuple lacks a part.
    pub(crate) fn of(&self, tuple: TupleRef<'_>) -> Option<Vec<u8>> {
        let mut key = Vec::new();
        mp::write_array(&mut key, u32::try_from(self.0.len()).ok()?);
        for (field, path) in &self.0 {
            let value = tuple.field(*field)?;
            key.extend_from_slice(path.as_ref().map_or(Some(value), |path| path.lookup(value))?);
        }
        Some(key)
    }
}

/// The tuples of a space in the order of its primary key.
pub(crate) struct Pages {
    space: u32,
    pub(crate) key: PrimaryKey,
    limit: u32,
    /// The key after which the next page begins, as an array.
    after: Option<Vec<u8>>,
}

impl Pages {
    pub(crate) fn new(space: u32, key: PrimaryKey) -> Self {
        Self { space, key, limit: FIRST_PAGE, after: None }
    }

    /// Of a space whose primary key is the first field.
    pub(crate) fn by_first_field(space: u32) -> Self {
        Self::new(space, PrimaryKey(vec![(0, None)]))
    }

    /// The next tuples; `None` when there are no more.
    pub(crate) fn next(&mut self, session: &Session) -> anyhow::Result<Option<Response>> {
        loop {
            let (iterator, key) = match &self.after {
                None => (ALL, Array::from(())),
                Some(key) => (GT, Array::from_bytes(key.clone()).context("a key that is none")?),
            };
            match select(session, self.space, 0, iterator, key, self.limit) {
                Err(error) if self.limit > 1 && is_too_long(&error) => self.limit /= 2,
                answer => return self.turn(answer?),
            }
        }
    }

    fn turn(&mut self, page: Response) -> anyhow::Result<Option<Response>> {
        let Some(last) = tuples(&page).last() else { return Ok(None) };
        self.after = Some(self.key.of(last).context("a tuple without a key")?);
        let bytes_each = (page.data().len() as u64 / page.len().max(1) as u64).max(1);
        self.limit = u32::try_from(PAGE_BYTES / bytes_each).unwrap_or(LARGEST_PAGE).clamp(1, LARGEST_PAGE);
        Ok(Some(page))
    }
}

/// Whether the answer to a SELECT would be too long for the server or for us.
fn is_too_long(error: &Error) -> bool {
    error.code() == Some(ErrorCode::MemoryIssue)
}

pub(crate) fn select(
    session: &Session,
    space: u32,
    index: u32,
    iterator: u32,
    key: Array,
    limit: u32,
) -> Result<Response, Error> {
    let (runtime, connection) = session.parts();
    runtime.block_on(connection.select(space, index, iterator, key, 0, limit))
}

pub(crate) fn tuples(page: &Response) -> impl Iterator<Item = TupleRef<'_>> {
    let mut reader = Reader::new(page.data());
    let count = reader.array().unwrap_or(0);
    (0..count).map_while(move |_| TupleRef::new(reader.raw().ok()?).ok())
}

/// The number of the space with that name, and its row in `_vspace`, if the user may see it.
pub(crate) fn space(session: &Session, name: &str) -> anyhow::Result<Option<(u32, Value)>> {
    let found = select(session, SPACES, SPACES_BY_NAME, EQ, Array::from([Value::from(name)]), 1)?;
    let Some(row) = tuples(&found).next() else { return Ok(None) };
    let id = number(row, 0).and_then(|id| u32::try_from(id).ok()).context("a space without a number")?;
    Ok(Some((id, Value::decode(row.bytes())?)))
}

pub(crate) fn number(row: TupleRef<'_>, field: u32) -> Option<u64> {
    Reader::new(row.field(field)?).uint().ok()
}

pub(crate) fn text(row: TupleRef<'_>, field: u32) -> Option<&[u8]> {
    Reader::new(row.field(field)?).str().ok()
}

/// The same for people, who see a mark in the place of bytes that are no UTF-8.
pub(crate) fn shown_text(row: TupleRef<'_>, field: u32) -> Option<String> {
    text(row, field).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_by_both_forms_of_parts() {
        let short = Value::array([Value::array([Value::from(1_u64), "unsigned".into()])]);
        let part = [("field", Value::from(0_u64)), ("type", "string".into()), ("path", "a.b".into())];
        let long = Value::array([Value::map(part), Value::map([("field", Value::from(1_u64))])]);
        let inner = Value::map([("a", Value::map([("b", Value::from("x"))]))]);
        let tuple = Value::array([inner, Value::from(7_u64)]).encode();
        let tuple = TupleRef::new(&tuple).unwrap();
        assert_eq!(PrimaryKey::read(&short).unwrap().of(tuple), Some(vec![0x91, 7]));
        assert_eq!(PrimaryKey::read(&long).unwrap().of(tuple), Some(vec![0x92, 0xa1, b'x', 7]));
        assert_eq!(PrimaryKey::read(&Value::Nil), None);
    }
}
