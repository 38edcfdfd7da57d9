//! Rules: the settings of an operator that a shard follows.

/// The operator's settings of a shard.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rules {
    /// Bytes of rows that may wait for the journal before nothing more is taken.
    pub(crate) max_journal_backlog: usize,
    /// See [`Settings`](crate::Settings).
    pub(crate) checkpoint_interval: u64,
    /// See [`Settings`](crate::Settings).
    pub(crate) checkpoint_wal_threshold: u64,
    /// See [`Settings`](crate::Settings).
    pub(crate) checkpoint_count: usize,
    /// See [`Settings`](crate::Settings).
    pub(crate) replica_journal_limit: u64,
    /// See [`Settings`](crate::Settings).
    pub(crate) replicas_before_reply: usize,
    /// See [`Settings`](crate::Settings).
    pub(crate) refuses_without_replicas: bool,
    /// See [`Settings`](crate::Settings).
    pub(crate) native_queue: bool,
    /// See [`Settings`](crate::Settings).
    pub(crate) queue_on_demand: bool,
}
