//! Agreement of the spaces with the model, and rules that need no model.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use lycosa_instance::Instance;
use lycosa_queue::SessionId;
use lycosa_store::{IteratorType, Range, Store};
use lycosa_tuple::mp::{self, Reader};
use lycosa_tuple::value::Value;

use crate::keyed::adopt_answers;
use crate::model::{Attempts, Fields, Job, JobState, Kept, Lease, Model, Owner, Session, Task, Tube};
use crate::names::{LeaseToken, Names};
use crate::plan::TubePlan;
use crate::request::Span;
use crate::shared::Shared;
use crate::steering::{Action, Filter, Schedule};
use crate::violation::{Checked, Violation, hold};
use crate::worker::{read_headers, read_take_name, take_name};

/// Walks over a space in the order of its primary index; `None` if there is no such space.
fn walk<'a>(store: &'a Store, space: &str) -> Checked<Option<Range<'a>>> {
    let Some(space) = store.space_by_name(space) else { return Ok(None) };
    let walk = store.range(space.id(), 0, IteratorType::All, &[0x90], 0);
    walk.map(Some).map_err(|error| Violation(format!("space '{}' cannot be read: {error}", space.name())))
}

/// The same, and nothing of a space that is absent.
pub(crate) fn walk_any<'a>(store: &'a Store, space: &str) -> Checked<impl Iterator<Item = &'a [u8]>> {
    Ok(walk(store, space)?.into_iter().flatten())
}

/// The tuples of a space in the order of its primary index; `None` if there is no such space.
pub(crate) fn rows(store: &Store, space: &str) -> Checked<Option<Vec<Vec<u8>>>> {
    Ok(walk(store, space)?.map(|walk| walk.map(<[u8]>::to_vec).collect()))
}

fn system_rows(store: &Store, space: &str) -> Checked<Vec<Vec<u8>>> {
    rows(store, space)?.ok_or_else(|| Violation(format!("space '{space}' is not there")))
}

/// The owners of tasks, whether they are entered into their space or not.
fn taken_rows(instance: &Instance) -> Checked<Vec<Vec<u8>>> {
    let rows = instance.queue().taken_rows(instance.store());
    rows.map_err(|error| Violation(format!("the owners of tasks cannot be read: {error}")))
}

fn shown(row: &[u8]) -> String {
    match Value::decode(row) {
        Ok(value) => value.to_string(),
        Err(_) => format!("{row:02x?}"),
    }
}

fn same(what: impl Display, actual: &[Vec<u8>], expected: &[Vec<u8>]) -> Checked {
    if actual == expected { Ok(()) } else { Err(difference(what, actual, expected)) }
}

fn difference(what: impl Display, actual: &[Vec<u8>], expected: &[Vec<u8>]) -> Violation {
    let missing = expected.iter().find(|row| !actual.contains(row)).map(|row| shown(row));
    let surplus = actual.iter().find(|row| !expected.contains(row)).map(|row| shown(row));
    Violation(format!(
        "{what}: {} rows instead of {}; missing {}, too many {}",
        actual.len(),
        expected.len(),
        missing.as_deref().unwrap_or("none"),
        surplus.as_deref().unwrap_or("none")
    ))
}

/// The tubes, their tasks and ready buffers: all that a restart finds again.
pub(crate) fn tubes_agree(store: &Store, model: &Model, plans: &[TubePlan]) -> Checked {
    let mut row = Vec::new();
    for (number, plan) in plans.iter().enumerate() {
        let name = &plan.name;
        let tasks = walk(store, name)?;
        let buffer = rows(store, &format!("{name}_ready_buffer"))?;
        let Some(tube) = model.tubes.get(&number) else {
            hold!(
                tasks.is_none() && buffer.is_none(),
                "tube {name} is there although it was never made or is dropped"
            );
            continue;
        };
        let tasks = tasks.ok_or_else(|| Violation(format!("the space of tube {name} is gone")))?;
        tasks_agree(tube, tasks, &mut row)?;
        hold!(buffer.is_some() == plan.ready_buffer, "tube {name} lacks its ready buffer or has one");
        if let Some(buffer) = buffer {
            same(format_args!("ready buffer of tube {name}"), &buffer, &tube.candidates())?;
        }
    }
    Ok(())
}

/// Walks over the tasks of tube and space together. `row` is a buffer.
fn tasks_agree(tube: &Tube, mut found: Range<'_>, row: &mut Vec<u8>) -> Checked {
    let all = found.clone();
    let is_found = tube.tasks.iter().all(|(id, task)| {
        row.clear();
        task.write(*id, tube.kind(), row);
        found.next().is_some_and(|found| found == &**row)
    });
    if is_found && found.next().is_none() {
        return Ok(());
    }
    let actual: Vec<Vec<u8>> = all.map(<[u8]>::to_vec).collect();
    let expected: Vec<Vec<u8>> = tube.tasks.iter().map(|(id, task)| encoded(tube, *id, task)).collect();
    let what = format_args!("tube {} ({})", tube.plan.name, tube.kind().name());
    Err(difference(what, &actual, &expected))
}

fn encoded(tube: &Tube, id: u64, task: &Task) -> Vec<u8> {
    let mut out = Vec::new();
    task.write(id, tube.kind(), &mut out);
    out
}

/// How often each task was tried, and why and when it failed last.
pub(crate) fn attempts_agree(store: &Store, model: &Model) -> Checked {
    let mut expected = BTreeMap::new();
    for tube in model.tubes.values() {
        let tried = tube.tasks.iter().filter_map(|(id, task)| Some((*id, task.attempts?)));
        expected.extend(tried.map(|(id, attempts)| ((tube.id, id), attempts)));
    }
    let mut expected = expected.into_iter();
    for row in walk_any(store, "_lycosa_attempts")? {
        let (found, expected) = (attempts_row(row)?, expected.next());
        hold!(expected == Some(found), "attempts are {found:?} instead of {expected:?}");
    }
    let lost = expected.next();
    hold!(lost.is_none(), "attempts have no row: {lost:?}");
    Ok(())
}

/// Tube, task and attempts that a row of `_lycosa_attempts` states.
fn attempts_row(row: &[u8]) -> Checked<((u64, u64), Attempts)> {
    let mut reader = Reader::new(row);
    let mut read = || {
        let count = reader.array().ok()?;
        let task = (reader.uint().ok()?, reader.uint().ok()?);
        let attempts = attempts_fields(&mut reader)?;
        Some((task, Attempts { header: header_field(&mut reader, count > 5)?, ..attempts }))
    };
    read().ok_or_else(|| unreadable("_lycosa_attempts"))
}

/// The number of attempts, the reason of the last failure, and its moment.
fn attempts_fields(reader: &mut Reader<'_>) -> Option<Attempts> {
    let (attempts, reason, failed_at) = (reader.uint().ok()?, reader.str().ok()?, reader.uint().ok()?);
    let last_error = Attempts::known_reason(reason)?;
    Some(Attempts { attempts, last_error, failed_at, header: None })
}

/// What the header says in the field that stands behind all others of a row, if it stands there.
fn header_field(reader: &mut Reader<'_>, is_there: bool) -> Option<Option<u8>> {
    match is_there {
        false => Some(None),
        true => Value::decode(reader.raw().ok()?).ok().and_then(|headers| read_headers(&headers)).map(Some),
    }
}

/// Rows of jobs, and what they say. Most rows are as they were when they were read last.
#[derive(Debug, Default)]
pub(crate) struct ReadJobs(BTreeMap<u64, (Vec<u8>, Job)>);

impl ReadJobs {
    /// What a row of `_lycosa_jobs` says.
    fn read(&mut self, row: &[u8]) -> Checked<&Job> {
        let mut reader = Reader::new(row);
        let id = reader.array().and_then(|_| reader.uint()).map_err(|_| unreadable("_lycosa_jobs"))?;
        let read = || {
            let job = job_row(row).ok_or_else(|| unreadable("_lycosa_jobs"));
            job.map(|job| (row.to_vec(), job))
        };
        let (_, job) = match self.0.entry(id) {
            Entry::Vacant(entry) => entry.insert(read()?),
            Entry::Occupied(entry) => {
                let known = entry.into_mut();
                if known.0 != row {
                    *known = read()?;
                }
                known
            }
        };
        Ok(job)
    }
}

/// The jobs, and the tasks that they keep for `undo`.
pub(crate) fn jobs_agree(store: &Store, model: &Model, plans: &[TubePlan], known: &mut ReadJobs) -> Checked {
    let mut begun = model.jobs.all.values();
    for row in walk_any(store, "_lycosa_jobs")? {
        let (job, expected) = (known.read(row)?, begun.next());
        hold!(
            expected.is_some_and(|expected| **expected == *job),
            "a job is {job:?} instead of {expected:?}"
        );
    }
    let lost = begun.next();
    hold!(lost.is_none(), "{lost:?} has no row");

    let mut kept = model.jobs.kept.iter();
    let (mut job_of_kind, mut kind, mut tuple) = (None, None, Vec::new());
    for row in walk_any(store, "_lycosa_bin")? {
        let row = kept_row(row)?;
        let Some(((job, id), expected)) = kept.next() else {
            return Err(Violation(format!("{row:?} is kept, and no job has changed it")));
        };
        if job_of_kind.replace(*job) != Some(*job) {
            kind = model.jobs.all.get(job).and_then(|job| kind_of(model, plans, job));
        }
        tuple.clear();
        if let Some(kind) = kind {
            expected.task.write(*id, kind, &mut tuple);
        }
        // Of a tube that is gone the model does not know the form of tuples any more.
        let is_same = (row.job, row.id, row.moved_to) == (*job, *id, expected.moved_to)
            && row.attempts == expected.task.attempts.unwrap_or_default()
            && (kind.is_none() || row.tuple == tuple);
        hold!(is_same, "{row:?} is kept instead of task {id} of job {job}, {expected:?}");
    }
    let lost = kept.next();
    hold!(lost.is_none(), "{lost:?} is not kept");
    Ok(())
}

/// What kind of tube the job is about, while it exists.
fn kind_of(model: &Model, plans: &[TubePlan], job: &Job) -> Option<crate::plan::Kind> {
    model.tubes.get(&job.tube).filter(|tube| tube.id == job.tube_id).map(|_| plans[job.tube].kind)
}

fn job_row(row: &[u8]) -> Option<Job> {
    let row = Value::decode(row).ok()?;
    let fields = row.as_array()?;
    let number = |field: usize| fields.get(field)?.as_u64();
    let text = |field: usize| fields.get(field)?.as_str();
    let optional = |field: usize| match fields.get(field)? {
        Value::Nil => Some(None),
        number => number.as_u64().map(Some),
    };
    let position = match fields.get(15)? {
        Value::Str(key) if !key.is_empty() => {
            // A position is the key of an index: the id stands last, before it the priority or nothing that the model needs.
            let key = Value::decode(key).ok()?;
            let parts = key.as_array()?;
            let id = parts.last()?.as_u64()?;
            Some((parts.get(1).filter(|_| parts.len() == 3).and_then(Value::as_u64).unwrap_or(0), id))
        }
        _ => None,
    };
    Some(Job {
        id: number(0)?,
        tube: text(2)?.strip_prefix('t')?.parse().ok()?,
        tube_id: number(1)?,
        action: Action::ALL.into_iter().find(|action| Some(action.name()) == text(3))?,
        state: JobState::ALL.into_iter().find(|state| Some(state.name()) == text(4))?,
        filter: Filter::read(fields.get(5)?),
        to_id: optional(6)?,
        undoes: optional(8)?,
        rate: number(9)?,
        dry_run: *fields.get(10)? == Value::from(true),
        below: number(14)?,
        position,
        scanned: number(17)?,
        matched: number(18)?,
        changed: number(19)?,
        kept: number(20)?,
        began: number(22)?,
        ended: number(23)?,
        undo_until: number(24)?,
        undone: number(25)?,
        touched_since: number(26)?,
        gone: number(27)?,
        schedule: match fields.len() {
            28 => Schedule::default(),
            _ => Schedule { delay: optional(28)?.map(Span), pri: optional(29)? },
        },
    })
}

/// A row of `_lycosa_bin`: the tuple of a task before a job changed it, and its id in the tube to which it was moved.
#[derive(Debug)]
struct KeptRow<'a> {
    job: u64,
    id: u64,
    tuple: &'a [u8],
    attempts: Attempts,
    moved_to: Option<u64>,
}

fn kept_row(row: &[u8]) -> Checked<KeptRow<'_>> {
    let mut reader = Reader::new(row);
    let mut read = || {
        let count = reader.array().ok()?;
        let (job, id, tuple) = (reader.uint().ok()?, reader.uint().ok()?, reader.raw().ok()?);
        let attempts = attempts_fields(&mut reader)?;
        let moved_to = Reader::new(reader.raw().ok()?).uint().ok();
        let attempts = Attempts { header: header_field(&mut reader, count > 7)?, ..attempts };
        Some(KeptRow { job, id, tuple, attempts, moved_to })
    };
    read().ok_or_else(|| unreadable("_lycosa_bin"))
}

/// Holders of tasks, waiting calls and sessions. Learns the ids of new sessions.
pub(crate) fn sessions_agree(instance: &Instance, model: &Model, names: &mut Names) -> Checked {
    let store = instance.store();
    let mut connections = BTreeSet::new();
    for row in system_rows(store, "_queue_session_ids")? {
        let (connection, id) = connection_row(&row).ok_or_else(|| unreadable("_queue_session_ids"))?;
        let key = model.connections.get(&connection).copied();
        let key = key.ok_or_else(|| {
            Violation(format!(
                "connection {connection} has a session although it never needed one or is gone"
            ))
        })?;
        names.learn(connection, key, id)?;
        connections.insert(connection);
    }
    for connection in model.connections.keys() {
        hold!(connections.contains(connection), "connection {connection} has lost its session");
    }
    let id = |key| names.id(key).map_or(&[][..], |id| &id[..]);

    let mut expected: Vec<Vec<u8>> = Vec::new();
    for (key, session) in &model.sessions {
        let mut row = Vec::new();
        let keeps_opener = instance.queue().configuration().in_replicaset;
        mp::write_array(&mut row, 3 + u32::from(keeps_opener));
        mp::write_str(&mut row, id(*key));
        mp::write_uint(&mut row, session.expires.unwrap_or(0));
        mp::write_bool(&mut row, session.expires.is_none());
        if keeps_opener {
            mp::write_str(&mut row, if session.is_admins { b"admin" } else { b"guest" });
        }
        expected.push(row);
    }
    expected.sort_unstable();
    same("_queue_shared_sessions", &system_rows(store, "_queue_shared_sessions")?, &expected)?;

    let mut expected = BTreeMap::new();
    for tube in model.tubes.values() {
        for (task, owner) in tube.tasks.iter().filter_map(|(id, task)| Some((*id, task.owner?))) {
            let mut row = Vec::new();
            mp::write_array(&mut row, 5 + u32::from(owner.name.is_some()));
            [tube.id, task, owner.connection].iter().for_each(|number| mp::write_uint(&mut row, *number));
            mp::write_str(&mut row, id(owner.session));
            mp::write_uint(&mut row, owner.since);
            if let Some(name) = owner.name {
                mp::write_bin(&mut row, &take_name(name));
            }
            expected.insert((tube.id, task), row);
        }
    }
    let expected: Vec<_> = expected.into_values().collect();
    same("_queue_taken_2", &taken_rows(instance)?, &expected)?;
    leases_agree(store, model, names)?;
    waiters_agree(instance, model)
}

/// A row of `_lycosa_leases`.
struct LeaseRow {
    /// Tube and task.
    task: (u64, u64),
    ends: u64,
    since: u64,
    token: LeaseToken,
}

fn lease_row(row: &[u8]) -> Checked<LeaseRow> {
    let mut reader = Reader::new(row);
    let mut read = || {
        reader.array().ok()?;
        let mut number = || reader.uint().ok();
        let (tube, task, epoch, secret) = (number()?, number()?, number()?, number()?);
        let (ends, since) = (number()?, number()?);
        Some(LeaseRow { task: (tube, task), ends, since, token: LeaseToken { tube, task, epoch, secret } })
    };
    read().ok_or_else(|| unreadable("_lycosa_leases"))
}

/// The leases of tasks. Learns the tokens of new ones.
fn leases_agree(store: &Store, model: &Model, names: &mut Names) -> Checked {
    let mut expected = BTreeMap::new();
    for tube in model.tubes.values() {
        let leased = tube.tasks.iter().filter_map(|(id, task)| Some(((tube.id, *id), task.lease?)));
        expected.extend(leased);
    }
    for row in walk_any(store, "_lycosa_leases")? {
        let LeaseRow { task, ends, since, token } = lease_row(row)?;
        // A space has one row for a key, so no second one asks for the same.
        let lease = expected.remove(&task);
        hold!(
            lease.is_some_and(|lease| (lease.ends, lease.since) == (ends, since)),
            "the lease of task {task:?} was taken at {since} and ends at {ends}, instead of {lease:?}"
        );
        lease.map_or(Ok(()), |lease| names.learn_token(lease.key, token))?;
    }
    let lost = expected.keys().next();
    hold!(lost.is_none(), "the lease of task {lost:?} is gone");
    Ok(())
}

fn unreadable(space: &str) -> Violation {
    Violation(format!("a row of {space} has not the fields that it ought to have"))
}

fn connection_row(row: &[u8]) -> Option<(u64, SessionId)> {
    let mut reader = Reader::new(row);
    reader.array().ok()?;
    Some((reader.uint().ok()?, reader.str().ok()?.try_into().ok()?))
}

/// Takes that wait have rows; the number in the second field is the queue's own affair.
fn waiters_agree(instance: &Instance, model: &Model) -> Checked {
    let mut actual = Vec::new();
    let rows = instance.queue().consumer_rows(instance.store());
    for row in rows.map_err(|error| Violation(format!("_queue_consumers cannot be read: {error}")))? {
        let mut numbers = [0; 5];
        let mut reader = Reader::new(&row);
        let read = reader.array().and_then(|_| {
            numbers.iter_mut().try_for_each(|number| {
                *number = reader.uint()?;
                Ok(())
            })
        });
        read.map_err(|_| unreadable("_queue_consumers"))?;
        let [connection, _, tube, deadline, since] = numbers;
        actual.push([connection, tube, deadline, since]);
    }
    let mut expected = Vec::new();
    for tube in model.tubes.values() {
        for waiter in tube.waiters.iter().filter(|waiter| waiter.wanted.is_take()) {
            expected.push([waiter.token.connection, tube.id, waiter.deadline, waiter.since]);
        }
    }
    actual.sort_unstable();
    expected.sort_unstable();
    hold!(
        actual == expected,
        "_queue_consumers: [connection, tube, until, since] {actual:?} instead of {expected:?}"
    );
    Ok(())
}

/// The next id after the recovered data, by the sequence of a tube.
fn next_id(store: &Store, tube: &str) -> u64 {
    let sequence = store.space_by_name(tube).and_then(lycosa_store::Space::sequence);
    let last = sequence.and_then(|sequence| store.sequence(sequence)?.value);
    last.and_then(|last| u64::try_from(last + 1).ok()).unwrap_or(0)
}

/// A row that a client inserts into a temporary tube moves its sequence on, and a snapshot keeps the sequence, though not the
/// row. So the ids of such a tube go on at the reserved ids, or later.
pub(crate) fn adopt_temporary_ids(store: &Store, model: &mut Model) -> Checked {
    for tube in model.tubes.values_mut().filter(|tube| tube.plan.temporary) {
        let next_id = next_id(store, &tube.plan.name);
        hold!(
            next_id >= tube.reserved,
            "tube {} goes on at id {next_id} although the ids below {} were reserved",
            tube.plan.name,
            tube.reserved
        );
        (tube.next_id, tube.reserved) = (next_id, next_id);
    }
    Ok(())
}

/// Makes the model that of the recovered data, which end in the middle of a step: `model` is that of the moment before it,
/// `after` that of the moment after it. What the step did not change must be as it was.
pub(crate) fn adopt(store: &Store, model: &mut Model, after: &Model, names: &Names) -> Checked {
    let sessions = system_rows(store, "_queue_shared_sessions")?;
    model.sessions = sessions.iter().filter_map(|row| shared_session(row, names)).collect();
    let owners = system_rows(store, "_queue_taken_2")?;
    let owners: BTreeMap<_, _> = owners.iter().filter_map(|row| owner(row, names)).collect();
    let mut leases = BTreeMap::new();
    for row in walk_any(store, "_lycosa_leases")? {
        let LeaseRow { task, ends, since, token } = lease_row(row)?;
        leases.extend(names.lease(&token.to_string()).map(|key| (task, Lease { key, ends, since })));
    }
    let attempts =
        walk_any(store, "_lycosa_attempts")?.map(attempts_row).collect::<Checked<BTreeMap<_, _>>>()?;
    for (number, tube) in &mut model.tubes {
        let found = rows(store, &tube.plan.name)?.unwrap_or_default();
        let mut tasks = BTreeMap::new();
        for row in &found {
            let id = Reader::new(&row[1..]).uint().map_err(|_| unreadable(&tube.plan.name))?;
            let mut task = Task::read(row, tube.kind()).ok_or_else(|| unreadable(&tube.plan.name))?;
            task.owner = owners.get(&(tube.id, id)).copied();
            task.lease = leases.get(&(tube.id, id)).copied();
            task.attempts = attempts.get(&(tube.id, id)).copied();
            tasks.insert(id, task);
        }
        let Some(after) = after.tubes.get(number) else { continue };
        for (id, task) in tube.tasks.iter().filter(|(id, task)| after.tasks.get(id) == Some(task)) {
            // The model gives times to all tasks, a space to those of tubes with deadlines.
            let row = encoded(tube, *id, task);
            hold!(
                tasks.get(id).is_some_and(|found| (found.owner, found.lease, found.attempts)
                    == (task.owner, task.lease, task.attempts)
                    && encoded(tube, *id, found) == row),
                "task {id} of tube {} was changed by a step that did not concern it",
                tube.plan.name
            );
        }
        tube.next_id = next_id(store, &tube.plan.name);
        tube.reserved = tube.next_id;
        hold!(
            tasks.keys().next_back().is_none_or(|last| *last < tube.next_id),
            "the next id {} of tube {} is in use",
            tube.next_id,
            tube.plan.name
        );
        tube.tasks = tasks;
    }
    adopt_answers(store, model, after)?;
    adopt_jobs(store, model)
}

/// The same of jobs: progress of a job commits with what it has changed.
fn adopt_jobs(store: &Store, model: &mut Model) -> Checked {
    let mut kept = BTreeMap::new();
    let mut jobs = BTreeMap::new();
    for row in walk_any(store, "_lycosa_jobs")? {
        let job = job_row(row).ok_or_else(|| unreadable("_lycosa_jobs"))?;
        jobs.insert(job.id, Shared::new(job));
    }
    for row in walk_any(store, "_lycosa_bin")? {
        let KeptRow { job, id, tuple, attempts, moved_to } = kept_row(row)?;
        let known = jobs.get(&job).and_then(|job| Some((job, model.tubes.get(&job.tube)?)));
        let kind = known.filter(|(job, tube)| job.tube_id == tube.id).map(|(_, tube)| tube.kind());
        let read = kind.and_then(|kind| Task::read(tuple, kind));
        let task = read.map(|task| Task { attempts: Some(attempts), ..task });
        let before = model.jobs.kept.get(&(job, id)).map(|kept| kept.task.clone());
        let task = before.or(task).ok_or_else(|| unreadable("_lycosa_bin"))?;
        kept.insert((job, id), Kept { task, moved_to });
    }
    model.jobs.all = jobs;
    model.jobs.kept = Shared::new(kept);
    model.jobs.find();
    Ok(())
}

fn shared_session(row: &[u8], names: &Names) -> Option<(crate::model::SessionKey, Session)> {
    let mut reader = Reader::new(row);
    reader.array().ok()?;
    let key = names.key(&reader.str().ok()?.try_into().ok()?)?;
    let expires = reader.uint().ok()?;
    let expires = (!reader.bool().ok()?).then_some(expires);
    let is_admins = reader.str().is_ok_and(|opener| opener == b"admin");
    Some((key, Session { expires, is_admins }))
}

fn owner(row: &[u8], names: &Names) -> Option<((u64, u64), Owner)> {
    let mut reader = Reader::new(row);
    reader.array().ok()?;
    let key = (reader.uint().ok()?, reader.uint().ok()?);
    let connection = reader.uint().ok()?;
    let session = names.key(&reader.str().ok()?.try_into().ok()?)?;
    let since = reader.uint().ok()?;
    let name = reader.bin().ok().and_then(read_take_name);
    Some((key, Owner { session, connection, since, name }))
}

/// The numbers that the queue keeps are those of a recount.
pub(crate) fn counts_hold(instance: &Instance) -> Checked {
    instance.queue().verify(instance.store()).map_err(|wrong| Violation(format!("a recount: {wrong}")))
}

/// The rule of owners, in tubes of all types: a lease has a taken task, and so has a session; no task has both.
pub(crate) fn owners_hold(instance: &Instance) -> Checked {
    let store = instance.store();
    let mut tubes = BTreeMap::new();
    for row in walk_any(store, "_queue")? {
        let mut reader = Reader::new(row);
        let read = reader.array().and_then(|_| Ok((reader.str()?, reader.uint()?)));
        let (name, tube) = read.map_err(|_| unreadable("_queue"))?;
        tubes.insert(tube, store.space_by_name(&String::from_utf8_lossy(name)).map(lycosa_store::Space::id));
    }
    let mut held = BTreeSet::new();
    let sessions = taken_rows(instance)?;
    for row in sessions.iter().map(Vec::as_slice).chain(walk_any(store, "_lycosa_leases")?) {
        let mut reader = Reader::new(row);
        let key = reader.array().and_then(|_| Ok((reader.uint()?, reader.uint()?)));
        let (tube, task) = key.map_err(|_| unreadable("_queue_taken_2"))?;
        hold!(held.insert((tube, task)), "a session and a lease hold task {task} of tube {tube}");
        let space = tubes.get(&tube).copied().flatten();
        let space = space.ok_or_else(|| Violation(format!("tube {tube} has owners, and is not there")))?;
        let key = Value::array([task]).encode();
        let found = store.get(space, 0, &key);
        let found = found.map_err(|error| Violation(format!("task {task} cannot be read: {error}")))?;
        let status = found.and_then(|row| {
            let mut reader = Reader::new(row);
            reader.array().and_then(|_| reader.skip()).ok()?;
            reader.str().ok()
        });
        hold!(status == Some(b"t"), "task {task} of tube {tube} has an owner, and is {status:?}");
    }
    Ok(())
}

/// The rules of the spaces after any request: a task is taken exactly if a client holds it, and of a sub-queue
/// at most one is.
pub(crate) fn rules_hold(instance: &Instance, plans: &[TubePlan]) -> Checked {
    let store = instance.store();
    let mut held = BTreeSet::new();
    for row in taken_rows(instance)? {
        let mut reader = Reader::new(&row);
        let key = reader.array().and_then(|_| Ok((reader.uint()?, reader.uint()?)));
        held.insert(key.map_err(|_| unreadable("_queue_taken_2"))?);
    }
    for row in walk_any(store, "_lycosa_leases")? {
        let LeaseRow { task, .. } = lease_row(row)?;
        hold!(held.insert(task), "a session and a lease hold the task {task:?}");
    }
    let mut taken = BTreeSet::new();
    for row in walk_any(store, "_queue")? {
        let mut reader = Reader::new(row);
        let read = reader.array().and_then(|_| Ok((reader.str()?, reader.uint()?)));
        let (name, tube) = read.map_err(|_| unreadable("_queue"))?;
        let Some(plan) = plans.iter().find(|plan| plan.name.as_bytes() == name) else {
            return Err(Violation("_queue names a tube that nobody made".to_owned()));
        };
        let mut busy = BTreeSet::new();
        for row in walk_any(store, &plan.name)? {
            let Fields { id, status, utube, .. } =
                Fields::read(row, plan.kind).ok_or_else(|| unreadable(&plan.name))?;
            if status != 't' {
                continue;
            }
            taken.insert((tube, id));
            let is_first = !plan.kind.has_sub_queues() || busy.insert(utube);
            hold!(is_first, "two tasks of sub-queue '{utube}' of tube {} are taken", plan.name);
        }
    }
    hold!(taken == held, "(tube, task) that are taken: {taken:?}; that somebody holds: {held:?}");
    Ok(())
}
