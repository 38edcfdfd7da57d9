//! `lycosa metrics`.

use clap::{Args, ValueEnum};

use super::ClientArguments;

pub(super) const METRICS_EXAMPLES: &str = "\
Examples:
  lycosa metrics                      what GET /metrics answers, but for process_*
  lycosa metrics --tube mail          one tube
  lycosa metrics --format graphite | nc -q1 graphite 2003";

/// A form of the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MetricsFormat {
    /// Prometheus' text format
    Prometheus,
    /// The same, with the names of Tarantool's Grafana board
    Tarantool,
    /// Lines of Graphite
    Graphite,
}

#[derive(Debug, Args)]
pub(crate) struct MetricsArguments {
    /// Only this tube
    #[arg(long)]
    pub(crate) tube: Option<String>,
    /// Tubes with labels of their own, the busiest ones; all further ones are summed
    #[arg(long, value_name = "COUNT", default_value_t = lycosa_metrics::DEFAULT_TUBES)]
    pub(crate) tubes: usize,
    /// The form
    #[arg(long, value_enum, default_value = "prometheus")]
    pub(crate) format: MetricsFormat,
    /// Beginning of Graphite's keys
    #[arg(long, default_value = "queue.stats")]
    pub(crate) prefix: String,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}
