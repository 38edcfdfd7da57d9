//! A short history: an hour by ten seconds and a day by five minutes.
//!
//! The instance has one and each of the [`MAX_HISTORIES`] busiest tubes. A busier tube takes the place of the least busy one,
//! whose history is then lost.

use std::collections::VecDeque;

use lycosa_tuple::mp;

use super::rates::Counts;
use crate::members::Members;
use crate::statistics::TaskCounts;
use crate::tube::handle::TubeIndex;

/// Tubes with a history at most.
pub const MAX_HISTORIES: usize = 100;
/// Periods of ten seconds: an hour.
const FINE: usize = 360;
/// Periods of five minutes: a day.
const COARSE: usize = 288;
/// Fine periods in a coarse one.
const RATIO: u64 = 30;

/// A period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Point {
    /// Tasks at its end: ready, taken, delayed and buried.
    pub tasks: [u32; 4],
    /// Puts, takes and acks in it.
    pub counts: [u32; 3],
}

impl Point {
    fn new(tasks: TaskCounts, counts: Counts) -> Self {
        let short = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        Self {
            tasks: [tasks.ready, tasks.taken, tasks.delayed, tasks.buried].map(short),
            counts: counts.map(short),
        }
    }
}

/// Periods, the last one at the end.
#[derive(Debug, Clone, Default)]
pub struct History {
    fine: VecDeque<Point>,
    coarse: VecDeque<Point>,
    /// The coarse period that has not ended.
    open: [u64; 3],
    /// Number of the fine period at the end, since the epoch.
    last: u64,
}

impl History {
    /// Bytes that one takes at most.
    pub(crate) const MAX_BYTES: usize = size_of::<Self>() + (FINE + COARSE) * size_of::<Point>();

    /// The period of that number has ended, and `idle` periods without operations behind it.
    pub(crate) fn close(&mut self, period: u64, tasks: TaskCounts, counts: Counts, idle: u64) {
        if self.fine.capacity() == 0 {
            self.fine.reserve_exact(FINE);
            self.coarse.reserve_exact(COARSE);
        }
        // An idle day replaces every point.
        let idle = idle.min(RATIO * COARSE as u64);
        for number in 0..=idle {
            let counts = if number == 0 { counts } else { [0; 3] };
            push(&mut self.fine, FINE, Point::new(tasks, counts));
            self.open.iter_mut().zip(counts).for_each(|(open, count)| *open += count);
            if (period + number + 1).is_multiple_of(RATIO) {
                push(&mut self.coarse, COARSE, Point::new(tasks, std::mem::take(&mut self.open)));
            }
        }
        self.last = period + idle;
    }

    /// Periods of ten seconds.
    #[must_use]
    pub fn fine(&self) -> &VecDeque<Point> {
        &self.fine
    }

    /// Periods of five minutes.
    #[must_use]
    pub fn coarse(&self) -> &VecDeque<Point> {
        &self.coarse
    }

    /// Appends a map: `until` is the end of the last fine period in seconds since the epoch; `fine` and `coarse` are arrays
    /// of `[ready, taken, delayed, buried, puts, takes, acks]`, the last one at the end.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut map = Members::new(out);
        map.number("until", (self.last + 1) * 10);
        for (name, points) in [("fine", &self.fine), ("coarse", &self.coarse)] {
            let out = map.name(name);
            mp::write_array(out, points.len() as u32);
            for Point { tasks, counts } in points {
                mp::write_array(out, 7);
                tasks.iter().chain(counts).for_each(|number| mp::write_uint(out, (*number).into()));
            }
        }
    }
}

fn push(points: &mut VecDeque<Point>, limit: usize, point: Point) {
    if points.len() == limit {
        points.pop_front();
    }
    points.push_back(point);
}

/// The tubes that have a history.
#[derive(Debug, Default)]
pub(crate) struct Histories {
    /// With their business ([`super::rates::Rates::business`]) and the period in which it was that.
    holders: Vec<(TubeIndex, f32, u64)>,
}

/// What becomes of a tube that has closed a period.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// It has a history, or gets one.
    Holds,
    /// It takes the place of that tube.
    Replaces(TubeIndex),
    /// Others are busier.
    Not,
}

impl Histories {
    /// A tube is this busy at the end of that period.
    pub(crate) fn claim(&mut self, tube: TubeIndex, business: f32, period: u64) -> Claim {
        if let Some(holder) = self.holders.iter_mut().find(|holder| holder.0 == tube) {
            *holder = (tube, business, period);
            return Claim::Holds;
        }
        if self.holders.len() < MAX_HISTORIES {
            self.holders.push((tube, business, period));
            return Claim::Holds;
        }
        // A tube that is not used says nothing any more: its business decays by a quarter in each quarter of an hour.
        let present = |&(_, business, since): &(TubeIndex, f32, u64)| {
            let quarters = period.saturating_sub(since) as f32 / 90.0;
            business * 0.75_f32.powf(quarters)
        };
        match self.holders.iter_mut().min_by(|a, b| present(a).total_cmp(&present(b))) {
            // Twice as busy: equals must not take turns.
            Some(least) if business > 2.0 * present(least) => {
                Claim::Replaces(std::mem::replace(least, (tube, business, period)).0)
            }
            _ => Claim::Not,
        }
    }

    /// The tube is gone.
    pub(crate) fn forget(&mut self, tube: TubeIndex) {
        self.holders.retain(|holder| holder.0 != tube);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(ready: u64) -> TaskCounts {
        TaskCounts { ready, ..TaskCounts::default() }
    }

    #[test]
    fn an_hour_and_a_day_are_kept() {
        let mut history = History::default();
        for period in 0..20_000 {
            history.close(period, ready(period), [1, 2, 3], 0);
        }
        assert_eq!((history.fine().len(), history.coarse().len()), (FINE, COARSE));
        assert_eq!(history.fine().back(), Some(&Point::new(ready(19_999), [1, 2, 3])));
        assert_eq!(history.coarse().back(), Some(&Point::new(ready(19_979), [30, 60, 90])));
        assert!(history.fine.capacity() + history.coarse.capacity() <= FINE + COARSE);
    }

    #[test]
    fn idle_periods_repeat_the_tasks() {
        let mut history = History::default();
        history.close(5, ready(7), [4, 0, 0], 60);
        assert_eq!(history.fine().len(), 61);
        assert_eq!(history.fine()[0], Point::new(ready(7), [4, 0, 0]));
        assert_eq!(history.fine()[60], Point::new(ready(7), [0; 3]));
        assert_eq!(history.coarse().iter().map(|point| point.counts[0]).collect::<Vec<_>>(), [4, 0]);
        history.close(66, ready(1), [1, 1, 1], u64::MAX - 100);
        assert_eq!((history.fine().len(), history.coarse().len()), (FINE, COARSE));
    }

    #[test]
    fn a_busier_tube_takes_the_place_of_the_least_busy_one() {
        let mut histories = Histories::default();
        for tube in 0..MAX_HISTORIES as TubeIndex {
            assert_eq!(histories.claim(tube, 10.0 + tube as f32, 1), Claim::Holds);
        }
        assert_eq!(histories.claim(500, 15.0, 1), Claim::Not);
        assert_eq!(histories.claim(500, 25.0, 1), Claim::Replaces(0));
        assert_eq!(histories.claim(500, 1.0, 2), Claim::Holds);
        histories.forget(3);
        assert_eq!(histories.claim(501, 0.1, 2), Claim::Holds);
        // The other tubes have been idle for days.
        assert_eq!(histories.claim(500, 30.0, 100_000), Claim::Holds);
        assert!(matches!(histories.claim(502, 0.5, 100_000), Claim::Replaces(_)));
    }
}
