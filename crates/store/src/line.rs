//! Tuples that stand in line: the latest of a part of a lazy index, as long as they come in its order.
//!
//! What is put into a queue comes at the end of an index's part (of the ready tasks, those with the highest ids) and leaves
//! it at the front. A tree pays for both. A line is a ring of hints and handles in ascending order: a tuple behind its last
//! one is appended, and the first one is there without a search. Whatever comes out of order goes into the tree, and so does the
//! oldest in line when more than [`MOST`] are; the first of the part is the lesser of the tree's first and the line's.
//!
//! Invariants:
//! - hints in the line ascend strictly, those of tuples that have gone included, and lie within the part;
//! - the first place is that of a tuple which has not gone;
//! - `entered` is the number of the part's tuples in the tree.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use crate::arena::Handle;
use crate::index::tree::Entry;

/// Places in a line.
pub(crate) const MOST: usize = if cfg!(test) { 3 } else { 8192 };

/// A line that had more places gives their memory back when it is empty.
const KEPT_PLACES: usize = 1024;

/// The line of one part of an index.
#[derive(Debug)]
pub(crate) struct Line {
    /// The part: what the key of its tuples begins with, a MessagePack array of one value.
    key: Box<[u8]>,
    /// The hints of all tuples of the part, and of no others.
    hints: RangeInclusive<u64>,
    places: VecDeque<Place>,
    /// Places of tuples that have not gone.
    len: u64,
    entered: u64,
}

#[derive(Debug)]
struct Place {
    hint: u64,
    /// None if the tuple has gone.
    handle: Option<Handle>,
}

/// What is known of the first tuple of a part.
pub(crate) enum First {
    /// It is this one, or there is none.
    Is(Option<Handle>),
    /// The lesser one of the line's first, if there is one, and the tree's.
    OrEntered(Option<Entry>),
}

impl Line {
    /// Nobody is in line, and nothing of the part is in the tree.
    pub(crate) fn new(key: &[u8], hints: RangeInclusive<u64>) -> Self {
        Self { key: key.into(), hints, places: VecDeque::new(), len: 0, entered: 0 }
    }

    /// The line of an index like the one that this line belongs to.
    pub(crate) fn emptied(&self) -> Self {
        Self::new(&self.key, self.hints.clone())
    }

    /// The key of the part, a MessagePack array.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// The value that the key of the part's tuples begins with.
    pub(crate) fn part(&self) -> &[u8] {
        &self.key[1..]
    }

    /// The hints that the tuples of the part have.
    pub(crate) fn hints(&self) -> RangeInclusive<u64> {
        self.hints.clone()
    }

    /// Those in line.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes that the line takes.
    pub(crate) fn memory(&self) -> u64 {
        (self.places.capacity() * size_of::<Place>()) as u64
    }

    /// Whether a tuple with that hint belongs to the part.
    #[inline]
    pub(crate) fn includes(&self, hint: u64) -> bool {
        self.hints.contains(&hint)
    }

    /// The first tuple of the part.
    #[inline]
    pub(crate) fn first(&self) -> First {
        let first =
            self.places.front().and_then(|place| Some(Entry { hint: place.hint, handle: place.handle? }));
        match self.entered {
            0 => First::Is(first.map(|entry| entry.handle)),
            _ => First::OrEntered(first),
        }
    }

    /// Lets a tuple of the part stand in line. Returns one that has to go into the tree: this one if its place is not the
    /// last, another if the line is too long.
    #[inline]
    pub(crate) fn push(&mut self, entry: Entry) -> Option<Entry> {
        if self.places.back().is_some_and(|last| last.hint >= entry.hint) {
            return Some(entry);
        }
        let one_too_many = if self.places.len() == MOST { self.pop() } else { None };
        self.places.push_back(Place { hint: entry.hint, handle: Some(entry.handle) });
        self.len += 1;
        one_too_many
    }

    /// Takes the first one out of the line.
    pub(crate) fn pop(&mut self) -> Option<Entry> {
        let Place { hint, handle } = self.places.pop_front()?;
        self.len -= 1;
        self.skip_gone();
        handle.map(|handle| Entry { hint, handle })
    }

    /// Takes a tuple out that is the first in line. Whether it is.
    #[inline]
    pub(crate) fn remove_first(&mut self, handle: Handle) -> bool {
        let is_first = self.places.front().is_some_and(|first| first.handle == Some(handle));
        if is_first {
            self.pop();
        }
        is_first
    }

    /// Takes a tuple out wherever it stands. Whether it was there.
    pub(crate) fn remove(&mut self, entry: Entry) -> bool {
        let Ok(index) = self.places.binary_search_by_key(&entry.hint, |place| place.hint) else {
            return false;
        };
        let place = &mut self.places[index];
        if place.handle != Some(entry.handle) {
            return false;
        }
        place.handle = None;
        self.len -= 1;
        self.skip_gone();
        true
    }

    /// A tuple goes into the tree.
    #[inline]
    pub(crate) fn note_entered(&mut self, hint: u64) {
        self.entered += u64::from(self.includes(hint));
    }

    /// A tuple has left the tree.
    #[inline]
    pub(crate) fn note_left(&mut self, hint: u64) {
        self.entered -= u64::from(self.includes(hint));
    }

    /// So many of the part's tuples are in the tree.
    pub(crate) fn set_entered(&mut self, count: u64) {
        self.entered = count;
    }

    fn skip_gone(&mut self) {
        while self.places.front().is_some_and(|first| first.handle.is_none()) {
            self.places.pop_front();
        }
        if self.places.is_empty() && self.places.capacity() > KEPT_PLACES {
            self.places = VecDeque::new();
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

    fn first(line: &Line) -> Option<u64> {
        match line.first() {
            First::Is(handle) => handle.map(|handle| u64::from(handle.number())),
            First::OrEntered(entry) => entry.map(|entry| entry.hint),
        }
    }

    #[test]
    fn they_leave_in_the_order_of_their_coming() {
        let handles = handles(3);
        let mut line = Line::new(&[0x91, 7], 10..=20);
        for (hint, &handle) in (10..).zip(&handles) {
            assert_eq!(line.push(Entry { hint, handle }), None);
        }
        assert_eq!((line.len(), first(&line)), (3, Some(u64::from(handles[0].number()))));
        assert!(!line.remove_first(handles[1]) && line.remove_first(handles[0]));
        assert_eq!(line.pop(), Some(Entry { hint: 11, handle: handles[1] }));
        assert!(line.remove_first(handles[2]));
        assert_eq!((line.len(), first(&line), line.pop()), (0, None, None));
    }

    #[test]
    fn who_comes_out_of_order_or_is_one_too_many_goes_into_the_tree() {
        let handles = handles(MOST + 2);
        let mut line = Line::new(&[0x91, 7], 10..=20);
        let entry = |place: usize, hint| Entry { hint, handle: handles[place] };
        assert_eq!(line.push(entry(0, 12)), None);
        assert_eq!(line.push(entry(1, 12)), Some(entry(1, 12)));
        assert_eq!(line.push(entry(1, 11)), Some(entry(1, 11)));
        for place in 1..MOST {
            assert_eq!(line.push(entry(place, 12 + place as u64)), None);
        }
        assert_eq!(line.push(entry(MOST, 19)), Some(entry(0, 12)));
        assert_eq!(line.len(), MOST as u64);
        line.note_entered(12);
        line.note_entered(9);
        assert!(matches!(line.first(), First::OrEntered(Some(Entry { hint: 13, .. }))));
        line.note_left(21);
        line.note_left(12);
        assert!(matches!(line.first(), First::Is(Some(handle)) if handle == handles[1]));
    }

    #[test]
    fn who_leaves_from_the_middle_leaves_a_place_that_nobody_gets() {
        let handles = handles(4);
        let mut line = Line::new(&[0x91, 7], 10..=20);
        let entry = |place: usize| Entry { hint: 10 + place as u64, handle: handles[place] };
        assert!((0..3).all(|place| line.push(entry(place)).is_none()));
        assert!(line.remove(entry(1)) && !line.remove(entry(1)));
        assert!(!line.remove(Entry { hint: 10, handle: handles[2] }) && !line.remove(entry(3)));
        assert_eq!(line.push(entry(1)), Some(entry(1)));
        assert_eq!(line.len(), 2);
        assert!(line.remove(entry(0)));
        assert!(line.remove_first(handles[2]));
        assert_eq!((line.len(), first(&line)), (0, None));
        assert_eq!(line.push(entry(0)), None, "an empty line begins anew");
    }
}
