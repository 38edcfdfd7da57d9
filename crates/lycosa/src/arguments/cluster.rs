//! `lycosa cluster`: a group of servers that act as one.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::connection::AdminArguments;

pub(super) const CLUSTER_EXAMPLES: &str = "\
A group of three, to try it on this machine:
  lycosa cluster demo

On the first machine, where a server may have data already:
  head -c 32 /dev/urandom | base64 > secret; chmod 600 secret
  lycosa cluster init --member-address 10.0.0.1:3311
  lycosa serve --cluster-listen 10.0.0.1:3311 --cluster-secret-file secret --listen 10.0.0.1:3301

On each further machine, with the same secret and an empty data folder:
  lycosa serve --cluster-listen 10.0.0.2:3311 --cluster-secret-file secret --listen 10.0.0.2:3301

On a member's machine:
  lycosa cluster add 10.0.0.2:3311
  lycosa cluster status

A member that leads hands over before it ends by SIGTERM or Ctrl-C, so a machine is stopped without further commands. After
`lycosa cluster transfer` it goes on as a follower.";

/// The port of a member's address that has none.
const DEFAULT_PORT: u16 = 3311;

/// The address of a member, with its port.
fn member_address(text: &str) -> Result<String, String> {
    let text = text.trim();
    let (scheme, rest) = match text.strip_prefix("tls://") {
        Some(rest) => ("tls://", rest),
        None => ("", text),
    };
    let expected = || {
        format!(
            "expected [tls://]HOST:PORT as in the member's cluster.listen, such as 10.0.0.2:{DEFAULT_PORT}"
        )
    };
    let (host, port) = match rest.rsplit_once(':') {
        // The colons of an IPv6 address.
        Some((_, last)) if last.ends_with(']') => (rest, None),
        Some((host, port)) => (host, Some(port)),
        None => (rest, None),
    };
    if host.is_empty() || host.contains(['/', '@', ' ']) || host.contains(':') && !host.ends_with(']') {
        return Err(expected());
    }
    match port.map(str::parse::<u16>) {
        None => Ok(format!("{scheme}{host}:{DEFAULT_PORT}")),
        Some(Ok(port)) if port > 0 => Ok(format!("{scheme}{host}:{port}")),
        Some(_) => Err(expected()),
    }
}

#[cfg(test)]
mod tests {
    use super::member_address;

    #[test]
    fn a_member_s_address_has_a_port() {
        for (text, address) in [
            ("10.0.0.2", "10.0.0.2:3311"),
            ("queue-2.example:4000", "queue-2.example:4000"),
            ("tls://queue-2", "tls://queue-2:3311"),
            ("[::1]", "[::1]:3311"),
            ("[::1]:7", "[::1]:7"),
        ] {
            assert_eq!(member_address(text), Ok(address.to_owned()));
        }
        for text in ["", ":3311", "a:", "a:0", "a:65536", "a:b", "::1", "http://a", "user@a", "a b"] {
            assert!(member_address(text).is_err_and(|error| error.contains("3311")), "{text}");
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Make the data folder of a stopped server that of node 1 of a new group
    #[command(after_help = "Example:\n  lycosa cluster init --member-address 10.0.0.1:3311")]
    Init(ClusterInitArguments),
    /// Take in an empty server: it gets all data, then becomes a voter
    ///
    /// The command ends once a majority has confirmed the addition, or after 10 seconds with an error.
    #[command(after_help = "Example:\n  lycosa cluster add 10.0.0.2:3311")]
    Add {
        /// Its cluster.listen, [tls://]HOST:PORT; without a port, 3311
        #[arg(value_parser = member_address)]
        address: String,
        #[command(flatten)]
        at: AdminArguments,
    },
    /// Remove a member; stop it afterwards, its data are of no use to it any more
    ///
    /// The command ends once a majority has confirmed the removal, or after 10 seconds with an error.
    #[command(after_help = "Example:\n  lycosa cluster remove 3")]
    Remove {
        /// Its number, as `lycosa cluster status` shows it
        node: u64,
        #[command(flatten)]
        at: AdminArguments,
    },
    /// Show who leads, the members, and how far each is
    #[command(after_help = "Example:\n  lycosa cluster status --json")]
    Status(AdminArguments),
    /// Let another member lead, and wait until it does: before a machine is stopped, for example
    #[command(after_help = "Example:\n  lycosa cluster transfer 2")]
    Transfer {
        /// Its number; without one, the member whose log is the longest
        node: Option<u64>,
        #[command(flatten)]
        at: AdminArguments,
    },
    /// Make the data folder of the stopped last member that of a single server
    #[command(after_help = "Example:\n  lycosa cluster leave --data-dir data")]
    Leave(AdminArguments),
    /// Go on with one member's data after the majority was lost for good
    #[command(after_help = "Example:\n  lycosa cluster recover --force")]
    Recover(ClusterRecoverArguments),
    /// Run a group of three on this machine, in temporary folders, to kill one and see
    #[command(after_help = "Example:\n  lycosa cluster demo")]
    Demo,
}

#[derive(Debug, Args)]
pub(crate) struct ClusterInitArguments {
    /// Where the other members will reach this one, [tls://]HOST:PORT, without a port 3311; cluster.listen if absent
    #[arg(long, value_name = "ADDRESS", value_parser = member_address)]
    pub(crate) member_address: Option<String>,
    /// Configuration file [default: lycosa.toml, if it exists]
    #[arg(long, value_name = "FILE", env = "LYCOSA_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) at: AdminArguments,
}

#[derive(Debug, Args)]
pub(crate) struct ClusterRecoverArguments {
    /// Yes: the other members never come back. What they have confirmed and this one does not have is lost
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) at: ClusterInitArguments,
}
