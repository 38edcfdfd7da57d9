//! Native part of `fiber`: fibers as objects, sleeping, waking.

use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lycosa_iproto::error::ErrorObject;
use rustix::time::{ClockId, clock_gettime};

use super::deadline;
use crate::api::{Kind, Lua};
use crate::error::Error;
use crate::fiber::{Fiber, FiberId, Status, Ticket, Wake};

/// A fiber as Lua holds it.
struct Handle(Rc<Fiber>);

/// Pushes the native part.
pub(super) fn open(lua: Lua) -> Result<i32, Error> {
    lua.new_class::<Handle>(
        "fiber",
        &[
            ("id", id),
            ("name", name),
            ("status", status),
            ("cancel", cancel),
            ("kill", cancel),
            ("wakeup", wakeup),
            ("join", join),
            ("set_joinable", set_joinable),
            ("csw", csw),
            ("info", info_of),
            ("testcancel", test_cancel),
        ],
        &[("__tostring", display), ("__serialize", serialized), ("__eq", equal), ("__index", index)],
    );
    lua.pop(1);
    lua.new_library(&[
        ("create", create),
        ("new", new),
        ("self", self_),
        ("find", find),
        ("sleep", sleep),
        ("yield", yield_),
        ("pause", pause),
        ("testcancel", test_cancel),
        ("id", id),
        ("running", running),
        ("status", status),
        ("cancel", cancel),
        ("wakeup", wakeup),
        ("join", join),
        ("set_joinable", set_joinable),
        ("name", name),
        ("info", info),
        ("coroutine_of", coroutine_of),
        ("time", time),
        ("time64", time64),
        ("clock", clock),
        ("clock64", clock64),
        ("ticket", ticket),
        ("park", park),
        ("wake", wake),
        ("waits", waits),
    ]);
    Ok(1)
}

/// Methods of fiber objects that `__index` looks at.
const METHODS: &[(&str, crate::Native)] = &[
    ("id", id),
    ("name", name),
    ("status", status),
    ("cancel", cancel),
    ("kill", cancel),
    ("wakeup", wakeup),
    ("join", join),
    ("set_joinable", set_joinable),
    ("csw", csw),
    ("info", info_of),
    ("testcancel", test_cancel),
];

fn index(lua: Lua) -> Result<i32, Error> {
    let key = lua.text(2).unwrap_or_default();
    if key == "storage" {
        let fiber = living(lua, 1)?;
        lua.push_storage(&fiber);
        return Ok(1);
    }
    match METHODS.iter().find(|(name, _)| *name == key) {
        Some((_, function)) => lua.push_function(*function),
        None => lua.push_nil(),
    }
    Ok(1)
}

pub(crate) fn push(lua: Lua, fiber: &Rc<Fiber>) {
    lua.push_userdata(Handle(fiber.clone()));
}

fn handle(lua: Lua, index: i32) -> Result<Rc<Fiber>, Error> {
    let handle = lua.userdata::<Handle>(index);
    handle.map(|handle| handle.0.clone()).ok_or_else(|| no_fiber(lua, index))
}

/// The fiber whose object is at `index`, which has not ended, or waits to be joined.
fn living(lua: Lua, index: i32) -> Result<Rc<Fiber>, Error> {
    let fiber = handle(lua, index)?;
    match lua.shared().scheduler.find(fiber.id) {
        Some(fiber) => Ok(fiber),
        None => Err(Error::here("the fiber is dead")),
    }
}

fn no_fiber(lua: Lua, index: i32) -> Error {
    Error::here(format!("bad argument #{index} to '?' (fiber expected, got {})", lua.type_name(index)))
}

/// The fiber at `index`, as object or number.
fn fiber_at(lua: Lua, index: i32) -> Result<Rc<Fiber>, Error> {
    match number_at(lua, index) {
        Some(id) => {
            let fiber = lua.shared().scheduler.find(id as FiberId);
            fiber.ok_or_else(|| Error::here("the fiber is dead"))
        }
        None => living(lua, index),
    }
}

/// The fiber object at `index`; the running fiber if there is no argument.
fn fiber_or_self(lua: Lua, index: i32) -> Result<Rc<Fiber>, Error> {
    if lua.kind(index) == Kind::None { lua.fiber() } else { handle(lua, index) }
}

/// A number, or a string that reads as one, as Lua's own functions take it.
fn number_at(lua: Lua, index: i32) -> Option<f64> {
    let written = || lua.text(index).and_then(|text| text.trim().parse().ok());
    lua.number(index).or_else(written)
}

fn create(lua: Lua) -> Result<i32, Error> {
    if lua.kind(1) != Kind::Function && !is_callable(lua, 1) {
        return Err(Error::here("fiber.create(function, ...): bad arguments"));
    }
    let args = lua.top() - 1;
    let fiber = lua.shared().scheduler.spawn_function(lua, args)?;
    lua.start_now(&fiber)?;
    push(lua, &fiber);
    Ok(1)
}

fn new(lua: Lua) -> Result<i32, Error> {
    if lua.kind(1) != Kind::Function && !is_callable(lua, 1) {
        return Err(Error::here("fiber.new(function, ...): bad arguments"));
    }
    let args = lua.top() - 1;
    let fiber = lua.shared().scheduler.spawn_function(lua, args)?;
    lua.shared().scheduler.start_later(&fiber);
    push(lua, &fiber);
    Ok(1)
}

fn is_callable(lua: Lua, index: i32) -> bool {
    // All C data share one metatable, and few can be called.
    if lua.kind(index) == Kind::Cdata {
        return false;
    }
    let callable = lua.metafield(index, "__call");
    if callable {
        lua.pop(1);
    }
    callable
}

fn self_(lua: Lua) -> Result<i32, Error> {
    let fiber = lua.fiber()?;
    push(lua, &fiber);
    Ok(1)
}

fn find(lua: Lua) -> Result<i32, Error> {
    if lua.top() != 1 {
        return Err(Error::here("fiber.find(id): bad arguments"));
    }
    let id = number_at(lua, 1).unwrap_or_default() as FiberId;
    match lua.shared().scheduler.find(id) {
        Some(fiber) => push(lua, &fiber),
        None => lua.push_nil(),
    }
    Ok(1)
}

fn sleep(lua: Lua) -> Result<i32, Error> {
    let Some(delay) = number_at(lua, 1).filter(|_| lua.top() == 1) else {
        return Err(Error::here("fiber.sleep(delay): bad arguments"));
    };
    if delay <= 0.0 {
        lua.yield_now()?;
        return Ok(0);
    }
    let _ = lua.park(deadline(lua, Some(delay)))?;
    lua.test_cancel()?;
    Ok(0)
}

fn yield_(lua: Lua) -> Result<i32, Error> {
    lua.yield_now()?;
    Ok(0)
}

/// A `yield` that a cancelled fiber survives.
fn pause(lua: Lua) -> Result<i32, Error> {
    lua.pause()?;
    Ok(0)
}

fn test_cancel(lua: Lua) -> Result<i32, Error> {
    if lua.top() != 0 {
        return Err(Error::here("fiber.testcancel(): bad arguments"));
    }
    lua.test_cancel()?;
    Ok(0)
}

fn id(lua: Lua) -> Result<i32, Error> {
    let fiber = fiber_or_self(lua, 1)?;
    lua.push_number(fiber.id as f64);
    Ok(1)
}

/// `running()`: where the numbers of the running fiber and of its session stand, a `struct lycosa_running`.
fn running(lua: Lua) -> Result<i32, Error> {
    let running = std::ptr::from_ref(&lua.shared().running);
    lua.push_uint64(running as usize as u64);
    Ok(1)
}

fn status(lua: Lua) -> Result<i32, Error> {
    let fiber = fiber_or_self(lua, 1)?;
    lua.push_str(status_text(lua, &fiber)?);
    Ok(1)
}

fn status_text(lua: Lua, fiber: &Fiber) -> Result<&'static str, Error> {
    Ok(match fiber.status() {
        Status::Running if lua.fiber()?.id == fiber.id => "running",
        // One that waits to be joined, as in Tarantool.
        Status::Dead if lua.shared().scheduler.find(fiber.id).is_some() => "suspended",
        Status::Dead => "dead",
        Status::Running | Status::Ready | Status::Suspended => "suspended",
    })
}

/// `fiber.name()`, `fiber.name(new)`, `object:name([new [, options]])`.
fn name(lua: Lua) -> Result<i32, Error> {
    let (fiber, at) = match lua.userdata::<Handle>(1) {
        Some(_) => (living(lua, 1)?, 2),
        None => (lua.fiber()?, 1),
    };
    if lua.kind(at) == Kind::None {
        lua.push_str(fiber.name());
        return Ok(1);
    }
    let number = lua.number(at).filter(|_| lua.kind(at) == Kind::Number).map(|_| lua.display(at));
    let Some(new) = lua.text(at).or(number) else {
        let kind = lua.type_name(at);
        return Err(Error::here(format!("bad argument #{at} to '?' (string expected, got {kind})")));
    };
    const LONGEST: usize = 255;
    if new.len() > LONGEST {
        let truncate = lua.kind(at + 1) == Kind::Table && {
            lua.raw_field(at + 1, "truncate");
            let truncate = lua.truth(-1);
            lua.pop(1);
            truncate
        };
        if !truncate {
            return Err(Error::here("Fiber name is too long"));
        }
    }
    fiber.set_name(new.chars().take(LONGEST).collect::<String>());
    Ok(0)
}

fn cancel(lua: Lua) -> Result<i32, Error> {
    let fiber = fiber_at(lua, 1)?;
    lua.shared().scheduler.cancel(&fiber);
    if lua.fiber()?.id == fiber.id {
        lua.test_cancel()?;
    }
    Ok(0)
}

fn wakeup(lua: Lua) -> Result<i32, Error> {
    let fiber = fiber_at(lua, 1)?;
    lua.shared().scheduler.wake_up(&fiber);
    Ok(0)
}

fn set_joinable(lua: Lua) -> Result<i32, Error> {
    if lua.top() != 2 {
        return Err(Error::here("fiber.set_joinable(id, yesno): bad arguments"));
    }
    let fiber = fiber_at(lua, 1)?;
    fiber.set_joinable(lua.truth(2));
    Ok(0)
}

/// Returns `true` and the results, or `false` and the error.
fn join(lua: Lua) -> Result<i32, Error> {
    let fiber = fiber_at(lua, 1)?;
    // A fiber that waited for its own end would wait for ever.
    if !fiber.is_joinable() || lua.fiber().is_ok_and(|own| own.id == fiber.id) {
        return Err(Error::here("the fiber is not joinable"));
    }
    let until = deadline(lua, lua.number(2));
    lua.set_top(0);
    match lua.join(&fiber, until)? {
        Some(true) => {
            lua.push_bool(true);
            lua.insert(1);
            lua.raw_field(2, "n");
            let count = lua.number(-1).unwrap_or_default() as i32;
            lua.pop(1);
            lua.reserve(count)?;
            for number in 1..=count {
                lua.raw_item(2, number);
            }
            lua.remove(2);
            Ok(1 + count)
        }
        Some(false) => {
            // As in Tarantool, who joins always gets an error object.
            if lua.error_object(-1).is_none() {
                let text = lua.display(-1);
                lua.push_error_object(&ErrorObject::lua(text));
            }
            let error = lua.top();
            lua.push_bool(false);
            lua.insert(error);
            Ok(2)
        }
        None => {
            lua.push_bool(false);
            lua.push_str("timed out");
            Ok(2)
        }
    }
}

fn csw(lua: Lua) -> Result<i32, Error> {
    let fiber = fiber_at(lua, 1)?;
    lua.push_number(fiber.switches() as f64);
    Ok(1)
}

fn push_info(lua: Lua, fiber: &Fiber, has_backtrace: bool) {
    lua.new_table(0, 6);
    lua.push_number(fiber.id as f64);
    lua.raw_set_field(-2, "fid");
    lua.push_str(fiber.name());
    lua.raw_set_field(-2, "name");
    lua.push_number(fiber.switches() as f64);
    lua.raw_set_field(-2, "csw");
    lua.push_number(fiber.busy_us() as f64 / 1e6);
    lua.raw_set_field(-2, "time");
    lua.new_table(0, 2);
    lua.push_number(262_144.0);
    lua.raw_set_field(-2, "total");
    lua.push_number(0.0);
    lua.raw_set_field(-2, "used");
    lua.raw_set_field(-2, "memory");
    if has_backtrace {
        lua.new_table(0, 0);
        lua.raw_set_field(-2, "backtrace");
    }
}

fn info_of(lua: Lua) -> Result<i32, Error> {
    let fiber = handle(lua, 1)?;
    push_info(lua, &fiber, true);
    Ok(1)
}

/// `fiber.info([{ backtrace = false }])`; `bt` is the other name of the option.
fn info(lua: Lua) -> Result<i32, Error> {
    let mut has_backtrace = true;
    if lua.kind(1) == Kind::Table {
        for name in ["backtrace", "bt"] {
            lua.raw_field(1, name);
            has_backtrace &= lua.kind(-1) == Kind::Nil || lua.truth(-1);
            lua.pop(1);
        }
    }
    lua.new_table(0, 16);
    for fiber in lua.shared().scheduler.all() {
        lua.push_number(fiber.id as f64);
        push_info(lua, &fiber, has_backtrace);
        lua.raw_set(-3);
    }
    Ok(1)
}

/// `coroutine_of(number)`: the coroutine of a fiber that waits, for a look at its functions.
fn coroutine_of(lua: Lua) -> Result<i32, Error> {
    let fiber = fiber_at(lua, 1)?;
    Ok(i32::from(fiber.push_coroutine(lua)))
}

fn display(lua: Lua) -> Result<i32, Error> {
    let fiber = living(lua, 1)?;
    lua.push_str(format!("fiber: {}", fiber.id));
    Ok(1)
}

/// What json, yaml and the console show of a fiber.
fn serialized(lua: Lua) -> Result<i32, Error> {
    let Ok(fiber) = living(lua, 1) else {
        lua.push_str("the fiber is dead");
        return Ok(1);
    };
    lua.new_table(0, 3);
    lua.push_number(fiber.id as f64);
    lua.raw_set_field(-2, "id");
    lua.push_str(fiber.name());
    lua.raw_set_field(-2, "name");
    lua.push_str(status_text(lua, &fiber)?);
    lua.raw_set_field(-2, "status");
    Ok(1)
}

fn equal(lua: Lua) -> Result<i32, Error> {
    let same = match (lua.userdata::<Handle>(1), lua.userdata::<Handle>(2)) {
        (Some(one), Some(other)) => Rc::ptr_eq(&one.0, &other.0),
        _ => false,
    };
    lua.push_bool(same);
    Ok(1)
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The time of the present round, as in Tarantool; the system's before the first one.
fn round_time(lua: Lua) -> u64 {
    match lua.shared().scheduler.now() {
        0 => u64::try_from(since_epoch().as_micros()).unwrap_or(0),
        now => now,
    }
}

fn time(lua: Lua) -> Result<i32, Error> {
    lua.push_number(round_time(lua) as f64 / 1e6);
    Ok(1)
}

fn time64(lua: Lua) -> Result<i32, Error> {
    lua.push_uint64(round_time(lua));
    Ok(1)
}

fn clock(lua: Lua) -> Result<i32, Error> {
    let now = clock_gettime(ClockId::Monotonic);
    lua.push_number(now.tv_sec as f64 + now.tv_nsec as f64 / 1e9);
    Ok(1)
}

fn clock64(lua: Lua) -> Result<i32, Error> {
    let now = clock_gettime(ClockId::Monotonic);
    // As in Tarantool a C data, however small.
    lua.push_uint64((now.tv_sec * 1_000_000 + now.tv_nsec / 1000).cast_unsigned());
    Ok(1)
}

/// The number and wait of the running fiber, for `wake`.
fn ticket(lua: Lua) -> Result<i32, Error> {
    let ticket = lua.ticket()?;
    lua.push_number(ticket.fiber as f64);
    lua.push_number(ticket.wait as f64);
    Ok(2)
}

/// `park([timeout])`: `true` if woken, `false` when the time is over, `nil` if cancelled.
fn park(lua: Lua) -> Result<i32, Error> {
    let until = deadline(lua, lua.number(1));
    match lua.park(until)? {
        Wake::Woken => lua.push_bool(true),
        Wake::Timeout => lua.push_bool(false),
        Wake::Cancelled => lua.push_nil(),
    }
    Ok(1)
}

/// `wake(fiber, wait)`: whether the fiber was still in that wait.
fn wake(lua: Lua) -> Result<i32, Error> {
    let fiber = lua.arg_number(1, "usage: wake(fiber, wait)")? as FiberId;
    let wait = lua.arg_number(2, "usage: wake(fiber, wait)")? as u64;
    let woken = lua.shared().scheduler.wake(Ticket { fiber, wait }, Wake::Woken);
    lua.push_bool(woken);
    Ok(1)
}

/// `waits(fiber, wait)`: whether the fiber is still in that wait.
fn waits(lua: Lua) -> Result<i32, Error> {
    let fiber = lua.arg_number(1, "usage: waits(fiber, wait)")? as FiberId;
    let wait = lua.arg_number(2, "usage: waits(fiber, wait)")? as u64;
    lua.push_bool(lua.shared().scheduler.waiting(Ticket { fiber, wait }).is_some());
    Ok(1)
}
