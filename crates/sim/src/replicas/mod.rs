//! Worlds of two or three instances that replicate each other while masters change.
//!
//! Each instance has its own disk, journal and clock, and follows all others as the address lists of a pair let it. An
//! operator changes the master as `docs/replication.md` tells: demote the old one, wait until the new one has everything,
//! promote it; or, when the master has died, promote the replica with the greatest vclock. A dead master that has rows
//! which the new one lacks joins again. Clients put, take, release and acknowledge, follow the master, and join their queue
//! sessions there.
//!
//! What goes wrong: connections are cut on one side or on both, or swallow bytes. Bytes come late and in pieces. A new
//! connection is made while the old one is still open at the other end. Machines die, a disk refuses, and a process starts
//! with a clock that is wrong by minutes. Journals are removed although a replica needs them: it joins again. In most worlds
//! a process is an orphan until it is in sync with some masters.
//!
//! Checked:
//! - A task whose `put` was answered exists until an `ack` was sent. One whose `ack` was answered never comes back.
//! - A task that one client holds is not given to another, and its holder's `ack` is accepted by any later master
//!   (in worlds whose sessions outlive everything).
//! - In half of the worlds clients also take by leases. A lease is in force until its end by the clock of some master: until then its
//!   task has no other owner and its token is accepted by any later master. Then the task is taken again, and its attempt was
//!   counted. A token that is known to be stale settles nothing.
//! - Two instances with equal vclocks have equal digests.
//! - Replication never stops, and everything comes to rest once nothing goes wrong any more.
//!
//! Instances join over a connection while clients work, in most worlds from the beginning. Either side dies in the middle, the
//! connection is cut, the journals that it needs are removed, and the disk refuses when all bytes are received: they begin anew.
//!
//! `replicas_before_reply` is 1 in every world: without it a master's death may cost what it has acknowledged.
//!
//! Absent: more than one master at a time; `masters.rs` has worlds with two.

mod client;
mod joining;
mod link;
mod masters;
mod node;
mod world;

use std::fmt;

pub use masters::MasterTotals;
pub(crate) use masters::Masters;
pub(crate) use world::World;
#[cfg(test)]
pub(crate) use world::has_leases;

/// What happened in a world, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplicaTotals {
    /// Changes of the master that the old one took part in.
    pub switches: u64,
    /// Changes of the master that could not end: the next one could not get what it lacked.
    pub taken_back: u64,
    /// Changes of the master because the old one had died.
    pub failovers: u64,
    /// Instances that had to join again because they had rows that the master lacked.
    pub rejoins: u64,
    /// Instances that had to join again because journals were removed.
    pub returns: u64,
    /// Instances that got all data over a connection.
    pub joins: u64,
    /// Attempts at it that ended early: either side died, the connection was cut, the master refused.
    pub broken_joins: u64,
    /// Removals of journals.
    pub prunes: u64,
    /// Machines that died.
    pub crashes: u64,
    /// Connections that were cut or swallowed bytes.
    pub cuts: u64,
    /// Disks that refused.
    pub faults: u64,
    /// Answers that clients got.
    pub replies: u64,
    /// Tasks that went all the way.
    pub finished: u64,
    /// Leases that clients were told of, renewals included.
    pub leases: u64,
    /// Tasks that were taken again after their lease had ended.
    pub ended: u64,
    /// Stale tokens that were refused.
    pub stale: u64,
    /// Pairs of equal vclocks whose digests were compared.
    pub comparisons: u64,
}

impl ReplicaTotals {
    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            switches: self.switches + other.switches,
            taken_back: self.taken_back + other.taken_back,
            failovers: self.failovers + other.failovers,
            rejoins: self.rejoins + other.rejoins,
            returns: self.returns + other.returns,
            joins: self.joins + other.joins,
            broken_joins: self.broken_joins + other.broken_joins,
            prunes: self.prunes + other.prunes,
            crashes: self.crashes + other.crashes,
            cuts: self.cuts + other.cuts,
            faults: self.faults + other.faults,
            replies: self.replies + other.replies,
            finished: self.finished + other.finished,
            leases: self.leases + other.leases,
            ended: self.ended + other.ended,
            stale: self.stale + other.stale,
            comparisons: self.comparisons + other.comparisons,
        }
    }
}

impl fmt::Display for ReplicaTotals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { switches, taken_back, failovers, rejoins, returns, prunes, crashes, cuts, faults, .. } =
            self;
        let Self { replies, finished, leases, ended, stale, comparisons, joins, broken_joins, .. } = self;
        write!(
            f,
            "{switches} planned switches and {taken_back} taken back, {failovers} fail-overs, {rejoins} instances joined again \
             over rows of their own and {returns} over journals, {joins} joins over a connection and {broken_joins} broken off, \
             journals removed {prunes} times, {crashes} crashes, {cuts} connections cut or silent, {faults} disk faults, \
             {replies} replies, {finished} tasks finished, {leases} leases, {ended} of them ended, {stale} stale tokens refused, \
             {comparisons} digests compared"
        )
    }
}
