//! The command line.

use std::env;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};

use crate::account::SHORTEST_PAYLOAD;
use crate::contender::{Contender, Durability};
use crate::load::{Bound, Shape};
use crate::machine;
use crate::program::Files;
use crate::protocol::iproto::TubeType;
use crate::server::Cores;
use crate::trial::{Ground, Length};
use crate::workload::{self, Size, Workload};

/// Load generator and benchmark of Lycosa and of the queues it is compared with.
#[derive(Debug, Parser)]
#[command(name = "lycosa-bench", version, about, max_term_width = 110)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure one contender under one workload
    Run(RunArguments),
    /// Compare contenders under workloads, in interleaved rounds
    Compare(CompareArguments),
    /// Count the instructions that a cycle takes, under valgrind
    Count(CountArguments),
    /// List the workloads
    List,
}

const CONTENDER: &str = "\
What is measured is written PROGRAM[:TUBE-TYPE][:DURABILITY].
PROGRAM is lycosa, tarantool (with the Lua queue module), redis-list, redis-stream, nats or beanstalkd.
TUBE-TYPE, of lycosa and tarantool, is fifo, fifottl (the default), limfifottl, utube or utubettl.
DURABILITY is fsync (the default: a reply leaves when its change is synced), write (when the system has it) or none.";

const EXAMPLES: &str = "\
Examples:
  lycosa-bench run                                        8 × 32, fifottl, fsync
  lycosa-bench run lycosa:fifo:write --connections 50 --depth 1
  lycosa-bench run --address 127.0.0.1:3301 --server-pid 4242 --json
  lycosa-bench run redis-list --workload payload-64k";

const COMPARE_EXAMPLES: &str = "\
Examples:
  lycosa-bench compare --install --queue-module ~/queue   all peers, 8x32 and 50x1
  lycosa-bench compare -c lycosa -c redis-list -w 8x32 --rounds 9 --svg chart.svg
  lycosa-bench compare -c lycosa -w all                   how flat it stays as work grows
  lycosa-bench compare -c lycosa -w all --small           whether everything works";

/// How long cycles are measured.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Length")]
pub(crate) struct LengthArguments {
    /// Seconds of cycles before the measurement
    #[arg(long, default_value = "1", value_name = "SECONDS", value_parser = seconds)]
    warmup: Duration,
    /// Seconds of cycles that are measured
    #[arg(long, default_value = "5", value_name = "SECONDS", value_parser = seconds)]
    seconds: Duration,
    /// Cycles to measure, instead of a time
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    cycles: Option<u64>,
}

impl LengthArguments {
    pub(crate) fn length(&self) -> Length {
        Length {
            warmup: Bound::For(self.warmup),
            measured: self.cycles.map_or(Bound::For(self.seconds), Bound::Rounds),
        }
    }
}

/// Where servers come from.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Servers")]
pub(crate) struct ServerArguments {
    /// The lycosa binary [default: the one beside this program, else target/release/lycosa]
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
    /// Folder in which the Lua module `queue` is, for Tarantool
    #[arg(long, value_name = "DIR")]
    queue_module: Option<PathBuf>,
    /// Folder in which servers keep their data while they run [default: that of temporary files]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

impl ServerArguments {
    pub(crate) fn files(&self) -> Files {
        Files { lycosa: self.server.clone(), queue_module: self.queue_module.clone() }
    }

    /// The ground for trials. This thread is confined to the core of the load.
    pub(crate) fn ground(&self) -> Result<Ground> {
        let folder = self.folder.clone().unwrap_or_else(env::temp_dir);
        if machine::is_in_memory(&folder)? {
            eprintln!("{} is in memory, where syncing costs nothing: see --folder", folder.display());
        }
        let cores = Cores::choose()?;
        if !cores.are_confined() {
            eprintln!("there is but one core: servers and load share it");
        }
        Ok(Ground { files: self.files(), folder, cores, wrapper: Vec::new() })
    }
}

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{CONTENDER}\n\n{EXAMPLES}"))]
pub(crate) struct RunArguments {
    /// What to measure: PROGRAM[:TUBE-TYPE][:DURABILITY], see --help
    #[arg(default_value = "lycosa:fifottl:fsync")]
    contender: Contender,
    /// Type of the tube, instead of the contender's
    #[arg(long, value_name = "TYPE")]
    tube_type: Option<TubeType>,
    /// Durability, instead of the contender's
    #[arg(long, value_name = "DURABILITY")]
    wal_mode: Option<Durability>,
    /// Measure the server that listens there, instead of starting one
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) address: Option<SocketAddr>,
    /// Process id of that server, for its processor time
    #[arg(long, value_name = "PID", requires = "address")]
    pub(crate) server_pid: Option<i32>,
    /// Connections
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
    /// Requests under way on each connection
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    depth: u16,
    /// Bytes of a task's payload
    #[arg(long, default_value_t = 100, value_name = "BYTES", value_parser = payload_size)]
    payload: usize,
    /// A workload of `lycosa-bench list`, instead of plain cycles
    #[arg(long, short, value_name = "NAME", conflicts_with_all = ["connections", "depth", "payload"])]
    workload: Option<String>,
    #[command(flatten)]
    pub(crate) length: LengthArguments,
    #[command(flatten)]
    pub(crate) servers: ServerArguments,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl RunArguments {
    /// The contender with what flags say instead.
    pub(crate) fn contender(&self) -> Contender {
        let contender = self.tube_type.map_or(self.contender, |chosen| self.contender.with_tube_type(chosen));
        Contender { durability: self.wal_mode.unwrap_or(contender.durability), ..contender }
    }

    pub(crate) fn workload(&self) -> Result<Workload> {
        match &self.workload {
            Some(name) => named(name, Size::Full),
            None => {
                let shape = Shape { connections: self.connections.into(), depth: self.depth.into() };
                Ok(Workload::cycles("cycles", shape, self.payload))
            }
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = COMPARE_EXAMPLES, after_long_help = format!("{CONTENDER}\n\n{COMPARE_EXAMPLES}"))]
pub(crate) struct CompareArguments {
    /// What to compare: PROGRAM[:TUBE-TYPE][:DURABILITY], see --help [default: everything that is installed]
    #[arg(long = "contender", short, value_name = "CONTENDER")]
    pub(crate) contenders: Vec<Contender>,
    /// A workload of `lycosa-bench list`, or `all` [default: 8x32 and 50x1]
    #[arg(long = "workload", short, value_name = "NAME")]
    workloads: Vec<String>,
    /// Rounds, each of which runs everything once
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) rounds: u8,
    /// A few hundred tasks for each workload: whether everything works, not how fast
    #[arg(long)]
    small: bool,
    /// Install the Debian packages of peers that are missing
    #[arg(long)]
    pub(crate) install: bool,
    #[command(flatten)]
    length: LengthArguments,
    #[command(flatten)]
    pub(crate) servers: ServerArguments,
    /// Print JSON instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a chart to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

impl CompareArguments {
    pub(crate) fn workloads(&self) -> Result<Vec<Workload>> {
        let size = if self.small { Size::Small } else { Size::Full };
        if self.workloads.iter().any(|name| name == "all") {
            return Ok(workload::all(size));
        }
        let default = ["8x32".to_owned(), "50x1".to_owned()];
        let names = if self.workloads.is_empty() { &default } else { &self.workloads[..] };
        names.iter().map(|name| named(name, size)).collect()
    }

    pub(crate) fn length(&self) -> Length {
        if self.small {
            return Length { warmup: Bound::Rounds(300), measured: Bound::Rounds(600) };
        }
        self.length.length()
    }
}

#[derive(Debug, Args)]
pub(crate) struct CountArguments {
    /// What to measure: lycosa[:TUBE-TYPE][:DURABILITY]
    #[arg(default_value = "lycosa:fifottl:write")]
    pub(crate) contender: Contender,
    /// A workload of cycles
    #[arg(long, short, value_name = "NAME", default_value = "8x32")]
    workload: String,
    /// Cycles that are counted
    #[arg(long, default_value_t = 20_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) cycles: u64,
    /// Functions that are listed
    #[arg(long, default_value_t = 25, value_name = "N")]
    pub(crate) functions: usize,
    #[command(flatten)]
    pub(crate) servers: ServerArguments,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl CountArguments {
    pub(crate) fn workload(&self) -> Result<Workload> {
        named(&self.workload, Size::Full)
    }
}

fn named(name: &str, size: Size) -> Result<Workload> {
    let found = workload::all(size).into_iter().find(|workload| workload.name == name);
    found.with_context(|| format!("there is no workload `{name}`: `lycosa-bench list` lists them"))
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn run(line: &str) -> RunArguments {
        match Arguments::parse_from(line.split_whitespace()).command {
            Command::Run(arguments) => arguments,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn flags_go_before_the_contender() {
        let arguments =
            run("lycosa-bench run lycosa:fifo --tube-type utubettl --wal-mode none --connections 3");
        assert_eq!(arguments.contender().to_string(), "lycosa:utubettl:none");
        assert_eq!(arguments.workload().unwrap().shape, Shape { connections: 3, depth: 32 });
        assert_eq!(run("lycosa-bench run --workload drain").workload().unwrap().name, "drain");
        assert!(run("lycosa-bench run --workload nothing").workload().is_err());
        assert!(Arguments::try_parse_from("lycosa-bench run --payload 9".split_whitespace()).is_err());
    }
}
