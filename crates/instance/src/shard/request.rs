//! Requests of a shard and what becomes of them: the number of one that waits, its refusal, its answer.

use std::collections::HashSet;

use lycosa_iproto::error::ErrorObject;

use crate::Result;

/// A request that may be parked, in the order of sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    /// The session that makes it.
    pub session: u64,
    /// Its number among all requests; never used twice in a process.
    pub number: u64,
}

/// Null, as a value of a reply.
pub(crate) const NULL: &[u8] = &[0xc0];

/// Why a call was not done.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It would have to wait, and its caller may not.
    MayNotWait,
    /// Another reason, in a client's words.
    Error(ErrorObject),
}

impl From<ErrorObject> for Refusal {
    fn from(error: ErrorObject) -> Self {
        Self::Error(error)
    }
}

/// Something for the callers of parked calls.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The answer of one call: the number of its values, and the values back to back.
    To(RequestId, Result<(u32, Vec<u8>)>),
    /// Calls that waited for lost rows have an unknown outcome: all parked calls but these.
    AllBut(HashSet<RequestId>),
}
