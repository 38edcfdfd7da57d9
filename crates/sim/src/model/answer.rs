//! Answers that a client must get.

use lycosa_iproto::error::ErrorCode;
use lycosa_tuple::mp;

use super::jobs::Job;
use super::session::SessionKey;
use super::tube::Task;
use crate::plan::Kind;

/// A task as its extended form has to show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExtendedTask {
    pub(crate) id: u64,
    /// The task at the moment of the answer.
    pub(crate) task: Task,
    /// Of its tube.
    pub(crate) kind: Kind,
    /// The answer tells the token of the task's lease.
    pub(crate) has_token: bool,
}

/// The answer to a request, as far as it is determined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// This number of values, back to back.
    Values { count: u32, bytes: Vec<u8> },
    /// One value: an array of this number of tasks, which stand back to back.
    Tasks { count: u32, bytes: Vec<u8> },
    /// Tasks in extended form: one, or an array of them.
    Extended { tasks: Vec<ExtendedTask>, is_array: bool },
    /// A page of `find`: ids of its tasks in its order, the number of tasks looked at, and whether no page follows.
    Found { ids: Vec<u64>, scanned: u64, is_end: bool },
    /// A job: id, state, and number of tasks changed or brought back.
    Job { id: u64, state: &'static str, changed: u64 },
    /// The id of a session.
    Session(SessionKey),
    /// An error with that code and text.
    Failure { code: ErrorCode, text: String },
    /// An error with any text.
    AnyFailure,
    /// The news that a snapshot is complete, or an error: the model knows nothing of snapshots.
    Snapshot,
}

impl Answer {
    pub(crate) fn is_failure(&self) -> bool {
        matches!(self, Self::Failure { .. } | Self::AnyFailure)
    }

    pub(crate) fn nothing() -> Self {
        Self::Values { count: 0, bytes: Vec::new() }
    }

    pub(crate) fn job(job: &Job) -> Self {
        Self::Job { id: job.id, state: job.state.name(), changed: job.changed + job.undone }
    }

    /// What a take gets where there is nothing for it: one for a task, or one for several.
    pub(crate) fn no_tasks(is_one: bool) -> Self {
        if is_one { Self::nothing() } else { Self::tasks(&[]) }
    }

    pub(crate) fn null() -> Self {
        Self::one(mp::write_nil)
    }

    pub(crate) fn one(write: impl FnOnce(&mut Vec<u8>)) -> Self {
        let mut bytes = Vec::new();
        write(&mut bytes);
        Self::Values { count: 1, bytes }
    }

    /// A task as clients see it.
    pub(crate) fn task(id: u64, status: char, data: &[u8]) -> Self {
        Self::one(|out| {
            mp::write_array(out, 3);
            mp::write_uint(out, id);
            mp::write_str(out, &[status as u8]);
            out.extend_from_slice(data);
        })
    }

    /// Tasks as [`Self::task`] shows them, in an array.
    pub(crate) fn tasks(tasks: &[Self]) -> Self {
        let extended: Vec<_> = tasks.iter().filter_map(Self::first_extended).collect();
        if !extended.is_empty() {
            return Self::Extended { tasks: extended, is_array: true };
        }
        let bytes = tasks.iter().filter_map(|task| match task {
            Self::Values { bytes, .. } => Some(bytes.as_slice()),
            _ => None,
        });
        Self::Tasks { count: tasks.len() as u32, bytes: bytes.collect::<Vec<_>>().concat() }
    }

    /// One task in extended form.
    pub(crate) fn extended(task: ExtendedTask) -> Self {
        Self::Extended { tasks: vec![task], is_array: false }
    }

    fn first_extended(&self) -> Option<ExtendedTask> {
        match self {
            Self::Extended { tasks, .. } => tasks.first().cloned(),
            _ => None,
        }
    }

    /// A batch was refused for one of its tasks.
    pub(crate) fn in_batch(id: u64, cause: Self) -> Self {
        match cause {
            Self::Failure { code, text } => Self::Failure { code, text: format!("task {id}: {text}") },
            other => other,
        }
    }

    pub(crate) fn no_such_limit() -> Self {
        Self::raised("argument #1 should be a number of tasks, 1 at least")
    }

    pub(crate) fn beyond_capacity(tasks: usize, capacity: u64) -> Self {
        Self::raised(format!("{tasks} tasks do not fit a tube with a capacity of {capacity}"))
    }

    fn raised(text: impl Into<String>) -> Self {
        Self::Failure { code: ErrorCode::ProcLua, text: text.into() }
    }

    pub(crate) fn stale(token: &str) -> Self {
        Self::raised(format!("Lease {token} is stale: it ended, or its task was settled"))
    }

    pub(crate) fn not_taken() -> Self {
        Self::raised("Task was not taken")
    }

    pub(crate) fn not_found(id: u64) -> Self {
        Self::raised(format!("Task {id} not found"))
    }

    pub(crate) fn no_touch(kind: &str) -> Self {
        Self::raised(format!("{kind} queue does not support touch"))
    }

    pub(crate) fn no_tube() -> Self {
        Self::raised("Tube not found")
    }

    pub(crate) fn has_consumers() -> Self {
        Self::raised("There are consumers connected the tube")
    }

    pub(crate) fn has_taken_tasks() -> Self {
        Self::raised("There are taken tasks in the tube")
    }

    pub(crate) fn nothing_to_index() -> Self {
        Self::raised("attempt to index a nil value")
    }

    pub(crate) fn no_procedure(name: &str) -> Self {
        Self::Failure { code: ErrorCode::NoSuchProc, text: format!("Procedure '{name}' is not defined") }
    }
}
