//! `fifo`: tasks leave in the order of their ids. Options of put and release mean nothing.

use super::{Beginning, Change, Driver, Event, NewTask, TubeType, change_without_deadlines};
use crate::error::Result;
use crate::task::{Layout, SpaceLayout, State, Task};

/// Where the fields are.
pub(crate) fn layout() -> Layout {
    Layout {
        space: SpaceLayout::new(
            &[("task_id", "unsigned"), ("status", "string"), ("data", "*")],
            &[("task_id", true, &[0]), ("status", true, &[1, 0])],
        ),
        timed: false,
        utube: None,
        ready_buffer: None,
    }
}

/// The type.
#[must_use]
pub fn tube_type() -> TubeType {
    TubeType::built_in("fifo", layout(), |_, _| Ok(Box::new(Fifo)))
}

/// The driver. It has no options.
#[derive(Debug, Clone, Copy)]
pub struct Fifo;

impl Driver for Fifo {
    fn first_option(&self) -> Option<&'static str> {
        None
    }

    fn encode(&self, task: &NewTask<'_>, _now: u64, out: &mut Vec<u8>) -> Result<()> {
        Beginning::new(task, 2, State::Ready).write(out);
        out.extend_from_slice(task.data.unwrap_or(&[]));
        Ok(())
    }

    fn change(&self, _task: &Task<'_>, event: Event, _now: u64) -> Result<Change> {
        change_without_deadlines(event, "fifo")
    }
}
