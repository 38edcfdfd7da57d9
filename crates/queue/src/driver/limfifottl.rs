//! `limfifottl`: `fifottl` with a capacity: a number of tasks, in any state.
//!
//! A put into a full tube answers null, at once or after its `timeout`. Waiting puts are served in the order of their
//! arrival, as soon as the tube has free capacity.

use super::fifottl::FifoTtl;
use super::{Change, Driver, Engine, Event, NewTask, TubeOptions, TubeType};
use crate::error::{Error, Result};
use crate::task::Task;

/// The type.
#[must_use]
pub fn tube_type() -> TubeType {
    TubeType::built_in("limfifottl", super::fifottl::layout(), |options, _| {
        Ok(Box::new(LimFifoTtl::new(options)?))
    })
}

/// The driver.
#[derive(Debug, Clone, Copy)]
pub struct LimFifoTtl {
    tasks: FifoTtl,
    /// None: no limit.
    capacity: Option<u64>,
}

impl LimFifoTtl {
    /// With the tube's defaults and capacity.
    ///
    /// # Errors
    /// The engine is `vinyl`.
    pub fn new(options: &TubeOptions) -> Result<Self> {
        if options.engine == Engine::Vinyl {
            return Err(Error::VinylUnsupported);
        }
        Ok(Self { tasks: FifoTtl::new(options), capacity: options.capacity })
    }
}

impl Driver for LimFifoTtl {
    fn first_option(&self) -> Option<&'static str> {
        Some("timeout")
    }

    fn capacity(&self) -> Option<u64> {
        self.capacity
    }

    fn capacity_left(&self, tasks: u64) -> u64 {
        self.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(tasks))
    }

    fn waits_for_capacity(&self) -> bool {
        true
    }

    fn encode(&self, task: &NewTask<'_>, now: u64, out: &mut Vec<u8>) -> Result<()> {
        self.tasks.encode(task, now, out)
    }

    fn change(&self, task: &Task<'_>, event: Event, now: u64) -> Result<Change> {
        self.tasks.change(task, event, now)
    }
}
