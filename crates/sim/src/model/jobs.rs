//! Jobs over many tasks as they ought to be: what each slice looks at, changes and keeps, and what `undo` brings back.
//!
//! A job looks at each task once, in the order of its walk, and checks the filter at that moment. It changes no task that was put
//! after it began. The model of a slice counts the budget as the queue states it, so that both end a slice at the same task.

use std::collections::{BTreeMap, BTreeSet};

use lycosa_queue::Operation;

use super::tube::{LONGEST, Task, Tube};
use super::{Answer, Model};
use crate::plan::Kind;
use crate::request::{Request, Span};
use crate::shared::Shared;
use crate::steering::{Action, Control, Filter, REASON, Schedule, Steering};

/// How long a job can be undone after its end, µs.
const UNDO_TIME: u64 = 3_600_000_000;
/// The budget of a step: tasks that are looked at.
const BUDGET: u64 = 512;
/// Steps of background work in a turn.
const STEPS: usize = 16;
/// Tasks between two looks at the budget: changed ones, and ones that are looked at.
const PORTION: u64 = 4;
const WALK: u64 = 32;
/// Tasks that `find` looks at within the call, rather than in slices.
const AT_ONCE: usize = 64;
/// What a change costs, and a task that is brought back or forgotten.
const CHANGE: u64 = 3;
const KEPT_CHANGE: u64 = 4;

/// Where a job is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    Paused,
    Done,
    Cancelled,
    Failed,
}

impl State {
    pub(crate) const ALL: [Self; 5] =
        [Self::Running, Self::Paused, Self::Done, Self::Cancelled, Self::Failed];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }
}

/// A job, as its row has to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) id: u64,
    /// Number of its tube. Once the tube is dropped, another one may have the tube's id.
    pub(crate) tube: usize,
    pub(crate) tube_id: u64,
    pub(crate) action: Action,
    pub(crate) state: State,
    pub(crate) filter: Filter,
    pub(crate) to_id: Option<u64>,
    pub(crate) undoes: Option<u64>,
    pub(crate) rate: u64,
    pub(crate) dry_run: bool,
    /// Ids of its tasks lie below.
    pub(crate) below: u64,
    /// Priority, where the walk is by priority, and id of the task that was looked at last.
    pub(crate) position: Option<(u64, u64)>,
    pub(crate) scanned: u64,
    pub(crate) matched: u64,
    pub(crate) changed: u64,
    pub(crate) kept: u64,
    pub(crate) began: u64,
    pub(crate) ended: u64,
    pub(crate) undo_until: u64,
    pub(crate) undone: u64,
    pub(crate) touched_since: u64,
    pub(crate) gone: u64,
    pub(crate) schedule: Schedule,
}

impl Job {
    fn new(tube: usize, tube_id: u64, action: Action, now: u64) -> Self {
        Self {
            id: 0,
            tube,
            tube_id,
            action,
            state: State::Running,
            filter: Filter::default(),
            to_id: None,
            undoes: None,
            rate: 0,
            dry_run: false,
            below: 0,
            position: None,
            scanned: 0,
            matched: 0,
            changed: 0,
            kept: 0,
            began: now,
            ended: 0,
            undo_until: 0,
            undone: 0,
            touched_since: 0,
            gone: 0,
            schedule: Schedule::default(),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        !matches!(self.state, State::Running | State::Paused)
    }

    fn end(&mut self, state: State, now: u64) {
        (self.state, self.ended) = (state, now);
        if self.kept > 0 {
            self.undo_until = now + UNDO_TIME;
        }
    }

    fn void(&mut self, now: u64) {
        if !self.is_over() {
            self.end(State::Failed, now);
        }
        self.undo_until = 0;
    }

    fn state_wanted(&self) -> Option<char> {
        self.filter.state.or(self.action.only())
    }

    /// Whether it changes tasks.
    fn is_change(&self) -> bool {
        !self.dry_run && self.action != Action::Count
    }

    /// Whether its walk goes by id where the walks of other jobs go by priority, which it changes.
    fn is_by_id(&self) -> bool {
        self.schedule.pri.is_some()
    }

    fn changes(&self, id: u64, task: &Task) -> bool {
        let status = task.status;
        match self.action {
            Action::Count => true,
            Action::Undo => false,
            Action::Kick | Action::Release | Action::Run => Some(status) == self.action.only(),
            Action::Reschedule => {
                let Schedule { delay, pri } = self.schedule;
                let waits_anew = |delay: Span| delay.0 > 0 || status == '~';
                matches!(status, 'r' | '~')
                    && (pri.is_some_and(|pri| pri != task.pri) || delay.is_some_and(waits_anew))
            }
            Action::Bury | Action::Delete | Action::Move => match status {
                '!' => self.action != Action::Bury,
                't' => self.filter.names_state(id, 't'),
                _ => true,
            },
        }
    }
}

/// A task as it was before a job changed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) task: Task,
    pub(crate) moved_to: Option<u64>,
}

/// All jobs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Jobs {
    pub(crate) all: BTreeMap<u64, Shared<Job>>,
    /// By job and id of the task.
    pub(crate) kept: Shared<BTreeMap<(u64, u64), Kept>>,
    /// Running jobs, and when each goes on; 0: at once.
    running: BTreeMap<u64, u64>,
    /// When finished jobs with kept tasks forget them.
    expiring: BTreeMap<u64, u64>,
    /// The job that was worked on last.
    last: u64,
    /// Jobs that a truncated or dropped tube has ended, until a step of work has read their rows.
    stale: BTreeSet<u64>,
}

impl Jobs {
    /// The process has ended, and another one has found the rows.
    pub(super) fn restart(&mut self) {
        self.last = 0;
        self.find();
    }

    /// Derives the lists of running and expiring jobs from the rows.
    pub(crate) fn find(&mut self) {
        self.running.clear();
        self.expiring.clear();
        self.stale.clear();
        for id in self.all.keys().copied().collect::<Vec<_>>() {
            self.note(id, 0);
        }
    }

    fn note(&mut self, id: u64, next: u64) {
        self.running.remove(&id);
        self.expiring.remove(&id);
        let Some(job) = self.all.get(&id) else { return };
        if job.state == State::Running {
            self.running.insert(id, next);
        }
        if job.is_over() && job.kept > 0 {
            self.expiring.insert(id, job.undo_until);
        }
    }

    /// Ids of a tube's tasks stand for others now, or the tube is gone.
    pub(super) fn void(&mut self, tube_id: u64, now: u64) {
        for job in self.all.values_mut() {
            let is_concerned = job.tube_id == tube_id || job.to_id == Some(tube_id);
            if is_concerned && (!job.is_over() || job.kept > 0) {
                job.void(now);
                self.stale.insert(job.id);
            }
        }
    }

    /// Tasks that were changed, and brought back, since the jobs were those.
    pub(crate) fn done_since(&self, before: &Self) -> [u64; 2] {
        let sum = |jobs: &Self, of: fn(&Job) -> u64| jobs.all.values().map(|job| of(job)).sum::<u64>();
        let since = |of| sum(self, of) - sum(before, of);
        [since(|job| job.changed), since(|job| job.undone)]
    }

    fn is_being_undone(&self, id: u64) -> bool {
        self.all.values().any(|job| !job.is_over() && job.undoes == Some(id))
    }

    /// When a job has something to do.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        let stale = (!self.stale.is_empty()).then_some(0);
        self.running.values().chain(self.expiring.values()).copied().chain(stale).min()
    }
}

/// What became of a task that was to be brought back.
enum Outcome {
    Undone,
    Touched,
    Gone,
}

/// Whether a filter admits a task. Ages count from `since`.
fn admits(filter: &Filter, state: Option<char>, kind: Kind, (id, task): (u64, &Task), since: u64) -> bool {
    let is_old = |age: Span| kind.is_timed() && task.created <= since.saturating_sub(age.0);
    filter.id_from.is_none_or(|from| from <= id)
        && filter.id_to.is_none_or(|to| id <= to)
        && filter.ids.as_ref().is_none_or(|ids| {
            ids.get(&id).is_some_and(|state| state.is_none_or(|state| state == task.status))
        })
        && state.is_none_or(|state| state == task.status)
        && filter.utube.as_ref().is_none_or(|name| **name == *task.utube)
        && filter.pri_to.is_none_or(|to| task.pri <= to)
        && filter.older_than.is_none_or(is_old)
}

/// The tasks that a walk looks at behind a position, in its order: priority, where it is by priority, and id.
fn walk(
    tube: &Tube,
    filter: &Filter,
    (state, is_by_id): (Option<char>, bool),
    position: Option<(u64, u64)>,
) -> Vec<(u64, u64)> {
    let is_ahead = |key: &(u64, u64)| position.is_none_or(|position| position < *key);
    if let Some(ids) = &filter.ids {
        // A task that is not there counts as looked at.
        return ids.keys().map(|id| (0, *id)).filter(is_ahead).collect();
    }
    let state = state.filter(|_| filter.utube.is_some() || !is_by_id);
    let is_by_priority = tube.kind().is_timed() && state.is_some() && filter.utube.is_none();
    let is_in_range = |id: u64| {
        state.is_some()
            || filter.id_from.is_none_or(|from| from <= id) && filter.id_to.is_none_or(|to| id <= to)
    };
    let is_met = |id: u64, task: &Task| {
        state.is_none_or(|state| state == task.status)
            && filter.utube.as_ref().is_none_or(|name| **name == *task.utube)
            && is_in_range(id)
    };
    let tasks = tube.tasks.iter().filter(|(id, task)| is_met(**id, task));
    let keys = tasks.map(|(id, task)| (if is_by_priority { task.pri } else { 0 }, *id));
    let mut keys: Vec<_> = keys.filter(is_ahead).collect();
    keys.sort_unstable();
    keys
}

/// A span that a client gives in seconds loses what a double cannot hold.
fn through_seconds(span: u64) -> u64 {
    if span >= LONGEST.0 { LONGEST.0 } else { (span as f64 / 1e6 * 1e6) as u64 }
}

impl Model {
    /// Does what an operator asks.
    pub(super) fn steer(&mut self, number: usize, what: &Steering, now: u64) -> Answer {
        if !self.tubes.contains_key(&number) {
            let (method, _) = what.call(&self.plans);
            return self.missing(number, method);
        }
        match what {
            Steering::Find { filter, limit } => self.find(number, filter, *limit, now),
            Steering::Apply { action, filter, to, schedule, rate, dry_run } => {
                let mut job = Job::new(number, self.tubes[&number].id, *action, now);
                (job.filter, job.schedule) = (filter.clone(), *schedule);
                (job.rate, job.dry_run) = (*rate, *dry_run);
                self.apply(number, job, *to)
            }
            Steering::Undo { job } => self.undo(number, *job, now),
            Steering::Control { job, how } => self.control(number, *job, *how, now),
        }
    }

    /// Whether a request is answered in slices, of which the model knows nothing: the page of a long walk. Few tubes are that long,
    /// since tasks that `undo` brings back alone fill them so far. A client that asks for such a page leaves instead.
    pub(crate) fn has_long_walk(&self, request: &Request) -> bool {
        let Request::Steer { tube, what: Steering::Find { filter, .. } } = request else { return false };
        let way = self.tubes.get(tube).map(|tube| walk(tube, filter, (filter.state, false), None));
        way.is_some_and(|way| way.len() >= AT_ONCE)
    }

    fn find(&self, number: usize, filter: &Filter, limit: u64, now: u64) -> Answer {
        let tube = &self.tubes[&number];
        let (mut ids, mut scanned) = (Vec::new(), 0);
        let way = walk(tube, filter, (filter.state, false), None);
        for (_, id) in &way {
            scanned += 1;
            let task = tube.tasks.get(id);
            if task.is_some_and(|task| admits(filter, filter.state, tube.kind(), (*id, task), now)) {
                ids.push(*id);
            }
            if ids.len() as u64 == limit {
                break;
            }
        }
        Answer::Found { ids, scanned, is_end: scanned == way.len() as u64 }
    }

    fn apply(&mut self, number: usize, mut job: Job, to: Option<usize>) -> Answer {
        let tube = &self.tubes[&number];
        let is_reschedule = job.action == Action::Reschedule;
        let is_left = |state: char| {
            job.action.only().is_some_and(|only| only != state) || is_reschedule && matches!(state, 't' | '!')
        };
        if job.filter.state.is_some_and(is_left) || is_reschedule && !tube.kind().is_timed() {
            return Answer::AnyFailure;
        }
        job.below = tube.next_id;
        if let Some(to) = to {
            let Some(destination) = self.tubes.get(&to).filter(|_| to != number) else {
                return Answer::AnyFailure;
            };
            job.to_id = Some(destination.id);
        }
        self.begin(job)
    }

    fn begin(&mut self, mut job: Job) -> Answer {
        let mut others =
            self.jobs.all.values().filter(|other| other.tube_id == job.tube_id && !other.is_over());
        let is_by_priority = |other: &Job| !job.is_by_id() && !other.is_by_id();
        if job.is_change() && others.any(|other| other.is_change() && !is_by_priority(other)) {
            return Answer::AnyFailure;
        }
        job.id = self.jobs.all.keys().next_back().map_or(1, |last| last + 1);
        let (id, answer) = (job.id, Answer::job(&job));
        self.jobs.all.insert(id, Shared::new(job));
        self.jobs.note(id, 0);
        answer
    }

    fn job_in(&self, number: usize, id: u64) -> Option<&Job> {
        let is_of = |job: &&Job| (job.tube, job.tube_id) == (number, self.tubes[&number].id);
        self.jobs.all.get(&id).map(|job| &**job).filter(is_of)
    }

    fn tube_of(&self, id: u64) -> Option<usize> {
        self.tubes.iter().find(|(_, tube)| tube.id == id).map(|(number, _)| *number)
    }

    fn undo(&mut self, number: usize, id: u64, now: u64) -> Answer {
        let Some(undone) = self.job_in(number, id) else { return Answer::AnyFailure };
        let is_possible = undone.is_over()
            && undone.kept > 0
            && undone.undo_until > now
            && !self.jobs.is_being_undone(id)
            && undone.to_id.is_none_or(|to| self.tube_of(to).is_some());
        if !is_possible {
            return Answer::AnyFailure;
        }
        let mut job = Job::new(number, undone.tube_id, Action::Undo, now);
        (job.undoes, job.to_id, job.schedule) = (Some(id), undone.to_id, undone.schedule);
        self.begin(job)
    }

    fn control(&mut self, number: usize, id: u64, how: Control, now: u64) -> Answer {
        if self.job_in(number, id).is_none_or(Job::is_over) {
            return Answer::AnyFailure;
        }
        let Some(job) = self.jobs.all.get_mut(&id) else { return Answer::AnyFailure };
        match how {
            Control::Pause => job.state = State::Paused,
            Control::Resume => job.state = State::Running,
            Control::Cancel => job.end(State::Cancelled, now),
            Control::Rate(rate) => job.rate = rate,
        }
        let answer = Answer::job(job);
        self.jobs.note(id, 0);
        answer
    }

    /// Background work of a turn, after everything that is due.
    pub(crate) fn work(&mut self, now: u64) {
        for _ in 0..STEPS {
            let mut budget = BUDGET;
            while budget > 0 && self.jobs.next_deadline().is_some_and(|due| due <= now) {
                let before = budget;
                self.work_once(&mut budget, now);
                budget = budget.min(before - 1);
            }
            if self.jobs.next_deadline().is_none_or(|due| due > now) {
                return;
            }
        }
    }

    fn work_once(&mut self, budget: &mut u64, now: u64) {
        while *budget > 0
            && let Some(id) = self.jobs.stale.pop_first()
        {
            *budget -= 1;
            let next = self.jobs.running.get(&id).copied().unwrap_or(0);
            self.jobs.note(id, next);
        }
        if *budget == 0 {
            return;
        }
        let due = |(_, next): &(&u64, &u64)| **next <= now;
        let behind = self.jobs.running.range(self.jobs.last + 1..).find(due);
        let Some(id) = behind.or_else(|| self.jobs.running.iter().find(due)).map(|(id, _)| *id) else {
            return self.expire_kept(budget, now);
        };
        self.jobs.last = id;
        let Some(mut job) = self.jobs.all.get(&id).map(|job| Job::clone(job)) else { return };
        let before = job.changed + job.undone;
        if self.slice(&mut job, budget, now).is_err() {
            let Some(held) = self.jobs.all.get_mut(&id) else { return };
            held.state = State::Paused;
            return self.jobs.note(id, 0);
        }
        let changed = job.changed + job.undone - before;
        let pause = (changed * 1_000_000).checked_div(job.rate).unwrap_or(0);
        self.jobs.all.insert(id, Shared::new(job));
        self.jobs.note(id, if pause > 0 { now + pause } else { 0 });
        self.serve(now);
    }

    /// An error: the tube to which tasks are put is full.
    fn slice(&mut self, job: &mut Job, budget: &mut u64, now: u64) -> Result<(), ()> {
        let Some(number) = self.tube_of(job.tube_id) else {
            job.void(now);
            return Ok(());
        };
        if job.action == Action::Undo {
            return self.undo_slice(job, number, budget, now);
        }
        let mut left = if job.rate > 0 { job.rate.div_ceil(10) } else { u64::MAX };
        let mut destination = None;
        if job.action == Action::Move {
            let Some(to) = job.to_id.and_then(|to| self.tube_of(to)) else {
                job.void(now);
                return Ok(());
            };
            if !job.dry_run {
                let room = self.tubes[&to].room_left();
                if room == 0 {
                    return Err(());
                }
                left = left.min(room);
            }
            destination = Some(to);
        }
        loop {
            let (ids, is_end, looked_at) = self.look(job, number, (left, *budget));
            *budget = budget.saturating_sub(looked_at);
            for id in ids {
                self.change_by_job(job, (number, destination), id, now);
                left -= 1;
                *budget = budget.saturating_sub(CHANGE);
            }
            if is_end {
                job.end(State::Done, now);
                return Ok(());
            }
            if left == 0 || *budget == 0 {
                return Ok(());
            }
        }
    }

    /// The next tasks to change, whether the walk has ended, and how many tasks were looked at.
    fn look(&self, job: &mut Job, number: usize, (left, rows): (u64, u64)) -> (Vec<u64>, bool, u64) {
        let tube = &self.tubes[&number];
        let (limit, state) = (left.min(PORTION), job.state_wanted());
        let way = walk(tube, &job.filter, (state, job.is_by_id()), job.position);
        let (mut ids, mut looked_at) = (Vec::new(), 0);
        for key @ &(_, id) in &way {
            looked_at += 1;
            job.position = Some(*key);
            let is_meant = |task: &Task| {
                id < job.below
                    && job.changes(id, task)
                    && admits(&job.filter, state, tube.kind(), (id, task), job.began)
            };
            if tube.tasks.get(&id).is_some_and(is_meant) {
                job.matched += 1;
                if !job.dry_run {
                    ids.push(id);
                }
            }
            if ids.len() as u64 >= limit || looked_at == WALK.min(rows.max(1)) {
                break;
            }
        }
        job.scanned += looked_at;
        (ids, looked_at == way.len() as u64, looked_at)
    }

    fn change_by_job(
        &mut self,
        job: &mut Job,
        (number, destination): (usize, Option<usize>),
        id: u64,
        now: u64,
    ) {
        let Some(tube) = self.tubes.get_mut(&number) else { return };
        let Some(before) = tube.tasks.get(&id).cloned() else { return };
        let is_temporary = tube.plan.temporary;
        let mut moved_to = None;
        match (job.action, destination) {
            (Action::Kick, _) => _ = tube.change(id, 'r', Operation::Kick),
            (Action::Release, _) => _ = tube.release(id, None, now),
            (Action::Run, _) => _ = tube.change(id, 'r', Operation::Delay),
            (Action::Bury, _) => {
                tube.note_failure(id, REASON, now);
                tube.change(id, '!', Operation::Bury);
            }
            (Action::Reschedule, _) => {
                let ready_at = job.schedule.delay.map(|delay| now + delay.0);
                tube.reschedule(id, (ready_at, None), job.schedule.pri, now);
            }
            (Action::Delete, _) => _ = tube.remove(id, Operation::Delete),
            (Action::Move, Some(to)) => {
                let from = tube.kind();
                tube.remove(id, Operation::Delete);
                moved_to = self.tubes.get_mut(&to).map(|to| to.put_moved(&before, from, now));
            }
            (Action::Count | Action::Undo | Action::Move, _) => return,
        }
        job.changed += 1;
        if !is_temporary && job.action != Action::Release {
            job.kept += 1;
            self.jobs.kept.insert((job.id, id), Kept { task: before, moved_to });
        }
    }

    fn kept_by(&self, job: u64) -> (Vec<(u64, Kept)>, bool) {
        let mut kept = self.jobs.kept.range((job, 0)..=(job, u64::MAX));
        let portion = kept.by_ref().take(PORTION as usize);
        let rows = portion.map(|((_, id), kept)| (*id, kept.clone())).collect();
        (rows, kept.next().is_none())
    }

    fn forget_kept(&mut self, job: u64, id: u64) {
        self.jobs.kept.remove(&(job, id));
        if let Some(source) = self.jobs.all.get_mut(&job) {
            source.kept = source.kept.saturating_sub(1);
        }
    }

    fn undo_slice(&mut self, job: &mut Job, number: usize, budget: &mut u64, now: u64) -> Result<(), ()> {
        let source = job.undoes.and_then(|undoes| self.jobs.all.get(&undoes)).cloned();
        let Some(source) = source else {
            job.void(now);
            return Ok(());
        };
        let mut is_first = true;
        let is_end = loop {
            let (rows, is_all) = self.kept_by(source.id);
            let mut is_full = false;
            for (id, kept) in rows {
                let waits_for_room = matches!(source.action, Action::Delete | Action::Move);
                if waits_for_room && self.tubes[&number].room_left() == 0 {
                    if is_first {
                        return Err(());
                    }
                    is_full = true;
                    break;
                }
                is_first = false;
                match self.bring_back(&source, number, (id, &kept), now) {
                    Outcome::Undone => job.undone += 1,
                    Outcome::Touched => job.touched_since += 1,
                    Outcome::Gone => job.gone += 1,
                }
                job.scanned += 1;
                self.forget_kept(source.id, id);
                *budget = budget.saturating_sub(KEPT_CHANGE);
            }
            if is_full || is_all {
                break !is_full;
            }
            if *budget == 0 {
                break false;
            }
        };
        self.jobs.note(source.id, 0);
        if is_end {
            job.end(State::Done, now);
        }
        Ok(())
    }

    fn bring_back(&mut self, source: &Job, number: usize, (id, kept): (u64, &Kept), now: u64) -> Outcome {
        if source.action == Action::Move {
            let to = source.to_id.and_then(|to| self.tube_of(to));
            let (Some(to), Some(moved_to)) = (to, kept.moved_to) else { return Outcome::Gone };
            let Some(destination) = self.tubes.get_mut(&to) else { return Outcome::Gone };
            match destination.tasks.get(&moved_to).map(|task| task.status) {
                None => return Outcome::Gone,
                Some('r' | '~') => _ = destination.remove(moved_to, Operation::Delete),
                Some(_) => return Outcome::Touched,
            }
        }
        let Some(tube) = self.tubes.get_mut(&number) else { return Outcome::Gone };
        if source.action == Action::Reschedule {
            return reschedule_back(tube, (id, &kept.task), source, now);
        }
        let (left_in, operation) = match source.action {
            Action::Kick => ('r', Some(Operation::Bury)),
            Action::Run => ('r', None),
            Action::Bury => ('!', Some(Operation::Kick)),
            _ => return put_back(tube, id, kept, now),
        };
        let Some(task) = tube.tasks.get_mut(&id) else { return Outcome::Gone };
        if task.status != left_in {
            return Outcome::Touched;
        }
        task.status = if kept.task.status == 't' { 'r' } else { kept.task.status };
        task.next_event = if task.status == '~' { kept.task.next_event } else { task.death() };
        task.restore_attempts(kept.task.attempts);
        operation.into_iter().for_each(|operation| tube.count(operation));
        Outcome::Undone
    }

    /// Forgets a part of what cannot be undone any more.
    fn expire_kept(&mut self, budget: &mut u64, now: u64) {
        let due = self.jobs.expiring.iter().map(|(id, until)| (*until, *id)).min();
        let Some((_, id)) = due.filter(|(until, _)| *until <= now) else { return };
        let is_being_undone = self.jobs.is_being_undone(id);
        let Some(source) = self.jobs.all.get_mut(&id) else { return };
        if source.undo_until > now || is_being_undone {
            if source.undo_until <= now {
                source.undo_until = now + UNDO_TIME;
            }
            self.jobs.note(id, 0);
            return;
        }
        loop {
            let (rows, is_all) = self.kept_by(id);
            for (task, _) in rows {
                self.forget_kept(id, task);
                *budget = budget.saturating_sub(CHANGE.max(KEPT_CHANGE));
            }
            if is_all {
                if let Some(source) = self.jobs.all.get_mut(&id) {
                    (source.kept, source.undo_until) = (0, 0);
                }
                break;
            }
            if *budget == 0 {
                break;
            }
        }
        self.jobs.note(id, 0);
    }
}

/// Puts a removed task into its tube again, under its id.
fn put_back(tube: &mut Tube, id: u64, kept: &Kept, now: u64) -> Outcome {
    if tube.kind().is_timed() && kept.task.death() <= now {
        return Outcome::Gone;
    }
    if tube.tasks.contains_key(&id) {
        return Outcome::Touched;
    }
    let mut task = kept.task.clone();
    (task.owner, task.lease, task.attempts) = (None, None, None);
    task.restore_attempts(kept.task.attempts);
    if task.status == 't' {
        task.status = 'r';
    }
    tube.tasks.insert(id, task);
    tube.count(Operation::Put);
    Outcome::Undone
}

/// Gives a task that is as the job has left it the delay and the priority that it had before.
fn reschedule_back(tube: &mut Tube, (id, former): (u64, &Task), source: &Job, now: u64) -> Outcome {
    let Some(task) = tube.tasks.get(&id) else { return Outcome::Gone };
    let Schedule { delay, pri } = source.schedule;
    let is_due_as_left = |Span(delay): Span| match task.status {
        '~' => delay > 0 && (source.began + delay..=source.ended + delay).contains(&task.next_event),
        _ => source.began + delay <= now,
    };
    let is_as_left = matches!(task.status, 'r' | '~')
        && pri.is_none_or(|pri| pri == task.pri)
        && delay.is_none_or(is_due_as_left);
    if !is_as_left {
        return Outcome::Touched;
    }
    let ready_at = delay.map(|_| if former.status == '~' { former.next_event } else { 0 });
    let ttl = Some(former.ttl).filter(|_| former.death() > now).unwrap_or(task.ttl);
    tube.reschedule(id, (ready_at, Some(ttl)), pri.map(|_| former.pri), now);
    Outcome::Undone
}

impl Tube {
    /// A task becomes ready at another moment, or gets another priority. Its life is as long as given, or grows with its additional wait.
    fn reschedule(
        &mut self,
        id: u64,
        (ready_at, ttl): (Option<u64>, Option<u64>),
        pri: Option<u64>,
        now: u64,
    ) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        task.pri = pri.unwrap_or(task.pri);
        let Some(ready_at) = ready_at else { return };
        let waited = if task.status == '~' { task.next_event.saturating_sub(now) } else { 0 };
        let wait = ready_at.saturating_sub(now);
        let longer = task.ttl.saturating_add(wait.saturating_sub(waited));
        task.ttl = ttl.unwrap_or(longer);
        let was_delayed = task.status == '~';
        (task.status, task.next_event) = if wait > 0 { ('~', ready_at) } else { ('r', task.death()) };
        if was_delayed && wait == 0 {
            self.count(Operation::Delay);
        }
    }

    /// Tasks that the tube still takes.
    fn room_left(&self) -> u64 {
        match self.plan.capacity {
            0 => u64::MAX,
            capacity => capacity.saturating_sub(self.tasks.len() as u64),
        }
    }

    /// A task comes from another tube, with what both tubes know of it. Returns its id here.
    fn put_moved(&mut self, task: &Task, from: Kind, now: u64) -> u64 {
        let id = self.next_id;
        self.put(&task.data, &crate::request::PutOptions::default(), now);
        let is_timed = self.kind().is_timed();
        let Some(put) = self.tasks.get_mut(&id) else { return id };
        put.restore_attempts(task.attempts);
        if from.has_sub_queues() {
            put.utube = task.utube.clone();
        }
        if from.is_timed() {
            let wait = if task.status == '~' { task.next_event.saturating_sub(now) } else { 0 };
            let left = task.death().saturating_sub(now).saturating_sub(wait).max(1);
            let ttl = through_seconds(if task.ttl >= LONGEST.0 { LONGEST.0 } else { left });
            let delay = if is_timed { through_seconds(wait) } else { 0 };
            (put.pri, put.ttr) = (task.pri, through_seconds(task.ttr));
            (put.ttl, put.next_event) = (ttl + delay, now + if delay > 0 { delay } else { ttl });
            put.status = if delay > 0 { '~' } else { 'r' };
        }
        id
    }
}
