//! Data folders seen from outside, as the tools of the command line see them.
//!
//! A server opens its folder, locks it and goes on from it (`lycosa_engine::folder`). Everything here only looks. [`file`]
//! opens one journal file under any name, [`walk`] goes through it past damage, and [`names`] knows the names of its spaces.
//! [`verify`] judges each file of a folder, [`examine`] also loads the data as a start does, and [`backup`] makes a copy and
//! proves it.
//!
//! Invariants:
//! - no lock is taken, and a folder that is looked at is not changed: a server may run on it meanwhile;
//! - a damaged file is reported and passed, never an error; an error is a disk that cannot be read.
//!
//! Absent: text for people and exit codes (the command line), connections, and tubes as such: their counts come from
//! `lycosa_engine::inspect`.

pub mod backup;
pub mod examine;
pub mod file;
pub mod journal_walk;
pub mod names;
pub mod verify;
