//! Programs that the chores run: shown while they run, kept for counting, errors with the command in them.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::param::clock_ticks_per_second;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::{compiler, top};

thread_local! {
    /// What the lines of this thread's programs begin with; nothing while it is empty.
    static LABEL: Cell<&'static str> = const { Cell::new("") };
    /// Processor time of this thread's programs since the last [`take_processor_time`].
    static PROCESSOR: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// The processor time of the programs that this thread has run and shown since the last call, with the time of the processes
/// that these programs began and waited for.
pub(crate) fn take_processor_time() -> Duration {
    PROCESSOR.take()
}

/// The lines of programs that this thread runs begin with `label` from now on, so that steps beside each other can be told
/// apart.
pub(crate) fn label(label: &'static str) {
    LABEL.set(label);
}

/// A program with its arguments, run at the top of the repository.
#[derive(Debug)]
pub(crate) struct Program {
    command: Command,
}

impl Program {
    pub(crate) fn new(program: impl Into<OsString>) -> Self {
        let mut command = Command::new(program.into());
        command.current_dir(top()).stdin(Stdio::null());
        std::env::vars_os().map(|(name, _)| name).filter(|name| is_setting(name)).for_each(|name| {
            command.env_remove(name);
        });
        Self { command }
    }

    /// The cargo that runs this.
    pub(crate) fn cargo() -> Self {
        Self::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
    }

    /// The cargo of the suite's builds. Its [compiler](compiler) lints a crate of the workspace while it compiles the crate: a run of
    /// Clippy alone would read all crates once more. Nothing is kept for an incremental build. A plain `cargo build` shares the
    /// crates of others with these builds, and builds the crates of the workspace once more.
    pub(crate) fn linting_cargo() -> Self {
        let variables = compiler::variables();
        let cargo = Self::cargo().variable("CARGO_INCREMENTAL", "0");
        variables.into_iter().fold(cargo, |cargo, (name, value)| cargo.variable(name, value))
    }

    pub(crate) fn arguments(mut self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.command.args(arguments.into_iter().map(Into::into));
        self
    }

    pub(crate) fn variable(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.command.env(name, value.into());
        self
    }

    pub(crate) fn folder(mut self, folder: &Path) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// Runs it with its output on ours, with the thread's label if there is one.
    pub(crate) fn run(mut self) -> Result<()> {
        if !LABEL.get().is_empty() {
            return self.watched()?.1;
        }
        let shown = self.shown();
        let status = self.command.status().with_context(|| format!("cannot run `{shown}`"))?;
        if !status.success() {
            bail!("`{shown}` failed: {status}");
        }
        Ok(())
    }

    /// Whether it starts and succeeds; its output is not shown.
    pub(crate) fn succeeds(mut self) -> bool {
        let status = self.command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    }

    /// Runs it and gives what it wrote to standard output.
    pub(crate) fn output(mut self) -> Result<String> {
        let shown = self.shown();
        let child = self.command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn();
        let mut child = child.with_context(|| format!("cannot run `{shown}`"))?;
        let mut output = Vec::new();
        let read = child.stdout.take().map_or(Ok(0), |mut pipe| pipe.read_to_end(&mut output));
        let status = wait(&mut child).with_context(|| format!("cannot wait for `{shown}`"))?;
        read.with_context(|| format!("cannot read what `{shown}` writes"))?;
        if !status.success() {
            bail!("`{shown}` failed: {status}");
        }
        String::from_utf8(output).with_context(|| format!("`{shown}` wrote something that is not UTF-8"))
    }

    /// Runs it and gives what it wrote to standard error; that is shown only if it fails.
    pub(crate) fn errors(mut self) -> Result<String> {
        let shown = self.shown();
        let output = self.command.output().with_context(|| format!("cannot run `{shown}`"))?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            eprintln!("{errors}");
            bail!("`{shown}` failed: {}", output.status);
        }
        Ok(errors)
    }

    /// Runs it, shows each line as it comes, and gives all lines and whether it succeeded.
    pub(crate) fn watched(mut self) -> Result<(String, Result<()>)> {
        let shown = self.shown();
        let spawned = self.command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.with_context(|| format!("cannot run `{shown}`"))?;
        let label = LABEL.get();
        let stdout = child.stdout.take().map(|pipe| thread::spawn(move || show(pipe, label)));
        let stderr = child.stderr.take().map(|pipe| thread::spawn(move || show(pipe, label)));
        let mut lines = String::new();
        for reader in [stdout, stderr].into_iter().flatten() {
            lines += &reader.join().expect("a reading thread does not panic");
        }
        let status = wait(&mut child).with_context(|| format!("cannot wait for `{shown}`"))?;
        let outcome =
            if status.success() { Ok(()) } else { Err(anyhow::anyhow!("`{shown}` failed: {status}")) };
        Ok((lines, outcome))
    }

    fn shown(&self) -> String {
        let mut shown = self.command.get_program().to_string_lossy().into_owned();
        for argument in self.command.get_args() {
            shown.push(' ');
            shown.push_str(&argument.to_string_lossy());
        }
        shown
    }
}

/// Waits for the end of a program, and adds its processor time to the thread's.
fn wait(child: &mut Child) -> io::Result<ExitStatus> {
    PROCESSOR.set(PROCESSOR.get() + processor_time(child).unwrap_or_default());
    child.wait()
}

/// Waits for the end of a program and reads its processor time, which the kernel forgets with the [`Child::wait`] that follows.
fn processor_time(child: &Child) -> Option<Duration> {
    let pid = Pid::from_child(child);
    waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).ok()?;
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    Some(own_time(&stat)? + children_time(&stat)?)
}

/// The processor time of a process by its line of `/proc/PID/stat`: utime and stime.
fn own_time(stat: &str) -> Option<Duration> {
    ticks(stat, 11)
}

/// The processor time of children that a process has waited for, by its line of `/proc/PID/stat`: cutime and cstime.
pub(crate) fn children_time(stat: &str) -> Option<Duration> {
    ticks(stat, 13)
}

/// The sum of two fields behind the program's name, which stands in parentheses and may hold blanks.
fn ticks(stat: &str, first: usize) -> Option<Duration> {
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks = fields.split_whitespace().skip(first).take(2).map(|ticks| ticks.parse::<u64>().ok());
    let ticks = ticks.sum::<Option<u64>>()?;
    Some(Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64))
}

/// Whether a variable is a setting of the server. Chores keep such variables of a developer's shell from the servers that
/// they start; `LYCOSA_TEST_*` are settings of the tests.
fn is_setting(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with("LYCOSA_") && !name.starts_with("LYCOSA_TEST_"))
}

fn show(pipe: impl Read, label: &str) -> String {
    let separator = if label.is_empty() { "" } else { " | " };
    let mut kept = String::new();
    let mut pipe = BufReader::new(pipe);
    let mut line = Vec::new();
    while pipe.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
        let text = String::from_utf8_lossy(&line);
        print!("{label}{separator}{text}");
        kept.push_str(&text);
        line.clear();
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_the_server_are_told_from_those_of_tests() {
        let kept = ["LYCOSA_TEST_UPDATE", "PATH", "MY_LYCOSA_LISTEN"];
        assert!(is_setting(OsStr::new("LYCOSA_LISTEN")));
        assert!(!kept.into_iter().any(|name| is_setting(OsStr::new(name))));
    }

    #[test]
    fn processor_time_is_read_behind_any_name() {
        let line = "77 (a (b) c) Z 1 77 77 0 -1 4194304 90 80 0 0 12 3 400 50 20 0 1 0 9 0 0";
        let (own, children) = (own_time(line).unwrap(), children_time(line).unwrap());
        assert_eq!(own * 30, children);
        assert_eq!(own_time("77 (cut"), None);
    }

    #[test]
    fn a_program_that_computes_takes_processor_time() {
        take_processor_time();
        let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        Program::new("sh").arguments(["-c", script]).watched().unwrap().1.unwrap();
        assert!(take_processor_time() > Duration::ZERO);
        assert_eq!(take_processor_time(), Duration::ZERO);
    }
}
