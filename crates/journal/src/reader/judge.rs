//! Torn or damaged: what it means that no sound block stands where one would begin.
//!
//! A drive may write the sectors of a batch in any order. So after a power loss each sector of a batch that was not
//! synced is either written or as it was before: zeros, or the preallocated tail that the batch was to replace. In a
//! file whose blocks say how much was synced ([`crate::synced`]), an unsound place is therefore *torn* if both hold,
//! else *damage*:
//! 1. No block behind it, and no end marker, vouches for it: all of them were written before it was synced.
//! 2. The write that failed shows. A sector of the block, up to its end or that of the file, is as it was before, or the
//!    file ends inside the block. A header that is readable has a right length: the synced length covers it.
//!
//! So a wrong bit in synced data is damage in any case: wherever a later batch vouches for it by (1), in the last batch by
//! (2). The exception is a wrong bit in a block of the last batch that has a whole sector of zeros by nature.
//!
//! Other files, as a real Tarantool's, are expected to be written in order:
//! - A block that claims more bytes than the file has is torn, unless a sound block or an end marker follows inside it,
//!   or its checksum is that of the rest of the file: then its length is wrong.
//! - A complete block with a wrong checksum is torn only if nothing but zeros follows it *and* zeros show that a write did
//!   not reach the disk: they follow it, or fill a sector of it.
//! - Zeros up to the end of the file, from where a block or a part of its header ends, are torn.
//! - Everything else is damage.

use std::io;

use super::zeros::{is_zero, rest_is_zero};
use super::{Damage, DamageKind, End, FileReader, Found, Step, Torn, TornCause};
use crate::block::{
    self, FIXED_HEADER_BYTES, HeaderError, MAGIC_BYTES, MAGIC_END, MAGIC_PLAIN, MAGIC_ZSTD,
    PREALLOCATED_HEADER,
};
use crate::disk::{DiskFile, read_full_at};
use crate::search::{SoundPlaces, written_bytes};

/// The unit in which a disk writes or does not.
const SECTOR_BYTES: u64 = 512;
/// In a file without synced lengths: of the sector in which it ends, fewer zeros than this at its end prove nothing, as
/// rows may end in as many zeros.
const TELLING_ZEROS: u64 = 16;
/// The first bytes of a preallocated tail's header that no block's begins with.
const TELLING_RESERVE: usize = 5;

impl FileReader {
    /// For an end marker at `offset`.
    pub(super) fn judge_end(&mut self, offset: u64) -> io::Result<Found> {
        let after = offset + MAGIC_BYTES as u64;
        if rest_is_zero(&*self.file, after)? {
            return Ok(Found::Other(Step::End(End::Marker)));
        }
        if self.field.is_some() && self.is_old_behind(offset, after)? {
            // The file was to be cut off here, and the rest of its preallocated tail is still there.
            return self.torn(offset, TornCause::Header);
        }
        self.damage(offset, DamageKind::AfterEnd(self.file.size()?.saturating_sub(after)))
    }

    /// For the header of a preallocated tail at `offset`, in a file with synced lengths.
    pub(super) fn judge_reserve(&mut self, offset: u64) -> io::Result<Found> {
        if rest_is_zero(&*self.file, offset + FIXED_HEADER_BYTES as u64)? {
            return Ok(Found::Other(Step::End(End::Open)));
        }
        if self.is_vouched_for(offset)? {
            return self.damage(offset, DamageKind::Header(HeaderError::Padding));
        }
        self.torn(offset, TornCause::Sector)
    }

    /// For a header at `offset` that is incomplete or wrong.
    pub(super) fn judge_header(&mut self, offset: u64, error: HeaderError) -> io::Result<Found> {
        let written = written_bytes(&*self.file, offset)?;
        if written == 0 {
            return self.torn(offset, TornCause::Zeros);
        }
        if self.field.is_some() {
            if self.is_vouched_for(offset)? {
                return self.damage(offset, error.into());
            }
            if self.has_old_sector(offset, FIXED_HEADER_BYTES as u64)? || self.is_patched(offset)? {
                return self.torn(offset, TornCause::Sector);
            }
        }
        if written < FIXED_HEADER_BYTES as u64 {
            let mut magic = [0; MAGIC_BYTES];
            let known = read_full_at(&*self.file, &mut magic, offset)?.min(written as usize);
            if [MAGIC_PLAIN, MAGIC_ZSTD, MAGIC_END].iter().any(|whole| whole.starts_with(&magic[..known])) {
                return self.torn(offset, TornCause::Header);
            }
        }
        self.damage(offset, error.into())
    }

    /// For a block at `offset` that reaches over the end of the file.
    pub(super) fn judge_length(&mut self, offset: u64, checksum: u32) -> io::Result<Found> {
        let begin = offset + FIXED_HEADER_BYTES as u64;
        if self.field.is_none() && checksum != 0 && checksum_from(&*self.file, begin)? == checksum {
            return self.damage(offset, DamageKind::Length);
        }
        if self.is_vouched_for(offset)? {
            return self.damage(offset, DamageKind::Length);
        }
        self.torn(offset, TornCause::Body)
    }

    /// For a block of `length` bytes at `offset` that is wholly in the file but differs from the written one.
    pub(super) fn judge_body(&mut self, offset: u64, length: u64, kind: DamageKind) -> io::Result<Found> {
        let bytes = self.file.size()?.saturating_sub(offset);
        let only_zeros_follow = written_bytes(&*self.file, offset)? <= length;
        // Behind the last block of a batch stands a preallocated tail, or nothing where the file is written without one.
        let is_torn = only_zeros_follow && bytes > length
            || if self.field.is_some() {
                !self.is_vouched_for(offset)? && self.has_old_sector(offset, length)?
            } else {
                only_zeros_follow && has_zero_sector(&*self.file, offset, offset + length)?
            };
        if is_torn { self.torn(offset, TornCause::Sector) } else { self.damage(offset, kind) }
    }

    fn torn(&self, offset: u64, cause: TornCause) -> io::Result<Found> {
        let bytes = self.file.size()?.saturating_sub(offset);
        Ok(Found::Other(Step::End(End::Torn(Torn { offset, bytes, cause }))))
    }

    fn damage(&self, offset: u64, kind: DamageKind) -> io::Result<Found> {
        Ok(Found::Other(Step::Damage(Damage { offset, kind })))
    }

    /// Whether a sound block behind `offset`, or an end marker that ends the file, says that what stands at `offset` was
    /// synced when it was written.
    fn is_vouched_for(&mut self, offset: u64) -> io::Result<bool> {
        Ok(self.sound_places(offset + 1)?.vouch_for(offset))
    }

    /// The first offset from `from` on where a block with a right checksum begins, or the end marker that
    /// ends the file.
    pub(super) fn find_sound(&mut self, from: u64) -> io::Result<Option<u64>> {
        Ok(self.sound_places(from)?.first_from(from))
    }

    fn sound_places(&mut self, from: u64) -> io::Result<&SoundPlaces> {
        let size = self.file.size()?;
        let places = match self.sound.take() {
            Some(places) if places.covers(from, size) => places,
            _ => SoundPlaces::find(&*self.file, from, self.field)?,
        };
        Ok(self.sound.insert(places))
    }

    /// Whether some sector of the `length` bytes from `offset` on is as it was before a batch was written at `offset`.
    /// Each is compared up to its own end, not that of the block: a lost sector was lost up to there.
    fn has_old_sector(&self, offset: u64, length: u64) -> io::Result<bool> {
        let size = self.file.size()?;
        let (end, mut begin) = ((offset + length).min(size), offset);
        while begin < end {
            let next = (begin + 1).next_multiple_of(SECTOR_BYTES);
            let limit = next.min(size);
            if is_old(&*self.file, offset, begin, limit)? {
                return Ok(true);
            }
            begin = next;
        }
        Ok(false)
    }

    /// Whether everything from `from` on is as it was before something was written at `offset`.
    fn is_old_behind(&self, offset: u64, from: u64) -> io::Result<bool> {
        let (size, mut begin) = (self.file.size()?, from);
        while begin < size {
            let limit = (begin + 1).next_multiple_of(SECTOR_BYTES).min(size);
            if !is_old(&*self.file, offset, begin, limit)? {
                return Ok(false);
            }
            begin = limit;
        }
        Ok(true)
    }

    /// Whether the magic at `offset` is the preallocated tail's, up to the end of a sector, and what follows in the
    /// next one belongs to another: to that of a compressed block, or to the end marker.
    fn is_patched(&self, offset: u64) -> io::Result<bool> {
        let mut head = [0; FIXED_HEADER_BYTES];
        let filled = read_full_at(&*self.file, &mut head, offset)?;
        let kept = (offset.next_multiple_of(SECTOR_BYTES) - offset) as usize;
        // A file that ends before the next sector has nothing of another magic.
        let Some((old, written)) = head[..filled].split_at_checked(kept) else { return Ok(false) };
        if old.is_empty() || kept > MAGIC_BYTES || !PREALLOCATED_HEADER.starts_with(old) {
            return Ok(false);
        }
        if kept < MAGIC_BYTES && written.starts_with(&MAGIC_END[kept..]) {
            return rest_is_zero(&*self.file, offset + MAGIC_BYTES as u64);
        }
        head[..MAGIC_BYTES].copy_from_slice(&MAGIC_ZSTD);
        Ok(filled == head.len() && self.decode_header(&head, offset).is_ok())
    }
}

/// Whether the bytes between `begin` and `end`, inside one sector, are as they were before something was written at
/// `offset`: zeros, or a part of a preallocated tail that begins at `offset`.
fn is_old(file: &dyn DiskFile, offset: u64, begin: u64, end: u64) -> io::Result<bool> {
    let mut sector = [0; SECTOR_BYTES as usize];
    let sector = &mut sector[..(end - begin) as usize];
    let filled = read_full_at(file, sector, begin)?;
    if filled < sector.len() {
        return Ok(false);
    }
    if is_zero(sector) {
        return Ok(true);
    }
    let preallocated = usize::try_from(begin - offset).ok().and_then(|at| PREALLOCATED_HEADER.get(at..));
    let Some(preallocated) = preallocated else { return Ok(false) };
    let length = preallocated.len().min(sector.len());
    let is_telling = begin > offset || sector.len() >= TELLING_RESERVE;
    Ok(is_telling && sector[..length] == preallocated[..length] && is_zero(&sector[length..]))
}

/// The checksum of everything in the file from `from` on.
fn checksum_from(file: &dyn DiskFile, from: u64) -> io::Result<u32> {
    let mut chunk = vec![0; 1 << 16];
    let (mut begin, mut checksum) = (from, 0);
    loop {
        let filled = read_full_at(file, &mut chunk, begin)?;
        checksum = block::checksum_on(checksum, &chunk[..filled]);
        if filled < chunk.len() {
            return Ok(checksum);
        }
        begin += filled as u64;
    }
}

/// Whether some sector of the file between `begin` and `end` is zeros. The last may be cut short by `end`.
fn has_zero_sector(file: &dyn DiskFile, begin: u64, end: u64) -> io::Result<bool> {
    let mut sector = [0; SECTOR_BYTES as usize];
    let mut at = begin.next_multiple_of(SECTOR_BYTES);
    while at + TELLING_ZEROS <= end {
        let length = (end - at).min(SECTOR_BYTES) as usize;
        let filled = read_full_at(file, &mut sector[..length], at)?;
        if filled == length && is_zero(&sector[..length]) {
            return Ok(true);
        }
        at += SECTOR_BYTES;
    }
    Ok(false)
}
