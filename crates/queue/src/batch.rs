//! Many tasks in one call: `put_many`, `take_many`, `ack_many`, `release_many`, `bury_many`, `kick_many`, `delete_many`.
//!
//! A batch does what the calls for one task would do one after the other, with the same inner halves of operations
//! (see [`crate::operation`]), in one transaction: its rows stand together in the journal, and if one task is refused,
//! so are all. The Lua module has no such methods; their arguments are checked here and not as Lua would stumble over
//! them.
//!
//! Bounds: a batch has at most [`MAX_BATCH`] elements, and a `take_many` ends after [`MAX_TAKEN_BYTES`], so that one
//! call does not hold up all others for long.
//!
//! Absent: batches over several tubes; `touch_many`.

use lycosa_tuple::mp::{self, Kind, Reader};

use crate::arguments::{Arguments, Id, Number, Table, kind};
use crate::attempts::reason;
use crate::command::Call;
use crate::driver::options::seconds_or;
use crate::driver::{Driver, Event, NewTask, PutOptions};
use crate::error::{Error, Result};
use crate::leases::Form;
use crate::lua_text;
use crate::operation::{not_found, take_deadline, token};
use crate::repeat::{Repeat, Repeated};
use crate::statistics::Operation;
use crate::task::{Shown, State};
use crate::time::Seconds;
use crate::tube_call::TubeCall;
use crate::turn::TubeTurn;
use crate::waiter::Wanted;
use crate::{Answer, Client, Concern};

/// Tasks in a batch at most. A `take_many` that asks for more gets this number; other methods are refused.
pub const MAX_BATCH: u32 = 10_000;

/// Bytes of tasks after which a `take_many` takes no more.
pub const MAX_TAKEN_BYTES: usize = 16 << 20;

/// The elements of an argument that is an array.
#[derive(Debug, Clone)]
struct Elements<'a> {
    reader: Reader<'a>,
    count: u32,
    left: u32,
}

impl<'a> Elements<'a> {
    /// The first argument, which has to be an array, and not too long a one.
    fn of_batch(argument: Option<&'a [u8]>, expected: &'static str) -> Result<Self> {
        let argument = argument.filter(|value| kind(value) == Kind::Array);
        let elements = Self::of_array(argument.ok_or(Error::Argument { number: 1, expected })?);
        if elements.count > MAX_BATCH {
            return Err(Error::BatchTooLong { limit: MAX_BATCH, count: elements.count });
        }
        Ok(elements)
    }

    fn of_array(array: &'a [u8]) -> Self {
        let mut reader = Reader::new(array);
        let count = reader.array().unwrap_or(0);
        Self { reader, count, left: count }
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        self.reader.raw().ok()
    }
}

/// The options of the tasks of a batch.
#[derive(Debug, Clone)]
enum ManyOptions<'a> {
    /// The same for all of them.
    Shared(PutOptions<'a>),
    /// One table for each.
    Each(Elements<'a>, Option<&'static str>),
}

/// Tasks that are to be put: payloads and options.
#[derive(Debug, Clone)]
struct NewTasks<'a> {
    payloads: Elements<'a>,
    options: ManyOptions<'a>,
}

impl<'a> NewTasks<'a> {
    fn parse(arguments: Arguments<'a>, driver: &dyn Driver) -> Result<Self> {
        let payloads = Elements::of_batch(arguments.get(0), "an array of payloads")?;
        let options = match arguments.present(1) {
            None => ManyOptions::Shared(PutOptions::default()),
            Some(given) if kind(given) == Kind::Array => {
                let each = Elements::of_array(given);
                if each.count > 0 && each.count != payloads.count {
                    return Err(Error::OptionsCount { tasks: payloads.count, options: each.count });
                }
                match each.count {
                    0 => ManyOptions::Shared(PutOptions::default()),
                    _ => ManyOptions::Each(each, driver.first_option()),
                }
            }
            Some(given) => ManyOptions::Shared(PutOptions::of(driver.first_option(), Some(given))?),
        };
        Ok(Self { payloads, options })
    }

    fn count(&self) -> u32 {
        self.payloads.count
    }

    /// Lets the instance hear of the replicas that the tasks ask for. A table that cannot be read is refused when its task is put.
    fn admit(&self, concern: Concern<'_>) -> Result<()> {
        match &self.options {
            ManyOptions::Shared(options) => concern.admit(options.replicas),
            ManyOptions::Each(..) => {
                self.each().flatten().try_for_each(|(_, options)| concern.admit(options.replicas))
            }
        }
    }

    /// How long the batch waits for capacity: the longest timeout of its tasks.
    fn timeout(&self) -> Result<Seconds> {
        let none = Seconds::from_int(0);
        match &self.options {
            ManyOptions::Shared(options) => seconds_or(options.timeout, none),
            ManyOptions::Each(..) => self.each().enumerate().try_fold(none, |longest, (place, task)| {
                let timeout = task.and_then(|(_, options)| seconds_or(options.timeout, none));
                let timeout = timeout.map_err(|error| error.in_batch(place))?;
                Ok(if timeout.duration() > longest.duration() { timeout } else { longest })
            }),
        }
    }

    /// Payloads and options, in order.
    fn each(&self) -> impl Iterator<Item = Result<(&'a [u8], PutOptions<'a>)>> + use<'a> {
        let mut options = self.options.clone();
        self.payloads.clone().map(move |payload| {
            let options = match &mut options {
                ManyOptions::Shared(options) => *options,
                ManyOptions::Each(each, first) => {
                    let given = each.next().filter(|given| kind(given) != Kind::Nil);
                    match first {
                        Some(first) => PutOptions::parse(given, first)?,
                        None => PutOptions::of_every_tube(given),
                    }
                }
            };
            Ok((payload, options))
        })
    }
}

impl TubeCall<'_> {
    /// `put_many(array of data[, options or array of options])`
    pub(crate) fn put_many(&mut self, out: &mut Vec<u8>) -> Result<Answer> {
        let Call { arguments, command, .. } = self.call;
        let tube = self.tube()?;
        let driver = &*tube.tube.driver;
        let new = NewTasks::parse(arguments, driver)?;
        new.admit(command.concern)?;
        if driver.waits_for_capacity() && new.count() > 0 {
            let timeout = new.timeout()?;
            let capacity = driver.capacity_left(0);
            if u64::from(new.count()) > capacity {
                return Err(Error::BeyondCapacity { tasks: new.count(), capacity });
            }
            if !tube.may_put(new.count())? {
                for (place, task) in new.each().enumerate() {
                    task.and_then(|(data, options)| {
                        tube.check(&NewTask { id: 0, data: Some(data), options })
                    })
                    .map_err(|error| error.in_batch(place))?;
                }
                let wanted =
                    Wanted::CapacityForMany { tasks: new.count(), arguments: command.arguments.into() };
                return self.wait_for_capacity(wanted, timeout, out);
            }
        }
        // The payloads come back.
        out.reserve(command.arguments.len());
        self.transact(|tube| tube.put_all(&new, out))?;
        Ok(Answer::one())
    }

    /// `take_many(limit[, timeout[, {extended, lease}]])`: waits until there is a task, then takes all that there are, up to the
    /// limit.
    pub(crate) fn take_many(&mut self, out: &mut Vec<u8>) -> Result<Answer> {
        let Call { arguments, caller, .. } = self.call;
        let limit = arguments.get(0).and_then(Number::parse).map_or(0, Number::count);
        if limit == 0 {
            return Err(Error::Argument { number: 1, expected: "a number of tasks, 1 at least" });
        }
        let limit = u32::try_from(limit).map_or(MAX_BATCH, |limit| limit.min(MAX_BATCH));
        let deadline = take_deadline(arguments.present(1), self.turn.now)?;
        let (form, repeat) = Repeat::of_take(arguments.present(2))?;
        let wanted = Wanted::Tasks { limit, form };
        match self.repeated(repeat, &wanted, out)? {
            Repeated::Answered => return Ok(Answer::one()),
            Repeated::Outdated => {
                begin_taken(out);
                return Ok(Answer::one());
            }
            Repeated::New => {}
        }
        let take = |tube: &mut TubeTurn<'_>| Ok(tube.take_many(caller.client(), (limit, form), out)? > 0);
        if self.take_or_park((wanted, repeat), deadline, take)?.is_some() {
            return Ok(Answer::one());
        }
        out.truncate(out.len() - TAKEN_HEADER);
        Ok(Answer::Parked)
    }

    /// `ack_many(ids)`
    pub(crate) fn ack_many(&mut self, out: &mut Vec<u8>) -> Result<Answer> {
        self.each_owned(out, |tube, id, out| tube.remove(id, Operation::Ack, Some(out)))
    }

    /// `release_many(ids[, {delay, reason, force, attempted}])`. With `force` it releases tasks of all owners.
    pub(crate) fn release_many(&mut self, out: &mut Vec<u8>) -> Result<Answer> {
        let options = self.call.arguments.present(1);
        let event = Event::Release { delay: self.tube()?.release_delay(options)? };
        let release = |tube: &mut TubeTurn<'_>, id, out: &mut Vec<u8>| {
            tube.note_release(id, options)?;
            tube.change(id, event, Some(out))
        };
        match Table::parse(options)?.get(b"force") == Some(&[0xc3]) {
            false => self.each_owned(out, release),
            true => self.each_task(out, |tube, id, out| match tube.state_of(id)? {
                None => Ok(false),
                Some(State::Taken) => release(tube, id, out),
                Some(_) => Err(Error::NotTaken),
            }),
        }
    }

    /// `bury_many(ids[, {reason}])`: tasks in any state. A buried task stays as it is.
    pub(crate) fn bury_many(&mut self, out: &mut Vec<u8>) -> Result<Answer> {
        let reason = reason(self.call.arguments.present(1));
        self.each_task(out, |tube, id, out| {
            if tube.state_of(id)? == Some(State::Buried) {
                return tube.write_stored(id, out);
            }
            tube.note_failure(id, reason)?;
            tube.change(id, Event::Bury, Some(out))
        })
    }

    /// `kick_many(ids)`: all of them have to be buried.
    pub(crate) fn kick_many(&mut self, out: &mut Vec<u8>) -> Result<Answer> {
        self.each_task(out, |tube, id, out| match tube.state_of(id)? {
            None => Ok(false),
            Some(State::Buried) => tube.kick_one(id, Some(out)),
            Some(_) => Err(Error::NotBuried),
        })
    }

    /// `delete_many(ids)`: tasks in any state.
    pub(crate) fn delete_many(&mut self, out: &mut Vec<u8>) -> Result<Answer> {
        self.each_task(out, |tube, id, out| tube.remove(id, Operation::Delete, Some(out)))
    }

    /// Does something to each of the tasks whose ids are the first argument, all of which the caller has to hold. A
    /// task that stands there twice is no longer held the second time.
    fn each_owned(
        &mut self,
        out: &mut Vec<u8>,
        mut f: impl FnMut(&mut TubeTurn<'_>, u64, &mut Vec<u8>) -> Result<bool>,
    ) -> Result<Answer> {
        let caller = self.call.caller;
        self.each_given(out, |tube, given, out| {
            let id = tube.owned_task(caller, Some(given))?;
            if f(tube, id, out)? { Ok(()) } else { Err(not_found(id)) }
        })
    }

    /// The same for tasks of all owners. `f` returns false for a task that does not exist.
    fn each_task(
        &mut self,
        out: &mut Vec<u8>,
        mut f: impl FnMut(&mut TubeTurn<'_>, u64, &mut Vec<u8>) -> Result<bool>,
    ) -> Result<Answer> {
        self.each_given(out, |tube, given, out| match Id::parse(Some(given)) {
            Id::Number(id) if f(tube, id, out)? => Ok(()),
            Id::Other(Some(bytes)) if let Some(token) = token(bytes) => {
                let id = tube.leased_task(token)?;
                if f(tube, id, out)? { Ok(()) } else { Err(not_found(id)) }
            }
            _ => Err(Error::TaskNotFound(lua_text::text(Some(given)))),
        })
    }

    /// Calls `f` for each element of the array of ids, in one transaction.
    fn each_given(
        &mut self,
        out: &mut Vec<u8>,
        mut f: impl FnMut(&mut TubeTurn<'_>, &[u8], &mut Vec<u8>) -> Result<()>,
    ) -> Result<Answer> {
        let ids = Elements::of_batch(self.call.arguments.get(0), "an array of ids")?;
        mp::write_array(out, ids.count);
        self.transact(|tube| {
            for given in ids {
                f(tube, given, out)
                    .map_err(|error| error.of_element(|| format!("task {}", lua_text::text(Some(given)))))?;
            }
            Ok(())
        })?;
        Ok(Answer::one())
    }
}

impl TubeTurn<'_> {
    /// The state of a task. None if there is none with this id, or if a user has written another status.
    fn state_of(&self, id: u64) -> Result<Option<State>> {
        let layout = self.tube.kind.layout();
        Ok(self.tasks().get(id)?.and_then(|tuple| Shown::read(tuple, layout)?.state()))
    }

    /// Stores a waiting batch, if the tube has free space for it. Returns whether it has.
    pub(crate) fn put_all_waiting(&mut self, (tasks, raw): (u32, &[u8]), out: &mut Vec<u8>) -> Result<bool> {
        if self.capacity_left()? < u64::from(tasks) {
            return Ok(false);
        }
        self.put_all(&NewTasks::parse(Arguments::parse(raw)?, &*self.tube.driver)?, out)?;
        Ok(true)
    }

    /// Stores a batch and appends the array of its tasks.
    fn put_all(&mut self, new: &NewTasks<'_>, out: &mut Vec<u8>) -> Result<()> {
        mp::write_array(out, new.count());
        new.each().enumerate().try_for_each(|(place, task)| {
            task.and_then(|(data, options)| self.put(Some(data), options, out))
                .map_err(|error| error.in_batch(place))
        })
    }

    /// Gives a connection's session, or a new lease each, the next tasks, at most `limit`, and appends the array of them.
    /// Returns their number.
    pub(crate) fn take_many(
        &mut self,
        client: Client,
        (limit, form): (u32, Form),
        out: &mut Vec<u8>,
    ) -> Result<u32> {
        let start = begin_taken(out);
        let end = out.len() + MAX_TAKEN_BYTES;
        let mut taken = 0;
        while taken < limit && out.len() < end && self.take(client, form, out)? {
            taken += 1;
        }
        end_taken(out, start, taken as u16);
        Ok(taken)
    }
}

/// First byte of an array whose length takes two bytes: what [`MAX_BATCH`] tasks need at the most.
const ARRAY_16: u8 = 0xdc;

/// Length of such an array's header.
pub(crate) const TAKEN_HEADER: usize = 3;

/// Begins an array of taken tasks. Returns its position.
pub(crate) fn begin_taken(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[ARRAY_16, 0, 0]);
    start
}

/// Writes the number of tasks into the array that begins at this position.
pub(crate) fn end_taken(out: &mut [u8], start: usize, count: u16) {
    out[start + 1..start + TAKEN_HEADER].copy_from_slice(&count.to_be_bytes());
}

const _: () = assert!(MAX_BATCH <= u16::MAX as u32);

#[cfg(test)]
mod tests {
    use lycosa_tuple::value::Value;

    use super::*;
    use crate::driver::TubeOptions;

    fn new_tasks(arguments: &[Value]) -> Result<Vec<(Value, Option<u64>)>, String> {
        let bytes = Value::from(arguments.to_vec()).encode();
        let options = TubeOptions::parse(None, true).expect("the defaults");
        let driver = crate::driver::fifottl::tube_type().driver(&options, &[0x80]).expect("its options");
        let parsed = Arguments::parse(&bytes).and_then(|arguments| {
            NewTasks::parse(arguments, &*driver)?
                .each()
                .map(|task| {
                    let (payload, options) = task?;
                    let pri = options.pri.and_then(|pri| Value::decode(pri).ok()?.as_u64());
                    Ok((Value::decode(payload).expect("a payload"), pri))
                })
                .collect()
        });
        parsed.map_err(|error| error.to_string())
    }

    #[test]
    fn options_are_for_all_tasks_or_for_each() {
        let payloads = Value::array([Value::from("a"), Value::from("b")]);
        let pri = |pri: u64| Value::map([("pri", Value::from(pri))]);
        let with = |options: Value| new_tasks(&[payloads.clone(), options]);
        let tasks = |a: Option<u64>, b: Option<u64>| Ok(vec![(Value::from("a"), a), (Value::from("b"), b)]);
        assert_eq!(new_tasks(std::slice::from_ref(&payloads)), tasks(None, None));
        assert_eq!(with(Value::Nil), tasks(None, None));
        assert_eq!(with(Value::array::<Value>([])), tasks(None, None));
        assert_eq!(with(pri(3)), tasks(Some(3), Some(3)));
        assert_eq!(with(Value::array([pri(3), Value::Nil])), tasks(Some(3), None));
        assert_eq!(with(Value::array([Value::array::<Value>([]), pri(4)])), tasks(None, Some(4)));
        let count = "argument #2 has options for 1 tasks, argument #1 has 2";
        assert_eq!(with(Value::array([pri(3)])), Err(count.into()));
        assert!(with(Value::from(5_u64)).is_err());
        assert!(with(Value::array([pri(3), Value::from(5_u64)])).is_err());
    }

    #[test]
    fn payloads_are_an_array_that_is_not_too_long() {
        let error = Err("argument #1 should be an array of payloads".to_owned());
        assert_eq!(new_tasks(&[]), error);
        assert_eq!(new_tasks(&[Value::from("a")]), error);
        let nothing = |count: u32| Value::from(vec![Value::Nil; count as usize]);
        assert_eq!(new_tasks(&[nothing(MAX_BATCH)]).map(|tasks| tasks.len()), Ok(MAX_BATCH as usize));
        assert!(new_tasks(&[nothing(MAX_BATCH + 1)]).is_err());
    }
}
