//! Rows: one change each, as they stand in journals and snapshots and travel to replicas.
//!
//! A row is a header map and a body map, back to back. What is written is canonical, as Tarantool writes it: keys in a
//! fixed order, integers in their shortest form, left out where they say nothing. Tuples, keys and operations inside
//! are kept byte for byte.
//!
//! A transaction of two rows and more tells where it begins and ends: every row carries the LSN of the transaction's
//! first replicated row ([`RowHeader::tsn`], on disk as the difference `lsn − tsn` modulo 2^64), the last one a flag.
//! A single row carries neither.

use lycosa_tuple::mp::{self, MpError, Reader};

use crate::body::{Fields, Missing, write_field, write_raw};
use crate::keys::{self, RequestType};

/// What a row says about itself, its type excepted: that is the body's ([`RowBody::kind`]).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RowHeader {
    /// Id in `_cluster` of the instance that made the row; 0 for a local row.
    pub replica_id: u32,
    /// [`keys::GROUP_LOCAL`] for a row that never leaves its instance, else 0.
    pub group_id: u32,
    /// Position in the log of `replica_id`, counted from 1; in a snapshot a running number from 0.
    pub lsn: u64,
    /// When the row was made, in seconds since the epoch.
    pub timestamp: f64,
    /// LSN of the first row of the transaction that is not local; of the first row, if all are. A row that is alone
    /// in its transaction has `tsn == lsn`.
    pub tsn: u64,
    /// Whether this is the last row of its transaction.
    pub is_commit: bool,
}

impl RowHeader {
    /// Header of a row that is a transaction by itself.
    pub fn single(replica_id: u32, lsn: u64, timestamp: f64) -> Self {
        Self { replica_id, group_id: 0, lsn, timestamp, tsn: lsn, is_commit: true }
    }
}

/// What a row does. Tuples, keys and operations are MessagePack arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the requests of the same names")]
pub enum RowBody<'a> {
    /// Adds `tuple`.
    Insert { space: u32, tuple: &'a [u8] },
    /// Puts `tuple` in place of the one with its primary key.
    Replace { space: u32, tuple: &'a [u8] },
    /// Changes the tuple with `key`; `base` is the number of the first field in `operations`.
    Update { space: u32, index: u32, base: i64, key: &'a [u8], operations: &'a [u8] },
    /// Removes the tuple with `key`.
    Delete { space: u32, index: u32, key: &'a [u8] },
    /// Adds `tuple`, or applies `operations` to the one with its primary key.
    Upsert { space: u32, base: i64, tuple: &'a [u8], operations: &'a [u8] },
    /// Nothing; takes an LSN.
    Nop,
    /// Makes the waiting synchronous rows of `replica_id` up to `lsn` final.
    Confirm { replica_id: u32, lsn: u64 },
    /// Makes the waiting synchronous rows of `replica_id` from `lsn` on void.
    Rollback { replica_id: u32, lsn: u64 },
    /// Anything else: heartbeats, replies and rows of newer versions. `body` is one whole value or empty.
    Unknown { kind: u32, body: &'a [u8] },
}

impl RowBody<'_> {
    /// The number of the row's type.
    pub fn kind(&self) -> u32 {
        let known = match *self {
            Self::Insert { .. } => RequestType::Insert,
            Self::Replace { .. } => RequestType::Replace,
            Self::Update { .. } => RequestType::Update,
            Self::Delete { .. } => RequestType::Delete,
            Self::Upsert { .. } => RequestType::Upsert,
            Self::Nop => RequestType::Nop,
            Self::Confirm { .. } => RequestType::Confirm,
            Self::Rollback { .. } => RequestType::Rollback,
            Self::Unknown { kind, .. } => return kind,
        };
        known as u32
    }

    /// The space that the row changes, if it changes one.
    pub fn space(&self) -> Option<u32> {
        match *self {
            Self::Insert { space, .. }
            | Self::Replace { space, .. }
            | Self::Update { space, .. }
            | Self::Delete { space, .. }
            | Self::Upsert { space, .. } => Some(space),
            Self::Nop | Self::Confirm { .. } | Self::Rollback { .. } | Self::Unknown { .. } => None,
        }
    }
}

/// Why bytes are not a row. The texts are Tarantool's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// The header is not a map, is cut, or has a key with a value of the wrong type.
    #[error("Invalid MsgPack - packet header")]
    Header,
    /// The same for the body.
    #[error("Invalid MsgPack - packet body")]
    Body,
    /// The body lacks a field that its type needs.
    #[error("Missing mandatory field '{0}' in request")]
    MissingField(&'static str),
}

/// Appends a row as journals hold it.
pub fn encode_row(out: &mut Vec<u8>, header: &RowHeader, body: &RowBody<'_>) {
    let is_single = header.is_commit && header.tsn == header.lsn;
    let tsn = (!is_single).then(|| header.lsn.wrapping_sub(header.tsn));
    let flags = if is_single || !header.is_commit { 0 } else { keys::FLAG_COMMIT };
    let optional = [header.replica_id.into(), header.group_id.into(), header.lsn, flags];
    let present = optional.iter().filter(|&&value| value != 0).count() + usize::from(tsn.is_some());

    mp::write_map(out, 2 + present as u32);
    write_field(out, keys::REQUEST_TYPE, body.kind().into());
    write_nonzero(out, keys::REPLICA_ID, header.replica_id.into());
    write_nonzero(out, keys::GROUP_ID, header.group_id.into());
    write_nonzero(out, keys::LSN, header.lsn);
    write_timestamp(out, header.timestamp);
    if let Some(tsn) = tsn {
        write_field(out, keys::TSN, tsn);
    }
    write_nonzero(out, keys::FLAGS, flags);
    encode_body(out, body);
}

/// Appends a row as snapshots hold it: an INSERT, its space id in five bytes. `lsn` counts the rows of the file from 0.
pub fn encode_snapshot_row(
    out: &mut Vec<u8>,
    lsn: u64,
    timestamp: f64,
    group_id: u32,
    space: u32,
    tuple: &[u8],
) {
    mp::write_map(out, 2 + u32::from(group_id != 0) + u32::from(lsn != 0));
    write_field(out, keys::REQUEST_TYPE, RequestType::Insert as u64);
    write_nonzero(out, keys::GROUP_ID, group_id.into());
    write_nonzero(out, keys::LSN, lsn);
    write_timestamp(out, timestamp);
    mp::write_map(out, 2);
    out.push(keys::SPACE_ID);
    mp::write_u32_wide(out, space);
    write_raw(out, keys::TUPLE, tuple);
}

/// Appends the body map of a row; nothing for a NOP.
pub fn encode_body(out: &mut Vec<u8>, body: &RowBody<'_>) {
    match *body {
        RowBody::Insert { space, tuple } | RowBody::Replace { space, tuple } => {
            mp::write_map(out, 2);
            write_field(out, keys::SPACE_ID, space.into());
            write_raw(out, keys::TUPLE, tuple);
        }
        RowBody::Update { space, index, base, key, operations } => {
            mp::write_map(out, 3 + u32::from(index != 0) + u32::from(base != 0));
            write_field(out, keys::SPACE_ID, space.into());
            write_nonzero(out, keys::INDEX_ID, index.into());
            write_nonzero(out, keys::INDEX_BASE, base as u64);
            write_raw(out, keys::KEY, key);
            write_raw(out, keys::TUPLE, operations);
        }
        RowBody::Delete { space, index, key } => {
            mp::write_map(out, 2 + u32::from(index != 0));
            write_field(out, keys::SPACE_ID, space.into());
            write_nonzero(out, keys::INDEX_ID, index.into());
            write_raw(out, keys::KEY, key);
        }
        RowBody::Upsert { space, base, tuple, operations } => {
            mp::write_map(out, 3 + u32::from(base != 0));
            write_field(out, keys::SPACE_ID, space.into());
            write_nonzero(out, keys::INDEX_BASE, base as u64);
            write_raw(out, keys::OPERATIONS, operations);
            write_raw(out, keys::TUPLE, tuple);
        }
        RowBody::Nop => {}
        RowBody::Confirm { replica_id, lsn } | RowBody::Rollback { replica_id, lsn } => {
            mp::write_map(out, 2);
            write_field(out, keys::REPLICA_ID, replica_id.into());
            write_field(out, keys::LSN, lsn);
        }
        RowBody::Unknown { body, .. } => out.extend_from_slice(body),
    }
}

/// Reads the next row. Unknown keys of header and body are passed over, a row's needless fields too.
///
/// # Errors
/// Bytes that are no row; `reader` then stands anywhere.
pub fn decode_row<'a>(reader: &mut Reader<'a>) -> Result<(RowHeader, RowBody<'a>), RowError> {
    let (kind, header) = read_header(reader).map_err(|_| RowError::Header)?;
    Ok((header, read_body(reader, kind)?))
}

fn read_header(reader: &mut Reader<'_>) -> Result<(u32, RowHeader), MpError> {
    let mut kind = 0;
    let mut tsn_distance = None;
    let mut flags = 0;
    let mut header = RowHeader::single(0, 0, 0.0);
    for _ in 0..reader.map()? {
        match u8::try_from(reader.uint()?) {
            Ok(keys::REQUEST_TYPE) => kind = reader.uint()? as u32,
            Ok(keys::REPLICA_ID) => header.replica_id = reader.uint()? as u32,
            Ok(keys::GROUP_ID) => header.group_id = reader.uint()? as u32,
            Ok(keys::LSN) => header.lsn = reader.uint()?,
            Ok(keys::TIMESTAMP) => header.timestamp = reader.double()?,
            Ok(keys::TSN) => tsn_distance = Some(reader.uint()?),
            Ok(keys::FLAGS) => flags = reader.uint()?,
            _ => reader.skip()?,
        }
    }
    header.tsn = header.lsn.wrapping_sub(tsn_distance.unwrap_or(0));
    header.is_commit = tsn_distance.is_none() || flags & keys::FLAG_COMMIT != 0;
    Ok((kind, header))
}

fn read_body<'a>(reader: &mut Reader<'a>, kind: u32) -> Result<RowBody<'a>, RowError> {
    let fields = |reader: &mut Reader<'a>| Fields::read(reader).map_err(|_| RowError::Body);
    Ok(match RequestType::from_u32(kind) {
        Some(RequestType::Insert) => {
            let fields = fields(reader)?;
            RowBody::Insert { space: fields.space()?, tuple: fields.tuple()? }
        }
        Some(RequestType::Replace) => {
            let fields = fields(reader)?;
            RowBody::Replace { space: fields.space()?, tuple: fields.tuple()? }
        }
        Some(RequestType::Update) => {
            let fields = fields(reader)?;
            RowBody::Update {
                space: fields.space()?,
                index: fields.index,
                base: fields.base,
                key: fields.key()?,
                operations: fields.tuple()?,
            }
        }
        Some(RequestType::Delete) => {
            let fields = fields(reader)?;
            RowBody::Delete { space: fields.space()?, index: fields.index, key: fields.key()? }
        }
        Some(RequestType::Upsert) => {
            let fields = fields(reader)?;
            RowBody::Upsert {
                space: fields.space()?,
                base: fields.base,
                tuple: fields.tuple()?,
                operations: fields.operations()?,
            }
        }
        Some(RequestType::Nop) => RowBody::Nop,
        Some(RequestType::Confirm) => {
            let (replica_id, lsn) = read_synchro(reader).map_err(|_| RowError::Body)?;
            RowBody::Confirm { replica_id, lsn }
        }
        Some(RequestType::Rollback) => {
            let (replica_id, lsn) = read_synchro(reader).map_err(|_| RowError::Body)?;
            RowBody::Rollback { replica_id, lsn }
        }
        _ => {
            let body = if reader.is_empty() { &[] } else { reader.raw().map_err(|_| RowError::Body)? };
            RowBody::Unknown { kind, body }
        }
    })
}

fn read_synchro(reader: &mut Reader<'_>) -> Result<(u32, u64), MpError> {
    let mut replica_id = 0;
    let mut lsn = 0;
    for _ in 0..reader.map()? {
        match u8::try_from(reader.uint()?) {
            Ok(keys::REPLICA_ID) => replica_id = reader.uint()? as u32,
            Ok(keys::LSN) => lsn = reader.uint()?,
            _ => reader.skip()?,
        }
    }
    Ok((replica_id, lsn))
}

impl From<Missing> for RowError {
    fn from(Missing(field): Missing) -> Self {
        Self::MissingField(field)
    }
}

fn write_nonzero(out: &mut Vec<u8>, key: u8, value: u64) {
    if value != 0 {
        write_field(out, key, value);
    }
}

fn write_timestamp(out: &mut Vec<u8>, seconds: f64) {
    out.push(keys::TIMESTAMP);
    mp::write_double(out, seconds);
}

#[cfg(test)]
mod tests;
