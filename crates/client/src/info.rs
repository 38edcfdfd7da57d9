//! The extended form of a task: everything beside its payload.

use std::time::{Duration, SystemTime};

use lycosa_tuple::mp::{Kind, Reader};
use lycosa_tuple::value::Value;

use crate::error::Result;

/// What a server says of a task beside its payload: the map behind `[id, state, data]` in extended form.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TaskInfo {
    /// How often the task was taken in extended form since it was put or kicked; the present take counts.
    pub attempts: u64,
    /// The reason of the last `release` or `bury` that had one.
    pub last_error: Option<String>,
    /// When that was.
    pub failed_at: Option<SystemTime>,
    /// Its priority (ttl types).
    pub priority: Option<u64>,
    /// How long it lives from `created` on; `None` without an end.
    pub ttl: Option<Duration>,
    /// How long it may be held; `None` without an end.
    pub ttr: Option<Duration>,
    /// When it was put.
    pub created: Option<SystemTime>,
    /// When its next deadline changes its state: a delay ends, a holder's ttr ends, the ttl ends.
    pub due: Option<SystemTime>,
    /// The number of the connection that has taken it.
    pub connection: Option<u64>,
    /// When it was taken.
    pub taken_at: Option<SystemTime>,
    /// The token of the lease that owns it: only in answers to the lease's holder ([`Tube::take_leased`]).
    ///
    /// [`Tube::take_leased`]: crate::Tube::take_leased
    pub lease: Option<String>,
    /// When the lease that owns it ends; `None` if no lease does.
    pub lease_ends: Option<SystemTime>,
    /// Its sub-queue (utube types).
    pub utube: Option<Value>,
    /// Names and texts that its producer gave it beside the payload ([`PutOptions::header`]), in the order of the put.
    ///
    /// [`PutOptions::header`]: crate::PutOptions::header
    pub headers: Vec<(String, String)>,
}

impl TaskInfo {
    /// Reads the map; `None` if the value is something else, such as a further field of a custom tube type.
    pub(crate) fn decode(encoded: &[u8]) -> Result<Option<Self>> {
        if Reader::new(encoded).kind()? != Kind::Map {
            return Ok(None);
        }
        let map = Value::decode(encoded)?;
        let number = |name: &str| map.get(name).and_then(Value::as_u64);
        let span = |name: &str| map.get(name).and_then(seconds);
        let moment = |name: &str| span(name).and_then(|span| SystemTime::UNIX_EPOCH.checked_add(span));
        let text = |name: &str| {
            let bytes = map.get(name).and_then(Value::as_bytes)?;
            Some(String::from_utf8_lossy(bytes).into_owned())
        };
        Ok(Some(Self {
            attempts: number("attempts").unwrap_or(0),
            last_error: text("last_error"),
            failed_at: moment("failed_at"),
            priority: number("pri"),
            ttl: span("ttl"),
            ttr: span("ttr"),
            created: moment("created"),
            due: moment("due"),
            connection: number("connection"),
            taken_at: moment("taken_at"),
            lease: text("lease"),
            lease_ends: moment("lease_ends"),
            utube: map.get("utube").cloned(),
            headers: headers(&map),
        }))
    }
}

fn headers(map: &Value) -> Vec<(String, String)> {
    let Some(Value::Map(pairs)) = map.get("headers") else { return Vec::new() };
    let text = |value: &Value| value.as_str().map(str::to_owned);
    pairs.iter().filter_map(|(name, value)| Some((text(name)?, text(value)?))).collect()
}

pub(crate) fn seconds(value: &Value) -> Option<Duration> {
    let seconds = match value {
        Value::Double(seconds) => *seconds,
        other => return other.as_u64().map(Duration::from_secs),
    };
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_and_no_map() {
        let map = Value::map([
            ("attempts", Value::from(3_u64)),
            ("last_error", Value::from("exit 1")),
            ("ttr", Value::Double(1.5)),
            ("pri", Value::from(7_u64)),
            ("created", Value::from(1_000_u64)),
            ("headers", Value::map([("traceparent", "00-1")])),
            ("unknown", Value::Nil),
        ]);
        let info = TaskInfo::decode(&map.encode()).expect("a map").expect("info");
        assert_eq!((info.attempts, info.last_error.as_deref(), info.priority), (3, Some("exit 1"), Some(7)));
        assert_eq!(info.headers, [("traceparent".to_owned(), "00-1".to_owned())]);
        assert_eq!((info.ttr, info.ttl), (Some(Duration::from_millis(1_500)), None));
        assert_eq!(info.created, Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000)));
        assert_eq!(TaskInfo::decode(&Value::from("more").encode()).expect("a value"), None);
    }
}
