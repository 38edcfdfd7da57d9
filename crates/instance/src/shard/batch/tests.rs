use lycosa_iproto::row::decode_row;
use lycosa_store::ddl::{self, IndexSpec, PartSpec, SpaceSpec};
use lycosa_store::{SpaceId, user};
use lycosa_tuple::mp::Reader;
use lycosa_tuple::value::Value;

use super::*;

const NOW: u64 = 1_500_000;

/// A store with a plain space and a local one.
fn store() -> (Store, SpaceId, SpaceId) {
    let mut store = Store::new(lycosa_store::Settings::default());
    let uuid = "00000000-0000-4000-8000-000000000000";
    store.bootstrap(uuid, uuid).unwrap();
    store.begin(user::ADMIN);
    let parts = [PartSpec::new(0, "unsigned")];
    let mut create = |spec: SpaceSpec<'_>| {
        let id = ddl::create_space(&mut store, &spec).unwrap();
        ddl::create_index(&mut store, id, &IndexSpec::new("pk", &parts)).unwrap();
        id
    };
    let plain = create(SpaceSpec::new("plain", &[]));
    let local = create(SpaceSpec { local: true, ..SpaceSpec::new("local", &[]) });
    store.commit();
    store.drain_committed(&mut |_| {});
    (store, plain, local)
}

fn journaling() -> Journaling {
    let mut vclock = Vclock::new();
    vclock.set(0, 1).unwrap();
    vclock.set(1, 432).unwrap();
    Journaling::new(1, vclock)
}

/// Puts one tuple into each of the spaces, in one transaction.
fn change(store: &mut Store, spaces: &[SpaceId]) {
    store.begin(user::ADMIN);
    for (id, &space) in spaces.iter().enumerate() {
        let tuple = Value::array([id as u64]).encode();
        store.execute(&Statement::Replace { space, tuple: &tuple }).unwrap();
    }
    store.commit();
}

/// Of a row's header: type, replica, LSN, tsn as it is stored, flags.
type Header = (u64, u64, u64, Option<u64>, Option<u64>);

fn rows(batch: &Batch) -> Vec<Header> {
    let mut reader = Reader::new(&batch.rows);
    let mut rows = Vec::new();
    while !reader.is_empty() {
        let header = Value::read(&mut { reader }).unwrap();
        let Value::Map(pairs) = header else { panic!("a header") };
        let field = |wanted: u8| {
            let pair = pairs.iter().find(|(key, _)| key.as_u64() == Some(wanted.into()));
            pair.and_then(|(_, value)| value.as_u64())
        };
        let kind = field(keys::REQUEST_TYPE).unwrap();
        let replica = field(keys::REPLICA_ID).unwrap_or(0);
        rows.push((kind, replica, field(keys::LSN).unwrap(), field(keys::TSN), field(keys::FLAGS)));
        decode_row(&mut reader).unwrap();
    }
    rows
}

fn collected(spaces: impl FnOnce(SpaceId, SpaceId) -> Vec<SpaceId>) -> Batch {
    let (mut store, plain, local) = store();
    let mut journaling = journaling();
    change(&mut store, &spaces(plain, local));
    journaling.collect(&mut store, NOW);
    journaling.take().unwrap()
}

const REPLACE: u64 = 3;
const NOP: u64 = 12;

#[test]
fn a_mixed_transaction_that_ends_in_a_local_row_gets_a_closing_nop() {
    let batch = collected(|plain, local| vec![plain, local]);
    let distance = 2_u64.wrapping_sub(433);
    assert_eq!(
        rows(&batch),
        [
            (REPLACE, 1, 433, Some(0), None),
            (REPLACE, 0, 2, Some(distance), None),
            (NOP, 1, 434, Some(1), Some(1)),
        ]
    );
    assert_eq!(distance, 18_446_744_073_709_551_185);
    assert_eq!((batch.lsn, batch.vclock.get(0), batch.vclock.get(1)), (436, 2, 434));
    assert_eq!(batch.ends, [batch.rows.len() as u32]);
}

#[test]
fn a_mixed_transaction_that_ends_in_a_replicated_row_needs_none() {
    let batch = collected(|plain, local| vec![local, plain, local, plain]);
    assert_eq!(
        rows(&batch),
        [
            (REPLACE, 0, 2, Some(2_u64.wrapping_sub(433)), None),
            (REPLACE, 1, 433, Some(0), None),
            (REPLACE, 0, 3, Some(3_u64.wrapping_sub(433)), None),
            (REPLACE, 1, 434, Some(1), Some(1)),
        ]
    );
}

#[test]
fn a_transaction_of_local_rows_begins_with_its_first() {
    let batch = collected(|_, local| vec![local, local, local]);
    assert_eq!(
        rows(&batch),
        [(REPLACE, 0, 2, Some(0), None), (REPLACE, 0, 3, Some(1), None), (REPLACE, 0, 4, Some(2), Some(1)),]
    );
    assert_eq!((batch.lsn, batch.vclock.get(0), batch.vclock.get(1)), (436, 4, 432));
}

#[test]
fn the_end_of_a_transaction_is_found_again_whatever_it_mixes() {
    for spaces in [0b01_u32, 0b10, 0b001, 0b110, 0b0101, 0b1010, 0b1000, 0b0111] {
        let batch = collected(|plain, local| {
            let count = 32 - spaces.leading_zeros() + 1;
            (0..count).map(|bit| if spaces >> bit & 1 == 1 { local } else { plain }).collect()
        });
        let mut reader = Reader::new(&batch.rows);
        let mut tsns = Vec::new();
        while !reader.is_empty() {
            let (header, _) = decode_row(&mut reader).unwrap();
            assert_eq!(header.is_commit, reader.is_empty());
            tsns.push(header.tsn);
        }
        tsns.dedup();
        assert_eq!(tsns.len(), 1, "{spaces:b}: {tsns:?}");
    }
}

#[test]
fn transactions_of_a_turn_share_a_batch_and_a_moment() {
    let (mut store, plain, local) = store();
    let mut journaling = journaling();
    assert!(journaling.take().is_none() && journaling.is_settled());
    change(&mut store, &[plain]);
    change(&mut store, &[local]);
    journaling.collect(&mut store, NOW);
    journaling.collect(&mut store, NOW + 1);
    assert!(!journaling.is_settled());
    let batch = journaling.take().unwrap();
    assert_eq!(batch.ends.len(), 2);
    let (header, _) = decode_row(&mut Reader::new(&batch.rows)).unwrap();
    assert_eq!(header.timestamp, 1.5);
    let capacity = batch.rows.capacity();
    journaling.mark_durable(batch.lsn, Buffers { rows: batch.rows, ends: batch.ends });
    assert!(journaling.is_settled());
    change(&mut store, &[plain]);
    journaling.collect(&mut store, NOW);
    assert!(journaling.take().unwrap().rows.len() < capacity);
}

#[test]
fn a_change_of_a_system_space_makes_what_was_derived_from_it_old() {
    let (mut store, plain, _) = store();
    let mut journaling = journaling();
    let version = journaling.system_version();
    change(&mut store, &[plain]);
    journaling.collect(&mut store, NOW);
    assert_eq!(journaling.system_version(), version);
    store.begin(user::ADMIN);
    ddl::create_user(&mut store, "ann", None, false).unwrap();
    store.commit();
    journaling.collect(&mut store, NOW);
    assert!(journaling.system_version() > version);
}

#[test]
fn a_failed_journal_is_owed_nothing() {
    let (mut store, plain, _) = store();
    let mut journaling = journaling();
    change(&mut store, &[plain]);
    journaling.collect(&mut store, NOW);
    assert_eq!(journaling.awaited(), 434);
    journaling.fail();
    change(&mut store, &[plain]);
    journaling.collect(&mut store, NOW);
    assert!(journaling.take().is_none() && store.nothing_committed());
    assert_eq!((journaling.awaited(), journaling.pending_bytes()), (0, 0));
    assert!(journaling.is_settled());
}

#[test]
fn a_buffer_is_never_copied_once_it_is_large() {
    let (mut store, plain, _) = store();
    let mut journaling = journaling();
    let mut places = Vec::new();
    for id in 0..600_u64 {
        store.begin(user::ADMIN);
        let tuple = Value::array([Value::from(id), Value::bin(vec![0; 10_000])]).encode();
        store.execute(&Statement::Replace { space: plain, tuple: &tuple }).unwrap();
        store.commit();
        journaling.collect(&mut store, NOW);
        if journaling.rows.len() > LARGE_BATCH {
            places.push(journaling.rows.as_ptr());
        }
    }
    let batches: Vec<Batch> = std::iter::from_fn(|| journaling.take()).collect();
    places.dedup();
    assert_eq!((batches.len(), places.len()), (2, 2), "a batch has one place");
    assert_eq!(batches.iter().map(|batch| batch.ends.len()).sum::<usize>(), 600);
    assert!(batches.iter().all(|batch| batch.rows.capacity() <= KEPT_CAPACITY));
    assert!(batches[0].rows.len() >= FULL_BATCH && batches[0].lsn < batches[1].lsn);
}
