//! The programs: where they are found, how they are installed, the command line that gives each durability.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::contender::{Contender, Durability, Program};
use crate::server::ServerLocation;
use crate::tutorial;

/// No contender is measured while it writes snapshots: Redis is started without them, Tarantool's interval is an hour, and the
/// effect of Lycosa's is measured apart.
const NO_CHECKPOINTS: [&str; 4] = ["--checkpoint-interval", "0", "--checkpoint-wal-threshold", "1024GiB"];

/// Memory for Lycosa's tuples: enough for every workload. A limit costs nothing until it is reached.
const MEMORY_LIMIT: &str = "16GiB";
/// Greatest job of beanstalkd; its own default is one byte less than 64 KiB.
const GREATEST_JOB: &str = "1048576";
/// Starts Tarantool with a queue module.
const TARANTOOL_SCRIPT: &str = include_str!("tarantool.lua");
/// The queue module of [`Program::TarantoolLua`].
const LEAST_QUEUE: &str = include_str!("tarantool_queue.lua");

/// Files that do not stand on the search path.
#[derive(Debug, Clone, Default)]
pub(crate) struct Files {
    /// The `lycosa` binary, if it was named.
    pub(crate) lycosa: Option<PathBuf>,
    /// Settings of `lycosa serve`: `NAME=VALUE`.
    pub(crate) settings: Vec<String>,
    /// The folder in which the Lua module `queue` is.
    pub(crate) queue_module: Option<PathBuf>,
    /// The tutorial's text, or the folder in which it is.
    pub(crate) tutorial: Option<PathBuf>,
}

impl Program {
    /// The program's name, which is that of its Debian package too.
    fn name(self) -> &'static str {
        match self {
            Self::Lycosa(_) | Self::LycosaModule(_) | Self::LycosaLua | Self::LycosaTutorial => "lycosa",
            Self::Tarantool(_) | Self::TarantoolLua | Self::Tutorial => "tarantool",
            Self::RedisList | Self::RedisStream => "redis-server",
            Self::Nats => "nats-server",
            Self::Beanstalkd => "beanstalkd",
        }
    }

    /// Where the program is.
    ///
    /// # Errors
    /// It is not there; what to do about it.
    fn find(self, files: &Files) -> Result<PathBuf> {
        let name = self.name();
        if matches!(self, Self::Tarantool(_) | Self::LycosaModule(_)) {
            let module = files.queue_module.as_ref();
            let module =
                module.context("the Lua queue module is needed: name its folder by --queue-module")?;
            ensure!(
                module.join("queue/init.lua").is_file(),
                "there is no queue/init.lua in {}",
                module.display()
            );
        }
        if matches!(self, Self::Tutorial | Self::LycosaTutorial) {
            let path = files.tutorial.as_deref();
            tutorial::code(path.context("the tutorial's text is needed: name it by --tutorial")?)?;
        }
        if name == "lycosa" {
            return find_lycosa(files);
        }
        on_path(name).with_context(|| format!("{name} is not installed: --install installs Debian's package"))
    }

    /// The program's name, and the first line of what it says about its version.
    pub(crate) fn version(self, files: &Files) -> Result<(&'static str, String)> {
        let flag = if self == Self::Beanstalkd { "-v" } else { "--version" };
        let output =
            Command::new(self.find(files)?).arg(flag).output().context("cannot ask for the version")?;
        let text = String::from_utf8_lossy(&output.stdout);
        Ok((self.name(), text.lines().next().unwrap_or_default().trim().to_owned()))
    }

    /// The command that runs a program in Lua, of Lycosa or of a Tarantool.
    pub(crate) fn script(self, files: &Files, script: &Path) -> Result<Command> {
        let mut command = Command::new(self.find(files)?);
        command.arg(script);
        remove_settings(&mut command);
        Ok(command)
    }

    /// Whether everything that the program needs to start is installed.
    pub(crate) fn check(self, files: &Files) -> Result<()> {
        self.find(files).map(drop)
    }
}

/// Settings of the environment are for another server.
fn remove_settings(command: &mut Command) {
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LYCOSA_")) {
        command.env_remove(name);
    }
}

fn find_lycosa(files: &Files) -> Result<PathBuf> {
    let beside = || Some(env::current_exe().ok()?.with_file_name("lycosa"));
    let built = || Some(PathBuf::from("target/release/lycosa"));
    let candidates = match &files.lycosa {
        Some(path) => vec![path.clone()],
        None => [beside(), built()].into_iter().flatten().collect(),
    };
    match candidates.iter().find(|path| path.is_file()) {
        Some(path) => path.canonicalize().with_context(|| format!("cannot find {}", path.display())),
        None => bail!("there is no {}: build it, or name it by --server", candidates[0].display()),
    }
}

/// Looks for a program where the shell does, and where servers are.
fn on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

impl Contender {
    /// The command that runs it.
    pub(crate) fn command(self, files: &Files, place: ServerLocation<'_>) -> Result<Command> {
        let mut command = Command::new(self.program.find(files)?);
        let (port, data) = (place.address.port().to_string(), place.data);
        let (host, is_durable) = (place.address.ip().to_string(), self.durability != Durability::None);
        match self.program {
            Program::Lycosa(_) => {
                command
                    .arg("serve")
                    .args(["--listen", &place.address.to_string()])
                    .arg("--data-dir")
                    .arg(data);
                command.args(["--wal-mode", self.durability.name(), "--memory-limit", MEMORY_LIMIT]);
                command.args(NO_CHECKPOINTS);
                command.args(files.settings.iter().map(|setting| format!("--{setting}")));
                remove_settings(&mut command);
            }
            Program::Tarantool(_)
            | Program::TarantoolLua
            | Program::Tutorial
            | Program::LycosaModule(_)
            | Program::LycosaLua
            | Program::LycosaTutorial => {
                if self.program.name() == "lycosa" {
                    command.arg("--no-native-queue");
                    remove_settings(&mut command);
                }
                let script = data.with_file_name("tarantool.lua");
                fs::write(&script, TARANTOOL_SCRIPT)?;
                command.arg(script).arg(place.address.to_string()).arg(data).arg(self.durability.name());
                command.arg(self.module(files, &data.with_file_name("module"))?);
            }
            Program::RedisList | Program::RedisStream => {
                command.args(["--bind", &host, "--port", &port, "--save", ""]).arg("--dir").arg(data);
                command.args(["--appendonly", if is_durable { "yes" } else { "no" }]);
                let sync = if self.durability == Durability::Fsync { "always" } else { "no" };
                // The file is not rewritten behind the measurement's back.
                command.args(["--appendfsync", sync, "--auto-aof-rewrite-percentage", "0"]);
            }
            Program::Nats => {
                command.args(["--addr", &host, "--port", &port, "--jetstream", "--store_dir"]).arg(data);
            }
            Program::Beanstalkd => {
                command.args(["-l", &host, "-p", &port, "-z", GREATEST_JOB]);
                if is_durable {
                    command.arg("-b").arg(data);
                    command.arg(if self.durability == Durability::Fsync { "-f0" } else { "-F" });
                }
            }
        }
        Ok(command)
    }

    /// The folder in which Tarantool finds the module `queue`, `own` if it has to be written.
    fn module(self, files: &Files, own: &Path) -> Result<PathBuf> {
        let code = match self.program {
            Program::TarantoolLua | Program::LycosaLua => LEAST_QUEUE.to_owned(),
            Program::Tutorial | Program::LycosaTutorial => {
                tutorial::code(files.tutorial.as_deref().unwrap_or(Path::new("")))?
            }
            _ => return Ok(files.queue_module.as_deref().unwrap_or(Path::new("")).canonicalize()?),
        };
        fs::create_dir_all(own)?;
        fs::write(own.join("queue.lua"), code)?;
        Ok(own.to_owned())
    }
}

/// Installs Debian's packages of those peers that are not there.
pub(crate) fn install() -> Result<()> {
    let wanted = ["tarantool", "redis-server", "nats-server", "beanstalkd"];
    let missing = wanted.into_iter().filter(|name| on_path(name).is_none()).collect::<Vec<_>>();
    if missing.is_empty() {
        return Ok(());
    }
    eprintln!("installing {}", missing.join(", "));
    let arguments = [&["install", "--yes", "--no-install-recommends"], &missing[..]].concat();
    if apt_get(&arguments).is_err() {
        // The lists of packages may be old or missing.
        apt_get(&["update"])?;
        apt_get(&arguments)?;
    }
    Ok(())
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    let mut command = if rustix::process::geteuid().is_root() {
        Command::new("apt-get")
    } else {
        let mut sudo = Command::new("sudo");
        sudo.args(["--non-interactive", "DEBIAN_FRONTEND=noninteractive", "apt-get"]);
        sudo
    };
    let status = command.env("DEBIAN_FRONTEND", "noninteractive").args(arguments).status();
    let status = status.context("cannot run apt-get")?;
    ensure!(status.success(), "apt-get {} failed: {status}", arguments.join(" "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use super::*;

    /// The arguments of the command that runs `contender`, separated by blanks.
    fn arguments(contender: &str) -> String {
        let contender = contender.parse::<Contender>().unwrap();
        // Any program will do: only the arguments are looked at.
        let files = Files { lycosa: Some(env::current_exe().unwrap()), ..Files::default() };
        let place =
            ServerLocation { address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)), data: Path::new("/d") };
        let command = contender.command(&files, place).unwrap();
        command.get_args().map(|argument| argument.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn every_durability_of_lycosa() {
        for durability in ["fsync", "write", "none"] {
            assert_eq!(
                arguments(&format!("lycosa:{durability}")),
                format!(
                    "serve --listen 127.0.0.1:1 --data-dir /d --wal-mode {durability} --memory-limit 16GiB \
                     --checkpoint-interval 0 --checkpoint-wal-threshold 1024GiB"
                )
            );
        }
    }
}
