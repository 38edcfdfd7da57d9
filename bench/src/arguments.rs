//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::account::SHORTEST_PAYLOAD;
use crate::contender::{Contender, Durability};
use crate::load::Shape;
use crate::protocol::iproto::TubeType;

/// Load generator and benchmark of Lycosa and of the queues it is compared with.
#[derive(Debug, Parser)]
#[command(name = "lycosa-bench", version, about, max_term_width = 110)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure one server
    Run(RunArguments),
}

/// How much is asked of a server at a time, and with how much.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Load")]
pub(crate) struct LoadArguments {
    /// Connections
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
    /// Requests under way on each connection
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    depth: u16,
    /// Bytes of a task's payload
    #[arg(long, default_value_t = 100, value_name = "BYTES", value_parser = payload_size)]
    pub(crate) payload: usize,
    /// Seconds before the measurement
    #[arg(long, default_value = "1", value_name = "SECONDS", value_parser = seconds)]
    pub(crate) warmup: Duration,
    /// Seconds to measure
    #[arg(long, default_value = "5", value_name = "SECONDS", value_parser = seconds)]
    pub(crate) seconds: Duration,
    /// Cycles to measure, instead of a time
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    pub(crate) cycles: Option<u64>,
}

impl LoadArguments {
    pub(crate) fn shape(&self) -> Shape {
        Shape { connections: self.connections.into(), depth: self.depth.into() }
    }
}

/// Where servers come from.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Servers")]
pub(crate) struct ServerArguments {
    /// The lycosa binary [default: beside this program, else that of the release build]
    #[arg(long, value_name = "PATH")]
    pub(crate) server: Option<PathBuf>,
    /// Folder in which the Lua module `queue` is, for Tarantool
    #[arg(long, value_name = "DIR")]
    pub(crate) queue_module: Option<PathBuf>,
    /// Folder in which servers keep their data while they run [default: that of temporary files]
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// What to measure: lycosa or tarantool[:TUBE-TYPE], redis-list, redis-stream, nats, beanstalkd, each with
    /// :fsync, :write or :none
    #[arg(default_value = "lycosa:fifottl:fsync")]
    pub(crate) contender: Contender,
    /// Type of the tube, instead of the contender's
    #[arg(long, value_name = "TYPE")]
    pub(crate) tube_type: Option<TubeType>,
    /// Durability, instead of the contender's
    #[arg(long, value_name = "MODE")]
    pub(crate) wal_mode: Option<Durability>,
    /// Measure the server that listens there, instead of starting one
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) address: Option<SocketAddr>,
    /// Process id of that server, for its processor time
    #[arg(long, value_name = "PID", requires = "address")]
    pub(crate) server_pid: Option<i32>,
    #[command(flatten)]
    pub(crate) load: LoadArguments,
    #[command(flatten)]
    pub(crate) servers: ServerArguments,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().map_err(|error| error.to_string())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

fn payload_size(text: &str) -> Result<usize, String> {
    let size = text.parse::<usize>().map_err(|error| error.to_string())?;
    if size < SHORTEST_PAYLOAD {
        return Err(format!("a payload has at least {SHORTEST_PAYLOAD} bytes, for the number of its task"));
    }
    Ok(size)
}
