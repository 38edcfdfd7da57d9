//! Tuples of truncated and dropped spaces, whose memory is given back little by little.
//!
//! A truncation takes the indexes away in O(1); to free ten million tuples at its commit would hold up everybody else for
//! a second. So what is large waits here and is freed in portions: some with each commit, more when the owner of the store
//! has nothing better to do, and as much as needed before a tuple is refused for want of memory.

use crate::Store;
use crate::arena::Handle;
use crate::index::Index;
use crate::statement::IteratorType;

/// Tuples that a commit frees at once, at most: in the time of a few statements.
pub(crate) const PORTION: u64 = 256;

/// Tuples out of reach: all that the primary index of a space held, some of them freed already.
#[derive(Debug)]
pub(crate) struct Heap {
    primary: Index,
    /// How many of the index's tuples, in its order, are freed.
    freed: u64,
}

impl Store {
    /// Takes over the tuples of a primary index that is out of reach.
    pub(crate) fn discard(&mut self, primary: Index) {
        if !primary.is_empty() {
            self.garbage.push(Heap { primary, freed: 0 });
        }
    }

    /// Gives back the memory of up to `budget` tuples of truncated and dropped spaces. Returns whether some are left.
    pub fn collect_garbage(&mut self, mut budget: u64) -> bool {
        while budget > 0
            && let Some(heap) = self.garbage.last_mut()
        {
            let portion = usize::try_from(budget).unwrap_or(usize::MAX);
            let walk = heap.primary.select(&self.arena, IteratorType::All, &[], 0, heap.freed);
            let handles: Vec<Handle> = walk.into_iter().flatten().take(portion).collect();
            for &handle in &handles {
                self.arena.remove(handle);
            }
            heap.freed += handles.len() as u64;
            budget -= handles.len() as u64;
            if heap.freed >= heap.primary.len() || handles.is_empty() {
                self.garbage.pop();
            }
        }
        !self.garbage.is_empty()
    }
}
