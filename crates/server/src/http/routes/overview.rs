//! The overview: the numbers of the server, and of its tubes those with faults, in one answer of bounded size.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::get;
use lycosa_instance::{Instance, TokenRole};
use lycosa_queue::status::Survey;
use lycosa_tuple::mp::Reader;
use serde_json::Value as Json;

use super::{Args, Route, SHARED_HEADERS, admit, answer, report_of, unexpected};
use crate::clock::now;
use crate::http::access::Access;
use crate::http::problem::Problem;
use crate::http::readings::{self, Subject};
use crate::http::{Shared, json};

const NAME: &str = "GET /v1/overview";

pub(super) const ROUTES: &[Route] = &[Route {
    method: "get",
    path: "/v1/overview",
    operation: "getOverview",
    summary: "The server's numbers with histories, what box.info() tells, and the tubes with the gravest faults; for a token of \
              every tube",
    role: Some(TokenRole::Viewer),
    query: &[],
    headers: SHARED_HEADERS,
    bodies: &[],
    answers: &[(200, "Overview")],
    attach: || get(overview),
}];

async fn overview(
    State(state): State<Shared>,
    access: Access,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    admit(&state, &access, TokenRole::Viewer, NAME).await?;
    let make = async { Ok(read(&state, &access).await?.to_string()) };
    let Some(age) = readings::accepted_age(&headers) else {
        return Ok(answer(StatusCode::OK, &read(&state, &access).await?));
    };
    let subject = Subject { token: Some(access.0.clone()), function: NAME, args: Vec::new() };
    Ok(state.readings.get(subject, age, make).await?.response())
}

async fn read(state: &Shared, access: &Access) -> Result<Json, Problem> {
    let limit = state.limits.timeout;
    let (mut survey, mut after) = (Survey::default(), None);
    loop {
        let mut part = std::mem::take(&mut survey);
        let look = move |instance: &mut Instance| {
            instance.set_now(now());
            let next = instance.survey(after, &mut part);
            next.map(|next| (part, next))
        };
        (survey, after) = state.bridge.look(limit, look).await?.map_err(Problem::from)?;
        if after.is_none() {
            break;
        }
    }
    let look = move |instance: &mut Instance| {
        let mut bytes = Vec::new();
        instance.write_overview(survey, &mut bytes).map(|()| bytes)
    };
    let bytes = state.bridge.look(limit, look).await?.map_err(Problem::from)?;
    let mut overview = json::from_report(&mut Reader::new(&bytes)).ok_or_else(|| unexpected(NAME))?;
    overview["info"] = report_of(state, access, "box.info", Args::new().finish(), limit).await?;
    Ok(overview)
}
