//! The command line: every subcommand, flag and help text, by noun.

mod cluster;
mod compare;
mod connection;
mod expiration;
mod file;
mod follow;
mod metrics;
mod role;
mod serve;
mod status;
mod steer;
mod task;
mod token;
mod tube;
mod user;

use clap::{CommandFactory, Parser, Subcommand};

pub(crate) use cluster::{ClusterCommand, ClusterInitArguments};
pub(crate) use compare::CompareArguments;
pub(crate) use connection::{
    AdminArguments, ClientArguments, ConsoleArguments, ServerArguments, SessionArguments,
};
pub(crate) use expiration::{ExpirationCommand, ExpirationStartArguments};
pub(crate) use file::{
    BackupArguments, CatArguments, CheckArguments, ExportArguments, ImportArguments, RestoreArguments,
    RowType,
};
pub(crate) use follow::FollowArguments;
pub(crate) use metrics::{MetricsArguments, MetricsFormat};
pub(crate) use role::{DemoteArguments, PromoteArguments};
pub(crate) use serve::ServeArguments;
pub(crate) use status::{HistorySpan, SessionCommand, StatsArguments, TopArguments};
pub(crate) use steer::{
    ApplyArguments, AuditArguments, ExplainArguments, FindArguments, JobArguments, Operation, PauseArguments,
    TaskFilter, UndoArguments,
};
pub(crate) use task::{
    AckArguments, BuryArguments, Choice, ChosenArguments, FilterArguments, KickArguments, ListArguments,
    NamedTasks, PayloadType, PeekArguments, PutArguments, ReleaseArguments, TakeArguments, TaskState,
    TouchArguments, WorkArguments,
};
pub(crate) use token::TokenCommand;
pub(crate) use tube::{TubeCommand, TubeCreateArguments, TubeEndArguments};
pub(crate) use user::UserCommand;

const EXAMPLES: &str = "\
Examples:
  lycosa                                    start the server: 127.0.0.1:3301, data in ./data
  lycosa tube create mail --type fifottl    make a tube
  lycosa put mail hello --delay 60          put a task
  lycosa work mail --jobs 4 -- ./handler    work on tasks, payload on standard input
  lycosa stats                              how the server and its tubes are
  lycosa init.lua one two                   run a Lua program; - is standard input
  lycosa -e TEXT -l MODULE -i init.lua      a text and a module before it, a console after it

Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 no task (take, peek), 4 no connection.";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  lycosa completions bash > /etc/bash_completion.d/lycosa
  lycosa completions zsh > ~/.zfunc/_lycosa
  lycosa completions fish > ~/.config/fish/completions/lycosa.fish";

/// The commands as `lycosa --help` groups them, by their names.
pub(crate) const GROUPS: [(&str, &[&str]); 8] = [
    ("Server", &["serve", "config", "reload", "checkpoint", "backup", "restore", "user", "token"]),
    ("Tubes and spaces", &["tube", "export", "import", "expiration"]),
    ("Tasks", &["put", "take", "ack", "release", "bury", "kick", "delete", "touch", "peek", "list", "work"]),
    ("Steering", &["find", "apply", "undo", "job", "pause", "resume", "explain", "audit"]),
    ("Looking", &["ping", "top", "stats", "metrics", "session", "cat", "check", "console"]),
    ("A group of servers", &["cluster"]),
    ("Replicas and other servers", &["promote", "demote", "follow", "compare"]),
    ("Tools", &["bench", "completions", "man"]),
];

/// The whole command line, with the commands in [`GROUPS`].
pub(crate) fn command() -> clap::Command {
    use std::fmt::Write;

    let command = Arguments::command();
    let header = command.get_styles().get_header();
    let literal = command.get_styles().get_literal();
    let mut list = String::new();
    for (heading, names) in GROUPS {
        // Writing to a String cannot fail.
        let _ = writeln!(list, "{header}{heading}:{header:#}");
        for name in names {
            let about = command.find_subcommand(name).and_then(clap::Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(list, "  {literal}{name:12}{literal:#} {about}");
        }
        list.push('\n');
    }
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}{header}Options:{header:#}\n{{options}}{{after-help}}"
    );
    command.help_template(clap::builder::StyledStr::from(template))
}

/// A durable in-memory task-queue server and its command line.
#[derive(Debug, Parser)]
#[command(name = "lycosa", version, about, after_help = EXAMPLES, max_term_width = 110)]
pub(crate) struct Arguments {
    /// Colors in tables, help and errors: auto is on a terminal without NO_COLOR
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: clap::ColorChoice,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the server (the default)
    ///
    /// Settings come from flags, then LYCOSA_* variables, then lycosa.toml, then defaults.
    #[command(after_help = serve::SERVE_EXAMPLES)]
    Serve(ServeArguments),
    /// Print the effective settings and where each comes from
    #[command(after_help = serve::CONFIG_EXAMPLES)]
    Config(serve::ConfigArguments),
    /// Create, list, drop, truncate tubes
    #[command(subcommand, after_help = tube::TUBE_EXAMPLES)]
    Tube(TubeCommand),
    /// Delete tuples on their deadline: start, list, stop tasks; their statistics
    #[command(subcommand, after_help = expiration::EXPIRATION_EXAMPLES)]
    Expiration(ExpirationCommand),
    /// Put tasks into a tube
    #[command(after_help = task::PUT_EXAMPLES)]
    Put(PutArguments),
    /// Take tasks from a tube
    #[command(after_help = task::TAKE_EXAMPLES)]
    Take(TakeArguments),
    /// Acknowledge taken tasks: they are done and gone
    ///
    /// Several ids are one batch: all of the tasks are acknowledged, or none.
    #[command(after_help = task::ACK_EXAMPLES)]
    Ack(AckArguments),
    /// Give taken tasks back
    ///
    /// Several ids are one batch: all of the tasks are given back, or none.
    #[command(after_help = task::RELEASE_EXAMPLES)]
    Release(ReleaseArguments),
    /// Put tasks aside until they are kicked
    #[command(after_help = task::BURY_EXAMPLES)]
    Bury(BuryArguments),
    /// Make buried tasks ready again
    #[command(after_help = task::KICK_EXAMPLES)]
    Kick(KickArguments),
    /// Show everything that is known of tasks, without taking them
    #[command(after_help = task::PEEK_EXAMPLES)]
    Peek(PeekArguments),
    /// List tasks by state, sub-queue and age, without taking them
    #[command(after_help = task::LIST_EXAMPLES)]
    List(ListArguments),
    /// Delete tasks in any state
    #[command(after_help = task::CHOICE_EXAMPLES)]
    Delete(ChosenArguments),
    /// Prolong taken tasks: more time to live and to run
    #[command(after_help = task::TOUCH_EXAMPLES)]
    Touch(TouchArguments),
    /// Run a command for every task of a tube
    #[command(after_help = task::WORK_EXAMPLES)]
    Work(WorkArguments),
    /// Kills what a worker that was killed has left behind; `lycosa work` runs it
    #[command(name = crate::work::guard::COMMAND, hide = true)]
    WorkGuard,
    /// Find tasks by state, ids, sub-queue, priority, age, attempts, error and payload
    #[command(after_help = steer::FIND_EXAMPLES)]
    Find(Box<FindArguments>),
    /// Kick, release, run, bury, delete or move all tasks that match
    #[command(after_help = steer::APPLY_EXAMPLES)]
    Apply(Box<ApplyArguments>),
    /// Bring back what a job has changed
    #[command(after_help = steer::UNDO_EXAMPLES)]
    Undo(UndoArguments),
    /// Show the jobs of a tube; pause, resume, slow down or cancel one
    #[command(after_help = steer::JOB_EXAMPLES)]
    Job(JobArguments),
    /// Let a tube hand out no tasks, until it is resumed
    ///
    /// Takes wait as in an empty tube. Puts, acks, delays, ttl and ttr go on. The pause survives a restart.
    #[command(after_help = steer::PAUSE_EXAMPLES)]
    Pause(PauseArguments),
    /// Let a paused tube hand out tasks again
    #[command(after_help = steer::PAUSE_EXAMPLES)]
    Resume(PauseArguments),
    /// Say why a task, a sub-queue or a tube is not worked on, and until when
    #[command(after_help = steer::EXPLAIN_EXAMPLES)]
    Explain(ExplainArguments),
    /// Show who steered what, and why
    #[command(after_help = steer::AUDIT_EXAMPLES)]
    Audit(AuditArguments),
    /// Show how the server and its tubes are
    #[command(after_help = status::STATS_EXAMPLES)]
    Stats(StatsArguments),
    /// Watch the server on this terminal: issues, tubes, tasks, sessions; and act
    #[command(after_help = status::TOP_EXAMPLES)]
    Top(TopArguments),
    /// Print everything that is measured, for monitors
    #[command(after_help = metrics::METRICS_EXAMPLES)]
    Metrics(MetricsArguments),
    /// Show the sessions of the queue, their connections and the tasks that they hold
    #[command(subcommand, after_help = status::SESSION_EXAMPLES)]
    Session(SessionCommand),
    /// Check that the server responds, and how fast
    #[command(after_help = status::PING_EXAMPLES)]
    Ping(ClientArguments),
    /// Type Lua: here, or at a server
    ///
    /// Without an address the statements run in this process. At an address they run in the server that listens there: as
    /// EVAL, which the user must be allowed, or over the text protocol of console.listen.
    #[command(after_help = connection::CONSOLE_EXAMPLES)]
    Console(ConsoleArguments),
    /// Add, list, change and drop users (on the server's machine)
    #[command(subcommand, after_help = user::USER_EXAMPLES)]
    User(UserCommand),
    /// Make, list and revoke tokens for HTTP (on the server's machine)
    #[command(subcommand, after_help = token::TOKEN_EXAMPLES)]
    Token(TokenCommand),
    /// Write all data into a snapshot and remove old files (on the server's machine)
    ///
    /// Waits until the snapshot is complete; requests go on meanwhile.
    #[command(after_help = status::CHECKPOINT_EXAMPLES)]
    Checkpoint(AdminArguments),
    /// Copy the data folder while the server runs, and verify the copy (on the server's machine)
    #[command(after_help = file::BACKUP_EXAMPLES)]
    Backup(BackupArguments),
    /// Put a backup into a new data folder, and verify it
    #[command(after_help = file::RESTORE_EXAMPLES)]
    Restore(RestoreArguments),
    /// Load the Lua program of a running server again (on the server's machine)
    ///
    /// Connections, waiting takes, owned and delayed tasks stay. If the program cannot be loaded the former one goes on.
    #[command(after_help = status::RELOAD_EXAMPLES)]
    Reload(AdminArguments),
    /// Let a replica take writes: its queue starts, with the tasks and sessions that there are
    #[command(after_help = role::ROLE_EXAMPLES)]
    Promote(PromoteArguments),
    /// Let a master take no more writes, so that a replica can take over
    #[command(after_help = role::ROLE_EXAMPLES)]
    Demote(DemoteArguments),
    /// Start a server here that follows a master, a Tarantool 2.x or a Lycosa, as its read-only replica
    ///
    /// It is `lycosa serve --replication MASTER --read-only true`: it joins with all data, serves reads, and takes no
    /// writes until `lycosa promote`. Every setting of `lycosa serve` is a flag here too.
    #[command(after_help = follow::FOLLOW_EXAMPLES, mut_arg("data_dir", |flag| flag.visible_alias("data")))]
    Follow(Box<FollowArguments>),
    /// Let servers act as one: begin a group, add and remove members, see who leads
    #[command(subcommand, after_help = cluster::CLUSTER_EXAMPLES)]
    Cluster(ClusterCommand),
    /// Compare what two servers hold, space by space, at the same vclock
    ///
    /// Waits until both have the same vclock, reads all spaces page by page and digests them: count, and SHA-1 of the
    /// tuples in the order of the primary key. A space that differs is read again if rows were written meanwhile.
    #[command(after_help = compare::COMPARE_EXAMPLES, mut_arg("address", |flag| flag.hide(true)))]
    Compare(CompareArguments),
    /// Measure how fast a server is, and compare it with other queues
    Bench(Box<lycosa_bench::Arguments>),
    /// Write tubes and their tasks as JSON lines
    #[command(after_help = file::EXPORT_EXAMPLES)]
    Export(ExportArguments),
    /// Make tubes and tasks of JSON lines
    #[command(after_help = file::IMPORT_EXAMPLES)]
    Import(ImportArguments),
    /// Print the rows of .xlog and .snap files
    #[command(after_help = file::CAT_EXAMPLES)]
    Cat(CatArguments),
    /// Verify the files in a data folder, load the data and print their digest
    #[command(after_help = file::CHECK_EXAMPLES)]
    Check(CheckArguments),
    /// Write man pages into a folder: one for lycosa and one for each command
    #[command(after_help = "Examples:\n  lycosa man /usr/local/share/man/man1")]
    Man {
        /// The folder; created if missing
        folder: std::path::PathBuf,
    },
    /// Print a completion script for a shell
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the names that the last of these words may become; the scripts of `lycosa completions` run it
    #[command(hide = true)]
    CompleteNames {
        /// The words of the command line up to the cursor, "lycosa" first
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}
