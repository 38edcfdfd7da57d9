//! Tests of the log that every [disk](crate::disk) can run.
//!
//! A disk gives a [`Subject`]: how to open the log, and how to read its batches back. The tests know nothing of files.

#![allow(clippy::missing_panics_doc, reason = "tests fail by panicking")]

use lycosa_iproto::row::{RowBody, RowHeader, encode_row};
use lycosa_iproto::vclock::Vclock;

use crate::log::{Batch, LogError};
use crate::writer::XlogWriter;

/// A disk under test, which starts with an instance that has no rows.
pub trait Subject {
    /// Opens the log after everything in it. Called again after a close or a [`crash`](Self::crash).
    fn open(&mut self) -> XlogWriter;

    /// LSNs of the transactions in the log, in order: each the list of its rows' LSNs.
    fn read_back(&mut self) -> Vec<Vec<u64>>;

    /// Lets the machine die: unsynced bytes may be lost.
    fn crash(&mut self);

    /// Lets the medium refuse the next thing it is asked to do, once.
    fn fail_next(&mut self);
}

/// Makes batches of transactions with consecutive LSNs of replica 1.
#[derive(Debug, Clone, Default)]
pub struct Workload {
    lsn: u64,
}

impl Workload {
    /// A workload that goes on after `lsn`.
    #[must_use]
    pub fn after(lsn: u64) -> Self {
        Self { lsn }
    }

    /// A batch of transactions; `sizes` gives for each transaction the payload bytes of each of its rows.
    #[must_use]
    pub fn batch(&mut self, sizes: &[&[usize]]) -> Batch {
        let mut batch = Batch::default();
        for transaction in sizes {
            let tsn = self.lsn + 1;
            for (row, &bytes) in transaction.iter().enumerate() {
                self.lsn += 1;
                let mut tuple = Vec::new();
                lycosa_tuple::mp::write_array(&mut tuple, 2);
                lycosa_tuple::mp::write_uint(&mut tuple, self.lsn);
                lycosa_tuple::mp::write_bin(&mut tuple, &payload(self.lsn, bytes));
                let is_commit = row + 1 == transaction.len();
                let header =
                    RowHeader { replica_id: 1, group_id: 0, lsn: self.lsn, timestamp: 1.5e9, tsn, is_commit };
                encode_row(&mut batch.rows, &header, &RowBody::Insert { space: 512, tuple: &tuple });
            }
            batch.end_transaction();
        }
        batch.vclock = clock(self.lsn);
        batch
    }
}

/// Bytes that do not compress well and differ from row to row.
fn payload(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// The clock of an instance with id 1 that has written `lsn` rows.
#[must_use]
pub fn clock(lsn: u64) -> Vclock {
    let mut clock = Vclock::new();
    clock.set(1, lsn).expect("1 is a replica id");
    clock
}

/// Runs every test on subjects of their own.
pub fn run<S: Subject>(mut subject: impl FnMut() -> S) {
    keeps_order(&mut subject());
    goes_on_after_a_close(&mut subject());
    keeps_what_was_synced(&mut subject());
    takes_no_empty_batch(&mut subject());
    survives_rotation(&mut subject());
    is_poisoned_by_a_failure(&mut subject());
}

/// Batches come back in order, transactions whole, small and large ones.
pub fn keeps_order(subject: &mut dyn Subject) {
    let mut log = subject.open();
    let mut workload = Workload::default();
    log.append(&workload.batch(&[&[10], &[20, 30], &[0]])).expect("appended");
    log.append(&workload.batch(&[&[100_000], &[40_000, 40_000], &[1]])).expect("appended");
    log.append(&workload.batch(&[&[5; 300]])).expect("appended");
    log.sync().expect("synced");
    assert_eq!(*log.vclock(), clock(308));
    assert_eq!(log.status().transactions, 7);
    drop(log);
    let read = subject.read_back();
    assert_eq!(read.iter().map(Vec::len).collect::<Vec<_>>(), [1, 2, 1, 1, 2, 1, 300]);
    assert_eq!(read.concat(), (1..=308).collect::<Vec<_>>());
}

/// A closed log is opened where it ended, however often.
pub fn goes_on_after_a_close(subject: &mut dyn Subject) {
    let mut workload = Workload::default();
    for round in 0..4 {
        let mut log = subject.open();
        assert_eq!(*log.vclock(), clock(round * 2));
        log.append(&workload.batch(&[&[10], &[20]])).expect("appended");
        log.close().expect("closed");
        drop(log);
        let mut log = subject.open();
        log.close().expect("closed without rows");
    }
    assert_eq!(subject.read_back().concat(), (1..=8).collect::<Vec<_>>());
}

/// Synced batches survive a crash, and nothing comes back that was not appended.
pub fn keeps_what_was_synced(subject: &mut dyn Subject) {
    let mut workload = Workload::default();
    let mut synced = 0;
    for round in 0..4 {
        let mut log = subject.open();
        let reached = log.vclock().get(1);
        assert!(reached >= synced, "{reached} of {synced} rows are left after crash {round}");
        workload = Workload::after(reached);
        log.append(&workload.batch(&[&[10], &[3000]])).expect("appended");
        log.sync().expect("synced");
        synced = log.vclock().get(1);
        log.append(&workload.batch(&[&[10, 10], &[3000]])).expect("appended");
        drop(log);
        subject.crash();
    }
    let read = subject.read_back().concat();
    assert!(read.len() as u64 >= synced && read.len() as u64 <= workload.lsn, "{} rows", read.len());
    assert_eq!(read, (1..=read.len() as u64).collect::<Vec<_>>());
}

/// A batch without transactions changes nothing.
pub fn takes_no_empty_batch(subject: &mut dyn Subject) {
    let mut log = subject.open();
    log.append(&Batch { vclock: clock(99), ..Batch::default() }).expect("taken");
    log.sync().expect("synced");
    assert_eq!(*log.vclock(), clock(0));
    drop(log);
    assert!(subject.read_back().is_empty());
}

/// A rotation between any two batches loses nothing, and one without rows does nothing.
pub fn survives_rotation(subject: &mut dyn Subject) {
    let mut log = subject.open();
    let mut workload = Workload::default();
    for _ in 0..3 {
        log.rotate().expect("rotated");
        log.append(&workload.batch(&[&[10]])).expect("appended");
        log.rotate().expect("rotated");
        log.rotate().expect("rotated twice");
        log.sync().expect("synced");
    }
    log.close().expect("closed");
    drop(log);
    assert_eq!(subject.read_back().concat(), [1, 2, 3]);
}

/// After a failure every call fails, with the first cause.
pub fn is_poisoned_by_a_failure(subject: &mut dyn Subject) {
    let mut log = subject.open();
    let mut workload = Workload::default();
    log.append(&workload.batch(&[&[10]])).expect("appended");
    log.sync().expect("synced");
    subject.fail_next();
    let first = log.append(&workload.batch(&[&[10]])).expect_err("the medium refused");
    assert!(!matches!(first, LogError::Poisoned(_)));
    assert_eq!(*log.vclock(), clock(1), "the clock stays where the last success left it");
    let later = [log.append(&workload.batch(&[&[10]])), log.sync(), log.rotate(), log.close()];
    for error in later.map(|result| result.expect_err("the log is poisoned")) {
        assert!(
            matches!(&error, LogError::Poisoned(cause) if cause.to_string() == first.to_string()),
            "{error}"
        );
    }
    drop(log);
    let read = subject.read_back().concat();
    assert!(read == [1] || read == [1, 2], "{read:?}");
}
