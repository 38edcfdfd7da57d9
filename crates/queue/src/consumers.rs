//! The rows of `_queue_consumers`: one for each take that waits, written when the space is read.
//!
//! A take that waits stands in its line ([`crate::waiter`]) and nowhere else; almost nothing reads the space. [`ConsumerRows`]
//! notes by which rows the space differs from the lines, and the difference is made good before a client reads or changes the
//! space ([`Queue::read`](crate::Queue::read), [`Queue::submit`](crate::Queue::submit)). So a take that waits and is served costs
//! no transaction of its own.
//!
//! Invariants:
//! - The space has the rows of all waiting takes without the missing ones, and the surplus ones.
//! - At most [`MAX_NOTED`] rows are missing and as many are surplus, so that a reader does not hold up the loop. A rebuild of the
//!   queue leaves all rows missing; then each take that begins or ends brings two rows nearer to the bound.
//! - [`Undo::Consumers`](crate::transaction::Undo::Consumers) takes back what a transaction notes as written that is rolled back.

mod write;

use std::collections::BTreeSet;

/// Missing rows at most, and surplus rows at most.
const MAX_NOTED: usize = 4096;

/// A waiting call: the numbers of its connection and of its request. The first fields of a row.
pub(crate) type CallKey = (u64, u64);

/// How the rows of `_queue_consumers` differ from the takes that wait.
#[derive(Debug, Default)]
pub(crate) struct ConsumerRows {
    /// Takes that wait and have no row.
    missing: BTreeSet<CallKey>,
    /// Rows of takes that wait no longer.
    surplus: BTreeSet<CallKey>,
}

impl ConsumerRows {
    /// A take has begun to wait.
    pub(crate) fn begin(&mut self, take: CallKey) {
        self.missing.insert(take);
    }

    /// A take waits no longer.
    pub(crate) fn end(&mut self, take: CallKey) {
        if !self.missing.remove(&take) {
            self.surplus.insert(take);
        }
    }

    /// The space has no row; these takes wait.
    pub(crate) fn begin_anew(&mut self, takes: BTreeSet<CallKey>) {
        *self = Self { missing: takes, surplus: BTreeSet::new() };
    }

    fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.surplus.is_empty()
    }

    fn is_bounded(&self) -> bool {
        self.missing.len() <= MAX_NOTED && self.surplus.len() <= MAX_NOTED
    }

    /// Up to two rows of each kind that are noted beyond the bound.
    fn take_excess(&mut self) -> Self {
        let mut excess = Self::default();
        for _ in 0..2 {
            if self.missing.len() > MAX_NOTED {
                excess.missing.extend(self.missing.pop_first());
            }
            if self.surplus.len() > MAX_NOTED {
                excess.surplus.extend(self.surplus.pop_first());
            }
        }
        excess
    }

    /// Notes rows again: the transaction that wrote and erased them was rolled back.
    pub(crate) fn restore(&mut self, undone: Self) {
        self.missing.extend(undone.missing);
        self.surplus.extend(undone.surplus);
    }
}
