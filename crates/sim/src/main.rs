//! `lycosa-sim`: runs simulated worlds and reports the first that breaks a promise.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use lycosa_sim::{Failure, Report, Trace};

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

fn complain(failure: &Failure, trace: &Trace, verbose: bool) {
    if !verbose {
        println!("what happened last:");
        trace.recent().for_each(|line| println!("  {line}"));
    }
    println!("FAILED: {failure}");
    println!(
        "repeat it: cargo run -p lycosa-sim -- --seed {} --steps {} --verbose",
        failure.seed, failure.step
    );
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let first = arguments.seed.unwrap_or_else(random_seed);
    let end = arguments.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut seed = first;
    loop {
        let mut trace = Trace::new(arguments.verbose);
        match lycosa_sim::run(seed, arguments.steps, &mut trace) {
            Ok(done) if end.is_none() => report(seed, &done),
            Ok(_) => {}
            Err(failure) => {
                complain(&failure, &trace, arguments.verbose);
                return ExitCode::FAILURE;
            }
        }
        seed = seed.wrapping_add(1);
        if end.is_none_or(|end| Instant::now() >= end) {
            break;
        }
    }
    if end.is_some() {
        println!(
            "{} worlds of {} steps from seed {first} on: every promise was kept",
            seed.wrapping_sub(first),
            arguments.steps
        );
    }
    ExitCode::SUCCESS
}
