//! Background work: long calls ([`crate::long_call`]) and jobs over many tasks ([`crate::bulk`]), in slices.
//!
//! Nothing here has a deadline, so the caller decides how much of each turn it gets ([`Queue::work`](crate::Queue::work)).
//! Deadlines of tasks, sessions, leases and waiting calls are [`crate::timer`]'s.
//!
//! A slice is one transaction. It does portions of [`PORTION`] changes, or of [`WALK`] tasks to look at, until its budget is
//! spent. Long calls and jobs take slices in turn.

use lycosa_store::Budget;

use crate::turn::{Common, Turn};

/// Changes of tasks between two looks at the budget.
pub(crate) const PORTION: usize = 4;
/// Tasks that are looked at between two looks at the budget.
pub(crate) const WALK: usize = 32;
/// Bytes of payloads between two looks at the budget; the last payload may reach beyond them.
pub(crate) const PORTION_BYTES: usize = 64 << 10;

impl Turn<'_> {
    /// Does slices until the budget is spent or nothing is left to do. When to call again, µs since the epoch.
    pub(crate) fn work(&mut self, mut budget: Budget<'_>) -> Option<u64> {
        while self.common.is_running() && !budget.is_spent() {
            let (has_calls, has_jobs) = (!self.common.long_calls.is_empty(), self.jobs().is_due());
            if has_calls && !(has_jobs && self.common.last_was_call) {
                self.common.last_was_call = true;
                self.long_calls().work(&mut budget);
            } else if has_jobs {
                self.common.last_was_call = false;
                self.jobs().work(&mut budget);
            } else {
                break;
            }
        }
        self.common.next_work()
    }
}

impl Common {
    /// When [`Turn::work`] has something to do, µs since the epoch. May be in the past.
    #[inline]
    pub(crate) fn next_work(&self) -> Option<u64> {
        if !self.is_running() {
            return None;
        }
        if self.long_calls.is_empty() { self.bulk.next_deadline() } else { Some(0) }
    }
}
