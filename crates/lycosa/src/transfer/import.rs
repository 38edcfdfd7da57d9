//! `lycosa import`: lines become tubes and tasks.
//!
//! Many puts are under way at a time, over one connection, which the server serves in the order of the lines; so tasks
//! get ascending ids in that order. At the first line that is refused no further lines are read; running puts are
//! waited for, so that it is known which lines were imported, which were refused, and from where to go on.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader};

use anyhow::Context;
use lycosa_client::{Array, Connection, Error, Value};
use lycosa_tuple::mp;
use serde_json::{Number, Value as Json, json};
use tokio::task::JoinHandle;

use super::{Line, MICROSECONDS, TaskLine, TaskState, TubeLine, exact_json, from_seconds};
use crate::arguments::ImportArguments;
use crate::commands::{bytes_bar, create_tube, options};
use crate::line_tally::Tally;
use crate::outcome::Outcome;
use crate::payload::json_error;
use crate::put::prompt;
use crate::session::{Session, method};
use crate::values::{counted, now};
use crate::{folded, output};

/// Puts that are under way at a time.
const PUTS_IN_FLIGHT: usize = 512;

/// Lines between two looks at the progress bar.
const PROGRESS_STEP: u64 = 256;

pub(crate) fn run(arguments: &ImportArguments) -> anyhow::Result<Outcome> {
    let session = Session::open_server(&arguments.server)?;
    let (pending, counts, tally) = Default::default();
    let mut import = Import { session: &session, pending, counts, tally };
    match &arguments.file {
        Some(path) => {
            let name = || format!("cannot read {}", path.display());
            let file = File::open(path).with_context(name)?;
            let size = file.metadata().with_context(name)?.len();
            import.lines(BufReader::new(file), Some(size)).map_err(|error| match error.downcast_ref() {
                Some(io::Error { .. }) => error.context(name()),
                None => error,
            })?;
        }
        None => {
            prompt("lines as `lycosa export` writes them");
            import.lines(io::stdin().lock(), None)?;
        }
    }
    let input = arguments.file.as_ref().map_or("INPUT".to_owned(), |path| path.display().to_string());
    import.finish(&input, arguments.server.client.json)
}

/// The fault of a line.
fn wrong_line(error: &serde_json::Error) -> String {
    match error.classify() {
        serde_json::error::Category::Data => json_error(error),
        _ => format!("the line is not JSON: {}", json_error(error)),
    }
}

/// A line whose put is under way.
struct Pending {
    line: u64,
    tube: String,
    state: TaskState,
    /// Whether the tube had space for it.
    put: JoinHandle<Result<bool, Error>>,
}

struct Import<'a> {
    session: &'a Session,
    pending: VecDeque<Pending>,
    counts: Counts,
    tally: Tally,
}

/// The progress of an import.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    tubes: u64,
    tasks: u64,
    buried: u64,
    /// Tasks that were taken when they were exported.
    released: u64,
    /// Tasks whose time to live is over.
    expired: u64,
}

impl Import<'_> {
    fn lines(&mut self, mut input: impl BufRead, size: Option<u64>) -> anyhow::Result<()> {
        let bar = bytes_bar(size);
        let mut text = Vec::new();
        let mut bytes = 0;
        while self.tally.is_clean() {
            text.clear();
            let read = input.read_until(b'\n', &mut text)?;
            if read == 0 {
                break;
            }
            bytes += read as u64;
            self.tally.last += 1;
            let number = self.tally.last;
            if number.is_multiple_of(PROGRESS_STEP) {
                bar.set_position(bytes);
                bar.set_message(format!("{} tasks", self.counts.tasks));
            }
            if text.trim_ascii().is_empty() {
                continue;
            }
            if let Err(error) = self.line(&text) {
                let text = format!("{error:#}");
                match error.downcast_ref() {
                    Some(fatal) if is_fatal(fatal) => self.tally.unknown(number..=number, text),
                    _ => self.tally.refused(number..=number, text),
                }
            }
        }
        while !self.pending.is_empty() {
            self.finish_oldest()?;
        }
        bar.finish_and_clear();
        Ok(())
    }

    fn line(&mut self, text: &[u8]) -> anyhow::Result<()> {
        match Line::parse(text).map_err(|error| anyhow::anyhow!(wrong_line(&error)))? {
            Line::Tube(tube) => self.tube(&tube),
            Line::Task(task) => self.task(&task),
        }
    }

    fn tube(&mut self, line: &TubeLine) -> anyhow::Result<()> {
        let options = tube_options(&line.options)?;
        let made = create_tube(self.session, &line.tube, &line.kind, options)?;
        let found = made.as_ref().and_then(|tube| tube.get("type")).and_then(Value::as_str);
        if let Some(found) = found.filter(|found| *found != line.kind) {
            anyhow::bail!("tube \"{}\" exists already and is of type {found}, not {}", line.tube, line.kind);
        }
        self.counts.tubes += 1;
        self.tally.stored(self.tally.last..=self.tally.last);
        Ok(())
    }

    fn task(&mut self, line: &TaskLine) -> anyhow::Result<()> {
        let now = u64::try_from(now().as_micros()).unwrap_or(u64::MAX);
        let Some(arguments) = put_arguments(line, now)? else {
            self.counts.expired += 1;
            return Ok(());
        };
        let (runtime, connection) = self.session.parts();
        let put = put(connection.clone(), line.tube.clone(), arguments, line.state == TaskState::Buried);
        self.pending.push_back(Pending {
            line: self.tally.last,
            tube: line.tube.clone(),
            state: line.state,
            put: runtime.spawn(put),
        });
        while self.pending.len() >= PUTS_IN_FLIGHT {
            self.finish_oldest()?;
        }
        Ok(())
    }

    fn finish_oldest(&mut self) -> anyhow::Result<()> {
        let Some(Pending { line, tube, state, put }) = self.pending.pop_front() else { return Ok(()) };
        let (runtime, _) = self.session.parts();
        match runtime.block_on(put).context("a put was interrupted")? {
            Ok(true) => {
                self.tally.stored(line..=line);
                self.counts.tasks += 1;
                self.counts.buried += u64::from(state == TaskState::Buried);
                self.counts.released += u64::from(state == TaskState::Taken);
            }
            Ok(false) => self.tally.refused(line..=line, "the tube is full"),
            Err(error) if is_fatal(&error) => self.tally.unknown(line..=line, error.to_string()),
            Err(error) => {
                let error = self.session.explain(&method(&tube, "put"), error);
                self.tally.refused(line..=line, error.to_string());
            }
        }
        Ok(())
    }

    fn finish(self, input: &str, as_json: bool) -> anyhow::Result<Outcome> {
        let Counts { tubes, tasks, buried, released, expired } = self.counts;
        if as_json {
            output::line(json!({
                "tubes": tubes, "tasks": tasks, "buried": buried, "released": released, "expired": expired,
                "refused": self.tally.refused_count(),
            }))?;
        } else {
            let mut text = format!("imported {}, {}", counted(tasks, "task"), counted(tubes, "tube"));
            let notes = [
                (buried, "are buried"),
                (released, "were taken and are ready"),
                (expired, "were left out: their time to live is over"),
            ];
            for (count, note) in notes.iter().filter(|(count, _)| *count > 0) {
                text.push_str(&format!("; {count} {note}"));
            }
            output::line(text)?;
        }
        Ok(self.tally.report("line", |line| format!("tail -n +{line} {input} | lycosa import"), as_json)?)
    }
}

/// Whether nothing can come after the error: it is not about one line.
fn is_fatal(error: &Error) -> bool {
    !matches!(error, Error::Server { .. })
}

/// Puts a task, and buries it if it is to be. The id of the new task is in the answer only, so another client may have
/// taken it by then; burying takes it away from that client.
async fn put(connection: Connection, tube: String, arguments: Array, bury: bool) -> Result<bool, Error> {
    let answer = connection.call(&method(&tube, "put"), arguments).await?;
    let task = folded::values(&answer)?.into_iter().next().unwrap_or(Value::Nil);
    let Some(id) = task.as_array().and_then(|task| task.first()).cloned() else { return Ok(false) };
    if bury {
        connection.call(&method(&tube, "bury"), vec![id]).await?;
    }
    Ok(true)
}

/// The value of a member of a line.
fn value(json: &Json, name: &'static str) -> anyhow::Result<Value> {
    let mut bytes = Vec::new();
    exact_json::write(&mut bytes, json).context(name)?;
    Ok(Value::decode(&bytes)?)
}

/// The options of `create_tube`; an existing tube is no error.
fn tube_options(json: &Json) -> anyhow::Result<Value> {
    let mut pairs = match value(json, "options")? {
        Value::Nil => Vec::new(),
        Value::Map(pairs) => pairs,
        other => anyhow::bail!("options: {other} where a map belongs"),
    };
    pairs.retain(|(name, _)| name.as_str() != Some("if_not_exists"));
    pairs.push(("if_not_exists".into(), true.into()));
    Ok(Value::Map(pairs))
}

/// The arguments of `put`, `now` in microseconds since the epoch; `None` for a task whose time to live is over.
fn put_arguments(line: &TaskLine, now: u64) -> anyhow::Result<Option<Array>> {
    let time = |name: &str, number: &Option<Number>| match number {
        None => Ok(None),
        Some(number) => from_seconds(number)
            .map(Some)
            .with_context(|| format!("{name} {number}: expected seconds, 0 or more")),
    };
    let created = time("created", &line.created)?.unwrap_or(now);
    let end = |span: u64| created.saturating_add(span);
    let ready = time("delay", &line.delay)?.map(end).filter(|ready| *ready > now);
    let death = time("ttl", &line.ttl)?.map(end);
    if death.is_some_and(|death| death <= now) {
        return Ok(None);
    }
    // The server lets a task live for its delay and then for its ttl.
    let ttl = death.map(|death| death.saturating_sub(ready.unwrap_or(now)));
    let options = options([
        ("pri", line.pri.map(Value::from)),
        ("ttl", ttl.map(seconds)),
        ("ttr", time("ttr", &line.ttr)?.map(seconds)),
        ("delay", ready.map(|ready| seconds(ready - now))),
        ("utube", line.utube.as_ref().map(|utube| value(utube, "utube")).transpose()?),
    ]);
    let mut arguments = Vec::new();
    mp::write_array(&mut arguments, 2);
    exact_json::write(&mut arguments, &line.data).context("data")?;
    options.write(&mut arguments);
    Ok(Some(Array::from_bytes(arguments)?))
}

/// Microseconds as the seconds of an option. The server multiplies and cuts; the half keeps the last microsecond from
/// being cut too.
fn seconds(microseconds: u64) -> Value {
    if microseconds.is_multiple_of(MICROSECONDS) {
        return Value::from(microseconds / MICROSECONDS);
    }
    Value::Double((microseconds as f64 + 0.5) / MICROSECONDS as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000_000_000_000_000;

    fn arguments(line: &str) -> Option<Value> {
        let line = format!(r#"{{"tube": "t", "data": [1.0], {line}}}"#);
        let Line::Task(task) = Line::parse(line.as_bytes()).unwrap() else { panic!("a task") };
        let arguments = put_arguments(&task, NOW).unwrap()?;
        let arguments = Value::decode(arguments.as_bytes()).unwrap();
        let arguments = arguments.as_array().unwrap();
        assert_eq!(arguments[0], Value::array([1.0]));
        Some(arguments[1].clone())
    }

    #[test]
    fn what_is_wrong_with_a_line_is_said_by_its_column() {
        let wrong = |line: &str| wrong_line(&Line::parse(line.as_bytes()).expect_err("no line"));
        assert_eq!(wrong("{bad"), "the line is not JSON: key must be a string at column 2");
        assert_eq!(wrong("[1]"), "a line is a JSON object");
        assert_eq!(wrong(r#"{"tube": 1}"#), "invalid type: integer `1`, expected a string");
    }

    #[test]
    fn a_plain_line_counts_from_now() {
        assert_eq!(arguments(r#""pri": 3"#), Some(Value::map([("pri", 3_u64)])));
        let timed = arguments(r#""ttl": 60, "delay": 10, "ttr": 5"#);
        assert_eq!(timed, Some(Value::map([("ttl", 50_u64), ("ttr", 5), ("delay", 10)])));
    }

    #[test]
    fn the_clock_of_an_exported_task_goes_on() {
        // Created 100 seconds ago.
        let ready = arguments(r#""created": 999999900, "ttl": 160, "delay": 40, "state": "r""#);
        assert_eq!(ready, Some(Value::map([("ttl", 60_u64)])));
        let delayed = arguments(r#""created": 999999900, "ttl": 160, "delay": 140, "state": "~""#);
        assert_eq!(delayed, Some(Value::map([("ttl", 20_u64), ("delay", 40)])));
        assert_eq!(arguments(r#""created": 999999900, "ttl": 100"#), None);
    }

    #[test]
    fn microseconds_survive_the_server_s_cut() {
        for microseconds in [1, 999_999, 33_299_999, 86_399_999_999, 3_153_599_999_999_999] {
            let Value::Double(seconds) = seconds(microseconds) else { panic!("a fraction") };
            assert_eq!((seconds * 1e6) as u64, microseconds);
        }
        assert_eq!(seconds(5_000_000), Value::Uint(5));
    }

    #[test]
    fn options_of_tubes_always_allow_an_existing_one() {
        let options = tube_options(&json!({"ttl": 60, "if_not_exists": false})).unwrap();
        assert_eq!(options, Value::map([("ttl", Value::from(60_u64)), ("if_not_exists", true.into())]));
        assert_eq!(tube_options(&Json::Null).unwrap(), Value::map([("if_not_exists", true)]));
        assert!(tube_options(&json!([1])).is_err());
    }

    #[test]
    fn a_wrong_time_is_named() {
        let Line::Task(task) = Line::parse(br#"{"tube": "t", "data": 1, "ttl": -1}"#).unwrap() else {
            panic!("a task")
        };
        let refused = put_arguments(&task, NOW).unwrap_err().to_string();
        assert_eq!(refused, "ttl -1: expected seconds, 0 or more");
    }
}
