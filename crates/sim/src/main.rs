//! `lycosa-sim`: runs simulated worlds and reports the first that breaks a promise.

use std::num::NonZero;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use lycosa_sim::{Broken, Kind, Order, Until, kept, run_order};

/// Runs worlds with simulated clients, clock, disk and crashes, and checks what the server promises.
///
/// The output of a run with --worlds depends on seeds, steps and kinds alone: not on --jobs, nor on the machine.
#[derive(Debug, Parser)]
#[command(name = "lycosa-sim", version)]
struct Arguments {
    /// The seed of the first world; random if absent
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Run N worlds of each kind, with seeds that follow each other
    #[arg(long, value_name = "N", default_value_t = 1)]
    worlds: u64,
    /// Begin new worlds for N seconds instead
    #[arg(long, value_name = "N", conflicts_with = "worlds")]
    seconds: Option<u64>,
    /// Run the kept worlds: those in which a promise was broken once
    #[arg(long, conflicts_with_all = ["seed", "worlds", "seconds", "steps", "world", "keep_going", "verbose"])]
    kept: bool,
    /// Steps of each world
    #[arg(long, value_name = "N", default_value_t = 3_000)]
    steps: u64,
    /// Run worlds of one kind only; all kinds of each seed if absent
    #[arg(long, value_name = "KIND")]
    world: Option<Kind>,
    /// Worlds that run at once; as many as the machine has processors if absent
    #[arg(long, value_name = "N", conflicts_with = "verbose")]
    jobs: Option<NonZero<usize>>,
    /// Run all worlds and list every failure, instead of ending with the first
    #[arg(long)]
    keep_going: bool,
    /// Print everything that happens, one world after the other
    #[arg(long, short)]
    verbose: bool,
}

/// Characters at either end of a long line that are printed.
const SHOWN: usize = 200;

/// A seed that differs from start to start.
fn random_seed() -> u64 {
    let bytes = uuid::Uuid::new_v4().into_bytes();
    u64::from(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// A line of the course without the middle of a long payload; `--verbose` prints it whole.
fn cut(line: &str) -> String {
    let count = line.chars().count();
    if count <= 2 * SHOWN {
        return line.to_owned();
    }
    let (head, tail) = (line.chars().take(SHOWN), line.chars().skip(count - SHOWN));
    head.chain(" … ".chars()).chain(tail).collect()
}

fn complain(broken: &Broken, shows_course: bool, verbose: bool) {
    let Broken { kind, failure, recent } = broken;
    if shows_course {
        println!("what happened last:");
        recent.iter().for_each(|line| println!("  {}", cut(line)));
    }
    let text = failure.to_string();
    println!("FAILED: {} {}", kind.name(), if verbose { text } else { cut(&text) });
    println!(
        "repeat it: cargo xtask sim --world {} --seed {} --steps {} --verbose",
        kind.name(),
        failure.seed,
        failure.step
    );
}

fn run_kept(jobs: NonZero<usize>) -> ExitCode {
    let (broken, all) = (kept::run(jobs), kept::ALL.len());
    for (number, broken) in broken.iter().enumerate() {
        complain(broken, number == 0, false);
    }
    if broken.is_empty() {
        println!("{all} kept worlds: every promise was kept");
        return ExitCode::SUCCESS;
    }
    println!("{} of {all} kept worlds broke a promise", broken.len());
    ExitCode::FAILURE
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let jobs = arguments.jobs.map_or(processors, NonZero::get);
    if arguments.kept {
        return run_kept(NonZero::new(jobs).unwrap_or(NonZero::<usize>::MIN));
    }
    let order = Order {
        kinds: arguments.world.map_or_else(|| Kind::ALL.to_vec(), |kind| vec![kind]),
        first: arguments.seed.unwrap_or_else(random_seed),
        until: match arguments.seconds {
            Some(seconds) => Until::Time(Instant::now() + Duration::from_secs(seconds)),
            None => Until::Worlds(arguments.worlds),
        },
        jobs: if arguments.verbose { 1 } else { jobs },
        stops_at_failure: !arguments.keep_going,
        verbose: arguments.verbose,
    };
    let outcome = run_order(&order, |kind, seed, trace| kind.run(seed, arguments.steps, trace));
    for (number, broken) in outcome.broken.iter().enumerate() {
        complain(broken, number == 0 && !arguments.verbose, arguments.verbose);
    }
    outcome.tallies.iter().for_each(|tally| println!("{tally}"));
    let worlds = outcome.tallies.iter().map(|tally| tally.worlds).sum::<u64>();
    let Order { first, .. } = order;
    match outcome.broken.len() {
        0 => {
            println!(
                "{worlds} worlds of {} steps from seed {first} on: every promise was kept",
                arguments.steps
            );
            ExitCode::SUCCESS
        }
        broken => {
            let before = if arguments.keep_going { "" } else { " before it" };
            let noun = if broken == 1 { "world" } else { "worlds" };
            println!(
                "{broken} {noun} of {} steps from seed {first} on broke a promise; {worlds}{before} kept every one",
                arguments.steps
            );
            ExitCode::FAILURE
        }
    }
}
