//! What happens by itself: the sources of deadlines, and how much of a turn each may take.
//!
//! A new source is a variant of [`Source`], its name, and its step. Each turn asks every source for steps, until it has
//! nothing more to do or has had its share. A step is small (some tenths of a millisecond), so a turn stays under a
//! millisecond whatever is due; the rest follows in the next turns, between which requests are served.
//!
//! Microseconds of a turn are measured by a monotonic clock that the embedding program gives
//! ([`Instance::set_elapsed`]). Without one only the number of steps bounds a turn, which is then repeatable.
//! [`crate::loop_time`] notes how long each source has held the loop.

use lycosa_replication::sync::UpstreamState;

use crate::Instance;
use crate::admission::Need;

/// Something that has deadlines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The queue comes up after a loss of rows. Until it is up the other sources but for log-ins and memory wait.
    Rebuild,
    /// The queue has to follow a change of `read_only` that it could not follow at once.
    ReadOnly,
    /// Delays, ttl, ttr, waiting calls, sessions, long calls.
    Queue,
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
}

impl Source {
    pub(crate) const ALL: [Self; 8] = [
        Self::Rebuild,
        Self::ReadOnly,
        Self::Logins,
        Self::Queue,
        Self::Expiration,
        Self::Garbage,
        Self::Selects,
        Self::Checkpoint,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Rebuild => "rebuild",
            Self::ReadOnly => "read_only",
            Self::Queue => "queue",
            Self::Logins => "logins",
            Self::Expiration => "expiration",
            Self::Garbage => "garbage",
            Self::Selects => "selects",
            Self::Checkpoint => "checkpoint",
        }
    }
}

/// When a source has something to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    Now,
    At(u64),
    Never,
}

impl From<Option<u64>> for Due {
    fn from(at: Option<u64>) -> Self {
        at.map_or(Self::Never, Self::At)
    }
}

/// Steps of one source in one turn.
const MAX_STEPS: usize = 16;

/// Microseconds of a turn after which every source that is still to come gets one step only.
const TURN: u64 = 400;

/// Tasks, calls and sessions that one step of the queue handles.
const QUEUE_STEP: usize = 64;

/// Tuples whose memory one step gives back.
const GARBAGE_STEP: u64 = 256;

/// Pause before a reply that waits for the journal is looked at again, in microseconds.
const SELECT_RETRY: u64 = 1000;

/// How long calls go on waiting on an instance that has become read-only, in microseconds: a change of the role that is
/// taken back at once costs nobody anything.
const WAITING_GRACE: u64 = 1_000_000;

/// The longest that the queue waits for rows of the old master before it starts, in microseconds.
const MAX_STARTUP: u64 = 20_000_000;

/// Pause before the queue is asked again to come up, in microseconds.
const QUEUE_RETRY: u64 = 1_000_000;

/// The state of the sources.
#[derive(Default)]
pub(crate) struct Deadlines {
    /// When to ask the queue again to follow a change of `read_only`.
    queue_retry: Option<u64>,
    /// When to refuse calls that wait since before the instance became read-only.
    waiting_ends: Option<u64>,
}

impl Deadlines {
    /// Asks the queue again to come up, after a pause.
    pub(crate) fn retry_queue(&mut self, now: u64) {
        self.queue_retry = Some(now + QUEUE_RETRY);
    }
}

impl Instance {
    /// Does what is due and says when the next thing is, in microseconds since the epoch. While the journal is behind
    /// nothing is done: what is due makes rows too.
    pub fn tick(&mut self, now: u64) -> Option<u64> {
        self.input(now, |instance| instance.do_due(now))
    }

    fn do_due(&mut self, now: u64) -> Option<u64> {
        if self.data.conditions.has_failed() || self.is_journal_behind() {
            return self.finish_logins();
        }
        self.loop_time.begin_turn(now);
        let began = self.loop_time.elapsed();
        let mut next = None;
        for (place, source) in Source::ALL.into_iter().enumerate() {
            let mut steps = 0;
            let due = loop {
                let due = self.settle(|instance| instance.step(source));
                steps += 1;
                let is_over = || self.loop_time.elapsed().saturating_sub(began) > TURN;
                if due != Due::Now || steps == MAX_STEPS || is_over() {
                    break due;
                }
            };
            self.loop_time.end_source(place);
            let at = match due {
                Due::Now => Some(now),
                Due::At(at) => Some(at),
                Due::Never => None,
            };
            next = next.into_iter().chain(at).min();
        }
        next
    }

    /// Lets one source do a little of what is due.
    fn step(&mut self, source: Source) -> Due {
        let now = self.data.now;
        match source {
            Source::Rebuild if self.step_rebuild(QUEUE_STEP) => Due::Now,
            Source::Rebuild => Due::Never,
            Source::ReadOnly | Source::Queue | Source::Expiration | Source::Selects | Source::Checkpoint
                if self.is_rebuilding() =>
            {
                Due::Never
            }
            Source::ReadOnly => {
                self.sync_with_cluster();
                self.release_replicated();
                if self.deadlines.queue_retry.is_some_and(|at| at <= now) {
                    self.apply_read_only();
                }
                if self.deadlines.waiting_ends.is_some_and(|at| at <= now) {
                    self.deadlines.waiting_ends = None;
                    let mut admitted = self.data.bookkeep();
                    let (queue, store) = admitted.queue();
                    queue.refuse_waiting(store, now);
                }
                let Deadlines { queue_retry, waiting_ends, .. } = self.deadlines;
                queue_retry.into_iter().chain(waiting_ends).min().into()
            }
            Source::Queue => {
                let Ok(mut admitted) = self.data.admit(Need::Deadline) else { return Due::Never };
                let (queue, store) = admitted.queue();
                let tick = queue.tick(store, now, QUEUE_STEP);
                drop(admitted);
                if tick.handled > 0 {
                    self.lag.record(tick.lag_us);
                }
                if tick.more { Due::Now } else { tick.next.into() }
            }
            Source::Logins => self.finish_logins().into(),
            Source::Expiration => match self.tick_expiration() {
                Some(next) if next <= now => Due::Now,
                next => next.into(),
            },
            Source::Garbage if self.free_former(GARBAGE_STEP) => Due::Now,
            Source::Garbage if self.data.upkeep().collect_garbage(GARBAGE_STEP) => Due::Now,
            Source::Garbage => Due::Never,
            Source::Selects if self.step_selects() => Due::Now,
            // One that waits for the journal goes on when that answers, or when it has waited long enough.
            Source::Selects if !self.selects.is_empty() => Due::At(now + SELECT_RETRY),
            Source::Selects => Due::Never,
            Source::Checkpoint => self.tick_checkpoints().into(),
        }
    }

    /// Tells the queue that `read_only` has changed, now or as soon as the rows of the masters are applied.
    pub(crate) fn apply_read_only(&mut self) {
        let (now, read_only) = (self.data.now, self.data.is_read_only());
        if self.is_rebuilding() {
            // It is told when it is up.
            self.deadlines.queue_retry = Some(now);
            return;
        }
        self.deadlines.waiting_ends = read_only.then(|| now.saturating_add(WAITING_GRACE));
        // Twice the greatest lag since the masters were heard last: what they have sent is applied then.
        let masters = self.upstreams().iter().filter(|upstream| upstream.state == UpstreamState::Following);
        let caught_up_at =
            masters.map(|master| master.heard_at.saturating_add(master.lag.saturating_mul(2))).max();
        let awaits_demand = self.awaits_demand();
        let start_at = caught_up_at.unwrap_or(0).min(now.saturating_add(MAX_STARTUP));
        let mut admitted = self.data.bookkeep();
        let (queue, store) = admitted.queue();
        if !read_only && start_at > now && queue.state() == lycosa_queue::QueueState::Waiting {
            queue.begin_startup();
            self.deadlines.queue_retry = Some(start_at);
            return;
        }
        let has_started = queue.state() != lycosa_queue::QueueState::Init;
        let applied = if has_started || read_only || awaits_demand || !self.settings.native_queue {
            queue.set_read_only(store, read_only, now)
        } else {
            queue.start(store, now).map(drop)
        };
        self.deadlines.queue_retry = applied.is_err().then(|| now + QUEUE_RETRY);
    }
}
