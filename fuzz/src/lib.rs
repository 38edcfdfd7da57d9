//! Fuzz targets: everything that reads bytes from a socket or a file.
//!
//! A target is a function of bytes that returns, or panics if a promise is broken. Beyond "no panic" each checks promises
//! that hold for all bytes: a decoded value is the same after encoding and decoding again; a request has one
//! reply; the journal's rows make the same data. [`TARGETS`] lists them with the bytes to begin with ([`corpus`]).
//!
//! libFuzzer calls them, guided by the coverage that the stable compiler can measure (`fuzz/libfuzzer`,
//! `cargo xtask fuzz`, `fuzz/README.md`). [`counted`] runs them over a fixed number of inputs, without coverage.
//!
//! Absent: sockets, threads and disks. Those fail in tests of their own.

mod bytes;
mod checkpoint;
pub mod corpus;
pub mod counted;
mod grammar;
mod indexes;
mod journal;
mod mutation;
mod random;
mod replay;
mod shape;
mod targets;
mod world;

pub use mutation::mutate_steps;
pub use shape::Shape;
pub use targets::{
    FuzzTarget, TARGETS, frame_and_request, instance_frames, meta_header, row, update_operations, xlog_file,
};
