//! Search for sound blocks in a file, with any bytes between them.
//!
//! Any four bytes may look like a block's magic, and what follows them like a header that claims a long body. To read each
//! claimed body would take the square of the file's length where many of them overlap. But this checksum is linear: that of
//! a range follows from those of everything up to its two ends. So one pass over the file, which keeps the checksum of
//! everything so far, judges all claims, each when its end is reached.
//!
//! Cost: the file is read once, and each claim takes some 40 bytes and a microsecond. A claim takes 19 bytes of the file,
//! so both are bounded by its length.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;

use crate::block::{self, BlockHeader, FIXED_HEADER_BYTES, MAGIC_BYTES, MAGIC_END, MAGIC_PLAIN, MAGIC_ZSTD};
use crate::disk::{DiskFile, read_full_at};
use crate::synced::SyncedLength;

/// Bytes that are looked at together.
const CHUNK_BYTES: usize = 1 << 16;
/// The polynomial of CRC-32C, its bits in the order in which the register has them.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// The polynomial 1, in the same order.
const ONE: u32 = 1 << 31;

/// The sound blocks and the end marker of a file.
#[derive(Debug)]
pub(crate) struct SoundPlaces {
    /// The search began here.
    from: u64,
    /// Bytes that the file had.
    size: u64,
    /// Where blocks with right checksums begin, and the end marker that ends the file; ascending. With each, how many bytes
    /// of the file it says were synced before it was written.
    places: Vec<(u64, u64)>,
    /// The most that any of them says was synced.
    synced: u64,
}

/// A header that claims a body, between the beginning of that and its end.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    /// Where the pass has to come for the next step: the beginning, then the end of the body.
    due: u64,
    /// Where the header begins.
    offset: u64,
    length: u32,
    /// How many bytes of the file were synced when the header was written.
    synced: u64,
    /// Of the body, as claimed.
    checksum: u32,
    /// Of everything before the body, once its beginning was passed.
    before: Option<u32>,
}

impl SoundPlaces {
    /// Looks through `file` from the offset `from` on. In a file whose blocks have a `field` for the synced length, only
    /// such blocks count; else a block says that everything before it was synced.
    ///
    /// # Errors
    /// When the disk cannot be read.
    pub(crate) fn find(file: &dyn DiskFile, from: u64, field: Option<SyncedLength>) -> io::Result<Self> {
        let size = file.size()?;
        let written = from + written_bytes(file, from)?;
        let powers = Powers::new();
        let mut places = Vec::new();
        let mut claims: BinaryHeap<Reverse<Claim>> = BinaryHeap::new();
        let mut bytes = vec![0; CHUNK_BYTES + FIXED_HEADER_BYTES];
        let (mut begin, mut checksum) = (from, 0);
        while begin < written {
            let filled = read_full_at(file, &mut bytes, begin)?;
            let chunk = &bytes[..filled.min(CHUNK_BYTES)];
            for (at, _) in chunk.iter().enumerate().filter(|&(_, &byte)| byte == MAGIC_END[0]) {
                let (offset, rest) = (begin + at as u64, &bytes[at..filled]);
                if rest.starts_with(&MAGIC_END) && offset + MAGIC_BYTES as u64 == written {
                    places.push((offset, offset));
                }
                claims.extend(claim(rest, offset, size, field).map(Reverse));
            }
            let mut passed = 0;
            let end = begin + chunk.len() as u64;
            while claims.peek().is_some_and(|Reverse(claim)| claim.due <= end)
                && let Some(Reverse(mut claim)) = claims.pop()
            {
                let at = usize::try_from(claim.due - begin).unwrap_or(passed);
                checksum = block::checksum_on(checksum, &chunk[passed..at]);
                passed = at;
                match claim.before {
                    None => {
                        claim.before = Some(checksum);
                        claim.due += u64::from(claim.length);
                        claims.push(Reverse(claim));
                    }
                    Some(before) => {
                        let body = checksum ^ powers.shifted(before, claim.length);
                        if body == claim.checksum && (body != 0 || !is_zero_between(file, &claim)?) {
                            places.push((claim.offset, claim.synced));
                        }
                    }
                }
            }
            checksum = block::checksum_on(checksum, &chunk[passed..]);
            begin = end;
            if chunk.is_empty() {
                break;
            }
        }
        places.sort_unstable();
        let synced = places.iter().map(|&(_, synced)| synced).max().unwrap_or(0);
        Ok(Self { from, size, places, synced })
    }

    /// Whether this still says all about a file of `size` bytes from the offset `from` on.
    pub(crate) fn covers(&self, from: u64, size: u64) -> bool {
        self.from <= from && self.size == size
    }

    /// The first place at or after an offset.
    pub(crate) fn first_from(&self, offset: u64) -> Option<u64> {
        self.places.get(self.places.partition_point(|&(place, _)| place < offset)).map(|&(place, _)| place)
    }

    /// Whether a place behind `offset` says that the bytes there were synced. No place says so of bytes behind itself.
    pub(crate) fn vouch_for(&self, offset: u64) -> bool {
        self.synced > offset
    }
}

/// The claim of the header at the beginning of `bytes`, if it is one and its body ends in the file.
fn claim(bytes: &[u8], offset: u64, size: u64, field: Option<SyncedLength>) -> Option<Claim> {
    if !bytes.starts_with(&MAGIC_PLAIN) && !bytes.starts_with(&MAGIC_ZSTD) {
        return None;
    }
    let header = BlockHeader::decode(bytes.first_chunk()?).ok()?;
    let synced = match field {
        Some(field) => field.read(&header, offset)?,
        None => (header.previous == 0).then_some(offset)?,
    };
    let BlockHeader { length, checksum, .. } = header;
    let due = offset + FIXED_HEADER_BYTES as u64;
    let is_inside = due + u64::from(length) <= size;
    is_inside.then_some(Claim { due, offset, length, synced, checksum, before: None })
}

/// Whether the claimed body is zeros. Only asked where the checksum is that of zeros. The beginning of another claim is not
/// zero, so that no byte is read here for two claims.
fn is_zero_between(file: &dyn DiskFile, claim: &Claim) -> io::Result<bool> {
    let mut chunk = [0; 4096];
    let mut begin = claim.offset + FIXED_HEADER_BYTES as u64;
    let end = begin + u64::from(claim.length);
    while begin < end {
        let wanted = (end - begin).min(chunk.len() as u64) as usize;
        let filled = read_full_at(file, &mut chunk[..wanted], begin)?;
        if filled == 0 || chunk[..filled].iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        begin += filled as u64;
    }
    Ok(true)
}

/// Bytes from `from` on up to the last one that is not zero.
pub(crate) fn written_bytes(file: &dyn DiskFile, from: u64) -> io::Result<u64> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let (mut begin, mut written) = (from, 0);
    loop {
        let filled = read_full_at(file, &mut chunk, begin)?;
        if let Some(last) = chunk[..filled].iter().rposition(|&byte| byte != 0) {
            written = begin - from + last as u64 + 1;
        }
        if filled < chunk.len() {
            return Ok(written);
        }
        begin += filled as u64;
    }
}

/// The polynomials x^(8·2^k): what k doublings of one byte of zeros do to a checksum.
struct Powers([u32; 32]);

impl Powers {
    fn new() -> Self {
        let mut powers = [ONE >> 8; 32];
        for place in 1..powers.len() {
            powers[place] = product(powers[place - 1], powers[place - 1]);
        }
        Self(powers)
    }

    /// What a checksum becomes when `length` bytes of zeros follow.
    fn shifted(&self, checksum: u32, length: u32) -> u32 {
        let set = (0..self.0.len()).filter(|&place| length >> place & 1 == 1);
        set.fold(checksum, |checksum, place| product(checksum, self.0[place]))
    }
}

/// The product of two polynomials modulo that of the checksum.
const fn product(a: u32, mut b: u32) -> u32 {
    let (mut product, mut bit) = (0, ONE);
    while bit != 0 {
        if a & bit != 0 {
            product ^= b;
        }
        b = (b >> 1) ^ if b & 1 == 1 { POLYNOMIAL } else { 0 };
        bit >>= 1;
    }
    product
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::disk::Disk;
    use crate::memory::MemoryDisk;

    fn file(bytes: &[u8]) -> Box<dyn DiskFile> {
        MemoryDisk::with_files([("f".to_owned(), bytes.to_vec())]).open("f").unwrap()
    }

    fn offsets(places: &SoundPlaces) -> Vec<u64> {
        places.places.iter().map(|&(offset, _)| offset).collect()
    }

    fn header(length: usize, checksum: u32) -> [u8; FIXED_HEADER_BYTES] {
        BlockHeader { compressed: false, length: u32::try_from(length).unwrap(), checksum, previous: 0 }
            .encode()
    }

    /// The search's expected result, by checking every claim alone.
    fn expected(bytes: &[u8], from: usize) -> Vec<u64> {
        let is_sound = |&at: &usize| {
            let rest = &bytes[at..];
            if rest.starts_with(&MAGIC_END) {
                return rest[MAGIC_BYTES..].iter().all(|&byte| byte == 0);
            }
            let Some(claim) = claim(rest, at as u64, bytes.len() as u64, None) else { return false };
            let body = &rest[FIXED_HEADER_BYTES..][..claim.length as usize];
            block::checksum(body) == claim.checksum && body.iter().any(|&byte| byte != 0)
        };
        (from..bytes.len()).filter(is_sound).map(|at| at as u64).collect()
    }

    #[test]
    fn a_hostile_file_takes_one_pass() {
        // Every header claims all the rest; only the last one, and one in the middle, tell the truth.
        const HEADERS: usize = 20_000;
        let mut bytes = vec![0; HEADERS * FIXED_HEADER_BYTES];
        bytes.extend_from_slice(b"body");
        let total = bytes.len();
        for number in (0..HEADERS).rev() {
            let body = (number + 1) * FIXED_HEADER_BYTES;
            let is_true = number == HEADERS - 1 || number == HEADERS / 2;
            let checksum = if is_true { block::checksum(&bytes[body..]) } else { 0x0102_0304 };
            bytes[body - FIXED_HEADER_BYTES..body].copy_from_slice(&header(total - body, checksum));
        }
        let disk = MemoryDisk::with_files([("f".to_owned(), bytes)]);
        let places = SoundPlaces::find(&*disk.open("f").unwrap(), 0, None).unwrap();
        let place = |number: usize| (number * FIXED_HEADER_BYTES) as u64;
        assert_eq!(offsets(&places), [place(HEADERS / 2), place(HEADERS - 1)]);
        assert_eq!(places.first_from(place(HEADERS / 2) + 1), Some(place(HEADERS - 1)));
        assert_eq!(places.first_from(total as u64), None);
    }

    #[test]
    fn zeros_are_no_body_and_an_end_ends_the_file() {
        let zeros = [&header(300, 0)[..], &[0; 300], b"x"].concat();
        assert!(offsets(&SoundPlaces::find(&*file(&zeros), 0, None).unwrap()).is_empty());
        let ends = [&MAGIC_END[..], &[0; 9], &MAGIC_END[..], &[0; 70_000]].concat();
        assert_eq!(offsets(&SoundPlaces::find(&*file(&ends), 0, None).unwrap()), [13]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn it_finds_what_looking_at_every_claim_finds(
            pieces in proptest::collection::vec((0_usize..4, 1_usize..3000, any::<u8>()), 0..40),
            from in any::<prop::sample::Index>(),
        ) {
            let mut bytes = vec![7_u8; 3];
            for (kind, length, fill) in pieces {
                match kind {
                    0 => {
                        let body = vec![fill; length];
                        bytes.extend_from_slice(&header(length, block::checksum(&body)));
                        bytes.extend_from_slice(&body);
                    }
                    // A claim over any bytes.
                    1 => bytes.extend_from_slice(&header(length * 40, u32::from(fill))),
                    2 => bytes.extend_from_slice(&MAGIC_END),
                    _ => bytes.extend(std::iter::repeat_n(fill & 1, length * 20)),
                }
            }
            let from = from.index(bytes.len());
            let places = SoundPlaces::find(&*file(&bytes), from as u64, None).unwrap();
            prop_assert_eq!(offsets(&places), expected(&bytes, from));
        }
    }
}
