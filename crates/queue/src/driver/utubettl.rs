//! `utubettl`: sub-queues as in `utube`, priorities and deadlines as in `fifottl`. Priority counts inside a sub-queue
//! and across them.

use super::candidates::{CandidateOrder, Candidates};
use super::fifottl::{Lifetime, space_layout};
use super::options::write_sub_queue;
use super::utube::check_ready_buffer;
use super::{Change, Driver, Event, NewTask, TubeOptions, TubeType};
use crate::error::Result;
use crate::task::{Layout, SpaceLayout, Task};

/// Where the fields are.
pub(crate) fn layout() -> Layout {
    Layout {
        space: space_layout(
            &[("utube", "string")],
            &[("utube", true, &[1, 7, 0]), ("utube_pri", true, &[1, 7, 5, 0])],
        ),
        timed: true,
        utube: Some(7),
        ready_buffer: Some(SpaceLayout::new(
            &[("task_id", "unsigned"), ("utube", "string"), ("pri", "unsigned")],
            &[("task_id", true, &[0]), ("utube", true, &[1]), ("pri", true, &[2, 0])],
        )),
    }
}

/// The type.
#[must_use]
pub fn tube_type() -> TubeType {
    TubeType::built_in("utubettl", layout(), |options, _| Ok(Box::new(UtubeTtl::new(options)?)))
}

/// The driver.
#[derive(Debug)]
pub struct UtubeTtl {
    lifetime: Lifetime,
    candidates: Candidates,
}

impl UtubeTtl {
    /// With the tube's defaults.
    ///
    /// # Errors
    /// A ready buffer on `vinyl`.
    pub fn new(options: &TubeOptions) -> Result<Self> {
        check_ready_buffer(options)?;
        let candidates = Candidates::new(CandidateOrder::PriorityThenId);
        Ok(Self { lifetime: Lifetime::new(options), candidates })
    }
}

impl Driver for UtubeTtl {
    fn first_option(&self) -> Option<&'static str> {
        Some("ttl")
    }

    fn encode(&self, task: &NewTask<'_>, now: u64, out: &mut Vec<u8>) -> Result<()> {
        self.lifetime.encode(task, 8, now, out)?;
        write_sub_queue(task.options.utube, out)?;
        out.extend_from_slice(task.data.unwrap_or(&[]));
        Ok(())
    }

    fn change(&self, task: &Task<'_>, event: Event, now: u64) -> Result<Change> {
        Ok(Lifetime::change(task, event, now))
    }

    fn candidates(&self) -> Option<&Candidates> {
        Some(&self.candidates)
    }

    fn candidates_mut(&mut self) -> Option<&mut Candidates> {
        Some(&mut self.candidates)
    }
}
