//! Routes that list tubes and their status.

use axum::http::StatusCode;
use axum::routing::get;
use lycosa_tuple::mp::Reader;
use serde_json::{Map, Value as Json, json};

use super::{Args, Client, Named, Reply, Route, VIEWER, answer, unexpected};
use crate::http::json;
use crate::http::problem::{Kind, Problem};

pub(super) const ROUTES: &[Route] = &[
    Route::new("get", "/v1/tubes", "listTubes", VIEWER, "Tubes")
        .summary("The tubes of the token, with their tasks and calls")
        .attach(|| get(list)),
    Route::new("get", "/v1/tubes/{tube}", "getTube", VIEWER, "Tube")
        .summary("A tube, with its tasks and calls")
        .attach(|| get(show)),
];

async fn list(client: Client) -> Reply {
    let tubes: Vec<Json> = tubes(&client).await?.into_iter().map(|(name, tube)| shown(&name, tube)).collect();
    Ok(answer(StatusCode::OK, &json!({ "tubes": tubes })))
}

async fn show(client: Client, Named(name): Named<String>) -> Reply {
    let mut tubes = tubes(&client).await?;
    let tube = tubes.remove(&name).ok_or_else(|| {
        Problem::new(Kind::NoSuchTube, format!("tube {name:?} does not exist, or the token is not for it"))
    })?;
    Ok(answer(StatusCode::OK, &shown(&name, tube)))
}

/// The answer of `queue.tubes()`.
async fn tubes(client: &Client) -> Result<Map<String, Json>, Problem> {
    const FUNCTION: &str = "queue.tubes";
    let values = client.call(FUNCTION, Args::new()).await?;
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
