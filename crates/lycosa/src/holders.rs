//! The sessions of the queue and the tasks that each holds: `lycosa session list`, and the holders of tasks that `list` and
//! `peek` show.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::time::Duration;

use lycosa_client::Value;
use serde_json::json;

use crate::arguments::{AdminArguments, ServerArguments, SessionCommand};
use crate::listing::{distance, member, natural, one_line};
use crate::outcome::Outcome;
use crate::output;
use crate::session::Session;
use crate::values::{array_of, cell, inside, pairs, text_of, time};

/// Names of the table's columns.
const COLUMNS: [&str; 5] = ["user", "connections", "since", "taken tasks", "longest held"];
/// Characters of addresses, and of tubes, that the table shows.
const SHOWN: usize = 80;

/// Addresses of the connections that hold tasks, asked for when the first is needed.
pub(crate) struct Holders<'a> {
    session: &'a Session,
    addresses: OnceCell<HashMap<u64, String>>,
}

impl<'a> Holders<'a> {
    pub(crate) fn new(session: &'a Session) -> Self {
        Self { session, addresses: OnceCell::new() }
    }

    /// The address of the connection that holds a task in extended form. `None` if the task has no holder, if the connection has
    /// ended, or if the server does not tell.
    pub(crate) fn address(&self, task: &Value) -> Option<&str> {
        let connection = member(task, "connection")?.as_u64()?;
        let addresses = self.addresses.get_or_init(|| {
            let answer = self.session.call("queue.sessions", Vec::new()).unwrap_or_default();
            let sessions = answer.first().map(|answer| array_of(answer, "sessions")).unwrap_or_default();
            let connections = sessions.iter().flat_map(|session| array_of(session, "connections"));
            connections
                .filter_map(|one| Some((one.get("id")?.as_u64()?, text_of(one, "address").to_owned())))
                .filter(|(_, address)| !address.is_empty())
                .collect()
        });
        addresses.get(&connection).map(String::as_str)
    }

    /// User and address of the holder of a task; empty if it has none.
    pub(crate) fn of(&self, task: &Value) -> String {
        let user = member(task, "user").and_then(Value::as_str).unwrap_or("?");
        if member(task, "lease_ends").is_some() {
            return format!("{user}, a lease");
        }
        let Some(connection) = member(task, "connection").and_then(Value::as_u64) else {
            return String::new();
        };
        match self.address(task) {
            Some(address) => format!("{user}@{address}"),
            None => format!("{user}, connection {connection}"),
        }
    }
}

/// `lycosa session`
pub(crate) fn run(command: &SessionCommand) -> anyhow::Result<Outcome> {
    match command {
        SessionCommand::List { tube, older_than, server } => list(tube.as_deref(), *older_than, server),
        SessionCommand::Release { connection, reason, admin } => {
            steer("release", "released", *connection, reason.as_deref(), admin)
        }
        SessionCommand::Disconnect { connection, reason, admin } => {
            steer("disconnect", "disconnected", *connection, reason.as_deref(), admin)
        }
    }
}

/// Releases what the session of a connection holds, or closes the connection.
fn steer(
    verb: &str,
    done: &str,
    connection: u64,
    reason: Option<&str>,
    admin: &AdminArguments,
) -> anyhow::Result<Outcome> {
    let session = Session::open_admin(&admin.data_dir)?;
    let options = Value::map(reason.map(|reason| ("reason", reason)));
    session.call(&format!("lycosa.session.{verb}"), vec![connection.into(), options])?;
    let object = json!({ "connection": connection, "done": done });
    output::said(admin.json, object, format_args!("{done} connection {connection}"))
}

fn list(tube: Option<&str>, older: Option<Duration>, server: &ServerArguments) -> anyhow::Result<Outcome> {
    let session = Session::open_server(server)?;
    let answer = session.ask("queue.sessions", Vec::new(), "the server returned no sessions")?;
    let is_shown = |session: &&Value| {
        let holds = |tube: &str| inside(session, &["taken", tube]).is_some();
        let held_for = session.get("taken_at").and_then(distance);
        tube.is_none_or(holds) && older.is_none_or(|limit| held_for.is_some_and(|held| held >= limit))
    };
    let sessions: Vec<&Value> = array_of(&answer, "sessions").iter().filter(is_shown).collect();
    if server.client.json {
        output::objects(sessions)?;
    } else if sessions.is_empty() {
        if let Some(tube) = tube {
            // A tube that does not exist is an error.
            session.statistics(Some(tube))?;
        }
        let does = tube.map_or("has called the queue or holds a task".to_owned(), |tube| {
            format!("holds a task of tube \"{tube}\"")
        });
        eprintln!("lycosa: no such session: no connection that this user may see {does}");
    } else {
        output::table(&COLUMNS, sessions.iter().map(|session| row(session)))?;
    }
    if answer.get("complete") == Some(&Value::Bool(false)) {
        eprintln!(
            "lycosa: more tasks are taken than the server counts in one look; the numbers are lower bounds"
        );
    }
    Ok(Outcome::Done)
}

fn row(session: &Value) -> Vec<String> {
    let connections = array_of(session, "connections");
    let addresses: Vec<String> = connections
        .iter()
        .map(|one| match (one.get("id").and_then(Value::as_u64), text_of(one, "address")) {
            (Some(id), "") => id.to_string(),
            (Some(id), address) => format!("{id} at {address}"),
            (None, address) => address.to_owned(),
        })
        .collect();
    let first = connections.iter().filter_map(|one| distance(one.get("since")?)).max();
    let span = |name: &str| session.get(name).and_then(distance);
    let state = match (span("expires"), span("lease_ends")) {
        (Some(left), _) => format!("none; expires in {}", time(left)),
        (None, Some(left)) => format!("leases; the first ends in {}", time(left)),
        (None, None) => one_line(&addresses.join(", "), SHOWN),
    };
    let tubes = pairs(session.get("taken")).iter();
    let mut tubes: Vec<(&str, u64)> =
        tubes.filter_map(|(name, count)| Some((name.as_str()?, count.as_u64()?))).collect();
    tubes.sort_by_key(|(name, _)| natural(name));
    let tubes: Vec<String> = tubes.iter().map(|(name, count)| format!("{count} of {name}")).collect();
    vec![
        session.get("user").and_then(Value::as_str).unwrap_or("?").to_owned(),
        state,
        cell(first, time),
        if tubes.is_empty() { "-".to_owned() } else { one_line(&tubes.join(", "), SHOWN) },
        cell(span("taken_at"), time),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_a_row() {
        let session = Value::map([
            ("user", Value::from("ann")),
            (
                "connections",
                Value::array([Value::map([
                    ("id", Value::from(17_u64)),
                    ("address", Value::from("10.0.0.7:4711")),
                ])]),
            ),
            ("taken", Value::map([("mail10", Value::from(2_u64)), ("mail9", Value::from(1_u64))])),
        ]);
        assert_eq!(row(&session), ["ann", "17 at 10.0.0.7:4711", "-", "1 of mail9, 2 of mail10", "-"]);
    }
}
