//! Tuples: C data of Lua over MessagePack arrays.

use base64::Engine as _;
use lycosa_tuple::decimal::Decimal;
use lycosa_tuple::format::Format;
use lycosa_tuple::mp::{self, Reader};
use lycosa_tuple::path::Path;
use lycosa_tuple::tuple::TupleRef;
use lycosa_tuple::update;
use lycosa_tuple::value::Value;

use super::{USUAL_KEY, array, as_fields, id, not_an_array, of_store, tuple};
use crate::api::{Lua, MAX_EXACT, Native};
use crate::convert::{EXT_DECIMAL, EXT_UUID, TUPLE_HEAD};
use crate::error::Error;
use crate::host::to_error;
use crate::modules::options::number_text;
use crate::modules::yaml::is_unprintable;

/// Digits of a double in a tuple that is shown.
const DIGITS: usize = 14;

pub(super) const FUNCTIONS: &[(&str, Native)] = &[
    ("set_tuple_type", set_tuple_type),
    ("tuple_new", tuple_new),
    ("tuple_field", tuple_field),
    ("tuple_length", push_length_function),
    ("tuple_table", tuple_table),
    ("tuple_display", tuple_display),
    ("tuple_update", tuple_update),
    ("tuple_transform", tuple_transform),
    ("tuple_equal", tuple_equal),
    ("tuple_path", tuple_path),
    ("tuple_scalar", push_scalar_function),
    ("tuple_natural", push_natural_function),
];

fn set_tuple_type(lua: Lua) -> Result<i32, Error> {
    let mut types = lua.shared().types.get();
    types.tuple = id(lua, 1, "the type")?;
    lua.shared().types.set(types);
    Ok(0)
}

/// `tuple_new(table, space)`
fn tuple_new(lua: Lua) -> Result<i32, Error> {
    let bytes = array(lua, 1, USUAL_KEY)?;
    if !matches!(Reader::new(&bytes).kind(), Ok(mp::Kind::Array)) {
        return Err(not_an_array());
    }
    let space = lua.number(2).unwrap_or(0.0) as u32;
    lua.push_tuple_of(space, &bytes)?;
    Ok(1)
}

fn tuple_at(lua: &Lua, index: i32) -> Result<&[u8], Error> {
    lua.tuple(index).ok_or_else(|| Error::here("the argument is no tuple"))
}

/// `tuple_field(tuple, number)`: a field from 1; nothing beyond the end.
fn tuple_field(lua: Lua) -> Result<i32, Error> {
    let bytes = tuple_at(&lua, 1)?;
    let number = lua.number(2).unwrap_or(0.0);
    if !(1.0..=4_294_967_295.0).contains(&number) {
        lua.push_nil();
        return Ok(1);
    }
    match TupleRef::trusted(bytes).field(number as u32 - 1) {
        Some(field) => lua.decode(&mut Reader::new(field))?,
        None => lua.push_nil(),
    }
    Ok(1)
}

/// A field that needs no object of Lua and is no number, as [`scalar`] hands it to Lua's FFI.
#[repr(C)]
struct Scalar {
    /// A string's bytes, within the tuple.
    bytes: *const u8,
    length: u32,
    kind: Found,
}

/// What [`scalar`] found. `box_tuple.lua` has the same numbers.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing = 0,
    Number = 1,
    String = 2,
    True = 3,
    False = 4,
    Null = 5,
    /// An unsigned number that is no number of Lua.
    Natural = 7,
    /// A value that only [`tuple_field`] can make.
    Other = 6,
}

/// The MessagePack array of a `struct tuple`.
///
/// # Safety
/// Its size is that of the bytes behind its head. They live as long as the tuple.
unsafe fn content<'t>(tuple: *const u8) -> &'t [u8] {
    // SAFETY: the caller's promise; C data is aligned for the head.
    unsafe {
        let length = tuple.cast::<u32>().read_unaligned() as usize;
        std::slice::from_raw_parts(tuple.add(TUPLE_HEAD), length)
    }
}

/// The number of fields, for compiled code.
///
/// # Safety
/// As of [`content`].
unsafe extern "C" fn length(tuple: *const u8) -> f64 {
    // SAFETY: the caller's promise.
    f64::from(TupleRef::trusted(unsafe { content(tuple) }).len())
}

/// The address of [`length`].
fn push_length_function(lua: Lua) -> Result<i32, Error> {
    let function: unsafe extern "C" fn(*const u8) -> f64 = length;
    lua.push_uint64(function as usize as u64);
    Ok(1)
}

/// A field from 1, for compiled code: a call of this function does not end a trace, as one of [`tuple_field`] does.
/// Returns the number that the field is; NaN otherwise, and `out` says what it is.
///
/// A number is returned and not written to `out`: LuaJIT may move a load of `out` behind the call that reads the next
/// field, so that a comparison of two fields would compare one of them with itself.
///
/// # Safety
/// `tuple` is a `struct tuple` whose size is that of the bytes behind its head, and `out` can be written.
unsafe extern "C" fn scalar(tuple: *const u8, number: f64, out: *mut Scalar) -> f64 {
    // SAFETY: the caller's promise.
    let (value, found) = unsafe { find(tuple, number) };
    let value = match value {
        Content::Number(value) => value,
        Content::Nothing => f64::NAN,
        Content::Text(text) => {
            // SAFETY: the caller's promise.
            unsafe {
                (*out).bytes = text.as_ptr();
                (*out).length = text.len() as u32;
            }
            f64::NAN
        }
    };
    if value.is_nan() {
        // SAFETY: the caller's promise.
        unsafe { (*out).kind = found };
    }
    value
}

/// What [`find`] found with a kind of value.
enum Content<'t> {
    Nothing,
    Number(f64),
    Text(&'t [u8]),
}

/// # Safety
/// As of [`content`].
unsafe fn find<'t>(tuple: *const u8, number: f64) -> (Content<'t>, Found) {
    // SAFETY: the caller's promise.
    let Some(mut reader) = (unsafe { field_at(tuple, number) }) else {
        return (Content::Nothing, Found::Nothing);
    };
    let found = match reader.kind() {
        Ok(mp::Kind::Nil) => Found::Null,
        Ok(mp::Kind::Bool) => match reader.bool() {
            Ok(true) => Found::True,
            Ok(false) => Found::False,
            Err(_) => Found::Other,
        },
        Ok(mp::Kind::Uint) => match reader.uint() {
            Ok(value) if value > MAX_EXACT => Found::Natural,
            Ok(value) => return (Content::Number(value as f64), Found::Number),
            Err(_) => Found::Other,
        },
        Ok(mp::Kind::Double) => match reader.double() {
            Ok(value) => return (Content::Number(value), Found::Number),
            Err(_) => Found::Other,
        },
        Ok(mp::Kind::Str) => match reader.str() {
            Ok(text) => return (Content::Text(text), Found::String),
            Err(_) => Found::Other,
        },
        _ => Found::Other,
    };
    (Content::Nothing, found)
}

/// # Safety
/// As of [`content`].
unsafe fn field_at<'t>(tuple: *const u8, number: f64) -> Option<Reader<'t>> {
    if !(1.0..=4_294_967_295.0).contains(&number) {
        return None;
    }
    // SAFETY: the caller's promise.
    TupleRef::trusted(unsafe { content(tuple) }).at(number as u32 - 1)
}

/// An unsigned field that is no number of Lua ([`Found::Natural`]); returned for the reason that [`scalar`] names.
///
/// # Safety
/// As of [`content`].
unsafe extern "C" fn natural(tuple: *const u8, number: f64) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { field_at(tuple, number) }.and_then(|mut reader| reader.uint().ok()).unwrap_or_default()
}

/// The address of [`natural`].
fn push_natural_function(lua: Lua) -> Result<i32, Error> {
    let function: unsafe extern "C" fn(*const u8, f64) -> u64 = natural;
    lua.push_uint64(function as usize as u64);
    Ok(1)
}

/// The address of [`scalar`].
fn push_scalar_function(lua: Lua) -> Result<i32, Error> {
    let function: unsafe extern "C" fn(*const u8, f64, *mut Scalar) -> f64 = scalar;
    lua.push_uint64(function as usize as u64);
    Ok(1)
}

/// The tuple as a table of its fields.
fn tuple_table(lua: Lua) -> Result<i32, Error> {
    let bytes = tuple_at(&lua, 1)?.to_vec();
    lua.decode(&mut Reader::new(&bytes))?;
    Ok(1)
}

fn tuple_equal(lua: Lua) -> Result<i32, Error> {
    let same = matches!((lua.tuple(1), lua.tuple(2)), (Some(one), Some(other)) if one == other);
    lua.push_bool(same);
    Ok(1)
}

/// `tuple_path(tuple, path)`: the value at a JSON path; nil if there is none, or the text is no path.
fn tuple_path(lua: Lua) -> Result<i32, Error> {
    let bytes = tuple_at(&lua, 1)?.to_vec();
    let path = Path::parse(lua.bytes(2).unwrap_or_default());
    match path.ok().as_ref().and_then(|path| path.lookup(&bytes)) {
        Some(value) => lua.decode(&mut Reader::new(value))?,
        None => lua.push_nil(),
    }
    Ok(1)
}

/// Beside the space of a tuple that a `before_replace` trigger is shown: the format is asked for after the triggers, and what they
/// make of the tuple is not checked before.
pub(super) const PROPOSED: u32 = 1 << 31;

/// Refuses a tuple that does not fit the format of its space, if the space still exists.
fn check_format(lua: Lua, space: u32, tuple: &[u8]) -> Result<(), Error> {
    let misfit = lua.with_instance(|instance| {
        let space = instance.store().space(space).ok();
        Ok(space.and_then(|space| space.format().check(TupleRef::trusted(tuple)).err()))
    })?;
    match misfit {
        Some(error) => Err(to_error(of_store(&lycosa_store::Error::Format(error)))),
        None => Ok(()),
    }
}

/// `tuple_update(tuple, operations, space, base, is_upsert)`: `base` is the number of the first field in operations, 1 if it
/// is not given. An upsert leaves out operations that fail.
fn tuple_update(lua: Lua) -> Result<i32, Error> {
    let bytes = tuple_at(&lua, 1)?.to_vec();
    let operations = tuple(lua, 2)?;
    let space = lua.number(3).unwrap_or(0.0) as u32;
    let base = lua.number(4).map_or(1, |base| base as i64);
    let mode = if lua.truth(5) { update::Mode::Upsert } else { update::Mode::Update };
    let updated = update::apply(
        &operations,
        TupleRef::trusted(&bytes),
        &Format::default(),
        base,
        mode,
        update::STEP_LIMIT,
    );
    let updated = updated.map_err(|error| to_error(of_store(&lycosa_store::Error::Update(error))))?;
    if space != 0 && space & PROPOSED == 0 {
        check_format(lua, space, &updated)?;
    }
    lua.push_tuple_of(space, &updated)?;
    Ok(1)
}

/// An argument as Lua's functions in C take a whole number: a string may stand for it, and any other value is 0.
fn whole(lua: Lua, index: i32) -> i64 {
    let written = || lua.text(index).and_then(|text| text.trim().parse::<f64>().ok());
    lua.number(index).or_else(written).unwrap_or_default() as i64
}

/// `tuple_transform(tuple, first, count, …)`: a new tuple in which the values stand in place of `count` fields from `first`
/// on. The other fields are copied as they are.
fn tuple_transform(lua: Lua) -> Result<i32, Error> {
    let given = lua.top() - 3;
    if given < 0 || lua.tuple(1).is_none() {
        return Err(Error::text("tuple.transform(): bad arguments"));
    }
    let (first, count) = (whole(lua, 2), whole(lua, 3));
    let total = i64::from(TupleRef::trusted(tuple_at(&lua, 1)?).len());
    if first == 0 || first < -total {
        return Err(Error::text("tuple.transform(): offset is out of bound"));
    }
    if count < 0 {
        return Err(Error::text("tuple.transform(): len is negative"));
    }
    let begin = if first < 0 { total + first } else { (first - 1).min(total) };
    let end = begin.saturating_add(count).min(total);
    let fields = total - (end - begin) + i64::from(given);
    let mut out = Vec::with_capacity(tuple_at(&lua, 1)?.len() + USUAL_KEY);
    mp::write_array(&mut out, u32::try_from(fields).unwrap_or(u32::MAX));
    let (before, after) = cut(tuple_at(&lua, 1)?, begin, end);
    out.extend_from_slice(before);
    // `__serialize` may run here; the tuple stays where it is on the stack.
    for index in 4..=given + 3 {
        lua.encode_with(index, &mut out, &as_fields(lua))?;
    }
    out.extend_from_slice(after);
    lua.push_tuple(&out)?;
    Ok(1)
}

/// The bytes of the fields before `begin` and of those from `end` on.
fn cut(tuple: &[u8], begin: i64, end: i64) -> (&[u8], &[u8]) {
    let body = TupleRef::trusted(tuple).body();
    let mut reader = Reader::new(body);
    let mut skip = |fields: i64| {
        for _ in 0..fields {
            // The bytes of a tuple are whole.
            let _ = reader.skip();
        }
        body.len() - reader.rest().len()
    };
    let (kept, rest) = (skip(begin), skip(end - begin));
    (&body[..kept], &body[rest..])
}

/// The tuple as `tostring` shows it: `[1, 'a', {'b': 2}]`.
fn tuple_display(lua: Lua) -> Result<i32, Error> {
    let bytes = tuple_at(&lua, 1)?;
    let mut text = String::new();
    display(&mut Reader::new(bytes), &mut text, 0);
    lua.push_str(text);
    Ok(1)
}

fn display(reader: &mut Reader<'_>, out: &mut String, depth: usize) {
    use std::fmt::Write as _;
    if depth > crate::MAX_NESTING {
        let _ = reader.skip();
        out.push_str("...");
        return;
    }
    match reader.kind() {
        Ok(mp::Kind::Array) => {
            let count = reader.array().unwrap_or(0);
            out.push('[');
            for number in 0..count {
                if number > 0 {
                    out.push_str(", ");
                }
                display(reader, out, depth + 1);
            }
            out.push(']');
        }
        Ok(mp::Kind::Map) => {
            let count = reader.map().unwrap_or(0);
            out.push('{');
            for number in 0..count {
                if number > 0 {
                    out.push_str(", ");
                }
                display(reader, out, depth + 1);
                out.push_str(": ");
                display(reader, out, depth + 1);
            }
            out.push('}');
        }
        _ => match Value::read(reader) {
            Ok(Value::Nil) => out.push_str("null"),
            Ok(Value::Bool(value)) => {
                let _ = write!(out, "{value}");
            }
            Ok(Value::Uint(value)) => {
                let _ = write!(out, "{value}");
            }
            Ok(Value::Int(value)) => {
                let _ = write!(out, "{value}");
            }
            Ok(Value::Float(value)) => out.push_str(&number_text(f64::from(value), DIGITS)),
            Ok(Value::Double(value)) => out.push_str(&number_text(value, DIGITS)),
            Ok(Value::Str(text) | Value::Bin(text)) => display_text(&text, out, depth),
            Ok(Value::Ext(kind, bytes)) => match (Decimal::from_ext(&bytes), <[u8; 16]>::try_from(bytes)) {
                (Some(value), _) if kind == EXT_DECIMAL => {
                    let _ = write!(out, "{value}");
                }
                (_, Ok(bytes)) if kind == EXT_UUID => {
                    let _ = write!(out, "{}", uuid::Uuid::from_bytes(bytes));
                }
                _ => out.push_str("..."),
            },
            Ok(_) => out.push_str("..."),
            Err(_) => out.push('?'),
        },
    }
}

/// A string as YAML shows it: in single quotes if it can be printed, in double quotes with escapes if it holds control characters
/// or blanks beside a line break, as base64 if it is no UTF-8.
fn display_text(bytes: &[u8], out: &mut String, depth: usize) {
    use std::fmt::Write as _;
    let text = str::from_utf8(bytes).ok().filter(|text| !text.chars().any(is_unprintable));
    let Some(text) = text else {
        out.push_str("!!binary ");
        out.push_str(&base64::engine::general_purpose::STANDARD.encode(bytes));
        return;
    };
    let is_quoted_once = !text.chars().any(|character| character.is_control() && character != '\n');
    if is_quoted_once && !text.contains(" \n") && !text.contains("\n ") {
        display_lines(text, out, depth);
        return;
    }
    out.push('"');
    for character in text.chars() {
        match character {
            '\0' => out.push_str("\\0"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            '\u{1b}' => out.push_str("\\e"),
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            character if character.is_control() => {
                let _ = write!(out, "\\x{:02X}", u32::from(character));
            }
            character => out.push(character),
        }
    }
    out.push('"');
}

/// A text in single quotes. In them one line break more than the text has ends a line, and the line behind it is indented by its
/// depth.
fn display_lines(text: &str, out: &mut String, depth: usize) {
    out.push('\'');
    let mut is_behind_break = false;
    for line in text.split_inclusive('\n') {
        let content = line.trim_end_matches('\n');
        if is_behind_break && !content.is_empty() {
            out.extend(std::iter::repeat_n(' ', 2 * depth + 2));
            is_behind_break = false;
        }
        out.push_str(&content.replace('\'', "''"));
        if content.len() < line.len() {
            out.push_str(if is_behind_break { "\n" } else { "\n\n" });
            is_behind_break = true;
        }
    }
    if is_behind_break {
        out.extend(std::iter::repeat_n(' ', 2 * depth + 2));
    }
    out.push('\'');
}
