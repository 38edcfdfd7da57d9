//! Expected replies: JSON with a few special maps, compiled into patterns, and the comparison with a real reply.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use regex::Regex;
use serde_json::Value as Json;

use super::parse::{json, only_comment, word};
use crate::connection::Reply;
use crate::value::{self, Value};

/// A whole reply line.
#[derive(Debug)]
pub(crate) enum Want {
    /// Any success.
    Ok,
    /// Any success, or the error by which the real module's `create_tube` hides one.
    Done,
    Data(Pattern),
    Error {
        code: u32,
        message: Option<Regex>,
    },
}

/// Names captured by `$let` and `$uuid16`, for a whole file.
pub(crate) type Captures = BTreeMap<String, Value>;

/// The wall clock when a reply came, for `$now`.
pub(crate) type Moment = SystemTime;

#[derive(Debug)]
pub(crate) enum Pattern {
    Any,
    Nil,
    Bool(bool),
    /// Equal as a number, in any encoding.
    Int(i128),
    Double(f64),
    /// MP_STR of these bytes.
    Str(Vec<u8>),
    Bin(Vec<u8>),
    Array(Vec<Pattern>),
    /// Exactly these keys, in any order.
    Map(Vec<(Pattern, Pattern)>),
    /// At least these keys.
    Has(Vec<(Pattern, Pattern)>),
    /// An array of these in any order.
    Set(Vec<Pattern>),
    OneOf(Vec<Pattern>),
    /// MP_STR of 16 bytes under this name.
    Uuid16(String),
    Let(String),
    Length(usize),
    Matches(Regex),
    ExactInt(i128),
    ExactDouble(f64),
    Exact(Box<Pattern>),
    Approx {
        value: f64,
        tolerance: f64,
    },
    Bounds(Vec<(Bound, f64)>),
    /// Microseconds since the epoch: this number of seconds from now.
    Now {
        offset: f64,
        tolerance: f64,
    },
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Bound {
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
}

impl Want {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (first, rest) = word(text);
        let want = match first {
            "ok" => Want::Ok,
            "done" => Want::Done,
            "?" => return Err("this reply was not recorded yet".into()),
            _ => {
                let (wanted, rest) = json(text.trim_start())?;
                only_comment(rest)?;
                return Pattern::compile(&wanted).map(Want::Data);
            }
        };
        only_comment(rest)?;
        Ok(want)
    }

    /// `CODE /REGEX/`; the regex may be absent.
    pub(crate) fn parse_error(text: &str) -> Result<Self, String> {
        let (code, rest) = word(text);
        let code = code.parse().map_err(|_| format!("not an error's number: {code}"))?;
        let message = if rest.starts_with('/') {
            let (pattern, rest) = regex(rest)?;
            only_comment(rest)?;
            Some(pattern)
        } else {
            only_comment(rest)?;
            None
        };
        Ok(Want::Error { code, message })
    }

    /// Whether `reply` is this; new captures are kept only if it is.
    pub(crate) fn matches(&self, reply: &Reply, now: Moment, captures: &mut Captures) -> bool {
        match self {
            Want::Ok => reply.error == 0,
            Want::Done => {
                reply.error == 0
                    || (reply.error == 32 && reply.message().starts_with("unsupported Lua type '"))
            }
            Want::Data(pattern) => {
                reply.error == 0 && {
                    let mut tried = captures.clone();
                    let fits = pattern.matches(&reply.data(), now, &mut tried);
                    if fits {
                        *captures = tried;
                    }
                    fits
                }
            }
            Want::Error { code, message } => {
                reply.error == *code
                    && message.as_ref().is_none_or(|pattern| pattern.is_match(&reply.message()))
            }
        }
    }
}

/// `/REGEX/` at the beginning of `text`, `\/` for a slash; and what stands behind it.
pub(crate) fn regex(text: &str) -> Result<(Regex, &str), String> {
    let inner = text.trim_start().strip_prefix('/').ok_or("a /REGEX/ is missing")?;
    let mut escaped = false;
    let end = inner.bytes().position(|byte| {
        let ends = byte == b'/' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    });
    let end = end.ok_or("the regex has no end")?;
    let pattern = Regex::new(&inner[..end].replace("\\/", "/")).map_err(|error| error.to_string())?;
    Ok((pattern, &inner[end + 1..]))
}

impl Pattern {
    fn compile(wanted: &Json) -> Result<Self, String> {
        Ok(match wanted {
            Json::Null => Pattern::Nil,
            Json::Bool(b) => Pattern::Bool(*b),
            Json::Number(n) => match integer(n) {
                Some(n) => Pattern::Int(n),
                None => Pattern::Double(number(wanted)?),
            },
            Json::String(text) => Pattern::Str(text.as_bytes().to_vec()),
            Json::Array(items) => Pattern::Array(compile_all(items)?),
            Json::Object(map) => match map.keys().next() {
                Some(name) if name.starts_with('$') => Self::special(map)?,
                _ => Pattern::Map(fields(map)?),
            },
        })
    }

    fn special(map: &serde_json::Map<String, Json>) -> Result<Self, String> {
        let (name, argument) = map.iter().next().ok_or("an empty map is not special")?;
        let bound = |name: &str| match name {
            "$gt" => Ok(Bound::Greater),
            "$ge" => Ok(Bound::GreaterOrEqual),
            "$lt" => Ok(Bound::Less),
            "$le" => Ok(Bound::LessOrEqual),
            other => Err(format!("{other} is not known here")),
        };
        Ok(match name.as_str() {
            "$any" => Pattern::Any,
            "$bin" => Pattern::Bin(value::unhex(text(argument)?)?),
            "$str" => Pattern::Str(value::unhex(text(argument)?)?),
            "$uuid16" => Pattern::Uuid16(text(argument)?.to_owned()),
            "$let" => Pattern::Let(text(argument)?.to_owned()),
            "$oneof" => Pattern::OneOf(compile_all(array(argument)?)?),
            "$set" => Pattern::Set(compile_all(array(argument)?)?),
            "$has" => match argument {
                Json::Object(map) => Pattern::Has(fields(map)?),
                other => return Err(format!("$has takes a map, not {other}")),
            },
            "$map" => {
                let pair = |pair: &Json| match array(pair)? {
                    [key, wanted] => Ok((Pattern::compile(key)?, Pattern::compile(wanted)?)),
                    _ => Err(format!("$map takes pairs, not {pair}")),
                };
                Pattern::Map(array(argument)?.iter().map(pair).collect::<Result<_, String>>()?)
            }
            "$len" => Pattern::Length(argument.as_u64().ok_or("$len takes a length")? as usize),
            "$re" => Pattern::Matches(Regex::new(text(argument)?).map_err(|error| error.to_string())?),
            "$exact" => match Pattern::compile(argument)? {
                Pattern::Int(n) => Pattern::ExactInt(n),
                Pattern::Double(x) => Pattern::ExactDouble(x),
                other => Pattern::Exact(Box::new(other)),
            },
            "$approx" => {
                let [value, tolerance] = two(argument)?;
                Pattern::Approx { value, tolerance }
            }
            "$now" => {
                let [offset, tolerance] = two(argument)?;
                Pattern::Now { offset, tolerance }
            }
            "$repeat" | "$range" => Pattern::of_value(&made(name, argument)?),
            _ => {
                let bounds = map.iter().map(|(name, limit)| Ok((bound(name)?, number(limit)?)));
                Pattern::Bounds(bounds.collect::<Result<_, String>>()?)
            }
        })
    }

    fn of_value(value: &Value) -> Self {
        match value {
            Value::Int(n) => Pattern::Int(*n),
            Value::Str(bytes) => Pattern::Str(bytes.clone()),
            Value::Array(items) => Pattern::Array(items.iter().map(Self::of_value).collect()),
            other => unreachable!("$repeat and $range make texts and arrays of integers, not {other}"),
        }
    }

    fn matches(&self, got: &Value, now: Moment, captures: &mut Captures) -> bool {
        match self {
            Pattern::Any => true,
            Pattern::Nil => *got == Value::Nil,
            Pattern::Bool(b) => *got == Value::Bool(*b),
            Pattern::Int(n) => equal_int(*n, got),
            Pattern::Double(x) => equal_double(*x, got),
            Pattern::Str(bytes) => matches!(got, Value::Str(text) if text == bytes),
            Pattern::Bin(bytes) => matches!(got, Value::Bin(other) if other == bytes),
            Pattern::Array(wanted) => match got {
                Value::Array(items) if items.len() == wanted.len() => {
                    wanted.iter().zip(items).all(|(wanted, item)| wanted.matches(item, now, captures))
                }
                _ => false,
            },
            Pattern::Map(wanted) => match got {
                Value::Map(pairs) if pairs.len() == wanted.len() => has_all(wanted, pairs, now, captures),
                _ => false,
            },
            Pattern::Has(wanted) => matches!(got, Value::Map(pairs) if has_all(wanted, pairs, now, captures)),
            Pattern::Set(wanted) => match got {
                Value::Array(items) if items.len() == wanted.len() => {
                    let left = items.iter().collect::<Vec<_>>();
                    in_any_order(wanted, &left, now, captures)
                }
                _ => false,
            },
            Pattern::OneOf(branches) => branches.iter().any(|branch| {
                let mut tried = captures.clone();
                let fits = branch.matches(got, now, &mut tried);
                if fits {
                    *captures = tried;
                }
                fits
            }),
            Pattern::Uuid16(name) => {
                matches!(got, Value::Str(bytes) if bytes.len() == 16) && captured(name, got, captures)
            }
            Pattern::Let(name) => captured(name, got, captures),
            Pattern::Length(length) => match got {
                Value::Str(bytes) | Value::Bin(bytes) => bytes.len() == *length,
                Value::Array(items) => items.len() == *length,
                Value::Map(pairs) => pairs.len() == *length,
                _ => false,
            },
            Pattern::Matches(pattern) => got.as_text().is_some_and(|text| pattern.is_match(&text)),
            Pattern::ExactInt(n) => *got == Value::Int(*n),
            Pattern::ExactDouble(x) => {
                matches!(got, Value::Double(_) | Value::Float(_)) && equal_double(*x, got)
            }
            Pattern::Exact(wanted) => wanted.matches(got, now, captures),
            Pattern::Approx { value, tolerance } => {
                got.as_number().is_some_and(|got| (got - value).abs() <= *tolerance)
            }
            Pattern::Bounds(bounds) => got.as_number().is_some_and(|got| {
                bounds.iter().all(|(bound, limit)| match bound {
                    Bound::Greater => got > *limit,
                    Bound::GreaterOrEqual => got >= *limit,
                    Bound::Less => got < *limit,
                    Bound::LessOrEqual => got <= *limit,
                })
            }),
            Pattern::Now { offset, tolerance } => {
                let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs_f64();
                got.as_int().is_some_and(|got| (got as f64 / 1e6 - now - offset).abs() <= *tolerance)
            }
        }
    }
}

/// Whether every wanted pair is among `pairs`. The wanted keys are distinct texts or numbers, so the first that fits is it.
fn has_all(
    wanted: &[(Pattern, Pattern)],
    pairs: &[(Value, Value)],
    now: Moment,
    captures: &mut Captures,
) -> bool {
    wanted.iter().all(|(key, wanted)| {
        let found = pairs.iter().find(|(got, _)| key.matches(got, now, captures));
        found.is_some_and(|(_, got)| wanted.matches(got, now, captures))
    })
}

fn in_any_order(wanted: &[Pattern], left: &[&Value], now: Moment, captures: &mut Captures) -> bool {
    let Some((first, others)) = wanted.split_first() else { return true };
    (0..left.len()).any(|n| {
        let mut tried = captures.clone();
        let mut left = left.to_vec();
        let item = left.swap_remove(n);
        let fits = first.matches(item, now, &mut tried) && in_any_order(others, &left, now, &mut tried);
        if fits {
            *captures = tried;
        }
        fits
    })
}

fn captured(name: &str, got: &Value, captures: &mut Captures) -> bool {
    match captures.get(name) {
        Some(Value::Int(n)) => equal_int(*n, got),
        Some(Value::Double(x)) => equal_double(*x, got),
        Some(before) => before == got,
        None => {
            captures.insert(name.to_owned(), got.clone());
            true
        }
    }
}

fn equal_int(wanted: i128, got: &Value) -> bool {
    match got {
        Value::Int(n) => *n == wanted,
        Value::Float(_) | Value::Double(_) => got.as_number() == Some(wanted as f64),
        _ => false,
    }
}

fn equal_double(wanted: f64, got: &Value) -> bool {
    match got {
        // 1.1 as MP_FLOAT is the nearest float to it.
        Value::Float(x) => *x == wanted as f32,
        _ => got.as_number() == Some(wanted),
    }
}

fn fields(map: &serde_json::Map<String, Json>) -> Result<Vec<(Pattern, Pattern)>, String> {
    map.iter()
        .map(|(key, wanted)| Ok((Pattern::Str(key.as_bytes().to_vec()), Pattern::compile(wanted)?)))
        .collect()
}

fn compile_all(items: &[Json]) -> Result<Vec<Pattern>, String> {
    items.iter().map(Pattern::compile).collect()
}

/// A value to send, with the captures that it names.
pub(crate) fn to_send(wanted: &Json, captures: &Captures) -> Result<Value, String> {
    let all =
        |items: &[Json]| items.iter().map(|item| to_send(item, captures)).collect::<Result<Vec<_>, _>>();
    Ok(match wanted {
        Json::Null => Value::Nil,
        Json::Bool(b) => Value::Bool(*b),
        Json::Number(n) => match integer(n) {
            Some(n) => Value::Int(n),
            None => Value::Double(number(wanted)?),
        },
        Json::String(text) => Value::str(text),
        Json::Array(items) => Value::Array(all(items)?),
        Json::Object(map) => match map.iter().next() {
            Some((name, argument)) if name.starts_with('$') => match name.as_str() {
                "$bin" => Value::Bin(value::unhex(text(argument)?)?),
                "$str" => Value::Str(value::unhex(text(argument)?)?),
                "$let" => capture(text(argument)?, captures)?,
                "$uuid16" => match (capture(text(argument)?, captures)?, map.get("as")) {
                    (Value::Str(bytes), Some(Json::String(kind))) if kind == "bin" => Value::Bin(bytes),
                    (captured, _) => captured,
                },
                "$map" => {
                    let pair = |pair: &Json| match array(pair)? {
                        [key, item] => Ok((to_send(key, captures)?, to_send(item, captures)?)),
                        _ => Err(format!("$map takes pairs, not {pair}")),
                    };
                    Value::Map(array(argument)?.iter().map(pair).collect::<Result<_, String>>()?)
                }
                _ => made(name, argument)?,
            },
            _ => {
                let pair = |(key, item): (&String, &Json)| Ok((Value::str(key), to_send(item, captures)?));
                Value::Map(map.iter().map(pair).collect::<Result<_, String>>()?)
            }
        },
    })
}

/// `$repeat` and `$range`, the same in a request and in a reply.
fn made(name: &str, argument: &Json) -> Result<Value, String> {
    match (name, array(argument)?) {
        ("$repeat", [piece, count]) => {
            let count = count.as_u64().ok_or("$repeat takes a count")? as usize;
            Ok(Value::str(&text(piece)?.repeat(count)))
        }
        ("$range", [from, to]) => {
            let bound = |n: &Json| n.as_i64().map(i128::from).ok_or("$range takes integers");
            Ok(Value::Array((bound(from)?..bound(to)?).map(Value::Int).collect()))
        }
        _ => Err(format!("{name} is not known here")),
    }
}

fn capture(name: &str, captures: &Captures) -> Result<Value, String> {
    captures.get(name).cloned().ok_or_else(|| format!("nothing was captured as {name}"))
}

fn integer(n: &serde_json::Number) -> Option<i128> {
    n.as_u64().map(i128::from).or_else(|| n.as_i64().map(i128::from))
}

fn number(wanted: &Json) -> Result<f64, String> {
    wanted.as_f64().ok_or_else(|| format!("not a number: {wanted}"))
}

fn text(wanted: &Json) -> Result<&str, String> {
    wanted.as_str().ok_or_else(|| format!("not a text: {wanted}"))
}

fn array(wanted: &Json) -> Result<&[Json], String> {
    wanted.as_array().map(Vec::as_slice).ok_or_else(|| format!("not an array: {wanted}"))
}

fn two(wanted: &Json) -> Result<[f64; 2], String> {
    match array(wanted)? {
        [first, second] => Ok([number(first)?, number(second)?]),
        _ => Err(format!("not two numbers: {wanted}")),
    }
}
