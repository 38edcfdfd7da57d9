//! Deferral: a large batch is left undone, so that its connection can wait for its turn first.
//!
//! Most requests take microseconds, and long ones work in slices. A batch of tasks is one transaction: ten thousand tasks hold the
//! loop for tens of milliseconds, and sixteen clients with one batch each for sixteen times as long. How many tasks a batch has is
//! known before it is done, so the host can let other clients go first, also before a connection's first batch.
//!
//! Invariant: a deferred request has changed nothing and is not counted; handed to [`Instance::handle_frame`] it is done.
//! Absent: an order of connections that wait, which is the host's.
//!
//! [`Instance::handle_frame`]: crate::Instance::handle_frame

mod short_frame;

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
