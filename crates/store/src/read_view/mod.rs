//! A read view: all persistent data as they were at one moment, handed out in small steps while changes go on.
//!
//! Nothing is copied when a view is opened, and nothing is done for each space: a server has tens of thousands of them. The view
//! walks the catalog and, space by space, its primary indexes. A space ahead of the walk gets an entry in the view when something
//! in it changes for the first time; without an entry it is as it was. What makes the walk one of the past is what each change
//! leaves behind, as long as the walk has not passed the place that changes:
//!
//! - the tuple that goes away is *kept*: a copy waits until the walk comes to its place;
//! - the tuple that comes is *young*: the walk steps over it.
//!
//! A rollback is a change like any other: the tuples that it restores are young, because a copy of each is kept already. So at a
//! key that the walk has not passed, the index has the tuples that are not young, and the kept copies lie beside it. Together they
//! are the tuples of the key when the view was opened.
//!
//! A truncated or dropped space takes its whole index away in O(1). The walk follows it: while the transaction is
//! open the index belongs to its undo records, after the commit to the view, which gives it to the garbage when it
//! has handed it out. A primary index that is built anew in another order has to be walked to its end at once; that
//! costs no more than the building. Of a sequence ahead of the walk the last value is noted before it changes for the first time.
//!
//! Invariants:
//! - a walk's place is a key, so no change of an index can move it;
//! - a young tuple is in the index that a walk goes through, ahead of it: so the set of them is empty when all walks are
//!   over, and no handle in it can have been given to another tuple;
//! - a space without tuples at the opening has none for the view: its entry, made at its first change, says that nothing is to be
//!   handed out. So a space that takes the number of a dropped one is no part of the view, nor one that ceases to be temporary;
//! - tuples of a space come in the order of its primary index, after any changes; spaces come in the order of
//!   their ids, those of the system first: a row comes after what it depends on.
//!
//! Cost: the opening O(1); a step passes a space as it passes a row. Without a view one comparison with `None` for each change. With
//! one, for each changed tuple that the walk has not passed, a comparison of keys, and for the first change of a tuple a copy of it
//! and an insertion into a tree. Memory grows by the former form of each tuple that is changed for the first time, with its entry in
//! the tree, and by a bit for each tuple that comes. It never exceeds what the data took when the view was opened. Tuples of
//! truncated and dropped spaces keep their memory until they have been handed out.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::arena::{Arena, Handle};
use crate::budget::Budget;
use crate::handle_set::HandleSet;
use crate::index::{Bookmark, Index};
use crate::schema::catalog::Catalog;
use crate::schema::sequence::Sequences;
use crate::sequence::write_value;
use crate::space::Space;
use crate::{SpaceId, Store, system, weight};

/// A view that is open.
#[derive(Debug, Default)]
pub(crate) struct ReadView {
    /// Spaces below are handed out.
    ahead: SpaceId,
    /// All spaces are handed out.
    is_over: bool,
    /// The space that is being walked, and those ahead of the walk in which something has changed.
    walks: BTreeMap<SpaceId, SpaceWalk>,
    /// The last sequence whose value was handed out.
    passed_sequence: Option<u32>,
    /// Values of changed sequences ahead of the walk, as they were.
    sequences: BTreeMap<u32, Option<i64>>,
    young: HandleSet,
    /// Copies of deleted and changed tuples.
    kept: Arena,
}

/// The rest of a view that was closed before its end. To drop it takes time in proportion to the changes that there
/// were while the view was open; it can be sent to another thread for that.
#[derive(Debug)]
#[must_use = "dropping it may take long: send it to a thread that has the time"]
pub struct ClosedView(#[expect(dead_code, reason = "kept to be dropped elsewhere")] Box<ReadView>);

/// The way through one space.
#[derive(Debug)]
struct SpaceWalk {
    space: SpaceId,
    is_local: bool,
    source: Source,
    /// The last place that was passed; nothing before the first.
    passed: Option<Bookmark>,
    /// Places of the copies in [`ReadView::kept`], in the primary index's order. All of them are ahead.
    kept: Option<Index>,
}

/// Where the tuples are that are not kept.
#[derive(Debug)]
enum Source {
    /// In the primary index of the space.
    Live,
    /// In an index that the open transaction has taken out of the space, and may put back when it is rolled back: after
    /// undoing this number of truncations and removals.
    Detached(u32),
    /// In an index that the space does not have any more.
    Orphan(Index),
    /// Nowhere: all that there are are kept.
    Kept,
}

impl SpaceWalk {
    fn new(space: SpaceId, is_local: bool, source: Source) -> Self {
        Self { space, is_local, source, passed: None, kept: None }
    }

    /// Whether the walk is behind the place of the tuple.
    fn has_passed(&self, primary: &Index, tuple: &[u8]) -> bool {
        self.passed.as_ref().is_some_and(|passed| primary.is_passed(tuple, passed))
    }

    /// Keeps a copy of a tuple, which `primary` has held.
    fn keep(&mut self, copies: &mut Arena, primary: &Index, tuple: &[u8]) {
        // The arena of all tuples held the kept copies and more, so it has more pages than these can fill.
        let copy =
            copies.insert(tuple).expect("copies of some tuples take fewer handles than all tuples took");
        self.kept.get_or_insert_with(|| primary.like()).insert(copies, copy);
    }

    /// Hands out the next tuples. Returns whether the walk has ended.
    fn step(
        &mut self,
        primary: Option<&Index>,
        tuples: &Arena,
        young: &mut HandleSet,
        copies: &mut Arena,
        budget: &mut Budget<'_>,
        f: &mut dyn FnMut(SpaceId, &[u8], bool),
    ) -> bool {
        let index = match &mut self.source {
            Source::Live => primary,
            Source::Orphan(index) => Some(&*index),
            Source::Kept | Source::Detached(_) => None,
        };
        let from = self.passed.take();
        let mut ahead = index.into_iter().flat_map(|index| index.after(tuples, from.as_ref()));
        let mut next = ahead.next();
        let mut next_kept = self.kept.as_ref().and_then(Index::first);
        let mut last = None;
        let is_over = loop {
            if next.is_none() && next_kept.is_none() {
                break true;
            }
            if budget.is_spent() {
                break false;
            }
            // Of two with one key the young tuple is passed first: the place will be behind both.
            if let (Some(kept), Some(copy)) = (&mut self.kept, next_kept)
                && next.is_none_or(|next| kept.compare_tuples(copies.get(copy), tuples.get(next)).is_lt())
            {
                let tuple = copies.get(copy);
                budget.spend(tuple.len());
                f(self.space, tuple, self.is_local);
                self.passed = Some(kept.bookmark(tuple));
                last = None;
                kept.remove(copies, copy);
                copies.remove(copy);
                next_kept = kept.first();
            } else if let Some(handle) = next {
                if young.remove(handle) {
                    budget.spend(0);
                } else {
                    let tuple = tuples.get(handle);
                    budget.spend(tuple.len());
                    f(self.space, tuple, self.is_local);
                }
                last = Some(handle);
                next = ahead.next();
            }
        };
        if let (Some(index), Some(last)) = (index, last) {
            self.passed = Some(index.bookmark(tuples.get(last)));
        }
        drop(ahead);
        if self.passed.is_none() {
            self.passed = from;
        }
        is_over
    }
}

impl ReadView {
    /// The entry of a space that the walk has not passed; `tuples`: how many there were before its first change.
    fn entry(
        &mut self,
        catalog: &Catalog,
        space: SpaceId,
        tuples: impl FnOnce(&Space) -> u64,
    ) -> Option<&mut SpaceWalk> {
        if self.is_over || space < self.ahead {
            return None;
        }
        match self.walks.entry(space) {
            Entry::Occupied(known) => Some(known.into_mut()),
            Entry::Vacant(place) => {
                let space =
                    catalog.get(space).filter(|space| is_persistent(space) && !has_sequences(space))?;
                let source = if tuples(space) == 0 { Source::Kept } else { Source::Live };
                Some(place.insert(SpaceWalk::new(space.def.id, space.def.local, source)))
            }
        }
    }

    /// Before the value of a sequence changes, or the sequence comes or goes: this is its value.
    pub(crate) fn sequence_changed(&mut self, id: u32, value: Option<i64>) {
        let is_ahead = !self.is_over && self.ahead <= system::SEQUENCE_DATA;
        if is_ahead && self.passed_sequence.is_none_or(|passed| passed < id) {
            self.sequences.entry(id).or_insert(value);
        }
    }

    /// Hands out the values of the next sequences. Returns whether all are handed out.
    fn step_sequences(
        &mut self,
        sequences: &Sequences,
        budget: &mut Budget<'_>,
        f: &mut dyn FnMut(SpaceId, &[u8], bool),
    ) -> bool {
        let mut row = Vec::with_capacity(16);
        let mut unchanged = sequences.after(self.passed_sequence).peekable();
        loop {
            let [known, next] =
                [self.sequences.first_key_value().map(|(&id, _)| id), unchanged.peek().map(|next| next.id)];
            let Some(id) = known.into_iter().chain(next).min() else { return true };
            if budget.is_spent() {
                return false;
            }
            let mut value = unchanged.next_if(|next| next.id == id).and_then(|next| next.value);
            if known == Some(id) {
                value = self.sequences.remove(&id).flatten();
            }
            row.clear();
            if let Some(value) = value {
                write_value(&mut row, id, value);
                f(system::SEQUENCE_DATA, &row, false);
            }
            budget.spend(row.len());
            self.passed_sequence = Some(id);
        }
    }

    /// The next space to hand out, if the budget reaches it; spaces without tuples are passed. `is_over` is set if no space is left.
    fn next_space(&mut self, catalog: &Catalog, budget: &mut Budget<'_>) -> Option<SpaceId> {
        while !self.is_over && !budget.is_spent() {
            let known = self.walks.first_key_value().map(|(&id, _)| id);
            let next =
                catalog.next_from(self.ahead).filter(|next| known.is_none_or(|known| next.def.id < known));
            let Some(space) = next else {
                self.is_over = known.is_none();
                return known;
            };
            let id = space.def.id;
            if is_persistent(space) && has_sequences(space) {
                return Some(id);
            }
            if is_persistent(space) && !space.is_empty() {
                self.walks.insert(id, SpaceWalk::new(id, space.def.local, Source::Live));
                return Some(id);
            }
            budget.spend(0);
            self.pass(id);
        }
        None
    }

    /// The space is handed out, and so are all with lower numbers.
    fn pass(&mut self, space: SpaceId) {
        self.is_over |= space == SpaceId::MAX;
        self.ahead = space.saturating_add(1);
    }

    /// In a space `came` took the place of `gone`, which is still in the arena.
    pub(crate) fn tuple_changed(
        &mut self,
        catalog: &Catalog,
        arena: &Arena,
        space: SpaceId,
        gone: Option<Handle>,
        came: Option<Handle>,
    ) {
        let before = |space: &Space| {
            (space.len() + u64::from(gone.is_some())).saturating_sub(u64::from(came.is_some()))
        };
        // Both have the same primary key.
        let (Some(either), Some(walk)) = (gone.or(came), self.entry(catalog, space, before)) else { return };
        let Some(primary) = primary_of(catalog, space) else { return };
        if !matches!(walk.source, Source::Live) || walk.has_passed(primary, arena.get(either)) {
            return;
        }
        let was_there = gone.filter(|&gone| !self.young.remove(gone));
        if let (Some(gone), Some(walk)) = (was_there, self.walks.get_mut(&space)) {
            walk.keep(&mut self.kept, primary, arena.get(gone));
        }
        if let Some(came) = came {
            self.young.insert(came);
        }
    }

    /// The open transaction has taken the primary index with that number of tuples out of the space.
    pub(crate) fn detach(&mut self, catalog: &Catalog, space: SpaceId, tuples: u64) {
        if let Some(walk) = self.entry(catalog, space, |_| tuples) {
            match &mut walk.source {
                Source::Live => walk.source = Source::Detached(1),
                Source::Detached(times) => *times += 1,
                Source::Orphan(_) | Source::Kept => {}
            }
        }
    }

    /// The open transaction takes back what [`ReadView::detach`] was told.
    pub(crate) fn attach(&mut self, space: SpaceId) {
        if let Some(walk) = self.walks.get_mut(&space)
            && let Source::Detached(times) = &mut walk.source
        {
            *times -= 1;
            if *times == 0 {
                walk.source = Source::Live;
            }
        }
    }

    /// A transaction that took indexes of the space away commits; they come in the order in which they were taken. Takes
    /// the one that the walk goes through; any other is given back.
    pub(crate) fn adopt(&mut self, space: SpaceId, primary: Index) -> Option<Index> {
        match self.walks.get_mut(&space) {
            Some(walk) if matches!(walk.source, Source::Detached(_)) => {
                walk.source = Source::Orphan(primary);
                None
            }
            _ => Some(primary),
        }
    }

    /// The primary index of the space is about to be replaced by one of another order: keeps all that is ahead.
    pub(crate) fn keep_rest(&mut self, catalog: &Catalog, arena: &Arena, space: SpaceId) {
        if self.entry(catalog, space, Space::len).is_none() {
            return;
        }
        let (Some(walk), Some(primary)) = (self.walks.get_mut(&space), primary_of(catalog, space)) else {
            return;
        };
        if !matches!(walk.source, Source::Live) {
            return;
        }
        let from = walk.passed.take();
        for handle in primary.after(arena, from.as_ref()) {
            if !self.young.remove(handle) {
                walk.keep(&mut self.kept, primary, arena.get(handle));
            }
        }
        walk.passed = from;
        walk.source = Source::Kept;
    }
}

fn primary_of(catalog: &Catalog, space: SpaceId) -> Option<&Index> {
    catalog.get(space)?.indexes.first().map(|primary| &primary.index)
}

/// Whether a snapshot has the space's tuples.
pub(crate) fn is_persistent(space: &Space) -> bool {
    !space.def.temporary && space.def.engine.has_tuples()
}

/// Whether its rows are the last values of sequences.
fn has_sequences(space: &Space) -> bool {
    space.def.id == system::SEQUENCE_DATA
}

impl Store {
    /// Opens a view of all persistent data as they are now. Costs O(1). One view can be open at a time.
    ///
    /// # Panics
    /// While a transaction or a view is open.
    pub fn open_read_view(&mut self) {
        assert!(!self.transaction.is_open, "a view is opened between transactions");
        assert!(self.view.is_none(), "one view is open at a time");
        self.view = Some(Box::default());
        self.vinyl_writes.next_period();
    }

    /// Whether a view is open.
    #[must_use]
    pub fn has_read_view(&self) -> bool {
        self.view.is_some()
    }

    /// Hands out the next rows of the open view, as [`Store::for_each_snapshot_row`] would have handed them out when
    /// the view was opened: the space, the tuple, whether the row stays on this instance. Returns whether there are
    /// more. While a transaction is open nothing is handed out.
    pub fn read_view_next(
        &mut self,
        mut budget: Budget<'_>,
        f: &mut dyn FnMut(SpaceId, &[u8], bool),
    ) -> bool {
        let Some(view) = self.view.as_deref_mut() else { return false };
        if self.transaction.is_open {
            return true;
        }
        let mut orphans = Vec::new();
        while let Some(space) = view.next_space(&self.catalog, &mut budget) {
            if space == system::SEQUENCE_DATA {
                if !view.step_sequences(&self.schema.sequences, &mut budget, f) {
                    break;
                }
            } else if let Some(walk) = view.walks.get_mut(&space) {
                let primary = primary_of(&self.catalog, space);
                if !walk.step(primary, &self.arena, &mut view.young, &mut view.kept, &mut budget, f) {
                    break;
                }
                if let Some(SpaceWalk { source: Source::Orphan(index), .. }) = view.walks.remove(&space) {
                    orphans.push(index);
                }
            }
            budget.spend(0);
            view.pass(space);
        }
        let has_more = !view.is_over;
        debug_assert!(
            has_more || view.young.len() == 0 && view.kept.is_empty(),
            "walks leave nothing behind"
        );
        orphans.into_iter().for_each(|index| self.discard(index, true));
        has_more
    }

    /// Closes the view, if one is open, whether it is at its end or not.
    ///
    /// # Panics
    /// While a transaction is open.
    pub fn close_read_view(&mut self) -> Option<ClosedView> {
        assert!(!self.transaction.is_open, "a view is closed between transactions");
        let mut view = self.view.take()?;
        for walk in view.walks.values_mut() {
            if let Source::Orphan(index) = std::mem::replace(&mut walk.source, Source::Kept) {
                self.discard(index, true);
            }
        }
        Some(ClosedView(view))
    }

    /// Bytes that the open view takes beside the data.
    #[must_use]
    pub fn read_view_memory(&self) -> u64 {
        self.view.as_ref().map_or(0, |view| {
            let places = view.walks.values().filter_map(|walk| walk.kept.as_ref()).map(Index::memory);
            view.kept.reserved_bytes() + view.young.memory() + places.sum::<u64>()
        })
    }

    /// Bytes of the rows that a snapshot of the data would have now, not compressed. Costs O(1).
    #[must_use]
    pub fn snapshot_bytes(&self) -> u64 {
        self.catalog.persistent_bytes()
    }

    /// [`Store::snapshot_bytes`] counted anew, for tests: O(spaces).
    #[must_use]
    pub fn recount_snapshot_bytes(&self) -> u64 {
        let spaces = self.catalog.iter().filter(|space| is_persistent(space));
        spaces.map(|space| weight::of_rows(space.bytes(), space.len())).sum()
    }
}
