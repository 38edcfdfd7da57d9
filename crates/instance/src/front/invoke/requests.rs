//! Requests to the program: functions and statements that a front hands to the host, and their answers.

use super::{Invoke, InvokeKind, MAX_DENIED};
use crate::front::Front;
use crate::front::caller::{FrameReply, ParkedCall, ReplyTo};
use crate::front::names::refined;
use crate::front::waits_for::WaitsFor;
use crate::shard::Shard;
use crate::{Caller, ConnectionSlot, Instance, RequestId, Result};
use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::reply;

impl Instance {
    /// Whether refused accesses of clients are kept for [`Self::poll_denied`].
    pub fn watch_denied(&mut self, watched: bool) {
        self.front.denied.watched = watched;
        if !watched {
            self.front.denied.queue.clear();
        }
    }

    /// The next refused access of a client: the caller, and the error object.
    pub fn poll_denied(&mut self) -> Option<(Caller, ErrorObject)> {
        self.front.denied.queue.pop_front()
    }

    /// The next request for a program, of a session that `may_begin` one.
    pub fn poll_invoke(&mut self, may_begin: impl Fn(u64) -> bool) -> Option<Invoke> {
        self.front.invokes.pop(may_begin)
    }

    /// Whether [`Self::poll_invoke`] would give a request.
    pub fn may_begin_invoke(&self, may_begin: impl Fn(u64) -> bool) -> bool {
        self.front.invokes.has_next(may_begin)
    }

    /// Whether there are requests that no program has begun.
    pub fn has_invokes(&self) -> bool {
        !self.front.invokes.is_empty()
    }

    /// Whether an answer to the request would reach its caller.
    pub fn is_awaited(&self, request: RequestId) -> bool {
        self.front.parked.get(request).is_some()
    }

    /// A program has ended: answers the request with the number of its values and the values back to back. Nothing if
    /// the caller is gone.
    pub fn finish_invoke(&mut self, request: RequestId, result: Result<(u32, &[u8])>) {
        self.front.answer(&self.shard, request, result.map_err(refined));
    }

    /// As [`Self::finish_invoke`], for an answer that is no list of values: `body` is the MessagePack map of the reply.
    pub fn finish_invoke_with_body(&mut self, request: RequestId, body: &[u8]) {
        self.front.answer_with_body(&self.shard, request, body);
    }

    /// Sends a value to the caller of a program before its answer (`box.session.push`). `value` is one MessagePack value.
    ///
    /// # Errors
    /// The caller is no connection, or is gone.
    pub fn push(&mut self, request: RequestId, value: &[u8]) -> Result<()> {
        let Some(call) = self.front.parked.get(request) else {
            let code = ErrorCode::SessionClosed;
            return Err(ErrorObject::client(code, code.template()));
        };
        let ReplyTo::Frame(FrameReply { slot, sync, .. }) = call.reply else {
            let message = "Session of the caller does not support push()";
            return Err(ErrorObject::client(ErrorCode::Unsupported, message));
        };
        let schema_version = self.shard.store().schema_version();
        if let Some(connection) = self.front.connections.get_mut(slot) {
            reply::push(connection.replies.buffer(), sync, schema_version, value);
            self.front.finish_reply(&self.shard, slot);
            self.front.account_output(slot);
        }
        Ok(())
    }
}

impl Front {
    /// Answers a request that is refused before any program has run for it.
    pub(crate) fn refuse_request(&mut self, shard: &Shard, to: FrameReply, error: &ErrorObject) {
        self.note_denied(to.slot, error);
        self.reply_error(shard, to, error);
    }

    /// Tells programs of a refusal for want of a privilege, if they watch for those.
    pub(crate) fn note_denied(&mut self, slot: ConnectionSlot, error: &ErrorObject) {
        if self.denied.watched
            && error.code == u32::from(ErrorCode::AccessDenied)
            && self.denied.queue.len() < MAX_DENIED
            && let Some(caller) = self.caller(slot)
        {
            self.denied.queue.push_back((caller, error.clone()));
        }
    }

    /// Parks a request until a program has run.
    pub(crate) fn invoke(
        &mut self,
        caller: Caller,
        kind: InvokeKind,
        args: &[u8],
        reply: ReplyTo,
    ) -> RequestId {
        let request = self.parked.next_request(caller.session);
        let invoke = Invoke { request, share: caller.session, caller, kind, args: args.to_vec() };
        self.park(request, ParkedCall { reply, waits_for: WaitsFor::Program { bytes: invoke.bytes() } });
        self.invokes.push(invoke);
        request
    }
}
