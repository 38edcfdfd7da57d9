//! Numbers of one tube for autoscalers, KEDA's `metrics-api` for example.

use serde::Serialize;

use crate::snapshot::{Histogram, Tube};

/// What workers are to achieve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    /// The age in seconds below which the oldest ready task is to stay.
    pub age: f64,
}

impl Default for Target {
    /// A minute.
    fn default() -> Self {
        Self { age: 60.0 }
    }
}

impl Target {
    /// Workers that do the arriving tasks, and the ready ones within the target age. A worker holds one task at a time for the mean
    /// time of work. A paused tube hands out no task, so its ready tasks need no worker.
    ///
    /// One task needs one worker: a ready one however short its work is, also before the time of work is known, which only a
    /// worker shows; a taken one until it is finished. The answer is always a number: KEDA stops to scale at a null.
    #[must_use]
    pub fn desired_workers(&self, tube: &Tube) -> u64 {
        let is_needed = tube.tasks.taken > 0 || (tube.tasks.ready > 0 && !tube.paused);
        let arrivals = tube.rates.map_or(0.0, |rates| rates.puts[0]);
        let backlog = tube.tasks.ready as f64 / self.age.max(1.0);
        let work = tube.work.as_ref().and_then(Histogram::mean).unwrap_or(0.0);
        let workers = if tube.paused { 0 } else { ((arrivals + backlog) * work).ceil() as u64 };
        workers.max(u64::from(is_needed))
    }
}

/// Flat numbers: KEDA reads one by its name (`valueLocation`).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Autoscaler {
    /// Name of the tube.
    pub tube: String,
    /// Tasks that may be taken.
    pub ready: u64,
    /// Tasks that workers hold.
    pub taken: u64,
    /// Tasks that become ready later.
    pub delayed: u64,
    /// Tasks that are set aside.
    pub buried: u64,
    /// Calls that wait for a task.
    pub waiting_consumers: u64,
    /// Seconds; 0 without a ready task, null if it is not known.
    pub oldest_ready_age_seconds: Option<f64>,
    /// Seconds; 0 without a taken task, null if it is not known.
    pub oldest_taken_age_seconds: Option<f64>,
    /// Puts a second over the last minute.
    pub arrivals_per_second: Option<f64>,
    /// Acks a second over the last minute.
    pub acks_per_second: Option<f64>,
    /// Mean seconds from take to ack.
    pub work_seconds: Option<f64>,
    /// Until no task is ready any more, at these rates.
    pub drain_seconds: Option<f64>,
    /// See [`Target::desired_workers`].
    pub desired_workers: u64,
    /// Whether the tube hands out no tasks.
    pub paused: bool,
}

impl Autoscaler {
    /// The numbers of a tube.
    #[must_use]
    pub fn of(tube: &Tube, target: Target) -> Self {
        let age = |age: Option<f64>, tasks: u64| age.or((tasks == 0).then_some(0.0));
        Self {
            tube: tube.name.clone(),
            ready: tube.tasks.ready,
            taken: tube.tasks.taken,
            delayed: tube.tasks.delayed,
            buried: tube.tasks.buried,
            waiting_consumers: tube.waiting_takes,
            oldest_ready_age_seconds: age(tube.oldest_ready_age, tube.tasks.ready),
            oldest_taken_age_seconds: age(tube.oldest_taken_age, tube.tasks.taken),
            arrivals_per_second: tube.rates.map(|rates| rates.puts[0]),
            acks_per_second: tube.rates.map(|rates| rates.acks[0]),
            work_seconds: tube.work.as_ref().and_then(Histogram::mean),
            drain_seconds: tube.drain,
            desired_workers: target.desired_workers(tube),
            paused: tube.paused,
        }
    }
}
