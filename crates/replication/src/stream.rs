//! The frames of a replication stream: rows with a length in front, and the messages between them.
//!
//! Frames of a stream have neither `sync` nor schema version. Lengths are always `ce` and four bytes.

use lycosa_iproto::error::ErrorObject;
use lycosa_iproto::keys::{self, RequestType};
use lycosa_iproto::reply::{self, Content};
use lycosa_iproto::row::{RowBody, RowError, RowHeader, decode_row};
use lycosa_iproto::vclock::Vclock;
use lycosa_tuple::mp::{self, MpError, Reader};
use uuid::Uuid;

use crate::lineage::{Confirmation, Divergence};

/// Bytes of a frame's length prefix.
pub const PREFIX: usize = 5;

/// Why a peer's bytes cannot be a replication stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// The frame is no row.
    #[error("the peer sent a malformed row: {0}")]
    Row(#[from] RowError),
    /// The frame is a reply that cannot be read.
    #[error("the peer sent a malformed reply: {0}")]
    Reply(#[from] MpError),
    /// A reply lacks what this step of the protocol needs.
    #[error("the peer's answer to {request} has no {field}")]
    Missing {
        /// The request.
        request: &'static str,
        /// The missing part of the answer.
        field: &'static str,
    },
    /// A frame of a type that does not belong to this step of the protocol.
    #[error("the peer sent a frame of type {kind} where {expected} was expected")]
    Unexpected {
        /// Number of the type.
        kind: u32,
        /// The expected message.
        expected: &'static str,
    },
    /// The bytes cannot be cut into frames.
    #[error("the peer's stream is broken: {0}")]
    Frame(#[from] lycosa_iproto::frame::FrameError),
    /// A transaction begins before the one before it has ended, or names an instance that cannot exist.
    #[error("the peer sent a broken transaction: {0}")]
    Transaction(String),
    /// The peer answered with an error.
    #[error("the peer refused: {} (code {})", .0.message, .0.code)]
    Refused(Box<ErrorObject>),
    /// The peer has another history.
    #[error(transparent)]
    Parted(#[from] Divergence),
}

/// Appends a frame whose content `content` appends.
pub fn frame(out: &mut Vec<u8>, content: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0xce, 0, 0, 0, 0]);
    content(out);
    let length = u32::try_from(out.len() - start - PREFIX);
    let length = length.expect("a frame holds one row, and rows have far fewer than 4 GiB");
    out[start + 1..start + PREFIX].copy_from_slice(&length.to_be_bytes());
}

/// Appends a frame around an encoded row.
pub fn row(out: &mut Vec<u8>, encoded: &[u8]) {
    frame(out, |out| out.extend_from_slice(encoded));
}

/// Appends an OK that carries a vclock: how a JOIN begins, changes its stage and ends, and what an ACK is.
pub fn vclock(out: &mut Vec<u8>, vclock: &Vclock) {
    frame(out, |out| {
        out.extend_from_slice(&[0x81, keys::REQUEST_TYPE, keys::CODE_OK as u8, 0x81, keys::VCLOCK]);
        vclock.encode(out);
    });
}

/// Appends what a replica acknowledges: everything up to `vclock`, of the history that `confirmation` names.
pub fn acknowledgement(out: &mut Vec<u8>, acknowledged: &Vclock, confirmation: &Confirmation) {
    if *confirmation == Confirmation::default() {
        return vclock(out, acknowledged);
    }
    frame(out, |out| {
        out.extend_from_slice(&[0x81, keys::REQUEST_TYPE, keys::CODE_OK as u8, 0x82, keys::VCLOCK]);
        acknowledged.encode(out);
        out.push(keys::CONFIRMATION);
        confirmation.encode(out);
    });
}

/// Appends the answer to a SUBSCRIBE. It tells a replica that knows terms that the master honors them.
pub fn subscribed(
    out: &mut Vec<u8>,
    replica_id: u32,
    vclock: &Vclock,
    cluster: Uuid,
    is_told_of_terms: bool,
) {
    frame(out, |out| {
        out.extend_from_slice(&[0x82, keys::REQUEST_TYPE, keys::CODE_OK as u8, keys::REPLICA_ID]);
        mp::write_uint(out, replica_id.into());
        out.extend_from_slice(&[0x82 + u8::from(is_told_of_terms), keys::VCLOCK]);
        vclock.encode(out);
        out.push(keys::CLUSTER_UUID);
        mp::write_str(out, cluster.to_string().as_bytes());
        if is_told_of_terms {
            out.push(keys::HONORS_TERMS);
            mp::write_bool(out, true);
        }
    });
}

/// Appends a heartbeat. `timestamp` is in seconds since the epoch.
pub fn heartbeat(out: &mut Vec<u8>, replica_id: u32, timestamp: f64) {
    frame(out, |out| {
        out.extend_from_slice(&[0x83, keys::REQUEST_TYPE, keys::CODE_OK as u8, keys::REPLICA_ID]);
        mp::write_uint(out, replica_id.into());
        out.push(keys::TIMESTAMP);
        mp::write_double(out, timestamp);
    });
}

/// Appends an error, after which a stream ends.
pub fn error(out: &mut Vec<u8>, schema_version: u32, error: &ErrorObject) {
    reply::error(out, 0, schema_version, error);
}

/// What one frame of a stream says.
#[derive(Debug, Clone, PartialEq)]
pub enum Message<'a> {
    /// A row that changes data, or a NOP.
    Row(RowHeader, RowBody<'a>),
    /// An OK without a body.
    Heartbeat(RowHeader),
    /// An OK with a body.
    Ok(RowHeader, Box<OkBody>),
}

/// What the body of an OK may say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OkBody {
    /// Under key `26`.
    pub vclock: Option<Vclock>,
    /// Under key `25`.
    pub cluster: Option<Uuid>,
    /// Under key `63`.
    pub confirmation: Option<Confirmation>,
    /// Under key `64`.
    pub honors_terms: bool,
}

impl OkBody {
    fn decode(body: &[u8]) -> Result<Self, MpError> {
        let mut reader = Reader::new(body);
        let mut ok = Self::default();
        for _ in 0..reader.map()? {
            match u8::try_from(reader.uint()?) {
                Ok(keys::VCLOCK) => ok.vclock = Vclock::decode(&mut Reader::new(reader.raw()?)).ok(),
                Ok(keys::CLUSTER_UUID) => ok.cluster = uuid(reader.str()?),
                Ok(keys::CONFIRMATION) => ok.confirmation = Some(Confirmation::decode(&mut reader)?),
                Ok(keys::HONORS_TERMS) => ok.honors_terms = reader.bool()?,
                _ => reader.skip()?,
            }
        }
        Ok(ok)
    }
}

/// A UUID in its hyphenated form.
pub fn uuid(text: &[u8]) -> Option<Uuid> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() == 36)?;
    Uuid::try_parse(text).ok()
}

/// Reads the content of a frame.
///
/// # Errors
/// Bytes that are neither row nor reply; an error that the peer sent.
pub fn decode(content: &[u8]) -> Result<Message<'_>, StreamError> {
    let mut reader = Reader::new(content);
    let (header, body) = decode_row(&mut reader)?;
    match body {
        RowBody::Unknown { kind: keys::CODE_OK, body: [] } => Ok(Message::Heartbeat(header)),
        RowBody::Unknown { kind: keys::CODE_OK, body } => {
            Ok(Message::Ok(header, Box::new(OkBody::decode(body)?)))
        }
        RowBody::Unknown { kind, .. } if kind & keys::CODE_ERROR != 0 => {
            match reply::decode(content)?.content {
                Content::Error(error) => Err(StreamError::Refused(Box::new(error))),
                _ => Err(StreamError::Unexpected { kind, expected: "a row" }),
            }
        }
        RowBody::Unknown { kind, .. } => Err(StreamError::Unexpected { kind, expected: "a row" }),
        RowBody::Confirm { .. } | RowBody::Rollback { .. } => {
            Err(StreamError::Unexpected { kind: body.kind(), expected: "a row of an asynchronous space" })
        }
        body => Ok(Message::Row(header, body)),
    }
}

/// What relaying needs to know of an encoded row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowSpan {
    /// Instance that made the row; 0 for a local one.
    pub replica_id: u32,
    /// Whether the row never leaves its instance.
    pub is_local: bool,
    /// Position in its instance's log.
    pub lsn: u64,
    /// Bytes of header and body.
    pub length: usize,
}

/// Measures the first row of `rows`, which a journal's writer has encoded.
///
/// # Errors
/// Bytes that are no row.
#[inline]
pub fn span(rows: &[u8]) -> Result<RowSpan, MpError> {
    // Nearly every row is alone in its transaction, and has these fields in this order.
    if let &[FOUR_FIELDS, keys::REQUEST_TYPE, kind, keys::REPLICA_ID, id, keys::LSN, ref rest @ ..] = rows
        && kind.max(id) < 0x80
    {
        let mut reader = Reader::new(rest);
        let lsn = reader.uint()?;
        if let [keys::TIMESTAMP, 0xcb, ..] = reader.rest() {
            reader.skip()?;
            reader.skip()?;
            if u32::from(kind) != RequestType::Nop as u32 {
                reader.skip()?;
            }
            let length = rows.len() - reader.rest().len();
            return Ok(RowSpan { replica_id: id.into(), is_local: false, lsn, length });
        }
    }
    span_of_any(rows)
}

/// A map of four pairs.
const FOUR_FIELDS: u8 = 0x84;

fn span_of_any(rows: &[u8]) -> Result<RowSpan, MpError> {
    let mut reader = Reader::new(rows);
    let mut kind = 0;
    let mut span = RowSpan { replica_id: 0, is_local: false, lsn: 0, length: 0 };
    for _ in 0..reader.map()? {
        match u8::try_from(reader.uint()?) {
            Ok(keys::REQUEST_TYPE) => kind = reader.uint()?,
            Ok(keys::REPLICA_ID) => span.replica_id = reader.uint()? as u32,
            Ok(keys::GROUP_ID) => span.is_local = reader.uint()? == u64::from(keys::GROUP_LOCAL),
            Ok(keys::LSN) => span.lsn = reader.uint()?,
            _ => reader.skip()?,
        }
    }
    if kind != RequestType::Nop as u64 {
        reader.skip()?;
    }
    span.length = reader.position();
    Ok(span)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transcript::{Transcript, hex};

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = vec![0xaa];
        write(&mut out);
        out.split_off(1)
    }

    fn clock(components: &[(u32, u64)]) -> Vclock {
        let mut clock = Vclock::new();
        components.iter().for_each(|&(id, lsn)| clock.set(id, lsn).expect("an id below 32"));
        clock
    }

    #[test]
    fn frames_are_those_of_the_transcripts() {
        let cluster = Uuid::parse_str("f41503bb-357c-40a6-9cbd-13ed9c154af9").expect("a UUID");
        let join = Transcript::read("20-replication-join.json");
        let sent = |note: &str| join.of_master(note).expect("recorded").to_vec();
        assert_eq!(written(|out| vclock(out, &clock(&[(1, 24)]))), sent("vclock answer"));
        assert_eq!(
            written(|out| subscribed(out, 1, &clock(&[(1, 25)]), cluster, false)),
            sent("vclock answer with cluster uuid")
        );
        let recorded = sent("heartbeat");
        let Ok(Message::Heartbeat(header)) = decode(&recorded[PREFIX..]) else { panic!("no heartbeat") };
        assert_eq!(written(|out| heartbeat(out, header.replica_id, header.timestamp)), recorded);
    }

    #[test]
    fn every_recorded_frame_of_a_master_is_read() {
        for name in
            ["20-replication-join.json", "21-replication-resubscribe.json", "22-replication-anonymous.json"]
        {
            let transcript = Transcript::read(name);
            let mut rows = 0;
            for frame in transcript.frames_of_master() {
                match decode(&frame[PREFIX..]) {
                    Ok(Message::Row(..)) => {
                        rows += 1;
                        let measured = span(&frame[PREFIX..]).expect("a row");
                        assert_eq!(measured.length, frame.len() - PREFIX);
                    }
                    Ok(_) => {}
                    Err(error) => panic!("{name}: {error}: {}", hex(frame)),
                }
            }
            assert!(rows >= 3, "{name}: {rows} rows");
        }
    }

    #[test]
    fn an_error_of_the_peer_is_an_error() {
        let object = ErrorObject::access_denied("Read", "universe", "", "guest");
        let refused = written(|out| error(out, 84, &object));
        let Err(StreamError::Refused(found)) = decode(&refused[PREFIX..]) else { panic!("taken") };
        assert_eq!(found.message, "Read access to universe '' is denied for user 'guest'");
        let confirm = written(|out| {
            lycosa_iproto::row::encode_row(
                out,
                &RowHeader::single(1, 5, 0.5),
                &RowBody::Confirm { replica_id: 1, lsn: 4 },
            );
        });
        assert!(matches!(decode(&confirm), Err(StreamError::Unexpected { kind: 40, .. })));
        assert!(matches!(decode(&[0xc1]), Err(StreamError::Row(_))));
    }

    #[test]
    fn rows_of_all_shapes_are_measured() {
        use lycosa_iproto::row::{RowBody, RowHeader, encode_row};
        let long = vec![0xc4; 300];
        let mut tuple = vec![0xdc, 0, 4, 0xcd, 1, 2, 0xc5, 1, 44];
        tuple.extend_from_slice(&long);
        tuple.extend_from_slice(&[0x82, 1, 0x91, 2, 0xa1, b'x', 0xc7, 1, 5, 9, 0xcb, 1, 2, 3, 4, 5, 6, 7, 8]);
        let bodies = [
            RowBody::Nop,
            RowBody::Insert { space: 512, tuple: &tuple },
            RowBody::Delete { space: 512, index: 0, key: &[0x91, 0x07] },
        ];
        for body in bodies {
            for (group_id, replica_id, lsn, tsn) in
                [(0, 1, 1, 1), (0, 31, 1 << 40, 1 << 40), (1, 0, 7, 7), (0, 2, 300, 299), (0, 1, 300, 300)]
            {
                let header = RowHeader { replica_id, group_id, lsn, tsn, timestamp: 1.5, is_commit: true };
                let mut rows = Vec::new();
                encode_row(&mut rows, &header, &body);
                let length = rows.len();
                let wanted = RowSpan { replica_id, is_local: group_id == 1, lsn, length };
                assert_eq!(span(&rows), Ok(wanted));
                assert!((0..length).all(|end| span(&rows[..end]).is_err()), "{body:?} {header:?}");
                rows.push(0x84);
                assert_eq!(span(&rows), Ok(wanted));
            }
        }
    }
}
