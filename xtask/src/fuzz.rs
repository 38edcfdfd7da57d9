//! Fuzzing with libFuzzer, guided by coverage that the stable compiler can measure.
//!
//! `cargo fuzz` asks for a nightly compiler because of its sanitizers. Memory is safe here without them, and coverage is
//! a code generation option of every compiler: so the flags stand here, and the build has a target folder of its own.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::command::Program;
use crate::{steps, top};

/// The instrumentation: counters of edges, comparisons, and a table of places.
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

/// The instrumented program, its targets, and where their inputs lie.
#[derive(Debug)]
pub(crate) struct Fuzzer {
    binary: PathBuf,
    targets: Vec<String>,
    /// Inputs that reached something new, by target.
    corpus: PathBuf,
    /// Inputs to begin with, by target.
    seeds: PathBuf,
}

/// What a target's run came to.
#[derive(Debug)]
pub(crate) struct Statistics {
    target: String,
    seconds: u64,
    seed: u32,
    /// Inputs that were changed. The collected inputs, which libFuzzer reads first, are not among them.
    pub(crate) inputs: u64,
    /// Inputs among them that reached new code.
    new: u64,
}

#[cfg(test)]
impl Statistics {
    /// A run of a second.
    pub(crate) fn new(target: &str, inputs: u64) -> Self {
        Self { target: target.to_owned(), seconds: 1, seed: 1, inputs, new: 0 }
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, seconds, seed, inputs, new } = self;
        write!(
            f,
            "{target}: {inputs} inputs in {seconds} s from seed {seed}, {new} of them reached something new"
        )
    }
}

/// Inputs of each target that every run of the tests has in common, and their seed.
const SAME_INPUTS: (&str, &str) = ("6000", "1");
/// Inputs of each target from a seed that differs from run to run, and is printed.
const NEW_INPUTS: &str = "2000";

/// The step of `cargo xtask test`: a fixed number of changed inputs for each target, without coverage.
pub(crate) fn check() -> Result<()> {
    let program = steps::built("lycosa-fuzz")?;
    let (inputs, seed) = SAME_INPUTS;
    Program::new(&program).arguments(["run", "--inputs", inputs, "--seed", seed]).run()?;
    let seed = seed_of_the_clock().to_string();
    Program::new(&program).arguments(["run", "--inputs", NEW_INPUTS, "--seed", &seed]).run()
}

/// Fuzzes all targets, or the one named, for `seconds` in total. `seed` is random if absent.
pub(crate) fn run(seconds: u64, seed: Option<u32>, only: Option<&str>) -> Result<()> {
    let fuzzer = Fuzzer::build()?;
    let mut targets = fuzzer.targets().to_vec();
    if let Some(only) = only {
        if !targets.iter().any(|name| name == only) {
            bail!("there is no fuzz target {only:?}; the targets are {}", targets.join(", "));
        }
        targets.retain(|name| name == only);
    }
    let seed = seed.unwrap_or_else(seed_of_the_clock);
    let share = (seconds / targets.len() as u64).max(1);
    let mut unchanged = Vec::new();
    for target in &targets {
        fuzzer.condense(target)?;
        let statistics = fuzzer.run(target, share, seed)?;
        println!("{statistics}");
        if statistics.inputs == 0 {
            unchanged.push(target.as_str());
        }
    }
    if !unchanged.is_empty() {
        let names = unchanged.join(", ");
        bail!("{share} s were over before the collected inputs were read, of {names}: give more --seconds");
    }
    Ok(())
}

impl Fuzzer {
    /// Builds the program and writes the seeds.
    pub(crate) fn build() -> Result<Self> {
        let folder = folder()?;
        let seeds = folder.join("seeds");
        Program::new(steps::built("lycosa-fuzz")?).arguments(["seeds"]).arguments([&seeds]).run()?;
        let mut targets = Vec::new();
        for entry in fs::read_dir(&seeds)? {
            targets.push(entry?.file_name().to_string_lossy().into_owned());
        }
        targets.sort();
        Ok(Self { binary: build()?, targets, corpus: folder.join("corpus"), seeds })
    }

    /// The names of the targets.
    pub(crate) fn targets(&self) -> &[String] {
        &self.targets
    }

    /// Leaves the shortest of the collected inputs that reach the same code, of the inputs to begin with too. Each run reads all
    /// of them before a changed one: without this step the runs would end in reading what earlier ones have found.
    ///
    /// # Errors
    /// A collected input breaks the target.
    pub(crate) fn condense(&self, target: &str) -> Result<()> {
        let (corpus, seeds) = (self.corpus.join(target), self.seeds.join(target));
        // A merge passes over inputs that break the target.
        self.start(target, &["-runs=0".to_owned()], &[&corpus, &seeds])?;
        let shortest = self.corpus.with_file_name("condensed").join(target);
        // A merge keeps inputs that an interrupted run has left there.
        self.start(target, &["-merge=1".to_owned()], &[&shortest, &corpus, &seeds])?;
        fs::remove_dir_all(&corpus)?;
        fs::rename(&shortest, &corpus)?;
        Ok(())
    }

    /// Runs a target for `seconds`, whose inputs are [condensed](Self::condense).
    pub(crate) fn run(&self, target: &str, seconds: u64, seed: u32) -> Result<Statistics> {
        let corpus = self.corpus.join(target);
        // libFuzzer runs the empty input besides.
        let read = fs::read_dir(&corpus)?.count() as u64 + 1;
        let limits = [format!("-max_total_time={seconds}"), format!("-seed={seed}")];
        let printed = self.start(target, &limits, &[&corpus])?;
        let number = |key: &str| statistic(&printed, key);
        Ok(Statistics {
            target: target.to_owned(),
            seconds,
            seed,
            inputs: number("number_of_executed_units")?.saturating_sub(read),
            new: number("new_units_added")?,
        })
    }

    /// Starts the program on folders of inputs. Returns what the program prints.
    fn start(&self, target: &str, options: &[String], folders: &[&Path]) -> Result<String> {
        let artifacts = top().join("fuzz/artifacts");
        fs::create_dir_all(&artifacts)?;
        folders.iter().try_for_each(fs::create_dir_all)?;
        let prefix = artifacts.join(format!("{target}-"));
        let bounds = [
            format!("-timeout={TIMEOUT}"),
            format!("-rss_limit_mb={MEMORY}"),
            format!("-max_len={MAX_INPUT}"),
            format!("-artifact_prefix={}", prefix.display()),
            "-verbosity=0".to_owned(),
            "-print_final_stats=1".to_owned(),
        ];
        let run = Program::new(&self.binary)
            .arguments(options)
            .arguments(bounds)
            .arguments(folders)
            .variable("LYCOSA_FUZZ_TARGET", target)
            .errors();
        run.with_context(|| {
            format!(
                "the target {target} broke ({}); the input is in {}. Run it again: LYCOSA_FUZZ_TARGET={target} {} FILE",
                options.join(" "),
                artifacts.display(),
                self.binary.display()
            )
        })
    }
}

/// A number of the closing statistics: `stat::key: number`.
fn statistic(statistics: &str, key: &str) -> Result<u64> {
    let value =
        |line: &str| line.strip_prefix("stat::")?.strip_prefix(key)?.strip_prefix(':')?.trim().parse().ok();
    statistics.lines().find_map(value).with_context(|| format!("libFuzzer has printed no `stat::{key}`"))
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

/// A seed that differs from run to run, and is not 0.
pub(crate) fn seed_of_the_clock() -> u32 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(1, |since| (since.subsec_nanos() ^ since.as_secs() as u32).max(1))
}
