//! Rate limit of log lines that clients cause: the log has the first lines of a period, and a count of the rest.

/// Lets through the first [`BURST`](Self::BURST) events of each [`PERIOD`](Self::PERIOD) and counts the rest, so that
/// clients cannot fill the log.
#[derive(Debug, Default)]
pub struct Sampled {
    since: Option<u64>,
    passed: u32,
    held_back: u64,
}

impl Sampled {
    /// Events of a period that are logged.
    pub const BURST: u32 = 10;
    /// Length of a period in microseconds.
    pub const PERIOD: u64 = 10_000_000;

    /// An event has happened: `Some` if it is to be logged, with the number of those before it that were not.
    pub fn event(&mut self, now: u64) -> Option<u64> {
        if self.is_over(now) {
            self.since = Some(now);
            self.passed = 0;
        }
        if self.passed == Self::BURST {
            self.held_back += 1;
            return None;
        }
        self.passed += 1;
        Some(std::mem::take(&mut self.held_back))
    }

    /// How many events were not logged, once their period is over and no other has told it; `None` for none.
    pub fn overdue(&mut self, now: u64) -> Option<u64> {
        let is_overdue = self.held_back > 0 && self.is_over(now);
        is_overdue.then(|| std::mem::take(&mut self.held_back))
    }

    /// A period is over if the clock went back, too.
    fn is_over(&self, now: u64) -> bool {
        self.since.is_none_or(|since| now < since || now - since >= Self::PERIOD)
    }
}

/// `text`, and how many lines like it were not logged before it.
pub fn with_held_back(text: String, held_back: u64) -> String {
    if held_back == 0 { text } else { format!("{text} ({held_back} more since the last such line)") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_beyond_the_burst_are_counted() {
        let mut sampled = Sampled::default();
        let start = 7_000_000;
        for _ in 0..Sampled::BURST {
            assert_eq!(sampled.event(start), Some(0));
        }
        assert_eq!((sampled.event(start), sampled.event(start)), (None, None));
        assert_eq!(sampled.overdue(start + Sampled::PERIOD - 1), None);
        assert_eq!(sampled.event(start + Sampled::PERIOD), Some(2));
        assert_eq!(sampled.event(start + Sampled::PERIOD), Some(0));
        assert_eq!(sampled.overdue(start + 3 * Sampled::PERIOD), None);
    }

    #[test]
    fn what_nobody_tells_is_told_when_the_period_is_over() {
        let mut sampled = Sampled::default();
        for _ in 0..Sampled::BURST + 3 {
            sampled.event(5);
        }
        assert_eq!(sampled.overdue(5 + Sampled::PERIOD), Some(3));
        assert_eq!(sampled.overdue(5 + Sampled::PERIOD), None);
        assert_eq!(sampled.event(4), Some(0), "a clock that goes back begins a period");
    }
}
