//! Routes of administrators: create and drop tubes, and the server as a whole.

use std::sync::PoisonError;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::{delete, get, post, put};
use lycosa_instance::TokenRole;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use super::{
    Args, Named, Params, Reasoned, Route, SHARED_HEADERS, admit, answer, given, method, read_json, report,
    reported,
};
use crate::http::Shared;
use crate::http::access::Access;
use crate::http::problem::{Kind, Problem};
use crate::logging::tail;

/// How long a snapshot may take.
const SNAPSHOT_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);

const VIEWER: Option<TokenRole> = Some(TokenRole::Viewer);
const OPERATOR: Option<TokenRole> = Some(TokenRole::Operator);
const ADMINISTRATOR: Option<TokenRole> = Some(TokenRole::Administrator);

pub(super) const ROUTES: &[Route] = &[
    Route {
        method: "put",
        path: "/v1/tubes/{tube}",
        operation: "createTube",
        summary: "Creates a tube; one of the same type that exists stays as it is",
        role: ADMINISTRATOR,
        query: &[],
        headers: &[],
        bodies: &[("application/json", "NewTube")],
        answers: &[(200, "Named")],
        attach: || put(create),
    },
    Route {
        method: "delete",
        path: "/v1/tubes/{tube}",
        operation: "dropTube",
        summary: "Drops a tube with its tasks; refused while tasks are taken or calls wait",
        role: ADMINISTRATOR,
        query: &[],
        headers: &[],
        bodies: &[],
        answers: &[(200, "Named")],
        attach: || delete(|state, access, tube| on_tube(state, access, tube, "drop")),
    },
    Route {
        method: "post",
        path: "/v1/tubes/{tube}/truncate",
        operation: "truncateTube",
        summary: "Deletes all tasks of a tube; ids begin at 0",
        role: ADMINISTRATOR,
        query: &[],
        headers: &[],
        bodies: &[],
        answers: &[(200, "Named")],
        attach: || post(|state, access, tube| on_tube(state, access, tube, "truncate")),
    },
    Route {
        method: "get",
        path: "/v1/sessions",
        operation: "listSessions",
        summary: "Who is connected to the queue, and who holds tasks",
        role: VIEWER,
        query: &[],
        headers: SHARED_HEADERS,
        bodies: &[],
        answers: &[(200, "Report")],
        attach: || get(|state, access, headers| tell(state, access, headers, "queue.sessions")),
    },
    Route {
        method: "post",
        path: "/v1/sessions/{connection}/release",
        operation: "releaseSession",
        summary: "Releases all tasks that the session of a connection holds; the session goes on",
        role: OPERATOR,
        query: &[],
        headers: &[],
        bodies: &[("application/json", "Reasoned")],
        answers: &[(200, "Changed")],
        attach: || {
            post(|state, access, connection, headers, body| {
                on_session(state, access, connection, (headers, body), "lycosa.session.release")
            })
        },
    },
    Route {
        method: "post",
        path: "/v1/sessions/{connection}/disconnect",
        operation: "disconnectSession",
        summary: "Closes a client's connection at once; replies that it has not read are dropped",
        role: ADMINISTRATOR,
        query: &[],
        headers: &[],
        bodies: &[("application/json", "Reasoned")],
        answers: &[(200, "Changed")],
        attach: || {
            post(|state, access, connection, headers, body| {
                on_session(state, access, connection, (headers, body), "lycosa.session.disconnect")
            })
        },
    },
    Route {
        method: "get",
        path: "/v1/info",
        operation: "getInfo",
        summary: "What box.info() tells about the server",
        role: VIEWER,
        query: &[],
        headers: SHARED_HEADERS,
        bodies: &[],
        answers: &[(200, "Report")],
        attach: || get(|state, access, headers| tell(state, access, headers, "box.info")),
    },
    Route {
        method: "get",
        path: "/v1/settings",
        operation: "listSettings",
        summary: "The effective settings, each with its source; passwords are left out",
        role: ADMINISTRATOR,
        query: &[],
        headers: &[],
        bodies: &[],
        answers: &[(200, "Settings")],
        attach: || get(settings),
    },
    Route {
        method: "get",
        path: "/v1/log",
        operation: "tailLog",
        summary: "The newest lines of the server's log, as far as they are in memory",
        role: ADMINISTRATOR,
        query: &[
            ("after", "integer", "lines with larger numbers: the last number of the answer before"),
            ("limit", "integer", "lines at most, up to 1000; 200 without it"),
        ],
        headers: &[],
        bodies: &[],
        answers: &[(200, "Log")],
        attach: || get(log),
    },
    Route {
        method: "get",
        path: "/v1/status",
        operation: "getStatus",
        summary: "The numbers of monitoring: the server's, and a page of the tubes of the token",
        role: VIEWER,
        query: STATUS_QUERY,
        headers: SHARED_HEADERS,
        bodies: &[],
        answers: &[(200, "Status")],
        attach: || get(status),
    },
    Route {
        method: "get",
        path: "/v1/tubes/{tube}/status",
        operation: "getTubeStatus",
        summary: "The numbers of monitoring of a tube, with its busiest sub-queues",
        role: VIEWER,
        query: &[("history", "boolean", "true: with the histories")],
        headers: SHARED_HEADERS,
        bodies: &[],
        answers: &[(200, "TubeStatus")],
        attach: || get(tube_status),
    },
    Route {
        method: "post",
        path: "/v1/checkpoint",
        operation: "takeCheckpoint",
        summary: "Writes all data into a snapshot and answers when it is complete",
        role: ADMINISTRATOR,
        query: &[],
        headers: &[],
        bodies: &[],
        answers: &[(200, "Report")],
        attach: || post(checkpoint),
    },
    Route {
        method: "get",
        path: "/v1/expiration",
        operation: "listExpirationTasks",
        summary: "The expiration tasks with their statistics",
        role: VIEWER,
        query: &[],
        headers: &[],
        bodies: &[],
        answers: &[(200, "Expirations")],
        attach: || get(expirations),
    },
    Route {
        method: "put",
        path: "/v1/expiration/{name}",
        operation: "startExpirationTask",
        summary: "Begins an expiration task over a space, or changes one",
        role: ADMINISTRATOR,
        query: &[],
        headers: &[],
        bodies: &[("application/json", "NewExpiration")],
        answers: &[(200, "Report")],
        attach: || put(start_expiration),
    },
    Route {
        method: "delete",
        path: "/v1/expiration/{name}",
        operation: "stopExpirationTask",
        summary: "Ends an expiration task",
        role: ADMINISTRATOR,
        query: &[],
        headers: &[],
        bodies: &[],
        answers: &[(200, "Report")],
        attach: || delete(stop_expiration),
    },
    Route {
        method: "post",
        path: "/v1/promote",
        operation: "promote",
        summary: "Lets this server take writes",
        role: ADMINISTRATOR,
        query: &[],
        headers: &[],
        bodies: &[],
        answers: &[(200, "Report")],
        attach: || post(promote),
    },
    Route {
        method: "post",
        path: "/v1/demote",
        operation: "demote",
        summary: "Lets this server take no more writes",
        role: ADMINISTRATOR,
        query: &[],
        headers: &[],
        bodies: &[],
        answers: &[(200, "Report")],
        attach: || post(demote),
    },
    Route {
        method: "post",
        path: "/v1/cluster/transfer",
        operation: "transferLeadership",
        summary: "Asks another voter of the group to lead",
        role: ADMINISTRATOR,
        query: &[],
        headers: &[],
        bodies: &[("application/json", "Transfer")],
        answers: &[(200, "Successor")],
        attach: || post(transfer),
    },
    Route {
        method: "get",
        path: "/v1/tokens",
        operation: "listTokens",
        summary: "The tokens, without their secrets",
        role: ADMINISTRATOR,
        query: &[],
        headers: &[],
        bodies: &[],
        answers: &[(200, "Tokens")],
        attach: || get(tokens),
    },
    Route {
        method: "post",
        path: "/v1/tokens",
        operation: "addToken",
        summary: "Makes a token; its secret is in this answer alone",
        role: ADMINISTRATOR,
        query: &[],
        headers: &[],
        bodies: &[("application/json", "NewToken")],
        answers: &[(201, "Token")],
        attach: || post(add_token),
    },
    Route {
        method: "delete",
        path: "/v1/tokens/{name}",
        operation: "revokeToken",
        summary: "Ends a token: its requests and waiting calls are refused from now on",
        role: ADMINISTRATOR,
        query: &[],
        headers: &[],
        bodies: &[],
        answers: &[(200, "Named")],
        attach: || delete(revoke_token),
    },
];

const STATUS_QUERY: &[(&str, &str, &str)] = &[
    ("after", "integer", "tubes with ids above this one: next of the page before"),
    ("limit", "integer", "tubes at most; 200 without it"),
    ("history", "boolean", "true: with the histories"),
    ("issues", "boolean", "true: with what is wrong with the server and each tube"),
];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StatusParams {
    after: Option<u64>,
    limit: Option<u64>,
    #[serde(default)]
    history: bool,
    #[serde(default)]
    issues: bool,
}

async fn status(
    State(state): State<Shared>,
    access: Access,
    headers: HeaderMap,
    Params(StatusParams { after, limit, history, issues }): Params<StatusParams>,
) -> Result<Response, Problem> {
    let options = given([
        ("after", after.into()),
        ("limit", limit.into()),
        ("history", history.into()),
        ("issues", issues.into()),
    ]);
    let args = Args::new().json(&options);
    reported(&state, access, &headers, "queue.status", args, Ok).await
}

async fn settings(State(state): State<Shared>, access: Access) -> Result<Response, Problem> {
    admit(&state, &access, TokenRole::Administrator, "GET /v1/settings").await?;
    // A thread that panicked with the lock has at most left the former settings.
    let settings = state.settings.lock().unwrap_or_else(PoisonError::into_inner).clone();
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

async fn log(
    State(state): State<Shared>,
    access: Access,
    Params(LogParams { after, limit }): Params<LogParams>,
) -> Result<Response, Problem> {
    admit(&state, &access, TokenRole::Administrator, "GET /v1/log").await?;
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
    State(state): State<Shared>,
    access: Access,
    headers: HeaderMap,
    Named(tube): Named<String>,
    Params(TubeStatusParams { history }): Params<TubeStatusParams>,
) -> Result<Response, Problem> {
    let args = Args::new().json(&json!({ "tube": tube, "history": history }));
    let shape = |mut status: Json| {
        let found = status["tubes"].get_mut(0).map(Json::take);
        found.ok_or_else(|| Problem::new(Kind::NoSuchTube, format!("tube {tube:?} does not exist")))
    };
    reported(&state, access, &headers, "queue.status", args, shape).await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewTube {
    r#type: String,
    #[serde(default)]
    options: Map<String, Json>,
}

async fn create(
    State(state): State<Shared>,
    access: Access,
    Named(tube): Named<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let NewTube { r#type, mut options } = read_json(&state, &headers, body).await?;
    options.insert("if_not_exists".to_owned(), true.into());
    let args = Args::new().json(&tube.as_str().into()).json(&r#type.as_str().into()).json(&options.into());
    let made = report(&state, &access, "queue.create_tube", args, state.limits.timeout).await?;
    if made["type"] != r#type {
        let present = made["type"].as_str().unwrap_or_default();
        let detail = format!("tube {tube:?} exists, and its type is {present}, not {type}");
        return Err(Problem::new(Kind::Conflict, detail));
    }
    Ok(answer(StatusCode::OK, &json!({ "name": tube })))
}

/// Calls a method of a tube that has no arguments.
async fn on_tube(
    State(state): State<Shared>,
    access: Access,
    Named(tube): Named<String>,
    name: &'static str,
) -> Result<Response, Problem> {
    report(&state, &access, &method(&tube, name), Args::new(), state.limits.timeout).await?;
    Ok(answer(StatusCode::OK, &json!({ "name": tube })))
}

/// Calls a function that tells about the server.
async fn tell(
    State(state): State<Shared>,
    access: Access,
    headers: HeaderMap,
    function: &'static str,
) -> Result<Response, Problem> {
    reported(&state, access, &headers, function, Args::new(), Ok).await
}

/// Calls a function about the session of a connection.
async fn on_session(
    State(state): State<Shared>,
    access: Access,
    Named(connection): Named<String>,
    (headers, body): (HeaderMap, Body),
    function: &'static str,
) -> Result<Response, Problem> {
    let Reasoned { reason } = read_json(&state, &headers, body).await?;
    let missing = || {
        Problem::new(Kind::NoSuchSession, format!("{connection:?} is no connection: they are whole numbers"))
    };
    let id: u64 = connection.parse().map_err(|_| missing())?;
    let args = Args::new().json(&id.into()).json(&given([("reason", reason.into())]));
    let changed = report(&state, &access, function, args, state.limits.timeout).await?;
    Ok(answer(StatusCode::OK, &json!({ "changed": changed })))
}

async fn checkpoint(State(state): State<Shared>, access: Access) -> Result<Response, Problem> {
    report(&state, &access, "box.snapshot", Args::new(), SNAPSHOT_LIMIT).await?;
    let info = report(&state, &access, "box.info", Args::new(), state.limits.timeout).await?;
    Ok(answer(StatusCode::OK, &info["checkpoint"]))
}

async fn expirations(State(state): State<Shared>, access: Access) -> Result<Response, Problem> {
    let limit = state.limits.timeout;
    let tasks = report(&state, &access, "expiration.list", Args::new(), limit).await?;
    let statistics = report(&state, &access, "expiration.stats", Args::new(), limit).await?;
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
    State(state): State<Shared>,
    access: Access,
    Named(name): Named<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let NewExpiration { space, options } = read_json(&state, &headers, body).await?;
    let args = Args::new().json(&name.into()).json(&space.into()).json(&options.into());
    let begun = report(&state, &access, "expiration.start", args, state.limits.timeout).await?;
    Ok(answer(StatusCode::OK, &begun))
}

async fn stop_expiration(
    State(state): State<Shared>,
    access: Access,
    Named(name): Named<String>,
) -> Result<Response, Problem> {
    let args = Args::new().json(&name.into());
    let ended = report(&state, &access, "expiration.stop", args, state.limits.timeout).await?;
    Ok(answer(StatusCode::OK, &ended))
}

async fn promote(State(state): State<Shared>, access: Access) -> Result<Response, Problem> {
    report(&state, &access, "box.ctl.promote", Args::new(), state.limits.timeout).await?;
    role(&state, &access).await
}

async fn demote(State(state): State<Shared>, access: Access) -> Result<Response, Problem> {
    let args = Args::new().json(&json!({ "read_only": true }));
    report(&state, &access, "box.cfg", args, state.limits.timeout).await?;
    role(&state, &access).await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Transfer {
    node: Option<u64>,
    reason: Option<String>,
}

async fn transfer(
    State(state): State<Shared>,
    access: Access,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let Transfer { node, reason } = read_json(&state, &headers, body).await?;
    let args = Args::new().json(&node.into()).json(&given([("reason", reason.into())]));
    let asked = report(&state, &access, "lycosa.cluster.transfer", args, state.limits.timeout).await?;
    Ok(answer(StatusCode::OK, &asked))
}

/// Whether the server takes writes now, and its clock.
async fn role(state: &Shared, access: &Access) -> Result<Response, Problem> {
    let info = report(state, access, "box.info", Args::new(), state.limits.timeout).await?;
    let shown = json!({ "read_only": info["ro"], "status": info["status"], "vclock": info["vclock"] });
    Ok(answer(StatusCode::OK, &shown))
}

async fn tokens(State(state): State<Shared>, access: Access) -> Result<Response, Problem> {
    let tokens = report(&state, &access, "lycosa.token.list", Args::new(), state.limits.timeout).await?;
    Ok(answer(StatusCode::OK, &json!({ "tokens": tokens })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewToken {
    name: String,
    role: String,
    tubes: Vec<String>,
    ttl: Option<f64>,
}

async fn add_token(
    State(state): State<Shared>,
    access: Access,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let NewToken { name, role, tubes, ttl } = read_json(&state, &headers, body).await?;
    let options = json!({ "role": role, "tubes": tubes, "ttl": ttl });
    let args = Args::new().json(&name.into()).json(&options);
    let made = report(&state, &access, "lycosa.token.add", args, state.limits.timeout).await?;
    Ok(answer(StatusCode::CREATED, &made))
}

async fn revoke_token(
    State(state): State<Shared>,
    access: Access,
    Named(name): Named<String>,
) -> Result<Response, Problem> {
    let args = Args::new().json(&name.as_str().into());
    report(&state, &access, "lycosa.token.revoke", args, state.limits.timeout).await?;
    Ok(answer(StatusCode::OK, &json!({ "name": name })))
}
