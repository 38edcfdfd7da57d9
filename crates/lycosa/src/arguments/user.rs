//! `lycosa user`.

use std::path::PathBuf;

use clap::Subcommand;

use super::AdminArguments;

#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Add a user; the password is read from LYCOSA_PASSWORD, --password-file or the terminal
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
    /// List users with what they may do
    List {
        #[command(flatten)]
        admin: AdminArguments,
    },
    /// Let a user use tubes or have roles
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
    /// Set a user's password
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
    Drop {
        /// The user
        name: String,
        #[command(flatten)]
        admin: AdminArguments,
    },
}
