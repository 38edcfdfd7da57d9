//! Spaces and indexes are made by changing the rows that define them; each reply tells the schema's version.

use lycosa_iproto::error::ErrorCode;
use lycosa_iproto::request::Body;
use lycosa_tuple::mp;

use crate::rig::{Client, Rig, options, refused, values};

/// Sends a request; the schema version of its reply.
fn version_after(rig: &mut Rig, client: &mut Client, body: &Body<'_>) -> u64 {
    rig.send(client, body);
    rig.sync_journal();
    rig.replies(client).remove(0).schema_version
}

#[test]
fn each_change_of_the_schema_has_a_version() {
    let mut rig = Rig::new();
    let mut admin = rig.admin();
    let before = version_after(&mut rig, &mut admin, &Body::Ping);
    assert_eq!(before, u64::from(rig.instance.store().schema_version()));
    let space = values![600, 1, "s", "memtx", 0, options! {}, values![]].encode();
    let insert = Body::Insert { space: 280, tuple: &space };
    assert_eq!(version_after(&mut rig, &mut admin, &insert), before + 1);
    let index =
        values![600, 0, "pk", "tree", options! { unique: true }, values![values![0, "unsigned"]]].encode();
    let insert = Body::Insert { space: 288, tuple: &index };
    assert_eq!(version_after(&mut rig, &mut admin, &insert), before + 2);
    let row = values![1].encode();
    let insert = Body::Insert { space: 600, tuple: &row };
    assert_eq!(version_after(&mut rig, &mut admin, &insert), before + 2, "data is no schema");
    let key = values![600, 0].encode();
    let delete = Body::Delete { space: 288, index: 0, key: &key };
    assert_eq!(version_after(&mut rig, &mut admin, &delete), before + 3);
}

#[test]
fn a_tube_is_spaces_too() {
    let mut rig = Rig::new();
    let mut client = rig.guest();
    let before = version_after(&mut rig, &mut client, &Body::Ping);
    let args = values!["t", "fifo"].encode();
    let create = Body::Call { name: b"queue.create_tube", args: &args };
    let after = version_after(&mut rig, &mut client, &create);
    assert!(after > before);
    assert_eq!(version_after(&mut rig, &mut client, &Body::Ping), after);
}

/// A frame with a schema version in its header.
fn with_version(kind: u8, sync: u8, version: u64, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x83, 0x00, kind, 0x01, sync, 0x05];
    mp::write_uint(&mut frame, version);
    frame.extend_from_slice(body);
    frame
}

#[test]
fn a_request_for_another_schema_is_refused() {
    let mut rig = Rig::new();
    let client = rig.admin();
    let current = u64::from(rig.instance.store().schema_version());
    let mut ask = |frame: &[u8]| {
        rig.handle_frame(&client, frame);
        rig.sync_journal();
        rig.replies(&client).remove(0)
    };
    assert_eq!(ask(&with_version(64, 1, current, &[])).answer, Ok(vec![]));
    assert_eq!(ask(&with_version(64, 1, 0, &[])).answer, Ok(vec![]), "0 is any");
    let reply = ask(&with_version(64, 3, current + 1, &[]));
    assert_eq!((reply.sync, reply.schema_version), (3, current));
    let (code, text) = refused(reply.answer);
    assert_eq!(code, ErrorCode::WrongSchemaVersion);
    assert_eq!(text, format!("Wrong schema version, current: {current}, in request: {}", current + 1));
    let body = [0x82, 0x10, 0xcd, 0x02, 0x58, 0x21, 0x91, 0x01];
    let reply = ask(&with_version(2, 4, 1 << 40, &body));
    assert_eq!(refused(reply.answer).0, ErrorCode::WrongSchemaVersion, "before anything else");
    assert_eq!(refused(ask(&with_version(99, 5, 7, &[])).answer).0, ErrorCode::UnknownRequestType);
}

#[test]
fn a_definition_that_is_refused_changes_nothing() {
    let mut rig = Rig::new();
    let mut admin = rig.admin();
    let status = rig.instance.standing().signature;
    let version = rig.instance.store().schema_version();
    let row = values![600, 1, "s", "rocksdb", 0, options! {}, values![]];
    let refusal = refused(rig.insert(&mut admin, 280, &row));
    assert_eq!(refusal, (ErrorCode::NoSuchEngine, "Space engine 'rocksdb' does not exist".to_owned()));
    let row = values![600, 0, "pk", "tree", options! { unique: true }, values![values![0, "unsigned"]]];
    assert_eq!(refused(rig.insert(&mut admin, 288, &row)).0, ErrorCode::NoSuchSpace);
    let row = values![600, 1, "_space", "memtx", 0, options! {}, values![]];
    assert_eq!(refused(rig.insert(&mut admin, 280, &row)).0, ErrorCode::TupleFound);
    assert_eq!(rig.instance.standing().signature, status);
    assert!(rig.instance.poll_append().is_none());
    let after = rig.instance.store().schema_version();
    assert!(after >= version);
}

#[test]
fn a_space_of_vinyl_is_logged_because_a_tarantool_will_refuse_the_folder() {
    let mut rig = Rig::new();
    let mut admin = rig.admin();
    rig.create_tube("t", "fifo");
    while rig.instance.poll_log().is_some() {}
    let options = options! { engine: "vinyl" };
    rig.call(&mut admin, "queue.create_tube", &values!["v", "fifo", options]).expect("a tube");
    let lines: Vec<_> = std::iter::from_fn(|| rig.instance.poll_log()).map(|line| line.text).collect();
    assert!(lines.len() == 1 && lines[0].starts_with("space 'v' is of vinyl"), "{lines:?}");
}
