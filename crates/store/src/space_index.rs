//! One index of a space: its definition, its tree, and its deferred entries.

use lycosa_tuple::field::FieldSet;
use lycosa_tuple::format::Format;
use lycosa_tuple::key::KeyDef;

use crate::IndexId;
use crate::arena::{Arena, Handle};
use crate::deferred::{DeferredEntries, Scope};
use crate::error::Error;
use crate::fifo_cache::{FifoCache, First};
use crate::index::Bookmark;
use crate::index::tree::Entry;
use crate::index::{Duplicate, Index, IndexKind, SelectError};
use crate::index_walk::Walk;
use crate::schema::index::IndexDef;
use crate::space::key_values;
use crate::special::Special;
use crate::statement::IteratorType;

/// What a disabled functional index lacks.
const NO_FUNCTION: &str = "a functional index that no row of _func_index gives its function";

/// One index of a space: its definition and what it holds.
#[derive(Debug)]
pub struct SpaceIndex {
    /// Tells the index, as long as its order stays, from every other one of the store; 0 before the catalog has it.
    pub(crate) identity: u64,
    pub(crate) def: IndexDef,
    /// All entries but the deferred ones. It is empty if the index is a special one.
    pub(crate) index: Index,
    /// What an index that is no plain one holds.
    special: Option<Special>,
    /// Of the primary index of a space of vinyl: when the space was written last, see [`crate::vinyl`].
    pub(crate) written_in: u64,
    /// Of an index that defers entries.
    deferred: Option<Box<DeferredEntries>>,
    /// The fields of the key, and the field whose value puts a tuple beyond the bound.
    fields: FieldSet,
}

impl SpaceIndex {
    /// An empty index. A TREE that may hold equal keys is ordered by the `primary` key in the second place.
    pub(crate) fn new(def: IndexDef, primary: Option<&KeyDef>) -> Self {
        let index = match (def.kind, primary) {
            // That of a functional index stays empty: no tuple is found in it by a number.
            (IndexKind::Hash | IndexKind::Functional, _) => Index::hash(def.key.clone()),
            (_, Some(primary)) if def.may_repeat() => {
                Index::tree(def.key.extended_by(primary), def.key.part_count(), def.unique)
            }
            _ => Index::tree(def.key.clone(), def.key.part_count(), def.unique),
        };
        let special = Special::new(&def, primary);
        let fields = def.key.fields();
        Self { identity: 0, def, index, special, written_in: 0, deferred: None, fields }
    }

    /// An empty index like this one.
    pub(crate) fn emptied(&self, primary: Option<&KeyDef>) -> Self {
        Self {
            identity: self.identity,
            deferred: self.deferred.as_ref().map(|deferred| Box::new(deferred.emptied())),
            fields: self.fields,
            ..Self::new(self.def.clone(), primary)
        }
    }

    /// Defers entries from now on. An index that could refuse a tuple stays as it is, and so does one that defers entries
    /// already or whose first part cannot be told by its bytes.
    pub(crate) fn defer_entries(&mut self, primary: &KeyDef, deferral: Deferral<'_>) {
        let holds_primary = self.def.key.extended_by(primary).part_count() == self.def.key.part_count();
        if self.deferred.is_some()
            || self.is_special()
            || self.def.unique && (self.def.may_repeat() || !holds_primary)
        {
            return;
        }
        let first =
            self.def.key.parts().first().filter(|part| part.path.is_none() && part.collation.is_binary());
        if let Deferral::Beyond { field, .. } = deferral {
            self.fields.insert(field);
        }
        let deferred = match (deferral, first) {
            (Deferral::Parts { cached, deferred }, Some(part)) => {
                let scope = Scope::Part { field: part.field, value: deferred.into() };
                DeferredEntries::new(scope, cached.and_then(|cached| self.cache_of(cached)))
            }
            (Deferral::Parts { .. }, None) => return,
            (Deferral::Beyond { field, bound }, _) => DeferredEntries::with_beyond(field, bound),
        };
        self.deferred = Some(Box::new(deferred));
        self.count_in_tree();
    }

    /// A cache for the part of the key that begins with this value, if hints can tell its tuples.
    fn cache_of(&self, value: &[u8]) -> Option<FifoCache> {
        let hints = self.index.hints_of(value, 1).filter(|_| self.def.kind == IndexKind::Tree)?;
        Some(FifoCache::new(&[&[0x91], value].concat(), hints))
    }

    /// Counts anew how many tuples of the cache's part are in the tree.
    fn count_in_tree(&mut self) {
        let Some(cache) = self.deferred.as_mut().and_then(|deferred| deferred.cache.as_mut()) else { return };
        cache.set_in_tree(self.index.count_hints(cache.hints()));
    }

    /// Whether entries are deferred.
    #[inline]
    pub(crate) fn has_deferred(&self) -> bool {
        self.deferred.as_ref().is_some_and(|deferred| !deferred.is_empty())
    }

    /// Flushes the few deferred entries and those in the cache, but none beyond the bound.
    pub(crate) fn flush_few(&mut self, arena: &Arena) {
        let Some(deferred) = &mut self.deferred else { return };
        deferred.satisfy();
        while let Some(handle) = deferred.pop() {
            self.index.insert(arena, handle);
        }
        if let Some(cache) = &mut deferred.cache {
            while let Some(entry) = cache.pop() {
                self.index.insert_entry(arena, entry);
                cache.note_inserted(entry.hint);
            }
        }
    }

    /// Flushes up to `budget` entries beyond the bound, and when none is left the few. Whether no entry is deferred any
    /// more. From the first call on no entry is deferred for lying beyond the bound.
    pub(crate) fn flush(&mut self, arena: &Arena, budget: u64) -> bool {
        let Some(deferred) = &mut self.deferred else { return true };
        let mut entries: Vec<Entry> =
            deferred.pop_beyond(budget).into_iter().map(|handle| self.index.entry(arena, handle)).collect();
        // Neighbors find the same nodes of the tree in the processor's cache.
        entries.sort_unstable_by(|a, b| self.index.compare_entries(arena, *a, *b));
        for entry in entries {
            self.index.insert_entry(arena, entry);
        }
        if deferred.has_beyond() {
            return false;
        }
        self.flush_few(arena);
        true
    }

    /// Makes these tuples what the index holds, in its tree or deferred.
    /// `primary` is the key by which equal keys are ordered, `format` that of the space.
    pub(crate) fn build(
        &mut self,
        arena: &Arena,
        (format, primary): (&Format, Option<&KeyDef>),
        handles: &[Handle],
    ) -> Result<(), Duplicate> {
        if let Some(special) = &mut self.special {
            // It may hold handles of deleted tuples.
            if let Some(empty) = Special::new(&self.def, primary) {
                *special = empty;
            }
            return special.build(arena, format, handles.iter().copied());
        }
        let Some(deferred) = &mut self.deferred else {
            return self.index.build(arena, handles.iter().copied());
        };
        **deferred = deferred.emptied();
        let in_tree =
            handles.iter().copied().filter(|&handle| !deferred.defer_beyond(handle, arena.get(handle)));
        self.index.build(arena, in_tree)?;
        self.count_in_tree();
        Ok(())
    }

    /// The deferred entries, if some may have a key that begins with these values.
    #[inline]
    fn deferred_for(&self, key: &[u8]) -> Option<&DeferredEntries> {
        self.deferred.as_deref().filter(|deferred| deferred.count(key) != Some(0))
    }

    /// Walks the index, see [`Index::select`]. Entries beyond the bound take O(n log n), see [`SpaceIndex::flush`].
    ///
    /// # Errors
    /// As [`Index::select`].
    #[inline]
    pub(crate) fn walk<'a>(
        &'a self,
        arena: &'a Arena,
        iterator: IteratorType,
        key: &'a [u8],
        part_count: u32,
        offset: u64,
    ) -> Result<Walk<'a>, SelectError> {
        if let Some(special) = &self.special {
            let tree = self.index.select(arena, IteratorType::All, &[], 0, 0)?;
            return Ok(Walk::special(tree, special.walk(iterator, key, part_count, offset)?));
        }
        let deferred = match iterator {
            IteratorType::Eq => self.deferred_for(key),
            _ => self.deferred.as_deref().filter(|deferred| !deferred.is_empty()),
        };
        match deferred {
            None => self.index.select(arena, iterator, key, part_count, offset).map(Walk::of_tree),
            Some(deferred) => self.merged_walk(arena, deferred, (iterator, key, part_count), offset),
        }
    }

    fn merged_walk<'a>(
        &'a self,
        arena: &'a Arena,
        deferred: &DeferredEntries,
        (iterator, key, part_count): (IteratorType, &'a [u8], u32),
        offset: u64,
    ) -> Result<Walk<'a>, SelectError> {
        deferred.want();
        let mut handles = deferred.handles();
        if matches!(iterator, IteratorType::Eq | IteratorType::Req) && part_count > 0 {
            let key_def = self.index.key();
            handles.retain(|&handle| key_def.compare_with_key(arena.get(handle), key, part_count).is_eq());
        }
        let mut alone = self.index.like();
        let built = alone.build(arena, handles);
        assert!(built.is_ok(), "an index that defers entries refuses no tuple");
        let mut select = alone.select(arena, iterator, key, part_count, 0)?;
        let entries: Vec<Entry> = std::iter::from_fn(|| select.next_entry()).collect();
        let mut walk = Walk::merged(self.index.select(arena, iterator, key, part_count, 0)?, entries);
        for _ in 0..offset {
            if walk.next().is_none() {
                break;
            }
        }
        Ok(walk)
    }

    /// The first tuple whose key begins with these values, a MessagePack array, in a TREE.
    ///
    /// # Errors
    /// A key that does not fit the index.
    #[inline]
    pub(crate) fn first(&self, arena: &Arena, key: &[u8]) -> Result<Option<Handle>, Error> {
        let cache = self.deferred.as_ref().and_then(|deferred| deferred.cache.as_ref());
        if let Some(cache) = cache.filter(|cache| cache.has_key(key)) {
            return Ok(match cache.first() {
                First::Is(first) => first,
                First::OrInTree(cached) => {
                    self.lesser(arena, cached, self.index.first_entry(arena, cache.part(), 1))
                }
            });
        }
        let (values, count) = key_values(key)?;
        self.def.key.check_key(values, count)?;
        Ok(self.first_of(arena, values, count))
    }

    /// The first tuple whose key begins with these values, which fit the index.
    #[inline]
    fn first_of(&self, arena: &Arena, values: &[u8], count: u32) -> Option<Handle> {
        if self.deferred_for(values).is_none() {
            return self.index.get(arena, values, count);
        }
        self.walk(arena, IteratorType::Eq, values, count, 0).ok()?.next()
    }

    /// The first tuple of an ascending walk from a key whose values fit the index (GE, GT), in a TREE. Of the deferred entries it
    /// sorts none: cached ones are in order, and of the few others the least is sought.
    ///
    /// # Errors
    /// As [`Index::select`].
    pub(crate) fn first_from(
        &self,
        arena: &Arena,
        iterator: IteratorType,
        key: &[u8],
        part_count: u32,
    ) -> Result<Option<Handle>, SelectError> {
        let deferred = self.deferred.as_deref().filter(|deferred| !deferred.is_empty());
        let few = deferred.map(|deferred| (deferred, deferred.few()));
        let (deferred, few) = match few {
            None => (None, None),
            Some((deferred, Some(few))) => (Some(deferred), Some(few)),
            Some((_, None)) => return Ok(self.walk(arena, iterator, key, part_count, 0)?.next()),
        };
        let in_tree = self.index.select(arena, iterator, key, part_count, 0)?.next_entry();
        let key_def = self.index.key();
        let is_before = |handle: Handle| {
            let order = key_def.compare_with_key(arena.get(handle), key, part_count);
            order.is_lt() || (order.is_eq() && iterator == IteratorType::Gt && part_count > 0)
        };
        let cached = deferred.and_then(|deferred| deferred.cache.as_ref()?.first_from(is_before));
        let few = few.into_iter().flatten().filter(|&handle| !is_before(handle));
        let least = few
            .map(|handle| self.index.entry(arena, handle))
            .min_by(|a, b| self.index.compare_entries(arena, *a, *b));
        let all = [in_tree, cached, least].into_iter().flatten();
        let first = all.min_by(|a, b| self.index.compare_entries(arena, *a, *b));
        Ok(first.map(|entry| entry.handle))
    }

    fn lesser(&self, arena: &Arena, a: Option<Entry>, b: Option<Entry>) -> Option<Handle> {
        let first = match (a, b) {
            (Some(a), Some(b)) if self.index.compare_entries(arena, a, b).is_gt() => Some(b),
            (None, b) => b,
            (a, _) => a,
        };
        first.map(|entry| entry.handle)
    }

    /// The number of tuples on a walk.
    ///
    /// # Errors
    /// As [`Index::select`].
    pub(crate) fn count(
        &self,
        arena: &Arena,
        iterator: IteratorType,
        key: &[u8],
        part_count: u32,
    ) -> Result<u64, SelectError> {
        if let Some(special) = &self.special {
            return special.count(iterator, key, part_count);
        }
        let in_tree = self.index.count(arena, iterator, key, part_count)?;
        let known = match &self.deferred {
            None => Some(0),
            Some(deferred) if part_count == 0 => Some(deferred.len()),
            Some(deferred) if iterator == IteratorType::Eq => deferred.count(key),
            Some(deferred) if deferred.is_empty() => Some(0),
            Some(_) => None,
        };
        match known {
            Some(deferred) => Ok(in_tree + deferred),
            None => Ok(self.walk(arena, iterator, key, part_count, 0)?.count() as u64),
        }
    }

    /// The index's number.
    #[must_use]
    pub fn id(&self) -> IndexId {
        self.def.id
    }

    /// The index's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.def.name
    }

    /// What orders the tuples.
    #[must_use]
    pub fn kind(&self) -> IndexKind {
        self.def.kind
    }

    /// Whether a key occurs at most once (keys with a nil excepted).
    #[must_use]
    pub fn is_unique(&self) -> bool {
        self.def.unique
    }

    /// The parts of the definition.
    #[must_use]
    pub fn key(&self) -> &KeyDef {
        &self.def.key
    }

    /// Number of tuples; of a multikey index the number of keys.
    #[must_use]
    pub fn len(&self) -> u64 {
        if let Some(special) = &self.special {
            return special.len();
        }
        self.index.len() + self.deferred.as_ref().map_or(0, |deferred| deferred.len())
    }

    /// Whether there are no tuples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the index, without the tuples.
    #[must_use]
    pub fn memory(&self) -> u64 {
        let special = self.special.as_ref().map_or(0, Special::memory);
        self.index.memory() + special + self.deferred.as_ref().map_or(0, |deferred| deferred.memory())
    }

    /// Whether the index is no order of tuples, see [`crate::special`].
    pub(crate) fn is_special(&self) -> bool {
        self.special.is_some()
    }

    /// To be called before [`SpaceIndex::put`] of a tuple that is new, if the index is special.
    pub(crate) fn prepare(&mut self, arena: &Arena, new: Handle, format: &Format) {
        if let Some(special) = &mut self.special {
            special.prepare(arena, new, format);
        }
    }

    /// The refusal of the last tuple: another one has its key, or a function has made no key of it.
    pub(crate) fn refusal(&mut self, space: &str) -> Error {
        match self.special.as_mut().and_then(Special::take_fault) {
            Some(fault) => fault.into_error(&self.def.name, space),
            None => Error::TupleFound { index: self.def.name.clone(), space: space.to_owned() },
        }
    }

    /// The transaction has ended: no removed tuple comes back.
    pub(crate) fn forget_removed(&mut self) {
        if let Some(special) = &mut self.special {
            special.forget_removed();
        }
    }

    /// Checks what an index can ask of a tuple beyond the format of its space.
    pub(crate) fn check_tuple(&self, tuple: &[u8]) -> Result<(), Error> {
        self.special.as_ref().map_or(Ok(()), |special| special.check(tuple))
    }

    /// Checks that `key` is `part_count` values with which the index can be walked.
    pub(crate) fn check_key(&self, iterator: IteratorType, key: &[u8], part_count: u32) -> Result<(), Error> {
        match &self.special {
            None => Ok(self.def.key.check_key(key, part_count)?),
            Some(special) => special.check_key(&self.def, iterator, key, part_count),
        }
    }

    /// Goes on with a walk of [`SpaceIndex::walk`] behind a place that [`SpaceIndex::bookmark`] has told. The index has no
    /// deferred entries.
    ///
    /// # Errors
    /// As [`Index::select`].
    pub(crate) fn resume<'a>(
        &'a self,
        arena: &'a Arena,
        iterator: IteratorType,
        key: &'a [u8],
        part_count: u32,
        position: &Bookmark,
    ) -> Result<Walk<'a>, SelectError> {
        let Some(special) = &self.special else {
            return Ok(Walk::of_tree(self.index.resume(arena, iterator, key, part_count, position)?));
        };
        let tree = self.index.select(arena, IteratorType::All, &[], 0, 0)?;
        Ok(Walk::special(tree, special.resume(iterator, key, part_count, position)?))
    }

    /// The place behind the tuple that a walk has handed out last; `None` if the index has no order to which a walk could
    /// return.
    pub(crate) fn bookmark(&self, arena: &Arena, walk: &Walk<'_>, last: Handle) -> Option<Bookmark> {
        match walk.as_special() {
            None => Some(self.index.bookmark(arena.get(last))),
            Some(special) => special.bookmark(),
        }
    }

    /// Finds the tuple with a whole key of a unique index. `guess` is a tuple of the space that may be the one.
    pub(crate) fn find(
        &self,
        arena: &Arena,
        key: &[u8],
        guess: Option<Handle>,
    ) -> Result<Option<Handle>, Error> {
        if !self.def.unique {
            return Err(Error::MoreThanOneTuple);
        }
        if let Some(number) = self.index.number_of_key(key)
            && !self.has_deferred()
        {
            return Ok(self.index.find_number(arena, number, guess));
        }
        let (values, count) = key_values(key)?;
        self.def.key.check_whole_key(values, count)?;
        if self.def.may_repeat() {
            self.def.key.check_no_nil(values)?;
        }
        if let Some(special) = &self.special {
            return special.get(values, count).map_err(|_| Error::lacks(NO_FUNCTION));
        }
        if let Some(guess) = guess
            && !self.def.may_repeat()
            && self.def.key.compare_with_key(arena.get(guess), values, count).is_eq()
        {
            return Ok(Some(guess));
        }
        Ok(self.first_of(arena, values, count))
    }

    /// Puts `new` in, in the place of `old`. Refuses, leaving the index as it was, if a third tuple has the key.
    pub(crate) fn put(&mut self, arena: &Arena, old: Option<Handle>, new: Handle) -> Result<(), Occupied> {
        if self.deferred.is_some() {
            self.exchange_deferred(arena, old, Some(new));
            return Ok(());
        }
        if let Some(special) = &mut self.special {
            return special.put(arena, old, new);
        }
        if self.def.unique && self.index.own_parts() < self.index.key().part_count() {
            let holder = self.index.duplicate_of(arena, arena.get(new));
            if holder.is_some() && holder != old {
                return Err(Occupied);
            }
        }
        match self.index.insert(arena, new) {
            found if found == old => Ok(()),
            None => {
                if let Some(old) = old {
                    self.index.remove(arena, old);
                }
                Ok(())
            }
            Some(found) => {
                self.index.replace(arena, new, found);
                Err(Occupied)
            }
        }
    }

    /// Removes a tuple, deferred or not.
    #[inline]
    pub(crate) fn remove(&mut self, arena: &Arena, old: Handle) {
        let Some(deferred) = &mut self.deferred else {
            match &mut self.special {
                Some(special) => special.remove(arena, old),
                None => _ = self.index.remove(arena, old),
            }
            return;
        };
        if deferred.remove(old) {
            return;
        }
        let entry = self.index.entry(arena, old);
        if deferred.cache.as_mut().is_some_and(|cache| cache.remove(entry)) {
            return;
        }
        if self.index.remove_entry(arena, entry).is_some()
            && let Some(cache) = &mut deferred.cache
        {
            cache.note_removed(entry.hint);
        }
    }

    /// Removes tuples that follow each other in the index.
    pub(crate) fn remove_run(&mut self, arena: &Arena, run: &[Handle]) {
        if self.deferred.is_some() || self.is_special() {
            run.iter().for_each(|&old| self.remove(arena, old));
        } else {
            self.index.remove_run(arena, run);
        }
    }

    /// Flushes the few deferred entries because reads have merged them: the next read finds them in the tree. Then defers a
    /// tuple.
    #[cold]
    fn flush_and_defer(&mut self, arena: &Arena, coming: Handle) {
        self.flush_few(arena);
        self.exchange_deferred(arena, None, Some(coming));
    }

    /// Removes `going` and defers `coming`, in this order: with an equal key `going` would else be taken for `coming`.
    fn exchange_deferred(&mut self, arena: &Arena, going: Option<Handle>, coming: Option<Handle>) {
        if let Some(going) = going {
            self.remove(arena, going);
        }
        let (Some(deferred), Some(coming)) = (&mut self.deferred, coming) else { return };
        if deferred.is_wanted() {
            return self.flush_and_defer(arena, coming);
        }
        let tuple = arena.get(coming);
        let Some(due) = deferred.defer(coming, tuple) else { return };
        let hint = self.index.hint(if due == coming { tuple } else { arena.get(due) });
        let entry = Entry { hint, handle: due };
        let cache = deferred.cache.as_mut().filter(|cache| cache.includes(entry.hint));
        match cache {
            None => _ = self.index.insert_entry(arena, entry),
            Some(cache) => {
                if let Some(entry) = cache.push(entry) {
                    self.index.insert_entry(arena, entry);
                    cache.note_inserted(entry.hint);
                }
            }
        }
    }

    /// Whether an equally long tuple that differs in these fields could have another place in the index.
    #[inline]
    pub(crate) fn depends_on(&self, fields: FieldSet) -> bool {
        !fields.is_disjoint(self.fields)
    }

    /// Whether a tuple is deferred for lying beyond the bound.
    #[inline]
    pub(crate) fn is_beyond(&self, handle: Handle) -> bool {
        self.deferred.as_ref().is_some_and(|deferred| deferred.is_beyond(handle))
    }

    /// Whether a tuple that has changed in place lay beyond the bound and still does. Otherwise it has to be put into the
    /// index again.
    #[inline]
    pub(crate) fn stays_beyond(&mut self, arena: &Arena, handle: Handle) -> bool {
        self.deferred.as_mut().is_some_and(|deferred| deferred.keep_beyond(handle, arena.get(handle)))
    }

    /// Takes back [`SpaceIndex::put`] or [`SpaceIndex::remove`].
    pub(crate) fn restore(&mut self, arena: &Arena, old: Option<Handle>, new: Option<Handle>) {
        if self.deferred.is_some() {
            return self.exchange_deferred(arena, new, old);
        }
        if let Some(special) = &mut self.special {
            if let Some(new) = new {
                special.remove(arena, new);
            }
            if let Some(old) = old {
                let put = special.put(arena, None, old);
                assert!(put.is_ok(), "what is taken back was there before");
            }
            return;
        }
        let replaced = old.and_then(|old| self.index.insert(arena, old));
        if let Some(new) = new
            && replaced != Some(new)
        {
            self.index.remove(arena, new);
        }
    }
}

/// Which entries an index defers. Reads see them all the same.
#[derive(Debug, Clone, Copy)]
pub enum Deferral<'a> {
    /// Those of two parts of the index, told by the value in the first part of its key, a string of at most 31 bytes as
    /// MessagePack.
    Parts {
        /// Tuples with this value, if there is one, go through a FIFO cache: their first one
        /// ([`Store::first`](crate::Store::first)) and their number are read, and they mostly arrive in the index's order.
        cached: Option<&'a [u8]>,
        /// Tuples with this value are hardly ever read.
        deferred: &'a [u8],
    },
    /// All, for an index that is written with every change and rarely read. Those with at least `bound` in this
    /// field, counted from 0, are deferred in any number, until a query reads the whole index: for deadlines
    /// beyond every scan.
    Beyond {
        /// Number of the field.
        field: u32,
        /// The least of those values.
        bound: u64,
    },
}

/// A unique index holds another tuple with the key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Occupied;
