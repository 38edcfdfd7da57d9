//! A server of a test's own, and the binary run as a person runs it.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part of it; a test fails by panicking")]

use std::fmt::Debug;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value as Json;
use tempfile::TempDir;

use crate::addresses::free_address;

/// How long anything may take: a debug build beside many others.
pub(crate) const LIMIT: Duration = Duration::from_secs(180);

/// The binary without any configuration from outside.
pub(crate) fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lycosa"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LYCOSA_")) {
        command.env_remove(name);
    }
    // Servers of tests that run at the same time would meet at the default port.
    command.env("LYCOSA_HTTP_LISTEN", "");
    command.current_dir(std::env::temp_dir()).stdin(Stdio::null());
    command
}

/// How a run ended and what it printed.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// The lines of standard output as JSON.
    pub(crate) fn lines(&self) -> Vec<Json> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Runs a command to its end with `input` on its standard input.
pub(crate) fn finish(mut command: Command, input: &str) -> Run {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.as_bytes().to_vec();
    // It may end before it has read everything.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    Run {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs the binary without a server of the test's own.
pub(crate) fn lycosa(arguments: &[&str]) -> Run {
    let mut command = command();
    command.args(arguments);
    finish(command, "")
}

/// Whether the server of a data folder greets its administrator: its start is over then. It listens before that, and the socket of
/// a server that was killed stays.
fn is_served(data: &Path) -> bool {
    let Ok(mut admin) = UnixStream::connect(data.join("admin.sock")) else { return false };
    admin.set_read_timeout(Some(LIMIT)).unwrap();
    admin.read_exact(&mut [0; 128]).is_ok()
}

/// Waits until `is_true`.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_true() {
        assert!(begun.elapsed() < LIMIT, "waited in vain: {what}");
        sleep(Duration::from_millis(10));
    }
}

/// Waits until `measure` gives a value that `is_enough`, as long as the value goes on to change.
#[track_caller]
pub(crate) fn wait_for_progress<T: PartialEq + Debug>(
    what: &str,
    mut measure: impl FnMut() -> T,
    is_enough: impl Fn(&T) -> bool,
) {
    let (mut last, mut since) = (measure(), Instant::now());
    while !is_enough(&last) {
        assert!(since.elapsed() < LIMIT, "waited in vain: {what}: {last:?}");
        sleep(Duration::from_millis(10));
        let now = measure();
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
}

/// A server on a free port with its data in a temporary folder.
pub(crate) struct Server {
    pub(crate) data: TempDir,
    pub(crate) address: String,
    child: Child,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::configured(&[])
    }

    /// The same with flags of `lycosa serve`.
    pub(crate) fn configured(flags: &[&str]) -> Self {
        Self::over(tempfile::tempdir().unwrap(), flags)
    }

    /// A server with these variables in its environment.
    pub(crate) fn with_environment(variables: &[(&str, &str)]) -> Self {
        Self::started(tempfile::tempdir().unwrap(), &[], variables, &command())
    }

    /// A server that may have `limit` files open.
    pub(crate) fn with_files(limit: u32) -> Self {
        let lycosa = command();
        let mut limited = Command::new("sh");
        limited.args(["-c", &format!("ulimit -n {limit}; exec \"$0\" \"$@\"")]).arg(lycosa.get_program());
        for (name, value) in lycosa.get_envs() {
            match value {
                Some(value) => limited.env(name, value),
                None => limited.env_remove(name),
            };
        }
        Self::started(tempfile::tempdir().unwrap(), &[], &[], &limited)
    }

    /// A server on this data folder.
    pub(crate) fn over(data: TempDir, flags: &[&str]) -> Self {
        Self::started(data, flags, &[], &command())
    }

    fn started(data: TempDir, flags: &[&str], variables: &[(&str, &str)], binary: &Command) -> Self {
        let given = binary.get_args().map(ToOwned::to_owned).collect::<Vec<_>>();
        for _ in 0..4 {
            let address = free_address().to_string();
            let mut command = Command::new(binary.get_program());
            for (name, value) in binary.get_envs() {
                match value {
                    Some(value) => command.env(name, value),
                    None => command.env_remove(name),
                };
            }
            command.args(&given).current_dir(std::env::temp_dir()).stdin(Stdio::null());
            let log = std::fs::File::create(data.path().join("test.log")).unwrap();
            command.args(["serve", "--listen", &address, "--data-dir"]).arg(data.path()).args(flags);
            command.envs(variables.iter().copied());
            let mut child = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
            let begun = Instant::now();
            while child.try_wait().unwrap().is_none() {
                if TcpStream::connect(&address).is_ok() && is_served(data.path()) {
                    return Self { data, address, child };
                }
                assert!(begun.elapsed() < LIMIT, "the server does not listen");
                sleep(Duration::from_millis(10));
            }
            // Another program took the port between our look and the start.
        }
        panic!("the server does not start: {}", log_in(data.path()));
    }

    /// Kills the server and starts another on its data.
    pub(crate) fn restart(mut self, flags: &[&str]) -> Self {
        // It may have ended already.
        let _ = self.child.kill();
        self.child.wait().unwrap();
        let data = std::mem::replace(&mut self.data, tempfile::tempdir().unwrap());
        drop(self);
        Self::over(data, flags)
    }

    /// What the server has logged.
    pub(crate) fn log(&self) -> String {
        log_in(self.data.path())
    }

    /// Waits for a line of the log with `text`: a line may come after the answer that it is about.
    #[track_caller]
    pub(crate) fn expect_log(&self, text: &str) {
        let begun = Instant::now();
        while !self.log().contains(text) {
            assert!(begun.elapsed() < LIMIT, "the log lacks {text:?}: {}", self.log());
            sleep(Duration::from_millis(10));
        }
    }

    /// Sends the server a signal.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    /// Bytes of memory that the system has given to the server's process.
    pub(crate) fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    /// Waits until the server has ended without a signal; its exit code.
    #[track_caller]
    pub(crate) fn wait_for_end(&mut self) -> Option<i32> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(begun.elapsed() < LIMIT, "the server does not end: {}", self.log());
            sleep(Duration::from_millis(10));
        }
    }

    /// A command on this server, not yet started.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command();
        command.args(arguments).env("LYCOSA_ADDRESS", &self.address).env("LYCOSA_DATA_DIR", self.data.path());
        command
    }

    /// Runs a command on this server.
    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        self.run_with(arguments, "")
    }

    /// The same with standard input.
    pub(crate) fn run_with(&self, arguments: &[&str], input: &str) -> Run {
        finish(self.command(arguments), input)
    }

    /// Runs a command on this server, which must succeed; what it printed.
    #[track_caller]
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let run = self.run(arguments);
        assert_eq!(run.code, 0, "{arguments:?}: {run:?}");
        run.stdout
    }
}

fn log_in(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("test.log")).unwrap_or_default()
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already, as wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
