//! Reading one journal file block by block, and saying exactly how it ends or breaks.
//!
//! A [`FileReader`] yields blocks whose checksum is right, and otherwise one of three ends or a damage:
//!
//! | [`End`] / [`Damage`] | the file | meaning |
//! |---|---|---|
//! | [`End::Marker`] | ends in the end marker | it was closed in order |
//! | [`End::Open`] | ends right after a block, or with a reserve | it is still written, or its writer was killed |
//! | [`End::Torn`] | ends inside a block, or in zeros | its writer's last write did not complete |
//! | [`Damage`] | has a complete block that is wrong, or bytes after its end | the disk or a person changed it |
//!
//! The line between torn and damaged, in one place (`FileReader::judge`):
//! - A block that claims more bytes than the file has is torn, unless a sound block, an end marker or a reserve
//!   follows inside it, or its checksum is that of the rest of the file: then its length is what is wrong.
//! - A complete block with a wrong checksum is torn only if nothing but zeros or a reserve follows it *and* zeros
//!   show that a write did not reach the disk: they follow it where a reserve was to be, or fill a sector of it.
//! - Zeros up to the end of the file, from where a block or a part of its header ends, are torn.
//! - Everything else is damage.
//!
//! A reader can be asked again after [`End::Open`] and [`End::Torn`]: it then sees what has been written
//! since.
//!
//! Absent: any decision. Whether a torn tail may be cut depends on the files around it (see
//! [`crate::recovery`]).

use std::io;

use crate::block::{
    self, BlockHeader, Decoder, FIXED_HEADER_BYTES, HeaderError, MAGIC_BYTES, MAGIC_END, MAGIC_PLAIN,
    MAGIC_ZSTD, RESERVE_HEADER, UnpackError,
};
use crate::disk::{DiskFile, read_full_at};
use crate::meta::{FileKind, MAX_META_BYTES, Meta, MetaError};
use crate::search::{SoundPlaces, written_bytes};

/// Bytes asked of the disk at once.
const READ_AHEAD_BYTES: usize = 1 << 20;
/// The unit in which a disk writes or does not: a write that was lost in part leaves whole ones of zeros.
const SECTOR_BYTES: u64 = 512;
/// Of the sector in which a file ends, fewer zeros than this at its end prove nothing: rows may end in that
/// many.
const TELLING_ZEROS: u64 = 16;
/// Bytes of a reserve's header up to the last that is not zero.
const RESERVE_WRITTEN: u64 = 12;

/// What a file's next bytes are.
#[derive(Debug)]
pub enum Step<'a> {
    /// A sound block; the reader stands after it.
    Block(Block<'a>),
    /// No more blocks; the reader stands where it stood.
    End(End),
    /// A block that is wrong; the reader stands where it stood, until [`FileReader::skip_damage`].
    Damage(Damage),
}

/// A block whose checksum is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block<'a> {
    /// Where it begins in the file.
    pub offset: u64,
    /// Bytes it takes in the file, its header included.
    pub stored_bytes: u64,
    /// Whether it is stored as a zstd frame.
    pub compressed: bool,
    /// Its content: encoded rows back to back.
    pub rows: &'a [u8],
}

/// How a file ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// With the end marker.
    Marker,
    /// Without one, right after the header or a block, where a [reserve](RESERVE_HEADER) may be.
    Open,
    /// Inside something.
    Torn(Torn),
}

/// A tail that was never written completely.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{cause}: {bytes} byte(s) from offset {offset} to the end of the file")]
pub struct Torn {
    /// Where the last sound block ends.
    pub offset: u64,
    /// Bytes after it.
    pub bytes: u64,
    /// How it shows.
    pub cause: TornCause,
}

/// How it shows that a tail was never written completely.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TornCause {
    /// The file ends inside the text header, or that is followed by zeros only.
    #[error("the file ends inside its text header")]
    Meta,
    /// The file ends inside a magic or a fixed header, or that is followed by zeros only.
    #[error("the file ends inside a block's header or its end marker")]
    Header,
    /// The file ends inside a body.
    #[error("the file ends inside a block")]
    Body,
    /// Only zeros where a block would begin.
    #[error("the file ends in zeros")]
    Zeros,
    /// A block that is complete in length, but a part of it was never written and is zeros.
    #[error("a part of the last block is zeros")]
    Sector,
    /// The last block ends inside a transaction.
    #[error("the file ends inside a transaction")]
    Transaction,
}

/// Something in a file that no interrupted write explains.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} (at offset {offset})")]
pub struct Damage {
    /// Where the block begins.
    pub offset: u64,
    /// What is wrong with it.
    pub kind: DamageKind,
}

/// What is wrong with a block.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DamageKind {
    /// No magic, an unreadable header, or an absurd length.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The length reaches over the end of the file, though sound blocks follow.
    #[error("the block claims to be longer than the rest of the file, but the file is sound without that")]
    Length,
    /// The body is not the one that was written.
    #[error("the block's checksum is {computed:08x}, its header says {stored:08x}")]
    Checksum {
        /// What the header says.
        stored: u32,
        /// What the body has.
        computed: u32,
    },
    /// The body is the one that was written, yet does not decompress.
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    /// The body is the one that was written, yet its rows are not rows.
    #[error("the row at byte {at} of the block is not readable: {reason}")]
    Row {
        /// Where the row begins in the unpacked block.
        at: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// Something other than zeros after the end marker.
    #[error("{0} byte(s) follow the end marker")]
    AfterEnd(u64),
}

/// Why a file cannot be read at all.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The disk.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The text header was never written completely.
    #[error(transparent)]
    Torn(Torn),
    /// The text header is not one.
    #[error(transparent)]
    Meta(#[from] MetaError),
}

/// An open journal file.
pub struct FileReader {
    file: Box<dyn DiskFile>,
    meta: Meta,
    unknown_keys: Vec<String>,
    first_block: u64,
    /// Bytes that the file had when it was last asked; it only grows.
    known_size: u64,
    window: Window,
    decoder: Decoder,
    /// Where sound data was found when it was last looked for.
    sound: Option<SoundPlaces>,
}

impl std::fmt::Debug for FileReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileReader")
            .field("meta", &self.meta)
            .field("offset", &self.offset())
            .finish_non_exhaustive()
    }
}

impl FileReader {
    /// Reads the text header of `file`, which must be of `kind`.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(file: Box<dyn DiskFile>, kind: FileKind) -> Result<Self, OpenError> {
        let mut head = vec![0; MAX_META_BYTES];
        let filled = read_full_at(&*file, &mut head, 0)?;
        let head = &head[..filled];
        let decoded = match Meta::decode(head, kind) {
            Ok(decoded) => decoded,
            Err(error) => {
                // The header of a file that was created but not written out: a part of it, then zeros or
                // nothing.
                let written = head.len() - head.iter().rev().take_while(|&&byte| byte == 0).count();
                let unfinished = Meta::decode(&head[..written], kind) == Err(MetaError::Unfinished);
                let is_text = written < MAX_META_BYTES && !head[..written].contains(&0);
                if unfinished && is_text && rest_is_zero(&*file, written as u64)? {
                    let bytes = file.size()?;
                    return Err(OpenError::Torn(Torn { offset: 0, bytes, cause: TornCause::Meta }));
                }
                return Err(error.into());
            }
        };
        let first_block = decoded.length as u64;
        Ok(Self {
            file,
            meta: decoded.meta,
            unknown_keys: decoded.unknown_keys,
            first_block,
            known_size: 0,
            window: Window::at(first_block),
            decoder: Decoder::default(),
            sound: None,
        })
    }

    /// The text header.
    #[must_use]
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Keys of the text header that are not known.
    #[must_use]
    pub fn unknown_keys(&self) -> &[String] {
        &self.unknown_keys
    }

    /// Where the first block begins: the length of the text header.
    #[must_use]
    pub fn first_block(&self) -> u64 {
        self.first_block
    }

    /// Where the next block begins.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.window.offset
    }

    /// Bytes in the file now.
    ///
    /// # Errors
    /// When the disk does not say.
    pub fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    /// The next block, or what is there in its place.
    ///
    /// # Errors
    /// When the disk cannot be read. Whatever it reads leads to a [`Step`].
    pub fn next_block(&mut self) -> io::Result<Step<'_>> {
        let offset = self.offset();
        let (header, length) = match self.read_block()? {
            Found::Block(header, length) => (header, length),
            Found::Other(step) => return Ok(step),
        };
        if header.compressed
            && let Err(error) = self.decoder.unpack(&self.window.front(length)[FIXED_HEADER_BYTES..])
        {
            return Ok(Step::Damage(Damage { offset, kind: error.into() }));
        }
        let stored = &self.window.consume(length)[FIXED_HEADER_BYTES..];
        let rows = if header.compressed { self.decoder.rows() } else { stored };
        Ok(Step::Block(Block { offset, stored_bytes: length as u64, compressed: header.compressed, rows }))
    }

    /// Like [`next_block`](Self::next_block), but compressed bodies are not unpacked: the [`Block::rows`] are
    /// the body as stored. Checks a file as fast as the disk gives it.
    ///
    /// # Errors
    /// When the disk cannot be read.
    pub fn next_stored(&mut self) -> io::Result<Step<'_>> {
        let offset = self.offset();
        match self.read_block()? {
            Found::Block(header, length) => {
                let rows = &self.window.consume(length)[FIXED_HEADER_BYTES..];
                Ok(Step::Block(Block {
                    offset,
                    stored_bytes: length as u64,
                    compressed: header.compressed,
                    rows,
                }))
            }
            Found::Other(step) => Ok(step),
        }
    }

    /// Goes on to the next sound block, or to the end marker, after the place where the reader stands; `None`
    /// and the end of the file if there is neither. Returns its offset.
    ///
    /// # Errors
    /// When the disk cannot be read.
    pub fn skip_damage(&mut self) -> io::Result<Option<u64>> {
        let next = self.find_sound(self.offset() + 1)?;
        let to = match next {
            Some(offset) => offset,
            None => self.file.size()?,
        };
        self.window = Window::at(to);
        Ok(next)
    }

    /// Goes back to `offset`, which must be one where a block begins.
    pub fn seek(&mut self, offset: u64) {
        self.window = Window::at(offset);
    }

    fn read_block(&mut self) -> io::Result<Found> {
        let offset = self.offset();
        if self.window.fill(&*self.file, FIXED_HEADER_BYTES)?.starts_with(&RESERVE_HEADER) {
            // Blocks may have taken its place since it was read ahead.
            self.window = Window::at(offset);
        }
        let found = self.read_block_at(offset)?;
        if let Found::Other(Step::End(_)) = found {
            self.window = Window::at(offset);
        }
        Ok(found)
    }

    fn read_block_at(&mut self, offset: u64) -> io::Result<Found> {
        let head = self.window.fill(&*self.file, FIXED_HEADER_BYTES)?;
        if head.is_empty() {
            return Ok(Found::Other(Step::End(End::Open)));
        }
        if head.starts_with(&MAGIC_END) {
            let after = offset + MAGIC_BYTES as u64;
            if rest_is_zero(&*self.file, after)? {
                return Ok(Found::Other(Step::End(End::Marker)));
            }
            let kind = DamageKind::AfterEnd(self.file.size()?.saturating_sub(after));
            return Ok(Found::Other(Step::Damage(Damage { offset, kind })));
        }
        let Some(head) = head.first_chunk::<FIXED_HEADER_BYTES>() else {
            let mut magic = [0; MAGIC_BYTES];
            let known = head.len().min(MAGIC_BYTES);
            magic[..known].copy_from_slice(&head[..known]);
            return self.judge(offset, HeaderError::Magic(magic).into());
        };
        if *head == RESERVE_HEADER && is_reserve(&*self.file, offset)? {
            return Ok(Found::Other(Step::End(End::Open)));
        }
        let header = match BlockHeader::decode(head) {
            Ok(header) => header,
            Err(error) => return self.judge(offset, error.into()),
        };
        let length = FIXED_HEADER_BYTES + header.length as usize;
        // The file's size is asked before a length out of the file decides how much memory to take.
        let end = offset + length as u64;
        if end > self.known_size {
            self.known_size = self.file.size()?;
            if end > self.known_size {
                return self.judge_length(offset, header.checksum);
            }
        }
        let block = self.window.fill(&*self.file, length)?;
        if block.len() < length {
            return self.judge_length(offset, header.checksum);
        }
        let computed = block::checksum(&block[FIXED_HEADER_BYTES..length]);
        // Zeros have the checksum 0, and rows are never zeros: a header that was half written does not vouch
        // for them.
        if computed != header.checksum || (computed == 0 && is_zero(&block[FIXED_HEADER_BYTES..length])) {
            return self.judge_body(
                offset,
                length as u64,
                DamageKind::Checksum { stored: header.checksum, computed },
            );
        }
        Ok(Found::Block(header, length))
    }

    /// Torn or damaged, for a block at `offset` that reaches over the end of the file.
    fn judge_length(&mut self, offset: u64, checksum: u32) -> io::Result<Found> {
        let begin = offset + FIXED_HEADER_BYTES as u64;
        if self.has_reserve_behind(begin)? || checksum != 0 && checksum_from(&*self.file, begin)? == checksum
        {
            return Ok(Found::Other(Step::Damage(Damage { offset, kind: DamageKind::Length })));
        }
        self.judge(offset, DamageKind::Length)
    }

    /// Torn or damaged, for a block at `offset` that has no complete header or reaches over the end of the
    /// file.
    fn judge(&mut self, offset: u64, kind: DamageKind) -> io::Result<Found> {
        let bytes = self.file.size()?.saturating_sub(offset);
        let written = written_bytes(&*self.file, offset)?;
        let torn = |cause| Ok(Found::Other(Step::End(End::Torn(Torn { offset, bytes, cause }))));
        if written == 0 {
            return torn(TornCause::Zeros);
        }
        if kind == DamageKind::Length {
            if self.find_sound(offset + 1)?.is_none() {
                return torn(TornCause::Body);
            }
        } else if written < FIXED_HEADER_BYTES as u64 {
            let mut magic = [0; MAGIC_BYTES];
            let known = read_full_at(&*self.file, &mut magic, offset)?.min(written as usize);
            if [MAGIC_PLAIN, MAGIC_ZSTD, MAGIC_END].iter().any(|whole| whole.starts_with(&magic[..known])) {
                return torn(TornCause::Header);
            }
        }
        Ok(Found::Other(Step::Damage(Damage { offset, kind })))
    }

    /// Torn or damaged, for a block of `length` bytes at `offset` that is wholly in the file but not what was
    /// written.
    fn judge_body(&self, offset: u64, length: u64, kind: DamageKind) -> io::Result<Found> {
        let bytes = self.file.size()?.saturating_sub(offset);
        let written = written_bytes(&*self.file, offset)?;
        let has_reserve = bytes > length && is_reserve(&*self.file, offset + length)?;
        if !has_reserve && self.has_reserve_behind(offset + FIXED_HEADER_BYTES as u64)? {
            return Ok(Found::Other(Step::Damage(Damage { offset, kind: DamageKind::Length })));
        }
        let zeros_follow = bytes > length && written <= length;
        let lost_sector = || has_zero_sector(&*self.file, offset, offset + length);
        if zeros_follow || (written <= length || has_reserve) && lost_sector()? {
            let torn = Torn { offset, bytes, cause: TornCause::Sector };
            return Ok(Found::Other(Step::End(End::Torn(torn))));
        }
        Ok(Found::Other(Step::Damage(Damage { offset, kind })))
    }

    /// Whether the file ends in a reserve that begins at `from` or behind it. No block has one inside.
    fn has_reserve_behind(&self, from: u64) -> io::Result<bool> {
        let written = from + written_bytes(&*self.file, from)?;
        match written.checked_sub(RESERVE_WRITTEN) {
            Some(begin) if begin >= from => is_reserve(&*self.file, begin),
            _ => Ok(false),
        }
    }

    /// The first offset from `from` on where a block with a right checksum begins, or the end marker that
    /// ends the file.
    fn find_sound(&mut self, from: u64) -> io::Result<Option<u64>> {
        let size = self.file.size()?;
        let places = match self.sound.take() {
            Some(places) if places.covers(from, size) => places,
            _ => SoundPlaces::find(&*self.file, from)?,
        };
        Ok(self.sound.insert(places).first_from(from))
    }
}

enum Found {
    Block(BlockHeader, usize),
    Other(Step<'static>),
}

/// The part of the file that is in memory, from the next block on.
struct Window {
    /// Where in the file the next block begins.
    offset: u64,
    bytes: Vec<u8>,
    begin: usize,
    end: usize,
}

impl Window {
    const fn at(offset: u64) -> Self {
        Self { offset, bytes: Vec::new(), begin: 0, end: 0 }
    }

    /// At least `wanted` bytes from the next block on, fewer only where the file ends.
    fn fill(&mut self, file: &dyn DiskFile, wanted: usize) -> io::Result<&[u8]> {
        if self.end - self.begin < wanted {
            self.bytes.copy_within(self.begin..self.end, 0);
            self.end -= self.begin;
            self.begin = 0;
            let ahead = file.size()?.saturating_sub(self.offset).min(READ_AHEAD_BYTES as u64) as usize;
            let capacity = wanted.max(ahead);
            if self.bytes.len() < capacity {
                self.bytes.resize(capacity, 0);
            }
            self.end += read_full_at(file, &mut self.bytes[self.end..], self.offset + self.end as u64)?;
        }
        Ok(&self.bytes[self.begin..self.end])
    }

    /// The first `length` bytes of what [`fill`](Self::fill) gave.
    fn front(&self, length: usize) -> &[u8] {
        &self.bytes[self.begin..self.begin + length]
    }

    /// Moves past the first `length` bytes of what [`fill`](Self::fill) gave and returns them.
    fn consume(&mut self, length: usize) -> &[u8] {
        let taken = self.begin..self.begin + length;
        self.begin = taken.end;
        self.offset += length as u64;
        &self.bytes[taken]
    }
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

/// Whether a reserve begins at `offset`: its header, and zeros up to the end of the file.
fn is_reserve(file: &dyn DiskFile, offset: u64) -> io::Result<bool> {
    let mut head = [0; FIXED_HEADER_BYTES];
    let filled = read_full_at(file, &mut head, offset)?;
    Ok(filled == head.len() && head == RESERVE_HEADER && rest_is_zero(file, offset + filled as u64)?)
}

/// Whether the file has nothing but zeros, or nothing, from `from` on.
fn rest_is_zero(file: &dyn DiskFile, from: u64) -> io::Result<bool> {
    let mut chunk = [0; 4096];
    let mut begin = from;
    loop {
        let filled = read_full_at(file, &mut chunk, begin)?;
        if !is_zero(&chunk[..filled]) {
            return Ok(false);
        }
        if filled < chunk.len() {
            return Ok(true);
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

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}

#[cfg(test)]
mod tests;
