//! What can be done with tasks.
//!
//! Each method of a tube is one function here. Those that change something have two halves: the outer one looks at
//! arguments and rights and opens a transaction, the inner one (`…_in_transaction`, [`Queue::change_task`],
//! [`Queue::remove_task`]) emits the statements. Timers and sessions use the inner halves.

use lycosa_store::{IteratorType, Statement, Store, user};
use lycosa_tuple::mp;

use crate::account::{Side, TaskChange};
use crate::arguments::{Arguments, Id, Number, compared};
use crate::attempts::{is_extended, reason};
use crate::driver::options::{positive_seconds, seconds_or};
use crate::driver::{Driver, Event, NewTask, PutOptions};
use crate::error::Error;
use crate::lua_text;
use crate::procedure::Call;
use crate::statistics::Operation;
use crate::task::{Assignments, NEXT_EVENT, ShortKey, Shown, State, TTL, TTR, Task};
use crate::time::{NEVER, Seconds};
use crate::tube::SlotIndex;
use crate::waiter::{Line, Wanted};
use crate::waiting::check_may_wait;
use crate::{Answer, Caller, Client, Queue};

impl Queue {
    /// `put(data[, options])`
    pub(crate) fn put(
        &mut self,
        store: &mut Store,
        call: &Call<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Answer, Error> {
        let Call { index, arguments, now, .. } = *call;
        let Some(tube) = self.tubes.at(index) else { return Err(Error::Stale) };
        let options = match tube.driver.first_option() {
            Some(first) => PutOptions::parse(arguments.get(1), first)?,
            None => PutOptions::default(),
        };
        let data = arguments.get(0);
        if tube.driver.waits_for_room() {
            let timeout = seconds_or(options.timeout, Seconds::from_int(0))?;
            if !self.may_put(store, index, 1)? {
                self.scratch.clear();
                tube.driver.encode(&NewTask { id: 0, data, options }, now, &mut self.scratch)?;
                if !timeout.is_positive() || store.in_transaction() {
                    mp::write_nil(out);
                    return Ok(Answer::one());
                }
                let wanted = Wanted::Room(call.raw.to_vec());
                return self.park(store, call, wanted, timeout.deadline(now));
            }
        }
        self.transact(store, user::ADMIN, |queue, store| {
            queue.put_in_transaction(store, index, data, options, now, out)
        })?;
        Ok(Answer::one())
    }

    /// How many tasks fit the tube beside those that it holds.
    pub(crate) fn room(&self, store: &Store, index: SlotIndex) -> Result<u64, Error> {
        let Some(tube) = self.tubes.at(index) else { return Err(Error::TubeNotFound) };
        Ok(tube.driver.room(store.space(tube.space)?.len()))
    }

    /// Whether so many tasks may be put now: they fit, and no batch that came before waits for room.
    pub(crate) fn may_put(&self, store: &Store, index: SlotIndex, tasks: u32) -> Result<bool, Error> {
        let first = self.waiters.first(index, Line::Puts);
        let is_behind = first.is_some_and(|(_, first)| matches!(first.wanted, Wanted::RoomForMany { .. }));
        Ok(!is_behind && self.room(store, index)? >= u64::from(tasks))
    }

    /// Stores a new task, inside a transaction, under the next id.
    pub(crate) fn put_in_transaction(
        &mut self,
        store: &mut Store,
        index: SlotIndex,
        data: Option<&[u8]>,
        options: PutOptions<'_>,
        now: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let Some(tube) = self.tubes.at(index) else { return Err(Error::Stale) };
        let overflow = || lycosa_store::Error::SequenceOverflow(format!("{}_seq", tube.name));
        let id = tube.next_id.ok_or_else(overflow)?;
        let mut tuple = std::mem::take(&mut self.scratch);
        tuple.clear();
        tube.driver.encode(&NewTask { id, data, options }, now, &mut tuple)?;
        let stored = store.execute(&Statement::Insert { space: tube.space, tuple: &tuple })?;
        let layout = tube.driver.layout();
        let new = Side::read(&tuple, layout);
        match (data, new.and_then(|new| new.state)) {
            (Some(data), Some(state)) => Shown::new(id, state, data).write(out),
            _ => write_task(&tuple, layout, out),
        }
        let stored = stored.filter(|_| tube.observed).map(<[u8]>::to_vec);
        let operation = Some(Operation::Put);
        let change = TaskChange { id, old: None, new, operation, taken_by: None, tuple: stored };
        let accounted = self.account(store, index, change);
        self.scratch = tuple;
        accounted
    }

    /// A waiting put, now that there is room. False if there is none.
    pub(crate) fn put_of_waiter(
        &mut self,
        store: &mut Store,
        index: SlotIndex,
        raw: &[u8],
        now: u64,
        out: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        if self.room(store, index)? == 0 {
            return Ok(false);
        }
        let Some(tube) = self.tubes.at(index) else { return Err(Error::TubeNotFound) };
        let arguments = Arguments::parse(raw)?;
        let options = PutOptions::parse(arguments.get(1), tube.driver.first_option().unwrap_or(""))?;
        self.transact(store, user::ADMIN, |queue, store| {
            queue.put_in_transaction(store, index, arguments.get(0), options, now, out)
        })?;
        Ok(true)
    }

    /// `take([timeout[, {extended}]])`
    pub(crate) fn take(
        &mut self,
        store: &mut Store,
        call: &Call<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Answer, Error> {
        let Call { index, now, caller, .. } = *call;
        let deadline = take_deadline(call.arguments.present(0), now)?;
        let waits = deadline > now && !store.in_transaction();
        let extended = call.arguments.present(1).is_some_and(|options| is_extended(Some(options)));
        let taken = self.transact(store, user::ADMIN, |queue, store| {
            let taken = queue.take_in_transaction(store, index, caller.client(), now, extended, out)?;
            if !taken && waits {
                check_may_wait(&caller)?;
            }
            Ok(taken)
        })?;
        match (taken, waits) {
            (true, _) => Ok(Answer::one()),
            (false, true) if extended => self.park(store, call, Wanted::ExtendedTask, deadline),
            (false, true) => self.park(store, call, Wanted::Task, deadline),
            (false, false) => Ok(Answer::none()),
        }
    }

    /// Gives a connection's session the next task. Tasks that are dead are removed on the way, each once. False if
    /// there is no task.
    pub(crate) fn take_in_transaction(
        &mut self,
        store: &mut Store,
        index: SlotIndex,
        client: Client,
        now: u64,
        extended: bool,
        out: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        loop {
            let Some(tube) = self.tubes.at(index) else { return Err(Error::Stale) };
            let layout = tube.driver.layout();
            let Some(tuple) = tube.driver.next(tube.tasks(store))? else { return Ok(false) };
            let Some(task) = Task::read(tuple, layout) else { return Ok(false) };
            if !task.is_expired(layout, now) {
                let decided = Decided::about(&*tube.driver, &task, Event::Take, now, &mut self.assignments)?;
                if !extended {
                    Shown::new(task.id, decided.state, task.data).write(out);
                }
                keep_name(&mut self.name, &task);
                self.carry_out(store, index, &decided, Some((client, now)))?;
                if extended {
                    self.count_attempt(store, index, decided.id)?;
                    self.write_extended(store, index, decided.id, out)?;
                }
                return Ok(true);
            }
            let id = task.id;
            self.remove_task(store, index, id, Operation::Ttl, None)?;
        }
    }

    /// `ack(id)`
    pub(crate) fn ack(
        &mut self,
        store: &mut Store,
        call: &Call<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Answer, Error> {
        let Call { index, caller, .. } = *call;
        let id = self.owned_task(store, &caller, index, call.arguments.get(0))?;
        self.transact(store, user::ADMIN, |queue, store| {
            queue.found(id, |queue| queue.remove_task(store, index, id, Operation::Ack, Some(out)))
        })
    }

    /// `release(id[, {delay, reason}])`
    pub(crate) fn release(
        &mut self,
        store: &mut Store,
        call: &Call<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Answer, Error> {
        let Call { index, arguments, now, caller, .. } = *call;
        let id = self.owned_task(store, &caller, index, call.arguments.get(0))?;
        let event = Event::Release { delay: self.release_delay(index, arguments.present(1))? };
        self.transact(store, user::ADMIN, |queue, store| {
            if let Some(reason) = reason(arguments.present(1)) {
                queue.note_failure(store, index, id, reason, now)?;
            }
            queue.found(id, |queue| queue.change_task(store, index, id, event, now, Some(out)))
        })
    }

    /// The delay that the options of `release` ask for, in tubes with deadlines.
    pub(crate) fn release_delay(
        &self,
        index: SlotIndex,
        options: Option<&[u8]>,
    ) -> Result<Option<Seconds>, Error> {
        let timed = self.tubes.at(index).is_some_and(|tube| tube.driver.layout().timed);
        match options {
            Some(options) if timed => positive_seconds(PutOptions::parse(Some(options), "delay")?.delay),
            _ => Ok(None),
        }
    }

    /// `touch(id, delta)`
    pub(crate) fn touch(
        &mut self,
        store: &mut Store,
        call: &Call<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Answer, Error> {
        let Call { index, arguments, now, caller, .. } = *call;
        let Some(delta) = arguments.present(1) else { return Ok(Answer::none()) };
        let delta = Number::parse(delta)
            .ok_or_else(|| compared(lua_text::type_name(Some(delta)), "number"))?
            .seconds();
        if !delta.is_positive() {
            return Ok(Answer::none());
        }
        let id = self.owned_task(store, &caller, index, call.arguments.get(0))?;
        let event = Event::Touch { extension: delta.extension() };
        self.transact(store, user::ADMIN, |queue, store| {
            queue.found(id, |queue| {
                queue.change_task_for(store, index, id, event, (now, Some(caller.client())), Some(out))
            })
        })
    }

    /// `peek(id[, {extended}])`
    pub(crate) fn peek(&self, store: &Store, call: &Call<'_>, out: &mut Vec<u8>) -> Result<Answer, Error> {
        let index = call.index;
        let id = self.task_id(store, index, call.arguments.get(0))?;
        if is_extended(call.arguments.present(1)) {
            let found = self.write_extended(store, index, id, out)?;
            return if found { Ok(Answer::one()) } else { Err(not_found(id)) };
        }
        let Some(tube) = self.tubes.at(index) else { return Err(Error::Stale) };
        match tube.tasks(store).get(id)? {
            Some(tuple) => write_task(tuple, tube.driver.layout(), out),
            None => return Err(not_found(id)),
        }
        Ok(Answer::one())
    }

    /// `bury(id[, {reason}])`
    pub(crate) fn bury(
        &mut self,
        store: &mut Store,
        call: &Call<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Answer, Error> {
        let Call { index, now, .. } = *call;
        let id = self.task_id(store, index, call.arguments.get(0))?;
        let Some(tube) = self.tubes.at(index) else { return Err(Error::Stale) };
        let tuple = tube.tasks(store).get(id)?.ok_or_else(|| not_found(id))?;
        let layout = tube.driver.layout();
        if Shown::read(tuple, layout).is_some_and(|task| task.state() == Some(State::Buried)) {
            write_task(tuple, layout, out);
            return Ok(Answer::one());
        }
        self.transact(store, user::ADMIN, |queue, store| {
            if let Some(reason) = reason(call.arguments.present(1)) {
                queue.note_failure(store, index, id, reason, now)?;
            }
            queue.found(id, |queue| queue.change_task(store, index, id, Event::Bury, now, Some(out)))
        })
    }

    /// `delete(id)`
    pub(crate) fn delete(
        &mut self,
        store: &mut Store,
        call: &Call<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Answer, Error> {
        let index = call.index;
        let id = self.task_id(store, index, call.arguments.get(0))?;
        self.transact(store, user::ADMIN, |queue, store| {
            queue.found(id, |queue| queue.remove_task(store, index, id, Operation::Delete, Some(out)))
        })
    }

    /// Does something to the first tasks of a state, which has to put each into another state, in one transaction.
    pub(crate) fn each_in_state(
        &mut self,
        store: &mut Store,
        index: SlotIndex,
        state: State,
        limit: usize,
        mut f: impl FnMut(&mut Self, &mut Store, u64) -> Result<bool, Error>,
    ) -> Result<usize, Error> {
        self.transact(store, user::ADMIN, |queue, store| {
            let mut count = 0;
            while count < limit {
                let Some(tube) = queue.tubes.at(index) else { return Err(Error::Stale) };
                let first = tube.tasks(store).first_in_state(state)?;
                let Some(id) = first.and_then(crate::task::id_of) else { break };
                f(queue, store, id)?;
                count += 1;
            }
            Ok(count)
        })
    }

    /// The outcome of an operation on one task, which may turn out not to be there.
    fn found(&mut self, id: u64, f: impl FnOnce(&mut Self) -> Result<bool, Error>) -> Result<Answer, Error> {
        if f(self)? { Ok(Answer::one()) } else { Err(not_found(id)) }
    }

    /// Applies an event to a stored task, inside a transaction. The owner is forgotten unless the task stays taken. False
    /// if there is no such task.
    pub(crate) fn change_task(
        &mut self,
        store: &mut Store,
        index: SlotIndex,
        id: u64,
        event: Event,
        now: u64,
        out: Option<&mut Vec<u8>>,
    ) -> Result<bool, Error> {
        self.change_task_for(store, index, id, event, (now, None), out)
    }

    /// The same; the session of `taken_by` owns the task then.
    fn change_task_for(
        &mut self,
        store: &mut Store,
        index: SlotIndex,
        id: u64,
        event: Event,
        (now, taken_by): (u64, Option<Client>),
        out: Option<&mut Vec<u8>>,
    ) -> Result<bool, Error> {
        let Some(tube) = self.tubes.at(index) else { return Err(Error::Stale) };
        let layout = tube.driver.layout();
        let Some(task) = tube.tasks(store).get(id)?.and_then(|tuple| Task::read(tuple, layout)) else {
            return Ok(false);
        };
        let decided = Decided::about(&*tube.driver, &task, event, now, &mut self.assignments)?;
        if let Some(out) = out {
            Shown::new(task.id, decided.state, task.data).write(out);
        }
        keep_name(&mut self.name, &task);
        self.carry_out(store, index, &decided, taken_by.map(|client| (client, now)))?;
        Ok(true)
    }

    /// Executes what was decided, as one UPDATE of small fields: the assignments are in `self.assignments`, the name of the
    /// sub-queue in `self.name`.
    fn carry_out(
        &mut self,
        store: &mut Store,
        index: SlotIndex,
        decided: &Decided,
        taken_by: Option<(Client, u64)>,
    ) -> Result<(), Error> {
        let Some(tube) = self.tubes.at(index) else { return Err(Error::Stale) };
        let key = ShortKey::id(decided.id);
        let changed = store.execute(&self.assignments.statement(tube.space, &key))?;
        let tuple = changed.filter(|_| tube.observed).map(<[u8]>::to_vec);
        let name = std::mem::take(&mut self.name);
        let Decided { id, former, state, next_event, pri, operation } = *decided;
        let side = |state| Some(Side { state, next_event, pri, utube: &name });
        let (old, new) = (side(former), side(Some(state)));
        let change = TaskChange { id, old, new, operation: Some(operation), taken_by, tuple };
        let accounted = self.account(store, index, change);
        self.name = name;
        accounted
    }

    /// Removes a stored task, inside a transaction. `operation` says why: an ack, a delete, the end of its life. False
    /// if there is no such task.
    pub(crate) fn remove_task(
        &mut self,
        store: &mut Store,
        index: SlotIndex,
        id: u64,
        operation: Operation,
        out: Option<&mut Vec<u8>>,
    ) -> Result<bool, Error> {
        let Some(tube) = self.tubes.at(index) else { return Err(Error::Stale) };
        let layout = tube.driver.layout();
        let key = ShortKey::id(id);
        let Some(tuple) = store.execute(&Statement::Delete { space: tube.space, index: 0, key: &key })?
        else {
            return Ok(false);
        };
        let shown = Shown::read(tuple, layout);
        if let (Some(out), Some(task)) = (out, shown) {
            task.with_state(State::Done).write(out);
        }
        let mut name = std::mem::take(&mut self.name);
        let mut pri = 0;
        if layout.utube.is_some()
            && let Some(task) = Task::read(tuple, layout)
        {
            keep_name(&mut name, &task);
            pri = task.pri;
        }
        let tuple = tube.observed.then(|| tuple.to_vec());
        let old = shown.map(|task| Side { state: task.state(), next_event: 0, pri, utube: &name });
        let change = TaskChange { id, old, new: None, operation: Some(operation), taken_by: None, tuple };
        let accounted = self.account(store, index, change);
        self.name = name;
        accounted.map(|()| true)
    }

    /// The id argument of a method that only the owner may call.
    pub(crate) fn owned_task(
        &self,
        store: &Store,
        caller: &Caller,
        index: SlotIndex,
        argument: Option<&[u8]>,
    ) -> Result<u64, Error> {
        let Some(tube) = self.tubes.at(index) else { return Err(Error::Stale) };
        let id = match Id::parse(argument) {
            Id::Number(id) => id,
            Id::Other(bytes) => {
                let mut key = ShortKey::numbers(&[tube.id]).to_vec();
                key[0] += u8::from(bytes.is_some());
                key.extend_from_slice(bytes.unwrap_or(&[]));
                store.get(self.spaces.taken, 0, &key)?;
                return Err(Error::NotTaken);
            }
        };
        let owner = self.owner_of(store, (tube.id, id))?;
        if owner.is_some() && owner == self.sessions.of(caller.connection) {
            Ok(id)
        } else {
            Err(Error::NotTaken)
        }
    }

    /// The id argument of a method that anyone may call.
    fn task_id(&self, store: &Store, index: SlotIndex, argument: Option<&[u8]>) -> Result<u64, Error> {
        let Some(tube) = self.tubes.at(index) else { return Err(Error::Stale) };
        match Id::parse(argument) {
            Id::Number(id) => Ok(id),
            Id::Other(bytes) => {
                let mut key = vec![0x90 + u8::from(bytes.is_some())];
                key.extend_from_slice(bytes.unwrap_or(&[]));
                store.get(tube.space, 0, &key)?;
                Err(Error::TaskNotFound(lua_text::text(bytes)))
            }
        }
    }

    /// Number of ids of the tasks of a state that satisfy `f`, for callers that change them afterwards.
    pub(crate) fn ids_in_state(
        &self,
        store: &Store,
        index: SlotIndex,
        state: State,
        f: &mut dyn FnMut(u64) -> Result<bool, Error>,
    ) -> Result<Vec<u64>, Error> {
        let Some(tube) = self.tubes.at(index) else { return Ok(Vec::new()) };
        let mut ids = Vec::new();
        let mut failed = None;
        let key = ShortKey::state(state, &[]);
        store.scan(tube.space, tube.indexes.status, IteratorType::Eq, &key, &mut |tuple| {
            let Some(id) = crate::task::id_of(tuple) else { return std::ops::ControlFlow::Continue(()) };
            match f(id) {
                Ok(true) => ids.push(id),
                Ok(false) => {}
                Err(error) => {
                    failed = Some(error);
                    return std::ops::ControlFlow::Break(());
                }
            }
            std::ops::ControlFlow::Continue(())
        })?;
        failed.map_or(Ok(ids), Err)
    }
}

/// What an event makes of one task, apart from the assignments.
struct Decided {
    id: u64,
    /// The state before, unless a user has written another status.
    former: Option<State>,
    state: State,
    next_event: u64,
    pri: u64,
    operation: Operation,
}

impl Decided {
    /// Asks the driver, and writes the assignments.
    fn about(
        driver: &dyn Driver,
        task: &Task<'_>,
        event: Event,
        now: u64,
        assignments: &mut Assignments,
    ) -> Result<Self, Error> {
        let change = driver.change(task, event, now)?;
        assignments.clear();
        if task.state() != Some(change.state) {
            assignments.state(change.state);
        }
        for (field, value) in [(NEXT_EVENT, change.next_event), (TTL, change.ttl), (TTR, change.ttr)] {
            if let Some(value) = value {
                assignments.number(field, value);
            }
        }
        let next_event = change.next_event.unwrap_or(task.times.next_event);
        let (id, former, pri) = (task.id, task.state(), task.pri);
        Ok(Self { id, former, state: change.state, next_event, pri, operation: event.operation() })
    }
}

/// Keeps the name of a task's sub-queue, which the task's change may move.
#[inline]
fn keep_name(name: &mut Vec<u8>, task: &Task<'_>) {
    name.clear();
    if !task.utube.is_empty() {
        name.extend_from_slice(task.utube);
    }
}

/// Until when a take waits, by its argument: for ever without one, not at all (`now`) if it is not positive.
pub(crate) fn take_deadline(timeout: Option<&[u8]>, now: u64) -> Result<u64, Error> {
    let Some(value) = timeout else { return Ok(NEVER) };
    let number = Number::parse(value).ok_or_else(|| compared(lua_text::type_name(Some(value)), "number"))?;
    let timeout = number.seconds();
    Ok(if timeout.is_positive() { timeout.deadline(now) } else { now })
}

pub(crate) fn not_found(id: u64) -> Error {
    Error::TaskNotFound(lua_text::integer(id.into()))
}

/// Appends what a client sees of a tuple; of one that does not fit the layout, the tuple itself.
fn write_task(tuple: &[u8], layout: &crate::task::Layout, out: &mut Vec<u8>) {
    match Shown::read(tuple, layout) {
        Some(task) => task.write(out),
        None => out.extend_from_slice(tuple),
    }
}
