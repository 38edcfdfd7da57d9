//! The queue's own spaces.
//!
//! Their names, fields and indexes are those of the Lua module, because clients and operators read them and a data
//! folder may change hands. `_queue_taken_2` and `_queue_shared_sessions` are temporary on a single instance and durable
//! in a replica set; changing the mode re-creates them under the same names with other ids.
//!
//! The rows of all but `_queue` are about every user's sessions and tasks. `grant` gives rights on them because the Lua
//! module needs them there; here those rights count for nothing ([`PRIVACY`]), and no user needs them. Of `_queue` a user
//! sees the rows of tubes whose space that user may know.

use std::ops::ControlFlow;

use lycosa_store::ddl::{self, FieldSpec, IndexSpec, PartSpec, SequenceSpec, SpaceSpec};
use lycosa_store::{
    Error as StoreError, IteratorType, Privacy, PrivacyTable, SpaceId, Statement, Store, system, user,
};
use lycosa_tuple::mp;
use lycosa_tuple::value::Value;

use crate::error::{Error, Result, StoreResult};
use crate::task::{FieldText, IndexText, ShortKey, SpaceLayout, TaskKey, taken_key};

/// One of the queue's spaces.
#[derive(Debug)]
pub struct SystemSpace {
    /// The space's name.
    pub name: &'static str,
    /// Names and types of the fields, as in `CREATE TABLE`.
    pub fields: &'static str,
    /// Names and types, as in `CREATE TABLE`.
    pub indexes: &'static [IndexText],
}

pub(crate) const QUEUE: SystemSpace = SystemSpace {
    name: "_queue",
    fields: "tube_name string, tube_id unsigned, space_name string, tube_type string, opts *",
    indexes: &[("tube", true, &[0]), ("tube_id", true, &[1])],
};

pub(crate) const CONSUMERS: SystemSpace = SystemSpace {
    name: "_queue_consumers",
    fields: "connection_id unsigned, fiber_id unsigned, tube_id unsigned, event_time unsigned, fiber_time unsigned",
    indexes: &[("pk", true, &[0, 1]), ("consumer", false, &[2, 3])],
};

pub(crate) const TAKEN: SystemSpace = SystemSpace {
    name: "_queue_taken_2",
    fields: "tube_id unsigned, task_id unsigned, connection_id unsigned, session_uuid string, taken_time unsigned",
    indexes: &[("task", true, &[0, 1]), ("uuid", false, &[3])],
};

pub(crate) const SESSION_IDS: SystemSpace = SystemSpace {
    name: "_queue_session_ids",
    fields: "connection_id unsigned, session_uuid string",
    indexes: &[("conn_id", true, &[0]), ("uuid", false, &[1])],
};

pub(crate) const SHARED_SESSIONS: SystemSpace = SystemSpace {
    name: "_queue_shared_sessions",
    fields: "uuid string, exp_time unsigned, active boolean",
    indexes: &[("uuid", true, &[0]), ("active", true, &[2, 0])],
};

/// The privacy of the queue's spaces, whether the queue runs or not. The third field of `_queue` names the tube's space.
pub(crate) const PRIVACY: PrivacyTable = &[
    (QUEUE.name, Privacy::ByNamedSpace(2)),
    (CONSUMERS.name, Privacy::Closed),
    (TAKEN.name, Privacy::Closed),
    (SESSION_IDS.name, Privacy::Closed),
    (SHARED_SESSIONS.name, Privacy::Closed),
    (LEASES_NAME, Privacy::Closed),
];

/// The space of [leases](crate::leases), whose rows have secrets.
pub(crate) const LEASES_NAME: &str = "_lycosa_leases";

/// A space of versions of the module before sessions.
const LEGACY_TAKEN: &str = "_queue_taken";

/// The index `uuid` of `_queue_taken_2`.
pub(crate) const TAKEN_BY_SESSION: u32 = 1;
/// The index `tube_id` of `_queue`.
pub(crate) const QUEUE_BY_ID: u32 = 1;

/// Ids of a temporary tube for which its sequence is written once. As many may be left out at a restart.
const RESERVED_IDS: u64 = 1000;

/// Ids of the queue's spaces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SystemSpaces {
    pub(crate) queue: SpaceId,
    pub(crate) consumers: SpaceId,
    pub(crate) taken: SpaceId,
    pub(crate) session_ids: SpaceId,
    pub(crate) shared_sessions: SpaceId,
}

impl SystemSpaces {
    /// Finds the spaces, creates the missing ones and brings them into the given mode. In the open transaction.
    pub(crate) fn prepare(store: &mut Store, in_replicaset: bool) -> Result<Self> {
        store.set_privacy(PRIVACY);
        let queue = QUEUE.find_or_create(store, false)?;
        let consumers = CONSUMERS.find_or_create(store, true)?;
        TAKEN.find_or_create(store, !in_replicaset)?;
        let session_ids = SESSION_IDS.find_or_create(store, true)?;
        SHARED_SESSIONS.find_or_create(store, !in_replicaset)?;
        if let Some(legacy) = store.space_by_name(LEGACY_TAKEN).map(lycosa_store::Space::id) {
            ddl::drop_space(store, legacy)?;
        }
        let taken = TAKEN.switch(store, !in_replicaset)?;
        let shared_sessions = SHARED_SESSIONS.switch(store, !in_replicaset)?;
        for space in [consumers, taken, session_ids, shared_sessions] {
            store.exempt_from_limit(space);
        }
        for space in [queue, consumers, taken, session_ids, shared_sessions] {
            store.guard(space, true);
        }
        Ok(Self { queue, consumers, taken, session_ids, shared_sessions })
    }

    /// The row of `_queue` behind an id, and its own id.
    pub(crate) fn next_tube(&self, store: &Store, after: Option<u64>) -> Result<Option<(Vec<u8>, u64)>> {
        if self.queue == 0 {
            return Ok(None);
        }
        let key = after.map(ShortKey::id);
        let row = rows_after(store, self.queue, QUEUE_BY_ID, key.as_deref(), 1)?.pop();
        Ok(row.and_then(|row| {
            let id = lycosa_tuple::tuple::TupleRef::trusted(&row).field(1)?;
            let id = mp::Reader::new(id).uint().ok()?;
            Some((row, id))
        }))
    }
}

impl SystemSpace {
    /// The fields' names and types.
    pub(crate) fn columns(&self) -> impl Iterator<Item = FieldText> {
        self.fields.split(", ").filter_map(|field| field.split_once(' '))
    }

    /// The number of fields.
    pub(crate) const fn width(&self) -> u32 {
        let (fields, mut at, mut width) = (self.fields.as_bytes(), 0, 1);
        while at < fields.len() {
            width += (fields[at] == b',') as u32;
            at += 1;
        }
        width
    }

    /// The space whose number is `id`, or the space of this name if the queue has not come up on these data and knows no number.
    pub fn known(&self, store: &Store, id: SpaceId) -> Option<SpaceId> {
        if id == 0 { store.space_by_name(self.name).map(lycosa_store::Space::id) } else { Some(id) }
    }

    /// The space of this name, created if it is missing.
    ///
    /// # Errors
    /// The storage refuses to create it.
    pub fn find_or_create(&self, store: &mut Store, temporary: bool) -> Result<SpaceId> {
        match store.space_by_name(self.name) {
            Some(space) => Ok(space.id()),
            None => self.create(store, self.name, temporary),
        }
    }

    fn create(&self, store: &mut Store, name: &str, temporary: bool) -> Result<SpaceId> {
        let layout = SpaceLayout::new(&self.columns().collect::<Vec<_>>(), self.indexes);
        Ok(create_space(store, name, "memtx", temporary, &layout)?)
    }

    /// Re-creates the space, with its rows, if it has the other `temporary` flag.
    fn switch(&self, store: &mut Store, temporary: bool) -> Result<SpaceId> {
        let missing = || StoreError::NoSuchSpace(self.name.into());
        let space = store.space_by_name(self.name).ok_or_else(missing)?;
        let id = space.id();
        if space.is_temporary() == temporary {
            return Ok(id);
        }
        self.copy(store, id, temporary)
            .map_err(|reason| Error::Migration { space: self.name, reason: Box::new(reason) })
    }

    fn copy(&self, store: &mut Store, from: SpaceId, temporary: bool) -> Result<SpaceId> {
        let to = self.create(store, &format!("{}_mgr", self.name), temporary)?;
        for tuple in rows(store, from, 0, IteratorType::All, &[0x90])? {
            store.execute(&Statement::Insert { space: to, tuple: &tuple })?;
        }
        store.guard(from, false);
        ddl::drop_space(store, from)?;
        ddl::rename_space(store, to, self.name)?;
        Ok(to)
    }
}

/// A space of the queue that is created when its first row is written: a data folder without such rows is that of the Lua
/// module.
#[derive(Debug)]
pub(crate) struct LateSpace {
    spec: &'static SystemSpace,
    /// 0: it does not exist, as far as is known.
    id: SpaceId,
}

impl LateSpace {
    pub(crate) const fn new(spec: &'static SystemSpace) -> Self {
        Self { spec, id: 0 }
    }

    /// The id that the space had last; 0 if it never existed.
    pub(crate) fn id(&self) -> SpaceId {
        self.id
    }

    /// Looks for the space at a start.
    pub(crate) fn find(&mut self, store: &mut Store) {
        self.id = store.space_by_name(self.spec.name).map_or(0, lycosa_store::Space::id);
        if self.id != 0 {
            self.keep(store);
        }
    }

    fn keep(&self, store: &mut Store) {
        store.exempt_from_limit(self.id);
        store.guard(self.id, true);
    }

    /// The space, if it exists: the transaction that made it may have been rolled back.
    pub(crate) fn existing(&self, store: &Store) -> Option<SpaceId> {
        let space = store.space(self.id).ok().filter(|space| space.name() == self.spec.name);
        space.map(lycosa_store::Space::id)
    }

    /// The space, if it exists and has rows.
    #[inline]
    pub(crate) fn kept(&self, store: &Store) -> Option<SpaceId> {
        if self.id == 0 {
            return None;
        }
        self.existing(store).filter(|space| store.space(*space).is_ok_and(|space| !space.is_empty()))
    }

    /// The tasks of a tube that have rows, in a space whose key is tube and task.
    pub(crate) fn tasks_of(&self, store: &Store, tube: u64) -> StoreResult<Vec<TaskKey>> {
        let Some(space) = self.kept(store) else { return Ok(Vec::new()) };
        let found = rows(store, space, 0, IteratorType::Eq, &ShortKey::id(tube))?;
        Ok(found.iter().filter_map(|row| taken_key(row)).collect())
    }

    /// Writes a row, and creates the space first where it is missing.
    pub(crate) fn write(&mut self, store: &mut Store, row: &[u8]) -> Result<()> {
        let space = self.obtain(store)?;
        Ok(store.execute(&Statement::Replace { space, tuple: row }).map(drop)?)
    }

    /// The space, created if it does not exist. Inside a transaction, as `admin`.
    pub(crate) fn obtain(&mut self, store: &mut Store) -> Result<SpaceId> {
        if let Some(space) = self.existing(store) {
            return Ok(space);
        }
        // A full server is one that needs to be steered, and its workers are the first that need the space.
        let former = store.lift_limit(true);
        let created = self.spec.find_or_create(store, false);
        store.lift_limit(former);
        self.id = created?;
        self.keep(store);
        Ok(self.id)
    }
}

/// Copies of the tuples of a walk.
pub(crate) fn rows(
    store: &Store,
    space: SpaceId,
    index: u32,
    iterator: IteratorType,
    key: &[u8],
) -> StoreResult<Vec<Vec<u8>>> {
    copies(store, (space, index), (iterator, key), usize::MAX)
}

/// Copies of up to `limit` tuples behind a whole key of a unique index, from the beginning without one.
pub(crate) fn rows_after(
    store: &Store,
    space: SpaceId,
    index: u32,
    after: Option<&[u8]>,
    limit: usize,
) -> StoreResult<Vec<Vec<u8>>> {
    let walk = after.map_or((IteratorType::All, &[0x90][..]), |key| (IteratorType::Gt, key));
    copies(store, (space, index), walk, limit)
}

fn copies(
    store: &Store,
    (space, index): (SpaceId, u32),
    (iterator, key): (IteratorType, &[u8]),
    limit: usize,
) -> StoreResult<Vec<Vec<u8>>> {
    let tuples = store.range(space, index, iterator, key, 0)?.take(limit);
    #[cfg(test)]
    let tuples = tuples.inspect(|_| crate::cost::count_look_up());
    Ok(tuples.map(<[u8]>::to_vec).collect())
}

/// Creates a space with its indexes in the open transaction.
pub(crate) fn create_space(
    store: &mut Store,
    name: &str,
    engine: &str,
    temporary: bool,
    layout: &SpaceLayout,
) -> StoreResult<SpaceId> {
    let SpaceLayout { fields, indexes } = layout;
    let format: Vec<_> = fields.iter().map(|(name, ty)| FieldSpec { name, ty, nullable: false }).collect();
    let space = ddl::create_space(store, &SpaceSpec { engine, temporary, ..SpaceSpec::new(name, &format) })?;
    for index in indexes {
        let parts: Vec<_> =
            index.parts.iter().map(|&field| PartSpec::new(field, &fields[field as usize].1)).collect();
        let spec = IndexSpec { unique: index.unique, ..IndexSpec::new(&index.name, &parts) };
        ddl::create_index(store, space, &spec)?;
    }
    Ok(space)
}

/// Gives a tube's space a sequence for its ids, which begin at 0; `last` is the largest that was handed out. The
/// sequence goes with the space.
pub(crate) fn attach_sequence(
    store: &mut Store,
    space: SpaceId,
    name: &str,
    last: Option<u64>,
) -> StoreResult<u32> {
    let (name, start, min) = (&*format!("{name}_seq"), Some(0), Some(0));
    let spec = SequenceSpec { name, id: None, step: 1, start, min, max: None, cycle: false };
    let sequence = ddl::create_sequence(store, &spec)?;
    let row = Value::from(vec![space.into(), sequence.into(), true.into(), 0.into(), "".into()]).encode();
    store.execute(&Statement::Insert { space: system::SPACE_SEQUENCE, tuple: &row })?;
    if let Some(last) = last.and_then(|last| i64::try_from(last).ok()) {
        store.sequence_set(sequence, last)?;
    }
    Ok(sequence)
}

/// Lets the ids begin at 0 again. Values that a sequence gives to inserts are not logged, and a log that only says that
/// there is no value would say nothing: so the last value is written before it is removed.
pub(crate) fn reset_sequence(store: &mut Store, sequence: u32) -> StoreResult<()> {
    if let Some(last) = store.sequence(sequence).and_then(|sequence| sequence.value) {
        store.sequence_set(sequence, last)?;
    }
    store.sequence_reset(sequence)
}

/// Makes sure that `id` and all ids before it are not handed out again after a restart. A durable tube's tasks see to that
/// themselves. Tasks of a temporary tube are not journaled, so the value of its sequence is, for [`RESERVED_IDS`] ids at once.
pub(crate) fn reserve_id(store: &mut Store, sequence: u32, id: u64) -> StoreResult<()> {
    let Some(known) = store.sequence(sequence) else { return Ok(()) };
    if known.value.and_then(|value| u64::try_from(value).ok()).is_some_and(|last| id <= last) {
        return Ok(());
    }
    let last = i64::try_from(id.saturating_add(RESERVED_IDS - 1)).unwrap_or(i64::MAX);
    store.acting_as(user::ADMIN, |store| store.sequence_set(sequence, last))
}

/// Undoes [`attach_sequence`].
pub(crate) fn detach_sequence(store: &mut Store, space: SpaceId, sequence: u32) -> StoreResult<()> {
    let key = ShortKey::id(space.into());
    store.execute(&Statement::Delete { space: system::SPACE_SEQUENCE, index: 0, key: &key })?;
    ddl::drop_sequence(store, sequence)
}

/// The tasks of up to `limit` rows behind a task, in a space whose key is tube and task.
pub(crate) fn tasks_after(
    store: &Store,
    space: SpaceId,
    after: Option<TaskKey>,
    limit: usize,
) -> StoreResult<Vec<TaskKey>> {
    let key = after.map(|task| ShortKey::numbers(&[task.0, task.1]));
    let rows = rows_after(store, space, 0, key.as_deref(), limit)?;
    Ok(rows.iter().filter_map(|row| taken_key(row)).collect())
}

/// Calls `f` for at most `limit` rows. Returns whether the user has no more.
pub(crate) fn each_row(
    store: &Store,
    space: SpaceId,
    limit: usize,
    f: impl FnMut(&[u8]),
) -> StoreResult<bool> {
    let mut rows = store.range(space, 0, IteratorType::All, &[0x90], 0)?;
    rows.by_ref().take(limit).for_each(f);
    Ok(rows.next().is_none())
}

/// Deletes the row with these numbers as its key.
pub(crate) fn delete_row(store: &mut Store, space: SpaceId, numbers: &[u64]) -> StoreResult<()> {
    store.execute(&Statement::Delete { space, index: 0, key: &ShortKey::numbers(numbers) }).map(drop)
}

/// Appends an array of what `write` makes of rows, the newest first, those before an id or all. `write` tells whether it has written
/// something, or ends the walk.
pub(crate) fn write_newest(
    store: &Store,
    space: Option<SpaceId>,
    (before, limit): (Option<u64>, u32),
    out: &mut Vec<u8>,
    mut write: impl FnMut(&[u8], &mut Vec<u8>) -> ControlFlow<(), bool>,
) -> StoreResult<()> {
    let (mut written, mut count) = (Vec::new(), 0);
    if let Some(space) = space {
        let key = before.map(ShortKey::id);
        let (iterator, key) =
            key.as_deref().map_or((IteratorType::Le, &[0x90][..]), |key| (IteratorType::Lt, key));
        let mut rows = store.range(space, 0, iterator, key, 0)?;
        while count < limit
            && let Some(row) = rows.next()
            && let ControlFlow::Continue(is_written) = write(row, &mut written)
        {
            count += u32::from(is_written);
        }
    }
    mp::write_array(out, count);
    out.extend_from_slice(&written);
    Ok(())
}
