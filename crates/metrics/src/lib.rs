//! The status of a server as text for Prometheus and Graphite, and in numbers for autoscalers.
//!
//! Plain data go in: the pages that `queue.status` answers ([`Snapshot::add_page`]), and what the host knows about its process
//! ([`Process`]). Text comes out. The server's HTTP door, its Graphite sender and the command line share this crate, so all
//! of them say the same.
//!
//! Invariants: a metric is written only if its value is known; a counter only grows within one life of the server; the
//! number of tubes with labels of their own is bounded, and the sum over all labels is that over all tubes.
//! Absent: sockets, timers, the instance.

mod autoscaler;
mod exposition;
mod graphite;
mod prometheus;
mod snapshot;
mod tarantool;

pub use lycosa_queue::status::spell;

pub use autoscaler::{Autoscaler, Target};
pub use graphite::lines as graphite_lines;
pub use prometheus::{DEFAULT_TUBES, OTHERS, Scope, write as write_prometheus};
pub use snapshot::{
    Checkpoint, DiskShort, Downstream, Election, Forwarded, Gravity, GroupMember, Histogram, History,
    Instance, Issue, Malformed, Operations, Peer, Point, Process, Queue, Rates, Redeliveries, Snapshot,
    SubQueue, Tasks, Tube, Upstream,
};
pub use tarantool::write as write_tarantool;

/// The media type of [`write_prometheus`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
