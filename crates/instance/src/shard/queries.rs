//! Queries of a front to its shard: the data, the journal, the role.
//!
//! Everything here looks, or notes what only the process knows. A front changes data through [`Shard::data`], where each change
//! has its admission. Absent: what happens without a request (`shard/mod.rs`).

use lycosa_iproto::vclock::Vclock;
use lycosa_queue::{Queue, Savepoint, TaskEvent};
use lycosa_replication::relay::Replicas;
use lycosa_store::Store;

use crate::shard::admission::Conditions;
use crate::shard::batch::Journaling;
use crate::shard::data::{Data, Lsn};
use crate::shard::group::Election;
use crate::shard::replication::Upstream;
use crate::shard::rules::Rules;
use crate::shard::{Identity, Lag, Shard};

impl Shard {
    /// The commit door.
    #[inline]
    pub(crate) fn data(&mut self) -> &mut Data {
        &mut self.data
    }

    forward! { data:
        /// The data, to be read. Indexes and owners may have deferred entries: see [`Data::read`].
        #[inline]
        pub(crate) fn store(&self) -> &Store;
        #[inline]
        pub(crate) fn queue(&self) -> &Queue;
        pub(crate) fn is_read_only(&self) -> bool;
        #[inline]
        pub(crate) fn in_transaction(&self) -> bool;
    }

    /// Rows for the journal, and the numbers of the durable ones.
    #[inline]
    pub(crate) fn journaling(&self) -> &Journaling {
        &self.data.journaling
    }

    /// The conditions that refuse changes or reads.
    #[inline]
    pub(crate) fn conditions(&self) -> &Conditions {
        &self.data.conditions
    }

    /// The time of this turn, in microseconds since the epoch.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.data.now
    }

    /// Sets a later time within an input.
    pub(crate) fn set_now(&mut self, now: u64) {
        self.data.now = now;
    }

    /// Microseconds since the start.
    pub(crate) fn uptime(&self) -> u64 {
        self.data.now.saturating_sub(self.started_at)
    }

    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    pub(crate) fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }

    /// Whether the configuration, or a later call, wants no writes.
    pub(crate) fn is_read_only_configured(&self) -> bool {
        self.replication.is_read_only_configured
    }

    /// Whether the instance takes no writes because too few masters are in sync.
    pub(crate) fn is_orphan(&self) -> bool {
        self.replication.is_orphan
    }

    /// A place in the open transaction.
    pub(crate) fn savepoint(&self) -> Savepoint {
        self.data.queue().savepoint(self.data.store())
    }

    /// Names that were resolved, and rights that were checked, are resolved and checked again.
    pub(crate) fn forget_resolved(&mut self) {
        self.data.journaling.bump_system_version();
    }

    /// The first client comes: no reply waits for replicas because of the rows so far.
    pub(crate) fn begin_serving(&mut self) {
        self.replication.start_until = self.data.journaling.lsn();
    }

    /// See [`Journaling::begin_read`].
    pub(crate) fn begin_read(&mut self) -> Option<Lsn> {
        self.data.journaling.begin_read()
    }

    /// The majority has confirmed the read with that number, and all before it.
    pub(crate) fn confirm_read(&mut self, lsn: Lsn) {
        self.data.journaling.confirm_read(lsn);
        self.await_replicas();
    }

    /// Nothing will confirm the rows that wait. Returns the number of the last row that was confirmed.
    pub(crate) fn void_rows(&mut self) -> Lsn {
        let kept = self.data.journaling.void();
        self.await_replicas();
        kept
    }

    pub(crate) fn replicas(&self) -> &Replicas {
        &self.replication.replicas
    }

    pub(crate) fn replicas_mut(&mut self) -> &mut Replicas {
        &mut self.replication.replicas
    }

    forward! { replication:
        /// The masters with their states, in the order of the configuration.
        pub(crate) fn set_upstreams(&mut self, upstreams: Vec<Upstream>);
        pub(crate) fn upstreams(&self) -> &[Upstream];
        pub(crate) fn upstream_mut(&mut self, place: usize) -> Option<&mut Upstream>;
    }

    /// Of a member of a group: the last state from its host.
    pub(crate) fn election(&self) -> Option<&Election> {
        self.election.as_ref()
    }

    pub(crate) fn set_election(&mut self, election: Election) {
        self.election = Some(election);
    }

    /// The clock at which the oldest journal file begins that is kept; of before all rows if no file is known.
    pub(crate) fn oldest_vclock(&self) -> Vclock {
        self.checkpoints.oldest_vclock().cloned().unwrap_or_default()
    }

    /// How late deadlines fired.
    pub(crate) fn lag(&self) -> Lag {
        self.lag
    }

    /// See [`Instance::set_queue_step`](crate::Instance::set_queue_step).
    pub(crate) fn set_queue_step(&mut self, step: usize) {
        self.queue_step = step;
    }

    forward! { data.vault:
        /// See [`Queue::observe`].
        pub(crate) fn observe(&mut self, tube: &str, observed: bool) -> bool;
        /// The next change of a task of an observed tube.
        pub(crate) fn poll_event(&mut self) -> Option<TaskEvent>;
    }
}
