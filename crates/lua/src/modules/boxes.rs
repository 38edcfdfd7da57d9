//! Native part of `box`: what its Lua part asks of the instance.
//!
//! One file for each noun: reads, changes and transactions, calls of functions, tuples, sessions, requests of clients.

mod call;
mod change;
mod read;
mod request;
mod session;
mod sql;
mod tuple;

use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_store::IteratorType;
use lycosa_tuple::mp;
use lycosa_tuple::value::Value;

use crate::EncodeOptions;
use crate::api::{Kind, Lua, Native};
use crate::error::Error;

pub(crate) use request::{run_denied, run_invoke, run_replaced, run_session_triggers, run_task_callback};

/// Functions that need no other file.
const FUNCTIONS: &[(&str, Native)] = &[
    ("configured", configured),
    ("configure", configure),
    ("listening", listening),
    ("option", option),
    ("data_dir", data_dir),
    ("reopen_log", reopen_log),
    ("log_to", log_to),
    ("log_as", log_as),
    ("hold_snapshots", hold_snapshots),
    ("schema_version_address", schema_version_address),
    ("error_codes", error_codes),
    ("exit", exit),
    ("memory", memory),
    ("memory_limit", memory_limit),
    ("set_error_maker", set_error_maker),
];

pub(super) fn open(lua: Lua) -> Result<i32, Error> {
    read::define_classes(lua);
    change::define_classes(lua);
    let all = [
        FUNCTIONS,
        read::FUNCTIONS,
        change::FUNCTIONS,
        call::FUNCTIONS,
        session::FUNCTIONS,
        sql::FUNCTIONS,
        tuple::FUNCTIONS,
    ];
    lua.new_library(&all.concat());
    Ok(1)
}

/// Defines the global `box`.
pub(crate) fn define_box(lua: Lua) -> Result<(), Error> {
    lua.push_global("require");
    lua.push_str("box");
    lua.call(1, 0)?;
    lua.push_global("require");
    lua.push_str("lycosa.program");
    lua.call(1, 0)
}

/// An index as a number of C.
fn id(lua: Lua, index: i32, what: &str) -> Result<u32, Error> {
    let number = lua.integer(index).and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| Error::here(format!("{what} is not a number from 0 to 4294967295")))
}

/// Capacity for the bytes of most keys and small tuples.
const USUAL_KEY: usize = 64;

/// Capacity for the bytes of most tuples.
const USUAL_TUPLE: usize = 192;

/// A key: a table, a tuple, a scalar, or nothing; `box.NULL` is nothing, as in Tarantool.
fn key(lua: Lua, index: i32) -> Result<Vec<u8>, Error> {
    if lua.is_null(index) {
        return Ok(vec![0x90]);
    }
    if matches!(lua.kind(index), Kind::Function | Kind::Userdata | Kind::Thread) {
        return Err(Error::text(format!("can not encode Lua type: '{}'", lua.type_name(index))));
    }
    array(lua, index, USUAL_KEY)
}

/// How fields are encoded: one that holds a table of mostly holes is an array all the same, as in Tarantool's tuples.
fn as_fields(lua: Lua) -> EncodeOptions {
    EncodeOptions { sparse_ratio: 0, ..lua.encoding() }
}

/// A key or tuple, of about `room` bytes.
fn array(lua: Lua, index: i32, room: usize) -> Result<Vec<u8>, Error> {
    if let Some(tuple) = lua.tuple(index) {
        return Ok(tuple.to_vec());
    }
    let mut out = Vec::with_capacity(room);
    match lua.kind(index) {
        Kind::None | Kind::Nil => mp::write_array(&mut out, 0),
        Kind::Table => lua.encode_with(index, &mut out, &as_fields(lua))?,
        _ => {
            mp::write_array(&mut out, 1);
            lua.encode_with(index, &mut out, &as_fields(lua))?;
        }
    }
    Ok(out)
}

/// A tuple: a `box.tuple` or a table.
fn tuple(lua: Lua, index: i32) -> Result<Vec<u8>, Error> {
    match lua.kind(index) {
        Kind::Table => array(lua, index, USUAL_TUPLE),
        Kind::Cdata if lua.tuple(index).is_some() => array(lua, index, USUAL_TUPLE),
        Kind::Function | Kind::Userdata | Kind::Thread => {
            Err(Error::text(format!("unsupported Lua type '{}'", lua.type_name(index))))
        }
        _ => Err(not_an_array()),
    }
}

fn not_an_array() -> Error {
    let code = ErrorCode::TupleNotArray;
    Error::Box { code: code.into(), message: code.template().to_owned() }
}

fn iterator(lua: Lua, index: i32) -> Result<IteratorType, Error> {
    let number = id(lua, index, "the iterator")?;
    IteratorType::try_from(number).map_err(|_| Error::Box {
        code: ErrorCode::IllegalParams.into(),
        message: "Illegal parameters, Invalid iterator type".to_owned(),
    })
}

fn of_store(error: &lycosa_store::Error) -> ErrorObject {
    lycosa_instance::store_error(error)
}

fn configured(lua: Lua) -> Result<i32, Error> {
    let known = lua.host().is_ok_and(|host| host.instance().is_some());
    lua.push_bool(known);
    Ok(1)
}

/// `configure(options)`: `box.cfg` with a checked table.
fn configure(lua: Lua) -> Result<i32, Error> {
    let mut bytes = Vec::new();
    lua.encode(1, &mut bytes)?;
    let options = match Value::decode(&bytes) {
        Ok(Value::Map(options)) => options,
        _ => Vec::new(),
    };
    let options: Vec<(String, Value)> = options
        .into_iter()
        .map(|(name, value)| (name.as_str().unwrap_or_default().to_owned(), value))
        .collect();
    let host = lua.host()?;
    if !host.configure(&options, lua.ticket()?).map_err(of_configuration)? {
        let _ = lua.park(None)?;
        host.configured().map_err(of_configuration)?;
    }
    Ok(0)
}

/// What Tarantool reports as an error object is one here; other faults, of files for example, are texts.
fn of_configuration(message: String) -> Error {
    let code = if message.starts_with("Incorrect value for option '") {
        ErrorCode::Cfg
    } else if message.starts_with("Can't set option '") {
        ErrorCode::ReloadCfg
    } else {
        return Error::Text(message);
    };
    Error::Box { code: code.into(), message }
}

/// `listening()`: where connections are accepted; nil if nowhere.
fn listening(lua: Lua) -> Result<i32, Error> {
    match lua.host()?.listening() {
        Some(address) => lua.push_str(address),
        None => lua.push_nil(),
    }
    Ok(1)
}

/// `option(name)`: what an option of `box.cfg` is now; nil if only a program sets it.
fn option(lua: Lua) -> Result<i32, Error> {
    let name = lua.text(1).unwrap_or_default();
    match lua.host()?.option(&name) {
        Some(Value::Bool(flag)) => lua.push_bool(flag),
        Some(Value::Double(number)) => lua.push_number(number),
        Some(Value::Str(text)) => lua.push_str(text),
        Some(value) => value.as_u64().map_or_else(|| lua.push_nil(), |number| lua.push_number(number as f64)),
        None => lua.push_nil(),
    }
    Ok(1)
}

/// `log_to(target)`: a fault is returned.
fn log_to(lua: Lua) -> Result<i32, Error> {
    let target = lua.text(1).unwrap_or_default();
    match lua.host()?.log_to(&target) {
        Ok(()) => Ok(0),
        Err(fault) => {
            lua.push_str(fault);
            Ok(1)
        }
    }
}

/// `log_as(level, is_json)`
fn log_as(lua: Lua) -> Result<i32, Error> {
    let level = lua.number(1).unwrap_or_default() as usize;
    if let Ok(host) = lua.host() {
        host.log_as(level, lua.truth(2));
    }
    Ok(0)
}

fn data_dir(lua: Lua) -> Result<i32, Error> {
    lua.push_str(lua.host()?.data_dir());
    Ok(1)
}

fn reopen_log(lua: Lua) -> Result<i32, Error> {
    lua.host()?.reopen_log().map_err(Error::Text)?;
    Ok(0)
}

/// `hold_snapshots(yes)`: no snapshot is removed, for a backup.
fn hold_snapshots(lua: Lua) -> Result<i32, Error> {
    let held = lua.truth(1);
    lua.with_instance(|instance| {
        instance.hold_snapshots(held);
        Ok(())
    })?;
    Ok(0)
}

/// `schema_version_address()`: where the version of the schema stands, a `uint32_t`.
fn schema_version_address(lua: Lua) -> Result<i32, Error> {
    let version = std::ptr::from_ref(&lua.shared().schema_version);
    lua.push_uint64(version as usize as u64);
    Ok(1)
}

fn exit(lua: Lua) -> Result<i32, Error> {
    let code = lua.number(1).unwrap_or(0.0) as i32;
    lua.host()?.exit(code);
    // Nothing of the program runs any more.
    loop {
        let _ = lua.park(None)?;
    }
}

/// `error_codes()`: codes of errors by their names, and their texts by their codes.
fn error_codes(lua: Lua) -> Result<i32, Error> {
    lua.new_table(0, ErrorCode::ALL.len());
    lua.new_table(0, ErrorCode::ALL.len());
    for code in ErrorCode::ALL {
        lua.push_number(f64::from(*code as u32));
        lua.raw_set_field(-3, code.name());
        lua.push_number(f64::from(*code as u32));
        lua.push_str(code.template());
        lua.raw_set(-3);
    }
    Ok(2)
}

fn memory(lua: Lua) -> Result<i32, Error> {
    lua.push_number(lua.shared().used.get() as f64);
    Ok(1)
}

/// `memory_limit()`: bytes that Lua may have.
fn memory_limit(lua: Lua) -> Result<i32, Error> {
    lua.push_number(lua.shared().limits.get().memory as f64);
    Ok(1)
}

/// `set_error_maker(function, type)`: what makes an error object, and the number of its C type.
fn set_error_maker(lua: Lua) -> Result<i32, Error> {
    let mut types = lua.shared().types.get();
    types.error = id(lua, 2, "the type")?;
    lua.shared().types.set(types);
    lua.set_top(1);
    let maker = lua.pop_ref();
    let former = lua.shared().make_error.replace(Some(maker));
    drop(former);
    Ok(0)
}
