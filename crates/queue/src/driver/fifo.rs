//! `fifo`: tasks leave in the order of their ids. Options of put and release mean nothing.

use lycosa_tuple::mp;

use super::{Change, Driver, Event, NewTask, Tasks, change_without_deadlines};
use crate::error::Error;
use crate::task::{IndexLayout, Layout, State, Task};

/// The type's name.
pub const NAME: &str = "fifo";

/// Where the fields are.
pub static LAYOUT: Layout = Layout {
    fields: &[("task_id", "unsigned"), ("status", "string"), ("data", "*")],
    indexes: &[
        IndexLayout { name: "task_id", unique: true, parts: &[0] },
        IndexLayout { name: "status", unique: true, parts: &[1, 0] },
    ],
    timed: false,
    utube: None,
    ready_buffer: None,
};

/// The driver. It has no options.
#[derive(Debug, Clone, Copy)]
pub struct Fifo;

impl Driver for Fifo {
    fn name(&self) -> &'static str {
        NAME
    }

    fn layout(&self) -> &'static Layout {
        &LAYOUT
    }

    fn first_option(&self) -> Option<&'static str> {
        None
    }

    fn encode(&self, task: &NewTask<'_>, _now: u64, out: &mut Vec<u8>) -> Result<(), Error> {
        mp::write_array(out, 2 + u32::from(task.data.is_some()));
        mp::write_uint(out, task.id);
        out.extend_from_slice(&State::Ready.encoded());
        out.extend_from_slice(task.data.unwrap_or(&[]));
        Ok(())
    }

    fn change(&self, _task: &Task<'_>, event: Event, _now: u64) -> Result<Change, Error> {
        change_without_deadlines(event, NAME)
    }

    fn next<'a>(&self, tasks: Tasks<'a>) -> Result<Option<&'a [u8]>, Error> {
        tasks.first_in_state(State::Ready)
    }
}
