//! Steering: find, explain, pause, jobs over all tasks that match, undo, audit. See docs/steering.md for what each does.
//!
//! Members of filters and reports keep their names. Ids of tasks are texts; in a filter they may be numbers as well.

use axum::http::StatusCode;
use axum::routing::{get, post};
use lycosa_tuple::mp::Reader;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};

use super::{
    Args, Client, Named, OPERATOR, Params, Posted, Reasoned, Reply, Route, VIEWER, answer, given,
    ids_as_texts, malformed, method, task_id, tasks, unexpected, whole_number,
};
use crate::http::json;
use crate::http::problem::{Kind, Problem};

pub(super) const ROUTES: &[Route] = &[
    Route::new("post", "/v1/tubes/{tube}/find", "findTasks", VIEWER, "Page")
        .summary("A page of the tasks that match a filter")
        .bodies(&[("application/json", "Find")])
        .attach(|| post(find)),
    Route::new("get", "/v1/tubes/{tube}/explain", "explain", VIEWER, "Explanation")
        .summary("Why a task, a sub-queue or a tube is not worked on, and until when")
        .query(&[
            ("id", "string", "the task"),
            ("utube", "string", "the sub-queue; without either, the tube"),
        ])
        .attach(|| get(explain)),
    Route::new("post", "/v1/tubes/{tube}/pause", "pauseTube", OPERATOR, "Changed")
        .summary("Hands out no tasks until the tube is resumed")
        .bodies(&[("application/json", "Reasoned")])
        .attach(|| post(|client, tube, body| set_paused(client, tube, body, "pause"))),
    Route::new("post", "/v1/tubes/{tube}/resume", "resumeTube", OPERATOR, "Changed")
        .summary("Hands out tasks again")
        .bodies(&[("application/json", "Reasoned")])
        .attach(|| post(|client, tube, body| set_paused(client, tube, body, "resume"))),
    Route::new("get", "/v1/tubes/{tube}/jobs", "listJobs", VIEWER, "Jobs")
        .summary("The jobs of the tube, the newest first")
        .attach(|| get(jobs)),
    Route::new("post", "/v1/tubes/{tube}/jobs", "startJob", OPERATOR, "")
        .summary("Counts or changes all tasks that match a filter, in slices")
        .bodies(&[("application/json", "NewJob")])
        .answers(&[(202, "Job")])
        .attach(|| post(start)),
    Route::new("get", "/v1/tubes/{tube}/jobs/{job}", "getJob", VIEWER, "Job")
        .summary("A job and how far it is")
        .attach(|| get(job)),
    Route::new("post", "/v1/tubes/{tube}/jobs/{job}/control", "controlJob", OPERATOR, "Job")
        .summary("Pauses, resumes or cancels a job, or changes its rate")
        .bodies(&[("application/json", "Control")])
        .attach(|| post(control)),
    Route::new("post", "/v1/tubes/{tube}/jobs/{job}/undo", "undoJob", OPERATOR, "")
        .summary("Begins a job that brings back what a job has changed")
        .bodies(&[("application/json", "Reasoned")])
        .answers(&[(202, "Job")])
        .attach(|| post(undo)),
    Route::new("get", "/v1/jobs", "listAllJobs", VIEWER, "Jobs")
        .summary("The jobs of all tubes of the token, the newest first")
        .query(&[
            ("limit", "integer", "jobs at most, up to 100"),
            ("before", "integer", "jobs with smaller ids: the smallest id of the page before"),
        ])
        .attach(|| get(all_jobs)),
    Route::new("get", "/v1/audit", "listAudit", VIEWER, "Audit")
        .summary("Who steered what, when and why, the newest entries first; needs a token for every tube")
        .query(&[
            ("tube", "string", "entries about this tube"),
            ("limit", "integer", "entries at most, up to 1000; 100 without it"),
            ("before", "integer", "entries with smaller ids: the smallest id of the page before"),
        ])
        .attach(|| get(audit)),
];

/// Members of reports that are ids of tasks.
const TASK_IDS: [&str; 3] = ["id", "by", "highest"];

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Find {
    #[serde(default, skip_serializing)]
    filter: Map<String, Json>,
    limit: Option<u64>,
    cursor: Option<String>,
}

/// A filter as the queue reads it.
fn filter(mut filter: Map<String, Json>) -> Result<Json, Problem> {
    let read = |id: &mut Json| -> Result<(), Problem> {
        if let Some(text) = id.as_str() {
            *id = task_id(text)?.into();
        }
        Ok(())
    };
    for name in ["id_from", "id_to"] {
        filter.get_mut(name).map_or(Ok(()), read)?;
    }
    for item in filter.get_mut("ids").and_then(Json::as_array_mut).into_iter().flatten() {
        match item {
            Json::Array(pair) => pair.first_mut().map_or(Ok(()), read)?,
            id => read(id)?,
        }
    }
    Ok(filter.into())
}

async fn find(client: Client, Named(tube): Named<String>, Posted(wanted): Posted<Find>) -> Reply {
    let options = given(&wanted);
    let args = Args::new().json(filter(wanted.filter)?).json(options);
    let function = method(&tube, "find");
    let values = client.call(&function, args).await?;
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

async fn explain(client: Client, Named(tube): Named<String>, Params(params): Params<ExplainParams>) -> Reply {
    let args = match params {
        ExplainParams { id: Some(id), utube: None } => Args::new().json(task_id(&id)?),
        ExplainParams { id: None, utube: Some(utube) } => Args::new().json(json!({ "utube": utube })),
        ExplainParams { id: None, utube: None } => Args::new(),
        _ => return Err(malformed("id and utube are given: name one of them")),
    };
    let mut explained = client.report(&method(&tube, "explain"), args).await?;
    ids_as_texts(&mut explained, &TASK_IDS);
    Ok(answer(StatusCode::OK, &explained))
}

async fn set_paused(
    client: Client,
    Named(tube): Named<String>,
    Posted(reasoned): Posted<Reasoned>,
    name: &'static str,
) -> Reply {
    client.answer_as("changed", &method(&tube, name), Args::new().json(given(&reasoned))).await
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct NewJob {
    #[serde(skip_serializing)]
    operation: String,
    #[serde(skip_serializing)]
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

async fn start(client: Client, Named(tube): Named<String>, Posted(new): Posted<NewJob>) -> Reply {
    let options = given(&new);
    let NewJob { operation, filter: wanted, counted, to, delay, pri, rate, .. } = new;
    let wanted = filter(wanted)?;
    let is_given = [counted.is_some(), to.is_some(), delay.is_some(), pri.is_some(), rate.is_some()];
    if operation == "count" && is_given.contains(&true) {
        return Err(malformed("count changes nothing: it has no counted, to, delay, pri or rate"));
    }
    let (name, args) = if operation == "count" {
        ("count", Args::new().json(wanted))
    } else {
        ("apply", Args::new().json(operation).json(wanted).json(options))
    };
    let job = client.report(&method(&tube, name), args).await?;
    Ok(answer(StatusCode::ACCEPTED, &job))
}

async fn jobs(client: Client, Named(tube): Named<String>) -> Reply {
    client.answer_as("jobs", &method(&tube, "jobs"), Args::new()).await
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct JobsParams {
    limit: Option<u64>,
    before: Option<u64>,
}

async fn all_jobs(client: Client, Params(params): Params<JobsParams>) -> Reply {
    client.answer_as("jobs", "queue.jobs", Args::new().json(given(&params))).await
}

/// The number of a job in a path.
fn job_id(text: &str) -> Result<Json, Problem> {
    whole_number(text, Kind::Malformed, "id of a job: ids").map(Json::from)
}

async fn job(client: Client, Named((tube, job)): Named<(String, String)>) -> Reply {
    client.answer(&method(&tube, "job"), Args::new().json(job_id(&job)?)).await
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Control {
    #[serde(skip_serializing)]
    action: String,
    rate: Option<f64>,
    reason: Option<String>,
}

async fn control(
    client: Client,
    Named((tube, job)): Named<(String, String)>,
    Posted(order): Posted<Control>,
) -> Reply {
    let options = given(&order);
    let args = Args::new().json(job_id(&job)?).json(order.action).json(options);
    client.answer(&method(&tube, "control"), args).await
}

async fn undo(
    client: Client,
    Named((tube, job)): Named<(String, String)>,
    Posted(reasoned): Posted<Reasoned>,
) -> Reply {
    let args = Args::new().json(job_id(&job)?).json(given(&reasoned));
    let job = client.report(&method(&tube, "undo"), args).await?;
    Ok(answer(StatusCode::ACCEPTED, &job))
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct AuditParams {
    tube: Option<String>,
    limit: Option<u64>,
    before: Option<u64>,
}

async fn audit(client: Client, Params(params): Params<AuditParams>) -> Reply {
    client.answer_as("entries", "queue.audit", Args::new().json(given(&params))).await
}
