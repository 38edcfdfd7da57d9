//! Jobs over many tasks: `count`, `apply`, `undo`, and how they are controlled; and `find`, which looks at a page at once.
//!
//! A job is a row ([`record`]). [`Queue::work`](crate::Queue::work) works on running jobs in turn, a *slice* each: one transaction that
//! looks at some tasks behind the job's position, checks the filter for each, changes the admitted ones, keeps what `undo` needs
//! ([`bin`]), and writes the row. A slice ends where its budget is spent, and the next one begins there. Progress
//! commits with the changes. So a job goes on after a restart or a promotion where it was, and touches no task twice.
//!
//! Invariants:
//! - a job changes no task that was put after it began, and none that its filter does not admit at that moment;
//! - a walk never goes back ([`filter`]), so a task that comes back into the filter's state is not met again;
//! - a job that changes priorities is the only one that changes tasks of the tube, because walks follow priorities;
//! - a truncated or dropped tube fails its unfinished jobs in the same transaction; its finished jobs cannot be undone any more;
//! - the row is the truth; [`Bulk`] only knows which rows to look at, and when: every unfinished job and every one with something to
//!   undo, or also former ones, until a step has read their rows again.

pub(crate) mod bin;
mod call;
mod filter;
mod find;
pub(crate) mod record;
mod reschedule;
mod schedule;
mod undo;
mod work;

use std::collections::{BTreeMap, BTreeSet};

use lycosa_store::{Budget, IteratorType, Store};

use self::bin::Bin;
use self::record::{JOBS, JobState, Record};
use crate::error::Result;
use crate::system::{LateSpace, delete_row};
use crate::task::ShortKey;

pub(crate) use self::filter::Filter;
pub(crate) use self::find::Search;

/// Jobs of all tubes that may be unfinished at once.
const MAX_UNFINISHED: usize = 32;
/// Jobs whose rows are kept. The oldest finished ones without anything to undo make way.
const MAX_JOBS: u64 = 256;

/// The queue's memory of jobs beside their rows.
#[derive(Debug)]
pub(crate) struct Bulk {
    jobs: LateSpace,
    bin: Bin,
    /// Running jobs, and when each goes on, µs since the epoch.
    running: BTreeMap<u64, u64>,
    unfinished: BTreeSet<u64>,
    /// Finished jobs with rows in the bin, by the end of their time.
    expiring: BTreeSet<(u64, u64)>,
    /// Bytes in the bin by job.
    kept: BTreeMap<u64, u64>,
    /// The job that was worked on last.
    last: u64,
    /// Jobs whose rows may have changed since they were noted: a transaction that may not have been committed wrote them.
    stale: BTreeSet<u64>,
}

impl Default for Bulk {
    fn default() -> Self {
        Self {
            jobs: LateSpace::new(&JOBS),
            bin: Bin::default(),
            running: BTreeMap::new(),
            unfinished: BTreeSet::new(),
            expiring: BTreeSet::new(),
            kept: BTreeMap::new(),
            last: 0,
            stale: BTreeSet::new(),
        }
    }
}

impl Bulk {
    /// Finds the jobs at a start.
    pub(crate) fn find(&mut self, store: &mut Store) {
        *self = Self { last: self.last, ..Self::default() };
        self.jobs.find(store);
        self.bin.find(store);
        let Some(space) = self.jobs.existing(store) else { return };
        let rows = store.range(space, 0, IteratorType::All, &[0x90], 0);
        rows.into_iter().flatten().filter_map(Record::read).for_each(|record| self.note(&record, 0));
    }

    /// When a job has something to do, µs since the epoch. May be in the past.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        if self.running.is_empty() && self.expiring.is_empty() && self.stale.is_empty() {
            return None;
        }
        let stale = (!self.stale.is_empty()).then_some(0);
        let expiring = self.expiring.first().map(|(until, _)| *until);
        self.running.values().copied().chain(expiring).chain(stale).min()
    }

    /// Takes a committed row into account; a running job goes on at `next`.
    fn note(&mut self, record: &Record, next: u64) {
        self.forget(record.id);
        if record.state == JobState::Running {
            self.running.insert(record.id, next);
        }
        if !record.state.is_over() {
            self.unfinished.insert(record.id);
        } else if record.kept > 0 {
            self.expiring.insert((record.undo_until, record.id));
        }
        if record.kept_bytes > 0 {
            self.kept.insert(record.id, record.kept_bytes);
        }
    }

    fn forget(&mut self, id: u64) {
        self.running.remove(&id);
        self.unfinished.remove(&id);
        self.expiring.retain(|(_, other)| *other != id);
        self.kept.remove(&id);
    }

    /// Reads the rows of stale jobs until there are none left or the budget is spent.
    fn refresh(&mut self, store: &Store, budget: &mut Budget<'_>) -> Result<()> {
        while !budget.is_spent()
            && let Some(id) = self.stale.pop_first()
        {
            budget.spend_rows(1);
            match self.read(store, id)? {
                Some(record) => {
                    budget.note_bytes(record.filter.len());
                    // The pause that keeps its rate goes on.
                    let next = self.running.get(&id).copied().unwrap_or(0);
                    self.note(&record, next);
                }
                None => self.forget(id),
            }
        }
        Ok(())
    }

    /// Whether an unfinished job undoes this one.
    fn is_being_undone(&self, store: &Store, id: u64) -> Result<bool> {
        for other in &self.unfinished {
            if self.read(store, *other)?.is_some_and(|job| job.undoes == Some(id)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn read(&self, store: &Store, id: u64) -> Result<Option<Record>> {
        let Some(space) = self.jobs.existing(store) else { return Ok(None) };
        Ok(store.get(space, 0, &ShortKey::id(id))?.and_then(Record::read))
    }

    /// Bytes in the bin of all jobs but one.
    fn kept_of_others(&self, id: u64) -> u64 {
        self.kept.iter().filter(|(other, _)| **other != id).map(|(_, bytes)| bytes).sum()
    }

    pub(crate) fn destination_of(&self, store: &Store, id: u64) -> Option<String> {
        self.read(store, id).ok()?.filter(|job| job.to_id.is_some()).map(|job| job.to)
    }

    /// Writes a row. Inside a transaction, as `admin`.
    fn write(&mut self, store: &mut Store, record: &Record) -> Result<()> {
        self.jobs.write(store, &record.encode())
    }

    /// The ids of a tube's tasks begin anew, or the tube goes. Inside a transaction, as `admin`.
    pub(crate) fn void(&mut self, store: &mut Store, tube: u64, why: &str, now: u64) -> Result<()> {
        // All others are over, and have nothing to undo.
        let expiring = self.expiring.iter().map(|(_, id)| *id);
        let ids: BTreeSet<u64> = self.unfinished.iter().copied().chain(expiring).collect();
        for id in ids {
            let Some(mut record) = self.read(store, id)? else { continue };
            let is_concerned = record.tube_id == tube || record.to_id == Some(tube);
            if is_concerned && (!record.state.is_over() || record.kept > 0) {
                record.void(why, now);
                self.write(store, &record)?;
                self.stale.insert(id);
            }
        }
        Ok(())
    }

    /// Makes space for one more row. Inside a transaction, as `admin`.
    fn drop_oldest(&mut self, store: &mut Store) -> Result<()> {
        let Some(space) = self.jobs.existing(store) else { return Ok(()) };
        let excess = (store.space(space)?.len() + 1).saturating_sub(MAX_JOBS);
        let all = store.range(space, 0, IteratorType::All, &[0x90], 0)?.filter_map(Record::read);
        let idle = all.filter(|record| record.state.is_over() && record.kept == 0);
        let idle: Vec<u64> = idle.take(excess as usize).map(|record| record.id).collect();
        Ok(idle.into_iter().try_for_each(|id| delete_row(store, space, &[id]))?)
    }
}
