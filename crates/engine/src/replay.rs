//! Replay of rows into a store: the one target of recovery, and of a join.
//!
//! A [`Replay`] takes rows of a snapshot, then the end of the snapshot, then rows of changes.
//! [`Replay::finish`] is the only way to the store, so no caller can forget to build its indexes or to inform the queue's
//! drivers of them.
//!
//! Absent: tasks that belonged to connections that are gone. The queue releases them when it starts.

use lycosa_group::log::OpenLogError;
use lycosa_instance::statement;
use lycosa_iproto::row::RowBody;
use lycosa_journal::decision::{Category, Resolution};
use lycosa_journal::recovery::{ApplyError, RecoveryError, RecoveryTarget, Source, Transaction};
use lycosa_journal::transaction::Row;
use lycosa_store::{Breaks, Error, IndexBuild, Space, Store};

use crate::group::entry::EntryError;

/// Rows between two breaks.
const ROWS_BETWEEN_BREAKS: u32 = 128;

/// Hears how recovery goes on.
pub trait Observer {
    /// A row is about to be applied to a store.
    fn applies(&mut self, store: &Store, row: &Row<'_>, source: Source) {
        let _ = (store, row, source);
    }

    /// A transaction was applied; `rows` rows were until now.
    fn applied(&mut self, rows: u64, transaction: &Transaction<'_>) {
        let _ = (rows, transaction);
    }

    /// Recovery found something and decided about it.
    fn resolved(&mut self, resolution: &Resolution) {
        let _ = resolution;
    }
}

impl Observer for () {}

/// A store that takes rows.
#[derive(Debug)]
pub struct Replay<O = ()> {
    store: Store,
    rows: u64,
    observer: O,
    breaks: Breaks,
}

impl Replay {
    /// Fills a store, which must be new.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self::observed(store, ())
    }
}

impl<O: Observer> Replay<O> {
    /// The same, and tells `observer` about it.
    pub fn observed(store: Store, observer: O) -> Self {
        Self { store, rows: 0, observer, breaks: Breaks::every(ROWS_BETWEEN_BREAKS) }
    }

    /// Rows so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Applies a row. Rows that change no data are passed over.
    ///
    /// # Errors
    /// The row does not fit the rows before it.
    pub fn apply(&mut self, body: &RowBody<'_>) -> Result<(), Error> {
        if let Some(statement) = statement(body) {
            self.store.recover(&statement)?;
        }
        self.rows += 1;
        self.breaks.step();
        Ok(())
    }

    /// The snapshot ends; the next rows are changes.
    ///
    /// # Errors
    /// The definitions in the snapshot do not fit each other.
    pub fn end_snapshot(&mut self) -> Result<(), Error> {
        self.store.finish_snapshot()
    }

    /// Ends the rows: the store, ready to be used. Its indexes are built one after the other.
    ///
    /// # Errors
    /// [`Error::TupleFound`]: two tuples have one key in a unique index. As [`Self::end_snapshot`], if that was not called.
    pub fn finish(self) -> Result<Store, Error> {
        self.finish_with(|builds| builds.into_iter().for_each(IndexBuild::run))
    }

    /// The same; `run` builds the indexes, each once and on any thread, before it returns.
    ///
    /// # Errors
    /// As [`Self::finish`].
    pub fn finish_with(mut self, run: impl FnOnce(Vec<IndexBuild<'_>>)) -> Result<Store, Error> {
        lycosa_queue::finish_recovery_with(&mut self.store, run)?;
        Ok(self.store)
    }
}

impl<O: Observer> RecoveryTarget for Replay<O> {
    fn apply(&mut self, transaction: &Transaction<'_>) -> Result<(), ApplyError> {
        for row in transaction.rows {
            self.observer.applies(&self.store, row, transaction.source);
            self.apply(&row.body)?;
        }
        self.observer.applied(self.rows, transaction);
        Ok(())
    }

    fn end_of_snapshot(&mut self) -> Result<(), ApplyError> {
        Ok(self.end_snapshot()?)
    }

    fn is_synchronous(&self, space: u32) -> bool {
        self.store.space(space).is_ok_and(Space::is_synchronous)
    }

    fn report(&mut self, resolution: &Resolution) {
        self.observer.resolved(resolution);
    }
}

/// Why a folder's data cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A start would be refused, or a file cannot be read.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// The rows can be read but do not fit each other.
    #[error(
        "the recovered data are not consistent: {0}; rows are missing, or files belong to different times: put sound copies of \
         all files back. `lycosa cat` shows the rows of each"
    )]
    Inconsistent(#[from] Error),
    /// The rows do not say which replica set they belong to.
    #[error(
        "_schema names no replica set (row 'cluster'): the first rows of the snapshot are missing; put a sound copy back. \
         `lycosa cat` shows the rows that can be read"
    )]
    NoReplicaSet,
    /// The log of the group whose member the folder is.
    #[error(transparent)]
    GroupLog(#[from] OpenLogError),
    /// An entry of that log.
    #[error(transparent)]
    Entry(#[from] EntryError),
}

impl LoadError {
    /// The kind of failure, for the exit code.
    #[must_use]
    pub fn category(&self) -> Category {
        match self {
            Self::Recovery(error) => error.category(),
            Self::GroupLog(OpenLogError::Io(_)) => Category::Disk,
            Self::Inconsistent(_) | Self::NoReplicaSet | Self::GroupLog(_) | Self::Entry(_) => {
                Category::Damaged
            }
        }
    }
}
