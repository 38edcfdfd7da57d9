//! Who owns which taken task: the rows of `_queue_taken_2`, the latest of which are kept here.
//!
//! A take writes such a row and an ack removes it, and between the two hardly anybody reads the space. So a new owner is
//! noted here first, and the note of a task that is finished soon has cost no tuple and no entry of an index. As soon as
//! there are more than [`MOST`] notes, each new one has the oldest *entered*: written into the space as a row. Who reads
//! or changes the space by other ways than the functions of the queue has them all entered before
//! ([`Queue::enter_owners`]).
//!
//! Invariants:
//! - a taken task has a note or a row, never both;
//! - notes change with the open transaction and are taken back with it ([`Undo::Owner`]): also the note of a row that was
//!   entered inside it;
//! - while rows are logged (`in_replicaset`) there are no notes.

use std::collections::{BTreeSet, VecDeque};

use lycosa_store::{IteratorType, SpaceId, Statement, Store, system, user};
use lycosa_tuple::mp::{self, Reader};
use lycosa_tuple::tuple::TupleRef;

use crate::Queue;
use crate::error::Error;
use crate::integer_map::IntegerMap;
use crate::session::{SessionId, session_field, taken_key};
use crate::system::rows;
use crate::task::ShortKey;
use crate::transaction::Undo;

/// Owners that are noted and not entered.
const MOST: usize = 4096;
/// How many times [`MOST`] the order of notes may be long, those that have gone included, before it is swept.
const SWEEP: usize = 4;
/// Field of the session in a row.
const SESSION: u32 = 3;
/// Field of the moment in a row.
const MOMENT: u32 = 4;

/// A task: the id of its tube and its own.
pub(crate) type TaskKey = (u64, u64);

/// Who has taken a task, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) connection: u64,
    pub(crate) session: SessionId,
    /// µs since the epoch.
    pub(crate) moment: u64,
}

impl Owner {
    /// Appends the row of `_queue_taken_2`.
    fn encode(&self, (tube, task): TaskKey, out: &mut Vec<u8>) {
        mp::write_array(out, 5);
        mp::write_uint(out, tube);
        mp::write_uint(out, task);
        mp::write_uint(out, self.connection);
        mp::write_str(out, &self.session);
        mp::write_uint(out, self.moment);
    }
}

/// The owners that are noted.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    notes: IntegerMap<TaskKey, Owner>,
    /// All tasks with a note in the order of their being taken, and some that have none any more.
    order: VecDeque<TaskKey>,
}

impl Owners {
    fn note(&mut self, task: TaskKey, owner: Owner) -> Option<Owner> {
        let previous = self.notes.insert(task, owner);
        if previous.is_none() {
            self.order.push_back(task);
            if self.order.len() > SWEEP * MOST {
                self.sweep();
            }
        }
        previous
    }

    /// The task that was noted longest ago.
    fn oldest(&mut self) -> Option<TaskKey> {
        while let Some(&task) = self.order.front() {
            if self.notes.contains_key(&task) {
                return Some(task);
            }
            self.order.pop_front();
        }
        None
    }

    /// Forgets tasks in the order that have no note. One that was taken twice keeps its first place.
    fn sweep(&mut self) {
        let mut kept: IntegerMap<TaskKey, ()> = IntegerMap::default();
        self.order.retain(|task| self.notes.contains_key(task) && kept.insert(*task, ()).is_none());
    }

    /// Puts back what was noted of a task.
    pub(crate) fn restore(&mut self, task: TaskKey, previous: Option<Owner>) {
        match previous {
            Some(owner) => _ = self.note(task, owner),
            None => _ = self.notes.remove(&task),
        }
    }

    /// Tasks with a note that says that the session owns them, in order: of those that were taken first, at most `limit`.
    pub(crate) fn noted_of(&self, session: &SessionId, limit: usize) -> BTreeSet<TaskKey> {
        let is_owned = |task: &&TaskKey| self.notes.get(task).is_some_and(|owner| owner.session == *session);
        let mut owned = self.order.iter().filter(is_owned);
        let mut tasks = BTreeSet::new();
        // A task that was taken twice stands in the order twice.
        while tasks.len() < limit
            && let Some(task) = owned.next()
        {
            tasks.insert(*task);
        }
        tasks
    }

    /// The tasks whose notes satisfy `f`, in order.
    fn matching(&self, f: impl Fn(TaskKey, &Owner) -> bool) -> Vec<TaskKey> {
        let matching = self.notes.iter().filter(|&(&task, owner)| f(task, owner));
        let mut tasks: Vec<_> = matching.map(|(&task, _)| task).collect();
        tasks.sort_unstable();
        tasks
    }
}

impl Queue {
    /// Notes who owns a task. Inside a transaction.
    pub(crate) fn set_owner(&mut self, store: &mut Store, task: TaskKey, owner: Owner) -> Result<(), Error> {
        let taken = self.spaces.taken;
        let has_rows = !store.space(taken)?.is_empty();
        if self.configuration.in_replicaset || has_rows && self.has_row(store, task)? {
            return self.write_owner(store, task, owner);
        }
        let previous = self.owners.note(task, owner);
        self.pending.undo.push(Undo::Owner { task, previous });
        if self.owners.notes.len() > MOST
            && let Some(oldest) = self.owners.oldest()
        {
            self.enter_owner(store, oldest)?;
        }
        Ok(())
    }

    /// Forgets who owns a task, if anybody does. Inside a transaction.
    ///
    /// A DELETE that hits nothing would be logged where rows are.
    pub(crate) fn forget_owner(&mut self, store: &mut Store, task: TaskKey) -> Result<(), Error> {
        if let Some(owner) = self.owners.notes.remove(&task) {
            self.pending.undo.push(Undo::Owner { task, previous: Some(owner) });
        } else if self.has_row(store, task)? {
            let key = ShortKey::numbers(&[task.0, task.1]);
            store.execute(&Statement::Delete { space: self.spaces.taken, index: 0, key: &key })?;
        }
        Ok(())
    }

    /// The session that owns a task.
    pub(crate) fn owner_of(&self, store: &Store, task: TaskKey) -> Result<Option<SessionId>, Error> {
        if let Some(owner) = self.owners.notes.get(&task) {
            return Ok(Some(owner.session));
        }
        let row = store.get(self.spaces.taken, 0, &ShortKey::numbers(&[task.0, task.1]))?;
        Ok(row.and_then(|row| session_field(row, SESSION)))
    }

    /// When a task was taken by who owns it, µs since the epoch.
    pub(crate) fn taken_at(&self, store: &Store, task: TaskKey) -> Result<Option<u64>, Error> {
        if let Some(owner) = self.owners.notes.get(&task) {
            return Ok(Some(owner.moment));
        }
        let row = store.get(self.spaces.taken, 0, &ShortKey::numbers(&[task.0, task.1]))?;
        Ok(row.and_then(|row| Reader::new(TupleRef::trusted(row).field(MOMENT)?).uint().ok()))
    }

    /// Who holds a task, and since when.
    pub(crate) fn owner(&self, store: &Store, task: TaskKey) -> Result<Option<Owner>, Error> {
        if let Some(owner) = self.owners.notes.get(&task) {
            return Ok(Some(*owner));
        }
        let row = store.get(self.spaces.taken, 0, &ShortKey::numbers(&[task.0, task.1]))?;
        Ok(row.and_then(|row| {
            let number = |field| Reader::new(TupleRef::trusted(row).field(field)?).uint().ok();
            Some(Owner { connection: number(2)?, session: session_field(row, SESSION)?, moment: number(4)? })
        }))
    }

    /// Whether a task of the tube has an owner.
    pub(crate) fn has_owners(&self, store: &Store, tube: u64) -> Result<bool, Error> {
        let is_noted = self.owners.notes.keys().any(|task| task.0 == tube);
        let first = store.first(self.spaces.taken, 0, IteratorType::Eq, &ShortKey::id(tube))?;
        Ok(is_noted || first.is_some())
    }

    /// Forgets the owners of all tasks of a tube. Inside a transaction.
    pub(crate) fn forget_owners(&mut self, store: &mut Store, tube: u64) -> Result<(), Error> {
        let noted = self.owners.matching(|task, _| task.0 == tube);
        let rows = rows(store, self.spaces.taken, 0, IteratorType::Eq, &ShortKey::id(tube))?;
        let entered = rows.iter().filter_map(|row| taken_key(row));
        noted.into_iter().chain(entered).try_for_each(|task| self.forget_owner(store, task))
    }

    /// Makes `_queue_taken_2` show all owners, if that is the space or it is one of the system's, whose rows may be about it.
    /// To be called before a client reads or changes a space, inside or outside of a transaction.
    ///
    /// # Errors
    /// A row is refused: somebody has changed or dropped the space.
    #[inline]
    pub fn show(&mut self, store: &mut Store, space: SpaceId) -> Result<(), Error> {
        if (space == self.spaces.taken || space <= system::MAX) && !self.owners.notes.is_empty() {
            self.enter_owners(store)?;
        }
        Ok(())
    }

    /// Enters all owners.
    pub(crate) fn enter_owners(&mut self, store: &mut Store) -> Result<(), Error> {
        let noted = self.owners.matching(|_, _| true);
        self.transact(store, user::ADMIN, |queue, store| {
            noted.into_iter().try_for_each(|task| queue.enter_owner(store, task))
        })
    }

    /// The rows that `_queue_taken_2` has, or would have if all owners were entered, in order.
    ///
    /// # Errors
    /// The space is not there.
    pub fn taken_rows(&self, store: &Store) -> Result<Vec<Vec<u8>>, Error> {
        let mut all = rows(store, self.spaces.taken, 0, IteratorType::All, &[0x90])?;
        for (&task, owner) in &self.owners.notes {
            let mut row = Vec::new();
            owner.encode(task, &mut row);
            all.push(row);
        }
        all.sort_by_key(|row| taken_key(row));
        Ok(all)
    }

    /// Makes the note of a task a row.
    fn enter_owner(&mut self, store: &mut Store, task: TaskKey) -> Result<(), Error> {
        let Some(owner) = self.owners.notes.remove(&task) else { return Ok(()) };
        self.pending.undo.push(Undo::Owner { task, previous: Some(owner) });
        self.write_owner(store, task, owner)
    }

    fn write_owner(&mut self, store: &mut Store, task: TaskKey, owner: Owner) -> Result<(), Error> {
        self.scratch.clear();
        owner.encode(task, &mut self.scratch);
        store.execute(&Statement::Replace { space: self.spaces.taken, tuple: &self.scratch })?;
        Ok(())
    }

    fn has_row(&self, store: &Store, task: TaskKey) -> Result<bool, Error> {
        Ok(store.get(self.spaces.taken, 0, &ShortKey::numbers(&[task.0, task.1]))?.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(connection: u64) -> Owner {
        Owner { connection, session: [7; 16], moment: 5 }
    }

    #[test]
    fn the_order_of_notes_does_not_grow_with_tasks_that_come_and_go() {
        let mut owners = Owners::default();
        owners.note((1, 0), owner(1));
        for task in 1..=2 * (SWEEP * MOST) as u64 {
            assert_eq!(owners.note((1, task), owner(2)), None);
            owners.restore((1, task), None);
            assert!(owners.order.len() <= SWEEP * MOST);
        }
        assert_eq!(owners.oldest(), Some((1, 0)));
    }

    #[test]
    fn what_is_put_back_is_there_as_before() {
        let mut owners = Owners::default();
        assert_eq!(owners.note((1, 4), owner(1)), None);
        assert_eq!(owners.note((1, 4), owner(2)), Some(owner(1)));
        owners.restore((1, 4), Some(owner(1)));
        assert_eq!(owners.notes.get(&(1, 4)), Some(&owner(1)));
        owners.restore((1, 4), None);
        assert_eq!((owners.oldest(), owners.notes.len()), (None, 0));
        owners.restore((1, 4), Some(owner(3)));
        assert_eq!(owners.oldest(), Some((1, 4)));
        assert_eq!(owners.matching(|_, owner| owner.connection == 3), [(1, 4)]);
    }
}
