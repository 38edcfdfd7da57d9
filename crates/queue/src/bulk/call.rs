//! Calls about jobs: they begin, show, control and undo jobs.

use std::ops::ControlFlow;

use lycosa_store::{Access, IteratorType, Object, user};
use lycosa_tuple::mp::Kind;

use super::MAX_UNFINISHED;
use super::filter::{Filter, write_everything};
use super::record::{Action, JobState, Record};
use super::schedule::{Schedule, delay};
use crate::Answer;
use crate::arguments::{Options, Table, kind, string, unsigned};
use crate::audit::reason;
use crate::command::{Call, QueueCall};
use crate::error::{Error, Result};
use crate::listing::may_look;
use crate::procedure::TubeMethod;
use crate::system::write_newest;
use crate::task::id_of;
use crate::time::MICROSECONDS;
use crate::tube::Tube;
use crate::turn::{JobsTurn, Turn};

/// How long the count of a dry run may stand for its tasks, µs.
const COUNT_TIME: u64 = 3_600 * MICROSECONDS;

/// Jobs that `jobs()` returns at most.
const MAX_LISTED: u32 = 100;

fn unfit(method: &'static str, what: impl Into<String>) -> Error {
    Error::Unfit { method, what: what.into() }
}

/// Options of `apply`.
#[derive(Debug)]
struct ApplyOptions<'a> {
    dry_run: bool,
    /// The dry run that has counted the tasks.
    counted: Option<u64>,
    to: Option<&'a [u8]>,
    schedule: Schedule,
    rate: u64,
    reason: Vec<u8>,
}

/// What the option `rate` should be.
const RATE: &str = "option rate should be a number of tasks a second, 1 or more";

fn rate(value: &[u8]) -> Option<u64> {
    unsigned(value).filter(|rate| *rate > 0)
}

impl<'a> ApplyOptions<'a> {
    fn parse(options: Option<&'a [u8]>) -> Result<Self> {
        let reason = reason("apply", options)?;
        let known = ["dry_run", "counted", "to", "delay", "pri", "rate", "reason"];
        let options = Options::parse("apply", "argument #3", options, &known)?;
        let flag = |value: &[u8]| matches!(value, [0xc2 | 0xc3]).then_some(value == [0xc3]);
        let until = "option delay should be a number of seconds, 0 to 100 years";
        let pri = options.read("pri", "option pri should be a whole number, 0 or more", unsigned)?;
        Ok(Self {
            dry_run: options.read("dry_run", "option dry_run should be true or false", flag)? == Some(true),
            counted: options.read("counted", "option counted should be the id of a job", unsigned)?,
            to: options.read("to", "option to should be the name of a tube", string)?,
            schedule: Schedule { delay: options.read("delay", until, delay)?, pri },
            rate: options.read("rate", RATE, rate)?.unwrap_or_default(),
            reason,
        })
    }
}

impl JobsTurn<'_> {
    /// `count([filter])`
    pub(crate) fn count(&mut self, call: &Call<'_>, out: &mut Vec<u8>) -> Result<Answer> {
        let filter = call.arguments.present(0);
        let mut job = self.of_filter("count", call, (Action::Count, Schedule::default()), filter)?;
        job.dry_run = true;
        self.begin(call, job, None, out)
    }

    /// `apply(operation, filter[, {dry_run, counted, to, delay, pri, rate, reason}])`
    pub(crate) fn apply(&mut self, call: &Call<'_>, out: &mut Vec<u8>) -> Result<Answer> {
        let name = call.arguments.get(0).and_then(string);
        let action = name.and_then(Action::of_apply).ok_or_else(|| {
            let given =
                name.map(|name| format!(" \"{}\"", String::from_utf8_lossy(name))).unwrap_or_default();
            let all = "kick, release, run, reschedule, bury, delete and move are";
            unfit("apply", format!("there is no operation{given}: {all}"))
        })?;
        let options = ApplyOptions::parse(call.arguments.present(2))?;
        match (action, options.schedule.is_empty()) {
            (Action::Reschedule, true) => {
                return Err(unfit("apply", "reschedule needs the option delay, in seconds, or pri, or both"));
            }
            (Action::Reschedule, false) => self.check_is_timed(call)?,
            (_, false) => return Err(unfit("apply", "only reschedule has the options delay and pri")),
            (_, true) => {}
        }
        let order = (action, options.schedule);
        let mut job = self.of_filter("apply", call, order, call.arguments.present(1))?;
        (job.dry_run, job.rate, job.reason) = (options.dry_run, options.rate, options.reason);
        match (action, options.to) {
            (Action::Move, Some(to)) => (job.to_id, job.to) = self.destination(call, to)?,
            (Action::Move, None) => {
                return Err(unfit("apply", "move needs the option to: the name of a tube"));
            }
            (_, Some(_)) => return Err(unfit("apply", "only move has the option to")),
            (_, None) => {}
        }
        if !job.dry_run {
            self.check_counted(call, &job, options.counted)?;
        }
        let operation = (!job.dry_run).then_some(action.name());
        self.begin(call, job, operation, out)
    }

    /// Refuses a change of tasks whose number its caller has not seen: `counted` is a dry run of the same operation with the same
    /// filter and destination. A filter that names one task, or says `all = true`, needs none.
    fn check_counted(&mut self, call: &Call<'_>, job: &Record, counted: Option<u64>) -> Result<()> {
        let action = job.action.name();
        let now = self.turn.now;
        let filter_of = |turn: &mut Turn<'_>, filter: &[u8]| {
            Filter::parse("apply", Some(filter), turn.tube(call.index)?.tube, now)
        };
        let filter = filter_of(&mut self.turn, &job.filter)?;
        let Some(id) = counted else {
            if filter.is_deliberate() {
                return Ok(());
            }
            let text = format!(
                "the tasks of this filter were not counted: call it with dry_run = true first, and then with \
counted = ID of the dry run; or add all = true to the filter to {action} all that match"
            );
            return Err(unfit("apply", text));
        };
        let other = |what: String| Err(unfit("apply", format!("option counted: {what}")));
        let Some(dry) =
            self.turn.common.bulk.read(self.turn.store, id)?.filter(|dry| dry.is_of(job.tube_id, &job.tube))
        else {
            return other(format!("tube \"{}\" has no job {id}", job.tube));
        };
        if !dry.dry_run || dry.action != job.action {
            return other(format!("job {id} is no dry run of {action}"));
        }
        if dry.to_id != job.to_id {
            return other(format!("job {id} counted for the tube \"{}\", not \"{}\"", dry.to, job.to));
        }
        if dry.schedule != job.schedule {
            return other(format!("job {id} counted for another delay or priority"));
        }
        if dry.state != JobState::Done {
            return other(format!("job {id} has not counted to its end: it is {}", dry.state.name()));
        }
        if now.saturating_sub(dry.ended) > COUNT_TIME {
            return other(format!("job {id} has counted more than an hour ago: count again"));
        }
        if filter_of(&mut self.turn, &dry.filter)? != filter {
            return other(format!("job {id} counted the tasks of another filter"));
        }
        Ok(())
    }

    /// `undo(id[, {reason}])`
    pub(crate) fn undo(&mut self, call: &Call<'_>, out: &mut Vec<u8>) -> Result<Answer> {
        let reason = reason("undo", call.arguments.present(1))?;
        let undone = self.of_tube("undo", call)?;
        let id = undone.id;
        if !undone.state.is_over() {
            return Err(unfit("undo", format!("job {id} is {}: cancel it first", undone.state.name())));
        }
        if undone.kept == 0 {
            return Err(unfit("undo", format!("job {id} has nothing to undo")));
        }
        if undone.undo_until <= self.turn.now {
            return Err(unfit("undo", format!("job {id} cannot be undone any more: its time is over")));
        }
        if self.turn.common.bulk.is_being_undone(self.turn.store, id)? {
            return Err(unfit("undo", format!("job {id} is being undone already")));
        }
        if undone.to_id.is_some() {
            self.destination(call, undone.to.as_bytes())?;
        }
        let mut job = Record::new(undone.tube_id, &undone.tube, Action::Undo, self.turn.now);
        (job.undoes, job.total, job.reason) = (Some(id), undone.kept, reason);
        (job.to_id, job.to, job.schedule) = (undone.to_id, undone.to, undone.schedule);
        self.begin(call, job, Some("undo"), out)
    }

    /// `queue.jobs([{limit, before}])`: of all tubes that the caller may look at, the newest first.
    pub(crate) fn list_all(&self, call: QueueCall<'_>, out: &mut Vec<u8>) -> Result<Answer> {
        let QueueCall { caller, arguments } = call;
        let options = Options::parse("jobs", "argument #1", arguments.present(0), &["limit", "before"])?;
        let number = |name| options.read(name, "limit and before should be whole numbers", unsigned);
        let limit = number("limit")?.map_or(MAX_LISTED, |limit| limit.min(MAX_LISTED.into()) as u32);
        let before = number("before")?;
        let is_seen = |job: &Record| {
            let tube = self.turn.tubes.by_id(job.tube_id).and_then(|index| self.turn.tubes.at(index));
            match tube.filter(|tube| job.is_of(tube.id, &tube.name)) {
                Some(tube) => may_look(self.turn.store, caller, tube),
                None => caller.trusted || caller.effective == user::ADMIN,
            }
        };
        self.write_listed((before, limit), is_seen, out)
    }

    /// Appends the jobs that are seen, the newest first.
    fn write_listed(
        &self,
        (before, limit): (Option<u64>, u32),
        is_seen: impl Fn(&Record) -> bool,
        out: &mut Vec<u8>,
    ) -> Result<Answer> {
        let Turn { store, common, .. } = &self.turn;
        write_newest(store, common.bulk.jobs.existing(store), (before, limit), out, |row, out| {
            let job = Record::read(row).filter(&is_seen);
            job.iter().for_each(|job| job.write(out));
            ControlFlow::Continue(job.is_some())
        })?;
        Ok(Answer::one())
    }

    /// `job(id)`
    pub(crate) fn show(&mut self, call: &Call<'_>, out: &mut Vec<u8>) -> Result<Answer> {
        self.of_tube("job", call)?.write(out);
        Ok(Answer::one())
    }

    /// `jobs()`: the jobs of the tube, the newest first.
    pub(crate) fn list(&mut self, call: &Call<'_>, out: &mut Vec<u8>) -> Result<Answer> {
        let Some(tube) = self.turn.tubes.at(call.index) else { return Err(Error::Stale) };
        self.write_listed((None, MAX_LISTED), |job| job.is_of(tube.id, &tube.name), out)
    }

    /// `control(id, action[, {rate, reason}])`
    pub(crate) fn control(&mut self, call: &Call<'_>, out: &mut Vec<u8>) -> Result<Answer> {
        let options = call.arguments.present(2);
        let reason = reason("control", options)?;
        let mut job = self.of_tube("control", call)?;
        let action = call.arguments.get(1).and_then(string);
        if job.state.is_over() {
            return Err(unfit("control", format!("job {} is over: it is {}", job.id, job.state.name())));
        }
        let operation = match action {
            Some(b"pause") => {
                job.state = JobState::Paused;
                "pause job"
            }
            Some(b"resume") => {
                (job.state, job.error) = (JobState::Running, String::new());
                "resume job"
            }
            Some(b"cancel") => {
                job.end(JobState::Cancelled, self.turn.now);
                "cancel job"
            }
            Some(b"rate") => {
                let given = Table::parse(options)?.get(b"rate");
                let given = given.ok_or_else(|| unfit("control", "rate needs the option rate"))?;
                job.rate = rate(given).ok_or_else(|| unfit("control", RATE))?;
                "set rate of job"
            }
            _ => return Err(unfit("control", "argument #2 should be pause, resume, cancel or rate")),
        };
        self.refuse_transaction("control")?;
        let caller = call.caller;
        self.turn.transact(|turn| {
            turn.common.bulk.write(turn.store, &job)?;
            turn.audit().note(caller, &job.steered(operation, &reason))
        })?;
        self.turn.common.bulk.note(&job, 0);
        job.write(out);
        Ok(Answer::one())
    }

    fn refuse_transaction(&self, method: &'static str) -> Result<()> {
        if self.turn.store.in_transaction() { Err(Error::InTransaction(method)) } else { Ok(()) }
    }

    /// The job of the tube whose id is the first argument.
    fn of_tube(&self, method: &'static str, call: &Call<'_>) -> Result<Record> {
        let id = call.arguments.get(0).and_then(unsigned);
        let id = id.ok_or_else(|| unfit(method, "argument #1 should be the id of a job"))?;
        let Some(tube) = self.turn.tubes.at(call.index) else { return Err(Error::Stale) };
        let job =
            self.turn.common.bulk.read(self.turn.store, id)?.filter(|job| job.is_of(tube.id, &tube.name));
        job.ok_or_else(|| unfit(method, format!("tube \"{}\" has no job {id}", tube.name)))
    }

    /// A job that looks at the tasks that a filter admits.
    fn of_filter(
        &mut self,
        method: &'static str,
        call: &Call<'_>,
        (action, schedule): (Action, Schedule),
        filter: Option<&[u8]>,
    ) -> Result<Record> {
        self.refuse_transaction(method)?;
        let turn = self.turn.tube(call.index)?;
        let parsed = Filter::parse(method, filter, turn.tube, turn.now)?;
        if parsed.is_empty() && action != Action::Count {
            return Err(unfit(method, "the filter is empty: all = true means every task"));
        }
        if parsed.state.is_some_and(|state| action.leaves(state)) {
            return Err(unfit(method, format!("{} changes no task of the filter's state", action.name())));
        }
        let mut job = Record::new(turn.tube.id, &turn.tube.name, action, turn.now);
        job.schedule = schedule;
        let parsed = job.narrowed(parsed);
        job.below = turn.tube.next_id.unwrap_or(u64::MAX);
        job.total = turn.walk_total(&parsed)?;
        job.filter.clear();
        match filter.filter(|filter| kind(filter) == Kind::Map) {
            Some(filter) => job.filter.extend_from_slice(filter),
            None => write_everything(&mut job.filter),
        }
        Ok(job)
    }

    /// The tube to which tasks are to move: another one, to which the caller may put.
    fn destination(&self, call: &Call<'_>, name: &[u8]) -> Result<(Option<u64>, String)> {
        let name = String::from_utf8_lossy(name).into_owned();
        let handle = self.turn.tubes.by_name(&name);
        let Some((handle, tube)) = handle.and_then(|handle| Some((handle, self.turn.tubes.get(handle)?)))
        else {
            return Err(unfit("apply", format!("option to: tube \"{name}\" does not exist")));
        };
        if handle.index == call.index {
            return Err(unfit("apply", format!("option to: the tasks are in tube \"{name}\" already")));
        }
        let caller = call.caller;
        if !(caller.trusted || caller.effective == user::ADMIN) {
            let put = format!("queue.tube.{name}:{}", TubeMethod::Put.name());
            let check = |object, access| self.turn.store.check_access(caller.effective, object, access);
            check(Object::Function(&put), Access::EXECUTE)
                .or_else(|_| check(Object::Space(tube.space), Access::READ | Access::WRITE))?;
        }
        Ok((Some(tube.id), name))
    }

    /// Refuses to reschedule tasks that have neither a delay nor a priority.
    fn check_is_timed(&mut self, call: &Call<'_>) -> Result<()> {
        let Tube { name, kind, .. } = self.turn.tube(call.index)?.tube;
        if kind.layout().timed {
            return Ok(());
        }
        let of = format!("tube \"{name}\" ({})", kind.name());
        Err(unfit("apply", format!("{of} has no delays and no priorities: reschedule needs a ttl type")))
    }

    /// Refuses a change of priorities beside another change: a walk by priority would meet a task twice, or miss it.
    fn check_priorities(&self, job: &Record) -> Result<()> {
        if !job.is_change() {
            return Ok(());
        }
        let bulk = &self.turn.common.bulk;
        for id in &bulk.unfinished {
            let other = bulk.read(self.turn.store, *id)?;
            let other = other.filter(|other| other.tube_id == job.tube_id && !other.state.is_over());
            let Some(other) = other.filter(Record::is_change) else { continue };
            if job.changes_priorities() || other.changes_priorities() {
                let (tube, state) = (&job.tube, other.state.name());
                let text = format!(
                    "job {id} of tube \"{tube}\" is {state}, and priorities change while no other job changes tasks: wait for \
its end, or cancel it"
                );
                return Err(unfit(job.action.name(), text));
            }
        }
        Ok(())
    }

    /// Writes the row of a new job, and its entry in the audit log.
    fn begin(
        &mut self,
        call: &Call<'_>,
        mut job: Record,
        operation: Option<&str>,
        out: &mut Vec<u8>,
    ) -> Result<Answer> {
        self.refuse_transaction(job.action.name())?;
        if self.turn.common.bulk.unfinished.len() >= MAX_UNFINISHED {
            let text = "jobs are unfinished already: cancel one, or wait for its end";
            return Err(unfit(job.action.name(), format!("{MAX_UNFINISHED} {text}")));
        }
        self.check_priorities(&job)?;
        let caller = call.caller;
        job.user = self.turn.common.actor_name(self.turn.store, caller.session, caller.effective);
        self.turn.transact(|turn| {
            let bulk = &mut turn.common.bulk;
            let space = bulk.jobs.obtain(turn.store)?;
            let last = turn.store.first(space, 0, IteratorType::Le, &[0x90])?.and_then(id_of);
            job.id = last.map_or(1, |last| last.saturating_add(1));
            bulk.drop_oldest(turn.store)?;
            bulk.write(turn.store, &job)?;
            operation
                .map_or(Ok(()), |operation| turn.audit().note(caller, &job.steered(operation, &job.reason)))
        })?;
        self.turn.common.bulk.note(&job, 0);
        job.write(out);
        Ok(Answer::one())
    }
}
