//! Measures of a tube and of the whole queue, taken at each commit.
//!
//! | measured | from | in |
//! |---|---|---|
//! | wait | the put of a task to each take | tubes with deadlines: every take; others: tasks of a [`Sample`] |
//! | work | a take to its ack | every ack |
//! | lateness | a deadline to what it does | every deadline that fires |
//! | rates, history | puts, takes, acks | periods of ten seconds |
//!
//! Invariants: meters and histories take at most [`MAX_BYTES`]; a tube beyond the first [`MAX_METERS`] has counters and no
//! meter; a transaction that is rolled back measures nothing.

use super::busiest::Busiest;
use super::histogram::{Histogram, bucket_of};
use super::history::{History, MAX_HISTORIES};
use super::rates::{Counts, PERIOD, Rates};
use super::sample::Sample;
use crate::counted::{Counted, Place};
use crate::statistics::{Counters, Operation, TaskCounts};

/// Tubes with a meter at most.
pub const MAX_METERS: usize = 8192;

/// Bytes that meters and histories take at most: 32 MiB.
pub const MAX_BYTES: usize = 32 << 20;

/// The present period, and the rates of those before it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pace {
    rates: Rates,
    /// When the period has begun, µs since the epoch, a multiple of [`PERIOD`].
    began: u64,
    /// The counters when it began.
    counted: Counts,
}

/// A period that has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Closed {
    /// Its number since the epoch.
    pub(crate) period: u64,
    pub(crate) counts: Counts,
    /// Periods without operations behind it.
    pub(crate) idle: u64,
}

fn counts_of(counters: &Counters) -> Counts {
    [Operation::Put, Operation::Take, Operation::Ack].map(|operation| counters.get(operation))
}

impl Pace {
    /// Whether the period has ended. A clock that was set back ends it too.
    #[inline]
    pub(crate) fn is_due(&self, now: u64) -> bool {
        now.wrapping_sub(self.began) >= PERIOD
    }

    /// Begins the period of `now`. Returns the one that has ended; none if it is the first.
    #[cold]
    pub(crate) fn close(&mut self, now: u64, counters: &Counters) -> Option<Closed> {
        let counted = counts_of(counters);
        let began = std::mem::replace(&mut self.began, now - now % PERIOD);
        let before = std::mem::replace(&mut self.counted, counted);
        if began == 0 {
            return None;
        }
        let counts = std::array::from_fn(|kind| counted[kind].saturating_sub(before[kind]));
        let idle = (self.began.saturating_sub(began) / PERIOD).saturating_sub(1);
        self.rates.close(counts, idle);
        Some(Closed { period: began / PERIOD, counts, idle })
    }

    /// The rates at `now`.
    pub(crate) fn rates(&self, now: u64, counters: &Counters) -> Rates {
        let mut pace = self.clone();
        if pace.is_due(now) {
            pace.close(now, counters);
        }
        pace.rates
    }

    /// A copy of the history up to the last period that has ended at `now`. Otherwise it would end with the last operation, and
    /// have a gap where nothing happens.
    pub(crate) fn history(
        &self,
        now: u64,
        counters: &Counters,
        tasks: TaskCounts,
        history: &History,
    ) -> History {
        let (mut pace, mut history) = (self.clone(), history.clone());
        if pace.is_due(now)
            && let Some(Closed { period, counts, idle }) = pace.close(now, counters)
        {
            history.close(period, tasks, counts, idle);
        }
        history
    }
}

/// The measures of one tube.
#[derive(Debug, Clone, Default)]
pub(crate) struct Meter {
    pub(crate) wait: Histogram,
    pub(crate) work: Histogram,
    /// When tasks were put, in tubes whose tasks do not say so themselves.
    pub(crate) puts: Sample,
    /// When taken tasks were taken.
    pub(crate) takes: Sample,
    pub(crate) sub_queues: Option<Box<Busiest>>,
    pub(crate) pace: Pace,
    pub(crate) history: Option<Box<History>>,
}

impl Meter {
    /// Bytes that one takes at most, without its history.
    const MAX_BYTES: usize = size_of::<Self>() + Busiest::MAX_BYTES;
}

const _: () = assert!(
    MAX_METERS * Meter::MAX_BYTES + (MAX_HISTORIES + 1) * History::MAX_BYTES + size_of::<Totals>()
        <= MAX_BYTES
);

/// The measures of the whole queue, including tubes without a meter and dropped tubes.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) counters: Counters,
    pub(crate) wait: Histogram,
    pub(crate) work: Histogram,
    pub(crate) lateness: Histogram,
    pub(crate) pace: Pace,
    pub(crate) history: History,
}

impl Totals {
    /// Closes the period if it has ended; `tasks` are those at its end.
    #[inline]
    pub(crate) fn keep_pace(&mut self, now: u64, tasks: impl FnOnce() -> TaskCounts) {
        if self.pace.is_due(now)
            && let Some(Closed { period, counts, idle }) = self.pace.close(now, &self.counters)
        {
            self.history.close(period, tasks(), counts, idle);
        }
    }

    /// Measures an operation that was committed, for the tube with this meter and for the queue.
    #[inline]
    pub(crate) fn measure(
        &mut self,
        meter: Option<&mut Meter>,
        operation: Operation,
        counted: &Counted,
        knows_puts: bool,
        now: u64,
    ) {
        let Counted { id, since, to, .. } = *counted;
        self.counters.add(operation);
        let Some(meter) = meter else {
            self.measure_alone(operation, since, now);
            return;
        };
        match operation {
            Operation::Put if !knows_puts => meter.puts.note(id, now),
            Operation::Take => {
                let put = if knows_puts { Some(since) } else { meter.puts.remove(id) };
                if let Some(put) = put {
                    record([&mut meter.wait, &mut self.wait], now.saturating_sub(put));
                }
                meter.takes.note(id, now);
            }
            Operation::Ack => {
                if since > 0 {
                    record([&mut meter.work, &mut self.work], now.saturating_sub(since));
                }
                meter.takes.remove(id);
            }
            Operation::Put | Operation::Touch | Operation::Kick | Operation::Delay => {}
            Operation::Release | Operation::Bury | Operation::Delete | Operation::Ttl | Operation::Ttr => {
                meter.takes.remove(id);
                if to == Place::Nowhere {
                    meter.puts.remove(id);
                }
            }
        }
    }

    #[cold]
    fn measure_alone(&mut self, operation: Operation, since: u64, now: u64) {
        match operation {
            Operation::Take if since > 0 => self.wait.record(now.saturating_sub(since)),
            Operation::Ack if since > 0 => self.work.record(now.saturating_sub(since)),
            _ => {}
        }
    }
}

#[inline]
fn record(histograms: [&mut Histogram; 2], micros: u64) {
    let bucket = bucket_of(micros);
    histograms.into_iter().for_each(|histogram| histogram.record_in(bucket, micros));
}
