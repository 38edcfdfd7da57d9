//! The simulator: built with the profile of all tests, run over counted worlds.

use std::path::PathBuf;

use anyhow::Result;

use crate::command::Program;
use crate::steps;

/// Worlds of each kind that every run of the tests has in common, so that a failure is the change's; and their first seed.
pub(crate) const SAME_WORLDS: (&str, &str) = ("150", "1");
/// Worlds of each kind from a seed that differs from run to run, which the simulator prints.
const NEW_WORLDS: &str = "50";

/// Builds the simulator.
///
/// # Errors
/// The build fails.
pub(crate) fn build() -> Result<PathBuf> {
    steps::built("lycosa-sim")
}

/// Runs the simulator with these arguments; without any, some worlds of each kind.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let program = Program::new(build()?);
    if arguments.is_empty() {
        return program.arguments(["--worlds", NEW_WORLDS]).run();
    }
    program.arguments(arguments).run()
}

/// The step of `cargo xtask test`: worlds that broke a promise once, the same worlds as always, then new ones.
pub(crate) fn check() -> Result<()> {
    let program = build()?;
    Program::new(&program).arguments(["--kept"]).run()?;
    let (worlds, seed) = SAME_WORLDS;
    Program::new(&program).arguments(["--worlds", worlds, "--seed", seed]).run()?;
    Program::new(&program).arguments(["--worlds", NEW_WORLDS]).run()
}
