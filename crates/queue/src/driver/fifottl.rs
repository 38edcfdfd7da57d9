//! `fifottl`: tasks leave by priority, then by id, and have deadlines: a life, a time to be held, a delay.
//!
//! `limfifottl` and `utubettl` have the same deadlines ([`Lifetime`]).

use lycosa_tuple::mp;

use super::options::{positive_seconds, seconds_or, write_unsigned_or};
use super::{Beginning, Change, Driver, Event, NewTask, TubeOptions, TubeType};
use crate::error::Result;
use crate::task::{FieldText, IndexText, Layout, SpaceLayout, State, Task};
use crate::time::Seconds;

/// The space of a tube with deadlines; `fields` and `indexes` are what a type has beside them.
pub(crate) fn space_layout(fields: &[FieldText], indexes: &[IndexText]) -> SpaceLayout {
    let common_fields: [FieldText; 7] = [
        ("task_id", "unsigned"),
        ("status", "string"),
        ("next_event", "unsigned"),
        ("ttl", "unsigned"),
        ("ttr", "unsigned"),
        ("pri", "unsigned"),
        ("created", "unsigned"),
    ];
    let common_indexes: [IndexText; 3] =
        [("task_id", true, &[0]), ("status", true, &[1, 5, 0]), ("watch", false, &[1, 2])];
    SpaceLayout::new(
        &[&common_fields, fields, &[("data", "*")]].concat(),
        &[&common_indexes, indexes].concat(),
    )
}

/// Where the fields are.
pub(crate) fn layout() -> Layout {
    Layout { space: space_layout(&[], &[]), timed: true, utube: None, ready_buffer: None }
}

/// The type.
#[must_use]
pub fn tube_type() -> TubeType {
    TubeType::built_in("fifottl", layout(), |options, _| Ok(Box::new(FifoTtl::new(options))))
}

/// The defaults of a tube with deadlines, and the rules that they share.
#[derive(Debug, Clone, Copy)]
pub struct Lifetime {
    ttl: Seconds,
    ttr: Seconds,
    pri: u64,
}

impl Lifetime {
    /// As the tube was created.
    #[must_use]
    pub fn new(options: &TubeOptions) -> Self {
        Self { ttl: options.ttl, ttr: options.ttr, pri: options.pri }
    }

    /// Appends the header of a task that has `fields` fields before its payload, and the fields up to the moment of creation.
    ///
    /// # Errors
    /// `delay`, `ttl` or `ttr` that are no numbers.
    pub fn encode(&self, task: &NewTask<'_>, fields: u8, now: u64, out: &mut Vec<u8>) -> Result<()> {
        let options = task.options;
        let delay = positive_seconds(options.delay)?;
        let ttl = seconds_or(options.ttl, self.ttl)?;
        let ttr = seconds_or(options.ttr, self.ttr)?;
        let (state, next_event, ttl) = match delay {
            None => (State::Ready, ttl.deadline(now), ttl.duration()),
            Some(delay) => {
                (State::Delayed, delay.deadline(now), ttl.duration().saturating_add(delay.duration()))
            }
        };
        let mut begun = Beginning::new(task, fields, state);
        [next_event, ttl, ttr.duration()].into_iter().for_each(|time| begun.number(time));
        if options.pri.is_none() {
            begun.number(self.pri);
            begun.number(now);
            begun.write(out);
            return Ok(());
        }
        begun.write(out);
        write_unsigned_or(options.pri, self.pri, out);
        mp::write_uint(out, now);
        Ok(())
    }

    /// The state table of tubes with deadlines.
    #[must_use]
    pub fn change(task: &Task<'_>, event: Event, now: u64) -> Change {
        let times = task.times;
        let at_death = |state| Change { next_event: Some(times.death()), ..Change::to(state) };
        match event {
            Event::Take => Change {
                next_event: Some(now.saturating_add(times.ttr).min(times.death())),
                ..Change::to(State::Taken)
            },
            Event::Release { delay: Some(delay) } => Change {
                next_event: Some(delay.deadline(now)),
                ttl: Some(times.ttl.saturating_add(delay.duration())),
                ..Change::to(State::Delayed)
            },
            Event::Release { delay: None } | Event::DelayOver | Event::TtrOver => at_death(State::Ready),
            Event::Bury => at_death(State::Buried),
            Event::Kick => Change::to(State::Ready),
            Event::Touch { extension } => Change {
                state: State::Taken,
                next_event: Some(times.next_event.saturating_add(extension)),
                ttl: Some(times.ttl.saturating_add(extension)),
                ttr: Some(times.ttr.saturating_add(extension)),
            },
        }
    }
}

/// The driver.
#[derive(Debug, Clone, Copy)]
pub struct FifoTtl {
    lifetime: Lifetime,
}

impl FifoTtl {
    /// With the tube's defaults.
    #[must_use]
    pub fn new(options: &TubeOptions) -> Self {
        Self { lifetime: Lifetime::new(options) }
    }
}

impl Driver for FifoTtl {
    fn first_option(&self) -> Option<&'static str> {
        Some("ttl")
    }

    fn encode(&self, task: &NewTask<'_>, now: u64, out: &mut Vec<u8>) -> Result<()> {
        self.lifetime.encode(task, 7, now, out)?;
        out.extend_from_slice(task.data.unwrap_or(&[]));
        Ok(())
    }

    fn change(&self, task: &Task<'_>, event: Event, now: u64) -> Result<Change> {
        Ok(Lifetime::change(task, event, now))
    }
}
