//! Tuples that were written, those of them that are deleted since, and whether these were allowed to go.
//!
//! The account knows nothing of the server's own idea of a deadline: it keeps for each tuple the time that the
//! world had in mind when it wrote the tuple. It learns from the spaces which tuples have expired, and judges that.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use lycosa_store::Store;
use lycosa_tuple::mp::Reader;

use super::plan::{ARCHIVE, GRAVE, Kept, Plan};
use crate::agreement::walk_any;
use crate::shared::Shared;
use crate::violation::{Checked, Violation, hold};

/// A tuple that was put.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Put {
    pub(super) tuple: Rc<[u8]>,
    /// µs since the epoch; `None`: never.
    pub(super) deadline: Option<u64>,
}

impl Put {
    pub(super) fn is_due(&self, now: u64) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

/// A task that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Running {
    /// Number of its space in the plan.
    pub(super) space: usize,
    pub(super) transient: bool,
    /// It walks the index over the deadline.
    pub(super) is_ordered: bool,
    /// Seconds.
    pub(super) scan_time: u32,
    /// Its space was dropped; the row of the task goes with the next tick that may write.
    pub(super) is_orphan: bool,
}

impl Running {
    fn is_of(&self, space: usize) -> bool {
        self.space == space && !self.is_orphan
    }

    /// Microseconds after which nothing is left that was due, if nothing hinders the task: two passes, and what a small
    /// space waits at most; with an index, what a small share of the loop may take.
    fn bound(&self) -> u64 {
        match self.is_ordered {
            true => 1_000_000,
            false => (2 * u64::from(self.scan_time) + 2) * 1_000_000,
        }
    }
}

/// Everything that is known of the data. Copies are cheap: a world keeps one for each moment that a start may end with.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Account {
    /// The tuples of each space of the plan, by id.
    pub(super) spaces: Vec<Shared<BTreeMap<u64, Put>>>,
    /// What the spaces are called now.
    pub(super) names: Vec<String>,
    /// Which of them have the index over the deadline now.
    pub(super) has_index: Vec<bool>,
    /// Tuples in the archive, by id.
    pub(super) archive: Shared<BTreeMap<u64, Rc<[u8]>>>,
    /// Tuples in the tube that no client has removed.
    pub(super) grave: Shared<BTreeSet<Rc<[u8]>>>,
    /// By name.
    pub(super) tasks: BTreeMap<String, Running>,
    /// Tuples that have expired so far.
    pub(super) expired: u64,
}

/// The id of a tuple of one of the spaces.
fn id_of(space: &str, row: &[u8]) -> Checked<u64> {
    let mut reader = Reader::new(row);
    let id = reader.array().and_then(|_| reader.uint());
    id.map_err(|_| Violation(format!("space {space} holds something that nobody put")))
}

/// The ids of the tuples of a space.
fn ids(store: &Store, space: &str) -> Checked<BTreeSet<u64>> {
    walk_any(store, space)?.map(|row| id_of(space, row)).collect()
}

/// Payloads of the tasks in the tube of archived tuples.
fn graves<'a>(store: &'a Store, plan: &Plan) -> Checked<BTreeSet<&'a [u8]>> {
    let before = if plan.capacity > 0 { 7 } else { 2 };
    let mut found = BTreeSet::new();
    for row in walk_any(store, GRAVE)? {
        let mut reader = Reader::new(row);
        let skipped = reader.array().and_then(|_| (0..before).try_for_each(|_| reader.skip()));
        skipped.map_err(|_| {
            Violation("the tube of archived tuples holds something that is no task".to_owned())
        })?;
        let data = reader.rest();
        hold!(found.insert(data), "a tuple was archived twice: {data:02x?}");
    }
    Ok(found)
}

/// Names of the tasks that are kept.
fn kept_tasks(store: &Store) -> Checked<BTreeSet<String>> {
    let mut tasks = BTreeSet::new();
    for row in walk_any(store, "_expiration")? {
        let mut reader = Reader::new(row);
        let name = reader.array().and_then(|_| reader.str());
        let name = name.map_err(|_| Violation("a row of _expiration has no name".to_owned()))?;
        tasks.insert(String::from_utf8_lossy(name).into_owned());
    }
    Ok(tasks)
}

impl Account {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            spaces: vec![Shared::default(); plan.spaces.len()],
            names: plan.spaces.iter().map(|space| space.name.clone()).collect(),
            has_index: plan.spaces.iter().map(|space| space.is_ordered).collect(),
            ..Self::default()
        }
    }

    /// Compares the spaces with the account after something has happened at `now`. What
    /// a running task may have removed is taken out of the account. `is_paused`: nothing may have expired.
    pub(super) fn check(&mut self, store: &Store, plan: &Plan, now: u64, is_paused: bool) -> Checked {
        for number in 0..self.spaces.len() {
            self.check_space(store, number, plan, now, is_paused)?;
        }
        let mut count = 0;
        for row in walk_any(store, ARCHIVE)? {
            let id = id_of(ARCHIVE, row)?;
            count += 1;
            let known = self.archive.get(&id);
            hold!(
                known.is_some_and(|known| &**known == row),
                "the archive holds tuple {id}, which has not expired so"
            );
        }
        let expected = self.archive.len();
        hold!(count == expected, "the archive holds {count} tuples instead of {expected}");
        let graves = graves(store, plan)?;
        hold!(
            graves.len() == self.grave.len() && graves.iter().all(|data| self.grave.contains(*data)),
            "the tube of archived tuples holds {} instead of {}, or others",
            graves.len(),
            self.grave.len()
        );
        let found = kept_tasks(store)?;
        self.tasks.retain(|name, task| !task.is_orphan || found.contains(name));
        let kept = self.tasks.iter().filter(|(_, task)| !task.transient).map(|(name, _)| name);
        hold!(kept.clone().eq(&found), "tasks {found:?} are kept instead of {:?}", kept.collect::<Vec<_>>());
        Ok(())
    }

    fn check_space(
        &mut self,
        store: &Store,
        number: usize,
        plan: &Plan,
        now: u64,
        is_paused: bool,
    ) -> Checked {
        let name = &plan.spaces[number].name;
        let known = &mut self.spaces[number];
        let mut count = 0;
        for row in walk_any(store, &self.names[number])? {
            let id = id_of(name, row)?;
            count += 1;
            hold!(
                known.get(&id).is_some_and(|put| &*put.tuple == row),
                "tuple {id} of {name} is there, and nobody put it so"
            );
        }
        // Each of them has an id of its own, by the primary index.
        if count == known.len() {
            return Ok(());
        }
        let found = ids(store, &self.names[number])?;
        let gone: Vec<u64> = known.keys().copied().filter(|id| !found.contains(id)).collect();
        let has_task = self.tasks.values().any(|task| task.is_of(number));
        hold!(has_task, "tuples {gone:?} of {name} have gone, and no task is there to remove them");
        hold!(!is_paused, "tuples {gone:?} of {name} have expired on an instance that only reads");
        for id in gone {
            let Some(put) = known.remove(&id) else { continue };
            hold!(put.is_due(now), "tuple {id} of {name} was alive at {now}, and is gone: {put:?}");
            self.expired += 1;
            match plan.spaces[number].kept {
                Kept::Nowhere => {}
                Kept::Space => _ = self.archive.insert(id, put.tuple),
                Kept::Tube => {
                    hold!(self.grave.insert(put.tuple), "tuple {id} of {name} expired a second time");
                }
            }
        }
        Ok(())
    }

    /// The process has ended: tasks that are not kept end with it.
    pub(super) fn end_process(&mut self) {
        self.tasks.retain(|_, task| !task.transient);
    }

    /// Makes this account, of the time before a step, that of recovered data which end in the middle of the step. `after`
    /// is the account of the time after it. A step of several transactions is one in which tuples expire, so a tuple that is not
    /// as before is as after: a tuple that expired is either in its space or archived.
    pub(super) fn adopt(&mut self, store: &Store, plan: &Plan, after: &Self) -> Checked {
        for number in 0..self.spaces.len() {
            let name = &plan.spaces[number].name;
            let found = ids(store, &self.names[number])?;
            let known = &mut self.spaces[number];
            let expired: Vec<u64> = known.keys().copied().filter(|id| !found.contains(id)).collect();
            for id in expired {
                hold!(
                    !after.spaces[number].contains_key(&id),
                    "tuple {id} of {name} is lost, and nothing has removed it"
                );
                let Some(put) = known.remove(&id) else { continue };
                match plan.spaces[number].kept {
                    Kept::Nowhere => {}
                    Kept::Space => _ = self.archive.insert(id, put.tuple),
                    Kept::Tube => _ = self.grave.insert(put.tuple),
                }
            }
        }
        let found = kept_tasks(store)?;
        for (name, task) in after.tasks.iter().filter(|(name, _)| found.contains(*name)) {
            self.tasks.insert(name.clone(), *task);
        }
        self.tasks.retain(|name, _| found.contains(name));
        Ok(())
    }

    /// The tuples that are due and that some task has to remove, as space and id, and within how many µs. A task that
    /// fails, by its name, may pause first.
    pub(super) fn due(&self, now: u64, pause: impl Fn(&str) -> u64) -> Vec<(u64, usize, u64)> {
        let mut due = Vec::new();
        for (number, tuples) in self.spaces.iter().enumerate() {
            let tasks = self.tasks.iter().filter(|(_, task)| task.is_of(number));
            let Some(bound) = tasks.map(|(name, task)| task.bound() + pause(name)).min() else { continue };
            let overdue = tuples.iter().filter(|(_, put)| put.is_due(now));
            due.extend(overdue.map(|(id, _)| (bound, number, *id)));
        }
        due.sort_unstable();
        due
    }
}
