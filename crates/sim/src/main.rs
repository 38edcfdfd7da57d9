//! `lycosa-sim`: runs simulated worlds and reports the first that breaks a promise.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use lycosa_sim::{ExpirationTotals, Failure, ReplicaTotals, Report, Trace};

/// What a world is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Tubes, their clients and snapshots
    Queue,
    /// Spaces whose tuples expire
    Expiration,
    /// Instances that replicate each other while masters change
    Replicas,
    /// Two masters that follow each other, with conflicts
    Masters,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Expiration => "expiration",
            Self::Replicas => "replicas",
            Self::Masters => "masters",
        }
    }
}

/// Runs worlds with simulated clients, clock, disk and crashes, and checks what the server promises.
#[derive(Debug, Parser)]
#[command(name = "lycosa-sim", version)]
struct Arguments {
    /// The seed of the first world; random if absent
    #[arg(long)]
    seed: Option<u64>,
    /// Run one world after the other, with seeds that follow each other, for so many seconds
    #[arg(long)]
    seconds: Option<u64>,
    /// Steps of each world
    #[arg(long, default_value_t = 3_000)]
    steps: u64,
    /// Run worlds of one kind only; all kinds of each seed if absent
    #[arg(long)]
    world: Option<Kind>,
    /// Print everything that happens
    #[arg(long, short)]
    verbose: bool,
}

/// A seed that differs from start to start.
fn random_seed() -> u64 {
    let bytes = uuid::Uuid::new_v4().into_bytes();
    u64::from(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

fn report(seed: u64, report: &Report) {
    let Report { hash, totals } = report;
    println!(
        "seed {seed}: hash {hash:016x}, {} requests, {} replies, {} batches, {} crashes ({} while a snapshot was written, {} \
         before it was reported, {} while old files were removed, {} that took rows), {} stops, {} snapshots, {} snapshot failures, {} journal \
         failures",
        totals.requests,
        totals.replies,
        totals.batches,
        totals.crashes,
        totals.crashes_writing,
        totals.crashes_unreported,
        totals.crashes_collecting,
        totals.losses,
        totals.stops,
        totals.snapshots,
        totals.snapshot_failures,
        totals.failures
    );
}

fn report_expiration(seed: u64, report: &Report<ExpirationTotals>) {
    let Report { hash, totals } = report;
    println!(
        "seed {seed}: hash {hash:016x}, {} puts, {} tuples expired ({} into an archive, {} within a bound), {} tasks started, {} calls \
         refused, {} slices failed, {} crashes ({} that took rows), {} stops",
        totals.puts,
        totals.expired,
        totals.archived,
        totals.bounded,
        totals.starts,
        totals.refused,
        totals.failures,
        totals.crashes,
        totals.losses,
        totals.stops
    );
}

fn complain(failure: &Failure, kind: Kind, trace: &Trace, verbose: bool) {
    if !verbose {
        println!("what happened last:");
        trace.recent().for_each(|line| println!("  {line}"));
    }
    println!("FAILED: {failure}");
    println!(
        "repeat it: cargo run -p lycosa-sim -- --world {} --seed {} --steps {} --verbose",
        kind.name(),
        failure.seed,
        failure.step
    );
}

/// Runs one world. `is_told`: say what it came to.
fn run(
    kind: Kind,
    seed: u64,
    steps: u64,
    trace: &mut Trace,
    is_told: bool,
    replicas: &mut ReplicaTotals,
) -> Result<(), Failure> {
    match kind {
        Kind::Queue => {
            let done = lycosa_sim::run(seed, steps, trace)?;
            is_told.then(|| report(seed, &done));
        }
        Kind::Expiration => {
            let done = lycosa_sim::run_expiration(seed, steps, trace)?;
            is_told.then(|| report_expiration(seed, &done));
        }
        Kind::Replicas => {
            let done = lycosa_sim::run_replicas(seed, steps, trace)?;
            is_told.then(|| println!("seed {seed}: hash {:016x}, {}", done.hash, done.totals));
            *replicas = replicas.plus(&done.totals);
        }
        Kind::Masters => {
            let done = lycosa_sim::run_masters(seed, steps, trace)?;
            is_told.then(|| println!("seed {seed}: hash {:016x}, {}", done.hash, done.totals));
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let first = arguments.seed.unwrap_or_else(random_seed);
    let end = arguments.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let kinds = arguments.world.map_or_else(
        || vec![Kind::Queue, Kind::Expiration, Kind::Replicas, Kind::Masters],
        |kind| vec![kind],
    );
    let mut replicas = ReplicaTotals::default();
    let mut seed = first;
    loop {
        for &kind in &kinds {
            let mut trace = Trace::new(arguments.verbose);
            if let Err(failure) = run(kind, seed, arguments.steps, &mut trace, end.is_none(), &mut replicas) {
                complain(&failure, kind, &trace, arguments.verbose);
                return ExitCode::FAILURE;
            }
        }
        seed = seed.wrapping_add(1);
        if end.is_none_or(|end| Instant::now() >= end) {
            break;
        }
    }
    if end.is_some() {
        if kinds.contains(&Kind::Replicas) {
            println!("worlds of replicas: {replicas}");
        }
        println!(
            "{} worlds of {} steps from seed {first} on: every promise was kept",
            seed.wrapping_sub(first) * kinds.len() as u64,
            arguments.steps
        );
    }
    ExitCode::SUCCESS
}
