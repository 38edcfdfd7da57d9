//! Replication: what a master and a replica say to each other, as machines without I/O and without a clock.
//!
//! Bytes and times go in, bytes and values come out; sockets, files and threads belong to the caller. A role is a type,
//! and a step of the protocol that may only follow another consumes the machine of the step before:
//!
//! | role | machine | step |
//! |---|---|---|
//! | master | [`relay::SnapshotRows`] | rows of a snapshot file become the first part of a JOIN |
//! | master | [`relay::Relay`] | the log for one subscribed replica: filter, heartbeats, acknowledgements |
//! | master | [`relay::Window`] | the newest batches in memory, shared by all relays |
//! | master | [`relay::Replicas`] | the known replicas, the clock of each, the journals that each still needs |
//! | replica | [`applier::Handshake`] → [`applier::Session`] | greeting, AUTH, VOTE |
//! | replica | [`applier::Join`] | receives all data |
//! | replica | [`applier::Follower`] | receives the log in whole transactions |
//! | replica | [`sync::Sync`] | how many masters are in sync; whether the instance is an orphan |
//! | both | [`lineage::Lineage`] | whether the two have one history; which instance may write |
//!
//! Invariants:
//! - a transaction is handed over whole, with its origin's ids, LSNs, times and flags, or not at all;
//! - a row that the receiver has is neither sent twice nor handed over twice;
//! - local rows never leave; a transaction that ends in one is ended by the NOP that its journal holds;
//! - a peer can make nothing here grow without a bound that the caller names.
//!
//! Behaviour is that of Tarantool 2.6.0. Absent: synchronous replication (CONFIRM and ROLLBACK rows are refused) and
//! elections.

pub mod applier;
pub mod backoff;
pub mod lineage;
pub mod relay;
pub mod stream;
pub mod sync;
#[cfg(test)]
mod transcript;
pub mod uri;

/// After how many heartbeat periods of silence a peer counts as dead.
pub const SILENT_PERIODS: u64 = 4;

/// How long a peer may be silent before it counts as dead, in the unit of `replication_timeout`.
#[must_use]
pub fn disconnect_timeout(replication_timeout: u64) -> u64 {
    replication_timeout.saturating_mul(SILENT_PERIODS)
}
