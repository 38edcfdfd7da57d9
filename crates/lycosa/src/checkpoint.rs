//! `lycosa checkpoint`: a snapshot now, over the administrator's socket of a running server.

use std::time::Duration;

use anyhow::Context;
use serde_json::json;

use crate::arguments::AdminArguments;
use crate::outcome::Outcome;
use crate::role::info;
use crate::session::Session;
use crate::values::number_of;
use crate::{output, payload};

/// How long a snapshot may take.
pub(crate) const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

pub(crate) fn run(arguments: &AdminArguments) -> anyhow::Result<Outcome> {
    let session = Session::open_admin(&arguments.data_dir)?;
    session.call_waiting("box.snapshot", Vec::new(), LONGEST)?;
    let info = info(&session)?;
    let checkpoint = info.get("checkpoint").context("the server says nothing about checkpoints")?;
    if arguments.json {
        return output::done(json!({ "checkpoint": payload::to_json(checkpoint) }));
    }
    let Some(last) = checkpoint.get("last") else {
        return output::done("nothing has changed since the last snapshot");
    };
    output::line(format_args!(
        "snapshot of {} rows, {} bytes, written in {:.2} s; requests were held for {} us at the most",
        number_of(last, "rows"),
        number_of(last, "bytes"),
        number_of(last, "duration_us") as f64 / 1e6,
        number_of(checkpoint, "longest_pause_us"),
    ))?;
    let [used, bound] = ["disk_used", "disk_bound"].map(|name| number_of(checkpoint, name));
    output::done(format_args!("the data folder takes {used} of {bound} bytes"))
}
