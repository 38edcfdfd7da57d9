//! The arguments of a call: positional arguments and option tables, as slices of the request.
//!
//! This module copies nothing and checks types alone. The errors are the texts that Lua raises when the module
//! indexes or compares its arguments. Arguments that a method does not know are ignored.

use lycosa_store::Error as StoreError;
use lycosa_tuple::decimal::Decimal;
use lycosa_tuple::mp::{EXT_DECIMAL, Kind, Reader};

use crate::error::{Error, Result};
use crate::lua_text;
use crate::time::Seconds;

/// No method looks at more arguments.
const ARGUMENT_LIMIT: usize = 3;

/// The first arguments of a call.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Arguments<'a> {
    values: [Option<&'a [u8]>; ARGUMENT_LIMIT],
}

impl<'a> Arguments<'a> {
    /// Splits a MessagePack array.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self> {
        let malformed = |_| Error::Store(StoreError::InvalidMsgpack("packet body".into()));
        let mut reader = Reader::new(bytes);
        let count = reader.array().map_err(malformed)?;
        let mut arguments = Self::default();
        for (left, value) in (0..count).rev().zip(&mut arguments.values) {
            // A call's arguments were checked to be a whole array. The last one may be long.
            let is_last = left == 0;
            debug_assert!(
                !is_last || reader.clone().raw() == Ok(reader.rest()),
                "the last argument is a whole value"
            );
            *value = Some(if is_last { reader.rest() } else { reader.raw().map_err(malformed)? });
        }
        Ok(arguments)
    }

    /// The argument at `position`, counted from 0; null is a value.
    pub(crate) fn get(self, position: usize) -> Option<&'a [u8]> {
        self.values.get(position).copied().flatten()
    }

    /// The argument at `position`, if it exists and is not null.
    pub(crate) fn present(self, position: usize) -> Option<&'a [u8]> {
        self.get(position).filter(|value| !is_nil(value))
    }
}

pub(crate) fn kind(value: &[u8]) -> Kind {
    value.first().map_or(Kind::Invalid, |first| Kind::of(*first))
}

pub(crate) fn is_nil(value: &[u8]) -> bool {
    kind(value) == Kind::Nil
}

/// The bytes of a string or binary value: both are strings to Lua.
pub(crate) fn string(value: &[u8]) -> Option<&[u8]> {
    Reader::new(value).str_or_bin().ok()
}

/// A number that a client sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    Int(i128),
    Double(f64),
    /// A decimal, cut to microseconds if it is taken for seconds; `whole` is its integral part.
    Decimal {
        micros: i128,
        positive: bool,
        whole: i128,
    },
}

impl Number {
    pub(crate) fn parse(value: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(value);
        match reader.kind().ok()? {
            Kind::Uint => reader.uint().ok().map(|number| Self::Int(number.into())),
            Kind::Int => reader.int().ok().map(Self::Int),
            Kind::Float => reader.float().ok().map(|float| Self::Double(float.into())),
            Kind::Double => reader.double().ok().map(Self::Double),
            Kind::Ext => match reader.ext().ok()? {
                (EXT_DECIMAL, payload) => Decimal::from_ext(payload).and_then(decimal),
                _ => None,
            },
            _ => None,
        }
    }

    /// The number, or the error of Lua that compares the value with one.
    pub(crate) fn needed(value: &[u8]) -> Result<Self> {
        let unfit = || Error::Compare { left: lua_text::type_name(Some(value)), right: "number" };
        Self::parse(value).ok_or_else(unfit)
    }

    pub(crate) fn seconds(self) -> Seconds {
        match self {
            Self::Int(value) => Seconds::from_int(value),
            Self::Double(value) => Seconds::from_double(value),
            Self::Decimal { micros, positive, .. } => Seconds::from_micros(micros, positive),
        }
    }

    /// How often a loop from 1 to this number runs: its integral part, or 0 for a number below one.
    pub(crate) fn count(self) -> u64 {
        match self {
            Self::Int(whole) | Self::Decimal { whole, .. } => u64::try_from(whole.max(0)).unwrap_or(u64::MAX),
            Self::Double(value) => value as u64,
        }
    }

    /// The value if it is a whole number that fits 64 bits without a sign.
    pub(crate) fn unsigned(self) -> Option<u64> {
        match self {
            Self::Int(value) => u64::try_from(value).ok(),
            Self::Double(value)
                if value.fract() == 0.0 && (0.0..18_446_744_073_709_551_616.0).contains(&value) =>
            {
                Some(value as u64)
            }
            Self::Double(_) | Self::Decimal { .. } => None,
        }
    }

    pub(crate) fn is_negative(self) -> bool {
        match self {
            Self::Int(value) => value < 0,
            Self::Double(value) => value < 0.0,
            Self::Decimal { micros, whole, .. } => micros < 0 || whole < 0,
        }
    }

    /// The least whole number that is not less, for numbers that are not negative.
    pub(crate) fn ceiling(self) -> u64 {
        match self {
            Self::Int(_) => self.count(),
            Self::Double(value) => value.ceil() as u64,
            Self::Decimal { micros, .. } => {
                u64::try_from((micros + 999_999).max(0) / 1_000_000).unwrap_or(u64::MAX)
            }
        }
    }

    /// Reads a number as Lua reads a numeric string.
    pub(crate) fn from_text(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?.trim();
        text.parse().map(Self::Int).or_else(|_| text.parse().map(Self::Double)).ok()
    }
}

/// A decimal by its digits; None if it is too large to count with.
fn decimal(value: Decimal) -> Option<Number> {
    let text = value.to_string();
    let (sign, digits) = text.strip_prefix('-').map_or((1, text.as_str()), |digits| (-1, digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let positive = sign > 0 && digits.bytes().any(|digit| matches!(digit, b'1'..=b'9'));
    let whole: i128 = whole.parse().ok()?;
    let places = fraction.bytes().chain(std::iter::repeat(b'0')).take(6);
    let micros = places.fold(0_i128, |sum, digit| sum * 10 + i128::from(digit.saturating_sub(b'0')));
    let micros = whole.saturating_mul(1_000_000).saturating_add(micros);
    Some(Number::Decimal { micros: sign * micros, positive, whole: sign * whole })
}

/// An id argument.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Id<'a> {
    /// A number that can be an id, of any MessagePack type.
    Number(u64),
    /// Nothing, or something that cannot be an id: the bytes for the error.
    Other(Option<&'a [u8]>),
}

impl<'a> Id<'a> {
    pub(crate) fn parse(value: Option<&'a [u8]>) -> Self {
        let Some(bytes) = value else { return Self::Other(None) };
        unsigned(bytes).map_or(Self::Other(value), Self::Number)
    }
}

/// The pairs of an option table whose keys are strings.
#[derive(Debug, Clone)]
pub(crate) struct Table<'a> {
    reader: Reader<'a>,
    left: u32,
}

impl<'a> Table<'a> {
    /// Absent options, null, an array and any string hold no pairs. A number or boolean is refused.
    pub(crate) fn parse(value: Option<&'a [u8]>) -> Result<Self> {
        let mut reader = Reader::new(value.unwrap_or(&[]));
        let left = match value.map(kind) {
            Some(Kind::Map) => reader.map().unwrap_or(0),
            None | Some(Kind::Nil | Kind::Array | Kind::Str | Kind::Bin) => 0,
            Some(_) => return Err(Error::OptionsType(lua_text::type_name(value))),
        };
        Ok(Self { reader, left })
    }

    /// The last value under `name`, unless it is null.
    pub(crate) fn get(self, name: &[u8]) -> Option<&'a [u8]> {
        self.filter(|(key, _)| *key == name).last().map(|(_, value)| value).filter(|value| !is_nil(value))
    }
}

impl<'a> Iterator for Table<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        while self.left > 0 {
            self.left -= 1;
            let key = self.reader.raw().ok()?;
            let value = self.reader.raw().ok()?;
            if let Some(key) = string(key) {
                return Some((key, value));
            }
        }
        None
    }
}

/// A whole number, 0 or more.
pub(crate) fn unsigned(value: &[u8]) -> Option<u64> {
    Number::parse(value).and_then(Number::unsigned)
}

/// The options of a method, each read by its name.
#[derive(Debug, Clone)]
pub(crate) struct Options<'a> {
    method: &'static str,
    given: Table<'a>,
}

impl<'a> Options<'a> {
    /// Reads the map that `place` names in an error.
    ///
    /// # Errors
    /// It is no map, or has other members than `known`.
    pub(crate) fn parse(
        method: &'static str,
        place: &str,
        value: Option<&'a [u8]>,
        known: &[&str],
    ) -> Result<Self> {
        let unfit = |what: String| Error::Unfit { method, what };
        let given = Table::parse(value).map_err(|_| unfit(format!("{place} should be a map")))?;
        let is_known = |name: &[u8]| known.iter().any(|known| known.as_bytes() == name);
        if given.clone().any(|(name, value)| !is_nil(value) && !is_known(name)) {
            let (last, first) = known.split_last().expect("a method with options has one");
            return Err(unfit(format!("the options are {} and {last}", first.join(", "))));
        }
        Ok(Self { method, given })
    }

    /// The option of that name, as `read` understands it; nil is no option.
    ///
    /// # Errors
    /// `expected`, if it is something else.
    pub(crate) fn read<T>(
        &self,
        name: &str,
        expected: &str,
        read: impl FnOnce(&'a [u8]) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.given.clone().get(name.as_bytes()) else { return Ok(None) };
        let unfit = || Error::Unfit { method: self.method, what: expected.to_owned() };
        read(value).map(Some).ok_or_else(unfit)
    }
}
