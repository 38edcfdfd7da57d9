//! Changes of tasks as jobs: counted first, carried out part by part, undone, and what came of them in words that hide nothing.

use std::time::Duration;

use anyhow::bail;
use lycosa_client::{ApplyOptions, Filter, JobState, Operation, Tube, TubeJob, Value};
use tokio::sync::mpsc::UnboundedSender;

use super::ask::Answer;
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

/// Tasks that one job changes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Part {
    pub(super) filter: Filter,
    /// The state of the task, where the filter names one task.
    pub(super) one: Option<String>,
}

impl Part {
    pub(super) fn matching(filter: Filter) -> Self {
        Self { filter, one: None }
    }

    /// Tasks of neighboring ids in one state. A job changes taken tasks only if its filter has their state.
    fn run(from: u64, to: u64, state: &str) -> Self {
        let ids = Filter::new().ids(from..=to);
        let filter = filter::state(state).map_or_else(|_| ids.clone(), |state| ids.clone().state(state));
        Self { filter, one: (from == to).then(|| state.to_owned()) }
    }
}

/// Parts for these tasks, given by id and state in the order of ids: one for each run of neighbors in one state.
pub(super) fn parts<'a>(tasks: impl IntoIterator<Item = (u64, &'a str)>) -> Vec<Part> {
    let mut runs: Vec<(u64, u64, &str)> = Vec::new();
    for (id, state) in tasks {
        match runs.last_mut() {
            Some((_, to, of)) if *of == state && to.checked_add(1) == Some(id) => *to = id,
            _ => runs.push((id, id, state)),
        }
    }
    runs.into_iter().map(|(from, to, state)| Part::run(from, to, state)).collect()
}

/// A change of tasks.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Order {
    pub(super) tube: String,
    pub(super) operation: Operation,
    pub(super) parts: Vec<Part>,
    pub(super) reason: Option<String>,
}

/// What an order would change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Counted {
    /// The dry run of each part; none of a part that names one task.
    pub(super) jobs: Vec<Option<u64>>,
    pub(super) matched: u64,
    pub(super) scanned: u64,
}

/// Whether an operation changes a task in this state if its filter names the state.
fn changes(operation: &Operation, state: &str) -> bool {
    match operation {
        Operation::Kick => state == "buried",
        Operation::Release => state == "taken",
        Operation::Run => state == "delayed",
        Operation::Bury => state != "buried",
        Operation::Delete | Operation::Move { .. } => true,
    }
}

/// Counts what an order would change. A part that names one task is looked up; any other part is a job that changes nothing.
pub(super) async fn count(
    tube: &Tube,
    order: &Order,
    answers: &UnboundedSender<Answer>,
) -> anyhow::Result<Counted> {
    let mut counted = Counted::default();
    for part in &order.parts {
        if let Some(state) = &part.one {
            let found = tube.find(&part.filter, 1, None).await?.tasks.len() as u64;
            counted.matched += if changes(&order.operation, state) { found } else { 0 };
            counted.scanned += 1;
            counted.jobs.push(None);
            continue;
        }
        let reason = order.reason.clone();
        let options = ApplyOptions { dry_run: true, reason, ..ApplyOptions::default() };
        let job = tube.apply(&order.operation, &part.filter, &options).await?;
        let job = finished(tube, job, answers).await?;
        counted.matched += job.matched;
        counted.scanned += job.scanned;
        counted.jobs.push(Some(job.id));
        if job.state != JobState::Done {
            bail!("the count ended early: {}", outcome(&job));
        }
    }
    Ok(counted)
}

/// Carries an order out, one job after the other; a job that was cancelled is the last one.
pub(super) async fn apply(
    tube: &Tube,
    order: &Order,
    counted: &[Option<u64>],
    answers: &UnboundedSender<Answer>,
) -> anyhow::Result<Vec<TubeJob>> {
    let mut jobs = Vec::new();
    for (part, counted) in order.parts.iter().zip(counted) {
        let (counted, reason) = (*counted, order.reason.clone());
        let options = ApplyOptions { counted, reason, ..ApplyOptions::default() };
        let job = tube.apply(&order.operation, &part.filter, &options).await?;
        jobs.push(finished(tube, job, answers).await?);
        if jobs.last().is_some_and(|job| job.state != JobState::Done) {
            break;
        }
    }
    Ok(jobs)
}

/// Undoes jobs, the last one first.
pub(super) async fn undo(
    tube: &Tube,
    jobs: &[u64],
    answers: &UnboundedSender<Answer>,
) -> anyhow::Result<Vec<TubeJob>> {
    let mut undone = Vec::new();
    for job in jobs.iter().rev() {
        let job = tube.undo(*job, None).await?;
        undone.push(finished(tube, job, answers).await?);
    }
    Ok(undone)
}

/// Waits until a job is over; `answers` gets how far it is.
async fn finished(
    tube: &Tube,
    mut job: TubeJob,
    answers: &UnboundedSender<Answer>,
) -> anyhow::Result<TubeJob> {
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
        (touched, gone) => {
            format!("; {} changed or taken since, {} no longer there", number(touched), number(gone))
        }
    };
    format!("{} undone{lost}", tasks(undone))
}

/// What came of a job, in a sentence.
pub(super) fn outcome(job: &TubeJob) -> String {
    format!("job {} ({}): {}", job.id, job.operation, result(job))
}

/// What came of the jobs of one order.
pub(super) fn outcomes(jobs: &[TubeJob]) -> String {
    let (Some(first), Some(last)) = (jobs.first(), jobs.last()) else {
        return "nothing was changed".to_owned();
    };
    if jobs.len() == 1 {
        return outcome(first);
    }
    let sum = |of: fn(&TubeJob) -> u64| jobs.iter().map(of).sum::<u64>();
    let name = format!("{} jobs ({})", jobs.len(), last.operation);
    if last.operation == "undo" {
        return format!(
            "{name}: {}",
            undone(sum(|job| job.undone), sum(|job| job.touched_since), sum(|job| job.gone))
        );
    }
    let end = if last.state == JobState::Done {
        String::new()
    } else {
        format!("; the last one: {}", result(last))
    };
    format!("{name}: {} changed{end}", number(sum(|job| job.changed)))
}
