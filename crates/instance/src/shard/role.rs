//! The role of a shard: whether it takes writes, and how its queue follows a change of that.

mod change;

/// Pause before the queue is asked again to come up, in microseconds.
const QUEUE_RETRY: u64 = 1_000_000;

/// The remaining steps of a change of the role.
#[derive(Default)]
pub(crate) struct RoleDeadlines {
    /// When to ask the queue again to follow a change of `read_only`.
    queue_retry: Option<u64>,
    /// When to refuse calls that wait since before the instance became read-only.
    waiting_ends: Option<u64>,
}

impl RoleDeadlines {
    /// Asks the queue again to come up, after a pause.
    pub(crate) fn retry_queue(&mut self, now: u64) {
        self.queue_retry = Some(now + QUEUE_RETRY);
    }

    fn next(&self) -> Option<u64> {
        self.queue_retry.into_iter().chain(self.waiting_ends).min()
    }
}
