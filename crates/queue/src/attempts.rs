//! Attempts and the last failure of tasks: what a worker needs to know of the workers before it.
//!
//! Clients that ask for a task in extended form (`take(timeout, {extended = true})`) have their takes counted; `release`
//! and `bury` with a `reason` note the failure. Both are rows of a space of their own, [`ATTEMPTS`], so that the tubes'
//! spaces are those of the Lua module and clients that do not ask see and pay nothing: the space is created when it is
//! first needed, and as long as it is empty nobody looks into it.
//!
//! Invariants: a row goes with its task, in the same transaction (ack, delete, the end of its ttl, truncate, drop, DML by a
//! client). Rows of temporary tubes are left behind by a restart, and [`Queue::find_attempts`] removes them.

use lycosa_store::{IteratorType, SpaceId, Statement, Store, user};
use lycosa_tuple::mp::{self, Reader};

use crate::Queue;
use crate::arguments::{Table, string};
use crate::error::Error;
use crate::system::{SystemSpace, rows};
use crate::task::{IndexLayout, ShortKey};
use crate::tube::SlotIndex;

/// The longest reason that is kept, in bytes; the rest is cut off at the front.
const MAX_REASON: usize = 4096;

pub(crate) static ATTEMPTS: SystemSpace = SystemSpace {
    name: "_lycosa_attempts",
    fields: &[
        ("tube_id", "unsigned"),
        ("task_id", "unsigned"),
        ("attempts", "unsigned"),
        ("last_error", "string"),
        ("failed_at", "unsigned"),
    ],
    indexes: &[IndexLayout { name: "pk", unique: true, parts: &[0, 1] }],
};

/// A row of [`ATTEMPTS`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// Takes in extended form.
    pub(crate) attempts: u64,
    /// The last reason; empty if there was none.
    pub(crate) last_error: Vec<u8>,
    /// µs since the epoch; 0 if there was none.
    pub(crate) failed_at: u64,
}

impl Record {
    fn read(row: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(row);
        reader.array().ok().filter(|count| *count >= 5)?;
        reader.skip().ok()?;
        reader.skip().ok()?;
        let attempts = reader.uint().ok()?;
        let last_error = reader.str().ok()?.to_vec();
        Some(Self { attempts, last_error, failed_at: reader.uint().ok()? })
    }

    fn encode(&self, (tube, task): (u64, u64)) -> Vec<u8> {
        let mut row = Vec::with_capacity(self.last_error.len() + 48);
        mp::write_array(&mut row, 5);
        for number in [tube, task, self.attempts] {
            mp::write_uint(&mut row, number);
        }
        mp::write_str(&mut row, &self.last_error);
        mp::write_uint(&mut row, self.failed_at);
        row
    }
}

/// Whether options ask for the extended form.
pub(crate) fn is_extended(options: Option<&[u8]>) -> bool {
    Table::parse(options).is_ok_and(|options| options.get(b"extended") == Some(&[0xc3]))
}

/// The `reason` in the options of `release` and `bury`.
pub(crate) fn reason(options: Option<&[u8]>) -> Option<&[u8]> {
    string(Table::parse(options).ok()?.get(b"reason")?)
}

impl Queue {
    /// Finds the space at a start, and removes rows whose tasks are gone.
    pub(crate) fn find_attempts(&mut self, store: &mut Store) -> Result<(), Error> {
        let Some(space) = store.space_by_name(ATTEMPTS.name).map(lycosa_store::Space::id) else {
            self.attempts = 0;
            return Ok(());
        };
        self.attempts = space;
        store.exempt_from_limit(space);
        let has_task = |queue: &Self, store: &Store, row: &[u8]| {
            let mut reader = Reader::new(row);
            let ids = reader.array().ok().and_then(|_| Some((reader.uint().ok()?, reader.uint().ok()?)));
            let Some((tube, task)) = ids else { return false };
            let tube = queue.tubes.by_id(tube).and_then(|index| queue.tubes.at(index));
            tube.is_some_and(|tube| tube.tasks(store).get(task).is_ok_and(|task| task.is_some()))
        };
        let stale: Vec<_> = rows(store, space, 0, IteratorType::All, &[0x90])?
            .into_iter()
            .filter(|row| !has_task(self, store, row))
            .collect();
        self.transact(store, user::ADMIN, |_, store| {
            stale.iter().try_for_each(|row| delete_row(store, space, row))
        })
    }

    /// The space, if there is one with rows.
    #[inline]
    fn attempts_kept(&self, store: &Store) -> Option<SpaceId> {
        if self.attempts == 0 {
            return None;
        }
        self.attempts_space(store).filter(|space| store.space(*space).is_ok_and(|space| !space.is_empty()))
    }

    /// The space, if there is one: the transaction that made it may have been rolled back.
    fn attempts_space(&self, store: &Store) -> Option<SpaceId> {
        store
            .space(self.attempts)
            .ok()
            .filter(|space| space.name() == ATTEMPTS.name)
            .map(lycosa_store::Space::id)
    }

    /// What is kept of a task.
    pub(crate) fn attempts_of(&self, store: &Store, tube: u64, task: u64) -> Result<Record, Error> {
        let Some(space) = self.attempts_kept(store) else { return Ok(Record::default()) };
        let row = store.get(space, 0, &ShortKey::numbers(&[tube, task]))?;
        Ok(row.and_then(Record::read).unwrap_or_default())
    }

    /// Counts a take in extended form, inside a transaction.
    pub(crate) fn count_attempt(
        &mut self,
        store: &mut Store,
        index: SlotIndex,
        task: u64,
    ) -> Result<(), Error> {
        self.change_record(store, index, task, |record| record.attempts += 1)
    }

    /// Notes why a task was released or buried, inside a transaction.
    pub(crate) fn note_failure(
        &mut self,
        store: &mut Store,
        index: SlotIndex,
        task: u64,
        reason: &[u8],
        now: u64,
    ) -> Result<(), Error> {
        let reason = &reason[reason.len().saturating_sub(MAX_REASON)..];
        self.change_record(store, index, task, |record| {
            // Of a client that does not have its takes counted, the failures are.
            record.attempts = record.attempts.max(1);
            record.last_error = reason.to_vec();
            record.failed_at = now;
        })
    }

    fn change_record(
        &mut self,
        store: &mut Store,
        index: SlotIndex,
        task: u64,
        change: impl FnOnce(&mut Record),
    ) -> Result<(), Error> {
        let Some(tube) = self.tubes.at(index).map(|tube| tube.id) else { return Err(Error::Stale) };
        let space = match self.attempts_space(store) {
            Some(space) => space,
            None => {
                let space = ATTEMPTS.find_or_create(store, false)?;
                store.exempt_from_limit(space);
                self.attempts = space;
                space
            }
        };
        let mut record = self.attempts_of(store, tube, task)?;
        change(&mut record);
        store.execute(&Statement::Replace { space, tuple: &record.encode((tube, task)) })?;
        Ok(())
    }

    /// The task is gone.
    #[inline]
    pub(crate) fn forget_attempts(&mut self, store: &mut Store, tube: u64, task: u64) -> Result<(), Error> {
        match self.attempts_kept(store) {
            Some(space) => delete_key(store, space, &ShortKey::numbers(&[tube, task])),
            None => Ok(()),
        }
    }

    /// All tasks of a tube are gone.
    pub(crate) fn forget_all_attempts(&mut self, store: &mut Store, tube: u64) -> Result<(), Error> {
        let Some(space) = self.attempts_kept(store) else { return Ok(()) };
        let gone = rows(store, space, 0, IteratorType::Eq, &ShortKey::id(tube))?;
        gone.iter().try_for_each(|row| delete_row(store, space, row))
    }
}

fn delete_row(store: &mut Store, space: SpaceId, row: &[u8]) -> Result<(), Error> {
    let mut reader = Reader::new(row);
    match reader.array().ok().and_then(|_| Some([reader.uint().ok()?, reader.uint().ok()?])) {
        Some(key) => delete_key(store, space, &ShortKey::numbers(&key)),
        None => Ok(()),
    }
}

fn delete_key(store: &mut Store, space: SpaceId, key: &[u8]) -> Result<(), Error> {
    store.execute(&Statement::Delete { space, index: 0, key })?;
    Ok(())
}
