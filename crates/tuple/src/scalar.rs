//! The order and the hash of single values, on their bytes.
//!
//! The order is Tarantool's for `scalar`: nil < false < true < numbers < strings < binary values, and after them, where
//! no Tarantool index goes, UUIDs, other extensions, arrays, maps, each by bytes. It is total over all bytes.
//!
//! Numbers compare by value across integers, floats and decimals, and always exactly: 2^53+1 is greater than
//! 9007199254740992.0, and a decimal is where its value says. NaN is below −∞ and equal to itself, −0.0 is 0. (Tarantool
//! 2.6.0 misplaces decimals beyond 64-bit integers next to doubles; only an index that mixes those can tell.)
//!
//! Equal values hash equally, `1`, `1.0` and decimal `1.00` too.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

use crate::collation::Collation;
use crate::decimal::Decimal;
use crate::mp::{self, Kind, Reader};

/// A number of any kind, as it stands in a tuple.
#[derive(Clone, Copy)]
pub(crate) enum Number {
    Integer(i128),
    Double(f64),
    Decimal(Decimal),
}

/// A value, decoded as far as its order needs. The variants stand in that order.
#[derive(Clone, Copy)]
pub(crate) enum Scalar<'a> {
    Nil,
    Bool(bool),
    Number(Number),
    String(&'a [u8]),
    Binary(&'a [u8]),
    Uuid(&'a [u8]),
    /// Whole values without an order of their own, malformed ones among them: class, bytes.
    Opaque(u8, &'a [u8]),
}

impl<'a> Scalar<'a> {
    /// Decodes the first value of `bytes`. Bytes that cannot be decoded are opaque.
    #[inline]
    pub(crate) fn decode(bytes: &'a [u8]) -> Self {
        let mut reader = Reader::new(bytes);
        let decoded = match reader.kind() {
            Ok(Kind::Nil) => Some(Self::Nil),
            Ok(Kind::Bool) => reader.bool().ok().map(Self::Bool),
            Ok(Kind::Uint | Kind::Int) => reader.int().ok().map(Number::Integer).map(Self::Number),
            Ok(Kind::Float) => reader.float().ok().map(|value| Self::Number(Number::Double(value.into()))),
            Ok(Kind::Double) => reader.double().ok().map(Number::Double).map(Self::Number),
            Ok(Kind::Str) => reader.str().ok().map(Self::String),
            Ok(Kind::Bin) => reader.bin().ok().map(Self::Binary),
            Ok(Kind::Ext) => match reader.ext() {
                Ok((mp::EXT_DECIMAL, ext)) => Decimal::from_ext(ext).map(Number::Decimal).map(Self::Number),
                Ok((mp::EXT_UUID, ext)) if ext.len() == 16 => Some(Self::Uuid(ext)),
                _ => None,
            },
            _ => None,
        };
        decoded.unwrap_or_else(|| {
            let rank = match Reader::new(bytes).kind() {
                Ok(Kind::Ext) => 0,
                Ok(Kind::Array) => 1,
                Ok(Kind::Map) => 2,
                _ => 3,
            };
            Self::Opaque(rank, Reader::new(bytes).raw().unwrap_or(bytes))
        })
    }

    /// The place of the value's class among all classes.
    pub(crate) const fn class(&self) -> u8 {
        match self {
            Self::Nil => 0,
            Self::Bool(_) => 1,
            Self::Number(_) => 2,
            Self::String(_) => 3,
            Self::Binary(_) => 4,
            Self::Uuid(_) => 5,
            Self::Opaque(..) => 6,
        }
    }
}

/// Orders two values, each the first of its bytes. Strings are ordered by `collation`.
pub fn compare(a: &[u8], b: &[u8], collation: &Collation) -> Ordering {
    // Most numbers are unsigned, and many comparisons are of equal values.
    if let (Some(a), Some(b)) = (unsigned(a), unsigned(b)) {
        return a.cmp(&b);
    }
    if a == b {
        return Ordering::Equal;
    }
    match (Scalar::decode(a), Scalar::decode(b)) {
        (Scalar::Number(a), Scalar::Number(b)) => a.compare(&b),
        (Scalar::String(a), Scalar::String(b)) => collation.compare(a, b),
        (Scalar::Binary(a), Scalar::Binary(b)) | (Scalar::Uuid(a), Scalar::Uuid(b)) => a.cmp(b),
        (Scalar::Bool(a), Scalar::Bool(b)) => a.cmp(&b),
        (Scalar::Opaque(a_class, a), Scalar::Opaque(b_class, b)) => (a_class, a).cmp(&(b_class, b)),
        (a, b) => a.class().cmp(&b.class()),
    }
}

/// The number, if it is an unsigned one.
#[inline]
pub(crate) fn unsigned(bytes: &[u8]) -> Option<u64> {
    match bytes.first()? {
        0..=0x7f | 0xcc..=0xcf => Reader::new(bytes).uint().ok(),
        _ => None,
    }
}

/// Feeds the first value of `bytes` to `hasher` so that values which [`compare`] as equal give the same.
pub fn hash(bytes: &[u8], collation: &Collation, hasher: &mut impl Hasher) {
    let scalar = Scalar::decode(bytes);
    hasher.write_u8(scalar.class());
    match scalar {
        Scalar::Nil => {}
        Scalar::Bool(value) => value.hash(hasher),
        Scalar::Number(number) => number.hash(hasher),
        Scalar::String(string) => collation.hash(string, hasher),
        Scalar::Binary(bytes) | Scalar::Uuid(bytes) => bytes.hash(hasher),
        Scalar::Opaque(class, bytes) => (class, bytes).hash(hasher),
    }
}

impl Number {
    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Integer(a), Self::Integer(b)) => a.cmp(b),
            (Self::Integer(a), Self::Double(b)) => compare_integer_double(*a, *b),
            (Self::Double(a), Self::Integer(b)) => compare_integer_double(*b, *a).reverse(),
            (Self::Double(a), Self::Double(b)) => compare_doubles(*a, *b),
            (Self::Decimal(a), Self::Decimal(b)) => a.cmp(b),
            (Self::Decimal(a), Self::Integer(b)) => a.cmp_integer(*b),
            (Self::Integer(a), Self::Decimal(b)) => b.cmp_integer(*a).reverse(),
            (Self::Decimal(a), Self::Double(b)) => a.cmp_double(*b),
            (Self::Double(a), Self::Decimal(b)) => b.cmp_double(*a).reverse(),
        }
    }

    /// A whole number is hashed as an integer, a fraction that is a double as the double, the rest as decimals.
    fn hash(&self, hasher: &mut impl Hasher) {
        match self {
            Self::Integer(value) => value.hash(hasher),
            Self::Double(value) => hash_double(*value, hasher),
            Self::Decimal(value) => hash_decimal(value, hasher),
        }
    }
}

/// Orders doubles: NaN first and equal to itself, −0.0 equal to 0.0.
fn compare_doubles(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| b.is_nan().cmp(&a.is_nan()))
}

/// 2^127: the whole part of a double below it, by magnitude, is an `i128`. No integer or decimal goes beyond.
const WHOLE_LIMIT: f64 = 170_141_183_460_469_231_731_687_303_715_884_105_728.0;

fn compare_integer_double(integer: i128, double: f64) -> Ordering {
    if double.is_nan() {
        Ordering::Greater
    } else if double.abs() >= WHOLE_LIMIT {
        if double > 0.0 { Ordering::Less } else { Ordering::Greater }
    } else {
        let whole = double.trunc();
        integer.cmp(&(whole as i128)).then_with(|| compare_doubles(0.0, double - whole))
    }
}

fn hash_double(double: f64, hasher: &mut impl Hasher) {
    if double.is_nan() {
        f64::NAN.to_bits().hash(hasher);
    } else if double.abs() < WHOLE_LIMIT && double.trunc() == double {
        (double as i128).hash(hasher);
    } else {
        double.to_bits().hash(hasher);
    }
}

fn hash_decimal(decimal: &Decimal, hasher: &mut impl Hasher) {
    let normal = decimal.normalized();
    if normal.scale() <= 0 {
        let whole = normal.coefficient() * 10_u128.pow(normal.scale().unsigned_abs());
        let whole = whole.cast_signed();
        (if normal.is_negative() { -whole } else { whole }).hash(hasher);
    } else {
        let nearest = normal.to_double();
        match normal.cmp_double(nearest) {
            Ordering::Equal => hash_double(nearest, hasher),
            _ => normal.hash(hasher),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::hash::DefaultHasher;

    use proptest::prelude::*;

    use super::*;
    use crate::samples;
    use crate::value::Value;

    fn compared(a: &Value, b: &Value) -> Ordering {
        compare(&a.encode(), &b.encode(), &Collation::Binary)
    }

    fn hashed(bytes: &[u8]) -> u64 {
        let mut hasher = DefaultHasher::new();
        hash(bytes, &Collation::Binary, &mut hasher);
        hasher.finish()
    }

    #[test]
    fn classes_stand_in_order() {
        let ascending = [
            Value::Nil,
            Value::Bool(false),
            Value::Bool(true),
            Value::Double(f64::NAN),
            Value::Double(f64::NEG_INFINITY),
            samples::decimal(-(10_i128.pow(38) - 1), 0),
            Value::Int(i64::MIN),
            Value::Int(-1),
            samples::decimal(-5, 1),
            Value::Double(-5e-324),
            Value::Uint(0),
            Value::Double(5e-324),
            samples::decimal(1, 38),
            Value::Uint(1 << 53),
            Value::Uint((1 << 53) + 1),
            Value::Double(9_007_199_254_740_994.0),
            Value::Uint(u64::MAX),
            Value::Double(18_446_744_073_709_551_616.0),
            Value::Double(1e38),
            samples::decimal(10_i128.pow(38) - 1, 0),
            Value::Double(f64::INFINITY),
            Value::str(""),
            Value::str("a"),
            Value::str("ab"),
            Value::str("b"),
            Value::bin(""),
            Value::bin("a"),
            Value::Ext(mp::EXT_UUID, vec![0; 16]),
            Value::Ext(mp::EXT_UUID, vec![1; 16]),
            Value::Ext(9, vec![]),
            Value::Array(vec![]),
            Value::Map(vec![]),
        ];
        for (a_place, a) in ascending.iter().enumerate() {
            for (b_place, b) in ascending.iter().enumerate() {
                assert_eq!(compared(a, b), a_place.cmp(&b_place), "{a} {b}");
            }
        }
    }

    #[test]
    fn one_number_in_many_forms() {
        let one: [&[u8]; 8] = [
            &[0x01],
            &[0xcc, 0x01],
            &[0xcf, 0, 0, 0, 0, 0, 0, 0, 1],
            &[0xd0, 0x01],
            &[0xca, 0x3f, 0x80, 0, 0],
            &[0xcb, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0],
            &[0xd5, 0x01, 0x00, 0x1c],
            &[0xc7, 0x03, 0x01, 0x02, 0x10, 0x0c],
        ];
        for a in one {
            for b in one {
                assert_eq!(compare(a, b, &Collation::Binary), Ordering::Equal);
                assert_eq!(hashed(a), hashed(b));
            }
        }
        let zeros = [Value::Uint(0), Value::Double(-0.0), Value::Float(-0.0), Value::Ext(1, vec![0, 0x0d])];
        for zero in &zeros {
            assert_eq!(compared(zero, &zeros[0]), Ordering::Equal);
            assert_eq!(hashed(&zero.encode()), hashed(&[0]));
        }
    }

    #[test]
    fn malformed_bytes_have_a_place_too() {
        let broken: [&[u8]; 6] = [&[], &[0xcd, 0x01], &[0xa5, b'x'], &[0xd4, 0x01, 0x00], &[0xc1], &[0x91]];
        for a in broken {
            assert_eq!(compare(a, a, &Collation::Binary), Ordering::Equal);
            assert_eq!(compare(a, &[0x05], &Collation::Binary), Ordering::Greater);
            for b in broken {
                let there = compare(a, b, &Collation::Binary);
                assert_eq!(there.reverse(), compare(b, a, &Collation::Binary));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn order_is_that_of_the_model(a in samples::scalars(), b in samples::scalars(), wide: [u8; 2]) {
            let a_bytes = samples::encode_widely(&a, wide[0]);
            let b_bytes = samples::encode_widely(&b, wide[1]);
            let ordering = compare(&a_bytes, &b_bytes, &Collation::Binary);
            prop_assert_eq!(ordering, samples::model_compare(&a, &b), "{} {}", a, b);
            if ordering.is_eq() {
                prop_assert_eq!(hashed(&a_bytes), hashed(&b_bytes));
            }
        }

        #[test]
        fn numbers_that_are_equal_hash_equally(whole in samples::integers(), eighths in 0_u8..8) {
            let value = whole as f64 + f64::from(eighths) / 8.0;
            prop_assume!(value.abs() < 1e30);
            let thousandths = (value as i128) * 1000 + ((value - value.trunc()) * 1000.0) as i128;
            let decimal = samples::decimal(thousandths, 3);
            prop_assert_eq!(compared(&Value::Double(value), &decimal), Ordering::Equal);
            prop_assert_eq!(hashed(&Value::Double(value).encode()), hashed(&decimal.encode()));
        }

        #[test]
        fn any_bytes_are_ordered(a: Vec<u8>, b: Vec<u8>, c: Vec<u8>) {
            let compare = |a: &[u8], b: &[u8]| compare(a, b, &Collation::Binary);
            prop_assert_eq!(compare(&a, &b), compare(&b, &a).reverse());
            let mut sorted = [&a, &b, &c];
            sorted.sort_by(|a, b| compare(a, b));
            prop_assert!(compare(sorted[0], sorted[2]).is_le());
            hashed(&a);
        }
    }
}
