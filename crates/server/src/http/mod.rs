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
//! the configuration. Absent: HTTP/2, cookies, what a call means.

mod access;
mod body;
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

use tokio::sync::Semaphore;

use crate::config::Config;
use crate::starting::Progress;

pub(crate) use listener::{Bound, Door, bind};
pub(crate) use peer::Peer;

/// How many of the largest bodies may be read at the same time.
const LARGEST_BODIES: usize = 4;

/// The state that the handlers of requests share.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) bridge: bridge::Bridge,
    pub(crate) config: Config,
    /// Bytes that the bodies of all requests may still take.
    pub(crate) bodies: Arc<Semaphore>,
    /// Free places for connections.
    pub(crate) places: Arc<places::Places>,
    /// Answers that requests share.
    pub(crate) readings: readings::Readings,
    /// How far the start is.
    pub(crate) progress: Arc<Progress>,
    /// The settings as `/v1/settings` shows them: an array, which a reload changes.
    pub(crate) settings: Arc<Mutex<serde_json::Value>>,
}

pub(crate) type Shared = Arc<State>;
