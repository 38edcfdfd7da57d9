//! Background work: the sources of deadlines, and the share of a turn that each may take.
//!
//! A new source is a variant of [`Source`], its name, and its step. Each turn asks every source for steps, until it has
//! nothing more to do or has had its share. A step is small (some tenths of a millisecond), so a turn stays under a
//! millisecond with any number of expired deadlines; the rest follows in the next turns, between which requests are served.
//!
//! Long calls, jobs and long SELECTs have no deadlines: they are background work, whose share of the loop's time depends on
//! what else the loop has to do ([`crate::front::share`]).
//!
//! Microseconds of a turn are measured by a monotonic clock that the embedding program gives
//! ([`Instance::set_elapsed`]). Without one only the number of steps bounds a turn, which is then repeatable.
//! [`crate::front::loop_time`] notes how long each source has held the loop.

pub(crate) mod source;

use source::Source;

use crate::Instance;
use crate::front::pulse;

/// When a source has something to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    Now,
    At(u64),
    Never,
}

impl From<Option<u64>> for Due {
    fn from(at: Option<u64>) -> Self {
        at.map_or(Self::Never, Self::At)
    }
}

/// Steps of one source in one turn.
const MAX_STEPS: usize = 16;

/// Microseconds of a turn after which every source that is still to come gets one step only.
const TURN: u64 = 400;

/// Rows that one step of a rebuild looks at.
const REBUILD_STEP: usize = 64;

/// Pause before a reply that waits for the journal is looked at again, in microseconds.
const SELECT_RETRY: u64 = 1000;

impl Instance {
    /// Handles expired deadlines; returns the next one, in microseconds since the epoch. While the journal is behind
    /// no deadline is handled, because handling makes rows.
    pub fn tick(&mut self, now: u64) -> Option<u64> {
        self.input(now, |instance| instance.do_due(now))
    }

    fn do_due(&mut self, now: u64) -> Option<u64> {
        if self.shard.conditions().has_failed() || self.shard.is_journal_behind() {
            return self.front.finish_logins(&self.shard);
        }
        self.loop_time.begin_turn(now);
        let began = self.loop_time.elapsed();
        let mut next = None;
        for (place, source) in Source::ALL.into_iter().enumerate() {
            let mut steps = 0;
            let due = loop {
                let due = match source.is_background() {
                    true => self.step_in_background(source),
                    false => self.settle(|instance| instance.step(source)),
                };
                steps += 1;
                let is_over = || self.loop_time.elapsed().saturating_sub(began) > TURN;
                if due != Due::Now || steps == MAX_STEPS || is_over() {
                    break due;
                }
            };
            self.loop_time.end_part(place);
            let at = match due {
                Due::Now => Some(now),
                Due::At(at) => Some(at),
                Due::Never => None,
            };
            next = next.into_iter().chain(at).min();
        }
        next
    }

    /// Lets one source of background work do a step if its share of the loop's time permits one.
    fn step_in_background(&mut self, source: Source) -> Due {
        let has_work = match source {
            Source::Selects => !self.front.selects.is_empty(),
            _ => self.shard.next_work().is_some_and(|next| next <= self.shard.now()),
        };
        if !has_work {
            return self.step(source);
        }
        let now = self.shard.now();
        if let Some(wait) = self.share.wait(&self.loop_time.clocks) {
            return Due::At(now + wait);
        }
        let began = self.loop_time.elapsed();
        let due = self.settle(|instance| instance.step(source));
        self.share.charge(began, &self.loop_time.clocks);
        match (due, self.share.wait(&self.loop_time.clocks)) {
            (Due::Now, Some(wait)) => Due::At(now + wait),
            _ => due,
        }
    }

    /// Lets one source handle a few expired deadlines.
    fn step(&mut self, source: Source) -> Due {
        let now = self.shard.now();
        match source {
            Source::Rebuild if self.shard.step_rebuild(REBUILD_STEP) => Due::Now,
            Source::Rebuild => Due::Never,
            Source::ReadOnly
            | Source::Queue
            | Source::Jobs
            | Source::Expiration
            | Source::Selects
            | Source::Checkpoint
            | Source::History
                if self.is_rebuilding() =>
            {
                Due::Never
            }
            Source::ReadOnly => {
                let next = self.shard.step_role();
                self.front.release_replies(&self.shard);
                next.into()
            }
            Source::Queue => {
                let tick = self.shard.step_queue();
                if tick.more { Due::Now } else { tick.next.into() }
            }
            Source::Jobs => match self.shard.next_work() {
                Some(next) if next <= now => match self.shard.step_jobs(&self.loop_time.clocks) {
                    Some(next) if next <= now => Due::Now,
                    // A task that was moved, brought back or made ready has another deadline, and the queue was asked before.
                    next => next.into_iter().chain(self.shard.next_deadline()).min().into(),
                },
                next => next.into(),
            },
            Source::Logins => self.front.finish_logins(&self.shard).into(),
            Source::Expiration => {
                let requests = self.front.counts.total();
                match self.shard.tick_expiration(requests, &self.loop_time.clocks) {
                    Some(next) if next <= now => Due::Now,
                    next => next.into(),
                }
            }
            Source::Garbage if self.shard.step_garbage() => Due::Now,
            Source::Garbage => Due::Never,
            Source::Selects if self.step_selects() => Due::Now,
            // One that waits for the journal goes on when that answers, or when it has waited long enough.
            Source::Selects if !self.front.selects.is_empty() => Due::At(now + SELECT_RETRY),
            Source::Selects => Due::Never,
            Source::Checkpoint => self.shard.tick_checkpoints().into(),
            Source::History => match self.next_pulse() {
                Some(next) if next <= now || next > now + 2 * pulse::PERIOD => match self.step_pulse() {
                    true => Due::Now,
                    false => self.next_pulse().into(),
                },
                next => next.into(),
            },
        }
    }
}
