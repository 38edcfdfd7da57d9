//! `lycosa expiration`.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::ServerArguments;
use crate::values::span;

pub(super) const EXPIRATION_EXAMPLES: &str = "\
Examples:
  lycosa expiration start old-mail emails --field 3 --dry-run     how many tuples would go
  lycosa expiration start old-mail emails --field 3               delete them, now and from now on
  lycosa expiration start tokens tokens --field deadline --unit ms --archive-tube expired
                                                                  make them tasks of a tube instead
  lycosa expiration stats                                         what the tasks do, and how late they are
  lycosa expiration stop old-mail";

#[derive(Debug, Subcommand)]
pub(crate) enum ExpirationCommand {
    /// Start a task
    ///
    /// If an index is ordered by the field the task sleeps until the next deadline. Otherwise it passes over the space,
    /// --scan-time seconds for a pass.
    #[command(after_help = EXPIRATION_EXAMPLES)]
    Start(Box<ExpirationStartArguments>),
    /// List the tasks
    #[command(after_help = "Examples:\n  lycosa expiration list")]
    List(ServerArguments),
    /// Show what tasks have done, and how late they are
    #[command(after_help = "Examples:\n  lycosa expiration stats old-mail")]
    Stats {
        /// The task; all of them if absent
        name: Option<String>,
        #[command(flatten)]
        access: ServerArguments,
    },
    /// Stop a task
    #[command(after_help = "Examples:\n  lycosa expiration stop old-mail")]
    Stop {
        /// The task
        name: String,
        /// A task that does not exist is no error
        #[arg(long)]
        if_exists: bool,
        #[command(flatten)]
        access: ServerArguments,
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
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    pub(crate) scan_size: Option<u32>,
    /// Seconds that a pass over a space takes that has no index ordered by the field [default: 3600]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) scan_time: Option<u64>,
    /// Tuples that one transaction looks at under backlog, at most [default: 10000]
    #[arg(long, value_name = "COUNT")]
    pub(crate) budget_rows: Option<u32>,
    /// Microseconds for which one transaction may hold the loop, up to 800 [default: 400]
    #[arg(long, value_name = "MICROSECONDS")]
    pub(crate) budget_us: Option<u32>,
    /// Percent of the loop's time that the task may take under backlog [default: 45]
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
    /// Start nothing: count the tuples that have expired by now
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Time to wait for the end of a dry run
    #[arg(long, default_value = "1h", value_name = "TIME", value_parser = span, requires = "dry_run")]
    pub(crate) dry_run_timeout: Duration,
    #[command(flatten)]
    pub(crate) access: ServerArguments,
}
