//! `lycosa user`.

use std::path::PathBuf;

use clap::Subcommand;

use super::AdminArguments;

pub(super) const USER_EXAMPLES: &str = "\
Examples:
  lycosa user add ann --tube mail             may use the tube mail; the password is asked for
  lycosa user list
  lycosa user grant ann --tube crawl";

const ADD_EXAMPLES: &str = "\
Examples:
  lycosa user add ann --tube mail --tube crawl
  lycosa user add boss --role super --password-file boss.secret
  LYCOSA_PASSWORD=$(pwgen 20 1) lycosa user add ann --tube mail";

const LIST_EXAMPLES: &str = "\
Examples:
  lycosa user list
  lycosa user list --json --data-dir /var/lib/lycosa";

const GRANT_EXAMPLES: &str = "\
Examples:
  lycosa user grant ann --tube crawl
  lycosa user grant ann --role replication";

const REVOKE_EXAMPLES: &str = "\
Examples:
  lycosa user revoke ann --tube crawl
  lycosa user revoke ann --tube '*'           what --tube '*' has given; grants on single tubes stay";

const PASSWD_EXAMPLES: &str = "\
Examples:
  lycosa user passwd ann                      asks for the new password
  lycosa user passwd ann --password-file ann.secret";

const DROP_EXAMPLES: &str = "\
Examples:
  lycosa user drop ann";

#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Add a user; the password is read from LYCOSA_PASSWORD, --password-file or the terminal
    #[command(after_help = ADD_EXAMPLES)]
    Add {
        /// Its name
        name: String,
        /// File with the password
        #[arg(long, value_name = "FILE")]
        password_file: Option<PathBuf>,
        /// Role to grant, for example super; may be repeated
        #[arg(long)]
        role: Vec<String>,
        /// Tube that the user may use; may be repeated; '*' is every tube and the right to create and drop
        #[arg(long)]
        tube: Vec<String>,
        #[command(flatten)]
        admin: AdminArguments,
    },
    /// List users with what they may do, and whether they can become admin
    #[command(after_help = LIST_EXAMPLES)]
    List(AdminArguments),
    /// Let a user use tubes or have roles
    #[command(after_help = GRANT_EXAMPLES)]
    Grant {
        /// The user
        name: String,
        /// Role to grant; may be repeated
        #[arg(long, required_unless_present = "tube")]
        role: Vec<String>,
        /// Tube that the user may use; may be repeated; '*' is every tube and the right to create and drop
        #[arg(long)]
        tube: Vec<String>,
        #[command(flatten)]
        admin: AdminArguments,
    },
    /// Take tubes or roles away from a user
    #[command(after_help = REVOKE_EXAMPLES)]
    Revoke {
        /// The user
        name: String,
        /// Role to take away; may be repeated
        #[arg(long, required_unless_present = "tube")]
        role: Vec<String>,
        /// Tube to take away; may be repeated; '*' takes away what --tube '*' has given, not grants on single tubes
        #[arg(long)]
        tube: Vec<String>,
        #[command(flatten)]
        admin: AdminArguments,
    },
    /// Set a user's password
    #[command(after_help = PASSWD_EXAMPLES)]
    Passwd {
        /// The user
        name: String,
        /// File with the password
        #[arg(long, value_name = "FILE")]
        password_file: Option<PathBuf>,
        #[command(flatten)]
        admin: AdminArguments,
    },
    /// Drop a user
    #[command(after_help = DROP_EXAMPLES)]
    Drop {
        /// The user
        name: String,
        #[command(flatten)]
        admin: AdminArguments,
    },
}
