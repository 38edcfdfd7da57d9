//! Gates: a connection waits while a program's triggers run, at its begin and at a log-in.
//!
//! As in Tarantool, nothing of a connection is served before the triggers of its begin have ended, and a log-in is
//! answered after its triggers. A trigger that fails refuses the connection, or the log-in, with its error.
//!
//! Invariants: a connection waits for one thing at a time, and is not read meanwhile; a closed connection waits for nothing.
//! *Absent:* the administrator's socket, which no trigger can close.

use std::collections::{HashMap, VecDeque};

use lycosa_iproto::error::ErrorObject;

use crate::front::Front;
use crate::front::logins::Outcome;
use crate::{Caller, ConnectionSlot, Instance, Trust};

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
    Login { sync: u64, outcome: Outcome },
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

impl Instance {
    /// Whether connections that begin, and log-ins, wait from now on until [`Self::finish_begin`] and
    /// [`Self::finish_login`] are called for their sessions: a program has triggers for them.
    pub fn watch_sessions(&mut self, begins: bool, logins: bool) {
        self.front.gates.watches_begins = begins;
        self.front.gates.watches_logins = logins;
    }

    /// The next log-in that waits for triggers.
    pub fn poll_login(&mut self) -> Option<LoginAttempt> {
        self.front.gates.attempts.pop_front()
    }

    /// The triggers of a session's begin have ended; an error refuses the connection.
    pub fn finish_begin(&mut self, session: u64, result: Result<(), ErrorObject>) {
        let Some((slot, _)) = self.front.gates.waiting.remove(&session) else { return };
        if let Some(connection) = self.front.connections.get_mut(slot) {
            connection.is_logging_in = false;
            connection.broken |= result.is_err();
        }
        if let Err(error) = result {
            self.front.reply_error(&self.shard, slot, 0, &error);
        }
    }

    /// The triggers of a log-in have ended; an error is its answer.
    pub fn finish_login(&mut self, session: u64, result: Result<(), ErrorObject>) {
        let Some((slot, Awaited::Login { sync, outcome })) = self.front.gates.waiting.remove(&session) else {
            return;
        };
        if let Some(connection) = self.front.connections.get_mut(slot) {
            connection.is_logging_in = false;
        }
        let outcome = result.and(outcome);
        if let Err(error) = self.front.admit_as(&self.shard, slot, sync, outcome) {
            self.front.reply_error(&self.shard, slot, sync, &error);
        }
    }
}

impl Front {
    /// A connection has begun: it waits if triggers are to run first.
    pub(crate) fn hold_begin(&mut self, slot: ConnectionSlot) {
        if self.gates.watches_begins && self.hold(slot) {
            let session = self.connections.get(slot).map_or(0, |connection| connection.id);
            self.gates.waiting.insert(session, (slot, Awaited::Begin));
        }
    }

    /// A log-in is decided: whether its triggers are to run before it is answered.
    pub(crate) fn hold_login(
        &mut self,
        slot: ConnectionSlot,
        sync: u64,
        name: &str,
        outcome: &Outcome,
    ) -> bool {
        let Some(caller) = self.caller(slot) else { return false };
        if !self.gates.watches_logins || !self.hold(slot) {
            return false;
        }
        let awaited = Awaited::Login { sync, outcome: outcome.clone() };
        self.gates.waiting.insert(caller.session, (slot, awaited));
        let name = name.to_owned();
        self.gates.attempts.push_back(LoginAttempt { caller, name, is_right: outcome.is_ok() });
        true
    }

    fn hold(&mut self, slot: ConnectionSlot) -> bool {
        let Some(connection) = self.connections.get_mut(slot) else { return false };
        let may_wait = connection.origin.trust != Trust::Admin;
        connection.is_logging_in |= may_wait;
        may_wait
    }
}
