//! Rows for the journal: rows as Tarantool writes them, in whole transactions, with their clock.

use lycosa_instance::Batch;
use lycosa_iproto::error::ErrorCode;
use lycosa_iproto::request::Body;
use lycosa_iproto::row::{RowBody, RowHeader, decode_row};
use lycosa_tuple::mp::Reader;
use lycosa_tuple::value::Value;

use crate::rig::{Client, Rig, SECOND, options, refused, values};

const PLAIN: u32 = 600;
const LOCAL: u32 = 601;
const TEMPORARY: u32 = 602;

/// Keys of headers.
const TYPE: u64 = 0;
const REPLICA_ID: u64 = 2;
const LSN: u64 = 3;
const TIMESTAMP: u64 = 4;
const GROUP_ID: u64 = 7;
const TSN: u64 = 8;
const FLAGS: u64 = 9;

fn rig() -> (Rig, Client) {
    let mut rig = Rig::new();
    rig.create_space(PLAIN, "plain", options! {});
    rig.create_space(LOCAL, "local", options! { group_id: 1 });
    rig.create_space(TEMPORARY, "temporary", options! { temporary: true });
    let admin = rig.admin();
    (rig, admin)
}

/// A row with its header's keys as they stand.
#[derive(Debug)]
struct Row<'a> {
    header: RowHeader,
    body: RowBody<'a>,
    keys: Vec<u64>,
}

impl Row<'_> {
    fn field(&self, key: u64) -> bool {
        self.keys.contains(&key)
    }
}

/// The transactions of a batch.
fn transactions(batch: &Batch) -> Vec<Vec<Row<'_>>> {
    let starts = std::iter::once(0).chain(batch.ends.iter().map(|&end| end as usize));
    let ranges = starts.zip(batch.ends.iter().map(|&end| end as usize));
    let read = |(start, end): (usize, usize)| {
        let mut reader = Reader::new(&batch.rows[start..end]);
        let mut rows = Vec::new();
        while !reader.is_empty() {
            let Ok(Value::Map(header)) = Value::read(&mut { reader }) else { panic!("a header") };
            let keys = header.iter().map(|(key, _)| key.as_u64().expect("a number")).collect();
            let (header, body) = decode_row(&mut reader).expect("a row");
            rows.push(Row { header, body, keys });
        }
        rows
    };
    let all: Vec<_> = ranges.map(read).collect();
    assert_eq!(batch.ends.last().map(|&end| end as usize), Some(batch.rows.len()));
    all
}

#[test]
fn one_row_has_neither_tsn_nor_flags() {
    let (mut rig, mut admin) = rig();
    let tuple = values![1, "one"].encode();
    let before = rig.instance.standing().signature;
    rig.send(&mut admin, &Body::Insert { space: PLAIN, tuple: &tuple });
    let batch = rig.batch();
    let rows = &transactions(&batch)[0][0];
    assert_eq!(rows.keys, [TYPE, REPLICA_ID, LSN, TIMESTAMP]);
    assert_eq!(rows.header, RowHeader::single(1, before + 1, (rig.now / SECOND) as f64));
    assert_eq!(rows.body, RowBody::Insert { space: PLAIN, tuple: &tuple });
    assert_eq!((batch.lsn, batch.vclock.get(1), batch.vclock.get(0)), (before + 1, before + 1, 0));
}

#[test]
fn a_row_is_canonical_and_keeps_the_clients_bytes() {
    let (mut rig, mut admin) = rig();
    rig.insert(&mut admin, PLAIN, &values![1, 5]).expect("a tuple");
    let key = [0xdc, 0, 1, 0xcd, 0, 1];
    let operations = values![values!["+", 1, 1]].encode();
    rig.send(
        &mut admin,
        &Body::Update { space: PLAIN, index: 0, base: 0, key: &key, operations: &operations },
    );
    rig.send(&mut admin, &Body::Update { space: PLAIN, index: 0, base: 1, key: &key, operations: &[0x90] });
    let upserted = values![2, 0].encode();
    rig.send(&mut admin, &Body::Upsert { space: PLAIN, base: 0, tuple: &upserted, operations: &operations });
    rig.send(&mut admin, &Body::Delete { space: PLAIN, index: 0, key: &[0x91, 9] });
    let batch = rig.batch();
    let bodies: Vec<_> = transactions(&batch).iter().map(|rows| rows[0].body).collect();
    assert!(
        matches!(bodies[0], RowBody::Update { index: 0, base: 0, operations: found, .. } if found == operations)
    );
    assert!(matches!(bodies[1], RowBody::Update { base: 1, operations: [0x90], .. }));
    assert_eq!(
        bodies[2],
        RowBody::Upsert { space: PLAIN, base: 0, tuple: &upserted, operations: &operations }
    );
    assert_eq!(bodies[3], RowBody::Delete { space: PLAIN, index: 0, key: &[0x91, 9] }, "nothing was hit");
}

#[test]
fn a_transaction_of_several_rows_tells_its_beginning_and_its_end() {
    let (mut rig, _) = rig();
    let mut guest = rig.guest();
    rig.start_call(&mut guest, "queue.create_tube", &values!["t", "fifo"]);
    let batch = rig.batch();
    let all = transactions(&batch);
    let rows = all.iter().max_by_key(|rows| rows.len()).expect("a transaction");
    assert!(rows.len() > 3, "a space, its indexes, a sequence");
    let first = rows[0].header.lsn;
    for (position, row) in rows.iter().enumerate() {
        assert_eq!((row.header.lsn, row.header.tsn), (first + position as u64, first));
        let is_last = position + 1 == rows.len();
        assert_eq!((row.header.is_commit, row.field(FLAGS), row.field(TSN)), (is_last, is_last, true));
        assert!(!row.field(GROUP_ID));
    }
    let mut lsns = all.iter().flatten().map(|row| row.header.lsn);
    let start = lsns.next().expect("a row");
    assert!(lsns.eq(start + 1..=batch.vclock.get(1)), "numbers without a gap");
}

/// What stays on the instance it may change although it takes no writes.
#[test]
fn a_read_only_instance_writes_to_its_local_spaces() {
    let (mut rig, mut admin) = rig();
    rig.sync_journal();
    let before = rig.instance.standing().signature;
    rig.instance.set_read_only(true, rig.now);
    for space in [LOCAL, TEMPORARY] {
        rig.insert(&mut admin, space, &values![1]).expect("a space that stays here");
    }
    let (code, _) = refused(rig.insert(&mut admin, PLAIN, &values![1]));
    assert_eq!(code, ErrorCode::Readonly);
    let key = values![1].encode();
    rig.ask(&mut admin, &Body::Delete { space: LOCAL, index: 0, key: &key }).expect("it goes, too");
    assert_eq!(rig.instance.standing().signature, before + 2, "the local space is journaled");
}

#[test]
fn local_rows_have_a_counter_of_their_own() {
    let (mut rig, mut admin) = rig();
    let before = rig.instance.standing().signature;
    let tuple = values![1].encode();
    rig.send(&mut admin, &Body::Insert { space: LOCAL, tuple: &tuple });
    rig.send(&mut admin, &Body::Insert { space: PLAIN, tuple: &tuple });
    rig.send(&mut admin, &Body::Replace { space: LOCAL, tuple: &tuple });
    let batch = rig.batch();
    let all = transactions(&batch);
    let local = &all[0][0];
    assert_eq!(local.keys, [TYPE, GROUP_ID, LSN, TIMESTAMP], "no replica id");
    assert_eq!((local.header.group_id, local.header.lsn, local.header.replica_id), (1, 1, 0));
    assert_eq!(all[1][0].header.lsn, before + 1);
    assert_eq!(all[2][0].header.lsn, 2);
    assert_eq!((batch.vclock.get(0), batch.vclock.get(1)), (2, before + 1));
    assert_eq!(batch.lsn, before + 3, "replies wait for the sum");
    rig.make_durable(batch);
    assert_eq!(rig.replies(&admin).len(), 3);
}

#[test]
fn temporary_data_stays_in_memory() {
    let (mut rig, mut admin) = rig();
    rig.insert(&mut admin, TEMPORARY, &values![1]).expect("a tuple");
    assert!(rig.instance.poll_append().is_none());
    let tuple = values![TEMPORARY, 1].encode();
    let operations = values![values!["+", 1, 1]].encode();
    rig.send(&mut admin, &Body::Upsert { space: 330, base: 0, tuple: &tuple, operations: &operations });
    let batch = rig.batch();
    let all = transactions(&batch);
    assert_eq!((all.len(), all[0].len()), (1, 1));
    let row = &all[0][0];
    assert_eq!(row.keys, [TYPE, GROUP_ID, LSN, TIMESTAMP], "the truncation is a local row");
    assert_eq!(row.body, RowBody::Upsert { space: 330, base: 0, tuple: &tuple, operations: &operations });
    rig.make_durable(batch);
    rig.replies(&admin);
    assert_eq!(rig.select(&mut admin, TEMPORARY, 0, &values![]), Ok(vec![]));
}

#[test]
fn the_queues_transactions_are_whole() {
    let (mut rig, mut admin) = rig();
    for options in [options! {}, options! { temporary: true }] {
        let args = values!["t", "fifottl", options];
        rig.start_call(&mut admin, "queue.create_tube", &args);
        rig.start_call(&mut admin, "queue.tube.t:put", &values!["a"]);
        rig.start_call(&mut admin, "queue.tube.t:take", &values![0]);
        rig.start_call(&mut admin, "queue.tube.t:truncate", &values![]);
        rig.start_call(&mut admin, "queue.tube.t:drop", &values![]);
        let batch = rig.batch();
        let mut clock = [None, None];
        for rows in transactions(&batch) {
            let replicated = rows.iter().find(|row| row.header.group_id == 0);
            let tsn = replicated.unwrap_or(&rows[0]).header.lsn;
            for (position, row) in rows.iter().enumerate() {
                assert_eq!(row.header.tsn, tsn, "{rows:?}");
                assert_eq!(row.header.is_commit, position + 1 == rows.len(), "{rows:?}");
                let counter = &mut clock[row.header.replica_id as usize];
                assert!(counter.is_none_or(|last| last + 1 == row.header.lsn), "{rows:?}");
                *counter = Some(row.header.lsn);
            }
            let ends_local = rows.last().is_some_and(|row| row.header.group_id == 1);
            assert!(!ends_local || replicated.is_none(), "a replica sees the end: {rows:?}");
        }
        rig.make_durable(batch);
        let answers = rig.replies(&admin);
        assert!(answers.iter().all(|reply| reply.answer.is_ok()), "{answers:?}");
    }
}

#[test]
fn a_request_that_fails_writes_nothing() {
    let (mut rig, mut admin) = rig();
    rig.insert(&mut admin, PLAIN, &values![1]).expect("a tuple");
    rig.insert(&mut admin, PLAIN, &values![1]).expect_err("a duplicate");
    rig.insert(&mut admin, PLAIN, &values!["x"]).expect_err("a wrong type");
    rig.insert(&mut admin, 9999, &values![1]).expect_err("no such space");
    assert!(rig.instance.poll_append().is_none());
}
