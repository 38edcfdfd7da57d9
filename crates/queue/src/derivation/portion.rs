//! Portions of a derivation: rows of a tube in the order of one index after the other.

use lycosa_store::{IteratorType, Store};

use super::{Finding, Stage};
use crate::account::BUFFER_BY_NAME;
use crate::driver::candidates::{Candidate, Rebuild};
use crate::error::Result;
use crate::follower::amiss::is_event_amiss;
use crate::follower::buffer_row;
use crate::system::rows_after;
use crate::task::{ShortKey, Task, string_key};
use crate::tube::Tube;
use crate::turn::TubeTurn;

impl TubeTurn<'_> {
    /// Finds what derives from the tube's rows, unless it follows them already.
    pub(crate) fn derive(&mut self) -> Result<()> {
        let mut finding = Finding::default();
        while self.derive_portion(&mut finding, usize::MAX)?.is_some() {}
        Ok(())
    }

    /// Looks at up to `limit` tasks or sub-queues; returns at how many it has, or `None`: all is found.
    pub(crate) fn derive_portion(&mut self, finding: &mut Finding, limit: usize) -> Result<Option<usize>> {
        let Self { tube, store, .. } = self;
        if !tube.candidates_follow {
            if let Some(count) = tube.find_portion(store, finding, limit)? {
                return Ok(Some(count));
            }
            tube.candidates_follow = true;
        }
        #[cfg(debug_assertions)]
        tube.verify_candidates(store);
        Ok(None)
    }
}

impl Tube {
    fn find_portion(&mut self, store: &Store, finding: &mut Finding, limit: usize) -> Result<Option<usize>> {
        let (count, next) = match std::mem::replace(&mut finding.stage, Stage::Done) {
            Stage::Candidates(rebuild) => self.find_candidates(store, rebuild, limit)?,
            Stage::Buffer(after) => self.find_shown(store, after, &mut finding.shown, limit)?,
            Stage::Hidden(after) => self.find_hidden(store, after, finding.shown, limit)?,
            Stage::Events(after) => self.find_events(store, after, limit)?,
            Stage::Done => return Ok(None),
        };
        finding.stage = next;
        Ok(Some(count))
    }

    /// Finds the candidates of up to `limit` tasks.
    fn find_candidates(
        &mut self,
        store: &Store,
        mut rebuild: Rebuild,
        limit: usize,
    ) -> Result<(usize, Stage)> {
        let is_first = rebuild == Rebuild::default();
        let (tasks, layout) = (self.tasks(store), self.kind.layout());
        if is_first {
            self.amiss.clear();
        }
        let Some(candidates) = self.driver.candidates_mut() else {
            let is_looked_through = layout.timed || layout.utube.is_some();
            return Ok((0, if is_looked_through { Stage::Events(None) } else { Stage::Done }));
        };
        if is_first {
            candidates.clear();
        }
        let count = candidates.rebuild_portion(tasks, layout, &mut rebuild, limit)?;
        let is_over = rebuild.is_done();
        Ok((count, if is_over { Stage::Buffer(None) } else { Stage::Candidates(rebuild) }))
    }

    /// Compares rows of the ready buffer with the candidates, and counts the candidates that it shows.
    fn find_shown(
        &mut self,
        store: &Store,
        after: Option<u64>,
        shown: &mut usize,
        limit: usize,
    ) -> Result<(usize, Stage)> {
        let Some(buffer) = self.buffer else { return Ok((0, Stage::Events(None))) };
        let columns = self.kind.layout().buffer_columns();
        let key = after.map(ShortKey::id);
        let rows = rows_after(store, buffer, 0, key.as_deref(), limit)?;
        let mut last = after;
        for row in &rows {
            let Some((candidate, name)) = buffer_row(row, columns) else { continue };
            last = Some(candidate.id);
            let is_shown = self.driver.candidates().is_some_and(|all| all.get(name) == Some(candidate));
            *shown += usize::from(is_shown);
            self.amiss.note_name(name, !is_shown);
        }
        let is_over = rows.len() < limit;
        Ok((rows.len(), if is_over { Stage::Hidden(None) } else { Stage::Buffer(last) }))
    }

    /// Finds candidates that the ready buffer does not show, if it shows fewer than there are.
    fn find_hidden(
        &mut self,
        store: &Store,
        after: Option<Candidate>,
        shown: usize,
        limit: usize,
    ) -> Result<(usize, Stage)> {
        let all = self.driver.candidates().filter(|all| all.len() != shown);
        let next = all.map(|all| all.after(after, limit)).unwrap_or_default();
        for candidate in &next {
            let Some(task) = self.tasks(store).get(candidate.id)? else { continue };
            if let Some(name) = Task::read(task, self.kind.layout()).map(|task| task.utube.to_vec()) {
                self.note_shown(store, &name)?;
            }
        }
        let is_over = next.len() < limit;
        let last = Stage::Hidden(next.last().copied());
        Ok((next.len(), if is_over { Stage::Events(None) } else { last }))
    }

    /// Finds tasks whose time of the next event is wrong.
    fn find_events(&mut self, store: &Store, after: Option<u64>, limit: usize) -> Result<(usize, Stage)> {
        let layout = self.kind.layout();
        let (mut count, mut last) = (0, after);
        if layout.timed {
            let first = after.map(ShortKey::id);
            let (iterator, key) =
                first.as_deref().map_or((IteratorType::All, &[0x90][..]), |key| (IteratorType::Gt, key));
            for tuple in store.range(self.space, 0, iterator, key, 0)?.take(limit) {
                #[cfg(test)]
                crate::cost::count_look_up();
                count += 1;
                last = crate::task::id_of(tuple).or(last);
                if let Some(task) = Task::read(tuple, layout).filter(is_event_amiss) {
                    self.amiss.note_event(task.id, true);
                }
            }
        }
        Ok((count, if count < limit { Stage::Done } else { Stage::Events(last) }))
    }

    /// Notes whether the ready buffer shows the candidate of a sub-queue.
    pub(crate) fn note_shown(&mut self, store: &Store, name: &[u8]) -> Result<()> {
        let (Some(buffer), Some(candidates)) = (self.buffer, self.driver.candidates()) else { return Ok(()) };
        let columns = self.kind.layout().buffer_columns();
        let row = store.get(buffer, BUFFER_BY_NAME, &string_key(name))?;
        let shown = row.and_then(|row| buffer_row(row, columns)).map(|(candidate, _)| candidate);
        let is_amiss = shown != candidates.get(name);
        self.amiss.note_name(name, is_amiss);
        Ok(())
    }
}
