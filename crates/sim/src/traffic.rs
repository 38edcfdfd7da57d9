//! Clients and what passes between them and the server: bytes cut anywhere, requests, and replies, each of which is held
//! against the answer that was noted when it was determined.

use lycosa_instance::{ADMIN_CONNECTIONS, ConnectionSlot, Origin, Trust};
use lycosa_iproto::error::ErrorCode;
use lycosa_iproto::frame::{self, Split};
use lycosa_iproto::reply::{self, Content};
use lycosa_tuple::mp::Reader;
use lycosa_tuple::value::Value;

use crate::agreement;
use crate::connection::{Awaited, Connection, Outcome};
use crate::extended;
use crate::model::{Answer, Model, Token};
use crate::request::{Malformed, Request, RowChange};
use crate::simulation::Simulation;
use crate::trace;
use crate::violation::{Checked, Violation, hold};
use crate::workload::WorkloadContext;

/// Requests that a client leaves unanswered before it waits.
const MAX_IN_FLIGHT: usize = 40;

impl Simulation<'_> {
    pub(crate) fn any_client(&mut self) -> Option<usize> {
        let clients: Vec<usize> = self.life.connections.keys().copied().collect();
        (!clients.is_empty()).then(|| *self.random.pick(&clients))
    }

    pub(crate) fn connect(&mut self) -> Checked {
        let client = self.random.below(self.plan.clients as u64) as usize;
        if self.life.connections.contains_key(&client) {
            return Ok(());
        }
        let trust = if self.random.one_in(2) { Trust::Admin } else { Trust::Loopback };
        let origin = Origin { peer: format!("client {client}"), trust };
        let reserve = if trust == Trust::Admin { ADMIN_CONNECTIONS } else { 0 };
        let limit = self.plan.instance.max_connections + reserve;
        match self.life.instance.connect(origin, self.now) {
            Ok(slot) => {
                hold!(self.life.connections.len() < limit, "more than {limit} connections were accepted");
                self.life.opened += 1;
                let number = self.life.opened;
                self.trace
                    .line(format_args!("{} client {client} connects as {number}, {trust:?}", self.step));
                self.life.connections.insert(client, Connection::new(slot, number, trust));
                if trust == Trust::Admin {
                    self.model.admins.insert(number);
                }
            }
            Err(refused) => {
                hold!(self.life.connections.len() >= limit, "{refused}");
            }
        }
        Ok(())
    }

    pub(crate) fn send(&mut self) {
        let Some(client) = self.any_client() else { return };
        let count = self.random.between(1, 4);
        for _ in 0..count {
            let Some(connection) = self.life.connections.get_mut(&client) else { return };
            if connection.is_broken || connection.in_flight() >= MAX_IN_FLIGHT {
                return;
            }
            let request = self.workload.request(&WorkloadContext {
                plan: &self.plan,
                model: &self.model,
                store: self.life.instance.store(),
                names: &self.names,
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
            let malformed = match request {
                Request::Malformed { how, .. } => Some(how),
                _ => None,
            };
            connection.is_broken = match malformed {
                Some(Malformed::Length | Malformed::Header) => true,
                // Nothing valid came before it.
                Some(Malformed::Body) => connection.last_sync == 1,
                _ => false,
            };
            if malformed != Some(Malformed::Length) {
                connection.sent.push_back(sync);
            }
            let awaited = Awaited { request, is_call_16, sent: self.step, outcome: None, is_handled: false };
            connection.awaited.entry(sync).or_default().push_back(awaited);
        }
    }

    pub(crate) fn deliver(&mut self) -> Checked {
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
    pub(crate) fn handle_buffer(&mut self, client: usize) -> Checked {
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
                    self.life.instance.refuse(slot, &error.into());
                    if let Some(awaited) = connection.undecided(0) {
                        awaited.is_handled = true;
                    }
                    let token = Token { connection: number, sync: 0 };
                    return self.check_answers(vec![(token, Answer::AnyFailure)]);
                }
            }
        }
    }

    pub(crate) fn handle_frame(&mut self, client: usize, content: &[u8]) -> Checked {
        let Some(connection) = self.life.connections.get_mut(&client) else { return Ok(()) };
        let sync = connection.sent.pop_front();
        let sync =
            sync.ok_or_else(|| Violation("the server has cut more frames than were sent".to_owned()))?;
        let (slot, trust) = (connection.slot, connection.trust);
        let token = Token { connection: connection.number, sync };
        let undecided = connection.awaited.get_mut(&sync);
        let awaited = undecided.and_then(|queue| queue.iter_mut().find(|awaited| !awaited.is_handled));
        let awaited = awaited.ok_or_else(|| Violation(format!("nobody awaits an answer to {sync}")))?;
        let request = awaited.request.clone();
        if self.model.has_long_walk(&request) {
            return self.disconnect(client);
        }
        awaited.is_handled = true;
        self.totals.requests += 1;
        self.life.turn.received(1);
        self.trace.line(format_args!("{} at {} {client}:{sync} is handled", self.step, self.now));
        let before =
            self.plan.memory.map(|_| (self.model.clone(), self.life.instance.status().requests.errors));
        let mut answer = match self.life.has_failed {
            true => failed_answer(&request),
            false => self.expect(token, trust, &request),
        };
        if let Err(broken) = self.life.instance.handle_frame(slot, content, self.now) {
            self.life.instance.refuse(slot, &broken);
            if let Some(connection) = self.life.connections.get_mut(&client) {
                hold!(connection.is_broken, "a sound frame has broken the connection: {broken:?}");
                connection.buffer.clear();
                connection.inbound.clear();
                connection.sent.clear();
            }
        }
        if let Some((before, errors)) = before.filter(|_| may_want_memory(&request))
            && self.life.instance.status().requests.errors > errors
            && !answer.as_ref().is_some_and(Answer::is_failure)
        {
            hold!(
                self.is_as_before(&before),
                "{client}:{sync} {request:?} is refused and has changed something"
            );
            self.model = before;
            answer = Some(Answer::AnyFailure);
        }
        self.check_answers(answer.map(|answer| (token, answer)).into_iter().collect())
    }

    /// Whether a request that memory did not suffice for has changed nothing.
    fn is_as_before(&self, before: &Model) -> bool {
        agreement::tubes_agree(self.life.instance.store(), before, &self.plan.tubes).is_ok()
    }

    /// Whether a disk that is short of space stands against a request, without a question to the queue.
    pub(crate) fn wants_room(&self, request: &Request) -> bool {
        let is_there = request.tube().is_none_or(|tube| self.model.tubes.contains_key(&tube));
        self.life.is_short_of_room
            && match request {
                Request::Put { .. } | Request::PutMany { .. } => is_there,
                // Rows of a temporary space go to no disk.
                Request::Row { tube, change: RowChange::Insert(_), .. } => {
                    is_there && !self.plan.tubes[*tube].temporary
                }
                Request::Create { .. } => true,
                _ => false,
            }
    }

    /// Tells the model of a request that may have to wait. A connection that has too many calls waiting is refused
    /// exactly that, and nothing has changed then, but for the end of a lost call.
    pub(crate) fn expect_or_wait(&mut self, token: Token, request: &Request) -> Option<Answer> {
        // A repetition counts the call that it ends, and that call stays ended if the repetition is refused.
        let may_wait = self.model.waiting_on(token.connection) < self.plan.instance.max_waiting;
        if let Some(answer) = self.model.repeated(token.connection, request) {
            self.totals.again += 1;
            return Some(answer);
        }
        if may_wait {
            return self.model.request(token, request, self.now);
        }
        let before = self.model.clone();
        let answer = self.model.request(token, request, self.now);
        if answer.is_none() {
            self.model = before;
            return Some(Answer::AnyFailure);
        }
        answer
    }

    /// Tells the model of a request.
    pub(crate) fn expect(&mut self, token: Token, trust: Trust, request: &Request) -> Option<Answer> {
        if self.wants_room(request) {
            return Some(Answer::AnyFailure);
        }
        match request {
            Request::Snapshot if trust != Trust::Admin => Some(Answer::AnyFailure),
            Request::Identify { session } => {
                let wanted = session.as_ref().map(|id| self.names.key(id));
                Some(self.model.identify(token.connection, wanted, self.now))
            }
            Request::Settle { tube, token: lease, how } => {
                let key = self.names.lease(lease);
                Some(self.model.settle(*tube, (lease, key), *how, self.now))
            }
            Request::Row { tube, space, .. } => {
                let present = self.life.instance.store().space_by_name(&self.plan.tubes[*tube].name);
                if trust != Trust::Admin || present.is_none_or(|present| present.id() != *space) {
                    return Some(Answer::AnyFailure);
                }
                self.model.request(token, request, self.now)
            }
            _ => self.expect_or_wait(token, request),
        }
    }

    /// Writes to a connection what its client takes.
    pub(crate) fn write_replies(&mut self, slot: ConnectionSlot) -> Checked {
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
            // Calls that waited for a task get the failure in no particular order. Calls with one sync,
            // because it could not be read, are answered in theirs.
            replies.sort_by_key(|reply| reply::decode(reply).map_or(0, |reply| reply.sync));
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
    pub(crate) fn check_reply(&mut self, client: usize, frame: &[u8]) -> Checked {
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
        if request == Request::Snapshot
            && values.is_some()
            && let Some(outcome) = &outcome
        {
            let sound = self.life.checkpointer.sound();
            hold!(
                sound >= outcome.signature,
                "{client}:{sync} is told that there is a snapshot of {} rows, but the newest is of {sound}",
                outcome.signature
            );
        }
        let unreleased = outcome.as_ref().is_none_or(|outcome| outcome.signature > self.life.reported);
        if !(is_refusal && self.life.has_failed && unreleased) {
            let Outcome { answer, seen, .. } = outcome.ok_or_else(|| {
                Violation(format!("{client}:{sync} is answered although it has to wait: {request:?}"))
            })?;
            hold!(
                self.agrees(&answer, is_call_16, &decoded.content),
                "{client}:{sync} {request:?} is answered {} instead of {answer:?}",
                shown(&decoded.content)
            );
            match (&answer, &request) {
                (Answer::Extended { tasks, .. }, _) => {
                    let told = tasks.iter().filter(|task| task.has_token).count() as u64;
                    self.totals.leases += told;
                    self.totals.extended += tasks.len() as u64 - told;
                }
                (Answer::Failure { .. }, Request::Settle { .. }) => self.totals.stale += 1,
                (Answer::Job { .. }, _) => self.totals.jobs += 1,
                (Answer::Found { .. }, _) => self.totals.pages += 1,
                _ => {}
            }
            let durable = self.life.journal.durable();
            // A PING has seen no data.
            hold!(
                seen <= durable || request == Request::Ping,
                "the answer to {client}:{sync} {request:?} has seen row {seen}, but only {durable} are durable"
            );
        }
        self.ledger.answered(&request, sent, self.step, values, &self.plan.tubes);
        Ok(())
    }

    pub(crate) fn agrees(&self, answer: &Answer, is_call_16: bool, content: &Content<'_>) -> bool {
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
            (Answer::Tasks { count, bytes }, Content::Ok { data, .. }) => {
                let mut reader = Reader::new(data);
                let found = reader.array().and_then(|values| Ok((values, reader.array()?)));
                found == Ok((1, *count)) && reader.rest() == bytes
            }
            (Answer::Extended { tasks, is_array }, Content::Ok { data, .. }) => {
                extended::agree(tasks, *is_array, data, &self.names, self.plan.is_steered())
            }
            (Answer::Found { ids, scanned, is_end }, Content::Ok { data, .. }) => {
                Value::decode(data).is_ok_and(|values| page_agrees(&values, ids, *scanned, *is_end))
            }
            (Answer::Job { id, state, changed }, Content::Ok { data, .. }) => {
                Value::decode(data).is_ok_and(|values| job_agrees(&values, *id, state, *changed))
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
        self.check_answers(Vec::new())
    }

    pub(crate) fn stall(&mut self) -> Checked {
        let Some(client) = self.any_client() else { return Ok(()) };
        let Some(connection) = self.life.connections.get_mut(&client) else { return Ok(()) };
        connection.is_stalled = !connection.is_stalled;
        self.trace.line(format_args!("{} client {client} reads: {}", self.step, !connection.is_stalled));
        if connection.is_stalled { Ok(()) } else { self.unblock(client) }
    }

    pub(crate) fn unblock(&mut self, client: usize) -> Checked {
        let Some(connection) = self.life.connections.get_mut(&client) else { return Ok(()) };
        connection.is_stalled = false;
        if std::mem::take(&mut connection.is_blocked) {
            let slot = connection.slot;
            self.write_replies(slot)?;
        }
        Ok(())
    }
}

/// Whether the value of an answer is a page of these tasks.
fn page_agrees(values: &Value, ids: &[u64], scanned: u64, is_end: bool) -> bool {
    let read = || {
        let page = values.as_array()?.first()?;
        let tasks = page.get("tasks")?.as_array()?;
        let found =
            tasks.iter().map(|task| task.as_array()?.first()?.as_u64()).collect::<Option<Vec<_>>>()?;
        let has_more = page.get("cursor").is_some();
        Some(found == ids && page.get("scanned")?.as_u64()? == scanned && has_more != is_end)
    };
    read().unwrap_or(false)
}

/// Whether the value of an answer is this job.
fn job_agrees(values: &Value, id: u64, state: &str, changed: u64) -> bool {
    let read = || {
        let job = values.as_array()?.first()?;
        let found = job.get("changed").or_else(|| job.get("undone"))?.as_u64()?;
        Some(job.get("id")?.as_u64()? == id && job.get("state")?.as_str()? == state && found == changed)
    };
    read().unwrap_or(false)
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
        Request::Put { .. } | Request::PutMany { .. } | Request::Create { .. } | Request::Row { .. }
    )
}

/// Bytes of a reply from which on only its length and a hash stand in the course.
const LONG_REPLY: usize = 1 << 10;

fn shown(content: &Content<'_>) -> String {
    match content {
        Content::Ok { data, .. } | Content::Push { data } if data.len() > LONG_REPLY => {
            format!("{} bytes, hash {:016x}", data.len(), trace::hash(data))
        }
        Content::Ok { data, .. } | Content::Push { data } => match Value::decode(data) {
            Ok(value) => value.to_string(),
            Err(error) => format!("undecodable bytes: {error}"),
        },
        Content::Error(error) => format!("error {}: {}", error.code, error.message),
    }
}
