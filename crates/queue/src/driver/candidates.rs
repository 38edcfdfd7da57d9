//! The next task of each sub-queue that is free, in the order in which takes get them.
//!
//! A sub-queue is *busy* while one of its tasks is taken. Without this structure a take would walk over the ready tasks
//! of busy sub-queues, a million of them if need be. With it a take costs one step, and a change of a task costs at most one
//! look-up in the space's index by sub-queue and one step here.
//!
//! Invariants:
//! - [`SubQueue::taken`] is the number of the sub-queue's taken tasks.
//! - The candidate of a sub-queue is its first ready task, if none of its tasks is taken; there is no other.
//! - A sub-queue with neither has no entry.
//! - [`SubQueue::ready`] is the number of the sub-queue's ready tasks or unknown. A sub-queue without an entry has none.
//!
//! All of it is a function of the space. A change of a task adjusts the number and computes the candidate again, where the
//! kind of the change ([`Touch`]) and the number of ready tasks save most of the look-ups; a rollback puts back what there
//! was.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Bound;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use lycosa_store::IteratorType;

use super::tasks::Tasks;
use crate::error::Result;
use crate::task::{Layout, NameKey, ShortKey, State, Task};

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

/// Changes of a sub-queue since its candidate was computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touch {
    /// Only this: a task became ready.
    Arrived(Candidate),
    /// Only this: a task is no longer ready, and not because it was taken.
    Left(Candidate),
    /// Anything, or several things.
    Anyhow,
}

/// The candidate of one sub-queue, and its number of taken tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SubQueue {
    /// The task that a take may have.
    pub candidate: Option<Candidate>,
    /// Number of its taken tasks.
    pub taken: u32,
    /// Number of its ready tasks.
    pub ready: ReadyCount,
}

impl SubQueue {
    /// Whether nothing has to be known of the sub-queue.
    fn is_idle(&self) -> bool {
        self.candidate.is_none() && self.taken == 0
    }
}

/// Number of a sub-queue's ready tasks. It is known of a sub-queue all of whose tasks came after the candidates were
/// computed: to compute them does not look at every ready task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadyCount(u32);

impl ReadyCount {
    /// Any number.
    pub const UNKNOWN: Self = Self(u32::MAX);

    /// Whether there certainly is no ready task.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }

    fn grown_by(self, growth: i32) -> Self {
        match self {
            Self::UNKNOWN => self,
            Self(count) => count.checked_add_signed(growth).map_or(Self::UNKNOWN, Self),
        }
    }
}

/// By how much the numbers of a sub-queue's tasks have grown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Growth {
    /// Of taken tasks.
    pub taken: i32,
    /// Of ready tasks.
    pub ready: i32,
}

/// A sub-queue under its name.
#[derive(Debug)]
struct Named {
    name: Box<[u8]>,
    sub_queue: SubQueue,
}

/// How far candidates are computed: see [`Candidates::rebuild_portion`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rebuild {
    /// Taken tasks are being counted; these up to that key of the index of sub-queues are.
    Taken(Option<Vec<u8>>),
    /// The first ready tasks are being found; the sub-queues up to that key of the deciding index have theirs.
    Ready(Option<Vec<u8>>),
    /// All are computed.
    Done,
}

impl Default for Rebuild {
    fn default() -> Self {
        Self::Taken(None)
    }
}

impl Rebuild {
    /// Whether nothing is left to do.
    #[must_use]
    pub fn is_done(&self) -> bool {
        *self == Self::Done
    }
}

/// All candidates of a tube. Clients choose the names, so the table has the standard library's keyed hash: a client
/// cannot make names that collide. A change of a task hashes its name once, for the search and for the new or removed entry.
#[derive(Debug)]
pub struct Candidates {
    /// What decides between candidates.
    pub(crate) order: CandidateOrder,
    by_name: HashTable<Named>,
    hash_keys: RandomState,
    sorted: BTreeSet<Candidate>,
}

fn hash(keys: &RandomState, name: &[u8]) -> u64 {
    let mut hasher = keys.build_hasher();
    hasher.write(name);
    hasher.finish()
}

impl Candidates {
    /// None yet.
    #[must_use]
    pub fn new(order: CandidateOrder) -> Self {
        Self { order, by_name: HashTable::new(), hash_keys: RandomState::new(), sorted: BTreeSet::new() }
    }

    /// Whether both know the same of the same sub-queues, but for the numbers of ready tasks, which only one may know.
    #[must_use]
    pub fn agree_with(&self, other: &Self) -> bool {
        let is_same = |known: &Named| {
            let Named { name, sub_queue } = known;
            let SubQueue { candidate, taken, .. } = other.sub_queue(name);
            (sub_queue.candidate, sub_queue.taken) == (candidate, taken)
        };
        self.order == other.order
            && self.sorted == other.sorted
            && self.by_name.len() == other.by_name.len()
            && self.by_name.iter().all(is_same)
    }

    /// Panics if a known number of ready tasks is not that of the rows.
    ///
    /// # Errors
    /// The space is gone.
    #[cfg(debug_assertions)]
    pub fn verify_ready(&self, tasks: Tasks<'_>) -> Result<()> {
        for Named { name, sub_queue: SubQueue { ready, .. } } in &self.by_name {
            let key = NameKey::new(State::Ready, name, &[]);
            let count = tasks.store.count(tasks.space, tasks.indexes.utube, IteratorType::Eq, &key)?;
            let is_right = *ready == ReadyCount::UNKNOWN || u64::from(ready.0) == count;
            assert!(is_right, "{} has {count} ready tasks, not {ready:?}", name.escape_ascii());
        }
        Ok(())
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

    /// Number of sub-queues with a taken task.
    #[must_use]
    pub fn busy(&self) -> usize {
        // A sub-queue is known for its candidate or for its taken task, and has never both.
        self.by_name.len() - self.sorted.len()
    }

    /// Whether no take can have anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// The candidate of one sub-queue.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<Candidate> {
        self.sub_queue(name).candidate
    }

    fn sub_queue(&self, name: &[u8]) -> SubQueue {
        let found = self.by_name.find(hash(&self.hash_keys, name), |known| *known.name == *name);
        found.map(|known| known.sub_queue).unwrap_or_default()
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

    /// Restores the former entry of a sub-queue.
    pub fn restore(&mut self, name: &[u8], former: SubQueue) {
        let restored = self.update(name, |_| Ok(former));
        debug_assert!(restored.is_ok(), "nothing is looked up");
    }

    /// Lets `f` change the entry of a sub-queue. Returns the former entry, if it has changed.
    ///
    /// # Errors
    /// As `f`.
    pub fn update(
        &mut self,
        name: &[u8],
        f: impl FnOnce(SubQueue) -> Result<SubQueue>,
    ) -> Result<Option<SubQueue>> {
        let Self { by_name, hash_keys, sorted, .. } = self;
        let entry = by_name.entry(
            hash(hash_keys, name),
            |known| *known.name == *name,
            |known| hash(hash_keys, &known.name),
        );
        let old = match &entry {
            Entry::Occupied(known) => known.get().sub_queue,
            Entry::Vacant(_) => SubQueue::default(),
        };
        let new = f(old)?;
        if new == old {
            return Ok(None);
        }
        if new.candidate != old.candidate {
            if let Some(old) = &old.candidate {
                sorted.remove(old);
            }
            if let Some(new) = new.candidate {
                sorted.insert(new);
            }
        }
        match entry {
            Entry::Occupied(known) if new.is_idle() => _ = known.remove(),
            Entry::Occupied(mut known) => known.get_mut().sub_queue = new,
            Entry::Vacant(_) if new.is_idle() => {}
            Entry::Vacant(place) => _ = place.insert(Named { name: name.into(), sub_queue: new }),
        }
        Ok(Some(old))
    }

    /// Accounts for a change of a sub-queue's tasks. Returns the former sub-queue and the present candidate, if anything
    /// has changed.
    ///
    /// # Errors
    /// The space is gone.
    pub fn adjust(
        &mut self,
        tasks: Tasks<'_>,
        layout: &Layout,
        name: &[u8],
        touch: Touch,
        growth: Growth,
    ) -> Result<Option<(SubQueue, Option<Candidate>)>> {
        let order = self.order;
        let mut present = None;
        let changed = self.update(name, |old| {
            let taken = old.taken.saturating_add_signed(growth.taken);
            let mut sub_queue = SubQueue { taken, ready: old.ready.grown_by(growth.ready), ..old };
            sub_queue.candidate = order.compute(tasks, layout, name, sub_queue, touch)?;
            present = sub_queue.candidate;
            Ok(sub_queue)
        })?;
        Ok(changed.map(|former| (former, present)))
    }

    /// Computes all candidates anew, with a few look-ups per sub-queue and a walk over the taken tasks.
    ///
    /// # Errors
    /// The space is gone.
    pub fn rebuild(&mut self, tasks: Tasks<'_>, layout: &Layout) -> Result<()> {
        let mut rebuild = Rebuild::default();
        self.clear();
        while !rebuild.is_done() {
            self.rebuild_portion(tasks, layout, &mut rebuild, usize::MAX)?;
        }
        Ok(())
    }

    /// A portion of [`Self::rebuild`] in candidates that were cleared before the first one: looks at up to `limit` tasks and
    /// returns at how many it has.
    ///
    /// # Errors
    /// As [`Self::rebuild`].
    pub fn rebuild_portion(
        &mut self,
        tasks: Tasks<'_>,
        layout: &Layout,
        rebuild: &mut Rebuild,
        limit: usize,
    ) -> Result<usize> {
        match rebuild {
            Rebuild::Taken(after) => {
                let (count, last) = self.count_taken(tasks, layout, after.as_deref(), limit)?;
                *rebuild = if count == limit { Rebuild::Taken(last) } else { Rebuild::Ready(None) };
                Ok(count)
            }
            Rebuild::Ready(after) => {
                let (count, last) = self.find_ready(tasks, layout, after.take(), limit)?;
                *rebuild = if count == limit { Rebuild::Ready(last) } else { Rebuild::Done };
                Ok(count)
            }
            Rebuild::Done => Ok(0),
        }
    }

    /// Counts up to `limit` taken tasks behind that key. Returns how many there were, and the key of the last one.
    fn count_taken(
        &mut self,
        tasks: Tasks<'_>,
        layout: &Layout,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<(usize, Option<Vec<u8>>)> {
        let first = ShortKey::state(State::Taken, &[]);
        let (iterator, key) = after.map_or((IteratorType::Ge, &*first), |key| (IteratorType::Gt, key));
        let (mut count, mut last) = (0, None);
        for tuple in tasks.store.range(tasks.space, tasks.indexes.utube, iterator, key, 0)? {
            #[cfg(test)]
            crate::cost::count_look_up();
            let task = Task::read(tuple, layout).filter(|task| task.state() == Some(State::Taken));
            let Some(task) = task.filter(|_| count < limit) else { break };
            let known = self.sub_queue(task.utube);
            let taken = known.taken.saturating_add(1);
            self.restore(task.utube, SubQueue { taken, ready: ReadyCount::UNKNOWN, ..known });
            count += 1;
            if count == limit {
                last = Some(NameKey::new(State::Taken, task.utube, &[task.id]).to_vec());
            }
        }
        Ok((count, last))
    }

    /// Finds the first ready tasks of up to `limit` sub-queues behind that key. Returns how many sub-queues there were, and
    /// the key of the last one.
    fn find_ready(
        &mut self,
        tasks: Tasks<'_>,
        layout: &Layout,
        after: Option<Vec<u8>>,
        limit: usize,
    ) -> Result<(usize, Option<Vec<u8>>)> {
        let index = self.order.index(tasks);
        let mut iterator = if after.is_some() { IteratorType::Gt } else { IteratorType::Ge };
        let mut key = after.unwrap_or_else(|| ShortKey::state(State::Ready, &[]).to_vec());
        let mut count = 0;
        while count < limit
            && let Some(tuple) = tasks.store.first(tasks.space, index, iterator, &key)?
        {
            #[cfg(test)]
            crate::cost::count_look_up();
            let Some(task) = Task::read(tuple, layout) else { break };
            if task.state() != Some(State::Ready) {
                break;
            }
            if self.sub_queue(task.utube).taken == 0 {
                let candidate = Some(self.order.candidate(&task));
                self.restore(task.utube, SubQueue { candidate, taken: 0, ready: ReadyCount::UNKNOWN });
            }
            let numbers = if self.order == CandidateOrder::Id { 1 } else { 2 };
            key = NameKey::new(State::Ready, task.utube, &[u64::MAX; 2][..numbers]).to_vec();
            iterator = IteratorType::Gt;
            count += 1;
        }
        Ok((count, Some(key)))
    }

    /// The first `limit` candidates behind one, in their order.
    pub fn after(&self, last: Option<Candidate>, limit: usize) -> Vec<Candidate> {
        let behind = last.map_or(Bound::Unbounded, Bound::Excluded);
        self.sorted.range((behind, Bound::Unbounded)).take(limit).copied().collect()
    }
}

impl CandidateOrder {
    /// The candidate that the `present` sub-queue should have after a change of that kind, which its numbers of tasks tell
    /// already.
    ///
    /// # Errors
    /// The space is gone.
    pub fn compute(
        self,
        tasks: Tasks<'_>,
        layout: &Layout,
        name: &[u8],
        present: SubQueue,
        touch: Touch,
    ) -> Result<Option<Candidate>> {
        if present.taken > 0 {
            return Ok(None);
        }
        match (touch, present.candidate) {
            (Touch::Arrived(new), Some(present)) => Ok(Some(present.min(new))),
            (Touch::Arrived(new), None) => Ok(Some(new)),
            (Touch::Left(gone), present) if present != Some(gone) => Ok(present),
            (Touch::Left(_) | Touch::Anyhow, _) if present.ready.is_zero() => Ok(None),
            (Touch::Left(_) | Touch::Anyhow, _) => self.first_ready(tasks, layout, name),
        }
    }

    fn first_ready(self, tasks: Tasks<'_>, layout: &Layout, name: &[u8]) -> Result<Option<Candidate>> {
        let first = tasks.first(self.index(tasks), &NameKey::new(State::Ready, name, &[]))?;
        Ok(first.and_then(|tuple| Task::read(tuple, layout)).map(|task| self.candidate(&task)))
    }

    fn index(self, tasks: Tasks<'_>) -> lycosa_store::IndexId {
        if self == Self::Id { tasks.indexes.utube } else { tasks.indexes.utube_pri }
    }

    fn candidate(self, task: &Task<'_>) -> Candidate {
        let pri = if self == Self::Id { 0 } else { task.pri };
        Candidate { pri, id: task.id }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_candidate_is_first() {
        let mut candidates = Candidates::new(CandidateOrder::PriorityThenId);
        let set = |candidates: &mut Candidates, name: &[u8], candidate| {
            candidates.restore(name, SubQueue { candidate, ..SubQueue::default() });
        };
        assert_eq!((candidates.get(b"a"), candidates.get(b"b")), (None, None));
        set(&mut candidates, b"a", Some(Candidate { pri: 5, id: 0 }));
        assert_eq!(candidates.get(b"b"), None);
        set(&mut candidates, b"b", Some(Candidate { pri: 3, id: 7 }));
        assert_eq!(candidates.first(), Some(7));
        assert_eq!(candidates.get(b"b"), Some(Candidate { pri: 3, id: 7 }));
        set(&mut candidates, b"b", None);
        assert_eq!((candidates.first(), candidates.get(b"b")), (Some(0), None));
        assert_eq!(candidates.get(b"a"), Some(Candidate { pri: 5, id: 0 }));
        set(&mut candidates, b"a", Some(Candidate { pri: 1, id: 9 }));
        assert_eq!((candidates.first(), candidates.len()), (Some(9), 1));
        assert_eq!(candidates.get(b"a"), Some(Candidate { pri: 1, id: 9 }));
    }

    #[test]
    fn a_busy_sub_queue_is_known_until_its_last_task_is_freed() {
        let mut candidates = Candidates::new(CandidateOrder::Id);
        let ready = SubQueue { candidate: Some(Candidate { pri: 0, id: 4 }), ..SubQueue::default() };
        let busy = SubQueue { taken: 1, ..SubQueue::default() };
        assert_eq!(candidates.update(b"a", |_| Ok(ready)), Ok(Some(SubQueue::default())));
        assert_eq!(candidates.update(b"a", Ok), Ok(None));
        assert_eq!(candidates.update(b"a", |_| Ok(busy)), Ok(Some(ready)));
        assert_eq!((candidates.first(), candidates.sub_queue(b"a")), (None, busy));
        assert_eq!((candidates.len(), candidates.by_name.len()), (0, 1));
        candidates.restore(b"a", ready);
        assert_eq!(candidates.first(), Some(4));
        candidates.restore(b"a", SubQueue::default());
        assert_eq!((candidates.first(), candidates.by_name.len()), (None, 0));
    }
}
