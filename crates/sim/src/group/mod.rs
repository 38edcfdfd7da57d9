//! Worlds of a group of servers (`lycosa-group`): three to five nodes with disks, links and clocks that fail, and an operator
//! who adds, removes and upgrades servers meanwhile.
//!
//! Real are the nodes and their logs, on disks in memory that forget unsynced bytes. Imitated are the data, a list of
//! operations, and their snapshots. A server's disk takes its time, stalls and refuses; a machine dies anywhere, in the
//! middle of a write too. Links keep their order; they are slow, break, or swallow everything without a word. Clocks
//! run apart, and servers stop for seconds as by SIGSTOP.
//!
//! Checked at every step:
//! - all nodes hand out the same entries in the same order, and after a snapshot the same data;
//! - a confirmed operation is handed out after any deaths, and no handed out entry gives way to another;
//! - a read that the majority has answered sees everything that was confirmed before it was asked;
//! - a term has one leader, and a leader is a member;
//! - no node refuses a message of another, none panics.
//!
//! In the end nothing fails any more: within a minute the group has a leader, all members are voters with the same data, and
//! an operation is confirmed.
//!
//! Absent: instances, queues and clients, which have worlds of their own (`members`).

mod history;
pub(crate) mod link;
mod server;
#[cfg(test)]
mod tests;
mod world;

pub(crate) use world::World;

/// What happened in a world of a group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupTotals {
    /// Terms that had a leader.
    pub elections: u64,
    /// Operations that were confirmed.
    pub confirmed: u64,
    /// Operations that gave way to those of another leader.
    pub lost: u64,
    /// Reads that the majority answered.
    pub reads: u64,
    /// Reads of nodes that stopped leading.
    pub lost_reads: u64,
    /// Snapshots that were taken.
    pub snapshots: u64,
    /// Snapshots that took the place of a log.
    pub installs: u64,
    /// Snapshots that were lost with a link or a machine.
    pub lost_snapshots: u64,
    /// Readings of entries that had left memory.
    pub readings: u64,
    /// Servers that joined.
    pub joins: u64,
    /// Servers that were removed.
    pub removals: u64,
    /// Leaders that were removed by an entry of an earlier leader.
    pub removed_leaders: u64,
    /// Hand-overs that were ordered.
    pub transfers: u64,
    /// Hand-overs of leaders whose disk was slow or full, or that were being removed.
    pub hand_overs: u64,
    /// Groups that rose to a newer level.
    pub levels: u64,
    /// Processes and machines that died.
    pub crashes: u64,
    /// Machines that died in the middle of a write.
    pub torn_writes: u64,
    /// Disks that refused.
    pub faults: u64,
    /// Disks that were short of free space for a while.
    pub shortages: u64,
    /// Links that broke or swallowed messages.
    pub cuts: u64,
    /// Messages of an older connection that arrived behind a newer one, and were dropped.
    pub late_messages: u64,
    /// Servers that stopped for a while.
    pub stops: u64,
}
