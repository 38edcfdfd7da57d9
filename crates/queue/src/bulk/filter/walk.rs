//! Walks over the tasks that a filter may admit, in portions that never go back.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use lycosa_store::{IndexId, IteratorType};

use super::{Filter, contains};
use crate::background::PORTION_BYTES;
use crate::error::{Error, Result};
use crate::task::{Layout, NameKey, STATES, ShortKey, State, Task, id_of};
use crate::turn::TubeTurn;

/// A part of a walk over the tasks that a filter may admit.
#[derive(Debug)]
pub(crate) struct Walked {
    /// Tasks that were looked at.
    pub(crate) looked_at: usize,
    /// Bytes of their payloads, if the filter looks into payloads.
    pub(crate) bytes: usize,
    /// The key of the last one; the next part begins behind it.
    pub(crate) position: Vec<u8>,
    /// Nothing is left to look at.
    pub(crate) is_end: bool,
}

impl TubeTurn<'_> {
    /// Whether a filter admits a task.
    pub(crate) fn is_admitted(&self, filter: &Filter, task: &Task<'_>) -> Result<bool> {
        let is_named = filter.named.as_ref().is_none_or(|named| {
            named.get(&task.id).is_some_and(|state| state.is_none_or(|state| task.state() == Some(state)))
        });
        let is_near = is_named
            && filter.ids.has(task.id)
            && filter.state.is_none_or(|state| task.state() == Some(state))
            && filter.utube.as_deref().is_none_or(|name| task.utube == name)
            && filter.pris.has(task.pri)
            && filter.created.is_none_or(|span| task.times.created > 0 && span.has(task.times.created));
        if !is_near {
            return Ok(false);
        }
        if let Some((path, test)) = &filter.field
            && !path.lookup(task.data).is_some_and(|value| test.holds(value))
        {
            return Ok(false);
        }
        if filter.attempts.is_all() && filter.error.is_none() {
            return Ok(true);
        }
        let record = self.common.attempts.of(self.store, self.key(task.id))?;
        let matches = |text: &Vec<u8>| record.failed_at > 0 && contains(&record.last_error, text);
        Ok(filter.attempts.has(record.attempts) && filter.error.as_ref().is_none_or(matches))
    }

    /// How many tasks a walk with this filter looks at.
    pub(crate) fn walk_total(&self, filter: &Filter) -> Result<u64> {
        if let Some(named) = &filter.named {
            return Ok(named.len() as u64);
        }
        let count = |index, iterator, key: &[u8]| self.store.count(self.tube.space, index, iterator, key);
        let indexes = self.tube.indexes;
        match (filter.walked_state(), &filter.utube) {
            (Some(state), Some(name)) => {
                Ok(count(indexes.utube, IteratorType::Eq, &NameKey::new(state, name, &[]))?)
            }
            (Some(state), None) => Ok(count(indexes.status, IteratorType::Eq, &ShortKey::state(state, &[]))?),
            (None, Some(name)) => {
                let mut total = 0;
                for (state, _) in STATES {
                    let [from, to] =
                        [filter.ids.from, filter.ids.to].map(|id| NameKey::new(state, name, &[id]));
                    let behind = count(indexes.utube, IteratorType::Gt, &to)?;
                    total += count(indexes.utube, IteratorType::Ge, &from)?.saturating_sub(behind);
                }
                Ok(total)
            }
            (None, None) => {
                let behind = count(0, IteratorType::Gt, &ShortKey::id(filter.ids.to))?;
                Ok(count(0, IteratorType::Ge, &ShortKey::id(filter.ids.from))?.saturating_sub(behind))
            }
        }
    }

    /// The indexes of a walk, and where it begins in each. With a state that is the index of states, or of the sub-queue's states.
    /// Of a sub-queue without a state it is four ranges of the latter, one for each state, which are merged by id.
    ///
    /// No key of a task changes while the task stays in its state, and a walk never goes back: it meets each task once. (A job
    /// that changes priorities walks by id, while no other job changes tasks.) The merged walk's place is an id, so it
    /// meets each task once in any state.
    fn walk_starts(&self, filter: &Filter, position: &[u8]) -> Result<Vec<Start>> {
        let indexes = self.tube.indexes;
        let place = |first: &[u8]| match position {
            [] => (IteratorType::Ge, first.to_vec()),
            position => (IteratorType::Gt, position.to_vec()),
        };
        let walked = filter.walked_state();
        let start = |index, (iterator, key)| Start { index, iterator, key, state: walked };
        Ok(match (walked, &filter.utube) {
            (Some(state), Some(name)) => vec![start(indexes.utube, place(&NameKey::new(state, name, &[])))],
            (Some(state), None) => vec![start(indexes.status, place(&ShortKey::state(state, &[])))],
            (None, None) => vec![start(0, place(&ShortKey::id(filter.ids.from)))],
            (None, Some(name)) => {
                let (iterator, id) = match position {
                    [] => (IteratorType::Ge, filter.ids.from),
                    position => (IteratorType::Gt, id_of(position).ok_or_else(forged)?),
                };
                let of_state = |state| {
                    let key = NameKey::new(state, name, &[id]).to_vec();
                    Start { index: indexes.utube, iterator, key, state: Some(state) }
                };
                STATES.iter().map(|(state, _)| of_state(*state)).collect()
            }
        })
    }

    /// Looks at up to `limit` tasks behind `position` (empty: from the beginning) and calls `f` with each, until it breaks. A filter
    /// that looks into payloads ends the walk behind [`PORTION_BYTES`] of them, too.
    pub(crate) fn walk(
        &self,
        filter: &Filter,
        position: &[u8],
        limit: usize,
        f: &mut dyn FnMut(&Task<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<Walked> {
        if let Some(named) = &filter.named {
            return self.walk_named((filter, named), position, limit, f);
        }
        let layout = self.tube.kind.layout();
        let starts = self.walk_starts(filter, position)?;
        let is_ahead = |task: &Task<'_>, state: Option<State>| match state {
            Some(_) => {
                task.state() == state
                    && filter.utube.as_deref().is_none_or(|name| task.utube == name)
                    && (filter.state.is_some() || task.id <= filter.ids.to)
            }
            None => task.id <= filter.ids.to,
        };
        let mut ways = Vec::with_capacity(starts.len());
        for Start { index, iterator, key, state } in &starts {
            let tuples = self.store.range(self.tube.space, *index, *iterator, key, 0)?;
            // Rows that are no tasks are passed over.
            let tasks = tuples.filter_map(|tuple| Task::read(tuple, layout));
            let mut tasks = tasks.take_while(|task| is_ahead(task, *state));
            if let Some(first) = tasks.next() {
                ways.push((first, tasks));
            }
        }
        let mut walked = Walked { looked_at: 0, bytes: 0, position: position.to_vec(), is_end: true };
        let (mut is_full, mut last) = (limit == 0, None);
        while let Some(next) = (0..ways.len()).min_by_key(|&way| ways[way].0.id) {
            if is_full {
                walked.is_end = false;
                break;
            }
            let (task, rest) = &mut ways[next];
            walked.looked_at += 1;
            walked.bytes += if filter.field.is_some() { task.data.len() } else { 0 };
            last = Some(position_of(task, filter, layout));
            is_full = f(task)?.is_break() || walked.looked_at == limit || walked.bytes >= PORTION_BYTES;
            match rest.next() {
                Some(following) => *task = following,
                None => drop(ways.swap_remove(next)),
            }
        }
        if let Some(last) = last {
            walked.position = last;
        }
        Ok(walked)
    }
}

impl TubeTurn<'_> {
    /// The walk over tasks that are named by id, in the order of ids. One that is not there counts as looked at.
    fn walk_named(
        &self,
        (filter, named): (&Filter, &BTreeMap<u64, Option<State>>),
        position: &[u8],
        limit: usize,
        f: &mut dyn FnMut(&Task<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<Walked> {
        let behind = match position {
            [] => Bound::Unbounded,
            position => Bound::Excluded(id_of(position).ok_or_else(forged)?),
        };
        let mut walked = Walked { looked_at: 0, bytes: 0, position: position.to_vec(), is_end: true };
        let mut is_full = limit == 0;
        for (&id, _) in named.range((behind, Bound::Unbounded)) {
            if is_full {
                walked.is_end = false;
                break;
            }
            walked.looked_at += 1;
            walked.position = ShortKey::id(id).to_vec();
            is_full = walked.looked_at == limit;
            if let Some(task) = self.task(id)? {
                walked.bytes += if filter.field.is_some() { task.data.len() } else { 0 };
                is_full |= f(&task)?.is_break() || walked.bytes >= PORTION_BYTES;
            }
        }
        Ok(walked)
    }
}

/// Where a walk begins in an index.
struct Start {
    index: IndexId,
    iterator: IteratorType,
    key: Vec<u8>,
    /// The walk ends behind the tasks of this state.
    state: Option<State>,
}

fn forged() -> Error {
    Error::Unfit { method: "find", what: "option cursor should be that of another page".to_owned() }
}

/// The place of a task in the walk: its key in the index of the walk, or its id where several ranges are merged.
fn position_of(task: &Task<'_>, filter: &Filter, layout: &Layout) -> Vec<u8> {
    match (filter.walked_state(), &filter.utube) {
        (Some(state), Some(name)) => NameKey::new(state, name, &[task.id]).to_vec(),
        (Some(state), None) if layout.timed => ShortKey::state(state, &[task.pri, task.id]).to_vec(),
        (Some(state), None) => ShortKey::state(state, &[task.id]).to_vec(),
        (None, _) => ShortKey::id(task.id).to_vec(),
    }
}
