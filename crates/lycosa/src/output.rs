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
use crate::payload;
use crate::terminal;

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
    /// Reads `[id, state, payload]`, and the token in the map behind them; `None` for nil.
    pub(crate) fn read(value: &Value) -> anyhow::Result<Option<Task>> {
        if matches!(value, Value::Nil) {
            return Ok(None);
        }
        let fields = value.as_array().filter(|fields| matches!(fields.len(), 3 | 4));
        let fields = fields.with_context(|| format!("the server answered {value} where a task belongs"))?;
        let id = fields[0].as_u64().context("a task without a number")?;
        let state = fields[1].as_str().context("a task without a state")?.to_owned();
        let member = |name| fields.get(3).and_then(|info| info.get(name));
        let token = member("lease").and_then(Value::as_str).map(str::to_owned);
        let lease = token.zip(member("lease_ends").cloned());
        Ok(Some(Task { id, state, data: fields[2].clone(), lease }))
    }

    /// Reads an array of tasks; `None` for nil.
    pub(crate) fn read_many(value: &Value) -> anyhow::Result<Option<Vec<Task>>> {
        if matches!(value, Value::Nil) {
            return Ok(None);
        }
        let tasks = value.as_array();
        let tasks = tasks.with_context(|| format!("the server answered {value} where tasks belong"))?;
        tasks
            .iter()
            .map(|task| Task::read(task)?.context("nothing where a task belongs"))
            .collect::<Result<_, _>>()
            .map(Some)
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

/// Prints what a command has done, as an object or in words.
pub(crate) fn said(as_json: bool, object: impl Display, words: impl Display) -> anyhow::Result<Outcome> {
    either(as_json, object, words)?;
    Ok(Outcome::Done)
}

/// Prints an object, or one line in words.
pub(crate) fn either(as_json: bool, object: impl Display, words: impl Display) -> io::Result<()> {
    if as_json { line(object) } else { line(words) }
}

/// Prints values as objects.
pub(crate) fn objects(values: &[Value]) -> anyhow::Result<Outcome> {
    values.iter().try_for_each(|value| line(payload::to_json(value)))?;
    Ok(Outcome::Done)
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
) -> io::Result<()> {
    let mut out = terminal::stdout();
    let mut lines = aligned(heading, &rows.into_iter().collect::<Vec<_>>()).into_iter();
    if let Some(heading) = lines.next() {
        out.heading(&heading).map_err(|error| unwritten(&error))?;
    }
    lines.try_for_each(|line| writeln!(out, "{line}")).map_err(|error| unwritten(&error))
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
            let (before, after) = if is_number { (pad.as_str(), "") } else { ("", pad.as_str()) };
            text.push_str(before);
            text.push_str(cell);
            text.push_str(after);
            text.push_str("  ");
        }
        lines.push(text.trim_end().to_owned());
    }
    lines
}

/// Prints the effective configuration.
pub(crate) fn config(config: &Config, as_json: bool) -> io::Result<()> {
    if as_json {
        for (setting, text, source) in config.effective() {
            line(json!({ "key": setting.key, "value": text, "source": source.to_string() }))?;
        }
        return Ok(());
    }
    let settings = config.effective();
    let rows = settings
        .map(|(setting, text, source)| [setting.key.to_owned(), text.into_owned(), source.to_string()]);
    table(&["setting", "value", "from"], rows)?;
    for user in &config.declared.users {
        line(format_args!(
            "user {} (roles: {}; tubes: {})",
            user.name,
            list(&user.roles),
            list(&user.tubes)
        ))?;
    }
    for tube in &config.declared.tubes {
        line(format_args!("tube {} ({})", tube.name, tube.kind))?;
    }
    for task in &config.declared.expirations {
        line(format_args!("expiration {} (space {})", task.name, task.space))?;
    }
    Ok(())
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
