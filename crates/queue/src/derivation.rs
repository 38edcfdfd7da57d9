//! Derivation: reads the rows of a tube with sub-queues or deadlines, a portion at a time, for the queue's memory beside them.
//!
//! It finds the candidates of sub-queues, and wrong rows ([`Amiss`](crate::follower::Amiss)). The start of a process
//! derives both in one go. After a loss of rows ([`Queue::rebuild`](crate::Queue::rebuild)) the derivation takes steps over
//! many turns, between which the rows must not change.

use lycosa_store::{IteratorType, Store};

use crate::account::BUFFER_BY_NAME;
use crate::driver::candidates::{Candidate, Rebuild};
use crate::error::Error;
use crate::follower::{buffer_row, is_event_amiss};
use crate::system::rows_after;
use crate::task::{ShortKey, Task, string_key};
use crate::tube::{Tube, TubeIndex};
use crate::turn::Turn;

/// How far what derives from a tube's rows is found.
#[derive(Debug)]
pub(crate) struct Finding {
    stage: Stage,
    /// Candidates that the ready buffer shows.
    shown: usize,
}

/// The index that is read, and the key that was read last.
#[derive(Debug)]
enum Stage {
    Candidates(Rebuild),
    /// Rows of the ready buffer, by the task's id.
    Buffer {
        after: Option<u64>,
    },
    /// Candidates that the ready buffer may not show.
    Hidden {
        after: Option<Candidate>,
    },
    /// Tasks, by id. The index of deadlines would have to flush the entries that it defers.
    Events {
        after: Option<u64>,
    },
    Done,
}

impl Default for Finding {
    fn default() -> Self {
        Self { stage: Stage::Candidates(Rebuild::default()), shown: 0 }
    }
}

impl Turn<'_> {
    /// Finds what derives from a tube's rows, unless it follows them already.
    pub(crate) fn derive(&mut self, index: TubeIndex) -> Result<(), Error> {
        let mut finding = Finding::default();
        while self.derive_portion(index, &mut finding, usize::MAX)?.is_some() {}
        Ok(())
    }

    /// Looks at up to `limit` tasks or sub-queues; returns at how many it has, or `None`: all is found.
    pub(crate) fn derive_portion(
        &mut self,
        index: TubeIndex,
        finding: &mut Finding,
        limit: usize,
    ) -> Result<Option<usize>, Error> {
        let turn = self.tube(index)?;
        if !turn.tube.candidates_follow {
            if let Some(count) = turn.tube.find_portion(turn.store, finding, limit)? {
                return Ok(Some(count));
            }
            turn.tube.candidates_follow = true;
        }
        #[cfg(debug_assertions)]
        turn.tube.verify_candidates(turn.store);
        Ok(None)
    }
}

impl Tube {
    fn find_portion(
        &mut self,
        store: &Store,
        finding: &mut Finding,
        limit: usize,
    ) -> Result<Option<usize>, Error> {
        match &mut finding.stage {
            Stage::Candidates(rebuild) => {
                let (tasks, layout) = (self.tasks(store), self.kind.layout());
                if *rebuild == Rebuild::default() {
                    self.amiss.clear();
                }
                let Some(candidates) = self.driver.candidates_mut() else {
                    let is_looked_through = layout.timed || layout.utube.is_some();
                    finding.stage =
                        if is_looked_through { Stage::Events { after: None } } else { Stage::Done };
                    return Ok(is_looked_through.then_some(0));
                };
                if *rebuild == Rebuild::default() {
                    candidates.clear();
                }
                let count = candidates.rebuild_portion(tasks, layout, rebuild, limit)?;
                if rebuild.is_done() {
                    finding.stage = Stage::Buffer { after: None };
                }
                Ok(Some(count))
            }
            Stage::Buffer { after } => {
                let Some(buffer) = self.buffer else {
                    finding.stage = Stage::Events { after: None };
                    return Ok(Some(0));
                };
                let columns = self.kind.layout().buffer_columns();
                let key = after.map(ShortKey::id);
                let rows = rows_after(store, buffer, 0, key.as_deref(), limit)?;
                for row in &rows {
                    let Some((candidate, name)) = buffer_row(row, columns) else { continue };
                    *after = Some(candidate.id);
                    let is_shown =
                        self.driver.candidates().is_some_and(|all| all.get(name) == Some(candidate));
                    finding.shown += usize::from(is_shown);
                    self.amiss.note_name(name, !is_shown);
                }
                if rows.len() < limit {
                    finding.stage = Stage::Hidden { after: None };
                }
                Ok(Some(rows.len()))
            }
            Stage::Hidden { after } => {
                let all = self.driver.candidates().filter(|all| all.len() != finding.shown);
                let next = all.map(|all| all.after(*after, limit)).unwrap_or_default();
                *after = next.last().copied();
                for candidate in &next {
                    let Some(task) = self.tasks(store).get(candidate.id)? else { continue };
                    if let Some(name) = Task::read(task, self.kind.layout()).map(|task| task.utube.to_vec()) {
                        self.note_shown(store, &name)?;
                    }
                }
                if next.len() < limit {
                    finding.stage = Stage::Events { after: None };
                }
                Ok(Some(next.len()))
            }
            Stage::Events { after } => {
                let layout = self.kind.layout();
                let mut count = 0;
                if layout.timed {
                    let first = after.map(ShortKey::id);
                    let (iterator, key) = first
                        .as_deref()
                        .map_or((IteratorType::All, &[0x90][..]), |key| (IteratorType::Gt, key));
                    for tuple in store.range(self.space, 0, iterator, key, 0)?.take(limit) {
                        #[cfg(test)]
                        crate::cost::count_look_up();
                        count += 1;
                        *after = crate::task::id_of(tuple).or(*after);
                        if let Some(task) = Task::read(tuple, layout).filter(is_event_amiss) {
                            self.amiss.note_event(task.id, true);
                        }
                    }
                }
                if count < limit {
                    finding.stage = Stage::Done;
                }
                Ok(Some(count))
            }
            Stage::Done => Ok(None),
        }
    }

    /// Notes whether the ready buffer shows the candidate of a sub-queue.
    pub(crate) fn note_shown(&mut self, store: &Store, name: &[u8]) -> Result<(), Error> {
        let (Some(buffer), Some(candidates)) = (self.buffer, self.driver.candidates()) else { return Ok(()) };
        let columns = self.kind.layout().buffer_columns();
        let row = store.get(buffer, BUFFER_BY_NAME, &string_key(name))?;
        let shown = row.and_then(|row| buffer_row(row, columns)).map(|(candidate, _)| candidate);
        let is_amiss = shown != candidates.get(name);
        self.amiss.note_name(name, is_amiss);
        Ok(())
    }
}
