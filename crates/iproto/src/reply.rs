//! Replies: written straight into a connection's output buffer, and read back by clients.
//!
//! A caller begins a reply, appends its body, and finishes it, which patches the length:
//!
//! ```
//! use lycosa_iproto::reply;
//!
//! let mut out = Vec::new();
//! let start = reply::begin_data(&mut out, 7);
//! out.extend_from_slice(&[0x93, 0x00, 0xa1, b'r', 0xa1, b'x']);
//! reply::finish_data(&mut out, start, 1, 101);
//! assert_eq!(reply::decode(&out[5..]).unwrap().sync, 7);
//! ```
//!
//! Every width is fixed: the length, the code, `sync`, the schema version and the number of data values never take
//! their short forms. Some clients depend on it, and it lets numbers be patched that are known only afterwards.

use lycosa_tuple::mp::{self, MpError, Reader};

use crate::body::array;
use crate::error::{ErrorCode, ErrorObject};
use crate::keys;

/// Length of a frame up to the body: length prefix, code, `sync` and schema version.
pub const HEADER_SIZE: usize = 28;

const LENGTH_SIZE: usize = 5;
const CODE_OFFSET: usize = 8;
const SYNC_OFFSET: usize = 14;
const SCHEMA_OFFSET: usize = 24;

#[rustfmt::skip]
const HEADER: [u8; HEADER_SIZE] = [
    0xce, 0, 0, 0, 0, // length
    0x83, keys::REQUEST_TYPE, 0xce, 0, 0, 0, 0, // code
    keys::SYNC, 0xcf, 0, 0, 0, 0, 0, 0, 0, 0, // sync
    keys::SCHEMA_VERSION, 0xce, 0, 0, 0, 0, // schema version
];

const DATA_HEADER_SIZE: usize = HEADER_SIZE + 7;
const COUNT_OFFSET: usize = HEADER_SIZE + 3;

/// [`HEADER`] and behind it the head of a body of values: `81 30 dd <count>`.
const DATA_HEADER: [u8; DATA_HEADER_SIZE] = {
    let mut header = [0; DATA_HEADER_SIZE];
    header.split_at_mut(HEADER_SIZE).0.copy_from_slice(&HEADER);
    header.split_at_mut(HEADER_SIZE).1.copy_from_slice(&[0x81, keys::DATA, 0xdd, 0, 0, 0, 0]);
    header
};

/// Where a reply begins in its buffer.
#[derive(Debug)]
#[must_use = "a reply that is not finished has no length"]
pub struct Start(usize);

/// Where a reply with values begins in its buffer.
#[derive(Debug)]
#[must_use = "a reply that is not finished has no length"]
pub struct DataStart(usize);

impl DataStart {
    /// Where its values begin.
    #[inline]
    pub fn values(&self) -> usize {
        self.0 + DATA_HEADER_SIZE
    }
}

/// Starts a reply with `code` [`keys::CODE_OK`], [`keys::CODE_PUSH`] or [`keys::CODE_ERROR`] `|` error code. A body
/// map has to follow.
#[inline]
pub fn begin(out: &mut Vec<u8>, code: u32, sync: u64, schema_version: u32) -> Start {
    let start = out.len();
    let mut header = HEADER;
    mp::overwrite(&mut header, CODE_OFFSET, code.to_be_bytes());
    mp::overwrite(&mut header, SYNC_OFFSET, sync.to_be_bytes());
    mp::overwrite(&mut header, SCHEMA_OFFSET, schema_version.to_be_bytes());
    out.extend_from_slice(&header);
    Start(start)
}

/// Patches the length of a reply whose body is complete.
///
/// A length has 32 bits. A reply that has outgrown them is taken back and an error of code
/// [`ErrorCode::MemoryIssue`] stands in its place.
#[inline]
pub fn finish(out: &mut Vec<u8>, Start(start): Start) {
    let length = out.len() - start - LENGTH_SIZE;
    match u32::try_from(length) {
        Ok(length) => mp::overwrite(out, start + 1, length.to_be_bytes()),
        Err(_) => replace_oversized(out, start, length),
    }
}

#[cold]
fn replace_oversized(out: &mut Vec<u8>, start: usize, length: usize) {
    let be_bytes = |from: usize, to: usize| {
        out[start + from..start + to].iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
    };
    let sync = be_bytes(SYNC_OFFSET, SYNC_OFFSET + 8);
    let schema_version = be_bytes(SCHEMA_OFFSET, SCHEMA_OFFSET + 4) as u32;
    out.truncate(start);
    let message = format!("Failed to allocate {length} bytes in reply for data");
    error(out, sync, schema_version, &ErrorObject::client(ErrorCode::MemoryIssue, message));
}

/// Starts a reply that says OK and has values, which have to follow back to back. It is ended by [`finish_data`].
#[inline]
pub fn begin_data(out: &mut Vec<u8>, sync: u64) -> DataStart {
    let start = out.len();
    let mut header = DATA_HEADER;
    mp::overwrite(&mut header, SYNC_OFFSET, sync.to_be_bytes());
    out.extend_from_slice(&header);
    DataStart(start)
}

/// Patches the parts known only after the `count` values: their number, the length, and the schema version, which
/// the request may have changed. As for [`finish`] if the reply is too long.
#[inline]
pub fn finish_data(out: &mut Vec<u8>, DataStart(start): DataStart, count: u32, schema_version: u32) {
    let length = out.len() - start - LENGTH_SIZE;
    patch_data_header(&mut out[start..start + DATA_HEADER_SIZE], length, count, schema_version);
    if u32::try_from(length).is_err() {
        replace_oversized(out, start, length);
    }
}

/// Appends the beginning of a reply with `count` values, which follow elsewhere and take `length` bytes together. They are
/// fewer than 2^32 less some.
pub fn data_header(out: &mut Vec<u8>, sync: u64, count: u32, length: usize, schema_version: u32) {
    let DataStart(start) = begin_data(out, sync);
    let length = out.len() - start - LENGTH_SIZE + length;
    patch_data_header(&mut out[start..], length, count, schema_version);
}

#[inline]
fn patch_data_header(header: &mut [u8], length: usize, count: u32, schema_version: u32) {
    mp::overwrite(header, 1, (length as u32).to_be_bytes());
    mp::overwrite(header, SCHEMA_OFFSET, schema_version.to_be_bytes());
    mp::overwrite(header, COUNT_OFFSET, count.to_be_bytes());
}

/// The `sync` of a whole reply frame that was written by this module; `None` if it is too short to be one.
pub fn sync_of(frame: &[u8]) -> Option<u64> {
    let digits = frame.get(SYNC_OFFSET..SYNC_OFFSET + 8)?;
    digits.try_into().ok().map(u64::from_be_bytes)
}

/// Whether a whole frame that was written by this module is one that [`push`] has made.
pub fn is_push(frame: &[u8]) -> bool {
    frame.get(CODE_OFFSET..CODE_OFFSET + 4) == Some(&keys::CODE_PUSH.to_be_bytes())
}

/// Appends a whole reply that says nothing but OK.
pub fn ok_empty(out: &mut Vec<u8>, sync: u64, schema_version: u32) {
    let start = begin(out, keys::CODE_OK, sync, schema_version);
    mp::write_map(out, 0);
    finish(out, start);
}

/// Appends a whole reply with `count` values, given back to back.
pub fn ok_data(out: &mut Vec<u8>, sync: u64, schema_version: u32, count: u32, values: &[u8]) {
    let start = begin_data(out, sync);
    out.extend_from_slice(values);
    finish_data(out, start, count, schema_version);
}

/// Appends a whole packet that a running request sends ahead of its reply: one value.
pub fn push(out: &mut Vec<u8>, sync: u64, schema_version: u32, value: &[u8]) {
    let start = begin(out, keys::CODE_PUSH, sync, schema_version);
    out.extend_from_slice(&[0x81, keys::DATA]);
    mp::write_array_wide(out, 1);
    out.extend_from_slice(value);
    finish(out, start);
}

/// Appends a whole error reply: the text under key `31`, the error object under `52`.
pub fn error(out: &mut Vec<u8>, sync: u64, schema_version: u32, error: &ErrorObject) {
    // A code of more than 15 bits can only come from a user's program; the object keeps it whole.
    let code = keys::CODE_ERROR | (error.code & (keys::CODE_ERROR - 1));
    let start = begin(out, code, sync, schema_version);
    mp::write_map(out, 2);
    out.push(keys::ERROR_TEXT);
    mp::write_str(out, error.message.as_bytes());
    out.push(keys::ERROR_STACK);
    error.encode(out);
    finish(out, start);
}

/// A reply as a client reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply<'a> {
    /// `sync` of the request that is answered.
    pub sync: u64,
    /// The server's schema version.
    pub schema_version: u64,
    /// The answer.
    pub content: Content<'a>,
}

/// What a reply says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content<'a> {
    /// The request succeeded.
    Ok {
        /// Tuples or values: a MessagePack array, an empty one if the reply has none.
        data: &'a [u8],
        /// The whole body map, for replies that carry something else.
        body: &'a [u8],
    },
    /// The request is still running and has sent this ahead.
    Push {
        /// The values: a MessagePack array.
        data: &'a [u8],
    },
    /// The request failed.
    Error(ErrorObject),
}

/// Decodes the content of a frame that a server sent.
///
/// # Errors
/// Not a header map and a body map, or a known key with a value of the wrong type.
pub fn decode(frame: &[u8]) -> Result<Reply<'_>, MpError> {
    let mut reader = Reader::new(frame);
    let mut code = 0;
    let mut sync = 0;
    let mut schema_version = 0;
    for _ in 0..reader.map()? {
        match u8::try_from(reader.uint()?) {
            Ok(keys::REQUEST_TYPE) => code = reader.uint()? as u32,
            Ok(keys::SYNC) => sync = reader.uint()?,
            Ok(keys::SCHEMA_VERSION) => schema_version = reader.uint()?,
            _ => reader.skip()?,
        }
    }
    Ok(Reply { sync, schema_version, content: decode_content(code, reader.rest())? })
}

fn decode_content(code: u32, body: &[u8]) -> Result<Content<'_>, MpError> {
    let body = if body.is_empty() { &[0x80] } else { body };
    let mut reader = Reader::new(body);
    let mut data: &[u8] = &[0x90];
    let mut message: &[u8] = b"";
    let mut object = None;
    for _ in 0..reader.map()? {
        match u8::try_from(reader.uint()?) {
            Ok(keys::DATA) => data = array(&mut reader)?,
            Ok(keys::ERROR_TEXT) => message = reader.str()?,
            Ok(keys::ERROR_STACK) => object = ErrorObject::decode(&mut Reader::new(reader.raw()?)).ok(),
            _ => reader.skip()?,
        }
    }
    if code & keys::CODE_ERROR != 0 {
        let mut error = object.unwrap_or_else(|| ErrorObject::client(ErrorCode::Unknown, ""));
        error.code = code & (keys::CODE_ERROR - 1);
        error.message = String::from_utf8_lossy(message).into_owned();
        return Ok(Content::Error(error));
    }
    Ok(if code == keys::CODE_PUSH { Content::Push { data } } else { Content::Ok { data, body } })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::samples::bytes;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = vec![0xaa];
        write(&mut out);
        out.split_off(1)
    }

    fn content_of(frame: &[u8]) -> Content<'_> {
        decode(&frame[LENGTH_SIZE..]).expect("a reply").content
    }

    #[test]
    fn ok_replies_of_a_real_server() {
        assert_eq!(
            written(|out| ok_empty(out, 1, 101)),
            bytes("ce000000188300ce0000000001cf000000000000000105ce0000006580")
        );
        assert_eq!(
            written(|out| ok_data(out, 5, 101, 1, &[1])),
            bytes("ce0000001f8300ce0000000001cf000000000000000505ce000000658130dd0000000101")
        );
        let put = written(|out| {
            let start = begin_data(out, 1);
            assert_eq!(start.values(), out.len());
            out.extend_from_slice(&bytes("9300a172a178"));
            finish_data(out, start, 1, 97);
        });
        assert_eq!(
            put,
            bytes("ce000000248300ce0000000001cf000000000000000105ce000000618130dd000000019300a172a178")
        );
        let Content::Ok { data, body } = content_of(&put) else { panic!("not OK") };
        assert_eq!(data, bytes("dd000000019300a172a178"));
        assert_eq!(body, &put[HEADER_SIZE..]);
    }

    #[test]
    fn error_replies_of_a_real_server() {
        // Recorded, but for the source file and its line.
        let recorded = "ce000000798300ce0000801401cf000000000000000005ce00000065
            8231bf496e76616c6964204d73675061636b202d207061636b657420686561646572
            528100918600ab436c69656e744572726f72020001a66c79636f736103
            bf496e76616c6964204d73675061636b202d207061636b65742068656164657204000514";
        let object = ErrorObject::client(ErrorCode::InvalidMsgpack, "Invalid MsgPack - packet header");
        let frame = written(|out| error(out, 0, 101, &object));
        assert_eq!(frame[LENGTH_SIZE..], bytes(recorded)[LENGTH_SIZE..]);
        assert_eq!(content_of(&frame), Content::Error(object));

        let denied = ErrorObject::access_denied("Write", "space", "void", "guest");
        assert_eq!(denied.message, "Write access to space 'void' is denied for user 'guest'");
        let frame = written(|out| error(out, 5, 101, &denied));
        let fields = "0683ab6f626a6563745f74797065a57370616365ab6f626a6563745f6e616d65a4766f6964
            ab6163636573735f74797065a55772697465";
        assert!(frame.ends_with(&bytes(fields)));
        assert_eq!(content_of(&frame), Content::Error(denied));
    }

    #[test]
    fn a_recorded_stack_of_errors() {
        let frame = bytes(
            "ce000000768300ce0000800701cf000000000000000205ce000000658231a56f75746572528100928600ab436c69656e744572
             726f72020301aa7365727665722e6c756103a56f75746572040005078600ab436c69656e744572726f7202ceffffffff01a35b43
             5d03ad556e6b6e6f776e206572726f7204000500",
        );
        let place = |file: &str, line| Some(Box::new((file.to_owned(), line)));
        let cause = ErrorObject::client(ErrorCode::Unknown, "Unknown error");
        let cause = Some(Box::new(ErrorObject { place: place("[C]", u32::MAX), ..cause }));
        let outer = ErrorObject::client(ErrorCode::Readonly, "outer");
        let expected = ErrorObject { cause, place: place("server.lua", 3), ..outer };
        assert_eq!(content_of(&frame), Content::Error(expected.clone()));
        let again = written(|out| error(out, 2, 101, &expected));
        assert_eq!(content_of(&again), Content::Error(expected));
    }

    #[test]
    fn replies_of_other_servers() {
        let error = ErrorObject::client(ErrorCode::Unknown, "x");
        let without_stack = bytes("83 00cd8005 0107 0501 81 31a178");
        let expected = Content::Error(ErrorObject { code: 5, ..error });
        let reply = Reply { sync: 7, schema_version: 1, content: expected };
        assert_eq!(decode(&without_stack), Ok(reply));
        assert_eq!(
            decode(&bytes("82 0000 0107")).map(|reply| reply.content),
            Ok(Content::Ok { data: &[0x90], body: &[0x80] })
        );
        let pushed = written(|out| push(out, 9, 1, &[0xc3]));
        assert_eq!(content_of(&pushed), Content::Push { data: &[0xdd, 0, 0, 0, 1, 0xc3] });
        for wrong in
            ["", "c0", "81 00a0", "82 0000 01", "81 0000 90", "81 0000 81 3080", "82 00cd8005 0101 81 3105"]
        {
            assert!(decode(&bytes(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_oversized_reply_becomes_an_error() {
        let mut out = vec![0xaa];
        let Start(start) = begin(&mut out, keys::CODE_OK, 77, 3);
        replace_oversized(&mut out, start, 1 << 33);
        let reply = decode(&out[1 + LENGTH_SIZE..]).expect("a reply");
        assert_eq!((reply.sync, reply.schema_version), (77, 3));
        let Content::Error(error) = reply.content else { panic!("not an error") };
        assert_eq!(error.code, 2);
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            sync in any::<u64>(),
            schema_version in any::<u32>(),
            code in 0_u32..0x8000,
            texts in prop::collection::vec(".{0,40}", 1..5),
        ) {
            let mut object = None;
            for text in &texts {
                let client = ErrorObject::client(ErrorCode::Unknown, text.clone());
                object = Some(ErrorObject { code, cause: object.map(Box::new), ..client });
            }
            let object = object.expect("at least one text");
            let frame = written(|out| error(out, sync, schema_version, &object));
            let expected = Reply { sync, schema_version: schema_version.into(), content: Content::Error(object) };
            prop_assert_eq!(decode(&frame[LENGTH_SIZE..]), Ok(expected));
            for length in LENGTH_SIZE..frame.len() {
                prop_assert!(decode(&frame[LENGTH_SIZE..length]).is_err() || length <= HEADER_SIZE);
            }
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = decode(&bytes);
            let _ = decode(&[&[0x81, 0x00, 0xcd, 0x80, 0x01, 0x81, 0x52][..], &bytes].concat());
        }
    }
}
