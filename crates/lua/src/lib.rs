//! LuaJIT beside the instance: fibers, and the modules that Tarantool programs expect.
//!
//! A [`Runtime`] owns one Lua state. Every piece of Lua runs in a fiber: a LuaJIT coroutine with a C stack of its own
//! ([`fiber`]), so that it may suspend anywhere plain C could, for example inside `table.sort`, `pcall`, an iterator or
//! the user's own coroutines. Modules are Rust functions ([`Native`]) and embedded Lua sources, see [`modules`].
//!
//! Invariants:
//! - a fiber suspends only inside a [`Native`] function, never while compiled code, a hook or a finalizer runs;
//! - no Lua error crosses a Rust frame that has something to drop or catches panics: [`Native`] functions return their
//!   errors, and only the frame around them raises;
//! - no Rust panic crosses a C frame;
//! - no `RefCell` stays borrowed across a call into Lua or across a switch.
//!
//! Absent: the clock of timers (time is an argument of [`Runtime::resume_ready`]), and C modules.

mod api;
mod big_stack;
mod body;
mod cdata;
mod convert;
mod error;
mod error_object;
pub mod fiber;
mod files;
mod host;
mod keys;
mod memory;
pub mod modules;
mod ready;
mod runtime;
mod sql_knowledge;
mod sys;
mod userdata;
mod watchdog;

pub use api::{Kind, Lua, Native, Ref};
pub use big_stack::on_big_stack;
pub use body::check_body;
pub use cdata::Cdata;
pub use convert::{MAX_NESTING, Options as EncodeOptions};
pub use error::Error;
pub use host::{Host, Input, Session, SessionEvent};
pub use keys::make_keys;
pub use runtime::{Limits, Runtime};
pub use sql_knowledge::SQL_KNOWLEDGE;
