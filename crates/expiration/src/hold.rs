//! Times for which slices held the loop: the longest one with its work, and the distribution of the rest.

use lycosa_tuple::value::Value;

/// Microseconds from which on a slice is counted as a long one.
const LONG: u64 = 1000;
/// Microseconds that one class of the spread covers.
const STEP: u64 = 25;
/// Classes; the last one has everything longer too.
const CLASSES: usize = 80;

/// How long a slice held the loop, its commit included, in µs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    /// By a clock.
    pub elapsed: u64,
    /// Of the processor; 0 if unknown.
    pub processor: u64,
    /// What the commit took of it, by the clock that was there.
    pub commit: u64,
}

impl Held {
    /// By the processor's time, which does not count what the machine gave to others meanwhile, if it is known.
    pub(crate) fn own(&self) -> u64 {
        if self.processor > 0 { self.processor } else { self.elapsed }
    }
}

/// All slices of a task.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    slices: u64,
    long: u64,
    /// Slices by the time that they took, in steps of [`STEP`].
    classes: Vec<u64>,
    longest: Longest,
}

/// The longest slice, and what it did.
#[derive(Debug, Clone, Copy, Default)]
struct Longest {
    held: Held,
    scanned: u64,
    expired: u64,
}

impl Holds {
    /// Notes a slice that looked at `scanned` tuples and deleted `expired`.
    pub(crate) fn note(&mut self, held: Held, scanned: u64, expired: u64) {
        let own = held.own();
        self.slices += 1;
        self.long += u64::from(own > LONG);
        self.classes.resize(CLASSES, 0);
        let class = usize::try_from(own / STEP).unwrap_or(CLASSES).min(CLASSES - 1);
        self.classes[class] += 1;
        if own > self.longest.held.own() {
            self.longest = Longest { held, scanned, expired };
        }
    }

    /// Slices that took more than a millisecond.
    pub(crate) fn long(&self) -> u64 {
        self.long
    }

    /// The time that at most one slice of ten thousand exceeds, rounded up to a step.
    pub(crate) fn percentile_9999(&self) -> u64 {
        let mut beyond = self.slices / 10_000;
        for (class, &count) in self.classes.iter().enumerate().rev() {
            if count > beyond {
                let upper = (class as u64 + 1) * STEP;
                return if class + 1 == CLASSES {
                    self.longest.held.own()
                } else {
                    upper.min(self.longest.held.own())
                };
            }
            beyond -= count;
        }
        0
    }

    /// The longest slice as statistics show it.
    pub(crate) fn longest(&self) -> Value {
        let Longest { held: Held { elapsed, processor, commit }, scanned, expired } = self.longest;
        Value::map([
            ("us", elapsed),
            ("cpu_us", processor),
            ("commit_us", commit),
            ("scanned", scanned),
            ("expired", expired),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(processor: u64) -> Held {
        Held { elapsed: processor + 7, processor, commit: 1 }
    }

    #[test]
    fn one_of_ten_thousand_may_be_longer() {
        let mut holds = Holds::default();
        assert_eq!(holds.percentile_9999(), 0);
        (0..9_998).for_each(|_| holds.note(held(410), 20, 10));
        holds.note(held(520), 30, 30);
        assert_eq!(holds.percentile_9999(), 520, "of fewer than ten thousand none");
        holds.note(held(3_000), 40, 2);
        assert_eq!((holds.percentile_9999(), holds.long()), (525, 1));
        (0..10_000).for_each(|_| holds.note(held(410), 20, 10));
        assert_eq!(holds.percentile_9999(), 425, "two of twenty thousand are longer");
        (0..30).for_each(|_| holds.note(held(2_500), 20, 10));
        assert_eq!(
            (holds.percentile_9999(), holds.long()),
            (3_000, 31),
            "beyond the last class the longest is told"
        );
        assert_eq!(holds.longest().get("scanned"), Some(&Value::Uint(40)));
        assert_eq!(holds.longest().get("expired"), Some(&Value::Uint(2)));
    }

    #[test]
    fn without_a_clock_of_the_processor_the_other_counts() {
        let mut holds = Holds::default();
        holds.note(Held { elapsed: 1_200, processor: 0, commit: 0 }, 1, 1);
        assert_eq!((holds.long(), holds.percentile_9999()), (1, 1_200));
    }
}
