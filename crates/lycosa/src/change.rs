//! `release`, `bury`, `kick` and `delete`: by ids, or for the tasks that a filter chooses.
//!
//! A filter counts its tasks first, and asks; then they are changed, in batches. A batch that is refused, because a task has changed
//! meanwhile, is done again task by task, and the tasks that are refused then are named.

use anyhow::bail;
use lycosa_client::{Error, Kind, Value};
use serde_json::json;

use crate::arguments::{
    BuryArguments, Choice, ChosenArguments, FilterArguments, KickArguments, ReleaseArguments, TaskState,
};
use crate::commands::{TubeCalls, flag, options};
use crate::outcome::{Outcome, Usage};
use crate::output::{self, Task};
use crate::session::Session;
use crate::values::{counted, name_of, pairs, seconds};
use crate::{confirm, explain, listing, tube_options};

/// Tasks of one call.
const BATCH: usize = 500;
/// Refused tasks that are named, at most.
const NAMED: u64 = 20;

/// The change of each task.
struct Change<'a> {
    /// For people, and the name of the method for one task.
    verb: &'a str,
    /// What the count says was done.
    done: &'a str,
    /// The state that a task must have.
    only: Option<TaskState>,
    filter: &'a FilterArguments,
}

/// `lycosa release`
pub(crate) fn release(arguments: &ReleaseArguments) -> anyhow::Result<Outcome> {
    let ReleaseArguments { chosen, delay, reason, force } = arguments;
    let ChosenArguments { tube, ids, token, client, session, .. } = chosen;
    let session = &Session::open_joined(client, session)?;
    // A filter releases tasks of any session.
    let by_filter = ids.is_empty() && token.is_empty();
    let options = options([
        ("delay", delay.map(seconds)),
        ("reason", reason.as_deref().map(Value::from)),
        ("force", flag(*force || by_filter)),
    ]);
    tube_options::check(session, tube, &options)?;
    let options = Some(options).filter(|options| !pairs(Some(options)).is_empty());
    let calls = &TubeCalls { session, client, tube, options };
    if by_filter {
        let only = Some(TaskState::Taken);
        return Change { verb: "release", done: "released", only, filter: &chosen.filter }.run(calls);
    }
    match force {
        true => one_by_one(calls, "release_many", ids),
        false => calls.for_all_named("release", (ids, token)),
    }
}

/// `lycosa bury`
pub(crate) fn bury(arguments: &BuryArguments) -> anyhow::Result<Outcome> {
    change(&arguments.chosen, "bury", "buried", arguments.reason.as_deref())
}

/// `lycosa delete`
pub(crate) fn delete(chosen: &ChosenArguments) -> anyhow::Result<Outcome> {
    change(chosen, "delete", "deleted", None)
}

/// Changes each task that a token or an id names, or the tasks that a filter chooses.
fn change(chosen: &ChosenArguments, verb: &str, done: &str, reason: Option<&str>) -> anyhow::Result<Outcome> {
    let options = reason.map(|reason| Value::map([("reason", reason)]));
    let ChosenArguments { tube, ids, token, client, session, filter } = chosen;
    let session = &Session::open_joined(client, session)?;
    let calls = &TubeCalls { session, client, tube, options };
    if token.is_empty() && ids.is_empty() {
        return Change { verb, done, only: None, filter }.run(calls);
    }
    calls.for_each_named(verb, (ids, token))
}

/// `lycosa kick`
pub(crate) fn kick(arguments: &KickArguments) -> anyhow::Result<Outcome> {
    let KickArguments { tube, unclear, count, id, filter, client } = arguments;
    if let Some(number) = unclear.first() {
        let ids = unclear.join(",");
        bail!(Usage(format!(
            "kick {tube} {number} is not clear: `lycosa kick {tube} --id {ids}` makes these tasks ready, `lycosa kick {tube} --count \
             {number}` the first {number}"
        )));
    }
    let session = &Session::open(client)?;
    let calls = &TubeCalls { session, client, tube, options: None };
    if !id.is_empty() {
        return one_by_one(calls, "kick_many", id);
    }
    if filter.choice.is_given() || filter.limit.is_some() {
        return Change { verb: "kick", done: "kicked", only: Some(TaskState::Buried), filter }.run(calls);
    }
    let values = calls.call("kick", count.unwrap_or(1).into())?;
    said(calls, "kicked", values.first().and_then(Value::as_u64).unwrap_or(0))
}

fn said(calls: &TubeCalls<'_>, done: &str, count: u64) -> anyhow::Result<Outcome> {
    let TubeCalls { client, tube, .. } = calls;
    let words = format_args!("{done} {} of {tube}", counted(count, "task"));
    output::said(client.json, json!({ "tube": tube, done: count }), words)
}

/// Calls a method for many tasks with one id at a time; goes on after one that is refused.
fn one_by_one(calls: &TubeCalls<'_>, many: &str, ids: &[u64]) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::Done;
    for &id in ids {
        match call_many(calls, many, &[id]) {
            Ok(tasks) => output::tasks(&tasks, calls.client.json, None)?,
            Err(error) if refusal(&error).is_some() => {
                eprintln!("lycosa: {} {id}: {}", calls.tube, of_task(id, &error));
                outcome = Outcome::Refused;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(outcome)
}

fn call_many(calls: &TubeCalls<'_>, many: &str, ids: &[u64]) -> anyhow::Result<Vec<Task>> {
    let values = calls.call_many(many, ids).map_err(|error| match error.kind() {
        // Every Lycosa has it; the tube exists, or the error would say so.
        Some(kind @ Kind::NoSuchProcedure) => {
            let text = format!("this server has no method {many}: it runs the Lua module");
            explain::replaced(error, text, kind)
        }
        _ => error,
    })?;
    Task::many_of(&values)
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

/// Whether the server refused a call for a task, so that the next task may fare better.
fn is_about_a_task(error: &anyhow::Error) -> bool {
    matches!(refusal(error), Some(Kind::NoSuchTask | Kind::NotTaken | Kind::NotBuried))
}

impl Change<'_> {
    /// Counts the tasks that the filter chooses, and changes them if told to.
    fn run(&self, calls: &TubeCalls<'_>) -> anyhow::Result<Outcome> {
        let TubeCalls { session, client, tube, .. } = calls;
        // The method for many tasks.
        let many = &format!("{}_many", self.verb);
        let choice = self.choice_in_state()?;
        let mut ids = Vec::new();
        listing::each_chosen(session, tube, &choice, self.filter.limit.unwrap_or(u64::MAX), |task| {
            ids.extend(task.as_array().and_then(|task| task.first()).and_then(Value::as_u64));
            Ok(())
        })?;
        if !self.filter.yes && !ids.is_empty() {
            if client.json {
                output::line(json!({ "tube": tube, "chosen": ids.len() }))?;
            }
            confirm::may_change(self.verb, tube, ids.len() as u64)?;
        }
        let (mut changed, mut refused) = (0, 0);
        for batch in ids.chunks(BATCH) {
            match call_many(calls, many, batch) {
                Ok(tasks) => changed += tasks.len() as u64,
                Err(error) if is_about_a_task(&error) => {
                    for id in batch {
                        match call_many(calls, many, &[*id]) {
                            Ok(tasks) => changed += tasks.len() as u64,
                            Err(error) if is_about_a_task(&error) => {
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
        said(calls, self.done, changed)?;
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
