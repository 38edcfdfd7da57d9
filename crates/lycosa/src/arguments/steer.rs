//! Commands that steer a running server: pause, resume, explain, audit.

use clap::Args;

use super::ClientArguments;
use crate::values::task_id;

pub(super) const PAUSE_EXAMPLES: &str = "\
Examples:
  lycosa pause mail --reason 'the relay is down'
  lycosa resume mail";

pub(super) const EXPLAIN_EXAMPLES: &str = "\
Examples:
  lycosa explain mail 7                       why nobody works on task 7, and until when
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
