//! What an input made a target do, as far as the target says: the driver keeps inputs that do something new.
//!
//! A stand-in for coverage that a stable compiler can give. Targets [`note`] facts that tell one path from another: the
//! kind of a request with the code of its answer, the error of a decoder.

use std::cell::RefCell;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

thread_local! {
    static NOTED: RefCell<HashSet<u64>> = RefCell::default();
}

/// The target did this.
pub fn note(feature: impl Hash) {
    let mut hasher = DefaultHasher::new();
    feature.hash(&mut hasher);
    NOTED.with_borrow_mut(|noted| noted.insert(hasher.finish()));
}

/// Everything that was noted on this thread since the last call.
pub(crate) fn take() -> HashSet<u64> {
    NOTED.take()
}
