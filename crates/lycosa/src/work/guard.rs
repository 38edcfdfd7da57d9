//! The guard: a small process that kills the commands of a worker that was killed.
//!
//! A worker that ends by SIGKILL can do nothing about its commands. They would go on while the server gives their tasks
//! to another worker, so that a task would run twice at a time. The guard is this binary with the hidden command
//! `work-guard`. The worker tells it each process group through a pipe; the pipe's end is the worker's end, for any
//! reason, and then the guard kills the remaining groups.

use std::collections::HashSet;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::signal::unix::{SignalKind, signal};

use crate::outcome::Outcome;
use crate::session::{SECRETS, runtime};

/// The name of the hidden command.
pub(crate) const COMMAND: &str = "work-guard";

/// The worker's end of the pipe.
pub(super) struct Guard {
    pipe: Mutex<Option<ChildStdin>>,
    process: Mutex<Child>,
}

impl Guard {
    /// Starts the guard's process.
    pub(super) fn start() -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot find the program of this process")?;
        let mut command = Command::new(&program);
        for secret in SECRETS {
            command.env_remove(secret);
        }
        let mut process = command
            .arg(COMMAND)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot run {}", program.display()))?;
        let pipe = process.stdin.take();
        Ok(Self { pipe: Mutex::new(pipe), process: Mutex::new(process) })
    }

    /// From now on the group dies with the worker.
    pub(super) fn watch(&self, group: Pid) {
        self.tell(format_args!("+{}\n", group.as_raw_nonzero()));
    }

    /// The group has ended; its number may soon be another's.
    pub(super) fn forget(&self, group: Pid) {
        self.tell(format_args!("-{}\n", group.as_raw_nonzero()));
    }

    /// A guard that was killed is missed only if the worker is, too.
    fn tell(&self, text: std::fmt::Arguments<'_>) {
        if let Some(pipe) = self.pipe.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            let _ = pipe.write_all(text.to_string().as_bytes());
        }
    }
}

/// The guard ends before the worker does, so that no process is left behind.
impl Drop for Guard {
    fn drop(&mut self) {
        self.pipe.lock().unwrap_or_else(PoisonError::into_inner).take();
        let _ = self.process.lock().unwrap_or_else(PoisonError::into_inner).wait();
    }
}

/// Runs as the guard: reads groups until the worker is gone.
pub(crate) fn run() -> anyhow::Result<Outcome> {
    let runtime = runtime()?;
    {
        // A handler in place of the default: a signal to the worker's whole control group must not end the guard first.
        let _context = runtime.enter();
        for kind in [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()] {
            drop(signal(kind)?);
        }
    }
    let groups = read_groups(BufReader::new(io::stdin().lock()));
    for group in groups {
        // A group that is gone needs no signal.
        let _ = kill_process_group(group, Signal::KILL);
    }
    Ok(Outcome::Done)
}

/// Reads `+GROUP` and `-GROUP` lines to the end; the groups that are left.
fn read_groups(input: impl BufRead) -> HashSet<Pid> {
    let mut groups = HashSet::new();
    for line in input.lines().map_while(Result::ok) {
        let group = |text: &str| text.parse().ok().filter(|&pid: &i32| pid > 1).and_then(Pid::from_raw);
        if let Some(group) = line.strip_prefix('+').and_then(group) {
            groups.insert(group);
        } else if let Some(group) = line.strip_prefix('-').and_then(group) {
            groups.remove(&group);
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_that_were_not_forgotten_are_left() {
        let left = read_groups(&b"+100\n+200\n-100\nnonsense\n+1\n+0\n+-5\n+300"[..]);
        let mut left: Vec<i32> = left.into_iter().map(|group| group.as_raw_nonzero().get()).collect();
        left.sort_unstable();
        assert_eq!(left, [200, 300]);
    }
}
