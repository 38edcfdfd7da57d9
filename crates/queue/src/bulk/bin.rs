//! The bin: former tuples of the tasks that a job changed, for `undo`.
//!
//! A row of [`BIN`] is written in the transaction of the change and removed when the task is brought back, or when the job's time is
//! over. Together the rows take [`MAX_BYTES`] at most; a job that would exceed them goes on without keeping, and says so in `kept`.
//! Tasks of temporary tubes and released tasks are not kept.

use lycosa_store::{IteratorType, Store};
use lycosa_tuple::mp::{self, Reader};

use super::record::Record;
use crate::arguments::is_nil;
use crate::attempts::Record as Attempts;
use crate::background::{PORTION, PORTION_BYTES};
use crate::error::Result;
use crate::members::write_optional;
use crate::system::{LateSpace, SystemSpace, delete_row};
use crate::task::ShortKey;

/// Bytes of all kept tasks at most.
pub(crate) const MAX_BYTES: u64 = 64 << 20;

static BIN: SystemSpace = SystemSpace {
    name: "_lycosa_bin",
    fields: "job unsigned, task_id unsigned, tuple array, attempts unsigned, last_error string, failed_at unsigned, \
moved_to *",
    indexes: &[("pk", true, &[0, 1])],
};

/// Fields of a row of [`BIN`] without headers.
const FIELDS: u32 = BIN.width();

/// A row of [`BIN`].
pub(super) struct Kept<'a> {
    job: u64,
    pub(super) id: u64,
    /// The task as it was.
    pub(super) tuple: &'a [u8],
    pub(super) attempts: Attempts,
    /// Its id in the tube to which it was moved.
    pub(super) moved_to: Option<u64>,
}

impl<'a> Kept<'a> {
    pub(super) fn read(row: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(row);
        let count = reader.array().ok().filter(|count| *count >= FIELDS)?;
        let (job, id) = (reader.uint().ok()?, reader.uint().ok()?);
        let tuple = reader.raw().ok()?;
        let attempts = reader.uint().ok()?;
        let last_error = reader.str().ok()?.to_vec();
        let failed_at = reader.uint().ok()?;
        let moved_to = reader.raw().ok()?;
        let moved_to = if is_nil(moved_to) { None } else { Reader::new(moved_to).uint().ok() };
        // Behind the fields that the format names, as in the rows of attempts.
        let headers = Attempts::read_headers(&mut reader, count - FIELDS);
        let attempts = Attempts { attempts, last_error, failed_at, headers };
        Some(Self { job, id, tuple, attempts, moved_to })
    }
}

/// The outcome of bringing a task back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Undone,
    /// It was taken or changed since.
    Touched,
    /// It does not exist any more, or its ttl is over.
    Gone,
}

/// The row of a task that a job has changed.
pub(super) fn row(
    (job, id): (u64, u64),
    tuple: &[u8],
    attempts: &Attempts,
    moved_to: Option<u64>,
) -> Vec<u8> {
    let Attempts { attempts, last_error, failed_at, headers } = attempts;
    let mut row = Vec::with_capacity(tuple.len() + last_error.len() + headers.len() + 64);
    mp::write_array(&mut row, FIELDS + u32::from(!headers.is_empty()));
    mp::write_uint(&mut row, job);
    mp::write_uint(&mut row, id);
    row.extend_from_slice(tuple);
    mp::write_uint(&mut row, *attempts);
    mp::write_str(&mut row, last_error);
    mp::write_uint(&mut row, *failed_at);
    write_optional(&mut row, moved_to);
    row.extend_from_slice(headers);
    row
}

/// The rows of kept tasks.
#[derive(Debug)]
pub(super) struct Bin(LateSpace);

impl Default for Bin {
    fn default() -> Self {
        Self(LateSpace::new(&BIN))
    }
}

impl Bin {
    pub(super) fn find(&mut self, store: &mut Store) {
        self.0.find(store);
    }

    pub(super) fn keep(&mut self, store: &mut Store, row: &[u8]) -> Result<()> {
        self.0.write(store, row)
    }

    /// The first rows of a job, up to [`PORTION`] of them and [`PORTION_BYTES`], and whether they are all.
    pub(super) fn first_of(&self, store: &Store, job: u64) -> Result<(Vec<Vec<u8>>, bool)> {
        let (mut rows, mut bytes) = (Vec::new(), 0);
        let Some(space) = self.0.existing(store) else { return Ok((rows, true)) };
        for row in store.range(space, 0, IteratorType::Ge, &ShortKey::numbers(&[job]), 0)? {
            if Kept::read(row).is_none_or(|kept| kept.job != job) {
                break;
            }
            if rows.len() == PORTION || bytes >= PORTION_BYTES {
                return Ok((rows, false));
            }
            bytes += row.len();
            rows.push(row.to_vec());
        }
        Ok((rows, true))
    }

    /// Removes the row of a task; `bytes` is its size.
    pub(super) fn forget(
        &self,
        store: &mut Store,
        source: &mut Record,
        (id, bytes): (u64, usize),
    ) -> Result<()> {
        if let Some(space) = self.0.existing(store) {
            delete_row(store, space, &[source.id, id])?;
        }
        source.kept = source.kept.saturating_sub(1);
        source.kept_bytes = source.kept_bytes.saturating_sub(bytes as u64);
        Ok(())
    }
}
