//! What happens by itself: the sources of deadlines, and how much of a turn each may take.
//!
//! A new source is a variant of [`Source`], its name, and its step. Each turn asks every source for steps, until it has
//! nothing more to do or has had its share. A step is small (some tenths of a millisecond), so a turn stays under a
//! millisecond whatever is due; the rest follows in the next turns, between which requests are served.
//!
//! Microseconds of a turn are measured by a monotonic clock that the embedding program gives
//! ([`Instance::set_elapsed`]). Without one only the number of steps bounds a turn, which is then repeatable. A
//! second clock counts the processor's time ([`Instance::set_processor_time`]): on a busy machine the system may take
//! the core away in the middle of a step, and only the processor's time says what the step itself has cost.
//!
//! Requests that may take long and ends of sessions happen outside of [`Instance::tick`]; [`Instance::measured`] notes
//! how long they held the loop.

use lycosa_replication::sync::UpstreamState;

use crate::Instance;

/// Something that has deadlines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// The queue has to follow a change of `read_only` that it could not follow at once.
    ReadOnly,
    /// Delays, ttl, ttr, waiting calls, sessions, long calls.
    Queue,
    /// Log-ins whose answer was delayed.
    Logins,
    /// Expiration tasks. A step is a slice of one task.
    Expiration,
    /// Memory of truncated and dropped spaces.
    Garbage,
    /// SELECTs that take more than a turn.
    Selects,
    /// Checkpoints that are due.
    Checkpoint,
}

impl Source {
    const ALL: [Self; 7] = [
        Self::ReadOnly,
        Self::Logins,
        Self::Queue,
        Self::Expiration,
        Self::Garbage,
        Self::Selects,
        Self::Checkpoint,
    ];

    const fn name(self) -> &'static str {
        match self {
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

/// What holds the loop outside of the sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outside {
    /// One request that may take long: not those by which tasks go through a tube one by one.
    Request,
    /// The end of one session.
    Disconnect,
}

impl Outside {
    const ALL: [Self; 2] = [Self::Request, Self::Disconnect];

    const fn name(self) -> &'static str {
        match self {
            Self::Request => "requests",
            Self::Disconnect => "disconnects",
        }
    }

    const fn place(self) -> usize {
        Source::ALL.len() + self as usize
    }
}

/// Names of what may hold the loop.
const NAMES: usize = Source::ALL.len() + Outside::ALL.len();

/// Microseconds after which the processor's time is asked for: that is a system call.
const WORTH_ASKING: u64 = 50;

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
pub(crate) struct Deadlines {
    /// Microseconds by a clock that never goes back.
    elapsed: Box<dyn Fn() -> u64 + Send>,
    /// Somebody has given the clock.
    has_clock: bool,
    /// Microseconds of the processor that this thread has had.
    processor: Box<dyn Fn() -> u64 + Send>,
    /// What it was when it was asked for last.
    last_processor: u64,
    /// The longest that each source has held a turn, in microseconds; then each of [`Outside`].
    longest: [u64; NAMES],
    /// The same by the processor's time.
    longest_cpu: [u64; NAMES],
    /// When to ask the queue again to follow a change of `read_only`.
    queue_retry: Option<u64>,
    /// When to refuse calls that wait since before the instance became read-only.
    waiting_ends: Option<u64>,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            elapsed: Box::new(|| 0),
            has_clock: false,
            processor: Box::new(|| 0),
            last_processor: 0,
            longest: [0; NAMES],
            longest_cpu: [0; NAMES],
            queue_retry: None,
            waiting_ends: None,
        }
    }
}

impl Deadlines {
    /// Microseconds by the clock that was given, if one was.
    pub(crate) fn clock(&self) -> Option<u64> {
        self.has_clock.then(|| (self.elapsed)())
    }

    /// Microseconds of the processor so far; 0 if nobody has given a clock for it.
    pub(crate) fn processor(&self) -> u64 {
        (self.processor)()
    }

    /// Microseconds of the processor since the last call.
    fn processor_since(&mut self) -> u64 {
        let now = self.processor();
        now.saturating_sub(std::mem::replace(&mut self.last_processor, now))
    }

    /// The longest that each source, a request and the end of a session have held a turn, in microseconds.
    pub(crate) fn longest_turns(&self) -> Vec<(&'static str, u64)> {
        names().zip(self.longest).collect()
    }

    /// The same by the processor's time.
    pub(crate) fn longest_turns_cpu(&self) -> Vec<(&'static str, u64)> {
        names().zip(self.longest_cpu).collect()
    }

    /// Asks the queue again to come up, after a pause.
    pub(crate) fn retry_queue(&mut self, now: u64) {
        self.queue_retry = Some(now + QUEUE_RETRY);
    }

    fn note(&mut self, place: usize, elapsed: u64, processor: u64) {
        self.longest[place] = self.longest[place].max(elapsed);
        self.longest_cpu[place] = self.longest_cpu[place].max(processor);
    }
}

fn names() -> impl Iterator<Item = &'static str> {
    Source::ALL.into_iter().map(Source::name).chain(Outside::ALL.into_iter().map(Outside::name))
}

impl Instance {
    /// Gives the instance a monotonic clock, in microseconds: what happens by itself then takes at most a share of each
    /// turn, and the status tells the longest turn of each source.
    pub fn set_elapsed(&mut self, elapsed: Box<dyn Fn() -> u64 + Send>) {
        self.deadlines.elapsed = elapsed;
        self.deadlines.has_clock = true;
    }

    /// Gives the instance a clock of the processor's time that its thread has had, in microseconds, for the status.
    pub fn set_processor_time(&mut self, processor: Box<dyn Fn() -> u64 + Send>) {
        self.deadlines.processor = processor;
    }

    /// Does something that may hold the loop, and notes for how long.
    pub(crate) fn measured<T>(&mut self, what: Outside, work: impl FnOnce(&mut Self) -> T) -> T {
        let began = (self.deadlines.elapsed)();
        let result = work(self);
        let elapsed = (self.deadlines.elapsed)().saturating_sub(began);
        // At most that: the processor's time is counted since it was asked for last.
        let processor = if elapsed > WORTH_ASKING { self.deadlines.processor_since() } else { 0 };
        self.deadlines.note(what.place(), elapsed, processor.min(elapsed));
        result
    }

    /// Does what is due and says when the next thing is, in microseconds since the epoch. While the journal is behind
    /// nothing is done: what is due makes rows too.
    pub fn tick(&mut self, now: u64) -> Option<u64> {
        self.begin_input(now);
        if self.data.failure.is_some() || self.is_journal_behind() {
            return self.finish_logins();
        }
        let began = (self.deadlines.elapsed)();
        let mut last = began;
        self.deadlines.processor_since();
        let mut next = None;
        for (place, source) in Source::ALL.into_iter().enumerate() {
            let mut steps = 0;
            let (due, held) = loop {
                let due = self.step(source);
                steps += 1;
                let elapsed = (self.deadlines.elapsed)();
                if due != Due::Now || steps == MAX_STEPS || elapsed.saturating_sub(began) > TURN {
                    break (due, elapsed.saturating_sub(std::mem::replace(&mut last, elapsed)));
                }
            };
            let processor = if held > WORTH_ASKING { self.deadlines.processor_since() } else { 0 };
            self.deadlines.note(place, held, processor.min(held));
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
            Source::ReadOnly => {
                self.sync_with_cluster();
                self.release_replicated();
                if self.deadlines.queue_retry.is_some_and(|at| at <= now) {
                    self.apply_read_only();
                }
                if self.deadlines.waiting_ends.is_some_and(|at| at <= now) {
                    self.deadlines.waiting_ends = None;
                    let (queue, store) = self.data.queue_mut();
                    queue.refuse_waiting(store, now);
                    self.deliver_committed();
                }
                let Deadlines { queue_retry, waiting_ends, .. } = self.deadlines;
                queue_retry.into_iter().chain(waiting_ends).min().into()
            }
            Source::Queue => {
                let (queue, store) = self.data.queue_mut();
                let tick = queue.tick(store, now, QUEUE_STEP);
                if tick.handled > 0 {
                    self.lag.record(tick.lag_us);
                }
                self.deliver_committed();
                if tick.more { Due::Now } else { tick.next.into() }
            }
            Source::Logins => self.finish_logins().into(),
            Source::Expiration => match self.tick_expiration() {
                Some(next) if next <= now => Due::Now,
                next => next.into(),
            },
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
        let (now, read_only) = (self.data.now, self.data.read_only);
        self.deadlines.waiting_ends = read_only.then(|| now.saturating_add(WAITING_GRACE));
        // Twice the greatest lag since the masters were heard last: what they have sent is applied then.
        let masters = self.upstreams().iter().filter(|upstream| upstream.state == UpstreamState::Following);
        let caught_up_at =
            masters.map(|master| master.heard_at.saturating_add(master.lag.saturating_mul(2))).max();
        let start_at = caught_up_at.unwrap_or(0).min(now.saturating_add(MAX_STARTUP));
        let (queue, store) = self.data.queue_mut();
        if !read_only && start_at > now && queue.state() == lycosa_queue::QueueState::Waiting {
            queue.begin_startup();
            self.deadlines.queue_retry = Some(start_at);
            self.deliver_committed();
            return;
        }
        let has_started = queue.state() != lycosa_queue::QueueState::Init;
        let applied = if has_started || read_only || !self.settings.native_queue {
            queue.set_read_only(store, read_only, now)
        } else {
            queue.start(store, now).map(drop)
        };
        self.deadlines.queue_retry = applied.is_err().then(|| now + QUEUE_RETRY);
        self.deliver_committed();
    }
}
