//! Requests of clients, and what the server starts: each in a fiber of its own.

use lycosa_instance::{Invoke, InvokeKind, OwnedStatement};
use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_sql::MAX_PARAMETERS;
use lycosa_store::OwnedChange;
use lycosa_tuple::mp::{Kind as MpKind, Reader};

use super::change::push_change;
use crate::api::{Kind, Lua};
use crate::error::Error;
use crate::host::{SessionEvent, leave_transaction};
use crate::sys;

/// Runs CALL or EVAL and answers the request.
pub(crate) fn run_invoke(lua: Lua, invoke: &Invoke) -> Result<i32, Error> {
    let mut result = invoke_values(lua, invoke);
    // A program that leaves a transaction open has not committed it.
    if lua.in_transaction() {
        lua.set_top(0);
        let _ = leave_transaction(lua);
        let message = ErrorCode::FunctionTxActive.template().to_owned();
        result = result.and(Err(Error::Box { code: ErrorCode::FunctionTxActive.into(), message }));
    }
    let has_body = matches!(invoke.kind, InvokeKind::Sql { .. });
    // The reply itself waits until what the program has seen is durable.
    let result = result.map_err(|error| error_object(lua, error));
    if result.is_err() && !has_body {
        let failures = &lua.shared().call_failures;
        failures.set(failures.get() + 1);
    }
    lua.with_instance(|instance| {
        match result {
            Ok((_, ref body)) if has_body => instance.finish_invoke_with_body(invoke.request, body),
            Ok((count, ref values)) => instance.finish_invoke(invoke.request, Ok((count, values))),
            Err(ref error) => instance.finish_invoke(invoke.request, Err(error.clone())),
        }
        Ok(())
    })?;
    lua.host()?.touch();
    Ok(0)
}

/// Pushes the module `lycosa.program`, which `require` has loaded when `box` was defined.
fn push_program(lua: Lua) -> Result<(), Error> {
    lua.raw_field(sys::LUA_REGISTRYINDEX, "_LOADED");
    lua.raw_field(-1, "lycosa.program");
    lua.remove(-2);
    if lua.kind(-1) != Kind::Table {
        lua.pop(1);
        lua.push_global("require");
        lua.push_str("lycosa.program");
        lua.call(1, 1)?;
    }
    Ok(())
}

fn invoke_values(lua: Lua, invoke: &Invoke) -> Result<(u32, Vec<u8>), Error> {
    if let InvokeKind::Call { name, is_stored: false } = &invoke.kind
        && push_global_function(lua, name)
    {
        return call_with_values(lua, &invoke.args, 0);
    }
    // `program.call(name, …)` or `program.eval(text, …)`
    push_program(lua)?;
    let (field, text) = match &invoke.kind {
        InvokeKind::Call { name, .. } => ("call", name.as_slice()),
        InvokeKind::Eval { expression } => ("eval", expression.as_slice()),
        InvokeKind::Settings => ("settings", &[][..]),
        InvokeKind::Statement(statement) => return statement_values(lua, statement),
        InvokeKind::Sql { prepare, statement } => {
            return sql_body(lua, *prepare, statement, &invoke.args);
        }
    };
    lua.raw_field(-1, field);
    lua.remove(-2);
    lua.push_str(text);
    call_with_values(lua, &invoke.args, 1)
}

/// Pushes the function that a dotted name stands for, if plain tables lead to it from the globals. Names found in another
/// way, methods among them, are `program.call`'s to find.
fn push_global_function(lua: Lua, name: &[u8]) -> bool {
    if name.is_empty() || name.contains(&b':') {
        return false;
    }
    lua.push_value(sys::LUA_GLOBALSINDEX);
    for part in name.split(|&byte| byte == b'.') {
        lua.push_str(part);
        lua.raw_get(-2);
        lua.remove(-2);
    }
    let is_found = lua.kind(-1) == Kind::Function;
    if !is_found {
        lua.pop(1);
    }
    is_found
}

/// Capacity for the values of most calls.
const USUAL_VALUES: usize = 256;

/// Calls the function below the top `given` values with them and those of a MessagePack array. Returns its values' number
/// and encoding.
fn call_with_values(lua: Lua, args: &[u8], given: i32) -> Result<(u32, Vec<u8>), Error> {
    let mut reader = Reader::new(args);
    let count = reader.array().map_err(|error| Error::text(error.to_string()))?;
    let count = i32::try_from(count).unwrap_or(i32::MAX);
    lua.reserve(count)?;
    for _ in 0..count {
        lua.decode(&mut reader)?;
    }
    let below = lua.top() - count - given - 1;
    lua.call(count + given, -1)?;
    let (mut values, top) = (Vec::with_capacity(USUAL_VALUES), lua.top());
    for index in below + 1..=top {
        lua.encode(index, &mut values)?;
    }
    Ok(((top - below).unsigned_abs(), values))
}

/// Executes a client's statement with the triggers of its space: `program.statement(kind, space, index, key or tuple,
/// operations, base)`. The module stands at the top.
fn statement_values(lua: Lua, statement: &OwnedStatement) -> Result<(u32, Vec<u8>), Error> {
    lua.raw_field(-1, "statement");
    lua.remove(-2);
    lua.push_str(statement.kind);
    lua.push_number(f64::from(statement.space));
    lua.push_number(f64::from(statement.index));
    lua.push_tuple(&statement.first)?;
    if statement.operations.is_empty() {
        lua.push_nil();
    } else {
        lua.push_tuple(&statement.operations)?;
    }
    lua.push_number(statement.base as f64);
    lua.call(6, 1)?;
    match lua.tuple(-1) {
        Some(tuple) => Ok((1, tuple.to_vec())),
        None => Ok((0, Vec::new())),
    }
}

/// Runs, prepares or forgets an SQL statement: `program.sql(kind, text or number, parameters)`. The module stands at the
/// top. The result is the body of the reply.
fn sql_body(
    lua: Lua,
    prepare: bool,
    statement: &Result<Vec<u8>, u32>,
    parameters: &[u8],
) -> Result<(u32, Vec<u8>), Error> {
    lua.raw_field(-1, "sql");
    lua.remove(-2);
    lua.push_str(if prepare { "prepare" } else { "execute" });
    match statement {
        Ok(text) => lua.push_str(text),
        Err(id) => lua.push_number(f64::from(*id)),
    }
    check_parameters(parameters)?;
    lua.decode(&mut Reader::new(parameters))?;
    lua.call(3, 1)?;
    if let Some(body) = lua.userdata::<super::sql::SqlBody>(-1) {
        return Ok((0, body.0.take()));
    }
    let mut body = Vec::new();
    lua.encode(-1, &mut body)?;
    Ok((0, body))
}

/// `ER_SQL_EXECUTE` and `ER_ILLEGAL_PARAMS`.
const SQL_EXECUTE: u32 = 159;
const ILLEGAL_PARAMS: u32 = 1;

/// Refuses parameters of a statement that no statement takes, before they become values of Lua: too many, and values that
/// are nested deeper than `{name: value}`.
fn check_parameters(parameters: &[u8]) -> Result<(), Error> {
    let refused = |code, message: &str| Err(Error::Box { code, message: message.to_owned() });
    let malformed = |error: lycosa_tuple::mp::MpError| Error::text(error.to_string());
    let is_nested = |kind| matches!(kind, MpKind::Array | MpKind::Map);
    let mut reader = Reader::new(parameters);
    let count = reader.array().map_err(malformed)?;
    if count as usize > MAX_PARAMETERS {
        let message = "Failed to execute SQL statement: The number of parameters is too large";
        return refused(SQL_EXECUTE, message);
    }
    for _ in 0..count {
        match reader.kind().map_err(malformed)? {
            MpKind::Array => {
                return refused(
                    ILLEGAL_PARAMS,
                    "Illegal parameters, name of the parameter should be a string.",
                );
            }
            MpKind::Map => {
                let pairs = reader.map().map_err(malformed)?;
                if pairs == 1 {
                    reader.skip().map_err(malformed)?;
                }
                if pairs != 1 || is_nested(reader.kind().map_err(malformed)?) {
                    let message = "Illegal parameters, SQL bind named parameter should be a table with one key - {name = value}";
                    return refused(ILLEGAL_PARAMS, message);
                }
                reader.skip().map_err(malformed)?;
            }
            _ => reader.skip().map_err(malformed)?,
        }
    }
    Ok(())
}

/// The error of a program as a client sees it.
fn error_object(lua: Lua, error: Error) -> ErrorObject {
    match error {
        Error::Object(error) => *error,
        error => {
            error.push(lua);
            let index = lua.top();
            let object = lua.error_object(index);
            let object = object.unwrap_or_else(|| ErrorObject::lua(lua.display(index)));
            lua.set_top(index - 1);
            object
        }
    }
}

/// Runs the triggers of `box.session.on_connect`, `on_disconnect` or `on_auth`. A connection that begins, and a log-in, wait
/// for them.
pub(crate) fn run_session_triggers(lua: Lua, session: u64, event: &SessionEvent) -> Result<i32, Error> {
    let run = || {
        push_program(lua)?;
        match event {
            SessionEvent::Begin => lua.raw_field(-1, "connected"),
            SessionEvent::End => lua.raw_field(-1, "disconnected"),
            SessionEvent::Login { name, is_right } => {
                lua.raw_field(-1, "logged_in");
                lua.push_str(name);
                lua.push_bool(*is_right);
                return lua.call(2, 0);
            }
        }
        lua.call(0, 0)
    };
    let result = run().map_err(|error| error_object(lua, error));
    lua.with_instance(|instance| {
        match event {
            SessionEvent::Begin => instance.finish_begin(session, result),
            SessionEvent::Login { .. } => instance.finish_login(session, result),
            SessionEvent::End => result?,
        }
        Ok(())
    })?;
    lua.host()?.touch();
    Ok(0)
}

/// Runs the triggers of `box.session.on_access_denied` for a client's request.
pub(crate) fn run_denied(lua: Lua, error: &ErrorObject) -> Result<i32, Error> {
    lua.tell_denied(error);
    Ok(0)
}

/// Runs the callback of a tube for a change of a task.
pub(crate) fn run_task_callback(lua: Lua, tube: &str, operation: &str, tuple: &[u8]) -> Result<i32, Error> {
    lua.push_global("require");
    lua.push_str("lycosa.box");
    lua.call(1, 1)?;
    lua.raw_field(-1, "task_changed");
    if lua.kind(-1) != Kind::Function {
        return Ok(0);
    }
    lua.push_str(tube);
    lua.push_str(operation);
    lua.push_tuple(tuple)?;
    lua.call(3, 0)?;
    Ok(0)
}

/// Runs the triggers of spaces for a change that no program has made: `internal.replaced(change)`.
pub(crate) fn run_replaced(lua: Lua, change: &OwnedChange) -> Result<i32, Error> {
    lua.push_global("require");
    lua.push_str("lycosa.box");
    lua.call(1, 1)?;
    lua.raw_field(-1, "replaced");
    if lua.kind(-1) != Kind::Function {
        return Ok(0);
    }
    push_change(lua, change)?;
    lua.call(1, 0)?;
    lua.pop(1);
    Ok(0)
}
