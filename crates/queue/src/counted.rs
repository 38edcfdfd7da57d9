//! Counts of a transaction: its operations, and the tasks that it moves from one state to another.
//!
//! [`TubeTurn::account`](crate::turn::TubeTurn::account) makes one [`Counted`] of each change of a task. It waits in
//! [`Pending`](crate::transaction::Pending) and reaches the tube's [`Counters`] and [`KeptTasks`] at the commit, so a rollback
//! counts nothing. The queue thus knows the number of tasks in each state at O(1) per operation, and reading it costs nothing.
//!
//! Invariant: between two transactions [`KeptTasks`] has the numbers that [`KeptTasks::read`] finds in the tube's index by
//! state. [`crate::recount`] proves it task by task.
//!
//! [`Counters`]: crate::statistics::Counters

use crate::driver::Tasks;
use crate::error::Result;
use crate::statistics::{Operation, TaskCounts};
use crate::task::State;
use crate::tube::handle::TubeIndex;

/// Where a task is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Ready,
    Taken,
    Delayed,
    Buried,
    /// No such task, or one that counts as nothing: a user has written another status, or what the layout cannot read.
    Nowhere,
    /// All tasks of the tube, which a truncation removes at once.
    Everywhere,
}

impl Place {
    /// Number of places. Numbers of the last two mean nothing.
    const COUNT: usize = 6;

    /// The place of a task in that state, or with another status.
    #[inline]
    pub(crate) fn of(state: Option<State>) -> Self {
        match state {
            Some(State::Ready) => Self::Ready,
            Some(State::Taken) => Self::Taken,
            Some(State::Delayed) => Self::Delayed,
            Some(State::Buried) => Self::Buried,
            Some(State::Done) | None => Self::Nowhere,
        }
    }
}

/// An event that is counted beside the move of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// Nothing.
    Silent,
    /// An operation.
    Operation(Operation),
    /// The end of its owner's session has made a task ready. The release itself is counted as an operation.
    Disconnected,
}

/// One thing that is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counted {
    pub(crate) tube: TubeIndex,
    pub(crate) event: Event,
    pub(crate) from: Place,
    pub(crate) to: Place,
    pub(crate) id: u64,
    /// When the task was put, of a take in a tube that knows it, or when it was taken, of an ack: µs since the epoch.
    /// Otherwise 0.
    pub(crate) since: u64,
}

impl Counted {
    /// The tube was truncated.
    pub(crate) fn truncation(tube: TubeIndex) -> Self {
        Self { tube, event: Event::Silent, from: Place::Everywhere, to: Place::Nowhere, id: 0, since: 0 }
    }

    /// Something happened that moves no task.
    pub(crate) fn event(tube: TubeIndex, event: Event) -> Self {
        Self { tube, event, from: Place::Nowhere, to: Place::Nowhere, id: 0, since: 0 }
    }
}

/// Numbers of a tube's tasks by [`Place`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct KeptTasks([u64; Place::COUNT]);

impl KeptTasks {
    /// Counts in the tube's index by state, in O(log n).
    pub(crate) fn read(tasks: Tasks<'_>) -> Result<Self> {
        let TaskCounts { ready, taken, delayed, buried } = TaskCounts::of(|state| tasks.count(state))?;
        Ok(Self([ready, taken, delayed, buried, 0, 0]))
    }

    /// Counts a task that a walk over all tasks has found.
    pub(crate) fn add(&mut self, place: Place) {
        self.0[place as usize] += 1;
    }

    /// Takes the move of one task into account.
    #[inline]
    pub(crate) fn apply(&mut self, from: Place, to: Place) {
        let [from, to] = [from as usize, to as usize];
        self.0[from] = self.0[from].wrapping_sub(1);
        self.0[to] = self.0[to].wrapping_add(1);
    }

    /// Adds the numbers of another tube.
    pub(crate) fn add_all(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own = own.wrapping_add(other));
    }

    /// Subtracts the numbers of a tube that is counted in these.
    pub(crate) fn subtract(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own = own.wrapping_sub(other));
    }

    /// The numbers by state.
    pub(crate) fn shown(&self) -> TaskCounts {
        let [ready, taken, delayed, buried, ..] = self.0;
        TaskCounts { ready, taken, delayed, buried }
    }
}
