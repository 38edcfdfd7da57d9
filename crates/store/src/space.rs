//! A space at work: tuples of one format behind its indexes.
//!
//! The primary index owns the tuples; the secondary ones hold the same handles in other orders. `Space::exchange` is the only
//! way in and `Space::restore` takes back what it did, so that after a refusal or a rollback every index is as before.
//! `Space::overwrite` changes a tuple where it is, and takes that back too.

use std::cell::Cell;
use std::sync::Arc;

use lycosa_tuple::field::FieldSet;
use lycosa_tuple::format::{Format, FormatError};
use lycosa_tuple::key::KeyDef;
use lycosa_tuple::mp::Reader;
use lycosa_tuple::path::Path;
use lycosa_tuple::tuple::TupleRef;
use lycosa_tuple::update::{self, Assigned};

use crate::access::Privacy;
use crate::arena::{Arena, Handle};
use crate::check::Checks;
use crate::error::Error;
use crate::hook::Hooks;
use crate::index::SelectError;
use crate::schema::space::SpaceDef;
use crate::weight::Weight;
use crate::{IndexId, SpaceId, UserId};

pub use crate::index::IndexKind;
pub use crate::schema::index::IndexDef;
pub use crate::schema::space::Engine;
pub use crate::space_index::SpaceIndex;

/// The sequence that fills a field of a space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AttachedSequence {
    pub(crate) sequence: u32,
    /// Number of the field from 0.
    pub(crate) field: u32,
    /// The place inside of the field, unless the sequence fills all of it. Shared, because inserts clone it.
    pub(crate) path: Option<Arc<Path>>,
    /// The sequence was made for this space and goes with it.
    pub(crate) is_generated: bool,
}

impl AttachedSequence {
    /// A reader of the tuple at the value that the sequence fills; nothing if the tuple has no such place.
    #[inline]
    pub(crate) fn place_in<'t>(&self, tuple: &'t [u8]) -> Option<Reader<'t>> {
        let mut reader = TupleRef::trusted(tuple).at(self.field)?;
        if let Some(path) = &self.path {
            path.seek(&mut reader)?;
        }
        Some(reader)
    }
}

/// Splits a key, which is a MessagePack array, into its values back to back and their number.
pub(crate) fn key_values(key: &[u8]) -> Result<(&[u8], u32), Error> {
    let mut reader = Reader::new(key);
    let count = reader.array().map_err(|_| Error::TupleNotArray)?;
    Ok((reader.rest(), count))
}

/// How a tuple enters a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PutMode {
    /// The primary key must be new.
    Insert,
    /// A tuple with the same primary key gives way.
    Replace,
    /// The tuple takes the place of this one, which has the same primary key.
    InPlaceOf(Handle),
}

/// A space: its definition, its indexes and, through them, its tuples.
#[derive(Debug)]
pub struct Space {
    /// Tells the space from every other one that has had its number; 0 before the catalog has it.
    pub(crate) identity: u64,
    pub(crate) def: SpaceDef,
    /// What tuples must look like: the declared fields and what the index parts ask.
    pub(crate) format: Format,
    /// In id order; the primary one, if there is one, comes first.
    pub(crate) indexes: Vec<SpaceIndex>,
    pub(crate) sequence: Option<AttachedSequence>,
    /// Bytes of all tuples.
    pub(crate) weight: Weight,
    /// Tuples of a snapshot that wait for the indexes to be built.
    pub(crate) loaded: Vec<Handle>,
    /// The secondary indexes do not hold what the primary one does: they are built when the log has been read.
    pub(crate) has_stale_indexes: bool,
    /// The tuple that was read last, while nothing in the space has changed since. The reader of a tuple often changes it next.
    pub(crate) last_found: Cell<Option<Handle>>,
    /// Bytes of the indexes at the catalog's last count.
    pub(crate) counted_indexes: u64,
    /// The catalog has handed the space out to be changed since its last count.
    pub(crate) is_uncounted: bool,
    /// See [`crate::hook`].
    pub(crate) hooks: Hooks,
    /// The memory limit does not hold for the space, see [`Store::exempt_from_limit`](crate::Store::exempt_from_limit).
    pub(crate) beyond_limit: bool,
    /// See [`Space::revision`].
    pub(crate) revision: u64,
    /// Which users the space's own privileges show its rows.
    pub(crate) privacy: Privacy,
    /// The definition stays as it is.
    pub(crate) is_guarded: bool,
    /// Check constraints.
    pub(crate) checks: Checks,
    /// An index is [special](crate::special), or a check constraint is enabled.
    pub(crate) has_special: bool,
}

impl SpaceDef {
    /// The format without the rules of indexes. As in a Tarantool the fields of tuples that are not kept are not counted
    /// unless the format names some.
    fn plain_format(&self) -> Format {
        let counts = self.engine != Engine::Blackhole || !self.fields.is_empty();
        let field_count = if counts { self.field_count } else { 0 };
        Format::new(self.fields.clone(), field_count)
    }
}

/// The most values of a tuple that the operations of a statement may step over: rows that were accepted before are not refused.
pub(crate) const fn step_limit(is_history: bool) -> u64 {
    if is_history { u64::MAX } else { update::STEP_LIMIT }
}

impl Space {
    pub(crate) fn new(def: SpaceDef) -> Self {
        let format = def.plain_format();
        Self {
            identity: 0,
            def,
            format,
            indexes: Vec::new(),
            sequence: None,
            weight: Weight::default(),
            loaded: Vec::new(),
            has_stale_indexes: false,
            last_found: Cell::new(None),
            counted_indexes: 0,
            is_uncounted: false,
            hooks: Hooks::default(),
            beyond_limit: false,
            revision: 0,
            privacy: Privacy::Open,
            is_guarded: false,
            checks: Checks::default(),
            has_special: false,
        }
    }

    /// The space's number.
    #[must_use]
    pub fn id(&self) -> SpaceId {
        self.def.id
    }

    /// Tells the space from every other one that has had its number, as long as the process runs.
    #[must_use]
    pub fn identity(&self) -> u64 {
        self.identity
    }

    /// Grows with each tuple that comes or changes, also in a transaction that is rolled back, and not with one that is
    /// deleted. While it stays as it is, no tuple can be found that was not there before.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The user that owns the space.
    #[must_use]
    pub fn owner(&self) -> UserId {
        self.def.owner
    }

    /// Whether it is a view: its rows come from a query.
    #[must_use]
    pub fn is_view(&self) -> bool {
        self.def.view
    }

    /// The space's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.def.name
    }

    /// Where the tuples are.
    #[must_use]
    pub fn engine(&self) -> Engine {
        self.def.engine
    }

    /// Whether the data are never logged, nor in snapshots.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        self.def.temporary
    }

    /// Whether part of the program keeps its state in the space, see [`Store::guard`](crate::Store::guard).
    #[must_use]
    pub fn is_guarded(&self) -> bool {
        self.is_guarded
    }

    /// Whether the rows stay on this instance.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.def.local
    }

    /// Whether changes count only once a quorum has confirmed them (`is_sync`).
    #[must_use]
    pub fn is_synchronous(&self) -> bool {
        self.def.sync
    }

    /// Whether a space of the system.
    #[must_use]
    pub fn is_system(&self) -> bool {
        self.def.id <= crate::system::MAX
    }

    /// Number of fields that every tuple must have; 0 if any will do.
    #[must_use]
    pub fn field_count(&self) -> u32 {
        self.def.field_count
    }

    /// The declared fields, and what the index parts ask of tuples.
    #[must_use]
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// The number, from 0, of the field with that name.
    #[must_use]
    pub fn field_by_name(&self, name: &str) -> Option<u32> {
        self.format.field_by_name(name.as_bytes())
    }

    /// The indexes in id order.
    #[must_use]
    pub fn indexes(&self) -> &[SpaceIndex] {
        &self.indexes
    }

    /// The index with that id.
    #[must_use]
    pub fn index(&self, id: IndexId) -> Option<&SpaceIndex> {
        match self.indexes.get(id as usize) {
            Some(index) if index.def.id == id => Some(index),
            _ => self.indexes.iter().find(|index| index.def.id == id),
        }
    }

    pub(crate) fn index_mut(&mut self, id: IndexId) -> Option<&mut SpaceIndex> {
        match self.indexes.get(id as usize) {
            Some(index) if index.def.id == id => self.indexes.get_mut(id as usize),
            _ => self.indexes.iter_mut().find(|index| index.def.id == id),
        }
    }

    /// The index with that name.
    #[must_use]
    pub fn index_by_name(&self, name: &str) -> Option<&SpaceIndex> {
        self.indexes.iter().find(|index| index.def.name == name)
    }

    /// Number of tuples.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.indexes.first().map_or(0, SpaceIndex::len) + self.loaded.len() as u64
    }

    /// Whether there are no tuples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all tuples as MessagePack.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.weight.bytes()
    }

    /// The sequence that fills a field of the space.
    #[must_use]
    pub fn sequence(&self) -> Option<u32> {
        self.sequence.as_ref().map(|attached| attached.sequence)
    }

    /// The index with that id, or the refusal.
    pub(crate) fn require_index(&self, id: IndexId) -> Result<&SpaceIndex, Error> {
        self.index(id).ok_or_else(|| Error::NoSuchIndexId { index: id, space: self.def.name.clone() })
    }

    /// Finds the tuple with a whole key of a unique index.
    ///
    /// # Errors
    /// No such index, one that is not unique, or a key that does not fit it.
    pub(crate) fn find(&self, arena: &Arena, index: IndexId, key: &[u8]) -> Result<Option<Handle>, Error> {
        let index = self.require_index(index)?;
        let found = index.find(arena, key, self.last_found.get())?;
        self.last_found.set(found);
        Ok(found)
    }

    /// Bytes of all indexes, without the tuples.
    pub(crate) fn index_memory(&self) -> u64 {
        self.indexes.iter().map(SpaceIndex::memory).sum()
    }

    /// Finds the tuple whose whole primary key is a number. `None` also says that other keys are possible.
    #[inline]
    pub(crate) fn find_number(&self, arena: &Arena, number: u64) -> Option<Handle> {
        let primary = self.indexes.first().filter(|index| index.def.id == 0 && !index.has_deferred())?;
        let found = primary.index.find_number(arena, number, self.last_found.get());
        self.last_found.set(found);
        found
    }

    pub(crate) fn primary(&self) -> Result<&SpaceIndex, Error> {
        self.require_index(0)
    }

    /// The key by which equal keys of secondary indexes are ordered.
    pub(crate) fn primary_key(&self) -> Option<&KeyDef> {
        self.indexes.first().filter(|index| index.def.id == 0).map(|index| &index.def.key)
    }

    /// Checks that a tuple fits the format.
    pub(crate) fn check(&self, tuple: &[u8]) -> Result<(), FormatError> {
        self.format.check(TupleRef::trusted(tuple))
    }

    /// The same; in a row that is history, every value once allowed in a field of type any is in order.
    pub(crate) fn check_as(&self, tuple: &[u8], is_history: bool) -> Result<(), FormatError> {
        let tuple = TupleRef::trusted(tuple);
        if is_history { self.format.check_stored(tuple) } else { self.format.check(tuple) }
    }

    /// The format that the space would have with these indexes.
    pub(crate) fn format_with<'a>(
        def: &SpaceDef,
        indexes: impl Iterator<Item = &'a IndexDef>,
        lenient: bool,
    ) -> Result<Format, FormatError> {
        let mut format = def.plain_format();
        // The parts of a functional index are those of the keys that its function makes.
        let indexes = indexes.filter(|index| index.function.is_none());
        for part in indexes.flat_map(|index| index.key.parts()) {
            let added = format.add_key_part(part);
            match format.contradiction().filter(|_| !lenient) {
                Some(contradiction) => return Err(contradiction.clone()),
                None => added?,
            }
        }
        Ok(format)
    }

    /// Puts a tuple, which must fit the format, into all indexes. Returns the tuple that it replaced.
    ///
    /// # Errors
    /// [`Error::TupleFound`] names the first index in id order that holds the key for another tuple; nothing has
    /// changed then.
    pub(crate) fn exchange(
        &mut self,
        arena: &Arena,
        new: Handle,
        mode: PutMode,
    ) -> Result<Option<Handle>, Error> {
        self.exchange_by(arena, new, mode, |index, _, old| index.put(arena, old, new).is_err())
    }

    /// [`Space::exchange`] of a space with a special index.
    pub(crate) fn exchange_special(
        &mut self,
        arena: &Arena,
        new: Handle,
        mode: PutMode,
    ) -> Result<Option<Handle>, Error> {
        self.check_special(arena.get(new))?;
        self.exchange_by(arena, new, mode, |index, format, old| {
            index.prepare(arena, new, format);
            index.put(arena, old, new).is_err()
        })
    }

    /// [`Space::exchange`] where `refuses` puts the tuple into a secondary index.
    #[inline]
    fn exchange_by(
        &mut self,
        arena: &Arena,
        new: Handle,
        mode: PutMode,
        mut refuses: impl FnMut(&mut SpaceIndex, &Format, Option<Handle>) -> bool,
    ) -> Result<Option<Handle>, Error> {
        let Some((primary, secondary)) = self.indexes.split_first_mut() else {
            return Err(Error::NoSuchIndexId { index: 0, space: self.def.name.clone() });
        };
        let old = match mode {
            PutMode::InPlaceOf(old) => {
                primary.index.replace(arena, old, new);
                Some(old)
            }
            PutMode::Insert | PutMode::Replace => primary.index.insert(arena, new),
        };
        let mut occupied = (mode == PutMode::Insert && old.is_some()).then_some(0);
        if occupied.is_none() {
            occupied =
                secondary.iter_mut().position(|index| refuses(index, &self.format, old)).map(|n| n + 1);
        }
        if let Some(occupied) = occupied {
            for index in &mut self.indexes[..occupied.max(1)] {
                index.restore(arena, old, Some(new));
            }
            return Err(self.indexes[occupied].refusal(&self.def.name));
        }
        self.revision += 1;
        self.weight.add(arena.get(new).len());
        if let Some(old) = old {
            self.weight.subtract(arena.get(old).len());
        }
        Ok(old)
    }

    /// Whether the space has what [`Space::has_special`] says.
    pub(crate) fn count_special(&mut self) {
        self.has_special = self.indexes.iter().any(SpaceIndex::is_special) || self.checks.any_enabled();
    }

    /// Checks what special indexes ask of a tuple.
    #[cold]
    pub(crate) fn check_special(&self, tuple: &[u8]) -> Result<(), Error> {
        self.indexes.iter().try_for_each(|index| index.check_tuple(tuple))
    }

    /// Puts what an UPDATE makes of a tuple into `out`, which is empty: as [`update::assign`] does if that is enough,
    /// else all of the updated tuple, which fits the format.
    ///
    /// # Errors
    /// Operations that cannot be applied, or a result that does not fit the format.
    #[inline]
    pub(crate) fn updated(
        &self,
        tuple: TupleRef<'_>,
        (operations, base): (&[u8], i64),
        in_place: impl FnOnce(FieldSet) -> bool,
        is_history: bool,
        out: &mut Vec<u8>,
    ) -> Result<Option<Assigned>, Error> {
        let assigned = update::assign(operations, tuple, &self.format, base, in_place, out);
        if assigned.is_none() {
            let steps = step_limit(is_history);
            *out = update::apply(operations, tuple, &self.format, base, update::Mode::Update, steps)?;
            let was_odd = || self.check(tuple.bytes()).is_err();
            self.check(out).or_else(|refused| {
                let is_stored = self.check_as(out, true).is_ok() && (is_history || was_odd());
                if is_stored { Ok(()) } else { Err(refused) }
            })?;
        }
        Ok(assigned)
    }

    /// Changes a tuple in place: `swap` exchanges bytes of it with others of the same length that differ in these
    /// fields, none of them in the primary key, so that the tuple fits the format as before. A second call of `swap`
    /// has to take back the first.
    ///
    /// # Errors
    /// [`Error::TupleFound`] as for [`Space::exchange`]; nothing has changed then.
    pub(crate) fn overwrite(
        &mut self,
        arena: &mut Arena,
        handle: Handle,
        fields: FieldSet,
        mut swap: impl FnMut(&mut Arena),
    ) -> Result<(), Error> {
        let secondary = self.indexes.get_mut(1..).unwrap_or_default();
        for index in secondary.iter_mut().filter(|index| index.depends_on(fields)) {
            if !index.is_beyond(handle) {
                index.remove(arena, handle);
            }
        }
        swap(arena);
        let put = |index: &mut SpaceIndex| {
            if index.stays_beyond(arena, handle) { Ok(()) } else { index.put(arena, None, handle) }
        };
        let refused = secondary.iter_mut().position(|index| index.depends_on(fields) && put(index).is_err());
        let Some(refused) = refused else {
            self.revision += 1;
            return Ok(());
        };
        for index in secondary[..refused].iter_mut().filter(|index| index.depends_on(fields)) {
            index.remove(arena, handle);
        }
        swap(arena);
        for index in secondary.iter_mut().filter(|index| index.depends_on(fields)) {
            index.restore(arena, Some(handle), None);
        }
        Err(Error::TupleFound { index: secondary[refused].def.name.clone(), space: self.def.name.clone() })
    }

    /// Removes a tuple from all indexes.
    pub(crate) fn remove(&mut self, arena: &Arena, old: Handle) {
        for index in &mut self.indexes {
            index.remove(arena, old);
        }
        self.weight.subtract(arena.get(old).len());
    }

    /// Removes tuples that follow each other in the index `along` from all indexes.
    pub(crate) fn remove_run(&mut self, arena: &Arena, along: IndexId, run: &[Handle]) {
        for index in &mut self.indexes {
            if index.def.id == along {
                index.remove_run(arena, run);
            } else {
                run.iter().for_each(|&old| index.remove(arena, old));
            }
        }
        let bytes = run.iter().map(|&old| arena.get(old).len() as u64).sum();
        self.weight.subtract_all(bytes, run.len() as u64);
    }

    /// Takes back an exchange or removal.
    pub(crate) fn restore(&mut self, arena: &Arena, old: Option<Handle>, new: Option<Handle>) {
        for index in &mut self.indexes {
            index.restore(arena, old, new);
        }
        self.revision += 1;
        if let Some(old) = old {
            self.weight.add(arena.get(old).len());
        }
        if let Some(new) = new {
            self.weight.subtract(arena.get(new).len());
        }
    }

    /// All tuples in the order of the primary index.
    pub(crate) fn handles<'a>(&'a self, arena: &'a Arena) -> impl Iterator<Item = Handle> + 'a {
        let walk = self
            .indexes
            .first()
            .and_then(|primary| primary.index.select(arena, crate::IteratorType::All, &[], 0, 0).ok());
        walk.into_iter().flatten()
    }

    /// What a refused walk means to a client.
    pub(crate) fn select_error(&self, index: &SpaceIndex, error: SelectError) -> Error {
        let kind = index.def.kind_name();
        match error {
            SelectError::Iterator | SelectError::Disabled => Error::UnsupportedIndexFeature {
                index: index.def.name.clone(),
                kind,
                space: self.def.name.clone(),
                engine: self.def.engine.name(),
                feature: match error {
                    SelectError::Disabled => "read view".into(),
                    _ => "requested iterator type".into(),
                },
            },
            SelectError::PartialKey { expected, got } => Error::PartialKey { kind, expected, got },
        }
    }
}
