//! Fibers: coroutines of Lua, each on a C stack of its own, and the scheduler that resumes them.
//!
//! A fiber runs until it [parks](Lua::park) inside a native function; parking switches to the code that resumed it. A worker
//! (`worker.rs`) is a C stack with a coroutine and is used again for the next fiber. The scheduler keeps the ready fibers
//! (`ready.rs`) and a heap of deadlines; [`Scheduler::run`] wakes the fibers whose deadlines have passed and resumes
//! ready fibers until its time limit. A single function may exceed the limit; the fibers behind it run in a later call.
//!
//! LuaJIT keeps some state of the running coroutine globally; both sides of a switch save and restore it
//! (`shim.c`, `lycosa_switch_save`). A switch is refused while compiled code, a hook or a finalizer runs.

mod stacks;
mod worker;

use std::any::Any;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::rc::Rc;
use std::time::{Duration, Instant};

use corosensei::Yielder;

use self::stacks::Stacks;
use self::worker::Worker;
pub(crate) use self::worker::{NATIVE_RESERVE, STACK_RESERVE, stack_pointer};
use crate::api::{Lua, Ref};
use crate::error::Error;
use crate::host::Session;
use crate::ready::{OWN, Ready};
use crate::runtime::Shared;
use crate::sys::{self, Switch, lua_State};

/// Number of a fiber; the first is 101, as in Tarantool.
pub type FiberId = u64;

/// Idle workers that are kept for new fibers.
const MAX_IDLE: usize = 1024;

/// Why a parked fiber runs again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// Another fiber or the host woke it.
    Woken,
    /// Its deadline has passed.
    Timeout,
    /// It was cancelled.
    Cancelled,
}

/// What a fiber is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It waits for its turn.
    Ready,
    /// It runs, or has resumed the one that runs.
    Running,
    /// It waits for a wake-up or for a deadline.
    Suspended,
    /// It has ended.
    Dead,
}

/// A parked fiber in a certain wait; waking it later than that wait does nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket {
    /// The fiber.
    pub fiber: FiberId,
    /// Which of its waits.
    pub wait: u64,
}

/// Where a new fiber begins.
pub(crate) enum EntryPoint {
    /// A function below this number of arguments on the fiber's Lua stack.
    Function(i32),
    /// A Rust function.
    Native(NativeFunction),
}

type NativeFunction = Box<dyn FnOnce(Lua) -> Result<i32, Error>>;

/// One fiber.
pub struct Fiber {
    /// Its number.
    pub id: FiberId,
    /// With which fibers it shares its turns: the number of the client's session that started it, or [`OWN`].
    share: u64,
    name: RefCell<Cow<'static, str>>,
    status: Cell<Status>,
    wait: Cell<u64>,
    wake: Cell<Wake>,
    cancelled: Cell<bool>,
    joinable: Cell<bool>,
    entry: RefCell<Option<EntryPoint>>,
    worker: RefCell<Option<Worker>>,
    yielder: Cell<*const Yielder<Rc<Fiber>, ()>>,
    raw: Cell<*mut lua_State>,
    /// Bottom of the stack plus the reserve.
    floor: Cell<usize>,
    storage: RefCell<Option<Ref>>,
    result: RefCell<Option<Result<Ref, Ref>>>,
    joiners: RefCell<Vec<Ticket>>,
    switches: Cell<u64>,
    busy: Cell<u64>,
    resumed: Cell<Option<Instant>>,
    /// What other modules keep with the fiber: its session, its transaction.
    local: RefCell<Option<Rc<dyn Any>>>,
    /// The number of its session for [`Running`]; 0 until the first request for it since `local` was set.
    ///
    /// [`Running`]: crate::runtime::Running
    session: Cell<f64>,
}

impl Fiber {
    /// Its name.
    pub fn name(&self) -> String {
        self.name.borrow().clone().into_owned()
    }

    /// Renames it.
    pub fn set_name(&self, name: impl Into<String>) {
        *self.name.borrow_mut() = Cow::Owned(name.into());
    }

    /// What it is doing.
    pub fn status(&self) -> Status {
        self.status.get()
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.get()
    }

    /// Pushes the coroutine of a waiting fiber. Returns `false` for a running fiber and before a fiber's first run.
    pub(crate) fn push_coroutine(&self, lua: Lua) -> bool {
        let worker = self.worker.borrow();
        if let Some(worker) = worker.as_ref() {
            lua.push_ref(&worker.anchor);
        }
        worker.is_some()
    }

    /// How often it was resumed.
    pub fn switches(&self) -> u64 {
        self.switches.get()
    }

    /// Microseconds that it ran, including fibers that it started, up to their first park.
    pub fn busy_us(&self) -> u64 {
        let current = self.resumed.get().map_or(0, |at| at.elapsed().as_micros() as u64);
        self.busy.get() + current
    }

    /// Whether another fiber will join it; else it is forgotten when it ends.
    pub fn is_joinable(&self) -> bool {
        self.joinable.get()
    }

    /// Keeps it for `join` when it ends, or not.
    pub fn set_joinable(&self, joinable: bool) {
        self.joinable.set(joinable);
    }

    /// What other modules keep with the fiber.
    pub fn local<T: 'static>(&self) -> Option<Rc<T>> {
        self.local.borrow().clone()?.downcast().ok()
    }
}

/// All fibers, the ready ones, and the deadlines of the waiting ones.
pub(crate) struct Scheduler {
    fibers: RefCell<BTreeMap<FiberId, Rc<Fiber>>>,
    ready: RefCell<Ready<Rc<Fiber>>>,
    timers: RefCell<BinaryHeap<Reverse<(u64, Ticket)>>>,
    current: RefCell<Option<Rc<Fiber>>>,
    idle: RefCell<Vec<Worker>>,
    pub(crate) stacks: Stacks,
    next_id: Cell<FiberId>,
    /// Microseconds since the epoch when the present round began.
    now: Cell<u64>,
    waiting: Cell<usize>,
    /// Reads the time. Tests have a clock of their own.
    clock: Cell<fn() -> Instant>,
}

impl Default for Scheduler {
    fn default() -> Self {
        Self {
            fibers: RefCell::default(),
            ready: RefCell::default(),
            timers: RefCell::default(),
            current: RefCell::default(),
            idle: RefCell::default(),
            stacks: Stacks::default(),
            next_id: Cell::new(101),
            now: Cell::new(0),
            waiting: Cell::new(0),
            clock: Cell::new(Instant::now),
        }
    }
}

impl Scheduler {
    /// Microseconds since the epoch when the present round began.
    pub(crate) fn now(&self) -> u64 {
        self.now.get()
    }

    /// The running fiber.
    pub(crate) fn current(&self) -> Option<Rc<Fiber>> {
        self.current.borrow().clone()
    }

    /// The number of the running fiber.
    pub(crate) fn current_id(&self) -> Option<FiberId> {
        self.current.borrow().as_ref().map(|fiber| fiber.id)
    }

    /// A living or joinable fiber.
    pub(crate) fn find(&self, id: FiberId) -> Option<Rc<Fiber>> {
        self.fibers.borrow().get(&id).cloned()
    }

    /// All fibers, oldest first.
    pub(crate) fn all(&self) -> Vec<Rc<Fiber>> {
        self.fibers.borrow().values().cloned().collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.fibers.borrow().len()
    }

    /// A new fiber that is not ready yet.
    fn create(
        &self,
        shared: &'static Shared,
        name: &'static str,
        share: u64,
        local: Option<Rc<dyn Any>>,
    ) -> Result<Rc<Fiber>, Error> {
        let worker = self.idle.borrow_mut().pop();
        let worker = match worker {
            Some(worker) => worker,
            None => Worker::new(shared, self.stacks.take()?)?,
        };
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        let fiber = Rc::new(Fiber {
            id,
            share,
            name: RefCell::new(Cow::Borrowed(name)),
            status: Cell::new(Status::Suspended),
            wait: Cell::new(0),
            wake: Cell::new(Wake::Woken),
            cancelled: Cell::new(false),
            joinable: Cell::new(false),
            entry: RefCell::default(),
            yielder: Cell::new(std::ptr::null()),
            raw: Cell::new(worker.raw),
            floor: Cell::new(worker.floor),
            worker: RefCell::new(Some(worker)),
            storage: RefCell::default(),
            result: RefCell::default(),
            joiners: RefCell::default(),
            switches: Cell::new(0),
            busy: Cell::new(0),
            resumed: Cell::new(None),
            local: RefCell::new(local),
            session: Cell::new(shared.running.session.get()),
        });
        self.fibers.borrow_mut().insert(id, fiber.clone());
        Ok(fiber)
    }

    /// A fiber that will run a Rust function.
    pub(crate) fn spawn_native(
        &self,
        shared: &'static Shared,
        name: &'static str,
        local: Option<Rc<dyn Any>>,
        entry: NativeFunction,
    ) -> Result<Rc<Fiber>, Error> {
        let fiber = self.native(shared, name, local, entry)?;
        self.make_ready(&fiber, Wake::Woken);
        Ok(fiber)
    }

    fn native(
        &self,
        shared: &'static Shared,
        name: &'static str,
        local: Option<Rc<dyn Any>>,
        entry: NativeFunction,
    ) -> Result<Rc<Fiber>, Error> {
        let session = local.as_ref().and_then(|local| local.downcast_ref::<Session>());
        let share = session.map_or(OWN, |session| session.caller.session);
        self.native_of(shared, name, share, local, entry)
    }

    fn native_of(
        &self,
        shared: &'static Shared,
        name: &'static str,
        share: u64,
        local: Option<Rc<dyn Any>>,
        entry: NativeFunction,
    ) -> Result<Rc<Fiber>, Error> {
        let fiber = self.create(shared, name, share, local)?;
        *fiber.entry.borrow_mut() = Some(EntryPoint::Native(entry));
        fiber.session.set(0.0);
        Ok(fiber)
    }

    /// A fiber for a client's request that takes its turns with the fibers of `share`.
    pub(crate) fn spawn_request(
        &self,
        shared: &'static Shared,
        share: u64,
        session: Rc<Session>,
        entry: NativeFunction,
    ) -> Result<(), Error> {
        let fiber = self.native_of(shared, "main", share, Some(session), entry)?;
        self.make_ready(&fiber, Wake::Woken);
        Ok(())
    }

    /// Whether a request of this share may have a fiber now: few enough of the share's requests are under way, and of its fibers ready.
    pub(crate) fn may_begin_request(&self, share: u64) -> bool {
        self.stacks.may_begin_request(share) && self.ready.borrow().may_begin(share)
    }

    /// A fiber that will run a Rust function before all that are ready.
    pub(crate) fn spawn_first(
        &self,
        shared: &'static Shared,
        name: &'static str,
        entry: impl FnOnce(Lua) -> Result<i32, Error> + 'static,
    ) -> Result<(), Error> {
        let fiber = self.native(shared, name, None, Box::new(entry))?;
        fiber.status.set(Status::Ready);
        self.ready.borrow_mut().push_first(fiber);
        Ok(())
    }

    /// A fiber that will run the function below the top `args` values of `lua`, which are moved to it.
    pub(crate) fn spawn_function(&self, lua: Lua, args: i32) -> Result<Rc<Fiber>, Error> {
        let (share, local) = match &*self.current.borrow() {
            Some(current) => (current.share, current.local.borrow().clone()),
            None => (OWN, None),
        };
        let fiber = self.create(lua.shared(), "lua", share, local)?;
        // SAFETY: the coroutine is idle and belongs to this fiber.
        let to = unsafe { Lua::new(fiber.raw.get()) };
        to.reserve(args + 1)?;
        lua.move_to(to, args + 1);
        *fiber.entry.borrow_mut() = Some(EntryPoint::Function(args));
        Ok(fiber)
    }

    fn make_ready(&self, fiber: &Rc<Fiber>, wake: Wake) {
        fiber.wake.set(wake);
        fiber.status.set(Status::Ready);
        let mut ready = self.ready.borrow_mut();
        match wake {
            Wake::Timeout => ready.push_due(fiber.share, fiber.clone()),
            Wake::Woken | Wake::Cancelled => ready.push(fiber.share, fiber.clone()),
        }
    }

    /// The running fiber yields, and goes on behind the ready ones.
    fn make_ready_again(&self, fiber: &Rc<Fiber>, wake: Wake) {
        fiber.wake.set(wake);
        fiber.status.set(Status::Ready);
        self.ready.borrow_mut().push_due(fiber.share, fiber.clone());
    }

    /// Lets a fiber that was just made run when its turn comes.
    pub(crate) fn start_later(&self, fiber: &Rc<Fiber>) {
        self.make_ready(fiber, Wake::Woken);
    }

    /// Wakes a fiber from the wait of the ticket. Whether it was still in it.
    pub(crate) fn wake(&self, ticket: Ticket, wake: Wake) -> bool {
        let Some(fiber) = self.waiting(ticket) else { return false };
        self.make_ready(&fiber, wake);
        true
    }

    /// The fiber of the ticket, if it is still in that wait.
    pub(crate) fn waiting(&self, ticket: Ticket) -> Option<Rc<Fiber>> {
        let fiber = self.find(ticket.fiber)?;
        (fiber.status.get() == Status::Suspended && fiber.wait.get() == ticket.wait).then_some(fiber)
    }

    /// Wakes a fiber from any wait.
    pub(crate) fn wake_up(&self, fiber: &Rc<Fiber>) {
        self.wake(Ticket { fiber: fiber.id, wait: fiber.wait.get() }, Wake::Woken);
    }

    /// Cancels a fiber: it is woken, and what it waits for next ends at once.
    pub(crate) fn cancel(&self, fiber: &Rc<Fiber>) {
        fiber.cancelled.set(true);
        self.wake(Ticket { fiber: fiber.id, wait: fiber.wait.get() }, Wake::Cancelled);
    }

    /// Wakes the fibers whose deadlines have passed and resumes ready fibers. A round resumes as many as were ready when it
    /// began; another round follows while `goes_on` says so of the time since the begin. After the fiber with which `limit` is
    /// reached none is resumed. Returns when to call again: microseconds since the epoch, `now` if at once.
    pub(crate) fn run(&self, now: u64, limit: Duration, goes_on: impl Fn(Duration) -> bool) -> Option<u64> {
        self.now.set(now);
        loop {
            let due = match self.timers.borrow().peek() {
                Some(Reverse((deadline, ticket))) if *deadline <= now => *ticket,
                _ => break,
            };
            self.timers.borrow_mut().pop();
            self.wake(due, Wake::Timeout);
        }
        if self.has_ready() {
            // One fiber's slice begins when that of the one before it has ended: the clock is read once for both.
            let begin = self.clock.get()();
            let mut at = begin;
            'rounds: loop {
                let round = self.ready.borrow().len();
                for _ in 0..round {
                    let Some(fiber) = self.ready.borrow_mut().pop() else { break };
                    if fiber.status.get() == Status::Ready {
                        at = self.resume(&fiber, at);
                        if at.saturating_duration_since(begin) >= limit {
                            break 'rounds;
                        }
                    }
                }
                if !(self.has_ready() && goes_on(at.saturating_duration_since(begin))) {
                    break;
                }
            }
        }
        if !self.ready.borrow().is_empty() {
            return Some(now);
        }
        self.forget_stale_timers();
        self.next_deadline()
    }

    /// When the next fiber is due. Timers of waits that ended otherwise do not count: a program whose other fibers have
    /// ended would not end.
    fn next_deadline(&self) -> Option<u64> {
        let mut timers = self.timers.borrow_mut();
        while let Some(Reverse((deadline, ticket))) = timers.peek() {
            let fibers = self.fibers.borrow();
            let waits = |fiber: &Rc<Fiber>| {
                fiber.wait.get() == ticket.wait && fiber.status.get() == Status::Suspended
            };
            if fibers.get(&ticket.fiber).is_some_and(waits) {
                return Some(*deadline);
            }
            timers.pop();
        }
        None
    }

    /// Whether a fiber waits for its turn.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.borrow().is_empty()
    }

    /// Timers of waits that ended otherwise are dropped when they are the most.
    fn forget_stale_timers(&self) {
        let mut timers = self.timers.borrow_mut();
        if timers.len() < 1024 || timers.len() < 4 * self.waiting.get() {
            return;
        }
        let fibers = self.fibers.borrow();
        timers.retain(|Reverse((_, ticket))| {
            fibers.get(&ticket.fiber).is_some_and(|fiber| fiber.wait.get() == ticket.wait)
        });
        self.waiting.set(timers.len());
    }

    /// Runs a fiber until it parks or ends, from `at` on. Returns the time then.
    fn resume(&self, fiber: &Rc<Fiber>, at: Instant) -> Instant {
        let Some(mut worker) = fiber.worker.borrow_mut().take() else { return at };
        // SAFETY: the fiber's coroutine lives as long as its worker.
        let shared = unsafe { Lua::new(worker.raw) }.shared();
        let outer = self.current.replace(Some(fiber.clone()));
        let floor = shared.set_stack_floor(fiber.floor.get());
        let running = &shared.running;
        let outer_running =
            (running.fiber.replace(fiber.id as f64), running.session.replace(fiber.session.get()));
        let native = shared.in_native.replace(true);
        fiber.status.set(Status::Running);
        fiber.switches.set(fiber.switches.get() + 1);
        fiber.resumed.set(Some(at));
        let slice = shared.watch.start(at);
        worker.coroutine.resume(fiber.clone());
        shared.watch.end(slice);
        let end = self.clock.get()();
        fiber.busy.set(fiber.busy.get() + end.saturating_duration_since(at).as_micros() as u64);
        fiber.resumed.set(None);
        shared.in_native.set(native);
        running.fiber.set(outer_running.0);
        running.session.set(outer_running.1);
        shared.set_stack_floor(floor);
        *self.current.borrow_mut() = outer;
        if fiber.status.get() == Status::Dead {
            let mut idle = self.idle.borrow_mut();
            if idle.len() < MAX_IDLE {
                idle.push(worker);
            }
        } else {
            *fiber.worker.borrow_mut() = Some(worker);
        }
        end
    }

    /// A fiber has ended; `result` is for the fiber that joins it.
    fn finish(&self, fiber: &Rc<Fiber>, result: Option<Result<Ref, Ref>>) {
        fiber.status.set(Status::Dead);
        fiber.wait.set(fiber.wait.get() + 1);
        // What stands there may refer to the fiber's object, which would then never be collected.
        drop(fiber.storage.take());
        if result.is_some() {
            *fiber.result.borrow_mut() = result;
        } else {
            self.fibers.borrow_mut().remove(&fiber.id);
        }
        let joiners = fiber.joiners.take();
        for ticket in joiners {
            self.wake(ticket, Wake::Woken);
        }
    }

    /// How a joinable fiber ended; it is forgotten.
    pub(crate) fn take_result(&self, fiber: &Fiber) -> Option<Result<Ref, Ref>> {
        self.fibers.borrow_mut().remove(&fiber.id);
        fiber.result.take()
    }

    /// Gives up all fibers; what they hold is forgotten.
    pub(crate) fn abandon(&self) {
        let fibers = self.fibers.take();
        self.ready.take();
        self.timers.take();
        for fiber in fibers.values() {
            fiber.worker.take();
            // What refers to Lua values goes while the state still lives.
            fiber.storage.take();
            fiber.result.take();
            fiber.local.take();
            fiber.entry.take();
        }
        self.idle.take();
    }
}

impl Lua {
    /// The fiber that runs.
    ///
    /// # Errors
    /// None does: the code runs while the state is set up.
    pub fn fiber(self) -> Result<Rc<Fiber>, Error> {
        self.shared().scheduler.current().ok_or_else(|| Error::text("this code runs outside of any fiber"))
    }

    /// Replaces the state that other modules keep with the running fiber; returns the former one.
    pub(crate) fn swap_local(self, value: Option<Rc<dyn Any>>) -> Result<Option<Rc<dyn Any>>, Error> {
        let fiber = self.fiber()?;
        self.set_session_number(0.0);
        Ok(fiber.local.replace(value))
    }

    /// Notes the number of the running fiber's session, 0 for an unknown one, for compiled code.
    pub(crate) fn set_session_number(self, number: f64) {
        if let Some(fiber) = &*self.shared().scheduler.current.borrow() {
            fiber.session.set(number);
            self.shared().running.session.set(number);
        }
    }

    /// The ticket of the wait that the running fiber will enter with its next [`Lua::park`]; the code that shall
    /// wake the fiber needs it.
    ///
    /// # Errors
    /// No fiber runs.
    pub fn ticket(self) -> Result<Ticket, Error> {
        let fiber = self.fiber()?;
        Ok(Ticket { fiber: fiber.id, wait: fiber.wait.get() + 1 })
    }

    /// Suspends the running fiber until it is woken or the deadline (microseconds since the epoch) passes.
    ///
    /// # Errors
    /// The fiber cannot be suspended here: compiled code, a hook or a finalizer runs. A cancelled fiber is no error here
    /// but [`Wake::Cancelled`].
    pub fn park(self, deadline: Option<u64>) -> Result<Wake, Error> {
        let fiber = self.fiber()?;
        let shared = self.shared();
        let scheduler = &shared.scheduler;
        let wait = fiber.wait.get() + 1;
        fiber.wait.set(wait);
        if fiber.is_cancelled() {
            return self.switch_out(&fiber, Some(Wake::Cancelled)).map(|_| Wake::Cancelled);
        }
        if let Some(deadline) = deadline {
            let ticket = Ticket { fiber: fiber.id, wait };
            scheduler.timers.borrow_mut().push(Reverse((deadline, ticket)));
        }
        scheduler.waiting.set(scheduler.waiting.get() + 1);
        let done = self.switch_out(&fiber, None);
        scheduler.waiting.set(scheduler.waiting.get().saturating_sub(1));
        done
    }

    /// Lets the other ready fibers run.
    ///
    /// # Errors
    /// As [`Lua::park`], or the fiber was cancelled.
    pub fn yield_now(self) -> Result<(), Error> {
        self.pause()?;
        self.test_cancel()
    }

    /// Lets the other ready fibers run. A fiber that was cancelled goes on.
    ///
    /// # Errors
    /// As [`Lua::park`].
    pub fn pause(self) -> Result<(), Error> {
        let fiber = self.fiber()?;
        fiber.wait.set(fiber.wait.get() + 1);
        self.switch_out(&fiber, Some(Wake::Woken)).map(drop)
    }

    /// Whether the running fiber can be suspended here: no compiled code, hook or finalizer runs.
    pub fn may_pause(self) -> bool {
        self.fiber().is_ok() && self.save_switch(&mut { Switch::EMPTY }).is_ok()
    }

    /// An error if the running fiber was cancelled.
    ///
    /// # Errors
    /// It was.
    pub fn test_cancel(self) -> Result<(), Error> {
        if self.fiber()?.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// Switches to the code that resumed this fiber. `ready`: it is to run again in the next round.
    fn switch_out(self, fiber: &Rc<Fiber>, ready: Option<Wake>) -> Result<Wake, Error> {
        let shared = self.shared();
        let mut saved = Switch::EMPTY;
        self.save_switch(&mut saved)?;
        shared.before_switch();
        match ready {
            Some(wake) => shared.scheduler.make_ready_again(fiber, wake),
            None => fiber.status.set(Status::Suspended),
        }
        let native = shared.in_native.get();
        // SAFETY: the fiber runs, so its yielder lives below on this very stack.
        drop(unsafe { (*fiber.yielder.get()).suspend(()) });
        shared.in_native.set(native);
        // SAFETY: restores the state saved on this coroutine.
        unsafe { sys::lycosa_switch_restore(self.raw(), &raw const saved) };
        Ok(fiber.wake.get())
    }

    fn save_switch(self, saved: &mut Switch) -> Result<(), Error> {
        // SAFETY: reads the state.
        match unsafe { sys::lycosa_switch_save(self.raw(), &raw mut *saved) } {
            0 => Ok(()),
            1 => Err(Error::here("attempt to yield across a C-call boundary of compiled code (an FFI call)")),
            _ => Err(Error::here("attempt to yield inside of a hook or a finalizer (__gc)")),
        }
    }

    /// Runs a new fiber at once, until it first parks.
    pub(crate) fn start_now(self, fiber: &Rc<Fiber>) -> Result<(), Error> {
        let shared = self.shared();
        let mut saved = Switch::EMPTY;
        if let Err(error) = self.save_switch(&mut saved) {
            shared.scheduler.start_later(fiber);
            drop(error);
            return Ok(());
        }
        shared.before_switch();
        shared.scheduler.resume(fiber, Instant::now());
        // SAFETY: restores the state saved on this coroutine.
        unsafe { sys::lycosa_switch_restore(self.raw(), &raw const saved) };
        Ok(())
    }

    /// Waits until a joinable fiber has ended; pushes the table of its results, or what it raised.
    ///
    /// # Errors
    /// The waiting fiber was cancelled.
    pub(crate) fn join(self, fiber: &Rc<Fiber>, deadline: Option<u64>) -> Result<Option<bool>, Error> {
        while fiber.status() != Status::Dead {
            fiber.joiners.borrow_mut().push(self.ticket()?);
            match self.park(deadline)? {
                Wake::Cancelled => return Err(Error::Cancelled),
                Wake::Timeout => return Ok(None),
                Wake::Woken => {}
            }
        }
        match self.shared().scheduler.take_result(fiber) {
            Some(Ok(values)) => {
                self.push_ref(&values);
                Ok(Some(true))
            }
            Some(Err(error)) => {
                self.push_ref(&error);
                Ok(Some(false))
            }
            None => Err(Error::here("the fiber is dead")),
        }
    }

    /// Pushes the table `fiber.storage` of a fiber.
    pub(crate) fn push_storage(self, fiber: &Fiber) {
        let known = fiber.storage.borrow().is_some();
        if !known {
            self.new_table(0, 0);
            let storage = self.pop_ref();
            *fiber.storage.borrow_mut() = Some(storage);
        }
        if let Some(storage) = fiber.storage.borrow().as_ref() {
            self.push_ref(storage);
        }
    }
}

#[cfg(test)]
mod tests;
