//! MessagePack as Tarantool accepts it: a checked cursor over bytes, and writers of the shortest forms.
//!
//! Nothing here allocates or panics on any input, and nothing recurses: [`Reader::skip`] walks values of any
//! depth with a counter. Invariants:
//!
//! - a failed call leaves the cursor where it was;
//! - a slice that a call returns lies inside the input;
//! - strings are bytes: UTF-8 is never required, because queue sessions are 16 raw bytes in an `MP_STR`.
//!
//! The unused byte `c1` is skipped as a value of one byte and has the kind [`Kind::Invalid`]: Tarantool stores it
//! unchecked in fields without a type.
//!
//! Absent: timestamps and other extensions are opaque here (see [`crate::decimal`] for extension 1), and no reader
//! copies into owned values (see [`crate::value`]).

mod reader;
mod writer;

pub use reader::{Reader, check_values, short_length, value_len};
pub use writer::{
    MAX_UINT, behind_number, overwrite, uint_bytes, uint_width, write_array, write_array_wide, write_bin,
    write_bool, write_double, write_ext, write_float, write_int, write_map, write_nil, write_str,
    write_u32_wide, write_u64_wide, write_uint,
};

/// Extension type of a decimal.
pub const EXT_DECIMAL: i8 = 1;
/// Extension type of a UUID: 16 bytes, big-endian.
pub const EXT_UUID: i8 = 2;
/// Extension type of an error object.
pub const EXT_ERROR: i8 = 3;

/// What a value is, as its first byte says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `c0`.
    Nil,
    /// `c2`, `c3`.
    Bool,
    /// `00..7f`, `cc..cf`.
    Uint,
    /// `d0..d3`, `e0..ff`: a signed form; the number itself may be positive.
    Int,
    /// `ca`.
    Float,
    /// `cb`.
    Double,
    /// `a0..bf`, `d9..db`.
    Str,
    /// `c4..c6`.
    Bin,
    /// `90..9f`, `dc`, `dd`.
    Array,
    /// `80..8f`, `de`, `df`.
    Map,
    /// `d4..d8`, `c7..c9`.
    Ext,
    /// `c1`, which MessagePack never uses.
    Invalid,
}

impl Kind {
    /// The kind of a value that begins with `first`.
    #[inline]
    pub const fn of(first: u8) -> Self {
        KINDS[first as usize]
    }

    const fn classify(first: u8) -> Self {
        match first {
            0x00..=0x7f | 0xcc..=0xcf => Self::Uint,
            0x80..=0x8f | 0xde | 0xdf => Self::Map,
            0x90..=0x9f | 0xdc | 0xdd => Self::Array,
            0xa0..=0xbf | 0xd9..=0xdb => Self::Str,
            0xc0 => Self::Nil,
            0xc1 => Self::Invalid,
            0xc2 | 0xc3 => Self::Bool,
            0xc4..=0xc6 => Self::Bin,
            0xc7..=0xc9 | 0xd4..=0xd8 => Self::Ext,
            0xca => Self::Float,
            0xcb => Self::Double,
            0xd0..=0xd3 | 0xe0..=0xff => Self::Int,
        }
    }
}

static KINDS: [Kind; 256] = {
    let mut table = [Kind::Invalid; 256];
    let mut first = 0_usize;
    while first < 256 {
        table[first] = Kind::classify(first as u8);
        first += 1;
    }
    table
};

/// Why bytes could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MpError {
    /// The value goes on behind the end of the input.
    #[error("MessagePack value is truncated")]
    Truncated,
    /// Another kind of value stands there.
    #[error("expected {expected} at byte {at}")]
    Type {
        /// What the caller asked for.
        expected: &'static str,
        /// Offset of the value's first byte.
        at: usize,
    },
    /// Something follows what should have been the only value.
    #[error("unexpected bytes after the MessagePack value at byte {at}")]
    Trailing {
        /// Offset of the first byte that is too much.
        at: usize,
    },
    /// Arrays and maps are nested deeper than the decoder follows.
    #[error("MessagePack value is nested deeper than {limit} levels")]
    Depth {
        /// The greatest depth that is accepted.
        limit: u32,
    },
}
