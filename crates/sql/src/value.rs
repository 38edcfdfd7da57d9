//! Values of SQL, and what operators and functions make of them.
//!
//! A value is a MessagePack [`Value`]. Strings are compared byte by byte. What Tarantool refuses as a mismatch of types is
//! refused with the same code and text where both compare the same pair.

use std::cmp::Ordering;

use lycosa_tuple::collation::Collation;
use lycosa_tuple::field::FieldType;
use lycosa_tuple::scalar;
use lycosa_tuple::value::Value;

use crate::SqlFault;
use crate::effort::{Effort, weight_of_text};
use crate::functions::double_text;

/// `ER_SQL_EXECUTE`, `ER_SQL_TYPE_MISMATCH` and `ER_INCONSISTENT_TYPES` of Tarantool 2.6.
const EXECUTE: u32 = 159;
pub(crate) const TYPE_MISMATCH: u32 = 171;
const INCONSISTENT_TYPES: u32 = 178;

pub(crate) fn execution(text: &str) -> SqlFault {
    SqlFault::new(EXECUTE, format!("Failed to execute SQL statement: {text}"))
}

pub(crate) fn mismatch(value: &Value, wanted: &str) -> SqlFault {
    SqlFault::new(TYPE_MISMATCH, format!("Type mismatch: can not convert {} to {wanted}", shown(value)))
}

pub(crate) fn inconsistent(value: &Value, wanted: &str) -> SqlFault {
    let text = format!("Inconsistent types: expected {wanted} got {}", kind_name(value));
    SqlFault::new(INCONSISTENT_TYPES, text)
}

/// Characters of a text that an error shows.
const SHOWN: usize = 200;

/// Bytes of a text that may be a number.
const MAX_NUMBER: usize = 1024;

/// Bytes of a pattern of LIKE, as in Tarantool.
const MAX_PATTERN: usize = 50_000;

/// The value as texts of errors show it.
fn shown(value: &Value) -> String {
    match value {
        Value::Nil => "NULL".to_owned(),
        Value::Bool(value) => if *value { "TRUE" } else { "FALSE" }.to_owned(),
        Value::Uint(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Float(value) => double_text((*value).into()),
        Value::Double(value) => double_text(*value),
        Value::Str(text) => {
            String::from_utf8_lossy(&text[..text.len().min(4 * SHOWN)]).chars().take(SHOWN).collect()
        }
        Value::Bin(_) => "varbinary".to_owned(),
        Value::Array(_) | Value::Map(_) => {
            let mut text = String::new();
            show_nested(value, &mut text);
            text.chars().take(SHOWN).collect()
        }
        Value::Ext(..) => "an extension".to_owned(),
    }
}

/// Writes an array or a map in the form of JSON; little behind [`SHOWN`] bytes.
fn show_nested(value: &Value, out: &mut String) {
    let comma = |out: &mut String, place: usize| out.push_str(if place == 0 { "" } else { ", " });
    match value {
        _ if out.len() > SHOWN => {}
        Value::Array(items) => {
            out.push('[');
            for (place, item) in items.iter().enumerate().take(SHOWN) {
                comma(out, place);
                show_nested(item, out);
            }
            out.push(']');
        }
        Value::Map(pairs) => {
            out.push('{');
            for (place, (key, value)) in pairs.iter().enumerate().take(SHOWN) {
                comma(out, place);
                show_nested(key, out);
                out.push_str(": ");
                show_nested(value, out);
            }
            out.push('}');
        }
        Value::Str(_) => {
            out.push('"');
            out.push_str(&shown(value));
            out.push('"');
        }
        Value::Nil => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        other => out.push_str(&shown(other)),
    }
}

pub(crate) fn kind_name(value: &Value) -> &'static str {
    match value {
        Value::Nil => "NULL",
        Value::Bool(_) => "boolean",
        Value::Uint(_) => "unsigned",
        Value::Int(_) => "integer",
        Value::Float(_) | Value::Double(_) => "real",
        Value::Str(_) => "text",
        _ => "varbinary",
    }
}

/// A number of SQL: integers are exact.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    Int(i128),
    Double(f64),
}

impl Number {
    pub(crate) fn to_double(self) -> f64 {
        match self {
            Number::Int(value) => value as f64,
            Number::Double(value) => value,
        }
    }

    /// # Errors
    /// An integer that has no 64-bit form.
    pub(crate) fn into_value(self) -> Result<Value, SqlFault> {
        match self {
            Number::Double(value) => Ok(Value::Double(value)),
            Number::Int(value) => match (u64::try_from(value), i64::try_from(value)) {
                (Ok(value), _) => Ok(Value::Uint(value)),
                (_, Ok(value)) => Ok(Value::Int(value)),
                _ => Err(execution("integer is overflowed")),
            },
        }
    }
}

pub(crate) fn number_of(value: &Value) -> Option<Number> {
    Some(match *value {
        Value::Uint(value) => Number::Int(value.into()),
        Value::Int(value) => Number::Int(value.into()),
        Value::Float(value) => Number::Double(value.into()),
        Value::Double(value) => Number::Double(value),
        _ => return None,
    })
}

/// The number that a literal or a string is; a longer text than [`MAX_NUMBER`] is none.
pub(crate) fn parse_number(text: &str) -> Option<Number> {
    if text.len() > MAX_NUMBER {
        return None;
    }
    let text = text.trim();
    if let Ok(value) = text.parse::<i128>() {
        return Some(Number::Int(value));
    }
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    text.parse::<f64>().ok().filter(|value| is_number && value.is_finite()).map(Number::Double)
}

/// A number; a string that is one counts.
pub(crate) fn numeric(value: &Value) -> Result<Number, SqlFault> {
    let found = number_of(value).or_else(|| value.as_str().and_then(parse_number));
    found.ok_or_else(|| mismatch(value, "numeric"))
}

/// A number of an arithmetic operator: a string of bytes that is the text of a number counts too.
pub(crate) fn operand(value: &Value) -> Result<Number, SqlFault> {
    let of_bytes = || match value {
        Value::Bin(bytes) => std::str::from_utf8(bytes).ok().and_then(parse_number),
        _ => None,
    };
    numeric(value).or_else(|failure| of_bytes().ok_or(failure))
}

/// The integer of an operator of bits.
pub(crate) fn whole(value: &Value) -> Result<i128, SqlFault> {
    match numeric(value) {
        Ok(Number::Int(number)) => Ok(number),
        Ok(Number::Double(number)) if number_of(value).is_some() && is_whole(number) => Ok(number as i128),
        _ => Err(mismatch(value, "integer")),
    }
}

/// Whether a double is an integer of 64 bits.
fn is_whole(number: f64) -> bool {
    number.fract() == 0.0 && (-(2_f64.powi(63))..2_f64.powi(64)).contains(&number)
}

/// The value of a condition; `None` is unknown.
pub(crate) fn truth(value: &Value) -> Result<Option<bool>, SqlFault> {
    match value {
        Value::Nil => Ok(None),
        Value::Bool(value) => Ok(Some(*value)),
        other => Err(mismatch(other, "boolean")),
    }
}

pub(crate) fn from_truth(value: Option<bool>) -> Value {
    value.map_or(Value::Nil, Value::Bool)
}

/// Orders two values that can be compared; `None` if one is NULL.
pub(crate) fn compare(
    left: &Value,
    right: &Value,
    collation: &Collation,
) -> Result<Option<Ordering>, SqlFault> {
    Ok(Some(match (left, right) {
        (Value::Nil, _) | (_, Value::Nil) => return Ok(None),
        (Value::Uint(left), Value::Uint(right)) => left.cmp(right),
        (Value::Str(left), Value::Str(right)) => collation.compare(left, right),
        (Value::Bin(left), Value::Bin(right)) => left.cmp(right),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::Ext(left_kind, left), Value::Ext(right_kind, right)) if left_kind == right_kind => {
            order_bytes(&Value::Ext(*left_kind, left.clone()), &Value::Ext(*right_kind, right.clone()))
        }
        (Value::Str(_), number) if is_number(number) => order_bytes(&numeric(left)?.into_value()?, number),
        // A number is below a string that is no number; the other way round that is an error, as in Tarantool.
        (number, Value::Str(_)) if is_number(number) => match numeric(right) {
            Ok(right) => order_bytes(number, &right.into_value()?),
            Err(_) => Ordering::Less,
        },
        (left, right) if is_number(left) && is_number(right) => order_bytes(left, right),
        (Value::Bool(_), Value::Bin(_)) => return Err(no_comparison(left, right)),
        (Value::Bool(_), other) | (other, Value::Bool(_)) => {
            return Err(no_comparison(other, &Value::Bool(true)));
        }
        (Value::Bin(_), other) | (other, Value::Bin(_)) => {
            return Err(no_comparison(other, &Value::Bin(Vec::new())));
        }
        (left, right) => return Err(mismatch(left, kind_name(right))),
    }))
}

/// The error of a comparison, by the names of types.
fn no_comparison(value: &Value, other: &Value) -> SqlFault {
    let text = format!("Type mismatch: can not convert {} to {}", kind_name(value), kind_name(other));
    SqlFault::new(TYPE_MISMATCH, text)
}

/// Decimals are numbers too.
fn is_number(value: &Value) -> bool {
    number_of(value).is_some() || matches!(value, Value::Ext(1, _))
}

/// The order of an index over a scalar field: also of values of different types, NULL first.
pub(crate) fn order_bytes(left: &Value, right: &Value) -> Ordering {
    order_by(left, right, &Collation::Binary)
}

/// As [`order_bytes`], with strings in the order of a collation.
pub(crate) fn order_by(left: &Value, right: &Value, collation: &Collation) -> Ordering {
    scalar::compare(&left.encode(), &right.encode(), collation)
}

/// An arithmetic operator: `+ - * / % & |`, and `<` and `>` for shifts.
pub(crate) fn arithmetic(operator: u8, left: &Value, right: &Value) -> Result<Value, SqlFault> {
    if matches!(left, Value::Nil) || matches!(right, Value::Nil) {
        return Ok(Value::Nil);
    }
    // As in Tarantool, operators of bits look at the left value first, `+ - * / %` at the right one.
    let (left, right) = if matches!(operator, b'&' | b'|' | b'<' | b'>') {
        (Number::Int(whole(left)?), Number::Int(whole(right)?))
    } else {
        let right = operand(right)?;
        (operand(left)?, right)
    };
    if let (Number::Int(left), Number::Int(right)) = (left, right) {
        let zero = || execution("division by zero");
        return Number::Int(match operator {
            b'+' => left + right,
            b'-' => left - right,
            b'*' => left * right,
            b'/' => left.checked_div(right).ok_or_else(zero)?,
            b'%' => left.checked_rem(right).ok_or_else(zero)?,
            b'&' => left & right,
            b'<' => shifted(left, right),
            b'>' => shifted(left, -right),
            _ => left | right,
        })
        .into_value();
    }
    if operator == b'%' {
        let whole = |number: Number| Number::Int(number.to_double() as i128).into_value();
        return arithmetic(operator, &whole(left)?, &whole(right)?);
    }
    let (left, right) = (left.to_double(), right.to_double());
    let result = match operator {
        b'+' => left + right,
        b'-' => left - right,
        b'*' => left * right,
        _ if right == 0.0 => return Err(execution("division by zero")),
        _ => left / right,
    };
    Ok(if result.is_nan() { Value::Nil } else { Value::Double(result) })
}

/// The bits of a 64-bit integer, shifted to the left; to the right for fewer than 0 places.
fn shifted(number: i128, places: i128) -> i128 {
    let number = number as i64;
    i128::from(match places {
        64.. => 0,
        0..64 => number << places,
        -63..0 => number >> -places,
        _ if number < 0 => -1,
        _ => 0,
    })
}

/// Two texts become one of at most `limit` bytes.
pub(crate) fn concatenate(left: &Value, right: &Value, limit: usize) -> Result<Value, SqlFault> {
    const WANTED: &str = "text or varbinary";
    if let (Value::Str(left), Value::Str(right)) | (Value::Bin(left), Value::Bin(right)) = (left, right)
        && left.len() + right.len() > limit
    {
        return Err(execution(&format!("a text of more than {limit} bytes cannot be made")));
    }
    Ok(match (left, right) {
        (Value::Nil, _) | (_, Value::Nil) => Value::Nil,
        (Value::Str(left), Value::Str(right)) => Value::Str([&left[..], right].concat()),
        (Value::Bin(left), Value::Bin(right)) => Value::Bin([&left[..], right].concat()),
        (Value::Str(_) | Value::Bin(_), Value::Str(_) | Value::Bin(_)) => {
            return Err(inconsistent(right, kind_name(left)));
        }
        (other, Value::Str(_) | Value::Bin(_)) | (_, other) => return Err(inconsistent(other, WANTED)),
    })
}

/// `text LIKE pattern ESCAPE escape`
///
/// # Errors
/// A value that is no text; a pattern or a text that takes too long.
pub(crate) fn like(
    text: &Value,
    pattern: &Value,
    escape: Option<char>,
    collation: &Collation,
    effort: &Effort,
) -> Result<Option<bool>, SqlFault> {
    if matches!(text, Value::Nil) || matches!(pattern, Value::Nil) {
        return Ok(None);
    }
    if let Some(wrong) = [pattern, text].into_iter().find(|value| !matches!(value, Value::Str(_))) {
        return Err(inconsistent(wrong, "text"));
    }
    let (Value::Str(text), Value::Str(pattern)) = (text, pattern) else { return Ok(None) };
    if pattern.len() > MAX_PATTERN {
        return Err(execution("LIKE pattern is too complex"));
    }
    effort.spend(weight_of_text(text.len() + pattern.len()))?;
    let (text, pattern) = (String::from_utf8_lossy(text), String::from_utf8_lossy(pattern));
    let text: Vec<char> = text.chars().collect();
    let mut wanted = Vec::new();
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        wanted.push(match character {
            _ if Some(character) == escape => match characters.next() {
                Some(literal) => Wanted::One(literal),
                None => return Ok(Some(false)),
            },
            '%' => Wanted::Any,
            '_' => Wanted::Some,
            literal => Wanted::One(literal),
        });
    }
    matches(&text, &wanted, collation, effort).map(Some)
}

/// A part of a pattern.
enum Wanted {
    One(char),
    Some,
    Any,
}

/// Whether two characters are equal in a collation.
fn is_same(left: char, right: char, collation: &Collation) -> bool {
    let encoded = |character: char| character.to_string().into_bytes();
    left == right
        || !collation.is_binary() && collation.compare(&encoded(left), &encoded(right)) == Ordering::Equal
}

/// Looks only back to the last `%`, so the time is at most the product of both lengths.
fn matches(
    text: &[char],
    wanted: &[Wanted],
    collation: &Collation,
    effort: &Effort,
) -> Result<bool, SqlFault> {
    /// Comparisons of a character in a unit of effort.
    const COMPARISONS: u32 = 16;
    let mut looked = 0_u32;
    let (mut at, mut place) = (0, 0);
    let mut retry = None;
    while at < text.len() {
        looked = looked.wrapping_add(1);
        if looked.is_multiple_of(COMPARISONS) {
            effort.spend(1)?;
        }
        match wanted.get(place) {
            Some(Wanted::Any) => {
                retry = Some((at, place));
                place += 1;
                continue;
            }
            Some(Wanted::Some) => {}
            Some(Wanted::One(character)) if is_same(*character, text[at], collation) => {}
            _ => {
                let Some((from, any)) = retry else { return Ok(false) };
                retry = Some((from + 1, any));
                (at, place) = (from + 1, any + 1);
                continue;
            }
        }
        (at, place) = (at + 1, place + 1);
    }
    Ok(wanted[place..].iter().all(|part| matches!(part, Wanted::Any)))
}

/// The value as a field of that type takes it.
pub(crate) fn assigned(value: Value, ty: FieldType) -> Result<Value, SqlFault> {
    let converted = match (ty, &value) {
        (FieldType::Any, _) | (_, Value::Nil) => return Ok(value),
        (FieldType::Unsigned | FieldType::Integer, Value::Double(number)) if number.is_finite() => {
            Number::Int(number.trunc() as i128).into_value().ok()
        }
        (FieldType::Double, Value::Uint(_) | Value::Int(_)) => {
            number_of(&value).map(|number| Value::Double(number.to_double()))
        }
        _ => Some(value.clone()),
    };
    match converted {
        Some(converted) if ty.accepts(&converted.encode()) => Ok(converted),
        _ => Err(mismatch(&value, ty.name())),
    }
}

/// The value as a key part of that type has it, if it is the same value there.
pub(crate) fn assigned_exactly(value: &Value, ty: FieldType) -> Option<Value> {
    if *value == Value::Nil {
        return None;
    }
    let converted = match (ty, value) {
        (FieldType::Unsigned | FieldType::Integer, Value::Double(number)) if number.fract() != 0.0 => {
            return None;
        }
        (FieldType::Unsigned | FieldType::Integer | FieldType::Number | FieldType::Double, Value::Str(_)) => {
            numeric(value).ok()?.into_value().ok()?
        }
        _ => value.clone(),
    };
    let assigned = assigned(converted.clone(), ty).ok()?;
    // A double between two whole numbers of its size, or an integer that no double is, is left to the filter.
    (order_bytes(&assigned, &converted) == Ordering::Equal).then_some(assigned)
}

/// What `SUM` adds.
pub(crate) fn summand(value: &Value) -> Result<Number, SqlFault> {
    numeric(value).map_err(|_| mismatch(value, "number"))
}
