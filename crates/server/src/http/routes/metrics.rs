//! Routes of metrics, for monitors and autoscalers.
//!
//! A scrape goes through the tubes page by page, so that the loop serves its clients in between, and turns the numbers into text
//! on this thread. Clients on this machine need no token for `/metrics`, others one for every tube.

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use lycosa_instance::{Caller, Instance};
use lycosa_metrics::{Autoscaler, Scope, Snapshot, Target, Tube};
use lycosa_queue::status::Page;
use serde::Deserialize;
use serde_json::json;

use super::{Args, Client, Named, Params, Reply, Route, VIEWER, answer, method, unexpected};
use crate::config::length;
use crate::http::access::Access;
use crate::http::problem::{Kind, Problem};
use crate::http::{Peer, Shared};
use crate::process;

pub(super) const ROUTES: &[Route] = &[
    Route::new("get", "/metrics", "metrics", None, "Metrics")
        .summary(
            "Everything that is measured, for Prometheus; clients of other machines need a token for \
             every tube",
        )
        .answers(&[(401, "Problem")])
        .attach(|| get(metrics)),
    Route::new("get", "/metrics/detailed", "detailedMetrics", None, "Metrics")
        .summary("The metrics of one tube, whether /metrics has it or not")
        .query(&[("tube", "string, required", "its name")])
        .answers(&[(400, "Problem"), (401, "Problem"), (404, "Problem")])
        .attach(|| get(detailed)),
    Route::new("get", "/v1/tubes/{tube}/scale", "getTubeScale", VIEWER, "TubeScale")
        .summary("Flat numbers of a tube, for autoscalers")
        .query(&[(
            "age",
            "number",
            "seconds below which the oldest ready task is to stay, for desired_workers; 60 by default",
        )])
        .attach(|| get(scale)),
];

/// Whether the client may read metrics.
async fn admit(state: &Shared, peer: Peer, access: Option<Access>) -> Result<(), Problem> {
    if peer.0.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    let missing = || Problem::new(Kind::NoToken, "metrics need a token, but for clients of this machine");
    let (access, limit) = (access.ok_or_else(missing)?, state.config.http_timeout);
    let client = Client { state: state.clone(), access, age: None, limit, reads: true };
    let page =
        client.call("queue.status", Args::new().raw(&[0x81, 0xa5, b'l', b'i', b'm', b'i', b't', 1])).await?;
    // A token of some tubes gets nothing of the instance.
    let mut snapshot = Snapshot::default();
    match snapshot.add_page(&page.bytes) {
        Ok(_) if snapshot.instance.is_some() => Ok(()),
        _ => Err(Problem::new(Kind::Forbidden, "metrics need a token for every tube")),
    }
}

/// A page of the status, as the instance itself sees it.
async fn page(
    state: &Shared,
    snapshot: &mut Snapshot,
    (after, tube): (Option<u64>, Option<String>),
) -> Result<Option<u64>, Problem> {
    let look = move |instance: &mut Instance| {
        let mut bytes = Vec::new();
        let page = Page { after, limit: Page::MAX_TUBES, tube: tube.as_deref(), ..Page::default() };
        instance.write_status(&Caller::internal(), page, &mut bytes).map(|_| bytes)
    };
    let bytes = state.bridge.look(state.config.http_timeout, look).await?.map_err(Problem::from)?;
    snapshot.add_page(&bytes).map_err(|_| unexpected("queue.status"))
}

async fn metrics(
    State(state): State<Shared>,
    Extension(peer): Extension<Peer>,
    access: Option<Access>,
) -> Reply {
    admit(&state, peer, access).await?;
    let mut snapshot = Snapshot::default();
    let mut after = None;
    loop {
        after = page(&state, &mut snapshot, (after, None)).await?;
        if after.is_none() {
            break;
        }
    }
    let mut process = process::measure();
    process.http_connections = Some(state.places.in_use() as u64);
    let mut text = String::new();
    let scope = Scope::All(length(state.config.metrics_tubes));
    lycosa_metrics::write_prometheus(&snapshot, Some(&process), scope, Target::default(), &mut text);
    if state.config.metrics_tarantool {
        lycosa_metrics::write_tarantool(&snapshot, &mut text);
    }
    Ok(shown(text))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OneTube {
    tube: String,
}

async fn detailed(
    State(state): State<Shared>,
    Extension(peer): Extension<Peer>,
    access: Option<Access>,
    Params(OneTube { tube }): Params<OneTube>,
) -> Reply {
    admit(&state, peer, access).await?;
    let mut snapshot = Snapshot::default();
    page(&state, &mut snapshot, (None, Some(tube.clone()))).await?;
    if snapshot.tubes.is_empty() {
        return Err(Problem::new(Kind::NoSuchTube, format!("tube {tube:?} does not exist")));
    }
    let mut text = String::new();
    lycosa_metrics::write_prometheus(&snapshot, None, Scope::Tubes, Target::default(), &mut text);
    Ok(shown(text))
}

fn shown(text: String) -> Response {
    let media = HeaderValue::from_static(lycosa_metrics::CONTENT_TYPE);
    ([(header::CONTENT_TYPE, media)], text).into_response()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    age: Option<f64>,
}

async fn scale(client: Client, Named(tube): Named<String>, Params(Wanted { age }): Params<Wanted>) -> Reply {
    let function = method(&tube, "status");
    let values = client.call(&function, Args::new()).await?;
    let tube = Tube::read(&values.bytes).map_err(|_| unexpected(&function))?;
    let target = age.map_or_else(Target::default, |age| Target { age });
    Ok(answer(StatusCode::OK, &json!(Autoscaler::of(&tube, target))))
}
