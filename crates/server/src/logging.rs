//! Log lines: for people or as JSON, to standard error, with a filter that SIGHUP may change.

use std::borrow::Cow;
use std::io::IsTerminal;

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt, reload};

use crate::config::LogFormat;

/// Whether a terminal shows the character and does nothing else: it controls neither the terminal nor the direction of
/// text. Line ends and tabs are harmless.
pub fn is_harmless(character: char) -> bool {
    match character {
        '\n' | '\t' => true,
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => false,
        character => !character.is_control(),
    }
}

/// A text for one line of the log: names in it can neither begin another line nor control a terminal.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    let is_plain = |character: char| is_harmless(character) && character != '\n';
    if text.chars().all(is_plain) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_plain(character) {
            shown.push(character);
        } else {
            shown.extend(character.escape_unicode());
        }
    }
    shown.into()
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_begins_no_line_of_the_log() {
        assert_eq!(one_line("tube mail"), "tube mail");
        assert_eq!(one_line("a\n2026 ERROR \u{1b}[2J"), "a\\u{a}2026 ERROR \\u{1b}[2J");
    }
}
