//! What a look at the ready tasks of a tube found, kept while the tube stays as it is.
//!
//! An overview asks each of thousands of tubes for its oldest ready task each second, and most tubes have not changed since. The
//! version of a tube's space tells whether it has: its identity, its revision and the number of its tuples. The revision grows with
//! each tuple that comes or changes, and the number falls with each one that goes.
//!
//! Invariant: the kept finding is that of a look now. Absent: the look itself, which is the reader's (`view.rs`).

use std::cell::Cell;

use lycosa_store::Space;

use crate::error::Result;

/// Of a space: its identity, its revision, and the number of its tuples.
type Version = (u64, u64, u64);

/// What the last look found: a time, or the id of a task.
#[derive(Debug, Default)]
pub(crate) struct Oldest(Cell<Option<(Version, Option<u64>)>>);

impl Oldest {
    /// What the last look found, or else what `look` finds now. `space` is the tube's.
    ///
    /// # Errors
    /// As `look`.
    pub(super) fn find(
        &self,
        space: &Space,
        look: impl FnOnce() -> Result<Option<u64>>,
    ) -> Result<Option<u64>> {
        let version = (space.identity(), space.revision(), space.len());
        if let Some((kept, found)) = self.0.get()
            && kept == version
        {
            return Ok(found);
        }
        let found = look()?;
        self.0.set(Some((version, found)));
        Ok(found)
    }
}
