//! The tasks that follow masters.

use tokio::task::JoinHandle;

/// The running appliers, in the order of the configuration.
#[derive(Default)]
pub(crate) struct Appliers(pub(super) Vec<JoinHandle<()>>);

impl Appliers {
    /// Follows no master any more.
    pub(crate) fn stop(&mut self) {
        self.0.drain(..).for_each(|task| task.abort());
    }
}
