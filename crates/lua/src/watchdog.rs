//! Ends Lua code that runs too long without a pause.
//!
//! A thread looks at how long the current slice (from a fiber's resumption to its next suspension) has been running, and
//! sleeps while there has been none for a while. Beyond the budget it sends a signal to the thread of the fibers. The
//! signal's handler sets a count hook, which LuaJIT allows there, and which compiled traces look at too because LuaJIT is
//! built with `LUAJIT_ENABLE_CHECKHOOK`. The hook raises an error. Finalizers and debug hooks are ended the same way, and
//! functions of strings and tables in C look at a flag (`luajit.h`). The signal is repeated while the slice is over its budget.
//!
//! The first error of a slice can be caught, and what catches it has one more budget. After that every instruction raises
//! the error until the slice ends, so that no `pcall` in a loop holds the loop. In a finalizer the first error is the last, and the
//! code that it interrupts goes on.
//!
//! Finalizers are the work of no fiber, and a collection calls any number of them. After the first one that was ended all of
//! a slice share [`FINALIZERS`]; finalizers that would begin when it is used up are left to a later collection in another slice
//! (`shim.c`). So 3000 finalizers that never end hold the loop for a moment each, and others are served in between.
//!
//! A slice without a budget (a program's own code) runs as long as it likes. From [`Watch::report_from`] on the log says how
//! long it has run, and where, each time that this has doubled.
//!
//! A fiber that another one starts runs within the slice of that one, and a hook within a hook runs within the outer one's
//! budget: otherwise code that starts fibers or calls hooks in a loop would have a new budget each time, and never end.
//!
//! Absent: an end of FFI calls and of system calls that wait.

use std::cell::Cell;
use std::os::raw::c_int;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, compiler_fence};
use std::sync::{Arc, Once, OnceLock};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use crate::sys::{self, lua_Debug, lua_State};
use crate::{Error, Lua};

/// How often the thread looks.
const PERIOD: Duration = Duration::from_millis(20);

/// The signal to the thread of the fibers. No chance event sends it: a socket with urgent data has to be asked to.
const SIGNAL: c_int = libc::SIGURG;

/// Errors of a slice that may be caught.
const MAX_CAUGHT: u32 = 1;

/// What finalizers may take in one slice, in microseconds, once one was ended.
const FINALIZERS: u64 = 20_000;

/// After this number of looks at which no Lua ran the thread sleeps until some does.
const MAX_IDLE_LOOKS: u32 = 50;

/// What the fibers' thread and the watchdog share.
#[derive(Debug)]
pub(crate) struct Watch {
    begin: Instant,
    /// When the current slice began, in microseconds since `begin`; 0 while no Lua runs.
    slice: AtomicU64,
    /// The longest slice allowed, in microseconds; 0 for no limit.
    budget: AtomicU64,
    /// The budget of slices outside of hooks.
    base: AtomicU64,
    /// The budget of hooks.
    hook: AtomicU64,
    armed: AtomicBool,
    ended: AtomicBool,
    /// The thread sleeps, and the next slice wakes it.
    sleeps: AtomicBool,
    thread: OnceLock<Thread>,
    state: AtomicPtr<lua_State>,
    /// The thread of the fibers, as a number: it is a pointer on some systems.
    fibers: OnceLock<usize>,
    /// How many slices have begun, without those of fibers that another one starts.
    slices: AtomicU64,
    /// How many hooks the slice is in.
    hooks: AtomicU32,
    /// Errors that the slice has met, or the hook in it.
    verdicts: AtomicU32,
    /// A finalizer was ended, and what follows it has not run yet.
    finalizer: AtomicBool,
    /// A finalizer was ended, in this slice or an earlier one.
    counts_finalizers: AtomicBool,
    /// Microseconds that finalizers have left in this slice; counted once one was ended.
    finalizers: AtomicU64,
    /// When the finalizer that runs began, 0 for none, and what `slice` and `budget` were then.
    finalizer_began: [AtomicU64; 3],
    /// From how long on the log says that a slice without a budget runs, in microseconds; 0 for never.
    report: AtomicU64,
    /// The same for the slice that runs: doubled with each line.
    next_report: AtomicU64,
    /// The thread of the fibers takes the hook away, which the signal's handler must not interrupt.
    changes: AtomicBool,
}

thread_local! {
    /// Of the slice that this thread runs, for the signal's handler; null outside of slices.
    static RUNNING: Cell<*const Watch> = const { Cell::new(std::ptr::null()) };
}

/// What stood before a slice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slice {
    /// When the slice began in which this one runs; 0 for none.
    outer: u64,
    budget: u64,
    verdicts: u32,
    hooks: u32,
    running: *const Watch,
}

/// What stood before a hook.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hook {
    number: u64,
    outer: u64,
    budget: u64,
    verdicts: u32,
    /// It runs in another hook.
    is_inner: bool,
}

/// The thread, ended when this is dropped.
#[derive(Debug)]
pub(crate) struct Watchdog {
    pub(crate) watch: Arc<Watch>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    fn now(&self) -> u64 {
        self.since_begin(Instant::now())
    }

    fn since_begin(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.begin).as_micros()).unwrap_or(u64::MAX).max(1)
    }

    /// A slice begins, at that time, or goes on with another fiber. Returns what [`Watch::end`] wants back.
    pub(crate) fn start(&self, at: Instant) -> Slice {
        let outer = self.slice.load(Ordering::Relaxed);
        let slice = Slice {
            outer,
            budget: self.budget.load(Ordering::Relaxed),
            verdicts: self.verdicts.load(Ordering::Relaxed),
            hooks: self.hooks.load(Ordering::Relaxed),
            running: RUNNING.replace(self),
        };
        if outer != 0 {
            return slice;
        }
        self.verdicts.store(0, Ordering::Relaxed);
        self.hooks.store(0, Ordering::Relaxed);
        self.finalizer.store(false, Ordering::Relaxed);
        self.finalizers.store(FINALIZERS, Ordering::Relaxed);
        self.next_report.store(self.report.load(Ordering::Relaxed), Ordering::Relaxed);
        self.slices.fetch_add(1, Ordering::Relaxed);
        self.budget.store(self.base.load(Ordering::Relaxed), Ordering::Relaxed);
        self.slice.store(self.since_begin(at), Ordering::SeqCst);
        if self.sleeps.load(Ordering::SeqCst) {
            self.sleeps.store(false, Ordering::SeqCst);
            if let Some(thread) = self.thread.get() {
                thread.unpark();
            }
        }
        slice
    }

    /// Sleeps until a slice begins; one that begins meanwhile is seen here, or sees that the thread sleeps.
    fn sleep(&self) {
        self.sleeps.store(true, Ordering::SeqCst);
        if self.slice.load(Ordering::SeqCst) == 0 && !self.ended.load(Ordering::SeqCst) {
            std::thread::park();
        }
        self.sleeps.store(false, Ordering::SeqCst);
    }

    /// A slice has ended; the one around it goes on, with the time and the errors of what ran in it.
    pub(crate) fn end(&self, slice: Slice) {
        RUNNING.set(slice.running);
        if slice.outer == 0 {
            self.slice.store(0, Ordering::Relaxed);
            self.verdicts.store(0, Ordering::Relaxed);
            if self.armed.load(Ordering::Acquire) {
                self.disarm();
            }
            return;
        }
        if self.hooks.load(Ordering::Relaxed) != slice.hooks {
            // The fiber pauses in a hook, whose time is not that of the slice around it.
            self.hooks.store(slice.hooks, Ordering::Relaxed);
            self.slice.store(slice.outer, Ordering::Relaxed);
            self.verdicts.store(slice.verdicts, Ordering::Relaxed);
        }
        self.budget.store(slice.budget, Ordering::Relaxed);
        self.look_again();
    }

    /// Code goes on whose time may be over: the hook is set if it is, and taken away if it is not.
    fn look_again(&self) {
        if self.is_over() {
            self.arm();
        } else if self.armed.load(Ordering::Acquire) {
            self.disarm();
        }
    }

    /// A hook begins: until its end, or until it pauses, the budget of hooks counts. Returns what [`Watch::end_hook`]
    /// wants back.
    pub(crate) fn begin_hook(&self) -> Hook {
        let number = self.slices.load(Ordering::Relaxed);
        let budget = self.budget.load(Ordering::Relaxed);
        let is_inner = self.hooks.fetch_add(1, Ordering::Relaxed) != 0;
        if is_inner {
            return Hook { number, outer: 0, budget, verdicts: 0, is_inner };
        }
        let hook = self.hook.load(Ordering::Relaxed);
        let outer = self.slice.swap(self.now(), Ordering::Relaxed);
        if hook != 0 && (budget == 0 || hook < budget) {
            self.budget.store(hook, Ordering::Relaxed);
        }
        let verdicts = self.verdicts.swap(0, Ordering::Relaxed);
        Hook { number, outer, budget, verdicts, is_inner }
    }

    /// A hook has ended. If it never paused, the hooks around it go on.
    pub(crate) fn end_hook(&self, hook: Hook) {
        if self.slices.load(Ordering::Relaxed) != hook.number {
            return;
        }
        self.hooks.fetch_sub(1, Ordering::Relaxed);
        if !hook.is_inner {
            self.slice.store(hook.outer, Ordering::Relaxed);
            self.verdicts.store(hook.verdicts, Ordering::Relaxed);
            self.budget.store(hook.budget, Ordering::Relaxed);
        }
        self.look_again();
    }

    /// A finalizer begins, if finalizers have time left.
    fn begin_finalizer(&self) -> bool {
        if !self.counts_finalizers.load(Ordering::Relaxed) || self.slice.load(Ordering::Relaxed) == 0 {
            return true;
        }
        let left = self.finalizers.load(Ordering::Relaxed);
        if left == 0 {
            return false;
        }
        let now = self.now();
        let budget = self.budget.load(Ordering::Relaxed);
        let [began, slice, outer] = &self.finalizer_began;
        began.store(now, Ordering::Relaxed);
        slice.store(self.slice.swap(now, Ordering::Relaxed), Ordering::Relaxed);
        outer.store(budget, Ordering::Relaxed);
        self.budget.store(if budget == 0 { left } else { budget.min(left) }, Ordering::Relaxed);
        true
    }

    /// A finalizer has ended. If finalizers were not counted yet when it began, the time of this slice's is used up.
    fn end_finalizer(&self) {
        if !self.counts_finalizers.load(Ordering::Relaxed) || self.slice.load(Ordering::Relaxed) == 0 {
            return;
        }
        let [began, slice, budget] = &self.finalizer_began;
        let began = began.swap(0, Ordering::Relaxed);
        if began == 0 {
            self.finalizers.store(0, Ordering::Relaxed);
            return;
        }
        let used = self.now().saturating_sub(began);
        let left = self.finalizers.load(Ordering::Relaxed);
        self.finalizers.store(left.saturating_sub(used.max(1)), Ordering::Relaxed);
        self.slice.store(slice.load(Ordering::Relaxed), Ordering::Relaxed);
        self.budget.store(budget.load(Ordering::Relaxed), Ordering::Relaxed);
        // Its time was its own, and the code that goes on has the rest of the slice's.
        self.finalizer.store(false, Ordering::Relaxed);
        self.look_again();
    }

    fn is_over(&self) -> bool {
        let (slice, budget) = (self.slice.load(Ordering::Relaxed), self.budget.load(Ordering::Relaxed));
        slice != 0 && budget != 0 && self.now().saturating_sub(slice) > budget
    }

    /// The log says of slices that have no budget, from the next one on, that they run longer than `from`.
    pub(crate) fn report_from(&self, from: Duration) {
        self.report.store(u64::try_from(from.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Whether the slice has no budget, and has run for longer than the log has said.
    fn is_worth_report(&self) -> bool {
        let (slice, report) = (self.slice.load(Ordering::Relaxed), self.next_report.load(Ordering::Relaxed));
        let has_budget = self.budget.load(Ordering::Relaxed) != 0;
        slice != 0 && report != 0 && !has_budget && self.now().saturating_sub(slice) > report
    }

    /// Tells the thread of the fibers; called by the watchdog's.
    fn tell(&self) {
        if let Some(thread) = self.fibers.get() {
            // SAFETY: that thread outlives the watchdog, which the runtime joins before it goes.
            unsafe { libc::pthread_kill(*thread as libc::pthread_t, SIGNAL) };
        }
    }

    /// Sets the hook. Only calls that are safe in a handler of signals.
    fn arm(&self) {
        if self.changes.load(Ordering::Relaxed) || !(self.is_over() || self.is_worth_report()) {
            return;
        }
        self.armed.store(true, Ordering::Relaxed);
        // SAFETY: the state lives while it runs a slice, in this thread. Its hook may be set by a handler of signals.
        unsafe { sys::lycosa_interrupt(self.state.load(Ordering::Relaxed), interrupt) };
    }

    fn disarm(&self) {
        self.changes.store(true, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        self.armed.store(false, Ordering::Relaxed);
        // SAFETY: the fibers' thread calls this with the live state.
        unsafe { sys::lycosa_calm(self.state.load(Ordering::Relaxed)) };
        compiler_fence(Ordering::SeqCst);
        self.changes.store(false, Ordering::Relaxed);
    }
}

/// The handler of the signal.
extern "C" fn handle_signal(_: c_int) {
    let watch = RUNNING.get();
    if !watch.is_null() {
        // SAFETY: a slice of this thread runs, and its watch lives until the slice has ended.
        unsafe { &*watch }.arm();
    }
}

/// Installs the handler, once in a process.
fn hear_signal() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // SAFETY: the structure is plain data, for which zero is a value. The handler does what a handler may do; it runs on
        // the thread's own stack for signals, because a fiber's may be at its end.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handle_signal as extern "C" fn(c_int) as usize;
            action.sa_flags = libc::SA_ONSTACK | libc::SA_RESTART;
            libc::sigemptyset(&raw mut action.sa_mask);
            if libc::sigaction(SIGNAL, &raw const action, std::ptr::null_mut()) != 0 {
                tracing::warn!("endless loops of Lua will not end: {}", std::io::Error::last_os_error());
            }
        }
    });
}

/// Whether a finalizer may begin now. Called by the shim.
#[unsafe(no_mangle)]
extern "C" fn lycosa_finalizer_begins(l: *mut lua_State) -> c_int {
    // SAFETY: the state is live.
    c_int::from(unsafe { Lua::new(l) }.shared().watch.begin_finalizer())
}

/// A finalizer has ended. Called by the shim.
#[unsafe(no_mangle)]
extern "C" fn lycosa_finalizer_ends(l: *mut lua_State) {
    // SAFETY: the state is live.
    unsafe { Lua::new(l) }.shared().watch.end_finalizer();
}

/// The hook: raises an error if the slice is really over its budget. Functions in C call it without `activation`.
unsafe extern "C-unwind" fn interrupt(l: *mut lua_State, activation: *mut lua_Debug) {
    // SAFETY: the state is live.
    if activation.is_null() && unsafe { Lua::new(l) }.shared().in_native.get() {
        // The error would cross native frames.
        return;
    }
    if push_verdict(l, c_int::from(activation.is_null())) {
        // SAFETY: the text is at the top; this frame owns nothing.
        unsafe {
            sys::lycosa_leave_hook(l);
            sys::lua_error(l)
        }
    }
}

/// Pushes the error for the code at this level of the stack, if its time is over.
fn push_verdict(l: *mut lua_State, level: c_int) -> bool {
    // SAFETY: LuaJIT calls the hook with a live state.
    let lua = unsafe { Lua::new(l) };
    let Some(error) = verdict(lua, level) else { return false };
    let native = lua.shared().in_native.replace(true);
    error.push(lua);
    lua.shared().in_native.set(native);
    true
}

/// For native code that runs long on one value, where no hook may raise an error.
///
/// # Errors
/// The time of the running slice is over.
pub(crate) fn check_time(lua: Lua) -> Result<(), Error> {
    // The signal has said so; then it is worth to ask for the time.
    if !lua.shared().watch.armed.load(Ordering::Relaxed) {
        return Ok(());
    }
    verdict(lua, 1).map_or(Ok(()), Err)
}

/// The error for the code at this level of the stack, if its time is over.
fn verdict(lua: Lua, level: c_int) -> Option<Error> {
    let watch = &lua.shared().watch;
    // SAFETY: the state is live.
    let finalizes = unsafe { sys::lycosa_in_finalizer(lua.raw()) } != 0;
    let was_ended = !finalizes && watch.finalizer.swap(false, Ordering::Relaxed);
    if was_ended && watch.verdicts.fetch_add(1, Ordering::Relaxed) < MAX_CAUGHT {
        // The fiber that collected the garbage is not to blame for the first finalizer.
        watch.slice.store(watch.now(), Ordering::Relaxed);
    }
    if !watch.is_over() {
        if watch.is_worth_report() {
            report(lua, level);
        }
        watch.disarm();
        return None;
    }
    let budget = watch.budget.load(Ordering::Relaxed) / 1000;
    let is_first = if finalizes {
        // Nothing in a finalizer may catch the error.
        watch.counts_finalizers.store(true, Ordering::Relaxed);
        // SAFETY: sets a flag of this thread.
        unsafe { sys::lycosa_watch_finalizers() };
        !watch.finalizer.swap(true, Ordering::Relaxed)
    } else {
        watch.verdicts.fetch_add(1, Ordering::Relaxed) < MAX_CAUGHT
    };
    if is_first && !finalizes {
        watch.disarm();
        // From now on the slice counts anew, so that what handles the error may do so.
        watch.slice.store(watch.now(), Ordering::Relaxed);
    }
    let native = lua.shared().in_native.replace(true);
    let place = lua.place(level);
    let text = format!(
        "{place}this code ran for more than {budget} ms without a pause, which is its time budget; \
         call fiber.yield() in long loops"
    );
    if finalizes && is_first {
        // LuaJIT drops errors of finalizers.
        tracing::warn!(target: "lua", "a finalizer has been ended: {text}");
    }
    lua.shared().in_native.set(native);
    Some(Error::text(text))
}

/// Says in the log that the slice runs without a pause, and where it is now.
fn report(lua: Lua, level: c_int) {
    let watch = &lua.shared().watch;
    let took = watch.now().saturating_sub(watch.slice.load(Ordering::Relaxed));
    watch.next_report.store(took.saturating_mul(2), Ordering::Relaxed);
    let native = lua.shared().in_native.replace(true);
    let place = lua.place(level);
    lua.shared().in_native.set(native);
    tracing::warn!(
        target: "lua",
        "{place}Lua code has run for {} ms without a pause, and nothing else is served meanwhile: \
         call fiber.yield() in long loops",
        took / 1000
    );
}

impl Watchdog {
    /// Starts the thread.
    pub(crate) fn start() -> Watchdog {
        let watch = Arc::new(Watch {
            begin: Instant::now(),
            slice: AtomicU64::new(0),
            budget: AtomicU64::new(0),
            base: AtomicU64::new(0),
            hook: AtomicU64::new(0),
            armed: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            sleeps: AtomicBool::new(false),
            thread: OnceLock::new(),
            state: AtomicPtr::new(std::ptr::null_mut()),
            fibers: OnceLock::new(),
            slices: AtomicU64::new(0),
            hooks: AtomicU32::new(0),
            verdicts: AtomicU32::new(0),
            finalizer: AtomicBool::new(false),
            counts_finalizers: AtomicBool::new(false),
            finalizers: AtomicU64::new(FINALIZERS),
            report: AtomicU64::new(0),
            next_report: AtomicU64::new(0),
            finalizer_began: [const { AtomicU64::new(0) }; 3],
            changes: AtomicBool::new(false),
        });
        Watchdog { watch, thread: None }
    }

    /// Watches this state with these budgets (zero: no limit) of slices and of hooks.
    pub(crate) fn watch(&mut self, state: *mut lua_State, budget: Duration, hook: Duration) {
        self.watch.state.store(state, Ordering::Relaxed);
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let (budget, hook) = (micros(budget), micros(hook));
        self.watch.base.store(budget, Ordering::Relaxed);
        self.watch.budget.store(budget, Ordering::Relaxed);
        self.watch.hook.store(hook, Ordering::Relaxed);
        if budget == 0 && hook == 0 || self.thread.is_some() {
            return;
        }
        hear_signal();
        // SAFETY: asks for nothing but the calling thread's id. A runtime never leaves its thread.
        let _ = self.watch.fibers.set(unsafe { libc::pthread_self() } as usize);
        let watch = self.watch.clone();
        let thread = std::thread::Builder::new().name("lua watchdog".to_owned()).spawn(move || {
            let _ = watch.thread.set(std::thread::current());
            let mut idle = 0;
            while !watch.ended.load(Ordering::SeqCst) {
                std::thread::park_timeout(PERIOD);
                idle = if watch.slice.load(Ordering::Relaxed) == 0 { idle + 1 } else { 0 };
                if idle >= MAX_IDLE_LOOKS {
                    watch.sleep();
                    idle = 0;
                }
                if watch.is_over() || watch.is_worth_report() {
                    watch.tell();
                }
            }
        });
        match thread {
            Ok(thread) => self.thread = Some(thread),
            Err(error) => tracing::warn!("no watchdog for Lua code, endless loops will not end: {error}"),
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.watch.ended.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}
