//! Decimals: MessagePack extension 1.
//!
//! A decimal is `±coefficient × 10^−scale` with at most [`DIGITS`] significant digits. Scale and value are two things:
//! `1.0` and `1.00` keep their digits when they are stored, and are equal: `==`, `Ord` and `Hash` go by value. Every
//! number of up to 38 digits fits into a `u128`, so arithmetic and comparisons do not allocate.
//!
//! Invariants of every [`Decimal`], whichever way it was made:
//!
//! - `coefficient < 10^38`;
//! - `scale ≤ 38`, and the number is below `10^38`: those are the bounds that Tarantool accepts.
//!
//! Addition and subtraction follow Tarantool: exact where the result has at most 38 digits, else rounded half away
//! from zero to 38 digits; a result of `10^38` or more is an overflow. Comparison is exact against decimals,
//! integers and doubles (Tarantool itself rounds doubles to 15 digits there).
//!
//! Products, quotients, powers and the like, which only programs need, are in `math`.

mod math;

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use crate::mp::{self, Reader};

/// The greatest number of significant digits, and the greatest scale.
pub const DIGITS: u32 = 38;

/// A text that is no decimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseDecimalError {
    /// The text is not a number.
    #[error("malformed decimal")]
    Malformed,
    /// More than 38 digits, a scale above 38, or a number of 10^38 or more.
    #[error("decimal is out of range")]
    Range,
}

/// A decimal number.
#[derive(Debug, Clone, Copy)]
pub struct Decimal {
    coefficient: u128,
    scale: i32,
    negative: bool,
}

impl Decimal {
    /// Zero, scale 0.
    pub const ZERO: Self = Self { coefficient: 0, scale: 0, negative: false };

    /// Decodes the payload of an extension 1: the scale as a MessagePack integer, then binary coded digits whose last
    /// nibble is the sign. `None` if it is anything else, or out of range.
    pub fn from_ext(payload: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(payload);
        let scale = i32::try_from(reader.int().ok()?).ok()?;
        let (&last, digits) = reader.rest().split_last()?;
        let mut coefficient = 0_u128;
        for nibble in digits.iter().flat_map(|byte| [byte >> 4, byte & 0x0f]).chain([last >> 4]) {
            coefficient = push_digit(coefficient, nibble)?;
        }
        let negative = match last & 0x0f {
            0xa | 0xc | 0xe | 0xf => false,
            0xb | 0xd => true,
            _ => return None,
        };
        Self::checked(coefficient, scale, negative)
    }

    /// Appends the decimal as a whole MessagePack value.
    pub fn encode(self, out: &mut Vec<u8>) {
        // The scale takes at most two bytes, 38 digits and the sign take twenty.
        let mut payload = Vec::with_capacity(22);
        mp::write_int(&mut payload, i64::from(self.scale));
        let digits = digit_count(self.coefficient);
        let mut high = if digits.is_multiple_of(2) { Some(0_u8) } else { None };
        for place in (0..digits).rev() {
            let digit = (self.coefficient / power_of_ten(place) % 10) as u8;
            match high.take() {
                Some(first) => payload.push(first << 4 | digit),
                None => high = Some(digit),
            }
        }
        let sign = if self.negative { 0x0d } else { 0x0c };
        payload.push(high.unwrap_or(0) << 4 | sign);
        mp::write_ext(out, mp::EXT_DECIMAL, &payload);
    }

    /// An integer; every integer of MessagePack fits. `None` beyond 38 digits.
    pub fn from_integer(value: i128) -> Option<Self> {
        Self::checked(value.unsigned_abs(), 0, value < 0)
    }

    /// The decimal that Tarantool makes of a double in arithmetic: its 15 most significant digits, as `%.15g` prints
    /// them, rounded to scale 38. `None` for infinities, NaN and absolute values of 10^38 or more.
    pub fn from_double(value: f64) -> Option<Self> {
        const PRINTED: i32 = 15;
        if !value.is_finite() {
            return None;
        }
        let text = format!("{:.14e}", value.abs());
        let (digits, exponent) = text.split_once('e')?;
        let exponent: i32 = exponent.parse().ok()?;
        let mut coefficient = digits
            .bytes()
            .filter(u8::is_ascii_digit)
            .fold(0_u128, |number, digit| number * 10 + u128::from(digit - b'0'));
        let mut scale = PRINTED - 1 - exponent;
        // `%g` drops trailing zeros of a fraction; zeros before the point go only where it prints an exponent.
        let least = if exponent < PRINTED { 0 } else { i32::MIN };
        while scale > least && coefficient.is_multiple_of(10) && coefficient != 0 {
            coefficient /= 10;
            scale -= 1;
        }
        if coefficient == 0 {
            scale = 0;
        }
        let excess = scale - DIGITS as i32;
        if excess > 0 {
            coefficient = round_half_up(coefficient, excess.unsigned_abs());
            scale = DIGITS as i32;
        }
        Self::checked(coefficient, scale, value.is_sign_negative())
    }

    /// The digits, below 10^38.
    pub const fn coefficient(self) -> u128 {
        self.coefficient
    }

    /// The number of digits after the point. A negative scale counts the zeros behind the coefficient.
    pub const fn scale(self) -> i32 {
        self.scale
    }

    /// Whether the sign is minus: of −0 too.
    pub const fn is_negative(self) -> bool {
        self.negative
    }

    /// Whether the number is zero, of either sign.
    pub const fn is_zero(self) -> bool {
        self.coefficient == 0
    }

    /// The sum, rounded to 38 digits if it has more; `None` from 10^38 on.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        let scale = self.scale.max(other.scale);
        let left = Wide::scaled(self.coefficient, scale.abs_diff(self.scale));
        let right = Wide::scaled(other.coefficient, scale.abs_diff(other.scale));
        let (sum, negative) = if self.negative == other.negative {
            (left.plus(&right), self.negative)
        } else {
            match left.compare(&right) {
                Ordering::Equal => (Wide::ZERO, false),
                Ordering::Greater => (left.minus(&right), self.negative),
                Ordering::Less => (right.minus(&left), other.negative),
            }
        };
        let (coefficient, dropped) = sum.rounded();
        Self::checked(coefficient, scale - dropped.cast_signed(), negative)
    }

    /// The difference, under the same rules as [`Self::checked_add`].
    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.checked_add(Self { negative: !other.negative, ..other })
    }

    /// The same number without trailing zeros, and +0 with scale 0 for every zero: equal numbers have equal normal
    /// forms.
    pub fn normalized(self) -> Self {
        if self.coefficient == 0 {
            return Self::ZERO;
        }
        let mut normal = self;
        while normal.coefficient.is_multiple_of(10) {
            normal.coefficient /= 10;
            normal.scale -= 1;
        }
        normal
    }

    /// The nearest double. It grows with the number, if not strictly.
    pub fn to_double(self) -> f64 {
        let text = format!("{}e{}", self.coefficient, -self.scale);
        let absolute: f64 = text.parse().expect("digits and an exponent are a number");
        if self.negative { -absolute } else { absolute }
    }

    /// The greatest integer that is not above the number, and the first 64 bits of the fraction, if it has one.
    pub(crate) fn split(self) -> (i128, Option<u64>) {
        if self.scale <= 0 {
            let whole = (self.coefficient * power_of_ten(self.scale.unsigned_abs())).cast_signed();
            return (if self.negative { -whole } else { whole }, None);
        }
        let one = power_of_ten(self.scale.unsigned_abs());
        let (whole, rest) = ((self.coefficient / one).cast_signed(), self.coefficient % one);
        if rest == 0 {
            return (if self.negative { -whole } else { whole }, None);
        }
        let (whole, mut rest) = if self.negative { (-1 - whole, one - rest) } else { (whole, rest) };
        let mut fraction = 0_u64;
        for _ in 0..u64::BITS {
            rest *= 2;
            let bit = rest >= one;
            rest -= if bit { one } else { 0 };
            fraction = fraction << 1 | u64::from(bit);
        }
        (whole, Some(fraction))
    }

    /// Compares with an integer.
    pub fn cmp_integer(&self, other: i128) -> Ordering {
        match Self::from_integer(other) {
            Some(other) => self.cmp(&other),
            None if other < 0 => Ordering::Greater,
            None => Ordering::Less,
        }
    }

    /// Compares with a double, exactly. NaN sorts below everything else, as in Tarantool's indexes.
    pub fn cmp_double(&self, other: f64) -> Ordering {
        if other.is_nan() {
            return Ordering::Greater;
        }
        let other_sign = i32::from(other > 0.0) - i32::from(other < 0.0);
        self.signum().cmp(&other_sign).then_with(|| match other_sign {
            0 => Ordering::Equal,
            1 => self.cmp_absolute_double(other),
            _ => self.cmp_absolute_double(-other).reverse(),
        })
    }

    /// A decimal within the bounds of the type.
    fn checked(coefficient: u128, scale: i32, negative: bool) -> Option<Self> {
        let limit = DIGITS.cast_signed();
        let whole_digits = i64::from(digit_count(coefficient)) - i64::from(scale);
        let in_range =
            coefficient < power_of_ten(DIGITS) && scale <= limit && whole_digits <= i64::from(limit);
        in_range.then_some(Self { coefficient, scale, negative })
    }

    const fn signum(self) -> i32 {
        match (self.coefficient, self.negative) {
            (0, _) => 0,
            (_, true) => -1,
            (_, false) => 1,
        }
    }

    /// Compares absolute values; neither may be zero.
    fn cmp_absolute(self, other: Self) -> Ordering {
        let (left_digits, right_digits) = (digit_count(self.coefficient), digit_count(other.coefficient));
        let left_magnitude = left_digits.cast_signed() - self.scale;
        let right_magnitude = right_digits.cast_signed() - other.scale;
        // Of one magnitude, the shorter coefficient lacks trailing zeros only: padded, both have at most 38 digits.
        left_magnitude.cmp(&right_magnitude).then_with(|| {
            let left = self.coefficient * power_of_ten(right_digits.saturating_sub(left_digits));
            let right = other.coefficient * power_of_ten(left_digits.saturating_sub(right_digits));
            left.cmp(&right)
        })
    }

    /// Compares absolute values; neither may be zero, and `other` is positive.
    fn cmp_absolute_double(self, other: f64) -> Ordering {
        if other >= 1e39 {
            return Ordering::Less;
        }
        if other <= 1e-39 {
            return Ordering::Greater;
        }
        // |self| × 10^scale × 2^shift against mantissa × …, all factors whole: at most 38 + 38 digits and 184 bits.
        let bits = other.to_bits();
        let exponent = (bits >> 52 & 0x7ff) as i32 - 1075;
        let mantissa = u128::from(bits & ((1 << 52) - 1) | 1 << 52);
        let tens = self.scale.unsigned_abs();
        let twos = exponent.unsigned_abs();
        let mut left = Wide::scaled(self.coefficient, if self.scale < 0 { tens } else { 0 });
        let mut right = Wide::scaled(mantissa, if self.scale > 0 { tens } else { 0 });
        if exponent < 0 {
            left = left.shifted(twos);
        } else {
            right = right.shifted(twos);
        }
        left.compare(&right)
    }
}

impl PartialEq for Decimal {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Decimal {}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// By value: `1.0` equals `1.00`, −0 equals 0.
impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        self.signum().cmp(&other.signum()).then_with(|| match self.signum() {
            0 => Ordering::Equal,
            1 => self.cmp_absolute(*other),
            _ => self.cmp_absolute(*other).reverse(),
        })
    }
}

impl Hash for Decimal {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let normal = self.normalized();
        (normal.coefficient, normal.scale, normal.negative).hash(state);
    }
}

/// The number without an exponent, with its trailing zeros: `1.50`, `-0.00`, `1000`.
impl fmt::Display for Decimal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = self.scale.max(0) as usize;
        let zeros = if self.is_zero() { 0 } else { self.scale.min(0).unsigned_abs() as usize };
        let digits = format!("{:0>width$}", self.coefficient, width = places + 1);
        let (whole, fraction) = digits.split_at(digits.len() - places);
        let sign = if self.negative { "-" } else { "" };
        let point = if places > 0 { "." } else { "" };
        write!(formatter, "{sign}{whole}{:0<zeros$}{point}{fraction}", "")
    }
}

/// The text of a number: its sign, its digits with the point, its exponent.
struct Parts<'a> {
    negative: bool,
    number: &'a [u8],
    exponent: i32,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Result<Self, ParseDecimalError> {
        let (number, exponent) = match text.split_once(['e', 'E']) {
            Some((number, exponent)) => {
                (number, exponent.parse::<i32>().map_err(|_| ParseDecimalError::Malformed)?)
            }
            None => (text, 0),
        };
        let (negative, number) = match number.as_bytes() {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        Ok(Self { negative, number, exponent })
    }
}

/// Digits with an optional sign, point and exponent: `-12.50`, `.5`, `1e-3`. Digits beyond scale 38 are refused.
impl FromStr for Decimal {
    type Err = ParseDecimalError;

    fn from_str(text: &str) -> Result<Self, ParseDecimalError> {
        let Parts { negative, number, exponent } = Parts::of(text)?;
        let (mut coefficient, mut places, mut digits, mut in_fraction) = (0_u128, 0_i32, 0_u32, false);
        for &byte in number {
            match byte {
                b'0'..=b'9' => {
                    coefficient = push_digit(coefficient, byte - b'0').ok_or(ParseDecimalError::Range)?;
                    digits = digits.saturating_add(1);
                    places = places.saturating_add(i32::from(in_fraction));
                }
                b'.' if !in_fraction => in_fraction = true,
                _ => return Err(ParseDecimalError::Malformed),
            }
        }
        if digits == 0 {
            return Err(ParseDecimalError::Malformed);
        }
        let scale = places.checked_sub(exponent).ok_or(ParseDecimalError::Range)?;
        Self::checked(coefficient, scale, negative).ok_or(ParseDecimalError::Range)
    }
}

/// The coefficient with one more digit at its end. `None` if that is no digit, or one too many.
fn push_digit(coefficient: u128, digit: u8) -> Option<u128> {
    (digit < 10 && coefficient < power_of_ten(DIGITS - 1)).then(|| coefficient * 10 + u128::from(digit))
}

/// 10^`exponent`; saturates at 10^38, which no coefficient reaches.
const fn power_of_ten(exponent: u32) -> u128 {
    10_u128.pow(if exponent > DIGITS { DIGITS } else { exponent })
}

/// The number of decimal digits; zero has one.
const fn digit_count(number: u128) -> u32 {
    match number.checked_ilog10() {
        Some(logarithm) => logarithm + 1,
        None => 1,
    }
}

/// `number / 10^places`, halves away from zero.
const fn round_half_up(number: u128, places: u32) -> u128 {
    if places == 0 {
        return number;
    }
    if places > DIGITS {
        return 0;
    }
    (number / power_of_ten(places - 1) + 5) / 10
}

/// An unsigned integer of 448 bits, least word first. The greatest number ever held is a coefficient (38 digits) times
/// 10^76 — scales from −38 to 38 — in a sum, which is below 2^380.
#[derive(Clone, Copy)]
struct Wide([u64; 7]);

impl Wide {
    const ZERO: Self = Self([0; 7]);

    /// `number × 10^tens`.
    fn scaled(number: u128, tens: u32) -> Self {
        let mut wide = Self::ZERO;
        wide.0[0] = number as u64;
        wide.0[1] = (number >> 64) as u64;
        let mut left = tens;
        while left > 0 {
            let step = left.min(19);
            wide.multiply(10_u64.pow(step));
            left -= step;
        }
        wide
    }

    fn multiply(&mut self, factor: u64) {
        let mut carry = 0_u128;
        for word in &mut self.0 {
            let product = u128::from(*word) * u128::from(factor) + carry;
            *word = product as u64;
            carry = product >> 64;
        }
    }

    /// `self × 2^twos`.
    fn shifted(mut self, twos: u32) -> Self {
        let mut left = twos;
        while left > 0 {
            let step = left.min(63);
            self.multiply(1 << step);
            left -= step;
        }
        self
    }

    fn plus(mut self, other: &Self) -> Self {
        let mut carry = false;
        for (word, addend) in self.0.iter_mut().zip(other.0) {
            (*word, carry) = word.carrying_add(addend, carry);
        }
        self
    }

    /// `self − other`, which must not be greater.
    fn minus(mut self, other: &Self) -> Self {
        let mut borrow = false;
        for (word, subtrahend) in self.0.iter_mut().zip(other.0) {
            (*word, borrow) = word.borrowing_sub(subtrahend, borrow);
        }
        self
    }

    fn compare(&self, other: &Self) -> Ordering {
        self.0.iter().rev().cmp(other.0.iter().rev())
    }

    /// Divides by ten in place and returns the remainder.
    fn divide_by_ten(&mut self) -> u128 {
        let mut remainder = 0_u128;
        for word in self.0.iter_mut().rev() {
            let dividend = remainder << 64 | u128::from(*word);
            *word = (dividend / 10) as u64;
            remainder = dividend % 10;
        }
        remainder
    }

    /// The number rounded to 38 digits, halves away from zero, and how many digits that dropped.
    fn rounded(mut self) -> (u128, u32) {
        let limit = Self::scaled(1, DIGITS);
        let (mut dropped, mut last) = (0, 0);
        while self.compare(&limit).is_ge() {
            last = self.divide_by_ten();
            dropped += 1;
        }
        let [low, high, ..] = self.0;
        // The last digit dropped decides: those behind it cannot turn less than a half into one.
        let number = (u128::from(high) << 64 | u128::from(low)) + u128::from(last >= 5);
        if number < power_of_ten(DIGITS) { (number, dropped) } else { (number / 10, dropped + 1) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decimal(text: &str) -> Decimal {
        text.parse().unwrap()
    }

    fn encoded(decimal: Decimal) -> Vec<u8> {
        let mut out = Vec::new();
        decimal.encode(&mut out);
        out
    }

    /// All that a decimal is, not only its value.
    fn parts(decimal: Decimal) -> (u128, i32, bool) {
        (decimal.coefficient(), decimal.scale(), decimal.is_negative())
    }

    #[test]
    fn has_the_bytes_of_tarantool() {
        let cases: &[(&str, &[u8])] = &[
            ("-0.5", &[0xd5, 0x01, 0x01, 0x5d]),
            ("1.10", &[0xc7, 0x03, 0x01, 0x02, 0x11, 0x0c]),
            ("-0", &[0xd5, 0x01, 0x00, 0x0d]),
            ("0.00", &[0xd5, 0x01, 0x02, 0x0c]),
            ("2e30", &[0xd5, 0x01, 0xe2, 0x2c]),
            ("10.5", &[0xc7, 0x03, 0x01, 0x01, 0x10, 0x5c]),
        ];
        for (text, bytes) in cases {
            assert_eq!(encoded(decimal(text)), *bytes, "{text}");
            let (_, payload) = Reader::new(bytes).ext().unwrap();
            assert_eq!(Decimal::from_ext(payload).map(parts), Some(parts(decimal(text))), "{text}");
        }
    }

    #[test]
    fn reads_other_signs_scales_and_leading_zeros() {
        for (payload, text) in [
            (&[0x01, 0x5a][..], "0.5"),
            (&[0x01, 0x5b], "-0.5"),
            (&[0x01, 0x5e], "0.5"),
            (&[0x01, 0x5f], "0.5"),
            (&[0x01, 0x00, 0x00, 0x5c], "0.5"),
            (&[0xd0, 0xff, 0x1c], "1e1"),
            (&[0xcc, 0x01, 0x1c], "0.1"),
        ] {
            assert_eq!(Decimal::from_ext(payload).map(parts), Some(parts(decimal(text))), "{payload:02x?}");
        }
    }

    #[test]
    fn refuses_what_is_no_decimal() {
        let mut long = vec![0x00];
        long.extend([0x99; 19]);
        long.push(0x9c);
        for payload in [
            &[][..],
            &[0x01],
            &[0x01, 0x59],
            &[0x01, 0xac],
            &[0xa0, 0x1c],
            &[39, 0x1c],
            &[0xd0, 0xda, 0x1c],
            &long,
        ] {
            assert_eq!(Decimal::from_ext(payload), None, "{payload:02x?}");
        }
        for text in ["", "-", ".", "1.2.3", "1e", "x", "1 ", "0x1"] {
            assert_eq!(text.parse::<Decimal>(), Err(ParseDecimalError::Malformed), "{text}");
        }
        for text in ["1e38", "1e-39", "123456789012345678901234567890123456789", "1e99999999999"] {
            assert!(text.parse::<Decimal>().is_err(), "{text}");
        }
    }

    #[test]
    fn prints_digits_without_an_exponent() {
        for (text, printed) in [
            ("1e30", "1000000000000000000000000000000"),
            ("-0", "-0"),
            ("0.00", "0.00"),
            ("1.50", "1.50"),
            ("-123.4", "-123.4"),
            ("1e-3", "0.001"),
            (".5", "0.5"),
            ("0e5", "0"),
            ("12e3", "12000"),
        ] {
            assert_eq!(decimal(text).to_string(), printed);
        }
    }

    #[test]
    fn adds_as_tarantool_does() {
        let nines = "9".repeat(38);
        let with_sign = format!("-{nines}");
        let cases = [
            ("1.10", "1.9", Some("3.00")),
            ("1.0", "-1.0", Some("0.0")),
            ("-0", "-0", Some("-0")),
            ("-0", "0", Some("0")),
            ("1e30", "1e30", Some("2e30")),
            ("1e30", "1", Some("1000000000000000000000000000001")),
            ("1e37", "0.55", Some("10000000000000000000000000000000000001")),
            ("1e36", "0.45", Some("1000000000000000000000000000000000000.5")),
            ("1e36", "-0.55", Some("999999999999999999999999999999999999.45")),
            ("1e37", "1e-37", Some("10000000000000000000000000000000000000")),
            (&nines, "0.4", Some(nines.as_str())),
            (&nines, "0.5", None),
            (&nines, "1", None),
            (&with_sign, "-0.5", None),
            (&with_sign, "1", Some("-99999999999999999999999999999999999998")),
        ];
        for (left, right, sum) in cases {
            let (left, right) = (decimal(left), decimal(right));
            let expected = sum.map(|text| parts(decimal(text)));
            assert_eq!(left.checked_add(right).map(parts), expected, "{left} + {right}");
            assert_eq!(right.checked_add(left).map(parts), expected, "{right} + {left}");
        }
    }

    #[test]
    fn takes_fifteen_digits_of_a_double() {
        for (double, text) in [
            (0.1, "0.1"),
            (1.0 / 3.0, "0.333333333333333"),
            (100.0, "100"),
            (1e15, "1e15"),
            (1e14, "100000000000000"),
            (123_456_789_012_345_680.0, "123456789012346e3"),
            (0.1 + 0.2, "0.3"),
            (1.5e-37, "0.15e-36"),
            (1.5e-38, "2e-38"),
            (1e-300, "0e-38"),
            (-0.0, "-0"),
            (-2.5, "-2.5"),
            (1e37, "1e37"),
        ] {
            assert_eq!(Decimal::from_double(double).map(parts), Some(parts(decimal(text))), "{double}");
        }
        for double in [1e38, -1e300, f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
            assert_eq!(Decimal::from_double(double), None, "{double}");
        }
    }

    #[test]
    fn compares_exactly_with_doubles() {
        use Ordering::{Equal, Greater, Less};
        for (text, double, expected) in [
            ("0.1", 0.1, Less),
            ("0.1000000000000000055511151231257827021", 0.1, Less),
            ("0.1000000000000000055511151231257827022", 0.1, Greater),
            ("0.5", 0.5, Equal),
            ("-0.50", -0.5, Equal),
            ("9007199254740993", 9_007_199_254_740_992.0, Greater),
            ("1e37", 1e37, Greater),
            ("-1e37", 1e37, Less),
            ("99999999999999999999999999999999999999", f64::MAX, Less),
            ("1e-38", 5e-324, Greater),
            ("-1e-38", -5e-324, Less),
            ("0", 5e-324, Less),
            ("0", -0.0, Equal),
            ("0", f64::NAN, Greater),
            ("-99999999999999999999999999999999999999", f64::NEG_INFINITY, Greater),
        ] {
            assert_eq!(decimal(text).cmp_double(double), expected, "{text} and {double}");
        }
    }

    fn decimals() -> impl Strategy<Value = Decimal> {
        let coefficients = prop_oneof![
            0_u128..20,
            0_u128..10_u128.pow(38),
            (0_u32..38).prop_map(|places| 10_u128.pow(places))
        ];
        (coefficients, -37_i32..=38, any::<bool>())
            .prop_filter_map("out of range", |(coefficient, scale, negative)| {
                Decimal::checked(coefficient, scale, negative)
            })
    }

    /// Decimals whose sums have at most 38 digits: thousandths, kept in integers by the model.
    fn thousandths() -> impl Strategy<Value = i128> {
        prop_oneof![-5_i128..5, -10_i128.pow(36)..10_i128.pow(36)]
    }

    fn of_thousandths(number: i128) -> Decimal {
        Decimal::checked(number.unsigned_abs(), 3, number < 0).unwrap()
    }

    proptest! {
        #[test]
        fn bytes_and_text_read_back(number in decimals()) {
            let bytes = encoded(number);
            let (_, payload) = Reader::new(&bytes).ext().unwrap();
            prop_assert_eq!(Decimal::from_ext(payload).map(parts), Some(parts(number)));
            prop_assert_eq!(number.to_string().parse(), Ok(number));
        }

        #[test]
        fn any_payload_is_a_decimal_or_none(payload in proptest::collection::vec(any::<u8>(), 0..24)) {
            if let Some(number) = Decimal::from_ext(&payload) {
                prop_assert!(number.coefficient() < power_of_ten(DIGITS));
            }
        }

        #[test]
        fn arithmetic_and_order_agree_with_integers(left in thousandths(), right in thousandths()) {
            let (a, b) = (of_thousandths(left), of_thousandths(right));
            prop_assert_eq!(a.checked_add(b), Some(of_thousandths(left + right)));
            prop_assert_eq!(a.checked_sub(b), Some(of_thousandths(left - right)));
            prop_assert_eq!(a.cmp(&b), left.cmp(&right));
            prop_assert_eq!(a.cmp_integer(right / 1000), left.cmp(&(right / 1000 * 1000)));
        }

        #[test]
        fn equal_numbers_have_one_normal_form(number in decimals(), other in decimals()) {
            prop_assert_eq!(number.normalized(), number);
            prop_assert_eq!(parts(number.normalized()) == parts(other.normalized()), number == other);
            prop_assert_eq!(number.cmp(&other), other.cmp(&number).reverse());
        }

        #[test]
        fn subtraction_is_anticommutative(left in decimals(), right in decimals()) {
            let (forth, back) = (left.checked_sub(right), right.checked_sub(left));
            prop_assert_eq!(forth.is_some(), back.is_some());
            if let (Some(forth), Some(back)) = (forth, back) {
                prop_assert_eq!(forth.checked_add(back).map(Decimal::is_zero), Some(true));
            }
        }

        #[test]
        fn doubles_stand_where_their_neighbours_say(number in decimals()) {
            let nearest = number.to_double();
            prop_assert_eq!(number.cmp_double(nearest.next_up()).is_lt() && number.cmp_double(nearest.next_down()).is_gt(), true);
        }
    }
}
