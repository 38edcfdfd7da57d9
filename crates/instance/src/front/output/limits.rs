//! Limits of unread replies: which connections pause, and which ones are closed.

use super::{Excess, PATIENCE, allowance};
use crate::front::Front;
use crate::front::replies::Replies;
use crate::{ConnectionSlot, Instance};

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
