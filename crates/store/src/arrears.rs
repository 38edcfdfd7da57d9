//! What a lazy index owes: tuples that it will hold, but does not hold yet.
//!
//! Some indexes are written with every change and hardly ever read: that of a tube's deadlines, that of the owners by
//! session. Of others only a part is read: of the states of tasks, those that are ready, but not those that are taken. A
//! task that is put, taken and finished before anybody reads such an index needs no place in it. So a new tuple goes into
//! the index's arrears first, and one that goes away while it is there costs nothing more. What stays is entered in the
//! order of its coming, the oldest first, as soon as there are more than [`MOST`], so that no read finds much to do. The part
//! that is read, but only its first tuple, has a [`Line`].
//!
//! Of an index of moments, those that lie beyond all that will come are not even looked for by who looks for what is due.
//! They wait however many they are, a bit each, until somebody wants to read the whole index. Afterwards they are entered
//! like the others: who has read once may read again.
//!
//! Invariants:
//! - a tuple of the space is either in the index, among the few that wait, in the line, or among those beyond;
//! - what is in the arrears is among [`Late`]; only indexes that can refuse no tuple are lazy: those that are not unique,
//!   and those whose key holds that of the primary index.

use std::collections::VecDeque;

use lycosa_tuple::field::FieldSet;
use lycosa_tuple::mp::Reader;
use lycosa_tuple::tuple::TupleRef;

use crate::arena::Handle;
use crate::handle_set::HandleSet;
use crate::line::Line;

/// Tuples that may wait.
pub(crate) const MOST: usize = if cfg!(test) { 3 } else { 4096 };
/// How many times [`MOST`] the queue may hold handles, those that have gone included, before it is swept.
const SWEEP: usize = 4;

/// Which tuples of a lazy index wait to be entered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Late {
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

impl Late {
    /// Whether a new tuple may wait.
    #[inline]
    fn includes(&self, tuple: &[u8]) -> bool {
        match self {
            Self::All => true,
            Self::Part { field, value } => TupleRef::trusted(tuple).field(*field) == Some(value),
        }
    }
}

/// How many of `number` tuples whose key begins with `value`, a short string, have one that begins with the values of `key`;
/// `None` if that is not known.
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

/// Tuples that wait to be entered.
#[derive(Debug, Default)]
pub(crate) struct Arrears {
    late: Late,
    members: HandleSet,
    /// All members in the order of their coming, and some that are none any more.
    queue: VecDeque<Handle>,
    /// Those that nobody looks for.
    beyond: Option<Beyond>,
    /// Those of the part of which the first is looked for.
    pub(crate) line: Option<Line>,
}

/// Tuples that wait however many they are.
#[derive(Debug)]
struct Beyond {
    /// Number of the field that tells them, from 0.
    field: u32,
    /// The least value of those that wait.
    bound: u64,
    members: HandleSet,
    /// Somebody reads the index: no more tuples wait here.
    is_closing: bool,
}

impl Beyond {
    #[inline]
    fn includes(&self, tuple: &[u8]) -> bool {
        let value =
            TupleRef::trusted(tuple).field(self.field).and_then(|field| Reader::new(field).uint().ok());
        value.is_some_and(|value| value >= self.bound) && !self.is_closing
    }
}

impl Arrears {
    /// Nothing is owed yet, and only these tuples ever are.
    pub(crate) fn new(late: Late, line: Option<Line>) -> Self {
        Self { late, line, ..Self::default() }
    }

    /// Any tuple may wait; those with at least `bound` in this field do so however many they are.
    pub(crate) fn with_beyond(field: u32, bound: u64) -> Self {
        let beyond = Beyond { field, bound, members: HandleSet::default(), is_closing: false };
        Self { beyond: Some(beyond), ..Self::default() }
    }

    /// Nothing owed by an index like the one that owes this.
    pub(crate) fn emptied(&self) -> Self {
        match &self.beyond {
            Some(beyond) if !beyond.is_closing => Self::with_beyond(beyond.field, beyond.bound),
            _ => Self::new(self.late.clone(), self.line.as_ref().map(Line::emptied)),
        }
    }

    /// Takes a new tuple. Returns one that has to be entered now: this one if it may not wait, another if too many do.
    #[inline]
    pub(crate) fn take(&mut self, handle: Handle, tuple: &[u8]) -> Option<Handle> {
        if self.leave(handle, tuple) {
            return None;
        }
        if self.late.includes(tuple) { self.add(handle) } else { Some(handle) }
    }

    /// Takes a tuple if it is one of those that wait however many they are. Whether it is.
    #[inline]
    pub(crate) fn leave(&mut self, handle: Handle, tuple: &[u8]) -> bool {
        let beyond = self.beyond.as_mut().filter(|beyond| beyond.includes(tuple));
        beyond.map(|beyond| beyond.members.insert(handle)).is_some()
    }

    /// The tuples that nobody looked for, now that somebody does.
    pub(crate) fn take_beyond(&mut self) -> Option<HandleSet> {
        self.beyond.take().map(|beyond| beyond.members)
    }

    /// Takes up to `count` of those tuples out. From now on no more are left there.
    pub(crate) fn pop_beyond(&mut self, count: u64) -> Vec<Handle> {
        let Some(beyond) = &mut self.beyond else { return Vec::new() };
        beyond.is_closing = true;
        let popped = beyond.members.pop(count);
        if beyond.members.len() == 0 {
            self.beyond = None;
        }
        popped
    }

    /// Whether a change of these fields may change where a tuple waits.
    #[inline]
    pub(crate) fn depends_on(&self, fields: FieldSet) -> bool {
        let late = match self.late {
            Late::All => None,
            Late::Part { field, .. } => Some(field),
        };
        let beyond = self.beyond.as_ref().map(|beyond| beyond.field);
        !fields.is_disjoint(late.into_iter().chain(beyond).collect())
    }

    /// Whether nothing waits but what nobody looks for.
    #[inline]
    pub(crate) fn is_near_empty(&self) -> bool {
        self.members.len() == 0
    }

    /// How many of the tuples whose key begins with these values wait; `None` if that is not known.
    #[inline]
    pub(crate) fn count(&self, key: &[u8]) -> Option<u64> {
        if self.beyond.as_ref().is_some_and(|beyond| beyond.members.len() > 0) {
            return None;
        }
        let in_line = match &self.line {
            Some(line) => count_of(key, line.part(), line.len()),
            None => Some(0),
        };
        let late = match &self.late {
            Late::All if self.members.len() > 0 => None,
            Late::All => Some(0),
            Late::Part { value, .. } => count_of(key, value, self.members.len()),
        };
        Some(in_line? + late?)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> u64 {
        let beyond = self.beyond.as_ref().map_or(0, |beyond| beyond.members.len());
        self.members.len() + beyond + self.line.as_ref().map_or(0, Line::len)
    }

    /// Bytes that the arrears take.
    pub(crate) fn memory(&self) -> u64 {
        let beyond = self.beyond.as_ref().map_or(0, |beyond| beyond.members.memory());
        let line = self.line.as_ref().map_or(0, Line::memory);
        self.members.memory() + beyond + line + (self.queue.capacity() * size_of::<Handle>()) as u64
    }

    /// Adds a tuple. Returns one that has to be entered now, if too many wait.
    fn add(&mut self, handle: Handle) -> Option<Handle> {
        self.members.insert(handle);
        self.queue.push_back(handle);
        if self.members.len() > MOST as u64 {
            return self.pop();
        }
        if self.queue.len() > SWEEP * MOST {
            self.sweep();
        }
        None
    }

    /// Takes a tuple out that has gone, unless it stands in line behind others. Whether it was here.
    #[inline]
    pub(crate) fn remove(&mut self, handle: Handle) -> bool {
        self.line.as_mut().is_some_and(|line| line.remove_first(handle))
            || self.members.remove(handle)
            || self.beyond.as_mut().is_some_and(|beyond| beyond.members.remove(handle))
    }

    /// Takes the tuple out that has waited longest, of the few.
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
        let mut arrears = Arrears::default();
        let stays = arena.insert(b"stays").unwrap();
        assert_eq!(arrears.add(stays), None);
        for _ in 0..10 * SWEEP * MOST {
            let passing = arena.insert(b"passes").unwrap();
            assert_eq!(arrears.add(passing), None);
            assert!(arrears.remove(passing) && !arrears.remove(passing));
            arena.remove(passing);
            assert!(arrears.queue.len() <= SWEEP * MOST);
        }
        assert_eq!((arrears.pop(), arrears.pop()), (Some(stays), None));
        assert!(arrears.is_empty());
    }

    #[test]
    fn what_a_key_asks_for_may_not_be_owed() {
        let mut arena = Arena::new();
        let taken = arena.insert(&[0x92, 7, 0xa1, b't']).unwrap();
        let mut all = Arrears::default();
        let mut some = Arrears::new(Late::Part { field: 1, value: [0xa1, b't'].into() }, None);
        for tuple in [&[0x92, 7, 0xa1, b'r'][..], &[0x92, 7, 0xd9, 1, b't'], &[0x91, 7]] {
            let handle = arena.insert(tuple).unwrap();
            assert_eq!(some.take(handle, tuple), Some(handle), "{tuple:02x?}");
            assert_eq!(all.take(handle, tuple), None);
            assert!(all.remove(handle) && !some.remove(handle));
        }
        assert_eq!((all.count(&[]), some.count(&[])), (Some(0), Some(0)));
        assert_eq!(all.take(taken, arena.get(taken)), None);
        assert_eq!(some.take(taken, arena.get(taken)), None);
        assert_eq!(some.emptied().late, some.late);
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
        let mut arrears = Arrears::default();
        let handles: Vec<_> = (0..MOST + 3).map(|_| arena.insert(b"waits").unwrap()).collect();
        let entered: Vec<_> = handles.iter().filter_map(|&handle| arrears.add(handle)).collect();
        assert_eq!(entered, handles[..3]);
        assert!(arrears.remove(handles[3]) && !arrears.remove(handles[0]));
        assert_eq!(arrears.pop(), Some(handles[4]));
        assert_eq!(arrears.len(), MOST as u64 - 2);
    }

    #[test]
    fn what_lies_beyond_waits_until_somebody_reads_everything() {
        let mut arena = Arena::new();
        let mut arrears = Arrears::with_beyond(1, 100);
        let beyond: Vec<_> = (0..5 * MOST)
            .map(|number| {
                let handle = arena.insert(&[0x92, 1, 0xcc, 100 + (number % 100) as u8]).unwrap();
                assert_eq!(arrears.take(handle, arena.get(handle)), None);
                handle
            })
            .collect();
        let near = arena.insert(&[0x92, 1, 99]).unwrap();
        assert!(arrears.is_near_empty());
        assert_eq!(arrears.take(near, arena.get(near)), None);
        assert!(!arrears.is_near_empty());
        assert_eq!((arrears.len(), arrears.count(&[])), (beyond.len() as u64 + 1, None));
        assert!(arrears.remove(beyond[0]) && !arrears.remove(beyond[0]));
        let odd = arena.insert(&[0x92, 1, 0xa1, b'x']).unwrap();
        assert!(!arrears.leave(odd, arena.get(odd)), "what is no number is not beyond");
        assert_eq!((arrears.pop(), arrears.pop()), (Some(near), None));
        let mut found: Vec<_> = arrears.take_beyond().unwrap().iter().collect();
        found.sort_by_key(|handle| handle.number());
        let mut expected = beyond[1..].to_vec();
        expected.sort_by_key(|handle| handle.number());
        assert_eq!(found, expected);
        assert!(arrears.is_empty() && !arrears.leave(beyond[1], arena.get(beyond[1])));
    }
}
