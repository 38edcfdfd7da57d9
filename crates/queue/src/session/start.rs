//! The start of sessions, in portions: sessions without a connection expire or end, and the rows show the living ones.

use super::{Fate, SessionId, SessionsStart, SharedSession, session_field};
use crate::error::Result;
use crate::system::{SystemSpaces, TAKEN_BY_SESSION, delete_row, rows_after};
use crate::task::{id_of, string_key, taken_key};
use crate::turn::{SessionsTurn, Turn};

impl SessionsTurn<'_> {
    /// A portion of the start of sessions: a session without a connection expires or ends, and the rows show the living ones. Looks
    /// at up to `limit` rows, connections or calls; returns at how many it has, and where the next portion begins.
    pub(crate) fn start(
        &mut self,
        start: SessionsStart,
        limit: usize,
    ) -> Result<(usize, Option<SessionsStart>)> {
        match start {
            SessionsStart::Openers(after) => {
                let (count, last) = self.find_openers(after, limit)?;
                let next = if count < limit { SessionsStart::Shown } else { SessionsStart::Openers(last) };
                Ok((count, Some(next)))
            }
            SessionsStart::Shown => {
                let count = self.turn.transact(|turn| turn.sessions().erase_connections(limit))?;
                if count == limit {
                    return Ok((count, Some(SessionsStart::Shown)));
                }
                self.turn.common.waiters.forget_rows();
                let bound = self.turn.common.sessions.iter().collect();
                Ok((count, Some(SessionsStart::Connections(bound))))
            }
            SessionsStart::Connections(mut bound) => {
                let portion = bound.split_off(bound.len().saturating_sub(limit));
                self.turn.transact(|turn| {
                    let Turn { store, common, now, .. } = turn;
                    store.read(common.spaces.taken, TAKEN_BY_SESSION, 0)?;
                    portion.iter().try_for_each(|bound| common.rebind(store, *bound, *now))
                })?;
                let is_last = bound.is_empty();
                let next =
                    if is_last { SessionsStart::Left(None) } else { SessionsStart::Connections(bound) };
                Ok((portion.len(), Some(next)))
            }
            SessionsStart::Left(after) => {
                let (count, last) = self.end_left(after, limit)?;
                Ok((count, (count == limit).then_some(SessionsStart::Left(last))))
            }
        }
    }

    /// Up to `limit` rows of `_queue_shared_sessions` behind a session, and the last session.
    fn shared_after(
        &self,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<(Vec<Vec<u8>>, Option<SessionId>)> {
        let key = after.map(|session| string_key(&session));
        let shared =
            rows_after(self.turn.store, self.turn.common.spaces.shared_sessions, 0, key.as_deref(), limit)?;
        let last = shared.last().and_then(|row| session_field(row, 0)).or(after);
        Ok((shared, last))
    }

    fn find_openers(&mut self, after: Option<SessionId>, limit: usize) -> Result<(usize, Option<SessionId>)> {
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
    fn erase_connections(&mut self, limit: usize) -> Result<usize> {
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

    /// Lets sessions that no connection has expire or end. Looks at the sessions of up to `limit` rows behind a session.
    fn end_left(&mut self, after: Option<SessionId>, limit: usize) -> Result<(usize, Option<SessionId>)> {
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
