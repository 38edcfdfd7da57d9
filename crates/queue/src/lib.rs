//! Tubes, tasks, sessions and drivers on top of the store.
mod arguments;
pub mod driver;
pub mod error;
mod lua_text;
pub mod task;
pub mod time;
