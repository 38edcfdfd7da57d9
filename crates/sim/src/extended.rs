//! The extended form of tasks in answers, held against the model.

use lycosa_tuple::mp::Reader;
use lycosa_tuple::value::Value;

use crate::model::{Attempts, ExtendedTask, LONGEST, Lease};
use crate::names::Names;
use crate::worker::read_headers;

/// Whether the values of an answer are these tasks. `is_steered`: operators may have ended a lease in the tick that has made it, and
/// the row of such a lease was never read.
pub(crate) fn agree(
    tasks: &[ExtendedTask],
    is_array: bool,
    values: &[u8],
    names: &Names,
    is_steered: bool,
) -> bool {
    let mut reader = Reader::new(values);
    let count = reader.array().and_then(|values| if is_array { reader.array() } else { Ok(values) });
    let agrees = |task, found: &[u8]| agrees(task, found, names, is_steered);
    count == Ok(tasks.len() as u32)
        && tasks.iter().all(|task| reader.raw().is_ok_and(|found| agrees(task, found)))
}

fn agrees(expected: &ExtendedTask, found: &[u8], names: &Names, is_steered: bool) -> bool {
    let read = || {
        let mut reader = Reader::new(found);
        let (count, id, state) = (reader.array().ok()?, reader.uint().ok()?, reader.str().ok()?);
        let data = reader.raw().ok()?;
        let status = [expected.task.status as u8];
        let is_task = (count, id, state, data) == (4, expected.id, &status[..], &*expected.task.data);
        Some((is_task, Value::decode(reader.rest()).ok()?))
    };
    read().is_some_and(|(is_task, members)| {
        is_task
            && attempts(&members) == Some(expected.task.attempts.unwrap_or_default())
            && times_agree(expected, &members)
            && holder_agrees(expected, &members)
            && token_agrees(expected, &members, names, is_steered)
    })
}

/// The attempts that an extended form shows.
fn attempts(members: &Value) -> Option<Attempts> {
    let last_error = members.get("last_error").and_then(Value::as_str).unwrap_or("");
    Some(Attempts {
        attempts: members.get("attempts")?.as_u64()?,
        last_error: Attempts::known_reason(last_error.as_bytes())?,
        failed_at: micros(members, "failed_at").unwrap_or(0),
        header: members.get("headers").and_then(read_headers),
    })
}

fn times_agree(ExtendedTask { task, kind, .. }: &ExtendedTask, members: &Value) -> bool {
    let timed = |value: u64| kind.is_timed().then_some(value);
    let finite = |span: u64| timed(span).filter(|span| *span < LONGEST.0);
    let due = timed(task.next_event).filter(|due| due.saturating_sub(task.created) < LONGEST.0);
    let is_same = |name, time: Option<u64>| micros(members, name) == time;
    members.get("pri").and_then(Value::as_u64) == timed(task.pri)
        && is_same("created", timed(task.created))
        && is_same("ttl", finite(task.ttl))
        && is_same("ttr", finite(task.ttr))
        && is_same("due", due)
        && members.get("utube").and_then(Value::as_str) == kind.has_sub_queues().then_some(&*task.utube)
}

fn holder_agrees(ExtendedTask { task, .. }: &ExtendedTask, members: &Value) -> bool {
    let (owner, lease) = (task.owner, task.lease);
    let since = owner.map(|owner| owner.since).or(lease.map(|lease| lease.since));
    members.get("connection").and_then(Value::as_u64) == owner.map(|owner| owner.connection)
        && micros(members, "taken_at") == since
        && micros(members, "lease_ends") == lease.map(|lease| lease.ends)
        && members.get("user").is_some() == since.is_some()
}

fn token_agrees(
    ExtendedTask { task, has_token, .. }: &ExtendedTask,
    members: &Value,
    names: &Names,
    is_steered: bool,
) -> bool {
    let told = members.get("lease").and_then(Value::as_str);
    let is_of = |token: &str, lease: Lease| {
        names.token(lease.key).map_or(is_steered, |known| known.to_string() == token)
    };
    match (told, task.lease) {
        (Some(token), Some(lease)) => *has_token && is_of(token, lease),
        (told, _) => told.is_none() && !has_token,
    }
}

/// A time in seconds, as microseconds: a double of this size is exact to a quarter of one.
fn micros(members: &Value, name: &str) -> Option<u64> {
    match members.get(name)? {
        Value::Double(seconds) => Some((seconds * 1e6).round() as u64),
        whole => whole.as_u64().map(|seconds| seconds * 1_000_000),
    }
}
