//! The operating system for modules: clocks, texts of errors, random bytes, accounts, the process.

use rustix::rand::{GetRandomFlags, getrandom};
use rustix::time::{ClockId, clock_gettime};

use crate::api::Lua;
use crate::error::Error;

pub(super) fn open(lua: Lua) -> Result<i32, Error> {
    lua.new_library(&[
        ("nanoseconds", nanoseconds),
        ("strerror", strerror),
        ("random_bytes", random_bytes),
        ("pid", pid),
    ]);
    Ok(1)
}

/// `nanoseconds(clock)`
fn nanoseconds(lua: Lua) -> Result<i32, Error> {
    let clock = match lua.arg_bytes(1, "usage: nanoseconds(clock)")? {
        b"realtime" => ClockId::Realtime,
        b"monotonic" => ClockId::Monotonic,
        b"process" => ClockId::ProcessCPUTime,
        b"thread" => ClockId::ThreadCPUTime,
        other => {
            let other = String::from_utf8_lossy(other);
            return Err(Error::here(format!("there is no clock {other:?}")));
        }
    };
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    lua.push_uint64(seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or_default());
    Ok(1)
}

/// `strerror(number)`
fn strerror(lua: Lua) -> Result<i32, Error> {
    let number = lua.arg_number(1, "Usage: errno.strerror([number])")? as i32;
    let text = std::io::Error::from_raw_os_error(number).to_string();
    // The standard library adds the number to the system's text.
    lua.push_str(text.split(" (os error").next().unwrap_or(&text));
    Ok(1)
}

/// `random_bytes(count)`
fn random_bytes(lua: Lua) -> Result<i32, Error> {
    const MAX: f64 = (64 << 20) as f64;
    let count = lua.arg_number(1, "Usage: digest.urandom(len)")?;
    if !(0.0..=MAX).contains(&count) {
        return Err(Error::here(format!("digest.urandom: {count} bytes; at most {MAX} are made at once")));
    }
    let mut bytes = vec![0; count as usize];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())
            .map_err(|error| Error::here(format!("digest.urandom: {error}")))?;
    }
    lua.push_str(bytes);
    Ok(1)
}

/// `pid()`
fn pid(lua: Lua) -> Result<i32, Error> {
    lua.push_number(f64::from(std::process::id()));
    Ok(1)
}
