//! Probes of supervisors and load balancers. They need no token, and tell nothing about data.

use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use lycosa_instance::Instance;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::{Params, Reply, Route, Table, answer, shared};
use crate::http::problem::{Kind, Problem};
use crate::http::readings::{Subject, accepted_age};
use crate::http::{Shared, openapi};

/// How long the loop may take to answer a probe.
const LIMIT: Duration = Duration::from_secs(5);

pub(super) const ROUTES: &[Route] = &[
    Route::new("get", "/livez", "livez", None, "Live")
        .summary("Whether the server's loop turns")
        .answers(&[(503, "Problem")])
        .attach(|| get(livez)),
    Route::new("get", "/readyz", "readyz", None, "Ready")
        .summary(
            "Whether tasks can be put and taken here, and why not; a member of a group is ready \
             while it knows the leader",
        )
        .query(&[("read_only", "boolean", "true: a server that takes no writes is ready too")])
        .answers(&[(400, "Problem"), (503, "Ready")])
        .attach(|| get(readyz)),
    Route::new("get", "/health", "health", None, "Health")
        .summary("What /readyz says, with version and uptime; the status is 200 as long as the loop turns")
        .answers(&[(503, "Problem")])
        .attach(|| get(health)),
    Route::new("get", "/v1/openapi.json", "openapi", None, "OpenApi")
        .summary("This document")
        .attach(|| get(openapi)),
];

/// Answers in place of every route until the start is over: probes say how far it is, anything else is refused.
pub(super) async fn until_started(
    State(state): State<Shared>,
    request: Request<Body>,
    next: Next,
) -> Response {
    let progress = &state.progress;
    if progress.is_over() {
        return next.run(request).await;
    }
    let reasons = [json!({ "reason": "starting", "detail": progress.to_string() })];
    match request.uri().path() {
        "/livez" => answer(StatusCode::OK, &json!({ "live": true })),
        "/readyz" => answer(StatusCode::SERVICE_UNAVAILABLE, &json!({ "ready": false, "reasons": reasons })),
        "/health" => answer(StatusCode::OK, &health_of("starting", &reasons, true, progress.seconds())),
        "/v1/openapi.json" => next.run(request).await,
        _ => Problem::new(Kind::Unavailable, progress.to_string()).retry_after(1).into_response(),
    }
}

async fn openapi(Extension(table): Extension<Table>) -> Response {
    answer(StatusCode::OK, &openapi::document(table))
}

async fn livez(State(state): State<Shared>) -> Reply {
    state.bridge.look(LIMIT, |_| ()).await?;
    Ok(answer(StatusCode::OK, &json!({ "live": true })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadyParams {
    #[serde(default)]
    read_only: bool,
}

async fn readyz(
    State(state): State<Shared>,
    Params(ReadyParams { read_only }): Params<ReadyParams>,
) -> Reply {
    let reasons = state.bridge.look(LIMIT, move |instance| reasons(instance, read_only)).await?;
    let status = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok(answer(status, &json!({ "ready": reasons.is_empty(), "reasons": reasons })))
}

/// Open pages ask each second, and share the answer as they share answers that need a token ([`readings`]).
async fn health(State(state): State<Shared>, headers: HeaderMap) -> Reply {
    let subject = Subject { token: None, function: "health", args: Vec::new() };
    shared(&state, accepted_age(&headers), subject, state.bridge.look(LIMIT, standing)).await
}

/// How the server stands.
fn standing(instance: &mut Instance) -> Json {
    let reasons = reasons(instance, false);
    let standing = instance.status().standing;
    let uptime = standing.uptime as f64 / 1e6;
    health_of(standing.status, &reasons, standing.is_read_only, uptime)
}

fn health_of(status: &str, reasons: &[Json], is_read_only: bool, uptime: f64) -> Json {
    json!({
        "status": status,
        "ready": reasons.is_empty(),
        "reasons": reasons,
        "read_only": is_read_only,
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_seconds": uptime,
    })
}

/// Why tasks cannot be put and taken: names for programs, texts for people.
fn reasons(instance: &Instance, may_be_read_only: bool) -> Vec<Json> {
    let reasons =
        instance.unready().into_iter().filter(|(name, _)| !may_be_read_only || *name != "read_only");
    reasons.map(|(name, text)| json!({ "reason": name, "detail": text })).collect()
}
