//! Log lines: for people or as JSON, to standard error, a file or a command, with a filter that SIGHUP may change.
//!
//! A program names the file or the command (`log` of `box.cfg`, `log.cfg`); without one lines go to standard error. A line
//! that a command does not take at once is dropped: the server never waits for a reader of its log. The newest lines stay in
//! memory too ([`tail`]), for administrators.

mod json;
mod lines;
mod syslog;
pub(crate) mod tail;

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock};

use rustix::fs::OFlags;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;
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

/// The filter of a process that logs for a program, which changes it.
static FILTER: OnceLock<LogHandle> = OnceLock::new();

/// Levels as Tarantool numbers them, in the order of their numbers. Of the server's own lines these are the lines up to `info`:
/// lines of further levels are for developers of the server.
const FILTERS: [&str; 8] =
    ["off", "error", "error", "error", "warn", "info", "info,lua=debug", "info,lua=trace"];

/// For a process that runs a program: its `log_level` and `log_format` are changed by [`set_of_program`].
///
/// # Errors
/// Logging was set up before.
pub fn init_for_program() -> anyhow::Result<()> {
    drop(FILTER.set(init("info", LogFormat::Text)?));
    Ok(())
}

/// From now on the lines of a program's process have at most this level, and are JSON in Tarantool's form or text.
pub(crate) fn set_of_program(level: usize, is_json: bool) {
    if let Some(handle) = FILTER.get() {
        json::switch(is_json);
        // Each of these is a filter.
        drop(handle.set_level(FILTERS[level.min(FILTERS.len() - 1)]));
    }
}

/// Where lines go instead of standard error.
enum Target {
    /// A file, with its name.
    File(PathBuf, File),
    /// The standard input of a command.
    Command(File),
    /// A syslog daemon.
    Syslog(syslog::Syslog),
}

static TARGET: Mutex<Option<Target>> = Mutex::new(None);

fn locked() -> std::sync::MutexGuard<'static, Option<Target>> {
    // A thread that panicked with the lock has at most left a line unfinished.
    TARGET.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn open(path: PathBuf) -> Result<Target, String> {
    let opened = File::options().create(true).append(true).open(&path);
    let file = opened.map_err(|error| format!("cannot open the log file {}: {error}", path.display()))?;
    // The program may change its folder before the file is opened again.
    Ok(Target::File(std::path::absolute(&path).unwrap_or(path), file))
}

/// Starts a command that takes lines from its standard input. It ends when the server does.
fn start(command: &str) -> Result<Target, String> {
    let failed = |error: io::Error| format!("cannot start the command {command:?} for the log: {error}");
    // Ctrl-C is for the server, whose last lines the command is still to take.
    let started =
        Command::new("/bin/sh").args(["-c", command]).stdin(Stdio::piped()).process_group(0).spawn();
    let input = started.map_err(failed)?.stdin.ok_or_else(|| failed(io::ErrorKind::BrokenPipe.into()))?;
    let flags = rustix::fs::fcntl_getfl(&input).map_err(|error| failed(error.into()))?;
    rustix::fs::fcntl_setfl(&input, flags | OFlags::NONBLOCK).map_err(|error| failed(error.into()))?;
    Ok(Target::Command(File::from(OwnedFd::from(input))))
}

/// From now on lines go where `target` says: to a file (a path, with or without `file:` before it), or to a command (`|
/// COMMAND` or `pipe:COMMAND`), or to a daemon (`syslog:OPTIONS`). Nothing, and they go to standard error.
///
/// # Errors
/// The file cannot be opened, the command not be started, or the daemon not be reached.
pub fn write_to(target: &str) -> Result<(), String> {
    let syslog = target.strip_prefix("syslog:").map(syslog::Syslog::open).transpose();
    let syslog = syslog.map_err(|fault| format!("Incorrect value for option 'log': {fault}"))?;
    let command = target.strip_prefix('|').or_else(|| target.strip_prefix("pipe:"));
    let path = target.strip_prefix("file:").unwrap_or(target);
    let opened = match (syslog, command) {
        (Some(daemon), _) => Some(Target::Syslog(daemon)),
        (None, Some(command)) => Some(start(command.trim())?),
        (None, None) if path.is_empty() => None,
        (None, None) => Some(open(PathBuf::from(path))?),
    };
    *locked() = opened;
    Ok(())
}

/// Opens the log file again by its name, after another program has moved it away. A command goes on.
///
/// # Errors
/// It cannot be opened; lines go to the former one.
pub fn reopen() -> Result<(), String> {
    let mut held = locked();
    let Some(Target::File(path, _)) = held.as_ref() else { return Ok(()) };
    let opened = open(path.clone())?;
    *held = Some(opened);
    // A line of the log takes the lock itself.
    drop(held);
    tracing::info!("log file has been reopened");
    Ok(())
}

/// Where lines go.
#[derive(Debug, Clone, Copy)]
struct Lines;

/// Where a line of this level goes.
struct Destination(Level);

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Destination;

    fn make_writer(&'a self) -> Destination {
        Destination(Level::INFO)
    }

    fn make_writer_for(&'a self, line: &Metadata<'_>) -> Destination {
        Destination(*line.level())
    }
}

impl Write for Destination {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        tail::keep(&without_colors(bytes));
        match locked().as_mut() {
            Some(Target::File(_, file)) => file.write_all(&without_colors(bytes))?,
            // A line that is not taken at once, or without a reader, is lost.
            Some(Target::Command(input)) => drop(input.write(&without_colors(bytes))),
            Some(Target::Syslog(daemon)) => daemon.send(self.0, &without_colors(bytes)),
            None => io::stderr().write_all(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A line without the sequences that color it on a terminal.
fn without_colors(bytes: &[u8]) -> Cow<'_, [u8]> {
    const ESCAPE: u8 = 0x1b;
    if !bytes.contains(&ESCAPE) {
        return bytes.into();
    }
    let mut plain = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter();
    while let Some(&byte) = rest.next() {
        if byte == ESCAPE {
            rest.find(|byte| byte.is_ascii_alphabetic());
        } else {
            plain.push(byte);
        }
    }
    plain.into()
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
            let lines = fmt::layer().with_writer(Lines).with_target(false);
            if io::stderr().is_terminal() {
                registry.with(lines.with_ansi(true).map_event_format(json::OrText)).try_init()?;
            } else {
                let lines = lines.with_ansi(false).with_timer(lines::Time).fmt_fields(lines::Fields);
                registry.with(lines.map_event_format(json::OrText)).try_init()?;
            }
        }
        LogFormat::Json => registry.with(fmt::layer().json().with_writer(Lines)).try_init()?,
    }
    Ok(LogHandle(handle))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_gets_no_colors() {
        assert_eq!(&*without_colors(b"plain\n"), b"plain\n");
        assert_eq!(&*without_colors(b"\x1b[2m10:00\x1b[0m \x1b[32m INFO\x1b[0m x\n"), b"10:00  INFO x\n");
    }

    #[test]
    fn a_level_of_a_program_is_a_filter() {
        for filter in FILTERS {
            EnvFilter::try_new(filter).expect(filter);
        }
    }

    #[test]
    fn a_name_begins_no_line_of_the_log() {
        assert_eq!(one_line("tube mail"), "tube mail");
        assert_eq!(one_line("a\n2026 ERROR \u{1b}[2J"), "a\\u{a}2026 ERROR \\u{1b}[2J");
    }
}
