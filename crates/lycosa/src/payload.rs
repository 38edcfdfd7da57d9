//! Payloads: from the command line, files and lines to values, and from values to text and JSON.

use std::io::Write;

use lycosa_client::Value;
use serde_json::Value as Json;

use crate::arguments::PayloadType;

/// Bytes as a payload of the chosen type.
pub(crate) fn from_bytes(bytes: Vec<u8>, kind: PayloadType) -> anyhow::Result<Value> {
    Ok(match kind {
        PayloadType::Binary => Value::Bin(bytes),
        PayloadType::Text => match String::from_utf8(bytes) {
            Ok(text) => Value::from(text),
            Err(_) => anyhow::bail!("the payload is not UTF-8 text; use --as binary"),
        },
        PayloadType::Json => match serde_json::from_slice(&bytes) {
            Ok(json) => from_json(&json),
            Err(error) => anyhow::bail!("the payload is not JSON: {}", json_error(&error)),
        },
    })
}

/// A value of the command line: JSON if it is that, else the text as it stands.
pub(crate) fn from_argument(text: &str) -> Value {
    serde_json::from_str(text).map_or_else(|_| Value::from(text), |json| from_json(&json))
}

/// The fault of a text of JSON. Where it has one line its place is the column alone: the number of the line is that of
/// the input.
pub(crate) fn json_error(error: &serde_json::Error) -> String {
    error.to_string().replace(" at line 1 column ", " at column ")
}

fn from_json(json: &Json) -> Value {
    match json {
        Json::Null => Value::Nil,
        Json::Bool(flag) => Value::from(*flag),
        Json::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => Value::from(number),
            (None, Some(number)) => Value::from(number),
            (None, None) => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => Value::Array(items.iter().map(from_json).collect()),
        Json::Object(pairs) => Value::Map(
            pairs.iter().map(|(key, value)| (Value::from(key.as_str()), from_json(value))).collect(),
        ),
    }
}

/// A value as JSON. Bytes that are no text become `{"base16": "…"}`; keys that are no text are printed as JSON text.
pub(crate) fn to_json(value: &Value) -> Json {
    match value {
        Value::Nil => Json::Null,
        Value::Bool(flag) => Json::Bool(*flag),
        Value::Uint(number) => Json::from(*number),
        Value::Int(number) => Json::from(*number),
        Value::Float(number) => Json::from(f64::from(*number)),
        Value::Double(number) => Json::from(*number),
        Value::Str(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Json::from(text),
            Err(_) => base16(bytes),
        },
        Value::Bin(bytes) | Value::Ext(_, bytes) => base16(bytes),
        Value::Array(items) => Json::Array(items.iter().map(to_json).collect()),
        Value::Map(pairs) => {
            Json::Object(pairs.iter().map(|(name, value)| (plain(name), to_json(value))).collect())
        }
    }
}

/// A value as text: a string as it stands, anything else as JSON.
pub(crate) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| to_json(value).to_string(), str::to_owned)
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn base16(bytes: &[u8]) -> Json {
    serde_json::json!({ "base16": hexadecimal(bytes) })
}

/// Writes a payload as a program reads it: text and bytes as they are, anything else as JSON.
pub(crate) fn write(out: &mut impl Write, value: &Value) -> std::io::Result<()> {
    match value {
        Value::Str(bytes) | Value::Bin(bytes) => out.write_all(bytes),
        other => write!(out, "{}", to_json(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_payloads_come_back_as_they_went() {
        let text = r#"{"a":[1,-2,1.5,null,true,"x"],"18446744073709551615":18446744073709551615}"#;
        let value = from_bytes(text.as_bytes().to_vec(), PayloadType::Json).unwrap();
        assert_eq!(to_json(&value).to_string(), text);
    }

    #[test]
    fn bytes_that_are_no_text_are_refused_or_shown_in_base_16() {
        assert!(from_bytes(vec![0xff], PayloadType::Text).is_err());
        assert!(from_bytes(b"{".to_vec(), PayloadType::Json).is_err());
        let value = from_bytes(vec![0xff, 0], PayloadType::Binary).unwrap();
        assert_eq!(to_json(&value).to_string(), r#"{"base16":"ff00"}"#);
        let mut out = Vec::new();
        write(&mut out, &value).unwrap();
        assert_eq!(out, [0xff, 0]);
    }
}
