//! `lycosa follow`.

use std::time::Duration;

use clap::Args;

use super::serve::ServeArguments;
use crate::values::span;

pub(super) const FOLLOW_EXAMPLES: &str = "\
The password is taken from the address, from LYCOSA_PASSWORD, or asked for. The user needs the role `replication` there.

Leaving a Tarantool:
  lycosa follow tarantool://repl@10.0.0.1:3301 --data /var/lib/lycosa --listen 10.0.0.2:3301
  lycosa compare repl@10.0.0.1:3301 repl@10.0.0.2:3301
  lycosa follow tarantool://repl@10.0.0.1:3301 --data /var/lib/lycosa --shadow
                                                   what the first seconds as the master would do; changes nothing
  box.cfg{read_only = true}                        in the console of the Tarantool
  lycosa promote --data-dir /var/lib/lycosa        from now on this server takes the writes";

#[derive(Debug, Args)]
pub(crate) struct FollowArguments {
    /// The master: [tarantool://|lycosa://|tls://][USER[:PASSWORD]@]HOST[:PORT]
    #[arg(value_name = "MASTER")]
    pub(crate) master: String,
    /// Rehearse: say what the first seconds as the master would do, and end; nothing changes but that the data folder
    /// follows the master. A server that runs in the data folder is asked; else one runs until it is in sync
    #[arg(long)]
    pub(crate) shadow: bool,
    /// How far --shadow looks ahead
    #[arg(long, default_value = "10", value_name = "TIME", value_parser = span, requires = "shadow")]
    pub(crate) horizon: Duration,
    /// Print the rehearsal as JSON
    #[arg(long, requires = "shadow")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) serve: ServeArguments,
}
