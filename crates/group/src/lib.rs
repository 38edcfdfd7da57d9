//! Servers that act as one: consensus, its members, its messages and its log.
//!
//! The consensus is the crate `raft`'s, which has no I/O and no clock. This crate is what stands around it: [`node`] drives
//! it by the rules under which it is safe here, and says what became of proposals; [`members`] is the list of servers and its
//! changes; [`log`] keeps entries and votes in files of the journal's blocks; [`base`] is the group's part of a
//! snapshot; [`link`] and `message.rs` are what nodes say to each other, and [`codec`] reads the fields of both.
//!
//! An owner has one [`node::Node`] and one [`log::GroupLog`] for each server, moves messages between nodes, and applies the
//! entries that are handed out. To a `Node` everything is a call and an event, so the same node runs in a simulated
//! group, where a seed decides what fails.
//!
//! Invariants:
//! - all nodes hand out the same entries in the same order; each hands out a confirmed entry;
//! - nothing that a message promises is less durable than it says: answers wait for the node's own disk;
//! - bytes from a network or a disk are read by this crate alone, never by a parser of protobuf.
//!
//! Absent: sockets, threads, the clock, and what a row means.

pub mod base;
pub mod codec;
pub mod link;
pub mod log;
pub mod members;
mod message;
pub mod node;
pub mod record;
mod window;

pub use window::Limits;
