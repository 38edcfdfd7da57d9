//! `lycosa token`.

use std::time::Duration;

use clap::{Subcommand, ValueEnum};

use super::AdminArguments;
use crate::values::span;

pub(super) const TOKEN_EXAMPLES: &str = "\
Examples:
  lycosa token add worker --role operator --tube mail     prints the secret, once
  lycosa token list
  lycosa token revoke worker                              its requests are refused from now on";

const ADD_EXAMPLES: &str = "\
Examples:
  lycosa token add worker --role operator --tube mail --tube 'crawl-*'
  lycosa token add page --role viewer --ttl 8h
  TOKEN=$(lycosa token add ci --role administrator --ttl 1h)";

const LIST_EXAMPLES: &str = "\
Examples:
  lycosa token list
  lycosa token list --json --data-dir /var/lib/lycosa";

const REVOKE_EXAMPLES: &str = "\
Examples:
  lycosa token revoke worker";

/// What a token may do.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum TokenRole {
    /// Looks at tubes and tasks
    Viewer,
    /// Puts, takes, finishes and steers tasks too
    Operator,
    /// Creates and drops tubes, changes the server's role, makes tokens too
    Administrator,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token and print its secret, which is shown once
    #[command(after_help = ADD_EXAMPLES)]
    Add {
        /// Its name
        name: String,
        /// What it may do; each role may do what the ones before it may
        #[arg(long, value_enum)]
        role: TokenRole,
        /// Tube that it is for; may be repeated; 'mail-*' is all that begin so, '*' every tube and the server itself
        #[arg(long, default_value = "*")]
        tube: Vec<String>,
        /// How long it lives: seconds, or a time such as 90s, 8h or 30d [default: for ever]
        #[arg(long, value_name = "TIME", value_parser = span)]
        ttl: Option<Duration>,
        #[command(flatten)]
        admin: AdminArguments,
    },
    /// List tokens with their roles, tubes and ends
    #[command(after_help = LIST_EXAMPLES)]
    List(AdminArguments),
    /// End a token: its requests and waiting calls are refused from now on
    #[command(after_help = REVOKE_EXAMPLES)]
    Revoke {
        /// Its name
        name: String,
        #[command(flatten)]
        admin: AdminArguments,
    },
}
