//! Replication with sockets, files and threads around the machines of `lycosa-replication`.
//!
//! As master: a connection that asks for replication becomes a [`Replica`], served by its own task. Rows that it has missed are
//! read from files by a thread of its own with a bounded channel to the task. New rows come from the [`Hub`]'s window.
//! The window is filled when a batch becomes durable, and exists only while a replica is subscribed.
//!
//! As replica: one task for each master ([`applier`]); a new instance gets its data by [`bootstrap`] before it serves.
//!
//! Invariants: no file is read on the loop's thread; a replica that does not read is waited for by its task alone,
//! and for no longer than four heartbeat periods; only durable rows are sent.

pub(crate) mod applier;
mod appliers;
pub(crate) mod bootstrap;
pub(crate) mod fence;
mod files;
pub(crate) mod options;
pub(crate) mod rejoin;
mod replica;

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use lycosa_instance::Instance;
use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::vclock::Vclock;
use lycosa_journal::directory::Directory;
use lycosa_replication::relay::Window;
use lycosa_replication::sync::{Sync, SyncRule};
use lycosa_tls::rustls::ClientConfig;
use tokio::sync::Notify;

use crate::checkpoint_thread::Holds;
use crate::clock::micros;
use crate::config::Config;
use crate::storage;

use self::appliers::Appliers;
pub(crate) use self::replica::Replica;

/// What helps where a master refuses the user in `replication`; nothing if it refuses something else.
fn advice(refusal: &ErrorObject) -> &'static str {
    if refusal.code != u32::from(ErrorCode::AccessDenied) {
        return "";
    }
    ". The user in `replication` needs the role `replication`: on the master, `lycosa user grant USER --role replication`, or in \
     the console of a Tarantool box.schema.user.grant('USER', 'replication')"
}

/// The state that all tasks of replication share.
pub(crate) struct Hub {
    pub(crate) directory: Directory,
    holds: Holds,
    /// The configuration in force.
    pub(crate) config: RefCell<Config>,
    /// How masters at `tls://` addresses are spoken to.
    pub(crate) tls: RefCell<Option<Arc<ClientConfig>>>,
    pub(crate) sync: RefCell<Sync>,
    /// Exists while a replica is subscribed.
    window: RefCell<Option<Window>>,
    relays: Cell<usize>,
    /// A batch has become durable.
    pub(crate) changed: Notify,
    pub(crate) appliers: RefCell<Appliers>,
    /// This instance has to join again, and may.
    pub(crate) too_far_behind: Notify,
}

impl Hub {
    pub(crate) fn new(directory: Directory, holds: Holds, config: &Config, masters: usize) -> Self {
        Self {
            directory,
            holds,
            config: RefCell::new(config.clone()),
            tls: RefCell::default(),
            sync: RefCell::new(Sync::new(masters)),
            window: RefCell::default(),
            relays: Cell::default(),
            changed: Notify::new(),
            appliers: RefCell::default(),
            too_far_behind: Notify::new(),
        }
    }

    /// Tells who removes files which journals the replicas still read.
    pub(crate) fn hold_journals(&self, instance: &Instance) {
        let positions = instance.replicas().needs().map(|(replica, place)| (replica, place.cloned()));
        let mut readers = self.holds.readers();
        readers.limit = self.config.borrow().replication_journal_limit.0;
        readers.positions = positions.collect();
    }

    /// A batch with these rows is durable, up to `vclock`.
    pub(crate) fn durable(&self, rows: &[u8], vclock: &Vclock) {
        let mut window = self.window.borrow_mut();
        if let Some(window) = &mut *window
            && !rows.is_empty()
            && let Err(error) = window.push(rows, vclock)
        {
            // Rows that were encoded here are rows; a relay that finds none of them reads the files.
            tracing::error!("replicas are served from files: {error}");
            window.restart(vclock.clone());
        }
        drop(window);
        self.changed.notify_waiters();
    }

    /// A replica subscribes; `durable` is the present durable vclock.
    fn subscribe(&self, durable: &Vclock) -> Subscribed<'_> {
        self.relays.set(self.relays.get() + 1);
        let limit = self.config.borrow().replication_window.bytes();
        self.window.borrow_mut().get_or_insert_with(|| Window::new(durable.clone(), limit));
        Subscribed(self)
    }

    /// Looks into the window.
    fn with_window<T>(&self, look: impl FnOnce(&Window) -> T) -> Option<T> {
        self.window.borrow().as_ref().map(look)
    }

    /// How long a silent peer is waited for.
    fn disconnect_timeout(&self) -> Duration {
        Duration::from_micros(lycosa_replication::disconnect_timeout(self.timeout()))
    }

    /// Period of heartbeats, in microseconds.
    pub(crate) fn timeout(&self) -> u64 {
        micros(self.config.borrow().replication_timeout).max(1000)
    }

    /// Whether the instance may join again when the masters' journals do not reach back.
    fn may_rejoin(&self) -> bool {
        let config = self.config.borrow();
        config.replication_rejoin && !storage::begins_replica_set(&config)
    }

    /// How a master is judged to be in sync, where `quorum` masters are needed.
    fn sync_rule(&self, quorum: usize) -> SyncRule {
        SyncRule { quorum, sync_lag: micros(self.config.borrow().replication_sync_lag) }
    }
}

/// Keeps the window as long as a replica is subscribed.
struct Subscribed<'a>(&'a Hub);

impl Drop for Subscribed<'_> {
    fn drop(&mut self) {
        let Hub { relays, window, .. } = self.0;
        relays.set(relays.get() - 1);
        if relays.get() == 0 {
            *window.borrow_mut() = None;
        }
    }
}
