//! Waiting calls: takes that wait for a task, puts that wait for capacity.
//!
//! A waiting call is a value under the number of its request; no thread or fiber stands behind it. Numbers of requests
//! grow, so the lowest one in a line has waited longest and is served first. The tubes decide
//! which call is served; this module keeps each call's line, deadline and connection.
//!
//! Invariant: a request is in the line of exactly one tube, in the list of exactly one connection, and among the
//! timeouts exactly if its deadline ever comes.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::consumers::{CallKey, ConsumerRows};
use crate::integer_map::IntegerMap;
use crate::leases::Form;
use crate::repeat::TakeName;
use crate::right::claim::Claim;
use crate::time::NEVER;
use crate::tube::handle::TubeIndex;

/// The event that a call waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// A task to take.
    Task(Form),
    /// At least one task to take.
    Tasks {
        /// Number of tasks at most.
        limit: u32,
        /// Form of each.
        form: Form,
    },
    /// Capacity for a task: the arguments of the put, as they came.
    Capacity(Arc<[u8]>),
    /// Capacity for all tasks of a batch.
    CapacityForMany {
        /// Number of tasks.
        tasks: u32,
        /// The arguments of the put, as they came.
        arguments: Arc<[u8]>,
    },
}

impl Wanted {
    /// In which line such a call stands.
    pub(crate) const fn line(&self) -> Line {
        match self {
            Self::Task(_) | Self::Tasks { .. } => Line::Takes,
            Self::Capacity(_) | Self::CapacityForMany { .. } => Line::Puts,
        }
    }
}

/// A waiting call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub(crate) connection: u64,
    /// By what right it waits.
    pub(crate) claim: Claim,
    /// Number of the request, for the answer; larger than those of requests before it.
    pub(crate) request: u64,
    pub(crate) wanted: Wanted,
    /// The name of a take that has one.
    pub(crate) name: Option<TakeName>,
    /// When it began to wait, µs since the epoch.
    pub(crate) since: u64,
    /// When it gives up.
    pub(crate) deadline: u64,
}

/// Where a waiting call stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Line {
    Takes,
    Puts,
}

/// All waiting calls.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    lines: BTreeMap<(TubeIndex, Line, u64), Waiter>,
    positions: BTreeMap<CallKey, (TubeIndex, Line)>,
    timeouts: BTreeSet<(u64, u64, u64)>,
    /// Numbers of waiting calls by tube and line; a tube in which nothing waits has no entry.
    counts: IntegerMap<TubeIndex, [u32; 2]>,
    /// How `_queue_consumers` differs.
    pub(crate) rows: ConsumerRows,
}

impl Waiters {
    pub(crate) fn len(&self) -> usize {
        self.lines.len()
    }

    /// How many calls wait in a line of a tube.
    pub(crate) fn count(&self, tube: TubeIndex, line: Line) -> u32 {
        self.counts.get(&tube).map_or(0, |counts| counts[line as usize])
    }

    /// All of them.
    pub(crate) fn requests(&self) -> impl Iterator<Item = CallKey> {
        self.positions.keys().copied()
    }

    /// A waiting call, and the tube in which it waits.
    pub(crate) fn get(&self, connection: u64, request: u64) -> Option<(TubeIndex, &Waiter)> {
        let &(tube, line) = self.positions.get(&(connection, request))?;
        self.lines.get(&(tube, line, request)).map(|waiter| (tube, waiter))
    }

    /// Forgets the calls that wait in a tube.
    pub(crate) fn forget_tube(&mut self, tube: TubeIndex) {
        let waiting: Vec<_> =
            self.of_tube(tube).map(|(request, waiter)| (waiter.connection, request)).collect();
        waiting.into_iter().for_each(|(connection, request)| _ = self.remove(connection, request));
    }

    /// Puts a call at the end of its line.
    pub(crate) fn push(&mut self, tube: TubeIndex, waiter: Waiter) {
        let Waiter { connection, request, deadline, .. } = waiter;
        let line = waiter.wanted.line();
        self.positions.insert((connection, request), (tube, line));
        if deadline != NEVER {
            self.timeouts.insert((deadline, request, connection));
        }
        if line == Line::Takes {
            self.rows.begin((connection, request));
        }
        self.lines.insert((tube, line, request), waiter);
        self.counts.entry(tube).or_default()[line as usize] += 1;
    }

    /// The call that has waited longest in a line.
    pub(crate) fn first(&self, tube: TubeIndex, line: Line) -> Option<(u64, &Waiter)> {
        if self.lines.is_empty() {
            return None;
        }
        let mut range = self.lines.range((tube, line, 0)..=(tube, line, u64::MAX));
        range.next().map(|(&(_, _, request), waiter)| (request, waiter))
    }

    /// All of a tube's waiting calls, by line and request.
    pub(crate) fn of_tube(&self, tube: TubeIndex) -> impl Iterator<Item = (u64, &Waiter)> {
        let range = self.lines.range((tube, Line::Takes, 0)..=(tube, Line::Puts, u64::MAX));
        range.map(|(&(_, _, request), waiter)| (request, waiter))
    }

    /// `_queue_consumers` is empty.
    pub(crate) fn forget_rows(&mut self) {
        let takes = self.lines.iter().filter(|((_, line, _), _)| *line == Line::Takes);
        self.rows.begin_anew(takes.map(|(_, waiter)| (waiter.connection, waiter.request)).collect());
    }

    /// The earliest deadline of a waiting call.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.timeouts.first().map(|&(deadline, _, _)| deadline)
    }

    /// A call whose deadline is not later than `now`.
    pub(crate) fn due(&self, now: u64) -> Option<(u64, u64)> {
        let &(deadline, request, connection) = self.timeouts.first()?;
        (deadline <= now).then_some((connection, request))
    }

    /// A waiting call of a connection.
    pub(crate) fn of_connection(&self, connection: u64) -> Option<u64> {
        let mut range = self.positions.range((connection, 0)..=(connection, u64::MAX));
        range.next().map(|(&(_, request), _)| request)
    }

    /// Takes a call out of its line.
    pub(crate) fn remove(&mut self, connection: u64, request: u64) -> Option<(TubeIndex, Waiter)> {
        let (tube, line) = self.positions.remove(&(connection, request))?;
        let waiter = self.lines.remove(&(tube, line, request))?;
        if waiter.deadline != NEVER {
            self.timeouts.remove(&(waiter.deadline, request, connection));
        }
        if line == Line::Takes {
            self.rows.end((connection, request));
        }
        if let Entry::Occupied(mut counts) = self.counts.entry(tube) {
            counts.get_mut()[line as usize] -= 1;
            if *counts.get() == [0; 2] {
                counts.remove();
            }
        }
        Some((tube, waiter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(connection: u64, request: u64, deadline: u64) -> Waiter {
        let wanted = Wanted::Task(Form::Plain);
        let claim = Claim::of_instance();
        Waiter { connection, claim, request, wanted, name: None, since: 0, deadline }
    }

    #[test]
    fn lines_are_first_come_first_served_whatever_the_deadline() {
        let mut waiters = Waiters::default();
        let [first, second, other] = [7, 8, 9];
        waiters.push(0, take(1, first, NEVER));
        waiters.push(0, take(2, second, 5));
        waiters.push(1, take(1, other, 3));
        assert_eq!(waiters.first(0, Line::Takes).map(|(request, _)| request), Some(first));
        assert_eq!(waiters.first(0, Line::Puts), None);
        assert_eq!(waiters.next_deadline(), Some(3));
        assert_eq!(waiters.due(2), None);
        assert_eq!(waiters.due(3), Some((1, other)));
        assert_eq!([0, 1, 2].map(|tube| waiters.count(tube, Line::Takes)), [2, 1, 0]);
        assert_eq!(waiters.count(0, Line::Puts), 0);
        assert!(waiters.remove(1, other).is_some());
        assert_eq!([0, 1].map(|tube| waiters.count(tube, Line::Takes)), [2, 0]);
        assert!(waiters.remove(1, other).is_none());
        assert_eq!(waiters.next_deadline(), Some(5));
        assert_eq!(waiters.of_connection(1), Some(first));
        assert!(waiters.remove(1, first).is_some());
        assert_eq!(waiters.first(0, Line::Takes).map(|(request, _)| request), Some(second));
        assert_eq!(waiters.len(), 1);
    }
}
