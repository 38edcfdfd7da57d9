//! The synced length of a file when a block was written: a field in the header of each block.
//!
//! A drive may write the sectors of a batch in any order, so after a power loss a batch that was never synced can
//! have holes with sound blocks behind them. The same bytes could be damage in the middle of synced data. The field
//! tells the two apart: a block vouches for everything before the length that was synced when the block was written,
//! and for nothing behind it.
//!
//! The field stands where Tarantool's format has the checksum of the previous block, which no version writes or checks.
//! It holds the bytes between the synced length and the block, plus one, with a parity bit below them, all of it
//! exclusive-or a key. The key is a checksum of the instance, the file's vclock, the block's offset and the other
//! fields of its header. Therefore:
//! - a wrong bit anywhere in the header is found, though the block's own checksum covers its body only;
//! - a piece of another journal, or of this one in another place, such as in the payload of a task, vouches for nothing.
//!
//! Files whose blocks have the field say so in their text header ([`crate::meta::Meta::has_synced_length`]).

use lycosa_iproto::vclock::Vclock;
use uuid::Uuid;

use crate::block::{self, BlockHeader};

/// What a distance is written as that does not fit: such a block vouches for nothing.
const FAR: u32 = u32::MAX >> 1;

/// Writes and reads the field in the blocks of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncedLength {
    seed: u32,
}

impl SyncedLength {
    /// For the file of `instance` that begins at `vclock`.
    #[must_use]
    pub fn new(instance: Uuid, vclock: &Vclock) -> Self {
        let seed =
            block::checksum_on(block::checksum(instance.as_bytes()), &vclock.signature().to_be_bytes());
        Self { seed }
    }

    /// The header with the field: the block begins at `offset` of the file, of which `synced` bytes, at most as many,
    /// are durable.
    #[must_use]
    pub fn write(self, header: BlockHeader, offset: u64, synced: u64) -> BlockHeader {
        let distance = offset.saturating_sub(synced).saturating_add(1);
        let distance = u32::try_from(distance).unwrap_or(FAR).min(FAR);
        let field = (distance << 1 | distance.count_ones() & 1) ^ self.key(&header, offset);
        BlockHeader { previous: field, ..header }
    }

    /// How many bytes of the file were synced when the block with this header, at `offset`, was written. `None` if that
    /// is no header of a block that was written there.
    #[must_use]
    pub fn read(self, header: &BlockHeader, offset: u64) -> Option<u64> {
        let field = header.previous ^ self.key(header, offset);
        let distance = field >> 1;
        if distance == FAR {
            return Some(0);
        }
        let is_sound = distance != 0 && field.count_ones().is_multiple_of(2);
        is_sound.then(|| offset.checked_sub(u64::from(distance) - 1)).flatten()
    }

    fn key(self, header: &BlockHeader, offset: u64) -> u32 {
        let BlockHeader { compressed, length, checksum, previous: _ } = *header;
        let mut bytes = [0; 17];
        bytes[..8].copy_from_slice(&offset.to_be_bytes());
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        bytes[12..16].copy_from_slice(&checksum.to_be_bytes());
        bytes[16] = u8::from(compressed);
        block::checksum_on(self.seed, &bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::block::FIXED_HEADER_BYTES;

    fn of(signature: u64) -> SyncedLength {
        let mut vclock = Vclock::new();
        vclock.set(1, signature).unwrap();
        SyncedLength::new(Uuid::from_u128(7), &vclock)
    }

    #[test]
    fn a_distance_that_does_not_fit_vouches_for_nothing() {
        let header = BlockHeader { compressed: false, length: 10, checksum: 5, previous: 0 };
        let offset = 5_000_000_000;
        assert_eq!(of(1).read(&of(1).write(header, offset, 100), offset), Some(0));
        let nearly = offset - u64::from(FAR) + 2;
        assert_eq!(of(1).read(&of(1).write(header, offset, nearly), offset), Some(nearly));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_and_a_wrong_bit_is_not(
            (compressed, length, checksum) in (any::<bool>(), 1..1_u32 << 30, any::<u32>()),
            offset in 100_u64..1 << 29,
            back in 0_u64..1 << 20,
            bit in 0..8 * FIXED_HEADER_BYTES,
        ) {
            let synced = offset.saturating_sub(back);
            let header = BlockHeader { compressed, length, checksum, previous: 0 };
            let header = of(3).write(header, offset, synced);
            prop_assert_eq!(of(3).read(&header, offset), Some(synced));
            let mut bytes = header.encode();
            prop_assert_eq!(BlockHeader::decode(&bytes), Ok(header));
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Ok(wrong) = BlockHeader::decode(&bytes) {
                // The two lengths that a block may name in its place.
                let read = of(3).read(&wrong, offset);
                prop_assert!(read != Some(synced) && read != Some(offset), "bit {bit}");
            }
        }
    }
}
