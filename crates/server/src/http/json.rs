//! JSON to MessagePack and back, without loss.
//!
//! What JSON cannot say is never approximated: [`from_msgpack`] refuses bytes, extensions, text that is not UTF-8, NaN, infinities
//! and maps whose keys are not text, and a payload that has any of it is shown as base64 (see [`payload`]). Whole numbers
//! up to 64 bits stay as they are; ids of tasks are texts, because a browser rounds numbers beyond 2⁵³.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lycosa_tuple::mp::{self, Kind, Reader};
use serde_json::{Map, Value as Json};

/// Arrays and maps inside each other; a deeper value is shown as base64. Readers of JSON have such limits too.
const MAX_DEPTH: u32 = 128;

/// Appends a JSON value as MessagePack.
pub(crate) fn to_msgpack(value: &Json, out: &mut Vec<u8>) {
    match value {
        Json::Null => mp::write_nil(out),
        Json::Bool(flag) => mp::write_bool(out, *flag),
        Json::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => mp::write_uint(out, number),
            (None, Some(number)) => mp::write_int(out, number),
            (None, None) => mp::write_double(out, number.as_f64().unwrap_or_default()),
        },
        Json::String(text) => mp::write_str(out, text.as_bytes()),
        Json::Array(items) => {
            mp::write_array(out, count(items.len()));
            items.iter().for_each(|item| to_msgpack(item, out));
        }
        Json::Object(members) => {
            mp::write_map(out, count(members.len()));
            for (name, member) in members {
                mp::write_str(out, name.as_bytes());
                to_msgpack(member, out);
            }
        }
    }
}

/// A whole number in a valid JSON text that no 64 bits hold, of which a reader would keep the first digits only.
pub(crate) fn wide_integer(text: &[u8]) -> Option<&str> {
    let mut rest = text;
    while let Some(begin) = rest.iter().position(|byte| matches!(byte, b'"' | b'-' | b'0'..=b'9')) {
        rest = &rest[begin..];
        if rest[0] == b'"' {
            let mut end = 1;
            while end < rest.len() && rest[end] != b'"' {
                end += if rest[end] == b'\\' { 2 } else { 1 };
            }
            rest = rest.get(end + 1..).unwrap_or_default();
            continue;
        }
        let is_of_number = |byte: &u8| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
        let end = rest.iter().position(|byte| !is_of_number(byte)).unwrap_or(rest.len());
        let number = str::from_utf8(&rest[..end]).ok()?;
        // Nineteen digits always fit.
        if end > 19
            && !number.contains(['.', 'e', 'E'])
            && number.parse::<u64>().is_err()
            && number.parse::<i64>().is_err()
        {
            return Some(number);
        }
        rest = &rest[end..];
    }
    None
}

/// The length of what fits a body, which is shorter than 4 GiB.
pub(crate) fn count(length: usize) -> u32 {
    u32::try_from(length).expect("a body is shorter than 4 GiB")
}

/// Reads one MessagePack value; `None` if JSON cannot say it, or it is no value.
pub(crate) fn from_msgpack(reader: &mut Reader<'_>) -> Option<Json> {
    nested(reader, MAX_DEPTH, false)
}

/// Reads the map of a task's properties: a text that is not UTF-8, such as the last error of a worker, shows
/// replacement characters, and what JSON cannot say at all is left out. `None` if it is no such map.
pub(crate) fn members(reader: &mut Reader<'_>) -> Option<Map<String, Json>> {
    let mut members = Map::new();
    for _ in 0..reader.map().ok()? {
        let name = str::from_utf8(reader.str().ok()?).ok()?.to_owned();
        let value = reader.raw().ok()?;
        let shown = from_msgpack(&mut Reader::new(value));
        let lossy = || Some(String::from_utf8_lossy(Reader::new(value).str().ok()?).into());
        members.extend(shown.or_else(lossy).map(|value| (name, value)));
    }
    Some(members)
}

/// As [`from_msgpack`], for what the server tells about itself: a key that is a number becomes text.
pub(crate) fn from_report(reader: &mut Reader<'_>) -> Option<Json> {
    nested(reader, MAX_DEPTH, true)
}

fn nested(reader: &mut Reader<'_>, depth: u32, is_report: bool) -> Option<Json> {
    let depth = depth.checked_sub(1)?;
    Some(match reader.kind().ok()? {
        Kind::Nil => reader.nil().ok().map(|()| Json::Null)?,
        Kind::Bool => reader.bool().ok()?.into(),
        Kind::Uint | Kind::Int => {
            let number = reader.int().ok()?;
            match u64::try_from(number) {
                Ok(number) => number.into(),
                Err(_) => i64::try_from(number).ok()?.into(),
            }
        }
        Kind::Float => finite(f64::from(reader.float().ok()?))?,
        Kind::Double => finite(reader.double().ok()?)?,
        Kind::Str => str::from_utf8(reader.str().ok()?).ok()?.into(),
        Kind::Array => {
            let count = reader.array().ok()?;
            (0..count).map(|_| nested(reader, depth, is_report)).collect::<Option<Vec<_>>>()?.into()
        }
        Kind::Map => {
            let count = reader.map().ok()?;
            let mut members = Map::new();
            for _ in 0..count {
                let name = match reader.kind().ok()? {
                    Kind::Uint if is_report => reader.uint().ok()?.to_string(),
                    _ => str::from_utf8(reader.str().ok()?).ok()?.to_owned(),
                };
                // JSON has one member of a name.
                if members.insert(name, nested(reader, depth, is_report)?).is_some() {
                    return None;
                }
            }
            members.into()
        }
        Kind::Bin | Kind::Ext | Kind::Invalid => return None,
    })
}

fn finite(number: f64) -> Option<Json> {
    serde_json::Number::from_f64(number).map(Json::Number)
}

/// Adds a payload, one MessagePack value, to the object `task`: as `payload` if JSON can say it, as `payload_base64` if it is
/// bytes, else the MessagePack itself as `payload_msgpack`.
pub(crate) fn payload(task: &mut Map<String, Json>, bytes: &[u8]) {
    let (name, value) = match from_msgpack(&mut Reader::new(bytes)) {
        Some(value) => ("payload", value),
        None => match Reader::new(bytes).bin() {
            Ok(bin) => ("payload_base64", STANDARD.encode(bin).into()),
            Err(_) => ("payload_msgpack", STANDARD.encode(bytes).into()),
        },
    };
    task.insert(name.to_owned(), value);
}

/// Adds a payload as `payload_msgpack`, also if JSON can say it.
pub(crate) fn stored_payload(task: &mut Map<String, Json>, bytes: &[u8]) {
    task.insert("payload_msgpack".to_owned(), STANDARD.encode(bytes).into());
}

/// The bytes that a base64 text stands for.
pub(crate) fn base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_comes_back_as_it_went() {
        let values = [
            json!(null),
            json!([true, false, 0, -1, u64::MAX, i64::MIN, 1.5, -0.1, 1e300, "", "ü\u{0}\"", [], {}]),
            json!({"b": {"a": [1, {"x": null}]}, "a": 9_007_199_254_740_993_u64}),
        ];
        for value in values {
            let mut bytes = Vec::new();
            to_msgpack(&value, &mut bytes);
            let mut reader = Reader::new(&bytes);
            assert_eq!(from_msgpack(&mut reader).as_ref(), Some(&value));
            assert!(reader.rest().is_empty());
        }
    }

    #[test]
    fn whole_numbers_beyond_64_bits_are_found() {
        for (text, found) in [
            (r#"{"n": 18446744073709551616}"#, Some("18446744073709551616")),
            ("[-9223372036854775809]", Some("-9223372036854775809")),
            (r#"["a\\", 123456789012345678901]"#, Some("123456789012345678901")),
            ("[18446744073709551615, -9223372036854775808]", None),
            ("[1.00000000000000000000000001, 123456789012345678901e2]", None),
            (r#"{"123456789012345678901": "\"123456789012345678901"}"#, None),
            ("", None),
        ] {
            assert_eq!(wide_integer(text.as_bytes()), found, "{text}");
        }
    }

    #[test]
    fn what_json_cannot_say_is_base64() {
        let mut bin = Vec::new();
        mp::write_bin(&mut bin, b"\0\xff");
        let nan = [&[0xcb][..], &f64::NAN.to_be_bytes()].concat();
        let cases: [(&[u8], Json); 7] = [
            (&[0x01], json!({"payload": 1})),
            (&bin, json!({"payload_base64": "AP8="})),
            (&nan, json!({"payload_msgpack": STANDARD.encode(&nan)})),
            // An extension, a key that is a number, text that is not UTF-8, two members of one name.
            (&[0xd4, 0x02, 0x00], json!({"payload_msgpack": "1AIA"})),
            (&[0x81, 0x01, 0x02], json!({"payload_msgpack": "gQEC"})),
            (&[0xa1, 0xff], json!({"payload_msgpack": "of8="})),
            (&[0x82, 0xa1, b'a', 0x01, 0xa1, b'a', 0x02], json!({"payload_msgpack": "gqFhAaFhAg=="})),
        ];
        for (bytes, expected) in cases {
            let mut task = Map::new();
            payload(&mut task, bytes);
            assert_eq!(Json::Object(task), expected, "{bytes:x?}");
        }
    }

    #[test]
    fn an_error_that_is_no_text_keeps_the_members_beside_it() {
        let mut bytes = Vec::new();
        mp::write_map(&mut bytes, 3);
        for (name, value) in [("last_error", &b"exit \xff"[..]), ("user", b"ann")] {
            mp::write_str(&mut bytes, name.as_bytes());
            mp::write_str(&mut bytes, value);
        }
        mp::write_str(&mut bytes, b"odd");
        mp::write_bin(&mut bytes, b"\0");
        let shown = Json::Object(members(&mut Reader::new(&bytes)).unwrap());
        assert_eq!(shown, json!({"last_error": "exit \u{fffd}", "user": "ann"}));
        assert_eq!(members(&mut Reader::new(&[0x01])), None);
    }
}
