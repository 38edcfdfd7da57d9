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

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, VecDeque};

use lycosa_store::{Access, IteratorType, Object, Statement, Store, UserId};
use lycosa_tuple::mp::{self, Reader};
use lycosa_tuple::tuple::TupleRef;
use uuid::Uuid;

use crate::arguments::{Arguments, string};
use crate::audit::Steered;
use crate::error::Error;
use crate::integer_map::IntegerMap;
use crate::owners::Owner;
use crate::system::{SystemSpaces, TAKEN_BY_SESSION, delete_row, rows, rows_after};
use crate::task::{ShortKey, TaskKey, id_of, string_key, taken_key};
use crate::transaction::Undo;
use crate::turn::{Common, SessionsTurn, TubeTurn, Turn};
use crate::{Caller, Client};

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
    Openers { after: Option<SessionId> },
    /// Rows about connections and calls, to be removed.
    Shown,
    /// Connections whose rows are to be written.
    Connections { bound: Vec<(u64, SessionId)> },
    /// Sessions that no connection may have.
    Left { after: Option<SessionId> },
}

impl Default for SessionsStart {
    fn default() -> Self {
        Self::Openers { after: None }
    }
}

/// The fate of a session without connections.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Expires(u64),
    Closes,
}

impl SessionsTurn<'_> {
    /// `queue.identify([uuid])`
    pub(crate) fn identify(
        &mut self,
        caller: &Caller,
        arguments: Arguments<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let wanted = match arguments.present(0) {
            None => None,
            Some(value) => {
                let bytes = string(value).ok_or(Error::InvalidUuid)?;
                Some(SessionId::try_from(bytes).map_err(|_| Error::InvalidUuid)?)
            }
        };
        let present = self.turn.common.sessions.of(caller.session);
        let session = match (wanted, present) {
            (None, Some(session)) => session,
            (None, None) => {
                self.turn.common.refuse_if_read_only()?;
                self.turn.transact(|turn| turn.common.ensure_session(turn.store, caller.client()))?
            }
            // The queue has not come up on these data: it does not know the spaces of sessions.
            (Some(_), _) if self.turn.common.spaces.shared_sessions == 0 => return Err(Error::ReadOnly),
            (Some(session), _) => {
                // A follower may not have the session's row yet: its client is not to take the session for one that ended.
                self.turn.common.refuse_if_read_only()?;
                if !self.turn.common.is_known(self.turn.store, &session)? {
                    return Err(Error::UnknownUuid(text(&session)));
                }
                self.turn.common.check_opener(self.turn.store, caller, &session)?;
                self.turn.transact(|turn| {
                    turn.common.switch_session(turn.store, caller.client(), session, turn.now)
                })?;
                if !self.turn.store.in_transaction() {
                    self.release_at_once();
                }
                session
            }
        };
        mp::write_str(out, &session);
        Ok(())
    }

    /// The connection is gone: what it waited for is forgotten, and its session goes on without it, expires, or ends.
    pub(crate) fn disconnect(&mut self, connection: u64) {
        self.turn.common.actors.remove(&connection);
        self.turn.waiters().forget(connection);
        let Some(session) = self.turn.common.sessions.of(connection) else {
            self.turn.waiters().serve();
            return;
        };
        if !self.turn.common.is_running() {
            self.turn.common.sessions.bind(connection, None);
            return;
        }
        let left = self.turn.transact(|turn| turn.common.leave_session(turn.store, connection, turn.now));
        if let Err(error) = left {
            self.turn.common.log_failure("session end", &error);
            let sessions = &mut self.turn.common.sessions;
            sessions.bind(connection, None);
            if !sessions.is_live(&session) {
                sessions.close(session);
            }
        }
        self.release_at_once();
        self.turn.waiters().serve();
    }

    /// An operator releases everything that the session of a connection has taken before, in slices; the session goes on. The
    /// audit log has an entry. False: the connection has no session.
    pub(crate) fn release(
        &mut self,
        caller: &Caller,
        connection: u64,
        entry: &Steered<'_>,
    ) -> Result<bool, Error> {
        let Some(session) = self.turn.common.sessions.of(connection) else { return Ok(false) };
        if self.turn.store.in_transaction() {
            return Err(Error::InTransaction("release"));
        }
        self.turn.transact(|turn| turn.audit().note(caller, entry))?;
        self.turn.common.sessions.reliefs.push_back(Relief { session, before: self.turn.now, after: None });
        self.release_at_once();
        self.turn.waiters().serve();
        Ok(true)
    }

    /// Ends expired sessions without connections. Returns the number of sessions looked at.
    pub(crate) fn expire(&mut self, budget: usize) -> usize {
        let mut looked_at = 0;
        let now = self.turn.now;
        while looked_at < budget
            && self.turn.common.sessions.retry_at <= now
            && let Some(&(moment, session)) = self.turn.common.sessions.expiring.first()
            && moment <= now
        {
            looked_at += 1;
            let expired = self.turn.transact(|Turn { store, common, .. }| {
                if common.sessions.is_live(&session) {
                    return Ok(None);
                }
                let row = store.get(common.spaces.shared_sessions, 0, &string_key(&session))?;
                match row.and_then(SharedSession::read) {
                    Some(row) if row.expires > now => Ok(Some(row.expires)),
                    // Also without a row, or with one that says it is active: a program has written the row.
                    _ => common.end_session(store, session, Fate::Closes).map(|()| None),
                }
            });
            match expired {
                Ok(later) => {
                    let sessions = &mut self.turn.common.sessions;
                    sessions.expiring.remove(&(moment, session));
                    later.into_iter().for_each(|moment| sessions.expires(session, moment));
                }
                Err(error) => self.hold_off("session expiration", &error),
            }
        }
        looked_at
    }

    /// Nothing is released before the pause is over.
    fn hold_off(&mut self, what: &str, error: &Error) {
        self.turn.common.log_failure(what, error);
        self.turn.common.sessions.retry_at = self.turn.now + Turn::RETRY;
    }

    /// Releases tasks of closing sessions as far as the allowance goes; the next tick does the rest.
    pub(crate) fn release_at_once(&mut self) {
        if !self.turn.common.is_running() {
            return;
        }
        let allowance = self.turn.common.allowance;
        self.turn.common.allowance = allowance.saturating_sub(self.release_closing(allowance));
    }

    /// Releases tasks of closing sessions and tasks without an owner, at most `budget`. Returns how many were looked at.
    pub(crate) fn release_closing(&mut self, budget: usize) -> usize {
        let mut done = self.release_disowned(budget);
        while done < budget
            && self.turn.common.sessions.retry_at <= self.turn.now
            && let Some(&session) = self.turn.common.sessions.closing.front()
        {
            let batch = (budget - done).min(Turn::BATCH);
            match self.turn.transact(|turn| turn.sessions().release_tasks(&session, batch)) {
                Ok(count) => {
                    done += count;
                    if count < batch {
                        self.turn.common.sessions.closing.pop_front();
                    }
                }
                Err(error) => self.hold_off("release of a closed session's tasks", &error),
            }
        }
        done + self.relieve(budget.saturating_sub(done))
    }

    /// Goes on with the release of what sessions hold that go on. Returns how many owners were looked at.
    fn relieve(&mut self, budget: usize) -> usize {
        let mut done = 0;
        while done < budget
            && self.turn.common.sessions.retry_at <= self.turn.now
            && let Some(mut relief) = self.turn.common.sessions.reliefs.front().copied()
        {
            let batch = (budget - done).min(Turn::BATCH);
            match self.turn.transact(|turn| turn.sessions().relieve_some(&mut relief, batch)) {
                Ok((count, is_over)) => {
                    done += count;
                    let reliefs = &mut self.turn.common.sessions.reliefs;
                    match is_over {
                        true => drop(reliefs.pop_front()),
                        false => reliefs[0] = relief,
                    }
                }
                Err(error) => self.hold_off("release of what a session holds", &error),
            }
        }
        done
    }

    /// Runs a slice of `relief`. Returns the number of owners looked at, and whether the relief is over. Cached owners come
    /// first: an owner that is written back meanwhile is met by the walk over the rows.
    fn relieve_some(&mut self, relief: &mut Relief, limit: usize) -> Result<(usize, bool), Error> {
        let Relief { session, before, .. } = *relief;
        let line = |(_, id): TaskKey| {
            move |name: &str| format!("release task {id}({name}) of session {}, as was asked", text(&session))
        };
        let cached = self.turn.common.owners.cached_of(&session, before, limit);
        if !cached.is_empty() {
            cached.iter().try_for_each(|&task| self.release_owned(task, line(task)))?;
            return Ok((cached.len(), false));
        }
        let after = relief.after.map(|task| ShortKey::numbers(&[task.0, task.1]));
        let owners = rows_after(self.turn.store, self.turn.common.spaces.taken, 0, after.as_deref(), limit)?;
        for row in &owners {
            let Some(task) = taken_key(row) else { continue };
            relief.after = Some(task);
            if Owner::read(row).is_some_and(|owner| owner.session == session && owner.moment < before) {
                self.release_owned(task, line(task))?;
            }
        }
        Ok((owners.len(), owners.len() < limit))
    }

    /// Releases tasks whose owner's row has vanished, or names a session that does not exist. A program has changed
    /// `_queue_taken_2` by other ways than the queue's functions; a task that no session can finish must not stay taken.
    fn release_disowned(&mut self, budget: usize) -> usize {
        let mut done = 0;
        while done < budget && self.turn.common.sessions.retry_at <= self.turn.now {
            let disowned = &self.turn.common.sessions.disowned;
            let tasks: Vec<_> = disowned.iter().take((budget - done).min(Turn::BATCH)).copied().collect();
            if tasks.is_empty() {
                break;
            }
            match self
                .turn
                .transact(|turn| tasks.iter().try_for_each(|&task| turn.sessions().release_if_disowned(task)))
            {
                Ok(()) => {
                    done += tasks.len();
                    self.turn.common.sessions.disowned.drain(..tasks.len());
                }
                Err(error) => self.hold_off("release of tasks without an owner", &error),
            }
        }
        done
    }

    fn release_if_disowned(&mut self, task: TaskKey) -> Result<(), Error> {
        if let Some(session) = self.turn.common.owners.session_of(self.turn.store, task)?
            && (self.turn.common.is_known(self.turn.store, &session)?
                || self.turn.common.sessions.closing.contains(&session))
        {
            return Ok(());
        }
        let is_leased = self.turn.common.owners.leases.of(self.turn.store, task)?.is_some();
        if is_leased || self.turn.tubes.by_id(task.0).is_none() {
            return Ok(());
        }
        self.release_owned(task, |name| {
            format!(
                "the owner of task {}({name}) is gone from _queue_taken_2 or _lycosa_leases, release",
                task.1
            )
        })
    }

    fn release_tasks(&mut self, session: &SessionId, batch: usize) -> Result<usize, Error> {
        let mut count = 0;
        let space = self.turn.common.spaces.taken;
        let line = |(_, id): TaskKey| {
            move |name: &str| format!("Session {} closed, release task {id}({name})", text(session))
        };
        // Each look would search the deferred entries again, a millisecond for a thousand of them.
        self.turn.store.read(space, TAKEN_BY_SESSION, 0)?;
        while count < batch {
            let row =
                self.turn.store.first(space, TAKEN_BY_SESSION, IteratorType::Eq, &string_key(session))?;
            let Some(task) = row.and_then(taken_key) else { break };
            count += 1;
            self.release_owned(task, line(task))?;
        }
        for task in self.turn.common.owners.cached_of(session, u64::MAX, batch - count) {
            count += 1;
            self.release_owned(task, line(task))?;
        }
        Ok(count)
    }

    /// Releases a task that has lost its owner, and logs a line about it. The owner is forgotten even if the task is gone.
    fn release_owned(&mut self, task: TaskKey, line: impl FnOnce(&str) -> String) -> Result<(), Error> {
        let Common { owners, pending, .. } = &mut *self.turn.common;
        owners.forget(self.turn.store, pending, task)?;
        let Some(index) = self.turn.tubes.by_id(task.0) else { return Ok(()) };
        let mut tube = self.turn.tube(index)?;
        if tube.release_disowned(task.1)? {
            let TubeTurn { common, tube, now, .. } = tube;
            common.log_release(now, || line(&tube.name));
        }
        Ok(())
    }

    /// A portion of the start of sessions: those without a connection expire or end, and the rows show the living ones. Looks
    /// at up to `limit` rows, connections or calls; returns at how many it has, and where the next portion begins.
    pub(crate) fn start(
        &mut self,
        start: SessionsStart,
        limit: usize,
    ) -> Result<(usize, Option<SessionsStart>), Error> {
        match start {
            SessionsStart::Openers { after } => {
                let (count, last) = self.find_openers(after, limit)?;
                let next =
                    if count < limit { SessionsStart::Shown } else { SessionsStart::Openers { after: last } };
                Ok((count, Some(next)))
            }
            SessionsStart::Shown => {
                let count = self.turn.transact(|turn| turn.sessions().erase_connections(limit))?;
                if count == limit {
                    return Ok((count, Some(SessionsStart::Shown)));
                }
                self.turn.common.waiters.forget_rows();
                let bound = self.turn.common.sessions.iter().collect();
                Ok((count, Some(SessionsStart::Connections { bound })))
            }
            SessionsStart::Connections { mut bound } => {
                let portion = bound.split_off(bound.len().saturating_sub(limit));
                self.turn.transact(|turn| {
                    let Turn { store, common, now, .. } = turn;
                    store.read(common.spaces.taken, TAKEN_BY_SESSION, 0)?;
                    portion.iter().try_for_each(|bound| common.rebind(store, *bound, *now))
                })?;
                let next = if bound.is_empty() {
                    SessionsStart::Left { after: None }
                } else {
                    SessionsStart::Connections { bound }
                };
                Ok((portion.len(), Some(next)))
            }
            SessionsStart::Left { after } => {
                let (count, last) = self.end_left(after, limit)?;
                Ok((count, (count == limit).then_some(SessionsStart::Left { after: last })))
            }
        }
    }

    /// Up to `limit` rows of `_queue_shared_sessions` behind a session, and the last session.
    fn shared_after(
        &self,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<(Vec<Vec<u8>>, Option<SessionId>), Error> {
        let key = after.map(|session| string_key(&session));
        let shared =
            rows_after(self.turn.store, self.turn.common.spaces.shared_sessions, 0, key.as_deref(), limit)?;
        let last = shared.last().and_then(|row| session_field(row, 0)).or(after);
        Ok((shared, last))
    }

    fn find_openers(
        &mut self,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<(usize, Option<SessionId>), Error> {
        let (shared, last) = self.shared_after(after, limit)?;
        let sessions = &mut self.turn.common.sessions;
        if after.is_none() {
            sessions.expiring.clear();
            sessions.retry_at = 0;
            sessions.openers.retain(|session, _| sessions.connections.contains_key(session));
        }
        for SharedSession { id, opener, .. } in shared.iter().filter_map(|row| SharedSession::read(row)) {
            if let Some(opener) = opener {
                sessions.openers.entry(id).or_insert_with(|| opener.into());
            }
        }
        Ok((shared.len(), last))
    }

    /// Removes up to `limit` rows of `_queue_session_ids` and `_queue_consumers`. Returns how many.
    fn erase_connections(&mut self, limit: usize) -> Result<usize, Error> {
        // A truncation would leave a row in `_truncate` that no replica has.
        let SystemSpaces { session_ids, consumers, .. } = self.turn.common.spaces;
        let shown = rows_after(self.turn.store, session_ids, 0, None, limit)?;
        for row in &shown {
            let Some(connection) = id_of(row) else { continue };
            delete_row(self.turn.store, session_ids, &[connection])?;
        }
        let waiting = rows_after(self.turn.store, consumers, 0, None, limit - shown.len())?;
        for row in &waiting {
            // Its key has the form of that of `_queue_taken_2`: two numbers.
            let Some((connection, request)) = taken_key(row) else { continue };
            delete_row(self.turn.store, consumers, &[connection, request])?;
        }
        Ok(shown.len() + waiting.len())
    }

    /// Lets sessions that no connection has expire or end: those of up to `limit` rows behind a session.
    fn end_left(
        &mut self,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<(usize, Option<SessionId>), Error> {
        let (shared, last) = self.shared_after(after, limit)?;
        let ttr = self.turn.common.configuration.ttr.filter(|ttr| ttr.is_positive());
        self.turn.transact(|Turn { store, common, now, .. }| {
            for row in shared.iter().filter_map(|row| SharedSession::read(row)) {
                if common.sessions.is_live(&row.id) {
                    continue;
                }
                match ttr {
                    Some(ttr) if row.active => {
                        common.end_session(store, row.id, Fate::Expires(ttr.deadline(*now)))?;
                    }
                    Some(_) => common.sessions.expires(row.id, row.expires),
                    None => common.end_session(store, row.id, Fate::Closes)?,
                }
            }
            Ok(())
        })?;
        Ok((shared.len(), last))
    }
}

impl Common {
    fn is_known(&self, store: &Store, session: &SessionId) -> Result<bool, Error> {
        if self.sessions.is_live(session) {
            return Ok(true);
        }
        Ok(store.get(self.spaces.shared_sessions, 0, &string_key(session))?.is_some())
    }

    /// Refuses a session that another user has opened, unless the caller may read and change every user's sessions.
    fn check_opener(&self, store: &Store, caller: &Caller, session: &SessionId) -> Result<(), Error> {
        let Some(opener) = self.sessions.openers.get(session) else { return Ok(()) };
        if store.user(caller.effective).is_some_and(|user| *user.name == **opener) {
            return Ok(());
        }
        let everyone = Object::Space(self.spaces.shared_sessions);
        let may_act_for_all = store.check_access(caller.effective, everyone, Access::READ | Access::WRITE);
        may_act_for_all.map_err(|_| Error::ForeignSession(text(session)))
    }

    /// The session of a connection, made if there is none. Inside a transaction.
    pub(crate) fn ensure_session(&mut self, store: &mut Store, client: Client) -> Result<SessionId, Error> {
        if let Some(session) = self.sessions.of(client.connection) {
            return Ok(session);
        }
        let session = (self.new_session_id)();
        self.open(store, client.user, session);
        self.bind(store, client.connection, session)?;
        Ok(session)
    }

    /// Remembers the user that has opened a session, unless one is known.
    fn open(&mut self, store: &Store, user: UserId, session: SessionId) {
        if let Some(user) = store.user(user)
            && let Entry::Vacant(entry) = self.sessions.openers.entry(session)
        {
            entry.insert(user.name.as_str().into());
            self.pending.undo.push(Undo::Opened { session });
        }
    }

    /// The row of a session as this mode keeps it: openers outlive the process only where sessions do.
    fn shared_row(&self, id: SessionId, expires: u64, active: bool) -> Vec<u8> {
        let opener = self.sessions.openers.get(&id).filter(|_| self.configuration.in_replicaset);
        SharedSession { id, expires, active, opener: opener.map(|name| &**name) }.encode()
    }

    /// Writes the rows of all sessions with a known opener anew: the mode has changed.
    pub(crate) fn rewrite_sessions(&mut self, store: &mut Store) -> Result<(), Error> {
        let space = self.spaces.shared_sessions;
        for row in rows(store, space, 0, IteratorType::All, &[0x90])? {
            let Some(shared) = SharedSession::read(&row) else { continue };
            let tuple = self.shared_row(shared.id, shared.expires, shared.active);
            if tuple != row {
                store.execute(&Statement::Replace { space, tuple: &tuple })?;
            }
        }
        Ok(())
    }

    fn switch_session(
        &mut self,
        store: &mut Store,
        client: Client,
        session: SessionId,
        now: u64,
    ) -> Result<(), Error> {
        if self.sessions.of(client.connection) != Some(session) {
            self.leave_session(store, client.connection, now)?;
        }
        self.open(store, client.user, session);
        self.bind(store, client.connection, session)
    }

    /// Writes the rows of a connection and its session anew. If the session owns no task and another master has ended it, or it has
    /// expired there, the connection leaves it and gets a new one when it needs one. A session that another master has let go
    /// and that has not expired is joined again: a client that has identified with it sees no change of the master.
    fn rebind(
        &mut self,
        store: &mut Store,
        (connection, session): (u64, SessionId),
        now: u64,
    ) -> Result<(), Error> {
        if self.sessions.of(connection) != Some(session) {
            return Ok(());
        }
        let key = string_key(&session);
        let row = store.get(self.spaces.shared_sessions, 0, &key)?;
        let lives = row.and_then(SharedSession::read).is_some_and(|row| row.active || row.expires > now);
        let is_idle = !lives
            && store.first(self.spaces.taken, TAKEN_BY_SESSION, IteratorType::Eq, &key)?.is_none()
            && self.owners.cached_of(&session, u64::MAX, 1).is_empty();
        if !is_idle {
            return self.bind(store, connection, session);
        }
        let previous = self.sessions.bind(connection, None);
        self.pending.undo.push(Undo::Session { connection, previous });
        Ok(())
    }

    /// Writes the rows of an active session and of a connection that has it.
    fn bind(&mut self, store: &mut Store, connection: u64, session: SessionId) -> Result<(), Error> {
        let mut row = Vec::with_capacity(32);
        mp::write_array(&mut row, 2);
        mp::write_uint(&mut row, connection);
        mp::write_str(&mut row, &session);
        store.execute(&Statement::Replace { space: self.spaces.session_ids, tuple: &row })?;
        let row = self.shared_row(session, 0, true);
        store.execute(&Statement::Replace { space: self.spaces.shared_sessions, tuple: &row })?;
        let previous = self.sessions.bind(connection, Some(session));
        self.pending.undo.push(Undo::Session { connection, previous });
        Ok(())
    }

    /// Takes a connection's session from it; decides what becomes of the session if that was its last one.
    fn leave_session(&mut self, store: &mut Store, connection: u64, now: u64) -> Result<(), Error> {
        let Some(session) = self.sessions.bind(connection, None) else { return Ok(()) };
        self.pending.undo.push(Undo::Session { connection, previous: Some(session) });
        delete_row(store, self.spaces.session_ids, &[connection])?;
        if self.sessions.is_live(&session) {
            return Ok(());
        }
        let fate = match self.configuration.ttr.filter(|ttr| ttr.is_positive()) {
            Some(ttr) => Fate::Expires(ttr.deadline(now)),
            None => Fate::Closes,
        };
        self.end_session(store, session, fate)
    }

    fn end_session(&mut self, store: &mut Store, session: SessionId, fate: Fate) -> Result<(), Error> {
        let space = self.spaces.shared_sessions;
        match fate {
            Fate::Expires(expires) => {
                let row = self.shared_row(session, expires, false);
                store.execute(&Statement::Replace { space, tuple: &row })?;
                self.sessions.expires(session, expires);
            }
            Fate::Closes => {
                let key = string_key(&session);
                store.execute(&Statement::Delete { space, index: 0, key: &key })?;
                self.pending.closing.push(session);
            }
        }
        Ok(())
    }
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
