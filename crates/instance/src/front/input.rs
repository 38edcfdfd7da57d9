//! Bounds the bytes of unserved requests, of all connections together.
//!
//! A request is handled once all of it has arrived; until then its bytes wait in memory. A request for a program, an SQL statement
//! too, keeps its bytes until the program has ended. `max_frame_size` bounds the bytes of one request, and `max_input_total` the
//! sum: many connections, each with a part of a large request, do not take all memory.
//!
//! One connection's requests for programs may take a quarter ([`SHARE`]) of the rest of the sum; beyond that the connection is not
//! read, which slows its client down. Beyond the sum the instance closes the worst sender, and the next one, until the sum fits.
//! The worst sender has the most such bytes among the connections that sent nothing for a second; without such connections, among
//! all. A client that sends its request in one go is therefore safe from clients that hold theirs back.
//!
//! The bound is never below four of the largest requests: less would close clients that do nothing wrong.
//!
//! Invariant: the sum counts allocated bytes, and is exact after each read of a socket. Absent: bytes in the kernel, and what
//! closed connections leave in the line, which has a bound of its own (`invoke/line.rs`).

use crate::front::Front;
use crate::{ConnectionSlot, Excess, Instance, Settings};

/// Microseconds of silence after which a sender is closed before one that goes on.
const PATIENCE: u64 = 1_000_000;

/// Requests of the greatest length that always fit.
const LARGEST: usize = 4;

/// The requests of one connection for programs may have this part of the sum's unused rest.
const SHARE: usize = 4;

impl Settings {
    /// Bytes of unserved requests that all connections may have.
    pub(crate) fn input_limit(&self) -> usize {
        self.max_input_total.max(self.max_frame_size.saturating_mul(LARGEST))
    }
}

impl Front {
    /// Bytes of requests for programs beyond which a connection is not read.
    pub(crate) fn input_allowance(&self) -> usize {
        self.settings.input_limit().saturating_sub(self.connections.unserved()) / SHARE
    }
}

impl Instance {
    /// Takes note of the bytes that a connection holds of a request that has not come as a whole: to be called when they
    /// have changed. `now`: µs since the epoch.
    pub fn account_input(&mut self, slot: ConnectionSlot, bytes: usize, now: u64) {
        self.front.connections.account_input(slot, bytes, now);
    }

    /// Whether unserved requests take more than they may.
    #[inline]
    pub fn exceeds_input(&self) -> bool {
        self.front.connections.unserved() > self.front.settings.input_limit()
    }

    /// If unserved requests take more than they may, ends the connection of the worst sender. The caller closes its
    /// socket and drops what it holds. `now`: µs since the epoch.
    pub fn poll_input_excess(&mut self, now: u64) -> Option<Excess> {
        if !self.exceeds_input() {
            return None;
        }
        let slot = self.front.connections.worst_sender(now, PATIENCE)?;
        let connection = self.front.connections.get_mut(slot)?;
        let peer = connection.origin.peer.clone();
        connection.broken = true;
        let bytes = self.front.connections.give_up_input(slot);
        self.front.counts.closed_for_input += 1;
        Some(Excess { slot, peer, bytes, is_dismissed: false })
    }
}
