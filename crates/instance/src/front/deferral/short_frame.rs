//! Frames of a host that wants large batches deferred.

use lycosa_queue::Procedure;

use super::{Deferral, Handled};
use crate::front::Front;
use crate::{Broken, ConnectionSlot, Instance};

/// Tasks of a batch from which on it counts as large: they take about half a millisecond.
const LARGE: u32 = 128;

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
    pub(in crate::front) fn defers(&mut self, procedure: &Procedure, args: &[u8]) -> bool {
        let defers = self.deferral == Deferral::Wanted && procedure.tasks_asked(args) >= LARGE;
        if defers {
            self.deferral = Deferral::Made;
        }
        defers
    }
}
