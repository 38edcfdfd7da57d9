//! Functions of values, CAST, and numbers as text.
//!
//! What they do with values of another type than they are made for was observed on Tarantool 2.6: most convert them, a few refuse them.

use std::cmp::Ordering;

use lycosa_tuple::collation::Collation;
use lycosa_tuple::field::FieldType;
use lycosa_tuple::value::Value;

use crate::SqlFault;
use crate::effort::{Effort, weight, weight_of_text};
use crate::eval::MAX_MADE;
use crate::printf::printed;
use crate::value::{Number, execution, inconsistent, kind_name, mismatch, number_of, order_by, parse_number};

/// The functions of one value and more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Function {
    Abs,
    Char,
    Coalesce,
    Greatest,
    Hex,
    Ifnull,
    Least,
    Length,
    Likely,
    Lower,
    Nullif,
    Position,
    Printf,
    Quote,
    Random,
    Randomblob,
    /// RAISE of a trigger: the action, and the text of the error.
    Raise,
    Replace,
    Round,
    Soundex,
    Substr,
    /// The text, the characters to take away, and two truths: at its begin, at its end.
    Trim,
    /// The value, and the name of its type if that is known before the value is.
    /// The value of a key in Lua, which has one type for strings of both kinds, as a string of bytes.
    ToBytes,
    Typeof,
    Unicode,
    Upper,
    Zeroblob,
}

/// The text of the error, without a code, that skips the row of a trigger.
pub(crate) const RAISE_IGNORE: &str = "RAISE(IGNORE)";

/// Decimal places after which no double has a digit.
const MAX_PLACES: i64 = 1100;

/// A string as a string of bytes.
fn to_bytes(value: &Value) -> Value {
    match value {
        Value::Str(text) => Value::Bin(text.clone()),
        other => other.clone(),
    }
}

/// The name of a value's type: that of the expression, if there is one, but for strings of bytes.
fn type_of(value: &Value, declared: &Value) -> Value {
    Value::str(match declared {
        Value::Str(name) if !matches!(value, Value::Bin(_)) => String::from_utf8_lossy(name).into_owned(),
        _ => type_name(value).to_owned(),
    })
}

/// Calls a function, whose number of arguments was checked.
///
/// # Errors
/// Arguments of a type that the function refuses; a result that is too long.
pub(crate) fn call(
    function: Function,
    arguments: &[Value],
    collation: &Collation,
    effort: &Effort,
) -> Result<Value, SqlFault> {
    for argument in arguments {
        if let Value::Str(bytes) | Value::Bin(bytes) = argument {
            effort.spend(weight_of_text(bytes.len()))?;
        }
    }
    let value = |place: usize| arguments.get(place).unwrap_or(&Value::Nil);
    let first = value(0);
    let text = |place: usize| as_text(value(place));
    Ok(match function {
        Function::Coalesce | Function::Ifnull => {
            arguments.iter().find(|value| **value != Value::Nil).unwrap_or(&Value::Nil).clone()
        }
        Function::Random | Function::Randomblob => at_random(function, first, effort)?,
        Function::Printf => formatted(arguments, effort)?,
        Function::Raise => return Err(raised(first, value(1))),
        Function::Likely => first.clone(),
        Function::Nullif if order_by(first, value(1), collation).is_eq() => Value::Nil,
        Function::Nullif => first.clone(),
        Function::Greatest | Function::Least if arguments.contains(&Value::Nil) => Value::Nil,
        Function::Greatest => best(arguments, collation, &|order| order == Ordering::Less),
        Function::Least => best(arguments, collation, &|order| order != Ordering::Less),
        Function::ToBytes => to_bytes(first),
        Function::Typeof => type_of(first, value(1)),
        Function::Char => Value::Str(arguments.iter().flat_map(character).collect()),
        Function::Hex => Value::str(hex(&text(0).unwrap_or_default())),
        Function::Quote => quoted(first),
        Function::Soundex => match first {
            Value::Bin(_) => return Err(mismatch(first, "text")),
            _ => Value::str(soundex(&text(0).unwrap_or_default())),
        },
        Function::Zeroblob => {
            let length = usize::try_from(to_int(first).max(0)).unwrap_or(usize::MAX);
            check_made(length)?;
            effort.spend(weight_of_text(length))?;
            Value::Bin(vec![0; length])
        }
        Function::Round if arguments.get(1) == Some(&Value::Nil) => Value::Nil,
        Function::Substr if arguments[1..].contains(&Value::Nil) => Value::Nil,
        _ if *first == Value::Nil => Value::Nil,
        Function::Abs => absolute(first)?,
        Function::Round => match first {
            Value::Bin(_) => return Err(mismatch(first, "numeric")),
            _ => rounded(to_double(first), to_int(value(1)).clamp(0, MAX_PLACES)),
        },
        Function::Length => Value::Uint(match first {
            Value::Str(text) => String::from_utf8_lossy(text).chars().count() as u64,
            other => as_text(other).map_or(0, |text| text.len() as u64),
        }),
        Function::Lower => Value::str(readable(first)?.to_lowercase()),
        Function::Upper => Value::str(readable(first)?.to_uppercase()),
        Function::Unicode => match String::from_utf8_lossy(&text(0).unwrap_or_default()).chars().next() {
            Some(character) => Value::Uint(u64::from(u32::from(character))),
            None => Value::Nil,
        },
        Function::Position => position(first, value(1), collation, effort)?,
        Function::Substr => substring(first, to_int(value(1)), arguments.get(2).map(to_int)),
        Function::Replace => match (text(0), text(1), text(2)) {
            (Some(text), Some(old), Some(new)) => Value::Str(replaced(&text, &old, &new, effort)?),
            _ => Value::Nil,
        },
        Function::Trim => match (text(0), text(1)) {
            (Some(text), Some(set)) => {
                let sides = (value(2) == &Value::Bool(true), value(3) == &Value::Bool(true));
                Value::Str(trimmed(&text, &set, sides, effort)?.to_vec())
            }
            _ => Value::Nil,
        },
    })
}

/// A number that nothing repeats, and that keeps no secret.
fn random_number() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}

/// RANDOM, or RANDOMBLOB of a length.
fn at_random(function: Function, length: &Value, effort: &Effort) -> Result<Value, SqlFault> {
    if function == Function::Random {
        return Ok(match random_number() as i64 {
            number if number < 0 => Value::Int(number),
            number => Value::Uint(number.unsigned_abs()),
        });
    }
    let length = usize::try_from(to_int(length)).unwrap_or(0);
    check_made(length)?;
    effort.spend(weight_of_text(length))?;
    let bytes = std::iter::repeat_with(|| random_number().to_le_bytes()).flatten().take(length);
    Ok(if length == 0 { Value::Nil } else { Value::Bin(bytes.collect()) })
}

/// PRINTF: the first argument is the format.
fn formatted(arguments: &[Value], effort: &Effort) -> Result<Value, SqlFault> {
    let Some((format, values)) = arguments.split_first() else { return Ok(Value::Nil) };
    let Some(format) = as_text(format) else { return Ok(Value::Nil) };
    printed(&String::from_utf8_lossy(&format), values, effort).map(Value::str)
}

/// The error that RAISE asks for.
fn raised(action: &Value, text: &Value) -> SqlFault {
    match action.as_str() {
        Some("IGNORE") => SqlFault::new(0, RAISE_IGNORE),
        _ => execution(&String::from_utf8_lossy(&as_text(text).unwrap_or_default())),
    }
}

fn best(values: &[Value], collation: &Collation, is_worse: &dyn Fn(Ordering) -> bool) -> Value {
    let mut best = &Value::Nil;
    for value in values {
        if *best == Value::Nil || is_worse(order_by(best, value, collation)) {
            best = value;
        }
    }
    best.clone()
}

/// The type of a value that comes from no column.
fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Nil | Value::Bool(_) => "boolean",
        Value::Uint(_) | Value::Int(_) => "integer",
        Value::Float(_) | Value::Double(_) => "double",
        Value::Str(_) => "string",
        _ => "varbinary",
    }
}

/// A number as functions take it: a text that is no number is 0.
pub(crate) fn to_double(value: &Value) -> f64 {
    let number = number_of(value).or_else(|| value.as_str().and_then(parse_number));
    number.map_or(0.0, Number::to_double)
}

pub(crate) fn to_int(value: &Value) -> i64 {
    match number_of(value).or_else(|| value.as_str().and_then(parse_number)) {
        Some(Number::Int(number)) => {
            i64::try_from(number).unwrap_or(if number < 0 { i64::MIN } else { i64::MAX })
        }
        Some(Number::Double(number)) => number as i64,
        None => 0,
    }
}

/// A value as text; `None` for NULL.
pub(crate) fn as_text(value: &Value) -> Option<Vec<u8>> {
    Some(match value {
        Value::Nil => return None,
        Value::Str(bytes) | Value::Bin(bytes) => bytes.clone(),
        Value::Bool(value) => if *value { "TRUE" } else { "FALSE" }.into(),
        Value::Uint(number) => number.to_string().into(),
        Value::Int(number) => number.to_string().into(),
        other => match number_of(other) {
            Some(number) => double_text(number.to_double()).into(),
            None => other.encode(),
        },
    })
}

/// A value as text that people read.
///
/// # Errors
/// Bytes, which are none.
fn readable(value: &Value) -> Result<String, SqlFault> {
    match value {
        Value::Bin(_) => Err(inconsistent(value, "text")),
        other => Ok(String::from_utf8_lossy(&as_text(other).unwrap_or_default()).into_owned()),
    }
}

/// A double as text: 15 significant digits, and at least one behind the point.
pub(crate) fn double_text(number: f64) -> String {
    /// Digits; the exponent from which on a number has one in its text.
    const DIGITS: usize = 15;
    if !number.is_finite() {
        return if number.is_nan() {
            "NaN"
        } else if number > 0.0 {
            "Inf"
        } else {
            "-Inf"
        }
        .to_owned();
    }
    let text = scientific(number, DIGITS - 1);
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..DIGITS as i32).contains(&exponent) {
        return text;
    }
    let places = (DIGITS as i32 - 1 - exponent).max(0) as usize;
    let sign = if digits.starts_with('-') { "-" } else { "" };
    format!("{sign}{}", without_zeros(&format!("{:.places$}", number.abs())))
}

/// `d.ddde+dd` with this number of digits behind the point, without zeros at their end.
fn scientific(number: f64, places: usize) -> String {
    if number == 0.0 {
        return "0.0e+00".to_owned();
    }
    let text = format!("{number:.places$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_zeros(digits), exponent.abs())
}

/// A decimal fraction without zeros at its end; one digit behind the point stays.
fn without_zeros(text: &str) -> String {
    let short = if text.contains('.') { text.trim_end_matches('0') } else { text };
    match short.strip_suffix('.') {
        Some(whole) => format!("{whole}.0"),
        None if short.contains('.') => short.to_owned(),
        None => format!("{short}.0"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

/// The value as a literal of SQL has it; an integer stays one.
fn quoted(value: &Value) -> Value {
    match value {
        Value::Nil => Value::str("NULL"),
        Value::Uint(_) | Value::Int(_) => value.clone(),
        Value::Str(text) => Value::str(format!("'{}'", String::from_utf8_lossy(text).replace('\'', "''"))),
        Value::Bin(bytes) => Value::str(format!("X'{}'", hex(bytes))),
        other => match number_of(other) {
            Some(number) => {
                let (number, text) = (number.to_double(), double_text(number.to_double()));
                let is_exact = text.parse() == Ok(number) || !number.is_finite();
                Value::str(if is_exact { text } else { scientific(number, 20) })
            }
            None => Value::Str(as_text(other).unwrap_or_default()),
        },
    }
}

/// The UTF-8 of a code point; of any other number, that of the replacement character.
fn character(code: &Value) -> Vec<u8> {
    /// The character in the place of a wrong one.
    const REPLACEMENT: u32 = 0xfffd;
    let code = match (code, to_int(code)) {
        (Value::Int(_), _) => REPLACEMENT,
        (_, code) => u32::try_from(code).ok().filter(|code| *code <= 0x10_ffff).unwrap_or(REPLACEMENT),
    };
    match char::from_u32(code) {
        Some(character) => character.to_string().into_bytes(),
        // A half of a pair of UTF-16: three bytes that no UTF-8 has.
        None => vec![0xe0 | (code >> 12) as u8, 0x80 | (code >> 6 & 0x3f) as u8, 0x80 | (code & 0x3f) as u8],
    }
}

/// The letter and three digits that words of one sound have.
fn soundex(text: &[u8]) -> String {
    /// Digits of the letters; a vowel has 0.
    const CODES: &[u8; 26] = b"01230120022455012623010202";
    let code = |letter: u8| match letter.to_ascii_uppercase() {
        upper @ b'A'..=b'Z' => CODES[usize::from(upper - b'A')],
        _ => b'0',
    };
    let mut letters =
        text.iter().copied().take_while(|byte| *byte != 0).skip_while(|byte| !byte.is_ascii_alphabetic());
    let Some(first) = letters.next() else { return "?000".to_owned() };
    let (mut result, mut previous) = (String::from(char::from(first.to_ascii_uppercase())), code(first));
    for letter in letters {
        let digit = code(letter);
        if digit != b'0' && digit != previous && result.len() < 4 {
            result.push(char::from(digit));
        }
        previous = digit;
    }
    format!("{result:0<4}")
}

fn absolute(value: &Value) -> Result<Value, SqlFault> {
    match (value, number_of(value)) {
        (_, Some(Number::Int(number))) => Number::Int(number.abs()).into_value(),
        (Value::Str(_), _) | (_, Some(_)) => Ok(Value::Double(to_double(value).abs())),
        _ => Err(inconsistent(value, "number")),
    }
}

fn rounded(number: f64, places: i64) -> Value {
    /// Doubles from here on have no fraction.
    const WHOLE: f64 = 9_223_372_036_854_775_806.0;
    Value::Double(if places == 0 && number.abs() < WHOLE {
        (number.abs() + 0.5).trunc().copysign(number)
    } else {
        let places = usize::try_from(places).unwrap_or(0);
        format!("{number:.places$}").parse().unwrap_or(number)
    })
}

/// The place of a text in another one, or of bytes in others, from 1; 0 if it is not in it.
fn position(needle: &Value, text: &Value, collation: &Collation, effort: &Effort) -> Result<Value, SqlFault> {
    for value in [text, needle] {
        if !matches!(value, Value::Nil | Value::Str(_) | Value::Bin(_)) {
            return Err(inconsistent(value, "text or varbinary"));
        }
    }
    let found = match (needle, text) {
        (Value::Nil, _) | (_, Value::Nil) => return Ok(Value::Nil),
        (Value::Str(needle), Value::Str(text)) => {
            let (needle, text) = (String::from_utf8_lossy(needle), String::from_utf8_lossy(text));
            match collation.is_binary() {
                true => text.find(&*needle).map(|place| text[..place].chars().count()),
                false => position_in(&needle, &text, collation, effort)?,
            }
        }
        (Value::Bin(needle), Value::Bin(_)) if needle.is_empty() => Some(0),
        (Value::Bin(needle), Value::Bin(text)) => {
            effort.spend((text.len() as u64).saturating_mul(1 + needle.len() as u64 / 64) / 16)?;
            text.windows(needle.len()).position(|window| window == needle)
        }
        (needle, text) => return Err(inconsistent(text, kind_name(needle))),
    };
    Ok(Value::Uint(found.map_or(0, |place| place as u64 + 1)))
}

/// The number of characters before the first part of a text that is as long as another text and equal to it in a collation.
fn position_in(
    needle: &str,
    text: &str,
    collation: &Collation,
    effort: &Effort,
) -> Result<Option<usize>, SqlFault> {
    let length = needle.chars().count();
    let ends = text.char_indices().map(|(at, _)| at).chain([text.len()]).skip(length);
    for (place, (begin, end)) in
        text.char_indices().map(|(at, _)| at).chain([text.len()]).zip(ends).enumerate()
    {
        effort.spend(weight_of_text(needle.len()))?;
        if collation.compare(needle.as_bytes(), &text.as_bytes()[begin..end]).is_eq() {
            return Ok(Some(place));
        }
    }
    Ok(None)
}

/// A part of a text or of bytes. It begins at the place `begin` from 1, or so far from the end; `length` is negative for what
/// stands before the begin.
fn substring(value: &Value, begin: i64, length: Option<i64>) -> Value {
    let bytes = as_text(value).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let size = if let Value::Bin(bytes) = value { bytes.len() } else { text.chars().count() };
    // Both are 32-bit numbers there.
    let (mut begin, given) = (i64::from(begin as i32), length.map(|length| i64::from(length as i32)));
    let mut length = given.map_or(i64::from(i32::MAX), i64::abs);
    if begin < 0 {
        begin += size as i64;
        if begin < 0 {
            length = (length + begin).max(0);
            begin = 0;
        }
    } else if begin > 0 {
        begin -= 1;
    } else if length > 0 {
        length -= 1;
    }
    if given.is_some_and(|given| given < 0) {
        begin -= length;
        if begin < 0 {
            length += begin;
            begin = 0;
        }
    }
    let (begin, length) = (usize::try_from(begin).unwrap_or(0), usize::try_from(length).unwrap_or(0));
    match value {
        Value::Bin(bytes) => Value::Bin(bytes.iter().copied().skip(begin).take(length).collect()),
        _ => Value::str(text.chars().skip(begin).take(length).collect::<String>()),
    }
}

fn check_made(bytes: usize) -> Result<(), SqlFault> {
    if bytes <= MAX_MADE {
        return Ok(());
    }
    Err(execution(&format!("a text of more than {MAX_MADE} bytes cannot be made")))
}

fn replaced(text: &[u8], old: &[u8], new: &[u8], effort: &Effort) -> Result<Vec<u8>, SqlFault> {
    if old.is_empty() {
        return Ok(text.to_vec());
    }
    effort.spend((text.len() as u64).saturating_mul(1 + old.len() as u64 / 64) / 16)?;
    let (mut made, mut rest) = (Vec::new(), text);
    while let Some(&byte) = rest.first() {
        match rest.strip_prefix(old) {
            Some(behind) => {
                made.extend_from_slice(new);
                rest = behind;
            }
            None => {
                made.push(byte);
                rest = &rest[1..];
            }
        }
        check_made(made.len())?;
    }
    effort.spend(weight_of_text(made.len()))?;
    Ok(made)
}

/// A text without characters of the set at its begin or its end.
fn trimmed<'a>(
    mut text: &'a [u8],
    set: &[u8],
    (at_begin, at_end): (bool, bool),
    effort: &Effort,
) -> Result<&'a [u8], SqlFault> {
    let set = String::from_utf8_lossy(set).into_owned();
    let characters: Vec<&str> = set.split("").filter(|character| !character.is_empty()).collect();
    effort.spend((text.len() as u64).saturating_mul(1 + characters.len() as u64) / 8)?;
    while at_begin && let Some(rest) = characters.iter().find_map(|it| text.strip_prefix(it.as_bytes())) {
        text = rest;
    }
    while at_end && let Some(rest) = characters.iter().find_map(|it| text.strip_suffix(it.as_bytes())) {
        text = rest;
    }
    Ok(text)
}

/// The value as CAST gives it.
///
/// # Errors
/// A value that has no form of that type.
pub(crate) fn cast(value: Value, ty: FieldType, effort: &Effort) -> Result<Value, SqlFault> {
    effort.spend(weight(&value))?;
    let number = number_of(&value);
    let digits = match &value {
        Value::Str(bytes) | Value::Bin(bytes) => std::str::from_utf8(bytes).ok().and_then(parse_number),
        _ => None,
    };
    let cast = match (ty, &value) {
        (FieldType::Scalar, _) | (_, Value::Nil) => return Ok(value),
        (FieldType::Boolean, Value::Bool(_)) => return Ok(value),
        (FieldType::Boolean, Value::Str(text)) => {
            let text = String::from_utf8_lossy(text).trim_matches(' ').to_lowercase();
            text.parse().ok().map(Value::Bool)
        }
        (FieldType::Boolean, _) => number.map(|number| Value::Bool(number.to_double() != 0.0)),
        (FieldType::Integer | FieldType::Unsigned | FieldType::Number, Value::Bool(value)) => {
            Some(Value::Uint((*value).into()))
        }
        (FieldType::Integer | FieldType::Unsigned, _) => match number.or(digits) {
            Some(Number::Int(number)) if number >= 0 || ty == FieldType::Integer => {
                Number::Int(number).into_value().ok()
            }
            // A text has to be a whole number. A negative fraction passes for unsigned, too.
            Some(Number::Double(number)) if digits.is_none() => {
                let is_close = number.is_finite() && number.abs() < 1e20;
                is_close.then(|| Number::Int(number.trunc() as i128).into_value().ok()).flatten()
            }
            _ => None,
        },
        (FieldType::Double, Value::Bin(_)) => None,
        (FieldType::Double, _) => number.or(digits).map(|number| Value::Double(number.to_double())),
        (FieldType::Number, _) => number.or(digits).and_then(|number| number.into_value().ok()),
        // Tarantool leaves a text as it is.
        (FieldType::Varbinary, Value::Str(_) | Value::Bin(_)) => return Ok(value),
        (FieldType::String, _) => as_text(&value).map(Value::Str),
        _ => None,
    };
    cast.ok_or_else(|| mismatch(&value, ty.name()))
}
