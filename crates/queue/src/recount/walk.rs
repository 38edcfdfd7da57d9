//! Walks that count tasks again: one over a tube in portions, one over all tubes at once.

use lycosa_store::{IteratorType, Store};

use super::{Recount, Recounted};
use crate::account::Side;
use crate::command::Call;
use crate::counted::{KeptTasks, Place};
use crate::error::{Error, Result};
use crate::long_call::Work;
use crate::statistics::TaskCounts;
use crate::task::{ShortKey, id_of};
use crate::tube::Tube;
use crate::turn::{LongCallsTurn, TubeTurn};
use crate::waiter::Line;
use crate::{Answer, Queue};

impl LongCallsTurn<'_> {
    /// `recount()`: a map of the numbers of tasks by state as a walk finds them, as they are kept and as the index has them.
    pub(crate) fn recount(&mut self, call: &Call<'_>, out: &mut Vec<u8>) -> Result<Answer> {
        let tube = self.turn.tube(call.index)?;
        let tasks = tube.store.space(tube.tube.space)?.len();
        if tube.store.in_transaction() {
            // The walk sees what the program has changed; the kept numbers get it at the commit.
            let pending = &tube.common.pending.counts;
            let mut kept = tube.tube.counts;
            let own = pending.iter().filter(|counted| counted.tube == call.index);
            own.for_each(|counted| match counted.from {
                Place::Everywhere => kept = KeptTasks::default(),
                from => kept.apply(from, counted.to),
            });
            let (found, _) = tube.tube.count_again(tube.store)?;
            let indexed = TaskCounts::of(|state| tube.tasks().count(state))?;
            Recounted { found, kept: kept.shown(), indexed }.write(out);
            return Ok(Answer::one());
        }
        // A walk that is under way has to end first.
        let is_busy = tube.tube.recount.is_some();
        self.begin(call, (if is_busy { u64::MAX } else { tasks }, Work::Recount(None)), out)
    }
}

impl TubeTurn<'_> {
    /// Counts up to `limit` further tasks for a request. Returns how many, and the result at the end.
    pub(crate) fn recount_portion(
        &mut self,
        request: u64,
        limit: usize,
    ) -> Result<(usize, Option<Recounted>)> {
        if self.tube.recount.as_ref().is_some_and(|other| other.request != request) {
            return Ok((0, None));
        }
        let fresh = || Box::new(Recount { request, after: None, counts: KeptTasks::default() });
        let mut recount = self.tube.recount.take().unwrap_or_else(fresh);
        let layout = self.tube.kind.layout();
        let first = recount.after.map(ShortKey::id);
        let (iterator, key) =
            first.as_deref().map_or((IteratorType::All, &[0x90][..]), |key| (IteratorType::Gt, key));
        let mut count = 0;
        for tuple in self.store.range(self.tube.space, 0, iterator, key, 0)?.take(limit) {
            count += 1;
            recount.after = id_of(tuple).or(recount.after);
            recount.counts.add(Place::of(Side::read(tuple, layout).and_then(|side| side.state)));
        }
        if count == limit {
            self.tube.recount = Some(recount);
            return Ok((count, None));
        }
        let (found, kept) = (recount.counts.shown(), self.tube.counts.shown());
        let indexed = TaskCounts::of(|state| self.tasks().count(state))?;
        Ok((count, Some(Recounted { found, kept, indexed })))
    }
}

impl Queue {
    /// Counts everything again that the queue keeps, in all tubes at once; for tests. Outside a transaction.
    ///
    /// # Errors
    /// Which number of which tube is wrong.
    pub fn verify(&self, store: &Store) -> Result<(), String> {
        let mut total = KeptTasks::default();
        let all = self.tubes.slots().filter_map(|index| self.tubes.at(index));
        all.for_each(|tube| total.add_all(&tube.counts));
        if total.shown() != self.tubes.total().shown() {
            return Err(format!("all tubes: {total:?}, not {:?}", self.tubes.total()));
        }
        for index in self.tubes.indexes() {
            let Some(tube) = self.tubes.at(index) else { continue };
            // A tube whose space was dropped has no tasks to compare.
            if store.space(tube.space).is_err() {
                continue;
            }
            let of_tube = |error: Error| format!("tube '{}': {error}", tube.name);
            let (found, bytes) = tube.count_again(store).map_err(of_tube)?;
            let indexed = TaskCounts::of(|state| tube.tasks(store).count(state)).map_err(of_tube)?;
            let recounted = Recounted { found, kept: tube.counts.shown(), indexed };
            if !recounted.agrees() {
                return Err(format!("tube '{}': {recounted:?}", tube.name));
            }
            let kept = store.space(tube.space).map_or(0, lycosa_store::Space::bytes);
            if bytes != kept {
                return Err(format!("tube '{}': {bytes} bytes, not {kept}", tube.name));
            }
            for line in [Line::Takes, Line::Puts] {
                let waiting = self.common.waiters.of_tube(index);
                let waiting = waiting.filter(|(_, waiter)| waiter.wanted.line() == line).count();
                let kept = self.common.waiters.count(index, line);
                if u64::from(kept) != waiting as u64 {
                    return Err(format!("tube '{}': {waiting} waiting {line:?}, not {kept}", tube.name));
                }
            }
        }
        Ok(())
    }
}

impl Tube {
    /// Numbers and bytes of all tasks, by a walk over them.
    fn count_again(&self, store: &Store) -> Result<(TaskCounts, u64)> {
        let layout = self.kind.layout();
        let (mut counts, mut bytes) = (KeptTasks::default(), 0);
        for tuple in store.range(self.space, 0, IteratorType::All, &[0x90], 0)? {
            counts.add(Place::of(Side::read(tuple, layout).and_then(|side| side.state)));
            bytes += tuple.len() as u64;
        }
        Ok((counts.shown(), bytes))
    }
}
