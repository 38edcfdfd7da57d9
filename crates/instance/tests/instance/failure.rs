//! After the journal has failed no client reads or changes data, and every client gets an error.

use lycosa_instance::OUTCOME_UNKNOWN;
use lycosa_iproto::error::ErrorCode;
use lycosa_iproto::request::Body;
use lycosa_tuple::value::Value;

use crate::rig::{Client, Rig, SECOND, options, refused, syncs, values};

const SPACE: u32 = 600;

fn rig() -> Rig {
    let mut rig = Rig::new();
    rig.create_space(SPACE, "s", options! {});
    rig.create_tube("t", "fifo");
    rig
}

fn send_replace(rig: &mut Rig, client: &mut Client, id: u64) -> u64 {
    rig.send(client, &Body::Replace { space: SPACE, tuple: &values![id].encode() })
}

type Replied = Result<Vec<Value>, lycosa_iproto::error::ErrorObject>;

/// The request was refused, and nothing was done.
#[track_caller]
fn assert_failed(answer: Replied) {
    assert_eq!(answer.as_ref().err().and_then(|error| error.name()), None);
    let (code, text) = refused(answer);
    assert_eq!(code, ErrorCode::WalIo);
    assert!(text.starts_with("Failed to write to disk: no space left."), "{text}");
}

/// The same error, of a request that may have been done.
#[track_caller]
fn assert_unknown(answer: Replied) {
    let mut error = answer.expect_err("an error");
    assert_eq!(error.name(), Some(OUTCOME_UNKNOWN));
    error.fields.clear();
    assert_failed(Err(error));
}

#[test]
fn whoever_waits_for_the_journal_gets_an_error_of_his_own() {
    let mut rig = rig();
    let (mut first, mut second, mut idle) = (rig.admin(), rig.admin(), rig.admin());
    let written = send_replace(&mut rig, &mut first, 1);
    let batch = rig.batch();
    let a = send_replace(&mut rig, &mut first, 2);
    let ping = rig.send(&mut first, &Body::Ping);
    let b = send_replace(&mut rig, &mut second, 3);
    rig.make_durable(batch);
    rig.instance.handle_failed("no space left");
    assert_eq!(rig.ready(), [first.slot, second.slot]);
    let replies = rig.replies(&first);
    assert_eq!(syncs(&replies), [written, a, ping]);
    assert_eq!(replies[0].answer, Ok(vec![values![1]]), "what was durable is answered");
    for reply in &replies[1..] {
        assert_unknown(reply.answer.clone());
    }
    let replies = rig.replies(&second);
    assert_eq!(syncs(&replies), [b]);
    assert_unknown(replies[0].answer.clone());
    assert_eq!(rig.replies(&idle), []);
    assert_eq!(rig.ping(&mut idle), Ok(vec![]));
}

#[test]
fn a_batch_at_the_journal_fails_with_it() {
    let mut rig = rig();
    let mut client = rig.admin();
    let sync = send_replace(&mut rig, &mut client, 1);
    rig.batch();
    rig.instance.handle_failed("no space left");
    let replies = rig.replies(&client);
    assert_eq!(syncs(&replies), [sync]);
    assert_unknown(replies[0].answer.clone());
}

#[test]
fn requests_for_data_are_refused_and_the_server_still_tells_about_itself() {
    let mut rig = rig();
    let (mut admin, mut guest) = (rig.admin(), rig.guest());
    send_replace(&mut rig, &mut admin, 1);
    rig.instance.handle_failed("no space left");
    rig.replies(&admin);

    let (tuple, empty) = (values![1].encode(), values![].encode());
    let requests = [
        Body::Select { space: SPACE, index: 0, limit: 1, offset: 0, iterator: 0, key: &empty },
        Body::Insert { space: SPACE, tuple: &tuple },
        Body::Replace { space: SPACE, tuple: &tuple },
        Body::Update { space: SPACE, index: 0, base: 0, key: &tuple, operations: &empty },
        Body::Upsert { space: SPACE, base: 0, tuple: &tuple, operations: &empty },
        Body::Delete { space: SPACE, index: 0, key: &tuple },
    ];
    for request in requests {
        assert_failed(rig.ask(&mut admin, &request));
    }
    for name in ["queue.tube.t:put", "queue.tube", "queue.statistics", "box.schema.user.exists"] {
        assert_failed(rig.call(&mut admin, name, &values!["t"]));
    }
    let read_only = values![options! { read_only: true }];
    assert_failed(rig.call(&mut admin, "box.cfg", &read_only));
    assert_failed(rig.call(&mut guest, "queue.tube.t:take", &values![0]));

    assert_eq!(rig.ping(&mut guest), Ok(vec![]));
    let info = rig.call(&mut guest, "box.info", &values![]).expect("about the server").remove(0);
    assert_eq!(info.get("status"), Some(&Value::from("failed")));
    assert_eq!(info.get("failure"), Some(&Value::from("no space left")));
    assert_eq!(rig.call(&mut guest, "box.cfg", &values![]).map(|values| values.len()), Ok(1));
    assert_eq!(rig.call(&mut guest, "box.stat", &values![]).map(|values| values.len()), Ok(1));
    assert!(rig.ask(&mut admin, &Body::Vote).is_ok());
    let newcomer = rig.guest();
    assert_eq!(rig.instance.output(newcomer.slot), b"");
}

#[test]
fn calls_that_wait_are_told_too() {
    let mut rig = rig();
    let (mut worker, mut admin) = (rig.guest(), rig.admin());
    let first = rig.start_call(&mut worker, "queue.tube.t:take", &values![]);
    let second = rig.start_call(&mut worker, "queue.tube.t:take", &values![10]);
    send_replace(&mut rig, &mut admin, 1);
    rig.instance.handle_failed("no space left");
    let mut replies = rig.replies(&worker);
    replies.sort_by_key(|reply| reply.sync);
    assert_eq!(syncs(&replies), [first, second]);
    for reply in replies {
        assert_unknown(reply.answer);
    }
    assert_eq!(rig.instance.status().waiting_calls, 0);
    assert_eq!(rig.advance(20 * SECOND), None);
    assert_eq!(rig.replies(&worker), [], "each call is answered once");
}

#[test]
fn nothing_goes_to_a_failed_journal() {
    let mut rig = rig();
    let (mut worker, mut admin) = (rig.guest(), rig.admin());
    rig.call(&mut worker, "queue.tube.t:put", &values!["a"]).expect("a task");
    rig.call(&mut worker, "queue.tube.t:take", &values![0]).expect("a task");
    send_replace(&mut rig, &mut admin, 1);
    rig.instance.handle_failed("no space left");
    rig.instance.handle_failed("another cause comes too late");
    assert!(rig.instance.poll_append().is_none());
    rig.disconnect(&worker);
    assert_eq!(rig.advance(SECOND), None);
    assert!(rig.instance.poll_append().is_none(), "the release of the task is not journaled");
    rig.replies(&admin);
    assert!(rig.instance.is_drained());
    assert_eq!(rig.instance.status().failure.as_deref(), Some("no space left"));
}

#[test]
fn a_backlog_does_not_outlive_the_journal() {
    let mut rig = rig();
    rig.settings.max_journal_backlog = 100;
    rig.instance.reconfigure(rig.settings.clone(), 256 << 20);
    let mut client = rig.admin();
    for id in 0..10 {
        send_replace(&mut rig, &mut client, id);
    }
    assert!(rig.instance.is_paused(client.slot));
    rig.instance.handle_failed("no space left");
    assert!(!rig.instance.is_paused(client.slot), "clients can ask what is wrong");
}
