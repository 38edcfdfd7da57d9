//! Recorded requests to a real server, made again here: each must get the same tuples or the same refusal.
//!
//! What the store does not decide is passed over: frames that are malformed, calls but for their rights, schema versions
//! in headers. A HASH index has an order of its own.

use std::fs;
use std::path::Path;

use super::data::with_wire_data;
use super::*;
use crate::{Access, Object};

/// A line of a transcript.
struct Frame {
    connection: String,
    direction: String,
    note: String,
    bytes: Vec<u8>,
}

fn frames(name: &str) -> Vec<Frame> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/wire").join(name);
    let file = fs::read_to_string(path).unwrap();
    let text_after = |line: &str, key: &str| {
        let from = line.find(key)? + key.len();
        let rest = line[from..].trim_start_matches([' ', '"']);
        Some(rest[..rest.find(['"', ','])?].to_owned())
    };
    let frame = |line: &str| {
        // A frame that was cut cannot be made again.
        let hex = text_after(line, "\"hex\":").filter(|_| !line.contains("hex_cut_at"))?;
        let digits = |place: usize| u8::from_str_radix(&hex[place..place + 2], 16).unwrap();
        Some(Frame {
            connection: text_after(line, "\"c\":")?,
            direction: text_after(line, "\"d\":")?,
            note: text_after(line, "\"note\":")?,
            bytes: (0..hex.len()).step_by(2).map(digits).collect(),
        })
    };
    file.lines().filter_map(frame).collect()
}

/// A map with small integer keys.
#[derive(Default)]
struct Keys<'a>(Vec<(u64, &'a [u8])>);

impl<'a> Keys<'a> {
    fn read(reader: &mut Reader<'a>) -> Option<Self> {
        let count = reader.map().ok()?;
        (0..count).map(|_| Some((reader.uint().ok()?, reader.raw().ok()?))).collect::<Option<_>>().map(Self)
    }

    fn raw(&self, key: u64) -> Option<&'a [u8]> {
        self.0.iter().rev().find(|(known, _)| *known == key).map(|(_, value)| *value)
    }

    fn uint(&self, key: u64) -> Option<u64> {
        self.raw(key).and_then(|value| Reader::new(value).uint().ok())
    }

    fn id(&self, key: u64) -> Option<u32> {
        self.uint(key).and_then(|id| u32::try_from(id).ok())
    }

    fn array(&self, key: u64) -> Option<&'a [u8]> {
        self.raw(key).filter(|value| Reader::new(value).array().is_ok())
    }

    fn str(&self, key: u64) -> Option<&'a str> {
        self.raw(key).and_then(|value| std::str::from_utf8(Reader::new(value).str().ok()?).ok())
    }
}

fn split(bytes: &[u8]) -> Option<(Keys<'_>, Keys<'_>)> {
    let mut reader = Reader::new(bytes);
    reader.uint().ok()?;
    let header = Keys::read(&mut reader)?;
    let body = if reader.is_empty() { Keys::default() } else { Keys::read(&mut reader)? };
    Some((header, body))
}

/// What a request leads to: tuples as text, or the text of the refusal. `None`: not for the store.
fn answer(store: &mut Store, user: &mut UserId, request: &[u8]) -> Option<Result<Vec<Vec<u8>>, String>> {
    let (header, body) = split(request)?;
    if header.uint(5).is_some_and(|version| version != 0 && version != u64::from(store.schema_version())) {
        return None;
    }
    let base = body.uint(0x15).map_or(0, |base| base as i64);
    let index = body.id(0x11).unwrap_or(0);
    let (key, tuple) = (body.array(0x20), body.array(0x21));
    let statement = match header.uint(0)? {
        1 => {
            let mut tuples = Vec::new();
            let iterator = IteratorType::try_from(body.id(0x14).unwrap_or(0));
            let key = key?;
            let (offset, limit) = (body.uint(0x13).unwrap_or(0), body.uint(0x12)?);
            let result = iterator.and_then(|iterator| {
                let (offset, limit) = (u64::from(offset as u32), u64::from(limit as u32));
                let space = body.id(0x10).unwrap_or(u32::MAX);
                store.select(*user, space, index, iterator, key, offset, limit, &mut |tuple| {
                    tuples.push(tuple.to_vec());
                })
            });
            return Some(result.map(|()| tuples).map_err(|error| error.to_string()));
        }
        7 => {
            *user = store.user_by_name(body.str(0x23)?)?.id;
            return None;
        }
        10 => {
            let access = store.check_access(*user, Object::Function(body.str(0x22)?), Access::EXECUTE);
            return access.err().map(|error| Err(error.to_string()));
        }
        8 => {
            let access = store.check_access(*user, Object::Universe, Access::EXECUTE);
            return access.err().map(|error| Err(error.to_string()));
        }
        2 => Statement::Insert { space: body.id(0x10)?, tuple: tuple? },
        3 => Statement::Replace { space: body.id(0x10)?, tuple: tuple? },
        4 => Statement::Update { space: body.id(0x10)?, index, key: key?, operations: tuple?, base },
        5 => Statement::Delete { space: body.id(0x10)?, index, key: key? },
        9 => Statement::Upsert { space: body.id(0x10)?, tuple: tuple?, operations: body.array(0x28)?, base },
        _ => return None,
    };
    store.begin(*user);
    let result = store.execute(&statement).map(|shown| shown.map(<[u8]>::to_vec).into_iter().collect());
    store.commit();
    Some(result.map_err(|error| error.to_string()))
}

fn expected(reply: &[u8]) -> Option<Result<Vec<Vec<u8>>, String>> {
    let (header, body) = split(reply)?;
    if let Some(text) = body.raw(0x31) {
        return Some(Err(String::from_utf8_lossy(Reader::new(text).str().ok()?).into_owned()));
    }
    // A reply without data is one to AUTH or PING.
    (header.uint(0)? == 0).then_some(())?;
    let data = lycosa_tuple::tuple::TupleRef::trusted(body.array(0x30)?);
    Some(Ok(data.fields().map(<[u8]>::to_vec).collect()))
}

/// Makes the requests of a transcript again. Returns the number of compared replies, and the different ones.
fn replay(name: &str, passed_over: &[&str]) -> (usize, Vec<String>) {
    let mut store = with_wire_data();
    let mut users = std::collections::HashMap::new();
    let (mut compared, mut different) = (0, Vec::new());
    let frames = frames(name);
    for (place, request) in frames.iter().enumerate().filter(|(_, frame)| frame.direction == ">") {
        let user = users.entry(request.connection.clone()).or_insert(user::GUEST);
        let found = answer(&mut store, user, &request.bytes);
        let reply = frames[place + 1..].iter().find(|frame| frame.connection == request.connection);
        let expected = reply.filter(|reply| reply.direction == "<").and_then(|reply| expected(&reply.bytes));
        if passed_over.iter().any(|note| request.note.contains(note)) {
            continue;
        }
        let (Some(mut found), Some(mut expected)) = (found, expected) else {
            continue;
        };
        if split(&request.bytes).is_some_and(|(_, body)| body.id(0x10) == Some(513)) {
            for tuples in [&mut found, &mut expected].into_iter().flatten() {
                tuples.sort();
            }
        }
        let is_about_the_frame = expected.as_ref().is_err_and(|text| {
            text.starts_with("Missing mandatory field") || text.starts_with("Invalid MsgPack")
        });
        if is_about_the_frame {
            continue;
        }
        compared += 1;
        if found != expected {
            different.push(format!("{}:\n   found {found:x?}\nexpected {expected:x?}", request.note));
        }
    }
    (compared, different)
}

fn check(name: &str, at_least: usize, passed_over: &[&str]) {
    let (compared, different) = replay(name, passed_over);
    assert!(different.is_empty(), "{} of {compared} differ\n{}", different.len(), different.join("\n"));
    assert!(compared >= at_least, "only {compared} requests were compared");
}

#[test]
fn select_on_trees() {
    check("03-select-tree.json", 100, &[]);
}

#[test]
fn select_on_hashes() {
    check("04-select-hash.json", 20, &["pk GT [3]", "name GT", "limit 2 offset 1"]);
}

#[test]
fn insert_replace_delete() {
    check("05-insert-replace-delete.json", 50, &[]);
}

#[test]
fn updates() {
    check("06-update.json", 82, &[]);
}

#[test]
fn upserts() {
    check("07-upsert.json", 25, &[]);
}

#[test]
fn access() {
    check("12-access.json", 100, &[]);
}

#[test]
fn definitions() {
    // The indexes of the system spaces stay.
    check("13-schema-version.json", 50, &["drop the index of a system space"]);
}
