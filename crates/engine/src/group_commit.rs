//! The group-commit delay: whether a batch waits for clients that have just got their replies.
//!
//! Clients that wait for their replies return once they have them: all at once, just after a sync. If the loop hands the
//! requests gathered meanwhile to the journal at that moment, the returning clients find it busy. The clients then form
//! two groups of which one is always synced while the other waits, and each sync carries half of what it could. Where
//! a sync takes much longer than they need to come back, it is worth waiting for them: the disk does half as many
//! syncs for the same work. Where it does not, the loop has enough to do meanwhile, and nothing is gained.
//!
//! The loop therefore always measures both times: that of a sync, and how long answered clients stay away, by
//! the request. A batch waits if all clients under way could return within a good part of a sync. Clients that stay
//! away make the expected time long, and then the delay is off. The measured return time includes the loop's own work.
//! If the loop is the bottleneck, the estimate grows and the delay switches itself off.
//!
//! Invariants: a batch waits for less than a sync's time, and at most [`LONGEST`]; while no sync or no return was
//! measured yet it does not wait at all.
//!
//! Absent: waiting before the first of a burst, as an idle server could. The latency of a single request comes first.

use std::time::{Duration, Instant};

/// The longest delay of a batch, however long a sync takes.
const LONGEST: Duration = Duration::from_millis(5);

/// All who are under way must be able to come back in this share of a sync.
const WORTH: f64 = 0.8;

/// The share of the answered that has to be back.
const RETURNED_SHARE: f64 = 0.8;

/// By what share of itself an estimate follows a measurement.
const STEP: f64 = 0.125;

/// Measured times of syncs, and of clients that return.
#[derive(Debug, Default)]
pub(crate) struct GroupCommit {
    /// How long a sync takes.
    sync: Option<Duration>,
    /// How long most of the answered need to come back, divided by their number.
    comeback: Option<Duration>,
    /// When the journal got the batch that it has.
    handed_over: Option<Instant>,
    /// The answered who are not back yet.
    away: Option<Away>,
    /// Requests so far.
    requests: u64,
}

#[derive(Debug, Clone, Copy)]
struct Away {
    since: Instant,
    answered: u64,
    /// The number of requests at which most of them are back.
    most: u64,
    /// Until then it is worth waiting for them.
    until: Instant,
}

impl GroupCommit {
    /// Requests have arrived.
    #[inline]
    pub(crate) fn received(&mut self, requests: u64) {
        self.requests += requests;
    }

    /// A batch goes to the journal.
    pub(crate) fn handed_over(&mut self, now: Instant) {
        self.handed_over = Some(now);
    }

    /// The journal is done with its batch; `answered` requests got their replies, and `waiting` wait for the next batch.
    pub(crate) fn durable(&mut self, now: Instant, answered: u64, waiting: u64) {
        if let Some(handed_over) = self.handed_over.take() {
            update_estimate(&mut self.sync, now - handed_over);
        }
        if let Some(away) = self.away.take() {
            // They have not come back until now: it takes at least so long.
            self.note_comeback(away, now);
        }
        if answered > 0 {
            let most = self.requests + (answered as f64 * RETURNED_SHARE).ceil() as u64;
            let until = now + self.worth(answered, waiting);
            self.away = Some(Away { since: now, answered, most, until });
        }
    }

    /// For how long it is worth waiting for answered clients.
    fn worth(&self, answered: u64, waiting: u64) -> Duration {
        let (Some(sync), Some(comeback)) = (self.sync, self.comeback) else { return Duration::ZERO };
        let time_of = |requests: u64| comeback.mul_f64(requests as f64);
        if time_of(answered + waiting) < sync.mul_f64(WORTH) {
            (2 * time_of(answered)).min(sync).min(LONGEST)
        } else {
            Duration::ZERO
        }
    }

    /// Counts the clients that have returned. If a batch has to wait for the rest now: until when.
    pub(crate) fn waits(&mut self, now: Instant) -> Option<Instant> {
        let away = self.away?;
        if self.requests >= away.most {
            self.note_comeback(away, now);
            self.away = None;
            return None;
        }
        Some(away.until).filter(|&until| now < until)
    }

    fn note_comeback(&mut self, away: Away, now: Instant) {
        update_estimate(&mut self.comeback, (now - away.since).div_f64(away.answered as f64));
    }
}

/// Lets an estimate follow a measurement: to what half of the measurements are below, so that a few that take very long, as
/// syncs do at times, say no more than others.
fn update_estimate(estimate: &mut Option<Duration>, measured: Duration) {
    *estimate = Some(match *estimate {
        Some(former) if measured > former => former.mul_f64(1.0 + STEP) + Duration::from_nanos(1),
        Some(former) => former.mul_f64(1.0 - STEP),
        None => measured,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC: Duration = Duration::from_micros(1000);

    /// Clients that come back after a while, in two groups of the same size.
    struct World {
        group_commit: GroupCommit,
        now: Instant,
    }

    impl World {
        fn new() -> Self {
            Self { group_commit: GroupCommit::default(), now: Instant::now() }
        }

        /// One sync that answers `answered`, who come back after `comeback`. Whether a batch would wait just then,
        /// and whether it would still when they are back.
        fn round(&mut self, sync: Duration, answered: u64, comeback: Duration) -> (bool, bool) {
            self.group_commit.handed_over(self.now);
            self.now += sync;
            self.group_commit.durable(self.now, answered, answered);
            let waits = self.waits();
            self.now += comeback;
            self.group_commit.received(answered);
            (waits, self.waits())
        }

        fn waits(&mut self) -> bool {
            self.group_commit.waits(self.now).is_some()
        }
    }

    #[test]
    fn a_batch_waits_for_those_who_come_back_soon() {
        let mut world = World::new();
        assert_eq!(world.round(SYNC, 128, SYNC / 4), (false, false), "nothing is known yet");
        for _ in 0..20 {
            assert_eq!(world.round(SYNC, 128, SYNC / 4), (true, false));
        }
    }

    #[test]
    fn a_sync_that_takes_long_once_changes_nothing() {
        let mut world = World::new();
        for round in 0..40 {
            let sync = if round % 8 == 7 { 100 * SYNC } else { SYNC };
            assert_eq!(world.round(sync, 128, SYNC / 2), (false, false));
        }
    }

    #[test]
    fn it_does_not_where_a_sync_is_short() {
        let mut world = World::new();
        for _ in 0..20 {
            assert_eq!(world.round(SYNC, 128, SYNC / 2), (false, false));
        }
    }

    #[test]
    fn nobody_waits_for_clients_that_stay_away() {
        let mut world = World::new();
        world.round(SYNC, 10, SYNC / 4);
        world.round(SYNC, 10, SYNC / 4);
        let mut waited = 0;
        for _ in 0..30 {
            world.group_commit.handed_over(world.now);
            world.now += SYNC;
            world.group_commit.durable(world.now, 10, 10);
            waited += u32::from(world.waits());
            world.now += 20 * SYNC;
            assert!(!world.waits(), "not for longer than a sync");
        }
        assert!(waited <= 10, "{waited}");
        for _ in 0..30 {
            world.round(SYNC, 10, SYNC / 4);
        }
        assert!(world.round(SYNC, 10, SYNC / 4).0, "they are waited for again when they come back again");
    }

    #[test]
    fn a_part_of_them_is_not_enough_and_most_of_them_are() {
        let mut world = World::new();
        world.round(SYNC, 10, SYNC / 4);
        world.group_commit.handed_over(world.now);
        world.now += SYNC;
        world.group_commit.durable(world.now, 10, 10);
        world.group_commit.received(7);
        assert!(world.waits());
        world.group_commit.received(1);
        assert!(!world.waits());
    }

    #[test]
    fn an_estimate_of_nothing_grows_again() {
        let mut estimate = Some(Duration::ZERO);
        (0..200).for_each(|_| update_estimate(&mut estimate, SYNC));
        assert!(estimate.is_some_and(|estimate| estimate > SYNC / 2), "{estimate:?}");
    }

    #[test]
    fn no_wait_is_longer_than_the_longest() {
        let mut world = World::new();
        world.round(500 * SYNC, 10, 50 * SYNC);
        world.group_commit.handed_over(world.now);
        world.now += 500 * SYNC;
        world.group_commit.durable(world.now, 10, 10);
        assert_eq!(world.group_commit.waits(world.now), Some(world.now + LONGEST));
    }
}
