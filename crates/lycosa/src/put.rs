//! `lycosa put`: payloads from arguments, files and lines become tasks.
//!
//! Many puts are under way at a time, over one connection, which the server serves in order. At the first task that is
//! refused nothing more is read; every put that is under way is waited for, so that it is known which tasks are stored.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::ops::RangeInclusive;

use anyhow::Context;
use lycosa_client::{Error, Kind, TubeType, Value};

use crate::arguments::PutArguments;
use crate::commands::{bytes_bar, create_tube, flag, options};
use crate::line_tally::Tally;
use crate::outcome::{Outcome, Usage};
use crate::output::{self, Task};
use crate::session::{Session, method};
use crate::values::{counted, seconds};
use crate::{payload, tube_options};

/// Tasks whose puts are under way at a time.
const PUTS_IN_FLIGHT: usize = 512;

/// Batches that are under way at least, so that the server does not wait for the next one.
const BATCHES_IN_FLIGHT: usize = 4;

/// Bytes of payloads at which a batch is complete, whichever size the user has asked for.
const BATCH_BYTES: usize = 4 << 20;

/// Lines between two looks at the progress bar.
const PROGRESS_STEP: u64 = 256;

pub(crate) fn run(arguments: &PutArguments) -> anyhow::Result<Outcome> {
    let session = Session::open(&arguments.client)?;
    if arguments.create {
        tube_options::check_name(&arguments.tube)?;
        let lenient = options([("if_not_exists", flag(true))]);
        create_tube(&session, &arguments.tube, TubeType::default().name(), lenient)?;
    }
    let options = options_of(arguments);
    tube_options::check(&session, &arguments.tube, &options)?;
    let mut putter = Putter {
        session: &session,
        arguments,
        options,
        batch: Vec::new(),
        batch_bytes: 0,
        pending: VecDeque::new(),
        tally: Tally::default(),
        unwritten: None,
    };
    let paths = arguments.file.iter().map(|path| path.display().to_string());
    let mut input = paths.collect::<Vec<_>>().join(" ");
    if arguments.lines
        && let Some(data) = arguments.data.first()
    {
        anyhow::bail!(Usage(format!(
            "--lines splits files and standard input, and \"{data}\" is a payload: give a file with -f FILE, or leave --lines out"
        )));
    }
    if !arguments.data.is_empty() || !arguments.file.is_empty() {
        for data in &arguments.data {
            putter.add(data.clone().into_bytes())?;
        }
        for path in &arguments.file {
            let name = || format!("cannot read {}", path.display());
            if arguments.lines {
                let file = File::open(path).with_context(name)?;
                let size = file.metadata().map(|metadata| metadata.len()).ok();
                putter.add_lines(BufReader::new(file), size).with_context(name)?;
            } else {
                putter.add(fs::read(path).with_context(name)?)?;
            }
        }
    } else {
        prompt(if arguments.lines { "tasks, one a line" } else { "the payload" });
        input = "INPUT".to_owned();
        if arguments.lines {
            putter.add_lines(io::stdin().lock(), None)?;
        } else {
            let mut content = Vec::new();
            io::stdin().lock().read_to_end(&mut content)?;
            anyhow::ensure!(
                !content.is_empty(),
                "nothing came on standard input, so there is no task to put; for a task with an empty payload: lycosa put {} \"\"",
                arguments.tube
            );
            putter.add(content)?;
        }
    }
    putter.finish(&input)
}

/// The options of each put.
fn options_of(arguments: &PutArguments) -> Value {
    options([
        ("pri", arguments.pri.map(Value::from)),
        ("delay", arguments.delay.map(seconds)),
        ("ttl", arguments.ttl.map(seconds)),
        ("ttr", arguments.ttr.map(seconds)),
        ("utube", arguments.utube.as_deref().map(Value::from)),
        ("timeout", arguments.timeout.map(seconds)),
        ("replicas", arguments.replicas.map(Value::from)),
        ("headers", (!arguments.headers.is_empty()).then(|| Value::map(arguments.headers.iter().cloned()))),
    ])
}

/// Whether the server refuses any task at the moment.
fn takes_no_tasks(kind: Kind) -> bool {
    matches!(kind, Kind::Disk | Kind::MemoryLimit | Kind::ReadOnly | Kind::ReplicasMissing | Kind::Loading)
}

/// Says on a terminal that it is being read from.
pub(crate) fn prompt(what: &str) {
    if io::stdin().is_terminal() {
        eprintln!("lycosa: reading {what} from the terminal; Ctrl-D ends the input, Ctrl-C cancels");
    }
}

/// Puts tasks with many calls under way, and prints the ids in the order of the payloads.
struct Putter<'a> {
    session: &'a Session,
    arguments: &'a PutArguments,
    options: Value,
    /// The tasks of the next call, and their bytes.
    batch: Vec<Value>,
    batch_bytes: usize,
    pending: VecDeque<PendingPut>,
    tally: Tally,
    /// Why ids could not be printed. The tasks are stored all the same.
    unwritten: Option<io::Error>,
}

/// A call that is under way.
struct PendingPut {
    /// Numbers of its tasks, from 1.
    tasks: RangeInclusive<u64>,
    call: tokio::task::JoinHandle<Result<Vec<Value>, Error>>,
}

impl Putter<'_> {
    /// Whether a task was refused, so that no more are read.
    fn has_failed(&self) -> bool {
        !self.tally.is_clean()
    }

    fn add(&mut self, bytes: Vec<u8>) -> anyhow::Result<()> {
        if self.has_failed() {
            return Ok(());
        }
        let length = bytes.len();
        let payload = match payload::from_bytes(bytes, self.arguments.payload) {
            Ok(payload) => payload,
            Err(error) => {
                // What stands before it in the batch is put.
                self.send_batch()?;
                self.tally.last += 1;
                self.tally.refused(self.tally.last..=self.tally.last, format!("{error:#}"));
                return Ok(());
            }
        };
        self.batch.push(payload);
        self.batch_bytes += length;
        self.tally.last += 1;
        if self.batch.len() == self.arguments.batch as usize || self.batch_bytes >= BATCH_BYTES {
            self.send_batch()?;
        }
        Ok(())
    }

    fn send_batch(&mut self) -> anyhow::Result<()> {
        let mut batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        let tasks = self.tally.last - batch.len() as u64 + 1..=self.tally.last;
        if batch.is_empty() {
            return Ok(());
        }
        let (name, payload) = match self.arguments.batch {
            1 => ("put", batch.remove(0)),
            _ => ("put_many", Value::Array(batch)),
        };
        let (runtime, connection) = self.session.parts();
        let (connection, name) = (connection.clone(), method(&self.arguments.tube, name));
        let arguments = vec![payload, self.options.clone()];
        let call = runtime.spawn(async move { connection.call(&name, arguments).await?.values() });
        self.pending.push_back(PendingPut { tasks, call });
        let limit = match self.arguments.timeout {
            Some(_) => 1,
            None => (PUTS_IN_FLIGHT / self.arguments.batch as usize).max(BATCHES_IN_FLIGHT),
        };
        while self.pending.len() >= limit {
            self.finish_oldest()?;
        }
        Ok(())
    }

    fn add_lines(&mut self, mut input: impl BufRead, size: Option<u64>) -> anyhow::Result<()> {
        let bar = bytes_bar(size);
        let mut line = Vec::new();
        let mut bytes = 0;
        while !self.has_failed() {
            line.clear();
            let read = input.read_until(b'\n', &mut line)?;
            if read == 0 {
                break;
            }
            // Programs that print a list, such as `redis-cli --raw`, print an empty line if it is empty.
            if bytes == 0 && matches!(&line[..], b"\n" | b"\r\n") && input.fill_buf()?.is_empty() {
                let tube = &self.arguments.tube;
                eprintln!(
                    "lycosa: there is one line, and it is empty: that is no task. For a task with an empty payload: lycosa put {tube} \"\""
                );
                break;
            }
            bytes += read as u64;
            let content = line.strip_suffix(b"\n").unwrap_or(&line);
            let content = content.strip_suffix(b"\r").unwrap_or(content);
            self.add(content.to_vec())?;
            if self.tally.last.is_multiple_of(PROGRESS_STEP) {
                bar.set_position(bytes);
                bar.set_message(format!("{} tasks", self.tally.last));
            }
        }
        bar.finish_and_clear();
        Ok(())
    }

    fn finish_oldest(&mut self) -> anyhow::Result<()> {
        let Some(PendingPut { tasks, call }) = self.pending.pop_front() else { return Ok(()) };
        let (runtime, _) = self.session.parts();
        let values = match runtime.block_on(call).context("a put was interrupted")? {
            Ok(values) => values,
            Err(error @ Error::Server { .. }) if !error.is_outcome_unknown() => {
                let is_of_server = error.kind().is_some_and(takes_no_tasks);
                // Of many puts in the air the first is explained.
                let reason = match is_of_server && self.has_failed() {
                    true => error,
                    false => self.session.explain(&method(&self.arguments.tube, "put"), error),
                };
                match is_of_server {
                    true => self.tally.refused_for_now(tasks, reason.to_string()),
                    false => self.tally.refused(tasks, reason.to_string()),
                }
                return Ok(());
            }
            Err(error) => {
                // Of many puts in the air one is explained.
                let error = if self.has_failed() { error } else { self.session.explain("put", error) };
                self.tally.unknown(tasks, error.to_string());
                return Ok(());
            }
        };
        let put = match self.arguments.batch {
            1 => Task::of(&values)?.into_iter().collect(),
            _ => Task::many_of(&values)?,
        };
        if put.is_empty() {
            let reason = "the tube is full, or the queue is not running (`lycosa stats`: line `role`)";
            self.tally.refused_for_now(tasks, reason);
            return Ok(());
        }
        self.tally.stored(tasks);
        let (json, quiet) = (self.arguments.client.json, self.is_quiet());
        for task in put.iter().filter(|_| !quiet) {
            if self.unwritten.is_none() {
                let written = if json { output::line(task.json(None)) } else { output::line(task.id) };
                self.unwritten = written.err();
            }
        }
        Ok(())
    }

    /// Ids of lines are counted, not printed, unless asked for with `--json`.
    fn is_quiet(&self) -> bool {
        self.arguments.lines && !self.arguments.client.json
    }

    /// Sends the rest, waits for all answers and prints the number of stored, refused and doubtful tasks.
    fn finish(mut self, input: &str) -> anyhow::Result<Outcome> {
        let PutArguments { tube, file, lines, client, .. } = self.arguments;
        self.send_batch()?;
        while !self.pending.is_empty() {
            self.finish_oldest()?;
        }
        let stored = counted(self.tally.stored_count(), "task");
        if self.is_quiet() && self.unwritten.is_none() {
            self.unwritten = output::line(format_args!("put {stored}")).err();
        }
        let unit = if *lines { "line" } else { "task" };
        let go_on = |line| match file.len() {
            2.. => format!("cat {input} | tail -n +{line} | lycosa put {tube} --lines"),
            _ => format!("tail -n +{line} {input} | lycosa put {tube} --lines"),
        };
        let Some(error) = self.unwritten else { return Ok(self.tally.report(unit, go_on, client.json)?) };
        // A reader that has had enough of the ids is no fault.
        if error.kind() != io::ErrorKind::BrokenPipe {
            eprintln!("lycosa: {stored} stored all the same");
        }
        if !self.tally.is_clean() {
            self.tally.report(unit, go_on, false)?;
        }
        Err(error.into())
    }
}
