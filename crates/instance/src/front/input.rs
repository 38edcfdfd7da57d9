//! Bounds the bytes of incomplete requests, of all connections together.
//!
//! A request is handled once all of it has arrived; until then its bytes wait in memory. `max_frame_size` bounds one
//! connection's bytes, and `max_input_total` the sum: many connections, each with a part of a large request, do not take
//! all memory. Beyond the sum the instance closes the worst sender, and the next one, until the sum fits. The worst
//! sender has the most such bytes among the connections that sent nothing for a second; without such connections, among all. A
//! client that sends its request in one go is therefore safe from clients that hold theirs back.
//!
//! The bound is never below four of the largest requests: less would close clients that do nothing wrong.
//!
//! Invariant: the sum counts allocated bytes, and is exact after each read of a socket. Absent: bytes in the kernel.

use crate::{ConnectionSlot, Excess, Instance, Settings};

/// Microseconds of silence after which a sender is closed before one that goes on.
const PATIENCE: u64 = 1_000_000;

/// Requests of the greatest length that always fit.
const LARGEST: usize = 4;

impl Settings {
    /// Bytes of incomplete requests that all connections may have.
    pub(crate) fn input_limit(&self) -> usize {
        self.max_input_total.max(self.max_frame_size.saturating_mul(LARGEST))
    }
}

impl Instance {
    /// Takes note of the bytes that a connection holds of a request that has not come as a whole: to be called when they
    /// have changed. `now`: µs since the epoch.
    pub fn account_input(&mut self, slot: ConnectionSlot, bytes: usize, now: u64) {
        self.front.connections.account_input(slot, bytes, now);
    }

    /// If incomplete requests take more than they may, ends the connection of the worst sender. The caller closes its
    /// socket and drops what it holds. `now`: µs since the epoch.
    pub fn poll_input_excess(&mut self, now: u64) -> Option<Excess> {
        if self.front.connections.incomplete() <= self.front.settings.input_limit() {
            return None;
        }
        let slot = self.front.connections.worst_sender(now, PATIENCE)?;
        let connection = self.front.connections.get_mut(slot)?;
        let peer = connection.origin.peer.clone();
        connection.broken = true;
        let bytes = self.front.connections.account_input(slot, 0, now);
        self.front.counts.closed_for_input += 1;
        Some(Excess { slot, peer, bytes, is_dismissed: false })
    }
}
