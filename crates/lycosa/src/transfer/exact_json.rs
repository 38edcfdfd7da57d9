//! MessagePack as JSON and back, byte for byte.
//!
//! Values that JSON can express are written plainly: null, booleans, integers of 64 bits, finite doubles, strings of UTF-8, arrays,
//! and maps whose keys are different strings. The rest is an object with the member `base16`, which no plain map has:
//!
//! | object | value |
//! |---|---|
//! | `{"base16": "00ff"}` | a binary value |
//! | `{"base16": "00ff", "type": "string"}` | a string that is not UTF-8 |
//! | `{"base16": "00ff", "type": 2}` | an extension of type 2 |
//! | `{"base16": "81c0c0", "type": "msgpack"}` | any value, by its MessagePack |
//!
//! The last form is for the rest: 32-bit floats, infinities, and maps with other or repeated keys or with a key
//! `base16`. So are values that would not come back as the same bytes, such as an integer in a longer form than it needs.

use lycosa_tuple::mp::{self, Reader};
use lycosa_tuple::value::Value;
use serde_json::{Map, Number, Value as Json, json};

use crate::payload::hexadecimal;

/// The member that makes an object a value that JSON has no form for.
const BYTES: &str = "base16";
/// Its companion, which says what the bytes are.
const TYPE: &str = "type";
const STRING: &str = "string";
const MSGPACK: &str = "msgpack";

/// Arrays and maps in each other beyond which the MessagePack is shown: a reader of JSON takes 127 levels, and a line
/// has some of its own.
const DEPTH_LIMIT: u32 = 100;

/// Why JSON is no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ExactJsonError {
    /// The member `base16` is not an even number of hexadecimal digits.
    #[error("`base16` is not an even number of hexadecimal digits")]
    Digits,
    /// The member `type` beside `base16` is none of the known types.
    #[error(
        "`type` beside `base16` is neither \"string\", \"msgpack\" nor the number of an extension (-128 to 127)"
    )]
    Type,
    /// There are other members beside `base16`.
    #[error("an object with `base16` may have `type` and nothing else, not `{0}`")]
    Member(String),
    /// The bytes are said to be MessagePack and are not exactly one value.
    #[error("`base16` is not the MessagePack of one value")]
    Msgpack,
}

/// One value, as JSON from which [`write`] makes the same bytes.
pub(crate) fn read(bytes: &[u8]) -> Json {
    match Value::decode(bytes) {
        Ok(value) if value.encode() == bytes => show(&value, DEPTH_LIMIT),
        _ => tagged(bytes, Some(Json::from(MSGPACK))),
    }
}

fn show(value: &Value, levels: u32) -> Json {
    let whole = || tagged(&value.encode(), Some(Json::from(MSGPACK)));
    match value {
        Value::Nil => Json::Null,
        Value::Bool(flag) => Json::from(*flag),
        Value::Uint(number) => Json::from(*number),
        Value::Int(number) => Json::from(*number),
        Value::Double(number) => Number::from_f64(*number).map_or_else(whole, Json::Number),
        Value::Float(_) => whole(),
        Value::Str(text) => match std::str::from_utf8(text) {
            Ok(text) => Json::from(text),
            Err(_) => tagged(text, Some(Json::from(STRING))),
        },
        Value::Bin(bytes) => tagged(bytes, None),
        Value::Ext(kind, bytes) => tagged(bytes, Some(Json::from(*kind))),
        Value::Array(_) | Value::Map(_) if levels == 0 => whole(),
        Value::Array(items) => Json::Array(items.iter().map(|item| show(item, levels - 1)).collect()),
        Value::Map(pairs) => {
            let mut object = Map::new();
            for (key, value) in pairs {
                let Some(name) = key.as_str().filter(|name| *name != BYTES) else { return whole() };
                if object.insert(name.to_owned(), show(value, levels - 1)).is_some() {
                    return whole();
                }
            }
            Json::Object(object)
        }
    }
}

fn tagged(bytes: &[u8], ty: Option<Json>) -> Json {
    let mut object = json!({ BYTES: hexadecimal(bytes) });
    if let Some(ty) = ty {
        object[TYPE] = ty;
    }
    object
}

/// Appends the MessagePack of a value.
///
/// # Errors
/// An object with `base16` that is none of the module's forms.
pub(crate) fn write(out: &mut Vec<u8>, json: &Json) -> Result<(), ExactJsonError> {
    match json {
        Json::Null => mp::write_nil(out),
        Json::Bool(flag) => mp::write_bool(out, *flag),
        Json::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => mp::write_uint(out, number),
            (None, Some(number)) => mp::write_int(out, number),
            (None, None) => mp::write_double(out, number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => mp::write_str(out, text.as_bytes()),
        Json::Array(items) => {
            mp::write_array(out, count_of(items.len()));
            items.iter().try_for_each(|item| write(out, item))?;
        }
        Json::Object(object) => match object.get(BYTES) {
            Some(digits) => write_tagged(out, object, digits)?,
            None => {
                mp::write_map(out, count_of(object.len()));
                for (name, value) in object {
                    mp::write_str(out, name.as_bytes());
                    write(out, value)?;
                }
            }
        },
    }
    Ok(())
}

fn write_tagged(out: &mut Vec<u8>, object: &Map<String, Json>, digits: &Json) -> Result<(), ExactJsonError> {
    if let Some(other) = object.keys().find(|name| ![BYTES, TYPE].contains(&name.as_str())) {
        return Err(ExactJsonError::Member(other.clone()));
    }
    let bytes = digits.as_str().and_then(bytes_of).ok_or(ExactJsonError::Digits)?;
    match object.get(TYPE) {
        None => mp::write_bin(out, &bytes),
        Some(Json::String(ty)) if ty == STRING => mp::write_str(out, &bytes),
        Some(Json::String(ty)) if ty == MSGPACK => {
            let mut reader = Reader::new(&bytes);
            reader.skip().map_err(|_| ExactJsonError::Msgpack)?;
            if !reader.is_empty() {
                return Err(ExactJsonError::Msgpack);
            }
            out.extend_from_slice(&bytes);
        }
        Some(ty) => {
            let kind = ty.as_i64().and_then(|kind| i8::try_from(kind).ok()).ok_or(ExactJsonError::Type)?;
            mp::write_ext(out, kind, &bytes);
        }
    }
    Ok(())
}

fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?)).collect()
}

fn count_of(length: usize) -> u32 {
    u32::try_from(length).expect("JSON in memory has fewer than 2^32 members")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn there_and_back(bytes: &[u8]) -> String {
        let text = read(bytes).to_string();
        let mut out = Vec::new();
        write(&mut out, &serde_json::from_str(&text).unwrap()).unwrap();
        assert_eq!(out, bytes, "{text}");
        text
    }

    fn of(value: &Value) -> String {
        there_and_back(&value.encode())
    }

    #[test]
    fn what_json_has_a_form_for_is_plain() {
        let value = Value::map([
            ("to", Value::from("änn")),
            ("n", Value::array([Value::from(1_u64), Value::from(-1_i64), Value::Double(1.0), Value::Nil])),
            ("type", Value::from(true)),
        ]);
        assert_eq!(of(&value), r#"{"to":"änn","n":[1,-1,1.0,null],"type":true}"#);
        assert_eq!(of(&Value::Uint(u64::MAX)), u64::MAX.to_string());
        assert_eq!(of(&Value::Int(i64::MIN)), i64::MIN.to_string());
        assert_eq!(of(&Value::Double(-0.0)), "-0.0");
        assert_eq!(of(&Value::map([] as [(&str, Value); 0])), "{}");
    }

    #[test]
    fn every_double_keeps_its_last_bit() {
        for bits in
            [0x3fb9_9999_9999_999a, 1, 0x0010_0000_0000_0000, 0x7fef_ffff_ffff_ffff, 0x4330_0000_0000_0001]
        {
            of(&Value::Double(f64::from_bits(bits)));
        }
        of(&Value::Double(0.1 + 0.2));
        of(&Value::Double(1e23));
    }

    #[test]
    fn the_rest_has_one_form_each() {
        assert_eq!(of(&Value::bin([0, 0xff])), r#"{"base16":"00ff"}"#);
        assert_eq!(of(&Value::str([0xff])), r#"{"base16":"ff","type":"string"}"#);
        assert_eq!(of(&Value::Ext(-3, vec![1])), r#"{"base16":"01","type":-3}"#);
        assert_eq!(of(&Value::Float(1.5)), r#"{"base16":"ca3fc00000","type":"msgpack"}"#);
        assert_eq!(of(&Value::Double(f64::INFINITY)), r#"{"base16":"cb7ff0000000000000","type":"msgpack"}"#);
    }

    #[test]
    fn maps_that_are_no_objects_are_shown_whole() {
        let imitation = Value::map([("base16", "00")]);
        assert_eq!(of(&imitation), r#"{"base16":"81a6626173653136a23030","type":"msgpack"}"#);
        let numbered = Value::Map(vec![(Value::Uint(1), Value::Nil)]);
        assert_eq!(of(&numbered), r#"{"base16":"8101c0","type":"msgpack"}"#);
        let repeated = Value::map([("a", Value::Nil), ("a", Value::Nil)]);
        assert_eq!(of(&repeated), r#"{"base16":"82a161c0a161c0","type":"msgpack"}"#);
        let inside = Value::array([numbered]);
        assert_eq!(of(&inside), r#"[{"base16":"8101c0","type":"msgpack"}]"#);
    }

    #[test]
    fn bytes_of_another_form_come_back_as_they_were() {
        assert_eq!(there_and_back(&[0xcc, 5]), r#"{"base16":"cc05","type":"msgpack"}"#);
        assert_eq!(there_and_back(&[0xdc, 0, 1, 0xc0]), r#"{"base16":"dc0001c0","type":"msgpack"}"#);
        let deep: Vec<u8> = [vec![0x91; 5000], vec![0xc0]].concat();
        there_and_back(&deep);
        let nested: Vec<u8> = [vec![0x91; 200], vec![0xc0]].concat();
        there_and_back(&nested);
    }

    #[test]
    fn a_wrong_object_is_refused() {
        let refused = |text: &str| {
            let mut out = Vec::new();
            write(&mut out, &serde_json::from_str(text).unwrap()).unwrap_err()
        };
        assert_eq!(refused(r#"{"base16": "0"}"#), ExactJsonError::Digits);
        assert_eq!(refused(r#"{"base16": "äö"}"#), ExactJsonError::Digits);
        assert_eq!(refused(r#"{"base16": 1}"#), ExactJsonError::Digits);
        assert_eq!(refused(r#"{"base16": "00", "type": 128}"#), ExactJsonError::Type);
        assert_eq!(refused(r#"{"base16": "00", "type": "text"}"#), ExactJsonError::Type);
        assert_eq!(refused(r#"[{"base16": "00", "to": 1}]"#), ExactJsonError::Member("to".to_owned()));
        assert_eq!(refused(r#"{"base16": "c0c0", "type": "msgpack"}"#), ExactJsonError::Msgpack);
        assert_eq!(refused(r#"{"base16": "", "type": "msgpack"}"#), ExactJsonError::Msgpack);
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..8);
        let leaf = prop_oneof![
            Just(Value::Nil),
            any::<bool>().prop_map(Value::Bool),
            any::<u64>().prop_map(Value::Uint),
            any::<i64>().prop_map(Value::from),
            any::<f32>().prop_map(Value::Float),
            any::<f64>().prop_map(Value::Double),
            bytes().prop_map(Value::Str),
            "[a-z]{0,3}|base16|type".prop_map(Value::from),
            bytes().prop_map(Value::Bin),
            (any::<i8>(), bytes()).prop_map(|(kind, bytes)| Value::Ext(kind, bytes)),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            let pairs = proptest::collection::vec((inner.clone(), inner.clone()), 0..5);
            prop_oneof![
                proptest::collection::vec(inner, 0..5).prop_map(Value::Array),
                pairs.prop_map(Value::Map),
            ]
        })
    }

    proptest! {
        #[test]
        fn every_value_comes_back_as_its_bytes(value in any_value()) {
            of(&value);
        }

        #[test]
        fn any_bytes_that_are_a_value_come_back(bytes in proptest::collection::vec(any::<u8>(), 1..40)) {
            if mp::value_len(&bytes) == Ok(bytes.len()) {
                there_and_back(&bytes);
            }
        }
    }
}
