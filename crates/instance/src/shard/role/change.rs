//! Changes of a shard's role: it takes writes or none, its queue follows, and waiting calls are refused after a while.

use super::QUEUE_RETRY;
use crate::shard::Shard;
use crate::shard::admission::Admitted;
use lycosa_replication::sync::UpstreamState;

/// How long calls go on waiting on an instance that has become read-only, in microseconds: a change of the role that is
/// taken back at once costs no client anything.
const WAITING_GRACE: u64 = 1_000_000;

/// The longest that the queue waits for rows of the old master before it starts, in microseconds.
const MAX_STARTUP: u64 = 20_000_000;

impl Shard {
    /// Refuses changes from now on, or takes them again.
    pub(crate) fn set_read_only(&mut self, read_only: bool, now: u64) {
        self.replication.is_read_only_configured = read_only;
        self.roles.promotes(!read_only);
        self.update_read_only(now);
    }

    /// The instance is an orphan, or not any more: an orphan takes no writes.
    pub(crate) fn set_orphan(&mut self, is_orphan: bool, now: u64) {
        self.replication.is_orphan = is_orphan;
        self.update_read_only(now);
    }

    /// The instance is read-only if it was told to be, as an orphan, as long as it has no number in its replica set, and after
    /// another one was promoted.
    pub(crate) fn update_read_only(&mut self, now: u64) {
        let read_only = self.decide_read_only();
        if self.data.is_read_only() != read_only {
            self.data.conditions.set(|facts| facts.is_read_only = read_only);
            self.data.now = now;
            self.replication.own_until = self.data.journaling.lsn();
            self.begin_epoch();
            self.follow_role();
        }
    }

    /// Handles expired deadlines of the role, and replicas. Returns the next deadline, µs since the epoch.
    pub(crate) fn step_role(&mut self) -> Option<u64> {
        let now = self.data.now;
        self.sync_with_cluster();
        self.release_replicated();
        if self.role.queue_retry.is_some_and(|at| at <= now) {
            self.follow_role();
        }
        if self.role.waiting_ends.is_some_and(|at| at <= now) {
            self.role.waiting_ends = None;
            let Admitted { queue, store, .. } = &mut self.data.bookkeep();
            queue.refuse_waiting(store, now);
        }
        self.role.next()
    }

    /// Tells the queue that `read_only` has changed, now or as soon as the rows of the masters are applied.
    fn follow_role(&mut self) {
        let (now, read_only) = (self.data.now, self.data.is_read_only());
        if self.data.conditions.facts().is_rebuilding {
            // The end of the rebuild tells it.
            self.role.queue_retry = Some(now);
            return;
        }
        self.role.waiting_ends = read_only.then(|| now.saturating_add(WAITING_GRACE));
        // Twice the greatest lag since the masters were heard last: what they have sent is applied then.
        let masters = self.replication.upstreams().iter();
        let masters = masters.filter(|upstream| upstream.state == UpstreamState::Following);
        let caught_up_at = masters.map(|master| master.heard_at.saturating_add(master.lag.saturating_mul(2)));
        let awaits_demand = self.awaits_demand();
        let start_at = caught_up_at.max().unwrap_or(0).min(now.saturating_add(MAX_STARTUP));
        let Admitted { queue, store, .. } = &mut self.data.bookkeep();
        if !read_only && start_at > now && queue.state() == lycosa_queue::QueueState::Waiting {
            queue.begin_startup();
            self.role.queue_retry = Some(start_at);
            return;
        }
        let has_started = queue.state() != lycosa_queue::QueueState::Init;
        let applied = if has_started || read_only || awaits_demand || !self.rules.native_queue {
            queue.set_read_only(store, read_only, now)
        } else {
            queue.start(store, now).map(drop)
        };
        self.role.queue_retry = applied.is_err().then(|| now + QUEUE_RETRY);
    }
}
