//! Commands that steer a running server: pause, resume, explain, find, apply, undo, audit.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{Choice, ClientArguments};
use crate::values::{positive, priority, span, task_id};

pub(super) const PAUSE_EXAMPLES: &str = "\
Examples:
  lycosa pause mail --reason 'the relay is down'
  lycosa resume mail";

pub(super) const EXPLAIN_EXAMPLES: &str = "\
Examples:
  lycosa explain mail 7                       why task 7 is not worked on, and until when
  lycosa explain crawl --utube example.org    why a sub-queue hands out no task
  lycosa explain mail                         why a tube hands out no task";

pub(super) const AUDIT_EXAMPLES: &str = "\
Examples:
  lycosa audit --limit 20                     the newest entries
  lycosa audit --tube mail --json";

#[derive(Debug, Args)]
pub(crate) struct PauseArguments {
    /// The tube
    pub(crate) tube: String,
    /// Why, for `lycosa explain` and the audit log
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArguments {
    /// The tube
    pub(crate) tube: String,
    /// Id of a task; without it the tube is explained
    #[arg(value_parser = task_id, allow_negative_numbers = true, conflicts_with = "utube")]
    pub(crate) id: Option<u64>,
    /// Explain this sub-queue (utube, utubettl)
    #[arg(long, value_name = "NAME", alias = "sub-queue")]
    pub(crate) utube: Option<String>,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

#[derive(Debug, Args)]
pub(crate) struct AuditArguments {
    /// Only entries about this tube
    #[arg(long, value_name = "TUBE")]
    pub(crate) tube: Option<String>,
    /// How many at the most, the newest first
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(1..=1000), allow_negative_numbers = true)]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

pub(super) const FIND_EXAMPLES: &str = "\
Examples:
  lycosa find mail --state buried --error 'no such host'
  lycosa find mail --field user.name --equals ann --json
  lycosa find mail --older-than 1h --count";

pub(super) const APPLY_EXAMPLES: &str = "\
Counts the tasks first, and asks; --yes answers. Without a terminal and --yes it changes nothing and ends with exit code 2.
Each task is checked again at the moment of its change; tasks that are put meanwhile are left alone. Ctrl-C leaves the job to the server.

Examples:
  lycosa apply mail kick --error timeout --yes
  lycosa apply mail move --state buried --to dead --reason 'too old' --yes
  lycosa apply mail delete --all --rate 1000 --yes
  lycosa apply mail reschedule --id-from 7 --id-to 7 --delay 10m --pri 0 --yes";

pub(super) const UNDO_EXAMPLES: &str = "\
Examples:
  lycosa undo mail 7                          within an hour after the end of job 7
  lycosa undo mail 7 --yes --reason 'wrong filter'";

pub(super) const JOB_EXAMPLES: &str = "\
Examples:
  lycosa job mail                             the jobs of a tube
  lycosa job mail 7                           how far job 7 is
  lycosa job mail 7 --cancel";

/// What `lycosa apply` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Operation {
    /// Make buried tasks ready
    Kick,
    /// Take taken tasks away from their sessions
    Release,
    /// Make delayed tasks ready now
    Run,
    /// Give ready and delayed tasks another --delay, another --pri, or both (ttl types)
    Reschedule,
    /// Set tasks aside
    Bury,
    /// Remove tasks
    Delete,
    /// Put tasks into the tube --to
    Move,
}

// Tasks by all that a filter can say. (A doc comment would become the help of the command.)
#[derive(Debug, Clone, Args)]
pub(crate) struct TaskFilter {
    /// Every task
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// Only tasks that were put less long ago than this (ttl types)
    #[arg(long, value_name = "TIME", value_parser = span, allow_negative_numbers = true)]
    pub(crate) younger_than: Option<Duration>,
    /// Only this id and larger ones
    #[arg(long, value_name = "ID", value_parser = task_id, allow_negative_numbers = true)]
    pub(crate) id_from: Option<u64>,
    /// Only this id and smaller ones
    #[arg(long, value_name = "ID", value_parser = task_id, allow_negative_numbers = true)]
    pub(crate) id_to: Option<u64>,
    /// Only this priority and larger numbers (ttl types)
    #[arg(long, value_name = "PRI", value_parser = priority, allow_negative_numbers = true)]
    pub(crate) pri_from: Option<u64>,
    /// Only this priority and smaller numbers (ttl types)
    #[arg(long, value_name = "PRI", value_parser = priority, allow_negative_numbers = true)]
    pub(crate) pri_to: Option<u64>,
    /// Only tasks with at least this many attempts
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub(crate) attempts_from: Option<u64>,
    /// Only tasks with at most this many attempts
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub(crate) attempts_to: Option<u64>,
    /// Only tasks whose last failure contains this text
    #[arg(long, value_name = "TEXT")]
    pub(crate) error: Option<String>,
    /// Only tasks whose payload has a value at this path: user.name, lines[1].sku
    #[arg(long, value_name = "PATH")]
    pub(crate) field: Option<String>,
    /// … that equals this value, as JSON or else as text
    #[arg(long, value_name = "VALUE", requires = "field", conflicts_with = "contains")]
    pub(crate) equals: Option<String>,
    /// … that is a string and contains this text
    #[arg(long, value_name = "TEXT", requires = "field")]
    pub(crate) contains: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct FindArguments {
    /// The tube
    pub(crate) tube: String,
    #[command(flatten)]
    pub(crate) filter: TaskFilter,
    /// Print how many tasks match
    #[arg(long)]
    pub(crate) count: bool,
    /// How many at the most
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 100,
        value_parser = positive, allow_negative_numbers = true)]
    pub(crate) limit: u64,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

#[derive(Debug, Args)]
pub(crate) struct ApplyArguments {
    /// The tube
    pub(crate) tube: String,
    /// What to do with each task
    #[arg(value_enum)]
    pub(crate) operation: Operation,
    #[command(flatten)]
    pub(crate) filter: TaskFilter,
    /// With move: the tube to which the tasks go
    #[arg(long, value_name = "TUBE", required_if_eq("operation", "move"))]
    pub(crate) to: Option<String>,
    /// With reschedule: time from the change of a task until it is ready; 0: at once
    #[arg(long, short = 'd', value_name = "TIME", value_parser = span, allow_negative_numbers = true)]
    pub(crate) delay: Option<Duration>,
    /// With reschedule: the new priority, lower first
    #[arg(long, short = 'p', value_name = "PRI", value_parser = priority, allow_negative_numbers = true)]
    pub(crate) pri: Option<u64>,
    /// Changed tasks a second, at most
    #[arg(long, value_name = "COUNT", value_parser = positive, allow_negative_numbers = true)]
    pub(crate) rate: Option<u64>,
    /// Why, for the audit log; with bury also the last failure of the tasks
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Change the tasks without counting them first
    #[arg(long)]
    pub(crate) yes: bool,
    /// Print the job and leave it to the server
    #[arg(long)]
    pub(crate) no_wait: bool,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

#[derive(Debug, Args)]
pub(crate) struct UndoArguments {
    /// The tube
    pub(crate) tube: String,
    /// Id of the job
    pub(crate) job: u64,
    /// Why, for the audit log
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

#[derive(Debug, Args)]
pub(crate) struct JobArguments {
    /// The tube
    pub(crate) tube: String,
    /// Id of a job; without it all jobs of the tube are listed
    pub(crate) id: Option<u64>,
    /// Let the job wait until it is resumed
    #[arg(long, requires = "id", conflicts_with_all = ["resume", "cancel", "rate"])]
    pub(crate) pause: bool,
    /// Let a paused job go on
    #[arg(long, requires = "id", conflicts_with_all = ["cancel", "rate"])]
    pub(crate) resume: bool,
    /// End the job where it is
    #[arg(long, requires = "id", conflicts_with = "rate")]
    pub(crate) cancel: bool,
    /// Changed tasks a second, at most
    #[arg(long, value_name = "COUNT", requires = "id", value_parser = positive, allow_negative_numbers = true)]
    pub(crate) rate: Option<u64>,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}
