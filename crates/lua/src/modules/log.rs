//! Native part of `log`: lines go to the process's log.
//!
//! Lines of the modules themselves that clients can cause in any number are sampled by their [`Cause`]: the first ones of
//! a period are logged, the rest are counted. Lines that a program logs itself with `log` are never held back.

use std::cell::RefCell;

use lycosa_queue::sampled::{Sampled, with_held_back};

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

/// What a sampled line is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A trigger or callback failed.
    Hook,
    /// A fiber that no other one joins ended with an error.
    Fiber,
    /// A call came while the queue was not running.
    Refused,
    /// A driver in Lua failed beside its calls.
    Driver,
}

impl Cause {
    const ALL: [(&'static str, Self, &'static str); 4] = [
        ("hook", Self::Hook, "more triggers or callbacks failed"),
        ("fiber", Self::Fiber, "more fibers ended with an error"),
        ("refused", Self::Refused, "more calls came while the queue was not running"),
        ("driver", Self::Driver, "more tasks of tubes with drivers in Lua were not looked after"),
    ];

    fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, ..)| *known == name).map(|(_, cause, _)| *cause)
    }
}

/// Which lines of the modules are logged.
#[derive(Debug, Default)]
pub(crate) struct SampledLines(RefCell<[Sampled; Cause::ALL.len()]>);

impl SampledLines {
    /// The line with the number of lines that were held back before it, if it is to be logged.
    fn admit(&self, cause: Cause, now: u64, text: &str) -> Option<String> {
        let held_back = self.0.borrow_mut()[cause as usize].event(now)?;
        Some(with_held_back(text.to_owned(), held_back))
    }

    /// Lines with the numbers of lines that no later line has told.
    fn overdue(&self, now: u64) -> impl Iterator<Item = String> {
        let mut sampled = self.0.borrow_mut();
        let counts = Cause::ALL.map(|(_, cause, what)| (sampled[cause as usize].overdue(now), what));
        counts.into_iter().filter_map(|(count, what)| Some(format!("{} {what}", count?)))
    }

    /// Logs what [`Self::overdue`] tells.
    pub(crate) fn log_overdue(&self, now: u64) {
        for text in self.overdue(now) {
            tracing::error!(target: "lua", "{text}");
        }
    }
}

/// Logs an error line that clients can cause in any number.
pub(crate) fn say_sampled(lua: Lua, cause: Cause, text: &str) {
    let shared = lua.shared();
    if let Some(text) = shared.lines.admit(cause, shared.scheduler.now(), text) {
        let (fiber, name) = fiber_of(lua);
        tracing::error!(target: "lua", fiber, name, "{text}");
    }
}

pub(super) fn open(lua: Lua) -> Result<i32, Error> {
    lua.new_library(&[("say", say), ("sampled", sampled)]);
    Ok(1)
}

/// Number and name of the running fiber.
fn fiber_of(lua: Lua) -> (u64, String) {
    match lua.fiber() {
        Ok(fiber) => (fiber.id, fiber.name()),
        Err(_) => (0, "main".to_owned()),
    }
}

/// `sampled(cause, text)`: an error line of a module.
fn sampled(lua: Lua) -> Result<i32, Error> {
    let cause = lua.text(1).and_then(|name| Cause::parse(&name));
    let cause = cause.ok_or_else(|| Error::text("usage: sampled(cause, text)"))?;
    let text = lua.text(2).unwrap_or_default();
    say_sampled(lua, cause, &text);
    Ok(0)
}

/// `say(level, file, line, text, is_table)`: a table is its JSON.
fn say(lua: Lua) -> Result<i32, Error> {
    let level = lua.arg_number(1, "usage: say(level, file, line, text)")? as i32;
    let file = lua.text(2).unwrap_or_default();
    let line = lua.number(3).unwrap_or_default() as u32;
    let text = lua.text(4).unwrap_or_default();
    let is_table = lua.truth(5).then_some(true);
    let (fiber, name) = fiber_of(lua);
    // Lines of text show the places of errors alone.
    if !file.is_empty() && level > level::CRITICAL {
        match level {
            level::WARNING => {
                tracing::warn!(target: "lua", message = text, is_table, fiber, name, file, line);
            }
            level::INFO => tracing::info!(target: "lua", message = text, is_table, fiber, name, file, line),
            level::VERBOSE => {
                tracing::debug!(target: "lua", message = text, is_table, fiber, name, file, line);
            }
            _ => tracing::trace!(target: "lua", message = text, is_table, fiber, name, file, line),
        }
        return Ok(0);
    }
    match level {
        level::FATAL..=level::CRITICAL => {
            tracing::error!(target: "lua", message = text, is_table, fiber, name, file, line);
        }
        level::WARNING => tracing::warn!(target: "lua", message = text, fiber, name),
        level::INFO => tracing::info!(target: "lua", message = text, fiber, name),
        level::VERBOSE => tracing::debug!(target: "lua", message = text, fiber, name),
        _ => tracing::trace!(target: "lua", message = text, fiber, name),
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_its_own_lines_and_counts() {
        assert!(Cause::ALL.iter().enumerate().all(|(place, (_, cause, _))| *cause as usize == place));
        let lines = SampledLines::default();
        let logged = |cause| (0..30).filter_map(|_| lines.admit(cause, 5, "x")).count();
        assert_eq!((logged(Cause::Hook), logged(Cause::Fiber)), (10, 10));
        assert_eq!(lines.overdue(6).count(), 0);
        let told: Vec<_> = lines.overdue(5 + Sampled::PERIOD).collect();
        assert_eq!(told, ["20 more triggers or callbacks failed", "20 more fibers ended with an error"]);
        assert_eq!(lines.admit(Cause::Hook, 6 + Sampled::PERIOD, "x"), Some("x".to_owned()));
    }
}
