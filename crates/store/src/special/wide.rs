//! Multikey indexes: a tuple has a key for each element of an array. Functional indexes keep their keys here too.
//!
//! Each key is an *entry*: an array of the key's values, of those of the primary key where keys may repeat, and of the
//! tuple's handle. Entries lie in an arena of the index's own, and a plain TREE orders them: so every walk, count and offset
//! costs what it costs in a TREE. Of equal keys of one tuple there is one entry.

use lycosa_tuple::key::KeyDef;
use lycosa_tuple::mp;
use lycosa_tuple::tuple::TupleRef;

use crate::arena::{Arena, Handle};
use crate::index::{Bookmark, Index, Select, SelectError};
use crate::schema::index::IndexDef;
use crate::space_index::Occupied;
use crate::statement::IteratorType;

/// A multikey index.
#[derive(Debug)]
pub(crate) struct Wide {
    /// What makes the keys of a tuple.
    key: KeyDef,
    /// The primary key, where it orders equal keys.
    primary: Option<KeyDef>,
    unique: bool,
    entries: Arena,
    /// Over the entries.
    index: Index,
}

/// A walk over the tuples of a multikey index; a tuple comes once for each of its keys.
#[derive(Debug, Clone)]
pub(crate) struct WideWalk<'a> {
    wide: &'a Wide,
    select: Select<'a>,
    /// The last entry.
    last: Option<Handle>,
}

impl Iterator for WideWalk<'_> {
    type Item = Handle;

    fn next(&mut self) -> Option<Handle> {
        let entry = self.select.next()?;
        self.last = Some(entry);
        Some(self.wide.tuple_of(entry))
    }
}

impl WideWalk<'_> {
    /// The place behind the last entry.
    pub(crate) fn bookmark(&self) -> Option<Bookmark> {
        self.last.map(|entry| self.wide.index.bookmark(self.wide.entries.get(entry)))
    }
}

impl Wide {
    /// An empty index.
    pub(crate) fn new(def: &IndexDef, primary: Option<&KeyDef>) -> Self {
        let primary = primary.filter(|_| def.may_repeat());
        let index = Index::tree(def.key.flattened(primary), def.key.part_count(), def.unique);
        Self {
            key: def.key.clone(),
            primary: primary.cloned(),
            unique: def.unique,
            entries: Arena::default(),
            index,
        }
    }

    /// The entry of a tuple for these values, which are a key.
    pub(super) fn entry_of(&self, key: &[u8], tuple: &[u8], handle: Handle) -> Vec<u8> {
        let mut entry = Vec::with_capacity(key.len() + 16);
        mp::write_array(&mut entry, self.index.key().part_count() + 1);
        entry.extend_from_slice(key);
        if let Some(primary) = &self.primary {
            primary.extract(tuple, &mut entry);
        }
        mp::write_uint(&mut entry, u64::from(handle.number()));
        entry
    }

    /// The entries of a tuple.
    fn entries_of(&self, tuple: &[u8], handle: Handle) -> Vec<Vec<u8>> {
        let mut entries = Vec::new();
        self.key.each_key(tuple, &mut |key| entries.push(self.entry_of(key, tuple, handle)));
        entries
    }

    /// The tuple whose key an entry is.
    fn tuple_of(&self, entry: Handle) -> Handle {
        let number = TupleRef::trusted(self.entries.get(entry)).at(self.index.key().part_count());
        let number = number.and_then(|mut reader| reader.uint().ok());
        let handle = number.and_then(|number| Handle::of_number(u32::try_from(number).ok()?));
        handle.expect("an entry ends with the handle of its tuple")
    }

    /// Puts `new` in, in the place of `old`.
    pub(crate) fn put(&mut self, arena: &Arena, old: Option<Handle>, new: Handle) -> Result<(), Occupied> {
        let entries = self.entries_of(arena.get(new), new);
        if self.refuses(&entries, old) {
            return Err(Occupied);
        }
        if let Some(old) = old {
            self.remove(arena, old);
        }
        self.insert(entries);
        Ok(())
    }

    /// Whether one of these entries has a key that another tuple than `old` has, in a unique index.
    pub(super) fn refuses(&self, entries: &[Vec<u8>], old: Option<Handle>) -> bool {
        let is_taken = |entry: &Vec<u8>| {
            let holder = self.index.duplicate_of(&self.entries, entry).map(|entry| self.tuple_of(entry));
            holder.is_some() && holder != old
        };
        self.unique && entries.iter().any(is_taken)
    }

    /// Puts the entries of a tuple in; of equal ones the last. Returns where they are.
    pub(super) fn insert(&mut self, entries: Vec<Vec<u8>>) -> Vec<Handle> {
        let mut inserted = Vec::with_capacity(entries.len());
        for entry in entries {
            let entry =
                self.entries.insert(&entry).expect("the limit of memory is below what an arena can hold");
            if let Some(same) = self.index.insert(&self.entries, entry) {
                inserted.retain(|&other| other != same);
                self.entries.remove(same);
            }
            inserted.push(entry);
        }
        inserted
    }

    /// Removes an entry and returns its bytes.
    pub(super) fn take(&mut self, entry: Handle) -> Vec<u8> {
        let bytes = self.entries.get(entry).to_vec();
        self.index.remove(&self.entries, entry);
        self.entries.remove(entry);
        bytes
    }

    /// Removes a tuple; nothing if it is not there.
    pub(crate) fn remove(&mut self, arena: &Arena, old: Handle) {
        for entry in self.entries_of(arena.get(old), old) {
            let found = self.index.find(&self.entries, &entry);
            if let Some(found) = found.filter(|&found| self.tuple_of(found) == old) {
                self.index.remove(&self.entries, found);
                self.entries.remove(found);
            }
        }
    }

    /// The first tuple whose key begins with these values.
    pub(crate) fn get(&self, key: &[u8], part_count: u32) -> Option<Handle> {
        self.index.get(&self.entries, key, part_count).map(|entry| self.tuple_of(entry))
    }

    /// As [`Index::select`].
    pub(crate) fn walk<'a>(
        &'a self,
        iterator: IteratorType,
        key: &'a [u8],
        part_count: u32,
        offset: u64,
    ) -> Result<WideWalk<'a>, SelectError> {
        let select = self.index.select(&self.entries, iterator, key, part_count, offset)?;
        Ok(WideWalk { wide: self, select, last: None })
    }

    /// As [`Index::resume`].
    pub(crate) fn resume<'a>(
        &'a self,
        iterator: IteratorType,
        key: &'a [u8],
        part_count: u32,
        position: &Bookmark,
    ) -> Result<WideWalk<'a>, SelectError> {
        let select = self.index.resume(&self.entries, iterator, key, part_count, position)?;
        Ok(WideWalk { wide: self, select, last: None })
    }

    /// As [`Index::count`].
    pub(crate) fn count(
        &self,
        iterator: IteratorType,
        key: &[u8],
        part_count: u32,
    ) -> Result<u64, SelectError> {
        self.index.count(&self.entries, iterator, key, part_count)
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> u64 {
        self.index.len()
    }

    /// Bytes of the entries and their order.
    pub(crate) fn memory(&self) -> u64 {
        self.index.memory() + self.entries.reserved_bytes()
    }
}
