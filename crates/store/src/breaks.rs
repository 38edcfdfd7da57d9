//! Breaks in long work: the processor goes to threads that wait for it.
//!
//! A kernel that preempts lazily (Linux's `PREEMPT_LAZY`) leaves a thread that only computes on its processor until the next tick,
//! 1 to 10 ms, even if the thread has the lowest priority: the thread must enter the kernel. Members of a group that share
//! processors with one that loads its data wait that long for a turn; measured in `docs/cluster.md`.

use std::cell::Cell;
use std::thread;

/// Counts the steps of work that may last for seconds, and yields the processor at regular intervals.
#[derive(Debug)]
pub struct Breaks {
    steps: Cell<u32>,
    every: u32,
}

impl Breaks {
    /// A break after each `every` steps, which are to take about 0.1 ms altogether. A break for which no other thread waits takes
    /// about 0.3 µs.
    #[must_use]
    pub const fn every(every: u32) -> Self {
        Self { steps: Cell::new(0), every }
    }

    /// A step is done.
    #[inline]
    pub fn step(&self) {
        let steps = self.steps.get() + 1;
        let is_due = steps >= self.every;
        self.steps.set(if is_due { 0 } else { steps });
        if is_due {
            thread::yield_now();
        }
    }
}
