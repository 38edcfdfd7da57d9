//! The commands that ask the server something and print the answer.

use std::fmt::Display;
use std::io::{self, IsTerminal};
use std::time::Duration;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use lycosa_client::{Error, Kind, Value};
use serde_json::json;

use crate::arguments::{
    AckArguments, ClientArguments, NamedTasks, TakeArguments, TouchArguments, TubeCommand,
    TubeCreateArguments, TubeEndArguments,
};
use crate::confirm;
use crate::listing;
use crate::outcome::{Outcome, Usage};
use crate::output::{self, Task};
use crate::payload;
use crate::session::Session;
use crate::tube_options::{self, Needs};
use crate::values::{name_of, seconds};

/// The name under which a method of a tube is called.
pub(crate) fn method(tube: &str, method: &str) -> String {
    format!("queue.tube.{tube}:{method}")
}

/// Collects named options into a map.
pub(crate) fn options<const N: usize>(pairs: [(&str, Option<Value>); N]) -> Value {
    let given = pairs.into_iter().filter_map(|(name, value)| Some((Value::from(name), value?)));
    Value::Map(given.collect())
}

pub(crate) fn flag(is_set: bool) -> Option<Value> {
    is_set.then_some(Value::Bool(true))
}

pub(crate) fn tube(command: TubeCommand) -> anyhow::Result<Outcome> {
    match command {
        TubeCommand::Create(arguments) => create(&arguments),
        TubeCommand::List(client) => listing::tube_list(&client),
        TubeCommand::Drop(arguments) => end(&arguments, "drop", "dropped"),
        TubeCommand::Truncate(arguments) => end(&arguments, "truncate", "truncated"),
        TubeCommand::Stats { tube, client } => {
            tube_stats(&Session::open(&client)?, tube.as_deref(), client.json)
        }
    }
}

/// Tasks that a script may remove with their tube without `--yes`.
const MAX_UNASKED: u64 = 1000;

/// Drops or empties a tube, if the user means its tasks.
fn end(arguments: &TubeEndArguments, verb: &str, done: &str) -> anyhow::Result<Outcome> {
    let TubeEndArguments { tube, yes, client } = arguments;
    let session = Session::open(client)?;
    if !yes {
        let statistics = session.statistics(Some(tube))?;
        let total =
            statistics.first().and_then(|value| value.get("tasks")?.get("total")?.as_u64()).unwrap_or(0);
        may_end(tube, verb, total)?;
    }
    session.call(&method(tube, verb), Vec::new())?;
    say(client, tube, done)
}

/// Asks on a terminal; elsewhere few tasks need no question, and many are refused.
fn may_end(tube: &str, verb: &str, total: u64) -> anyhow::Result<()> {
    if total > 0 && confirm::has_terminal() {
        let tasks = if total == 1 { "task is" } else { "tasks are" };
        return confirm::ask(&format!("{verb} tube {tube}? Its {total} {tasks} lost."));
    }
    if total > MAX_UNASKED {
        return Err(Usage(format!(
            "{verb} would remove the {total} tasks of tube \"{tube}\", and there is no terminal to ask on: --yes does it"
        ))
        .into());
    }
    Ok(())
}

fn say(client: &ClientArguments, tube: &str, what: &str) -> anyhow::Result<Outcome> {
    output::said(client.json, json!({ "tube": tube, "done": what }), format_args!("{what} tube {tube}"))
}

fn create(arguments: &TubeCreateArguments) -> anyhow::Result<Outcome> {
    let given = [
        ("--ttl", Needs::Ttl, arguments.ttl.is_some()),
        ("--ttr", Needs::Ttl, arguments.ttr.is_some()),
        ("--pri", Needs::Ttl, arguments.pri.is_some()),
        ("--capacity", Needs::Capacity, arguments.capacity.is_some()),
    ];
    let (name, kind) = (&arguments.tube, name_of(&arguments.kind));
    let kind = kind.as_str();
    tube_options::check_type(kind, "a tube", &given)?;
    tube_options::check_name(name)?;
    let session = Session::open(&arguments.client)?;
    let tubes = listing::tubes(&session).unwrap_or_default();
    if let Some(existing) = tubes.iter().find(|line| line.name == *name) {
        let is_other = !existing.kind.is_empty() && existing.kind != kind;
        if is_other || !arguments.if_not_exists {
            let advice = if is_other {
                format!("; `lycosa tube drop {name}` removes it and its tasks")
            } else {
                "; --if-not-exists accepts it".to_owned()
            };
            anyhow::bail!("tube \"{name}\" exists already, with the type {}{advice}", existing.kind);
        }
    }
    let options = options([
        ("if_not_exists", flag(arguments.if_not_exists)),
        ("temporary", flag(arguments.temporary)),
        ("ttl", arguments.ttl.map(seconds)),
        ("ttr", arguments.ttr.map(seconds)),
        ("pri", arguments.pri.map(Value::from)),
        ("capacity", arguments.capacity.map(Value::from)),
    ]);
    create_tube(&session, name, kind, options)?;
    let existed = tubes.iter().any(|line| line.name == *name);
    match (arguments.client.json, existed) {
        (true, _) => return say(&arguments.client, name, if existed { "existed" } else { "created" }),
        (false, true) => output::line(format_args!("tube {name} ({kind}) existed already"))?,
        (false, false) => output::line(format_args!("created tube {name} ({kind})"))?,
    }
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
    let values = match session.call("queue.create_tube", vec![name.into(), kind.into(), options]) {
        Err(error) if error.kind() == Some(Kind::MadeSilently) => return Ok(None),
        answer => answer?,
    };
    // A queue that does not run says nothing, and has done nothing.
    match values.into_iter().next() {
        None if !session.is_queue_running()? => Err(Error::Unavailable),
        made => Ok(made),
    }
}

const STATES: [&str; 6] = ["ready", "taken", "delayed", "buried", "done", "total"];
const CALLS: [&str; 11] =
    ["put", "take", "ack", "release", "bury", "kick", "delete", "touch", "ttl", "ttr", "delay"];

/// Prints the statistics of one tube, or of all tubes.
pub(crate) fn tube_stats(session: &Session, tube: Option<&str>, as_json: bool) -> anyhow::Result<Outcome> {
    let values = session.statistics(tube)?;
    let statistics = values.first().context("the server answered no statistics")?;
    let mut tubes = by_name(tube, statistics);
    tubes.sort_by(|a, b| a.0.cmp(&b.0));
    print_tubes(&tubes, as_json)?;
    Ok(Outcome::Done)
}

/// Statistics with their names: the answer is that of `one`, or a map of all.
pub(crate) fn by_name<'a>(one: Option<&str>, answer: &'a Value) -> Vec<(String, &'a Value)> {
    match (one, answer) {
        (Some(name), statistics) => vec![(name.to_owned(), statistics)],
        (None, Value::Map(pairs)) => pairs
            .iter()
            .map(|(name, statistics)| (name.as_str().unwrap_or_default().to_owned(), statistics))
            .collect(),
        (None, _) => Vec::new(),
    }
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
    let print = |group: &str, names: &[&str]| {
        let heading: Vec<&str> = std::iter::once("tube").chain(names.iter().copied()).collect();
        let row = |(name, statistics): &(String, &Value)| -> Vec<String> {
            let numbers = names.iter().map(|n| number(statistics, group, n));
            std::iter::once(name.clone()).chain(numbers).collect()
        };
        output::table(&heading, tubes.iter().map(row))
    };
    print("tasks", &STATES)?;
    output::line("")?;
    print("calls", &CALLS)
}

/// How far a command is, for a person at the terminal: a bar with the template `counting` if the end is known, else a line of `open`.
pub(crate) fn progress_bar(end: Option<u64>, counting: &str, open: &str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match end {
        Some(end) => (ProgressBar::new(end), counting),
        None => (ProgressBar::new_spinner(), open),
    };
    bar.with_style(ProgressStyle::with_template(template).expect("the template is constant"))
}

/// How far the reading of `size` bytes is.
pub(crate) fn bytes_bar(size: Option<u64>) -> ProgressBar {
    progress_bar(size, "{bar:40} {bytes}/{total_bytes} {msg}, {eta} left", "{spinner} {bytes} {msg}")
}

pub(crate) fn take(arguments: &TakeArguments) -> anyhow::Result<Outcome> {
    let wait = arguments.timeout;
    let session = Session::open_joined(&arguments.client, &arguments.session)?;
    let identity = if arguments.client.json && !arguments.ack && arguments.lease.is_none() {
        Some(session.identify()?)
    } else {
        None
    };
    if let Some(limit) = arguments.limit {
        return take_many(arguments, &session, limit, wait, identity.as_deref());
    }
    for taken in 0..arguments.count {
        let name = method(&arguments.tube, "take");
        let given = std::iter::once(seconds(arguments.timeout)).chain(lease(arguments)).collect();
        let values = session.call_waiting(&name, given, wait)?;
        let Some(task) = values.first().map(Task::read).transpose()?.flatten() else {
            if taken > 0 {
                return Ok(Outcome::Done);
            }
            say_why_nothing(&session, &arguments.tube);
            return Ok(Outcome::NoTask);
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

/// The options of a take for a lease.
fn lease(arguments: &TakeArguments) -> Option<Value> {
    arguments.lease.map(|lease| Value::map([("lease", seconds(lease))]))
}

/// Says that no task could be taken, and what the tube holds instead.
fn say_why_nothing(session: &Session, tube: &str) {
    let counts = session.call("queue.statistics", vec![tube.into()]).ok();
    let count = |state: &str| counts.as_ref()?.first()?.get("tasks")?.get(state)?.as_u64();
    let others = [("taken", count("taken")), ("delayed", count("delayed")), ("buried", count("buried"))];
    let others: Vec<String> = others
        .iter()
        .filter_map(|(state, count)| count.filter(|count| *count > 0).map(|count| format!("{count} {state}")))
        .collect();
    let others = if others.is_empty() { String::new() } else { format!("; {}", others.join(", ")) };
    eprintln!("lycosa: no task is ready in tube \"{tube}\"{others}");
}

/// Takes the ready tasks with one call, up to the limit.
fn take_many(
    arguments: &TakeArguments,
    session: &Session,
    limit: u32,
    wait: Duration,
    identity: Option<&str>,
) -> anyhow::Result<Outcome> {
    let name = method(&arguments.tube, "take_many");
    let given =
        [Value::from(limit), seconds(arguments.timeout)].into_iter().chain(lease(arguments)).collect();
    let values = session.call_waiting(&name, given, wait)?;
    let tasks = Task::read_many(values.first().unwrap_or(&Value::Nil))?.unwrap_or_default();
    output::tasks(&tasks, arguments.client.json, identity)?;
    if tasks.is_empty() {
        say_why_nothing(session, &arguments.tube);
        return Ok(Outcome::NoTask);
    }
    if arguments.ack {
        let ids = Value::array(tasks.iter().map(|task| task.id));
        session.call(&method(&arguments.tube, "ack_many"), vec![ids])?;
    }
    Ok(Outcome::Done)
}

/// A tube whose methods a command calls.
#[derive(Clone, Copy)]
pub(crate) struct TubeCalls<'a> {
    pub(crate) session: &'a Session,
    pub(crate) client: &'a ClientArguments,
    pub(crate) tube: &'a str,
}

impl TubeCalls<'_> {
    /// Calls a method with a subject, and an option behind it.
    pub(crate) fn call(
        &self,
        name: &str,
        subject: Value,
        extra: Option<&Value>,
    ) -> Result<Vec<Value>, Error> {
        let arguments = std::iter::once(subject).chain(extra.cloned()).collect();
        self.session.call(&method(self.tube, name), arguments)
    }

    /// Calls a method for all of the ids at once. None if the server has no such method: it runs the Lua module.
    pub(crate) fn for_all_ids(
        &self,
        name: &str,
        ids: &[u64],
        extra: Option<&Value>,
    ) -> anyhow::Result<Option<Outcome>> {
        match self.call(name, Value::array(ids.iter().copied()), extra) {
            Ok(values) => {
                let tasks = Task::read_many(values.first().unwrap_or(&Value::Nil))?.unwrap_or_default();
                output::tasks(&tasks, self.client.json, None)?;
                Ok(Some(Outcome::Done))
            }
            Err(error) if error.kind() == Some(Kind::NoSuchProcedure) => Ok(None),
            Err(Error::Server { message, .. }) => {
                eprintln!("lycosa: {}: {message}", self.tube);
                Ok(Some(Outcome::Refused))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Calls a method for each of the ids, or tokens of leases; goes on after one that is refused.
    pub(crate) fn for_each_id<T: Clone + Into<Value> + Display>(
        &self,
        name: &str,
        ids: &[T],
        extra: Option<&Value>,
    ) -> anyhow::Result<Outcome> {
        let mut outcome = Outcome::Done;
        for id in ids {
            match self.call(name, id.clone().into(), extra) {
                Ok(values) => match values.first().map(Task::read).transpose()?.flatten() {
                    Some(task) if self.client.json => output::line(task.json(None))?,
                    Some(task) => task.print()?,
                    None => {}
                },
                Err(Error::Server { message, .. }) => {
                    eprintln!("lycosa: {} {id}: {message}", self.tube);
                    outcome = Outcome::Refused;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(outcome)
    }

    /// Calls a method for each task that a token or an id names.
    pub(crate) fn for_each_named(
        &self,
        name: &str,
        (ids, tokens): (&[u64], &[String]),
        extra: Option<&Value>,
    ) -> anyhow::Result<Outcome> {
        match tokens {
            [] => self.for_each_id(name, ids, extra),
            tokens => self.for_each_id(name, tokens, extra),
        }
    }
}

pub(crate) fn ack(arguments: &AckArguments) -> anyhow::Result<Outcome> {
    let AckArguments { tube, tasks: NamedTasks { ids, token, session, client } } = arguments;
    let session = &Session::open_joined(client, session)?;
    let calls = TubeCalls { session, client, tube };
    if ids.len() > 1
        && let Some(outcome) = calls.for_all_ids("ack_many", ids, None)?
    {
        return Ok(outcome);
    }
    calls.for_each_named("ack", (ids, token), None)
}

pub(crate) fn touch(arguments: &TouchArguments) -> anyhow::Result<Outcome> {
    let TouchArguments { tube, seconds: time, tasks: NamedTasks { ids, token, session, client } } = arguments;
    let session = &Session::open_joined(client, session)?;
    TubeCalls { session, client, tube }.for_each_named("touch", (ids, token), Some(&seconds(*time)))
}

/// How long `lycosa ping` waits for a greeting before it asks whether the server is starting.
const PING_PATIENCE: Duration = Duration::from_millis(200);

pub(crate) fn ping(client: &ClientArguments) -> anyhow::Result<Outcome> {
    // A member without a leader answers no log-in, so it is asked without one first.
    let mut elapsed = pinged(&ClientArguments { user: None, ..client.clone() })?;
    if client.user.is_some() {
        elapsed = pinged(client)?;
    }
    output::said(
        client.json,
        json!({ "address": client.address, "microseconds": elapsed.as_micros() as u64 }),
        format_args!("{} answers after {elapsed:.0?}", client.address),
    )
}

/// How long the answer to a PING takes.
fn pinged(client: &ClientArguments) -> anyhow::Result<Duration> {
    let session = Session::open_within(client, PING_PATIENCE)?;
    let (runtime, connection) = session.parts();
    let started = std::time::Instant::now();
    runtime.block_on(connection.ping()).map_err(|error| match error.kind() {
        Some(Kind::NoLeader) => {
            anyhow::Error::new(error).context(format!("{} runs and serves no requests", client.address))
        }
        _ => error.into(),
    })?;
    Ok(started.elapsed())
}
