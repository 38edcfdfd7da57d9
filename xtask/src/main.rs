//! The workspace's chores, in Rust: `cargo xtask test` is what continuous integration runs and what a newcomer runs.

mod command;
mod compiler;
mod count;
mod endure;
mod faults;
mod fuzz;
mod install;
mod instructions;
mod lanes;
mod package;
mod record;
mod sim;
mod stalls;
mod steps;
mod tidy;

use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Tests and tidiness of the Lycosa workspace.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", disable_help_subcommand = false)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run every test there is, installing what it needs first
    ///
    /// Each step is named and timed; the closing line counts the tests. A step whose tool cannot be had fails.
    Test {
        /// Run only these steps
        #[arg(long, value_delimiter = ',', value_name = "STEP", value_parser = steps::names())]
        only: Vec<String>,
        /// Leave out these steps
        #[arg(long, value_delimiter = ',', value_name = "STEP", value_parser = steps::names())]
        skip: Vec<String>,
        /// Stop at the first step that fails
        #[arg(long)]
        fail_fast: bool,
    },
    /// Install what the tests need: Tarantool and Chromium (apt), Python and JavaScript packages (under .test-env)
    Install,
    /// Check the house rules: imports between crates, lints, dependencies, words, file sizes, links
    Tidy,
    /// List comments and sentences with words that stand where a noun belongs ("whoever", "so many", "what is due")
    Words {
        /// List the lines of this folder, for example crates/queue; without one each folder's count
        folder: Option<String>,
        /// Write lower counts down, which `tidy` then holds
        #[arg(long)]
        record: bool,
    },
    /// List the imports that stand in circles between files of a crate
    Circles {
        /// The folder of the crate, for example crates/queue
        folder: PathBuf,
    },
    /// Format all Rust code
    Fmt {
        /// Change nothing: list the lines that are not formatted
        #[arg(long)]
        check: bool,
    },
    /// Run clippy over all targets, warnings as errors
    Clippy,
    /// Load the server, kill it at random, let its disk fail, and check that nothing acknowledged was lost
    Crash {
        /// For how long servers are killed at least [default: 60, or 0 with --kills or --faults]
        #[arg(long, value_name = "N")]
        seconds: Option<u64>,
        /// How often servers are killed at least, over all types of tubes
        #[arg(long, value_name = "N")]
        kills: Option<u64>,
        /// How many operations of the disk fail, over all types of tubes (needs strace and the right to use it)
        #[arg(long, value_name = "N")]
        faults: Option<u64>,
    },
    /// Fuzz everything that reads bytes from outside, guided by coverage (fuzz/README.md)
    Fuzz {
        /// For how long, shared among the targets
        #[arg(long, value_name = "N", default_value_t = 60)]
        seconds: u64,
        /// Where the changes come from; random if absent
        #[arg(long, value_name = "N")]
        seed: Option<u32>,
        /// One target; all if absent
        #[arg(value_name = "TARGET")]
        target: Option<String>,
    },
    /// Count the instructions of a cycle by type of tube; fail if they have risen since they were recorded
    Count {
        /// Record the counts, instead of comparing
        #[arg(long)]
        record: bool,
    },
    /// Simulate whole lives of an instance from seeds: clients, clock, disk, crashes (crates/sim/README.md)
    Sim {
        /// Arguments of the simulator, for example `--worlds 500 --world queue`; `-- --help` shows them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Put faults into a copy of the server, one at a time, and see that the simulator's worlds find them (crates/sim/faults)
    Faults {
        /// Names of patches without `.patch`; all if absent
        names: Vec<String>,
    },
    /// Run the tests while processes of theirs stand still at random: a verdict that changes depends on the machine's speed
    ///
    /// It needs root and control groups of the second version. Steps whose programs are built already are the quickest, for
    /// example `cargo xtask stalls -- --only unit,python`.
    Stalls {
        /// The longest stall, in seconds
        #[arg(long, value_name = "N", default_value_t = 1.0)]
        longest: f64,
        /// The longest time from one stall to the next, in seconds
        #[arg(long, value_name = "N", default_value_t = 0.3)]
        pause: f64,
        /// Where the stalls come from; random if absent
        #[arg(long, value_name = "N")]
        seed: Option<u32>,
        /// Arguments of `cargo xtask test`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run worlds, fuzz targets and killed servers in turn from fresh seeds, and write the sums to docs/record.md
    ///
    /// Everything runs with the lowest priority. The run's row in the record is written anew after each slice, a minute or
    /// less, so that an interrupted run stands there too. A finding ends the run; the record has the command that repeats it.
    Endure {
        /// For how long; 0 only makes the sums of the record anew
        #[arg(long, value_name = "N", default_value_t = 1.0)]
        hours: f64,
        /// Worlds, fuzz targets and servers that run at once; as many as there are processors if absent
        #[arg(long, value_name = "N")]
        jobs: Option<NonZero<usize>>,
        /// Run only these parts
        #[arg(long, value_delimiter = ',', value_name = "PART")]
        only: Vec<endure::Part>,
        /// Run worlds of this kind alone: see `cargo xtask sim --help`
        #[arg(long, value_name = "KIND")]
        world: Option<String>,
        /// Go on after a finding
        #[arg(long)]
        keep_going: bool,
        /// The record, if it is another file than docs/record.md
        #[arg(long, value_name = "FILE")]
        record: Option<PathBuf>,
    },
    /// Build the release and strip it: target/dist/lycosa, with its debug information beside it
    Dist {
        /// Strip this binary instead of building one
        #[arg(long, value_name = "FILE")]
        binary: Option<PathBuf>,
    },
    /// Write man pages: target/dist/man
    Man {
        /// The binary that writes them; built if absent
        #[arg(long, value_name = "FILE")]
        binary: Option<PathBuf>,
    },
    /// Draw the screens of `lycosa top` and of the page that the documents show: docs/pictures/
    ///
    /// It takes the browser that `cargo xtask test --only install` installs.
    Pictures {
        /// Draw every screen of the page instead, in every size, scheme and role: target/page/
        #[arg(long)]
        screens: bool,
    },
    /// Build a Debian package: target/dist/lycosa_VERSION_ARCHITECTURE.deb
    Deb {
        /// Pack this binary instead of building a release
        #[arg(long, value_name = "FILE")]
        binary: Option<PathBuf>,
    },
    /// Build the release and run the benchmark program, for example `cargo xtask bench compare --rounds 5`
    Bench {
        /// Arguments of the program; `-- --help` shows them, bench/README.md explains them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

fn main() -> ExitCode {
    if let Some(code) = compiler::compile() {
        return code;
    }
    match run(Arguments::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<()> {
    match task {
        Task::Test { only, skip, fail_fast } => steps::run(&steps::Choice { only, skip, fail_fast }),
        Task::Install => install::all(),
        Task::Tidy => tidy::check(),
        Task::Words { folder, record } => tidy::words(folder.as_deref(), record),
        Task::Circles { folder } => tidy::circles(&folder),
        Task::Fmt { check } => steps::format(check),
        Task::Clippy => steps::clippy(),
        Task::Crash { seconds, kills, faults } => steps::crash(seconds, kills, faults),
        Task::Fuzz { seconds, seed, target } => fuzz::run(seconds, seed, target.as_deref()),
        Task::Count { record } => instructions::check(record),
        Task::Sim { arguments } => sim::run(&arguments),
        Task::Faults { names } => faults::run(&names),
        Task::Stalls { longest, pause, seed, arguments } => {
            let seed = seed.unwrap_or_else(fuzz::seed_of_the_clock);
            stalls::run(stalls::Stalls { longest, pause, seed }, &arguments)
        }
        Task::Endure { hours, jobs, only, world, keep_going, record } => {
            let record = absolute(record)?.unwrap_or_else(endure::default_record);
            endure::run(&endure::Order { hours, jobs, parts: only, world, keep_going, record })
        }
        Task::Dist { binary } => package::dist_binary(absolute(binary)?.as_deref()).map(drop),
        Task::Pictures { screens: false } => steps::pictures(),
        Task::Pictures { screens: true } => steps::screens(),
        Task::Man { binary } => package::man(absolute(binary)?.as_deref()).map(drop),
        Task::Deb { binary } => package::deb(absolute(binary)?.as_deref()),
        Task::Bench { arguments } => steps::bench(&arguments),
    }
}

/// A path from the caller's folder; programs run at the top of the repository.
fn absolute(path: Option<PathBuf>) -> Result<Option<PathBuf>> {
    Ok(path.map(std::path::absolute).transpose()?)
}

/// The top of the repository.
fn top() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is a folder of the repository")
        .to_owned()
}
