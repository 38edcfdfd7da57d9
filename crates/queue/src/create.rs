//! Creation and drop of tubes.
//!
//! A tube is made in one transaction (space, indexes, sequence, ready buffer, row of `_queue`), so a create that fails
//! leaves nothing behind.

use std::sync::Arc;

use lycosa_store::{
    Access, Deferral, Error as StoreError, IndexBuild, IteratorType, Object, Space, SpaceId, SpaceIndex,
    Statement, Store, ddl, user,
};
use lycosa_tuple::mp::{self, Reader};
use lycosa_tuple::tuple::TupleRef;

use crate::arguments::string;
use crate::command::QueueCall;
use crate::counted::KeptTasks;
use crate::driver::options::{IfNotExists, TubeOptions};
use crate::driver::{Driver, Engine, Indexes, Tasks, TubeType, TubeTypes};
use crate::error::{Error, Result, StoreResult};
use crate::follower::amiss::Amiss;
use crate::members::Members;
use crate::system::{QUEUE_BY_ID, attach_sequence, create_space, detach_sequence, rows};
use crate::task::{IndexLayout, Layout, NEXT_EVENT, State, id_of, string_key};
use crate::time::{BEYOND, NEVER};
use crate::transaction::Undo;
use crate::tube::Tube;
use crate::tube::handle::TubeIndex;
use crate::tube_call::TubeCall;
use crate::tube_row::{BUFFER_SUFFIX, TubeRow};
use crate::turn::{CatalogTurn, TubeTurn};
use crate::waiter::Line;
use crate::{Answer, Caller, lua_text};

/// What becomes of the ready buffer and the sequence that a tube of the Lua module lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// They are created, inside the open transaction.
    IsCreated,
    /// The tube goes without them.
    Stays,
}

/// The arguments of `create_tube`.
struct Wish<'a> {
    name: &'a str,
    kind: Arc<TubeType>,
    options: TubeOptions,
    /// The options as `_queue` keeps them.
    stored: Vec<u8>,
}

impl CatalogTurn<'_> {
    /// `queue.create_tube(name, type[, options])`. Answers a map with the tube's name, type and id.
    pub(crate) fn create(&mut self, call: QueueCall<'_>, out: &mut Vec<u8>) -> Result<Answer> {
        let QueueCall { caller, arguments } = call;
        let type_argument = arguments.get(1);
        let unknown_type = || Error::UnknownTubeType(lua_text::text(type_argument));
        let tube_type = type_argument.and_then(string).and_then(|bytes| str::from_utf8(bytes).ok());
        let tube_type = tube_type.ok_or_else(unknown_type)?;
        let given = arguments.present(2);
        let bytes = given.map_or(0, |given| given.len() as u64);
        // The row of the tube would be refused in any case, after work on each option.
        if bytes > self.turn.store.settings().max_tuple_size.into() {
            return Err(StoreError::MemtxMaxTupleSize(bytes).into());
        }
        let kind = self.turn.common.types.get(tube_type).cloned();
        let timed = kind.as_ref().is_some_and(|kind| kind.layout().timed);
        let options = TubeOptions::parse(given, timed)?;
        let ignored = Self::ignored(caller, arguments)?;
        let name = arguments.get(0).and_then(string);
        let existing = name.and_then(|name| self.turn.tubes.by_name(str::from_utf8(name).ok()?));
        if let Some(handle) = existing
            && options.if_not_exists != IfNotExists::Refuse
        {
            self.describe(handle.index, out);
            return Ok(Answer::one());
        }
        // In a group only the owners' rows would have to be logged.
        if options.temporary && self.turn.common.configuration.in_replicaset && !self.turn.common.notes_owners
        {
            return Err(Error::TemporaryInReplicaset);
        }
        let kind = kind.ok_or_else(unknown_type)?;
        let mut stored = Vec::new();
        TubeOptions::write_stored(given, timed, &mut stored);
        let driver = kind.driver(&options, &stored)?;
        let name = self.tube_name(arguments.get(0), name)?;
        if existing.is_some_and(|handle| self.turn.common.pending.dropped.contains(&handle.index)) {
            return Err(Error::SpaceExists(name.into()));
        }
        if options.if_not_exists == IfNotExists::Refuse && self.turn.store.space_by_name(name).is_some() {
            return Err(Error::SpaceExists(name.into()));
        }
        let wish = Wish { name, kind, options, stored };
        let index = self.turn.transact_as(caller.acting(), |turn| {
            turn.catalog().create_in_transaction(caller, &wish, driver)
        })?;
        if let Some(ignored) = ignored {
            self.note_ignored(caller, arguments, &ignored);
        }
        self.describe(index, out);
        Ok(Answer::one())
    }

    /// The name as text; any other value is refused as a key of `_queue` or as the name of a space.
    fn tube_name<'a>(&self, argument: Option<&[u8]>, name: Option<&'a [u8]>) -> Result<&'a str> {
        let Some(name) = name else {
            let mut key = vec![0x90 + u8::from(argument.is_some())];
            key.extend_from_slice(argument.unwrap_or(&[]));
            self.turn.store.get(self.turn.common.spaces.queue, 0, &key)?;
            return Err(StoreError::Identifier(lua_text::text(argument)).into());
        };
        str::from_utf8(name)
            .map_err(|_| StoreError::Identifier(String::from_utf8_lossy(name).into_owned()).into())
    }

    fn create_in_transaction(
        &mut self,
        caller: &Caller,
        wish: &Wish<'_>,
        driver: Box<dyn Driver>,
    ) -> Result<TubeIndex> {
        let queue = self.turn.common.spaces.queue;
        if !caller.trusted {
            self.turn.store.check_access(caller.effective, Object::Space(queue), Access::READ)?;
        }
        let layout = wish.kind.layout();
        if let Some(space) = self.turn.store.space_by_name(wish.name) {
            if caller.trusted && caller.effective != user::ADMIN {
                // A user that may make tubes may not make one of a space with other data in it.
                let object = Object::Space(space.id());
                self.turn.store.check_access(caller.effective, object, Access::READ | Access::WRITE)?;
            }
            find_indexes(space, layout)?;
        } else if self.turn.store.get(queue, 0, &string_key(wish.name.as_bytes()))?.is_some() {
            return Err(Error::SpaceMissing(wish.name.into()));
        } else {
            self.create_spaces(wish, layout)?;
        }
        let id = free_tube_id(self.turn.store, queue)?;
        // A program may have dropped a paused tube of this id by its row alone.
        self.turn.as_admin(|turn| turn.common.pauses.forget(turn.store, id))?;
        let Wish { name, kind, options, stored } = wish;
        let row = TubeRow { name, id, space: name, tube_type: kind.name(), options: stored };
        self.turn.store.execute(&Statement::Insert { space: queue, tuple: &row.encode() })?;
        let index = self.load(&row, kind, driver, options.clone(), Missing::IsCreated)?;
        self.turn.common.pending.undo.push(Undo::Tube { tube: index });
        self.turn.tube(index)?.derive()?;
        self.turn.as_admin(|turn| turn.tube(index)?.open_to_every_tube())?;
        Ok(index)
    }

    fn create_spaces(&mut self, wish: &Wish<'_>, layout: &Layout) -> Result<()> {
        let Wish { name, options, .. } = wish;
        let engine = options.engine_name.as_deref().unwrap_or("memtx");
        if options.engine == Engine::Vinyl && options.temporary {
            let reason = "engine does not support temporary flag".into();
            return Err(StoreError::AlterSpace { name: (*name).into(), reason }.into());
        }
        create_space(self.turn.store, name, engine, options.temporary, &layout.space)?;
        if let Some(buffer) = layout.ready_buffer.as_ref().filter(|_| options.ready_buffer) {
            let name = format!("{name}{BUFFER_SUFFIX}");
            create_space(self.turn.store, &name, engine, options.temporary, buffer)?;
        }
        Ok(())
    }

    /// Loads a tube whose space and row exist: finds its indexes, its ready buffer and its next id. What
    /// derives from its tasks is kept if it has followed the rows, and else is to be found ([`TubeTurn::derive`]).
    pub(crate) fn load(
        &mut self,
        row: &TubeRow<'_>,
        kind: &Arc<TubeType>,
        driver: Box<dyn Driver>,
        options: TubeOptions,
        missing: Missing,
    ) -> Result<TubeIndex> {
        let layout = kind.layout();
        let space =
            self.turn.store.space_by_name(row.space).ok_or_else(|| Error::SpaceMissing(row.space.into()))?;
        let (id, temporary, sequence) = (space.id(), space.is_temporary(), space.sequence());
        let indexes = find_indexes(space, layout)?;
        let last_stored = self.turn.store.first(id, 0, IteratorType::Le, &[0x90])?.and_then(id_of);
        let creates = missing == Missing::IsCreated;
        let (buffer, sequence, last) = self.turn.store.acting_as(user::ADMIN, |store| {
            let buffer = find_buffer(store, row.space, layout, &options, creates.then_some(temporary))?;
            let made = find_sequence(store, id, sequence, last_stored, creates.then_some(row.space));
            made.map(|(sequence, last)| (buffer, sequence, last))
        })?;
        if let Some(buffer) = buffer {
            self.turn.store.exempt_from_limit(buffer);
        }
        defer_entries(self.turn.store, id, layout, &indexes);
        let mut tube = Tube {
            name: row.name.into(),
            id: row.id,
            space: id,
            indexes,
            buffer,
            kind: kind.clone(),
            driver,
            amiss: Amiss::default(),
            candidates_follow: false,
            options,
            sequence,
            next_id: last.map_or(Some(0), |last| last.checked_add(1)),
            counters: crate::statistics::Counters::default(),
            counts: KeptTasks::read(Tasks { store: self.turn.store, space: id, indexes })?,
            meter: None,
            oldest: crate::status::oldest::Oldest::default(),
            recount: None,
            observed: false,
            paused: false,
        };
        tube.set_paused(self.turn.common.pauses.of(self.turn.store, row.id)?.is_some());
        let former =
            self.turn.tubes.by_name(row.name).and_then(|handle| self.turn.tubes.at_mut(handle.index));
        if let Some(former) = former {
            tube.inherit_candidates(former);
        }
        self.turn.common.owners.mark_temporary(row.id, temporary);
        let index = self.turn.tubes.insert(tube).index;
        let earliest = self.turn.tube(index)?.earliest_event()?;
        self.turn.common.deadlines.set(index, earliest);
        Ok(index)
    }

    fn describe(&self, index: TubeIndex, out: &mut Vec<u8>) {
        let Some(tube) = self.turn.tubes.at(index) else { return };
        let mut map = Members::new(out);
        map.text("name", &tube.name);
        map.text("type", tube.kind.name());
        map.number("tube_id", tube.id);
    }

    /// `drop()`
    pub(crate) fn drop_tube(
        &mut self,
        caller: &Caller,
        index: TubeIndex,
        out: &mut Vec<u8>,
    ) -> Result<Answer> {
        let TubeTurn { store, tube, common, .. } = self.turn.tube(index)?;
        let key = string_key(tube.name.as_bytes());
        if store.get(common.spaces.queue, 0, &key)?.is_none() {
            return Err(Error::TubeNotFound);
        }
        if common.waiters.first(index, Line::Takes).is_some() {
            return Err(Error::TubeHasConsumers);
        }
        if common.owners.has_tube(store, tube.id)? {
            return Err(Error::TubeHasTakenTasks);
        }
        self.turn.transact_as(caller.acting(), |turn| {
            let TubeTurn { store, tube, common, .. } = turn.tube(index)?;
            let (id, space, buffer) = (tube.id, tube.space, tube.buffer);
            if let Some(sequence) = tube.sequence.filter(|sequence| store.sequence(*sequence).is_some()) {
                store.acting_as(user::ADMIN, |store| detach_sequence(store, space, sequence))?;
            }
            for space in std::iter::once(space).chain(buffer) {
                if store.space(space).is_ok() {
                    ddl::drop_space(store, space)?;
                }
            }
            store.execute(&Statement::Delete { space: common.spaces.queue, index: 0, key: &key })?;
            common.pending.dropped.push(index);
            turn.as_admin(|turn| {
                turn.common.pauses.forget(turn.store, id)?;
                let now = turn.now;
                turn.common.bulk.void(turn.store, id, "the tube was dropped", now)?;
                turn.common.attempts.forget_tube(turn.store, id)
            })
        })?;
        mp::write_bool(out, true);
        Ok(Answer::one())
    }

    /// The tube is dropped and committed.
    pub(crate) fn forget(&mut self, index: TubeIndex) {
        self.turn.waiters().dismiss(index, &Error::TubeNotFound);
        self.turn.common.deadlines.set(index, NEVER);
        self.turn.common.histories.forget(index);
        self.turn.tubes.remove(index);
    }
}

impl TubeCall<'_> {
    /// `truncate()`: no tasks, no owners, ids from 0. Counters stay.
    pub(crate) fn truncate(&mut self) -> Result<Answer> {
        self.transact(|turn| {
            ddl::truncate(turn.store, turn.tube.space)?;
            turn.account_truncation()
        })?;
        Ok(Answer::none())
    }
}

/// A number for a new tube: one more than the largest of all rows; the first free one if the largest is the maximum.
fn free_tube_id(store: &Store, queue: SpaceId) -> StoreResult<u64> {
    let id = |tuple: &[u8]| TupleRef::trusted(tuple).field(1).and_then(|id| Reader::new(id).uint().ok());
    let greatest = store.first(queue, QUEUE_BY_ID, IteratorType::Le, &[0x90])?;
    match greatest.and_then(id).map(|id| id.checked_add(1)) {
        None => Ok(0),
        Some(Some(next)) => Ok(next),
        Some(None) => {
            let taken = rows(store, queue, QUEUE_BY_ID, IteratorType::All, &[0x90])?;
            let taken = taken.iter().filter_map(|row| id(row));
            Ok((0..).zip(taken).take_while(|(free, taken)| free == taken).count() as u64)
        }
    }
}

/// The ready buffer of the tube on that space; None if the tube has none. One that is missing is created, temporary or not,
/// if `create` says which.
fn find_buffer(
    store: &mut Store,
    space: &str,
    layout: &Layout,
    options: &TubeOptions,
    create_missing: Option<bool>,
) -> Result<Option<SpaceId>> {
    let Some(buffer) = layout.ready_buffer.as_ref().filter(|_| options.ready_buffer) else { return Ok(None) };
    let name = format!("{space}{BUFFER_SUFFIX}");
    if let Some(space) = store.space_by_name(&name) {
        check_indexes(space, &buffer.indexes)?;
        return Ok(Some(space.id()));
    }
    let create = |temporary| create_space(store, &name, "memtx", temporary, buffer);
    Ok(create_missing.map(create).transpose()?)
}

/// The sequence of a tube's ids, and the largest id that was handed out or, in a temporary tube, reserved. A tube that has no
/// sequence gets one if `attach` names its space.
fn find_sequence(
    store: &mut Store,
    space: SpaceId,
    sequence: Option<u32>,
    last_stored: Option<u64>,
    attach: Option<&str>,
) -> Result<(Option<u32>, Option<u64>)> {
    let handed_out = sequence.and_then(|id| u64::try_from(store.sequence(id)?.value?).ok());
    let last = handed_out.max(last_stored);
    match (sequence, attach) {
        (None, Some(name)) => Ok((Some(attach_sequence(store, space, name, last)?), last)),
        (sequence, _) => Ok((sequence, last)),
    }
}

fn check_indexes(space: &Space, indexes: &[IndexLayout]) -> Result<()> {
    for index in indexes {
        let names = || (space.name().to_owned(), index.name.clone());
        let Some(present) = space.index_by_name(&index.name) else {
            let (space, index) = names();
            return Err(Error::IndexMissing { space, index });
        };
        let (parts, needed) = (present.key().parts(), &index.parts);
        let mut pairs = parts.iter().zip(needed);
        let is_needed = pairs.all(|(part, field)| part.field == *field && part.path.is_none());
        if parts.len() < needed.len() || !is_needed {
            let (space, index) = names();
            return Err(Error::IndexParts { space, index });
        }
    }
    Ok(())
}

/// Lets indexes defer the entries that the queue does not read: taken tasks in the indexes of states and of sub-queues; all
/// tasks, and those without a deadline however many they are, in the index of deadlines. The queue reads the first ready
/// task, so ready tasks go through a FIFO cache of the index of states. Those of sub-queues do not come in order.
fn defer_entries(store: &mut Store, space: SpaceId, layout: &Layout, indexes: &Indexes) {
    if layout.timed {
        store.defer_entries(space, indexes.watch, Deferral::Beyond { field: NEXT_EVENT, bound: BEYOND });
    }
    let (cached, deferred) = (State::Ready.encoded(), State::Taken.encoded());
    let cached_ready = Deferral::Parts { cached: Some(&cached), deferred: &deferred };
    store.defer_entries(space, indexes.status, cached_ready);
    if layout.utube.is_some() {
        for index in [indexes.utube, indexes.utube_pri] {
            store.defer_entries(space, index, Deferral::Parts { cached: None, deferred: &deferred });
        }
    }
}

/// [`Store::finish_recovery`] of a store that may have tubes: their indexes defer entries from the start.
///
/// # Errors
/// As [`Store::finish_recovery`].
pub fn finish_recovery(store: &mut Store) -> StoreResult<()> {
    finish_recovery_with(store, |builds| builds.into_iter().for_each(IndexBuild::run))
}

/// [`Store::finish_recovery_with`] of a store that may have tubes.
///
/// # Errors
/// As [`Store::finish_recovery`].
pub fn finish_recovery_with(store: &mut Store, run: impl FnOnce(Vec<IndexBuild<'_>>)) -> StoreResult<()> {
    defer_entries_of_tubes(store);
    store.finish_recovery_with(run)
}

/// Lets the indexes of tubes defer entries before they are built. Only entries that the queue reads are built then.
fn defer_entries_of_tubes(store: &mut Store) {
    let Some(queue) = store.space_by_name(crate::system::QUEUE.name).map(Space::id) else { return };
    let stored = rows(store, queue, 0, IteratorType::All, &[0x90]).unwrap_or_default();
    let types = TubeTypes::built_in();
    for row in stored.iter().filter_map(|row| TubeRow::read(row)) {
        let Some(layout) = types.get(row.tube_type).map(|kind| kind.layout()) else { continue };
        let Some(space) = store.space_by_name(row.space) else { continue };
        if let Ok(indexes) = find_indexes(space, layout) {
            let id = space.id();
            defer_entries(store, id, layout, &indexes);
        }
    }
}

fn find_indexes(space: &Space, layout: &Layout) -> Result<Indexes> {
    check_indexes(space, &layout.space.indexes)?;
    let id = |name| space.index_by_name(name).map_or(0, SpaceIndex::id);
    Ok(Indexes { status: id("status"), watch: id("watch"), utube: id("utube"), utube_pri: id("utube_pri") })
}
