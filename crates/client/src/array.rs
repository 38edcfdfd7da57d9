//! Arguments, tuples and keys.

use lycosa_tuple::mp::{self, Kind, MpError, Reader};
use lycosa_tuple::value::Value;

/// A MessagePack array: the arguments of a call, a tuple, a key, a list of update operations.
///
/// Made from values, or from bytes that are one already.
///
/// ```
/// use lycosa_client::{Array, Value};
///
/// assert_eq!(Array::from([Value::from(1), Value::from("x")]).as_bytes(), [0x92, 0x01, 0xa1, b'x']);
/// assert_eq!(Array::from(()).as_bytes(), [0x90]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Array(Vec<u8>);

impl Array {
    /// Takes bytes that are one MessagePack array.
    ///
    /// # Errors
    /// If they are not.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, MpError> {
        let mut reader = Reader::new(&bytes);
        if reader.kind()? != Kind::Array {
            return Err(reader.mismatch("array"));
        }
        reader.skip()?;
        if reader.is_empty() { Ok(Self(bytes)) } else { Err(MpError::Trailing { at: reader.position() }) }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// An array of `count` elements that `write` appends.
    pub(crate) fn written(count: u32, write: impl FnOnce(&mut Vec<u8>)) -> Self {
        let mut out = Vec::new();
        mp::write_array(&mut out, count);
        write(&mut out);
        Self(out)
    }
}

/// No elements.
impl From<()> for Array {
    fn from((): ()) -> Self {
        Self(vec![0x90])
    }
}

impl From<&[Value]> for Array {
    fn from(values: &[Value]) -> Self {
        let count = u32::try_from(values.len()).expect("a MessagePack array has fewer than 2^32 elements");
        Self::written(count, |out| values.iter().for_each(|value| value.write(out)))
    }
}

impl<const N: usize> From<[Value; N]> for Array {
    fn from(values: [Value; N]) -> Self {
        Self::from(&values[..])
    }
}

impl From<Vec<Value>> for Array {
    fn from(values: Vec<Value>) -> Self {
        Self::from(&values[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_array_is_one() {
        assert_eq!(Array::from_bytes(vec![0x91, 0x05]), Ok(Array::from(vec![Value::Uint(5)])));
        for wrong in [&[][..], &[0x80], &[0x91], &[0x90, 0x90]] {
            assert!(Array::from_bytes(wrong.to_vec()).is_err(), "{wrong:?}");
        }
    }
}
