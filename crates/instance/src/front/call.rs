//! CALL and EVAL: functions run for a caller, and their values become replies.
//!
//! A connection, a fiber, an HTTP request and a native function take one way: `Shard::call` for the queue,
//! [`Instance::poll_invoke`] for programs. Absent: what a name stands for (`front/names.rs`).

use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::reply;
use lycosa_queue::{Answer, Caller, CallerKind, Command, Concern, Procedure, QueueMethod, Right};
use lycosa_store::Access;
use lycosa_tuple::mp;

use crate::front::Front;
use crate::front::boxes::Function;
use crate::front::call_16::to_call_16;
use crate::front::callee::Callee;
use crate::front::caller::{FrameReply, ParkedCall, ReplyTo};
use crate::front::loop_time::Outside;
use crate::front::names::{MAX_NAME, name_too_long, not_defined, right_by_name};
use crate::front::waits_for::WaitsFor;
use crate::shard::admission::Need;
use crate::shard::checkpoint::Snapshot;
use crate::shard::expiration_tasks::Asker;
use crate::shard::request::Refusal;
use crate::{Called, ConnectionSlot, Instance, InvokeKind, RequestId, Result};

/// Whether a function reads and changes no data.
fn is_about_instance(name: &[u8]) -> bool {
    let of_box = name.strip_prefix(b"box.");
    matches!(of_box, Some(b"info" | b"cfg" | b"ctl.promote" | b"ctl.demote" | b"stat" | b"slab.info"))
        || name == b"queue.status"
}

impl Instance {
    /// CALL on a connection. `args` is a MessagePack array. The parts of the [`FrameReply`] come one by one, measured: as one value
    /// they would be packed and unpacked.
    pub(crate) fn handle_call(
        &mut self,
        slot: ConnectionSlot,
        sync: u64,
        name: &[u8],
        args: &[u8],
        is_call_16: bool,
    ) {
        let to = FrameReply { slot, sync, is_call_16 };
        let done = match self.front.resolved(&self.shard, to.slot, name) {
            Some(Callee::Queue(procedure, right)) if procedure.is_of_one_task() => {
                self.call_for_reply(to, &procedure, right, args)
            }
            _ => self.resolve_and_call(to, name, args),
        };
        if let Err(error) = done {
            self.front.refuse_request(&self.shard, to, &error);
        }
    }

    fn resolve_and_call(&mut self, to: FrameReply, name: &[u8], args: &[u8]) -> Result<()> {
        if name.len() > MAX_NAME {
            return Err(name_too_long(name));
        }
        match self.front.resolve(&self.shard, to.slot, name)? {
            Some(Callee::Queue(procedure, right)) if procedure.is_of_one_task() => {
                self.call_rarely(to, &procedure, right, args)
            }
            Some(Callee::Queue(procedure, _)) if self.front.defers(&procedure, args) => Ok(()),
            target => self.measured(Outside::Request, |instance| match target {
                Some(Callee::Queue(procedure, right)) => instance.call_rarely(to, &procedure, right, args),
                _ => instance.call_elsewhere(to, target, name, args),
            }),
        }
    }

    /// Calls a function, native or a program's, on behalf of any caller. Its values are appended to `out` unless the
    /// call is parked.
    ///
    /// # Errors
    /// What the function raises; no such function; no right to execute it.
    pub fn call(&mut self, caller: &Caller, name: &[u8], args: &[u8], out: &mut Vec<u8>) -> Result<Called> {
        if let Some(token) = caller.token {
            return self.call_with_token(token, caller, name, args, out);
        }
        let target = self.front.find(&self.shard, name);
        self.front.check_execute(&self.shard, caller, name, target)?;
        self.call_admitted(caller, name, target, args, out)
    }

    /// As [`Self::call`], of a caller who may call it.
    pub(crate) fn call_admitted(
        &mut self,
        caller: &Caller,
        name: &[u8],
        target: Option<Callee>,
        args: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Called> {
        match target {
            Some(Callee::Queue(procedure, _)) => {
                let right = right_by_name(&self.shard, caller.effective, &procedure, name);
                self.call_resolved(caller, (&procedure, right), args, out)
            }
            target => self.settle(|instance| {
                instance.call_target(caller, target, name, args, ReplyTo::Caller(caller.kind), out)
            }),
        }
    }

    /// Calls a native function. A program's module that stands for native functions calls this: one of a tube that the
    /// queue has left out would otherwise be looked for in the program, and the module would call itself for ever.
    ///
    /// # Errors
    /// What the function raises; there is no native function of that name; no right to execute it. No such right is needed for
    /// functions that a program's code has of its own: their changes need rights themselves.
    pub fn call_native(
        &mut self,
        caller: &Caller,
        name: &[u8],
        args: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Called> {
        match self.front.find(&self.shard, name) {
            Some(Callee::Box(function)) if caller.token.is_none() && function.is_of_programs() => {
                self.call_admitted(caller, name, Some(Callee::Box(function)), args, out)
            }
            Some(_) => self.call(caller, name, args, out),
            None => Err(not_defined(name)),
        }
    }

    /// Whether the caller may call a function, native or a program's.
    ///
    /// # Errors
    /// No right to execute it.
    pub fn check_call(&self, caller: &Caller, name: &[u8]) -> Result<()> {
        self.front.check_execute(&self.shard, caller, name, self.front.find(&self.shard, name))
    }

    /// Whether a name is that of a native function. Functions of C modules exist once they are registered.
    #[must_use]
    pub fn has_function(&self, name: &[u8]) -> bool {
        self.front.find(&self.shard, name).is_some()
    }

    /// What a name stands for natively, for [`Self::call_queue`].
    pub fn procedure(&self, name: &[u8]) -> Option<Procedure> {
        self.shard.queue().resolve(name)
    }

    /// Calls a procedure of the queue on behalf of any caller, without asking for the right to execute it. It joins
    /// the open transaction if there is one; then nothing waits.
    ///
    /// # Errors
    /// What the procedure raises.
    pub fn call_queue(
        &mut self,
        caller: &Caller,
        procedure: &Procedure,
        args: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Called> {
        let right = Right::inside(self.shard.store(), caller.effective, procedure);
        self.call_resolved(caller, (procedure, right), args, out)
    }

    fn call_resolved(
        &mut self,
        caller: &Caller,
        (procedure, right): (&Procedure, Right),
        args: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Called> {
        self.settle(|instance| {
            let request = instance.front.parked.next_request(caller.session);
            let concern = Concern::NONE;
            let command = Command { procedure, right, request: request.number, arguments: args, concern };
            match instance.shard.call(caller, &command, out) {
                Ok(Answer::Done { count }) => Ok(Called::Done { count }),
                Ok(Answer::Parked) => {
                    let reply = ReplyTo::Caller(caller.kind);
                    instance.front.park(request, ParkedCall { reply, waits_for: WaitsFor::Event });
                    Ok(Called::Parked(request))
                }
                Err(refusal) => Err(instance.front.refusal(caller.kind, refusal)),
            }
        })
    }

    /// As [`Self::call_for_reply`], for the rare callers.
    #[inline(never)]
    fn call_rarely(
        &mut self,
        to: FrameReply,
        procedure: &Procedure,
        right: Right,
        args: &[u8],
    ) -> Result<()> {
        self.call_for_reply(to, procedure, right, args)
    }

    /// Calls a procedure of the queue for a connection: its values go straight into the reply.
    #[expect(
        clippy::inline_always,
        reason = "measured: each call about one task comes here, with five arguments"
    )]
    #[inline(always)]
    fn call_for_reply(
        &mut self,
        to: FrameReply,
        procedure: &Procedure,
        right: Right,
        args: &[u8],
    ) -> Result<()> {
        let Some(caller) = self.front.caller(to.slot) else { return Ok(()) };
        let request = self.front.parked.next_request(caller.session);
        let command =
            Command { procedure, right, request: request.number, arguments: args, concern: Concern::NONE };
        let Some(connection) = self.front.connections.get_mut(to.slot) else { return Ok(()) };
        let out = connection.replies.buffer();
        let undo = out.len();
        let start = reply::begin_data(out, to.sync);
        match self.shard.call(&caller, &command, out) {
            Ok(Answer::Done { count }) => {
                let count = if to.is_call_16 { to_call_16(out, start.values(), count) } else { count };
                reply::finish_data(out, start, count, self.shard.store().schema_version());
                if self.front.settings.replicas_before_reply > 0
                    && procedure.queue_method() == Some(QueueMethod::State)
                {
                    self.front.finish_reply_about_instance(&self.shard, to.slot);
                } else {
                    self.front.finish_reply(&self.shard, to.slot);
                }
                Ok(())
            }
            Ok(Answer::Parked) => {
                out.truncate(undo);
                let reply = ReplyTo::Frame(to);
                self.front.park(request, ParkedCall { reply, waits_for: WaitsFor::Event });
                Ok(())
            }
            Err(refusal) => {
                out.truncate(undo);
                Err(self.front.refusal(CallerKind::Connection, refusal))
            }
        }
    }

    /// A connection calls a function of `box` or of a program.
    fn call_elsewhere(
        &mut self,
        to: FrameReply,
        target: Option<Callee>,
        name: &[u8],
        args: &[u8],
    ) -> Result<()> {
        let Some(caller) = self.front.caller(to.slot) else { return Ok(()) };
        if target.is_none()
            && let Some(error) = self.front.refusal_of_name(&self.shard, name)
        {
            return Err(error);
        }
        let mut values = Vec::new();
        let called = self.call_target(&caller, target, name, args, ReplyTo::Frame(to), &mut values)?;
        if let Called::Done { count } = called
            && let Some(connection) = self.front.connections.get_mut(to.slot)
        {
            let out = connection.replies.buffer();
            let start = reply::begin_data(out, to.sync);
            out.extend_from_slice(&values);
            let count = if to.is_call_16 { to_call_16(out, start.values(), count) } else { count };
            reply::finish_data(out, start, count, self.shard.store().schema_version());
            if is_about_instance(name) {
                self.front.finish_reply_about_instance(&self.shard, to.slot);
            } else {
                self.front.finish_reply(&self.shard, to.slot);
            }
        }
        Ok(())
    }

    /// Calls a function that is no procedure of the queue. If the call is parked, its answer goes to `reply`.
    fn call_target(
        &mut self,
        caller: &Caller,
        target: Option<Callee>,
        name: &[u8],
        args: &[u8],
        reply: ReplyTo,
        out: &mut Vec<u8>,
    ) -> Result<Called> {
        match target {
            Some(Callee::Box(Function::Snapshot)) => self.call_snapshot(caller, reply, out),
            Some(Callee::Box(function)) => {
                // The function reads or changes what the journal keeps, in contrast to what the process knows about itself.
                if !function.is_harmless() {
                    self.shard.conditions().check(Need::Read)?;
                }
                self.execute_box(caller, function, args, out).map(|count| Called::Done { count })
            }
            Some(Callee::Expiration(function)) => {
                let start = out.len();
                let asker = Asker { user: caller.effective, function };
                let count = self.shard.call_expiration(asker, args, &self.loop_time.clocks, out)?;
                if function.is_capped() && matches!(reply, ReplyTo::Frame(to) if to.is_call_16) {
                    out.truncate(start);
                    return Ok(Called::Done { count: 0 });
                }
                Ok(Called::Done { count })
            }
            Some(Callee::Queue(..)) => Err(not_defined(name)),
            None if self.front.settings.lua => {
                let function =
                    str::from_utf8(name).ok().and_then(|name| self.shard.store().function_by_name(name));
                if function.is_some_and(lycosa_store::Function::runs_any_text) {
                    self.shard.check_universe(caller.effective, Access::EXECUTE)?;
                }
                let is_stored = function.is_some_and(|function| !function.body.is_empty());
                let owner = function.filter(|function| function.setuid).map(|function| function.owner);
                let caller = owner.map_or(*caller, |owner| caller.acting_as(owner));
                let kind = InvokeKind::Call { name: name.to_vec(), is_stored };
                Ok(Called::Parked(self.front.invoke(caller, kind, args, reply)))
            }
            None if self.front.settings.loading => Err(loading_error()),
            None => Err(not_defined(name)),
        }
    }

    /// CALL of `box.snapshot`: answered when the snapshot is complete.
    fn call_snapshot(&mut self, caller: &Caller, reply: ReplyTo, out: &mut Vec<u8>) -> Result<Called> {
        let request = self.front.parked.next_request(caller.session);
        match self.shard.call_snapshot(caller.may_wait.then_some(request))? {
            Snapshot::Exists => {
                mp::write_str(out, b"ok");
                Ok(Called::Done { count: 1 })
            }
            Snapshot::Awaited => {
                self.front.park(request, ParkedCall { reply, waits_for: WaitsFor::Event });
                Ok(Called::Parked(request))
            }
            Snapshot::MayNotWait => Err(too_many_waiting(self.front.settings.max_waiting)),
        }
    }

    /// Evaluates an expression on behalf of any caller; the answer comes later.
    ///
    /// # Errors
    /// No right to execute everything; there are no programs ([`Settings::lua`](crate::Settings::lua)).
    pub fn eval(&mut self, caller: &Caller, expression: &[u8], args: &[u8]) -> Result<RequestId> {
        self.eval_for(*caller, expression, args, ReplyTo::Caller(caller.kind))
    }

    pub(crate) fn eval_for(
        &mut self,
        caller: Caller,
        expression: &[u8],
        args: &[u8],
        reply: ReplyTo,
    ) -> Result<RequestId> {
        self.shard.check_universe(caller.effective, Access::EXECUTE)?;
        if self.front.settings.loading {
            return Err(loading_error());
        }
        if !self.front.settings.lua {
            let message = "Lycosa does not support EVAL: this server runs no Lua; \
                           CALL the functions of queue and box instead, e.g. queue.create_tube";
            return Err(ErrorObject::client(ErrorCode::Unsupported, message));
        }
        let kind = InvokeKind::Eval { expression: expression.to_vec() };
        Ok(self.front.invoke(caller, kind, args, reply))
    }
}

impl Front {
    /// The error of a call that the shard has refused.
    #[cold]
    fn refusal(&self, kind: CallerKind, refusal: Refusal) -> ErrorObject {
        match (refusal, kind) {
            (Refusal::MayNotWait, CallerKind::Connection) => too_many_waiting(self.settings.max_waiting),
            (Refusal::MayNotWait, _) => {
                ErrorObject::lua("the call would wait, which this caller may not: call with a timeout of 0")
            }
            (Refusal::Error(error), _) => error,
        }
    }
}

/// The answer to what a program will be able to answer.
pub(crate) fn loading_error() -> ErrorObject {
    ErrorObject::client(ErrorCode::Loading, ErrorCode::Loading.template())
}

pub(crate) fn too_many_waiting(limit: usize) -> ErrorObject {
    ErrorObject::lua(format!(
        "{limit} calls of this connection wait already, which is max_waiting: \
         call without a timeout, or on another connection"
    ))
}
