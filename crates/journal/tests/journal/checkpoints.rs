//! Checkpoints and the removal of old files on a disk that fails at every point where it can: nothing durable is lost,
//! and the journal goes on, whether a snapshot succeeds or fails.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use lycosa_iproto::row::{RowBody, RowHeader, encode_row, encode_snapshot_row};
use lycosa_iproto::vclock::Vclock;
use lycosa_journal::block::BLOCK_TARGET_BYTES;
use lycosa_journal::decision::Mode;
use lycosa_journal::directory::Directory;
use lycosa_journal::log::Batch;
use lycosa_journal::memory::{Crash, Fault, MemoryDisk};
use lycosa_journal::recovery::Recovery;
use lycosa_journal::retention::{Inventory, Rule, collect};
use lycosa_journal::snap::{SnapshotError, SnapshotWriter};
use lycosa_journal::writer::{Settings, XlogWriter};
use lycosa_tuple::mp;
use uuid::Uuid;

use crate::support::{Collected, directory, recover};

const INSTANCE: Uuid = Uuid::from_u128(7);
const SPACE: u32 = 512;
/// Bytes of a tuple's second field.
const FILLING: usize = 3000;

fn tuple(id: u64) -> Vec<u8> {
    let mut tuple = Vec::new();
    mp::write_array(&mut tuple, 2);
    mp::write_uint(&mut tuple, id);
    mp::write_str(&mut tuple, &[b'x'; FILLING]);
    tuple
}

fn clock(lsn: u64) -> Vclock {
    let mut vclock = Vclock::new();
    vclock.set(1, lsn).unwrap();
    vclock
}

/// An insert of a tuple whose id is the LSN.
fn batch(lsn: u64) -> Batch {
    let mut batch = Batch::default();
    let tuple = tuple(lsn);
    let header = RowHeader { replica_id: 1, tsn: lsn, ..RowHeader::single(1, lsn, 1.5) };
    encode_row(&mut batch.rows, &header, &RowBody::Insert { space: SPACE, tuple: &tuple });
    batch.end_transaction();
    batch.vclock = clock(lsn);
    batch
}

/// Writes a snapshot with the tuples 1 to `lsn`, and removes it again if that fails.
fn snapshot(directory: &Directory, lsn: u64) -> Result<(), SnapshotError> {
    let mut writer = SnapshotWriter::create(directory.clone(), INSTANCE, &clock(lsn), 1.5)?;
    let (mut rows, mut ends) = (Vec::new(), Vec::new());
    for id in 1..=lsn {
        encode_snapshot_row(&mut rows, id - 1, 1.5, 0, SPACE, &tuple(id));
        ends.push(u32::try_from(rows.len()).unwrap());
    }
    match writer.add_rows(&rows, &ends) {
        Ok(()) => writer.finish().map(|_| ()),
        Err(error) => {
            let _ = writer.abandon();
            Err(error)
        }
    }
}

/// The rows reported durable, and the newest snapshot that was reported complete.
#[derive(Debug, Default, Clone, Copy)]
struct Reached {
    durable: u64,
    snapshot: u64,
}

/// Appends rows and takes a checkpoint now and then, as a server does; stops when the journal fails.
fn work(directory: &Directory) -> Reached {
    let mut reached = Reached::default();
    let recovered = Recovery::open(directory, Mode::Strict).unwrap().unwrap();
    let recovered = recovered.run(&mut Collected::default()).unwrap();
    let Ok(mut log) = XlogWriter::resume(directory.clone(), Settings::default(), &recovered) else {
        return reached;
    };
    for lsn in 1..=9 {
        if log.append(&batch(lsn)).and_then(|()| log.sync()).is_err() {
            return reached;
        }
        reached.durable = lsn;
        if lsn % 2 == 0 {
            if log.rotate().is_err() {
                return reached;
            }
            if snapshot(directory, lsn).is_ok() {
                reached.snapshot = lsn;
                // A file that could not be removed still exists the next time.
                let rule = Rule { sound: lsn, snapshots: 2, bytes: u64::MAX, held_from: u64::MAX };
                let _ = collect(directory, &rule);
            }
        }
    }
    let _ = log.close();
    reached
}

fn bootstrapped() -> MemoryDisk {
    let disk = MemoryDisk::new();
    snapshot(&directory(&disk), 0).unwrap();
    disk
}

#[test]
fn old_files_go_and_what_a_start_needs_stays() {
    let disk = bootstrapped();
    let reached = work(&directory(&disk));
    assert_eq!((reached.durable, reached.snapshot), (9, 8));
    let names: Vec<_> = disk.files().into_keys().collect();
    let expected = ["6.snap", "6.xlog", "8.snap", "8.xlog", "9.xlog"];
    assert_eq!(names, expected.map(|name| format!("{:0>width$}", name, width = 20 + name.len() - 1)));
    let inventory = Inventory::of(&directory(&disk)).unwrap();
    assert_eq!(inventory.oldest_vclock(&directory(&disk)), Some(clock(6)));
    assert_eq!(inventory.snapshot_bytes(8), disk.files()[&names[2]].len() as u64);
    assert_eq!(
        inventory.journal_bytes(8),
        names[3..].iter().map(|name| disk.files()[name].len() as u64).sum::<u64>()
    );
    let (recovered, collected) = recover(&disk, Mode::Strict).unwrap();
    assert_eq!((recovered.snapshot, recovered.vclock), (clock(8), clock(9)));
    assert_eq!(collected.ids, (1..=9).collect::<Vec<_>>());
}

#[test]
fn a_fault_at_every_operation_of_checkpoints_loses_nothing_durable() {
    let disk = bootstrapped();
    let before = disk.operations();
    work(&directory(&disk));
    let operations = disk.operations() - before;
    assert!(operations > 50, "{operations}");
    for at in 0..operations {
        for fault in [Fault::Freeze, Fault::Fail(ErrorKind::StorageFull), Fault::ShortWrite(20)] {
            let disk = bootstrapped();
            disk.fail_after(at, fault);
            let reached = work(&directory(&disk));
            for crash in [Crash::Process, Crash::Machine, Crash::Torn(7), Crash::Zeroed(600)] {
                let place = format!("{fault:?} at {at}, {crash:?}, {reached:?}");
                let image = disk.crash(crash);
                let (recovered, collected) =
                    recover(&image, Mode::Strict).unwrap_or_else(|error| panic!("{place}: {error}"));
                let ids: BTreeSet<u64> = collected.ids.iter().copied().collect();
                let lsn = recovered.vclock.get(1);
                assert!(lsn >= reached.durable, "{place}: {lsn}");
                assert_eq!(ids, (1..=lsn).collect(), "{place}");
                assert!(recovered.snapshot.get(1) >= reached.snapshot, "{place}: {}", recovered.snapshot);
                assert!(!recovered.has_lost_data(), "{place}");
            }
            if fault != Fault::Freeze {
                let mut left = directory(&disk).list().unwrap().in_progress;
                left.retain(|name| name.contains(".snap"));
                assert!(left.is_empty(), "{fault:?} at {at} leaves {left:?}");
            }
        }
    }
}

#[test]
fn an_older_snapshot_makes_up_for_a_damaged_one() {
    let disk = bootstrapped();
    work(&directory(&disk));
    for damaged in ["00000000000000000008.snap", "00000000000000000006.snap"] {
        let mut files = disk.files();
        files.get_mut(damaged).unwrap()[200] ^= 1;
        let (recovered, collected) = recover(&MemoryDisk::with_files(files), Mode::Strict).unwrap();
        assert_eq!(recovered.vclock, clock(9));
        assert_eq!(collected.ids, (1..=9).collect::<Vec<_>>());
    }
}

/// No checksum covers the text headers. Every fifth bit: each byte has a bit flipped, and each place in a byte has
/// its turn.
#[test]
fn an_older_snapshot_makes_up_for_any_bit_of_a_header() {
    let disk = bootstrapped();
    work(&directory(&disk));
    for damaged in ["00000000000000000008.snap", "00000000000000000006.snap"] {
        let header = disk.files()[damaged].windows(2).position(|end| end == b"\n\n").unwrap();
        for bit in (0..(header + 2) * 8).step_by(5) {
            let mut files = disk.files();
            files.get_mut(damaged).unwrap()[bit / 8] ^= 1 << (bit % 8);
            let (recovered, collected) = recover(&MemoryDisk::with_files(files), Mode::Strict)
                .unwrap_or_else(|error| panic!("bit {bit} of {damaged}: {error}"));
            assert_eq!(
                (recovered.instance, recovered.vclock),
                (INSTANCE, clock(9)),
                "bit {bit} of {damaged}"
            );
            assert_eq!(collected.ids, (1..=9).collect::<Vec<_>>());
        }
    }
}

#[test]
fn rows_that_come_encoded_make_the_same_file() {
    const COUNT: u64 = 200;
    let (plain, encoded) = (MemoryDisk::new(), MemoryDisk::new());
    let mut writer = SnapshotWriter::create(directory(&plain), INSTANCE, &clock(5), 1.5).unwrap();
    for id in 0..COUNT {
        writer.add(u32::from(id % 2 == 0), SPACE, &tuple(id)).unwrap();
    }
    let written = writer.finish().unwrap();
    let mut writer = SnapshotWriter::create(directory(&encoded), INSTANCE, &clock(5), 1.5).unwrap();
    let (mut rows, mut ends) = (Vec::new(), Vec::new());
    for id in 0..COUNT {
        encode_snapshot_row(&mut rows, id, 1.5, u32::from(id % 2 == 0), SPACE, &tuple(id));
        ends.push(u32::try_from(rows.len()).unwrap());
        // Chunks of one row, of a few and of more than a block.
        if [0, 3, 4, 120].contains(&id) || id + 1 == COUNT {
            writer.add_rows(&rows, &ends).unwrap();
            rows.clear();
            ends.clear();
        }
    }
    assert_eq!(writer.finish().unwrap(), written);
    assert_eq!(written.rows, COUNT);
    assert!(COUNT as usize * FILLING > 4 * BLOCK_TARGET_BYTES, "several blocks");
    assert_eq!(plain.files(), encoded.files());
}

#[test]
fn a_snapshot_that_is_given_up_leaves_nothing() {
    let disk = bootstrapped();
    let files = disk.files();
    let mut writer = SnapshotWriter::create(directory(&disk), INSTANCE, &clock(5), 1.5).unwrap();
    writer.add(0, SPACE, &tuple(1)).unwrap();
    assert_ne!(disk.files(), files);
    writer.abandon().unwrap();
    assert_eq!(disk.files(), files);
}

/// A machine that dies after removing names in any order: each remaining snapshot has its xlogs.
#[test]
fn no_order_of_removals_leaves_a_snapshot_without_its_xlogs() {
    let names = |signatures: &[u64], suffix| {
        signatures
            .iter()
            .map(|signature| (format!("{signature:020}.{suffix}"), vec![7; 10]))
            .collect::<Vec<_>>()
    };
    let files = [names(&[0, 20, 40], "snap"), names(&[0, 10, 20, 30, 40], "xlog")].concat();
    for operation in 0..9 {
        for seed in 0..64 {
            let disk = MemoryDisk::with_files(files.clone());
            disk.fail_after(operation, Fault::Freeze);
            let rule = Rule { sound: 40, snapshots: 1, bytes: u64::MAX, held_from: u64::MAX };
            let _ = collect(&directory(&disk), &rule);
            let left = directory(&disk.crash(Crash::Scattered(seed))).list().unwrap();
            let oldest = left.snapshots[0];
            for signature in [0, 10, 20, 30, 40].into_iter().filter(|&signature| signature >= oldest) {
                assert!(left.xlogs.contains(&signature), "operation {operation}, seed {seed}: {left:?}");
            }
        }
    }
}
