//! Clients of a group, and what they know of their tasks.
//!
//! A client has at most one request under way and remembers, by the task's payload, what it was told. A request whose outcome is
//! unknown may have been done or not.

use std::collections::{BTreeMap, BTreeSet};

use lycosa_group::members::NodeId;
use lycosa_instance::{ConnectionSlot, OUTCOME_UNKNOWN};
use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::frame::{self, Split};
use lycosa_iproto::greeting::GREETING_SIZE;
use lycosa_iproto::reply::{self, Content};
use lycosa_iproto::request::{self, Body};
use lycosa_tuple::value::Value;

use crate::random::Random;
use crate::violation::{Checked, Violation, hold};

/// Name and type of each tube. The last one is temporary, and not every world has it.
pub(super) const TUBES: [(&str, &str); 5] =
    [("plain", "fifo"), ("timed", "fifottl"), ("keyed", "utube"), ("both", "utubettl"), ("brief", "fifo")];

/// The temporary tube.
pub(super) const TEMPORARY: usize = TUBES.len() - 1;

/// A time in which a process leads without a break, or follows: the node, the number of its process, and the number of the time
/// in the life of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reign {
    pub(super) node: NodeId,
    pub(super) process: u64,
    pub(super) number: u64,
}

impl Reign {
    /// Whether a request that was made in the reign `from` and answered in `to` may have been handled in one with another request.
    fn may_meet((from, to): (Self, Option<Self>), (other_from, other_to): (Self, Self)) -> bool {
        let place = |reign: Self| (reign.node, reign.process);
        place(from) == place(other_from) && from <= other_to && to.is_none_or(|to| other_from <= to)
    }
}

/// The tube of a task, and its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    tube: usize,
    id: u64,
    payload: u64,
}

/// What a client waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    Create {
        tube: usize,
    },
    Identify,
    Put {
        tube: usize,
        payload: u64,
    },
    /// Takes under a name. `again`: the answer to this take was lost.
    Take {
        tube: usize,
        name: u64,
        seconds: u64,
        again: bool,
    },
    Ack(Place),
    Release(Place),
    /// Looks at a task. When this was sent, its `put` was answered, or its `ack`.
    Peek {
        place: Place,
        is_stored: bool,
        is_finished: bool,
    },
}

/// A connection of a client.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) node: NodeId,
    /// None: the node passes the requests on.
    pub(super) slot: Option<ConnectionSlot>,
    /// The node led when the request under way was sent, and the request is its first since.
    pub(super) led: bool,
    /// The node's reign when the request under way was sent.
    asked: Option<Reign>,
    /// The ledger's time at that moment.
    asked_at: u64,
    is_identified: bool,
    /// A member passes the requests on, and has greeted the client itself.
    is_forwarded: bool,
    is_greeted: bool,
    received: Vec<u8>,
}

impl Connection {
    pub(super) fn new(node: NodeId, slot: Option<ConnectionSlot>, is_forwarded: bool) -> Self {
        Self {
            node,
            slot,
            led: false,
            asked: None,
            asked_at: 0,
            is_identified: false,
            is_forwarded: is_forwarded || slot.is_none(),
            is_greeted: is_forwarded,
            received: Vec::new(),
        }
    }

    /// The node has passed the request under way on to a leader in its reign.
    pub(super) fn handled_by(&mut self, leads: bool, reign: Reign) {
        (self.led, self.asked) = (leads, Some(reign));
    }
}

/// A client with at most one request under way.
#[derive(Debug)]
pub(super) struct Client {
    number: usize,
    pub(super) connection: Option<Connection>,
    pub(super) pending: Option<Ask>,
    session: Option<Vec<u8>>,
    held: Vec<Place>,
    /// The take whose answer was lost.
    lost: Option<Ask>,
    takes: u64,
    sync: u64,
}

/// How far a task is, as its clients know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The `put` was not answered.
    Asked,
    /// It exists.
    Stored,
    /// An `ack` was sent and not answered, or its outcome is unknown.
    Finishing,
    /// The `ack` was answered.
    Finished,
}

/// A task.
#[derive(Debug, Clone, Copy)]
struct Entry {
    state: State,
    /// The client that holds it for certain, unless it has finished it.
    holder: Option<usize>,
    place: Option<Place>,
    /// A `release` was sent and not answered, or its outcome is unknown.
    is_releasing: bool,
    /// The ledger's time when its `ack` was answered, and the reign in which.
    finish: Option<(u64, Reign)>,
    brief: Option<Brief>,
}

/// Further knowledge about a task in the temporary tube.
#[derive(Debug, Clone, Copy)]
struct Brief {
    /// The reigns in which its `put` was sent and answered.
    put: (Reign, Option<Reign>),
    /// The reign in which its holder got it, if that is certain.
    held_in: Option<Reign>,
}

impl Brief {
    /// Whether the task exists in a reign, unless it was acknowledged.
    fn is_of(&self, reign: Reign) -> bool {
        self.put == (reign, Some(reign))
    }
}

/// All tasks that were ever put, by their payload.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    entries: BTreeMap<u64, Entry>,
    next_payload: u64,
    /// Requests that were sent so far.
    time: u64,
    /// Sessions outlive everything that happens in this world.
    pub(super) sessions_stay: bool,
    /// Number of tubes that clients use.
    pub(super) tubes: usize,
    pub(super) puts: u64,
    /// Tasks in the temporary tube whose `put` was answered.
    pub(super) brief: u64,
    pub(super) finished: u64,
    pub(super) peeks: u64,
    pub(super) unknown: u64,
    pub(super) refused: u64,
    pub(super) replies: u64,
    /// Answers, but for refusals, to requests that members passed on.
    pub(super) forwarded: u64,
}

impl Entry {
    /// A task whose `put` is sent now.
    fn asked(brief: Option<Brief>) -> Self {
        let (holder, place, is_releasing, finish) = (None, None, false, None);
        Self { state: State::Asked, holder, place, is_releasing, finish, brief }
    }

    /// Whether the task exists in these reigns. In the temporary tube it exists only in the reign of its `put`.
    fn exists_in(&self, (from, to): (Reign, Reign)) -> bool {
        self.state == State::Stored && self.brief.is_none_or(|brief| from == to && brief.is_of(from))
    }
}

/// What a reply says.
enum Said {
    Values(Vec<Value>),
    Refused(ErrorObject),
}

impl Client {
    pub(super) fn new(number: usize) -> Self {
        Self {
            number,
            connection: None,
            pending: None,
            session: None,
            held: Vec::new(),
            lost: None,
            takes: 0,
            sync: 0,
        }
    }

    /// What the client asks next.
    pub(super) fn next(&mut self, random: &mut Random, ledger: &mut Ledger) -> Ask {
        if self.connection.as_ref().is_none_or(|connection| !connection.is_identified) {
            return Ask::Identify;
        }
        if let Some(lost) = self.lost {
            return lost;
        }
        let tube = random.below(ledger.tubes as u64) as usize;
        match random.below(10) {
            0..3 => {
                ledger.next_payload += 1;
                Ask::Put { tube, payload: ledger.next_payload }
            }
            3..6 => self.new_take(tube, random),
            6..9 if !self.held.is_empty() => {
                let place = *random.pick(&self.held);
                if random.one_in(4) { Ask::Release(place) } else { Ask::Ack(place) }
            }
            _ => ledger.some_peek(random).unwrap_or_else(|| self.new_take(tube, random)),
        }
    }

    fn new_take(&mut self, tube: usize, random: &mut Random) -> Ask {
        self.takes += 1;
        let seconds = if random.one_in(4) { 2 } else { 0 };
        Ask::Take { tube, name: self.takes, seconds, again: false }
    }

    /// A take of the client was lost, and was not made again.
    pub(super) fn has_lost_take(&self) -> bool {
        self.lost.is_some() || matches!(self.pending, Some(Ask::Take { .. }))
    }

    /// The answer to a request is lost.
    fn note_lost(&mut self, ask: Ask) {
        if let Ask::Take { tube, name, seconds, .. } = ask {
            self.lost = Some(Ask::Take { tube, name, seconds, again: true });
        }
    }

    /// The request `ask`, as bytes.
    pub(super) fn send(&mut self, ask: Ask, reign: Reign, ledger: &mut Ledger) -> Vec<u8> {
        self.sync += 1;
        ledger.time += 1;
        if let Some(connection) = &mut self.connection {
            (connection.asked, connection.asked_at) = (Some(reign), ledger.time);
        }
        let method = |tube: usize, method: &str| format!("queue.tube.{}:{method}", TUBES[tube].0);
        let (name, arguments) = match ask {
            Ask::Create { tube } => {
                let temporary = Value::from(tube == TEMPORARY);
                let options = Value::map([("if_not_exists", Value::from(true)), ("temporary", temporary)]);
                let (name, kind) = TUBES[tube];
                ("queue.create_tube".to_owned(), vec![Value::from(name), Value::from(kind), options])
            }
            Ask::Identify => ("queue.identify".to_owned(), self.session.iter().map(Value::str).collect()),
            Ask::Put { tube, payload } => {
                let brief = (tube == TEMPORARY).then_some(Brief { put: (reign, None), held_in: None });
                ledger.entries.insert(payload, Entry::asked(brief));
                let options = Value::map([("utube", Value::from(payload % 3))]);
                (method(tube, "put"), vec![Value::from(payload), options])
            }
            Ask::Take { tube, name, seconds, again } => {
                self.lost = None;
                let mut bytes = [0; 16];
                bytes[..8].copy_from_slice(&name.to_be_bytes());
                let options = [("request", Value::Bin(bytes.to_vec())), ("again", again.into())];
                (method(tube, "take"), vec![Value::from(seconds), Value::map(options)])
            }
            Ask::Ack(place) => {
                self.held.retain(|other| *other != place);
                ledger.begin_finish(place.payload);
                (method(place.tube, "ack"), vec![Value::from(place.id)])
            }
            Ask::Release(place) => {
                self.held.retain(|other| *other != place);
                ledger.update(place.payload, |entry| (entry.holder, entry.is_releasing) = (None, true));
                (method(place.tube, "release"), vec![Value::from(place.id)])
            }
            Ask::Peek { place, .. } => (method(place.tube, "peek"), vec![Value::from(place.id)]),
        };
        self.pending = Some(ask);
        let mut frame = Vec::new();
        let args = Value::Array(arguments).encode();
        request::encode(&mut frame, self.sync, &Body::Call { name: name.as_bytes(), args: &args });
        frame
    }

    /// The connection is gone. A request under way may have been done or not.
    pub(super) fn lose_connection(&mut self) {
        self.connection = None;
        if let Some(ask) = self.pending.take() {
            self.note_lost(ask);
        }
    }

    /// Bytes of a node, which leads now or does not.
    pub(super) fn receive(
        &mut self,
        bytes: &[u8],
        (leads, now): (bool, Reign),
        ledger: &mut Ledger,
    ) -> Checked {
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
            let (was_leaders, is_forwarded) = (connection.led, connection.is_forwarded);
            let is_leaders = leads && was_leaders;
            let reigns = (connection.asked.unwrap_or(now), now);
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
            if matches!(said, Said::Values(_)) && is_forwarded {
                hold!(was_leaders, "{ask:?} was passed on to a node that did not lead, and is answered");
                ledger.forwarded += 1;
            }
            match said {
                Said::Values(values) => self.answered(ask, &values, (is_leaders, reigns), ledger)?,
                Said::Refused(error) => self.refused(ask, &error, (is_leaders, reigns), ledger)?,
            }
        }
    }

    /// `reigns`: of the node, when it was asked and when its answer arrived.
    fn answered(
        &mut self,
        ask: Ask,
        values: &[Value],
        (is_leaders, reigns): (bool, (Reign, Reign)),
        ledger: &mut Ledger,
    ) -> Checked {
        let number = self.number;
        let task = values.first().and_then(Value::as_array);
        let nothing = task.is_none();
        let field = |place: usize| task.and_then(|task| task.get(place)).and_then(Value::as_u64);
        match ask {
            Ask::Create { .. } => {}
            // A follower gives sessions that no other node knows of.
            Ask::Identify if !is_leaders => {}
            Ask::Identify => {
                let session = match values.first() {
                    Some(Value::Str(bytes)) => bytes.clone(),
                    // The queue does not run.
                    _ => return Ok(()),
                };
                self.session = Some(session);
                if let Some(connection) = &mut self.connection {
                    connection.is_identified = true;
                }
            }
            // The queue does not run: nothing has happened.
            Ask::Put { payload, .. } if nothing => {
                let is_forwarded = self.connection.as_ref().is_some_and(|connection| connection.is_forwarded);
                hold!(!is_forwarded, "the put of {payload} was passed on, and is answered with nothing");
                ledger.entries.remove(&payload);
            }
            Ask::Put { tube, payload } => {
                let id = field(0).ok_or_else(|| Violation(format!("a task is {task:?}")))?;
                ledger.puts += u64::from(tube != TEMPORARY);
                ledger.brief += u64::from(tube == TEMPORARY);
                ledger.update(payload, |entry| {
                    if let Some(brief) = &mut entry.brief {
                        brief.put.1 = Some(reigns.1);
                    }
                });
                ledger.stored((tube, payload), id);
            }
            Ask::Take { .. } if nothing => {}
            Ask::Take { tube, .. } => {
                let (Some(id), Some(payload)) = (field(0), field(2)) else {
                    return Err(Violation(format!("a task is {task:?}")));
                };
                let asked_at = self.connection.as_ref().map_or(0, |connection| connection.asked_at);
                if !ledger.is_finished_since(payload, reigns, asked_at) {
                    ledger.taken(payload, number, reigns)?;
                    self.held.push(Place { tube, id, payload });
                }
            }
            Ask::Ack(place) if nothing => {
                ledger.give_finish_up(place.payload, number);
                self.held.push(place);
            }
            Ask::Release(place) if nothing => {
                ledger.update(place.payload, |entry| entry.holder = Some(number));
                self.held.push(place);
            }
            Ask::Ack(place) => ledger.finish(place.payload, reigns.1)?,
            Ask::Release(place) => ledger.update(place.payload, |entry| entry.is_releasing = false),
            Ask::Peek { .. } if nothing => {}
            Ask::Peek { place, is_finished, .. } => {
                ledger.peeks += u64::from(is_leaders);
                hold!(!(is_finished && is_leaders), "task {} was acknowledged and is read", place.payload);
                hold!(
                    !is_leaders || ledger.may_exist(place.payload, reigns),
                    "task {} of a former leader's temporary tube is read at {reigns:?}",
                    place.payload
                );
            }
        }
        Ok(())
    }

    fn refused(
        &mut self,
        ask: Ask,
        error: &ErrorObject,
        (is_leaders, reigns): (bool, (Reign, Reign)),
        ledger: &mut Ledger,
    ) -> Checked {
        let is = |code: ErrorCode| error.code == u32::from(code);
        let number = self.number;
        if error.name() == Some(OUTCOME_UNKNOWN) {
            ledger.unknown += 1;
            self.note_lost(ask);
            return Ok(());
        }
        let has_not_happened = is(ErrorCode::Readonly) || is(ErrorCode::Loading) || is(ErrorCode::WalIo);
        ledger.refused += u64::from(has_not_happened);
        match ask {
            Ask::Put { payload, .. } if has_not_happened => _ = ledger.entries.remove(&payload),
            Ask::Ack(place) if has_not_happened => {
                ledger.give_finish_up(place.payload, number);
                self.held.push(place);
            }
            Ask::Release(place) if has_not_happened => {
                ledger.update(place.payload, |entry| entry.holder = Some(number));
                self.held.push(place);
            }
            Ask::Take { again: true, .. } if has_not_happened => self.note_lost(ask),
            _ if has_not_happened => {}
            // A tube that the group has not decided on yet.
            _ if error.message.contains("is unknown") && !matches!(ask, Ask::Identify) => {}
            // Another member has led, and the tube is empty since.
            Ask::Ack(place) | Ask::Release(place)
                if place.tube == TEMPORARY && !ledger.is_held_in(place.payload, reigns) =>
            {
                hold!(
                    ["Task was not taken", "not found"].iter().any(|text| error.message.contains(text)),
                    "{ask:?} is refused: {}",
                    error.message
                );
                ledger.update(place.payload, |entry| (entry.state, entry.holder) = (State::Finishing, None));
            }
            Ask::Ack(place) | Ask::Release(place) if error.message.contains("Task was not taken") => {
                let payload = place.payload;
                hold!(!ledger.sessions_stay, "client {number} held task {payload}, which was not taken");
                // The task is ready again, unless another client has got or finished it since.
                if matches!(ask, Ask::Ack(_)) {
                    ledger.give_finish_up(payload, number);
                }
                ledger.update(payload, |entry| _ = entry.holder.take_if(|holder| *holder == number));
            }
            Ask::Identify if error.message.contains("is unknown") => {
                hold!(!ledger.sessions_stay, "the session of client {number} is unknown");
                (self.session, self.lost) = (None, None);
                for place in std::mem::take(&mut self.held) {
                    ledger.update(place.payload, |entry| entry.holder = None);
                }
            }
            Ask::Peek { place, is_stored, .. } if error.message.contains("not found") => {
                ledger.peeks += u64::from(is_leaders);
                let entry = ledger.entries.get(&place.payload).copied();
                let is_there = is_stored && entry.is_some_and(|entry| entry.exists_in(reigns));
                hold!(!(is_there && is_leaders), "task {} was put and is not found", place.payload);
            }
            _ => return Err(Violation(format!("{ask:?} is refused: {}", error.message))),
        }
        Ok(())
    }
}

impl Ledger {
    /// A put is about to be sent that is no client's of this module. Returns its payload.
    pub(super) fn ordered(&mut self) -> u64 {
        self.next_payload += 1;
        self.entries.insert(self.next_payload, Entry::asked(None));
        self.next_payload
    }

    /// A `put` was answered.
    pub(super) fn stored(&mut self, (tube, payload): (usize, u64), id: u64) {
        self.update(payload, |entry| {
            entry.place = Some(Place { tube, id, payload });
            if entry.state == State::Asked {
                entry.state = State::Stored;
            }
        });
    }

    /// A `put` has put nothing.
    pub(super) fn refuse(&mut self, payload: u64) {
        self.entries.remove(&payload);
    }

    fn update(&mut self, payload: u64, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.entries.get_mut(&payload) {
            change(entry);
        }
    }

    fn some_peek(&self, random: &mut Random) -> Option<Ask> {
        let last = self.next_payload;
        let from = random.below(last + 1);
        let entry = self.entries.range(from..).map(|(_, entry)| entry).find(|entry| entry.place.is_some())?;
        let place = entry.place?;
        let (is_stored, is_finished) = (entry.state == State::Stored, entry.state == State::Finished);
        Some(Ask::Peek { place, is_stored, is_finished })
    }

    /// Whether a task may exist in some of these reigns: a temporary tube is empty in a new one.
    fn may_exist(&self, payload: u64, reigns: (Reign, Reign)) -> bool {
        let brief = self.entries.get(&payload).and_then(|entry| entry.brief);
        brief.is_none_or(|brief| Reign::may_meet(brief.put, reigns))
    }

    /// Whether a task in the temporary tube was taken in this one reign.
    fn is_held_in(&self, payload: u64, reigns: (Reign, Reign)) -> bool {
        let brief = self.entries.get(&payload).and_then(|entry| entry.brief);
        let held_in = brief.and_then(|brief| brief.held_in);
        held_in.is_some_and(|held_in| (held_in, held_in) == reigns)
    }

    /// Whether a take that was sent at `asked_at` may come before the `ack` of the task, though its answer comes behind. Another node
    /// has answered the `ack` then, after the take was sent: in one process answers come in order.
    fn is_finished_since(&self, payload: u64, reigns: (Reign, Reign), asked_at: u64) -> bool {
        let finish = self.entries.get(&payload).and_then(|entry| entry.finish);
        finish.is_some_and(|(at, reign)| {
            let is_elsewhere = (reign.node, reign.process) != (reigns.0.node, reigns.0.process);
            !self.sessions_stay && is_elsewhere && asked_at <= at
        })
    }

    fn taken(&mut self, payload: u64, by: usize, reigns: (Reign, Reign)) -> Checked {
        let known = self.entries.get(&payload).copied();
        let entry = known.ok_or_else(|| Violation(format!("task {payload} was refused and is there")))?;
        hold!(entry.state != State::Finished, "task {payload} was acknowledged and is taken again");
        hold!(
            self.may_exist(payload, reigns),
            "task {payload} of a former leader's temporary tube is taken at {reigns:?}: {:?}",
            entry.brief
        );
        let is_held = entry.brief.is_none() || self.is_held_in(payload, reigns);
        if let Some(holder) = entry.holder.filter(|_| self.sessions_stay && is_held) {
            return Err(Violation(format!("task {payload} is held by client {holder} and given to {by}")));
        }
        self.update(payload, |entry| {
            (entry.state, entry.holder, entry.is_releasing) = (State::Stored, Some(by), false);
            if let Some(brief) = &mut entry.brief {
                brief.held_in = Some(reigns.1).filter(|_| reigns.0 == reigns.1);
            }
        });
        Ok(())
    }

    /// A client that may hold the task no longer sends an `ack`: another one may have finished it.
    fn begin_finish(&mut self, payload: u64) {
        self.update(payload, |entry| {
            if entry.state != State::Finished {
                entry.state = State::Finishing;
            }
        });
    }

    /// The `ack` of a client has not happened. That of a former holder tells nothing about the task.
    fn give_finish_up(&mut self, payload: u64, client: usize) {
        self.update(payload, |entry| {
            if entry.state == State::Finishing && entry.holder == Some(client) {
                entry.state = State::Stored;
            }
        });
    }

    fn finish(&mut self, payload: u64, reign: Reign) -> Checked {
        let Some(entry) = self.entries.get_mut(&payload) else {
            return Err(Violation(format!("task {payload} is unknown and was acknowledged")));
        };
        hold!(entry.state != State::Finished, "task {payload} was acknowledged twice");
        (entry.state, entry.holder) = (State::Finished, None);
        entry.finish = Some((self.time, reign));
        self.finished += 1;
        Ok(())
    }

    /// Compares with the payloads that the leader's data have in the end, in its reign, and with the taken ones among them.
    pub(super) fn check(
        &self,
        stored: &BTreeMap<u64, usize>,
        taken: &BTreeSet<u64>,
        reign: Reign,
    ) -> Checked {
        for (payload, entry) in &self.entries {
            let count = stored.get(payload).copied().unwrap_or(0);
            hold!(count <= 1, "task {payload} is there {count} times");
            hold!(!entry.exists_in((reign, reign)) || count == 1, "the acknowledged task {payload} is lost");
            hold!(
                count == 0 || self.may_exist(*payload, (reign, reign)),
                "task {payload} of a former leader's temporary tube is there"
            );
            hold!(
                entry.state != State::Finished || count == 0,
                "task {payload} was acknowledged and is there"
            );
            let is_free = entry.state == State::Stored
                && entry.holder.is_none()
                && !entry.is_releasing
                && entry.brief.is_none();
            hold!(
                !(self.sessions_stay && is_free && taken.contains(payload)),
                "task {payload} was given out, and no client has it"
            );
        }
        match stored.keys().find(|payload| !self.entries.contains_key(payload)) {
            Some(payload) => Err(Violation(format!("task {payload} was refused and is there"))),
            None => Ok(()),
        }
    }
}
