//! Programs: CALL of names that are not native, and EVAL.
//!
//! The instance runs no programs. With [`Settings::lua`](crate::Settings::lua) it hands out an [`Invoke`] for each such request
//! ([`Instance::poll_invoke`](crate::Instance::poll_invoke)), after it has checked the right to execute, and parks the request until
//! [`Instance::finish_invoke`](crate::Instance::finish_invoke). The program's statements and calls come back through the functions
//! that connections use, with [`Invoke::caller`]'s rights.

pub(crate) mod line;
mod requests;

use std::collections::VecDeque;

use lycosa_iproto::error::ErrorObject;
use lycosa_store::Statement;

use crate::{Caller, RequestId};

/// A statement with copies of its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedStatement {
    /// `insert`, `replace`, `update`, `upsert` or `delete`.
    pub kind: &'static str,
    /// The space.
    pub space: u32,
    /// The index that finds the tuple; 0 where there is none.
    pub index: u32,
    /// The tuple, or the key: a MessagePack array.
    pub first: Vec<u8>,
    /// The operations of an UPDATE or UPSERT.
    pub operations: Vec<u8>,
    /// The number of the first field in the operations.
    pub base: i64,
}

impl OwnedStatement {
    /// Copies a statement.
    #[must_use]
    pub fn of(statement: &Statement<'_>) -> OwnedStatement {
        let (kind, index, first, operations, base) = match *statement {
            Statement::Insert { tuple, .. } => ("insert", 0, tuple, &[][..], 0),
            Statement::Replace { tuple, .. } => ("replace", 0, tuple, &[][..], 0),
            Statement::Upsert { tuple, operations, base, .. } => ("upsert", 0, tuple, operations, base),
            Statement::Update { index, key, operations, base, .. } => {
                ("update", index, key, operations, base)
            }
            Statement::Delete { index, key, .. } => ("delete", index, key, &[][..], 0),
        };
        let (first, operations) = (first.to_vec(), operations.to_vec());
        OwnedStatement { kind, space: statement.space(), index, first, operations, base }
    }

    /// The statement.
    #[must_use]
    pub fn get(&self) -> Statement<'_> {
        let (space, index, base) = (self.space, self.index, self.base);
        let (first, operations) = (self.first.as_slice(), self.operations.as_slice());
        match self.kind {
            "insert" => Statement::Insert { space, tuple: first },
            "replace" => Statement::Replace { space, tuple: first },
            "update" => Statement::Update { space, index, key: first, operations, base },
            "upsert" => Statement::Upsert { space, tuple: first, operations, base },
            _ => Statement::Delete { space, index, key: first },
        }
    }
}

/// The function or text for a program to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InvokeKind {
    /// A function by its name.
    Call {
        /// The name as it came; a function of `_func` or a global one.
        name: Vec<u8>,
        /// `_func` has its source.
        is_stored: bool,
    },
    /// An expression.
    Eval {
        /// Its text.
        expression: Vec<u8>,
    },
    /// A statement on a space that has triggers, or on `_session_settings`.
    Statement(OwnedStatement),
    /// A SELECT from `_session_settings`. Its arguments are the numbers of the iterator, the offset and the limit, and the key.
    Settings,
    /// An SQL statement, to be run with the arguments, prepared or forgotten. The answer is a whole body
    /// ([`Instance::finish_invoke_with_body`](crate::Instance::finish_invoke_with_body)).
    Sql {
        /// It is to be prepared, or forgotten if it is given by its number.
        prepare: bool,
        /// Its text, or the number under which it was prepared.
        statement: Result<Vec<u8>, u32>,
    },
}

/// A request for a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invoke {
    /// To be given to [`Instance::finish_invoke`](crate::Instance::finish_invoke) and [`Instance::push`](crate::Instance::push).
    pub request: RequestId,
    /// With which requests it shares its turns: the number of its session, or [`CLOSED`] once that has ended.
    pub share: u64,
    /// The caller. Its effective user is the owner of the function if that runs with its owner's rights.
    pub caller: Caller,
    /// The program or function to run.
    pub kind: InvokeKind,
    /// Its arguments: a MessagePack array.
    pub args: Vec<u8>,
}

/// The share of requests whose connections have closed before a program began them.
pub const CLOSED: u64 = u64::MAX;

impl Invoke {
    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        let kind = match &self.kind {
            InvokeKind::Call { name, .. } => name.len(),
            InvokeKind::Eval { expression } => expression.len(),
            InvokeKind::Statement(statement) => statement.first.len() + statement.operations.len(),
            InvokeKind::Settings => 0,
            InvokeKind::Sql { statement, .. } => statement.as_ref().map_or(0, Vec::len),
        };
        size_of::<Invoke>() + kind + self.args.len()
    }
}

/// Maximum number of queued denial events. Further events are dropped.
const MAX_DENIED: usize = 1024;

/// Requests of clients that were refused for want of a right, for programs that want to know.
#[derive(Debug, Default)]
pub(crate) struct Denied {
    watched: bool,
    queue: VecDeque<(Caller, ErrorObject)>,
}
