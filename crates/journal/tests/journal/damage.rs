//! Torn and damaged folders of a real Tarantool, and what recovery makes of them: `docs/formats.md` has the
//! table.
//!
//! All come from one sound folder: 290 rows with ids 1 to 290, clock {1: 293}, snapshots at 0 and 23, xlogs
//! from 0, 23, 43 and 63.

use std::collections::BTreeSet;

use lycosa_journal::decision::Mode;
use lycosa_journal::recovery::RecoveryError;
use lycosa_journal::suite::Workload;
use lycosa_journal::writer::{Settings, XlogWriter};

use crate::support::{directory, disk, recover};

/// What a start must end in.
enum Outcome {
    /// The database, with this many ids.
    Ids(usize),
    /// The same, with rows given up.
    Lossy(usize),
    /// A refusal, with this exit code.
    Refused(u8),
}
use Outcome::{Ids, Lossy, Refused};

struct Case {
    folder: &'static str,
    strict: Outcome,
    forced: Outcome,
    /// What the messages of both modes have in common; nothing if there is none.
    message: &'static str,
}

const fn case(folder: &'static str, strict: Outcome, forced: Outcome, message: &'static str) -> Case {
    Case { folder, strict, forced, message }
}

const CASES: [Case; 33] = [
    case("torn/1-text-header", Ids(60), Ids(60), "ends inside its text header after 30 byte(s)"),
    case(
        "torn/2-fixed-header",
        Ids(190),
        Ids(190),
        "torn tail after {1: 193}: the file ends inside a block's header",
    ),
    case("torn/3-plain-body", Ids(75), Ids(75), "the file ends inside a block: 35 byte(s) from offset 887"),
    case(
        "torn/4-zstd-body",
        Ids(190),
        Ids(190),
        "the file ends inside a block: 349 byte(s) from offset 2398",
    ),
    case("torn/5-between-blocks", Ids(75), Ids(75), "wasn't correctly closed"),
    case("torn/6-end-marker", Ids(290), Ids(290), "or its end marker: 2 byte(s) from offset 3077"),
    case("torn/7-zeros", Ids(290), Ids(290), "the file ends in zeros: 512 byte(s) from offset 3077"),
    case(
        "torn/8-torn-then-zeros",
        Ids(190),
        Ids(190),
        "the file ends inside a block: 552 byte(s) from offset 2398",
    ),
    case("torn/9-header-only", Ids(60), Ids(60), "wasn't correctly closed"),
    case("torn/10-empty-file", Ids(60), Ids(60), "ends inside its text header after 0 byte(s)"),
    case("corrupt/0-sound", Ids(290), Ids(290), ""),
    case("corrupt/filetype", Refused(65), Lossy(60), "Invalid xlog type: expected XLOG, got XLOH"),
    case("corrupt/flip-crc", Refused(65), Lossy(289), "its header says 64ce055c (at offset 887)"),
    case("corrupt/flip-length", Refused(65), Lossy(289), "its header says 64de055c (at offset 887)"),
    case("corrupt/flip-magic", Refused(65), Lossy(289), "found bytes d5aa0bab (at offset 887)"),
    case("corrupt/flip-plain", Refused(65), Lossy(289), "its header says 64de055c (at offset 887)"),
    case("corrupt/flip-zstd", Refused(65), Lossy(190), "its header says 85185dac (at offset 1142)"),
    case("corrupt/instance", Refused(78), Lossy(60), "invalid instance UUID"),
    case("corrupt/missing-first-xlog", Ids(290), Ids(290), ""),
    case("corrupt/missing-last-xlog", Ids(60), Ids(60), ""),
    case("corrupt/missing-snaps", Refused(66), Refused(66), "there are 4 xlog(s) but no snapshot"),
    case(
        "corrupt/missing-xlog",
        Refused(66),
        Lossy(270),
        "Missing .xlog file between LSN 23 {1: 23} and 43 {1: 43}",
    ),
    case("corrupt/snap-body", Ids(290), Ids(290), "starting from the snapshot before it"),
    case("corrupt/snap-body-only", Refused(65), Lossy(270), "'00000000000000000023.snap' is damaged"),
    case("corrupt/snap-crc", Ids(290), Ids(290), "starting from the snapshot before it"),
    case("corrupt/snap-header", Ids(290), Ids(290), "Invalid xlog type: expected SNAP, got SNAQ"),
    case(
        "corrupt/snap-inprogress",
        Ids(290),
        Ids(290),
        "'00000000000000009999.xlog.inprogress' was never completed",
    ),
    case("corrupt/snap-no-end", Ids(290), Ids(290), "it has no end marker"),
    case("corrupt/stray-files", Ids(290), Ids(290), "'abc.xlog' is not the name of a journal file"),
    case("corrupt/unknown-key", Ids(290), Ids(290), "unknown meta item 'Colour'"),
    case("corrupt/vclock", Refused(65), Lossy(60), "can't parse a vclock at offset 4"),
    case("corrupt/version", Refused(78), Lossy(60), "unsupported file format version 0.99"),
    case("plain", Ids(3300), Ids(3300), ""),
];

#[test]
fn every_damage_has_its_outcome() {
    for Case { folder, strict, forced, message } in &CASES {
        for (mode, outcome) in [(Mode::Strict, strict), (Mode::Force, forced)] {
            let place = format!("{folder}, {mode:?}");
            let said = match (recover(&disk(folder), mode), outcome) {
                (Ok((recovered, collected)), Ids(expected) | Lossy(expected)) => {
                    assert_eq!(collected.ids.iter().collect::<BTreeSet<_>>().len(), *expected, "{place}");
                    assert_eq!(recovered.has_lost_data(), matches!(outcome, Lossy(_)), "{place}");
                    collected.messages.join("\n")
                }
                (Err(error), Refused(code)) => {
                    assert!(matches!(error, RecoveryError::Refused(_)), "{place}: {error}");
                    assert_eq!(error.category().exit_code(), *code, "{place}: {error}");
                    error.to_string()
                }
                (Ok(_), Refused(_)) => panic!("{place}: went on"),
                (Err(error), _) => panic!("{place}: {error}"),
            };
            assert!(said.contains(message), "{place}: {said}");
            assert_eq!(said.is_empty(), message.is_empty(), "{place}: {said}");
        }
    }
}

#[test]
fn a_refusal_says_what_to_do() {
    for Case { folder, strict, .. } in &CASES {
        if matches!(strict, Refused(_)) {
            let error = recover(&disk(folder), Mode::Strict).expect_err(folder);
            let said = error.to_string();
            assert!(
                said.contains("--force-recovery") || said.contains("put the snapshot back"),
                "{folder}: {said}"
            );
        }
    }
}

#[test]
fn rows_given_up_are_named() {
    let messages = |folder| recover(&disk(folder), Mode::Force).unwrap().1.messages.join("\n");
    assert!(messages("corrupt/flip-plain").contains("LSN 79 to 79 of replica 1 (1 row(s)) are missing"));
    assert!(messages("corrupt/flip-zstd").contains("LSN 84 to 183 of replica 1 (100 row(s)) are missing"));
}

/// After a start that gives anything up, the next rows go where the next start finds them: no history is
/// mixed, nothing is reported twice, and a torn part stays readable to the end.
#[test]
fn what_is_written_after_a_start_is_found_by_the_next() {
    for Case { folder, strict, forced, .. } in &CASES {
        for (mode, outcome) in [(Mode::Strict, strict), (Mode::Force, forced)] {
            if matches!(outcome, Refused(_)) {
                continue;
            }
            let place = format!("{folder}, {mode:?}");
            let disk = disk(folder);
            let before = disk.files();
            let (recovered, collected) = recover(&disk, mode).unwrap();
            assert_eq!(disk.files(), before, "{place}: recovery changes nothing");

            let mut log = XlogWriter::resume(directory(&disk), Settings::default(), &recovered).unwrap();
            let reached = recovered.vclock.get(1);
            let mut batch = Workload::after(reached).batch(&[&[10], &[20, 30]]);
            batch.vclock.set(0, recovered.vclock.get(0)).unwrap();
            log.append(&batch).unwrap();
            log.close().unwrap();
            drop(log);

            let names: Vec<String> = disk.files().into_keys().collect();
            assert!(!names.iter().any(|name| name.ends_with(".inprogress")), "{place}: {names:?}");
            let (again, found) = recover(&disk, mode).unwrap_or_else(|error| panic!("{place}: {error}"));
            assert_eq!(again.vclock, batch.vclock, "{place}");
            let expected =
                [&collected.transactions[..], &[vec![reached + 1], vec![reached + 2, reached + 3]]].concat();
            assert_eq!(found.transactions, expected, "{place}");
            assert_eq!(again.empty_xlog.map(|empty| empty.is_closed), Some(true), "{place}");
        }
    }
}
