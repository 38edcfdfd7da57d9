//! Payloads of tasks.

use std::fmt;

use lycosa_tuple::mp::{self, MpError, Reader};
use lycosa_tuple::value::Value;

#[cfg(feature = "serde")]
use crate::error::Error;

/// What a task carries: one MessagePack value, kept as its bytes.
///
/// Text and bytes become MessagePack's string and binary; everything else goes through [`Value`] or comes as
/// MessagePack already. Lycosa gives back the very bytes that were put. Tarantool's queue turns binary into string and
/// `1.0` into `1`.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload(Vec<u8>);

impl Payload {
    /// Takes bytes that are one MessagePack value.
    ///
    /// # Errors
    /// If they are not.
    pub fn from_encoded(bytes: Vec<u8>) -> Result<Self, MpError> {
        mp::check_values(&bytes, 1)?;
        Ok(Self(bytes))
    }

    /// The same for bytes that have just been stepped over as one value.
    pub(crate) fn trusted(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }

    /// The payload that stands for a value of any type that serde knows. Structures become maps with the names of their
    /// fields, which every client can read.
    ///
    /// # Errors
    /// [`Error::Payload`]: the type cannot be serialized, a map with an unknown length for example.
    #[cfg(feature = "serde")]
    pub fn of<T: serde::Serialize + ?Sized>(value: &T) -> Result<Self, Error> {
        rmp_serde::to_vec_named(value).map(Self).map_err(|error| Error::Payload(error.to_string()))
    }

    /// The value as a type that serde knows.
    ///
    /// # Errors
    /// [`Error::Payload`]: the payload is not of that type, text instead of a map for example.
    #[cfg(feature = "serde")]
    pub fn to<T: serde::de::DeserializeOwned>(&self) -> Result<T, Error> {
        rmp_serde::from_slice(&self.0).map_err(|error| {
            let shown = self.value().map_or_else(|_| "the payload".to_owned(), |value| value.to_string());
            Error::Payload(format!("{shown} is not what was expected: {error}"))
        })
    }

    /// The value's MessagePack.
    pub fn encoded(&self) -> &[u8] {
        &self.0
    }

    /// The value.
    ///
    /// # Errors
    /// If it is nested too deeply to be held as a [`Value`].
    pub fn value(&self) -> Result<Value, MpError> {
        Value::decode(&self.0)
    }

    /// The bytes, if the value is a string or binary.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        Reader::new(&self.0).str_or_bin().ok()
    }

    /// The text, if the value is a string or binary of valid UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(self.as_bytes()?).ok()
    }
}

/// A MessagePack string.
impl From<&str> for Payload {
    fn from(text: &str) -> Self {
        let mut out = Vec::with_capacity(text.len() + 5);
        mp::write_str(&mut out, text.as_bytes());
        Self(out)
    }
}

/// A MessagePack string.
impl From<String> for Payload {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

/// MessagePack binary.
impl From<&[u8]> for Payload {
    fn from(bytes: &[u8]) -> Self {
        let mut out = Vec::with_capacity(bytes.len() + 5);
        mp::write_bin(&mut out, bytes);
        Self(out)
    }
}

/// MessagePack binary.
impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Self::from(bytes.as_slice())
    }
}

impl From<&Value> for Payload {
    fn from(value: &Value) -> Self {
        Self(value.encode())
    }
}

impl From<Value> for Payload {
    fn from(value: Value) -> Self {
        Self::from(&value)
    }
}

/// The value as [`Value`] shows it.
impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value() {
            Ok(value) => write!(f, "{value}"),
            Err(_) => write!(f, "<{} bytes of MessagePack>", self.0.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_bytes_and_values() {
        assert_eq!(Payload::from("x").encoded(), [0xa1, b'x']);
        assert_eq!(Payload::from(&b"x"[..]).encoded(), [0xc4, 1, b'x']);
        assert_eq!(Payload::from(vec![0xff]).as_str(), None);
        assert_eq!(Payload::from(String::from("é")).as_str(), Some("é"));
        let number = Payload::from(Value::from(5));
        assert_eq!((number.as_bytes(), number.value()), (None, Ok(Value::Uint(5))));
        assert_eq!(format!("{number:?}"), "5");
    }

    #[test]
    fn only_one_value_is_one() {
        assert!(Payload::from_encoded(vec![0x91, 0xc0]).is_ok());
        for wrong in [&[][..], &[0x91], &[0xc0, 0xc0]] {
            assert!(Payload::from_encoded(wrong.to_vec()).is_err());
        }
    }
}
