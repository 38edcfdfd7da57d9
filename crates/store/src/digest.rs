//! The digest of all data: equal for stores that hold the same, however they came to hold it.
//!
//! The digest covers what a snapshot shows to a replica: every tuple of every space that is neither temporary nor local,
//! definitions included because they are tuples too, and the last values of sequences. Equal tuples are equal bytes.

use crate::schema::row::Row;
use crate::{SpaceId, Store, system};

/// An odd constant with its bits well mixed (the 128-bit multiplier of a PCG generator).
const MULTIPLIER: u128 = 0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645;

/// Mixes bytes and a number into 128 bits.
fn hash(seed: u128, bytes: &[u8]) -> u128 {
    let mut state = seed.wrapping_mul(MULTIPLIER) ^ (bytes.len() as u128) << 64;
    for chunk in bytes.chunks(16) {
        let mut block = [0; 16];
        block[..chunk.len()].copy_from_slice(chunk);
        state = (state ^ u128::from_le_bytes(block)).wrapping_mul(MULTIPLIER);
        state ^= state >> 59;
    }
    state = state.wrapping_mul(MULTIPLIER);
    state ^ state >> 64
}

impl Store {
    /// The digest of all data that replicas have in common. It does not depend on the order in which tuples came, nor
    /// on the order of a HASH index. Costs a walk over everything.
    #[must_use]
    pub fn digest(&self) -> u128 {
        let mut digest: u128 = 0;
        self.for_each_snapshot_row(&mut |space, tuple, local| {
            if !local && !self.is_about_local_data(space, tuple) {
                digest = digest.wrapping_add(hash(u128::from(space) + 1, tuple));
            }
        });
        digest
    }

    /// Whether the row is one that stays on this instance though its space is replicated.
    fn is_about_local_data(&self, space: SpaceId, tuple: &[u8]) -> bool {
        space == system::TRUNCATE
            && Row::new(tuple)
                .id(0)
                .ok()
                .and_then(|id| self.catalog.get(id))
                .is_some_and(|space| space.def.local || space.def.temporary)
    }
}

#[cfg(test)]
mod tests {
    use super::hash;

    #[test]
    fn every_byte_counts() {
        let tuple: Vec<u8> = (0..40).collect();
        let whole = hash(1, &tuple);
        for place in 0..tuple.len() {
            let mut other = tuple.clone();
            other[place] ^= 1;
            assert_ne!(whole, hash(1, &other), "byte {place}");
        }
        assert_ne!(whole, hash(2, &tuple));
        assert_ne!(hash(1, &[0; 16]), hash(1, &[0; 17]));
        assert_ne!(hash(1, &[]), hash(1, &[0]));
    }
}
