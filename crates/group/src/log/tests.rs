//! The log after crashes at every operation, after truncations, removals and damage.

use std::sync::Arc;

use lycosa_journal::disk::Disk;
use lycosa_journal::memory::{Crash, Fault, MemoryDisk};
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::base::FEATURE_LEVEL;

const IDENTITY: Identity = Identity { group: Uuid::from_u128(3), node: 1, rank: 0 };

fn settings() -> Settings {
    Settings { max_file_bytes: 4_000, preallocated_bytes: 1 << 12, ..Settings::default() }
}

fn directory(disk: &MemoryDisk) -> Directory {
    Directory::on(Arc::new(disk.clone()))
}

fn open(disk: &MemoryDisk) -> Result<Opened, OpenLogError> {
    GroupLog::open(directory(disk), settings(), FEATURE_LEVEL)
}

fn base(index: u64, term: u64, signature: u64) -> Base {
    Base { index, term, ..Base::first(IDENTITY.group, signature, FEATURE_LEVEL, "a:1".to_owned()) }
}

fn install(disk: &MemoryDisk, base: &Base) {
    base.write(&directory(disk), b"").expect("written");
    disk.create(&file_name(FileKind::Snapshot, base.signature)).expect("created");
    disk.sync().expect("synced");
}

fn entry(index: u64, term: u64, bytes: usize) -> Entry {
    // Bytes that do not compress.
    let mut state = index << 8 | term | 1 << 40;
    let mut next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 56) as u8
    };
    let data = (0..bytes).map(|_| next()).collect::<Vec<_>>();
    Entry { index, term, data: data.into(), ..Entry::default() }
}

fn entries(range: std::ops::RangeInclusive<u64>, term: u64, bytes: usize) -> Records {
    Records { entries: range.map(|index| entry(index, term, bytes)).collect(), ..Records::default() }
}

fn write(log: &mut GroupLog, records: &Records) {
    log.append(records).and_then(|()| log.sync()).expect("written");
}

/// A disk with a group of one, whose log is open.
fn begun() -> (MemoryDisk, GroupLog) {
    let disk = MemoryDisk::new();
    install(&disk, &base(1, 1, 0));
    let log = GroupLog::create(directory(&disk), settings(), IDENTITY, Some(&base(1, 1, 0))).expect("a log");
    (disk, log)
}

/// What a log comes to.
#[derive(Debug, Clone, PartialEq)]
struct State {
    ballot: Ballot,
    entries: Vec<Entry>,
}

impl State {
    fn of(opened: &Opened) -> Self {
        Self { ballot: opened.ballot, entries: opened.entries.clone() }
    }

    /// After each record of a round.
    fn steps(&mut self, records: &Records) -> Vec<Self> {
        let mut steps = Vec::new();
        if let Some(ballot) = records.ballot {
            self.ballot = ballot;
            steps.push(self.clone());
        }
        for entry in &records.entries {
            self.entries.retain(|earlier| earlier.index < entry.index);
            self.entries.push(entry.clone());
            steps.push(self.clone());
        }
        steps
    }

    /// As a start sees it: a term is never behind the last entry's, and nothing is committed that is not there.
    fn seen(&self) -> Self {
        let (last, term) = self.entries.last().map_or((1, 1), |entry| (entry.index, entry.term));
        let mut ballot = self.ballot;
        if ballot.term < term {
            ballot = Ballot { term, vote: 0, ..ballot };
        }
        ballot.commit = ballot.commit.clamp(1, last);
        Self { ballot, entries: self.entries.clone() }
    }
}

/// Rounds as a node writes them: entries of ascending terms, each after or in place of the last ones, votes between them.
fn rounds() -> impl Strategy<Value = Vec<(Records, bool)>> {
    let round =
        (0_u64..4, 0_u64..6, 0_u64..3, prop_oneof![Just(10_usize), Just(700), Just(3_000)], any::<bool>());
    proptest::collection::vec(round, 1..12).prop_map(|rounds| {
        let (mut last, mut term) = (1, 1);
        let make = |(back, count, later, bytes, is_synced): (u64, u64, u64, usize, bool)| {
            term += later;
            let back = if later > 0 { back.min(last - 1) } else { 0 };
            let first = last + 1 - back;
            let ballot =
                (later > 0 || count == 0).then_some(Ballot { term, vote: back, commit: last - back });
            let mut records = Records { ballot, ..Records::default() };
            if count > 0 {
                records.entries = entries(first..=first + count - 1, term, bytes).entries;
                last = first + count - 1;
            }
            (records, is_synced)
        };
        rounds.into_iter().map(make).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whenever the machine dies, a start finds the log after some record that is no older than the last sync.
    #[test]
    fn a_crash_leaves_a_prefix_with_everything_synced(rounds in rounds(), operations in 0_u64..60, seed in any::<u64>()) {
        let (disk, mut log) = begun();
        let mut state = State { ballot: Ballot { term: 1, vote: 0, commit: 1 }, entries: Vec::new() };
        let mut possible = vec![state.clone()];
        disk.fail_after(operations, Fault::Freeze);
        for (records, is_synced) in &rounds {
            possible.extend(state.steps(records));
            if log.append(records).is_err() {
                break;
            }
            if *is_synced {
                if log.sync().is_err() {
                    break;
                }
                possible.drain(..possible.len() - 1);
            }
        }
        let kept = (seed % 3_000) as usize;
        let crashes = [
            Crash::Process,
            Crash::Machine,
            Crash::Torn(700),
            Crash::Torn(kept),
            Crash::Zeroed(900),
            Crash::Zeroed(kept),
            Crash::Scattered(seed),
            Crash::Ragged(seed),
        ];
        for crash in crashes {
            let disk = disk.crash(crash);
            let opened = open(&disk).map_err(|error| TestCaseError::fail(format!("{crash:?}: {error}")))?;
            let found = State::of(&opened);
            prop_assert!(possible.iter().any(|state| state.seen() == found), "{:?}", crash);
            // A crash during that start changes nothing, and the log goes on.
            drop(opened);
            let mut again = open(&disk.crash(Crash::Machine)).expect("a log");
            prop_assert_eq!(&State::of(&again), &found);
            let next = again.log.last().index + 1;
            write(&mut again.log, &entries(next..=next, found.ballot.term, 20));
        }
    }
}

#[test]
fn every_start_has_a_greater_incarnation() {
    let (disk, log) = begun();
    let mut before = log.incarnation();
    drop(log);
    for _ in 0..4 {
        let opened = open(&disk).expect("a log");
        assert!(opened.log.incarnation() > before);
        before = opened.log.incarnation();
    }
}

#[test]
fn entries_are_read_back_from_all_files_as_the_log_has_them_now() {
    let (_disk, mut log) = begun();
    write(&mut log, &entries(2..=30, 1, 300));
    write(&mut log, &entries(31..=60, 1, 300));
    // Another leader's entries replace the last ones.
    write(&mut log, &entries(41..=70, 2, 300));
    write(&mut log, &entries(71..=90, 2, 300));
    assert!(log.files.len() > 2);
    let term = |index| if index > 40 { 2 } else { 1 };
    let wanted = |low, high, max_bytes| {
        let terms = vec![Position { term: 1, index: 2 }, Position { term: 2, index: 41 }];
        Wanted { low, high, max_bytes, terms }
    };
    let mut next = 2;
    while next <= 90 {
        let found = log.read(&wanted(next, 91, 1_000)).expect("read");
        assert!((1..=4).contains(&found.entries.len()));
        for found in found.entries {
            assert_eq!(found, entry(next, term(next), 300));
            next += 1;
        }
    }
    // From anywhere, and one entry in any case.
    let found = log.read(&wanted(38, 44, 0)).expect("read");
    assert_eq!(found.entries, [entry(38, 1, 300)]);
    let found = log.read(&wanted(38, 44, u64::MAX)).expect("read");
    assert_eq!(
        found.entries.iter().map(|entry| entry.index).collect::<Vec<_>>(),
        (38..44).collect::<Vec<_>>()
    );
    assert_eq!(log.read(&wanted(91, 92, 1)).expect_err("not written").kind(), io::ErrorKind::NotFound);
}

/// A follower that was away asks for one piece after the other, and a piece may begin before the end of the one before.
#[test]
fn a_piece_of_a_long_file_is_read_without_the_file_before_it() {
    const LAST: u64 = 4_001;
    let disk = MemoryDisk::new();
    install(&disk, &base(1, 1, 0));
    let settings = Settings { max_file_bytes: 64 << 20, ..settings() };
    let mut log =
        GroupLog::create(directory(&disk), settings, IDENTITY, Some(&base(1, 1, 0))).expect("a log");
    for first in (2..LAST).step_by(10) {
        write(&mut log, &entries(first..=first + 9, 1, 2_000));
    }
    let pieces = |log: &mut GroupLog| {
        let before = disk.bytes_read();
        let (mut low, mut count) = (2, 0);
        while low < LAST {
            let wanted = Wanted {
                low,
                high: LAST + 1,
                max_bytes: 40_000,
                terms: vec![Position { term: 1, index: 2 }],
            };
            let found = log.read(&wanted).expect("read").entries;
            assert_eq!(found[0], entry(low, 1, 2_000));
            (low, count) = (low + found.len().saturating_sub(3).max(1) as u64, count + 1);
        }
        (disk.bytes_read() - before) / count
    };
    assert_eq!(log.files.len(), 1);
    let near = 16 * MARK_BYTES;
    let of_a_piece = pieces(&mut log);
    assert!(of_a_piece < near, "{of_a_piece} bytes of 8 000 000");
    drop(log);
    // Places are not kept over a start; the first readings find them again.
    let mut log = GroupLog::open(directory(&disk), settings, FEATURE_LEVEL).expect("a log").log;
    let of_a_piece = pieces(&mut log);
    assert!(of_a_piece < near, "{of_a_piece} bytes of 8 000 000");
}

#[test]
fn files_go_once_a_snapshot_has_their_entries() {
    let (disk, mut log) = begun();
    for first in (2..=60).step_by(10) {
        write(&mut log, &entries(first..=first + 9, 1, 400));
    }
    let files = log.files.len();
    assert!(files > 3);
    let newer = base(30, 1, 29);
    install(&disk, &newer);
    disk.remove(&file_name(FileKind::Snapshot, 0)).expect("removed");
    // A start needs the files behind the snapshot: they stay.
    log.forget(&newer, 60).expect("removed");
    assert!(log.files.len() < files);
    assert_eq!(directory(&disk).list().expect("listed").group_states, [30]);
    drop(log);
    let opened = open(&disk).expect("a log");
    assert_eq!(opened.entries.first().map(|entry| entry.index), Some(31));
    assert_eq!(opened.entries.len(), 31);
    assert_eq!(opened.base.map(|(base, _)| base), Some(newer));
    // Without the snapshot, the rest is worth nothing.
    disk.remove(&file_name(FileKind::Snapshot, 29)).expect("removed");
    assert!(matches!(open(&disk), Err(OpenLogError::Gap { .. })));
}

#[test]
fn a_snapshot_that_was_installed_replaces_a_log_that_does_not_lead_to_it() {
    for (index, term, kept) in [(50, 3, 0), (15, 2, 0), (15, 1, 5)] {
        let (disk, mut log) = begun();
        write(&mut log, &entries(2..=20, 1, 50));
        drop(log);
        // The machine died before the record of the installation was durable.
        install(&disk, &base(index, term, 40));
        let mut opened = open(&disk).expect("a log");
        assert_eq!(opened.entries.len(), kept, "{index} of term {term}");
        let last = if kept > 0 { Position { term: 1, index: 20 } } else { Position { term, index } };
        assert_eq!(opened.log.last(), last);
        write(&mut opened.log, &entries(last.index + 1..=last.index + 3, 3, 50));
        drop(opened);
        assert_eq!(open(&disk).expect("a log").entries.len(), kept + 3);
    }
}

#[test]
fn damage_keeps_the_node_from_starting() {
    let (disk, mut log) = begun();
    write(&mut log, &entries(2..=4, 1, 40));
    write(&mut log, &Records { ballot: Some(Ballot { term: 7, vote: 2, commit: 3 }), ..Records::default() });
    log.rotate().expect("rotated");
    write(&mut log, &entries(5..=6, 7, 40));
    drop(log);
    let sound = State::of(&open(&disk.crash(Crash::Process)).expect("a log"));
    let files = disk.files();
    let name = file_name(FileKind::GroupLog, 0);
    let mut refused = 0;
    for bit in 0..8 * files[&name].len() {
        let mut files = files.clone();
        files.get_mut(&name).expect("a file")[bit / 8] ^= 1 << (bit % 8);
        match open(&MemoryDisk::with_files(files)) {
            Ok(opened) => assert_eq!(State::of(&opened), sound, "bit {bit}"),
            Err(error) => {
                refused += 1;
                assert!(matches!(error, OpenLogError::Damaged { .. } | OpenLogError::Gap { .. }), "{error}");
            }
        }
    }
    // The name `Checksum` in the text header is the only thing that no reader needs.
    assert!(refused > 8 * (files[&name].len() - 12), "{refused} of {}", 8 * files[&name].len());
}

#[test]
fn a_file_that_is_missing_in_between_is_noticed() {
    let (disk, mut log) = begun();
    for first in [2, 12, 22] {
        write(&mut log, &entries(first..=first + 9, 1, 500));
    }
    let middle = file_name(FileKind::GroupLog, log.files[1].signature);
    drop(log);
    disk.remove(&middle).expect("removed");
    let error = open(&disk).expect_err("a gap");
    assert!(matches!(error, OpenLogError::Gap { .. }), "{error}");
    assert!(error.to_string().contains("add an empty server"), "{error}");
}

#[test]
fn foreign_files_and_newer_levels_are_refused() {
    let (disk, mut log) = begun();
    log.set_level(FEATURE_LEVEL + 1);
    log.rotate().expect("rotated");
    write(&mut log, &entries(2..=3, 1, 10));
    drop(log);
    let refused = open(&disk).expect_err("a level");
    assert!(matches!(refused, OpenLogError::Level { found: 3, known: 2 }), "{refused}");
    assert!(GroupLog::open(directory(&disk), settings(), FEATURE_LEVEL + 1).is_ok());

    // The entry that has raised the group is in a file that began before it.
    let (disk, mut log) = begun();
    let mut context = Vec::new();
    lycosa_tuple::mp::write_uint(&mut context, u64::from(FEATURE_LEVEL) + 1);
    let rise = Entry { context: context.into(), ..entry(2, 1, 0) };
    let ballot = |commit| Some(Ballot { term: 1, vote: 0, commit });
    write(&mut log, &Records { entries: vec![rise], ballot: ballot(1), ..Records::default() });
    assert!(open(&disk).is_ok(), "it is not decided yet");
    let mut log = GroupLog::open(directory(&disk), settings(), FEATURE_LEVEL + 1).expect("a log").log;
    write(&mut log, &Records { ballot: ballot(2), ..Records::default() });
    drop(log);
    let refused = open(&disk).expect_err("a level");
    assert!(matches!(refused, OpenLogError::Level { found: 3, known: 2 }), "{refused}");

    let (disk, log) = begun();
    drop(log);
    let mut other = MemoryDisk::new().files();
    other.extend(disk.files());
    let elsewhere = Base { group: Uuid::from_u128(4), ..base(9, 2, 9) };
    install(&disk, &elsewhere);
    assert!(matches!(open(&disk), Err(OpenLogError::Foreign { .. })));
    assert!(matches!(open(&MemoryDisk::new()), Err(OpenLogError::Absent)));
}

#[test]
fn a_log_that_failed_takes_nothing_more() {
    let (disk, mut log) = begun();
    disk.fail_after(0, Fault::Fail(io::ErrorKind::StorageFull));
    let first = log.append(&entries(2..=2, 1, 10)).and_then(|()| log.sync());
    assert!(first.is_err());
    assert!(log.append(&entries(2..=2, 1, 10)).is_err() && log.sync().is_err());
}
