//! What a lazy index owes: tuples that it will hold, but does not hold yet.
//!
//! Some indexes are written with every change and hardly ever read: that of a tube's deadlines, that of the owners by
//! session. A task that is put, taken and finished before anybody reads such an index needs no place in it. So a new
//! tuple goes into the index's arrears first, and one that goes away while it is there costs nothing more. What stays is
//! entered in the order of its coming, the oldest first, as soon as there are more than [`MOST`], so that no read finds
//! much to do.
//!
//! Invariant: a tuple of the space is either in the index or in its arrears. Only indexes that refuse nothing can be
//! lazy: those that are not unique.

use std::collections::VecDeque;

use crate::arena::Handle;
use crate::handle_set::HandleSet;

/// Tuples that may wait.
pub(crate) const MOST: usize = if cfg!(test) { 3 } else { 4096 };
/// How many times [`MOST`] the queue may hold handles, those that have gone included, before it is swept.
const SWEEP: usize = 4;

/// Tuples that wait to be entered.
#[derive(Debug, Default)]
pub(crate) struct Arrears {
    members: HandleSet,
    /// All members in the order of their coming, and some that are none any more.
    queue: VecDeque<Handle>,
}

impl Arrears {
    pub(crate) fn is_empty(&self) -> bool {
        self.members.len() == 0
    }

    pub(crate) fn len(&self) -> u64 {
        self.members.len()
    }

    /// Bytes that the arrears take.
    pub(crate) fn memory(&self) -> u64 {
        self.members.memory() + (self.queue.capacity() * size_of::<Handle>()) as u64
    }

    /// Adds a tuple. Returns one that has to be entered now, if too many wait.
    pub(crate) fn add(&mut self, handle: Handle) -> Option<Handle> {
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

    /// Takes a tuple out that has gone. Whether it was here.
    pub(crate) fn remove(&mut self, handle: Handle) -> bool {
        self.members.remove(handle)
    }

    /// Takes the tuple out that has waited longest.
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
}
