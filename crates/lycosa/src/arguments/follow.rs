//! `lycosa follow`.

use clap::Args;

use super::serve::ServeArguments;

pub(super) const FOLLOW_EXAMPLES: &str = "\
The password is taken from the address, from LYCOSA_PASSWORD, or asked for. The user needs the role `replication` there.

Leaving a Tarantool:
  lycosa follow tarantool://repl@10.0.0.1:3301 --data /var/lib/lycosa --listen 10.0.0.2:3301
  lycosa compare repl@10.0.0.1:3301 repl@10.0.0.2:3301
  box.cfg{read_only = true}                        in the console of the Tarantool
  lycosa promote --data-dir /var/lib/lycosa        from now on this server takes the writes";

#[derive(Debug, Args)]
pub(crate) struct FollowArguments {
    /// The master: [tarantool://|lycosa://|tls://][USER[:PASSWORD]@]HOST[:PORT]
    #[arg(value_name = "MASTER")]
    pub(crate) master: String,
    #[command(flatten)]
    pub(crate) serve: ServeArguments,
}
