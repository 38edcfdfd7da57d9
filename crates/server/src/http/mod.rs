//! The HTTP door: probes, the queue as JSON and a page for people, on listeners and a thread of their own.
//!
//! ```text
//!  main thread                                              thread "http": one tokio loop
//!    task "bridge": calls of functions ◄── tokio mpsc, bounded ── task per connection: hyper, axum
//!                                      ── a oneshot for each ──►
//! ```
//!
//! A slow browser therefore costs the loop nothing: only whole requests cross the [`bridge`], each as one call of a native
//! function with a [`Caller`](lycosa_instance::Caller) whose token the instance admits. The door decides nothing about
//! rights; it refuses other web sites' requests ([`guard`]) before it reads their bodies.
//!
//! Invariants: every route stands in the table of [`routes`], of which [`openapi`] is made; no request makes the thread
//! wait for another one; connections, heads, bodies and unanswered calls have bounds in
//! [`Limits`]. Absent: HTTP/2, cookies, what a call means.

mod access;
mod body;
mod body_memory;
pub(crate) mod bridge;
mod compression;
mod etag;
mod guard;
mod json;
mod listener;
mod openapi;
mod page;
mod patience;
mod peer;
mod places;
mod problem;
mod readings;
mod routes;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::config::{Badge, Config};
use crate::starting::Progress;

pub(crate) use listener::{Bound, Door, bind};
pub(crate) use peer::Peer;

/// Bounds of the door.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// Connections at a time; further ones are closed at once.
    pub(crate) max_connections: usize,
    /// The same of one client address; 0 for no further bound.
    pub(crate) max_connections_of_address: usize,
    /// Bytes of a request's head.
    pub(crate) max_header: usize,
    /// Bytes of a request's body.
    pub(crate) max_body: usize,
    /// Bytes of the bodies of all requests.
    pub(crate) max_body_total: usize,
    /// How long a head, a body, a write that makes no progress, and the loop's answer may take.
    pub(crate) timeout: Duration,
    /// How long the answer to a put with an `Idempotency-Key` is kept.
    pub(crate) window: Duration,
    /// Host names, besides `localhost` and addresses, under which clients reach the door.
    pub(crate) hosts: Vec<String>,
    /// Tubes with labels of their own in `/metrics`.
    pub(crate) metrics_tubes: usize,
    /// Whether `/metrics` has Tarantool's names too.
    pub(crate) tarantool_metrics: bool,
    /// Whether the page shows payloads only when a person asks for them.
    pub(crate) hides_payloads: bool,
    /// What the page shows beside its name.
    pub(crate) badge: Badge,
}

/// How many of the largest bodies may be read at the same time.
const LARGEST_BODIES: usize = 4;

impl Limits {
    pub(crate) fn of(config: &Config) -> Self {
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let max_body = size(config.http_max_body.0);
        Self {
            max_connections: size(config.http_max_connections),
            max_connections_of_address: size(config.http_max_connections_per_address),
            max_header: size(config.http_max_header.0),
            max_body,
            max_body_total: max_body.saturating_mul(LARGEST_BODIES),
            timeout: config.http_timeout,
            window: config.http_idempotency_window,
            hosts: config.http_hosts.0.clone(),
            metrics_tubes: size(config.metrics_tubes),
            tarantool_metrics: config.metrics_tarantool,
            hides_payloads: config.http_hide_payloads,
            badge: config.http_badge.clone(),
        }
    }
}

/// The state that the handlers of requests share.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) bridge: bridge::Bridge,
    pub(crate) limits: Limits,
    pub(crate) bodies: body_memory::BodyMemory,
    /// Free places for connections.
    pub(crate) places: Arc<places::Places>,
    /// Answers that requests share.
    pub(crate) readings: readings::Readings,
    /// How far the start is.
    pub(crate) progress: Arc<Progress>,
    /// The settings as `/v1/settings` shows them: an array, which a reload changes.
    pub(crate) settings: Arc<Mutex<serde_json::Value>>,
}

impl State {
    /// Connections at the moment.
    pub(crate) fn connections(&self) -> u64 {
        self.places.in_use() as u64
    }
}

pub(crate) type Shared = Arc<State>;
