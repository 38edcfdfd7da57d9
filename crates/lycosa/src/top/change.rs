//! Changes of tasks as jobs: counted first, carried out part by part, undone, and what came of them in words that hide nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::bail;
use lycosa_client::{ApplyOptions, Filter, JobState, Operation, Tube, TubeJob, Value};

use super::ask::{Answer, Answers};
use super::filter;
use super::words::visible;
use crate::values::count as number;

/// Time between two looks at a running job.
const LOOK: Duration = Duration::from_millis(200);

/// What becomes of a job that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Control {
    Pause,
    Resume,
    Cancel,
}

/// Tasks that an order is about. One job changes them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scope {
    pub(super) filter: Filter,
    /// The state of the task, where the filter names one task.
    pub(super) one: Option<String>,
}

impl Scope {
    pub(super) fn matching(filter: Filter) -> Self {
        Self { filter, one: None }
    }

    /// One task, in the state in which it was chosen. A range of one id needs no count.
    pub(super) fn one(id: u64, state: &str) -> Self {
        let ids = Filter::new().ids(id..=id);
        let filter = filter::state(state).map_or_else(|_| ids.clone(), |state| ids.clone().state(state));
        Self { filter, one: Some(state.to_owned()) }
    }

    /// Marked tasks, each in the state in which it was marked.
    pub(super) fn marked(tasks: &BTreeMap<u64, String>) -> Self {
        let named = tasks.iter().filter_map(|(id, state)| Some((*id, filter::state(state).ok()?)));
        Self::matching(Filter::new().tasks(named))
    }
}

/// A change of tasks.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Order {
    pub(super) tube: String,
    pub(super) operation: Operation,
    pub(super) scope: Scope,
    pub(super) reason: Option<String>,
}

/// What an order would change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Counted {
    /// The dry run; none of an order that names one task.
    pub(super) job: Option<u64>,
    pub(super) matched: u64,
    pub(super) scanned: u64,
}

/// Whether an operation changes a task in this state if its filter names the state.
fn changes(operation: &Operation, state: &str) -> bool {
    match operation {
        Operation::Kick => state == "buried",
        Operation::Release => state == "taken",
        Operation::Run => state == "delayed",
        Operation::Reschedule { .. } => matches!(state, "ready" | "delayed"),
        Operation::Bury => state != "buried",
        Operation::Delete | Operation::Move { .. } => true,
    }
}

/// Counts what an order would change. An order that names one task looks it up; any other one is a job that changes nothing.
pub(super) async fn count(tube: &Tube, order: &Order, answers: &Answers) -> anyhow::Result<Counted> {
    let Scope { filter, one } = &order.scope;
    if let Some(state) = one {
        let found = tube.find(filter, 1, None).await?.tasks.len() as u64;
        let matched = if changes(&order.operation, state) { found } else { 0 };
        return Ok(Counted { job: None, matched, scanned: 1 });
    }
    let options = ApplyOptions { dry_run: true, reason: order.reason.clone(), ..ApplyOptions::default() };
    let job = finished(tube, tube.apply(&order.operation, filter, &options).await?, answers).await?;
    if job.state != JobState::Done {
        bail!("the count ended early: {}", outcome(&job));
    }
    Ok(Counted { job: Some(job.id), matched: job.matched, scanned: job.scanned })
}

/// A job that is over.
type Finished = anyhow::Result<TubeJob>;

/// Carries an order out.
pub(super) async fn apply(tube: &Tube, order: &Order, counted: Option<u64>, answers: &Answers) -> Finished {
    let options = ApplyOptions { counted, reason: order.reason.clone(), ..ApplyOptions::default() };
    let job = tube.apply(&order.operation, &order.scope.filter, &options).await?;
    finished(tube, job, answers).await
}

/// Undoes a job.
pub(super) async fn undo(tube: &Tube, job: u64, answers: &Answers) -> Finished {
    finished(tube, tube.undo(job, None).await?, answers).await
}

/// Waits until a job is over; `answers` gets how far it is.
async fn finished(tube: &Tube, mut job: TubeJob, answers: &Answers) -> Finished {
    while !job.state.is_over() {
        if job.state == JobState::Paused {
            bail!("job {} is paused: {}", job.id, job.error.as_deref().unwrap_or("by an operator"));
        }
        let _ = answers.send(Answer::Progress(job.clone()));
        tokio::time::sleep(LOOK).await;
        job = tube.job(job.id).await?;
    }
    Ok(job)
}

/// "1 task", "2 tasks".
pub(super) fn tasks(count: u64) -> String {
    format!("{} task{}", number(count), if count == 1 { "" } else { "s" })
}

/// Whether the job only counts.
pub(super) fn is_dry(job: &TubeJob) -> bool {
    job.operation == "count" || job.reply.get("dry_run") == Some(&Value::Bool(true))
}

/// What came of a job, without its name.
pub(super) fn result(job: &TubeJob) -> String {
    if job.operation == "undo" {
        return undone(job.undone, job.touched_since, job.gone);
    }
    let state = match job.state {
        JobState::Cancelled => ", then cancelled",
        JobState::Failed => ", then it failed",
        JobState::Paused => ", paused",
        JobState::Running => " so far",
        JobState::Done => "",
    };
    let error = job.error.as_deref().map_or(String::new(), |error| format!(": {}", visible(error)));
    let (count, what) = if is_dry(job) { (job.matched, "matched") } else { (job.changed, "changed") };
    format!("{} {what}{state}{error}", number(count))
}

fn undone(undone: u64, touched: u64, gone: u64) -> String {
    let lost = match (touched, gone) {
        (0, 0) => String::new(),
        _ => format!("; {} changed or taken since, {} no longer there", number(touched), number(gone)),
    };
    format!("{} undone{lost}", tasks(undone))
}

/// What came of a job, in a sentence.
pub(super) fn outcome(job: &TubeJob) -> String {
    format!("job {} ({}): {}", job.id, job.operation, result(job))
}
