//! `lycosa token`: secrets for HTTP, over the administrator's socket of a running server.

use std::time::{Duration, UNIX_EPOCH};

use lycosa_client::Value;
use serde_json::json;

use crate::arguments::TokenCommand;
use crate::outcome::Outcome;
use crate::session::Session;
use crate::values::{array_of, is_true, name_of, text_of};
use crate::{output, payload};

pub(crate) fn run(command: TokenCommand) -> anyhow::Result<Outcome> {
    match command {
        TokenCommand::Add { name, role, tube, ttl, admin } => {
            let session = Session::open_admin(&admin.data_dir)?;
            let tubes: Value = tube.into_iter().map(Value::from).collect::<Vec<_>>().into();
            let ttl = ttl.map_or(Value::Nil, |ttl| Value::Double(ttl.as_secs_f64()));
            let options = Value::map([("role", Value::from(name_of(&role))), ("tubes", tubes), ("ttl", ttl)]);
            let given = vec![name.as_str().into(), options];
            let made = session.ask("lycosa.token.add", given, "the server has answered nothing")?;
            output::either(admin.json, payload::to_json(&made), text_of(&made, "secret"))?;
            if !admin.json {
                eprintln!("This is the secret of token {name}. It is shown once and stored nowhere.");
            }
            Ok(Outcome::Done)
        }
        TokenCommand::List(admin) => list(&Session::open_admin(&admin.data_dir)?, admin.json),
        TokenCommand::Revoke { name, admin } => {
            let session = Session::open_admin(&admin.data_dir)?;
            session.call("lycosa.token.revoke", vec![name.as_str().into()])?;
            let object = json!({ "token": name, "done": "revoked" });
            output::said(admin.json, object, format_args!("revoked token {name}"))
        }
    }
}

fn list(session: &Session, as_json: bool) -> anyhow::Result<Outcome> {
    let tokens = session.list("lycosa.token.list", Vec::new())?;
    if as_json {
        return output::objects(&tokens);
    }
    let row = |token: &Value| {
        let tubes: Vec<_> = array_of(token, "tubes").iter().filter_map(Value::as_str).collect();
        let expires = match token.get("expires") {
            Some(Value::Double(_)) if is_true(token, "is_expired") => "expired".to_owned(),
            Some(Value::Double(moment)) => date(*moment),
            _ => "never".to_owned(),
        };
        let [name, role] = ["name", "role"].map(|name| text_of(token, name).to_owned());
        [name, role, tubes.join(", "), expires]
    };
    output::table(&["name", "role", "tubes", "expires"], tokens.iter().map(row))
}

/// A moment, in seconds since the epoch, as a date.
fn date(moment: f64) -> String {
    let then = Duration::try_from_secs_f64(moment).ok().and_then(|span| UNIX_EPOCH.checked_add(span));
    then.map_or_else(String::new, |then| humantime::format_rfc3339_seconds(then).to_string())
}
