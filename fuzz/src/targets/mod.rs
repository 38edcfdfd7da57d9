//! The targets.

mod frames;
mod instance;
mod meta;
mod rows;
mod updates;
mod xlog;

use anyhow::Result;

pub use frames::frame_and_request;
pub use instance::instance_frames;
pub use meta::meta_header;
pub use rows::row;
pub(crate) use updates::seed as update_seed;
pub use updates::update_operations;
pub use xlog::xlog_file;
pub(crate) use xlog::{FILE, ROWS};

use crate::{Shape, corpus};

/// A function of bytes that must return, and what libFuzzer needs to know of it.
#[derive(Debug)]
pub struct FuzzTarget {
    /// The function's name.
    pub name: &'static str,
    /// The function.
    pub run: fn(&[u8]),
    /// How its input is put together.
    pub shape: Shape,
    /// Inputs to begin with.
    pub seeds: fn() -> Result<Vec<Vec<u8>>>,
}

/// All targets.
pub static TARGETS: [FuzzTarget; 6] = [
    FuzzTarget {
        name: "frame_and_request",
        run: frame_and_request,
        shape: Shape::Plain,
        seeds: corpus::frames,
    },
    FuzzTarget { name: "row", run: row, shape: Shape::Plain, seeds: corpus::rows },
    FuzzTarget { name: "xlog_file", run: xlog_file, shape: Shape::Plain, seeds: corpus::files },
    FuzzTarget {
        name: "update_operations",
        run: update_operations,
        shape: Shape::Plain,
        seeds: corpus::updates,
    },
    FuzzTarget { name: "instance_frames", run: instance_frames, shape: Shape::Steps, seeds: corpus::steps },
    FuzzTarget { name: "meta_header", run: meta_header, shape: Shape::Plain, seeds: corpus::headers },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_hold_on_their_corpus() {
        for target in &TARGETS {
            let seeds = (target.seeds)().unwrap();
            assert!(!seeds.is_empty(), "{}", target.name);
            for input in seeds.iter().step_by(seeds.len().div_ceil(12)).chain([&Vec::new()]) {
                (target.run)(input);
            }
        }
    }
}
