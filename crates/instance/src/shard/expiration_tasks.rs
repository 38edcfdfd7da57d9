//! Expiration tasks at work: their slices as transactions of the commit door, and the functions that start and stop them.
//!
//! `expiration.start`, `.stop`, `.list` and `.stats` exist like the functions of the queue.
//! `libcapped-expirationd.start` and `.kill` exist once they are registered in `_func` with the language
//! C, as for the module of that name.
//!
//! A user that was granted a function may use it on every space: it acts with the rights of its owner. On loopback `guest` may
//! start and stop tasks over what it may change anyway: tubes, and spaces that it may write to.

mod administration;

use std::collections::VecDeque;

use lycosa_expiration::{Expiration, Held, Host, Level, TaskId};
use lycosa_queue::{Answer, Caller, Command, Concern, LogLevel, LogLine, Queue, Right};
use lycosa_store::{SpaceId, Statement, Store, user};
use lycosa_tuple::mp::{self};
use lycosa_tuple::value::Value;

pub(crate) use administration::Asker;

use crate::shard::admission::{Admitted, Conditions, Growth, Need};
use crate::shard::clocks::Clocks;
use crate::shard::data::Data;
use crate::shard::wire_error::OnWire;

/// Most values of the arguments of a call, with all that they hold. A client chooses how many it sends, and a decoded value takes
/// up to forty times the byte that it was sent as.
const MAX_VALUES: u64 = 4096;

/// Microseconds that stand for the time between two looks at the clock where there is none: so long the few deletions in
/// between take at the most.
const ASSUMED_STEP: u64 = 40;

/// Microseconds of the processor from which on a slice says what its commit costs.
const WORTH_LEARNING: u64 = 50;

lycosa_queue::named! {
    /// A function of expiration.
    pub(crate) enum Function {
        Start = "expiration.start",
        Stop = "expiration.stop",
        List = "expiration.list",
        Statistics = "expiration.stats",
        CappedStart = "libcapped-expirationd.start",
        CappedKill = "libcapped-expirationd.kill",
    }
}

impl Function {
    /// The function with that name. Functions of the module exist only if they are registered.
    pub(crate) fn resolve(store: &Store, name: &[u8]) -> Option<Self> {
        let function = Self::ALL.into_iter().find(|known| known.name().as_bytes() == name)?;
        let is_registered =
            || store.function_by_name(function.name()).is_some_and(|function| function.language == "C");
        (!function.is_capped() || is_registered()).then_some(function)
    }

    /// Whether it is one of the article's module, which answers nothing that CALL_16 could show.
    pub(crate) const fn is_capped(self) -> bool {
        matches!(self, Self::CappedStart | Self::CappedKill)
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
                let Admitted { queue, store, conditions, .. } = &mut admitted;
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
        self.tasks.finish(id, admitted.store, now, done, Held { elapsed, processor, commit: committing });
    }

    /// Applies changes of rows and gives up the rows of tasks whose space was dropped.
    fn refresh(&mut self, data: &mut Data) {
        let now = data.now;
        self.tasks.set_paused(data.is_read_only());
        if let Ok(admitted) = data.admit(Need::Deadline) {
            self.tasks.refresh(admitted.store, now);
        }
        // While changes are refused the names stay with the tasks.
        let Ok(mut admitted) = data.admit(Need::Change(Growth::Finishes)) else { return };
        for name in self.tasks.take_ended() {
            let forgotten =
                admitted.transaction(user::ADMIN, |store| Expiration::forget(store, &name).on_wire());
            if let Err(error) = forgotten {
                let reason = error.message;
                self.log(LogLevel::Warning, format!("the row of expiration task '{name}' stays: {reason}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::wire_error;

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
