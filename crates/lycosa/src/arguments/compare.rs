//! `lycosa compare`.

use std::time::Duration;

use clap::Args;

use super::connection::ClientArguments;
use crate::values::span;

pub(super) const COMPARE_EXAMPLES: &str = "\
Read are all spaces that both users may see: those of users, and the system's spaces with definitions, users, grants
and members of the replica set. Left out is what replicas do not have in common: temporary and local spaces, vinyl, views,
session settings, and the values of sequences (_sequence_data, which a Tarantool does not show whole). A role `replication` or `super` may read everything.

A password is taken from the address, from --password-file, from LYCOSA_PASSWORD, or asked for.

Examples:
  lycosa compare 10.0.0.1:3301 10.0.0.2:3301
  lycosa compare tarantool://repl@10.0.0.1:3301 repl@10.0.0.2:3301 --timeout 30s --json

Exit codes: 0 the same, 1 different or failed (the text says which), 2 wrong usage, 4 no connection.";

#[derive(Debug, Args)]
pub(crate) struct CompareArguments {
    /// One server: [tarantool://|lycosa://|tls://][USER[:PASSWORD]@]HOST[:PORT]; without a user as --user says
    #[arg(value_name = "A")]
    pub(crate) a: String,
    /// The other one
    #[arg(value_name = "B")]
    pub(crate) b: String,
    /// Time to wait for the same vclock, and for spaces that differ to stand still
    #[arg(long, default_value = "10", value_name = "TIME", value_parser = span)]
    pub(crate) timeout: Duration,
    /// Compare although the vclocks differ: a difference may then be what one has not received yet
    #[arg(long)]
    pub(crate) any_vclock: bool,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}
