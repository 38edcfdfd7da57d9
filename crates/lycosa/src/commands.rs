//! The commands that ask the server something and print the answer.

use std::fmt::Display;
use std::io::{self, IsTerminal};
use std::time::Duration;

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use lycosa_client::{Error, Kind, Value};
use serde_json::json;

use crate::arguments::{
    AckArguments, ClientArguments, NamedTasks, TakeArguments, TouchArguments, TubeCommand,
    TubeCreateArguments, TubeEndArguments,
};
use crate::outcome::{Outcome, Usage};
use crate::output::{self, Task};
use crate::session::{Session, Values, connect_options, method};
use crate::values::{inside, name_of, pairs, seconds};
use crate::{confirm, listing, payload, tube_options};

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
        let total = statistics.first().and_then(|value| inside(value, &["tasks", "total"])?.as_u64());
        may_end(tube, verb, total.unwrap_or(0))?;
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
        bail!(Usage(format!(
            "{verb} would remove the {total} tasks of tube \"{tube}\", and there is no terminal to ask on: --yes does it"
        )));
    }
    Ok(())
}

fn say(client: &ClientArguments, tube: &str, what: &str) -> anyhow::Result<Outcome> {
    output::said(client.json, json!({ "tube": tube, "done": what }), format_args!("{what} tube {tube}"))
}

fn create(arguments: &TubeCreateArguments) -> anyhow::Result<Outcome> {
    let TubeCreateArguments { tube: name, if_not_exists, client, .. } = arguments;
    let kind = &name_of(&arguments.kind);
    let options = options([
        ("if_not_exists", flag(*if_not_exists)),
        ("temporary", flag(arguments.temporary)),
        ("ttl", arguments.ttl.map(seconds)),
        ("ttr", arguments.ttr.map(seconds)),
        ("pri", arguments.pri.map(Value::from)),
        ("capacity", arguments.capacity.map(Value::from)),
    ]);
    tube_options::check_type(kind, "a tube", &options)?;
    tube_options::check_name(name)?;
    let session = Session::open(client)?;
    let tubes = listing::tubes(&session).unwrap_or_default();
    let existing = tubes.iter().find(|line| line.name == *name);
    if let Some(existing) = existing {
        let is_other = !existing.kind.is_empty() && existing.kind != *kind;
        let advice = match is_other {
            true => format!("; `lycosa tube drop {name}` removes it and its tasks"),
            false => "; --if-not-exists accepts it".to_owned(),
        };
        if is_other || !if_not_exists {
            bail!("tube \"{name}\" exists already, with the type {}{advice}", existing.kind);
        }
    }
    create_tube(&session, name, kind, options)?;
    match (client.json, existing) {
        (true, _) => say(client, name, if existing.is_some() { "existed" } else { "created" }),
        (false, Some(_)) => output::done(format_args!("tube {name} ({kind}) existed already")),
        (false, None) => output::done(format_args!("created tube {name} ({kind})")),
    }
}

/// What the server says of a tube that it has made.
type Made = Result<Option<Value>, Error>;

/// Creates a tube; what the server says of it. One with the Lua module answers with an error although it has made the
/// tube, and says nothing.
pub(crate) fn create_tube(session: &Session, name: &str, kind: &str, options: Value) -> Made {
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
    let mut tubes = by_name(tube, values.first().context("the server answered no statistics")?);
    tubes.sort_by_key(|(name, _)| *name);
    if as_json {
        return output::lines(
            tubes,
            |(name, statistics)| json!({ "tube": name, "statistics": payload::to_json(statistics) }),
        );
    }
    let print = |group: &str, names: &[&str]| {
        let heading: Vec<&str> = std::iter::once("tube").chain(names.iter().copied()).collect();
        let row = |(name, statistics): &(&str, &Value)| -> Vec<String> {
            let number =
                |name: &&str| inside(statistics, &[group, name]).and_then(Value::as_u64).unwrap_or(0);
            let numbers = names.iter().map(|name| number(name).to_string());
            std::iter::once((*name).to_owned()).chain(numbers).collect()
        };
        output::table(&heading, tubes.iter().map(row))
    };
    print("tasks", &STATES)?;
    output::line("")?;
    print("calls", &CALLS)
}

/// Statistics with their names: the answer is that of `one`, or a map of all.
pub(crate) fn by_name<'a>(one: Option<&'a str>, answer: &'a Value) -> Vec<(&'a str, &'a Value)> {
    let named = |(name, statistics): &'a (Value, Value)| (name.as_str().unwrap_or_default(), statistics);
    match one {
        Some(name) => vec![(name, answer)],
        None => pairs(Some(answer)).iter().map(named).collect(),
    }
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
    let TakeArguments { tube, timeout, count, limit, ack, lease, session, client } = arguments;
    let session = &Session::open_joined(client, session)?;
    let shows_session = client.json && !ack && lease.is_none();
    let identity = shows_session.then(|| session.identify()).transpose()?;
    let lease = lease.map(|lease| Value::map([("lease", seconds(lease))]));
    // The limit is that of one call.
    let (rounds, take, acknowledge) = match limit {
        Some(_) => (1, "take_many", "ack_many"),
        None => (*count, "take", "ack"),
    };
    for round in 0..rounds {
        let given = limit.map(Value::from).into_iter().chain([seconds(*timeout)]).chain(lease.clone());
        let values = session.call_waiting(&method(tube, take), given.collect(), *timeout)?;
        let tasks = match limit {
            Some(_) => Task::many_of(&values)?,
            None => Task::of(&values)?.into_iter().collect(),
        };
        output::tasks(&tasks, client.json, identity.as_deref())?;
        let Some(first) = tasks.first() else {
            if round > 0 {
                break;
            }
            say_why_nothing(session, tube);
            return Ok(Outcome::NoTask);
        };
        if *ack {
            let ids = limit.map(|_| Value::array(tasks.iter().map(|task| task.id)));
            session.call(&method(tube, acknowledge), vec![ids.unwrap_or(first.id.into())])?;
        }
    }
    Ok(Outcome::Done)
}

/// Says that no task could be taken, and what the tube holds instead.
fn say_why_nothing(session: &Session, tube: &str) {
    let counts = session.call("queue.statistics", vec![tube.into()]).unwrap_or_default();
    let count = |state| counts.first().and_then(|counts| inside(counts, &["tasks", state])?.as_u64());
    let others = ["taken", "delayed", "buried"].into_iter();
    let others = others.filter_map(|state| Some((count(state).filter(|count| *count > 0)?, state)));
    let others: Vec<_> = others.map(|(count, state)| format!("{count} {state}")).collect();
    let others = if others.is_empty() { String::new() } else { format!("; {}", others.join(", ")) };
    eprintln!("lycosa: no task is ready in tube \"{tube}\"{others}");
}

/// Tasks by their ids, or by the tokens of their leases.
type Named<'a> = (&'a [u64], &'a [String]);

/// A tube whose methods a command calls, with these options.
pub(crate) struct TubeCalls<'a> {
    pub(crate) session: &'a Session,
    pub(crate) client: &'a ClientArguments,
    pub(crate) tube: &'a str,
    pub(crate) options: Option<Value>,
}

impl TubeCalls<'_> {
    /// Calls a method with a subject, and the options behind it.
    pub(crate) fn call(&self, name: &str, subject: Value) -> Values {
        let arguments = std::iter::once(subject).chain(self.options.clone()).collect();
        self.session.call(&method(self.tube, name), arguments)
    }

    /// Calls a method for many tasks at once.
    pub(crate) fn call_many(&self, name: &str, ids: &[u64]) -> Values {
        self.call(name, Value::array(ids.iter().copied()))
    }

    /// Calls a method for each of the ids, or tokens of leases; goes on after one that is refused.
    fn for_each<T: Clone + Into<Value> + Display>(&self, name: &str, ids: &[T]) -> anyhow::Result<Outcome> {
        let mut outcome = Outcome::Done;
        for id in ids {
            match self.call(name, id.clone().into()) {
                Ok(values) => output::tasks(Task::of(&values)?.as_slice(), self.client.json, None)?,
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
    pub(crate) fn for_each_named(&self, name: &str, tasks: Named<'_>) -> anyhow::Result<Outcome> {
        match tasks {
            (ids, []) => self.for_each(name, ids),
            (_, tokens) => self.for_each(name, tokens),
        }
    }

    /// The same, where several ids are one batch, unless the server runs the Lua module, which has no batches.
    pub(crate) fn for_all_named(&self, name: &str, tasks: Named<'_>) -> anyhow::Result<Outcome> {
        let (ids @ [_, _, ..], _) = tasks else { return self.for_each_named(name, tasks) };
        match self.call_many(&format!("{name}_many"), ids) {
            Ok(values) => {
                output::tasks(&Task::many_of(&values)?, self.client.json, None)?;
                Ok(Outcome::Done)
            }
            Err(error) if error.kind() == Some(Kind::NoSuchProcedure) => self.for_each_named(name, tasks),
            Err(Error::Server { message, .. }) => {
                eprintln!("lycosa: {}: {message}", self.tube);
                Ok(Outcome::Refused)
            }
            Err(error) => Err(error.into()),
        }
    }
}

pub(crate) fn ack(arguments: &AckArguments) -> anyhow::Result<Outcome> {
    let AckArguments { tube, tasks: NamedTasks { ids, token, session, client } } = arguments;
    let session = &Session::open_joined(client, session)?;
    TubeCalls { session, client, tube, options: None }.for_all_named("ack", (ids, token))
}

pub(crate) fn touch(arguments: &TouchArguments) -> anyhow::Result<Outcome> {
    let TouchArguments { tube, seconds: time, tasks: NamedTasks { ids, token, session, client } } = arguments;
    let session = &Session::open_joined(client, session)?;
    let calls = TubeCalls { session, client, tube, options: Some(seconds(*time)) };
    calls.for_each_named("touch", (ids, token))
}

/// How long `lycosa ping` waits for a greeting before it asks whether the server is starting.
const PING_PATIENCE: Duration = Duration::from_millis(200);

pub(crate) fn ping(client: &ClientArguments) -> anyhow::Result<Outcome> {
    // A member without a leader answers no log-in, so it is asked without one first.
    let mut elapsed = pinged(&ClientArguments { user: None, ..client.clone() })?;
    if client.user.is_some() {
        elapsed = pinged(client)?;
    }
    let object = json!({ "address": client.address, "microseconds": elapsed.as_micros() as u64 });
    output::said(client.json, object, format_args!("{} answers after {elapsed:.0?}", client.address))
}

/// How long the answer to a PING takes.
fn pinged(client: &ClientArguments) -> anyhow::Result<Duration> {
    let session = Session::connect(&connect_options(client)?.start_patience(PING_PATIENCE))?;
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
