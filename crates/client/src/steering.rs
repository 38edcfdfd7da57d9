//! What a server says when it is steered: explanations, and entries of the audit log.

use std::time::SystemTime;

use lycosa_tuple::value::Value;

use crate::error::{Error, Result};
use crate::info::seconds;

/// A moment that a server gave as seconds since the epoch.
pub(crate) fn moment(value: &Value) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(seconds(value)?)
}

pub(crate) fn text(value: Option<&Value>) -> Option<String> {
    Some(String::from_utf8_lossy(value?.as_bytes()?).into_owned())
}

/// Why a task, a sub-queue or a tube hands out no task.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// Whether the next `take` gets this task, or one of this sub-queue or tube.
    pub is_next: bool,
    /// The state of a task as a word; `None` for a sub-queue and a tube.
    pub state: Option<String>,
    /// The decisive reason first; empty: a call waits for just this task.
    pub reasons: Vec<Reason>,
    /// The whole reply.
    pub reply: Value,
}

/// One reason of an [`Explanation`].
#[derive(Debug, Clone, PartialEq)]
pub struct Reason {
    /// `paused`, `delayed`, `taken`, `blocked`, `buried`, `behind`, `no_consumer`, `empty` or `expired`.
    pub reason: String,
    /// A sentence for people.
    pub text: String,
    /// When the reason ends without a request.
    pub until: Option<SystemTime>,
    /// All that the server says of it.
    pub members: Value,
}

impl Explanation {
    pub(crate) fn read(reply: Value) -> Result<Self> {
        let reasons = reply.get("reasons").and_then(Value::as_array);
        let reasons =
            reasons.ok_or_else(|| Error::protocol(format!("an explanation without reasons: {reply}")))?;
        let reasons = reasons.iter().map(|members| Reason {
            reason: text(members.get("reason")).unwrap_or_default(),
            text: text(members.get("text")).unwrap_or_default(),
            until: members.get("until").and_then(moment),
            members: members.clone(),
        });
        Ok(Self {
            is_next: reply.get("next") == Some(&Value::Bool(true)),
            state: text(reply.get("state")),
            reasons: reasons.collect(),
            reply,
        })
    }
}

/// An entry of the audit log.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditEntry {
    /// Grows with time.
    pub id: u64,
    /// When it was written.
    pub time: Option<SystemTime>,
    /// Who.
    pub user: String,
    /// On which connection.
    pub connection: u64,
    /// The tube.
    pub tube: String,
    /// The operation.
    pub operation: String,
    /// The job that did it.
    pub job: Option<u64>,
    /// Why.
    pub reason: Option<String>,
}

impl AuditEntry {
    pub(crate) fn read(value: &Value) -> Result<Self> {
        let number = |name: &str| value.get(name).and_then(Value::as_u64);
        let word = |name: &str| text(value.get(name)).unwrap_or_default();
        Ok(Self {
            id: number("id").ok_or_else(|| Error::protocol(format!("an entry without an id: {value}")))?,
            time: value.get("time").and_then(moment),
            user: word("user"),
            connection: number("connection").unwrap_or(0),
            tube: word("tube"),
            operation: word("operation"),
            job: number("job"),
            reason: text(value.get("reason")),
        })
    }
}
