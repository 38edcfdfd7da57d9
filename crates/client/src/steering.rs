//! Steering a server: filters, jobs, explanations, entries of the audit log.

use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime};

use lycosa_tuple::value::Value;

use crate::error::{Error, Result};
use crate::info::seconds;
use crate::task::{Task, TaskState};

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
    /// The name of the token that acted, if it was a call over HTTP.
    pub token: Option<String>,
    /// The role of that token.
    pub role: Option<String>,
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
            token: text(value.get("token")),
            role: text(value.get("role")),
        })
    }
}

/// Chooses tasks of a tube: a task matches if every member does.
///
/// ```
/// use std::time::Duration;
/// use lycosa_client::{Filter, TaskState};
///
/// let failed = Filter::new().state(TaskState::Buried).error("no such host").older_than(Duration::from_secs(3600));
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Filter {
    members: Vec<(Value, Value)>,
}

impl Filter {
    /// An empty filter, which [`Tube::apply`](crate::Tube::apply) refuses.
    pub fn new() -> Self {
        Self::default()
    }

    /// Every task.
    pub fn all() -> Self {
        Self::new().with("all", true)
    }

    /// Tasks in this state.
    pub fn state(self, state: TaskState) -> Self {
        self.with("state", state.to_string())
    }

    /// Tasks with these ids.
    pub fn ids(self, ids: RangeInclusive<u64>) -> Self {
        self.with("id_from", *ids.start()).with("id_to", *ids.end())
    }

    /// These tasks, each only while it is in this state; at most 1 000.
    pub fn tasks(self, tasks: impl IntoIterator<Item = (u64, TaskState)>) -> Self {
        let pair = |(id, state): (u64, TaskState)| {
            Value::Array(vec![Value::from(id), Value::from(state.to_string())])
        };
        let pairs = tasks.into_iter().map(pair).collect();
        self.with("ids", Value::Array(pairs))
    }

    /// Tasks of this sub-queue (utube, utubettl).
    pub fn utube(self, name: &str) -> Self {
        self.with("utube", name)
    }

    /// Tasks with these priorities (ttl types).
    pub fn priorities(self, priorities: RangeInclusive<u64>) -> Self {
        self.with("pri_from", *priorities.start()).with("pri_to", *priorities.end())
    }

    /// Tasks that were put longer ago than this (ttl types).
    pub fn older_than(self, age: Duration) -> Self {
        self.with("older_than", crate::tube::seconds(age))
    }

    /// Tasks that were put less long ago than this (ttl types).
    pub fn younger_than(self, age: Duration) -> Self {
        self.with("younger_than", crate::tube::seconds(age))
    }

    /// Tasks with these numbers of attempts.
    pub fn attempts(self, attempts: RangeInclusive<u64>) -> Self {
        self.with("attempts_from", *attempts.start()).with("attempts_to", *attempts.end())
    }

    /// Tasks whose last failure contains this text.
    pub fn error(self, text: &str) -> Self {
        self.with("error", text)
    }

    /// Tasks whose payload has a value at this path, such as `user.name` or `lines[1].sku`.
    pub fn has_field(self, path: &str) -> Self {
        self.with("field", path)
    }

    /// Tasks whose payload has this value at this path.
    pub fn field_equals(self, path: &str, value: impl Into<Value>) -> Self {
        self.with("field", path).with("equals", value)
    }

    /// Tasks whose payload has a string with this text at this path.
    pub fn field_contains(self, path: &str, text: &str) -> Self {
        self.with("field", path).with("contains", text)
    }

    fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.members.push((Value::from(name), value.into()));
        self
    }

    pub(crate) fn to_value(&self) -> Value {
        Value::Map(self.members.clone())
    }
}

/// What [`Tube::apply`](crate::Tube::apply) does with the tasks of a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Buried tasks become ready.
    Kick,
    /// Taken tasks are taken away from their sessions.
    Release,
    /// Delayed tasks become ready now.
    Run,
    /// Ready and delayed tasks get another delay, another priority, or both (ttl types).
    Reschedule {
        /// From the change of a task until it is ready; zero: at once.
        delay: Option<Duration>,
        /// Lower first.
        priority: Option<u64>,
    },
    /// Tasks are set aside.
    Bury,
    /// Tasks are removed.
    Delete,
    /// Tasks move to another tube.
    Move {
        /// Its name.
        to: String,
    },
}

impl Operation {
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Kick => "kick",
            Self::Release => "release",
            Self::Run => "run",
            Self::Reschedule { .. } => "reschedule",
            Self::Bury => "bury",
            Self::Delete => "delete",
            Self::Move { .. } => "move",
        }
    }
}

/// How [`Tube::apply`](crate::Tube::apply) goes about it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApplyOptions {
    /// Only counts the tasks.
    pub dry_run: bool,
    /// The dry run that has counted them, of the same operation with the same filter. Needed unless the filter says `all`, or names one
    /// task.
    pub counted: Option<u64>,
    /// Changed tasks a second at most.
    pub rate: Option<u64>,
    /// For the audit log, and for buried tasks their last failure.
    pub reason: Option<String>,
}

impl ApplyOptions {
    pub(crate) fn to_value(&self, operation: &Operation) -> Value {
        let mut options = vec![(Value::from("dry_run"), Value::Bool(self.dry_run))];
        let mut add = |name: &str, value: Option<Value>| {
            options.extend(value.map(|value| (Value::from(name), value)));
        };
        add("counted", self.counted.map(Value::from));
        add("rate", self.rate.map(Value::from));
        add("reason", self.reason.as_deref().map(Value::from));
        match operation {
            Operation::Move { to } => add("to", Some(Value::from(to.as_str()))),
            Operation::Reschedule { delay, priority } => {
                add("delay", delay.map(crate::tube::seconds));
                add("pri", priority.map(Value::from));
            }
            _ => {}
        }
        Value::Map(options)
    }
}

/// A page of [`Tube::find`](crate::Tube::find).
#[derive(Debug, Clone)]
pub struct Page {
    /// Tasks with what else is known of them ([`Task::info`]). A page before the end may be empty.
    pub tasks: Vec<Task>,
    /// Tasks that were looked at, with those of the pages before.
    pub scanned: u64,
    /// Tasks to look at.
    pub total: u64,
    /// For the next page; `None` at the end.
    pub cursor: Option<String>,
}

/// Where a [`TubeJob`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobState {
    /// The server works on it.
    Running,
    /// It waits to be resumed.
    Paused,
    /// It has looked at all its tasks.
    Done,
    /// It was ended before.
    Cancelled,
    /// Its tube was truncated or dropped.
    Failed,
}

impl JobState {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "running" => Self::Running,
            "paused" => Self::Paused,
            "done" => Self::Done,
            "cancelled" => Self::Cancelled,
            "failed" => Self::Failed,
            _ => return None,
        })
    }

    /// Whether the job does nothing more.
    pub const fn is_over(self) -> bool {
        !matches!(self, Self::Running | Self::Paused)
    }
}

/// A job over many tasks of a tube, as it was when the server replied.
#[derive(Debug, Clone, PartialEq)]
pub struct TubeJob {
    /// For [`Tube::job`](crate::Tube::job) and its like.
    pub id: u64,
    /// The name of its tube.
    pub tube: String,
    /// `count`, an [`Operation`], or `undo`.
    pub operation: String,
    /// Where it is.
    pub state: JobState,
    /// Tasks that were looked at.
    pub scanned: u64,
    /// Tasks to look at.
    pub total: u64,
    /// Tasks that matched.
    pub matched: u64,
    /// Tasks that were changed.
    pub changed: u64,
    /// Tasks that [`Tube::undo`](crate::Tube::undo) can bring back.
    pub kept: u64,
    /// Until when.
    pub undo_until: Option<SystemTime>,
    /// Of an undo: tasks that were brought back.
    pub undone: u64,
    /// Of an undo: tasks that were taken or changed since.
    pub touched_since: u64,
    /// Of an undo: tasks that do not exist any more.
    pub gone: u64,
    /// Why it is paused or has failed.
    pub error: Option<String>,
    /// The whole reply.
    pub reply: Value,
}

impl TubeJob {
    pub(crate) fn read(reply: Value) -> Result<Self> {
        let number = |name: &str| reply.get(name).and_then(Value::as_u64);
        let state = reply.get("state").and_then(Value::as_str).and_then(JobState::parse);
        let (Some(id), Some(state)) = (number("id"), state) else {
            return Err(Error::protocol(format!("{reply} is no job")));
        };
        let count = |name: &str| number(name).unwrap_or(0);
        Ok(Self {
            id,
            state,
            tube: text(reply.get("tube")).unwrap_or_default(),
            operation: text(reply.get("operation")).unwrap_or_default(),
            scanned: count("scanned"),
            total: count("total"),
            matched: count("matched"),
            changed: count("changed"),
            kept: count("kept"),
            undo_until: reply.get("undo_until").and_then(moment),
            undone: count("undone"),
            touched_since: count("touched_since"),
            gone: count("gone"),
            error: text(reply.get("error")),
            reply,
        })
    }
}
