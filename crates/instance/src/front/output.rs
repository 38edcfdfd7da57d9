//! Bounds the bytes of replies that wait for readers, of all connections together.
//!
//! A client that sends requests and does not read makes replies wait. Two bounds hold them. One connection may have
//! `max_output` bytes, and all together `max_output_total`. The allowance of one connection shrinks with the rest of the
//! sum: it is at most a quarter of it ([`SHARE`]). So fifty connections that do not read share the sum, and never hold up a
//! connection that reads and has nothing waiting. Beyond its allowance a connection is not read, which slows its client
//! down.
//!
//! Replies to calls that waited come without a request, so that not reading does not stop them. If they take the sum over
//! its bound, the connection with the most unread bytes is closed, and the next one, until the sum fits.
//!
//! Invariant: the sum is exact after each read of a socket, each write, and each reply to a call that waited. Absent: rows
//! for replicas, which have a window of their own, and bytes in the kernel.

use std::collections::VecDeque;

use crate::front::Front;
use crate::front::replies::Replies;
use crate::{ConnectionSlot, Instance, Settings};

/// One connection may have this part of the sum's unused rest.
const SHARE: usize = 4;

/// Microseconds without a read after which a reader is closed before one that reads.
const PATIENCE: u64 = 1_000_000;

/// The present values of the bounds.
#[derive(Debug)]
pub(crate) struct Output {
    allowance: usize,
    closed: u64,
    /// Connections that an administrator has ended, and the host has not closed yet.
    dismissed: VecDeque<Excess>,
}

impl Output {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self { allowance: allowance(settings, 0), closed: 0, dismissed: VecDeque::new() }
    }

    /// Bytes of replies beyond which a connection is not read.
    #[inline]
    pub(crate) fn allowance(&self) -> usize {
        self.allowance
    }

    /// Connections that were closed because their clients did not read replies.
    pub(crate) fn closed(&self) -> u64 {
        self.closed
    }
}

fn allowance(settings: &Settings, unread: usize) -> usize {
    settings.max_output.min(settings.max_output_total.saturating_sub(unread) / SHARE)
}

/// A connection that is to be closed at once: its replies were not fetched, or an administrator says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excess {
    /// Where it was.
    pub slot: ConnectionSlot,
    /// The peer's name, for people.
    pub peer: String,
    /// Bytes of its replies, which are dropped.
    pub bytes: usize,
    /// An administrator has ended it.
    pub is_dismissed: bool,
}

impl Instance {
    /// Takes note of the bytes of replies that wait for a connection: to be called after a read of its socket was handled.
    #[inline]
    pub fn account_output(&mut self, slot: ConnectionSlot) {
        self.front.account_output(slot);
    }

    /// A connection that an administrator has ended. Else, if more bytes wait for readers than may, drops the replies of the worst
    /// reader and ends its connection.
    pub fn poll_excess(&mut self) -> Option<Excess> {
        if let Some(dismissed) = self.front.output.dismissed.pop_front() {
            return Some(dismissed);
        }
        if self.front.connections.unread() <= self.front.settings.max_output_total {
            return None;
        }
        let slot = self.front.connections.worst_reader(self.shard.now(), PATIENCE)?;
        let connection = self.front.connections.get_mut(slot)?;
        let bytes = connection.replies.pending_bytes();
        let peer = connection.origin.peer.clone();
        connection.replies = Replies::default();
        connection.broken = true;
        self.front.output.closed += 1;
        self.front.account_output(slot);
        Some(Excess { slot, peer, bytes, is_dismissed: false })
    }
}

impl Front {
    /// Takes note of the bytes of replies that wait for a connection: to be called after a read of its socket was handled.
    #[inline]
    pub(crate) fn account_output(&mut self, slot: ConnectionSlot) {
        self.connections.account(slot);
        self.update_allowance();
    }

    #[inline]
    pub(crate) fn update_allowance(&mut self) {
        self.output.allowance = allowance(&self.settings, self.unread_output());
    }

    /// Bytes of replies that wait to leave, and of replies that are being assembled.
    #[inline]
    pub(crate) fn unread_output(&self) -> usize {
        let assembled = if self.selects.is_empty() { 0 } else { self.selects.bytes() };
        self.connections.unread() + assembled
    }

    /// Ends a client's connection and drops its replies. False: there is no connection of this number.
    pub(crate) fn dismiss(&mut self, id: u64) -> bool {
        let Some(slot) = self.connections.slot_of(id) else { return false };
        let Some(connection) = self.connections.get_mut(slot) else { return false };
        let (bytes, peer) = (connection.replies.pending_bytes(), connection.origin.peer.clone());
        connection.replies = Replies::default();
        connection.broken = true;
        self.account_output(slot);
        self.output.dismissed.push_back(Excess { slot, peer, bytes, is_dismissed: true });
        true
    }

    /// The connection has closed before the host came to it.
    pub(crate) fn forget_dismissed(&mut self, slot: ConnectionSlot) {
        self.output.dismissed.retain(|dismissed| dismissed.slot != slot);
    }
}
