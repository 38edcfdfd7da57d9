//! `lycosa work`: a [`Worker`] whose handler runs a command.
//!
//! Each command runs in a process group of its own, so that Ctrl-C and a supervisor's SIGTERM reach the worker only.
//! The first of these signals lets running commands end and settles their tasks; the second kills the commands'
//! groups and releases their tasks. Should the worker itself be killed, the system kills the commands, as each
//! [launcher](launch) has asked for, and the [`guard`] kills the rest of their groups.
//!
//! Standard output belongs to the commands, or with `--json` to the worker; then the commands' output goes to standard
//! error. Standard error is shared: it passes through the worker, which keeps the end of it as the reason of a failure.

mod command;
pub(crate) mod guard;
pub(crate) mod launch;

use std::collections::HashMap;
use std::io;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use lycosa_client::worker::{Event, Job, Settled, StopHandle, Summary};
use lycosa_client::{Client, Worker};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use self::command::Commands;
use self::guard::Guard;
use crate::arguments::WorkArguments;
use crate::commands::options as options_of;
use crate::outcome::Outcome;
use crate::session::{Session, connect_options, method, runtime};
use crate::values::{counted, pairs, seconds};
use crate::{explain, output, tube_options};

/// What the handlers and the observer of events share.
#[derive(Debug, Default)]
struct State {
    running: AtomicU32,
    /// How the commands of tasks that are not settled yet have ended.
    exits: Mutex<HashMap<u64, ExitStatus>>,
}

impl State {
    fn exits(&self) -> MutexGuard<'_, HashMap<u64, ExitStatus>> {
        self.exits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a running command, however it ends.
struct Counted(Arc<State>);

impl Counted {
    fn new(state: &Arc<State>) -> Self {
        state.running.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(state))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Defaults of the options of the same names, which stand in their help.
const RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(300);
const TOUCH_INTERVAL: Duration = Duration::from_secs(10);

pub(crate) fn run(arguments: WorkArguments) -> anyhow::Result<Outcome> {
    let options = connect_options(&arguments.client)?;
    // Other processes of this account, the commands among them, cannot read this one's memory and environment then. A
    // system that refuses keeps what it had.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let WorkArguments { retry_delay, max_retry_delay, touch_interval, timeout, until_empty, .. } = arguments;
    let given = options_of([
        ("retry_delay", retry_delay.map(seconds)),
        ("max_retry_delay", max_retry_delay.map(seconds)),
        ("touch_interval", touch_interval.map(seconds)),
    ]);
    if !pairs(Some(&given)).is_empty() {
        tube_options::check(&Session::open(&arguments.client)?, &arguments.tube, &given)?;
    }
    let json = arguments.client.json;
    let tube = arguments.tube;
    runtime()?.block_on(async {
        let client = Client::connect(options).await.map_err(explain::connect)?;
        let state = Arc::new(State::default());
        let observed = Arc::clone(&state);
        let mut worker = Worker::new(client.queue().tube(&tube))
            .jobs(arguments.jobs)
            .max_attempts(arguments.max_attempts.into())
            .retry_delay(retry_delay.unwrap_or(RETRY_DELAY), max_retry_delay.unwrap_or(MAX_RETRY_DELAY))
            .touch_interval(touch_interval.unwrap_or(TOUCH_INTERVAL))
            .on_event(move |event| observe(event, &observed, json));
        if let Some(wait) = until_empty {
            worker = worker.until_empty(wait);
        }
        let stop = worker.stop_handle();
        let commands = Commands {
            command: arguments.command,
            tube: tube.clone(),
            timeout,
            stdout_is_ours: json,
            guard: Guard::start()?,
            stop: stop.clone(),
            cannot_run: OnceLock::new(),
        };
        let commands = Arc::new(commands);
        let used = Arc::clone(&commands);
        let counting = Arc::clone(&state);
        let working = worker.run(move |job| {
            let (commands, counted) = (Arc::clone(&commands), Counted::new(&counting));
            async move { commands.handle(&job, &counted.0).await }
        });
        let summary = tokio::select! {
            summary = working => match summary {
                Ok(summary) => summary,
                Err(error) => {
                    let take = method(&tube, "take");
                    return Err(match client.connection().await {
                        Ok(connection) => explain::call(&connection, &take, error).await.into(),
                        Err(_) => error.into(),
                    });
                }
            },
            error = obey_signals(&stop, &state) => return Err(error.into()),
        };
        let outcome = say(summary, json)?;
        match used.cannot_run.get() {
            Some(reason) => anyhow::bail!("{reason}"),
            None => Ok(outcome),
        }
    })
}

/// The first signal lets running commands end, the second kills them. Returns only if signals cannot be received.
async fn obey_signals(stop: &StopHandle, state: &State) -> io::Error {
    let receive = || Ok((signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?));
    let (mut interrupt, mut terminate) = match receive() {
        Ok(signals) => signals,
        Err(error) => return error,
    };
    for count in 1_u32.. {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        let running = state.running.load(Ordering::Relaxed);
        let commands = counted(running.into(), "running command");
        match (count, running) {
            (1, 0) => eprintln!("lycosa: ending: no new tasks are taken, and no command is running"),
            (1, _) => eprintln!(
                "lycosa: ending: no new tasks are taken; waiting for {commands} to end (a second signal kills them)"
            ),
            (_, _) => eprintln!("lycosa: killing {commands} and releasing their tasks"),
        }
        if count == 1 {
            stop.finish();
        } else {
            stop.abort();
        }
    }
    io::Error::other("the worker receives no more signals, so Ctrl-C and SIGTERM could not end it")
}

/// Prints the outcome of a task: as JSON for programs, as a line on standard error if a person has to know.
fn observe(event: &Event<'_>, state: &State, as_json: bool) {
    let (job, settled, reason) = match event {
        Event::Settled { job, settled, failure } => {
            (*job, word(*settled), failure.map(|failure| failure.reason().to_owned()))
        }
        Event::Lost { job } => (*job, "lost", None),
        Event::Unsettled { job, error } => (*job, "lost", Some(error.to_string())),
        Event::Trouble { error } => return eprintln!("lycosa: {error}; trying again"),
        _ => return,
    };
    let exit = state.exits().remove(&job.task.id);
    if as_json {
        let (id, exit) = (job.task.id, exit.and_then(|exit| exit.code()));
        // A reader that closed the pipe does not end the work.
        let _ = output::line(json!({
            "id": id, "attempt": job.attempt, "exit": exit, "settled": settled, "reason": reason,
        }));
        return;
    }
    match settled {
        "done" => {}
        "lost" => eprintln!("lycosa: {}", explain_loss(job, reason.as_deref())),
        settled => {
            let reason =
                reason.as_deref().and_then(|reason| reason.lines().next()).unwrap_or("given back unfinished");
            eprintln!("lycosa: task {} {settled} after attempt {}: {reason}", job.task.id, job.attempt);
        }
    }
}

fn word(settled: Settled) -> &'static str {
    match settled {
        Settled::Done => "done",
        Settled::Released(_) | Settled::GivenBack => "released",
        Settled::Buried => "buried",
    }
}

fn explain_loss(job: &Job, error: Option<&str>) -> String {
    let id = job.task.id;
    match error {
        Some(error) => format!("task {id} could not be settled: {error}; the server releases it"),
        None => format!(
            "task {id} is not held any more: it was deleted or buried, or its ttr or the session ended; \
             its command was ended if it still ran"
        ),
    }
}

fn say(summary: Summary, as_json: bool) -> anyhow::Result<Outcome> {
    let Summary { done, failed, buried, lost, given_back } = summary;
    if as_json {
        output::line(json!({
            "done": done, "failed": failed, "buried": buried, "lost": lost, "given_back": given_back,
        }))?;
    } else {
        let (done, failed, buried) =
            (counted(done, "task"), counted(failed, "attempt"), counted(buried, "task"));
        let mut text = format!("{done} done, {failed} failed, {buried} buried");
        for (count, what) in [(lost, "lost"), (given_back, "given back unfinished")] {
            if count > 0 {
                text += &format!(", {} {what}", counted(count, "task"));
            }
        }
        eprintln!("lycosa: {text}");
    }
    Ok(Outcome::Done)
}
