//! The command line: every subcommand, flag and help text.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgMatches, Args, FromArgMatches, Parser, Subcommand, ValueEnum};
use lycosa_server::config::{Flags, SETTINGS};

use crate::values::{address, priority, span};

const EXAMPLES: &str = "\
Examples:
  lycosa                                    start the server: 127.0.0.1:3301, data in ./data
  lycosa tube create mail --type fifottl    make a tube
  lycosa put mail hello --delay 60          put a task
  lycosa work mail --jobs 4 -- ./handler    work on tasks, payload on standard input
  lycosa stats                              how the server and its tubes are

Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 no task (take, peek), 4 no connection.";

/// A durable in-memory task-queue server and its command line.
#[derive(Debug, Parser)]
#[command(name = "lycosa", version, about, after_help = EXAMPLES, max_term_width = 110)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the server (the default)
    ///
    /// Settings come from flags, then LYCOSA_* variables, then lycosa.toml, then defaults.
    Serve(ServeArguments),
    /// Print the effective settings and where each comes from
    Config(ConfigArguments),
    /// Create, list, drop, truncate tubes; their statistics
    #[command(subcommand)]
    Tube(TubeCommand),
    /// Delete tuples on their deadline: start, list, stop tasks; their statistics
    #[command(subcommand, after_help = EXPIRATION_EXAMPLES)]
    Expiration(ExpirationCommand),
    /// Put tasks into a tube
    #[command(after_help = PUT_EXAMPLES)]
    Put(PutArguments),
    /// Take tasks from a tube
    #[command(after_help = TAKE_EXAMPLES)]
    Take(TakeArguments),
    /// Acknowledge taken tasks: they are done and gone
    ///
    /// Several ids are one batch: all of the tasks are acknowledged, or none.
    #[command(after_help = ACK_EXAMPLES)]
    Ack(TaskArguments),
    /// Give taken tasks back
    ///
    /// Several ids are one batch: all of the tasks are given back, or none.
    #[command(after_help = RELEASE_EXAMPLES)]
    Release(ReleaseArguments),
    /// Put tasks aside until they are kicked
    Bury(ChosenArguments),
    /// Make buried tasks ready again
    Kick(KickArguments),
    /// Show everything that is known of tasks, without taking them
    Peek(TaskArguments),
    /// List tasks by state, sub-queue and age, without taking them
    #[command(after_help = LIST_EXAMPLES)]
    List(ListArguments),
    /// Delete tasks, whatever their state
    #[command(after_help = CHOICE_EXAMPLES)]
    Delete(ChosenArguments),
    /// Prolong taken tasks: more time to live and to run
    Touch(TouchArguments),
    /// Run a command for every task of a tube
    #[command(after_help = WORK_EXAMPLES)]
    Work(WorkArguments),
    /// Kills what a worker that was killed has left behind; `lycosa work` runs it
    #[command(name = crate::work::guard::COMMAND, hide = true)]
    WorkGuard,
    /// Show how the server and its tubes are
    Stats(ClientArguments),
    /// Ask the server for a sign of life
    Ping(ClientArguments),
    /// Add, list, change and drop users (on the server's machine)
    #[command(subcommand)]
    User(UserCommand),
    /// Write all data into a snapshot and remove old files (on the server's machine)
    ///
    /// Waits until the snapshot is complete; requests go on meanwhile.
    Checkpoint(AdminArguments),
    /// Measure how fast a server is, and compare it with other queues
    Bench(Box<lycosa_bench::Arguments>),
    /// Write tubes and their tasks as JSON lines
    #[command(after_help = EXPORT_EXAMPLES)]
    Export(ExportArguments),
    /// Make tubes and tasks of JSON lines
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(ImportArguments),
    /// Print the rows of .xlog and .snap files
    #[command(after_help = CAT_EXAMPLES)]
    Cat(CatArguments),
    /// Verify the files in a data folder, load the data and print their digest
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArguments),
    /// Print a completion script for a shell
    ///
    /// For bash: lycosa completions bash > /etc/bash_completion.d/lycosa
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

const EXPIRATION_EXAMPLES: &str = "\
Examples:
  lycosa expiration start old-mail emails --field 3 --dry-run     how many tuples would go
  lycosa expiration start old-mail emails --field 3               delete them, now and from now on
  lycosa expiration start tokens tokens --field deadline --unit ms --archive-tube expired
                                                                  make them tasks of a tube instead
  lycosa expiration stats                                         what the tasks do, and how late they are
  lycosa expiration stop old-mail";

const PUT_EXAMPLES: &str = "\
Examples:
  lycosa put mail hello                       one task
  lycosa put mail a b c --pri 1               three tasks
  lycosa put mail --file letter.txt           the file's content as one task
  zcat urls.gz | lycosa put crawl --lines     one task a line, with a progress bar
  lycosa put crawl --lines --batch 1000 -f urls.txt
                                              the same in batches, each put as a whole: several times as fast
  lycosa put mail '{\"to\": \"ann\"}' --as json   a map instead of text";

const TAKE_EXAMPLES: &str = "\
A task goes back when the connection that took it ends, so a plain take is for looking. To keep it, either take and
acknowledge at once (--ack), or set queue.ttr on the server and pass the printed session on:

  lycosa take mail --ack                      take, print and acknowledge
  lycosa take mail --limit 100 --ack          the next 100, or as many as there are, in one batch
  lycosa take mail --json                     {\"id\":0,\"state\":\"t\",\"data\":\"hello\",\"session\":\"5f0c…\"}
  lycosa ack mail 0 --session 5f0c…           within queue.ttr seconds";

const LIST_EXAMPLES: &str = "\
Examples:
  lycosa list mail --state buried             what failed, with the last error
  lycosa list mail --older-than 1h --limit 1000 --json";

const CHOICE_EXAMPLES: &str = "\
With a filter in place of ids the tasks are counted; --yes changes them.

Examples:
  lycosa delete mail 7 8
  lycosa delete mail --state buried --older-than 7d
  lycosa delete mail --state buried --older-than 7d --yes";

const ACK_EXAMPLES: &str = "\
Examples:
  lycosa ack mail 0 --session 5f0c…           in the session that `lycosa take --json` has printed
  lycosa ack mail 0 1 2 --session 5f0c…       all three or none";

const RELEASE_EXAMPLES: &str = "\
Examples:
  lycosa release mail 0 --session 5f0c…       at once
  lycosa release mail 0 1 --delay 60 --session 5f0c…
                                              both or none, ready again in a minute (ttl types)";

const WORK_EXAMPLES: &str = "\
The command gets the payload on standard input and LYCOSA_TASK_ID, LYCOSA_TUBE and LYCOSA_ATTEMPT in its environment.
Exit 0 acknowledges the task; anything else releases it with a growing delay, and after --max-attempts buries it.
While the command runs the task is touched, so that its ttr does not pass. The exit code and the end of standard
error are kept with a task that failed (`lycosa peek`).

Ctrl-C and SIGTERM let the running commands end; a second one kills them and releases their tasks. With --json
standard output has one object for each task, and the commands write to standard error.

Examples:
  lycosa work mail -- ./send-mail.sh
  lycosa work crawl --jobs 16 --max-attempts 5 -- curl --fail --silent --config -";

const EXPORT_EXAMPLES: &str = "\
Reading takes the right to read the tubes' spaces. On the server's machine --data-dir needs no rights.

Examples:
  lycosa export --data-dir /var/lib/lycosa -o tubes.jsonl     all tubes, with a progress bar
  lycosa export mail crawl --user boss > two-tubes.jsonl      two tubes, over the network
  lycosa export --data-dir data | lycosa import --address other:3301";

const IMPORT_EXAMPLES: &str = "\
A line is a tube or a task; only `tube` and `data` are needed:
  {\"tube\": \"mail\", \"type\": \"fifottl\", \"options\": {\"ttl\": 86400}}
  {\"tube\": \"mail\", \"data\": {\"to\": \"ann\"}, \"pri\": 1, \"ttl\": 3600, \"delay\": 60}

Examples:
  lycosa import tubes.jsonl
  zcat tubes.jsonl.gz | lycosa import --address 127.0.0.1:3302";

const CAT_EXAMPLES: &str = "\
Exit codes: 0 read to the end, a torn tail included; 65 damaged; 66 no such file; 74 disk error; 78 another version.

Examples:
  lycosa cat data/*.xlog                                  all changes
  lycosa cat data/00000000000000000277.xlog --space mail --type update,delete
  lycosa cat data/*.snap --json --space _user | jq .tuple
  lycosa cat data/00000000000000000277.xlog --follow      changes as they come, until Ctrl-C";

const CHECK_EXAMPLES: &str = "\
Takes no lock and changes nothing: beside a running server its last rows may still be on the way. Two folders with
the same digest hold the same data.

Exit codes: 0 all is sound; 65 damaged; 66 files are missing; 74 disk error; 78 of another instance or version.

Examples:
  lycosa check /var/lib/lycosa
  lycosa check backup --json | jq -r 'select(.digest).digest'";

/// How to reach a server.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ClientArguments {
    /// Address of the server: HOST or HOST:PORT
    #[arg(long, short = 'a', env = "LYCOSA_ADDRESS", default_value = "127.0.0.1:3301", global = true,
        value_parser = address)]
    pub(crate) address: String,
    /// User to authenticate as; guest if absent
    #[arg(long, short = 'u', env = "LYCOSA_USER", global = true)]
    pub(crate) user: Option<String>,
    /// File with the password; otherwise it is taken from LYCOSA_PASSWORD
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) password_file: Option<PathBuf>,
    /// Time to wait for the connection and for each reply
    #[arg(long, default_value = "10", value_name = "TIME", value_parser = span, allow_negative_numbers = true, global = true)]
    pub(crate) request_timeout: Duration,
    /// Print JSON, one object a line
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// Flags of `lycosa serve`: one for every setting.
#[derive(Debug, Clone)]
pub(crate) struct ServeArguments {
    pub(crate) file: Option<PathBuf>,
    pub(crate) flags: Flags,
}

impl Args for ServeArguments {
    fn augment_args(command: clap::Command) -> clap::Command {
        let file = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .env("LYCOSA_CONFIG")
            .value_parser(clap::value_parser!(PathBuf))
            .help("Configuration file [default: lycosa.toml, if it exists]");
        SETTINGS.iter().fold(command.arg(file), |command, setting| {
            command.arg(
                Arg::new(setting.key)
                    .long(setting.flag())
                    .value_name("VALUE")
                    .num_args(if setting.default == "false" { 0..=1 } else { 1..=1 })
                    .default_missing_value("true")
                    .help(format!(
                        "{} [default: {}] [env: {}]",
                        setting.help,
                        setting.default,
                        setting.variable()
                    )),
            )
        })
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ServeArguments {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let flags = SETTINGS.iter().filter_map(|setting| {
            let text = matches.get_one::<String>(setting.key)?;
            Some((setting.flag(), text.clone()))
        });
        Ok(ServeArguments { file: matches.get_one::<PathBuf>("config").cloned(), flags: flags.collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArguments {
    #[command(flatten)]
    pub(crate) serve: ServeArguments,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Types of tubes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TubeType {
    /// In order of arrival
    Fifo,
    /// With priority, delay, time to live and time to run
    Fifottl,
    /// As fifottl, with a capacity
    Limfifottl,
    /// One task at a time in each sub-queue
    Utube,
    /// As utube, with priority, delay, time to live and time to run
    Utubettl,
}

impl TubeType {
    pub(crate) fn name(self) -> &'static str {
        match self {
            TubeType::Fifo => "fifo",
            TubeType::Fifottl => "fifottl",
            TubeType::Limfifottl => "limfifottl",
            TubeType::Utube => "utube",
            TubeType::Utubettl => "utubettl",
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum TubeCommand {
    /// Create a tube
    Create(TubeCreateArguments),
    /// List the tubes that the user may see, with their types and tasks by state
    List(ClientArguments),
    /// Drop a tube and its tasks; refused while tasks are taken or calls wait
    Drop(TubeArguments),
    /// Remove all tasks of a tube
    Truncate(TubeArguments),
    /// Count tasks by state and calls by kind, of one tube or of all
    Stats {
        /// The tube; all of them if absent
        tube: Option<String>,
        #[command(flatten)]
        client: ClientArguments,
    },
}

/// How the commands of expiration reach the server.
#[derive(Debug, Args)]
pub(crate) struct ExpirationArguments {
    /// The server's data folder: act as administrator over the socket in it, instead of --address
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ExpirationCommand {
    /// Start a task
    ///
    /// If an index is ordered by the field the task sleeps until the next deadline. Otherwise it passes over the space,
    /// --scan-time seconds for a pass.
    Start(Box<ExpirationStartArguments>),
    /// List the tasks
    List(ExpirationArguments),
    /// Show what tasks have done, and how late they are
    Stats {
        /// The task; all of them if absent
        name: Option<String>,
        #[command(flatten)]
        access: ExpirationArguments,
    },
    /// Stop a task
    Stop {
        /// The task
        name: String,
        /// A task that does not exist is no error
        #[arg(long)]
        if_exists: bool,
        #[command(flatten)]
        access: ExpirationArguments,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ExpirationStartArguments {
    /// Its name
    pub(crate) name: String,
    /// The space or tube, by name or number
    pub(crate) space: String,
    /// The field with the deadline: its number from 1, or its name
    #[arg(long, short = 'f')]
    pub(crate) field: String,
    /// The field's unit: s, ms or us [default: s]
    #[arg(long)]
    pub(crate) unit: Option<String>,
    /// The index to walk [default: one that is ordered by the field, else the primary one]
    #[arg(long)]
    pub(crate) index: Option<String>,
    /// The unique index to delete by [default: the primary one]
    #[arg(long, value_name = "INDEX")]
    pub(crate) delete_by: Option<String>,
    /// Tuples that one transaction looks at while the task keeps up [default: 1024]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) scan_size: Option<u32>,
    /// Seconds that a pass over a space takes that has no index ordered by the field [default: 3600]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) scan_time: Option<u64>,
    /// Tuples that one transaction looks at under backlog, at most [default: 10000]
    #[arg(long, value_name = "COUNT")]
    pub(crate) budget_rows: Option<u32>,
    /// Microseconds for which one transaction may hold the loop, up to 800 [default: 300]
    #[arg(long, value_name = "MICROSECONDS")]
    pub(crate) budget_us: Option<u32>,
    /// Percent of the loop's time that the task may take under backlog [default: 35]
    #[arg(long, value_name = "PERCENT")]
    pub(crate) share: Option<u32>,
    /// Seconds of lag from which on the log warns; 0 never warns [default: 60]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) lag_limit: Option<f64>,
    /// Put expired tuples into this tube, as payloads of tasks
    #[arg(long, value_name = "TUBE", conflicts_with = "archive_space")]
    pub(crate) archive_tube: Option<String>,
    /// Put expired tuples into this space
    #[arg(long, value_name = "SPACE")]
    pub(crate) archive_space: Option<String>,
    /// The task ends with the server's process
    #[arg(long)]
    pub(crate) transient: bool,
    /// A task with this name is no error
    #[arg(long)]
    pub(crate) if_not_exists: bool,
    /// Start nothing: count what is due now
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Seconds to wait for the end of a dry run
    #[arg(long, default_value_t = 3600, value_name = "SECONDS", requires = "dry_run")]
    pub(crate) dry_run_timeout: u64,
    #[command(flatten)]
    pub(crate) access: ExpirationArguments,
}

#[derive(Debug, Args)]
pub(crate) struct TubeArguments {
    /// The tube
    pub(crate) tube: String,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

#[derive(Debug, Args)]
pub(crate) struct TubeCreateArguments {
    /// Its name
    pub(crate) tube: String,
    /// Its type
    #[arg(long = "type", short = 't', value_enum, default_value = "fifottl")]
    pub(crate) kind: TubeType,
    /// An existing tube is no error
    #[arg(long)]
    pub(crate) if_not_exists: bool,
    /// Tasks are not journaled and gone after a restart
    #[arg(long)]
    pub(crate) temporary: bool,
    /// Time that a task lives (ttl types)
    #[arg(long, value_name = "TIME", value_parser = span, allow_negative_numbers = true)]
    pub(crate) ttl: Option<Duration>,
    /// Time that a task may be held (ttl types)
    #[arg(long, value_name = "TIME", value_parser = span, allow_negative_numbers = true)]
    pub(crate) ttr: Option<Duration>,
    /// Priority of tasks, lower first (ttl types)
    #[arg(long, value_parser = priority, allow_negative_numbers = true)]
    pub(crate) pri: Option<u64>,
    /// How many tasks fit (limfifottl)
    #[arg(long)]
    pub(crate) capacity: Option<u64>,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

/// How a payload given as bytes becomes a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PayloadType {
    /// Text as it stands
    Text,
    /// JSON, parsed into maps, arrays, numbers …
    Json,
    /// Bytes
    Binary,
}

#[derive(Debug, Args)]
pub(crate) struct PutArguments {
    /// The tube
    pub(crate) tube: String,
    /// Payloads, one task each; standard input if there are none
    pub(crate) data: Vec<String>,
    /// File whose content is the payload of one task; may be repeated
    #[arg(long, short = 'f', value_name = "FILE")]
    pub(crate) file: Vec<PathBuf>,
    /// Each line of the input is a task
    #[arg(long, short = 'l')]
    pub(crate) lines: bool,
    /// Put so many tasks with one call: all of them or none (a batch ends early at 4 MiB)
    #[arg(long, short = 'b', value_name = "COUNT", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) batch: u32,
    /// How the payload is stored
    #[arg(long = "as", value_enum, default_value = "text", value_name = "TYPE")]
    pub(crate) payload: PayloadType,
    /// Priority, lower first
    #[arg(long, short = 'p', value_parser = priority, allow_negative_numbers = true)]
    pub(crate) pri: Option<u64>,
    /// Time before the task is ready
    #[arg(long, short = 'd', value_name = "TIME", value_parser = span, allow_negative_numbers = true)]
    pub(crate) delay: Option<Duration>,
    /// Time that the task lives
    #[arg(long, value_name = "TIME", value_parser = span, allow_negative_numbers = true)]
    pub(crate) ttl: Option<Duration>,
    /// Time that the task may be held
    #[arg(long, value_name = "TIME", value_parser = span, allow_negative_numbers = true)]
    pub(crate) ttr: Option<Duration>,
    /// Sub-queue (utube, utubettl)
    #[arg(long)]
    pub(crate) utube: Option<String>,
    /// Time to wait for free capacity (limfifottl)
    #[arg(long, value_name = "TIME", value_parser = span, allow_negative_numbers = true)]
    pub(crate) timeout: Option<Duration>,
    /// Create the tube (fifottl) if it does not exist
    #[arg(long)]
    pub(crate) create: bool,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

#[derive(Debug, Args)]
pub(crate) struct TakeArguments {
    /// The tube
    pub(crate) tube: String,
    /// Time to wait for a task; 0 does not wait
    #[arg(long, short = 'w', default_value = "0", value_name = "TIME", value_parser = span, allow_negative_numbers = true)]
    pub(crate) timeout: Duration,
    /// How many tasks at the most, taken and waited for one by one
    #[arg(long, short = 'n', default_value_t = 1)]
    pub(crate) count: u64,
    /// Take up to so many with one call; waits for the first only
    #[arg(long, value_name = "COUNT", conflicts_with = "count",
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: Option<u32>,
    /// Acknowledge each task once it is printed
    #[arg(long)]
    pub(crate) ack: bool,
    #[command(flatten)]
    pub(crate) session: SessionArguments,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

/// The queue session in whose name a command acts.
#[derive(Debug, Clone, Args)]
pub(crate) struct SessionArguments {
    /// Queue session to act in: 32 hexadecimal digits, as `take --json` prints them
    #[arg(long, value_name = "HEX")]
    pub(crate) session: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct TaskArguments {
    /// The tube
    pub(crate) tube: String,
    /// Ids of tasks
    #[arg(required = true, num_args = 1..)]
    pub(crate) ids: Vec<u64>,
    #[command(flatten)]
    pub(crate) session: SessionArguments,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

/// States by which tasks are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TaskState {
    /// Waiting to be taken
    Ready,
    /// Taken
    Taken,
    /// Waiting for a delay to end
    Delayed,
    /// Put aside
    Buried,
}

/// Which tasks of a tube.
#[derive(Debug, Clone, Args)]
pub(crate) struct Choice {
    /// Only tasks in this state
    #[arg(long, value_enum)]
    pub(crate) state: Option<TaskState>,
    /// Only tasks of this sub-queue (utube, utubettl)
    #[arg(long, value_name = "NAME")]
    pub(crate) sub_queue: Option<String>,
    /// Only tasks that were put longer ago than this (ttl types)
    #[arg(long, value_name = "TIME", value_parser = span, allow_negative_numbers = true)]
    pub(crate) older_than: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// The tube
    pub(crate) tube: String,
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// How many at the most
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 100)]
    pub(crate) limit: u64,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

#[derive(Debug, Args)]
pub(crate) struct ChosenArguments {
    /// The tube
    pub(crate) tube: String,
    /// Ids of tasks
    #[arg(required_unless_present_any = ["state", "sub_queue", "older_than"],
        conflicts_with_all = ["state", "sub_queue", "older_than"])]
    pub(crate) ids: Vec<u64>,
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// Do it to the tasks that the filter chooses, instead of counting them
    #[arg(long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) session: SessionArguments,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

#[derive(Debug, Args)]
pub(crate) struct ReleaseArguments {
    #[command(flatten)]
    pub(crate) task: TaskArguments,
    /// Time before the tasks are ready again (ttl types)
    #[arg(long, short = 'd', value_name = "TIME", value_parser = span, allow_negative_numbers = true)]
    pub(crate) delay: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct KickArguments {
    /// The tube
    pub(crate) tube: String,
    /// How many at the most
    #[arg(default_value_t = 1)]
    pub(crate) count: u64,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

#[derive(Debug, Args)]
pub(crate) struct TouchArguments {
    /// The tube
    pub(crate) tube: String,
    /// Time to add
    #[arg(value_name = "TIME", value_parser = span, allow_negative_numbers = true)]
    pub(crate) seconds: Duration,
    /// Ids of tasks
    #[arg(required = true, num_args = 1..)]
    pub(crate) ids: Vec<u64>,
    #[command(flatten)]
    pub(crate) session: SessionArguments,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

#[derive(Debug, Args)]
pub(crate) struct WorkArguments {
    /// The tube
    pub(crate) tube: String,
    /// Commands at a time
    #[arg(long, short = 'j', default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) jobs: u16,
    /// Failures after which a task is buried
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_attempts: u32,
    /// Time before a task that failed once is ready again; doubled at each further failure (ttl types)
    #[arg(long, default_value = "1", value_name = "TIME", value_parser = span, allow_negative_numbers = true)]
    pub(crate) retry_delay: Duration,
    /// The longest such delay
    #[arg(long, default_value = "300", value_name = "TIME", value_parser = span, allow_negative_numbers = true)]
    pub(crate) max_retry_delay: Duration,
    /// The longest time between two touches of a running task; a short ttr makes it shorter (ttl types)
    #[arg(long, default_value = "10", value_name = "TIME", value_parser = span, allow_negative_numbers = true)]
    pub(crate) touch_interval: Duration,
    /// How long a command may run; then its process group gets SIGTERM, after 5 s SIGKILL, and the task has failed
    #[arg(long, value_name = "TIME", value_parser = span, allow_negative_numbers = true)]
    pub(crate) timeout: Option<Duration>,
    /// End when no task has come for this long, none is running and no failed one waits for its next attempt
    #[arg(long, value_name = "TIME", value_parser = span, allow_negative_numbers = true)]
    pub(crate) until_empty: Option<Duration>,
    /// The command and its arguments
    #[arg(last = true, required = true, num_args = 1..)]
    pub(crate) command: Vec<String>,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

/// How the administrator reaches the server.
#[derive(Debug, Clone, Args)]
pub(crate) struct AdminArguments {
    /// The server's data folder, where its administrator's socket is
    #[arg(long, env = "LYCOSA_DATA_DIR", default_value = "data")]
    pub(crate) data_dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Add a user; the password is read from LYCOSA_PASSWORD, --password-file or the terminal
    Add {
        /// Its name
        name: String,
        /// File with the password
        #[arg(long, value_name = "FILE")]
        password_file: Option<PathBuf>,
        /// Role to grant, for example super; may be repeated
        #[arg(long)]
        role: Vec<String>,
        /// Tube that the user may use; may be repeated; '*' is every tube and the right to create and drop
        #[arg(long)]
        tube: Vec<String>,
        #[command(flatten)]
        admin: AdminArguments,
    },
    /// List users with what they may do
    List {
        #[command(flatten)]
        admin: AdminArguments,
    },
    /// Let a user use tubes or have roles
    Grant {
        /// The user
        name: String,
        /// Role to grant; may be repeated
        #[arg(long, required_unless_present = "tube")]
        role: Vec<String>,
        /// Tube that the user may use; may be repeated; '*' is every tube and the right to create and drop
        #[arg(long)]
        tube: Vec<String>,
        #[command(flatten)]
        admin: AdminArguments,
    },
    /// Set a user's password
    Passwd {
        /// The user
        name: String,
        /// File with the password
        #[arg(long, value_name = "FILE")]
        password_file: Option<PathBuf>,
        #[command(flatten)]
        admin: AdminArguments,
    },
    /// Drop a user
    Drop {
        /// The user
        name: String,
        #[command(flatten)]
        admin: AdminArguments,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ExportArguments {
    /// Tubes; all of them if none is named
    pub(crate) tubes: Vec<String>,
    /// File to write; standard output if absent
    #[arg(long, short = 'o', value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// The server's data folder: read as administrator over the socket in it, instead of --address
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArguments {
    /// File to read; standard input if absent
    pub(crate) file: Option<PathBuf>,
    /// The server's data folder: write as administrator over the socket in it, instead of --address
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

/// What a row does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RowType {
    /// Adds a tuple
    Insert,
    /// Puts a tuple in the place of another
    Replace,
    /// Changes a tuple
    Update,
    /// Removes a tuple
    Delete,
    /// Adds or changes a tuple
    Upsert,
    /// Nothing
    Nop,
    /// Makes synchronous rows final
    Confirm,
    /// Makes synchronous rows void
    Rollback,
    /// Something that this version does not know
    Unknown,
}

#[derive(Debug, Args)]
pub(crate) struct CatArguments {
    /// Files, in any state: .xlog, .snap, .inprogress, .corrupted
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Only rows of this space, by number or name; may be repeated
    #[arg(long, short = 's', value_name = "SPACE")]
    pub(crate) space: Vec<String>,
    /// Only rows from this LSN on
    #[arg(long, value_name = "LSN")]
    pub(crate) from: Option<u64>,
    /// Only rows up to this LSN, which is included
    #[arg(long, value_name = "LSN")]
    pub(crate) to: Option<u64>,
    /// Only rows of these types
    #[arg(long = "type", short = 't', value_enum, value_delimiter = ',', value_name = "TYPE")]
    pub(crate) types: Vec<RowType>,
    /// End after so many rows
    #[arg(long, short = 'n', value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// Print the text header of each file first
    #[arg(long)]
    pub(crate) header: bool,
    /// Wait for more rows, in this file and in those after it, until Ctrl-C
    #[arg(long)]
    pub(crate) follow: bool,
    /// Go on after damage, with the next block that is sound
    #[arg(long)]
    pub(crate) force: bool,
    /// Print JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    /// The data folder
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Print JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
}
