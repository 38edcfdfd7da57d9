//! `lycosa work`: takes tasks, runs a command for each, and settles them by its exit code.
//!
//! Attempts are counted here, per task id, as long as the worker runs; a task that goes to another worker begins anew
//! there. Delays between attempts need a tube with ttl; in other tubes a task that failed is ready again at once.
//!
//! A command runs in a process group of its own, so that Ctrl-C reaches the worker only: it takes no more tasks, lets the
//! running commands finish and settles their tasks. A second Ctrl-C ends it at once; the server releases what it held.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::process::{ExitStatus, Stdio};
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;
use lycosa_client::{Client, Error, Task, Tube};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::{JoinSet, LocalSet};

use crate::arguments::WorkArguments;
use crate::outcome::Outcome;
use crate::session::{connect_options, explain_call, explain_connect, runtime, seconds};
use crate::{output, payload};

/// How long one `take` waits; a worker that is told to end notices at once all the same.
const TAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// Pause after a request that failed for another reason than the connection.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The greatest power of two by which the delay grows.
const MAX_DOUBLINGS: u32 = 30;

/// What to do with a task that failed.
#[derive(Debug, Clone, Copy)]
struct Policy {
    max_attempts: u32,
    retry_delay: Duration,
    max_retry_delay: Duration,
}

impl Policy {
    /// How long a task waits after it has failed `attempts` times; `None` once it is to be buried.
    fn delay_after(self, attempts: u32) -> Option<Duration> {
        if attempts >= self.max_attempts {
            return None;
        }
        let factor = 1u32 << attempts.saturating_sub(1).min(MAX_DOUBLINGS);
        Some(self.retry_delay.saturating_mul(factor).min(self.max_retry_delay))
    }
}

struct Worker {
    tube: Tube,
    command: Vec<String>,
    policy: Policy,
    touch_interval: Duration,
    until_empty: Option<Duration>,
    json: bool,
    attempts: RefCell<HashMap<u64, u32>>,
    done: Cell<u64>,
    failed: Cell<u64>,
    buried: Cell<u64>,
    running: Cell<u32>,
}

pub(crate) fn run(arguments: WorkArguments) -> anyhow::Result<Outcome> {
    let options = connect_options(&arguments.client)?;
    let policy = Policy {
        max_attempts: arguments.max_attempts,
        retry_delay: seconds("retry-delay", arguments.retry_delay)?,
        max_retry_delay: seconds("max-retry-delay", arguments.max_retry_delay)?,
    };
    let touch_interval = seconds("touch-interval", arguments.touch_interval)?;
    anyhow::ensure!(!touch_interval.is_zero(), "--touch-interval 0: expected seconds, more than 0");
    let until_empty = arguments.until_empty.map(|wait| seconds("until-empty", wait)).transpose()?;
    let local = LocalSet::new();
    local.block_on(&runtime()?, async {
        let client = Client::connect(options).await.map_err(explain_connect)?;
        let worker = Rc::new(Worker {
            tube: client.queue().tube(&arguments.tube),
            command: arguments.command,
            policy,
            touch_interval,
            until_empty,
            json: arguments.client.json,
            attempts: RefCell::default(),
            done: Cell::new(0),
            failed: Cell::new(0),
            buried: Cell::new(0),
            running: Cell::new(0),
        });
        work(&worker, arguments.jobs).await
    })
}

/// Runs `jobs` loops until they end or Ctrl-C is pressed.
async fn work(worker: &Rc<Worker>, jobs: u16) -> anyhow::Result<Outcome> {
    let (stop, stopped) = watch::channel(false);
    let mut loops = JoinSet::new();
    for _ in 0..jobs {
        loops.spawn_local(take_and_run(worker.clone(), stopped.clone()));
    }
    let mut failure = None;
    loop {
        tokio::select! {
            ended = loops.join_next() => match ended {
                None => break,
                Some(Ok(Ok(()))) => {}
                Some(Ok(Err(error))) => {
                    failure.get_or_insert(error);
                    let _ = stop.send(true);
                }
                Some(Err(error)) => return Err(error.into()),
            },
            signal = tokio::signal::ctrl_c() => {
                signal?;
                if *stopped.borrow() {
                    anyhow::bail!("ended at once; the server releases {} tasks", worker.running.get());
                }
                eprintln!("lycosa: finishing {} running commands; Ctrl-C again ends at once", worker.running.get());
                let _ = stop.send(true);
            }
        }
    }
    if let Some(error) = failure {
        return Err(error);
    }
    let (done, failed, buried) = (worker.done.get(), worker.failed.get(), worker.buried.get());
    if worker.json {
        output::line(json!({ "done": done, "failed": failed, "buried": buried }))?;
    } else {
        eprintln!("lycosa: {done} tasks done, {failed} attempts failed, {buried} tasks buried");
    }
    Ok(Outcome::Done)
}

/// Takes one task after the other until told to stop.
async fn take_and_run(worker: Rc<Worker>, mut stopped: watch::Receiver<bool>) -> anyhow::Result<()> {
    while !*stopped.borrow() {
        let wait = worker.until_empty.unwrap_or(TAKE_TIMEOUT);
        let taken = tokio::select! {
            taken = worker.tube.take(Some(wait)) => taken,
            _ = stopped.changed() => return Ok(()),
        };
        match taken {
            Ok(Some(task)) => worker.handle(&task).await?,
            Ok(None) if worker.until_empty.is_some() => return Ok(()),
            Ok(None) => {}
            Err(error) if error.is_disconnected() => {
                eprintln!("lycosa: {error}; connecting again");
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            Err(Error::Timeout(_) | Error::Unavailable) => tokio::time::sleep(RETRY_PAUSE).await,
            Err(error) => return Err(explain_call(error).into()),
        }
    }
    Ok(())
}

impl Worker {
    /// Runs the command for a task and settles the task.
    async fn handle(&self, task: &Task) -> anyhow::Result<()> {
        let attempt = self.attempts.borrow().get(&task.id).copied().unwrap_or(0) + 1;
        self.running.set(self.running.get() + 1);
        let status = self.execute(task, attempt).await;
        self.running.set(self.running.get() - 1);
        let status = status?;
        let (settled, what) = if status.success() {
            self.attempts.borrow_mut().remove(&task.id);
            self.done.set(self.done.get() + 1);
            (task.ack().await, "done")
        } else {
            self.failed.set(self.failed.get() + 1);
            self.attempts.borrow_mut().insert(task.id, attempt);
            match self.policy.delay_after(attempt) {
                Some(delay) => (task.release(Some(delay)).await, "released"),
                None => {
                    self.attempts.borrow_mut().remove(&task.id);
                    self.buried.set(self.buried.get() + 1);
                    (task.bury().await, "buried")
                }
            }
        };
        match settled {
            Ok(()) => self.tell(task, attempt, status, what)?,
            Err(error) if error.is_not_taken() => {
                eprintln!(
                    "lycosa: task {} is not held any more (ttr over, or deleted); its command ran",
                    task.id
                );
            }
            Err(error) => eprintln!("lycosa: task {} could not be settled: {error}", task.id),
        }
        Ok(())
    }

    fn tell(&self, task: &Task, attempt: u32, status: ExitStatus, what: &str) -> std::io::Result<()> {
        if self.json {
            let exit = status.code();
            return output::line(json!({ "id": task.id, "attempt": attempt, "exit": exit, "settled": what }));
        }
        if what != "done" {
            eprintln!("lycosa: task {} {what} after attempt {attempt}: {status}", task.id);
        }
        Ok(())
    }

    /// Runs the command once; touches the task as long as it runs.
    async fn execute(&self, task: &Task, attempt: u32) -> anyhow::Result<ExitStatus> {
        let mut child = Command::new(&self.command[0])
            .args(&self.command[1..])
            .env("LYCOSA_TASK_ID", task.id.to_string())
            .env("LYCOSA_TUBE", self.tube.name())
            .env("LYCOSA_ATTEMPT", attempt.to_string())
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot run {:?}", self.command[0]))?;
        let feeding = feed(&mut child, task);
        let status = async {
            feeding.await;
            child.wait().await
        };
        tokio::pin!(status);
        let mut touches = true;
        let mut ticks = tokio::time::interval(self.touch_interval);
        ticks.tick().await;
        loop {
            tokio::select! {
                status = &mut status => return status.context("cannot wait for the command"),
                _ = ticks.tick(), if touches => touches = self.touch(task).await,
            }
        }
    }

    /// Prolongs a task; false if that is of no use in this tube or for this task.
    async fn touch(&self, task: &Task) -> bool {
        match task.touch(self.touch_interval).await {
            Ok(()) => true,
            Err(Error::Server { message, .. }) => {
                if !message.contains("does not support touch") {
                    eprintln!("lycosa: task {} cannot be touched: {message}", task.id);
                }
                false
            }
            Err(_) => true,
        }
    }
}

/// Writes the payload to the command's standard input. A command that does not read it is its own affair.
fn feed(child: &mut Child, task: &Task) -> impl Future<Output = ()> + use<> {
    let stdin = child.stdin.take();
    let mut bytes = Vec::new();
    match task.data.value() {
        Ok(value) => payload::write(&mut bytes, &value).expect("a Vec takes everything"),
        Err(_) => bytes.extend_from_slice(task.data.encoded()),
    }
    async move {
        if let Some(mut stdin) = stdin {
            let _ = stdin.write_all(&bytes).await;
            let _ = stdin.shutdown().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_a_limit_and_end_in_burial() {
        let policy = Policy {
            max_attempts: 5,
            retry_delay: Duration::from_secs(1),
            max_retry_delay: Duration::from_secs(6),
        };
        let delays: Vec<_> = (1..=5).map(|n| policy.delay_after(n).map(|delay| delay.as_secs())).collect();
        assert_eq!(delays, [Some(1), Some(2), Some(4), Some(6), None]);
        let endless = Policy { max_attempts: u32::MAX, ..policy };
        assert_eq!(endless.delay_after(1_000_000), Some(Duration::from_secs(6)));
    }
}
