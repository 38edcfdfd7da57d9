//! The journal: `.snap` and `.xlog` files, group commit, recovery.
//!
//! Batches of encoded transactions ([`log::Batch`]) come in and, at a checkpoint, all its
//! tuples ([`snap::SnapshotWriter`]), after which old files can go ([`retention`]); after a start it gets
//! them back ([`recovery::Recovery`]). The files are Tarantool's, both ways: a data folder of one is a data
//! folder of the other. `docs/formats.md` describes them.
//!
//! From the bytes up: [`block`], [`synced`] and [`meta`] are the codec. [`reader`] reads one file and says how it
//! ends, [`transaction`] makes transactions of blocks, and [`directory`] knows the names and holds the lock.
//! [`decision`] is the table of what recovery does about what it finds; [`empty_xlog`] is the file that it hands to the
//! [`writer`]. [`disk`] is the seam to the file system;
//! [`memory`] is a disk that fails on command, and [`suite`] the tests that the log passes on every disk: both for
//! the tests of other crates.
//!
//! Rows are bytes here. The callers that encode and apply them know their meaning.

pub mod block;
pub mod decision;
pub mod directory;
pub mod disk;
pub mod empty_xlog;
mod limbo;
pub mod log;
pub mod memory;
pub mod meta;
pub mod reader;
pub mod recovery;
pub mod retention;
mod search;
pub mod snap;
pub mod suite;
pub mod synced;
pub mod tail;
pub mod transaction;
pub mod writer;
