//! Loading: the rows of a snapshot and of the log that follows it.
//!
//! A snapshot's tuples are only checked and copied; the primary index of a space is built from them at once when the
//! snapshot ends. Rows of the log then change tuples and primary indexes only (`history`). All other indexes are
//! built when the log ends (`build`), because most of what a log does to them is undone by its later rows. Rows of
//! the system spaces take the ordinary way, because all further rows depend on their definitions.
//!
//! What a secondary index would refuse therefore shows at the end, and until [`Store::finish_recovery`] only system spaces
//! can be read by other indexes than the primary one.
//!
//! The last values of sequences are what a snapshot's `_sequence_data` says, and then follow the inserts of the log. (A
//! real Tarantool also moves them up to the largest value that it finds among the snapshot's tuples, so that a sequence
//! which was set back is not after a restart.)

mod build;
mod history;
#[cfg(test)]
mod tests;

pub use self::build::IndexBuild;

use lycosa_tuple::tuple::TupleRef;

use crate::error::Error;
use crate::read_view::is_persistent;
use crate::space::{key_values, step_limit};
use crate::statement::Statement;
use crate::{SpaceId, Store, system, user};

/// Which instance has accepted a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// This one: everything is checked.
    Own,
    /// A master: definitions that the store does not support are kept as in recovery, not refused. Everything else is
    /// checked as always.
    Master,
}

/// The progress of the loading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Phase {
    /// Rows of a snapshot: only the system spaces have indexes yet.
    #[default]
    Snapshot,
    /// Rows of the log.
    Log,
    /// Everything is loaded.
    Running,
}

impl Store {
    /// Whether a snapshot is being loaded.
    pub(crate) fn is_loading(&self) -> bool {
        self.phase == Phase::Snapshot
    }

    /// Whether rows come from this instance's own files.
    pub(crate) fn is_recovering(&self) -> bool {
        self.phase != Phase::Running
    }

    /// Whether rows are history that cannot be refused for what the store does not support.
    pub(crate) fn is_history(&self) -> bool {
        self.is_recovering() || self.takes_history
    }

    /// The most values of a tuple that the operations of a statement may step over.
    pub(crate) fn step_limit(&self) -> u64 {
        step_limit(self.is_history())
    }

    /// Says whether a master has accepted the statements to come, see [`Origin`].
    pub(crate) fn take_as_history(&mut self, is_history: bool) {
        self.takes_history = is_history;
    }

    /// As [`Store::execute`], for a statement that was accepted here or elsewhere.
    ///
    /// # Errors
    /// As [`Store::execute`].
    pub fn execute_of(&mut self, origin: Origin, statement: &Statement<'_>) -> Result<(), Error> {
        self.take_as_history(origin == Origin::Master);
        let executed = self.execute(statement).map(drop);
        self.take_as_history(false);
        executed
    }

    /// Applies a row of a snapshot or of a log as it is: without checks of access, leaving no effects.
    ///
    /// Rows of a snapshot are INSERTs, those of system spaces first; [`Store::finish_snapshot`] must be called after the
    /// last of them, and is if another kind of row comes.
    ///
    /// # Errors
    /// The row does not fit the data. Operations of an UPSERT that fail are skipped, as they were when it was logged. That
    /// a secondary index cannot hold the tuple is said by [`Store::finish_recovery`].
    pub fn recover(&mut self, statement: &Statement<'_>) -> Result<(), Error> {
        if self.phase == Phase::Snapshot {
            match *statement {
                Statement::Insert { space, tuple } if space > system::MAX => return self.load(space, tuple),
                Statement::Insert { .. } => {}
                _ => self.finish_snapshot()?,
            }
        }
        if self.phase == Phase::Log && self.replay(statement)? {
            return Ok(());
        }
        self.begin(user::ADMIN);
        let was_logging = std::mem::replace(&mut self.is_logging, false);
        let result = self.execute(statement).map(drop);
        self.is_logging = was_logging;
        self.commit();
        result
    }

    /// Takes a tuple of a snapshot in.
    fn load(&mut self, id: SpaceId, tuple: &[u8]) -> Result<(), Error> {
        key_values(tuple)?;
        let Some(space) = self.catalog.get_mut(id) else {
            return Err(Error::NoSuchSpace(id.to_string()));
        };
        space.primary()?;
        space.format.check_stored(TupleRef::trusted(tuple)).map_err(Error::from)?;
        let handle = self.arena.insert(tuple).ok_or(Error::MemoryIssue { bytes: tuple.len() as u64 })?;
        space.weight.add(tuple.len());
        space.loaded.push(handle);
        Ok(())
    }

    /// To be called after the last row of a snapshot: builds the primary indexes over the loaded tuples.
    ///
    /// # Errors
    /// [`Error::TupleFound`]: two tuples have one primary key.
    pub fn finish_snapshot(&mut self) -> Result<(), Error> {
        if self.phase != Phase::Snapshot {
            return Ok(());
        }
        self.phase = Phase::Log;
        for space in self.catalog.iter_mut() {
            build::build_primary(space, &self.arena)?;
        }
        self.schema.users.refresh();
        self.gauge_indexes();
        Ok(())
    }

    /// To be called after the last row of the log: builds the indexes that are not there yet. From now on everything is
    /// checked and logged.
    ///
    /// # Errors
    /// [`Error::TupleFound`]: two tuples have one key in a unique index. As [`Store::finish_snapshot`], if that was not
    /// called.
    pub fn finish_recovery(&mut self) -> Result<(), Error> {
        self.finish_recovery_with(|builds| builds.into_iter().for_each(IndexBuild::run))
    }

    /// Like [`Store::finish_recovery`], but `run` runs the builds, each once and on any thread, before it returns.
    ///
    /// # Errors
    /// As [`Store::finish_recovery`].
    ///
    /// # Panics
    /// If `run` has left out a build: its index would not hold its tuples.
    pub fn finish_recovery_with(&mut self, run: impl FnOnce(Vec<IndexBuild<'_>>)) -> Result<(), Error> {
        self.finish_snapshot()?;
        build::build_secondary(&mut self.catalog, &self.arena, run)?;
        self.phase = Phase::Running;
        self.gauge_indexes();
        Ok(())
    }

    /// Hands out the rows that a snapshot of the data holds, in an order in which they can be loaded: system spaces
    /// first, by id, each in the order of its primary index. Of sequences the true last values are shown, even if another value
    /// written to `_sequence_data` last. Arguments: the space, the tuple, whether the row stays on this instance.
    pub fn for_each_snapshot_row(&self, f: &mut dyn FnMut(SpaceId, &[u8], bool)) {
        for space in self.catalog.iter() {
            if !is_persistent(space) {
                continue;
            }
            if space.def.id == system::SEQUENCE_DATA {
                self.for_each_sequence_value(&mut |row| f(system::SEQUENCE_DATA, row, false));
                continue;
            }
            for handle in space.handles(&self.arena) {
                f(space.def.id, self.arena.get(handle), space.def.local);
            }
        }
    }
}
