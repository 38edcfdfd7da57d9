//! The route that shows the rights of the request's token.

use axum::http::StatusCode;
use axum::routing::get;
use lycosa_instance::Instance;
use serde_json::json;

use super::{Client, Reply, Route, VIEWER, answer};
use crate::clock::now;
use crate::http::access::Access;
use crate::http::problem::Problem;

pub(super) const ROUTES: &[Route] = &[Route::new("get", "/v1/token", "getToken", VIEWER, "")
    .summary("The token of this request: its name, role, tubes and end")
    .answers(&[(200, "Token")])
    .attach(|| get(show))];

async fn show(client: Client) -> Reply {
    let Client { state, access: Access(digest), .. } = client.clone();
    let look = move |instance: &mut Instance| {
        instance.set_now(now());
        let id = instance.token_caller(&digest, 0)?.token;
        let token = id.and_then(|id| instance.token(id)).ok_or_else(Instance::invalid_token)?;
        Ok::<_, Problem>(json!({
            "name": token.name,
            "role": token.role.name(),
            "tubes": token.tubes,
            "expires": token.expires.map(|expires| expires as f64 / 1e6),
        }))
    };
    let mut shown = client.look(look).await??;
    let badge = &state.config.http_badge;
    shown["hides_payloads"] = state.config.http_hide_payloads.into();
    shown["badge"] =
        if badge.text.is_empty() { json!(null) } else { json!({ "text": badge.text, "color": badge.color }) };
    Ok(answer(StatusCode::OK, &shown))
}
