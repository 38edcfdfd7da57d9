//! An owned MessagePack value, for cold paths and tests. Hot paths work on bytes with [`crate::mp`].
//!
//! Decoding and encoding keep what a value means, not its form: integers come back in their shortest form. A map
//! keeps the order of its pairs and its duplicate keys.

use std::fmt;

use crate::mp::{self, Kind, MpError, Reader};

/// How many arrays and maps may be nested in a [`Value`]. Deeper bytes are an error of [`Value::decode`] only: tuples
/// themselves may be deeper.
pub const DEPTH_LIMIT: u32 = 256;

/// One MessagePack value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Nil.
    Nil,
    /// A boolean.
    Bool(bool),
    /// An integer ≥ 0.
    Uint(u64),
    /// An integer < 0. (A number ≥ 0 here is encoded like [`Value::Uint`].)
    Int(i64),
    /// A 32-bit float.
    Float(f32),
    /// A 64-bit float.
    Double(f64),
    /// A string; any bytes.
    Str(Vec<u8>),
    /// A binary value.
    Bin(Vec<u8>),
    /// An array.
    Array(Vec<Value>),
    /// A map, in the order of its bytes.
    Map(Vec<(Value, Value)>),
    /// An extension: type and bytes.
    Ext(i8, Vec<u8>),
}

impl Value {
    /// A string.
    pub fn str(text: impl AsRef<[u8]>) -> Self {
        Self::Str(text.as_ref().to_vec())
    }

    /// A binary value.
    pub fn bin(bytes: impl AsRef<[u8]>) -> Self {
        Self::Bin(bytes.as_ref().to_vec())
    }

    /// An array of anything that becomes a value.
    pub fn array<T: Into<Value>>(values: impl IntoIterator<Item = T>) -> Self {
        Self::Array(values.into_iter().map(Into::into).collect())
    }

    /// A map of anything that becomes values.
    pub fn map<K: Into<Value>, V: Into<Value>>(pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        Self::Map(pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }

    /// Decodes bytes that hold exactly one value.
    ///
    /// # Errors
    /// Truncated bytes, bytes that follow, the unused byte `c1`, more than [`DEPTH_LIMIT`] levels.
    pub fn decode(bytes: &[u8]) -> Result<Self, MpError> {
        let mut reader = Reader::new(bytes);
        let value = Self::read(&mut reader)?;
        if reader.is_empty() { Ok(value) } else { Err(MpError::Trailing { at: reader.position() }) }
    }

    /// Decodes the next value of `reader`.
    ///
    /// # Errors
    /// As [`Self::decode`], but what follows is left in `reader`.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, MpError> {
        let mut cursor = *reader;
        let value = Self::read_nested(&mut cursor, DEPTH_LIMIT)?;
        *reader = cursor;
        Ok(value)
    }

    fn read_nested(reader: &mut Reader<'_>, levels: u32) -> Result<Self, MpError> {
        let below = || levels.checked_sub(1).ok_or(MpError::Depth { limit: DEPTH_LIMIT });
        Ok(match reader.kind()? {
            Kind::Nil => {
                reader.nil()?;
                Self::Nil
            }
            Kind::Bool => Self::Bool(reader.bool()?),
            Kind::Uint | Kind::Int => {
                let number = reader.int()?;
                match u64::try_from(number) {
                    Ok(unsigned) => Self::Uint(unsigned),
                    Err(_) => {
                        Self::Int(i64::try_from(number).expect("a negative MessagePack integer is ≥ −2^63"))
                    }
                }
            }
            Kind::Float => Self::Float(reader.float()?),
            Kind::Double => Self::Double(reader.double()?),
            Kind::Str => Self::Str(reader.str()?.to_vec()),
            Kind::Bin => Self::Bin(reader.bin()?.to_vec()),
            Kind::Array => {
                let levels = below()?;
                let count = reader.array()?;
                let mut values = Vec::new();
                for _ in 0..count {
                    values.push(Self::read_nested(reader, levels)?);
                }
                Self::Array(values)
            }
            Kind::Map => {
                let levels = below()?;
                let count = reader.map()?;
                let mut pairs = Vec::new();
                for _ in 0..count {
                    let key = Self::read_nested(reader, levels)?;
                    pairs.push((key, Self::read_nested(reader, levels)?));
                }
                Self::Map(pairs)
            }
            Kind::Ext => {
                let (kind, bytes) = reader.ext()?;
                Self::Ext(kind, bytes.to_vec())
            }
            Kind::Invalid => return Err(reader.mismatch("value")),
        })
    }

    /// The value's bytes, in the shortest forms.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }

    /// Appends the value's bytes, in the shortest forms.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Nil => mp::write_nil(out),
            Self::Bool(value) => mp::write_bool(out, *value),
            Self::Uint(value) => mp::write_uint(out, *value),
            Self::Int(value) => mp::write_int(out, *value),
            Self::Float(value) => mp::write_float(out, *value),
            Self::Double(value) => mp::write_double(out, *value),
            Self::Str(bytes) => mp::write_str(out, bytes),
            Self::Bin(bytes) => mp::write_bin(out, bytes),
            Self::Array(values) => {
                mp::write_array(out, count_of(values.len()));
                values.iter().for_each(|value| value.write(out));
            }
            Self::Map(pairs) => {
                mp::write_map(out, count_of(pairs.len()));
                for (key, value) in pairs {
                    key.write(out);
                    value.write(out);
                }
            }
            Self::Ext(kind, bytes) => mp::write_ext(out, *kind, bytes),
        }
    }

    /// The number, if this is an integer ≥ 0.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Self::Uint(value) => Some(*value),
            Self::Int(value) => u64::try_from(*value).ok(),
            _ => None,
        }
    }

    /// The number, if this is an integer that fits.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Uint(value) => i64::try_from(*value).ok(),
            Self::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// The boolean, if this is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The bytes, if this is a string.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Str(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The text, if this is a string of valid UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        self.as_bytes().and_then(|bytes| std::str::from_utf8(bytes).ok())
    }

    /// The values, if this is an array.
    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Self::Array(values) => Some(values),
            _ => None,
        }
    }

    /// The value of the first pair whose key is the string `key`, if this is a map that has it.
    pub fn get(&self, key: &str) -> Option<&Value> {
        match self {
            Self::Map(pairs) => {
                pairs.iter().find(|(name, _)| name.as_bytes() == Some(key.as_bytes())).map(|(_, value)| value)
            }
            _ => None,
        }
    }
}

fn count_of(length: usize) -> u32 {
    u32::try_from(length).expect("a MessagePack array or map has fewer than 2^32 entries")
}

macro_rules! from_number {
    ($($number:ty => |$value:ident| $make:expr),* $(,)?) => {
        $(impl From<$number> for Value {
            fn from($value: $number) -> Self {
                $make
            }
        })*
    };
}

from_number! {
    u8 => |value| Self::Uint(u64::from(value)),
    u16 => |value| Self::Uint(u64::from(value)),
    u32 => |value| Self::Uint(u64::from(value)),
    u64 => |value| Self::Uint(value),
    i8 => |value| Self::from(i64::from(value)),
    i16 => |value| Self::from(i64::from(value)),
    i32 => |value| Self::from(i64::from(value)),
    i64 => |value| u64::try_from(value).map_or(Self::Int(value), Self::Uint),
    f32 => |value| Self::Float(value),
    f64 => |value| Self::Double(value),
    bool => |value| Self::Bool(value),
    () => |_value| Self::Nil,
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::str(text)
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Str(text.into_bytes())
    }
}

impl From<Vec<Value>> for Value {
    fn from(values: Vec<Value>) -> Self {
        Self::Array(values)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Nil, Into::into)
    }
}

/// JSON-like text: strings quoted (bytes that are not UTF-8 as `\xNN`), binary values as `bin"…"` in hexadecimal,
/// UUIDs as they are usually written, other extensions as `ext(type)"…"`, and doubles always with a point or an exponent.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Uint(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value:?}"),
            Self::Double(value) => write!(f, "{value:?}"),
            Self::Str(bytes) => write_quoted(f, bytes),
            Self::Bin(bytes) => write_hexadecimal(f, "bin", bytes),
            Self::Array(values) => {
                f.write_str("[")?;
                for (position, value) in values.iter().enumerate() {
                    f.write_str(if position == 0 { "" } else { ", " })?;
                    write!(f, "{value}")?;
                }
                f.write_str("]")
            }
            Self::Map(pairs) => {
                f.write_str("{")?;
                for (position, (key, value)) in pairs.iter().enumerate() {
                    f.write_str(if position == 0 { "" } else { ", " })?;
                    write!(f, "{key}: {value}")?;
                }
                f.write_str("}")
            }
            Self::Ext(mp::EXT_UUID, bytes) if bytes.len() == 16 => {
                for (position, byte) in bytes.iter().enumerate() {
                    f.write_str(if matches!(position, 4 | 6 | 8 | 10) { "-" } else { "" })?;
                    write!(f, "{byte:02x}")?;
                }
                Ok(())
            }
            Self::Ext(kind, bytes) => write_hexadecimal(f, &format!("ext({kind})"), bytes),
        }
    }
}

fn write_quoted(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    f.write_str("\"")?;
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                control if control.is_control() => write!(f, "\\u{:04x}", u32::from(control))?,
                other => write!(f, "{other}")?,
            }
        }
        for byte in chunk.invalid() {
            write!(f, "\\x{byte:02x}")?;
        }
    }
    f.write_str("\"")
}

fn write_hexadecimal(f: &mut fmt::Formatter<'_>, name: &str, bytes: &[u8]) -> fmt::Result {
    write!(f, "{name}\"")?;
    for byte in bytes {
        write!(f, "{byte:02x}")?;
    }
    f.write_str("\"")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::samples;

    #[test]
    fn text() {
        let value = Value::Map(vec![
            (Value::str("a\n\"b\""), Value::array([1, -2])),
            (Value::Uint(7), Value::Nil),
            (Value::Str(vec![b'x', 0xff]), Value::bin([0xde, 0xad])),
        ]);
        assert_eq!(value.to_string(), r#"{"a\n\"b\"": [1, -2], 7: null, "x\xff": bin"dead"}"#);
        assert_eq!(Value::array([1.0, 0.5, 1e300]).to_string(), "[1.0, 0.5, 1e300]");
        assert_eq!(Value::Ext(5, vec![1]).to_string(), r#"ext(5)"01""#);
        let uuid: Vec<u8> = (0..16).collect();
        assert_eq!(Value::Ext(mp::EXT_UUID, uuid).to_string(), "00010203-0405-0607-0809-0a0b0c0d0e0f");
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |levels: u32| {
            let mut bytes = vec![0x91; levels as usize];
            bytes.push(0xc0);
            Value::decode(&bytes)
        };
        assert!(nested(DEPTH_LIMIT).is_ok());
        assert_eq!(nested(DEPTH_LIMIT + 1), Err(MpError::Depth { limit: DEPTH_LIMIT }));
        assert_eq!(nested(1_000_000), Err(MpError::Depth { limit: DEPTH_LIMIT }));
    }

    #[test]
    fn malformed_bytes_are_refused() {
        assert_eq!(Value::decode(&[]), Err(MpError::Truncated));
        assert_eq!(Value::decode(&[0x01, 0x02]), Err(MpError::Trailing { at: 1 }));
        assert_eq!(Value::decode(&[0x91, 0xc1]), Err(MpError::Type { expected: "value", at: 1 }));
        assert_eq!(Value::decode(&[0xdd, 255, 255, 255, 255]), Err(MpError::Truncated));
    }

    #[test]
    fn signed_forms_of_positive_numbers_are_unsigned_values() {
        assert_eq!(Value::decode(&[0xd0, 0x05]), Ok(Value::Uint(5)));
        assert_eq!(Value::from(5_i64), Value::Uint(5));
        assert_eq!(Value::from(-5_i8), Value::Int(-5));
    }

    #[test]
    fn lookups() {
        let value = Value::map([("a", 1), ("b", 2), ("a", 3)]);
        assert_eq!(value.get("a").and_then(Value::as_u64), Some(1));
        assert_eq!(value.get("c"), None);
        assert_eq!(Value::Int(-1).as_i64(), Some(-1));
        assert_eq!(Value::Int(-1).as_u64(), None);
        assert_eq!(Value::Uint(u64::MAX).as_i64(), None);
        assert_eq!(Value::str("x").as_str(), Some("x"));
        assert_eq!(Value::Str(vec![0xff]).as_str(), None);
        assert_eq!(Value::from(None::<u64>), Value::Nil);
    }

    proptest! {
        #[test]
        fn decode_is_the_inverse_of_encode(value in samples::values()) {
            let bytes = value.encode();
            let decoded = Value::decode(&bytes).unwrap();
            // Through bytes and text: a NaN is not equal to itself.
            prop_assert_eq!(decoded.encode(), bytes);
            prop_assert_eq!(decoded.to_string(), value.to_string());
        }
    }
}
