//! Output of commands: lines and tables for people, one JSON object a line with `--json`.

use std::fmt::Display;
use std::io::{self, Write};

use anyhow::Context;
use lycosa_client::Value;
use lycosa_iproto::vclock::Vclock;
use lycosa_server::config::Config;
use serde_json::{Value as Json, json};
use unicode_width::UnicodeWidthStr;

use crate::outcome::Outcome;
use crate::{payload, terminal};

/// A task as the server answers it.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub(crate) id: u64,
    pub(crate) state: String,
    pub(crate) data: Value,
    /// The token of its lease, and when the lease ends, if the server said so.
    pub(crate) lease: Option<(String, Value)>,
}

impl Task {
    /// The task that a call returns; `None` for nil, or nothing.
    pub(crate) fn of(values: &[Value]) -> anyhow::Result<Option<Task>> {
        values.first().filter(|value| **value != Value::Nil).map(Task::read).transpose()
    }

    /// Reads `[id, state, payload]`, and the token in the map behind them.
    fn read(value: &Value) -> anyhow::Result<Task> {
        let fields = value.as_array().filter(|fields| matches!(fields.len(), 3 | 4));
        let fields = fields.with_context(|| format!("the server answered {value} where a task belongs"))?;
        let id = fields[0].as_u64().context("a task without a number")?;
        let state = fields[1].as_str().context("a task without a state")?.to_owned();
        let member = |name| fields.get(3).and_then(|info| info.get(name));
        let token = member("lease").and_then(Value::as_str).map(str::to_owned);
        let lease = token.zip(member("lease_ends").cloned());
        Ok(Task { id, state, data: fields[2].clone(), lease })
    }

    /// The tasks of the array that a call returns; none for nil, or nothing.
    pub(crate) fn many_of(values: &[Value]) -> anyhow::Result<Vec<Task>> {
        let Some(value) = values.first().filter(|value| **value != Value::Nil) else { return Ok(Vec::new()) };
        let tasks = value.as_array();
        let tasks = tasks.with_context(|| format!("the server answered {value} where tasks belong"))?;
        tasks.iter().map(Task::read).collect()
    }

    /// The task as JSON, with what else there is to say.
    pub(crate) fn json(&self, session: Option<&str>) -> Json {
        let mut object = json!({ "id": self.id, "state": self.state, "data": payload::to_json(&self.data) });
        if let Some(session) = session {
            object["session"] = session.into();
        }
        if let Some((token, ends)) = &self.lease {
            object["lease"] = token.as_str().into();
            object["lease_ends"] = payload::to_json(ends);
        }
        object
    }

    /// Prints id, state, the token of a lease, and payload, separated by tabs.
    pub(crate) fn print(&self) -> io::Result<()> {
        let mut out = terminal::stdout();
        write!(out, "{}\t{}\t", self.id, self.state)?;
        if let Some((token, _)) = &self.lease {
            write!(out, "{token}\t")?;
        }
        payload::write(&mut out, &self.data)?;
        out.write_all(b"\n")
    }
}

/// Prints tasks, one a line.
pub(crate) fn tasks(tasks: &[Task], as_json: bool, session: Option<&str>) -> io::Result<()> {
    tasks.iter().try_for_each(|task| if as_json { line(task.json(session)) } else { task.print() })
}

/// Prints one line.
pub(crate) fn line(text: impl Display) -> io::Result<()> {
    writeln!(terminal::stdout(), "{text}").map_err(|error| unwritten(&error))
}

/// Prints the last line of a command.
pub(crate) fn done(text: impl Display) -> anyhow::Result<Outcome> {
    line(text)?;
    Ok(Outcome::Done)
}

/// Prints what a command has done, as an object or in words.
pub(crate) fn said(as_json: bool, object: impl Display, words: impl Display) -> anyhow::Result<Outcome> {
    if as_json { done(object) } else { done(words) }
}

/// Prints an object, or one line in words.
pub(crate) fn either(as_json: bool, object: impl Display, words: impl Display) -> io::Result<()> {
    if as_json { line(object) } else { line(words) }
}

/// Prints a line for each of the items.
pub(crate) fn lines<T, D: Display>(
    items: impl IntoIterator<Item = T>,
    show: impl Fn(T) -> D,
) -> anyhow::Result<Outcome> {
    items.into_iter().try_for_each(|item| line(show(item)))?;
    Ok(Outcome::Done)
}

/// Prints values as objects.
pub(crate) fn objects<'a>(values: impl IntoIterator<Item = &'a Value>) -> anyhow::Result<Outcome> {
    lines(values, payload::to_json)
}

/// The error with its place. The kind stays: it decides the exit code.
fn unwritten(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write to standard output: {error}"))
}

/// A clock as JSON: LSNs by replica.
pub(crate) fn vclock(vclock: &Vclock) -> Json {
    Json::Object(vclock.iter().map(|(id, lsn)| (id.to_string(), lsn.into())).collect())
}

/// Prints rows under a heading, columns aligned as a terminal shows them (a character of Chinese takes two places); numbers to
/// the right.
pub(crate) fn table<R: AsRef<[String]>>(
    heading: &[&str],
    rows: impl IntoIterator<Item = R>,
) -> anyhow::Result<Outcome> {
    let mut out = terminal::stdout();
    let mut lines = aligned(heading, &rows.into_iter().collect::<Vec<_>>()).into_iter();
    let heading = lines.next().map_or(Ok(()), |heading| out.heading(&heading));
    heading
        .and_then(|()| lines.try_for_each(|line| writeln!(out, "{line}")))
        .map_err(|error| unwritten(&error))?;
    Ok(Outcome::Done)
}

/// The lines of a table, the heading first.
fn aligned<R: AsRef<[String]>>(heading: &[&str], rows: &[R]) -> Vec<String> {
    let rows: Vec<&[String]> = rows.iter().map(AsRef::as_ref).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].width());
        cells.chain([heading[column].width()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    let mut lines = Vec::with_capacity(rows.len() + 1);
    let heading: Vec<String> = heading.iter().map(|name| (*name).to_owned()).collect();
    for row in std::iter::once(heading.as_slice()).chain(rows.iter().copied()) {
        let mut text = String::new();
        for (column, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[column] - cell.width());
            let is_number = rows.iter().all(|row| row[column].parse::<f64>().is_ok());
            text += &if is_number { format!("{pad}{cell}  ") } else { format!("{cell}{pad}  ") };
        }
        lines.push(text.trim_end().to_owned());
    }
    lines
}

/// Prints the effective configuration.
pub(crate) fn config(config: &Config, as_json: bool) -> anyhow::Result<Outcome> {
    let settings = config.effective();
    if as_json {
        return lines(
            settings,
            |(setting, text, source)| json!({ "key": setting.key, "value": text, "source": source.to_string() }),
        );
    }
    let rows = settings
        .map(|(setting, text, source)| [setting.key.to_owned(), text.into_owned(), source.to_string()]);
    table(&["setting", "value", "from"], rows)?;
    for user in &config.declared.users {
        let (roles, tubes) = (list(&user.roles), list(&user.tubes));
        line(format_args!("user {} (roles: {roles}; tubes: {tubes})", user.name))?;
    }
    for tube in &config.declared.tubes {
        line(format_args!("tube {} ({})", tube.name, tube.kind))?;
    }
    for task in &config.declared.expirations {
        line(format_args!("expiration {} (space {})", task.name, task.space))?;
    }
    Ok(Outcome::Done)
}

fn list(items: &[String]) -> String {
    if items.is_empty() { "none".to_owned() } else { items.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_a_terminal_shows_them() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = [row(["1", "任务", "x"]), row(["10", "🚀 ab", "y"]), row(["7", "e\u{301}", "z"])];
        let lines = aligned(&["id", "data", "last"], &rows);
        assert_eq!(lines, ["id  data   last", " 1  任务   x", "10  🚀 ab  y", " 7  e\u{301}      z"]);
    }
}
