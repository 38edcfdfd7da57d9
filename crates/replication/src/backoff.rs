//! Back-off: the wait before the next connection to a peer.

/// Waits that double from a tenth of the greatest one up to it. A connection that worked begins anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    attempts: u32,
}

/// The first wait is this part of the greatest.
const FIRST_PART: u64 = 10;

impl Backoff {
    /// No attempt has failed yet.
    #[must_use]
    pub fn new() -> Self {
        Self { attempts: 0 }
    }

    /// An attempt has failed: how long to wait before the next one, at most `longest`, in the unit of `longest`.
    pub fn failed(&mut self, longest: u64) -> u64 {
        let first = (longest / FIRST_PART).max(1);
        let wait = first.saturating_mul(1 << self.attempts.min(16)).min(longest);
        self.attempts = self.attempts.saturating_add(1);
        wait
    }

    /// The peer works.
    pub fn succeeded(&mut self) {
        self.attempts = 0;
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let mut backoff = Backoff::new();
        let waits: Vec<_> = (0..6).map(|_| backoff.failed(1000)).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1000, 1000]);
        backoff.succeeded();
        assert_eq!(backoff.failed(1000), 100);
        assert_eq!(Backoff { attempts: u32::MAX }.failed(7), 7);
    }
}
