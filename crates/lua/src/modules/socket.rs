//! Native part of `socket`: the system's calls on descriptors, names of hosts, and a buffer of received bytes.
//!
//! A function that fails returns `nil` and the number of the error. None of them blocks but [`wait`], which suspends the
//! fiber. Addresses and names of hosts are in [`address`], received bytes that were not taken in [`input`].

mod address;
mod input;

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::io;
use std::os::fd::RawFd;
use std::ptr;

use super::deadline;
use crate::api::{Kind, Lua};
use crate::error::Error;

use address::{Address, Lookup, found, lookup, set_kind};
use input::{Input, fill, find, held, input, take};

pub(super) use input::input_at;

/// Most bytes that one call reads.
const MAX_READ: usize = 1 << 30;

/// Bytes that a buffer asks the system for at once.
const READAHEAD: usize = 16 << 10;

/// A descriptor that is closed with its object.
struct Descriptor(Cell<RawFd>);

impl Drop for Descriptor {
    fn drop(&mut self) {
        if self.0.get() >= 0 {
            // SAFETY: the descriptor belongs to this object alone, which ends.
            unsafe { libc::close(self.0.get()) };
        }
    }
}

pub(super) fn open(lua: Lua) -> Result<i32, Error> {
    lua.new_class::<Descriptor>("descriptor", &[], &[]);
    lua.pop(1);
    lua.new_class::<Lookup>("lookup", &[], &[]);
    lua.pop(1);
    lua.new_class::<Input>("input", &[], &[]);
    lua.pop(1);
    lua.new_library(&[
        ("socket", socket),
        ("own", own),
        ("close", close),
        ("connect", connect),
        ("bind", bind),
        ("listen", listen),
        ("accept", accept),
        ("shutdown", shutdown),
        ("read", read),
        ("write", write),
        ("send", send),
        ("sendto", sendto),
        ("recv", recv),
        ("recvfrom", recvfrom),
        ("name", name),
        ("peer", peer),
        ("nonblock", nonblock),
        ("setsockopt", setsockopt),
        ("getsockopt", getsockopt),
        ("linger", linger),
        ("protocol", protocol),
        ("lookup", lookup),
        ("found", found),
        ("wait", wait),
        ("input", input),
        ("fill", fill),
        ("find", find),
        ("take", take),
        ("held", held),
    ]);
    Ok(1)
}

// ---- arguments and results

fn fd_at(lua: Lua, index: i32) -> Result<RawFd, Error> {
    let number = lua.integer(index).and_then(|number| RawFd::try_from(number).ok());
    number.ok_or_else(|| Error::here("the descriptor is a number"))
}

fn int_at(lua: Lua, index: i32, what: &str) -> Result<c_int, Error> {
    let number = lua.integer(index).and_then(|number| c_int::try_from(number).ok());
    number.ok_or_else(|| Error::here(format!("{what} is a number from -2147483648 to 2147483647")))
}

fn size_at(lua: Lua, index: i32) -> Result<usize, Error> {
    let size = lua.arg_number(index, "the size is a number")?;
    if !(0.0..=MAX_READ as f64).contains(&size) {
        return Err(Error::here(format!("the size {size} is not within 0 and {MAX_READ}")));
    }
    Ok(size as usize)
}

/// Pushes `nil` and the error's number.
fn failed(lua: Lua, error: &io::Error) -> i32 {
    lua.push_nil();
    lua.push_number(f64::from(error.raw_os_error().unwrap_or(libc::EINVAL)));
    2
}

/// Repeats a call of the system that a signal has interrupted.
fn call(mut body: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        let result = body();
        if result >= 0 {
            return Ok(result.unsigned_abs());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn call_int(mut body: impl FnMut() -> c_int) -> io::Result<c_int> {
    call(|| body() as isize).map(|result| result as c_int)
}

/// Pushes `true`, or `nil` and the error's number.
fn done(lua: Lua, result: &io::Result<c_int>) -> i32 {
    match result {
        Ok(_) => {
            lua.push_bool(true);
            1
        }
        Err(error) => failed(lua, error),
    }
}

/// A text or a number as bytes.
fn text_at(lua: Lua, index: i32) -> Vec<u8> {
    match lua.bytes(index) {
        Some(bytes) => bytes.to_vec(),
        None => lua.display(index).into_bytes(),
    }
}

// ---- sockets

/// `socket(domain, type, protocol)`: a descriptor that does not block.
fn socket(lua: Lua) -> Result<i32, Error> {
    let (domain, kind) = (int_at(lua, 1, "the domain")?, int_at(lua, 2, "the type")?);
    let protocol = int_at(lua, 3, "the protocol")?;
    // SAFETY: takes numbers.
    let made = call_int(|| unsafe {
        libc::socket(domain, kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, protocol)
    });
    Ok(descriptor(lua, made))
}

/// Pushes the number and the object that closes it.
fn descriptor(lua: Lua, made: io::Result<c_int>) -> i32 {
    match made {
        Ok(fd) => {
            lua.push_number(f64::from(fd));
            lua.push_userdata(Descriptor(Cell::new(fd)));
            2
        }
        Err(error) => failed(lua, &error),
    }
}

/// `own(fd)`: the object that closes a descriptor.
fn own(lua: Lua) -> Result<i32, Error> {
    let fd = fd_at(lua, 1)?;
    lua.push_userdata(Descriptor(Cell::new(fd)));
    Ok(1)
}

/// `close(object)`
fn close(lua: Lua) -> Result<i32, Error> {
    let Some(object) = lua.userdata::<Descriptor>(1) else {
        return Err(Error::here("the argument is no descriptor"));
    };
    let fd = object.0.replace(-1);
    if fd < 0 {
        return Ok(failed(lua, &io::Error::from_raw_os_error(libc::EBADF)));
    }
    let shared = lua.shared();
    shared.files.forget(shared, fd);
    // SAFETY: the descriptor belonged to the object alone. It is closed even if a signal interrupts the call.
    let result = unsafe { libc::close(fd) };
    let result = if result == 0 { Ok(0) } else { Err(io::Error::last_os_error()) };
    Ok(done(lua, &result))
}

/// `connect(fd, host, port)`
fn connect(lua: Lua) -> Result<i32, Error> {
    let fd = fd_at(lua, 1)?;
    let result = Address::of(&text_at(lua, 2), &text_at(lua, 3)).and_then(|address| {
        // SAFETY: the address is as long as it is said.
        call_int(|| unsafe { libc::connect(fd, address.raw(), address.length) })
    });
    Ok(done(lua, &result))
}

/// `bind(fd, host, port)`
fn bind(lua: Lua) -> Result<i32, Error> {
    let fd = fd_at(lua, 1)?;
    let result = Address::of(&text_at(lua, 2), &text_at(lua, 3)).and_then(|address| {
        // SAFETY: the address is as long as it is said.
        call_int(|| unsafe { libc::bind(fd, address.raw(), address.length) })
    });
    Ok(done(lua, &result))
}

/// `listen(fd, backlog)`
fn listen(lua: Lua) -> Result<i32, Error> {
    let (fd, backlog) = (fd_at(lua, 1)?, int_at(lua, 2, "the backlog")?);
    // SAFETY: takes numbers.
    let result = call_int(|| unsafe { libc::listen(fd, backlog) });
    Ok(done(lua, &result))
}

/// `accept(fd)`: number, object and address of a new connection.
fn accept(lua: Lua) -> Result<i32, Error> {
    let fd = fd_at(lua, 1)?;
    let mut from = Address::empty();
    let (raw, length) = (from.raw_mut(), &raw mut from.length);
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the address has the capacity that its length says.
    match call_int(|| unsafe { libc::accept4(fd, raw, length, flags) }) {
        Ok(fd) => {
            descriptor(lua, Ok(fd));
            from.push(lua);
            Ok(3)
        }
        Err(error) => Ok(failed(lua, &error)),
    }
}

/// `shutdown(fd, how)`
fn shutdown(lua: Lua) -> Result<i32, Error> {
    let (fd, how) = (fd_at(lua, 1)?, int_at(lua, 2, "the direction")?);
    // SAFETY: takes numbers.
    let result = call_int(|| unsafe { libc::shutdown(fd, how) });
    Ok(done(lua, &result))
}

// ---- bytes

/// Reads at most `size` bytes and pushes them.
fn receive(lua: Lua, size: usize, body: impl Fn(*mut libc::c_void, usize) -> isize) -> i32 {
    let mut bytes: Vec<u8> = Vec::with_capacity(size);
    match call(|| body(bytes.as_mut_ptr().cast(), size)) {
        Ok(count) => {
            // SAFETY: the system has written this number of bytes, at most the capacity (a longer datagram is cut).
            unsafe { bytes.set_len(count.min(size)) };
            lua.push_str(bytes);
            1
        }
        Err(error) => failed(lua, &error),
    }
}

/// `read(fd, size)`
fn read(lua: Lua) -> Result<i32, Error> {
    let (fd, size) = (fd_at(lua, 1)?, size_at(lua, 2)?);
    // SAFETY: the memory has that size.
    Ok(receive(lua, size, |memory, size| unsafe { libc::read(fd, memory, size) }))
}

/// `recv(fd, size, flags)`; without a size that of the next datagram.
fn recv(lua: Lua) -> Result<i32, Error> {
    let (fd, flags) = (fd_at(lua, 1)?, int_at(lua, 3, "the flags")?);
    let size = match datagram_size(lua, fd)? {
        Ok(size) => size,
        Err(error) => return Ok(failed(lua, &error)),
    };
    // SAFETY: the memory has that size.
    Ok(receive(lua, size, |memory, size| unsafe { libc::recv(fd, memory, size, flags) }))
}

fn datagram_size(lua: Lua, fd: RawFd) -> Result<io::Result<usize>, Error> {
    if lua.kind(2) != Kind::Nil {
        return size_at(lua, 2).map(Ok);
    }
    // SAFETY: no byte is written; the result is the length of the datagram.
    Ok(call(|| unsafe { libc::recv(fd, ptr::null_mut(), 0, libc::MSG_TRUNC | libc::MSG_PEEK) }))
}

/// `recvfrom(fd, size, flags)`: the bytes and the sender's address.
fn recvfrom(lua: Lua) -> Result<i32, Error> {
    let (fd, flags) = (fd_at(lua, 1)?, int_at(lua, 3, "the flags")?);
    let size = match datagram_size(lua, fd)? {
        Ok(size) => size,
        Err(error) => return Ok(failed(lua, &error)),
    };
    let from = RefCell::new(Address::empty());
    let count = receive(lua, size, |memory, size| {
        let mut from = from.borrow_mut();
        let (raw, length) = (from.raw_mut(), &raw mut from.length);
        // SAFETY: the memory has that size, the address the capacity that its length says.
        unsafe { libc::recvfrom(fd, memory, size, flags, raw, length) }
    });
    let from = from.into_inner();
    if count == 1 && from.family() != libc::AF_UNSPEC {
        from.push(lua);
        return Ok(2);
    }
    Ok(count)
}

fn sent(lua: Lua, result: &io::Result<usize>) -> i32 {
    match result {
        Ok(count) => {
            lua.push_number(*count as f64);
            1
        }
        Err(error) => failed(lua, error),
    }
}

/// `write(fd, bytes, offset)`: writes what stands behind the offset; the number of bytes that were written.
fn write(lua: Lua) -> Result<i32, Error> {
    let fd = fd_at(lua, 1)?;
    let bytes = lua.arg_bytes(2, "the bytes are a string")?;
    let offset = lua.number(3).unwrap_or(0.0).max(0.0) as usize;
    let rest = bytes.get(offset..).unwrap_or_default();
    // SAFETY: the bytes live while the string is on the stack.
    let result = call(|| unsafe { libc::write(fd, rest.as_ptr().cast(), rest.len()) });
    Ok(sent(lua, &result))
}

/// `send(fd, bytes, flags)`
fn send(lua: Lua) -> Result<i32, Error> {
    let (fd, flags) = (fd_at(lua, 1)?, int_at(lua, 3, "the flags")?);
    let bytes = lua.arg_bytes(2, "the bytes are a string")?;
    // SAFETY: the bytes live while the string is on the stack.
    let result =
        call(|| unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags | libc::MSG_NOSIGNAL) });
    Ok(sent(lua, &result))
}

/// `sendto(fd, host, port, bytes, flags)`
fn sendto(lua: Lua) -> Result<i32, Error> {
    let (fd, flags) = (fd_at(lua, 1)?, int_at(lua, 5, "the flags")?);
    let bytes = lua.arg_bytes(4, "the bytes are a string")?;
    let result = Address::of(&text_at(lua, 2), &text_at(lua, 3)).and_then(|to| {
        // SAFETY: the bytes live while the string is on the stack; the address is as long as it is said.
        call(|| unsafe {
            libc::sendto(
                fd,
                bytes.as_ptr().cast(),
                bytes.len(),
                flags | libc::MSG_NOSIGNAL,
                to.raw(),
                to.length,
            )
        })
    });
    Ok(sent(lua, &result))
}

// ---- names and options

type NameCall = unsafe extern "C" fn(c_int, *mut libc::sockaddr, *mut libc::socklen_t) -> c_int;

fn push_name(lua: Lua, body: NameCall) -> Result<i32, Error> {
    let fd = fd_at(lua, 1)?;
    let mut address = Address::empty();
    let (raw, length) = (address.raw_mut(), &raw mut address.length);
    // SAFETY: the address has the capacity that its length says.
    if let Err(error) = call_int(|| unsafe { body(fd, raw, length) }) {
        return Ok(failed(lua, &error));
    }
    address.push(lua);
    let kind = option_int(fd, libc::SOL_SOCKET, libc::SO_TYPE).unwrap_or(0);
    let protocol = option_int(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL).unwrap_or(0);
    set_kind(lua, kind, protocol);
    Ok(1)
}

/// `name(fd)`: the own address.
fn name(lua: Lua) -> Result<i32, Error> {
    push_name(lua, libc::getsockname)
}

/// `peer(fd)`: the other side's address.
fn peer(lua: Lua) -> Result<i32, Error> {
    push_name(lua, libc::getpeername)
}

/// `nonblock(fd [, yes])`: whether calls return at once, now.
fn nonblock(lua: Lua) -> Result<i32, Error> {
    let fd = fd_at(lua, 1)?;
    // SAFETY: takes numbers.
    let result = call_int(|| unsafe { libc::fcntl(fd, libc::F_GETFL) }).and_then(|flags| {
        let wanted = match lua.kind(2) {
            Kind::None | Kind::Nil => return Ok(flags),
            _ if lua.truth(2) => flags | libc::O_NONBLOCK,
            _ => flags & !libc::O_NONBLOCK,
        };
        // SAFETY: takes numbers.
        call_int(|| unsafe { libc::fcntl(fd, libc::F_SETFL, wanted) }).map(|_| wanted)
    });
    match result {
        Ok(flags) => {
            lua.push_bool(flags & libc::O_NONBLOCK != 0);
            Ok(1)
        }
        Err(error) => Ok(failed(lua, &error)),
    }
}

fn set_option(fd: RawFd, level: c_int, option: c_int, bytes: &[u8]) -> io::Result<c_int> {
    // SAFETY: the bytes are as long as it is said.
    call_int(|| unsafe {
        libc::setsockopt(fd, level, option, bytes.as_ptr().cast(), bytes.len() as libc::socklen_t)
    })
}

fn option_bytes(fd: RawFd, level: c_int, option: c_int, bytes: &mut [u8]) -> io::Result<usize> {
    let mut length = bytes.len() as libc::socklen_t;
    // SAFETY: the memory is as long as it is said.
    call_int(|| unsafe { libc::getsockopt(fd, level, option, bytes.as_mut_ptr().cast(), &raw mut length) })?;
    Ok((length as usize).min(bytes.len()))
}

fn option_int(fd: RawFd, level: c_int, option: c_int) -> io::Result<c_int> {
    let mut bytes = [0; size_of::<c_int>()];
    option_bytes(fd, level, option, &mut bytes)?;
    Ok(c_int::from_ne_bytes(bytes))
}

/// `setsockopt(fd, level, option, value)`; the value is a number or a string of bytes.
fn setsockopt(lua: Lua) -> Result<i32, Error> {
    let fd = fd_at(lua, 1)?;
    let (level, option) = (int_at(lua, 2, "the level")?, int_at(lua, 3, "the option")?);
    let bytes = match lua.bytes(4) {
        Some(bytes) => bytes.to_vec(),
        None => int_at(lua, 4, "the value of the option")?.to_ne_bytes().to_vec(),
    };
    Ok(done(lua, &set_option(fd, level, option, &bytes)))
}

/// `getsockopt(fd, level, option, is_text)`
fn getsockopt(lua: Lua) -> Result<i32, Error> {
    let fd = fd_at(lua, 1)?;
    let (level, option) = (int_at(lua, 2, "the level")?, int_at(lua, 3, "the option")?);
    if lua.truth(4) {
        let mut bytes = [0; 256];
        return Ok(match option_bytes(fd, level, option, &mut bytes) {
            Ok(length) => {
                lua.push_str(&bytes[..length]);
                1
            }
            Err(error) => failed(lua, &error),
        });
    }
    Ok(match option_int(fd, level, option) {
        Ok(value) => {
            lua.push_number(f64::from(value));
            1
        }
        Err(error) => failed(lua, &error),
    })
}

/// `linger(fd)`, `linger(fd, active, seconds)`: whether close waits, and how many seconds.
fn linger(lua: Lua) -> Result<i32, Error> {
    let fd = fd_at(lua, 1)?;
    let mut bytes = [0; 8];
    if lua.kind(2) == Kind::None || lua.kind(2) == Kind::Nil {
        if let Err(error) = option_bytes(fd, libc::SOL_SOCKET, libc::SO_LINGER, &mut bytes) {
            return Ok(failed(lua, &error));
        }
    } else {
        let seconds = int_at(lua, 3, "the timeout")?;
        bytes[..4].copy_from_slice(&c_int::from(lua.truth(2)).to_ne_bytes());
        bytes[4..].copy_from_slice(&seconds.to_ne_bytes());
        if let Err(error) = set_option(fd, libc::SOL_SOCKET, libc::SO_LINGER, &bytes) {
            return Ok(failed(lua, &error));
        }
    }
    let (active, seconds) = bytes.split_at(4);
    lua.push_bool(active.iter().any(|byte| *byte != 0));
    lua.push_number(f64::from(c_int::from_ne_bytes(seconds.try_into().unwrap_or_default())));
    Ok(2)
}

/// `protocol(name)`: the number of a protocol, from the system's list.
fn protocol(lua: Lua) -> Result<i32, Error> {
    let name = lua.text(1).unwrap_or_default();
    let list = std::fs::read_to_string("/etc/protocols").unwrap_or_default();
    let number = list.lines().find_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let (first, number) = (words.next()?, words.next()?.parse::<u16>().ok()?);
        (first == name || words.any(|alias| alias == name)).then_some(number)
    });
    match number {
        Some(number) => lua.push_number(f64::from(number)),
        None => lua.push_nil(),
    }
    Ok(1)
}

// ---- waiting

/// `wait(fd, events, timeout)`: the events that happened (1 readable, 2 writable); 0 when the time is over.
fn wait(lua: Lua) -> Result<i32, Error> {
    let fd = fd_at(lua, 1)?;
    let events = lua.number(2).unwrap_or(0.0) as u8;
    let until = deadline(lua, lua.number(3));
    let happened = lua.wait_file(fd, events, until)?;
    lua.push_number(f64::from(happened));
    Ok(1)
}
