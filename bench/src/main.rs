//! The load generator and benchmark: `bench/README.md` says how to use it and what its numbers mean.
//!
//! [`protocol`] speaks to a server, [`load`] keeps it busy and checks its answers against the [`account`], [`server`]
//! starts and stops it, [`contender`] knows the servers by name.

mod account;
mod arguments;
mod contender;
mod load;
mod machine;
mod measurement;
mod program;
mod protocol;
mod run;
mod server;

use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result};
use clap::Parser;

use arguments::{Arguments, Command};

fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::Run(arguments) => run::run(&arguments),
    }
}

/// A connection that sends small requests at once.
fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
