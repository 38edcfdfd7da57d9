//! What the queue hands to its caller: answers of calls, changes of observed tasks, lines for the log.
//!
//! [`Queue::call`](crate::Queue::call) returns an [`Answer`]. Late answers, events and lines wait in queues of their own until the
//! caller polls them.

use crate::error::Result;
use crate::statistics::Operation;

/// The answer of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Values were appended.
    Done {
        /// Number of values.
        count: u32,
    },
    /// Nothing yet: [`Queue::poll_woken`](crate::Queue::poll_woken) will have the answer.
    Parked,
}

impl Answer {
    pub(crate) const fn one() -> Self {
        Self::Done { count: 1 }
    }

    pub(crate) const fn none() -> Self {
        Self::Done { count: 0 }
    }
}

/// The answer of a call that was parked.
#[derive(Debug, Clone, PartialEq)]
pub struct Woken {
    /// The caller's connection.
    pub connection: u64,
    /// The caller's request.
    pub request: u64,
    /// Number of values and the values back to back.
    pub result: Result<(u32, Vec<u8>)>,
}

/// A change of a task of a tube that is observed (see [`Queue::observe`](crate::Queue::observe)), after its commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskEvent {
    /// Name of the tube.
    pub tube: String,
    /// What happened.
    pub operation: Operation,
    /// The stored tuple after it; of a task that is gone, the last one with the status `-`.
    pub tuple: Vec<u8>,
}

/// How grave a line of the log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Something went wrong.
    Error,
    /// Something that an operator should know.
    Warning,
    /// Ordinary.
    Info,
}

/// A line for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// How grave it is.
    pub level: LogLevel,
    /// The text of the line.
    pub text: String,
}
