//! Writers of MessagePack: each appends to a vector, in the shortest form unless its name says otherwise.

/// Appends nil.
#[inline]
pub fn write_nil(out: &mut Vec<u8>) {
    out.push(0xc0);
}

/// Appends a boolean.
#[inline]
pub fn write_bool(out: &mut Vec<u8>, value: bool) {
    out.push(if value { 0xc3 } else { 0xc2 });
}

/// Appends an unsigned integer in its shortest form.
#[inline]
pub fn write_uint(out: &mut Vec<u8>, value: u64) {
    if value < 0x80 {
        out.push(value as u8);
    } else if let Ok(byte) = u8::try_from(value) {
        out.extend_from_slice(&[0xcc, byte]);
    } else if let Ok(word) = u16::try_from(value) {
        put(out, 0xcd, word.to_be_bytes());
    } else if let Ok(word) = u32::try_from(value) {
        put(out, 0xce, word.to_be_bytes());
    } else {
        put(out, 0xcf, value.to_be_bytes());
    }
}

/// The most bytes of an unsigned integer.
pub const MAX_UINT: usize = 9;

/// How many bytes an unsigned integer takes whose first byte is this one.
#[inline]
pub const fn uint_width(first: u8) -> Option<usize> {
    match first {
        0..=0x7f => Some(1),
        0xcc => Some(2),
        0xcd => Some(3),
        0xce => Some(5),
        0xcf => Some(MAX_UINT),
        _ => None,
    }
}

/// What follows the first field of a tuple of two to 15 fields, if that field is an unsigned integer. Nothing is said about other tuples.
#[inline]
pub fn behind_number(tuple: &[u8]) -> Option<&[u8]> {
    let &[0x92..=0x9f, ref fields @ ..] = tuple else { return None };
    fields.get(uint_width(*fields.first()?)?..)
}

/// An unsigned integer in its shortest form, which is as many of the bytes as the length says.
#[inline]
pub fn uint_bytes(value: u64) -> ([u8; MAX_UINT], usize) {
    let mut bytes = [value as u8; MAX_UINT];
    if value < 0x80 {
        return (bytes, 1);
    }
    let (first, width) = match value {
        0..=0xff => (0xcc, 1),
        0x100..=0xffff => (0xcd, 2),
        0x1_0000..=0xffff_ffff => (0xce, 4),
        _ => (0xcf, 8),
    };
    bytes[0] = first;
    overwrite(&mut bytes, 1, (value << (64 - 8 * width)).to_be_bytes());
    (bytes, 1 + width)
}

/// Appends an integer in its shortest form; one that is not negative gets an unsigned form.
#[inline]
pub fn write_int(out: &mut Vec<u8>, value: i64) {
    if let Ok(unsigned) = u64::try_from(value) {
        write_uint(out, unsigned);
    } else if value >= -32 {
        out.push(value as u8);
    } else if let Ok(byte) = i8::try_from(value) {
        put(out, 0xd0, byte.to_be_bytes());
    } else if let Ok(word) = i16::try_from(value) {
        put(out, 0xd1, word.to_be_bytes());
    } else if let Ok(word) = i32::try_from(value) {
        put(out, 0xd2, word.to_be_bytes());
    } else {
        put(out, 0xd3, value.to_be_bytes());
    }
}

/// Appends a 32-bit float.
#[inline]
pub fn write_float(out: &mut Vec<u8>, value: f32) {
    put(out, 0xca, value.to_bits().to_be_bytes());
}

/// Appends a 64-bit float.
#[inline]
pub fn write_double(out: &mut Vec<u8>, value: f64) {
    put(out, 0xcb, value.to_bits().to_be_bytes());
}

/// Appends a string. MessagePack ends at 2^32−1 bytes.
#[inline]
pub fn write_str(out: &mut Vec<u8>, bytes: &[u8]) {
    match bytes.len() {
        length @ 0..=31 => out.push(0xa0 | length as u8),
        length @ 32..=0xff => out.extend_from_slice(&[0xd9, length as u8]),
        length @ 0x100..=0xffff => put(out, 0xda, (length as u16).to_be_bytes()),
        length => put(out, 0xdb, wide_length(length).to_be_bytes()),
    }
    out.extend_from_slice(bytes);
}

/// Appends a binary value. MessagePack ends at 2^32−1 bytes.
#[inline]
pub fn write_bin(out: &mut Vec<u8>, bytes: &[u8]) {
    match bytes.len() {
        length @ 0..=0xff => out.extend_from_slice(&[0xc4, length as u8]),
        length @ 0x100..=0xffff => put(out, 0xc5, (length as u16).to_be_bytes()),
        length => put(out, 0xc6, wide_length(length).to_be_bytes()),
    }
    out.extend_from_slice(bytes);
}

/// Appends an array's header; `count` values have to follow.
#[inline]
pub fn write_array(out: &mut Vec<u8>, count: u32) {
    match count {
        0..=15 => out.push(0x90 | count as u8),
        16..=0xffff => put(out, 0xdc, (count as u16).to_be_bytes()),
        _ => put(out, 0xdd, count.to_be_bytes()),
    }
}

/// Appends a map's header; `count` pairs have to follow.
#[inline]
pub fn write_map(out: &mut Vec<u8>, count: u32) {
    match count {
        0..=15 => out.push(0x80 | count as u8),
        16..=0xffff => put(out, 0xde, (count as u16).to_be_bytes()),
        _ => put(out, 0xdf, count.to_be_bytes()),
    }
}

/// Appends an extension of type `kind`. MessagePack ends at 2^32−1 bytes.
pub fn write_ext(out: &mut Vec<u8>, kind: i8, bytes: &[u8]) {
    match bytes.len() {
        1 => out.push(0xd4),
        2 => out.push(0xd5),
        4 => out.push(0xd6),
        8 => out.push(0xd7),
        16 => out.push(0xd8),
        length @ 0..=0xff => out.extend_from_slice(&[0xc7, length as u8]),
        length @ 0x100..=0xffff => put(out, 0xc8, (length as u16).to_be_bytes()),
        length => put(out, 0xc9, wide_length(length).to_be_bytes()),
    }
    out.push(kind.cast_unsigned());
    out.extend_from_slice(bytes);
}

/// Appends an unsigned integer of any size as `ce` and four bytes.
#[inline]
pub fn write_u32_wide(out: &mut Vec<u8>, value: u32) {
    put(out, 0xce, value.to_be_bytes());
}

/// Appends an unsigned integer of any size as `cf` and eight bytes.
#[inline]
pub fn write_u64_wide(out: &mut Vec<u8>, value: u64) {
    put(out, 0xcf, value.to_be_bytes());
}

/// Appends an array's header for any count as `dd` and four bytes.
#[inline]
pub fn write_array_wide(out: &mut Vec<u8>, count: u32) {
    put(out, 0xdd, count.to_be_bytes());
}

#[inline]
fn put<const N: usize>(out: &mut Vec<u8>, first: u8, bytes: [u8; N]) {
    const LONGEST: usize = 1 + size_of::<u64>();
    let mut whole = [first; LONGEST];
    overwrite(&mut whole, 1, bytes);
    out.extend_from_slice(&whole[..=N]);
}

/// Writes `bytes` over those from `at` on. The length is known to the compiler, so this is a store; `copy_from_slice` on a
/// part of a slice is two calls.
///
/// # Panics
/// `out` ends before them.
#[inline]
pub fn overwrite<const N: usize>(out: &mut [u8], at: usize, bytes: [u8; N]) {
    *out[at..].first_chunk_mut().expect("the caller has made room") = bytes;
}

fn wide_length(length: usize) -> u32 {
    u32::try_from(length).expect("a MessagePack value is shorter than 4 GiB")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mp::{Reader, value_len};

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out);
        out
    }

    #[test]
    fn integers_take_their_shortest_form() {
        let unsigned: [(u64, &[u8]); 9] = [
            (0, &[0x00]),
            (127, &[0x7f]),
            (128, &[0xcc, 0x80]),
            (255, &[0xcc, 0xff]),
            (256, &[0xcd, 0x01, 0x00]),
            (65_535, &[0xcd, 0xff, 0xff]),
            (65_536, &[0xce, 0x00, 0x01, 0x00, 0x00]),
            (1 << 32, &[0xcf, 0, 0, 0, 1, 0, 0, 0, 0]),
            (u64::MAX, &[0xcf, 255, 255, 255, 255, 255, 255, 255, 255]),
        ];
        for (value, bytes) in unsigned {
            assert_eq!(written(|out| write_uint(out, value)), bytes);
            let (short, length) = uint_bytes(value);
            assert_eq!(&short[..length], bytes);
            assert_eq!(Reader::new(bytes).uint(), Ok(value));
        }
        let signed: [(i64, &[u8]); 9] = [
            (5, &[0x05]),
            (-1, &[0xff]),
            (-32, &[0xe0]),
            (-33, &[0xd0, 0xdf]),
            (-128, &[0xd0, 0x80]),
            (-129, &[0xd1, 0xff, 0x7f]),
            (-32_769, &[0xd2, 0xff, 0xff, 0x7f, 0xff]),
            (i64::from(i32::MIN) - 1, &[0xd3, 255, 255, 255, 255, 0x7f, 255, 255, 255]),
            (i64::MIN, &[0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0]),
        ];
        for (value, bytes) in signed {
            assert_eq!(written(|out| write_int(out, value)), bytes);
            assert_eq!(Reader::new(bytes).int(), Ok(i128::from(value)));
        }
    }

    #[test]
    fn lengths_take_their_shortest_form() {
        for (length, head) in [(0, 1), (31, 1), (32, 2), (255, 2), (256, 3), (65_535, 3), (65_536, 5)] {
            let bytes = vec![b'x'; length];
            let string = written(|out| write_str(out, &bytes));
            assert_eq!(string.len(), head + length);
            assert_eq!(Reader::new(&string).str(), Ok(&bytes[..]));
            assert_eq!(value_len(&string), Ok(string.len()));
        }
        for (length, head) in [(0, 2), (255, 2), (256, 3), (65_535, 3), (65_536, 5)] {
            let bytes = vec![b'x'; length];
            let binary = written(|out| write_bin(out, &bytes));
            assert_eq!(binary.len(), head + length);
            assert_eq!(Reader::new(&binary).bin(), Ok(&bytes[..]));
            assert_eq!(Reader::new(&binary).str_or_bin(), Ok(&bytes[..]));
        }
        for (length, head) in
            [(0, 3), (1, 2), (2, 2), (3, 3), (4, 2), (8, 2), (16, 2), (17, 3), (256, 4), (65_536, 6)]
        {
            let bytes = vec![7; length];
            let extension = written(|out| write_ext(out, -3, &bytes));
            assert_eq!(extension.len(), head + length, "{length}");
            assert_eq!(Reader::new(&extension).ext(), Ok((-3, &bytes[..])));
            assert_eq!(value_len(&extension), Ok(extension.len()));
        }
        for (count, head) in [(0, 1), (15, 1), (16, 3), (65_535, 3), (65_536, 5)] {
            let array = written(|out| write_array(out, count));
            let map = written(|out| write_map(out, count));
            assert_eq!((array.len(), map.len()), (head, head));
            assert_eq!(Reader::new(&array).array(), Ok(count));
            assert_eq!(Reader::new(&map).map(), Ok(count));
        }
    }

    #[test]
    fn wide_forms_are_wide() {
        assert_eq!(written(|out| write_u32_wide(out, 5)), [0xce, 0, 0, 0, 5]);
        assert_eq!(written(|out| write_u64_wide(out, 5)), [0xcf, 0, 0, 0, 0, 0, 0, 0, 5]);
        assert_eq!(written(|out| write_array_wide(out, 5)), [0xdd, 0, 0, 0, 5]);
    }
}
