//! A network of the test's own: each instance in a network namespace, all of them on one bridge.
//!
//! It takes the right to make namespaces (`ip netns`), which root has. Links can be taken down and up, packets of one
//! direction can vanish, and a link can be slow (`tc … tbf`, which every kernel has; `netem` is not everywhere). The clock
//! of each instance can be set by `libfaketime`. Names hold the process's id, so that runs do not meet.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::Result;
use crate::server::Place;

/// Bits per second of a slow link: some hundred tasks a second.
const SLOW: &str = "400kbit";

/// The hardware address of the bridge. Unless it is set, it is the lowest of its links' addresses, so it changes when hosts
/// come and go. A host that knows the former one then sends its replies to the test into the void for up to a minute.
const BRIDGE_ADDRESS: &str = "02:00:00:00:00:02";

/// Runs a command whose failure matters.
fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let output =
        Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
}

/// Where Debian puts `libfaketime`, by architecture.
fn faketime() -> Option<PathBuf> {
    let folders =
        fs::read_dir("/usr/lib").ok()?.filter_map(std::result::Result::ok).map(|entry| entry.path());
    folders.map(|folder| folder.join("faketime/libfaketime.so.1")).find(|path| path.exists())
}

/// A bridge, and the numbers of the hosts on it.
pub(super) struct Bridge {
    name: String,
    /// The first three bytes of every address.
    net: [u8; 3],
    next: AtomicU8,
    /// Files with the offsets of the clocks.
    clocks: tempfile::TempDir,
}

impl Bridge {
    /// A new bridge, or why this process may not make one.
    pub(super) fn new() -> Result<Self> {
        let id = std::process::id();
        let clocks = tempfile::tempdir().map_err(|error| error.to_string())?;
        // 10.64.0.0 to 10.127.255.0.
        let net = [10, 64 + (id >> 8) as u8 % 64, id as u8];
        let bridge = Self { name: format!("ly{id}b"), net, next: AtomicU8::new(2), clocks };
        run("ip", &["link", "add", &bridge.name, "address", BRIDGE_ADDRESS, "type", "bridge"])?;
        let address = format!("{}/24", bridge.address(1));
        run("ip", &["addr", "add", &address, "dev", &bridge.name])?;
        run("ip", &["link", "set", &bridge.name, "up"])?;
        Ok(bridge)
    }

    fn address(&self, host: u8) -> IpAddr {
        let [a, b, c] = self.net;
        Ipv4Addr::new(a, b, c, host).into()
    }

    /// A new namespace on the bridge.
    pub(super) fn host(&self) -> Result<Arc<Host>> {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        let id = std::process::id();
        let namespace = format!("lycosa-{id}-{number}");
        run("ip", &["netns", "add", &namespace])?;
        let clock = self.clocks.path().join(number.to_string());
        let host = Host {
            place: Place { namespace: namespace.clone(), address: self.address(number) },
            link: format!("ly{id}v{number}"),
            clock,
        };
        host.set_clock(0)?;
        let made = ["link", "add", &host.link, "type", "veth", "peer", "name", "eth0", "netns", &namespace];
        run("ip", &made)?;
        run("ip", &["link", "set", &host.link, "master", &self.name, "up"])?;
        let address = format!("{}/24", host.place.address);
        run("ip", &["-n", &namespace, "addr", "add", &address, "dev", "eth0"])?;
        run("ip", &["-n", &namespace, "link", "set", "eth0", "up"])?;
        run("ip", &["-n", &namespace, "link", "set", "lo", "up"])?;
        let own = fs::read_to_string(format!("/sys/class/net/{}/address", self.name));
        match own.map(|own| own.trim() == BRIDGE_ADDRESS) {
            Ok(true) => Ok(Arc::new(host)),
            other => {
                Err(format!("the bridge's hardware address has changed ({other:?}): replies will be lost"))
            }
        }
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        // A person who looks for left-overs finds it by its name.
        let _ = run("ip", &["link", "del", &self.name]);
    }
}

/// A namespace with one instance.
pub(super) struct Host {
    pub(super) place: Place,
    /// The end of its link at the bridge.
    link: String,
    clock: PathBuf,
}

impl Host {
    /// The link is up or down; a sender gets no error.
    pub(super) fn link(&self, is_up: bool) -> Result<()> {
        run("ip", &["link", "set", &self.link, if is_up { "up" } else { "down" }])
    }

    /// What this host sends to another one vanishes, and what it is sent arrives.
    pub(super) fn mute(&self, to: &Host, is_mute: bool) -> Result<()> {
        let (to, namespace) = (to.place.address.to_string(), &self.place.namespace);
        if is_mute {
            // No host has that hardware address.
            let nobody = ["lladdr", "02:00:00:00:00:01", "dev", "eth0", "nud", "permanent"];
            run("ip", &[&["-n", namespace, "neigh", "replace", &to], &nobody[..]].concat())
        } else {
            run("ip", &["-n", namespace, "neigh", "del", &to, "dev", "eth0"])
        }
    }

    /// What this host is sent comes slowly, or as fast as it is.
    pub(super) fn slow(&self, is_slow: bool) -> Result<()> {
        if is_slow {
            let shape = ["root", "tbf", "rate", SLOW, "burst", "8kb", "latency", "2s"];
            run("tc", &[&["qdisc", "replace", "dev", &self.link], &shape[..]].concat())
        } else {
            run("tc", &["qdisc", "del", "dev", &self.link, "root"])
        }
    }

    /// The system's clock of the instance jumps by this number of seconds from the true time.
    pub(super) fn set_clock(&self, offset: i64) -> Result<()> {
        // Whole at every moment: the server may read it at any.
        let fresh = self.clock.with_extension("new");
        let written = fs::write(&fresh, format!("{offset:+}")).and_then(|()| fs::rename(&fresh, &self.clock));
        written.map_err(|error| error.to_string())
    }

    /// What the instance's process needs so that its clock can be set; nothing where `libfaketime` is not installed.
    pub(super) fn environment(&self) -> Vec<(String, String)> {
        let Some(library) = faketime() else { return Vec::new() };
        let text = |path: &std::path::Path| path.display().to_string();
        let pairs = [
            ("LD_PRELOAD", text(&library)),
            ("FAKETIME_TIMESTAMP_FILE", text(&self.clock)),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ];
        pairs.map(|(name, value)| (name.to_owned(), value)).into()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Takes the link along.
        let _ = run("ip", &["netns", "del", &self.place.namespace]);
    }
}

/// Removes what `libfaketime` has left of a process that was killed.
pub(super) fn forget_clock(pid: u32) {
    for name in [format!("faketime_shm_{pid}"), format!("sem.faketime_sem_{pid}")] {
        // It exists only if a clock was set by that library.
        let _ = fs::remove_file(std::path::Path::new("/dev/shm").join(name));
    }
}
