//! `lycosa token`: secrets for HTTP, over the administrator's socket of a running server.

use std::time::{Duration, UNIX_EPOCH};

use anyhow::Context;
use lycosa_client::Value;
use serde_json::json;

use crate::arguments::TokenCommand;
use crate::outcome::Outcome;
use crate::output;
use crate::payload;
use crate::session::Session;
use crate::values::{name_of, text_of};

pub(crate) fn run(command: TokenCommand) -> anyhow::Result<Outcome> {
    match command {
        TokenCommand::Add { name, role, tube, ttl, admin } => {
            let session = Session::open_admin(&admin.data_dir)?;
            let tubes: Value = tube.into_iter().map(Value::from).collect::<Vec<_>>().into();
            let ttl = ttl.map_or(Value::Nil, |ttl| Value::Double(ttl.as_secs_f64()));
            let options = Value::map([("role", Value::from(name_of(&role))), ("tubes", tubes), ("ttl", ttl)]);
            let made = session.call("lycosa.token.add", vec![name.as_str().into(), options])?;
            let made = made.first().context("the server has answered nothing")?;
            if admin.json {
                output::line(payload::to_json(made))?;
            } else {
                let secret = made.get("secret").and_then(Value::as_str).unwrap_or_default();
                output::line(secret)?;
                eprintln!("This is the secret of token {name}. It is shown once and stored nowhere.");
            }
            Ok(Outcome::Done)
        }
        TokenCommand::List { admin } => list(&Session::open_admin(&admin.data_dir)?, admin.json),
        TokenCommand::Revoke { name, admin } => {
            let session = Session::open_admin(&admin.data_dir)?;
            session.call("lycosa.token.revoke", vec![name.as_str().into()])?;
            output::said(
                admin.json,
                json!({ "token": name, "done": "revoked" }),
                format_args!("revoked token {name}"),
            )
        }
    }
}

fn list(session: &Session, as_json: bool) -> anyhow::Result<Outcome> {
    let values = session.call("lycosa.token.list", Vec::new())?;
    let tokens = values.first().and_then(Value::as_array).unwrap_or_default();
    if as_json {
        return output::objects(tokens);
    }
    let text = |token: &Value, name: &str| text_of(token, name).to_owned();
    let row = |token: &Value| {
        let tubes = token.get("tubes").and_then(Value::as_array).unwrap_or_default();
        let tubes: Vec<_> = tubes.iter().filter_map(Value::as_str).collect();
        let is_expired = token.get("is_expired").and_then(Value::as_bool) == Some(true);
        let expires = match token.get("expires") {
            Some(Value::Double(_)) if is_expired => "expired".to_owned(),
            Some(Value::Double(moment)) => date(*moment),
            _ => "never".to_owned(),
        };
        [text(token, "name"), text(token, "role"), tubes.join(", "), expires]
    };
    output::table(&["name", "role", "tubes", "expires"], tokens.iter().map(row))?;
    Ok(Outcome::Done)
}

/// A moment, in seconds since the epoch, as a date.
fn date(moment: f64) -> String {
    let then = Duration::try_from_secs_f64(moment).ok().and_then(|span| UNIX_EPOCH.checked_add(span));
    then.map_or_else(String::new, |then| humantime::format_rfc3339_seconds(then).to_string())
}
