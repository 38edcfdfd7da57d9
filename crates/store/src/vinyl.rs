//! Spaces of vinyl that a Tarantool would take for empty.
//!
//! Vinyl keeps every statement until the next snapshot, a DELETE too, and does not build a primary index anew while it has
//! one. So a space whose tuples were all deleted is not empty there. If this store let its primary index change,
//! a Tarantool would not open the folder: it reads the log row by row and meets the change behind the rows.
//!
//! A primary index therefore keeps the number of the log period in which its space was written last. A period lasts from one
//! read view to the next, because the view is where a snapshot and a journal file begin. Truncation and a new primary index
//! begin without a number, and recovery counts the rows of the log like new statements.
//!
//! One difference stays: a tuple that comes and goes in one transaction leaves nothing in the vinyl of a Tarantool that runs.
//! It does leave something when the log is read again, so it counts here.

use crate::schema::space::Engine;
use crate::space::Space;
use crate::transaction::Undo;
use crate::{SpaceId, Store};

/// The log periods, and whether the log needs them.
#[derive(Debug)]
pub(crate) struct VinylWrites {
    /// A space of vinyl was defined.
    is_used: bool,
    /// The number of the running period.
    period: u64,
    /// The first period whose rows no snapshot has.
    first_without_snapshot: u64,
}

impl Default for VinylWrites {
    fn default() -> Self {
        Self { is_used: false, period: 1, first_without_snapshot: 1 }
    }
}

impl VinylWrites {
    /// Whether commits have to be looked at.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.is_used
    }

    pub(crate) fn space_defined(&mut self, engine: Engine) {
        self.is_used |= engine == Engine::Vinyl;
    }

    /// A read view is opened.
    pub(crate) fn next_period(&mut self) {
        self.period += 1;
    }

    /// A row was written for the space.
    pub(crate) fn note(&self, space: &mut Space) {
        if space.def.engine == Engine::Vinyl
            && let Some(primary) = space.index_mut(0)
        {
            primary.written_in = self.period;
        }
    }
}

impl Store {
    /// To be called when the snapshot of the read view that was opened last is complete.
    pub fn snapshot_completed(&mut self) {
        self.vinyl_writes.first_without_snapshot = self.vinyl_writes.period;
    }

    /// Whether the vinyl of a Tarantool would hold statements of the space.
    pub(crate) fn has_vinyl_statements(&self, space: &Space) -> bool {
        let first = self.vinyl_writes.first_without_snapshot;
        !space.is_empty() || space.index(0).is_some_and(|primary| primary.written_in >= first)
    }

    /// The open transaction is about to be committed.
    #[cold]
    pub(crate) fn note_vinyl_writes(&mut self, undo: &[Undo]) {
        let mut last = None;
        for undo in undo {
            let space: SpaceId = match *undo {
                Undo::Row { space, .. } | Undo::Overwritten { space, .. } | Undo::Missed(space) => space,
                Undo::Shown { .. } | Undo::Sequence { .. } | Undo::Schema => continue,
            };
            if last.replace(space) != Some(space)
                && let Some(space) = self.catalog.get_mut(space)
            {
                self.vinyl_writes.note(space);
            }
        }
    }
}
