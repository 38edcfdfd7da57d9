//! The history of the instance: an hour by ten seconds and a day by five minutes of waiting calls, the age of the oldest ready
//! task, turns and syncs. The queue keeps its own, of tasks and operations.
//!
//! The host asks for it ([`Instance::keep_history`]); without that nothing is measured and no deadline is added. A period ends
//! by a deadline, so a server at rest has a history too. The oldest task is looked for in steps ([`STEP`]), each within
//! the share that a turn gives its sources.
//!
//! Invariants: at most [`FINE`] and [`COARSE`] points; a period in which the loop stood still has points without values.
//!
//! [`Instance::keep_history`]: crate::Instance::keep_history

mod periods;

use std::collections::VecDeque;

use lycosa_queue::Members;
use lycosa_queue::status::Histogram;
use lycosa_tuple::mp;
use lycosa_tuple::value::Value;

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

    /// Appends the history as a map. `until` is in seconds since the epoch. `fine` and `coarse` have arrays of
    /// `[waiting calls, age of the oldest ready task, p99 of turns, p99 of syncs]`, the latest at the end. Times are in
    /// seconds, and an unknown value is nil.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let mut map = Members::new(out);
        map.number("until", self.period * (PERIOD / 1_000_000));
        for (name, points) in [("fine", &self.fine), ("coarse", &self.coarse)] {
            let out = map.name(name);
            mp::write_array(out, points.len() as u32);
            for point in points {
                let Some(point) = point else {
                    mp::write_nil(out);
                    continue;
                };
                mp::write_array(out, 4);
                mp::write_uint(out, point.waiting.into());
                for (duration, unit) in [(point.oldest, 1e3), (point.turn, 1e6), (point.sync, 1e6)] {
                    Value::from(duration.map(|duration| f64::from(duration) / unit)).write(out);
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
