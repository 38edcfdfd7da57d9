//! Following: keeps the queue's memory up to date with applied rows of other masters and programs.
//!
//! A queue that runs follows the definitions: a tube that another master creates or drops, or a program by rows, comes or
//! goes with the commit of its row ([`CatalogTurn::adopt`]). Changes of tasks are accounted for inside the transaction
//! (`account.rs`). The rest of this module is about a queue that does not run.
//!
//! A replica's queue starts when the replica becomes the master, and clients wait for that. What takes a look at every task
//! or sub-queue to derive therefore follows each applied transaction, and the start finds it derived:
//!
//! | derived data | needed by |
//! |---|---|
//! | the tubes with their spaces and indexes | each other line |
//! | the candidates of sub-queues and the numbers of their taken tasks | `take` |
//! | faults in the rows ([`amiss`]) | the start, which corrects them |
//!
//! The start derives the rest in O(log n) for each tube: next ids, the earliest deadlines, sequences. A tube without
//! sub-queues costs an applied row one look-up of its space's number, and with deadlines a look at the task's times.
//!
//! Invariants:
//! - following writes nothing;
//! - a tube with [`Tube::candidates_follow`] has the candidates that [`Candidates::rebuild`] would compute. Debug builds
//!   compare the two at each start;
//! - a change of a definition makes the tubes that it may concern load again, after its transaction.
//!
//! [`Candidates::rebuild`]: crate::driver::Candidates::rebuild

pub(crate) mod amiss;
pub(crate) mod redefined;

use std::collections::BTreeSet;
use std::sync::Arc;

use lycosa_store::{Change, IteratorType, SpaceId, Store, system};
use lycosa_tuple::mp::Reader;
use lycosa_tuple::tuple::TupleRef;

use crate::LogLevel;
use crate::account::{Side, Touched, touches};
use crate::counted::{Counted, Event, Place};
use crate::create::Missing;
use crate::driver::Candidates;
use crate::driver::candidates::Candidate;
use crate::error::Result;
use crate::follower::amiss::is_event_amiss;
use crate::follower::redefined::Redefined;
use crate::system::{QUEUE, QUEUE_BY_ID, rows};
use crate::task::{Task, id_of, string_key};
use crate::tube::Tube;
use crate::tube::handle::TubeIndex;
use crate::tube_row::TubeRow;
use crate::turn::{CatalogTurn, Turn};

/// A row of a ready buffer: the task and the sub-queue.
pub(crate) fn buffer_row(row: &[u8], columns: usize) -> Option<(Candidate, &[u8])> {
    let tuple = TupleRef::trusted(row);
    let id = Reader::new(tuple.field(0)?).uint().ok()?;
    let name = Reader::new(tuple.field(1)?).str().ok()?;
    let pri = if columns > 2 { Reader::new(tuple.field(2)?).uint().ok()? } else { 0 };
    Some((Candidate { pri, id }, name))
}

impl CatalogTurn<'_> {
    /// The queue does not run and other masters' rows are going to be applied: it follows them from now on. It knows no
    /// tubes yet, or the tubes that it had while it ran.
    pub(crate) fn follow(&mut self) {
        if !std::mem::replace(&mut self.turn.common.follows, true) {
            self.reload(&Redefined { all: true, ..Redefined::default() });
        }
    }
}

impl Turn<'_> {
    /// Accounts for the open transaction's changes, just before its commit. Returns the definitions to load again after
    /// the commit.
    pub(crate) fn follow_changes(&mut self) -> Redefined {
        let Self { store, tubes, common, .. } = self;
        let store: &Store = store;
        let mut redefined = Redefined::default();
        if !common.follows {
            return redefined;
        }
        let queue = common.spaces.queue;
        let is_of_task = |change: &Change<'_>| tubes.by_space(change.space).is_some();
        let is_alone = store.changes().filter(is_of_task).take(2).count() < 2;
        let mut shown = Vec::new();
        for change in store.changes() {
            if let Some(index) = tubes.by_space(change.space) {
                if let Some(tube) = tubes.at_mut(index) {
                    common.pending.counts.push(tube.counted(index, &change));
                    tube.follow_task(store, &change, is_alone, |name| shown.push((index, name)));
                }
            } else if let Some(index) = tubes.by_buffer(change.space) {
                let columns = tubes.at(index).map_or(0, |tube| tube.kind.layout().buffer_columns());
                let gone = change.gone();
                let rows = [gone.as_deref(), change.came()].into_iter().flatten();
                let names = rows.filter_map(|row| buffer_row(row, columns));
                shown.extend(names.map(|(_, name)| (index, name.into())));
            } else if change.space == system::TRUNCATE {
                let id = change.came().and_then(id_of).and_then(|id| SpaceId::try_from(id).ok());
                let Some(id) = id else { continue };
                redefined.all |= id == queue;
                if let Some(index) = tubes.by_space(id)
                    && let Some(tube) = tubes.at_mut(index)
                {
                    common.pending.counts.push(Counted::truncation(index));
                    tube.driver.candidates_mut().into_iter().for_each(Candidates::clear);
                    tube.amiss.events.clear();
                }
                // Any row of its ready buffer may be wrong or deleted now.
                if let Some(index) = tubes.by_space(id).or(tubes.by_buffer(id))
                    && let Some(tube) = tubes.at_mut(index)
                    && tube.buffer.is_some()
                {
                    tube.candidates_follow = false;
                    redefined.tubes.insert(tube.name.clone());
                }
            } else if [queue, system::SPACE, system::INDEX].contains(&change.space) {
                redefined.note(&change, store, tubes, queue);
            }
        }
        for (index, name) in shown {
            tubes.at_mut(index).into_iter().for_each(|tube| {
                if tube.note_shown(store, &name).is_err() {
                    tube.candidates_follow = false;
                }
            });
        }
        redefined
    }
}

impl CatalogTurn<'_> {
    /// Loads tubes again whose definition has changed. One that cannot be loaded is unknown until its definition changes again
    /// or the queue starts, which says why.
    pub(crate) fn reload(&mut self, redefined: &Redefined) {
        if redefined.is_empty() {
            return;
        }
        self.turn.common.spaces.queue = QUEUE.known(self.turn.store, 0).unwrap_or_default();
        let mut stored = Vec::new();
        for name in self.names_in(redefined) {
            let (row, stale) = self.stored_tube(&name);
            stale.into_iter().for_each(|index| self.forget(index));
            stored.extend(row);
        }
        for row in stored.iter().filter_map(|row| TubeRow::read(row)) {
            if self.load_followed(&row).is_err()
                && let Some(handle) = self.turn.tubes.by_name(row.name)
            {
                self.forget(handle.index);
            }
        }
    }

    /// Adds and removes tubes of a running queue whose rows a foreign transaction has changed: one of another master or of
    /// a program. The foreign transaction has made the whole tube, so nothing is created here. Owners of tasks of a
    /// removed tube are forgotten. A tube that is known under the number in its row stays as it is.
    pub(crate) fn adopt(&mut self, redefined: &Redefined) {
        if redefined.is_empty() {
            return;
        }
        for name in self.names_in(redefined) {
            let (row, stale) = self.stored_tube(&name);
            if let Some(index) = stale {
                self.lose_owners(index);
                self.forget(index);
                let text = format!("tube '{name}' was dropped by rows of another origin");
                self.turn.common.log(LogLevel::Info, text);
            }
            let Some(row) = row.as_deref().and_then(TubeRow::read) else { continue };
            if self.turn.tubes.by_name(&name).is_some() {
                continue;
            }
            let (level, text) = match self.load_followed(&row) {
                Ok(()) => (LogLevel::Info, format!("tube '{name}' was created by rows of another origin")),
                Err(error) => (LogLevel::Warning, format!("tube '{name}' is not available: {error}")),
            };
            self.turn.common.log(level, text);
        }
        if redefined.pauses {
            self.find_pauses();
        }
    }

    /// Tasks of a dropped tube have no owners.
    fn lose_owners(&mut self, index: TubeIndex) {
        let Some(id) = self.turn.tubes.at(index).map(|tube| tube.id) else { return };
        let lost = self
            .turn
            .transact(|Turn { store, common, .. }| common.owners.forget_tube(store, &mut common.pending, id));
        if let Err(error) = lost {
            self.turn.common.log_failure("the end of a tube's owners", &error);
        }
    }

    /// The names of the tubes that may have been redefined.
    fn names_in(&self, redefined: &Redefined) -> BTreeSet<String> {
        let mut names = redefined.tubes.clone();
        if redefined.all {
            let queue = self.turn.common.spaces.queue;
            let stored = rows(self.turn.store, queue, QUEUE_BY_ID, IteratorType::All, &[0x90]);
            let stored = stored.unwrap_or_default();
            names.extend(stored.iter().filter_map(|row| TubeRow::read(row)).map(|row| row.name.to_owned()));
            names.extend(self.turn.tubes.iter().map(|tube| tube.name.clone()));
        }
        names
    }

    /// The row of a tube; and the tube that is known by that name if it is not the one in the row.
    fn stored_tube(&self, name: &str) -> (Option<Vec<u8>>, Option<TubeIndex>) {
        let row = self.turn.store.get(self.turn.common.spaces.queue, 0, &string_key(name.as_bytes()));
        let row = row.ok().flatten().map(<[u8]>::to_vec);
        let id = row.as_deref().and_then(TubeRow::read).map(|row| row.id);
        let known = self.turn.tubes.by_name(name).map(|handle| handle.index);
        let stale = known.filter(|&index| self.turn.tubes.at(index).map(|tube| tube.id) != id);
        (row, stale)
    }

    fn load_followed(&mut self, row: &TubeRow<'_>) -> Result<()> {
        let index = self.load_stored(row, Missing::Stays)?;
        self.turn.tube(index)?.derive().inspect_err(|_| self.forget(index))
    }
}

impl Tube {
    /// Takes over the candidates of the tube as it was known before. False if they are not those of the same rows.
    pub(crate) fn inherit_candidates(&mut self, former: &mut Self) -> bool {
        let is_same = former.space == self.space
            && former.buffer == self.buffer
            && former.indexes == self.indexes
            && Arc::ptr_eq(&former.kind, &self.kind);
        if !is_same || !former.candidates_follow {
            return false;
        }
        if let (Some(candidates), Some(known)) =
            (self.driver.candidates_mut(), former.driver.candidates_mut())
        {
            *candidates = known.take();
        }
        self.amiss = std::mem::take(&mut former.amiss);
        // The former one is not to be asked again, even if this one does not take its place.
        former.candidates_follow = false;
        self.candidates_follow = true;
        true
    }

    /// Panics if the candidates are not those of the rows.
    #[cfg(debug_assertions)]
    pub(crate) fn verify_candidates(&self, store: &Store) {
        let Some(known) = self.driver.candidates() else { return };
        #[cfg(test)]
        let _pause = crate::cost::pause();
        let mut computed = Candidates::new(known.order);
        let tasks = self.tasks(store);
        let rebuilt = computed.rebuild(tasks, self.kind.layout()).and_then(|()| known.verify_ready(tasks));
        assert!(
            rebuilt.is_err() || known.agree_with(&computed),
            "tube '{}': {known:?}, not {computed:?}",
            self.name
        );
    }

    /// What a change of one task counts as that the queue has not made.
    fn counted(&self, index: TubeIndex, change: &Change<'_>) -> Counted {
        let layout = self.kind.layout();
        let place = |tuple: Option<&[u8]>| {
            Place::of(tuple.and_then(|tuple| Side::read(tuple, layout)).and_then(|side| side.state))
        };
        let (gone, came) = (change.gone(), change.came());
        let id = came.or(gone.as_deref()).and_then(id_of).unwrap_or_default();
        let (from, to) = (place(gone.as_deref()), place(came));
        Counted { tube: index, event: Event::Silent, from, to, id, since: 0 }
    }

    /// Takes a change of one task into account. Calls `show` with each sub-queue of which the ready buffer may show the wrong
    /// candidate now.
    fn follow_task(
        &mut self,
        store: &Store,
        change: &Change<'_>,
        is_alone: bool,
        mut show: impl FnMut(Box<[u8]>),
    ) {
        let layout = self.kind.layout();
        if !(layout.timed || layout.utube.is_some()) || !self.candidates_follow {
            return;
        }
        let gone = change.gone();
        let old = gone.as_deref().and_then(|tuple| Task::read(tuple, layout));
        let new = change.came().and_then(|tuple| Task::read(tuple, layout));
        let Some(id) = new.as_ref().or(old.as_ref()).map(|task| task.id) else { return };
        if layout.timed {
            self.amiss.note_event(id, new.as_ref().is_some_and(is_event_amiss));
        }
        let (old, new) = (old.as_ref().map(Side::of), new.as_ref().map(Side::of));
        let (space, indexes, has_buffer) = (self.space, self.indexes, self.buffer.is_some());
        let Some(candidates) = self.driver.candidates_mut() else { return };
        let tasks = crate::driver::Tasks { store, space, indexes };
        for Touched { name, touch, growth } in touches(id, old, new, is_alone).into_iter().flatten() {
            match candidates.adjust(tasks, layout, name, touch, growth) {
                Ok(Some((old, new))) if has_buffer && old.candidate != new => show(name.into()),
                Ok(_) => {}
                // This transaction has dropped the space or an index.
                Err(_) => self.candidates_follow = false,
            }
        }
    }
}
