//! The account of a change: updates the queue's memory beside the store when a task changes.
//!
//! Every operation of the queue emits a [`TaskChange`] after its statement, and changes that came another way (DML, a
//! program's transaction) are read from the open transaction into the same value. One function consumes it,
//! [`TubeTurn::account`]: next ids, counters, events, deadlines, candidates of sub-queues, calls that wait, owners.
//!
//! Counters and events wait in [`Pending`](crate::transaction::Pending) for the commit. What changes at once is taken back
//! by [`Undo`]; deadlines and the list of tubes to serve may say too much after a rollback, never too little.

use std::ops::Range;

use lycosa_store::{Change, IteratorType, SpaceId, Statement, Store, system, user};
use lycosa_tuple::mp::{self, Reader};
use lycosa_tuple::tuple::TupleRef;

use crate::counted::{Counted, Event, Place};
use crate::driver::Tasks;
use crate::driver::candidates::{Candidate, Growth, Touch};
use crate::error::Error;
use crate::leases::Leases;
use crate::owners::Owner;
use crate::statistics::Operation;
use crate::system::{SystemSpaces, reset_sequence};
use crate::task::{Layout, State, Task, TaskKey, id_of, prospect, string_key, taken_key};
use crate::transaction::Undo;
use crate::tube::handle::TubeIndex;
use crate::tube::{Tube, Tubes};
use crate::turn::{Common, TubeTurn, Turn};
use crate::waiter::Line;
use crate::{Client, TaskEvent};

/// One task before or after a change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Side<'a> {
    /// The state, unless a user has written another status.
    pub(crate) state: Option<State>,
    /// µs since the epoch; 0 in tubes without deadlines.
    pub(crate) next_event: u64,
    pub(crate) pri: u64,
    /// Name of the sub-queue; empty in tubes without.
    pub(crate) utube: &'a [u8],
}

impl<'a> Side<'a> {
    pub(crate) fn of(task: &Task<'a>) -> Self {
        Self { state: task.state(), next_event: task.times.next_event, pri: task.pri, utube: task.utube }
    }

    /// Reads a stored tuple; of tubes without sub-queues only the fields that count. None if its fields are not those of
    /// the layout.
    #[inline]
    pub(crate) fn read(tuple: &'a [u8], layout: &Layout) -> Option<Self> {
        if layout.utube.is_some() {
            return Task::read(tuple, layout).map(|task| Self::of(&task));
        }
        let (state, next_event) = prospect(tuple, layout)?;
        Some(Self { state, next_event, pri: 0, utube: &[] })
    }

    fn candidate(&self, id: u64) -> Candidate {
        Candidate { pri: self.pri, id }
    }
}

/// One change of one task.
#[derive(Debug)]
pub(crate) struct TaskChange<'a> {
    pub(crate) id: u64,
    /// None: the task is new.
    pub(crate) old: Option<Side<'a>>,
    /// None: the task is gone.
    pub(crate) new: Option<Side<'a>>,
    /// What the queue did. None: a program's or a master's row did it, or it counts as nothing.
    pub(crate) operation: Option<Operation>,
    /// Whose session owns the task from now on, and since when (µs since the epoch).
    pub(crate) taken_by: Option<(Client, u64)>,
    /// When the task was put, if it is taken now and the tube knows: µs since the epoch. Otherwise 0.
    pub(crate) created: u64,
    /// The stored tuple, the last one of a task that is gone; only of a tube that is observed.
    pub(crate) tuple: Option<Vec<u8>>,
}

impl TaskChange<'_> {
    /// Where the task was counted, and where it is from now on.
    #[inline]
    fn places(&self) -> [Place; 2] {
        let place =
            |side: &Option<Side<'_>>| side.as_ref().map_or(Place::Nowhere, |side| Place::of(side.state));
        [place(&self.old), place(&self.new)]
    }
}

/// The effect of a task's change on one sub-queue.
#[derive(Debug)]
pub(crate) struct Touched<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) touch: Touch,
    pub(crate) growth: Growth,
}

/// What a change of a task means for its sub-queue, or for both if it has moved. After a change that is not `alone` others
/// may have followed, so that only the store knows which task is first.
pub(crate) fn touches<'a>(
    id: u64,
    old: Option<Side<'a>>,
    new: Option<Side<'a>>,
    alone: bool,
) -> [Option<Touched<'a>>; 2] {
    let is_in = |side: Option<Side<'_>>, state| i32::from(side.is_some_and(|side| side.state == Some(state)));
    let growth = |old, new| Growth {
        taken: is_in(new, State::Taken) - is_in(old, State::Taken),
        ready: is_in(new, State::Ready) - is_in(old, State::Ready),
    };
    if let (Some(from), Some(to)) = (old, new)
        && from.utube != to.utube
    {
        let touched = |name, growth| Some(Touched { name, touch: Touch::Anyhow, growth });
        return [touched(from.utube, growth(old, None)), touched(to.utube, growth(None, new))];
    }
    let touched = new.or(old).zip(touch(id, old, new, alone));
    [touched.map(|(side, touch)| Touched { name: side.utube, touch, growth: growth(old, new) }), None]
}

/// The effect of a task's change on its sub-queue. None: no effect.
fn touch(id: u64, old: Option<Side<'_>>, new: Option<Side<'_>>, alone: bool) -> Option<Touch> {
    let state = |side: Option<Side<'_>>| side.and_then(|side| side.state);
    let candidate = |side: Option<Side<'_>>| side.map(|side| side.candidate(id));
    let touch = match (state(old), state(new)) {
        (_, Some(State::Taken)) | (Some(State::Taken), _) => Touch::Anyhow,
        (Some(State::Ready), Some(State::Ready)) if candidate(old) == candidate(new) => return None,
        (Some(State::Ready), Some(State::Ready)) => Touch::Anyhow,
        (Some(State::Ready), _) => Touch::Left(candidate(old)?),
        (_, Some(State::Ready)) => Touch::Arrived(candidate(new)?),
        _ => return None,
    };
    Some(if alone { touch } else { Touch::Anyhow })
}

/// A change that the queue did not make itself, in buffers of its own.
#[derive(Debug)]
enum Foreign {
    Task { index: TubeIndex, id: Option<u64>, old: Option<Kept>, new: Option<Kept> },
    Truncation(TubeIndex),
}

/// A [`Side`] whose sub-queue's name is in [`Read::names`].
#[derive(Debug)]
struct Kept {
    state: Option<State>,
    next_event: u64,
    pri: u64,
    utube: Range<usize>,
}

/// The read part of the open transaction; kept for its buffers.
#[derive(Debug, Default)]
pub(crate) struct Read {
    changes: Vec<Foreign>,
    names: Vec<u8>,
    /// Tasks whose owner's row or lease was changed or deleted.
    disowned: Vec<TaskKey>,
    /// All rows of owners were deleted.
    has_lost_owners: bool,
}

impl Read {
    fn read(&mut self, change: &Change<'_>, tubes: &Tubes, taken: SpaceId, leases: &mut Leases) {
        if let Some(index) = tubes.by_space(change.space) {
            let Some(tube) = tubes.at(index) else { return };
            let layout = tube.kind.layout();
            let (gone, came) = (change.gone(), change.came());
            let id = came.or(gone.as_deref()).and_then(id_of);
            let (old, new) = (self.keep(gone.as_deref(), layout), self.keep(came, layout));
            self.changes.push(Foreign::Task { index, id, old, new });
        } else if change.space == taken || leases.is_in(change.space) {
            let gone = change.gone();
            let tasks = [gone.as_deref(), change.came()].into_iter().flatten().filter_map(taken_key);
            self.disowned.extend(tasks);
            leases.look_again();
        } else if change.space == system::TRUNCATE
            && let Some(row) = change.came()
            && let Some(id) = TupleRef::trusted(row).field(0).and_then(|id| Reader::new(id).uint().ok())
            && let Ok(id) = SpaceId::try_from(id)
        {
            self.has_lost_owners |= id == taken || leases.is_in(id);
            self.changes.extend(tubes.by_space(id).map(Foreign::Truncation));
        }
    }

    fn keep(&mut self, tuple: Option<&[u8]>, layout: &Layout) -> Option<Kept> {
        let task = Task::read(tuple?, layout)?;
        let start = self.names.len();
        self.names.extend_from_slice(task.utube);
        let Side { state, next_event, pri, .. } = Side::of(&task);
        Some(Kept { state, next_event, pri, utube: start..self.names.len() })
    }

    fn side(&self, kept: &Option<Kept>) -> Option<Side<'_>> {
        let Kept { state, next_event, pri, utube } = kept.as_ref()?;
        let utube = &self.names[utube.clone()];
        Some(Side { state: *state, next_event: *next_event, pri: *pri, utube })
    }
}

impl TubeTurn<'_> {
    /// As [`Self::account`], for the rare callers, whose changes take no task.
    #[inline(never)]
    pub(crate) fn account_rarely(
        &mut self,
        id: u64,
        (old, new): (Option<Side<'_>>, Option<Side<'_>>),
        operation: Option<Operation>,
        tuple: Option<Vec<u8>>,
    ) -> Result<(), Error> {
        self.account(TaskChange { id, old, new, operation, taken_by: None, created: 0, tuple })
    }

    /// Takes a change into account, inside the transaction that made it.
    // Put, change and removal come here, and each knows half of the answers.
    #[expect(clippy::inline_always, reason = "measured")]
    #[inline(always)]
    pub(crate) fn account(&mut self, mut change: TaskChange<'_>) -> Result<(), Error> {
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

    fn account_sub_queues(&mut self, change: &TaskChange<'_>) -> Result<(), Error> {
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
    fn account_sub_queue(&mut self, name: &[u8], touch: Touch, growth: Growth) -> Result<(), Error> {
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
    pub(crate) fn account_truncation(&mut self) -> Result<(), Error> {
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
    pub(crate) fn account_foreign(&mut self) -> Result<(), Error> {
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
    fn find_disowned(&mut self) -> Result<(), Error> {
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

/// Index `utube` of a ready buffer.
pub(crate) const BUFFER_BY_NAME: u32 = 1;

/// Makes the ready buffer show `candidate` for the sub-queue.
pub(crate) fn show_candidate(
    store: &mut Store,
    buffer: SpaceId,
    columns: usize,
    name: &[u8],
    candidate: Option<Candidate>,
) -> Result<(), Error> {
    let key = string_key(name);
    if store.get(buffer, BUFFER_BY_NAME, &key)?.is_some() {
        store.execute(&Statement::Delete { space: buffer, index: BUFFER_BY_NAME, key: &key })?;
    }
    if let Some(Candidate { pri, id }) = candidate {
        let mut row = Vec::with_capacity(name.len() + 24);
        mp::write_array(&mut row, columns as u32);
        mp::write_uint(&mut row, id);
        mp::write_str(&mut row, name);
        if columns > 2 {
            mp::write_uint(&mut row, pri);
        }
        store.execute(&Statement::Replace { space: buffer, tuple: &row })?;
    }
    Ok(())
}
