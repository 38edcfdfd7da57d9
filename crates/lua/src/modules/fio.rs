//! Native part of `fio`: opening what may keep the caller waiting, and waiting for its bytes.
//!
//! The open of a FIFO waits for the other end, that of a device for the device, without a limit. A thread opens them and
//! wakes the fiber through an eventfd. Their reads and writes wait in the loop's epoll set. Bound: [`MAX_OPENING`] threads.
//!
//! Absent: files of a disk, which `fio.lua` opens and reads directly.

use std::ffi::{CString, c_int};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rustix::event::{EventfdFlags, eventfd};

use super::deadline;
use crate::api::Lua;
use crate::error::Error;

/// Most threads that open something at a time.
const MAX_OPENING: usize = 64;

/// How many threads open something now.
static OPENING: AtomicUsize = AtomicUsize::new(0);

/// What the thread has opened. A descriptor that no fiber takes is closed with the last owner of this.
type Opened = Arc<Mutex<Option<io::Result<OwnedFd>>>>;

/// Something that a thread opens.
struct Opening {
    done: OwnedFd,
    opened: Opened,
}

/// A thread that opens something, as part of the number of such threads.
struct Place;

impl Place {
    fn take() -> Option<Place> {
        let more = |count| (count < MAX_OPENING).then_some(count + 1);
        OPENING.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        OPENING.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(super) fn open(lua: Lua) -> Result<i32, Error> {
    lua.new_class::<Opening>("opening", &[], &[]);
    lua.pop(1);
    lua.new_library(&[("begin", begin), ("opened", opened), ("wait", wait)]);
    Ok(1)
}

fn int_at(lua: Lua, index: i32, what: &str) -> Result<c_int, Error> {
    let number = lua.integer(index).and_then(|number| c_int::try_from(number).ok());
    number.ok_or_else(|| Error::here(format!("{what} is a number from -2147483648 to 2147483647")))
}

/// Pushes `nil` and the error's number.
fn failed(lua: Lua, error: &io::Error) -> i32 {
    lua.push_nil();
    lua.push_number(f64::from(error.raw_os_error().unwrap_or(libc::EINVAL)));
    2
}

/// `begin(path, flags, mode)`: an object and a descriptor to wait for before `opened(object)`; `nil` and the number of an error.
fn begin(lua: Lua) -> Result<i32, Error> {
    let Ok(path) = CString::new(lua.bytes(1).unwrap_or_default()) else {
        return Ok(failed(lua, &io::Error::from_raw_os_error(libc::ENOENT)));
    };
    let (flags, mode) = (int_at(lua, 2, "the flags")?, int_at(lua, 3, "the mode")?);
    let Some(place) = Place::take() else {
        return Ok(failed(lua, &io::Error::from_raw_os_error(libc::EAGAIN)));
    };
    let done = match eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK) {
        Ok(done) => done,
        Err(error) => return Ok(failed(lua, &error.into())),
    };
    let opened = Opened::default();
    let (bell, result) = (done.try_clone(), opened.clone());
    let spawned = bell.and_then(|bell| {
        std::thread::Builder::new().name("open".to_owned()).spawn(move || {
            let _place = place;
            // SAFETY: the path ends with a zero byte, and open() reads nothing else.
            let fd = unsafe { libc::open(path.as_ptr(), flags, mode) };
            let opened = match fd {
                // SAFETY: the descriptor was opened just now, and nothing else owns it.
                0.. => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
                _ => Err(io::Error::last_os_error()),
            };
            if let Ok(mut result) = result.lock() {
                *result = Some(opened);
            }
            let _ = rustix::io::write(&bell, &1u64.to_ne_bytes());
        })
    });
    if let Err(error) = spawned {
        return Ok(failed(lua, &error));
    }
    let fd = done.as_raw_fd();
    lua.push_userdata(Opening { done, opened });
    lua.push_number(f64::from(fd));
    Ok(2)
}

/// `opened(object)`: the descriptor, which belongs to the caller; `nil` and the number of an error, 0 while it is opened.
fn opened(lua: Lua) -> Result<i32, Error> {
    let Some(opening) = lua.userdata::<Opening>(1) else {
        return Err(Error::here("the argument is nothing that is opened"));
    };
    let opened = opening.opened.lock().ok().and_then(|mut opened| opened.take());
    match opened {
        Some(Ok(fd)) => {
            let shared = lua.shared();
            shared.files.forget(shared, opening.done.as_raw_fd());
            lua.push_number(f64::from(fd.into_raw_fd()));
            Ok(1)
        }
        Some(Err(error)) => Ok(failed(lua, &error)),
        None => {
            lua.push_nil();
            lua.push_number(0.0);
            Ok(2)
        }
    }
}

/// `wait(fd, events, timeout)`: suspends the fiber until one of the events happens; returns these events, 0 for none.
fn wait(lua: Lua) -> Result<i32, Error> {
    let fd = int_at(lua, 1, "the descriptor")?;
    let events = lua.number(2).unwrap_or(0.0) as u8;
    let until = deadline(lua, lua.number(3));
    let happened = lua.wait_file(fd, events, until)?;
    lua.push_number(f64::from(happened));
    Ok(1)
}
