//! Journal files: the reader of blocks, recovery, and the rows in the store.

use std::sync::{Arc, LazyLock};

use lycosa_iproto::vclock::Vclock;
use lycosa_journal::block::{DEFAULT_COMPRESSION_LEVEL, Encoder, MAGIC_END};
use lycosa_journal::decision::Mode;
use lycosa_journal::directory::{Directory, file_name};
use lycosa_journal::disk::Disk;
use lycosa_journal::memory::MemoryDisk;
use lycosa_journal::meta::{FileKind, Meta};
use lycosa_journal::reader::{FileReader, Step};
use lycosa_journal::recovery::{ApplyError, Recovery, RecoveryTarget, Transaction};
use lycosa_journal::transaction::Transactions;

use crate::corpus;
use crate::indexes;
use crate::replay::{new_replay, reloaded};

/// First byte of an input: the rest is a file.
pub(crate) const FILE: u8 = 0;
/// First byte of an input: the rest is rows, of which a sound file is made.
pub(crate) const ROWS: u8 = 1;
/// Added to [`ROWS`]: the file is compressed where that is worth it.
const COMPRESSED: u8 = 2;
/// Added to [`ROWS`]: damage may be skipped.
const FORCE: u8 = 4;

/// More blocks than an input can have: the reader must come to an end before.
const MOST_BLOCKS: usize = 1 << 16;

static SNAPSHOT: LazyLock<Vec<u8>> =
    LazyLock::new(|| corpus::new_instance().expect("the corpus has a new instance"));

static HEADER: LazyLock<Meta> = LazyLock::new(|| {
    let decoded = Meta::decode(&SNAPSHOT, FileKind::Snapshot).expect("the snapshot has a header");
    Meta { kind: FileKind::Xlog, ..decoded.meta }
});

/// Reads a file, and recovers from it: an arbitrary one, or a sound one with arbitrary rows. The recovered data have the
/// same digest after it went through a snapshot.
///
/// # Panics
/// If it has not.
pub fn xlog_file(data: &[u8]) {
    let Some((&first, rest)) = data.split_first() else { return };
    if first & ROWS == 0 {
        let kind = if rest.starts_with(b"SNAP") { FileKind::Snapshot } else { FileKind::Xlog };
        read(rest, kind);
        for mode in [Mode::Strict, Mode::Force] {
            recover_file(rest, kind, mode);
        }
    } else if !rest.is_empty() {
        let mode = if first & FORCE == 0 { Mode::Strict } else { Mode::Force };
        recover_rows(rest, first & COMPRESSED != 0, mode);
    }
}

/// Goes through the blocks of a file, over all damage.
fn read(bytes: &[u8], kind: FileKind) {
    let disk = MemoryDisk::with_files([("file".to_owned(), bytes.to_vec())]);
    let file = disk.open("file").expect("the file is there");
    let mut reader = match FileReader::open(file, kind) {
        Ok(reader) => reader,
        Err(_) => return,
    };
    for _ in 0..MOST_BLOCKS {
        match reader.next_block().expect("the disk works") {
            Step::Block(block) => {
                let mut transactions = Transactions::new(block.rows);
                let mut rows = Vec::new();
                while let Ok(lycosa_journal::transaction::Next::Transaction(_)) = transactions.next(&mut rows)
                {
                }
            }
            Step::End(_) => return,
            Step::Damage(_) => {
                if reader.skip_damage().expect("the disk works").is_none() {
                    return;
                }
            }
        }
    }
    panic!("the reader does not come to an end");
}

/// Counts what it is given.
#[derive(Default)]
struct Counted {
    transactions: u64,
}

impl RecoveryTarget for Counted {
    fn apply(&mut self, transaction: &Transaction<'_>) -> Result<(), ApplyError> {
        assert!(transaction.rows.last().is_some_and(|row| row.header.is_commit), "a whole transaction");
        self.transactions += 1;
        Ok(())
    }

    fn is_synchronous(&self, space: u32) -> bool {
        space.is_multiple_of(2)
    }
}

/// Recovers from a folder in which the file stands where its header says.
fn recover_file(bytes: &[u8], kind: FileKind, mode: Mode) {
    let signature = match Meta::decode(bytes, kind) {
        Ok(decoded) => decoded.meta.vclock.signature(),
        Err(_) => 0,
    };
    let mut files = vec![(file_name(kind, signature), bytes.to_vec())];
    if kind == FileKind::Xlog {
        let instance = Meta::decode(bytes, kind).map_or(HEADER.instance, |decoded| decoded.meta.instance);
        let vclock = Meta::decode(bytes, kind).map_or_else(|_| Vclock::new(), |decoded| decoded.meta.vclock);
        let header = Meta { kind: FileKind::Snapshot, instance, vclock, ..HEADER.clone() };
        let snapshot = [header.encode().as_bytes(), &MAGIC_END].concat();
        files.push((file_name(FileKind::Snapshot, signature), snapshot));
    }
    let directory = Directory::on(Arc::new(MemoryDisk::with_files(files)));
    let recovery = match Recovery::open(&directory, mode) {
        Ok(Some(recovery)) => recovery,
        Ok(None) => return,
        Err(_) => return,
    };
    let _ = recovery.run(&mut Counted::default());
}

/// Recovers a new instance and then the rows.
fn recover_rows(rows: &[u8], compressed: bool, mode: Mode) {
    let mut xlog = HEADER.encode().into_bytes();
    let mut encoder =
        Encoder::new(compressed.then_some(DEFAULT_COMPRESSION_LEVEL)).expect("zstd has that level");
    encoder.encode(rows, &mut xlog).expect("the rows are few");
    xlog.extend_from_slice(&MAGIC_END);
    let files = [(file_name(FileKind::Snapshot, 0), SNAPSHOT.clone()), (file_name(FileKind::Xlog, 0), xlog)];
    let directory = Directory::on(Arc::new(MemoryDisk::with_files(files)));
    let recovery = Recovery::open(&directory, mode).expect("both files are sound").expect("there are files");
    let mut replay = new_replay();
    if recovery.run(&mut replay).is_err() {
        return;
    }
    let Ok(store) = replay.finish() else { return };
    indexes::check(&store);
    match reloaded(&store) {
        Ok(again) => assert_eq!(again.digest(), store.digest(), "a snapshot holds all data"),
        Err(error) => panic!("a snapshot of what was recovered cannot be loaded: {error}"),
    }
}
