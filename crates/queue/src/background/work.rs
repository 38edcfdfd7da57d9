//! Background work in a turn: slices of long calls and of jobs, by turns.

use lycosa_store::Budget;

use crate::turn::{Common, Turn};

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
