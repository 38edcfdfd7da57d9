//! Leaves: a sorted block of any entries, or, where hints are exact and close together, a dense run.
//!
//! Both forms take the same memory, so a leaf changes its form only when it has to: a dense run becomes a sorted
//! block when an entry comes from outside its window and a block can hold all. It also does when it shares or merges
//! with a leaf that is too far away. A sorted block becomes dense when it is full and a window holds all of it, or
//! when it merges with a leaf that is near. A leaf that begins with one entry begins dense. So a leaf gives a
//! neighbour entries, or splits, only when it has as many entries as a sorted block can hold.

use super::block::{Block, Bound, SearchKey};
use super::dense::Dense;
use super::{Entry, Order};
use crate::arena::Handle;

/// Up to `L` entries, or up to `W` that lie close together.
#[derive(Debug)]
pub(super) enum Leaf<const L: usize, const W: usize> {
    Sorted(Box<Block<L>>),
    /// Only where hints are exact.
    Dense(Box<Dense<W>>),
}

/// What an insertion into a leaf did.
#[derive(Debug)]
pub(super) enum Insertion<T> {
    /// The equal entry's handle was this and now is the new one.
    Replaced(Handle),
    /// The entry is new; the node gave what did not fit to a right neighbour.
    Added(Option<T>),
}

/// A run of entries that a removal took out of one leaf.
#[derive(Debug, Clone, Copy)]
pub(super) struct Removed {
    /// The handle of the first one.
    pub(super) first: Handle,
    pub(super) count: u32,
}

impl<const L: usize, const W: usize> Leaf<L, W> {
    /// A leaf of one entry.
    pub(super) fn new(exact: bool, entry: Entry) -> Self {
        if exact {
            return Self::Dense(Box::new(Dense::new(entry)));
        }
        let mut block = Block::new();
        block.push(entry);
        Self::Sorted(Box::new(block))
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Sorted(block) => block.len(),
            Self::Dense(dense) => dense.len(),
        }
    }

    /// How many entries the leaf takes from anywhere.
    pub(super) fn free_space(&self) -> usize {
        L.saturating_sub(self.len())
    }

    pub(super) fn first(&self) -> Entry {
        match self {
            Self::Sorted(block) => block.entry(0),
            Self::Dense(dense) => dense.first(),
        }
    }

    pub(super) fn last(&self) -> Entry {
        match self {
            Self::Sorted(block) => block.entry(block.len() - 1),
            Self::Dense(dense) => dense.last(),
        }
    }

    pub(super) fn find(&self, order: Order<'_>, target: &SearchKey<'_>) -> Option<Handle> {
        match self {
            Self::Sorted(block) => block.locate(order, target).ok().map(|at| block.handles()[at]),
            Self::Dense(dense) => dense.find(target.hint).map(|place| dense.entry(place).handle),
        }
    }

    /// The position before the first entry.
    pub(super) const START: usize = 0;

    /// The position after the last entry.
    pub(super) fn end(&self) -> usize {
        match self {
            Self::Sorted(block) => block.len(),
            Self::Dense(_) => W,
        }
    }

    /// The position of a place between entries.
    pub(super) fn seek(&self, place: Bound<'_>) -> usize {
        match self {
            Self::Sorted(block) => block.count_before(place),
            Self::Dense(dense) => dense.seek(place),
        }
    }

    /// How many entries are before a position.
    pub(super) fn rank(&self, position: usize) -> usize {
        match self {
            Self::Sorted(_) => position,
            Self::Dense(dense) => dense.rank(position),
        }
    }

    /// The position with `rank` entries before it.
    pub(super) fn select(&self, rank: usize) -> usize {
        match self {
            Self::Sorted(_) => rank,
            Self::Dense(dense) => dense.select(rank),
        }
    }

    /// The entry after a position, and the position behind it.
    #[inline]
    pub(super) fn next(&self, position: usize) -> Option<(usize, Entry)> {
        match self {
            Self::Sorted(block) => (position < block.len()).then(|| (position + 1, block.entry(position))),
            Self::Dense(dense) => dense.next(position).map(|place| (place + 1, dense.entry(place))),
        }
    }

    /// The entry before a position, and the position before it.
    #[inline]
    pub(super) fn previous(&self, position: usize) -> Option<(usize, Entry)> {
        match self {
            Self::Sorted(block) => position.checked_sub(1).map(|at| (at, block.entry(at))),
            Self::Dense(dense) => dense.previous(position).map(|place| (place, dense.entry(place))),
        }
    }

    /// Adds an entry, or puts its handle in the place of an equal entry's.
    pub(super) fn insert(
        &mut self,
        order: Order<'_>,
        target: &SearchKey<'_>,
        entry: Entry,
    ) -> Insertion<Self> {
        match self {
            Self::Sorted(block) => {
                let at = match block.locate(order, target) {
                    Ok(at) => return Insertion::Replaced(block.swap_handle(at, entry.handle)),
                    Err(at) => at,
                };
                if !block.is_full() {
                    block.insert(at, entry);
                    return Insertion::Added(None);
                }
                if !Self::is_near(order, block) {
                    return Insertion::Added(Some(Self::split(order, block, at, entry)));
                }
                *self = Self::Dense(Box::new(dense(block)));
                self.insert(order, target, entry)
            }
            Self::Dense(dense) => {
                if let Some(place) = dense.place(entry.hint).or_else(|| dense.slide_to(entry.hint)) {
                    return dense
                        .put(place, entry.handle)
                        .map_or(Insertion::Added(None), Insertion::Replaced);
                }
                let is_first = entry.hint < dense.first().hint;
                if dense.len() < L {
                    let at = if is_first { 0 } else { dense.len() };
                    self.sorted().insert(at, entry);
                    return Insertion::Added(None);
                }
                let other = Self::new(order.exact, entry);
                Insertion::Added(Some(if is_first { std::mem::replace(self, other) } else { other }))
            }
        }
    }

    /// Cuts a full block that `entry` belongs into at `at`; the right part is returned.
    fn split(order: Order<'_>, block: &mut Block<L>, at: usize, entry: Entry) -> Self {
        let cut = block.split_point(at);
        if cut == L && order.exact {
            block.doubt_run();
            return Self::new(order.exact, entry);
        }
        let mut right = block.split_off(cut);
        if at <= cut && cut < L {
            block.insert(at, entry);
        } else {
            right.insert(at - cut, entry);
        }
        Self::Sorted(Box::new(right))
    }

    /// Removes the entry that equals the target, and those behind it up to `limit` in all. The leaf may be left empty.
    pub(super) fn remove(
        &mut self,
        order: Order<'_>,
        target: &SearchKey<'_>,
        limit: usize,
    ) -> Option<Removed> {
        match self {
            Self::Sorted(block) => {
                let at = block.locate(order, target).ok()?;
                let (first, count) = (block.handles()[at], limit.min(block.len() - at));
                block.remove_run(at, count);
                Some(Removed { first, count: count as u32 })
            }
            Self::Dense(dense) => {
                let place = dense.find(target.hint)?;
                let mut removed = Removed { first: dense.remove(place), count: 1 };
                while (removed.count as usize) < limit
                    && let Some(place) = dense.next(place + 1)
                {
                    dense.remove(place);
                    removed.count += 1;
                }
                Some(removed)
            }
        }
    }

    /// Puts `handle` in the place of the entry that equals the target.
    pub(super) fn replace(
        &mut self,
        order: Order<'_>,
        target: &SearchKey<'_>,
        handle: Handle,
    ) -> Option<Handle> {
        match self {
            Self::Sorted(block) => {
                let at = block.locate(order, target).ok()?;
                Some(block.swap_handle(at, handle))
            }
            Self::Dense(dense) => dense.find(target.hint).and_then(|place| dense.put(place, handle)),
        }
    }

    /// Adds an entry behind all others, as an insertion would; `false` if that needs another leaf.
    pub(super) fn push(&mut self, entry: Entry) -> bool {
        match self {
            Self::Sorted(block) if block.is_full() => return false,
            Self::Sorted(block) => block.push(entry),
            Self::Dense(dense) => match dense.place(entry.hint) {
                Some(place) => {
                    dense.put(place, entry.handle);
                }
                None if dense.len() < L => self.sorted().push(entry),
                None => return false,
            },
        }
        true
    }

    /// Whether an insertion of this hint would have to split the leaf.
    pub(super) fn lacks_space(&self, order: Order<'_>, hint: u64) -> bool {
        match self {
            Self::Sorted(block) => block.is_full() && !Self::is_near(order, block),
            Self::Dense(dense) => {
                dense.len() >= L && dense.place(hint).is_none() && !dense.can_slide_to(hint)
            }
        }
    }

    /// Whether this leaf and the next one in order fit into one, with so much of a sorted block free as `slack`.
    pub(super) fn fits_with(&self, order: Order<'_>, right: &Self, slack: usize) -> bool {
        self.len() + right.len() <= L - slack
            || order.exact && Dense::<W>::spans(self.first().hint, right.last().hint)
    }

    /// Takes all entries of the next leaf in order, which fits.
    pub(super) fn append(&mut self, order: Order<'_>, mut right: Self) {
        if order.exact && Dense::<W>::spans(self.first().hint, right.last().hint) {
            let base = self.first().hint;
            match self {
                Self::Sorted(block) => *self = Self::Dense(Box::new(dense(block))),
                Self::Dense(dense) => dense.rebase(base),
            }
            let mut position = Self::START;
            while let Some((next, entry)) = right.next(position) {
                let is_held = self.push(entry);
                debug_assert!(is_held, "one window holds both leaves");
                position = next;
            }
        } else {
            let (block, moved) = (self.sorted(), right.len());
            block.take_front(right.sorted(), moved);
        }
    }

    /// The leaf as a sorted block. It has at most `L` entries.
    pub(super) fn sorted(&mut self) -> &mut Block<L> {
        if let Self::Dense(dense) = self {
            let mut block = Block::new();
            dense.entries().for_each(|entry| block.push(entry));
            *self = Self::Sorted(Box::new(block));
        }
        match self {
            Self::Sorted(block) => block,
            Self::Dense(_) => unreachable!("the leaf was just made a sorted block"),
        }
    }

    /// Whether a window holds all of a block.
    fn is_near(order: Order<'_>, block: &Block<L>) -> bool {
        let hints = block.hints();
        order.exact && Dense::<W>::spans(hints[0], hints[hints.len() - 1])
    }
}

/// A block whose entries one window holds.
fn dense<const L: usize, const W: usize>(block: &Block<L>) -> Dense<W> {
    let mut dense = Dense::new(block.entry(0));
    for (&hint, &handle) in block.hints().iter().zip(block.handles()).skip(1) {
        let place = dense.place(hint).expect("one window holds the block");
        dense.put(place, handle);
    }
    dense
}
