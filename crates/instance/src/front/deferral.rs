//! Deferral: a large batch is left undone, so that its connection can wait for its turn first.
//!
//! Most requests take microseconds, and long ones work in slices. A batch of tasks is one transaction: ten thousand tasks hold the
//! loop for tens of milliseconds, and sixteen clients with one batch each for sixteen times as long. How many tasks a batch has is
//! known before it is done, so the host can let other clients go first, also before a connection's first batch.
//!
//! Invariant: a deferred request has changed nothing and is not counted; handed to [`Instance::handle_frame`] it is done.
//! Absent: an order of connections that wait, which is the host's.

use lycosa_queue::Procedure;

use crate::front::Front;
use crate::{Broken, ConnectionSlot, Instance};

/// Tasks of a batch from which on it counts as large: they take about half a millisecond.
const LARGE: u32 = 128;

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handled {
    /// Its request was done, or refused.
    Done,
    /// It holds a large batch, which was not begun.
    Deferred,
}

/// Whether large batches are deferred.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Deferral {
    /// They are done as they come.
    #[default]
    Unwanted,
    /// They are to be deferred.
    Wanted,
    /// One was deferred.
    Made,
}

impl Instance {
    /// As [`Self::handle_frame`], but a large batch of tasks is deferred: it is not begun, and its frame stays to be handled.
    ///
    /// # Errors
    /// As there.
    pub fn handle_short_frame(
        &mut self,
        slot: ConnectionSlot,
        frame: &[u8],
        now: u64,
    ) -> Result<Handled, Box<Broken>> {
        self.front.deferral = Deferral::Wanted;
        let handled = self.handle_frame(slot, frame, now);
        if std::mem::take(&mut self.front.deferral) == Deferral::Made {
            self.measures.received -= frame.len() as u64;
            self.front.counts.take_back();
            return Ok(Handled::Deferred);
        }
        handled.map(|()| Handled::Done)
    }
}

impl Front {
    /// Defers a call if it is a large batch and the host wants that: whether it is not to be done now.
    pub(super) fn defers(&mut self, procedure: &Procedure, args: &[u8]) -> bool {
        let defers = self.deferral == Deferral::Wanted && procedure.tasks_asked(args) >= LARGE;
        if defers {
            self.deferral = Deferral::Made;
        }
        defers
    }
}
