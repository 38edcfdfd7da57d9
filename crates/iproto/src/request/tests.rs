use lycosa_tuple::mp;
use proptest::prelude::*;

use super::*;
use crate::frame::{self, Split};
use crate::samples::bytes;

/// What a frame recorded from a real server's connection is answered with: `sync` and the text of the error, if any.
fn answer(frame: &str) -> (u64, Option<String>) {
    let frame = bytes(frame);
    let Ok(Split::Frame { content, consumed }) = frame::split(&frame, frame::DEFAULT_LIMIT) else {
        panic!("not one frame");
    };
    assert_eq!(consumed, frame.len());
    answer_to_content(content)
}

fn answer_to_content(content: &[u8]) -> (u64, Option<String>) {
    if let Some((header, name, args)) = decode_plain_call(content) {
        assert_eq!(decode(content), Ok(Request { header, body: Body::Call { name, args } }));
    }
    match decode(content) {
        Ok(Request { header, body: Body::Unknown(kind) }) => {
            (header.sync, Some(RequestError::unknown_type(header.sync, kind).to_string()))
        }
        Ok(request) => (request.header.sync, None),
        Err(error) => (error.sync, Some(error.to_string())),
    }
}

fn check(cases: &[(&str, u64, &str)]) {
    for &(frame, sync, text) in cases {
        let expected = (!text.is_empty()).then(|| text.to_owned());
        assert_eq!(answer(frame), (sync, expected), "{frame}");
    }
}

/// The same for contents without their length.
fn check_contents(cases: &[(&str, u64, &str)]) {
    for &(content, sync, text) in cases {
        let expected = (!text.is_empty()).then(|| text.to_owned());
        assert_eq!(answer_to_content(&bytes(content)), (sync, expected), "{content}");
    }
}

const HEADER: &str = "Invalid MsgPack - packet header";
const BODY: &str = "Invalid MsgPack - packet body";

#[test]
fn pings() {
    check(&[
        ("ce000000058200400101", 1, ""),
        ("ce00000006820040010280", 2, ""),
        ("ce00000003810040", 0, ""),
        ("ce0000000d82004001cfffffffffffffffff", u64::MAX, ""),
        ("ce0000000b840040010555a178639101", 5, HEADER),
        ("ce000000088200400105815501", 5, ""),
        ("058200400109", 9, ""),
        ("cd0005820040010a", 10, ""),
        ("cf0000000000000005820040010b", 11, ""),
        ("ce00000006820040010590", 5, ""),
        ("ce0000000782004001 05a161", 5, ""),
    ]);
}

#[test]
fn malformed_contents() {
    check(&[
        ("ce00000000", 0, HEADER),
        ("ce000000059400400101", 0, HEADER),
        ("ce00000001c0", 0, HEADER),
        ("ce0000000180", 0, "Unknown request type 0"),
        ("ce00000003810105", 5, "Unknown request type 0"),
        ("ce000000098200a470696e670105", 0, HEADER),
        ("ce0000000682004001a178", 0, HEADER),
        ("ce0000000582004001ff", 0, HEADER),
        ("ce00000003820040", 0, HEADER),
        ("ce0000000482010500", 0, HEADER),
        ("ce00000001c1", 0, HEADER),
        ("ce00000006820001010590", 5, BODY),
        ("ce0000000782000101058210", 5, BODY),
        ("ce0000000982000101058110cd02", 5, BODY),
        ("ce0000000782004001058080", 5, BODY),
        ("ce000000088200400105800102", 5, BODY),
        ("ce0000000982a474797065400105", 0, HEADER),
        ("ce0000000f83cf00000001000000000100400105", 0, HEADER),
        ("ce0000000f820001010581a57370616365cd0200", 5, "Missing mandatory field 'space id' in request"),
        ("ce00000008830040010505a178", 5, HEADER),
        ("ce0000000d8200cf00000001000000000105", 5, "Unknown request type 0"),
        ("ce0000000e82000201058210cd0205219201c1", 5, ""),
    ]);
}

#[test]
fn headers() {
    check_contents(&[
        ("83100500400105", 5, ""),
        ("83060500400105", 5, ""),
        ("830a0100400105", 5, ""),
        ("830ac000400105", 0, HEADER),
        ("83200500400105", 0, HEADER),
        ("835280 00400105", 0, HEADER),
        ("8304050040 0105", 0, HEADER),
        ("8304cb0000000000000000 0040 0105", 5, ""),
        ("82cc00400105", 5, ""),
        ("83004001050106", 6, ""),
    ]);
}

#[test]
fn every_type() {
    let missing = |field: &str| format!("Missing mandatory field '{field}' in request");
    for kind in 0..=u16::from(u8::MAX) {
        let mut frame = vec![0x82, keys::REQUEST_TYPE];
        mp::write_uint(&mut frame, kind.into());
        frame.extend_from_slice(&[keys::SYNC, 7, 0x80]);
        let expected = match kind {
            1..=5 | 9 => Err((ErrorCode::MissingRequestField, missing("space id"))),
            6 | 10 => Err((ErrorCode::MissingRequestField, missing("function name"))),
            7 => Err((ErrorCode::MissingRequestField, missing("user name"))),
            8 => Err((ErrorCode::MissingRequestField, missing("expression"))),
            11 | 13 => Err((ErrorCode::MissingRequestField, missing("SQL text or stmt id"))),
            12 => Err((ErrorCode::InvalidMsgpack, BODY.to_owned())),
            64 => Ok(Body::Ping),
            65 => Ok(Body::Join { instance_uuid: None }),
            66 => Ok(Body::Subscribe(Subscribe::default())),
            67 => Ok(Body::VoteDeprecated),
            68 => Ok(Body::Vote),
            69 => Ok(Body::FetchSnapshot),
            70 => Ok(Body::Register { instance_uuid: None, vclock: None }),
            73 => Ok(Body::Id { version: 0, features: NO_ARGUMENTS }),
            _ => Ok(Body::Unknown(kind.into())),
        };
        let expected =
            expected.map_err(|(code, message)| RequestError { sync: 7, code, message, ends_stream: false });
        assert_eq!(decode(&frame).map(|request| request.body), expected, "type {kind}");
    }
    check(&[
        ("ce0000000882007f01cd046780", 1127, "Unknown request type 127"),
        ("ce0000000a8200cd010001cd04e880", 1256, "Unknown request type 0"),
        ("ce000000128200ceffffffff01cf00000001000003e780", 4_294_968_295, "Unknown request type 255"),
    ]);
    check_contents(&[
        ("82000c0105", 5, "Unknown request type 12"),
        ("8200140105 8080", 5, BODY),
        ("8200140105 8180", 5, BODY),
    ]);
}

#[test]
fn data_requests() {
    let select = |fields: &str| {
        let content = bytes(&format!("8200010105 {fields}"));
        decode(&content).map(|request| match request.body {
            Body::Select { space, index, limit, offset, iterator, key } => {
                ([space, index, limit, offset, iterator], key.to_vec())
            }
            other => panic!("{other:?}"),
        })
    };
    let refusal = |fields: &str| select(fields).expect_err("refused").to_string();
    let plain = ([600, 0, 1, 0, 0], vec![0x90]);
    assert_eq!(select("86 10cd0258 1100 1201 1300 1400 2090"), Ok(plain.clone()));
    // Unknown values are passed over: other integers, strings, keys in wide forms.
    assert_eq!(select("87 2205 10cd0258 1100 1201 1300 1400 2090"), Ok(plain.clone()));
    assert_eq!(select("87 05a161 10cd0258 1100 1201 1300 1400 2090"), Ok(plain.clone()));
    assert_eq!(select("87 a161a161 10cd0258 1100 1201 1300 1400 2090"), Ok(plain.clone()));
    assert_eq!(select("84 10cd0258 cc1009 1201 2090"), Ok(plain.clone()));
    // Integers are cut to 32 bits; the last of two counts.
    assert_eq!(select("83 10cf0000000100000258 1201 2090"), Ok(plain.clone()));
    assert_eq!(select("84 10cd0200 10cd0258 1201 2090"), Ok(plain));
    assert_eq!(select("83 10cd0258 12cf0000000100000000 2090"), Ok(([600, 0, 0, 0, 0], vec![0x90])));
    assert_eq!(
        select("83 10cd0258 12cfffffffffffffffff 2091a161"),
        Ok(([600, 0, u32::MAX, 0, 0], vec![0x91, 0xa1, 0x61]))
    );
    for wrong in ["2805", "15a161", "2105", "2005", "10d020", "10ff"] {
        assert_eq!(refusal(&format!("84 10cd0258 1201 2090 {wrong}")), BODY, "{wrong}");
    }
    assert_eq!(refusal("82 10cd0258 2090"), "Missing mandatory field 'limit' in request");
    assert_eq!(refusal("82 10cd0258 1201"), "Missing mandatory field 'key' in request");
    assert_eq!(refusal("81 2090"), "Missing mandatory field 'space id' in request");
    check_contents(&[
        ("8200040105 8110cd0258", 5, "Missing mandatory field 'key' in request"),
        ("8200040105 8210cd0258 2091a0", 5, "Missing mandatory field 'tuple' in request"),
        ("8200090105 8110cd0258", 5, "Missing mandatory field 'tuple' in request"),
        ("8200090105 8210cd0258 2191a0", 5, "Missing mandatory field 'operations' in request"),
    ]);
    let update = bytes("8200040105 8410cd0258 209101 2190 15cf0000000100000001");
    let expected = Body::Update { space: 600, index: 0, base: 1, key: &[0x91, 1], operations: &[0x90] };
    assert_eq!(decode(&update).map(|request| request.body), Ok(expected));
}

#[test]
fn calls() {
    let decoded = |hex: &str| {
        decode(&bytes(hex)).map(|request| match request.body {
            Body::Call { name, args } | Body::Eval { text: name, args } => {
                (String::from_utf8_lossy(name).into_owned(), args.to_vec())
            }
            other => panic!("{other:?}"),
        })
    };
    let echo = Ok(("echo".to_owned(), vec![0x91, 1]));
    assert_eq!(decoded("82000a0105 82 22a46563686f 219101"), echo);
    assert_eq!(decoded("82000a0105 82 cc22a46563686f 219101"), echo);
    assert_eq!(decoded("82000a0105 83 5505 22a46563686f 219101"), echo);
    assert_eq!(decoded("82000a0105 83 27a46563686e 22a46563686f 219101"), echo);
    assert_eq!(decoded("8200080105 81 27a46563686f"), Ok(("echo".to_owned(), NO_ARGUMENTS.to_vec())));
    check_contents(&[
        ("82000a0105 82 a161c0 22a46563686f", 5, BODY),
        ("82000a0105 82 22a46563686f 2180", 5, BODY),
        ("82000a0105 82 2205 2190", 5, BODY),
        ("8200080105 82 2705 2190", 5, BODY),
        ("82000a0105 82 22c4046563686f 2190", 5, BODY),
        ("82000a0105 82 27a46563686f 2190", 5, "Missing mandatory field 'function name' in request"),
        ("8200080105 82 22a46563686f 2190", 5, "Missing mandatory field 'expression' in request"),
    ]);
}

#[test]
fn authentication() {
    let hash = "ae4c8107dababbfdecd2040f7b3d61196b9603b7";
    let parsed = |tuple: &str| {
        let content = bytes(&format!("8200070101 82 23a6746573746572 21 {tuple}"));
        decode(&content).map(|request| match request.body {
            Body::Auth { user: b"tester", scramble } => scramble.scramble().copied(),
            other => panic!("{other:?}"),
        })
    };
    let good = Ok(Ok(Hash::try_from(bytes(hash)).expect("20 bytes")));
    assert_eq!(parsed(&format!("92 a9636861702d73686131 b4{hash}")), good);
    assert_eq!(parsed(&format!("92 a9636861702d73686131 c414{hash}")), good);
    assert_eq!(parsed(&format!("92 aa7061702d736861323536 b4{hash}")), good);
    assert_eq!(parsed(&format!("93 a9636861702d73686131 b4{hash} 01")), good);
    let reason = |tuple: &str| parsed(tuple).expect("a request").expect_err("no scramble");
    assert_eq!(reason("90"), "Invalid MsgPack - authentication request body");
    assert_eq!(reason("91 a9636861702d73686131"), "Invalid MsgPack - authentication request body");
    assert_eq!(reason("92 a0 a0"), "Invalid MsgPack - invalid scramble size");
    assert_eq!(reason("92 a0 aa78787878787878787878"), "Invalid MsgPack - invalid scramble size");
    assert_eq!(reason("92 a0 05"), "Invalid MsgPack - authentication scramble");
    check(&[
        ("ce0000000e82000701098123a6746573746572", 9, "Missing mandatory field 'tuple' in request"),
        ("ce00000006820007010a80", 10, "Missing mandatory field 'user name' in request"),
    ]);
    check_contents(&[
        ("8200070112 82 2305 2190", 18, BODY),
        ("8200070105 82 23a56775657374 2180", 5, BODY),
        ("8200070105 82 a161a161 23a56775657374", 5, BODY),
    ]);
}

#[test]
fn sql_requests() {
    let decoded = |fields: &str| match decode(&bytes(&format!("82000b0105 {fields}"))) {
        Ok(Request { body: Body::Execute(Sql::Text(text), _), .. }) => {
            String::from_utf8_lossy(text).into_owned()
        }
        Ok(Request { body: Body::Execute(Sql::Prepared(id), _), .. }) => format!("#{id}"),
        other => other.expect_err("refused").to_string(),
    };
    assert_eq!(decoded("83 40a173 4190 2b90"), "s");
    assert_eq!(decoded("81 4305"), "#5");
    assert_eq!(decoded("82 4180 40a173"), "Invalid MsgPack - SQL parameter list");
    assert!(decoded("82 4305 40a173").ends_with("are incompatible options in one request: choose one"));
    assert_eq!(decoded("81 cc40a173"), "Missing mandatory field 'SQL text or stmt id' in request");
}

#[test]
fn replication_requests() {
    let uuid = "d92439303363313933612d353636642d343962652d626434622d663634313661303734383237";
    let join = bytes(&format!("810041 81 24 {uuid}"));
    let expected = Body::Join { instance_uuid: Some(b"903c193a-566d-49be-bd4b-f6416a074827") };
    assert_eq!(decode(&join).map(|request| request.body), Ok(expected));
    let subscribe = bytes(&format!("810042 85 24 {uuid} 26 810118 06 ce00020600 50 c2 51 9101"));
    let expected = Subscribe {
        instance_uuid: Some(b"903c193a-566d-49be-bd4b-f6416a074827"),
        vclock: Some(&[0x81, 0x01, 0x18]),
        version: 132_608,
        id_filter: Some(&[0x91, 0x01]),
        ..Subscribe::default()
    };
    assert_eq!(decode(&subscribe).map(|request| request.body), Ok(Body::Subscribe(expected)));
    let wrong = bytes("8200420105 81 2405");
    assert_eq!(decode(&wrong).expect_err("refused").to_string(), "Invalid MsgPack - request body");
}

#[test]
fn frames_of_a_recorded_client() {
    let encoded = |sync, body: &Body<'_>| {
        let mut out = Vec::new();
        encode(&mut out, sync, body);
        out
    };
    assert_eq!(encoded(1, &Body::Ping), bytes("ce000000058200400101"));
    let scramble = Hash::try_from(bytes("ae4c8107daba4bfdecd2040f7b3d61196b9603b7")).expect("20 bytes");
    let auth = Body::Auth { user: b"tester", scramble: AuthTuple::ChapSha1(&scramble) };
    let frame = "ce0000002f82000701018223a67465737465722192a9636861702d73686131b4ae4c8107daba4bfdecd2040f7b3d61196b9603b7";
    assert_eq!(encoded(1, &auth), bytes(frame));
    let call = Body::Call { name: b"as_value", args: NO_ARGUMENTS };
    assert_eq!(encoded(3, &call), bytes("ce0000001282000a01038222a861735f76616c75652190"));
    let insert = Body::Insert { space: 512, tuple: &bytes("930aa17801") };
    assert_eq!(encoded(6, &insert), bytes("ce0000001082000201068210cd020021930aa17801"));
    let eval = Body::Eval { text: b"error('boom')", args: NO_ARGUMENTS };
    assert_eq!(encoded(7, &eval), bytes("ce0000001782000801078227ad6572726f722827626f6f6d27292190"));
}

/// An array of a few small values.
fn arrays() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<i64>(), 0..20).prop_map(|numbers| {
        let mut out = Vec::new();
        mp::write_array(&mut out, numbers.len() as u32);
        numbers.iter().for_each(|&number| mp::write_int(&mut out, number));
        out
    })
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(
        sync in any::<u64>(),
        (space, index, limit, offset, iterator) in any::<(u32, u32, u32, u32, u32)>(),
        base in any::<i32>().prop_map(i64::from),
        (key, tuple, operations) in (arrays(), arrays(), arrays()),
        name in prop::collection::vec(any::<u8>(), 0..80),
        scramble in any::<Hash>(),
        is_anonymous in any::<bool>(),
    ) {
        let (key, tuple, operations, name) = (&key[..], &tuple[..], &operations[..], &name[..]);
        let bodies = [
            Body::Select { space, index, limit, offset, iterator, key },
            Body::Insert { space, tuple },
            Body::Replace { space, tuple },
            Body::Update { space, index, base, key, operations },
            Body::Upsert { space, base, tuple, operations },
            Body::Delete { space, index, key },
            Body::Call { name, args: tuple },
            Body::Call16 { name, args: tuple },
            Body::Eval { text: name, args: tuple },
            Body::Execute(Sql::Text(name), tuple),
            Body::Prepare(Sql::Prepared(index)),
            Body::Auth { user: name, scramble: AuthTuple::ChapSha1(&scramble) },
            Body::Auth { user: name, scramble: AuthTuple::Empty },
            Body::Ping,
            Body::Id { version: sync, features: tuple },
            Body::VoteDeprecated,
            Body::Vote,
            Body::Join { instance_uuid: Some(name) },
            Body::Subscribe(Subscribe {
                instance_uuid: Some(name),
                cluster_uuid: None,
                vclock: Some(&[0x81, 1, 2]),
                version: limit,
                is_anonymous,
                id_filter: Some(tuple),
                lineage: Some(tuple),
            }),
            Body::FetchSnapshot,
            Body::Register { instance_uuid: Some(name), vclock: Some(&[0x80]) },
            Body::Unknown(200),
        ];
        for body in bodies {
            let mut out = Vec::new();
            encode(&mut out, sync, &body);
            let Ok(Split::Frame { content, consumed }) = frame::split(&out, frame::DEFAULT_LIMIT) else {
                panic!("not one frame");
            };
            prop_assert_eq!(consumed, out.len());
            let header = Header { kind: body.kind(), sync, schema_version: 0 };
            prop_assert_eq!(decode(content), Ok(Request { header, body }));
            // No prefix of it panics, and none is taken for the whole but where the body may be absent.
            for length in 0..content.len() {
                let _ = decode(&content[..length]);
            }
        }
    }

    /// The short way and the long way of reading give the same.
    #[test]
    fn a_plain_header_is_a_header(
        tail in prop::collection::vec(any::<u8>(), 0..24),
        kind in any::<u8>(),
        has_version in any::<bool>(),
        (sync, version) in any::<(u64, u64)>(),
    ) {
        let first = if has_version { 0x83 } else { 0x82 };
        let mut content = vec![first, keys::REQUEST_TYPE, kind, keys::SYNC];
        let noise = [&content, &tail[..]].concat();
        mp::write_uint(&mut content, sync);
        if has_version {
            content.push(keys::SCHEMA_VERSION);
            mp::write_uint(&mut content, version);
        }
        let whole = content.len();
        content.extend_from_slice(&tail);
        prop_assert_eq!(plain_header(&content).is_some(), kind < 0x80);
        for length in 0..whole {
            prop_assert!(plain_header(&content[..length]).is_none());
        }
        for content in [content, noise] {
            if let Some((header, reader)) = plain_header(&content) {
                let (expected, expected_reader) = decode_header(&content).expect("a header");
                prop_assert_eq!(header, expected);
                prop_assert_eq!(reader.rest(), expected_reader.rest());
            }
        }
    }

    #[test]
    fn a_plain_call_is_a_call(
        name in prop::collection::vec(any::<u8>(), 0..300),
        args in prop::collection::vec(any::<i64>(), 0..20),
        noise in prop::collection::vec(any::<u8>(), 0..8),
    ) {
        let mut body = vec![0x82, keys::FUNCTION_NAME];
        mp::write_str(&mut body, &name);
        body.push(keys::TUPLE);
        let values = body.len();
        mp::write_array(&mut body, args.len() as u32);
        args.iter().for_each(|&number| mp::write_int(&mut body, number));
        prop_assert_eq!(plain_call(&body), Some((&name[..], &body[values..])));
        for length in 0..body.len() {
            prop_assert_eq!(plain_call(&body[..length]), None);
        }
        for changed in [[&body[..], &noise].concat(), [&body[..values], &noise].concat()] {
            if let Some(plain) = plain_call(&changed) {
                let long = whole(&mut Reader::new(&changed), Procedure::read).expect("a body");
                prop_assert_eq!((long.name, long.args), (Some(plain.0), plain.1));
            }
        }
    }

    #[test]
    fn no_bytes_panic(content in prop::collection::vec(any::<u8>(), 0..64), kind in any::<u8>()) {
        let _ = decode(&content);
        let _ = decode(&[&[0x82, 0x00, 0xcc, kind, 0x01, 0x01][..], &content].concat());
        let _ = decode(&[&[0x82, 0x00, 0xcc, kind, 0x01, 0x01, 0x83][..], &content].concat());
    }
}
