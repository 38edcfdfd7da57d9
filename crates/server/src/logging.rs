//! Log lines: for people or as JSON, to standard error, with a filter that SIGHUP may change.

use std::io::IsTerminal;

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt, reload};

use crate::config::LogFormat;

/// Changes the filter of a running process.
pub struct LogHandle(reload::Handle<EnvFilter, tracing_subscriber::Registry>);

impl LogHandle {
    /// Filters by `level` from now on (`info`, or `info,lycosa_server=debug`).
    ///
    /// # Errors
    /// When `level` is no filter.
    pub fn set_level(&self, level: &str) -> anyhow::Result<()> {
        let filter = EnvFilter::try_new(level)?;
        Ok(self.0.reload(filter)?)
    }
}

/// Sets up logging for the whole process.
///
/// # Errors
/// When `level` is no filter, or logging was set up before.
pub fn init(level: &str, format: LogFormat) -> anyhow::Result<LogHandle> {
    let filter = EnvFilter::try_new(level)?;
    let (filter, handle) = reload::Layer::new(filter);
    let registry = tracing_subscriber::registry().with(filter);
    match format {
        LogFormat::Text => {
            let lines = fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal());
            registry.with(lines.with_target(false)).try_init()?;
        }
        LogFormat::Json => registry.with(fmt::layer().json().with_writer(std::io::stderr)).try_init()?,
    }
    Ok(LogHandle(handle))
}
