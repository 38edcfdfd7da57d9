//! One operation, one transaction; and what memory makes of it.
//!
//! Statements go to the store, which can undo them. What the process knows beside the store is of three kinds:
//!
//! - *computed*: the candidates of sub-queues, the bounds of deadlines. [`Queue::settle`] reads the transaction's changes
//!   (whoever made them: an operation of the queue, plain DML, a truncation) and computes them anew from the store,
//!   before the commit, and once more if the transaction is rolled back. Where there are no sub-queues operations say
//!   themselves what they do ([`Queue::note_task`]), and only other changes are read;
//! - *done and undone*: next ids, sessions of connections, owners of tasks, new tubes. They change at once, because later
//!   operations of the same transaction must see them, and [`Undo`] takes them back;
//! - *deferred*: counters, events, closing sessions, dropped tubes. They wait in [`Pending`] for the commit.
//!
//! A transaction may be the queue's own, of one operation, or one that a program has opened around several. In the
//! latter case the operation is a savepoint's worth of it and fails alone.

use std::ops::Range;

use lycosa_store::{SpaceId, Statement, Store, UserId, system, user};
use lycosa_tuple::mp::{self, Reader};
use lycosa_tuple::tuple::TupleRef;

use crate::deadline::Deadlines;
use crate::driver::candidates::{Candidate, Touch};
use crate::error::Error;
use crate::owners::{Owner, TaskKey};
use crate::session::SessionId;
use crate::statistics::Operation;
use crate::system::SystemSpaces;
use crate::task::{Layout, State, Task, id_of, string_key};
use crate::time::NEVER;
use crate::tube::{SlotIndex, Tube, Tubes};
use crate::waiter::{Line, Waiters};
use crate::{Queue, TaskEvent};

/// How to take back what an operation has changed in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Undo {
    /// The tube's next id was another.
    NextId { slot: SlotIndex, previous: Option<u64> },
    /// The connection had another session, or none.
    Session { connection: u64, previous: Option<SessionId> },
    /// Another owner, or none, was noted of the task.
    Owner { task: TaskKey, previous: Option<Owner> },
    /// The tube was not there.
    Tube { slot: SlotIndex },
    /// The queue's spaces had other ids, and the other mode.
    Mode { spaces: SystemSpaces, in_replicaset: bool },
}

/// What the open transaction will do to memory.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// Up to where its changes were read; None: nothing yet.
    settled: Option<lycosa_store::Savepoint>,
    counts: Vec<(SlotIndex, Operation)>,
    pub(crate) events: Vec<TaskEvent>,
    pub(crate) undo: Vec<Undo>,
    pub(crate) closing: Vec<SessionId>,
    pub(crate) dropped: Vec<SlotIndex>,
    /// Sub-queues whose candidates were computed.
    touched: Touched,
    /// Tubes whose candidates were all forgotten.
    emptied: Vec<SlotIndex>,
}

/// A place in [`Pending`] to which a failed operation returns.
#[derive(Debug, Clone, Copy, Default)]
struct Mark {
    settled: Option<lycosa_store::Savepoint>,
    counts: usize,
    events: usize,
    undo: usize,
    closing: usize,
    dropped: usize,
}

impl Pending {
    pub(crate) fn count(&mut self, slot: SlotIndex, operation: Operation) {
        self.counts.push((slot, operation));
    }

    fn mark(&self) -> Mark {
        Mark {
            settled: self.settled,
            counts: self.counts.len(),
            events: self.events.len(),
            undo: self.undo.len(),
            closing: self.closing.len(),
            dropped: self.dropped.len(),
        }
    }
}

/// Sub-queues of several tubes and what happened in them, without an allocation for each name.
#[derive(Debug, Default)]
struct Touched {
    names: Vec<u8>,
    entries: Vec<(SlotIndex, Range<usize>, Touch)>,
}

impl Touched {
    fn push(&mut self, slot: SlotIndex, name: &[u8], touch: Touch) {
        let start = self.names.len();
        self.names.extend_from_slice(name);
        self.entries.push((slot, start..self.names.len(), touch));
    }

    fn clear(&mut self) {
        self.names.clear();
        self.entries.clear();
    }

    /// Sorts the sub-queues. One in which several things happened is left once, with anything having happened.
    fn deduplicate(&mut self) {
        if self.entries.len() > 1 {
            let names = &self.names;
            let key = |(slot, range, _): &(SlotIndex, Range<usize>, Touch)| (*slot, &names[range.clone()]);
            self.entries.sort_unstable_by(|a, b| key(a).cmp(&key(b)));
            self.entries.dedup_by(|again, kept| {
                let same = key(again) == key(kept);
                if same {
                    kept.2 = Touch::Anyhow;
                }
                same
            });
        }
    }

    fn iter(&self) -> impl Iterator<Item = (SlotIndex, &[u8], Touch)> {
        self.entries.iter().map(|(slot, range, touch)| (*slot, &self.names[range.clone()], *touch))
    }
}

/// What [`Queue::settle`] has found and still has to do; kept for its buffers.
#[derive(Debug, Default)]
pub(crate) struct Found {
    touched: Touched,
    truncated: Vec<SlotIndex>,
    /// Tasks that are no longer taken, by tube and id.
    freed: Vec<(u64, u64)>,
}

/// Who made the changes of the open transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// Operations of the queue: owners are cleared, spaces beside the tube's are truncated.
    Queue,
    /// Anyone.
    Foreign,
}

/// The parts of a queue that reading a change needs.
struct Reading<'a> {
    tubes: &'a mut Tubes,
    deadlines: &'a mut Deadlines,
    waiters: &'a Waiters,
    undo: &'a mut Vec<Undo>,
    ready: &'a mut Vec<SlotIndex>,
    found: &'a mut Found,
    origin: Origin,
}

impl Reading<'_> {
    fn change(&mut self, index: SlotIndex, change: &lycosa_store::Change<'_>) {
        let Some(tube) = self.tubes.at_mut(index) else { return };
        let layout = tube.driver.layout();
        if self.origin == Origin::Queue && layout.utube.is_none() {
            return;
        }
        let (old, new) = (change.gone(), change.came());
        let old = old.as_deref();
        if old.is_none()
            && let Some(id) = new.and_then(id_of)
        {
            keep_next_id(tube, index, id, self.undo);
        }
        let tube = tube.id;
        let read = |tuple| Task::read(tuple, layout);
        let (old, is) = (old.and_then(read), new.and_then(read));
        self.freed(tube, old.as_ref(), is.as_ref());
        if layout.utube.is_some() {
            self.touch_either(index, old.as_ref(), is.as_ref());
        }
        let Self { deadlines, waiters, ready, .. } = self;
        let mut prospects = Prospects { deadlines, waiters, ready };
        match is {
            Some(task) => prospects.note(index, layout, task.state(), task.times.next_event),
            None if new.is_none() => prospects.note_gone(index),
            None => {}
        }
    }

    /// Notes a task that was taken and is no longer, if that was not the queue's doing.
    fn freed(&mut self, tube: u64, old: Option<&Task<'_>>, new: Option<&Task<'_>>) {
        let is_taken = |task: &Task<'_>| task.state() == Some(State::Taken);
        if self.origin == Origin::Foreign
            && let Some(task) = old.filter(|task| is_taken(task))
            && !new.is_some_and(is_taken)
        {
            self.found.freed.push((tube, task.id));
        }
    }

    /// A task of a sub-queue, or of two, has changed.
    fn touch_either(&mut self, index: SlotIndex, old: Option<&Task<'_>>, new: Option<&Task<'_>>) {
        if old.zip(new).is_some_and(|(old, new)| old.utube != new.utube) {
            self.touch(index, old, None);
            self.touch(index, None, new);
        } else {
            self.touch(index, old, new);
        }
    }

    /// A task of one sub-queue has changed, come or gone.
    fn touch(&mut self, index: SlotIndex, old: Option<&Task<'_>>, new: Option<&Task<'_>>) {
        let Some(name) = new.or(old).map(|task| task.utube) else { return };
        let candidates = self.tubes.at(index).and_then(|tube| tube.driver.candidates());
        if let Some(touch) = candidates.and_then(|candidates| candidates.touch(old, new)) {
            self.found.touched.push(index, name, touch);
        }
    }

    fn truncation(&mut self, row: Option<&[u8]>) {
        let space = row.and_then(|row| Reader::new(TupleRef::trusted(row).field(0)?).uint().ok());
        let Some(index) = space.and_then(|id| self.tubes.by_space(SpaceId::try_from(id).ok()?)) else {
            return;
        };
        self.found.truncated.push(index);
        self.ready.push(index);
    }
}

/// What is known of what will happen in tubes. It may say too much, after a rollback for example, never too little.
struct Prospects<'a> {
    deadlines: &'a mut Deadlines,
    waiters: &'a Waiters,
    ready: &'a mut Vec<SlotIndex>,
}

impl Prospects<'_> {
    /// A task has come or has changed.
    #[inline]
    fn note(&mut self, index: SlotIndex, layout: &Layout, state: Option<State>, next_event: u64) {
        if layout.timed && state.is_some() {
            self.deadlines.lower(index, next_event);
        }
        // Whether a sub-queue's task can be taken is decided with its candidate.
        let is_free = layout.utube.is_none() && state == Some(State::Ready);
        if is_free && self.waiters.first(index, Line::Takes).is_some() {
            self.is_ready(index);
        }
    }

    /// A task has gone.
    #[inline]
    fn note_gone(&mut self, index: SlotIndex) {
        if self.waiters.first(index, Line::Puts).is_some() {
            self.is_ready(index);
        }
    }

    /// Who waits in the tube is to be looked after. A batch says so for each of its tasks.
    fn is_ready(&mut self, index: SlotIndex) {
        if self.ready.last() != Some(&index) {
            self.ready.push(index);
        }
    }
}

impl Queue {
    fn prospects(&mut self) -> Prospects<'_> {
        Prospects { deadlines: &mut self.deadlines, waiters: &self.waiters, ready: &mut self.ready }
    }

    /// To be called when an operation has stored or changed a task, so that [`Queue::settle`] need not read it again
    /// where there are no sub-queues.
    #[inline]
    pub(crate) fn note_task(
        &mut self,
        index: SlotIndex,
        layout: &Layout,
        state: Option<State>,
        next_event: u64,
    ) {
        if layout.utube.is_none() {
            self.prospects().note(index, layout, state, next_event);
        }
    }

    /// As [`Queue::note_task`], when it has removed one.
    #[inline]
    pub(crate) fn note_gone(&mut self, index: SlotIndex, layout: &Layout) {
        if layout.utube.is_none() {
            self.prospects().note_gone(index);
        }
    }
}

/// An id was used: the next one is larger.
pub(crate) fn keep_next_id(tube: &mut Tube, index: SlotIndex, id: u64, undo: &mut Vec<Undo>) {
    if tube.next_id.is_some_and(|next| next <= id) {
        undo.push(Undo::NextId { slot: index, previous: tube.next_id });
        tube.next_id = id.checked_add(1);
    }
}

impl Queue {
    /// Opens a transaction in which `acting` acts, for a program or for statements that are not the queue's own. It stays
    /// open until [`Self::commit`] or [`Self::rollback`]; calls in between become parts of it, and no waiting call is
    /// served before the commit. Statements go to the store directly.
    ///
    /// # Panics
    /// A transaction is open already: ask [`Store::in_transaction`].
    pub fn begin(&mut self, store: &mut Store, acting: UserId) {
        store.begin(acting);
    }

    /// Commits the open transaction and does what follows from it: counts, closes sessions, serves waiting calls.
    ///
    /// # Errors
    /// A statement that keeps the queue's spaces in step was refused, for want of memory for example. The transaction is
    /// rolled back then.
    pub fn commit(&mut self, store: &mut Store, now: u64) -> Result<(), Error> {
        if let Err(error) = self.settle(store, Origin::Foreign) {
            self.rollback(store);
            return Err(error);
        }
        store.commit();
        self.apply_pending(store);
        self.release_at_once(store, now);
        self.serve(store, now);
        Ok(())
    }

    /// Rolls the open transaction back.
    pub fn rollback(&mut self, store: &mut Store) {
        store.rollback();
        self.revert_to(store, Mark::default());
    }

    /// The present place in the open transaction.
    #[must_use]
    pub fn savepoint(&self, store: &Store) -> Savepoint {
        Savepoint { store: store.savepoint(), mark: self.pending.mark() }
    }

    /// Undoes everything since the savepoint, which must be of this transaction and not undone itself.
    pub fn rollback_to(&mut self, store: &mut Store, savepoint: Savepoint) {
        store.rollback_to(savepoint.store);
        self.revert_to(store, savepoint.mark);
    }

    /// Executes one statement on behalf of `acting`: in a transaction of its own, or as a part of the open one. Appends
    /// the tuple that the statement returns to `out`. True if there is one.
    ///
    /// # Errors
    /// As [`Store::execute`] and [`Self::commit`]. Nothing has changed then, and nothing was appended.
    pub fn execute(
        &mut self,
        store: &mut Store,
        acting: UserId,
        statement: &Statement<'_>,
        now: u64,
        out: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        self.show(store, statement.space())?;
        if store.in_transaction() {
            let former = store.set_user(acting);
            let executed = store.execute(statement).map(|tuple| append(tuple, out));
            store.set_user(former);
            return Ok(executed?);
        }
        let start = out.len();
        store.begin(acting);
        let executed = match store.execute(statement) {
            Ok(tuple) => Ok(append(tuple, out)),
            Err(error) => {
                self.rollback(store);
                return Err(error.into());
            }
        };
        self.commit(store, now).inspect_err(|_| out.truncate(start))?;
        executed
    }

    /// Runs one operation in a transaction in which `acting` acts: in one of its own that is committed, or as a part
    /// of the open one. If it fails, nothing has happened.
    pub(crate) fn transact<T>(
        &mut self,
        store: &mut Store,
        acting: UserId,
        operation: impl FnOnce(&mut Self, &mut Store) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if store.in_transaction() {
            return self.transact_inside(store, acting, operation);
        }
        store.begin(acting);
        let result = operation(self, store).and_then(|value| {
            self.settle(store, Origin::Queue)?;
            Ok(value)
        });
        if result.is_ok() {
            store.commit();
            self.apply_pending(store);
        } else {
            self.rollback(store);
        }
        result
    }

    fn transact_inside<T>(
        &mut self,
        store: &mut Store,
        acting: UserId,
        operation: impl FnOnce(&mut Self, &mut Store) -> Result<T, Error>,
    ) -> Result<T, Error> {
        // What a program has done before is not the queue's doing.
        self.settle(store, Origin::Foreign)?;
        let savepoint = self.savepoint(store);
        let former = store.set_user(acting);
        let result = operation(self, store).and_then(|value| {
            self.settle(store, Origin::Queue)?;
            Ok(value)
        });
        store.set_user(former);
        if result.is_err() {
            self.rollback_to(store, savepoint);
        }
        result
    }

    /// Reads the changes since the last call in this transaction and brings into step what is computed from them.
    pub(crate) fn settle_own(&mut self, store: &mut Store) -> Result<(), Error> {
        self.settle(store, Origin::Queue)
    }

    fn settle(&mut self, store: &mut Store, origin: Origin) -> Result<(), Error> {
        if !self.keeps_in_step() {
            return Ok(());
        }
        if origin == Origin::Queue && !self.has_to_read(store) {
            self.pending.settled = Some(store.savepoint());
            return Ok(());
        }
        let mut found = std::mem::take(&mut self.found);
        let result = self.read_changes(store, origin, &mut found);
        found.touched.clear();
        found.truncated.clear();
        found.freed.clear();
        self.found = found;
        self.pending.settled = Some(store.savepoint());
        result
    }

    /// Whether anything was changed that the queue's operations do not say themselves ([`Queue::note_task`]).
    #[inline]
    fn has_to_read(&self, store: &Store) -> bool {
        let is_read = |change: lycosa_store::Change<'_>| {
            let tube = self.tubes.by_space(change.space).and_then(|index| self.tubes.at(index));
            match tube {
                Some(tube) => tube.driver.layout().utube.is_some(),
                None => change.space == system::TRUNCATE,
            }
        };
        store.changes_since(self.pending.settled).any(is_read)
    }

    fn read_changes(&mut self, store: &mut Store, origin: Origin, found: &mut Found) -> Result<(), Error> {
        let mut reading = Reading {
            tubes: &mut self.tubes,
            deadlines: &mut self.deadlines,
            waiters: &self.waiters,
            undo: &mut self.pending.undo,
            ready: &mut self.ready,
            found,
            origin,
        };
        let mut read = |change: lycosa_store::Change<'_>| {
            if let Some(index) = reading.tubes.by_space(change.space) {
                reading.change(index, &change);
            } else if change.space == system::TRUNCATE {
                reading.truncation(change.came());
            }
        };
        store.changes_since(self.pending.settled).for_each(&mut read);
        let former = store.set_user(user::ADMIN);
        let result = self.follow(store, origin, found);
        store.set_user(former);
        result
    }

    fn follow(&mut self, store: &mut Store, origin: Origin, found: &mut Found) -> Result<(), Error> {
        for &index in &found.truncated {
            if let Some(tube) = self.tubes.at_mut(index)
                && let Some(candidates) = tube.driver.candidates_mut()
            {
                candidates.clear();
                self.pending.emptied.push(index);
            }
            if origin == Origin::Foreign {
                self.clear_beside(store, index)?;
            }
        }
        for &(tube, task) in &found.freed {
            self.forget_owner(store, (tube, task))?;
        }
        found.touched.deduplicate();
        for (index, name, touch) in found.touched.iter() {
            self.settle_sub_queue(store, index, name, touch)?;
        }
        Ok(())
    }

    fn settle_sub_queue(
        &mut self,
        store: &mut Store,
        index: SlotIndex,
        name: &[u8],
        touch: Touch,
    ) -> Result<(), Error> {
        let Some(tube) = self.tubes.at_mut(index) else { return Ok(()) };
        let (space, indexes) = (tube.space, tube.indexes);
        let layout = tube.driver.layout();
        let Some(candidates) = tube.driver.candidates_mut() else { return Ok(()) };
        let tasks = crate::driver::Tasks { store, space, indexes };
        let old = candidates.get(name);
        let new = candidates.compute(tasks, layout, name, old, touch)?;
        if new == old {
            return Ok(());
        }
        self.pending.touched.push(index, name, Touch::Anyhow);
        candidates.exchange(name, old, new);
        if let Some(buffer) = tube.buffer {
            let columns = layout.ready_buffer.map_or(0, |buffer| buffer.fields.len());
            show_candidate(store, buffer, columns, name, new)?;
        }
        if new.is_some()
            && self.ready.last() != Some(&index)
            && self.waiters.first(index, Line::Takes).is_some()
        {
            self.ready.push(index);
        }
        Ok(())
    }

    /// Removes what lies beside a tube's space: owners of its tasks, the rows of its ready buffer.
    pub(crate) fn clear_beside(&mut self, store: &mut Store, index: SlotIndex) -> Result<(), Error> {
        let Some(tube) = self.tubes.at(index) else { return Ok(()) };
        let (id, buffer) = (tube.id, tube.buffer);
        self.forget_owners(store, id)?;
        if let Some(buffer) = buffer
            && !store.space(buffer)?.is_empty()
        {
            lycosa_store::ddl::truncate(store, buffer)?;
        }
        Ok(())
    }

    fn apply_pending(&mut self, store: &mut Store) {
        for (slot, operation) in self.pending.counts.drain(..) {
            if let Some(tube) = self.tubes.at_mut(slot) {
                tube.counters.add(operation);
            }
        }
        if !self.pending.events.is_empty() {
            self.events.extend(self.pending.events.drain(..));
        }
        self.pending.undo.clear();
        self.pending.touched.clear();
        self.pending.emptied.clear();
        self.pending.settled = None;
        for session in self.pending.closing.drain(..) {
            self.sessions.close(session);
        }
        while let Some(index) = self.pending.dropped.pop() {
            self.forget_tube(store, index);
        }
    }

    fn revert_to(&mut self, store: &Store, mark: Mark) {
        let pending = &mut self.pending;
        pending.settled = mark.settled;
        pending.counts.truncate(mark.counts);
        pending.events.truncate(mark.events);
        pending.closing.truncate(mark.closing);
        pending.dropped.truncate(mark.dropped);
        while self.pending.undo.len() > mark.undo
            && let Some(undo) = self.pending.undo.pop()
        {
            self.undo(undo);
        }
        recompute(&mut self.tubes, store, &self.pending);
        if !store.in_transaction() {
            self.pending.touched.clear();
            self.pending.emptied.clear();
        }
    }

    fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::NextId { slot, previous } => {
                if let Some(tube) = self.tubes.at_mut(slot) {
                    tube.next_id = previous;
                }
            }
            Undo::Owner { task, previous } => self.owners.restore(task, previous),
            Undo::Session { connection, previous } => _ = self.sessions.bind(connection, previous),
            Undo::Tube { slot } => {
                self.deadlines.set(slot, NEVER);
                self.tubes.remove(slot);
            }
            Undo::Mode { spaces, in_replicaset } => {
                self.spaces = spaces;
                self.configuration.in_replicaset = in_replicaset;
            }
        }
    }
}

/// A place in the open transaction to which store and queue can return together. See [`Queue::savepoint`].
#[derive(Debug, Clone, Copy)]
pub struct Savepoint {
    store: lycosa_store::Savepoint,
    mark: Mark,
}

/// Appends what a statement returned. True if it returned a tuple.
fn append(tuple: Option<&[u8]>, out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(tuple.unwrap_or_default());
    tuple.is_some()
}

/// Computes anew the candidates that the transaction touched, from what the store now holds. The store has just been
/// read for the same sub-queues, so an error can only mean that a tube's space is gone: then there are no candidates.
fn recompute(tubes: &mut Tubes, store: &Store, pending: &Pending) {
    for &index in &pending.emptied {
        if let Some(tube) = tubes.at_mut(index) {
            rebuild_candidates(tube, store);
        }
    }
    for (index, name, touch) in pending.touched.iter() {
        let Some(tube) = tubes.at_mut(index) else { continue };
        let (space, indexes) = (tube.space, tube.indexes);
        let layout = tube.driver.layout();
        if let Some(candidates) = tube.driver.candidates_mut() {
            let tasks = crate::driver::Tasks { store, space, indexes };
            let old = candidates.get(name);
            let new = candidates.compute(tasks, layout, name, old, touch).unwrap_or(None);
            candidates.exchange(name, old, new);
        }
    }
}

/// Computes all candidates of a tube; none if its space is gone.
pub(crate) fn rebuild_candidates(tube: &mut Tube, store: &Store) {
    let (space, indexes) = (tube.space, tube.indexes);
    let layout = tube.driver.layout();
    if let Some(candidates) = tube.driver.candidates_mut() {
        let tasks = crate::driver::Tasks { store, space, indexes };
        if candidates.rebuild(tasks, layout).is_err() {
            candidates.clear();
        }
    }
}

/// Index `utube` of a ready buffer.
const BUFFER_BY_NAME: u32 = 1;

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
