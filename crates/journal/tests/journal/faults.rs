//! The disk fails, tears and forgets at every point where it can, and no transaction that was reported
//! durable is lost, none comes back in part, and the next start needs no operator.

use std::io::ErrorKind;
use std::path::PathBuf;

use lycosa_iproto::vclock::Vclock;
use lycosa_journal::decision::Mode;
use lycosa_journal::directory::Directory;
use lycosa_journal::log::{Batch, WalMode};
use lycosa_journal::memory::{Crash, Fault, MemoryDisk};
use lycosa_journal::recovery::Recovery;
use lycosa_journal::snap::{SnapshotError, SnapshotWriter};
use lycosa_journal::suite::{self, Subject, Workload};
use lycosa_journal::writer::{Settings, XlogWriter};
use proptest::prelude::*;
use uuid::Uuid;

use crate::support::{Collected, directory, recover};

const INSTANCE: Uuid = Uuid::from_u128(7);

/// A few batches fit it.
const RESERVE: u64 = 700;

fn settings(max_file_bytes: u64) -> Settings {
    Settings { max_file_bytes, preallocated_bytes: RESERVE, ..Settings::default() }
}

pub(crate) fn bootstrap(directory: &Directory) -> Result<(), SnapshotError> {
    let mut snapshot = SnapshotWriter::create(directory.clone(), INSTANCE, &Vclock::new(), 1.5)?;
    snapshot.add(0, 272, &[0x92, 0xa1, b'k', 0x01])?;
    snapshot.finish().map(|_| ())
}

pub(crate) fn open(directory: &Directory, settings: Settings) -> XlogWriter {
    let recovery = Recovery::open(directory, Mode::Strict).unwrap().unwrap();
    let recovered = recovery.run(&mut Collected::default()).unwrap();
    XlogWriter::resume(directory.clone(), settings, &recovered).unwrap()
}

fn read_back(directory: &Directory) -> Vec<Vec<u64>> {
    let mut collected = Collected::default();
    Recovery::open(directory, Mode::Strict).unwrap().unwrap().run(&mut collected).unwrap();
    collected.transactions
}

/// The suite's subject in memory.
struct InMemory {
    disk: MemoryDisk,
    max_file_bytes: u64,
}

impl Subject for InMemory {
    fn open(&mut self) -> XlogWriter {
        open(&directory(&self.disk), settings(self.max_file_bytes))
    }

    fn read_back(&mut self) -> Vec<Vec<u64>> {
        read_back(&directory(&self.disk))
    }

    fn crash(&mut self) {
        self.disk = self.disk.crash(Crash::Machine);
    }

    fn fail_next(&mut self) {
        self.disk.fail_after(0, Fault::ShortWrite(3));
    }
}

#[test]
fn the_writer_passes_the_suite_in_memory() {
    for max_file_bytes in [0, 1000, u64::MAX] {
        suite::run(|| {
            let disk = MemoryDisk::new();
            bootstrap(&directory(&disk)).unwrap();
            InMemory { disk, max_file_bytes }
        });
    }
}

/// The suite's subject in a real folder. It cannot make the disk fail, but for taking the next file's name
/// away.
struct InFolder {
    folder: tempfile::TempDir,
    directory: Option<Directory>,
    mode: WalMode,
}

impl InFolder {
    fn new(mode: WalMode) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::open(folder.path()).unwrap();
        bootstrap(&directory).unwrap();
        Self { folder, directory: Some(directory), mode }
    }

    fn directory(&mut self) -> Directory {
        let path: PathBuf = self.folder.path().to_owned();
        self.directory.get_or_insert_with(|| Directory::open(&path).unwrap()).clone()
    }
}

impl Subject for InFolder {
    fn open(&mut self) -> XlogWriter {
        let directory = self.directory();
        open(&directory, Settings { mode: self.mode, ..settings(0) })
    }

    fn read_back(&mut self) -> Vec<Vec<u64>> {
        read_back(&self.directory())
    }

    fn crash(&mut self) {
        self.directory = None;
    }

    fn fail_next(&mut self) {
        std::fs::write(self.folder.path().join("00000000000000000001.xlog.inprogress"), "in the way")
            .unwrap();
    }
}

#[test]
fn the_writer_passes_the_suite_in_a_folder() {
    for mode in [WalMode::Write, WalMode::Fsync] {
        suite::run(|| InFolder::new(mode));
    }
}

#[test]
fn mode_none_writes_nothing() {
    let disk = MemoryDisk::new();
    bootstrap(&directory(&disk)).unwrap();
    let files = disk.files();
    let mut log = open(&directory(&disk), Settings { mode: WalMode::None, ..Settings::default() });
    let before = disk.operations();
    log.append(&Workload::default().batch(&[&[10]])).unwrap();
    log.sync().unwrap();
    log.rotate().unwrap();
    log.close().unwrap();
    assert_eq!(*log.vclock(), suite::clock(1));
    assert_eq!(disk.operations(), before);
    assert_eq!(disk.files(), files);
}

#[test]
fn a_start_makes_the_names_durable_that_it_has_found() {
    let whole = MemoryDisk::new();
    bootstrap(&directory(&whole)).unwrap();
    for mode in [WalMode::None, WalMode::Write, WalMode::Fsync] {
        let disk = MemoryDisk::new();
        disk.fail_after(whole.operations() - 1, Fault::Freeze);
        bootstrap(&directory(&disk)).unwrap_err();
        let killed = disk.crash(Crash::Process);
        let is_there = || {
            let image = killed.crash(Crash::Machine);
            Recovery::open(&directory(&image), Mode::Strict).unwrap().is_some()
        };
        assert!(!is_there(), "the snapshot has its name, and the folder was not synced");
        drop(open(&directory(&killed), Settings { mode, ..Settings::default() }));
        assert!(is_there(), "{mode}");
    }
}

/// The batches appended between two syncs, in rounds.
type Plan = Vec<Vec<Batch>>;

fn plan(rounds: &[&[&[&[usize]]]]) -> Plan {
    let mut workload = Workload::default();
    rounds.iter().map(|round| round.iter().map(|batch| workload.batch(batch)).collect()).collect()
}

/// Runs a plan until something fails; returns the LSN reached by the last sync that succeeded.
fn run(log: &mut XlogWriter, plan: &Plan, is_closed: bool) -> u64 {
    let mut durable = log.vclock().get(1);
    for round in plan {
        for batch in round {
            if log.append(batch).is_err() {
                return durable;
            }
        }
        if log.sync().is_err() {
            return durable;
        }
        durable = log.vclock().get(1);
    }
    if is_closed {
        let _ = log.close();
    }
    durable
}

/// Recovers an image, checks it against the plan, writes on and recovers again.
pub(crate) fn check_image(image: &MemoryDisk, plan: &Plan, at_least: u64, place: &str) {
    let expected: Vec<Vec<u64>> = plan.iter().flatten().flat_map(transactions).collect();
    let (recovered, collected) =
        recover(image, Mode::Strict).unwrap_or_else(|error| panic!("{place}: {error}"));
    let reached = recovered.vclock.get(1);
    assert!(reached >= at_least, "{place}: {reached} of {at_least} durable rows are left");
    assert!(expected.starts_with(&collected.transactions), "{place}: {:?}", collected.transactions);
    assert_eq!(collected.transactions.concat().len() as u64, reached, "{place}");
    assert!(!recovered.has_lost_data());

    let mut log = XlogWriter::resume(directory(image), Settings::default(), &recovered).unwrap();
    log.append(&Workload::after(reached).batch(&[&[1, 1]])).unwrap();
    log.sync().unwrap();
    let second = recover(&image.crash(Crash::Machine), Mode::Strict);
    let (second, _) = second.unwrap_or_else(|error| panic!("{place}, then the machine: {error}"));
    assert_eq!(second.vclock.get(1), reached + 2, "{place}, then the machine");
    log.close().unwrap();
    let (again, more) = recover(image, Mode::Strict).unwrap_or_else(|error| panic!("{place}: {error}"));
    assert_eq!(again.vclock.get(1), reached + 2, "{place}");
    assert_eq!(more.transactions.len(), collected.transactions.len() + 1, "{place}");
    assert!(again.empty_xlog.is_some(), "{place}");
}

/// LSNs of the rows of each transaction of a batch.
fn transactions(batch: &Batch) -> Vec<Vec<u64>> {
    let mut transactions = lycosa_journal::transaction::Transactions::new(&batch.rows);
    let mut rows = Vec::new();
    std::iter::from_fn(|| match transactions.next(&mut rows).unwrap() {
        lycosa_journal::transaction::Next::Transaction(_) => {
            Some(rows.iter().map(|row| row.header.lsn).collect())
        }
        _ => None,
    })
    .collect()
}

#[test]
fn a_fault_at_every_operation_loses_nothing_durable() {
    let plan = plan(&[
        &[&[&[10]], &[&[20, 30], &[5]]],
        &[&[&[600, 600], &[3000]]],
        &[&[&[1900], &[10, 10]], &[&[7]]],
        &[&[&[1]]],
    ]);
    let start = || {
        let disk = MemoryDisk::new();
        bootstrap(&directory(&disk)).unwrap();
        disk
    };
    for max_file_bytes in [0, 4000, u64::MAX] {
        let disk = start();
        let before = disk.operations();
        assert_eq!(run(&mut open(&directory(&disk), settings(max_file_bytes)), &plan, true), 12);
        let operations = disk.operations() - before;
        assert!(operations > 10);
        for at in 0..operations {
            for fault in [Fault::Freeze, Fault::Fail(ErrorKind::StorageFull), Fault::ShortWrite(20)] {
                let disk = start();
                let mut log = open(&directory(&disk), settings(max_file_bytes));
                disk.fail_after(at, fault);
                let durable = run(&mut log, &plan, true);
                drop(log);
                for crash in [Crash::Process, Crash::Machine, Crash::Torn(7), Crash::Zeroed(600)] {
                    let place = format!("files of {max_file_bytes}, {fault:?} at {at}, {crash:?}");
                    check_image(&disk.crash(crash), &plan, durable, &place);
                }
            }
        }
    }
}

#[test]
fn a_fault_in_a_snapshot_leaves_none() {
    let whole = MemoryDisk::new();
    bootstrap(&directory(&whole)).unwrap();
    for at in 0..whole.operations() {
        for fault in [Fault::Freeze, Fault::ShortWrite(10)] {
            let disk = MemoryDisk::new();
            disk.fail_after(at, fault);
            bootstrap(&directory(&disk)).unwrap_err();
            for crash in [Crash::Process, Crash::Machine, Crash::Zeroed(0)] {
                let image = disk.crash(crash);
                match Recovery::open(&directory(&image), Mode::Strict).unwrap() {
                    None => {}
                    Some(recovery) => {
                        // The name is the last thing a snapshot gets, after all its bytes are durable.
                        let mut collected = Collected::default();
                        recovery.run(&mut collected).unwrap();
                        assert_eq!(collected.snapshot_rows, 1);
                    }
                }
            }
        }
    }
}

fn batches() -> impl Strategy<Value = Vec<Vec<Vec<usize>>>> {
    let row = prop_oneof![0_usize..40, 0_usize..40, 0_usize..3000];
    let transaction = proptest::collection::vec(row, 1..4);
    proptest::collection::vec(proptest::collection::vec(transaction, 1..5), 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn whatever_a_crash_leaves_is_a_prefix_of_whole_transactions(
        batches in batches(),
        synced in 0_usize..8,
        kept in 0_usize..12_000,
        is_zeroed in any::<bool>(),
        max_file_bytes in prop_oneof![Just(0), Just(5000), Just(u64::MAX)],
    ) {
        let disk = MemoryDisk::new();
        bootstrap(&directory(&disk)).unwrap();
        let mut workload = Workload::default();
        let mut round: Vec<Batch> = batches
            .iter()
            .map(|batch| workload.batch(&batch.iter().map(Vec::as_slice).collect::<Vec<_>>()))
            .collect();
        let rest = round.split_off(synced.min(round.len()));
        let plan = vec![round, rest];

        let mut log = open(&directory(&disk), settings(max_file_bytes));
        let durable = run(&mut log, &plan[..1].to_vec(), false);
        for batch in &plan[1] {
            log.append(batch).unwrap();
        }
        drop(log);
        let crash = if is_zeroed { Crash::Zeroed(kept) } else { Crash::Torn(kept) };
        let image = disk.crash(crash);
        // Zeros that are too few to tell a lost sector from rows that end in zeros stop the start instead.
        let telling = |bytes: &Vec<u8>| !(1..16).contains(&(bytes.len() % 512));
        if !is_zeroed || image.files().values().all(telling) {
            check_image(&image, &plan, durable, &format!("{crash:?}"));
        }
        check_image(&disk.crash(Crash::Process), &plan, workload_end(&plan), "process");
    }
}

fn workload_end(plan: &Plan) -> u64 {
    plan.iter().flatten().last().map_or(0, |batch| batch.vclock.get(1))
}
