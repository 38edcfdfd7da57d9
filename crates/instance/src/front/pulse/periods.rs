//! An instance ends periods of its history, in steps, and shows them.

use lycosa_queue::status::Histogram;
use lycosa_store::Budget;

use super::{MINUTE, PERIOD, Point, Pulse, Search};
use crate::Instance;

/// Tubes, and look-ups in their indexes, of a step.
const STEP: Budget<'static> = Budget::of_rows(128);
/// Microseconds after which a step ends: look-ups in cold memory take 20 times as long.
const STEP_TIME: u64 = 100;

fn short(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Instance {
    /// From now on the instance keeps a history of itself. To be called once, when it starts.
    pub fn keep_history(&mut self) {
        let pulse = Pulse::new(self.shard.now(), &self.loop_time.turns, &self.measures.journal_sync);
        self.pulse = Some(Box::new(pulse));
    }

    /// When the present period ends, µs since the epoch; in the past if it has to be closed now. None: no history is kept.
    pub(crate) fn next_pulse(&self) -> Option<u64> {
        let pulse = self.pulse.as_deref()?;
        Some((pulse.period + 1).saturating_mul(PERIOD))
    }

    /// Does a step if a period has ended. Returns whether there is more to do.
    pub(crate) fn step_pulse(&mut self) -> bool {
        let now = self.shard.now();
        let Some(mut pulse) = self.pulse.take() else { return false };
        // A clock that was set back ends the period too.
        if pulse.search.is_none() && now / PERIOD != pulse.period {
            pulse.search = Some(Search::default());
        }
        let mut more = false;
        if let Some(search) = &mut pulse.search {
            let (store, queue) = (self.shard.store(), self.shard.queue());
            let look = |budget: Budget<'_>| queue.oldest_ready(store, search.after, budget, now);
            let (oldest, next) = self.loop_time.clocks.limit(STEP, STEP_TIME, look);
            search.oldest = search.oldest.max(oldest);
            search.after = next;
            more = next.is_some();
            if !more {
                let (turns, syncs) = (&self.loop_time.turns, &self.measures.journal_sync);
                let share =
                    |present: &Histogram, before: &Histogram| present.since(before).quantile(0.99).map(short);
                let point = Point {
                    waiting: short(self.status().waiting_calls as u64),
                    oldest: search.oldest.map(|age| short(age / 1000)),
                    turn: share(turns, &pulse.turns),
                    sync: share(syncs, &pulse.syncs),
                };
                (pulse.turns, pulse.syncs, pulse.search) = (turns.clone(), syncs.clone(), None);
                pulse.close(point, now / PERIOD);
                if pulse.program_errors.len() == MINUTE {
                    pulse.program_errors.pop_front();
                }
                pulse.program_errors.push_back(self.measures.programs.errors);
            }
        }
        self.pulse = Some(pulse);
        more
    }

    /// The largest p99 of the journal's syncs in the periods of the last minute, in seconds; None: there was none.
    pub(crate) fn recent_sync(&self) -> Option<f64> {
        let recent = self.pulse.as_deref()?.fine.iter().rev().take(MINUTE);
        recent.filter_map(|point| point.as_ref()?.sync).max().map(|micros| f64::from(micros) / 1e6)
    }

    /// Errors of programs within the last minute, or since the start.
    pub(crate) fn recent_program_errors(&self) -> u64 {
        let before = self.pulse.as_deref().and_then(|pulse| pulse.program_errors.front());
        let is_full = self.pulse.as_deref().is_some_and(|pulse| pulse.program_errors.len() == MINUTE);
        let before = before.filter(|_| is_full).copied().unwrap_or(0);
        self.measures.programs.errors.saturating_sub(before)
    }
}
