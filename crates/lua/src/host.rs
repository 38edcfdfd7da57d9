//! The instance beside Lua: where it is, on whose behalf a fiber acts, and what fibers wait for there.
//!
//! The [`Host`] lends the instance for the moment of a call; no code keeps it across a switch. A fiber that has changed
//! data outside of a transaction, or committed one, waits until the rows are durable. A fiber that gives up the processor
//! inside of an open transaction loses it, as in Tarantool.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::rc::Rc;

use lycosa_instance::{Answered, Caller, CallerKind, Instance, Lsn, RequestId};
use lycosa_iproto::error::ErrorObject;
use lycosa_tuple::value::Value;

use crate::api::Lua;
use crate::error::Error;
use crate::fiber::{FiberId, Ticket, Wake};
use crate::runtime::Shared;

/// What stands around the runtime: the server, or a program that embeds it.
pub trait Host {
    /// The instance; `None` before `box.cfg` was called.
    fn instance(&self) -> Option<RefMut<'_, Instance>>;

    /// Something was changed or answered: a turn has to be ended soon.
    fn touch(&self);

    /// Whether nothing is kept that could be waited for (`wal_mode` `none`). A statement gives up the processor as little
    /// then as in Tarantool: a program whose `box.cfg` listens has defined everything before a client is served.
    fn waits_for_nothing(&self) -> bool;

    /// `box.cfg` with these options. Returns whether it is done; if not, the fiber of the ticket is woken when it is, and
    /// asks [`Host::configured`].
    ///
    /// # Errors
    /// Faults of the options.
    fn configure(&self, options: &[(String, Value)], ticket: Ticket) -> Result<bool, String>;

    /// How the configuration that was waited for has ended.
    ///
    /// # Errors
    /// Why there is no instance.
    fn configured(&self) -> Result<(), String>;

    /// Where connections are accepted, as `box.info.listen` shows it.
    fn listening(&self) -> Option<String>;

    /// Whether connections that begin, and log-ins, wait for the program's triggers from now on.
    fn watch_sessions(&self, begins: bool, logins: bool);

    /// What an option of `box.cfg` is now that changes without a program too: by a configuration file, SIGHUP or `lycosa
    /// promote`. `None`: no such option, or it has no value.
    fn option(&self, name: &str) -> Option<Value>;

    /// The folder of the data.
    fn data_dir(&self) -> String;

    /// `log.rotate`: the log file is opened again by its name.
    ///
    /// # Errors
    /// It cannot be opened.
    fn reopen_log(&self) -> Result<(), String>;

    /// `log.cfg` before `box.cfg`: lines go to this file or command.
    ///
    /// # Errors
    /// It cannot be opened or started.
    fn log_to(&self, target: &str) -> Result<(), String>;

    /// Which lines are logged, by Tarantool's number of the level, and whether they are JSON.
    fn log_as(&self, level: usize, is_json: bool);

    /// `os.exit`: the process ends soon.
    fn exit(&self, code: i32);

    /// A line of the console, asked for with a prompt: `Some` if there is one already, and else the fiber is woken.
    fn read_line(&self, ticket: Ticket, prompt: &str) -> Option<Input>;

    /// A statement of the console, for its history.
    fn remember(&self, statement: &str);
}

/// What a console reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A line.
    Line(String),
    /// The user has given up the typed text.
    Interrupted,
    /// There is nothing more.
    End,
}

/// What happens to a session, for the triggers of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionEvent {
    /// A connection has begun. It waits until the triggers have ended.
    Begin,
    /// A log-in, which waits too.
    Login {
        /// The name that was given.
        name: String,
        /// Whether the password is right.
        is_right: bool,
    },
    /// A connection has ended.
    End,
}

/// On whose behalf a fiber acts.
#[derive(Debug)]
pub struct Session {
    /// The session's number and user.
    pub caller: Caller,
    /// The peer's address; empty for fibers of the program. All fibers at work for a connection share it: the triggers of
    /// its end find out by it whether there are others.
    pub peer: Rc<str>,
    /// The request that the fiber answers, for `box.session.push`.
    pub request: Option<RequestId>,
}

/// What the runtime keeps about its instance.
pub(crate) struct Bridge {
    host: Rc<dyn Host>,
    /// Fibers that wait for rows to be durable, in the order of the rows. Fibers that wait no more have tickets that are past.
    durable: RefCell<VecDeque<(Lsn, Ticket)>>,
    calls: RefCell<HashMap<RequestId, Ticket>>,
    answers: RefCell<HashMap<RequestId, Answered>>,
    /// Whose transaction is open.
    owner: Cell<Option<FiberId>>,
    /// Fibers whose transaction was rolled back because they yielded.
    aborted: RefCell<HashSet<FiberId>>,
    /// Whether the open transaction has executed a statement or read: a yield ends no other.
    is_used: Cell<bool>,
    /// Fibers that yielded in a transaction in which they had done nothing: their next statement begins it again.
    unused: RefCell<HashSet<FiberId>>,
    own: RefCell<Option<Rc<Session>>>,
    /// Sessions whose values carry error objects as such (`error_marshaling_enabled`).
    marshaling: RefCell<HashSet<u64>>,
}

/// `ER_TRANSACTION_YIELD` of Tarantool 2.6.
const TRANSACTION_YIELD: u32 = 154;

impl Bridge {
    pub(crate) fn new(host: Rc<dyn Host>) -> Rc<Bridge> {
        Rc::new(Bridge {
            host,
            durable: RefCell::default(),
            calls: RefCell::default(),
            answers: RefCell::default(),
            owner: Cell::new(None),
            aborted: RefCell::default(),
            is_used: Cell::new(false),
            unused: RefCell::default(),
            own: RefCell::default(),
            marshaling: RefCell::default(),
        })
    }

    /// Wakes the fibers whose rows became durable or whose calls were answered.
    pub(crate) fn wake(&self, shared: &Shared) {
        let Some(mut instance) = self.host.instance() else { return };
        shared.schema_version.set(instance.store().schema_version());
        while let Some(answer) = instance.poll_answer() {
            // Only the call's own fiber takes the answer away, and the call with it.
            if let Some(&ticket) = self.calls.borrow().get(&answer.request) {
                self.answers.borrow_mut().insert(answer.request, answer);
                shared.scheduler.wake(ticket, Wake::Woken);
            }
        }
        let mut waiting = self.durable.borrow_mut();
        while let Some(&(lsn, ticket)) = waiting.front()
            && !matches!(instance.is_durable(lsn), Ok(false))
        {
            waiting.pop_front();
            shared.scheduler.wake(ticket, Wake::Woken);
        }
    }

    /// The fiber of the ticket waits until everything up to a row is durable.
    fn await_durable(&self, lsn: Lsn, ticket: Ticket) {
        let mut waiting = self.durable.borrow_mut();
        // Nearly always behind all others: who commits later waits for a later row.
        let later = waiting.iter().rev().take_while(|(other, _)| *other > lsn).count();
        let place = waiting.len() - later;
        waiting.insert(place, (lsn, ticket));
    }

    /// Whether a yield has aborted the fiber's transaction.
    fn has_aborted(&self, fiber: FiberId) -> bool {
        let aborted = self.aborted.borrow();
        !aborted.is_empty() && aborted.contains(&fiber)
    }

    /// Whether the fiber is in a transaction that a yield has interrupted before it had done anything.
    fn is_unused(&self, fiber: FiberId) -> bool {
        let unused = self.unused.borrow();
        !unused.is_empty() && unused.contains(&fiber)
    }

    /// The fiber is in no transaction that a yield has aborted or interrupted.
    fn forget_interrupted(&self, fiber: FiberId) {
        for fibers in [&self.aborted, &self.unused] {
            let mut fibers = fibers.borrow_mut();
            if !fibers.is_empty() {
                fibers.remove(&fiber);
            }
        }
    }

    /// Whether a fiber waits for the instance.
    pub(crate) fn waits(&self) -> bool {
        !self.durable.borrow().is_empty() || !self.calls.borrow().is_empty()
    }
}

/// Called before a fiber gives up the processor: an open transaction ends. One in which nothing was done goes on afterwards.
pub(crate) fn before_switch(shared: &Shared) {
    let Some(bridge) = bridge_of(shared) else { return };
    let Some(owner) = bridge.owner.take() else { return };
    if let Some(mut instance) = bridge.host.instance() {
        instance.rollback();
        shared.schema_version.set(instance.store().schema_version());
    }
    let fibers = if bridge.is_used.get() { &bridge.aborted } else { &bridge.unused };
    fibers.borrow_mut().insert(owner);
}

/// Called when a fiber has run to its end: a transaction that it left open is rolled back, with its triggers. Else the
/// next fiber's statements would join it.
pub(crate) fn at_end(lua: Lua) {
    if !lua.in_transaction() {
        return;
    }
    if let Err(error) = leave_transaction(lua) {
        tracing::error!(target: "lua", "the transaction of a fiber that has ended: {}", error.message(lua));
    }
    // After any actions of the triggers.
    before_switch(lua.shared());
    if let (Ok(bridge), Ok(fiber)) = (lua.bridge(), lua.fiber()) {
        bridge.forget_interrupted(fiber.id);
    }
}

/// Rolls back what the running fiber has left open, as `box.rollback()` does.
pub(crate) fn leave_transaction(lua: Lua) -> Result<(), Error> {
    let top = lua.top();
    let left = lua.call_module("lycosa.box", "leave_transaction", 0, 0);
    lua.set_top(top);
    left
}

pub(crate) fn bridge_of(shared: &Shared) -> Option<Rc<Bridge>> {
    shared.host.borrow().clone()
}

pub(crate) fn to_error(error: ErrorObject) -> Error {
    Error::Object(Box::new(error))
}

impl Lua {
    pub(crate) fn bridge(self) -> Result<Rc<Bridge>, Error> {
        bridge_of(self.shared()).ok_or_else(|| Error::here("there is no instance in this process"))
    }

    pub(crate) fn host(self) -> Result<Rc<dyn Host>, Error> {
        Ok(self.bridge()?.host.clone())
    }

    /// Does something with the instance.
    pub(crate) fn with_instance<T>(
        self,
        work: impl FnOnce(&mut Instance) -> Result<T, ErrorObject>,
    ) -> Result<T, Error> {
        let bridge = self.bridge()?;
        let now = self.shared().scheduler.now();
        let Some(mut instance) = bridge.host.instance() else {
            return Err(Error::here("Please call box.cfg{} first"));
        };
        instance.set_now(now);
        let done = work(&mut instance);
        self.shared().schema_version.set(instance.store().schema_version());
        done.map_err(to_error)
    }

    /// On whose behalf the running fiber acts.
    pub(crate) fn session(self) -> Result<Rc<Session>, Error> {
        if let Ok(fiber) = self.fiber()
            && let Some(session) = fiber.local::<Session>()
        {
            return Ok(session);
        }
        let bridge = self.bridge()?;
        if let Some(own) = bridge.own.borrow().clone() {
            return Ok(own);
        }
        let number = self.with_instance(|instance| Ok(instance.open_session()))?;
        let caller =
            Caller { kind: CallerKind::Fiber, session: number, may_wait: true, ..Caller::internal() };
        let session = Rc::new(Session { caller, peer: Rc::from(""), request: None });
        *bridge.own.borrow_mut() = Some(session.clone());
        Ok(session)
    }

    /// Whether error objects in values of the running fiber's session are encoded as such, and not as their texts.
    pub(crate) fn marshals_errors(self) -> bool {
        let Ok(bridge) = self.bridge() else { return false };
        let marshaling = bridge.marshaling.borrow();
        !marshaling.is_empty()
            && self.session().is_ok_and(|session| marshaling.contains(&session.caller.session))
    }

    /// Sets what [`Lua::marshals_errors`] says of a session.
    pub(crate) fn set_marshals_errors(self, session: u64, marshals: bool) -> Result<(), Error> {
        let bridge = self.bridge()?;
        if marshals {
            bridge.marshaling.borrow_mut().insert(session);
        } else {
            bridge.marshaling.borrow_mut().remove(&session);
        }
        Ok(())
    }

    /// Refuses to go on in a transaction that a yield has aborted, or something else that had to end it.
    pub(crate) fn check_not_aborted(self) -> Result<(), Error> {
        let (bridge, fiber) = (self.bridge()?, self.fiber()?);
        if bridge.owner.get().is_none() && bridge.aborted.borrow().is_empty() {
            return Ok(());
        }
        if bridge.owner.get() == Some(fiber.id)
            && !bridge.host.instance().is_some_and(|instance| instance.in_transaction())
        {
            bridge.owner.set(None);
            bridge.aborted.borrow_mut().insert(fiber.id);
        }
        if bridge.has_aborted(fiber.id) {
            return Err(Error::Box {
                code: TRANSACTION_YIELD,
                message: "Transaction has been aborted by a fiber yield".to_owned(),
            });
        }
        Ok(())
    }

    /// For a statement or a read that becomes a part of the fiber's transaction. From now on a yield aborts it; one that a
    /// yield has interrupted before begins again. As in Tarantool, a transaction that is aborted already takes statements
    /// all the same, and its end takes them back.
    pub(crate) fn join_transaction(self) -> Result<(), Error> {
        let bridge = self.bridge()?;
        if self.check_not_aborted().is_err() {
            let (fiber, user) = (self.fiber()?.id, self.session()?.caller.effective);
            if bridge.owner.get() != Some(fiber) {
                self.with_instance(|instance| instance.begin(user))?;
                bridge.owner.set(Some(fiber));
            }
        }
        if !bridge.unused.borrow().is_empty() {
            self.begin_again()?;
        }
        bridge.is_used.set(true);
        Ok(())
    }

    /// Begins the fiber's transaction again that a yield has interrupted before anything was done in it.
    #[cold]
    pub(crate) fn begin_again(self) -> Result<(), Error> {
        let (bridge, fiber) = (self.bridge()?, self.fiber()?);
        if bridge.is_unused(fiber.id) {
            let user = self.session()?.caller.effective;
            self.with_instance(|instance| instance.begin(user))?;
            self.set_transaction(true)?;
        }
        Ok(())
    }

    /// The fiber's transaction has ended, or begun.
    pub(crate) fn set_transaction(self, open: bool) -> Result<(), Error> {
        let (bridge, fiber) = (self.bridge()?, self.fiber()?);
        bridge.owner.set(open.then_some(fiber.id));
        bridge.is_used.set(false);
        bridge.forget_interrupted(fiber.id);
        Ok(())
    }

    /// Whether the running fiber has an open transaction, or one that a yield has aborted or interrupted.
    pub(crate) fn in_transaction(self) -> bool {
        let shared = self.shared();
        let host = shared.host.borrow();
        let (Some(bridge), Some(fiber)) = (host.as_ref(), shared.scheduler.current_id()) else {
            return false;
        };
        bridge.owner.get() == Some(fiber) || bridge.has_aborted(fiber) || bridge.is_unused(fiber)
    }

    /// Whether the instance's open transaction is that of the running fiber.
    pub(crate) fn owns_transaction(self) -> bool {
        let (Ok(bridge), Ok(fiber)) = (self.bridge(), self.fiber()) else { return false };
        bridge.owner.get() == Some(fiber.id)
    }

    /// Waits until everything that is committed is durable; not inside of a transaction.
    pub(crate) fn wait_durable(self) -> Result<(), Error> {
        if self.in_transaction() {
            return Ok(());
        }
        self.host()?.touch();
        let (lsn, is_durable) = self.with_instance(|instance| {
            let lsn = instance.awaited();
            Ok((lsn, instance.is_durable(lsn)?))
        })?;
        if is_durable { Ok(()) } else { self.wait_durable_row(lsn) }
    }

    /// Waits until the rows that were just committed are durable; not inside of a transaction. Without rows, as after a
    /// change of a temporary space, the fiber goes on at once, as in Tarantool: what it has read is waited for by the reply
    /// that tells it.
    pub(crate) fn wait_rows(self, rows: Range<Lsn>) -> Result<(), Error> {
        if !rows.is_empty() && !self.in_transaction() {
            return self.wait_durable_row(rows.end);
        }
        self.host()?.touch();
        Ok(())
    }

    /// Waits until everything up to a row is durable.
    fn wait_durable_row(self, lsn: Lsn) -> Result<(), Error> {
        let bridge = self.bridge()?;
        bridge.host.touch();
        loop {
            let is_done = self.with_instance(|instance| {
                let goes_on = bridge.host.waits_for_nothing() && !instance.paces_programs();
                Ok(instance.is_durable(lsn)? || goes_on)
            })?;
            if is_done {
                return Ok(());
            }
            let ticket = self.ticket()?;
            bridge.await_durable(lsn, ticket);
            // A cancelled fiber does not wait: what it has done is done.
            if self.park(None)? == Wake::Cancelled {
                return Ok(());
            }
        }
    }

    /// Waits for the answer of a parked call.
    pub(crate) fn wait_answer(self, request: RequestId) -> Result<(u32, Vec<u8>), Error> {
        let bridge = self.bridge()?;
        bridge.host.touch();
        loop {
            let answer = bridge.answers.borrow_mut().remove(&request);
            if let Some(answer) = answer {
                bridge.calls.borrow_mut().remove(&request);
                let values = answer.result.map_err(to_error)?;
                // What the answer has seen may be lost before the fiber runs.
                self.wait_durable_row(answer.lsn)?;
                return Ok(values);
            }
            let ticket = self.ticket()?;
            bridge.calls.borrow_mut().insert(request, ticket);
            let woken = self.park(None);
            if woken.as_ref().is_ok_and(|woken| *woken == Wake::Cancelled) || woken.is_err() {
                bridge.calls.borrow_mut().remove(&request);
                woken?;
                return Err(Error::Cancelled);
            }
        }
    }
}
