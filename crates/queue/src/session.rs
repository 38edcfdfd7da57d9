//! Sessions: the owners of taken tasks, known by a UUID that several connections may share.
//!
//! A session is 16 bytes that several connections may share and that may outlive them all. Tasks belong to sessions,
//! never to connections. A connection gets a session when it first needs one.
//!
//! | what | where |
//! |---|---|
//! | connection → session | here, shown in `_queue_session_ids` |
//! | session → active, or when it expires | `_queue_shared_sessions` |
//! | session → the user who opened it | here; in a replica set also a fourth field of `_queue_shared_sessions` |
//! | task → session | `_queue_taken_2`, see [`crate::owners`] |
//! | task → lease, which belongs to no session | `_lycosa_leases`, see [`crate::leases`] |
//!
//! A client that knows a session's id may act for it with `queue.identify`, if its user opened the session, or may read and
//! change all spaces. A session of a data folder that another program wrote has no known opener until a connection
//! identifies with it.
//!
//! When the last connection of a session goes, the session expires after the `ttr` of `queue.cfg`, or at once if that
//! is 0. An expired session is *closing*: it is found by no call, and its tasks are released in batches, so that a
//! session with a million tasks does not hold up other sessions. The tasks of a closing session that a crash interrupts are
//! orphans, which the next start releases.

mod connections;
mod release;
mod start;

use std::collections::{BTreeSet, HashMap, VecDeque};

use lycosa_tuple::mp::{self, Reader};
use lycosa_tuple::tuple::TupleRef;
use uuid::Uuid;

use crate::integer_map::IntegerMap;
use crate::task::TaskKey;

/// The bytes that identify a session.
pub type SessionId = [u8; 16];

/// Makes ids of sessions. They are secrets, so they must be random where clients are not trusted: a client that knows a
/// session may finish its tasks.
pub type NewSessionId = Box<dyn FnMut() -> SessionId + Send>;

/// The session's id as the module prints it: the bytes are a UUID in the order of a little-endian machine.
pub(crate) fn text(session: &SessionId) -> String {
    Uuid::from_bytes_le(*session).hyphenated().to_string()
}

/// The release of all tasks of a session that goes on: a walk over the owners, which never goes back.
#[derive(Debug, Clone, Copy)]
struct Relief {
    session: SessionId,
    /// Tasks that were taken since are left alone, µs since the epoch.
    before: u64,
    /// The row of `_queue_taken_2` that was looked at last.
    after: Option<TaskKey>,
}

/// The queue's memory of sessions beside the spaces.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    of_connection: IntegerMap<u64, SessionId>,
    connections: HashMap<SessionId, u32>,
    /// Names of the users who opened the sessions. By name, because the number of a user that was dropped is given again.
    openers: HashMap<SessionId, Box<str>>,
    /// When a look at a session is due. The space has the last word: an entry may be stale, none is missing.
    expiring: BTreeSet<(u64, SessionId)>,
    /// Sessions whose tasks are being released.
    closing: VecDeque<SessionId>,
    /// Sessions whose tasks are released.
    reliefs: VecDeque<Relief>,
    /// Tasks whose row in `_queue_taken_2` or `_lycosa_leases` a statement of a client has removed or changed.
    disowned: VecDeque<TaskKey>,
    /// After a failure, nothing is released before this moment.
    retry_at: u64,
}

impl Sessions {
    pub(crate) fn of(&self, connection: u64) -> Option<SessionId> {
        self.of_connection.get(&connection).copied()
    }

    /// Gives a connection another session, or none; returns the one that it had.
    pub(crate) fn bind(&mut self, connection: u64, session: Option<SessionId>) -> Option<SessionId> {
        let previous = match session {
            Some(session) => {
                *self.connections.entry(session).or_default() += 1;
                self.of_connection.insert(connection, session)
            }
            None => self.of_connection.remove(&connection),
        };
        if let Some(previous) = previous
            && let Some(count) = self.connections.get_mut(&previous)
        {
            *count -= 1;
            if *count == 0 {
                self.connections.remove(&previous);
            }
        }
        previous
    }

    /// Name of the user who opened a session, if known.
    pub(crate) fn opener(&self, session: &SessionId) -> Option<&str> {
        self.openers.get(session).map(|name| &**name)
    }

    pub(crate) fn is_live(&self, session: &SessionId) -> bool {
        self.connections.contains_key(session)
    }

    /// Number of connections with a session.
    pub(crate) fn connections(&self) -> usize {
        self.of_connection.len()
    }

    /// The connections and their sessions.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, SessionId)> {
        self.of_connection.iter().map(|(&connection, &session)| (connection, session))
    }

    pub(crate) fn expires(&mut self, session: SessionId, moment: u64) {
        self.expiring.insert((moment, session));
    }

    pub(crate) fn close(&mut self, session: SessionId) {
        self.openers.remove(&session);
        self.closing.push_back(session);
    }

    /// The owner of these tasks may have vanished.
    pub(crate) fn disown(&mut self, tasks: impl IntoIterator<Item = TaskKey>) {
        self.disowned.extend(tasks);
    }

    /// Forgets what derives from rows: only connections with their sessions stay.
    pub(crate) fn forget_rows(&mut self) {
        self.expiring.clear();
        self.closing.clear();
        self.reliefs.clear();
        self.disowned.clear();
        self.openers.retain(|session, _| self.connections.contains_key(session));
    }

    /// The session was not opened after all.
    pub(crate) fn forget_opener(&mut self, session: &SessionId) {
        self.openers.remove(session);
    }

    /// When something has to be done about sessions.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        let is_closing = !self.closing.is_empty() || !self.reliefs.is_empty();
        let closing = is_closing.then_some(self.retry_at);
        let disowned = self.disowned.front().map(|_| self.retry_at);
        let closing = closing.or(disowned);
        let expiring = self.expiring.first().map(|&(moment, _)| moment.max(self.retry_at));
        closing.into_iter().chain(expiring).min()
    }
}

/// Reads the session of a row whose field `number` holds one.
pub(crate) fn session_field(tuple: &[u8], number: u32) -> Option<SessionId> {
    let field = TupleRef::trusted(tuple).field(number)?;
    Reader::new(field).str().ok()?.try_into().ok()
}

/// A row of `_queue_shared_sessions`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SharedSession<'a> {
    pub(crate) id: SessionId,
    /// µs since the epoch; 0 while active.
    pub(crate) expires: u64,
    pub(crate) active: bool,
    /// Name of the user who opened it. A field that the Lua module neither knows nor keeps.
    pub(crate) opener: Option<&'a str>,
}

impl<'a> SharedSession<'a> {
    pub(crate) fn read(tuple: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(tuple);
        reader.array().ok()?;
        let id = reader.str().ok()?.try_into().ok()?;
        let (expires, active) = (reader.uint().ok()?, reader.bool().ok()?);
        let opener = reader.str().ok().and_then(|name| str::from_utf8(name).ok());
        Some(Self { id, expires, active, opener })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut row = Vec::with_capacity(32);
        mp::write_array(&mut row, 3 + u32::from(self.opener.is_some()));
        mp::write_str(&mut row, &self.id);
        mp::write_uint(&mut row, self.expires);
        mp::write_bool(&mut row, self.active);
        if let Some(opener) = self.opener {
            mp::write_str(&mut row, opener.as_bytes());
        }
        row
    }
}

/// Progress of the start of sessions: the step, and the session that it has read last.
#[derive(Debug)]
pub(crate) enum SessionsStart {
    /// The openers of the stored sessions.
    Openers(Option<SessionId>),
    /// Rows about connections and calls, to be removed.
    Shown,
    /// Connections whose rows are to be written.
    Connections(Vec<(u64, SessionId)>),
    /// Sessions that no connection may have.
    Left(Option<SessionId>),
}

impl Default for SessionsStart {
    fn default() -> Self {
        Self::Openers(None)
    }
}

/// The fate of a session without connections.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Expires(u64),
    Closes,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_printed_as_a_little_endian_machine_does() {
        assert_eq!(text(b"0123456789abcdef"), "33323130-3534-3736-3839-616263646566");
    }

    #[test]
    fn a_session_lives_as_long_as_one_of_its_connections() {
        let mut sessions = Sessions::default();
        let (a, b) = ([1; 16], [2; 16]);
        assert_eq!(sessions.bind(1, Some(a)), None);
        assert_eq!(sessions.bind(2, Some(a)), None);
        assert_eq!(sessions.bind(1, Some(b)), Some(a));
        assert!(sessions.is_live(&a));
        assert_eq!(sessions.bind(2, None), Some(a));
        assert!(!sessions.is_live(&a));
        assert_eq!(sessions.bind(1, Some(b)), Some(b));
        assert!(sessions.is_live(&b));
        assert_eq!(sessions.bind(1, None), Some(b));
        assert!(!sessions.is_live(&b));
    }

    #[test]
    fn shared_sessions_are_read_as_written() {
        for opener in [None, Some("bob")] {
            let row = SharedSession { id: [7; 16], expires: 5, active: false, opener };
            assert_eq!(SharedSession::read(&row.encode()), Some(row));
        }
    }
}
