//! How a node behaves: its times and its bounds.
//!
//! Absent: the bounds of memory themselves ([`Limits`]).

use crate::base::FEATURE_LEVEL;
use crate::window::Limits;

/// Ticks between two heartbeats of a leader.
pub const HEARTBEAT_TICKS: usize = 4;
/// Ticks without a leader after which the member of rank 0 campaigns. A leader without a majority steps down after at most
/// twice as many.
pub const ELECTION_TICKS: usize = 12;
/// Ticks by which each rank campaigns later than the one before it.
pub const RANK_TICKS: usize = 4;

/// How a node behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The election timeout of rank 0, in microseconds, at least [`ELECTION_TICKS`].
    pub election_timeout: u64,
    /// How long a leader waits for its own disk before it hands over, in microseconds.
    pub disk_patience: u64,
    /// Bounds of memory and messages.
    pub limits: Limits,
    /// The level of rows and records that this program knows.
    pub knows: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            election_timeout: 300_000,
            disk_patience: 5_000_000,
            limits: Limits::default(),
            knows: FEATURE_LEVEL,
        }
    }
}

/// Why settings are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The election timeout is shorter than its ticks.
    #[error(
        "the election timeout is {0} µs and has {ELECTION_TICKS} ticks: give each tick a microsecond at least"
    )]
    ElectionTimeout(u64),
    /// A message could hold more than may be uncommitted.
    #[error(
        "at most {uncommitted} bytes of proposals may be uncommitted, and a message may have {message}: allow at least the \
         bytes of one message"
    )]
    Uncommitted {
        /// [`Limits::uncommitted_bytes`].
        uncommitted: u64,
        /// [`Limits::message_bytes`].
        message: u64,
    },
    /// Nothing could be sent.
    #[error("0 messages to a follower may be unanswered: allow at least 1")]
    InFlight,
}

impl Settings {
    /// # Errors
    /// The settings are not within the bounds that their fields name.
    pub(super) fn check(&self) -> Result<(), SettingsError> {
        let Limits { message_bytes, messages_in_flight, uncommitted_bytes, .. } = self.limits;
        if self.election_timeout < ELECTION_TICKS as u64 {
            return Err(SettingsError::ElectionTimeout(self.election_timeout));
        }
        if messages_in_flight == 0 {
            return Err(SettingsError::InFlight);
        }
        if uncommitted_bytes < message_bytes {
            return Err(SettingsError::Uncommitted {
                uncommitted: uncommitted_bytes,
                message: message_bytes,
            });
        }
        Ok(())
    }
}
