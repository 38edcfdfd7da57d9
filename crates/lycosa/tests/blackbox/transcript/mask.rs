//! Masks for values that differ between two runs of the same server.

use std::ops::Range;
use std::sync::LazyLock;

use regex::bytes::Regex;

use crate::connection::{Reply, key};
use crate::value::{self, Decoder, Value, hex};

/// The error object of a reply's body.
const ERROR_STACK: i128 = 0x52;
/// In an entry of the error stack: the source file and line.
const FILE: Value = Value::Int(1);
const LINE: Value = Value::Int(2);
/// And what else is known of the error.
const FIELDS: Value = Value::Int(6);

/// An error object inside of a value.
const ERROR_EXTENSION: i8 = 3;

/// Of `box.info`: values that are each process's own.
const CHANGING_KEYS: [&str; 2] = ["pid", "uptime"];

/// Where the usual reply header keeps the schema version: behind the length, the code and the sync.
const SCHEMA_VERSION: Range<usize> = 24..28;

/// The difference between `got` and the `recorded` reply; `None` if there is none. Schema versions are the caller's.
/// `any_order`: maps may have their keys in any order.
pub(crate) fn difference(recorded: &Reply, got: &Reply, any_order: bool) -> Option<String> {
    let bytes = |reply: &Reply| {
        let mut frame = reply.frame.clone();
        if let Some(version) = frame.get_mut(SCHEMA_VERSION) {
            version.fill(0);
        }
        frame
    };
    let (recorded_bytes, got_bytes) = (bytes(recorded), bytes(got));
    if recorded_bytes == got_bytes {
        return None;
    }
    let header = |reply: &Reply| without(reply.header.clone(), key::SCHEMA_VERSION);
    if header(recorded) != header(got) {
        let (got, recorded) = (got.describe(), recorded.describe());
        return Some(format!("got {got}, recorded {recorded}; code or sync differ"));
    }
    if recorded.body == got.body {
        return Some(format!(
            "the same in other bytes: {}, recorded {}",
            hex(&got_bytes),
            hex(&recorded_bytes)
        ));
    }
    let (mut recorded, mut got) = (masked_body(&recorded.body), masked_body(&got.body));
    if any_order {
        sort_maps(&mut recorded);
        sort_maps(&mut got);
    }
    (recorded != got).then(|| first_difference("body", &recorded, &got))
}

/// Whether the data of `got` has every `recorded` row, in that order, and others besides.
pub(crate) fn has_all_rows(recorded: &Reply, got: &Reply) -> bool {
    let (recorded, got) = (masked(&recorded.data()), masked(&got.data()));
    let (Some(recorded), Some(got)) = (recorded.as_array(), got.as_array()) else { return false };
    let mut rest = got.iter();
    recorded.iter().all(|row| rest.any(|other| other == row))
}

/// The body with what depends on the run replaced by fixed words.
fn masked_body(body: &Value) -> Value {
    let Value::Map(pairs) = body else { return masked(body) };
    let pairs = pairs.iter().map(|(key, value)| match key {
        Value::Int(ERROR_STACK) => (key.clone(), masked(&without_places(value))),
        _ => (key.clone(), masked(value)),
    });
    Value::Map(pairs.collect())
}

fn masked(value: &Value) -> Value {
    static CHANGING: LazyLock<Regex> = LazyLock::new(|| {
        let uuid = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";
        let pointer = "0x[0-9a-f]{6,}";
        let address = r"127\.0\.0\.1:[0-9]+";
        Regex::new(&format!("(?-u){uuid}|{pointer}|{address}")).expect("a fixed regex")
    });
    static PLACE_IN_PROGRAM: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"(?-u)[^ ]*\.lua:[0-9]+: ").expect("a fixed regex"));
    match value {
        Value::Str(bytes) => {
            // A server without Lua has no place in a program to name.
            let text = PLACE_IN_PROGRAM.replace(bytes, &b""[..]);
            Value::Str(CHANGING.replace_all(&text, &b"(changes)"[..]).into_owned())
        }
        Value::Array(items) => Value::Array(items.iter().map(masked).collect()),
        Value::Map(pairs) => {
            let pairs =
                pairs.iter().filter(|(key, _)| !CHANGING_KEYS.iter().any(|name| *key == Value::str(name)));
            Value::Map(pairs.map(|(key, value)| (masked(key), masked(value))).collect())
        }
        Value::Ext(ERROR_EXTENSION, bytes) => match Decoder::new(bytes).value() {
            Ok(stack) => masked(&without_places(&stack)),
            Err(_) => value.clone(),
        },
        other => other.clone(),
    }
}

/// An error stack without the places in the server's source, and without the field `name` that our server adds, so that
/// clients know the kind of an error without reading its text.
fn without_places(value: &Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.iter().map(without_places).collect()),
        Value::Map(pairs) => {
            let is_entry = pairs.iter().any(|(key, _)| *key == LINE);
            let kept = pairs.iter().filter(|(key, value)| {
                !is_entry || (*key != FILE && *key != LINE && !(*key == FIELDS && is_name_alone(value)))
            });
            Value::Map(kept.map(|(key, value)| (key.clone(), without_places(value))).collect())
        }
        other => other.clone(),
    }
}

fn is_name_alone(fields: &Value) -> bool {
    matches!(fields, Value::Map(pairs) if pairs.len() == 1 && pairs[0].0 == Value::str("name"))
}

fn sort_maps(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(sort_maps),
        Value::Map(pairs) => {
            pairs.iter_mut().for_each(|(_, value)| sort_maps(value));
            pairs.sort_by_cached_key(|(key, _)| value::encode(key));
        }
        _ => {}
    }
}

fn without(map: Value, unwanted: i128) -> Value {
    let Value::Map(mut pairs) = map else { return map };
    pairs.retain(|(key, _)| *key != Value::Int(unwanted));
    Value::Map(pairs)
}

/// Goes down to the place where two values part, so that a long reply's failure can be read.
fn first_difference(place: &str, recorded: &Value, got: &Value) -> String {
    let inner = match (recorded, got) {
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let mut pairs = a.iter().zip(b).enumerate();
            pairs.find(|(_, (a, b))| a != b).map(|(n, (a, b))| (format!("{place}[{n}]"), a, b))
        }
        (Value::Map(a), Value::Map(b)) if a.len() == b.len() => {
            let mut pairs = a.iter().zip(b);
            pairs
                .find(|(a, b)| a != b)
                .filter(|((key_a, _), (key_b, _))| key_a == key_b)
                .map(|((key, a), (_, b))| (format!("{place}.{key}"), a, b))
        }
        _ => None,
    };
    match inner {
        Some((place, a, b)) => first_difference(&place, a, b),
        None => format!("{place} is {got}, recorded {recorded}"),
    }
}
