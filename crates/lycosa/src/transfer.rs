//! Tubes as text: `lycosa export` writes and `lycosa import` reads one JSON object a line.
//!
//! A line is a tube ([`TubeLine`]) or a task ([`TaskLine`]); `docs/cli.md` describes both. Payloads and sub-queues keep
//! their bytes ([`exact_json`]). Times are seconds: `created` since the epoch, `ttl` and `delay` from `created` on, so
//! that a task's clock goes on between export and import; a line without `created` counts from the import.
//!
//! Absent: ids, which are given anew in the order of the lines, and the holder of a task: a taken one becomes ready.

mod exact_json;
pub(crate) mod export;
pub(crate) mod import;

use serde::{Deserialize, Serialize};
use serde_json::{Number, Value as Json};

const MICROSECONDS: u64 = 1_000_000;

/// A tube: comes before its tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TubeLine {
    tube: String,
    #[serde(rename = "type")]
    kind: String,
    /// As `create_tube` takes them.
    #[serde(default)]
    options: Json,
}

/// A task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskLine {
    tube: String,
    /// What it was; an import does not look at it.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    #[serde(default)]
    state: TaskState,
    data: Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    pri: Option<u64>,
    /// Seconds from `created` to the task's end.
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<Number>,
    /// Seconds that it may be held.
    #[serde(skip_serializing_if = "Option::is_none")]
    ttr: Option<Number>,
    /// Seconds from `created` to the moment at which it becomes ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    delay: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    utube: Option<Json>,
    /// Seconds since the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<Number>,
}

/// The states of stored tasks, by the letters that tuples have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
enum TaskState {
    #[default]
    #[serde(rename = "r")]
    Ready,
    #[serde(rename = "t")]
    Taken,
    #[serde(rename = "~")]
    Delayed,
    #[serde(rename = "!")]
    Buried,
}

/// A line.
#[derive(Debug, Clone, PartialEq)]
enum Line {
    Tube(TubeLine),
    Task(Box<TaskLine>),
}

impl Line {
    fn parse(text: &[u8]) -> Result<Self, serde_json::Error> {
        let json: Json = serde_json::from_slice(text)?;
        if !json.is_object() {
            return Err(serde::de::Error::custom("a line is a JSON object"));
        }
        if json.get("type").is_some() {
            serde_json::from_value(json).map(Self::Tube)
        } else {
            serde_json::from_value(json).map(|task| Self::Task(Box::new(task)))
        }
    }
}

/// Microseconds as a number of seconds.
fn to_seconds(microseconds: u64) -> Number {
    let whole = Number::from(microseconds / MICROSECONDS);
    if microseconds.is_multiple_of(MICROSECONDS) {
        return whole;
    }
    Number::from_f64(microseconds as f64 / MICROSECONDS as f64).unwrap_or(whole)
}

/// A number of seconds as microseconds, to the nearest; `None` for one below 0.
fn from_seconds(seconds: &Number) -> Option<u64> {
    if let Some(whole) = seconds.as_u64() {
        return Some(whole.saturating_mul(MICROSECONDS));
    }
    let seconds = seconds.as_f64().filter(|seconds| *seconds >= 0.0)?;
    Some((seconds * MICROSECONDS as f64).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_keep_their_microseconds() {
        for microseconds in
            [0, 1, 999_999, 1_000_000, 33_299_999, 1_763_630_000_123_457, 3_153_600_000_000_001]
        {
            assert_eq!(from_seconds(&to_seconds(microseconds)), Some(microseconds));
        }
        assert_eq!(to_seconds(60_000_000).to_string(), "60");
        assert_eq!(to_seconds(1_500_000).to_string(), "1.5");
        assert_eq!(from_seconds(&Number::from(-1)), None);
        assert_eq!(from_seconds(&Number::from(u64::MAX)), Some(u64::MAX));
    }

    #[test]
    fn a_line_is_a_tube_or_a_task() {
        let tube = Line::parse(br#"{"tube": "t", "type": "fifo"}"#).unwrap();
        assert_eq!(tube, Line::Tube(TubeLine { tube: "t".into(), kind: "fifo".into(), options: Json::Null }));
        let Line::Task(task) =
            Line::parse(br#"{"tube": "t", "data": null, "state": "!", "ttl": 1.5}"#).unwrap()
        else {
            panic!("a task")
        };
        assert_eq!((task.state, task.data), (TaskState::Buried, Json::Null));
        assert_eq!(task.ttl.as_ref().and_then(from_seconds), Some(1_500_000));
    }

    #[test]
    fn a_wrong_line_says_what_is_wrong() {
        let refused = |text: &str| Line::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(refused(r#"{"tube": "t"}"#).contains("missing field `data`"));
        assert!(refused(r#"{"tube": "t", "data": 1, "prio": 1}"#).contains("unknown field `prio`"));
        assert!(refused(r#"{"tube": "t", "data": 1, "state": "-"}"#).contains("unknown variant `-`"));
        assert!(refused(r#"["t", 1]"#).contains("a line is a JSON object"));
        assert!(refused("{").contains("EOF"));
    }
}
