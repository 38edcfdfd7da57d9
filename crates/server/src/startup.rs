//! Log lines of a server that is ready: its addresses, its data folder, its durability, and two commands to try.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use lycosa_instance::Instance;
use lycosa_queue::StartReport;

use crate::config::{Addresses, Config, WalMode};

/// Logs what the queue found at its start.
pub(crate) fn report(report: &StartReport) {
    if report.tubes > 0 || report.unavailable > 0 {
        tracing::info!(
            "queue: {} tubes; {} tasks of sessions that are gone are ready again",
            report.tubes,
            report.released
        );
    }
    if report.unavailable > 0 {
        tracing::warn!("queue: {} rows of _queue could not become tubes", report.unavailable);
    }
}

/// Prints the start-up text: to a terminal for people, and as one log line for logs.
/// `urls`: where HTTP is served.
pub(crate) fn announce(config: &Config, addresses: &[String], urls: &[String], instance: &Instance) {
    let durability = match config.wal_mode {
        WalMode::Fsync => "fsync: a reply leaves when its change is on the disk",
        WalMode::Write => {
            "write: a reply leaves when its change is with the system; a power failure may lose the last ones"
        }
        WalMode::None => "none: changes are not journaled; a restart loses them",
    };
    let status = instance.status();
    tracing::info!(
        "ready: listening on {}, data in {}, wal_mode {}",
        addresses.join(", "),
        shown(&config.data_dir),
        durability
    );
    let has_users = instance.has_users();
    if !is_loopback_only(&config.listen) {
        tracing::warn!(
            "listen {} can be reached from other machines without encryption: tasks can be read and changed on the \
             way; listen_tls encrypts (docs/security.md)",
            config.text("listen")
        );
    }
    let is_local = is_loopback_only(&config.listen) && is_loopback_only(&config.listen_tls);
    if !is_local && !has_users {
        tracing::warn!(
            "no user may use this server over the network yet: make one with `lycosa user add NAME --data-dir {}`",
            config.data_dir.display()
        );
    }
    if io::stderr().is_terminal() {
        let first = addresses.first().map_or("127.0.0.1:3301", String::as_str);
        let trust = if first.starts_with("tls://") { " --tls-ca CA.pem" } else { "" };
        let address = format_args!("{first}{trust}");
        let memory = config.memory_limit;
        let hint = "(`lycosa token add NAME --role operator` makes a token)";
        let http = match urls {
            [] => String::new(),
            urls => format!("  http        {} {hint}\n", urls.join(", ")),
        };
        let text = format!(
            "\n  Lycosa {version} is ready\n\n  \
             address     {addresses}\n\
             {http}  \
             data        {data} ({rows} rows journaled so far)\n  \
             durability  {durability}\n  \
             memory      {memory} for tuples (memory_limit)\n\n  \
             Try it from another terminal:\n\n    \
             lycosa put mail '{{\"to\": \"ann\"}}' --as json --create --address {address}\n    \
             lycosa work mail --address {address} -- cat\n\n  \
             Without --as json a payload is text.\n  \
             Ctrl-C ends it. `lycosa help` tells the rest.\n\n",
            version = env!("CARGO_PKG_VERSION"),
            addresses = addresses.join(", "),
            data = shown(&config.data_dir),
            rows = status.standing.signature,
        );
        let _ = io::stderr().write_all(text.as_bytes());
    }
}

/// Whether every address is one that only this machine can reach.
fn is_loopback_only(addresses: &Addresses) -> bool {
    addresses.0.iter().all(|address| {
        let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
    })
}

/// The folder of the data, for messages.
pub(crate) fn shown(path: &Path) -> String {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}
