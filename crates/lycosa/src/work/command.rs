//! One run of the command: the payload goes in, the exit code and the end of standard error come out.

use std::io::Write;
use std::os::fd::AsFd;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use lycosa_client::Task;
use lycosa_client::worker::{Failure, Job, StopHandle};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr, Command};

use super::State;
use super::guard::Guard;
use super::launch;
use crate::payload;
use crate::session::SECRETS;

/// Bytes of standard error that are kept for the reason of a failure.
const TAIL: usize = 512;

/// How long the rest of standard error is waited for when the command has ended: one of its children may hold it open.
const STDERR_LIMIT: Duration = Duration::from_secs(1);

/// How long a command that has timed out may take to end after SIGTERM, before SIGKILL.
const TERM_LIMIT: Duration = Duration::from_secs(5);

/// How commands are run.
pub(super) struct Commands {
    /// The program and its arguments.
    pub(super) command: Vec<String>,
    pub(super) tube: String,
    pub(super) timeout: Option<Duration>,
    /// Whether standard output is the worker's, so that commands write to standard error instead.
    pub(super) stdout_is_ours: bool,
    pub(super) guard: Guard,
    pub(super) stop: StopHandle,
    /// Why the program cannot be run at all.
    pub(super) cannot_run: OnceLock<String>,
}

/// The process group of a running command. Its drop kills the rest of the group, unless the command has
/// ended before.
struct Group<'a> {
    leader: Pid,
    guard: &'a Guard,
    has_ended: bool,
}

impl<'a> Group<'a> {
    fn new(child: &Child, guard: &'a Guard) -> Option<Self> {
        let leader = Pid::from_raw(child.id()?.try_into().ok()?)?;
        guard.watch(leader);
        Some(Self { leader, guard, has_ended: false })
    }

    /// A group that is gone needs no signal.
    fn signal(&self, signal: Signal) {
        let _ = kill_process_group(self.leader, signal);
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.signal(Signal::KILL);
        }
        self.guard.forget(self.leader);
    }
}

impl Commands {
    /// Runs the command for a task.
    pub(super) async fn handle(&self, job: &Job, state: &State) -> Result<(), Failure> {
        let mut child = match self.spawn(job) {
            Ok(child) => child,
            Err(error) => {
                return self.give_up(format!("cannot run {:?}: {error}", self.command[0])).await;
            }
        };
        let Some(mut group) = Group::new(&child, &self.guard) else {
            return Err(Failure::retry(
                "the command ended before the worker knew its process id, so its exit code is unknown",
            ));
        };
        let tail = Arc::new(Mutex::new(Vec::new()));
        let reading = child.stderr.take().map(|stderr| tokio::spawn(pass_on(stderr, Arc::clone(&tail))));
        let feeding = feed(&mut child, &job.task);
        let waiting = async {
            let ((), status) = tokio::join!(feeding, child.wait());
            status
        };
        tokio::pin!(waiting);
        let (status, timed_out) = tokio::select! {
            status = &mut waiting => (status, false),
            () = sleep(self.timeout) => {
                group.signal(Signal::TERM);
                let ended = tokio::time::timeout(TERM_LIMIT, &mut waiting).await;
                // What ignores SIGTERM, and what the command has left behind.
                group.signal(Signal::KILL);
                match ended {
                    Ok(status) => (status, true),
                    Err(_) => (waiting.await, true),
                }
            }
        };
        group.has_ended = true;
        let status =
            status.map_err(|error| Failure::retry(format_args!("cannot wait for the command: {error}")))?;
        if let Some(reading) = reading {
            let _ = tokio::time::timeout(STDERR_LIMIT, reading).await;
        }
        let tail = std::mem::take(&mut *tail.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(reason) = launch::refusal(status.code(), &tail) {
            return self.give_up(reason).await;
        }
        state.exits().insert(job.task.id, status);
        if status.success() && !timed_out {
            return Ok(());
        }
        let what = match self.timeout.filter(|_| timed_out) {
            Some(limit) => format!("timed out after {limit:?}"),
            None => describe(status),
        };
        Err(Failure::retry(with_tail(&what, &tail)))
    }

    /// The command cannot be run, and no task will fare better: tasks are given back, as it is no failure of theirs.
    async fn give_up(&self, reason: String) -> Result<(), Failure> {
        let _ = self.cannot_run.set(reason);
        self.stop.abort();
        std::future::pending().await
    }

    fn spawn(&self, job: &Job) -> std::io::Result<Child> {
        let mut command = Command::from(launch::command(&self.command)?);
        command
            .env("LYCOSA_TASK_ID", job.task.id.to_string())
            .env("LYCOSA_TUBE", &self.tube)
            .env("LYCOSA_ATTEMPT", job.attempt.to_string())
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        for secret in SECRETS {
            command.env_remove(secret);
        }
        if self.stdout_is_ours {
            command.stdout(std::io::stderr().as_fd().try_clone_to_owned()?);
        }
        command.spawn()
    }
}

async fn sleep(limit: Option<Duration>) {
    match limit {
        Some(limit) => tokio::time::sleep(limit).await,
        None => std::future::pending().await,
    }
}

/// How a command ended, in the words of a shell's user.
fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// The reason of a failure: what happened, and the last that the command said.
fn with_tail(what: &str, tail: &[u8]) -> String {
    let text = String::from_utf8_lossy(tail);
    let text = text.trim();
    if text.is_empty() { what.to_owned() } else { format!("{what}: {text}") }
}

/// Copies standard error to the worker's own, and keeps its end.
async fn pass_on(mut stderr: ChildStderr, tail: Arc<Mutex<Vec<u8>>>) {
    let mut buffer = [0; 4096];
    loop {
        let count = match stderr.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(count) => count,
        };
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        if !(tail.is_empty() && launch::is_refusal(&buffer[..count])) {
            // A closed standard error is no reason to end the work.
            let _ = std::io::stderr().write_all(&buffer[..count]);
        }
        tail.extend_from_slice(&buffer[..count]);
        let excess = tail.len().saturating_sub(TAIL);
        tail.drain(..excess);
    }
}

/// Writes the payload to the command's standard input. A command that does not read it is its own affair.
fn feed(child: &mut Child, task: &Task) -> impl Future<Output = ()> + use<> {
    let stdin = child.stdin.take();
    let mut bytes = Vec::new();
    match task.data.value() {
        Ok(value) => payload::write(&mut bytes, &value).expect("a Vec takes everything"),
        Err(_) => bytes.extend_from_slice(task.data.encoded()),
    }
    async move {
        if let Some(mut stdin) = stdin {
            let _ = stdin.write_all(&bytes).await;
            let _ = stdin.shutdown().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn a_failure_says_how_the_command_ended_and_what_it_said_last() {
        assert_eq!(describe(ExitStatus::from_raw(3 << 8)), "exit code 3");
        assert_eq!(describe(ExitStatus::from_raw(9)), "killed by signal 9");
        assert_eq!(with_tail("exit code 3", b""), "exit code 3");
        assert_eq!(with_tail("exit code 3", b"no such host\n"), "exit code 3: no such host");
        assert_eq!(with_tail("exit code 3", b"\xa9t\xc3\xa9\n"), "exit code 3: \u{fffd}t\u{e9}");
    }
}
