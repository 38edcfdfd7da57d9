//! A server process of the test's own: our binary or a real Tarantool, on a free loopback port, with a data folder that
//! is removed with it. Processes are stopped by their own id, never by name.

use std::fs::{self, File};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::addresses::free_address;
use crate::connection::{self, Connection, kind};
use crate::value::Value;

/// The password of user `admin` on every server that [`Setup::fresh`] describes.
pub(crate) const ADMIN_PASSWORD: &str = "admin of the tests";

/// How long a start may take: recovery in a debug build beside seven other servers.
const START_LIMIT: Duration = Duration::from_secs(180);
/// Where a server listens that has a namespace of its own.
const PORT: u16 = 3301;
const STOP_LIMIT: Duration = Duration::from_secs(120);

/// Which program answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    Lycosa,
    Tarantool,
}

/// A folder of the Lua module `queue` (with `queue/init.lua` in it), by which a real Tarantool can run the scenarios of
/// tubes too. Named by `LYCOSA_TEST_QUEUE_MODULE`; without it only scenarios marked `# oracle` run there.
pub(crate) fn queue_module() -> Option<PathBuf> {
    std::env::var_os("LYCOSA_TEST_QUEUE_MODULE").map(PathBuf::from)
}

/// Whether a real Tarantool is installed. Hundreds of tests ask while they are listed, and one is started for all of them.
pub(crate) fn tarantool_is_installed() -> bool {
    static IS_INSTALLED: LazyLock<bool> = LazyLock::new(|| {
        let asked = Command::new("tarantool").arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    });
    *IS_INSTALLED
}

/// A network namespace, in which every port is free, and the address there.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) namespace: String,
    pub(crate) address: IpAddr,
}

/// What a server starts with.
#[derive(Debug, Clone, Default)]
pub(crate) struct Setup {
    /// Lines of the section `[queue]`: name and value as in `queue.cfg`.
    pub(crate) queue: Vec<(String, serde_json::Value)>,
    /// Further lines of the configuration file's head.
    pub(crate) options: Vec<String>,
    /// A data folder to begin with, copied; without it a fresh instance whose guest is `super`.
    pub(crate) data: Option<PathBuf>,
    /// Bytes of a disk of its own for the data folder, in memory; it takes the right to mount one.
    pub(crate) disk: Option<u64>,
    /// The master whose replica it is.
    pub(crate) replicates: Option<String>,
    /// Lua that runs beside the server: a Tarantool runs it before it listens, our binary as its `app`.
    pub(crate) program: String,
    /// Where it runs, if not on the loopback interface of this process.
    pub(crate) place: Option<Place>,
    /// The address that it listens on, if others have to know it before. It may be taken meanwhile: see [`Server::address`].
    pub(crate) listen: Option<SocketAddr>,
    /// Variables for its process.
    pub(crate) environment: Vec<(String, String)>,
}

/// A running server and its data folder.
#[derive(Debug)]
pub(crate) struct Server {
    peer: Peer,
    setup: Setup,
    folder: TempDir,
    address: SocketAddr,
    child: Option<Child>,
}

impl Server {
    pub(crate) fn start(peer: Peer, setup: Setup) -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
        let data = folder.path().join("data");
        fs::create_dir(&data).map_err(|error| error.to_string())?;
        if let Some(bytes) = setup.disk {
            mount_disk(&data, bytes)?;
        }
        if let Some(from) = &setup.data {
            copy_files(from, &data).map_err(|error| format!("cannot copy {}: {error}", from.display()))?;
        }
        let address = match &setup.place {
            Some(place) => SocketAddr::new(place.address, PORT),
            None => setup.listen.unwrap_or_else(free_address),
        };
        let mut server = Self { peer, setup, folder, address, child: None };
        server.launch()?;
        Ok(server)
    }

    pub(crate) fn peer(&self) -> Peer {
        self.peer
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn data_folder(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The running process.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// For the message of a failed test: the end of the log if the server has ended or panicked, else nothing.
    pub(crate) fn why_silent(&mut self) -> String {
        match self.check_alive() {
            Err(ended) => format!("\n  {ended}"),
            Ok(()) if self.log_tail().contains("panicked") => format!("\n  its log:\n{}", self.log_tail()),
            Ok(()) => String::new(),
        }
    }

    /// What the server has logged so far.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.log_path()).unwrap_or_default()).into_owned()
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines = log.lines().collect::<Vec<_>>();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }

    /// From the next start on damaged files are no hindrance.
    pub(crate) fn force(&mut self) {
        self.setup.options.push("force_recovery = true".to_owned());
    }

    /// SIGTERM, and the wait for the end, which has to be a success.
    pub(crate) fn stop(&mut self) -> Result<(), String> {
        match self.terminate()? {
            Some(status) => self.check_end(status),
            None => Ok(()),
        }
    }

    /// SIGTERM, and the wait for the end: its exit code.
    pub(crate) fn stop_for_code(&mut self) -> Result<Option<i32>, String> {
        self.terminate().map(|status| status.and_then(|status| status.code()))
    }

    fn terminate(&mut self) -> Result<Option<ExitStatus>, String> {
        let Some(mut child) = self.child.take() else { return Ok(None) };
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)
            .map_err(|error| error.to_string())?;
        let deadline = Instant::now() + STOP_LIMIT;
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return Ok(Some(status)),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
                other => {
                    end(&mut child);
                    return Err(format!(
                        "the server did not stop on SIGTERM within {STOP_LIMIT:?} ({other:?})"
                    ));
                }
            }
        }
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            end(&mut child);
        }
    }

    /// Whether the process is still there; if not, how it ended.
    pub(crate) fn check_alive(&mut self) -> Result<(), String> {
        let Some(child) = &mut self.child else { return Err("the server is stopped".into()) };
        match child.try_wait() {
            Ok(None) => Ok(()),
            ended => {
                self.child = None;
                Err(format!("the server ended by itself ({ended:?}); its log:\n{}", self.log_tail()))
            }
        }
    }

    /// From the next start on it is a replica of that master only.
    pub(crate) fn replicate(&mut self, uri: String) {
        self.setup
            .options
            .retain(|option| !option.starts_with("replication = ") && !option.starts_with("read_only"));
        self.setup.options.push(format!("replication = \"{uri}\""));
        self.setup.options.push("read_only = true".to_owned());
        self.setup.replicates = Some(uri);
    }

    /// From the next start on it takes writes as soon as it is in sync.
    pub(crate) fn may_write(&mut self) {
        self.setup.options.retain(|option| !option.starts_with("read_only"));
    }

    /// From now on it has no master; whether it takes writes stays as it is.
    pub(crate) fn lead(&mut self) -> Result<(), String> {
        self.setup.options.retain(|option| !option.starts_with("replication = "));
        self.reload()
    }

    /// Writes the configuration anew and lets the running process read it.
    pub(crate) fn reload(&self) -> Result<(), String> {
        fs::write(self.folder.path().join("lycosa.toml"), self.lycosa_config())
            .map_err(|error| error.to_string())?;
        let pid = self.pid().and_then(|pid| i32::try_from(pid).ok()).and_then(rustix::process::Pid::from_raw);
        let pid = pid.ok_or("the server does not run")?;
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).map_err(|error| error.to_string())
    }

    /// Starts on the same data, at the same address.
    pub(crate) fn launch(&mut self) -> Result<(), String> {
        for attempt in 0.. {
            self.child = Some(self.spawn()?);
            match self.wait_ready() {
                Ok(()) => break,
                // Another program took the port between our look and the start.
                Err(_) if attempt < 3 && self.log_tail().contains("in use") => self.address = free_address(),
                Err(reason) => return Err(reason),
            }
        }
        Ok(())
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn spawn(&self) -> Result<Child, String> {
        let mut command = match self.peer {
            Peer::Lycosa => {
                let config = self.folder.path().join("lycosa.toml");
                fs::write(&config, self.lycosa_config()).map_err(|error| error.to_string())?;
                if self.has_app() {
                    let _ = fs::remove_file(self.app_ran());
                    let ran = serde_json::Value::from(self.app_ran().display().to_string());
                    let program = format!("{}\nio.open({ran}, 'w'):close()\n", self.setup.program);
                    fs::write(self.app(), program).map_err(|error| error.to_string())?;
                }
                let binary = env!("CARGO_BIN_EXE_lycosa");
                let mut command = match &self.setup.place {
                    // It becomes the server: the process keeps its number.
                    Some(place) => {
                        let mut command = Command::new("ip");
                        command.args(["netns", "exec", &place.namespace, binary]);
                        command
                    }
                    None => Command::new(binary),
                };
                command.arg("serve").arg("--config").arg(config);
                command.envs(self.setup.environment.iter().map(|(name, value)| (name, value)));
                command.env("NO_COLOR", "1");
                // Variables of this name are settings to it; those of the tests are not meant.
                for (name, _) in
                    std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LYCOSA_"))
                {
                    command.env_remove(name);
                }
                command
            }
            Peer::Tarantool => {
                let program = self.folder.path().join("init.lua");
                fs::write(&program, self.tarantool_program()).map_err(|error| error.to_string())?;
                let mut command = Command::new("tarantool");
                command.arg(program);
                command
            }
        };
        let log = File::options().create(true).append(true).open(self.log_path());
        let log = log.map_err(|error| error.to_string())?;
        let errors = log.try_clone().map_err(|error| error.to_string())?;
        command.stdin(Stdio::null()).stdout(log).stderr(errors).current_dir(self.folder.path());
        command.spawn().map_err(|error| format!("cannot start {:?}: {error}", command.get_program()))
    }

    fn has_app(&self) -> bool {
        self.peer == Peer::Lycosa && !self.setup.program.is_empty()
    }

    fn app(&self) -> PathBuf {
        self.folder.path().join("server.lua")
    }

    /// Exists once the program has run to its end.
    fn app_ran(&self) -> PathBuf {
        self.folder.path().join("server.lua.ran")
    }

    fn lycosa_config(&self) -> String {
        let mut text = format!("listen = \"{}\"\n", self.address);
        if !self.setup.options.iter().any(|option| option.starts_with("http.listen")) {
            // Servers of tests that run at the same time would meet at the default port.
            text += "http.listen = \"\"\n";
        }
        if self.has_app() {
            text += &format!("app = {}\n", serde_json::Value::from(self.app().display().to_string()));
        }
        text +=
            &format!("data_dir = {}\n", serde_json::Value::from(self.data_folder().display().to_string()));
        for option in &self.setup.options {
            text += option;
            text.push('\n');
        }
        if self.setup.data.is_none() && self.setup.replicates.is_none() {
            text += &format!("\n[[user]]\nname = \"admin\"\npassword = \"{ADMIN_PASSWORD}\"\n");
            text += "\n[[user]]\nname = \"guest\"\nroles = [\"super\"]\n";
        }
        if !self.setup.queue.is_empty() {
            text += "\n[queue]\n";
            for (name, value) in &self.setup.queue {
                text += &format!("{name} = {value}\n");
            }
        }
        text
    }

    fn tarantool_program(&self) -> String {
        let data = self.data_folder();
        let mut text = format!(
            "box.cfg{{work_dir = '{}', log = '{}', wal_mode = 'write', checkpoint_interval = 0, \
             feedback_enabled = false, replication_timeout = 0.2{}}}\n",
            data.display(),
            self.log_path().display(),
            self.setup
                .replicates
                .as_ref()
                .map_or(String::new(), |uri| format!(", replication = {{'{uri}'}}, read_only = true"))
        );
        if self.setup.data.is_none() && self.setup.replicates.is_none() {
            text += &format!("box.schema.user.passwd('admin', '{ADMIN_PASSWORD}')\n");
            text += "box.schema.user.grant('guest', 'super', nil, nil, {if_not_exists = true})\n";
        }
        let is_new = self.setup.data.is_none() && self.setup.replicates.is_none();
        if let Some(module) = queue_module().filter(|_| is_new) {
            text +=
                &format!("package.path = '{0}/?.lua;{0}/?/init.lua;' .. package.path\n", module.display());
            text += "queue = require('queue')\n";
            let options = self.setup.queue.iter().map(|(name, value)| format!("{name} = {value}"));
            text += &format!("queue.cfg({{{}}})\n", options.collect::<Vec<_>>().join(", "));
        }
        text += &self.setup.program;
        text += &format!("\nbox.cfg{{listen = '{}'}}\n", self.address);
        text
    }

    /// The start is over when CALL `queue.state` answers `RUNNING`, or, where there is no queue, when a PING is answered.
    fn wait_ready(&mut self) -> Result<(), String> {
        let is_new = self.setup.data.is_none() && self.setup.replicates.is_none();
        let has_queue = is_new && (self.peer == Peer::Lycosa || queue_module().is_some());
        let question = if has_queue {
            (kind::CALL, connection::call("queue.state", Vec::new()))
        } else {
            (kind::PING, connection::body([]))
        };
        let deadline = Instant::now() + START_LIMIT;
        let mut answer = String::from("no answer yet");
        while Instant::now() < deadline {
            self.check_alive()?;
            if self.has_app() && !self.app_ran().exists() {
                answer = String::from("its program still runs");
            } else if let Ok(mut connection) = Connection::open(self.address) {
                match connection.ask(question.0, &question.1, Duration::from_secs(30)) {
                    Ok(reply) if has_queue && reply.data() == Value::Array(vec![Value::str("RUNNING")]) => {
                        return Ok(());
                    }
                    Ok(reply) if !has_queue && reply.error == 0 => return Ok(()),
                    Ok(reply) => answer = reply.describe(),
                    Err(reason) => answer = reason,
                }
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err(format!(
            "the server did not become ready within {START_LIMIT:?}: {answer}; its log:\n{}",
            self.log_tail()
        ))
    }

    /// A stop on request ends with status 0; Tarantool may also end by the signal itself.
    fn check_end(&self, status: ExitStatus) -> Result<(), String> {
        if status.success() || (self.peer == Peer::Tarantool && status.code().is_none()) {
            return Ok(());
        }
        Err(format!("after SIGTERM the server ended with {status}; its log:\n{}", self.log_tail()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if self.setup.disk.is_some() {
            // The folder's removal says so if it is still there.
            let _ = Command::new("umount").arg(self.data_folder()).stderr(Stdio::null()).status();
        }
    }
}

/// Puts a disk of this number of bytes, in memory, at a folder.
pub(crate) fn mount_disk(folder: &Path, bytes: u64) -> Result<(), String> {
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", &format!("size={bytes},mode=0700"), "tmpfs"])
        .arg(folder)
        .output()
        .map_err(|error| format!("cannot run mount: {error}"))?;
    if mounted.status.success() {
        return Ok(());
    }
    Err(format!("cannot mount a disk: {}", String::from_utf8_lossy(&mounted.stderr).trim()))
}

/// Whether this process may mount a disk.
pub(crate) fn may_mount() -> bool {
    let Ok(folder) = tempfile::tempdir() else { return false };
    let is_mounted = mount_disk(folder.path(), 1 << 20).is_ok();
    if is_mounted {
        let _ = Command::new("umount").arg(folder.path()).status();
    }
    is_mounted
}

fn end(child: &mut Child) {
    // It may have ended already, as wanted.
    let _ = child.kill();
    let _ = child.wait();
}

fn copy_files(from: &Path, to: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        if let (true, Some(name)) = (path.is_file(), path.file_name()) {
            fs::copy(&path, to.join(name))?;
        }
    }
    Ok(())
}
