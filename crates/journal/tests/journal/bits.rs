//! One wrong bit anywhere in files of ours is never passed over in silence.

use lycosa_iproto::row::{RowBody, RowHeader, encode_row, encode_snapshot_row};
use lycosa_iproto::vclock::Vclock;
use lycosa_journal::block::FIXED_HEADER_BYTES;
use lycosa_journal::decision::{Finding, Mode};
use lycosa_journal::log::Batch;
use lycosa_journal::memory::MemoryDisk;
use lycosa_journal::snap::SnapshotWriter;
use lycosa_journal::writer::{Settings, XlogWriter};
use lycosa_tuple::mp;
use uuid::Uuid;

use crate::support::{directory, recover};

const INSTANCE: Uuid = Uuid::from_u128(0x457d_9794_5488_4899_a2ad_4853_b0fe_da40);
const SPACE: u32 = 512;

fn tuple(id: u64, filling: usize) -> Vec<u8> {
    let mut tuple = Vec::new();
    mp::write_array(&mut tuple, 2);
    mp::write_uint(&mut tuple, id);
    mp::write_str(&mut tuple, &vec![b'x'; filling]);
    tuple
}

/// A snapshot, an xlog that was closed and one whose writer was killed, with plain and compressed blocks.
fn written(preallocated_bytes: u64) -> MemoryDisk {
    let disk = MemoryDisk::new();
    let directory = directory(&disk);
    let mut snapshot = SnapshotWriter::create(directory.clone(), INSTANCE, &Vclock::new(), 1.5).unwrap();
    let mut rows = Vec::new();
    encode_snapshot_row(&mut rows, 0, 1.5, 0, SPACE, &tuple(1000, 5));
    let first = u32::try_from(rows.len()).unwrap();
    encode_snapshot_row(&mut rows, 1, 1.5, 0, SPACE, &tuple(1001, 3000));
    snapshot.add_rows(&rows, &[first, u32::try_from(rows.len()).unwrap()]).unwrap();
    snapshot.finish().unwrap();

    let settings = Settings { compression_level: Some(1), preallocated_bytes, ..Settings::default() };
    let mut log = XlogWriter::create(directory, settings, INSTANCE, Vclock::new()).unwrap();
    for (lsn, filling) in [(1, 5), (2, 3000), (3, 5), (4, 20), (5, 5)] {
        let mut batch = Batch::default();
        let tuple = tuple(lsn, filling);
        let insert = RowBody::Insert { space: SPACE, tuple: &tuple };
        encode_row(&mut batch.rows, &RowHeader::single(1, lsn, 1.5), &insert);
        batch.end_transaction();
        batch.vclock.set(1, lsn).unwrap();
        log.append(&batch).unwrap();
        log.sync().unwrap();
        if lsn == 3 {
            log.rotate().unwrap();
        }
    }
    disk
}

#[test]
fn a_wrong_bit_is_reported_and_takes_nothing_that_was_synced() {
    // A start goes on only where a key gets an unknown name, whose line is reported, and in the header of the
    // empty preallocated tail behind the last block.
    every_wrong_bit_is_reported(0, 3 * 64 + 8 * FIXED_HEADER_BYTES as u64);
}

#[test]
fn a_wrong_bit_in_a_reserve_is_a_torn_tail() {
    let zeros = 60;
    every_wrong_bit_is_reported(zeros, 3 * 64 + 8 * (2 * FIXED_HEADER_BYTES as u64 + zeros));
}

/// At most this many of them are not refused.
fn every_wrong_bit_is_reported(preallocated_bytes: u64, most: u64) {
    let sound = written(preallocated_bytes);
    let files = sound.files();
    assert_eq!(files.len(), 3);
    let (before, collected) = recover(&sound, Mode::Strict).unwrap();
    assert_eq!(collected.ids, [1000, 1001, 1, 2, 3, 4, 5]);
    assert!(
        matches!(before.resolutions[..], [ref only] if matches!(only.finding, Finding::NotClosed { .. }))
    );
    let (mut bits, mut refused) = (0_u64, 0);
    for (name, bytes) in &files {
        for bit in 0..8 * bytes.len() {
            let mut changed = files.clone();
            changed.get_mut(name).unwrap()[bit / 8] ^= 1 << (bit % 8);
            bits += 1;
            match recover(&MemoryDisk::with_files(changed), Mode::Strict) {
                Err(_) => refused += 1,
                Ok((after, _)) => {
                    assert_ne!(
                        after.resolutions,
                        before.resolutions,
                        "bit {} of byte {} of {name}",
                        bit % 8,
                        bit / 8
                    );
                }
            }
        }
    }
    assert!(bits - refused <= most, "{refused} of {bits}");
}
