//! The digest of all data: equal for stores that hold the same, however they came to hold it.
//!
//! The digest covers what a snapshot shows to a replica: every tuple of every space that is neither temporary nor
//! local, definitions included because they are tuples too, and the last values of these spaces' sequences and of
//! sequences without a space. Equal tuples are equal bytes.

use std::collections::HashSet;

use crate::schema::row::Row;
use crate::{Space, SpaceId, Store, system};

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
        self.digest_with(&mut std::iter::empty(), &|_, _| false)
    }

    /// The digest of the data with further tuples, each with its space, which some part of the program keeps beside the store, and
    /// without tuples that `is_own` names: no other instance has them.
    #[must_use]
    pub fn digest_with(
        &self,
        beside: &mut dyn Iterator<Item = (SpaceId, Vec<u8>)>,
        is_own: &dyn Fn(SpaceId, &[u8]) -> bool,
    ) -> u128 {
        let mut digest: u128 = 0;
        for (space, tuple) in beside {
            digest = digest.wrapping_add(hash(u128::from(space) + 1, &tuple));
        }
        let local = self.local_sequences();
        self.for_each_snapshot_row(&mut |space, tuple, is_local| {
            if !is_local && !is_own(space, tuple) && !self.is_about_local_data(space, tuple, &local) {
                digest = digest.wrapping_add(hash(u128::from(space) + 1, tuple));
            }
        });
        digest
    }

    /// Sequences that number rows which stay on this instance.
    fn local_sequences(&self) -> HashSet<u32> {
        let local = self.spaces().filter(|space| space.def.local || space.def.temporary);
        local.filter_map(Space::sequence).collect()
    }

    /// Whether the row is one that stays on this instance though its space is replicated.
    fn is_about_local_data(&self, space: SpaceId, tuple: &[u8], sequences: &HashSet<u32>) -> bool {
        let id = || Row::new(tuple).id(0).ok();
        match space {
            system::TRUNCATE => id()
                .and_then(|id| self.catalog.get(id))
                .is_some_and(|space| space.def.local || space.def.temporary),
            system::SEQUENCE_DATA => id().is_some_and(|id| sequences.contains(&id)),
            _ => false,
        }
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
