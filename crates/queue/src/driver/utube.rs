//! `utube`: a tube of sub-queues. Of each at most one task is taken, in the order of ids; across sub-queues the lowest
//! id goes first.

use super::candidates::{CandidateOrder, Candidates};
use super::options::write_sub_queue;
use super::{
    Beginning, Change, Driver, Engine, Event, NewTask, TubeOptions, TubeType, change_without_deadlines,
};
use crate::error::{Error, Result};
use crate::task::{Layout, SpaceLayout, State, Task};

/// Where the fields are.
pub(crate) fn layout() -> Layout {
    Layout {
        space: SpaceLayout::new(
            &[("task_id", "unsigned"), ("status", "string"), ("utube", "string"), ("data", "*")],
            &[("task_id", true, &[0]), ("status", true, &[1, 0]), ("utube", true, &[1, 2, 0])],
        ),
        timed: false,
        utube: Some(2),
        ready_buffer: Some(SpaceLayout::new(
            &[("task_id", "unsigned"), ("utube", "string")],
            &[("task_id", true, &[0]), ("utube", true, &[1])],
        )),
    }
}

/// The type.
#[must_use]
pub fn tube_type() -> TubeType {
    TubeType::built_in("utube", layout(), |options, _| Ok(Box::new(Utube::new(options)?)))
}

/// The driver.
#[derive(Debug)]
pub struct Utube {
    candidates: Candidates,
}

impl Utube {
    /// For a tube of that engine and storage mode.
    ///
    /// # Errors
    /// A ready buffer on `vinyl`.
    pub fn new(options: &TubeOptions) -> Result<Self> {
        check_ready_buffer(options)?;
        Ok(Self { candidates: Candidates::new(CandidateOrder::Id) })
    }
}

/// Refuses the combination of options that no tube with sub-queues supports.
pub(super) fn check_ready_buffer(options: &TubeOptions) -> Result<()> {
    if options.ready_buffer && options.engine == Engine::Vinyl {
        return Err(Error::ReadyBufferOnVinyl);
    }
    Ok(())
}

impl Driver for Utube {
    fn first_option(&self) -> Option<&'static str> {
        Some("utube")
    }

    fn encode(&self, task: &NewTask<'_>, _now: u64, out: &mut Vec<u8>) -> Result<()> {
        Beginning::new(task, 3, State::Ready).write(out);
        write_sub_queue(task.options.utube, out)?;
        out.extend_from_slice(task.data.unwrap_or(&[]));
        Ok(())
    }

    fn change(&self, _task: &Task<'_>, event: Event, _now: u64) -> Result<Change> {
        change_without_deadlines(event, "utube")
    }

    fn candidates(&self) -> Option<&Candidates> {
        Some(&self.candidates)
    }

    fn candidates_mut(&mut self) -> Option<&mut Candidates> {
        Some(&mut self.candidates)
    }
}
