//! Deadlines of a tube's tasks.
//!
//! A tube's index `watch` knows every deadline of its tasks exactly, so the queue keeps one number per tube: a moment
//! before which nothing is due. It may be too early (the task whose deadline it was is gone), never too late: every
//! change of a task lowers it if need be, and only a look into the index raises it. Millions of deadlines thus cost
//! a put or take one comparison. A driver that has no task before a time lowers the number too.

use std::collections::BTreeSet;

use crate::time::NEVER;
use crate::tube::handle::TubeIndex;

/// The tubes by the moment before which nothing is due.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    sorted: BTreeSet<(u64, TubeIndex)>,
    /// By tube; [`NEVER`] and no entry are the same.
    bounds: Vec<u64>,
}

impl Deadlines {
    /// The present bound of a tube.
    pub(crate) fn bound(&self, tube: TubeIndex) -> u64 {
        self.bounds.get(tube as usize).copied().unwrap_or(NEVER)
    }

    /// Something of the tube is due at `moment`.
    pub(crate) fn lower(&mut self, tube: TubeIndex, moment: u64) {
        if moment < self.bound(tube) {
            self.set(tube, moment);
        }
    }

    /// Nothing of the tube is due before `moment`.
    pub(crate) fn set(&mut self, tube: TubeIndex, moment: u64) {
        let position = tube as usize;
        if position >= self.bounds.len() {
            self.bounds.resize(position + 1, NEVER);
        }
        let old = std::mem::replace(&mut self.bounds[position], moment);
        if old != NEVER {
            self.sorted.remove(&(old, tube));
        }
        if moment != NEVER {
            self.sorted.insert((moment, tube));
        }
    }

    /// The tubes of which something may be due.
    pub(crate) fn due(&self, now: u64) -> impl Iterator<Item = TubeIndex> {
        self.sorted.range(..=(now, TubeIndex::MAX)).map(|&(_, tube)| tube)
    }

    /// The tube that is due first.
    pub(crate) fn first(&self) -> Option<(u64, TubeIndex)> {
        self.sorted.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_go_down_by_changes_and_up_by_looking() {
        let mut deadlines = Deadlines::default();
        deadlines.lower(0, 10);
        deadlines.lower(1, 7);
        deadlines.lower(0, 20);
        assert_eq!(deadlines.first(), Some((7, 1)));
        deadlines.set(1, 30);
        assert_eq!(deadlines.first(), Some((10, 0)));
        deadlines.set(0, NEVER);
        deadlines.set(1, NEVER);
        assert_eq!(deadlines.first(), None);
        assert_eq!(deadlines.bound(0), NEVER);
    }
}
