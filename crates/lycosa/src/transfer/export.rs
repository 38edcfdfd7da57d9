//! `lycosa export`: the tasks of tubes, read over the protocol.
//!
//! Tuples are read through the primary index, a page at a time, each page after the last key of the one before. So the
//! server is never held up and puts may go on; tasks that were put after the export of a tube began are left out, and each task
//! is shown as it was when its page was read.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::Context;
use indicatif::ProgressBar;
use lycosa_client::{Array, Error, Value};
use lycosa_iproto::error::ErrorCode;
use lycosa_tuple::mp::Reader;
use lycosa_tuple::tuple::TupleRef;
use serde_json::{Value as Json, json};

use super::{TaskLine, TaskState, TubeLine, exact_json, to_seconds};
use crate::arguments::ExportArguments;
use crate::commands::progress_bar;
use crate::explain::missing_tube;
use crate::outcome::Outcome;
use crate::output;
use crate::session::Session;
use crate::space_pages::{EQ, LE, Pages, SPACES, select, tuples};
use crate::terminal;
use crate::values::counted;

/// The index of `_vspace` by name.
const SPACES_BY_NAME: u32 = 2;
/// Fields of `_vspace`.
const SPACE_ID: u32 = 0;
const SPACE_FORMAT: u32 = 6;
/// The space with a row for every tube: name, number, name of the space, type, options.
const QUEUE: &str = "_queue";

const ADVICE: &str = "reading tubes takes the right to read their spaces; on the server's machine --data-dir DIR, \
                      the server's data folder, needs no rights";

/// A space that can be read.
#[derive(Debug, Clone)]
struct Space {
    id: u32,
    /// Names of the fields.
    fields: Vec<String>,
}

/// A row of `_queue`.
#[derive(Debug, Clone)]
struct Tube {
    name: String,
    space: String,
    kind: String,
    options: Json,
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
    if let Some(path) = &arguments.output {
        say(path, tubes.len(), tasks, arguments.server.client.json)?;
    }
    Ok(Outcome::Done)
}

fn say(path: &Path, tubes: usize, tasks: u64, as_json: bool) -> io::Result<()> {
    if as_json {
        output::line(json!({ "file": path.display().to_string(), "tubes": tubes, "tasks": tasks }))
    } else {
        output::line(format_args!(
            "exported {} of {} to {}",
            counted(tasks, "task"),
            counted(tubes as u64, "tube"),
            path.display()
        ))
    }
}

/// All tubes that the user may see.
fn tubes(session: &Session) -> anyhow::Result<Vec<Tube>> {
    let queue =
        space(session, QUEUE)?.with_context(|| format!("the server shows no space {QUEUE}: {ADVICE}"))?;
    let mut found = Vec::new();
    let mut pages = Pages::by_first_field(queue.id);
    while let Some(page) = pages.next(session)? {
        for row in tuples(&page) {
            let text = |field: u32| {
                let bytes = row.field(field).and_then(|field| Reader::new(field).str().ok());
                bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            };
            let (Some(name), Some(space), Some(kind)) = (text(0), text(2), text(3)) else { continue };
            found.push(Tube { name, space, kind, options: row.field(4).map_or(Json::Null, options) });
        }
    }
    Ok(found)
}

/// A tube's options, without what says how it was created rather than what it is.
fn options(bytes: &[u8]) -> Json {
    let mut options = exact_json::read(bytes);
    match &mut options {
        Json::Object(object) => {
            object.shift_remove("if_not_exists");
        }
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
    let one = |name: &String| tubes.iter().find(|tube| tube.name == *name).cloned();
    let missing = |name: &str| missing_tube(name, tubes.iter().map(|tube| tube.name.clone()).collect());
    names.iter().map(|name| one(name).with_context(|| missing(name))).collect()
}

/// Tasks of the tubes together, if the server says.
fn total(session: &Session, tubes: &[Tube]) -> Option<u64> {
    let values = session.call("queue.statistics", Vec::new()).ok()?;
    let statistics = values.first()?;
    let count = |tube: &Tube| statistics.get(&tube.name)?.get("tasks")?.get("total")?.as_u64();
    tubes.iter().map(count).sum()
}

/// Writes the tubes; returns how many tasks there were.
fn export(session: &Session, tubes: &[Tube], out: &mut impl Write, bar: &ProgressBar) -> anyhow::Result<u64> {
    let mut tasks = 0;
    for tube in tubes {
        bar.set_message(tube.name.clone());
        let written = export_tube(session, tube, out, bar);
        tasks += written.with_context(|| format!("tube '{}'", tube.name))?;
    }
    Ok(tasks)
}

fn export_tube(
    session: &Session,
    tube: &Tube,
    out: &mut impl Write,
    bar: &ProgressBar,
) -> anyhow::Result<u64> {
    let space = space(session, &tube.space)?
        .with_context(|| format!("the server shows no space '{}': {ADVICE}", tube.space))?;
    let layout = Layout::of(&space)?;
    let head = TubeLine { tube: tube.name.clone(), kind: tube.kind.clone(), options: tube.options.clone() };
    write_line(out, &serde_json::to_value(head)?)?;
    let last = select(session, space.id, 0, LE, Array::from(()), 1)?;
    let Some(last) = tuples(&last).next().and_then(|tuple| layout.id(tuple)) else { return Ok(0) };
    let mut tasks = 0;
    let mut pages = Pages::by_first_field(space.id);
    while let Some(page) = pages.next(session)? {
        for tuple in tuples(&page) {
            let Some(task) = layout.task(&tube.name, tuple) else {
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

/// The space with that name, if the user may see it.
fn space(session: &Session, name: &str) -> anyhow::Result<Option<Space>> {
    let found = select(session, SPACES, SPACES_BY_NAME, EQ, Array::from([Value::from(name)]), 1)?;
    let Some(row) = tuples(&found).next() else { return Ok(None) };
    let id = row.field(SPACE_ID).and_then(|id| Reader::new(id).uint().ok());
    let id = id.and_then(|id| u32::try_from(id).ok()).context("a space without a number")?;
    let format = row.field(SPACE_FORMAT).and_then(|format| Value::decode(format).ok()).unwrap_or(Value::Nil);
    let fields = format.as_array().unwrap_or_default().iter().map(|field| {
        let name = field.get("name").and_then(Value::as_str);
        name.unwrap_or_default().to_owned()
    });
    Ok(Some(Space { id, fields: fields.collect() }))
}

/// Where the fields of a task are in its tuple.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    id: u32,
    status: u32,
    data: u32,
    times: Option<Times>,
    utube: Option<u32>,
}

/// The fields of tubes with deadlines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Times {
    next_event: u32,
    ttl: u32,
    ttr: u32,
    pri: u32,
    created: u32,
}

impl Layout {
    fn of(space: &Space) -> anyhow::Result<Self> {
        let place = |name: &str| {
            let place = space.fields.iter().position(|field| field == name)?;
            u32::try_from(place).ok()
        };
        let need = |name: &str| place(name).with_context(|| format!("its space has no field '{name}'"));
        let times = || {
            Some(Times {
                next_event: place("next_event")?,
                ttl: place("ttl")?,
                ttr: place("ttr")?,
                pri: place("pri")?,
                created: place("created")?,
            })
        };
        Ok(Self {
            id: need("task_id")?,
            status: need("status")?,
            data: need("data")?,
            times: times(),
            utube: place("utube"),
        })
    }

    fn id(&self, tuple: TupleRef<'_>) -> Option<u64> {
        Reader::new(tuple.field(self.id)?).uint().ok()
    }

    /// The task in a tuple; `None` if its fields are not those of one.
    fn task(&self, tube: &str, tuple: TupleRef<'_>) -> Option<TaskLine> {
        let number = |field: u32| Reader::new(tuple.field(field)?).uint().ok();
        let state = match Reader::new(tuple.field(self.status)?).str().ok()? {
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
            pri: None,
            ttl: None,
            ttr: None,
            delay: None,
            utube: None,
            created: None,
        };
        if let Some(times) = self.times {
            let created = number(times.created)?;
            task.pri = Some(number(times.pri)?);
            task.ttl = Some(to_seconds(number(times.ttl)?));
            task.ttr = Some(to_seconds(number(times.ttr)?));
            task.created = Some(to_seconds(created));
            if state == TaskState::Delayed {
                task.delay = Some(to_seconds(number(times.next_event)?.saturating_sub(created)));
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
        let fields = fields.iter().map(|field| (*field).to_owned()).collect();
        Layout::of(&Space { id: 512, fields }).unwrap()
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
        let space = Space { id: 512, fields: vec!["task_id".to_owned(), "status".to_owned()] };
        assert_eq!(Layout::of(&space).unwrap_err().to_string(), "its space has no field 'data'");
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
