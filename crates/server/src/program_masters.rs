//! Waiting of a program's `box.cfg` until masters are connected and in sync.

use std::time::Duration;

use lycosa_replication::sync::UpstreamState as State;

use crate::config::Config;
use crate::turn::Core;

/// Pause between two looks whether the masters are in sync.
const SYNC_POLL: Duration = Duration::from_millis(5);

/// Waits as `box.cfg` does: until enough masters are connected, at most for `replication_connect_timeout`, and then until
/// enough are in sync, at most for `replication_sync_timeout`.
pub(crate) async fn wait_for_masters(core: &Core, config: &Config) {
    let until = async |holds: fn(&Progress) -> bool| {
        while !holds(&Progress::of(core, config)) {
            tokio::time::sleep(SYNC_POLL).await;
        }
    };
    let connected = until(|progress| progress.connected >= progress.wanted);
    let is_connected = tokio::time::timeout(config.replication_connect_timeout, connected).await.is_ok();
    let synced = until(|progress| progress.synced >= progress.wanted || progress.connected < progress.wanted);
    if is_connected {
        // Fibers that waited in vain get the error below.
        let _ = tokio::time::timeout(config.replication_sync_timeout, synced).await;
    }
    let Progress { connected, synced, wanted } = Progress::of(core, config);
    if synced < wanted {
        let consequence = match core.instance.borrow().is_orphan() {
            true => ": the instance is an orphan and takes no writes",
            false => "",
        };
        tracing::warn!(
            "box.cfg goes on: {connected} masters are connected and {synced} in sync, of {wanted} that \
             replication_connect_quorum asks for{consequence}"
        );
    }
}

/// How far the masters of an instance are.
struct Progress {
    connected: usize,
    synced: usize,
    /// How many of both are to be there.
    wanted: usize,
}

impl Progress {
    fn of(core: &Core, config: &Config) -> Self {
        let instance = core.instance.borrow();
        let states: Vec<_> = instance.upstreams().iter().map(|upstream| upstream.state).collect();
        let is_connected =
            |state: &&State| !matches!(state, State::Disconnected | State::Connecting | State::Stopped);
        let is_synced = |state: &&State| matches!(state, State::Following | State::Myself);
        Self {
            connected: states.iter().filter(is_connected).count(),
            synced: states.iter().filter(is_synced).count(),
            wanted: config.replication_connect_quorum.of(states.len()),
        }
    }
}
