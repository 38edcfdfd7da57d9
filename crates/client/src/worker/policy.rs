//! The policy for failed tasks.

use std::time::Duration;

/// What becomes of a task whose handler failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// As the worker's settings say.
    Retry,
    /// After this delay, unless it was the last attempt.
    RetryAfter(Duration),
    Bury,
}

/// The greatest power of two by which the delay grows.
const MAX_DOUBLINGS: u64 = 30;

/// What becomes of a task that failed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Policy {
    pub(super) max_attempts: u64,
    pub(super) retry_delay: Duration,
    pub(super) max_retry_delay: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_attempts: 10,
            retry_delay: Duration::from_secs(1),
            max_retry_delay: Duration::from_secs(300),
        }
    }
}

impl Policy {
    /// How long a task waits after it has failed `attempts` times; `None` if it is to be buried.
    pub(super) fn delay_after(self, attempts: u64, then: Then) -> Option<Duration> {
        match then {
            Then::Bury => None,
            _ if attempts >= self.max_attempts => None,
            Then::RetryAfter(delay) => Some(delay),
            Then::Retry => {
                let factor = 1u32 << attempts.saturating_sub(1).min(MAX_DOUBLINGS);
                Some(self.retry_delay.saturating_mul(factor).min(self.max_retry_delay))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_a_limit_and_end_in_burial() {
        let policy = Policy {
            max_attempts: 5,
            retry_delay: Duration::from_secs(1),
            max_retry_delay: Duration::from_secs(6),
        };
        let after = |attempts, then| policy.delay_after(attempts, then).map(|delay| delay.as_secs());
        let delays: Vec<_> = (1..=5).map(|attempts| after(attempts, Then::Retry)).collect();
        assert_eq!(delays, [Some(1), Some(2), Some(4), Some(6), None]);
        assert_eq!(after(1, Then::Bury), None);
        assert_eq!(after(4, Then::RetryAfter(Duration::from_secs(90))), Some(90));
        assert_eq!(after(5, Then::RetryAfter(Duration::from_secs(90))), None);
        let endless = Policy { max_attempts: u64::MAX, ..policy };
        assert_eq!(endless.delay_after(1_000_000, Then::Retry), Some(Duration::from_secs(6)));
    }
}
