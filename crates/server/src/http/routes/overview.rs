//! The overview: the numbers of the server, and of its tubes those with faults, in one answer of bounded size.

use axum::routing::get;
use lycosa_instance::{Instance, TokenRole};
use lycosa_queue::status::Survey;
use lycosa_tuple::mp::Reader;
use serde_json::Value as Json;

use super::{Args, Client, Reply, Route, VIEWER, shared, unexpected};
use crate::clock::now;
use crate::http::json;
use crate::http::problem::Problem;
use crate::http::readings::Subject;

const NAME: &str = "GET /v1/overview";

pub(super) const ROUTES: &[Route] = &[Route::new("get", "/v1/overview", "getOverview", VIEWER, "")
    .summary(
        "The server's numbers with histories, what box.info() tells, and the tubes with the gravest \
         faults; for a token of every tube",
    )
    .shared()
    .answers(&[(200, "Overview")])
    .attach(|| get(overview))];

async fn overview(client: Client) -> Reply {
    client.admit(TokenRole::Viewer, NAME).await?;
    let subject = Subject { token: Some(client.access.0.clone()), function: NAME, args: Vec::new() };
    shared(&client.state, client.age, subject, read(&client)).await
}

async fn read(client: &Client) -> Result<Json, Problem> {
    let (mut survey, mut after) = (Survey::default(), None);
    loop {
        let mut part = std::mem::take(&mut survey);
        let look = move |instance: &mut Instance| {
            instance.set_now(now());
            let next = instance.survey(after, &mut part);
            next.map(|next| (part, next))
        };
        (survey, after) = client.look(look).await?.map_err(Problem::from)?;
        if after.is_none() {
            break;
        }
    }
    let look = move |instance: &mut Instance| {
        let mut bytes = Vec::new();
        instance.write_overview(survey, &mut bytes).map(|()| bytes)
    };
    let bytes = client.look(look).await?.map_err(Problem::from)?;
    let mut overview = json::from_report(&mut Reader::new(&bytes)).ok_or_else(|| unexpected(NAME))?;
    overview["info"] = client.report("box.info", Args::new()).await?;
    Ok(overview)
}
