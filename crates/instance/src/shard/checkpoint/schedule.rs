//! The schedule of checkpoints.
//!
//! A checkpoint is due when the journal has grown to the limit, when the files exceed their bound, and when
//! one is requested. It is also due when the interval has passed and something has changed, and when the disk is short
//! of free space and a checkpoint would make some. After a failure the next one waits for a minute, unless a client
//! requests one or its snapshot fits the disk now.

use lycosa_iproto::vclock::Vclock;

use super::disk::Bound;
use super::order::Keep;
use super::{Base, Checkpoints, Look};
use crate::shard::Shard;

/// Pause after a failure before the next scheduled checkpoint, in microseconds.
pub(super) const RETRY_AFTER: u64 = 60_000_000;

/// Time after which sizes are looked at again, in microseconds.
const LOOK_EVERY: u64 = 1_000_000;

/// Share of the threshold after which sizes are looked at again.
const LOOKS_PER_THRESHOLD: u64 = 64;

impl Checkpoints {
    /// Bytes journaled since the last snapshot.
    pub(super) fn journal_bytes(&self, journaled: u64) -> u64 {
        u64::try_from(i128::from(journaled) - self.base.journaled).unwrap_or(0)
    }

    /// The clock at which the oldest xlog begins.
    pub(crate) fn oldest_vclock(&self) -> Option<&Vclock> {
        self.base.files.oldest.as_deref()
    }

    /// Bytes of all files.
    pub(super) fn disk_used(&self, journaled: u64) -> u64 {
        self.base.files.total.saturating_add(journaled.saturating_sub(self.base.measured))
    }

    /// The expected size of a snapshot, estimated from the last one.
    pub(super) fn expected_snapshot(&self, live: u64) -> u64 {
        let Base { files, live: then, .. } = &self.base;
        if *then == 0 {
            return live;
        }
        let expected = u128::from(files.snapshot) * u128::from(live) / u128::from(*then);
        u64::try_from(expected).unwrap_or(u64::MAX).min(live)
    }

    pub(super) fn journal_limit(&self, bound: Bound) -> u64 {
        bound.journal_limit(self.base.files.snapshot, self.expected_snapshot(bound.live))
    }
}

impl Shard {
    /// Looks whether a checkpoint is due. When the interval will have passed, if that is what it waits for.
    pub(crate) fn tick_checkpoints(&mut self) -> Option<u64> {
        let now = self.data.now;
        if self.has_checkpoint() || !self.has_changed_since_snapshot() {
            return None;
        }
        if self.would_make_room() {
            self.checkpoints.is_wanted = true;
            return None;
        }
        let interval = self.rules.checkpoint_interval;
        let due_at = (interval > 0).then(|| self.checkpoints.base.at.saturating_add(interval));
        if now < self.checkpoints.retry_at {
            return due_at.map(|due_at| due_at.max(self.checkpoints.retry_at));
        }
        let is_time = due_at.is_some_and(|due_at| due_at <= now);
        self.checkpoints.is_wanted = is_time || self.is_too_large();
        due_at.filter(|_| !is_time)
    }

    /// Whether the disk is short of free space, and a checkpoint that can be taken would make some. The first attempt
    /// removes old files, so only later attempts are compared with the free space.
    fn would_make_room(&mut self) -> bool {
        let Some(space) = self.data.conditions.facts().scarce_space else { return false };
        let checkpoints = &self.checkpoints;
        let expected = checkpoints.expected_snapshot(self.data.store().snapshot_bytes());
        let used = checkpoints.disk_used(self.data.journaling.written_bytes());
        if used < expected.saturating_add(space.worth()) {
            return false;
        }
        let is_first = !std::mem::replace(&mut self.checkpoints.has_tried_for_room, true);
        is_first
            || space.fits(expected)
                && self.checkpoints.retry_at <= self.data.now.saturating_add(RETRY_AFTER - LOOK_EVERY)
    }

    /// Which files may stay beside a snapshot; `bytes` is what they may take if there is free space.
    pub(super) fn keep(&self, bytes: u64) -> Keep {
        let snapshots = self.rules.checkpoint_count.max(1);
        match self.data.conditions.facts().scarce_space {
            // A full disk ends a backup.
            None if self.checkpoints.is_held => Keep { snapshots: usize::MAX, bytes: u64::MAX, scarce: None },
            None => Keep { snapshots, bytes, scarce: None },
            Some(_) => {
                let live = self.data.store().snapshot_bytes();
                Keep { snapshots: 1, bytes: 0, scarce: Some(self.checkpoints.expected_snapshot(live)) }
            }
        }
    }

    /// Whether the journal or all files together are larger than they may be; looks only now and then.
    fn is_too_large(&mut self) -> bool {
        let journaled = self.data.journaling.written_bytes();
        let threshold = self.rules.checkpoint_wal_threshold;
        if self.data.now < self.checkpoints.next_look.at && journaled < self.checkpoints.next_look.journaled {
            return false;
        }
        let step = (threshold / LOOKS_PER_THRESHOLD).max(1);
        self.checkpoints.next_look =
            Look { at: self.data.now.saturating_add(LOOK_EVERY), journaled: journaled.saturating_add(step) };
        let live = self.data.store().snapshot_bytes();
        let bound = Bound { live, threshold };
        self.checkpoints.journal_bytes(journaled) >= self.checkpoints.journal_limit(bound)
            || self.checkpoints.disk_used(journaled)
                > bound.total().saturating_add(self.checkpoints.base.files.replicas)
    }
}
