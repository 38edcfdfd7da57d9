//! `utf8`: texts as sequences of characters. Bytes that are no UTF-8 are kept as they are; each ill-formed sequence
//! counts as one character.

use std::sync::LazyLock;

use icu_properties::CodePointMapData;
use icu_properties::props::{GeneralCategory, GeneralCategoryGroup};
use lycosa_tuple::collation::Collation;

use crate::api::{Kind, Lua};
use crate::big_stack::on_big_stack;
use crate::error::Error;

/// The order of `utf8.cmp`.
static EXACT: LazyLock<Collation> = LazyLock::new(|| collation("TERTIARY"));
/// The order of `utf8.casecmp`.
static BASE: LazyLock<Collation> = LazyLock::new(|| collation("PRIMARY"));

fn collation(strength: &str) -> Collation {
    Collation::new("ICU", "", [("strength", strength)]).expect("the root collation is compiled in")
}

pub(super) fn open(lua: Lua) -> Result<i32, Error> {
    lua.new_library(&[
        ("casecmp", |lua| compare(lua, "casecmp", &BASE)),
        ("char", char_of),
        ("cmp", |lua| compare(lua, "cmp", &EXACT)),
        ("isalpha", |lua| is_in(lua, "isalpha", GeneralCategoryGroup::Letter)),
        ("isdigit", |lua| is_in(lua, "isdigit", GeneralCategoryGroup::DecimalNumber)),
        ("islower", |lua| is_in(lua, "islower", GeneralCategoryGroup::LowercaseLetter)),
        ("isupper", |lua| is_in(lua, "isupper", GeneralCategoryGroup::UppercaseLetter)),
        ("len", len),
        ("lower", |lua| map(lua, "lower", str::to_lowercase)),
        ("next", next),
        ("sub", sub),
        ("upper", |lua| map(lua, "upper", str::to_uppercase)),
    ]);
    Ok(1)
}

/// `char(code, …)`: numbers that are no code points are written all the same, in the same pattern of bytes.
fn char_of(lua: Lua) -> Result<i32, Error> {
    let mut out = Vec::new();
    if lua.top() == 0 {
        return Err(Error::here("Usage: utf8.char(<char code>"));
    }
    for index in 1..=lua.top() {
        let code = argument(lua, index)? as i64 as u32;
        let tail = |shift: u32| 0x80 | (code >> shift) as u8 & 0x3f;
        match code {
            0..0x80 => out.push(code as u8),
            0x80..0x800 => out.extend([0xc0 | (code >> 6) as u8, tail(0)]),
            0x800..0x1_0000 => out.extend([0xe0 | (code >> 12) as u8, tail(6), tail(0)]),
            _ => out.extend([0xf0 | (code >> 18) as u8, tail(12), tail(6), tail(0)]),
        }
    }
    lua.push_str(out);
    Ok(1)
}

/// `sub(text, first, last)`, counted in characters.
fn sub(lua: Lua) -> Result<i32, Error> {
    const USAGE: &str = "Usage: utf8.sub(<string>, [i, [j]])";
    let text = string(lua, 1, USAGE)?;
    if lua.top() < 2 {
        return Err(Error::here(USAGE));
    }
    let (first, last) = (argument(lua, 2)? as i64, optional(lua, 3, -1)?);
    let mut starts = Vec::new();
    let mut at = 0;
    while let Some((_, length)) = decode(&text, at) {
        starts.push(at);
        at += length;
    }
    starts.push(at);
    let count = starts.len() as i64 - 1;
    let place = |offset: i64| if offset < 0 { (count + offset + 1).max(0) } else { offset };
    let (first, last) = (place(first).max(1), place(last).min(count));
    let found = if first > last { &[] } else { &text[starts[first as usize - 1]..starts[last as usize]] };
    lua.push_str(found);
    Ok(1)
}

/// `len(text, first, last)`: the characters that begin between two bytes; nil and a place where the bytes are no UTF-8.
fn len(lua: Lua) -> Result<i32, Error> {
    let text = string(lua, 1, "Usage: utf8.len(<string>, [i, [j]])")?;
    let first = offset(optional(lua, 2, 1)?, text.len());
    let last = offset(optional(lua, 3, -1)?, text.len());
    if first < 1 || first - 1 > text.len() as i64 || last > text.len() as i64 {
        lua.push_nil();
        lua.push_str("position is out of string");
        return Ok(2);
    }
    let (mut at, mut count) = (first as usize - 1, 0);
    while (at as i64) < last {
        let Some((code, length)) = decode(&text, at) else { break };
        at += length;
        count += 1;
        if code.is_none() {
            lua.push_nil();
            lua.push_int(at as i64);
            return Ok(2);
        }
    }
    lua.push_int(count);
    Ok(1)
}

/// `next(text, offset)`: where the next character begins, and the code of this one; an iterator.
fn next(lua: Lua) -> Result<i32, Error> {
    let text = string(lua, 1, "Usage: utf8.next(<string>, [<byte offset>])")?;
    let at = (offset(optional(lua, 2, 1)?, text.len()) - 1).max(0) as usize;
    let Some((Some(code), length)) = decode(&text, at) else {
        return Ok(0);
    };
    lua.push_int((at + length) as i64 + 1);
    lua.push_int(i64::from(u32::from(code)));
    Ok(2)
}

fn map(lua: Lua, name: &str, map: fn(&str) -> String) -> Result<i32, Error> {
    let usage = format!("Usage: utf8.{name}(<string>)");
    if lua.top() != 1 {
        return Err(Error::here(usage));
    }
    let text = string(lua, 1, &usage)?;
    let mut out = Vec::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        out.extend(map(chunk.valid()).into_bytes());
        out.extend(chunk.invalid());
    }
    lua.push_str(out);
    Ok(1)
}

/// Whether a text of one character, or a code point, is in a group of categories.
fn is_in(lua: Lua, name: &str, group: GeneralCategoryGroup) -> Result<i32, Error> {
    let code = if lua.top() != 1 {
        return Err(Error::here(format!("Usage: utf8.{name}(<string> or <one symbol code>)")));
    } else if let Some(text) = lua.bytes(1) {
        match decode(text, 0) {
            Some((Some(code), length)) if length == text.len() => Some(code),
            _ => None,
        }
    } else {
        u32::try_from(argument(lua, 1)? as i64).ok().and_then(char::from_u32)
    };
    let category = |code| CodePointMapData::<GeneralCategory>::new().get(code);
    lua.push_bool(code.is_some_and(|code| group.contains(category(code))));
    Ok(1)
}

fn compare(lua: Lua, name: &str, collation: &Collation) -> Result<i32, Error> {
    let usage = format!("Usage: utf8.{name}(<string1>, <string2>)");
    if lua.top() != 2 {
        return Err(Error::here(usage));
    }
    let (left, right) = (string(lua, 1, &usage)?, string(lua, 2, &usage)?);
    lua.push_int(on_big_stack(|| collation.compare(&left, &right)) as i64);
    Ok(1)
}

/// The character at `at` and its length in bytes. `None` for the character if the bytes are ill-formed; `None` at the
/// end.
fn decode(text: &[u8], at: usize) -> Option<(Option<char>, usize)> {
    const LONGEST: usize = 4;
    let rest = text.get(at..).filter(|rest| !rest.is_empty())?;
    let chunk = rest[..rest.len().min(LONGEST)].utf8_chunks().next()?;
    Some(match chunk.valid().chars().next() {
        Some(code) => (Some(code), code.len_utf8()),
        None => (None, chunk.invalid().len()),
    })
}

/// A place in a text of `length` bytes, counted from 1, or from −1 at the end; 0 if it is before the beginning.
fn offset(place: i64, length: usize) -> i64 {
    if place < 0 { (length as i64 + place + 1).max(0) } else { place }
}

/// A string, or a number as one.
fn string(lua: Lua, index: i32, usage: &str) -> Result<Vec<u8>, Error> {
    match lua.kind(index) {
        Kind::Number => Ok(lua.display(index).into_bytes()),
        _ => Ok(lua.arg_bytes(index, usage)?.to_vec()),
    }
}

/// A number, or a string that is one.
fn argument(lua: Lua, index: i32) -> Result<f64, Error> {
    let number = match lua.kind(index) {
        Kind::String => lua.text(index).and_then(|text| text.trim().parse().ok()),
        _ => lua.number(index),
    };
    number.ok_or_else(|| {
        let kind = lua.type_name(index);
        Error::here(format!("bad argument #{index} to '?' (number expected, got {kind})"))
    })
}

fn optional(lua: Lua, index: i32, otherwise: i64) -> Result<i64, Error> {
    if matches!(lua.kind(index), Kind::Nil | Kind::None) {
        return Ok(otherwise);
    }
    Ok(argument(lua, index)? as i64)
}
