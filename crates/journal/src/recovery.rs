//! Recovery: from a data folder to the rows that make up the database, each transaction once, whole, and in order.
//!
//! 1. The newest sound snapshot. If there is another to fall back to, a snapshot's checksums are verified before the first
//!    row is handed over.
//! 2. The xlogs from the one that holds the snapshot's moment on. Rows that the clock has already seen are skipped.
//! 3. Each file must begin where the one before it ended.
//!
//! Whatever is not in order becomes a [`Finding`], and the table in [`crate::decision`] says what follows.
//!
//! Invariants:
//! - nothing in the folder is changed: what is to be done about files is in [`Recovered::repairs`];
//! - no transaction is handed over in part, and none before the one ahead of it in the log;
//! - the clock counts whole transactions only.
//!
//! Absent: what a row means, the exception being which spaces are synchronous, and that is asked of the [`Target`].

use std::error::Error;
use std::io;
use std::path::PathBuf;

use lycosa_iproto::keys::GROUP_LOCAL;
use lycosa_iproto::row::{RowBody, decode_row};
use lycosa_iproto::vclock::{VCLOCK_MAX, Vclock};
use lycosa_tuple::mp;
use uuid::Uuid;

use crate::decision::{Category, Decision, Defect, Finding, HeaderDefect, Mode, Settled, decide};
use crate::directory::{Directory, Listing, file_name};
use crate::limbo::{Limbo, Undecided};
use crate::meta::{FileKind, Meta};
use crate::reader::{Damage, DamageKind, End, FileReader, OpenError, Step, Torn, TornCause};
use crate::transaction::{Next, Row, Transactions};
use crate::writer::EmptyXlog;

/// Where a row stood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// In the snapshot: the tuple is simply there.
    Snapshot,
    /// In an xlog: the change happened after the snapshot.
    Xlog,
}

/// How far recovery has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Bytes read of the files that are to be read.
    pub bytes_done: u64,
    /// Bytes of all of them.
    pub bytes_total: u64,
    /// Rows handed over.
    pub rows: u64,
}

/// A transaction that is to be applied.
#[derive(Debug, Clone, Copy)]
pub struct Transaction<'a> {
    /// Where it stood.
    pub source: Source,
    /// Its rows, in order; at least one. In a snapshot each row comes alone.
    pub rows: &'a [Row<'a>],
    /// How far recovery has come, before it.
    pub progress: Progress,
}

/// Why a target did not take a transaction.
pub type ApplyError = Box<dyn Error + Send + Sync>;

/// Takes what is recovered.
pub trait Target {
    /// Takes a transaction. CONFIRM and ROLLBACK rows come too, after they have had their effect on what is handed over.
    ///
    /// # Errors
    /// Any error stops recovery.
    fn apply(&mut self, transaction: &Transaction<'_>) -> Result<(), ApplyError>;

    /// All rows of the snapshot have been handed over; the next ones are changes.
    ///
    /// # Errors
    /// Any error stops recovery.
    fn end_of_snapshot(&mut self) -> Result<(), ApplyError> {
        Ok(())
    }

    /// Whether changes of `space` wait for a CONFIRM row.
    fn is_synchronous(&self, space: u32) -> bool {
        let _ = space;
        false
    }

    /// Something was found and settled; worth a line in the log.
    fn report(&mut self, settled: &Settled) {
        let _ = settled;
    }
}

/// Why there is no database.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// The table says so.
    #[error("{0}")]
    Refused(Settled),
    /// The disk cannot be read.
    #[error("can't read {}: {cause}", .file.display())]
    Io {
        /// The file or folder.
        file: PathBuf,
        /// What the operating system said.
        #[source]
        cause: io::Error,
    },
    /// A sound row could not be applied: it was written by something that this version does not understand, or rows that it
    /// depends on were given up.
    #[error("can't apply the transaction of LSN {lsn} from '{file}' (block at offset {offset}): {cause}")]
    Apply {
        /// Name of the file.
        file: String,
        /// Where the block begins.
        offset: u64,
        /// LSN of the transaction's first row.
        lsn: u64,
        /// What the target said.
        cause: ApplyError,
    },
}

impl RecoveryError {
    /// The kind of refusal, for the exit code.
    #[must_use]
    pub fn category(&self) -> Category {
        match self {
            Self::Refused(Settled { decision: Decision::Refuse(category), .. }) => *category,
            Self::Refused(_) | Self::Apply { .. } => Category::Damaged,
            Self::Io { .. } => Category::Disk,
        }
    }
}

/// What is to be done to a file before the log is written on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Repair {
    /// Remove it.
    Remove(String),
    /// Move it out of the way ([`Directory::set_aside`]).
    SetAside(String),
}

impl Repair {
    /// The file it is about.
    #[must_use]
    pub fn file(&self) -> &str {
        let (Self::Remove(file) | Self::SetAside(file)) = self;
        file
    }

    /// Does it.
    ///
    /// # Errors
    /// When the folder cannot be changed.
    pub fn apply(&self, directory: &Directory) -> io::Result<()> {
        match self {
            Self::Remove(file) => directory.disk().remove(file),
            Self::SetAside(file) => directory.set_aside(file).map(|_| ()),
        }
    }
}

/// What recovery ended with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// The clock after the last row.
    pub vclock: Vclock,
    /// Whose database it is.
    pub instance: Uuid,
    /// Clock of the snapshot it began with.
    pub snapshot: Vclock,
    /// Everything that was not in order.
    pub settled: Vec<Settled>,
    /// What [`crate::writer::XlogWriter::resume`] does to files first.
    pub repairs: Vec<Repair>,
    /// `VClock` of the newest xlog that stays.
    pub newest_xlog: Option<Vclock>,
    /// The newest xlog, if it has no rows and the next batch belongs into it.
    pub empty_xlog: Option<EmptyXlog>,
    /// How much it was.
    pub progress: Progress,
}

impl Recovered {
    /// Whether data that was once reported durable was given up (only in [`Mode::Force`]). The files still hold the damage:
    /// a checkpoint ought to follow at once.
    #[must_use]
    pub fn has_lost_data(&self) -> bool {
        self.settled.iter().any(Settled::loses_data)
    }
}

/// A recovery about to run: the files are chosen, none of their rows read.
#[derive(Debug)]
pub struct Recovery {
    directory: Directory,
    mode: Mode,
    snapshot: FileReader,
    snapshot_name: String,
    /// Newer snapshots that are not sound: how far the xlogs must reach to make up for them.
    replaced: Vec<Replaced>,
    xlogs: Vec<Xlog>,
    settled: Vec<Settled>,
    repairs: Vec<Repair>,
    progress: Progress,
}

#[derive(Debug)]
struct Replaced {
    name: String,
    signature: u64,
    vclock: Option<Vclock>,
}

#[derive(Debug)]
struct Xlog {
    name: String,
    signature: u64,
    vclock: Vclock,
}

/// An xlog whose text header has been looked at.
enum Opened {
    Sound(Xlog, u64, Vec<String>),
    Torn(Torn),
    Bad(HeaderDefect),
    Foreign(Uuid),
}

impl Recovery {
    /// Chooses what to recover from. `None` for a folder with neither snapshots nor xlogs: a new instance.
    ///
    /// # Errors
    /// [`RecoveryError`].
    pub fn open(directory: &Directory, mode: Mode) -> Result<Option<Self>, RecoveryError> {
        let folder_error = |cause| RecoveryError::Io { file: directory.path(""), cause };
        let mut listing = directory.list().map_err(folder_error)?;
        let mut ledger = Ledger { mode, settled: Vec::new(), repairs: Vec::new() };
        for file in std::mem::take(&mut listing.strangers) {
            ledger.settle(Finding::Stranger { file })?;
        }
        for file in std::mem::take(&mut listing.in_progress) {
            ledger.settle(Finding::LeftOver { file })?;
        }
        if listing.snapshots.is_empty() {
            if listing.xlogs.is_empty() {
                return Ok(None);
            }
            ledger.settle(Finding::NoSnapshot { xlogs: listing.xlogs.len() })?;
        }

        let (snapshot, snapshot_name, replaced) = choose_snapshot(directory, &listing, &mut ledger)?;
        for key in snapshot.unknown_keys() {
            ledger.settle(Finding::UnknownKey { file: snapshot_name.clone(), key: key.clone() })?;
        }
        let snapshot_size = snapshot.size().map_err(|cause| io_error(directory, &snapshot_name, cause))?;
        let mut progress = Progress { bytes_total: snapshot_size, ..Progress::default() };
        let xlogs = choose_xlogs(directory, &listing.xlogs, snapshot.meta(), &mut ledger, &mut progress)?;
        let Ledger { settled, repairs, .. } = ledger;
        let directory = directory.clone();
        Ok(Some(Self { directory, mode, snapshot, snapshot_name, replaced, xlogs, settled, repairs, progress }))
    }

    /// Whose database it is.
    #[must_use]
    pub fn instance(&self) -> Uuid {
        self.snapshot.meta().instance
    }

    /// How much there is to read.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Hands everything over to `target`.
    ///
    /// # Errors
    /// [`RecoveryError`]. The target then has a part of the database, which is of no use.
    pub fn run(self, target: &mut dyn Target) -> Result<Recovered, RecoveryError> {
        for settled in &self.settled {
            target.report(settled);
        }
        let Self { directory, mode, mut snapshot, snapshot_name, replaced, xlogs, settled, repairs, progress } = self;
        let snapshot_vclock = snapshot.meta().vclock.clone();
        let mut replay = Replay {
            directory: &directory,
            target,
            ledger: Ledger { mode, settled, repairs },
            vclock: snapshot_vclock.clone(),
            limbo: Limbo::default(),
            progress,
        };
        replay.read_snapshot(&mut snapshot, &snapshot_name)?;
        let instance = snapshot.meta().instance;
        drop(snapshot);
        let (mut newest_xlog, mut empty_xlog) = (None, None);
        let last = xlogs.last().map(|xlog| (xlog.signature, xlog.name.clone())).unwrap_or_default();
        for xlog in xlogs {
            let is_last = last.0 == xlog.signature;
            let had_rows = replay.read_xlog(&xlog)?;
            if is_last && xlog.signature == replay.vclock.signature() {
                match had_rows {
                    LastXlog::WithoutRows(empty) => empty_xlog = Some(empty),
                    LastXlog::WithRows => {
                        // Its name is the next file's, though no sound row is in it.
                        replay.ledger.repairs.push(Repair::SetAside(xlog.name));
                        continue;
                    }
                }
            }
            newest_xlog = Some(xlog.vclock);
        }
        replay.end_limbo(&last.1)?;
        replay.check_replaced(&replaced)?;
        let Replay { ledger, vclock, progress, .. } = replay;
        Ok(Recovered {
            vclock,
            instance,
            snapshot: snapshot_vclock,
            settled: ledger.settled,
            repairs: ledger.repairs,
            newest_xlog,
            empty_xlog,
            progress,
        })
    }
}

fn io_error(directory: &Directory, name: &str, cause: io::Error) -> RecoveryError {
    RecoveryError::Io { file: directory.path(name), cause }
}

/// The findings so far, and the door through which they come.
struct Ledger {
    mode: Mode,
    settled: Vec<Settled>,
    repairs: Vec<Repair>,
}

impl Ledger {
    /// Decides on a finding and notes what follows.
    fn settle(&mut self, finding: Finding) -> Result<Decision, RecoveryError> {
        let decision = decide(&finding, self.mode);
        let settled = Settled { finding, decision };
        match (&settled.finding, decision) {
            (_, Decision::Refuse(_)) => return Err(RecoveryError::Refused(settled)),
            (Finding::LeftOver { file }, Decision::Remove) => self.repairs.push(Repair::Remove(file.clone())),
            (
                Finding::BadHeader { file, .. } | Finding::Foreign { file, .. } | Finding::TornHeader { file, .. },
                Decision::SetAside,
            ) => self.repairs.push(Repair::SetAside(file.clone())),
            _ => {}
        }
        self.settled.push(settled);
        Ok(decision)
    }
}

/// The newest snapshot that is sound; in force mode, if none is, the newest whose header is.
fn choose_snapshot(
    directory: &Directory,
    listing: &Listing,
    ledger: &mut Ledger,
) -> Result<(FileReader, String, Vec<Replaced>), RecoveryError> {
    let mut unsound = Vec::new();
    let mut chosen = None;
    let is_verified = listing.snapshots.len() > 1;
    for &signature in listing.snapshots.iter().rev() {
        let name = file_name(FileKind::Snapshot, signature);
        let failed = |cause| io_error(directory, &name, cause);
        match open_snapshot(directory, signature).map_err(failed)? {
            Err(defect) => unsound.push((name, signature, None, Defect::Header(defect))),
            Ok(mut reader) => {
                let defect = if is_verified { verify(&mut reader).map_err(failed)? } else { None };
                if let Some(defect) = defect {
                    unsound.push((name, signature, Some(reader), defect));
                } else if unsound.is_empty() || has_xlog_for(directory, &listing.xlogs, &reader.meta().vclock) {
                    chosen = Some((reader, name));
                    break;
                }
            }
        }
    }
    // In force mode a readable header is enough, if there is nothing better.
    if chosen.is_none() {
        let salvaged = unsound.iter().position(|(_, _, reader, _)| reader.is_some()).unwrap_or(0);
        let (name, _, reader, defect) = unsound.swap_remove(salvaged);
        ledger.settle(Finding::SnapshotUnsound { file: name.clone(), defect, older: false })?;
        unsound.truncate(salvaged);
        chosen = reader.map(|reader| (reader, name));
    }
    let mut replaced = Vec::new();
    for (file, signature, reader, defect) in unsound {
        ledger.settle(Finding::SnapshotUnsound { file: file.clone(), defect, older: true })?;
        let vclock = reader.map(|reader| reader.meta().vclock.clone());
        replaced.push(Replaced { name: file, signature, vclock });
    }
    let (reader, name) = chosen.expect("a snapshot without a readable header is refused in every mode");
    Ok((reader, name, replaced))
}

fn open_snapshot(directory: &Directory, signature: u64) -> io::Result<Result<FileReader, HeaderDefect>> {
    let defect = match directory.read(FileKind::Snapshot, signature) {
        Ok(reader) if reader.meta().vclock.signature() == signature => return Ok(Ok(reader)),
        Ok(reader) => HeaderDefect::Signature { name: signature, vclock: reader.meta().vclock.clone() },
        Err(OpenError::Io(cause)) => return Err(cause),
        Err(OpenError::Torn(torn)) => HeaderDefect::Torn(torn),
        Err(OpenError::Meta(error)) => HeaderDefect::Meta(error),
    };
    Ok(Err(defect))
}

/// Checks every block of a snapshot and its end, and goes back to its beginning.
fn verify(snapshot: &mut FileReader) -> io::Result<Option<Defect>> {
    let defect = loop {
        match snapshot.next_stored()? {
            Step::Block(_) => {}
            Step::End(End::Marker) => break None,
            Step::End(End::Open) => break Some(Defect::NoEnd),
            Step::End(End::Torn(torn)) => break Some(Defect::Torn(torn)),
            Step::Damage(damage) => break Some(Defect::Damage(damage)),
        }
    };
    snapshot.seek(snapshot.first_block());
    Ok(defect)
}

/// Whether some xlog begins at or before `vclock`.
fn has_xlog_for(directory: &Directory, xlogs: &[u64], vclock: &Vclock) -> bool {
    xlogs.iter().any(|&signature| {
        directory.read(FileKind::Xlog, signature).is_ok_and(|reader| reader.meta().vclock <= *vclock)
    })
}

/// The xlogs from the one that holds the snapshot's moment on.
fn choose_xlogs(
    directory: &Directory,
    signatures: &[u64],
    snapshot: &Meta,
    ledger: &mut Ledger,
    progress: &mut Progress,
) -> Result<Vec<Xlog>, RecoveryError> {
    let mut opened = Vec::with_capacity(signatures.len());
    for &signature in signatures {
        let name = file_name(FileKind::Xlog, signature);
        let found = open_xlog(directory, signature, &name, snapshot.instance);
        opened.push((found.map_err(|cause| io_error(directory, &name, cause))?, name));
    }
    let first = opened.iter().rposition(|(xlog, _)| matches!(xlog, Opened::Sound(xlog, ..) if xlog.vclock <= snapshot.vclock));
    let mut xlogs = Vec::new();
    for (found, file) in opened.drain(first.unwrap_or(0)..) {
        match found {
            Opened::Sound(xlog, size, unknown_keys) => {
                for key in unknown_keys {
                    ledger.settle(Finding::UnknownKey { file: file.clone(), key })?;
                }
                progress.bytes_total += size;
                xlogs.push(xlog);
            }
            Opened::Torn(torn) => {
                ledger.settle(Finding::TornHeader { file, torn })?;
            }
            Opened::Bad(error) => {
                ledger.settle(Finding::BadHeader { file, error })?;
            }
            Opened::Foreign(theirs) => {
                ledger.settle(Finding::Foreign { file, theirs, ours: snapshot.instance })?;
            }
        }
    }
    Ok(xlogs)
}

fn open_xlog(directory: &Directory, signature: u64, name: &str, instance: Uuid) -> io::Result<Opened> {
    Ok(match directory.read(FileKind::Xlog, signature) {
        Ok(reader) => {
            let meta = reader.meta();
            if meta.instance != instance {
                Opened::Foreign(meta.instance)
            } else if meta.vclock.signature() != signature {
                Opened::Bad(HeaderDefect::Signature { name: signature, vclock: meta.vclock.clone() })
            } else {
                let xlog = Xlog { name: name.to_owned(), signature, vclock: meta.vclock.clone() };
                Opened::Sound(xlog, reader.size()?, reader.unknown_keys().to_vec())
            }
        }
        Err(OpenError::Io(cause)) => return Err(cause),
        Err(OpenError::Torn(torn)) => Opened::Torn(torn),
        Err(OpenError::Meta(error)) => Opened::Bad(error.into()),
    })
}

/// Whether anything of the last xlog must be kept.
enum LastXlog {
    WithRows,
    WithoutRows(EmptyXlog),
}

/// A recovery that runs.
struct Replay<'a> {
    directory: &'a Directory,
    target: &'a mut dyn Target,
    ledger: Ledger,
    vclock: Vclock,
    limbo: Limbo,
    progress: Progress,
}

/// The component of the clock that counts a row.
fn component(row: &Row<'_>) -> u32 {
    if row.header.group_id == GROUP_LOCAL { 0 } else { row.header.replica_id }
}

/// Where a block is, for messages.
#[derive(Clone, Copy)]
struct Place<'a> {
    file: &'a str,
    offset: u64,
}

impl Replay<'_> {
    fn settle(&mut self, finding: Finding) -> Result<(), RecoveryError> {
        self.ledger.settle(finding)?;
        if let Some(settled) = self.ledger.settled.last() {
            self.target.report(settled);
        }
        Ok(())
    }

    fn apply(&mut self, source: Source, rows: &[Row<'_>], place: Place<'_>) -> Result<(), RecoveryError> {
        let transaction = Transaction { source, rows, progress: self.progress };
        self.progress.rows += rows.len() as u64;
        self.target.apply(&transaction).map_err(|cause| RecoveryError::Apply {
            file: place.file.to_owned(),
            offset: place.offset,
            lsn: rows.first().map_or(0, |row| row.header.lsn),
            cause,
        })
    }

    fn read_snapshot(&mut self, reader: &mut FileReader, name: &str) -> Result<(), RecoveryError> {
        let directory = self.directory;
        let failed = |cause| io_error(directory, name, cause);
        let mut next_lsn = 0;
        let base = self.progress.bytes_done;
        loop {
            self.progress.bytes_done = base + reader.offset();
            let damage = match reader.next_block().map_err(failed)? {
                Step::Block(block) => {
                    let place = Place { file: name, offset: block.offset };
                    match self.read_snapshot_block(block.rows, place, &mut next_lsn)? {
                        None => continue,
                        Some(kind) => Damage { offset: block.offset, kind },
                    }
                }
                Step::End(End::Marker) => break,
                Step::End(end) => {
                    let defect = match end {
                        End::Torn(torn) => Defect::Torn(torn),
                        End::Open | End::Marker => Defect::NoEnd,
                    };
                    self.settle(Finding::SnapshotUnsound { file: name.to_owned(), defect, older: false })?;
                    break;
                }
                Step::Damage(damage) => damage,
            };
            self.skip(reader, name, damage)?;
        }
        self.progress.bytes_done = base + reader.size().map_err(failed)?;
        self.target.end_of_snapshot().map_err(|cause| RecoveryError::Apply {
            file: name.to_owned(),
            offset: reader.offset(),
            lsn: next_lsn,
            cause,
        })
    }

    /// Hands over the rows of a block; what stops being rows is returned.
    fn read_snapshot_block(
        &mut self,
        bytes: &[u8],
        place: Place<'_>,
        next_lsn: &mut u64,
    ) -> Result<Option<DamageKind>, RecoveryError> {
        let mut transactions = Transactions::new(bytes);
        let mut rows = Vec::new();
        loop {
            match transactions.next(&mut rows) {
                Ok(Next::Transaction(_)) => {
                    let lsn = rows[0].header.lsn;
                    if lsn > *next_lsn {
                        self.settle(Finding::RowsMissing {
                            file: place.file.to_owned(),
                            offset: place.offset,
                            replica_id: 0,
                            first: *next_lsn,
                            last: lsn - 1,
                        })?;
                    }
                    *next_lsn = lsn.wrapping_add(rows.len() as u64);
                    self.apply(Source::Snapshot, &rows, place)?;
                }
                Ok(Next::End) => return Ok(None),
                Ok(Next::Partial(at)) => {
                    return Ok(Some(DamageKind::Row { at, reason: "a transaction without an end".to_owned() }));
                }
                Err(kind) => return Ok(Some(kind)),
            }
        }
    }

    fn read_xlog(&mut self, xlog: &Xlog) -> Result<LastXlog, RecoveryError> {
        if !(xlog.vclock <= self.vclock) {
            let (reached, begins) = (self.vclock.clone(), xlog.vclock.clone());
            self.settle(Finding::Gap { file: xlog.name.clone(), reached, begins })?;
            for (replica_id, lsn) in xlog.vclock.iter().filter(|&(id, lsn)| lsn > self.vclock.get(id)).collect::<Vec<_>>() {
                self.vclock.set(replica_id, lsn).expect("the id comes from a vclock");
            }
        }
        let directory = self.directory;
        let failed = |cause| io_error(directory, &xlog.name, cause);
        let mut reader = match directory.read(FileKind::Xlog, xlog.signature) {
            Ok(reader) => reader,
            Err(OpenError::Io(cause)) => return Err(failed(cause)),
            // It was readable a moment ago.
            Err(changed) => return Err(failed(io::Error::other(changed.to_string()))),
        };
        let base = self.progress.bytes_done;
        let mut reading = Reading { name: &xlog.name, carried: Vec::new(), carried_from: 0, has_content: false };
        let end = loop {
            self.progress.bytes_done = base + reader.offset();
            let damage = match reader.next_block().map_err(failed)? {
                Step::Block(block) => {
                    reading.has_content = true;
                    match self.read_xlog_block(&mut reading, block.rows, block.offset)? {
                        None => continue,
                        Some(kind) => Damage { offset: block.offset, kind },
                    }
                }
                Step::End(end) => break end,
                Step::Damage(damage) => damage,
            };
            reading.has_content = true;
            reading.carried.clear();
            self.skip(&mut reader, &xlog.name, damage)?;
        };
        let size = reader.size().map_err(failed)?;
        self.progress.bytes_done = base + size;
        self.settle_end(&reading, end, size)?;
        if reading.has_content {
            return Ok(LastXlog::WithRows);
        }
        Ok(LastXlog::WithoutRows(EmptyXlog {
            name: xlog.name.clone(),
            header_bytes: reader.first_block(),
            is_closed: end == End::Marker,
        }))
    }

    fn settle_end(&mut self, reading: &Reading<'_>, end: End, size: u64) -> Result<(), RecoveryError> {
        let file = reading.name.to_owned();
        let reached = self.vclock.clone();
        if !reading.carried.is_empty() {
            let offset = reading.carried_from;
            if end == End::Marker {
                let kind = DamageKind::Row { at: 0, reason: "a transaction without an end".to_owned() };
                return self.settle(Finding::Damaged { file, damage: Damage { offset, kind }, resumes: None });
            }
            let torn = Torn { offset, bytes: size.saturating_sub(offset), cause: TornCause::Transaction };
            return self.settle(Finding::TornTail { file, torn, reached });
        }
        match end {
            End::Marker => Ok(()),
            End::Open => self.settle(Finding::NotClosed { file }),
            End::Torn(torn) => self.settle(Finding::TornTail { file, torn, reached }),
        }
    }

    /// Settles a damage and goes on after it.
    fn skip(&mut self, reader: &mut FileReader, name: &str, damage: Damage) -> Result<(), RecoveryError> {
        // A block whose rows are wrong has been passed already; any other still lies ahead.
        let resumes = if reader.offset() > damage.offset {
            Some(reader.offset())
        } else {
            reader.skip_damage().map_err(|cause| io_error(self.directory, name, cause))?
        };
        self.settle(Finding::Damaged { file: name.to_owned(), damage, resumes })
    }

    /// Takes the transactions of a block; what stops being rows is returned.
    fn read_xlog_block(
        &mut self,
        reading: &mut Reading<'_>,
        bytes: &[u8],
        offset: u64,
    ) -> Result<Option<DamageKind>, RecoveryError> {
        let mut joined = std::mem::take(&mut reading.carried);
        let bytes = if joined.is_empty() {
            reading.carried_from = offset;
            bytes
        } else {
            joined.extend_from_slice(bytes);
            &joined
        };
        let place = Place { file: reading.name, offset };
        let mut transactions = Transactions::new(bytes);
        let mut rows = Vec::new();
        loop {
            match transactions.next(&mut rows) {
                Ok(Next::Transaction(_)) => {
                    if let Some(kind) = self.take(&mut rows, place)? {
                        return Ok(Some(kind));
                    }
                    reading.carried_from = offset;
                }
                Ok(Next::End) => return Ok(None),
                Ok(Next::Partial(at)) => {
                    reading.carried = bytes[at..].to_vec();
                    return Ok(None);
                }
                Err(kind) => return Ok(Some(kind)),
            }
        }
    }

    /// Advances the clock by a transaction and delivers what is new in it.
    fn take(&mut self, rows: &mut Vec<Row<'_>>, place: Place<'_>) -> Result<Option<DamageKind>, RecoveryError> {
        if let Some(row) = rows.iter().find(|row| component(row) as usize >= VCLOCK_MAX) {
            let reason = format!("replica id {} is not below {VCLOCK_MAX}", row.header.replica_id);
            return Ok(Some(DamageKind::Row { at: 0, reason }));
        }
        let vclock = &mut self.vclock;
        let mut missing = Vec::new();
        rows.retain(|row| {
            let (component, lsn) = (component(row), row.header.lsn);
            let reached = vclock.get(component);
            if lsn <= reached {
                return false;
            }
            if lsn - reached > 1 {
                missing.push((component, reached + 1, lsn - 1));
            }
            vclock.set(component, lsn).is_ok()
        });
        for (replica_id, first, last) in missing {
            let (file, offset) = (place.file.to_owned(), place.offset);
            self.settle(Finding::RowsMissing { file, offset, replica_id, first, last })?;
        }
        if !rows.is_empty() {
            self.deliver(rows, place)?;
        }
        Ok(None)
    }

    /// Hands a transaction over, or lets it wait for its verdict.
    fn deliver(&mut self, rows: &[Row<'_>], place: Place<'_>) -> Result<(), RecoveryError> {
        match rows {
            [Row { body: RowBody::Confirm { replica_id, lsn }, .. }] => {
                let released = self.limbo.confirm(*replica_id, *lsn);
                self.apply_released(&released, place)?;
            }
            [Row { body: RowBody::Rollback { replica_id, lsn }, .. }] => self.limbo.roll_back(*replica_id, *lsn),
            _ => {
                let mut spaces = rows.iter().filter_map(|row| row.body.space());
                let is_synchronous = spaces.any(|space| self.target.is_synchronous(space));
                if is_synchronous || !self.limbo.is_empty() {
                    self.limbo.push(rows, is_synchronous);
                    return Ok(());
                }
            }
        }
        self.apply(Source::Xlog, rows, place)
    }

    /// Hands over transactions that waited.
    fn apply_released(&mut self, released: &[Vec<u8>], place: Place<'_>) -> Result<(), RecoveryError> {
        for encoded in released {
            let mut rows = Vec::new();
            let mut reader = mp::Reader::new(encoded);
            while !reader.is_empty() {
                let (header, body) = decode_row(&mut reader).expect("the row was encoded here");
                rows.push(Row { header, body });
            }
            self.apply(Source::Xlog, &rows, place)?;
        }
        Ok(())
    }

    /// Hands over what got no verdict.
    fn end_limbo(&mut self, last_xlog: &str) -> Result<(), RecoveryError> {
        if let Some(Undecided { transactions, replica_id, lsn }) = self.limbo.undecided() {
            self.settle(Finding::Unconfirmed { transactions, replica_id, lsn })?;
        }
        let released = self.limbo.release();
        self.apply_released(&released, Place { file: last_xlog, offset: 0 })
    }

    fn check_replaced(&mut self, replaced: &[Replaced]) -> Result<(), RecoveryError> {
        for snapshot in replaced {
            let is_reached = match &snapshot.vclock {
                Some(vclock) => *vclock <= self.vclock,
                None => snapshot.signature <= self.vclock.signature(),
            };
            if !is_reached {
                let needed = snapshot.vclock.as_ref().map_or_else(|| snapshot.signature.to_string(), Vclock::to_string);
                let (file, reached) = (snapshot.name.clone(), self.vclock.clone());
                self.settle(Finding::FallBackTooShort { file, reached, needed })?;
            }
        }
        Ok(())
    }
}

/// An xlog that is being read.
struct Reading<'a> {
    name: &'a str,
    /// Rows of a transaction whose end the blocks so far do not hold.
    carried: Vec<u8>,
    /// The block in which it begins.
    carried_from: u64,
    /// Whether there is anything but an end after the text header.
    has_content: bool,
}
