//! Tests of the command line: the built binary, run as a person runs it.
//!
//! One program has all files, because linking it takes longer than compiling a file. `cargo nextest run -p lycosa --test cli
//! work::` runs the tests of `work.rs`. Tests that speak the protocol themselves are in `blackbox`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../shared/addresses.rs"]
mod addresses;
mod article;
mod bench;
mod c_modules;
mod checkpoint;
mod checks;
mod clock;
mod cluster;
mod compatibility;
mod completion;
mod declared;
mod documented;
mod documents;
mod errors;
mod expiration;
mod guards;
mod http;
mod leases;
mod listing;
mod lua;
mod odd;
mod older;
mod programs;
mod random;
mod reload;
mod service;
mod steer;
mod support;
mod terminal;
mod tls;
mod tools;
mod top;
mod work;
