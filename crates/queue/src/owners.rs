//! Owners of taken tasks: the rows of `_queue_taken_2`, behind a write-back cache, and [leases](crate::leases).
//!
//! `take` would insert a row and `ack` would delete it, yet almost nothing reads the space in between. [`Owners`]
//! therefore caches at most [`MAX_CACHED`] new owners and writes the oldest one back when the cache overflows. A task
//! that is acknowledged soon costs no tuple and no index entry. Before anything but the queue's functions reads or
//! changes the space, all cached owners are written back ([`Queue::read`](crate::Queue::read),
//! [`Queue::submit`](crate::Queue::submit)).
//!
//! Invariants:
//! - A taken task has a cached owner, a row, or a lease, never two of them.
//! - The cache changes with the open transaction.
//! - [`Undo::Owner`] takes a change of the cache back, also for a row that was written back inside the transaction.
//! - While rows are logged (`in_replicaset`) the cache is empty.
//!
//! In a group the space is durable, yet its rows are not logged: each change is noted for the batch
//! ([`crate::owner_changes`]), and followers keep the same owners. Which of them are in the cache is each member's own
//! affair, so what moves between cache and space leaves no effect. A snapshot has them all as rows, but for owners of tasks in
//! temporary tubes ([`Queue::settle_owners`](crate::Queue::settle_owners)).

pub(crate) mod owner;

use std::collections::{BTreeSet, HashSet, VecDeque};

use lycosa_store::{IteratorType, SpaceId, Statement, Store, system};

use crate::error::{OwnerChangeError, Result};
use crate::integer_map::IntegerMap;
use crate::leases::Leases;
use crate::owner_changes::OwnerChange;
use crate::owners::owner::{MOMENT, Owner, SESSION, name_field, number};
use crate::repeat::TakeName;
use crate::session::{SessionId, session_field};
use crate::system::{TAKEN, TAKEN_BY_SESSION, each_row, rows, tasks_after};
use crate::task::{ShortKey, TaskKey, string_key, taken_key};
use crate::transaction::{Pending, Undo};

/// Owners in the cache at most.
const MAX_CACHED: usize = 4096;
/// Length of [`Owners::order`], stale entries included, in [`MAX_CACHED`], above which it is swept.
const SWEEP: usize = 4;

/// The owners of all taken tasks.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    /// `_queue_taken_2`.
    space: SpaceId,
    /// Whether its rows are journaled.
    is_logged: bool,
    /// Whether changes are noted for the batch.
    is_noted: bool,
    /// Tubes that are temporary: no other member has their tasks, and nothing is noted about them.
    temporary: HashSet<u64>,
    cached: IntegerMap<TaskKey, Owner>,
    /// All cached tasks in the order in which they were taken, and stale entries.
    order: VecDeque<TaskKey>,
    pub(crate) leases: Leases,
    scratch: Vec<u8>,
}

impl Owners {
    fn cache(&mut self, task: TaskKey, owner: Owner) -> Option<Owner> {
        let previous = self.cached.insert(task, owner);
        if previous.is_none() {
            self.order.push_back(task);
            if self.order.len() > SWEEP * MAX_CACHED {
                self.sweep();
            }
        }
        previous
    }

    /// The task that was cached longest ago.
    fn oldest(&mut self) -> Option<TaskKey> {
        while let Some(&task) = self.order.front() {
            if self.cached.contains_key(&task) {
                return Some(task);
            }
            self.order.pop_front();
        }
        None
    }

    /// Removes stale entries of the order. A task that was taken twice keeps its first place.
    fn sweep(&mut self) {
        let mut kept: IntegerMap<TaskKey, ()> = IntegerMap::default();
        self.order.retain(|task| self.cached.contains_key(task) && kept.insert(*task, ()).is_none());
    }

    /// Restores the cached owner of a task.
    pub(crate) fn restore(&mut self, task: TaskKey, previous: Option<Owner>) {
        _ = if let Some(owner) = previous { self.cache(task, owner) } else { self.cached.remove(&task) };
    }

    /// Cached tasks of a session that were taken before the time `before` (µs since the epoch), in order: at most the first
    /// `limit` of the owner cache's order.
    pub(crate) fn cached_of(&self, session: &SessionId, before: u64, limit: usize) -> BTreeSet<TaskKey> {
        let is_owned = |task: &&TaskKey| {
            self.cached.get(task).is_some_and(|owner| owner.session == *session && owner.moment < before)
        };
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

    /// The tasks that a session got with the take of this name, in order.
    pub(crate) fn named(&self, store: &Store, session: &SessionId, name: &TakeName) -> Result<Vec<TaskKey>> {
        let mut tasks =
            self.matching(|_, owner| owner.session == *session && owner.name.as_ref() == Some(name));
        let key = string_key(session);
        let rows = store.range(self.space, TAKEN_BY_SESSION, IteratorType::Eq, &key, 0)?;
        tasks.extend(rows.filter(|row| name_field(row).as_ref() == Some(name)).filter_map(taken_key));
        tasks.sort_unstable();
        Ok(tasks)
    }

    /// The cached tasks that satisfy `f`, in order.
    fn matching(&self, f: impl Fn(TaskKey, &Owner) -> bool) -> Vec<TaskKey> {
        let matching = self.cached.iter().filter(|&(&task, owner)| f(task, owner));
        let mut tasks: Vec<_> = matching.map(|(&task, _)| task).collect();
        tasks.sort_unstable();
        tasks
    }
}

impl Owners {
    /// From now on the rows lie in `space`. Where they are logged each owner is written at once; where changes are noted none is
    /// logged.
    pub(crate) fn use_space(&mut self, space: SpaceId, is_logged: bool, is_noted: bool) {
        (self.space, self.is_logged, self.is_noted) = (space, is_logged && !is_noted, is_noted);
    }

    /// Says whether a tube is temporary.
    pub(crate) fn mark_temporary(&mut self, tube: u64, is_temporary: bool) {
        if is_temporary {
            self.temporary.insert(tube);
        } else {
            self.temporary.remove(&tube);
        }
    }

    /// Whether a change of the task's owner is noted.
    #[inline]
    fn notes(&self, task: TaskKey) -> bool {
        self.is_noted && (self.temporary.is_empty() || !self.temporary.contains(&task.0))
    }

    /// Notes what a statement has made of a task's owner in the space. Inside a transaction.
    pub(crate) fn note_row(&self, store: &Store, pending: &mut Pending, task: TaskKey) -> Result<()> {
        if self.notes(task) {
            match self.row(store, task)? {
                Some(row) => pending.notes.row(self.space, row),
                None => pending.notes.free(self.space, task),
            }
        }
        Ok(())
    }

    /// Takes over a change that the leader has noted. Inside a transaction.
    pub(crate) fn follow(
        &mut self,
        store: &mut Store,
        pending: &mut Pending,
        change: OwnerChange<'_>,
    ) -> Result<()> {
        let (OwnerChange::Owned { space, .. } | OwnerChange::Free { space, .. }) = change;
        if self.space != space {
            if store.space(space)?.name() != TAKEN.name {
                return Err(OwnerChangeError::Other(space).into());
            }
            store.exempt_from_limit(space);
            self.use_space(space, false, false);
        }
        match change {
            OwnerChange::Owned { row, .. } => {
                let Some(task) = taken_key(row) else { return Ok(()) };
                let owner = Owner::read(row).filter(|owner| {
                    self.scratch.clear();
                    owner.encode(task, &mut self.scratch);
                    self.scratch == row
                });
                match owner {
                    Some(owner) => self.enter(store, pending, task, owner),
                    // A client has written it, with fields that the cache does not keep.
                    None => {
                        self.remove(pending, task);
                        Ok(store.execute_unlogged(&Statement::Replace { space, tuple: row })?)
                    }
                }
            }
            OwnerChange::Free { key, .. } => {
                if let Some(task) = taken_key(key)
                    && self.remove(pending, task).is_none()
                {
                    store.execute_unlogged(&Statement::Delete { space, index: 0, key })?;
                }
                Ok(())
            }
        }
    }

    /// Removes a task from the cache.
    #[inline]
    fn remove(&mut self, pending: &mut Pending, task: TaskKey) -> Option<Owner> {
        let previous = self.cached.remove(&task);
        if previous.is_some() {
            pending.undo.push(Undo::Owner { task, previous });
        }
        previous
    }

    /// Says who owns a task. Inside a transaction.
    pub(crate) fn set(
        &mut self,
        store: &mut Store,
        pending: &mut Pending,
        task: TaskKey,
        owner: Owner,
    ) -> Result<()> {
        if self.notes(task) {
            pending.notes.owned(self.space, task, &owner);
        }
        self.enter(store, pending, task, owner)
    }

    /// Caches who owns a task, or changes its row if there is one.
    #[inline]
    fn enter(&mut self, store: &mut Store, pending: &mut Pending, task: TaskKey, owner: Owner) -> Result<()> {
        let has_rows = !store.space(self.space)?.is_empty();
        if self.is_logged || has_rows && self.row(store, task)?.is_some() {
            return self.write(store, task, &owner);
        }
        let previous = self.cache(task, owner);
        pending.undo.push(Undo::Owner { task, previous });
        if self.cached.len() > MAX_CACHED
            && let Some(oldest) = self.oldest()
        {
            self.write_back(store, pending, oldest)?;
        }
        Ok(())
    }

    /// Forgets the owner of a task, if it has one. Returns when the owner took it, µs since the epoch, else 0. Inside a transaction.
    ///
    /// A DELETE that hits nothing would be logged where rows are.
    pub(crate) fn forget(&mut self, store: &mut Store, pending: &mut Pending, task: TaskKey) -> Result<u64> {
        if let Some(owner) = self.remove(pending, task) {
            if self.notes(task) {
                pending.notes.free(self.space, task);
            }
            return Ok(owner.moment);
        }
        let Some(row) = self.row(store, task)? else {
            let lease = self.leases.of(store, task)?;
            self.leases.forget(store, task)?;
            return Ok(lease.map_or(0, |lease| lease.taken_at));
        };
        let moment = number(row, MOMENT).unwrap_or(0);
        let key = ShortKey::numbers(&[task.0, task.1]);
        let statement = Statement::Delete { space: self.space, index: 0, key: &key };
        if self.notes(task) {
            pending.notes.free(self.space, task);
        }
        self.execute(store, &statement)?;
        Ok(moment)
    }

    /// Forgets the owners of all tasks of a tube. Inside a transaction.
    pub(crate) fn forget_tube(&mut self, store: &mut Store, pending: &mut Pending, tube: u64) -> Result<()> {
        let cached = self.matching(|task, _| task.0 == tube);
        let rows = rows(store, self.space, 0, IteratorType::Eq, &ShortKey::id(tube))?;
        let written = rows.iter().filter_map(|row| taken_key(row));
        cached.into_iter().chain(written).try_for_each(|task| self.forget(store, pending, task).map(drop))?;
        self.leases.forget_tube(store, tube)
    }

    /// The session that owns a task. None: the task has no owner, or a lease owns it.
    pub(crate) fn session_of(&self, store: &Store, task: TaskKey) -> Result<Option<SessionId>> {
        if let Some(owner) = self.cached.get(&task) {
            return Ok(Some(owner.session));
        }
        Ok(self.row(store, task)?.and_then(|row| session_field(row, SESSION)))
    }

    /// When the owner of a task took it, µs since the epoch.
    pub(crate) fn taken_at(&self, store: &Store, task: TaskKey) -> Result<Option<u64>> {
        if let Some(owner) = self.cached.get(&task) {
            return Ok(Some(owner.moment));
        }
        match self.row(store, task)? {
            Some(row) => Ok(number(row, MOMENT)),
            None => Ok(self.leases.of(store, task)?.map(|lease| lease.taken_at)),
        }
    }

    /// Which session holds a task, and since when.
    pub(crate) fn of(&self, store: &Store, task: TaskKey) -> Result<Option<Owner>> {
        if let Some(owner) = self.cached.get(&task) {
            return Ok(Some(*owner));
        }
        Ok(self.row(store, task)?.and_then(Owner::read))
    }

    /// Calls `f` for the tasks of sessions and their owners, at most `limit` of those with a row. Returns whether the user has no more.
    pub(crate) fn each(
        &self,
        store: &Store,
        limit: usize,
        mut f: impl FnMut(TaskKey, &Owner),
    ) -> Result<bool> {
        self.cached.iter().for_each(|(&task, owner)| f(task, owner));
        let Some(space) = TAKEN.known(store, self.space) else { return Ok(true) };
        Ok(each_row(store, space, limit, |row| {
            if let (Some(task), Some(owner)) = (taken_key(row), Owner::read(row)) {
                f(task, &owner);
            }
        })?)
    }

    /// Whether a task of the tube has an owner.
    pub(crate) fn has_tube(&self, store: &Store, tube: u64) -> Result<bool> {
        let is_cached = self.cached.keys().any(|task| task.0 == tube);
        let first = store.first(self.space, 0, IteratorType::Eq, &ShortKey::id(tube))?;
        Ok(is_cached || first.is_some() || self.leases.has_tube(store, tube)?)
    }

    /// Whether a session or a lease owns a task.
    pub(crate) fn has(&self, store: &Store, task: TaskKey) -> Result<bool> {
        Ok(self.session_of(store, task)?.is_some() || self.leases.of(store, task)?.is_some())
    }

    /// Whether a reader of `space` may miss cached owners: it is the owners' space, or one of the system's, whose rows may
    /// be about it.
    #[inline]
    pub(crate) fn may_lack_rows_of(&self, space: SpaceId) -> bool {
        (space == self.space || space <= system::MAX) && !self.cached.is_empty()
    }

    /// Writes all cached owners back. Inside a transaction.
    pub(crate) fn write_back_all(&mut self, store: &mut Store, pending: &mut Pending) -> Result<()> {
        self.cached().into_iter().try_for_each(|task| self.write_back(store, pending, task))
    }

    /// Makes the space what a snapshot of a member is to have: every owner, but no owner of a task in a temporary tube, since no
    /// other member has that task. Inside a transaction.
    pub(crate) fn settle(&mut self, store: &mut Store, pending: &mut Pending) -> Result<()> {
        let shared = self.matching(|task, _| !self.temporary.contains(&task.0));
        shared.into_iter().try_for_each(|task| self.write_back(store, pending, task))?;
        for tube in self.temporary.iter().copied().collect::<Vec<_>>() {
            let written = rows(store, self.space, 0, IteratorType::Eq, &ShortKey::id(tube))?;
            for (task, owner) in written.iter().filter_map(|row| Some((taken_key(row)?, Owner::read(row)?))) {
                let key = ShortKey::numbers(&[task.0, task.1]);
                self.execute(store, &Statement::Delete { space: self.space, index: 0, key: &key })?;
                let previous = self.cache(task, owner);
                pending.undo.push(Undo::Owner { task, previous });
            }
        }
        Ok(())
    }

    /// The rows that the space has, or would have if all owners were written back, in order.
    pub(crate) fn rows(&self, store: &Store) -> Result<Vec<Vec<u8>>> {
        let mut all = rows(store, self.space, 0, IteratorType::All, &[0x90])?;
        for (&task, owner) in &self.cached {
            let mut row = Vec::new();
            owner.encode(task, &mut row);
            all.push(row);
        }
        all.sort_by_key(|row| taken_key(row));
        Ok(all)
    }

    /// The tasks of up to `limit` rows of the space behind a task.
    pub(crate) fn written_after(
        &self,
        store: &Store,
        after: Option<TaskKey>,
        limit: usize,
    ) -> Result<Vec<TaskKey>> {
        Ok(tasks_after(store, self.space, after, limit)?)
    }

    /// Whether a row of a space says who owns a task of a temporary tube.
    pub(crate) fn is_of_temporary(&self, space: SpaceId, row: &[u8]) -> bool {
        space == self.space && taken_key(row).is_some_and(|(tube, _)| self.temporary.contains(&tube))
    }

    /// The rows that the cache stands for, where the space is durable, each with the space. Temporary tubes are left out.
    pub(crate) fn beside<'s>(&'s self, store: &Store) -> impl Iterator<Item = (SpaceId, Vec<u8>)> + use<'s> {
        let is_durable = store.space(self.space).is_ok_and(|space| !space.is_temporary());
        let is_shared = move |task: &TaskKey| is_durable && !self.temporary.contains(&task.0);
        self.cached.iter().filter(move |(task, _)| is_shared(task)).map(|(&task, owner)| {
            let mut row = Vec::new();
            owner.encode(task, &mut row);
            (self.space, row)
        })
    }

    /// Whether a snapshot that is taken now would lack owners, or have some that no other member has.
    pub(crate) fn has_unsettled(&self, store: &Store) -> bool {
        !(self.cached.is_empty() && self.temporary.is_empty())
            && store.space(self.space).is_ok_and(|space| !space.is_temporary())
    }

    /// The cached tasks, in order.
    pub(crate) fn cached(&self) -> Vec<TaskKey> {
        self.matching(|_, _| true)
    }

    fn write_back(&mut self, store: &mut Store, pending: &mut Pending, task: TaskKey) -> Result<()> {
        let Some(owner) = self.remove(pending, task) else { return Ok(()) };
        self.write(store, task, &owner)
    }

    fn write(&mut self, store: &mut Store, task: TaskKey, owner: &Owner) -> Result<()> {
        self.scratch.clear();
        owner.encode(task, &mut self.scratch);
        self.execute(store, &Statement::Replace { space: self.space, tuple: &self.scratch })
    }

    /// Executes a statement about the rows.
    fn execute(&self, store: &mut Store, statement: &Statement<'_>) -> Result<()> {
        if self.is_logged {
            return Ok(store.execute(statement).map(drop)?);
        }
        Ok(store.execute_unlogged(statement)?)
    }

    fn row<'s>(&self, store: &'s Store, task: TaskKey) -> Result<Option<&'s [u8]>> {
        // A replica's queue has not started, and its space has no rows: owners are not replicated.
        if self.space == 0 {
            return Ok(None);
        }
        Ok(store.get(self.space, 0, &ShortKey::numbers(&[task.0, task.1]))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(connection: u64) -> Owner {
        Owner { connection, session: [7; 16], moment: 5, name: None }
    }

    #[test]
    fn the_order_does_not_grow_with_tasks_that_come_and_go() {
        let mut owners = Owners::default();
        owners.cache((1, 0), owner(1));
        for task in 1..=2 * (SWEEP * MAX_CACHED) as u64 {
            assert_eq!(owners.cache((1, task), owner(2)), None);
            owners.restore((1, task), None);
            assert!(owners.order.len() <= SWEEP * MAX_CACHED);
        }
        assert_eq!(owners.oldest(), Some((1, 0)));
    }

    #[test]
    fn what_is_put_back_is_there_as_before() {
        let mut owners = Owners::default();
        assert_eq!(owners.cache((1, 4), owner(1)), None);
        assert_eq!(owners.cache((1, 4), owner(2)), Some(owner(1)));
        owners.restore((1, 4), Some(owner(1)));
        assert_eq!(owners.cached.get(&(1, 4)), Some(&owner(1)));
        owners.restore((1, 4), None);
        assert_eq!((owners.oldest(), owners.cached.len()), (None, 0));
        owners.restore((1, 4), Some(owner(3)));
        assert_eq!(owners.oldest(), Some((1, 4)));
        assert_eq!(owners.matching(|_, owner| owner.connection == 3), [(1, 4)]);
    }
}
