//! The new delay and priority that a job gives its tasks.

use crate::arguments::Number;
use crate::task::{State, Task};
use crate::time::MAX_TIMEOUT_SECONDS;

/// The new delay and priority of a job's tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Schedule {
    /// µs; 0: the tasks become ready at once.
    pub(crate) delay: Option<u64>,
    pub(crate) pri: Option<u64>,
}

impl Schedule {
    pub(super) fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Whether the task is ready or delayed, and has another priority or another delay.
    pub(super) fn changes(self, task: &Task<'_>) -> bool {
        let is_delayed = match task.state() {
            Some(State::Ready) => false,
            Some(State::Delayed) => true,
            Some(State::Taken | State::Buried | State::Done) | None => return false,
        };
        self.pri.is_some_and(|pri| pri != task.pri) || self.delay.is_some_and(|delay| delay > 0 || is_delayed)
    }
}

/// The option `delay`, in µs.
pub(super) fn delay(value: &[u8]) -> Option<u64> {
    let delay = Number::parse(value).filter(|number| !number.is_negative())?.seconds();
    Some(delay.duration()).filter(|_| delay.to_double() <= MAX_TIMEOUT_SECONDS as f64)
}
