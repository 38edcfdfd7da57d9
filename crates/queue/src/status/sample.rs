//! A bounded sample of tasks and of the times at which something happened to them.
//!
//! A task has one slot, by its id. It enters the sample if the slot is free, and frees the slot when it leaves. So each
//! operation takes a few instructions, a sample that is full keeps the oldest tasks, and up to [`Sample::SLOTS`] tasks with
//! consecutive ids are all in it.

/// Tasks with their times.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    /// Ids and times, µs since the epoch; a slot with time 0 is free.
    slots: [(u64, u64); Self::SLOTS],
    /// The last task that left.
    last: (u64, u64),
}

impl Default for Sample {
    fn default() -> Self {
        Self { slots: [(0, 0); Self::SLOTS], last: (0, 0) }
    }
}

impl Sample {
    /// Tasks in a sample at most.
    pub(crate) const SLOTS: usize = 32;

    #[inline]
    fn slot(&mut self, id: u64) -> &mut (u64, u64) {
        &mut self.slots[id as usize % Self::SLOTS]
    }

    /// Something happens to a task.
    #[inline]
    pub(crate) fn note(&mut self, id: u64, now: u64) {
        let slot = self.slot(id);
        if slot.1 == 0 {
            *slot = (id, now);
        }
    }

    /// Removes a task and returns its time, if the sample has it.
    #[inline]
    pub(crate) fn remove(&mut self, id: u64) -> Option<u64> {
        let slot = self.slot(id);
        if slot.0 != id || slot.1 == 0 {
            return None;
        }
        let entry = std::mem::take(slot);
        self.last = entry;
        Some(entry.1)
    }

    fn entries(&self) -> impl Iterator<Item = (u64, u64)> {
        self.slots.iter().copied().filter(|entry| entry.1 > 0)
    }

    /// The earliest time, µs since the epoch.
    pub(crate) fn first(&self) -> Option<u64> {
        self.entries().map(|entry| entry.1).min()
    }

    /// The time of the last task with an id of at most this one, if ids and times grow together; without one that of the next
    /// task, which is too late.
    pub(crate) fn around(&self, id: u64) -> Option<u64> {
        let known = || self.entries().chain(Some(self.last).filter(|last| last.1 > 0));
        let before = known().filter(|entry| entry.0 <= id).max();
        before.or_else(|| known().filter(|entry| entry.0 > id).min()).map(|entry| entry.1)
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_sample_has_every_task() {
        let mut sample = Sample::default();
        (7..7 + Sample::SLOTS as u64).for_each(|id| sample.note(id, 100 + id));
        assert_eq!(sample.around(7), Some(107));
        assert_eq!((sample.remove(12), sample.remove(12)), (Some(112), None));
        assert_eq!((sample.remove(7), sample.first()), (Some(107), Some(108)));
        assert_eq!(
            (sample.around(12), sample.around(13), sample.around(7)),
            (Some(111), Some(113), Some(107))
        );
        assert_eq!(sample.around(6), Some(107), "too late");
    }

    #[test]
    fn a_full_one_keeps_the_oldest_tasks() {
        let mut sample = Sample::default();
        (0..1_000_000).for_each(|id| sample.note(id, 1 + id));
        assert_eq!(sample.first(), Some(1));
        let sampled = (0..1_000_000).filter(|id| sample.remove(*id) == Some(1 + *id)).count();
        assert_eq!((sampled, sample.first()), (Sample::SLOTS, None));
        sample.note(1_000_007, 5);
        assert_eq!(sample.remove(1_000_007 + Sample::SLOTS as u64), None);
        assert_eq!(sample.remove(1_000_007), Some(5));
    }
}
