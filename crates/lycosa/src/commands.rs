//! The commands that ask the server something and print the answer.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use lycosa_client::{Error, Value};
use lycosa_iproto::error::ErrorCode;
use serde_json::json;

use crate::arguments::{
    ClientArguments, KickArguments, PayloadType, PutArguments, TakeArguments, TaskArguments, TouchArguments,
    TubeCommand, TubeCreateArguments,
};
use crate::outcome::Outcome;
use crate::output::{self, Task};
use crate::payload;
use crate::session::{Session, seconds};

/// Tasks whose puts `put --lines` keeps under way.
const PUTS_IN_FLIGHT: usize = 512;

/// Batches that it keeps under way at least, so that the server does not wait for the next one.
const BATCHES_IN_FLIGHT: usize = 4;

/// Bytes of payloads at which a batch is complete, whatever was asked for.
const BATCH_BYTES: usize = 4 << 20;

/// Lines between two looks at the progress bar.
const PROGRESS_STEP: u64 = 256;

/// The name under which a method of a tube is called.
pub(crate) fn method(tube: &str, method: &str) -> String {
    format!("queue.tube.{tube}:{method}")
}

/// Collects named options into a map.
fn options<const N: usize>(pairs: [(&str, Option<Value>); N]) -> Value {
    let given = pairs.into_iter().filter_map(|(name, value)| Some((Value::from(name), value?)));
    Value::Map(given.collect())
}

fn flag(is_set: bool) -> Option<Value> {
    is_set.then_some(Value::Bool(true))
}

pub(crate) fn tube(command: TubeCommand) -> anyhow::Result<Outcome> {
    match command {
        TubeCommand::Create(arguments) => create(&arguments),
        TubeCommand::List(client) => list(&client),
        TubeCommand::Drop(arguments) => {
            let session = Session::open(&arguments.client)?;
            session.call(&method(&arguments.tube, "drop"), Vec::new())?;
            say(&arguments.client, &arguments.tube, "dropped")
        }
        TubeCommand::Truncate(arguments) => {
            let session = Session::open(&arguments.client)?;
            session.call(&method(&arguments.tube, "truncate"), Vec::new())?;
            say(&arguments.client, &arguments.tube, "truncated")
        }
        TubeCommand::Stats { tube, client } => tube_stats(tube.as_deref(), &client),
    }
}

fn say(client: &ClientArguments, tube: &str, what: &str) -> anyhow::Result<Outcome> {
    if client.json {
        output::line(json!({ "tube": tube, "done": what }))?;
    } else {
        output::line(format_args!("{what} tube {tube}"))?;
    }
    Ok(Outcome::Done)
}

fn create(arguments: &TubeCreateArguments) -> anyhow::Result<Outcome> {
    let session = Session::open(&arguments.client)?;
    let options = options([
        ("if_not_exists", flag(arguments.if_not_exists)),
        ("temporary", flag(arguments.temporary)),
        ("ttl", arguments.ttl.map(Value::Double)),
        ("ttr", arguments.ttr.map(Value::Double)),
        ("pri", arguments.pri.map(Value::from)),
        ("capacity", arguments.capacity.map(Value::from)),
    ]);
    create_tube(&session, &arguments.tube, arguments.kind.name(), options)?;
    if arguments.client.json {
        return say(&arguments.client, &arguments.tube, "created");
    }
    output::line(format_args!("created tube {} ({})", arguments.tube, arguments.kind.name()))?;
    Ok(Outcome::Done)
}

/// Creates a tube; what the server says of it. One with the Lua module answers with an error although it has made the
/// tube, and says nothing.
pub(crate) fn create_tube(
    session: &Session,
    name: &str,
    kind: &str,
    options: Value,
) -> Result<Option<Value>, Error> {
    match session.call("queue.create_tube", vec![name.into(), kind.into(), options]) {
        Err(Error::Server { message, .. }) if message.contains("unsupported Lua type 'function'") => Ok(None),
        answer => answer.map(|values| values.into_iter().next()),
    }
}

fn list(client: &ClientArguments) -> anyhow::Result<Outcome> {
    let session = Session::open(client)?;
    let values = session.call("queue.tube", Vec::new())?;
    let mut names: Vec<&str> = values
        .first()
        .and_then(Value::as_array)
        .unwrap_or_default()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    names.sort_unstable();
    for name in names {
        if client.json {
            output::line(json!({ "tube": name }))?;
        } else {
            output::line(name)?;
        }
    }
    Ok(Outcome::Done)
}

const STATES: [&str; 6] = ["ready", "taken", "delayed", "buried", "done", "total"];
const CALLS: [&str; 11] =
    ["put", "take", "ack", "release", "bury", "kick", "delete", "touch", "ttl", "ttr", "delay"];

fn tube_stats(tube: Option<&str>, client: &ClientArguments) -> anyhow::Result<Outcome> {
    let session = Session::open(client)?;
    let values = session.call("queue.statistics", tube.map(Value::from).into_iter().collect())?;
    let statistics = values.first().context("the server answered no statistics")?;
    let mut tubes: Vec<(String, &Value)> = match (tube, statistics) {
        (Some(name), statistics) => vec![(name.to_owned(), statistics)],
        (None, Value::Map(pairs)) => pairs
            .iter()
            .map(|(name, statistics)| (name.as_str().unwrap_or_default().to_owned(), statistics))
            .collect(),
        (None, _) => Vec::new(),
    };
    tubes.sort_by(|a, b| a.0.cmp(&b.0));
    print_tubes(&tubes, client.json)?;
    Ok(Outcome::Done)
}

fn print_tubes(tubes: &[(String, &Value)], as_json: bool) -> io::Result<()> {
    if as_json {
        for (name, statistics) in tubes {
            output::line(json!({ "tube": name, "statistics": payload::to_json(statistics) }))?;
        }
        return Ok(());
    }
    let number = |statistics: &Value, group: &str, name: &str| {
        let value = statistics.get(group).and_then(|group| group.get(name));
        value.and_then(Value::as_u64).unwrap_or(0).to_string()
    };
    let columns = |group: &'static str, names: &[&'static str]| {
        let heading: Vec<&str> = std::iter::once("tube").chain(names.iter().copied()).collect();
        let rows: Vec<Vec<String>> = tubes
            .iter()
            .map(|(name, statistics)| {
                std::iter::once(name.clone())
                    .chain(names.iter().map(|n| number(statistics, group, n)))
                    .collect()
            })
            .collect();
        (heading, rows)
    };
    let (heading, rows) = columns("tasks", &STATES);
    output::table(&heading, &rows)?;
    output::line("")?;
    let (heading, rows) = columns("calls", &CALLS);
    output::table(&heading, &rows)
}

pub(crate) fn put(arguments: &PutArguments) -> anyhow::Result<Outcome> {
    let session = Session::open(&arguments.client)?;
    if arguments.create {
        create_tube(&session, &arguments.tube, "fifottl", options([("if_not_exists", flag(true))]))?;
    }
    let options = options([
        ("pri", arguments.pri.map(Value::from)),
        ("delay", arguments.delay.map(Value::Double)),
        ("ttl", arguments.ttl.map(Value::Double)),
        ("ttr", arguments.ttr.map(Value::Double)),
        ("utube", arguments.utube.as_deref().map(Value::from)),
        ("timeout", arguments.timeout.map(Value::Double)),
    ]);
    let mut putter = Putter::new(&session, arguments, options)?;
    if !arguments.data.is_empty() || !arguments.file.is_empty() {
        for data in &arguments.data {
            putter.add(data.clone().into_bytes())?;
        }
        for path in &arguments.file {
            let name = || format!("cannot read {}", path.display());
            let mut file = File::open(path).with_context(name)?;
            if arguments.lines {
                let size = file.metadata().map(|metadata| metadata.len()).ok();
                putter.add_lines(BufReader::new(file), size).with_context(name)?;
            } else {
                let mut content = Vec::new();
                file.read_to_end(&mut content).with_context(name)?;
                putter.add(content)?;
            }
        }
    } else if arguments.lines {
        putter.add_lines(io::stdin().lock(), None)?;
    } else {
        let mut content = Vec::new();
        io::stdin().lock().read_to_end(&mut content)?;
        putter.add(content)?;
    }
    putter.finish()
}

/// Puts tasks with many calls under way, and prints the ids in the order of the payloads.
struct Putter<'a> {
    session: &'a Session,
    tube: String,
    options: Value,
    payload: PayloadType,
    json: bool,
    waits: bool,
    /// Ids of lines are counted, not printed, unless asked for with `--json`.
    quiet: bool,
    /// Tasks of a call.
    batch_size: usize,
    /// The tasks of the next call, and their bytes.
    batch: Vec<Value>,
    batch_bytes: usize,
    pending: VecDeque<PendingPut>,
    count: u64,
    refused: u64,
}

/// A call that is under way.
struct PendingPut {
    /// Numbers of its tasks, from 1.
    tasks: RangeInclusive<u64>,
    call: tokio::task::JoinHandle<Result<Vec<Value>, Error>>,
}

impl<'a> Putter<'a> {
    fn new(session: &'a Session, arguments: &PutArguments, options: Value) -> anyhow::Result<Self> {
        if let Some(timeout) = arguments.timeout {
            seconds("timeout", timeout)?;
        }
        Ok(Putter {
            session,
            tube: arguments.tube.clone(),
            options,
            payload: arguments.payload,
            json: arguments.client.json,
            waits: arguments.timeout.is_some(),
            quiet: arguments.lines && !arguments.client.json,
            batch_size: arguments.batch as usize,
            batch: Vec::new(),
            batch_bytes: 0,
            pending: VecDeque::new(),
            count: 0,
            refused: 0,
        })
    }

    fn add(&mut self, bytes: Vec<u8>) -> anyhow::Result<()> {
        let length = bytes.len();
        let payload = match payload::from_bytes(bytes, self.payload) {
            Ok(payload) => payload,
            Err(error) => {
                self.settle()?;
                let (task, before) = (self.count + 1, self.count - self.refused);
                return Err(error.context(format!("task {task} was not put, {before} before it were")));
            }
        };
        self.batch.push(payload);
        self.batch_bytes += length;
        self.count += 1;
        if self.batch.len() == self.batch_size || self.batch_bytes >= BATCH_BYTES {
            self.send_batch()?;
        }
        Ok(())
    }

    fn send_batch(&mut self) -> anyhow::Result<()> {
        let mut batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        let tasks = self.count - batch.len() as u64 + 1..=self.count;
        let (name, payload) = match batch.pop() {
            None => return Ok(()),
            Some(payload) if self.batch_size == 1 => ("put", payload),
            Some(last) => {
                batch.push(last);
                ("put_many", Value::Array(batch))
            }
        };
        let (runtime, connection) = self.session.parts();
        let (connection, name) = (connection.clone(), method(&self.tube, name));
        let arguments = vec![payload, self.options.clone()];
        let call = runtime.spawn(async move { connection.call(&name, arguments).await?.values() });
        self.pending.push_back(PendingPut { tasks, call });
        let limit = match self.waits {
            true => 1,
            false => (PUTS_IN_FLIGHT / self.batch_size).max(BATCHES_IN_FLIGHT),
        };
        while self.pending.len() >= limit {
            self.settle_one()?;
        }
        Ok(())
    }

    fn add_lines(&mut self, mut input: impl BufRead, size: Option<u64>) -> anyhow::Result<()> {
        let bar = progress_bar(size);
        let mut line = Vec::new();
        let (mut bytes, mut lines) = (0, 0);
        loop {
            line.clear();
            let read = input.read_until(b'\n', &mut line)?;
            if read == 0 {
                break;
            }
            bytes += read as u64;
            lines += 1;
            let content = line.strip_suffix(b"\n").unwrap_or(&line);
            let content = content.strip_suffix(b"\r").unwrap_or(content);
            self.add(content.to_vec()).with_context(|| format!("line {lines}"))?;
            if lines % PROGRESS_STEP == 0 {
                bar.set_position(bytes);
                bar.set_message(format!("{lines} tasks"));
            }
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Sends what is left and waits for all answers.
    fn settle(&mut self) -> anyhow::Result<()> {
        self.send_batch()?;
        while !self.pending.is_empty() {
            self.settle_one()?;
        }
        Ok(())
    }

    fn settle_one(&mut self) -> anyhow::Result<()> {
        let Some(PendingPut { tasks, call }) = self.pending.pop_front() else { return Ok(()) };
        let (runtime, _) = self.session.parts();
        let answer = runtime.block_on(call).context("a put was interrupted")?;
        if self.batch_size == 1 {
            let task = answer?.first().map(Task::read).transpose()?.flatten();
            return self.report(tasks, task.as_slice());
        }
        let values =
            answer.with_context(|| format!("tasks {} to {} were not put", tasks.start(), tasks.end()))?;
        let put = Task::read_many(values.first().unwrap_or(&Value::Nil))?;
        self.report(tasks, put.as_deref().unwrap_or_default())
    }

    /// Says what has become of the tasks of a call: nothing was put if there was no room.
    fn report(&mut self, tasks: RangeInclusive<u64>, put: &[Task]) -> anyhow::Result<()> {
        if put.is_empty() {
            self.refused += tasks.end() - tasks.start() + 1;
        }
        for task in put {
            match (self.json, self.quiet) {
                (true, _) => output::line(task.json(None))?,
                (false, true) => {}
                (false, false) => output::line(task.id)?,
            }
        }
        Ok(())
    }

    fn finish(mut self) -> anyhow::Result<Outcome> {
        self.settle()?;
        if self.quiet {
            output::line(format_args!("put {} tasks", self.count - self.refused))?;
        }
        if self.refused > 0 {
            anyhow::bail!("{} of {} tasks were not put: the tube is full", self.refused, self.count);
        }
        Ok(Outcome::Done)
    }
}

/// How far the reading of `size` bytes is, for a person at the terminal.
pub(crate) fn progress_bar(size: Option<u64>) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    match size {
        Some(size) => {
            let style = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {msg}, {eta} left");
            ProgressBar::new(size).with_style(style.expect("the template is constant"))
        }
        None => {
            let style = ProgressStyle::with_template("{spinner} {bytes} {msg}");
            ProgressBar::new_spinner().with_style(style.expect("the template is constant"))
        }
    }
}

pub(crate) fn take(arguments: &TakeArguments) -> anyhow::Result<Outcome> {
    let wait = seconds("timeout", arguments.timeout)?;
    let session = Session::open(&arguments.client)?;
    session.join(&arguments.session)?;
    let identity = if arguments.client.json && !arguments.ack { Some(session.identify()?) } else { None };
    if let Some(limit) = arguments.limit {
        return take_many(arguments, &session, limit, wait, identity.as_deref());
    }
    for taken in 0..arguments.count {
        let name = method(&arguments.tube, "take");
        let values = session.call_waiting(&name, vec![Value::Double(arguments.timeout)], wait)?;
        let Some(task) = values.first().map(Task::read).transpose()?.flatten() else {
            return Ok(if taken == 0 { Outcome::NoTask } else { Outcome::Done });
        };
        if arguments.client.json {
            output::line(task.json(identity.as_deref()))?;
        } else {
            task.print()?;
        }
        if arguments.ack {
            session.call(&method(&arguments.tube, "ack"), vec![task.id.into()])?;
        }
    }
    Ok(Outcome::Done)
}

/// Takes with one call what is there, up to the limit.
fn take_many(
    arguments: &TakeArguments,
    session: &Session,
    limit: u32,
    wait: Duration,
    identity: Option<&str>,
) -> anyhow::Result<Outcome> {
    let name = method(&arguments.tube, "take_many");
    let given = vec![Value::from(limit), Value::Double(arguments.timeout)];
    let values = session.call_waiting(&name, given, wait)?;
    let tasks = Task::read_many(values.first().unwrap_or(&Value::Nil))?.unwrap_or_default();
    print_tasks(&tasks, arguments.client.json, identity)?;
    if tasks.is_empty() {
        return Ok(Outcome::NoTask);
    }
    if arguments.ack {
        let ids = Value::array(tasks.iter().map(|task| task.id));
        session.call(&method(&arguments.tube, "ack_many"), vec![ids])?;
    }
    Ok(Outcome::Done)
}

fn print_tasks(tasks: &[Task], as_json: bool, identity: Option<&str>) -> io::Result<()> {
    for task in tasks {
        if as_json {
            output::line(task.json(identity))?;
        } else {
            task.print()?;
        }
    }
    Ok(())
}

/// Calls a method for all of the ids at once. None if the server has no such method: it runs the Lua module.
fn for_all_ids(
    session: &Session,
    client: &ClientArguments,
    tube: &str,
    name: &str,
    ids: &[u64],
    extra: Option<&Value>,
) -> anyhow::Result<Option<Outcome>> {
    let ids = Value::array(ids.iter().copied());
    let arguments = std::iter::once(ids).chain(extra.cloned()).collect();
    match session.call(&method(tube, name), arguments) {
        Ok(values) => {
            let tasks = Task::read_many(values.first().unwrap_or(&Value::Nil))?.unwrap_or_default();
            print_tasks(&tasks, client.json, None)?;
            Ok(Some(Outcome::Done))
        }
        Err(error) if error.code() == Some(ErrorCode::NoSuchProc) => Ok(None),
        Err(Error::Server { message, .. }) => {
            eprintln!("lycosa: {tube}: {message}");
            Ok(Some(Outcome::Refused))
        }
        Err(error) => Err(error.into()),
    }
}

/// Calls a method for each of the ids; goes on after one that is refused.
fn for_each_id(
    session: &Session,
    client: &ClientArguments,
    tube: &str,
    name: &str,
    ids: &[u64],
    extra: Option<&Value>,
) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::Done;
    for &id in ids {
        let arguments = std::iter::once(Value::from(id)).chain(extra.cloned()).collect();
        match session.call(&method(tube, name), arguments) {
            Ok(values) => match values.first().map(Task::read).transpose()?.flatten() {
                Some(task) if client.json => output::line(task.json(None))?,
                Some(task) => task.print()?,
                None => {}
            },
            Err(Error::Server { message, .. }) => {
                eprintln!("lycosa: {tube} {id}: {message}");
                let is_missing = name == "peek" && message.ends_with("not found");
                outcome =
                    if is_missing && outcome == Outcome::Done { Outcome::NoTask } else { Outcome::Refused };
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(outcome)
}

pub(crate) fn each_task(
    arguments: &TaskArguments,
    name: &str,
    delay: Option<f64>,
) -> anyhow::Result<Outcome> {
    if let Some(delay) = delay {
        seconds("delay", delay)?;
    }
    let session = Session::open(&arguments.client)?;
    session.join(&arguments.session)?;
    let extra = delay.map(|delay| options([("delay", Some(Value::Double(delay)))]));
    let TaskArguments { client, tube, ids, .. } = arguments;
    let many = match name {
        "ack" => Some("ack_many"),
        "release" => Some("release_many"),
        _ => None,
    };
    if let Some(many) = many.filter(|_| ids.len() > 1)
        && let Some(outcome) = for_all_ids(&session, client, tube, many, ids, extra.as_ref())?
    {
        return Ok(outcome);
    }
    for_each_id(&session, client, tube, name, ids, extra.as_ref())
}

pub(crate) fn touch(arguments: &TouchArguments) -> anyhow::Result<Outcome> {
    let session = Session::open(&arguments.client)?;
    session.join(&arguments.session)?;
    let extra = Some(Value::Double(arguments.seconds));
    for_each_id(&session, &arguments.client, &arguments.tube, "touch", &arguments.ids, extra.as_ref())
}

pub(crate) fn kick(arguments: &KickArguments) -> anyhow::Result<Outcome> {
    let session = Session::open(&arguments.client)?;
    let values = session.call(&method(&arguments.tube, "kick"), vec![arguments.count.into()])?;
    let kicked = values.first().and_then(Value::as_u64).unwrap_or(0);
    if arguments.client.json {
        output::line(json!({ "tube": arguments.tube, "kicked": kicked }))?;
    } else {
        output::line(format_args!("kicked {kicked} tasks of {}", arguments.tube))?;
    }
    Ok(Outcome::Done)
}

pub(crate) fn ping(client: &ClientArguments) -> anyhow::Result<Outcome> {
    let session = Session::open(client)?;
    let (runtime, connection) = session.parts();
    let started = std::time::Instant::now();
    runtime.block_on(connection.ping())?;
    let elapsed = started.elapsed();
    if client.json {
        output::line(json!({ "address": client.address, "microseconds": elapsed.as_micros() as u64 }))?;
    } else {
        output::line(format_args!("{} answers after {elapsed:.0?}", client.address))?;
    }
    Ok(Outcome::Done)
}

pub(crate) fn stats(client: &ClientArguments) -> anyhow::Result<Outcome> {
    let session = Session::open(client)?;
    let info = session.call("box.info", Vec::new())?.into_iter().next().context("no box.info")?;
    let net = session.call("box.stat.net", Vec::new())?.into_iter().next().context("no box.stat.net")?;
    let stat = session.call("box.stat", Vec::new())?.into_iter().next().context("no box.stat")?;
    // A server whose journal has failed shows no data any more, but its status.
    let queue = match session.call("queue.statistics", Vec::new()) {
        Ok(values) => values.into_iter().next().context("no statistics")?,
        Err(Error::Server { .. }) if info.get("failure").is_some() => Value::Nil,
        Err(error) => return Err(error.into()),
    };
    if client.json {
        output::line(json!({
            "info": payload::to_json(&info),
            "net": payload::to_json(&net),
            "requests": payload::to_json(&stat),
            "tubes": payload::to_json(&queue),
        }))?;
        return Ok(Outcome::Done);
    }
    let text = |value: &Value, path: &[&str]| {
        let found = path.iter().try_fold(value, |value, name| value.get(name));
        match found {
            Some(Value::Str(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
            Some(other) => other.to_string(),
            None => "-".to_owned(),
        }
    };
    let rows = [
        ("status", text(&info, &["status"])),
        ("failure", text(&info, &["failure"])),
        ("version", text(&info, &["lycosa"])),
        ("uptime", format!("{} s", text(&info, &["uptime"]))),
        ("rows journaled", text(&info, &["signature"])),
        (
            "memory",
            format!("{} of {} bytes", text(&info, &["memory", "data"]), text(&info, &["memory", "limit"])),
        ),
        ("connections", text(&net, &["CONNECTIONS", "current"])),
        ("waiting calls", text(&net, &["REQUESTS", "current"])),
        ("requests", text(&net, &["REQUESTS", "total"])),
        ("errors", text(&stat, &["ERROR", "total"])),
        ("deadlines late", format!("{} us at the most", text(&info, &["deadline_lag", "longest_us"]))),
    ];
    for (name, value) in rows.iter().filter(|(name, value)| *name != "failure" || value != "-") {
        output::line(format_args!("{name:<16}{value}"))?;
    }
    let Value::Map(pairs) = &queue else { return Ok(Outcome::Done) };
    let mut tubes: Vec<(String, &Value)> =
        pairs.iter().map(|(name, value)| (name.as_str().unwrap_or_default().to_owned(), value)).collect();
    if !tubes.is_empty() {
        tubes.sort_by(|a, b| a.0.cmp(&b.0));
        output::line("")?;
        print_tubes(&tubes, false)?;
    }
    Ok(Outcome::Done)
}
