//! One index of a space: its definition, what it holds, and what it owes.

use lycosa_tuple::field::FieldSet;
use lycosa_tuple::key::KeyDef;

use crate::IndexId;
use crate::arena::{Arena, Handle};
use crate::arrears::{Arrears, Late};
use crate::error::Error;
use crate::index::tree::Entry;
use crate::index::{Duplicate, Index, IndexKind};
use crate::line::{First, Line};
use crate::schema::index::IndexDef;
use crate::space::key_values;
use crate::statement::IteratorType;

/// One index of a space: its definition and what it holds.
#[derive(Debug)]
pub struct SpaceIndex {
    /// Tells the index, as long as its order stays, from every other one of the store; 0 before the catalog has it.
    pub(crate) identity: u64,
    pub(crate) def: IndexDef,
    /// To be read only where nothing is owed, see [`SpaceIndex::current`].
    pub(crate) index: Index,
    /// What a lazy index owes.
    arrears: Option<Box<Arrears>>,
}

impl SpaceIndex {
    /// An empty index. A TREE that may hold equal keys is ordered by the `primary` key in the second place.
    pub(crate) fn new(def: IndexDef, primary: Option<&KeyDef>) -> Self {
        let index = match (def.kind, primary) {
            (IndexKind::Hash, _) => Index::hash(def.key.clone()),
            (IndexKind::Tree, Some(primary)) if def.may_repeat() => {
                Index::tree(def.key.extended_by(primary), def.key.part_count(), def.unique)
            }
            (IndexKind::Tree, _) => Index::tree(def.key.clone(), def.key.part_count(), def.unique),
        };
        Self { identity: 0, def, index, arrears: None }
    }

    /// An empty index like this one.
    pub(crate) fn emptied(&self, primary: Option<&KeyDef>) -> Self {
        Self {
            identity: self.identity,
            arrears: self.arrears.as_ref().map(|arrears| Box::new(arrears.emptied())),
            ..Self::new(self.def.clone(), primary)
        }
    }

    /// From now on tuples may wait to be entered. An index that could refuse one stays as it is, and so does one that is lazy
    /// already or whose first part cannot be told by its bytes.
    pub(crate) fn make_lazy(&mut self, primary: &KeyDef, lazy: Lazy<'_>) {
        let holds_primary = self.def.key.extended_by(primary).part_count() == self.def.key.part_count();
        if self.arrears.is_some() || self.def.unique && (self.def.may_repeat() || !holds_primary) {
            return;
        }
        let first =
            self.def.key.parts().first().filter(|part| part.path.is_none() && part.collation.is_binary());
        let arrears = match (lazy, first) {
            (Lazy::All, _) => Arrears::default(),
            (Lazy::Parts { line, late }, Some(part)) => {
                let late = Late::Part { field: part.field, value: late.into() };
                Arrears::new(late, self.line_of(line))
            }
            (Lazy::Parts { .. }, None) => return,
            (Lazy::Beyond { field, bound }, _) => Arrears::with_beyond(field, bound),
        };
        self.arrears = Some(Box::new(arrears));
        self.count_entered();
    }

    /// A line for the part of the key that begins with this value, if hints can tell its tuples.
    fn line_of(&self, value: &[u8]) -> Option<Line> {
        let hints = self.index.hints_of(value, 1).filter(|_| self.def.kind == IndexKind::Tree)?;
        Some(Line::new(&[&[0x91], value].concat(), hints))
    }

    /// Counts anew how many of the line's part are entered.
    fn count_entered(&mut self) {
        let Some(line) = self.arrears.as_mut().and_then(|arrears| arrears.line.as_mut()) else { return };
        line.set_entered(self.index.count_hints(line.hints()));
    }

    /// Whether there are tuples that are not entered yet.
    pub(crate) fn is_behind(&self) -> bool {
        self.arrears.as_ref().is_some_and(|arrears| !arrears.is_empty())
    }

    /// Enters the few tuples that wait, and those in line.
    pub(crate) fn catch_up_near(&mut self, arena: &Arena) {
        let Some(arrears) = &mut self.arrears else { return };
        while let Some(handle) = arrears.pop() {
            self.index.insert(arena, handle);
        }
        if let Some(line) = &mut arrears.line {
            while let Some(entry) = line.pop() {
                self.index.insert_entry(arena, entry);
                line.note_entered(entry.hint);
            }
        }
    }

    /// Enters all tuples that wait. From now on only few ever do.
    pub(crate) fn catch_up(&mut self, arena: &Arena) {
        self.catch_up_near(arena);
        let Some(beyond) = self.arrears.as_mut().and_then(|arrears| arrears.take_beyond()) else { return };
        if beyond.len() < self.index.len() / 4 {
            for handle in beyond.iter() {
                self.index.insert(arena, handle);
            }
            return;
        }
        let all: Vec<_> = self.index.handles().chain(beyond.iter()).collect();
        let built = self.index.build(arena, all);
        assert!(built.is_ok(), "a lazy index can refuse no tuple");
    }

    /// Enters the few tuples that wait, and up to `budget` of those beyond. Whether nothing waits any more. From the first
    /// call on no more tuples wait beyond.
    pub(crate) fn flush(&mut self, arena: &Arena, budget: u64) -> bool {
        self.catch_up_near(arena);
        let Some(arrears) = &mut self.arrears else { return true };
        let mut entries: Vec<Entry> =
            arrears.pop_beyond(budget).into_iter().map(|handle| self.index.entry(arena, handle)).collect();
        // Neighbours find the same nodes of the tree in the processor's cache.
        entries.sort_unstable_by(|a, b| self.index.compare_entries(arena, *a, *b));
        for entry in entries {
            self.index.insert_entry(arena, entry);
        }
        arrears.is_empty()
    }

    /// Makes these tuples what the index holds or owes.
    pub(crate) fn build(&mut self, arena: &Arena, handles: &[Handle]) -> Result<(), Duplicate> {
        let Some(arrears) = &mut self.arrears else {
            return self.index.build(arena, handles.iter().copied());
        };
        **arrears = arrears.emptied();
        let entered = handles.iter().copied().filter(|&handle| !arrears.leave(handle, arena.get(handle)));
        self.index.build(arena, entered)?;
        self.count_entered();
        Ok(())
    }

    /// What the index holds, to be read.
    ///
    /// # Errors
    /// [`Error::IndexBehind`]: it is lazy and has to catch up first.
    pub(crate) fn current(&self) -> Result<&Index, Error> {
        if self.is_behind() { Err(Error::IndexBehind(self.def.name.clone())) } else { Ok(&self.index) }
    }

    /// What the index holds, to read what begins with these values of a key. See [`SpaceIndex::current`].
    #[inline]
    pub(crate) fn current_for(&self, key: &[u8]) -> Result<&Index, Error> {
        match &self.arrears {
            Some(arrears) if arrears.count(key) != Some(0) => self.current(),
            _ => Ok(&self.index),
        }
    }

    /// The first tuple whose key begins with these values, a MessagePack array.
    ///
    /// # Errors
    /// A key that does not fit the index. [`Error::IndexBehind`]: it is lazy, such a tuple may wait, and its part has no line.
    #[inline]
    pub(crate) fn first(&self, arena: &Arena, key: &[u8]) -> Result<Option<Handle>, Error> {
        let line = self.arrears.as_ref().and_then(|arrears| arrears.line.as_ref());
        if let Some(line) = line.filter(|line| line.key() == key) {
            return Ok(match line.first() {
                First::Is(first) => first,
                First::OrEntered(in_line) => {
                    self.lesser(arena, in_line, self.index.first_entry(arena, line.part(), 1))
                }
            });
        }
        let (values, count) = key_values(key)?;
        self.def.key.check_key(values, count)?;
        Ok(self.current_for(values)?.get(arena, values, count))
    }

    fn lesser(&self, arena: &Arena, a: Option<Entry>, b: Option<Entry>) -> Option<Handle> {
        let first = match (a, b) {
            (Some(a), Some(b)) if self.index.compare_entries(arena, a, b).is_gt() => Some(b),
            (None, b) => b,
            (a, _) => a,
        };
        first.map(|entry| entry.handle)
    }

    /// What the index holds, to look for what lies near. See [`SpaceIndex::current`].
    pub(crate) fn near(&self) -> Result<&Index, Error> {
        match &self.arrears {
            Some(arrears) if !arrears.is_near_empty() => self.current(),
            _ => Ok(&self.index),
        }
    }

    /// How many tuples wait that a count by an iterator and these values of a key has to add.
    pub(crate) fn late(&self, iterator: IteratorType, key: &[u8]) -> Result<u64, Error> {
        match &self.arrears {
            Some(arrears) if iterator == IteratorType::Eq => {
                arrears.count(key).ok_or_else(|| Error::IndexBehind(self.def.name.clone()))
            }
            _ => self.current().map(|_| 0),
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

    /// TREE or HASH.
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

    /// Number of tuples.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.index.len() + self.arrears.as_ref().map_or(0, |arrears| arrears.len())
    }

    /// Whether there are no tuples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the index, without the tuples.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.index.memory() + self.arrears.as_ref().map_or(0, |arrears| arrears.memory())
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
        if let Some(number) = self.index.number_of_key(key) {
            return Ok(self.current()?.find_number(arena, number, guess));
        }
        let (values, count) = key_values(key)?;
        self.def.key.check_whole_key(values, count)?;
        if let Some(guess) = guess
            && !self.def.may_repeat()
            && self.def.key.compare_with_key(arena.get(guess), values, count).is_eq()
        {
            return Ok(Some(guess));
        }
        Ok(self.current_for(values)?.get(arena, values, count))
    }

    /// Puts `new` in, in the place of `old`. Refuses, leaving the index as it was, if a third tuple has the key.
    pub(crate) fn put(&mut self, arena: &Arena, old: Option<Handle>, new: Handle) -> Result<(), Occupied> {
        if self.arrears.is_some() {
            self.exchange_late(arena, old, Some(new));
            return Ok(());
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

    /// Removes a tuple that the index holds or owes.
    #[inline]
    pub(crate) fn remove(&mut self, arena: &Arena, old: Handle) {
        let Some(arrears) = &mut self.arrears else {
            self.index.remove(arena, old);
            return;
        };
        if arrears.remove(old) {
            return;
        }
        let entry = self.index.entry(arena, old);
        if arrears.line.as_mut().is_some_and(|line| line.remove(entry)) {
            return;
        }
        if self.index.remove_entry(arena, entry).is_some()
            && let Some(line) = &mut arrears.line
        {
            line.note_left(entry.hint);
        }
    }

    /// Lets a lazy index owe `coming` and hold or owe `going` no longer. That goes first: with an equal key it would else be
    /// taken for the other one.
    fn exchange_late(&mut self, arena: &Arena, going: Option<Handle>, coming: Option<Handle>) {
        if let Some(going) = going {
            self.remove(arena, going);
        }
        let (Some(arrears), Some(coming)) = (&mut self.arrears, coming) else { return };
        let Some(entered) = arrears.take(coming, arena.get(coming)) else { return };
        let entry = self.index.entry(arena, entered);
        let line = arrears.line.as_mut().filter(|line| line.includes(entry.hint));
        match line {
            None => _ = self.index.insert_entry(arena, entry),
            Some(line) => {
                if let Some(entry) = line.push(entry) {
                    self.index.insert_entry(arena, entry);
                    line.note_entered(entry.hint);
                }
            }
        }
    }

    /// Whether an equally long tuple that differs in these fields could have another place in the index.
    #[inline]
    pub(crate) fn depends_on(&self, fields: FieldSet) -> bool {
        !fields.is_disjoint(self.def.key.fields())
            || self.arrears.as_ref().is_some_and(|arrears| arrears.depends_on(fields))
    }

    /// Takes back [`SpaceIndex::put`] or [`SpaceIndex::remove`].
    pub(crate) fn restore(&mut self, arena: &Arena, old: Option<Handle>, new: Option<Handle>) {
        if self.arrears.is_some() {
            return self.exchange_late(arena, new, old);
        }
        let replaced = old.and_then(|old| self.index.insert(arena, old));
        if let Some(new) = new
            && replaced != Some(new)
        {
            self.index.remove(arena, new);
        }
    }
}

/// Which tuples of a lazy index may wait to be entered.
#[derive(Debug, Clone, Copy)]
pub enum Lazy<'a> {
    /// All, for an index that is written with every change and hardly ever read.
    All,
    /// Two parts of the index, told by the value in the first part of its key, a string of at most 31 bytes as MessagePack.
    /// What begins with another value may be read as ever.
    Parts {
        /// Tuples with this value stand in line as long as they come in order, so that only the first of them
        /// ([`Store::first`](crate::Store::first)) and their number may be asked for.
        line: &'a [u8],
        /// Tuples with this value wait: they are hardly ever read.
        late: &'a [u8],
    },
    /// All. Those with at least `bound` in this field, counted from 0, wait however many they are, until somebody wants to
    /// read the whole index: for moments that lie beyond all that is ever looked for.
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
