//! CALL: names to functions, and functions' values to replies.
//!
//! A name is resolved, and the right to execute it checked, once per connection; the answer is kept until the schema or a
//! privilege changes (any row of a system space).

use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::reply;
use lycosa_queue::{
    ActingToken, Answer, EVERY_TUBE, Procedure, QueueMethod, QueueState, TubeMethod, gives_rights,
    is_of_every_tube, misspelt,
};
use lycosa_store::{Access, Object, UserId, user};
use lycosa_tuple::mp;

use crate::front::boxes::{self, Function};
use crate::front::call_16::to_call_16;
use crate::front::callee::{Callee, Right};
use crate::front::caller::{ParkedCall, ReplyTo};
use crate::front::loop_time::Outside;
use crate::shard::admission::{Need, read_only_error};
use crate::shard::call::Refusal;
use crate::shard::checkpoint::Snapshot;
use crate::shard::expiration_tasks;
use crate::shard::wire_error;
use crate::{Called, Caller, CallerKind, ConnectionSlot, Instance, InvokeKind, RequestId};

/// Bytes of the longest name that a function can have, as of everything else in the schema.
const MAX_NAME: usize = 65_000;

/// How much of a longer name its error shows, in bytes.
const NAME_SHOWN: usize = 64;

/// Functions that read and change no data.
const ABOUT_INSTANCE: [&[u8]; 7] = [
    b"box.info",
    b"box.cfg",
    b"box.ctl.promote",
    b"box.ctl.demote",
    b"box.stat",
    b"box.slab.info",
    b"queue.status",
];

impl Instance {
    /// CALL on a connection. `args` is a MessagePack array.
    pub(crate) fn handle_call(
        &mut self,
        slot: ConnectionSlot,
        sync: u64,
        name: &[u8],
        args: &[u8],
        is_call_16: bool,
    ) {
        let done = match self.resolved(slot, name) {
            Some(Callee::Queue(procedure, right)) if procedure.is_of_one_task() => {
                self.call_for_reply(slot, sync, &procedure, right, args, is_call_16)
            }
            _ => self.resolve_and_call(slot, sync, name, args, is_call_16),
        };
        if let Err(error) = done {
            self.refuse_request(slot, sync, &error);
        }
    }

    fn resolve_and_call(
        &mut self,
        slot: ConnectionSlot,
        sync: u64,
        name: &[u8],
        args: &[u8],
        is_call_16: bool,
    ) -> Result<(), ErrorObject> {
        if name.len() > MAX_NAME {
            return Err(name_too_long(name));
        }
        match self.resolve(slot, name)? {
            Some(Callee::Queue(procedure, right)) if procedure.is_of_one_task() => {
                self.call_for_reply(slot, sync, &procedure, right, args, is_call_16)
            }
            target => self.measured(Outside::Request, |instance| match target {
                Some(Callee::Queue(procedure, right)) => {
                    instance.call_for_reply(slot, sync, &procedure, right, args, is_call_16)
                }
                _ => instance.call_elsewhere(slot, sync, target, name, args, is_call_16),
            }),
        }
    }

    /// Calls a function, native or a program's, on behalf of any caller. Its values are appended to `out` unless the
    /// call is parked.
    ///
    /// # Errors
    /// What the function raises; no such function; no right to execute it.
    pub fn call(
        &mut self,
        caller: &Caller,
        name: &[u8],
        args: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Called, ErrorObject> {
        if let Some(token) = caller.token {
            return self.call_with_token(token, caller, name, args, out);
        }
        let target = self.find(name);
        self.check_execute(caller, name, target)?;
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
    ) -> Result<Called, ErrorObject> {
        match target {
            Some(Callee::Queue(procedure, _)) => {
                let right = self.right(caller.effective, name, target);
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
    /// What the function raises; there is no native function of that name; no right to execute it.
    pub fn call_native(
        &mut self,
        caller: &Caller,
        name: &[u8],
        args: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Called, ErrorObject> {
        if self.has_function(name) { self.call(caller, name, args, out) } else { Err(not_defined(name)) }
    }

    /// Whether the caller may call a function, native or a program's.
    ///
    /// # Errors
    /// No right to execute it.
    pub fn check_call(&self, caller: &Caller, name: &[u8]) -> Result<(), ErrorObject> {
        self.check_execute(caller, name, self.find(name))
    }

    /// Whether a name is that of a native function. Functions of C modules exist once they are registered.
    #[must_use]
    pub fn has_function(&self, name: &[u8]) -> bool {
        self.find(name).is_some()
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
    ) -> Result<Called, ErrorObject> {
        let every_tube = self.has_every_tube(caller.effective, procedure);
        self.call_resolved(caller, (procedure, Right { granted: false, every_tube }), args, out)
    }

    fn call_resolved(
        &mut self,
        caller: &Caller,
        (procedure, right): (&Procedure, Right),
        args: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Called, ErrorObject> {
        self.settle(|instance| {
            let request = instance.parked.next_request();
            let token = caller.token.and_then(|id| instance.token(id));
            let token =
                token.as_ref().map(|token| ActingToken { name: &token.name, role: token.role.name() });
            let queue_caller =
                lycosa_queue::Caller { token, ..queue_caller(caller, procedure, right, request) };
            match instance.shard.call(&queue_caller, procedure, args, out) {
                Ok(Answer::Done { count }) => Ok(Called::Done { count }),
                Ok(Answer::Parked) => {
                    let reply = ReplyTo::Caller(caller.kind);
                    instance.park(request, ParkedCall { session: caller.session, reply, is_invoke: false });
                    Ok(Called::Parked(request))
                }
                Err(refusal) => Err(instance.refusal(caller.kind, refusal)),
            }
        })
    }

    pub(crate) fn find(&self, name: &[u8]) -> Option<Callee> {
        match boxes::resolve(name) {
            Some(function) => Some(Callee::Box(function)),
            None => match expiration_tasks::Function::resolve(self.shard.store(), name) {
                Some(function) => Some(Callee::Expiration(function)),
                None if !self.settings.native_queue || self.shard.awaits_demand() => None,
                None if self.settings.program_tubes && is_about_all_tubes(name) => None,
                None => self
                    .shard
                    .queue()
                    .resolve(name)
                    .map(|procedure| Callee::Queue(procedure, Right::default())),
            },
        }
    }

    /// What a connection may call by a name that it has called before.
    #[inline]
    fn resolved(&self, slot: ConnectionSlot, name: &[u8]) -> Option<Callee> {
        let version = self.shard.journaling().system_version();
        let target = self.connections.get(slot)?.cached(name, version)?;
        self.is_current(target).then_some(target)
    }

    /// What a connection may call by a name; None if it is a program's.
    fn resolve(&mut self, slot: ConnectionSlot, name: &[u8]) -> Result<Option<Callee>, ErrorObject> {
        if let Some(target) = self.resolved(slot, name) {
            return Ok(Some(target));
        }
        let version = self.shard.journaling().system_version();
        let mut target = self.find(name);
        if let Some(caller) = self.caller(slot) {
            self.check_execute(&caller, name, target)?;
            if let Some(Callee::Queue(procedure, _)) = target {
                target = Some(Callee::Queue(procedure, self.right(caller.effective, name, target)));
            }
        }
        if self.settings.lua && self.own_functions.iter().any(|own| own.as_bytes() == name) {
            return Ok(None);
        }
        // A program runs the triggers of the queue's spaces.
        if self.settings.hooked_queue
            && self.settings.lua
            && matches!(target, Some(Callee::Queue(procedure, _)) if procedure.tube_method().is_some())
        {
            return Ok(None);
        }
        if let Some(target) = target
            && let Some(connection) = self.connections.get_mut(slot)
        {
            connection.cache(name, target, version);
        }
        Ok(target)
    }

    /// Whether what a name was resolved to is still there. A tube can go without a change of the schema: with its row in
    /// `_queue`.
    fn is_current(&self, target: Callee) -> bool {
        match target {
            Callee::Queue(procedure, _) => self.shard.queue().is_current(&procedure),
            Callee::Box(_) | Callee::Expiration(_) => true,
        }
    }

    /// The right to execute comes before the question whether the function exists, as in Tarantool. Who may put one task
    /// may put many: grants know only the Lua module's functions. What the rule for `guest` allows ends with the rule: it
    /// gives no rights that outlast it.
    fn check_execute(&self, caller: &Caller, name: &[u8], target: Option<Callee>) -> Result<(), ErrorObject> {
        let is_of_queue = match target {
            Some(Callee::Queue(..) | Callee::Expiration(_)) => true,
            Some(Callee::Box(function)) => function.is_harmless(),
            // With a queue of its own, a program says itself who may call it.
            None => self.settings.native_queue && !self.shard.awaits_demand() && name.starts_with(b"queue."),
        };
        let procedure = match &target {
            Some(Callee::Queue(procedure, _)) => Some(procedure),
            _ => None,
        };
        if is_of_queue && is_trusted_for(caller, procedure) {
            return Ok(());
        }
        if matches!(target, Some(Callee::Queue(procedure, _)) if self.has_every_tube(caller.effective, &procedure))
        {
            return Ok(());
        }
        // They show each caller the tubes and sessions that the caller may look at.
        match target {
            Some(Callee::Queue(procedure, _))
                if matches!(
                    procedure.queue_method(),
                    Some(QueueMethod::Tubes | QueueMethod::Audit | QueueMethod::Jobs)
                ) =>
            {
                return Ok(());
            }
            Some(Callee::Box(Function::Sessions | Function::QueueStatus)) => return Ok(()),
            _ => {}
        }
        let store = self.shard.store();
        let may_execute =
            |name: &str| store.check_access(caller.effective, Object::Function(name), Access::EXECUTE);
        may_execute(&String::from_utf8_lossy(name)).or_else(|error| match single_name(name, target) {
            Some(single) if may_execute(&single).is_ok() => Ok(()),
            _ => Err(wire_error::of_store(&error)),
        })
    }

    /// Whether the user was granted to execute just this function, or for many tasks the one for a single task; and whether
    /// the function goes with every tube, which the user has.
    fn right(&self, user: UserId, name: &[u8], target: Option<Callee>) -> Right {
        let single = single_name(name, target);
        let mut names = str::from_utf8(name).ok().into_iter().chain(single.as_deref());
        let granted = names.any(|name| self.shard.store().is_granted_function(user, name));
        let every_tube =
            matches!(target, Some(Callee::Queue(procedure, _)) if self.has_every_tube(user, &procedure));
        Right { granted, every_tube }
    }

    /// Whether the user may call the procedure because every tube is the user's.
    fn has_every_tube(&self, user: UserId, procedure: &Procedure) -> bool {
        is_of_every_tube(procedure) && self.shard.store().has_role(user, EVERY_TUBE, user::ADMIN)
    }

    /// Calls a procedure of the queue for a connection: its values go straight into the reply.
    fn call_for_reply(
        &mut self,
        slot: ConnectionSlot,
        sync: u64,
        procedure: &Procedure,
        right: Right,
        args: &[u8],
        is_call_16: bool,
    ) -> Result<(), ErrorObject> {
        let Some(caller) = self.caller(slot) else { return Ok(()) };
        let request = self.parked.next_request();
        let caller = queue_caller(&caller, procedure, right, request);
        let Some(connection) = self.connections.get_mut(slot) else { return Ok(()) };
        let out = connection.replies.buffer();
        let undo = out.len();
        let start = reply::begin_data(out, sync);
        match self.shard.call(&caller, procedure, args, out) {
            Ok(Answer::Done { count }) => {
                let count = if is_call_16 { to_call_16(out, start.values(), count) } else { count };
                reply::finish_data(out, start, count, self.shard.store().schema_version());
                if self.settings.replicas_before_reply > 0
                    && procedure.queue_method() == Some(QueueMethod::State)
                {
                    self.finish_reply_about_instance(slot);
                } else {
                    self.finish_reply(slot);
                }
                Ok(())
            }
            Ok(Answer::Parked) => {
                out.truncate(undo);
                let reply = ReplyTo::Frame { slot, sync, is_call_16 };
                self.park(request, ParkedCall { session: caller.connection, reply, is_invoke: false });
                Ok(())
            }
            Err(refusal) => {
                out.truncate(undo);
                Err(self.refusal(CallerKind::Connection(slot), refusal))
            }
        }
    }

    /// A connection calls a function of `box` or of a program.
    fn call_elsewhere(
        &mut self,
        slot: ConnectionSlot,
        sync: u64,
        target: Option<Callee>,
        name: &[u8],
        args: &[u8],
        is_call_16: bool,
    ) -> Result<(), ErrorObject> {
        let Some(caller) = self.caller(slot) else { return Ok(()) };
        if target.is_none()
            && let Some(error) = self.refusal_of_name(name)
        {
            return Err(error);
        }
        let mut values = Vec::new();
        let reply = ReplyTo::Frame { slot, sync, is_call_16 };
        let called = self.call_target(&caller, target, name, args, reply, &mut values)?;
        if let Called::Done { count } = called
            && let Some(connection) = self.connections.get_mut(slot)
        {
            let out = connection.replies.buffer();
            let start = reply::begin_data(out, sync);
            out.extend_from_slice(&values);
            let count = if is_call_16 { to_call_16(out, start.values(), count) } else { count };
            reply::finish_data(out, start, count, self.shard.store().schema_version());
            if ABOUT_INSTANCE.contains(&name) {
                self.finish_reply_about_instance(slot);
            } else {
                self.finish_reply(slot);
            }
        }
        Ok(())
    }

    /// Calls what is no procedure of the queue. If the call is parked, its answer goes to `reply`.
    fn call_target(
        &mut self,
        caller: &Caller,
        target: Option<Callee>,
        name: &[u8],
        args: &[u8],
        reply: ReplyTo,
        out: &mut Vec<u8>,
    ) -> Result<Called, ErrorObject> {
        match target {
            Some(Callee::Box(Function::Snapshot)) => self.call_snapshot(caller, reply, out),
            Some(Callee::Box(function)) => {
                if function.touches_data() {
                    self.shard.conditions().check(Need::Read)?;
                }
                self.execute_box(caller, function, args, out).map(|count| Called::Done { count })
            }
            Some(Callee::Expiration(function)) => {
                let start = out.len();
                let clocks = &self.loop_time.clocks;
                let count = self.shard.call_expiration(caller.effective, function, args, clocks, out)?;
                if function.is_capped() && matches!(reply, ReplyTo::Frame { is_call_16: true, .. }) {
                    out.truncate(start);
                    return Ok(Called::Done { count: 0 });
                }
                Ok(Called::Done { count })
            }
            Some(Callee::Queue(..)) => Err(not_defined(name)),
            None if self.settings.lua => {
                let function =
                    str::from_utf8(name).ok().and_then(|name| self.shard.store().function_by_name(name));
                if function.is_some_and(lycosa_store::Function::runs_any_text) {
                    self.shard.check_universe(caller.effective, Access::EXECUTE)?;
                }
                let is_stored = function.is_some_and(|function| !function.body.is_empty());
                let owner = function.filter(|function| function.setuid).map(|function| function.owner);
                let caller = owner.map_or(*caller, |owner| caller.acting_as(owner));
                let kind = InvokeKind::Call { name: name.to_vec(), is_stored };
                Ok(Called::Parked(self.invoke(caller, kind, args, reply)))
            }
            None if self.settings.loading => Err(loading_error()),
            None => Err(not_defined(name)),
        }
    }

    /// CALL of `box.snapshot`: answered when the snapshot is complete.
    fn call_snapshot(
        &mut self,
        caller: &Caller,
        reply: ReplyTo,
        out: &mut Vec<u8>,
    ) -> Result<Called, ErrorObject> {
        let request = self.parked.next_request();
        match self.shard.call_snapshot(caller.may_wait.then_some(request))? {
            Snapshot::Exists => {
                mp::write_str(out, b"ok");
                Ok(Called::Done { count: 1 })
            }
            Snapshot::Awaited => {
                self.park(request, ParkedCall { session: caller.session, reply, is_invoke: false });
                Ok(Called::Parked(request))
            }
            Snapshot::MayNotWait => Err(too_many_waiting(self.settings.max_waiting)),
        }
    }

    /// Evaluates an expression on behalf of any caller; the answer comes later.
    ///
    /// # Errors
    /// No right to execute everything; there are no programs ([`Settings::lua`]).
    pub fn eval(
        &mut self,
        caller: &Caller,
        expression: &[u8],
        args: &[u8],
    ) -> Result<RequestId, ErrorObject> {
        self.eval_for(*caller, expression, args, ReplyTo::Caller(caller.kind))
    }

    pub(crate) fn eval_for(
        &mut self,
        caller: Caller,
        expression: &[u8],
        args: &[u8],
        reply: ReplyTo,
    ) -> Result<RequestId, ErrorObject> {
        self.shard.check_universe(caller.effective, Access::EXECUTE)?;
        if self.settings.loading {
            return Err(loading_error());
        }
        if !self.settings.lua {
            let message = "Lycosa does not support EVAL: this server runs no Lua; \
                           CALL the functions of queue and box instead, e.g. queue.create_tube";
            return Err(ErrorObject::client(ErrorCode::Unsupported, message));
        }
        let kind = InvokeKind::Eval { expression: expression.to_vec() };
        Ok(self.invoke(caller, kind, args, reply))
    }

    /// Why a name of the native queue stands for nothing, where asking a program for it would lead astray: the queue has not
    /// started because the server takes no writes, or a dot stands where a method needs a colon.
    fn refusal_of_name(&self, name: &[u8]) -> Option<ErrorObject> {
        let is_own = || self.own_functions.iter().any(|own| own.as_bytes() == name);
        if !self.settings.native_queue || !name.starts_with(b"queue.") || is_own() {
            return None;
        }
        let queue = self.shard.queue();
        if self.shard.is_read_only() && queue.state() == QueueState::Init {
            let is_method = tube_method(name).is_some();
            return match queue.configuration().in_replicaset {
                true if is_method => Some(read_only_error()),
                false if is_method || is_about_all_tubes(name) => {
                    Some(wire_error::of_queue(&lycosa_queue::Error::NotConfigured))
                }
                _ => None,
            };
        }
        let meant = with_colon(name)?;
        queue.resolve(meant.as_bytes())?;
        let text = format!(
            "{}: a colon stands before the method of a tube (did you mean '{meant}'?)",
            String::from_utf8_lossy(name)
        );
        // A program's function is found by dots, too, and fails in Lua without the tube as its first argument.
        Some(match self.settings.lua {
            true => ErrorObject::lua(text),
            false => ErrorObject::client(ErrorCode::NoSuchProc, text),
        })
    }

    /// The error of a call that the shard has refused.
    #[cold]
    fn refusal(&self, kind: CallerKind, refusal: Refusal) -> ErrorObject {
        match (refusal, kind) {
            (Refusal::MayNotWait, CallerKind::Connection(_)) => too_many_waiting(self.settings.max_waiting),
            (Refusal::MayNotWait, _) => {
                ErrorObject::lua("the call would wait, which this caller may not: call with a timeout of 0")
            }
            (Refusal::Error(error), _) => error,
        }
    }
}

/// The caller of a procedure as the queue sees it.
#[inline]
fn queue_caller(
    caller: &Caller,
    procedure: &Procedure,
    right: Right,
    request: RequestId,
) -> lycosa_queue::Caller<'static> {
    let caller = caller.in_queue(is_trusted_for(caller, Some(procedure)) || right.every_tube);
    lycosa_queue::Caller { granted: right.granted, request, ..caller }
}

/// Whether no rights are checked when `caller` calls a function of the queue. The rule for `guest` reaches no procedure that
/// writes privileges.
#[inline]
fn is_trusted_for(caller: &Caller, procedure: Option<&Procedure>) -> bool {
    caller.trusted && !(caller.effective == user::GUEST && procedure.is_some_and(gives_rights))
}

/// Whether a name is that of a function that makes, lists or counts tubes of all types.
fn is_about_all_tubes(name: &[u8]) -> bool {
    matches!(name, b"queue.create_tube" | b"queue.statistics" | b"queue.stats" | b"queue.tube")
}

/// The answer to what a program will be able to answer.
pub(crate) fn loading_error() -> ErrorObject {
    ErrorObject::client(ErrorCode::Loading, ErrorCode::Loading.template())
}

pub(crate) fn not_defined(name: &[u8]) -> ErrorObject {
    let text = format!("Procedure '{}' is not defined", String::from_utf8_lossy(name));
    not_defined_as(name, text)
}

/// The error of a name that no function can have. The name is neither looked up nor shown as a whole: a frame has 16 MiB of it.
fn name_too_long(name: &[u8]) -> ErrorObject {
    let shown = String::from_utf8_lossy(&name[..NAME_SHOWN]);
    let text = format!(
        "Procedure '{shown}…' is not defined: its name has {} bytes, and a name has at most {MAX_NAME}",
        name.len()
    );
    ErrorObject::client(ErrorCode::NoSuchProc, text)
}

/// The error of a function that does not exist, with the one that may have been meant.
fn not_defined_as(name: &[u8], text: String) -> ErrorObject {
    // Every tube has every method, so the tube does not exist.
    let kind = tube_method(name).map(|_| wire_error::NO_SUCH_TUBE);
    let advice = meant_method(name).map(|meant| format!(" (did you mean '{meant}'?)")).unwrap_or_default();
    wire_error::named(ErrorObject::client(ErrorCode::NoSuchProc, text + &advice), kind)
}

/// As [`not_defined`], for the error of a program that has found no function of a name. Other errors come back as they are.
pub(crate) fn refined(error: ErrorObject) -> ErrorObject {
    let name =
        error.message.strip_prefix("Procedure '").and_then(|rest| rest.strip_suffix("' is not defined"));
    match name {
        Some(name) if error.code == u32::from(ErrorCode::NoSuchProc) && error.fields.is_empty() => {
            not_defined_as(name.as_bytes(), error.message.clone())
        }
        _ => error,
    }
}

/// The method of `queue.tube.NAME:METHOD`.
fn tube_method(name: &[u8]) -> Option<TubeMethod> {
    let (tube, method) = str::from_utf8(name).ok()?.strip_prefix("queue.tube.")?.rsplit_once(':')?;
    TubeMethod::ALL.into_iter().find(|known| known.name() == method && !tube.is_empty())
}

/// `queue.tube.NAME:METHOD` for `queue.tube.NAME.METHOD`.
fn with_colon(name: &[u8]) -> Option<String> {
    let (tube, method) = str::from_utf8(name).ok()?.rsplit_once('.')?;
    let meant = format!("{tube}:{method}");
    tube_method(meant.as_bytes()).map(|_| meant)
}

/// The name with a method that exists, if its own is a slip of the pen.
fn meant_method(name: &[u8]) -> Option<String> {
    if let Some(meant) = with_colon(name) {
        return Some(meant);
    }
    let name = str::from_utf8(name).ok()?;
    let (tube, method) = name.strip_prefix("queue.tube.")?.rsplit_once(':')?;
    let nearest = misspelt(method.as_bytes(), TubeMethod::ALL.iter().map(|known| known.name()))?;
    Some(format!("queue.tube.{tube}:{nearest}"))
}

/// The name of the function for one task, if `name` is that of a tube's method for many.
fn single_name(name: &[u8], target: Option<Callee>) -> Option<String> {
    let Some(Callee::Queue(procedure, _)) = target else { return None };
    let method = procedure.tube_method()?;
    let tube = str::from_utf8(name).ok()?.strip_suffix(method.name())?;
    Some(format!("{tube}{}", method.single()?.name()))
}

pub(crate) fn too_many_waiting(limit: usize) -> ErrorObject {
    ErrorObject::lua(format!(
        "{limit} calls of this connection wait already, which is max_waiting: \
         call without a timeout, or on another connection"
    ))
}
