//! Deferred index entries: tuples of a space that one of its indexes does not hold yet.
//!
//! A queue writes the index of its tasks' deadlines with every change and hardly ever reads it. Of the index of
//! states it reads the ready tasks, not the taken ones. A task that is put, taken and acknowledged before the next
//! read of such an index needs no entry in its tree. An index with a [`Deferral`](crate::Deferral) therefore keeps new
//! tuples here first. A tuple that is removed while it is here has cost no search. Beyond [`MAX_DEFERRED`] tuples
//! each new one moves the oldest one into the tree.
//!
//! An index of deadlines also defers the entries whose deadline lies *beyond* a bound, one bit each, however many they
//! are: the scan for due tasks never needs them.
//!
//! Readers outside of the store do not see any of this. A read merges the deferred entries that it may meet with those in
//! the tree, and lets the next change of the index flush the few ([`DeferredEntries::is_wanted`]). Entries beyond the
//! bound are too many for that in one turn: [`Store::read`](crate::Store::read) and cursors flush them in portions.
//! After that the index keeps them in its tree like all others.
//!
//! Each mechanism is here for what it saves. Instructions for each cycle of put, take and ack (`lycosa bench count`), with
//! one of them off at a time:
//!
//! | off | fifo | fifottl | utube |
//! |---|--:|--:|--:|
//! | nothing | 13 277 | 15 314 | 25 421 |
//! | the FIFO cache of ready tasks | 14 984 | 17 212 | 26 583 |
//! | that and the deferral of taken tasks | 16 138 | 18 650 | 27 760 |
//! | the deferral of deadlines | 13 212 | 29 788 | 25 420 |
//!
//! The deferral of all entries of an index (owners by session) saved nothing and was removed.
//!
//! Invariants:
//! - a tuple of the space is in exactly one of: the tree, the few deferred ones, the FIFO cache, those beyond the bound;
//! - only an index that can refuse no tuple defers entries: one that is not unique, or whose key holds the primary key.

use std::cell::Cell;
use std::collections::VecDeque;

use lycosa_tuple::mp;
use lycosa_tuple::tuple::TupleRef;

use crate::arena::Handle;
use crate::fifo_cache::FifoCache;
use crate::handle_set::HandleSet;

/// Tuples that are deferred at most, but for those beyond the bound and those in the FIFO cache.
pub(crate) const MAX_DEFERRED: usize = if cfg!(test) { 3 } else { 1024 };
/// How many times [`MAX_DEFERRED`] the queue may hold handles, those of removed tuples included, before it is swept.
const SWEEP: usize = 4;

/// Which tuples are deferred.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All of them.
    #[default]
    All,
    /// Those with this value, a short string, in the first part of the index's key.
    Part {
        /// Number of the part's field, from 0.
        field: u32,
        /// The value as MessagePack.
        value: Box<[u8]>,
    },
}

impl Scope {
    #[inline]
    fn includes(&self, tuple: &[u8]) -> bool {
        match self {
            Self::All => true,
            // The value is a whole one, so that the field is it if it begins with it.
            Self::Part { field, value } => {
                let rest = match (field, mp::behind_number(tuple)) {
                    (1, Some(rest)) => Some(rest),
                    _ => TupleRef::trusted(tuple).at(*field).map(|reader| reader.rest()),
                };
                // The value has a byte or two: a loop is shorter than the call that compares slices.
                let begins =
                    |rest: &[u8]| rest.len() >= value.len() && value.iter().zip(rest).all(|(a, b)| a == b);
                rest.is_some_and(begins)
            }
        }
    }
}

/// How many of `number` tuples whose key begins with `value`, a short string, have one that begins with the values of
/// `key`; `None` if that is not known.
#[inline]
fn count_of(key: &[u8], value: &[u8], number: u64) -> Option<u64> {
    // Two short strings in the shortest form are equal only if all their bytes are.
    let is_short = key.first().is_some_and(|first| (0xa0..=0xbf).contains(first));
    match number {
        0 => Some(0),
        _ if key == value => Some(number),
        _ if is_short && !key.starts_with(value) => Some(0),
        _ => None,
    }
}

/// The deferred entries of one index.
#[derive(Debug, Default)]
pub(crate) struct DeferredEntries {
    scope: Scope,
    members: HandleSet,
    /// All members in the order of their arrival, and handles of some that were removed.
    queue: VecDeque<Handle>,
    beyond: Option<Beyond>,
    /// The newest tuples of the part whose first one is read.
    pub(crate) cache: Option<FifoCache>,
    /// A read has merged deferred entries. There may be more reads, so the next change of the index flushes the few.
    is_wanted: Cell<bool>,
}

/// Tuples that are deferred however many they are.
#[derive(Debug)]
struct Beyond {
    /// Number of the field that tells them, from 0.
    field: u32,
    /// Their least value in that field.
    bound: u64,
    members: HandleSet,
    /// They are being flushed: no more tuples are deferred here.
    is_closing: bool,
}

impl Beyond {
    #[inline]
    fn includes(&self, tuple: &[u8]) -> bool {
        let value = TupleRef::trusted(tuple).at(self.field).and_then(|mut reader| reader.uint().ok());
        value.is_some_and(|value| value >= self.bound) && !self.is_closing
    }
}

impl DeferredEntries {
    /// None yet, and only tuples of this scope ever.
    pub(crate) fn new(scope: Scope, cache: Option<FifoCache>) -> Self {
        Self { scope, cache, ..Self::default() }
    }

    /// Any tuple is deferred; those with at least `bound` in this field however many they are.
    pub(crate) fn with_beyond(field: u32, bound: u64) -> Self {
        let beyond = Beyond { field, bound, members: HandleSet::default(), is_closing: false };
        Self { beyond: Some(beyond), ..Self::default() }
    }

    /// None, of an index like the one that has these. An index that was read whole keeps all entries in its tree.
    pub(crate) fn emptied(&self) -> Self {
        match &self.beyond {
            Some(beyond) if !beyond.is_closing => Self::with_beyond(beyond.field, beyond.bound),
            _ => Self::new(self.scope.clone(), self.cache.as_ref().map(FifoCache::emptied)),
        }
    }

    /// Defers a new tuple. Returns one that has to go into the tree now: this one if it is out of scope, the oldest one if
    /// there are too many.
    #[inline]
    pub(crate) fn defer(&mut self, handle: Handle, tuple: &[u8]) -> Option<Handle> {
        if self.defer_beyond(handle, tuple) {
            return None;
        }
        if self.scope.includes(tuple) { self.add(handle) } else { Some(handle) }
    }

    /// Defers a tuple if it lies beyond the bound. Whether it does.
    #[inline]
    pub(crate) fn defer_beyond(&mut self, handle: Handle, tuple: &[u8]) -> bool {
        let beyond = self.beyond.as_mut().filter(|beyond| beyond.includes(tuple));
        beyond.map(|beyond| beyond.members.insert(handle)).is_some()
    }

    /// Takes up to `count` tuples beyond the bound out. From now on no tuple is deferred for that.
    pub(crate) fn pop_beyond(&mut self, count: u64) -> Vec<Handle> {
        let Some(beyond) = &mut self.beyond else { return Vec::new() };
        beyond.is_closing = true;
        let popped = beyond.members.pop(count);
        if beyond.members.len() == 0 {
            self.beyond = None;
        }
        popped
    }

    /// Whether a tuple beyond the bound is deferred.
    pub(crate) fn has_beyond(&self) -> bool {
        self.beyond.as_ref().is_some_and(|beyond| beyond.members.len() > 0)
    }

    /// Whether a tuple is deferred for lying beyond the bound.
    #[inline]
    pub(crate) fn is_beyond(&self, handle: Handle) -> bool {
        self.beyond.as_ref().is_some_and(|beyond| beyond.members.contains(handle))
    }

    /// Whether a tuple that has changed lay beyond the bound and still does. One that does not any more is taken out.
    #[inline]
    pub(crate) fn keep_beyond(&mut self, handle: Handle, tuple: &[u8]) -> bool {
        let Some(beyond) = self.beyond.as_mut().filter(|beyond| beyond.members.contains(handle)) else {
            return false;
        };
        beyond.includes(tuple) || {
            beyond.members.remove(handle);
            false
        }
    }

    /// How many tuples whose key begins with these values are deferred; `None` if that takes a look at each.
    #[inline]
    pub(crate) fn count(&self, key: &[u8]) -> Option<u64> {
        if self.has_beyond() {
            return None;
        }
        let cached = match &self.cache {
            Some(cache) => count_of(key, cache.part(), cache.len()),
            None => Some(0),
        };
        let deferred = match &self.scope {
            Scope::All if self.members.len() > 0 => None,
            Scope::All => Some(0),
            Scope::Part { value, .. } => count_of(key, value, self.members.len()),
        };
        Some(cached? + deferred?)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> u64 {
        let beyond = self.beyond.as_ref().map_or(0, |beyond| beyond.members.len());
        self.members.len() + beyond + self.cache.as_ref().map_or(0, FifoCache::len)
    }

    /// All deferred tuples, in any order.
    pub(crate) fn handles(&self) -> Vec<Handle> {
        let mut handles: Vec<Handle> =
            self.queue.iter().copied().filter(|&handle| self.members.contains(handle)).collect();
        // A handle is in the queue twice if it was removed and given to another tuple.
        handles.sort_unstable_by_key(|handle| handle.number());
        handles.dedup();
        handles.extend(self.cache.iter().flat_map(FifoCache::handles));
        handles.extend(self.beyond.iter().flat_map(|beyond| beyond.members.iter()));
        handles
    }

    /// The deferred tuples that are not cached, in any order and some twice; `None` if some are beyond the bound, of which
    /// there may be many.
    pub(crate) fn few(&self) -> Option<impl Iterator<Item = Handle>> {
        let queued = self.queue.iter().copied().filter(|&handle| self.members.contains(handle));
        (!self.has_beyond()).then_some(queued)
    }

    /// A read has merged deferred entries.
    pub(crate) fn want(&self) {
        self.is_wanted.set(true);
    }

    /// Whether a read has merged deferred entries since they were flushed last.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_wanted.get()
    }

    /// The few are flushed.
    pub(crate) fn satisfy(&mut self) {
        self.is_wanted.set(false);
    }

    /// Bytes that the deferred entries take.
    pub(crate) fn memory(&self) -> u64 {
        let beyond = self.beyond.as_ref().map_or(0, |beyond| beyond.members.memory());
        let cache = self.cache.as_ref().map_or(0, FifoCache::memory);
        self.members.memory() + beyond + cache + (self.queue.capacity() * size_of::<Handle>()) as u64
    }

    /// Adds a tuple. Returns the oldest one, which has to go into the tree, if there are too many.
    fn add(&mut self, handle: Handle) -> Option<Handle> {
        self.members.insert(handle);
        self.queue.push_back(handle);
        if self.members.len() > MAX_DEFERRED as u64 {
            return self.pop();
        }
        if self.queue.len() > SWEEP * MAX_DEFERRED {
            self.sweep();
        }
        None
    }

    /// Takes a removed tuple out, unless it is in the cache behind others. Whether it was deferred.
    #[inline]
    pub(crate) fn remove(&mut self, handle: Handle) -> bool {
        self.cache.as_mut().is_some_and(|cache| cache.remove_first(handle))
            || self.members.remove(handle)
            || self.beyond.as_mut().is_some_and(|beyond| beyond.members.remove(handle))
    }

    /// Takes the oldest one of the few out.
    pub(crate) fn pop(&mut self) -> Option<Handle> {
        while let Some(handle) = self.queue.pop_front() {
            if self.members.remove(handle) {
                return Some(handle);
            }
        }
        None
    }

    /// Forgets handles in the queue that are no members.
    fn sweep(&mut self) {
        self.queue.retain(|&handle| self.members.remove(handle));
        for &handle in &self.queue {
            self.members.insert(handle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Arena;

    #[test]
    fn what_comes_and_goes_is_never_entered() {
        let mut arena = Arena::new();
        let mut deferred = DeferredEntries::default();
        let stays = arena.insert(b"stays").unwrap();
        assert_eq!(deferred.add(stays), None);
        for _ in 0..10 * SWEEP * MAX_DEFERRED {
            let passing = arena.insert(b"passes").unwrap();
            assert_eq!(deferred.add(passing), None);
            assert!(deferred.remove(passing) && !deferred.remove(passing));
            arena.remove(passing);
            assert!(deferred.queue.len() <= SWEEP * MAX_DEFERRED);
        }
        assert_eq!((deferred.pop(), deferred.pop()), (Some(stays), None));
        assert!(deferred.is_empty());
    }

    #[test]
    fn what_a_key_asks_for_may_not_be_owed() {
        let mut arena = Arena::new();
        let taken = arena.insert(&[0x92, 7, 0xa1, b't']).unwrap();
        let mut all = DeferredEntries::default();
        let mut some = DeferredEntries::new(Scope::Part { field: 1, value: [0xa1, b't'].into() }, None);
        for tuple in [&[0x92, 7, 0xa1, b'r'][..], &[0x92, 7, 0xd9, 1, b't'], &[0x91, 7]] {
            let handle = arena.insert(tuple).unwrap();
            assert_eq!(some.defer(handle, tuple), Some(handle), "{tuple:02x?}");
            assert_eq!(all.defer(handle, tuple), None);
            assert!(all.remove(handle) && !some.remove(handle));
        }
        assert_eq!((all.count(&[]), some.count(&[])), (Some(0), Some(0)));
        assert_eq!(all.defer(taken, arena.get(taken)), None);
        assert_eq!(some.defer(taken, arena.get(taken)), None);
        assert_eq!(some.emptied().scope, some.scope);
        for (key, counted) in [
            (&[0xa1, b'r'][..], Some(0)),
            (&[0xa1, b'r', 7], Some(0)),
            (&[0xa2, b't', b't'], Some(0)),
            (&[0xa1, b't'], Some(1)),
            (&[0xa1, b't', 7], None),
            (&[0xd9, 1, b't'], None),
            (&[0xd9, 1, b'r'], None),
            (&[], None),
        ] {
            assert_eq!((some.count(key), all.count(key)), (counted, None), "{key:02x?}");
        }
    }

    #[test]
    fn the_oldest_is_entered_once_too_many_wait() {
        let mut arena = Arena::new();
        let mut deferred = DeferredEntries::default();
        let handles: Vec<_> = (0..MAX_DEFERRED + 3).map(|_| arena.insert(b"waits").unwrap()).collect();
        let entered: Vec<_> = handles.iter().filter_map(|&handle| deferred.add(handle)).collect();
        assert_eq!(entered, handles[..3]);
        assert!(deferred.remove(handles[3]) && !deferred.remove(handles[0]));
        assert_eq!(deferred.pop(), Some(handles[4]));
        assert_eq!(deferred.len(), MAX_DEFERRED as u64 - 2);
    }

    #[test]
    fn what_lies_beyond_waits_until_somebody_reads_everything() {
        let mut arena = Arena::new();
        let mut deferred = DeferredEntries::with_beyond(1, 100);
        let beyond: Vec<_> = (0..5 * MAX_DEFERRED)
            .map(|number| {
                let handle = arena.insert(&[0x92, 1, 0xcc, 100 + (number % 100) as u8]).unwrap();
                assert_eq!(deferred.defer(handle, arena.get(handle)), None);
                handle
            })
            .collect();
        let near = arena.insert(&[0x92, 1, 99]).unwrap();
        assert_eq!(deferred.defer(near, arena.get(near)), None);
        assert_eq!((deferred.len(), deferred.count(&[])), (beyond.len() as u64 + 1, None));
        assert!(deferred.remove(beyond[0]) && !deferred.remove(beyond[0]));
        let odd = arena.insert(&[0x92, 1, 0xa1, b'x']).unwrap();
        assert!(!deferred.defer_beyond(odd, arena.get(odd)), "what is no number is not beyond");
        assert_eq!((deferred.pop(), deferred.pop()), (Some(near), None));
        let mut found = deferred.pop_beyond(u64::MAX);
        found.sort_by_key(|handle| handle.number());
        let mut expected = beyond[1..].to_vec();
        expected.sort_by_key(|handle| handle.number());
        assert_eq!(found, expected);
        assert!(deferred.is_empty() && !deferred.defer_beyond(beyond[1], arena.get(beyond[1])));
    }
}
