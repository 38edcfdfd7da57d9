//! Attempts and the last failure of tasks, and their [headers](crate::headers): what a worker needs to know beside the payload.
//!
//! Clients that ask for a task in extended form (`take(timeout, {extended = true})`) have their takes counted; `release`
//! and `bury` with a `reason` note the failure. All of it stands in rows of a space of their own, [`ATTEMPTS`], so that the tubes'
//! spaces are those of the Lua module and clients that do not ask see and pay nothing: the space is created when it is
//! first needed, and while it is empty no operation reads it.
//!
//! Invariants: a row goes with its task, in the same transaction (ack, delete, the end of its ttl, truncate, drop, DML by a
//! client). Rows of temporary tubes are left behind by a restart, and [`Attempts::retain_after`] removes them.

use lycosa_store::Store;
use lycosa_tuple::mp::{self, Kind, Reader};

use crate::arguments::{Table, kind, string};
use crate::error::Result;
use crate::system::{LateSpace, SystemSpace, delete_row, rows_after};
use crate::task::{ShortKey, TaskKey, taken_key};

/// The longest reason that is kept, in bytes; the rest is cut off at the front.
const MAX_REASON: usize = 4096;

pub(crate) static ATTEMPTS: SystemSpace = SystemSpace {
    name: "_lycosa_attempts",
    fields: "tube_id unsigned, task_id unsigned, attempts unsigned, last_error string, failed_at unsigned",
    indexes: &[("pk", true, &[0, 1])],
};

/// A row of [`ATTEMPTS`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// Takes in extended form since the task was put or kicked.
    pub(crate) attempts: u64,
    /// The last reason; empty if there was none.
    pub(crate) last_error: Vec<u8>,
    /// µs since the epoch; 0 if there was none.
    pub(crate) failed_at: u64,
    /// A MessagePack map of strings; no bytes if the task has no headers. Then the row has no such field, which the format of
    /// the space does not name either: data folders from before headers need no change.
    pub(crate) headers: Vec<u8>,
}

impl Record {
    fn read(row: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(row);
        let count = reader.array().ok().filter(|count| *count >= 5)?;
        reader.skip().ok()?;
        reader.skip().ok()?;
        let attempts = reader.uint().ok()?;
        let last_error = reader.str().ok()?.to_vec();
        let failed_at = reader.uint().ok()?;
        Some(Self { attempts, last_error, failed_at, headers: Self::read_headers(&mut reader, count - 5) })
    }

    /// Reads the headers if the row has `left` further fields, one at least.
    pub(crate) fn read_headers(reader: &mut Reader<'_>, left: u32) -> Vec<u8> {
        let headers = if left > 0 { reader.raw().ok() } else { None };
        headers.filter(|headers| kind(headers) == Kind::Map).map_or(Vec::new(), <[u8]>::to_vec)
    }

    fn encode(&self, (tube, task): (u64, u64)) -> Vec<u8> {
        let mut row = Vec::with_capacity(self.last_error.len() + self.headers.len() + 48);
        mp::write_array(&mut row, 5 + u32::from(!self.headers.is_empty()));
        [tube, task, self.attempts].into_iter().for_each(|number| mp::write_uint(&mut row, number));
        mp::write_str(&mut row, &self.last_error);
        mp::write_uint(&mut row, self.failed_at);
        row.extend_from_slice(&self.headers);
        row
    }
}

/// Whether options ask for the extended form.
pub(crate) fn is_extended(options: Option<&[u8]>) -> bool {
    Table::parse(options).is_ok_and(|options| options.get(b"extended") == Some(&[0xc3]))
}

/// Whether the options of `release` say that the take was no attempt.
pub(crate) fn is_unattempted(options: Option<&[u8]>) -> bool {
    Table::parse(options).is_ok_and(|options| options.get(b"attempted") == Some(&[0xc2]))
}

/// The `reason` in the options of `release` and `bury`.
pub(crate) fn reason(options: Option<&[u8]>) -> Option<&[u8]> {
    string(Table::parse(options).ok()?.get(b"reason")?)
}

/// The records of all tasks.
#[derive(Debug)]
pub(crate) struct Attempts(LateSpace);

impl Default for Attempts {
    fn default() -> Self {
        Self(LateSpace::new(&ATTEMPTS))
    }
}

impl Attempts {
    /// Finds the space at a start.
    pub(crate) fn find(&mut self, store: &mut Store) {
        self.0.find(store);
    }

    /// Removes the records of a tube whose task does not exist.
    pub(crate) fn retain_in(
        &self,
        store: &mut Store,
        tube: u64,
        has_task: impl Fn(&Store, TaskKey) -> bool,
    ) -> Result<()> {
        self.retain(store, self.0.tasks_of(store, tube)?, has_task)
    }

    /// The same for up to `limit` records of any tube behind a task. Returns how many there were, and the last one's task.
    pub(crate) fn retain_after(
        &self,
        store: &mut Store,
        after: Option<TaskKey>,
        limit: usize,
        has_task: impl Fn(&Store, TaskKey) -> bool,
    ) -> Result<(usize, Option<TaskKey>)> {
        let Some(space) = self.0.kept(store) else { return Ok((0, None)) };
        let key = after.map(|task| ShortKey::numbers(&[task.0, task.1]));
        let records = rows_after(store, space, 0, key.as_deref(), limit)?;
        self.retain(store, records.iter().filter_map(|row| taken_key(row)).collect(), has_task)?;
        Ok((records.len(), records.last().and_then(|row| taken_key(row))))
    }

    fn retain(
        &self,
        store: &mut Store,
        tasks: Vec<TaskKey>,
        has_task: impl Fn(&Store, TaskKey) -> bool,
    ) -> Result<()> {
        let stale: Vec<_> = tasks.into_iter().filter(|&task| !has_task(store, task)).collect();
        stale.into_iter().try_for_each(|task| self.forget(store, task))
    }

    /// The kept attempts of a task.
    pub(crate) fn of(&self, store: &Store, task: TaskKey) -> Result<Record> {
        let Some(space) = self.0.kept(store) else { return Ok(Record::default()) };
        let row = store.get(space, 0, &ShortKey::numbers(&[task.0, task.1]))?;
        Ok(row.and_then(Record::read).unwrap_or_default())
    }

    /// Counts a take in extended form, inside a transaction.
    pub(crate) fn count(&mut self, store: &mut Store, task: TaskKey) -> Result<()> {
        self.change(store, task, |record| record.attempts = record.attempts.saturating_add(1))
    }

    /// Keeps the headers of a new task, inside the transaction that puts it.
    pub(crate) fn keep_headers(&mut self, store: &mut Store, task: TaskKey, headers: Vec<u8>) -> Result<()> {
        self.change(store, task, |record| record.headers = headers)
    }

    /// Notes why a task was released or buried, inside a transaction.
    pub(crate) fn note_failure(
        &mut self,
        store: &mut Store,
        task: TaskKey,
        reason: &[u8],
        now: u64,
    ) -> Result<()> {
        let reason = &reason[reason.len().saturating_sub(MAX_REASON)..];
        self.change(store, task, |record| {
            // Of a client that does not have its takes counted, the failures are.
            record.attempts = record.attempts.max(1);
            record.last_error = reason.to_vec();
            record.failed_at = now;
        })
    }

    /// Takes back the count of a take that was no attempt, inside a transaction.
    pub(crate) fn uncount(&mut self, store: &mut Store, task: TaskKey) -> Result<()> {
        match self.of(store, task)?.attempts {
            0 => Ok(()),
            attempts => self.change(store, task, |record| record.attempts = attempts - 1),
        }
    }

    /// Counts anew from a kick on, inside a transaction: a kick asks for further attempts. The last failure
    /// stays.
    #[inline]
    pub(crate) fn reset(&mut self, store: &mut Store, task: TaskKey) -> Result<()> {
        match self.of(store, task)?.attempts {
            0 => Ok(()),
            _ => self.change(store, task, |record| record.attempts = 0),
        }
    }

    /// Gives a task the record that it had before, or had in another tube; inside a transaction.
    pub(crate) fn restore(&mut self, store: &mut Store, task: TaskKey, record: Record) -> Result<()> {
        if self.of(store, task)? == record { Ok(()) } else { self.change(store, task, |own| *own = record) }
    }

    fn change(&mut self, store: &mut Store, task: TaskKey, change: impl FnOnce(&mut Record)) -> Result<()> {
        let mut record = self.of(store, task)?;
        change(&mut record);
        self.0.write(store, &record.encode(task))
    }

    /// The task is gone.
    #[inline]
    pub(crate) fn forget(&self, store: &mut Store, task: TaskKey) -> Result<()> {
        if let Some(space) = self.0.kept(store) {
            delete_row(store, space, &[task.0, task.1])?;
        }
        Ok(())
    }

    /// All tasks of a tube are gone.
    pub(crate) fn forget_tube(&self, store: &mut Store, tube: u64) -> Result<()> {
        self.0.tasks_of(store, tube)?.into_iter().try_for_each(|task| self.forget(store, task))
    }
}
