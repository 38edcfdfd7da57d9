//! CALL: names to functions, and functions' values to replies.
//!
//! A name is resolved, and the right to execute it checked, once per connection; the answer is kept until the schema or a
//! privilege changes (any row of a system space).

use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_iproto::reply;
use lycosa_queue::{Answer, Caller, Procedure, QueueMethod, TubeMethod, Woken};
use lycosa_store::{Access, Object, UserId, user};
use lycosa_tuple::mp::{self, Kind, Reader};

use crate::boxes::{self, Function};
use crate::connection::{Connection, Trust, WaitingCall};
use crate::{Instance, Settings, Slot, wire_error};

/// What a name stands for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    /// A function of the queue or a method of a tube.
    Queue(Procedure),
    /// A function of `box`.
    Box(Function),
}

impl Instance {
    /// Calls a function. `args` is a MessagePack array.
    pub(crate) fn call(&mut self, slot: Slot, sync: u64, name: &[u8], args: &[u8], is_call_16: bool) {
        let done = match self.resolve(slot, name) {
            Ok(Target::Queue(procedure)) => self.call_queue(slot, sync, &procedure, args, is_call_16),
            Ok(Target::Box(Function::Snapshot)) => self.call_snapshot(slot, sync, is_call_16),
            Ok(Target::Box(function)) => self.call_box(slot, sync, function, args, is_call_16),
            Err(error) => Err(error),
        };
        if let Err(error) = done {
            self.reply_error(slot, sync, &error);
        }
    }

    fn resolve(&mut self, slot: Slot, name: &[u8]) -> Result<Target, ErrorObject> {
        let version = self.journaling.system_version();
        let Some(connection) = self.connections.get(slot) else { return Err(not_defined(name)) };
        if let Some(target) = connection.cached(name, version)
            && self.is_current(target)
        {
            return Ok(target);
        }
        let target = match boxes::resolve(name) {
            Some(function) => Some(Target::Box(function)),
            None => self.queue.resolve(name).map(Target::Queue),
        };
        self.check_execute(connection, name, target)?;
        let target = target.ok_or_else(|| not_defined(name))?;
        if let Some(connection) = self.connections.get_mut(slot) {
            connection.cache(name, target, version);
        }
        Ok(target)
    }

    /// Whether what a name was resolved to is still there. A tube can go without a change of the schema: with its row in
    /// `_queue`.
    fn is_current(&self, target: Target) -> bool {
        match target {
            Target::Queue(procedure) => self.queue.is_current(&procedure),
            Target::Box(_) => true,
        }
    }

    /// The right to execute comes before the question whether the function exists, as in Tarantool. Who may put one task
    /// may put many: grants know only the Lua module's functions.
    fn check_execute(
        &self,
        connection: &Connection,
        name: &[u8],
        target: Option<Target>,
    ) -> Result<(), ErrorObject> {
        let is_of_queue = match target {
            Some(Target::Queue(_)) => true,
            Some(Target::Box(function)) => function.is_harmless(),
            None => name.starts_with(b"queue."),
        };
        if is_of_queue && is_trusted(&self.settings, connection) {
            return Ok(());
        }
        let may_execute =
            |name: &str| self.store.check_access(connection.user, Object::Function(name), Access::EXECUTE);
        may_execute(&String::from_utf8_lossy(name)).or_else(|error| match single_name(name, target) {
            Some(single) if may_execute(&single).is_ok() => Ok(()),
            _ => Err(wire_error::of_store(&error)),
        })
    }

    fn call_queue(
        &mut self,
        slot: Slot,
        sync: u64,
        procedure: &Procedure,
        args: &[u8],
        is_call_16: bool,
    ) -> Result<(), ErrorObject> {
        if self.failure.is_some() {
            return Err(self.failure_error());
        }
        if self.scarce_room.is_some() && needs_room(procedure) {
            self.check_room()?;
        }
        let Some(connection) = self.connections.get_mut(slot) else { return Ok(()) };
        let trusted = is_trusted(&self.settings, connection);
        let may_wait = connection.waiting.len() < self.settings.max_waiting;
        self.last_request += 1;
        let request = self.last_request;
        let caller = Caller { connection: connection.id, user: connection.user, trusted, request, may_wait };
        let out = connection.replies.buffer();
        let undo = out.len();
        let start = reply::begin_data(out, sync);
        let answer = self.queue.call(&mut self.store, &caller, procedure, args, self.now, out);
        match answer {
            Ok(Answer::Done { count }) => {
                let count = if is_call_16 { to_call_16(out, start.values(), count) } else { count };
                reply::finish_data(out, start, count, self.store.schema_version());
                self.settle(self.now);
                self.finish_reply(slot);
                Ok(())
            }
            Ok(Answer::Parked) => {
                out.truncate(undo);
                connection.waiting.insert(request, WaitingCall { sync, is_call_16 });
                self.settle(self.now);
                Ok(())
            }
            Err(error) => {
                out.truncate(undo);
                self.settle(self.now);
                Err(match error {
                    lycosa_queue::Error::MayNotWait => too_many_waiting(self.settings.max_waiting),
                    error => wire_error::of_queue(&error),
                })
            }
        }
    }

    /// Answers a call that had to wait for the queue.
    pub(crate) fn answer_woken(&mut self, woken: &Woken) {
        let result = match &woken.result {
            Ok((count, values)) => Ok((*count, values.as_slice())),
            Err(error) => Err(wire_error::of_queue(error)),
        };
        self.answer_parked(woken.connection, woken.request, result);
    }

    /// Answers a call that had to wait, with so many values back to back.
    pub(crate) fn answer_parked(
        &mut self,
        connection: u64,
        request: u64,
        result: Result<(u32, &[u8]), ErrorObject>,
    ) {
        let schema_version = self.store.schema_version();
        let Some(slot) = self.connections.slot_of(connection) else { return };
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let Some(call) = connection.waiting.remove(&request) else { return };
        match result {
            Ok((count, bytes)) => {
                let out = connection.replies.buffer();
                let start = reply::begin_data(out, call.sync);
                out.extend_from_slice(bytes);
                let count = if call.is_call_16 { to_call_16(out, start.values(), count) } else { count };
                reply::finish_data(out, start, count, schema_version);
                self.finish_reply(slot);
            }
            Err(error) => self.reply_error(slot, call.sync, &error),
        }
    }

    fn call_box(
        &mut self,
        slot: Slot,
        sync: u64,
        function: Function,
        args: &[u8],
        is_call_16: bool,
    ) -> Result<(), ErrorObject> {
        if self.failure.is_some() && function.touches_data() {
            return Err(self.failure_error());
        }
        let Some(connection) = self.connections.get(slot) else { return Ok(()) };
        let caller = boxes::Caller { user: connection.user, connection: connection.id };
        let mut values = Vec::new();
        let count = self.execute_box(&caller, function, args, &mut values)?;
        self.settle(self.now);
        let schema_version = self.store.schema_version();
        let Some(connection) = self.connections.get_mut(slot) else { return Ok(()) };
        let out = connection.replies.buffer();
        let start = reply::begin_data(out, sync);
        out.extend_from_slice(&values);
        let count = if is_call_16 { to_call_16(out, start.values(), count) } else { count };
        reply::finish_data(out, start, count, schema_version);
        self.finish_reply(slot);
        Ok(())
    }

    /// Whether `user` may do what needs `access` to the universe.
    pub(crate) fn check_universe(&self, user: UserId, access: Access) -> Result<(), ErrorObject> {
        let checked = self.store.check_access(user, Object::Universe, access);
        checked.map_err(|error| wire_error::of_store(&error))
    }
}

/// Whether the rule for `guest` on loopback applies.
fn is_trusted(settings: &Settings, connection: &Connection) -> bool {
    settings.guest_on_loopback && connection.user == user::GUEST && connection.origin.trust == Trust::Loopback
}

fn not_defined(name: &[u8]) -> ErrorObject {
    let name = String::from_utf8_lossy(name);
    ErrorObject::client(ErrorCode::NoSuchProc, format!("Procedure '{name}' is not defined"))
}

/// Whether a call adds what has to be journaled again when it ends: tasks or a tube.
fn needs_room(procedure: &Procedure) -> bool {
    matches!(procedure.tube_method(), Some(TubeMethod::Put | TubeMethod::PutMany))
        || procedure.queue_method() == Some(QueueMethod::CreateTube)
}

/// The name of the function for one task, if `name` is that of a tube's method for many.
fn single_name(name: &[u8], target: Option<Target>) -> Option<String> {
    let Some(Target::Queue(procedure)) = target else { return None };
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

/// Turns the `count` values at the end of `out` (from `from` on) into the form of CALL_16, where each value is a tuple;
/// returns how many there are then.
///
/// An array is a tuple as it stands; a value that is none becomes an array of itself; a single array that holds only
/// arrays is taken for a list of tuples.
fn to_call_16(out: &mut Vec<u8>, from: usize, count: u32) -> u32 {
    let values = out.split_off(from);
    let mut reader = Reader::new(&values);
    if count == 1
        && let Some(inner) = list_of_arrays(&values)
    {
        let (count, tuples) = inner;
        out.extend_from_slice(tuples);
        return count;
    }
    for _ in 0..count {
        let is_array = reader.kind() == Ok(Kind::Array);
        let value = reader.raw().unwrap_or_default();
        if !is_array {
            mp::write_array(out, 1);
        }
        out.extend_from_slice(value);
    }
    count
}

fn list_of_arrays(value: &[u8]) -> Option<(u32, &[u8])> {
    let mut reader = Reader::new(value);
    let count = reader.array().ok().filter(|&count| count > 0)?;
    let items = reader.rest();
    for _ in 0..count {
        if reader.kind() != Ok(Kind::Array) {
            return None;
        }
        reader.skip().ok()?;
    }
    Some((count, items))
}

#[cfg(test)]
mod tests {
    use std::slice;

    use lycosa_tuple::value::Value;

    use super::*;

    fn shape(values: &[Value]) -> Vec<Value> {
        let mut out = Vec::new();
        values.iter().for_each(|value| value.write(&mut out));
        let count = to_call_16(&mut out, 0, values.len() as u32);
        let mut reader = Reader::new(&out);
        (0..count).map(|_| Value::read(&mut reader).unwrap()).collect()
    }

    #[test]
    fn values_become_tuples() {
        let one = Value::from(1u64);
        let array = |items: &[Value]| Value::Array(items.to_vec());
        assert_eq!(shape(&[]), []);
        assert_eq!(shape(&[Value::Nil]), [array(&[Value::Nil])]);
        assert_eq!(
            shape(&[one.clone(), Value::from("x")]),
            [array(slice::from_ref(&one)), array(&[Value::from("x")])]
        );
        assert_eq!(shape(&[array(slice::from_ref(&one))]), [array(slice::from_ref(&one))]);
        assert_eq!(shape(&[array(&[])]), [array(&[])]);
        let tuples = [array(slice::from_ref(&one)), array(&[])];
        assert_eq!(shape(&[array(&tuples)]), tuples);
        assert_eq!(shape(&tuples), tuples);
    }
}
