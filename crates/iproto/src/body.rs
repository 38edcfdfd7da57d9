//! Body maps of the requests that change or read data, which requests and rows share.

use lycosa_tuple::mp::{self, MpError, Reader};

use crate::keys;

/// The fields of a SELECT, INSERT, REPLACE, UPDATE, DELETE or UPSERT, as far as they were given.
#[derive(Debug, Default)]
pub(crate) struct Fields<'a> {
    space: Option<u32>,
    pub(crate) index: u32,
    limit: Option<u32>,
    pub(crate) offset: u32,
    pub(crate) iterator: u32,
    pub(crate) base: i64,
    key: Option<&'a [u8]>,
    tuple: Option<&'a [u8]>,
    operations: Option<&'a [u8]>,
}

/// The name of a field that a request needs and does not have.
#[derive(Debug)]
pub(crate) struct Missing(pub(crate) &'static str);

impl<'a> Fields<'a> {
    /// Reads a body map as Tarantool does: only keys of one byte count, all others are passed over with their value;
    /// of a key given twice the last counts; every integer is cut to 32 bits.
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Self, MpError> {
        let mut fields = Self::default();
        for _ in 0..reader.map()? {
            let key = reader.rest().first().copied();
            reader.skip()?;
            match key {
                Some(keys::SPACE_ID) => fields.space = Some(reader.uint()? as u32),
                Some(keys::INDEX_ID) => fields.index = reader.uint()? as u32,
                Some(keys::LIMIT) => fields.limit = Some(reader.uint()? as u32),
                Some(keys::OFFSET) => fields.offset = reader.uint()? as u32,
                Some(keys::ITERATOR) => fields.iterator = reader.uint()? as u32,
                Some(keys::INDEX_BASE) => fields.base = i64::from(reader.uint()? as i32),
                Some(keys::KEY) => fields.key = Some(array(reader)?),
                Some(keys::TUPLE) => fields.tuple = Some(array(reader)?),
                Some(keys::OPERATIONS) => fields.operations = Some(array(reader)?),
                _ => reader.skip()?,
            }
        }
        Ok(fields)
    }

    pub(crate) fn space(&self) -> Result<u32, Missing> {
        self.space.ok_or(Missing("space id"))
    }

    pub(crate) fn limit(&self) -> Result<u32, Missing> {
        self.limit.ok_or(Missing("limit"))
    }

    pub(crate) fn key(&self) -> Result<&'a [u8], Missing> {
        self.key.ok_or(Missing("key"))
    }

    pub(crate) fn tuple(&self) -> Result<&'a [u8], Missing> {
        self.tuple.ok_or(Missing("tuple"))
    }

    pub(crate) fn operations(&self) -> Result<&'a [u8], Missing> {
        self.operations.ok_or(Missing("operations"))
    }
}

/// The bytes of the next value, which has to be an array. One of more than 65 535 values is stepped over as a whole, which is
/// faster for values of one byte.
#[inline]
pub(crate) fn array<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], MpError> {
    let before = reader.rest();
    if let [0xdd, ..] = before {
        return reader.raw();
    }
    for _ in 0..reader.array()? {
        reader.skip()?;
    }
    Ok(&before[..before.len() - reader.rest().len()])
}

/// The bytes of the next value, which has to be a map.
pub(crate) fn map<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], MpError> {
    match reader.rest() {
        [0x80..=0x8f | 0xde | 0xdf, ..] => reader.raw(),
        [] => Err(MpError::Truncated),
        _ => Err(reader.mismatch("map")),
    }
}

/// Appends a key with an integer in its shortest form.
pub(crate) fn write_field(out: &mut Vec<u8>, key: u8, value: u64) {
    out.push(key);
    mp::write_uint(out, value);
}

/// Appends a key with a value that is MessagePack already.
pub(crate) fn write_raw(out: &mut Vec<u8>, key: u8, value: &[u8]) {
    out.push(key);
    out.extend_from_slice(value);
}
