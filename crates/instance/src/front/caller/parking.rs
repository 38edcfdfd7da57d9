//! Calls of a front that are parked, answered and taken back.

use super::{Answered, ParkedCall, ReplyTo};
use crate::front::Front;
use crate::front::call_16::to_call_16;
use crate::shard::Shard;
use crate::shard::request::NULL;
use crate::{ConnectionSlot, Instance, RequestId, Result, Settings};
use lycosa_iproto::error::ErrorObject;
use lycosa_iproto::keys::RequestType;
use lycosa_iproto::{keys, reply};
use lycosa_queue::{Caller, CallerKind};
use lycosa_store::{Access, user};

impl Instance {
    /// The caller behind a connection.
    pub fn caller(&self, slot: ConnectionSlot) -> Option<Caller> {
        self.front.caller(slot)
    }

    /// Opens a session for a caller that is no connection; returns its number. It lasts until [`Self::close_session`].
    pub fn open_session(&mut self) -> u64 {
        self.front.connections.next_id()
    }

    /// Ends a session of [`Self::open_session`]: its parked calls are forgotten, and its tasks are released, as when a
    /// connection closes.
    pub fn close_session(&mut self, session: u64, now: u64) {
        self.input(now, |instance| instance.end_session(session));
    }

    /// Ends a session for the queue alone: its tasks are released, as when a connection closes, and its waiting calls are
    /// answered with null. The session goes on.
    pub fn disconnect_session(&mut self, session: u64, now: u64) {
        self.input(now, |instance| {
            instance.end_waiting(session, &Ok((1, NULL)));
            instance.shard.data().disconnect(session);
        });
    }

    fn end_waiting(&mut self, session: u64, result: &Result<(u32, &[u8])>) {
        for request in self.front.parked.waiting_of(session) {
            self.shard.cancel(request);
            self.front.answer(&self.shard, request, result.clone());
        }
    }

    pub(crate) fn end_session(&mut self, session: u64) {
        self.front.parked.forget_session(session);
        self.front.invokes.end_session(session);
        self.shard.end_session(session);
    }

    /// The rule for `guest` has ended, and with it what guests wait for.
    pub(crate) fn dismiss_guests(&mut self) {
        let Err(error) = self.shard.check_universe(user::GUEST, Access::EXECUTE) else { return };
        let rule = Settings { guest_on_loopback: true, ..self.front.settings.clone() };
        let guests = self.front.connections.iter().filter(|connection| connection.is_trusted(&rule));
        let guests: Vec<_> = guests.map(|connection| connection.id).collect();
        let refused = Err(error);
        self.settle(|instance| guests.iter().for_each(|&guest| instance.end_waiting(guest, &refused)));
    }

    /// The number that a client gave a parked request; `None` if no client asks, or it was answered.
    pub fn sync_of(&self, request: RequestId) -> Option<u64> {
        if let ReplyTo::Frame(to) = self.front.parked.get(request)?.reply { Some(to.sync) } else { None }
    }

    /// Forgets a parked call of a caller that is no connection, a cancelled fiber for example: it is not answered any
    /// more. A take or put that waits gives up its place; a long call and a program go on.
    pub fn cancel(&mut self, request: RequestId) {
        if let Some(ParkedCall { reply: ReplyTo::Caller(_), .. }) = self.front.parked.get(request) {
            self.front.parked.calls.remove(&request);
            self.settle(|instance| instance.shard.cancel(request));
        }
    }

    /// The next answer of a parked call of a caller that is neither a connection nor HTTP.
    pub fn poll_answer(&mut self) -> Option<Answered> {
        self.front.parked.answers.pop_front()
    }

    /// The next answer of a parked call over HTTP.
    pub fn poll_http_answer(&mut self) -> Option<Answered> {
        self.front.parked.http_answers.pop_front()
    }
}

impl Front {
    /// The caller behind a connection.
    pub(crate) fn caller(&self, slot: ConnectionSlot) -> Option<Caller> {
        let connection = self.connections.get(slot)?;
        Some(Caller {
            kind: CallerKind::Connection,
            session: connection.id,
            user: connection.user,
            effective: connection.user,
            trusted: connection.is_trusted(&self.settings),
            may_wait: connection.waiting < self.settings.max_waiting,
            token: None,
        })
    }

    /// Notes a call whose answer comes later.
    pub(crate) fn park(&mut self, request: RequestId, call: ParkedCall) {
        if let ReplyTo::Frame(to) = call.reply {
            self.connections.count_parked(to.slot, call.waits_for);
        }
        self.parked.calls.insert(request, call);
    }

    /// Takes a parked call off the list; the caller of this function answers it.
    pub(crate) fn unpark(&mut self, request: RequestId) -> Option<ParkedCall> {
        let call = self.parked.calls.remove(&request)?;
        if let ReplyTo::Frame(to) = call.reply {
            self.connections.count_answered(to.slot, call.waits_for);
        }
        Some(call)
    }

    /// Answers a parked call. Nothing if it is not there: its session has ended.
    pub(crate) fn answer(&mut self, shard: &Shard, request: RequestId, result: Result<(u32, &[u8])>) {
        let Some(ParkedCall { reply, .. }) = self.unpark(request) else { return };
        let to = match reply {
            ReplyTo::Frame(to) => to,
            ReplyTo::Caller(kind) => {
                let result = result.map(|(count, values)| (count, values.to_vec()));
                let lsn = shard.journaling().awaited();
                let answered = Answered { request, kind, lsn, result };
                match kind {
                    CallerKind::Http => self.parked.http_answers.push_back(answered),
                    _ => self.parked.answers.push_back(answered),
                }
                return;
            }
        };
        let schema_version = shard.store().schema_version();
        let Some(connection) = self.connections.get_mut(to.slot) else { return };
        match result {
            Ok((count, bytes)) => {
                let out = connection.replies.buffer();
                let start = reply::begin_data(out, to.sync);
                out.extend_from_slice(bytes);
                let count = if to.is_call_16 { to_call_16(out, start.values(), count) } else { count };
                reply::finish_data(out, start, count, schema_version);
                self.finish_reply(shard, to.slot);
                self.account_output(to.slot);
            }
            Err(error) => {
                self.counts.set_type(RequestType::Call);
                self.reply_error(shard, to, &error);
            }
        }
    }

    /// Answers a parked request of a connection with a body of its own. Nothing if it is not there.
    pub(crate) fn answer_with_body(&mut self, shard: &Shard, request: RequestId, body: &[u8]) {
        let Some(ParkedCall { reply: ReplyTo::Frame(to), .. }) = self.unpark(request) else { return };
        let schema_version = shard.store().schema_version();
        let Some(connection) = self.connections.get_mut(to.slot) else { return };
        let out = connection.replies.buffer();
        let start = reply::begin(out, keys::CODE_OK, to.sync, schema_version);
        out.extend_from_slice(body);
        reply::finish(out, start);
        self.finish_reply(shard, to.slot);
        self.account_output(to.slot);
    }

    /// Answers every parked call with an error.
    pub(crate) fn answer_all(&mut self, shard: &Shard, error: &ErrorObject) {
        for request in self.parked.requests() {
            self.answer(shard, request, Err(error.clone()));
        }
    }
}
