//! The share of the loop's time that background work gets: all of it while the loop has nothing else to do, [`LEAST`] percent
//! while the loop has much else to do.
//!
//! Background work is what no deadline drives: long calls, jobs over many tasks, long SELECTs. After each step of it the loop
//! serves requests for a time in proportion to the step. The proportion follows from the load of the window before: the
//! processor's time that everything else has taken, in percent of the time by the clock. Up to [`QUIET`] percent are no load;
//! the loop's own turns around background work take them too.
//!
//! Invariants: without clocks background work never waits, so that a simulation is repeatable; a step that waits has a time at
//! which it may go on, so that nothing starves.

use crate::shard::clocks::Clocks;

/// The least share, in percent.
const LEAST: u64 = 4;
/// Load of everything else, in percent, up to which background work gets all of the loop's time.
const QUIET: u64 = 10;
/// Percent of the share that each further percent of load takes.
const SLOPE: u64 = 6;
/// The time over which the load is measured, in microseconds.
const WINDOW: u64 = 10_000;

/// How much of the loop's time background work may take now.
#[derive(Debug)]
pub(crate) struct Share {
    percent: u64,
    /// When the window began, by the clock, and the processor's time then.
    began: u64,
    processor: u64,
    /// Microseconds that background work has had in the window.
    used: u64,
    /// When background work may go on, by the clock.
    free_at: u64,
}

impl Default for Share {
    fn default() -> Self {
        Self { percent: 100, began: 0, processor: 0, used: 0, free_at: 0 }
    }
}

impl Share {
    /// Microseconds for which background work waits; `None`: it may go on.
    pub(crate) fn wait(&mut self, clocks: &Clocks) -> Option<u64> {
        let now = clocks.clock()?;
        if now.saturating_sub(self.began) >= WINDOW {
            self.measure(now, clocks.processor());
        }
        (now < self.free_at).then(|| self.free_at - now)
    }

    /// A step of background work has ended that began at `since`, by the clock.
    pub(crate) fn charge(&mut self, since: u64, clocks: &Clocks) {
        let Some(now) = clocks.clock() else { return };
        let held = now.saturating_sub(since);
        self.used += held;
        self.free_at = now + held * (100 - self.percent) / self.percent;
    }

    /// Sets the share by the window that ends now.
    fn measure(&mut self, now: u64, processor: u64) {
        let elapsed = now - self.began;
        let others = processor.saturating_sub(self.processor).saturating_sub(self.used);
        let load = others.saturating_mul(100) / elapsed.max(1);
        self.percent = 100_u64.saturating_sub(load.saturating_sub(QUIET).saturating_mul(SLOPE)).max(LEAST);
        (self.began, self.processor, self.used) = (now, processor, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Microseconds of background work in a second of turns of 100 µs, of which other work takes `load`. A step takes 200 µs.
    fn background_beside(load: u64) -> u64 {
        let read = |clock: &Arc<AtomicU64>| -> Box<dyn Fn() -> u64 + Send> {
            let clock = Arc::clone(clock);
            Box::new(move || clock.load(Ordering::Relaxed))
        };
        let (time, processor) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicU64::new(1)));
        let clocks = Clocks { elapsed: Some(read(&time)), processor: Some(read(&processor)) };
        let mut share = Share::default();
        let mut done = 0;
        while time.load(Ordering::Relaxed) < 1_000_000 {
            time.fetch_add(100, Ordering::Relaxed);
            processor.fetch_add(load, Ordering::Relaxed);
            if share.wait(&clocks).is_none() {
                let since = clocks.elapsed();
                time.fetch_add(200, Ordering::Relaxed);
                processor.fetch_add(200, Ordering::Relaxed);
                share.charge(since, &clocks);
                done += 200;
            }
        }
        done
    }

    #[test]
    fn background_work_gets_what_is_left_over_and_a_little_of_a_busy_loop() {
        let [idle, half, busy] = [0, 50, 100].map(background_beside);
        // A step of 200 µs follows each turn of 100 µs.
        assert!(idle > 600_000, "{idle} µs of a second without other work");
        for (load, done) in [("half", half), ("all", busy)] {
            assert!((30_000..60_000).contains(&done), "{done} µs of a second beside {load} of the loop");
        }
    }

    #[test]
    fn without_clocks_nothing_waits() {
        let mut share = Share::default();
        share.charge(0, &Clocks::default());
        assert_eq!(share.wait(&Clocks::default()), None);
    }
}
