//! The queue's own state, and its configuration.
//!
//! ```text
//! INIT ──start──▶ STARTUP ──▶ RUNNING ──read-only──▶ ENDING ──▶ WAITING
//!                    ▲                                             │
//!                    └──────────────────writable───────────────────┘
//! ```
//!
//! Only a running queue changes anything. In the other states, but for INIT, methods answer null or nothing and a line
//! goes to the log; calls that wait go on waiting, until their time is over or [`Queue::refuse_waiting`] ends them.
//! Connections keep their sessions throughout.
//!
//! Absent: the pause of twice the replication lag in STARTUP, which is the instance's to make ([`Queue::begin_startup`]).
//!
//! [`Queue::refuse_waiting`]: crate::Queue::refuse_waiting
//! [`Queue::begin_startup`]: crate::Queue::begin_startup

mod change;

use std::fmt;

use crate::time::Seconds;

named! {
    /// Where the queue is in its life.
#[derive(Default)]
pub enum QueueState {
#[default]
        /// Not started yet.
Init = "INIT",
        /// Coming up, again or for the first time.
        Startup = "STARTUP",
        /// At work.
        Running = "RUNNING",
        /// The instance became read-only; tubes are being stopped.
        Ending = "ENDING",
        /// The instance is read-only.
        Waiting = "WAITING",
    }
}

impl fmt::Display for QueueState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The options of `queue.cfg`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Configuration {
    /// How long a session outlives its last connection. None or zero: not at all.
    pub ttr: Option<Seconds>,
    /// Whether sessions and owners are durable, so that they survive a change of the master. No tube may be
    /// temporary then.
    pub in_replicaset: bool,
}
