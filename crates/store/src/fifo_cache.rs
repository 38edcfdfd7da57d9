//! A FIFO cache: the newest tuples of a part of an index, as long as they arrive in its order.
//!
//! A queue puts a task at the end of an index's part (of the ready tasks, those with the highest ids) and takes it
//! from the front. A tree searches for both. The cache is a ring of hints and handles in ascending order: a tuple
//! behind the last one is appended, and the first one is found without a search. A tuple that arrives out of order
//! goes into the tree, and so does the oldest one in the cache when there are more than [`MAX_CACHED`]. The first
//! tuple of the part is the lesser of the tree's first and the cache's. It saves 1 200 to 1 900 instructions of a
//! cycle of put, take and ack, see [`crate::deferred`].
//!
//! Invariants:
//! - hints in the cache ascend strictly, those of removed tuples included, and lie within the part;
//! - the first one is that of a tuple which was not removed;
//! - `in_tree` is the number of the part's tuples in the tree.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use crate::arena::Handle;
use crate::index::tree::Entry;

/// Hints in a cache, at most.
pub(crate) const MAX_CACHED: usize = if cfg!(test) { 3 } else { 2048 };

/// A cache with more capacity gives its memory back when it is empty.
const KEPT_CAPACITY: usize = 1024;

/// The cache of one part of an index.
#[derive(Debug)]
pub(crate) struct FifoCache {
    /// The part: what the key of its tuples begins with, a MessagePack array of one value.
    key: Box<[u8]>,
    /// The hints of all tuples of the part, and of no others.
    hints: RangeInclusive<u64>,
    cached: VecDeque<Cached>,
    /// Cached tuples that were not removed.
    len: u64,
    in_tree: u64,
}

#[derive(Debug)]
struct Cached {
    hint: u64,
    /// None if the tuple was removed.
    handle: Option<Handle>,
}

/// The cached state of the first tuple of a part.
pub(crate) enum First {
    /// It is this one, or there is none.
    Is(Option<Handle>),
    /// The lesser one of the cache's first, if there is one, and the tree's.
    OrInTree(Option<Entry>),
}

impl FifoCache {
    /// Nothing is cached, and nothing of the part is in the tree.
    pub(crate) fn new(key: &[u8], hints: RangeInclusive<u64>) -> Self {
        Self { key: key.into(), hints, cached: VecDeque::new(), len: 0, in_tree: 0 }
    }

    /// An empty cache for an index like the one that this cache belongs to.
    pub(crate) fn emptied(&self) -> Self {
        Self::new(&self.key, self.hints.clone())
    }

    /// Whether this is the key of the part.
    #[inline]
    pub(crate) fn has_key(&self, key: &[u8]) -> bool {
        // Three bytes: a loop is shorter than the call that compares slices.
        self.key.len() == key.len() && self.key.iter().zip(key).all(|(a, b)| a == b)
    }

    /// The value that the key of the part's tuples begins with.
    pub(crate) fn part(&self) -> &[u8] {
        &self.key[1..]
    }

    /// The hints that the tuples of the part have.
    pub(crate) fn hints(&self) -> RangeInclusive<u64> {
        self.hints.clone()
    }

    /// The number of cached tuples.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes that the cache takes.
    pub(crate) fn memory(&self) -> u64 {
        (self.cached.capacity() * size_of::<Cached>()) as u64
    }

    /// Whether a tuple with that hint belongs to the part.
    #[inline]
    pub(crate) fn includes(&self, hint: u64) -> bool {
        self.hints.contains(&hint)
    }

    /// The cached tuples, in order.
    pub(crate) fn handles(&self) -> impl Iterator<Item = Handle> {
        self.cached.iter().filter_map(|cached| cached.handle)
    }

    /// The first tuple of the part.
    #[inline]
    pub(crate) fn first(&self) -> First {
        let first =
            self.cached.front().and_then(|cached| Some(Entry { hint: cached.hint, handle: cached.handle? }));
        match self.in_tree {
            0 => First::Is(first.map(|entry| entry.handle)),
            _ => First::OrInTree(first),
        }
    }

    /// The first cached tuple that is not before a place, in O(log n): `is_before` holds for a beginning of the cached tuples.
    pub(crate) fn first_from(&self, is_before: impl Fn(Handle) -> bool) -> Option<Entry> {
        let present = |from: usize| {
            let rest = self.cached.range(from..).enumerate();
            rest.filter_map(|(at, cached)| {
                Some((from + at, Entry { hint: cached.hint, handle: cached.handle? }))
            })
            .next()
        };
        let (mut low, mut high) = (0, self.cached.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            match present(middle) {
                Some((at, entry)) if at < high && is_before(entry.handle) => low = at + 1,
                _ => high = middle,
            }
        }
        present(low).map(|(_, entry)| entry)
    }

    /// Caches a tuple of the part. Returns one that has to go into the tree: this one if it is not behind the last one, the
    /// oldest one if there are too many.
    #[inline]
    pub(crate) fn push(&mut self, entry: Entry) -> Option<Entry> {
        if self.cached.back().is_some_and(|last| last.hint >= entry.hint) {
            return Some(entry);
        }
        let one_too_many = if self.cached.len() == MAX_CACHED { self.pop() } else { None };
        self.cached.push_back(Cached { hint: entry.hint, handle: Some(entry.handle) });
        self.len += 1;
        one_too_many
    }

    /// Takes the first tuple out.
    pub(crate) fn pop(&mut self) -> Option<Entry> {
        let Cached { hint, handle } = self.cached.pop_front()?;
        self.len -= 1;
        self.skip_removed();
        handle.map(|handle| Entry { hint, handle })
    }

    /// Takes a tuple out if it is the first one. Whether it is.
    #[inline]
    pub(crate) fn remove_first(&mut self, handle: Handle) -> bool {
        let is_first = self.cached.front().is_some_and(|first| first.handle == Some(handle));
        if is_first {
            self.pop();
        }
        is_first
    }

    /// Takes a tuple out wherever it is. Whether it was cached.
    pub(crate) fn remove(&mut self, entry: Entry) -> bool {
        let Ok(index) = self.cached.binary_search_by_key(&entry.hint, |cached| cached.hint) else {
            return false;
        };
        let cached = &mut self.cached[index];
        if cached.handle != Some(entry.handle) {
            return false;
        }
        cached.handle = None;
        self.len -= 1;
        self.skip_removed();
        true
    }

    /// A tuple was inserted into the tree.
    #[inline]
    pub(crate) fn note_inserted(&mut self, hint: u64) {
        self.in_tree += u64::from(self.includes(hint));
    }

    /// A tuple was removed from the tree.
    #[inline]
    pub(crate) fn note_removed(&mut self, hint: u64) {
        self.in_tree -= u64::from(self.includes(hint));
    }

    /// Sets the number of the part's tuples in the tree.
    pub(crate) fn set_in_tree(&mut self, count: u64) {
        self.in_tree = count;
    }

    fn skip_removed(&mut self) {
        while self.cached.front().is_some_and(|first| first.handle.is_none()) {
            self.cached.pop_front();
        }
        if self.cached.is_empty() && self.cached.capacity() > KEPT_CAPACITY {
            self.cached = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Arena;

    fn handles(count: usize) -> Vec<Handle> {
        let mut arena = Arena::new();
        (0..count).map(|_| arena.insert(b"waits").unwrap()).collect()
    }

    fn first(cache: &FifoCache) -> Option<u64> {
        match cache.first() {
            First::Is(handle) => handle.map(|handle| u64::from(handle.number())),
            First::OrInTree(entry) => entry.map(|entry| entry.hint),
        }
    }

    #[test]
    fn tuples_leave_in_the_order_of_their_arrival() {
        let handles = handles(3);
        let mut cache = FifoCache::new(&[0x91, 7], 10..=20);
        for (hint, &handle) in (10..).zip(&handles) {
            assert_eq!(cache.push(Entry { hint, handle }), None);
        }
        assert_eq!((cache.len(), first(&cache)), (3, Some(u64::from(handles[0].number()))));
        assert!(!cache.remove_first(handles[1]) && cache.remove_first(handles[0]));
        assert_eq!(cache.pop(), Some(Entry { hint: 11, handle: handles[1] }));
        assert!(cache.remove_first(handles[2]));
        assert_eq!((cache.len(), first(&cache), cache.pop()), (0, None, None));
    }

    #[test]
    fn the_first_one_from_a_place_is_found_whichever_were_removed() {
        let handles = handles(3);
        for removed in 0..8_u32 {
            let mut cache = FifoCache::new(&[0x91, 7], 10..=20);
            let entries: Vec<_> =
                (10..).zip(&handles).map(|(hint, &handle)| Entry { hint, handle }).collect();
            entries.iter().for_each(|&entry| assert_eq!(cache.push(entry), None));
            let is_removed = |place: usize| removed & (1 << place) != 0;
            (0..3).filter(|&place| is_removed(place)).for_each(|place| assert!(cache.remove(entries[place])));
            for from in 0..=3 {
                let expected = (from..3).find(|&place| !is_removed(place)).map(|place| entries[place]);
                let is_before = |handle| handles[..from].contains(&handle);
                assert_eq!(cache.first_from(is_before), expected, "{removed:b} {from}");
            }
        }
    }

    #[test]
    fn a_tuple_out_of_order_or_one_too_many_goes_into_the_tree() {
        let handles = handles(MAX_CACHED + 2);
        let mut cache = FifoCache::new(&[0x91, 7], 10..=20);
        let entry = |place: usize, hint| Entry { hint, handle: handles[place] };
        assert_eq!(cache.push(entry(0, 12)), None);
        assert_eq!(cache.push(entry(1, 12)), Some(entry(1, 12)));
        assert_eq!(cache.push(entry(1, 11)), Some(entry(1, 11)));
        for place in 1..MAX_CACHED {
            assert_eq!(cache.push(entry(place, 12 + place as u64)), None);
        }
        assert_eq!(cache.push(entry(MAX_CACHED, 19)), Some(entry(0, 12)));
        assert_eq!(cache.len(), MAX_CACHED as u64);
        cache.note_inserted(12);
        cache.note_inserted(9);
        assert!(matches!(cache.first(), First::OrInTree(Some(Entry { hint: 13, .. }))));
        cache.note_removed(21);
        cache.note_removed(12);
        assert!(matches!(cache.first(), First::Is(Some(handle)) if handle == handles[1]));
    }

    #[test]
    fn a_tuple_removed_from_the_middle_leaves_its_hint() {
        let handles = handles(4);
        let mut cache = FifoCache::new(&[0x91, 7], 10..=20);
        let entry = |place: usize| Entry { hint: 10 + place as u64, handle: handles[place] };
        assert!((0..3).all(|place| cache.push(entry(place)).is_none()));
        assert!(cache.remove(entry(1)) && !cache.remove(entry(1)));
        assert!(!cache.remove(Entry { hint: 10, handle: handles[2] }) && !cache.remove(entry(3)));
        assert_eq!(cache.push(entry(1)), Some(entry(1)));
        assert_eq!(cache.len(), 2);
        assert!(cache.remove(entry(0)));
        assert!(cache.remove_first(handles[2]));
        assert_eq!((cache.len(), first(&cache)), (0, None));
        assert_eq!(cache.push(entry(0)), None, "an empty cache begins anew");
    }
}
