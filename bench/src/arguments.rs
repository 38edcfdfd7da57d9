//! The command line.

use std::env;
use std::fs;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};

use crate::account::SHORTEST_PAYLOAD;
use crate::contender::{Contender, Durability};
use crate::load::{Bound, Shape};
use crate::machine;
use crate::program::Files;
use crate::protocol::iproto::{Access, Credentials, TubeType};
use crate::server::Cores;
use crate::trial::{Ground, Length};
use crate::wire::Tls;
use crate::workload::{self, Size, Workload};

/// The environment variable with the password, as for all commands of Lycosa.
const PASSWORD_VARIABLE: &str = "LYCOSA_PASSWORD";

/// The command line of the benchmark, of this crate's own program and of `lycosa bench`.
///
/// Without a subcommand it is that of `run`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = EXAMPLES, after_long_help = format!("{CONTENDER}\n\n{EXAMPLES}"))]
pub struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) run: RunArguments,
}

/// Before an address: with TLS.
const TLS_SCHEME: &str = "tls://";

/// A server that is not started by the benchmark, and the user to log in as.
#[derive(Debug, Clone, Copy)]
pub struct ExternalServer<'a> {
    /// HOST:PORT, with `tls://` before it for TLS.
    pub address: &'a str,
    /// `None` for guest.
    pub user: Option<&'a str>,
    /// The file with the password; without one the environment has it.
    pub password_file: Option<&'a Path>,
    /// The certificates to trust, with `tls://` before the address.
    pub tls_ca: Option<&'a Path>,
    /// A client certificate and its key.
    pub tls_identity: Option<(&'a Path, &'a Path)>,
    /// The name that the server's certificate is for.
    pub tls_server_name: Option<&'a str>,
}

impl ExternalServer<'_> {
    /// How to speak TLS with it, if its address asks for that.
    fn tls(&self) -> Result<Option<Tls>> {
        let Some(address) = self.address.strip_prefix(TLS_SCHEME) else { return Ok(None) };
        let ca = self.tls_ca.context("tls:// needs --tls-ca FILE: the certificates to trust, as PEM")?;
        let identity = self.tls_identity.map(|(certificate, key)| lycosa_tls::Identity {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
        });
        let config = lycosa_tls::client(ca, identity.as_ref())?;
        let name = lycosa_tls::server_name(self.tls_server_name.unwrap_or(address))?;
        Ok(Some(Tls { config, name }))
    }
}

impl Arguments {
    /// The server that is to be measured, if it is not one that the benchmark starts.
    pub fn target(&self) -> Option<ExternalServer<'_>> {
        match &self.command {
            None => self.run.target(),
            Some(Command::Run(arguments)) => arguments.target(),
            Some(_) => None,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure one contender under one workload (the default)
    #[command(after_help = EXAMPLES, after_long_help = format!("{CONTENDER}\n\n{EXAMPLES}"))]
    Run(RunArguments),
    /// Compare contenders under workloads, in interleaved rounds
    Compare(CompareArguments),
    /// Count the instructions that a cycle takes, by crate, under valgrind
    Count(CountArguments),
    /// Let tuples expire while tasks go through a tube: how long, how late, and what clients feel
    #[command(after_help = EXPIRE_EXAMPLES)]
    Expire(ExpireArguments),
    /// Call functions in Lua, here and in a Tarantool: processor time of a call
    #[command(after_help = PROGRAMS_EXAMPLES)]
    Programs(ProgramsArguments),
    /// Drop, kick, release and expire very many tasks at once: the longest turn of the server's loop
    #[command(after_help = TURNS_EXAMPLES)]
    Turns(TurnsArguments),
    /// What a replica costs its master: throughput, catching up, a planned switch, a join, a frozen replica
    #[command(after_help = REPLICAS_EXAMPLES)]
    Replicas(ReplicasArguments),
    /// Run the whole comparison and write docs/performance.md and its chart
    Report(ReportArguments),
    /// List the workloads
    List,
}

const CONTENDER: &str = "\
What is measured is written PROGRAM[:TUBE-TYPE][:DURABILITY].
PROGRAM is lycosa, tarantool (with the Lua queue module), tarantool-lua (with the least that can be called a queue),
tutorial (with the queue of a tutorial), lycosa-module, lycosa-lua, lycosa-tutorial
(the same three queues in Lua, on Lycosa), redis-list, redis-stream, nats or beanstalkd.
TUBE-TYPE, of lycosa and tarantool, is fifo, fifottl (the default), limfifottl, utube or utubettl.
DURABILITY is fsync (the default: a reply leaves when its change is synced), write (when the system has it) or none.

Servers are started on a free port, in a folder that vanishes, on a core of their own, unless --address names one that
runs. There a tube `lycosa_bench` is created, measured and dropped; if there is one already, nothing is done.";

const EXAMPLES: &str = "\
Examples:
  lycosa bench                                         a server of its own: 8 × 32, fifottl, fsync
  lycosa bench lycosa:fifo:write --connections 50 --depth 1
  lycosa bench --address 127.0.0.1:3301 --tube-type utube --seconds 10
  lycosa bench redis-list --workload payload-64k --json
  lycosa bench --seconds 60 --svg course.svg           the rate over a minute as a drawing
  lycosa bench compare --install                       with everything that is installed";

const COMPARE_EXAMPLES: &str = "\
Examples:
  lycosa bench compare --install                       all peers, 8x32 and 50x1
  lycosa bench compare --queue-module .rocks/share/tarantool --tutorial article.md
  lycosa bench compare -c lycosa -c redis-list -w 8x32 --rounds 9 --svg chart.svg
  lycosa bench compare -c lycosa -w all                how flat it stays as work grows
  lycosa bench compare -c lycosa -w all --small        whether everything works";

const EXPIRE_EXAMPLES: &str = "\
Examples:
  lycosa bench expire                                  a million tuples with one deadline
  lycosa bench expire --tuples 10000000 --contender lycosa --contender tarantool-lua
  lycosa bench expire --spread 60                      deadlines over a minute: how late
  lycosa bench expire --scan --scan-time 10            without an index over the deadline";

const PROGRAMS_EXAMPLES: &str = "\
Examples:
  lycosa bench programs                                all functions, three rounds, beside Debian's tarantool
  lycosa bench programs --case noop --case walk --rounds 7";

const TURNS_EXAMPLES: &str = "\
Examples:
  lycosa bench turns                                   all cases: 5 M tasks dropped, 1 M kicked, …
  lycosa bench turns --case disconnect --case watch    some of them
  lycosa bench turns --scale 0.01 --json               with a hundredth of the tasks";

const REPLICAS_EXAMPLES: &str = "\
Examples:
  lycosa bench replicas                                all parts, with a million waiting tasks
  lycosa bench replicas --tasks 10000000 --part switch --part join
  lycosa bench replicas --part throughput --json       one object a part

The master has a core of its own. Its replica shares the other one with the load, so that what the load measures there
is a lower bound of what the master can do; in the parts join and frozen the replica has the lowest priority (nice 19).";

const COUNT_EXAMPLES: &str = "\
Examples:
  lycosa bench count                                   fifo, fifottl and utube, as a table
  lycosa bench count --json > before.json              … change something …
  lycosa bench count --against before.json --tolerance 5
  lycosa bench count lycosa:utubettl:write -w 50x1 --functions 25";

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
    /// To see that everything works.
    fn small() -> Length {
        Length { warmup: Bound::Rounds(100), measured: Bound::Rounds(200) }
    }

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
    /// The lycosa binary [default: this program, or the one beside it, or target/release/lycosa]
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
    /// A setting of `lycosa serve`, e.g. lua=false; may be repeated
    #[arg(long = "setting", value_name = "NAME=VALUE")]
    settings: Vec<String>,
    /// Folder in which the Lua module `queue` is, for Tarantool
    #[arg(long, value_name = "DIR")]
    queue_module: Option<PathBuf>,
    /// The article with the tutorial's queue, or the folder in which it is
    #[arg(long, value_name = "FILE|DIR")]
    tutorial: Option<PathBuf>,
    /// Folder in which servers keep their data while they run [default: that of temporary files]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

impl ServerArguments {
    /// `server` is the binary of Lycosa if none was named.
    pub(crate) fn files(&self, server: Option<&Path>) -> Files {
        Files {
            lycosa: self.server.as_deref().or(server).map(Path::to_owned),
            settings: self.settings.clone(),
            queue_module: self.queue_module.clone(),
            tutorial: self.tutorial.clone(),
        }
    }

    /// The ground for trials. This thread is confined to the core of the load.
    pub(crate) fn ground(&self, files: Files) -> Result<Ground> {
        let folder = self.folder.clone().unwrap_or_else(env::temp_dir);
        if machine::is_in_memory(&folder)? {
            eprintln!("{} is in memory, where syncing costs nothing: see --folder", folder.display());
        }
        let cores = Cores::choose()?;
        if !cores.are_confined() {
            eprintln!("there is but one core: servers and load share it");
        }
        Ok(Ground { files, folder, cores, wrapper: Vec::new() })
    }
}

#[derive(Debug, Args)]
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
    /// Measure the server that listens there, instead of starting one: HOST:PORT, or with TLS tls://HOST:PORT
    #[arg(long, short = 'a')]
    address: Option<String>,
    /// User to authenticate as at --address; guest if absent
    #[arg(long, short = 'u', env = "LYCOSA_USER")]
    user: Option<String>,
    /// File with the password; otherwise it is taken from LYCOSA_PASSWORD
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// With tls://: PEM file with the certificates to trust, an authority's or the server's own
    #[arg(long, value_name = "FILE", env = "LYCOSA_TLS_CA")]
    tls_ca: Option<PathBuf>,
    /// With tls://: PEM file with a client certificate, for servers that want one
    #[arg(long, value_name = "FILE", env = "LYCOSA_TLS_CERTIFICATE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// With tls://: PEM file with the private key of the client certificate
    #[arg(long, value_name = "FILE", env = "LYCOSA_TLS_KEY", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// With tls://: name that the server's certificate is for, if it is not the host of the address
    #[arg(long, value_name = "NAME", env = "LYCOSA_TLS_SERVER_NAME")]
    tls_server_name: Option<String>,
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
    /// A workload of `lycosa bench list`, instead of plain cycles
    #[arg(long, short, value_name = "NAME", conflicts_with_all = ["connections", "depth", "payload"])]
    workload: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw the rate over the time, and the latencies by percentile, into this file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) length: LengthArguments,
    #[command(flatten)]
    pub(crate) servers: ServerArguments,
}

impl RunArguments {
    pub(crate) fn target(&self) -> Option<ExternalServer<'_>> {
        Some(ExternalServer {
            address: self.address.as_deref()?,
            user: self.user.as_deref(),
            password_file: self.password_file.as_deref(),
            tls_ca: self.tls_ca.as_deref(),
            tls_identity: self.tls_certificate.as_deref().zip(self.tls_key.as_deref()),
            tls_server_name: self.tls_server_name.as_deref(),
        })
    }

    /// The server to measure instead of one that is started, and how it is entered.
    pub(crate) fn guest(&self) -> Result<Option<(SocketAddr, Access)>> {
        let Some(target) = self.target() else { return Ok(None) };
        let ExternalServer { user, password_file, .. } = target;
        let address = target.address.strip_prefix(TLS_SCHEME).unwrap_or(target.address);
        let tls = target.tls()?;
        let mut found = address.to_socket_addrs().with_context(|| format!("cannot find {address}"))?;
        let found = found.next().with_context(|| format!("{address} is nowhere"))?;
        let Some(user) = user else {
            return Ok(Some((found, Access::Guest { credentials: None, tls })));
        };
        let password = match password_file {
            Some(file) => {
                let text = fs::read_to_string(file)
                    .with_context(|| format!("cannot read the password from {}", file.display()))?;
                text.lines().next().unwrap_or_default().to_owned()
            }
            None => env::var(PASSWORD_VARIABLE).with_context(|| {
                format!("--user {user} needs a password: set {PASSWORD_VARIABLE} or use --password-file")
            })?,
        };
        let credentials = Some(Credentials { user: user.to_owned(), password });
        Ok(Some((found, Access::Guest { credentials, tls })))
    }

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
    /// A workload of `lycosa bench list`, or `all` [default: 8x32 and 50x1]
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
    /// Print JSON instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a chart to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    #[command(flatten)]
    length: LengthArguments,
    #[command(flatten)]
    pub(crate) servers: ServerArguments,
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
        if self.small { LengthArguments::small() } else { self.length.length() }
    }
}

#[derive(Debug, Args)]
#[command(after_help = COUNT_EXAMPLES, after_long_help = format!("{CONTENDER}\n\n{COUNT_EXAMPLES}"))]
pub(crate) struct CountArguments {
    /// What to count: PROGRAM[:TUBE-TYPE][:DURABILITY], see --help
    #[arg(default_values = ["lycosa:fifo:write", "lycosa:fifottl:write", "lycosa:utube:write"], value_name = "CONTENDER")]
    pub(crate) contenders: Vec<Contender>,
    /// A workload of cycles
    #[arg(long, short, value_name = "NAME", default_value = "8x32")]
    workload: String,
    /// Cycles that are counted
    #[arg(long, default_value_t = 20_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) cycles: u64,
    /// Functions that are listed for each contender
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) functions: usize,
    /// JSON of an earlier count: show the changes since
    #[arg(long, value_name = "FILE")]
    pub(crate) against: Option<PathBuf>,
    /// Fail if a cycle takes more than this percentage of instructions above --against
    #[arg(long, value_name = "PERCENT", requires = "against")]
    pub(crate) tolerance: Option<f64>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) servers: ServerArguments,
}

impl CountArguments {
    pub(crate) fn workload(&self) -> Result<Workload> {
        named(&self.workload, Size::Full)
    }
}

#[derive(Debug, Args)]
pub(crate) struct ExpireArguments {
    /// What to measure: lycosa, tarantool or tarantool-lua, with :TUBE-TYPE and :DURABILITY; may be repeated
    #[arg(long = "contender", short, value_name = "CONTENDER", default_value = "lycosa:fifottl:fsync")]
    pub(crate) contenders: Vec<Contender>,
    /// Tuples that expire
    #[arg(long, short = 'n', default_value_t = 1_000_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) tuples: u64,
    /// Spread the deadlines over this number of seconds, instead of one that has passed when the task starts
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) spread: Option<Duration>,
    /// No index over the deadline: the space is passed over
    #[arg(long)]
    pub(crate) scan: bool,
    /// Seconds of such a pass
    #[arg(long, default_value_t = 10, value_name = "SECONDS")]
    pub(crate) scan_time: u64,
    /// Seconds in which a loop that does nothing shows first how long the machine holds it
    #[arg(long, default_value = "3", value_name = "SECONDS", value_parser = seconds)]
    pub(crate) machine: Duration,
    /// Microseconds of a slice, instead of the server's default
    #[arg(long, value_name = "MICROSECONDS")]
    pub(crate) budget_us: Option<u32>,
    /// Percent of the loop's time, instead of the server's default
    #[arg(long, value_name = "PERCENT")]
    pub(crate) share: Option<u32>,
    /// Connections of the clients of the tube
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
    /// Requests under way on each connection
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    depth: u16,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    length: LengthArguments,
    #[command(flatten)]
    pub(crate) servers: ServerArguments,
}

impl ExpireArguments {
    pub(crate) fn shape(&self) -> Shape {
        Shape { connections: self.connections.into(), depth: self.depth.into() }
    }

    /// Cycles before anything is measured.
    pub(crate) fn warmup(&self) -> Bound {
        self.length.length().warmup
    }

    /// Cycles without anything that expires.
    pub(crate) fn baseline(&self) -> Bound {
        self.length.length().measured
    }

    /// How long both take, about.
    pub(crate) fn before(&self) -> Duration {
        let length = |bound| match bound {
            Bound::For(time) => time,
            Bound::Rounds(_) => Duration::from_secs(1),
        };
        length(self.warmup()) + length(self.baseline())
    }
}

#[derive(Debug, Args)]
pub(crate) struct ProgramsArguments {
    /// Functions to call, all if none is named; may be repeated
    #[arg(long = "case", value_name = "CASE", value_parser = ["noop", "get", "select", "insert", "update", "queue", "gets", "walk", "loop", "fibers", "transaction"])]
    pub(crate) cases: Vec<String>,
    /// Rounds, each with a fresh server of either kind
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Share of the calls: 1 is 1 500 to 40 000
    #[arg(long, default_value_t = 1.0, value_name = "SHARE", value_parser = share)]
    pub(crate) scale: f64,
    /// Print JSON, one object a case
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) servers: ServerArguments,
}

#[derive(Debug, Args)]
pub(crate) struct TurnsArguments {
    /// What to measure: lycosa with :TUBE-TYPE and :DURABILITY
    #[arg(long, short, value_name = "CONTENDER", default_value = "lycosa:fifottl:write")]
    pub(crate) contender: Contender,
    /// Cases to measure, all if none is named; may be repeated
    #[arg(long = "case", value_name = "CASE", value_parser = ["drop", "kick", "disconnect", "watch", "deadlines"])]
    pub(crate) cases: Vec<String>,
    /// Share of the tasks: 1 is 5 M for drop, 1 M for kick and deadlines, 100 k for disconnect, 10 M for watch
    #[arg(long, default_value_t = 1.0, value_name = "SHARE", value_parser = share)]
    pub(crate) scale: f64,
    /// Seconds in which a loop that does nothing shows first how long the machine holds it
    #[arg(long, default_value = "3", value_name = "SECONDS", value_parser = seconds)]
    pub(crate) machine: Duration,
    /// Print JSON, one object a case
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) servers: ServerArguments,
}

/// A share: above 0, at most 10.
fn share(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().map_err(|error| format!("{text:?} is no number: {error}"))?;
    if number > 0.0 && number <= 10.0 {
        Ok(number)
    } else {
        Err(format!("a share is above 0 and at most 10, not {text}"))
    }
}

#[derive(Debug, Args)]
pub(crate) struct ReplicasArguments {
    /// What to measure: lycosa with :TUBE-TYPE and :DURABILITY, fsync or write
    #[arg(long, short, value_name = "CONTENDER", default_value = "lycosa:fifottl:fsync")]
    pub(crate) contender: Contender,
    /// Parts to measure, all if none is named; may be repeated
    #[arg(long = "part", value_name = "PART", value_parser = ["throughput", "catch-up", "switch", "join", "frozen"])]
    pub(crate) parts: Vec<String>,
    /// Tasks that wait while the master is switched, and while a replica joins
    #[arg(long, short = 'n', default_value_t = 1_000_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) tasks: u64,
    /// Connections of the clients of the tube
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
    /// Requests under way on each connection
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    depth: u16,
    /// Print JSON, one object a part
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    length: LengthArguments,
    #[command(flatten)]
    pub(crate) servers: ServerArguments,
}

impl ReplicasArguments {
    pub(crate) fn shape(&self) -> Shape {
        Shape { connections: self.connections.into(), depth: self.depth.into() }
    }

    pub(crate) fn length(&self) -> Length {
        self.length.length()
    }
}

#[derive(Debug, Args)]
pub(crate) struct ReportArguments {
    /// Folder with performance.md, of which the part between the marks is written anew; performance.svg goes there too
    #[arg(long, default_value = "docs", value_name = "DIR")]
    pub(crate) docs: PathBuf,
    /// Rounds of the comparison with the peers, and of a server on two cores
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) rounds: u8,
    /// Rounds of the other parts, in which Lycosa is compared with itself; never more than --rounds
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) own_rounds: u8,
    /// A few hundred tasks for each workload: whether everything works, not how fast
    #[arg(long)]
    pub(crate) small: bool,
    /// Install the Debian packages of peers that are missing
    #[arg(long)]
    pub(crate) install: bool,
    /// Write everything that was measured to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    #[command(flatten)]
    length: LengthArguments,
    #[command(flatten)]
    pub(crate) servers: ServerArguments,
}

impl ReportArguments {
    pub(crate) fn size(&self) -> Size {
        if self.small { Size::Small } else { Size::Full }
    }

    pub(crate) fn length(&self) -> Length {
        if self.small { LengthArguments::small() } else { self.length.length() }
    }
}

/// The workload with this name.
pub(crate) fn named(name: &str, size: Size) -> Result<Workload> {
    let found = workload::all(size).into_iter().find(|workload| workload.name == name);
    found.with_context(|| format!("there is no workload `{name}`: `lycosa bench list` lists them"))
}

/// The longest that cycles are measured: a day.
const MAX_SECONDS: f64 = 86_400.0;

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.0..=MAX_SECONDS).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| format!("expected seconds, from 0 to {MAX_SECONDS}"))
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
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    #[command(name = "bench")]
    struct Program {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parse(line: &str) -> Arguments {
        Program::parse_from(line.split_whitespace()).arguments
    }

    #[test]
    fn the_command_line_is_consistent() {
        Program::command().debug_assert();
    }

    #[test]
    fn flags_go_before_the_contender() {
        let arguments = parse("bench lycosa:fifo --tube-type utubettl --wal-mode none --connections 3");
        assert!(arguments.command.is_none());
        assert_eq!(arguments.run.contender().to_string(), "lycosa:utubettl:none");
        assert_eq!(arguments.run.workload().unwrap().shape, Shape { connections: 3, depth: 32 });
        assert_eq!(parse("bench --workload drain").run.workload().unwrap().name, "drain");
        assert!(parse("bench --workload nothing").run.workload().is_err());
        assert!(Program::try_parse_from("bench --payload 9".split_whitespace()).is_err());
    }

    #[test]
    fn run_is_the_default() {
        let Some(Command::Run(arguments)) = parse("bench run redis-list").command else { panic!("no run") };
        assert_eq!(arguments.contender().to_string(), "redis-list:fsync");
        assert!(matches!(parse("bench list").command, Some(Command::List)));
        assert!(Program::try_parse_from("bench --json list".split_whitespace()).is_err());
    }

    #[test]
    fn servers_of_others_are_entered_as_guest_or_with_a_password() {
        let line = "bench run --address localhost:3301";
        let (address, access) = match parse(line).command {
            Some(Command::Run(arguments)) => arguments.guest().unwrap().unwrap(),
            other => panic!("{other:?}"),
        };
        assert_eq!(address.port(), 3301);
        assert!(matches!(access, Access::Guest { credentials: None, tls: None }));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        fs::write(&file, "secret\n").unwrap();
        let line = format!("bench -a 127.0.0.1:1 -u ann --password-file {}", file.display());
        match parse(&line).run.guest().unwrap() {
            Some((_, Access::Guest { credentials: Some(Credentials { user, password }), .. })) => {
                assert_eq!((user.as_str(), password.as_str()), ("ann", "secret"));
            }
            other => panic!("{other:?}"),
        }
        assert!(parse("bench").run.guest().unwrap().is_none());
        assert!(parse("bench --address nowhere").run.guest().is_err());
    }
}
