//! One way between two servers: a connection at a time, whose messages stay in order.

use std::collections::VecDeque;

use lycosa_group::link::{ConnectionNumber, Hello};

/// Something on a link.
#[derive(Debug, Clone)]
pub(super) enum Parcel {
    /// A connection begins.
    Hello(Hello),
    /// A message; with a snapshot's content before it, where it announces one.
    Message { bytes: Vec<u8>, content: Option<Vec<u64>> },
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Link {
    /// The connection that the sender has, if any.
    pub(super) open: Option<ConnectionNumber>,
    queue: VecDeque<(u64, ConnectionNumber, Parcel)>,
    /// Parcels of connections that the sender has given up and the network has not.
    lingering: VecDeque<(u64, ConnectionNumber, Parcel)>,
    /// No connection comes about.
    pub(super) is_blocked: bool,
    /// The network swallows everything, and neither end hears of it.
    pub(super) is_swallowing: bool,
}

impl Link {
    /// Sends something over the present connection. It arrives at `due`, or behind everything sent before it.
    pub(super) fn send(&mut self, due: u64, parcel: Parcel) {
        let Some(connection) = self.open else { return };
        if !self.is_swallowing {
            let due = self.queue.back().map_or(due, |(before, ..)| due.max(*before));
            self.queue.push_back((due, connection, parcel));
        }
    }

    /// Ends the connection. Returns how many snapshots were on it. With `lingers`, its parcels still arrive, by `due`.
    pub(super) fn close(&mut self, lingers: bool, delay: u64) -> u64 {
        self.open = None;
        let is_snapshot = |(_, _, parcel): &&(u64, ConnectionNumber, Parcel)| {
            matches!(parcel, Parcel::Message { content: Some(_), .. })
        };
        let snapshots = self.queue.iter().filter(is_snapshot).count() as u64;
        if lingers {
            self.lingering.extend(
                self.queue.drain(..).map(|(due, connection, parcel)| (due + delay, connection, parcel)),
            );
        }
        self.queue.clear();
        snapshots
    }

    /// Whether a snapshot is on it.
    #[cfg(test)]
    pub(super) fn brings_snapshot(&self) -> bool {
        self.queue.iter().any(|(_, _, parcel)| matches!(parcel, Parcel::Message { content: Some(_), .. }))
    }

    /// Everything vanishes, as when the receiver's machine dies.
    pub(super) fn vanish(&mut self) {
        self.queue.clear();
        self.lingering.clear();
    }

    pub(super) fn next_due(&self) -> Option<u64> {
        let fronts = [self.queue.front(), self.lingering.front()];
        fronts.into_iter().flatten().map(|(due, ..)| *due).min()
    }

    /// The next parcel that arrives by `now`, with its connection.
    pub(super) fn receive(&mut self, now: u64) -> Option<(ConnectionNumber, Parcel)> {
        for queue in [&mut self.lingering, &mut self.queue] {
            if queue.front().is_some_and(|(due, ..)| *due <= now) {
                return queue.pop_front().map(|(_, connection, parcel)| (connection, parcel));
            }
        }
        None
    }
}
