//! Undo: brings kept tasks back, and forgets them when the time of their job is over.

use lycosa_store::{Budget, Statement};
use lycosa_tuple::mp::Reader;

use super::bin::{Kept, Outcome};
use super::filter::MAX_TASK_BYTES;
use super::record::{Action, JobState, Record, UNDO_TIME};
use super::work::Slice;
use crate::account::Side;
use crate::error::{Error, Result};
use crate::statistics::Operation;
use crate::task::{NEXT_EVENT, State, Task};
use crate::turn::{JobsTurn, TubeTurn};

/// The cost of one task that is brought back or forgotten in a slice's budget, in tasks that are looked at.
const CHANGE: u32 = 4;

impl Slice<'_, '_> {
    /// Brings tasks back until the budget is spent. Returns the job that is undone.
    pub(super) fn undo(&mut self) -> Result<Option<Record>> {
        let source = self.job.undoes.map(|undoes| self.turn.common.bulk.read(self.turn.store, undoes));
        let Some(mut source) = source.transpose()?.flatten() else {
            self.job.void("the job that it undoes is not known any more", self.turn.now);
            return Ok(None);
        };
        let (mut is_first, mut bytes) = (true, 0);
        let is_end = loop {
            let (rows, is_all) = self.turn.common.bulk.bin.first_of(self.turn.store, source.id)?;
            let mut is_full = false;
            for row in &rows {
                let Some(kept) = Kept::read(row) else { continue };
                let waits_for_capacity = matches!(source.action, Action::Delete | Action::Move);
                if waits_for_capacity && self.turn.tube(self.index)?.capacity_left()? == 0 {
                    if is_first {
                        let what = format!("tube \"{}\" is full", self.job.tube);
                        return Err(Error::Unfit { method: "undo", what });
                    }
                    is_full = true;
                    break;
                }
                is_first = false;
                bytes += row.len();
                let outcome = self.bring_back(&source, &kept)?;
                let Self { turn, job, budget, .. } = self;
                match outcome {
                    Outcome::Undone => job.undone += 1,
                    Outcome::Touched => job.touched_since += 1,
                    Outcome::Gone => job.gone += 1,
                }
                job.scanned += 1;
                turn.common.bulk.bin.forget(turn.store, &mut source, (kept.id, row.len()))?;
                budget.spend_rows(CHANGE);
                budget.note_bytes(row.len());
            }
            if is_full || is_all {
                break !is_full;
            }
            if self.budget.is_spent() || bytes >= MAX_TASK_BYTES {
                break false;
            }
        };
        self.turn.common.bulk.write(self.turn.store, &source)?;
        if is_end {
            self.job.end(JobState::Done, self.turn.now);
        }
        Ok(Some(source))
    }

    fn bring_back(&mut self, source: &Record, kept: &Kept<'_>) -> Result<Outcome> {
        match source.action {
            Action::Kick => self.turn.tube(self.index)?.turn_back(kept, State::Ready, Some(Operation::Bury)),
            Action::Run => self.turn.tube(self.index)?.turn_back(kept, State::Ready, None),
            Action::Bury => self.turn.tube(self.index)?.turn_back(kept, State::Buried, Some(Operation::Kick)),
            Action::Reschedule => self.turn.tube(self.index)?.reschedule_back(source, kept),
            Action::Delete => self.turn.tube(self.index)?.put_back(kept),
            Action::Move => {
                let to = source.to_id.and_then(|to| self.turn.tubes.by_id_and_name(to, &source.to));
                let (Some(to), Some(moved_to)) = (to, kept.moved_to) else { return Ok(Outcome::Gone) };
                let mut destination = self.turn.tube(to)?;
                match destination.task(moved_to)?.map(|task| task.state()) {
                    None => return Ok(Outcome::Gone),
                    Some(Some(State::Ready | State::Delayed)) => {}
                    Some(_) => return Ok(Outcome::Touched),
                }
                destination.remove(moved_to, Operation::Delete, None)?;
                self.turn.tube(self.index)?.put_back(kept)
            }
            Action::Count | Action::Release | Action::Undo => Ok(Outcome::Gone),
        }
    }
}

impl JobsTurn<'_> {
    /// Forgets a part of what cannot be undone any more.
    pub(super) fn expire_kept(&mut self, budget: &mut Budget<'_>) {
        let due = self.turn.common.bulk.expiring.first().copied();
        let Some((_, id)) = due.filter(|(until, _)| *until <= self.turn.now) else { return };
        let expired = self.turn.transact(|turn| {
            let Some(mut source) = turn.common.bulk.read(turn.store, id)? else { return Ok(None) };
            if source.undo_until > turn.now {
                return Ok(Some(source));
            }
            if turn.common.bulk.is_being_undone(turn.store, id)? {
                source.undo_until = turn.now + UNDO_TIME;
                turn.common.bulk.write(turn.store, &source)?;
                return Ok(Some(source));
            }
            let mut bytes = 0;
            loop {
                let (rows, is_all) = turn.common.bulk.bin.first_of(turn.store, id)?;
                for row in &rows {
                    if let Some(kept) = Kept::read(row) {
                        turn.common.bulk.bin.forget(turn.store, &mut source, (kept.id, row.len()))?;
                    }
                    bytes += row.len();
                    budget.spend_rows(CHANGE);
                    budget.note_bytes(row.len());
                }
                if is_all {
                    (source.kept, source.kept_bytes, source.undo_until) = (0, 0, 0);
                    break;
                }
                if budget.is_spent() || bytes >= MAX_TASK_BYTES {
                    break;
                }
            }
            turn.common.bulk.write(turn.store, &source)?;
            Ok(Some(source))
        });
        self.note_done(id, expired, "the end of the time to undo a job");
    }
}

impl TubeTurn<'_> {
    /// Gives a task that is still in the state in which the job left it its former state, and that state's deadline. It counts as the
    /// operation that has the same effect. No operation delays a task again, so that counts as nothing.
    fn turn_back(
        &mut self,
        kept: &Kept<'_>,
        left_in: State,
        operation: Option<Operation>,
    ) -> Result<Outcome> {
        let layout = self.tube.kind.layout();
        let Some(present) = self.task(kept.id)? else { return Ok(Outcome::Gone) };
        if present.state() != Some(left_in) {
            return Ok(Outcome::Touched);
        }
        let Some(former) = Task::read(kept.tuple, layout) else { return Ok(Outcome::Gone) };
        // Its session is not its owner any more.
        let state = former.state().filter(|state| *state != State::Taken).unwrap_or(State::Ready);
        let is_delayed = state == State::Delayed;
        let next_event = if is_delayed { former.times.next_event } else { present.times.death() };
        let (name, pri, old_event) = (present.utube.to_vec(), present.pri, present.times.next_event);
        let side = |state, next_event| Some(Side { state: Some(state), next_event, pri, utube: &name });
        let (old, new) = (side(left_in, old_event), side(state, next_event));
        let Self { store, tube, common, .. } = self;
        let numbers: &[_] = if tube.kind.layout().timed { &[(NEXT_EVENT, next_event)] } else { &[] };
        common.assignments.set_unread(Some(state), numbers);
        let changed = common.assignments.carry_out(store, tube.space, kept.id)?;
        let tuple = changed.filter(|_| tube.observed).map(<[u8]>::to_vec);
        self.account_rarely(kept.id, (old, new), operation, tuple)?;
        self.restore_attempts(kept)?;
        Ok(Outcome::Undone)
    }

    /// Puts a task that was removed into the tube again, under its id. One that was taken is ready.
    fn put_back(&mut self, kept: &Kept<'_>) -> Result<Outcome> {
        let layout = self.tube.kind.layout();
        let Some(former) = Task::read(kept.tuple, layout) else { return Ok(Outcome::Gone) };
        if former.is_expired(layout, self.now) {
            return Ok(Outcome::Gone);
        }
        if self.tasks().get(kept.id)?.is_some() {
            return Ok(Outcome::Touched);
        }
        let mut tuple = kept.tuple.to_vec();
        if former.state() == Some(State::Taken) {
            let mut reader = Reader::new(&tuple);
            if reader.array().is_ok() && reader.skip().is_ok() {
                let status = reader.position() + 1;
                tuple[status] = State::Ready.byte();
            }
        }
        let Self { store, tube, .. } = self;
        let stored = store.execute(&Statement::Insert { space: tube.space, tuple: &tuple })?;
        let stored = stored.filter(|_| tube.observed).map(<[u8]>::to_vec);
        let new = Side::read(&tuple, tube.kind.layout());
        self.account_rarely(kept.id, (None, new), Some(Operation::Put), stored)?;
        self.restore_attempts(kept)?;
        Ok(Outcome::Undone)
    }

    fn restore_attempts(&mut self, kept: &Kept<'_>) -> Result<()> {
        let key = self.key(kept.id);
        self.common.attempts.restore(self.store, key, kept.attempts.clone())
    }
}
