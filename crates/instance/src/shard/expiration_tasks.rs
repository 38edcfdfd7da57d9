//! Expiration tasks at work: their slices as transactions of the commit door, and the functions that start and stop them.
//!
//! `expiration.start`, `.stop`, `.list` and `.stats` exist like the functions of the queue.
//! `libcapped-expirationd.start` and `.kill` exist once they are registered in `_func` with the language
//! C, as for the module of that name.
//!
//! A user that was granted a function may use it on every space: it acts with the rights of its owner. On loopback `guest` may
//! start and stop tasks over what it may change anyway: tubes, and spaces that it may write to.

use std::collections::VecDeque;

use lycosa_expiration::{Archive, Definition, Expiration, Held, Host, Level, Start, Summary, TaskId};
use lycosa_iproto::error::{ErrorCode, ErrorObject};
use lycosa_queue::{Answer, Caller, Command, Concern, LogLevel, LogLine, Queue, Right};
use lycosa_store::{Access, Object, ObjectType, Space, SpaceId, Statement, Store, UserId, user};
use lycosa_tuple::mp::{self, Reader};
use lycosa_tuple::value::Value;

use crate::shard::admission::{Conditions, Growth, Need, read_only_error};
use crate::shard::clocks::Clocks;
use crate::shard::data::Data;
use crate::shard::{Shard, wire_error};

/// Most values of the arguments of a call, with all that they hold. A client chooses how many it sends, and a decoded value takes
/// up to forty times the byte that it was sent as.
const MAX_VALUES: u64 = 4096;

/// Microseconds that stand for the time between two looks at the clock where there is none: so long the few deletions in
/// between take at the most.
const ASSUMED_STEP: u64 = 40;

/// Microseconds of the processor from which on a slice says what its commit costs.
const WORTH_LEARNING: u64 = 50;

/// A function of expiration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Function {
    Start,
    Stop,
    List,
    Statistics,
    CappedStart,
    CappedKill,
}

impl Function {
    const ALL: [(&'static str, Self); 6] = [
        ("expiration.start", Self::Start),
        ("expiration.stop", Self::Stop),
        ("expiration.list", Self::List),
        ("expiration.stats", Self::Statistics),
        ("libcapped-expirationd.start", Self::CappedStart),
        ("libcapped-expirationd.kill", Self::CappedKill),
    ];

    /// The function with that name. Functions of the module exist only if they are registered.
    pub(crate) fn resolve(store: &Store, name: &[u8]) -> Option<Self> {
        let (name, function) = Self::ALL.into_iter().find(|(known, _)| known.as_bytes() == name)?;
        let is_registered = || store.function_by_name(name).is_some_and(|function| function.language == "C");
        (!function.is_capped() || is_registered()).then_some(function)
    }

    /// Whether it is one of the article's module, which answers nothing that CALL_16 could show.
    pub(crate) const fn is_capped(self) -> bool {
        matches!(self, Self::CappedStart | Self::CappedKill)
    }

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, function)| *function == self).map_or("", |(name, _)| *name)
    }

    /// Only tells about tasks.
    const fn is_harmless(self) -> bool {
        matches!(self, Self::List | Self::Statistics)
    }
}

/// A task that the configuration declares: begun as soon as its space exists.
#[derive(Debug, Clone, PartialEq)]
pub struct DeclaredExpiration {
    /// Its name.
    pub name: String,
    /// The name of its space.
    pub space: String,
    /// Options of `expiration.start`: a MessagePack map.
    pub options: Value,
}

/// Tasks, and what they need to run.
#[derive(Default)]
pub(crate) struct Expiring {
    tasks: Expiration,
    /// Declared tasks whose space does not exist yet, and the version of the schema in which it did not.
    declared: Vec<DeclaredExpiration>,
    declared_at: u32,
    log: VecDeque<LogLine>,
    /// Requests so far, and when the last of them was seen, µs since the epoch.
    requests: u64,
    requested_at: u64,
    /// Percent of a slice's own time that its commit takes, by the slices before; `None` before the first.
    commit: Option<u64>,
}

/// Time without a request after which tasks that are behind need not leave a share to requests, µs. A shorter pause is no
/// reason to take the whole processor: requests may wait for the disk, clients may work on answers, and the journal needs
/// the processor too.
const QUIET: u64 = 100_000;
/// Percent that the first slice's commit is assumed to take.
const ASSUMED_COMMIT: u64 = 100;
/// Percent that a commit is assumed to take at most. A greater measured value is cut.
const MAX_COMMIT: u64 = 300;

/// The world around a slice.
struct SliceHost<'a> {
    queue: &'a mut Queue,
    /// Decides whether an archive takes something: a slice as a whole is admitted as a deadline, which adds nothing.
    conditions: &'a Conditions,
    now: u64,
    clocks: &'a Clocks,
    /// By the clock.
    began: u64,
    /// Without a clock: the time that is assumed to have passed.
    assumed: u64,
    /// Percent of the time so far that the commit will take.
    commit: u64,
}

impl Host for SliceHost<'_> {
    fn elapsed(&mut self) -> u64 {
        self.assumed += ASSUMED_STEP;
        // The budget is for the slice with its commit.
        let so_far = |clock: u64| clock.saturating_sub(self.began) * (100 + self.commit) / 100;
        self.clocks.clock().map_or(self.assumed, so_far)
    }

    fn put(&mut self, store: &mut Store, tube: &str, payload: &[u8]) -> Result<(), String> {
        let missing = || "there is no such tube".to_owned();
        let name = format!("queue.tube.{tube}:put");
        let procedure = self.queue.resolve(name.as_bytes()).ok_or_else(missing)?;
        self.conditions.check(Need::of_call(&procedure)).map_err(|error| error.message)?;
        let caller = Caller::internal();
        let (mut args, mut out) = (Vec::with_capacity(payload.len() + 1), Vec::new());
        mp::write_array(&mut args, 1);
        args.extend_from_slice(payload);
        let right = Right::default();
        let command =
            Command { procedure: &procedure, right, request: 0, arguments: &args, concern: Concern::NONE };
        match self.queue.call(store, &caller, &command, self.now, &mut out) {
            Ok(Answer::Done { count: 1 }) if Value::decode(&out) != Ok(Value::Nil) => Ok(()),
            Ok(_) | Err(lycosa_queue::Error::MayNotWait) => {
                Err("it takes no task now: it is full, or the queue does not run".to_owned())
            }
            Err(error) => Err(error.to_string()),
        }
    }

    fn keep(&mut self, store: &mut Store, space: SpaceId, tuple: &[u8]) -> Result<(), String> {
        let statement = Statement::Replace { space, tuple };
        let needed = Need::of_statement(store, &statement);
        self.conditions.check(needed).map_err(|error| error.message)?;
        store.execute(&statement).map(drop).map_err(|error| error.to_string())
    }
}

impl Expiring {
    fn log(&mut self, level: LogLevel, text: String) {
        self.log.push_back(LogLine { level, text });
    }

    /// The data are others now: tasks begin from their rows.
    pub(crate) fn restart(&mut self) {
        self.tasks = Expiration::default();
        self.declared_at = 0;
    }

    pub(crate) fn poll_log(&mut self) -> Option<LogLine> {
        self.log.pop_front().or_else(|| {
            let (level, text) = self.tasks.poll_log()?;
            let level = match level {
                Level::Warning => LogLevel::Warning,
                Level::Info => LogLevel::Info,
            };
            Some(LogLine { level, text })
        })
    }

    /// Runs one slice as one transaction.
    fn run(&mut self, data: &mut Data, clocks: &Clocks, id: TaskId) {
        let now = data.now;
        let Ok(mut admitted) = data.admit(Need::Deadline) else { return };
        let began = clocks.clock().unwrap_or_default();
        let processor = clocks.processor();
        let commit = self.commit.unwrap_or(ASSUMED_COMMIT);
        let mut sliced_at = processor;
        let mut assumed = 0;
        let done = match admitted.begin(user::ADMIN) {
            Err(error) => Err(error.message),
            Ok(()) => {
                let (queue, store, conditions) = admitted.parts();
                let mut host = SliceHost { queue, conditions, now, clocks, began, assumed, commit };
                let sliced = self.tasks.slice(id, store, now, &mut host);
                assumed = host.assumed;
                sliced_at = clocks.processor();
                match sliced {
                    Ok(()) => admitted.commit().map_err(|error| error.message),
                    Err(error) => {
                        admitted.rollback();
                        Err(error.to_string())
                    }
                }
            }
        };
        admitted.collect();
        let elapsed = clocks.clock().map_or(assumed, |clock| clock.saturating_sub(began));
        let (slice, ended_at) = (sliced_at.saturating_sub(processor), clocks.processor());
        let processor = ended_at.saturating_sub(processor);
        let committing = ended_at.saturating_sub(sliced_at);
        if slice >= WORTH_LEARNING {
            let share = (committing * 100 / slice).min(MAX_COMMIT);
            self.commit = Some((commit * 7 + share) / 8);
        }
        let (_, store) = admitted.queue();
        self.tasks.finish(id, store, now, done, Held { elapsed, processor, commit: committing });
    }

    /// Applies changes of rows and gives up the rows of tasks whose space was dropped.
    fn refresh(&mut self, data: &mut Data) {
        let now = data.now;
        self.tasks.set_paused(data.is_read_only());
        if let Ok(mut admitted) = data.admit(Need::Deadline) {
            let (_, store) = admitted.queue();
            self.tasks.refresh(store, now);
        }
        // While changes are refused the names stay with the tasks.
        let Ok(mut admitted) = data.admit(Need::Change(Growth::Finishes)) else { return };
        for name in self.tasks.take_ended() {
            let forgotten = admitted.transaction(user::ADMIN, |store| {
                Expiration::forget(store, &name).map_err(|error| wire_error::of_expiration(&error))
            });
            if let Err(error) = forgotten {
                let reason = error.message;
                self.log(LogLevel::Warning, format!("the row of expiration task '{name}' stays: {reason}"));
            }
        }
    }
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
        caller: UserId,
        function: Function,
        args: &[u8],
        clocks: &Clocks,
        out: &mut Vec<u8>,
    ) -> Result<u32, ErrorObject> {
        self.data.conditions.check(Need::Read)?;
        if !Reader::new(args).holds_at_most(MAX_VALUES) {
            return Err(illegal(&format!("the arguments hold more than {MAX_VALUES} values")));
        }
        let Ok(Value::Array(arguments)) = Value::decode(args) else {
            return Err(illegal("the arguments are no array"));
        };
        if !function.is_harmless() && self.data.in_transaction() {
            let message = "Operation is not permitted when there is an active transaction ";
            return Err(ErrorObject::client(ErrorCode::ActiveTransaction, message));
        }
        self.expiring.refresh(&mut self.data);
        let value = match function {
            Function::Start => self.start_expiration(caller, function, &arguments, clocks)?,
            Function::Stop => self.stop_expiration(caller, function, &arguments)?,
            Function::List => {
                let [] = arguments.as_slice() else {
                    return Err(illegal("expiration.list() has no arguments"));
                };
                let admit = |space| self.admit_space(caller, function, space);
                self.expiring.tasks.list(self.data.store(), &admit)
            }
            Function::Statistics => self.expiration_statistics(caller, function, &arguments)?,
            Function::CappedStart => {
                let definition = lycosa_expiration::capped_start(self.data.store(), &arguments, &|space| {
                    self.admit_space(caller, function, space)
                });
                let definition = definition.map_err(|error| wire_error::of_expiration(&error))?;
                self.check_may_expire(caller, function, &definition)?;
                self.begin_expiration(definition, clocks)?;
                Value::Array(Vec::new())
            }
            Function::CappedKill => {
                let name = lycosa_expiration::capped_kill(&arguments);
                let name = name.map_err(|error| wire_error::of_expiration(&error))?;
                if let Some(definition) = self.expiring.tasks.definition(name) {
                    self.check_may_expire(caller, function, definition)?;
                    self.end_expiration(name)?;
                }
                Value::Array(Vec::new())
            }
        };
        value.write(out);
        Ok(1)
    }

    fn start_expiration(
        &mut self,
        caller: UserId,
        function: Function,
        arguments: &[Value],
        clocks: &Clocks,
    ) -> Result<Value, ErrorObject> {
        let admit = |space| self.admit_space(caller, function, space);
        let start = Start::read(self.data.store(), arguments, &admit);
        let Start { definition, if_not_exists } = start.map_err(|error| wire_error::of_expiration(&error))?;
        self.check_may_expire(caller, function, &definition)?;
        let name = definition.name.clone();
        if !if_not_exists || self.expiring.tasks.definition(&name).is_none() {
            self.begin_expiration(definition, clocks)?;
        }
        Ok(self.expiring.tasks.describe(self.data.store(), &name).unwrap_or(Value::Nil))
    }

    fn stop_expiration(
        &mut self,
        caller: UserId,
        function: Function,
        arguments: &[Value],
    ) -> Result<Value, ErrorObject> {
        let if_exists = match arguments {
            [_] => false,
            [_, Value::Nil] => false,
            [_, Value::Array(options)] if options.is_empty() => false,
            [_, Value::Map(options)] => stop_options(options)?,
            _ => return Err(illegal("expected expiration.stop(name[, {if_exists = true}])")),
        };
        let name = lycosa_expiration::task_name(arguments.first());
        let name = name.map_err(|error| wire_error::of_expiration(&error))?.to_owned();
        let admit = |space| self.admit_space(caller, function, space);
        let known = self.expiring.tasks.definition(&name).filter(|task| admit(task.space).is_ok());
        let Some(definition) = known.cloned() else {
            return match if_exists {
                true => Ok(Value::Nil),
                false => Err(wire_error::of_expiration(&self.expiring.tasks.unknown(&name, &admit))),
            };
        };
        self.check_may_expire(caller, function, &definition)?;
        let statistics = self.expiring.tasks.statistics(self.data.store(), &name, self.data.now);
        self.end_expiration(&name)?;
        Ok(statistics.unwrap_or(Value::Nil))
    }

    fn expiration_statistics(
        &self,
        caller: UserId,
        function: Function,
        arguments: &[Value],
    ) -> Result<Value, ErrorObject> {
        let admit = |space| self.admit_space(caller, function, space);
        let (tasks, store, now) = (&self.expiring.tasks, self.data.store(), self.data.now);
        match arguments {
            [] | [Value::Nil] => Ok(tasks.all_statistics(store, now, &admit)),
            [name] => {
                let name = lycosa_expiration::task_name(Some(name));
                let name = name.map_err(|error| wire_error::of_expiration(&error))?;
                let known = tasks.definition(name).filter(|task| admit(task.space).is_ok());
                let statistics = known.and_then(|_| tasks.statistics(store, name, now));
                statistics.ok_or_else(|| wire_error::of_expiration(&tasks.unknown(name, &admit)))
            }
            _ => Err(illegal("expected expiration.stats([name])")),
        }
    }

    /// Refuses a space of which the caller may not know. The refusal shows its number, not its name.
    fn admit_space(
        &self,
        caller: UserId,
        function: Function,
        space: SpaceId,
    ) -> Result<(), lycosa_store::Error> {
        let (store, user) = (self.data.store(), caller);
        let granted = store.check_access(user, Object::Function(function.name()), Access::EXECUTE);
        let is_tube = || store.space(space).is_ok_and(|space| self.is_tube(space.name()));
        if granted.is_ok() || store.may_know_space(user, space) || is_tube() {
            return Ok(());
        }
        let user = store.user(user).map_or_else(|| user.to_string(), |user| user.name.clone());
        let (access, object_type) = (Access::WRITE, ObjectType::Space);
        Err(lycosa_store::Error::AccessDenied { access, object_type, object_name: space.to_string(), user })
    }

    /// Checks that the caller may use the function: by a grant on it, or by the right to write the space and its archive.
    fn check_may_expire(
        &self,
        caller: UserId,
        function: Function,
        definition: &Definition,
    ) -> Result<(), ErrorObject> {
        let store = self.data.store();
        let granted = store.check_access(caller, Object::Function(function.name()), Access::EXECUTE);
        if granted.is_ok() || caller == user::ADMIN {
            return Ok(());
        }
        let may_write = |space: SpaceId| {
            let is_tube = store.space(space).is_ok_and(|space| self.is_tube(space.name()));
            let written = store.check_access(caller, Object::Space(space), Access::WRITE);
            if is_tube { Ok(()) } else { written.map_err(|error| wire_error::of_store(&error)) }
        };
        may_write(definition.space)?;
        match definition.archive {
            Some(Archive::Space(archive)) => may_write(archive),
            _ => Ok(()),
        }
    }

    fn is_tube(&self, name: &str) -> bool {
        self.data.queue().tubes().any(|(tube, _)| tube == name)
    }

    /// Begins a task and runs its first slice.
    fn begin_expiration(&mut self, definition: Definition, clocks: &Clocks) -> Result<(), ErrorObject> {
        if self.data.is_read_only() && !definition.dry_run {
            return Err(read_only_error());
        }
        self.check_tubes(&definition)?;
        let name = definition.name.clone();
        let now = self.data.now;
        if definition.transient || definition.dry_run {
            let begun = self.expiring.tasks.begin(self.data.store(), definition, now);
            begun.map_err(|error| wire_error::of_expiration(&error))?;
        } else {
            let tasks = &self.expiring.tasks;
            // A full server is drained by expiration, too. The number of tasks has a limit.
            self.data.transaction(Growth::Finishes, user::ADMIN, |store| {
                let former = store.lift_limit(true);
                let kept = tasks.keep(store, &definition);
                store.lift_limit(former);
                kept.map_err(|error| wire_error::of_expiration(&error))
            })?;
            self.expiring.refresh(&mut self.data);
        }
        if let Some(id) = self.expiring.tasks.id(&name) {
            self.expiring.run(&mut self.data, clocks, id);
        }
        Ok(())
    }

    /// Checks what the task does to tubes and to what belongs to them.
    fn check_tubes(&self, definition: &Definition) -> Result<(), ErrorObject> {
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
                let name = name_of(*archive);
                let reason = format!("the archive, space '{name}', is a tube: give it as archive_tube");
                return Err(illegal(&reason));
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
        let checked = self.expiring.tasks.check_archive(definition, &space_of);
        checked.map_err(|error| wire_error::of_expiration(&error))
    }

    fn end_expiration(&mut self, name: &str) -> Result<(), ErrorObject> {
        let is_kept = self
            .expiring
            .tasks
            .definition(name)
            .is_some_and(|definition| !definition.transient && !definition.dry_run);
        if is_kept {
            self.data.transaction(Growth::Finishes, user::ADMIN, |store| {
                Expiration::forget(store, name).map_err(|error| wire_error::of_expiration(&error))
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
    ) -> Result<Vec<String>, ErrorObject> {
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
                    let message =
                        format!("expiration '{}' of the configuration: {}", task.name, error.message);
                    return Err(ErrorObject { message, ..error });
                }
            }
        }
        self.expiring.declared_at = self.data.store().schema_version();
        Ok(begun)
    }

    /// Whether the task was begun or changed; `None` if its space does not exist.
    fn declare_expiration(
        &mut self,
        task: &DeclaredExpiration,
        clocks: &Clocks,
    ) -> Result<Option<bool>, ErrorObject> {
        self.expiring.refresh(&mut self.data);
        let Some(space) = self.data.store().space_by_name(&task.space).map(Space::id) else {
            let checked = Start::check(&task.name, &task.options);
            return checked.map(|()| None).map_err(|error| wire_error::of_expiration(&error));
        };
        let arguments = [task.name.as_str().into(), space.into(), task.options.clone()];
        let start = Start::read(self.data.store(), &arguments, &|_| Ok(()));
        let wanted = start.map_err(|error| wire_error::of_expiration(&error))?.definition;
        match self.expiring.tasks.definition(&task.name) {
            Some(present) if *present == wanted => return Ok(Some(false)),
            Some(_) if self.data.is_read_only() => return Ok(Some(false)),
            Some(_) => {
                // What cannot begin leaves the task that runs.
                self.check_tubes(&wanted)?;
                self.end_expiration(&task.name)?;
            }
            None if self.data.is_read_only() => return Ok(Some(false)),
            None => {}
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
                    let (name, reason) = (&task.name, &error.message);
                    let text =
                        format!("expiration task '{name}' of the configuration cannot begin: {reason}");
                    self.expiring.log(LogLevel::Warning, text);
                    // The indexes that it needs may be made after the space.
                    self.expiring.declared.push(task);
                }
            }
        }
        self.expiring.declared_at = self.data.store().schema_version();
    }
}

/// Reads the options of `expiration.stop`: whether a task that does not exist is no error.
fn stop_options(options: &[(Value, Value)]) -> Result<bool, ErrorObject> {
    match options {
        [] => Ok(false),
        [(name, Value::Bool(flag))] if name.as_str() == Some("if_exists") => Ok(*flag),
        [(name, Value::Nil)] if name.as_str() == Some("if_exists") => Ok(false),
        _ => Err(illegal("the only option of expiration.stop is if_exists, true or false")),
    }
}

fn illegal(reason: &str) -> ErrorObject {
    ErrorObject::client(ErrorCode::IllegalParams, format!("Illegal parameters, {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_functions() {
        let store = Store::new(lycosa_store::Settings::default());
        assert_eq!(Function::resolve(&store, b"expiration.start"), Some(Function::Start));
        assert_eq!(Function::resolve(&store, b"expiration.started"), None);
        assert_eq!(Function::resolve(&store, b"libcapped-expirationd.kill"), None, "not registered");
        assert_eq!(Function::CappedKill.name(), "libcapped-expirationd.kill");
        let error = wire_error::of_expiration(&lycosa_expiration::Error::Illegal("x".to_owned()));
        assert_eq!((error.code, error.message.as_str()), (1, "Illegal parameters, x"));
    }
}
