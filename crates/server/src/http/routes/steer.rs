//! Steering: find, explain, pause, jobs over all tasks that match, undo, audit. See docs/steering.md for what each does.
//!
//! Members of filters and reports keep their names. Ids of tasks are texts; in a filter they may be numbers as well.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::{get, post};
use lycosa_instance::TokenRole;
use lycosa_tuple::mp::Reader;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use super::{
    Args, Named, Params, Reasoned, Route, answer, given, ids_as_texts, method, read_json, report, task_id,
    tasks, unexpected,
};
use crate::http::access::Access;
use crate::http::problem::{Kind, Problem};
use crate::http::{Shared, json};

pub(super) const ROUTES: &[Route] = &[
    Route {
        method: "post",
        path: "/v1/tubes/{tube}/find",
        operation: "findTasks",
        summary: "A page of the tasks that match a filter",
        role: Some(TokenRole::Viewer),
        query: &[],
        headers: &[],
        bodies: &[("application/json", "Find")],
        answers: &[(200, "Page")],
        attach: || post(find),
    },
    Route {
        method: "get",
        path: "/v1/tubes/{tube}/explain",
        operation: "explain",
        summary: "Why a task, a sub-queue or a tube is not worked on, and until when",
        role: Some(TokenRole::Viewer),
        query: &[
            ("id", "string", "the task"),
            ("utube", "string", "the sub-queue; without either, the tube"),
        ],
        headers: &[],
        bodies: &[],
        answers: &[(200, "Explanation")],
        attach: || get(explain),
    },
    Route {
        method: "post",
        path: "/v1/tubes/{tube}/pause",
        operation: "pauseTube",
        summary: "Hands out no tasks until the tube is resumed",
        role: Some(TokenRole::Operator),
        query: &[],
        headers: &[],
        bodies: &[("application/json", "Reasoned")],
        answers: &[(200, "Changed")],
        attach: || {
            post(|state, access, tube, headers, body| set_paused(state, access, tube, headers, body, "pause"))
        },
    },
    Route {
        method: "post",
        path: "/v1/tubes/{tube}/resume",
        operation: "resumeTube",
        summary: "Hands out tasks again",
        role: Some(TokenRole::Operator),
        query: &[],
        headers: &[],
        bodies: &[("application/json", "Reasoned")],
        answers: &[(200, "Changed")],
        attach: || {
            post(|state, access, tube, headers, body| {
                set_paused(state, access, tube, headers, body, "resume")
            })
        },
    },
    Route {
        method: "get",
        path: "/v1/tubes/{tube}/jobs",
        operation: "listJobs",
        summary: "The jobs of the tube, the newest first",
        role: Some(TokenRole::Viewer),
        query: &[],
        headers: &[],
        bodies: &[],
        answers: &[(200, "Jobs")],
        attach: || get(jobs),
    },
    Route {
        method: "post",
        path: "/v1/tubes/{tube}/jobs",
        operation: "startJob",
        summary: "Counts or changes all tasks that match a filter, in slices",
        role: Some(TokenRole::Operator),
        query: &[],
        headers: &[],
        bodies: &[("application/json", "NewJob")],
        answers: &[(202, "Job")],
        attach: || post(start),
    },
    Route {
        method: "get",
        path: "/v1/tubes/{tube}/jobs/{job}",
        operation: "getJob",
        summary: "A job and how far it is",
        role: Some(TokenRole::Viewer),
        query: &[],
        headers: &[],
        bodies: &[],
        answers: &[(200, "Job")],
        attach: || get(job),
    },
    Route {
        method: "post",
        path: "/v1/tubes/{tube}/jobs/{job}/control",
        operation: "controlJob",
        summary: "Pauses, resumes or cancels a job, or changes its rate",
        role: Some(TokenRole::Operator),
        query: &[],
        headers: &[],
        bodies: &[("application/json", "Control")],
        answers: &[(200, "Job")],
        attach: || post(control),
    },
    Route {
        method: "post",
        path: "/v1/tubes/{tube}/jobs/{job}/undo",
        operation: "undoJob",
        summary: "Begins a job that brings back what a job has changed",
        role: Some(TokenRole::Operator),
        query: &[],
        headers: &[],
        bodies: &[("application/json", "Reasoned")],
        answers: &[(202, "Job")],
        attach: || post(undo),
    },
    Route {
        method: "get",
        path: "/v1/jobs",
        operation: "listAllJobs",
        summary: "The jobs of all tubes of the token, the newest first",
        role: Some(TokenRole::Viewer),
        query: &[
            ("limit", "integer", "jobs at most, up to 100"),
            ("before", "integer", "jobs with smaller ids: the smallest id of the page before"),
        ],
        headers: &[],
        bodies: &[],
        answers: &[(200, "Jobs")],
        attach: || get(all_jobs),
    },
    Route {
        method: "get",
        path: "/v1/audit",
        operation: "listAudit",
        summary: "Who steered what, when and why, the newest entries first; needs a token for every tube",
        role: Some(TokenRole::Viewer),
        query: &[
            ("tube", "string", "entries about this tube"),
            ("limit", "integer", "entries at most, up to 1000; 100 without it"),
            ("before", "integer", "entries with smaller ids: the smallest id of the page before"),
        ],
        headers: &[],
        bodies: &[],
        answers: &[(200, "Audit")],
        attach: || get(audit),
    },
];

/// Members of reports that are ids of tasks.
const TASK_IDS: [&str; 3] = ["id", "by", "highest"];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Find {
    #[serde(default)]
    filter: Map<String, Json>,
    limit: Option<u64>,
    cursor: Option<String>,
}

/// A filter as the queue reads it.
fn filter(mut filter: Map<String, Json>) -> Result<Json, Problem> {
    for name in ["id_from", "id_to"] {
        if let Some(id) = filter.get_mut(name)
            && let Some(text) = id.as_str()
        {
            *id = task_id(text)?.into();
        }
    }
    for item in filter.get_mut("ids").and_then(Json::as_array_mut).into_iter().flatten() {
        let id = match item {
            Json::Array(pair) => pair.first_mut(),
            id => Some(id),
        };
        if let Some(id) = id
            && let Some(text) = id.as_str()
        {
            *id = task_id(text)?.into();
        }
    }
    Ok(filter.into())
}

async fn find(
    State(state): State<Shared>,
    access: Access,
    Named(tube): Named<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let Find { filter: wanted, limit, cursor } = read_json(&state, &headers, body).await?;
    let options = given([("limit", limit.into()), ("cursor", cursor.into())]);
    let args = Args::new().json(&filter(wanted)?).json(&options);
    let function = method(&tube, "find");
    let values = state.bridge.call(&access, function.clone(), args.finish(), state.limits.timeout).await?;
    let page = page(&mut Reader::new(&values.bytes)).ok_or_else(|| unexpected(&function))?;
    Ok(answer(StatusCode::OK, &page.into()))
}

fn page(reader: &mut Reader<'_>) -> Option<Map<String, Json>> {
    let mut page = Map::new();
    for _ in 0..reader.map().ok()? {
        let name = str::from_utf8(reader.str().ok()?).ok()?.to_owned();
        let value = if name == "tasks" {
            let count = reader.array().ok()?;
            (0..count).map(|_| tasks::whole(reader)).collect::<Option<Vec<_>>>()?.into()
        } else {
            json::from_report(reader)?
        };
        page.insert(name, value);
    }
    Some(page)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExplainParams {
    id: Option<String>,
    utube: Option<String>,
}

async fn explain(
    State(state): State<Shared>,
    access: Access,
    Named(tube): Named<String>,
    Params(params): Params<ExplainParams>,
) -> Result<Response, Problem> {
    let args = match params {
        ExplainParams { id: Some(id), utube: None } => Args::new().json(&task_id(&id)?.into()),
        ExplainParams { id: None, utube: Some(utube) } => Args::new().json(&json!({ "utube": utube })),
        ExplainParams { id: None, utube: None } => Args::new(),
        _ => return Err(Problem::new(Kind::Malformed, "id and utube are given: name one of them")),
    };
    let mut explained =
        report(&state, &access, &method(&tube, "explain"), args, state.limits.timeout).await?;
    ids_as_texts(&mut explained, &TASK_IDS);
    Ok(answer(StatusCode::OK, &explained))
}

async fn set_paused(
    State(state): State<Shared>,
    access: Access,
    Named(tube): Named<String>,
    headers: HeaderMap,
    body: Body,
    name: &'static str,
) -> Result<Response, Problem> {
    let Reasoned { reason } = read_json(&state, &headers, body).await?;
    let args = Args::new().json(&given([("reason", reason.into())]));
    let changed = report(&state, &access, &method(&tube, name), args, state.limits.timeout).await?;
    Ok(answer(StatusCode::OK, &json!({ "changed": changed })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewJob {
    operation: String,
    filter: Map<String, Json>,
    #[serde(default)]
    dry_run: bool,
    counted: Option<u64>,
    to: Option<String>,
    delay: Option<f64>,
    pri: Option<u64>,
    rate: Option<f64>,
    reason: Option<String>,
}

async fn start(
    State(state): State<Shared>,
    access: Access,
    Named(tube): Named<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let NewJob { operation, filter: wanted, dry_run, counted, to, delay, pri, rate, reason } =
        read_json(&state, &headers, body).await?;
    let wanted = filter(wanted)?;
    let is_given = [counted.is_some(), to.is_some(), delay.is_some(), pri.is_some(), rate.is_some()];
    if operation == "count" && is_given.contains(&true) {
        let text = "count changes nothing: it has no counted, to, delay, pri or rate";
        return Err(Problem::new(Kind::Malformed, text));
    }
    let (name, args) = if operation == "count" {
        ("count", Args::new().json(&wanted))
    } else {
        let options = given([
            ("dry_run", dry_run.into()),
            ("counted", counted.into()),
            ("to", to.into()),
            ("delay", delay.into()),
            ("pri", pri.into()),
            ("rate", rate.into()),
            ("reason", reason.into()),
        ]);
        ("apply", Args::new().json(&operation.into()).json(&wanted).json(&options))
    };
    let job = report(&state, &access, &method(&tube, name), args, state.limits.timeout).await?;
    Ok(answer(StatusCode::ACCEPTED, &job))
}

async fn jobs(
    State(state): State<Shared>,
    access: Access,
    Named(tube): Named<String>,
) -> Result<Response, Problem> {
    let jobs = report(&state, &access, &method(&tube, "jobs"), Args::new(), state.limits.timeout).await?;
    Ok(answer(StatusCode::OK, &json!({ "jobs": jobs })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct JobsParams {
    limit: Option<u64>,
    before: Option<u64>,
}

async fn all_jobs(
    State(state): State<Shared>,
    access: Access,
    Params(JobsParams { limit, before }): Params<JobsParams>,
) -> Result<Response, Problem> {
    let args = Args::new().json(&given([("limit", limit.into()), ("before", before.into())]));
    let jobs = report(&state, &access, "queue.jobs", args, state.limits.timeout).await?;
    Ok(answer(StatusCode::OK, &json!({ "jobs": jobs })))
}

/// The number of a job in a path.
fn job_id(text: &str) -> Result<Json, Problem> {
    let wrong =
        || Problem::new(Kind::Malformed, format!("{text:?} is no id of a job: ids are whole numbers"));
    text.parse::<u64>().map(Json::from).map_err(|_| wrong())
}

async fn job(
    State(state): State<Shared>,
    access: Access,
    Named((tube, job)): Named<(String, String)>,
) -> Result<Response, Problem> {
    let args = Args::new().json(&job_id(&job)?);
    let job = report(&state, &access, &method(&tube, "job"), args, state.limits.timeout).await?;
    Ok(answer(StatusCode::OK, &job))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Control {
    action: String,
    rate: Option<f64>,
    reason: Option<String>,
}

async fn control(
    State(state): State<Shared>,
    access: Access,
    Named((tube, job)): Named<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let Control { action, rate, reason } = read_json(&state, &headers, body).await?;
    let options = given([("rate", rate.into()), ("reason", reason.into())]);
    let args = Args::new().json(&job_id(&job)?).json(&action.into()).json(&options);
    let job = report(&state, &access, &method(&tube, "control"), args, state.limits.timeout).await?;
    Ok(answer(StatusCode::OK, &job))
}

async fn undo(
    State(state): State<Shared>,
    access: Access,
    Named((tube, job)): Named<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let Reasoned { reason } = read_json(&state, &headers, body).await?;
    let args = Args::new().json(&job_id(&job)?).json(&given([("reason", reason.into())]));
    let job = report(&state, &access, &method(&tube, "undo"), args, state.limits.timeout).await?;
    Ok(answer(StatusCode::ACCEPTED, &job))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AuditParams {
    tube: Option<String>,
    limit: Option<u64>,
    before: Option<u64>,
}

async fn audit(
    State(state): State<Shared>,
    access: Access,
    Params(AuditParams { tube, limit, before }): Params<AuditParams>,
) -> Result<Response, Problem> {
    let options = given([("tube", tube.into()), ("limit", limit.into()), ("before", before.into())]);
    let args = Args::new().json(&options);
    let entries = report(&state, &access, "queue.audit", args, state.limits.timeout).await?;
    Ok(answer(StatusCode::OK, &json!({ "entries": entries })))
}
