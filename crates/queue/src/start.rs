//! Coming up: after recovery, and when a read-only instance becomes writable.
//!
//! 1. The queue's spaces are created, or brought into the configured mode.
//! 2. Each row of `_queue` becomes a tube. A tube that the process already knows keeps its counters.
//! 3. Tasks that are taken by nobody who could ever come back become ready.
//! 4. Sessions without a connection begin to expire, or end.
//! 5. Rows that the Lua module left wrong are corrected ([`Amiss`](crate::follow::Amiss)).
//!
//! After a restart this costs a look at every task. A start that ends a time as a replica costs O(tubes + taken tasks +
//! sessions + rows to correct), because the tubes have followed the applied rows ([`crate::follow`]).
//!
//! A row of `_queue` that cannot become a tube (an unknown type, a space without an index) stays, without a tube, and
//! the log says why: one broken tube must not keep the others down.

use std::collections::{HashMap, HashSet};

use lycosa_store::{IteratorType, Space, Store};

use crate::LogLevel;
use crate::account::show_candidate;
use crate::create::TubeRow;
use crate::driver::{TubeOptions, TubeType};
use crate::error::Error;
use crate::follow::is_event_amiss;
use crate::owners::TaskKey;
use crate::session::{SessionId, session_field, taken_key};
use crate::state::QueueState;
use crate::system::{QUEUE, QUEUE_BY_ID, SystemSpaces, rows};
use crate::task::{State, Task};
use crate::tube::{Tube, TubeIndex, Tubes};
use crate::turn::{Common, TubeTurn, Turn};
use crate::waiter::Waiters;

/// What a start has found and done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StartReport {
    /// Tubes that are available.
    pub tubes: usize,
    /// Rows of `_queue` that could not become tubes; the log names them.
    pub unavailable: usize,
    /// Tasks that nobody held any more and that became ready.
    pub released: u64,
}

/// What came of [`crate::Queue::rebuild`].
#[derive(Debug)]
pub struct Rebuilt {
    /// The requests of the calls that go on waiting. All others that were parked are forgotten.
    pub waiting: HashSet<u64>,
    /// As of [`crate::Queue::start`], which is to be called again after an error.
    pub started: Result<StartReport, Error>,
}

impl Turn<'_> {
    pub(crate) fn start(&mut self) -> Result<StartReport, Error> {
        let has_followed = std::mem::replace(&mut self.common.follows, true);
        self.common.set_state(QueueState::Startup);
        self.common.starts = true;
        let report = self.come_up(has_followed);
        self.common.starts = false;
        report
    }

    /// `has_followed`: the process has known the tubes before, as a replica or as the master. Otherwise it begins, and nobody
    /// is connected.
    fn come_up(&mut self, has_followed: bool) -> Result<StartReport, Error> {
        self.prepare_spaces()?;
        let report = self.load_tubes()?;
        self.find_attempts(has_followed)?;
        self.resume(!has_followed, report)
    }

    /// See [`crate::Queue::rebuild`]. A queue that does not run has nothing that could go on; its start derives the rest.
    pub(crate) fn rebuild(&mut self) -> Rebuilt {
        let has_run = matches!(self.common.state, QueueState::Running | QueueState::Startup);
        let indexes: Vec<_> = self.tubes.indexes().collect();
        let former: HashMap<_, _> =
            indexes.into_iter().filter_map(|index| Some((index, self.tubes.remove(index)?))).collect();
        let waiters = self.common.forget_data();
        let mut waiting = HashSet::new();
        if !has_run {
            if self.common.follows {
                self.common.follows = false;
                self.follow();
            }
            return Rebuilt { waiting, started: Ok(StartReport::default()) };
        }
        self.common.set_state(QueueState::Startup);
        self.common.starts = true;
        let started = self.come_up_again(former, waiters, &mut waiting);
        self.common.starts = false;
        if let Err(error) = &started {
            self.common.log_failure("the start on the confirmed data", error);
        }
        Rebuilt { waiting, started }
    }

    fn come_up_again(
        &mut self,
        former: HashMap<TubeIndex, Box<Tube>>,
        waiters: Waiters,
        waiting: &mut HashSet<u64>,
    ) -> Result<StartReport, Error> {
        self.prepare_spaces()?;
        let report = self.load_tubes()?;
        let mut moved = HashMap::new();
        for (before, former) in former {
            if let Some(index) = self.tubes.by_id(former.id)
                && let Some(tube) = self.tubes.at_mut(index).filter(|tube| tube.name == former.name)
            {
                tube.counters = former.counters;
                tube.observed = former.observed;
                moved.insert(before, index);
            }
        }
        for (before, waiter) in waiters.into_calls() {
            if let Some(&index) = moved.get(&before) {
                waiting.insert(waiter.request);
                self.common.waiters.push(index, waiter);
            }
        }
        self.find_attempts(false)?;
        self.resume(false, report)
    }

    fn prepare_spaces(&mut self) -> Result<(), Error> {
        if self.common.configuration.in_replicaset && self.temporary_tubes_stored() {
            self.common.configuration.in_replicaset = false;
        }
        let in_replicaset = self.common.configuration.in_replicaset;
        let spaces = self.transact(|turn| SystemSpaces::prepare(turn.store, in_replicaset))?;
        self.common.use_spaces(spaces, in_replicaset);
        Ok(())
    }

    /// The tubes are there: derives the rest of what the process knows, and serves.
    fn resume(&mut self, is_beginning: bool, mut report: StartReport) -> Result<StartReport, Error> {
        report.released = self.release_orphans()?;
        self.start_sessions()?;
        self.common.corrected_later.clear();
        self.correct_tubes(is_beginning)?;
        self.common.set_state(QueueState::Running);
        // The beginning is over before anybody connects; a change of the role goes on with the next ticks.
        while is_beginning && self.release_closing(usize::MAX) > 0 {}
        self.common.ready.extend(self.tubes.indexes());
        self.serve();
        Ok(report)
    }

    /// Whether `_queue` has a temporary tube, which replica set mode excludes; says so in the log.
    fn temporary_tubes_stored(&mut self) -> bool {
        let Some(queue) = self.store.space_by_name(QUEUE.name) else { return false };
        let stored = rows(self.store, queue.id(), 0, IteratorType::All, &[0x90]).unwrap_or_default();
        let tubes = stored.iter().filter_map(|row| TubeRow::read(row));
        let is_temporary =
            |row: &TubeRow<'_>| self.store.space_by_name(row.space).is_some_and(Space::is_temporary);
        let temporary: Vec<_> = tubes.filter(is_temporary).map(|row| row.name.to_owned()).collect();
        self.common.log_temporary(&temporary);
        !temporary.is_empty()
    }

    /// Adds a type of tube. The stored tubes of that type come up, and their tasks are released, if the queue runs.
    pub(crate) fn register(&mut self, tube_type: TubeType) -> Result<StartReport, Error> {
        let name = tube_type.name().to_owned();
        self.common.types.add(tube_type)?;
        if !self.common.is_running() {
            return Ok(StartReport::default());
        }
        let mut report = StartReport::default();
        let mut released = 0;
        for index in self.load_rows(|row| row.tube_type == name, &mut report)? {
            let TubeTurn { store, tube, .. } = self.tube(index)?;
            let orphans = tube.ids_in_state(store, State::Taken, &mut |_| Ok(true))?;
            released += self.release_batches(index, &orphans)?;
            self.correct(index, usize::MAX)?;
        }
        report.released = released;
        self.serve();
        Ok(report)
    }

    fn load_tubes(&mut self) -> Result<StartReport, Error> {
        let mut report = StartReport::default();
        let mut gone: HashSet<TubeIndex> = self.tubes.indexes().collect();
        for index in self.load_rows(|_| true, &mut report)? {
            gone.remove(&index);
        }
        gone.into_iter().for_each(|index| self.forget_tube(index));
        Ok(report)
    }

    /// Makes tubes of the rows of `_queue` that satisfy `f`.
    fn load_rows(
        &mut self,
        f: impl Fn(&TubeRow<'_>) -> bool,
        report: &mut StartReport,
    ) -> Result<Vec<TubeIndex>, Error> {
        let mut loaded = Vec::new();
        let stored = rows(self.store, self.common.spaces.queue, QUEUE_BY_ID, IteratorType::All, &[0x90])?;
        for stored in &stored {
            let Some(row) = TubeRow::read(stored) else {
                report.unavailable += 1;
                continue;
            };
            if !f(&row) {
                continue;
            }
            match self.transact(|turn| turn.load_stored(&row)) {
                Ok(index) => {
                    report.tubes += 1;
                    loaded.push(index);
                }
                Err(error) => {
                    report.unavailable += 1;
                    let text = format!("tube '{}' is not available: {error}", row.name);
                    self.common.log(LogLevel::Warning, text);
                }
            }
        }
        Ok(loaded)
    }

    /// Makes a tube of a row of `_queue`.
    pub(crate) fn load_stored(&mut self, row: &TubeRow<'_>) -> Result<TubeIndex, Error> {
        let kind = self.common.types.get(row.tube_type).cloned();
        let kind = kind.ok_or_else(|| Error::UnknownTubeType(row.tube_type.into()))?;
        let mut refused = Vec::new();
        let mut options =
            TubeOptions::stored(row.options, kind.layout().timed, &mut |error| refused.push(error));
        // A queue that only follows leaves that to its start.
        let refused = if self.common.keeps_in_step() { refused } else { Vec::new() };
        for error in refused {
            let text = format!("tube '{}': {error}; the default counts", row.name);
            self.common.log(LogLevel::Warning, text);
        }
        let driver = kind.driver(&options, row.options)?;
        if let Some(space) = self.store.space_by_name(row.space) {
            options.temporary = space.is_temporary();
        }
        self.load_tube(row, &kind, driver, options)
    }

    /// Finds what is kept of attempts, and removes what is kept of tasks that do not exist. A transaction that removes a
    /// task removes its row too. So after a time as a replica only rows of temporary tubes can be left: their tasks were
    /// another instance's.
    fn find_attempts(&mut self, has_followed: bool) -> Result<(), Error> {
        self.common.attempts.find(self.store);
        if has_followed {
            let temporary = self.tubes.iter().filter(|tube| tube.options.temporary);
            let temporary: Vec<_> = temporary.map(|tube| tube.id).collect();
            return self.transact(|Turn { store, tubes, common, .. }| {
                temporary.iter().try_for_each(|&tube| {
                    common.attempts.retain(store, Some(tube), |store, task| has_task(tubes, store, task))
                })
            });
        }
        self.transact(|Turn { store, tubes, common, .. }| {
            common.attempts.retain(store, None, |store, task| has_task(tubes, store, task))
        })
    }

    /// Releases tasks that no session holds, or none that could come back.
    fn release_orphans(&mut self) -> Result<u64, Error> {
        let sessions: HashSet<SessionId> =
            rows(self.store, self.common.spaces.shared_sessions, 0, IteratorType::All, &[0x90])?
                .iter()
                .filter_map(|row| session_field(row, 0))
                .collect();
        let mut released = 0;
        let tubes: Vec<_> = self.tubes.indexes().collect();
        for index in tubes {
            let TubeTurn { store, tube, common, .. } = self.tube(index)?;
            let orphans = tube.ids_in_state(store, State::Taken, &mut |id| {
                let owner = common.owners.session_of(store, (tube.id, id))?;
                Ok(!owner.is_some_and(|owner| sessions.contains(&owner)))
            })?;
            released += self.release_batches(index, &orphans)?;
        }
        self.forget_missing_tasks()?;
        if released > 0 {
            self.common.log(LogLevel::Info, format!("released {released} tasks"));
        }
        Ok(released)
    }

    /// Releases taken tasks of a tube. Returns how many were.
    fn release_batches(&mut self, index: TubeIndex, tasks: &[u64]) -> Result<u64, Error> {
        let mut released = 0;
        for batch in tasks.chunks(Self::BATCH) {
            self.transact_at(index, |tube| {
                for &id in batch {
                    released += u64::from(tube.release_taken(id)?);
                }
                Ok(())
            })?;
        }
        Ok(released)
    }

    /// Removes rows of `_queue_taken_2` whose task is gone or not taken.
    fn forget_missing_tasks(&mut self) -> Result<(), Error> {
        let mut missing = Vec::new();
        for row in self.common.owners.rows(self.store)? {
            let Some((tube_id, id)) = taken_key(&row) else { continue };
            let held = self.tubes.by_id(tube_id).and_then(|index| self.tubes.at(index)).map(|tube| {
                let task = tube.tasks(self.store).get(id).ok().flatten();
                let task = task.and_then(|tuple| Task::read(tuple, tube.kind.layout()));
                task.is_some_and(|task| task.state() == Some(State::Taken))
            });
            if held == Some(false) {
                missing.push((tube_id, id));
            }
        }
        for batch in missing.chunks(Self::BATCH) {
            self.transact(|Turn { store, common: Common { owners, pending, .. }, .. }| {
                batch.iter().try_for_each(|&task| owners.forget(store, pending, task))
            })?;
        }
        Ok(())
    }

    /// Corrects what is amiss. After a time as a replica a tube's tasks beyond a portion are left to the timer.
    fn correct_tubes(&mut self, is_beginning: bool) -> Result<(), Error> {
        let limit = if is_beginning { usize::MAX } else { Self::BATCH };
        let tubes: Vec<_> = self.tubes.indexes().collect();
        tubes.into_iter().try_for_each(|index| self.correct(index, limit))
    }

    /// Makes the ready buffer of a tube show the candidates, and corrects up to `limit` wrong times; the timer does the rest.
    fn correct(&mut self, index: TubeIndex, limit: usize) -> Result<(), Error> {
        self.correct_buffer(index)?;
        let TubeTurn { tube, common, .. } = self.tube(index)?;
        let count = tube.amiss.events.len();
        if count == 0 {
            return Ok(());
        }
        let text = format!(
            "tube '{}': corrects when {count} released tasks expire, as the Lua module stores a wrong time for them",
            tube.name
        );
        common.log(LogLevel::Warning, text);
        self.correct_events(index, limit)?;
        if !self.tube(index)?.tube.amiss.events.is_empty() {
            self.common.corrected_later.push_back(index);
        }
        Ok(())
    }

    /// Makes a ready buffer show exactly the candidates.
    fn correct_buffer(&mut self, index: TubeIndex) -> Result<(), Error> {
        let TubeTurn { tube, .. } = self.tube(index)?;
        let (Some(buffer), Some(candidates)) = (tube.buffer, tube.driver.candidates()) else { return Ok(()) };
        let columns = tube.kind.layout().buffer_columns();
        let names = tube.amiss.names.iter();
        let wrong: Vec<_> = names.map(|name| (name.clone(), candidates.get(name))).collect();
        for batch in wrong.chunks(Self::BATCH) {
            self.transact(|turn| {
                let vanished = batch.iter().filter(|(_, candidate)| candidate.is_none());
                let shown = batch.iter().filter(|(_, candidate)| candidate.is_some());
                vanished.chain(shown).try_for_each(|(name, candidate)| {
                    show_candidate(turn.store, buffer, columns, name, *candidate)
                })
            })?;
        }
        self.tube(index)?.tube.amiss.names.clear();
        Ok(())
    }

    /// Corrects the next events of up to `limit` tasks: that of a ready task is the end of its life. Returns how many tasks
    /// were looked at.
    fn correct_events(&mut self, index: TubeIndex, limit: usize) -> Result<usize, Error> {
        let mut count = 0;
        while count < limit {
            let portion = (limit - count).min(Self::BATCH);
            let events = &self.tube(index)?.tube.amiss.events;
            let wrong: Vec<_> = events.iter().take(portion).copied().collect();
            if wrong.is_empty() {
                break;
            }
            self.transact_at(index, |tube| {
                wrong.iter().try_for_each(|&id| {
                    let task = tube.tasks().get(id)?;
                    let task = task.and_then(|tuple| Task::read(tuple, tube.tube.kind.layout()));
                    // It may have been taken, corrected or removed since.
                    match task.filter(is_event_amiss) {
                        Some(task) => tube.postpone(id, task.times.death()),
                        None => Ok(()),
                    }
                })
            })?;
            count += wrong.len();
            let events = &mut self.tube(index)?.tube.amiss.events;
            wrong.iter().for_each(|id| _ = events.remove(id));
        }
        Ok(count)
    }

    /// Corrects wrong times that a start has left, at most `budget`. Returns how many tasks were looked at.
    pub(crate) fn correct_later(&mut self, budget: usize) -> usize {
        let mut done = 0;
        while done < budget
            && let Some(&index) = self.common.corrected_later.front()
        {
            match self.correct_events(index, budget - done) {
                Ok(count) if count == budget - done => done = budget,
                Ok(count) => {
                    done += count;
                    self.common.corrected_later.pop_front();
                }
                Err(error) => {
                    // The next start tries again; until then the timer corrects each task when its wrong time has come.
                    self.common.log_failure("correction of released tasks", &error);
                    self.common.corrected_later.pop_front();
                }
            }
        }
        done
    }
}

fn has_task(tubes: &Tubes, store: &Store, (tube, task): TaskKey) -> bool {
    let tube = tubes.by_id(tube).and_then(|index| tubes.at(index));
    tube.is_some_and(|tube| tube.tasks(store).get(task).is_ok_and(|task| task.is_some()))
}
