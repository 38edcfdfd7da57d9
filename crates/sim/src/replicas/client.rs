//! Clients of a replica set, and what they know of their tasks.

use std::collections::{BTreeMap, BTreeSet};

use lycosa_instance::ConnectionSlot;
use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::frame::{self, Split};
use lycosa_iproto::greeting::GREETING_SIZE;
use lycosa_iproto::reply::{self, Content};
use lycosa_iproto::request::{self, Body};
use lycosa_tuple::value::Value;

use crate::names::LeaseToken;
use crate::random::Random;
use crate::violation::{Checked, Violation, hold};

/// Name and type of each tube.
pub(super) const TUBES: [(&str, &str); 4] =
    [("plain", "fifo"), ("timed", "fifottl"), ("keyed", "utube"), ("both", "utubettl")];

/// A task that a client has taken, by its session or by a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    tube: usize,
    id: u64,
    payload: u64,
    lease: Option<LeaseToken>,
}

/// Seconds of a lease: short ones end while clients work, the longest outlives every world.
const SPANS: [u64; 4] = [1, 2, 5, 20_000];

/// What a client waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    Identify,
    Put {
        tube: usize,
        payload: u64,
    },
    Take {
        tube: usize,
    },
    /// For a lease of these seconds.
    Lease {
        tube: usize,
        seconds: u64,
    },
    Ack(Held),
    Release(Held),
    Renew {
        held: Held,
        seconds: u64,
    },
    /// Acknowledges by a token of which clients know that it is in force no more.
    AckStale(Held),
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
    /// Tasks that it had by a lease, and has settled or lost.
    before: Vec<Held>,
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
    /// The client whose session has it.
    pub(super) holder: Option<usize>,
    pub(super) lease: Option<Lease>,
    /// The attempt that a client was told of last.
    attempts: u64,
    /// The latest epoch of its leases that a client was told of.
    epoch: u64,
    /// A former master has told of a take by a session, and it is not known whether the lease came before it or behind it: nothing is
    /// held against what becomes of the task, until the master tells of its next take.
    is_unclear: bool,
}

/// The lease that a client was given and has not settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lease {
    epoch: u64,
    /// It does not end before, µs since the epoch.
    pub(super) ends: u64,
}

impl Entry {
    const ASKED: Self =
        Self { state: State::Asked, holder: None, lease: None, attempts: 0, epoch: 0, is_unclear: false };
}

/// All tasks that were ever put, by their payload.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) entries: BTreeMap<u64, Entry>,
    /// Sessions outlive everything that happens in this world.
    pub(super) sessions_stay: bool,
    /// The latest time that was ever on the clock of an instance that took writes.
    pub(super) latest: u64,
    /// Attempts by leases that clients were told of, by payload.
    pub(super) attempts: BTreeSet<(u64, u64)>,
    pub(super) finished: u64,
    pub(super) replies: u64,
    pub(super) leases: LeaseTotals,
}

/// What became of leases, in numbers.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LeaseTotals {
    /// Leases that clients were told of, renewals included.
    pub(super) given: u64,
    /// Tasks that were taken again after their lease had ended.
    pub(super) ended: u64,
    /// Acknowledgements by stale tokens, which were refused.
    pub(super) stale: u64,
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
                ledger.entries.insert(payload, Entry::ASKED);
                let options = Value::map([("utube", Value::from(payload % 3))]);
                (method(tube, "put"), vec![Value::from(payload), options])
            }
            Ask::Take { tube } => (method(tube, "take"), vec![Value::from(0_u64)]),
            Ask::Lease { tube, seconds } => {
                let options = Value::map([("lease", Value::from(seconds))]);
                (method(tube, "take"), vec![Value::from(0_u64), options])
            }
            Ask::Ack(held) => {
                self.gives_up(held);
                ledger.update_by(held, |entry| (entry.state, entry.holder) = (State::Finishing, None));
                (method(held.tube, "ack"), vec![held.key()])
            }
            Ask::Release(held) => {
                self.gives_up(held);
                ledger.update_by(held, |entry| {
                    (entry.state, entry.holder, entry.lease) = (State::Stored, None, None);
                });
                (method(held.tube, "release"), vec![held.key()])
            }
            Ask::Renew { held, seconds } => {
                (method(held.tube, "touch"), vec![held.key(), Value::from(seconds)])
            }
            Ask::AckStale(held) => (method(held.tube, "ack"), vec![held.key()]),
        };
        self.pending = Some(ask);
        let mut frame = Vec::new();
        let args = Value::Array(arguments).encode();
        request::encode(&mut frame, self.sync, &Body::Call { name: name.as_bytes(), args: &args });
        frame
    }

    fn gives_up(&mut self, held: Held) {
        self.held.retain(|other| *other != held);
        if held.lease.is_some() && !self.before.contains(&held) {
            self.before.push(held);
        }
    }

    /// Draws what to do by leases.
    pub(super) fn about_leases(&self, random: &mut Random, tube: usize, ledger: &Ledger) -> Ask {
        let stale: Vec<Held> =
            self.before.iter().copied().filter(|held| ledger.is_known_stale(*held)).collect();
        let leased: Vec<Held> = self.held.iter().copied().filter(|held| held.lease.is_some()).collect();
        let seconds = *random.pick(&SPANS);
        match random.below(6) {
            0 if !leased.is_empty() => Ask::Renew { held: *random.pick(&leased), seconds },
            1 if !stale.is_empty() => Ask::AckStale(*random.pick(&stale)),
            2 if !leased.is_empty() => Ask::Ack(*random.pick(&leased)),
            _ => Ask::Lease { tube, seconds },
        }
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
                Said::Values(values) => self.answered(ask, &values, is_master, ledger)?,
                Said::Refused(error) => self.refused(ask, &error, is_master, ledger)?,
            }
        }
    }

    fn answered(&mut self, ask: Ask, values: &[Value], is_master: bool, ledger: &mut Ledger) -> Checked {
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
            Ask::Take { .. } | Ask::Lease { .. } | Ask::Renew { .. } | Ask::AckStale(_) if nothing => {}
            Ask::Take { tube } => {
                let task = task.unwrap_or_default();
                let (id, payload) = id_and_payload(task)?;
                if is_master {
                    ledger.taken(payload, Some(number), None)?;
                } else {
                    ledger.taken_before(payload, number)?;
                }
                self.held.push(Held { tube, id, payload, lease: None });
            }
            Ask::Lease { tube, .. } => {
                let task = task.unwrap_or_default();
                let (id, payload) = id_and_payload(task)?;
                let (token, ends, attempts) = lease_of(task)?;
                ledger.number_attempt(payload, attempts)?;
                if is_master || !ledger.is_overtaken(payload, attempts) {
                    ledger.taken(payload, None, Some((Lease { epoch: token.epoch, ends }, attempts)))?;
                }
                self.held.push(Held { tube, id, payload, lease: Some(token) });
            }
            Ask::Renew { held, .. } => {
                let (token, ends, _) = lease_of(task.unwrap_or_default())?;
                hold!(Some(token) == held.lease, "a renewal of {:?} answers {token}", held.lease);
                ledger.renewed(held, ends)?;
            }
            Ask::Ack(held) | Ask::Release(held) if nothing => self.still_holds(held, ledger),
            // A release may be answered after the next take of the task.
            Ask::Ack(held) if ledger.is_known_stale(held) => {
                return Err(Violation(format!(
                    "task {} is settled by the stale {:?}",
                    held.payload, held.lease
                )));
            }
            Ask::Ack(held) => ledger.finished(held.payload)?,
            Ask::Release(_) => {}
            Ask::AckStale(held) => {
                return Err(Violation(format!(
                    "task {} is acknowledged by the stale {:?}",
                    held.payload, held.lease
                )));
            }
        }
        Ok(())
    }

    fn refused(&mut self, ask: Ask, error: &ErrorObject, is_master: bool, ledger: &mut Ledger) -> Checked {
        let is = |code: ErrorCode| error.code == u32::from(code);
        let has_not_happened = is(ErrorCode::Readonly) || is(ErrorCode::SyncQuorumTimeout);
        let is_unknown = is(ErrorCode::WalIo);
        let is_stale = error.message.contains("is stale");
        match ask {
            Ask::Put { payload, .. } if has_not_happened => _ = ledger.entries.remove(&payload),
            Ask::Ack(held) | Ask::Release(held) if has_not_happened => self.still_holds(held, ledger),
            Ask::Ack(held) | Ask::Renew { held, .. } if is_stale => {
                self.gives_up(held);
                ledger.lost(held)?;
            }
            Ask::Release(_) if is_stale => {}
            Ask::AckStale(_) if is_stale => ledger.leases.stale += 1,
            _ if has_not_happened || is_unknown => {}
            Ask::Ack(held) | Ask::Release(held) if error.message.contains("Task was not taken") => {
                hold!(
                    !ledger.sessions_stay,
                    "client {} held task {} and is told that it was not taken",
                    self.number,
                    held.payload
                );
                ledger.update_by(held, |entry| (entry.state, entry.holder) = (State::Stored, None));
            }
            // A replica may not have received the session yet.
            Ask::Identify if error.message.contains("is unknown") && !is_master => {}
            Ask::Identify if error.message.contains("is unknown") => {
                hold!(!ledger.sessions_stay, "the session of client {} is unknown", self.number);
                self.session = None;
                let (leased, lost) =
                    std::mem::take(&mut self.held).into_iter().partition(|held| held.lease.is_some());
                self.held = leased;
                let lost: Vec<Held> = lost;
                for held in lost {
                    ledger.update(held.payload, |entry| entry.holder = None);
                }
            }
            _ => return Err(Violation(format!("{ask:?} is refused: {}", error.message))),
        }
        Ok(())
    }

    fn still_holds(&mut self, held: Held, ledger: &mut Ledger) {
        let holder = held.lease.is_none().then_some(self.number);
        ledger.update_by(held, |entry| {
            (entry.state, entry.holder) = (State::Stored, holder);
            if let Some(token) = held.lease
                && entry.lease.is_none()
            {
                // A release has forgotten when it ends.
                entry.lease = Some(Lease { epoch: token.epoch, ends: 0 });
            }
        });
        self.before.retain(|other| *other != held);
        self.held.push(held);
    }
}

impl Held {
    /// What says to the queue which task is meant.
    fn key(&self) -> Value {
        self.lease.map_or_else(|| Value::from(self.id), |token| Value::str(token.to_string()))
    }
}

fn id_and_payload(task: &[Value]) -> Checked<(u64, u64)> {
    let field = |place: usize| task.get(place).and_then(Value::as_u64);
    field(0).zip(field(2)).ok_or_else(|| Violation(format!("a task is {task:?}")))
}

/// Token, end and attempts of a task that was taken by a lease.
fn lease_of(task: &[Value]) -> Checked<(LeaseToken, u64, u64)> {
    let read = || {
        let info = task.get(3)?;
        let token = LeaseToken::read(info.get("lease")?.as_str()?)?;
        let ends = match info.get("lease_ends")? {
            // A double of this size is exact to a quarter of a microsecond.
            Value::Double(seconds) => (seconds * 1e6).round() as u64,
            whole => whole.as_u64()? * 1_000_000,
        };
        Some((token, ends, info.get("attempts")?.as_u64()?))
    };
    read().ok_or_else(|| Violation(format!("a task with a lease is {task:?}")))
}

impl Ledger {
    fn put(&mut self, payload: u64) {
        if let Some(entry) = self.entries.get_mut(&payload)
            && entry.state == State::Asked
        {
            entry.state = State::Stored;
        }
    }

    fn update(&mut self, payload: u64, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.entries.get_mut(&payload) {
            change(entry);
        }
    }

    /// The same of a task that a client holds, unless another one has it by now.
    fn update_by(&mut self, held: Held, change: impl FnOnce(&mut Entry)) {
        let is_unclear = self.entries.get(&held.payload).is_some_and(|entry| entry.is_unclear);
        if !is_unclear && !self.is_known_stale(held) {
            self.update(held.payload, change);
        }
    }

    /// A client hears of each attempt by a lease, a single time.
    fn number_attempt(&mut self, payload: u64, attempt: u64) -> Checked {
        hold!(self.attempts.insert((payload, attempt)), "attempt {attempt} of task {payload} is told twice");
        Ok(())
    }

    /// Whether clients know of a later take of the task. The answer of a former master may come late: it waited for a replica, and the
    /// next master gave the task away meanwhile.
    fn is_overtaken(&self, payload: u64, attempt: u64) -> bool {
        self.entries.get(&payload).is_some_and(|entry| attempt < entry.attempts)
    }

    /// A former master has told of a take by the session of a client. Where a lease is known too, either may be the later one.
    fn taken_before(&mut self, payload: u64, by: usize) -> Checked {
        if let Some(entry) = self.entries.get_mut(&payload) {
            if entry.lease.is_some() {
                // The task may be acknowledged by either.
                (entry.state, entry.holder, entry.lease) = (State::Finishing, None, None);
                entry.is_unclear = true;
            }
            if entry.is_unclear || entry.state == State::Finished {
                return Ok(());
            }
        }
        self.taken(payload, Some(by), None)
    }

    /// A task was taken: by the session of a client, or by a lease, of which it is known which attempt it is.
    fn taken(&mut self, payload: u64, by: Option<usize>, lease: Option<(Lease, u64)>) -> Checked {
        let known = self.entries.get(&payload).copied();
        let entry = known.ok_or_else(|| Violation(format!("task {payload} was refused and is there")))?;
        hold!(entry.state != State::Finished, "task {payload} was acknowledged and is taken again");
        if let Some(holder) = entry.holder.filter(|_| self.sessions_stay) {
            return Err(Violation(format!("task {payload} is held by client {holder} and given to {by:?}")));
        }
        if let Some(before) = entry.lease {
            hold!(
                before.ends <= self.latest,
                "task {payload} has the lease {before:?} and is given away although it is at most {}",
                self.latest
            );
            self.leases.ended += 1;
        }
        let (mut attempts, mut latest) = (entry.attempts, entry.epoch);
        if let Some((lease, attempt)) = lease {
            hold!(attempt > attempts, "attempt {attempt} of task {payload} comes after attempt {attempts}");
            let epoch = entry.lease.map_or(0, |before| before.epoch);
            hold!(lease.epoch > epoch, "the lease {lease:?} of task {payload} comes after epoch {epoch}");
            self.leases.given += 1;
            (attempts, latest) = (attempt, lease.epoch);
        }
        let lease = lease.map(|(lease, _)| lease);
        let taken =
            Entry { state: State::Stored, holder: by, lease, attempts, epoch: latest, is_unclear: false };
        self.entries.insert(payload, taken);
        Ok(())
    }

    /// Whether a client had a task by a lease that was settled, or whose task is another client's.
    fn is_known_stale(&self, held: Held) -> bool {
        let Some(epoch) = held.lease.map(|token| token.epoch) else { return false };
        let entry = self.entries.get(&held.payload).filter(|entry| !entry.is_unclear);
        entry.is_some_and(|entry| match entry.state {
            _ if epoch < entry.epoch => true,
            State::Finished => true,
            // A release may have been lost, and its lease be in force.
            State::Stored => entry.holder.is_some() || entry.lease.is_some_and(|lease| lease.epoch != epoch),
            // By the lease that the task has, or by a session if it has none.
            State::Finishing => entry.lease.is_none_or(|lease| lease.epoch != epoch),
            State::Asked => false,
        })
    }

    fn renewed(&mut self, held: Held, ends: u64) -> Checked {
        let epoch = held.lease.map(|token| token.epoch);
        let entry = self.entries.get_mut(&held.payload);
        if entry.as_ref().is_some_and(|entry| entry.is_unclear) {
            return Ok(());
        }
        let lease = entry.and_then(|entry| entry.lease.as_mut()).filter(|lease| Some(lease.epoch) == epoch);
        let lease = lease.ok_or_else(|| {
            Violation(format!("{:?} of task {} is renewed, and in force no more", held.lease, held.payload))
        })?;
        hold!(ends >= lease.ends, "a renewal moves the end of {lease:?} back to {ends}");
        lease.ends = ends;
        self.leases.given += 1;
        Ok(())
    }

    /// The token of a lease is stale, and a client has learnt it.
    fn lost(&mut self, held: Held) -> Checked {
        let epoch = held.lease.map(|token| token.epoch);
        let latest = self.latest;
        let Some(entry) = self.entries.get_mut(&held.payload) else { return Ok(()) };
        if let Some(lease) = entry.lease.filter(|lease| Some(lease.epoch) == epoch) {
            hold!(
                lease.ends <= latest,
                "the lease {lease:?} of task {} is called stale although it is at most {latest}",
                held.payload
            );
            // The lease has ended, and the task was not settled.
            entry.state = State::Stored;
        }
        Ok(())
    }

    fn finished(&mut self, payload: u64) -> Checked {
        let Some(entry) = self.entries.get_mut(&payload) else {
            return Err(Violation(format!("task {payload} is unknown and was acknowledged")));
        };
        hold!(entry.state != State::Finished, "task {payload} was acknowledged twice");
        (entry.state, entry.holder, entry.lease) = (State::Finished, None, None);
        self.finished += 1;
        Ok(())
    }
}
