//! Histograms of durations, with buckets of fixed bounds.
//!
//! Two buckets for each power of two, from 16 µs to 12 days: a quantile is wrong by at most a half of itself. Recording takes
//! some ten instructions and no allocation, and two histograms add up bucket by bucket.

use lycosa_tuple::mp;

use crate::members::Members;

/// Powers of two that have buckets.
const OCTAVES: usize = 36;
/// Exponent of the first bound: 2⁴ µs.
const FIRST: u32 = 4;
/// Number of buckets. The last one has no bound.
pub const BUCKETS: usize = 2 * OCTAVES + 1;

/// How often durations lay in each bucket, and their sum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; BUCKETS],
    sum: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], sum: 0 }
    }
}

/// The largest duration that a bucket takes, µs. None: the last bucket takes any.
#[must_use]
pub const fn bound(bucket: usize) -> Option<u64> {
    if bucket + 1 >= BUCKETS {
        return None;
    }
    let base = if bucket.is_multiple_of(2) { 2 } else { 3 };
    Some(base << (FIRST as usize - 1 + bucket / 2))
}

/// The bucket of a duration in µs.
#[inline]
#[must_use]
pub const fn bucket_of(micros: u64) -> usize {
    if micros <= 1 << FIRST {
        return 0;
    }
    let below = micros - 1;
    let octave = below.ilog2();
    let half = (below >> (octave - 1)) & 1;
    let bucket = 1 + 2 * (octave - FIRST) as usize + half as usize;
    if bucket < BUCKETS { bucket } else { BUCKETS - 1 }
}

impl Histogram {
    /// Counts a duration in µs.
    #[inline]
    pub fn record(&mut self, micros: u64) {
        self.record_in(bucket_of(micros), micros);
    }

    /// The same with the duration's bucket, which is [`bucket_of`] it.
    #[inline]
    pub(crate) fn record_in(&mut self, bucket: usize, micros: u64) {
        self.counts[bucket] += 1;
        self.sum = self.sum.wrapping_add(micros);
    }

    /// How many durations were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their sum, µs.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Counts by bucket.
    #[must_use]
    pub fn counts(&self) -> &[u64; BUCKETS] {
        &self.counts
    }

    /// The bound of the bucket in which the quantile lies (0 to 1), µs. None: nothing was counted.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Option<u64> {
        let count = self.count();
        let rank = ((count as f64 * quantile).ceil() as u64).clamp(1, count.max(1));
        let mut below = 0;
        for (bucket, counted) in self.counts.iter().enumerate() {
            below += counted;
            if below >= rank {
                return Some(bound(bucket).unwrap_or(u64::MAX));
            }
        }
        None
    }

    /// The counts since `before`, an earlier copy of this histogram.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let counts = std::array::from_fn(|bucket| self.counts[bucket].saturating_sub(before.counts[bucket]));
        Self { counts, sum: self.sum.wrapping_sub(before.sum) }
    }

    /// Appends a map: `sum` in µs, `buckets` as `[number of the bucket, count, …]` without empty ones.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut map = Members::new(out);
        map.number("sum", self.sum);
        let out = map.name("buckets");
        let filled = || self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        mp::write_array(out, 2 * filled().count() as u32);
        for (bucket, count) in filled() {
            mp::write_uint(out, bucket as u64);
            mp::write_uint(out, *count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_takes_what_lies_between_two_bounds() {
        for bucket in 0..BUCKETS {
            let before = bucket.checked_sub(1).and_then(bound).map_or(0, |bound| bound + 1);
            assert_eq!(bucket_of(before), bucket);
            if let Some(bound) = bound(bucket) {
                assert_eq!(bucket_of(bound), bucket);
                assert!(bound > before);
            }
        }
        assert_eq!((bound(0), bound(1), bound(2), bound(12)), (Some(16), Some(24), Some(32), Some(1024)));
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_the_bounds_of_their_buckets() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        (0..99).for_each(|_| histogram.record(20));
        histogram.record(1000);
        assert_eq!((histogram.count(), histogram.sum()), (100, 99 * 20 + 1000));
        assert_eq!((histogram.quantile(0.5), histogram.quantile(0.99)), (Some(24), Some(24)));
        assert_eq!((histogram.quantile(0.0), histogram.quantile(1.0)), (Some(24), Some(1024)));
        let before = histogram.clone();
        assert_eq!(histogram.since(&before), Histogram::default());
        histogram.record(5000);
        let since = histogram.since(&before);
        assert_eq!((since.count(), since.sum(), since.quantile(0.5)), (1, 5000, Some(6144)));
    }
}
