//! A task as a client sees it.

use std::fmt;
use std::time::Duration;

use lycosa_tuple::mp::Reader;

use crate::error::{Error, Result};
use crate::info::TaskInfo;
use crate::payload::Payload;
use crate::tube::Tube;

/// A task as it was when the server sent it.
#[derive(Clone)]
pub struct Task {
    /// Its number in the tube.
    pub id: u64,
    /// Its state after the call that returned it.
    pub state: TaskState,
    /// What it carries.
    pub data: Payload,
    /// What else the server says of it, if it was asked: [`Tube::take_extended`], [`Tube::peek_extended`].
    pub info: Option<TaskInfo>,
    tube: Tube,
}

/// What a task is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TaskState {
    /// Waiting to be taken: `r`.
    Ready,
    /// Taken: `t`.
    Taken,
    /// Waiting for its delay to be over: `~`.
    Delayed,
    /// Put aside: `!`.
    Buried,
    /// Done or deleted: `-`.
    Done,
    /// A state that only a custom tube type knows: its first character.
    Other(char),
}

impl TaskState {
    fn parse(state: &str) -> Option<Self> {
        Some(match state.chars().next()? {
            'r' => Self::Ready,
            't' => Self::Taken,
            '~' => Self::Delayed,
            '!' => Self::Buried,
            '-' => Self::Done,
            other => Self::Other(other),
        })
    }
}

/// The word for it.
impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => f.write_str("ready"),
            Self::Taken => f.write_str("taken"),
            Self::Delayed => f.write_str("delayed"),
            Self::Buried => f.write_str("buried"),
            Self::Done => f.write_str("done"),
            Self::Other(state) => write!(f, "{state}"),
        }
    }
}

impl Task {
    /// Reads `[id, state, data]` or `[id, state, data, info]`; what follows these is passed over.
    pub(crate) fn decode(tube: &Tube, encoded: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(encoded);
        let count = reader.array()?;
        if count < 3 {
            return Err(Error::protocol(format!("a task of {count} fields")));
        }
        let id = reader.uint()?;
        let state = std::str::from_utf8(reader.str()?).ok().and_then(TaskState::parse);
        let state = state.ok_or_else(|| Error::protocol("a task without a state"))?;
        let data = Payload::trusted(reader.raw()?);
        let info = if count > 3 { TaskInfo::decode(reader.raw()?)? } else { None };
        Ok(Self { id, state, data, info, tube: tube.clone() })
    }

    /// The tube that it is in.
    pub fn tube(&self) -> &Tube {
        &self.tube
    }

    /// Says that it is done, which removes it.
    ///
    /// # Errors
    /// This session has not taken it, or not any more ([`Error::is_not_taken`]); see [`Error`].
    pub async fn ack(&self) -> Result<()> {
        self.tube.ack(self.id).await.map(drop)
    }

    /// Gives it back for others to take, at once or after `delay` (tubes with a ttl only).
    ///
    /// # Errors
    /// This session has not taken it, or not any more ([`Error::is_not_taken`]); see [`Error`].
    pub async fn release(&self, delay: Option<Duration>) -> Result<()> {
        self.tube.release(self.id, delay).await.map(drop)
    }

    /// Gives the task back untried: the take does not count as an attempt.
    ///
    /// # Errors
    /// As [`release`](Self::release).
    pub async fn release_unattempted(&self) -> Result<()> {
        self.tube.release_unattempted(self.id).await.map(drop)
    }

    /// Puts it aside until a kick.
    ///
    /// # Errors
    /// It is gone; see [`Error`].
    pub async fn bury(&self) -> Result<()> {
        self.tube.bury(self.id).await.map(drop)
    }

    /// As [`release`](Self::release), with the reason for it, which the server keeps with the task.
    ///
    /// # Errors
    /// As [`release`](Self::release).
    pub async fn release_because(&self, delay: Option<Duration>, reason: &str) -> Result<()> {
        self.tube.release_because(self.id, delay, reason).await.map(drop)
    }

    /// As [`bury`](Self::bury), with the reason for it, which the server keeps with the task.
    ///
    /// # Errors
    /// As [`bury`](Self::bury).
    pub async fn bury_because(&self, reason: &str) -> Result<()> {
        self.tube.bury_because(self.id, reason).await.map(drop)
    }

    /// Makes its time to run and its lifetime longer by `increment` (tubes with a ttl only).
    ///
    /// # Errors
    /// This session has not taken it, or not any more ([`Error::is_not_taken`]); see [`Error`].
    pub async fn touch(&self, increment: Duration) -> Result<()> {
        self.tube.touch(self.id, increment).await.map(drop)
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task")
            .field("tube", &self.tube.name())
            .field("id", &self.id)
            .field("state", &self.state)
            .field("data", &self.data)
            .finish()
    }
}
