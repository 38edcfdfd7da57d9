//! Operations on tasks: put, take, ack, release and the other methods of a tube.
//!
//! Each method of a tube is one function here. A method that changes data has two halves: the outer one, of [`TubeCall`],
//! looks at arguments and rights and opens a transaction; the inner one, of [`TubeTurn`], emits the statements. Timers and
//! sessions use the inner halves.

use lycosa_store::{IteratorType, Store};
use lycosa_tuple::mp;

use crate::account::{Side, TaskChange};
use crate::arguments::{Arguments, Id, Number, string};
use crate::attempts::{is_extended, is_unattempted, reason};
use crate::command::Call;
use crate::counted::{self, Counted};
use crate::driver::options::{positive_seconds, seconds_or};
use crate::driver::{Change, Driver, Event, NewTask, Next, PutOptions};
use crate::error::{Error, Result};
use crate::ignored_options::Ignored;
use crate::leases::{Form, Token};
use crate::lua_text;
use crate::procedure::TubeMethod;
use crate::repeat::{Repeat, Repeated};
use crate::statistics::Operation;
use crate::system::reserve_id;
use crate::task::{Assignments, Layout, ShortKey, Shown, State, Task, id_of};
use crate::time::{NEVER, Seconds};
use crate::tube::Tube;
use crate::tube_call::TubeCall;
use crate::turn::{Common, TubeTurn};
use crate::waiter::{Line, Wanted};
use crate::waiting::check_may_wait;
use crate::{Answer, Caller, Client};

impl<'a> TubeCall<'a> {
    /// `put(data[, options])`. Says in `ignored` which option the tube ignores.
    pub(crate) fn put(&mut self, ignored: &mut Option<Ignored<'a>>, out: &mut Vec<u8>) -> Result<Answer> {
        let Call { arguments, command, .. } = self.call;
        let Tube { driver, kind, .. } = &*self.tube()?.tube;
        let (options, are_heeded) = match arguments.get(1) {
            None => (PutOptions::default(), true),
            given => {
                let options = PutOptions::of(driver.first_option(), given)?;
                (options, options.are_heeded(kind.layout(), driver.waits_for_capacity()))
            }
        };
        if !are_heeded {
            *ignored = self.ignored(TubeMethod::Put)?;
        }
        command.concern.admit(options.replicas)?;
        let (data, tube) = (arguments.get(0), self.tube()?);
        if tube.tube.driver.waits_for_capacity() && !tube.may_put(1)? {
            let timeout = seconds_or(options.timeout, Seconds::from_int(0))?;
            tube.check(&NewTask { id: 0, data, options })?;
            return self.wait_for_capacity(Wanted::Capacity(command.arguments.into()), timeout, out);
        }
        self.transact(|tube| tube.put(data, options, out))?;
        Ok(Answer::one())
    }

    /// Lets a put wait for free space. It answers null if it may not.
    pub(crate) fn wait_for_capacity(
        &mut self,
        wanted: Wanted,
        timeout: Seconds,
        out: &mut Vec<u8>,
    ) -> Result<Answer> {
        if !timeout.is_positive() || self.turn.store.in_transaction() {
            mp::write_nil(out);
            return Ok(Answer::one());
        }
        let deadline = timeout.deadline(self.turn.now);
        self.turn.waiters().park(&self.call, wanted, None, deadline)
    }

    /// `take([timeout[, {extended, lease}]])`
    pub(crate) fn take(&mut self, out: &mut Vec<u8>) -> Result<Answer> {
        let Call { caller, arguments, .. } = self.call;
        let deadline = take_deadline(arguments.present(0), self.turn.now)?;
        let (form, repeat) = Repeat::of_take(arguments.present(1))?;
        let wanted = Wanted::Task(form);
        match self.repeated(repeat, &wanted, out)? {
            Repeated::Answered => return Ok(Answer::one()),
            Repeated::Outdated => return Ok(Answer::none()),
            Repeated::New => {}
        }
        let take = |tube: &mut TubeTurn<'_>| tube.take(caller.client(), form, out);
        Ok(match self.take_or_park((wanted, repeat), deadline, take)? {
            Some(true) => Answer::one(),
            Some(false) => Answer::none(),
            None => Answer::Parked,
        })
    }

    /// Whether `take` took a task. None: none was ready, and the call waits.
    #[inline]
    pub(crate) fn take_or_park(
        &mut self,
        (wanted, repeat): (Wanted, Repeat),
        deadline: u64,
        take: impl FnOnce(&mut TubeTurn<'_>) -> Result<bool>,
    ) -> Result<Option<bool>> {
        let caller = self.call.caller;
        let waits = deadline > self.turn.now && !self.turn.store.in_transaction();
        self.turn.common.take_name = repeat.name;
        let taken = self.transact(|tube| {
            let taken = take(tube)?;
            if !taken && waits {
                check_may_wait(caller)?;
            }
            Ok(taken)
        });
        self.turn.common.take_name = None;
        let taken = taken?;
        if taken || !waits {
            return Ok(Some(taken));
        }
        self.turn.waiters().park(&self.call, wanted, repeat.name, deadline)?;
        Ok(None)
    }

    /// `ack(id)`
    pub(crate) fn ack(&mut self, out: &mut Vec<u8>) -> Result<Answer> {
        let id = self.owned_task()?;
        self.transact(|tube| found(id, tube.remove(id, Operation::Ack, Some(out))))
    }

    /// `release(id[, {delay, reason, attempted}])`
    pub(crate) fn release(&mut self, out: &mut Vec<u8>) -> Result<Answer> {
        let options = self.call.arguments.present(1);
        let id = self.owned_task()?;
        let event = Event::Release { delay: self.tube()?.release_delay(options)? };
        self.transact(|tube| {
            tube.note_release(id, options)?;
            found(id, tube.change(id, event, Some(out)))
        })
    }

    /// `touch(id, delta)`, `touch(token, seconds)`
    pub(crate) fn touch(&mut self, out: &mut Vec<u8>) -> Result<Answer> {
        let Call { caller, arguments, .. } = self.call;
        if let Some(token) = arguments.get(0).and_then(token) {
            return self.renew(token, out);
        }
        let Some(delta) = arguments.present(1) else { return Ok(Answer::none()) };
        let delta = Number::needed(delta)?.seconds();
        if !delta.is_positive() {
            return Ok(Answer::none());
        }
        let id = self.owned_task()?;
        let event = Event::Touch { extension: delta.extension() };
        let client = Some(caller.client());
        self.transact(|tube| found(id, tube.change_for(id, event, client, Some(out))))
    }

    /// `peek(id[, {extended}])`
    pub(crate) fn peek(&mut self, out: &mut Vec<u8>) -> Result<Answer> {
        let options = self.call.arguments.present(1);
        let (id, tube) = (self.task()?, self.tube()?);
        let is_extended = is_extended(options);
        found(id, if is_extended { tube.write_extended(id, out) } else { tube.write_stored(id, out) })
    }

    /// `bury(id[, {reason}])`
    pub(crate) fn bury(&mut self, out: &mut Vec<u8>) -> Result<Answer> {
        let reason = reason(self.call.arguments.present(1));
        let (id, tube) = (self.task()?, self.tube()?);
        let tuple = tube.tasks().get(id)?.ok_or_else(|| not_found(id))?;
        let layout = tube.tube.kind.layout();
        if Shown::read(tuple, layout).is_some_and(|task| task.state() == Some(State::Buried)) {
            write_task(tuple, layout, out);
            return Ok(Answer::one());
        }
        self.transact(|tube| {
            tube.note_failure(id, reason)?;
            found(id, tube.change(id, Event::Bury, Some(out)))
        })
    }

    /// `delete(id)`
    pub(crate) fn delete(&mut self, out: &mut Vec<u8>) -> Result<Answer> {
        let id = self.task()?;
        self.transact(|tube| found(id, tube.remove(id, Operation::Delete, Some(out))))
    }
}

impl TubeTurn<'_> {
    /// Number of further tasks that fit the tube.
    pub(crate) fn capacity_left(&self) -> Result<u64> {
        Ok(self.tube.driver.capacity_left(self.store.space(self.tube.space)?.len()))
    }

    /// Whether `tasks` tasks may be put now: they fit, and no batch that came before waits for free space.
    pub(crate) fn may_put(&self, tasks: u32) -> Result<bool> {
        let first = self.common.waiters.first(self.index, Line::Puts).map(|(_, first)| &first.wanted);
        let is_behind = matches!(first, Some(Wanted::CapacityForMany { .. }));
        Ok(!is_behind && self.capacity_left()? >= u64::from(tasks))
    }

    /// Refuses a task that the driver refuses, before its put waits.
    pub(crate) fn check(&self, task: &NewTask<'_>) -> Result<()> {
        self.tube.driver.encode(task, self.now, &mut Vec::new())?;
        task.options.headers.map_or(Ok(()), |headers| crate::headers::parse("put", headers).map(drop))
    }

    /// Stores the task of a waiting put, if the tube has free space. Returns whether it has.
    pub(crate) fn put_waiting(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        if self.capacity_left()? == 0 {
            return Ok(false);
        }
        let arguments = Arguments::parse(raw)?;
        let first_option = self.tube.driver.first_option().unwrap_or("");
        let options = PutOptions::parse(arguments.get(1), first_option)?;
        self.put(arguments.get(0), options, out)?;
        Ok(true)
    }

    /// Stores a new task under the next id.
    pub(crate) fn put(
        &mut self,
        data: Option<&[u8]>,
        options: PutOptions<'_>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let Self { store, tube, common, .. } = self;
        let overflow = || lycosa_store::Error::SequenceOverflow(format!("{}_seq", tube.name));
        let id = tube.next_id.ok_or_else(overflow)?;
        if tube.options.temporary
            && let Some(sequence) = tube.sequence
        {
            reserve_id(store, sequence, id)?;
        }
        let mut tuple = std::mem::take(&mut common.scratch);
        tuple.clear();
        tube.driver.encode(&NewTask { id, data, options }, self.now, &mut tuple)?;
        let stored = store.insert(tube.space, &tuple)?;
        let layout = tube.kind.layout();
        let new = Side::read(&tuple, layout);
        match (data, new.and_then(|new| new.state)) {
            (Some(data), Some(state)) => Shown::new(id, state, data).write(out),
            _ => write_task(&tuple, layout, out),
        }
        let stored = stored.filter(|_| tube.observed).map(<[u8]>::to_vec);
        let operation = Some(Operation::Put);
        let change = TaskChange { id, old: None, new, operation, taken_by: None, created: 0, tuple: stored };
        let accounted = self.account(change);
        self.common.scratch = tuple;
        match options.headers {
            None => accounted,
            Some(headers) => accounted.and_then(|()| self.keep_headers(id, headers)),
        }
    }

    #[cold]
    fn keep_headers(&mut self, id: u64, given: &[u8]) -> Result<()> {
        let headers = crate::headers::parse("put", given)?;
        if headers.is_empty() {
            return Ok(());
        }
        let key = self.key(id);
        self.common.attempts.keep_headers(self.store, key, headers)
    }

    /// Gives a connection's session, or a new lease, the next task. Tasks that are dead are removed on the way, each once.
    /// False if there is no task.
    pub(crate) fn take(&mut self, client: Client, form: Form, out: &mut Vec<u8>) -> Result<bool> {
        loop {
            let Self { store, tube, common, now, .. } = self;
            let layout = tube.kind.layout();
            let tuple = match tube.driver.next(tube.tasks(store), *now)? {
                Next::Task(tuple) => tuple,
                Next::NotBefore(moment) if moment > *now => {
                    common.deadlines.lower(self.index, moment);
                    return Ok(false);
                }
                Next::Nothing | Next::NotBefore(_) => return Ok(false),
            };
            let Some(task) = Task::read(tuple, layout) else { return Ok(false) };
            let id = task.id;
            if task.is_expired(layout, *now) {
                self.remove(id, Operation::Ttl, None)?;
                continue;
            }
            if let Form::Leased(micros) = form {
                self.take_leased(id, client, micros, out)?;
                return Ok(true);
            }
            let decided = Decided::about(&*tube.driver, &task, Event::Take, *now, &mut common.assignments)?;
            if form == Form::Plain {
                Shown::new(id, decided.state, task.data).write(out);
            }
            keep_name(&mut common.name, &task);
            self.carry_out(&decided, Some(client))?;
            if form == Form::Extended {
                self.common.attempts.count(self.store, self.key(id))?;
                self.write_extended(id, out)?;
            }
            return Ok(true);
        }
    }

    /// The delay that the options of `release` ask for, in tubes with deadlines.
    pub(crate) fn release_delay(&self, options: Option<&[u8]>) -> Result<Option<Seconds>> {
        match options {
            Some(options) if self.tube.kind.layout().timed => {
                positive_seconds(PutOptions::parse(Some(options), "delay")?.delay)
            }
            _ => Ok(None),
        }
    }

    /// Appends a stored task. False if there is none with this id.
    pub(crate) fn write_stored(&self, id: u64, out: &mut Vec<u8>) -> Result<bool> {
        let Some(tuple) = self.tasks().get(id)? else { return Ok(false) };
        write_task(tuple, self.tube.kind.layout(), out);
        Ok(true)
    }

    /// Notes what the options of `release` say: why, or that the take was no attempt.
    pub(crate) fn note_release(&mut self, id: u64, options: Option<&[u8]>) -> Result<()> {
        if is_unattempted(options) {
            let key = self.key(id);
            self.common.attempts.uncount(self.store, key)?;
        }
        self.note_failure(id, reason(options))
    }

    /// Notes why a task is released or buried, if its worker says so.
    pub(crate) fn note_failure(&mut self, id: u64, reason: Option<&[u8]>) -> Result<()> {
        let Some(reason) = reason else { return Ok(()) };
        let key = self.key(id);
        self.common.attempts.note_failure(self.store, key, reason, self.now)
    }

    /// Makes a buried task ready again. False if there is no such task.
    pub(crate) fn kick_one(&mut self, id: u64, out: Option<&mut Vec<u8>>) -> Result<bool> {
        let key = self.key(id);
        self.common.attempts.reset(self.store, key)?;
        self.change(id, Event::Kick, out)
    }

    /// Does something to the first tasks of a state, which has to put each into another state. Returns their number.
    pub(crate) fn each_in_state(
        &mut self,
        state: State,
        limit: usize,
        mut f: impl FnMut(&mut Self, u64) -> Result<bool>,
    ) -> Result<usize> {
        let mut count = 0;
        while count < limit {
            let first = self.tasks().first_in_state(state)?;
            let Some(id) = first.and_then(id_of) else { break };
            f(self, id)?;
            count += 1;
        }
        Ok(count)
    }

    /// Applies an event to a stored task. The owner is forgotten unless the task stays taken. False if there is no such
    /// task.
    pub(crate) fn change(&mut self, id: u64, event: Event, out: Option<&mut Vec<u8>>) -> Result<bool> {
        self.change_for(id, event, None, out)
    }

    /// The same; the session of `taken_by` owns the task then.
    fn change_for(
        &mut self,
        id: u64,
        event: Event,
        taken_by: Option<Client>,
        out: Option<&mut Vec<u8>>,
    ) -> Result<bool> {
        let Self { store, tube, common, now, .. } = self;
        let Some(task) = tube.task(store, id)? else { return Ok(false) };
        let decided = Decided::about(&*tube.driver, &task, event, *now, &mut common.assignments)?;
        if let Some(out) = out {
            Shown::new(task.id, decided.state, task.data).write(out);
        }
        keep_name(&mut common.name, &task);
        self.carry_out(&decided, taken_by)?;
        Ok(true)
    }

    /// Executes a decision, as one change of small fields: the assignments are in `common.assignments`, the name of
    /// the sub-queue in `common.name`.
    pub(crate) fn carry_out(&mut self, decided: &Decided, taken_by: Option<Client>) -> Result<()> {
        let Self { store, tube, common, now, .. } = self;
        let changed = common.assignments.carry_out(store, tube.space, decided.id)?;
        let tuple = changed.filter(|_| tube.observed).map(<[u8]>::to_vec);
        let name = std::mem::take(&mut common.name);
        let Decided { id, former, state, next_event, pri, created, operation } = *decided;
        let side = |state| Some(Side { state, next_event, pri, utube: &name });
        let (old, new) = (side(former), side(Some(state)));
        let taken_by = taken_by.map(|client| (client, *now));
        let change = TaskChange { id, old, new, operation: Some(operation), taken_by, created, tuple };
        let accounted = self.account(change);
        self.common.name = name;
        accounted
    }

    /// Removes a stored task. `operation` says why: an ack, a delete, the end of its life. False if there is no such task.
    pub(crate) fn remove(
        &mut self,
        id: u64,
        operation: Operation,
        out: Option<&mut Vec<u8>>,
    ) -> Result<bool> {
        let Self { store, tube, common, .. } = self;
        let layout = tube.kind.layout();
        let Some(tuple) = store.delete_number(tube.space, id)? else { return Ok(false) };
        let shown = Shown::read(tuple, layout);
        if let (Some(out), Some(task)) = (out, shown) {
            task.with_state(State::Done).write(out);
        }
        let mut name = std::mem::take(&mut common.name);
        let mut pri = 0;
        if layout.utube.is_some() {
            name.clear();
            if let Some(task) = Task::read(tuple, layout) {
                keep_name(&mut name, &task);
                pri = task.pri;
            }
        }
        let tuple = tube.observed.then(|| tuple.to_vec());
        let old = shown.map(|task| Side { state: task.state(), next_event: 0, pri, utube: &name });
        let change =
            TaskChange { id, old, new: None, operation: Some(operation), taken_by: None, created: 0, tuple };
        let accounted = self.account(change);
        self.common.name = name;
        accounted.map(|()| true)
    }

    /// Makes a task ready if it is still there and taken.
    pub(crate) fn release_taken(&mut self, id: u64) -> Result<bool> {
        let task = match self.task(id) {
            Err(Error::Store(lycosa_store::Error::NoSuchSpace(_))) => return Ok(false),
            task => task?,
        };
        let is_taken = task.is_some_and(|task| task.state() == Some(State::Taken));
        Ok(is_taken && self.change(id, Event::Release { delay: None }, None)?)
    }

    /// The same for a task whose owner has ended.
    pub(crate) fn release_disowned(&mut self, id: u64) -> Result<bool> {
        let is_released = self.release_taken(id)?;
        if is_released {
            self.common.pending.counts.push(Counted::event(self.index, counted::Event::Disconnected));
        }
        Ok(is_released)
    }

    /// The id argument of a method that only the owner may call, or the token of the lease that owns the task.
    pub(crate) fn owned_task(&self, caller: &Caller, argument: Option<&[u8]>) -> Result<u64> {
        let Common { owners, sessions, spaces, .. } = &*self.common;
        let id = match Id::parse(argument) {
            Id::Number(id) => id,
            Id::Other(Some(bytes)) if let Some(token) = token(bytes) => return self.leased_task(token),
            Id::Other(bytes) => {
                let mut key = ShortKey::numbers(&[self.tube.id]).to_vec();
                key[0] += u8::from(bytes.is_some());
                key.extend_from_slice(bytes.unwrap_or(&[]));
                self.store.get(spaces.taken, 0, &key)?;
                return Err(Error::NotTaken);
            }
        };
        let owner = owners.session_of(self.store, self.key(id))?;
        if owner.is_some() && owner == sessions.of(caller.session) { Ok(id) } else { Err(Error::NotTaken) }
    }

    /// The id argument of a method that anyone may call, or the token of a lease that owns a task.
    pub(crate) fn task_id(&self, argument: Option<&[u8]>) -> Result<u64> {
        match Id::parse(argument) {
            Id::Number(id) => Ok(id),
            Id::Other(Some(bytes)) if let Some(token) = token(bytes) => self.leased_task(token),
            Id::Other(bytes) => {
                let mut key = vec![0x90 + u8::from(bytes.is_some())];
                key.extend_from_slice(bytes.unwrap_or(&[]));
                self.store.get(self.tube.space, 0, &key)?;
                Err(Error::TaskNotFound(lua_text::text(bytes)))
            }
        }
    }
}

impl Tube {
    /// Ids of the tasks of a state that satisfy `f`, for callers that change them afterwards.
    pub(crate) fn ids_in_state(
        &self,
        store: &Store,
        state: State,
        f: &mut dyn FnMut(u64) -> Result<bool>,
    ) -> Result<Vec<u64>> {
        let mut ids = Vec::new();
        let key = ShortKey::state(state, &[]);
        for id in store.range(self.space, self.indexes.status, IteratorType::Eq, &key, 0)?.filter_map(id_of) {
            #[cfg(test)]
            crate::cost::count_look_up();
            if f(id)? {
                ids.push(id);
            }
        }
        Ok(ids)
    }
}

/// The token of a lease that an argument is, in place of an id.
pub(crate) fn token(argument: &[u8]) -> Option<Token> {
    string(argument).and_then(Token::parse)
}

/// The outcome of an operation on one task, which may turn out not to be there.
fn found(id: u64, done: Result<bool>) -> Result<Answer> {
    if done? { Ok(Answer::one()) } else { Err(not_found(id)) }
}

/// The effects of an event on one task, apart from the assignments.
pub(crate) struct Decided {
    id: u64,
    /// The state before, unless a user has written another status.
    former: Option<State>,
    state: State,
    next_event: u64,
    pri: u64,
    /// When the task was put, if this is its take; µs since the epoch. Otherwise 0.
    created: u64,
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
    ) -> Result<Self> {
        Ok(Self::of(task, driver.change(task, event, now)?, event.operation(), assignments))
    }

    /// Writes the assignments of a change.
    #[inline]
    pub(crate) fn of(
        task: &Task<'_>,
        change: Change,
        operation: Operation,
        assignments: &mut Assignments,
    ) -> Self {
        assignments.set(task, &change);
        let next_event = change.next_event.unwrap_or(task.times.next_event);
        let (id, former, pri) = (task.id, task.state(), task.pri);
        let created = if operation == Operation::Take { task.times.created } else { 0 };
        Self { id, former, state: change.state, next_event, pri, created, operation }
    }
}

/// Keeps the name of a task's sub-queue, which the task's change may move.
#[inline]
pub(crate) fn keep_name(name: &mut Vec<u8>, task: &Task<'_>) {
    name.clear();
    if !task.utube.is_empty() {
        name.extend_from_slice(task.utube);
    }
}

/// Until when a take waits, by its argument: for ever without one, not at all (`now`) if it is not positive.
pub(crate) fn take_deadline(timeout: Option<&[u8]>, now: u64) -> Result<u64> {
    let Some(value) = timeout else { return Ok(NEVER) };
    if value == [0] {
        return Ok(now);
    }
    let timeout = Number::needed(value)?.seconds();
    Ok(if timeout.is_positive() { timeout.deadline(now) } else { now })
}

pub(crate) fn not_found(id: u64) -> Error {
    Error::TaskNotFound(lua_text::integer(id.into()))
}

/// Appends what a client sees of a tuple; of one that does not fit the layout, the tuple itself.
fn write_task(tuple: &[u8], layout: &Layout, out: &mut Vec<u8>) {
    match Shown::read(tuple, layout) {
        Some(task) => task.write(out),
        None => out.extend_from_slice(tuple),
    }
}
