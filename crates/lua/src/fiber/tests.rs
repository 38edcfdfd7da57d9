//! The order of fibers, and the end of a turn, by a clock of the tests.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use lycosa_instance::Caller;

use crate::host::Session;
use crate::{Error, Limits, Lua, Runtime};

thread_local! {
    /// Milliseconds since the begin of the tests.
    static TIME: Cell<u64> = const { Cell::new(0) };
}

/// A clock that only the fibers of a test move.
fn clock() -> Instant {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    *BEGIN.get_or_init(Instant::now) + Duration::from_millis(TIME.get())
}

fn works(milliseconds: u64) {
    TIME.set(TIME.get() + milliseconds);
}

fn session(number: u64) -> Rc<Session> {
    let caller = Caller { session: number, ..Caller::internal() };
    Rc::new(Session { caller, peer: Rc::from("test"), request: None })
}

#[test]
fn a_turn_ends_with_the_fiber_that_reaches_its_limit() {
    let runtime = Runtime::new(Limits::default()).expect("there is memory");
    runtime.shared().scheduler.clock.set(clock);
    let ran = Rc::new(RefCell::new(Vec::new()));
    // Client 1 has three ready functions, clients 2 and 3 have one each.
    for (number, name) in [(1, "1a"), (1, "1b"), (1, "1c"), (2, "2a"), (3, "3a")] {
        let ran = ran.clone();
        let entry = move |_| {
            works(30);
            ran.borrow_mut().push(name);
            Ok(0)
        };
        runtime.spawn_with("main", session(number), entry).expect("there is memory");
    }
    let mut turns = Vec::new();
    while runtime.has_ready() {
        runtime.resume_rounds(0, Duration::from_millis(1), |_| true);
        turns.push(ran.take());
    }
    assert_eq!(turns, [["1a"], ["2a"], ["3a"], ["1b"], ["1c"]]);
}

#[test]
fn short_functions_share_a_turn() {
    let runtime = Runtime::new(Limits::default()).expect("there is memory");
    runtime.shared().scheduler.clock.set(clock);
    let ran = Rc::new(Cell::new(0));
    for number in 1..=100 {
        let ran = ran.clone();
        let entry = move |_| {
            ran.set(ran.get() + 1);
            if number == 60 {
                works(1);
            }
            Ok(0)
        };
        runtime.spawn_with("main", session(number), entry).expect("there is memory");
    }
    runtime.resume_rounds(0, Duration::from_millis(1), |_| true);
    assert_eq!(ran.take(), 60);
    runtime.resume_rounds(0, Duration::from_millis(1), |_| true);
    assert_eq!(ran.take(), 40);
}

thread_local! {
    static RAN: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
}

fn record(name: &'static str) {
    works(30);
    RAN.with_borrow_mut(|ran| ran.push(name));
}

fn child(_: Lua) -> Result<i32, Error> {
    record("child of 1");
    Ok(0)
}

/// The fibers that a client's function starts run in the client's turns.
#[test]
fn fibers_of_a_client_share_its_turns() {
    let runtime = Runtime::new(Limits::default()).expect("there is memory");
    runtime.shared().scheduler.clock.set(clock);
    let first = |lua: Lua| {
        record("1");
        for _ in 0..3 {
            lua.push_function(child);
            let fiber = lua.shared().scheduler.spawn_function(lua, 0)?;
            lua.shared().scheduler.start_later(&fiber);
        }
        lua.pause()?;
        record("1 again");
        Ok(0)
    };
    runtime.spawn_with("main", session(1), first).expect("there is memory");
    for (number, name) in [(2, "2"), (3, "3")] {
        let entry = move |lua: Lua| {
            record(name);
            lua.pause()?;
            record(name);
            Ok(0)
        };
        runtime.spawn_with("main", session(number), entry).expect("there is memory");
    }
    while runtime.has_ready() {
        runtime.resume_rounds(0, Duration::from_millis(1), |_| true);
    }
    let expected = ["1", "2", "3", "child of 1", "2", "3", "child of 1", "child of 1", "1 again"];
    assert_eq!(RAN.take(), expected);
}
