//! The stages of a start, each in portions: spaces, tubes and derived data, owners, leases, sessions, corrections, calls.

use lycosa_store::{IteratorType, Space, Store};

use super::{ComingUp, Occasion, Rebuilt, Stage, StartReport};
use crate::LogLevel;
use crate::create::Missing;
use crate::derivation::Finding;
use crate::driver::{TubeOptions, TubeType};
use crate::error::{Error, Result};
use crate::session::SessionsStart;
use crate::state::QueueState;
use crate::system::{QUEUE, SystemSpaces, rows};
use crate::task::{State, TaskKey, string_key};
use crate::tube::Tubes;
use crate::tube::handle::TubeIndex;
use crate::tube_row::{BUFFER_SUFFIX, TubeRow};
use crate::turn::{CatalogTurn, Common, TubeTurn, Turn};

impl ComingUp {
    fn new(occasion: Occasion, tubes: &Tubes) -> Self {
        Self { occasion, stage: Stage::Spaces, report: StartReport::default(), gone: tubes.slots().collect() }
    }

    /// Does portions for about `budget` rows. Returns whether the queue is up.
    fn come_up(&mut self, turn: &mut Turn<'_>, budget: usize) -> Result<bool> {
        let mut left = budget;
        while left > 0 {
            if matches!(self.stage, Stage::Up) {
                return Ok(true);
            }
            // What a start adds to the data is small, and without it they could not be worked off. Puts that are served are new
            // work.
            let former = turn.store.lift_limit(!matches!(self.stage, Stage::Serving));
            let advanced = self.advance(turn, left.min(Turn::BATCH));
            turn.store.lift_limit(former);
            left = left.saturating_sub(advanced?.max(1));
        }
        Ok(matches!(self.stage, Stage::Up))
    }

    /// Does one portion, which looks at up to `limit` rows. Returns at how many it has.
    fn advance(&mut self, turn: &mut Turn<'_>, limit: usize) -> Result<usize> {
        let (count, next) = match std::mem::replace(&mut self.stage, Stage::Up) {
            Stage::Spaces => {
                if self.occasion == Occasion::Follow {
                    turn.common.spaces.queue = QUEUE.known(turn.store, 0).unwrap_or_default();
                } else {
                    Self::prepare_spaces(turn)?;
                }
                (1, Stage::Tubes(None))
            }
            Stage::Tubes(after) => (1, self.find_tube(turn, after)?),
            Stage::Derived { id, index, finding } => self.derive(turn, (id, index), finding, limit),
            Stage::Attempts(after) => {
                let (count, last) = self.forget_attempts(turn, after, limit)?;
                let orphans = Stage::Orphans { tube: None, after: None };
                (count, if count < limit { orphans } else { Stage::Attempts(last) })
            }
            Stage::Orphans { tube, after } => match turn.tubes.next(tube, after.is_some()) {
                Some((id, index)) => {
                    let (count, last) = self.release_orphans(turn, index, after, limit)?;
                    (count, Stage::Orphans { tube: Some(id), after: last })
                }
                None => {
                    if self.report.released > 0 {
                        let text = format!("released {} tasks", self.report.released);
                        turn.common.log(LogLevel::Info, text);
                    }
                    (1, Stage::Owners(None))
                }
            },
            Stage::Owners(after) => {
                let (count, last) = Self::forget_missing_tasks(turn, after, limit)?;
                (count, if count < limit { Stage::Leases(None) } else { Stage::Owners(last) })
            }
            Stage::Leases(after) => {
                let leased = turn.common.owners.leases.after(turn.store, after, limit)?;
                Self::forget_missing(turn, &leased)?;
                let next = Stage::Leases(leased.last().copied());
                let is_over = leased.len() < limit;
                (leased.len(), if is_over { Stage::Sessions(SessionsStart::default()) } else { next })
            }
            Stage::Sessions(sessions) => match turn.sessions().start(sessions, limit)? {
                (count, Some(sessions)) => (count, Stage::Sessions(sessions)),
                (count, None) => {
                    turn.common.corrected_later.clear();
                    (count, Stage::Corrections(None))
                }
            },
            Stage::Corrections(tube) => self.correct(turn, tube, limit)?,
            Stage::Serving => {
                let count = turn.waiters().serve_some(limit);
                (count, if count < limit { Stage::Up } else { Stage::Serving })
            }
            Stage::Up => (0, Stage::Up),
        };
        self.stage = next;
        Ok(count)
    }

    /// The tube of the row of `_queue` behind an id is made. Behind the last one the tubes without a row are gone.
    fn find_tube(&mut self, turn: &mut Turn<'_>, after: Option<u64>) -> Result<Stage> {
        if let Some((row, id)) = turn.common.spaces.next_tube(turn.store, after)? {
            return Ok(match self.load_row(turn, &row) {
                Some(index) => Stage::Derived { id, index, finding: Finding::default() },
                None => Stage::Tubes(Some(id)),
            });
        }
        std::mem::take(&mut self.gone).into_iter().for_each(|index| self.lose_tube(turn, index));
        let is_followed = self.occasion == Occasion::Follow;
        Ok(if is_followed { Stage::Up } else { Stage::Attempts(None) })
    }

    /// A portion of what derives from a tube's rows is found.
    fn derive(
        &mut self,
        turn: &mut Turn<'_>,
        (id, index): (u64, TubeIndex),
        mut finding: Finding,
        limit: usize,
    ) -> (usize, Stage) {
        match turn.tube(index).and_then(|mut tube| tube.derive_portion(&mut finding, limit)) {
            Ok(Some(count)) => (count, Stage::Derived { id, index, finding }),
            Ok(None) => (1, Stage::Tubes(Some(id))),
            Err(error) => {
                let name = turn.tubes.at(index).map(|tube| tube.name.clone()).unwrap_or_default();
                self.report.tubes -= 1;
                self.refuse_row(turn, &name, &error);
                self.lose_tube(turn, index);
                (1, Stage::Tubes(Some(id)))
            }
        }
    }

    /// Rows of the tube behind an id are corrected. Behind the last tube the queue runs.
    fn correct(&self, turn: &mut Turn<'_>, tube: Option<u64>, limit: usize) -> Result<(usize, Stage)> {
        if let Some((id, index)) = turn.tubes.next(tube, false) {
            // After a time as a replica a tube's tasks beyond a portion are left to the timer.
            let limit = if self.occasion == Occasion::Beginning { usize::MAX } else { limit };
            let (count, is_over) = turn.corrections().begin(index, limit)?;
            return Ok((count, Stage::Corrections(if is_over { Some(id) } else { tube })));
        }
        turn.common.set_state(QueueState::Running);
        // The beginning is over before the first connection; a change of the role goes on with the next ticks.
        while self.occasion == Occasion::Beginning && turn.sessions().release_closing(usize::MAX) > 0 {}
        turn.common.ready.extend(turn.tubes.indexes());
        Ok((1, Stage::Serving))
    }

    fn prepare_spaces(turn: &mut Turn<'_>) -> Result<()> {
        let excludes_temporary = turn.common.configuration.in_replicaset && !turn.common.notes_owners;
        if excludes_temporary && Self::temporary_tubes_stored(turn) {
            turn.common.configuration.in_replicaset = false;
        }
        let in_replicaset = turn.common.configuration.in_replicaset;
        let spaces = turn.transact(|turn| SystemSpaces::prepare(turn.store, in_replicaset))?;
        turn.common.use_spaces(spaces, in_replicaset);
        turn.common.attempts.find(turn.store);
        turn.common.owners.leases.find(turn.store);
        turn.common.pauses.find(turn.store);
        turn.common.audit.find(turn.store);
        turn.common.bulk.find(turn.store);
        let keeps_temporary = std::mem::take(&mut turn.common.keeps_temporary);
        if turn.common.is_member && !keeps_temporary { Self::empty_temporary(turn) } else { Ok(()) }
    }

    /// Empties temporary tubes: this member put their tasks when it led before, and other members have led since. The ids go on.
    fn empty_temporary(turn: &mut Turn<'_>) -> Result<()> {
        let stored = rows(turn.store, turn.common.spaces.queue, 0, IteratorType::All, &[0x90])?;
        for row in stored.iter().filter_map(|row| TubeRow::read(row)) {
            let space = turn.store.space_by_name(row.space).filter(|space| space.is_temporary());
            let Some(space) = space.map(Space::id) else { continue };
            turn.common.owners.mark_temporary(row.id, true);
            let buffer = turn.store.space_by_name(&format!("{}{BUFFER_SUFFIX}", row.space)).map(Space::id);
            turn.transact(|Turn { store, common, .. }| {
                for space in std::iter::once(space).chain(buffer) {
                    if !store.space(space)?.is_empty() {
                        lycosa_store::ddl::truncate(store, space)?;
                    }
                }
                common.owners.forget_tube(store, &mut common.pending, row.id)
            })?;
            if let Some(tube) = turn.tubes.by_space(space).and_then(|index| turn.tubes.at_mut(index)) {
                tube.candidates_follow = false;
            }
        }
        Ok(())
    }

    /// Whether `_queue` has a temporary tube, which replica set mode excludes; says so in the log.
    fn temporary_tubes_stored(turn: &mut Turn<'_>) -> bool {
        let Some(queue) = turn.store.space_by_name(QUEUE.name) else { return false };
        let stored = rows(turn.store, queue.id(), 0, IteratorType::All, &[0x90]).unwrap_or_default();
        let tubes = stored.iter().filter_map(|row| TubeRow::read(row));
        let is_temporary =
            |row: &TubeRow<'_>| turn.store.space_by_name(row.space).is_some_and(Space::is_temporary);
        let temporary: Vec<_> = tubes.filter(is_temporary).map(|row| row.name.to_owned()).collect();
        turn.common.log_temporary(&temporary);
        !temporary.is_empty()
    }

    /// Makes a tube of a row of `_queue`, and says in the report and the log why it could not.
    fn load_row(&mut self, turn: &mut Turn<'_>, stored: &[u8]) -> Option<TubeIndex> {
        let Some(row) = TubeRow::read(stored) else {
            self.report.unavailable += 1;
            return None;
        };
        if let Some(known) = turn.tubes.by_name(row.name).map(|handle| handle.index)
            && turn.tubes.at(known).is_some_and(|tube| tube.id != row.id)
        {
            self.gone.remove(&known);
            self.lose_tube(turn, known);
        }
        let missing = if turn.common.keeps_in_step() { Missing::IsCreated } else { Missing::Stays };
        match turn.transact(|turn| turn.catalog().load_stored(&row, missing)) {
            Ok(index) => {
                self.report.tubes += 1;
                self.gone.remove(&index);
                Some(index)
            }
            Err(error) => {
                self.refuse_row(turn, row.name, &error);
                None
            }
        }
    }

    fn refuse_row(&mut self, turn: &mut Turn<'_>, name: &str, error: &Error) {
        self.report.unavailable += 1;
        // A queue that only follows leaves that to its start.
        if self.occasion != Occasion::Follow {
            turn.common.log(LogLevel::Warning, format!("tube '{name}' is not available: {error}"));
        }
    }

    /// A tube is not in the data. Calls that wait in a tube that was lost are answered by the owner of the queue.
    fn lose_tube(&self, turn: &mut Turn<'_>, index: TubeIndex) {
        if matches!(self.occasion, Occasion::Rebuild | Occasion::Follow) {
            turn.common.waiters.forget_tube(index);
        }
        turn.catalog().forget(index);
    }

    /// Removes the kept attempts of deleted tasks. A transaction that removes a task removes its row too. So after a time
    /// as a replica only rows of temporary tubes can be left: their tasks were another instance's.
    fn forget_attempts(
        &self,
        turn: &mut Turn<'_>,
        after: Option<TaskKey>,
        limit: usize,
    ) -> Result<(usize, Option<TaskKey>)> {
        if self.occasion == Occasion::Again {
            turn.transact(|Turn { store, tubes, common, .. }| {
                let has_task = |store: &Store, task| has_task(tubes, store, task);
                let mut temporary = tubes.iter().filter(|tube| tube.options.temporary);
                temporary.try_for_each(|tube| common.attempts.retain_in(store, tube.id, has_task))
            })?;
            return Ok((0, None));
        }
        turn.transact(|Turn { store, tubes, common, .. }| {
            let has_task = |store: &Store, task| has_task(tubes, store, task);
            common.attempts.retain_after(store, after, limit, has_task)
        })
    }

    /// Releases each taken task of a tube whose holder is no session, or none that could come back. Looks at up to `limit` tasks
    /// behind a priority and an id. Returns how many there were, and the last one if there may be more.
    fn release_orphans(
        &mut self,
        turn: &mut Turn<'_>,
        index: TubeIndex,
        after: Option<(u64, u64)>,
        limit: usize,
    ) -> Result<(usize, Option<(u64, u64)>)> {
        let TubeTurn { store, tube, common, .. } = turn.tube(index)?;
        let taken = tube.taken_after(store, after, limit)?;
        let mut orphans = Vec::new();
        for &(_, id) in &taken {
            #[cfg(test)]
            crate::cost::count_look_up();
            let owner = common.owners.session_of(store, (tube.id, id))?;
            let is_held = match owner {
                Some(owner) => store.get(common.spaces.shared_sessions, 0, &string_key(&owner))?.is_some(),
                // A lease of a temporary tube may be of another instance's task with the same id.
                None => !tube.options.temporary && common.owners.leases.of(store, (tube.id, id))?.is_some(),
            };
            if !is_held {
                orphans.push(id);
            }
        }
        self.release(turn, index, &orphans)?;
        let last = taken.last().copied().filter(|_| taken.len() == limit);
        Ok((taken.len(), last))
    }

    /// Releases taken tasks of a tube.
    fn release(&mut self, turn: &mut Turn<'_>, index: TubeIndex, tasks: &[u64]) -> Result<()> {
        for batch in tasks.chunks(Turn::BATCH) {
            turn.transact_at(index, |tube| {
                for &id in batch {
                    self.report.released += u64::from(tube.release_disowned(id)?);
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Removes rows of `_queue_taken_2` whose task is gone or not taken. Looks at up to `limit` rows behind the key `after`;
    /// the first call, without a key, also looks at the cached owners.
    fn forget_missing_tasks(
        turn: &mut Turn<'_>,
        after: Option<TaskKey>,
        limit: usize,
    ) -> Result<(usize, Option<TaskKey>)> {
        let mut tasks = turn.common.owners.written_after(turn.store, after, limit)?;
        let (count, last) = (tasks.len(), tasks.last().copied());
        if after.is_none() {
            tasks.extend(turn.common.owners.cached());
        }
        Self::forget_missing(turn, &tasks)?;
        Ok((count, last))
    }

    /// Forgets the owner of each task of the list that is gone or not taken.
    fn forget_missing(turn: &mut Turn<'_>, tasks: &[TaskKey]) -> Result<()> {
        let mut missing = Vec::new();
        for &(tube_id, id) in tasks {
            let held = turn.tubes.by_id(tube_id).and_then(|index| turn.tubes.at(index)).map(|tube| {
                let task = tube.task(turn.store, id).ok().flatten();
                task.is_some_and(|task| task.state() == Some(State::Taken))
            });
            if held == Some(false) {
                missing.push((tube_id, id));
            }
        }
        turn.transact(|Turn { store, common, .. }| {
            let Common { owners, pending, .. } = &mut **common;
            missing.iter().try_for_each(|&task| owners.forget(store, pending, task).map(drop))
        })
    }
}

impl Turn<'_> {
    pub(crate) fn start(&mut self) -> Result<StartReport> {
        let has_followed = std::mem::replace(&mut self.common.follows, true);
        self.common.set_state(QueueState::Startup);
        self.common.starts = true;
        let occasion = if has_followed { Occasion::Again } else { Occasion::Beginning };
        let mut up = ComingUp::new(occasion, self.tubes);
        let done = up.come_up(self, usize::MAX);
        self.common.starts = false;
        done.map(|_| up.report)
    }

    /// See [`crate::Queue::rebuild`]. A queue that does not run has nothing that could go on; its start derives the rest.
    pub(crate) fn rebuild(&mut self) {
        let runs = matches!(self.common.state, QueueState::Running | QueueState::Startup);
        self.common.forget_data();
        if runs {
            self.common.set_state(QueueState::Startup);
            self.common.starts = true;
        }
        let occasion = if runs { Occasion::Rebuild } else { Occasion::Follow };
        self.common.coming_up = Some(Box::new(ComingUp::new(occasion, self.tubes)));
        self.tubes.detach();
    }

    /// Goes on with a rebuild, for about `budget` rows. Returns what came of it when it ends.
    pub(crate) fn rebuild_step(&mut self, budget: usize) -> Option<Rebuilt> {
        let mut up = self.common.coming_up.take()?;
        let done = up.come_up(self, budget);
        if done == Ok(false) {
            self.common.coming_up = Some(up);
            return None;
        }
        self.common.starts = false;
        if let Err(error) = &done {
            self.common.log_failure("the start on the confirmed data", error);
        }
        let waiting = self.common.waiters.requests().collect();
        Some(Rebuilt { waiting, started: done.map(|_| up.report) })
    }
}

impl CatalogTurn<'_> {
    /// Adds a type of tube. The stored tubes of that type come up, and their tasks are released, if the queue runs.
    pub(crate) fn register(&mut self, tube_type: TubeType) -> Result<StartReport> {
        let name = tube_type.name().to_owned();
        self.turn.common.types.add(tube_type)?;
        let mut up = ComingUp::new(Occasion::Beginning, self.turn.tubes);
        if let Some(up) = &mut self.turn.common.coming_up {
            // Its rows may have been passed.
            (up.stage, up.report) = (Stage::Spaces, StartReport::default());
        }
        if !self.turn.common.is_running() {
            return Ok(StartReport::default());
        }
        let mut after = None;
        while let Some((row, id)) = self.turn.common.spaces.next_tube(self.turn.store, after)? {
            after = Some(id);
            if TubeRow::read(&row).is_none_or(|row| row.tube_type != name) {
                continue;
            }
            let former = self.turn.store.lift_limit(true);
            let loaded = up.load_row(&mut self.turn, &row);
            self.turn.store.lift_limit(former);
            let Some(index) = loaded else { continue };
            self.turn.tube(index)?.derive()?;
            let TubeTurn { store, tube, common, .. } = self.turn.tube(index)?;
            let orphans = tube.ids_in_state(store, State::Taken, &mut |id| {
                Ok(tube.options.temporary || common.owners.leases.of(store, (tube.id, id))?.is_none())
            })?;
            up.release(&mut self.turn, index, &orphans)?;
            self.turn.corrections().begin(index, usize::MAX)?;
        }
        self.turn.waiters().serve();
        Ok(up.report)
    }

    /// Makes a tube of a row of `_queue`. What derives from its tasks is to be found next ([`TubeTurn::derive`]).
    pub(crate) fn load_stored(&mut self, row: &TubeRow<'_>, missing: Missing) -> Result<TubeIndex> {
        let kind = self.turn.common.types.get(row.tube_type).cloned();
        let kind = kind.ok_or_else(|| Error::UnknownTubeType(row.tube_type.into()))?;
        let mut refused = Vec::new();
        let mut options =
            TubeOptions::stored(row.options, kind.layout().timed, &mut |error| refused.push(error));
        // A queue that only follows leaves that to its start.
        let refused = if self.turn.common.keeps_in_step() { refused } else { Vec::new() };
        for error in refused {
            let text = format!("tube '{}': {error}; the default counts", row.name);
            self.turn.common.log(LogLevel::Warning, text);
        }
        let driver = kind.driver(&options, row.options)?;
        if let Some(space) = self.turn.store.space_by_name(row.space) {
            options.temporary = space.is_temporary();
        }
        self.load(row, &kind, driver, options, missing)
    }
}

fn has_task(tubes: &Tubes, store: &Store, (tube, task): TaskKey) -> bool {
    let tube = tubes.by_id(tube).and_then(|index| tubes.at(index));
    tube.is_some_and(|tube| tube.tasks(store).get(task).is_ok_and(|task| task.is_some()))
}
