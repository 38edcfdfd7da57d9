//! Sources of deadlines, in the order in which a turn asks them.

lycosa_queue::named! {
    /// Something that has deadlines.
    pub(crate) enum Source {
        /// The queue comes up after a loss of rows. Until it is up the other sources but for log-ins and memory wait.
        Rebuild = "rebuild",
        /// The queue has to follow a change of `read_only` that it could not follow at once.
        ReadOnly = "read_only",
        /// Log-ins whose answer was delayed.
        Logins = "logins",
        /// Delays, ttl, ttr, waiting calls, sessions.
        Queue = "queue",
        /// Expiration tasks. A step is a slice of one task.
        Expiration = "expiration",
        /// Memory of truncated and dropped spaces, and of data that were lost.
        Garbage = "garbage",
        /// Long calls of the queue, and jobs over many tasks.
        Jobs = "jobs",
        /// SELECTs that take more than a turn.
        Selects = "selects",
        /// Checkpoints that are due.
        Checkpoint = "checkpoint",
        /// The history of the instance.
        History = "history",
    }
}

impl Source {
    /// Whether it is background work.
    pub(super) const fn is_background(self) -> bool {
        matches!(self, Self::Jobs | Self::Selects)
    }
}
