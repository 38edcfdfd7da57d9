//! Memory of the bodies of all requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that the bodies of all requests may take.
#[derive(Debug, Clone)]
pub(crate) struct BodyMemory {
    left: Arc<AtomicUsize>,
}

impl BodyMemory {
    pub(crate) fn new(bytes: usize) -> Self {
        Self { left: Arc::new(AtomicUsize::new(bytes)) }
    }

    /// Takes bytes for a body; false if too few are left.
    pub(super) fn take(&self, bytes: usize) -> bool {
        let taken =
            self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
        taken.is_ok()
    }

    /// The request of a body with these bytes has ended.
    pub(super) fn give_back(&self, bytes: usize) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
    }
}
