//! The world: one instance, its clients, its disk, its clock, and what happens to them step by step.
//!
//! What the server's loop does with sockets and threads, this does with vectors, in the same order and under the same
//! rules: requests are handled as they are cut off a stream, unless the instance asks for a pause; a turn ends with a tick,
//! then a batch for the journal if that is idle, then what may be written; at most one batch is at the journal.
//!
//! After everything that reaches the instance the model is told the same, and the spaces are compared with it. Each
//! answer is noted when it is determined, with the signature of the rows that it may have seen, and looked at when it
//! reaches the client: it must be the one that was noted, and the disk must hold those rows.

use std::collections::{BTreeMap, VecDeque};

use lycosa_instance::{Instance, Origin, Slot, Trust};
use lycosa_iproto::error::ErrorCode;
use lycosa_iproto::frame::{self, Split};
use lycosa_iproto::reply::{self, Content};
use lycosa_journal::memory::{Fault, MemoryDisk};
use lycosa_store::Budget;
use lycosa_tuple::mp::Reader;

use crate::agreement;
use crate::checkpoint::Checkpointer;
use crate::connection::{Awaited, Connection, Outcome};
use crate::journal::{Done, Journal};
use crate::ledger::Ledger;
use crate::model::{Answer, Model, Token};
use crate::names::Names;
use crate::plan::{Action, Plan, Wish};
use crate::random::Random;
use crate::request::{Malformed, Request, RowChange};
use crate::shadow::Shadow;
use crate::trace::Trace;
use crate::violation::{Checked, Violation, hold};
use crate::workload::{View, Workload};

/// When a run begins: a moment in November 2023, µs since the epoch.
const BEGINNING: u64 = 1_700_000_000_000_000;

/// Nobody waits for what is farther away than this, in µs: lives end after a hundred years unless somebody says otherwise.
const FAR: u64 = 24 * 3_600_000_000;

/// Bytes of rows that no run has under way.
const MOST_ROWS_UNDER_WAY: usize = 16 << 20;

/// Requests that a client leaves unanswered before it waits.
const MOST_IN_FLIGHT: usize = 40;

/// What happened in a run, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Requests that the server handled.
    pub requests: u64,
    /// Answers that reached a client.
    pub replies: u64,
    /// Batches that became durable.
    pub batches: u64,
    /// Ends of the process or the machine out of order.
    pub crashes: u64,
    /// Ends in order.
    pub stops: u64,
    /// Snapshots that were completed.
    pub snapshots: u64,
    /// Failures of the journal.
    pub failures: u64,
}

/// One life of the process.
pub(crate) struct Life {
    pub(crate) instance: Instance,
    pub(crate) journal: Journal,
    pub(crate) checkpointer: Checkpointer,
    /// By the number of the client.
    pub(crate) connections: BTreeMap<usize, Connection>,
    opened: u64,
    /// The signature up to which the instance was told that rows are durable.
    reported: u64,
    /// The instance was told that the journal has failed.
    pub(crate) has_failed: bool,
    /// The disk was told to refuse something.
    pub(crate) is_faulty: bool,
    /// The instance was told that the disk is short of room.
    is_short_of_room: bool,
}

impl Life {
    pub(crate) fn new(instance: Instance, journal: Journal, checkpointer: Checkpointer) -> Self {
        let reported = journal.durable();
        Self {
            instance,
            journal,
            checkpointer,
            connections: BTreeMap::new(),
            opened: 0,
            reported,
            has_failed: false,
            is_faulty: false,
            is_short_of_room: false,
        }
    }

    fn signature(&self) -> u64 {
        self.instance.status().signature
    }
}

/// Everything there is.
pub(crate) struct Simulation<'a> {
    pub(crate) plan: Plan,
    pub(crate) random: Random,
    workload: Workload,
    pub(crate) trace: &'a mut Trace,
    pub(crate) step: u64,
    /// µs since the epoch.
    pub(crate) now: u64,
    pub(crate) disk: MemoryDisk,
    pub(crate) shadow: Shadow,
    pub(crate) model: Model,
    /// The model after each signature that a recovery may still end with.
    pub(crate) history: VecDeque<(u64, Model)>,
    pub(crate) names: Names,
    pub(crate) ledger: Ledger,
    pub(crate) life: Life,
    pub(crate) lives: u64,
    pub(crate) has_rotted: bool,
    pub(crate) totals: Totals,
}

impl<'a> Simulation<'a> {
    /// A new instance on an empty disk.
    pub(crate) fn new(seed: u64, trace: &'a mut Trace) -> Checked<Self> {
        let mut random = Random::new(seed);
        let plan = Plan::new(&mut random);
        trace.line(format_args!("{plan:?}"));
        let workload = Workload::new(random.fork());
        let model = Model::new(&plan);
        let disk = MemoryDisk::new();
        let mut opening = crate::restart::begin(&plan, &mut random, disk, BEGINNING, trace)?;
        let report = opening.life.instance.start(BEGINNING);
        report.map_err(|error| Violation(format!("the queue does not start on a new instance: {error}")))?;
        Ok(Self {
            ledger: Ledger::new(plan.tubes.len()),
            history: VecDeque::from([(0, model.clone())]),
            plan,
            random,
            workload,
            trace,
            step: 0,
            now: BEGINNING,
            disk: opening.disk,
            shadow: Shadow::new()?,
            model,
            names: Names::default(),
            life: opening.life,
            lives: 1,
            has_rotted: false,
            totals: Totals::default(),
        })
    }

    /// Lets something happen.
    pub(crate) fn next(&mut self) -> Checked {
        self.step += 1;
        if self.life.has_failed && self.random.one_in(20) {
            self.settle()?;
            return self.crash();
        }
        let action = match self.random.weighted(&self.plan.actions) {
            Action::Journal if self.is_journal_at_rest() => Action::Turn,
            Action::Send | Action::Deliver | Action::Stall if self.life.connections.is_empty() => {
                Action::Connect
            }
            action => action,
        };
        match action {
            Action::Send => self.send(),
            Action::Deliver => self.deliver()?,
            Action::Turn => self.turn()?,
            Action::Journal => self.journal_step()?,
            Action::Advance => self.advance(),
            Action::Connect => self.connect()?,
            Action::Disconnect => {
                if let Some(client) = self.any_client() {
                    self.disconnect(client)?;
                }
            }
            Action::Stall => self.stall()?,
            Action::Settle => self.settle()?,
            Action::Crash => self.crash()?,
            Action::Stop => self.stop()?,
            Action::Fault => self.fault(),
            Action::Checkpoint => self.want_checkpoint(),
            Action::Snapshotter => self.checkpointer_step()?,
            Action::Room => {
                let life = &mut self.life;
                life.is_short_of_room = !life.is_short_of_room;
                life.instance.handle_room(life.is_short_of_room.then_some(4_096));
                self.trace.line(format_args!("{} the disk is full: {}", self.step, life.is_short_of_room));
            }
        }
        Ok(())
    }

    /// The end of the run: nothing may be left on its way, and a start must find everything again.
    pub(crate) fn finish(&mut self) -> Checked {
        self.step += 1;
        self.stop()
    }

    fn any_client(&mut self) -> Option<usize> {
        let clients: Vec<usize> = self.life.connections.keys().copied().collect();
        (!clients.is_empty()).then(|| *self.random.pick(&clients))
    }

    fn connect(&mut self) -> Checked {
        let client = self.random.below(self.plan.clients as u64) as usize;
        if self.life.connections.contains_key(&client) {
            return Ok(());
        }
        let trust = if self.random.one_in(2) { Trust::Admin } else { Trust::Loopback };
        let origin = Origin { peer: format!("client {client}"), trust };
        let limit = self.plan.instance.max_connections;
        match self.life.instance.connect(origin, self.now) {
            Ok(slot) => {
                hold!(self.life.connections.len() < limit, "more than {limit} connections were accepted");
                self.life.opened += 1;
                let number = self.life.opened;
                self.trace
                    .line(format_args!("{} client {client} connects as {number}, {trust:?}", self.step));
                self.life.connections.insert(client, Connection::new(slot, number, trust));
            }
            Err(refused) => {
                hold!(self.life.connections.len() >= limit, "{refused}");
            }
        }
        Ok(())
    }

    fn send(&mut self) {
        let Some(client) = self.any_client() else { return };
        let sessions = self.names.ids();
        let count = self.random.between(1, 4);
        for _ in 0..count {
            let Some(connection) = self.life.connections.get_mut(&client) else { return };
            if connection.is_broken || connection.in_flight() >= MOST_IN_FLIGHT {
                return;
            }
            let request = self.workload.request(&View {
                plan: &self.plan,
                model: &self.model,
                store: self.life.instance.store(),
                sessions: &sessions,
                connection: connection.number,
                trust: connection.trust,
                now: self.now,
            });
            let is_call_16 = self.random.one_in(8)
                && matches!(
                    request,
                    Request::Put { .. } | Request::Take { .. } | Request::Ack { .. } | Request::Peek { .. }
                );
            connection.last_sync += 1;
            let sync = connection.last_sync;
            request.encode(&self.plan.tubes, sync, is_call_16, &mut connection.inbound);
            self.trace.line(format_args!("{} client {client} sends {sync}: {request:?}", self.step));
            self.ledger.sent(&request);
            let sync = match request {
                Request::Malformed { how: Malformed::Length | Malformed::Header, .. } => 0,
                _ => sync,
            };
            connection.is_broken = matches!(request, Request::Malformed { how: Malformed::Length, .. });
            if !connection.is_broken {
                connection.sent.push_back(sync);
            }
            let awaited = Awaited { request, is_call_16, sent: self.step, outcome: None, is_handled: false };
            connection.awaited.entry(sync).or_default().push_back(awaited);
        }
    }

    fn deliver(&mut self) -> Checked {
        let pending = |connection: &Connection| connection.inbound.len() + connection.buffer.len() > 0;
        let clients: Vec<usize> =
            self.life.connections.iter().filter(|(_, c)| pending(c)).map(|(client, _)| *client).collect();
        if clients.is_empty() {
            return Ok(());
        }
        let client = *self.random.pick(&clients);
        if let Some(connection) = self.life.connections.get_mut(&client)
            && !connection.inbound.is_empty()
        {
            let length = connection.inbound.len() as u64;
            let count = if self.random.one_in(2) { length } else { self.random.between(1, length) };
            let arrived = connection.inbound.drain(..count as usize);
            connection.buffer.extend(arrived);
        }
        self.handle_buffer(client)
    }

    /// Handles the whole frames that the server has read, until it wants a pause.
    fn handle_buffer(&mut self, client: usize) -> Checked {
        loop {
            let Some(connection) = self.life.connections.get_mut(&client) else { return Ok(()) };
            if self.life.instance.is_paused(connection.slot) {
                return Ok(());
            }
            match frame::split(&connection.buffer, self.life.instance.max_frame_size()) {
                Ok(Split::Frame { content, consumed }) => {
                    let content = content.to_vec();
                    connection.buffer.drain(..consumed);
                    self.handle_frame(client, &content)?;
                }
                Ok(Split::NeedMore(_)) => return Ok(()),
                Err(error) => {
                    connection.buffer.clear();
                    connection.inbound.clear();
                    connection.sent.clear();
                    let (slot, number) = (connection.slot, connection.number);
                    self.life.instance.handle_broken_frame(slot, &error);
                    if let Some(awaited) = connection.undecided(0) {
                        awaited.is_handled = true;
                    }
                    let token = Token { connection: number, sync: 0 };
                    return self.settled_on(vec![(token, Answer::AnyFailure)]);
                }
            }
        }
    }

    fn handle_frame(&mut self, client: usize, content: &[u8]) -> Checked {
        let Some(connection) = self.life.connections.get_mut(&client) else { return Ok(()) };
        let sync = connection.sent.pop_front();
        let sync =
            sync.ok_or_else(|| Violation("the server has cut more frames than were sent".to_owned()))?;
        let (slot, trust) = (connection.slot, connection.trust);
        let token = Token { connection: connection.number, sync };
        let undecided = connection.awaited.get_mut(&sync);
        let awaited = undecided.and_then(|queue| queue.iter_mut().find(|awaited| !awaited.is_handled));
        let awaited = awaited.ok_or_else(|| Violation(format!("nobody awaits an answer to {sync}")))?;
        awaited.is_handled = true;
        let request = awaited.request.clone();
        self.totals.requests += 1;
        self.trace.line(format_args!("{} at {} {client}:{sync} is handled", self.step, self.now));
        let before = self.plan.memory.map(|_| self.model.clone());
        let mut answer = match self.life.has_failed {
            true => failed_answer(&request),
            false => self.expect(token, trust, &request),
        };
        self.life.instance.handle_frame(slot, content, self.now);
        if let Some(before) = before.filter(|_| may_want_memory(&request))
            && self.is_as_before(&before)
        {
            self.model = before;
            answer = Some(Answer::AnyFailure);
        }
        self.settled_on(answer.map(|answer| (token, answer)).into_iter().collect())
    }

    /// Whether a request that memory did not suffice for has changed nothing.
    fn is_as_before(&self, before: &Model) -> bool {
        let agrees =
            |model| agreement::tubes_agree(self.life.instance.store(), model, &self.plan.tubes).is_ok();
        !self.life.has_failed && !agrees(&self.model) && agrees(before)
    }

    /// Whether limits stand against a request whatever the queue would say to it.
    fn is_over_limit(&self, token: Token, request: &Request) -> bool {
        let is_there = request.tube().is_none_or(|tube| self.model.tubes.contains_key(&tube));
        let (waits, grows) = match request {
            Request::Take { timeout, .. } => (timeout.is_none_or(|timeout| timeout.0 > 0), false),
            Request::Put { options, .. } => (options.timeout.is_some_and(|timeout| timeout.0 > 0), true),
            Request::Row { change: RowChange::Insert(_), .. } => (false, true),
            Request::Create { .. } => return self.life.is_short_of_room,
            _ => (false, false),
        };
        let waiting = self.model.waiting_on(token.connection);
        let has_too_many = waits && waiting >= self.plan.instance.max_waiting;
        is_there && (has_too_many || grows && self.life.is_short_of_room)
    }

    /// Tells the model of a request.
    fn expect(&mut self, token: Token, trust: Trust, request: &Request) -> Option<Answer> {
        if self.is_over_limit(token, request) {
            return Some(Answer::AnyFailure);
        }
        match request {
            Request::Snapshot if trust != Trust::Admin => Some(Answer::AnyFailure),
            Request::Identify { session } => {
                let wanted = session.as_ref().map(|id| self.names.key(id));
                Some(self.model.identify(token.connection, wanted, self.now))
            }
            Request::Row { tube, space, .. } => {
                let present = self.life.instance.store().space_by_name(&self.plan.tubes[*tube].name);
                if trust != Trust::Admin || present.is_none_or(|present| present.id() != *space) {
                    return Some(Answer::AnyFailure);
                }
                self.model.request(token, request, self.now)
            }
            _ => self.model.request(token, request, self.now),
        }
    }

    /// Something has reached the instance: notes the answers that are determined now, and compares the spaces with the
    /// model.
    fn settled_on(&mut self, mut answers: Vec<(Token, Answer)>) -> Checked {
        answers.extend(self.model.take_woken());
        let signature = if self.life.has_failed { 0 } else { self.life.signature() };
        for (token, answer) in answers {
            let mut connections = self.life.connections.values_mut();
            let connection = connections.find(|connection| connection.number == token.connection);
            let awaited = connection.and_then(|connection| connection.undecided(token.sync));
            let awaited = awaited.ok_or_else(|| {
                Violation(format!("{token:?} is answered, and nobody waits for it: {answer:?}"))
            })?;
            awaited.outcome = Some(Outcome { answer, signature });
        }
        if self.life.has_failed { Ok(()) } else { self.compare(signature) }
    }

    pub(crate) fn compare(&mut self, signature: u64) -> Checked {
        let store = self.life.instance.store();
        agreement::tubes_agree(store, &self.model, &self.plan.tubes)?;
        agreement::sessions_agree(store, &self.model, &mut self.names)?;
        agreement::rules_hold(store, &self.plan.tubes)?;
        let (waiting, expected) = (self.life.instance.status().waiting_calls, self.model.waiting());
        let are_counted = !self.plan.wishes.iter().any(|(_, wish)| *wish == Wish::Snapshot);
        hold!(waiting == expected || !are_counted, "{waiting} calls wait, {expected} ought to");
        if self.history.back().is_none_or(|(last, _)| *last < signature) {
            self.history.push_back((signature, self.model.clone()));
        }
        Ok(())
    }

    /// Ends a turn as the server does.
    pub(crate) fn turn(&mut self) -> Checked {
        let next = self.life.instance.tick(self.now);
        if !self.life.has_failed {
            let mut ticked = self.model.clone();
            ticked.tick(self.now);
            if !self.is_held_up(next, &ticked) {
                self.model = ticked;
                self.settled_on(Vec::new())?;
                self.check_next(next)?;
            }
        }
        if self.life.instance.has_checkpoint() {
            let budget = Budget {
                rows: self.random.between(1, 120) as u32,
                bytes: self.random.between(1, 9_000) as usize,
            };
            if let Some(order) = self.life.instance.poll_checkpoint(budget) {
                self.life.checkpointer.send(order);
            }
        }
        if self.life.journal.is_idle()
            && let Some(batch) = self.life.instance.poll_append()
        {
            self.trace.line(format_args!(
                "{} a batch up to {}{}",
                self.step,
                batch.lsn,
                if batch.ends_file { ", which ends the file" } else { "" }
            ));
            self.trace.bytes(&batch.rows);
            self.shadow.append(&batch)?;
            self.life.journal.send(batch);
        }
        while let Some(slot) = self.life.instance.poll_ready() {
            self.write(slot)?;
        }
        while let Some(line) = self.life.instance.poll_log() {
            self.trace.line(format_args!("{} log: {}", self.step, line.text));
        }
        Ok(())
    }

    /// Whether a tick has done nothing because the journal is behind. `ticked`: what it would have led to.
    fn is_held_up(&self, next: Option<u64>, ticked: &Model) -> bool {
        let status = self.life.instance.status();
        next.is_none()
            && self.plan.instance.max_journal_backlog < MOST_ROWS_UNDER_WAY
            && self.shadow.last() < status.signature
            && (ticked.next_deadline().is_some()
                || ticked.waiting() != status.waiting_calls
                || agreement::tubes_agree(self.life.instance.store(), ticked, &self.plan.tubes).is_err())
    }

    /// The moment for which a tick wants to be called again must not be too late, nor now for nothing.
    fn check_next(&self, next: Option<u64>) -> Checked {
        let due = self.model.next_deadline();
        if let Some(due) = due {
            hold!(
                next.is_some_and(|next| next <= due.max(self.now)),
                "something is due at {due}, but the tick at {} asks to be called at {next:?}",
                self.now
            );
        }
        hold!(
            next.is_none_or(|next| next > self.now) || due.is_some_and(|due| due <= self.now),
            "the tick at {} asks to be called at {next:?} although nothing is due before {due:?}",
            self.now
        );
        Ok(())
    }

    /// Writes to a connection what its client takes.
    fn write(&mut self, slot: Slot) -> Checked {
        let mut connections = self.life.connections.iter_mut();
        let Some((&client, connection)) = connections.find(|(_, connection)| connection.slot == slot) else {
            return Err(Violation(format!(
                "there is something to write for a connection that is closed: {slot:?}"
            )));
        };
        if connection.is_blocked {
            return Ok(());
        }
        let ready = self.life.instance.output(slot);
        let length = ready.len();
        let count =
            if connection.is_stalled { self.random.below(length as u64 + 1) as usize } else { length };
        let arrived = ready[..count].to_vec();
        self.life.instance.consume(slot, count);
        connection.is_blocked = count < length;
        let replies = connection.receive(&arrived);
        let mut replies =
            replies.map_err(|error| Violation(format!("what the server writes are no frames: {error}")))?;
        if self.life.has_failed {
            // Calls that waited for a task are told of the failure in no particular order.
            replies.sort_unstable();
        }
        for reply in replies {
            self.check_reply(client, &reply)?;
        }
        if self.life.instance.wants_close(slot) && self.life.instance.pending_bytes(slot) == 0 {
            self.disconnect(client)?;
        }
        Ok(())
    }

    /// A reply reaches a client.
    fn check_reply(&mut self, client: usize, frame: &[u8]) -> Checked {
        self.totals.replies += 1;
        let decoded = reply::decode(frame);
        let decoded = decoded.map_err(|error| Violation(format!("a reply cannot be decoded: {error}")))?;
        let sync = decoded.sync;
        self.trace.line(format_args!(
            "{} {client}:{sync} is answered {}",
            self.step,
            shown(&decoded.content)
        ));
        let connection = self.life.connections.get_mut(&client);
        let awaited = connection.and_then(|connection| connection.answered(sync));
        let awaited = awaited.ok_or_else(|| {
            Violation(format!("client {client} gets an answer to {sync}, which it never sent"))
        })?;
        let Awaited { request, is_call_16, sent, outcome, .. } = awaited;
        let is_refusal =
            matches!(&decoded.content, Content::Error(error) if error.code == ErrorCode::WalIo as u32);
        let values = match &decoded.content {
            Content::Ok { data, .. } => Some(*data),
            _ => None,
        };
        let unreleased = outcome.as_ref().is_none_or(|outcome| outcome.signature > self.life.reported);
        if !(is_refusal && self.life.has_failed && unreleased) {
            let Outcome { answer, signature } = outcome.ok_or_else(|| {
                Violation(format!("{client}:{sync} is answered although it has to wait: {request:?}"))
            })?;
            hold!(
                self.agrees(&answer, is_call_16, &decoded.content),
                "{client}:{sync} {request:?} is answered {} instead of {answer:?}",
                shown(&decoded.content)
            );
            let durable = self.life.journal.durable();
            hold!(
                signature <= durable,
                "the answer to {client}:{sync} {request:?} has seen row {signature}, but only {durable} are durable"
            );
        }
        self.ledger.answered(&request, sent, self.step, values, &self.plan.tubes);
        Ok(())
    }

    fn agrees(&self, answer: &Answer, is_call_16: bool, content: &Content<'_>) -> bool {
        match (answer, content) {
            (Answer::AnyFailure | Answer::Snapshot, Content::Error(_)) => true,
            (Answer::Snapshot, Content::Ok { data, .. }) => data.ends_with(b"ok"),
            (Answer::Failure { code, text }, Content::Error(error)) => {
                error.code == *code as u32 && error.message == *text
            }
            (Answer::Values { count, bytes }, Content::Ok { data, .. }) => {
                let mut reader = Reader::new(data);
                let found = reader.array();
                let as_tuple: &[u8] = &[0x91, 0xc0];
                let expected = if is_call_16 && bytes == &[0xc0] { as_tuple } else { bytes };
                found == Ok(*count) && reader.rest() == expected
            }
            (Answer::Session(key), Content::Ok { data, .. }) => {
                let mut reader = Reader::new(data);
                let found = reader.array().and_then(|count| Ok((count, reader.str()?)));
                found.is_ok_and(|(count, id)| {
                    count == 1 && self.names.id(*key).is_some_and(|known| id == known)
                })
            }
            _ => false,
        }
    }

    pub(crate) fn disconnect(&mut self, client: usize) -> Checked {
        let Some(connection) = self.life.connections.remove(&client) else { return Ok(()) };
        self.trace.line(format_args!("{} client {client} is gone", self.step));
        self.life.instance.disconnect(connection.slot, self.now);
        for (_, awaited) in connection.unanswered() {
            self.ledger.abandoned(&awaited.request, self.step);
        }
        if self.life.has_failed {
            return Ok(());
        }
        self.model.disconnect(connection.number, self.now);
        self.settled_on(Vec::new())
    }

    pub(crate) fn journal_step(&mut self) -> Checked {
        let (what, done) = self.life.journal.step();
        self.trace.line(format_args!("{} journal: {what}", self.step));
        match done {
            None => {}
            Some(Done::Durable { lsn, buffers }) => {
                self.life.instance.handle_durable(lsn, buffers);
                self.life.reported = lsn;
                self.totals.batches += 1;
                self.shadow.advance(lsn)?;
                while self.history.get(1).is_some_and(|(signature, _)| *signature <= lsn) {
                    self.history.pop_front();
                }
            }
            Some(Done::Failed(cause)) => {
                self.trace.line(format_args!("{} the journal has failed: {cause}", self.step));
                self.life.instance.handle_failed(&cause);
                self.life.has_failed = true;
                self.totals.failures += 1;
            }
        }
        Ok(())
    }

    /// The operator wants a snapshot.
    fn want_checkpoint(&mut self) {
        if !self.life.has_failed {
            let is_due = self.life.instance.request_checkpoint();
            self.trace.line(format_args!("{} a snapshot is wanted: {is_due}", self.step));
        }
    }

    fn checkpointer_step(&mut self) -> Checked {
        let life = &mut self.life;
        let before = life.instance.checkpoint_status().count;
        let Some(step) = life.checkpointer.step(&mut life.instance, self.now) else { return Ok(()) };
        self.totals.snapshots += life.instance.checkpoint_status().count - before;
        self.trace.line(format_args!("{} snapshot {}", self.step, step.text));
        hold!(!step.has_failed || life.is_faulty, "a snapshot {}", step.text);
        Ok(())
    }

    fn advance(&mut self) {
        let soon = self.now + FAR;
        let due = self.model.next_deadline().filter(|due| *due < soon);
        self.now = match self.random.below(8) {
            0 => self.now + 1,
            1 => self.now + self.random.below(1_000),
            2 => self.now + self.random.below(300_000),
            3 => self.now + 250_000,
            4 => self.now + 1_000_000,
            5 if self.random.one_in(20) => self.now + self.random.below(4_000_000_000),
            6 if self.plan.backwards => self.now - self.random.below(2_000_000),
            _ => match due {
                Some(due) => self.now.max(due - self.random.below(2)),
                None => self.now + self.random.below(10_000_000),
            },
        };
        self.trace.line(format_args!("{} it is {}", self.step, self.now));
    }

    fn stall(&mut self) -> Checked {
        let Some(client) = self.any_client() else { return Ok(()) };
        let Some(connection) = self.life.connections.get_mut(&client) else { return Ok(()) };
        connection.is_stalled = !connection.is_stalled;
        self.trace.line(format_args!("{} client {client} reads: {}", self.step, !connection.is_stalled));
        if connection.is_stalled { Ok(()) } else { self.unblock(client) }
    }

    fn unblock(&mut self, client: usize) -> Checked {
        let Some(connection) = self.life.connections.get_mut(&client) else { return Ok(()) };
        connection.is_stalled = false;
        if std::mem::take(&mut connection.is_blocked) {
            let slot = connection.slot;
            self.write(slot)?;
        }
        Ok(())
    }

    /// Lets everything that is under way arrive, without time passing.
    pub(crate) fn settle(&mut self) -> Checked {
        self.trace.line(format_args!("{} all comes to rest", self.step));
        let clients: Vec<usize> = self.life.connections.keys().copied().collect();
        for client in &clients {
            self.unblock(*client)?;
        }
        loop {
            let before = self.totals;
            for client in &clients {
                let Some(connection) = self.life.connections.get_mut(client) else { continue };
                let arrived = std::mem::take(&mut connection.inbound);
                connection.buffer.extend(arrived);
                self.handle_buffer(*client)?;
            }
            self.turn()?;
            while !self.is_journal_at_rest() {
                self.journal_step()?;
            }
            while !self.life.checkpointer.is_idle() {
                self.checkpointer_step()?;
            }
            self.turn()?;
            let has_checkpoint = self.life.instance.has_checkpoint() || !self.life.checkpointer.is_idle();
            if self.totals == before && self.is_journal_at_rest() && !has_checkpoint {
                break;
            }
        }
        self.check_rest()
    }

    fn is_journal_at_rest(&self) -> bool {
        self.life.has_failed || self.life.journal.is_idle()
    }

    /// With nothing under way every request is answered, unless it waits for something to happen.
    fn check_rest(&self) -> Checked {
        for (client, connection) in &self.life.connections {
            for (sync, awaited) in connection.unanswered() {
                hold!(awaited.is_handled, "{client}:{sync} {:?} is never read", awaited.request);
                hold!(
                    awaited.outcome.is_none(),
                    "the answer to {client}:{sync} {:?} never leaves: {:?}{}",
                    awaited.request,
                    awaited.outcome,
                    if self.life.has_failed { " (the journal has failed)" } else { "" }
                );
            }
        }
        if !self.life.has_failed {
            let (reported, signature) = (self.life.reported, self.life.signature());
            hold!(
                reported == signature,
                "rows up to {signature} were committed, only {reported} were handed out"
            );
            hold!(
                self.life.instance.store().digest() == self.shadow.digest(),
                "the data are not what the rows up to {signature} make"
            );
        }
        Ok(())
    }

    fn fault(&mut self) {
        let operations = self.random.below(4);
        let fault = match self.random.below(3) {
            0 => Fault::Fail(std::io::ErrorKind::StorageFull),
            1 => Fault::Fail(std::io::ErrorKind::Other),
            _ => Fault::ShortWrite(self.random.below(300) as usize),
        };
        self.trace.line(format_args!("{} {fault:?} after {operations} operations", self.step));
        self.disk.fail_after(operations, fault);
        self.life.is_faulty = true;
    }
}

/// What a request is answered once the journal has failed.
fn failed_answer(request: &Request) -> Option<Answer> {
    Some(match request {
        Request::Ping => Answer::nothing(),
        _ => Answer::AnyFailure,
    })
}

/// Whether a request may find that memory does not suffice.
fn may_want_memory(request: &Request) -> bool {
    matches!(
        request,
        Request::Put { .. } | Request::Create { .. } | Request::Truncate { .. } | Request::Row { .. }
    )
}

fn shown(content: &Content<'_>) -> String {
    match content {
        Content::Ok { data, .. } | Content::Push { data } => match lycosa_tuple::value::Value::decode(data) {
            Ok(value) => value.to_string(),
            Err(error) => format!("undecodable bytes: {error}"),
        },
        Content::Error(error) => format!("error {}: {}", error.code, error.message),
    }
}
