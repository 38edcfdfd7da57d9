//! Rows: one change each, as they stand in journals and snapshots and travel to replicas.
//!
//! A row is a header map and a body map, back to back. The encoder's output is canonical, as Tarantool's: keys in a
//! fixed order, integers in their shortest form, left out where they say nothing. Tuples, keys and operations inside
//! are kept byte for byte.
//!
//! A transaction of two rows and more tells where it begins and ends: every row carries the LSN of the transaction's
//! first replicated row ([`RowHeader::tsn`], on disk as the difference `lsn − tsn` modulo 2^64), the last one a flag.
//! A single row carries neither.

use lycosa_tuple::mp::{self, MpError, Reader};

use crate::body::{Fields, Missing, write_raw};
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
    /// Header of a row that is a whole transaction.
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
    #[inline]
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
#[inline]
pub fn encode_row(out: &mut Vec<u8>, header: &RowHeader, body: &RowBody<'_>) {
    let is_single = header.is_commit && header.tsn == header.lsn;
    let mut head = [0; HEAD_SIZE];
    // Nearly every row: replicated, alone in its transaction or one of a batch.
    if header.group_id == 0 && header.lsn != 0 && (1..0x80).contains(&header.replica_id) {
        let kind = body.kind();
        if kind < 0x80 {
            let replica_id = header.replica_id as u8;
            let mut at = put_plain_header(&mut head, kind as u8, replica_id, header.lsn, header.timestamp);
            if !is_single {
                head[0] = FIXMAP | (5 + u8::from(header.is_commit));
                at = put_field(&mut head, at, keys::TSN, header.lsn.wrapping_sub(header.tsn));
                if header.is_commit {
                    at = put_field(&mut head, at, keys::FLAGS, keys::FLAG_COMMIT);
                }
            }
            return append_body(out, &mut head, at, body);
        }
    }
    let at = put_header(&mut head, header, body.kind(), is_single);
    append_body(out, &mut head, at, body);
}

/// Appends a row that is a whole transaction and is replicated: [`encode_row`] with [`RowHeader::single`]. Nearly all rows are of
/// this form, and the caller knows which are.
#[expect(clippy::inline_always, reason = "measured: each row comes here, and the caller knows its kind")]
#[inline(always)]
pub fn encode_single_row(out: &mut Vec<u8>, replica_id: u32, lsn: u64, timestamp: f64, body: &RowBody<'_>) {
    let kind = body.kind();
    if lsn == 0 || !(1..0x80).contains(&replica_id) || kind >= 0x80 {
        return encode_row(out, &RowHeader::single(replica_id, lsn, timestamp), body);
    }
    let mut head = [0; HEAD_SIZE];
    let at = put_plain_header(&mut head, kind as u8, replica_id as u8, lsn, timestamp);
    append_body(out, &mut head, at, body);
}

/// The four fields that every replicated row has, whose type and replica id are one byte each; returns where they end.
#[inline]
fn put_plain_header(head: &mut Head, kind: u8, replica_id: u8, lsn: u64, timestamp: f64) -> usize {
    let at = put(head, 0, [FIXMAP | 4, keys::REQUEST_TYPE, kind, keys::REPLICA_ID, replica_id]);
    let at = put_field(head, at, keys::LSN, lsn);
    put_timestamp(head, at, timestamp)
}

/// Any header; returns where it ends.
#[cold]
fn put_header(head: &mut Head, header: &RowHeader, kind: u32, is_single: bool) -> usize {
    // The number of fields stands before them and is known behind them.
    let mut at = put_field(head, 1, keys::REQUEST_TYPE, kind.into());
    let mut fields = 2;
    let mut put_nonzero = |head: &mut Head, at: usize, key: u8, value: u64| {
        fields += u8::from(value != 0);
        put_nonzero(head, at, key, value)
    };
    at = put_nonzero(head, at, keys::REPLICA_ID, header.replica_id.into());
    at = put_nonzero(head, at, keys::GROUP_ID, header.group_id.into());
    at = put_nonzero(head, at, keys::LSN, header.lsn);
    at = put_timestamp(head, at, header.timestamp);
    if !is_single {
        at = put_field(head, at, keys::TSN, header.lsn.wrapping_sub(header.tsn));
        let flags = if header.is_commit { keys::FLAG_COMMIT } else { 0 };
        at = put_nonzero(head, at, keys::FLAGS, flags);
        fields += 1;
    }
    head[0] = FIXMAP | fields;
    at
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
    let mut head = [0; HEAD_SIZE];
    let fields = 2 + u8::from(group_id != 0) + u8::from(lsn != 0);
    let mut at = put(&mut head, 0, [FIXMAP | fields, keys::REQUEST_TYPE, RequestType::Insert as u8]);
    at = put_nonzero(&mut head, at, keys::GROUP_ID, group_id.into());
    at = put_nonzero(&mut head, at, keys::LSN, lsn);
    at = put_timestamp(&mut head, at, timestamp);
    at = put(&mut head, at, [FIXMAP | 2, keys::SPACE_ID, 0xce]);
    at = put(&mut head, at, space.to_be_bytes());
    append(out, &mut head, at, keys::TUPLE, tuple);
}

/// Appends the body map of a row; nothing for a NOP.
pub fn encode_body(out: &mut Vec<u8>, body: &RowBody<'_>) {
    append_body(out, &mut [0; HEAD_SIZE], 0, body);
}

/// Appends the first `at` bytes of `head` and behind them a body.
#[expect(clippy::inline_always, reason = "measured: each row comes here")]
#[inline(always)]
fn append_body(out: &mut Vec<u8>, head: &mut Head, at: usize, body: &RowBody<'_>) {
    match *body {
        RowBody::Insert { space, tuple } | RowBody::Replace { space, tuple } => {
            let at = put(head, at, [FIXMAP | 2]);
            let at = put_field(head, at, keys::SPACE_ID, space.into());
            append(out, head, at, keys::TUPLE, tuple);
        }
        RowBody::Update { space, index, base, key, operations } => {
            let at = put(head, at, [FIXMAP | (3 + u8::from(index != 0) + u8::from(base != 0))]);
            let at = put_field(head, at, keys::SPACE_ID, space.into());
            let at = put_nonzero(head, at, keys::INDEX_ID, index.into());
            let at = put_nonzero(head, at, keys::INDEX_BASE, base as u64);
            append(out, head, at, keys::KEY, key);
            write_raw(out, keys::TUPLE, operations);
        }
        RowBody::Delete { space, index, key } => {
            let at = put(head, at, [FIXMAP | (2 + u8::from(index != 0))]);
            let at = put_field(head, at, keys::SPACE_ID, space.into());
            let at = put_nonzero(head, at, keys::INDEX_ID, index.into());
            append(out, head, at, keys::KEY, key);
        }
        RowBody::Upsert { space, base, tuple, operations } => {
            let at = put(head, at, [FIXMAP | (3 + u8::from(base != 0))]);
            let at = put_field(head, at, keys::SPACE_ID, space.into());
            let at = put_nonzero(head, at, keys::INDEX_BASE, base as u64);
            append(out, head, at, keys::OPERATIONS, operations);
            write_raw(out, keys::TUPLE, tuple);
        }
        RowBody::Nop => out.extend_from_slice(&head[..at]),
        RowBody::Confirm { replica_id, lsn } | RowBody::Rollback { replica_id, lsn } => {
            let at = put(head, at, [FIXMAP | 2]);
            let at = put_field(head, at, keys::REPLICA_ID, replica_id.into());
            let at = put_field(head, at, keys::LSN, lsn);
            out.extend_from_slice(&head[..at]);
        }
        RowBody::Unknown { body, .. } => {
            out.extend_from_slice(&head[..at]);
            out.extend_from_slice(body);
        }
    }
}

/// First byte of a map of up to 15 pairs; their number is added to it.
const FIXMAP: u8 = 0x80;

/// Most bytes of a row before its first array: a header of seven fields (51), an UPDATE's map with three integers and the
/// key of an array (24), and eight bytes for the last integer.
const HEAD_SIZE: usize = 96;

/// The beginning of a row, put together on the stack: one reservation and one copy instead of one for each field. What
/// writes into it takes the offset to write at and returns the one behind.
type Head = [u8; HEAD_SIZE];

#[inline]
fn put<const N: usize>(head: &mut Head, at: usize, bytes: [u8; N]) -> usize {
    mp::overwrite(head, at, bytes);
    at + N
}

/// A key with an integer in its shortest form.
#[inline]
fn put_field(head: &mut Head, at: usize, key: u8, value: u64) -> usize {
    let (bytes, length) = mp::uint_bytes(value);
    let mut field = [key; 1 + mp::MAX_UINT];
    mp::overwrite(&mut field, 1, bytes);
    mp::overwrite(head, at, field);
    at + 1 + length
}

/// The same, unless the integer says nothing.
#[inline]
fn put_nonzero(head: &mut Head, at: usize, key: u8, value: u64) -> usize {
    if value == 0 { at } else { put_field(head, at, key, value) }
}

#[inline]
fn put_timestamp(head: &mut Head, at: usize, seconds: f64) -> usize {
    let mut field = [keys::TIMESTAMP, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0];
    mp::overwrite(&mut field, 2, seconds.to_bits().to_be_bytes());
    put(head, at, field)
}

/// Appends the first `at` bytes of `head`, a key and its value, which is MessagePack already.
#[inline]
fn append(out: &mut Vec<u8>, head: &mut Head, at: usize, key: u8, value: &[u8]) {
    head[at] = key;
    let end = out.len() + at + 1;
    out.reserve(HEAD_SIZE + value.len());
    // A copy of constant length is a few instructions, one of the length that there is a call.
    out.extend_from_slice(head);
    out.truncate(end);
    out.extend_from_slice(value);
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

#[cfg(test)]
mod tests;
