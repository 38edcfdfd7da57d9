//! Bytes from a socket: frames, requests, replies, greetings.

use lycosa_iproto::auth;
use lycosa_iproto::frame::{FrameError, Split, split};
use lycosa_iproto::greeting::Greeting;
use lycosa_iproto::reply;
use lycosa_iproto::request::{self, AuthTuple, Body, Request};

/// No frame is taken that is longer.
const LIMIT: usize = 1 << 20;

/// Cuts the bytes into frames and decodes each as a request and as a reply. A request that was decoded is the same after
/// it was encoded; a frame that is cut needs more bytes, and never more than it lacks.
///
/// # Panics
/// If one of that is not so.
pub fn frame_and_request(data: &[u8]) {
    if let Ok(Ok(greeting)) = data.try_into().map(Greeting::decode) {
        let _ = auth::scramble(b"secret", &greeting.salt);
        // What another server says of its version may be too long for ours to say.
        if let Ok(bytes) = greeting.encode() {
            assert_eq!(Greeting::decode(&bytes), Ok(greeting));
        }
    }
    let mut rest = data;
    loop {
        match split(rest, LIMIT) {
            Ok(Split::Frame { content, consumed }) => {
                check_cuts(&rest[..consumed]);
                check_request(content);
                check_reply(content);
                rest = &rest[consumed..];
            }
            Ok(Split::NeedMore(missing)) => {
                assert!(missing > 0);
                break;
            }
            Err(error) => {
                let _ = error.to_string();
                break;
            }
        }
    }
    check_request(data);
    check_reply(data);
}

fn check_cuts(frame: &[u8]) {
    for length in (0..frame.len()).take(16).chain((0..frame.len()).rev().take(4)) {
        match split(&frame[..length], LIMIT) {
            Ok(Split::NeedMore(missing)) => assert!((1..=frame.len() - length).contains(&missing)),
            // A frame that does not begin with a map is refused before it is whole.
            Err(FrameError::Header) => assert!(!begins_with_map(frame)),
            other => panic!("{length} of {} bytes are {other:?}", frame.len()),
        }
    }
}

fn begins_with_map(frame: &[u8]) -> bool {
    let Ok(Split::Frame { content, .. }) = split(frame, LIMIT) else { return false };
    matches!(content.first(), Some(0x80..=0x8f | 0xde | 0xdf))
}

fn check_request(content: &[u8]) {
    let Ok(Request { header, body }) = request::decode(content) else { return };
    if matches!(body, Body::Auth { scramble: AuthTuple::Malformed(_), .. }) {
        return;
    }
    let mut frame = Vec::new();
    request::encode(&mut frame, header.sync, &body);
    let Ok(Split::Frame { content, consumed }) = split(&frame, usize::MAX) else {
        panic!("an encoded request is no frame")
    };
    assert_eq!(consumed, frame.len());
    let again = request::decode(content).expect("an encoded request is one");
    assert_eq!((again.header.kind, again.header.sync, again.body), (header.kind, header.sync, body));
}

fn check_reply(content: &[u8]) {
    let _ = reply::decode(content);
    let _ = reply::sync_of(content);
}
