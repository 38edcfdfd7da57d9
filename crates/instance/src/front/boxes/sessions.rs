//! `queue.sessions`: who is connected to the queue, and who holds which tasks.

use std::collections::HashMap;

use lycosa_iproto::error::ErrorObject;
use lycosa_queue::SessionView;
use lycosa_tuple::value::Value;

use crate::front::connection::Connection;
use crate::shard::wire_error;
use crate::{Caller, Instance};

impl Instance {
    /// `queue.sessions()`: a map. `sessions` has the queue sessions that the caller may see, each a map: `user`,
    /// `connections` (each with `id`, and `user`, `address`, `since` if it is a client's), `taken` (tasks by tube),
    /// `taken_at` of the task that is held longest, `expires`. `complete` says whether all taken tasks were counted.
    ///
    /// No ids of sessions: they are secrets.
    ///
    /// # Errors
    /// A space of the queue is gone.
    pub(super) fn queue_sessions(&self, caller: &Caller) -> Result<Value, ErrorObject> {
        let queue_caller = caller.in_queue(caller.trusted);
        let (views, is_all) = self
            .shard
            .data
            .queue()
            .sessions(self.shard.data.store(), &queue_caller)
            .map_err(|error| wire_error::of_queue(&error))?;
        let by_id: HashMap<u64, &Connection> =
            self.connections.iter().map(|connection| (connection.id, connection)).collect();
        let sessions: Vec<Value> = views.iter().map(|view| self.session(view, &by_id)).collect();
        Ok(Value::map([("sessions", Value::from(sessions)), ("complete", Value::from(is_all))]))
    }

    fn session(&self, view: &SessionView, by_id: &HashMap<u64, &Connection>) -> Value {
        let connections = view.connections.iter().map(|&id| self.connection(id, by_id.get(&id).copied()));
        let connections: Vec<Value> = connections.collect();
        let taken = view.taken.iter().map(|(tube, count)| (Value::from(tube.as_str()), Value::from(*count)));
        let mut members = vec![
            (Value::from("connections"), Value::from(connections)),
            (Value::from("taken"), Value::Map(taken.collect())),
        ];
        let mut add = |name: &str, value: Option<Value>| {
            members.extend(value.map(|value| (Value::from(name), value)));
        };
        add("user", view.user.as_deref().map(Value::from));
        add("taken_at", view.oldest.map(moment));
        add("expires", view.expires.map(moment));
        Value::Map(members)
    }

    /// A connection of a session; one of a program has a number only.
    fn connection(&self, id: u64, connection: Option<&Connection>) -> Value {
        let mut members = vec![(Value::from("id"), Value::from(id))];
        if let Some(connection) = connection {
            members.push((Value::from("user"), self.user_name(connection.user).into()));
            members.push((Value::from("address"), connection.origin.peer.as_str().into()));
            members.push((Value::from("since"), moment(connection.since)));
        }
        Value::Map(members)
    }
}

/// Microseconds since the epoch as seconds.
fn moment(micros: u64) -> Value {
    Value::Double(micros as f64 / 1e6)
}
