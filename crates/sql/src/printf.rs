//! PRINTF: a text made of a format and values.

use lycosa_tuple::value::Value;

use crate::SqlFault;
use crate::effort::{Effort, weight_of_text};
use crate::eval::MAX_MADE;
use crate::functions::{as_text, double_text, to_double, to_int};
use crate::value::execution;

/// Characters of a field, and digits behind the point, that a format may ask for.
const MAX_WIDTH: usize = 100_000;
const MAX_PRECISION: usize = 1000;

/// A conversion: what stands between `%` and its letter.
#[derive(Debug, Default)]
struct Conversion {
    left: bool,
    plus: bool,
    blank: bool,
    zero: bool,
    alternate: bool,
    width: usize,
    precision: Option<usize>,
}

/// The text that a format makes of values. Values that lack are NULL.
///
/// # Errors
/// A text of more than [`MAX_MADE`] bytes.
pub(crate) fn printed(format: &str, values: &[Value], effort: &Effort) -> Result<String, SqlFault> {
    let (mut out, mut rest, mut values) = (String::new(), format.chars().peekable(), values.iter());
    while let Some(character) = rest.next() {
        if character != '%' {
            out.push(character);
            continue;
        }
        let mut conversion = Conversion::default();
        let letter = conversion.read(&mut rest, &mut values);
        match letter {
            Some('%') => out.push('%'),
            Some(letter) => {
                let Some(text) = conversion.converted(letter, values.next().unwrap_or(&Value::Nil)) else {
                    break;
                };
                let text = conversion.padded(text, letter);
                effort.spend(weight_of_text(text.len()))?;
                out.push_str(&text);
            }
            None => out.push('%'),
        }
        if out.len() > MAX_MADE {
            return Err(execution(&format!("a text of more than {MAX_MADE} bytes cannot be made")));
        }
    }
    Ok(out)
}

impl Conversion {
    /// Reads flags, width and precision. Returns the letter behind.
    fn read<'v>(
        &mut self,
        rest: &mut std::iter::Peekable<std::str::Chars<'_>>,
        values: &mut impl Iterator<Item = &'v Value>,
    ) -> Option<char> {
        while let Some(flag) = rest.next_if(|next| "-+ 0#!,".contains(*next)) {
            match flag {
                '-' => self.left = true,
                '+' => self.plus = true,
                ' ' => self.blank = true,
                '0' => self.zero = true,
                '#' => self.alternate = true,
                _ => {}
            }
        }
        let mut number = |rest: &mut std::iter::Peekable<std::str::Chars<'_>>| {
            if rest.next_if_eq(&'*').is_some() {
                return to_int(values.next().unwrap_or(&Value::Nil));
            }
            let mut number = 0_i64;
            while let Some(digit) = rest.next_if(char::is_ascii_digit) {
                number = (number * 10 + i64::from(digit.to_digit(10).unwrap_or(0))).min(i64::from(i32::MAX));
            }
            number
        };
        let width = number(rest);
        self.left |= width < 0;
        self.width = usize::try_from(width.unsigned_abs()).unwrap_or(MAX_WIDTH).min(MAX_WIDTH);
        if rest.next_if_eq(&'.').is_some() {
            let precision = usize::try_from(number(rest).unsigned_abs()).unwrap_or(MAX_PRECISION);
            self.precision = Some(precision);
        }
        while rest.next_if_eq(&'l').is_some() {}
        rest.next()
    }

    /// The value as the letter asks for it; `None` for a letter that ends the text.
    fn converted(&self, letter: char, value: &Value) -> Option<String> {
        let text = || String::from_utf8_lossy(&as_text(value).unwrap_or_default()).into_owned();
        let cut = |text: String| match self.precision {
            Some(precision) => text.chars().take(precision).collect(),
            None => text,
        };
        let places = self.precision.unwrap_or(6).min(MAX_PRECISION);
        Some(match letter {
            'd' | 'i' => {
                self.signed(to_int(value) < 0, &self.digits(&to_int(value).unsigned_abs().to_string()))
            }
            'u' => self.digits(&(to_int(value) as u64).to_string()),
            'x' | 'X' | 'o' => {
                let number = to_int(value) as u64;
                let (prefix, text) = match letter {
                    'x' => ("0x", format!("{number:x}")),
                    'X' => ("0X", format!("{number:X}")),
                    _ => ("0", format!("{number:o}")),
                };
                let prefix = if self.alternate && number != 0 { prefix } else { "" };
                format!("{prefix}{}", self.digits(&text))
            }
            'f' => {
                let number = to_double(value);
                let number_text = match number.is_finite() {
                    true => fixed(number.abs(), places),
                    false => double_text(number.abs()),
                };
                self.signed(number < 0.0, &number_text)
            }
            'e' | 'E' => {
                let number = to_double(value);
                let made = exponential(number.abs(), places);
                self.signed(number < 0.0, &if letter == 'E' { made.to_uppercase() } else { made })
            }
            'g' | 'G' => {
                let number = to_double(value);
                let made = general(number.abs(), places.max(1));
                self.signed(number < 0.0, &if letter == 'G' { made.to_uppercase() } else { made })
            }
            'c' => text().chars().next().map_or_else(String::new, |first| {
                first.to_string().repeat(self.precision.unwrap_or(1).clamp(1, MAX_PRECISION))
            }),
            's' | 'z' => cut(text()),
            'q' => cut(text()).replace('\'', "''"),
            'Q' if *value == Value::Nil => "NULL".to_owned(),
            'Q' => format!("'{}'", cut(text()).replace('\'', "''")),
            'w' => cut(text()).replace('"', "\"\""),
            _ => return None,
        })
    }

    /// Digits, at least as many as the precision says.
    fn digits(&self, digits: &str) -> String {
        let wanted = self.precision.unwrap_or(0).min(MAX_PRECISION);
        format!("{}{digits}", "0".repeat(wanted.saturating_sub(digits.len())))
    }

    fn signed(&self, is_negative: bool, text: &str) -> String {
        let sign = match (is_negative, self.plus, self.blank) {
            (true, ..) => "-",
            (_, true, _) => "+",
            (_, _, true) => " ",
            _ => "",
        };
        format!("{sign}{text}")
    }

    /// The text with blanks or zeros up to the width.
    fn padded(&self, text: String, letter: char) -> String {
        let missing = self.width.saturating_sub(text.chars().count());
        if missing == 0 {
            return text;
        }
        if self.left {
            return text + &" ".repeat(missing);
        }
        if self.zero && "diuxXofeEgG".contains(letter) {
            let sign = text.len() - text.trim_start_matches(['-', '+', ' ']).len();
            return format!("{}{}{}", &text[..sign], "0".repeat(missing), &text[sign..]);
        }
        " ".repeat(missing) + &text
    }
}

/// A number from 0 on with this number of digits behind the point. Halves go up, as in C code that adds a half and cuts.
fn fixed(number: f64, places: usize) -> String {
    /// Integers up to here are exact.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let unit = 10_f64.powi(i32::try_from(places).unwrap_or(i32::MAX));
    let scaled = (number * unit + 0.5).floor();
    if places == 0 || scaled >= EXACT {
        return format!("{:.places$}", if places == 0 { scaled } else { number });
    }
    let digits = format!("{:0>width$}", scaled as u64, width = places + 1);
    let (whole, fraction) = digits.split_at(digits.len() - places);
    format!("{whole}.{fraction}")
}

/// `d.ddde+dd`.
fn exponential(number: f64, places: usize) -> String {
    let text = format!("{number:.places$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// The shorter form, without zeros at its end.
fn general(number: f64, digits: usize) -> String {
    let text = exponential(number, digits - 1);
    let exponent: i32 = text.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
    let short = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if exponent < -4 || exponent >= i32::try_from(digits).unwrap_or(i32::MAX) {
        let (mantissa, rest) = text.split_once('e').unwrap_or((&text, ""));
        return format!("{}e{rest}", short(mantissa));
    }
    let places = usize::try_from(i32::try_from(digits).unwrap_or(0) - 1 - exponent).unwrap_or(0);
    short(&format!("{number:.places$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tarantool 2.6 prints the same texts.
    #[test]
    fn a_format_says_how_values_stand_in_the_text() {
        let made = |format: &str, values: &[Value]| printed(format, values, &Effort::default());
        let (number, text) = (Value::Uint(42), Value::str("abc"));
        for (format, value, expected) in [
            ("%5d|", &number, "   42|"),
            ("%-5d|", &number, "42   |"),
            ("%05d", &number, "00042"),
            ("%+d", &number, "+42"),
            ("% d", &number, " 42"),
            ("%x %%", &Value::Uint(255), "ff %"),
            ("%o", &Value::Uint(8), "10"),
            ("%c%s", &text, "a"),
            ("%.2s", &text, "ab"),
            ("%10s", &text, "       abc"),
            ("%f", &Value::Double(1.5), "1.500000"),
            ("%.1f", &Value::Double(2.25), "2.3"),
            ("%e", &Value::Double(12_345.678), "1.234568e+04"),
            ("%g", &Value::Double(0.0001), "0.0001"),
            ("%u", &Value::Int(-1), "18446744073709551615"),
            ("%q", &Value::str("it's"), "it''s"),
            ("%Q", &Value::Nil, "NULL"),
            ("%d", &Value::Double(2.7), "2"),
            ("%f", &text, "0.000000"),
        ] {
            assert_eq!(made(format, std::slice::from_ref(value)).as_deref(), Ok(expected), "{format}");
        }
        assert_eq!(
            made("%*d|%.*f", &[Value::Uint(5), number, Value::Uint(2), Value::Double(1.2345)]),
            Ok("   42|1.23".to_owned())
        );
        let refused = made(&"%100000d".repeat(200), &[]).map_err(|failure| failure.code);
        assert_eq!(refused, Err(159));
    }
}
