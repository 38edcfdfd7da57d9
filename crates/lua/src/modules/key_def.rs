//! Native part of `key_def`: order of tuples by parts of a key.

use std::cmp::Ordering;

use lycosa_iproto::error::ErrorCode;
use lycosa_tuple::collation::Collation;
use lycosa_tuple::field::FieldType;
use lycosa_tuple::format::Refusal;
use lycosa_tuple::key::{KeyDef, KeyError, KeyPart};
use lycosa_tuple::mp::{self, Reader};
use lycosa_tuple::path::Path;
use lycosa_tuple::tuple::TupleRef;
use lycosa_tuple::value::Value;

use crate::api::{Kind, Lua};
use crate::error::Error;

/// A key definition as Lua holds it, with the paths of its parts as they were written.
struct Definition {
    key: KeyDef,
    paths: Vec<String>,
}

/// Pushes the native part.
pub(super) fn open(lua: Lua) -> Result<i32, Error> {
    lua.new_class::<Definition>("key_def", &[], &[]);
    lua.pop(1);
    lua.new_library(&[
        ("make", make),
        ("extract_key", extract_key),
        ("compare", compare),
        ("compare_with_key", compare_with_key),
        ("check_tuple", check_merged),
        ("field_type", field_type),
        ("is_path", is_path),
    ]);
    Ok(1)
}

/// `field_type(name)`: the proper name of a type that `name` stands for, if any, and whether definitions may have it.
fn field_type(lua: Lua) -> Result<i32, Error> {
    match lua.text(1).and_then(|name| FieldType::parse(&name)) {
        Some(ty) => lua.push_str(ty.name()),
        None => lua.push_nil(),
    }
    let ty = lua.text(1).and_then(|name| FieldType::parse(&name));
    lua.push_bool(ty.is_some_and(|ty| ty.is_indexable() && ty != FieldType::Varbinary));
    Ok(2)
}

/// `is_path(text)`: whether a part may have this JSON path.
fn is_path(lua: Lua) -> Result<i32, Error> {
    let is_path = lua.text(1).is_some_and(|path| Path::parse(&path).is_ok());
    lua.push_bool(is_path);
    Ok(1)
}

/// `make(parts)`: an array of `{field from 0, type, is nullable, path or '', kind, locale and options of the collation}`.
fn make(lua: Lua) -> Result<i32, Error> {
    let mut bytes = Vec::new();
    lua.encode(1, &mut bytes)?;
    let value = Value::decode(&bytes).map_err(|error| Error::here(error.to_string()))?;
    let parts: Option<Vec<KeyPart>> = value.as_array().unwrap_or_default().iter().map(part_of).collect();
    let parts = parts
        .ok_or_else(|| Error::here("a part of the key cannot be used: its path or collation is wrong"))?;
    let path_of = |part: &Value| Some(part.as_array()?.get(3)?.as_str()?.to_owned());
    let paths = value.as_array().unwrap_or_default().iter().map(|part| path_of(part).unwrap_or_default());
    let paths = paths.collect();
    lua.push_userdata(Definition { key: KeyDef::new(parts), paths });
    Ok(1)
}

fn part_of(described: &Value) -> Option<KeyPart> {
    let [field, ty, nullable, path, kind, locale, options] = described.as_array()? else { return None };
    let path = path.as_str()?;
    let pairs: Vec<(&str, &str)> = match options {
        Value::Map(pairs) => pairs
            .iter()
            .map(|(name, value)| Some((name.as_str()?, value.as_str()?)))
            .collect::<Option<_>>()?,
        _ => Vec::new(),
    };
    Some(KeyPart {
        field: u32::try_from(field.as_u64()?).ok()?,
        ty: FieldType::parse(ty.as_str()?)?,
        nullable: nullable.as_bool()?,
        refusal: Refusal::Default,
        collation: Collation::new(kind.as_str()?, locale.as_str()?, pairs).ok()?,
        path: if path.is_empty() { None } else { Some(Path::parse(path).ok()?) },
    })
}

fn definition(lua: &Lua) -> Result<&Definition, Error> {
    lua.userdata::<Definition>(1).ok_or_else(|| Error::here("the argument is no key definition"))
}

/// A tuple or a table as bytes.
fn tuple_at(lua: Lua, index: i32) -> Result<Vec<u8>, Error> {
    if let Some(tuple) = lua.tuple(index) {
        return Ok(tuple.to_vec());
    }
    if lua.kind(index) != Kind::Table {
        let text = format!("A tuple or a table expected, got {}", lua.type_name(index));
        return Err(client(ErrorCode::IllegalParams, text));
    }
    let mut out = Vec::new();
    lua.encode(index, &mut out)?;
    if matches!(Reader::new(&out).kind(), Ok(mp::Kind::Array)) { Ok(out) } else { Err(no_array()) }
}

fn no_array() -> Error {
    client(ErrorCode::TupleNotArray, "Tuple/Key must be MsgPack array".to_owned())
}

fn client(code: ErrorCode, message: String) -> Error {
    Error::Box { code: code.into(), message }
}

fn wrong_part(part: u32, expected: FieldType) -> Error {
    let text = format!(
        "Supplied key type of part {part} does not match index part type: expected {}",
        expected.name()
    );
    client(ErrorCode::KeyPartType, text)
}

/// `check_tuple(definition, tuple)`: refuses a tuple that a merger cannot sort.
fn check_merged(lua: Lua) -> Result<i32, Error> {
    let tuple = tuple_at(lua, 2)?;
    check_fields(definition(&lua)?, &tuple, |_, part, path, is_missing| {
        let field = part.field + 1;
        let field = if path.is_empty() { field.to_string() } else { format!("[{field}]{path}") };
        if is_missing {
            return missing(&field);
        }
        let expected = part.ty.name();
        let text =
            format!("Tuple field {field} type does not match one required by operation: expected {expected}");
        client(ErrorCode::FieldType, text)
    })?;
    Ok(0)
}

fn missing(field: &str) -> Error {
    client(ErrorCode::FieldMissing, format!("Tuple field {field} required by space format is missing"))
}

/// Refuses a tuple that has no such key.
fn check_tuple(definition: &Definition, tuple: &[u8]) -> Result<(), Error> {
    check_fields(definition, tuple, |number, part, path, is_missing| {
        if is_missing {
            return missing(&format!("[{}]{path}", part.field + 1));
        }
        wrong_part(number, part.ty)
    })
}

/// Refuses a tuple without a field of the key, or with one of another type. `refusal` makes the error of the part's number,
/// the part, its path, and whether the field is missing.
fn check_fields(
    definition: &Definition,
    tuple: &[u8],
    refusal: impl Fn(u32, &KeyPart, &str, bool) -> Error,
) -> Result<(), Error> {
    for (number, part) in (0..).zip(definition.key.parts()) {
        let field = TupleRef::trusted(tuple).field(part.field);
        let value = match (&part.path, field) {
            (Some(path), Some(field)) => path.lookup(field),
            (None, field) => field,
            (Some(_), None) => None,
        };
        let is_missing = value.is_none();
        let is_right = match value {
            None => part.nullable,
            Some(value) => part.ty.accepts(value) || part.nullable && value == [0xc0],
        };
        if !is_right {
            let path = definition.paths.get(number as usize).map_or("", String::as_str);
            return Err(refusal(number, part, path, is_missing));
        }
    }
    Ok(())
}

/// `extract_key(definition, tuple)`: the key as a tuple.
fn extract_key(lua: Lua) -> Result<i32, Error> {
    let tuple = tuple_at(lua, 2)?;
    let definition = definition(&lua)?;
    check_tuple(definition, &tuple)?;
    let key = &definition.key;
    let mut out = Vec::new();
    mp::write_array(&mut out, key.part_count());
    key.extract(&tuple, &mut out);
    lua.push_tuple(&out)?;
    Ok(1)
}

fn push_order(lua: Lua, order: Ordering) -> Result<i32, Error> {
    lua.push_number(match order {
        Ordering::Less => -1.0,
        Ordering::Equal => 0.0,
        Ordering::Greater => 1.0,
    });
    Ok(1)
}

/// `compare(definition, tuple, tuple)`: -1, 0 or 1.
fn compare(lua: Lua) -> Result<i32, Error> {
    let (left, right) = (tuple_at(lua, 2)?, tuple_at(lua, 3)?);
    let definition = definition(&lua)?;
    check_tuple(definition, &left)?;
    check_tuple(definition, &right)?;
    let key = &definition.key;
    push_order(lua, key.compare(&left, &right))
}

/// `compare_with_key(definition, tuple, key)`: -1, 0 or 1. A key may have fewer parts.
fn compare_with_key(lua: Lua) -> Result<i32, Error> {
    let tuple = tuple_at(lua, 2)?;
    if lua.tuple(3).is_none() && lua.kind(3) != Kind::Table {
        return Err(no_array());
    }
    let given = tuple_at(lua, 3)?;
    let definition = definition(&lua)?;
    check_tuple(definition, &tuple)?;
    let key = &definition.key;
    let mut reader = Reader::new(&given);
    let count = reader.array().map_err(|_| no_array())?.min(key.part_count());
    let values = reader.rest();
    key.check_key(values, count).map_err(|error| match error {
        KeyError::PartType { part, expected } => wrong_part(part, expected),
        other => Error::here(other.to_string()),
    })?;
    push_order(lua, key.compare_with_key(&tuple, values, count))
}
