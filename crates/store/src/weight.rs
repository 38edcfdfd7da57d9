//! The bytes of a space's tuples, and of all persistent spaces together: the size of a snapshot.
//!
//! The size of a snapshot is asked for again and again, on a server with ten thousand tubes too. So each change of a space also
//! changes a sum, which is shared by all persistent spaces; the other spaces share a second one. The catalog gives a space its sum
//! when the space is made, and moves the space's share when its definition changes.
//!
//! The sums are atomic numbers only because a store may be sent to another thread; one thread at a time changes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that a row in a file has beside its tuple, at most.
const ROW_OVERHEAD: u64 = 32;

/// Bytes that the rows of some tuples have in a snapshot, at most.
pub(crate) const fn of_rows(bytes: u64, tuples: u64) -> u64 {
    bytes + tuples * ROW_OVERHEAD
}

/// Bytes of the rows of all spaces of one sort.
#[derive(Debug, Default)]
pub(crate) struct Sum(Arc<AtomicU64>);

impl Sum {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Bytes of the tuples of one space.
#[derive(Debug, Default)]
pub(crate) struct Weight {
    bytes: u64,
    sum: Arc<AtomicU64>,
}

impl Weight {
    /// Bytes of all tuples as MessagePack.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    #[inline]
    fn change(&mut self, bytes: u64, rows: u64) {
        self.bytes = self.bytes.wrapping_add(bytes);
        self.share(rows);
    }

    #[inline]
    fn share(&mut self, rows: u64) {
        self.sum.store(self.sum.load(Ordering::Relaxed).wrapping_add(rows), Ordering::Relaxed);
    }

    /// A tuple of this length came.
    #[inline]
    pub(crate) fn add(&mut self, bytes: usize) {
        let bytes = bytes as u64;
        self.change(bytes, bytes + ROW_OVERHEAD);
    }

    /// A tuple of this length went.
    #[inline]
    pub(crate) fn subtract(&mut self, bytes: usize) {
        let bytes = bytes as u64;
        self.change(bytes.wrapping_neg(), (bytes + ROW_OVERHEAD).wrapping_neg());
    }

    /// That number of tuples with these bytes in all came.
    pub(crate) fn add_all(&mut self, bytes: u64, tuples: u64) {
        self.change(bytes, of_rows(bytes, tuples));
    }

    /// That number of tuples with these bytes in all went.
    pub(crate) fn subtract_all(&mut self, bytes: u64, tuples: u64) {
        self.change(bytes.wrapping_neg(), of_rows(bytes, tuples).wrapping_neg());
    }

    /// The share of the space, which has that number of tuples, is part of this sum from here on.
    pub(crate) fn joins(&mut self, sum: &Sum, tuples: u64) {
        self.sum = Arc::clone(&sum.0);
        self.share(of_rows(self.bytes, tuples));
    }

    /// The share of the space, which has that number of tuples, is no part of its sum any more.
    pub(crate) fn leaves(&mut self, tuples: u64) {
        self.share(of_rows(self.bytes, tuples).wrapping_neg());
        self.sum = Arc::default();
    }
}
