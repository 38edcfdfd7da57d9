//! The simulator: built with the profile `sim`, run over counted worlds.

use std::path::PathBuf;

use anyhow::Result;

use crate::command::Program;
use crate::steps::target_folder;

/// The profile of simulator and fuzz targets.
pub(crate) const PROFILE: &str = "sim";
/// All packages of the profile are built at once: alone, each would ask for other features of the same crates.
pub(crate) const PACKAGES: [&str; 4] = ["--package", "lycosa-sim", "--package", "lycosa-fuzz"];

/// Worlds of each kind that every run of the tests has in common, so that a failure is the change's; and their first seed.
const SAME_WORLDS: (&str, &str) = ("150", "1");
/// Worlds of each kind from a seed that differs from run to run, which the simulator prints.
const NEW_WORLDS: &str = "50";

/// Builds the simulator, and the fuzz targets with it. Returns the simulator's program.
///
/// # Errors
/// The build fails.
pub(crate) fn build() -> Result<PathBuf> {
    built("lycosa-sim")
}

/// A program of the profile.
///
/// # Errors
/// The build fails.
pub(crate) fn built(program: &str) -> Result<PathBuf> {
    Program::cargo().arguments(["build", "--quiet", "--profile", PROFILE]).arguments(PACKAGES).run()?;
    Ok(target_folder()?.join(PROFILE).join(program))
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
