//! The status of checkpoints, for operators.

use super::LastCheckpoint;
use super::disk::Bound;
use crate::shard::Shard;

/// Checkpoints at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckpointStatus {
    /// `idle`, `running`, or `failed`: the last one was given up.
    pub state: &'static str,
    /// Why the last one was given up.
    pub failure: Option<String>,
    /// The last one that was completed since the start.
    pub last: Option<LastCheckpoint>,
    /// Completed since the start.
    pub count: u64,
    /// Given up since the start.
    pub failures: u64,
    /// The longest that the caller's loop was held by one step, in microseconds, as it has measured
    /// ([`Instance::set_elapsed`](crate::Instance::set_elapsed)).
    pub longest_pause: u64,
    /// Bytes that the read view takes beside the data.
    pub memory: u64,
    /// Bytes journaled since the last snapshot.
    pub journal_bytes: u64,
    /// Bytes of that which make a checkpoint due.
    pub journal_limit: u64,
    /// Bytes of all snapshots and xlogs.
    pub disk_used: u64,
    /// Their bound in bytes.
    pub disk_bound: u64,
    /// How often they took more.
    pub disk_excesses: u64,
    /// Bytes of journals that stay for replicas alone, beyond `disk_bound`.
    pub replica_bytes: u64,
    /// The bound of these files in bytes.
    pub replica_limit: u64,
}

impl Shard {
    /// Checkpoints at this moment.
    pub(crate) fn checkpoint_status(&self) -> CheckpointStatus {
        let checkpoints = &self.checkpoints;
        let journaled = self.data.journaling.written_bytes();
        let bound = Bound {
            live: self.data.store().snapshot_bytes(),
            threshold: self.rules.checkpoint_wal_threshold,
        };
        CheckpointStatus {
            state: match &checkpoints.failure {
                _ if checkpoints.is_running() => "running",
                Some(_) => "failed",
                None => "idle",
            },
            failure: checkpoints.failure.clone(),
            last: checkpoints.last.clone(),
            count: checkpoints.count,
            failures: checkpoints.failures,
            longest_pause: checkpoints.longest_pause,
            memory: self.data.store().read_view_memory(),
            journal_bytes: checkpoints.journal_bytes(journaled),
            journal_limit: checkpoints.journal_limit(bound),
            disk_used: checkpoints.disk_used(journaled),
            disk_bound: bound.total(),
            disk_excesses: checkpoints.excesses,
            replica_bytes: checkpoints.base.files.replicas,
            replica_limit: self.rules.replica_journal_limit,
        }
    }
}
