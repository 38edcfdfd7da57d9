//! Frames that cannot be understood: an answer, and the connection lives on; broken lengths end it.

use lycosa_iproto::error::ErrorCode;
use lycosa_iproto::frame::FrameError;
use lycosa_iproto::request::Body;

use crate::rig::{Rig, refused, values};

#[test]
fn a_frame_that_is_no_request_costs_an_error() {
    let mut rig = Rig::new();
    let mut client = rig.admin();
    let frames: [(&[u8], u64, ErrorCode, &str); 6] = [
        (&[], 0, ErrorCode::InvalidMsgpack, "Invalid MsgPack - packet header"),
        (&[0xc1], 0, ErrorCode::InvalidMsgpack, "Invalid MsgPack - packet header"),
        (b"GET / HTTP/1.1", 0, ErrorCode::InvalidMsgpack, "Invalid MsgPack - packet header"),
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
    for (frame, sync, code, text) in frames {
        rig.instance.handle_frame(client.slot, frame, rig.now);
        let reply = rig.replies(&client).remove(0);
        assert_eq!(reply.sync, sync);
        assert_eq!(refused(reply.answer), (code, text.to_owned()));
        assert!(!rig.instance.is_paused(client.slot) && !rig.instance.wants_close(client.slot));
    }
    assert_eq!(rig.ping(&mut client), Ok(vec![]));
    let requests = rig.instance.status().requests;
    assert_eq!((requests.malformed, requests.errors), (6, 6));
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
        rig.instance.handle_broken_frame(client.slot, &error);
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
    rig.instance.handle_frame(client.slot, &[0xc1], rig.now);
    rig.instance.handle_broken_frame(client.slot, &FrameError::Length);
    rig.instance.consume(client.slot, 0);
    assert_eq!(rig.instance.output(client.slot), b"");
    assert_eq!(rig.instance.pending_bytes(client.slot), 0);
    assert_eq!(rig.ready(), []);
}
