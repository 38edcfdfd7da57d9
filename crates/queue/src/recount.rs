//! Counting a tube's tasks again, one by one, while they change: the proof of the numbers that the queue keeps.
//!
//! The walk goes by ids, a portion at a time ([`crate::long_call`]). A change that commits between two portions changes the walk's
//! numbers if the walk has passed the task's id, and is found by the walk otherwise. So the result is exact at the end of the
//! last portion, and no other call waits for it. A tube has one walk at a time; the next call begins when it has ended.
//!
//! [`Queue::verify`](crate::Queue::verify) is the same for all tubes at once, for tests: it also adds bytes and waiting calls again.

mod walk;

use lycosa_tuple::mp;

use crate::counted::{Counted, KeptTasks, Place};
use crate::members::Members;
use crate::statistics::TaskCounts;

/// A walk under way.
#[derive(Debug)]
pub(crate) struct Recount {
    /// The request that has begun it.
    request: u64,
    /// The id up to which tasks are counted.
    after: Option<u64>,
    counts: KeptTasks,
}

impl Recount {
    /// Takes something into account that was committed since the last portion.
    pub(crate) fn apply(&mut self, counted: &Counted) {
        if counted.from == Place::Everywhere {
            self.counts = KeptTasks::default();
        } else if self.after.is_some_and(|after| counted.id <= after) {
            self.counts.apply(counted.from, counted.to);
        }
    }
}

/// The numbers that a walk has found, beside the numbers that the queue keeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recounted {
    /// By the walk.
    pub found: TaskCounts,
    /// By the numbers that the queue keeps.
    pub kept: TaskCounts,
    /// By the tube's index by state.
    pub indexed: TaskCounts,
}

impl Recounted {
    /// Whether all agree.
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.found == self.kept && self.found == self.indexed
    }

    /// Appends the map that `recount` returns.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let mut map = Members::new(out);
        mp::write_bool(map.name("agrees"), self.agrees());
        for (name, counts) in [("found", self.found), ("kept", self.kept), ("indexed", self.indexed)] {
            counts.write(map.name(name));
        }
    }
}
