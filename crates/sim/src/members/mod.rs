//! Worlds of a group whose members are whole instances: clients put, take, release, acknowledge and look, while three to five
//! servers die, stop, are cut off, and join.
//!
//! Real are the instances with their queues, the turn, the nodes, the logs and the snapshots on disks in memory. Links keep
//! their order; they are slow, break, or swallow everything without a word. Clocks run apart, and times of day are
//! wrong by minutes. Machines die in the middle of a write; disks stall, are short of space, and refuse; servers stop for seconds
//! as by SIGSTOP.
//! The operator adds, removes and hands over. Clients go to the leader, or to any node, and join their queue sessions there.
//!
//! Checked:
//! - A task whose `put` was answered exists until an `ack` was sent. A task whose `ack` was answered never comes back. A
//!   refused `put` has put nothing.
//! - A leader's answer to a look at a task agrees with every `put` and `ack` that was answered before the look was sent.
//! - A task that one client holds is not given to another, and the holder's `ack` is accepted by any later leader (in worlds
//!   whose sessions outlive everything).
//! - Two members whose data hold the same entries have equal digests. A term has one leader.
//! - An entry that the group has confirmed can be applied by every member, and no node refuses a message of another.
//!
//! In the end nothing fails any more: within a minute the group confirms a `put`, and all members have the same data, which
//! are the ones that the clients know.
//!
//! Half of the groups begin at an older level, with programs of both versions, and rise once all members have the newer one.
//!
//! In many of the other groups one tube is temporary: an answered `put` stands until the leader changes, and no later leader has the
//! task.
//!
//! In half of the worlds members open connections for clients, to the leader that they know of. A request that arrives there is
//! answered by a node that leads, or refused as one that was not executed: no `put` is answered with nothing.
//!
//! In half of the worlds members pass the requests of half of the clients on by the server's own relay
//! ([`lycosa_engine::group::relay`]). These clients keep their sessions and tasks under each leader.
//!
//! In half of the worlds clients over HTTP put with keys, and members send these puts again when the leader changes
//! ([`lycosa_engine::group::attempts`]): each puts one task.
//!
//! Absent: programs, and the log-ins of clients.

mod client;
mod server;
mod world;

pub(crate) use world::World;

/// What happened in a world of a group of instances.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemberTotals {
    /// Terms with a leader whose instance took writes.
    pub elections: u64,
    /// Tasks whose `put` was answered.
    pub puts: u64,
    /// The same of the temporary tube.
    pub brief: u64,
    /// Puts with a key that were answered.
    pub ordered: u64,
    /// Tasks whose `ack` was answered.
    pub finished: u64,
    /// Looks at tasks that leaders answered.
    pub peeks: u64,
    /// Requests with an unknown outcome.
    pub unknown: u64,
    /// Requests that were refused because the node does not lead, or loads its data.
    pub refused: u64,
    /// Answers that clients got.
    pub replies: u64,
    /// Of them, answers to requests that a member passed on, refusals left out.
    pub forwarded: u64,
    /// Times that an instance's data were loaded anew while it ran.
    pub loads: u64,
    /// Snapshots that were taken.
    pub snapshots: u64,
    /// Snapshots that were sent to another member.
    pub sent_snapshots: u64,
    /// Snapshots that were lost with a link or a machine.
    pub lost_snapshots: u64,
    /// Servers that joined.
    pub joins: u64,
    /// Removals that were ordered.
    pub removals: u64,
    /// Hand-overs that were ordered.
    pub transfers: u64,
    /// Hand-overs of leaders whose disk was slow or full, or that were being removed.
    pub hand_overs: u64,
    /// Disks that were short of space.
    pub shortages: u64,
    /// Processes and machines that died.
    pub crashes: u64,
    /// Machines that died in the middle of a write.
    pub torn_writes: u64,
    /// Disks that refused.
    pub faults: u64,
    /// Links that broke or swallowed messages.
    pub cuts: u64,
    /// Servers that stopped for a while.
    pub stops: u64,
    /// Pairs of members whose digests were compared.
    pub comparisons: u64,
}
