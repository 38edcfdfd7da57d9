//! The journal as a whole: real files, damaged files, faults.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod bits;
mod checkpoints;
mod corpus;
mod damage;
mod faults;
mod layout;
mod sectors;
mod support;
