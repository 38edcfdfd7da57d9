//! Servers that the benchmark starts itself: in a folder that vanishes, on a free port of the loopback address, on a core
//! of their own, stopped by their process id.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::machine;

/// So long may a server take until it listens, or until it has stopped.
const LONGEST_START: Duration = Duration::from_secs(300);
const LONGEST_STOP: Duration = Duration::from_secs(300);

/// The cores of server and load. With fewer than two cores to choose from neither is confined.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cores {
    confined: Option<(usize, usize)>,
    /// Servers may run on the load's core as well.
    is_server_free: bool,
}

impl Cores {
    /// The first two allowed cores: one for servers, one for the load, to which this thread is confined.
    pub(crate) fn choose() -> Result<Self> {
        let confined = match machine::allowed_cores()?[..] {
            [server, load, ..] => Some((server, load)),
            _ => None,
        };
        if let Some((_, load)) = confined {
            machine::run_on(&[load])?;
        }
        Ok(Self { confined, is_server_free: false })
    }

    /// The same cores for servers that may run on both.
    pub(crate) fn with_free_server(self) -> Self {
        Self { is_server_free: true, ..self }
    }

    /// The same for servers that share the core of the load: replicas of those on the other one.
    pub(crate) fn beside_load(self) -> Self {
        Self { confined: self.confined.map(|(_, load)| (load, load)), ..self }
    }

    /// Runs `work` in this thread on the core of servers.
    pub(crate) fn on_server<T>(self, work: impl FnOnce() -> T) -> Result<T> {
        let Some((server, load)) = self.confined else { return Ok(work()) };
        machine::run_on(&[server])?;
        let done = work();
        machine::run_on(&[load])?;
        Ok(done)
    }

    /// Whether server and load have a core each.
    pub(crate) fn are_confined(self) -> bool {
        self.confined.is_some()
    }

    /// Starts a process on the core of servers.
    fn spawn(self, command: &mut Command) -> Result<Child> {
        let spawn = |command: &mut Command| {
            command.spawn().with_context(|| format!("cannot start {}", command.get_program().display()))
        };
        let Some((server, load)) = self.confined else { return spawn(command) };
        // A process inherits the core of the thread that starts it.
        machine::run_on(&[server, load][..1 + usize::from(self.is_server_free)])?;
        let child = spawn(command);
        machine::run_on(&[load])?;
        child
    }
}

/// The address that a server listens on and the folder of its files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerLocation<'a> {
    pub(crate) address: SocketAddr,
    /// An existing folder.
    pub(crate) data: &'a Path,
}

/// A running server. It is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    address: SocketAddr,
    folder: TempDir,
}

impl Server {
    /// Starts what `command` makes for a place in a new folder under `parent`, and waits until it listens.
    pub(crate) fn start(
        command: impl FnOnce(ServerLocation<'_>) -> Result<Command>,
        parent: &Path,
        cores: Cores,
    ) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("lycosa-bench-").tempdir_in(parent);
        let folder = folder.with_context(|| format!("cannot make a folder in {}", parent.display()))?;
        let address = free_address()?;
        let data = data_folder(&folder);
        fs::create_dir(&data)?;
        let child = launch(command(ServerLocation { address, data: &data })?, folder.path(), cores)?;
        let mut server = Self { child, address, folder };
        server.wait_until_it_listens()?;
        Ok(server)
    }

    /// Starts what `command` makes for the same place, after [`Self::stop_process`].
    pub(crate) fn start_again(
        &mut self,
        command: impl FnOnce(ServerLocation<'_>) -> Result<Command>,
        cores: Cores,
    ) -> Result<()> {
        let place = ServerLocation { address: self.address, data: &self.data() };
        self.child = launch(command(place)?, self.folder.path(), cores)?;
        self.wait_until_it_listens()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// The folder of its files.
    pub(crate) fn data(&self) -> PathBuf {
        data_folder(&self.folder)
    }

    /// Asks the process to end, and waits until it has.
    pub(crate) fn stop_process(&mut self) -> Result<()> {
        kill_process(self.pid(), Signal::TERM).context("cannot stop the server")?;
        let deadline = Instant::now() + LONGEST_STOP;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                bail!("the server has not stopped {LONGEST_STOP:?} after SIGTERM");
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// The error with what the server said in the end, if it is not there any more.
    pub(crate) fn explain(&mut self, error: anyhow::Error) -> anyhow::Error {
        match self.child.try_wait() {
            Ok(Some(status)) => error.context(format!("the server ended ({status}): {}", self.last_words())),
            _ => error,
        }
    }

    fn wait_until_it_listens(&mut self) -> Result<()> {
        let deadline = Instant::now() + LONGEST_START;
        while TcpStream::connect(self.address).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("the server ended at once ({status}):\n{}", self.last_words());
            }
            if Instant::now() > deadline {
                bail!("the server does not listen {LONGEST_START:?} after its start:\n{}", self.last_words());
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// The end of what the server wrote to its standard output and error.
    fn last_words(&self) -> String {
        const LINES: usize = 20;
        let log = fs::read(log_file(self.folder.path())).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines = log.lines().collect::<Vec<_>>();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) && self.child.kill().is_ok() {
            // The folder can only be removed once no process writes there.
            let _ = self.child.wait();
        }
    }
}

fn data_folder(folder: &TempDir) -> PathBuf {
    folder.path().join("data")
}

fn log_file(folder: &Path) -> PathBuf {
    folder.join("output.log")
}

fn launch(mut command: Command, folder: &Path, cores: Cores) -> Result<Child> {
    let log = File::options().create(true).append(true).open(log_file(folder))?;
    command.current_dir(folder).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    cores.spawn(&mut command)
}

/// Ports below the range from which the system gives ports to clients, and above the range of the servers that tests start.
const PORTS: Range<u16> = 30_000..32_768;

/// An address of the loopback interface without a listener. Each call begins behind the port of the call before.
///
/// # Errors
/// No port of [`PORTS`] is free.
fn free_address() -> Result<SocketAddr> {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let count = u32::from(PORTS.end - PORTS.start);
    let first = std::process::id().wrapping_mul(41).wrapping_add(CALLS.fetch_add(1, Ordering::Relaxed));
    let ports = (0..count).map(|step| PORTS.start + (first.wrapping_add(step) % count) as u16);
    let mut addresses = ports.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let free = addresses.find(|address| TcpListener::bind(address).is_ok());
    free.with_context(|| format!("no port of {PORTS:?} is free on the loopback interface"))
}
