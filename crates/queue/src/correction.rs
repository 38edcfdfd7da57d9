//! Correction of wrong rows that the Lua module or a user left in a tube: see [`Amiss`](crate::follower::amiss::Amiss).

use crate::LogLevel;
use crate::account::show_candidate;
use crate::error::Result;
use crate::follower::amiss::is_event_amiss;
use crate::tube::handle::TubeIndex;
use crate::turn::{CorrectionsTurn, TubeTurn, Turn};

impl CorrectionsTurn<'_> {
    /// Makes the ready buffer of a tube show the candidates of up to `limit` sub-queues, and when it shows all of them corrects
    /// up to `limit` wrong times; the timer does the rest. Returns how many there were, and whether the tube is done.
    pub(crate) fn begin(&mut self, index: TubeIndex, limit: usize) -> Result<(usize, bool)> {
        let shown = self.correct_buffer(index, limit)?;
        let TubeTurn { tube, common, .. } = self.turn.tube(index)?;
        if !tube.amiss.names.is_empty() {
            return Ok((shown, false));
        }
        let count = tube.amiss.events.len();
        if count == 0 {
            return Ok((shown, true));
        }
        let text = format!(
            "tube '{}': corrects next_event of {count} tasks, which is not the end of their ttl, as early versions of \
             the Lua module and its utubettl left it",
            tube.name
        );
        common.log(LogLevel::Warning, text);
        let corrected = self.correct_events(index, limit)?;
        if !self.turn.tube(index)?.tube.amiss.events.is_empty() {
            self.turn.common.corrected_later.push_back(index);
        }
        Ok((shown + corrected, true))
    }

    /// Makes a ready buffer show exactly the candidates of up to `limit` sub-queues that it shows wrongly. Returns how many.
    fn correct_buffer(&mut self, index: TubeIndex, limit: usize) -> Result<usize> {
        let TubeTurn { tube, .. } = self.turn.tube(index)?;
        let (Some(buffer), Some(candidates)) = (tube.buffer, tube.driver.candidates()) else {
            tube.amiss.names.clear();
            return Ok(0);
        };
        let columns = tube.kind.layout().buffer_columns();
        let names = tube.amiss.names.iter().take(limit);
        let wrong: Vec<_> = names.map(|name| (name.clone(), candidates.get(name))).collect();
        // A row that vanishes may hold the key of one that is shown, in any portion.
        let vanished = wrong.iter().filter(|(_, candidate)| candidate.is_none());
        let shown = wrong.iter().filter(|(_, candidate)| candidate.is_some());
        let ordered: Vec<_> = vanished.chain(shown).collect();
        for batch in ordered.chunks(Turn::BATCH) {
            self.turn.transact(|turn| {
                batch.iter().try_for_each(|(name, candidate)| {
                    show_candidate(turn.store, buffer, columns, name, *candidate)
                })
            })?;
        }
        let names = &mut self.turn.tube(index)?.tube.amiss.names;
        wrong.iter().for_each(|(name, _)| _ = names.remove(name));
        Ok(wrong.len())
    }

    /// Corrects the next events of up to `limit` tasks: it becomes the end of the task's life. Returns how many tasks were
    /// looked at.
    fn correct_events(&mut self, index: TubeIndex, limit: usize) -> Result<usize> {
        let mut count = 0;
        while count < limit {
            let portion = (limit - count).min(Turn::BATCH);
            let events = &self.turn.tube(index)?.tube.amiss.events;
            let wrong: Vec<_> = events.iter().take(portion).copied().collect();
            if wrong.is_empty() {
                break;
            }
            self.turn.transact_at(index, |tube| {
                wrong.iter().try_for_each(|&id| {
                    // It may have been taken, corrected or removed since.
                    let wrong = tube.task(id)?.filter(is_event_amiss);
                    let wrong = wrong.and_then(|task| Some((task.state()?, task.times.death())));
                    wrong.map_or(Ok(()), |(state, death)| tube.postpone(id, state, death))
                })
            })?;
            count += wrong.len();
            let events = &mut self.turn.tube(index)?.tube.amiss.events;
            wrong.iter().for_each(|id| _ = events.remove(id));
        }
        Ok(count)
    }

    /// Corrects wrong times that a start has left, at most `budget`. Returns how many tasks were looked at.
    pub(crate) fn go_on(&mut self, budget: usize) -> usize {
        let mut done = 0;
        while done < budget
            && let Some(&index) = self.turn.common.corrected_later.front()
        {
            match self.correct_events(index, budget - done) {
                Ok(count) if count == budget - done => done = budget,
                Ok(count) => {
                    done += count;
                    self.turn.common.corrected_later.pop_front();
                }
                Err(error) => {
                    // The next start tries again; until then the timer corrects each task at its wrong time.
                    self.turn.common.log_failure("correction of released tasks", &error);
                    self.turn.common.corrected_later.pop_front();
                }
            }
        }
        done
    }
}
