//! Calls of native functions, and the queue as its Lua module sees it.

use std::rc::Rc;

use lycosa_instance::{Called, Caller};
use lycosa_store::IteratorType;
use lycosa_tuple::mp::{self, Reader};
use lycosa_tuple::value::Value;

use super::of_store;
use crate::api::{Lua, Native};
use crate::error::Error;
use crate::host::{Session, before_switch, leave_transaction};
use crate::modules::log::{Cause, say_sampled};

pub(super) const FUNCTIONS: &[(&str, Native)] = &[
    ("call", call),
    ("info_part", info_part),
    ("check_execute", check_execute),
    ("is_native", is_native),
    ("is_stored", is_stored),
    ("observe", observe),
    ("set_native_queue", set_native_queue),
    ("start_queue", start_queue),
    ("set_program_tubes", set_program_tubes),
    ("set_hooked_queue", set_hooked_queue),
    ("own_function", own_function),
    ("queue_state", queue_state),
    ("queue_row", queue_row),
    ("queue_rows", queue_rows),
    ("disconnect_session", disconnect_session),
    ("with_new_session", with_new_session),
    ("hook_call", hook_call),
    ("hook_errors", hook_errors),
    ("tell_callbacks", tell_callbacks_now),
];

/// `call(name, args)`: a native function; waits for its answer. Returns its values. Callbacks of tubes hear of its changes
/// to tasks before the fiber goes on.
fn call(lua: Lua) -> Result<i32, Error> {
    lua.join_transaction()?;
    let name = lua.bytes(1).unwrap_or_default().to_vec();
    let mut args = Vec::new();
    encode_list(lua, 2, &mut args)?;
    let caller = lua.session()?.caller;
    let mut out = Vec::new();
    let called = lua.with_instance(|instance| match instance.procedure(&name) {
        // A program needs rights to the spaces, as with the Lua module, but none to functions that are not functions there.
        Some(procedure) => instance.call_queue(&caller, &procedure, &args, &mut out),
        None => instance.call_native(&caller, &name, &args, &mut out),
    });
    let count = match called.map_err(as_lua_error)? {
        Called::Done { count } => {
            tell_callbacks(lua)?;
            lua.wait_durable()?;
            count
        }
        Called::Parked(request) => {
            let (count, values) = lua.wait_answer(request).map_err(as_lua_error)?;
            tell_callbacks(lua)?;
            lua.wait_durable()?;
            out = values;
            count
        }
    };
    push_values(lua, count, &out)
}

/// `info_part(name)`: one part of `box.info`; nil if there is none.
fn info_part(lua: Lua) -> Result<i32, Error> {
    let name = lua.text(1).unwrap_or_default();
    match lua.with_instance(|instance| Ok(instance.info_part(&name)))? {
        Some(Value::Bool(flag)) => lua.push_bool(flag),
        Some(value) => {
            let mut bytes = Vec::new();
            value.write(&mut bytes);
            lua.decode(&mut Reader::new(&bytes))?;
        }
        None => lua.push_nil(),
    }
    Ok(1)
}

/// `check_execute(name)`: an error unless the fiber's user may call the function.
fn check_execute(lua: Lua) -> Result<i32, Error> {
    let name = lua.bytes(1).unwrap_or_default().to_vec();
    let caller = lua.session()?.caller;
    lua.with_instance(|instance| instance.check_call(&caller, &name))?;
    Ok(0)
}

/// `is_native(name)`: whether the server itself has a function of that name.
fn is_native(lua: Lua) -> Result<i32, Error> {
    let name = lua.bytes(1).unwrap_or_default().to_vec();
    let is_native = lua.with_instance(|instance| Ok(instance.has_function(&name)))?;
    lua.push_bool(is_native);
    Ok(1)
}

/// `is_stored(name)`: whether `_func` has the source of a function of that name.
fn is_stored(lua: Lua) -> Result<i32, Error> {
    let host = lua.host()?;
    let found = match (host.instance(), lua.bytes(1).and_then(|name| str::from_utf8(name).ok())) {
        (Some(instance), Some(name)) => {
            let function = instance.store().function_by_name(name);
            function.is_some_and(|function| !function.body.is_empty())
        }
        _ => false,
    };
    lua.push_bool(found);
    Ok(1)
}

/// What the queue's Lua module raises as a text is a text here too.
fn as_lua_error(error: Error) -> Error {
    match error {
        Error::Object(object) if object.code == 32 => Error::Text(object.message.clone()),
        other => other,
    }
}

/// Calls the callbacks of tubes for the changes of their tasks since the last time.
pub(super) fn tell_callbacks(lua: Lua) -> Result<(), Error> {
    loop {
        let (event, change) = lua.with_instance(|instance| match instance.poll_event() {
            Some(event) => Ok((Some(event), None)),
            None => Ok((None, instance.poll_hooked())),
        })?;
        let top = lua.top();
        match (event, change) {
            (Some(event), _) => {
                lua.push_global("require");
                lua.push_str("lycosa.box");
                lua.call(1, 1)?;
                lua.raw_field(-1, "task_changed");
                lua.push_str(&event.tube);
                lua.push_str(event.operation.name());
                lua.push_tuple(&event.tuple)?;
                lua.call(3, 0)?;
            }
            (None, Some(change)) => {
                super::request::run_replaced(lua, &change)?;
            }
            (None, None) => return Ok(()),
        }
        lua.set_top(top);
    }
}

/// The table at `index`, whose field `n` counts its items, as an array.
pub(super) fn encode_list(lua: Lua, index: i32, out: &mut Vec<u8>) -> Result<(), Error> {
    lua.raw_field(index, "n");
    let count = lua.number(-1).map_or(lua.raw_len(index) as u32, |count| count as u32);
    lua.pop(1);
    mp::write_array(out, count);
    for number in 1..=count {
        lua.raw_item(index, i32::try_from(number).unwrap_or(i32::MAX));
        lua.encode(-1, out)?;
        lua.pop(1);
    }
    Ok(())
}

pub(super) fn push_values(lua: Lua, count: u32, bytes: &[u8]) -> Result<i32, Error> {
    let count = i32::try_from(count).unwrap_or(i32::MAX);
    lua.reserve(count)?;
    let mut reader = Reader::new(bytes);
    for _ in 0..count {
        lua.decode(&mut reader)?;
    }
    Ok(count)
}
/// `observe(tube, yes)`: changes of the tube's tasks are told to `task_changed`.
fn observe(lua: Lua) -> Result<i32, Error> {
    let (tube, observed) = (lua.text(1).unwrap_or_default(), lua.truth(2));
    let known = lua.with_instance(|instance| Ok(instance.observe(&tube, observed)))?;
    lua.push_bool(known);
    Ok(1)
}

/// `set_native_queue(yes)`: whether clients mean the native queue by `queue.*`.
fn set_native_queue(lua: Lua) -> Result<i32, Error> {
    let native = lua.truth(1);
    lua.with_instance(|instance| {
        instance.set_native_queue(native);
        Ok(())
    })?;
    Ok(0)
}

/// `start_queue()`: the program asks for the queue, which starts at the first such call.
fn start_queue(lua: Lua) -> Result<i32, Error> {
    let now = lua.shared().scheduler.now();
    let started = lua.with_instance(|instance| Ok(instance.start_on_demand(now)))?;
    lua.push_bool(started.map_err(|error| Error::here(error.to_string()))?);
    Ok(1)
}

/// `set_program_tubes()`: some tubes have drivers in Lua, so calls about all tubes go to the program.
fn set_program_tubes(lua: Lua) -> Result<i32, Error> {
    lua.with_instance(|instance| {
        instance.set_program_tubes(true);
        Ok(())
    })?;
    Ok(0)
}

/// Returns the state, the `ttr` and whether the queue is in a replica set.
fn queue_state(lua: Lua) -> Result<i32, Error> {
    let (state, configuration) =
        lua.with_instance(|instance| Ok((instance.queue().state(), instance.queue().configuration())))?;
    lua.push_str(state.name());
    match configuration.ttr {
        Some(ttr) => lua.push_number(ttr.to_double()),
        None => lua.push_nil(),
    }
    lua.push_bool(configuration.in_replicaset);
    Ok(3)
}

/// The number of `_queue`, if it exists.
fn queue_space(lua: Lua) -> Result<Option<u32>, Error> {
    lua.with_instance(|instance| Ok(instance.store().space_by_name("_queue").map(lycosa_store::Space::id)))
}

/// `queue_row(name)`: the row of a tube, for any user.
fn queue_row(lua: Lua) -> Result<i32, Error> {
    let Some(space) = queue_space(lua)? else { return Ok(0) };
    let mut key = Vec::new();
    mp::write_array(&mut key, 1);
    lua.encode(1, &mut key)?;
    let found = lua.with_instance(|instance| {
        let store = instance.read(space, 0)?;
        let found = store.get(space, 0, &key).map_err(|error| of_store(&error))?;
        Ok(found.map(<[u8]>::to_vec))
    })?;
    let Some(tuple) = found else { return Ok(0) };
    lua.push_tuple_of(space, &tuple)?;
    Ok(1)
}

/// `queue_rows()`: the rows of all tubes, for any user.
fn queue_rows(lua: Lua) -> Result<i32, Error> {
    let rows = match queue_space(lua)? {
        None => Vec::new(),
        Some(space) => lua.with_instance(|instance| {
            let store = instance.read(space, 0)?;
            let all =
                store.range(space, 0, IteratorType::All, &[0x90], 0).map_err(|error| of_store(&error))?;
            Ok(all.map(<[u8]>::to_vec).collect())
        })?,
    };
    lua.new_table(rows.len(), 0);
    for (place, row) in rows.iter().enumerate() {
        lua.push_tuple(row)?;
        lua.raw_set_item(-2, i32::try_from(place + 1).unwrap_or(i32::MAX));
    }
    Ok(1)
}

/// `disconnect_session()`: the queue takes the caller's session for ended.
fn disconnect_session(lua: Lua) -> Result<i32, Error> {
    let session = lua.session()?.caller.session;
    let now = lua.shared().scheduler.now();
    lua.check_not_aborted()?;
    // It commits for itself.
    before_switch(lua.shared());
    lua.with_instance(|instance| {
        instance.disconnect_session(session, now);
        Ok(())
    })?;
    lua.host()?.touch();
    Ok(0)
}

/// `with_new_session(function[, peer])`: calls a function as the instance itself, in a session that ends with the call. A peer
/// is where a console is used from.
fn with_new_session(lua: Lua) -> Result<i32, Error> {
    let former = lua.session()?;
    let peer: Rc<str> = Rc::from(lua.text(2).unwrap_or_default());
    lua.set_top(1);
    let number = lua.with_instance(|instance| Ok(instance.open_session()))?;
    let caller = Caller { session: number, may_wait: true, ..Caller::internal() }.in_fiber();
    lua.swap_local(Some(Rc::new(Session { caller, peer, request: None })))?;
    let called = lua.call(0, 0);
    lua.swap_local(Some(former))?;
    let now = lua.shared().scheduler.now();
    before_switch(lua.shared());
    lua.with_instance(|instance| {
        instance.close_session(number, now);
        Ok(())
    })?;
    called?;
    Ok(0)
}

/// `hook_call(function, …)`: as `pcall`, for what runs beside an operation: it may run for `hook_time_budget` without a
/// pause, and its failures are counted. After the error comes its text: to make it runs code of the program as well
/// (`__tostring`), which must not fail the operation either. A transaction that it has opened and left open is rolled back.
fn hook_call(lua: Lua) -> Result<i32, Error> {
    let shared = lua.shared();
    let had_transaction = lua.in_transaction();
    let hook = shared.watch.begin_hook();
    let called = lua.call(lua.top() - 1, -1).map_err(|error| (error.message(lua), error));
    shared.watch.end_hook(hook);
    if !had_transaction && lua.in_transaction() {
        leave_transaction(lua)?;
        say_sampled(lua, Cause::Hook, "a trigger has left a transaction open, which is rolled back");
    }
    match called {
        Ok(()) => {
            lua.push_bool(true);
            lua.insert(1);
            Ok(lua.top())
        }
        Err((text, error)) => {
            shared.hook_failures.set(shared.hook_failures.get() + 1);
            lua.set_top(0);
            lua.push_bool(false);
            error.push(lua);
            lua.push_str(text);
            Ok(3)
        }
    }
}

/// `hook_errors()`: triggers and callbacks that failed since the start.
fn hook_errors(lua: Lua) -> Result<i32, Error> {
    lua.push_number(lua.shared().hook_failures.get() as f64);
    Ok(1)
}

/// `tell_callbacks()`: callbacks hear of the changes before the fiber goes on.
fn tell_callbacks_now(lua: Lua) -> Result<i32, Error> {
    tell_callbacks(lua)?;
    Ok(0)
}

/// `set_hooked_queue(yes)`: a space of the queue has triggers, so clients' operations on tubes go to the program.
fn set_hooked_queue(lua: Lua) -> Result<i32, Error> {
    let hooked = lua.truth(1);
    lua.with_instance(|instance| {
        instance.set_hooked_queue(hooked);
        Ok(())
    })?;
    Ok(0)
}

/// `own_function(name)`: the program has put a function of its own in the place of a native one, for clients too.
fn own_function(lua: Lua) -> Result<i32, Error> {
    let name = lua.text(1).unwrap_or_default();
    lua.with_instance(|instance| {
        instance.own_function(&name);
        Ok(())
    })?;
    Ok(0)
}
