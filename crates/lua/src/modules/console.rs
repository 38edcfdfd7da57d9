//! Native part of `console`: lines of the terminal.

use crate::api::Lua;
use crate::error::Error;
use crate::host::Input;

pub(super) fn open(lua: Lua) -> Result<i32, Error> {
    lua.new_library(&[("read_line", read_line), ("remember", remember)]);
    Ok(1)
}

/// `read_line(prompt)`: a line; `false` if the user has given the line up; `nil` at the end.
fn read_line(lua: Lua) -> Result<i32, Error> {
    let host = lua.host()?;
    let prompt = lua.text(1).unwrap_or_default();
    loop {
        let ticket = lua.ticket()?;
        if let Some(input) = host.read_line(ticket, &prompt) {
            match input {
                Input::Line(line) => lua.push_str(line),
                Input::Interrupted => lua.push_bool(false),
                Input::End => lua.push_nil(),
            }
            return Ok(1);
        }
        let _ = lua.park(None)?;
        lua.test_cancel()?;
    }
}

/// `remember(statement)`: into the history.
fn remember(lua: Lua) -> Result<i32, Error> {
    lua.host()?.remember(&lua.text(1).unwrap_or_default());
    Ok(0)
}

/// What completes a line at a place (in bytes from 0): where the completed word begins, and what it may become.
pub(crate) fn complete(lua: Lua, line: &str, place: usize) -> Result<(usize, Vec<String>), Error> {
    lua.push_global("require");
    lua.push_str("console");
    lua.call(1, 1)?;
    lua.raw_field(-1, "complete");
    lua.push_str(line);
    lua.push_number(place as f64);
    lua.call(2, 2)?;
    let start = lua.number(-2).unwrap_or(place as f64) as usize;
    let mut words = Vec::new();
    for number in 1.. {
        lua.raw_item(-1, number);
        let word = lua.text(-1);
        lua.pop(1);
        match word {
            Some(word) => words.push(word),
            None => break,
        }
    }
    Ok((start, words))
}
