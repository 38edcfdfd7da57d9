//! Measures of the instance beside the loop's turns: bytes of clients, the journal's syncs, and numbers that the host reports.

use lycosa_queue::status::Histogram;

use crate::front::loop_time::LoopTime;

/// Numbers since the start.
#[derive(Debug, Default)]
pub(crate) struct Measures {
    /// Bytes of frames that clients have sent.
    pub(crate) received: u64,
    /// Bytes of replies that clients have taken.
    pub(crate) sent: u64,
    /// From the hand-over of a batch to the journal to its confirmation.
    pub(crate) journal_sync: Histogram,
    /// When the batch was handed over that is not confirmed, µs by the clock of [`LoopTime`].
    batch_began: Option<u64>,
    /// Failures of the journal, and losses of rows.
    pub(crate) journal_errors: u64,
    pub(crate) programs: Programs,
    /// By how many µs the system's clock is ahead of the time of the process.
    pub(crate) clock_ahead: i64,
}

/// Numbers about programs, as the host of the instance reports them ([`Instance::set_programs`](crate::Instance::set_programs)).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Programs {
    /// Bytes that Lua has allocated.
    pub memory: u64,
    /// Calls, triggers and callbacks that ended with an error of Lua, since the start.
    pub errors: u64,
}

impl Measures {
    /// A batch goes to the journal. Of several under way the first is measured.
    pub(crate) fn begin_batch(&mut self, time: &LoopTime) {
        self.batch_began.get_or_insert_with(|| time.elapsed());
    }

    /// The journal has confirmed it.
    pub(crate) fn end_batch(&mut self, time: &LoopTime) {
        if let Some(began) = self.batch_began.take() {
            self.journal_sync.record(time.elapsed().saturating_sub(began));
        }
    }
}
