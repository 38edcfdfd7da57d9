//! Random bytes of the system.

/// Random bytes.
pub(crate) fn fill_randomly(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the system has random bytes");
}
