//! Cutting a stream of bytes into frames.
//!
//! A frame is a length and its bytes. Tarantool takes the length in any unsigned form of MessagePack and so does
//! this. It waits for frames of up to 2^31 bytes; here the caller names the limit, so that no peer can make the server
//! buffer without bound.

use crate::error::ErrorCode;

/// A frame length that is accepted unless a configuration says otherwise: 64 MiB.
pub const DEFAULT_LIMIT: usize = 64 << 20;

/// What the beginning of a buffer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split<'a> {
    /// A whole frame.
    Frame {
        /// Header and body.
        content: &'a [u8],
        /// Length of the frame in the buffer, its length prefix included.
        consumed: usize,
    },
    /// Part of a frame; at least this number of bytes (never 0) is missing.
    NeedMore(usize),
}

/// A frame after whose beginning nothing in the stream can be trusted. The connection has to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Not an unsigned integer.
    #[error("Invalid MsgPack - packet length")]
    Length,
    /// Longer than the limit.
    #[error("Invalid MsgPack - too big packet size in the header: {0}")]
    TooBig(u64),
    /// The frame has begun, and not with a map: text or another protocol was taken for a length.
    #[error("Invalid MsgPack - packet header")]
    Header,
}

impl FrameError {
    /// The code under which the client gets the error.
    pub fn code(self) -> ErrorCode {
        ErrorCode::InvalidMsgpack
    }
}

/// Looks at the beginning of `buffer` for a frame of at most `limit` bytes after its length prefix.
///
/// An incomplete frame is refused as soon as it begins with anything but a map: the server never waits for the
/// rest of what cannot become a frame. Whole frames are judged by [`crate::request::decode`].
///
/// # Errors
/// A prefix that is not an unsigned integer, or too great, or not followed by a map. Nothing is read after any of them.
#[inline]
pub fn split(buffer: &[u8], limit: usize) -> Result<Split<'_>, FrameError> {
    let (prefix, length) = match *buffer {
        [0xce, a, b, c, d, ..] => (5, u64::from(u32::from_be_bytes([a, b, c, d]))),
        [first @ 0x00..=0x7f, ..] => (1, u64::from(first)),
        [0xcc, a, ..] => (2, u64::from(a)),
        [0xcd, a, b, ..] => (3, u64::from(u16::from_be_bytes([a, b]))),
        [0xcf, a, b, c, d, e, f, g, h, ..] => (9, u64::from_be_bytes([a, b, c, d, e, f, g, h])),
        [] => return Ok(Split::NeedMore(1)),
        [first @ 0xcc..=0xcf, ..] => return Ok(Split::NeedMore(1 + (1 << (first - 0xcc)) - buffer.len())),
        _ => return Err(FrameError::Length),
    };
    let size =
        usize::try_from(length).ok().filter(|&size| size <= limit).ok_or(FrameError::TooBig(length))?;
    match buffer[prefix..].get(..size) {
        Some(content) => Ok(Split::Frame { content, consumed: prefix + size }),
        None if buffer.get(prefix).is_none_or(|&first| is_map(first)) => {
            Ok(Split::NeedMore(prefix + size - buffer.len()))
        }
        None => Err(FrameError::Header),
    }
}

/// Whether a value that begins with this byte is a map.
const fn is_map(first: u8) -> bool {
    matches!(first, 0x80..=0x8f | 0xde | 0xdf)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: [u8; 5] = [0x82, 0x00, 0x40, 0x01, 0x01];

    fn whole(prefix: &[u8]) -> Result<Split<'static>, FrameError> {
        let bytes: &'static [u8] = [prefix, &PING, &[0xc1]].concat().leak();
        split(bytes, DEFAULT_LIMIT)
    }

    #[test]
    fn every_unsigned_form_is_a_length() {
        let prefixes: [&[u8]; 5] =
            [&[5], &[0xcc, 5], &[0xcd, 0, 5], &[0xce, 0, 0, 0, 5], &[0xcf, 0, 0, 0, 0, 0, 0, 0, 5]];
        for prefix in prefixes {
            assert_eq!(whole(prefix), Ok(Split::Frame { content: &PING, consumed: prefix.len() + 5 }));
        }
    }

    #[test]
    fn other_lengths_end_the_stream() {
        for first in [0x80, 0x90, 0xa3, 0xc0, 0xc1, 0xca, 0xd0, 0xd3, 0xd9, 0xff] {
            assert_eq!(split(&[first], DEFAULT_LIMIT), Err(FrameError::Length));
        }
        assert_eq!(
            split(&[0xce, 0xff, 0xff, 0xff, 0xff], DEFAULT_LIMIT),
            Err(FrameError::TooBig(0xffff_ffff))
        );
        assert_eq!(
            split(&[0xcf, 0x80, 0, 0, 0, 0, 0, 0, 0], usize::MAX / 4),
            Err(FrameError::TooBig(1 << 63))
        );
        assert_eq!(split(&[6, 0, 0], 5), Err(FrameError::TooBig(6)));
        assert_eq!(
            FrameError::TooBig(4_294_967_295).to_string(),
            "Invalid MsgPack - too big packet size in the header: 4294967295"
        );
    }

    #[test]
    fn a_frame_grows_byte_by_byte() {
        let frame = [&[0xce, 0, 0, 0, 5][..], &PING].concat();
        for length in 0..frame.len() {
            let needed = match length {
                0 => 1,
                1..5 => 5 - length,
                _ => 10 - length,
            };
            assert_eq!(split(&frame[..length], 5), Ok(Split::NeedMore(needed)), "{length} bytes");
        }
        assert_eq!(split(&frame, 5), Ok(Split::Frame { content: &PING, consumed: 10 }));
        assert_eq!(split(&[0], 5), Ok(Split::Frame { content: &[], consumed: 1 }));
    }

    #[test]
    fn nobody_waits_for_the_rest_of_text() {
        assert_eq!(split(b"G", DEFAULT_LIMIT), Ok(Split::NeedMore(71)));
        assert_eq!(split(b"GE", DEFAULT_LIMIT), Err(FrameError::Header));
        assert_eq!(split(b"GET / HTTP/1.0\r\n\r\n", DEFAULT_LIMIT), Err(FrameError::Header));
        assert_eq!(split(b"\xce\x00GET / HTTP/1.0\r\n\r\n", DEFAULT_LIMIT), Err(FrameError::Header));
        assert_eq!(split(&[0x16, 0x03, 0x01, 0x02, 0x00], DEFAULT_LIMIT), Err(FrameError::Header));
        for first in [0x80, 0x8f, 0xde, 0xdf] {
            assert!(matches!(split(&[5, first], DEFAULT_LIMIT), Ok(Split::NeedMore(4))), "{first:x}");
        }
    }
}
