//! The next task of each sub-queue that is free, in the order in which takes get them.
//!
//! A sub-queue is *busy* while one of its tasks is taken. Without this structure a take would walk over the ready tasks
//! of busy sub-queues, a million of them if need be. With it a take costs one step, and a change of a task costs two
//! look-ups in the space's index by sub-queue and one step here.
//!
//! The invariant: the candidate of a sub-queue is its first ready task, if none of its tasks is taken; there is no
//! other. It is a function of the space, so it is never repaired but computed again for each sub-queue that a change
//! touched: after the change, and once more if the change is rolled back. What kind of change it was ([`Touch`]) saves
//! most of the look-ups.

use std::collections::{BTreeSet, HashMap};

use foldhash::fast::RandomState;

use super::Tasks;
use crate::error::Error;
use crate::task::{self, Layout, State, Task, name_key};

/// What decides between candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CandidateOrder {
    /// The lowest id.
    Id,
    /// The lowest priority, then the lowest id.
    PriorityThenId,
}

/// A task that a take may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Candidate {
    /// Its priority; 0 where the order is by id.
    pub pri: u64,
    /// Its id.
    pub id: u64,
}

/// What has happened in a sub-queue since its candidate was computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touch {
    /// A task was taken: the sub-queue is busy.
    Taken,
    /// Only this: a task became ready.
    Arrived(Candidate),
    /// Only this: a task is no longer ready, and not because it was taken.
    Left(Candidate),
    /// Anything, or several things.
    Anyhow,
}

/// All candidates of a tube.
#[derive(Debug)]
pub struct Candidates {
    order: CandidateOrder,
    by_name: HashMap<Box<[u8]>, Candidate, RandomState>,
    sorted: BTreeSet<Candidate>,
}

impl Candidates {
    /// None yet.
    #[must_use]
    pub fn new(order: CandidateOrder) -> Self {
        Self { order, by_name: HashMap::default(), sorted: BTreeSet::new() }
    }

    /// The id of the task that is next.
    #[must_use]
    pub fn first(&self) -> Option<u64> {
        self.sorted.first().map(|candidate| candidate.id)
    }

    /// Number of free sub-queues with a ready task.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Whether no take can have anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// The sub-queues and their candidates, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Candidate)> {
        self.by_name.iter().map(|(name, candidate)| (&**name, *candidate))
    }

    /// The candidate of one sub-queue.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<Candidate> {
        self.by_name.get(name).copied()
    }

    /// Takes all out.
    #[must_use]
    pub fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new(self.order))
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.by_name.clear();
        self.sorted.clear();
    }

    /// Puts `candidate` in the place of the sub-queue's present one.
    pub fn set(&mut self, name: &[u8], candidate: Option<Candidate>) {
        self.exchange(name, self.get(name), candidate);
    }

    /// Puts `new` in the place of `old`, which is the sub-queue's present candidate.
    pub fn exchange(&mut self, name: &[u8], old: Option<Candidate>, new: Option<Candidate>) {
        debug_assert_eq!(old, self.get(name));
        if old == new {
            return;
        }
        if let Some(old) = &old {
            self.sorted.remove(old);
        }
        let Some(new) = new else {
            self.by_name.remove(name);
            return;
        };
        self.sorted.insert(new);
        match old {
            None => _ = self.by_name.insert(name.into(), new),
            Some(_) => _ = self.by_name.get_mut(name).map(|place| *place = new),
        }
    }

    /// The candidate that the sub-queue should have, in the place of the `present` one, after a change of that kind.
    ///
    /// # Errors
    /// The space is gone.
    pub fn compute(
        &self,
        tasks: Tasks<'_>,
        layout: &Layout,
        name: &[u8],
        present: Option<Candidate>,
        touch: Touch,
    ) -> Result<Option<Candidate>, Error> {
        match (touch, present) {
            (Touch::Taken, _) => Ok(None),
            (Touch::Arrived(new), Some(present)) => Ok(Some(present.min(new))),
            (Touch::Arrived(new), None) => Ok(if Self::is_busy(tasks, name)? { None } else { Some(new) }),
            (Touch::Left(gone), Some(present)) if present == gone => self.first_ready(tasks, layout, name),
            (Touch::Left(_), present) => Ok(present),
            (Touch::Anyhow, _) if Self::is_busy(tasks, name)? => Ok(None),
            (Touch::Anyhow, _) => self.first_ready(tasks, layout, name),
        }
    }

    fn is_busy(tasks: Tasks<'_>, name: &[u8]) -> Result<bool, Error> {
        Ok(tasks.first(tasks.indexes.utube, &name_key(State::Taken, name, &[]))?.is_some())
    }

    fn first_ready(
        &self,
        tasks: Tasks<'_>,
        layout: &Layout,
        name: &[u8],
    ) -> Result<Option<Candidate>, Error> {
        let first = tasks.first(self.index(tasks), &name_key(State::Ready, name, &[]))?;
        Ok(first.and_then(|tuple| Task::read(tuple, layout)).map(|task| self.of(&task)))
    }

    /// Computes all candidates anew, with a few look-ups per sub-queue.
    ///
    /// # Errors
    /// The space is gone.
    pub fn rebuild(&mut self, tasks: Tasks<'_>, layout: &Layout) -> Result<(), Error> {
        self.clear();
        let index = self.index(tasks);
        let mut key = task::ShortKey::state(State::Ready, &[]).to_vec();
        let mut iterator = lycosa_store::IteratorType::Ge;
        while let Some(tuple) = tasks.store.first(tasks.space, index, iterator, &key)? {
            let Some(task) = Task::read(tuple, layout) else { break };
            if task.state() != Some(State::Ready) {
                break;
            }
            let busy = Self::is_busy(tasks, task.utube)?;
            if !busy {
                self.set(task.utube, Some(self.of(&task)));
            }
            key = match self.order {
                CandidateOrder::Id => name_key(State::Ready, task.utube, &[u64::MAX]),
                CandidateOrder::PriorityThenId => name_key(State::Ready, task.utube, &[u64::MAX, u64::MAX]),
            };
            iterator = lycosa_store::IteratorType::Gt;
        }
        Ok(())
    }

    fn index(&self, tasks: Tasks<'_>) -> lycosa_store::IndexId {
        match self.order {
            CandidateOrder::Id => tasks.indexes.utube,
            CandidateOrder::PriorityThenId => tasks.indexes.utube_pri,
        }
    }

    fn of(&self, task: &Task<'_>) -> Candidate {
        let pri = match self.order {
            CandidateOrder::Id => 0,
            CandidateOrder::PriorityThenId => task.pri,
        };
        Candidate { pri, id: task.id }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_candidate_is_first() {
        let mut candidates = Candidates::new(CandidateOrder::PriorityThenId);
        assert_eq!((candidates.get(b"a"), candidates.get(b"b")), (None, None));
        candidates.set(b"a", Some(Candidate { pri: 5, id: 0 }));
        assert_eq!(candidates.get(b"b"), None);
        candidates.set(b"b", Some(Candidate { pri: 3, id: 7 }));
        assert_eq!(candidates.first(), Some(7));
        assert_eq!(candidates.get(b"b"), Some(Candidate { pri: 3, id: 7 }));
        candidates.set(b"b", None);
        assert_eq!((candidates.first(), candidates.get(b"b")), (Some(0), None));
        assert_eq!(candidates.get(b"a"), Some(Candidate { pri: 5, id: 0 }));
        candidates.set(b"a", Some(Candidate { pri: 1, id: 9 }));
        assert_eq!((candidates.first(), candidates.len()), (Some(9), 1));
        assert_eq!(candidates.get(b"a"), Some(Candidate { pri: 1, id: 9 }));
    }
}
