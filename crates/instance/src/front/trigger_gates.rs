//! Gates: a connection waits while a program's triggers run, at its begin and at a log-in.
//!
//! As in Tarantool, nothing of a connection is served before the triggers of its begin have ended, and a log-in is
//! answered after its triggers. A trigger that fails refuses the connection, or the log-in, with its error.
//!
//! Invariants: a connection waits for one thing at a time, and is not read meanwhile; a closed connection waits for nothing.
//! *Absent:* the administrator's socket, which no trigger can close.

mod passage;

use std::collections::{HashMap, VecDeque};

use crate::front::caller::FrameReply;
use crate::front::logins::Outcome;
use crate::{Caller, ConnectionSlot};

/// A log-in that was tried.
#[derive(Debug)]
pub struct LoginAttempt {
    /// The session, still as the user it was.
    pub caller: Caller,
    /// The name that was given.
    pub name: String,
    /// Whether the password is right.
    pub is_right: bool,
}

/// The triggers that a connection waits for.
#[derive(Debug)]
enum Awaited {
    Begin,
    Login { to: FrameReply, outcome: Outcome },
}

/// The connections that wait for triggers, by the numbers of their sessions.
#[derive(Debug, Default)]
pub(crate) struct Gates {
    watches_begins: bool,
    watches_logins: bool,
    waiting: HashMap<u64, (ConnectionSlot, Awaited)>,
    attempts: VecDeque<LoginAttempt>,
}

impl Gates {
    /// A connection has closed.
    pub(crate) fn forget(&mut self, session: u64) {
        if self.waiting.remove(&session).is_some() {
            self.attempts.retain(|attempt| attempt.caller.session != session);
        }
    }
}
