//! The load generator and benchmark: `bench/README.md` says how to use it and what its numbers mean.
//!
//! It is a library so that the `lycosa` binary has it as a subcommand; what it offers is its command line.
//!
//! From the inside out: [`protocol`] speaks to a server. [`load`] keeps it busy and checks its answers against the
//! [`account`]. [`server`] starts and stops it; [`contender`] and [`program`] know the servers. A [`workload`] says
//! which requests are sent, and a [`trial`] puts one contender through one workload. A [`comparison`] is many trials in rounds,
//! shown by [`report`] and [`chart`]. The subcommands are in [`single`], [`compare`], [`count`],
//! [`expire`], [`programs`], [`turns`], [`replicas`] and [`performance`].
//!
//! Everything runs in one thread, but for the clients of a planned switch in [`replicas`]; nothing is measured while
//! something else is prepared.

mod account;
mod arguments;
mod chart;
mod compare;
mod comparison;
mod contender;
mod count;
mod expire;
mod felt;
mod load;
mod machine;
mod measurement;
mod performance;
mod profile;
mod program;
mod programs;
mod protocol;
mod replicas;
mod report;
mod server;
mod single;
mod stolen;
mod target;
mod trial;
mod turns;
mod tutorial;
mod wire;
mod workload;

use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

pub use arguments::{Arguments, ExternalServer};

use arguments::Command;
use workload::Size;

/// Does what the command line says. `server` is the binary of Lycosa that is measured if the command line names none;
/// without it the one beside this program.
///
/// This thread is confined to one core from then on.
///
/// # Errors
/// Any obstacle to a measurement, as text for people: a server that cannot be started or reached, an answer that a
/// queue must not give, a file that cannot be written.
pub fn run(arguments: &Arguments, server: Option<&Path>) -> Result<()> {
    match &arguments.command {
        None => single::run(&arguments.run, server),
        Some(Command::Run(arguments)) => single::run(arguments, server),
        Some(Command::Compare(arguments)) => compare::compare(arguments, server),
        Some(Command::Count(arguments)) => count::count(arguments, server),
        Some(Command::Expire(arguments)) => expire::expire(arguments, server),
        Some(Command::Programs(arguments)) => programs::programs(arguments, server),
        Some(Command::Turns(arguments)) => turns::turns(arguments, server),
        Some(Command::Replicas(arguments)) => replicas::replicas(arguments, server),
        Some(Command::Report(arguments)) => performance::write(arguments, server),
        Some(Command::List) => {
            for workload in workload::all(Size::Full) {
                println!("{:<16} {}", workload.name, workload.about);
            }
            Ok(())
        }
    }
}

/// How long an answer outside of the measurement may take: a snapshot of many tasks, for example.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 300 });

/// A connection that sends small requests at once, and does not wait for an answer for longer than [`PATIENCE`].
fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Reads the bytes that have arrived, and waits for the first. A process that was stopped meanwhile reads again.
fn read_some(stream: &mut impl Read, buffer: &mut [u8]) -> Result<usize> {
    loop {
        match stream.read(buffer) {
            Ok(0) => return Err(no_answer(io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => return Ok(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(no_answer(error)),
        }
    }
}

/// What an error of reading or writing an answer means.
fn no_answer(error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            anyhow!("the server has not answered for {} s", PATIENCE.as_secs())
        }
        _ => anyhow::Error::new(error).context("the server closed the connection"),
    }
}
