//! The load generator and benchmark: `bench/README.md` says how to use it and what its numbers mean.
//!
//! From the inside out: [`protocol`] speaks to a server; [`load`] keeps it busy and checks its answers against the
//! [`account`]; [`server`] starts and stops it; [`contender`] and [`program`] know the servers; a [`workload`] says what
//! is asked; a [`trial`] puts one contender through one workload; a [`comparison`] is many trials in rounds, shown by
//! [`report`] and [`chart`]. What the command line offers is in [`run`], [`compare`] and [`count`].
//!
//! Everything runs in one thread; nothing is measured while something else is prepared.

mod account;
mod arguments;
mod chart;
mod compare;
mod comparison;
mod contender;
mod count;
mod load;
mod machine;
mod measurement;
mod profile;
mod program;
mod protocol;
mod report;
mod run;
mod server;
mod trial;
mod workload;

use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;

use arguments::{Arguments, Command};
use workload::Size;

fn main() -> ExitCode {
    match obey(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lycosa-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn obey(command: Command) -> Result<()> {
    match command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Compare(arguments) => compare::compare(&arguments),
        Command::Count(arguments) => count::count(&arguments),
        Command::List => {
            for workload in workload::all(Size::Full) {
                println!("{:<16} {}", workload.name, workload.about);
            }
            Ok(())
        }
    }
}

/// A connection that sends small requests at once.
fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
