//! Scarce disk space: the changes that are still allowed, and the checkpoints that free space.
//!
//! Below `disk_reserve` three things change, each with its share of the reserve:
//! 1. Nothing is added: `put` and INSERT are refused. Stored tasks can be taken and finished, which takes journal.
//! 2. A checkpoint begins once it would free space, at any size of the journal. It first removes every file that a
//!    start can do without; only the newest snapshot and the journal since stay. Its snapshot may take the reserve
//!    down to an eighth, and is only begun if it is expected to fit.
//! 3. Below a quarter of the reserve nothing is finished either: the journal must never find the disk full, and the
//!    snapshot needs the rest. Bytes of a snapshot that is being written do not count, down to an eighth: they
//!    come back when the snapshot is complete or given up, and finishing must not fail for that time. Deadlines and
//!    the ends of connections go on: their rows are bounded by the number of stored tasks. So do `truncate` and `drop`,
//!    a row or two each, which make the snapshot small.

/// The free space of a disk that is short of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreeSpace {
    /// Bytes that may still be written.
    pub free: u64,
    /// `disk_reserve`, in bytes: more than `free`, or than four fifths of it.
    pub reserve: u64,
    /// Bytes that a snapshot has taken of it which is being written.
    snapshot: u64,
}

impl FreeSpace {
    /// `free` bytes of a disk whose reserve is `reserve`.
    #[must_use]
    pub const fn new(free: u64, reserve: u64) -> Self {
        FreeSpace { free, reserve, snapshot: 0 }
    }

    /// While a snapshot is being written that has `snapshot` bytes so far.
    pub(crate) fn beside_snapshot(self, snapshot: u64) -> Self {
        FreeSpace { snapshot, ..self }
    }

    /// Bytes that a snapshot never takes.
    #[must_use]
    pub fn journal_share(reserve: u64) -> u64 {
        reserve / 8
    }

    /// Whether a snapshot of `snapshot` bytes fits.
    pub(crate) fn fits(self, snapshot: u64) -> bool {
        self.free >= snapshot.saturating_add(Self::journal_share(self.reserve))
    }

    /// Whether there is no free space even for finishing tasks.
    pub(crate) fn is_exhausted(self) -> bool {
        self.free < Self::journal_share(self.reserve)
            || self.free.saturating_add(self.snapshot) < self.reserve / 4
    }

    /// Bytes that a checkpoint has to free to be worth its work.
    pub(crate) fn worth(self) -> u64 {
        self.reserve / 8
    }
}
