//! Tuples: C data of Lua over MessagePack arrays.

use lycosa_tuple::format::Format;
use lycosa_tuple::mp::{self, Reader};
use lycosa_tuple::tuple::TupleRef;
use lycosa_tuple::update;
use lycosa_tuple::value::Value;

use super::{id, key, of_store, tuple};
use crate::api::{Lua, Native};
use crate::error::Error;
use crate::host::to_error;

pub(super) const FUNCTIONS: &[(&str, Native)] = &[
    ("set_tuple_type", set_tuple_type),
    ("tuple_new", tuple_new),
    ("tuple_field", tuple_field),
    ("tuple_len", tuple_len),
    ("tuple_table", tuple_table),
    ("tuple_display", tuple_display),
    ("tuple_update", tuple_update),
    ("tuple_equal", tuple_equal),
];

fn set_tuple_type(lua: Lua) -> Result<i32, Error> {
    let mut types = lua.shared().types.get();
    types.tuple = id(lua, 1, "the type")?;
    lua.shared().types.set(types);
    Ok(0)
}

/// `tuple_new(table, space)`
fn tuple_new(lua: Lua) -> Result<i32, Error> {
    let bytes = key(lua, 1)?;
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

fn tuple_len(lua: Lua) -> Result<i32, Error> {
    let bytes = tuple_at(&lua, 1)?;
    lua.push_number(f64::from(TupleRef::trusted(bytes).len()));
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

/// `tuple_update(tuple, operations, space)`
fn tuple_update(lua: Lua) -> Result<i32, Error> {
    let bytes = tuple_at(&lua, 1)?.to_vec();
    let operations = tuple(lua, 2)?;
    let space = lua.number(3).unwrap_or(0.0) as u32;
    let updated =
        update::apply(&operations, TupleRef::trusted(&bytes), &Format::default(), 1, update::Mode::Update);
    let updated = updated.map_err(|error| to_error(of_store(&lycosa_store::Error::Update(error))))?;
    lua.push_tuple_of(space, &updated)?;
    Ok(1)
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
            Ok(Value::Float(value)) => {
                let _ = write!(out, "{value}");
            }
            Ok(Value::Double(value)) => {
                let _ = write!(out, "{value}");
            }
            Ok(Value::Str(text)) => {
                let text = String::from_utf8_lossy(&text).replace('\'', "''");
                {
                    let _ = write!(out, "'{text}'");
                };
            }
            Ok(Value::Bin(_)) => out.push_str("!!binary"),
            Ok(_) => out.push_str("..."),
            Err(_) => out.push('?'),
        },
    }
}
