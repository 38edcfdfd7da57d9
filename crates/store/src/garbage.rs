//! Dropped indexes and the tuples of truncated and dropped spaces, whose memory is given back little by little.
//!
//! A truncation takes the indexes away in O(1). To free ten million tuples and their index entries at its commit would
//! hold up every other request for a second. So trees and tuples wait here and are freed leaf by leaf: some with each commit,
//! more when the owner of the store has nothing better to do, and as much as needed before a tuple is refused for want of
//! memory. Freeing 5 M tuples and their three indexes took 15 800 steps of 5 µs on average
//! (`cargo bench -p lycosa-store --bench turns`).
//!
//! A whole store that another one has replaced ends the same way: see [`Retired`].

use crate::Store;
use crate::index::{Index, Remains};

/// Tuples that a commit frees at once, at most: in the time of a few statements.
pub(crate) const PORTION: u64 = 256;
/// What a leaf without tuples of its own takes of a budget of tuples.
const LEAF_COST: u64 = 8;

/// An index out of reach.
#[derive(Debug)]
pub(crate) struct Discarded {
    remains: Remains,
    /// The index was the primary one, and its tuples went with it.
    owns_tuples: bool,
}

/// Pages of tuples that a step of [`Retired::free`] gives back for each tuple of its budget, in inverse.
const TUPLES_PER_PAGE: u64 = 16;

/// A discarded store. To drop it at once would take a second for ten million tuples.
#[derive(Debug)]
pub struct Retired(Store);

impl Retired {
    /// Gives back memory, as much as that of `budget` tuples takes in [`Store::collect_garbage`]. Returns whether some is
    /// left; without any it costs nothing to drop.
    pub fn free(&mut self, budget: u64) -> bool {
        if self.0.collect_garbage(budget) {
            return true;
        }
        self.0.arena.drop_pages(usize::try_from(budget.div_ceil(TUPLES_PER_PAGE)).unwrap_or(usize::MAX))
    }
}

impl Store {
    /// Ends a store that another one has replaced. Its indexes wait for [`Retired::free`], then the pages of its tuples.
    #[must_use]
    pub fn retire(mut self) -> Retired {
        drop(self.close_read_view());
        let mut indexes = Vec::new();
        for space in self.catalog.iter_mut() {
            indexes.extend(space.indexes.drain(..).map(|index| index.index));
        }
        indexes.into_iter().for_each(|index| self.discard(index, false));
        // The tuples go with their pages.
        self.garbage.iter_mut().for_each(|discarded| discarded.owns_tuples = false);
        Retired(self)
    }

    /// Gives up the tuples of all spaces but the system's: other data are about to take the place of these, and need the memory
    /// that [`Self::collect_garbage`] gives back. Definitions, users and privileges stay. Between transactions.
    pub fn vacate(&mut self) {
        debug_assert!(!self.in_transaction(), "an open transaction may need its tuples");
        let mut former = Vec::new();
        for space in self.catalog.iter_mut().filter(|space| !space.is_system()) {
            let (primary, bytes, tuples) = (space.primary_key().cloned(), space.bytes(), space.len());
            let empty = space.indexes.iter().map(|index| index.emptied(primary.as_ref())).collect();
            former.push((space.id(), std::mem::replace(&mut space.indexes, empty)));
            space.weight.subtract_all(bytes, tuples);
        }
        for (space, indexes) in former {
            let mut indexes = indexes.into_iter();
            if let Some(primary) = indexes.next() {
                self.give_up(space, primary.index);
            }
            indexes.for_each(|secondary| self.discard(secondary.index, false));
        }
    }

    /// Whether memory waits for [`Self::collect_garbage`].
    #[must_use]
    pub fn has_garbage(&self) -> bool {
        !self.garbage.is_empty()
    }

    /// Takes over an index that is out of reach, with its tuples if it is a primary one that owned them.
    pub(crate) fn discard(&mut self, index: Index, owns_tuples: bool) {
        if !index.is_empty() {
            self.garbage.push(Discarded { remains: index.into_remains(), owns_tuples });
        }
    }

    /// Gives back the memory of up to `budget` tuples of truncated and dropped spaces, and of dropped indexes. It may be a
    /// few hundred tuples more. Returns whether some are left.
    pub fn collect_garbage(&mut self, mut budget: u64) -> bool {
        while budget > 0 && !self.garbage.is_empty() {
            // A statement short of memory needs that of tuples.
            let place = self.garbage.iter().rposition(|discarded| discarded.owns_tuples);
            let place = place.unwrap_or(self.garbage.len() - 1);
            let Discarded { remains, owns_tuples } = &mut self.garbage[place];
            let freed = match *owns_tuples {
                true => remains.free_leaf(|handle| self.arena.remove(handle)),
                false => remains.free_leaf(|_| {}).map(|_| LEAF_COST),
            };
            match freed {
                Some(freed) => budget = budget.saturating_sub(freed),
                None => drop(self.garbage.swap_remove(place)),
            }
        }
        !self.garbage.is_empty()
    }
}
