//! Making and unmaking tubes.
//!
//! A tube is made in one transaction (space, indexes, sequence, ready buffer, row of `_queue`), so a create that fails
//! leaves nothing behind.

use lycosa_store::ddl;
use lycosa_store::{
    Access, Deferral, Error as StoreError, IteratorType, Object, Space, SpaceId, SpaceIndex, Statement,
    Store, user,
};
use lycosa_tuple::mp::{self, Reader};

use crate::account::rebuild_candidates;
use crate::arguments::{Arguments, string};
use crate::driver::options::{IfNotExists, TubeOptions};
use crate::driver::{self, Driver, Engine, Indexes};
use crate::error::Error;
use crate::lua_text;
use crate::system::{QUEUE_BY_ID, attach_sequence, create_space, detach_sequence, reset_sequence, rows};
use crate::task::{IndexLayout, Layout, NEXT_EVENT, State, string_key};
use crate::time::{BEYOND, NEVER};
use crate::transaction::Undo;
use crate::tube::{SlotIndex, Tube};
use crate::{Answer, Caller, Queue};

/// Suffix of the name of a tube's ready buffer.
pub(crate) const BUFFER_SUFFIX: &str = "_ready_buffer";

/// A row of `_queue`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TubeRow<'a> {
    pub(crate) name: &'a str,
    pub(crate) id: u64,
    pub(crate) space: &'a str,
    pub(crate) tube_type: &'a str,
    pub(crate) options: &'a [u8],
}

impl<'a> TubeRow<'a> {
    pub(crate) fn read(tuple: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(tuple);
        reader.array().ok()?;
        Some(Self {
            name: str::from_utf8(reader.str().ok()?).ok()?,
            id: reader.uint().ok()?,
            space: str::from_utf8(reader.str().ok()?).ok()?,
            tube_type: str::from_utf8(reader.str().ok()?).ok()?,
            options: reader.raw().ok()?,
        })
    }

    fn encode(&self) -> Vec<u8> {
        let mut row = Vec::new();
        mp::write_array(&mut row, 5);
        mp::write_str(&mut row, self.name.as_bytes());
        mp::write_uint(&mut row, self.id);
        mp::write_str(&mut row, self.space.as_bytes());
        mp::write_str(&mut row, self.tube_type.as_bytes());
        row.extend_from_slice(self.options);
        row
    }
}

/// What `create_tube` is asked for.
struct Wish<'a> {
    name: &'a str,
    tube_type: &'a str,
    options: TubeOptions,
    given: Option<&'a [u8]>,
}

impl Queue {
    /// `queue.create_tube(name, type[, options])`. Answers a map with the tube's name, type and id.
    pub(crate) fn create_tube(
        &mut self,
        store: &mut Store,
        caller: &Caller,
        arguments: Arguments<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Answer, Error> {
        let type_argument = arguments.get(1);
        let unknown_type = || Error::UnknownTubeType(lua_text::text(type_argument));
        let tube_type = type_argument
            .and_then(string)
            .and_then(|bytes| str::from_utf8(bytes).ok())
            .ok_or_else(unknown_type)?;
        let given = arguments.present(2);
        let options = TubeOptions::parse(given, tube_type)?;
        let name = arguments.get(0).and_then(string);
        let existing = name.and_then(|name| self.tubes.by_name(str::from_utf8(name).ok()?));
        if let Some(slot) = existing
            && options.if_not_exists != IfNotExists::Refuse
        {
            self.describe_tube(slot.index, out);
            return Ok(Answer::one());
        }
        if options.temporary && self.configuration.in_replicaset {
            return Err(Error::TemporaryInReplicaset);
        }
        let driver = driver::create(tube_type, &options)?.ok_or_else(unknown_type)?;
        let name = self.tube_name(store, arguments.get(0), name)?;
        if existing.is_some_and(|slot| self.pending.dropped.contains(&slot.index)) {
            return Err(Error::SpaceExists(name.into()));
        }
        if options.if_not_exists == IfNotExists::Refuse && store.space_by_name(name).is_some() {
            return Err(Error::SpaceExists(name.into()));
        }
        let wish = Wish { name, tube_type, options, given };
        let acting = self.acting(caller);
        let index = self.transact(store, acting, |queue, store| {
            queue.create_in_transaction(store, caller, &wish, driver)
        })?;
        self.describe_tube(index, out);
        Ok(Answer::one())
    }

    /// The name as text; whatever cannot be a name is refused as a key of `_queue` or as the name of a space.
    fn tube_name<'a>(
        &self,
        store: &Store,
        argument: Option<&[u8]>,
        name: Option<&'a [u8]>,
    ) -> Result<&'a str, Error> {
        let Some(name) = name else {
            let mut key = vec![0x90 + u8::from(argument.is_some())];
            key.extend_from_slice(argument.unwrap_or(&[]));
            store.get(self.spaces.queue, 0, &key)?;
            return Err(StoreError::Identifier(lua_text::text(argument)).into());
        };
        str::from_utf8(name)
            .map_err(|_| StoreError::Identifier(String::from_utf8_lossy(name).into_owned()).into())
    }

    fn create_in_transaction(
        &mut self,
        store: &mut Store,
        caller: &Caller,
        wish: &Wish<'_>,
        driver: Box<dyn Driver>,
    ) -> Result<SlotIndex, Error> {
        let queue = self.spaces.queue;
        if !caller.trusted {
            store.check_access(caller.user, Object::Space(queue), Access::READ)?;
        }
        let layout = driver.layout();
        if let Some(space) = store.space_by_name(wish.name) {
            find_indexes(space, layout)?;
        } else if store.get(queue, 0, &string_key(wish.name.as_bytes()))?.is_some() {
            return Err(Error::SpaceMissing(wish.name.into()));
        } else {
            self.create_spaces(store, wish, layout)?;
        }
        let greatest = store.first(queue, QUEUE_BY_ID, IteratorType::Le, &[0x90])?;
        let id = greatest.and_then(TubeRow::read).map_or(0, |row| row.id + 1);
        let mut stored = Vec::new();
        TubeOptions::write_stored(wish.given, wish.tube_type, &mut stored);
        let row =
            TubeRow { name: wish.name, id, space: wish.name, tube_type: wish.tube_type, options: &stored };
        store.execute(&Statement::Insert { space: queue, tuple: &row.encode() })?;
        let index = self.load_tube(store, &row, driver, wish.options.clone())?;
        self.pending.undo.push(Undo::Tube { slot: index });
        Ok(index)
    }

    fn create_spaces(&mut self, store: &mut Store, wish: &Wish<'_>, layout: &Layout) -> Result<(), Error> {
        let Wish { name, options, .. } = wish;
        let engine = options.engine_name.as_deref().unwrap_or("memtx");
        if options.engine == Engine::Vinyl && options.temporary {
            let reason = "engine does not support temporary flag".into();
            return Err(StoreError::AlterSpace { name: (*name).into(), reason }.into());
        }
        create_space(store, name, engine, options.temporary, layout.fields, layout.indexes)?;
        if let Some(buffer) = layout.ready_buffer.filter(|_| options.ready_buffer) {
            let name = format!("{name}{BUFFER_SUFFIX}");
            create_space(store, &name, engine, options.temporary, buffer.fields, buffer.indexes)?;
        }
        Ok(())
    }

    /// Makes the process know a tube whose space and row are there: finds its indexes, its ready buffer, its next id
    /// and its candidates, and creates what a tube of the Lua module lacks. Inside a transaction.
    pub(crate) fn load_tube(
        &mut self,
        store: &mut Store,
        row: &TubeRow<'_>,
        driver: Box<dyn Driver>,
        options: TubeOptions,
    ) -> Result<SlotIndex, Error> {
        let layout = driver.layout();
        let space = store.space_by_name(row.space).ok_or_else(|| Error::SpaceMissing(row.space.into()))?;
        let (id, temporary, sequence) = (space.id(), space.is_temporary(), space.sequence());
        let indexes = find_indexes(space, layout)?;
        let last_stored = store.first(id, 0, IteratorType::Le, &[0x90])?.and_then(crate::task::id_of);
        let former = store.set_user(user::ADMIN);
        let beside = find_buffer(store, row.space, layout, &options, temporary).and_then(|buffer| {
            let (sequence, last) = find_sequence(store, id, row.space, temporary, sequence, last_stored)?;
            Ok((buffer, sequence, last))
        });
        store.set_user(former);
        let (buffer, sequence, last) = beside?;
        if let Some(buffer) = buffer {
            store.exempt_from_limit(buffer);
        }
        defer_entries(store, id, layout, &indexes);
        let mut tube = Tube {
            name: row.name.into(),
            id: row.id,
            space: id,
            indexes,
            buffer,
            driver,
            options,
            sequence,
            next_id: last.map_or(Some(0), |last| last.checked_add(1)),
            counters: crate::statistics::Counters::default(),
            observed: false,
        };
        rebuild_candidates(&mut tube, store);
        let index = self.tubes.insert(tube).index;
        let earliest = self.earliest_event(store, index, 0)?;
        self.deadlines.set(index, earliest);
        Ok(index)
    }

    fn describe_tube(&self, index: SlotIndex, out: &mut Vec<u8>) {
        let Some(tube) = self.tubes.at(index) else { return };
        mp::write_map(out, 3);
        mp::write_str(out, b"name");
        mp::write_str(out, tube.name.as_bytes());
        mp::write_str(out, b"type");
        mp::write_str(out, tube.driver.name().as_bytes());
        mp::write_str(out, b"tube_id");
        mp::write_uint(out, tube.id);
    }

    /// `drop()`
    pub(crate) fn drop_tube(
        &mut self,
        store: &mut Store,
        caller: &Caller,
        index: SlotIndex,
        out: &mut Vec<u8>,
    ) -> Result<Answer, Error> {
        let Some(tube) = self.tubes.at(index) else { return Err(Error::Stale) };
        let key = string_key(tube.name.as_bytes());
        if store.get(self.spaces.queue, 0, &key)?.is_none() {
            return Err(Error::TubeNotFound);
        }
        if self.waiters.first(index, crate::waiter::Line::Takes).is_some() {
            return Err(Error::TubeHasConsumers);
        }
        if self.has_owners(store, tube.id)? {
            return Err(Error::TubeHasTakenTasks);
        }
        let acting = self.acting(caller);
        self.transact(store, acting, |queue, store| {
            let Some(tube) = queue.tubes.at(index) else { return Err(Error::Stale) };
            if let Some(sequence) = tube.sequence.filter(|sequence| store.sequence(*sequence).is_some()) {
                let former = store.set_user(user::ADMIN);
                let detached = detach_sequence(store, tube.space, sequence);
                store.set_user(former);
                detached?;
            }
            let (id, spaces) = (tube.id, std::iter::once(tube.space).chain(tube.buffer));
            for space in spaces {
                if store.space(space).is_ok() {
                    ddl::drop_space(store, space)?;
                }
            }
            store.execute(&Statement::Delete { space: queue.spaces.queue, index: 0, key: &key })?;
            let former = store.set_user(user::ADMIN);
            let forgotten = queue.forget_all_attempts(store, id);
            store.set_user(former);
            forgotten?;
            queue.pending.dropped.push(index);
            Ok(())
        })?;
        mp::write_bool(out, true);
        Ok(Answer::one())
    }

    /// The tube is dropped and committed.
    pub(crate) fn forget_tube(&mut self, store: &mut Store, index: SlotIndex) {
        self.dismiss_waiters(store, index);
        self.deadlines.set(index, NEVER);
        self.tubes.remove(index);
    }

    /// `truncate()`: no tasks, no owners, ids from 0. Counters stay.
    pub(crate) fn truncate(&mut self, store: &mut Store, index: SlotIndex) -> Result<Answer, Error> {
        self.transact(store, user::ADMIN, |queue, store| {
            let Some(tube) = queue.tubes.at_mut(index) else { return Err(Error::Stale) };
            let (space, sequence) = (tube.space, tube.sequence);
            ddl::truncate(store, space)?;
            if let Some(sequence) = sequence {
                reset_sequence(store, sequence)?;
            }
            queue.account_truncation(store, index)?;
            if let Some(tube) = queue.tubes.at_mut(index) {
                queue.pending.undo.push(Undo::NextId { slot: index, previous: tube.next_id });
                tube.next_id = Some(0);
            }
            Ok(())
        })?;
        Ok(Answer::none())
    }
}

/// The ready buffer of the tube on that space, created if it is missing; None if the tube has none.
fn find_buffer(
    store: &mut Store,
    space: &str,
    layout: &Layout,
    options: &TubeOptions,
    temporary: bool,
) -> Result<Option<SpaceId>, Error> {
    let Some(buffer) = layout.ready_buffer.filter(|_| options.ready_buffer) else { return Ok(None) };
    let name = format!("{space}{BUFFER_SUFFIX}");
    match store.space_by_name(&name) {
        Some(space) => {
            check_indexes(space, buffer.indexes)?;
            Ok(Some(space.id()))
        }
        None => Ok(Some(create_space(store, &name, "memtx", temporary, buffer.fields, buffer.indexes)?)),
    }
}

/// The sequence of a tube's ids, attached if a durable tube has none, and the largest id that was handed out.
fn find_sequence(
    store: &mut Store,
    space: SpaceId,
    name: &str,
    temporary: bool,
    sequence: Option<u32>,
    last_stored: Option<u64>,
) -> Result<(Option<u32>, Option<u64>), Error> {
    let handed_out = sequence.and_then(|id| u64::try_from(store.sequence(id)?.value?).ok());
    let last = handed_out.max(last_stored);
    match sequence {
        None if !temporary => Ok((Some(attach_sequence(store, space, name, last)?), last)),
        other => Ok((other, last)),
    }
}

fn check_indexes(space: &Space, indexes: &[IndexLayout]) -> Result<(), Error> {
    for index in indexes {
        if space.index_by_name(index.name).is_none() {
            return Err(Error::IndexMissing { space: space.name().into(), index: index.name });
        }
    }
    Ok(())
}

/// Lets indexes defer the entries that the queue does not read: taken tasks in the index of states; all tasks, and those
/// without a deadline however many they are, in the index of deadlines. The queue reads the first ready task, so ready
/// tasks go through a FIFO cache.
fn defer_entries(store: &mut Store, space: SpaceId, layout: &Layout, indexes: &Indexes) {
    if layout.timed {
        store.defer_entries(space, indexes.watch, Deferral::Beyond { field: NEXT_EVENT, bound: BEYOND });
    }
    let (cached, deferred) = (State::Ready.encoded(), State::Taken.encoded());
    let parts = Deferral::Parts { cached: &cached, deferred: &deferred };
    store.defer_entries(space, indexes.status, parts);
}

/// Prepares the spaces of tubes for what the queue makes of them. To be called when all rows are recovered, before
/// [`Store::finish_recovery`] builds their indexes: it then builds only what is needed. Nothing depends on its being called.
pub fn prepare_tubes(store: &mut Store) {
    let Some(queue) = store.space_by_name(crate::system::QUEUE.name).map(Space::id) else { return };
    let stored = rows(store, queue, 0, IteratorType::All, &[0x90]).unwrap_or_default();
    for row in stored.iter().filter_map(|row| TubeRow::read(row)) {
        let Some(layout) = driver::layout(row.tube_type) else { continue };
        let Some(space) = store.space_by_name(row.space) else { continue };
        if let Ok(indexes) = find_indexes(space, layout) {
            let id = space.id();
            defer_entries(store, id, layout, &indexes);
        }
    }
}

fn find_indexes(space: &Space, layout: &Layout) -> Result<Indexes, Error> {
    check_indexes(space, layout.indexes)?;
    let id = |name| space.index_by_name(name).map_or(0, SpaceIndex::id);
    Ok(Indexes { status: id("status"), watch: id("watch"), utube: id("utube"), utube_pri: id("utube_pri") })
}
