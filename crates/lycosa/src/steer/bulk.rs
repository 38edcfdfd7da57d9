//! `find`, `apply`, `undo` and `job`: many tasks at once, by a filter.

use std::time::Duration;

use anyhow::{Context, bail};
use lycosa_client::Value;
use serde_json::json;

use super::ask;
use crate::arguments::{ApplyArguments, FindArguments, JobArguments, Operation, TaskFilter, UndoArguments};
use crate::commands::{flag, options, progress_bar};
use crate::holders::Holders;
use crate::outcome::{Outcome, Usage};
use crate::session::Session;
use crate::values::{name_of, number_of, pairs, seconds, text_of, time};
use crate::{confirm, listing, output, payload, tube_options};

/// Time between two looks at a job.
const LOOK: Duration = Duration::from_millis(100);
/// Tasks of one page.
const PAGE: u64 = 500;

impl TaskFilter {
    fn is_given(&self) -> bool {
        !pairs(Some(&self.value())).is_empty()
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
    tube_options::check(&session, tube, &filter.value())?;
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
        bail!(Usage(format!("{action} without a filter: --all means every task of tube \"{tube}\"")));
    }
    if *operation == Operation::Reschedule && delay.is_none() && pri.is_none() {
        bail!(Usage("reschedule needs --delay, --pri or both".to_owned()));
    }
    let session = Session::open(client)?;
    tube_options::check(&session, tube, &filter.value())?;
    let more = |dry_run: bool, counted: Option<u64>| {
        options([
            ("dry_run", flag(dry_run)),
            ("counted", counted.map(Value::from)),
            ("to", to.as_deref().map(Value::from)),
            ("delay", delay.map(seconds)),
            ("pri", pri.map(Value::from)),
            ("rate", rate.filter(|_| !dry_run).map(Value::from)),
            ("reason", reason.as_deref().map(Value::from)),
        ])
    };
    tube_options::check(&session, tube, &more(true, None))?;
    let apply =
        |more: Value| ask(&session, tube, "apply", vec![action.as_str().into(), filter.value(), more]);
    // The server asks for the count of everything but all tasks.
    let mut counted = None;
    if !(*yes && filter.all) {
        counted = Some(wait(&session, tube, apply(more(true, None))?)?);
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
    let job = apply(more(false, counted.map(|job| number_of(&job, "id"))))?;
    let job = if *no_wait { job } else { wait(&session, tube, job)? };
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
            return Ok(Outcome::Done);
        }
        let heading = ["id", "operation", "state", "scanned", "matched", "changed", "ago", "user"];
        return output::table(&heading, jobs.iter().map(row));
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

fn row(job: &Value) -> [String; 8] {
    let scanned = format!("{} of {}", number_of(job, "scanned"), number_of(job, "total"));
    let changed = if text_of(job, "operation") == "undo" { "undone" } else { "changed" };
    let ago = job.get("began").and_then(listing::distance).map_or(String::new(), time);
    let operation = match job.get("dry_run") {
        Some(_) if text_of(job, "operation") != "count" => format!("{} (dry run)", text_of(job, "operation")),
        _ => text_of(job, "operation").to_owned(),
    };
    let [state, user] = ["state", "user"].map(|name| text_of(job, name).to_owned());
    let [id, matched, changed] = ["id", "matched", changed].map(|name| number_of(job, name).to_string());
    [id, operation, state, scanned, matched, changed, ago, user]
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
    let [scanned, total] = ["scanned", "total"].map(|name| number_of(job, name));
    if operation == "undo" {
        let of = total.max(scanned);
        let [undone, touched, gone] = ["undone", "touched_since", "gone"].map(|name| number_of(job, name));
        output::line(format_args!(
            "job {id} is {state}: {undone} of {of} undone, {touched} were taken or changed since, {gone} are gone"
        ))?;
    } else {
        let [matched, changed] = ["matched", "changed"].map(|name| number_of(job, name));
        output::line(format_args!(
            "job {id} ({operation}) is {state}: scanned {scanned} of {total}, {matched} matched, {changed} changed"
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
