//! A tuple: one MessagePack array, borrowed.
//!
//! A tuple carries no offsets of its fields: reaching field `n` steps over the `n` fields before it. Key definitions
//! ([`crate::key`]) therefore walk a tuple once for all their parts.

use crate::mp::{MpError, Reader};

/// The bytes of one MessagePack array. Equality is that of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TupleRef<'a> {
    bytes: &'a [u8],
}

impl<'a> TupleRef<'a> {
    /// Checks that `bytes` are exactly one array, all of it.
    ///
    /// # Errors
    /// [`MpError::Type`] if the value is not an array, [`MpError::Truncated`], [`MpError::Trailing`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, MpError> {
        let mut reader = Reader::new(bytes);
        let mut header = reader;
        header.array()?;
        reader.skip()?;
        if reader.is_empty() { Ok(Self { bytes }) } else { Err(MpError::Trailing { at: reader.position() }) }
    }

    /// Takes bytes that [`Self::new`] has accepted before: contents of the store. Other bytes do no harm beyond
    /// fields that seem to be missing.
    #[inline]
    pub const fn trusted(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// All of the tuple, with the array's header.
    #[inline]
    pub const fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// The fields' bytes back to back, without the array's header.
    #[inline]
    pub fn body(self) -> &'a [u8] {
        let mut reader = Reader::new(self.bytes);
        match reader.array() {
            Ok(_) => reader.rest(),
            Err(_) => &[],
        }
    }

    /// Number of fields.
    #[inline]
    pub fn len(self) -> u32 {
        Reader::new(self.bytes).array().unwrap_or(0)
    }

    /// Whether the tuple has no fields.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The bytes of field `number`, counted from 0. Costs a step over each field before it.
    #[inline]
    pub fn field(self, number: u32) -> Option<&'a [u8]> {
        self.at(number)?.raw().ok()
    }

    /// A reader before field `number`, for callers that need no slice of it.
    #[inline]
    pub fn at(self, number: u32) -> Option<Reader<'a>> {
        let mut reader = Reader::new(self.bytes);
        if number >= reader.array().ok()? {
            return None;
        }
        for _ in 0..number {
            reader.skip().ok()?;
        }
        Some(reader)
    }

    /// The fields' bytes, in order.
    #[inline]
    pub fn fields(self) -> Fields<'a> {
        let mut reader = Reader::new(self.bytes);
        let left = reader.array().unwrap_or(0);
        Fields { reader, left }
    }
}

/// The fields of a tuple, in order. See [`TupleRef::fields`].
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    reader: Reader<'a>,
    left: u32,
}

impl<'a> Iterator for Fields<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        self.reader.raw().ok()
    }

    /// At most as many as the header says; the bytes behind it may be fewer.
    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.left as usize))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::samples;
    use crate::value::Value;

    #[test]
    fn exactly_one_array() {
        assert!(TupleRef::new(&[0x90]).is_ok_and(TupleRef::is_empty));
        assert_eq!(TupleRef::new(&[]), Err(MpError::Truncated));
        assert_eq!(TupleRef::new(&[0x92, 0x01]), Err(MpError::Truncated));
        assert_eq!(TupleRef::new(&[0x91, 0x01, 0x02]), Err(MpError::Trailing { at: 2 }));
        assert_eq!(TupleRef::new(&[0x80]), Err(MpError::Type { expected: "array", at: 0 }));
    }

    #[test]
    fn broken_bytes_have_no_fields() {
        for bytes in [&[][..], &[0xc0], &[0xdd, 255, 255, 255, 255], &[0x93, 0xdb, 255, 255, 255, 255]] {
            let tuple = TupleRef::trusted(bytes);
            assert_eq!(tuple.fields().count(), 0);
            assert_eq!(tuple.field(0), None);
            assert_eq!(tuple.field(u32::MAX), None);
        }
    }

    proptest! {
        #[test]
        fn fields_are_the_values(values in prop::collection::vec(samples::values(), 0..6)) {
            let bytes = Value::Array(values.clone()).encode();
            let tuple = TupleRef::new(&bytes).unwrap();
            let encoded: Vec<Vec<u8>> = values.iter().map(Value::encode).collect();
            prop_assert_eq!(tuple.len() as usize, values.len());
            prop_assert_eq!(tuple.fields().collect::<Vec<_>>(), encoded.clone());
            prop_assert_eq!(tuple.body(), encoded.concat());
            for (number, field) in (0..).zip(&encoded) {
                prop_assert_eq!(tuple.field(number), Some(&field[..]));
            }
            prop_assert_eq!(tuple.field(tuple.len()), None);
        }
    }
}
