//! What happens by itself: the sources of deadlines, and how much of a turn each may take.
//!
//! A new source is a variant of [`Source`], its name, and its step. Each turn asks every source for steps, until it has
//! nothing more to do or has had its share. A step is small (some tenths of a millisecond), so a turn stays under a
//! millisecond whatever is due; the rest follows in the next turns, between which requests are served.
//!
//! Microseconds of a turn are measured by a monotonic clock that the embedding program gives
//! ([`Instance::set_elapsed`]). Without one only the number of steps bounds a turn, which is then repeatable.

use crate::Instance;

/// Something that has deadlines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// The queue has to follow a change of `read_only` that it could not follow at once.
    ReadOnly,
    /// Delays, ttl, ttr, waiting calls, sessions, long calls.
    Queue,
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
    const ALL: [Self; 6] =
        [Self::ReadOnly, Self::Queue, Self::Expiration, Self::Garbage, Self::Selects, Self::Checkpoint];

    const fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "read_only",
            Self::Queue => "queue",
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

/// Pause before the queue is asked again to come up, in microseconds.
const QUEUE_RETRY: u64 = 1_000_000;

/// The state of the sources.
pub(crate) struct Deadlines {
    /// Microseconds by a clock that never goes back.
    elapsed: Box<dyn Fn() -> u64 + Send>,
    /// Somebody has given the clock.
    has_clock: bool,
    /// The longest that each source has held a turn, in microseconds.
    longest: [u64; Source::ALL.len()],
    /// When to ask the queue again to follow a change of `read_only`.
    queue_retry: Option<u64>,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self { elapsed: Box::new(|| 0), has_clock: false, longest: [0; Source::ALL.len()], queue_retry: None }
    }
}

impl Deadlines {
    /// Microseconds by the clock that was given, if one was.
    pub(crate) fn clock(&self) -> Option<u64> {
        self.has_clock.then(|| (self.elapsed)())
    }

    /// The longest that each source has held a turn, in microseconds.
    pub(crate) fn longest_turns(&self) -> Vec<(&'static str, u64)> {
        Source::ALL.into_iter().map(Source::name).zip(self.longest).collect()
    }
}

impl Instance {
    /// Gives the instance a monotonic clock, in microseconds: what happens by itself then takes at most a share of each
    /// turn, and the status tells the longest turn of each source.
    pub fn set_elapsed(&mut self, elapsed: Box<dyn Fn() -> u64 + Send>) {
        self.deadlines.elapsed = elapsed;
        self.deadlines.has_clock = true;
    }

    /// Does what is due and says when the next thing is, in microseconds since the epoch. While the journal is behind
    /// nothing is done: what is due makes rows too.
    pub fn tick(&mut self, now: u64) -> Option<u64> {
        self.begin_input(now);
        if self.data.failure.is_some() || self.is_journal_behind() {
            return None;
        }
        let began = (self.deadlines.elapsed)();
        let mut last = began;
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
            let longest = &mut self.deadlines.longest[place];
            *longest = held.max(*longest);
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
                self.follow_cluster();
                if self.deadlines.queue_retry.is_some_and(|at| at <= now) {
                    self.follow_read_only();
                }
                self.deadlines.queue_retry.into()
            }
            Source::Queue => {
                let (queue, store) = self.data.queue_mut();
                let tick = queue.tick(store, now, QUEUE_STEP);
                if tick.handled > 0 {
                    self.lag.record(tick.lag_us);
                }
                self.settle();
                if tick.more { Due::Now } else { tick.next.into() }
            }
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

    /// Lets the queue follow a change of `read_only`, now or later.
    pub(crate) fn follow_read_only(&mut self) {
        let (now, read_only) = (self.data.now, self.data.read_only);
        let (queue, store) = self.data.queue_mut();
        let has_started = queue.state() != lycosa_queue::QueueState::Init;
        let followed = if has_started || read_only {
            queue.set_read_only(store, read_only, now)
        } else {
            queue.start(store, now).map(drop)
        };
        self.deadlines.queue_retry = followed.is_err().then(|| now + QUEUE_RETRY);
        self.settle();
    }
}
