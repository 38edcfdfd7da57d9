//! `lycosa stats` and `lycosa session`: the state of the server, and its sessions.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::{AdminArguments, ClientArguments, ServerArguments};
use crate::values::{pause, positive, span};

pub(super) const STATS_EXAMPLES: &str = "\
Examples:
  lycosa stats                        the server, then the tubes, the largest backlog first
  lycosa stats --data-dir data        the same as administrator, on the server's machine
  lycosa stats mail                   one tube: tasks by state, calls by kind
  lycosa stats --watch                tasks a second in and out, every 2 seconds, until Ctrl-C
  lycosa stats --watch=10s --json     one object for each look
  lycosa stats --history              the last hour as curves
  lycosa stats mail --history=day --svg mail.svg";

pub(super) const TOP_EXAMPLES: &str = "\
Examples:
  lycosa top                          ? shows the keys
  lycosa top mail --interval 5s       begins at a tube
  lycosa top --once                   one screen as text
  lycosa top --json | jq .issues      one status for scripts";

pub(super) const SESSION_EXAMPLES: &str = "\
Examples:
  lycosa session list --data-dir data
                                      as administrator: every session, of every user
  lycosa session list                 every session: user, addresses, tasks in hand
  lycosa session list mail --older-than 10m
  lycosa session release 17 --reason 'stuck'        its tasks are ready again; it stays connected
  lycosa session disconnect 17 --reason 'stuck'";

pub(super) const PING_EXAMPLES: &str = "\
Examples:
  lycosa ping
  lycosa ping --address queue-1:3301 --request-timeout 1 || echo down";

pub(super) const CHECKPOINT_EXAMPLES: &str = "\
Examples:
  lycosa checkpoint --data-dir /var/lib/lycosa
  lycosa checkpoint --json | jq .checkpoint.last";

pub(super) const RELOAD_EXAMPLES: &str = "\
Examples:
  lycosa reload --data-dir /var/lib/lycosa";

/// The part of the history that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum HistorySpan {
    /// By ten seconds
    Hour,
    /// By five minutes
    Day,
}

#[derive(Debug, Args)]
pub(crate) struct StatsArguments {
    /// Only this tube: its tasks by state and its calls by kind
    #[arg(conflicts_with = "watch")]
    pub(crate) tube: Option<String>,
    /// Look again and again, at this distance, and show tasks a second
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "2",
        value_parser = pause)]
    pub(crate) watch: Option<Duration>,
    /// With --watch: end after this many looks
    #[arg(long, short = 'n', value_name = "COUNT", requires = "watch",
        value_parser = positive, allow_negative_numbers = true)]
    pub(crate) looks: Option<u64>,
    /// Show the last hour, or day, as curves: puts, takes and acks a second, tasks by state
    #[arg(long, value_name = "SPAN", num_args = 0..=1, require_equals = true, default_missing_value = "hour",
        conflicts_with = "watch")]
    pub(crate) history: Option<HistorySpan>,
    /// With --history: draw the curves into this file too
    #[arg(long, value_name = "FILE", requires = "history")]
    pub(crate) svg: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) server: ServerArguments,
}

#[derive(Debug, Args)]
pub(crate) struct TopArguments {
    /// Begin at this tube
    pub(crate) tube: Option<String>,
    /// Print one screen as text, with the curves of the last hour, and end
    #[arg(long)]
    pub(crate) once: bool,
    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value = "1", value_parser = pause)]
    pub(crate) interval: Duration,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// List queue sessions: users, addresses, and the tasks that each holds
    #[command(after_help = SESSION_EXAMPLES)]
    List {
        /// Only sessions that hold tasks of this tube
        tube: Option<String>,
        /// Only sessions that took a task longer ago than this and still hold it
        #[arg(long, value_name = "TIME", value_parser = span)]
        older_than: Option<Duration>,
        #[command(flatten)]
        server: ServerArguments,
    },
    /// Release all tasks that a session holds; the session goes on (on the server's machine)
    #[command(after_help = SESSION_EXAMPLES)]
    Release {
        /// A connection of the session: its number, as `lycosa session list` shows it
        connection: u64,
        /// Why, for the audit log
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        #[command(flatten)]
        admin: AdminArguments,
    },
    /// Close a client's connection at once; its session ends as if the client had gone (on the server's machine)
    #[command(after_help = SESSION_EXAMPLES)]
    Disconnect {
        /// The connection's number, as `lycosa session list` shows it
        connection: u64,
        /// Why, for the audit log
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        #[command(flatten)]
        admin: AdminArguments,
    },
}
