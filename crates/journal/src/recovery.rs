//! Recovery: from a data folder to the rows that make up the database, each transaction once, whole, and in
//! order.
//!
//! 1. The newest sound snapshot. If there is another to fall back to, a snapshot's checksums are verified
//!    before the first row is handed over.
//! 2. The xlogs from the one that holds the snapshot's moment on. Rows that the clock has already seen are
//!    skipped.
//! 3. Each file must begin where the one before it ended.
//!
//! Every irregularity becomes a [`Finding`], and the table in [`crate::decision`] says what follows.
//!
//! Invariants:
//! - nothing in the folder is changed: the changes that files need are in [`Recovered::repairs`];
//! - no transaction is handed over in part, and none before the one ahead of it in the log;
//! - the clock counts whole transactions only.
//!
//! Absent: what a row means, the exception being which spaces are synchronous, and that is asked of the
//! [`RecoveryTarget`].

use std::error::Error;
use std::io;
use std::path::PathBuf;

use lycosa_iproto::vclock::Vclock;
use uuid::Uuid;

use crate::decision::{Category, Decision, Finding, Mode, Resolution, decide};
use crate::directory::Directory;
use crate::empty_xlog::EmptyXlog;
use crate::transaction::Row;

mod choice;
mod plan;
mod replay;

pub use plan::Recovery;

/// Where a row stood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// In the snapshot: the tuple is simply there.
    Snapshot,
    /// In an xlog: the change happened after the snapshot.
    Xlog,
}

/// The progress of recovery.
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
    /// The progress of recovery before it.
    pub progress: Progress,
}

/// Why a target did not take a transaction.
pub type ApplyError = Box<dyn Error + Send + Sync>;

/// Takes recovered rows.
pub trait RecoveryTarget {
    /// Takes a transaction. CONFIRM and ROLLBACK rows come too, after their effect on the transactions
    /// handed over.
    ///
    /// # Errors
    /// Any error stops recovery; in [`Mode::Force`] that of a transaction of an xlog is reported, and rows of the
    /// transaction before the one that failed may have been taken.
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

    /// Recovery found something and decided about it; worth a line in the log.
    fn report(&mut self, resolution: &Resolution) {
        let _ = resolution;
    }
}

/// Why there is no database.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// The table says so.
    #[error("{0}")]
    Refused(Box<Resolution>),
    /// The disk cannot be read.
    #[error("can't read {}: {cause}", .file.display())]
    Io {
        /// The file or folder.
        file: PathBuf,
        /// What the operating system said.
        #[source]
        cause: io::Error,
    },
    /// A sound row of a snapshot could not be applied: it was written by something that this version does not
    /// understand, or rows that it depends on were given up.
    #[error(
        "can't apply row {row} of the snapshot '{file}' (block at offset {offset}): {cause}; rows that it needs are \
         damaged, or another version has written it: put a sound copy back. `lycosa cat {file}` shows the rows that can \
         be read"
    )]
    Apply {
        /// Name of the file.
        file: String,
        /// Where the block begins.
        offset: u64,
        /// Number of the row.
        row: u64,
        /// What the target said.
        cause: ApplyError,
    },
}

impl RecoveryError {
    /// The kind of refusal, for the exit code.
    #[must_use]
    pub fn category(&self) -> Category {
        match self {
            Self::Refused(resolution) => match resolution.decision {
                Decision::Refuse(category) => category,
                _ => Category::Damaged,
            },
            Self::Apply { .. } => Category::Damaged,
            Self::Io { .. } => Category::Disk,
        }
    }
}

/// The change that a file needs before the log is written on.
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
    pub resolutions: Vec<Resolution>,
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
    /// Whether data that was once reported durable was given up (only in [`Mode::Force`]). The files still
    /// hold the damage: a checkpoint ought to follow at once.
    #[must_use]
    pub fn has_lost_data(&self) -> bool {
        self.resolutions.iter().any(Resolution::loses_data)
    }
}

/// An xlog that is to be read.
#[derive(Debug)]
struct Xlog {
    name: String,
    signature: u64,
    vclock: Vclock,
    bytes: u64,
    unknown_keys: Vec<String>,
}

fn io_error(directory: &Directory, name: &str, cause: io::Error) -> RecoveryError {
    RecoveryError::Io { file: directory.path(name), cause }
}

/// What recovery has found so far and decided about it.
struct Ledger {
    mode: Mode,
    resolutions: Vec<Resolution>,
    repairs: Vec<Repair>,
}

impl Ledger {
    /// Decides about a finding, and records the repair that the decision asks for.
    fn resolve(&mut self, finding: Finding) -> Result<Decision, RecoveryError> {
        let decision = decide(&finding, self.mode);
        let resolution = Resolution { finding, decision };
        match (&resolution.finding, decision) {
            (_, Decision::Refuse(_)) => return Err(RecoveryError::Refused(Box::new(resolution))),
            (Finding::LeftOver { file }, Decision::Remove) => self.repairs.push(Repair::Remove(file.clone())),
            (
                Finding::BadHeader { file, .. }
                | Finding::Foreign { file, .. }
                | Finding::TornHeader { file, .. },
                Decision::SetAside,
            ) => self.repairs.push(Repair::SetAside(file.clone())),
            _ => {}
        }
        self.resolutions.push(resolution);
        Ok(decision)
    }
}
