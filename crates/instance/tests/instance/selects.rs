//! SELECTs that take more than a turn.

use lycosa_instance::{Settings, Trust};
use lycosa_iproto::error::ErrorCode;
use lycosa_iproto::request::Body;
use lycosa_tuple::value::Value;

use crate::rig::{Client, Rig, options, refused, syncs, values};

const SPACE: u32 = 600;
/// More than one slice.
const MANY: u64 = 3000;

fn rig() -> Rig {
    let mut rig = Rig::with(Settings { max_waiting: 3, ..Settings::default() });
    rig.create_space(SPACE, "s", options! {});
    let mut admin = rig.admin();
    for id in 0..MANY {
        put(&mut rig, &mut admin, id);
    }
    rig.sync_journal();
    rig.disconnect(&admin);
    rig
}

fn put(rig: &mut Rig, client: &mut Client, id: u64) {
    rig.send(client, &Body::Replace { space: SPACE, tuple: &values![id, "a"].encode() });
}

/// SELECT of everything, after some tuples.
fn select(rig: &mut Rig, client: &mut Client, offset: u32) -> u64 {
    let key = &values![].encode();
    rig.send(client, &Body::Select { space: SPACE, index: 0, limit: u32::MAX, offset, iterator: 2, key })
}

fn ids(tuples: &[Value]) -> Vec<u64> {
    let id = |tuple: &Value| match tuple {
        Value::Array(fields) => fields[0].as_u64().expect("an id"),
        other => panic!("{other:?}"),
    };
    tuples.iter().map(id).collect()
}

/// Turns until nothing is left to do.
fn turns(rig: &mut Rig) -> usize {
    let mut count = 1;
    while rig.advance(1) == Some(rig.now) {
        count += 1;
    }
    count
}

#[test]
fn a_short_select_is_answered_at_once_and_a_long_one_in_slices() {
    let mut rig = rig();
    let mut client = rig.admin();
    let short = select(&mut rig, &mut client, (MANY - 10) as u32);
    let long = select(&mut rig, &mut client, 5);
    let replies = rig.replies(&client);
    assert_eq!(syncs(&replies), [short]);
    assert_eq!(ids(replies[0].answer.as_ref().unwrap()), (MANY - 10..MANY).collect::<Vec<_>>());
    let ping = rig.send(&mut client, &Body::Ping);
    turns(&mut rig);
    let replies = rig.replies(&client);
    assert_eq!(syncs(&replies), [ping, long], "other requests do not wait");
    assert_eq!(ids(replies[1].answer.as_ref().unwrap()), (5..MANY).collect::<Vec<_>>());
    assert_eq!(rig.instance.pending_bytes(client.slot), 0);
}

#[test]
fn a_long_reply_waits_for_what_it_may_have_seen() {
    let mut rig = rig();
    let mut client = rig.admin();
    let long = select(&mut rig, &mut client, 0);
    put(&mut rig, &mut client, MANY);
    turns(&mut rig);
    assert_eq!(rig.replies(&client), [], "the row of the REPLACE is not durable");
    rig.sync_journal();
    rig.advance(1000);
    let replies = rig.replies(&client);
    assert_eq!(replies.len(), 2);
    assert_eq!(replies[1].sync, long);
    assert_eq!(replies[1].answer.as_ref().unwrap().len() as u64, MANY + 1);

    // Where replies always wait for the journal, the long one gets in behind them.
    let long = select(&mut rig, &mut client, 0);
    put(&mut rig, &mut client, MANY);
    turns(&mut rig);
    rig.advance(2_000_000);
    put(&mut rig, &mut client, MANY);
    assert_eq!(rig.replies(&client), []);
    rig.sync_journal();
    let replies = rig.replies(&client);
    assert_eq!(replies.len(), 3);
    assert_eq!(replies[1].sync, long);
}

#[test]
fn a_long_select_ends_with_its_connection_or_index() {
    let mut rig = rig();
    let (mut client, mut admin, mut gone) = (rig.admin(), rig.admin(), rig.admin());
    select(&mut rig, &mut client, 0);
    select(&mut rig, &mut gone, 0);
    rig.disconnect(&gone);
    let key = values![SPACE, 0];
    let dropped = rig.ask(&mut admin, &Body::Delete { space: 288, index: 0, key: &key.encode() });
    assert!(dropped.is_ok(), "{dropped:?}");
    turns(&mut rig);
    let replies = rig.replies(&client);
    assert_eq!(replies.len(), 1);
    let (code, text) = refused(replies[0].answer.clone());
    assert_eq!((code, &*text), (ErrorCode::NoSuchIndexId, "No index #0 is defined in space 's'"));
}

#[test]
fn long_selects_of_a_connection_are_limited() {
    let mut rig = rig();
    let mut client = rig.connect(Trust::Admin);
    let waiting: Vec<_> = (0..3).map(|_| select(&mut rig, &mut client, 0)).collect();
    let refused_one = select(&mut rig, &mut client, 0);
    let replies = rig.replies(&client);
    assert_eq!(syncs(&replies), [refused_one]);
    let (_, text) = refused(replies[0].answer.clone());
    assert!(text.starts_with("3 calls of this connection wait already, which is max_waiting"), "{text}");
    turns(&mut rig);
    assert_eq!(syncs(&rig.replies(&client)), waiting);
}
