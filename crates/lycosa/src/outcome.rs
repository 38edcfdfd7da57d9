//! How a command ended, as scripts see it.

use std::io::Write;
use std::process::ExitCode;

use lycosa_client::Error;
use lycosa_journal::decision::Category;
use lycosa_journal::directory::DirectoryError;
use lycosa_journal::recovery::RecoveryError;

/// The end of a command that was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Everything was done: exit 0.
    Done,
    /// Part of it was refused, and said so: exit 1.
    Refused,
    /// There was no task to have: exit 3.
    NoTask,
    /// The connection broke, and it was said over what: exit 4.
    NoConnection,
    /// Files were looked at and are not sound, and it was said why: exit 65, 66, 74 or 78.
    Unsound(Category),
}

const EXIT_FAILED: u8 = 1;
const EXIT_NO_TASK: u8 = 3;
const EXIT_NO_CONNECTION: u8 = 4;

/// The exit code of a command; prints what went wrong.
pub(crate) fn exit_code(outcome: anyhow::Result<Outcome>) -> ExitCode {
    match outcome {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Refused) => ExitCode::from(EXIT_FAILED),
        Ok(Outcome::NoTask) => ExitCode::from(EXIT_NO_TASK),
        Ok(Outcome::NoConnection) => ExitCode::from(EXIT_NO_CONNECTION),
        Ok(Outcome::Unsound(category)) => ExitCode::from(category.exit_code()),
        Err(error) => {
            if is_broken_pipe(&error) {
                return ExitCode::SUCCESS;
            }
            let _ = writeln!(std::io::stderr(), "lycosa: {}", text_of(&error));
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

fn code_of(error: &anyhow::Error) -> u8 {
    let recovery = error.chain().find_map(|cause| cause.downcast_ref::<RecoveryError>());
    match recovery {
        Some(recovery) => recovery.category().exit_code(),
        None if error
            .chain()
            .any(|cause| matches!(cause.downcast_ref(), Some(DirectoryError::Locked(_)))) =>
        {
            Category::Locked.exit_code()
        }
        None if is_no_connection(error) => EXIT_NO_CONNECTION,
        None => EXIT_FAILED,
    }
}

/// The reader of our output has had enough.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
}

fn is_no_connection(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|cause| cause.downcast_ref::<Error>()).any(|cause| {
        matches!(
            cause,
            Error::Connect { .. }
                | Error::Disconnected(_)
                | Error::Greeting(_)
                | Error::Unavailable
                | Error::Timeout(_)
        )
    })
}
