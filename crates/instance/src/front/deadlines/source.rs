//! Sources of deadlines, in the order in which a turn asks them.

/// Something that has deadlines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The queue comes up after a loss of rows. Until it is up the other sources but for log-ins and memory wait.
    Rebuild,
    /// The queue has to follow a change of `read_only` that it could not follow at once.
    ReadOnly,
    /// Delays, ttl, ttr, waiting calls, sessions.
    Queue,
    /// Long calls of the queue, and jobs over many tasks.
    Jobs,
    /// Log-ins whose answer was delayed.
    Logins,
    /// Expiration tasks. A step is a slice of one task.
    Expiration,
    /// Memory of truncated and dropped spaces, and of data that were lost.
    Garbage,
    /// SELECTs that take more than a turn.
    Selects,
    /// Checkpoints that are due.
    Checkpoint,
    /// The history of the instance.
    History,
}

impl Source {
    pub(crate) const ALL: [Self; 10] = [
        Self::Rebuild,
        Self::ReadOnly,
        Self::Logins,
        Self::Queue,
        Self::Expiration,
        Self::Garbage,
        Self::Jobs,
        Self::Selects,
        Self::Checkpoint,
        Self::History,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Rebuild => "rebuild",
            Self::ReadOnly => "read_only",
            Self::Queue => "queue",
            Self::Jobs => "jobs",
            Self::Logins => "logins",
            Self::Expiration => "expiration",
            Self::Garbage => "garbage",
            Self::Selects => "selects",
            Self::Checkpoint => "checkpoint",
            Self::History => "history",
        }
    }

    /// Whether it is background work.
    pub(super) const fn is_background(self) -> bool {
        matches!(self, Self::Jobs | Self::Selects)
    }
}
