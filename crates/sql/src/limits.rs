//! Limits of a statement: bytes of memory, work without a pause, changed rows.
//!
//! All statements of the thread share [`MAX_RUNNING`] bytes. One may have half of the bytes that are free, so a greedy one
//! leaves the next as much.

use std::cell::Cell;
use std::rc::Rc;

use crate::{SqlFault, effort, value};

/// Bytes of all statements that run.
const MAX_RUNNING: usize = 512 << 20;

/// Bytes of keeping a row, beside its own.
pub(crate) const OVERHEAD: usize = 64;

/// `ER_MEMORY_ISSUE`.
pub(crate) const MEMORY_ISSUE: u32 = 2;

thread_local! {
    /// Bytes of all statements that run in this thread, which is the one of the instance.
    static RUNNING: Cell<usize> = const { Cell::new(0) };
}

/// What a statement may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of its result.
    pub bytes: usize,
    /// Units of work without a pause, and rows that it may change in its one transaction.
    pub whole: Option<(u64, u64)>,
    /// Units of all steps of a statement of several sources.
    pub total: Option<u64>,
}

impl Limits {
    /// For a program, whose time the watchdog looks at.
    pub const PROGRAM: Limits = Limits { bytes: 512 << 20, whole: None, total: None };

    /// For a client that may run programs.
    pub const TRUSTED_CLIENT: Limits = Limits { bytes: 32 << 20, whole: None, total: None };

    /// For any other client: it holds the loop for about 40 ms at most.
    pub const CLIENT: Limits =
        Limits { bytes: 32 << 20, whole: Some((effort::MAX_WHOLE, 4096)), total: Some(effort::MAX_TOTAL) };
}

/// Refuses this number of changed rows.
///
/// # Errors
/// They are more than the statement may change.
pub(crate) fn check_changes(limits: Limits, count: u64) -> Result<(), SqlFault> {
    match limits.whole {
        Some((_, limit)) if count > limit => Err(value::execution(&format!(
            "it changes more than {limit} rows at once, which would keep other clients waiting: change fewer with each \
             statement, by a range of keys"
        ))),
        _ => Ok(()),
    }
}

/// Bytes that a part of a run has, in the sum of all runs.
#[derive(Debug, Default)]
pub(crate) struct Share {
    own: usize,
    /// Bytes of all parts of the run; `None` if this is the only one.
    run: Option<Rc<Cell<usize>>>,
}

impl Share {
    /// A share of a run of several parts.
    pub(crate) fn of(run: &Rc<Cell<usize>>) -> Share {
        Share { own: 0, run: Some(Rc::clone(run)) }
    }

    pub(crate) fn grow(&mut self, bytes: usize, limit: usize) -> Result<(), SqlFault> {
        let of_run = self.run.as_ref().map_or(self.own, |run| run.get());
        let others = RUNNING.get().saturating_sub(of_run);
        let limit = limit.min(MAX_RUNNING.saturating_sub(others) / 2);
        if of_run + bytes > limit {
            let message = format!(
                "Failed to allocate a result of more than {limit} bytes for SQL: read fewer rows at a time with LIMIT"
            );
            return Err(SqlFault::new(MEMORY_ISSUE, message));
        }
        self.own += bytes;
        if let Some(run) = &self.run {
            run.set(of_run + bytes);
        }
        RUNNING.set(RUNNING.get() + bytes);
        Ok(())
    }

    pub(crate) fn shrink(&mut self, bytes: usize) {
        let bytes = bytes.min(self.own);
        self.own -= bytes;
        if let Some(run) = &self.run {
            run.set(run.get().saturating_sub(bytes));
        }
        RUNNING.set(RUNNING.get().saturating_sub(bytes));
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shrink(self.own);
    }
}
