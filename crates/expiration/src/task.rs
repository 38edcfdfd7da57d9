//! One task at work: when its next slice is due, what it has done, and what happens after an error.

use lycosa_store::{Cursor, CursorError, Error as StoreError, IteratorType, Space, Store, user};

use crate::definition::{Definition, Order, Plan};
use crate::error::Error;
use crate::hold::{Held, Holds};
use crate::slice::{Host, Limits, Slice, Victims};

/// No deadline.
pub(crate) const NEVER: u64 = u64::MAX;
/// Microseconds before the first attempt after an error; doubled at each further one.
const FIRST_RETRY: u64 = 1_000_000;
/// The longest such pause.
const LONGEST_RETRY: u64 = 60_000_000;
/// Microseconds between two looks at a small space under writes: as in the module of the article.
const SMALL_PAUSE: u64 = 1_000_000;
/// Microseconds that the result of a finished dry run is kept.
pub(crate) const DRY_RUN_KEPT: u64 = 60_000_000;

/// What a task has done since it was started, or since the process began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Tuples looked at.
    pub scanned: u64,
    /// Tuples deleted; in a dry run, tuples that are due.
    pub expired: u64,
    /// Tuples that were due when they were seen and had changed or gone before their turn.
    pub changed: u64,
    /// Tuples without a deadline that the last pass saw. A pass over an index ordered by deadline sees none.
    pub undated: u64,
    /// Slices.
    pub slices: u64,
    /// Passes: over an index that is ordered by deadline, up to the first tuple that lives.
    pub passes: u64,
    /// When the last pass ended, µs since the epoch.
    pub last_pass: Option<u64>,
    /// How long it took, µs.
    pub last_pass_us: u64,
    /// The latest that a tuple was deleted after its deadline, or after it came if it was due already, µs.
    pub longest_lag_us: u64,
    /// The longest that a slice held the loop, its commit included, µs.
    pub longest_hold_us: u64,
    /// The most processor time that a slice took, its commit included, µs: what the system gave to others does not count.
    pub longest_hold_cpu_us: u64,
    /// Slices that failed.
    pub errors: u64,
}

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Until the next deadline, or the next slice of a pass.
    Waiting,
    /// More is due than a slice could do.
    Behind,
    /// The last slice failed; another attempt follows.
    Failing,
    /// The scan size is 0.
    Idle,
    /// A dry run that is over.
    Done,
}

impl State {
    /// The state's name in replies.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Behind => "behind",
            Self::Failing => "failing",
            Self::Idle => "idle",
            Self::Done => "done",
        }
    }
}

/// A pass over an index that is not ordered by deadline.
#[derive(Debug, Default)]
struct Pass {
    /// µs since the epoch.
    began: u64,
    looked: u64,
    /// Of them, tuples that were deleted.
    expired: u64,
    undated: u64,
    earliest: Option<u64>,
    /// The space's revision when the pass began.
    revision: u64,
}

/// Between two passes.
#[derive(Debug, Clone, Copy)]
struct Rest {
    /// The space's revision when the pass before began.
    revision: u64,
    /// When the next pass begins if the space has changed since, µs since the epoch.
    if_changed: u64,
}

/// A failure and the attempts after it.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) attempts: u32,
    pub(crate) message: String,
}

/// A task at work.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) definition: Definition,
    /// Of the space; another space with the same number is not the task's.
    pub(crate) identity: u64,
    /// When the next slice is due, µs since the epoch.
    pub(crate) next: u64,
    /// Until then the loop is left to others, if there are any, µs since the epoch.
    others_until: u64,
    /// What the definition means as of this version of the schema.
    plan: Option<(u32, Plan)>,
    cursor: Cursor,
    victims: Victims,
    pass: Option<Pass>,
    rest: Option<Rest>,
    /// The space's revision at the last look at the front of the index.
    seen_revision: Option<u64>,
    /// Tuples that the next slice looks at.
    rows: u32,
    /// Up to when nothing was overdue, µs since the epoch.
    caught_up: u64,
    /// What the last slice has done, until its transaction has ended.
    outcome: Slice,
    pub(crate) failure: Option<Failure>,
    is_behind: bool,
    is_done: bool,
    /// Lag of the tuples that the last slice met, µs.
    lag: u64,
    /// The log was told of the lag.
    is_lag_told: bool,
    /// Number of the tick in which the task had its last slice.
    pub(crate) last_turn: u64,
    /// Earliest and latest deadline that a dry run has seen, µs since the epoch.
    pub(crate) due: (Option<u64>, Option<u64>),
    pub(crate) statistics: Statistics,
    pub(crate) holds: Holds,
}

/// The log lines after a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Notice {
    Failed(String),
    Recovered(String),
    Late(String),
    OnTime(String),
}

impl Task {
    pub(crate) fn new(definition: Definition, store: &Store, now: u64) -> Result<Self, Error> {
        let space = store.space(definition.space)?;
        let cursor = Self::cursor(&definition);
        Ok(Self {
            identity: space.identity(),
            next: if definition.scan_size == 0 { NEVER } else { now },
            others_until: 0,
            plan: None,
            cursor,
            victims: Victims::default(),
            pass: None,
            rest: None,
            seen_revision: None,
            rows: definition.scan_size.min(definition.budget.rows),
            caught_up: now,
            outcome: Slice::default(),
            failure: None,
            is_behind: false,
            is_done: false,
            lag: 0,
            is_lag_told: false,
            last_turn: 0,
            due: (None, None),
            statistics: Statistics::default(),
            holds: Holds::default(),
            definition,
        })
    }

    fn cursor(definition: &Definition) -> Cursor {
        Cursor::new(user::ADMIN, definition.space, definition.index, IteratorType::All, &[0x90])
    }

    /// When the next slice may run, µs since the epoch; `is_idle`: the loop has no other work. A slice that only looks leaves
    /// it a share all the same: an option for passes without a pause asks for no busy core.
    pub(crate) fn wakes(&self, is_idle: bool) -> u64 {
        if is_idle && self.outcome.expired > 0 { self.next } else { self.next.max(self.others_until) }
    }

    pub(crate) fn state(&self) -> State {
        match self {
            _ if self.definition.scan_size == 0 => State::Idle,
            _ if self.is_done => State::Done,
            _ if self.failure.is_some() => State::Failing,
            _ if self.is_behind => State::Behind,
            _ => State::Waiting,
        }
    }

    /// Whether the space is still the one that the task was made for.
    pub(crate) fn is_of(&self, space: Result<&Space, StoreError>) -> bool {
        space.is_ok_and(|space| space.identity() == self.identity)
    }

    /// What the definition means now.
    pub(crate) fn plan(&mut self, store: &Store) -> Result<Plan, Error> {
        let version = store.schema_version();
        if let Some((known, plan)) = self.plan
            && known == version
        {
            return Ok(plan);
        }
        let plan = self.definition.plan(store)?;
        self.plan = Some((version, plan));
        Ok(plan)
    }

    /// Lets a waiting task wake earlier after a change of its space.
    pub(crate) fn look_around(&mut self, store: &mut Store, now: u64) {
        if self.next <= now || self.failure.is_some() || self.is_done || self.definition.scan_size == 0 {
            return;
        }
        let Ok(revision) = store.space(self.definition.space).map(Space::revision) else { return };
        if let Some(rest) = self.rest {
            if rest.revision != revision {
                self.next = self.next.min(rest.if_changed.max(now));
            }
            return;
        }
        if self.seen_revision == Some(revision) {
            return;
        }
        if let Ok(plan) = self.plan(store)
            && let Some(order) = plan.order
            && let Ok(first) = plan.first(store, order, now)
        {
            self.seen_revision = Some(revision);
            self.next = first.unwrap_or(NEVER);
        }
    }

    /// Runs a slice in the open transaction.
    pub(crate) fn slice(&mut self, store: &mut Store, now: u64, host: &mut dyn Host) -> Result<(), Error> {
        self.outcome = Slice::default();
        let plan = self.plan(store)?;
        let Self { definition, victims, .. } = self;
        let limits = Limits {
            now,
            rows: self.rows.max(1),
            microseconds: definition.budget.microseconds.into(),
            archive: definition.archive.as_ref(),
            dry_run: definition.dry_run,
        };
        self.outcome = match plan.order {
            Some(order) if definition.dry_run => {
                let (expired, oldest, newest) = crate::slice::count_due(&plan, store, order, now)?;
                Slice { expired, oldest, newest, is_over: true, ..Slice::default() }
            }
            Some(order) => {
                self.seen_revision = Some(store.space(definition.space)?.revision());
                let slice = plan.expire_front(store, order, victims, &limits, host)?;
                Slice { undated: 0, ..slice }
            }
            None => {
                if self.pass.is_none() {
                    let space = store.space(definition.space)?;
                    self.pass = Some(Pass { began: now, revision: space.revision(), ..Pass::default() });
                    self.rest = None;
                    self.cursor.rewind();
                    victims.clear();
                }
                match plan.expire_along(store, &mut self.cursor, victims, &limits, host) {
                    Err(Error::Walk(CursorError::IndexAltered { .. })) => {
                        // The pass begins again, in the new order.
                        self.pass = None;
                        Slice::default()
                    }
                    slice => slice?,
                }
            }
        };
        if self.outcome.kept > 0 && self.outcome.expired == 0 {
            let kept = self.outcome.kept;
            return Err(Error::Illegal(format!(
                "{kept} expired tuples are still there after their deletion"
            )));
        }
        Ok(())
    }

    /// The slice's transaction is committed, or rolled back with this error.
    pub(crate) fn finish(
        &mut self,
        store: &mut Store,
        now: u64,
        done: Result<(), String>,
        held: Held,
    ) -> Option<Notice> {
        let statistics = &mut self.statistics;
        statistics.slices += 1;
        statistics.longest_hold_us = statistics.longest_hold_us.max(held.elapsed);
        statistics.longest_hold_cpu_us = statistics.longest_hold_cpu_us.max(held.processor);
        self.holds.note(held, self.outcome.looked, self.outcome.expired);
        self.others_until = 0;
        if let Err(message) = done {
            return Some(self.fail(now, message));
        }
        let slice = self.outcome;
        statistics.scanned += slice.looked;
        statistics.expired += slice.expired;
        statistics.changed += slice.changed;
        let lag = slice.oldest.map_or(0, |oldest| now.saturating_sub(oldest));
        if slice.expired > 0 && !self.definition.dry_run {
            let since = slice.oldest.unwrap_or(now).max(self.caught_up);
            statistics.longest_lag_us = statistics.longest_lag_us.max(now.saturating_sub(since));
        }
        self.lag = lag;
        let earlier = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).min();
        self.due = (earlier(self.due.0, slice.oldest), self.due.1.max(slice.newest));
        self.pace(slice);
        let is_front = self.pass.is_none();
        if is_front {
            self.finish_front(store, now, slice);
        } else {
            self.finish_step(store, now, slice);
        }
        let share = u64::from(self.definition.budget.share);
        // The next pass may follow at once; the next deadline does not wait.
        if !(slice.is_over && is_front) && share < 100 {
            // By its own time: what the machine took from a slice is no reason for a pause, in which tuples would be late.
            self.others_until = now + held.own() * 100 / share;
        }
        if self.failure.take().is_some() {
            self.note_lag(lag);
            return Some(Notice::Recovered("works again".to_owned()));
        }
        self.note_lag(lag)
    }

    /// The next slice is larger if this one ended because it had seen enough tuples, as far as the budget goes.
    fn pace(&mut self, slice: Slice) {
        let Definition { scan_size, budget, .. } = &self.definition;
        let is_catching_up = !slice.is_over && slice.expired > 0 && slice.looked >= u64::from(self.rows);
        self.rows = if is_catching_up {
            self.rows.saturating_mul(2).min(budget.rows)
        } else if slice.is_over {
            (*scan_size).min(budget.rows)
        } else {
            self.rows
        };
    }

    fn finish_front(&mut self, store: &mut Store, now: u64, slice: Slice) {
        if self.definition.dry_run {
            return self.end_dry_run(now);
        }
        self.is_behind = !slice.is_over;
        if !slice.is_over {
            self.next = now;
            return;
        }
        self.caught_up = now;
        self.statistics.passes += 1;
        self.statistics.last_pass = Some(now);
        self.next = slice.earliest.unwrap_or(NEVER);
        // What a trigger has put in while the slice ran has not been seen.
        self.look_around(store, now);
    }

    fn end_dry_run(&mut self, now: u64) {
        self.statistics.passes += 1;
        self.statistics.last_pass = Some(now);
        self.is_done = true;
        self.next = now + DRY_RUN_KEPT;
    }

    fn finish_step(&mut self, store: &mut Store, now: u64, slice: Slice) {
        let Some(pass) = &mut self.pass else { return };
        let space = store.space(self.definition.space);
        let (length, revision) = space.map_or((0, 0), |space| (space.len(), space.revision()));
        // Tuples that the pass had before it when the slice began; deletions of others make it an estimate.
        let passed = pass.looked.saturating_sub(pass.expired);
        let ahead = (length + slice.expired).saturating_sub(passed).max(slice.looked);
        pass.looked += slice.looked;
        pass.expired += slice.expired;
        pass.undated += slice.undated;
        pass.earliest = pass.earliest.into_iter().chain(slice.earliest).min();
        let scan_time = self.definition.scan_time.saturating_mul(1_000_000);
        if !slice.is_over {
            // A share of the time that is left: so the pass ends in time while the space grows or shrinks under it.
            let left = pass.began.saturating_add(scan_time).saturating_sub(now);
            let share = u128::from(left) * u128::from(slice.looked) / u128::from(ahead + 1);
            let pause = if self.definition.dry_run { 0 } else { u64::try_from(share).unwrap_or(NEVER) };
            self.is_behind = pause == 0;
            self.next = now.saturating_add(pause);
            return;
        }
        let Pass { began, looked, undated, earliest, revision: before, .. } =
            self.pass.take().unwrap_or_default();
        self.is_behind = false;
        self.statistics.undated = undated;
        if self.definition.dry_run {
            return self.end_dry_run(now);
        }
        self.caught_up = began;
        self.lag = 0;
        self.statistics.passes += 1;
        self.statistics.last_pass = Some(now);
        self.statistics.last_pass_us = now.saturating_sub(began);
        let is_small = looked <= u64::from(self.definition.scan_size);
        let longest = began.saturating_add(scan_time).max(now);
        let if_changed = if is_small { longest.min(now + SMALL_PAUSE) } else { longest };
        self.rest = Some(Rest { revision: before, if_changed });
        self.next = earliest.unwrap_or(NEVER);
        if revision != before {
            self.next = self.next.min(if_changed);
        }
    }

    fn fail(&mut self, now: u64, message: String) -> Notice {
        self.statistics.errors += 1;
        self.pass = None;
        self.rest = None;
        self.plan = None;
        self.seen_revision = None;
        self.victims.clear();
        self.cursor = Self::cursor(&self.definition);
        let attempts = self.failure.as_ref().map_or(0, |failure| failure.attempts) + 1;
        let pause = FIRST_RETRY.saturating_mul(1 << (attempts - 1).min(10)).min(LONGEST_RETRY);
        self.next = now + pause;
        let notice = format!("{message}; the next attempt follows in {} s", pause / 1_000_000);
        self.failure = Some(Failure { attempts, message });
        Notice::Failed(notice)
    }

    /// The next slice is due at once: the cause of a failure may be gone.
    pub(crate) fn retry(&mut self, now: u64) {
        if self.failure.is_some() {
            self.next = self.next.min(now);
        }
    }

    /// The schema has changed: the cause of a failure may be gone, and a task whose index was made or dropped begins anew. The
    /// old sleep was until the next deadline in the old index.
    pub(crate) fn replan(&mut self, store: &Store, now: u64) {
        self.retry(now);
        let Some((_, former)) = self.plan.filter(|_| !self.is_done && self.definition.scan_size > 0) else {
            return;
        };
        let is_same = self
            .plan(store)
            .is_ok_and(|plan| plan.index == former.index && plan.order.is_some() == former.order.is_some());
        if !is_same && self.failure.is_none() {
            self.pass = None;
            self.rest = None;
            self.seen_revision = None;
            self.victims.clear();
            self.cursor = Self::cursor(&self.definition);
            self.next = self.next.min(now);
        }
    }

    fn note_lag(&mut self, lag: u64) -> Option<Notice> {
        let limit = self.definition.lag_limit;
        if limit == 0 || self.definition.dry_run {
            return None;
        }
        let seconds = |microseconds: u64| microseconds as f64 / 1e6;
        if lag > limit && !self.is_lag_told {
            self.is_lag_told = true;
            let (lag, limit) = (seconds(lag), seconds(limit));
            return Some(Notice::Late(format!("is {lag:.1} s late, more than lag_limit ({limit} s)")));
        }
        if lag <= limit / 2 && self.is_lag_told {
            self.is_lag_told = false;
            return Some(Notice::OnTime("has caught up".to_owned()));
        }
        None
    }

    /// Microseconds since the deadline of the oldest tuple that is due, and tuples without a deadline, as far as a
    /// look at the index can tell.
    pub(crate) fn measure(&self, store: &Store, now: u64) -> (u64, u64) {
        let known = (self.lag, self.statistics.undated);
        let Some((order, plan)) = self.ordered(store) else { return known };
        let Ok(first) = plan.first_flushed(store, order) else { return known };
        let lag = first.map_or(0, |first| now.saturating_sub(first));
        let from = order.key(0, plan.unit);
        let dated = store.count(plan.space, plan.index, IteratorType::Ge, &from);
        let all = store.space(plan.space).map_or(0, Space::len);
        (lag, dated.map_or(known.1, |dated| all.saturating_sub(dated)))
    }

    /// The plan, if the index is ordered by deadline.
    pub(crate) fn ordered(&self, store: &Store) -> Option<(Order, Plan)> {
        let plan = self.definition.plan(store).ok()?;
        plan.order.map(|order| (order, plan))
    }
}
