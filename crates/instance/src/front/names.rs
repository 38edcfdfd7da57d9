//! Names of functions: what each one stands for, and the right to execute it.
//!
//! A name is resolved, and the right checked, once per connection; the connection keeps the answer until the schema or a
//! privilege changes (any row of a system space). A name that stands for nothing gets an error that says what may have been
//! meant. Absent: running the function (`front/call.rs`).

use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_queue::{Procedure, QueueState, Right, TubeMethod, check_execute, misspelt};
use lycosa_store::{Access, Object, UserId};

use crate::front::Front;
use crate::front::boxes::{self, Function};
use crate::front::callee::Callee;
use crate::shard::Shard;
use crate::shard::admission::read_only_error;
use crate::shard::expiration_tasks;
use crate::shard::wire_error::{self, OnWire};
use crate::{Caller, ConnectionSlot, Result};

/// Bytes of the longest name that a function can have, as of everything else in the schema.
pub(super) const MAX_NAME: usize = 65_000;

/// How much of a longer name its error shows, in bytes.
const NAME_SHOWN: usize = 64;

impl Front {
    /// The native function of a name.
    pub(crate) fn find(&self, shard: &Shard, name: &[u8]) -> Option<Callee> {
        let function = boxes::resolve(name).map(Callee::Box);
        let function = function
            .or_else(|| expiration_tasks::Function::resolve(shard.store(), name).map(Callee::Expiration));
        let is_program = self.settings.program_tubes && is_about_all_tubes(name);
        if function.is_some() || is_program || !self.settings.native_queue || shard.awaits_demand() {
            return function;
        }
        shard.queue().resolve(name).map(|procedure| Callee::Queue(procedure, Right::default()))
    }

    /// What a connection may call by a name that it has called before.
    #[inline]
    pub(super) fn resolved(&self, shard: &Shard, slot: ConnectionSlot, name: &[u8]) -> Option<Callee> {
        let version = shard.journaling().system_version();
        let target = self.connections.get(slot)?.cached(name, version)?;
        self.is_current(shard, target).then_some(target)
    }

    /// What a connection may call by a name; None if it is a program's.
    pub(super) fn resolve(
        &mut self,
        shard: &Shard,
        slot: ConnectionSlot,
        name: &[u8],
    ) -> Result<Option<Callee>> {
        if let Some(target) = self.resolved(shard, slot, name) {
            return Ok(Some(target));
        }
        let version = shard.journaling().system_version();
        let mut target = self.find(shard, name);
        if let Some(caller) = self.caller(slot) {
            self.check_execute(shard, &caller, name, target)?;
            if let Some(Callee::Queue(procedure, _)) = target {
                let right = right_by_name(shard, caller.effective, &procedure, name);
                target = Some(Callee::Queue(procedure, right));
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
    fn is_current(&self, shard: &Shard, target: Callee) -> bool {
        if let Callee::Queue(procedure, _) = target { shard.queue().is_current(&procedure) } else { true }
    }

    /// The right to execute comes before the question whether the function exists, as in Tarantool.
    pub(super) fn check_execute(
        &self,
        shard: &Shard,
        caller: &Caller,
        name: &[u8],
        target: Option<Callee>,
    ) -> Result<()> {
        let is_of_queue = match target {
            Some(Callee::Queue(..) | Callee::Expiration(_)) => true,
            Some(Callee::Box(function)) => function.is_harmless(),
            // With a queue of its own, a program says itself who may call it.
            None => self.settings.native_queue && !shard.awaits_demand() && name.starts_with(b"queue."),
        };
        let procedure = if let Some(Callee::Queue(procedure, _)) = &target { Some(procedure) } else { None };
        if is_of_queue && caller.is_trusted_for(procedure) {
            return Ok(());
        }
        // These functions show each caller the sessions that the caller may look at.
        if matches!(target, Some(Callee::Box(Function::Sessions | Function::QueueStatus))) {
            return Ok(());
        }
        let name = String::from_utf8_lossy(name);
        match procedure {
            Some(procedure) => check_execute(shard.store(), caller, procedure, &name),
            None => shard.store().check_access(caller.effective, Object::Function(&name), Access::EXECUTE),
        }
        .on_wire()
    }

    /// Why a name of the native queue stands for nothing, where asking a program for it would lead astray: the queue has not
    /// started because the server takes no writes, or a dot stands where a method needs a colon.
    pub(super) fn refusal_of_name(&self, shard: &Shard, name: &[u8]) -> Option<ErrorObject> {
        let is_own = || self.own_functions.iter().any(|own| own.as_bytes() == name);
        if !self.settings.native_queue || !name.starts_with(b"queue.") || is_own() {
            return None;
        }
        let queue = shard.queue();
        if shard.is_read_only() && queue.state() == QueueState::Init {
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
        let name = String::from_utf8_lossy(name);
        let text = format!("{name}: a colon stands before the method of a tube (did you mean '{meant}'?)");
        // A program's function is found by dots, too, and fails in Lua without the tube as its first argument.
        Some(match self.settings.lua {
            true => ErrorObject::lua(text),
            false => ErrorObject::client(ErrorCode::NoSuchProc, text),
        })
    }
}

/// What the right to call a procedure by its name spares the user.
pub(super) fn right_by_name(shard: &Shard, user: UserId, procedure: &Procedure, name: &[u8]) -> Right {
    Right::by_name(shard.store(), user, procedure, &String::from_utf8_lossy(name))
}

/// Whether a name is that of a function that makes, lists or counts tubes of all types.
fn is_about_all_tubes(name: &[u8]) -> bool {
    matches!(name, b"queue.create_tube" | b"queue.statistics" | b"queue.stats" | b"queue.tube")
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

/// The error of a function that does not exist, with the one that may have been meant.
fn not_defined_as(name: &[u8], text: String) -> ErrorObject {
    // Every tube has every method, so the tube does not exist.
    let is_of_tube = tube_method(name).is_some();
    let advice = meant_method(name).map(|meant| format!(" (did you mean '{meant}'?)")).unwrap_or_default();
    let error = ErrorObject::client(ErrorCode::NoSuchProc, text + &advice);
    if is_of_tube { error.with_name(wire_error::NO_SUCH_TUBE) } else { error }
}

pub(crate) fn not_defined(name: &[u8]) -> ErrorObject {
    let text = format!("Procedure '{}' is not defined", String::from_utf8_lossy(name));
    not_defined_as(name, text)
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

/// The error of a name that no function can have. The name is neither looked up nor shown as a whole: a frame has 16 MiB of it.
pub(super) fn name_too_long(name: &[u8]) -> ErrorObject {
    let shown = String::from_utf8_lossy(&name[..NAME_SHOWN]);
    let bytes = name.len();
    let text = format!(
        "Procedure '{shown}…' is not defined: its name has {bytes} bytes, and a name has at most {MAX_NAME}"
    );
    ErrorObject::client(ErrorCode::NoSuchProc, text)
}
