//! Native part of `msgpack`.

use lycosa_tuple::mp::{self, Reader};

use super::options::Settings;
use crate::Cdata;
use crate::api::{Kind, Lua};
use crate::error::Error;

pub(super) fn open(lua: Lua) -> Result<i32, Error> {
    lua.new_library(&[("encode", encode), ("decode", decode), ("configure", configure)]);
    Ok(1)
}

/// `encode(value, options)`
fn encode(lua: Lua) -> Result<i32, Error> {
    let mut bytes = Vec::new();
    if is_plain(lua, 1) {
        lua.encode(1, &mut bytes).map_err(Error::located)?;
    } else {
        let settings = Settings::read(lua, 2)?;
        lua.encode_with(1, &mut bytes, &settings.encoding).map_err(Error::located)?;
    }
    lua.push_str(bytes);
    Ok(1)
}

/// `configure(options)`: the rules for values of tuples and calls, too.
fn configure(lua: Lua) -> Result<i32, Error> {
    lua.shared().encoding.set(Settings::read(lua, 1)?.encoding);
    Ok(0)
}

/// Whether no option says how the value is encoded.
fn is_plain(lua: Lua, index: i32) -> bool {
    match lua.kind(index) {
        Kind::Boolean | Kind::String => true,
        Kind::Number => lua.number(index).is_some_and(f64::is_finite),
        Kind::Cdata => matches!(lua.cdata(index), Some(Cdata::Int(_) | Cdata::Uint(_))),
        _ => false,
    }
}

/// Whether NaN or an infinity is among the numbers of a valid value.
fn has_invalid_number(value: &[u8]) -> bool {
    let mut reader = Reader::new(value);
    let is_invalid = |reader: &mut Reader<'_>| -> Result<bool, mp::MpError> {
        match reader.kind()? {
            // The items follow.
            mp::Kind::Array => reader.array().map(|_| false),
            mp::Kind::Map => reader.map().map(|_| false),
            mp::Kind::Float => reader.float().map(|number| !number.is_finite()),
            mp::Kind::Double => reader.double().map(|number| !number.is_finite()),
            _ => reader.skip().map(|()| false),
        }
    };
    while !reader.is_empty() {
        match is_invalid(&mut reader) {
            Ok(false) => {}
            other => return other.unwrap_or(false),
        }
    }
    false
}

/// `decode(bytes, offset, options)`: the value and the offset behind it, both counted from 1.
fn decode(lua: Lua) -> Result<i32, Error> {
    let Some(bytes) = lua.bytes(1).map(<[u8]>::to_vec) else {
        return Err(Error::here("msgpack.decode: a Lua string or 'char *' expected"));
    };
    let offset = match lua.kind(2) {
        Kind::Nil | Kind::None => 1.0,
        _ => lua.number(2).ok_or_else(|| Error::here("msgpack.decode: offset is out of bounds"))?.trunc(),
    };
    let is_inside = offset >= 1.0 && (offset - 1.0) < bytes.len() as f64;
    let is_empty = bytes.is_empty() && offset == 1.0;
    if !(is_inside || is_empty) {
        return Err(Error::here("msgpack.decode: offset is out of bounds"));
    }
    let rest = bytes.get(offset as usize - 1..).unwrap_or_default();
    let length = mp::value_len(rest).map_err(|_| Error::here("msgpack.decode: invalid MsgPack"))?;
    // Which options there are is looked at only where one of them can have an effect.
    let marks = match Reader::new(rest).kind() {
        Ok(mp::Kind::Array | mp::Kind::Map | mp::Kind::Float | mp::Kind::Double) => {
            let settings = Settings::read(lua, 3)?;
            if !settings.decode_invalid_numbers && has_invalid_number(&rest[..length]) {
                return Err(Error::here("number must not be NaN or Inf"));
            }
            settings.decode_save_metatables
        }
        _ => true,
    };
    lua.decode_as(&mut Reader::new(&rest[..length]), marks)?;
    lua.push_number(offset + length as f64);
    Ok(2)
}
