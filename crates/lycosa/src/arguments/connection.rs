//! Flags of a connection: the server's address, TLS, the account.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::values::{address, lasting};

/// How to reach a server.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ClientArguments {
    /// Address of the server: HOST, HOST:PORT, or with TLS tls://HOST:PORT; of several, A,B, the one that takes writes
    #[arg(long, short = 'a', env = "LYCOSA_ADDRESS", default_value = "127.0.0.1:3301", global = true,
        value_parser = address)]
    pub(crate) address: String,
    /// User to authenticate as; guest if absent
    #[arg(long, short = 'u', env = "LYCOSA_USER", global = true)]
    pub(crate) user: Option<String>,
    /// File with the password; otherwise it is taken from LYCOSA_PASSWORD
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) password_file: Option<PathBuf>,
    /// With tls://: PEM file with the certificates to trust, an authority's or the server's own
    #[arg(long, value_name = "FILE", env = "LYCOSA_TLS_CA", global = true)]
    pub(crate) tls_ca: Option<PathBuf>,
    /// With tls://: PEM file with a client certificate, for servers that want one
    #[arg(long, value_name = "FILE", env = "LYCOSA_TLS_CERTIFICATE", global = true)]
    pub(crate) tls_certificate: Option<PathBuf>,
    /// With tls://: PEM file with the private key of the client certificate
    #[arg(long, value_name = "FILE", env = "LYCOSA_TLS_KEY", global = true)]
    pub(crate) tls_key: Option<PathBuf>,
    /// With tls://: name that the server's certificate is for, if it is not the host of the address
    #[arg(long, value_name = "NAME", env = "LYCOSA_TLS_SERVER_NAME", global = true)]
    pub(crate) tls_server_name: Option<String>,
    /// Time to wait for the connection and for each reply
    #[arg(long, default_value = "10", value_name = "TIME", value_parser = lasting, allow_negative_numbers = true, global = true)]
    pub(crate) request_timeout: Duration,
    /// Print JSON, one object a line
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// The queue session in whose name a command acts.
#[derive(Debug, Clone, Args)]
pub(crate) struct SessionArguments {
    /// Queue session to act in: 32 hexadecimal digits, as `take --json` prints them
    #[arg(long, value_name = "HEX")]
    pub(crate) session: Option<String>,
}

/// How a command that may take an administrator's rights reaches the server.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServerArguments {
    /// The server's data folder: act as administrator over the socket in it, instead of --address
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

/// How the administrator reaches the server.
#[derive(Debug, Clone, Args)]
pub(crate) struct AdminArguments {
    /// The server's data folder, where its administrator's socket is
    #[arg(long, env = "LYCOSA_DATA_DIR", default_value = "data")]
    pub(crate) data_dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) const CONSOLE_EXAMPLES: &str = "\
Examples:
  lycosa console                            Lua in this process
  lycosa console 127.0.0.1:3301             at a server, as guest
  lycosa console -u admin 127.0.0.1:3301    as a user; the password comes from LYCOSA_PASSWORD
  lycosa console data/admin.sock            as admin, on the server's machine
  lycosa console /run/queue.control         a unix socket of console.listen
  echo 'queue.statistics()' | lycosa console 127.0.0.1:3301";

/// Whose console it is.
#[derive(Debug, Clone, Args)]
pub(crate) struct ConsoleArguments {
    /// HOST:PORT, USER:PASSWORD@HOST:PORT, or the path of a unix socket; this process if absent
    pub(crate) address: Option<String>,
    /// User to authenticate as; guest if absent
    #[arg(long, short = 'u', env = "LYCOSA_USER")]
    pub(crate) user: Option<String>,
    /// File with the password; otherwise it is taken from LYCOSA_PASSWORD
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
}
