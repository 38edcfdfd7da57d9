//! Routes that list tubes and their status.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use lycosa_instance::TokenRole;
use lycosa_tuple::mp::Reader;
use serde_json::{Map, Value as Json, json};

use super::{Args, Named, Route, answer, unexpected};
use crate::http::access::Access;
use crate::http::problem::{Kind, Problem};
use crate::http::{Shared, json};

pub(super) const ROUTES: &[Route] = &[
    Route {
        method: "get",
        path: "/v1/tubes",
        operation: "listTubes",
        summary: "The tubes of the token, with their tasks and calls",
        role: Some(TokenRole::Viewer),
        query: &[],
        headers: &[],
        bodies: &[],
        answers: &[(200, "Tubes")],
        attach: || get(list),
    },
    Route {
        method: "get",
        path: "/v1/tubes/{tube}",
        operation: "getTube",
        summary: "A tube, with its tasks and calls",
        role: Some(TokenRole::Viewer),
        query: &[],
        headers: &[],
        bodies: &[],
        answers: &[(200, "Tube")],
        attach: || get(show),
    },
];

async fn list(State(state): State<Shared>, access: Access) -> Result<Response, Problem> {
    let tubes: Vec<Json> =
        tubes(&state, &access).await?.into_iter().map(|(name, tube)| shown(&name, tube)).collect();
    Ok(answer(StatusCode::OK, &json!({ "tubes": tubes })))
}

async fn show(
    State(state): State<Shared>,
    access: Access,
    Named(name): Named<String>,
) -> Result<Response, Problem> {
    let mut tubes = tubes(&state, &access).await?;
    let tube = tubes.remove(&name).ok_or_else(|| {
        Problem::new(Kind::NoSuchTube, format!("tube {name:?} does not exist, or the token is not for it"))
    })?;
    Ok(answer(StatusCode::OK, &shown(&name, tube)))
}

/// The answer of `queue.tubes()`.
async fn tubes(state: &Shared, access: &Access) -> Result<Map<String, Json>, Problem> {
    const FUNCTION: &str = "queue.tubes";
    let limit = state.limits.timeout;
    let values = state.bridge.call(access, FUNCTION.to_owned(), Args::new().finish(), limit).await?;
    match json::from_msgpack(&mut Reader::new(&values.bytes)) {
        Some(Json::Object(tubes)) => Ok(tubes),
        // An empty map may come as an empty array.
        Some(Json::Array(tubes)) if tubes.is_empty() => Ok(Map::new()),
        _ => Err(unexpected(FUNCTION)),
    }
}

fn shown(name: &str, mut tube: Json) -> Json {
    let mut statistics = tube["statistics"].take();
    json!({
        "name": name,
        "type": tube["type"],
        "tasks": statistics["tasks"].take(),
        "calls": statistics["calls"].take(),
        "oldest": tube["oldest"],
    })
}
