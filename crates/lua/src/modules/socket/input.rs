//! Bytes that were read from a descriptor and not taken yet.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::RawFd;

use super::{READAHEAD, call, fd_at, sent};
use crate::api::Lua;
use crate::error::Error;

/// Bytes that were read and not taken yet.
#[derive(Default)]
pub(in crate::modules) struct Input {
    bytes: RefCell<Vec<u8>>,
    taken: Cell<usize>,
}

impl Input {
    fn held(&self) -> usize {
        self.bytes.borrow().len() - self.taken.get()
    }

    /// Calls `body` with the held bytes.
    pub(in crate::modules) fn peek<T>(&self, body: impl FnOnce(&[u8]) -> T) -> T {
        body(&self.bytes.borrow()[self.taken.get()..])
    }

    /// Gives up the first `count` bytes.
    pub(in crate::modules) fn skip(&self, count: usize) {
        let taken = self.taken.get() + count.min(self.held());
        let mut bytes = self.bytes.borrow_mut();
        if taken == bytes.len() {
            bytes.clear();
            bytes.shrink_to(4 * READAHEAD);
            self.taken.set(0);
        } else {
            self.taken.set(taken);
        }
    }

    /// Reads once from the descriptor; the number of bytes, 0 at the end.
    pub(in crate::modules) fn fill(&self, fd: RawFd, size: usize) -> io::Result<usize> {
        let mut bytes = self.bytes.borrow_mut();
        let taken = self.taken.get();
        if taken > bytes.len() / 2 {
            bytes.drain(..taken);
            self.taken.set(0);
        }
        bytes.reserve(size);
        let end = bytes.len();
        // SAFETY: the memory behind the end has that size.
        let count = call(|| unsafe { libc::read(fd, bytes.as_mut_ptr().add(end).cast(), size) })?;
        // SAFETY: the system has written this number of bytes, at most `size`.
        unsafe { bytes.set_len(end + count) };
        Ok(count)
    }
}

/// `input()`: an empty buffer.
pub(super) fn input(lua: Lua) -> Result<i32, Error> {
    lua.push_userdata(Input::default());
    Ok(1)
}

pub(in crate::modules) fn input_at(lua: &Lua, index: i32) -> Result<&Input, Error> {
    lua.userdata::<Input>(index).ok_or_else(|| Error::here("the argument is no input"))
}

/// `fill(input, fd, limit)`: reads once; the number of bytes, 0 at the end.
pub(super) fn fill(lua: Lua) -> Result<i32, Error> {
    let (input, fd) = (input_at(&lua, 1)?, fd_at(lua, 2)?);
    let limit = lua.number(3).unwrap_or(READAHEAD as f64).clamp(1.0, READAHEAD as f64);
    let result = input.fill(fd, limit as usize);
    Ok(sent(lua, &result))
}

/// `find(input, text, from)`: where the text ends in the held bytes; nothing if they do not have it. Looks from the offset on.
pub(super) fn find(lua: Lua) -> Result<i32, Error> {
    let input = input_at(&lua, 1)?;
    let text = lua.arg_bytes(2, "the text is a string")?;
    let from = lua.number(3).unwrap_or(0.0).max(0.0) as usize;
    let place = input.peek(|held| {
        let rest = held.get(from..).unwrap_or_default();
        if text.is_empty() {
            return Some(0);
        }
        rest.windows(text.len()).position(|window| window == text)
    });
    match place {
        Some(place) => lua.push_number((from + place + text.len()) as f64),
        None => lua.push_nil(),
    }
    Ok(1)
}

/// `take(input, count)`: the first bytes, at most `count`.
pub(super) fn take(lua: Lua) -> Result<i32, Error> {
    let input = input_at(&lua, 1)?;
    let count = (lua.number(2).unwrap_or(0.0).max(0.0) as usize).min(input.held());
    input.peek(|held| lua.push_str(&held[..count]));
    input.skip(count);
    Ok(1)
}

/// `held(input)`: the number of bytes.
pub(super) fn held(lua: Lua) -> Result<i32, Error> {
    let held = input_at(&lua, 1)?.held();
    lua.push_number(held as f64);
    Ok(1)
}
