//! `utubettl`: sub-queues as in `utube`, priorities and deadlines as in `fifottl`. Priority counts inside a sub-queue
//! and across them.

use lycosa_tuple::mp;

use super::candidates::{CandidateOrder, Candidates};
use super::fifottl::Lifetime;
use super::options::write_sub_queue;
use super::utube::check_ready_buffer;
use super::{Change, Driver, Event, NewTask, Tasks, TubeOptions};
use crate::error::Error;
use crate::task::{BufferLayout, IndexLayout, Layout, Task};

/// The type's name.
pub const NAME: &str = "utubettl";

/// Where the fields are.
pub static LAYOUT: Layout = Layout {
    fields: &[
        ("task_id", "unsigned"),
        ("status", "string"),
        ("next_event", "unsigned"),
        ("ttl", "unsigned"),
        ("ttr", "unsigned"),
        ("pri", "unsigned"),
        ("created", "unsigned"),
        ("utube", "string"),
        ("data", "*"),
    ],
    indexes: &[
        IndexLayout { name: "task_id", unique: true, parts: &[0] },
        IndexLayout { name: "status", unique: true, parts: &[1, 5, 0] },
        IndexLayout { name: "watch", unique: false, parts: &[1, 2] },
        IndexLayout { name: "utube", unique: true, parts: &[1, 7, 0] },
        IndexLayout { name: "utube_pri", unique: true, parts: &[1, 7, 5, 0] },
    ],
    timed: true,
    utube: Some(7),
    ready_buffer: Some(&BufferLayout {
        fields: &[("task_id", "unsigned"), ("utube", "string"), ("pri", "unsigned")],
        indexes: &[
            IndexLayout { name: "task_id", unique: true, parts: &[0] },
            IndexLayout { name: "utube", unique: true, parts: &[1] },
            IndexLayout { name: "pri", unique: true, parts: &[2, 0] },
        ],
    }),
};

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
    pub fn new(options: &TubeOptions) -> Result<Self, Error> {
        check_ready_buffer(options)?;
        Ok(Self {
            lifetime: Lifetime::new(options),
            candidates: Candidates::new(CandidateOrder::PriorityThenId),
        })
    }
}

impl Driver for UtubeTtl {
    fn name(&self) -> &'static str {
        NAME
    }

    fn layout(&self) -> &'static Layout {
        &LAYOUT
    }

    fn first_option(&self) -> Option<&'static str> {
        Some("ttl")
    }

    fn encode(&self, task: &NewTask<'_>, now: u64, out: &mut Vec<u8>) -> Result<(), Error> {
        mp::write_array(out, 8 + u32::from(task.data.is_some()));
        mp::write_uint(out, task.id);
        self.lifetime.encode(task.options, now, out)?;
        write_sub_queue(task.options.utube, out)?;
        out.extend_from_slice(task.data.unwrap_or(&[]));
        Ok(())
    }

    fn change(&self, task: &Task<'_>, event: Event, now: u64) -> Result<Change, Error> {
        Ok(Lifetime::change(task, event, now))
    }

    fn next<'a>(&self, tasks: Tasks<'a>) -> Result<Option<&'a [u8]>, Error> {
        self.candidates.first().map_or(Ok(None), |id| tasks.get(id))
    }

    fn candidates(&self) -> Option<&Candidates> {
        Some(&self.candidates)
    }

    fn candidates_mut(&mut self) -> Option<&mut Candidates> {
        Some(&mut self.candidates)
    }
}
