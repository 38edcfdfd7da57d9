//! The history of the instance: an hour by ten seconds and a day by five minutes of waiting calls, the age of the oldest ready
//! task, turns and syncs. The queue keeps its own, of tasks and operations.
//!
//! The host asks for it ([`Instance::keep_history`]); without that nothing is measured and no deadline is added. A period ends
//! by a deadline, so a server at rest has a history too. The oldest task is looked for in steps ([`STEP`]), each within
//! the share that a turn gives its sources.
//!
//! Invariants: at most [`FINE`] and [`COARSE`] points; a period in which the loop stood still has points without values.

use std::collections::VecDeque;

use lycosa_queue::status::Histogram;
use lycosa_store::Budget;
use lycosa_tuple::mp;

use crate::Instance;

/// Length of a period, µs.
pub(crate) const PERIOD: u64 = 10_000_000;
/// Periods of ten seconds: an hour.
const FINE: usize = 360;
/// Periods of five minutes: a day.
const COARSE: usize = 288;
/// Periods of ten seconds in a minute.
const MINUTE: usize = 6;
/// Fine periods in a coarse one.
const RATIO: u64 = 30;
/// Tubes, and look-ups in their indexes, of a step.
const STEP: Budget<'static> = Budget::of_rows(128);
/// Microseconds after which a step ends: look-ups in cold memory take 20 times as long.
const STEP_TIME: u64 = 100;

/// A period. Durations are in µs; of a coarse one all are the largest of its fine ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Point {
    /// Calls that waited at its end.
    waiting: u32,
    /// Age of the oldest ready task at its end, in ms, as far as tubes know it.
    oldest: Option<u32>,
    /// The 99th percentile of turns.
    turn: Option<u32>,
    /// The same of syncs of the journal.
    sync: Option<u32>,
}

impl Point {
    fn larger(self, other: Self) -> Self {
        Self {
            waiting: self.waiting.max(other.waiting),
            oldest: self.oldest.max(other.oldest),
            turn: self.turn.max(other.turn),
            sync: self.sync.max(other.sync),
        }
    }
}

/// The search for the oldest ready task at the end of a period.
#[derive(Debug, Default)]
struct Search {
    after: Option<u64>,
    /// µs.
    oldest: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Pulse {
    /// Number of the present period, since the epoch.
    period: u64,
    search: Option<Search>,
    turns: Histogram,
    syncs: Histogram,
    fine: VecDeque<Option<Point>>,
    coarse: VecDeque<Option<Point>>,
    /// The coarse period that has not ended.
    open: Option<Point>,
    /// Errors of programs at the ends of the periods of the last minute, the oldest first.
    program_errors: VecDeque<u64>,
}

impl Pulse {
    fn new(now: u64, turns: &Histogram, syncs: &Histogram) -> Self {
        Self {
            period: now / PERIOD,
            search: None,
            turns: turns.clone(),
            syncs: syncs.clone(),
            fine: VecDeque::with_capacity(FINE),
            coarse: VecDeque::with_capacity(COARSE),
            open: None,
            program_errors: VecDeque::with_capacity(MINUTE),
        }
    }

    /// Ends the present period with this point; it is now period number `next`.
    fn close(&mut self, point: Point, next: u64) {
        // A clock that was set back, or a day of which nothing is known.
        let ended = next.saturating_sub(self.period).min(RATIO * COARSE as u64).max(1);
        for number in 0..ended {
            let point = (number == 0).then_some(point);
            push(&mut self.fine, FINE, point);
            self.open = match (self.open, point) {
                (Some(open), Some(point)) => Some(open.larger(point)),
                (open, point) => open.or(point),
            };
            if (self.period + number + 1).is_multiple_of(RATIO) {
                push(&mut self.coarse, COARSE, self.open.take());
            }
        }
        self.period = next;
    }

    fn write(&self, out: &mut Vec<u8>) {
        mp::write_map(out, 3);
        mp::write_str(out, b"until");
        mp::write_uint(out, self.period * (PERIOD / 1_000_000));
        for (name, points) in [("fine", &self.fine), ("coarse", &self.coarse)] {
            mp::write_str(out, name.as_bytes());
            mp::write_array(out, points.len() as u32);
            for point in points {
                let Some(point) = point else {
                    mp::write_nil(out);
                    continue;
                };
                mp::write_array(out, 4);
                mp::write_uint(out, point.waiting.into());
                for (duration, unit) in [(point.oldest, 1e3), (point.turn, 1e6), (point.sync, 1e6)] {
                    match duration {
                        Some(duration) => mp::write_double(out, f64::from(duration) / unit),
                        None => mp::write_nil(out),
                    }
                }
            }
        }
    }
}

fn push(points: &mut VecDeque<Option<Point>>, limit: usize, point: Option<Point>) {
    if points.len() == limit {
        points.pop_front();
    }
    points.push_back(point);
}

fn short(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Instance {
    /// From now on the instance keeps a history of itself. To be called once, when it starts.
    pub fn keep_history(&mut self) {
        let pulse = Pulse::new(self.shard.now(), self.loop_time.turns(), &self.measures.journal_sync);
        self.pulse = Some(Box::new(pulse));
    }

    /// When the present period ends, µs since the epoch; in the past if it has to be closed now. None: no history is kept.
    pub(crate) fn next_pulse(&self) -> Option<u64> {
        let pulse = self.pulse.as_deref()?;
        Some((pulse.period + 1).saturating_mul(PERIOD))
    }

    /// Does a step if a period has ended. Returns whether there is more to do.
    pub(crate) fn step_pulse(&mut self) -> bool {
        let now = self.shard.now();
        let Some(mut pulse) = self.pulse.take() else { return false };
        // A clock that was set back ends the period too.
        if pulse.search.is_none() && now / PERIOD != pulse.period {
            pulse.search = Some(Search::default());
        }
        let mut more = false;
        if let Some(search) = &mut pulse.search {
            let (store, queue) = (self.shard.store(), self.shard.queue());
            let (oldest, next) = self
                .loop_time
                .clocks
                .limit(STEP, STEP_TIME, |budget| queue.oldest_ready(store, search.after, budget, now));
            search.oldest = search.oldest.max(oldest);
            search.after = next;
            more = next.is_some();
            if !more {
                let (turns, syncs) = (self.loop_time.turns(), &self.measures.journal_sync);
                let share =
                    |present: &Histogram, before: &Histogram| present.since(before).quantile(0.99).map(short);
                let point = Point {
                    waiting: short(self.status().waiting_calls as u64),
                    oldest: search.oldest.map(|age| short(age / 1000)),
                    turn: share(turns, &pulse.turns),
                    sync: share(syncs, &pulse.syncs),
                };
                (pulse.turns, pulse.syncs, pulse.search) = (turns.clone(), syncs.clone(), None);
                pulse.close(point, now / PERIOD);
                if pulse.program_errors.len() == MINUTE {
                    pulse.program_errors.pop_front();
                }
                pulse.program_errors.push_back(self.measures.programs.errors);
            }
        }
        self.pulse = Some(pulse);
        more
    }

    /// The largest p99 of the journal's syncs in the periods of the last minute, in seconds; None: there was none.
    pub(crate) fn recent_sync(&self) -> Option<f64> {
        let recent = self.pulse.as_deref()?.fine.iter().rev().take(MINUTE);
        recent.filter_map(|point| point.as_ref()?.sync).max().map(|micros| f64::from(micros) / 1e6)
    }

    /// Errors of programs within the last minute, or since the start.
    pub(crate) fn recent_program_errors(&self) -> u64 {
        let before = self.pulse.as_deref().and_then(|pulse| pulse.program_errors.front());
        let is_full = self.pulse.as_deref().is_some_and(|pulse| pulse.program_errors.len() == MINUTE);
        let before = before.filter(|_| is_full).copied().unwrap_or(0);
        self.measures.programs.errors.saturating_sub(before)
    }

    /// Appends the history, if one is kept, as a map. `until` is in seconds since the epoch. `fine` and `coarse` have arrays of
    /// `[waiting calls, age of the oldest ready task, p99 of turns, p99 of syncs]`, the latest at the end. Times are in
    /// seconds, and an unknown value is nil.
    pub(crate) fn write_pulse(&self, out: &mut Vec<u8>) {
        if let Some(pulse) = &self.pulse {
            pulse.write(out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(waiting: u32) -> Point {
        Point { waiting, oldest: Some(waiting), ..Point::default() }
    }

    fn pulse() -> Pulse {
        Pulse::new(0, &Histogram::default(), &Histogram::default())
    }

    #[test]
    fn an_hour_and_a_day_are_kept_and_coarse_points_are_the_largest() {
        let mut pulse = pulse();
        for period in 0..20_000 {
            pulse.close(point(period), u64::from(period) + 1);
        }
        assert_eq!((pulse.fine.len(), pulse.coarse.len()), (FINE, COARSE));
        assert_eq!(pulse.fine.back(), Some(&Some(point(19_999))));
        // 20 000 is no multiple of 30: the last coarse period ended with 19 979.
        assert_eq!(pulse.coarse.back(), Some(&Some(point(19_979))));
    }

    #[test]
    fn periods_of_a_loop_that_stood_still_have_no_values() {
        let mut pulse = pulse();
        pulse.close(point(1), 10);
        assert_eq!(pulse.fine.len(), 10);
        assert_eq!(pulse.fine.iter().flatten().count(), 1);
        pulse.close(point(2), 1_000_000);
        assert!(pulse.fine.iter().all(Option::is_none));
        assert_eq!((pulse.fine.len(), pulse.coarse.len()), (FINE, COARSE));
        // The clock was set back.
        pulse.close(point(3), 5);
        assert_eq!((pulse.period, pulse.fine.back()), (5, Some(&Some(point(3)))));
    }
}
