//! Sockets, threads, timers and configuration around an instance.
//!
//! The instance decides, this crate carries: bytes between sockets and the instance, batches between the instance and
//! the journal, signals and settings to it. [`running`] shows every thread and channel; [`turn`](mod@turn) is the loop's
//! heartbeat.
//!
//! Invariants: the instance is touched by one thread only; no lock, no blocking call and no file access on that thread
//! once it serves. Absent: anything that knows what a request means.

mod appender;
mod certificates;
mod checkpoint_thread;
mod clock;
pub mod cluster;
pub mod config;
mod connection;
mod declarations;
mod early;
mod file_limit;
mod graphite;
mod http;
mod instance;
mod journal;
mod journal_thread;
mod listener;
pub mod logging;
mod notify;
mod opening;
mod process;
pub mod program;
mod program_listen;
mod program_masters;
mod program_options;
mod random;
mod replication;
mod running;
pub mod script;
pub mod serve;
mod slow_lane;
mod socket;
mod starting;
mod startup;
mod storage;
mod strangers;
mod stuck;
mod terminal;
mod tls;
mod turn;

pub use appender::Unclosed;
pub use listener::ADMIN_SOCKET;
pub use lycosa_lua::SQL_KNOWLEDGE;
