//! Indexes: the orders in which a space's tuples can be found and walked.
//!
//! An [`Index`] holds handles of tuples and its key; the tuples are in an [`Arena`] that comes in with each call. It does
//! what indexes do (find, add, remove, walk, count) and decides nothing: types of keys, duplicates and rights are the
//! space's to check before. Every operation costs O(log n), also to count what an iterator would yield and to skip an
//! offset.
//!
//! TREE keeps tuples in the order of the key. The key of a TREE may not tell tuples apart: it is not unique, or has
//! nullable parts. Such a TREE is ordered by its own parts and then by those of the primary key. So the order is
//! total, and ties come in the primary key's order, as Tarantool has it. Where the key is one unsigned number, that
//! number is the tree's hint, and the tree does without the tuples ([`tree`]).
//!
//! HASH keeps tuples in the order of the key's hash, in the same tree. A table would find a key in fewer steps, but would
//! stop the only thread that there is for as long as it takes to move all entries when it grows; and its walks would change
//! order with every growth, while a TREE lets `GT` go on behind a tuple after any inserts and deletes.
//!
//! Absent: RTREE, BITSET, multikey and functional indexes, which are [special](crate::special).

pub mod select;
#[cfg(test)]
mod tests;
pub mod tree;

use std::cmp::Ordering;
use std::ops::RangeInclusive;

use lycosa_tuple::field::FieldType;
use lycosa_tuple::key::{KeyDef, KeyPart};
use lycosa_tuple::mp::Reader;
use lycosa_tuple::tuple::TupleRef;

pub use self::select::{Select, SelectError};
pub use self::tree::Remains;
use self::tree::{Entry, Order, Probe, Tree};
use crate::arena::{Arena, Handle};
use crate::breaks::Breaks;
pub use crate::special::{Distance, MAX_DIMENSION};

/// Entries and comparisons of a build between two breaks.
const STEPS_BETWEEN_BREAKS: u32 = 2048;

/// The kind of an index, as its definition says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexKind {
    /// In the order of the key.
    Tree,
    /// In an order of its own; for unique keys without nullable parts.
    Hash,
    /// A TREE in which a tuple has a key for each element of an array. [Special](crate::special), like the following ones.
    Multikey,
    /// A TREE whose keys a function makes of each tuple.
    Functional,
    /// By bits that are set.
    Bitset,
    /// By places in space.
    Rtree {
        /// Number of coordinates of a point, 1 to [`MAX_DIMENSION`].
        dimension: u32,
        /// What NEIGHBOR orders by.
        distance: Distance,
    },
}

/// An index; see the module's documentation.
#[derive(Debug)]
pub struct Index {
    kind: IndexKind,
    key: KeyDef,
    own_parts: u32,
    unique: bool,
    /// The own parts alone, if tuples that differ in the full order can be duplicates.
    own_key: Option<KeyDef>,
    /// The field whose unsigned number is the whole key of a TREE; the number is then the hint, which is exact.
    number: Option<u32>,
    entries: Tree,
}

/// A place in an index that changes do not move: behind the tuple with this key, which may be deleted meanwhile.
#[derive(Debug)]
pub struct Bookmark {
    hint: u64,
    /// All values of the full order's key, back to back.
    key: Vec<u8>,
}

/// Two tuples that a unique index cannot both hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Duplicate {
    /// The tuple that came first.
    pub old: Handle,
    /// The other one.
    pub new: Handle,
}

impl Index {
    /// An empty TREE.
    ///
    /// `key` orders the tuples and must tell all of them apart. Its first `own_parts` parts are those of the index's
    /// definition; what follows is from the primary key ([`KeyDef::extended_by`]) if the index is not `unique` or has
    /// nullable parts.
    pub fn tree(key: KeyDef, own_parts: u32, unique: bool) -> Self {
        let own_key = (unique && own_parts < key.part_count())
            .then(|| KeyDef::new(key.parts().iter().take(own_parts as usize).cloned().collect()));
        let number = match key.parts() {
            [KeyPart { field, ty: FieldType::Unsigned, nullable: false, path: None, .. }] => Some(*field),
            _ => None,
        };
        Self { kind: IndexKind::Tree, key, own_parts, unique, own_key, number, entries: Tree::new() }
    }

    /// An empty HASH, which is unique.
    pub fn hash(key: KeyDef) -> Self {
        let own_parts = key.part_count();
        Self {
            kind: IndexKind::Hash,
            key,
            own_parts,
            unique: true,
            own_key: None,
            number: None,
            entries: Tree::new(),
        }
    }

    /// The kind.
    pub fn kind(&self) -> IndexKind {
        self.kind
    }

    /// The full order: the own parts and those of the primary key that were appended.
    pub fn key(&self) -> &KeyDef {
        &self.key
    }

    /// The number of parts in the definition: what a key may have at most.
    pub fn own_parts(&self) -> u32 {
        self.own_parts
    }

    /// Whether no two tuples may have equal keys, but for keys with a nil.
    pub fn is_unique(&self) -> bool {
        self.unique
    }

    /// The number of tuples.
    pub fn len(&self) -> u64 {
        self.entries.len()
    }

    /// Whether there are no tuples.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes that the index takes, without the tuples.
    pub fn memory(&self) -> u64 {
        self.entries.memory()
    }

    /// The first tuple whose key begins with the first `part_count` values in `key`; in a HASH a whole key is needed.
    pub fn get(&self, arena: &Arena, key: &[u8], part_count: u32) -> Option<Handle> {
        let probe = self.probe(key, part_count);
        self.entries.first_match(self.order(arena), &probe).map(|entry| entry.handle)
    }

    /// The number that is this whole key, a MessagePack array, if such a number is a key of the index.
    #[inline]
    pub(crate) fn number_of_key(&self, key: &[u8]) -> Option<u64> {
        let [0x91, value @ ..] = key else { return None };
        self.number?;
        let mut reader = Reader::new(value);
        reader.uint().ok().filter(|_| reader.is_empty())
    }

    /// The tuple with a number for a key, if such numbers are the keys of the index. It is `guess`, a tuple of the index, if that
    /// has the number.
    #[inline]
    pub(crate) fn find_number(&self, arena: &Arena, number: u64, guess: Option<Handle>) -> Option<Handle> {
        let field = self.number?;
        let has_number = |guess: &Handle| number_in(arena.get(*guess), field) == Some(number);
        guess.filter(has_number).or_else(|| self.entries.find(self.order(arena), number, &[]))
    }

    /// As [`Index::get`], with the tuple's hint.
    pub(crate) fn first_entry(&self, arena: &Arena, key: &[u8], part_count: u32) -> Option<Entry> {
        self.entries.first_match(self.order(arena), &self.probe(key, part_count))
    }

    /// The hints of the tuples whose key begins with these values, if no other tuple can have such a hint.
    pub(crate) fn hints_of(&self, key: &[u8], part_count: u32) -> Option<RangeInclusive<u64>> {
        let probe = self.probe(key, part_count);
        (probe.decided && probe.low < probe.high).then_some(probe.low..=probe.high)
    }

    /// The number of tuples with these hints.
    pub(crate) fn count_hints(&self, hints: RangeInclusive<u64>) -> u64 {
        self.entries.count_hints(hints)
    }

    /// How two entries are ordered, whether they are in the index or not.
    pub(crate) fn compare_entries(&self, arena: &Arena, a: Entry, b: Entry) -> Ordering {
        a.hint.cmp(&b.hint).then_with(|| self.key.compare(arena.get(a.handle), arena.get(b.handle)))
    }

    /// The tuple in the index that equals `tuple` in the full order.
    pub fn find(&self, arena: &Arena, tuple: &[u8]) -> Option<Handle> {
        self.entries.find(self.order(arena), self.hint(tuple), tuple)
    }

    /// The tuple that forbids `tuple` in a unique index: the one with the same own parts, if none of them is nil. Any
    /// equal tuple may be the one that `tuple` is about to replace.
    pub fn duplicate_of(&self, arena: &Arena, tuple: &[u8]) -> Option<Handle> {
        if !self.unique {
            return None;
        }
        let Some(own_key) = &self.own_key else { return self.find(arena, tuple) };
        if own_key.has_nil(tuple) {
            return None;
        }
        let mut key = Vec::new();
        own_key.extract(tuple, &mut key);
        self.get(arena, &key, self.own_parts)
    }

    /// Adds a tuple; one that equals it in the full order gives way and is returned.
    pub fn insert(&mut self, arena: &Arena, handle: Handle) -> Option<Handle> {
        self.insert_entry(arena, self.entry(arena, handle))
    }

    /// As [`Index::insert`].
    pub(crate) fn insert_entry(&mut self, arena: &Arena, entry: Entry) -> Option<Handle> {
        let order = Order { arena, key: &self.key, exact: self.number.is_some() };
        self.entries.insert(order, entry)
    }

    /// Removes the tuple that equals the given one in the full order, and returns it.
    pub fn remove(&mut self, arena: &Arena, handle: Handle) -> Option<Handle> {
        self.remove_entry(arena, self.entry(arena, handle))
    }

    /// As [`Index::remove`].
    pub(crate) fn remove_entry(&mut self, arena: &Arena, entry: Entry) -> Option<Handle> {
        let order = Order { arena, key: &self.key, exact: self.number.is_some() };
        self.entries.remove(order, entry)
    }

    /// Removes these tuples, which follow each other in the index.
    pub(crate) fn remove_run(&mut self, arena: &Arena, handles: &[Handle]) {
        let Self { kind, key, number, entries, .. } = self;
        let order = Order { arena, key, exact: number.is_some() };
        let entry = |at: usize| {
            let handle = handles[at];
            Entry { hint: hint(*kind, key, *number, arena.get(handle)), handle }
        };
        let removed = entries.remove_run(order, handles.len(), entry);
        debug_assert_eq!(removed, handles.len(), "the tuples are in the index");
    }

    /// Puts `new` in the place of `old`, which equals it in the full order. `false` if `old` was not there.
    pub fn replace(&mut self, arena: &Arena, old: Handle, new: Handle) -> bool {
        let entry = self.entry(arena, old);
        let order = Order { arena, key: &self.key, exact: self.number.is_some() };
        self.entries.replace(order, entry, new).is_some()
    }

    /// Makes these tuples, in any order, the content of the index.
    ///
    /// # Errors
    /// Two of them have one key in a unique index; the index is then left as it was.
    pub fn build(
        &mut self,
        arena: &Arena,
        handles: impl IntoIterator<Item = Handle>,
    ) -> Result<(), Duplicate> {
        let breaks = Breaks::every(STEPS_BETWEEN_BREAKS);
        let entry = |handle| {
            breaks.step();
            self.entry(arena, handle)
        };
        let compare = |a: &Entry, b: &Entry| {
            breaks.step();
            self.compare_entries(arena, *a, *b)
        };
        let mut entries: Vec<Entry> = handles.into_iter().map(entry).collect();
        // Tuples that come in the order of the primary key are often in that of another index too, and then to see it is
        // all that there is to do.
        let is_ascending = |pair: &[Entry]| compare(&pair[0], &pair[1]).is_lt();
        let is_done = self.own_key.is_none() && entries.windows(2).all(is_ascending);
        if !is_done {
            entries.sort_by(compare);
            if let Some(pair) = entries.windows(2).find(|pair| self.forbids(arena, pair[0], pair[1])) {
                return Err(Duplicate { old: pair[0].handle, new: pair[1].handle });
            }
        }
        let entries = entries.into_iter().inspect(|_| breaks.step());
        self.entries = Tree::from_ascending(self.number.is_some(), entries);
        Ok(())
    }

    /// All tuples, in order.
    pub fn handles(&self) -> impl Iterator<Item = Handle> {
        let mut cursor = self.entries.start();
        std::iter::from_fn(move || cursor.forward()).map(|entry| entry.handle)
    }

    /// The first tuple.
    pub fn first(&self) -> Option<Handle> {
        self.entries.start().forward().map(|entry| entry.handle)
    }

    /// An empty index of the same order.
    pub fn like(&self) -> Self {
        let Self { kind, own_parts, unique, number, .. } = *self;
        Self {
            kind,
            key: self.key.clone(),
            own_parts,
            unique,
            own_key: self.own_key.clone(),
            number,
            entries: Tree::new(),
        }
    }

    /// The place behind a tuple.
    pub fn bookmark(&self, tuple: &[u8]) -> Bookmark {
        let mut key = Vec::new();
        self.key.extract(tuple, &mut key);
        Bookmark { hint: self.hint(tuple), key }
    }

    /// Whether a tuple belongs before the place.
    pub fn is_passed(&self, tuple: &[u8], place: &Bookmark) -> bool {
        let by_key = || self.key.compare_with_key(tuple, &place.key, self.key.part_count());
        self.hint(tuple).cmp(&place.hint).then_with(by_key).is_le()
    }

    /// The tuples after a place, in order; without a place all of them.
    pub fn after<'a>(
        &'a self,
        arena: &'a Arena,
        place: Option<&Bookmark>,
    ) -> impl Iterator<Item = Handle> + use<'a> {
        let mut cursor = match place {
            None => self.entries.start(),
            Some(place) => {
                let probe = self.probe(&place.key, self.key.part_count());
                self.entries.upper_bound(self.order(arena), &probe)
            }
        };
        std::iter::from_fn(move || cursor.forward()).map(|entry| entry.handle)
    }

    /// How two tuples, which need not be in the index, are ordered by it.
    pub fn compare_tuples(&self, a: &[u8], b: &[u8]) -> Ordering {
        let by_key = || if self.number.is_some() { Ordering::Equal } else { self.key.compare(a, b) };
        self.hint(a).cmp(&self.hint(b)).then_with(by_key)
    }

    /// The index, to be freed in steps.
    pub fn into_remains(self) -> Remains {
        self.entries.into_remains()
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        self.entries = Tree::new();
    }

    fn order<'a>(&'a self, arena: &'a Arena) -> Order<'a> {
        Order { arena, key: &self.key, exact: self.number.is_some() }
    }

    #[inline]
    pub(crate) fn hint(&self, tuple: &[u8]) -> u64 {
        hint(self.kind, &self.key, self.number, tuple)
    }

    /// A tuple's entry, whether it is in the index or not.
    #[inline]
    pub(crate) fn entry(&self, arena: &Arena, handle: Handle) -> Entry {
        Entry { hint: self.hint(arena.get(handle)), handle }
    }

    fn probe<'k>(&self, key: &'k [u8], part_count: u32) -> Probe<'k> {
        if self.number.is_some() && part_count > 0 {
            let number = Reader::new(key).uint().unwrap_or(0);
            return Probe { key, part_count, low: number, high: number, decided: true };
        }
        match self.kind {
            IndexKind::Hash => {
                let hash = self.key.hash_key(key);
                Probe { key, part_count, low: hash, high: hash, decided: false }
            }
            _ => Probe::new(&self.key, key, part_count),
        }
    }

    /// Whether two neighbours in the full order are duplicates.
    fn forbids(&self, arena: &Arena, first: Entry, second: Entry) -> bool {
        let compare_by = |key: &KeyDef| key.compare(arena.get(first.handle), arena.get(second.handle));
        if first.hint == second.hint && compare_by(&self.key).is_eq() {
            return true;
        }
        self.own_key
            .as_ref()
            .is_some_and(|own| compare_by(own).is_eq() && !own.has_nil(arena.get(first.handle)))
    }
}

/// What a tuple's entry is ordered by first, in an index of that kind with that key; `number` is [`Index::number`].
#[inline]
fn hint(kind: IndexKind, key: &KeyDef, number: Option<u32>, tuple: &[u8]) -> u64 {
    match number {
        Some(field) => number_in(tuple, field).unwrap_or(0),
        None => hint_by_key(kind, key, tuple),
    }
}

#[inline(never)]
fn hint_by_key(kind: IndexKind, key: &KeyDef, tuple: &[u8]) -> u64 {
    if kind == IndexKind::Hash { key.hash(tuple) } else { key.hint(tuple) }
}

/// The unsigned number in a tuple's field. The space lets no tuple in that has none in a part of an index.
#[inline]
fn number_in(tuple: &[u8], field: u32) -> Option<u64> {
    if let ([0x91..=0x9f, fields @ ..], 0) = (tuple, field) {
        return Reader::new(fields).uint().ok();
    }
    TupleRef::trusted(tuple).at(field)?.uint().ok()
}
