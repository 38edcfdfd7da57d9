//! Hints: the first 64 bits of an order-preserving encoding of a key.
//!
//! An index keeps a hint beside every tuple and compares hints first; it reads tuples only when two hints are equal. The
//! encoding is a string of bits, and `a < b` as strings of bits says that the keys are ordered so:
//!
//! | part | bits |
//! |---|---|
//! | nullable | `0` for nil, else `1` and the value |
//! | unsigned | number of significant bits (6), then those without the leading one; 63 and more: `111111` and all 64 bits |
//! | integer | `1` and as unsigned, or `0` and the complement of the unsigned encoding of −1 − value |
//! | string, varbinary | `1` and eight bits for each byte, `0` at the end |
//! | boolean | one bit |
//! | double | 64 bits, made monotone |
//! | number, decimal | the whole number below it as integer, but 63 and more bits as `111111` and the excess over 62 (10), then `0` |
//! | with a fraction | `1` in place of that `0`, the bits of the fraction, and **no further part** |
//! | scalar | class (3), then as above |
//! | uuid | its 128 bits |
//! | string with a collation | nothing, and no further part |
//!
//! So `('r', id)` fits for ids below 2^49, and `('r', pri 0, id)` below 2^43. No encoding is the beginning of another,
//! hence a hint that holds a whole encoding ([`is_exact`]) belongs to one key only. "No further part" means that all bits
//! behind are zero for every key that begins so: equal hints then decide nothing, unequal ones still do.

use crate::field::FieldType;
use crate::key::KeyPart;
use crate::mp::Reader;
use crate::scalar::{self, Number, Scalar};

const NIL: u8 = 0xc0;
/// Bit lengths below this one are written as such; this one announces a whole 64-bit number, or what the length has more.
const WIDE: u64 = 63;
/// Lengths that are no number of bits: doubles have up to 1024.
const INFINITE: u32 = 1025;
const NO_NUMBER: u32 = 1026;
/// Doubles from 2^127 on, by magnitude, are no `i128`.
const GREAT: f64 = 170_141_183_460_469_231_731_687_303_715_884_105_728.0;

/// A hint in the making.
#[derive(Clone, Copy)]
pub(crate) struct Writer {
    bits: u64,
    /// Bits that are still free.
    free: u32,
    /// Whether something could not be encoded exactly, so that nothing may follow.
    stopped: bool,
}

impl Writer {
    pub(crate) const fn new() -> Self {
        Self { bits: 0, free: 64, stopped: false }
    }

    /// Whether more parts can make no difference.
    #[inline]
    pub(crate) const fn is_full(&self) -> bool {
        self.free == 0 || self.stopped
    }

    /// The least hint that begins with the bits written so far.
    #[inline]
    pub(crate) const fn least(&self) -> u64 {
        self.bits
    }

    /// The greatest hint that begins with the bits written so far.
    #[inline]
    pub(crate) const fn greatest(&self) -> u64 {
        if self.is_full() { self.bits } else { self.bits | (u64::MAX >> (64 - self.free)) }
    }

    /// Appends the lowest `width` bits of `value`, as many as fit. The bits above must be zero.
    #[inline]
    fn push(&mut self, value: u64, width: u32) {
        if width <= self.free {
            // A shift by 64 only happens for a width of zero, that is, for no bits.
            self.bits |= value.wrapping_shl(self.free - width);
            self.free -= width;
        } else {
            self.bits |= value.checked_shr(width - self.free).unwrap_or(0);
            self.free = 0;
        }
    }

    fn stop(&mut self) {
        self.stopped = true;
    }

    /// Appends the value of `part`: the first value of `value`.
    #[inline]
    pub(crate) fn part(&mut self, part: &KeyPart, value: &[u8]) {
        if part.nullable {
            let present = value.first().is_some_and(|&first| first != NIL);
            self.push(u64::from(present), 1);
            if !present {
                return;
            }
        }
        match part.ty {
            FieldType::Unsigned => match Reader::new(value).uint() {
                Ok(number) => self.unsigned(number, 0),
                Err(_) => self.stop(),
            },
            FieldType::String if part.collation.is_binary() => match Reader::new(value).str() {
                Ok(bytes) => self.bytes(bytes),
                Err(_) => self.stop(),
            },
            FieldType::Number => match scalar::unsigned(value).filter(|number| number >> (WIDE - 1) == 0) {
                Some(number) => {
                    self.push(1, 1);
                    self.unsigned(number, 0);
                    self.push(0, 1);
                }
                None => self.scalar(part, Scalar::decode(value)),
            },
            _ => self.scalar(part, Scalar::decode(value)),
        }
    }

    fn scalar(&mut self, part: &KeyPart, scalar: Scalar<'_>) {
        let mixed = match part.ty {
            FieldType::Scalar => {
                self.push(u64::from(scalar.class()), 3);
                true
            }
            _ => false,
        };
        match (part.ty, scalar) {
            (FieldType::Boolean | FieldType::Scalar, Scalar::Bool(value)) => self.push(u64::from(value), 1),
            (FieldType::Integer, Scalar::Number(Number::Integer(value))) => self.integer(value),
            (FieldType::Double, Scalar::Number(Number::Double(value))) => self.push(monotone(value), 64),
            (FieldType::Number | FieldType::Decimal | FieldType::Scalar, Scalar::Number(number)) => {
                self.number(number);
            }
            (FieldType::Scalar, Scalar::String(bytes)) if part.collation.is_binary() => self.bytes(bytes),
            (FieldType::Varbinary | FieldType::Scalar, Scalar::Binary(bytes)) => self.bytes(bytes),
            (FieldType::Uuid, Scalar::Uuid(bytes)) => {
                for &byte in bytes {
                    self.push(u64::from(byte), 8);
                }
            }
            (_, Scalar::Nil) if mixed => {}
            _ => self.stop(),
        }
    }

    /// Appends an unsigned number; `inverted` is 0, or all ones to encode the complement.
    #[inline]
    pub(crate) fn unsigned(&mut self, number: u64, inverted: u64) {
        let length = u64::BITS - number.leading_zeros();
        let below = length.saturating_sub(1);
        let written = (u64::from(length) ^ inverted) & WIDE;
        let rest = |width: u32| (number ^ inverted) & !(u64::MAX << width);
        if below + 6 <= u64::BITS {
            self.push(written << below | rest(below), 6 + below);
        } else if u64::from(length) < WIDE {
            self.push(written, 6);
            self.push(rest(below), below);
        } else {
            self.push((WIDE ^ inverted) & WIDE, 6);
            self.push(number ^ inverted, 64);
        }
    }

    fn integer(&mut self, number: i128) {
        if let Ok(unsigned) = u64::try_from(number) {
            self.push(1, 1);
            self.unsigned(unsigned, 0);
        } else if let Ok(distance) = u64::try_from(-1 - number) {
            self.push(0, 1);
            self.unsigned(distance, u64::MAX);
        } else {
            self.stop();
        }
    }

    /// Appends a number of any kind: the whole number below it, and the fraction.
    fn number(&mut self, number: Number) {
        let fraction = match number {
            Number::Integer(value) => {
                self.whole(value);
                None
            }
            Number::Double(value) => self.floor(value),
            Number::Decimal(value) => {
                let (whole, fraction) = value.split();
                self.whole(whole);
                fraction
            }
        };
        self.push(u64::from(fraction.is_some()), 1);
        if let Some(fraction) = fraction {
            self.push(fraction, 64);
            self.stop();
        }
    }

    fn whole(&mut self, number: i128) {
        let is_negative = number < 0;
        let magnitude = (if is_negative { -1 - number } else { number }).cast_unsigned();
        let length = u128::BITS - magnitude.leading_zeros();
        let behind = magnitude.checked_shl(u128::BITS - length + 1).unwrap_or(0);
        self.magnitude(is_negative, length, (behind >> 64) as u64);
    }

    /// Appends the whole number below a double. Returns the first 64 bits of the rest, if there is one.
    fn floor(&mut self, value: f64) -> Option<u64> {
        const ONE: f64 = 18_446_744_073_709_551_616.0;
        let is_negative = value < 0.0;
        if value.abs() < GREAT {
            let (whole, rest) = (value.trunc() as i128, value.abs().fract());
            let has_rest = rest != 0.0;
            self.whole(whole - i128::from(is_negative && has_rest));
            // Both products are exact: a double below one is multiplied by a power of two.
            let below =
                if is_negative { ((rest * ONE).ceil() as u64).wrapping_neg() } else { (rest * ONE) as u64 };
            return has_rest.then_some(below);
        }
        let (exponent, mantissa) = ((value.to_bits() >> 52 & 0x7ff) as u32, value.to_bits() << 12);
        match (value.is_nan(), value.is_infinite()) {
            (true, _) => self.magnitude(true, NO_NUMBER, 0),
            (_, true) => self.magnitude(is_negative, INFINITE, 0),
            // From here on a number and the next one below have the same bits.
            _ => self.magnitude(is_negative, exponent - 1022, mantissa),
        }
        None
    }

    /// Appends the magnitude of a whole number, which for a negative one is −1 − number: its significant bits, and those
    /// behind the leading one from the highest on.
    fn magnitude(&mut self, is_negative: bool, length: u32, behind: u64) {
        let inverted = if is_negative { u64::MAX } else { 0 };
        self.push(u64::from(!is_negative), 1);
        self.push((u64::from(length).min(WIDE) ^ inverted) & WIDE, 6);
        if let Some(beyond) = u64::from(length).checked_sub(WIDE) {
            self.push((beyond ^ inverted) & 0x3ff, 10);
        }
        let width = length.saturating_sub(1).min(64);
        if width > 0 {
            self.push((behind ^ inverted) >> (64 - width), width);
        }
    }

    /// Appends a string in binary order.
    #[inline]
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        if let &[byte] = bytes
            && self.free == u64::BITS
        {
            self.bits = (0x100 | u64::from(byte)) << (u64::BITS - 9);
            self.free = u64::BITS - 10;
            return;
        }
        for &byte in bytes {
            if self.free == 0 {
                return;
            }
            self.push(0x100 | u64::from(byte), 9);
        }
        self.push(0, 1);
    }
}

/// The hint of a tuple under the key (second field, first field), if the former is a text of one byte and the latter an
/// unsigned number: the state of a task and its id.
#[inline]
pub(crate) fn of_letter(tuple: &[u8]) -> Option<u64> {
    let [0x92..=0x9f, fields @ ..] = tuple else { return None };
    let mut reader = Reader::new(fields);
    let number = reader.uint().ok()?;
    let &[0xa1, letter, ..] = reader.rest() else { return None };
    let mut writer = Writer { bits: (0x100 | u64::from(letter)) << 55, free: 54, stopped: false };
    writer.unsigned(number, 0);
    Some(writer.least())
}

/// The bits of a double as an unsigned number in the same order; NaN becomes 0, −0.0 becomes 0.0.
fn monotone(value: f64) -> u64 {
    const SIGN: u64 = 1 << 63;
    if value.is_nan() {
        return 0;
    }
    let bits = if value == 0.0 { 0 } else { value.to_bits() };
    if bits & SIGN == 0 { bits | SIGN } else { !bits }
}

/// Whether hints of keys of these parts can be exact at all.
pub(crate) fn can_be_exact(parts: &[KeyPart]) -> bool {
    parts.iter().all(|part| match part.ty {
        FieldType::Unsigned
        | FieldType::Integer
        | FieldType::Boolean
        | FieldType::Double
        | FieldType::Number
        | FieldType::Decimal
        | FieldType::Varbinary => true,
        FieldType::String => part.collation.is_binary(),
        _ => false,
    })
}

/// Whether `hint` holds the whole encoding of a key of `parts`, for which [`can_be_exact`] holds.
pub(crate) fn is_exact(parts: &[KeyPart], hint: u64) -> bool {
    let mut bits = Bits { bits: hint, left: 64 };
    parts.iter().all(|part| bits.pass(part).is_some())
}

/// A cursor over the bits of a hint.
struct Bits {
    bits: u64,
    left: u32,
}

impl Bits {
    /// Takes `width` bits, 1 to 64.
    fn take(&mut self, width: u32) -> Option<u64> {
        self.left = self.left.checked_sub(width)?;
        let value = self.bits >> (64 - width);
        self.bits = self.bits.checked_shl(width).unwrap_or(0);
        Some(value)
    }

    /// Steps over the encoding of a part, if all its bytes are present.
    fn pass(&mut self, part: &KeyPart) -> Option<()> {
        if part.nullable && self.take(1)? == 0 {
            return Some(());
        }
        match part.ty {
            FieldType::Unsigned => self.pass_unsigned(0),
            FieldType::Integer => self.pass_integer(),
            FieldType::Number | FieldType::Decimal => {
                self.pass_integer()?;
                if self.take(1)? == 0 { Some(()) } else { None }
            }
            FieldType::String | FieldType::Varbinary => {
                while self.take(1)? == 1 {
                    self.take(8)?;
                }
                Some(())
            }
            FieldType::Boolean => self.take(1).map(drop),
            FieldType::Double => self.take(64).map(drop),
            _ => None,
        }
    }

    fn pass_integer(&mut self) -> Option<()> {
        let inverted = if self.take(1)? == 0 { WIDE } else { 0 };
        self.pass_unsigned(inverted)
    }

    fn pass_unsigned(&mut self, inverted: u64) -> Option<()> {
        match self.take(6)? ^ inverted {
            0 | 1 => Some(()),
            WIDE => None,
            length => self.take(length as u32 - 1).map(drop),
        }
    }
}
