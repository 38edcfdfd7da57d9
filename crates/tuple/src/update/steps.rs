//! Steps: the bound of a walk by the operations of one request.
//!
//! An operation finds its place by walking the tuple, and a second path into a large map or a deep value walks it again:
//! 4000 paths into a map of a million bytes walk 10^9 values, while nothing else is served. So every walk is counted, and
//! a request that walks more than its limit fails as a whole.

use std::cell::Cell;

use super::UpdateError;
use crate::mp::Reader;

/// The most values of the old tuple that the operations of a client's request may step over, values that are stepped over
/// again included.
pub const STEP_LIMIT: u64 = 8_000_000;

/// Runs of an array that cost as much as one value: they are counted and moved, not read.
const RUNS_OF_A_STEP: usize = 8;

/// The steps that a request has left.
#[derive(Debug)]
pub(super) struct Steps {
    left: Cell<u64>,
}

impl Steps {
    pub(super) const fn new(limit: u64) -> Self {
        Self { left: Cell::new(limit) }
    }

    /// Takes `count` steps.
    pub(super) fn take(&self, count: u64) -> Result<(), UpdateError> {
        self.left.set(self.left.get().checked_sub(count).ok_or(UpdateError::TooManySteps)?);
        Ok(())
    }

    /// Walks over or moves `count` runs of an array or a map.
    pub(super) fn runs(&self, count: usize) -> Result<(), UpdateError> {
        self.take((count / RUNS_OF_A_STEP) as u64)
    }

    /// Steps over one value.
    pub(super) fn skip(&self, reader: &mut Reader<'_>) -> Result<(), UpdateError> {
        self.take(reader.skip_counted()?)
    }

    /// Steps over one value and returns its bytes.
    pub(super) fn raw<'a>(&self, reader: &mut Reader<'a>) -> Result<&'a [u8], UpdateError> {
        let rest = reader.rest();
        self.skip(reader)?;
        Ok(&rest[..rest.len() - reader.rest().len()])
    }
}
