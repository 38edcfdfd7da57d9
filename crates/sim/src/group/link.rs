//! One way between two servers: a connection at a time, whose messages stay in order.

use std::collections::VecDeque;

use lycosa_group::link::{ConnectionNumber, Hello};

/// Something on a link. `C` is the content of a snapshot.
#[derive(Debug, Clone)]
pub(crate) enum Parcel<C> {
    /// A connection begins.
    Hello(Hello),
    /// A message; with a snapshot's content before it, where it announces one.
    Message { bytes: Vec<u8>, content: Option<C> },
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Link<C> {
    /// The connection that the sender has, if any.
    pub(crate) open: Option<ConnectionNumber>,
    queue: VecDeque<(u64, ConnectionNumber, Parcel<C>)>,
    /// Parcels of connections that the sender has given up and the network has not.
    lingering: VecDeque<(u64, ConnectionNumber, Parcel<C>)>,
    /// No connection comes about.
    pub(crate) is_blocked: bool,
    /// The network swallows everything, and neither end hears of it.
    pub(crate) is_swallowing: bool,
}

impl<C> Default for Link<C> {
    fn default() -> Self {
        Self {
            open: None,
            queue: VecDeque::new(),
            lingering: VecDeque::new(),
            is_blocked: false,
            is_swallowing: false,
        }
    }
}

impl<C> Link<C> {
    /// Sends something over the present connection. It arrives at `due`, or behind everything sent before it.
    pub(crate) fn send(&mut self, due: u64, parcel: Parcel<C>) {
        let Some(connection) = self.open else { return };
        if !self.is_swallowing {
            let due = self.queue.back().map_or(due, |(before, ..)| due.max(*before));
            self.queue.push_back((due, connection, parcel));
        }
    }

    /// Ends the connection. Returns how many snapshots were on it. With `lingers`, its parcels still arrive, by `due`.
    pub(crate) fn close(&mut self, lingers: bool, delay: u64) -> u64 {
        self.open = None;
        let is_snapshot = |(_, _, parcel): &&(u64, ConnectionNumber, Parcel<C>)| {
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
    pub(crate) fn brings_snapshot(&self) -> bool {
        self.queue.iter().any(|(_, _, parcel)| matches!(parcel, Parcel::Message { content: Some(_), .. }))
    }

    /// Everything vanishes, as when the receiver's machine dies.
    pub(crate) fn vanish(&mut self) {
        self.queue.clear();
        self.lingering.clear();
    }

    pub(crate) fn next_due(&self) -> Option<u64> {
        let fronts = [self.queue.front(), self.lingering.front()];
        fronts.into_iter().flatten().map(|(due, ..)| *due).min()
    }

    /// The next parcel that arrives by `now`, with its connection.
    pub(crate) fn receive(&mut self, now: u64) -> Option<(ConnectionNumber, Parcel<C>)> {
        for queue in [&mut self.lingering, &mut self.queue] {
            if queue.front().is_some_and(|(due, ..)| *due <= now) {
                return queue.pop_front().map(|(_, connection, parcel)| (connection, parcel));
            }
        }
        None
    }
}
