//! The one open transaction: what it has changed, and how to take it back.
//!
//! Changes are applied at once and recorded in order. A rollback walks the undo records backwards, so that each
//! change is undone in exactly the state that it left. Tuples that went away keep their memory until the commit,
//! new tuples until the rollback; of tuples that were changed in place the undo records have the bytes from
//! before.
//!
//! Invariant: a tuple with an undo record is not changed in place again, so that every record shows the change it was
//! made for.

use std::borrow::Cow;

use lycosa_tuple::field::FieldSet;
use lycosa_tuple::format::Format;

use crate::arena::{Arena, Handle};
use crate::effect::EffectMark;
use crate::handle_set::HandleSet;
use crate::index::Index;
use crate::schema::space::SpaceDef;
use crate::space::{Space, SpaceIndex};
use crate::statement::StatementKind;
use crate::{Committed, IndexId, SpaceId, Store, UserId, garbage, user};

/// One change of the open transaction: what a trigger on the space would see.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// The space.
    pub space: SpaceId,
    /// The kind of statement that made the change.
    pub kind: StatementKind,
    arena: &'a Arena,
    old: Option<Handle>,
    new: Option<Handle>,
    /// Where in the tuple, which is both, something else was, and what.
    overwritten: Option<(usize, &'a [u8])>,
}

impl<'a> Change<'a> {
    /// The old tuple. Rebuilds it from its undo bytes: O(size); callers that do not need it
    /// do not ask.
    #[must_use]
    pub fn gone(&self) -> Option<Cow<'a, [u8]>> {
        let tuple = self.arena.get(self.old?);
        let Some((offset, saved)) = self.overwritten else { return Some(tuple.into()) };
        let mut tuple = tuple.to_vec();
        tuple[offset..offset + saved.len()].copy_from_slice(saved);
        Some(tuple.into())
    }

    /// The tuple that came.
    #[must_use]
    pub fn came(&self) -> Option<&'a [u8]> {
        self.new.map(|handle| self.arena.get(handle))
    }
}

/// A [`Change`] with copies of its tuples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedChange {
    /// The space.
    pub space: SpaceId,
    /// The kind of statement that made the change.
    pub kind: StatementKind,
    /// The tuple that went away.
    pub old: Option<Vec<u8>>,
    /// The tuple that came.
    pub new: Option<Vec<u8>>,
}

impl Change<'_> {
    /// The change with copies of its tuples, for use after the transaction or between other statements.
    #[must_use]
    pub fn into_owned(self) -> OwnedChange {
        OwnedChange {
            space: self.space,
            kind: self.kind,
            old: self.gone().map(Cow::into_owned),
            new: self.came().map(<[u8]>::to_vec),
        }
    }
}

impl Transaction {
    /// The next transactions have numbers that none of another store's has had.
    pub(crate) fn count_on_from(&mut self, former: &Self) {
        self.number = self.number.max(former.number);
    }
}

/// A place in the open transaction to which it can be rolled back. [`Store::is_live`] tells whether it still is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Savepoint {
    place: Place,
    /// Number of the transaction.
    transaction: u64,
    /// Rollbacks to savepoints that the transaction had seen.
    rollbacks: u64,
}

/// How far the undo records and effects reach. Places of one transaction are ordered by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    undo: usize,
    effects: EffectMark,
}

/// The undo record of a change.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Undo {
    /// A tuple of a space came, went, or both.
    Row {
        space: SpaceId,
        old: Option<Handle>,
        new: Option<Handle>,
        kind: StatementKind,
        /// The schema's caches have taken the change of a system space's row over.
        applied: bool,
    },
    /// A tuple of a space was changed in place: something else stood at `offset`, which is now at `saved` in
    /// [`Transaction::saved`].
    Overwritten { space: SpaceId, handle: Handle, fields: FieldSet, offset: usize, saved: (usize, usize) },
    /// A DELETE by the primary key of a space of vinyl found nothing, see [`crate::vinyl`].
    Missed(SpaceId),
    /// A tuple that no space holds; it lives until the transaction ends because a reply shows it.
    Shown { space: SpaceId, kind: StatementKind, handle: Handle },
    /// A sequence moved; this was its last value.
    Sequence { id: u32, value: Option<i64> },
    /// A space or index changed: the last of [`Transaction::schema`] that has not been undone.
    Schema,
}

/// The undo record of a change of a space's or index's definition.
#[derive(Debug)]
pub(crate) enum SchemaUndo {
    SpaceAdded(SpaceId),
    SpaceRemoved(Box<Space>),
    SpaceAltered {
        def: Box<SpaceDef>,
        format: Box<Format>,
    },
    IndexAdded {
        space: SpaceId,
        index: IndexId,
    },
    IndexRemoved {
        space: SpaceId,
        index: Box<SpaceIndex>,
        /// For a primary index that went with the tuples: how many bytes they have.
        owned_bytes: Option<u64>,
    },
    IndexRenamed {
        space: SpaceId,
        index: IndexId,
        name: String,
    },
    Truncated {
        space: SpaceId,
        indexes: Vec<SpaceIndex>,
        bytes: u64,
    },
    /// A row of a trigger or a constraint of SQL. Its undo is that of the row, and another version of the schema.
    ConstraintChanged,
}

impl SchemaUndo {
    /// The space whose tuples went away with an index of it.
    fn emptied_space(&self) -> Option<SpaceId> {
        self.emptied().map(|(space, _)| space)
    }

    /// The same with the number of these tuples.
    fn emptied(&self) -> Option<(SpaceId, u64)> {
        match self {
            Self::Truncated { space, indexes, .. } => {
                Some((*space, indexes.first().map_or(0, SpaceIndex::len)))
            }
            Self::IndexRemoved { space, index, owned_bytes: Some(_) } => Some((*space, index.len())),
            _ => None,
        }
    }
}

/// The state of the open transaction, kept from one to the next for its allocations.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    pub(crate) is_open: bool,
    pub(crate) user: UserId,
    undo: Vec<Undo>,
    /// The records of changes of the schema, in order. They stand apart because the other records hold no memory: a commit
    /// forgets the other records in one step.
    schema: Vec<SchemaUndo>,
    /// The overwritten bytes, in order.
    saved: Vec<u8>,
    /// Of the tuples of the first `marked` undo records.
    marks: Marks,
    marked: usize,
    /// Tuples of the first `listed` undo records.
    tuples: HandleSet,
    listed: usize,
    /// Transactions that were opened, this one included.
    number: u64,
    /// Rollbacks to savepoints of this transaction.
    rollbacks: u64,
    /// Numbers of rollbacks and the places that they led to, both ascending; of rollbacks to one place or behind it only the
    /// last. There are no more of them than undo records and effects.
    floors: Vec<(u64, Place)>,
}

impl Transaction {
    /// Undo records that are searched one by one for a tuple.
    const FEW: usize = if cfg!(test) { 2 } else { 8 };
    /// Largest buffer for overwritten bytes that is kept from one transaction to the next.
    const KEPT_BYTES: usize = 1 << 20;

    /// Whether the tuple has an undo record. A [`Change`] shows such a tuple, so it is not overwritten any more.
    #[inline]
    pub(crate) fn has_record(&mut self, handle: Handle) -> bool {
        if self.undo.len() <= Self::FEW {
            return self.undo.iter().flat_map(Undo::tuples).any(|tuple| tuple == handle);
        }
        for tuple in self.undo[self.marked..].iter().flat_map(Undo::tuples) {
            self.marks.set(tuple);
        }
        self.marked = self.undo.len();
        self.marks.has(handle) && self.has_listed(handle)
    }

    /// Tells the transaction from all others of the process.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    fn has_listed(&mut self, handle: Handle) -> bool {
        for tuple in self.undo[self.listed..].iter().flat_map(Undo::tuples) {
            self.tuples.insert(tuple);
        }
        self.listed = self.undo.len();
        self.tuples.contains(handle)
    }

    /// A rollback has led to `place`: savepoints behind it are void.
    fn note_rollback(&mut self, place: Place) {
        self.rollbacks += 1;
        while self.floors.last().is_some_and(|&(_, floor)| floor >= place) {
            self.floors.pop();
        }
        self.floors.push((self.rollbacks, place));
    }

    /// Undo records were taken back, or all have become void.
    fn forget_listed(&mut self) {
        if self.listed > self.undo.len() {
            self.listed = 0;
            self.tuples = HandleSet::default();
        }
        if self.marked > self.undo.len() {
            self.marked = 0;
            self.marks = Marks::default();
        }
    }
}

/// A bit for the tuple of each undo record. Handles are dense numbers, so tuples of one transaction seldom share a bit: most look-ups
/// end here, without the [`HandleSet`].
#[derive(Debug)]
struct Marks([u64; Self::WORDS]);

impl Default for Marks {
    fn default() -> Self {
        Self([0; Self::WORDS])
    }
}

impl Marks {
    const WORDS: usize = if cfg!(test) { 2 } else { 32 };

    #[inline]
    fn place(handle: Handle) -> (usize, u64) {
        let number = handle.number();
        ((number / u64::BITS) as usize % Self::WORDS, 1 << (number % u64::BITS))
    }

    #[inline]
    fn set(&mut self, handle: Handle) {
        let (word, bit) = Self::place(handle);
        self.0[word] |= bit;
    }

    /// Whether the tuple, or another one with the same bit, was marked.
    #[inline]
    fn has(&self, handle: Handle) -> bool {
        let (word, bit) = Self::place(handle);
        self.0[word] & bit != 0
    }
}

impl Undo {
    /// The tuples of spaces that the record is about.
    #[inline]
    fn tuples(&self) -> impl Iterator<Item = Handle> + use<> {
        let (old, new) = match *self {
            Self::Row { old, new, .. } => (old, new),
            Self::Overwritten { handle, .. } => (Some(handle), None),
            _ => (None, None),
        };
        old.into_iter().chain(new)
    }
}

impl Store {
    /// Opens a transaction in which `user` acts. [`user::ADMIN`] passes every check of access.
    ///
    /// # Panics
    /// A transaction is open already.
    pub fn begin(&mut self, user: UserId) {
        assert!(!self.transaction.is_open, "one transaction is open at a time");
        self.transaction.is_open = true;
        self.transaction.user = user;
        self.transaction.number += 1;
        self.transaction.rollbacks = 0;
        self.transaction.floors.clear();
        self.hooks_run = false;
    }

    /// Whether a transaction is open.
    #[must_use]
    pub fn in_transaction(&self) -> bool {
        self.transaction.is_open
    }

    /// Whether the open transaction has changed anything.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        !self.transaction.undo.is_empty()
    }

    /// Does `work` as a part of the open transaction in which `user` acts.
    #[inline]
    pub fn acting_as<T>(&mut self, user: UserId, work: impl FnOnce(&mut Store) -> T) -> T {
        let former = self.set_user(user);
        let result = work(self);
        self.set_user(former);
        result
    }

    /// Changes who acts in the open transaction from now on, and returns who did until now. Prefer [`Store::acting_as`], which
    /// cannot forget to change it back.
    #[inline]
    pub fn set_user(&mut self, user: UserId) -> UserId {
        std::mem::replace(&mut self.transaction.user, user)
    }

    /// Who acts: the transaction's user, without one `admin`.
    pub(crate) fn acting_user(&self) -> UserId {
        if self.transaction.is_open { self.transaction.user } else { user::ADMIN }
    }

    /// The present state of the open transaction.
    #[must_use]
    pub fn savepoint(&self) -> Savepoint {
        let Transaction { number, rollbacks, .. } = self.transaction;
        Savepoint { place: self.place(), transaction: number, rollbacks }
    }

    pub(crate) fn place(&self) -> Place {
        Place { undo: self.transaction.undo.len(), effects: self.effects.mark() }
    }

    /// Whether a savepoint is of the open transaction and was not undone itself. A caller that lets programs keep savepoints asks
    /// before [`Store::rollback_to`].
    #[must_use]
    pub fn is_live(&self, savepoint: Savepoint) -> bool {
        let Transaction { is_open, number, ref floors, .. } = self.transaction;
        let later = floors.partition_point(|&(rollback, _)| rollback <= savepoint.rollbacks);
        is_open
            && savepoint.transaction == number
            && floors.get(later).is_none_or(|&(_, floor)| floor >= savepoint.place)
    }

    /// Undoes everything since the savepoint.
    ///
    /// # Panics
    /// The savepoint is of another transaction, or was undone: see [`Store::is_live`].
    pub fn rollback_to(&mut self, savepoint: Savepoint) {
        assert!(self.is_live(savepoint), "the savepoint is of the open transaction");
        self.undo_to(savepoint.place);
        self.transaction.note_rollback(savepoint.place);
    }

    /// Undoes what a refused statement has done, of which no savepoint exists.
    pub(crate) fn undo_since(&mut self, savepoint: Savepoint) {
        self.undo_to(savepoint.place);
    }

    pub(crate) fn undo_to(&mut self, place: Place) {
        while self.transaction.undo.len() > place.undo {
            if let Some(undo) = self.transaction.undo.pop() {
                self.undo(undo);
            }
        }
        self.transaction.forget_listed();
        self.effects.cut(place.effects);
    }

    /// The changes of the open transaction in order. A truncation shows as a row of `_truncate`, what goes with a
    /// dropped space as rows of the system spaces.
    pub fn changes(&self) -> impl DoubleEndedIterator<Item = Change<'_>> {
        self.changes_since(None)
    }

    /// The changes since a savepoint in order; all of them if there is none.
    pub fn changes_since(&self, savepoint: Option<Savepoint>) -> impl DoubleEndedIterator<Item = Change<'_>> {
        let place = savepoint.map_or(0, |savepoint| savepoint.place.undo);
        self.transaction.undo.iter().skip(place).filter_map(|undo| match *undo {
            Undo::Row { space, old, new, kind, .. } => {
                Some(Change { space, kind, arena: &self.arena, old, new, overwritten: None })
            }
            Undo::Overwritten { space, handle, offset, saved: (begin, end), .. } => Some(Change {
                space,
                kind: StatementKind::Update,
                arena: &self.arena,
                old: Some(handle),
                new: Some(handle),
                overwritten: Some((offset, &self.transaction.saved[begin..end])),
            }),
            Undo::Shown { space, kind, handle } => Some(Change {
                space,
                kind,
                arena: &self.arena,
                old: None,
                new: Some(handle),
                overwritten: None,
            }),
            _ => None,
        })
    }

    /// Ends the transaction for good: its effects wait to be drained, and the memory of the tuples that went away is given
    /// back (of truncated and dropped spaces in portions, see [`Store::collect_garbage`]).
    pub fn commit(&mut self) {
        if self.hooked_spaces > 0 {
            self.report_hooked();
            if self.has_functional {
                self.forget_removed();
            }
        }
        if self.vinyl_writes.is_used() {
            let undo = std::mem::take(&mut self.transaction.undo);
            self.note_vinyl_writes(&undo);
            self.transaction.undo = undo;
        }
        for undo in &self.transaction.undo {
            match *undo {
                Undo::Row { old: Some(gone), .. } | Undo::Shown { handle: gone, .. } => {
                    self.arena.remove(gone);
                }
                Undo::Row { .. }
                | Undo::Overwritten { .. }
                | Undo::Missed(_)
                | Undo::Sequence { .. }
                | Undo::Schema => {}
            }
        }
        if !self.transaction.schema.is_empty() {
            self.forget_schema_changes();
        }
        self.transaction.undo.clear();
        self.transaction.forget_listed();
        self.transaction.saved.clear();
        self.transaction.saved.shrink_to(Transaction::KEPT_BYTES);
        self.transaction.is_open = false;
        self.effects.commit();
        if !self.garbage.is_empty() {
            self.collect_garbage(garbage::PORTION);
        }
    }

    /// Forgets what functional indexes keep for the rollback of the transaction that has ended.
    #[cold]
    fn forget_removed(&mut self) {
        for space in self.catalog.iter_mut().filter(|space| space.has_special) {
            space.indexes.iter_mut().for_each(SpaceIndex::forget_removed);
        }
    }

    #[cold]
    fn forget_schema_changes(&mut self) {
        std::mem::take(&mut self.transaction.schema).into_iter().for_each(|change| self.forget(change));
    }

    /// Gives up what a committed change of the schema has put out of reach.
    fn forget(&mut self, change: SchemaUndo) {
        match change {
            SchemaUndo::IndexRemoved { space, index, owned_bytes: Some(_) } => {
                self.give_up(space, index.index);
            }
            SchemaUndo::IndexRemoved { index, owned_bytes: None, .. } => self.discard(index.index, false),
            SchemaUndo::Truncated { space, indexes, .. } => {
                let mut indexes = indexes.into_iter();
                if let Some(primary) = indexes.next() {
                    self.give_up(space, primary.index);
                }
                indexes.for_each(|secondary| self.discard(secondary.index, false));
            }
            _ => {}
        }
    }

    /// Gives the tuples of a primary index up, once the open read view has no use for them.
    pub(crate) fn give_up(&mut self, space: SpaceId, primary: Index) {
        let given_up = match &mut self.view {
            Some(view) => view.adopt(space, primary),
            None => Some(primary),
        };
        if let Some(primary) = given_up {
            self.discard(primary, true);
        }
    }

    /// Undoes the whole transaction and ends it.
    pub fn rollback(&mut self) {
        while let Some(undo) = self.transaction.undo.pop() {
            self.undo(undo);
        }
        self.transaction.forget_listed();
        self.effects.cut(self.effects.committed());
        self.transaction.is_open = false;
    }

    fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::Row { space, old, new, applied, .. } => {
                if applied {
                    self.apply_system_row(space, new, old);
                }
                if let Some(space) = self.catalog.get_mut(space) {
                    space.restore(&self.arena, old, new);
                }
                self.notify_read_view(space, new, old);
                if let Some(new) = new {
                    self.arena.remove(new);
                }
            }
            Undo::Overwritten { space, handle, fields, offset, saved: (begin, _) } => {
                self.notify_read_view(space, Some(handle), Some(handle));
                let mut saved = self.transaction.saved.split_off(begin);
                let Some(space) = self.catalog.get_mut(space) else { return };
                let swap = |arena: &mut Arena| arena.swap(handle, offset, &mut saved);
                let overwritten = space.overwrite(&mut self.arena, handle, fields, swap);
                assert!(overwritten.is_ok(), "what is taken back was there before");
            }
            Undo::Missed(_) => {}
            Undo::Shown { handle, .. } => self.arena.remove(handle),
            Undo::Sequence { id, value } => self.schema.sequences.undo(id, value),
            Undo::Schema => {
                let change = self.transaction.schema.pop();
                self.undo_schema_change(change.expect("each record has its change"));
                // A reader that has seen the undone version must not take the restored one for it.
                self.schema.bump_version();
            }
        }
    }

    fn undo_schema_change(&mut self, change: SchemaUndo) {
        if let (Some(view), Some(space)) = (&mut self.view, change.emptied_space()) {
            view.attach(space);
        }
        match change {
            SchemaUndo::SpaceAdded(id) => {
                self.catalog.remove(id);
            }
            SchemaUndo::SpaceRemoved(space) => self.catalog.insert(space),
            SchemaUndo::SpaceAltered { def, format } => {
                self.catalog.redefine(def.id, *def, *format);
            }
            SchemaUndo::IndexAdded { space, index } => {
                if let Some(index) = self.catalog.take_index(space, index) {
                    self.discard(index.index, false);
                }
                self.restore_format(space);
            }
            SchemaUndo::IndexRemoved { space, index, owned_bytes } => {
                let tuples = index.len();
                self.catalog.put_index(space, *index);
                if let (Some(bytes), Some(space)) = (owned_bytes, self.catalog.get_mut(space)) {
                    space.weight.add_all(bytes, tuples);
                }
                self.restore_format(space);
            }
            SchemaUndo::IndexRenamed { space, index, name } => {
                self.catalog.rename_index(space, index, name);
            }
            SchemaUndo::ConstraintChanged => {}
            SchemaUndo::Truncated { space, indexes, bytes } => {
                if let Some(space) = self.catalog.get_mut(space) {
                    space.revision += 1;
                    space.indexes = indexes;
                    space.weight.add_all(bytes, space.indexes.first().map_or(0, SpaceIndex::len));
                }
            }
        }
    }

    /// Makes a space's format follow from its indexes again. While several changes of indexes are undone the parts may
    /// contradict each other; the format is right after the last.
    fn restore_format(&mut self, id: SpaceId) {
        if let Some(space) = self.catalog.get_mut(id)
            && let Ok(format) =
                Space::format_with(&space.def, space.indexes.iter().map(|index| &index.def), true)
        {
            space.format = format;
            space.checks.forget_compiled();
        }
    }

    pub(crate) fn record_row(
        &mut self,
        space: SpaceId,
        old: Option<Handle>,
        new: Option<Handle>,
        kind: StatementKind,
    ) {
        self.notify_read_view(space, old, new);
        self.transaction.undo.push(Undo::Row { space, old, new, kind, applied: false });
    }

    /// Records that a tuple was changed in place, where `saved` stood at `offset`.
    #[inline]
    pub(crate) fn record_overwritten(
        &mut self,
        space: SpaceId,
        handle: Handle,
        fields: FieldSet,
        offset: usize,
        saved: &[u8],
    ) {
        let Transaction { undo, saved: all, .. } = &mut self.transaction;
        let begin = all.len();
        all.extend_from_slice(saved);
        undo.push(Undo::Overwritten { space, handle, fields, offset, saved: (begin, all.len()) });
    }

    /// Lets the open read view know that `came` takes the place of `gone`, whose memory is still there as it was.
    /// They may be one tuple that is about to be changed in place.
    #[inline]
    pub(crate) fn notify_read_view(&mut self, space: SpaceId, gone: Option<Handle>, came: Option<Handle>) {
        if let Some(view) = &mut self.view {
            view.tuple_changed(&self.catalog, &self.arena, space, gone, came);
        }
    }

    pub(crate) fn record_missed(&mut self, space: SpaceId) {
        self.transaction.undo.push(Undo::Missed(space));
    }

    pub(crate) fn record_shown(&mut self, space: SpaceId, kind: StatementKind, handle: Handle) {
        self.transaction.undo.push(Undo::Shown { space, kind, handle });
    }

    /// Marks the record of a row as applied to the schema's caches.
    pub(crate) fn mark_applied(&mut self, record: usize) {
        if let Some(Undo::Row { applied, .. }) = self.transaction.undo.get_mut(record) {
            *applied = true;
        }
    }

    /// The number of undo records.
    pub(crate) fn recorded(&self) -> usize {
        self.transaction.undo.len()
    }

    pub(crate) fn undo_sequence(&mut self, id: u32, value: Option<i64>) {
        if let Some(view) = &mut self.view {
            view.sequence_changed(id, value);
        }
        self.transaction.undo.push(Undo::Sequence { id, value });
    }

    pub(crate) fn undo_schema(&mut self, change: SchemaUndo) {
        if let (Some(view), Some((space, tuples))) = (&mut self.view, change.emptied()) {
            view.detach(&self.catalog, space, tuples);
        }
        self.transaction.schema.push(change);
        self.transaction.undo.push(Undo::Schema);
    }

    /// Hands out the transactions that were committed since the last call, in order, and forgets them.
    ///
    /// While a transaction is open nothing is handed out: its effects are in the same buffer.
    #[inline]
    pub fn drain_committed(&mut self, f: &mut impl FnMut(Committed<'_>)) {
        debug_assert!(!self.transaction.is_open, "effects are drained between transactions");
        if !self.transaction.is_open {
            self.effects.drain(f);
        }
    }

    /// Effects of the open transaction so far: the first ones that [`Store::drain_committed`] will hand out for it.
    #[must_use]
    pub fn open_effects(&self) -> usize {
        self.effects.open()
    }

    /// Whether [`Store::drain_committed`] would hand out nothing.
    #[must_use]
    pub fn nothing_committed(&self) -> bool {
        self.effects.is_empty()
    }
}
