//! `lycosa tube`.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::ClientArguments;
use crate::values::{lasting, priority};

pub(super) const TUBE_EXAMPLES: &str = "\
Examples:
  lycosa tube create mail                     a fifottl tube
  lycosa tube list
  lycosa tube drop mail";

const CREATE_EXAMPLES: &str = "\
Examples:
  lycosa tube create mail                     fifottl: priority, delay, time to live, time to run
  lycosa tube create crawl --type utubettl --ttr 60
  lycosa tube create jobs --type limfifottl --capacity 10000 --if-not-exists";

const LIST_EXAMPLES: &str = "\
Examples:
  lycosa tube list
  lycosa tube list --json | jq -r .tube";

const DROP_EXAMPLES: &str = "\
Asks first, with the number of tasks. Without a terminal it drops a tube of at most 1000 tasks, and needs --yes for more.

Examples:
  lycosa tube drop mail
  lycosa tube drop mail --yes                 in a script";

const TRUNCATE_EXAMPLES: &str = "\
Asks first, with the number of tasks. Without a terminal it empties a tube of at most 1000 tasks, and needs --yes for
more. Ids begin at 0 again.

Examples:
  lycosa tube truncate mail
  lycosa export mail -o mail.jsonl && lycosa tube truncate mail --yes";

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

#[derive(Debug, Subcommand)]
pub(crate) enum TubeCommand {
    /// Create a tube
    #[command(after_help = CREATE_EXAMPLES)]
    Create(TubeCreateArguments),
    /// List the tubes that the user may see, with their types and tasks by state
    #[command(after_help = LIST_EXAMPLES)]
    List(ClientArguments),
    /// Drop a tube and its tasks; refused while tasks are taken or calls wait
    #[command(after_help = DROP_EXAMPLES)]
    Drop(TubeEndArguments),
    /// Remove all tasks of a tube
    #[command(after_help = TRUNCATE_EXAMPLES)]
    Truncate(TubeEndArguments),
    /// Count tasks by state and calls by kind, of one tube or of all: `lycosa stats` has both
    #[command(hide = true)]
    Stats {
        /// The tube; all of them if absent
        tube: Option<String>,
        #[command(flatten)]
        client: ClientArguments,
    },
}

#[derive(Debug, Args)]
pub(crate) struct TubeEndArguments {
    /// The tube
    pub(crate) tube: String,
    /// Do not ask. Without a terminal to ask on, a tube of more than 1000 tasks needs it
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
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
    #[arg(long, value_name = "TIME", value_parser = lasting, allow_negative_numbers = true)]
    pub(crate) ttl: Option<Duration>,
    /// Time that a task may be held (ttl types)
    #[arg(long, value_name = "TIME", value_parser = lasting, allow_negative_numbers = true)]
    pub(crate) ttr: Option<Duration>,
    /// Priority of tasks, lower first (ttl types)
    #[arg(long, value_parser = priority, allow_negative_numbers = true)]
    pub(crate) pri: Option<u64>,
    /// How many tasks fit (limfifottl)
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub(crate) capacity: Option<u64>,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}
