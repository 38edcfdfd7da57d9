//! Coming up: after recovery, and when a read-only instance becomes writable.
//!
//! 1. The queue's spaces are created, or brought into the configured mode.
//! 2. Each row of `_queue` becomes a tube. A tube that the process already knows keeps its counters.
//! 3. Tasks that are taken by nobody who could ever come back become ready.
//! 4. Sessions without a connection begin to expire, or end.
//! 5. Ready buffers are compared with the candidates and corrected.
//!
//! A row of `_queue` that cannot become a tube (an unknown type, a space without an index) stays, without a tube, and
//! the log says why: one broken tube must not keep the others down.

use std::collections::{HashMap, HashSet};

use lycosa_store::{IteratorType, Store, user};
use lycosa_tuple::mp::Reader;
use lycosa_tuple::tuple::TupleRef;

use crate::account::show_candidate;
use crate::create::TubeRow;
use crate::driver::candidates::Candidate;
use crate::driver::{self, TubeOptions};
use crate::error::Error;
use crate::session::{SessionId, session_field};
use crate::state::QueueState;
use crate::system::{QUEUE_BY_ID, SystemSpaces, rows};
use crate::task::{State, Task};
use crate::time::{MAX_TIMEOUT, NEVER};
use crate::tube::SlotIndex;
use crate::{LogLevel, Queue};

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

impl Queue {
    /// Comes up: to be called once after recovery, when the instance is writable. Leaves the queue running.
    ///
    /// # Errors
    /// The store refuses to create or change the queue's spaces, or to release tasks. The call may be repeated.
    pub fn start(&mut self, store: &mut Store, now: u64) -> Result<StartReport, Error> {
        let is_first = self.state() == QueueState::Init;
        self.enter(QueueState::Startup);
        if self.configuration.in_replicaset && self.temporary_tubes_stored(store) {
            self.configuration.in_replicaset = false;
        }
        let in_replicaset = self.configuration.in_replicaset;
        self.spaces =
            self.transact(store, user::ADMIN, |_, store| SystemSpaces::prepare(store, in_replicaset))?;
        let mut report = self.load_tubes(store)?;
        self.find_attempts(store)?;
        report.released = self.release_orphans(store, now)?;
        self.start_sessions(store, now)?;
        self.correct_tubes(store, now)?;
        self.enter(QueueState::Running);
        // A start is over before anybody connects; a change of the role goes on with the next ticks.
        while is_first && self.release_closing(store, now, usize::MAX) > 0 {}
        let tubes: Vec<_> = self.tubes.slots().collect();
        self.ready.extend(tubes);
        self.serve(store, now);
        Ok(report)
    }

    /// Whether `_queue` has a temporary tube, which replica set mode excludes; says so in the log.
    fn temporary_tubes_stored(&mut self, store: &Store) -> bool {
        let Some(queue) = store.space_by_name(crate::system::QUEUE.name) else { return false };
        let stored = rows(store, queue.id(), 0, IteratorType::All, &[0x90]).unwrap_or_default();
        let mut temporary = Vec::new();
        for row in stored.iter().filter_map(|row| TubeRow::read(row)) {
            if store.space_by_name(row.space).is_some_and(lycosa_store::Space::is_temporary) {
                temporary.push(row.name.to_owned());
            }
        }
        self.log_temporary(&temporary);
        !temporary.is_empty()
    }

    fn load_tubes(&mut self, store: &mut Store) -> Result<StartReport, Error> {
        let mut report = StartReport::default();
        let mut gone: HashSet<SlotIndex> = self.tubes.slots().collect();
        let stored = rows(store, self.spaces.queue, QUEUE_BY_ID, IteratorType::All, &[0x90])?;
        for stored in &stored {
            let Some(row) = TubeRow::read(stored) else {
                report.unavailable += 1;
                continue;
            };
            let loaded = self.transact(store, user::ADMIN, |queue, store| queue.load_stored(store, &row));
            match loaded {
                Ok(index) => {
                    report.tubes += 1;
                    gone.remove(&index);
                }
                Err(error) => {
                    report.unavailable += 1;
                    self.log(LogLevel::Warning, format!("tube '{}' is not available: {error}", row.name));
                }
            }
        }
        for index in gone {
            self.forget_tube(store, index);
        }
        Ok(report)
    }

    fn load_stored(&mut self, store: &mut Store, row: &TubeRow<'_>) -> Result<SlotIndex, Error> {
        let mut refused = Vec::new();
        let mut options = TubeOptions::stored(row.options, row.tube_type, &mut |error| refused.push(error));
        for error in refused {
            self.log(LogLevel::Warning, format!("tube '{}': {error}; the default counts", row.name));
        }
        let driver = driver::create(row.tube_type, &options)?
            .ok_or_else(|| Error::UnknownTubeType(row.tube_type.into()))?;
        if let Some(space) = store.space_by_name(row.space) {
            options.temporary = space.is_temporary();
        }
        self.load_tube(store, row, driver, options)
    }

    /// Releases tasks that no session holds, or none that could come back.
    fn release_orphans(&mut self, store: &mut Store, now: u64) -> Result<u64, Error> {
        let sessions: HashSet<SessionId> =
            rows(store, self.spaces.shared_sessions, 0, IteratorType::All, &[0x90])?
                .iter()
                .filter_map(|row| session_field(row, 0))
                .collect();
        let mut released = 0;
        let tubes: Vec<_> = self.tubes.slots().collect();
        for index in tubes {
            let Some(tube) = self.tubes.at(index) else { continue };
            let tube_id = tube.id;
            let orphans = self.ids_in_state(store, index, State::Taken, &mut |id| {
                let owner = self.owner_of(store, (tube_id, id))?;
                Ok(!owner.is_some_and(|owner| sessions.contains(&owner)))
            })?;
            for batch in orphans.chunks(Self::BATCH) {
                self.transact(store, user::ADMIN, |queue, store| {
                    for &id in batch {
                        released += u64::from(queue.release_taken(store, index, id, now)?);
                    }
                    Ok(())
                })?;
            }
        }
        self.forget_missing_tasks(store)?;
        if released > 0 {
            self.log(LogLevel::Info, format!("released {released} tasks"));
        }
        Ok(released)
    }

    /// Removes rows of `_queue_taken_2` whose task is gone or not taken.
    fn forget_missing_tasks(&mut self, store: &mut Store) -> Result<(), Error> {
        let mut missing = Vec::new();
        for row in self.taken_rows(store)? {
            let Some((tube_id, id)) = crate::session::taken_key(&row) else { continue };
            let held = self.tubes.by_id(tube_id).and_then(|index| self.tubes.at(index)).map(|tube| {
                let task = tube.tasks(store).get(id).ok().flatten();
                let task = task.and_then(|tuple| Task::read(tuple, tube.driver.layout()));
                task.is_some_and(|task| task.state() == Some(State::Taken))
            });
            if held == Some(false) {
                missing.push((tube_id, id));
            }
        }
        for batch in missing.chunks(Self::BATCH) {
            self.transact(store, user::ADMIN, |queue, store| {
                batch.iter().try_for_each(|&task| queue.forget_owner(store, task))
            })?;
        }
        Ok(())
    }

    fn correct_tubes(&mut self, store: &mut Store, now: u64) -> Result<(), Error> {
        let tubes: Vec<_> = self.tubes.slots().collect();
        for index in tubes {
            self.correct_buffer(store, index)?;
            self.correct_events(store, index, now)?;
        }
        Ok(())
    }

    /// Makes a ready buffer show exactly the candidates.
    fn correct_buffer(&mut self, store: &mut Store, index: SlotIndex) -> Result<(), Error> {
        let Some(tube) = self.tubes.at(index) else { return Ok(()) };
        let (Some(buffer), Some(candidates)) = (tube.buffer, tube.driver.candidates()) else { return Ok(()) };
        let columns = tube.driver.layout().ready_buffer.map_or(0, |buffer| buffer.fields.len());
        let mut wrong: HashMap<Vec<u8>, Option<Candidate>> =
            candidates.iter().map(|(name, candidate)| (name.to_vec(), Some(candidate))).collect();
        for row in rows(store, buffer, 0, IteratorType::All, &[0x90])? {
            let Some((candidate, name)) = buffer_row(&row, columns) else { continue };
            if candidates.get(name) == Some(candidate) {
                wrong.remove(name);
            } else {
                wrong.entry(name.to_vec()).or_insert(None);
            }
        }
        let mut wrong: Vec<_> = wrong.into_iter().collect();
        wrong.sort_unstable();
        for batch in wrong.chunks(Self::BATCH) {
            self.transact(store, user::ADMIN, |_, store| {
                let vanished = batch.iter().filter(|(_, candidate)| candidate.is_none());
                let shown = batch.iter().filter(|(_, candidate)| candidate.is_some());
                vanished.chain(shown).try_for_each(|(name, candidate)| {
                    show_candidate(store, buffer, columns, name, *candidate)
                })
            })?;
        }
        Ok(())
    }

    /// Corrects the next events that the Lua module's utubettl stores on release: moments far beyond any deadline.
    fn correct_events(&mut self, store: &mut Store, index: SlotIndex, now: u64) -> Result<(), Error> {
        let Some(tube) = self.tubes.at(index) else { return Ok(()) };
        let layout = tube.driver.layout();
        if !layout.timed || layout.utube.is_none() {
            return Ok(());
        }
        let mut wrong = Vec::new();
        let beyond = now.saturating_add(2 * MAX_TIMEOUT);
        // The index of deadlines would have to flush the entries that it defers, so this looks at all tasks.
        for tuple in store.range(tube.space, 0, IteratorType::All, &[0x90], 0)? {
            let Some(task) = Task::read(tuple, layout).filter(|task| task.state() == Some(State::Ready))
            else {
                continue;
            };
            let (event, death) = (task.times.next_event, task.times.death());
            if event > beyond && event != NEVER && event != death {
                wrong.push((task.id, death));
            }
        }
        for batch in wrong.chunks(Self::BATCH) {
            self.transact(store, user::ADMIN, |queue, store| {
                batch.iter().try_for_each(|&(id, death)| queue.postpone(store, index, id, death))
            })?;
        }
        Ok(())
    }
}

/// A row of a ready buffer: the task and the sub-queue.
fn buffer_row(row: &[u8], columns: usize) -> Option<(Candidate, &[u8])> {
    let tuple = TupleRef::trusted(row);
    let id = Reader::new(tuple.field(0)?).uint().ok()?;
    let name = Reader::new(tuple.field(1)?).str().ok()?;
    let pri = if columns > 2 { Reader::new(tuple.field(2)?).uint().ok()? } else { 0 };
    Some((Candidate { pri, id }, name))
}
