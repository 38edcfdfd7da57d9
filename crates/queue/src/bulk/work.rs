//! Slices of jobs: one transaction that looks at the next tasks of a job and changes the tasks that its filter admits.

use std::ops::ControlFlow;

use lycosa_store::Budget;
use lycosa_tuple::mp;

use super::bin;
use super::filter::{Filter, MAX_TASK_BYTES};
use super::record::{Action, JobState, Record};
use crate::attempts::Record as Attempts;
use crate::background::{PORTION, PORTION_BYTES, WALK};
use crate::driver::{Event, PutOptions};
use crate::error::{Error, Result};
use crate::statistics::Operation;
use crate::task::{State, Task};
use crate::time::{MAX_TIMEOUT, MAX_TIMEOUT_SECONDS, MICROSECONDS};
use crate::tube::handle::TubeIndex;
use crate::turn::{JobsTurn, TubeTurn, Turn};

/// The cost of one change in a slice's budget, in tasks that are looked at.
const CHANGE: u32 = 3;

impl Action {
    /// The only state whose tasks it changes.
    pub(super) const fn only(self) -> Option<State> {
        match self {
            Self::Kick => Some(State::Buried),
            Self::Release => Some(State::Taken),
            Self::Run => Some(State::Delayed),
            Self::Count | Self::Reschedule | Self::Bury | Self::Delete | Self::Move | Self::Undo => None,
        }
    }

    /// Whether it changes no task of a state.
    pub(super) fn leaves(self, state: State) -> bool {
        let is_rescheduled = matches!(state, State::Ready | State::Delayed);
        self.only().is_some_and(|only| only != state) || self == Self::Reschedule && !is_rescheduled
    }

    /// Whether it changes a task of that state that the filter admits. Tasks at work are left to their workers unless the filter
    /// names their state.
    fn changes(self, task: &Task<'_>, filter: &Filter) -> bool {
        let state = task.state();
        match self {
            Self::Count => true,
            Self::Undo => false,
            Self::Kick | Self::Release | Self::Run => state == self.only(),
            Self::Reschedule => state.is_some_and(|state| !self.leaves(state)),
            Self::Bury | Self::Delete | Self::Move => match state {
                Some(State::Buried) => self != Self::Bury,
                Some(State::Taken) => filter.names_state(task.id, State::Taken),
                Some(State::Ready | State::Delayed) => true,
                Some(State::Done) | None => false,
            },
        }
    }

    /// Whether what it does can be undone: a task cannot be given back to the session that had taken it.
    pub(super) const fn can_be_undone(self) -> bool {
        !matches!(self, Self::Count | Self::Release | Self::Undo)
    }
}

impl Record {
    /// The filter with the only state whose tasks the job changes. A job that changes priorities walks by id: a walk by priority
    /// would meet a task again.
    pub(super) fn narrowed(&self, mut filter: Filter) -> Filter {
        filter.state = filter.state.or(self.action.only());
        filter.is_by_id = self.schedule.pri.is_some();
        filter
    }
}

/// Tasks that a job is to change.
struct Matching {
    ids: Vec<u64>,
    looked_at: u32,
    /// Bytes of payloads that were looked into, or belong to tasks to change.
    bytes: usize,
}

impl JobsTurn<'_> {
    /// Whether a job has something to do now.
    pub(crate) fn is_due(&self) -> bool {
        self.turn.common.bulk.next_deadline().is_some_and(|due| due <= self.turn.now)
    }

    /// Does one slice of the job whose turn it is, or forgets a part of what cannot be undone any more.
    pub(crate) fn work(&mut self, budget: &mut Budget<'_>) {
        let before = budget.rows();
        if let Err(error) = self.turn.common.bulk.refresh(self.turn.store, budget) {
            self.turn.common.log_failure("the state of a job", &error);
        }
        if budget.is_spent() {
            return;
        }
        let bulk = &self.turn.common.bulk;
        let is_due = |&(_, next): &(&u64, &u64)| *next <= self.turn.now;
        let behind = bulk.running.range(bulk.last + 1..).find(is_due);
        match behind.or_else(|| bulk.running.iter().find(is_due)).map(|(id, _)| *id) {
            Some(id) => {
                self.turn.common.bulk.last = id;
                self.work_on(id, budget);
            }
            None => self.expire_kept(budget),
        }
        if budget.rows() == before {
            budget.spend_rows(1);
        }
    }

    fn work_on(&mut self, id: u64, budget: &mut Budget<'_>) {
        let worked = self.turn.transact(|turn| {
            let Some(mut job) = turn.common.bulk.read(turn.store, id)? else { return Ok(None) };
            let (before, mut source) = (job.changed + job.undone, None);
            if job.state == JobState::Running {
                source = turn.jobs().slice(&mut job, budget)?;
                turn.common.bulk.write(turn.store, &job)?;
            }
            let changed = job.changed + job.undone - before;
            Ok(Some((job, source, changed)))
        });
        match worked {
            Ok(Some((job, source, changed))) => {
                source.iter().for_each(|source| self.turn.common.bulk.note(source, 0));
                let pause = (changed * MICROSECONDS).checked_div(job.rate).unwrap_or(0);
                let next = if pause > 0 { self.turn.now.saturating_add(pause) } else { 0 };
                self.turn.common.bulk.note(&job, next);
                self.turn.waiters().serve();
            }
            Ok(None) => self.turn.common.bulk.forget(id),
            Err(error) => self.hold(id, &error),
        }
    }

    /// Pauses a job that has met an error; its last slice has changed nothing.
    fn hold(&mut self, id: u64, error: &Error) {
        let held = self.turn.transact(|turn| {
            let Some(mut job) = turn.common.bulk.read(turn.store, id)? else { return Ok(None) };
            job.state = JobState::Paused;
            job.error = error.to_string();
            turn.common.bulk.write(turn.store, &job)?;
            Ok(Some(job))
        });
        self.note_done(id, held, "the pause of a job");
    }

    /// Notes what a transaction has made of a job; a job that is not stored, or whose transaction failed, is forgotten.
    pub(super) fn note_done(&mut self, id: u64, done: Result<Option<Record>>, what: &str) {
        match done {
            Ok(Some(job)) => self.turn.common.bulk.note(&job, 0),
            Ok(None) => self.turn.common.bulk.forget(id),
            Err(error) => {
                // It is found again at the next start.
                self.turn.common.bulk.forget(id);
                self.turn.common.log_failure(what, &error);
            }
        }
    }

    /// Does a slice of a running job. Returns the job that it has undone a part of.
    fn slice(&mut self, job: &mut Record, budget: &mut Budget<'_>) -> Result<Option<Record>> {
        let Turn { tubes, common, now, .. } = &self.turn;
        let Some(index) = tubes.by_id_and_name(job.tube_id, &job.tube) else {
            job.void("the tube was dropped", *now);
            return Ok(None);
        };
        let mut destination = None;
        if job.action == Action::Move {
            destination = job.to_id.and_then(|to| tubes.by_id_and_name(to, &job.to));
            if destination.is_none() {
                job.void(&format!("tube \"{}\" was dropped", job.to), *now);
                return Ok(None);
            }
        }
        let kept_of_others = common.bulk.kept_of_others(job.id);
        let mut slice = Slice { turn: self.turn.reborrow(), index, destination, kept_of_others, job, budget };
        if slice.job.action == Action::Undo { slice.undo() } else { slice.apply().map(|()| None) }
    }
}

/// A slice of a job: a part of the open transaction.
pub(super) struct Slice<'a, 'b> {
    pub(super) turn: Turn<'a>,
    pub(super) job: &'a mut Record,
    /// The job's tube.
    pub(super) index: TubeIndex,
    /// The tube to which it moves tasks.
    destination: Option<TubeIndex>,
    /// Bytes in the bin of all other jobs.
    kept_of_others: u64,
    pub(super) budget: &'a mut Budget<'b>,
}

impl Slice<'_, '_> {
    /// Changes tasks until the budget is spent.
    fn apply(&mut self) -> Result<()> {
        // At most a tenth of a second's tasks, so that a rate is kept in small steps.
        let mut left = if self.job.rate > 0 { self.job.rate.div_ceil(10) } else { u64::MAX };
        if let Some(to) = self.destination.filter(|_| !self.job.dry_run) {
            let capacity = self.turn.tube(to)?.capacity_left()?;
            if capacity == 0 {
                let what = format!("tube \"{}\" is full", self.job.to);
                return Err(Error::Unfit { method: "move", what });
            }
            left = left.min(capacity);
        }
        let Self { job, .. } = self;
        let tube = self.turn.tube(self.index)?.tube;
        let filter = Filter::parse(job.action.name(), Some(&job.filter), tube, job.began)?;
        let filter = job.narrowed(filter);
        let mut bytes = 0;
        loop {
            let (matching, is_end) = self.look(&filter, left)?;
            self.budget.spend_rows(matching.looked_at);
            self.budget.note_bytes(matching.bytes);
            bytes += matching.bytes;
            for id in matching.ids {
                self.change(id)?;
                left -= 1;
                self.budget.spend_rows(CHANGE);
            }
            if is_end {
                self.job.end(JobState::Done, self.turn.now);
                return Ok(());
            }
            if left == 0 || self.budget.is_spent() || bytes >= MAX_TASK_BYTES {
                return Ok(());
            }
        }
    }

    /// Looks at the next tasks of a job: those to change, `left` at most, and whether no further ones exist.
    fn look(&mut self, filter: &Filter, left: u64) -> Result<(Matching, bool)> {
        let Self { turn, job, index, budget, .. } = self;
        let turn = turn.tube(*index)?;
        let (action, schedule, below, dry_run) = (job.action, job.schedule, job.below, job.dry_run);
        let limit = usize::try_from(left).map_or(PORTION, |left| left.min(PORTION));
        let (mut ids, mut matched, mut bytes) = (Vec::new(), 0, 0);
        let walk = WALK.min(budget.rows().max(1) as usize);
        let walked = turn.walk(filter, &job.position, walk, &mut |task| {
            let is_changed = action.changes(task, filter) && (schedule.is_empty() || schedule.changes(task));
            if task.id < below && is_changed && turn.is_admitted(filter, task)? {
                matched += 1;
                if !dry_run {
                    ids.push(task.id);
                    bytes += task.data.len();
                }
            }
            let is_full = ids.len() >= limit || bytes >= PORTION_BYTES;
            Ok(if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        job.scanned += walked.looked_at as u64;
        job.matched += matched;
        job.position = walked.position;
        let looked_at = u32::try_from(walked.looked_at).unwrap_or(u32::MAX);
        Ok((Matching { ids, looked_at, bytes: bytes.max(walked.bytes) }, walked.is_end))
    }

    /// Changes one task that the filter has just admitted, and keeps what it was.
    fn change(&mut self, id: u64) -> Result<()> {
        let Self { turn, job, index, .. } = self;
        let mut tube = turn.tube(*index)?;
        let Some(before) = tube.tasks().get(id)?.map(<[u8]>::to_vec) else { return Ok(()) };
        let attempts = tube.common.attempts.of(tube.store, tube.key(id))?;
        let mut moved_to = None;
        let is_changed = match job.action {
            Action::Kick => tube.kick_one(id, None)?,
            Action::Release => tube.release_taken(id)?,
            Action::Run => tube.change(id, Event::DelayOver, None)?,
            Action::Reschedule => tube.reschedule(id, job.schedule)?,
            Action::Bury => {
                tube.note_failure(id, Some(&*job.reason).filter(|reason| !reason.is_empty()))?;
                tube.change(id, Event::Bury, None)?
            }
            Action::Delete => tube.remove(id, Operation::Delete, None)?,
            Action::Move => {
                let moved = self.destination.map(|to| self.move_task(to, id, &before));
                moved_to = moved.transpose()?;
                moved_to.is_some()
            }
            Action::Count | Action::Undo => false,
        };
        if is_changed {
            self.job.changed += 1;
            self.keep((id, &before), &attempts, moved_to)?;
        }
        Ok(())
    }

    /// Keeps what a task was, if it can be brought back and the bin has space.
    fn keep(&mut self, (id, tuple): (u64, &[u8]), attempts: &Attempts, moved_to: Option<u64>) -> Result<()> {
        let Self { turn: Turn { store, tubes, common, .. }, job, .. } = self;
        let is_temporary = tubes.at(self.index).is_none_or(|tube| tube.options.temporary);
        if is_temporary || !job.action.can_be_undone() {
            return Ok(());
        }
        let row = bin::row((job.id, id), tuple, attempts, moved_to);
        let bytes = row.len() as u64;
        if self.kept_of_others + job.kept_bytes + bytes > bin::MAX_BYTES {
            return Ok(());
        }
        common.bulk.bin.keep(store, &row)?;
        job.kept += 1;
        job.kept_bytes += bytes;
        Ok(())
    }

    /// Puts a task into another tube and removes it here. Priority, sub-queue, remaining times and attempts go with it, as far as
    /// the tube has such. Returns its new id.
    fn move_task(&mut self, to: TubeIndex, id: u64, tuple: &[u8]) -> Result<u64> {
        let TubeTurn { tube, store, common, now, .. } = self.turn.tube(self.index)?;
        let layout = tube.kind.layout();
        let Some(task) = Task::read(tuple, layout) else { return Err(crate::operation::not_found(id)) };
        let attempts = common.attempts.of(store, (tube.id, id))?;
        let mut fields = Vec::new();
        let mut field = |write: &dyn Fn(&mut Vec<u8>)| {
            let start = fields.len();
            write(&mut fields);
            start..fields.len()
        };
        let seconds = |out: &mut Vec<u8>, span: u64| match span {
            MAX_TIMEOUT.. => mp::write_uint(out, MAX_TIMEOUT_SECONDS),
            span => mp::write_double(out, span as f64 / MICROSECONDS as f64),
        };
        let (mut pri, mut ttl, mut ttr, mut delay, mut utube) = (None, None, None, None, None);
        if layout.timed {
            let is_delayed = task.state() == Some(State::Delayed);
            let wait = if is_delayed { task.times.next_event.saturating_sub(now) } else { 0 };
            // A put adds the delay to the ttl.
            let left = task.times.death().saturating_sub(now).saturating_sub(wait).max(1);
            pri = Some(field(&|out| mp::write_uint(out, task.pri)));
            ttl = Some(field(&|out| {
                seconds(out, if task.times.ttl >= MAX_TIMEOUT { MAX_TIMEOUT } else { left });
            }));
            ttr = Some(field(&|out| seconds(out, task.times.ttr)));
            delay = (wait > 0).then(|| field(&|out| seconds(out, wait)));
        }
        if layout.utube.is_some() {
            utube = Some(field(&|out| mp::write_str(out, task.utube)));
        }
        let given = |range: &Option<std::ops::Range<usize>>| range.clone().map(|range| &fields[range]);
        let options = PutOptions {
            ttl: given(&ttl),
            ttr: given(&ttr),
            pri: given(&pri),
            delay: given(&delay),
            utube: given(&utube),
            ..PutOptions::default()
        };
        let mut destination = self.turn.tube(to)?;
        let new_id = destination.tube.next_id.unwrap_or(u64::MAX);
        destination.put(Some(task.data), options, &mut Vec::new())?;
        let key = destination.key(new_id);
        destination.common.attempts.restore(destination.store, key, attempts)?;
        self.turn.tube(self.index)?.remove(id, Operation::Delete, None)?;
        Ok(new_id)
    }
}
