//! What a client must be told.

use lycosa_iproto::error::ErrorCode;
use lycosa_tuple::mp;

use super::session::SessionKey;

/// The answer to a request, as far as it is determined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// So many values, back to back.
    Values { count: u32, bytes: Vec<u8> },
    /// The id of a session.
    Session(SessionKey),
    /// An error with that code and text.
    Failure { code: ErrorCode, text: String },
    /// An error, whatever it says.
    AnyFailure,
    /// The news that a snapshot is complete, or an error: the model knows nothing of snapshots.
    Snapshot,
}

impl Answer {
    pub(crate) fn nothing() -> Self {
        Self::Values { count: 0, bytes: Vec::new() }
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

    fn raised(text: impl Into<String>) -> Self {
        Self::Failure { code: ErrorCode::ProcLua, text: text.into() }
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
