//! Folders of the corpus on a disk in memory, and a target that remembers what it was given.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use lycosa_iproto::row::RowBody;
use lycosa_journal::decision::{Mode, Resolution};
use lycosa_journal::directory::Directory;
use lycosa_journal::memory::MemoryDisk;
use lycosa_journal::recovery::{
    ApplyError, Recovered, Recovery, RecoveryError, RecoveryTarget, Source, Transaction,
};
use lycosa_tuple::mp;

/// The first space that is not a system space.
const FIRST_USER_SPACE: u32 = 512;

pub(crate) fn corpus(folder: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../corpus/files").join(folder)
}

/// The data files of a corpus folder, by name.
pub(crate) fn files(folder: &str) -> BTreeMap<String, Vec<u8>> {
    let path = corpus(folder);
    let entries = fs::read_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let files = entries
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()));
    files.filter(|(name, _)| !name.ends_with(".json") && !name.ends_with(".md")).collect()
}

pub(crate) fn disk(folder: &str) -> MemoryDisk {
    MemoryDisk::with_files(files(folder))
}

pub(crate) fn directory(disk: &MemoryDisk) -> Directory {
    Directory::on(Arc::new(disk.clone()))
}

/// A file as it would be if its text header had no checksum, as Tarantool writes it.
pub(crate) fn without_checksum(file: &[u8]) -> Vec<u8> {
    const LINE: &[u8] = b"Checksum: 00000000\n";
    let begin = file.windows(9).position(|key| key == &LINE[..9]).expect("a header with a checksum");
    [&file[..begin], &file[begin + LINE.len()..]].concat()
}

/// Remembers ids (first fields) inserted into user spaces, LSNs and messages.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    pub(crate) ids: Vec<u64>,
    /// LSNs of the rows of each transaction of the xlogs.
    pub(crate) transactions: Vec<Vec<u64>>,
    pub(crate) snapshot_rows: u64,
    pub(crate) messages: Vec<String>,
    /// Spaces whose transactions wait for a CONFIRM.
    pub(crate) synchronous: Vec<u32>,
    pub(crate) has_left_snapshot: bool,
}

impl RecoveryTarget for Collected {
    fn apply(&mut self, transaction: &Transaction<'_>) -> Result<(), ApplyError> {
        assert!(transaction.rows.last().is_some_and(|row| row.header.is_commit), "a whole transaction");
        match transaction.source {
            Source::Snapshot => self.snapshot_rows += transaction.rows.len() as u64,
            Source::Xlog => {
                assert!(self.has_left_snapshot);
                self.transactions.push(transaction.rows.iter().map(|row| row.header.lsn).collect());
            }
        }
        for row in transaction.rows {
            if let RowBody::Insert { space, tuple } | RowBody::Replace { space, tuple } = row.body
                && space >= FIRST_USER_SPACE
            {
                let mut reader = mp::Reader::new(tuple);
                reader.array()?;
                if let Ok(id) = reader.uint() {
                    self.ids.push(id);
                }
            }
        }
        Ok(())
    }

    fn end_of_snapshot(&mut self) -> Result<(), ApplyError> {
        self.has_left_snapshot = true;
        Ok(())
    }

    fn is_synchronous(&self, space: u32) -> bool {
        self.synchronous.contains(&space)
    }

    fn report(&mut self, resolution: &Resolution) {
        self.messages.push(resolution.to_string());
    }
}

pub(crate) fn recover(disk: &MemoryDisk, mode: Mode) -> Result<(Recovered, Collected), RecoveryError> {
    let recovery = Recovery::open(&directory(disk), mode)?.expect("the folder is not new");
    let mut collected = Collected::default();
    let recovered = recovery.run(&mut collected)?;
    Ok((recovered, collected))
}
