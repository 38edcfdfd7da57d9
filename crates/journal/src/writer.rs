//! The log in files: blocks appended to an xlog, one write per batch.
//!
//! Life of a file: it is created when the first batch comes, under a temporary name, and renamed when its
//! text header is written. It ends with the end marker once it is past [`Settings::max_file_bytes`], at a
//! checkpoint ([`XlogWriter::rotate`]) and at a clean stop, which also leaves the next file behind, without rows. A
//! start writes on in a file without rows and never in one with rows. All of this is what Tarantool does, and
//! what it expects of a folder it is given.
//!
//! Invariants:
//! - a file's name and its `VClock` are the clock before its first row; files end only between batches;
//! - a block holds whole transactions, and is closed after the one that brings it to 128 KiB;
//! - in every mode, the names that a start has found are durable before it writes, or removes what they make superfluous;
//! - in mode `fsync`, a file's header and name are durable before any row in it is reported durable, and so
//!   is every row that was recovered;
//! - in mode `fsync`, each block says how much of the file was synced before it ([`crate::synced`]), and behind the last
//!   one stands the [`PREALLOCATED_HEADER`] and zeros up to the end of the file.
//!
//! Where a file grows with each write, each sync also writes the file's new size. In mode `fsync` zeros are therefore
//! written ahead ([`Settings::preallocated_bytes`]), and blocks take their place: measured on ext4, a sync then takes
//! 130 µs instead of 207. Zeros behind the last block would stop a real Tarantool after a crash of the process, so
//! what stands there begins with the header of a block that is longer than the file: a write that never completed,
//! which it cuts off. A disk without space for a preallocated tail still takes blocks, and large batches do without,
//! so as not to be written twice: there the preallocated tail is its header alone. A file that ends in order has
//! none.

use std::io;
use std::sync::Arc;

use lycosa_iproto::vclock::Vclock;
use uuid::Uuid;

use crate::block::{
    self, BlockHeader, DEFAULT_COMPRESSION_LEVEL, Encoder, FIXED_HEADER_BYTES, MAGIC_END,
    MAX_PREALLOCATED_BYTES, PREALLOCATED_HEADER,
};
use crate::directory::{Directory, IN_PROGRESS, file_name};
use crate::disk::{DiskFile, write_all_at};
use crate::empty_xlog::EmptyXlog;
use crate::log::{Batch, LogError, LogStatus, WalMode};
use crate::meta::{FileKind, Meta};
use crate::recovery::Recovered;
use crate::synced::SyncedLength;

/// The program named as a file's writer.
pub const WRITTEN_BY: &str = concat!("Lycosa ", env!("CARGO_PKG_VERSION"));

/// Size past which a file is ended unless told otherwise, as Tarantool's `wal_max_size`.
pub const DEFAULT_MAX_FILE_BYTES: u64 = 256 * 1024 * 1024;

/// Bytes that a server preallocates: enough for a dozen batches under load, for hundreds without. They are written
/// twice, and the sync of the batch that preallocates them takes longer by that.
pub const PREALLOCATED_BYTES: u64 = 256 * 1024;

/// A batch of more than this share of the preallocated tail is written without one: its size is what its sync takes
/// time for, and zeros ahead of it would double that.
const SMALL_SHARE: u64 = 4;

/// How xlogs are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// What `sync` promises.
    pub mode: WalMode,
    /// A file is ended once it is past this many bytes.
    pub max_file_bytes: u64,
    /// zstd's level for blocks from 2048 bytes on; `None` stores every block plain, for processor time
    /// instead of disk space. Tarantool reads either.
    pub compression_level: Option<i32>,
    /// Bytes that are preallocated in mode `fsync`, at most half of [`MAX_PREALLOCATED_BYTES`]; 0 preallocates
    /// nothing.
    pub preallocated_bytes: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mode: WalMode::default(),
            max_file_bytes: DEFAULT_MAX_FILE_BYTES,
            compression_level: Some(DEFAULT_COMPRESSION_LEVEL),
            preallocated_bytes: 0,
        }
    }
}

/// Writes xlogs into a folder, or the files of another log that has blocks of records.
pub struct XlogWriter {
    directory: Directory,
    settings: Settings,
    kind: FileKind,
    instance: Uuid,
    vclock: Vclock,
    /// `VClock` of the newest xlog there is.
    newest: Option<Vclock>,
    current: Current,
    encoder: Encoder,
    blocks: Vec<u8>,
    /// Where each of them begins.
    begins: Vec<usize>,
    status: LogStatus,
    failure: Option<Arc<LogError>>,
}

enum Current {
    /// The next batch begins a file.
    None,
    /// The next batch goes into this one.
    Empty(EmptyXlog),
    /// Rows have been written to it.
    Open(OpenXlog),
}

struct OpenXlog {
    name: String,
    file: Box<dyn DiskFile>,
    bytes: u64,
    /// Bytes that the file has, its preallocated tail included.
    reserved: u64,
    /// Bytes that are known to be durable.
    synced: u64,
    /// What writes that into the headers of blocks, if they say it.
    field: Option<SyncedLength>,
}

impl OpenXlog {
    /// Makes the file longer than `bytes + length` by the header of a preallocated tail at least, unless the disk is full.
    fn preallocate(&mut self, length: u64, preallocated: u64) -> io::Result<()> {
        let needed = length + FIXED_HEADER_BYTES as u64;
        if self.bytes + needed <= self.reserved {
            return Ok(());
        }
        let rest = needed + preallocated.min(MAX_PREALLOCATED_BYTES / 2);
        let mut zeros = PREALLOCATED_HEADER.to_vec();
        zeros.resize(usize::try_from(rest).unwrap_or(FIXED_HEADER_BYTES), 0);
        self.reserved = self.bytes + rest;
        match write_all_at(&mut *self.file, &zeros, self.bytes) {
            Err(error)
                if !matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) =>
            {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Writes blocks behind the existing ones. `preallocated` is how many bytes to keep ready behind them, 0 if
    /// none.
    fn append(&mut self, blocks: &mut Vec<u8>, begins: &[usize], preallocated: u64) -> io::Result<()> {
        let length = blocks.len() as u64;
        let Some(field) = self.field else {
            write_all_at(&mut *self.file, blocks, self.bytes)?;
            self.bytes += length;
            self.reserved = self.bytes;
            return Ok(());
        };
        for &begin in begins {
            let header = &mut blocks[begin..begin + FIXED_HEADER_BYTES];
            let header: &mut [u8; FIXED_HEADER_BYTES] = header.try_into().expect("so many bytes");
            let decoded = BlockHeader::decode(header).expect("the encoder has made it");
            *header = field.write(decoded, self.bytes + begin as u64, self.synced).encode();
        }
        if length <= preallocated / SMALL_SHARE {
            self.preallocate(length, preallocated)?;
        }
        blocks.extend_from_slice(&PREALLOCATED_HEADER);
        let written = write_all_at(&mut *self.file, blocks, self.bytes);
        blocks.truncate(blocks.len() - FIXED_HEADER_BYTES);
        written?;
        self.bytes += length;
        self.reserved = self.reserved.max(self.bytes + FIXED_HEADER_BYTES as u64);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()?;
        self.synced = self.bytes;
        Ok(())
    }

    /// Ends the file with the end marker behind the last block.
    fn end(&mut self) -> io::Result<()> {
        if self.reserved > self.bytes {
            self.file.truncate(self.bytes)?;
        }
        write_all_at(&mut *self.file, &MAGIC_END, self.bytes)
    }
}

impl std::fmt::Debug for XlogWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("XlogWriter")
            .field("vclock", &self.vclock)
            .field("status", &self.status)
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}

impl XlogWriter {
    /// The log of a new instance, whose folder has a snapshot with the clock `vclock` and no xlog.
    ///
    /// # Errors
    /// [`LogError::Compression`] when there is no such level.
    pub fn create(
        directory: Directory,
        settings: Settings,
        instance: Uuid,
        vclock: Vclock,
    ) -> Result<Self, LogError> {
        Ok(Self {
            directory,
            settings,
            kind: FileKind::Xlog,
            instance,
            vclock,
            newest: None,
            current: Current::None,
            encoder: Encoder::new(settings.compression_level)?,
            blocks: Vec::new(),
            begins: Vec::new(),
            status: LogStatus::default(),
            failure: None,
        })
    }

    /// The log of an instance that has been recovered from `directory`. Does what recovery found to be done
    /// there first: left-overs are removed, files that are in the way set aside.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn resume(directory: Directory, settings: Settings, recovered: &Recovered) -> Result<Self, LogError> {
        for repair in &recovered.repairs {
            repair.apply(&directory).map_err(|cause| LogError::Io {
                action: "put aside",
                file: directory.path(repair.file()),
                cause: Arc::new(cause),
            })?;
        }
        let mut writer = Self::create(directory, settings, recovered.instance, recovered.vclock.clone())?;
        writer.newest.clone_from(&recovered.newest_xlog);
        if let Some(empty) = &recovered.empty_xlog {
            writer.current = Current::Empty(empty.clone());
        }
        if settings.mode == WalMode::Fsync {
            writer.sync_recovered()?;
        } else {
            writer.sync_names()?;
        }
        Ok(writer)
    }

    /// A log of another kind whose owner has read its files itself: it goes on behind `vclock` in a new file. `newest` is the
    /// clock in the header of the newest file, which has records; `None` begins a log without files. Everything that
    /// was read is durable after that.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn go_on(
        directory: Directory,
        settings: Settings,
        kind: FileKind,
        instance: Uuid,
        vclock: Vclock,
        newest: Option<Vclock>,
    ) -> Result<Self, LogError> {
        let mut writer = Self::create(directory, settings, instance, vclock)?;
        writer.kind = kind;
        writer.newest = newest;
        if settings.mode == WalMode::Fsync {
            writer.sync_recovered()?;
        } else {
            writer.sync_names()?;
        }
        Ok(writer)
    }

    /// Makes durable what recovery has read. Rows that a killed writer had not synced are part of the
    /// database now, and new ones are not to survive a crash that takes those.
    fn sync_recovered(&self) -> Result<(), LogError> {
        let disk = self.directory.disk();
        let listing = self.directory.list().map_err(self.failed("list", ""))?;
        let files = if self.kind == FileKind::GroupLog { listing.group_logs } else { listing.xlogs };
        for name in files.iter().map(|&signature| file_name(self.kind, signature)) {
            disk.reopen(&name).and_then(|mut file| file.sync()).map_err(self.failed("sync", &name))?;
        }
        self.sync_names()
    }

    /// Makes the names durable that recovery has found. A process that was killed may have left the newest snapshot
    /// without: what that one makes superfluous is going to be removed.
    fn sync_names(&self) -> Result<(), LogError> {
        self.directory.disk().sync().map_err(self.failed("sync", ""))
    }

    fn check(&self) -> Result<(), LogError> {
        match &self.failure {
            Some(cause) => Err(LogError::Poisoned(Arc::clone(cause))),
            None => Ok(()),
        }
    }

    /// Remembers the first failure of the disk.
    fn latch<T>(&mut self, result: Result<T, LogError>) -> Result<T, LogError> {
        if let Err(error) = &result {
            self.failure.get_or_insert_with(|| Arc::new(error.clone()));
        }
        result
    }

    fn failed<'a>(&'a self, action: &'static str, name: &'a str) -> impl Fn(io::Error) -> LogError + use<'a> {
        move |cause| LogError::Io { action, file: self.directory.path(name), cause: Arc::new(cause) }
    }

    /// Puts the blocks of `batch` into `self.blocks`.
    fn encode(&mut self, batch: &Batch) -> Result<(), LogError> {
        let covered = batch.ends.last().copied().unwrap_or(0) as usize;
        assert_eq!(covered, batch.rows.len(), "every row of a batch belongs to a transaction");
        self.blocks.clear();
        self.begins.clear();
        let (mut begin, mut end) = (0, 0);
        for transaction in batch.transactions() {
            end += transaction.len();
            if block::is_full(end - begin) {
                self.begins.push(self.blocks.len());
                self.encoder.encode(&batch.rows[begin..end], &mut self.blocks)?;
                begin = end;
            }
        }
        if begin < end {
            self.begins.push(self.blocks.len());
            self.encoder.encode(&batch.rows[begin..end], &mut self.blocks)?;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), LogError> {
        let is_full =
            matches!(&self.current, Current::Open(open) if open.bytes > self.settings.max_file_bytes);
        if is_full {
            self.finish(self.settings.mode == WalMode::Fsync)?;
        }
        let mut open = match std::mem::replace(&mut self.current, Current::None) {
            Current::Open(open) => open,
            Current::Empty(empty) => self.write_on(empty)?,
            Current::None => self.begin_file(b"")?,
        };
        let written = open.append(&mut self.blocks, &self.begins, self.settings.preallocated_bytes);
        written.map_err(self.failed("write to", &open.name))?;
        self.current = Current::Open(open);
        Ok(())
    }

    /// Opens a file without rows and cuts off what follows its header. One whose blocks say something else than this
    /// writer's is replaced.
    fn write_on(&mut self, empty: EmptyXlog) -> Result<OpenXlog, LogError> {
        let is_durable = self.settings.mode == WalMode::Fsync;
        if empty.has_synced_length != is_durable {
            self.directory.disk().remove(&empty.name).map_err(self.failed("replace", &empty.name))?;
            self.newest = empty.prev_vclock.map(|vclock| *vclock);
            return self.begin_file(b"");
        }
        let mut file = self.directory.disk().reopen(&empty.name).map_err(self.failed("open", &empty.name))?;
        let bytes = empty.header_bytes;
        let is_longer = file.size().map_err(self.failed("ask for the size of", &empty.name))? > bytes;
        file.truncate(bytes).map_err(self.failed("truncate", &empty.name))?;
        if is_durable && is_longer {
            // Blocks that a crash left behind the header must not come back between new ones.
            file.sync().map_err(self.failed("sync", &empty.name))?;
        }
        Ok(self.opened(empty.name, file, bytes))
    }

    /// An xlog whose text header has `bytes`, which are durable in mode `fsync`.
    fn opened(&self, name: String, file: Box<dyn DiskFile>, bytes: u64) -> OpenXlog {
        let is_durable = self.settings.mode == WalMode::Fsync;
        let field = is_durable.then(|| SyncedLength::new(self.instance, &self.vclock));
        OpenXlog { name, file, bytes, reserved: bytes, synced: bytes, field }
    }

    /// Creates the file that follows [`XlogWriter::vclock`], with `content` after its header.
    fn begin_file(&mut self, content: &[u8]) -> Result<OpenXlog, LogError> {
        let meta = Meta {
            kind: self.kind,
            written_by: WRITTEN_BY.to_owned(),
            instance: self.instance,
            vclock: self.vclock.clone(),
            prev_vclock: self.newest.clone(),
            has_synced_length: self.settings.mode == WalMode::Fsync,
        };
        let name = file_name(self.kind, self.vclock.signature());
        let temporary = format!("{name}{IN_PROGRESS}");
        let mut text = meta.encode().into_bytes();
        text.extend_from_slice(content);

        let disk = self.directory.disk();
        let is_durable = self.settings.mode == WalMode::Fsync;
        let mut file = disk.create(&temporary).map_err(self.failed("create", &temporary))?;
        write_all_at(&mut *file, &text, 0).map_err(self.failed("write to", &temporary))?;
        if is_durable {
            file.sync().map_err(self.failed("sync", &temporary))?;
        }
        disk.rename(&temporary, &name).map_err(self.failed("rename to", &name))?;
        if is_durable {
            disk.sync().map_err(self.failed("sync the folder of", &name))?;
        }
        self.newest = Some(self.vclock.clone());
        self.status.files += 1;
        Ok(self.opened(name, file, text.len() as u64))
    }

    /// Ends the current file if it has rows.
    fn finish(&mut self, sync: bool) -> Result<(), LogError> {
        let mut open = match std::mem::replace(&mut self.current, Current::None) {
            Current::Open(open) => open,
            without_rows => {
                self.current = without_rows;
                return Ok(());
            }
        };
        if self.settings.mode == WalMode::Fsync && open.synced < open.bytes {
            // An end marker vouches for everything before it.
            open.sync().map_err(self.failed("sync", &open.name))?;
            self.status.syncs += 1;
        }
        open.end().map_err(self.failed("write to", &open.name))?;
        if sync {
            open.file.sync().map_err(self.failed("sync", &open.name))?;
            self.status.syncs += 1;
        }
        Ok(())
    }

    fn sync_current(&mut self) -> Result<(), LogError> {
        let Current::Open(open) = &mut self.current else { return Ok(()) };
        if self.settings.mode != WalMode::Fsync || open.synced == open.bytes {
            return Ok(());
        }
        match open.sync() {
            Ok(()) => {
                self.status.syncs += 1;
                Ok(())
            }
            Err(cause) => {
                let file = self.directory.path(&open.name);
                Err(LogError::Io { action: "sync", file, cause: Arc::new(cause) })
            }
        }
    }

    fn finish_log(&mut self) -> Result<(), LogError> {
        self.finish(true)?;
        let prev = match &self.current {
            Current::Empty(empty) => empty.prev_vclock.clone(),
            Current::None | Current::Open(_) => self.newest.clone().map(Box::new),
        };
        let mut last = match std::mem::replace(&mut self.current, Current::None) {
            Current::Empty(empty) if empty.is_closed => {
                self.current = Current::Empty(empty);
                return Ok(());
            }
            Current::Empty(empty) => {
                let mut open = self.write_on(empty)?;
                open.end().map_err(self.failed("write to", &open.name))?;
                open
            }
            Current::None | Current::Open(_) => {
                let mut open = self.begin_file(&MAGIC_END)?;
                open.bytes -= MAGIC_END.len() as u64;
                open
            }
        };
        last.file.sync().map_err(self.failed("sync", &last.name))?;
        self.directory.disk().sync().map_err(self.failed("sync the folder of", &last.name))?;
        let empty = EmptyXlog {
            name: last.name,
            header_bytes: last.bytes,
            is_closed: true,
            prev_vclock: prev,
            has_synced_length: last.field.is_some(),
        };
        self.current = Current::Empty(empty);
        Ok(())
    }
}

impl XlogWriter {
    /// Takes `batch`. An empty one changes nothing.
    ///
    /// # Errors
    /// [`LogError`]. Whether the rows are in the log is unknown after [`LogError::Io`]; after any other error
    /// they are not.
    pub fn append(&mut self, batch: &Batch) -> Result<(), LogError> {
        self.check()?;
        if batch.is_empty() {
            return Ok(());
        }
        if self.settings.mode != WalMode::None {
            self.encode(batch)?;
            let written = self.write();
            self.latch(written)?;
            self.status.stored_bytes += self.blocks.len() as u64;
        }
        self.vclock.clone_from(&batch.vclock);
        self.status.batches += 1;
        self.status.transactions += batch.ends.len() as u64;
        self.status.row_bytes += batch.rows.len() as u64;
        Ok(())
    }

    /// Makes everything appended as durable as the mode promises.
    ///
    /// # Errors
    /// [`LogError`]. Whether the rows since the last success are durable is then unknown.
    pub fn sync(&mut self) -> Result<(), LogError> {
        self.check()?;
        let synced = self.sync_current();
        self.latch(synced)
    }

    /// Ends the current file, if it has rows: the next batch begins a new one, named by
    /// [`vclock`](Self::vclock). A checkpoint begins with this.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn rotate(&mut self) -> Result<(), LogError> {
        self.check()?;
        let finished = self.finish(self.settings.mode == WalMode::Fsync);
        self.latch(finished)
    }

    /// Ends the log in order and makes it durable in every mode. A log that is poisoned is left as it is.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn close(&mut self) -> Result<(), LogError> {
        self.check()?;
        if self.settings.mode == WalMode::None {
            return Ok(());
        }
        let finished = self.finish_log();
        self.latch(finished)
    }

    /// The clock after the last batch taken.
    pub fn vclock(&self) -> &Vclock {
        &self.vclock
    }

    /// What it has done.
    pub fn status(&self) -> LogStatus {
        let (file, file_bytes) = match &self.current {
            Current::None => (None, 0),
            Current::Empty(empty) => (Some(empty.name.clone()), empty.header_bytes),
            Current::Open(open) => (Some(open.name.clone()), open.bytes),
        };
        LogStatus { file, file_bytes, ..self.status.clone() }
    }
}
