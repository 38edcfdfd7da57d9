//! Ends Lua code that runs too long without a pause.
//!
//! A thread looks at how long the current slice (from a fiber's resumption to its next suspension) has been running, and
//! sleeps while there has been none for a while. Beyond
//! the budget it sets a count hook, which compiled traces look at too because LuaJIT is built with
//! `LUAJIT_ENABLE_CHECKHOOK`; LuaJIT allows setting it from another thread. The hook runs in the fiber and raises an error.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use crate::sys::{self, lua_Debug, lua_State};
use crate::{Error, Lua};

/// How often the thread looks.
const PERIOD: Duration = Duration::from_millis(20);

/// After so many looks at which no Lua ran the thread sleeps until some does.
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
    /// Held while hooks are set or taken away.
    hooks: Mutex<()>,
}

/// What stood before a hook.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hook {
    began: u64,
    outer: u64,
    budget: u64,
}

/// The thread, ended when this is dropped.
#[derive(Debug)]
pub(crate) struct Watchdog {
    pub(crate) watch: Arc<Watch>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    fn now(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_micros()).unwrap_or(u64::MAX).max(1)
    }

    /// A slice begins. Returns what [`Watch::end`] wants back.
    pub(crate) fn start(&self) -> u64 {
        self.budget.store(self.base.load(Ordering::Relaxed), Ordering::Relaxed);
        let outer = self.slice.swap(self.now(), Ordering::SeqCst);
        if self.sleeps.load(Ordering::SeqCst) {
            self.sleeps.store(false, Ordering::SeqCst);
            if let Some(thread) = self.thread.get() {
                thread.unpark();
            }
        }
        outer
    }

    /// Sleeps until a slice begins; one that begins meanwhile is seen here, or sees that the thread sleeps.
    fn sleep(&self) {
        self.sleeps.store(true, Ordering::SeqCst);
        if self.slice.load(Ordering::SeqCst) == 0 && !self.ended.load(Ordering::SeqCst) {
            std::thread::park();
        }
        self.sleeps.store(false, Ordering::SeqCst);
    }

    /// A slice has ended; the one around it (0: none) goes on.
    pub(crate) fn end(&self, outer: u64) {
        self.slice.store(outer, Ordering::Relaxed);
        if self.armed.load(Ordering::Acquire) {
            self.disarm();
        }
    }

    /// A hook begins: until its end, or until it pauses, the budget of hooks counts. Returns what [`Watch::end_hook`]
    /// wants back.
    pub(crate) fn begin_hook(&self) -> Hook {
        let hook = self.hook.load(Ordering::Relaxed);
        let budget = self.budget.load(Ordering::Relaxed);
        let began = self.now();
        let outer = self.slice.swap(began, Ordering::Relaxed);
        if hook != 0 && (budget == 0 || hook < budget) {
            self.budget.store(hook, Ordering::Relaxed);
        }
        Hook { began, outer, budget }
    }

    /// A hook has ended. If it never paused, the slice around it goes on.
    pub(crate) fn end_hook(&self, hook: Hook) {
        if self.slice.load(Ordering::Relaxed) == hook.began {
            self.slice.store(hook.outer, Ordering::Relaxed);
        }
        self.budget.store(hook.budget, Ordering::Relaxed);
        if self.armed.load(Ordering::Acquire) {
            self.disarm();
        }
    }

    fn is_over(&self) -> bool {
        let (slice, budget) = (self.slice.load(Ordering::Relaxed), self.budget.load(Ordering::Relaxed));
        slice != 0 && budget != 0 && self.now().saturating_sub(slice) > budget
    }

    fn arm(&self) {
        let _held = self.hooks.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_over() {
            return;
        }
        self.armed.store(true, Ordering::Release);
        let state = self.state.load(Ordering::Relaxed);
        // SAFETY: the state lives until the watchdog is joined; LuaJIT allows this call from another thread. Taking the
        // hook away first makes LuaJIT rebuild its dispatch tables even if the fiber's thread was doing so just now.
        unsafe {
            sys::lua_sethook(state, None, 0, 0);
            sys::lua_sethook(state, Some(interrupt), sys::LUA_MASKCOUNT, 1);
        }
    }

    fn disarm(&self) {
        let _held = self.hooks.lock().unwrap_or_else(PoisonError::into_inner);
        self.armed.store(false, Ordering::Release);
        // SAFETY: the fibers' thread calls this with the live state.
        unsafe { sys::lua_sethook(self.state.load(Ordering::Relaxed), None, 0, 0) };
    }
}

/// The hook: raises an error if the slice is really over its budget.
unsafe extern "C-unwind" fn interrupt(l: *mut lua_State, _: *mut lua_Debug) {
    if push_verdict(l) {
        // SAFETY: the text is at the top; this frame owns nothing.
        unsafe { sys::lua_error(l) }
    }
}

fn push_verdict(l: *mut lua_State) -> bool {
    // SAFETY: LuaJIT calls the hook with a live state.
    let lua = unsafe { Lua::new(l) };
    let watch = &lua.shared().watch;
    let over = watch.is_over();
    watch.disarm();
    if !over {
        return false;
    }
    let budget = watch.budget.load(Ordering::Relaxed) / 1000;
    // From now on the slice counts anew, so that what handles the error may do so.
    watch.slice.store(watch.now(), Ordering::Relaxed);
    let native = lua.shared().in_native.replace(true);
    let place = lua.place(0);
    Error::text(format!(
        "{place}this code ran for more than {budget} ms without a pause, which is its time budget; \
         call fiber.yield() in long loops"
    ))
    .push(lua);
    lua.shared().in_native.set(native);
    true
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
            hooks: Mutex::new(()),
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
                if watch.is_over() {
                    watch.arm();
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
