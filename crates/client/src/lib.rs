//! Typed asynchronous client for Lycosa and tarantool/queue servers.
//!
//! Two layers. A [`Connection`] is one socket: requests of any number of tasks share it, go out together and are
//! matched with their replies by number. A [`Client`] keeps one connection alive: it reconnects with back-off and takes
//! the queue session along, so that tasks taken before a short break can still be acknowledged after it. Queues are
//! reached through [`Client::queue`], [`Queue::tube`] and the [`Task`]s that a tube hands out.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use lycosa_client::{Client, ConnectOptions, PutOptions, TubeOptions, TubeType};
//!
//! # async fn example() -> lycosa_client::Result<()> {
//! let client = Client::connect(ConnectOptions::new("127.0.0.1:3301")).await?;
//! let queue = client.queue();
//! let tube = queue.create_tube("letters", TubeType::FifoTtl, TubeOptions::new().if_not_exists()).await?;
//!
//! tube.put("dear reader", PutOptions::new().ttl(Duration::from_secs(3600)).priority(1)).await?;
//! while let Some(task) = tube.take(Some(Duration::from_secs(5))).await? {
//!     println!("{}: {:?}", task.id, task.data.as_str());
//!     task.ack().await?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Many small tasks are cheaper in batches: [`Tube::put_many`], [`Tube::take_many`], [`Tube::ack_many`],
//! [`Tube::release_many`] and their likes ask once for many tasks, and each does it for all of them or for none.
//!
//! A worker without a connection that lasts takes by a lease: [`Tube::take_leased`] hands out a [`Lease`], whose token settles
//! the task over any connection, of any process.
//!
//! # When a connection breaks
//!
//! A request that was in flight ends with [`Error::Disconnected`] and is never repeated behind the caller's back: the
//! server may have done it. Only requests that change nothing are repeated once by a [`Client`]: [`Tube::peek`],
//! [`Tube::statistics`], [`Queue::statistics`], [`Queue::state`], [`Queue::tubes`], [`Client::ping`]. A task that a
//! lost `take` or `take_many` had already been given to this session stays taken until its ttr or the session's ends.
//!
//! The server keeps a session without connections for the ttr of `queue.cfg`; without one it releases the session's
//! tasks at once. If it no longer knows the session, the client begins another and
//! [`Status::session_changes`] counts it: earlier taken tasks no longer belong to this client.
//!
//! With [`ConnectOptions::tls`] the connection is encrypted and the server proves who it is (the feature `tls`, which is
//! on unless the dependency says `default-features = false`).
//!
//! Absent: Unix sockets by address ([`Connection::over`] takes any stream), pushed packets (they are passed
//! over), SQL, and reading of the schema: spaces and indexes are named by number.

mod array;
mod client;
mod connection;
mod error;
mod give_back;
mod info;
mod kind;
mod lease;
mod options;
mod payload;
mod pending;
mod procedures;
mod queue;
mod response;
mod standing;
mod statistics;
mod status;
mod steering;
mod task;
mod tls;
mod tube;
pub mod worker;

#[cfg(test)]
mod fake_server;

pub use lycosa_iproto::greeting::Greeting;
pub use lycosa_tuple::value::Value;

pub use self::array::Array;
pub use self::client::Client;
pub use self::connection::Connection;
pub use self::error::{Error, Result};
pub use self::info::TaskInfo;
pub use self::kind::Kind;
pub use self::lease::Lease;
pub use self::options::{AddressError, ConnectOptions};
pub use self::payload::Payload;
pub use self::queue::{Queue, QueueConfig, QueueState, StorageMode, TubeOptions, TubeType};
pub use self::response::Response;
pub use self::statistics::{Statistics, TaskCounts};
pub use self::status::{Link, Status, StatusWatch};
pub use self::steering::{
    ApplyOptions, AuditEntry, Explanation, Filter, JobState, Operation, Page, Reason, TubeJob,
};
pub use self::task::{Task, TaskState};
pub use self::tls::TlsOptions;
pub use self::tube::{PutOptions, Tube};
pub use self::worker::Worker;
