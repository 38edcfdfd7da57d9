//! Reading the status.

use lycosa_store::{Budget, IteratorType, Store};

use super::histogram::Histogram;
use super::history::History;
use super::issue::Issue;
use super::rates::Rates;
use crate::driver::TubeOptions;
use crate::error::{Error, Result};
use crate::listing::may_look;
use crate::statistics::{Counters, Operation, TaskCounts};
use crate::task::{NameKey, ShortKey, State, Task, id_of};
use crate::tube::Tube;
use crate::tube::handle::TubeIndex;
use crate::turn::{Common, Turn};
use crate::waiter::Line;
use crate::{Answer, Caller, Queue};

/// Priorities that are looked at for the oldest ready task; with more of them it may be missed.
const MAX_PRIORITIES: usize = 16;
/// Tubes with expired deadlines whose tasks are counted.
const MAX_OVERDUE_TUBES: usize = 64;

/// A tube at one moment. Times are in µs.
#[derive(Debug, Clone)]
pub struct TubeStatus {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: String,
    /// Its id in `_queue`, in whose order pages have tubes.
    pub id: u64,
    /// Tasks by state.
    pub tasks: TaskCounts,
    /// Operations since the start of the process or the making of the tube.
    pub counters: Counters,
    /// Bytes of all tasks.
    pub bytes: u64,
    /// Tasks that it may hold; None: any number.
    pub capacity: Option<u64>,
    /// Its options, if it was asked for by its name.
    pub options: Option<TubeOptions>,
    /// Whether it hands out no tasks.
    pub paused: bool,
    /// Calls that wait for tasks.
    pub waiting_takes: u32,
    /// Calls that wait for free space.
    pub waiting_puts: u32,
    /// Since when the oldest ready task has been in the tube.
    pub oldest_ready_age: Option<u64>,
    /// Since when the task that is taken longest has been taken.
    pub oldest_taken_age: Option<u64>,
    /// Free sub-queues with a ready task, if the tube has sub-queues.
    pub ready_keys: Option<u64>,
    /// Sub-queues with a taken task, if the tube has sub-queues.
    pub busy_keys: Option<u64>,
    /// From put to take; None: the tube has no meter.
    pub wait: Option<Histogram>,
    /// From take to ack; None: the tube has no meter.
    pub work: Option<Histogram>,
    /// None: the tube has no meter.
    pub rates: Option<Rates>,
    /// Of the sub-queues into which the most is put, if they were asked for.
    pub sub_queues: Vec<SubQueueStatus>,
    /// If it was asked for and the tube is among the busiest.
    pub history: Option<History>,
    /// If they were asked for.
    pub issues: Option<Vec<Issue>>,
}

/// A sub-queue at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubQueueStatus {
    /// Its name.
    pub name: Vec<u8>,
    /// Its tasks.
    pub tasks: TaskCounts,
}

/// The whole queue at one moment.
#[derive(Debug, Clone)]
pub struct QueueStatus {
    /// Number of tubes.
    pub tubes: usize,
    /// Tasks of all tubes by state.
    pub tasks: TaskCounts,
    /// Operations since the start of the process.
    pub counters: Counters,
    /// Connections with a queue session.
    pub sessions: usize,
    /// Calls that wait.
    pub waiting: usize,
    /// From put to take.
    pub wait: Histogram,
    /// From take to ack.
    pub work: Histogram,
    /// How late deadlines of tasks fired.
    pub lateness: Histogram,
    /// Tasks whose deadlines have passed and that are still as before; of at most 64 tubes.
    pub overdue: u64,
    /// Operations a second.
    pub rates: Rates,
    /// The last day.
    pub history: History,
}

/// A request for statuses.
#[derive(Debug, Clone, Copy, Default)]
pub struct Page<'a> {
    /// Tubes with larger ids than this one.
    pub after: Option<u64>,
    /// Number of tubes at most.
    pub limit: usize,
    /// Only the tube of this name, with its sub-queues.
    pub tube: Option<&'a str>,
    /// With histories.
    pub history: bool,
    /// With issues. A tube that is asked for by its name has them in any case.
    pub issues: bool,
}

impl Page<'_> {
    /// Tubes on one page at most: a page takes less than a millisecond.
    pub const MAX_TUBES: usize = 200;
}

impl Queue {
    /// A page of tubes that the caller may look at, and the id behind which the next page begins, if there is one.
    ///
    /// # Errors
    /// A space or an index of a tube is gone.
    pub fn statuses(
        &self,
        store: &Store,
        caller: &Caller,
        page: Page<'_>,
        now: u64,
    ) -> Result<(Vec<TubeStatus>, Option<u64>)> {
        let is_seen = |tube: &Tube| store.space(tube.space).is_ok() && may_look(store, caller, tube);
        if let Some(name) = page.tube {
            let index = self.tubes.by_name(name).map(|handle| handle.index);
            let found = index.and_then(|index| Some((index, self.tubes.at(index)?)));
            let seen = found.filter(|(_, tube)| is_seen(tube));
            let status = seen.map(|tube| self.common.status_of(store, tube, page, now));
            return Ok((status.transpose()?.into_iter().collect(), None));
        }
        let (mut found, mut after) = (Vec::new(), page.after);
        // A tube that the caller may not see counts towards the limit too.
        for _ in 0..page.limit.clamp(1, Page::MAX_TUBES) {
            let Some((id, index)) = self.tubes.next(after, false) else { return Ok((found, None)) };
            after = Some(id);
            if let Some(tube) = self.tubes.at(index).filter(|tube| is_seen(tube)) {
                found.push(self.common.status_of(store, (index, tube), page, now)?);
            }
        }
        Ok((found, after.filter(|_| self.tubes.next(after, false).is_some())))
    }

    /// The age of the oldest ready task among the tubes behind the id `after`, µs, and the id behind which to go on, if there
    /// are more. Tubes that do not know it are left out. A look-up in an index is a row of the budget, and so is a tube; at least one
    /// tube is looked at, with up to 17 look-ups.
    #[must_use]
    pub fn oldest_ready(
        &self,
        store: &Store,
        mut after: Option<u64>,
        mut budget: Budget<'_>,
        now: u64,
    ) -> (Option<u64>, Option<u64>) {
        let mut oldest = None;
        while !budget.is_spent() {
            let Some((id, index)) = self.tubes.next(after, false) else { return (oldest, None) };
            after = Some(id);
            budget.spend_rows(1);
            let ready = self.tubes.at(index).filter(|tube| tube.counts.shown().ready > 0);
            let since = ready.and_then(|tube| tube.oldest_ready(store, &mut budget).ok()?);
            oldest = oldest.max(since.map(|since| now.saturating_sub(since)));
        }
        (oldest, after)
    }

    /// The whole queue.
    #[must_use]
    pub fn status(&self, store: &Store, now: u64) -> QueueStatus {
        let (totals, tasks) = (&self.common.totals, self.tubes.total().shown());
        QueueStatus {
            tubes: self.tubes.len(),
            tasks,
            counters: totals.counters,
            sessions: self.common.sessions.connections(),
            waiting: self.common.waiters.len(),
            wait: totals.wait.clone(),
            work: totals.work.clone(),
            lateness: totals.lateness.clone(),
            overdue: self.overdue(store, now),
            rates: totals.pace.rates(now, &totals.counters),
            history: totals.pace.history(now, &totals.counters, tasks, &totals.history),
        }
    }

    /// Tasks whose deadlines have passed.
    fn overdue(&self, store: &Store, now: u64) -> u64 {
        let due = self.common.deadlines.due(now).take(MAX_OVERDUE_TUBES);
        due.filter_map(|index| self.tubes.at(index)).map(|tube| tube.overdue(store, now)).sum()
    }
}

impl Common {
    pub(super) fn status_of(
        &self,
        store: &Store,
        (index, tube): (TubeIndex, &Tube),
        page: Page<'_>,
        now: u64,
    ) -> Result<TubeStatus> {
        let meter = tube.meter.as_deref();
        let candidates = tube.driver.candidates();
        let age = |since: u64| now.saturating_sub(since);
        let mut status = TubeStatus {
            name: tube.name.clone(),
            kind: tube.kind.name().to_owned(),
            id: tube.id,
            tasks: tube.counts.shown(),
            counters: tube.counters,
            bytes: store.space(tube.space)?.bytes(),
            capacity: tube.driver.capacity(),
            options: page.tube.map(|_| tube.options.clone()),
            paused: tube.paused,
            waiting_takes: self.waiters.count(index, Line::Takes),
            waiting_puts: self.waiters.count(index, Line::Puts),
            oldest_ready_age: tube.oldest_ready(store, &mut Budget::of_rows(u32::MAX))?.map(age),
            oldest_taken_age: self.oldest_taken(store, tube)?.map(age),
            ready_keys: candidates.map(|candidates| candidates.len() as u64),
            busy_keys: candidates.map(|candidates| candidates.busy() as u64),
            wait: meter.map(|meter| meter.wait.clone()),
            work: meter.map(|meter| meter.work.clone()),
            rates: meter.map(|meter| meter.pace.rates(now, &tube.counters)),
            sub_queues: if page.tube.is_some() { tube.sub_queues(store)? } else { Vec::new() },
            history: meter.filter(|_| page.history).and_then(|meter| {
                let history = meter.history.as_deref()?;
                Some(meter.pace.history(now, &tube.counters, tube.counts.shown(), history))
            }),
            issues: None,
        };
        status.issues = (page.issues || page.tube.is_some()).then(|| status.find_issues(now));
        Ok(status)
    }

    /// When the task was taken that is taken longest: the first of the sample, or the owner of the first taken task if that is
    /// older, as after a restart.
    pub(super) fn oldest_taken(&self, store: &Store, tube: &Tube) -> Result<Option<u64>> {
        if tube.counts.shown().taken == 0 {
            return Ok(None);
        }
        let first = tube.tasks(store).first_in_state(State::Taken)?.and_then(id_of);
        let owner = first.map_or(Ok(None), |id| self.owners.taken_at(store, (tube.id, id)))?;
        let sampled = tube.meter.as_deref().and_then(|meter| meter.takes.first());
        Ok(owner.into_iter().chain(sampled).min())
    }
}

impl Turn<'_> {
    /// `status()`: the map of one tube, with its sub-queues and its history.
    pub(crate) fn write_tube_status(&self, index: TubeIndex, out: &mut Vec<u8>) -> Result<Answer> {
        let tube = self.tubes.at(index).ok_or(Error::Stale)?;
        let page = Page { tube: Some(&tube.name), history: true, ..Page::default() };
        self.common.status_of(self.store, (index, tube), page, self.now)?.write(out);
        Ok(Answer::one())
    }
}

impl Tube {
    /// When the oldest ready task was put. Where tasks do not say so, the sample of puts does, as far as it reaches.
    pub(super) fn oldest_ready(&self, store: &Store, budget: &mut Budget<'_>) -> Result<Option<u64>> {
        let found = self.oldest.find(store.space(self.space)?, || self.look_for_oldest(store, budget))?;
        if self.kind.layout().timed {
            return Ok(found);
        }
        Ok(found.zip(self.meter.as_deref()).and_then(|(id, meter)| meter.puts.around(id)))
    }

    /// Where tasks say when they were put: when the oldest ready one was. Elsewhere the id of the first ready task.
    fn look_for_oldest(&self, store: &Store, budget: &mut Budget<'_>) -> Result<Option<u64>> {
        let layout = self.kind.layout();
        let mut first = self.tasks(store).first_in_state(State::Ready)?;
        budget.spend_rows(1);
        budget.note_look_up();
        if !layout.timed {
            return Ok(first.and_then(id_of));
        }
        let mut oldest = None;
        for _ in 0..MAX_PRIORITIES {
            let task = first.and_then(|tuple| Task::read(tuple, layout));
            let Some(task) = task.filter(|task| task.state() == Some(State::Ready)) else { break };
            oldest = oldest.into_iter().chain([task.times.created]).min();
            let Some(next) = task.pri.checked_add(1) else { break };
            let key = ShortKey::state(State::Ready, &[next]);
            first = store.first(self.space, self.indexes.status, IteratorType::Ge, &key)?;
            budget.spend_rows(1);
        }
        Ok(oldest)
    }

    fn overdue(&self, store: &Store, now: u64) -> u64 {
        let count = |iterator, key: &[u8]| store.count(self.space, self.indexes.watch, iterator, key);
        let in_state = |state: State| {
            let until = count(IteratorType::Le, &ShortKey::state(state, &[now]));
            let before = count(IteratorType::Lt, &ShortKey::state(state, &[]));
            until.unwrap_or(0).saturating_sub(before.unwrap_or(0))
        };
        if self.kind.layout().timed { State::STORED.into_iter().map(in_state).sum() } else { 0 }
    }

    fn sub_queues(&self, store: &Store) -> Result<Vec<SubQueueStatus>> {
        let busiest = self.meter.as_deref().and_then(|meter| meter.sub_queues.as_deref());
        let names = busiest.map(|busiest| busiest.names()).unwrap_or_default();
        let statuses = names.into_iter().map(|name| {
            let key = |state| NameKey::new(state, name, &[]);
            let count = |state| store.count(self.space, self.indexes.utube, IteratorType::Eq, &key(state));
            Ok(SubQueueStatus { name: name.to_vec(), tasks: TaskCounts::of(|state| Ok(count(state)?))? })
        });
        statuses.collect()
    }
}

impl TubeStatus {
    /// Seconds until no task is ready any more at the rates of the last minute; None: never, or not known.
    #[must_use]
    pub fn drain_seconds(&self) -> Option<f64> {
        let rates = self.rates.as_ref()?;
        if self.tasks.ready == 0 {
            return Some(0.0);
        }
        let net = f64::from(rates.acks[0]) - f64::from(rates.puts[0]);
        (net > 0.0).then(|| self.tasks.ready as f64 / net)
    }

    /// How often tasks were taken, first attempts and later ones.
    #[must_use]
    pub fn attempts(&self) -> u64 {
        self.counters.get(Operation::Take)
    }
}
