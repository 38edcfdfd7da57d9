//! `pause`, `resume`, `explain` and `audit`.

pub(crate) mod bulk;

use anyhow::Context;
use lycosa_client::Value;
use serde_json::json;

use crate::arguments::{AuditArguments, ExplainArguments, PauseArguments};
use crate::commands::options;
use crate::listing::{distance, one_line};
use crate::outcome::Outcome;
use crate::session::{Session, method};
use crate::values::{array_of, is_true, number_of, text_of, time};
use crate::{output, payload};

/// Calls a method of a tube that replies with one value.
pub(crate) fn ask(session: &Session, tube: &str, name: &str, arguments: Vec<Value>) -> anyhow::Result<Value> {
    let reply = session.call(&method(tube, name), arguments)?.into_iter().next();
    match reply.with_context(|| format!("the server said nothing to {name}"))? {
        Value::Nil => Err(lycosa_client::Error::Unavailable.into()),
        value => Ok(value),
    }
}

/// `lycosa pause` and `lycosa resume`
pub(crate) fn set_paused(arguments: &PauseArguments, paused: bool) -> anyhow::Result<Outcome> {
    let PauseArguments { tube, reason, client } = arguments;
    let session = Session::open(client)?;
    let verb = if paused { "pause" } else { "resume" };
    let given = options([("reason", reason.as_deref().map(Value::from))]);
    let has_changed = ask(&session, tube, verb, vec![given])? == Value::Bool(true);
    let text = match (paused, has_changed) {
        (true, true) => "paused: takes wait until `lycosa resume`",
        (true, false) => "was paused already",
        (false, true) => "resumed",
        (false, false) => "was not paused",
    };
    let object = json!({ "tube": tube, "paused": paused, "changed": has_changed });
    output::said(client.json, object, format_args!("tube {tube} {text}"))
}

/// `lycosa explain`
pub(crate) fn explain(arguments: &ExplainArguments) -> anyhow::Result<Outcome> {
    let ExplainArguments { tube, id, utube, client } = arguments;
    let session = Session::open(client)?;
    let (subject, title) = match (id, utube) {
        (Some(id), _) => (vec![Value::from(*id)], format!("task {id} of ")),
        (None, Some(name)) => {
            (vec![Value::map([("utube", name.as_str())])], format!("sub-queue {} of ", one_line(name, 60)))
        }
        (None, None) => (Vec::new(), String::new()),
    };
    let reply = ask(&session, tube, "explain", subject)?;
    if client.json {
        return output::done(payload::to_json(&reply));
    }
    let state = reply.get("state").and_then(Value::as_str).map(|state| format!(" is {state}"));
    let tasks = reply.get("tasks").map(|tasks| {
        let counts =
            ["ready", "taken", "delayed", "buried"].map(|name| format!("{} {name}", number_of(tasks, name)));
        format!(": {}", counts.join(", "))
    });
    let (state, tasks) = (state.unwrap_or_default(), tasks.unwrap_or_default());
    output::line(format_args!("{title}tube {tube}{state}{tasks}"))?;
    let reasons = array_of(&reply, "reasons");
    for reason in reasons {
        output::line(format_args!("  {}", one_line(text_of(reason, "text"), usize::MAX)))?;
    }
    if reasons.is_empty() && is_true(&reply, "next") {
        output::line("  the next take gets it")?;
    }
    Ok(Outcome::Done)
}

const NO_ENTRIES: &str = "the server returned no entries";

/// `lycosa audit`
pub(crate) fn audit(arguments: &AuditArguments) -> anyhow::Result<Outcome> {
    let AuditArguments { tube, limit, client } = arguments;
    let session = Session::open(client)?;
    let given = options([
        ("tube", tube.as_deref().map(Value::from)),
        ("limit", Some(Value::from(u64::from(*limit)))),
    ]);
    let entries = session.ask("queue.audit", vec![given], NO_ENTRIES)?;
    let entries = entries.as_array().context(NO_ENTRIES)?;
    if client.json {
        return output::objects(entries);
    }
    if entries.is_empty() {
        eprintln!("lycosa: the audit log has no entry that this user may see");
        return Ok(Outcome::Done);
    }
    output::table(&["id", "ago", "user", "tube", "operation", "job", "reason"], entries.iter().map(row))
}

fn row(entry: &Value) -> [String; 7] {
    let text = |name: &str| one_line(text_of(entry, name), 80);
    let number =
        |name: &str| entry.get(name).and_then(Value::as_u64).map_or(String::new(), |n| n.to_string());
    let ago = entry.get("time").and_then(distance).map_or(String::new(), time);
    // A call over HTTP acts as `admin`; the token says who.
    let user = match (text("token"), text("role")) {
        (token, _) if token.is_empty() => text("user"),
        (token, role) => format!("token {token} ({role})"),
    };
    [number("id"), ago, user, text("tube"), text("operation"), number("job"), text("reason")]
}
