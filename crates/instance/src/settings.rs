//! Settings: the operator's choices for an instance. Every bound is named here once.

use crate::shard::rules::Rules;

/// Limits and rules of the running process; all may change while it runs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Largest request frame, in bytes.
    pub max_frame_size: usize,
    /// Connections at a time.
    pub max_connections: usize,
    /// Replies of one connection that may wait for the journal before its requests are no longer read; 0 counts as 1.
    pub max_in_flight: u64,
    /// Calls of one connection that may wait for something to happen (a `take` for a task); further ones are refused.
    pub max_waiting: usize,
    /// Bytes of replies that may wait for a slow reader before its requests are no longer read.
    pub max_output: usize,
    /// Bytes of replies of all connections that may wait for readers. The nearer the sum comes to it, the less may wait for
    /// one connection; beyond it the worst connection is closed.
    pub max_output_total: usize,
    /// Bytes of requests of all connections that have not come as a whole; four times `max_frame_size` is always allowed.
    /// Beyond it the worst connection is closed.
    pub max_input_total: usize,
    /// Bytes of rows that may wait for the journal before no requests are read at all.
    pub max_journal_backlog: usize,
    /// Time after which a checkpoint is due if anything has changed, in microseconds; 0 for never.
    pub checkpoint_interval: u64,
    /// Bytes of the journal since the last snapshot before which its size makes no checkpoint due. A quarter of the
    /// constant part of what the data folder may take.
    pub checkpoint_wal_threshold: u64,
    /// Snapshots to keep, while the disk has free space; at least one.
    pub checkpoint_count: usize,
    /// Bytes of journals that may stay for replicas alone. The instance only shows it: who removes files keeps to it.
    pub replica_journal_limit: u64,
    /// Replicas that must have the rows of a change on their disks before its reply leaves; 0 waits for none.
    pub replicas_before_reply: usize,
    /// Whether changes are refused while fewer replicas are connected. If not, their replies wait.
    pub refuses_without_replicas: bool,
    /// Whether `guest` may use the queue and create tubes on a loopback connection.
    pub guest_on_loopback: bool,
    /// Whether the host runs programs: it takes what [`Instance::poll_invoke`](crate::Instance::poll_invoke) has. If not, EVAL
    /// and functions that are not native are answered with an error.
    pub lua: bool,
    /// A program is about to take requests, and its `box.cfg` still waits for masters: EVAL, SQL and calls of functions that
    /// are not native are refused with `ER_LOADING`, so that clients try again (default false).
    pub loading: bool,
    /// Names that begin with `queue.` are the native queue's. If not, a program has a queue of its own (default true).
    pub native_queue: bool,
    /// The native queue starts when a program asks for it ([`crate::Instance::start_on_demand`]), never for a client's call. A
    /// program that never asks has no spaces of the queue among its own, and a `_queue` in its data is a space like others: it
    /// may be that of a module of the program (default false).
    pub queue_on_demand: bool,
    /// A program has tubes with drivers of its own: functions about all tubes (`queue.create_tube`, `queue.statistics`)
    /// goes to the program (default false).
    pub program_tubes: bool,
    /// A space of the queue has triggers: operations on tubes go to the program, which runs them (default false).
    pub hooked_queue: bool,
}

impl Settings {
    /// The shard's part of the settings.
    pub(crate) fn rules(&self) -> Rules {
        Rules {
            max_journal_backlog: self.max_journal_backlog,
            checkpoint_interval: self.checkpoint_interval,
            checkpoint_wal_threshold: self.checkpoint_wal_threshold,
            checkpoint_count: self.checkpoint_count,
            replica_journal_limit: self.replica_journal_limit,
            replicas_before_reply: self.replicas_before_reply,
            refuses_without_replicas: self.refuses_without_replicas,
            native_queue: self.native_queue,
            queue_on_demand: self.queue_on_demand,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            max_frame_size: 16 << 20,
            max_connections: 10_240,
            max_in_flight: 4096,
            max_waiting: 4096,
            max_output: 16 << 20,
            max_output_total: 256 << 20,
            max_input_total: 256 << 20,
            max_journal_backlog: 64 << 20,
            checkpoint_interval: 0,
            checkpoint_wal_threshold: 256 << 20,
            checkpoint_count: 2,
            replica_journal_limit: 1 << 30,
            replicas_before_reply: 0,
            refuses_without_replicas: false,
            guest_on_loopback: true,
            lua: false,
            loading: false,
            native_queue: true,
            queue_on_demand: false,
            program_tubes: false,
            hooked_queue: false,
        }
    }
}
