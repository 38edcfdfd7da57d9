//! One phase of a load: what every slot does, until when, and what came of it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;

use super::course::Course;
use crate::account::{Account, Payload};
use crate::protocol::{Operation, PutOptions};

/// When a phase ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    /// No round begins after so long.
    For(Duration),
    /// This number of rounds, of all slots together.
    Rounds(u64),
}

/// The options with which tasks are put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Putting {
    /// None.
    Plain,
    /// Priorities from 0 up to this number, in an order that looks random.
    Priorities(u64),
    /// A delay in seconds.
    Delayed(u32),
    /// This number of sub-queues in turn, from 0 on.
    SubQueues(u64),
    /// Every slot has a sub-queue of its own, from this number on, and passes it on with its task: the slot that
    /// acknowledges a task puts the next one into the sub-queue that thereby became free.
    OwnSubQueue(u64),
}

/// What the slots do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Put, take, acknowledge.
    Cycles { bound: Bound, putting: Putting },
    /// The same with this number of tasks in each request.
    Batches { bound: Bound, size: u32 },
    /// Put only.
    Fill { count: u64, putting: Putting },
    /// Take and keep.
    Hold { count: u64 },
    /// Take and acknowledge.
    Drain { count: u64 },
    /// The last connection's first slot puts a task as soon as the one before is acknowledged; all slots of the other
    /// connections wait for tasks and acknowledge them.
    Wake { count: u64 },
}

impl Plan {
    fn bound(self) -> Bound {
        match self {
            Self::Cycles { bound, .. } | Self::Batches { bound, .. } => bound,
            Self::Fill { count, .. }
            | Self::Hold { count }
            | Self::Drain { count }
            | Self::Wake { count } => Bound::Rounds(count),
        }
    }

    fn putting(self) -> Putting {
        match self {
            Self::Cycles { putting, .. } | Self::Fill { putting, .. } => putting,
            Self::Batches { .. } | Self::Hold { .. } | Self::Drain { .. } | Self::Wake { .. } => {
                Putting::Plain
            }
        }
    }

    /// Tasks of each request.
    fn batch(self) -> u32 {
        match self {
            Self::Batches { size, .. } => size,
            _ => 1,
        }
    }

    /// What the slots of a connection are for.
    pub(super) fn role(self, is_last_connection: bool) -> Role {
        match self {
            Self::Wake { .. } if is_last_connection => Role::Producer,
            Self::Wake { .. } => Role::Consumer,
            _ => Role::Worker,
        }
    }

    /// What a slot does in turn.
    fn steps(self, role: Role) -> &'static [Operation] {
        match (self, role) {
            (Self::Cycles { .. } | Self::Batches { .. }, _) => &Operation::ALL,
            (Self::Fill { .. }, _) | (Self::Wake { .. }, Role::Producer) => &[Operation::Put],
            (Self::Hold { .. }, _) => &[Operation::Take],
            (Self::Drain { .. } | Self::Wake { .. }, _) => &[Operation::Take, Operation::Ack],
        }
    }
}

/// What a slot is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// It does rounds until the bound.
    Worker,
    /// It does a round on each call, until the bound.
    Producer,
    /// It waits for tasks as long as another slot works.
    Consumer,
}

/// What came of a phase.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Rounds through the steps of the plan, all of them whole; with [`Plan::Batches`] counted by tasks.
    pub(crate) rounds: u64,
    /// From the first request to the last answer.
    pub(crate) elapsed: Duration,
    /// Nanoseconds from request to answer, one histogram for each of [`Operation::ALL`]. With [`Plan::Wake`] that of
    /// take counts from the put of the task.
    pub(crate) latencies: [Histogram<u64>; 3],
    /// How the rounds were spread over the time.
    pub(crate) course: Course,
}

impl Outcome {
    /// That of something that took so long and did `rounds` without a request.
    pub(crate) fn without_requests(rounds: u64, elapsed: Duration) -> Result<Self> {
        Ok(Self { rounds, elapsed, latencies: new_histograms()?, course: Course::new() })
    }
}

/// The one task that is under way with [`Plan::Wake`].
#[derive(Debug, Clone, Copy, Default)]
struct Awaited {
    /// Nanoseconds since the phase began.
    asked_at: u64,
    put_is_answered: bool,
    is_acknowledged: bool,
}

/// A phase that is under way.
#[derive(Debug)]
pub(super) struct Phase<'a> {
    plan: Plan,
    pub(super) account: &'a mut Account,
    pub(super) payload: &'a mut Payload,
    began: Instant,
    /// Nanoseconds since `began`, as of the last look at the clock.
    now: u64,
    rounds_begun: u64,
    rounds_done: u64,
    is_over: bool,
    /// Slots that have to finish before the phase can.
    active: usize,
    latencies: [Histogram<u64>; 3],
    course: Course,
    /// The sub-queues of the tasks under way, with [`Putting::OwnSubQueue`].
    sub_queues: HashMap<u64, u64>,
    awaited: Awaited,
}

impl<'a> Phase<'a> {
    pub(super) fn new(plan: Plan, account: &'a mut Account, payload: &'a mut Payload) -> Result<Self> {
        Ok(Self {
            plan,
            account,
            payload,
            began: Instant::now(),
            now: 0,
            rounds_begun: 0,
            rounds_done: 0,
            is_over: false,
            active: 0,
            latencies: new_histograms()?,
            course: Course::new(),
            sub_queues: HashMap::new(),
            awaited: Awaited::default(),
        })
    }

    pub(super) fn steps(&self, role: Role) -> &'static [Operation] {
        self.plan.steps(role)
    }

    /// Tasks of each request; with more than one they are batches.
    pub(super) fn batch(&self) -> u32 {
        self.plan.batch()
    }

    pub(super) fn active(&self) -> usize {
        self.active
    }

    /// How long to wait for the server at most before the clock has to be looked at.
    pub(super) fn patience(&self) -> Duration {
        const LONGEST: Duration = Duration::from_secs(1);
        match self.plan.bound() {
            Bound::For(length) if !self.is_over => length.saturating_sub(self.began.elapsed()).min(LONGEST),
            _ => LONGEST,
        }
    }

    pub(super) fn look_at_clock(&mut self) {
        let elapsed = self.began.elapsed();
        self.now = elapsed.as_nanos() as u64;
        self.course.note(self.now, self.rounds_done);
        self.is_over |= matches!(self.plan.bound(), Bound::For(length) if elapsed >= length);
    }

    /// How far it is, and the rate so far, in words.
    pub(super) fn progress(&self) -> String {
        let (seconds, done) = (self.now as f64 / 1e9, self.rounds_done);
        let far = match self.plan.bound() {
            Bound::For(length) => format!("{seconds:.1} of {:.1} s", length.as_secs_f64()),
            Bound::Rounds(count) => format!("{done} of {count} rounds"),
        };
        format!("{far}, {:.0} per second", done as f64 / seconds.max(f64::MIN_POSITIVE))
    }

    /// Nanoseconds since the phase began, as of the last look at the clock.
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    pub(super) fn enlist(&mut self, role: Role) {
        self.active += usize::from(role != Role::Consumer);
    }

    pub(super) fn retire(&mut self) {
        self.active -= 1;
    }

    /// Whether a slot may begin a round, and if so notes that it did.
    pub(super) fn begin_round(&mut self, role: Role) -> bool {
        if role == Role::Consumer {
            return true;
        }
        let may = match self.plan.bound() {
            Bound::For(_) => !self.is_over,
            Bound::Rounds(count) => self.rounds_begun < count,
        };
        self.rounds_begun += if may { u64::from(self.batch()) } else { 0 };
        if may && role == Role::Producer {
            self.awaited = Awaited { asked_at: self.now, ..Awaited::default() };
        }
        may
    }

    /// Notes that a slot has done all steps.
    pub(super) fn end_round(&mut self, role: Role) {
        match role {
            Role::Worker => self.rounds_done += u64::from(self.batch()),
            Role::Producer => self.awaited.put_is_answered = true,
            Role::Consumer => {
                self.awaited.is_acknowledged = true;
                self.rounds_done += 1;
            }
        }
    }

    /// Whether the producer is to do its next round; true once for each.
    pub(super) fn take_turn_of_producer(&mut self) -> bool {
        let is_due = self.awaited.put_is_answered && self.awaited.is_acknowledged;
        if is_due {
            self.awaited = Awaited::default();
        }
        is_due
    }

    /// Notes an answer to a request that was sent at `asked_at`.
    pub(super) fn record(&mut self, operation: Operation, role: Role, asked_at: u64) {
        let woken = role == Role::Consumer && operation == Operation::Take;
        let since = if woken { self.awaited.asked_at } else { asked_at };
        self.latencies[operation as usize].saturating_record(self.now.saturating_sub(since));
    }

    /// The options for putting task `number` by a slot whose own sub-queue is `own`.
    pub(super) fn put_options(&mut self, number: u64, own: u64) -> PutOptions {
        let none = PutOptions::default();
        match self.plan.putting() {
            Putting::Plain => none,
            Putting::Priorities(count) => {
                PutOptions { priority: Some(scattered(number) % count.max(1)), ..none }
            }
            Putting::Delayed(seconds) => PutOptions { delay_seconds: Some(seconds), ..none },
            Putting::SubQueues(count) => PutOptions { sub_queue: Some(number % count.max(1)), ..none },
            Putting::OwnSubQueue(first) => {
                self.sub_queues.insert(number, own);
                PutOptions { sub_queue: Some(first + own), ..none }
            }
        }
    }

    /// The own sub-queue of the slot that put task `number`; `None` without [`Putting::OwnSubQueue`].
    ///
    /// # Errors
    /// The task is none of this phase, so that its sub-queue is not one of the free ones.
    pub(super) fn sub_queue_of(&mut self, number: u64) -> Result<Option<u64>> {
        if !matches!(self.plan.putting(), Putting::OwnSubQueue(_)) {
            return Ok(None);
        }
        let sub_queue = self.sub_queues.remove(&number);
        sub_queue.map(Some).with_context(|| format!("task {number} of a busy sub-queue was handed out"))
    }

    pub(super) fn finish(self) -> Outcome {
        Outcome {
            rounds: self.rounds_done,
            elapsed: self.began.elapsed(),
            latencies: self.latencies,
            course: self.course,
        }
    }
}

/// Each from 100 ns to 100 s with three digits.
fn new_histograms() -> Result<[Histogram<u64>; 3]> {
    let histogram = Histogram::new_with_bounds(100, 100_000_000_000, 3).context("cannot make a histogram")?;
    Ok([histogram.clone(), histogram.clone(), histogram])
}

/// A number that looks random, always the same for the same `number`.
fn scattered(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 17
}
