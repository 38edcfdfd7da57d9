//! The administration of expiration tasks: the calls that begin, change, show and end them, and their part of a tick.

use super::{DeclaredExpiration, Function, MAX_VALUES, QUIET};
use crate::Result;
use crate::shard::Shard;
use crate::shard::admission::{Growth, Need, read_only_error};
use crate::shard::clocks::Clocks;
use crate::shard::wire_error::{self, OnWire, illegal};
use lycosa_expiration::{Archive, Definition, Expiration, Start, Summary};
use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_queue::LogLevel;
use lycosa_store::{Access, Object, ObjectType, Space, SpaceId, UserId, user};
use lycosa_tuple::mp::Reader;
use lycosa_tuple::value::Value;

/// The user that calls a function, and the function.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asker {
    pub(crate) user: UserId,
    pub(crate) function: Function,
}

impl Shard {
    /// The tasks in a few numbers.
    pub(crate) fn expiration_summary(&self) -> Summary {
        self.expiring.tasks.summary(self.data.store(), self.data.now)
    }

    /// The tasks whose last slice failed, with the error.
    pub(crate) fn failing_expiration(&self) -> impl Iterator<Item = (&str, &str)> {
        self.expiring.tasks.failures()
    }

    /// Runs a slice of a task that is due. When the next one is, µs since the epoch.
    /// `requests`: the number of requests so far.
    pub(crate) fn tick_expiration(&mut self, requests: u64, clocks: &Clocks) -> Option<u64> {
        let Self { expiring, data, .. } = self;
        expiring.refresh(data);
        if !expiring.declared.is_empty() && expiring.declared_at != data.store().schema_version() {
            self.begin_declared(clocks);
        }
        let Self { expiring, data, .. } = self;
        if expiring.tasks.is_empty() {
            return None;
        }
        if requests != expiring.requests {
            expiring.requests = requests;
            expiring.requested_at = data.now;
        }
        expiring.tasks.set_idle(data.now.saturating_sub(expiring.requested_at) >= QUIET);
        if let Some(id) = expiring.tasks.due(data.now) {
            expiring.run(data, clocks, id);
        }
        self.expiring.tasks.next()
    }

    /// Calls a function of expiration with the rights of `caller`; appends its values to `out` and returns how many they
    /// are.
    pub(crate) fn call_expiration(
        &mut self,
        asker: Asker,
        args: &[u8],
        clocks: &Clocks,
        out: &mut Vec<u8>,
    ) -> Result<u32> {
        self.data.conditions.check(Need::Read)?;
        if !Reader::new(args).holds_at_most(MAX_VALUES) {
            return Err(illegal(&format!("the arguments hold more than {MAX_VALUES} values")));
        }
        let Ok(Value::Array(arguments)) = Value::decode(args) else {
            return Err(illegal("the arguments are no array"));
        };
        if !asker.function.is_harmless() && self.data.in_transaction() {
            let message = "Operation is not permitted when there is an active transaction ";
            return Err(ErrorObject::client(ErrorCode::ActiveTransaction, message));
        }
        self.expiring.refresh(&mut self.data);
        let value = match asker.function {
            Function::Start => self.start_expiration(asker, &arguments, clocks)?,
            Function::Stop => self.stop_expiration(asker, &arguments)?,
            Function::List => {
                let [] = arguments.as_slice() else {
                    return Err(illegal("expiration.list() has no arguments"));
                };
                let admit = |space| self.admit_space(asker, space);
                self.expiring.tasks.list(self.data.store(), &admit)
            }
            Function::Statistics => self.expiration_statistics(asker, &arguments)?,
            Function::CappedStart => {
                let admit = |space| self.admit_space(asker, space);
                let started = lycosa_expiration::capped_start(self.data.store(), &arguments, &admit);
                let definition = started.on_wire()?;
                self.check_may_expire(asker, &definition)?;
                self.begin_expiration(definition, clocks)?;
                Value::Array(Vec::new())
            }
            Function::CappedKill => {
                let name = lycosa_expiration::capped_kill(&arguments).on_wire()?;
                if let Some(definition) = self.expiring.tasks.definition(name) {
                    self.check_may_expire(asker, definition)?;
                    self.end_expiration(name)?;
                }
                Value::Array(Vec::new())
            }
        };
        value.write(out);
        Ok(1)
    }

    fn start_expiration(&mut self, asker: Asker, arguments: &[Value], clocks: &Clocks) -> Result<Value> {
        let admit = |space| self.admit_space(asker, space);
        let Start { definition, if_not_exists } =
            Start::read(self.data.store(), arguments, &admit).on_wire()?;
        self.check_may_expire(asker, &definition)?;
        let name = definition.name.clone();
        if !if_not_exists || self.expiring.tasks.definition(&name).is_none() {
            self.begin_expiration(definition, clocks)?;
        }
        Ok(self.expiring.tasks.describe(self.data.store(), &name).unwrap_or(Value::Nil))
    }

    fn stop_expiration(&mut self, asker: Asker, arguments: &[Value]) -> Result<Value> {
        let if_exists = match arguments {
            [_] | [_, Value::Nil] => false,
            [_, Value::Array(options)] if options.is_empty() => false,
            [_, Value::Map(options)] => stop_options(options)?,
            _ => return Err(illegal("expected expiration.stop(name[, {if_exists = true}])")),
        };
        let name = lycosa_expiration::task_name(arguments.first()).on_wire()?.to_owned();
        let admit = |space| self.admit_space(asker, space);
        let known = self.expiring.tasks.definition(&name).filter(|task| admit(task.space).is_ok());
        let Some(definition) = known.cloned() else {
            return match if_exists {
                true => Ok(Value::Nil),
                false => Err(wire_error::of_expiration(&self.expiring.tasks.unknown(&name, &admit))),
            };
        };
        self.check_may_expire(asker, &definition)?;
        let statistics = self.expiring.tasks.statistics(self.data.store(), &name, self.data.now);
        self.end_expiration(&name)?;
        Ok(statistics.unwrap_or(Value::Nil))
    }

    fn expiration_statistics(&self, asker: Asker, arguments: &[Value]) -> Result<Value> {
        let admit = |space| self.admit_space(asker, space);
        let (tasks, store, now) = (&self.expiring.tasks, self.data.store(), self.data.now);
        match arguments {
            [] | [Value::Nil] => Ok(tasks.all_statistics(store, now, &admit)),
            [name] => {
                let name = lycosa_expiration::task_name(Some(name)).on_wire()?;
                let known = tasks.definition(name).filter(|task| admit(task.space).is_ok());
                let statistics = known.and_then(|_| tasks.statistics(store, name, now));
                statistics.ok_or_else(|| wire_error::of_expiration(&tasks.unknown(name, &admit)))
            }
            _ => Err(illegal("expected expiration.stats([name])")),
        }
    }

    /// Refuses a space of which the caller may not know. The refusal shows its number, not its name.
    fn admit_space(&self, asker: Asker, space: SpaceId) -> Result<(), lycosa_store::Error> {
        let (store, user) = (self.data.store(), asker.user);
        let granted = store.check_access(user, Object::Function(asker.function.name()), Access::EXECUTE);
        let is_tube = || store.space(space).is_ok_and(|space| self.is_tube(space.name()));
        if granted.is_ok() || store.may_know_space(user, space) || is_tube() {
            return Ok(());
        }
        let user = store.user(user).map_or_else(|| user.to_string(), |user| user.name.clone());
        let (access, object_type) = (Access::WRITE, ObjectType::Space);
        Err(lycosa_store::Error::AccessDenied { access, object_type, object_name: space.to_string(), user })
    }

    /// Checks that the caller may use the function: by a grant on it, or by the right to write the space and its archive.
    fn check_may_expire(&self, asker: Asker, definition: &Definition) -> Result<()> {
        let store = self.data.store();
        let function = Object::Function(asker.function.name());
        if asker.user == user::ADMIN || store.check_access(asker.user, function, Access::EXECUTE).is_ok() {
            return Ok(());
        }
        let may_write = |space: SpaceId| {
            let is_tube = store.space(space).is_ok_and(|space| self.is_tube(space.name()));
            let written = store.check_access(asker.user, Object::Space(space), Access::WRITE);
            if is_tube { Ok(()) } else { written.on_wire() }
        };
        may_write(definition.space)?;
        if let Some(Archive::Space(archive)) = definition.archive { may_write(archive) } else { Ok(()) }
    }

    fn is_tube(&self, name: &str) -> bool {
        self.data.queue().tubes().any(|(tube, _)| tube == name)
    }

    /// Begins a task and runs its first slice.
    fn begin_expiration(&mut self, definition: Definition, clocks: &Clocks) -> Result<()> {
        if self.data.is_read_only() && !definition.dry_run {
            return Err(read_only_error());
        }
        self.check_tubes(&definition)?;
        let name = definition.name.clone();
        let now = self.data.now;
        if definition.transient || definition.dry_run {
            self.expiring.tasks.begin(self.data.store(), definition, now).on_wire()?;
        } else {
            let tasks = &self.expiring.tasks;
            // A full server is drained by expiration, too. The number of tasks has a limit.
            self.data.transaction(Growth::Finishes, user::ADMIN, |store| {
                let former = store.lift_limit(true);
                let kept = tasks.keep(store, &definition);
                store.lift_limit(former);
                kept.on_wire()
            })?;
            self.expiring.refresh(&mut self.data);
        }
        if let Some(id) = self.expiring.tasks.id(&name) {
            self.expiring.run(&mut self.data, clocks, id);
        }
        Ok(())
    }

    /// Checks what the task does to tubes and to what belongs to them.
    fn check_tubes(&self, definition: &Definition) -> Result<()> {
        let (queue, store) = (self.data.queue(), self.data.store());
        let name_of = |space: SpaceId| store.space(space).map(Space::name).unwrap_or_default();
        let mut spaces = vec![definition.space];
        match &definition.archive {
            Some(Archive::Tube(tube)) if !self.is_tube(tube) => {
                return Err(illegal(&format!("the archive is the tube '{tube}', which does not exist")));
            }
            Some(Archive::Tube(tube)) if name_of(definition.space) == tube => {
                return Err(illegal(&format!("tube '{tube}' cannot be the archive of its own tasks")));
            }
            Some(Archive::Space(archive)) if self.is_tube(name_of(*archive)) => {
                let space = format!("the archive, space '{}',", name_of(*archive));
                return Err(illegal(&format!("{space} is a tube: give it as archive_tube")));
            }
            Some(Archive::Space(archive)) => spaces.push(*archive),
            _ => {}
        }
        for space in spaces {
            if let Some(tube) = queue.tube_of_buffer(space) {
                let name = name_of(space);
                let reason = format!("space '{name}' belongs to tube '{tube}', which keeps its order there");
                return Err(illegal(&reason));
            }
        }
        let space_of = |tube: &str| store.space_by_name(tube).map(Space::id);
        self.expiring.tasks.check_archive(definition, &space_of).on_wire()
    }

    fn end_expiration(&mut self, name: &str) -> Result<()> {
        let known = self.expiring.tasks.definition(name);
        if known.is_some_and(|definition| !definition.transient && !definition.dry_run) {
            self.data.transaction(Growth::Finishes, user::ADMIN, |store| {
                Expiration::forget(store, name).on_wire()
            })?;
        }
        self.expiring.tasks.end(name);
        Ok(())
    }

    /// Begins the tasks that the configuration declares, and changes tasks that it declares differently now. A task whose
    /// space does not exist yet begins when the space is created.
    ///
    /// # Errors
    /// The first declaration that cannot be carried out, with the task's name. Earlier declarations are done.
    pub(crate) fn declare_expirations(
        &mut self,
        declared: &[DeclaredExpiration],
        clocks: &Clocks,
    ) -> Result<Vec<String>> {
        self.expiring.declared.clear();
        let mut begun = Vec::new();
        for task in declared {
            match self.declare_expiration(task, clocks) {
                Ok(Some(true)) => begun.push(task.name.clone()),
                Ok(Some(false)) => {}
                Ok(None) => {
                    let (name, space) = (&task.name, &task.space);
                    let text = format!("expiration task '{name}' begins when its space '{space}' exists");
                    self.expiring.log(LogLevel::Warning, text);
                    self.expiring.declared.push(task.clone());
                }
                Err(error) => {
                    let of = format!("expiration '{}' of the configuration", task.name);
                    return Err(ErrorObject { message: format!("{of}: {}", error.message), ..error });
                }
            }
        }
        self.expiring.declared_at = self.data.store().schema_version();
        Ok(begun)
    }

    /// Whether the task was begun or changed; `None` if its space does not exist.
    fn declare_expiration(&mut self, task: &DeclaredExpiration, clocks: &Clocks) -> Result<Option<bool>> {
        self.expiring.refresh(&mut self.data);
        let Some(space) = self.data.store().space_by_name(&task.space).map(Space::id) else {
            return Start::check(&task.name, &task.options).map(|()| None).on_wire();
        };
        let arguments = [task.name.as_str().into(), space.into(), task.options.clone()];
        let wanted = Start::read(self.data.store(), &arguments, &|_| Ok(())).on_wire()?.definition;
        let present = self.expiring.tasks.definition(&task.name);
        if present == Some(&wanted) || self.data.is_read_only() {
            return Ok(Some(false));
        }
        if present.is_some() {
            // What cannot begin leaves the task that runs.
            self.check_tubes(&wanted)?;
            self.end_expiration(&task.name)?;
        }
        self.begin_expiration(wanted, clocks)?;
        Ok(Some(true))
    }

    /// Tries the declared tasks again whose space did not exist.
    fn begin_declared(&mut self, clocks: &Clocks) {
        let declared = std::mem::take(&mut self.expiring.declared);
        for task in declared {
            match self.declare_expiration(&task, clocks) {
                Ok(Some(_)) => {
                    let text = format!("expiration task '{}' of the configuration begins", task.name);
                    self.expiring.log(LogLevel::Info, text);
                }
                Ok(None) => self.expiring.declared.push(task),
                Err(error) => {
                    let of = format!("expiration task '{}' of the configuration", task.name);
                    self.expiring.log(LogLevel::Warning, format!("{of} cannot begin: {}", error.message));
                    // The indexes that it needs may be made after the space.
                    self.expiring.declared.push(task);
                }
            }
        }
        self.expiring.declared_at = self.data.store().schema_version();
    }
}

/// Reads the options of `expiration.stop`: whether a task that does not exist is no error.
fn stop_options(options: &[(Value, Value)]) -> Result<bool> {
    match options {
        [] => Ok(false),
        [(name, Value::Bool(flag))] if name.as_str() == Some("if_exists") => Ok(*flag),
        [(name, Value::Nil)] if name.as_str() == Some("if_exists") => Ok(false),
        _ => Err(illegal("the only option of expiration.stop is if_exists, true or false")),
    }
}
