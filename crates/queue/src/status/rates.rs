//! Rates over the last minutes, as exponentially weighted means of periods of ten seconds.
//!
//! No timer drives them: the first operation of a new period closes the former one, and a reader closes a copy.

/// Length of a period, µs.
pub(crate) const PERIOD: u64 = 10_000_000;
/// Seconds of a period.
const SECONDS: f64 = 10.0;
/// The part of a mean over 1, 5 and 15 minutes that a period keeps: exp(-10 s / the time).
const DECAYS: [f64; 3] = [0.846_481_724_890_614, 0.967_216_100_482_006, 0.988_950_353_803_923];

/// The counters that have rates: puts, takes, acks.
pub(crate) type Counts = [u64; 3];

/// Operations a second over the last 1, 5 and 15 minutes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Rates {
    /// Of puts.
    pub puts: [f32; 3],
    /// Of takes.
    pub takes: [f32; 3],
    /// Of acks.
    pub acks: [f32; 3],
}

impl Rates {
    /// Closes a period with these counts, and `idle` periods without any behind it.
    pub(crate) fn close(&mut self, counts: Counts, idle: u64) {
        let all = [&mut self.puts, &mut self.takes, &mut self.acks];
        for (rates, count) in all.into_iter().zip(counts) {
            let last = count as f64 / SECONDS;
            for (rate, decay) in rates.iter_mut().zip(DECAYS) {
                let mean = last + (f64::from(*rate) - last) * decay;
                *rate = (mean * decay.powf(idle as f64)) as f32;
            }
        }
    }

    /// Operations of all three kinds over 15 minutes: by that tubes are compared.
    pub(crate) fn business(&self) -> f32 {
        self.puts[2] + self.takes[2] + self.acks[2]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_rate_is_reached_and_an_idle_time_forgets_it() {
        let mut rates = Rates::default();
        (0..6).for_each(|_| rates.close([1000, 0, 10], 0));
        let [one, five, fifteen] = rates.puts;
        assert!((one - 63.2).abs() < 0.1, "1 - 1/e of 100 after a minute: {one}");
        assert!(five < one && fifteen < five);
        (0..1000).for_each(|_| rates.close([1000, 0, 10], 0));
        assert!(rates.puts.iter().all(|rate| (rate - 100.0).abs() < 0.1), "{rates:?}");
        assert_eq!(rates.takes, [0.0; 3]);
        let mut slow = rates;
        (0..30).for_each(|_| slow.close([0; 3], 0));
        let mut fast = rates;
        fast.close([0; 3], 29);
        assert!(slow.puts.iter().zip(fast.puts).all(|(slow, fast)| (slow - fast).abs() < 0.01));
        fast.close([0; 3], 1_000_000);
        assert_eq!(fast, Rates::default());
    }
}
