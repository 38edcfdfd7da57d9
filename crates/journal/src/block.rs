//! The codec of blocks: the unit in which a journal file is written, checked and lost.
//!
//! A block is a fixed header of [`FIXED_HEADER_BYTES`] followed by its body: encoded rows, plain or as one zstd
//! frame. The header holds the length of the body, a field about the file before the block, and the checksum of the body
//! as stored. Padding lets the body always begin at the same distance from the magic.
//!
//! Invariants:
//! - the checksum covers the stored body only; the header is protected by having few valid forms, by what
//!   follows, and in files of ours by [`crate::synced`];
//! - a block is compressed exactly when header and unpacked body together reach [`COMPRESS_FROM`], unless its
//!   writer does not compress at all;
//! - no length read from a file is believed beyond [`MAX_BODY_BYTES`], neither stored nor unpacked.
//!
//! Absent: any knowledge of rows, files or transactions.

use std::io;

use lycosa_tuple::mp;
use zstd::bulk::Compressor;
use zstd::stream::raw;
use zstd::zstd_safe::CParameter;

/// Bytes of a magic.
pub const MAGIC_BYTES: usize = 4;
/// Begins a block whose body is plain rows.
pub const MAGIC_PLAIN: [u8; MAGIC_BYTES] = [0xd5, 0xba, 0x0b, 0xab];
/// Begins a block whose body is one zstd frame of rows.
pub const MAGIC_ZSTD: [u8; MAGIC_BYTES] = [0xd5, 0xba, 0x0b, 0xba];
/// Ends a file that was closed in order.
pub const MAGIC_END: [u8; MAGIC_BYTES] = [0xd5, 0x10, 0xad, 0xed];

/// Bytes before a block's body, magic included.
pub const FIXED_HEADER_BYTES: usize = 19;
/// Header plus unpacked body from which a block is compressed, in bytes.
pub const COMPRESS_FROM: usize = 2048;
/// A block is closed after the transaction (in a snapshot: the row) with which header and unpacked body reach
/// this many bytes.
pub const BLOCK_TARGET_BYTES: usize = 128 * 1024;
/// The longest body, stored or unpacked, that is written or believed. A transaction never spans two blocks,
/// so this bounds a transaction's rows too.
pub const MAX_BODY_BYTES: u64 = 1 << 30;
/// zstd's level unless told otherwise. Tarantool's is 3; on queue rows that takes two to three times the
/// processor time of 1 for a tenth fewer bytes, and readers do not care.
pub const DEFAULT_COMPRESSION_LEVEL: i32 = 1;

const FIELDS_AT: usize = MAGIC_BYTES;
const LONGEST_UINT_32: usize = 5;
const _: () = assert!(FIELDS_AT + 3 * LONGEST_UINT_32 <= FIXED_HEADER_BYTES);
const _: () = assert!(MAX_BODY_BYTES <= u32::MAX as u64);

/// CRC-32C with the register starting at 0 and no final inversion.
#[must_use]
pub fn checksum(data: &[u8]) -> u32 {
    checksum_on(0, data)
}

/// The checksum of `data` behind bytes whose checksum is `before`.
pub(crate) fn checksum_on(before: u32, data: &[u8]) -> u32 {
    !crc32c::crc32c_append(!before, data)
}

/// Whether a block of this many unpacked bytes is stored compressed by a writer that compresses.
#[must_use]
pub const fn is_compressed(unpacked_bytes: usize) -> bool {
    FIXED_HEADER_BYTES + unpacked_bytes >= COMPRESS_FROM
}

/// Whether a block of this many unpacked bytes takes no further transaction.
#[must_use]
pub const fn is_full(unpacked_bytes: usize) -> bool {
    FIXED_HEADER_BYTES + unpacked_bytes >= BLOCK_TARGET_BYTES
}

/// What stands behind the last block of a file that has a preallocated tail: the header of a plain block that is
/// longer than anything that follows it, with the checksum 0. A reader that does not know it, as a real Tarantool's,
/// takes it for a write that never completed. Its length is [`MAX_PREALLOCATED_BYTES`]; zeros follow up to the end of
/// the file.
///
/// The length is written longer than needed, unlike any block's: any part of this header that stands where a block's should
/// be written, five bytes of it are enough to tell that the block's sector never reached the disk.
pub const PREALLOCATED_HEADER: [u8; FIXED_HEADER_BYTES] =
    [0xd5, 0xba, 0x0b, 0xab, 0xcf, 0, 0, 0, 0, 0x00, 0x10, 0x00, 0x00, 0, 0, 0xa3, 0, 0, 0];
/// More than a preallocated tail ever has.
pub const MAX_PREALLOCATED_BYTES: u64 = 1 << 20;

/// A decoded fixed header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHeader {
    /// The body is a zstd frame.
    pub compressed: bool,
    /// Bytes of the body as stored.
    pub length: u32,
    /// [`checksum`] of the body as stored.
    pub checksum: u32,
    /// Once the checksum of the previous block, which no writer writes: 0, or the field of [`crate::synced`].
    pub previous: u32,
}

/// Why 19 bytes are not the header of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The first four bytes are none of the magics.
    #[error("no block begins here: found bytes {:02x}{:02x}{:02x}{:02x}", .0[0], .0[1], .0[2], .0[3])]
    Magic([u8; MAGIC_BYTES]),
    /// Length, previous checksum or checksum is not an unsigned integer inside the header, or the length is
    /// 0.
    #[error("the block's header is not readable")]
    Fields,
    /// The fields are readable, but the header is not as any writer writes it: padding that is not zero, a number longer
    /// than needed, or a wrong field about the file before the block. Some bit of it has changed.
    #[error("the block's header has bits that no writer sets")]
    Padding,
    /// The length is beyond [`MAX_BODY_BYTES`].
    #[error("the block claims {0} bytes, more than the limit of {MAX_BODY_BYTES}")]
    Length(u64),
}

impl BlockHeader {
    /// The header as it stands in a file.
    #[must_use]
    pub fn encode(self) -> [u8; FIXED_HEADER_BYTES] {
        let mut fields = Vec::with_capacity(FIXED_HEADER_BYTES);
        fields.extend_from_slice(if self.compressed { &MAGIC_ZSTD } else { &MAGIC_PLAIN });
        mp::write_uint(&mut fields, u64::from(self.length));
        mp::write_uint(&mut fields, u64::from(self.previous));
        mp::write_uint(&mut fields, u64::from(self.checksum));
        // The padding is one MessagePack string of zero bytes that fills the header up, if there is anything to fill.
        if let Some(padding) = (FIXED_HEADER_BYTES - fields.len()).checked_sub(1) {
            mp::write_str(&mut fields, &[0; FIXED_HEADER_BYTES][..padding]);
        }
        let mut header = [0; FIXED_HEADER_BYTES];
        header.copy_from_slice(&fields);
        header
    }

    /// Reads a header. No checksum covers it, so every bit that carries nothing has to be as Tarantool and
    /// [`encode`](Self::encode) write it.
    ///
    /// # Errors
    /// [`HeaderError`] when the bytes cannot begin a block of at most [`MAX_BODY_BYTES`].
    pub fn decode(header: &[u8; FIXED_HEADER_BYTES]) -> Result<Self, HeaderError> {
        let (magic, fields) = header.split_at(MAGIC_BYTES);
        let compressed = match magic {
            m if m == MAGIC_PLAIN => false,
            m if m == MAGIC_ZSTD => true,
            _ => return Err(HeaderError::Magic([header[0], header[1], header[2], header[3]])),
        };
        let mut reader = mp::Reader::new(fields);
        let mut field = || reader.uint().map_err(|_| HeaderError::Fields);
        let (length, previous, checksum) = (field()?, field()?, field()?);
        if length > MAX_BODY_BYTES {
            return Err(HeaderError::Length(length));
        }
        if length == 0 {
            return Err(HeaderError::Fields);
        }
        let checksum = u32::try_from(checksum).map_err(|_| HeaderError::Fields)?;
        let previous = u32::try_from(previous).map_err(|_| HeaderError::Fields)?;
        let decoded = Self { compressed, length: length as u32, checksum, previous };
        if decoded.encode() == *header { Ok(decoded) } else { Err(HeaderError::Padding) }
    }
}

/// Why rows were not made into a block.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// More than [`MAX_BODY_BYTES`].
    #[error("a block of {0} bytes is over the limit of {MAX_BODY_BYTES}")]
    TooLong(usize),
    /// zstd failed; it does so only when memory is short.
    #[error("compression failed: {0}")]
    Compression(#[source] io::Error),
}

/// Makes blocks of rows. Holds the compressor's state, so one encoder serves a whole file.
pub struct Encoder {
    compressor: Option<Compressor<'static>>,
    frame: Vec<u8>,
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder").finish_non_exhaustive()
    }
}

impl Encoder {
    /// An encoder that compresses at zstd's `level`; without one it stores every block plain.
    ///
    /// # Errors
    /// [`EncodeError::Compression`] when zstd has no such level or no memory.
    pub fn new(level: Option<i32>) -> Result<Self, EncodeError> {
        let compressor = level.map(compressor).transpose().map_err(EncodeError::Compression)?;
        Ok(Self { compressor, frame: Vec::new() })
    }

    /// Appends one block holding `rows`, of which there must be some, to `out`.
    ///
    /// # Errors
    /// [`EncodeError`]; `out` is then unchanged.
    pub fn encode(&mut self, rows: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        assert!(!rows.is_empty(), "a block holds at least one row");
        if rows.len() as u64 > MAX_BODY_BYTES {
            return Err(EncodeError::TooLong(rows.len()));
        }
        let (compressed, body) = match &mut self.compressor {
            Some(compressor) if is_compressed(rows.len()) => {
                self.frame.clear();
                self.frame.reserve(zstd::zstd_safe::compress_bound(rows.len()));
                compressor.compress_to_buffer(rows, &mut self.frame).map_err(EncodeError::Compression)?;
                (true, self.frame.as_slice())
            }
            _ => (false, rows),
        };
        // Incompressible rows grow a little as a frame, possibly past the limit.
        let length = match u32::try_from(body.len()) {
            Ok(length) if u64::from(length) <= MAX_BODY_BYTES => length,
            _ => return Err(EncodeError::TooLong(body.len())),
        };
        let header = BlockHeader { compressed, length, checksum: checksum(body), previous: 0 };
        out.reserve(FIXED_HEADER_BYTES + body.len());
        out.extend_from_slice(&header.encode());
        out.extend_from_slice(body);
        Ok(())
    }
}

fn compressor(level: i32) -> io::Result<Compressor<'static>> {
    let mut compressor = Compressor::new(level)?;
    // Tarantool compresses as a stream, so its frames do not state their content's size; ours look the same.
    compressor.set_parameter(CParameter::ContentSizeFlag(false))?;
    Ok(compressor)
}

/// Why a body whose checksum is right cannot be unpacked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnpackError {
    /// Not a zstd frame, or one that zstd refuses.
    #[error("the block does not decompress: {0}")]
    Frame(String),
    /// The frame ends before its content does.
    #[error("the block's compressed data ends too early")]
    Incomplete,
    /// The content is longer than [`MAX_BODY_BYTES`].
    #[error("the block decompresses to more than {MAX_BODY_BYTES} bytes")]
    TooLong,
}

/// Unpacks compressed bodies, reusing its buffers. One that never does costs nothing.
#[derive(Default)]
pub struct Decoder {
    state: Option<raw::Decoder<'static>>,
    buffer: Vec<u8>,
    unpacked_bytes: usize,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").finish_non_exhaustive()
    }
}

impl Decoder {
    /// Unpacks a compressed `body`; its rows are then in [`rows`](Self::rows). Frames are read as a stream,
    /// because their sizes are not stated.
    ///
    /// # Errors
    /// [`UnpackError`] when `body` is not whole zstd frames of at most [`MAX_BODY_BYTES`].
    pub fn unpack(&mut self, body: &[u8]) -> Result<(), UnpackError> {
        use raw::Operation;
        let failed = |error: io::Error| UnpackError::Frame(error.to_string());
        self.unpacked_bytes = 0;
        let state = match &mut self.state {
            Some(state) => state,
            none => none.insert(raw::Decoder::new().map_err(failed)?),
        };
        state.reinit().map_err(failed)?;
        if self.buffer.is_empty() {
            self.buffer.resize(2 * BLOCK_TARGET_BYTES, 0);
        }
        let (mut read, mut filled) = (0, 0);
        loop {
            let status = state.run_on_buffers(&body[read..], &mut self.buffer[filled..]).map_err(failed)?;
            read += status.bytes_read;
            filled += status.bytes_written;
            if filled as u64 > MAX_BODY_BYTES {
                return Err(UnpackError::TooLong);
            }
            if read == body.len() && status.remaining == 0 {
                self.unpacked_bytes = filled;
                return Ok(());
            }
            if filled == self.buffer.len() {
                let limit = MAX_BODY_BYTES as usize + 1;
                self.buffer.resize((filled * 2).min(limit), 0);
            } else if status.bytes_read == 0 && status.bytes_written == 0 {
                return Err(UnpackError::Incomplete);
            }
        }
    }

    /// What the last [`unpack`](Self::unpack) gave; empty if it failed.
    #[must_use]
    pub fn rows(&self) -> &[u8] {
        &self.buffer[..self.unpacked_bytes]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    fn block(rows: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        Encoder::new(Some(DEFAULT_COMPRESSION_LEVEL)).unwrap().encode(rows, &mut out).unwrap();
        out
    }

    fn header_of(block: &[u8]) -> BlockHeader {
        BlockHeader::decode(block[..FIXED_HEADER_BYTES].try_into().unwrap()).unwrap()
    }

    #[test]
    fn the_checksum_is_raw_crc32c() {
        assert_eq!(checksum(b"123456789"), 0x58e3_fa20);
        assert_eq!(checksum(b""), 0);
    }

    #[test]
    fn a_real_block_with_a_short_checksum_is_reproduced() {
        let real = hex("d5ba0bab2200cd5b64a9000000000000000000
             840003020103ce00013a1704cb41dac00814d98e598210cd0200219204ce00013a14");
        assert_eq!(block(&real[FIXED_HEADER_BYTES..]), real);
        assert_eq!(
            header_of(&real),
            BlockHeader { compressed: false, length: 0x22, checksum: 0x5b64, previous: 0 }
        );
    }

    #[test]
    fn padding_fills_every_width_of_length() {
        let padding = |length| {
            let header = BlockHeader { compressed: false, length, checksum: u32::MAX, previous: 0 }.encode();
            let at = header.iter().rposition(|&b| b != 0).unwrap();
            assert_eq!(usize::from(header[at] - 0xa0), FIXED_HEADER_BYTES - at - 1);
            header[at]
        };
        assert_eq!(
            [padding(0x4c), padding(0x91), padding(0x1dcc), padding(0x1_0000)],
            [0xa7, 0xa6, 0xa5, 0xa3]
        );
    }

    #[test]
    fn compression_begins_at_2029_bytes_of_rows() {
        assert!(!header_of(&block(&[7; 2028])).compressed);
        assert!(header_of(&block(&[7; 2029])).compressed);
    }

    #[test]
    fn without_a_level_nothing_is_compressed() {
        let mut out = Vec::new();
        Encoder::new(None).unwrap().encode(&[7; 5000], &mut out).unwrap();
        assert_eq!(
            header_of(&out),
            BlockHeader { compressed: false, length: 5000, checksum: checksum(&[7; 5000]), previous: 0 }
        );
    }

    #[test]
    fn absurd_lengths_are_refused() {
        let mut header = [0_u8; FIXED_HEADER_BYTES];
        header[..4].copy_from_slice(&MAGIC_PLAIN);
        header[4] = 0xcf;
        header[5..13].copy_from_slice(&u64::MAX.to_be_bytes());
        assert_eq!(BlockHeader::decode(&header), Err(HeaderError::Length(u64::MAX)));
        header[4] = 0xd3;
        assert_eq!(BlockHeader::decode(&header), Err(HeaderError::Fields));
        header[4..].fill(0);
        assert_eq!(BlockHeader::decode(&header), Err(HeaderError::Fields), "a block is never empty");
        header[0] = 0;
        assert!(matches!(BlockHeader::decode(&header), Err(HeaderError::Magic(_))));
    }

    #[test]
    fn a_frame_cut_short_or_followed_by_garbage_is_refused() {
        let whole = block(&[7; 9000]);
        let body = &whole[FIXED_HEADER_BYTES..];
        let mut decoder = Decoder::default();
        assert_eq!(decoder.unpack(&body[..body.len() - 1]), Err(UnpackError::Incomplete));
        assert_eq!(decoder.unpack(&[]), Err(UnpackError::Incomplete));
        assert!(decoder.unpack(&[body, b"x".as_slice()].concat()).is_err());
        assert!(matches!(decoder.unpack(b"not zstd at all"), Err(UnpackError::Frame(_))));
        assert_eq!(decoder.rows(), b"");
        decoder.unpack(body).unwrap();
        assert_eq!(decoder.rows(), [7; 9000]);
    }

    #[test]
    fn long_content_grows_the_buffer() {
        let rows: Vec<u8> = (0..3_000_000_u32).map(|n| (n >> 10) as u8).collect();
        let whole = block(&rows);
        let mut decoder = Decoder::default();
        decoder.unpack(&whole[FIXED_HEADER_BYTES..]).unwrap();
        assert_eq!(decoder.rows(), rows);
        decoder.unpack(&block(&[7; 2500])[FIXED_HEADER_BYTES..]).unwrap();
        assert_eq!(decoder.rows(), [7; 2500]);
    }

    proptest! {
        #[test]
        fn a_block_reads_back(rows in proptest::collection::vec(any::<u8>(), 1..5000)) {
            let whole = block(&rows);
            let header = header_of(&whole);
            let body = &whole[FIXED_HEADER_BYTES..];
            prop_assert_eq!(header.length as usize, body.len());
            prop_assert_eq!(header.checksum, checksum(body));
            let mut decoder = Decoder::default();
            if header.compressed {
                decoder.unpack(body).unwrap();
            }
            prop_assert_eq!(if header.compressed { decoder.rows() } else { body }, rows);
        }

        #[test]
        fn no_header_panics(bytes in any::<[u8; FIXED_HEADER_BYTES]>(), compressed in any::<bool>()) {
            let _ = BlockHeader::decode(&bytes);
            let mut bytes = bytes;
            bytes[..MAGIC_BYTES].copy_from_slice(if compressed { &MAGIC_ZSTD } else { &MAGIC_PLAIN });
            let _ = BlockHeader::decode(&bytes);
        }

        #[test]
        fn no_body_panics(
            body in proptest::collection::vec(any::<u8>(), 0..300),
            at in 0_usize..300,
            flip in any::<u8>(),
        ) {
            let mut decoder = Decoder::default();
            let _ = decoder.unpack(&body);
            let mut frame = block(&[body.clone(), vec![1; 3000]].concat())[FIXED_HEADER_BYTES..].to_vec();
            let at = at % frame.len();
            frame[at] ^= flip;
            let _ = decoder.unpack(&frame);
        }
    }
}
