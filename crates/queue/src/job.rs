//! Long calls: `kick` and `release_all` of more tasks than one turn may handle.
//!
//! A call that changes at most [`Queue::BATCH`] tasks does so at once, and so does one inside a transaction. A longer call
//! becomes a *job*: [`Queue::tick`] goes on with it in slices, each a transaction of its own, and the call is answered when
//! the job is done. Calls that come in between see what is done so far.
//!
//! A job ends whatever happens meanwhile: it changes tasks that were there when it was called. `kick` gets back at most as
//! many tasks as were buried then; `release_all` passes once over the tasks that were taken then, and leaves alone what was
//! taken since. A job outlives its connection; it ends with an error when its tube is dropped or the queue stops.

use std::ops::ControlFlow;

use lycosa_store::{IteratorType, Store, user};
use lycosa_tuple::mp;

use crate::arguments::{Number, string};
use crate::driver::Event;
use crate::error::Error;
use crate::procedure::Call;
use crate::task::{ShortKey, State, Task};
use crate::tube::{Slot, SlotIndex};
use crate::waiting::check_may_wait;
use crate::{Answer, Queue, Woken};

/// What a job still has to do.
#[derive(Debug, Clone, Copy)]
enum Work {
    Kick {
        /// Tasks that may still be kicked.
        left: u64,
        kicked: u64,
    },
    ReleaseAll {
        /// Priority and id of the task that was looked at last.
        after: Option<(u64, u64)>,
    },
}

/// A long call under way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Job {
    slot: Slot,
    connection: u64,
    request: u64,
    /// When it was called, µs since the epoch.
    since: u64,
    work: Work,
}

impl Job {
    /// Appends the values of the call, as far as it came; returns how many they are.
    fn write(&self, out: &mut Vec<u8>) -> u32 {
        match self.work {
            Work::Kick { kicked, .. } => {
                mp::write_uint(out, kicked);
                1
            }
            Work::ReleaseAll { .. } => 0,
        }
    }
}

impl Queue {
    /// `kick([count])`. Answers how many were kicked.
    pub(crate) fn kick(
        &mut self,
        store: &mut Store,
        call: &Call<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Answer, Error> {
        let limit = match call.arguments.get(0) {
            None | Some([0xc2]) => 1,
            Some(value) => {
                let number = Number::parse(value).or_else(|| Number::from_text(string(value)?));
                number.ok_or(Error::KickLimit)?.count()
            }
        };
        let left = limit.min(self.count(store, call.index, State::Buried)?);
        self.begin_job(store, call, (left, Work::Kick { left, kicked: 0 }), out)
    }

    /// `release_all()`
    pub(crate) fn release_all(
        &mut self,
        store: &mut Store,
        call: &Call<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Answer, Error> {
        let taken = self.count(store, call.index, State::Taken)?;
        self.begin_job(store, call, (taken, Work::ReleaseAll { after: None }), out)
    }

    fn count(&self, store: &Store, index: SlotIndex, state: State) -> Result<u64, Error> {
        let Some(tube) = self.tubes.at(index) else { return Err(Error::Stale) };
        tube.tasks(store).count(state)
    }

    /// Does what is short at once, and puts what is long among the jobs.
    fn begin_job(
        &mut self,
        store: &mut Store,
        call: &Call<'_>,
        (tasks, work): (u64, Work),
        out: &mut Vec<u8>,
    ) -> Result<Answer, Error> {
        let Call { index, now, caller, .. } = *call;
        let slot = self.tubes.slot(index);
        // What is done at once finds nothing that was taken since, whatever the clock has done before.
        let mut job =
            Job { slot, connection: caller.connection, request: caller.request, since: u64::MAX, work };
        if tasks > Self::BATCH as u64 && !store.in_transaction() {
            check_may_wait(&caller)?;
            job.since = now;
            self.jobs.push_back(job);
            return Ok(Answer::Parked);
        }
        while !self.advance_job(store, &mut job, now, Self::BATCH)?.1 {}
        Ok(Answer::Done { count: job.write(out) })
    }

    /// Goes on with the jobs in turn, for at most `budget` tasks. Returns how many were looked at.
    pub(crate) fn work_on_jobs(&mut self, store: &mut Store, now: u64, budget: usize) -> usize {
        let mut done = 0;
        while done < budget
            && let Some(mut job) = self.jobs.pop_front()
        {
            let limit = (budget - done).min(Self::BATCH);
            match self.advance_job(store, &mut job, now, limit) {
                Ok((count, false)) => {
                    done += count.max(1);
                    self.jobs.push_back(job);
                }
                Ok((count, true)) => {
                    done += count.max(1);
                    let mut values = Vec::new();
                    let count = job.write(&mut values);
                    self.answer_job(job, Ok((count, values)));
                }
                Err(error) => {
                    done += 1;
                    self.answer_job(job, Err(error));
                }
            }
            self.serve(store, now);
        }
        done
    }

    /// The queue stops: nothing is changed any more.
    pub(crate) fn stop_jobs(&mut self) {
        for job in std::mem::take(&mut self.jobs) {
            self.answer_job(job, Err(Error::ReadOnly));
        }
    }

    fn answer_job(&mut self, job: Job, result: Result<(u32, Vec<u8>), Error>) {
        let Job { connection, request, .. } = job;
        self.woken.push_back(Woken { connection, request, result });
    }

    /// One slice of a job: how many tasks it looked at, and whether the job is done.
    fn advance_job(
        &mut self,
        store: &mut Store,
        job: &mut Job,
        now: u64,
        limit: usize,
    ) -> Result<(usize, bool), Error> {
        if self.tubes.get(job.slot).is_none() {
            return Err(Error::TubeNotFound);
        }
        let index = job.slot.index;
        match &mut job.work {
            Work::Kick { left, kicked } => {
                let limit = usize::try_from(*left).map_or(limit, |left| left.min(limit));
                let count = self.each_in_state(store, index, State::Buried, limit, |queue, store, id| {
                    queue.change_task(store, index, id, Event::Kick, now, None)
                })?;
                *left -= count as u64;
                *kicked += count as u64;
                Ok((count, *left == 0 || count < limit))
            }
            Work::ReleaseAll { after } => {
                let taken = self.taken_after(store, index, *after, limit)?;
                self.transact(store, user::ADMIN, |queue, store| {
                    taken.iter().try_for_each(|&(_, id)| {
                        if queue.is_taken_since(store, index, id, job.since)? {
                            return Ok(());
                        }
                        queue.release_taken(store, index, id, now).map(drop)
                    })
                })?;
                *after = taken.last().copied();
                Ok((taken.len(), taken.len() < limit))
            }
        }
    }

    /// Priorities and ids of a tube's next taken tasks in the order of its index by state.
    fn taken_after(
        &self,
        store: &Store,
        index: SlotIndex,
        after: Option<(u64, u64)>,
        limit: usize,
    ) -> Result<Vec<(u64, u64)>, Error> {
        let Some(tube) = self.tubes.at(index) else { return Err(Error::Stale) };
        let layout = tube.driver.layout();
        let (iterator, key) = match after {
            None => (IteratorType::Ge, ShortKey::state(State::Taken, &[])),
            Some((pri, id)) if layout.timed => (IteratorType::Gt, ShortKey::state(State::Taken, &[pri, id])),
            Some((_, id)) => (IteratorType::Gt, ShortKey::state(State::Taken, &[id])),
        };
        let mut taken = Vec::new();
        store.scan(tube.space, tube.indexes.status, iterator, &key, &mut |tuple| match Task::read(
            tuple, layout,
        ) {
            Some(task) if task.state() == Some(State::Taken) && taken.len() < limit => {
                taken.push((task.pri, task.id));
                ControlFlow::Continue(())
            }
            _ => ControlFlow::Break(()),
        })?;
        Ok(taken)
    }

    /// Whether a task's owner has taken it after that moment.
    fn is_taken_since(&self, store: &Store, index: SlotIndex, id: u64, moment: u64) -> Result<bool, Error> {
        let Some(tube) = self.tubes.at(index) else { return Ok(false) };
        Ok(self.taken_at(store, (tube.id, id))?.is_some_and(|taken_at| taken_at > moment))
    }
}
