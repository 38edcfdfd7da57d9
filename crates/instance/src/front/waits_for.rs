//! The cause for which a call is parked.

/// What a parked call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    /// An event: a task comes, a checkpoint is complete.
    Event,
    /// The end of a program. The request takes these bytes until then.
    Program { bytes: usize },
}
