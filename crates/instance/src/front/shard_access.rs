//! Access of embedding programs to the shard behind an instance: its role, its replicas, its checkpoints.

use lycosa_iproto::vclock::Vclock;
use lycosa_replication::relay::Replicas;
use lycosa_store::Budget;
use uuid::Uuid;

use crate::shard::checkpoint::disk::Files;
use crate::shard::checkpoint::order::{CheckpointOrder, Chunk, Written};
use crate::shard::checkpoint::status::CheckpointStatus;
use crate::shard::expiration_tasks::DeclaredExpiration;
use crate::shard::replication::Upstream;
use crate::{Identity, Instance, Result};

impl Instance {
    /// Gives a replica a number in `_cluster`, the smallest that is free, or tells the one that it has.
    ///
    /// # Errors
    /// All numbers are taken; the instance is read-only, its data folder was moved, its disk is short of free space, or the
    /// journal has failed.
    pub fn register_replica(&mut self, replica: Uuid, now: u64) -> Result<u32> {
        self.input(now, |instance| instance.shard.register_replica(replica))
    }

    /// The clock of the rows on this instance's disk.
    pub fn durable_vclock(&self) -> &Vclock {
        self.shard.journaling().durable_vclock()
    }

    /// The clock after the batch that ended with `lsn`, before [`Self::handle_durable`] was told of it.
    pub fn batch_vclock(&self, lsn: u64) -> Option<&Vclock> {
        self.shard.journaling().taken_vclock(lsn)
    }

    forward! { shard:
        /// Rows of this instance's log that a replica with that clock does not have on its disk.
        pub fn rows_behind(&self, acknowledged: &Vclock) -> u64;
        /// The replicas that are known.
        pub fn replicas(&self) -> &Replicas;
        /// The same, for reports about their connections.
        pub fn replicas_mut(&mut self) -> &mut Replicas;
        /// The identity of this instance.
        pub fn identity(&self) -> Identity;
        /// The rows of `_cluster`: number and instance.
        pub fn cluster(&self) -> Vec<(u32, Uuid)>;
        /// The writer of the snapshot waits for rows; `buffer` is for them.
        pub fn handle_checkpoint_wants(&mut self, number: u64, buffer: Chunk);
    }

    /// Whether the journal is so far behind that nothing more should be applied for the moment.
    pub fn is_behind(&self) -> bool {
        self.shard.is_journal_behind()
    }

    forward! { shard:
        /// The masters with their states, in the order of the configuration.
        pub fn set_upstreams(&mut self, upstreams: Vec<Upstream>);
        /// The masters.
        pub fn upstreams(&self) -> &[Upstream];
        /// One of the masters, for a report about it.
        pub fn upstream_mut(&mut self, place: usize) -> Option<&mut Upstream>;
        /// Whether the instance takes no writes because too few masters are in sync.
        pub fn is_orphan(&self) -> bool;
        /// Whether the configuration, or a later call of [`Self::set_read_only`], wants no writes.
        pub fn is_read_only_configured(&self) -> bool;
    }

    /// The instance is an orphan, or not any more: an orphan takes no writes.
    pub fn set_orphan(&mut self, is_orphan: bool, now: u64) {
        self.settle(|instance| instance.shard.set_orphan(is_orphan, now));
    }

    /// Begins the expiration tasks that the configuration declares, or changes running ones to what it declares now. A
    /// task whose space does not exist yet begins when the space does.
    ///
    /// # Errors
    /// The first declaration that cannot be carried out, with the task's name. What came before it is done.
    pub fn declare_expirations(&mut self, declared: &[DeclaredExpiration], now: u64) -> Result<Vec<String>> {
        self.input(now, |instance| instance.shard.declare_expirations(declared, &instance.loop_time.clocks))
    }

    forward! { shard:
        /// Tells which snapshot the instance was started from (its signature), and what files there are.
        pub fn set_checkpoint_base(&mut self, signature: u64, files: Files);
        /// Sets how many tasks, calls and sessions one step of the queue handles before it serves waiting calls; the default is 64.
        /// A larger step makes turns longer. A host that compares the queue with a model sets a step larger than the tubes: the
        /// task that a waiting call gets then does not depend on where a step ends.
        pub fn set_queue_step(&mut self, step: usize);
        /// Wants a checkpoint as soon as possible, even if nothing has changed since the last snapshot: because its file, or a
        /// journal file after it, is damaged.
        pub fn force_checkpoint(&mut self);
        /// Whether all snapshots stay, because a backup copies them. A disk that is short of free space ends that.
        pub fn hold_snapshots(&mut self, held: bool);
        /// Wants a checkpoint as soon as possible. False if nothing has changed since the last snapshot.
        pub fn request_checkpoint(&mut self) -> bool;
        /// The number of the snapshot that is under way: the signature of its vclock.
        pub fn checkpoint_signature(&self) -> Option<u64>;
        /// Whether a checkpoint is under way, about to begin or about to be given up.
        pub fn has_checkpoint(&self) -> bool;
    }

    /// The next order for the writer of snapshots: at most one a turn, within the budget.
    pub fn poll_checkpoint(&mut self, budget: Budget<'_>) -> Option<CheckpointOrder> {
        self.settle(|instance| instance.shard.poll_checkpoint(budget, &instance.loop_time.clocks))
    }

    /// The snapshot is complete. Returns how many bytes more than they may the files took, if they did.
    pub fn handle_checkpoint_done(&mut self, number: u64, written: &Written, now: u64) -> Option<u64> {
        self.settle(|instance| instance.shard.handle_checkpoint_done(number, written, now))
    }

    /// The snapshot could not be written. Returns whether the one before it had been completed: whether this is news.
    pub fn handle_checkpoint_failed(&mut self, number: u64, cause: &str, now: u64) -> bool {
        self.settle(|instance| instance.shard.handle_checkpoint_failed(number, cause, now))
    }

    /// Gives up the checkpoint that is under way: the server ends, or the journal has failed. While the journal is
    /// sound, one that the writer was told to complete goes on: the snapshot may have its name already, and another
    /// one of the same moment would be refused.
    pub fn abandon_checkpoint(&mut self, cause: &str) {
        self.settle(|instance| instance.shard.abandon_checkpoint(cause));
    }

    forward! { shard:
        /// Whether changes are refused.
        pub fn is_read_only(&self) -> bool;
        /// Snapshots, and what the files take.
        pub fn checkpoint_status(&self) -> CheckpointStatus;
    }
}
