//! Transactions of other instances keep their stamps, and make no rows of this one's numbering.

use lycosa_instance::Batch;
use lycosa_iproto::error::ErrorCode;
use lycosa_iproto::row::{RowBody, RowHeader, decode_row};
use lycosa_store::{Statement, user};
use lycosa_tuple::mp::Reader;
use lycosa_tuple::value::Value;

use crate::rig::{Rig, options, values};

const SPACE: u32 = 600;
const TIME: f64 = 1.25e9;

fn rig() -> Rig {
    let mut rig = Rig::new();
    rig.create_space(SPACE, "s", options! {});
    rig.sync_journal();
    rig
}

fn stamp(replica_id: u32, lsn: u64, tsn: u64, is_commit: bool) -> RowHeader {
    RowHeader { replica_id, group_id: 0, lsn, timestamp: TIME, tsn, is_commit }
}

/// The stamps of the rows of a batch, by transaction.
fn stamps(batch: &Batch) -> Vec<Vec<RowHeader>> {
    let begins = std::iter::once(0).chain(batch.ends.iter().map(|&end| end as usize));
    let transactions = begins.zip(&batch.ends).map(|(begin, &end)| {
        let mut reader = Reader::new(&batch.rows[begin..end as usize]);
        let rows =
            std::iter::from_fn(|| (!reader.is_empty()).then(|| decode_row(&mut reader).expect("a row").0));
        rows.collect()
    });
    transactions.collect()
}

fn found(rig: &Rig, id: u64) -> bool {
    rig.instance.store().get(SPACE, 0, &values![id].encode()).expect("the space").is_some()
}

#[test]
fn a_foreign_transaction_keeps_its_stamps_and_advances_the_vclock() {
    let mut rig = rig();
    let own = rig.instance.vclock().get(1);
    let tuples = [1_u64, 2].map(|id| values![id].encode());
    let rows = [
        (stamp(3, 7, 7, false), RowBody::Insert { space: SPACE, tuple: &tuples[0] }),
        (stamp(3, 8, 7, false), RowBody::Insert { space: SPACE, tuple: &tuples[1] }),
        (stamp(3, 9, 7, true), RowBody::Nop),
    ];
    let now = rig.now;
    let lsn = rig.instance.apply(&rows, now).expect("applied");
    assert_eq!(rig.instance.is_durable(lsn), Ok(false));
    assert!(found(&rig, 1) && found(&rig, 2));
    let mine = values![3_u64].encode();
    let insert = Statement::Insert { space: SPACE, tuple: &mine };
    rig.instance.execute(user::ADMIN, &insert, &mut Vec::new()).expect("inserted");
    assert_eq!(rig.instance.apply(&rows, now).map(drop), Ok(()), "once more changes nothing");

    let batch = rig.batch();
    assert_eq!((batch.vclock.get(1), batch.vclock.get(3)), (own + 1, 9));
    assert_eq!(batch.lsn, batch.vclock.signature());
    let [foreign, own_rows] = &stamps(&batch)[..] else { panic!("two transactions") };
    assert_eq!(foreign[..], rows.map(|(header, _)| header));
    assert_eq!((own_rows.len(), own_rows[0].replica_id, own_rows[0].lsn), (1, 1, own + 1));
    rig.make_durable(batch);
    assert_eq!(rig.instance.is_durable(lsn), Ok(true));
}

#[test]
fn what_is_refused_changes_nothing() {
    let mut rig = rig();
    let tuple = values![1_u64].encode();
    let insert = RowBody::Insert { space: SPACE, tuple: &tuple };
    let now = rig.now;
    rig.instance.apply(&[(stamp(2, 5, 5, true), insert)], now).expect("applied");
    let before = rig.instance.vclock().clone();
    let other = values![2_u64].encode();
    let new = RowBody::Insert { space: SPACE, tuple: &other };
    for (rows, code) in [
        (vec![(stamp(2, 6, 6, false), new), (stamp(2, 7, 6, true), insert)], ErrorCode::TupleFound),
        (vec![(stamp(2, 6, 6, false), new)], ErrorCode::Protocol),
        (vec![(stamp(0, 6, 6, true), new)], ErrorCode::Protocol),
        (vec![(stamp(32, 6, 6, true), new)], ErrorCode::Protocol),
        (vec![(stamp(2, 6, 6, false), new), (stamp(3, 7, 6, true), new)], ErrorCode::Protocol),
        (vec![(stamp(2, 5, 5, false), insert), (stamp(2, 6, 5, true), new)], ErrorCode::Protocol),
        (vec![(stamp(2, 6, 6, true), RowBody::Confirm { replica_id: 2, lsn: 5 })], ErrorCode::Unsupported),
    ] {
        let error = rig.instance.apply(&rows, now).expect_err("refused");
        assert_eq!(error.code, code as u32, "{error:?}");
        assert!(!found(&rig, 2));
        assert_eq!(*rig.instance.vclock(), before);
    }
    assert_eq!(stamps(&rig.batch()).len(), 1);
}

#[test]
fn a_read_only_instance_applies_and_its_queue_makes_rows_of_its_own_only_if_it_runs() {
    let mut master = Rig::new();
    let mut client = master.admin();
    master.start_call(&mut client, "queue.create_tube", &values!["t", "fifottl"]);
    master.start_call(&mut client, "queue.tube.t:put", &values!["x"]);
    let batch = master.batch();
    let mut rig = Rig::new();
    rig.sync_journal();
    let now = rig.now;
    rig.instance.set_read_only(true, now);
    rig.sync_journal();
    let own = rig.instance.vclock().get(1);
    let mut lsn = 0;
    let mut reader = Reader::new(&batch.rows);
    let mut rows = Vec::new();
    while !reader.is_empty() {
        let (header, body) = decode_row(&mut reader).expect("a row");
        lsn += 1;
        rows.push((RowHeader { replica_id: 2, lsn, ..header }, body));
        if header.is_commit {
            let tsn = rows[0].0.lsn;
            rows.iter_mut().for_each(|(header, _)| header.tsn = tsn);
            rig.instance.apply(&rows, now).expect("applied");
            rows.clear();
        }
    }
    let vclock = rig.instance.vclock();
    assert_eq!((vclock.get(1), vclock.get(2)), (own, lsn));
    rig.instance.set_read_only(false, now);
    let mut client = rig.admin();
    let taken = rig.call(&mut client, "queue.tube.t:take", &values![0_u64]).expect("taken");
    assert_eq!(taken.first().and_then(Value::as_array).map(|task| task[2].clone()), Some("x".into()));
}
