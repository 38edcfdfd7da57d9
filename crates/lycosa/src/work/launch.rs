//! The launcher: what becomes the command.
//!
//! A worker starts each command through this binary, `work-run WORKER PROGRAM ARGUMENT…`. The launcher first asks the
//! system to kill it as soon as the worker is gone, however that ends, and makes sure that the worker still lives.
//! Only then it becomes the command, which keeps both its process id and that promise. So no command begins, or goes
//! on, without its worker, even if worker and [guard](super::guard) are killed at once.
//!
//! The promise is about the command's first process; the guard kills all further ones of its group.

use std::env;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};

/// The name of the hidden command.
pub(crate) const COMMAND: &str = "work-run";

/// Stands before the launcher's only line, so that it is no command's.
const MARK: &str = "\0lycosa work-run: ";

/// The exit code of a launcher that could not become the command, as of a shell that finds no program.
const NO_COMMAND: u8 = 127;

/// Characters of the program's name in that line, which has to fit what a worker keeps of standard error.
const SHOWN: usize = 200;

/// The launcher of a command that dies with this process. The thread that spawns it has to live as long as the command.
pub(super) fn command(program: &[String]) -> std::io::Result<Command> {
    // The file of this process, also when another one has taken its name by now.
    let own = Path::new("/proc/self/exe");
    let launcher = if own.exists() { PathBuf::from(own) } else { env::current_exe()? };
    let mut command = Command::new(launcher);
    command.arg(COMMAND).arg(getpid().as_raw_nonzero().to_string()).args(program);
    Ok(command)
}

/// Runs as the launcher; returns only if the command does not begin.
pub(crate) fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let worker = arguments.next().and_then(|worker| Pid::from_raw(worker.to_str()?.parse().ok()?));
    let Some(program) = arguments.next() else { return ExitCode::from(NO_COMMAND) };
    // A system that does not know this leaves it to the guard.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    if worker.is_none() || getppid() != worker {
        return ExitCode::FAILURE;
    }
    let error = Command::new(&program).args(arguments).exec();
    let name: String = program.to_string_lossy().chars().take(SHOWN).collect();
    // In one piece, so that the worker reads it as one.
    let _ = std::io::stderr().write_all(format!("{MARK}cannot run {name:?}: {error}\n").as_bytes());
    ExitCode::from(NO_COMMAND)
}

/// Whether bytes of standard error are the launcher's.
pub(super) fn is_refusal(bytes: &[u8]) -> bool {
    bytes.starts_with(MARK.as_bytes())
}

/// Why the command did not begin, if it did not.
pub(super) fn refusal(exit_code: Option<i32>, tail: &[u8]) -> Option<String> {
    let reason = tail.strip_prefix(MARK.as_bytes()).filter(|_| exit_code == Some(NO_COMMAND.into()))?;
    Some(String::from_utf8_lossy(reason).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_launcher_s_line_says_that_a_command_did_not_begin() {
        let line = format!("{MARK}cannot run \"x\": No such file\n");
        assert_eq!(refusal(Some(127), line.as_bytes()).as_deref(), Some("cannot run \"x\": No such file"));
        assert_eq!(refusal(Some(1), line.as_bytes()), None);
        assert_eq!(refusal(Some(127), b"sh: 1: x: not found"), None);
    }
}
