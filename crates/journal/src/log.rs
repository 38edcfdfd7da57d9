//! Input and output of the log: batches of transactions, modes, errors.
//!
//! The log is [`crate::writer::XlogWriter`]. The seam behind which the medium may change is [`crate::disk`]; on every
//! medium the log passes the tests of [`crate::suite`]:
//! - batches are kept in the order of `append`, each transaction wholly or not at all;
//! - batches appended before a successful `sync` survive everything that the log's mode promises to survive;
//! - after a failure nothing is taken any more: a log that failed once answers [`LogError::Poisoned`] with
//!   the first cause until it is recovered. Rows of the failed call may or may not be there after that.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use lycosa_iproto::vclock::Vclock;

use crate::block::{EncodeError, MAX_BODY_BYTES};

/// Transactions to be written with one call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// Encoded rows, back to back.
    pub rows: Vec<u8>,
    /// For each transaction the offset in [`rows`](Self::rows) after its last row; ascending.
    pub ends: Vec<u32>,
    /// The clock after the last row.
    pub vclock: Vclock,
}

impl Batch {
    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Declares that everything in [`rows`](Self::rows) after the last end is one transaction; nothing if
    /// nothing is.
    ///
    /// # Panics
    /// When the rows are past 4 GiB: callers hand a batch over long before.
    pub fn end_transaction(&mut self) {
        let end = u32::try_from(self.rows.len()).expect("a batch is handed over before it has 4 GiB");
        if self.ends.last().copied().unwrap_or(0) < end {
            self.ends.push(end);
        }
    }

    /// Empties the batch, keeping its memory. The clock stays.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.ends.clear();
    }

    /// The transactions, as slices of [`rows`](Self::rows).
    pub fn transactions(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(0).chain(self.ends.iter().map(|&end| end as usize));
        begins.zip(&self.ends).map(|(begin, &end)| &self.rows[begin..end as usize])
    }
}

/// What a durable reply promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WalMode {
    /// Nothing is written between checkpoints.
    None,
    /// The rows are in the operating system's hands: they survive the process.
    Write,
    /// The rows are on the disk: they survive the machine.
    #[default]
    Fsync,
}

impl fmt::Display for WalMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Write => "write",
            Self::Fsync => "fsync",
        })
    }
}

/// A name that is no [`WalMode`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown wal_mode '{0}': expected none, write or fsync")]
pub struct UnknownWalMode(String);

impl FromStr for WalMode {
    type Err = UnknownWalMode;

    fn from_str(name: &str) -> Result<Self, UnknownWalMode> {
        match name {
            "none" => Ok(Self::None),
            "write" => Ok(Self::Write),
            "fsync" => Ok(Self::Fsync),
            other => Err(UnknownWalMode(other.to_owned())),
        }
    }
}

/// Why rows were not taken.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The disk refused. The log is poisoned.
    #[error("can't {action} {}: {cause}", .file.display())]
    Io {
        /// The operation that failed: "write", "sync", "create" …
        action: &'static str,
        /// On which file.
        file: PathBuf,
        /// What the operating system said.
        cause: Arc<io::Error>,
    },
    /// A transaction is over the limit of a block. Nothing was written, and the log is as it was.
    #[error("a transaction of {0} bytes is over the journal's limit of {MAX_BODY_BYTES}")]
    TooLong(usize),
    /// zstd found no memory. Nothing was written, and the log is as it was.
    #[error("{0}")]
    Compression(String),
    /// An earlier call failed; this is its cause.
    #[error("the journal takes no more rows since it failed: {0}")]
    Poisoned(Arc<LogError>),
}

impl From<EncodeError> for LogError {
    fn from(error: EncodeError) -> Self {
        match error {
            EncodeError::TooLong(bytes) => Self::TooLong(bytes),
            EncodeError::Compression(_) => Self::Compression(error.to_string()),
        }
    }
}

/// What a log has done since it was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogStatus {
    /// Name of the file being written, if there is one.
    pub file: Option<String>,
    /// Bytes in that file.
    pub file_bytes: u64,
    /// Files begun.
    pub files: u64,
    /// Batches appended.
    pub batches: u64,
    /// Transactions appended.
    pub transactions: u64,
    /// Bytes of rows appended, as encoded.
    pub row_bytes: u64,
    /// Bytes written for them, as stored.
    pub stored_bytes: u64,
    /// Calls of the disk's sync that succeeded.
    pub syncs: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_gives_back_its_transactions() {
        let mut batch = Batch::default();
        assert!(batch.is_empty());
        batch.rows.extend_from_slice(b"abc");
        batch.end_transaction();
        batch.end_transaction();
        batch.rows.extend_from_slice(b"de");
        batch.end_transaction();
        assert_eq!(batch.transactions().collect::<Vec<_>>(), [b"abc".as_slice(), b"de"]);
        batch.clear();
        assert_eq!(batch.transactions().count(), 0);
    }

    #[test]
    fn modes_have_names() {
        for mode in [WalMode::None, WalMode::Write, WalMode::Fsync] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        assert!("sync".parse::<WalMode>().is_err());
    }
}
