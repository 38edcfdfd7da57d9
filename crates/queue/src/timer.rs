//! What happens by itself: delays, ends of ttr and ttl, timeouts of calls, ends of sessions.
//!
//! [`Queue::tick`] does what is due, within a budget, and says when it wants to be called again. A tube's tasks are
//! handled in the order delayed, ready, buried, taken, and by their deadline within each; so a task whose life ends
//! while it is held becomes ready first and is removed then. The most overdue tube goes first, in portions, so that a
//! tube with a million due tasks does not keep the others waiting.

use lycosa_store::{Prepared, Statement, Store, user};

use crate::Queue;
use crate::account::{Side, TaskChange};
use crate::driver::Event;
use crate::error::Error;
use crate::statistics::Operation;
use crate::task::{NEXT_EVENT, ShortKey, State, Task};
use crate::time::{BEYOND, MICROSECONDS, NEVER};
use crate::tube::{SlotIndex, Tube};

/// What a call of [`Queue::tick`] leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tick {
    /// When to call again at the latest, µs since the epoch. None: nothing will ever happen by itself.
    pub next: Option<u64>,
    /// Whether something is due that the budget did not cover: call again after other work.
    pub more: bool,
    /// How late the most overdue thing was when the call began, µs.
    pub lag_us: u64,
    /// How many tasks, calls and sessions were handled.
    pub handled: usize,
}

/// The order in which a tube's states are looked through.
const ORDER: [State; 4] = [State::Delayed, State::Ready, State::Buried, State::Taken];

impl Queue {
    /// Tasks that one transaction of the timer, of a long call or of a session's end handles at most.
    pub(crate) const BATCH: usize = 256;
    /// Tasks of closed sessions that are released between two ticks, at once and for all sessions together.
    pub(crate) const ALLOWANCE: usize = 256;
    /// Share of a tick's budget that long calls get, and closed sessions, even if deadlines would take all of it.
    const SHARES: usize = 4;
    /// Pause after something that happens by itself has failed, µs.
    pub(crate) const RETRY: u64 = MICROSECONDS;

    /// Does what is due at `now` (µs since the epoch), at most `budget` things, and says when the next is due.
    ///
    /// Not to be called inside a transaction.
    pub fn tick(&mut self, store: &mut Store, now: u64, budget: usize) -> Tick {
        let lag_us = self.next_deadline().filter(|due| *due > 0).map_or(0, |due| now.saturating_sub(due));
        let mut left = budget;
        self.allowance = Self::ALLOWANCE;
        if self.is_running() {
            let share = budget.div_ceil(Self::SHARES);
            left = left.saturating_sub(self.release_closing(store, now, share));
            left = left.saturating_sub(self.work_on_jobs(store, now, share));
            while left > 0
                && let Some((due, index)) = self.deadlines.first()
                && due <= now
            {
                let handled = self.expire_tasks(store, index, now, left.min(Self::BATCH));
                left = left.saturating_sub(handled.max(1));
                self.serve(store, now);
            }
            left -= self.expire_sessions(store, now, left);
            left = left.saturating_sub(self.release_closing(store, now, left));
            left = left.saturating_sub(self.work_on_jobs(store, now, left));
            self.serve(store, now);
        }
        left -= self.time_out(store, now, left);
        self.serve(store, now);
        let next = self.next_deadline();
        Tick { next, more: next.is_some_and(|next| next <= now), lag_us, handled: budget - left }
    }

    /// When [`Self::tick`] has something to do next, µs since the epoch. May be in the past.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        let waiters = self.waiters.next_deadline();
        if !self.is_running() {
            return waiters;
        }
        let tasks = self.deadlines.first().map(|(due, _)| due);
        let jobs = self.jobs.front().map(|_| 0);
        [waiters, tasks, jobs, self.sessions.next_deadline()].into_iter().flatten().min()
    }

    /// Handles due tasks of one tube in one transaction and finds its next deadline.
    fn expire_tasks(&mut self, store: &mut Store, index: SlotIndex, now: u64, limit: usize) -> usize {
        let handled = self.transact(store, user::ADMIN, |queue, store| {
            let mut handled = 0;
            loop {
                let before = handled;
                for state in ORDER {
                    handled += queue.expire_in_state(store, index, state, now, limit - handled)?;
                }
                if handled == before || handled == limit {
                    return Ok(handled);
                }
            }
        });
        let next = match &handled {
            Ok(_) => self.earliest_event(store, index, now),
            Err(error) => Err(error.clone()),
        };
        let next = next.unwrap_or_else(|error| match error {
            Error::Store(lycosa_store::Error::NoSuchSpace(_)) | Error::Stale => NEVER,
            error => {
                self.log_failure("expiration of tasks", &error);
                now + Self::RETRY
            }
        });
        self.deadlines.set(index, next);
        handled.unwrap_or(0)
    }

    fn expire_in_state(
        &mut self,
        store: &mut Store,
        index: SlotIndex,
        state: State,
        now: u64,
        limit: usize,
    ) -> Result<usize, Error> {
        let mut handled = 0;
        while handled < limit {
            let Some(tube) = self.tubes.at(index) else { return Err(Error::Stale) };
            let first = first_event(store, tube, state, now)?;
            let Some(task) = first.and_then(|tuple| Task::read(tuple, tube.driver.layout())) else { break };
            if task.times.next_event > now {
                break;
            }
            let (id, death) = (task.id, task.times.death());
            match state {
                State::Delayed => {
                    self.change_task(store, index, id, Event::DelayOver, now, None)?;
                }
                State::Taken => {
                    self.change_task(store, index, id, Event::TtrOver, now, None)?;
                }
                _ if death <= now => {
                    self.remove_task(store, index, id, Operation::Ttl, None)?;
                }
                _ => self.postpone(store, index, id, death)?,
            }
            handled += 1;
        }
        Ok(handled)
    }

    /// Gives a task that nobody holds its true next event. The Lua module's utubettl stores a wrong one on release,
    /// and a data folder that it has written may be full of them.
    pub(crate) fn postpone(
        &mut self,
        store: &mut Store,
        index: SlotIndex,
        id: u64,
        death: u64,
    ) -> Result<(), Error> {
        let Some(tube) = self.tubes.at(index) else { return Err(Error::Stale) };
        let key = ShortKey::id(id);
        self.assignments.clear();
        self.assignments.number(NEXT_EVENT, death);
        let statement: Statement<'_> = self.assignments.statement(tube.space, &key);
        store.execute(&statement)?;
        let side = Some(Side { state: Some(State::Ready), next_event: death, pri: 0, utube: &[] });
        let change = TaskChange { id, old: side, new: side, operation: None, taken_by: None, tuple: None };
        self.account(store, index, change)
    }

    /// The earliest deadline of a tube's tasks, from its index. If there is none before, the look is due when [`BEYOND`] has
    /// come.
    pub(crate) fn earliest_event(&self, store: &mut Store, index: SlotIndex, now: u64) -> Result<u64, Error> {
        let Some(tube) = self.tubes.at(index) else { return Err(Error::Stale) };
        let layout = tube.driver.layout();
        let mut earliest = NEVER;
        if layout.timed {
            if !is_prepared(store, tube, now)? {
                return Ok(now);
            }
            for state in ORDER {
                let first = first_event(store, tube, state, now)?;
                if let Some(task) = first.and_then(|tuple| Task::read(tuple, layout)) {
                    earliest = earliest.min(task.times.next_event);
                }
            }
            if now < BEYOND && !store.space(tube.space)?.is_empty() {
                earliest = earliest.min(BEYOND);
            }
        }
        Ok(earliest)
    }
}

/// The task of a state to which something happens first. A task whose next event lies beyond [`BEYOND`] need not be found
/// before that time has come.
fn first_event<'s>(
    store: &'s mut Store,
    tube: &Tube,
    state: State,
    now: u64,
) -> Result<Option<&'s [u8]>, Error> {
    #[cfg(test)]
    crate::cost::count_look_up();
    if !is_prepared(store, tube, now)? {
        return Ok(None);
    }
    Ok(store.first_within(tube.space, tube.indexes.watch, &ShortKey::state(state, &[]))?)
}

/// Whether the index of deadlines shows all that can be due. From [`BEYOND`] on all entries of the index are flushed for
/// that, a portion with each call.
fn is_prepared(store: &mut Store, tube: &Tube, now: u64) -> Result<bool, Error> {
    let prepare = |store: &mut Store| store.prepare(tube.space, tube.indexes.watch, Queue::BATCH as u64);
    Ok(now < BEYOND || prepare(store)? == Prepared::Ready)
}
