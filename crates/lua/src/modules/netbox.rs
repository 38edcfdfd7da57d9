//! Native part of `net.box`: requests as bytes, replies out of received bytes.

use lycosa_iproto::greeting::{GREETING_SIZE, Greeting};
use lycosa_iproto::reply::{self, Content};
use lycosa_iproto::{auth, frame, keys};
use lycosa_tuple::mp::{self, Reader};

use super::socket::input_at;
use crate::api::{Kind, Lua};
use crate::error::Error;

/// Longest reply that is read.
const MAX_REPLY: usize = 1 << 31;

pub(super) fn open(lua: Lua) -> Result<i32, Error> {
    lua.new_library(&[
        ("request", request),
        ("key", key),
        ("greeting", greeting),
        ("scramble", scramble),
        ("reply", read_reply),
        ("values", values),
        ("tuples", tuples),
        ("raw", raw),
    ]);
    Ok(1)
}

/// `request(type, sync, key, value, key, value…)`: a whole frame. A value that is `nil` leaves its key out.
fn request(lua: Lua) -> Result<i32, Error> {
    let kind = lua.arg_number(1, "the type is a number")? as u64;
    let sync = lua.arg_number(2, "the number of the request is a number")? as u64;
    let pairs = (lua.top() - 2) / 2;
    let present = (0..pairs).filter(|pair| lua.kind(4 + 2 * pair) != Kind::Nil).count();
    let mut out = vec![0xce, 0, 0, 0, 0];
    mp::write_map(&mut out, 2);
    for (name, value) in [(keys::REQUEST_TYPE, kind), (keys::SYNC, sync)] {
        mp::write_uint(&mut out, name.into());
        mp::write_uint(&mut out, value);
    }
    mp::write_map(&mut out, u32::try_from(present).unwrap_or(0));
    for pair in 0..pairs {
        let (name, value) = (3 + 2 * pair, 4 + 2 * pair);
        if lua.kind(value) == Kind::Nil {
            continue;
        }
        let name = lua.arg_number(name, "a key is a number")? as u8;
        mp::write_uint(&mut out, name.into());
        let start = out.len();
        lua.encode(value, &mut out)?;
        let is_list = matches!(name, keys::KEY | keys::TUPLE | keys::OPERATIONS);
        if is_list && !matches!(Reader::new(&out[start..]).kind(), Ok(mp::Kind::Array)) {
            return Err(Error::Box { code: 22, message: "Tuple/Key must be MsgPack array".to_owned() });
        }
    }
    let length = u32::try_from(out.len() - 5).map_err(|_| Error::text("the request is longer than 4 GiB"))?;
    out[1..5].copy_from_slice(&length.to_be_bytes());
    lua.push_str(out);
    Ok(1)
}

/// `key(value)`: a key as a table: nothing, a scalar, a table or a tuple.
fn key(lua: Lua) -> Result<i32, Error> {
    match lua.kind(1) {
        Kind::Table => lua.push_value(1),
        _ if lua.is_null(1) => lua.new_table(0, 0),
        _ if lua.tuple(1).is_some() => lua.push_value(1),
        _ => {
            lua.new_table(1, 0);
            lua.push_value(1);
            lua.raw_set_item(-2, 1);
        }
    }
    Ok(1)
}

/// `greeting(text)`: version, packed version, UUID and salt of a server; `nil` and why it is none.
fn greeting(lua: Lua) -> Result<i32, Error> {
    let bytes = lua.arg_bytes(1, "the greeting is a string")?;
    let Ok(bytes) = <&[u8; GREETING_SIZE]>::try_from(bytes) else {
        return Err(Error::here(format!("a greeting has {GREETING_SIZE} bytes")));
    };
    match Greeting::decode(bytes) {
        Ok(greeting) => {
            let packed = lycosa_iproto::greeting::Version::parse(&greeting.version);
            lua.push_str(greeting.version);
            lua.push_number(packed.map_or(0.0, |version| f64::from(version.packed())));
            lua.push_str(greeting.uuid.to_string());
            lua.push_str(greeting.salt);
            Ok(4)
        }
        Err(error) => {
            lua.push_nil();
            lua.push_str(error.to_string());
            Ok(2)
        }
    }
}

/// `scramble(password, salt)`
fn scramble(lua: Lua) -> Result<i32, Error> {
    let password = lua.arg_bytes(1, "the password is a string")?;
    let salt = lua.arg_bytes(2, "the salt is a string")?;
    let Ok(salt) = salt.try_into() else { return Err(Error::here("the salt is not of a greeting")) };
    lua.push_str(auth::scramble(password, salt));
    Ok(1)
}

/// `reply(input)`: number of the request, schema version, kind and content of the next reply; nothing if it has not come
/// wholly. Kinds: `ok` with body and data, `push` with data, `error` with the error object.
fn read_reply(lua: Lua) -> Result<i32, Error> {
    let input = input_at(&lua, 1)?;
    let (used, count) = input.peek(|held| {
        let split = frame::split(held, MAX_REPLY).map_err(|error| Error::text(error.to_string()))?;
        let frame::Split::Frame { content, consumed: used } = split else { return Ok((0, 0)) };
        let reply =
            reply::decode(content).map_err(|error| Error::text(format!("Invalid MsgPack: {error}")))?;
        lua.push_number(reply.sync as f64);
        lua.push_number(reply.schema_version as f64);
        let count = match reply.content {
            Content::Ok { data, body } => {
                lua.push_str("ok");
                lua.push_str(data);
                lua.push_str(body);
                5
            }
            Content::Push { data } => {
                lua.push_str("push");
                lua.push_str(data);
                4
            }
            Content::Error(error) => {
                lua.push_str("error");
                lua.push_error_object(&error);
                4
            }
        };
        Ok::<_, Error>((used, count))
    })?;
    input.skip(used);
    Ok(count)
}

fn invalid(error: mp::MpError) -> Error {
    Error::text(format!("Invalid MsgPack: {error}"))
}

/// `values(data)`: a table of the values.
fn values(lua: Lua) -> Result<i32, Error> {
    let data = lua.arg_bytes(1, "the data are a string")?;
    lua.decode(&mut Reader::new(data))?;
    Ok(1)
}

/// `tuples(data, space)`: a table of tuples, whose fields have the names of that number; and their count. A value that is no array
/// stays as it is.
fn tuples(lua: Lua) -> Result<i32, Error> {
    let data = lua.arg_bytes(1, "the data are a string")?.to_vec();
    let space = lua.number(2).unwrap_or(0.0) as u32;
    let mut reader = Reader::new(&data);
    let count = reader.array().map_err(invalid)?;
    lua.new_table(count as usize, 0);
    for number in 1..=count {
        if matches!(reader.kind(), Ok(mp::Kind::Array)) {
            lua.push_tuple_of(space, reader.raw().map_err(invalid)?)?;
        } else {
            lua.decode(&mut reader)?;
        }
        lua.raw_set_item(-2, i32::try_from(number).unwrap_or(i32::MAX));
    }
    lua.push_number(f64::from(count));
    Ok(2)
}

/// `raw(data, with_body)`: what a buffer gets of a reply: the data, or the body around them.
fn raw(lua: Lua) -> Result<i32, Error> {
    let data = lua.arg_bytes(1, "the data are a string")?;
    let mut out = Vec::with_capacity(data.len() + 2);
    mp::write_map(&mut out, 1);
    mp::write_uint(&mut out, keys::DATA.into());
    out.extend_from_slice(data);
    lua.push_str(out);
    Ok(1)
}
