//! Outcomes of commands, and their exit codes.

use std::process::ExitCode;

use lycosa_client::{Error, Kind};
use lycosa_engine::replay::LoadError;
use lycosa_journal::decision::Category;
use lycosa_journal::directory::DirectoryError;
use lycosa_journal::log::LogError;
use lycosa_journal::recovery::RecoveryError;
use lycosa_journal::snap::SnapshotError;
use lycosa_server::Unclosed;
use lycosa_server::config::{ConfigError, Source};

/// The end of a command that was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Everything was done: exit 0.
    Done,
    /// Part of it was refused, and said so: exit 1.
    Refused,
    /// Two servers were compared and do not hold the same: exit 1.
    Different,
    /// There was no task to have: exit 3.
    NoTask,
    /// The connection broke, and it was said over what: exit 4.
    NoConnection,
    /// Files were looked at and are not sound, and it was said why: exit 65, 66, 74 or 78.
    Unsound(Category),
}

/// Options that do not go together, or not with what they are about: exit 2.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub(crate) String);

const EXIT_FAILED: u8 = 1;
pub(crate) const EXIT_USAGE: u8 = 2;
const EXIT_NO_TASK: u8 = 3;
const EXIT_NO_CONNECTION: u8 = 4;
const EXIT_NO_LEADER: u8 = 5;

/// The exit code of a command; prints what went wrong.
pub(crate) fn exit_code(outcome: anyhow::Result<Outcome>) -> ExitCode {
    match outcome {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Refused | Outcome::Different) => ExitCode::from(EXIT_FAILED),
        Ok(Outcome::NoTask) => ExitCode::from(EXIT_NO_TASK),
        Ok(Outcome::NoConnection) => ExitCode::from(EXIT_NO_CONNECTION),
        Ok(Outcome::Unsound(category)) => ExitCode::from(category.exit_code()),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lycosa: {}", text_of(&error));
            ExitCode::from(code_of(&error))
        }
    }
}

/// The error with its causes. A cause whose text stands in the text before it already is left out.
fn text_of(error: &anyhow::Error) -> String {
    let mut texts: Vec<String> = Vec::new();
    for cause in error.chain().map(ToString::to_string) {
        if texts.last().is_none_or(|text| !text.contains(&cause)) {
            texts.push(cause);
        }
    }
    texts.join(": ")
}

/// The exit code of an error.
pub(crate) fn code_of(error: &anyhow::Error) -> u8 {
    if let Some(category) = error.chain().find_map(category_of) {
        category.exit_code()
    } else if error.is::<Usage>() || is_wrong_flag(error) {
        EXIT_USAGE
    } else if error.chain().any(has_no_leader) {
        EXIT_NO_LEADER
    } else if is_no_connection(error) {
        EXIT_NO_CONNECTION
    } else {
        EXIT_FAILED
    }
}

/// A setting has a wrong value on the command line; in a file or the environment it is no matter of usage.
fn is_wrong_flag(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ConfigError::Value { place: Source::Flag(_), .. }))
}

/// The fault of a data folder or its disk, if that is the cause.
fn category_of(cause: &(dyn std::error::Error + 'static)) -> Option<Category> {
    use std::io::ErrorKind::{NotFound, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    let of_folder = |folder: &DirectoryError| match folder {
        DirectoryError::Locked(_) => Category::Locked,
        DirectoryError::Io { cause, .. } if cause.kind() == NotFound => Category::Missing,
        DirectoryError::Io { .. } => Category::Disk,
    };
    let is_full =
        |cause: &std::io::Error| matches!(cause.kind(), StorageFull | QuotaExceeded | ReadOnlyFilesystem);
    let is_disk = cause.downcast_ref().is_some_and(is_full)
        || matches!(cause.downcast_ref(), Some(LogError::Io { .. } | LogError::Poisoned(_)))
        || matches!(cause.downcast_ref(), Some(SnapshotError::Io { .. }))
        || cause.is::<Unclosed>();
    let found = cause.downcast_ref().map(RecoveryError::category);
    let found = found.or_else(|| cause.downcast_ref().map(LoadError::category));
    let found = found.or_else(|| cause.downcast_ref().map(of_folder));
    found.or_else(|| is_disk.then_some(Category::Disk))
}

/// The reader of our output has had enough.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
}

/// The server runs, and its group has no leader.
fn has_no_leader(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.downcast_ref::<Error>().and_then(Error::kind) == Some(Kind::NoLeader)
}

fn is_no_connection(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|cause| cause.downcast_ref::<Error>()).any(|cause| {
        use Error::{Connect, Disconnected, Greeting, Starting, Timeout, Tls, Unavailable};
        let is_unreached = matches!(cause, Connect { .. } | Tls { .. } | Greeting(_) | Starting(_));
        is_unreached || matches!(cause, Disconnected(_) | Unavailable | Timeout(_))
    })
}
