//! Arithmetic of operations: sums, bits and splices.

use super::UpdateError;
use super::operation::{Computation, Splice, UpdatePath, out_of_bound};
use crate::decimal::Decimal;
use crate::mp::{self, Kind, Reader};

/// A number as arithmetic takes it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Number {
    /// −2^63 … 2^64−1.
    Integer(i128),
    /// Of either width.
    Double(f64),
    Decimal(Decimal),
}

/// A computed value.
#[derive(Debug)]
pub(super) enum Scalar {
    Number(Number),
    String(Vec<u8>),
}

impl Number {
    /// `None` if the value is not a number.
    pub(super) fn read(value: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(value);
        match reader.kind().ok()? {
            Kind::Uint | Kind::Int => reader.int().ok().map(Self::Integer),
            Kind::Float => reader.float().ok().map(f64::from).map(Self::Double),
            Kind::Double => reader.double().ok().map(Self::Double),
            Kind::Ext => match reader.ext().ok()? {
                (mp::EXT_DECIMAL, payload) => Decimal::from_ext(payload).map(Self::Decimal),
                _ => None,
            },
            _ => None,
        }
    }

    fn to_decimal(self) -> Option<Decimal> {
        match self {
            Self::Integer(integer) => Decimal::from_integer(integer),
            Self::Double(double) => Decimal::from_double(double),
            Self::Decimal(decimal) => Some(decimal),
        }
    }

    fn to_double(self) -> f64 {
        match self {
            Self::Integer(integer) => integer as f64,
            Self::Double(double) => double,
            Self::Decimal(decimal) => decimal.to_double(),
        }
    }
}

impl Computation<'_> {
    /// What the operation makes of `value`, the whole MessagePack value that it found.
    pub(super) fn of(&self, value: &[u8], target: &UpdatePath<'_>) -> Result<Scalar, UpdateError> {
        let integer = |number| Ok(Scalar::Number(Number::Integer(i128::from(number))));
        match self {
            Self::Add(number) | Self::Subtract(number) => {
                self.sum(value, *number, target).map(Scalar::Number)
            }
            Self::And(mask) => integer(self.bits(value, target)? & mask),
            Self::Or(mask) => integer(self.bits(value, target)? | mask),
            Self::Xor(mask) => integer(self.bits(value, target)? ^ mask),
            Self::Splice(splice) => {
                let string = Reader::new(value).str().map_err(|_| self.mismatch(target, "a string"))?;
                splice.of(string).map(Scalar::String).ok_or_else(|| out_of_bound(target))
            }
        }
    }

    fn bits(&self, value: &[u8], target: &UpdatePath<'_>) -> Result<u64, UpdateError> {
        Reader::new(value).uint().map_err(|_| self.mismatch(target, "a positive integer"))
    }

    fn sum(&self, value: &[u8], argument: Number, target: &UpdatePath<'_>) -> Result<Number, UpdateError> {
        let add = matches!(self, Self::Add(_));
        let operator = self.operator();
        match (Number::read(value).ok_or_else(|| self.mismatch(target, "a number"))?, argument) {
            (Number::Integer(left), Number::Integer(right)) => {
                let result = if add { left + right } else { left - right };
                if (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&result) {
                    Ok(Number::Integer(result))
                } else {
                    Err(UpdateError::UpdateIntegerOverflow { operator, field: target.shown() })
                }
            }
            (left @ Number::Decimal(_), right) | (left, right @ Number::Decimal(_)) => {
                let inconvertible = || self.mismatch(target, "a number convertible to decimal");
                let left = left.to_decimal().ok_or_else(inconvertible)?;
                let right = right.to_decimal().ok_or_else(inconvertible)?;
                let result = if add { left.checked_add(right) } else { left.checked_sub(right) };
                result
                    .map(Number::Decimal)
                    .ok_or_else(|| UpdateError::UpdateDecimalOverflow { operator, field: target.shown() })
            }
            (left, right) => {
                let (left, right) = (left.to_double(), right.to_double());
                let result = if add { left + right } else { left - right };
                Ok(Number::Double(if result.is_nan() { portable_nan(left, right) } else { result }))
            }
        }
    }

    fn mismatch(&self, target: &UpdatePath<'_>, expected: &'static str) -> UpdateError {
        UpdateError::UpdateArgType { operator: self.operator(), field: target.shown(), expected }
    }
}

/// The NaN that x86 makes of these operands. Other processors make others, and replicas must agree on every byte.
fn portable_nan(left: f64, right: f64) -> f64 {
    const QUIET: u64 = 1 << 51;
    const DEFAULT: u64 = 0xfff8_0000_0000_0000;
    let operand = [left, right].into_iter().find(|operand| operand.is_nan());
    f64::from_bits(operand.map_or(DEFAULT, |operand| operand.to_bits() | QUIET))
}

impl Splice<'_> {
    /// `None` if the position is before the string.
    fn of(&self, string: &[u8]) -> Option<Vec<u8>> {
        let size = i64::try_from(string.len()).ok()?;
        let start = if self.position < 0 {
            Some(size + 1 + self.position).filter(|&start| start >= 0)?
        } else {
            self.position.min(size)
        };
        let left = size - start;
        let removed = if self.length < 0 { (left + self.length).max(0) } else { self.length.min(left) };
        let start = usize::try_from(start).ok()?;
        let removed = usize::try_from(removed).ok()?;
        Some([&string[..start], self.paste, &string[start + removed..]].concat())
    }
}

impl Scalar {
    /// Appends the value. Floating point takes 32 bits where that loses nothing, unless `is_double` asks for 64.
    pub(super) fn write(&self, out: &mut Vec<u8>, is_double: bool) {
        match self {
            Self::String(string) => mp::write_str(out, string),
            Self::Number(Number::Decimal(decimal)) => decimal.encode(out),
            Self::Number(Number::Double(double)) => {
                let float = *double as f32;
                if !is_double && double.is_finite() && f64::from(float) == *double {
                    mp::write_float(out, float);
                } else {
                    mp::write_double(out, *double);
                }
            }
            Self::Number(Number::Integer(integer)) => {
                match (u64::try_from(*integer), i64::try_from(*integer)) {
                    (Ok(unsigned), _) => mp::write_uint(out, unsigned),
                    (Err(_), Ok(signed)) => mp::write_int(out, signed),
                    (Err(_), Err(_)) => unreachable!("sums are checked to be integers of MessagePack"),
                }
            }
        }
    }
}
