//! Sessions of connections: `queue.identify` gives one, and a session that loses its last connection expires or ends.

use std::collections::hash_map::Entry;

use lycosa_store::{Access, IteratorType, Object, Statement, Store, UserId};
use lycosa_tuple::mp;

use super::{Fate, SessionId, SharedSession, text};
use crate::arguments::string;
use crate::command::QueueCall;
use crate::error::{Error, Result};
use crate::system::{TAKEN_BY_SESSION, delete_row, rows};
use crate::task::string_key;
use crate::transaction::Undo;
use crate::turn::{Common, SessionsTurn, Turn};
use crate::{Caller, Client};

impl SessionsTurn<'_> {
    /// `queue.identify([uuid])`
    pub(crate) fn identify(&mut self, call: QueueCall<'_>, out: &mut Vec<u8>) -> Result<()> {
        let QueueCall { caller, arguments } = call;
        let session = |value| string(value).and_then(|bytes| SessionId::try_from(bytes).ok());
        let wanted =
            arguments.present(0).map(|value| session(value).ok_or(Error::InvalidUuid)).transpose()?;
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
}

impl Common {
    pub(super) fn is_known(&self, store: &Store, session: &SessionId) -> Result<bool> {
        if self.sessions.is_live(session) {
            return Ok(true);
        }
        Ok(store.get(self.spaces.shared_sessions, 0, &string_key(session))?.is_some())
    }

    /// Refuses a session that another user has opened, unless the caller may read and change every user's sessions.
    fn check_opener(&self, store: &Store, caller: &Caller, session: &SessionId) -> Result<()> {
        let Some(opener) = self.sessions.openers.get(session) else { return Ok(()) };
        if store.user(caller.effective).is_some_and(|user| *user.name == **opener) {
            return Ok(());
        }
        let everyone = Object::Space(self.spaces.shared_sessions);
        let may_act_for_all = store.check_access(caller.effective, everyone, Access::READ | Access::WRITE);
        may_act_for_all.map_err(|_| Error::ForeignSession(text(session)))
    }

    /// The session of a connection, which is made if the connection has none. Inside a transaction.
    pub(crate) fn ensure_session(&mut self, store: &mut Store, client: Client) -> Result<SessionId> {
        if let Some(session) = self.sessions.of(client.connection) {
            return Ok(session);
        }
        let session = (self.new_session_id.0)();
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
    pub(crate) fn rewrite_sessions(&mut self, store: &mut Store) -> Result<()> {
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
    ) -> Result<()> {
        if self.sessions.of(client.connection) != Some(session) {
            self.leave_session(store, client.connection, now)?;
        }
        self.open(store, client.user, session);
        self.bind(store, client.connection, session)
    }

    /// Writes the rows of a connection and its session anew. If the session owns no task and another master has ended it, or it has
    /// expired there, the connection leaves it and gets a new one when it needs one. A session that another master has let go
    /// and that has not expired is joined again: a client that has identified with it sees no change of the master.
    pub(super) fn rebind(
        &mut self,
        store: &mut Store,
        (connection, session): (u64, SessionId),
        now: u64,
    ) -> Result<()> {
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
    fn bind(&mut self, store: &mut Store, connection: u64, session: SessionId) -> Result<()> {
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
    fn leave_session(&mut self, store: &mut Store, connection: u64, now: u64) -> Result<()> {
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

    pub(super) fn end_session(&mut self, store: &mut Store, session: SessionId, fate: Fate) -> Result<()> {
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
