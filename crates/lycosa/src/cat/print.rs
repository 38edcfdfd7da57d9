//! One row as a line, for people or as JSON.

use std::io::{self, Write};
use std::time::{Duration, UNIX_EPOCH};

use lycosa_client::Value;
use lycosa_engine::group::listing::EntryState;
use lycosa_iproto::row::{RowBody, RowHeader};
use serde_json::{Map, Value as Json, json};

use crate::arguments::RowType;
use crate::payload;
use crate::values::name_of;

/// Seconds since the epoch at which the year 10000 begins: dates after it have no RFC 3339.
const LAST_SECOND: f64 = 253_402_300_800.0;

/// The position of a row in its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowPosition {
    /// It is the transaction.
    Alone,
    First,
    Middle,
    Last,
}

impl RowPosition {
    /// Of the row number `at`, from 0, of `count`.
    pub(crate) fn of(at: usize, count: usize) -> Self {
        match at {
            _ if count == 1 => RowPosition::Alone,
            0 => RowPosition::First,
            at if at + 1 == count => RowPosition::Last,
            _ => RowPosition::Middle,
        }
    }

    fn bracket(self) -> char {
        match self {
            RowPosition::Alone => ' ',
            RowPosition::First => '(',
            RowPosition::Middle => '|',
            RowPosition::Last => ')',
        }
    }
}

/// A row as it is printed.
#[derive(Clone, Copy)]
pub(crate) struct Printed<'a> {
    pub(crate) header: &'a RowHeader,
    pub(crate) body: &'a RowBody<'a>,
    pub(crate) place: RowPosition,
    /// The entry of a group's log that it belongs to, by its index.
    pub(crate) entry: Option<(u64, EntryState)>,
}

/// The type of a row.
pub(crate) fn row_type(body: &RowBody<'_>) -> RowType {
    match body {
        RowBody::Insert { .. } => RowType::Insert,
        RowBody::Replace { .. } => RowType::Replace,
        RowBody::Update { .. } => RowType::Update,
        RowBody::Delete { .. } => RowType::Delete,
        RowBody::Upsert { .. } => RowType::Upsert,
        RowBody::Nop => RowType::Nop,
        RowBody::Confirm { .. } => RowType::Confirm,
        RowBody::Rollback { .. } => RowType::Rollback,
        RowBody::Unknown { .. } => RowType::Unknown,
    }
}

/// What a row does to its space: names and MessagePack.
fn parts<'a>(body: &RowBody<'a>) -> Vec<(&'static str, &'a [u8])> {
    match *body {
        RowBody::Insert { tuple, .. } | RowBody::Replace { tuple, .. } => vec![("tuple", tuple)],
        RowBody::Update { key, operations, .. } => vec![("key", key), ("operations", operations)],
        RowBody::Delete { key, .. } => vec![("key", key)],
        RowBody::Upsert { tuple, operations, .. } => vec![("tuple", tuple), ("operations", operations)],
        RowBody::Unknown { body, .. } if !body.is_empty() => vec![("body", body)],
        RowBody::Nop | RowBody::Confirm { .. } | RowBody::Rollback { .. } | RowBody::Unknown { .. } => vec![],
    }
}

/// Numbers that few rows have: names and values.
fn numbers(body: &RowBody<'_>) -> Vec<(&'static str, Json)> {
    match *body {
        RowBody::Update { index, base, .. } => vec![("index", index.into()), ("index_base", base.into())],
        RowBody::Delete { index, .. } => vec![("index", index.into())],
        RowBody::Upsert { base, .. } => vec![("index_base", base.into())],
        RowBody::Confirm { replica_id, lsn } | RowBody::Rollback { replica_id, lsn } => {
            vec![("of_replica", replica_id.into()), ("of_lsn", lsn.into())]
        }
        RowBody::Unknown { kind, .. } => vec![("number", kind.into())],
        RowBody::Insert { .. } | RowBody::Replace { .. } | RowBody::Nop => vec![],
    }
}

/// Prints a row as JSON, with the name of its file if there are several, and with the entry of a group's log that holds it.
pub(crate) fn json(
    out: &mut impl Write,
    file: Option<&str>,
    row: Printed<'_>,
    space: Option<&str>,
) -> io::Result<()> {
    let Printed { header, body, entry, .. } = row;
    let mut object = Map::new();
    let mut add = |name: &str, value: Json| object.insert(name.to_owned(), value);
    if let Some(file) = file {
        add("file", file.into());
    }
    if let Some((index, state)) = entry {
        add("entry", index.into());
        add("state", state_name(state).into());
    }
    add("type", name_of(&row_type(body)).into());
    add("replica_id", header.replica_id.into());
    add("lsn", header.lsn.into());
    add("timestamp", header.timestamp.into());
    add("tsn", header.tsn.into());
    add("commit", header.is_commit.into());
    add("group_id", header.group_id.into());
    if let Some(id) = body.space() {
        add("space", id.into());
        add("space_name", space.into());
    }
    for (name, number) in numbers(body) {
        add(name, number);
    }
    for (name, bytes) in parts(body) {
        add(name, payload::to_json(&value_of(bytes)));
    }
    serde_json::to_writer(&mut *out, &object)?;
    out.write_all(b"\n")
}

/// MessagePack as a value, else as bytes.
fn value_of(bytes: &[u8]) -> Value {
    Value::decode(bytes).unwrap_or_else(|_| Value::bin(bytes))
}

/// The state of an entry in JSON.
pub(crate) fn state_name(state: EntryState) -> &'static str {
    match state {
        EntryState::Committed => "committed",
        EntryState::Unknown => "unknown",
        EntryState::GaveWay => "gave_way",
    }
}

/// Prints a row for people.
pub(crate) fn text(out: &mut impl Write, row: Printed<'_>, space: Option<&str>) -> io::Result<()> {
    let Printed { header, body, place, .. } = row;
    let lsn = format!("{}:{}", header.replica_id, header.lsn);
    let (bracket, moment, ty) = (place.bracket(), moment(header.timestamp), name_of(&row_type(body)));
    write!(out, "{lsn:<12} {bracket} {moment}  {ty:<8}")?;
    match (body.space(), space) {
        (Some(id), Some(name)) => write!(out, "  {name} ({id})")?,
        (Some(id), None) => write!(out, "  ({id})")?,
        (None, _) => {}
    }
    if header.group_id != 0 {
        write!(out, "  local")?;
    }
    // Zero is what the numbers of most rows are.
    for (name, number) in numbers(body).iter().filter(|(_, number)| *number != json!(0)) {
        write!(out, "  {name} {number}")?;
    }
    for (name, bytes) in parts(body) {
        if name != "tuple" {
            write!(out, "  {name}")?;
        }
        write!(out, "  {}", value_of(bytes))?;
    }
    writeln!(out)
}

/// A moment in seconds since the epoch as RFC 3339, if it has one, else as the number.
fn moment(seconds: f64) -> String {
    if !(0.0..LAST_SECOND).contains(&seconds) {
        return seconds.to_string();
    }
    let moment = UNIX_EPOCH + Duration::from_micros((seconds * 1e6) as u64);
    humantime::format_rfc3339_micros(moment).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(header: &RowHeader, body: &RowBody<'_>) -> (String, String) {
        let (mut people, mut machine) = (Vec::new(), Vec::new());
        let row = Printed { header, body, place: RowPosition::Alone, entry: None };
        text(&mut people, row, Some("mail")).unwrap();
        json(&mut machine, None, row, Some("mail")).unwrap();
        (String::from_utf8(people).unwrap(), String::from_utf8(machine).unwrap())
    }

    #[test]
    fn a_change_is_shown_with_what_it_does() {
        let header = RowHeader::single(1, 278, 1_600_000_000.25);
        let tuple = Value::array([Value::from(1_u64), Value::bin([0xff])]).encode();
        let (text, json) = shown(&header, &RowBody::Insert { space: 512, tuple: &tuple });
        assert_eq!(
            text,
            "1:278          2020-09-13T12:26:40.250000Z  insert    mail (512)  [1, bin\"ff\"]\n"
        );
        assert_eq!(
            json,
            concat!(
                r#"{"type":"insert","replica_id":1,"lsn":278,"timestamp":1600000000.25,"tsn":278,"commit":true,"#,
                r#""group_id":0,"space":512,"space_name":"mail","tuple":[1,{"base16":"ff"}]}"#,
                "\n"
            )
        );
    }

    #[test]
    fn an_update_is_shown_with_its_index() {
        let header = RowHeader { group_id: 1, ..RowHeader::single(0, 5, 0.0) };
        let key = Value::array([1_u64]).encode();
        let operations = Value::array([Value::Array(vec!["=".into(), 1_u64.into(), "t".into()])]).encode();
        let body = RowBody::Update { space: 512, index: 2, base: 0, key: &key, operations: &operations };
        let (text, json) = shown(&header, &body);
        assert!(
            text.ends_with("mail (512)  local  index 2  key  [1]  operations  [[\"=\", 1, \"t\"]]\n"),
            "{text}"
        );
        assert!(json.contains(r#""index":2,"index_base":0,"key":[1],"operations":[["=",1,"t"]]"#), "{json}");
    }

    #[test]
    fn any_number_is_a_moment() {
        for seconds in [f64::NAN, f64::INFINITY, -1.0, f64::MAX, LAST_SECOND] {
            assert_eq!(moment(seconds), seconds.to_string());
        }
        assert_eq!(moment(LAST_SECOND - 1.0), "9999-12-31T23:59:59.000000Z");
    }

    #[test]
    fn bytes_that_are_too_deep_are_shown_as_bytes() {
        let deep = [vec![0x91; 300], vec![0xc0]].concat();
        let (text, json) =
            shown(&RowHeader::single(1, 1, 0.0), &RowBody::Insert { space: 512, tuple: &deep });
        assert!(text.contains("bin\"9191"), "{text}");
        assert!(json.contains(r#"{"base16":"9191"#), "{json}");
    }

    #[test]
    fn brackets_hold_a_transaction_together() {
        let brackets = |count| (0..count).map(|at| RowPosition::of(at, count).bracket()).collect::<String>();
        assert_eq!([brackets(1), brackets(2), brackets(4)], [" ", "()", "(||)"]);
    }
}
