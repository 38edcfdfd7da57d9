//! Routes of administrators: create and drop tubes, and the server as a whole.

use std::sync::PoisonError;
use std::time::Duration;

use axum::http::StatusCode;
use axum::routing::{delete, get, post, put};
use lycosa_instance::TokenRole;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};

use super::{
    ADMINISTRATOR, Args, Client, Named, OPERATOR, Params, Posted, Reasoned, Reply, Route, VIEWER, answer,
    given, method, whole_number,
};
use crate::http::problem::{Kind, Problem};
use crate::logging::tail;

/// How long a snapshot may take.
const SNAPSHOT_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) const ROUTES: &[Route] = &[
    Route::new("put", "/v1/tubes/{tube}", "createTube", ADMINISTRATOR, "Named")
        .summary("Creates a tube; one of the same type that exists stays as it is")
        .bodies(&[("application/json", "NewTube")])
        .attach(|| put(create)),
    Route::new("delete", "/v1/tubes/{tube}", "dropTube", ADMINISTRATOR, "Named")
        .summary("Drops a tube with its tasks; refused while tasks are taken or calls wait")
        .attach(|| delete(|client, tube| on_tube(client, tube, "drop"))),
    Route::new("post", "/v1/tubes/{tube}/truncate", "truncateTube", ADMINISTRATOR, "Named")
        .summary("Deletes all tasks of a tube; ids begin at 0")
        .attach(|| post(|client, tube| on_tube(client, tube, "truncate"))),
    Route::new("get", "/v1/sessions", "listSessions", VIEWER, "Report")
        .summary("Who is connected to the queue, and who holds tasks")
        .shared()
        .attach(|| get(|client| tell(client, "queue.sessions"))),
    Route::new("post", "/v1/sessions/{connection}/release", "releaseSession", OPERATOR, "Changed")
        .summary("Releases all tasks that the session of a connection holds; the session goes on")
        .bodies(&[("application/json", "Reasoned")])
        .attach(|| post(|client, id, body| on_session(client, id, body, "lycosa.session.release"))),
    Route::new("post", "/v1/sessions/{connection}/disconnect", "disconnectSession", ADMINISTRATOR, "Changed")
        .summary("Closes a client's connection at once; replies that it has not read are dropped")
        .bodies(&[("application/json", "Reasoned")])
        .attach(|| post(|client, id, body| on_session(client, id, body, "lycosa.session.disconnect"))),
    Route::new("get", "/v1/info", "getInfo", VIEWER, "Report")
        .summary("What box.info() tells about the server")
        .shared()
        .attach(|| get(|client| tell(client, "box.info"))),
    Route::new("get", "/v1/settings", "listSettings", ADMINISTRATOR, "Settings")
        .summary("The effective settings, each with its source; passwords are left out")
        .attach(|| get(settings)),
    Route::new("get", "/v1/log", "tailLog", ADMINISTRATOR, "Log")
        .summary("The newest lines of the server's log, as far as they are in memory")
        .query(&[
            ("after", "integer", "lines with larger numbers: the last number of the answer before"),
            ("limit", "integer", "lines at most, up to 1000; 200 without it"),
        ])
        .attach(|| get(log)),
    Route::new("get", "/v1/status", "getStatus", VIEWER, "Status")
        .summary("The numbers of monitoring: the server's, and a page of the tubes of the token")
        .query(STATUS_QUERY)
        .shared()
        .attach(|| get(status)),
    Route::new("get", "/v1/tubes/{tube}/status", "getTubeStatus", VIEWER, "TubeStatus")
        .summary("The numbers of monitoring of a tube, with its busiest sub-queues")
        .query(&[("history", "boolean", "true: with the histories")])
        .shared()
        .attach(|| get(tube_status)),
    Route::new("post", "/v1/checkpoint", "takeCheckpoint", ADMINISTRATOR, "Report")
        .summary("Writes all data into a snapshot and answers when it is complete")
        .attach(|| post(checkpoint)),
    Route::new("get", "/v1/expiration", "listExpirationTasks", VIEWER, "Expirations")
        .summary("The expiration tasks with their statistics")
        .attach(|| get(expirations)),
    Route::new("put", "/v1/expiration/{name}", "startExpirationTask", ADMINISTRATOR, "Report")
        .summary("Begins an expiration task over a space, or changes one")
        .bodies(&[("application/json", "NewExpiration")])
        .attach(|| put(start_expiration)),
    Route::new("delete", "/v1/expiration/{name}", "stopExpirationTask", ADMINISTRATOR, "Report")
        .summary("Ends an expiration task")
        .attach(|| delete(stop_expiration)),
    Route::new("post", "/v1/promote", "promote", ADMINISTRATOR, "Report")
        .summary("Lets this server take writes")
        .attach(|| post(|client| change_role(client, "box.ctl.promote", Args::new()))),
    Route::new("post", "/v1/demote", "demote", ADMINISTRATOR, "Report")
        .summary("Lets this server take no more writes")
        .attach(|| {
            post(|client| change_role(client, "box.cfg", Args::new().json(json!({ "read_only": true }))))
        }),
    Route::new("post", "/v1/cluster/transfer", "transferLeadership", ADMINISTRATOR, "Successor")
        .summary("Asks another voter of the group to lead")
        .bodies(&[("application/json", "Transfer")])
        .attach(|| post(transfer)),
    Route::new("get", "/v1/tokens", "listTokens", ADMINISTRATOR, "Tokens")
        .summary("The tokens, without their secrets")
        .attach(|| get(tokens)),
    Route::new("post", "/v1/tokens", "addToken", ADMINISTRATOR, "")
        .summary("Makes a token; its secret is in this answer alone")
        .bodies(&[("application/json", "NewToken")])
        .answers(&[(201, "Token")])
        .attach(|| post(add_token)),
    Route::new("delete", "/v1/tokens/{name}", "revokeToken", ADMINISTRATOR, "Named")
        .summary("Ends a token: its requests and waiting calls are refused from now on")
        .attach(|| delete(revoke_token)),
];

const STATUS_QUERY: &[(&str, &str, &str)] = &[
    ("after", "integer", "tubes with ids above this one: next of the page before"),
    ("limit", "integer", "tubes at most; 200 without it"),
    ("history", "boolean", "true: with the histories"),
    ("issues", "boolean", "true: with what is wrong with the server and each tube"),
];

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct StatusParams {
    after: Option<u64>,
    limit: Option<u64>,
    #[serde(default)]
    history: bool,
    #[serde(default)]
    issues: bool,
}

async fn status(client: Client, Params(params): Params<StatusParams>) -> Reply {
    client.reported("queue.status", Args::new().json(given(&params)), Ok).await
}

async fn settings(client: Client) -> Reply {
    client.admit(TokenRole::Administrator, "GET /v1/settings").await?;
    // A thread that panicked with the lock has at most left the former settings.
    let settings = client.state.settings.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(answer(StatusCode::OK, &json!({ "settings": settings })))
}

/// Lines that `/v1/log` answers unless `limit` says otherwise.
const DEFAULT_LINES: usize = 200;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LogParams {
    after: Option<u64>,
    limit: Option<usize>,
}

async fn log(client: Client, Params(LogParams { after, limit }): Params<LogParams>) -> Reply {
    client.admit(TokenRole::Administrator, "GET /v1/log").await?;
    let limit = limit.unwrap_or(DEFAULT_LINES).min(tail::MAX_LINES);
    let lines = tail::after(after, limit).into_iter();
    let lines: Json = lines.map(|(number, text)| json!({ "number": number, "text": text })).collect();
    Ok(answer(StatusCode::OK, &json!({ "lines": lines })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TubeStatusParams {
    #[serde(default)]
    history: bool,
}

async fn tube_status(
    client: Client,
    Named(tube): Named<String>,
    Params(TubeStatusParams { history }): Params<TubeStatusParams>,
) -> Reply {
    let args = Args::new().json(json!({ "tube": tube, "history": history }));
    let shape = |mut status: Json| {
        let found = status["tubes"].get_mut(0).map(Json::take);
        found.ok_or_else(|| Problem::new(Kind::NoSuchTube, format!("tube {tube:?} does not exist")))
    };
    client.reported("queue.status", args, shape).await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewTube {
    r#type: String,
    #[serde(default)]
    options: Map<String, Json>,
}

async fn create(client: Client, Named(tube): Named<String>, Posted(new): Posted<NewTube>) -> Reply {
    let NewTube { r#type, mut options } = new;
    options.insert("if_not_exists".to_owned(), true.into());
    let args = Args::new().json(tube.as_str()).json(r#type.as_str()).json(options);
    let made = client.report("queue.create_tube", args).await?;
    if made["type"] != r#type {
        let present = made["type"].as_str().unwrap_or_default();
        let detail = format!("tube {tube:?} exists, and its type is {present}, not {type}");
        return Err(Problem::new(Kind::Conflict, detail));
    }
    Ok(answer(StatusCode::OK, &json!({ "name": tube })))
}

/// Calls a method of a tube that has no arguments.
async fn on_tube(client: Client, Named(tube): Named<String>, name: &'static str) -> Reply {
    client.report(&method(&tube, name), Args::new()).await?;
    Ok(answer(StatusCode::OK, &json!({ "name": tube })))
}

/// Calls a function that tells about the server.
async fn tell(client: Client, function: &'static str) -> Reply {
    client.reported(function, Args::new(), Ok).await
}

/// Calls a function about the session of a connection.
async fn on_session(
    client: Client,
    Named(connection): Named<String>,
    Posted(reasoned): Posted<Reasoned>,
    function: &'static str,
) -> Reply {
    let id = whole_number(&connection, Kind::NoSuchSession, "connection: they")?;
    client.answer_as("changed", function, Args::new().json(id).json(given(&reasoned))).await
}

async fn checkpoint(client: Client) -> Reply {
    Client { limit: SNAPSHOT_LIMIT, ..client.clone() }.report("box.snapshot", Args::new()).await?;
    let info = client.report("box.info", Args::new()).await?;
    Ok(answer(StatusCode::OK, &info["checkpoint"]))
}

async fn expirations(client: Client) -> Reply {
    let tasks = client.report("expiration.list", Args::new()).await?;
    let statistics = client.report("expiration.stats", Args::new()).await?;
    Ok(answer(StatusCode::OK, &json!({ "tasks": tasks, "statistics": statistics })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewExpiration {
    space: String,
    #[serde(default)]
    options: Map<String, Json>,
}

async fn start_expiration(
    client: Client,
    Named(name): Named<String>,
    Posted(NewExpiration { space, options }): Posted<NewExpiration>,
) -> Reply {
    client.answer("expiration.start", Args::new().json(name).json(space).json(options)).await
}

async fn stop_expiration(client: Client, Named(name): Named<String>) -> Reply {
    client.answer("expiration.stop", Args::new().json(name)).await
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Transfer {
    #[serde(skip_serializing)]
    node: Option<u64>,
    reason: Option<String>,
}

async fn transfer(client: Client, Posted(wanted): Posted<Transfer>) -> Reply {
    client.answer("lycosa.cluster.transfer", Args::new().json(wanted.node).json(given(&wanted))).await
}

/// Lets the server take writes, or no more. Answers whether it takes writes now, and its clock.
async fn change_role(client: Client, function: &'static str, args: Args) -> Reply {
    client.report(function, args).await?;
    let info = client.report("box.info", Args::new()).await?;
    let shown = json!({ "read_only": info["ro"], "status": info["status"], "vclock": info["vclock"] });
    Ok(answer(StatusCode::OK, &shown))
}

async fn tokens(client: Client) -> Reply {
    client.answer_as("tokens", "lycosa.token.list", Args::new()).await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewToken {
    name: String,
    role: String,
    tubes: Vec<String>,
    ttl: Option<f64>,
}

async fn add_token(client: Client, Posted(NewToken { name, role, tubes, ttl }): Posted<NewToken>) -> Reply {
    let options = json!({ "role": role, "tubes": tubes, "ttl": ttl });
    let made = client.report("lycosa.token.add", Args::new().json(name).json(options)).await?;
    Ok(answer(StatusCode::CREATED, &made))
}

async fn revoke_token(client: Client, Named(name): Named<String>) -> Reply {
    client.report("lycosa.token.revoke", Args::new().json(name.as_str())).await?;
    Ok(answer(StatusCode::OK, &json!({ "name": name })))
}
