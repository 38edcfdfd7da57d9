//! The time that the machine itself takes from a program that does nothing but run.
//!
//! In a virtual machine the host may take a core away for milliseconds, and the guest's kernel counts that as the
//! processor's time of the thread that had the core. No time that a server measures can then show that it never holds its loop
//! for longer. So a loop that does nothing runs first, on the core of the servers, and what it was held for is printed beside.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value as Json, json};

use crate::server::Cores;

/// Longer gaps are counted.
const LONG: Duration = Duration::from_millis(1);

/// The gaps in a loop that does nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stolen {
    seconds: Duration,
    longest: Duration,
    long: u64,
}

impl Stolen {
    /// Runs such a loop for a while on the core of servers.
    pub(crate) fn measure(cores: Cores, seconds: Duration) -> Result<Self> {
        cores.on_server(|| Self::of(seconds))
    }

    /// The gaps by the processor's time of this thread: what it was not given to run counts only if it was charged for it.
    fn of(seconds: Duration) -> Self {
        let mut found = Self { seconds, longest: Duration::ZERO, long: 0 };
        let began = Instant::now();
        let mut last = processor_time();
        while began.elapsed() < seconds {
            // About 20 µs.
            for number in 0..10_000_u32 {
                std::hint::black_box(number);
            }
            let now = processor_time();
            found.note(now.saturating_sub(last));
            last = now;
        }
        found
    }

    fn note(&mut self, gap: Duration) {
        self.longest = self.longest.max(gap);
        self.long += u64::from(gap > LONG);
    }

    pub(crate) fn json(self) -> Json {
        json!({
            "seconds": self.seconds.as_secs_f64(),
            "longest_us": self.longest.as_micros() as u64,
            "over_1ms": self.long,
        })
    }

    pub(crate) fn text(self) -> String {
        format!(
            "this machine: a loop that does nothing was held for up to {} µs of the processor, {} times over 1 ms in {:.1} s",
            self.longest.as_micros(),
            self.long,
            self.seconds.as_secs_f64()
        )
    }
}

/// The processor's time that the calling thread has had.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let part = |number: i64| u64::try_from(number).unwrap_or_default();
    Duration::from_secs(part(time.tv_sec)) + Duration::from_nanos(part(time.tv_nsec))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_gaps_are_counted() {
        let mut found = Stolen { seconds: Duration::from_secs(2), longest: Duration::ZERO, long: 0 };
        for microseconds in [20, 1_000, 1_001, 4_600, 30] {
            found.note(Duration::from_micros(microseconds));
        }
        assert_eq!((found.longest, found.long), (Duration::from_micros(4_600), 2));
        assert!(
            found.text().contains("up to 4600 µs of the processor, 2 times over 1 ms in 2.0 s"),
            "{}",
            found.text()
        );
        assert_eq!(found.json()["over_1ms"], 2);
    }

    #[test]
    fn a_loop_has_steps() {
        let found = Stolen::of(Duration::from_millis(5));
        assert!(found.longest > Duration::ZERO);
    }
}
