//! Long calls at work: they begin, go on in slices, and are answered when they are done.

use lycosa_store::{Budget, IteratorType, Store};

use super::{LongCall, Work};
use crate::arguments::{Number, string};
use crate::background::{PORTION, WALK};
use crate::bulk::Search;
use crate::command::Call;
use crate::error::{Error, Result};
use crate::task::{ShortKey, State, Task};
use crate::tube::Tube;
use crate::turn::{LongCallsTurn, TubeTurn, Turn};
use crate::waiting::check_may_wait;
use crate::{Answer, Woken};

impl LongCallsTurn<'_> {
    /// `kick([count])`. Answers how many were kicked.
    pub(crate) fn kick(&mut self, call: &Call<'_>, out: &mut Vec<u8>) -> Result<Answer> {
        let limit = match call.arguments.get(0) {
            None | Some([0xc2]) => 1,
            Some(value) => {
                let number = Number::parse(value).or_else(|| Number::from_text(string(value)?));
                number.ok_or(Error::KickLimit)?.count()
            }
        };
        let left = limit.min(self.turn.tube(call.index)?.tasks().count(State::Buried)?);
        self.begin(call, (left, Work::Kick { left, kicked: 0 }), out)
    }

    /// `release_all()`
    pub(crate) fn release_all(&mut self, call: &Call<'_>, out: &mut Vec<u8>) -> Result<Answer> {
        let taken = self.turn.tube(call.index)?.tasks().count(State::Taken)?;
        self.begin(call, (taken, Work::ReleaseAll(None)), out)
    }

    /// Does a short call at once. A long one begins here.
    pub(crate) fn begin(
        &mut self,
        call: &Call<'_>,
        (tasks, work): (u64, Work),
        out: &mut Vec<u8>,
    ) -> Result<Answer> {
        let Call { index, caller, command, .. } = *call;
        let request = command.request;
        let handle = self.turn.tubes.handle(index);
        // A call that is done at once meets no task that was taken after the call, so `since` is no bound: the clock may have jumped.
        let mut long = LongCall { handle, connection: caller.session, request, since: u64::MAX, work };
        if tasks > Turn::BATCH as u64 && !self.turn.store.in_transaction() {
            check_may_wait(caller)?;
            long.since = self.turn.now;
            self.turn.common.long_calls.push_back(long);
            return Ok(Answer::Parked);
        }
        while !self.advance(&mut long, &mut Budget::of_rows(Turn::BATCH as u32))? {}
        Ok(Answer::Done { count: long.write(out) })
    }

    /// Looks at a page's first tasks at once, and goes on with the rest among the long calls.
    pub(crate) fn find(&mut self, call: &Call<'_>, out: &mut Vec<u8>) -> Result<Answer> {
        let Call { index, caller, command, .. } = *call;
        let request = command.request;
        let tube = self.turn.tube(index)?;
        let mut search = Box::new(tube.search(call)?);
        let may_wait = caller.may_wait && !tube.store.in_transaction();
        let mut budget = Budget::of_rows(if may_wait { Search::AT_ONCE } else { u32::MAX });
        if search.advance(&tube, &mut budget)? {
            search.write(out);
            return Ok(Answer::one());
        }
        let (handle, since) = (self.turn.tubes.handle(index), self.turn.now);
        let long = LongCall { handle, connection: caller.session, request, since, work: Work::Find(search) };
        self.turn.common.long_calls.push_back(long);
        Ok(Answer::Parked)
    }

    /// Goes on with the first of the long calls, for one slice.
    pub(crate) fn work(&mut self, budget: &mut Budget<'_>) {
        let Some(mut long) = self.turn.common.long_calls.pop_front() else { return };
        let before = budget.rows();
        let advanced = self.advance(&mut long, budget);
        if budget.rows() == before {
            // A slice that fails at once, or finds nothing to do, takes its time too.
            budget.spend_rows(1);
        }
        match advanced {
            Ok(false) if long.is_search() => self.turn.common.long_calls.push_front(long),
            Ok(false) => self.turn.common.long_calls.push_back(long),
            Ok(true) => {
                let mut values = Vec::new();
                let count = long.write(&mut values);
                self.answer(&long, Ok((count, values)));
            }
            Err(error) => self.answer(&long, Err(error)),
        }
        self.turn.waiters().serve();
    }

    /// Forgets calls of a connection that change nothing: one request, or all. Whether there was one.
    pub(crate) fn forget_searches(&mut self, connection: u64, request: Option<u64>) -> bool {
        let calls = &mut self.turn.common.long_calls;
        let count = calls.len();
        let is_meant = |long: &LongCall| {
            long.is_search()
                && long.connection == connection
                && request.is_none_or(|request| long.request == request)
        };
        calls.retain(|long| !is_meant(long));
        calls.len() < count
    }

    /// The queue stops: nothing is changed any more.
    pub(crate) fn stop(&mut self) {
        for long in std::mem::take(&mut self.turn.common.long_calls) {
            if let (Work::Recount(_), Some(tube)) = (&long.work, self.turn.tubes.at_mut(long.handle.index)) {
                tube.recount = None;
            }
            self.answer(&long, Err(Error::ReadOnly));
        }
    }

    fn answer(&mut self, long: &LongCall, result: Result<(u32, Vec<u8>)>) {
        let LongCall { connection, request, .. } = *long;
        self.turn.common.woken.push_back(Woken { connection, request, result });
    }

    /// One slice of a call, in portions until the budget is spent. Whether the call is done.
    fn advance(&mut self, long: &mut LongCall, budget: &mut Budget<'_>) -> Result<bool> {
        if self.turn.tubes.get(long.handle).is_none() {
            return Err(Error::TubeNotFound);
        }
        let index = long.handle.index;
        if let Work::Find(search) = &mut long.work {
            return search.advance(&self.turn.tube(index)?, budget);
        }
        let size = if matches!(long.work, Work::Recount(_)) { WALK } else { PORTION };
        self.turn.transact_at(index, |tube| {
            loop {
                let limit = size.min(budget.rows().max(1) as usize);
                let (count, is_over) = long.portion(tube, limit)?;
                budget.spend_rows(u32::try_from(count).unwrap_or(u32::MAX));
                // A portion of nothing waits for another call.
                if is_over || count == 0 || budget.is_spent() {
                    return Ok(is_over);
                }
            }
        })
    }
}

impl LongCall {
    const fn is_search(&self) -> bool {
        matches!(self.work, Work::Find(_))
    }

    /// Handles at most `limit` tasks: how many it was, and whether the call is done.
    fn portion(&mut self, tube: &mut TubeTurn<'_>, limit: usize) -> Result<(usize, bool)> {
        let (since, request) = (self.since, self.request);
        match &mut self.work {
            Work::Find(_) => Ok((0, true)),
            Work::Kick { left, kicked } => {
                let limit = usize::try_from(*left).map_or(limit, |left| left.min(limit));
                let count = tube.each_in_state(State::Buried, limit, |tube, id| tube.kick_one(id, None))?;
                *left -= count as u64;
                *kicked += count as u64;
                Ok((count, *left == 0 || count < limit))
            }
            Work::ReleaseAll(after) => {
                let taken = tube.tube.taken_after(tube.store, *after, limit)?;
                for &(_, id) in &taken {
                    if !tube.is_taken_since(id, since)? {
                        tube.release_taken(id)?;
                    }
                }
                *after = taken.last().copied();
                Ok((taken.len(), taken.len() < limit))
            }
            Work::Recount(found) => {
                let (count, recounted) = tube.recount_portion(request, limit)?;
                *found = recounted;
                Ok((count, recounted.is_some()))
            }
        }
    }
}

impl TubeTurn<'_> {
    /// Whether a task's owner has taken it after that time. A time that is still to come is of before a clock was set back.
    fn is_taken_since(&self, id: u64, since: u64) -> Result<bool> {
        let taken_at = self.common.owners.taken_at(self.store, self.key(id))?;
        Ok(taken_at.is_some_and(|taken_at| taken_at > since && taken_at <= self.now))
    }
}

impl Tube {
    /// Priorities and ids of the next taken tasks in the order of the index by state.
    pub(crate) fn taken_after(
        &self,
        store: &Store,
        after: Option<(u64, u64)>,
        limit: usize,
    ) -> Result<Vec<(u64, u64)>> {
        let layout = self.kind.layout();
        let (iterator, key) = match after {
            None => (IteratorType::Ge, ShortKey::state(State::Taken, &[])),
            Some((pri, id)) if layout.timed => (IteratorType::Gt, ShortKey::state(State::Taken, &[pri, id])),
            Some((_, id)) => (IteratorType::Gt, ShortKey::state(State::Taken, &[id])),
        };
        let tuples = store.range(self.space, self.indexes.status, iterator, &key, 0)?;
        let tasks = tuples.map_while(|tuple| Task::read(tuple, layout));
        let taken = tasks.take_while(|task| task.state() == Some(State::Taken)).take(limit);
        Ok(taken.map(|task| (task.pri, task.id)).collect())
    }
}
