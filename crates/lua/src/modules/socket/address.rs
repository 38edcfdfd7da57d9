//! Addresses of sockets, and the names of hosts. A name is looked up in a thread that wakes the fiber through an eventfd.

use std::ffi::{CStr, CString, c_int};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::{mem, ptr};

use rustix::event::{EventfdFlags, eventfd};

use super::{failed, int_at, text_at};
use crate::api::Lua;
use crate::error::Error;

/// A lookup of a host's name under way.
pub(super) struct Lookup {
    done: OwnedFd,
    found: Arc<Mutex<Option<Found>>>,
}

pub(super) type Found = Result<Vec<AddressInfo>, c_int>;

/// One address that a lookup returned, as `getaddrinfo` has it.
pub(super) struct AddressInfo {
    address: Address,
    family: c_int,
    kind: c_int,
    protocol: c_int,
}

/// An address as the system has it.
#[derive(Clone, Copy)]
pub(super) struct Address {
    storage: libc::sockaddr_storage,
    pub(super) length: libc::socklen_t,
}

impl Address {
    pub(super) fn empty() -> Address {
        // SAFETY: the structure is plain bytes, for which zeros are valid.
        let storage = unsafe { mem::zeroed() };
        Address { storage, length: size_of::<libc::sockaddr_storage>() as libc::socklen_t }
    }

    /// # Safety
    /// `address` points to `length` bytes, which are an address of the system.
    unsafe fn copied(address: *const libc::sockaddr, length: libc::socklen_t) -> Address {
        let mut copy = Address::empty();
        copy.length = length.min(copy.length);
        // SAFETY: the caller's promise; the length is at most that of the target.
        unsafe {
            let to = (&raw mut copy.storage).cast::<u8>();
            ptr::copy_nonoverlapping(address.cast::<u8>(), to, copy.length as usize);
        }
        copy
    }

    /// An address of numbers, or the path of a unix socket behind the host `unix/`.
    pub(super) fn of(host: &[u8], port: &[u8]) -> io::Result<Address> {
        if host == b"unix/" {
            return Address::unix(port);
        }
        let hints = Hints { flags: libc::AI_NUMERICHOST | libc::AI_NUMERICSERV, ..Hints::default() };
        let found = places(Some(host), Some(port), &hints);
        let first = found.ok().and_then(|places| places.into_iter().next());
        first.map(|place| place.address).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
    }

    fn unix(path: &[u8]) -> io::Result<Address> {
        let mut address = Address::empty();
        let raw = (&raw mut address.storage).cast::<libc::sockaddr_un>();
        // SAFETY: the storage is large enough for every kind of address, and aligned for it.
        let raw = unsafe { &mut *raw };
        if path.len() >= raw.sun_path.len() || path.contains(&0) {
            return Err(io::Error::from_raw_os_error(libc::ENOBUFS));
        }
        raw.sun_family = libc::AF_UNIX as libc::sa_family_t;
        for (to, from) in raw.sun_path.iter_mut().zip(path) {
            *to = (*from).cast_signed();
        }
        address.length = (mem::offset_of!(libc::sockaddr_un, sun_path) + path.len() + 1) as libc::socklen_t;
        Ok(address)
    }

    pub(super) fn raw(&self) -> *const libc::sockaddr {
        (&raw const self.storage).cast()
    }

    pub(super) fn raw_mut(&mut self) -> *mut libc::sockaddr {
        (&raw mut self.storage).cast()
    }

    pub(super) fn family(&self) -> c_int {
        self.storage.ss_family.into()
    }

    /// Host and port; the port of a unix socket is its path.
    pub(super) fn parts(&self) -> (String, Result<u16, String>) {
        if self.family() == libc::AF_UNIX {
            let start = mem::offset_of!(libc::sockaddr_un, sun_path);
            let length = (self.length as usize).saturating_sub(start);
            let raw = (&raw const self.storage).cast::<u8>();
            // SAFETY: the length is within the storage, whose bytes are initialized.
            let path = unsafe { std::slice::from_raw_parts(raw.add(start), length) };
            let path = path.split(|byte| *byte == 0).next().unwrap_or_default();
            return ("unix/".to_owned(), Err(String::from_utf8_lossy(path).into_owned()));
        }
        let (mut host, mut port) = ([0; 1025], [0; 32]);
        // SAFETY: the buffers are as long as it is said; the address is one of the system.
        let failed = unsafe {
            libc::getnameinfo(
                self.raw(),
                self.length,
                host.as_mut_ptr(),
                host.len() as libc::socklen_t,
                port.as_mut_ptr(),
                port.len() as libc::socklen_t,
                libc::NI_NUMERICHOST | libc::NI_NUMERICSERV,
            )
        };
        if failed != 0 {
            return (String::new(), Ok(0));
        }
        // SAFETY: the call has ended both texts with a zero.
        let (host, port) = unsafe { (CStr::from_ptr(host.as_ptr()), CStr::from_ptr(port.as_ptr())) };
        (host.to_string_lossy().into_owned(), Ok(port.to_string_lossy().parse().unwrap_or(0)))
    }

    /// Pushes a table with `host`, `family` and `port`.
    pub(super) fn push(&self, lua: Lua) {
        lua.new_table(0, 5);
        let (host, port) = self.parts();
        lua.push_str(host);
        lua.raw_set_field(-2, "host");
        push_family(lua, self.family());
        lua.raw_set_field(-2, "family");
        match port {
            Ok(port) => lua.push_number(f64::from(port)),
            Err(path) => lua.push_str(path),
        }
        lua.raw_set_field(-2, "port");
    }
}

pub(super) fn push_family(lua: Lua, family: c_int) {
    match family {
        libc::AF_INET => lua.push_str("AF_INET"),
        libc::AF_INET6 => lua.push_str("AF_INET6"),
        libc::AF_UNIX => lua.push_str("AF_UNIX"),
        other => lua.push_number(f64::from(other)),
    }
}

/// Sets `type` and `protocol` of the table at the top.
pub(super) fn set_kind(lua: Lua, kind: c_int, protocol: c_int) {
    match kind {
        libc::SOCK_STREAM => lua.push_str("SOCK_STREAM"),
        libc::SOCK_DGRAM => lua.push_str("SOCK_DGRAM"),
        libc::SOCK_RAW => lua.push_str("SOCK_RAW"),
        libc::SOCK_SEQPACKET => lua.push_str("SOCK_SEQPACKET"),
        other => lua.push_number(f64::from(other)),
    }
    lua.raw_set_field(-2, "type");
    match protocol {
        libc::IPPROTO_TCP => lua.push_str("tcp"),
        libc::IPPROTO_UDP => lua.push_str("udp"),
        other => lua.push_number(f64::from(other)),
    }
    lua.raw_set_field(-2, "protocol");
}

/// What a lookup asks for; 0 is anything.
#[derive(Clone, Copy, Default)]
pub(super) struct Hints {
    flags: c_int,
    family: c_int,
    kind: c_int,
    protocol: c_int,
}

/// The addresses of a host and a port, by names or numbers. Blocks unless the flags ask for numbers.
pub(super) fn places(host: Option<&[u8]>, port: Option<&[u8]>, hints: &Hints) -> Found {
    let text = |bytes: Option<&[u8]>| bytes.map(CString::new).transpose().map_err(|_| libc::EAI_NONAME);
    let (host, port) = (text(host)?, text(port)?);
    let pointer = |text: &Option<CString>| text.as_ref().map_or(ptr::null(), |text| text.as_ptr());
    // SAFETY: the structure is plain numbers and pointers, for which zeros are valid.
    let mut wanted: libc::addrinfo = unsafe { mem::zeroed() };
    wanted.ai_flags = hints.flags;
    wanted.ai_family = hints.family;
    wanted.ai_socktype = hints.kind;
    wanted.ai_protocol = hints.protocol;
    let mut list = ptr::null_mut();
    // SAFETY: the texts end with zeros; the list is freed below.
    let failed =
        unsafe { libc::getaddrinfo(pointer(&host), pointer(&port), &raw const wanted, &raw mut list) };
    if failed != 0 {
        return Err(failed);
    }
    let (mut places, mut next) = (Vec::new(), list);
    // SAFETY: the system made the list, which ends with null.
    while let Some(entry) = unsafe { next.as_ref() } {
        if !entry.ai_addr.is_null() {
            // SAFETY: the entry's address is as long as the entry says.
            let address = unsafe { Address::copied(entry.ai_addr, entry.ai_addrlen) };
            let (family, kind, protocol) = (entry.ai_family, entry.ai_socktype, entry.ai_protocol);
            places.push(AddressInfo { address, family, kind, protocol });
        }
        next = entry.ai_next;
    }
    // SAFETY: the list came from `getaddrinfo` and is not used after.
    unsafe { libc::freeaddrinfo(list) };
    Ok(places)
}

/// `lookup(host, port, flags, family, type, protocol)`: a table of places at once where all is numbers; else an object and
/// a descriptor to wait for before `found(object)`.
pub(super) fn lookup(lua: Lua) -> Result<i32, Error> {
    let text = |index| (!lua.is_null(index)).then(|| text_at(lua, index));
    let (host, port) = (text(1), text(2));
    let hints = Hints {
        flags: int_at(lua, 3, "the flags")?,
        family: int_at(lua, 4, "the family")?,
        kind: int_at(lua, 5, "the type")?,
        protocol: int_at(lua, 6, "the protocol")?,
    };
    let plain = Hints { flags: hints.flags | libc::AI_NUMERICHOST | libc::AI_NUMERICSERV, ..hints };
    if let Ok(found) = places(host.as_deref(), port.as_deref(), &plain) {
        push_places(lua, &found);
        return Ok(1);
    }
    let done = match eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK) {
        Ok(done) => done,
        Err(error) => return Ok(failed(lua, &error.into())),
    };
    let (bell, found) = (done.try_clone(), Arc::new(Mutex::new(None)));
    let place = found.clone();
    let spawned = bell.and_then(|bell| {
        std::thread::Builder::new().name("lookup".to_owned()).spawn(move || {
            let result = places(host.as_deref(), port.as_deref(), &hints);
            if let Ok(mut place) = place.lock() {
                *place = Some(result);
            }
            let _ = rustix::io::write(&bell, &1u64.to_ne_bytes());
        })
    });
    if let Err(error) = spawned {
        return Ok(failed(lua, &error));
    }
    let fd = done.as_raw_fd();
    lua.push_userdata(Lookup { done, found });
    lua.push_number(f64::from(fd));
    Ok(2)
}

/// `found(object)`: the places; `nil` and 0 while the lookup goes on.
pub(super) fn found(lua: Lua) -> Result<i32, Error> {
    let Some(lookup) = lua.userdata::<Lookup>(1) else {
        return Err(Error::here("the argument is no lookup"));
    };
    let shared = lua.shared();
    let found = lookup.found.lock().ok().and_then(|mut found| found.take());
    match found {
        Some(Ok(places)) => {
            push_places(lua, &places);
            Ok(1)
        }
        Some(Err(_)) => Ok(failed(lua, &io::Error::from_raw_os_error(libc::EIO))),
        None => {
            shared.files.forget(shared, lookup.done.as_raw_fd());
            lua.push_nil();
            lua.push_number(0.0);
            Ok(2)
        }
    }
}

pub(super) fn push_places(lua: Lua, places: &[AddressInfo]) {
    lua.new_table(places.len(), 0);
    for (place, number) in places.iter().zip(1..) {
        place.address.push(lua);
        push_family(lua, place.family);
        lua.raw_set_field(-2, "family");
        set_kind(lua, place.kind, place.protocol);
        lua.raw_set_item(-2, number);
    }
}
