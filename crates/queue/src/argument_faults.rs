//! Faults of a call, in the words of its caller.
//!
//! The Lua module stumbles over a wrong argument wherever Lua or `box` first minds it: `pri = "high"` is "Tuple field 6 type
//! does not match", and `take("now")` is "attempt to compare string with number". Programs know these texts and codes, so
//! they stay as they are, at the end of the message. In front of them stands what the caller did: method, argument or option,
//! its value, and what it should be.
//!
//! All of it happens after a call was refused: a call that succeeds pays nothing.

use std::fmt::Write;

use lycosa_store::Error as StoreError;
use lycosa_tuple::format::FormatError;
use lycosa_tuple::mp::{Kind, Reader};
use lycosa_tuple::value::Value;

use crate::arguments::{Arguments, Number, Table, is_nil, kind, unsigned};
use crate::error::Error;
use crate::procedure::TubeMethod;

/// The longest value that an error shows, in characters.
const MAX_SHOWN: usize = 64;
const SECONDS: &str = "a number of seconds";
const WHOLE: &str = "a whole number, 0 or more";

/// The error of a refused call, with the argument that it was refused for, if one of them is wrong.
#[cold]
pub(crate) fn explain(method: TubeMethod, arguments: Arguments<'_>, error: Error) -> Error {
    if !is_about_an_argument(&error) {
        return error;
    }
    let Some(what) = culprit(method, arguments) else { return error };
    let refused = |what: &str, reason| Error::Refused { what: format!("{}: {what}", method.name()), reason };
    match error {
        // The element stands in front, and once.
        Error::InBatch { element, reason } => {
            let what = what.strip_prefix(&format!("{element}: ")).unwrap_or(&what).to_owned();
            Error::InBatch { element, reason: Box::new(refused(&what, reason)) }
        }
        error => refused(&what, Box::new(error)),
    }
}

/// Whether only an argument can have led to the error.
fn is_about_an_argument(error: &Error) -> bool {
    match error {
        Error::InBatch { reason, .. } => is_about_an_argument(reason),
        Error::Compare { .. } | Error::OptionsType(_) | Error::OptionsNull(_) | Error::KickLimit => true,
        Error::Store(StoreError::Format(error)) => {
            matches!(error, FormatError::FieldType { .. } | FormatError::FieldMissing { .. })
        }
        Error::Store(StoreError::Key(_)) => true,
        _ => false,
    }
}

/// The first argument or option that no call of the method takes.
fn culprit(method: TubeMethod, arguments: Arguments<'_>) -> Option<String> {
    use TubeMethod as M;
    let (first, second) = (arguments.get(0), arguments.get(1));
    match method {
        M::Put => match first {
            None => Some("argument #1, the payload, is missing".to_owned()),
            Some(_) => of_options(second),
        },
        M::PutMany => match second.map(kind) {
            Some(Kind::Array) => elements(second?).find_map(|(place, options)| {
                let what = of_options(Some(options).filter(|options| !is_nil(options)))?;
                Some(format!("#{place}: {what}"))
            }),
            _ => of_options(second),
        },
        M::Take => of_number(first, "argument #1, the timeout,", SECONDS),
        M::TakeMany => of_number(second, "argument #2, the timeout,", SECONDS),
        M::Touch => of_id(first).or_else(|| of_number(second, "argument #2, the increment,", SECONDS)),
        M::Release => of_id(first).or_else(|| of_options(second)),
        M::Ack | M::Peek | M::Bury | M::Delete => of_id(first),
        M::Kick => of_number(first, "argument #1, the count,", "a number of tasks"),
        M::AckMany | M::BuryMany | M::KickMany | M::DeleteMany => of_ids(first),
        M::ReleaseMany => of_ids(first).or_else(|| of_options(second)),
        _ => None,
    }
}

fn of_id(value: Option<&[u8]>) -> Option<String> {
    match value {
        None => Some("argument #1, the task's id, is missing".to_owned()),
        Some(value) if unsigned(value).is_some() => None,
        Some(value) => Some(format!("argument #1, the task's id, is {}, not {WHOLE}", shown(value))),
    }
}

fn of_ids(value: Option<&[u8]>) -> Option<String> {
    let (place, value) = elements(value?).find(|(_, value)| unsigned(value).is_none())?;
    Some(format!("id #{place} of argument #1 is {}, not {WHOLE}", shown(value)))
}

fn of_number(value: Option<&[u8]>, name: &str, expected: &str) -> Option<String> {
    let value = value.filter(|value| !is_nil(value))?;
    Number::parse(value).is_none().then(|| format!("{name} is {}, not {expected}", shown(value)))
}

fn of_options(options: Option<&[u8]>) -> Option<String> {
    let value = options?;
    if Table::parse(options).is_err() || is_nil(value) {
        return Some(format!("argument #2, the options, is {}, not a map", shown(value)));
    }
    // `false` and null count as absent where the module says `opts.x or default`.
    let is_given = |value: &[u8]| !is_nil(value) && value != [0xc2];
    let given = Table::parse(options).ok()?.filter(|(_, value)| is_given(value));
    given.into_iter().find_map(|(option, value)| {
        let number = Number::parse(value);
        let expected = match option {
            b"ttl" | b"ttr" | b"delay" | b"timeout" if number.is_none() => SECONDS,
            b"pri" if number.and_then(Number::unsigned).is_none() => WHOLE,
            _ => return None,
        };
        Some(format!("option {} is {}, not {expected}", String::from_utf8_lossy(option), shown(value)))
    })
}

/// The elements of an array and their places, from 1.
fn elements(array: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    let mut reader = Reader::new(array);
    let count = reader.array().unwrap_or(0);
    (1..=count).map_while(move |place| Some((place, reader.raw().ok()?)))
}

/// A value for a message: as JSON would have it, cut to a length that a line bears.
fn shown(value: &[u8]) -> String {
    match kind(value) {
        Kind::Map => return "a map".to_owned(),
        Kind::Array => return "an array".to_owned(),
        Kind::Bin => return "a binary string".to_owned(),
        Kind::Nil => return "null".to_owned(),
        _ => {}
    }
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = match Value::decode(value) {
        Ok(Value::Str(bytes)) => write!(text, "{:?}", String::from_utf8_lossy(&bytes)),
        Ok(other) => write!(text, "{}", crate::lua_text::text(Some(&other.encode()))),
        Err(_) => write!(text, "unreadable"),
    };
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The known name that a name was meant to be: one letter is wrong, missing, too many or in another place. Names of one or
/// two letters are meant as they are.
#[must_use]
pub fn misspelt<'a>(name: &[u8], known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() < 3 || name.len() > MAX_SHOWN {
        return None;
    }
    let is_near = |known: &&str| name != known.as_bytes() && is_one_slip(name, known.as_bytes());
    known.into_iter().find(is_near)
}

/// Whether one slip of the pen makes `right` of `wrong`. Capital letters are no slip of their own.
fn is_one_slip(wrong: &[u8], right: &[u8]) -> bool {
    let same = |(a, b): (&u8, &u8)| a.eq_ignore_ascii_case(b);
    let ahead = wrong.iter().zip(right).take_while(|pair| same(*pair)).count();
    let (wrong, right) = (&wrong[ahead..], &right[ahead..]);
    let equal = |a: &[u8], b: &[u8]| a.eq_ignore_ascii_case(b);
    match (wrong, right) {
        ([], []) => true,
        ([_, wrong @ ..], right) if equal(wrong, right) => true,
        (wrong, [_, right @ ..]) if equal(wrong, right) => true,
        ([_, wrong @ ..], [_, right @ ..]) if equal(wrong, right) => true,
        ([a, b, wrong @ ..], [c, d, right @ ..]) => same((a, d)) && same((b, c)) && equal(wrong, right),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slip_and_not_two() {
        const KNOWN: [&str; 6] = ["delay", "pri", "timeout", "ttl", "ttr", "utube"];
        for (wrong, right) in [
            ("dealy", "delay"),
            ("dely", "delay"),
            ("delayy", "delay"),
            ("Pri", "pri"),
            ("prio", "pri"),
            ("time_out", "timeout"),
            ("tll", "ttl"),
            ("utub", "utube"),
        ] {
            assert_eq!(misspelt(wrong.as_bytes(), KNOWN), Some(right), "{wrong}");
        }
        for other in ["delay", "priority", "tt", "", "x", "wait", "retries", "tube_name", "trace_id"] {
            assert_eq!(misspelt(other.as_bytes(), KNOWN), None, "{other}");
        }
    }
}
