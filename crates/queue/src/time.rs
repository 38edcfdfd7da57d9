//! Time as the queue counts it: microseconds, unsigned, saturating.
//!
//! Clients speak in seconds, whole or not; tasks and sessions store microseconds. The two functions of the module's
//! `util` are here: [`Seconds::duration`] for spans and [`Seconds::deadline`] for deadlines. Nothing overflows: a span that
//! is too long never ends.

/// The longest span that still ends, in seconds: a hundred years of 365 days. Also the default of `ttl` and `ttr`.
pub const MAX_TIMEOUT_SECONDS: u64 = 3_153_600_000;

/// [`MAX_TIMEOUT_SECONDS`] in microseconds.
pub const MAX_TIMEOUT: u64 = MAX_TIMEOUT_SECONDS * MICROSECONDS;

/// The longest lease, and the longest renewal, in seconds: a day. A worker that needs more renews.
pub const MAX_LEASE_SECONDS: u64 = 86_400;

/// The year 2100, in µs since the epoch. Until then the queue looks for no deadline beyond it: tasks without a ttl or ttr
/// have deadlines a hundred years after their put.
pub const BEYOND: u64 = 4_102_444_800 * MICROSECONDS;

/// The moment that never comes.
pub const NEVER: u64 = u64::MAX;

/// Microseconds in a second.
pub const MICROSECONDS: u64 = 1_000_000;

/// A span that a client gave in seconds, cut to whole microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seconds {
    /// May be negative; saturated.
    micros: i128,
    /// Whether the client's number was greater than zero, even if nothing of it is left in microseconds.
    positive: bool,
}

impl Seconds {
    /// A hundred years.
    pub const MAX: Self = Self { micros: MAX_TIMEOUT as i128, positive: true };

    /// A whole number of seconds.
    #[must_use]
    pub fn from_int(seconds: i128) -> Self {
        Self { micros: seconds.saturating_mul(i128::from(MICROSECONDS)), positive: seconds > 0 }
    }

    /// A fraction; not-a-number counts as zero. The product is rounded as a double's is, then cut.
    #[must_use]
    pub fn from_double(seconds: f64) -> Self {
        Self { micros: (seconds * MICROSECONDS as f64) as i128, positive: seconds > 0.0 }
    }

    /// Microseconds, already cut; `positive` as the number was before.
    pub(crate) fn from_micros(micros: i128, positive: bool) -> Self {
        Self { micros, positive }
    }

    /// The number of seconds.
    #[must_use]
    pub fn to_double(self) -> f64 {
        self.micros as f64 / MICROSECONDS as f64
    }

    /// Whether the span is greater than zero.
    #[must_use]
    pub fn is_positive(self) -> bool {
        self.positive
    }

    /// The span in microseconds: none for a negative one.
    #[must_use]
    pub fn duration(self) -> u64 {
        u64::try_from(self.micros.max(0)).unwrap_or(u64::MAX)
    }

    /// The moment at which the span that begins `now` ends: [`NEVER`] if it is longer than a hundred years.
    #[must_use]
    pub fn deadline(self, now: u64) -> u64 {
        if self.is_endless() { NEVER } else { now.saturating_add(self.duration()) }
    }

    /// The span as something to add to times: [`NEVER`] if it is longer than a hundred years.
    #[must_use]
    pub fn extension(self) -> u64 {
        if self.is_endless() { NEVER } else { self.duration() }
    }

    fn is_endless(self) -> bool {
        self.micros > i128::from(MAX_TIMEOUT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_cut_to_microseconds() {
        assert_eq!(Seconds::from_double(0.5).duration(), 500_000);
        assert_eq!(Seconds::from_double(33.3).duration(), 33_299_999);
        assert_eq!(Seconds::from_double(0.000_000_1).duration(), 0);
        assert!(Seconds::from_double(0.000_000_1).is_positive());
    }

    #[test]
    fn nothing_overflows() {
        assert_eq!(Seconds::from_int(-1).duration(), 0);
        assert_eq!(Seconds::from_int(i128::MAX).duration(), u64::MAX);
        assert_eq!(Seconds::from_double(f64::INFINITY).duration(), u64::MAX);
        assert_eq!(Seconds::from_double(f64::NAN).duration(), 0);
        assert_eq!(Seconds::from_double(f64::NEG_INFINITY).deadline(7), 7);
        assert_eq!(Seconds::from_int(1).deadline(u64::MAX - 5), u64::MAX);
    }

    #[test]
    fn a_hundred_years_is_the_last_span_that_ends() {
        assert_eq!(Seconds::MAX.deadline(1), 1 + MAX_TIMEOUT);
        assert_eq!(Seconds::from_int(3_153_600_001).deadline(1), NEVER);
        assert_eq!(Seconds::from_int(3_153_600_001).duration(), MAX_TIMEOUT + MICROSECONDS);
        assert_eq!(Seconds::from_int(4_000_000_000).extension(), NEVER);
    }
}
