//! Synchronization with masters: quorum, sync lag, orphan.
//!
//! An instance with masters is an *orphan* from its start until enough of them are connected and in sync. An orphan takes
//! no writes. How many are enough is `replication_connect_quorum`, at most the number of masters that are configured.

use lycosa_iproto::vclock::Vclock;

/// What an applier is doing, with the names of `box.info.replication[n].upstream.status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UpstreamState {
    /// Not connected; an attempt will follow.
    #[default]
    Disconnected,
    /// A connection is being made.
    Connecting,
    /// The peer has taken the account.
    Connected,
    /// All data are being received.
    Joining,
    /// The log is followed, and is behind.
    Syncing,
    /// The log is followed.
    Following,
    /// A row could not be applied, or the master refuses: nothing is done until the configuration changes.
    Stopped,
    /// The address is this instance's own.
    Myself,
}

impl UpstreamState {
    /// The state's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Disconnected => "disconnected",
            Self::Connecting => "connect",
            Self::Connected => "connected",
            Self::Joining => "join",
            Self::Syncing => "sync",
            Self::Following => "follow",
            Self::Stopped => "stopped",
            Self::Myself => "myself",
        }
    }
}

/// What decides about a follower that is behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncRule {
    /// Masters that must be in sync before the instance takes writes.
    pub quorum: usize,
    /// Lag, in microseconds, below which a master counts as in sync.
    pub sync_lag: u64,
}

impl SyncRule {
    /// Whether a follower with `lag` that has applied everything up to `own` is in sync with a master that had `start`
    /// when it was subscribed to.
    #[must_use]
    pub fn is_synced(&self, lag: u64, own: &Vclock, start: Option<&Vclock>) -> bool {
        let Some(start) = start else { return false };
        lag <= self.sync_lag && start.iter().all(|(id, lsn)| id == 0 || own.get(id) >= lsn)
    }
}

/// Decides whether the instance is an orphan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sync {
    is_orphan: bool,
}

impl Sync {
    /// At the start: an orphan if there are masters.
    #[must_use]
    pub fn new(masters: usize) -> Self {
        Self { is_orphan: masters > 0 }
    }

    /// Whether the instance takes no writes because too few masters are in sync.
    #[must_use]
    pub fn is_orphan(&self) -> bool {
        self.is_orphan
    }

    /// Looks at the states of all masters. Once in sync, an instance stays so until it is configured anew: a master that
    /// dies does not make its replicas orphans. Returns whether the answer has changed.
    pub fn update(&mut self, rule: &SyncRule, states: &[UpstreamState]) -> bool {
        let is_there =
            |state: &&UpstreamState| matches!(state, UpstreamState::Following | UpstreamState::Myself);
        let synced = states.iter().filter(is_there).count();
        let was = self.is_orphan;
        self.is_orphan &= synced < rule.quorum.min(states.len());
        was != self.is_orphan
    }
}

#[cfg(test)]
mod tests {
    use super::UpstreamState::*;
    use super::*;

    #[test]
    fn an_orphan_waits_for_its_quorum_once() {
        let rule = SyncRule { quorum: 2, sync_lag: 10 };
        let mut sync = Sync::new(3);
        assert!(sync.is_orphan());
        assert!(!sync.update(&rule, &[Following, Syncing, Connecting]));
        assert!(sync.update(&rule, &[Following, Myself, Disconnected]));
        assert!(!sync.update(&rule, &[Disconnected, Disconnected, Disconnected]) && !sync.is_orphan());
        let mut sync = Sync::new(1);
        assert!(sync.update(&SyncRule { quorum: 5, sync_lag: 0 }, &[Following]));
        let mut sync = Sync::new(1);
        assert!(sync.update(&SyncRule { quorum: 0, sync_lag: 0 }, &[Stopped]));
        assert!(!Sync::new(0).is_orphan());
    }

    #[test]
    fn in_sync_means_near_and_complete() {
        let rule = SyncRule { quorum: 1, sync_lag: 10 };
        let clock = |lsn| {
            let mut clock = Vclock::new();
            clock.set(1, lsn).expect("an id below 32");
            clock
        };
        assert!(rule.is_synced(10, &clock(5), Some(&clock(5))));
        assert!(!rule.is_synced(11, &clock(5), Some(&clock(5))));
        assert!(!rule.is_synced(0, &clock(4), Some(&clock(5))));
        assert!(!rule.is_synced(0, &clock(4), None));
    }
}
