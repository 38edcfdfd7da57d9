//! `lycosa serve` and `lycosa config`: a flag for every setting.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Args, FromArgMatches};
use lycosa_server::config::{Flags, SETTINGS};

pub(super) const SERVE_EXAMPLES: &str = "\
SIGTERM and Ctrl-C end the server in order: it answers what it has accepted, then closes its journal. A member of a group that leads
hands over to another member first. SIGHUP loads settings and certificates again.

Examples:
  lycosa serve                                        127.0.0.1:3301, data in ./data
  lycosa serve --config /etc/lycosa/lycosa.toml
  lycosa serve --listen 0.0.0.0:3301 --data-dir /var/lib/lycosa --memory-limit 4GiB";

pub(super) const CONFIG_EXAMPLES: &str = "\
Examples:
  lycosa config --config /etc/lycosa/lycosa.toml      what a start would use, and where it comes from
  lycosa config --json | jq -r 'select(.key == \"listen\").value'";

/// Flags of `lycosa serve`: one for every setting.
#[derive(Debug, Clone)]
pub(crate) struct ServeArguments {
    pub(crate) file: Option<PathBuf>,
    pub(crate) flags: Flags,
}

impl Args for ServeArguments {
    fn augment_args(command: clap::Command) -> clap::Command {
        let file = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .env("LYCOSA_CONFIG")
            .value_parser(clap::value_parser!(PathBuf))
            .help("Configuration file [default: lycosa.toml, if it exists]");
        SETTINGS.iter().fold(command.arg(file), |command, setting| {
            let range = setting.range().map(|range| format!(" [{range}]")).unwrap_or_default();
            command.arg(
                Arg::new(setting.key)
                    .long(setting.flag())
                    .value_name("VALUE")
                    .num_args(if setting.default == "false" { 0..=1 } else { 1..=1 })
                    .default_missing_value("true")
                    .help(format!(
                        "{}{range} [default: {}] [env: {}]",
                        setting.help,
                        setting.default,
                        setting.variable()
                    )),
            )
        })
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ServeArguments {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let flags = SETTINGS.iter().filter_map(|setting| {
            let text = matches.get_one::<String>(setting.key)?;
            Some((setting.flag(), text.clone()))
        });
        Ok(ServeArguments { file: matches.get_one::<PathBuf>("config").cloned(), flags: flags.collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArguments {
    #[command(flatten)]
    pub(crate) serve: ServeArguments,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
