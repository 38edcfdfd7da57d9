//! `lycosa-bench`: the benchmark as a program of its own.

use std::process::ExitCode;

use clap::Parser;
use lycosa_bench::Arguments;

/// Load generator and benchmark of Lycosa and of the queues it is compared with.
#[derive(Debug, Parser)]
#[command(name = "lycosa-bench", version, about, max_term_width = 110)]
struct Program {
    #[command(flatten)]
    arguments: Arguments,
}

fn main() -> ExitCode {
    match lycosa_bench::run(&Program::parse().arguments, None) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lycosa-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
