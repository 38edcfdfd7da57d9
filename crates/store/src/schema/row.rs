//! Reading rows of the system spaces, field by field.
//!
//! The formats of the system spaces are rows themselves and can be changed, so a row is not trusted to fit: a field of
//! another type is refused as the format would have refused it.

use lycosa_tuple::field::FieldType;
use lycosa_tuple::format::{FieldPath, FormatError};
use lycosa_tuple::mp::{Kind, Reader};
use lycosa_tuple::tuple::TupleRef;

use crate::error::Error;

/// Bytes that a name may have.
const NAME_MAX: usize = 65000;
/// Bytes of a name that is too long which its refusal shows.
const NAME_SHOWN: usize = 64;

/// A row of a system space.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row<'a>(TupleRef<'a>);

impl<'a> Row<'a> {
    pub(crate) fn new(tuple: &'a [u8]) -> Self {
        Self(TupleRef::trusted(tuple))
    }

    pub(crate) fn len(self) -> u32 {
        self.0.len()
    }

    /// The bytes of a field that must be there.
    pub(crate) fn raw(self, field: u32) -> Result<&'a [u8], Error> {
        self.0.field(field).ok_or_else(|| {
            FormatError::FieldMissing { field: FieldPath { field, tokens: Vec::new() } }.into()
        })
    }

    /// The types of all fields, as a Tarantool names them in a refusal.
    pub(crate) fn types(self) -> String {
        let name = |field: &[u8]| match field.first().map_or(Kind::Nil, |&first| Kind::of(first)) {
            Kind::Nil => "nil",
            Kind::Uint => "unsigned",
            Kind::Int => "integer",
            Kind::Str => "string",
            Kind::Bin => "varbinary",
            Kind::Array => "array",
            Kind::Map => "map",
            Kind::Bool => "boolean",
            Kind::Float => "float",
            Kind::Double => "double",
            Kind::Ext | Kind::Invalid => "extension",
        };
        self.0.fields().map(name).collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn mismatch(field: u32, expected: FieldType) -> Error {
        FormatError::FieldType { field: FieldPath { field, tokens: Vec::new() }, expected }.into()
    }

    pub(crate) fn uint(self, field: u32) -> Result<u64, Error> {
        Reader::new(self.raw(field)?).uint().map_err(|_| Self::mismatch(field, FieldType::Unsigned))
    }

    /// An id: an unsigned integer of 32 bits.
    pub(crate) fn id(self, field: u32) -> Result<u32, Error> {
        u32::try_from(self.uint(field)?).map_err(|_| Self::mismatch(field, FieldType::Unsigned))
    }

    pub(crate) fn int(self, field: u32) -> Result<i64, Error> {
        let value = Reader::new(self.raw(field)?).int();
        value
            .ok()
            .and_then(|value| i64::try_from(value).ok())
            .ok_or(Self::mismatch(field, FieldType::Integer))
    }

    pub(crate) fn bool(self, field: u32) -> Result<bool, Error> {
        Reader::new(self.raw(field)?).bool().map_err(|_| Self::mismatch(field, FieldType::Boolean))
    }

    pub(crate) fn bytes(self, field: u32) -> Result<&'a [u8], Error> {
        Reader::new(self.raw(field)?).str().map_err(|_| Self::mismatch(field, FieldType::String))
    }

    /// A string; bytes in it that are not UTF-8 are replaced, so names must be checked with [`Row::identifier`] first.
    pub(crate) fn text(self, field: u32) -> Result<String, Error> {
        Ok(String::from_utf8_lossy(self.bytes(field)?).into_owned())
    }

    /// A name of at most 65000 bytes; `too_long` makes the refusal of a longer one from its beginning.
    pub(crate) fn name(self, field: u32, too_long: impl FnOnce(String) -> Error) -> Result<String, Error> {
        let bytes = self.bytes(field)?;
        if bytes.len() > NAME_MAX {
            return Err(too_long(String::from_utf8_lossy(&bytes[..NAME_SHOWN]).into_owned()));
        }
        Self::identifier(bytes)
    }

    /// Checks what every name must be: not empty, valid UTF-8, without control characters and separators of lines.
    ///
    /// The refusal shows the name up to its first zero byte, as Tarantool does.
    pub(crate) fn identifier(bytes: &[u8]) -> Result<String, Error> {
        match std::str::from_utf8(bytes) {
            Ok(name) if !name.is_empty() && !name.contains(is_unprintable) => Ok(name.to_owned()),
            _ => {
                let shown = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
                Err(Error::Identifier(String::from_utf8_lossy(shown).into_owned()))
            }
        }
    }
}

/// Control characters, the separators of lines and paragraphs, and the replacement character.
fn is_unprintable(character: char) -> bool {
    character.is_control() || matches!(character, '\u{2028}' | '\u{2029}' | '\u{fffd}')
}

/// What an option in a map must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OptionType {
    Boolean,
    Unsigned,
    Integer,
    Number,
    String,
    /// A name out of a closed list, which the caller looks up.
    Enum,
    Array,
}

impl OptionType {
    fn name(self) -> &'static str {
        match self {
            Self::Boolean => "boolean",
            Self::Unsigned => "unsigned",
            Self::Integer => "integer",
            Self::Number => "float",
            Self::String => "string",
            Self::Enum => "enum",
            Self::Array => "array",
        }
    }

    fn accepts(self, value: &[u8]) -> bool {
        let mut reader = Reader::new(value);
        match self {
            Self::Boolean => reader.bool().is_ok(),
            Self::Unsigned => reader.uint().is_ok(),
            Self::Integer => reader.int().is_ok(),
            Self::Number => FieldType::Number.accepts(value),
            Self::String | Self::Enum => reader.str().is_ok(),
            Self::Array => reader.array().is_ok(),
        }
    }
}

/// The options of a map, checked against the known ones.
#[derive(Debug)]
pub(crate) struct Options<'a>(Vec<(&'a str, &'a [u8])>);

impl<'a> Options<'a> {
    /// Reads a map. `wrong` makes the refusal of an unknown option, unless `lenient`, and of one of a wrong type.
    pub(crate) fn read(
        map: &'a [u8],
        known: &[(&str, OptionType)],
        lenient: bool,
        wrong: impl Fn(String) -> Error,
    ) -> Result<Self, Error> {
        let mut reader = Reader::new(map);
        let malformed = || wrong("expected a map with options".to_owned());
        let count = reader.map().map_err(|_| malformed())?;
        let mut options = Vec::new();
        for _ in 0..count {
            let key = reader.str().map_err(|_| wrong("key must be a string".to_owned()))?;
            let value = reader.raw().map_err(|_| malformed())?;
            let found = known.iter().find(|(name, _)| name.as_bytes() == key);
            match (found, std::str::from_utf8(key)) {
                (Some((name, kind)), Ok(key)) => {
                    if !kind.accepts(value) {
                        return Err(wrong(format!("'{name}' must be {}", kind.name())));
                    }
                    options.push((key, value));
                }
                _ if lenient => {}
                _ => return Err(wrong(format!("unexpected option '{}'", String::from_utf8_lossy(key)))),
            }
        }
        Ok(Self(options))
    }

    /// The value of an option; of one given twice the last.
    pub(crate) fn raw(&self, name: &str) -> Option<&'a [u8]> {
        self.0.iter().rev().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }

    pub(crate) fn bool(&self, name: &str) -> Option<bool> {
        Reader::new(self.raw(name)?).bool().ok()
    }

    pub(crate) fn uint(&self, name: &str) -> Option<u64> {
        Reader::new(self.raw(name)?).uint().ok()
    }

    pub(crate) fn int(&self, name: &str) -> Option<i128> {
        Reader::new(self.raw(name)?).int().ok()
    }

    pub(crate) fn bytes(&self, name: &str) -> Option<&'a [u8]> {
        Reader::new(self.raw(name)?).str().ok()
    }

    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.bytes(name).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// The value of a numeric option as a float.
    pub(crate) fn float(&self, name: &str) -> Option<f64> {
        let mut reader = Reader::new(self.raw(name)?);
        let mut float = reader;
        if let Ok(value) = float.double() {
            return Some(value);
        }
        let mut single = reader;
        if let Ok(value) = single.float() {
            return Some(f64::from(value));
        }
        reader.int().ok().map(|value| value as f64)
    }
}
