//! A run of entries whose hints lie close together: the other body of a leaf, in trees where hints are exact.
//!
//! A window of `W` consecutive hints begins at a base. A handle's place is its hint's distance from the base, so hints are
//! not stored, and nothing moves when an entry comes or goes. The places in use are marked in a bitmap, which walks scan. A
//! window of 245 takes as much memory as a sorted block of 85 entries: consecutive ids need a third of it.
//!
//! Invariants:
//! - a place's mark is set if and only if there is an entry with that hint, and marks at and beyond `W` never are;
//! - `len` is the number of marks, and there is at least one.
//!
//! A window near the greatest hint may reach beyond it; nothing is ever looked for there.

use super::Entry;
use super::block::Bound;
use crate::arena::Handle;

const WORD: usize = u64::BITS as usize;
const WORDS: usize = 4;
/// A window is moved along only if that frees this share of it, so that moves are rare.
const SLIDE: usize = 8;

/// Up to `W` entries whose hints differ by less than `W`, which is from 2 to 255.
#[derive(Debug)]
pub(super) struct Dense<const W: usize> {
    base: u64,
    marks: [u64; WORDS],
    handles: [Handle; W],
    len: u8,
}

impl<const W: usize> Dense<W> {
    const WINDOW_FITS: () = assert!(W >= 2 && W < WORDS * WORD);

    /// One entry, at the window's start.
    pub(super) fn new(entry: Entry) -> Self {
        let () = Self::WINDOW_FITS;
        let mut dense = Self { base: entry.hint, marks: [0; WORDS], handles: [Handle::NOWHERE; W], len: 0 };
        dense.put(0, entry.handle);
        dense
    }

    /// Whether one window can hold both hints, of which `first` is not the greater one.
    pub(super) const fn spans(first: u64, last: u64) -> bool {
        last - first < W as u64
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// The place of a hint, taken or not.
    #[inline]
    pub(super) fn place(&self, hint: u64) -> Option<usize> {
        let distance = hint.checked_sub(self.base)?;
        (distance < W as u64).then_some(distance as usize)
    }

    #[inline]
    fn is_marked(&self, place: usize) -> bool {
        self.marks[place / WORD] >> (place % WORD) & 1 != 0
    }

    /// The place of a hint that has an entry.
    #[inline]
    pub(super) fn find(&self, hint: u64) -> Option<usize> {
        self.place(hint).filter(|&place| self.is_marked(place))
    }

    /// The entry at a place that is taken.
    #[inline]
    pub(super) fn entry(&self, place: usize) -> Entry {
        Entry { hint: self.base + place as u64, handle: self.handles[place] }
    }

    /// Puts a handle at a place; the one that was there is returned.
    #[inline]
    pub(super) fn put(&mut self, place: usize, handle: Handle) -> Option<Handle> {
        let old = std::mem::replace(&mut self.handles[place], handle);
        if self.is_marked(place) {
            return Some(old);
        }
        self.marks[place / WORD] |= 1 << (place % WORD);
        self.len += 1;
        None
    }

    /// Frees a place that is taken. The last entry may go, if the rest is dropped.
    #[inline]
    pub(super) fn remove(&mut self, place: usize) -> Handle {
        self.marks[place / WORD] &= !(1 << (place % WORD));
        self.len -= 1;
        self.handles[place]
    }

    /// The first place at or behind `from`, which is at most `W`, that is taken.
    #[inline]
    pub(super) fn next(&self, from: usize) -> Option<usize> {
        let mut word = from / WORD;
        let mut marks = self.marks.get(word)? & u64::MAX << (from % WORD);
        while marks == 0 {
            word += 1;
            marks = *self.marks.get(word)?;
        }
        Some(word * WORD + marks.trailing_zeros() as usize)
    }

    /// The last place before `to`, which is at most `W`, that is taken.
    #[inline]
    pub(super) fn previous(&self, to: usize) -> Option<usize> {
        let mut word = to / WORD;
        let mut marks = self.marks[word] & !(u64::MAX << (to % WORD));
        while marks == 0 {
            word = word.checked_sub(1)?;
            marks = self.marks[word];
        }
        Some(word * WORD + marks.ilog2() as usize)
    }

    pub(super) fn first(&self) -> Entry {
        self.entry(self.next(0).expect("a dense leaf is not empty"))
    }

    pub(super) fn last(&self) -> Entry {
        self.entry(self.previous(W).expect("a dense leaf is not empty"))
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> {
        let mut from = 0;
        std::iter::from_fn(move || {
            let place = self.next(from)?;
            from = place + 1;
            Some(self.entry(place))
        })
    }

    /// How many entries are before a place.
    pub(super) fn rank(&self, place: usize) -> usize {
        let whole = place / WORD;
        let part = self.marks[whole] & !(u64::MAX << (place % WORD));
        let count = |marks: u64| marks.count_ones() as usize;
        count(part) + self.marks[..whole].iter().copied().map(count).sum::<usize>()
    }

    /// The place of the entry with `rank` entries before it, or the window's end.
    pub(super) fn select(&self, mut rank: usize) -> usize {
        for (word, &marks) in self.marks.iter().enumerate() {
            let count = marks.count_ones() as usize;
            if rank < count {
                let after = (0..rank).fold(marks, |marks, _| marks & (marks - 1));
                return word * WORD + after.trailing_zeros() as usize;
            }
            rank -= count;
        }
        W
    }

    /// Where a place between entries is in the window.
    pub(super) fn seek(&self, place: Bound<'_>) -> usize {
        let before = |hint: u64| hint.saturating_sub(self.base).min(W as u64) as usize;
        match place {
            Bound::Start => 0,
            Bound::End => W,
            Bound::BeforeHint(low) => before(low),
            Bound::AfterHint(high) if high < self.base => 0,
            Bound::AfterHint(high) => (before(high) + 1).min(W),
            Bound::Among { .. } => unreachable!("exact hints leave no order open"),
        }
    }

    /// Moves the window so that it holds a hint from outside, if that frees enough of it; returns the hint's place.
    pub(super) fn slide_to(&mut self, hint: u64) -> Option<usize> {
        let base = self.base_for(hint)?;
        self.rebase(base);
        self.place(hint)
    }

    /// Whether [`Dense::slide_to`] would move the window.
    pub(super) fn can_slide_to(&self, hint: u64) -> bool {
        self.base_for(hint).is_some()
    }

    fn base_for(&self, hint: u64) -> Option<u64> {
        let (first, last) = (self.first().hint, self.last().hint);
        let base = if hint < first { last.saturating_sub(W as u64 - 1) } else { first };
        let is_held = hint.checked_sub(base).is_some_and(|distance| distance < W as u64);
        (is_held && base.abs_diff(self.base) >= (W / SLIDE) as u64).then_some(base)
    }

    /// Makes `base`, from which all entries are in reach, the first hint of the window.
    pub(super) fn rebase(&mut self, base: u64) {
        let (from, to) = (self.first(), self.last());
        let (first, end) = ((from.hint - self.base) as usize, (to.hint - self.base) as usize + 1);
        let moved = (from.hint - base) as usize;
        self.handles.copy_within(first..end, moved);
        self.marks = shifted_up(&shifted_down(&self.marks, first), moved);
        self.base = base;
    }
}

/// The marks with all places `by` lower; those below `by` are free.
fn shifted_down(marks: &[u64; WORDS], by: usize) -> [u64; WORDS] {
    let (words, bits) = (by / WORD, (by % WORD) as u32);
    std::array::from_fn(|word| {
        let at = |word: usize| marks.get(word).copied().unwrap_or(0);
        at(word + words) >> bits | at(word + words + 1).checked_shl(u64::BITS - bits).unwrap_or(0)
    })
}

/// The marks with all places `by` higher, where all fit.
fn shifted_up(marks: &[u64; WORDS], by: usize) -> [u64; WORDS] {
    let (words, bits) = (by / WORD, (by % WORD) as u32);
    std::array::from_fn(|word| {
        let at = |back: usize| word.checked_sub(back).map_or(0, |word| marks[word]);
        at(words) << bits | at(words + 1).checked_shr(u64::BITS - bits).unwrap_or(0)
    })
}
