//! Sessions: on whose behalf a fiber acts.

use std::rc::Rc;

use lycosa_instance::Caller;
use lycosa_iproto::error::ErrorCode;
use lycosa_tuple::mp::{self, Reader};
use lycosa_tuple::tuple::TupleRef;

use crate::api::{Lua, MAX_EXACT, Native};
use crate::error::Error;
use crate::host::Session;

use super::{id, of_store};

/// The space `_user`.
const USERS: u32 = 304;

pub(super) const FUNCTIONS: &[(&str, Native)] = &[
    ("session", session),
    ("session_number", session_number),
    ("sync", sync),
    ("user_name", user_name),
    ("push", push),
    ("set_user", set_user),
    ("as_user", as_user),
    ("as_program", as_program),
    ("marshal_errors", marshal_errors),
    ("watch_denied", watch_denied),
    ("watch_sessions", watch_sessions),
    ("session_has_requests", session_has_requests),
];

/// Returns number, peer, user's number, effective user's number of the session.
fn session(lua: Lua) -> Result<i32, Error> {
    let session = lua.session()?;
    lua.push_uint(session.caller.session);
    lua.push_str(&*session.peer);
    lua.push_number(f64::from(session.caller.user));
    lua.push_number(f64::from(session.caller.effective));
    Ok(4)
}

/// `sync()`: the number that the client gave the request which the fiber answers; 0 without one.
fn sync(lua: Lua) -> Result<i32, Error> {
    let request = lua.session()?.request;
    let sync = lua.with_instance(|instance| Ok(request.and_then(|request| instance.sync_of(request))))?;
    lua.push_uint(sync.unwrap_or(0));
    Ok(1)
}

/// `session_number()`: the session's number; from then on compiled code finds it itself.
fn session_number(lua: Lua) -> Result<i32, Error> {
    let number = lua.session()?.caller.session;
    if number <= MAX_EXACT {
        lua.set_session_number(number as f64);
    }
    lua.push_uint(number);
    Ok(1)
}

/// `user_name(number)`: the name of a user, which every user may know of a session; its number if it has none.
fn user_name(lua: Lua) -> Result<i32, Error> {
    let user = id(lua, 1, "the user")?;
    let mut key = Vec::new();
    mp::write_array(&mut key, 1);
    mp::write_uint(&mut key, user.into());
    let name = lua.with_instance(|instance| {
        let store = instance.read(USERS, 0)?;
        let row = store.get(USERS, 0, &key).map_err(|error| of_store(&error))?;
        let field = row.and_then(|row| TupleRef::trusted(row).field(2));
        Ok(field.and_then(|field| Reader::new(field).str().ok()).map(<[u8]>::to_vec))
    })?;
    lua.push_str(name.unwrap_or_else(|| user.to_string().into_bytes()));
    Ok(1)
}

/// `push(value)`: `box.session.push`
fn push(lua: Lua) -> Result<i32, Error> {
    let mut value = Vec::new();
    lua.encode(1, &mut value)?;
    let request = lua.session()?.request.ok_or_else(|| Error::Box {
        code: ErrorCode::Unsupported.into(),
        message: "Session 'background' does not support push()".to_owned(),
    })?;
    lua.with_instance(|instance| instance.push(request, &value))?;
    lua.host()?.touch();
    lua.push_bool(true);
    Ok(1)
}

/// `watch_denied(yes)`: clients' requests that are refused for want of a right are told to the program.
fn watch_denied(lua: Lua) -> Result<i32, Error> {
    let watched = lua.truth(1);
    lua.with_instance(|instance| {
        instance.watch_denied(watched);
        Ok(())
    })?;
    Ok(0)
}

/// `watch_sessions(begins, logins)`: whether connections that begin, and log-ins, wait for triggers.
fn watch_sessions(lua: Lua) -> Result<i32, Error> {
    lua.host()?.watch_sessions(lua.truth(1), lua.truth(2));
    Ok(0)
}

/// `session_has_requests()`: whether other fibers are at work for the connection whose triggers run.
fn session_has_requests(lua: Lua) -> Result<i32, Error> {
    let others = Rc::strong_count(&lua.session()?.peer) > 1;
    lua.push_bool(others);
    Ok(1)
}

/// `marshal_errors(session, yes)`: whether error objects in a session's values are encoded as such.
fn marshal_errors(lua: Lua) -> Result<i32, Error> {
    let session = lua.integer(1).and_then(|number| u64::try_from(number).ok()).unwrap_or_default();
    lua.set_marshals_errors(session, lua.truth(2))?;
    Ok(0)
}

/// The running fiber acts for another user from here on; `logged_in`: that user counts as the logged-in one.
fn act_as(lua: Lua, user: u32, logged_in: bool) -> Result<Rc<Session>, Error> {
    let former = lua.session()?;
    let caller = former.caller.acting_as(user);
    let caller = if logged_in { Caller { user, ..caller } } else { caller };
    lua.swap_local(Some(Rc::new(Session { caller, peer: former.peer.clone(), request: former.request })))?;
    Ok(former)
}

/// `set_user(number)`: `box.session.su(name)`.
fn set_user(lua: Lua) -> Result<i32, Error> {
    act_as(lua, id(lua, 1, "the user")?, true)?;
    Ok(0)
}

/// `as_user(number, function, …)`: `box.session.su(name, function, …)`.
fn as_user(lua: Lua) -> Result<i32, Error> {
    let user = id(lua, 1, "the user")?;
    let former = act_as(lua, user, false)?;
    let called = lua.call(lua.top() - 2, -1);
    lua.swap_local(Some(former))?;
    called?;
    Ok(lua.top() - 1)
}

/// `as_program(function, …)`: calls a function in the program's own session, for any user. Returns its values.
fn as_program(lua: Lua) -> Result<i32, Error> {
    let former = lua.swap_local(None)?;
    let called = lua.call(lua.top() - 1, -1);
    lua.swap_local(former)?;
    called?;
    Ok(lua.top())
}
