//! Types of tubes.
//!
//! A driver is policy: how tasks lie in their space, what put makes of its options, which task is next, and what an
//! event makes of a task. It never changes data itself: the queue turns a [`Change`] into one statement, keeps the
//! owners, counts, and wakes waiting calls. So a driver is small, and every rule about transactions is in one place.
//!
//! | type | order of takes | deadlines | limits |
//! |---|---|---|---|
//! | [`fifo`] | id | – | – |
//! | [`fifottl`] | priority, id | ttl, ttr, delay | – |
//! | [`limfifottl`] | priority, id | ttl, ttr, delay | tasks in the tube |
//! | [`utube`] | id | – | one taken task per sub-queue |
//! | [`utubettl`] | priority, id | ttl, ttr, delay | one taken task per sub-queue |
//!
//! The state table, for all of them (`T` only in tubes with deadlines):
//!
//! | event | from | to | next event | ttl, ttr |
//! |---|---|---|---|---|
//! | put | – | ready | T death | as given |
//! | put with a delay | – | T delayed | end of the delay | ttl + delay |
//! | take | ready | taken | T now + ttr, but not after death | |
//! | release | taken | ready | T death | |
//! | release with a delay | taken | T delayed | end of the delay | ttl + delay |
//! | bury | any | buried | T death | |
//! | kick | buried | ready | T unchanged | |
//! | touch | taken | taken | T + delta | both + delta |
//! | end of the delay | T delayed | ready | death | |
//! | end of the ttr | T taken | ready | death | |
//! | death | T ready, buried | – | | |
//! | ack, delete | taken; any | – | | |
//!
//! where death = created + ttl.
//!
//! # Types of programs
//!
//! A [`TubeType`] owns its name and its [`Layout`] and makes a [`Driver`] for each tube. [`Queue::register`] adds one to
//! the types above; rows of `_queue` that name it, which the log called unavailable before, become tubes then. A driver is
//! called inside a transaction and has to return at once: it cannot wait, and it sees its tube's tasks only. A driver whose
//! methods run in a program's own language, with statements of their own, is therefore not a [`Driver`] but a program
//! around the queue.
//!
//! [`Queue::register`]: crate::Queue::register

pub mod candidates;
pub mod fifo;
pub mod fifottl;
pub mod limfifottl;
pub mod options;
mod paused;
mod tasks;
mod types;
pub mod utube;
pub mod utubettl;

use std::fmt;

use lycosa_tuple::mp;

pub use crate::task::Change;
pub use candidates::Candidates;
pub use options::{Engine, OPTIONS, PutOptions, TubeOptions, heeds};
pub use tasks::{Indexes, Tasks};
pub use types::BUILT_IN;

pub(crate) use paused::Paused;
pub(crate) use types::TubeTypes;

use crate::error::{Error, Result};
use crate::statistics::Operation;
use crate::task::{Layout, State, Task};
use crate::time::Seconds;

/// An event of a stored task, other than its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A session takes it.
    Take,
    /// Its owner, or the end of the owner's session, gives it back.
    Release {
        /// Not before that time, in tubes with deadlines.
        delay: Option<Seconds>,
    },
    /// Someone sets it aside.
    Bury,
    /// Someone gets it back from aside.
    Kick,
    /// Its owner wants more time.
    Touch {
        /// Microseconds to add.
        extension: u64,
    },
    /// Its delay is over.
    DelayOver,
    /// Its owner had it for too long.
    TtrOver,
}

impl Event {
    /// Its name in statistics and callbacks.
    #[must_use]
    pub const fn operation(self) -> Operation {
        match self {
            Self::Take => Operation::Take,
            Self::Release { .. } => Operation::Release,
            Self::Bury => Operation::Bury,
            Self::Kick => Operation::Kick,
            Self::Touch { .. } => Operation::Touch,
            Self::DelayOver => Operation::Delay,
            Self::TtrOver => Operation::Ttr,
        }
    }
}

/// A task that is to be stored.
#[derive(Debug, Clone, Copy)]
pub struct NewTask<'a> {
    /// Its id.
    pub id: u64,
    /// Its payload; None if the client gave none, which the store will refuse.
    pub data: Option<&'a [u8]>,
    /// The client's options for it.
    pub options: PutOptions<'a>,
}

/// The beginning of a new task, put together on the stack: one copy instead of one for each field.
struct Beginning {
    bytes: [u8; Self::CAPACITY],
    length: usize,
}

impl Beginning {
    /// An array's header, an id, a status and five numbers are 57 bytes.
    const CAPACITY: usize = 64;

    /// The header of a task that has `fields` fields before its payload, the id and the status.
    #[inline]
    fn new(task: &NewTask<'_>, fields: u8, state: State) -> Self {
        let mut begun = Self { bytes: [0; Self::CAPACITY], length: 1 };
        begun.bytes[0] = 0x90 + fields + u8::from(task.data.is_some());
        begun.number(task.id);
        mp::overwrite(&mut begun.bytes, begun.length, state.encoded());
        begun.length += state.encoded().len();
        begun
    }

    /// Adds a number.
    #[inline]
    fn number(&mut self, number: u64) {
        let (bytes, width) = mp::uint_bytes(number);
        mp::overwrite(&mut self.bytes, self.length, bytes);
        self.length += width;
    }

    /// Appends all of it.
    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        let end = out.len() + self.length;
        out.extend_from_slice(&self.bytes);
        out.truncate(end);
    }
}

/// What a driver has for the next take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next<'a> {
    /// This task, expired or not.
    Task(&'a [u8]),
    /// No task, until a task of the tube changes.
    Nothing,
    /// No task before that time, µs since the epoch, unless a task of the tube changes: calls that wait are served then.
    NotBefore(u64),
}

impl<'a> Next<'a> {
    /// The task, if there is one now.
    #[must_use]
    pub fn task(self) -> Option<&'a [u8]> {
        if let Self::Task(task) = self { Some(task) } else { None }
    }
}

impl<'a> From<Option<&'a [u8]>> for Next<'a> {
    fn from(task: Option<&'a [u8]>) -> Self {
        task.map_or(Self::Nothing, Self::Task)
    }
}

/// The policy of one tube: its type's rules with the tube's options.
pub trait Driver: fmt::Debug + Send {
    /// The member of put's options that the type asks for first (errors name it). None: put has no options.
    fn first_option(&self) -> Option<&'static str>;

    /// Number of further tasks that fit a tube of `tasks` tasks in any state.
    fn capacity_left(&self, tasks: u64) -> u64 {
        let _ = tasks;
        u64::MAX
    }

    /// How many tasks the tube may hold, of any state. None: as many as memory.
    fn capacity(&self) -> Option<u64> {
        None
    }

    /// Whether a put into a full tube may wait.
    fn waits_for_capacity(&self) -> bool {
        false
    }

    /// Appends the tuple of a new task. `now` is in µs since the epoch.
    ///
    /// # Errors
    /// Options of the wrong type. Values that only the space's format refuses are left to it.
    fn encode(&self, task: &NewTask<'_>, now: u64, out: &mut Vec<u8>) -> Result<()>;

    /// The change that `event` makes to `task`, at `now`.
    ///
    /// # Errors
    /// The type knows no such event.
    fn change(&self, task: &Task<'_>, event: Event, now: u64) -> Result<Change>;

    /// The task that a take at `now` (µs since the epoch) gets: it is ready, and a take need not wait for anything else. In
    /// O(log n) for any content of the tube. A type with sub-queues returns the first candidate, any other type the first ready
    /// task.
    ///
    /// # Errors
    /// The space is gone.
    fn next<'a>(&self, tasks: Tasks<'a>, now: u64) -> Result<Next<'a>> {
        let _ = now;
        let task = match self.candidates() {
            Some(candidates) => candidates.first().map_or(Ok(None), |id| tasks.get(id)),
            None => tasks.first_in_state(State::Ready),
        };
        task.map(Next::from)
    }

    /// The sub-queues' next tasks, if the type has sub-queues.
    fn candidates(&self) -> Option<&Candidates> {
        None
    }

    /// As [`Self::candidates`], to keep them up to date.
    fn candidates_mut(&mut self) -> Option<&mut Candidates> {
        None
    }

    /// The tube's own driver, taken out of that of a paused tube, which is of no use afterwards. No other driver has one.
    fn resume(&mut self) -> Option<Box<dyn Driver>> {
        None
    }
}

/// Makes the driver of one tube, from the options that the queue knows and from all of them as `_queue` keeps them, a
/// MessagePack map.
type MakeDriver = dyn Fn(&TubeOptions, &[u8]) -> Result<Box<dyn Driver>> + Send + Sync;

/// A type of tube, as `create_tube` names it.
pub struct TubeType {
    name: String,
    layout: Layout,
    make: Box<MakeDriver>,
}

impl TubeType {
    /// A type for [`Queue::register`](crate::Queue::register).
    ///
    /// # Errors
    /// The queue cannot work with this layout ([`Layout::check`]).
    pub fn new(
        name: impl Into<String>,
        layout: Layout,
        make: impl Fn(&TubeOptions, &[u8]) -> Result<Box<dyn Driver>> + Send + Sync + 'static,
    ) -> Result<Self> {
        let name = name.into();
        match layout.check() {
            Ok(()) => Ok(Self { name, layout, make: Box::new(make) }),
            Err(reason) => Err(Error::DriverLayout { name, reason }),
        }
    }

    fn built_in(
        name: &str,
        layout: Layout,
        make: impl Fn(&TubeOptions, &[u8]) -> Result<Box<dyn Driver>> + Send + Sync + 'static,
    ) -> Self {
        debug_assert_eq!(layout.check(), Ok(()));
        Self { name: name.into(), layout, make: Box::new(make) }
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where the fields are.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The driver of a tube with these options.
    ///
    /// # Errors
    /// Options that do not go together.
    pub fn driver(&self, options: &TubeOptions, stored: &[u8]) -> Result<Box<dyn Driver>> {
        (self.make)(options, stored)
    }
}

impl fmt::Debug for TubeType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TubeType")
            .field("name", &self.name)
            .field("layout", &self.layout)
            .finish_non_exhaustive()
    }
}

/// The state table of tubes without deadlines.
fn change_without_deadlines(event: Event, type_name: &str) -> Result<Change> {
    match event {
        Event::Take => Ok(Change::to(State::Taken)),
        Event::Bury => Ok(Change::to(State::Buried)),
        Event::Release { .. } | Event::Kick | Event::DelayOver | Event::TtrOver => {
            Ok(Change::to(State::Ready))
        }
        Event::Touch { .. } => Err(Error::TouchUnsupported(type_name.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::SpaceLayout;

    #[test]
    fn a_layout_that_the_queue_cannot_read_is_refused() {
        let refused = |space: SpaceLayout| {
            let layout = Layout { space, timed: false, utube: None, ready_buffer: None };
            TubeType::new("mine", layout, |_, _| Ok(Box::new(fifo::Fifo))).expect_err("unsound").to_string()
        };
        let mut space = fifo::layout().space;
        space.fields[0].1 = "string".into();
        let expected = "driver 'mine': field 1 ('task_id') has type string, expected unsigned";
        assert_eq!(refused(space), expected);
        let mut space = fifo::layout().space;
        space.indexes.pop();
        assert_eq!(refused(space), "driver 'mine': index 'status' is missing");
    }
}
