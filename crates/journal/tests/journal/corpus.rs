//! Files of a real Tarantool 2.6.0: every one decodes, means what the server said, and is written the same
//! way.

use std::collections::BTreeMap;
use std::fs;

use crate::support::{Collected, corpus, directory, disk, files, recover, without_checksum};
use lycosa_iproto::row::{RowBody, encode_row, encode_snapshot_row};
use lycosa_journal::block::{Encoder, is_compressed, is_full};
use lycosa_journal::decision::Mode;
use lycosa_journal::directory::file_name;
use lycosa_journal::meta::FileKind;
use lycosa_journal::reader::{End, FileReader, Step};
use lycosa_journal::transaction::{Next, Transactions};

const SOUND: [&str; 7] =
    ["empty", "plain", "queue-replicaset", "queue-single", "queue-big", "raw-bodies", "synchro"];

struct Stored {
    /// The block's rows.
    rows: Vec<u8>,
    /// The block as it stands in the file.
    bytes: Vec<u8>,
    is_compressed: bool,
}

/// The blocks of a file, and how it ends.
fn blocks(reader: &mut FileReader, file: &[u8]) -> (Vec<Stored>, End) {
    let mut blocks = Vec::new();
    loop {
        match reader.next_block().unwrap() {
            Step::Block(block) => {
                let begin = usize::try_from(block.offset).unwrap();
                let end = begin + usize::try_from(block.stored_bytes).unwrap();
                let (rows, bytes) = (block.rows.to_vec(), file[begin..end].to_vec());
                blocks.push(Stored { rows, bytes, is_compressed: block.compressed });
            }
            Step::End(end) => return (blocks, end),
            Step::Damage(damage) => panic!("{damage}"),
        }
    }
}

#[test]
fn every_file_decodes_and_is_written_the_same_way() {
    let (mut rows_seen, mut blocks_seen) = (0, 0);
    for folder in SOUND {
        let folder_disk = disk(folder);
        let directory = directory(&folder_disk);
        for (name, stored) in files(folder) {
            let kind = if name.ends_with(".snap") { FileKind::Snapshot } else { FileKind::Xlog };
            let signature = name[..20].parse().unwrap();
            assert_eq!(file_name(kind, signature), name);
            let mut reader = directory.read(kind, signature).unwrap();
            let first_block = usize::try_from(reader.first_block()).unwrap();
            let header = without_checksum(reader.meta().encode().as_bytes());
            assert_eq!(header, &stored[..first_block], "{folder}/{name}");

            let (blocks, end) = blocks(&mut reader, &stored);
            assert!(matches!(end, End::Marker | End::Open), "{folder}/{name}: {end:?}");
            let mut encoder = Encoder::new(Some(3)).unwrap();
            for Stored { rows, bytes, is_compressed: compressed } in &blocks {
                blocks_seen += 1;
                assert_eq!(*compressed, is_compressed(rows.len()));
                let mut again = Vec::new();
                encoder.encode(rows, &mut again).unwrap();
                if !compressed {
                    assert_eq!(again, *bytes, "{folder}/{name}");
                }
                rows_seen += check_rows(kind, rows, &format!("{folder}/{name}"));
            }
            if kind == FileKind::Snapshot {
                let (_, full) = blocks.split_last().unwrap();
                assert!(full.iter().all(|block| is_full(block.rows.len())));
            }
        }
    }
    assert!(rows_seen > 150_000 && blocks_seen > 1000, "{rows_seen} rows in {blocks_seen} blocks");
}

/// Decodes every row of a block and encodes it again.
fn check_rows(kind: FileKind, bytes: &[u8], place: &str) -> usize {
    let mut transactions = Transactions::new(bytes);
    let (mut rows, mut again, mut count) = (Vec::new(), Vec::new(), 0);
    loop {
        match transactions.next(&mut rows).unwrap() {
            Next::Transaction(range) => {
                count += rows.len();
                again.clear();
                for row in &rows {
                    let header = &row.header;
                    match row.body {
                        RowBody::Insert { space, tuple } if kind == FileKind::Snapshot => {
                            encode_snapshot_row(
                                &mut again,
                                header.lsn,
                                header.timestamp,
                                header.group_id,
                                space,
                                tuple,
                            );
                        }
                        body => encode_row(&mut again, header, &body),
                    }
                }
                // The one row of the corpus with a field that its type does not need: the key of an UPSERT.
                let has_needless_key =
                    place == "raw-bodies/00000000000000000225.xlog" && rows[0].header.lsn == 239;
                assert_eq!(again != bytes[range], has_needless_key, "{place}, rows {rows:?}");
            }
            Next::End => return count,
            Next::Partial(at) => panic!("{place}: a partial transaction at byte {at}"),
        }
    }
}

#[test]
fn recovery_ends_where_the_server_did() {
    for folder in SOUND {
        let expected: serde_json::Value =
            serde_json::from_slice(&fs::read(corpus(folder).join("expected.json")).unwrap()).unwrap();
        let expected: BTreeMap<u32, u64> = expected["vclock"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(id, lsn)| (id.parse().unwrap(), lsn.as_u64().unwrap()))
            .collect();
        let (recovered, collected) = recover(&disk(folder), Mode::Strict).unwrap();
        assert_eq!(recovered.vclock.iter().collect::<BTreeMap<_, _>>(), expected, "{folder}");
        let progress = recovered.progress;
        assert_eq!(progress.bytes_done, progress.bytes_total, "{folder}");
        assert_eq!(progress.rows, collected.snapshot_rows + collected.transactions.concat().len() as u64);
        assert!(!recovered.has_lost_data() && recovered.repairs.is_empty(), "{folder}");
        let closed = collected.messages.is_empty();
        assert_eq!(
            closed,
            !["queue-replicaset", "queue-single"].contains(&folder),
            "{folder}: {:?}",
            collected.messages
        );
        assert_eq!(recovered.empty_xlog.is_some(), closed, "{folder}");
    }
}

#[test]
fn a_bootstrap_snapshot_has_513_rows() {
    let (recovered, collected) = recover(&disk("empty"), Mode::Strict).unwrap();
    assert_eq!(collected.snapshot_rows, 513);
    assert_eq!(recovered.vclock.signature(), 0);
    let empty = recovered.empty_xlog.unwrap();
    assert_eq!(
        (empty.name.as_str(), empty.header_bytes, empty.is_closed),
        ("00000000000000000000.xlog", 97, true)
    );
}

#[test]
fn xlogs_before_the_snapshot_are_not_read() {
    let (recovered, collected) = recover(&disk("queue-big"), Mode::Strict).unwrap();
    assert_eq!(recovered.snapshot.signature(), 60_026);
    let lsns = collected.transactions.concat();
    assert_eq!((lsns.first(), lsns.last()), (Some(&60_027), Some(&100_926)));
}

#[test]
fn rolled_back_synchronous_transactions_are_not_handed_over() {
    let run = |synchronous: &[u32]| {
        let recovery = lycosa_journal::recovery::Recovery::open(&directory(&disk("synchro")), Mode::Strict)
            .unwrap()
            .unwrap();
        let mut collected = Collected { synchronous: synchronous.to_vec(), ..Collected::default() };
        let recovered = recovery.run(&mut collected).unwrap();
        (recovered, collected)
    };
    let (recovered, collected) = run(&[512]);
    assert!(!collected.ids.contains(&5), "{:?}", collected.ids);
    assert!(collected.transactions.contains(&vec![12, 13]) && !collected.transactions.contains(&vec![17]));
    assert!(collected.transactions.contains(&vec![18]), "the verdict itself is handed over");
    assert_eq!(recovered.vclock.signature(), 21);
    assert!(recovered.resolutions.is_empty());
    // A reader that knows of no synchronous spaces gets everything.
    assert!(run(&[]).1.ids.contains(&5));
}
