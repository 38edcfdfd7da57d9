//! The machine dies while its drive writes in an order of its own. Of a batch that was not synced, each sector is on the
//! disk or not, and the file has its old length, the new one, or any between them. The start needs no operator, has
//! everything that was acknowledged, and of the rest whole transactions in order. One wrong bit in synced bytes still
//! stops it.

use lycosa_journal::block::FIXED_HEADER_BYTES;
use lycosa_journal::decision::{Category, Mode};
use lycosa_journal::log::Batch;
use lycosa_journal::memory::{Crash, Fault, MemoryDisk};
use lycosa_journal::recovery::RecoveryError;
use lycosa_journal::suite::Workload;
use lycosa_journal::writer::{Settings, XlogWriter};
use proptest::prelude::*;

use crate::faults::{bootstrap, check_image, open};
use crate::support::{directory, recover};

/// Batches with the payload bytes of each row of each of their transactions.
type Sizes = Vec<Vec<Vec<usize>>>;

/// Appends and syncs the first batches, and appends the last one; returns the log and the plan.
fn unsynced(disk: &MemoryDisk, settings: Settings, sizes: &Sizes) -> (XlogWriter, Vec<Vec<Batch>>) {
    bootstrap(&directory(disk)).unwrap();
    let mut log = open(&directory(disk), settings);
    let mut workload = Workload::default();
    let mut plan = Vec::new();
    for (number, batch) in sizes.iter().enumerate() {
        let batch = workload.batch(&batch.iter().map(Vec::as_slice).collect::<Vec<_>>());
        log.append(&batch).unwrap();
        if number + 1 < sizes.len() {
            log.sync().unwrap();
        }
        plan.push(vec![batch]);
    }
    (log, plan)
}

/// The LSN that the batches before the last reach.
fn acknowledged(plan: &[Vec<Batch>]) -> u64 {
    plan.iter().rev().nth(1).map_or(0, |round| round[0].vclock.get(1))
}

/// Whether the last batch, or the end behind it, begins where a sector is about to end; and some other cases.
fn is_telling(shift: usize, log: &XlogWriter, plan: &[Vec<Batch>]) -> bool {
    let last = plan.last().map_or(0, |round| round[0].rows.len() as u64);
    let end = log.status().file_bytes;
    let near = |offset: u64| offset % 512 > 490 || offset.is_multiple_of(512);
    near(end) || near(end.saturating_sub(last + 19)) || shift.is_multiple_of(40)
}

/// Goes through all states that a disk may have, up to `most` of them.
fn every_state(disk: &MemoryDisk, most: usize, mut check: impl FnMut(&MemoryDisk, &[usize])) {
    let mut chosen: Vec<usize> = Vec::new();
    for _ in 0..most {
        let (mut taken, mut limits) = (0, Vec::new());
        let image = disk.crash_by(&mut |states| {
            limits.push(states);
            let state = chosen.get(taken).copied().unwrap_or(0);
            taken += 1;
            state
        });
        chosen.resize(limits.len(), 0);
        check(&image, &chosen);
        // The next one, as an odometer counts.
        let Some(place) = (0..chosen.len()).rfind(|&place| chosen[place] + 1 < limits[place]) else { return };
        chosen[place] += 1;
        chosen.truncate(place + 1);
    }
}

/// The first payload moves the batch through a sector, so that each byte of its header and of the preallocated tail's is
/// once the first of a sector.
fn every_state_of_a_small_batch(preallocated_bytes: u64, compression_level: Option<i32>) {
    let settings = Settings { preallocated_bytes, compression_level, ..Settings::default() };
    for shift in 0..512 {
        for last in [vec![vec![20]], vec![vec![700], vec![300, 2100]]] {
            let disk = MemoryDisk::new();
            let sizes = vec![vec![vec![shift]], last];
            let (log, plan) = unsynced(&disk, settings, &sizes);
            if !is_telling(shift, &log, &plan) {
                continue;
            }
            drop(log);
            every_state(&disk, 150, |image, chosen| {
                let place = format!("preallocated {preallocated_bytes}, {sizes:?}, states {chosen:?}");
                check_image(image, &plan, acknowledged(&plan), &place);
            });
        }
    }
}

#[test]
fn every_state_of_a_small_batch_starts_by_itself() {
    every_state_of_a_small_batch(0, None);
}

#[test]
fn every_state_of_a_small_compressed_batch_starts_by_itself() {
    every_state_of_a_small_batch(0, Some(1));
}

#[test]
fn every_state_of_a_small_preallocated_batch_starts_by_itself() {
    every_state_of_a_small_batch(4096, None);
}

#[test]
fn every_state_of_a_small_preallocated_and_compressed_batch_starts_by_itself() {
    every_state_of_a_small_batch(4096, Some(1));
}

#[test]
fn every_state_of_an_end_starts_by_itself() {
    for shift in 0..512 {
        for is_closed in [false, true] {
            let start = || {
                let disk = MemoryDisk::new();
                let settings = Settings { preallocated_bytes: 1000, ..Settings::default() };
                let (mut log, plan) = unsynced(&disk, settings, &vec![vec![vec![shift]], vec![vec![30]]]);
                log.sync().unwrap();
                (disk, log, plan)
            };
            let end = |log: &mut XlogWriter| if is_closed { log.close() } else { log.rotate() };
            for operation in 0..12 {
                let (disk, mut log, plan) = start();
                if !is_telling(shift, &log, &plan) {
                    break;
                }
                disk.fail_after(operation, Fault::Freeze);
                let ended = end(&mut log);
                drop(log);
                every_state(&disk, 100, |image, chosen| {
                    let place = format!("shift {shift}, operation {operation}, states {chosen:?}");
                    check_image(image, &plan, 2, &place);
                });
                if ended.is_ok() {
                    break;
                }
            }
        }
    }
}

/// The machine dies before a sync, and the disk has the bytes up to some place within a header.
#[test]
fn a_file_that_ends_within_a_header_starts_by_itself() {
    for shift in 0..512 {
        let disk = MemoryDisk::new();
        let (log, plan) = unsynced(&disk, Settings::default(), &vec![vec![vec![shift]], vec![vec![20]]]);
        if !is_telling(shift, &log, &plan) {
            continue;
        }
        let begin = log.status().file_bytes as usize - plan[1][0].rows.len() - FIXED_HEADER_BYTES;
        drop(log);
        for kept in 1..FIXED_HEADER_BYTES {
            let mut files = disk.files();
            for (_, bytes) in files.iter_mut().filter(|(name, _)| name.ends_with(".xlog")) {
                bytes.truncate(begin + kept);
            }
            let image = MemoryDisk::with_files(files);
            check_image(&image, &plan, acknowledged(&plan), &format!("shift {shift}, {kept} bytes"));
        }
    }
}

fn sizes() -> impl Strategy<Value = Sizes> {
    let row = prop_oneof![0_usize..40, 0_usize..600, 0_usize..9000];
    let transaction = proptest::collection::vec(row, 1..4);
    let batch = proptest::collection::vec(transaction, 1..12);
    proptest::collection::vec(batch, 1..5)
}

fn settings() -> impl Strategy<Value = Settings> {
    (
        prop_oneof![Just(None), Just(Some(1))],
        prop_oneof![Just(0_u64), Just(700), Just(20_000), Just(200_000)],
        prop_oneof![Just(2000_u64), Just(u64::MAX)],
    )
        .prop_map(|(compression_level, preallocated_bytes, max_file_bytes)| Settings {
            compression_level,
            preallocated_bytes,
            max_file_bytes,
            ..Settings::default()
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn whatever_sectors_reach_the_disk_the_start_has_what_was_acknowledged(
        sizes in sizes(),
        settings in settings(),
        large in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let mut sizes = sizes;
        if large {
            // Several blocks, and more than the preallocated tail has.
            sizes.push(vec![vec![70_000], vec![90_000], vec![10], vec![130_000], vec![400]]);
        }
        let disk = MemoryDisk::new();
        let (log, plan) = unsynced(&disk, settings, &sizes);
        drop(log);
        for round in 0..40 {
            let seed = seed.wrapping_add(round / 2);
            let crash = if round % 2 == 0 { Crash::Scattered(seed) } else { Crash::Ragged(seed) };
            check_image(&disk.crash(crash), &plan, acknowledged(&plan), &format!("{crash:?}"));
        }
    }

    #[test]
    fn one_wrong_bit_in_what_was_synced_is_refused(
        sizes in sizes(),
        settings in settings(),
        bits in proptest::collection::vec(any::<prop::sample::Index>(), 20),
    ) {
        let disk = MemoryDisk::new();
        let (mut log, plan) = unsynced(&disk, settings, &sizes);
        log.sync().unwrap();
        drop(log);
        let sound = disk.files();
        let reached = plan.last().map_or(0, |round| round[0].vclock.get(1));
        let xlogs: Vec<&String> = sound.keys().filter(|name| name.ends_with(".xlog")).collect();
        for bit in bits {
            let name = xlogs[bit.index(xlogs.len())];
            let bit = bit.index(8 * sound[name].len());
            let mut files = sound.clone();
            files.get_mut(name).unwrap()[bit / 8] ^= 1 << (bit % 8);
            match recover(&MemoryDisk::with_files(files), Mode::Strict) {
                Err(error) => {
                    let code = error.category().exit_code();
                    prop_assert!(matches!(error, RecoveryError::Refused(_)));
                    prop_assert!([65, 66, 78].contains(&code), "{error}: {code}");
                }
                // Bytes behind the last block are never read, and an unknown key of the text header is reported.
                Ok((recovered, _)) => prop_assert_eq!(recovered.vclock.get(1), reached, "bit {} of {}", bit, name),
            }
        }
    }
}

/// A batch that was not synced, and in it a task whose payload is a piece of another journal.
#[test]
fn a_journal_within_a_journal_vouches_for_nothing() {
    let inner = MemoryDisk::new();
    let (mut log, _) = unsynced(&inner, Settings::default(), &vec![vec![vec![100]], vec![vec![100]]]);
    log.sync().unwrap();
    drop(log);
    let piece = inner.files().remove("00000000000000000000.xlog").unwrap();

    let disk = MemoryDisk::new();
    let settings = Settings { compression_level: None, preallocated_bytes: 10_000, ..Settings::default() };
    let (mut log, mut plan) = unsynced(&disk, settings, &vec![vec![vec![10]]]);
    log.sync().unwrap();
    let mut batch = Workload::after(1).batch(&[&[1000], &[2000]]);
    let at = batch.rows.len() - 1900;
    batch.rows[at..at + piece.len()].copy_from_slice(&piece);
    log.append(&batch).unwrap();
    drop(log);
    plan.push(vec![batch]);
    every_state(&disk, 200, |image, chosen| check_image(image, &plan, 1, &format!("{chosen:?}")));
}

#[test]
fn damage_before_the_last_sync_is_refused_whatever_was_lost_behind_it() {
    let disk = MemoryDisk::new();
    let settings = Settings { preallocated_bytes: 10_000, compression_level: None, ..Settings::default() };
    let (log, _) =
        unsynced(&disk, settings, &vec![vec![vec![700]], vec![vec![700]], vec![vec![700]], vec![vec![900]]]);
    drop(log);
    let name = "00000000000000000000.xlog";
    every_state(&disk, 100, |image, chosen| {
        let mut files = image.files();
        // A sector of the first batch, as if it had never been written: the second one vouches for it.
        files.get_mut(name).unwrap()[512..1024].fill(0);
        let error = recover(&MemoryDisk::with_files(files), Mode::Strict).expect_err(&format!("{chosen:?}"));
        assert_eq!(error.category(), Category::Damaged, "{error}");
    });
}
