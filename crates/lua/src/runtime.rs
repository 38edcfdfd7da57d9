//! The Lua state and what belongs to it.

use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lycosa_instance::{Caller, Invoke};
use lycosa_iproto::error::ErrorObject;
use lycosa_store::{OwnedChange, user};
use tokio::io::unix::AsyncFd;

use crate::api::{Lua, Ref};
use crate::error::Error;
use crate::fiber::{
    Fiber, FiberId, NATIVE_RESERVE, STACK_RESERVE, Scheduler, Status, Ticket, Wake, stack_pointer,
};
use crate::files::Files;
use crate::host::{Bridge, Host, Session, SessionEvent, at_end, before_switch, bridge_of};
use crate::memory::{self, Pool};
use crate::modules::{self, log::SampledLines};
use crate::sys::{self, lua_State};
use crate::watchdog::{Watch, Watchdog};

/// Limits of a [`Runtime`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of Lua's memory beyond which its allocations fail (default 256 MiB).
    pub memory: usize,
    /// The longest time that code may run without a pause before it ends with an error; zero for no limit (default 5 s).
    pub time_budget: Duration,
    /// The same for code that runs beside an operation: triggers and callbacks of tubes (default 1 s).
    pub hook_time_budget: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: 256 << 20,
            time_budget: Duration::from_secs(5),
            hook_time_budget: Duration::from_secs(1),
        }
    }
}

/// Numbers of the C structures that modules declare; 0 while they are not declared.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Types {
    pub(crate) tuple: u32,
    pub(crate) uuid: u32,
    pub(crate) decimal: u32,
    pub(crate) error: u32,
}

/// What compiled code reads by its address: `struct lycosa_running` of `lycosa.running`.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Running {
    /// The number of the running fiber; 0 if none runs.
    pub(crate) fiber: Cell<f64>,
    /// The number of its session; 0 where native code has to be asked.
    pub(crate) session: Cell<f64>,
}

/// Bytes of the thread's stack for finalizers that run when the state is closed; with the reserve below, half of what a
/// thread of Rust has.
const CLOSING_STACK: usize = 768 << 10;
/// Slices in which finalizers run before the state is closed, at most, and the time of one that does not end. A finalizer of a
/// program that has not run by then does not run.
const CLOSING_SLICES: u32 = 10;
const CLOSING_TIME: Duration = Duration::from_millis(100);

/// What native functions find from any coroutine.
pub(crate) struct Shared {
    main: Cell<*mut lua_State>,
    pub(crate) used: Cell<usize>,
    pub(crate) pool: Pool,
    pub(crate) limits: Cell<Limits>,
    /// How values of tuples and calls are encoded.
    pub(crate) encoding: Cell<crate::EncodeOptions>,
    /// An allocation has failed since the last whole collection.
    pub(crate) is_exhausted: Cell<bool>,
    /// Native code runs: an allocation must not fail.
    pub(crate) in_native: Cell<bool>,
    pub(crate) types: Cell<Types>,
    /// Metatables of userdata by the type of the Rust value.
    pub(crate) classes: RefCell<Vec<(TypeId, *mut c_void)>>,
    /// Metatables of decoded arrays and maps.
    pub(crate) hints: RefCell<Option<(Ref, Ref)>>,
    /// Makes `box.error` objects: `function(type, code, message, fields, file, line, cause)`; all behind the text may be nil.
    pub(crate) make_error: RefCell<Option<Ref>>,
    pub(crate) watch: Arc<Watch>,
    /// Triggers and callbacks that failed.
    pub(crate) hook_failures: Cell<u64>,
    /// Requests of clients that ended with an error of the program.
    pub(crate) call_failures: Cell<u64>,
    /// Which error lines of the modules are logged.
    pub(crate) lines: SampledLines,
    pub(crate) scheduler: Scheduler,
    pub(crate) files: Files,
    /// Stack addresses below this one are the running fiber's reserve.
    pub(crate) stack_floor: Cell<usize>,
    /// Called before a fiber gives up the processor.
    pub(crate) on_switch: Cell<Option<fn(&Shared)>>,
    /// Called when a fiber has run to its end, in the fiber.
    pub(crate) on_end: Cell<Option<fn(Lua)>>,
    pub(crate) running: Running,
    /// The version of the instance's schema. Compiled code reads it by its address.
    pub(crate) schema_version: Cell<u32>,
    /// What the modules around an instance keep.
    pub(crate) host: RefCell<Option<Rc<Bridge>>>,
}

impl Shared {
    pub(crate) fn main(&self) -> *mut lua_State {
        self.main.get()
    }

    pub(crate) fn is_stack_short(&self) -> bool {
        stack_pointer() < self.stack_floor.get()
    }

    /// Whether native functions that recurse have to give up.
    pub(crate) fn is_stack_ending(&self) -> bool {
        stack_pointer() < self.stack_floor.get().saturating_sub(STACK_RESERVE - NATIVE_RESERVE)
    }

    pub(crate) fn before_switch(&self) {
        if let Some(on_switch) = self.on_switch.get() {
            on_switch(self);
        }
    }

    /// Pushes an error object of `box`, or its text where there is no `box`.
    pub(crate) fn push_box_error(&self, lua: Lua, kind: &str, code: u32, message: &str) {
        let made = {
            let make = self.make_error.borrow();
            make.as_ref().map(|make| lua.push_ref(make)).is_some()
        };
        if made {
            lua.push_str(kind);
            // Errors without a number of the protocol have no `code`.
            if code == 0 {
                lua.push_nil();
            } else {
                lua.push_number(f64::from(code));
            }
            lua.push_str(message);
            if lua.call(3, 1).is_ok() {
                return;
            }
        }
        lua.push_str(message);
    }
}

/// A Lua state with its fibers.
pub struct Runtime {
    // Dropped before `shared`, which it points to.
    watchdog: Watchdog,
    shared: Box<Shared>,
}

impl Runtime {
    /// A new state with all modules that need no instance.
    ///
    /// # Errors
    /// There is not enough memory, or a module of this crate is broken.
    pub fn new(limits: Limits) -> Result<Runtime, Error> {
        let files =
            Files::new().map_err(|error| Error::text(format!("descriptors cannot be watched: {error}")))?;
        let mut watchdog = Watchdog::start();
        let shared = Box::new(Shared {
            main: Cell::new(std::ptr::null_mut()),
            used: Cell::new(0),
            pool: Pool::default(),
            is_exhausted: Cell::new(false),
            limits: Cell::new(limits),
            encoding: Cell::new(crate::EncodeOptions::DEFAULT),
            in_native: Cell::new(true),
            types: Cell::default(),
            classes: RefCell::default(),
            hints: RefCell::default(),
            make_error: RefCell::default(),
            watch: watchdog.watch.clone(),
            hook_failures: Cell::new(0),
            call_failures: Cell::new(0),
            lines: SampledLines::default(),
            scheduler: Scheduler::default(),
            files,
            stack_floor: Cell::new(0),
            on_switch: Cell::new(None),
            on_end: Cell::new(None),
            running: Running::default(),
            schema_version: Cell::new(0),
            host: RefCell::default(),
        });
        // SAFETY: `shared` has a fixed address and outlives the state, which `drop` closes.
        let state = unsafe {
            let data = std::ptr::from_ref::<Shared>(&shared).cast_mut().cast();
            sys::lua_newstate(memory::allocate, data)
        };
        if state.is_null() {
            return Err(Error::text("not enough memory for Lua"));
        }
        shared.main.set(state);
        watchdog.watch(state, limits.time_budget, limits.hook_time_budget);
        let runtime = Runtime { watchdog, shared };
        let lua = runtime.main();
        // SAFETY: runs protected by nothing, but an allocation of native code does not fail.
        unsafe {
            sys::luaL_openlibs(state);
            sys::lycosa_limit_coroutines(state);
            sys::lycosa_open_c_api(state);
        }
        if let Err(error) = modules::install(lua) {
            return Err(Error::text(error.message(lua)));
        }
        Ok(runtime)
    }

    /// The main coroutine, for setting up; code that may yield has to run in a fiber.
    pub fn main(&self) -> Lua {
        // SAFETY: the state is live, and `Runtime` is used by one thread.
        unsafe { Lua::new(self.shared.main()) }
    }

    pub(crate) fn shared(&self) -> &'static Shared {
        self.main().shared()
    }

    /// Puts an instance beside Lua and defines `box`.
    ///
    /// # Errors
    /// The module `box` is broken.
    pub fn attach(&self, host: Rc<dyn Host>) -> Result<(), Error> {
        let shared = self.shared();
        *shared.host.borrow_mut() = Some(Bridge::new(host));
        shared.on_switch.set(Some(before_switch));
        shared.on_end.set(Some(at_end));
        modules::define_box(self.main()).map_err(|error| Error::text(error.message(self.main())))
    }

    /// Wakes the fibers whose rows are durable now or whose calls were answered; to be called when the instance may have
    /// news. Then [`Runtime::resume_ready`].
    pub fn handle_news(&self) {
        if let Some(bridge) = bridge_of(self.shared()) {
            bridge.wake(self.shared());
        }
    }

    /// Whether a fiber waits for the instance.
    pub fn waits_for_instance(&self) -> bool {
        bridge_of(self.shared()).is_some_and(|bridge| bridge.waits())
    }

    /// Runs a request of the instance in a fiber and answers it.
    ///
    /// # Errors
    /// There is no memory for another stack; the request was answered with that.
    pub fn run_invoke(&self, invoke: Invoke, peer: Rc<str>) -> Result<(), Error> {
        let request = invoke.request;
        let caller = invoke.caller.in_fiber();
        let session = Rc::new(Session { caller, peer, request: Some(request) });
        let scheduler = &self.shared().scheduler;
        let share = invoke.share;
        let counted = scheduler.stacks.begin_request(share);
        let entry = move |lua| {
            let _counted = counted;
            modules::run_invoke(lua, &invoke)
        };
        scheduler.spawn_request(self.shared(), share, session, Box::new(entry))
    }

    /// Whether there may be a fiber for another request of a share: of a session, or of all closed ones.
    #[must_use]
    pub fn may_begin_request(&self, share: u64) -> bool {
        self.shared.scheduler.may_begin_request(share)
    }

    /// Runs the triggers of a session's begin or end, or of a log-in.
    ///
    /// # Errors
    /// There is no memory for another stack.
    pub fn run_session_triggers(
        &self,
        caller: Caller,
        peer: Rc<str>,
        event: SessionEvent,
    ) -> Result<(), Error> {
        let number = caller.session;
        // As in Tarantool, triggers have the session of the one they are about, and the rights of the administrator. Those
        // of a log-in have the rights of a user that has not logged in yet.
        let caller = caller.in_fiber();
        let caller = match event {
            SessionEvent::Login { .. } => caller,
            _ => caller.acting_as(user::ADMIN),
        };
        let session = Rc::new(Session { caller, peer, request: None });
        let entry = move |lua| modules::run_session_triggers(lua, number, &event);
        self.spawn_with("main", session, entry).map(drop)
    }

    /// Runs the triggers of `box.session.on_access_denied` for a client's request that was refused with that error.
    ///
    /// # Errors
    /// There is no memory for another stack.
    pub fn run_denied(&self, caller: Caller, peer: Rc<str>, error: ErrorObject) -> Result<(), Error> {
        let caller = caller.in_fiber().acting_as(user::ADMIN);
        let session = Rc::new(Session { caller, peer, request: None });
        self.spawn_with("main", session, move |lua| modules::run_denied(lua, &error)).map(drop)
    }

    /// Runs the callback of a tube for a change of a task, given as the stored tuple.
    ///
    /// # Errors
    /// There is no memory for another stack.
    pub fn run_task_callback(&self, tube: String, operation: String, tuple: Vec<u8>) -> Result<(), Error> {
        self.spawn("on_task_change", move |lua| modules::run_task_callback(lua, &tube, &operation, &tuple))
            .map(drop)
    }

    /// Runs the triggers of spaces for changes that no program has made, in order, in one fiber.
    ///
    /// # Errors
    /// There is no memory for another stack.
    pub fn run_replaced(&self, changes: Vec<OwnedChange>) -> Result<(), Error> {
        let run = move |lua| {
            for change in &changes {
                modules::run_replaced(lua, change)?;
            }
            Ok(0)
        };
        self.spawn("on_replace", run).map(drop)
    }

    /// Completes a line of a console at a place (in bytes) and calls `answer` with the beginning of the completed word and
    /// its possible completions. A failure calls nothing.
    ///
    /// # Errors
    /// There is no memory for another stack.
    pub fn complete(
        &self,
        line: String,
        place: usize,
        answer: impl FnOnce(usize, Vec<String>) + 'static,
    ) -> Result<(), Error> {
        let completing = move |lua: Lua| {
            let (start, words) = modules::complete(lua, &line, place)?;
            answer(start, words);
            Ok(0)
        };
        self.spawn("console completion", completing).map(drop)
    }

    /// Changes the limits.
    pub fn set_limits(&mut self, limits: Limits) {
        self.shared.limits.set(limits);
        self.watchdog.watch(self.shared.main(), limits.time_budget, limits.hook_time_budget);
    }

    /// The log says of code without a time limit that it has run for longer than `from` without a pause, and where it is. For a
    /// runtime that has a limit of anything, of hooks for example.
    pub fn report_long_runs(&self, from: Duration) {
        self.shared.watch.report_from(from);
    }

    /// Bytes of memory that Lua uses.
    pub fn memory(&self) -> u64 {
        self.shared.used.get() as u64
    }

    /// Requests of clients, triggers and callbacks that ended with an error, since the start.
    pub fn errors(&self) -> u64 {
        self.shared.hook_failures.get() + self.shared.call_failures.get()
    }

    /// Number of fibers, dead ones that were not joined included.
    pub fn fiber_count(&self) -> usize {
        self.shared.scheduler.count()
    }

    /// Makes a fiber that will run `entry`; its results are what stands at the top of the stack.
    ///
    /// # Errors
    /// There is no memory for another stack.
    pub fn spawn(
        &self,
        name: &'static str,
        entry: impl FnOnce(Lua) -> Result<i32, Error> + 'static,
    ) -> Result<Rc<Fiber>, Error> {
        self.shared().scheduler.spawn_native(self.shared(), name, None, Box::new(entry))
    }

    /// [`Runtime::spawn`] with a value that modules find by [`Fiber::local`].
    ///
    /// # Errors
    /// There is no memory for another stack.
    pub fn spawn_with(
        &self,
        name: &'static str,
        local: Rc<dyn Any>,
        entry: impl FnOnce(Lua) -> Result<i32, Error> + 'static,
    ) -> Result<Rc<Fiber>, Error> {
        self.shared().scheduler.spawn_native(self.shared(), name, Some(local), Box::new(entry))
    }

    /// Wakes the fibers that are due at `now` (microseconds since the epoch) and resumes the ready ones once each. When to
    /// call again; `now` if at once, `None` if no fiber waits for a time.
    pub fn resume_ready(&self, now: u64) -> Option<u64> {
        self.resume_rounds(now, Duration::MAX, |_| false)
    }

    /// [`Runtime::resume_ready`], and again with the fibers that are ready then, while `goes_on` says so of the time since the
    /// begin. The fiber with which `limit` is reached is the last: the ready fibers behind it stay ready. Deadlines that
    /// pass meanwhile count in the next call.
    pub fn resume_rounds(
        &self,
        now: u64,
        limit: Duration,
        goes_on: impl Fn(Duration) -> bool,
    ) -> Option<u64> {
        if self.shared.is_exhausted.replace(false)
            && let Err(error) = self
                .shared
                .scheduler
                .spawn_first(self.shared(), "collector", |lua| lua.collect_garbage().map(|()| 0))
        {
            tracing::error!("Lua's garbage is not collected: {}", error.message(self.main()));
        }
        self.shared.lines.log_overdue(now);
        self.shared.scheduler.run(now, limit, goes_on)
    }

    /// A descriptor that is readable when a fiber's wait is over: then clear it and call [`Runtime::wake_files`]. To be
    /// called inside of a loop of tokio.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn watch_files(&self) -> std::io::Result<AsyncFd<OwnedFd>> {
        self.shared.files.watch()
    }

    /// Wakes the fibers whose descriptors are ready, waiting for the first one at most `timeout` (without end if `None`).
    pub fn wake_files(&self, timeout: Option<Duration>) {
        self.shared.files.wake(&self.shared, timeout);
    }

    /// Whether a fiber waits for a descriptor.
    pub fn waits_for_files(&self) -> bool {
        self.shared.files.waits()
    }

    /// Whether a fiber waits for its turn.
    pub fn has_ready(&self) -> bool {
        self.shared.scheduler.has_ready()
    }

    /// Wakes a fiber from the wait of the ticket. Whether it was still in it.
    pub fn wake(&self, ticket: Ticket) -> bool {
        self.shared.scheduler.wake(ticket, Wake::Woken)
    }

    /// Cancels a fiber.
    pub fn cancel(&self, id: FiberId) {
        if let Some(fiber) = self.shared.scheduler.find(id) {
            self.shared.scheduler.cancel(&fiber);
        }
    }

    /// How a joinable fiber ended; the error is its text.
    ///
    /// # Errors
    /// What the fiber raised.
    pub fn result(&self, fiber: &Fiber) -> Result<(), String> {
        let lua = self.main();
        match self.shared.scheduler.take_result(fiber) {
            Some(Err(error)) => Err(Error::Raised(error).message(lua)),
            Some(Ok(_)) | None => Ok(()),
        }
    }

    /// Whether the fiber has ended.
    pub fn is_dead(&self, fiber: &Fiber) -> bool {
        fiber.status() == Status::Dead
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.shared.scheduler.abandon();
        self.shared.hints.take();
        self.shared.make_error.take();
        self.shared.host.take();
        // Finalizers of the program run now, on the thread's own stack.
        self.shared.set_stack_floor(stack_pointer().saturating_sub(CLOSING_STACK));
        self.watchdog.watch(self.shared.main(), CLOSING_TIME, CLOSING_TIME);
        for _ in 0..CLOSING_SLICES {
            let slice = self.shared.watch.start(Instant::now());
            // SAFETY: the state is live, and no fiber runs in it any more.
            let goes_on = unsafe { sys::lycosa_finalize(self.shared.main()) } != 0;
            self.shared.watch.end(slice);
            if !goes_on {
                break;
            }
        }
        // The watchdog must not touch the state while it goes.
        self.watchdog.watch(self.shared.main(), Duration::ZERO, Duration::ZERO);
        // SAFETY: no code runs in the state any more; the references to it are gone, or forgotten with their stacks.
        unsafe { sys::lycosa_close(self.shared.main()) };
        self.shared.set_stack_floor(0);
    }
}
