//! Questions of screens to the server, and the answers as screens show them. One client asks everything, on one connection.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use lycosa_client::{
    Array, AuditEntry, Client, Error, Explanation, Filter, Kind, Task, TaskInfo, Tube, TubeJob, Value,
};
use lycosa_metrics::{Snapshot, Tube as TubeStatus};
use tokio::sync::mpsc::UnboundedSender;

use super::change::{self, Control, Counted, Order};
use super::words::visible;
use crate::commands::{flag, options};
use crate::values::{array_of, float, pairs, text_of};
use crate::{explain, payload};

/// Entries of a page of the audit log, and jobs of all tubes.
pub(super) const LISTED: u32 = 100;
/// Pages of one answer at most: each has the server look at up to 2 000 tasks.
const MAX_PAGES: usize = 20;
/// Bytes of a payload that are shown.
const SHOWN_BYTES: usize = 64 << 10;

/// A question, or an order.
///
/// `Status`: all tubes and the instance; with its history if that is old, and with issues unless the server has refused them.
/// `Tube`: one tube with its history, its sub-queues, and why it hands out no task. `Tasks`: a page of tasks. `Jobs`: of one tube,
/// or of all. `Audit`: entries of the audit log before this one, the newest first. `Count` counts what an order would change;
/// `Apply` has the job that has counted the tasks of the order. `Transfer` asks a member of the group to lead.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Ask {
    Status { history: bool, issues: bool },
    Tube(String),
    Tasks { tube: String, filter: Filter, cursor: Option<String>, limit: u32 },
    Task { tube: String, id: u64 },
    Sessions,
    Jobs(Option<String>),
    Audit(Option<u64>),
    Count(Order),
    Apply { order: Order, counted: Option<u64> },
    Pause { tube: String, is_paused: bool, reason: Option<String> },
    Undo { tube: String, job: u64 },
    Control { tube: String, job: u64, action: Control },
    Transfer { node: u64, reason: Option<String> },
}

impl Ask {
    /// Whether it changes nothing.
    pub(super) fn is_look(&self) -> bool {
        use Ask::{Audit, Jobs, Sessions, Status, Task, Tasks, Tube};
        matches!(self, Status { .. } | Tube(_) | Tasks { .. } | Task { .. } | Sessions | Jobs(_) | Audit(_))
    }
}

/// A task of a list.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct TaskLine {
    pub(super) id: u64,
    pub(super) state: String,
    pub(super) attempts: u64,
    pub(super) priority: Option<u64>,
    /// Seconds since the epoch.
    pub(super) created: Option<f64>,
    /// Seconds since the epoch.
    pub(super) due: Option<f64>,
    pub(super) utube: Option<String>,
    pub(super) payload: String,
    pub(super) error: Option<String>,
}

/// Everything about a task.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct TaskDetail {
    pub(super) line: TaskLine,
    /// Names and times, in seconds since the epoch.
    pub(super) moments: Vec<(&'static str, f64)>,
    pub(super) facts: Vec<(&'static str, String)>,
    pub(super) reasons: Vec<String>,
    /// Indented JSON, or text.
    pub(super) text: Vec<String>,
    pub(super) bytes: usize,
}

/// All tubes and the instance.
#[derive(Debug, Clone, Default)]
pub(super) struct Status {
    pub(super) snapshot: Snapshot,
    /// Whether the issues are in it. A server of an older version finds none.
    pub(super) has_issues: bool,
}

/// A tube in detail.
#[derive(Debug, Clone, Default)]
pub(super) struct TubeDetail {
    pub(super) status: TubeStatus,
    pub(super) reasons: Vec<String>,
    /// Sub-queues with why they hand out no task.
    pub(super) blocked: Vec<(String, String)>,
}

/// A session of the queue.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct SessionLine {
    pub(super) user: String,
    pub(super) connections: String,
    pub(super) held: u64,
    /// Numbers of held tasks by tube.
    pub(super) tubes: Vec<(String, u64)>,
    /// Since when the oldest of them, in seconds since the epoch.
    pub(super) since: Option<f64>,
}

/// A page of tasks.
#[derive(Debug, Clone, Default)]
pub(super) struct Found {
    pub(super) tasks: Vec<TaskLine>,
    pub(super) scanned: u64,
    pub(super) total: u64,
    pub(super) next: Option<String>,
}

/// `Done`: an order is carried out, by this job if a job did it. `Refused`: an order is refused. `Failed`: a question has no answer.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    Status(Box<Status>),
    Tube(String, Option<Box<TubeDetail>>),
    Tasks { tube: String, cursor: Option<String>, filter: Filter, found: Found },
    Task { tube: String, id: u64, detail: Option<Box<TaskDetail>> },
    Sessions(Vec<SessionLine>),
    Jobs(Option<String>, Vec<TubeJob>),
    Audit(Option<u64>, Vec<AuditEntry>),
    Counted(Counted),
    Progress(TubeJob),
    Done { text: String, job: Option<TubeJob> },
    Refused(String),
    Failed(String),
}

/// Where answers go: to the screen.
pub(super) type Answers = UnboundedSender<Answer>;

/// Asks, and sends the answers.
pub(super) async fn carry_out(client: &Client, ask: Ask, answers: &Answers) {
    let is_look = ask.is_look();
    let answer = match answer(client, ask, answers).await {
        Ok(answer) => answer,
        Err(error) => {
            let text = explain::missing(&error).unwrap_or_else(|| format!("{error:#}"));
            if is_look { Answer::Failed(text) } else { Answer::Refused(text) }
        }
    };
    // A screen that is closed reads no answer.
    let _ = answers.send(answer);
}

pub(super) async fn answer(client: &Client, ask: Ask, answers: &Answers) -> anyhow::Result<Answer> {
    let queue = client.queue();
    Ok(match ask {
        Ask::Status { history, issues } => Answer::Status(Box::new(status(client, history, issues).await?)),
        Ask::Tube(name) => {
            let detail = tube(client, &queue.tube(&name)).await?;
            Answer::Tube(name, detail.map(Box::new))
        }
        Ask::Tasks { tube, filter, cursor, limit } => {
            let found = find(&queue.tube(&tube), &filter, cursor.as_deref(), limit).await?;
            Answer::Tasks { tube, cursor, filter, found }
        }
        Ask::Task { tube, id } => {
            let detail = task(&queue.tube(&tube), id).await?.map(Box::new);
            Answer::Task { tube, id, detail }
        }
        Ask::Sessions => Answer::Sessions(sessions(client).await?),
        Ask::Jobs(tube) => {
            let jobs = match &tube {
                Some(tube) => queue.tube(tube).jobs().await?,
                None => queue.jobs(LISTED, None).await?,
            };
            Answer::Jobs(tube, jobs)
        }
        Ask::Audit(before) => Answer::Audit(before, queue.audit(LISTED, before).await?),
        Ask::Count(order) => Answer::Counted(change::count(&queue.tube(&order.tube), &order, answers).await?),
        Ask::Apply { order, counted } => {
            let job = change::apply(&queue.tube(&order.tube), &order, counted, answers).await?;
            Answer::Done { text: change::outcome(&job), job: Some(job) }
        }
        Ask::Undo { tube, job } => {
            let undone = change::undo(&queue.tube(&tube), job, answers).await?;
            Answer::Done { text: change::outcome(&undone), job: None }
        }
        Ask::Control { tube, job, action } => {
            let tube = queue.tube(&tube);
            let job = match action {
                Control::Pause => tube.pause_job(job).await?,
                Control::Resume => tube.resume_job(job).await?,
                Control::Cancel => tube.cancel_job(job).await?,
            };
            Answer::Done { text: change::outcome(&job), job: Some(job) }
        }
        Ask::Transfer { node, reason } => {
            let options = options([("reason", reason.map(Value::from))]);
            let args = Array::from([Value::from(node), options]);
            client.connection().await?.call("lycosa.cluster.transfer", args).await?;
            Answer::Done { text: format!("node {node} is asked to lead"), job: None }
        }
        Ask::Pause { tube, is_paused, reason } => {
            let named = queue.tube(&tube);
            let has_changed = match is_paused {
                true => named.pause(reason.as_deref()).await?,
                false => named.resume(reason.as_deref()).await?,
            };
            let text = match (is_paused, has_changed) {
                (true, true) => "is paused: takes wait until it is resumed",
                (true, false) => "was paused already",
                (false, true) => "hands out tasks again",
                (false, false) => "was not paused",
            };
            Answer::Done { text: format!("tube {} {text}", visible(&tube)), job: None }
        }
    })
}

/// Calls a function of the queue that returns one value.
async fn call(client: &Client, name: &str, options: Value) -> anyhow::Result<Vec<u8>> {
    let response = client.connection().await?.call(name, Array::from([options])).await?;
    Ok(response.first().with_context(|| format!("the server returned nothing to {name}"))?.to_vec())
}

/// A page of tubes, with their issues unless the server does not know that option: `has_issues` says so from then on.
async fn page(client: &Client, after: Option<Value>, has_issues: &mut bool) -> anyhow::Result<Vec<u8>> {
    loop {
        let options = options([("after", after.clone()), ("issues", flag(*has_issues))]);
        match call(client, "queue.status", options).await {
            Err(error) if *has_issues && explain::refused_option(&error) == Some("issues") => {
                *has_issues = false;
            }
            answer => return answer,
        }
    }
}

async fn status(client: &Client, history: bool, issues: bool) -> anyhow::Result<Status> {
    let (mut snapshot, mut has_issues) = (Snapshot::default(), issues);
    let mut next = snapshot.add_page(&page(client, None, &mut has_issues).await?)?;
    while let Some(after) = next {
        next = snapshot.add_page(&page(client, Some(after.into()), &mut has_issues).await?)?;
    }
    if history {
        // The histories of tubes are large: a page of one tube has that of the instance too.
        let options = Value::map([("limit", Value::from(1_u64)), ("history", Value::Bool(true))]);
        let mut first = Snapshot::default();
        first.add_page(&call(client, "queue.status", options).await?)?;
        let found = first.instance.and_then(|instance| instance.queue.history);
        if let Some(instance) = &mut snapshot.instance {
            instance.queue.history = found;
        }
    }
    Ok(Status { snapshot, has_issues })
}

/// Every page of the status as one value, `instance` and `tubes`, and whether the issues are in it.
pub(super) async fn whole_status(client: &Client) -> anyhow::Result<(Value, bool)> {
    let (mut instance, mut tubes, mut next) = (Value::Nil, Vec::new(), None);
    let mut has_issues = true;
    loop {
        let page = Value::decode(&page(client, next, &mut has_issues).await?)?;
        tubes.extend_from_slice(array_of(&page, "tubes"));
        instance = page.get("instance").cloned().unwrap_or(instance);
        next = page.get("next").filter(|next| **next != Value::Nil).cloned();
        if next.is_none() {
            return Ok((Value::map([("instance", instance), ("tubes", Value::Array(tubes))]), has_issues));
        }
    }
}

fn sentences(explanation: &Explanation) -> Vec<String> {
    let mut said: Vec<String> = explanation.reasons.iter().map(|reason| visible(&reason.text)).collect();
    if said.is_empty() && explanation.is_next {
        said.push("the next take gets a task at once".to_owned());
    }
    said
}

async fn tube(client: &Client, tube: &Tube) -> anyhow::Result<Option<TubeDetail>> {
    let options = Value::map([("tube", Value::from(tube.name())), ("history", Value::Bool(true))]);
    let mut snapshot = Snapshot::default();
    snapshot.add_page(&call(client, "queue.status", options).await?)?;
    let Some(status) = snapshot.tubes.pop() else { return Ok(None) };
    let reasons = sentences(&tube.explain().await?);
    let mut blocked = Vec::new();
    for sub_queue in &status.sub_queues {
        let why = match tube.explain_sub_queue(&sub_queue.name).await {
            Ok(explanation) => sentences(&explanation).into_iter().next().unwrap_or_default(),
            Err(error) => error.to_string(),
        };
        blocked.push((sub_queue.name.clone(), why));
    }
    Ok(Some(TubeDetail { status, reasons, blocked }))
}

async fn find(tube: &Tube, filter: &Filter, cursor: Option<&str>, limit: u32) -> anyhow::Result<Found> {
    let mut found = Found::default();
    let mut next = cursor.map(str::to_owned);
    for _ in 0..MAX_PAGES {
        let left = limit.saturating_sub(found.tasks.len() as u32);
        let page = tube.find(filter, left, next.as_deref()).await?;
        found.tasks.extend(page.tasks.iter().map(line));
        (found.scanned, found.total) = (page.scanned, page.total);
        next = page.cursor;
        if next.is_none() || found.tasks.len() as u32 >= limit {
            break;
        }
    }
    found.next = next;
    Ok(found)
}

fn moment(time: Option<SystemTime>) -> Option<f64> {
    Some(time?.duration_since(UNIX_EPOCH).ok()?.as_secs_f64())
}

/// A name of a sub-queue as text.
fn name(value: &Value) -> String {
    value.as_bytes().map_or_else(|| value.to_string(), |bytes| String::from_utf8_lossy(bytes).into_owned())
}

fn shown(task: &Task) -> String {
    let mut bytes = Vec::new();
    match task.data.value() {
        // Writing to memory does not fail.
        Ok(value) => drop(payload::write(&mut bytes, &value)),
        Err(_) => bytes.extend_from_slice(b"(MessagePack that is nested too deeply)"),
    }
    bytes.truncate(SHOWN_BYTES);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn line(task: &Task) -> TaskLine {
    let info = task.info.clone().unwrap_or_default();
    let mut payload = shown(task);
    payload.truncate(payload.floor_char_boundary(400));
    TaskLine {
        id: task.id,
        state: task.state.to_string(),
        attempts: info.attempts,
        priority: info.priority,
        created: moment(info.created),
        due: moment(info.due),
        utube: info.utube.as_ref().map(name),
        payload,
        error: info.last_error,
    }
}

async fn task(tube: &Tube, id: u64) -> anyhow::Result<Option<TaskDetail>> {
    let gone = |error: &Error| error.kind() == Some(Kind::NoSuchTask);
    let task = match tube.peek_extended(id).await {
        Err(error) if gone(&error) => return Ok(None),
        task => task?,
    };
    let reasons = match tube.explain_task(id).await {
        Err(error) if gone(&error) => return Ok(None),
        explanation => sentences(&explanation?),
    };
    let info: TaskInfo = task.info.clone().unwrap_or_default();
    let moments = [
        ("put", info.created),
        ("taken", info.taken_at),
        ("failed", info.failed_at),
        ("due", info.due),
        ("lease ends", info.lease_ends),
    ];
    let span = |span: Option<Duration>| span.map(|span| crate::values::lapse(span.as_secs_f64()));
    let facts = [
        ("attempts", Some(info.attempts.to_string())),
        ("priority", info.priority.map(|priority| priority.to_string())),
        ("sub-queue", info.utube.as_ref().map(|utube| visible(&name(utube)))),
        ("ttl", span(info.ttl)),
        ("ttr", span(info.ttr)),
        ("connection", info.connection.map(|id| id.to_string())),
        ("last error", info.last_error.as_deref().map(visible)),
    ];
    let text = match task.data.value() {
        Ok(value @ (Value::Map(_) | Value::Array(_))) => {
            serde_json::to_string_pretty(&payload::to_json(&value)).unwrap_or_default()
        }
        _ => shown(&task),
    };
    Ok(Some(TaskDetail {
        line: line(&task),
        moments: moments.into_iter().filter_map(|(name, at)| Some((name, moment(at)?))).collect(),
        facts: facts.into_iter().filter_map(|(name, fact)| Some((name, fact?))).collect(),
        reasons,
        text: text.lines().map(visible).collect(),
        bytes: task.data.encoded().len(),
    }))
}

async fn sessions(client: &Client) -> anyhow::Result<Vec<SessionLine>> {
    let response = client.connection().await?.call("queue.sessions", ()).await?;
    let answer = response.first_value()?;
    let line = |session: &Value| {
        let tubes = pairs(session.get("taken")).iter();
        let tubes: Vec<_> = tubes.filter_map(|(tube, count)| Some((name(tube), count.as_u64()?))).collect();
        let connections: Vec<_> =
            array_of(session, "connections").iter().map(|one| text_of(one, "address")).collect();
        SessionLine {
            user: text_of(session, "user").to_owned(),
            connections: if connections.is_empty() {
                "none any more".to_owned()
            } else {
                connections.join(", ")
            },
            held: tubes.iter().map(|(_, count)| count).sum(),
            tubes,
            since: session.get("taken_at").and_then(float),
        }
    };
    let mut lines: Vec<_> = array_of(&answer, "sessions").iter().map(line).collect();
    lines.sort_by_key(|line| std::cmp::Reverse(line.held));
    Ok(lines)
}
