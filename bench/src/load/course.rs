//! The course of a phase: its rounds by time.

use std::time::Duration;

/// Nanoseconds of a slice at first.
const FIRST_SLICE: u64 = 100_000_000;
/// Slices at most; then each two of them become one.
const MAX_SLICES: usize = 1024;

/// Rounds by slices of time, all equally long.
#[derive(Debug, Clone)]
pub(crate) struct Course {
    /// Nanoseconds.
    slice: u64,
    /// Rounds that were done at the end of each slice.
    done: Vec<u64>,
}

impl Course {
    pub(crate) fn new() -> Self {
        Self { slice: FIRST_SLICE, done: Vec::new() }
    }

    /// `rounds` were done `now` nanoseconds after the beginning.
    pub(super) fn note(&mut self, now: u64, rounds: u64) {
        while now >= self.slice * (self.done.len() as u64 + 1) {
            if self.done.len() == MAX_SLICES {
                self.done = self.done.chunks_exact(2).map(|pair| pair[1]).collect();
                self.slice *= 2;
                continue;
            }
            self.done.push(rounds);
        }
    }

    pub(crate) fn slice(&self) -> Duration {
        Duration::from_nanos(self.slice)
    }

    /// Rounds a second in each whole slice.
    pub(crate) fn rates(&self) -> Vec<f64> {
        let before = std::iter::once(&0).chain(&self.done);
        let seconds = self.slice as f64 / 1e9;
        before.zip(&self.done).map(|(before, done)| (done - before) as f64 / seconds).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_counted_by_slices() {
        let mut course = Course::new();
        for (now, rounds) in [(0, 0), (FIRST_SLICE / 2, 40), (FIRST_SLICE, 100), (FIRST_SLICE * 5 / 2, 400)] {
            course.note(now, rounds);
        }
        // Nothing is known of the end of the second slice but that 400 rounds were done soon after.
        assert_eq!(course.rates(), [1_000.0, 3_000.0]);
    }

    #[test]
    fn a_long_course_has_longer_slices() {
        let mut course = Course::new();
        let last = 3 * MAX_SLICES as u64;
        for slice in 1..=last {
            course.note(slice * FIRST_SLICE, slice);
        }
        assert_eq!(course.slice().as_nanos(), u128::from(4 * FIRST_SLICE));
        assert_eq!((course.rates().len(), course.done.last()), (MAX_SLICES * 3 / 4, Some(&last)));
        assert!(course.rates().iter().all(|rate| *rate == 10.0));
    }
}
