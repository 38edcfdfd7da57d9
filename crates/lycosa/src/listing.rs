//! Looking at tasks and tubes: `list`, `peek`, `tube list`, and the tasks that `delete` and `bury` choose by a filter.

use std::cmp::Reverse;
use std::time::Duration;

use anyhow::Context;
use lycosa_client::{Kind, Value};
use serde_json::{Value as Json, json};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::arguments::{Choice, ClientArguments, ListArguments, TaskState};
use crate::commands::options;
use crate::holders::Holders;
use crate::outcome::Outcome;
use crate::session::{Session, method};
use crate::values::{cell, counted, float, inside, now, pairs, seconds, text_of, time};
use crate::{output, payload, tube_options};

/// Tasks of one page.
const PAGE: u64 = 500;
/// The table of `lycosa list`.
pub(crate) const COLUMNS: [&str; 9] =
    ["id", "state", "age", "due", "attempts", "pri", "held by", "payload", "last error"];
/// Characters of a payload that a table shows.
const SHOWN: usize = 60;

impl TaskState {
    fn letter(self) -> &'static str {
        match self {
            Self::Ready => "r",
            Self::Taken => "t",
            Self::Delayed => "~",
            Self::Buried => "!",
        }
    }
}

/// What a letter of a state stands for.
fn word(letter: &str) -> &str {
    match letter {
        "r" => "ready",
        "t" => "taken",
        "~" => "delayed",
        "!" => "buried",
        other => other,
    }
}

impl Choice {
    /// Whether anything was asked for.
    pub(crate) fn is_given(&self) -> bool {
        self.state.is_some() || self.utube.is_some() || self.older_than.is_some()
    }

    fn options(&self, after: Option<u64>, limit: u64) -> Value {
        options([
            ("limit", Some(Value::from(limit.min(PAGE)))),
            ("state", self.state.map(|state| state.letter().into())),
            ("utube", self.utube.as_deref().map(Value::from)),
            ("older_than", self.older_than.map(seconds)),
            ("after", after.map(Value::from)),
        ])
    }
}

/// Calls `f` for the tasks that a filter chooses, in extended form, at most `limit`. Refuses a filter of which the tube's type knows
/// nothing.
pub(crate) fn each_chosen(
    session: &Session,
    tube: &str,
    choice: &Choice,
    limit: u64,
    mut f: impl FnMut(&Value) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let (mut after, mut left) = (None, limit);
    tube_options::check(session, tube, &choice.options(None, limit))?;
    while left > 0 {
        let page = session.call(&method(tube, "list"), vec![choice.options(after, left)])?;
        let tasks = page
            .first()
            .and_then(Value::as_array)
            .context("the server returned no tasks: its queue does not run (`lycosa stats`: line `role`)")?;
        tasks.iter().try_for_each(&mut f)?;
        left -= (tasks.len() as u64).min(left);
        after = page.get(1).and_then(Value::as_u64);
        if after.is_none() {
            break;
        }
    }
    Ok(())
}

/// `lycosa list`
pub(crate) fn list(arguments: &ListArguments) -> anyhow::Result<Outcome> {
    let ListArguments { tube, choice, limit, client } = arguments;
    let session = Session::open(client)?;
    let holders = Holders::new(&session);
    let mut rows = Vec::new();
    each_chosen(&session, tube, choice, *limit, |task| {
        if client.json {
            output::line(object(task, &holders))?;
        } else {
            rows.push(row(task, &holders));
        }
        Ok(())
    })?;
    if client.json {
        return Ok(Outcome::Done);
    }
    if rows.is_empty() {
        eprintln!("lycosa: tube \"{tube}\" has no such task");
        return Ok(Outcome::Done);
    }
    output::table(&COLUMNS, &rows)?;
    if rows.len() as u64 == *limit {
        eprintln!("lycosa: the first {}; --limit shows more", counted(*limit, "task"));
    }
    Ok(Outcome::Done)
}

pub(crate) fn member<'a>(task: &'a Value, name: &str) -> Option<&'a Value> {
    task.as_array()?.get(3)?.get(name)
}

/// Seconds since the epoch as the time from then to now, or from now to then.
pub(crate) fn distance(moment: &Value) -> Option<Duration> {
    Duration::try_from_secs_f64((now().as_secs_f64() - float(moment)?).abs()).ok()
}

/// A text without what would break a table or move a terminal's cursor, at most `limit` places of a terminal wide.
pub(crate) fn one_line(text: &str, limit: usize) -> String {
    let plain: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    if plain.width() <= limit {
        return plain;
    }
    let mut width = 1;
    let fits = |letter: &char| {
        width += letter.width().unwrap_or(0);
        width <= limit
    };
    plain.chars().take_while(fits).chain(['…']).collect()
}

fn data(task: &Value) -> String {
    let mut bytes = Vec::new();
    if let Some(data) = task.as_array().and_then(|task| task.get(2)) {
        payload::write(&mut bytes, data).expect("a Vec takes everything");
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(crate) fn row(task: &Value, holders: &Holders<'_>) -> Vec<String> {
    let fields = task.as_array().unwrap_or_default();
    let since = |name: &str| member(task, name).and_then(distance).map_or(String::new(), time);
    let number = |name: &str| member(task, name).map_or(String::new(), ToString::to_string);
    let error = member(task, "last_error").and_then(Value::as_str).unwrap_or_default();
    vec![
        fields.first().map_or(String::new(), ToString::to_string),
        fields.get(1).and_then(Value::as_str).map_or(String::new(), |state| word(state).to_owned()),
        since("created"),
        since("due"),
        number("attempts"),
        number("pri"),
        holders.of(task),
        one_line(&data(task), SHOWN),
        one_line(error, SHOWN),
    ]
}

/// A task in extended form as JSON: its members beside id, state and data.
pub(crate) fn object(task: &Value, holders: &Holders<'_>) -> Json {
    let fields = task.as_array().unwrap_or_default();
    let field = |at: usize| fields.get(at).map_or(Json::Null, payload::to_json);
    let mut object = json!({ "id": field(0), "state": field(1), "data": field(2) });
    if let (Json::Object(members), Some(object)) = (field(3), object.as_object_mut()) {
        object.extend(members);
    }
    if let Some(address) = holders.address(task) {
        object["address"] = address.into();
    }
    object
}

/// `lycosa peek`: everything that is known of tasks.
pub(crate) fn peek(client: &ClientArguments, tube: &str, ids: &[u64]) -> anyhow::Result<Outcome> {
    let session = Session::open(client)?;
    let holders = Holders::new(&session);
    let mut outcome = Outcome::Done;
    for (position, &id) in ids.iter().enumerate() {
        let arguments = vec![id.into(), Value::map([("extended", true)])];
        let task = match session.call(&method(tube, "peek"), arguments) {
            Ok(values) => values.into_iter().next().context("the server returned no task")?,
            Err(error) if error.kind() == Some(Kind::NoSuchTask) => {
                eprintln!("lycosa: {tube} {id}: {error}");
                if outcome == Outcome::Done {
                    outcome = Outcome::NoTask;
                }
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        if client.json {
            output::line(object(&task, &holders))?;
            continue;
        }
        if position > 0 {
            output::line("")?;
        }
        print_task(&task, &holders)?;
    }
    Ok(outcome)
}

fn print_task(task: &Value, holders: &Holders<'_>) -> std::io::Result<()> {
    let fields = task.as_array().unwrap_or_default();
    let line = |name: &str, text: &str| output::line(format_args!("{name:<12}{text}"));
    line("id", &fields.first().map_or(String::new(), ToString::to_string))?;
    line("state", fields.get(1).and_then(Value::as_str).map_or("", word))?;
    let Some(Value::Map(members)) = fields.get(3) else { return line("payload", &data(task)) };
    for (name, value) in members {
        let name = name.as_str().unwrap_or_default();
        let text = match (name, distance(value)) {
            ("created" | "taken_at" | "failed_at", Some(ago)) => format!("{} ago", time(ago)),
            ("due" | "lease_ends", Some(wait)) => format!("in {}", time(wait)),
            _ => match value {
                Value::Str(bytes) => one_line(&String::from_utf8_lossy(bytes), usize::MAX),
                Value::Double(seconds) => format!("{} s", (seconds * 1e3).round() / 1e3),
                other if matches!(name, "ttl" | "ttr") => format!("{other} s"),
                other => other.to_string(),
            },
        };
        line(&name.replace('_', " "), &text)?;
    }
    if let Some(address) = holders.address(task) {
        line("address", address)?;
    }
    line("payload", &one_line(&data(task), usize::MAX))
}

/// A tube that the user may look at.
pub(crate) struct TubeLine {
    pub(crate) name: String,
    pub(crate) kind: String,
    /// The age of its oldest task.
    pub(crate) oldest: Option<Duration>,
    pub(crate) statistics: Value,
}

impl TubeLine {
    pub(crate) fn count(&self, group: &str, name: &str) -> u64 {
        inside(&self.statistics, &[group, name]).and_then(Value::as_u64).unwrap_or(0)
    }

    pub(crate) fn backlog(&self) -> u64 {
        self.count("tasks", "ready") + self.count("tasks", "taken") + self.count("tasks", "delayed")
    }
}

/// The tubes that the user may look at, in the natural order of their names. A server without `queue.tubes` (Tarantool)
/// tells no types.
pub(crate) fn tubes(session: &Session) -> anyhow::Result<Vec<TubeLine>> {
    let (values, is_plain) = match session.call("queue.tubes", Vec::new()) {
        Ok(values) => (values, false),
        Err(error) if error.kind() == Some(Kind::NoSuchProcedure) => (session.statistics(None)?, true),
        Err(error) => return Err(error.into()),
    };
    let line = |(name, value): &(Value, Value)| TubeLine {
        name: name.as_str().unwrap_or_default().to_owned(),
        kind: text_of(value, "type").to_owned(),
        oldest: value.get("oldest").and_then(distance),
        statistics: if is_plain { Some(value) } else { value.get("statistics") }
            .cloned()
            .unwrap_or(Value::Nil),
    };
    let mut lines: Vec<TubeLine> = pairs(values.first()).iter().map(line).collect();
    lines.sort_by_key(|line| natural(&line.name));
    Ok(lines)
}

/// A name in parts, so that `mail10` comes behind `mail9`.
pub(crate) fn natural(name: &str) -> Vec<(u64, String)> {
    let mut parts: Vec<(u64, String)> = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
        if let Some(number) = rest[..digits].parse().ok().filter(|_| digits > 0) {
            parts.push((number, String::new()));
            rest = &rest[digits..];
        } else {
            let end = rest[digits..]
                .find(|letter: char| letter.is_ascii_digit())
                .map_or(rest.len(), |at| at + digits);
            parts.push((u64::MAX, rest[..end].to_owned()));
            rest = &rest[end..];
        }
    }
    parts
}

/// Prints tubes with their tasks by state; those with the largest backlog first if asked for.
pub(crate) fn print_tubes(mut lines: Vec<TubeLine>, by_backlog: bool) -> anyhow::Result<Outcome> {
    if by_backlog {
        lines.sort_by_key(|line| Reverse(line.backlog()));
    }
    let row = |line: &TubeLine| -> Vec<String> {
        let states = ["ready", "taken", "delayed", "buried", "done"];
        let counts = states.map(|state| line.count("tasks", state).to_string());
        let age = cell(line.oldest, time);
        [line.name.clone(), line.kind.clone()].into_iter().chain(counts).chain([age]).collect()
    };
    let heading = ["tube", "type", "ready", "taken", "delayed", "buried", "done", "oldest"];
    output::table(&heading, lines.iter().map(row))
}

/// `lycosa tube list`
pub(crate) fn tube_list(client: &ClientArguments) -> anyhow::Result<Outcome> {
    let session = Session::open(client)?;
    let lines = tubes(&session)?;
    if client.json {
        return output::lines(&lines, |line| {
            let tasks = line.statistics.get("tasks").map_or(Json::Null, payload::to_json);
            let oldest = line.oldest.map(|age| age.as_secs_f64());
            json!({ "tube": line.name, "type": line.kind, "tasks": tasks, "oldest_age": oldest })
        });
    }
    if lines.is_empty() {
        eprintln!("lycosa: there is no tube that this user may see; `lycosa tube create NAME` makes one");
        return Ok(Outcome::Done);
    }
    print_tubes(lines, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_count_as_numbers() {
        let mut names = ["mail10", "mail9", "mail", "a", "mail9b", "9"];
        names.sort_by_key(|name| natural(name));
        assert_eq!(names, ["9", "a", "mail", "mail9", "mail9b", "mail10"]);
    }

    #[test]
    fn a_text_in_a_table_is_one_short_line() {
        assert_eq!(one_line("a\nb\u{1b}[2J", 60), "a b [2J");
        assert_eq!(one_line("abcdef", 4), "abc…");
        // Characters that take two places of a terminal, and characters that take none.
        assert_eq!(one_line("任务队列", 8), "任务队列");
        assert_eq!(one_line("任务队列", 7), "任务队…");
        assert_eq!(one_line("任务队列", 6), "任务…");
        assert_eq!(one_line("e\u{301}e\u{301}", 2), "e\u{301}e\u{301}");
    }
}
