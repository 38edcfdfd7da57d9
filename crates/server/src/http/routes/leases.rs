//! Work without a connection: tasks are taken by lease, and settled by the lease's token.

use std::time::Duration;

use axum::http::StatusCode;
use axum::routing::post;
use lycosa_tuple::mp::Reader;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};

use super::{
    Args, Client, Named, OPERATOR, Params, Posted, Reply, Route, answer, check_seconds, given, malformed,
    method, silent, tasks, unexpected,
};
use crate::http::bridge::{Call, MAX_CALLS, Repetition, Values};
use crate::http::problem::Problem;

/// Seconds of a lease unless the request says otherwise.
const DEFAULT_LEASE: f64 = 60.0;

/// Seconds that a take may wait.
const MAX_WAIT: f64 = 600.0;

/// Tasks that a take may ask for.
const MAX_TASKS: u64 = 1000;

pub(super) const ROUTES: &[Route] = &[
    Route::new("post", "/v1/tubes/{tube}/take", "takeTasks", OPERATOR, "TakenTasks")
        .summary("Takes tasks by lease; waits for the first one")
        .query(&[
            ("max", "integer", "tasks to take at most, 1 to 1000; 1 without it"),
            ("wait", "number", "seconds to wait for the first task, up to 600; none without it"),
            ("lease", "number", "seconds for which the tasks are held, up to a day; 60 without it"),
        ])
        .attach(|| post(take)),
    Route::new("post", "/v1/tubes/{tube}/settle", "settleTasks", OPERATOR, "Settled")
        .summary("Finishes, gives back, sets aside or prolongs taken tasks, each on its own")
        .bodies(&[("application/json", "Settle")])
        .attach(|| post(settle)),
];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TakeParams {
    max: Option<u64>,
    wait: Option<f64>,
    lease: Option<f64>,
}

async fn take(client: Client, Named(tube): Named<String>, Params(params): Params<TakeParams>) -> Reply {
    let TakeParams { max, wait, lease } = params;
    let (max, wait, lease) = (max.unwrap_or(1), wait.unwrap_or(0.0), lease.unwrap_or(DEFAULT_LEASE));
    if !(1..=MAX_TASKS).contains(&max) {
        return Err(malformed(format!("max is {max}: use 1 to {MAX_TASKS}")));
    }
    if !(0.0..=MAX_WAIT).contains(&wait) {
        return Err(malformed(format!("wait is {wait}: use 0 to {MAX_WAIT} seconds")));
    }
    let args = Args::new().json(max).json(wait).json(json!({ "lease": lease }));
    let function = method(&tube, "take_many");
    let patient = Client { limit: client.limit + Duration::from_secs_f64(wait), ..client.clone() };
    let values = patient.call_with(&function, args, (Repetition::Leases, Some(tube))).await?;
    let mut reader = Reader::new(&values.bytes);
    let is_nothing = reader.nil().is_ok() || values.count == 0;
    if is_nothing && let Some(problem) = silent(&client).await? {
        return Err(problem);
    }
    let count = if is_nothing { 0 } else { reader.array().map_err(|_| unexpected(&function))? };
    let tasks: Option<Vec<Json>> = (0..count).map(|_| tasks::whole(&mut reader)).collect();
    let tasks = tasks.ok_or_else(|| unexpected(&function))?;
    Ok(answer(StatusCode::OK, &json!({ "tasks": tasks })))
}

/// What becomes of taken tasks: each by the token of its lease.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settle {
    #[serde(default)]
    acks: Vec<String>,
    #[serde(default)]
    releases: Vec<Release>,
    #[serde(default)]
    buries: Vec<Bury>,
    #[serde(default)]
    touches: Vec<Touch>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Release {
    #[serde(skip_serializing)]
    lease: String,
    delay: Option<f64>,
    reason: Option<String>,
    attempted: Option<bool>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Bury {
    #[serde(skip_serializing)]
    lease: String,
    reason: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Touch {
    lease: String,
    /// Until the lease ends, from now on.
    seconds: f64,
}

impl Settle {
    /// Calls that settle a task each, with the list and the lease to which their results belong.
    fn items(self, tube: &str) -> Vec<((&'static str, String), Call)> {
        let item = |list, name: &str, lease: String, more: Option<Json>| {
            let args = more.into_iter().fold(Args::new().json(lease.as_str()), Args::json).finish();
            ((list, lease), Call { function: method(tube, name), args })
        };
        let acks = self.acks.into_iter().map(|lease| item("acks", "ack", lease, None));
        let releases = self.releases.into_iter().map(|release| {
            let options = given(&release);
            item("releases", "release", release.lease, Some(options.into()))
        });
        let buries = self.buries.into_iter().map(|bury| {
            let options = given(&bury);
            item("buries", "bury", bury.lease, Some(options.into()))
        });
        let touches = self.touches.into_iter();
        let touches =
            touches.map(|Touch { lease, seconds }| item("touches", "touch", lease, Some(seconds.into())));
        acks.chain(releases).chain(buries).chain(touches).collect()
    }
}

async fn settle(client: Client, Named(tube): Named<String>, Posted(settle): Posted<Settle>) -> Reply {
    for release in &settle.releases {
        check_seconds("releases: ", "delay", release.delay)?;
    }
    let items = settle.items(&tube);
    if items.is_empty() || items.len() > MAX_CALLS {
        let detail = format!("{} tasks are to be settled: name 1 to {MAX_CALLS} in one request", items.len());
        return Err(malformed(detail));
    }
    let (places, calls): (Vec<_>, Vec<_>) = items.into_iter().unzip();
    let further = (Repetition::ActsAgain, None);
    let outcomes = client.state.bridge.order(&client.access, calls, further, client.limit).await?;
    // The status of a request about one task is that of the task.
    if let [Err(error)] = outcomes.as_slice() {
        return Err(Problem::from(error.clone()));
    }
    let mut shown: Map<String, Json> = Map::new();
    for ((list, lease), outcome) in places.into_iter().zip(outcomes) {
        let item = match outcome.map_err(Problem::from) {
            Ok(values) => settled(&lease, &values),
            Err(problem) => json!({ "lease": lease, "done": false, "problem": problem.to_json() }),
        };
        if let Some(items) = shown.entry(list).or_insert_with(|| json!([])).as_array_mut() {
            items.push(item);
        }
    }
    Ok(answer(StatusCode::OK, &shown.into()))
}

fn settled(lease: &str, values: &Values) -> Json {
    let task = tasks::whole(&mut Reader::new(&values.bytes)).unwrap_or_default();
    let mut item = json!({ "lease": lease, "done": true, "id": task["id"], "state": task["state"] });
    if let Some(ends) = task.get("lease_ends") {
        item["lease_ends"] = ends.clone();
    }
    item
}
