//! Clients of a replica set, and what they know of their tasks.

use std::collections::BTreeMap;

use lycosa_instance::ConnectionSlot;
use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::frame::{self, Split};
use lycosa_iproto::greeting::GREETING_SIZE;
use lycosa_iproto::reply::{self, Content};
use lycosa_iproto::request::{self, Body};
use lycosa_tuple::value::Value;

use crate::violation::{Checked, Violation, hold};

/// Name and type of each tube.
pub(super) const TUBES: [(&str, &str); 4] =
    [("plain", "fifo"), ("timed", "fifottl"), ("keyed", "utube"), ("both", "utubettl")];

/// A task that a client has taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    tube: usize,
    id: u64,
    payload: u64,
}

/// What a client waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    Identify,
    Put { tube: usize, payload: u64 },
    Take { tube: usize },
    Ack(Held),
    Release(Held),
}

/// A connection of a client.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) node: usize,
    pub(super) slot: ConnectionSlot,
    pub(super) is_identified: bool,
    is_greeted: bool,
    received: Vec<u8>,
}

/// A client with at most one request under way.
#[derive(Debug, Default)]
pub(super) struct Client {
    number: usize,
    pub(super) connection: Option<Connection>,
    pub(super) pending: Option<Ask>,
    session: Option<Vec<u8>>,
    pub(super) held: Vec<Held>,
    sync: u64,
}

/// How far a task is, as its clients know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// The `put` was not answered.
    Asked,
    /// It exists.
    Stored,
    /// An `ack` was sent and not answered.
    Finishing,
    /// The `ack` was answered.
    Finished,
}

/// A task.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) state: State,
    pub(super) holder: Option<usize>,
}

/// All tasks that were ever put, by their payload.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) entries: BTreeMap<u64, Entry>,
    /// Sessions outlive everything that happens in this world.
    pub(super) sessions_stay: bool,
    pub(super) finished: u64,
    pub(super) replies: u64,
}

impl Connection {
    pub(super) fn new(node: usize, slot: ConnectionSlot) -> Self {
        Self { node, slot, is_identified: false, is_greeted: false, received: Vec::new() }
    }
}

/// What a reply says.
enum Said {
    Values(Vec<Value>),
    Refused(ErrorObject),
}

impl Client {
    pub(super) fn new(number: usize) -> Self {
        Self { number, ..Self::default() }
    }

    /// The request `ask`, as bytes.
    pub(super) fn send(&mut self, ask: Ask, ledger: &mut Ledger) -> Vec<u8> {
        self.sync += 1;
        let method = |tube: usize, method: &str| format!("queue.tube.{}:{method}", TUBES[tube].0);
        let (name, arguments) = match ask {
            Ask::Identify => ("queue.identify".to_owned(), self.session.iter().map(Value::str).collect()),
            Ask::Put { tube, payload } => {
                ledger.entries.insert(payload, Entry { state: State::Asked, holder: None });
                let options = Value::map([("utube", Value::from(payload % 3))]);
                (method(tube, "put"), vec![Value::from(payload), options])
            }
            Ask::Take { tube } => (method(tube, "take"), vec![Value::from(0_u64)]),
            Ask::Ack(held) => {
                self.held.retain(|other| *other != held);
                ledger.entries.insert(held.payload, Entry { state: State::Finishing, holder: None });
                (method(held.tube, "ack"), vec![Value::from(held.id)])
            }
            Ask::Release(held) => {
                self.held.retain(|other| *other != held);
                ledger.entries.insert(held.payload, Entry { state: State::Stored, holder: None });
                (method(held.tube, "release"), vec![Value::from(held.id)])
            }
        };
        self.pending = Some(ask);
        let mut frame = Vec::new();
        let args = Value::Array(arguments).encode();
        request::encode(&mut frame, self.sync, &Body::Call { name: name.as_bytes(), args: &args });
        frame
    }

    /// The connection is gone. Requests under way may have been done or not.
    pub(super) fn lose_connection(&mut self) {
        self.connection = None;
        self.pending = None;
    }

    /// Bytes of a server, which is the master or is not.
    pub(super) fn receive(&mut self, bytes: &[u8], is_master: bool, ledger: &mut Ledger) -> Checked {
        let Some(connection) = &mut self.connection else { return Ok(()) };
        connection.received.extend_from_slice(bytes);
        if !connection.is_greeted {
            if connection.received.len() < GREETING_SIZE {
                return Ok(());
            }
            connection.received.drain(..GREETING_SIZE);
            connection.is_greeted = true;
        }
        loop {
            let Some(connection) = &mut self.connection else { return Ok(()) };
            let Ok(Split::Frame { content, consumed }) =
                frame::split(&connection.received, frame::DEFAULT_LIMIT)
            else {
                return Ok(());
            };
            let reply = reply::decode(content).map_err(|error| Violation(error.to_string()))?;
            let said = match reply.content {
                Content::Ok { data, .. } => match Value::decode(data) {
                    Ok(Value::Array(values)) => Said::Values(values),
                    _ => return Err(Violation("a reply without values".to_owned())),
                },
                Content::Error(error) => Said::Refused(error),
                Content::Push { .. } => return Err(Violation("a push that nobody asked for".to_owned())),
            };
            connection.received.drain(..consumed);
            ledger.replies += 1;
            let ask = self.pending.take();
            let ask = ask.ok_or_else(|| Violation("a reply that nobody waits for".to_owned()))?;
            match said {
                Said::Values(values) => self.answered(ask, &values, ledger)?,
                Said::Refused(error) => self.refused(ask, &error, is_master, ledger)?,
            }
        }
    }

    fn answered(&mut self, ask: Ask, values: &[Value], ledger: &mut Ledger) -> Checked {
        let number = self.number;
        let task = values.first().and_then(Value::as_array);
        let nothing = task.is_none();
        match ask {
            Ask::Identify => {
                let session = values.first().and_then(|value| match value {
                    Value::Str(bytes) => Some(bytes.clone()),
                    _ => None,
                });
                let session = session.ok_or_else(|| Violation(format!("a session is {values:?}")))?;
                self.session = Some(session);
                if let Some(connection) = &mut self.connection {
                    connection.is_identified = true;
                }
            }
            // The queue does not run: nothing has happened.
            Ask::Put { payload, .. } if nothing => _ = ledger.entries.remove(&payload),
            Ask::Put { payload, .. } => ledger.put(payload),
            Ask::Take { .. } if nothing => {}
            Ask::Take { tube } => {
                let task = task.unwrap_or_default();
                let field = |place: usize| task.get(place).and_then(Value::as_u64);
                let (Some(id), Some(payload)) = (field(0), field(2)) else {
                    return Err(Violation(format!("a task is {task:?}")));
                };
                ledger.taken(payload, number)?;
                self.held.push(Held { tube, id, payload });
            }
            Ask::Ack(held) | Ask::Release(held) if nothing => self.still_holds(held, ledger),
            Ask::Ack(held) => ledger.finished(held.payload)?,
            Ask::Release(_) => {}
        }
        Ok(())
    }

    fn refused(&mut self, ask: Ask, error: &ErrorObject, is_master: bool, ledger: &mut Ledger) -> Checked {
        let is = |code: ErrorCode| error.code == u32::from(code);
        let has_not_happened = is(ErrorCode::Readonly) || is(ErrorCode::SyncQuorumTimeout);
        let is_unknown = is(ErrorCode::WalIo);
        match ask {
            Ask::Put { payload, .. } if has_not_happened => _ = ledger.entries.remove(&payload),
            Ask::Ack(held) | Ask::Release(held) if has_not_happened => self.still_holds(held, ledger),
            _ if has_not_happened || is_unknown => {}
            Ask::Ack(held) | Ask::Release(held) if error.message.contains("Task was not taken") => {
                hold!(
                    !ledger.sessions_stay,
                    "client {} held task {} and is told that it was not taken",
                    self.number,
                    held.payload
                );
                if let Some(entry) = ledger.entries.get_mut(&held.payload) {
                    *entry = Entry { state: State::Stored, holder: None };
                }
            }
            // A replica may not have received the session yet.
            Ask::Identify if error.message.contains("is unknown") && !is_master => {}
            Ask::Identify if error.message.contains("is unknown") => {
                hold!(!ledger.sessions_stay, "the session of client {} is unknown", self.number);
                self.session = None;
                for held in std::mem::take(&mut self.held) {
                    if let Some(entry) = ledger.entries.get_mut(&held.payload) {
                        entry.holder = None;
                    }
                }
            }
            _ => return Err(Violation(format!("{ask:?} is refused: {}", error.message))),
        }
        Ok(())
    }

    fn still_holds(&mut self, held: Held, ledger: &mut Ledger) {
        let holder = Some(self.number);
        ledger.entries.insert(held.payload, Entry { state: State::Stored, holder });
        self.held.push(held);
    }
}

impl Ledger {
    fn put(&mut self, payload: u64) {
        if let Some(entry) = self.entries.get_mut(&payload)
            && entry.state == State::Asked
        {
            entry.state = State::Stored;
        }
    }

    fn taken(&mut self, payload: u64, by: usize) -> Checked {
        let known = self.entries.get(&payload).copied();
        let entry = known.ok_or_else(|| Violation(format!("task {payload} was refused and is there")))?;
        hold!(entry.state != State::Finished, "task {payload} was acknowledged and is taken again");
        if let Some(holder) = entry.holder.filter(|_| self.sessions_stay) {
            return Err(Violation(format!("task {payload} is held by client {holder} and given to {by}")));
        }
        self.entries.insert(payload, Entry { state: State::Stored, holder: Some(by) });
        Ok(())
    }

    fn finished(&mut self, payload: u64) -> Checked {
        let Some(entry) = self.entries.get_mut(&payload) else {
            return Err(Violation(format!("task {payload} is unknown and was acknowledged")));
        };
        hold!(entry.state != State::Finished, "task {payload} was acknowledged twice");
        *entry = Entry { state: State::Finished, holder: None };
        self.finished += 1;
        Ok(())
    }
}
