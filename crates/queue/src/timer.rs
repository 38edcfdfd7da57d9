//! Timed events: delays, ends of ttr and ttl, timeouts of calls, ends of leases and sessions.
//!
//! [`Queue::tick`](crate::Queue::tick) handles expired deadlines within a budget, and returns when to call it again.
//! A tube's tasks are handled in the order delayed, ready, buried, taken, and by their deadline within each; so a
//! task whose life ends while it is held becomes ready first and is removed then. The most overdue tube goes first,
//! in portions, so that a tube with a million due tasks does not delay other tubes.

use crate::account::Side;
use crate::driver::Event;
use crate::error::{Error, Result};
use crate::statistics::Operation;
use crate::task::{NEXT_EVENT, ShortKey, State, Task};
use crate::time::{BEYOND, MICROSECONDS, NEVER};
use crate::tube::Tube;
use crate::tube::handle::TubeIndex;
use crate::turn::{Common, TubeTurn, Turn};
use crate::waiter::Line;

/// The result of [`Queue::tick`](crate::Queue::tick).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tick {
    /// When to call again at the latest, µs since the epoch. None: no deadline remains.
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

impl Turn<'_> {
    /// Tasks that one transaction of the timer or of a session's end handles at most, and that a call handles at once.
    pub(crate) const BATCH: usize = 256;
    /// Tasks of closed sessions that are released between two ticks, at once and for all sessions together.
    pub(crate) const ALLOWANCE: usize = 256;
    /// Share of a tick's budget that leases get, and closed sessions, even if deadlines would take all of it.
    const SHARES: usize = 4;
    /// Pause after a timed event has failed, µs.
    pub(crate) const RETRY: u64 = MICROSECONDS;

    pub(crate) fn tick(&mut self, budget: usize) -> Tick {
        let now = self.now;
        self.common.log_overdue(now);
        let due = self.common.next_deadline().filter(|due| *due > 0);
        let lag_us = due.map_or(0, |due| now.saturating_sub(due));
        let mut left = budget;
        self.common.allowance = Self::ALLOWANCE;
        if self.common.is_running() {
            let share = budget.div_ceil(Self::SHARES);
            left = left.saturating_sub(self.sessions().release_closing(share));
            left = left.saturating_sub(self.corrections().go_on(share));
            left = left.saturating_sub(self.leases().expire(share));
            self.waiters().serve();
            while left > 0
                && let Some((due, index)) = self.common.deadlines.first()
                && due <= now
            {
                let handled = self.expire_tasks(index, left.min(Self::BATCH));
                left = left.saturating_sub(handled.max(1));
                self.waiters().serve();
            }
            left = left.saturating_sub(self.leases().expire(left));
            left -= self.sessions().expire(left);
            left = left.saturating_sub(self.sessions().release_closing(left));
            self.waiters().serve();
        }
        left -= self.waiters().time_out(left);
        self.waiters().serve();
        let next = self.common.next_deadline();
        Tick { next, more: next.is_some_and(|next| next <= now), lag_us, handled: budget - left }
    }

    /// Handles due tasks of one tube in one transaction and finds its next deadline.
    fn expire_tasks(&mut self, index: TubeIndex, limit: usize) -> usize {
        let handled = self.transact_at(index, |tube| {
            let mut handled = 0;
            // The driver may have a task now that it had not before.
            tube.common.serve_later(index, Line::Takes);
            if !tube.tube.kind.layout().timed {
                return Ok(0);
            }
            loop {
                let before = handled;
                for state in ORDER {
                    handled += tube.expire_in_state(state, limit - handled)?;
                }
                if handled == before || handled == limit {
                    return Ok(handled);
                }
            }
        });
        let next = match &handled {
            Ok(_) => self.tube(index).and_then(|mut tube| tube.earliest_event()),
            Err(error) => Err(error.clone()),
        };
        let next = next.unwrap_or_else(|error| match error {
            Error::Store(lycosa_store::Error::NoSuchSpace(_)) | Error::Stale => NEVER,
            error => {
                self.common.log_failure("expiration of tasks", &error);
                self.now + Self::RETRY
            }
        });
        self.common.deadlines.set(index, next);
        handled.unwrap_or(0)
    }
}

impl Common {
    /// When [`Turn::tick`] has something to do next, µs since the epoch. May be in the past.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        let waiters = self.waiters.next_deadline();
        if !self.is_running() {
            return waiters;
        }
        let tasks = self.deadlines.first().map(|(due, _)| due);
        let corrected_later = self.corrected_later.front().map(|_| 0);
        let leases = Some(self.owners.leases.due).filter(|due| *due != NEVER);
        let sessions = self.sessions.next_deadline();
        [waiters, tasks, corrected_later, leases, sessions].into_iter().flatten().min()
    }
}

impl TubeTurn<'_> {
    fn expire_in_state(&mut self, state: State, limit: usize) -> Result<usize> {
        let mut handled = 0;
        while handled < limit {
            let now = self.now;
            let Some(task) = self.first_event(state)? else { break };
            if task.times.next_event > now {
                break;
            }
            let (id, death) = (task.id, task.times.death());
            let late = now - task.times.next_event;
            match state {
                State::Delayed => _ = self.change(id, Event::DelayOver, None)?,
                State::Taken => _ = self.ttr_over(id)?,
                _ if death <= now => _ = self.remove(id, Operation::Ttl, None)?,
                _ => self.postpone(id, state, death)?,
            }
            self.common.totals.lateness.record(late);
            handled += 1;
        }
        Ok(handled)
    }

    /// Corrects the next event of a task that is not taken. The Lua module's utubettl stores a wrong one on release,
    /// and a data folder that it has written may be full of them.
    pub(crate) fn postpone(&mut self, id: u64, state: State, death: u64) -> Result<()> {
        let Self { store, tube, common, .. } = self;
        common.assignments.set_unread(None, &[(NEXT_EVENT, death)]);
        common.assignments.carry_out(store, tube.space, id)?;
        let side = Some(Side { state: Some(state), next_event: death, pri: 0, utube: &[] });
        self.account_rarely(id, (side, side), None, None)
    }

    /// The earliest deadline of the tube's tasks, from its index. If none is before [`BEYOND`], the next look is due
    /// then.
    pub(crate) fn earliest_event(&mut self) -> Result<u64> {
        let mut earliest = NEVER;
        if self.tube.kind.layout().timed {
            if !self.is_flushed()? {
                return Ok(self.now);
            }
            for state in ORDER {
                if let Some(task) = self.first_event(state)? {
                    earliest = earliest.min(task.times.next_event);
                }
            }
            if self.now < BEYOND && !self.store.space(self.tube.space)?.is_empty() {
                earliest = earliest.min(BEYOND);
            }
        }
        Ok(earliest)
    }

    /// The task of a state with the earliest next event. A task whose next event lies beyond [`BEYOND`] need not
    /// be found before that time.
    fn first_event(&mut self, state: State) -> Result<Option<Task<'_>>> {
        #[cfg(test)]
        crate::cost::count_look_up();
        if !self.is_flushed()? {
            return Ok(None);
        }
        let Self { store, tube, .. } = self;
        let first = store.first_within(tube.space, tube.indexes.watch, &ShortKey::state(state, &[]))?;
        Ok(first.and_then(|tuple| Task::read(tuple, tube.kind.layout())))
    }

    /// Whether the index of deadlines shows all that can be due. From [`BEYOND`] on all entries of the index are
    /// flushed for that, a portion with each call.
    fn is_flushed(&mut self) -> Result<bool> {
        if self.now < BEYOND {
            return Ok(true);
        }
        let Tube { space, indexes, .. } = &*self.tube;
        Ok(self.store.read(*space, indexes.watch, Turn::BATCH as u64)?.is_some())
    }
}
