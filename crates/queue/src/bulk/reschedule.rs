//! `reschedule`: another delay or another priority for ready and delayed tasks, and its undo.
//!
//! A delay counts from the change of a task, so tasks of one job become ready in the order of their changes.

use super::bin::{Kept, Outcome};
use super::record::Record;
use super::schedule::Schedule;
use crate::account::Side;
use crate::error::Result;
use crate::statistics::Operation;
use crate::task::{NEXT_EVENT, PRI, State, TTL, Task};
use crate::turn::TubeTurn;

impl Schedule {
    /// Whether a task has the priority that the job gave it, and its delay or the end of that delay.
    fn has_left(self, task: &Task<'_>, job: &Record, now: u64) -> bool {
        let is_due_as_left = |delay: u64| match task.state() {
            Some(State::Delayed) => {
                let [from, to] = [job.began, job.ended].map(|moment| moment.saturating_add(delay));
                delay > 0 && (from..=to).contains(&task.times.next_event)
            }
            _ => job.began.saturating_add(delay) <= now,
        };
        matches!(task.state(), Some(State::Ready | State::Delayed))
            && self.pri.is_none_or(|pri| pri == task.pri)
            && self.delay.is_none_or(is_due_as_left)
    }
}

/// New values of a task's fields. `None`: the field keeps its value.
#[derive(Debug, Default)]
struct Fields {
    /// When the task becomes ready, µs since the epoch; a past moment: now.
    ready_at: Option<u64>,
    /// µs. `None`: the ttl grows by the additional wait.
    ttl: Option<u64>,
    pri: Option<u64>,
}

impl TubeTurn<'_> {
    /// Reschedules a stored task. False if there is no such task.
    pub(super) fn reschedule(&mut self, id: u64, schedule: Schedule) -> Result<bool> {
        let ready_at = schedule.delay.map(|delay| self.now.saturating_add(delay));
        self.set_schedule(id, &Fields { ready_at, ttl: None, pri: schedule.pri })
    }

    fn set_schedule(&mut self, id: u64, fields: &Fields) -> Result<bool> {
        let now = self.now;
        let Some(task) = self.task(id)? else { return Ok(false) };
        let (name, times, former) = (task.utube.to_vec(), task.times, task.state());
        let (mut assigned, mut state, mut next_event) = (Vec::with_capacity(3), former, times.next_event);
        if let Some(ready_at) = fields.ready_at {
            let waited = if former == Some(State::Delayed) { next_event.saturating_sub(now) } else { 0 };
            let wait = ready_at.saturating_sub(now);
            let ttl = fields.ttl.unwrap_or_else(|| times.ttl.saturating_add(wait.saturating_sub(waited)));
            (state, next_event) = match wait {
                0 => (Some(State::Ready), times.created.saturating_add(ttl)),
                _ => (Some(State::Delayed), ready_at),
            };
            assigned.extend([(NEXT_EVENT, next_event), (TTL, ttl)]);
        }
        assigned.extend(fields.pri.map(|pri| (PRI, pri)));
        let old = Side { state: former, next_event: times.next_event, pri: task.pri, utube: &name };
        let new = Side { state, next_event, pri: fields.pri.unwrap_or(task.pri), utube: &name };
        let Self { store, tube, common, .. } = self;
        common.assignments.set_unread(state.filter(|_| state != former), &assigned);
        let changed = common.assignments.carry_out(store, tube.space, id)?;
        let tuple = changed.filter(|_| tube.observed).map(<[u8]>::to_vec);
        // The statistics count the end of a delay, as `run` does, and no new delay.
        let is_ready_now = former == Some(State::Delayed) && state == Some(State::Ready);
        let operation = is_ready_now.then_some(Operation::Delay);
        self.account_rarely(id, (Some(old), Some(new)), operation, tuple)?;
        Ok(true)
    }

    /// Gives a task that is as `job` has left it the delay and the priority that it had before.
    pub(super) fn reschedule_back(&mut self, job: &Record, kept: &Kept<'_>) -> Result<Outcome> {
        let (layout, now) = (self.tube.kind.layout(), self.now);
        let (Some(present), Some(former)) = (self.task(kept.id)?, Task::read(kept.tuple, layout)) else {
            return Ok(Outcome::Gone);
        };
        let Schedule { delay, pri } = job.schedule;
        if !job.schedule.has_left(&present, job, now) {
            return Ok(Outcome::Touched);
        }
        let was_ready_at = if former.state() == Some(State::Delayed) { former.times.next_event } else { 0 };
        // The former ttl may have passed since: then the task keeps its present one.
        let ttl = if former.is_expired(layout, now) { present.times.ttl } else { former.times.ttl };
        let fields = Fields {
            ready_at: delay.map(|_| was_ready_at),
            ttl: delay.map(|_| ttl),
            pri: pri.map(|_| former.pri),
        };
        self.set_schedule(kept.id, &fields)?;
        Ok(Outcome::Undone)
    }
}
