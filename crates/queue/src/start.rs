//! Start of the queue: after recovery, when a read-only instance becomes writable, and when the journal has lost rows.
//!
//! 1. The queue's spaces are created, or brought into the configured mode.
//! 2. Each row of `_queue` becomes a tube. A tube that the process already knows keeps its counters.
//! 3. Taken tasks whose owner cannot come back become ready. A lease outlives the process.
//! 4. Sessions without a connection begin to expire, or end.
//! 5. Rows that the Lua module left wrong are corrected ([`Amiss`](crate::follower::Amiss)).
//! 6. Calls that wait are served.
//!
//! After a restart this costs a look at every task of a tube with deadlines, a few look-ups for each sub-queue, and one
//! for each taken task. A start that ends a time as a replica costs O(tubes + taken tasks + sessions +
//! rows to correct), because the tubes have followed the applied rows ([`crate::follower`]).
//!
//! All of it is done in portions of at most [`Turn::BATCH`] rows ([`ComingUp`]). A start runs them one after the other. A
//! rebuild ([`crate::Queue::rebuild`]) runs some in each turn; no other function may change the data until it ends.
//!
//! A row of `_queue` that cannot become a tube (an unknown type, a space without an index) stays, without a tube, and
//! the log says why: one broken tube must not keep further tubes down.

use std::collections::HashSet;

use lycosa_store::{IteratorType, Space, Store};

use crate::LogLevel;
use crate::create::{BUFFER_SUFFIX, Missing, TubeRow};
use crate::derivation::Finding;
use crate::driver::{TubeOptions, TubeType};
use crate::error::Error;
use crate::owners::TaskKey;
use crate::session::SessionsStart;
use crate::state::QueueState;
use crate::system::{QUEUE, QUEUE_BY_ID, SystemSpaces, rows, rows_after};
use crate::task::{ShortKey, State, Task, string_key};
use crate::tube::{TubeIndex, Tubes};
use crate::turn::{TubeTurn, Turn};

/// The results of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StartReport {
    /// Tubes that are available.
    pub tubes: usize,
    /// Rows of `_queue` that could not become tubes; the log names them.
    pub unavailable: usize,
    /// Tasks whose owners were gone, and that became ready.
    pub released: u64,
}

/// The outcome of [`crate::Queue::rebuild`].
#[derive(Debug)]
pub struct Rebuilt {
    /// The calls that go on waiting: numbers of connections and requests. All others that were parked are forgotten.
    pub waiting: HashSet<(u64, u64)>,
    /// As of [`crate::Queue::start`], which is to be called again after an error.
    pub started: Result<StartReport, Error>,
}

/// Why the queue comes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Occasion {
    /// The process begins, without connections.
    Beginning,
    /// The process has known the tubes before, as a replica or as the master.
    Again,
    /// The store holds other data, and the queue runs.
    Rebuild,
    /// The store holds other data, and the queue only follows them.
    Follow,
}

/// Progress of the queue's start.
#[derive(Debug)]
pub(crate) struct ComingUp {
    occasion: Occasion,
    stage: Stage,
    report: StartReport,
    /// Tubes that were known before and whose rows were not found yet.
    gone: HashSet<TubeIndex>,
}

/// The present step, and the key behind which its next portion begins.
#[derive(Debug)]
enum Stage {
    Spaces,
    /// Rows of `_queue` become tubes, in the order of their ids.
    Tubes {
        after: Option<u64>,
    },
    /// What derives from the rows of the tube with that id is found.
    Derived {
        id: u64,
        index: TubeIndex,
        finding: Finding,
    },
    /// Kept attempts of deleted tasks are removed.
    Attempts {
        after: Option<TaskKey>,
    },
    /// Taken tasks without an owner are released, a tube after the other.
    Orphans {
        tube: Option<u64>,
        after: Option<(u64, u64)>,
    },
    /// Owners of tasks that do not exist or are not taken are forgotten.
    Owners {
        after: Option<TaskKey>,
    },
    /// The same of leases.
    Leases {
        after: Option<TaskKey>,
    },
    Sessions(SessionsStart),
    /// Faults of rows are corrected in the tube behind that id.
    Corrections {
        tube: Option<u64>,
    },
    /// Calls that wait are served.
    Serving,
    Up,
}

impl ComingUp {
    fn new(occasion: Occasion, tubes: &Tubes) -> Self {
        Self { occasion, stage: Stage::Spaces, report: StartReport::default(), gone: tubes.slots().collect() }
    }
}

impl Turn<'_> {
    pub(crate) fn start(&mut self) -> Result<StartReport, Error> {
        let has_followed = std::mem::replace(&mut self.common.follows, true);
        self.common.set_state(QueueState::Startup);
        self.common.starts = true;
        let occasion = if has_followed { Occasion::Again } else { Occasion::Beginning };
        let mut up = ComingUp::new(occasion, self.tubes);
        let done = self.come_up(&mut up, usize::MAX);
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
        let done = self.come_up(&mut up, budget);
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

    /// Does portions for about `budget` rows. Returns whether the queue is up.
    fn come_up(&mut self, up: &mut ComingUp, budget: usize) -> Result<bool, Error> {
        let mut left = budget;
        while left > 0 {
            if matches!(up.stage, Stage::Up) {
                return Ok(true);
            }
            // What a start adds to the data is small, and without it they could not be worked off. Puts that are served are new
            // work.
            let former = self.store.lift_limit(!matches!(up.stage, Stage::Serving));
            let advanced = self.advance(up, left.min(Self::BATCH));
            self.store.lift_limit(former);
            left = left.saturating_sub(advanced?.max(1));
        }
        Ok(matches!(up.stage, Stage::Up))
    }

    /// Does one portion, which looks at up to `limit` rows. Returns at how many it has.
    fn advance(&mut self, up: &mut ComingUp, limit: usize) -> Result<usize, Error> {
        let (count, next) = match std::mem::replace(&mut up.stage, Stage::Up) {
            Stage::Spaces => {
                if up.occasion == Occasion::Follow {
                    let queue = self.store.space_by_name(QUEUE.name).map(Space::id);
                    self.common.spaces.queue = queue.unwrap_or_default();
                } else {
                    self.prepare_spaces()?;
                }
                (1, Stage::Tubes { after: None })
            }
            Stage::Tubes { after } => match self.next_tube(after)? {
                Some((row, id)) => match self.load_row(up, &row) {
                    Some(index) => (1, Stage::Derived { id, index, finding: Finding::default() }),
                    None => (1, Stage::Tubes { after: Some(id) }),
                },
                None => {
                    for index in std::mem::take(&mut up.gone) {
                        self.lose_tube(up.occasion, index);
                    }
                    let is_followed = up.occasion == Occasion::Follow;
                    (1, if is_followed { Stage::Up } else { Stage::Attempts { after: None } })
                }
            },
            Stage::Derived { id, index, mut finding } => {
                match self.derive_portion(index, &mut finding, limit) {
                    Ok(Some(count)) => (count, Stage::Derived { id, index, finding }),
                    Ok(None) => (1, Stage::Tubes { after: Some(id) }),
                    Err(error) => {
                        let name = self.tubes.at(index).map(|tube| tube.name.clone()).unwrap_or_default();
                        up.report.tubes -= 1;
                        self.refuse_row(up, &name, &error);
                        self.lose_tube(up.occasion, index);
                        (1, Stage::Tubes { after: Some(id) })
                    }
                }
            }
            Stage::Attempts { after } => {
                let (count, last) = self.forget_attempts(up.occasion, after, limit)?;
                let is_over = count < limit;
                (
                    count,
                    if is_over {
                        Stage::Orphans { tube: None, after: None }
                    } else {
                        Stage::Attempts { after: last }
                    },
                )
            }
            Stage::Orphans { tube, after } => match self.tubes.next(tube, after.is_some()) {
                Some((id, index)) => {
                    let (count, last) = self.release_orphans(index, after, limit, &mut up.report)?;
                    (count, Stage::Orphans { tube: Some(id), after: last })
                }
                None => {
                    if up.report.released > 0 {
                        let text = format!("released {} tasks", up.report.released);
                        self.common.log(LogLevel::Info, text);
                    }
                    (1, Stage::Owners { after: None })
                }
            },
            Stage::Owners { after } => {
                let (count, last) = self.forget_missing_tasks(after, limit)?;
                let is_over = count < limit;
                (count, if is_over { Stage::Leases { after: None } } else { Stage::Owners { after: last } })
            }
            Stage::Leases { after } => {
                let leased = self.common.owners.leases.after(self.store, after, limit)?;
                self.forget_missing(&leased)?;
                let is_over = leased.len() < limit;
                (
                    leased.len(),
                    if is_over {
                        Stage::Sessions(SessionsStart::default())
                    } else {
                        Stage::Leases { after: leased.last().copied() }
                    },
                )
            }
            Stage::Sessions(sessions) => match self.start_sessions(sessions, limit)? {
                (count, Some(sessions)) => (count, Stage::Sessions(sessions)),
                (count, None) => {
                    self.common.corrected_later.clear();
                    (count, Stage::Corrections { tube: None })
                }
            },
            Stage::Corrections { tube } => match self.tubes.next(tube, false) {
                Some((id, index)) => {
                    // After a time as a replica a tube's tasks beyond a portion are left to the timer.
                    let limit = if up.occasion == Occasion::Beginning { usize::MAX } else { limit };
                    let (count, is_over) = self.correct(index, limit)?;
                    (count, Stage::Corrections { tube: if is_over { Some(id) } else { tube } })
                }
                None => {
                    self.common.set_state(QueueState::Running);
                    // The beginning is over before the first connection; a change of the role goes on with the next ticks.
                    while up.occasion == Occasion::Beginning && self.release_closing(usize::MAX) > 0 {}
                    self.common.ready.extend(self.tubes.indexes());
                    (1, Stage::Serving)
                }
            },
            Stage::Serving => {
                let count = self.serve_some(limit);
                (count, if count < limit { Stage::Up } else { Stage::Serving })
            }
            Stage::Up => (0, Stage::Up),
        };
        up.stage = next;
        Ok(count)
    }

    fn prepare_spaces(&mut self) -> Result<(), Error> {
        let excludes_temporary = self.common.configuration.in_replicaset && !self.common.notes_owners;
        if excludes_temporary && self.temporary_tubes_stored() {
            self.common.configuration.in_replicaset = false;
        }
        let in_replicaset = self.common.configuration.in_replicaset;
        let spaces = self.transact(|turn| SystemSpaces::prepare(turn.store, in_replicaset))?;
        self.common.use_spaces(spaces, in_replicaset);
        self.common.attempts.find(self.store);
        self.common.owners.leases.find(self.store);
        self.common.pauses.find(self.store);
        self.common.audit.find(self.store);
        self.common.bulk.find(self.store);
        if self.common.is_member { self.empty_temporary() } else { Ok(()) }
    }

    /// Empties temporary tubes: this member put their tasks when it led before, and other members have led since. The ids go on.
    fn empty_temporary(&mut self) -> Result<(), Error> {
        let stored = rows(self.store, self.common.spaces.queue, 0, IteratorType::All, &[0x90])?;
        for row in stored.iter().filter_map(|row| TubeRow::read(row)) {
            let space = self.store.space_by_name(row.space).filter(|space| space.is_temporary());
            let Some(space) = space.map(Space::id) else { continue };
            self.common.owners.mark_temporary(row.id, true);
            let buffer = self.store.space_by_name(&format!("{}{BUFFER_SUFFIX}", row.space)).map(Space::id);
            self.transact(|Turn { store, common, .. }| {
                for space in std::iter::once(space).chain(buffer) {
                    if !store.space(space)?.is_empty() {
                        lycosa_store::ddl::truncate(store, space)?;
                    }
                }
                common.owners.forget_tube(store, &mut common.pending, row.id)
            })?;
            if let Some(tube) = self.tubes.by_space(space).and_then(|index| self.tubes.at_mut(index)) {
                tube.candidates_follow = false;
            }
        }
        Ok(())
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
        let mut up = ComingUp::new(Occasion::Beginning, self.tubes);
        if let Some(up) = &mut self.common.coming_up {
            // Its rows may have been passed.
            (up.stage, up.report) = (Stage::Spaces, StartReport::default());
        }
        if !self.common.is_running() {
            return Ok(StartReport::default());
        }
        let mut after = None;
        while let Some((row, id)) = self.next_tube(after)? {
            after = Some(id);
            if TubeRow::read(&row).is_none_or(|row| row.tube_type != name) {
                continue;
            }
            let former = self.store.lift_limit(true);
            let loaded = self.load_row(&mut up, &row);
            self.store.lift_limit(former);
            let Some(index) = loaded else { continue };
            self.derive(index)?;
            let TubeTurn { store, tube, common, .. } = self.tube(index)?;
            let orphans = tube.ids_in_state(store, State::Taken, &mut |id| {
                Ok(tube.options.temporary || common.owners.leases.of(store, (tube.id, id))?.is_none())
            })?;
            up.report.released += self.release_batches(index, &orphans)?;
            self.correct(index, usize::MAX)?;
        }
        self.serve();
        Ok(up.report)
    }

    /// The row of `_queue` behind an id, and its own id.
    fn next_tube(&self, after: Option<u64>) -> Result<Option<(Vec<u8>, u64)>, Error> {
        let queue = self.common.spaces.queue;
        if queue == 0 {
            return Ok(None);
        }
        let key = after.map(ShortKey::id);
        let row = rows_after(self.store, queue, QUEUE_BY_ID, key.as_deref(), 1)?.pop();
        Ok(row.and_then(|row| {
            let id = lycosa_tuple::tuple::TupleRef::trusted(&row).field(1)?;
            let id = lycosa_tuple::mp::Reader::new(id).uint().ok()?;
            Some((row, id))
        }))
    }

    /// Makes a tube of a row of `_queue`, and says in the report and the log why it could not.
    fn load_row(&mut self, up: &mut ComingUp, stored: &[u8]) -> Option<TubeIndex> {
        let Some(row) = TubeRow::read(stored) else {
            up.report.unavailable += 1;
            return None;
        };
        if let Some(known) = self.tubes.by_name(row.name).map(|handle| handle.index)
            && self.tubes.at(known).is_some_and(|tube| tube.id != row.id)
        {
            up.gone.remove(&known);
            self.lose_tube(up.occasion, known);
        }
        let missing = if self.common.keeps_in_step() { Missing::IsCreated } else { Missing::Stays };
        match self.transact(|turn| turn.load_stored(&row, missing)) {
            Ok(index) => {
                up.report.tubes += 1;
                up.gone.remove(&index);
                Some(index)
            }
            Err(error) => {
                self.refuse_row(up, row.name, &error);
                None
            }
        }
    }

    fn refuse_row(&mut self, up: &mut ComingUp, name: &str, error: &Error) {
        up.report.unavailable += 1;
        // A queue that only follows leaves that to its start.
        if up.occasion != Occasion::Follow {
            self.common.log(LogLevel::Warning, format!("tube '{name}' is not available: {error}"));
        }
    }

    /// A tube is not in the data. Calls that wait in a tube that was lost are answered by the owner of the queue.
    fn lose_tube(&mut self, occasion: Occasion, index: TubeIndex) {
        if matches!(occasion, Occasion::Rebuild | Occasion::Follow) {
            self.common.waiters.forget_tube(index);
        }
        self.forget_tube(index);
    }

    /// Makes a tube of a row of `_queue`. What derives from its tasks is to be found next ([`Turn::derive`]).
    pub(crate) fn load_stored(&mut self, row: &TubeRow<'_>, missing: Missing) -> Result<TubeIndex, Error> {
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
        self.load_tube(row, &kind, driver, options, missing)
    }

    /// Removes the kept attempts of deleted tasks. A transaction that removes a task removes its row too. So after a time
    /// as a replica only rows of temporary tubes can be left: their tasks were another instance's.
    fn forget_attempts(
        &mut self,
        occasion: Occasion,
        after: Option<TaskKey>,
        limit: usize,
    ) -> Result<(usize, Option<TaskKey>), Error> {
        if occasion == Occasion::Again {
            let temporary = self.tubes.iter().filter(|tube| tube.options.temporary);
            let temporary: Vec<_> = temporary.map(|tube| tube.id).collect();
            self.transact(|Turn { store, tubes, common, .. }| {
                let has_task = |store: &Store, task| has_task(tubes, store, task);
                temporary.iter().try_for_each(|&tube| common.attempts.retain_in(store, tube, has_task))
            })?;
            return Ok((0, None));
        }
        self.transact(|Turn { store, tubes, common, .. }| {
            let has_task = |store: &Store, task| has_task(tubes, store, task);
            common.attempts.retain_after(store, after, limit, has_task)
        })
    }

    /// Releases those of a tube's taken tasks that no session holds, or none that could come back. Looks at up to `limit`
    /// behind a priority and an id. Returns how many there were, and the last one if there may be more.
    fn release_orphans(
        &mut self,
        index: TubeIndex,
        after: Option<(u64, u64)>,
        limit: usize,
        report: &mut StartReport,
    ) -> Result<(usize, Option<(u64, u64)>), Error> {
        let TubeTurn { store, tube, common, .. } = self.tube(index)?;
        let taken = tube.taken_after(store, after, limit)?;
        let mut orphans = Vec::new();
        for &(_, id) in &taken {
            #[cfg(test)]
            crate::cost::count_look_up();
            let owner = common.owners.session_of(store, (tube.id, id))?;
            let is_held = match owner {
                Some(owner) => {
                    let row = store.get(common.spaces.shared_sessions, 0, &string_key(&owner))?;
                    row.is_some()
                }
                // A lease of a temporary tube may be of another instance's task with the same id.
                None => !tube.options.temporary && common.owners.leases.of(store, (tube.id, id))?.is_some(),
            };
            if !is_held {
                orphans.push(id);
            }
        }
        report.released += self.release_batches(index, &orphans)?;
        let last = taken.last().copied().filter(|_| taken.len() == limit);
        Ok((taken.len(), last))
    }

    /// Releases taken tasks of a tube. Returns how many were.
    fn release_batches(&mut self, index: TubeIndex, tasks: &[u64]) -> Result<u64, Error> {
        let mut released = 0;
        for batch in tasks.chunks(Self::BATCH) {
            self.transact_at(index, |tube| {
                for &id in batch {
                    released += u64::from(tube.release_disowned(id)?);
                }
                Ok(())
            })?;
        }
        Ok(released)
    }

    /// Removes rows of `_queue_taken_2` whose task is gone or not taken. Looks at up to `limit` rows behind the key `after`;
    /// the first call, without a key, also looks at the cached owners.
    fn forget_missing_tasks(
        &mut self,
        after: Option<TaskKey>,
        limit: usize,
    ) -> Result<(usize, Option<TaskKey>), Error> {
        let mut tasks = self.common.owners.written_after(self.store, after, limit)?;
        let (count, last) = (tasks.len(), tasks.last().copied());
        if after.is_none() {
            tasks.extend(self.common.owners.cached());
        }
        self.forget_missing(&tasks)?;
        Ok((count, last))
    }

    /// Forgets the owners of those of these tasks that are gone or not taken.
    fn forget_missing(&mut self, tasks: &[TaskKey]) -> Result<(), Error> {
        let mut missing = Vec::new();
        for &(tube_id, id) in tasks {
            let held = self.tubes.by_id(tube_id).and_then(|index| self.tubes.at(index)).map(|tube| {
                let task = tube.tasks(self.store).get(id).ok().flatten();
                let task = task.and_then(|tuple| Task::read(tuple, tube.kind.layout()));
                task.is_some_and(|task| task.state() == Some(State::Taken))
            });
            if held == Some(false) {
                missing.push((tube_id, id));
            }
        }
        self.transact(|Turn { store, common, .. }| {
            let (owners, pending) = (&mut common.owners, &mut common.pending);
            missing.iter().try_for_each(|&task| owners.forget(store, pending, task).map(drop))
        })
    }
}

fn has_task(tubes: &Tubes, store: &Store, (tube, task): TaskKey) -> bool {
    let tube = tubes.by_id(tube).and_then(|index| tubes.at(index));
    tube.is_some_and(|tube| tube.tasks(store).get(task).is_ok_and(|task| task.is_some()))
}
