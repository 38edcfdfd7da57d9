//! `lycosa export`: the tasks of tubes, read over the protocol.
//!
//! Tuples are read through the primary index, a page at a time, each page after the last key of the one before. So the
//! server is never held up and puts may go on; tasks that were put after the export of a tube began are left out, and each task
//! is shown as it was when its page was read.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use anyhow::Context;
use indicatif::ProgressBar;
use lycosa_client::{Array, Error, Value};
use lycosa_iproto::error::ErrorCode;
use lycosa_tuple::tuple::TupleRef;
use serde_json::{Value as Json, json};

use super::{TaskLine, TaskState, TubeLine, exact_json, to_seconds};
use crate::arguments::ExportArguments;
use crate::commands::progress_bar;
use crate::explain::missing_tube;
use crate::outcome::Outcome;
use crate::session::Session;
use crate::space_pages::{LE, Pages, number, select, shown_text, space, text, tuples};
use crate::values::{counted, inside, text_of};
use crate::{output, terminal};

/// The space with a row for every tube: name, number, name of the space, type, options.
const QUEUE: &str = "_queue";
/// The field of `_vspace` with the names of a space's fields.
const FORMAT: usize = 6;

const ADVICE: &str = "reading tubes takes the right to read their spaces; on the server's machine --data-dir DIR, \
                      the server's data folder, needs no rights";

/// A row of `_queue`.
#[derive(Debug, Clone)]
struct Tube {
    space: String,
    line: TubeLine,
}

pub(crate) fn run(arguments: &ExportArguments) -> anyhow::Result<Outcome> {
    export_all(arguments).map_err(|error| match error.downcast_ref().and_then(Error::code) {
        Some(ErrorCode::AccessDenied) => error.context(ADVICE),
        _ => error,
    })
}

fn export_all(arguments: &ExportArguments) -> anyhow::Result<Outcome> {
    let session = Session::open_server(&arguments.server)?;
    let tubes = choose(tubes(&session)?, &arguments.tubes)?;
    let counting = "{bar:40} {pos}/{len} tasks, {per_sec}, {eta} left  {msg}";
    let bar = progress_bar(total(&session, &tubes), counting, "{spinner} {pos} tasks, {per_sec}  {msg}");
    let tasks = match &arguments.output {
        Some(path) => {
            let name = || format!("cannot write {}", path.display());
            let mut out = BufWriter::new(File::create(path).with_context(name)?);
            let tasks = export(&session, &tubes, &mut out, &bar)?;
            let file = out.into_inner().map_err(io::IntoInnerError::into_error).with_context(name)?;
            file.sync_all().with_context(name)?;
            tasks
        }
        None => {
            let mut out = BufWriter::new(terminal::stdout());
            let tasks = export(&session, &tubes, &mut out, &bar)?;
            out.flush()?;
            tasks
        }
    };
    bar.finish_and_clear();
    let Some(path) = &arguments.output else { return Ok(Outcome::Done) };
    let path = path.display();
    let object = json!({ "file": path.to_string(), "tubes": tubes.len(), "tasks": tasks });
    let counts = (counted(tasks, "task"), counted(tubes.len() as u64, "tube"));
    let words = format_args!("exported {} of {} to {path}", counts.0, counts.1);
    output::said(arguments.server.client.json, object, words)
}

/// All tubes that the user may see.
fn tubes(session: &Session) -> anyhow::Result<Vec<Tube>> {
    let queue =
        space(session, QUEUE)?.with_context(|| format!("the server shows no space {QUEUE}: {ADVICE}"))?;
    let mut found = Vec::new();
    let mut pages = Pages::by_first_field(queue.0);
    while let Some(page) = pages.next(session)? {
        for row in tuples(&page) {
            let text = |field| shown_text(row, field);
            let (Some(tube), Some(space), Some(kind)) = (text(0), text(2), text(3)) else { continue };
            let options = row.field(4).map_or(Json::Null, options);
            found.push(Tube { space, line: TubeLine { tube, kind, options } });
        }
    }
    Ok(found)
}

/// A tube's options, without what says how it was created rather than what it is.
fn options(bytes: &[u8]) -> Json {
    let mut options = exact_json::read(bytes);
    match &mut options {
        Json::Object(object) => drop(object.shift_remove("if_not_exists")),
        // An empty table of Lua.
        Json::Array(items) if items.is_empty() => options = json!({}),
        _ => {}
    }
    options
}

/// The tubes with these names, in this order; all of them if there are no names.
fn choose(tubes: Vec<Tube>, names: &[String]) -> anyhow::Result<Vec<Tube>> {
    if names.is_empty() {
        return Ok(tubes);
    }
    let one = |name: &String| tubes.iter().find(|tube| tube.line.tube == *name).cloned();
    let missing = |name: &str| missing_tube(name, tubes.iter().map(|tube| tube.line.tube.clone()).collect());
    names.iter().map(|name| one(name).with_context(|| missing(name))).collect()
}

/// Tasks of the tubes together, if the server says.
fn total(session: &Session, tubes: &[Tube]) -> Option<u64> {
    let values = session.call("queue.statistics", Vec::new()).ok()?;
    let statistics = values.first()?;
    let count = |tube: &Tube| inside(statistics, &[&tube.line.tube, "tasks", "total"])?.as_u64();
    tubes.iter().map(count).sum()
}

/// Writes the tubes; returns how many tasks there were.
fn export(session: &Session, tubes: &[Tube], out: &mut impl Write, bar: &ProgressBar) -> anyhow::Result<u64> {
    let mut tasks = 0;
    for tube in tubes {
        bar.set_message(tube.line.tube.clone());
        let written = export_tube(session, tube, out, bar);
        tasks += written.with_context(|| format!("tube '{}'", tube.line.tube))?;
    }
    Ok(tasks)
}

fn export_tube(
    session: &Session,
    tube: &Tube,
    out: &mut impl Write,
    bar: &ProgressBar,
) -> anyhow::Result<u64> {
    let (space, row) = space(session, &tube.space)?
        .with_context(|| format!("the server shows no space '{}': {ADVICE}", tube.space))?;
    let format = row.as_array().and_then(|fields| fields.get(FORMAT)?.as_array()).unwrap_or_default();
    let layout = Layout::of(&format.iter().map(|field| text_of(field, "name")).collect::<Vec<_>>())?;
    write_line(out, &serde_json::to_value(&tube.line)?)?;
    let last = select(session, space, 0, LE, Array::from(()), 1)?;
    let Some(last) = tuples(&last).next().and_then(|tuple| layout.id(tuple)) else { return Ok(0) };
    let mut tasks = 0;
    let mut pages = Pages::by_first_field(space);
    while let Some(page) = pages.next(session)? {
        for tuple in tuples(&page) {
            let Some(task) = layout.task(&tube.line.tube, tuple) else {
                anyhow::bail!(
                    "the tuple {} of space '{}' is not a task: its id, state, priority or a time is missing or of a wrong type. \
                     The export ended before it; delete or repair the tuple, and export again",
                    show(tuple),
                    tube.space
                );
            };
            if task.id > Some(last) {
                return Ok(tasks);
            }
            write_line(out, &serde_json::to_value(task)?)?;
            tasks += 1;
        }
        bar.inc(page.len() as u64);
    }
    Ok(tasks)
}

fn show(tuple: TupleRef<'_>) -> String {
    Value::decode(tuple.bytes()).map_or_else(|error| error.to_string(), |value| value.to_string())
}

fn write_line(out: &mut impl Write, line: &Json) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

/// Where the fields of a task are in its tuple.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    id: u32,
    status: u32,
    data: u32,
    /// The fields of tubes with deadlines: `next_event`, `ttl`, `ttr`, `pri`, `created`.
    times: Option<[u32; 5]>,
    utube: Option<u32>,
}

impl Layout {
    fn of(fields: &[&str]) -> anyhow::Result<Self> {
        let place = |name: &str| fields.iter().zip(0..).find(|(field, _)| **field == name).map(|(_, at)| at);
        let need = |name: &str| place(name).with_context(|| format!("its space has no field '{name}'"));
        let (id, status, data) = (need("task_id")?, need("status")?, need("data")?);
        let times = ["next_event", "ttl", "ttr", "pri", "created"].map(place);
        let times =
            times.iter().copied().collect::<Option<Vec<u32>>>().and_then(|times| times.try_into().ok());
        Ok(Self { id, status, data, times, utube: place("utube") })
    }

    fn id(&self, tuple: TupleRef<'_>) -> Option<u64> {
        number(tuple, self.id)
    }

    /// The task in a tuple; `None` if its fields are not those of one.
    fn task(&self, tube: &str, tuple: TupleRef<'_>) -> Option<TaskLine> {
        let number = |field: u32| number(tuple, field);
        let state = match text(tuple, self.status)? {
            b"t" => TaskState::Taken,
            b"~" => TaskState::Delayed,
            b"!" => TaskState::Buried,
            b"r" => TaskState::Ready,
            _ => return None,
        };
        let mut task = TaskLine {
            tube: tube.to_owned(),
            id: Some(self.id(tuple)?),
            state,
            data: exact_json::read(tuple.field(self.data)?),
            ..TaskLine::default()
        };
        if let Some([next_event, ttl, ttr, pri, created]) = self.times {
            let created = number(created)?;
            task.pri = Some(number(pri)?);
            task.ttl = Some(to_seconds(number(ttl)?));
            task.ttr = Some(to_seconds(number(ttr)?));
            task.created = Some(to_seconds(created));
            if state == TaskState::Delayed {
                task.delay = Some(to_seconds(number(next_event)?.saturating_sub(created)));
            }
        }
        if let Some(utube) = self.utube {
            task.utube = Some(exact_json::read(tuple.field(utube)?));
        }
        Some(task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(fields: &[&str]) -> Layout {
        Layout::of(fields).unwrap()
    }

    fn line(layout: &Layout, tuple: Vec<Value>) -> String {
        let bytes = Value::Array(tuple).encode();
        let task = layout.task("t", TupleRef::new(&bytes).unwrap()).unwrap();
        serde_json::to_string(&task).unwrap()
    }

    #[test]
    fn tasks_are_read_by_the_names_of_their_fields() {
        let fifo = layout(&["task_id", "status", "data"]);
        let task = line(&fifo, vec![7_u64.into(), "r".into(), Value::bin([0xff])]);
        assert_eq!(task, r#"{"tube":"t","id":7,"state":"r","data":{"base16":"ff"}}"#);
        let names = ["task_id", "status", "next_event", "ttl", "ttr", "pri", "created", "utube", "data"];
        let tuple = vec![
            0_u64.into(),
            "~".into(),
            1_500_000_u64.into(),
            9_000_000_u64.into(),
            2_000_000_u64.into(),
            3_u64.into(),
            1_000_000_u64.into(),
            "u".into(),
            Value::Nil,
        ];
        assert_eq!(
            line(&layout(&names), tuple),
            r#"{"tube":"t","id":0,"state":"~","data":null,"pri":3,"ttl":9,"ttr":2,"delay":0.5,"utube":"u","created":1}"#
        );
    }

    #[test]
    fn a_space_without_the_fields_of_tasks_is_named() {
        assert_eq!(
            Layout::of(&["task_id", "status"]).unwrap_err().to_string(),
            "its space has no field 'data'"
        );
        let fifo = layout(&["task_id", "status", "data"]);
        let short = Value::array([Value::from(1_u64)]).encode();
        assert_eq!(fifo.task("t", TupleRef::new(&short).unwrap()), None);
    }

    #[test]
    fn options_are_those_of_the_tube_only() {
        let given = Value::map([("if_not_exists", Value::from(true)), ("ttl", Value::from(60_u64))]);
        assert_eq!(options(&given.encode()).to_string(), r#"{"ttl":60}"#);
        assert_eq!(options(&[0x90]).to_string(), "{}");
    }
}
