//! Operations of a tube since the process began, and its tasks now.
//!
//! Counters live in memory only: a restart and a drop reset them, truncate does not. The queue keeps the numbers of tasks
//! by state up to date with each commit (`counted.rs`); a start counts them in the tube's index by state, in O(log n).

use crate::error::Result;
use crate::members::Members;
use crate::task::State;

named! {
    /// Operations on a task, as `queue.statistics` and callbacks name them.
    #[derive(Hash)]
    pub enum Operation {
        /// A task was finished by its owner.
        Ack = "ack",
        /// A task was set aside.
        Bury = "bury",
        /// A task's delay is over.
        Delay = "delay",
        /// A task was deleted. Callbacks see it for acks and ends of life too.
        Delete = "delete",
        /// A task was got back from aside.
        Kick = "kick",
        /// A task was put.
        Put = "put",
        /// A task was given back, by its owner or because the owner is gone.
        Release = "release",
        /// A task was taken.
        Take = "take",
        /// An owner got more time.
        Touch = "touch",
        /// A task's life ended.
        Ttl = "ttl",
        /// An owner had a task for too long.
        Ttr = "ttr",
    }
}

named! {
    /// Why a task that was taken is ready again without being finished.
    #[derive(Hash)]
    pub enum Redelivery {
        /// Its owner gave it back.
        Release = "release",
        /// Its owner's session ended, or the owner was lost otherwise.
        Disconnect = "disconnect",
        /// Its owner had it for too long.
        Ttr = "ttr",
    }
}

/// How often each operation happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    counts: [u64; Operation::ALL.len()],
    /// Releases that no owner has asked for.
    disconnects: u64,
}

impl Counters {
    /// How often `operation` happened. Acks and ends of life count as deletes only where the module does so:
    /// an end of life does, an ack does not.
    #[must_use]
    pub fn get(&self, operation: Operation) -> u64 {
        self.counts[operation as usize]
    }

    /// Tasks that are gone by ack, delete or end of life.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.get(Operation::Ack) + self.get(Operation::Delete)
    }

    /// How often a taken task became ready again for that reason.
    #[must_use]
    pub fn redelivered(&self, reason: Redelivery) -> u64 {
        match reason {
            Redelivery::Release => self.get(Operation::Release).saturating_sub(self.disconnects),
            Redelivery::Disconnect => self.disconnects,
            Redelivery::Ttr => self.get(Operation::Ttr),
        }
    }

    #[inline]
    pub(crate) fn add_disconnect(&mut self) {
        self.disconnects += 1;
    }

    #[inline]
    pub(crate) fn add(&mut self, operation: Operation) {
        self.counts[operation as usize] += 1;
    }
}

/// Numbers of tasks in a tube by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TaskCounts {
    /// Ready.
    pub ready: u64,
    /// Taken.
    pub taken: u64,
    /// Delayed.
    pub delayed: u64,
    /// Buried.
    pub buried: u64,
}

impl TaskCounts {
    /// The number of tasks in each state, as `count` finds it.
    pub(crate) fn of(count: impl Fn(State) -> Result<u64>) -> Result<Self> {
        Ok(Self {
            ready: count(State::Ready)?,
            taken: count(State::Taken)?,
            delayed: count(State::Delayed)?,
            buried: count(State::Buried)?,
        })
    }

    /// The counts by the names of the states.
    pub(crate) fn named(self) -> [(&'static str, u64); 4] {
        [("ready", self.ready), ("taken", self.taken), ("delayed", self.delayed), ("buried", self.buried)]
    }

    /// Appends the counts as a map.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        let mut map = Members::new(out);
        self.named().into_iter().for_each(|(name, count)| map.number(name, count));
    }

    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.ready + self.taken + self.delayed + self.buried
    }
}

/// Both, for one tube.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TubeStatistics {
    /// Its tasks by state.
    pub tasks: TaskCounts,
    /// The counters of operations.
    pub counters: Counters,
}

impl TubeStatistics {
    /// Appends the map that `queue.statistics(name)` returns.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut map = Members::new(out);
        let mut tasks = Members::new(map.name("tasks"));
        for (name, count) in [
            ("taken", self.tasks.taken),
            ("buried", self.tasks.buried),
            ("ready", self.tasks.ready),
            ("done", self.counters.done()),
            ("delayed", self.tasks.delayed),
            ("total", self.tasks.total()),
        ] {
            tasks.number(name, count);
        }
        let mut calls = Members::new(map.name("calls"));
        Operation::ALL
            .iter()
            .for_each(|operation| calls.number(operation.name(), self.counters.get(*operation)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lycosa_tuple::value::Value;

    #[test]
    fn done_counts_what_is_gone() {
        let mut counters = Counters::default();
        for operation in Operation::ALL {
            counters.add(operation);
        }
        assert!(Operation::ALL.iter().all(|operation| counters.get(*operation) == 1));
        assert_eq!(counters.done(), 2);
    }

    #[test]
    fn every_key_is_always_there() {
        let mut out = Vec::new();
        TubeStatistics::default().write(&mut out);
        let map = Value::decode(&out).expect("one value");
        let calls = map.get("calls").expect("calls");
        assert!(Operation::ALL.iter().all(|o| calls.get(o.name()) == Some(&Value::from(0_u64))));
        for name in ["taken", "buried", "ready", "done", "delayed", "total"] {
            assert_eq!(map.get("tasks").and_then(|tasks| tasks.get(name)), Some(&Value::from(0_u64)));
        }
    }
}
