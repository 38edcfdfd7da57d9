//! A worker: takes tasks, runs a handler for each, and settles them by what the handler returns.
//!
//! [`Worker::run`] holds up to [`jobs`](Worker::jobs) tasks at a time. A handler that returns `Ok` has its task
//! acknowledged. A [`Failure`] releases the task with a delay that doubles at each attempt, and buries it after
//! [`max_attempts`](Worker::max_attempts); the server keeps the reason with the task. A handler that panics has failed.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use lycosa_client::worker::{Failure, Job};
//! use lycosa_client::{Client, ConnectOptions, Worker};
//!
//! # async fn send(_: &str) -> Result<(), std::io::Error> { Ok(()) }
//! # async fn example() -> lycosa_client::Result<()> {
//! let client = Client::connect(ConnectOptions::new("127.0.0.1:3301")).await?;
//! let worker = Worker::new(client.queue().tube("mail")).jobs(4).timeout(Duration::from_secs(60));
//! let stop = worker.stop_handle();
//! tokio::spawn(async move {
//!     let _ = tokio::signal::ctrl_c().await;
//!     stop.finish();
//! });
//! let summary = worker
//!     .run(|job: Job| async move {
//!         let address = job.task.data.as_str().ok_or_else(|| Failure::bury("the payload is not text"))?;
//!         send(address).await.map_err(Failure::retry)
//!     })
//!     .await?;
//! println!("{} done, {} failed, {} buried", summary.done, summary.failed, summary.buried);
//! # Ok(())
//! # }
//! ```
//!
//! # Invariants
//! - A running task is touched at a third of its ttr at the latest, so a short ttr notices a dead worker and not a slow
//!   handler. Each touch adds the time since the one before, which leaves the whole ttr from there.
//! - A task that this session does not hold any more (another client deleted or buried it, or the server released it
//!   when the connection broke) is [`Event::Lost`]: its handler is dropped at once, since another worker may run the
//!   task by then.
//! - Counters of [`Summary`] count tasks that the server says are settled, nothing else.
//! - [`StopHandle::finish`] lets running handlers end. [`StopHandle::abort`] drops them and releases their tasks.
//!
//! Attempts are the server's count, which holds over workers and restarts. A task that comes back after its last
//! attempt, because the worker died over it, is buried without another one; a kick counts anew. A server that does
//! not count (Tarantool's Lua module) leaves it to the worker, which knows its own attempts only.

mod policy;
mod run;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use self::policy::{Policy, Then};
use crate::error::Error;
use crate::task::Task;
use crate::tube::Tube;

/// How long one `take` waits at the server before it is asked again.
const TAKE_TIMEOUT: Duration = Duration::from_secs(30);
/// No shorter time lies between two touches.
const MIN_TOUCH_INTERVAL: Duration = Duration::from_millis(10);
/// The longest reason that is kept with a task, in bytes; a longer one loses its beginning.
pub const MAX_REASON: usize = 1024;

/// A worker's callback for events; see [`Worker::on_event`].
type Observer = Arc<dyn Fn(&Event<'_>) + Send + Sync>;

/// Takes tasks of a tube and runs a handler for each. See the [module](self).
#[derive(Clone)]
pub struct Worker {
    tube: Tube,
    jobs: u16,
    policy: Policy,
    touch_interval: Duration,
    timeout: Option<Duration>,
    until_empty: Option<Duration>,
    observer: Observer,
    stop: watch::Sender<Stop>,
}

/// A task in the hands of a handler.
#[derive(Debug, Clone)]
pub struct Job {
    /// The task. The worker settles it: a handler that does so itself makes it [`Event::Lost`].
    pub task: Task,
    /// Which attempt this is, from 1.
    pub attempt: u64,
}

/// Why a handler did not do its task, and what becomes of the task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    reason: String,
    then: Then,
}

impl Failure {
    /// Try again later, as the worker's settings say.
    pub fn retry(reason: impl fmt::Display) -> Self {
        Self { reason: reason.to_string(), then: Then::Retry }
    }

    /// Try again after `delay` (tubes with ttl), unless this was the last attempt.
    pub fn retry_after(delay: Duration, reason: impl fmt::Display) -> Self {
        Self { reason: reason.to_string(), then: Then::RetryAfter(delay) }
    }

    /// Never try again: bury the task.
    pub fn bury(reason: impl fmt::Display) -> Self {
        Self { reason: reason.to_string(), then: Then::Bury }
    }

    /// The reason.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

/// What became of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// It was acknowledged.
    Done,
    /// It failed and was released with this delay.
    Released(Duration),
    /// It failed and was buried.
    Buried,
    /// [`StopHandle::abort`] ended its handler, and it was released; this is no failure and no attempt.
    GivenBack,
}

/// What a worker tells of its work.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A task is settled.
    Settled {
        /// The task and its attempt.
        job: &'a Job,
        /// What became of it.
        settled: Settled,
        /// Why, if the handler failed.
        failure: Option<&'a Failure>,
    },
    /// This session does not hold the task any more; its handler has ended or was dropped.
    Lost {
        /// The task and its attempt.
        job: &'a Job,
    },
    /// The handler has ended, but the server could not be told.
    Unsettled {
        /// The task and its attempt.
        job: &'a Job,
        /// Why not.
        error: &'a Error,
    },
    /// A `take` failed for a reason that passes, such as a broken connection; the worker tries again.
    Trouble {
        /// What failed.
        error: &'a Error,
    },
}

/// What a worker has done: tasks that are settled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Tasks that were acknowledged.
    pub done: u64,
    /// Attempts that failed and whose tasks were released or buried.
    pub failed: u64,
    /// Tasks that were buried; they count as failed, too.
    pub buried: u64,
    /// Tasks that this session did not hold any more, or that could not be settled.
    pub lost: u64,
    /// Tasks that were given back unfinished because the worker was told to abort.
    pub given_back: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stop {
    Run,
    Finish,
    Abort,
}

/// Ends a worker from outside. Clones end the same worker.
#[derive(Debug, Clone)]
pub struct StopHandle(watch::Sender<Stop>);

impl StopHandle {
    /// Takes no more tasks; running handlers end and their tasks are settled.
    pub fn finish(&self) {
        self.raise(Stop::Finish);
    }

    /// Drops running handlers and releases their tasks.
    pub fn abort(&self) {
        self.raise(Stop::Abort);
    }

    fn raise(&self, to: Stop) {
        self.0.send_if_modified(|stop| {
            let is_higher = *stop < to;
            *stop = (*stop).max(to);
            is_higher
        });
    }
}

impl Worker {
    /// A worker with the defaults: one job, ten attempts, delays from 1 s to 5 minutes, no timeout, without an end.
    pub fn new(tube: Tube) -> Self {
        Self {
            tube,
            jobs: 1,
            policy: Policy::default(),
            touch_interval: Duration::from_secs(10),
            timeout: None,
            until_empty: None,
            observer: Arc::new(|_| {}),
            stop: watch::Sender::new(Stop::Run),
        }
    }

    /// How many handlers run at a time; at least one. Default 1.
    pub fn jobs(mut self, jobs: u16) -> Self {
        self.jobs = jobs.max(1);
        self
    }

    /// How many attempts a task gets before it is buried; at least one. An attempt without a known outcome
    /// counts, too: the worker may have died of the task. Default 10.
    pub fn max_attempts(mut self, attempts: u64) -> Self {
        self.policy.max_attempts = attempts.max(1);
        self
    }

    /// How long a task waits after its first failure, which doubles at each further one, and the longest such wait
    /// (tubes with ttl; in others a task is ready at once). Default 1 s and 5 minutes.
    pub fn retry_delay(mut self, first: Duration, longest: Duration) -> Self {
        self.policy.retry_delay = first;
        self.policy.max_retry_delay = longest;
        self
    }

    /// The longest time between two touches; a short ttr makes it shorter. Default 10 s.
    pub fn touch_interval(mut self, interval: Duration) -> Self {
        self.touch_interval = interval.max(MIN_TOUCH_INTERVAL);
        self
    }

    /// How long a handler may run; then it is dropped and its task has failed. Default: without a limit.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Ends the worker when no task has arrived for this long, none is running and none that this worker has released is
    /// still delayed. Default: works until it is stopped.
    pub fn until_empty(mut self, wait: Duration) -> Self {
        self.until_empty = Some(wait);
        self
    }

    /// Calls `observer` for everything that happens. It must not block.
    pub fn on_event(mut self, observer: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        self.observer = Arc::new(observer);
        self
    }

    /// What ends this worker from outside.
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle(self.stop.clone())
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("tube", &self.tube.name())
            .field("jobs", &self.jobs)
            .field("policy", &self.policy)
            .field("touch_interval", &self.touch_interval)
            .field("timeout", &self.timeout)
            .field("until_empty", &self.until_empty)
            .finish_non_exhaustive()
    }
}
