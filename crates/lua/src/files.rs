//! Fibers that wait for file descriptors.
//!
//! A fiber that waits is noted here with its descriptor, which stands in one epoll set. The loop around the runtime
//! watches that set ([`Runtime::watch_files`](crate::Runtime::watch_files)) and calls [`Files::wake`] when it is
//! readable; there is no polling. Each event is reported once and armed again by the next wait, so that a descriptor without
//! a waiting fiber costs nothing.
//!
//! Invariant: code that closes a descriptor that fibers may wait for calls [`Files::forget`] before.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::api::Lua;
use crate::error::Error;
use crate::fiber::{Ticket, Wake};
use crate::runtime::Shared;

/// Reading would not block.
pub(crate) const READABLE: u8 = 1;
/// Writing would not block.
pub(crate) const WRITABLE: u8 = 2;

/// Events taken from the system at once.
const BATCH: usize = 64;

/// A fiber in a wait.
struct Waiter {
    ticket: Ticket,
    events: u8,
}

/// All waits for descriptors.
pub(crate) struct Files {
    epoll: OwnedFd,
    waiters: RefCell<HashMap<RawFd, Vec<Waiter>>>,
    /// What happened for fibers that were woken and have not run yet.
    happened: RefCell<HashMap<Ticket, u8>>,
}

impl Files {
    pub(crate) fn new() -> io::Result<Files> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Files { epoll, waiters: RefCell::default(), happened: RefCell::default() })
    }

    /// Readable when [`Files::wake`] has something to do. For a loop of tokio, in which it is made.
    pub(crate) fn watch(&self) -> io::Result<AsyncFd<OwnedFd>> {
        let epoll = self.epoll.try_clone()?;
        // SAFETY: the copy belongs to the result alone, which keeps it open and the same.
        let watched = unsafe { AsyncFd::register_with_interest(epoll, Interest::READABLE) };
        watched.map_err(io::Error::from)
    }

    pub(crate) fn waits(&self) -> bool {
        !self.waiters.borrow().is_empty()
    }

    /// Wakes the fibers whose descriptors are ready; waits for the first one at most `timeout` (without end if `None`).
    pub(crate) fn wake(&self, shared: &Shared, timeout: Option<Duration>) {
        let mut timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs().cast_signed(),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        loop {
            let mut events = [const {
                epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }
            }; BATCH];
            let count = match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
                Ok(count) => count,
                Err(Errno::INTR) => 0,
                Err(error) => {
                    tracing::error!("descriptors cannot be watched: {error}");
                    0
                }
            };
            for event in &events[..count] {
                let fd = event.data.u64() as RawFd;
                self.happen(shared, fd, event.flags);
            }
            if count < BATCH {
                return;
            }
            timeout = Some(Timespec { tv_sec: 0, tv_nsec: 0 });
        }
    }

    fn happen(&self, shared: &Shared, fd: RawFd, flags: epoll::EventFlags) {
        let mut happened = 0;
        let failed = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
        if failed || flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::RDHUP) {
            happened |= READABLE;
        }
        if failed || flags.intersects(epoll::EventFlags::OUT) {
            happened |= WRITABLE;
        }
        let (woken, left) = {
            let mut all = self.waiters.borrow_mut();
            let Some(waiters) = all.get_mut(&fd) else { return };
            let (woken, left): (Vec<Waiter>, Vec<Waiter>) =
                waiters.drain(..).partition(|waiter| waiter.events & happened != 0);
            let events = left.iter().fold(0, |events, waiter| events | waiter.events);
            if left.is_empty() {
                all.remove(&fd);
            } else {
                *waiters = left;
            }
            (woken, events)
        };
        if left != 0 {
            // The descriptor was armed a moment ago; if it was closed since, no fiber can wait for it.
            let _ = self.arm(fd, left);
        }
        for waiter in woken {
            if shared.scheduler.wake(waiter.ticket, Wake::Woken) {
                self.happened.borrow_mut().insert(waiter.ticket, waiter.events & happened);
            }
        }
    }

    /// Asks for one report of these events.
    fn arm(&self, fd: RawFd, events: u8) -> Result<(), Errno> {
        let mut flags = epoll::EventFlags::ONESHOT;
        if events & READABLE != 0 {
            flags |= epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        }
        if events & WRITABLE != 0 {
            flags |= epoll::EventFlags::OUT;
        }
        // SAFETY: the kernel checks the number; a wrong one is an error and touches no memory.
        let file = unsafe { BorrowedFd::borrow_raw(fd) };
        let data = epoll::EventData::new_u64(fd.unsigned_abs().into());
        match epoll::modify(&self.epoll, file, data, flags) {
            Err(Errno::NOENT) => epoll::add(&self.epoll, file, data, flags),
            result => result,
        }
    }

    /// The descriptor is about to be closed: fibers that wait for it go on, as if it were ready.
    pub(crate) fn forget(&self, shared: &Shared, fd: RawFd) {
        let waiters = self.waiters.borrow_mut().remove(&fd);
        for waiter in waiters.unwrap_or_default() {
            if shared.scheduler.wake(waiter.ticket, Wake::Woken) {
                self.happened.borrow_mut().insert(waiter.ticket, waiter.events);
            }
        }
        // SAFETY: as in `arm`; a descriptor that was never armed is an error that means nothing.
        let _ = epoll::delete(&self.epoll, unsafe { BorrowedFd::borrow_raw(fd) });
    }

    /// The wait of the ticket is over.
    fn leave(&self, fd: RawFd, ticket: Ticket) {
        let mut all = self.waiters.borrow_mut();
        let Some(waiters) = all.get_mut(&fd) else { return };
        waiters.retain(|waiter| waiter.ticket != ticket);
        if waiters.is_empty() {
            all.remove(&fd);
        }
    }
}

impl Lua {
    /// Suspends the running fiber until one of the events happens to the descriptor, it is woken otherwise, or the deadline
    /// passes. The events that happened; 0 if none.
    ///
    /// # Errors
    /// The descriptor is not open, the fiber cannot be suspended here, or it was cancelled.
    pub(crate) fn wait_file(self, fd: RawFd, events: u8, deadline: Option<u64>) -> Result<u8, Error> {
        let files = &self.shared().files;
        let ticket = self.ticket()?;
        let armed = {
            let mut all = files.waiters.borrow_mut();
            let waiters = all.entry(fd).or_default();
            waiters.push(Waiter { ticket, events });
            waiters.iter().fold(0, |events, waiter| events | waiter.events)
        };
        match if fd < 0 { Err(Errno::BADF) } else { files.arm(fd, armed) } {
            Ok(()) => {}
            // A file of a disk is always ready.
            Err(Errno::PERM) => {
                files.leave(fd, ticket);
                self.yield_now()?;
                return Ok(events);
            }
            Err(error) => {
                files.leave(fd, ticket);
                return Err(Error::here(format!("descriptor {fd} cannot be waited for: {error}")));
            }
        }
        let woken = self.park(deadline);
        files.leave(fd, ticket);
        let happened = files.happened.borrow_mut().remove(&ticket).unwrap_or(0);
        woken?;
        self.test_cancel()?;
        Ok(happened)
    }
}
