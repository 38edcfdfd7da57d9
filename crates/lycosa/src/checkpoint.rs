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
    let [rows, bytes, time] = ["rows", "bytes", "duration_us"].map(|name| number_of(last, name));
    let (time, pause) = (time as f64 / 1e6, number_of(checkpoint, "longest_pause_us"));
    output::line(format_args!(
        "snapshot of {rows} rows, {bytes} bytes, written in {time:.2} s; requests were held for {pause} us at the most"
    ))?;
    let [used, bound] = ["disk_used", "disk_bound"].map(|name| number_of(checkpoint, name));
    output::done(format_args!("the data folder takes {used} of {bound} bytes"))
}
