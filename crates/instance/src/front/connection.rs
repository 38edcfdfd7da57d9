//! Connections: the peer of each socket, its user, and its replies.

use std::collections::VecDeque;

use lycosa_iproto::greeting::SALT_SIZE;
use lycosa_store::{UserId, user};

use crate::Settings;
use crate::front::callee::Callee;
use crate::front::replica_request::ReplicaRequest;
use crate::front::replies::Replies;
use crate::front::waits_for::WaitsFor;

/// Number of a connection's slot in the table of connections. A slot is used again after its connection; the server keeps
/// the number with the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionSlot(pub(crate) u32);

impl ConnectionSlot {
    /// The position in the table, from 0, dense: for tables of the server that run beside it.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Rights that an address gives to its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Trust {
    /// Nothing: privileges decide.
    #[default]
    Nobody,
    /// The connection comes from the same machine: if [`Settings::guest_on_loopback`](crate::Settings) says so, `guest`
    /// may use the queue and create tubes.
    Loopback,
    /// The connection comes over the socket that only the operator can open: it is `admin`'s.
    Admin,
}

/// Where a connection comes from.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    /// The peer's address, for people.
    pub peer: String,
    /// The trust that its address gives it.
    pub trust: Trust,
}

/// Names that a connection calls are resolved once; beyond this many the oldest is forgotten.
const CACHED_NAMES: usize = 32;

/// A resolved function name.
#[derive(Debug)]
pub(crate) struct CachedName {
    name: Box<[u8]>,
    target: Callee,
}

/// One connection.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    /// Never reused while the process runs; what `_queue_consumers` and the like show.
    pub(crate) id: u64,
    pub(crate) origin: Origin,
    /// A member of the group that does not lead passes its requests on.
    pub(crate) is_forwarded: bool,
    /// When it was opened, µs since the epoch.
    pub(crate) since: u64,
    pub(crate) user: UserId,
    pub(crate) salt: [u8; SALT_SIZE],
    pub(crate) replies: Replies,
    /// Bytes of its replies as they stand in [`Connections::unread`].
    accounted: usize,
    /// When its reader took something, or it had nothing to take.
    took_at: u64,
    /// Bytes of a request that has not come as a whole, and when they last changed.
    incomplete: usize,
    sent_at: u64,
    /// Calls that wait for something to happen, a `take` for a task for example.
    pub(crate) waiting: usize,
    /// Calls that wait for programs, and their bytes.
    pub(crate) invoked: u64,
    pub(crate) invoked_bytes: usize,
    /// The stream of requests cannot be followed any more: close once everything is written.
    pub(crate) broken: bool,
    /// Its log-in is answered later; nothing may overtake that.
    pub(crate) is_logging_in: bool,
    /// A log-in of it was wrong.
    pub(crate) has_failed_login: bool,
    /// A replica is at the other end and gets rows: what it sends are no requests.
    pub(crate) is_replica: bool,
    pub(crate) replica_request: Option<Box<ReplicaRequest>>,
    /// The peer has sent a whole, valid request: it speaks the protocol.
    pub(crate) is_proven: bool,
    /// The version of the schema and privileges at which the user was found to have the right to ask anything.
    pub(crate) admitted: Option<u64>,
    names: Vec<CachedName>,
    names_version: u64,
    oldest_name: usize,
    is_listed_ready: bool,
    is_listed_parked: bool,
}

/// How many replies were released at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Released {
    /// Replies that may leave now.
    pub answered: u64,
    /// Replies that go on waiting for the journal.
    pub waiting: u64,
}

impl Connection {
    /// Whether the rule for `guest` on loopback applies ([`Settings::guest_on_loopback`]).
    pub(crate) fn is_trusted(&self, settings: &Settings) -> bool {
        settings.guest_on_loopback && self.user == user::GUEST && self.origin.trust == Trust::Loopback
    }

    /// Bytes of its requests that have not come as a whole or wait for programs.
    fn unserved(&self) -> usize {
        self.incomplete + self.invoked_bytes
    }

    /// What `name` stands for, if it was called before and nothing has changed in between.
    pub(crate) fn cached(&self, name: &[u8], version: u64) -> Option<Callee> {
        if self.names_version != version {
            return None;
        }
        self.names.iter().find(|cached| *cached.name == *name).map(|cached| cached.target)
    }

    /// Remembers what `name` stands for.
    pub(crate) fn cache(&mut self, name: &[u8], target: Callee, version: u64) {
        if self.names_version != version {
            self.forget_names();
            self.names_version = version;
        }
        let cached = CachedName { name: name.into(), target };
        if let Some(former) = self.names.iter_mut().find(|former| *former.name == *name) {
            *former = cached;
        } else if self.names.len() < CACHED_NAMES {
            self.names.push(cached);
        } else {
            self.names[self.oldest_name] = cached;
            self.oldest_name = (self.oldest_name + 1) % CACHED_NAMES;
        }
    }

    /// Forgets what the user may do and every name: the user has changed.
    pub(crate) fn forget_names(&mut self) {
        self.admitted = None;
        self.names.clear();
        self.oldest_name = 0;
    }
}

/// All connections, and the lists of those with something to write and of those with something to wait for.
///
/// Invariant: a slot is in a list at most once, and exactly if its connection says so (`is_listed_…`).
#[derive(Debug, Default)]
pub(crate) struct Connections {
    slots: Vec<Option<Connection>>,
    free: Vec<ConnectionSlot>,
    open: usize,
    /// The connections with something to write, the one that waits longest first.
    ready: VecDeque<ConnectionSlot>,
    parked: Vec<ConnectionSlot>,
    last_id: u64,
    /// Bytes of replies that wait to leave, as far as [`Connections::account`] knows.
    unread: usize,
    /// Bytes of requests that have not come as a whole or wait for programs.
    unserved: usize,
}

impl Connections {
    pub(crate) fn open(
        &mut self,
        origin: Origin,
        user: UserId,
        salt: [u8; SALT_SIZE],
        now: u64,
    ) -> ConnectionSlot {
        let connection =
            Connection { id: self.next_id(), origin, since: now, user, salt, ..Connection::default() };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            ConnectionSlot(u32::try_from(self.slots.len() - 1).expect("the number of connections is limited"))
        });
        self.open += 1;
        self.slots[slot.index()] = Some(connection);
        slot
    }

    pub(crate) fn close(&mut self, slot: ConnectionSlot) -> Option<Connection> {
        let connection = self.slots.get_mut(slot.index())?.take()?;
        self.open -= 1;
        self.unread -= connection.accounted;
        self.unserved -= connection.unserved();
        if connection.is_listed_parked {
            // The slot's next connection must not be listed twice.
            self.parked.retain(|&parked| parked != slot);
        }
        if connection.is_listed_ready {
            self.ready.retain(|&ready| ready != slot);
        }
        self.free.push(slot);
        Some(connection)
    }

    pub(crate) fn get(&self, slot: ConnectionSlot) -> Option<&Connection> {
        self.slots.get(slot.index())?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, slot: ConnectionSlot) -> Option<&mut Connection> {
        self.slots.get_mut(slot.index())?.as_mut()
    }

    pub(crate) fn len(&self) -> usize {
        self.open
    }

    /// The number of the next session.
    pub(crate) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// The slot of the connection of that number.
    pub(crate) fn slot_of(&self, id: u64) -> Option<ConnectionSlot> {
        let position = self.slots.iter().position(|slot| slot.as_ref().is_some_and(|one| one.id == id))?;
        Some(ConnectionSlot(u32::try_from(position).expect("slots are numbered so")))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.slots.iter().flatten()
    }

    /// Takes note of the bytes of replies that wait for a connection. They may have changed since.
    pub(crate) fn account(&mut self, slot: ConnectionSlot) {
        if let Some(connection) = self.slots.get_mut(slot.index()).and_then(Option::as_mut) {
            let pending = connection.replies.pending_bytes();
            self.unread = self.unread + pending - std::mem::replace(&mut connection.accounted, pending);
        }
    }

    /// Bytes of replies that wait to leave.
    pub(crate) fn unread(&self) -> usize {
        self.unread
    }

    /// Takes note of the bytes of a request that has not come as a whole. Returns how many there were before.
    pub(crate) fn account_input(&mut self, slot: ConnectionSlot, bytes: usize, now: u64) -> usize {
        let Some(connection) = self.slots.get_mut(slot.index()).and_then(Option::as_mut) else { return 0 };
        let before = std::mem::replace(&mut connection.incomplete, bytes);
        connection.sent_at = now;
        self.unserved = self.unserved + bytes - before;
        before
    }

    /// Bytes of requests that have not come as a whole or wait for programs.
    pub(crate) fn unserved(&self) -> usize {
        self.unserved
    }

    /// Counts a call that was parked.
    pub(crate) fn count_parked(&mut self, slot: ConnectionSlot, waits_for: WaitsFor) {
        let Some(connection) = self.slots.get_mut(slot.index()).and_then(Option::as_mut) else { return };
        match waits_for {
            WaitsFor::Event => connection.waiting += 1,
            WaitsFor::Program { bytes } => {
                connection.invoked += 1;
                connection.invoked_bytes += bytes;
                self.unserved += bytes;
            }
        }
    }

    /// Counts a parked call that was answered.
    pub(crate) fn count_answered(&mut self, slot: ConnectionSlot, waits_for: WaitsFor) {
        let Some(connection) = self.slots.get_mut(slot.index()).and_then(Option::as_mut) else { return };
        match waits_for {
            WaitsFor::Event => connection.waiting -= 1,
            WaitsFor::Program { bytes } => {
                connection.invoked -= 1;
                // A sender that is being closed has none any more.
                let bytes = bytes.min(connection.invoked_bytes);
                connection.invoked_bytes -= bytes;
                self.unserved -= bytes;
            }
        }
    }

    /// Counts no more bytes of requests of a connection that is being closed; returns how many there were.
    pub(crate) fn give_up_input(&mut self, slot: ConnectionSlot) -> usize {
        let Some(connection) = self.slots.get_mut(slot.index()).and_then(Option::as_mut) else { return 0 };
        let bytes = connection.unserved();
        (connection.incomplete, connection.invoked_bytes) = (0, 0);
        self.unserved -= bytes;
        bytes
    }

    /// The connection with the most bytes of unserved requests: among connections that sent nothing for `patience`
    /// microseconds, or among all if there is none.
    pub(crate) fn worst_sender(&self, now: u64, patience: u64) -> Option<ConnectionSlot> {
        self.worst(|connection| {
            let is_stalled = now.saturating_sub(connection.sent_at) >= patience;
            (is_stalled, connection.unserved())
        })
    }

    /// The connection with the largest value, among those whose number is not 0.
    fn worst(&self, value: impl Fn(&Connection) -> (bool, usize)) -> Option<ConnectionSlot> {
        let values = self.slots.iter().enumerate().filter_map(|(place, connection)| {
            Some((value(connection.as_ref()?), place)).filter(|((_, bytes), _)| *bytes > 0)
        });
        u32::try_from(values.max()?.1).ok().map(ConnectionSlot)
    }

    /// The reader of a connection has taken something.
    pub(crate) fn took(&mut self, slot: ConnectionSlot, now: u64) {
        if let Some(connection) = self.get_mut(slot) {
            connection.took_at = now;
        }
    }

    /// The connection with the most bytes that could leave: among those whose readers have taken nothing for `patience`
    /// microseconds, or among all if there is none.
    pub(crate) fn worst_reader(&self, now: u64, patience: u64) -> Option<ConnectionSlot> {
        self.worst(|connection| {
            let is_stalled = now.saturating_sub(connection.took_at) >= patience;
            (is_stalled, connection.replies.ready_bytes())
        })
    }

    /// Puts the connection on the list of connections with bytes to write.
    pub(crate) fn mark_ready(&mut self, slot: ConnectionSlot) {
        if let Some(connection) = self.get_mut(slot)
            && !connection.is_listed_ready
        {
            connection.is_listed_ready = true;
            self.ready.push_back(slot);
        }
    }

    /// Whether a connection is on that list.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Takes the connection off that list that waits longest.
    pub(crate) fn pop_ready(&mut self) -> Option<ConnectionSlot> {
        let slot = self.ready.pop_front()?;
        if let Some(connection) = self.get_mut(slot) {
            connection.is_listed_ready = false;
        }
        Some(slot)
    }

    /// Ends the reply that was just encoded for `slot`: it may leave once `lsn` is durable.
    #[inline]
    pub(crate) fn finish_reply(&mut self, slot: ConnectionSlot, lsn: u64, durable: u64, batch: u64) {
        let Some(connection) = self.get_mut(slot) else { return };
        if connection.replies.finish(lsn, durable, batch) {
            self.mark_ready(slot);
        } else if !std::mem::replace(&mut connection.is_listed_parked, true) {
            self.parked.push(slot);
        }
    }

    /// Everything up to `lsn` is durable: releases the replies that waited for it.
    pub(crate) fn release(&mut self, lsn: u64) -> Released {
        let mut count = Released::default();
        let mut parked = std::mem::take(&mut self.parked);
        parked.retain(|&slot| {
            let Some(connection) = self.get_mut(slot) else { return false };
            let released = connection.replies.release(lsn);
            count.answered += released;
            count.waiting += connection.replies.in_flight();
            connection.is_listed_parked = connection.replies.in_flight() > 0;
            let is_parked = connection.is_listed_parked;
            if released > 0 {
                self.mark_ready(slot);
            }
            is_parked
        });
        self.parked = parked;
        count
    }

    /// Everything behind `from` was lost: replaces the replies that wait for it, see [`Replies::lose`].
    pub(crate) fn lose(&mut self, from: u64, mut replace: impl FnMut(&[u8], &mut Vec<u8>)) {
        for &slot in &self.parked {
            if let Some(connection) = self.slots.get_mut(slot.index()).and_then(Option::as_mut) {
                connection.replies.lose(from, &mut replace);
            }
        }
    }

    /// Ends the connections that satisfy `f` once everything is written.
    pub(crate) fn break_off(&mut self, f: impl Fn(&Connection) -> bool) {
        for position in 0..self.slots.len() {
            if let Some(connection) = self.slots[position].as_mut().filter(|connection| f(connection)) {
                connection.broken = true;
                self.mark_ready(ConnectionSlot(u32::try_from(position).expect("slots are numbered so")));
            }
        }
    }

    /// Replaces every reply that waits, see [`Replies::replace_waiting`].
    pub(crate) fn replace_waiting(&mut self, mut replace: impl FnMut(&[u8], &mut Vec<u8>)) {
        for slot in std::mem::take(&mut self.parked) {
            if let Some(connection) = self.get_mut(slot) {
                connection.is_listed_parked = false;
                connection.replies.replace_waiting(&mut replace);
                self.mark_ready(slot);
            }
        }
    }
}
