//! `lycosa reload`: the Lua program again, over the administrator's socket of a running server.

use lycosa_client::Value;
use serde_json::json;

use crate::arguments::AdminArguments;
use crate::outcome::Outcome;
use crate::output;
use crate::session::Session;

/// Loads the program again; returns its generation.
const RELOAD: &str = "local reload = require('package.reload') reload() return reload.count";

pub(crate) fn run(arguments: &AdminArguments) -> anyhow::Result<Outcome> {
    let session = Session::open_admin(&arguments.data_dir)?;
    let answer = session.eval(RELOAD)?;
    let generation = answer.first().and_then(Value::as_u64).unwrap_or_default();
    let words = format_args!("the program was loaded again: generation {generation}");
    output::said(arguments.json, json!({ "generation": generation }), words)
}
