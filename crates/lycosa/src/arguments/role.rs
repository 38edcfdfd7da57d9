//! `lycosa promote` and `lycosa demote`.

use std::time::Duration;

use clap::Args;

use super::connection::ServerArguments;
use crate::values::span;

pub(super) const ROLE_EXAMPLES: &str = "\
A planned change of the master:
  lycosa demote --data-dir data                    on the old master; prints the vclock to wait for
  lycosa promote --data-dir data --after '{1: 400}'
                                                   on the replica: waits until it has everything, then takes writes

If the old master is dead:
  lycosa promote --data-dir data --force           on the replica with the greatest vclock

Without --force the command does nothing where an instance would not hear of the promotion, and says what to do. What a dead
master had acknowledged and not sent is on its disk only.

A rehearsal that changes nothing: lycosa promote --data-dir data --shadow";

#[derive(Debug, Args)]
pub(crate) struct PromoteArguments {
    /// Wait first until the server has everything up to this vclock, as `lycosa demote` prints it
    #[arg(long, value_name = "VCLOCK")]
    pub(crate) after: Option<String>,
    /// Time to wait for that, and for the queue to run
    #[arg(long, default_value = "60", value_name = "TIME", value_parser = span)]
    pub(crate) timeout: Duration,
    /// Rehearse: say what the first seconds as the master would do, and change nothing
    #[arg(long, conflicts_with = "after")]
    pub(crate) shadow: bool,
    /// Promote although instances of the replica set do not hear of it: a dead master, for example
    #[arg(long, conflicts_with = "shadow")]
    pub(crate) force: bool,
    /// How far --shadow looks ahead
    #[arg(long, default_value = "10", value_name = "TIME", value_parser = span, requires = "shadow")]
    pub(crate) horizon: Duration,
    #[command(flatten)]
    pub(crate) server: ServerArguments,
}

#[derive(Debug, Args)]
pub(crate) struct DemoteArguments {
    #[command(flatten)]
    pub(crate) server: ServerArguments,
}
