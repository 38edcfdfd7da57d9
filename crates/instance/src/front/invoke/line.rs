//! The line of the requests that no program has begun.
//!
//! The requests of a session begin in their order, and the sessions take turns. The host says of which sessions no more may begin
//! for the moment; the next one has its turn then. A client that sends a million requests delays the begin of a request of
//! another client by one request.
//!
//! Requests of connections that have closed wait on as requests of one session, [`CLOSED`]: a client may ask and go. The line
//! keeps [`MAX_CLOSED`] of these requests and [`MAX_CLOSED_BYTES`]; further ones are dropped, and SQL statements always are. No dropped
//! request was answered.
//!
//! Invariant: a session stands in `turns` once exactly if it has a request here. Absent: bounds for the requests of open
//! connections; see `front/input.rs`.

use std::collections::{HashMap, VecDeque};

use super::{CLOSED, Invoke, InvokeKind};

/// Requests of closed connections that are kept: as many as Tarantool has under way (`net_msg_max`).
const MAX_CLOSED: usize = 768;

/// Their bytes.
const MAX_CLOSED_BYTES: usize = 16 << 20;

/// The line.
#[derive(Debug, Default)]
pub(crate) struct Line {
    sessions: HashMap<u64, VecDeque<Invoke>>,
    turns: VecDeque<u64>,
    /// Bytes of the requests of closed connections.
    closed_bytes: usize,
}

impl Line {
    pub(crate) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    pub(super) fn push(&mut self, invoke: Invoke) {
        let session = invoke.share;
        let turns = &mut self.turns;
        let queue = self.sessions.entry(session).or_insert_with(|| {
            turns.push_back(session);
            VecDeque::new()
        });
        queue.push_back(invoke);
    }

    pub(super) fn has_next(&self, may_begin: impl Fn(u64) -> bool) -> bool {
        self.turns.iter().any(|&session| may_begin(session))
    }

    /// The next request of a session that may begin one.
    pub(super) fn pop(&mut self, may_begin: impl Fn(u64) -> bool) -> Option<Invoke> {
        let place = self.turns.iter().position(|&session| may_begin(session))?;
        self.turns.rotate_left(place);
        let session = self.turns.pop_front()?;
        let queue = self.sessions.get_mut(&session)?;
        let invoke = queue.pop_front();
        if queue.is_empty() {
            self.sessions.remove(&session);
        } else {
            self.turns.push_back(session);
        }
        if session == CLOSED {
            self.closed_bytes -= invoke.as_ref().map_or(0, Invoke::bytes);
        }
        invoke
    }

    /// The connection of a session has closed.
    pub(crate) fn end_session(&mut self, session: u64) {
        let Some(queue) = self.sessions.remove(&session) else { return };
        self.turns.retain(|&other| other != session);
        for invoke in queue {
            let bytes = self.closed_bytes + invoke.bytes();
            let closed = self.sessions.get(&CLOSED).map_or(0, VecDeque::len);
            let is_sql = matches!(invoke.kind, InvokeKind::Sql { .. });
            if is_sql || closed >= MAX_CLOSED || bytes > MAX_CLOSED_BYTES {
                continue;
            }
            self.closed_bytes = bytes;
            self.push(Invoke { share: CLOSED, ..invoke });
        }
    }

    /// Drops all requests, which are answered otherwise.
    pub(crate) fn clear(&mut self) {
        *self = Line::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Caller, RequestId};

    fn call(session: u64, number: u64, size: usize) -> Invoke {
        let kind = InvokeKind::Call { name: b"f".to_vec(), is_stored: false };
        let request = RequestId { session, number };
        let caller = Caller { session, ..Caller::internal() };
        Invoke { request, share: session, caller, kind, args: vec![0; size] }
    }

    fn numbers(line: &mut Line, may_begin: impl Fn(u64) -> bool) -> Vec<u64> {
        std::iter::from_fn(|| line.pop(&may_begin)).map(|invoke| invoke.request.number).collect()
    }

    #[test]
    fn sessions_take_turns_and_keep_their_order() {
        let mut line = Line::default();
        for (session, number) in [(7, 1), (7, 2), (7, 3), (8, 4), (9, 5), (8, 6)] {
            line.push(call(session, number, 0));
        }
        assert_eq!(numbers(&mut line, |_| true), [1, 4, 5, 2, 6, 3]);
        assert!(line.is_empty() && line.sessions.is_empty());
    }

    #[test]
    fn a_session_that_may_not_begin_holds_no_other_up() {
        let mut line = Line::default();
        for (session, number) in [(7, 1), (7, 2), (8, 3), (9, 4)] {
            line.push(call(session, number, 0));
        }
        assert_eq!(numbers(&mut line, |session| session != 7), [3, 4]);
        assert!(!line.is_empty());
        assert_eq!(numbers(&mut line, |_| true), [1, 2]);
    }

    #[test]
    fn requests_of_closed_connections_share_one_place_and_one_bound() {
        let mut line = Line::default();
        for session in 1..=3 {
            for number in 0..500 {
                line.push(call(session, session * 1000 + number, 0));
            }
            line.end_session(session);
        }
        line.push(call(9, 1, 0));
        let order = numbers(&mut line, |_| true);
        assert_eq!((order.len(), order[0], order[1]), (MAX_CLOSED + 1, 1000, 1));
        for number in 0..20 {
            line.push(call(4, number, 1 << 20));
        }
        line.end_session(4);
        assert_eq!(numbers(&mut line, |_| true).len(), 15, "bytes are bounded as well");
        assert_eq!(line.closed_bytes, 0);
    }

    #[test]
    fn statements_of_closed_connections_are_dropped() {
        let mut line = Line::default();
        let sql = InvokeKind::Sql { prepare: false, statement: Ok(b"SELECT 1".to_vec()) };
        line.push(Invoke { kind: sql, ..call(7, 1, 0) });
        line.push(call(7, 2, 0));
        line.end_session(7);
        assert_eq!(numbers(&mut line, |_| true), [2]);
    }
}
