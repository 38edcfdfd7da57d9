//! The budget of a step of background work: rows, bytes, and microseconds of a clock, whichever ends first.
//!
//! Work that no request waits for in this turn goes on in steps, between which the loop serves requests. Rows and bytes bound
//! a step where no clock exists: in a simulation they alone decide where a step ends, so that it is repeatable. A clock bounds
//! it on a machine, where the same number of rows takes 20 times as long if their memory is cold.
//!
//! Invariant: a step that begins with a fresh budget of one row or more makes progress at any time of the clock.

use std::fmt;

/// Rows between two looks at the clock.
const ROWS_PER_LOOK: u32 = 16;

/// How much one step may do.
#[derive(Clone, Copy)]
pub struct Budget<'a> {
    /// Rows to look at, at most.
    rows: u32,
    /// Bytes of rows to hand out; the row that reaches this number is the last one.
    bytes: usize,
    /// Rows since the last look at the clock.
    unseen: u32,
    /// A clock in microseconds that never goes back, and the time on it at which the step ends.
    until: Option<(&'a dyn Fn() -> u64, u64)>,
}

impl fmt::Debug for Budget<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, bytes, until, .. } = self;
        let until = until.map(|(_, until)| until);
        f.debug_struct("Budget").field("rows", rows).field("bytes", bytes).field("until", &until).finish()
    }
}

impl<'a> Budget<'a> {
    /// A budget of rows and bytes, without a clock.
    #[must_use]
    pub const fn new(rows: u32, bytes: usize) -> Self {
        Self { rows, bytes, unseen: 0, until: None }
    }

    /// A budget of rows alone.
    #[must_use]
    pub const fn of_rows(rows: u32) -> Self {
        Self::new(rows, usize::MAX)
    }

    /// The same budget, which also ends `microseconds` from now by `clock`: a clock in microseconds that never goes back.
    #[must_use]
    pub fn within(self, clock: &'a dyn Fn() -> u64, microseconds: u64) -> Self {
        Self { until: Some((clock, clock().saturating_add(microseconds))), ..self }
    }

    /// Rows that may still be looked at.
    #[must_use]
    pub const fn rows(&self) -> u32 {
        self.rows
    }

    /// Whether the step ends here. Looks at the clock once in 16 rows.
    #[inline]
    pub fn is_spent(&mut self) -> bool {
        if self.unseen >= ROWS_PER_LOOK {
            self.unseen = 0;
            if self.until.is_some_and(|(clock, until)| clock() >= until) {
                self.rows = 0;
            }
        }
        self.rows == 0 || self.bytes == 0
    }

    /// One row was looked at, and `bytes` of it handed out.
    #[inline]
    pub fn spend(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.spend_rows(1);
    }

    /// Rows were looked at, or work was done that takes as long as `rows` of them.
    #[inline]
    pub fn spend_rows(&mut self, rows: u32) {
        self.rows = self.rows.saturating_sub(rows);
        self.unseen = self.unseen.saturating_add(rows);
    }

    /// Bytes were looked at. They end no step by themselves, and bring the next look at the clock nearer: a page of them is a row.
    #[inline]
    pub fn note_bytes(&mut self, bytes: usize) {
        self.unseen = self.unseen.saturating_add(u32::try_from(bytes >> 12).unwrap_or(u32::MAX));
    }

    /// An index was read that may have had to merge a thousand deferred entries: the clock is looked at next.
    #[inline]
    pub fn note_look_up(&mut self) {
        self.unseen = u32::MAX;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn rows_bytes_and_the_clock_each_end_a_step() {
        let rows = |budget: Budget<'_>, bytes: usize| {
            let mut budget = budget;
            let mut count = 0;
            while !budget.is_spent() {
                budget.spend(bytes);
                count += 1;
            }
            count
        };
        assert_eq!(rows(Budget::of_rows(100), 7), 100);
        assert_eq!(rows(Budget::new(100, 64), 7), 10);
        let time = Cell::new(0);
        let clock = || {
            time.set(time.get() + 10);
            time.get()
        };
        // Each look takes 10 µs: the fifth is the first that is not before the end.
        assert_eq!(rows(Budget::of_rows(1_000).within(&clock, 50), 7), 5 * ROWS_PER_LOOK);
        assert_eq!(rows(Budget::of_rows(1_000).within(&clock, 0), 7), ROWS_PER_LOOK);
        assert_eq!(rows(Budget::of_rows(3).within(&clock, 0), 7), 3);
        assert_eq!(rows(Budget::of_rows(0), 7), 0);
    }
}
