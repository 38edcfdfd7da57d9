//! Reading one journal file block by block, and saying exactly how it ends or breaks.
//!
//! A [`FileReader`] yields blocks whose checksum is right, and otherwise one of three ends or a damage:
//!
//! | [`End`] / [`Damage`] | the file | meaning |
//! |---|---|---|
//! | [`End::Marker`] | ends in the end marker | it was closed in order |
//! | [`End::Open`] | ends right after a block, or with a preallocated tail | it is still written, or its writer was killed |
//! | [`End::Torn`] | ends inside a block, or in zeros | its writer's last write did not complete |
//! | [`Damage`] | has a complete block that is wrong, or bytes after its end | the disk or a person changed it |
//!
//! The module `judge` draws the line between torn and damaged, for files that say how much of them was synced and for
//! files that do not.
//!
//! A reader can be asked again after [`End::Open`] and [`End::Torn`]: it then sees bytes written
//! since.
//!
//! Absent: any decision. Whether a torn tail may be cut depends on the files around it (see
//! [`crate::recovery`]).

use std::io;

use crate::block::{
    self, BlockHeader, Decoder, FIXED_HEADER_BYTES, HeaderError, MAGIC_BYTES, MAGIC_END, PREALLOCATED_HEADER,
    UnpackError,
};
use crate::disk::{DiskFile, read_full_at};
use crate::meta::{FileKind, MAX_META_BYTES, Meta, MetaError};
use crate::search::SoundPlaces;
use crate::synced::SyncedLength;

mod judge;
mod zeros;

use zeros::{is_zero, rest_is_zero};

/// Bytes asked of the disk at once.
const READ_AHEAD_BYTES: usize = 1 << 20;

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
    /// Without one, right after the header or a block, where a [preallocated tail](PREALLOCATED_HEADER) may be.
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
    /// A part of the last write never reached the disk: its place holds the former bytes.
    #[error("a part of the last write is missing")]
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
    /// The fault.
    pub kind: DamageKind,
}

/// Faults of a block.
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
        /// The fault.
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
    /// What reads the synced lengths of this file's blocks, if they have any.
    field: Option<SyncedLength>,
    /// The synced length of the block before, if it is known.
    synced: Option<u64>,
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
        let Meta { instance, vclock, has_synced_length, .. } = &decoded.meta;
        let field = has_synced_length.then(|| SyncedLength::new(*instance, vclock));
        Ok(Self {
            file,
            meta: decoded.meta,
            unknown_keys: decoded.unknown_keys,
            first_block,
            known_size: 0,
            window: Window::at(first_block),
            decoder: Decoder::default(),
            sound: None,
            field,
            synced: Some(first_block),
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

    /// The next block, or the fault found in its place.
    ///
    /// # Errors
    /// When the disk cannot be read. Any bytes that it reads lead to a [`Step`].
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
        self.seek(to);
        Ok(next)
    }

    /// Goes back to `offset`, which must be one where a block begins.
    pub fn seek(&mut self, offset: u64) {
        self.window = Window::at(offset);
        self.synced = (offset == self.first_block).then_some(offset);
    }

    fn read_block(&mut self) -> io::Result<Found> {
        let offset = self.offset();
        if self.window.fill(&*self.file, FIXED_HEADER_BYTES)?.starts_with(&PREALLOCATED_HEADER) {
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
            return self.judge_end(offset);
        }
        let Some(head) = head.first_chunk::<FIXED_HEADER_BYTES>().copied() else {
            let mut magic = [0; MAGIC_BYTES];
            let known = head.len().min(MAGIC_BYTES);
            magic[..known].copy_from_slice(&head[..known]);
            return self.judge_header(offset, HeaderError::Magic(magic));
        };
        if self.field.is_some() && head == PREALLOCATED_HEADER {
            return self.judge_reserve(offset);
        }
        let (header, synced) = match self.decode_header(&head, offset) {
            Ok(decoded) => decoded,
            Err(error) => return self.judge_header(offset, error),
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
            let kind = DamageKind::Checksum { stored: header.checksum, computed };
            return self.judge_body(offset, length as u64, kind);
        }
        self.synced = Some(synced);
        Ok(Found::Block(header, length))
    }

    /// A header, and how much of the file was synced when it was written: with no word of that, everything before it.
    fn decode_header(
        &self,
        head: &[u8; FIXED_HEADER_BYTES],
        offset: u64,
    ) -> Result<(BlockHeader, u64), HeaderError> {
        let header = BlockHeader::decode(head)?;
        let Some(field) = self.field else {
            return if header.previous == 0 { Ok((header, offset)) } else { Err(HeaderError::Padding) };
        };
        // Between two blocks everything was synced, or nothing.
        match (field.read(&header, offset), self.synced) {
            (Some(synced), None) => Ok((header, synced)),
            (Some(synced), Some(before)) if synced == offset || synced == before => Ok((header, synced)),
            _ => Err(HeaderError::Padding),
        }
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

#[cfg(test)]
mod tests;
