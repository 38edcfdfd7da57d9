//! The passage of connections through the triggers of a program.

use super::{Awaited, LoginAttempt};
use crate::front::Front;
use crate::front::caller::FrameReply;
use crate::front::logins::Outcome;
use crate::{ConnectionSlot, Instance, Result, Trust};

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
    pub fn finish_begin(&mut self, session: u64, result: Result<()>) {
        let Some((slot, _)) = self.front.gates.waiting.remove(&session) else { return };
        if let Some(connection) = self.front.connections.get_mut(slot) {
            connection.is_logging_in = false;
            connection.broken |= result.is_err();
        }
        if let Err(error) = result {
            self.front.reply_error(&self.shard, FrameReply::new(slot, 0), &error);
        }
    }

    /// The triggers of a log-in have ended; an error is its answer.
    pub fn finish_login(&mut self, session: u64, result: Result<()>) {
        let Some((slot, Awaited::Login { to, outcome })) = self.front.gates.waiting.remove(&session) else {
            return;
        };
        if let Some(connection) = self.front.connections.get_mut(slot) {
            connection.is_logging_in = false;
        }
        let outcome = result.and(outcome);
        if let Err(error) = self.front.admit_as(&self.shard, to, outcome) {
            self.front.reply_error(&self.shard, to, &error);
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
    pub(crate) fn hold_login(&mut self, to: FrameReply, name: &str, outcome: &Outcome) -> bool {
        let Some(caller) = self.caller(to.slot) else { return false };
        if !self.gates.watches_logins || !self.hold(to.slot) {
            return false;
        }
        let awaited = Awaited::Login { to, outcome: outcome.clone() };
        self.gates.waiting.insert(caller.session, (to.slot, awaited));
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
