//! `find`, `apply`, `undo` and `job`: many tasks at once, by a filter.

use std::time::Duration;

use anyhow::Context;
use lycosa_client::Value;
use serde_json::json;

use super::ask;
use crate::arguments::{ApplyArguments, FindArguments, JobArguments, Operation, TaskFilter, UndoArguments};
use crate::commands::{flag, options, progress_bar};
use crate::confirm;
use crate::holders::Holders;
use crate::listing;
use crate::outcome::{Outcome, Usage};
use crate::output;
use crate::payload;
use crate::session::Session;
use crate::tube_options::{self, Needs};
use crate::values::{name_of, number_of, seconds, text_of, time};

/// Time between two looks at a job.
const LOOK: Duration = Duration::from_millis(100);
/// Tasks of one page.
const PAGE: u64 = 500;

impl TaskFilter {
    /// Refuses what a tube of the type ignores, as all other commands do.
    fn check(&self, session: &Session, tube: &str) -> anyhow::Result<()> {
        listing::check_choice(session, tube, &self.choice)?;
        let given = [
            ("--younger-than", Needs::Ttl, self.younger_than.is_some()),
            ("--pri-from", Needs::Ttl, self.pri_from.is_some()),
            ("--pri-to", Needs::Ttl, self.pri_to.is_some()),
        ];
        tube_options::check(session, tube, &given)
    }

    fn is_given(&self) -> bool {
        self.all || !matches!(self.value(), Value::Map(members) if members.is_empty())
    }

    /// The filter as the server takes it.
    fn value(&self) -> Value {
        let text = |text: &Option<String>| text.as_deref().map(Value::from);
        let number = |number: Option<u64>| number.map(Value::from);
        let equals = self.equals.as_deref().map(payload::from_argument);
        options([
            ("all", flag(self.all)),
            ("state", self.choice.state.map(|state| name_of(&state).into())),
            ("utube", text(&self.choice.utube)),
            ("older_than", self.choice.older_than.map(seconds)),
            ("younger_than", self.younger_than.map(seconds)),
            ("id_from", number(self.id_from)),
            ("id_to", number(self.id_to)),
            ("pri_from", number(self.pri_from)),
            ("pri_to", number(self.pri_to)),
            ("attempts_from", number(self.attempts_from)),
            ("attempts_to", number(self.attempts_to)),
            ("error", text(&self.error)),
            ("field", text(&self.field)),
            ("equals", equals),
            ("contains", text(&self.contains)),
        ])
    }
}

/// `lycosa find`
pub(crate) fn find(arguments: &FindArguments) -> anyhow::Result<Outcome> {
    let FindArguments { tube, filter, count, limit, client } = arguments;
    let session = Session::open(client)?;
    filter.check(&session, tube)?;
    if *count {
        let job = ask(&session, tube, "count", vec![filter.value()])?;
        let job = wait(&session, tube, job)?;
        output::either(client.json, payload::to_json(&job), number_of(&job, "matched"))?;
        return Ok(outcome(&job));
    }
    let holders = Holders::new(&session);
    let (mut rows, mut left, mut cursor) = (Vec::new(), *limit, None);
    let (mut scanned, mut total) = (0, 0);
    while left > 0 {
        let page = options([("limit", Some(Value::from(left.min(PAGE)))), ("cursor", cursor)]);
        let page = ask(&session, tube, "find", vec![filter.value(), page])?;
        let tasks = page.get("tasks").and_then(Value::as_array).context("the server returned no tasks")?;
        for task in tasks {
            if client.json {
                output::line(listing::object(task, &holders))?;
            } else {
                rows.push(listing::row(task, &holders));
            }
        }
        left -= (tasks.len() as u64).min(left);
        (scanned, total) = (number_of(&page, "scanned"), number_of(&page, "total"));
        cursor = page.get("cursor").cloned();
        if cursor.is_none() {
            break;
        }
    }
    if !client.json && !rows.is_empty() {
        output::table(&listing::COLUMNS, &rows)?;
    }
    if cursor.is_some() {
        eprintln!("lycosa: scanned {scanned} of {total} tasks; --limit finds more");
    } else if !client.json && rows.is_empty() {
        eprintln!("lycosa: tube \"{tube}\" has no such task; scanned {scanned}");
    }
    Ok(Outcome::Done)
}

/// `lycosa apply`
pub(crate) fn apply(arguments: &ApplyArguments) -> anyhow::Result<Outcome> {
    let ApplyArguments { tube, operation, filter, to, delay, pri, rate, reason, yes, no_wait, client } =
        arguments;
    let action = name_of(operation);
    if !filter.is_given() {
        return Err(
            Usage(format!("{action} without a filter: --all means every task of tube \"{tube}\"")).into()
        );
    }
    if *operation == Operation::Reschedule && delay.is_none() && pri.is_none() {
        return Err(Usage("reschedule needs --delay, --pri or both".to_owned()).into());
    }
    let session = Session::open(client)?;
    filter.check(&session, tube)?;
    let timed = [("--delay", Needs::Ttl, delay.is_some()), ("--pri", Needs::Ttl, pri.is_some())];
    tube_options::check(&session, tube, &timed)?;
    let given = |dry_run: bool, counted: Option<u64>| {
        let more = options([
            ("dry_run", flag(dry_run)),
            ("counted", counted.map(Value::from)),
            ("to", to.as_deref().map(Value::from)),
            ("delay", delay.map(seconds)),
            ("pri", pri.map(Value::from)),
            ("rate", rate.filter(|_| !dry_run).map(Value::from)),
            ("reason", reason.as_deref().map(Value::from)),
        ]);
        vec![Value::from(action.as_str()), filter.value(), more]
    };
    // The server asks for the count of everything but all tasks.
    let mut counted = None;
    if !(*yes && filter.all) {
        let dry = ask(&session, tube, "apply", given(true, None))?;
        counted = Some(wait(&session, tube, dry)?);
    }
    if let Some(counted) = counted.as_ref().filter(|_| !yes) {
        let matched = number_of(counted, "matched");
        if client.json {
            output::line(json!({ "tube": tube, "operation": action, "matched": matched }))?;
        }
        if matched == 0 {
            return Ok(outcome(counted));
        }
        confirm::may_change(&action, tube, matched)?;
    }
    let job = ask(&session, tube, "apply", given(false, counted.map(|job| number_of(&job, "id"))))?;
    if *no_wait {
        return show(tube, &job, client.json);
    }
    let job = wait(&session, tube, job)?;
    show(tube, &job, client.json)
}

/// `lycosa undo`
pub(crate) fn undo(arguments: &UndoArguments) -> anyhow::Result<Outcome> {
    let UndoArguments { tube, job: id, reason, yes, client } = arguments;
    let session = Session::open(client)?;
    if !yes {
        let kept = number_of(&ask(&session, tube, "job", vec![Value::from(*id)])?, "kept");
        if kept > 0 {
            confirm::may_change(&format!("undo of job {id}"), tube, kept)?;
        }
    }
    let given = options([("reason", reason.as_deref().map(Value::from))]);
    let job = ask(&session, tube, "undo", vec![Value::from(*id), given])?;
    let job = wait(&session, tube, job)?;
    show(tube, &job, client.json)
}

/// `lycosa job`
pub(crate) fn job(arguments: &JobArguments) -> anyhow::Result<Outcome> {
    let JobArguments { tube, id, pause, resume, cancel, rate, client } = arguments;
    let session = Session::open(client)?;
    let Some(id) = id else {
        let jobs = ask(&session, tube, "jobs", Vec::new())?;
        let jobs = jobs.as_array().unwrap_or_default();
        if client.json {
            return output::objects(jobs);
        } else if jobs.is_empty() {
            eprintln!("lycosa: tube \"{tube}\" has no jobs");
        } else {
            let heading = ["id", "operation", "state", "scanned", "matched", "changed", "ago", "user"];
            output::table(&heading, jobs.iter().map(row))?;
        }
        return Ok(Outcome::Done);
    };
    let id = Value::from(*id);
    let action = [("pause", *pause), ("resume", *resume), ("cancel", *cancel), ("rate", rate.is_some())];
    let reply = match action.iter().find(|(_, is_given)| *is_given) {
        Some((action, _)) => {
            let more = options([("rate", rate.map(Value::from))]);
            ask(&session, tube, "control", vec![id, Value::from(*action), more])?
        }
        None => ask(&session, tube, "job", vec![id])?,
    };
    show(tube, &reply, client.json)
}

fn row(job: &Value) -> Vec<String> {
    let count = |name: &str| number_of(job, name).to_string();
    let scanned = format!("{} of {}", number_of(job, "scanned"), number_of(job, "total"));
    let changed = if text_of(job, "operation") == "undo" { "undone" } else { "changed" };
    let ago = job.get("began").and_then(listing::distance).map_or(String::new(), time);
    let operation = match job.get("dry_run") {
        Some(_) if text_of(job, "operation") != "count" => format!("{} (dry run)", text_of(job, "operation")),
        _ => text_of(job, "operation").to_owned(),
    };
    let state = text_of(job, "state").to_owned();
    vec![
        count("id"),
        operation,
        state,
        scanned,
        count("matched"),
        count(changed),
        ago,
        text_of(job, "user").to_owned(),
    ]
}

/// Waits until a job is over or paused, with a bar on a terminal.
fn wait(session: &Session, tube: &str, mut job: Value) -> anyhow::Result<Value> {
    let template = "{bar:40} {pos}/{len} tasks looked at, {eta} left";
    let bar = progress_bar(Some(number_of(&job, "total")), template, template);
    while text_of(&job, "state") == "running" {
        std::thread::sleep(LOOK);
        job = ask(session, tube, "job", vec![Value::from(number_of(&job, "id"))])?;
        bar.set_length(number_of(&job, "total"));
        bar.set_position(number_of(&job, "scanned"));
    }
    bar.finish_and_clear();
    Ok(job)
}

fn outcome(job: &Value) -> Outcome {
    if matches!(text_of(job, "state"), "failed" | "paused") { Outcome::Refused } else { Outcome::Done }
}

/// Prints a job, and how it goes on.
fn show(tube: &str, job: &Value, as_json: bool) -> anyhow::Result<Outcome> {
    if as_json {
        output::line(payload::to_json(job))?;
        return Ok(outcome(job));
    }
    let (id, operation, state) = (number_of(job, "id"), text_of(job, "operation"), text_of(job, "state"));
    if operation == "undo" {
        let (undone, touched) = (number_of(job, "undone"), number_of(job, "touched_since"));
        let of = number_of(job, "total").max(number_of(job, "scanned"));
        output::line(format_args!(
            "job {id} is {state}: {undone} of {of} undone, {touched} were taken or changed since, {} are gone",
            number_of(job, "gone")
        ))?;
    } else {
        output::line(format_args!(
            "job {id} ({operation}) is {state}: scanned {} of {}, {} matched, {} changed",
            number_of(job, "scanned"),
            number_of(job, "total"),
            number_of(job, "matched"),
            number_of(job, "changed")
        ))?;
    }
    match job.get("error").and_then(Value::as_str) {
        Some(error) if error.ends_with("for memtx_tuple") => eprintln!(
            "lycosa: job {id}: the server's memory for tasks is used up (memory_limit). Finish or delete tasks, or raise it, \
             then `lycosa job {tube} {id} --resume`"
        ),
        Some(error) => eprintln!("lycosa: job {id}: {error}"),
        None => {}
    }
    let kept = number_of(job, "kept");
    if kept > 0 && job.get("undo_until").is_some() {
        let left = job.get("undo_until").and_then(listing::distance).map_or(String::new(), time);
        output::line(format_args!(
            "`lycosa undo {tube} {id}` brings {kept} of them back, for another {left}"
        ))?;
    }
    if state == "running" {
        output::line(format_args!("`lycosa job {tube} {id}` shows how far it is; --cancel ends it"))?;
    }
    Ok(outcome(job))
}
