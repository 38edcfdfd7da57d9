//! Applies accounts to the queue's memory: the queue's own changes one by one, others as they are read from the open transaction.

use lycosa_store::{IteratorType, Store, system, user};
use lycosa_tuple::mp::Reader;

use super::{Foreign, Side, TaskChange, Touched, show_candidate, touches};
use crate::TaskEvent;
use crate::counted::{Counted, Event, Place};
use crate::driver::Tasks;
use crate::driver::candidates::{Growth, Touch};
use crate::error::Result;
use crate::owners::owner::Owner;
use crate::statistics::Operation;
use crate::system::{SystemSpaces, reset_sequence};
use crate::task::{State, id_of};
use crate::transaction::Undo;
use crate::tube::Tube;
use crate::turn::{Common, TubeTurn, Turn};
use crate::waiter::Line;

impl TubeTurn<'_> {
    /// As [`Self::account`], for the rare callers, whose changes take no task.
    #[inline(never)]
    pub(crate) fn account_rarely(
        &mut self,
        id: u64,
        (old, new): (Option<Side<'_>>, Option<Side<'_>>),
        operation: Option<Operation>,
        tuple: Option<Vec<u8>>,
    ) -> Result<()> {
        self.account(TaskChange { id, old, new, operation, taken_by: None, created: 0, tuple })
    }

    /// Takes a change into account, inside the transaction that made it.
    // Put, change and removal come here, and each knows half of the answers.
    #[expect(clippy::inline_always, reason = "measured")]
    #[inline(always)]
    pub(crate) fn account(&mut self, mut change: TaskChange<'_>) -> Result<()> {
        let Self { store, tube, index, common, .. } = self;
        let (key, layout) = ((tube.id, change.id), tube.kind.layout());
        if change.old.is_none()
            && let Some(next) = tube.next_id.filter(|next| *next <= change.id)
        {
            common.pending.undo.push(Undo::NextId { tube: *index, previous: Some(next) });
            tube.next_id = change.id.checked_add(1);
        }
        if let Some(operation) = change.operation
            && let Some(tuple) = change.tuple.take()
        {
            common.pending.events.extend(events(&tube.name, operation, change.new.is_some(), tuple));
        }
        match change.new {
            Some(new) => {
                if layout.timed && new.state.is_some() {
                    common.deadlines.lower(*index, new.next_event);
                }
                if layout.utube.is_none() && new.state == Some(State::Ready) {
                    common.serve_later(*index, Line::Takes);
                }
            }
            None => {
                common.serve_later(*index, Line::Puts);
                common.attempts.forget(store, key)?;
            }
        }
        if layout.utube.is_some() {
            self.account_sub_queues(&change)?;
        }
        let Self { store, common, index, .. } = self;
        let mut since = change.created;
        let [from, to] = change.places();
        if from == Place::Taken && to != Place::Taken {
            since = common.owners.forget(store, &mut common.pending, key)?;
        }
        let event = change.operation.map_or(Event::Silent, Event::Operation);
        let counts = &mut common.pending.counts;
        counts.push(Counted { tube: *index, event, from, to, id: change.id, since });
        if change.operation == Some(Operation::Ttl) {
            counts.push(Counted::event(*index, Event::Operation(Operation::Delete)));
        }
        if let Some((client, moment)) = change.taken_by {
            let session = common.ensure_session(store, client)?;
            let name = common.take_name;
            let owner = Owner { connection: client.connection, session, moment, name };
            common.owners.set(store, &mut common.pending, key, owner)?;
        }
        Ok(())
    }

    fn account_sub_queues(&mut self, change: &TaskChange<'_>) -> Result<()> {
        if change.operation == Some(Operation::Put)
            && let (Some(new), Some(meter)) = (change.new, &mut self.tube.meter)
        {
            meter.sub_queues.get_or_insert_default().note(new.utube);
        }
        let touches = touches(change.id, change.old, change.new, change.operation.is_some());
        touches
            .into_iter()
            .flatten()
            .try_for_each(|Touched { name, touch, growth }| self.account_sub_queue(name, touch, growth))
    }

    /// Adjusts the numbers of a sub-queue's tasks, and computes its candidate anew.
    fn account_sub_queue(&mut self, name: &[u8], touch: Touch, growth: Growth) -> Result<()> {
        let Tube { space, indexes, buffer, driver, kind, .. } = &mut *self.tube;
        let layout = kind.layout();
        let Some(candidates) = driver.candidates_mut() else { return Ok(()) };
        let tasks = Tasks { store: self.store, space: *space, indexes: *indexes };
        let Some((old, new)) = candidates.adjust(tasks, layout, name, touch, growth)? else { return Ok(()) };
        self.common.pending.undo_candidate(self.index, name, old);
        if new == old.candidate {
            return Ok(());
        }
        if let Some(buffer) = *buffer {
            let columns = layout.buffer_columns();
            self.store.acting_as(user::ADMIN, |store| show_candidate(store, buffer, columns, name, new))?;
        }
        if new.is_some() {
            self.common.serve_later(self.index, Line::Takes);
        }
        Ok(())
    }

    /// The tube's space was truncated, by the tube or by a statement: nothing lies beside it any more, and ids begin at 0. They go
    /// on behind tasks that the same transaction has inserted since.
    pub(crate) fn account_truncation(&mut self) -> Result<()> {
        let Self { store, tube, index, common, now } = self;
        let last = store.first(tube.space, 0, IteratorType::Le, &[0x90])?.and_then(id_of);
        let value = |store: &Store| tube.sequence.and_then(|sequence| store.sequence(sequence)?.value);
        if let Some(sequence) = tube.sequence
            && value(store).is_some()
        {
            reset_sequence(store, sequence)?;
            if let Some(last) = last.and_then(|last| i64::try_from(last).ok()) {
                store.sequence_set(sequence, last)?;
            }
        }
        common.bulk.void(store, tube.id, "the tube was truncated", *now)?;
        let next_id = last.map_or(Some(0), |last| last.checked_add(1));
        let previous = std::mem::replace(&mut tube.next_id, next_id);
        common.pending.undo.push(Undo::NextId { tube: *index, previous });
        common.pending.counts.push(Counted::truncation(*index));
        common.ready.push(*index);
        if let Some(candidates) = tube.driver.candidates_mut() {
            common.pending.undo_candidates(*index, candidates.take());
        }
        common.owners.forget_tube(store, &mut common.pending, tube.id)?;
        common.attempts.forget_tube(store, tube.id)?;
        if let Some(buffer) = tube.buffer
            && !store.space(buffer)?.is_empty()
        {
            lycosa_store::ddl::truncate(store, buffer)?;
        }
        Ok(())
    }
}

impl Turn<'_> {
    /// Accounts for the open transaction's changes since the last call that the queue has not made itself.
    ///
    /// For a running queue. A queue that does not run uses [`Self::follow_changes`].
    pub(crate) fn account_foreign(&mut self) -> Result<()> {
        let mut read = std::mem::take(&mut self.common.read);
        let mut is_defined = false;
        for change in self.store.changes_since(self.common.pending.accounted) {
            let SystemSpaces { queue, taken, .. } = self.common.spaces;
            read.read(&change, self.tubes, taken, &mut self.common.owners.leases);
            is_defined |= change.space == system::SPACE;
            self.common.pending.redefined.note_any(&change, self.store, self.tubes, queue);
            self.common.pending.redefined.note_pause(&change, self.common.pauses.space());
        }
        if is_defined {
            self.common.owners.leases.find_new(self.store);
        }
        let result = self.as_admin(|turn| {
            read.changes.iter().try_for_each(|change| match change {
                Foreign::Truncation(index) => turn.tube(*index)?.account_truncation(),
                Foreign::Task { index, id, old, new } => {
                    let (old, new) = (read.side(old), read.side(new));
                    let id = id.unwrap_or_default();
                    turn.tube(*index)?.account_rarely(id, (old, new), None, None)
                }
            })
        });
        let result = result.and_then(|()| {
            let Common { owners, pending, .. } = &mut *self.common;
            read.disowned.iter().try_for_each(|&task| owners.note_row(self.store, pending, task))?;
            self.common.pending.disowned.append(&mut read.disowned);
            if read.has_lost_owners { self.find_disowned() } else { Ok(()) }
        });
        read.changes.clear();
        read.names.clear();
        read.disowned.clear();
        read.has_lost_owners = false;
        self.common.read = read;
        self.common.pending.accounted = Some(self.store.savepoint());
        result
    }

    /// Looks for all taken tasks without an owner.
    fn find_disowned(&mut self) -> Result<()> {
        for tube in self.tubes.iter() {
            let tasks = tube.ids_in_state(self.store, State::Taken, &mut |task| {
                Ok(!self.common.owners.has(self.store, (tube.id, task))?)
            })?;
            let Common { owners, pending, .. } = &mut *self.common;
            for task in tasks {
                owners.note_row(self.store, pending, (tube.id, task))?;
                pending.disowned.push((tube.id, task));
            }
        }
        Ok(())
    }
}

/// The events of an operation, for observers.
fn events(tube: &str, operation: Operation, is_there: bool, mut tuple: Vec<u8>) -> Vec<TaskEvent> {
    let event = |operation, tuple| TaskEvent { tube: tube.to_owned(), operation, tuple };
    if is_there {
        return vec![event(operation, tuple)];
    }
    let mut reader = Reader::new(&tuple);
    if reader.array().is_ok() && reader.skip().is_ok() && reader.rest().first() == Some(&0xa1) {
        let status = reader.position() + 1;
        tuple[status] = State::Done.byte();
    }
    match operation {
        Operation::Ttl => vec![event(Operation::Delete, tuple.clone()), event(Operation::Ttl, tuple)],
        _ => vec![event(Operation::Delete, tuple)],
    }
}
