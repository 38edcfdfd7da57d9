//! The driver of a paused tube: its tube's own driver, but no task is next.
//!
//! A tube that is not paused has its own driver, so `take` pays nothing for the possibility of a pause.

use super::fifo::Fifo;
use super::{Candidates, Change, Driver, Event, NewTask, Next, Tasks};
use crate::error::Result;
use crate::task::Task;

/// A driver that hands out no task. The tube's own driver answers everything else.
#[derive(Debug)]
pub(crate) struct Paused(pub(crate) Box<dyn Driver>);

impl Driver for Paused {
    fn first_option(&self) -> Option<&'static str> {
        self.0.first_option()
    }

    fn capacity(&self) -> Option<u64> {
        self.0.capacity()
    }

    fn capacity_left(&self, tasks: u64) -> u64 {
        self.0.capacity_left(tasks)
    }

    fn waits_for_capacity(&self) -> bool {
        self.0.waits_for_capacity()
    }

    fn encode(&self, task: &NewTask<'_>, now: u64, out: &mut Vec<u8>) -> Result<()> {
        self.0.encode(task, now, out)
    }

    fn change(&self, task: &Task<'_>, event: Event, now: u64) -> Result<Change> {
        self.0.change(task, event, now)
    }

    fn next<'a>(&self, _: Tasks<'a>, _now: u64) -> Result<Next<'a>> {
        Ok(Next::Nothing)
    }

    fn candidates(&self) -> Option<&Candidates> {
        self.0.candidates()
    }

    fn candidates_mut(&mut self) -> Option<&mut Candidates> {
        self.0.candidates_mut()
    }

    fn resume(&mut self) -> Option<Box<dyn Driver>> {
        Some(std::mem::replace(&mut self.0, Box::new(Fifo)))
    }
}
