//! `lycosa cluster demo`: three servers on this machine, each a process of its own, to kill one and see.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use lycosa_server::cluster::control::Order;
use serde_json::Value as Json;
use tokio::signal::unix::{SignalKind, signal};

use super::order;
use crate::outcome::Outcome;
use crate::output;
use crate::session::runtime;

const SERVERS: usize = 3;
/// Pause between two looks at a server.
const POLL: Duration = Duration::from_millis(50);
/// How long a step may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The servers and their folder, which end with the demo.
struct Demo {
    folder: PathBuf,
    servers: Vec<Server>,
}

struct Server {
    folder: PathBuf,
    listen: String,
    member: String,
    child: Option<Child>,
}

impl Server {
    fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        for server in &mut self.servers {
            if let Some(child) = &mut server.child {
                // A server that has ended needs no end.
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

pub(super) fn run() -> anyhow::Result<Outcome> {
    let mut demo = Demo::new()?;
    let program = std::env::current_exe().context("cannot find this program")?;
    let first = demo.servers[0].folder.display().to_string();
    let init = Command::new(&program)
        .args(["cluster", "init", "--data-dir", &first, "--member-address", &demo.servers[0].member])
        .stdin(Stdio::null())
        .output()?;
    if !init.status.success() {
        bail!("cannot begin a group: {}", String::from_utf8_lossy(&init.stderr).trim());
    }
    for number in 0..SERVERS {
        demo.start(&program, number)?;
    }
    demo.until("a leader", |status| status.get("leads").and_then(Json::as_bool) == Some(true))?;
    for number in 1..SERVERS {
        let address = demo.servers[number].member.clone();
        order(&demo.servers[0].folder, &Order::Add { address })?;
        demo.until("a new voter", |status| {
            let members = status.get("members").and_then(Json::as_array);
            let is_voter = |member: &Json| member.get("standing").and_then(Json::as_str) == Some("voter");
            members.is_some_and(|members| members.len() == number + 1 && members.iter().all(is_voter))
        })?;
    }
    let addresses: Vec<&str> = demo.servers.iter().map(|server| server.listen.as_str()).collect();
    let (all, second) = (addresses.join(","), addresses[1]);
    let (folder, pid) = (demo.servers[1].folder.display(), demo.servers[0].pid());
    output::line("three servers act as one:")?;
    for server in &demo.servers {
        let pid = server.pid();
        output::line(format_args!("  {}   pid {pid}, data in {}", server.listen, server.folder.display()))?;
    }
    output::line(format_args!(
        "\nTry it from another terminal:\n\n  lycosa put mail hello --create --address {second}\n  lycosa cluster status --data-dir \
         {folder}\n  kill -9 {pid}\n  lycosa take mail --address {second}\n\nAny of the addresses serves. To leave out the one that was \
         killed: {all}\nCtrl-C ends it and removes the folders."
    ))?;
    demo.wait()
}

impl Demo {
    fn new() -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(format!("lycosa-demo-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
        fs::set_permissions(&folder, PermissionsExt::from_mode(0o700))?;
        let mut demo = Self { folder, servers: Vec::new() };
        let mut secret = fs::OpenOptions::new();
        let mut secret = secret.write(true).create_new(true).mode(0o600).open(demo.folder.join("secret"))?;
        let mut bytes = [0; 24];
        fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        for byte in bytes {
            write!(secret, "{byte:02x}")?;
        }
        // All ports are held until the last one is known, so that they differ.
        let held =
            (0..2 * SERVERS).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<Vec<_>, _>>()?;
        let ports = held.iter().map(|port| Ok(port.local_addr()?.to_string()));
        let ports = ports.collect::<std::io::Result<Vec<_>>>()?;
        for (number, pair) in ports.chunks(2).enumerate() {
            let folder = demo.folder.join(format!("node-{}", number + 1));
            fs::create_dir(&folder)?;
            fs::set_permissions(&folder, PermissionsExt::from_mode(0o700))?;
            let (listen, member) = (pair[0].clone(), pair[1].clone());
            demo.servers.push(Server { folder, listen, member, child: None });
        }
        Ok(demo)
    }

    fn start(&mut self, program: &Path, number: usize) -> anyhow::Result<()> {
        let secret = self.folder.join("secret");
        let server = &mut self.servers[number];
        let log = fs::File::create(self.folder.join(format!("node-{}.log", number + 1)))?;
        let mut command = Command::new(program);
        command.arg("serve").arg("--data-dir").arg(&server.folder).arg("--cluster-secret-file").arg(&secret);
        command.args(["--listen", &server.listen, "--http-listen", "", "--cluster-listen", &server.member]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        server.child = Some(child.context("cannot start a server")?);
        Ok(())
    }

    /// Waits until the first server's status is as wanted.
    fn until(&self, what: &str, is_so: impl Fn(&Json) -> bool) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            if order(&self.servers[0].folder, &Order::Status).is_ok_and(|status| is_so(&status)) {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                let log = fs::read_to_string(self.folder.join("node-1.log")).unwrap_or_default();
                bail!("{what} did not come within {} s:\n{log}", PATIENCE.as_secs());
            }
            thread::sleep(POLL);
        }
    }

    /// Waits for Ctrl-C, or for the end of all servers.
    fn wait(mut self) -> anyhow::Result<Outcome> {
        runtime()?.block_on(async {
            let mut terminate = signal(SignalKind::terminate())?;
            let mut ended = signal(SignalKind::child())?;
            let mut interrupt = signal(SignalKind::interrupt())?;
            loop {
                for server in &mut self.servers {
                    if let Some(child) = &mut server.child
                        && let Some(status) = child.try_wait()?
                    {
                        output::line(format_args!("the server at {} has ended: {status}", server.listen))?;
                        server.child = None;
                    }
                }
                if self.servers.iter().all(|server| server.child.is_none()) {
                    bail!("all servers of the demo have ended, and so does the demo: its data is removed");
                }
                tokio::select! {
                    _ = interrupt.recv() => return Ok(Outcome::Done),
                    _ = terminate.recv() => return Ok(Outcome::Done),
                    _ = ended.recv() => {}
                }
            }
        })
    }
}
