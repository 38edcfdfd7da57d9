//! Commands on tasks: put, take, settle, look, work.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{ClientArguments, SessionArguments};
use crate::values::{header, lasting, lease, positive, priority, replicas, span, task_id, token};

pub(super) const PUT_EXAMPLES: &str = "\
Examples:
  lycosa put mail hello                       one task
  lycosa put mail a b c --pri 1               three tasks
  lycosa put mail --file letter.txt           the file's content as one task
  zcat urls.gz | lycosa put crawl --lines     one task a line, with a progress bar
  lycosa put crawl --lines --batch 1000 -f urls.txt
                                              the same in batches, each put as a whole: several times as fast
  lycosa put mail '{\"to\": \"ann\"}' --as json   a map instead of text
  lycosa put mail hello --header origin=cron  a text beside the payload, which peek and workers show";

pub(super) const TAKE_EXAMPLES: &str = "\
A task goes back when the connection that took it ends, so a plain take is for looking. To keep it, either take and
acknowledge at once (--ack), or set queue.ttr on the server and pass the printed session on:

  lycosa take mail --ack                      take, print and acknowledge
  lycosa take mail --limit 100 --ack          the next 100, or as many as there are, in one batch
  lycosa take mail --lease 5m                 id, state, token and payload; `lycosa ack mail --token TOKEN` within 5 minutes
  lycosa take mail --json                     {\"id\":0,\"state\":\"t\",\"data\":\"hello\",\"session\":\"5f0c…\"}
  lycosa ack mail 0 --session 5f0c…           within queue.ttr seconds";

pub(super) const LIST_EXAMPLES: &str = "\
Examples:
  lycosa list mail --state buried             what failed, with the last error
  lycosa list mail --older-than 1h --limit 1000 --json";

pub(super) const CHOICE_EXAMPLES: &str = "\
With a filter in place of ids the tasks are counted, and the command asks; --yes answers. Without a terminal and --yes it
changes nothing and ends with exit code 2.

Examples:
  lycosa delete mail 7 8
  lycosa delete mail --state buried --older-than 7d
  lycosa delete mail --state buried --older-than 7d --yes";

pub(super) const BURY_EXAMPLES: &str = "\
With a filter in place of ids the tasks are counted, and the command asks; --yes answers. Without a terminal and --yes it
changes nothing and ends with exit code 2.

Examples:
  lycosa bury mail 7 8 --reason 'bad address'
  lycosa bury mail --state ready --older-than 7d --yes";

pub(super) const KICK_EXAMPLES: &str = "\
With a filter the buried tasks that it chooses are counted, and the command asks; --yes answers. Without a terminal and --yes
it changes nothing and ends with exit code 2.

Examples:
  lycosa kick mail --count 100                the first 100
  lycosa kick mail --id 7,8                   these
  lycosa kick mail --older-than 1h --yes";

pub(super) const PEEK_EXAMPLES: &str = "\
Examples:
  lycosa peek mail 7                          times, attempts, the last error, the holder
  lycosa peek mail 7 8 --json";

pub(super) const TOUCH_EXAMPLES: &str = "\
Examples:
  lycosa touch mail 30 7 --session 5f0c…      30 seconds more for task 7
  lycosa touch mail 5m 7 8 --session 5f0c…
  lycosa touch mail 5m --token 3-0-42-9f86d081884c7d65
                                              the lease ends 5 minutes from now";

pub(super) const ACK_EXAMPLES: &str = "\
Examples:
  lycosa ack mail 0 --session 5f0c…           in the session that `lycosa take --json` has printed
  lycosa ack mail 0 1 2 --session 5f0c…       all three or none
  lycosa ack mail --token 3-0-42-9f86d081884c7d65
                                              the task of a lease (`lycosa take --lease`)";

pub(super) const RELEASE_EXAMPLES: &str = "\
Examples:
  lycosa release mail 0 --session 5f0c…       at once
  lycosa release mail 0 1 --delay 60 --session 5f0c…
                                              both or none, ready again in a minute (ttl types)
  lycosa release mail 7 --force               also if another session holds it
  lycosa release mail --older-than 1h --yes   all taken tasks put more than an hour ago, of any session";

pub(super) const WORK_EXAMPLES: &str = "\
The command gets the payload on standard input and LYCOSA_TASK_ID, LYCOSA_TUBE and LYCOSA_ATTEMPT in its environment.
Exit 0 acknowledges the task; anything else releases it with a growing delay, and after --max-attempts buries it.
While the command runs the task is touched, so that its ttr does not pass. The exit code and the end of standard
error are kept with a task that failed (`lycosa peek`).

Ctrl-C and SIGTERM let the running commands end; a second one kills them and releases their tasks. With --json
standard output has one object for each task, and the commands write to standard error.

Examples:
  lycosa work mail -- ./send-mail.sh
  lycosa work crawl --jobs 16 --max-attempts 5 -- curl --fail --silent --config -";

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
    /// Each line of standard input, or of each file, is a task
    #[arg(long, short = 'l')]
    pub(crate) lines: bool,
    /// Number of tasks to put with one call: all of them or none (a batch ends early at 4 MiB)
    #[arg(long, short = 'b', value_name = "COUNT", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=10_000), allow_negative_numbers = true)]
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
    #[arg(long, value_name = "TIME", value_parser = lasting, allow_negative_numbers = true)]
    pub(crate) ttl: Option<Duration>,
    /// Time that the task may be held
    #[arg(long, value_name = "TIME", value_parser = lasting, allow_negative_numbers = true)]
    pub(crate) ttr: Option<Duration>,
    /// Sub-queue (utube, utubettl)
    #[arg(long, value_name = "NAME", alias = "sub-queue")]
    pub(crate) utube: Option<String>,
    /// Time to wait for free capacity (limfifottl)
    #[arg(long, value_name = "TIME", value_parser = span, allow_negative_numbers = true)]
    pub(crate) timeout: Option<Duration>,
    /// Replicas that must have the task on their disks before it counts as put
    #[arg(long, value_name = "COUNT", value_parser = replicas, allow_negative_numbers = true)]
    pub(crate) replicas: Option<u64>,
    /// Text that is kept with the task beside its payload, such as traceparent; may be repeated
    #[arg(long = "header", value_name = "NAME=TEXT", value_parser = header)]
    pub(crate) headers: Vec<(String, String)>,
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
    // The word before `--limit`: takes one by one, and waits for each.
    #[arg(long, hide = true, default_value_t = 1, value_parser = positive, allow_negative_numbers = true)]
    pub(crate) count: u64,
    /// How many tasks at the most, taken with one call that waits for the first only [default: 1]
    #[arg(long, short = 'n', value_name = "COUNT", conflicts_with = "count",
        value_parser = clap::value_parser!(u32).range(1..=10_000), allow_negative_numbers = true)]
    pub(crate) limit: Option<u32>,
    /// Acknowledge each task once it is printed
    #[arg(long)]
    pub(crate) ack: bool,
    /// Take for a lease, which outlives the connection: at most 1d. `--token` of ack, release, bury and touch settles it
    #[arg(long, value_name = "TIME", value_parser = lease, conflicts_with_all = ["ack", "session"], allow_negative_numbers = true)]
    pub(crate) lease: Option<Duration>,
    #[command(flatten)]
    pub(crate) session: SessionArguments,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

#[derive(Debug, Args)]
pub(crate) struct PeekArguments {
    /// The tube
    pub(crate) tube: String,
    /// Ids of tasks
    #[arg(required = true, num_args = 1.., value_parser = task_id, allow_negative_numbers = true)]
    pub(crate) ids: Vec<u64>,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

#[derive(Debug, Args)]
pub(crate) struct AckArguments {
    /// The tube
    pub(crate) tube: String,
    #[command(flatten)]
    pub(crate) tasks: NamedTasks,
}

// Tasks by their ids, or by the tokens of their leases. (A doc comment would become the help of the command.)
#[derive(Debug, Args)]
pub(crate) struct NamedTasks {
    /// Ids of tasks
    #[arg(required_unless_present = "token", num_args = 1.., value_parser = task_id, allow_negative_numbers = true)]
    pub(crate) ids: Vec<u64>,
    /// Token of a lease, in place of ids; several as A,B
    #[arg(long, value_name = "TOKEN", value_delimiter = ',', value_parser = token, conflicts_with_all = ["ids", "session"])]
    pub(crate) token: Vec<String>,
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
    #[arg(long, value_name = "NAME", alias = "sub-queue")]
    pub(crate) utube: Option<String>,
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
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 100,
        value_parser = positive, allow_negative_numbers = true)]
    pub(crate) limit: u64,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

// Tasks by a filter instead of by their ids. (A doc comment would become the help of the command.)
#[derive(Debug, Args)]
pub(crate) struct FilterArguments {
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// The most tasks that the filter chooses, in the order of their ids
    #[arg(long, value_name = "COUNT", value_parser = positive, allow_negative_numbers = true)]
    pub(crate) limit: Option<u64>,
    /// Change the tasks that the filter chooses without asking
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ChosenArguments {
    /// The tube
    pub(crate) tube: String,
    /// Ids of tasks
    #[arg(value_parser = task_id, allow_negative_numbers = true,
        required_unless_present_any = ["state", "utube", "older_than", "limit", "token"],
        conflicts_with_all = ["state", "utube", "older_than", "limit"])]
    pub(crate) ids: Vec<u64>,
    /// Token of a lease, in place of ids; several as A,B
    #[arg(long, value_name = "TOKEN", value_delimiter = ',', value_parser = token,
        conflicts_with_all = ["ids", "session", "state", "utube", "older_than", "limit"])]
    pub(crate) token: Vec<String>,
    #[command(flatten)]
    pub(crate) filter: FilterArguments,
    #[command(flatten)]
    pub(crate) session: SessionArguments,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

#[derive(Debug, Args)]
pub(crate) struct BuryArguments {
    #[command(flatten)]
    pub(crate) chosen: ChosenArguments,
    /// Text that is kept with the tasks (`lycosa peek` shows it)
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ReleaseArguments {
    #[command(flatten)]
    pub(crate) chosen: ChosenArguments,
    /// Text that is kept with the tasks (`lycosa peek` shows it)
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Also release tasks that other sessions hold; a filter always does
    #[arg(long, conflicts_with = "token")]
    pub(crate) force: bool,
    /// Time before the tasks are ready again (ttl types)
    #[arg(long, short = 'd', value_name = "TIME", value_parser = span, allow_negative_numbers = true)]
    pub(crate) delay: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct KickArguments {
    /// The tube
    pub(crate) tube: String,
    // A bare number: refused, with the two flags that make it an id or a count.
    #[arg(hide = true)]
    pub(crate) unclear: Vec<String>,
    /// How many at the most, in the order in which they would be taken [default: 1]
    #[arg(long, short = 'n', value_name = "COUNT", conflicts_with_all = ["id", "state", "utube", "older_than", "limit"],
        value_parser = positive, allow_negative_numbers = true)]
    pub(crate) count: Option<u64>,
    /// Ids of buried tasks
    #[arg(long, value_name = "ID", value_delimiter = ',', num_args = 1.., value_parser = task_id,
        conflicts_with_all = ["state", "utube", "older_than", "limit"])]
    pub(crate) id: Vec<u64>,
    #[command(flatten)]
    pub(crate) filter: FilterArguments,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

#[derive(Debug, Args)]
pub(crate) struct TouchArguments {
    /// The tube
    pub(crate) tube: String,
    /// Time to add; with --token, time from now
    #[arg(value_name = "TIME", value_parser = lasting, allow_negative_numbers = true)]
    pub(crate) seconds: Duration,
    #[command(flatten)]
    pub(crate) tasks: NamedTasks,
}

#[derive(Debug, Args)]
pub(crate) struct WorkArguments {
    /// The tube
    pub(crate) tube: String,
    /// Commands at a time
    #[arg(long, short = 'j', default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024), allow_negative_numbers = true)]
    pub(crate) jobs: u16,
    /// Attempts after which a task is buried, those of other workers and of dead ones included
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    pub(crate) max_attempts: u32,
    /// Time before a task that failed once is ready again; doubled at each further failure (ttl types)
    /// [default: 1]
    #[arg(long, value_name = "TIME", value_parser = span, allow_negative_numbers = true)]
    pub(crate) retry_delay: Option<Duration>,
    /// The longest such delay [default: 300]
    #[arg(long, value_name = "TIME", value_parser = span, allow_negative_numbers = true)]
    pub(crate) max_retry_delay: Option<Duration>,
    /// The longest time between two touches of a running task; a short ttr makes it shorter (ttl types)
    /// [default: 10]
    #[arg(long, value_name = "TIME", value_parser = lasting, allow_negative_numbers = true)]
    pub(crate) touch_interval: Option<Duration>,
    /// How long a command may run; then its process group gets SIGTERM, after 5 s SIGKILL, and the task has failed
    #[arg(long, value_name = "TIME", value_parser = lasting, allow_negative_numbers = true)]
    pub(crate) timeout: Option<Duration>,
    /// End when no task has arrived for this long, none is running and no failed one waits for its next attempt
    #[arg(long, value_name = "TIME", value_parser = span, allow_negative_numbers = true)]
    pub(crate) until_empty: Option<Duration>,
    /// The command and its arguments
    #[arg(last = true, required = true, num_args = 1..)]
    pub(crate) command: Vec<String>,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}
