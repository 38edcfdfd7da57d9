//! Headers of tasks: names and texts that a producer gives to a worker beside the payload, such as `traceparent`.
//!
//! `put(payload, {headers = {NAME = TEXT}})` keeps them in the task's row of [`crate::attempts::ATTEMPTS`], which exists for such
//! tasks only: a task without headers costs no row and no byte. The extended form of the task shows them. They go where the
//! row goes: to disk, to replicas, with a move to another tube, back with an undo, and away with the task.
//!
//! Bounds: [`MAX_HEADERS`], [`MAX_NAME`] and [`MAX_BYTES`].

use lycosa_tuple::mp::{self, Kind, Reader};

use crate::arguments::{kind, string};
use crate::error::{Error, Result};

/// Headers of a task at most.
pub const MAX_HEADERS: u32 = 32;
/// Bytes of a header's name at most.
pub const MAX_NAME: usize = 64;
/// Bytes of all headers of a task at most, as MessagePack.
pub const MAX_BYTES: usize = 4096;

/// Reads the option `headers` into a map of strings to strings; an empty one if there are no headers.
///
/// # Errors
/// It is no such map, has a name twice, or is beyond a bound.
pub(crate) fn parse(method: &'static str, given: &[u8]) -> Result<Vec<u8>> {
    let refused = |what: String| Error::Unfit { method, what: format!("option headers {what}") };
    // An empty array is what Lua makes of an empty table.
    if given == [0x90] {
        return Ok(Vec::new());
    }
    if kind(given) != Kind::Map {
        return Err(refused("is not a map of names to texts".to_owned()));
    }
    let mut reader = Reader::new(given);
    let count = reader.map().unwrap_or(0);
    if count > MAX_HEADERS {
        return Err(refused(format!("has {count} names: at most {MAX_HEADERS} are kept")));
    }
    let mut headers = Vec::with_capacity(given.len());
    let mut names = Vec::with_capacity(count as usize);
    mp::write_map(&mut headers, count);
    for _ in 0..count {
        let (Ok(name), Ok(value)) = (reader.raw(), reader.raw()) else { break };
        let name = string(name).and_then(|name| str::from_utf8(name).ok());
        let is_short = |name: &&str| (1..=MAX_NAME).contains(&name.len());
        let name = name.filter(is_short).ok_or_else(|| {
            refused(format!("has a name that is not a text in UTF-8 of 1 to {MAX_NAME} bytes"))
        })?;
        let value = string(value).filter(|value| str::from_utf8(value).is_ok());
        let value =
            value.ok_or_else(|| refused(format!("has a value of {name:?} that is not a text in UTF-8")))?;
        if names.contains(&name) {
            return Err(refused(format!("has the name {name:?} twice")));
        }
        names.push(name);
        mp::write_str(&mut headers, name.as_bytes());
        mp::write_str(&mut headers, value);
    }
    let bytes = headers.len();
    if bytes > MAX_BYTES {
        return Err(refused(format!("has {bytes} bytes as MessagePack: at most {MAX_BYTES} are kept")));
    }
    if count == 0 {
        headers.clear();
    }
    Ok(headers)
}
