//! The checked cursor over MessagePack.

use std::ops::RangeInclusive;

use super::{Kind, MpError};

const LENGTH_8: i8 = -1;
const LENGTH_16: i8 = -2;
const LENGTH_32: i8 = -3;
const EXT_8: i8 = -4;
const EXT_16: i8 = -5;
const EXT_32: i8 = -6;
const FIX_ARRAY: i8 = -7;
const ARRAY_16: i8 = -8;
const ARRAY_32: i8 = -9;
const FIX_MAP: i8 = -10;
const MAP_16: i8 = -11;
const MAP_32: i8 = -12;

/// For each first byte: how many bytes follow it, or (negative) the class whose length must be read.
static TAIL: [i8; 256] = tail_table();

const fn tail_table() -> [i8; 256] {
    let mut table = [0_i8; 256];
    let mut first = 0_usize;
    while first < 256 {
        table[first] = match first {
            0x80..=0x8f => FIX_MAP,
            0x90..=0x9f => FIX_ARRAY,
            0xa0..=0xbf => (first & 0x1f) as i8,
            0xc4 | 0xd9 => LENGTH_8,
            0xc5 | 0xda => LENGTH_16,
            0xc6 | 0xdb => LENGTH_32,
            0xc7 => EXT_8,
            0xc8 => EXT_16,
            0xc9 => EXT_32,
            0xcc | 0xd0 => 1,
            0xcd | 0xd1 | 0xd4 => 2,
            0xd5 => 3,
            0xca | 0xce | 0xd2 => 4,
            0xd6 => 5,
            0xcb | 0xcf | 0xd3 => 8,
            0xd7 => 9,
            0xd8 => 17,
            0xdc => ARRAY_16,
            0xdd => ARRAY_32,
            0xde => MAP_16,
            0xdf => MAP_32,
            _ => 0,
        };
        first += 1;
    }
    table
}

/// Values of a container from which on runs of one-byte values are looked for.
const MANY: u64 = 1024;

/// Bytes that are looked at together in such a run.
const RUN: usize = 64;

/// Steps over values until fewer than [`MANY`] of `pending` are left, and returns the rest of both. A client chooses how many values
/// a frame has, and most fit into it if each is one byte: runs of those are passed over [`RUN`] at a time, without a branch for each.
#[cold]
fn skip_many(mut rest: &[u8], mut pending: u64) -> Result<(&[u8], u64), MpError> {
    while pending >= MANY {
        if let Some((run, behind)) = rest.split_first_chunk::<RUN>()
            && run.iter().fold(true, |all, &byte| all & is_whole(byte))
        {
            (rest, pending) = (behind, pending - RUN as u64);
            continue;
        }
        // The values of one run, one by one: at most the first `RUN` bytes are looked at again.
        for _ in 0..RUN {
            let mut reader = Reader::new(rest);
            let inner = match reader.kind()? {
                Kind::Array => u64::from(reader.array()?),
                Kind::Map => 2 * u64::from(reader.map()?),
                _ => {
                    reader.skip()?;
                    0
                }
            };
            rest = reader.rest;
            pending = (pending - 1).saturating_add(inner);
            if pending < MANY {
                break;
            }
        }
    }
    Ok((rest, pending))
}

/// Whether the byte is a whole value: a small integer, nil, a boolean, or the byte `c1`, which nothing begins with.
#[inline]
fn is_whole(byte: u8) -> bool {
    !(0x80..0xe0).contains(&byte) | (byte & 0xfc == 0xc0)
}

/// The length of a value, if its first byte tells it and no other values are inside.
#[inline]
pub fn short_length(first: u8) -> Option<usize> {
    let tail = TAIL[usize::from(first)];
    (tail >= 0).then(|| 1 + usize::from(tail.unsigned_abs()))
}

/// A cursor over MessagePack bytes. Copying it is a way to look ahead.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
    /// Length of the whole input.
    length: usize,
}

impl<'a> Reader<'a> {
    /// A cursor at the first byte of `bytes`.
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, length: bytes.len() }
    }

    /// Offset of the next byte from the start of the input.
    #[inline]
    pub const fn position(&self) -> usize {
        self.length - self.rest.len()
    }

    /// Everything from the cursor on.
    #[inline]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Whether nothing is left.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The kind of the next value, which is not consumed.
    #[inline]
    pub fn kind(&self) -> Result<Kind, MpError> {
        self.rest.first().map(|&first| Kind::of(first)).ok_or(MpError::Truncated)
    }

    /// Steps over one whole value, however deep it is. Time is linear in the bytes stepped over.
    #[inline]
    pub fn skip(&mut self) -> Result<(), MpError> {
        let &first = self.rest.first().ok_or(MpError::Truncated)?;
        let tail = TAIL[usize::from(first)];
        let length = match (tail, self.rest) {
            (0.., _) => 1 + usize::from(tail.unsigned_abs()),
            (LENGTH_8, [_, length, ..]) => 2 + usize::from(*length),
            _ => return self.skip_long(),
        };
        self.rest = self.rest.get(length..).ok_or(MpError::Truncated)?;
        Ok(())
    }

    /// Steps over one whole value and says what it was.
    #[inline]
    pub fn skip_kind(&mut self) -> Result<Kind, MpError> {
        let kind = self.kind()?;
        self.skip()?;
        Ok(kind)
    }

    /// [`Self::skip`] that returns how many values it has stepped over: 1 for a value that holds no others.
    pub fn skip_counted(&mut self) -> Result<u64, MpError> {
        let (mut pending, mut count) = (1_u64, 0_u64);
        while pending > 0 {
            let inner = match self.kind()? {
                Kind::Array => u64::from(self.array()?),
                Kind::Map => 2 * u64::from(self.map()?),
                _ => {
                    self.skip()?;
                    0
                }
            };
            pending = (pending - 1).saturating_add(inner);
            count += 1;
        }
        Ok(count)
    }

    /// Whether the next value is at most `limit` values, counted with the values inside it. Reading ends at `limit`, even if a
    /// header promises more. Broken bytes give false.
    #[must_use]
    pub fn holds_at_most(mut self, limit: u64) -> bool {
        let mut pending = 1_u64;
        for _ in 0..limit {
            let inner = match self.kind() {
                Ok(Kind::Array) => self.array().map(u64::from),
                Ok(Kind::Map) => self.map().map(|pairs| 2 * u64::from(pairs)),
                Ok(_) => self.skip().map(|()| 0),
                Err(error) => Err(error),
            };
            let Ok(inner) = inner else { return false };
            pending = (pending - 1).saturating_add(inner);
            if pending == 0 {
                return true;
            }
        }
        false
    }

    /// [`Self::skip`] for values that say their length behind the first byte, or are containers.
    ///
    /// A row of the log has a dozen values, and the framing for replicas is little else than this loop: what fits into the table
    /// takes nine instructions.
    fn skip_long(&mut self) -> Result<(), MpError> {
        let mut rest = self.rest;
        let mut pending = 1_u64;
        while pending > 0 {
            let &first = rest.first().ok_or(MpError::Truncated)?;
            pending -= 1;
            let tail = TAIL[usize::from(first)];
            if tail >= 0 {
                rest = rest.get(1 + usize::from(tail.unsigned_abs())..).ok_or(MpError::Truncated)?;
                continue;
            }
            let inner = match tail {
                LENGTH_8 if let [_, length, ..] = *rest => {
                    rest = rest.get(2 + usize::from(length)..).ok_or(MpError::Truncated)?;
                    continue;
                }
                FIX_ARRAY => u64::from(first & 0x0f),
                FIX_MAP => 2 * u64::from(first & 0x0f),
                _ => {
                    let (length, inner) = Reader::new(&rest[1..]).header(tail)?;
                    rest = rest.get(1 + length..).ok_or(MpError::Truncated)?;
                    pending = pending.saturating_add(inner);
                    if inner >= MANY {
                        (rest, pending) = skip_many(rest, pending)?;
                    }
                    continue;
                }
            };
            rest = &rest[1..];
            pending = pending.saturating_add(inner);
        }
        self.rest = rest;
        Ok(())
    }

    /// What lies behind a first byte of a class whose length must be read: bytes of the length and of what it counts, and values.
    fn header(mut self, class: i8) -> Result<(usize, u64), MpError> {
        let before = self.rest.len();
        let (bytes, values) = match class {
            LENGTH_8 => (usize::from(self.be_u8()?), 0),
            LENGTH_16 => (usize::from(self.be_u16()?), 0),
            LENGTH_32 => (self.be_u32()? as usize, 0),
            EXT_8 => (usize::from(self.be_u8()?) + 1, 0),
            EXT_16 => (usize::from(self.be_u16()?) + 1, 0),
            EXT_32 => ((self.be_u32()? as usize).saturating_add(1), 0),
            ARRAY_16 => (0, u64::from(self.be_u16()?)),
            ARRAY_32 => (0, u64::from(self.be_u32()?)),
            MAP_16 => (0, 2 * u64::from(self.be_u16()?)),
            // MAP_32
            _ => (0, 2 * u64::from(self.be_u32()?)),
        };
        Ok(((before - self.rest.len()).saturating_add(bytes), values))
    }

    /// The bytes of one whole value.
    #[inline]
    pub fn raw(&mut self) -> Result<&'a [u8], MpError> {
        let before = self.rest;
        self.skip()?;
        Ok(&before[..before.len() - self.rest.len()])
    }

    /// Reads nil.
    #[inline]
    pub fn nil(&mut self) -> Result<(), MpError> {
        match self.rest {
            [0xc0, rest @ ..] => {
                self.rest = rest;
                Ok(())
            }
            _ => Err(self.unexpected("nil", 0xc0..=0xc0)),
        }
    }

    /// Reads a boolean.
    pub fn bool(&mut self) -> Result<bool, MpError> {
        match self.rest {
            [first @ (0xc2 | 0xc3), rest @ ..] => {
                self.rest = rest;
                Ok(*first == 0xc3)
            }
            _ => Err(self.unexpected("boolean", 0xc2..=0xc3)),
        }
    }

    /// Reads an integer in one of the unsigned forms. A positive number in a signed form (`d0 05`) is refused, as
    /// Tarantool does wherever it expects `MP_UINT`.
    #[inline]
    pub fn uint(&mut self) -> Result<u64, MpError> {
        let (value, rest) = match *self.rest {
            [first @ 0..=0x7f, ref rest @ ..] => (u64::from(first), rest),
            [0xcc, a, ref rest @ ..] => (u64::from(a), rest),
            [0xcd, a, b, ref rest @ ..] => (u64::from(u16::from_be_bytes([a, b])), rest),
            [0xce, a, b, c, d, ref rest @ ..] => (u64::from(u32::from_be_bytes([a, b, c, d])), rest),
            [0xcf, a, b, c, d, e, f, g, h, ref rest @ ..] => {
                (u64::from_be_bytes([a, b, c, d, e, f, g, h]), rest)
            }
            _ => return Err(self.unexpected("unsigned", 0xcc..=0xcf)),
        };
        self.rest = rest;
        Ok(value)
    }

    /// Reads an integer in any form: −2^63 … 2^64−1.
    #[inline]
    pub fn int(&mut self) -> Result<i128, MpError> {
        let (value, rest) = match *self.rest {
            [first @ 0xe0..=0xff, ref rest @ ..] => (i64::from(first.cast_signed()), rest),
            [0xd0, a, ref rest @ ..] => (i64::from(a.cast_signed()), rest),
            [0xd1, a, b, ref rest @ ..] => (i64::from(i16::from_be_bytes([a, b])), rest),
            [0xd2, a, b, c, d, ref rest @ ..] => (i64::from(i32::from_be_bytes([a, b, c, d])), rest),
            [0xd3, a, b, c, d, e, f, g, h, ref rest @ ..] => {
                (i64::from_be_bytes([a, b, c, d, e, f, g, h]), rest)
            }
            [0xd0..=0xd3, ..] => return Err(MpError::Truncated),
            _ => return self.uint().map(i128::from).map_err(|error| self.renamed(error, "integer")),
        };
        self.rest = rest;
        Ok(i128::from(value))
    }

    /// Reads a 32-bit float (`ca`).
    pub fn float(&mut self) -> Result<f32, MpError> {
        match *self.rest {
            [0xca, a, b, c, d, ref rest @ ..] => {
                self.rest = rest;
                Ok(f32::from_be_bytes([a, b, c, d]))
            }
            _ => Err(self.unexpected("float", 0xca..=0xca)),
        }
    }

    /// Reads a 64-bit float (`cb`).
    pub fn double(&mut self) -> Result<f64, MpError> {
        match *self.rest {
            [0xcb, a, b, c, d, e, f, g, h, ref rest @ ..] => {
                self.rest = rest;
                Ok(f64::from_be_bytes([a, b, c, d, e, f, g, h]))
            }
            _ => Err(self.unexpected("double", 0xcb..=0xcb)),
        }
    }

    /// Reads a string's bytes.
    #[inline]
    pub fn str(&mut self) -> Result<&'a [u8], MpError> {
        let (length, rest) = match *self.rest {
            [first @ 0xa0..=0xbf, ref rest @ ..] => (usize::from(first & 0x1f), rest),
            [0xd9, a, ref rest @ ..] => (usize::from(a), rest),
            [0xda, a, b, ref rest @ ..] => (usize::from(u16::from_be_bytes([a, b])), rest),
            [0xdb, a, b, c, d, ref rest @ ..] => (u32::from_be_bytes([a, b, c, d]) as usize, rest),
            _ => return Err(self.unexpected("string", 0xd9..=0xdb)),
        };
        let (bytes, rest) = rest.split_at_checked(length).ok_or(MpError::Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Reads a binary value's bytes.
    pub fn bin(&mut self) -> Result<&'a [u8], MpError> {
        let (length, rest) = match *self.rest {
            [0xc4, a, ref rest @ ..] => (usize::from(a), rest),
            [0xc5, a, b, ref rest @ ..] => (usize::from(u16::from_be_bytes([a, b])), rest),
            [0xc6, a, b, c, d, ref rest @ ..] => (u32::from_be_bytes([a, b, c, d]) as usize, rest),
            _ => return Err(self.unexpected("varbinary", 0xc4..=0xc6)),
        };
        let (bytes, rest) = rest.split_at_checked(length).ok_or(MpError::Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Reads the bytes of a string or of a binary value.
    pub fn str_or_bin(&mut self) -> Result<&'a [u8], MpError> {
        match self.kind()? {
            Kind::Bin => self.bin(),
            Kind::Str => self.str(),
            _ => Err(self.mismatch("string or varbinary")),
        }
    }

    /// Reads an array's header: the number of values that follow. The values themselves may be missing; a caller
    /// must not reserve memory for them on the header's word alone.
    #[inline]
    pub fn array(&mut self) -> Result<u32, MpError> {
        let (count, rest) = match *self.rest {
            [first @ 0x90..=0x9f, ref rest @ ..] => (u32::from(first & 0x0f), rest),
            [0xdc, a, b, ref rest @ ..] => (u32::from(u16::from_be_bytes([a, b])), rest),
            [0xdd, a, b, c, d, ref rest @ ..] => (u32::from_be_bytes([a, b, c, d]), rest),
            _ => return Err(self.unexpected("array", 0xdc..=0xdd)),
        };
        self.rest = rest;
        Ok(count)
    }

    /// Reads a map's header: the number of pairs that follow. As with [`Self::array`], the number is unchecked.
    #[inline]
    pub fn map(&mut self) -> Result<u32, MpError> {
        let (count, rest) = match *self.rest {
            [first @ 0x80..=0x8f, ref rest @ ..] => (u32::from(first & 0x0f), rest),
            [0xde, a, b, ref rest @ ..] => (u32::from(u16::from_be_bytes([a, b])), rest),
            [0xdf, a, b, c, d, ref rest @ ..] => (u32::from_be_bytes([a, b, c, d]), rest),
            _ => return Err(self.unexpected("map", 0xde..=0xdf)),
        };
        self.rest = rest;
        Ok(count)
    }

    /// Reads an extension: its type and its bytes.
    pub fn ext(&mut self) -> Result<(i8, &'a [u8]), MpError> {
        let (length, kind, rest) = match *self.rest {
            [first @ 0xd4..=0xd8, kind, ref rest @ ..] => (1 << (first - 0xd4), kind, rest),
            [0xc7, a, kind, ref rest @ ..] => (usize::from(a), kind, rest),
            [0xc8, a, b, kind, ref rest @ ..] => (usize::from(u16::from_be_bytes([a, b])), kind, rest),
            [0xc9, a, b, c, d, kind, ref rest @ ..] => {
                (u32::from_be_bytes([a, b, c, d]) as usize, kind, rest)
            }
            [0xd4..=0xd8] => return Err(MpError::Truncated),
            _ => return Err(self.unexpected("extension", 0xc7..=0xc9)),
        };
        let (bytes, rest) = rest.split_at_checked(length).ok_or(MpError::Truncated)?;
        self.rest = rest;
        Ok((kind.cast_signed(), bytes))
    }

    /// The error "something else was expected here", for callers that look at [`Self::kind`] themselves.
    #[cold]
    pub fn mismatch(&self, expected: &'static str) -> MpError {
        MpError::Type { expected, at: self.position() }
    }

    /// Why the next value could not be read as `expected`, whose long forms begin with one of `heads`: it is of another
    /// kind, or it is cut off.
    #[cold]
    fn unexpected(&self, expected: &'static str, heads: RangeInclusive<u8>) -> MpError {
        match self.rest.first() {
            Some(first) if !heads.contains(first) => self.mismatch(expected),
            _ => MpError::Truncated,
        }
    }

    #[cold]
    fn renamed(&self, error: MpError, expected: &'static str) -> MpError {
        match error {
            MpError::Type { .. } => self.mismatch(expected),
            other => other,
        }
    }

    #[inline]
    fn take_array<const N: usize>(&mut self) -> Result<[u8; N], MpError> {
        let (bytes, rest) = self.rest.split_first_chunk::<N>().ok_or(MpError::Truncated)?;
        self.rest = rest;
        Ok(*bytes)
    }

    #[inline]
    fn be_u8(&mut self) -> Result<u8, MpError> {
        self.take_array::<1>().map(|[byte]| byte)
    }

    #[inline]
    fn be_u16(&mut self) -> Result<u16, MpError> {
        self.take_array().map(u16::from_be_bytes)
    }

    #[inline]
    fn be_u32(&mut self) -> Result<u32, MpError> {
        self.take_array().map(u32::from_be_bytes)
    }
}

/// Length in bytes of the first value of `bytes`.
pub fn value_len(bytes: &[u8]) -> Result<usize, MpError> {
    let mut reader = Reader::new(bytes);
    reader.skip()?;
    Ok(reader.position())
}

/// Checks that `bytes` are exactly `count` values, back to back.
pub fn check_values(bytes: &[u8], count: u32) -> Result<(), MpError> {
    let mut reader = Reader::new(bytes);
    for _ in 0..count {
        reader.skip()?;
    }
    if reader.is_empty() { Ok(()) } else { Err(MpError::Trailing { at: reader.position() }) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::samples;
    use crate::value::Value;

    #[test]
    fn a_signed_form_is_no_unsigned_integer() {
        let mut reader = Reader::new(&[0xd0, 0x05]);
        assert_eq!(reader.uint(), Err(MpError::Type { expected: "unsigned", at: 0 }));
        assert_eq!(reader.int(), Ok(5));
    }

    #[test]
    fn a_million_levels_are_skipped_without_recursion() {
        let mut bytes = vec![0x91; 1_000_000];
        assert_eq!(value_len(&bytes), Err(MpError::Truncated));
        bytes.push(0xc0);
        assert_eq!(value_len(&bytes), Ok(1_000_001));
    }

    #[test]
    fn values_are_counted_up_to_a_limit() {
        // An array of a string and a map of two pairs: six values behind it.
        let bytes = [0x92, 0xa1, b'x', 0x82, 1, 0xc0, 2, 0xcd, 1, 2];
        assert!(Reader::new(&bytes).holds_at_most(7));
        assert!(!Reader::new(&bytes).holds_at_most(6));
        assert!(!Reader::new(&bytes[..9]).holds_at_most(100), "its last number is cut");
        assert!(!Reader::new(&[0xdf, 255, 255, 255, 255, 1]).holds_at_most(100));
        assert!(!Reader::new(&[]).holds_at_most(1) && !Reader::new(&[0xc0]).holds_at_most(0));
    }

    #[test]
    fn one_byte_values_are_those_without_a_tail() {
        for byte in 0..=u8::MAX {
            assert_eq!(is_whole(byte), TAIL[usize::from(byte)] == 0 && !matches!(byte, 0xa0), "{byte:x}");
        }
    }

    /// Runs of one-byte values between others, at every place of a run, are stepped over exactly.
    #[test]
    fn large_containers_are_skipped_to_their_end() {
        for odd in [
            &[0xa3, b'a', b'b', b'c'][..],
            &[0xcf, 1, 2, 3, 4, 5, 6, 7, 8],
            &[0x92, 0xc0, 0x81, 1, 2],
            &[0xa0],
        ] {
            for place in 0..2 * RUN {
                let count = 4 * MANY as usize;
                let mut bytes = vec![0xdd];
                bytes.extend_from_slice(&(count as u32).to_be_bytes());
                for number in 0..count {
                    if number % (2 * RUN) == place { bytes.extend_from_slice(odd) } else { bytes.push(0xc0) }
                }
                let length = bytes.len();
                bytes.extend_from_slice(&[0xc0; 3]);
                assert_eq!(value_len(&bytes), Ok(length), "{odd:x?} at {place}");
                assert_eq!(value_len(&bytes[..length - 1]), Err(MpError::Truncated), "{odd:x?} at {place}");
            }
        }
    }

    #[test]
    fn huge_headers_are_truncated_not_trusted() {
        for bytes in [
            &[0xdd, 255, 255, 255, 255][..],
            &[0xdf, 255, 255, 255, 255, 0xdf, 255, 255, 255, 255],
            &[0xdb, 255, 255, 255, 255, 0],
            &[0xc6, 255, 255, 255, 255],
            &[0xc9, 255, 255, 255, 255, 1],
        ] {
            assert_eq!(value_len(bytes), Err(MpError::Truncated));
        }
    }

    #[test]
    fn the_unused_byte_is_a_value_of_one_byte() {
        let mut reader = Reader::new(&[0xc1, 0xc0]);
        assert_eq!(reader.kind(), Ok(Kind::Invalid));
        assert_eq!(reader.raw(), Ok(&[0xc1][..]));
        assert_eq!(reader.nil(), Ok(()));
    }

    #[test]
    fn exactly_so_many_values() {
        assert_eq!(check_values(&[1, 2], 2), Ok(()));
        assert_eq!(check_values(&[1, 2], 1), Err(MpError::Trailing { at: 1 }));
        assert_eq!(check_values(&[1, 2], 3), Err(MpError::Truncated));
    }

    /// What the first byte says must agree between the kinds and the lengths.
    #[test]
    fn every_first_byte_has_a_length_of_its_kind() {
        for first in 0..=255_u8 {
            let tail = TAIL[usize::from(first)];
            match Kind::of(first) {
                Kind::Array => assert!(matches!(tail, FIX_ARRAY | ARRAY_16 | ARRAY_32)),
                Kind::Map => assert!(matches!(tail, FIX_MAP | MAP_16 | MAP_32)),
                Kind::Bin => assert!(matches!(tail, LENGTH_8 | LENGTH_16 | LENGTH_32)),
                Kind::Ext => assert!(matches!(tail, EXT_8 | EXT_16 | EXT_32 | 2 | 3 | 5 | 9 | 17)),
                Kind::Str => assert!(matches!(tail, LENGTH_8 | LENGTH_16 | LENGTH_32 | 0..=31)),
                Kind::Nil | Kind::Bool | Kind::Invalid => assert_eq!(tail, 0),
                Kind::Uint | Kind::Int => assert!(matches!(tail, 0 | 1 | 2 | 4 | 8)),
                Kind::Float => assert_eq!(tail, 4),
                Kind::Double => assert_eq!(tail, 8),
            }
        }
    }

    /// Bytes that look like MessagePack more often than random ones do.
    fn noise() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![any::<u8>(), 0x80..=0xdf_u8, Just(0)];
        prop_oneof![
            prop::collection::vec(byte, 0..64),
            (samples::values(), any::<prop::sample::Index>(), any::<u8>()).prop_map(
                |(value, place, byte)| {
                    let mut bytes = value.encode();
                    let place = place.index(bytes.len());
                    bytes[place] = byte;
                    bytes
                }
            ),
        ]
    }

    /// Runs `read` on a copy and checks what it did to the cursor.
    fn probe<'a, T>(reader: Reader<'a>, read: impl FnOnce(&mut Reader<'a>) -> Result<T, MpError>) {
        let mut cursor = reader;
        let result = read(&mut cursor);
        assert_eq!(result.is_err(), cursor.position() == reader.position());
        assert_eq!(&reader.rest()[cursor.position() - reader.position()..], cursor.rest());
    }

    proptest! {
        #[test]
        fn skip_steps_over_exactly_what_was_written(
            value in samples::values(),
            rest in noise(),
            cut: prop::sample::Index,
        ) {
            let encoded = value.encode();
            let mut bytes = encoded.clone();
            bytes.extend(rest);
            prop_assert_eq!(value_len(&bytes), Ok(encoded.len()));
            prop_assert_eq!(value_len(&encoded[..cut.index(encoded.len())]), Err(MpError::Truncated));
        }

        #[test]
        fn nothing_panics_and_a_failure_moves_nothing(bytes in noise(), start in 0_usize..8) {
            let mut reader = Reader::new(&bytes);
            for _ in 0..start {
                if reader.skip().is_err() {
                    break;
                }
            }
            probe(reader, Reader::skip);
            probe(reader, |reader| reader.raw().map(<[u8]>::len));
            probe(reader, Reader::nil);
            probe(reader, Reader::bool);
            probe(reader, Reader::uint);
            probe(reader, Reader::int);
            probe(reader, Reader::float);
            probe(reader, Reader::double);
            probe(reader, |reader| reader.str().map(<[u8]>::len));
            probe(reader, |reader| reader.bin().map(<[u8]>::len));
            probe(reader, |reader| reader.str_or_bin().map(<[u8]>::len));
            probe(reader, Reader::array);
            probe(reader, Reader::map);
            probe(reader, |reader| reader.ext().map(|(kind, _)| kind));
        }

        #[test]
        fn skip_agrees_with_decoding(bytes in noise()) {
            let mut reader = Reader::new(&bytes);
            if Value::read(&mut reader).is_ok() {
                prop_assert_eq!(value_len(&bytes), Ok(reader.position()));
            }
        }
    }
}
