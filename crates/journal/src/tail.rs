//! Reading the log of a running instance, from a clock on, while it is being written.
//!
//! A replica that was away gets its missing rows from here. The reader goes from block to block and from file to file
//! and says when it has reached the end; its caller knows up to which clock rows are durable and stops there.
//!
//! Absent: any repair. A file that a running instance cannot read on is damage, and said.

use std::io;

use lycosa_iproto::row::decode_row;
use lycosa_iproto::vclock::Vclock;
use lycosa_tuple::mp;

use crate::directory::{Directory, file_name};
use crate::meta::FileKind;
use crate::reader::{FileReader, OpenError, Step};

/// Why the log cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum TailError {
    /// Rows that are wanted stand in files that were removed.
    #[error("Missing .xlog file between LSN {} {wanted} and {} {oldest}", wanted.signature(), oldest.signature())]
    Gap {
        /// What the reader wants to go on from.
        wanted: Box<Vclock>,
        /// Where the oldest existing file begins.
        oldest: Box<Vclock>,
    },
    /// The folder cannot be listed.
    #[error("can't list the journal: {0}")]
    Io(#[from] io::Error),
    /// The disk does not give a file's content.
    #[error("can't read '{file}': {cause}")]
    Read {
        /// Its name.
        file: String,
        /// Why.
        cause: io::Error,
    },
    /// A file cannot be opened.
    #[error("can't open '{file}': {cause}")]
    Open {
        /// Its name.
        file: String,
        /// Why.
        cause: Box<OpenError>,
    },
    /// A file cannot be read on.
    #[error("'{file}' is damaged at offset {offset}")]
    Damaged {
        /// Its name.
        file: String,
        /// Where.
        offset: u64,
    },
}

/// A place in the log.
#[derive(Debug)]
pub struct Tail {
    directory: Directory,
    reader: FileReader,
    signature: u64,
    clock: Vclock,
}

impl Tail {
    /// At the beginning of the newest file that has every row after `position`; rows before it may come first. The
    /// component of local rows is not looked at.
    ///
    /// # Errors
    /// [`TailError::Gap`] if there is no such file; what keeps a file from being read that may be the one.
    pub fn after(directory: &Directory, position: &Vclock) -> Result<Self, TailError> {
        let xlogs = directory.list()?.xlogs;
        let mut oldest = None;
        let mut unread = None;
        for &signature in xlogs.iter().rev() {
            let reader = match open(directory, signature) {
                Ok(reader) => reader,
                Err(error) if is_absent(&error, Some(&signature) == xlogs.last()) => continue,
                Err(error) => {
                    unread = Some(error);
                    continue;
                }
            };
            let begin = reader.meta().vclock.clone();
            if begin.iter().all(|(id, lsn)| id == 0 || lsn <= position.get(id)) {
                return Ok(Self { directory: directory.clone(), reader, signature, clock: begin });
            }
            // Newer files begin later still: what they are is of no account.
            (oldest, unread) = (Some(begin), None);
        }
        // A file that cannot be read now may have the rows. To say that they are gone would cost the replica its data.
        if let Some(error) = unread {
            return Err(error);
        }
        let oldest = Box::new(oldest.unwrap_or_default());
        Err(TailError::Gap { wanted: Box::new(position.clone()), oldest })
    }

    /// Signature of the file that is read now.
    #[must_use]
    pub fn signature(&self) -> u64 {
        self.signature
    }

    /// The clock after the last block that was read.
    #[must_use]
    pub fn clock(&self) -> &Vclock {
        &self.clock
    }

    /// The rows of the next block: whole transactions. None at the current end.
    ///
    /// # Errors
    /// What keeps a file from being read.
    pub fn next_block(&mut self) -> Result<Option<Vec<u8>>, TailError> {
        loop {
            match self.reader.next_block().map_err(|cause| unread(self.signature, cause))? {
                Step::Block(block) => {
                    let rows = block.rows.to_vec();
                    let offset = block.offset;
                    return match advance(&mut self.clock, &rows) {
                        Some(()) => Ok(Some(rows)),
                        None => Err(self.damaged(offset)),
                    };
                }
                Step::End(_) => {}
                Step::Damage(damage) => {
                    let offset = damage.offset;
                    return Err(self.damaged(offset));
                }
            }
            if !self.go_on()? {
                return Ok(None);
            }
        }
    }

    /// Opens the file that follows the one that has ended. False if there is none yet.
    fn go_on(&mut self) -> Result<bool, TailError> {
        let next = self.clock.signature();
        if next == self.signature {
            return Ok(false);
        }
        let xlogs = self.directory.list()?.xlogs;
        if !xlogs.contains(&next) {
            let Some(&later) = xlogs.iter().find(|&&signature| signature > next) else { return Ok(false) };
            let oldest = Box::new(open(&self.directory, later)?.meta().vclock.clone());
            return Err(TailError::Gap { wanted: Box::new(self.clock.clone()), oldest });
        }
        match open(&self.directory, next) {
            Ok(reader) => {
                self.reader = reader;
                self.signature = next;
                Ok(true)
            }
            // Created, and its header is not written yet.
            Err(TailError::Open { cause, .. }) if matches!(*cause, OpenError::Torn(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn damaged(&self, offset: u64) -> TailError {
        TailError::Damaged { file: file_name(FileKind::Xlog, self.signature), offset }
    }
}

fn open(directory: &Directory, signature: u64) -> Result<FileReader, TailError> {
    directory.read(FileKind::Xlog, signature).map_err(|cause| TailError::Open {
        file: file_name(FileKind::Xlog, signature),
        cause: Box::new(cause),
    })
}

fn unread(signature: u64, cause: io::Error) -> TailError {
    TailError::Read { file: file_name(FileKind::Xlog, signature), cause }
}

/// Whether there is no such file: the newest may be without a header yet, and old ones are removed meanwhile.
fn is_absent(error: &TailError, is_newest: bool) -> bool {
    let TailError::Open { cause, .. } = error else { return false };
    match &**cause {
        OpenError::Io(error) => error.kind() == io::ErrorKind::NotFound,
        OpenError::Torn(_) => is_newest,
        OpenError::Meta(_) => false,
    }
}

/// Moves the clock over rows; None if they are none.
fn advance(clock: &mut Vclock, rows: &[u8]) -> Option<()> {
    let mut reader = mp::Reader::new(rows);
    while !reader.is_empty() {
        let (header, _) = decode_row(&mut reader).ok()?;
        clock.set(header.replica_id, header.lsn).ok()?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lycosa_iproto::row::{RowBody, RowHeader, encode_row};
    use uuid::Uuid;

    use super::*;
    use crate::log::Batch;
    use crate::memory::MemoryDisk;
    use crate::writer::{Settings, XlogWriter};

    fn writer(directory: &Directory) -> XlogWriter {
        let settings = Settings::default();
        XlogWriter::create(directory.clone(), settings, Uuid::from_u128(7), Vclock::new()).expect("a log")
    }

    fn append(log: &mut XlogWriter, lsns: std::ops::RangeInclusive<u64>) {
        let mut batch = Batch::default();
        for lsn in lsns {
            encode_row(&mut batch.rows, &RowHeader::single(1, lsn, 1.5), &RowBody::Nop);
            batch.end_transaction();
            batch.vclock.set(1, lsn).expect("an id below 32");
        }
        log.append(&batch).and_then(|()| log.sync()).expect("written");
    }

    fn read(tail: &mut Tail) -> u64 {
        while tail.next_block().expect("a log").is_some() {}
        tail.clock().get(1)
    }

    fn clock(lsn: u64) -> Vclock {
        let mut clock = Vclock::new();
        clock.set(1, lsn).expect("an id below 32");
        clock
    }

    #[test]
    fn the_log_is_followed_from_file_to_file_while_it_is_written() {
        let directory = Directory::on(Arc::new(MemoryDisk::new()));
        let mut log = writer(&directory);
        append(&mut log, 1..=3);
        let mut tail = Tail::after(&directory, &Vclock::new()).expect("a log");
        assert_eq!(read(&mut tail), 3);
        assert_eq!(read(&mut tail), 3);
        append(&mut log, 4..=5);
        assert_eq!(read(&mut tail), 5);
        log.rotate().expect("rotated");
        assert_eq!(read(&mut tail), 5);
        append(&mut log, 6..=6);
        assert_eq!(read(&mut tail), 6);
        let mut second = Tail::after(&directory, &clock(5)).expect("a log");
        assert_eq!(second.clock().get(1), 5);
        assert_eq!(read(&mut second), 6);
        assert_eq!(Tail::after(&directory, &clock(4)).expect("a log").clock().get(1), 0);
    }

    #[test]
    fn a_file_that_is_gone_is_a_gap() {
        let directory = Directory::on(Arc::new(MemoryDisk::new()));
        let mut log = writer(&directory);
        append(&mut log, 1..=3);
        log.rotate().expect("rotated");
        append(&mut log, 4..=5);
        directory.disk().remove(&file_name(FileKind::Xlog, 0)).expect("removed");
        let gap = Tail::after(&directory, &clock(2)).expect_err("gone").to_string();
        assert_eq!(gap, "Missing .xlog file between LSN 2 {1: 2} and 3 {1: 3}");
        assert_eq!(read(&mut Tail::after(&directory, &clock(3)).expect("a log")), 5);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_no_gap() {
        let disk = Arc::new(MemoryDisk::new());
        let directory = Directory::on(Arc::clone(&disk) as Arc<dyn crate::disk::Disk>);
        let mut log = writer(&directory);
        for lsn in [1..=3, 4..=5, 6..=6] {
            append(&mut log, lsn);
            log.rotate().expect("rotated");
        }
        append(&mut log, 7..=8);
        let after = |lsn: u64| Tail::after(&directory, &clock(lsn)).map(|tail| tail.signature());
        let names = [0, 3, 5, 6].map(|signature| file_name(FileKind::Xlog, signature));
        for name in &names {
            disk.fail_reads(name, true);
        }
        for lsn in [2, 8] {
            let error = after(lsn).expect_err("nothing can be read").to_string();
            assert!(error.starts_with("can't open '0000"), "{error}");
        }
        // A newer file is of no account to a reader that wants the rows of an older one.
        disk.fail_reads(&names[0], false);
        disk.fail_reads(&names[1], false);
        assert_eq!(after(3).expect("a log"), 3);
        directory.disk().remove(&names[0]).expect("removed");
        assert!(matches!(after(2), Err(TailError::Gap { .. })));
        let mut tail = Tail::after(&directory, &clock(3)).expect("a log");
        assert!(tail.next_block().expect("rows").is_some());
        let error =
            tail.next_block().and_then(|_| tail.next_block()).expect_err("the next file cannot be read");
        assert!(error.to_string().contains(&names[2]), "{error}");
        disk.fail_reads(&names[2], false);
        disk.fail_reads(&names[3], false);
        assert_eq!(read(&mut tail), 8);
    }
}
