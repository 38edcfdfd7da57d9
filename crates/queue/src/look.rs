//! Looking at tasks and tubes without taking anything: the extended form of a task, `list`, `queue.tubes`.
//!
//! The extended form is `[id, state, payload, {name = value}]`; what is not known or does not apply is left out. Times are
//! seconds. These calls ask for the rights of the caller to the tube, not to the spaces of all tubes and sessions, and
//! show no session ids, which are secrets. Each call looks at a bounded number of tasks.

use std::ops::ControlFlow;

use lycosa_store::{Access, IteratorType, Object, Store, user};
use lycosa_tuple::mp;

use crate::arguments::{Number, Table, string};
use crate::error::Error;
use crate::procedure::{Call, TubeMethod};
use crate::statistics::{TaskCounts, TubeStatistics};
use crate::task::{ShortKey, Task, id_of};
use crate::time::{MAX_TIMEOUT, MICROSECONDS};
use crate::tube::{SlotIndex, Tube};
use crate::{Answer, Caller, Queue};

/// Tasks that one `list` looks at, at most; with a filter it may find fewer.
const MAX_LOOKED_AT: usize = 2_000;
/// Tasks that one `list` returns unless `limit` says otherwise.
const DEFAULT_LIMIT: usize = 100;
/// Bytes after which a `list` ends.
const MAX_LISTED_BYTES: usize = 1 << 20;

/// Appends named values of a map, whose count is known at the end.
struct Members<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    count: u8,
}

impl<'a> Members<'a> {
    /// Room for at most 15 members: a map of one byte.
    fn new(out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        out.push(0x80);
        Self { out, start, count: 0 }
    }

    fn name(&mut self, name: &str) -> &mut Vec<u8> {
        self.count += 1;
        self.out[self.start] = 0x80 + self.count;
        mp::write_str(self.out, name.as_bytes());
        self.out
    }

    fn number(&mut self, name: &str, value: u64) {
        mp::write_uint(self.name(name), value);
    }

    /// Microseconds as seconds.
    fn seconds(&mut self, name: &str, micros: u64) {
        let out = self.name(name);
        if micros.is_multiple_of(MICROSECONDS) {
            mp::write_uint(out, micros / MICROSECONDS);
        } else {
            mp::write_double(out, micros as f64 / MICROSECONDS as f64);
        }
    }
}

/// What `list` chooses.
#[derive(Debug, Default)]
struct Filter<'a> {
    state: Option<&'a [u8]>,
    utube: Option<&'a [u8]>,
    /// Tasks that were created before, µs since the epoch.
    before: Option<u64>,
    limit: usize,
    after: Option<u64>,
}

impl<'a> Filter<'a> {
    fn parse(options: Option<&'a [u8]>, now: u64) -> Result<Self, Error> {
        let table = Table::parse(options)?;
        let number = |name: &[u8]| table.clone().get(name).and_then(Number::parse);
        let age = number(b"older_than").map(|age| age.seconds().deadline(0));
        Ok(Self {
            state: table.clone().get(b"state").and_then(string),
            utube: table.clone().get(b"utube").and_then(string),
            before: age.map(|age| now.saturating_sub(age)),
            limit: number(b"limit").map_or(DEFAULT_LIMIT, |limit| limit.count() as usize).min(MAX_LOOKED_AT),
            after: number(b"after").and_then(Number::unsigned),
        })
    }

    fn admits(&self, task: &Task<'_>) -> bool {
        self.state.is_none_or(|state| task.status == state)
            && self.utube.is_none_or(|utube| task.utube == utube)
            && self.before.is_none_or(|before| task.times.created > 0 && task.times.created <= before)
    }
}

impl Queue {
    /// Appends a stored task in extended form. False if there is none with this id.
    pub(crate) fn write_extended(
        &self,
        store: &Store,
        index: SlotIndex,
        id: u64,
        out: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        let Some(tube) = self.tubes.at(index) else { return Err(Error::Stale) };
        let task = tube.tasks(store).get(id)?.and_then(|tuple| Task::read(tuple, tube.driver.layout()));
        let Some(task) = task else { return Ok(false) };
        self.write_task_extended(store, tube, &task, out)?;
        Ok(true)
    }

    fn write_task_extended(
        &self,
        store: &Store,
        tube: &Tube,
        task: &Task<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let layout = tube.driver.layout();
        mp::write_array(out, 4);
        mp::write_uint(out, task.id);
        mp::write_str(out, task.status);
        out.extend_from_slice(task.data);
        let record = self.attempts_of(store, tube.id, task.id)?;
        let owner = self.owner(store, (tube.id, task.id))?;
        let mut members = Members::new(out);
        members.number("attempts", record.attempts);
        if record.failed_at > 0 {
            mp::write_str(members.name("last_error"), &record.last_error);
            members.seconds("failed_at", record.failed_at);
        }
        if layout.timed {
            members.number("pri", task.pri);
            members.seconds("created", task.times.created);
            // 100 years and more are without an end.
            for (name, span) in [("ttl", task.times.ttl), ("ttr", task.times.ttr)] {
                if span < MAX_TIMEOUT {
                    members.seconds(name, span);
                }
            }
            if task.times.next_event.saturating_sub(task.times.created) < MAX_TIMEOUT {
                members.seconds("due", task.times.next_event);
            }
        }
        if layout.utube.is_some() {
            mp::write_str(members.name("utube"), task.utube);
        }
        if let Some(owner) = owner {
            members.number("connection", owner.connection);
            members.seconds("taken_at", owner.moment);
        }
        Ok(())
    }

    /// `list([{state, utube, older_than, limit, after}])`: tasks in extended form in the order of their ids, and the id
    /// after which the next call goes on, or null at the end.
    pub(crate) fn list(&self, store: &Store, call: &Call<'_>, out: &mut Vec<u8>) -> Result<Answer, Error> {
        let Some(tube) = self.tubes.at(call.index) else { return Err(Error::Stale) };
        let layout = tube.driver.layout();
        let filter = Filter::parse(call.arguments.present(0), call.now)?;
        let mut found = Vec::new();
        let (mut count, mut looked_at, mut last, mut failed) = (0_u32, 0, None, None);
        let (iterator, key) = match filter.after {
            Some(after) => (IteratorType::Gt, ShortKey::id(after).to_vec()),
            None => (IteratorType::All, vec![0x90]),
        };
        store.scan(tube.space, 0, iterator, &key, &mut |tuple| {
            let is_full = looked_at == MAX_LOOKED_AT
                || count as usize >= filter.limit
                || found.len() >= MAX_LISTED_BYTES;
            if is_full {
                return ControlFlow::Break(());
            }
            looked_at += 1;
            last = id_of(tuple);
            let Some(task) = Task::read(tuple, layout).filter(|task| filter.admits(task)) else {
                return ControlFlow::Continue(());
            };
            match self.write_task_extended(store, tube, &task, &mut found) {
                Ok(()) => count += 1,
                Err(error) => {
                    failed = Some(error);
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        mp::write_array(out, count);
        out.extend_from_slice(&found);
        let is_end =
            looked_at < MAX_LOOKED_AT && (count as usize) < filter.limit && found.len() < MAX_LISTED_BYTES;
        match last.filter(|_| !is_end) {
            Some(last) => mp::write_uint(out, last),
            None => mp::write_nil(out),
        }
        Ok(Answer::Done { count: 2 })
    }

    /// `queue.tubes()`: a map of the tubes that the caller may look at: type, numbers of tasks and calls, the age of the
    /// task with the smallest id.
    pub(crate) fn write_visible_tubes(
        &self,
        store: &Store,
        caller: &Caller,
        out: &mut Vec<u8>,
    ) -> Result<Answer, Error> {
        let visible: Vec<&Tube> = self
            .tubes
            .iter()
            .filter(|tube| store.space(tube.space).is_ok() && may_look(store, caller, tube))
            .collect();
        mp::write_map(out, visible.len() as u32);
        for tube in visible {
            mp::write_str(out, tube.name.as_bytes());
            let layout = tube.driver.layout();
            let tasks = tube.tasks(store);
            let first = store.first(tube.space, 0, IteratorType::All, &[0x90])?;
            let oldest = first.and_then(|tuple| Task::read(tuple, layout)).map(|task| task.times.created);
            let mut members = Members::new(out);
            mp::write_str(members.name("type"), tube.driver.name().as_bytes());
            if let Some(created) = oldest.filter(|created| layout.timed && *created > 0) {
                members.seconds("oldest", created);
            }
            let statistics = TubeStatistics { tasks: TaskCounts::read(tasks)?, counters: tube.counters };
            statistics.write(members.name("statistics"));
        }
        Ok(Answer::one())
    }
}

/// Whether a caller may look at a tube's tasks: read its space, or call its `peek`.
fn may_look(store: &Store, caller: &Caller, tube: &Tube) -> bool {
    if caller.trusted || caller.user == user::ADMIN {
        return true;
    }
    let peek = format!("queue.tube.{}:{}", tube.name, TubeMethod::Peek.name());
    store.check_access(caller.user, Object::Space(tube.space), Access::READ).is_ok()
        || store.check_access(caller.user, Object::Function(&peek), Access::EXECUTE).is_ok()
}
