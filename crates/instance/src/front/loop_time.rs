//! Times of the loop: each part of a turn, each long request, and the longest turn as a whole with its parts.
//!
//! Two clocks measure it. The first never goes back ([`Instance::set_elapsed`]). The second counts the processor's time of
//! the loop's thread ([`Instance::set_processor_time`]): on a busy machine the system may take the core away in the middle
//! of a step, and only the processor's time says what the step itself has cost. What the host of a virtual machine takes
//! from it counts in both.
//!
//! The driver of the instance brackets each turn with [`Instance::begin_turn`] and [`Instance::end_turn`], and says with
//! [`Instance::end_part`] what it has just done. [`Instance::tick`] does so for its own sources.
//!
//! Invariants: without clocks every number is 0, so that a simulation is repeatable; the parts of a turn add up to the
//! turn. Absent: requests that a connection's task handles between two turns, except kinds that may take long.
//!
//! [`Instance::set_elapsed`]: crate::Instance::set_elapsed
//! [`Instance::set_processor_time`]: crate::Instance::set_processor_time
//! [`Instance::begin_turn`]: crate::Instance::begin_turn
//! [`Instance::end_turn`]: crate::Instance::end_turn
//! [`Instance::end_part`]: crate::Instance::end_part
//! [`Instance::tick`]: crate::Instance::tick

mod measuring;

use lycosa_queue::status::Histogram;
use lycosa_tuple::value::Value;

use crate::front::deadlines::source::Source;
use crate::shard::clocks::Clocks;

lycosa_queue::named! {
    /// A part of a turn that is no source of deadlines.
    pub enum TurnPart {
        /// News of the journal are heard, or a batch is handed over; where no thread does it, rows are appended.
        Journal = "journal",
        /// Rows are collected for a snapshot.
        Snapshot = "snapshot",
        /// Replies are written.
        Replies = "replies",
        /// Lines are logged.
        Log = "log",
    }
}

impl TurnPart {
    const fn place(self) -> usize {
        Source::ALL.len() + self as usize
    }
}

lycosa_queue::named! {
    /// Work that holds the loop outside of turns.
    pub(crate) enum Outside {
        /// One request that may take long: not those by which tasks go through a tube one by one.
        Request = "requests",
        /// The end of one session.
        Disconnect = "disconnects",
    }
}

impl Outside {
    const fn place(self) -> usize {
        Source::ALL.len() + TurnPart::ALL.len() + self as usize
    }
}

/// Names of what may hold the loop.
const NAMES: usize = Source::ALL.len() + TurnPart::ALL.len() + Outside::ALL.len();

fn names() -> impl Iterator<Item = &'static str> {
    let of_turns =
        Source::ALL.into_iter().map(Source::name).chain(TurnPart::ALL.into_iter().map(TurnPart::name));
    of_turns.chain(Outside::ALL.into_iter().map(Outside::name))
}

/// Microseconds after which the processor's time is asked for: that is a system call.
const WORTH_ASKING: u64 = 50;

/// The longest turn since the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LongestTurn {
    /// By the clock, in microseconds.
    pub elapsed: u64,
    /// Of the processor, in microseconds.
    pub processor: u64,
    /// When it began, in microseconds since the epoch.
    pub at: u64,
    /// What it consisted of, in microseconds by the clock, the longest part first; parts of less than one are left out.
    pub parts: Vec<(&'static str, u64)>,
}

impl LongestTurn {
    /// As `box.info()` shows it.
    pub(crate) fn value(&self) -> Value {
        Value::map([
            ("us", Value::from(self.elapsed)),
            ("cpu_us", self.processor.into()),
            ("time", Value::Double(self.at as f64 / 1e6)),
            ("part", self.parts.first().map(|(name, _)| *name).into()),
            ("parts", Value::map(self.parts.iter().copied())),
        ])
    }
}

/// A turn, measured.
#[derive(Debug, Clone, Copy, Default)]
struct Measured {
    elapsed: u64,
    processor: u64,
    at: u64,
    parts: [u64; NAMES],
}

impl Measured {
    fn shown(&self) -> Option<LongestTurn> {
        let Self { elapsed, processor, at, parts } = *self;
        let mut parts: Vec<_> = names().zip(parts).filter(|(_, held)| *held > 0).collect();
        parts.sort_by_key(|(_, held)| std::cmp::Reverse(*held));
        (elapsed > 0).then_some(LongestTurn { elapsed, processor, at, parts })
    }
}

/// The clocks, and the longest times.
#[derive(Default)]
pub(crate) struct LoopTime {
    pub(crate) clocks: Clocks,
    /// Its value at the last request for it.
    last_processor: u64,
    /// How long requests have held the loop since the last question, in microseconds.
    held: u64,
    /// The longest that each part of a turn, then each of [`Outside`], has held the loop, in microseconds.
    longest: [u64; NAMES],
    /// The same by the processor's time.
    longest_cpu: [u64; NAMES],
    in_turn: bool,
    /// When the turn and its present part began, by the clock.
    turn_began: u64,
    part_began: u64,
    /// The processor's time when the turn began.
    turn_processor: u64,
    /// The turn so far.
    turn: Measured,
    longest_turn: Measured,
    longest_turn_cpu: Measured,
    /// Lengths of all turns.
    pub(crate) turns: Histogram,
}

impl LoopTime {
    /// Microseconds by the clock; 0 without one.
    pub(crate) fn elapsed(&self) -> u64 {
        self.clocks.elapsed()
    }

    /// Microseconds of the processor since the last call.
    fn processor_since(&mut self) -> u64 {
        let now = self.clocks.processor();
        now.saturating_sub(std::mem::replace(&mut self.last_processor, now))
    }

    /// The longest that each part of a turn, a request and the end of a session have held the loop, in microseconds.
    pub(crate) fn longest(&self) -> Vec<(&'static str, u64)> {
        names().zip(self.longest).collect()
    }

    /// The same by the processor's time.
    pub(crate) fn longest_cpu(&self) -> Vec<(&'static str, u64)> {
        names().zip(self.longest_cpu).collect()
    }

    /// The longest turn by the clock, and by the processor's time.
    pub(crate) fn longest_turns(&self) -> [Option<LongestTurn>; 2] {
        [self.longest_turn.shown(), self.longest_turn_cpu.shown()]
    }

    /// A turn begins, unless one has begun.
    pub(crate) fn begin_turn(&mut self, now: u64) {
        if self.in_turn {
            return;
        }
        self.in_turn = true;
        self.processor_since();
        self.turn_processor = self.last_processor;
        self.turn_began = self.elapsed();
        self.part_began = self.turn_began;
        self.turn = Measured { at: now, ..Measured::default() };
    }

    /// A part of the turn has ended, the one of the source at that place.
    pub(crate) fn end_part(&mut self, place: usize) {
        let now = self.elapsed();
        let held = now.saturating_sub(std::mem::replace(&mut self.part_began, now));
        self.turn.parts[place] += held;
        self.note(place, held);
    }

    fn end_turn(&mut self) {
        if !std::mem::take(&mut self.in_turn) {
            return;
        }
        let elapsed = self.part_began.saturating_sub(self.turn_began);
        self.turns.record(elapsed);
        let is_longest = elapsed > self.longest_turn.elapsed;
        // A turn takes no more of the processor than it lasts.
        if !is_longest && elapsed <= self.longest_turn_cpu.processor {
            return;
        }
        let processor = self.clocks.processor().saturating_sub(self.turn_processor).min(elapsed);
        let turn = Measured { elapsed, processor, ..self.turn };
        if is_longest {
            self.longest_turn = turn;
        }
        if processor > self.longest_turn_cpu.processor {
            self.longest_turn_cpu = turn;
        }
    }

    fn note(&mut self, place: usize, elapsed: u64) {
        // At most that: the processor's time is counted since it was asked for last.
        let processor = if elapsed > WORTH_ASKING { self.processor_since().min(elapsed) } else { 0 };
        self.longest[place] = self.longest[place].max(elapsed);
        self.longest_cpu[place] = self.longest_cpu[place].max(processor);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Clocks that go on when they are told to: by the wall, by the processor.
    struct FakeClocks([Arc<AtomicU64>; 2]);

    impl FakeClocks {
        fn of(time: &mut LoopTime) -> Self {
            let clocks = [Arc::new(AtomicU64::new(1_000)), Arc::new(AtomicU64::new(10))];
            let read = |clock: &Arc<AtomicU64>| -> Box<dyn Fn() -> u64 + Send> {
                let clock = Arc::clone(clock);
                Box::new(move || clock.load(Ordering::Relaxed))
            };
            time.clocks.elapsed = Some(read(&clocks[0]));
            time.clocks.processor = Some(read(&clocks[1]));
            Self(clocks)
        }

        fn pass(&self, elapsed: u64, processor: u64) {
            self.0[0].fetch_add(elapsed, Ordering::Relaxed);
            self.0[1].fetch_add(processor, Ordering::Relaxed);
        }
    }

    /// A turn whose parts take so long, by the clock and of the processor.
    fn turn(time: &mut LoopTime, clocks: &FakeClocks, at: u64, source: (u64, u64), replies: (u64, u64)) {
        time.begin_turn(at);
        clocks.pass(source.0, source.1);
        time.end_part(0);
        clocks.pass(replies.0, replies.1);
        time.end_part(TurnPart::Replies.place());
        time.end_turn();
        // Between turns the loop sleeps or serves.
        clocks.pass(5_000, 700);
    }

    #[test]
    fn the_longest_turn_is_told_with_its_parts() {
        let mut time = LoopTime::default();
        let clocks = FakeClocks::of(&mut time);
        turn(&mut time, &clocks, 1, (100, 90), (200, 190));
        // The system took the core away in the middle of the replies.
        turn(&mut time, &clocks, 2, (100, 90), (900, 60));
        turn(&mut time, &clocks, 3, (400, 390), (0, 0));
        turn(&mut time, &clocks, 4, (10, 10), (10, 10));
        let [by_clock, by_processor] = time.longest_turns().map(Option::unwrap);
        let name = Source::ALL[0].name();
        let parts = vec![("replies", 900), (name, 100)];
        assert_eq!(by_clock, LongestTurn { elapsed: 1_000, processor: 150, at: 2, parts });
        let parts = vec![(name, 400)];
        assert_eq!(by_processor, LongestTurn { elapsed: 400, processor: 390, at: 3, parts });
        let longest: u64 =
            time.longest().iter().filter(|(part, _)| *part == "replies").map(|(_, us)| us).sum();
        let cpu: u64 =
            time.longest_cpu().iter().filter(|(part, _)| *part == "replies").map(|(_, us)| us).sum();
        assert_eq!((longest, cpu), (900, 190));
    }

    #[test]
    fn without_clocks_nothing_is_told() {
        let mut time = LoopTime::default();
        time.begin_turn(7);
        time.end_part(1);
        time.end_turn();
        time.end_turn();
        assert_eq!(time.longest_turns(), [None, None]);
        assert!(time.longest().iter().all(|(_, us)| *us == 0));
    }
}
