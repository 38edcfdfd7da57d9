//! Puts that want more replicas than other changes.

use lycosa_instance::Settings;
use lycosa_iproto::error::ErrorCode;
use lycosa_iproto::vclock::Vclock;
use lycosa_tuple::value::Value;
use uuid::Uuid;

use crate::rig::{Client, Rig, options, refused, task, values};

const PUT: &str = "queue.tube.t:put";

/// The instance with that number confirms all durable rows.
fn confirm(rig: &mut Rig, number: u32) {
    let vclock = rig.instance.durable_vclock().clone();
    rig.instance.replicas_mut().acknowledged(Uuid::from_u128(number.into()), &vclock, rig.now);
    rig.advance(1);
}

fn follow(rig: &mut Rig, number: u32) {
    let now = rig.now;
    let replicas = rig.instance.replicas_mut();
    replicas.register(Uuid::from_u128(number.into()), number);
    let uuid = Uuid::from_u128(number.into());
    replicas.subscribed(uuid, number, &Vclock::new(), now).expect("it does not follow yet");
    rig.advance(1);
}

fn rig(settings: Settings) -> (Rig, Client) {
    let mut rig = Rig::with(settings);
    rig.create_tube("t", "fifo");
    rig.sync_journal();
    (2..=3).for_each(|number| {
        let registered = rig.instance.register_replica(Uuid::from_u128(number), rig.now);
        assert_eq!(registered, Ok(number as u32));
    });
    rig.sync_journal();
    let client = rig.guest();
    (rig, client)
}

fn answers(rig: &mut Rig, client: &Client) -> Vec<Vec<Value>> {
    rig.replies(client).into_iter().map(|reply| reply.answer.expect("no error")).collect()
}

#[test]
fn a_put_waits_for_as_many_replicas_as_it_asks_for_and_holds_up_nobody() {
    let (mut rig, mut client) = rig(Settings::default());
    (2..=3).for_each(|number| follow(&mut rig, number));
    rig.start_call(&mut client, PUT, &values!["dear", options! { replicas: 2 }]);
    rig.start_call(&mut client, PUT, &values!["cheap"]);
    assert!(rig.replies(&client).is_empty(), "nothing is on the disk");
    rig.sync_journal();
    assert_eq!(answers(&mut rig, &client), [task(1, "r", "cheap")]);
    confirm(&mut rig, 2);
    assert!(rig.replies(&client).is_empty(), "one replica has it");
    confirm(&mut rig, 3);
    assert_eq!(answers(&mut rig, &client), [task(0, "r", "dear")]);
    let many = values![vec![Value::str("a"), Value::str("b")], options! { replicas: 1 }];
    rig.start_call(&mut client, "queue.tube.t:put_many", &many);
    rig.sync_journal();
    assert!(rig.replies(&client).is_empty());
    confirm(&mut rig, 3);
    assert_eq!(rig.replies(&client).len(), 1);
}

#[test]
fn a_wish_that_every_reply_has_costs_nothing_more() {
    let (mut rig, mut client) = rig(Settings::default());
    rig.start_call(&mut client, PUT, &values!["x", options! { replicas: 0 }]);
    rig.sync_journal();
    assert_eq!(answers(&mut rig, &client), [task(0, "r", "x")]);
}

#[test]
fn wishes_that_cannot_be_granted_are_refused_before_anything_happens() {
    let (mut rig, mut client) = rig(Settings { refuses_without_replicas: true, ..Settings::default() });
    follow(&mut rig, 2);
    let (code, text) = refused(rig.call(&mut client, PUT, &values!["x", options! { replicas: 2 }]));
    assert_eq!(code, ErrorCode::SyncQuorumTimeout);
    assert!(text.contains("1 replicas are connected and the put asks for 2"), "{text}");
    let (code, text) = refused(rig.call(&mut client, PUT, &values!["x", options! { replicas: "two" }]));
    assert_eq!(code, ErrorCode::ProcLua);
    assert!(text.contains("Invalid value of replicas"), "{text}");
    assert_eq!(rig.call(&mut client, "queue.tube.t:take", &values![0]), Ok(vec![]), "nothing was put");
}

#[test]
fn a_put_that_waits_for_space_first_waits_for_replicas_then() {
    let (mut rig, mut client) = rig(Settings::default());
    let mut admin = rig.admin();
    let created = values!["l", "limfifottl", options! { capacity: 1 }];
    rig.call(&mut admin, "queue.create_tube", &created).expect("created");
    rig.call(&mut admin, "queue.tube.l:put", &values!["first"]).expect("put");
    follow(&mut rig, 2);
    let wished = values!["second", options! { timeout: 100, replicas: 1 }];
    rig.start_call(&mut client, "queue.tube.l:put", &wished);
    rig.call(&mut admin, "queue.tube.l:delete", &values![0]).expect("deleted");
    rig.sync_journal();
    assert!(rig.replies(&client).is_empty(), "no replica has it");
    confirm(&mut rig, 2);
    assert_eq!(answers(&mut rig, &client), [task(1, "r", "second")]);
    // A tube that stays full: nothing was put, and nothing is waited for.
    let full = values!["third", options! { timeout: 0, replicas: 1 }];
    assert_eq!(rig.call(&mut admin, "queue.tube.l:put", &full), Ok(vec![Value::Nil]));
}

#[test]
fn a_client_that_goes_is_forgotten() {
    let (mut rig, mut client) = rig(Settings::default());
    rig.start_call(&mut client, PUT, &values!["x", options! { replicas: 2 }]);
    rig.sync_journal();
    assert_eq!(rig.instance.status().waiting_calls, 1);
    rig.disconnect(&client);
    rig.advance(1);
    assert_eq!(rig.instance.status().waiting_calls, 0);
    let mut other = rig.guest();
    assert_eq!(rig.call(&mut other, "queue.tube.t:take", &values![0]), Ok(task(0, "t", "x")));
}
