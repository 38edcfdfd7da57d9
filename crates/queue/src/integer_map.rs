//! Hash maps with small integer keys that the server assigns: ids of spaces, numbers of connections.
//!
//! Clients do not choose these numbers, so a hash of one multiplication does.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map whose key is hashed as one integer.
pub(crate) type IntegerMap<K, V> = HashMap<K, V, BuildHasherDefault<IntegerHasher>>;

/// Fibonacci hashing: the high bits of a product with 2^64 divided by the golden ratio.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct IntegerHasher(u64);

impl Hasher for IntegerHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64((self.0 << 8) | u64::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let product = (self.0 ^ number).wrapping_mul(GOLDEN);
        self.0 = product ^ (product >> 32);
    }
}
