//! The loops of a worker: one for each job.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio::time::Instant;

use super::{
    Event, Failure, Job, MAX_REASON, MIN_TOUCH_INTERVAL, Settled, Stop, Summary, TAKE_TIMEOUT, Worker,
};
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::task::{Task, TaskState};

/// Pause after a request that failed for a reason that passes.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// How long a task is settled anew while no server takes the word: the connection broke, or the master is changing.
const SETTLE_LIMIT: Duration = Duration::from_secs(600);
/// How long the tasks of dropped handlers are being released, all of them together.
const ABORT_LIMIT: Duration = Duration::from_secs(5);
/// The first touch of a task whose ttr is not known.
const FIRST_TOUCH: Duration = Duration::from_millis(250);
/// The shortest time between two takes that find nothing.
const MIN_WAIT: Duration = Duration::from_millis(100);
/// Failed tasks that are remembered; beyond it those whose delay is long over are forgotten.
const MAX_RETRIES: usize = 100_000;

/// A task that this worker has released after a failure.
#[derive(Debug, Clone, Copy)]
struct Retry {
    attempts: u64,
    /// When its delay is over.
    due: Instant,
    /// The server has said since that the task is ready.
    was_ready: bool,
}

/// What the loops have in common.
struct Shared<F> {
    worker: Worker,
    handler: F,
    summary: Mutex<Summary>,
    retries: Mutex<HashMap<u64, Retry>>,
    running: AtomicUsize,
    turns: Turns,
}

/// Of each task that jobs have: a flag for each job, set when a later job has taken the task again.
type Turns = Mutex<HashMap<u64, Vec<Arc<AtomicBool>>>>;

/// The time between a take and the settlement, of one job.
struct JobTurn<'a> {
    turns: &'a Turns,
    id: u64,
    is_superseded: Arc<AtomicBool>,
}

impl<'a> JobTurn<'a> {
    /// A job has taken the task `id`. Earlier jobs of the task, which are being settled, are superseded.
    fn new(turns: &'a Turns, id: u64) -> Self {
        let is_superseded = Arc::new(AtomicBool::new(false));
        let mut all = lock(turns);
        let jobs = all.entry(id).or_default();
        jobs.iter().for_each(|earlier| earlier.store(true, Ordering::Relaxed));
        jobs.push(Arc::clone(&is_superseded));
        drop(all);
        Self { turns, id, is_superseded }
    }

    /// Whether a later job of this worker has taken the task: an acknowledgement of this job, with its answer lost, has not ended it.
    fn is_superseded(&self) -> bool {
        self.is_superseded.load(Ordering::Relaxed)
    }
}

impl Drop for JobTurn<'_> {
    fn drop(&mut self) {
        let mut all = lock(self.turns);
        if let Some(jobs) = all.get_mut(&self.id) {
            jobs.retain(|other| !Arc::ptr_eq(other, &self.is_superseded));
            if jobs.is_empty() {
                all.remove(&self.id);
            }
        }
    }
}

/// A handler that ends when its caller stops waiting.
struct Running(JoinHandle<Result<(), Failure>>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// How a handler ended.
enum End {
    Ok,
    Failed(Failure),
    /// The session does not hold the task any more.
    Lost,
    Aborted,
}

impl Worker {
    /// Works until it is stopped, or until the tube is empty if [`until_empty`](Self::until_empty) says so. If the
    /// future is dropped, handlers are dropped, and the server releases their tasks when the client closes.
    ///
    /// # Errors
    /// What no new attempt mends: there is no such tube, the user may not take from it. Running handlers end before.
    pub async fn run<F, W>(self, handler: F) -> Result<Summary>
    where
        F: Fn(Job) -> W + Send + Sync + 'static,
        W: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let stop = self.stop_handle();
        let jobs = self.jobs;
        let shared = Arc::new(Shared {
            worker: self,
            handler,
            summary: Mutex::default(),
            retries: Mutex::default(),
            running: AtomicUsize::new(0),
            turns: Turns::default(),
        });
        let mut loops = JoinSet::new();
        for _ in 0..jobs {
            loops.spawn(take_and_run(Arc::clone(&shared)));
        }
        let mut failure = None;
        while let Some(ended) = loops.join_next().await {
            let ended = ended.unwrap_or_else(|error| Err(Error::protocol(format!("a job ended: {error}"))));
            if let Err(error) = ended {
                failure.get_or_insert(error);
                stop.finish();
            }
        }
        match failure {
            Some(error) => Err(error),
            None => Ok(*lock(&shared.summary)),
        }
    }
}

/// Takes one task after the other until told to stop.
async fn take_and_run<F, W>(shared: Arc<Shared<F>>) -> Result<()>
where
    F: Fn(Job) -> W + Send + Sync + 'static,
    W: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let worker = &shared.worker;
    let mut stop = worker.stop.subscribe();
    loop {
        if *stop.borrow_and_update() > Stop::Run {
            return Ok(());
        }
        let wait = worker.until_empty.unwrap_or(TAKE_TIMEOUT);
        let began = Instant::now();
        // A take that is given up gives its task back, should one have arrived after all.
        let taken = tokio::select! {
            taken = worker.tube.take_extended(Some(wait)) => taken,
            _ = stop.wait_for(|stop| *stop > Stop::Run) => return Ok(()),
        };
        match taken {
            Ok(Some(task)) => shared.handle(task).await,
            Ok(None) if worker.until_empty.is_some() && shared.is_idle(began).await => return Ok(()),
            // Without a wait at the server there is one here.
            Ok(None) => tokio::time::sleep(MIN_WAIT.saturating_sub(wait)).await,
            Err(error) if passes(&error) => {
                (worker.observer)(&Event::Trouble { error: &error });
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Whether another attempt may go well.
fn passes(error: &Error) -> bool {
    error.is_disconnected()
        || matches!(error, Error::Timeout(_) | Error::Unavailable)
        || matches!(
            error.kind(),
            Some(
                Kind::ReadOnly
                    | Kind::ReplicasMissing
                    | Kind::Disk
                    | Kind::MemoryLimit
                    | Kind::OutcomeUnknown
                    | Kind::Loading
            )
        )
}

impl<F, W> Shared<F>
where
    F: Fn(Job) -> W + Send + Sync + 'static,
    W: Future<Output = Result<(), Failure>> + Send + 'static,
{
    /// Runs the handler for a task and settles the task.
    async fn handle(&self, task: Task) {
        let known = lock(&self.retries).remove(&task.id).map_or(0, |retry| retry.attempts);
        let attempt = match task.info.as_ref().map(|info| info.attempts) {
            Some(counted) if counted > 0 => counted,
            _ => known + 1,
        };
        let job = Job { task, attempt };
        let turn = JobTurn::new(&self.turns, job.task.id);
        self.running.fetch_add(1, Ordering::Relaxed);
        let end = match given_up(&job, self.worker.policy.max_attempts) {
            Some(failure) => End::Failed(failure),
            None => self.execute(&job).await,
        };
        self.settle(&job, end, &turn).await;
        drop(turn);
        self.running.fetch_sub(1, Ordering::Relaxed);
    }

    /// Runs the handler; keeps the task meanwhile.
    async fn execute(&self, job: &Job) -> End {
        let mut stop = self.worker.stop.subscribe();
        let mut running = Running(tokio::spawn((self.handler)(job.clone())));
        let end = tokio::select! {
            ended = &mut running.0 => return end_of(ended),
            () = self.keep(&job.task) => End::Lost,
            () = session_changes(&job.task) => End::Lost,
            () = expires(self.worker.timeout) => {
                let limit = self.worker.timeout.unwrap_or_default();
                End::Failed(Failure::retry(format_args!("timed out after {limit:?}")))
            }
            _ = stop.wait_for(|stop| *stop == Stop::Abort) => End::Aborted,
        };
        // The handler is dropped before the task is settled: no other worker runs the task while this one still does.
        running.0.abort();
        match (&mut running.0).await {
            Ok(Ok(())) => End::Ok,
            _ => end,
        }
    }

    /// Touches a task as long as that is of use. Ends when the task is lost.
    async fn keep(&self, task: &Task) {
        let interval = self.worker.touch_interval;
        let (mut pause, period) = match &task.info {
            // No other task takes it away.
            Some(info) if info.ttr.is_none() => return std::future::pending().await,
            Some(info) => {
                let third = info.ttr.map_or(interval, |ttr| ttr / 3).max(MIN_TOUCH_INTERVAL);
                (third.min(interval), third.min(interval))
            }
            None => (FIRST_TOUCH.min(interval), interval),
        };
        // Without a ttr to go by, each touch is for the time to come.
        let is_known = task.info.is_some();
        let mut last = Instant::now();
        loop {
            tokio::time::sleep(pause).await;
            let now = Instant::now();
            let increment = if is_known { now - last } else { period };
            match task.touch(increment).await {
                Ok(()) => (last, pause) = (now, period),
                Err(error) if matches!(error.kind(), Some(Kind::NotTaken | Kind::NoSuchTask)) => return,
                Err(error) if error.kind() == Some(Kind::TouchUnsupported) => {
                    return std::future::pending().await;
                }
                Err(_) => pause = RETRY_PAUSE.min(period),
            }
        }
    }

    async fn settle(&self, job: &Job, end: End, turn: &JobTurn<'_>) {
        let (wanted, failure) = match end {
            End::Ok => (Settled::Done, None),
            End::Aborted => (Settled::GivenBack, None),
            End::Lost => return self.lost(job, None),
            End::Failed(failure) => match self.worker.policy.delay_after(job.attempt, failure.then) {
                Some(delay) => (Settled::Released(delay), Some(failure)),
                None => (Settled::Buried, Some(failure)),
            },
        };
        if let Settled::Released(delay) = wanted {
            // Before the server hears it: another job of this worker may take it at once.
            self.remember(job, delay);
        }
        match self.tell(job, wanted, failure.as_ref(), turn).await {
            Ok(()) => {
                if let Settled::Released(delay) = wanted {
                    self.postpone(job, delay);
                }
                self.count(wanted);
                let failure = failure.as_ref();
                (self.worker.observer)(&Event::Settled { job, settled: wanted, failure });
            }
            Err(error) => {
                lock(&self.retries).remove(&job.task.id);
                self.lost(job, Some(&error));
            }
        }
    }

    /// Tells the server, and again if the connection breaks over it or the server takes no writes any more: the session
    /// may survive, and would keep a task that no worker runs.
    async fn tell(
        &self,
        job: &Job,
        wanted: Settled,
        failure: Option<&Failure>,
        turn: &JobTurn<'_>,
    ) -> Result<()> {
        let task = &job.task;
        let reason = failure.map_or("", |failure| tail(failure.reason(), MAX_REASON));
        let mut stop = self.worker.stop.subscribe();
        let began = Instant::now();
        for attempt in 1.. {
            let request = async {
                match wanted {
                    Settled::Done => task.ack().await,
                    Settled::Released(delay) => task.release_because(Some(delay), reason).await,
                    Settled::Buried => self.bury(task, reason).await,
                    Settled::GivenBack => task.release_unattempted().await,
                }
            };
            let told = match wanted {
                Settled::GivenBack => tokio::time::timeout(ABORT_LIMIT, request)
                    .await
                    .unwrap_or(Err(Error::Timeout(ABORT_LIMIT))),
                _ => request.await,
            };
            match told {
                Err(error)
                    if attempt > 1
                        && error.is_not_taken()
                        && self.is_gone(task, wanted).await
                        && !turn.is_superseded() =>
                {
                    // An attempt before this one has done it, and its answer was lost.
                    return Ok(());
                }
                Err(error)
                    if passes(&error)
                        && began.elapsed() < SETTLE_LIMIT
                        && *stop.borrow_and_update() < Stop::Abort =>
                {
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                told => return told,
            }
        }
        unreachable!("the attempts end")
    }

    /// Buries a task if this session still holds it: the server would let any client bury it.
    async fn bury(&self, task: &Task, reason: &str) -> Result<()> {
        // A microsecond asks whether the task is held, and is all that it adds.
        match task.touch(Duration::from_micros(1)).await {
            Err(error) if error.kind() != Some(Kind::TouchUnsupported) => Err(error),
            _ => task.bury_because(reason).await,
        }
    }

    /// Whether a task that was to be acknowledged is not there any more.
    async fn is_gone(&self, task: &Task, wanted: Settled) -> bool {
        let peeked = task.tube().peek(task.id).await;
        wanted == Settled::Done && peeked.is_err_and(|error| error.kind() == Some(Kind::NoSuchTask))
    }

    fn lost(&self, job: &Job, error: Option<&Error>) {
        lock(&self.summary).lost += 1;
        let event = match error {
            Some(error) if !error.is_not_taken() => Event::Unsettled { job, error },
            _ => Event::Lost { job },
        };
        (self.worker.observer)(&event);
    }

    fn count(&self, settled: Settled) {
        let mut summary = lock(&self.summary);
        match settled {
            Settled::Done => summary.done += 1,
            Settled::Released(_) => summary.failed += 1,
            Settled::Buried => {
                summary.failed += 1;
                summary.buried += 1;
            }
            Settled::GivenBack => summary.given_back += 1,
        }
    }

    fn remember(&self, job: &Job, delay: Duration) {
        let now = Instant::now();
        let mut retries = lock(&self.retries);
        if retries.len() >= MAX_RETRIES {
            retries.retain(|_, retry| retry.due > now);
        }
        if retries.len() < MAX_RETRIES {
            let due = now.checked_add(delay).unwrap_or(now);
            retries.insert(job.task.id, Retry { attempts: job.attempt, due, was_ready: false });
        }
    }

    /// The server has heard of a release: its delay began no later than now.
    fn postpone(&self, job: &Job, delay: Duration) {
        let now = Instant::now();
        if let Some(retry) = lock(&self.retries).get_mut(&job.task.id)
            && retry.attempts == job.attempt
        {
            retry.due = now.checked_add(delay).unwrap_or(now);
        }
    }

    /// Whether nothing is running and no failed task will come back, after a `take` that `began` at this time has waited in vain.
    /// The server decides when a delay is over, by its own clock: a task that it still calls delayed comes back, and one that
    /// has just become ready gets one more `take`. A task that stays ready is not for this worker: its tube is paused, say.
    async fn is_idle(&self, began: Instant) -> bool {
        if self.running.load(Ordering::Relaxed) > 0 {
            return false;
        }
        let failed: Vec<u64> = {
            let retries = lock(&self.retries);
            if retries.values().any(|retry| retry.due > began) {
                return false;
            }
            retries.keys().copied().collect()
        };
        for id in failed {
            match self.worker.tube.peek(id).await.map(|task| task.state) {
                Ok(TaskState::Delayed) => return false,
                Ok(TaskState::Ready) => {
                    if let Some(retry) = lock(&self.retries).get_mut(&id)
                        && !std::mem::replace(&mut retry.was_ready, true)
                    {
                        return false;
                    }
                }
                Err(error) if passes(&error) => return false,
                // With others, put aside, or gone.
                Ok(_) | Err(_) => {}
            }
        }
        true
    }
}

/// Why a task is not tried any more: its last allowed attempt began and its outcome is unknown. A task that kills its
/// worker would otherwise come back for ever.
fn given_up(job: &Job, max_attempts: u64) -> Option<Failure> {
    if job.attempt <= max_attempts {
        return None;
    }
    let mut reason = format!(
        "attempt {} of at most {max_attempts}: an attempt before it ended without a result, as the worker died or lost the \
         task",
        job.attempt
    );
    if let Some(last) = job.task.info.as_ref().and_then(|info| info.last_error.as_deref()) {
        reason = format!("{reason}; the last reason: {last}");
    }
    Some(Failure::bury(reason))
}

fn end_of(ended: Result<Result<(), Failure>, JoinError>) -> End {
    match ended {
        Ok(Ok(())) => End::Ok,
        Ok(Err(failure)) => End::Failed(failure),
        Err(error) if error.is_panic() => {
            let panic = error.into_panic();
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text");
            End::Failed(Failure::retry(format_args!("the handler panicked: {text}")))
        }
        Err(_) => End::Aborted,
    }
}

/// Waits until the server has forgotten the session that took the task, and so released the task.
async fn session_changes(task: &Task) {
    let mut watch = task.tube().watch();
    let before = watch.current().session_changes;
    while let Some(status) = watch.changed().await {
        if status.session_changes != before {
            return;
        }
    }
    std::future::pending::<()>().await;
}

async fn expires(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => tokio::time::sleep(timeout).await,
        None => std::future::pending().await,
    }
}

/// The end of a text, at most `limit` bytes of it.
fn tail(text: &str, limit: usize) -> &str {
    let mut at = text.len().saturating_sub(limit);
    while !text.is_char_boundary(at) {
        at += 1;
    }
    &text[at..]
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
