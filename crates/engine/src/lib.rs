//! An instance with its files: what the server, the simulator, the fuzzer and a program that embeds Lycosa would each have
//! to write around [`lycosa_instance`] and [`lycosa_journal`].
//!
//! | module | what it does |
//! |---|---|
//! | [`files`] | the journal in the data folder |
//! | [`folder`] | begins a data folder, and opens it again |
//! | [`group`] | a member of a group of servers: consensus as the journal |
//! | [`inspect`] | reports the content of a data folder, and the parts of it that this server does not run |
//! | [`journal`] | the seam to the journal that makes rows durable |
//! | [`replay`] | makes a store of recovered or received rows |
//! | [`snapshots`] | writes snapshots and removes old files, as the instance orders |
//! | [`turn`] | what happens between two waits of a loop |
//!
//! `examples/embed.rs` is a program that embeds an instance.
//!
//! Absent: sockets, threads, the clock. Files are read through [`lycosa_journal::directory::Directory`], which may lie in
//! memory.

pub mod files;
pub mod folder;
pub mod group;
mod group_commit;
pub mod inspect;
pub mod journal;
pub mod replay;
pub mod snapshots;
pub mod turn;
