//! The bound of the data folder on disk, and the sizes of the journal and the snapshots that follow from it.
//!
//! The contract: twice the live data and four times `checkpoint_wal_threshold`, under any load. Live
//! data are the rows of a snapshot, not compressed, so that no snapshot is larger than what lived when it was taken;
//! the most that there were since the newest one was begun, because that one stays until the next one is complete.
//!
//! Two thresholds of the four are for the journal since each of the two newest snapshots; one is for rows that are
//! journaled while a checkpoint runs; one is left for sizes that were estimated. A second snapshot is kept as long as
//! it fits the disk.
//!
//! Xlogs that stay for replicas alone have a bound of their own (`replication_journal_limit`) and are not counted here.

use lycosa_iproto::vclock::Vclock;

/// The sizes of the journal's files in bytes and the beginning of the oldest one, as their keeper has measured them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Files {
    /// The newest snapshot.
    pub snapshot: u64,
    /// Xlogs that are needed beside it.
    pub journal: u64,
    /// All snapshots and xlogs.
    pub total: u64,
    /// Of that, xlogs that stay for replicas alone. They have a bound of their own.
    pub replicas: u64,
    /// The clock at which the oldest xlog begins, as far as their keeper knows it.
    pub oldest: Option<Box<Vclock>>,
}

/// Bytes of the threshold in the constant part of the bound.
const THRESHOLDS: u64 = 4;

/// The bound at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bound {
    /// Bytes of the live data.
    pub(super) live: u64,
    /// `checkpoint_wal_threshold`.
    pub(super) threshold: u64,
}

impl Bound {
    /// The bound of all files together.
    pub(super) fn total(self) -> u64 {
        self.live.saturating_mul(2).saturating_add(self.threshold.saturating_mul(THRESHOLDS))
    }

    /// The journal since the last snapshot (of `last` bytes) that makes a checkpoint due: as much as there are live
    /// data, so that writing snapshots is no more work than writing the journal, if the last snapshot and the next
    /// one (of `next` bytes) leave that much space; never less than the threshold.
    pub(super) fn journal_limit(self, last: u64, next: u64) -> u64 {
        let allowed = self.live.saturating_mul(2).saturating_add(self.threshold);
        self.threshold.max(self.live.min(allowed.saturating_sub(last.saturating_add(next))))
    }

    /// The bound of the files when a snapshot of `next` bytes is begun.
    pub(super) fn before_snapshot(self, next: u64) -> u64 {
        self.total().saturating_sub(next.saturating_add(self.threshold))
    }

    /// The bound of the files when a snapshot of `last` bytes is complete.
    pub(super) fn after_snapshot(self, last: u64) -> u64 {
        self.total().saturating_sub(self.journal_limit(last, last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const THRESHOLD: u64 = 256 * MIB;

    /// Plays checkpoints of data that grow and shrink, and returns the most that the files took over the bound.
    fn worst_excess(live: impl Fn(u64) -> u64, snapshot_share: u64, while_running: u64) -> i128 {
        let (mut generations, mut excess) = (vec![(0_u64, 0_u64)], i128::MIN);
        for round in 0..40 {
            let bound = Bound { live: live(round), threshold: THRESHOLD };
            let size = bound.live * snapshot_share / 100;
            let total = |generations: &[(u64, u64)]| generations.iter().map(|(s, x)| s + x).sum::<u64>();
            let note =
                |generations: &[(u64, u64)]| i128::from(total(generations)) - i128::from(bound.total());
            let last = generations.last_mut().unwrap();
            last.1 = last.1.max(bound.journal_limit(last.0, size));
            let is_steady = live(round) == live(round.saturating_sub(1));
            if is_steady {
                excess = excess.max(note(&generations));
            }
            while generations.len() > 1 && total(&generations) > bound.before_snapshot(size) {
                generations.remove(0);
            }
            generations.last_mut().unwrap().1 += while_running;
            generations.push((size, 0));
            if is_steady {
                excess = excess.max(note(&generations));
            }
            while generations.len() > 1
                && (generations.len() > 2 || total(&generations) > bound.after_snapshot(size))
            {
                generations.remove(0);
            }
        }
        excess
    }

    #[test]
    fn the_bound_holds_for_steady_data_of_any_size_and_compressibility() {
        for live in [0, 50_000, 10 * MIB, THRESHOLD, 1 << 31, 1 << 36] {
            for share in [5, 30, 60, 100] {
                for while_running in [0, 20 * MIB, THRESHOLD] {
                    let excess = worst_excess(|_| live, share, while_running);
                    assert!(excess <= 0, "{live} live, {share} %, {while_running} while running: {excess}");
                }
            }
        }
    }

    #[test]
    fn the_bound_holds_again_after_data_have_gone() {
        let excess = worst_excess(|round| if round < 20 { 1 << 33 } else { 1 << 20 }, 100, MIB);
        assert!(excess <= 0, "{excess}");
    }

    #[test]
    fn small_data_keep_two_snapshots() {
        let bound = Bound { live: 50_000, threshold: THRESHOLD };
        assert_eq!(bound.total(), 100_000 + 1024 * MIB);
        assert_eq!(bound.journal_limit(50_000, 50_000), THRESHOLD);
        let two = 2 * (THRESHOLD + 10 * MIB);
        assert!(two < bound.before_snapshot(50_000) && two < bound.after_snapshot(50_000));
    }

    #[test]
    fn large_data_that_compress_are_not_written_more_often_than_their_journal() {
        let bound = Bound { live: 1 << 33, threshold: THRESHOLD };
        assert_eq!(bound.journal_limit(1 << 31, 1 << 31), 1 << 33);
        assert_eq!(bound.journal_limit(1 << 33, 1 << 33), THRESHOLD);
    }

    #[test]
    fn nothing_overflows() {
        let bound = Bound { live: u64::MAX, threshold: u64::MAX };
        assert_eq!(bound.total(), u64::MAX);
        assert_eq!(bound.journal_limit(u64::MAX, u64::MAX), u64::MAX);
        assert_eq!(bound.before_snapshot(u64::MAX) + bound.after_snapshot(u64::MAX), 0);
    }
}
