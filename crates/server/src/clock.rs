//! The time of the process: microseconds since the epoch that never step.
//!
//! Stored deadlines are times of day, as in Tarantool. The system's clock may be set while the process lives, by hours
//! even, and no wait, ttr, delay or heartbeat may take part in that. So the time of day is asked once, at the start,
//! and from then on a clock that cannot be set counts. It stands still while the machine sleeps, so that a sleep looks
//! like a step.
//!
//! If the two drift apart the process follows slowly, by a tenth of the time that passes at most ([`Follower`]): after
//! the clock was put forward by an hour, deadlines are up to 11 % early for ten hours. A step is logged. At a restart
//! the time of day counts again.
//!
//! Invariant: the time never goes back, but where a member of a group begins to lead and its own time was ahead of the group's.
//! Absent: the time of certificates, of log lines and of Lua's `os.time`, which is the
//! system's.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Shortest time between two looks at the system's clock, in microseconds.
const PERIOD: i64 = 1_000_000;

/// Microseconds by which the clocks of two members of a group may differ without a word in the log.
pub(crate) const NOTABLE_DIFFERENCE: u64 = 1_000_000;

/// A difference between two looks that counts as a step, in microseconds: far more than any discipline of a clock.
const STEP: i64 = 500_000;

/// The part of the time that passes by which the process follows the system's clock at most.
const FOLLOWED: i64 = 10;

/// The correction of the steady clock, in microseconds. [`UNSET`] until the first use.
static OFFSET: AtomicI64 = AtomicI64::new(UNSET);

const UNSET: i64 = i64::MIN;

thread_local! {
    /// The loop's: no other thread reads it.
    static FOLLOWER: Cell<Option<Follower>> = const { Cell::new(None) };
}

/// A time span in microseconds.
pub(crate) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// Microseconds since the epoch, by the process's own count.
pub(crate) fn now() -> u64 {
    let offset = match OFFSET.load(Ordering::Relaxed) {
        UNSET => begin(),
        offset => offset,
    };
    u64::try_from(steady() + offset).unwrap_or(0)
}

#[cold]
fn begin() -> i64 {
    let offset = wall() - steady();
    match OFFSET.compare_exchange(UNSET, offset, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => offset,
        Err(others) => others,
    }
}

/// Goes on with the time of the leader before this one, which is `ahead` microseconds ahead of the own time, or behind it if that
/// is negative. From there the process follows the system's clock slowly.
pub(crate) fn go_on_from(ahead: i64) {
    now();
    OFFSET.fetch_add(ahead, Ordering::Relaxed);
}

/// Looks at the system's clock if the last look was a while ago, and follows it. For the loop's thread, to be called every
/// second at least. After a look it returns by how many microseconds the system's clock is ahead of the process's time.
pub(crate) fn adjust(now: u64) -> Option<i64> {
    let offset = OFFSET.load(Ordering::Relaxed);
    let Some(mut follower) = FOLLOWER.get() else {
        FOLLOWER.set(Some(Follower { steady: steady(), difference: offset }));
        return None;
    };
    if now.saturating_add_signed(-offset) < (follower.steady + PERIOD).unsigned_abs() {
        return None;
    }
    let seen = Seen { wall: wall(), steady: steady() };
    let (offset, step) = follower.look(seen, offset);
    OFFSET.store(offset, Ordering::Relaxed);
    FOLLOWER.set(Some(follower));
    if let Some(step) = step {
        let seconds = step as f64 / 1e6;
        tracing::warn!(
            "the system's clock was set by {seconds:+.1} s: deadlines do not jump with it, they follow by at most 6 \
             minutes an hour; after a restart the new time counts"
        );
    }
    Some(follower.difference - offset)
}

/// Microseconds of a clock that cannot be set, since the first look at it. The standard library asks the C library, under
/// valgrind too (`lycosa bench count`).
fn steady() -> i64 {
    static BEGINNING: OnceLock<Instant> = OnceLock::new();
    let passed = BEGINNING.get_or_init(Instant::now).elapsed();
    i64::try_from(passed.as_micros()).unwrap_or(i64::MAX / 2)
}

/// Microseconds since the epoch by the system's clock, which may be set.
fn wall() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX / 2)
}

/// Both clocks at one moment, in microseconds.
#[derive(Debug, Clone, Copy)]
struct Seen {
    wall: i64,
    steady: i64,
}

/// Finds steps of the system's clock, and follows it slowly.
#[derive(Debug, Clone, Copy)]
struct Follower {
    /// The steady clock at the last look.
    steady: i64,
    /// By how much the system's clock was ahead of the steady one then.
    difference: i64,
}

impl Follower {
    /// Returns the correction of the steady clock from now on, and by how much the system's clock was set, if it was.
    fn look(&mut self, seen: Seen, offset: i64) -> (i64, Option<i64>) {
        let passed = (seen.steady - self.steady).max(0);
        let difference = seen.wall - seen.steady;
        let step = difference - self.difference;
        *self = Self { steady: seen.steady, difference };
        let most = passed / FOLLOWED;
        (offset + (difference - offset).clamp(-most, most), (step.abs() >= STEP).then_some(step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    /// A process whose clocks a test sets.
    struct Process {
        steady: i64,
        wall: i64,
        offset: i64,
        follower: Follower,
    }

    impl Process {
        fn new() -> Self {
            let (steady, wall) = (77 * SECOND, 1_700_000_000 * SECOND);
            let offset = wall - steady;
            Self { steady, wall, offset, follower: Follower { steady, difference: offset } }
        }

        fn now(&self) -> i64 {
            self.steady + self.offset
        }

        /// A second passes, at whose end the system's clock is set by so much.
        fn second(&mut self, set_by: i64) -> Option<i64> {
            let before = self.now();
            self.steady += SECOND;
            self.wall += SECOND + set_by;
            let (offset, step) =
                self.follower.look(Seen { wall: self.wall, steady: self.steady }, self.offset);
            self.offset = offset;
            let passed = self.now() - before;
            assert!((SECOND * 9 / 10..=SECOND * 11 / 10).contains(&passed), "{passed} µs in a second");
            step
        }
    }

    #[test]
    fn a_step_is_told_once_and_followed_slowly() {
        for step in [3600 * SECOND, -3600 * SECOND, -600 * SECOND] {
            let mut process = Process::new();
            assert_eq!(process.second(0), None);
            assert_eq!(process.second(step), Some(step));
            let away = (process.wall - process.now()).abs();
            assert!(away > step.abs() - SECOND, "{away}");
            for _ in 0..step.abs() / SECOND * FOLLOWED {
                assert_eq!(process.second(0), None);
            }
            assert_eq!(process.now(), process.wall);
        }
    }

    #[test]
    fn drift_is_followed_without_a_word() {
        let mut process = Process::new();
        for _ in 0..1000 {
            assert_eq!(process.second(500), None);
            assert_eq!(process.now(), process.wall);
        }
    }

    #[test]
    fn the_process_begins_with_the_time_of_day_and_goes_on() {
        let first = now();
        assert!(i64::try_from(first).unwrap().abs_diff(wall()) < 60_000_000);
        adjust(first);
        let second = now();
        assert!(second >= first);
    }
}
