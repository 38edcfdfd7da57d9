//! `lycosa expiration`: tasks that delete tuples on their deadline.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lycosa_client::Value;
use serde_json::json;

use crate::arguments::{ExpirationCommand, ExpirationStartArguments, ServerArguments};
use crate::commands::{by_name, flag, options};
use crate::outcome::Outcome;
use crate::session::Session;
use crate::values::{counted, is_true, number_of, text_of, time};
use crate::{output, payload};

/// Pause between two questions whether a dry run is over.
const POLL: Duration = Duration::from_millis(50);
const NO_STATISTICS: &str = "the server answers no statistics";

pub(crate) fn run(command: ExpirationCommand) -> anyhow::Result<Outcome> {
    match command {
        ExpirationCommand::Start(arguments) => start(&arguments),
        ExpirationCommand::List(arguments) => list(&arguments),
        ExpirationCommand::Stats { name, access } => stats(name.as_deref(), &access),
        ExpirationCommand::Stop { name, if_exists, access } => stop(&name, if_exists, &access),
    }
}

/// A number, or else a name.
fn named(text: &str) -> Value {
    text.parse::<u64>().map_or_else(|_| Value::from(text), Value::from)
}

fn start(arguments: &ExpirationStartArguments) -> anyhow::Result<Outcome> {
    let session = Session::open_server(&arguments.access)?;
    let text = |value: &Option<String>| value.as_deref().map(Value::from);
    let options = options([
        ("field", Some(named(&arguments.field))),
        ("unit", text(&arguments.unit)),
        ("index", arguments.index.as_deref().map(named)),
        ("delete_by", arguments.delete_by.as_deref().map(named)),
        ("scan_size", arguments.scan_size.map(Value::from)),
        ("scan_time", arguments.scan_time.map(Value::from)),
        ("budget_rows", arguments.budget_rows.map(Value::from)),
        ("budget_us", arguments.budget_us.map(Value::from)),
        ("share", arguments.share.map(Value::from)),
        ("lag_limit", arguments.lag_limit.map(Value::Double)),
        ("archive_tube", text(&arguments.archive_tube)),
        ("archive_space", arguments.archive_space.as_deref().map(named)),
        ("transient", flag(arguments.transient)),
        ("if_not_exists", flag(arguments.if_not_exists && !arguments.dry_run)),
        ("dry_run", flag(arguments.dry_run)),
    ]);
    let name = match arguments.dry_run {
        true => format!("dry-run {} of process {}", arguments.name, std::process::id()),
        false => arguments.name.clone(),
    };
    let values = vec![name.as_str().into(), named(&arguments.space), options];
    let task = session.call("expiration.start", values)?.into_iter().next().unwrap_or(Value::Nil);
    if arguments.dry_run {
        return finish_dry_run(&session, arguments, &name);
    }
    if arguments.access.client.json {
        return output::done(payload::to_json(&task));
    }
    let mode = match text_of(&task, "mode") {
        "indexed" => "waits for the next deadline".to_owned(),
        _ => format!("passes over the space in {} s", number_of(&task, "scan_time")),
    };
    output::done(format_args!("started {}: {mode}", arguments.name))
}

/// Waits for a dry run, prints what it has counted, and removes it.
fn finish_dry_run(
    session: &Session,
    arguments: &ExpirationStartArguments,
    name: &str,
) -> anyhow::Result<Outcome> {
    let stop = || session.call("expiration.stop", vec![name.into()]);
    let until = Instant::now() + arguments.dry_run_timeout;
    let result = loop {
        let statistics = session.ask("expiration.stats", vec![name.into()], NO_STATISTICS)?;
        if is_true(&statistics, "done") {
            break statistics;
        }
        if let Some(error) = statistics.get("error").and_then(Value::as_str) {
            stop()?;
            anyhow::bail!("the dry run failed: {error}");
        }
        if Instant::now() >= until {
            stop()?;
            let limit = time(arguments.dry_run_timeout);
            anyhow::bail!(
                "the dry run is not over after {limit}, so nothing was counted. It changes nothing: run it again with a longer \
                 --dry-run-timeout"
            );
        }
        std::thread::sleep(POLL);
    };
    stop()?;
    let due = number_of(&result, "due");
    let moment = |name| result.get(name).and_then(Value::as_u64);
    let (oldest, newest) = (moment("oldest_us"), moment("newest_us"));
    if arguments.access.client.json {
        let space = &arguments.space;
        return output::done(json!({ "space": space, "due": due, "oldest_us": oldest, "newest_us": newest }));
    }
    output::line(format_args!("{} of {} would be deleted now", counted(due, "tuple"), arguments.space))?;
    for (what, moment) in [("oldest", oldest), ("newest", newest)] {
        if let Some(moment) = moment {
            output::line(format_args!("the deadline of the {what} was {}", ago(moment)))?;
        }
    }
    Ok(Outcome::Done)
}

/// How long ago a moment was, µs since the epoch.
fn ago(moment: u64) -> String {
    let then = UNIX_EPOCH + Duration::from_micros(moment);
    let seconds = SystemTime::now().duration_since(then).unwrap_or_default().as_secs();
    let date = humantime::format_rfc3339_seconds(then);
    format!("{} ago, at {date}", humantime::format_duration(Duration::from_secs(seconds)))
}

fn list(access: &ServerArguments) -> anyhow::Result<Outcome> {
    let session = Session::open_server(access)?;
    let tasks = session.list("expiration.list", Vec::new())?;
    if access.client.json {
        return output::objects(&tasks);
    }
    if tasks.is_empty() {
        // The server names no task of a space of which the user may not know.
        let user = match (&access.data_dir, access.client.user.as_deref()) {
            (Some(_), _) | (None, Some("admin")) => return none("no expiration tasks"),
            (None, user) => user.unwrap_or("guest"),
        };
        return none(&format!(
            "no expiration tasks over what user '{user}' may see; ask with --data-dir or as admin for all"
        ));
    }
    let shown = |task: &Value, name: &str| task.get(name).map_or(String::new(), payload::plain);
    let archive = |task: &Value| match (task.get("archive_tube"), task.get("archive_space")) {
        (Some(_), _) => format!("tube {}", shown(task, "archive_tube")),
        (_, Some(_)) => format!("space {}", shown(task, "archive_space")),
        _ => "-".to_owned(),
    };
    let row = |task: &Value| -> Vec<String> {
        let texts = ["name", "space", "field", "unit", "mode", "state"].map(|name| shown(task, name));
        texts.into_iter().chain([archive(task)]).collect()
    };
    output::table(&["task", "space", "field", "unit", "mode", "state", "archive"], tasks.iter().map(row))
}

/// Says that there is nothing to list. A script that counts lines gets none.
fn none(text: &str) -> anyhow::Result<Outcome> {
    eprintln!("{text}");
    Ok(Outcome::Done)
}

fn stats(name: Option<&str>, access: &ServerArguments) -> anyhow::Result<Outcome> {
    let session = Session::open_server(access)?;
    let statistics =
        session.ask("expiration.stats", name.map(Value::from).into_iter().collect(), NO_STATISTICS)?;
    let tasks = by_name(name, &statistics);
    if access.client.json {
        return output::lines(
            tasks,
            |(name, statistics)| json!({ "task": name, "statistics": payload::to_json(statistics) }),
        );
    }
    const NUMBERS: [&str; 8] =
        ["scanned", "expired", "changed", "undated", "passes", "lag_us", "longest_hold_us", "errors"];
    let rows = tasks.iter().map(|(name, statistics)| -> Vec<String> {
        let numbers = NUMBERS.map(|name| number_of(statistics, name).to_string());
        [(*name).to_owned(), text_of(statistics, "state").to_owned()].into_iter().chain(numbers).collect()
    });
    let heading: Vec<&str> = ["task", "state"].into_iter().chain(NUMBERS).collect();
    output::table(&heading, rows)?;
    for (name, statistics) in &tasks {
        if let Some(error) = statistics.get("error").and_then(Value::as_str) {
            output::line(format_args!("{name}: {error}"))?;
        }
    }
    Ok(Outcome::Done)
}

fn stop(name: &str, if_exists: bool, access: &ServerArguments) -> anyhow::Result<Outcome> {
    let session = Session::open_server(access)?;
    let options = Value::map([("if_exists", if_exists)]);
    let values = session.call("expiration.stop", vec![name.into(), options])?;
    let statistics = values.first().filter(|value| !matches!(value, Value::Nil));
    if access.client.json {
        let statistics = statistics.map(payload::to_json);
        return output::done(json!({ "task": name, "done": "stopped", "statistics": statistics }));
    }
    let Some(statistics) = statistics else { return output::done(format_args!("there is no task {name}")) };
    let tuples = counted(number_of(statistics, "expired"), "tuple");
    output::done(format_args!("stopped {name}, which has deleted {tuples} since it began"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_numbers_and_names_are_names() {
        assert_eq!(named("3"), Value::from(3_u64));
        assert_eq!(named("deadline"), Value::from("deadline"));
        assert_eq!(named("-3"), Value::from("-3"));
    }

    #[test]
    fn moments_are_shown_with_their_age() {
        let shown = ago(1_000_000);
        assert!(shown.contains("1970-01-01T00:00:01Z") && shown.contains("years"), "{shown}");
    }
}
