//! Deadlines: what the number in a tuple's field means.

use lycosa_tuple::decimal::Decimal;
use lycosa_tuple::mp::{self, Kind, Reader};

/// The unit of a deadline field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unit {
    /// Seconds since the epoch.
    #[default]
    Seconds,
    /// Milliseconds since the epoch.
    Milliseconds,
    /// Microseconds since the epoch.
    Microseconds,
}

impl Unit {
    /// The unit called `s`, `ms` or `us`.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "s" => Some(Self::Seconds),
            "ms" => Some(Self::Milliseconds),
            "us" => Some(Self::Microseconds),
            _ => None,
        }
    }

    /// `s`, `ms` or `us`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Seconds => "s",
            Self::Milliseconds => "ms",
            Self::Microseconds => "us",
        }
    }

    /// Microseconds in one unit.
    #[must_use]
    pub const fn microseconds(self) -> u64 {
        match self {
            Self::Seconds => 1_000_000,
            Self::Milliseconds => 1_000,
            Self::Microseconds => 1,
        }
    }
}

/// The deadline that a field's `value` (the bytes of one MessagePack value) states, in µs since the epoch. A fraction of
/// a microsecond is rounded up, so that nothing expires early.
///
/// `None`: the tuple never expires. So says everything that is not a number, a negative number, NaN and infinity.
#[must_use]
pub fn deadline(value: &[u8], unit: Unit) -> Option<u64> {
    let mut reader = Reader::new(value);
    match reader.kind().ok()? {
        Kind::Uint => Some(reader.uint().ok()?.saturating_mul(unit.microseconds())),
        Kind::Int => {
            let value = u64::try_from(reader.int().ok()?).ok()?;
            Some(value.saturating_mul(unit.microseconds()))
        }
        Kind::Float => of_double(f64::from(reader.float().ok()?), unit),
        Kind::Double => of_double(reader.double().ok()?, unit),
        Kind::Ext => match reader.ext().ok()? {
            (mp::EXT_DECIMAL, payload) => {
                let decimal = Decimal::from_ext(payload)?;
                if decimal.is_negative() && !decimal.is_zero() {
                    return None;
                }
                of_double(decimal.to_double().abs(), unit)
            }
            _ => None,
        },
        _ => None,
    }
}

/// Doubles from here on do not fit a `u64` any more.
const TOO_LATE: f64 = 18_446_744_073_709_551_616.0;

fn of_double(value: f64, unit: Unit) -> Option<u64> {
    let microseconds = (value * unit.microseconds() as f64).ceil();
    if !value.is_finite() || value < 0.0 {
        return None;
    }
    // The multiplication of two whole numbers below 2^53 is exact; beyond that nothing is due for 285 years.
    Some(if microseconds >= TOO_LATE { u64::MAX } else { microseconds as u64 })
}

#[cfg(test)]
mod tests {
    use lycosa_tuple::value::Value;

    use super::*;

    fn of(value: impl Into<Value>, unit: Unit) -> Option<u64> {
        deadline(&value.into().encode(), unit)
    }

    fn decimal(text: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        text.parse::<Decimal>().unwrap().encode(&mut bytes);
        bytes
    }

    #[test]
    fn numbers_of_every_type_are_deadlines() {
        assert_eq!(of(0_u64, Unit::Seconds), Some(0));
        assert_eq!(of(7_u64, Unit::Seconds), Some(7_000_000));
        assert_eq!(of(7_u64, Unit::Milliseconds), Some(7_000));
        assert_eq!(of(7_u64, Unit::Microseconds), Some(7));
        assert_eq!(of(u64::MAX, Unit::Seconds), Some(u64::MAX));
        assert_eq!(deadline(&[0xd3, 0, 0, 0, 0, 0, 0, 0, 9], Unit::Seconds), Some(9_000_000));
        assert_eq!(of(1.5_f64, Unit::Seconds), Some(1_500_000));
        assert_eq!(deadline(&[0xca, 0x3f, 0x80, 0, 0], Unit::Milliseconds), Some(1_000));
        assert_eq!(deadline(&decimal("2.25"), Unit::Seconds), Some(2_250_000));
        assert_eq!(of(1e30_f64, Unit::Seconds), Some(u64::MAX));
    }

    #[test]
    fn fractions_of_a_microsecond_are_rounded_up() {
        assert_eq!(of(0.000_000_4_f64, Unit::Seconds), Some(1));
        assert_eq!(of(2.1_f64, Unit::Microseconds), Some(3));
        assert_eq!(deadline(&decimal("0.0000001"), Unit::Seconds), Some(1));
    }

    #[test]
    fn everything_else_never_expires() {
        for value in [
            Value::Nil,
            Value::from(true),
            Value::from("1"),
            Value::from(-1_i64),
            Value::Double(-0.5),
            Value::Double(f64::NAN),
            Value::Double(f64::INFINITY),
            Value::Array(vec![]),
        ] {
            assert_eq!(deadline(&value.encode(), Unit::Seconds), None, "{value:?}");
        }
        assert_eq!(deadline(&decimal("-1"), Unit::Seconds), None);
        assert_eq!(deadline(&[], Unit::Seconds), None);
        assert_eq!(deadline(&[0xd4, 9, 9], Unit::Seconds), None);
    }
}
