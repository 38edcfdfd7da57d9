//! A sorted run of entries in one piece of memory: a body of leaves, and the separators of an inner node.
//!
//! Hints and handles lie in separate arrays, so a search reads hints only and touches a tuple only where hints are
//! equal. It is a binary search without branches: reading the first hint of every cache line and then one line takes
//! 5 % more of a whole put, take and ack, and no less in a tree of ten million entries.

use std::cmp::Ordering;

use super::{Entry, Order};
use crate::arena::Handle;

/// An insertion that continues a block's ascending run counts for two, any other takes one away; from this number on the
/// run is taken for one that goes on. So a run is seen even if every second insertion goes elsewhere.
const RUN: u8 = 8;
const LONGEST_RUN: u8 = 2 * RUN;

/// Up to `N` entries in order; `N` is at most 255.
#[derive(Debug)]
pub(super) struct Block<const N: usize> {
    hints: [u64; N],
    handles: [Handle; N],
    len: u8,
    /// Where the next insertion goes if it continues the ascending run.
    next: u8,
    /// How much of a run there is, up to [`LONGEST_RUN`].
    run: u8,
}

/// What a search compares entries with: a hint, and the tuple that decides between equal hints where those are not exact.
#[derive(Debug, Clone, Copy)]
pub(super) struct SearchKey<'t> {
    pub(super) hint: u64,
    pub(super) sought: Sought<'t>,
}

/// The tuple that an entry equals.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sought<'t> {
    Tuple(&'t [u8]),
    /// One in the arena. If the entry has this handle, nothing has to be compared.
    Handle(Handle),
}

/// A place between entries, as a search for it sees them.
#[derive(Clone, Copy)]
pub(super) enum Bound<'p> {
    /// Before all entries.
    Start,
    /// After all entries.
    End,
    /// Before the entries with this hint.
    BeforeHint(u64),
    /// After the entries with this hint.
    AfterHint(u64),
    /// Between the entries that `is_before` tells apart, which are those with hints from `low` to `high`.
    Among { low: u64, high: u64, is_before: &'p dyn Fn(Handle) -> bool },
}

impl From<Entry> for SearchKey<'_> {
    fn from(entry: Entry) -> Self {
        Self { hint: entry.hint, sought: Sought::Handle(entry.handle) }
    }
}

impl SearchKey<'_> {
    fn compare_entry(&self, order: Order<'_>, handle: Handle) -> Ordering {
        let tuple = match self.sought {
            Sought::Handle(same) if same == handle => return Ordering::Equal,
            Sought::Handle(other) => order.arena.get(other),
            Sought::Tuple(tuple) => tuple,
        };
        order.key.compare(order.arena.get(handle), tuple)
    }
}

impl<const N: usize> Block<N> {
    const CAPACITY_FITS: () = assert!(N >= 2 && N <= u8::MAX as usize);

    pub(super) fn new() -> Self {
        let () = Self::CAPACITY_FITS;
        Self { hints: [0; N], handles: [Handle::NOWHERE; N], len: 0, next: 0, run: 0 }
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.len)
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() == N
    }

    pub(super) fn hints(&self) -> &[u64] {
        &self.hints[..self.len()]
    }

    pub(super) fn handles(&self) -> &[Handle] {
        &self.handles[..self.len()]
    }

    pub(super) fn entry(&self, at: usize) -> Entry {
        Entry { hint: self.hints()[at], handle: self.handles()[at] }
    }

    pub(super) fn set(&mut self, at: usize, entry: Entry) {
        self.hints[at] = entry.hint;
        self.handles[at] = entry.handle;
    }

    /// Replaces the handle of the entry at `at`, whose key stays the same.
    pub(super) fn swap_handle(&mut self, at: usize, handle: Handle) -> Handle {
        std::mem::replace(&mut self.handles[at], handle)
    }

    /// How many entries are before a place.
    pub(super) fn count_before(&self, place: Bound<'_>) -> usize {
        match place {
            Bound::Start => 0,
            Bound::End => self.len(),
            Bound::BeforeHint(low) => self.count_hints(|hint| hint < low),
            Bound::AfterHint(high) => self.count_hints(|hint| hint <= high),
            Bound::Among { low, high, is_before } => {
                let start = self.count_hints(|hint| hint < low);
                let end = self.count_hints(|hint| hint <= high);
                start + self.handles[start..end].partition_point(|&handle| is_before(handle))
            }
        }
    }

    /// The place of the entry that equals the target, or else the place where it belongs.
    pub(super) fn locate(&self, order: Order<'_>, target: &SearchKey<'_>) -> Result<usize, usize> {
        let start = self.count_hints(|hint| hint < target.hint);
        if self.hints().get(start) != Some(&target.hint) {
            return Err(start);
        }
        if order.exact {
            return Ok(start);
        }
        let ties = self.hints()[start..].iter().take_while(|&&hint| hint == target.hint).count();
        match self.handles[start..start + ties]
            .binary_search_by(|&handle| target.compare_entry(order, handle))
        {
            Ok(at) => Ok(start + at),
            Err(at) => Err(start + at),
        }
    }

    /// How many hints are before a place; they are ascending, so the hints below the bound come first.
    #[inline]
    fn count_hints(&self, is_before: impl Fn(u64) -> bool) -> usize {
        self.hints[..self.len()].partition_point(|&hint| is_before(hint))
    }

    /// Inserts into a block that is not full.
    pub(super) fn insert(&mut self, at: usize, entry: Entry) {
        let len = self.len();
        self.hints.copy_within(at..len, at + 1);
        self.handles.copy_within(at..len, at + 1);
        self.set(at, entry);
        self.len += 1;
        if at == usize::from(self.next) {
            self.run = (self.run + 2).min(LONGEST_RUN);
        } else {
            self.run = self.run.saturating_sub(1);
        }
        if self.run == 0 {
            self.next = small(at + 1);
        } else if at <= usize::from(self.next) {
            self.next += 1;
        }
    }

    pub(super) fn remove(&mut self, at: usize) -> Entry {
        let entry = self.entry(at);
        self.remove_run(at, 1);
        entry
    }

    /// Removes `count` entries from `at` on.
    #[inline]
    pub(super) fn remove_run(&mut self, at: usize, count: usize) {
        let len = self.len();
        self.hints.copy_within(at + count..len, at);
        self.handles.copy_within(at + count..len, at);
        self.len -= small(count);
        if at < usize::from(self.next) {
            self.next = self.next.saturating_sub(small(count)).max(small(at));
        }
    }

    /// Where to cut a full block that an entry should go into at `at`: at that place in an ascending run, so that what the
    /// run leaves behind is dense, else in the middle.
    pub(super) fn split_point(&self, at: usize) -> usize {
        if self.is_in_run() && at == usize::from(self.next) { at } else { N / 2 }
    }

    /// Moves the entries from `at` on into a new block. A run goes on where its next place is; behind a full block it may
    /// go on in both, because the new block may soon be empty again.
    pub(super) fn split_off(&mut self, at: usize) -> Self {
        let mut right = Self::new();
        let moved = self.len() - at;
        right.hints[..moved].copy_from_slice(&self.hints[at..self.len()]);
        right.handles[..moved].copy_from_slice(&self.handles[at..self.len()]);
        right.len = small(moved);
        if at == self.len() {
            right.run = self.run;
            self.doubt_run();
        } else if at < usize::from(self.next) {
            right.next = self.next - small(at);
            right.run = std::mem::take(&mut self.run);
            self.next = 0;
        }
        self.len = small(at);
        right
    }

    /// Moves the first `count` entries of `right`, the next block in order, to the end of this one.
    pub(super) fn take_front(&mut self, right: &mut Self, count: usize) {
        let (len, rest) = (self.len(), right.len() - count);
        self.hints[len..len + count].copy_from_slice(&right.hints[..count]);
        self.handles[len..len + count].copy_from_slice(&right.handles[..count]);
        right.hints.copy_within(count..count + rest, 0);
        right.handles.copy_within(count..count + rest, 0);
        self.len += small(count);
        right.len = small(rest);
        right.next = right.next.saturating_sub(small(count));
    }

    /// Moves the last `count` entries of `left`, the block before in order, to the start of this one.
    pub(super) fn take_back(&mut self, left: &mut Self, count: usize) {
        let (len, rest) = (self.len(), left.len() - count);
        self.hints.copy_within(..len, count);
        self.handles.copy_within(..len, count);
        self.hints[..count].copy_from_slice(&left.hints[rest..rest + count]);
        self.handles[..count].copy_from_slice(&left.handles[rest..rest + count]);
        self.len += small(count);
        self.next += small(count);
        left.len = small(rest);
        left.next = left.next.min(small(rest));
    }

    /// Takes note that an entry began a block behind this one, which is full. If that goes on, those entries do not ascend:
    /// then this block has to be cut after all, or each of them would get a block of its own.
    pub(super) fn doubt_run(&mut self) {
        self.run = self.run.saturating_sub(1);
    }

    /// Whether insertions have been going on as an ascending run.
    pub(super) fn is_in_run(&self) -> bool {
        self.run >= RUN
    }

    /// Appends an entry in bulk; the block then continues as an ascending run.
    pub(super) fn push(&mut self, entry: Entry) {
        let len = self.len();
        self.set(len, entry);
        self.len += 1;
        self.next = self.len;
        self.run = LONGEST_RUN;
    }
}

fn small(place: usize) -> u8 {
    u8::try_from(place).expect("blocks hold at most 255 entries")
}
