//! Workers: C stacks with a coroutine of Lua each, on which one fiber runs after the other, and the reserve that keeps a stack from
//! overflow.
//!
//! Absent: which fiber runs when, which is the scheduler's.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use corosensei::stack::{DefaultStack, Stack};
use corosensei::{Coroutine, Yielder};

use super::stacks::Counted;
use super::{EntryPoint, Fiber};
use crate::api::{Lua, Ref, panic_text};
use crate::error::Error;
use crate::modules::log::{Cause, say_sampled};
use crate::runtime::Shared;
use crate::sys::{self, lua_State};

/// Address space of a fiber's stack, in bytes; pages that are not touched cost nothing.
const STACK_SIZE: usize = 1 << 20;

/// Bytes at the end of a fiber's stack that no further call of Lua and no native function may begin in. They hold what
/// calls no Lua: LuaJIT's parser, its compiler and the raising of errors, and the work of a native function.
pub(crate) const STACK_RESERVE: usize = 192 << 10;

/// The part of the reserve that handlers of errors and finalizers may not begin in either.
const LAST_RESERVE: usize = 128 << 10;

/// The part of the reserve that a native function which recurses leaves for what it calls.
pub(crate) const NATIVE_RESERVE: usize = 64 << 10;

/// A C stack and a coroutine of Lua.
pub(super) struct Worker {
    pub(super) coroutine: Coroutine<Rc<Fiber>, (), (), DefaultStack>,
    pub(super) raw: *mut lua_State,
    /// Keeps the coroutine from the collector.
    pub(super) anchor: Ref,
    _counted: Counted,
    /// Bottom of the stack plus the reserve.
    pub(super) floor: usize,
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !self.coroutine.done() {
            // SAFETY: what stands on the stack is given up without running destructors: C frames cannot be unwound. The
            // values there are forgotten, not freed.
            unsafe { self.coroutine.force_reset() };
        }
    }
}

impl Worker {
    pub(super) fn new(shared: &'static Shared, counted: Counted) -> Result<Self, Error> {
        let stack = DefaultStack::new(STACK_SIZE)
            .map_err(|error| Error::text(format!("no stack for another fiber: {error}")))?;
        let floor = stack.limit().get() + STACK_RESERVE;
        // SAFETY: the main coroutine is live; the new one is anchored at once.
        let (raw, anchor) = unsafe {
            let main = Lua::new(shared.main());
            let raw = sys::lua_newthread(main.raw());
            // A program may keep `coroutine.running()` of a fiber that has ended, whose coroutine is used again.
            sys::lycosa_reserve_coroutine(raw, 1);
            (raw, main.pop_ref())
        };
        let coroutine = Coroutine::with_stack(stack, move |yielder: &Yielder<Rc<Fiber>, ()>, first| {
            let mut fiber: Rc<Fiber> = first;
            loop {
                fiber.yielder.set(std::ptr::from_ref(yielder));
                run_fiber(&fiber);
                drop(fiber);
                fiber = yielder.suspend(());
            }
        });
        Ok(Self { coroutine, raw, anchor, _counted: counted, floor })
    }
}

/// Runs a fiber from its begin to its end, on its stack.
fn run_fiber(fiber: &Rc<Fiber>) {
    // SAFETY: the fiber's coroutine is live and no other code runs it.
    let lua = unsafe { Lua::new(fiber.raw.get()) };
    // SAFETY: as above.
    unsafe { sys::lycosa_reserve_coroutine(lua.raw(), 0) };
    let outcome = match fiber.entry.take() {
        Some(EntryPoint::Function(args)) => lua.call(args, -1).map(|()| lua.top()),
        Some(EntryPoint::Native(entry)) => {
            catch_unwind(AssertUnwindSafe(|| entry(lua))).unwrap_or_else(|panic| {
                let text = panic_text(&*panic);
                tracing::error!("a fiber's native function panicked: {text}");
                Err(Error::text(format!("internal error: {text}")))
            })
        }
        None => Ok(0),
    };
    // The result of a fiber that cannot be joined has no reader.
    let result = match outcome {
        Ok(_) if !fiber.is_joinable() => None,
        Ok(count) => {
            lua.new_table(count.unsigned_abs() as usize, 1);
            lua.insert(-1 - count);
            for number in (1..=count).rev() {
                lua.raw_set_item(-1 - number, number);
            }
            lua.push_number(f64::from(count));
            lua.raw_set_field(-2, "n");
            Some(Ok(lua.pop_ref()))
        }
        Err(error) if !fiber.is_joinable() => {
            if !matches!(error, Error::Cancelled) {
                let text = error.message(lua);
                if !(fiber.is_cancelled() && text == "fiber is cancelled") {
                    say_sampled(lua, Cause::Fiber, &text);
                }
            }
            None
        }
        Err(error) => {
            error.push(lua);
            Some(Err(lua.pop_ref()))
        }
    };
    lua.set_top(0);
    if let Some(on_end) = lua.shared().on_end.get() {
        on_end(lua);
    }
    // SAFETY: the coroutine is the fiber's own, and idle from here on.
    unsafe { sys::lycosa_reserve_coroutine(lua.raw(), 1) };
    lua.shared().scheduler.finish(fiber, result);
}

impl Shared {
    /// Says where the running fiber's reserve begins (0: unlimited); returns where the former one's did.
    pub(crate) fn set_stack_floor(&self, floor: usize) -> usize {
        // SAFETY: sets two numbers of this thread.
        unsafe { sys::lycosa_set_floor(floor, floor.saturating_sub(STACK_RESERVE - LAST_RESERVE)) };
        self.stack_floor.replace(floor)
    }
}

/// Where the stack of a fiber is kept from overflow: reads the address of a local.
pub(crate) fn stack_pointer() -> usize {
    let local = 0u8;
    std::ptr::from_ref(&local) as usize
}
