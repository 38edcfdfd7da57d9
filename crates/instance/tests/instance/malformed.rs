//! Frames that cannot be understood: an answer, and the connection lives on if it has shown before that it speaks the
//! protocol; broken lengths and headers end it.

use lycosa_instance::Broken;
use lycosa_iproto::error::ErrorCode;
use lycosa_iproto::frame::FrameError;
use lycosa_iproto::request::Body;

use crate::rig::{Rig, refused, values};

#[test]
fn a_malformed_body_costs_an_error() {
    let mut rig = Rig::new();
    let mut client = rig.admin();
    assert_eq!(rig.ping(&mut client), Ok(vec![]));
    for (frame, sync, code, text) in BODIES {
        rig.handle_frame(&client, frame);
        let reply = rig.replies(&client).remove(0);
        assert_eq!(reply.sync, sync);
        assert_eq!(refused(reply.answer), (code, text.to_owned()));
        assert!(!rig.instance.is_paused(client.slot) && !rig.instance.wants_close(client.slot));
    }
    assert_eq!(rig.ping(&mut client), Ok(vec![]));
    let requests = rig.instance.status().requests;
    assert_eq!((requests.malformed, requests.errors), (3, 3));
}

/// Frames with a sound header and a malformed body: content, `sync`, code and text of the answer.
const BODIES: [(&[u8], u64, ErrorCode, &str); 3] = [
    (&[0x82, 0, 2, 1, 7, 0x81, 0x10], 7, ErrorCode::InvalidMsgpack, "Invalid MsgPack - packet body"),
    (
        &[0x82, 0, 2, 1, 8, 0x80],
        8,
        ErrorCode::MissingRequestField,
        "Missing mandatory field 'space id' in request",
    ),
    (
        &[0x82, 0, 10, 1, 9],
        9,
        ErrorCode::MissingRequestField,
        "Missing mandatory field 'function name' in request",
    ),
];

#[test]
fn until_a_valid_request_has_come_everything_else_ends_the_connection() {
    for (frame, sync, code, text) in BODIES {
        let mut rig = Rig::new();
        let client = rig.admin();
        rig.handle_frame(&client, frame);
        let reply = rig.replies(&client).remove(0);
        assert_eq!((reply.sync, refused(reply.answer)), (sync, (code, text.to_owned())));
        assert!(rig.instance.is_paused(client.slot), "nothing more is read");
        assert!(rig.instance.wants_close(client.slot));
        assert_eq!(rig.instance.status().requests.malformed, 1);
    }
    // An unknown type in a sound frame is a valid request: newer clients ask what there is.
    for kind in [14, 73, 74, 255] {
        let mut rig = Rig::new();
        let mut client = rig.admin();
        refused(rig.ask(&mut client, &Body::Unknown(kind)));
        rig.handle_frame(&client, BODIES[0].0);
        assert!(!rig.instance.wants_close(client.slot), "{kind}");
    }
}

#[test]
fn a_header_that_no_client_sends_ends_the_connection_after_an_answer() {
    let header = "Invalid MsgPack - packet header";
    let frames: [(&[u8], u64, ErrorCode, &str); 9] = [
        (&[], 0, ErrorCode::InvalidMsgpack, header),
        (&[0xc1], 0, ErrorCode::InvalidMsgpack, header),
        (b"OST / HTTP/1.1\r\nHost: 127.0.0.1:3301\r\n", 0, ErrorCode::InvalidMsgpack, header),
        (&[0x94, 0x00, 0x40, 0x01, 0x01], 0, ErrorCode::InvalidMsgpack, header),
        (&[0x82, 0x00, 0x40], 0, ErrorCode::InvalidMsgpack, header),
        (&[0x82, 0x00, 0xa1, b'x', 0x01, 0x05], 0, ErrorCode::InvalidMsgpack, header),
        (&[0x83, 0x50, 0x00, 0x00, 0x40, 0x01, 0x05], 0, ErrorCode::InvalidMsgpack, header),
        (&[0x80], 0, ErrorCode::UnknownRequestType, "Unknown request type 0"),
        (&[0x81, 0x01, 0x05], 5, ErrorCode::UnknownRequestType, "Unknown request type 0"),
    ];
    for (frame, sync, code, text) in frames {
        for is_proven in [false, true] {
            let mut rig = Rig::new();
            let mut client = rig.admin();
            if is_proven {
                assert_eq!(rig.ping(&mut client), Ok(vec![]));
            }
            rig.handle_frame(&client, frame);
            let reply = rig.replies(&client).remove(0);
            assert_eq!((reply.sync, refused(reply.answer)), (sync, (code, text.to_owned())), "{frame:x?}");
            assert!(
                rig.instance.is_paused(client.slot) && rig.instance.wants_close(client.slot),
                "{frame:x?}"
            );
        }
    }
}

#[test]
fn a_stranger_is_answered_in_its_own_words() {
    let mut rig = Rig::new();
    let client = rig.stranger();
    let frame = b"GET / HTTP/1.1\r\n\r\n";
    assert!(rig.instance.handle_frame(client.slot, frame, rig.now).is_err());
    assert!(rig.instance.is_paused(client.slot), "nothing more is taken, whatever the caller does");
    rig.instance.refuse_stranger(client.slot, b"HTTP/1.1 400 Bad Request\r\n\r\n");
    assert_eq!(rig.instance.output(client.slot), b"HTTP/1.1 400 Bad Request\r\n\r\n");
    assert!(rig.instance.wants_close(client.slot));
    assert_eq!(rig.instance.status().requests.malformed, 1);
}

#[test]
fn unknown_requests_are_named() {
    let mut rig = Rig::new();
    let mut client = rig.stranger();
    for kind in [0, 14, 30, 40, 41, 63, 71, 255] {
        let answer = rig.ask(&mut client, &Body::Unknown(kind));
        let expected = (ErrorCode::UnknownRequestType, format!("Unknown request type {kind}"));
        assert_eq!(refused(answer), expected);
    }
    let id = Body::Id { version: 3, features: &values![0, 1].encode() };
    assert_eq!(refused(rig.ask(&mut client, &id)).1, "Unknown request type 73");
}

#[test]
fn a_broken_length_ends_the_connection_after_an_answer() {
    for (error, text) in [
        (FrameError::Length, "Invalid MsgPack - packet length"),
        (
            FrameError::TooBig(4_294_967_295),
            "Invalid MsgPack - too big packet size in the header: 4294967295",
        ),
    ] {
        let mut rig = Rig::new();
        rig.create_space(600, "s", crate::rig::options! {});
        let (mut client, mut other) = (rig.admin(), rig.admin());
        let tuple = values![1].encode();
        let sync = rig.send(&mut client, &Body::Replace { space: 600, tuple: &tuple });
        rig.instance.refuse(client.slot, &Broken::from(error));
        assert!(rig.instance.is_paused(client.slot), "nothing more is read");
        assert!(rig.instance.wants_close(client.slot));
        assert_eq!(rig.replies(&client), [], "replies on their way are awaited");
        rig.sync_journal();
        let mut replies = rig.replies(&client);
        assert_eq!(crate::rig::syncs(&replies), [sync, 0]);
        let expected = (ErrorCode::InvalidMsgpack, text.to_owned());
        assert_eq!(refused(replies.remove(1).answer), expected);
        assert_eq!(rig.ping(&mut other), Ok(vec![]));
        assert!(!rig.instance.wants_close(other.slot));
    }
}

#[test]
fn a_connection_that_is_gone_is_neither_read_nor_answered() {
    let mut rig = Rig::new();
    let mut client = rig.admin();
    rig.disconnect(&client);
    assert!(rig.instance.is_paused(client.slot) && rig.instance.wants_close(client.slot));
    rig.send(&mut client, &Body::Ping);
    let name = b"box.info";
    rig.send(&mut client, &Body::Call { name, args: &values![].encode() });
    rig.send(&mut client, &Body::Insert { space: 280, tuple: &values![1].encode() });
    rig.handle_frame(&client, &[0xc1]);
    rig.instance.refuse(client.slot, &FrameError::Length.into());
    rig.instance.consume(client.slot, 0);
    assert_eq!(rig.instance.output(client.slot), b"");
    assert_eq!(rig.instance.pending_bytes(client.slot), 0);
    assert_eq!(rig.ready(), []);
}
