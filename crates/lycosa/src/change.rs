//! `release`, `bury`, `kick` and `delete`: by ids, or for the tasks that a filter chooses.
//!
//! A filter counts its tasks first, and asks; then they are changed, in batches. A batch that is refused, because a task has changed
//! meanwhile, is done again task by task, and the tasks that are refused then are named.

use lycosa_client::{Error, Kind, Value};
use serde_json::json;

use crate::arguments::{
    BuryArguments, Choice, ChosenArguments, ClientArguments, FilterArguments, KickArguments,
    ReleaseArguments, TaskState,
};
use crate::commands::{flag, for_all_ids, for_each_id, method, options};
use crate::confirm;
use crate::explain;
use crate::listing;
use crate::outcome::{Outcome, Usage};
use crate::output::{self, Task};
use crate::session::Session;
use crate::tube_options::{self, Needs};
use crate::values::{counted, name_of, seconds};

/// Tasks of one call.
const BATCH: usize = 500;
/// Refused tasks that are named, at most.
const NAMED: u64 = 20;

/// The change of each task.
struct Change<'a> {
    /// For people, and the name of the method for one task.
    verb: &'static str,
    /// The method for many tasks.
    many: &'static str,
    /// What the count says was done.
    done: &'static str,
    options: Option<Value>,
    /// The state that a task must have.
    only: Option<TaskState>,
    filter: &'a FilterArguments,
}

/// `lycosa release`
pub(crate) fn release(arguments: &ReleaseArguments) -> anyhow::Result<Outcome> {
    let ReleaseArguments { chosen, delay, reason, force } = arguments;
    let ChosenArguments { tube, ids, token, client, .. } = chosen;
    let session = open(chosen)?;
    tube_options::check(&session, tube, &[("--delay", Needs::Ttl, delay.is_some())])?;
    let by_filter = ids.is_empty();
    let given = |force: bool| {
        let pairs = [
            ("delay", delay.map(seconds)),
            ("reason", reason.as_deref().map(Value::from)),
            ("force", flag(force)),
        ];
        Some(options(pairs)).filter(|options| !matches!(options, Value::Map(pairs) if pairs.is_empty()))
    };
    if !token.is_empty() {
        return for_each_id(&session, client, tube, "release", token, given(false).as_ref());
    }
    if by_filter {
        let change =
            Change::new("release", "release_many", "released", given(true), Some(TaskState::Taken), chosen);
        return change.run(&session, tube, client);
    }
    if *force {
        return one_by_one(&session, client, tube, "release_many", ids, given(true).as_ref());
    }
    // Several ids are one batch, if the server knows batches.
    if ids.len() > 1
        && let Some(outcome) =
            for_all_ids(&session, client, tube, "release_many", ids, given(false).as_ref())?
    {
        return Ok(outcome);
    }
    for_each_id(&session, client, tube, "release", ids, given(false).as_ref())
}

/// `lycosa bury`
pub(crate) fn bury(arguments: &BuryArguments) -> anyhow::Result<Outcome> {
    let BuryArguments { chosen, reason } = arguments;
    let given = reason.as_deref().map(|reason| Value::map([("reason", reason)]));
    let session = open(chosen)?;
    if let Some(outcome) = for_named(&session, chosen, "bury", given.as_ref())? {
        return Ok(outcome);
    }
    let change = Change::new("bury", "bury_many", "buried", given, None, chosen);
    change.run(&session, &chosen.tube, &chosen.client)
}

/// `lycosa delete`
pub(crate) fn delete(chosen: &ChosenArguments) -> anyhow::Result<Outcome> {
    let session = open(chosen)?;
    if let Some(outcome) = for_named(&session, chosen, "delete", None)? {
        return Ok(outcome);
    }
    let change = Change::new("delete", "delete_many", "deleted", None, None, chosen);
    change.run(&session, &chosen.tube, &chosen.client)
}

/// `lycosa kick`
pub(crate) fn kick(arguments: &KickArguments) -> anyhow::Result<Outcome> {
    let KickArguments { tube, unclear, count, id, filter, client } = arguments;
    if let Some(number) = unclear.first() {
        return Err(Usage(format!(
            "kick {tube} {number} is not clear: `lycosa kick {tube} --id {}` makes these tasks ready, `lycosa kick {tube} --count \
             {number}` the first {number}",
            unclear.join(",")
        ))
        .into());
    }
    let session = Session::open(client)?;
    if !id.is_empty() {
        return one_by_one(&session, client, tube, "kick_many", id, None);
    }
    if filter.choice.is_given() || filter.limit.is_some() {
        let (options, only) = (None, Some(TaskState::Buried));
        let (verb, many, done) = ("kick", "kick_many", "kicked");
        let change = Change { verb, many, done, options, only, filter };
        return change.run(&session, tube, client);
    }
    let values = session.call(&method(tube, "kick"), vec![count.unwrap_or(1).into()])?;
    said(client, tube, "kicked", values.first().and_then(Value::as_u64).unwrap_or(0))
}

fn open(chosen: &ChosenArguments) -> anyhow::Result<Session> {
    let session = Session::open(&chosen.client)?;
    session.join(&chosen.session)?;
    Ok(session)
}

/// Calls a method for each task that a token or an id names. `None`: a filter chooses the tasks.
fn for_named(
    session: &Session,
    chosen: &ChosenArguments,
    name: &str,
    options: Option<&Value>,
) -> anyhow::Result<Option<Outcome>> {
    let ChosenArguments { tube, ids, token, client, .. } = chosen;
    match (token.is_empty(), ids.is_empty()) {
        (false, _) => for_each_id(session, client, tube, name, token, options).map(Some),
        (true, false) => for_each_id(session, client, tube, name, ids, options).map(Some),
        (true, true) => Ok(None),
    }
}

fn said(client: &ClientArguments, tube: &str, done: &str, count: u64) -> anyhow::Result<Outcome> {
    if client.json {
        output::line(json!({ "tube": tube, done: count }))?;
    } else {
        output::line(format_args!("{done} {} of {tube}", counted(count, "task")))?;
    }
    Ok(Outcome::Done)
}

/// Calls a method for many tasks with one id at a time; goes on after one that is refused.
fn one_by_one(
    session: &Session,
    client: &ClientArguments,
    tube: &str,
    many: &'static str,
    ids: &[u64],
    options: Option<&Value>,
) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::Done;
    for &id in ids {
        match call_many(session, tube, many, &[id], options) {
            Ok(tasks) => output::tasks(&tasks, client.json, None)?,
            Err(error) if refusal(&error).is_some() => {
                eprintln!("lycosa: {tube} {id}: {}", of_task(id, &error));
                outcome = Outcome::Refused;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(outcome)
}

fn call_many(
    session: &Session,
    tube: &str,
    many: &'static str,
    ids: &[u64],
    options: Option<&Value>,
) -> anyhow::Result<Vec<Task>> {
    let arguments = std::iter::once(Value::array(ids.iter().copied())).chain(options.cloned()).collect();
    let values = session.call(&method(tube, many), arguments).map_err(|error| match error.kind() {
        // Every Lycosa has it; the tube exists, or the error would say so.
        Some(Kind::NoSuchProcedure) => {
            let text = format!("this server has no method {many}: it runs the Lua module");
            explain::replaced(error, text, Kind::NoSuchProcedure)
        }
        _ => error,
    })?;
    Ok(Task::read_many(values.first().unwrap_or(&Value::Nil))?.unwrap_or_default())
}

/// The error of a batch of one task, without the task's id, which the line names already.
fn of_task(id: u64, error: &anyhow::Error) -> String {
    let text = error.to_string();
    text.strip_prefix(&format!("task {id}: ")).map(str::to_owned).unwrap_or(text)
}

/// Why the server refused a call, if it did.
fn refusal(error: &anyhow::Error) -> Option<Kind> {
    error.downcast_ref().and_then(Error::kind)
}

/// Whether the next task may fare better.
fn is_about_a_task(kind: Kind) -> bool {
    matches!(kind, Kind::NoSuchTask | Kind::NotTaken | Kind::NotBuried)
}

impl<'a> Change<'a> {
    fn new(
        verb: &'static str,
        many: &'static str,
        done: &'static str,
        options: Option<Value>,
        only: Option<TaskState>,
        chosen: &'a ChosenArguments,
    ) -> Self {
        Self { verb, many, done, options, only, filter: &chosen.filter }
    }

    /// Counts the tasks that the filter chooses, and changes them if told to.
    fn run(&self, session: &Session, tube: &str, client: &ClientArguments) -> anyhow::Result<Outcome> {
        let choice = self.choice_in_state()?;
        listing::check_choice(session, tube, &choice)?;
        let mut ids = Vec::new();
        listing::each_chosen(session, tube, &choice, self.filter.limit.unwrap_or(u64::MAX), |task| {
            ids.extend(task.as_array().and_then(|task| task.first()).and_then(Value::as_u64));
            Ok(())
        })?;
        if !self.filter.yes && !ids.is_empty() {
            let (verb, count) = (self.verb, ids.len());
            if client.json {
                output::line(json!({ "tube": tube, "chosen": count }))?;
            }
            confirm::may_change(verb, tube, count as u64)?;
        }
        let (mut changed, mut refused) = (0, 0);
        for batch in ids.chunks(BATCH) {
            match call_many(session, tube, self.many, batch, self.options.as_ref()) {
                Ok(tasks) => changed += tasks.len() as u64,
                Err(error) if batch.len() > 1 && refusal(&error).is_some_and(is_about_a_task) => {
                    for id in batch {
                        match call_many(session, tube, self.many, &[*id], self.options.as_ref()) {
                            Ok(tasks) => changed += tasks.len() as u64,
                            Err(error) if refusal(&error).is_some_and(is_about_a_task) => {
                                refused += 1;
                                if refused <= NAMED {
                                    eprintln!("lycosa: {tube} {id}: {}", of_task(*id, &error));
                                }
                            }
                            Err(error) => return Err(error),
                        }
                    }
                }
                Err(error) => return Err(error),
            }
        }
        said(client, tube, self.done, changed)?;
        if refused > 0 {
            eprintln!("lycosa: refused for changes since the count: {}", counted(refused, "task"));
            return Ok(Outcome::Refused);
        }
        Ok(Outcome::Done)
    }

    /// The filter with the state that a task must have.
    fn choice_in_state(&self) -> Result<Choice, Usage> {
        let mut choice = self.filter.choice.clone();
        if let Some(only) = self.only {
            if choice.state.is_some_and(|state| state != only) {
                let (verb, state) = (self.verb, name_of(&only));
                return Err(Usage(format!("{verb} changes {state} tasks only: leave --state out")));
            }
            choice.state = Some(only);
        }
        Ok(choice)
    }
}
