//! The instance: all data of a server, and the one entry of every request, change and deadline.
//!
//! An [`Instance`] owns all data and everything that changes it. It does no I/O and has no clock: bytes and time are
//! arguments, bytes and deadlines come out. The same instance runs in the server, in a simulator and in a program that
//! embeds it.
//!
//! The methods are of three kinds. *Inputs*: [`connect`](Instance::connect), [`disconnect`](Instance::disconnect),
//! [`handle_frame`](Instance::handle_frame), [`handle_durable`](Instance::handle_durable),
//! [`handle_failed`](Instance::handle_failed), [`tick`](Instance::tick). *Outputs*:
//! [`poll_append`](Instance::poll_append) (rows for the journal), [`poll_ready`](Instance::poll_ready) and
//! [`output`](Instance::output) (bytes for a socket). *Getters*: the rest. A turn of the caller's loop is: inputs, then
//! `tick`, then outputs until there are none.
//!
//! Invariants:
//! - every change of data is a committed transaction of the store, and its rows are in the journal's batch before the
//!   reply is encoded;
//! - a reply leaves only when everything that it has seen is durable;
//! - after the journal has failed no request reads or changes data: no client sees rows that a restart might not find;
//! - everything that a client can make grow has a bound in [`Settings`];
//! - until a connection has sent one valid request, anything else ends it: bytes of another protocol, which a web page can
//!   send to a loopback address, never fall into step.
//!
//! Connections, fibers of programs, HTTP requests and the instance itself ([`Caller`]) come through the same functions:
//! [`Instance::call`], [`Instance::execute`], [`Instance::select`], in a transaction of their own or between
//! [`Instance::begin`] and [`Instance::commit`]. A call that cannot be answered at once is parked under one number, for
//! every cause of waiting. Programs run outside: see [`Instance::poll_invoke`].
//!
//! Absent: sockets, files, threads, Lua, and SQL (EXECUTE), which is answered with an error that says so.

#[macro_use]
mod forward;

mod front;
mod settings;
mod shard;

use lycosa_iproto::error::ErrorObject;
use lycosa_iproto::frame::FrameError;

pub use front::Instance;
pub use front::caller::{Answered, Called};
pub use front::connection::{ConnectionSlot, Origin, Released, Trust};
pub use front::declare::{Declared, DeclaredTube, DeclaredUser};
pub use front::deferral::Handled;
pub use front::idempotency::Once;
pub use front::invoke::{CLOSED, Invoke, InvokeKind, OwnedStatement};
pub use front::loop_time::{LongestTurn, TurnPart};
pub use front::measures::Programs;
pub use front::output::Excess;
pub use front::replica_request::ReplicaRequest;
pub use front::status::{RequestCounts, Standing, Status};
pub use front::trigger_gates::LoginAttempt;
pub use lycosa_queue::{Caller, CallerKind, Proposal, Savepoint, TokenId};
pub use settings::Settings;
pub use shard::admission::HANDING_OVER;
pub use shard::batch::{Batch, Buffers, statement};
pub use shard::checkpoint::LastCheckpoint;
pub use shard::checkpoint::disk::Files;
pub use shard::checkpoint::order::{CheckpointOrder, Chunk, Keep, Written};
pub use shard::checkpoint::status::CheckpointStatus;
pub use shard::data::{Confirmed, Lsn, Select, WalkError};
pub use shard::disk_space::FreeSpace;
pub use shard::expiration_tasks::DeclaredExpiration;
pub use shard::group::{Election, Followed, Forwarded, GroupMember, MemberProgress};
pub use shard::replication::Upstream;
pub use shard::request::RequestId;
pub use shard::tokens::{Token, TokenDigest, TokenRole};
pub use shard::wire_error::{OUTCOME_UNKNOWN, Result};
pub use shard::{Identity, Lag};

use shard::wire_error;

/// The version that the greeting announces: the one from which the protocol's reference was taken, because clients
/// choose what to send by it.
pub const PROTOCOL_VERSION: &str = "2.6.0";

/// Why a connection is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// `max_connections` are open.
    #[error("{0} connections are open, which is max_connections; {1} was turned away")]
    TooMany(usize, String),
}

/// Why a connection's stream cannot be decoded further. Later bytes cannot be trusted.
#[derive(Debug, Clone, PartialEq)]
pub struct Broken {
    /// `sync` of the request, as far as it could be read, else 0.
    pub sync: u64,
    /// The error for a client of this protocol.
    pub error: ErrorObject,
}

impl From<FrameError> for Broken {
    fn from(error: FrameError) -> Self {
        Self { sync: 0, error: ErrorObject::client(error.code(), error.to_string()) }
    }
}

/// A refusal of the store, as a client or a program sees it.
pub fn store_error(error: &lycosa_store::Error) -> ErrorObject {
    wire_error::of_store(error)
}

/// Connections that the administrator's socket may have beyond `max_connections`.
pub const ADMIN_CONNECTIONS: usize = 16;

/// Fills the bytes that it is given.
pub type Entropy = Box<dyn FnMut(&mut [u8]) + Send>;

/// The instance's needs from the process that it runs in.
pub struct Process {
    /// The process id, which `box.info.pid` shows.
    pub id: u32,
    /// The bytes must be random where clients are not trusted: the salt of a greeting is made of them, which keeps a
    /// recorded password proof from being used again.
    pub entropy: Entropy,
}
