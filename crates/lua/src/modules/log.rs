//! Native part of `log`: lines go to the process's log.

use crate::api::Lua;
use crate::error::Error;

/// Levels as Tarantool numbers them.
mod level {
    pub(super) const FATAL: i32 = 0;
    pub(super) const CRITICAL: i32 = 3;
    pub(super) const WARNING: i32 = 4;
    pub(super) const INFO: i32 = 5;
    pub(super) const VERBOSE: i32 = 6;
}

pub(super) fn open(lua: Lua) -> Result<i32, Error> {
    lua.new_library(&[("say", say)]);
    Ok(1)
}

/// `say(level, file, line, text)`
fn say(lua: Lua) -> Result<i32, Error> {
    let level = lua.arg_number(1, "usage: say(level, file, line, text)")? as i32;
    let file = lua.text(2).unwrap_or_default();
    let line = lua.number(3).unwrap_or_default() as u32;
    let text = lua.text(4).unwrap_or_default();
    let (fiber, name) = match lua.fiber() {
        Ok(fiber) => (fiber.id, fiber.name()),
        Err(_) => (0, "main".to_owned()),
    };
    match level {
        level::FATAL..=level::CRITICAL => {
            tracing::error!(target: "lua", fiber, name, file, line, "{text}");
        }
        level::WARNING => tracing::warn!(target: "lua", fiber, name, "{text}"),
        level::INFO => tracing::info!(target: "lua", fiber, name, "{text}"),
        level::VERBOSE => tracing::debug!(target: "lua", fiber, name, "{text}"),
        _ => tracing::trace!(target: "lua", fiber, name, "{text}"),
    }
    Ok(0)
}
