//! A reply leaves only when everything that it has seen is durable.

use lycosa_iproto::request::Body;
use lycosa_tuple::value::Value;

use crate::rig::{Client, Rig, options, syncs, task, values};

const SPACE: u32 = 600;

fn rig() -> Rig {
    let mut rig = Rig::new();
    rig.create_space(SPACE, "s", options! {});
    rig
}

fn send_replace(rig: &mut Rig, client: &mut Client, id: u64) -> u64 {
    rig.send(client, &Body::Replace { space: SPACE, tuple: &values![id].encode() })
}

fn send_select(rig: &mut Rig, client: &mut Client) -> u64 {
    let key = &values![].encode();
    rig.send(client, &Body::Select { space: SPACE, index: 0, limit: 10, offset: 0, iterator: 2, key })
}

#[test]
fn a_change_is_answered_once_it_is_durable() {
    let mut rig = rig();
    let mut client = rig.admin();
    let first = send_replace(&mut rig, &mut client, 1);
    let second = send_replace(&mut rig, &mut client, 2);
    assert_eq!(rig.replies(&client), []);
    assert_eq!(rig.ready(), []);
    let batch = rig.batch();
    assert_eq!(batch.ends.len(), 2);
    let third = send_replace(&mut rig, &mut client, 3);
    assert_eq!(rig.replies(&client), [], "the journal has the batch and has not written it yet");

    rig.make_durable(batch);
    assert_eq!(rig.ready(), [client.slot]);
    assert_eq!(rig.ready(), [], "each connection once");
    let replies = rig.replies(&client);
    assert_eq!(syncs(&replies), [first, second]);
    assert_eq!(replies[1].answer, Ok(vec![values![2]]));
    rig.sync_journal();
    assert_eq!(syncs(&rig.replies(&client)), [third]);
}

#[test]
fn several_batches_may_be_under_way() {
    let mut rig = rig();
    let mut client = rig.admin();
    let first = send_replace(&mut rig, &mut client, 1);
    let earlier = rig.batch();
    let second = send_replace(&mut rig, &mut client, 2);
    let later = rig.batch();
    assert!(earlier.lsn < later.lsn);
    assert_eq!(earlier.vclock.get(1) + 1, later.vclock.get(1));
    rig.make_durable(earlier);
    assert_eq!(syncs(&rig.replies(&client)), [first]);
    rig.make_durable(later);
    assert_eq!(syncs(&rig.replies(&client)), [second]);
}

#[test]
fn a_read_waits_for_what_it_has_seen() {
    let mut rig = rig();
    let (mut writer, mut reader) = (rig.admin(), rig.admin());
    let before = send_select(&mut rig, &mut reader);
    let replies = rig.replies(&reader);
    assert_eq!((syncs(&replies), &replies[0].answer), (vec![before], &Ok(vec![])));

    send_replace(&mut rig, &mut writer, 1);
    let after = send_select(&mut rig, &mut reader);
    assert_eq!(rig.replies(&reader), [], "the row could still be lost");
    rig.sync_journal();
    assert_eq!(rig.ready(), [writer.slot, reader.slot]);
    let replies = rig.replies(&reader);
    assert_eq!((syncs(&replies), &replies[0].answer), (vec![after], &Ok(vec![values![1]])));
}

#[test]
fn an_error_waits_for_what_it_has_seen() {
    let mut rig = rig();
    let (mut writer, mut other) = (rig.admin(), rig.admin());
    send_replace(&mut rig, &mut writer, 1);
    rig.send(&mut other, &Body::Insert { space: SPACE, tuple: &values![1].encode() });
    assert_eq!(rig.replies(&other), [], "the duplicate is not durable yet");
    rig.sync_journal();
    let error = rig.replies(&other).remove(0).answer.expect_err("a duplicate");
    assert_eq!(error.message, "Duplicate key exists in unique index 'pk' in space 's'");
}

#[test]
fn a_ping_does_not_wait_for_rows_of_other_clients() {
    let mut rig = rig();
    let (mut writer, mut other) = (rig.admin(), rig.admin());
    send_replace(&mut rig, &mut writer, 1);
    let _on_its_way = rig.batch();
    send_replace(&mut rig, &mut writer, 2);
    let ping = rig.send(&mut other, &Body::Ping);
    assert_eq!(syncs(&rig.replies(&other)), [ping]);
    assert_eq!(rig.replies(&writer), []);
}

#[test]
fn a_ping_keeps_its_place_behind_replies_that_wait() {
    let mut rig = rig();
    let (mut client, mut other) = (rig.admin(), rig.admin());
    let ping = rig.send(&mut client, &Body::Ping);
    assert_eq!(syncs(&rig.replies(&client)), [ping], "nothing is on its way to the disk");
    let change = send_replace(&mut rig, &mut client, 1);
    let ping = rig.send(&mut client, &Body::Ping);
    assert_eq!(rig.replies(&client), []);
    let batch = rig.batch();
    let later = send_replace(&mut rig, &mut other, 2);
    rig.make_durable(batch);
    assert_eq!(syncs(&rig.replies(&client)), [change, ping]);
    assert_eq!(rig.replies(&other), []);
    rig.sync_journal();
    assert_eq!(syncs(&rig.replies(&other)), [later]);
}

#[test]
fn a_change_without_rows_is_answered_at_once() {
    let mut rig = rig();
    rig.create_space(SPACE + 1, "temporary", options! { temporary: true });
    let mut client = rig.admin();
    let sync = rig.send(&mut client, &Body::Insert { space: SPACE + 1, tuple: &values![1].encode() });
    assert!(rig.instance.poll_append().is_none());
    assert_eq!(syncs(&rig.replies(&client)), [sync]);
}

#[test]
fn what_a_tube_answers_is_durable() {
    let mut rig = Rig::new();
    rig.create_tube("t", "fifo");
    let (mut producer, mut consumer) = (rig.guest(), rig.guest());
    rig.start_call(&mut producer, "queue.tube.t:put", &values!["a"]);
    rig.start_call(&mut consumer, "queue.tube.t:take", &values![0]);
    rig.start_call(&mut consumer, "queue.tube.t:ack", &values![0]);
    assert_eq!((rig.replies(&producer), rig.replies(&consumer)), (vec![], vec![]));
    rig.sync_journal();
    let answers = |replies: Vec<_>| replies.into_iter().map(|reply: crate::rig::Reply| reply.answer);
    assert!(answers(rig.replies(&producer)).eq([Ok(task(0, "r", "a"))]));
    assert!(answers(rig.replies(&consumer)).eq([Ok(task(0, "t", "a")), Ok(task(0, "-", "a"))]));
}

#[test]
fn output_is_consumed_in_pieces() {
    let mut rig = rig();
    let mut client = rig.admin();
    let tuple = Value::Array(vec![Value::from(1), Value::bin([7; 1000])]);
    rig.send(&mut client, &Body::Replace { space: SPACE, tuple: &tuple.encode() });
    rig.sync_journal();
    let whole = rig.instance.output(client.slot).to_vec();
    let mut pieces = Vec::new();
    while !rig.instance.output(client.slot).is_empty() {
        let piece = rig.instance.output(client.slot);
        let piece = piece[..piece.len().min(100)].to_vec();
        rig.instance.consume(client.slot, piece.len());
        pieces.extend(piece);
    }
    assert_eq!(pieces, whole);
    assert_eq!(rig.instance.pending_bytes(client.slot), 0);
}

#[test]
fn an_instance_is_drained_when_nothing_is_under_way() {
    let mut rig = rig();
    let mut client = rig.admin();
    assert!(rig.instance.is_drained());
    send_replace(&mut rig, &mut client, 1);
    assert!(!rig.instance.is_drained());
    let batch = rig.batch();
    assert!(!rig.instance.is_drained(), "the journal has not written it yet");
    rig.make_durable(batch);
    assert!(!rig.instance.is_drained(), "the client has not got its reply");
    rig.replies(&client);
    assert!(rig.instance.is_drained());

    rig.create_tube("t", "fifo");
    rig.start_call(&mut client, "queue.tube.t:take", &values![]);
    assert!(rig.instance.is_drained(), "a call that waits for a task may wait for ever");
}

#[test]
fn rows_that_nobody_waits_for_keep_an_instance_from_being_drained() {
    let mut rig = Rig::new();
    rig.create_tube("t", "fifottl");
    let mut client = rig.guest();
    rig.call(&mut client, "queue.tube.t:put", &values!["a", options! { ttl: 1 }]).expect("a task");
    rig.advance(2 * crate::rig::SECOND);
    let batch = rig.batch();
    assert!(!rig.instance.is_drained());
    rig.make_durable(batch);
    assert!(rig.instance.is_drained());
}
