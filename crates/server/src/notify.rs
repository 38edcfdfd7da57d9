//! Messages to a service manager: the protocol of systemd's `sd_notify`, for units with `Type=notify`.
//!
//! A message is one datagram to the socket that `NOTIFY_SOCKET` names. Without the variable nothing is said. A message that
//! cannot be sent is logged once and changes nothing else. With `WATCHDOG_USEC` the loop says twice in that time that it
//! turns, so a loop that hangs is noticed and the service started anew.
//!
//! Absent: file descriptors that are passed to or from the manager.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::OnceLock;
use std::time::Duration;

use tokio::task::{JoinHandle, spawn_local};

/// The variable that names the manager's socket: a path, or after `@` a name in the abstract namespace.
const SOCKET: &str = "NOTIFY_SOCKET";
/// The variable with the microseconds after which a silent service counts as hung.
const WATCHDOG: &str = "WATCHDOG_USEC";

/// The server is ready for clients.
pub(crate) fn ready(status: &str) {
    say(&format!("READY=1\nSTATUS={}", status.replace('\n', " ")));
}

/// The server is starting, and is to have this much longer for it.
pub(crate) fn starting(status: &str, extension: Duration) {
    let micros = extension.as_micros();
    say(&format!("STATUS={}\nEXTEND_TIMEOUT_USEC={micros}", status.replace('\n', " ")));
}

/// The server reads its configuration again; [`ready`] says that it has.
pub(crate) fn reloading() {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
    say(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
}

/// The server ends.
pub(crate) fn stopping() {
    say("STOPPING=1\nSTATUS=finishing what is under way");
}

/// Says from now on that the loop turns, if the manager wants to know.
pub(crate) fn start_watchdog() -> Option<JoinHandle<()>> {
    let period = Duration::from_micros(std::env::var(WATCHDOG).ok()?.parse().ok()?) / 2;
    if period.is_zero() || std::env::var_os(SOCKET).is_none() {
        return None;
    }
    Some(spawn_local(async move {
        loop {
            say("WATCHDOG=1");
            tokio::time::sleep(period).await;
        }
    }))
}

fn say(message: &str) {
    static FAILED: OnceLock<()> = OnceLock::new();
    let Ok(name) = std::env::var(SOCKET) else { return };
    if let Err(error) = send(&name, message)
        && FAILED.set(()).is_ok()
    {
        tracing::warn!("the service manager cannot be told over {SOCKET}={name}: {error}");
    }
}

fn send(name: &str, message: &str) -> std::io::Result<()> {
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address)?;
    Ok(())
}
