//! `queue.sessions`: sessions of the queue, their connections and tasks. `lycosa.session.release` and
//! `lycosa.session.disconnect`: what an operator does about it.

use std::collections::HashMap;

use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_queue::{Caller, SessionView};
use lycosa_store::Access;
use lycosa_tuple::value::Value;

use super::arguments::Arguments;
use super::info::seconds;

use crate::front::connection::Connection;
use crate::shard::wire_error::{OnWire, illegal};
use crate::{Instance, Result};

/// Bytes of a reason that the audit log keeps.
pub(super) const MAX_REASON: usize = 1024;

impl Instance {
    /// `queue.sessions()`: a map. `sessions` has the queue sessions that the caller may see, each a map: `user`,
    /// `connections` (each with `id`, and `user`, `address`, `since` if it is a client's), `taken` (tasks by tube),
    /// `taken_at` of the task that is held longest, `expires`, and `lease_ends` where leases of the user hold the tasks: when
    /// the first one ends. `complete` says whether all taken tasks were counted.
    ///
    /// No ids of sessions: they are secrets.
    ///
    /// # Errors
    /// A space of the queue is gone.
    pub(super) fn queue_sessions(&self, caller: &Caller) -> Result<Value> {
        let (views, is_all) = self.shard.queue().sessions(self.shard.store(), caller).on_wire()?;
        let by_id: HashMap<u64, &Connection> =
            self.front.connections.iter().map(|connection| (connection.id, connection)).collect();
        let sessions = Value::array(views.iter().map(|view| self.session(view, &by_id)));
        Ok(Value::map([("sessions", sessions), ("complete", is_all.into())]))
    }

    /// `lycosa.session.release(connection[, {reason}])`: releases all tasks that the session of the connection has taken
    /// before. The session goes on, and so do its waiting calls.
    pub(super) fn release_session(&mut self, caller: &Caller, args: &[u8]) -> Result<Value> {
        self.shard.check_universe(caller.effective, Access::WRITE)?;
        let (id, reason) = subject("lycosa.session.release(connection[, {reason = text}])", args)?;
        let operation = format!("release session of {}", self.describe(id));
        let steered = (&*operation, reason.as_bytes());
        let is_known = self.shard.data().release_session(caller, id, steered)?;
        if is_known { Ok(true.into()) } else { Err(no_such_session(id)) }
    }

    /// `lycosa.session.disconnect(connection[, {reason}])`: closes a client's connection at once. Replies that it has not read
    /// are dropped; its tasks are released as those of any connection that has closed.
    pub(super) fn dismiss_connection(&mut self, caller: &Caller, args: &[u8]) -> Result<Value> {
        self.shard.check_universe(caller.effective, Access::WRITE)?;
        let (id, reason) = subject("lycosa.session.disconnect(connection[, {reason = text}])", args)?;
        if id == caller.session {
            return Err(illegal(&format!("connection {id} is that of this call: end the client")));
        }
        let operation = format!("disconnect {}", self.describe(id));
        if !self.front.dismiss(id) {
            return Err(no_such_session(id));
        }
        self.shard.data().note_steered(caller, (&operation, reason.as_bytes()));
        Ok(Value::from(true))
    }

    /// A connection in words: its number, user and address.
    fn describe(&self, id: u64) -> String {
        let known = self.front.connections.iter().find(|connection| connection.id == id);
        let Some(Connection { user, origin, .. }) = known else { return format!("connection {id}") };
        format!("connection {id}, {} at {}", self.user_name(*user), origin.peer)
    }

    fn session(&self, view: &SessionView, by_id: &HashMap<u64, &Connection>) -> Value {
        let connections = view.connections.iter().map(|&id| self.connection(id, by_id.get(&id).copied()));
        let taken = view.taken.iter().map(|(tube, count)| (tube.as_str(), *count));
        let mut members = vec![("connections", Value::array(connections)), ("taken", Value::map(taken))];
        members.extend(view.user.as_deref().map(|user| ("user", user.into())));
        let times = [("taken_at", view.oldest), ("expires", view.expires), ("lease_ends", view.lease_ends)];
        members.extend(times.into_iter().filter_map(|(name, time)| Some((name, seconds(time?)))));
        Value::map(members)
    }

    /// A connection of a session; one of a program has a number only.
    fn connection(&self, id: u64, connection: Option<&Connection>) -> Value {
        let mut members = vec![("id", Value::from(id))];
        if let Some(connection) = connection {
            members.push(("user", self.user_name(connection.user).into()));
            members.push(("address", connection.origin.peer.as_str().into()));
            members.push(("since", seconds(connection.since)));
        }
        Value::map(members)
    }
}

/// The number of a connection, and the reason.
fn subject(usage: &'static str, args: &[u8]) -> Result<(u64, String)> {
    let arguments = Arguments::decode(usage, args)?;
    let id = arguments.get(0).and_then(Value::as_u64).ok_or_else(|| arguments.usage())?;
    let reason = arguments.options(1, &["reason"])?.text("reason")?.unwrap_or_default();
    let end = reason.floor_char_boundary(MAX_REASON);
    Ok((id, reason[..end].to_owned()))
}

fn no_such_session(id: u64) -> ErrorObject {
    let message = format!(
        "connection {id} does not exist, or has no session: queue.sessions() lists the connections with a session"
    );
    ErrorObject::client(ErrorCode::IllegalParams, message).with_name("NO_SUCH_SESSION")
}
