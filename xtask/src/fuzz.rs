//! Fuzzing with libFuzzer, guided by coverage that the stable compiler can measure.
//!
//! `cargo fuzz` asks for a nightly compiler because of its sanitizers. Memory is safe here without them, and coverage is
//! a code generation option of every compiler: so the flags stand here, and the build has a target folder of its own.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::command::Program;
use crate::{steps, top};

/// What is instrumented: edges with counters, comparisons, and a table of places.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
                     -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Without a named target the flags would instrument build scripts too.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// Seconds after which an input counts as one that hangs.
const TIMEOUT: u32 = 20;
/// Most memory of a target, in MiB.
const MEMORY: u32 = 4096;
/// Longest input, in bytes.
const MAX_INPUT: u32 = 64 << 10;

/// Fuzzes all targets, or the one named, for `seconds` in total. `seed` is random if absent.
pub(crate) fn run(seconds: u64, seed: Option<u32>, only: Option<&str>) -> Result<()> {
    let corpus = folder()?.join("corpus");
    let seeds = folder()?.join("seeds");
    Program::cargo()
        .arguments(["run", "--quiet", "--package", "lycosa-fuzz", "--bin", "lycosa-fuzz-seeds", "--"])
        .arguments([&seeds])
        .run()?;
    let binary = build()?;
    let mut names = Vec::new();
    for entry in fs::read_dir(&seeds)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    if let Some(only) = only {
        if !names.iter().any(|name| name == only) {
            bail!("there is no fuzz target {only:?}; the targets are {}", names.join(", "));
        }
        names.retain(|name| name == only);
    }
    let seed = seed.unwrap_or_else(|| seed_of_the_clock().max(1));
    let share = (seconds / names.len() as u64).max(1);
    for name in &names {
        let statistics = one(&binary, name, &corpus.join(name), &seeds.join(name), share, seed)?;
        let number = |key: &str| statistic(&statistics, key);
        println!(
            "{name}: {} inputs in {share} s from seed {seed}, {} of them reached something new",
            number("number_of_executed_units"),
            number("new_units_added"),
        );
    }
    Ok(())
}

fn one(binary: &Path, name: &str, corpus: &Path, seeds: &Path, seconds: u64, seed: u32) -> Result<String> {
    let artifacts = top().join("fuzz/artifacts");
    fs::create_dir_all(&artifacts)?;
    fs::create_dir_all(corpus)?;
    let prefix = artifacts.join(format!("{name}-"));
    let options = [
        format!("-max_total_time={seconds}"),
        format!("-seed={seed}"),
        format!("-timeout={TIMEOUT}"),
        format!("-rss_limit_mb={MEMORY}"),
        format!("-max_len={MAX_INPUT}"),
        format!("-artifact_prefix={}", prefix.display()),
        "-verbosity=0".to_owned(),
        "-print_final_stats=1".to_owned(),
    ];
    let run = Program::new(binary)
        .arguments(options)
        .arguments([corpus, seeds])
        .variable("LYCOSA_FUZZ_TARGET", name)
        .errors();
    run.with_context(|| {
        format!(
            "the target {name} broke (seed {seed}); the input is in {}. Run it again: \
             LYCOSA_FUZZ_TARGET={name} {} FILE",
            artifacts.display(),
            binary.display()
        )
    })
}

/// A number of the closing statistics: `stat::key: number`.
fn statistic<'a>(statistics: &'a str, key: &str) -> &'a str {
    let value = |line: &'a str| line.strip_prefix("stat::")?.strip_prefix(key)?.strip_prefix(':');
    statistics.lines().find_map(value).map_or("?", str::trim)
}

/// The instrumented program.
fn build() -> Result<PathBuf> {
    let target = folder()?;
    Program::cargo()
        .arguments(["build", "--release", "--quiet", "--manifest-path", "fuzz/libfuzzer/Cargo.toml"])
        .arguments(["--target", PLATFORM, "--target-dir"])
        .arguments([&target])
        .variable("RUSTFLAGS", FLAGS)
        .run()?;
    Ok(target.join(PLATFORM).join("release/lycosa-libfuzzer"))
}

/// Everything of fuzzing that is built or found, beside what the other steps build.
fn folder() -> Result<PathBuf> {
    let target = steps::metadata()?["target_directory"].as_str().map(PathBuf::from);
    Ok(target.context("cargo metadata names no target folder")?.join("fuzz"))
}

fn seed_of_the_clock() -> u32 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(1, |since| since.subsec_nanos() ^ since.as_secs() as u32)
}
