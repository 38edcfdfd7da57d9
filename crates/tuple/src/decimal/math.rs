//! Arithmetic beyond sums: products, quotients, powers, roots, exponentials and logarithms, as programs have them.
//!
//! Results have at most 38 digits and 38 places, rounded half away from zero; those of 10^38 or more are errors. Products,
//! quotients and roots are rounded once from the exact result. The transcendental functions are computed with
//! 57 places, and integer powers with 60 digits, before that rounding.

use super::{DIGITS, Decimal, Ordering, ParseDecimalError, Parts, Wide, digit_count, round_half_up};

/// Places of the fixed-point numbers that the transcendental functions are computed with.
const PLACES: u32 = 57;
/// Digits of the intermediate results of a power.
const POWER_DIGITS: u32 = 60;
/// The greatest whole exponent that is a chain of products; greater ones take logarithms.
const MAX_WHOLE: u128 = 999_999_999;
/// Beyond e^±this everything overflows, or is zero.
const MAX_EXPONENT: u64 = 100;
/// Places that `ln` has at most, as in Tarantool.
const LN_PLACES: i64 = 37;
/// ln 10 with [`PLACES`] places: its first 29 digits and the other 29.
const LN_10: (u128, u128) = (23_025_850_929_940_456_840_179_914_546, 84_364_207_601_101_488_628_772_976_033);

impl Decimal {
    /// Reads a text as [`str::parse`] does, and rounds a number of more than 38 digits or places.
    ///
    /// # Errors
    /// A text that is no number, or a number of 10^38 or more.
    pub fn parse_rounded(text: &str) -> Result<Self, ParseDecimalError> {
        /// More than [`DIGITS`], so that the digit after the last one decides, and fewer than [`Wide`] holds.
        const KEPT: u32 = 60;
        let Parts { negative, number, exponent } = Parts::of(text)?;
        let (mut digits, mut scale, mut kept, mut in_fraction, mut any) =
            (Wide::ZERO, -i64::from(exponent), 0, false, false);
        for &byte in number {
            match byte {
                b'0'..=b'9' => {
                    any = true;
                    if kept < KEPT {
                        digits.multiply(10);
                        digits = digits.plus(&Wide::scaled(u128::from(byte - b'0'), 0));
                        kept += u32::from(!digits.is_zero());
                        scale += i64::from(in_fraction);
                    } else {
                        scale -= i64::from(!in_fraction);
                    }
                }
                b'.' if !in_fraction => in_fraction = true,
                _ => return Err(ParseDecimalError::Malformed),
            }
        }
        if !any {
            return Err(ParseDecimalError::Malformed);
        }
        digits.finish(scale, negative).ok_or(ParseDecimalError::Range)
    }

    /// The number with the other sign.
    #[must_use]
    pub const fn negated(self) -> Self {
        Self { negative: !self.negative, ..self }
    }

    /// The number without its sign.
    #[must_use]
    pub const fn absolute(self) -> Self {
        Self { negative: false, ..self }
    }

    /// The digits that the number is written with, without a zero before the point.
    pub fn precision(self) -> u32 {
        let whole = digit_count(self.coefficient) + self.scale.min(0).unsigned_abs();
        whole.max(self.scale.max(0).unsigned_abs())
    }

    /// Rounded to at most `places` places (above 38: unchanged). A number that gets one more digit by that loses a
    /// place, as in Tarantool: 99.99 to one place is 100.
    #[must_use]
    pub fn rounded_to(self, places: u32) -> Self {
        let places = places.cast_signed();
        if places >= self.scale {
            return self;
        }
        let digits = self.precision().cast_signed() - self.scale.max(0) + places;
        let mut rounded = Self {
            coefficient: round_half_up(self.coefficient, self.scale.abs_diff(places)),
            scale: places,
            ..self
        };
        if digit_count(rounded.coefficient).cast_signed() > digits.max(1) {
            rounded.coefficient /= 10;
            rounded.scale -= 1;
        }
        rounded
    }

    /// With `places` places exactly: rounded, or with zeros; unchanged if it would have more than 38 digits.
    #[must_use]
    pub fn rescaled(self, places: u32) -> Self {
        if places.cast_signed() <= self.scale || places > DIGITS {
            return self.rounded_to(places);
        }
        let added = places.cast_signed().abs_diff(self.scale);
        if !self.is_zero() && digit_count(self.coefficient) + added > DIGITS {
            return self;
        }
        let [low, high, ..] = Wide::scaled(self.coefficient, added).0;
        Self { coefficient: u128::from(high) << 64 | u128::from(low), scale: places.cast_signed(), ..self }
    }

    /// Without zeros at the end of its fraction.
    #[must_use]
    pub fn trimmed(mut self) -> Self {
        while self.scale > 0 && self.coefficient.is_multiple_of(10) {
            self.coefficient /= 10;
            self.scale -= 1;
        }
        self
    }

    /// The product; `None` from 10^38 on.
    pub fn checked_mul(self, other: Self) -> Option<Self> {
        let product = Wide::scaled(self.coefficient, 0).times(&Wide::scaled(other.coefficient, 0));
        product.finish(i64::from(self.scale) + i64::from(other.scale), self.negative != other.negative)
    }

    /// The quotient; `None` from 10^38 on and by zero. An exact one has no more zeros at its end than the operands
    /// have places.
    pub fn checked_div(self, other: Self) -> Option<Self> {
        if other.is_zero() {
            return None;
        }
        let more =
            (DIGITS + 1 + digit_count(other.coefficient)).saturating_sub(digit_count(self.coefficient));
        let (quotient, rest) =
            Wide::scaled(self.coefficient, more).divided(&Wide::scaled(other.coefficient, 0));
        let ideal = i64::from(self.scale) - i64::from(other.scale);
        quotient.finish_exact(ideal + i64::from(more), ideal, rest.is_zero(), self.negative != other.negative)
    }

    /// What the division by a whole number of times leaves, with the sign of the dividend. `None` by zero and if the
    /// quotient has more than 38 digits.
    pub fn checked_rem(self, other: Self) -> Option<Self> {
        if other.is_zero() {
            return None;
        }
        let scale = self.scale.max(other.scale);
        let left = Wide::scaled(self.coefficient, scale.abs_diff(self.scale));
        let right = Wide::scaled(other.coefficient, scale.abs_diff(other.scale));
        let (quotient, rest) = left.divided(&right);
        if quotient.digits() > DIGITS {
            return None;
        }
        rest.finish(i64::from(scale), self.negative)
    }

    /// The square root; `None` of numbers below zero.
    pub fn checked_sqrt(self) -> Option<Self> {
        // The ideal exponent is half of the number's, rounded down.
        let ideal = i64::from(self.scale.div_euclid(2) + self.scale.rem_euclid(2));
        if self.is_zero() {
            return Wide::ZERO.finish(ideal, self.negative);
        }
        if self.negative {
            return None;
        }
        let odd = self.scale.rem_euclid(2).unsigned_abs();
        let mut more = 2 * (DIGITS + 1) - digit_count(self.coefficient).min(DIGITS);
        more += u32::from(more % 2 != odd);
        let square = Wide::scaled(self.coefficient, more);
        let root = square.root();
        let is_exact = root.times(&root).compare(&square).is_eq();
        root.finish_exact((i64::from(self.scale) + i64::from(more)) / 2, ideal, is_exact, false)
    }

    /// e to the power of the number; `None` from 10^38 on.
    pub fn checked_exp(self) -> Option<Self> {
        if self.is_zero() {
            return Self::from_integer(1);
        }
        exp(self.fixed(), self.negative)
    }

    /// The natural logarithm; `None` of numbers that are not above zero.
    pub fn checked_ln(self) -> Option<Self> {
        if self == Self::from_integer(1)? {
            return Some(Self::ZERO);
        }
        let (ln, negative) = self.ln_fixed()?;
        // Rounded once: to as few digits as either limit leaves.
        let places = LN_PLACES.min(i64::from(DIGITS) - (i64::from(ln.digits()) - i64::from(PLACES)));
        ln.rounded_by(i64::from(PLACES) - places).finish(places, negative)
    }

    /// The decimal logarithm; `None` of numbers that are not above zero.
    pub fn checked_log10(self) -> Option<Self> {
        let normal = self.normalized();
        if normal.coefficient == 1 && !self.negative {
            return Self::from_integer(-i128::from(normal.scale));
        }
        let (ln, negative) = self.ln_fixed()?;
        let (quotient, _) = ln.times(&Wide::scaled(1, PLACES)).divided(&ln_10());
        quotient.finish(i64::from(PLACES), negative)
    }

    /// The number to the power of `exponent`. `None` from 10^38 on, of 0 to a power that is not above zero, and of a
    /// number below zero to one that is not whole.
    pub fn checked_pow(self, exponent: Self) -> Option<Self> {
        let normal = exponent.normalized();
        if self.is_zero() && (exponent.is_zero() || exponent.negative) {
            return None;
        }
        if normal.scale <= 0 {
            // Below 10^38: the scale is above −38.
            let whole = 10_u128.pow(normal.scale.unsigned_abs()).checked_mul(normal.coefficient);
            if let Some(whole) = whole.filter(|whole| *whole <= MAX_WHOLE) {
                return self.whole_power(whole, normal.negative);
            }
        }
        if self.negative {
            return None;
        }
        if self.is_zero() {
            return Some(Self::ZERO);
        }
        let (ln, negative) = self.ln_fixed()?;
        let product = ln.times(&Wide::scaled(normal.coefficient, 0));
        let power = match u32::try_from(normal.scale) {
            Ok(scale) => product.divided(&Wide::scaled(1, scale)).0,
            // Above 10^9 to begin with; the product keeps within its words.
            Err(_) => product.times(&Wide::scaled(1, normal.scale.unsigned_abs())),
        };
        exp(power, negative != normal.negative)
    }

    fn whole_power(self, exponent: u128, inverse: bool) -> Option<Self> {
        if exponent == 0 {
            return Self::from_integer(1);
        }
        let negative = self.negative && !exponent.is_multiple_of(2);
        let mut base = (Wide::scaled(self.coefficient, 0), i64::from(self.scale));
        if inverse {
            let more = POWER_DIGITS + digit_count(self.coefficient);
            let (mut quotient, rest) = Wide::scaled(1, more).divided(&base.0);
            let mut scale = i64::from(more) - base.1;
            if rest.is_zero() {
                quotient = quotient.stripped(&mut scale, (-base.1).max(0));
            }
            base = (quotient, scale);
        }
        let shortened = |(number, scale): (Wide, i64)| {
            let excess = number.digits().saturating_sub(POWER_DIGITS);
            (number.rounded_by(i64::from(excess)), scale - i64::from(excess))
        };
        base = shortened(base);
        let mut power = (Wide::scaled(1, 0), 0);
        for bit in (0..=exponent.ilog2()).rev() {
            power = shortened((power.0.times(&power.0), 2 * power.1));
            if exponent >> bit & 1 == 1 {
                power = shortened((power.0.times(&base.0), power.1 + base.1));
            }
        }
        power.0.finish(power.1, negative)
    }

    /// The absolute value in fixed point; the greatest `Wide` that matters if it is too large for an exponential.
    fn fixed(self) -> Wide {
        if self.absolute().cmp_integer(i128::from(MAX_EXPONENT)).is_gt() {
            return Wide::scaled(u128::from(MAX_EXPONENT) + 1, PLACES);
        }
        // The scale is at most 38 and the number at most 100: both exponents are small.
        Wide::scaled(self.coefficient, PLACES.saturating_add_signed(-self.scale))
    }

    /// The absolute value of the natural logarithm in fixed point, and whether it is below zero.
    fn ln_fixed(self) -> Option<(Wide, bool)> {
        const FIRST: u32 = 15;
        if self.is_zero() || self.negative {
            return None;
        }
        // self = m × 10^tens with 1 ≤ m < 10, and m = e^first × (1 + delta) with a small delta.
        let digits = digit_count(self.coefficient);
        let tens = digits.cast_signed() - 1 - self.scale;
        let mantissa = Wide::scaled(self.coefficient, PLACES + 1 - digits);
        let near = (self.coefficient as f64 / 10_f64.powi(digits.cast_signed() - 1)).ln().max(0.0);
        let first = Wide::scaled((near * 10_f64.powi(FIRST.cast_signed())) as u128, PLACES - FIRST);
        let power = exp_series(&first);
        let (difference, below) = difference(&mantissa, &power);
        let one = Wide::scaled(1, PLACES);
        let delta = difference.times(&one).divided(&power).0;
        // ln(1 + d) = d − d²/2 + d³/3 − d⁴/4, of which the fifth term is below all places.
        let (mut plus, mut minus) = (first, Wide::ZERO);
        let mut term = delta;
        for order in 1..=4_u64 {
            let part = term.divided(&Wide::scaled(u128::from(order), 0)).0;
            if below || order % 2 == 0 {
                minus = minus.plus(&part);
            } else {
                plus = plus.plus(&part);
            }
            term = term.times(&delta).divided(&one).0;
        }
        let mut whole = ln_10();
        whole.multiply(u64::from(tens.unsigned_abs()));
        if tens < 0 {
            minus = minus.plus(&whole);
        } else {
            plus = plus.plus(&whole);
        }
        Some(self::difference(&plus, &minus))
    }
}

/// ln 10 in fixed point.
fn ln_10() -> Wide {
    Wide::scaled(LN_10.0, 29).plus(&Wide::scaled(LN_10.1, 0))
}

/// The absolute difference, and whether it is below zero.
fn difference(left: &Wide, right: &Wide) -> (Wide, bool) {
    match left.compare(right) {
        Ordering::Less => (right.minus(left), true),
        _ => (left.minus(right), false),
    }
}

/// e to the power of a number in fixed point, which is below 3.
fn exp_series(number: &Wide) -> Wide {
    let one = Wide::scaled(1, PLACES);
    let (mut sum, mut term) = (one, one);
    let mut order = 0_u128;
    while !term.is_zero() {
        order += 1;
        let mut divisor = one;
        divisor.multiply(u64::try_from(order).expect("the terms vanish within a hundred steps"));
        term = term.times(number).divided(&divisor).0;
        sum = sum.plus(&term);
    }
    sum
}

/// e to the power of ±`power`, which is in fixed point.
fn exp(power: Wide, negative: bool) -> Option<Decimal> {
    if power.compare(&Wide::scaled(u128::from(MAX_EXPONENT), PLACES)).is_gt() {
        return if negative { Wide::ZERO.finish(i64::from(DIGITS), false) } else { None };
    }
    // ±power = ±tens × ln 10 + rest with a rest from 0 to ln 10.
    let (tens, rest) = power.divided(&ln_10());
    let tens = tens.0[0].cast_signed();
    let (tens, rest) = match (negative, rest.is_zero()) {
        (true, false) => (-tens - 1, ln_10().minus(&rest)),
        (true, true) => (-tens, rest),
        (false, _) => (tens, rest),
    };
    exp_series(&rest).finish(i64::from(PLACES) - tens, false)
}

impl Wide {
    fn is_zero(&self) -> bool {
        self.0 == [0; 7]
    }

    /// The number of bits.
    fn bits(&self) -> u32 {
        let top = self.0.iter().rposition(|word| *word != 0);
        top.map_or(0, |top| 64 * top as u32 + 64 - self.0[top].leading_zeros())
    }

    /// The number of decimal digits; zero has one.
    fn digits(mut self) -> u32 {
        let mut digits = 1;
        self.divide_by_ten();
        while !self.is_zero() {
            self.divide_by_ten();
            digits += 1;
        }
        digits
    }

    /// The product, which has at most 448 bits.
    fn times(&self, other: &Self) -> Self {
        let mut product = Self::ZERO;
        for (place, word) in self.0.iter().enumerate() {
            let mut part = *other;
            part.multiply(*word);
            let mut moved = Self::ZERO;
            moved.0[place..].copy_from_slice(&part.0[..part.0.len() - place]);
            product = product.plus(&moved);
        }
        product
    }

    /// Quotient and rest; the divisor is not zero.
    fn divided(&self, divisor: &Self) -> (Self, Self) {
        let (mut quotient, mut rest) = (Self::ZERO, Self::ZERO);
        for bit in (0..self.bits()).rev() {
            rest.multiply(2);
            rest.0[0] |= self.0[bit as usize / 64] >> (bit % 64) & 1;
            if rest.compare(divisor).is_ge() {
                rest = rest.minus(divisor);
                quotient.0[bit as usize / 64] |= 1 << (bit % 64);
            }
        }
        (quotient, rest)
    }

    /// The whole part of the square root, by Newton's method from above.
    fn root(&self) -> Self {
        let mut root = Self::scaled(1, 0).shifted(self.bits().div_ceil(2));
        loop {
            let next = root.plus(&self.divided(&root).0).divided(&Self::scaled(2, 0)).0;
            if next.compare(&root).is_ge() {
                return root;
            }
            root = next;
        }
    }

    /// Divided by 10^`places`, halves away from zero; unchanged for no places or fewer.
    fn rounded_by(mut self, places: i64) -> Self {
        let mut last = 0;
        for _ in 0..places.min(i64::from(7 * 64_u32)) {
            last = self.divide_by_ten();
        }
        self.plus(&Self::scaled(u128::from(last >= 5), 0))
    }

    /// Without zeros at its end, as long as the scale is above `ideal`.
    fn stripped(mut self, scale: &mut i64, ideal: i64) -> Self {
        while *scale > ideal && !self.is_zero() {
            let mut shorter = self;
            if shorter.divide_by_ten() != 0 {
                break;
            }
            self = shorter;
            *scale -= 1;
        }
        self
    }

    /// The decimal of an exact result, which comes nearest to a scale; of another one, every digit there is.
    fn finish_exact(self, mut scale: i64, ideal: i64, is_exact: bool, negative: bool) -> Option<Decimal> {
        if self.is_zero() && is_exact {
            return self.finish(ideal, negative);
        }
        let number = if is_exact { self.stripped(&mut scale, ideal) } else { self };
        number.finish(scale, negative)
    }

    /// The decimal `±self × 10^−scale`, rounded once to 38 digits and places; `None` from 10^38 on.
    fn finish(self, scale: i64, negative: bool) -> Option<Decimal> {
        let limit = i64::from(DIGITS);
        if self.is_zero() {
            let scale = i32::try_from(scale.clamp(0, limit)).ok()?;
            return Some(Decimal { coefficient: 0, scale, negative });
        }
        let dropped = (i64::from(self.digits()) - limit).max(scale - limit).max(0);
        // One digit more can come of the rounding.
        let (coefficient, more) = self.rounded_by(dropped).rounded();
        let scale = i32::try_from(scale - dropped - i64::from(more)).ok()?;
        if scale < -DIGITS.cast_signed() {
            return None;
        }
        Decimal::checked(coefficient, scale, negative)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Decimal {
        text.parse().unwrap()
    }

    #[test]
    fn functions_have_the_digits_of_tarantool() {
        let text = |number: Option<Decimal>| number.map_or_else(String::new, |number| number.to_string());
        assert_eq!(text(decimal("2").checked_sqrt()), "1.4142135623730950488016887242096980786");
        assert_eq!(text(decimal("1").checked_exp()), "2.7182818284590452353602874713526624978");
        assert_eq!(text(decimal("2").checked_ln()), "0.6931471805599453094172321214581765681");
        assert_eq!(text(decimal("2").checked_log10()), "0.30102999566398119521373889472449302677");
        assert_eq!(
            text(decimal("1.1").checked_pow(decimal("100"))),
            "13780.612339822270184118337172089636776"
        );
        assert_eq!(text(decimal("1").checked_div(decimal("0"))), "");
    }

    #[test]
    fn digits_that_have_no_place_are_rounded() {
        let rounded = Decimal::parse_rounded("0.123456789012345678901234567890123456785").unwrap();
        assert_eq!(rounded.to_string(), "0.12345678901234567890123456789012345679");
        assert_eq!(Decimal::parse_rounded("1e38"), Err(ParseDecimalError::Range));
        assert_eq!(Decimal::parse_rounded("1e"), Err(ParseDecimalError::Malformed));
    }
}
